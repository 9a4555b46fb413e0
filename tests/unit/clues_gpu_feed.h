/* SPDX-License-Identifier: Apache-2.0 */
/* What devices did for steps and how they were, fed to a model: what clues of devices are tested with. */
#ifndef TL_CLUES_GPU_FEED_H
#define TL_CLUES_GPU_FEED_H

#include "clues_feed.h"

enum { FULL_MHZ = 1965, CAPPED_MHZ = 1580 };

static inline struct tl_gpu_step gpu(double t0, double t1, double busy)
{
	struct tl_gpu_step e = { .hdr = FEED_HDR(e, TL_GPU_STEP, 0, FEED_CORE, 0, at(t0)), .end_ns = at(t1),
				 .busy_ns = len(busy) };

	return e;
}

static inline struct tl_gpu_state state_of(double t0, double t1, uint32_t mhz, uint32_t why)
{
	struct tl_gpu_state e = { .hdr = FEED_HDR(e, TL_GPU_STATE, 0, 0, 0, at(t1)), .since_ns = at(t0),
				  .clock_mhz = mhz, .max_mhz = FULL_MHZ, .why = why };

	if (why & TL_GPU_NEIGHBOUR) {
		e.by_tgid = 4242;
		e.by_pct = 50;
		strcpy(e.by_name, "embedder");
	}
	return e;
}

static inline struct clue_list step_clues(const struct feed *f, uint32_t step, double usual)
{
	struct clue_list l;

	clues__step(f->c, step, len(usual), &l);
	return l;
}

static inline void replay(struct feed *f, double t0, double t1, uint16_t batch, uint16_t padded_to)
{
	struct tl_gpu_step e = gpu(t0, t1, t1 - t0 - 0.2);

	e.launches = 9;
	e.graph_launches = 1;
	e.batch = batch;
	e.padded_to = padded_to;
	e.graph = padded_to > batch ? TL_GRAPH_PADDED : TL_GRAPH_HIT;
	FEED(f, e);
	feed_step(f, t0, t1, batch, 0);
}

static inline void eager(struct feed *f, double t0, double t1, double busy, uint16_t batch, uint16_t graph,
		  uint32_t prefill)
{
	struct tl_gpu_step e = gpu(t0, t1, busy);

	e.launches = 1185;
	e.batch = batch;
	e.graph = graph;
	FEED(f, e);
	feed_step(f, t0, t1, batch, prefill);
}

static inline void states(struct feed *f, uint32_t mhz, uint32_t why)
{
	struct tl_gpu_state before = state_of(0, 1000, FULL_MHZ, 0), then = state_of(1000, 3000, mhz, why);

	FEED(f, before);
	FEED(f, then);
}

#endif
