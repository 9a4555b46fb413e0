/* SPDX-License-Identifier: Apache-2.0 */
/* Holes on a device while its server had work: inside steps and between them, and what the host did then. Pure. */
#ifndef TL_GPU_BUBBLES_H
#define TL_GPU_BUBBLES_H

#include "model/mechanism.h"
#include "model/model.h"

struct gpu_bubbles {		/* of the steps of one engine whose times on the device are known */
	size_t n_steps;
	size_t n_hit, n_padded, n_eager;	/* replayed, replayed at a larger size, launched one by one */
	uint64_t busy_ns, idle_ns;	/* while there was work; idle: inside of steps and between */
	bool at_most;		/* kernels of some have no record: no more than idle_ns, between_ns */
	uint64_t between_ns;	/* of idle: from the end of a step to the first work of the one that follows it */
	uint64_t by_ns[N_MECHANISMS];	/* of between: what its threads did then, as far as they were watched */
};
/* For each engine (index) of which anything is known. Returns 0 or -ENOMEM. */
typedef void (*gpu_bubbles_fn)(void *ctx, uint32_t engine, const struct gpu_bubbles *b);
int gpu_bubbles_each(const struct model_view *v, gpu_bubbles_fn fn, void *ctx);

#endif
