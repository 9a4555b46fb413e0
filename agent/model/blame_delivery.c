/* SPDX-License-Identifier: Apache-2.0 */
/* From the end of a step to the write, and on to the client: what is usual, and what held it up. */
#include "base/pct.h"
#include "model/blame_priv.h"

#include <errno.h>
#include <stdlib.h>

enum { MAX_SAMPLES = 1 << 19, TINY_NS = 20000, LATE_NS = 1000000 };

struct sample {
	uint64_t ns;
	uint32_t engine;
};

/* ---- what is usual ---- */

/* Deliveries that did not wait for the one before them, every k-th. */
static int collect(struct blame *b, struct sample *ret, size_t stride, size_t *ret_n)
{
	size_t n = 0, k = 0;

	for (uint32_t i = 0; i < b->v.n_requests; i++) {
		struct answer a;
		int err = answer_of(b, i, &a);

		if (err)
			return err;
		for (size_t o = 0; a.seq && o < a.n && n < MAX_SAMPLES; o++) {
			const struct output *at = &b->outputs[o];

			if ((o && at[-1].written_ns > at->made_ns) || k++ % stride)
				continue;
			ret[n++] = (struct sample){ at->written_ns - at->made_ns,
						    b->v.requests[i].engine };
		}
	}
	*ret_n = n;
	return 0;
}

static int by_engine(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;

	return x->engine < y->engine ? -1 : x->engine > y->engine;
}

static int learn(struct blame *b, const struct sample *v, size_t n)
{
	struct usual_delivery *u = &b->delivery[v->engine];
	uint64_t *ns;
	int err = blame_room(&b->numbers, &b->cap_numbers, n, sizeof(*b->numbers));

	if (err)
		return err;
	ns = b->numbers;
	for (size_t i = 0; i < n; i++)
		ns[i] = v[i].ns;
	u->n = (uint32_t)n;
	u->ns = pct_u64(ns, n, 500);
	for (size_t i = 0; i < n; i++)
		ns[i] = v[i].ns > u->ns ? v[i].ns - u->ns : u->ns - v[i].ns;
	u->err_ns = most(most(u->ns / 2, LATE_NS), pct_u64(ns, n, 500) * 9 / 2);
	return 0;
}

int delivery_learn(struct blame *b)
{
	struct sample *v;
	uint64_t n_out = 0;
	size_t n = 0;
	int err;

	for (size_t i = 0; i < b->v.n_seqs; i++)
		n_out += b->v.seqs[i].n_out;
	v = malloc((least(n_out, MAX_SAMPLES) + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	err = collect(b, v, n_out / MAX_SAMPLES + 1, &n);
	if (!err && n)
		qsort(v, n, sizeof(*v), by_engine);
	for (size_t i = 0, k; !err && i < n; i = k) {
		for (k = i; k < n && v[k].engine == v[i].engine;)
			k++;
		err = learn(b, v + i, k - i);
	}
	free(v);
	return err;
}

/* ---- cut ---- */

/* While its peer took nothing, nothing could be written. */
static void take_blocked(struct blame *b, struct gap *g, uint64_t t0_ns, uint64_t t1_ns, uint64_t *left)
{
	struct clue_list l, blocked = { .n = 0 };

	clues__send(b->clues, g->request, t0_ns, t1_ns, &l);
	for (size_t i = 0; i < l.n; i++)
		if (l.v[i].mechanism == MECH_SLOW_CLIENT)
			blocked.v[blocked.n++] = l.v[i];
	gap_add_clues(g, &blocked, left);
}

void cut_delivery(struct blame *b, struct gap *g, uint64_t t0_ns, uint64_t t1_ns, bool backlog)
{
	uint32_t engine = b->v.requests[g->request].engine;
	const struct usual_delivery *u = &b->delivery[engine];
	uint64_t own_ns, left, err_ns;
	struct clue_list l;

	if (t1_ns <= t0_ns)
		return;
	/* Behind others' answers in a queue the step is long over: then as long as it is usual. */
	own_ns = least(t1_ns - t0_ns, backlog ? g->usual_ns : u->ns);
	err_ns = backlog ? most(g->usual_ns / 10, LATE_NS) : u->err_ns;
	left = t1_ns - t0_ns - own_ns;
	if (left > err_ns && lost_in(b, t0_ns, t1_ns)) {
		gap_add(g, MECH_LOST, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	if (left > TINY_NS)
		take_blocked(b, g, t0_ns, t1_ns, &left);
	if (left > TINY_NS) {
		clues__front(b->clues, engine, t0_ns, t1_ns, g->request, &l);
		gap_add_clues(g, &l, &left);
	}
	if (u->n && left > err_ns) {
		gap_add(g, backlog ? MECH_DETOKENIZER : MECH_UNEXPLAINED,
			backlog ? PROV_INFERRED : PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	gap_add(g, MECH_OWN_DELIVERY, PROV_OBSERVED, own_ns + left, NULL, NULL);
}

void cut_client(struct blame *b, struct gap *g, uint64_t t0_ns, uint64_t t1_ns, uint64_t usual_ns,
		bool at_once, uint32_t chunk)
{
	uint64_t own_ns, left;
	struct clue_list l;
	struct culprit by = { .type = WHO_NOBODY };

	if (t1_ns <= t0_ns)
		return;
	own_ns = least(t1_ns - t0_ns, usual_ns);
	left = t1_ns - t0_ns - own_ns;
	if (left > TINY_NS) {
		clues__send(b->clues, g->request, t0_ns, t1_ns, &l);
		gap_add_clues(g, &l, &left);
	}
	if (left > LATE_NS) {
		clues__delivered_ns(b->clues, g->request, chunk, &by);
		gap_add(g, at_once ? MECH_PROXY_BUFFER : MECH_UNEXPLAINED,
			at_once ? PROV_INFERRED : PROV_NONE, left, at_once ? &by : NULL, NULL);
		left = 0;
	}
	gap_add(g, MECH_OWN_DELIVERY, PROV_OBSERVED, own_ns + left, NULL, NULL);
}
