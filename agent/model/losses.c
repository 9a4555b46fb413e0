/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that go on behind lost events: whether they are the same ones nobody saw. */
#include "model/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * A slot's end and the next one's start are events like others. When events were lost, what the
 * slot computes afterwards may be another request's: the part behind the loss becomes a
 * sequence of its own, joined to nothing unless its counts and times say so, and the part
 * before it is marked as cut.
 */

struct span {
	uint64_t since_ns, until_ns;
};

static int by_since(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return x->since_ns < y->since_ns ? -1 : x->since_ns > y->since_ns;
}

/* Spans in which the kernel dropped events, by their begin; ends made monotone
 * so that a search may stop. */
static size_t collect_spans(const struct model *m, struct span *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < m->v.n_lost; i++)
		if (m->lost[i].where == TL_LOST_RING || m->lost[i].where == TL_LOST_SCRATCH)
			ret[n++] = (struct span){ m->lost[i].since_ns, m->lost[i].until_ns };
	if (n)
		qsort(ret, n, sizeof(*ret), by_since);
	for (size_t i = 1; i < n; i++)
		if (ret[i].until_ns < ret[i - 1].until_ns)
			ret[i].until_ns = ret[i - 1].until_ns;
	return n;
}

/* Was anything lost between two moments? */
static bool lost_between(const struct span *spans, size_t n, uint64_t from_ns, uint64_t to_ns)
{
	size_t lo = 0, hi = n;	/* first span that ends behind from_ns */

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (spans[mid].until_ns <= from_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && spans[lo].since_ns < to_ns;
}

static void count_again(struct rec_sequence *q)
{
	q->n_prefill = q->n_decode = q->n_out = q->n_again = 0;
	for (size_t k = 0; k < q->n_visits; k++) {
		const struct rec_visit *v = &q->visits[k];

		visit_counts(q, v);
	}
}

/* The visits from k on become a new sequence, the last one. */
static int split(struct model *m, uint32_t index, size_t k)
{
	struct rec_sequence *q, *tail;
	size_t n = m->seqs[index].n_visits - k;
	struct rec_visit *visits = malloc(n * sizeof(*visits));

	if (!visits || GROW(m->seqs, m->cap_seqs, m->v.n_seqs)) {
		free(visits);
		return -ENOMEM;
	}
	q = &m->seqs[index];
	memcpy(visits, q->visits + k, n * sizeof(*visits));
	tail = &m->seqs[m->v.n_seqs++];
	*tail = (struct rec_sequence){
		.id = m->v.n_seqs, .engine = q->engine, .slot = q->slot, .kept = -1, .task = -1,
		.begin_ns = m->steps[visits[0].step].t0_ns, .joined_late = true, .ended = q->ended,
		.visits = visits, .n_visits = n, .cap_visits = n,
	};
	q->n_visits = k;
	q->cut_by_loss = true;
	count_again(q);
	count_again(tail);
	for (size_t i = 0; i < n; i++) {
		const struct rec_step *st = &m->steps[visits[i].step];

		for (uint32_t j = 0; j < st->n_members; j++)
			if (m->members[st->first_member + j].seq == index)
				m->members[st->first_member + j].seq = m->v.n_seqs - 1;
	}
	return 0;
}

int split_at_losses(struct model *m)
{
	struct span *spans;
	size_t n;
	int err = 0;

	if (!m->v.n_lost)
		return 0;
	spans = calloc(m->v.n_lost, sizeof(*spans));
	if (!spans)
		return -ENOMEM;
	n = collect_spans(m, spans);
	/* What is split off stands at the end and is looked at in its turn. */
	for (uint32_t i = 0; n && i < m->v.n_seqs && !err; i++) {
		/* vLLM names the request in each step: no doubt whose it is. */
		if (m->engines[m->seqs[i].engine].e.engine == TL_ENGINE_VLLM)
			continue;
		for (size_t k = 1; k < m->seqs[i].n_visits; k++) {
			const struct rec_visit *v = m->seqs[i].visits;

			if (!lost_between(spans, n, m->steps[v[k - 1].step].t1_ns,
					  m->steps[v[k].step].t0_ns))
				continue;
			err = split(m, i, k);
			break;
		}
	}
	free(spans);
	return err;
}
