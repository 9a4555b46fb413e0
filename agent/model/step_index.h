/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of each engine in order of time, and what is in each of them. Pure. */
#ifndef TL_STEP_INDEX_H
#define TL_STEP_INDEX_H

#include "model/model.h"

struct step_facts {
	uint32_t n_decode;	/* sequences that decode */
	uint32_t prefill;	/* tokens of prefill as weights, those computed again included */
	uint32_t context;	/* what the decoding ones had before, tokens; saturates */
	uint32_t place;		/* in `order` */
};

struct step_index {
	const struct model_view *v;
	uint32_t *order;	/* indices of steps: engine after engine, by end */
	size_t *first;		/* per engine: its first place in `order`; one more than engines */
	struct step_facts *facts;	/* by index of the step */
};

int step_index__init(struct step_index *ix, const struct model_view *v);	/* 0 or -ENOMEM */
void step_index__free(struct step_index *ix);	/* as after init, or all zeros */

/* A step's share of its engine's time: overlapping steps count once. */
struct step_span {
	uint64_t hole_ns; /* begin of the time without a step before it; t0_ns: there is none */
	uint64_t t0_ns, t1_ns;
};
static inline struct step_span step_index__span(const struct step_index *ix, uint32_t step)
{
	const struct rec_step *st = &ix->v->steps[step];
	uint32_t place = ix->facts[step].place;
	struct step_span s = { st->t0_ns, st->t0_ns, st->t1_ns };

	if (place > ix->first[st->engine]) {
		s.hole_ns = ix->v->steps[ix->order[place - 1]].t1_ns;
		if (s.t0_ns < s.hole_ns)
			s.t0_ns = s.hole_ns;
	}
	if (s.t1_ns < s.t0_ns)	/* a damaged recording */
		s.t1_ns = s.t0_ns;
	return s;
}

/* The first place of an engine whose step ends behind t; that behind its last one if none does. */
size_t step_index__after(const struct step_index *ix, uint32_t engine, uint64_t t_ns);

#endif
