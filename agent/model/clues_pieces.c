/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces that overlap are laid out so that each moment has one reason. */
#include "model/clues_priv.h"

#include <errno.h>

enum { MAX_PIECES = 1 << 24 };

int piece_add(struct piece_list *pl, const struct piece *p)
{
	struct piece *at;

	if (p->t1_ns <= p->t0_ns || pl->l.n >= MAX_PIECES)
		return 0;
	at = vec_push(&pl->l, MAX_PIECES);
	if (!at)
		return -ENOMEM;
	*at = *p;
	return 0;
}

static int by_rank(const void *pa, const void *pb)
{
	const struct piece *a = pa, *b = pb;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->t0_ns != b->t0_ns)
		return a->t0_ns < b->t0_ns ? -1 : 1;
	if (a->t1_ns != b->t1_ns)	/* the longer one first */
		return a->t1_ns > b->t1_ns ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

static int by_time(const void *pa, const void *pb)
{
	const struct piece *a = pa, *b = pb;

	return a->t0_ns < b->t0_ns ? -1 : a->t0_ns > b->t0_ns;
}

/* Puts what is still free of n pieces of one rank, by time, behind the n_out that are there. */
static size_t lay_rank(const struct piece *in, size_t n, struct piece *out, size_t n_out)
{
	size_t end = n_out, k = 0;
	uint64_t cur = 0;

	for (size_t i = 0; i < n; i++) {
		if (cur < in[i].t0_ns)
			cur = in[i].t0_ns;
		while (cur < in[i].t1_ns) {
			uint64_t until = in[i].t1_ns;

			while (k < n_out && out[k].t1_ns <= cur)
				k++;
			if (k < n_out && out[k].t0_ns <= cur) {
				cur = out[k].t1_ns;
				continue;
			}
			if (k < n_out && out[k].t0_ns < until)
				until = out[k].t0_ns;
			out[end] = in[i];
			out[end].t0_ns = cur;
			out[end++].t1_ns = until;
			cur = until;
		}
	}
	return end;
}

/* Each disjoint piece begins where one of n begins, or where one of a better rank ends: 2 * n at most. */
size_t pieces_lay_out(struct piece *in, size_t n, struct piece *out)
{
	size_t n_out = 0;

	if (!n)
		return 0;
	qsort(in, n, sizeof(*in), by_rank);
	for (size_t i = 0, k; i < n; i = k) {
		size_t had = n_out;

		for (k = i + 1; k < n && in[k].rank == in[i].rank;)
			k++;
		n_out = lay_rank(in + i, k - i, out, n_out);
		if (had)
			qsort(out, n_out, sizeof(*out), by_time);
	}
	return n_out;
}

int line_make(struct piece_list *raw, struct line *ret)
{
	if (!raw->l.n)
		return 0;
	ret->p = malloc(2 * raw->l.n * sizeof(*ret->p));
	if (!ret->p)
		return -ENOMEM;
	ret->n = pieces_lay_out(raw->l.v, raw->l.n, ret->p);
	return 0;
}

size_t pieces_after(const struct piece *p, size_t n, uint64_t t_ns)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p[mid].t1_ns <= t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}
