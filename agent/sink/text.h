/* SPDX-License-Identifier: Apache-2.0 */
/* The report as text: the answer first, then what it rests on. */
#ifndef TL_SINK_TEXT_H
#define TL_SINK_TEXT_H

#include "model/summary.h"
#include "sink/page.h"

/* All return 0 or -errno. */
int text_report(const struct model_view *v, const struct summary *s, const struct text_opts *o,
		FILE *out);
/* Everything that is known of one request; `request` is its index. */
int text_request(const struct model_view *v, size_t request, const struct text_opts *o, FILE *out);

#endif
