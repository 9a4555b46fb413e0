/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a step had room for one more that came before it: what its members say of that. */
#include "model/room.h"

static const struct rec_sequence *member_seq(const struct model_view *v, uint32_t step, uint32_t i)
{
	return &v->seqs[v->members[v->steps[step].first_member + i].seq];
}

bool step_all_run_on(const struct model_view *v, uint32_t step)
{
	for (uint32_t i = 0; i < v->steps[step].n_members; i++) {
		const struct rec_sequence *q = member_seq(v, step, i);

		if (!q->n_visits || q->visits[q->n_visits - 1].step == step)
			return false;
	}
	return true;
}

/* Its visit behind this step; NULL: none. */
static const struct rec_visit *visit_behind(const struct model_view *v,
					    const struct rec_sequence *q, uint32_t step)
{
	size_t lo = 0, hi = q->n_visits;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (v->steps[q->visits[mid].step].t1_ns <= v->steps[step].t1_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < q->n_visits ? &q->visits[lo] : NULL;
}

bool step_cuts_a_prompt(const struct model_view *v, uint32_t step)
{
	for (uint32_t i = 0; i < v->steps[step].n_members; i++) {
		const struct rec_visit *next;

		if (v->members[v->steps[step].first_member + i].phase != TL_PREFILL)
			continue;
		next = visit_behind(v, member_seq(v, step, i), step);
		if (next && next->phase == TL_PREFILL)
			return true;
	}
	return false;
}
