/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that draw the waterfall of a request. */
#ifndef TL_SINK_WHY_PRIV_H
#define TL_SINK_WHY_PRIV_H

#include "base/vec.h"
#include "model/blame.h"
#include "sink/page.h"
#include "sink/trace.h"

/* One line of the waterfall: a span of time and what filled it. */
struct why_row {
	uint64_t t0_ns, t1_ns;
	enum page_style style;
	char text[320];
};
struct why_rows {
	VEC(struct why_row) rows;
};

/* The rows cover the trace without a hole or an overlap. Returns 0 or -ENOMEM. */
int why_rows__build(struct why_rows *w, const struct trace *t);
void why_rows__free(struct why_rows *w);

/* Beside these, the longest spans in which tokens had been made and were held up on their way out: the steps went on
 * meanwhile. In order of time. Returns 0 or -ENOMEM; to be freed in any case. */
int why_rows__behind(struct why_rows *w, const struct trace *t, struct blame *b);

/* Gaps between tokens that are longer than usual. Returns 0 or -ENOMEM. */
int why_gaps(struct page *p, const struct trace *t, struct blame *b);
/* "; at its client it took 5.62 s, ..." where somebody says when its tokens came there, and that is later than they
 * were written; "" else. Returns 0 or -ENOMEM. */
int why_client(const struct trace *t, struct blame *b, char *buf, size_t size);
/* "; its first token left 518 ms late behind its step: wait for a CPU"; "" if that is not much of its TTFT. */
void why_first_token(const struct trace *t, struct blame *b, char *buf, size_t size);
void why_ttft(struct page *p, const struct trace *t, struct blame *b);	/* its parts */
void why_open(struct page *p, const struct trace *t, struct blame *b);	/* what it waits for at the end */
int why_how(struct page *p, const struct trace *t, struct blame *b);	/* 0 or -ENOMEM */
void why_engine_says(struct page *p, const struct trace *t);	/* where its own metrics mislead */
int why_send(struct page *p, const struct trace *t);	/* what was held behind the write; 0 or -ENOMEM */
void text_gpu_request(struct page *p, const struct model_view *v, size_t request);	/* text_gpu.c: its GPU time */

#endif
