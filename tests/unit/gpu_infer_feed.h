/* SPDX-License-Identifier: Apache-2.0 */
/* Steps made of launches, in ms, and who was in them: what their inference is tested with. */
#ifndef TL_GPU_INFER_FEED_H
#define TL_GPU_INFER_FEED_H

#include "gpu_feed.h"

static inline struct gpu_feed start(bool probes)
{
	struct gpu_feed f = gpu_feed_new();

	assert_non_null(f.m);
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	if (!probes)
		feed_clock(&f, -101);
	feed_eager(&f, -100, 10);
	return f;
}

/* "r1:p r2:d": who was in the step whose work on the device ended at t ms. */
static inline const char *members(const struct gpu_feed *f, double t)
{
	static char text[200];
	size_t n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < f->v.n_steps; i++) {
		const struct rec_step *st = &f->v.steps[i];

		if (STEP(f, i)->gpu1_ns != at(t))
			continue;
		assert_true(st->inferred);
		for (uint32_t k = 0; k < st->n_members; k++) {
			const struct rec_member *m = &f->v.members[st->first_member + k];
			const struct rec_request *r = &f->v.requests[f->v.seqs[m->seq].req - 1];

			assert_true(m->guess);
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%sr%u:%c", n ? " " : "", r->req,
					      m->phase == TL_PREFILL ? 'p' : 'd');
		}
		return text;
	}
	return "no such step";
}

/* An eager step at t whose kernels take `ms` in all; returns when its work ends. */
static inline double eager_of(struct gpu_feed *f, double t, double ms)
{
	for (int i = 0; i < 9; i++)
		feed_kernel(f, t + 0.003 * i, t + 0.1 + ms / 9 * i, t + 0.1 + ms / 9 * (i + 1), NAME_GEMM);
	feed_copy(f, t + 0.04, t + 0.1 + ms, t + 0.11 + ms, 2);
	return t + 0.11 + ms;
}

#endif
