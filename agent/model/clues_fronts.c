/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of front ends by process and by server, and by time where they are many. */
#include "model/clues_priv.h"

#include <errno.h>
#include <stdlib.h>

enum { FEW_THREADS = 32 };	/* are looked at one by one as fast */

struct grouped {
	uint64_t key;
	uint32_t thread;
};

static int by_key(const void *pa, const void *pb)
{
	const struct grouped *a = pa, *b = pb;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->thread < b->thread ? -1 : a->thread > b->thread;
}

static const struct piece *piece_of(const struct clues *c, const struct front_piece *p)
{
	return &c->front_lines[p->thread].p[p->piece];
}

static int by_begin(const void *pa, const void *pb, void *ctx)
{
	const struct front_piece *a = pa, *b = pb;
	uint64_t t0 = piece_of(ctx, a)->t0_ns, t1 = piece_of(ctx, b)->t0_ns;

	if (t0 != t1)
		return t0 < t1 ? -1 : 1;
	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->piece < b->piece ? -1 : a->piece > b->piece;
}

/* Pieces by their begin are a tree: the middle one of a range is its node, which knows the last end
 * of all of it. */
static uint64_t grow_tree(const struct clues *c, struct front_piece *v, size_t n)
{
	size_t mid = n / 2;
	uint64_t left, right;

	if (!n)
		return 0;
	left = grow_tree(c, v, mid);
	right = grow_tree(c, v + mid + 1, n - mid - 1);
	v[mid].last_ns = piece_of(c, &v[mid])->t1_ns;
	v[mid].last_ns = left > v[mid].last_ns ? left : v[mid].last_ns;
	v[mid].last_ns = right > v[mid].last_ns ? right : v[mid].last_ns;
	return v[mid].last_ns;
}

static int add_thread(struct clues *c, uint32_t thread, struct front_group *g)
{
	const struct line *l = &c->front_lines[thread];

	g->n_fronts += c->threads[thread].t->role == TL_ROLE_FRONT;
	g->n_tokenizers += c->threads[thread].tokenizes;
	for (size_t i = 0; c->n_fronts > FEW_THREADS && i < l->n; i++) {
		struct front_piece *p = vec_push(&c->front_pieces, UINT32_MAX);

		if (!p)
			return -ENOMEM;
		*p = (struct front_piece){ .thread = thread, .piece = (uint32_t)i };
	}
	return 0;
}

static int add_group(struct clues *c, const struct grouped *v, size_t n)
{
	struct front_group *g = vec_push(&c->front_groups, UINT32_MAX);
	int err = g ? 0 : -ENOMEM;

	if (g)
		*g = (struct front_group){ .key = v->key, .first = c->front_pieces.n };
	for (size_t i = 0; i < n && !err; i++)
		err = add_thread(c, v[i].thread, g);
	if (err)
		return err;
	g->n = c->front_pieces.n - g->first;
	if (!g->n)
		return 0;
	qsort_r(c->front_pieces.v + g->first, g->n, sizeof(*c->front_pieces.v), by_begin, c);
	grow_tree(c, c->front_pieces.v + g->first, g->n);
	return 0;
}

/* What no role tells is for its own process. */
int front_groups_make(struct clues *c)
{
	struct grouped *v = calloc(2 * c->n_fronts + 1, sizeof(*v));
	size_t n = 0;
	int err = v ? 0 : -ENOMEM;

	for (size_t i = 0; i < c->n_fronts && !err; i++) {
		const struct watched *w = &c->threads[c->fronts[i]];

		v[n++] = (struct grouped){ front_key(OF_PROCESS, w->t->hdr.tgid), c->fronts[i] };
		if (w->t->role != TL_ROLE_OTHER)
			v[n++] = (struct grouped){ front_key(OF_SERVER, w->server), c->fronts[i] };
	}
	if (n)
		qsort(v, n, sizeof(*v), by_key);
	for (size_t i = 0, k; i < n && !err; i = k) {
		for (k = i + 1; k < n && v[k].key == v[i].key;)
			k++;
		err = add_group(c, v + i, k - i);
	}
	free(v);
	return err;
}

void front_groups_free(struct clues *c)
{
	vec_free(&c->front_groups);
	vec_free(&c->front_pieces);
}

const struct front_group *front_group_of(const struct clues *c, uint64_t key)
{
	static const struct front_group none;
	size_t lo = 0, hi = c->front_groups.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->front_groups.v[mid].key < key)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == c->front_groups.n || c->front_groups.v[lo].key != key)
		return &none;
	return &c->front_groups.v[lo];
}

static bool find_in(const struct clues *c, const struct front_piece *v, size_t n, uint64_t t0_ns,
		    uint64_t t1_ns, struct front_hits *ret)
{
	size_t mid = n / 2;

	if (!n || v[mid].last_ns <= t0_ns)
		return true;
	if (!find_in(c, v, mid, t0_ns, t1_ns, ret))
		return false;
	if (piece_of(c, &v[mid])->t0_ns >= t1_ns)
		return true;
	if (piece_of(c, &v[mid])->t1_ns > t0_ns) {
		if (ret->n == MAX_FRONT_HITS)
			return false;
		ret->v[ret->n++] = (uint64_t)v[mid].thread << 32 | v[mid].piece;
	}
	return find_in(c, v + mid + 1, n - mid - 1, t0_ns, t1_ns, ret);
}

bool front_hits_find(const struct clues *c, const struct front_group *g, uint64_t t0_ns,
		     uint64_t t1_ns, struct front_hits *ret)
{
	if (c->n_fronts <= FEW_THREADS)
		return false;
	return !g->n || find_in(c, c->front_pieces.v + g->first, g->n, t0_ns, t1_ns, ret);
}
