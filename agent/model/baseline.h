/* SPDX-License-Identifier: Apache-2.0 */
/* What a step costs when nobody disturbs, learnt from the recording itself. Pure. */
#ifndef TL_MODEL_BASELINE_H
#define TL_MODEL_BASELINE_H

#include "model/model.h"

struct baseline;

/* Time in a step (or in the hole before it) that evidence of the machine takes away from it: queue for
 * a CPU, throttling, GC ... A step is learnt from without it. ns; 0: none. */
typedef uint64_t (*baseline_disturbed_fn)(void *ctx, uint32_t step);

/* Learns from all steps of the view. 0 or -ENOMEM. Uses per engine: the batch size (sequences that
 * decode), the sum of their contexts, the tokens of prefill. Robust: a minority of slow steps does not
 * move it. Steps known to be odd (graph miss, slow clock, neighbour, cold) teach nothing. */
int baseline__new(const struct model_view *v, baseline_disturbed_fn disturbed, void *ctx,
		  struct baseline **ret);
void baseline__free(struct baseline *b);

struct expected {
	uint64_t decode_ns;	/* of the step if its prefill were not in it */
	uint64_t step_ns;	/* with its prefill */
	uint64_t err_ns;	/* a step within this of step_ns is like any other */
	uint64_t hole_ns;	/* from the end of the step before to its begin, as usual */
	uint64_t hole_err_ns;
	uint32_t n_learnt;	/* steps that this rests on; 0: not enough to learn from, the rest is 0 */
};
void baseline__step(const struct baseline *b, uint32_t step, struct expected *ret);

#endif
