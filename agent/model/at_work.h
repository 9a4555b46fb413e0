/* SPDX-License-Identifier: Apache-2.0 */
/* What was seen of each engine at all. Pure. */
#ifndef TL_MODEL_AT_WORK_H
#define TL_MODEL_AT_WORK_H

#include "model/model.h"

struct at_work {
	bool requests, steps;
	bool stats;		/* steps at whose end it says something of its scheduler */
};
/* Per engine of the model; the caller's, for free(). Returns 0 or -ENOMEM. */
int at_work(const struct model_view *v, struct at_work **ret);

#endif
