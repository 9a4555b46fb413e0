/* SPDX-License-Identifier: Apache-2.0 */
/* What steps take, learnt from those of which it is known what was in them. */
#ifndef TL_GPU_COST_H
#define TL_GPU_COST_H

#include "model/gpu_infer.h"

struct gpu_cost {		/* per_token_ns 0: not known */
	double base_ns, per_seq_ns, per_token_ns;	/* of a step, a sequence that decodes, a token of a prompt */
	bool decodes;		/* the first two are known from steps without prompts */
};

/* What steps that only decode take, and how far off that usually is. */
struct gpu_decodes {
	bool known;
	double base_ns, per_seq_ns, err_ns;
};

/* Per step: how many prompts end there, and how many may have a part there. */
struct gpu_load {
	uint32_t ends, waits;
	bool early;		/* somebody waits who came before it was planned, and does not end there */
	uint32_t tokens;	/* of prompts that end there ... */
	bool open;		/* ... of one of them it is not known how many */
};

/* How long a step took on the device (by = 0), or as the host saw it (1). GPU_UNKNOWN: not known. */
static inline uint64_t gpu_time_of(const struct istep *s, int by)
{
	return by ? s->waited_ns : s->busy_ns;
}

/* Least squares, the second time without those steps that do not fit. loads: one for each step. 0 or -ENOMEM. */
int gpu_cost_fit(const struct inferred *f, const struct gpu_load *loads, int by, struct gpu_cost *ret);

/* Of steps for which nobody waited. 0 or -ENOMEM. */
int gpu_decodes_fit(const struct inferred *f, const struct gpu_load *loads, int by, struct gpu_decodes *ret);

#endif
