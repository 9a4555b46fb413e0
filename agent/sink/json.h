/* SPDX-License-Identifier: Apache-2.0 */
/* The report as JSON (doc/report-json.md). Same events, same bytes: live or replayed. */
#ifndef TL_SINK_JSON_H
#define TL_SINK_JSON_H

#include "model/blame_sum.h"

#include <stdio.h>

struct json_opts {
	bool no_steps;		/* leave out "steps", also of sequences: they are the bulk */
	bool no_self;		/* leave out "self", the only part that a replay may change */
	bool all_gaps;		/* requests[].gaps: also those that are as usual */
	const char *trouble;	/* what of the recording could not be read; NULL: nothing */
};

/* Writes one line. Returns 0 or -errno. */
int json_report(const struct model_view *v, const struct summary *s, const struct json_opts *o,
		FILE *out);

/* Blame alone: "blame", "what_if", and of each request selected its "gaps", "gaps_side" and
 * "ttft_parts". */
int json_blame_only(const struct model_view *v, const struct summary *s, struct blame *b,
		    const struct blame_selection *sel, const struct json_opts *o, FILE *out);

#endif
