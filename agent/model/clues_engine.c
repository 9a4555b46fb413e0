/* SPDX-License-Identifier: Apache-2.0 */
/* Threads: which spans of an engine's or a front end's kept others waiting, and because of whom. */
#include "model/clues_priv.h"
#include "base/num.h"

#include <errno.h>
#include <string.h>

enum {
	MAX_LOOK_NS = 20000000, /* between two pieces of a wait for a lock */
	MIN_HOLE_NS = 500000, /* of a hole between steps, to look for who was busy in it */
	MAX_BACK = 32, /* codes to look back over for one that covers a moment */
	MAX_PIECES_ASKED = 4096, /* of one span, one by one */
	HAND_OVER_NS = 500000, /* what a thread gave is handed over once it could run so long */
};

/* ---- spans ---- */

/* Threads that an engine waits for in its own work are no lock holders. */
static bool is_helper(const struct clues *c, uint32_t tgid, uint32_t tid)
{
	const struct watched *w = clues_thread(c, tgid, tid);

	if (!w)
		return false;
	return thread_computes(w) || w->t->role == TL_ROLE_ZMQ || w->t->role == TL_ROLE_DETOKENIZER;
}

/* The code of a thread that covers most of a span: index + 1; 0: not known. */
static uint32_t code_at(const struct clues *c, uint32_t tgid, uint32_t tid, uint64_t t0_ns, uint64_t t1_ns)
{
	const struct watched *w = clues_thread(c, tgid, tid);
	const struct tl_code *k = c->ev->codes.v;
	uint64_t best_ns = 0;
	uint32_t best = 0;
	size_t lo, hi;

	if (!w)
		return 0;
	lo = w->code0;
	hi = w->code1;
	while (lo < hi) {	/* the first that begins at t1 or later */
		size_t mid = lo + (hi - lo) / 2;

		if (k[mid].since_ns < t1_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t i = lo, n = 0; i-- > w->code0 && n < MAX_BACK; n++) {
		uint64_t from = most(t0_ns, k[i].since_ns), to = least(t1_ns, k[i].hdr.ts_ns), ns;

		if (to <= from || !k[i].of_samples)
			continue;
		ns = (to - from) / k[i].of_samples * k[i].n_samples;
		if (ns > best_ns) {
			best_ns = ns;
			best = i + 1;
		}
	}
	return best;
}

static uint8_t busy_mechanism(const struct watched *w, bool front)
{
	if (!front)
		return MECH_HOST;
	return w->t->role == TL_ROLE_DETOKENIZER ? MECH_DETOKENIZER : MECH_EVENT_LOOP;
}

/* A scrape may be answered by a helper of the event loop, which has the lock meanwhile. */
static bool is_scrape(const struct clues *c, uint32_t work)
{
	const struct work *w = work ? &c->works[work - 1] : NULL;

	return w && w->what >= OTHER_BASE && !strcmp(c->v->others[w->what - OTHER_BASE].path, "/metrics");
}

static bool slept_for_lock(const struct clues *c, const struct watched *w, const struct tl_thread_span *s)
{
	uint64_t len = s->hdr.ts_ns - s->since_ns;

	return s->wait == TL_WAIT_FUTEX && w->t->role != TL_ROLE_COMPUTE && s->by_tid &&
	       s->by_tgid == s->hdr.tgid && s->by_tid != s->hdr.tid && s->by_ns >= len - len / 2 &&
	       !is_helper(c, s->by_tgid, s->by_tid);
}

/* Behind a thread of its own server. *ret: what is recorded of that; NULL: nothing. */
static bool behind_own(const struct clues *c, const struct watched *w, const struct tl_thread_span *s,
		       const struct watched **ret)
{
	const struct watched *by = s->by_tid ? clues_thread(c, s->by_tgid, s->by_tid) : NULL;

	*ret = by;
	if (by)
		return by->server == w->server && by->t->role != TL_ROLE_PROXY;
	return s->by_tid && (s->by_tgid == w->t->hdr.tgid ||
			     (map__get(c->processes, s->by_tgid) && clues_server(c, s->by_tgid) == w->server));
}

/*
 * The CPU was another thread's of the same server. Of two that compute the same steps that is what a step takes where
 * there are too few CPUs for both: apart from the rest. false: others had it for the rest, and it begins there.
 */
static bool classify_own(const struct clues *c, bool front, const struct tl_thread_span *s,
			 const struct watched *by, struct piece *p)
{
	p->mechanism = MECH_FEW_CPUS;
	if (front || !by || !thread_computes(by)) {
		p->rank = RANK_RUN_QUEUE;
		if (by && (by->t->role == TL_ROLE_FRONT || by->t->role == TL_ROLE_OTHER))
			p->work = work_of(c, s->by_tgid, by->t->role == TL_ROLE_FRONT ? s->by_tid : 0, p->t0_ns,
					  p->t1_ns);
		return true;
	}
	p->rank = RANK_CROWD;
	p->prov = PROV_INFERRED;
	if (s->by_ns >= (p->t1_ns - p->t0_ns) / 10 * 9)
		return true;
	p->t0_ns += s->by_ns;
	p->more = 1;
	return false;
}

/* false: says nothing. */
static bool classify_span(const struct clues *c, const struct watched *w, bool front, struct thread_quotas *q,
			  struct piece *p)
{
	const struct tl_thread_span *s = &c->ev->spans.v[p->at];
	const struct watched *by;

	switch (s->state) {
	case TL_SPAN_RUNNABLE:
		if (was_throttled(c, w, s, q, &p->more)) {
			p->rank = RANK_THROTTLED;
			p->mechanism = MECH_THROTTLED;
			p->prov = p->more ? PROV_OBSERVED : PROV_INFERRED;
			return true;
		}
		if (behind_own(c, w, s, &by) && classify_own(c, front, s, by, p))
			return true;
		p->rank = RANK_RUN_QUEUE;
		p->mechanism = MECH_RUN_QUEUE;
		p->prov = PROV_OBSERVED;
		return true;
	case TL_SPAN_SLEEP:
		if (s->wait == TL_WAIT_STOPPED) {
			p->rank = RANK_STOPPED;
			p->mechanism = MECH_STOPPED;
			return true;
		}
		if (s->wait == TL_WAIT_DISK) {
			p->rank = RANK_PAGE_FAULT;
			p->mechanism = MECH_PAGE_FAULT;
			return true;
		}
		if (!slept_for_lock(c, w, s))
			return false;
		p->rank = RANK_LOCK;
		p->mechanism = MECH_GIL;
		p->prov = PROV_INFERRED;	/* that it was this lock and this holder */
		if (s->by_ns < p->t1_ns - p->t0_ns)
			p->t0_ns = p->t1_ns - s->by_ns;
		p->more = code_at(c, s->by_tgid, s->by_tid, p->t0_ns, p->t1_ns);
		if (!front)
			return true;
		p->work = work_of(c, s->by_tgid, 0, p->t0_ns, p->t1_ns);
		if (is_scrape(c, p->work))
			p->mechanism = MECH_METRICS;
		return true;
	case TL_SPAN_RUN:
		p->rank = RANK_RUN;
		p->mechanism = busy_mechanism(w, front);
		return true;
	default:
		return false;
	}
}

/* ---- code ---- */

static void classify_code(const struct watched *w, bool front, const struct tl_code *k, struct piece *p)
{
	p->rank = RANK_CODE;
	switch (k->code) {
	case TL_CODE_GC:
		p->mechanism = MECH_GC;
		return;
	case TL_CODE_COMPILE:
		p->mechanism = MECH_COMPILE;
		return;
	case TL_CODE_METRICS:
		p->mechanism = MECH_METRICS;
		return;
	case TL_CODE_GRAMMAR:
		p->mechanism = front ? MECH_EVENT_LOOP : MECH_GRAMMAR;
		return;
	case TL_CODE_DETOKENIZER:
		p->rank = RANK_BUSY;
		p->mechanism = front ? MECH_DETOKENIZER : MECH_HOST;
		return;
	case TL_CODE_TOKENIZER:
	case TL_CODE_REGEX:
	case TL_CODE_JSON:
	case TL_CODE_TEMPLATE:
		p->rank = RANK_BUSY;
		p->mechanism = busy_mechanism(w, front);
		return;
	default:		/* its usual work, too, is code that has a name */
		p->rank = front ? RANK_BUSY : RANK_RUN;
		p->mechanism = busy_mechanism(w, front);
	}
}

static int add_piece(const struct clues *c, const struct watched *w, bool front, struct piece *p,
		     struct piece_list *ret)
{
	if (front && p->rank >= RANK_CODE)
		p->work = work_of(c, w->t->hdr.tgid, w->t->hdr.tid, p->t0_ns, p->t1_ns);
	return piece_add(ret, p);
}

/* Samples of one span on a CPU are split over codes by their numbers, one behind the other: that they took
 * turns does not matter to who waits. Three in four stand for all. */
static int code_pieces(const struct clues *c, const struct watched *w, bool front, struct piece_list *ret)
{
	const struct tl_code *k = c->ev->codes.v;
	uint64_t at = 0;

	for (size_t i = w->code0; i < w->code1; i++) {
		struct piece p = { .at = i, .src = SRC_CODE, .prov = PROV_OBSERVED };
		bool first = i == w->code0 || k[i - 1].since_ns != k[i].since_ns ||
			     k[i - 1].hdr.ts_ns != k[i].hdr.ts_ns;
		uint64_t len = k[i].hdr.ts_ns > k[i].since_ns ? k[i].hdr.ts_ns - k[i].since_ns : 0;

		if (!k[i].of_samples || k[i].n_samples > k[i].of_samples)
			continue;
		if (first)
			at = k[i].since_ns;
		if (4u * k[i].n_samples < 3u * k[i].of_samples)
			len = (double)len * k[i].n_samples / k[i].of_samples;
		p.t0_ns = at;
		p.t1_ns = at = least(at + len, k[i].hdr.ts_ns);
		if (k[i].code == TL_CODE_LAUNCH && !front)
			continue;	/* what it is there for */
		classify_code(w, front, &k[i], &p);
		if (add_piece(c, w, front, &p, ret))
			return -ENOMEM;
	}
	return 0;
}

/*
 * A wait for a lock that timeouts cut: after each the thread is in the queue of a CPU, to look and to wait on.
 * As long as it is the same one that ends the wait, that was no lack of a CPU.
 */
static void join_lock(const struct clues *c, const struct piece_list *pl, size_t *last)
{
	const struct tl_thread_span *spans = c->ev->spans.v;
	const struct piece *p = &pl->l.v[pl->l.n - 1], *before = *last < pl->l.n ? &pl->l.v[*last] : NULL;

	if (p->rank != RANK_LOCK)
		return;
	if (before && p->t0_ns >= before->t1_ns && p->t0_ns - before->t1_ns < MAX_LOOK_NS &&
	    spans[before->at].by_tid == spans[p->at].by_tid) {
		for (size_t i = *last + 1; i + 1 < pl->l.n; i++) {
			struct piece *q = &pl->l.v[i];
			uint64_t t0_ns = q->t0_ns, t1_ns = q->t1_ns;

			if (q->rank != RANK_RUN_QUEUE)
				continue;
			*q = *p;
			q->t0_ns = t0_ns;
			q->t1_ns = t1_ns;
		}
	}
	*last = pl->l.n - 1;
}

int thread_pieces(const struct clues *c, const struct watched *w, bool front, struct piece_list *ret)
{
	struct thread_quotas quotas;
	size_t last_lock = SIZE_MAX, n;

	quotas_of(c, w->t, &quotas);
	for (size_t i = w->span0; i < w->span1; i++) {
		const struct tl_thread_span *s = &c->ev->spans.v[i];
		struct piece p = { .t0_ns = s->since_ns, .t1_ns = s->hdr.ts_ns, .at = i, .src = SRC_SPAN,
				   .prov = PROV_OBSERVED };

		if (p.t1_ns <= p.t0_ns || !classify_span(c, w, front, &quotas, &p))
			continue;
		n = ret->l.n;
		if (add_piece(c, w, front, &p, ret))
			return -ENOMEM;
		if (ret->l.n > n)
			join_lock(c, ret, &last_lock);
	}
	return code_pieces(c, w, front, ret);
}

/* ---- an engine's threads together ---- */

/* To be on a CPU is what an engine's thread is there for in a step; between steps it is not. */
static int keep_in_holes(const struct clues *c, uint32_t engine, const struct piece *p,
			 struct piece_list *ret)
{
	size_t end = c->ix.first[engine + 1];

	for (size_t i = step_index__after(&c->ix, engine, p->t0_ns); i < end; i++) {
		struct step_span s = step_index__span(&c->ix, c->ix.order[i]);
		struct piece part = *p;

		if (s.hole_ns >= p->t1_ns)
			break;
		part.t0_ns = most(p->t0_ns, s.hole_ns);
		part.t1_ns = least(p->t1_ns, s.t0_ns);
		if (part.t1_ns < part.t0_ns + MIN_HOLE_NS)
			continue;
		if (piece_add(ret, &part))
			return -ENOMEM;
	}
	return 0;
}

/*
 * An engine's thread whose steps a worker of another process computes has nothing to do in them but wait: behind that
 * worker, it is not what the step waits for.
 */
static bool is_idle_in_steps(const struct clues *c, const struct piece *p)
{
	const struct tl_thread_span *s = &c->ev->spans.v[p->at];
	const struct watched *w = clues_thread(c, s->hdr.tgid, s->hdr.tid);

	return w->t->role == TL_ROLE_ENGINE && s->by_tgid != s->hdr.tgid;
}

/* Up to its last step, and behind it. */
static int add_pause(const struct clues *c, uint32_t engine, const struct piece *p,
		     struct piece_list *ret)
{
	size_t end = c->ix.first[engine + 1];
	struct piece rest = *p;
	int err = keep_in_holes(c, engine, p, ret);

	if (end > c->ix.first[engine])
		rest.t0_ns = most(p->t0_ns, c->v->steps[c->ix.order[end - 1]].t1_ns);
	return err ? err : piece_add(ret, &rest);
}

static int add_pauses(const struct clues *c, uint32_t engine, struct piece_list *ret)
{
	int err = 0;

	for (size_t i = 0; i < c->n_pauses && !err; i++) {
		const struct pause *at = &c->pauses[i];
		struct piece p = { .t0_ns = at->t0_ns,
				   .t1_ns = at->t1_ns,
				   .at = at->other,
				   .src = SRC_ASKED,
				   .rank = RANK_STOPPED,
				   .mechanism = MECH_PAUSED,
				   .prov = PROV_OBSERVED };

		if (at->server == c->engine_servers[engine])
			err = add_pause(c, engine, &p, ret);
	}
	return err;
}

/* Kept an engine's own thread from running, as nothing in its process did? */
static bool kept_from_running(const struct clues *c, uint32_t engine, const struct piece *p)
{
	const struct tl_thread_span *s;

	if (c->v->engines[engine].e.engine != TL_ENGINE_VLLM || p->src != SRC_SPAN ||
	    p->rank > RANK_PAGE_FAULT)
		return false;
	s = &c->ev->spans.v[p->at];
	return s->hdr.tgid == clues_tgid(c, engine) &&
	       clues_thread(c, s->hdr.tgid, s->hdr.tid)->t->role == TL_ROLE_ENGINE;
}

/* workers: its threads. */
static int engine_line(struct clues *c, uint32_t engine, const struct workers *workers)
{
	struct piece_list raw = { 0 }, kept = { 0 }, runs = { 0 }, crowd = { 0 }, own = { 0 };
	int err = 0;

	for (size_t i = 0; i < workers->l.n && !err; i++)
		err = thread_pieces(c, &c->threads[workers->l.v[i]], false, &raw);

	for (size_t i = 0; i < raw.l.n && !err; i++) {
		const struct piece *p = &raw.l.v[i];

		if (p->rank == RANK_CROWD)
			err = is_idle_in_steps(c, p) ? keep_in_holes(c, engine, p, &crowd) : piece_add(&crowd, p);
		else if (p->rank != RANK_RUN)
			err = piece_add(&kept, p);
		else
			err = keep_in_holes(c, engine, p, &kept);
		if (!err && p->rank == RANK_RUN && c->gpu_usual[engine].rank_mask)
			err = piece_add(&runs, p);
		if (!err && kept_from_running(c, engine, p))
			err = piece_add(&own, p);
	}
	if (!err)
		err = add_pauses(c, engine, &kept);
	if (!err)
		err = line_make(&kept, &c->engine_lines[engine]);
	if (!err)
		err = line_make(&runs, &c->run_lines[engine]);
	if (!err)
		err = line_make(&crowd, &c->crowd_lines[engine]);
	if (!err)
		err = line_make(&own, &c->kept_lines[engine]);
	vec_free(&raw.l);
	vec_free(&kept.l);
	vec_free(&runs.l);
	vec_free(&crowd.l);
	vec_free(&own.l);
	return err;
}

static int make_line(void *ctx, uint32_t engine, const struct workers *workers)
{
	return engine_line(ctx, engine, workers);
}

int engine_lines_make(struct clues *c)
{
	c->n_pauses = pauses_find(c->v, c->pauses);
	c->engine_lines = calloc(c->v->n_engines + 1, sizeof(*c->engine_lines));
	c->run_lines = calloc(c->v->n_engines + 1, sizeof(*c->run_lines));
	c->crowd_lines = calloc(c->v->n_engines + 1, sizeof(*c->crowd_lines));
	c->kept_lines = calloc(c->v->n_engines + 1, sizeof(*c->kept_lines));
	if (!c->engine_lines || !c->run_lines || !c->crowd_lines || !c->kept_lines)
		return -ENOMEM;
	return workers_each(c, make_line, c);
}

/* Of a span with very many pieces, every so manieth stands for those behind it: each of many long spans that
 * overlap would look at all of them. In no place any more, and how long is inferred. */
static void list_estimate(const struct clues *c, struct clue_list *ret, const struct piece *p, size_t n,
			  uint64_t t0_ns, uint64_t t1_ns)
{
	size_t stride = n / MAX_PIECES_ASKED + 1;
	struct clue_list one;

	for (size_t i = 0; i < n; i += stride) {
		one.n = 0;
		list_add_piece(c, &one, &p[i], t0_ns, t1_ns);
		if (!one.n)
			continue;
		one.v[0].ns *= stride < n - i ? stride : n - i;
		one.v[0].t0_ns = one.v[0].t1_ns = 0;
		one.v[0].prov = PROV_INFERRED;
		list_add_up(ret, &one.v[0]);
	}
}

static void list_line(const struct clues *c, const struct line *l, uint64_t t0_ns, uint64_t t1_ns,
		      struct clue_list *ret)
{
	size_t i, n;

	i = pieces_after(l->p, l->n, t0_ns);
	n = pieces_after(l->p, l->n, t1_ns) - i;
	if (n > MAX_PIECES_ASKED) {
		list_estimate(c, ret, l->p + i, n, t0_ns, t1_ns);
		return;
	}
	for (; i < l->n && l->p[i].t0_ns < t1_ns; i++)
		list_add_piece(c, ret, &l->p[i], t0_ns, t1_ns);
	list_sort(ret);
}

void clues__engine(const struct clues *c, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns,
		   struct clue_list *ret)
{
	ret->n = 0;
	if (engine < c->v->n_engines)
		list_line(c, &c->engine_lines[engine], t0_ns, t1_ns, ret);
}

void clues__crowd(const struct clues *c, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns,
		  struct clue_list *ret)
{
	ret->n = 0;
	if (engine < c->v->n_engines)
		list_line(c, &c->crowd_lines[engine], t0_ns, t1_ns, ret);
}

void clues__hand_over(const struct clues *c, uint32_t engine, uint64_t made_ns, uint64_t t0_ns,
		      uint64_t t1_ns, struct clue_list *ret)
{
	const struct line *l;
	uint64_t at_ns = made_ns, ran_ns = 0;

	ret->n = 0;
	if (engine >= c->v->n_engines)
		return;
	l = &c->kept_lines[engine];
	for (size_t i = pieces_after(l->p, l->n, made_ns), n = 0; i < l->n && n < MAX_PIECES_ASKED;
	     i++, n++) {
		struct piece p = l->p[i];

		ran_ns += p.t0_ns > at_ns ? p.t0_ns - at_ns : 0;
		if (p.t0_ns >= t1_ns || ran_ns > HAND_OVER_NS)
			break;
		at_ns = p.t1_ns;
		p.prov = PROV_INFERRED;
		list_add_piece(c, ret, &p, t0_ns, t1_ns);
	}
	list_sort(ret);
}
