/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces that overlap are laid out so that each moment has one reason. */
#include "model/clues_priv.h"

#include <errno.h>
#include <string.h>

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

/* What is still free of n pieces of one rank, by time, besides those of `laid` that are there.
 * Writes them to `ret` (NULL: counts only), by time. Returns how many. */
static size_t lay_rank(const struct piece *in, size_t n, const struct piece *laid, size_t n_laid,
		       struct piece *ret)
{
	size_t k = 0, n_new = 0;
	uint64_t cur = 0;

	for (size_t i = 0; i < n; i++) {
		if (cur < in[i].t0_ns)
			cur = in[i].t0_ns;
		while (cur < in[i].t1_ns) {
			uint64_t until = in[i].t1_ns;

			while (k < n_laid && laid[k].t1_ns <= cur)
				k++;
			if (k < n_laid && laid[k].t0_ns <= cur) {
				cur = laid[k].t1_ns;
				continue;
			}
			if (k < n_laid && laid[k].t0_ns < until)
				until = laid[k].t0_ns;
			if (ret) {
				ret[n_new] = in[i];
				ret[n_new].t0_ns = cur;
				ret[n_new].t1_ns = until;
			}
			n_new++;
			cur = until;
		}
	}
	return n_new;
}

/* Merges n_a pieces of `a` with n_b that lie at the end of the room for both. */
static void merge(struct piece *room, const struct piece *a, size_t n_a, size_t n_b)
{
	const struct piece *b = room + n_a;
	size_t i = 0, k = 0;

	while (i < n_a && k < n_b)
		*room++ = a[i].t0_ns <= b[k].t0_ns ? a[i++] : b[k++];
	while (i < n_a)
		*room++ = a[i++];
}

static size_t of_one_rank(const struct piece *in, size_t n)
{
	size_t k = 1;

	while (k < n && in[k].rank == in[0].rank)
		k++;
	return k;
}

size_t pieces_lay_out(struct piece *in, size_t n, struct piece *ret, struct piece *room)
{
	size_t n_out = 0;

	if (n)
		qsort(in, n, sizeof(*in), by_rank);
	for (size_t i = 0, k; i < n; i += k) {
		size_t n_new;

		k = of_one_rank(in + i, n - i);
		memcpy(room, ret, n_out * sizeof(*room));
		n_new = lay_rank(in + i, k, room, n_out, ret + n_out);
		merge(ret, room, n_out, n_new);
		n_out += n_new;
	}
	return n_out;
}

/* The same with room for what there is, rank by rank: lines are long. */
int line_make(struct piece_list *raw, struct line *ret)
{
	struct line l = { .p = NULL };

	if (raw->l.n)
		qsort(raw->l.v, raw->l.n, sizeof(*raw->l.v), by_rank);
	for (size_t i = 0, k; i < raw->l.n; i += k) {
		const struct piece *in = raw->l.v + i;
		struct piece *p;
		size_t n_new;

		k = of_one_rank(in, raw->l.n - i);
		n_new = lay_rank(in, k, l.p, l.n, NULL);
		if (!n_new)
			continue;
		p = malloc((l.n + n_new) * sizeof(*p));
		if (!p) {
			free(l.p);
			return -ENOMEM;
		}
		lay_rank(in, k, l.p, l.n, p + l.n);
		merge(p, l.p, l.n, n_new);
		free(l.p);
		l.p = p;
		l.n += n_new;
	}
	*ret = l;
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
