/* SPDX-License-Identifier: Apache-2.0 */
/* From the end of a step to the write, and on to the client: what is usual, and what held it up. */
#include "base/pct.h"
#include "model/blame_priv.h"

#include <errno.h>
#include <stdlib.h>

enum { MAX_SAMPLES = 1 << 19, MIN_OF_ANSWER = 8, MIN_PAIRS = 8,
       MIN_WAITING = 4,	/* outputs: fewer are no backlog */
       MIN_SERVED = 8,	/* answers at once: then their turns matter */
       TINY_NS = 20000, LATE_NS = 1000000 };

struct sample {
	uint64_t ns;
	uint32_t engine;
	uint32_t differs_us; /* from that of the output before; UINT32_MAX: that had waited, or none */
};

/* ---- what is usual ---- */

static uint64_t late_ns(const struct output *o)
{
	return o->written_ns - o->made_ns;
}

/* Did it wait for the answer's output before it? Then it says nothing of how long one takes. */
static bool waited(const struct output *o, size_t i)
{
	return i && o[-1].written_ns > o->made_ns;
}

/* Was it written together with the answer's next output, which was not even made when it was? Then it was held
 * back: how long says nothing of how long one takes. */
static bool held(const struct output *o, size_t i, size_t n)
{
	return i + 1 < n && o[1].made_ns > o->made_ns && o->written_ns >= o[1].made_ns &&
	       o[1].written_ns < o->written_ns + TINY_NS;
}

static bool is_undisturbed(const struct answer *a, const struct output *o, size_t i)
{
	return !waited(o, i) && !held(o, i, a->n);
}

/* The last one of those that were written together. */
static bool ends_a_hold(const struct answer *a, const struct output *o, size_t i)
{
	return i && held(o - 1, i - 1, a->n) && !held(o, i, a->n);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static uint64_t error_of(uint64_t ns, uint64_t spread_ns)
{
	return most(most(ns / 2, LATE_NS), spread_ns * 9 / 2);
}

static void note_write(struct blame *b, const struct answer *a, const struct output *o)
{
	struct step_writes *w = &b->writes[b->v.seqs[a->seq - 1].visits[o->visit].step];
	uint32_t us = (uint32_t)least(late_ns(o) / 1000, UINT32_MAX);

	w->first_us = us < w->first_us ? us : w->first_us;
	w->last_us = us > w->last_us ? us : w->last_us;
}

/* Every k-th delivery that neither waited for the one before it nor was held for the next. */
static int collect(struct blame *b, struct sample *ret, size_t stride, size_t *ret_n)
{
	size_t n = 0, k = 0;

	for (uint32_t i = 0; i < b->v.n_requests; i++) {
		struct answer a;
		int err = answer_of(b, i, &a);

		if (err)
			return err;
		for (size_t j = 0; a.seq && j < a.n; j++) {
			const struct output *o = &b->outputs[j];

			note_write(b, &a, o);
			if (n == MAX_SAMPLES || !is_undisturbed(&a, o, j) || k++ % stride)
				continue;
			ret[n] = (struct sample){ late_ns(o), b->v.requests[i].engine, UINT32_MAX };
			if (j && is_undisturbed(&a, o - 1, j - 1))
				ret[n].differs_us =
					(uint32_t)least(distance(late_ns(o), late_ns(o - 1)) / 1000,
							UINT32_MAX - 1);
			n++;
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

/* Of one engine. How much it varies is asked within each answer: where many are served one after the
 * other, each has its turn, and all of them together only look as if it varied. */
static int learn(struct blame *b, const struct sample *v, size_t n)
{
	struct usual_delivery *u = &b->delivery[v->engine];
	size_t n_pairs = 0;
	uint64_t *ns;
	int err = blame_room(&b->numbers, &b->cap_numbers, n, sizeof(*b->numbers));

	if (err)
		return err;
	ns = b->numbers;
	for (size_t i = 0; i < n; i++)
		if (v[i].differs_us != UINT32_MAX)
			ns[n_pairs++] = 1000ull * v[i].differs_us;
	if (n_pairs < MIN_PAIRS)
		n_pairs = 0;
	u->err_ns = n_pairs ? pct_u64(ns, n_pairs, 500) : 0;
	for (size_t i = 0; i < n; i++)
		ns[i] = v[i].ns;
	u->n = (uint32_t)n;
	u->ns = pct_u64(ns, n, 500);
	u->err_ns = error_of(n_pairs ? u->ns : 0, u->err_ns);
	return 0;
}

int delivery_learn(struct blame *b)
{
	struct sample *v;
	uint64_t n_out = 0;
	size_t n = 0;
	int err;

	for (size_t i = 0; i < b->v.n_steps; i++)
		b->writes[i] = (struct step_writes){ .first_us = UINT32_MAX };
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

void delivery_of(struct blame *b, uint32_t engine, struct answer *a)
{
	uint64_t *ns = b->numbers;	/* has room: the deliveries came in it */
	bool none;
	size_t n = 0;

	a->delivery = b->delivery[engine];
	none = !a->delivery.n;	/* in all of the recording: then what a write did not hold up takes that long at most */
	for (size_t i = 0; i < a->n; i++)
		if (none ? ends_a_hold(a, &b->outputs[i], i) : is_undisturbed(a, &b->outputs[i], i))
			ns[n++] = late_ns(&b->outputs[i]);
	if (!n || (n < MIN_OF_ANSWER && !none))
		return;
	a->delivery.n = (uint32_t)n;
	a->delivery.ns = pct_u64(ns, n, 500);
	for (size_t i = 0; i < n; i++)
		ns[i] = distance(ns[i], a->delivery.ns);
	a->delivery.err_ns = error_of(a->delivery.ns, pct_u64(ns, n, 500));
}

/* ---- cut ---- */

/* Were the writes of a step made one after the other, for most of this time? */
static bool one_by_one(const struct step_writes *w, uint64_t ns)
{
	return w->last_us >= w->first_us && 2000ull * (w->last_us - w->first_us) >= ns;
}

static uint64_t spread_us(const struct step_writes *w)
{
	return w->last_us > w->first_us ? w->last_us - w->first_us : 0;
}

/* Were the writes of a step next to it spread as well? Of one stall those of one step are: it came amid them. */
static bool is_sustained(const struct blame *b, uint32_t step)
{
	size_t place = b->ix.facts[step].place, engine = b->v.steps[step].engine;
	uint64_t us = spread_us(&b->writes[step]);

	return (place > b->ix.first[engine] && 4 * spread_us(&b->writes[b->ix.order[place - 1]]) >= us) ||
	       (place + 1 < b->ix.first[engine + 1] && 4 * spread_us(&b->writes[b->ix.order[place + 1]]) >= us);
}

/* Until when others' answers were served, one after the other, that had been there before; 0: not. */
static uint64_t served_until(const struct blame *b, const struct answer *a, const struct output *to)
{
	uint32_t step = b->v.seqs[a->seq - 1].visits[to->visit].step;
	size_t place = b->ix.facts[step].place;
	const struct step_writes *w;
	uint64_t last;

	if (b->v.steps[step].n_members < MIN_SERVED)
		return 0;
	if (!is_sustained(b, step))
		return 0;
	if (one_by_one(&b->writes[step], late_ns(to)))
		return to->written_ns;
	if (place == b->ix.first[b->v.steps[step].engine])
		return 0;
	step = b->ix.order[place - 1];
	w = &b->writes[step];
	last = b->v.steps[step].t1_ns + 1000ull * w->last_us;
	return one_by_one(w, less(last, to->made_ns)) ? last : 0;
}

static uint64_t gap_before(const struct output *o)
{
	return less(o->written_ns, o[-1].written_ns);
}

/* Are outputs written slowly one after the other, with several that wait behind them? One stall has all of them written at
 * once behind it, and then the next gaps are short. */
static bool is_slow_pace(const struct blame *b, const struct answer *a, const struct output *to)
{
	size_t i = (size_t)(to - b->outputs), waiting = 1;
	uint64_t ns;

	if (to < b->outputs || i >= a->n || !i)
		return false;
	ns = gap_before(to);
	for (size_t k = i; k-- && b->outputs[k].written_ns > to->made_ns;)
		waiting++;
	for (size_t k = i + 1; k < a->n && b->outputs[k].made_ns < to->written_ns; k++)
		waiting++;
	if (i + 1 < a->n)
		return waiting >= MIN_WAITING && 2 * gap_before(to + 1) >= ns;
	return waiting >= MIN_WAITING && i > 1 && 2 * gap_before(to - 1) >= ns;
}

/* Were those of others, of its step and of the one before, written one after the other meanwhile? */
static bool others_were_served(const struct blame *b, const struct answer *a, const struct output *to, uint64_t t0_ns,
			       uint64_t t1_ns)
{
	uint32_t step = b->v.seqs[a->seq - 1].visits[to->visit].step, before;
	size_t place = b->ix.facts[step].place;
	uint64_t first, last, ns = 0;

	if (b->writes[step].last_us >= b->writes[step].first_us) {
		first = b->v.steps[step].t1_ns + 1000ull * b->writes[step].first_us;
		ns += less(t1_ns, most(first, t0_ns));
	}
	if (place > b->ix.first[b->v.steps[step].engine]) {
		before = b->ix.order[place - 1];
		last = b->v.steps[before].t1_ns + 1000ull * b->writes[before].last_us;
		ns += less(least(last, t1_ns), t0_ns);
	}
	return 2 * ns >= t1_ns - t0_ns && is_sustained(b, step);
}

/* What is left without evidence: most of the answer comes many outputs at once, so something holds it
 * inside the server; or others were served first; or nobody knows. */
static void cut_late(struct blame *b, struct gap *g, const struct answer *a, const struct output *to, uint64_t left_ns,
		     uint64_t t0_ns, uint64_t t1_ns, bool backlog)
{
	uint64_t until, ns = 0;

	if (a->bunched) {
		gap_add(g, MECH_APP_BUFFER, PROV_INFERRED, left_ns, NULL, NULL);
		return;
	}
	if (backlog) {
		if (is_slow_pace(b, a, to) || others_were_served(b, a, to, t0_ns, t1_ns))
			ns = left_ns;
	} else {
		until = served_until(b, a, to);
		ns = least(left_ns, less(until, to->made_ns));
	}
	/* Whoever is saturated is on a CPU all the time. */
	if (ns && !clues__front_may_be_busy(b->clues, g->request, t0_ns, t1_ns))
		ns = 0;
	gap_add(g, MECH_DETOKENIZER, PROV_INFERRED, ns, NULL, NULL);
	gap_add(g, MECH_UNEXPLAINED, PROV_NONE, left_ns - ns, NULL, NULL);
}

/* kept: of each of these mechanisms, bit by bit */
static void keep_only(struct clue_list *l, uint64_t kept)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		if (kept >> l->v[i].mechanism & 1)
			l->v[n++] = l->v[i];
	l->n = n;
}

/* While its peer took nothing, nothing could be written; what else happens behind a write keeps no
 * later one from being made. */
static void take_blocked(struct blame *b, struct gap *g, uint64_t t0_ns, uint64_t t1_ns,
			 uint64_t *left)
{
	struct clue_list l;

	clues__send(b->clues, g->request, t0_ns, t1_ns, &l);
	keep_only(&l, 1ull << MECH_SLOW_CLIENT);
	gap_add_clues(g, &l, left);
}

/* In llama.cpp the thread that computed a step hands its tokens over, before the next one begins: what keeps
 * it from that keeps them. In vLLM it gives them to another thread, which needs the GIL: what keeps
 * the first from running before it could do that keeps them, and who has the GIL, or collects with
 * it, keeps both threads waiting. */
static void take_hand_over(struct blame *b, struct gap *g, const struct answer *a, const struct output *to,
			   uint64_t t0_ns, uint64_t t1_ns, uint64_t *left)
{
	uint32_t engine = b->v.seqs[a->seq - 1].engine;
	size_t next = b->ix.facts[b->v.seqs[a->seq - 1].visits[to->visit].step].place + 1;
	bool same_thread = b->v.engines[engine].e.engine == TL_ENGINE_LLAMA;
	struct clue_list l;

	if (!same_thread && b->v.engines[engine].e.engine != TL_ENGINE_VLLM)
		return;
	if (same_thread && next < b->ix.first[engine + 1])
		t1_ns = least(t1_ns, step_index__span(&b->ix, b->ix.order[next]).t0_ns);
	if (t1_ns <= t0_ns)
		return;
	if (!same_thread) {
		clues__hand_over(b->clues, engine, to->made_ns, t0_ns, t1_ns, &l);
		gap_add_clues(g, &l, left);
	}
	clues__engine(b->clues, engine, t0_ns, t1_ns, &l);
	if (!same_thread)
		keep_only(&l, 1ull << MECH_GC | 1ull << MECH_GIL);
	gap_add_clues(g, &l, left);
}

void cut_delivery(struct blame *b, struct gap *g, const struct answer *a, const struct output *to,
		  uint64_t t0_ns, uint64_t t1_ns, uint64_t own_ns)
{
	uint32_t engine = b->v.requests[g->request].engine;
	/* Behind its own output before it, the step is long over: then as long as a step takes. */
	bool backlog = t0_ns > to->made_ns;
	uint64_t err_ns = backlog ? most(g->usual_ns / 10, LATE_NS) : a->delivery.err_ns;
	struct clue_list l;
	uint64_t left;

	if (t1_ns <= t0_ns)
		return;
	g->is_behind = true;
	own_ns = least(t1_ns - t0_ns, backlog ? g->usual_ns : own_ns);
	left = t1_ns - t0_ns - own_ns;
	if (left > err_ns && lost_in(b, t0_ns, t1_ns)) {
		gap_add(g, MECH_LOST, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	if (left > TINY_NS)
		take_blocked(b, g, t0_ns, t1_ns, &left);
	if (left > TINY_NS && a->seq && to->made_ns)
		take_hand_over(b, g, a, to, t0_ns, t1_ns, &left);
	if (left > TINY_NS) {
		clues__front(b->clues, engine, t0_ns, t1_ns, g->request, &l);
		gap_add_clues(g, &l, &left);
	}
	if (a->delivery.n && left > err_ns) {
		cut_late(b, g, a, to, left, t0_ns, t1_ns, backlog);
		left = 0;
	}
	gap_add(g, MECH_OWN_DELIVERY, PROV_OBSERVED, own_ns + left, NULL, NULL);
	g->is_behind = false;
}

void cut_client(struct blame *b, struct gap *g, uint64_t t0_ns, uint64_t t1_ns, uint64_t usual_ns,
		bool at_once, uint32_t chunk)
{
	uint64_t own_ns, left;
	struct clue_list l;
	struct culprit by = { .type = WHO_NOBODY };

	if (t1_ns <= t0_ns)
		return;
	g->is_behind = true;
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
	g->is_behind = false;
}
