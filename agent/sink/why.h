/* SPDX-License-Identifier: Apache-2.0 */
/* The waterfall of one request: every part of its time, and what filled it. */
#ifndef TL_SINK_WHY_H
#define TL_SINK_WHY_H

#include "model/model.h"
#include "sink/page.h"

/* `request` is its index. Both return 0 or -errno. */
int why_request(const struct model_view *v, size_t request, const struct text_opts *o, FILE *out);
/* One line. trouble: what of the recording could not be read; NULL: nothing. */
int why_request_json(const struct model_view *v, size_t request, const char *trouble, FILE *out);

#endif
