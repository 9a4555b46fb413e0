/* SPDX-License-Identifier: Apache-2.0 */
/* Who slowed whom, as text: the answer, by mechanism, victims x culprits, longest gaps, what if. */
#ifndef TL_SINK_BLAME_TABLE_H
#define TL_SINK_BLAME_TABLE_H

#include "model/blame_how.h"
#include "sink/page.h"

struct blame_text {
	const struct model_view *v;
	const struct summary *summary;
	const struct blame_sum *sum;	/* of what is shown: all, or one request, or some mechanisms */
	const struct hows *hows;	/* behind these sums; NULL: not looked at */
	const struct blame_sum *all;	/* with `request`: of the whole recording; else NULL */
	uint32_t request;		/* index + 1; 0: all */
	enum mechanism mechanism;	/* N_MECHANISMS: all */
	size_t top;			/* rows of pairs and of gaps */
};
/* Returns 0 or -errno. */
int blame_text(const struct blame_text *t, const struct text_opts *o, FILE *out);

#endif
