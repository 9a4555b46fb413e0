/* SPDX-License-Identifier: Apache-2.0 */
/* Who took the room of a sequence that was preempted: as the engine says, else whose end gave it back. */
#include "model/blame_priv.h"

#include <errno.h>
#include <stdlib.h>

/* The first visit whose step begins at or behind t; n_visits: none. */
static size_t visit_at(const struct blame *b, const struct rec_sequence *q, uint64_t t_ns)
{
	size_t lo = 0, hi = q->n_visits;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (b->v.steps[q->visits[mid].step].t0_ns < t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint64_t context_at(const struct blame *b, uint32_t seq, uint64_t t_ns)
{
	const struct rec_sequence *q = &b->v.seqs[seq];

	return (q->kept > 0 ? (uint64_t)q->kept : 0) + q->n_prefill + visit_at(b, q, t_ns);
}

/* The member of a step with the largest context; `ended`: of those only whose last step it was. 0: none,
 * else index + 1. */
static uint32_t largest(const struct blame *b, uint32_t step, uint32_t except, bool ended)
{
	const struct rec_step *st = &b->v.steps[step];
	uint64_t largest_tokens = 0;
	uint32_t ret = 0;

	for (uint32_t i = 0; i < st->n_members; i++) {
		uint32_t seq = b->v.members[st->first_member + i].seq;
		const struct rec_sequence *q = &b->v.seqs[seq];
		uint64_t tokens;

		if (seq == except || (ended && q->visits[q->n_visits - 1].step != step))
			continue;
		tokens = context_at(b, seq, st->t1_ns);
		if (tokens >= largest_tokens) {
			largest_tokens = tokens;
			ret = seq + 1;
		}
	}
	return ret;
}

/* The sequence whose end let it come back; else the largest of those that ran on without it. */
static uint32_t infer(const struct blame *b, uint32_t seq, const struct rec_preemption *p)
{
	const struct rec_sequence *q = &b->v.seqs[seq];
	size_t back = visit_at(b, q, p->at_ns), place;
	uint32_t root = 0, engine = q->engine;

	if (back < q->n_visits) {
		place = b->ix.facts[q->visits[back].step].place;
		for (int i = 0; i < 2 && !root && place-- > b->ix.first[engine]; i++)
			root = largest(b, b->ix.order[place], seq, true);
	}
	place = step_index__after(&b->ix, engine, p->at_ns);
	if (!root && place < b->ix.first[engine + 1])
		root = largest(b, b->ix.order[place], seq, false);
	return root;
}

/* Did it run while the other was without its place? A slot's last sequence may have ended long ago. */
static bool ran_meanwhile(const struct blame *b, uint32_t seq, const struct rec_preemption *p)
{
	const struct rec_sequence *q = &b->v.seqs[seq];

	return q->n_visits && b->v.steps[q->visits[q->n_visits - 1].step].t1_ns >= p->at_ns &&
	       (!p->resumed_ns || b->v.steps[q->visits[0].step].t0_ns <= p->resumed_ns);
}

static int by_seq_and_time(const void *pa, const void *pb)
{
	const struct preempt_root *x = pa, *y = pb;

	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	if (x->at_ns != y->at_ns)
		return x->at_ns < y->at_ns ? -1 : 1;
	return x->k < y->k ? -1 : x->k > y->k;
}

int roots_find(struct blame *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->v.n_seqs; i++)
		n += b->v.seqs[i].n_preemptions;
	if (!n)
		return 0;
	b->roots = malloc(n * sizeof(*b->roots));
	if (!b->roots)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->v.n_seqs; i++)
		for (uint32_t k = 0; k < b->v.seqs[i].n_preemptions; k++) {
			const struct rec_preemption *p = &b->v.seqs[i].preemptions[k];
			bool said = p->for_seq && p->for_seq <= b->v.n_seqs &&
				    ran_meanwhile(b, p->for_seq - 1, p);

			b->roots[b->n_roots++] = (struct preempt_root){
				.at_ns = p->at_ns, .seq = i, .k = k,
				.root = said ? p->for_seq : infer(b, i, p),
				.prov = said ? p->prov : PROV_INFERRED,
			};
		}
	qsort(b->roots, b->n_roots, sizeof(*b->roots), by_seq_and_time);
	return 0;
}

const struct preempt_root *root_at(const struct blame *b, uint32_t seq, uint64_t t_ns)
{
	size_t lo = 0, hi = b->n_roots;	/* the first one of a later sequence, or at t or later */

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct preempt_root *p = &b->roots[mid];

		if (p->seq < seq || (p->seq == seq && p->at_ns < t_ns))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && b->roots[lo - 1].seq == seq ? &b->roots[lo - 1] : NULL;
}

bool parked_before(const struct blame *b, uint32_t seq, size_t visit,
		   const struct preempt_root **ret)
{
	const struct rec_sequence *q = &b->v.seqs[seq];
	const struct rec_step *own = &b->v.steps[q->visits[visit].step];
	const struct preempt_root *p;

	if (!q->n_preemptions && !q->visits[visit].again)
		return false;
	p = root_at(b, seq, own->t0_ns);
	*ret = p;
	if (q->visits[visit].again && !q->visits[visit - 1].again)
		return true;
	return p && q->preemptions[p->k].at_ns >= b->v.steps[q->visits[visit - 1].step].t0_ns;
}
