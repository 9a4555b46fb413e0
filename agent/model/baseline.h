/* SPDX-License-Identifier: Apache-2.0 */
/* What a step costs when nobody disturbs, learnt from the recording itself. Pure. */
#ifndef TL_MODEL_BASELINE_H
#define TL_MODEL_BASELINE_H

#include "model/step_index.h"

struct baseline;

/* What evidence says that a baseline must not learn. Both may be NULL: there is none. */
struct baseline_evidence {
	/* Time in a span of an engine that evidence of the machine takes away from it: queue for a
	 * CPU, throttling, GC ... A step is learnt from without it. */
	uint64_t (*disturbed_ns)(void *ctx, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns);
	/* A step that is known to be odd (graph miss, slow clock,
	 * neighbour, cold) teaches nothing. */
	bool (*is_odd)(void *ctx, uint32_t step);
	void *ctx;
};

/* Learns from all steps of the index, which must outlive it. 0 or -ENOMEM. Per engine: the batch
 * size (sequences that decode), the sum of their contexts, the tokens of prefill. Robust: a
 * minority of slow steps does not move it. */
int baseline__new(const struct step_index *ix, const struct baseline_evidence *ev,
		  struct baseline **ret);
void baseline__free(struct baseline *b);	/* NULL is fine */

struct expected {
	uint64_t decode_ns;	/* of the step if its prefill were not in it */
	uint64_t step_ns;	/* with its prefill, as far as that was learnt */
	uint64_t err_ns;	/* a step within this of step_ns is like any other */
	uint64_t hole_ns;	/* from the end of the step before to its begin, as usual */
	uint64_t hole_err_ns;
	uint32_t n_learnt; /* steps that this rests on; 0: not
			    * enough to learn from, the rest is 0 */
	uint32_t n_prefill; /* steps that the cost of its prefill rests on; 0: step_ns is without */
};
void baseline__step(const struct baseline *b, uint32_t step, struct expected *ret);

/* Steps of all engines that baselines rest on. */
uint32_t baseline__n_learnt(const struct baseline *b);

#endif
