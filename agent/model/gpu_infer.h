/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that make steps of launches. */
#ifndef TL_GPU_INFER_H
#define TL_GPU_INFER_H

#include "model/state.h"

struct istep {			/* a step in the making */
	uint64_t end_ns;	/* the host could tell of its outputs from then on */
	uint64_t launch0_ns;
	uint64_t busy_ns;	/* on the device, or GPU_UNKNOWN ... */
	uint64_t waited_ns;	/* ... and as the host saw it, from the end of the step before on */
	uint32_t burst;
	uint32_t segment;	/* steps of one have no others between them */
	uint32_t n_decode;	/* members */
	bool hole;		/* behind it ran what nobody saw */
	bool no_step;		/* something ran, and when it ended is not known */
	bool replayed;		/* by a graph: of decodes only */
};
struct imember {
	uint32_t at;		/* which istep */
	uint32_t request;	/* index into `requests` of the server */
	uint32_t n_tokens;	/* 0: not known */
	uint8_t phase;		/* enum tl_phase */
	uint8_t n_out;
};
struct inferred {
	struct model *m;
	struct gpu_process *p;
	uint32_t engine;
	const uint32_t *requests;	/* of this server, in order: indices of the model's */
	size_t n_requests;
	bool has_graphs;
	bool plain_firsts;	/* first tokens are of steps that are no replays */
	uint64_t usual_ns;	/* from launch to launch */
	VEC(struct istep) steps;
	VEC(struct imember) members;
	uint32_t *first_of;	/* by request of the server: istep of its first token + 1, 0: not known */
	uint64_t *open_ns;	/* by request of the server: its prompt may have begun then, before its first step that is
				 * known; 0: no */
};

static inline struct rec_request *irequest(const struct inferred *f, uint32_t i)
{
	return &f->m->requests[f->requests[i]];
}

/* gpu_prompts.c: which requests had a part of their prompt computed in which step. 0 or -ENOMEM */
int gpu_infer_prompts(struct inferred *f);

int imember_add(struct inferred *f, const struct imember *k);	/* 0 or -ENOMEM */

#endif
