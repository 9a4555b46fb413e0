/* SPDX-License-Identifier: Apache-2.0 */
/* Blame: its life, and the walk over the gaps of a request. */
#include "base/vec.h"
#include "model/blame_priv.h"
#include "model/summary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int blame_room(void *p, size_t *cap, size_t n, size_t size)
{
	void **arr = p;
	void *q;

	if (n <= *cap)
		return 0;
	q = vec_grow_(*arr, cap, n, size, SIZE_MAX);
	if (!q)
		return -ENOMEM;
	*arr = q;
	return 0;
}

/* ---- indices ---- */

static int by_since(const void *a, const void *b)
{
	const struct loss *x = a, *y = b;

	return x->since_ns < y->since_ns ? -1 : x->since_ns > y->since_ns;
}

static int losses_find(struct blame *b)
{
	struct loss *l;

	if (!b->v.n_lost)
		return 0;
	b->losses = malloc(b->v.n_lost * sizeof(*b->losses));
	if (!b->losses)
		return -ENOMEM;
	l = b->losses;
	for (size_t i = 0; i < b->v.n_lost; i++)
		if (b->v.lost[i].where == TL_LOST_RING || b->v.lost[i].where == TL_LOST_SCRATCH)
			l[b->n_losses++] =
				(struct loss){ b->v.lost[i].since_ns, b->v.lost[i].until_ns };
	if (b->n_losses)
		qsort(l, b->n_losses, sizeof(*l), by_since);
	for (size_t i = 1; i < b->n_losses; i++)
		l[i].until_ns = most(l[i].until_ns, l[i - 1].until_ns);
	return 0;
}

struct begin {
	uint32_t engine, place, seq;
};

static int by_place(const void *a, const void *b)
{
	const struct begin *x = a, *y = b;

	if (x->engine != y->engine)
		return x->engine < y->engine ? -1 : 1;
	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Sequences by their first step. */
static int begins_find(struct blame *b)
{
	struct begin *v = malloc((b->v.n_seqs + 1) * sizeof(*v));
	size_t n = 0;

	b->by_begin = calloc(b->v.n_seqs + 1, sizeof(*b->by_begin));
	b->first_of = calloc(b->v.n_engines + 1, sizeof(*b->first_of));
	if (!v || !b->by_begin || !b->first_of) {
		free(v);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < b->v.n_seqs; i++) {
		const struct rec_sequence *q = &b->v.seqs[i];

		if (q->n_visits)
			v[n++] = (struct begin){ q->engine, b->ix.facts[q->visits[0].step].place,
						 i };
	}
	qsort(v, n, sizeof(*v), by_place);
	for (size_t i = 0; i < n; i++) {
		b->by_begin[i] = v[i].seq;
		b->first_of[v[i].engine + 1] = i + 1;
	}
	for (size_t e = 0; e < b->v.n_engines; e++)
		b->first_of[e + 1] = b->first_of[e + 1] ? b->first_of[e + 1] : b->first_of[e];
	free(v);
	return 0;
}

/* ---- life ---- */

static uint64_t disturbed_ns(void *ctx, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns)
{
	const struct blame *b = ctx;
	struct clue_list l;
	uint64_t ns = 0;

	clues__engine(b->clues, engine, t0_ns, t1_ns, &l);
	for (size_t i = 0; i < l.n; i++)
		ns += l.v[i].ns;
	return ns;
}

static bool is_odd(void *ctx, uint32_t step)
{
	const struct blame *b = ctx;
	const struct rec_step *st = &b->v.steps[step];

	return lost_in(b, st->t0_ns, st->t1_ns) || clues__step_is_odd(b->clues, step);
}

static int prepare(struct blame *b)
{
	const struct baseline_evidence ev = { disturbed_ns, is_odd, b };
	int err = clues__new(&b->v, &b->clues);

	b->delivery = calloc(b->v.n_engines + 1, sizeof(*b->delivery));
	b->writes = calloc(b->v.n_steps + 1, sizeof(*b->writes));
	b->turns = calloc(b->v.n_engines + 1, sizeof(*b->turns));
	b->first_odd = calloc(b->v.n_requests + 1, sizeof(*b->first_odd));
	if (!err && (!b->delivery || !b->writes || !b->turns || !b->first_odd))
		err = -ENOMEM;
	if (!err) {
		b->ix = *clues__steps(b->clues);
		err = losses_find(b);
	}
	if (!err)
		err = begins_find(b);
	if (!err)
		err = baseline__new(&b->ix, &ev, &b->base);
	if (!err)
		err = roots_find(b);
	if (!err)
		err = turns_learn(b);
	if (!err)
		ways_learn(b);
	return err ? err : delivery_learn(b);
}

int blame__new(const struct model_view *v, struct blame **ret)
{
	struct blame *b = calloc(1, sizeof(*b));
	int err;

	if (!b)
		return -ENOMEM;
	b->v = *v;
	err = prepare(b);
	if (err) {
		blame__free(b);
		return err;
	}
	*ret = b;
	return 0;
}

void blame__free(struct blame *b)
{
	if (!b)
		return;
	clues__free(b->clues);
	baseline__free(b->base);
	free(b->delivery);
	free(b->writes);
	free(b->turns);
	free(b->losses);
	free(b->roots);
	free(b->by_begin);
	free(b->first_of);
	free(b->odd);
	free(b->first_odd);
	free(b->outputs);
	free(b->numbers);
	free(b->holders);
	free(b);
}

uint32_t blame__n_learnt(const struct blame *b)
{
	return baseline__n_learnt(b->base);
}

/* ---- gaps ---- */

uint64_t output_ns(const struct answer *a, const struct output *o)
{
	return a->side == GAP_CLIENT ? o->client_ns
	       : a->side == GAP_WIRE ? o->written_ns
				     : o->made_ns;
}

static void cut_steps(struct blame *b, const struct answer *a, const struct output *from,
		      const struct output *to, uint64_t credit_ns)
{
	struct gap *g = &b->gap;
	struct walk w = { .b = b, .g = g, .seq = a->seq - 1, .at_ns = g->t0_ns,
			  .end_ns = to->made_ns, .credit_ns = credit_ns };

	if (from->visit != to->visit)
		cut_visits(&w, from->visit, to->visit);
}

void cut_stream(struct blame *b, struct gap *g, const struct answer *a, uint64_t until_ns)
{
	uint32_t engine = b->v.requests[g->request].engine;
	uint64_t own_ns, left;
	struct clue_list l;

	g->usual_ns = a->usual_ns;
	if (until_ns <= g->t0_ns)
		return;
	own_ns = least(until_ns - g->t0_ns, a->usual_ns);
	left = until_ns - g->t0_ns - own_ns;
	if (left > a->err_ns && lost_in(b, g->t0_ns, until_ns)) {
		gap_add(g, MECH_LOST, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	clues__engine(b->clues, engine, g->t0_ns, until_ns, &l);
	gap_add_clues(g, &l, &left);
	clues__front(b->clues, engine, g->t0_ns, until_ns, g->request, &l);
	gap_add_clues(g, &l, &left);
	if (a->usual_ns && left > a->err_ns) {
		gap_add(g, MECH_UNEXPLAINED, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	gap_add(g, MECH_OWN_DECODE, PROV_OBSERVED, own_ns + left, NULL, NULL);
}

/* The gap between two outputs, number i - 1 and i. */
static void cut_gap(struct blame *b, uint32_t request, const struct answer *a, size_t i)
{
	const struct output *from = &b->outputs[i - 1], *to = &b->outputs[i];
	struct gap *g = &b->gap;
	uint64_t at, late = 0;

	gap_begin(g, request, a->seq, a->side, to->token, output_ns(a, from), output_ns(a, to));
	/* As late as the output before was, as it usually is, so late may this one be: that is no gap. */
	if (a->side == GAP_WIRE)
		late = least(less(g->t0_ns, from->made_ns), a->delivery.ns);
	else if (a->side == GAP_CLIENT)
		late = least(less(g->t0_ns, from->made_ns), a->delivery.ns + a->client_ns);
	if (a->seq)
		cut_steps(b, a, from, to, late);
	else
		cut_stream(b, g, a, to->written_ns);
	at = most(g->t0_ns, to->made_ns);
	if (a->seq && a->side != GAP_ENGINE) {
		cut_delivery(b, g, a, to, at, to->written_ns, least(late, a->delivery.ns));
		at = most(at, to->written_ns);
	} else if (!a->seq) {
		at = most(g->t0_ns, to->written_ns);
	}
	if (a->side == GAP_CLIENT) {
		bool at_once = from->client_ns == to->client_ns ||
			       (i + 1 < a->n && to[1].client_ns == to->client_ns);

		/* of what is usual, so much is left at this time */
		cut_client(b, g, at, to->client_ns, less(to->written_ns + a->client_ns, at),
			   at_once, to->chunk);
	}
	gap_end(b, g, a->seq ? b->v.seqs[a->seq - 1].engine : b->v.requests[request].engine);
}

/* A walk over the gaps of a request. */
struct gap_walk {
	gap_fn each;
	void *ctx;
	bool only_odd, knows;	/* which are, from an earlier walk */
	size_t at;		/* bit of the next gap */
	int side;
};

static int note_odd(struct blame *b, size_t bit, bool odd)
{
	uint64_t *word;

	if (blame_room(&b->odd, &b->cap_odd, bit / 64 + 1, sizeof(*b->odd)))
		return -ENOMEM;
	word = &b->odd[bit / 64];
	*word = (bit % 64 ? *word : 0) | (uint64_t)odd << bit % 64;
	b->n_odd = bit + 1;
	return 0;
}

static int each_gap(struct blame *b, uint32_t request, const struct answer *a, struct gap_walk *w)
{
	int err = 0;

	for (size_t i = 1; i < a->n && err >= 0; i++) {
		bool odd;

		if (output_ns(a, &b->outputs[i]) < output_ns(a, &b->outputs[i - 1]))
			continue;	/* a damaged recording */
		w->side = a->side;
		odd = w->knows && b->odd[w->at / 64] >> w->at % 64 & 1;
		if (!w->knows || odd || !w->only_odd)
			cut_gap(b, request, a, i);
		if (!w->knows) {
			odd = gap_is_odd(&b->gap);
			err = note_odd(b, w->at, odd);
		}
		w->at++;
		if (!err && (odd || !w->only_odd))
			err = w->each(w->ctx, &b->gap);
	}
	return err < 0 ? err : 0;
}

static int walk_gaps(struct blame *b, uint32_t request, struct gap_walk *w)
{
	const struct rec_request *r = &b->v.requests[request];
	size_t first = b->first_odd[request] ? b->first_odd[request] - 1 : b->n_odd;
	struct answer a;
	int err = answer_of(b, request, &a);

	w->side = -1;
	w->knows = b->first_odd[request];
	w->at = first;
	if (!err && a.n)
		err = each_gap(b, request, &a, w);
	else
		for (size_t i = 0; i < r->n_seqs && !err; i++) {
			err = answer_of_seq(b, r->seqs[i], &a);
			if (!err)
				err = each_gap(b, request, &a, w);
		}
	if (!err)
		b->first_odd[request] = first + 1;
	else if (!w->knows)
		b->n_odd = first;
	return err;
}

int blame__gaps(struct blame *b, uint32_t request, gap_fn each, void *ctx)
{
	return walk_gaps(b, request, &(struct gap_walk){ .each = each, .ctx = ctx });
}

int blame__odd_gaps(struct blame *b, uint32_t request, gap_fn each, void *ctx, int *ret_side)
{
	struct gap_walk w = { .each = each, .ctx = ctx, .only_odd = true };
	int err = walk_gaps(b, request, &w);

	*ret_side = w.side;
	return err;
}
