/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that write the report as text. */
#ifndef TL_SINK_TEXT_PRIV_H
#define TL_SINK_TEXT_PRIV_H

#include "model/blame.h"
#include "sink/text.h"
#include "sink/trace.h"

enum { LABEL = 10 };	/* columns of the labels at the left of a report */

/* A p99 of fewer values is their maximum. */
enum { MIN_FOR_P99 = 10 };

/* Tables have so many columns of text; where these do not fit, a line says what was left out. */
enum { FROM_WIDTH = 80, FULL_WIDTH = 98, MEDIUM_WIDTH = 72 };
#define WIDER "wider terminal or COLUMNS=100"

/* The first sentences. Returns 0 or -ENOMEM. */
int text_answer(struct page *p, const struct model_view *v, const struct summary *s, struct blame *b);

/* What must stand before it: a rank that hangs, an observer that cost too much. */
void text_urgent(struct page *p, const struct model_view *v);

/* What an answer rests on: events seen and lost, what the observer cost, the capture. */
void text_seen(struct page *p, const struct model_view *v, const struct summary *s);
void text_cost(struct page *p, const struct model_view *v, const struct summary *s);
void text_capture(struct page *p, const struct model_view *v);

/* The engines, how full their steps were, and what their schedulers say. */
int text_engines(struct page *p, const struct model_view *v);	/* 0 or -ENOMEM */
int text_fronts(struct page *p,
		const struct model_view *v); /* each, if there are several; 0 or -ENOMEM */
void text_batch(struct page *p, const struct summary *s);
int text_scheduler(struct page *p, const struct model_view *v, const struct summary *s); /* -ENOMEM */

/* What GPUs did: how that was seen, devices, holes, kernels. Returns 0 or -ENOMEM. */
int text_gpu(struct page *p, const struct model_view *v);

/* Is a slot anything to its users? vLLM has none: there it is the number of a sequence. */
bool text_has_slots(const struct model_view *v);

/* The tables of single requests: max of them, 0: as many as by default. 0 or -ENOMEM. */
int text_slowest(struct page *p, const struct model_view *v, struct blame *b, size_t max);
void text_failures(struct page *p, const struct model_view *v);

/* Was most of a part before its first token something that is neither its own nor the scheduler's? Then
 * buf says what: "stopped or frozen 1.00 s (bash)". */
bool text_held_up(const struct trace *t, struct blame *b, enum part part, char *buf, size_t size);

/* What made this request slow, in the more words the larger buf is: HINT_LEN for a column. Returns buf. */
enum { HINT_LEN = 30 };
const char *text_hint(const struct trace *t, struct blame *b, char *buf, size_t size);

#endif
