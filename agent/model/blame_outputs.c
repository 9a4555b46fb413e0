/* SPDX-License-Identifier: Apache-2.0 */
/* The outputs of an answer with the moments they passed: end of step, write, arrival at the client. */
#include "base/pct.h"
#include "model/blame_priv.h"
#include "model/summary.h"

#include <errno.h>

enum { MIN_GAPS = 8,		/* of a stream without steps, to know what is usual for it */
       MIN_BUNCH = 4 };

static struct output *output_at(struct blame *b, size_t i)
{
	return blame_room(&b->outputs, &b->cap_outputs, i + 1, sizeof(*b->outputs))
		       ? NULL
		       : &b->outputs[i];
}

/* ---- joined to steps ---- */

int answer_of_seq(struct blame *b, uint32_t seq, struct answer *ret)
{
	const struct rec_sequence *q = &b->v.seqs[seq];
	uint32_t token = 0;

	*ret = (struct answer){ .seq = seq + 1, .side = GAP_ENGINE };
	for (size_t i = 0; i < q->n_visits; i++) {
		struct output *o;

		if (!q->visits[i].n_out)
			continue;
		o = output_at(b, ret->n);
		if (!o)
			return -ENOMEM;
		*o = (struct output){ .made_ns = b->v.steps[q->visits[i].step].t1_ns,
				      .visit = (uint32_t)i, .token = token };
		token += q->visits[i].n_out;
		ret->n++;
	}
	return 0;
}

static size_t n_token_chunks(const struct rec_request *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_chunks; i++)
		n += chunk_is_token(&r->chunks[i]);
	return n;
}

/* Outputs of steps become outputs of tokens where drafts leave in a chunk each. */
static int one_per_token(struct blame *b, struct answer *a)
{
	const struct rec_visit *visits = b->v.seqs[a->seq - 1].visits;
	size_t n = 0, at;

	for (size_t i = 0; i < a->n; i++)
		n += visits[b->outputs[i].visit].n_out;
	if (n == a->n)
		return 0;
	if (!output_at(b, n))
		return -ENOMEM;
	at = n;
	for (size_t i = a->n; i-- > 0;) {
		struct output o = b->outputs[i];

		for (uint32_t k = visits[o.visit].n_out; k-- > 0;) {
			b->outputs[--at] = o;
			b->outputs[at].token += k;
		}
	}
	a->n = n;
	return 0;
}

/* Which chunk holds an output: those were matched by ordinal, and chunks are in order. */
static void find_chunks(struct blame *b, const struct rec_request *r, const struct answer *a,
			bool exact)
{
	size_t c = 0;
	uint32_t ordinal = 0;

	for (size_t i = 0; i < a->n; i++) {
		struct output *o = &b->outputs[i];

		while (c < r->n_chunks &&
		       (!chunk_is_token(&r->chunks[c]) ||
			(exact ? ordinal < i : chunk_ns(r, c) < o->written_ns)))
			ordinal += chunk_is_token(&r->chunks[c++]);
		o->chunk = ordinal;
	}
}

/* Written many outputs at once, most of it: then not because of a delay now and then. */
static bool is_bunched(const struct blame *b, const struct answer *a)
{
	size_t in_bunches = 0, len;

	for (size_t i = 0; i < a->n; i += len) {
		for (len = 1; i + len < a->n; len++)
			if (b->outputs[i + len].written_ns != b->outputs[i].written_ns)
				break;
		in_bunches += len >= MIN_BUNCH ? len : 0;
	}
	return a->n >= 2 * MIN_BUNCH && 5 * in_bunches >= 4 * a->n;
}

/* On the wire: 0 outputs if chunks fit no outputs. */
static int answer_on_wire(struct blame *b, const struct rec_request *r, struct answer *ret)
{
	uint32_t seq = r->seqs[0];
	struct answer a;
	bool exact;
	size_t n;
	int err = blame_room(&b->numbers, &b->cap_numbers, request_delivery_max(&b->v, r) + 1,
			     sizeof(*b->numbers));

	if (err)
		return err;
	n = request_delivery(&b->v, r, b->numbers, &exact);
	if (!n)
		return 0;
	err = answer_of_seq(b, seq, &a);
	if (!err && n_token_chunks(r) > a.n)
		err = one_per_token(b, &a);
	if (err)
		return err;
	a.side = GAP_WIRE;
	a.n = least(a.n, n);
	for (size_t i = 0; i < a.n; i++) {
		struct output *o = &b->outputs[i];

		o->written_ns = o->made_ns + b->numbers[i];
		o->made_ns = least(o->made_ns, o->written_ns);	/* a damaged recording */
	}
	find_chunks(b, r, &a, exact);
	delivery_of(b, r->engine, &a);
	a.bunched = is_bunched(b, &a);
	*ret = a;
	return 0;
}

/* ---- joined to none ---- */

static int learn_usual(struct blame *b, struct answer *a)
{
	uint64_t *v;
	size_t n = a->n - 1;
	int err = blame_room(&b->numbers, &b->cap_numbers, n, sizeof(*b->numbers));

	if (err)
		return err;
	v = b->numbers;
	for (size_t i = 0; i < n; i++)
		v[i] = less(b->outputs[i + 1].written_ns, b->outputs[i].written_ns);
	a->usual_ns = pct_u64(v, n, 500);
	for (size_t i = 0; i < n; i++)
		v[i] = v[i] > a->usual_ns ? v[i] - a->usual_ns : a->usual_ns - v[i];
	a->err_ns = most(most(a->usual_ns / 2, 1000000), pct_u64(v, n, 500) * 9 / 2);
	return 0;
}

static int answer_without_steps(struct blame *b, const struct rec_request *r, struct answer *ret)
{
	uint64_t last = 0;

	*ret = (struct answer){ .side = GAP_WIRE };
	for (size_t i = 0; i < r->n_chunks; i++) {
		struct output *o;

		if (!chunk_is_token(&r->chunks[i]))
			continue;
		o = output_at(b, ret->n);
		if (!o)
			return -ENOMEM;
		last = most(last, chunk_ns(r, i));
		*o = (struct output){ .written_ns = last, .token = (uint32_t)ret->n,
				      .chunk = (uint32_t)ret->n };
		ret->n++;
	}
	return ret->n > MIN_GAPS ? learn_usual(b, ret) : 0;
}

/* ---- behind the socket ---- */

/* Of this time, what no evidence says was a hold: a hold is no way that all chunks have to go. */
static uint64_t not_held(const struct blame *b, uint32_t request, uint64_t t0_ns, uint64_t t1_ns)
{
	struct clue_list l;
	uint64_t ns = t1_ns - t0_ns;

	if (!ns)
		return 0;
	clues__send(b->clues, request, t0_ns, t1_ns, &l);
	for (size_t i = 0; i < l.n; i++)
		ns = less(ns, l.v[i].ns);
	return ns;
}

static struct way *way_of(struct blame *b, uint32_t pid)
{
	for (size_t i = 0; i < b->n_ways; i++)
		if (b->ways[i].pid == pid)
			return &b->ways[i];
	return NULL;
}

static void note_way(struct blame *b, uint32_t pid, uint64_t ns)
{
	struct way *w = way_of(b, pid);

	if (w)
		w->ns = least(w->ns, ns);
	else if (b->n_ways < MAX_WAYS)
		b->ways[b->n_ways++] = (struct way){ pid, ns };
}

void ways_learn(struct blame *b)
{
	for (uint32_t i = 0; i < b->v.n_requests; i++) {
		const struct rec_request *r = &b->v.requests[i];

		for (size_t k = 0; k < r->n_chunks; k++) {
			struct culprit by;
			uint64_t at = clues__delivered_ns(b->clues, i, k, &by);

			if (at && by.type == WHO_PROCESS)
				note_way(b, by.id, less(at, chunk_ns(r, k)));
		}
	}
}

/* Where a proxy held even the chunk that it handed on quickest, other answers tell how quick it is. */
static uint64_t usual_way(struct blame *b, const struct culprit *by, uint64_t ns)
{
	const struct way *w = by->type == WHO_PROCESS ? way_of(b, by->id) : NULL;

	return w ? least(ns, w->ns) : ns;
}

static void find_arrivals(struct blame *b, uint32_t request, struct answer *a)
{
	uint64_t last = 0, shortest = UINT64_MAX;
	const struct output *quickest = NULL;
	struct culprit by;

	if (!a->n || !clues__delivered_ns(b->clues, request, b->outputs[0].chunk, &by))
		return;
	for (size_t i = 0; i < a->n; i++) {
		struct output *o = &b->outputs[i];
		uint64_t at = clues__delivered_ns(b->clues, request, o->chunk, &by);

		last = most(most(last, o->written_ns), at);
		o->client_ns = last;
		if (at && last - o->written_ns < shortest) {
			shortest = last - o->written_ns;
			quickest = o;
		}
	}
	a->client_ns = usual_way(b, &by, not_held(b, request, quickest->written_ns, quickest->client_ns));
	a->side = GAP_CLIENT;
}

int answer_of(struct blame *b, uint32_t request, struct answer *ret)
{
	const struct rec_request *r = &b->v.requests[request];
	int err = 0;

	*ret = (struct answer){ 0 };
	if (r->n > 1 || !request_is_streamed(r))
		return 0;
	if (r->n_seqs == 1)
		err = answer_on_wire(b, r, ret);
	else if (!r->n_seqs)
		err = answer_without_steps(b, r, ret);
	if (!err)
		find_arrivals(b, request, ret);
	return err;
}
