/* SPDX-License-Identifier: Apache-2.0 */
/* Who of a vLLM's waiting requests goes first, where that is not who came first: by priority
 * (--scheduling-policy), or with more adapters than there is room for (--max-loras). */
#include "engine/vllm_sched_priv.h"

#include "base/util.h"

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

/* Adapters that are in use. */
struct loras {
	int32_t v[64];
	uint32_t n;
};

static bool has_lora(const struct loras *l, int32_t lora)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->v[i] == lora)
			return true;
	return !lora;
}

static void add_lora(struct loras *l, int32_t lora)
{
	if (!has_lora(l, lora) && l->n < ARRAY_SIZE(l->v))
		l->v[l->n++] = lora;
}

/* The first `n` of those that came until then, and have room for their adapter.
 * Returns until when they came, 0: there are not so many; `*ret_fits`: these are the
 * ones that the counters tell of. */
static uint64_t pick_until(const struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
			   uint64_t n, uint64_t until_ns, struct loras loras, uint32_t max_loras,
			   bool *ret_fits)
{
	uint64_t sum = 0, latest_ns = 0;
	bool others_show = false;

	for (size_t i = 0; i < s->waiting.n; i++) {
		struct vseq *q = &seqs[s->waiting.v[i]];

		q->picked = q->state == VSEQ_WAITING && n && q->arrived_ns <= until_ns &&
			    (loras.n < max_loras || has_lora(&loras, q->lora));
		if (!q->picked) {
			others_show |= q->state == VSEQ_WAITING && q->row;
			continue;
		}
		n--;
		sum += q->prompt;
		add_lora(&loras, q->lora);
		latest_ns = q->arrived_ns > latest_ns ? q->arrived_ns : latest_ns;
	}
	*ret_fits = !n && sum == in->new_prompts && !others_show;
	return n ? 0 : latest_ns;
}

static bool pick(const struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n,
		 const struct loras *loras, uint32_t max_loras)
{
	enum { MAX_LATE = 32 };
	uint64_t until_ns = in->end_ns;
	bool fits = false;

	for (int i = 0; i < MAX_LATE && until_ns + VSCHED_ON_THE_WAY_NS > in->begin_ns; i++) {
		until_ns = pick_until(s, seqs, in, n, until_ns, *loras, max_loras, &fits);
		if (fits || !until_ns)
			break;
		until_ns--;
	}
	return fits;
}

bool vsched_pick(struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n)
{
	struct loras loras = { .n = 0 };
	bool any = false;

	for (size_t i = 0; i < s->running.n; i++)
		add_lora(&loras, seqs[s->running.v[i]].lora);
	if (loras.n > s->most_loras)
		s->most_loras = loras.n;
	for (size_t i = 0; i < s->waiting.n; i++)
		any |= !has_lora(&loras, seqs[s->waiting.v[i]].lora);
	if (!n || !in->new_prompts || !(s->by_priority || any))
		return false;
	for (int i = 0; i < 1 + any; i++) {
		bool few = any && s->few_loras != (i > 0);
		uint32_t room = s->most_loras ? s->most_loras : 1;

		if (!pick(s, seqs, in, n, &loras, few ? room : UINT32_MAX))
			continue;
		if (any)
			s->few_loras = few;
		return true;
	}
	for (size_t i = 0; i < s->waiting.n; i++)
		seqs[s->waiting.v[i]].picked = false;
	return false;
}
