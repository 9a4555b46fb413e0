/* SPDX-License-Identifier: Apache-2.0 */
/* Who goes first in a vLLM that serves by priority (--scheduling-policy priority). */
#include "engine/vllm_sched.h"

bool vseq_goes_before(const struct vseq *a, const struct vseq *b)
{
	return a->priority != b->priority ? a->priority < b->priority : a->asked_ns < b->asked_ns;
}

void vsched_sort(const struct vsched *s, struct vslots *v, size_t at, const struct vseq *seqs)
{
	for (size_t i = at + 1; s->by_priority && i < v->n; i++) {
		uint32_t slot = v->v[i];
		size_t to = i;

		for (; to > at && vseq_goes_before(&seqs[slot], &seqs[v->v[to - 1]]); to--)
			v->v[to] = v->v[to - 1];
		v->v[to] = slot;
	}
}

uint64_t vsched_find_in_time(const struct vsched *s, const struct vseq *seqs, const struct vsched_in *in, uint64_t n)
{
	enum { MAX_LATE = 32 };
	uint64_t until_ns = in->end_ns;

	if (!s->by_priority || !in->new_prompts)
		return 0;
	for (int i = 0; i < MAX_LATE && until_ns + VSCHED_ON_THE_WAY_NS > in->begin_ns; i++) {
		uint64_t left = n, sum = 0, latest_ns = 0;
		bool others_show = false;

		for (size_t k = 0; k < s->waiting.n; k++) {
			const struct vseq *q = &seqs[s->waiting.v[k]];

			if (q->state != VSEQ_WAITING)
				continue;
			if (!left || q->arrived_ns > until_ns) {
				others_show |= q->row != 0;
				continue;
			}
			left--;
			sum += q->prompt;
			latest_ns = q->arrived_ns > latest_ns ? q->arrived_ns : latest_ns;
		}
		if (left || !latest_ns)
			return 0;
		if (sum == in->new_prompts && !others_show)
			return until_ns;
		until_ns = latest_ns - 1;
	}
	return 0;
}
