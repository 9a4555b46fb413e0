/* SPDX-License-Identifier: Apache-2.0 */
/* The front end: what its threads were busy with while a request or an answer waited for them. */
#include "model/clues_priv.h"

#include <errno.h>
#include <string.h>

enum {
	MAX_BACK = 256,		/* requests to look back over for the one that a thread works on */
	MAX_QUERY = 256,	/* pieces of one span of time */
	FAR_LARGER = 8,
};

/* ---- what threads worked on ---- */

static int work_order(const void *pa, const void *pb)
{
	const struct work *a = pa, *b = pb;

	if (a->tgid != b->tgid)
		return a->tgid < b->tgid ? -1 : 1;
	if (a->t0_ns != b->t0_ns)
		return a->t0_ns < b->t0_ns ? -1 : 1;
	return a->what < b->what ? -1 : a->what > b->what;
}

/* When a request was out of its thread's hands: submitted, refused, or answered. */
static uint64_t work_end(const struct rec_request *r, uint64_t read_ns)
{
	static const enum point ends[] = { P_SUBMIT, P_QUEUED, P_SCHEDULED, P_PREFILL_START, P_HEADERS,
					   P_FIRST_CHUNK, P_DONE, P_CLOSE };
	uint64_t end = 0;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		uint64_t ns = r->at_ns[ends[i]];

		if (ns >= read_ns && (!end || ns < end))
			end = ns;
	}
	return end ? end : UINT64_MAX;
}

int works_make(struct clues *c)
{
	const struct model_view *v = c->v;

	c->works = calloc(v->n_requests + v->n_others + 1, sizeof(*c->works));
	if (!c->works)
		return -ENOMEM;
	for (uint32_t i = 0; i < v->n_requests && i < OTHER_BASE; i++) {
		const struct rec_request *r = &v->requests[i];
		uint64_t read = r->at_ns[P_REQ_LAST_BYTE] ? r->at_ns[P_REQ_LAST_BYTE] :
							    r->at_ns[P_REQ_FIRST_BYTE];

		if (read)
			c->works[c->n_works++] = (struct work){ clues_tgid(c, r->engine), r->tid,
								read, work_end(r, read), i };
	}
	for (uint32_t i = 0; i < v->n_others && i < OTHER_BASE; i++) {
		const struct rec_other *o = &v->others[i];

		c->works[c->n_works++] = (struct work){
			clues_tgid(c, o->engine), o->tid, o->read_ns ? o->read_ns : o->begin_ns,
			o->end_ns ? o->end_ns : UINT64_MAX, OTHER_BASE + i,
		};
	}
	qsort(c->works, c->n_works, sizeof(*c->works), work_order);
	return 0;
}

static uint64_t work_bytes(const struct clues *c, const struct work *w)
{
	return w->what < OTHER_BASE ? c->v->requests[w->what].body_bytes :
				      c->v->others[w->what - OTHER_BASE].body_bytes;
}

/*
 * What a thread of a front end worked on while it was on a CPU in [t0, t1]: what it had read and not yet
 * handed over for most of the time. Of several that were read before and waited for the same thread, the one
 * with the most to read is the one that took the time, and of those about as large the first one. Index + 1; 0:
 * nothing that we know of.
 */
uint32_t work_of(const struct clues *c, uint32_t tgid, uint32_t tid, uint64_t t0_ns, uint64_t t1_ns)
{
	size_t lo = 0, hi = c->n_works;
	uint64_t best_ns = 0, len = t1_ns - t0_ns;
	uint32_t best = 0;

	while (lo < hi) {	/* the first that begins at t1 or later */
		size_t mid = lo + (hi - lo) / 2;
		const struct work *w = &c->works[mid];

		if (w->tgid < tgid || (w->tgid == tgid && w->t0_ns < t1_ns))
			lo = mid + 1;
		else
			hi = mid;
	}
	for (size_t n = 0; lo-- > 0 && n < MAX_BACK && c->works[lo].tgid == tgid; n++) {
		const struct work *w = &c->works[lo];
		uint64_t from = w->t0_ns > t0_ns ? w->t0_ns : t0_ns;
		uint64_t to = w->t1_ns < t1_ns ? w->t1_ns : t1_ns, ns = to > from ? to - from : 0;

		if ((tid && w->tid && w->tid != tid) || ns < len / 2)
			continue;
		/* within a tenth they are alike */
		if (best && ns < best_ns + len / 10 &&
		    (ns + len / 10 < best_ns || 2 * work_bytes(c, w) < work_bytes(c, &c->works[best - 1])))
			continue;
		best = lo + 1;
		best_ns = ns;
	}
	return best;
}

/* ---- threads ---- */

static bool is_front(const struct watched *w)
{
	return w->t->role == TL_ROLE_FRONT || w->t->role == TL_ROLE_DETOKENIZER ||
	       w->t->role == TL_ROLE_ZMQ;
}

static bool is_pool(const struct clues *c, uint32_t tgid)
{
	const struct process *p = map__get(c->processes, tgid);

	return p && p->is_pool;
}

/* One of a pool's threads: that it waited is a fact, that the request waited with it is not. It
 * runs and sleeps as work comes, and what it does meanwhile keeps no other thread from working. */
static int pool_pieces(const struct clues *c, const struct watched *w, struct piece_list *ret)
{
	struct piece_list raw = { 0 };
	int err = thread_pieces(c, w, true, &raw);

	for (size_t i = 0; i < raw.l.n && !err; i++) {
		struct piece p = raw.l.v[i];

		if (p.rank >= RANK_LOCK)
			continue;
		p.prov = PROV_INFERRED;
		err = piece_add(ret, &p);
	}
	vec_free(&raw.l);
	return err;
}

/*
 * Of a front end's process, threads that tokenize for its event loop. vLLM has one, and requests queue for it. Where
 * there are several, each request may have one, and those that are not far larger keep no other waiting.
 */
static bool is_tokenizer(const struct clues *c, const struct watched *w)
{
	if (is_front(w) || w->t->role != TL_ROLE_OTHER)
		return false;
	for (size_t i = w->code0; i < w->code1; i++)
		if (c->ev->codes.v[i].code == TL_CODE_TOKENIZER)
			return true;
	return false;
}

static int tokenizer_pieces(const struct clues *c, const struct watched *w, struct piece_list *ret)
{
	for (size_t i = w->code0; i < w->code1; i++) {
		const struct tl_code *k = &c->ev->codes.v[i];
		struct piece p = { .t0_ns = k->since_ns, .t1_ns = k->hdr.ts_ns, .at = i, .src = SRC_CODE,
				   .rank = RANK_BUSY, .mechanism = MECH_TOKENIZER, .prov = PROV_OBSERVED };

		if (k->code != TL_CODE_TOKENIZER || 4u * k->n_samples < 3u * k->of_samples || p.t1_ns <= p.t0_ns)
			continue;
		p.work = work_of(c, w->t->hdr.tgid, 0, p.t0_ns, p.t1_ns);
		if (p.work && piece_add(ret, &p))
			return -ENOMEM;
	}
	return 0;
}

/* What kept all others waiting was a scrape if that is what the thread had read. */
static void name_scrapes(const struct clues *c, struct piece_list *pl)
{
	for (size_t i = 0; i < pl->l.n; i++) {
		struct piece *p = &pl->l.v[i];
		const struct work *w = p->work ? &c->works[p->work - 1] : NULL;

		if (w && w->what >= OTHER_BASE && p->mechanism == MECH_EVENT_LOOP &&
		    !strcmp(c->v->others[w->what - OTHER_BASE].path, "/metrics"))
			p->mechanism = MECH_METRICS;
	}
}

int front_lines_make(struct clues *c)
{
	int err = 0;

	c->front_lines = calloc(c->n_threads + 1, sizeof(*c->front_lines));
	c->fronts = calloc(c->n_threads + 1, sizeof(*c->fronts));
	if (!c->front_lines || !c->fronts)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_threads && !err; i++) {
		struct watched *w = &c->threads[i];
		bool pool = w->t->role != TL_ROLE_ZMQ && is_pool(c, w->t->hdr.tgid);
		struct piece_list raw = { 0 };

		w->tokenizes = is_tokenizer(c, w);
		if (!pool && !is_front(w) && !w->tokenizes)
			continue;
		if (pool) {
			err = pool_pieces(c, w, &raw);
		} else if (is_front(w)) {
			err = thread_pieces(c, w, true, &raw);
			name_scrapes(c, &raw);
		}
		if (!err && w->tokenizes)
			err = tokenizer_pieces(c, w, &raw);
		c->fronts[c->n_fronts++] = i;
		if (!err)
			err = line_make(&raw, &c->front_lines[i]);
		vec_free(&raw.l);
	}
	return err ? err : front_groups_make(c);
}

/* ---- answers ---- */

/* Who carries a request: the one thread that read it, where that is known and recorded. Else all that
 * read requests in its process; else all of its server. */
enum carrier { BY_READER, BY_PROCESS, BY_SERVER };

static enum carrier carrier_of(const struct clues *c, uint32_t tgid, const struct rec_request *self)
{
	const struct watched *w;

	if (self && self->tid && !is_pool(c, clues_tgid(c, self->engine))) {
		w = clues_thread(c, clues_tgid(c, self->engine), self->tid);
		if (w && w->t->role == TL_ROLE_FRONT)
			return BY_READER;
	}
	return front_group_of(c, front_key(OF_PROCESS, tgid))->n_fronts ? BY_PROCESS : BY_SERVER;
}

/* May a request have waited for what one of n threads tokenized? Until it was handed over, for another's text. */
static bool waits_for(const struct clues *c, const struct piece *p, uint32_t self, size_t n)
{
	const struct rec_request *r = &c->v->requests[self];
	const struct work *w = &c->works[p->work - 1];
	uint64_t read = r->at_ns[P_REQ_LAST_BYTE] ? r->at_ns[P_REQ_LAST_BYTE] : r->at_ns[P_REQ_FIRST_BYTE];

	if (w->what == self || p->t0_ns >= work_end(r, read))
		return false;
	return n == 1 || work_bytes(c, w) / FAR_LARGER > r->body_bytes;
}

/* What is asked: who kept a request of a process waiting, or any if `r` is NULL. */
struct front_query {
	const struct clues *c;
	const struct rec_request *r;
	uint32_t self, tgid, server;
	enum carrier by;
	const struct front_group *process, *of_server;
	uint64_t t0_ns, t1_ns;
	struct piece in[MAX_QUERY];
	size_t n;
};

static bool carries(const struct watched *w, const struct front_query *q)
{
	if (w->t->role == TL_ROLE_OTHER)
		return w->t->hdr.tgid == q->tgid;
	if (w->t->role != TL_ROLE_FRONT || q->by == BY_SERVER)
		return w->t->hdr.tgid == q->tgid || w->server == q->server;
	return w->t->hdr.tgid == q->tgid && (q->by == BY_PROCESS || w->t->hdr.tid == q->r->tid);
}

static void take(struct front_query *q, const struct watched *w, const struct piece *p)
{
	if (w->tokenizes && p->mechanism == MECH_TOKENIZER &&
	    (!q->r || !waits_for(q->c, p, q->self, q->process->n_tokenizers)))
		return;
	/* Its own request is what it waits for anyway. */
	if (p->rank < RANK_CODE || !q->r || piece_request(q->c, p) != q->self)
		q->in[q->n++] = *p;
}

static void ask_each(struct front_query *q)
{
	const struct clues *c = q->c;

	for (size_t i = 0; i < c->n_fronts && q->n < MAX_QUERY; i++) {
		const struct watched *w = &c->threads[c->fronts[i]];
		const struct line *l = &c->front_lines[c->fronts[i]];

		if (!carries(w, q))
			continue;
		for (size_t k = pieces_after(l->p, l->n, q->t0_ns);
		     k < l->n && l->p[k].t0_ns < q->t1_ns && q->n < MAX_QUERY; k++)
			take(q, w, &l->p[k]);
	}
}

static int by_thread(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

	return a < b ? -1 : a > b;
}

/* Those alone that have a piece there, in the same order. false: too many have, or all are few. */
static bool ask_found(struct front_query *q)
{
	const struct clues *c = q->c;
	struct front_hits hits;

	hits.n = 0;
	if (!front_hits_find(c, q->process, q->t0_ns, q->t1_ns, &hits) ||
	    !front_hits_find(c, q->of_server, q->t0_ns, q->t1_ns, &hits))
		return false;
	if (hits.n > 1)
		qsort(hits.v, hits.n, sizeof(hits.v[0]), by_thread);
	for (size_t i = 0; i < hits.n && q->n < MAX_QUERY; i++) {
		const struct watched *w = &c->threads[hits.v[i] >> 32];

		if ((!i || hits.v[i] != hits.v[i - 1]) && carries(w, q))
			take(q, w, &c->front_lines[hits.v[i] >> 32].p[(uint32_t)hits.v[i]]);
	}
	return true;
}

/* Is a thread recorded that reads such requests? */
static bool is_watched(const struct front_query *q)
{
	return q->by != BY_SERVER || q->of_server->n_fronts;
}

void clues__front(const struct clues *c, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns,
		  uint32_t self, struct clue_list *ret)
{
	const struct rec_request *r = self < c->v->n_requests ? &c->v->requests[self] : NULL;
	struct piece out[2 * MAX_QUERY], room[2 * MAX_QUERY];
	struct front_query q;
	size_t n;

	q.c = c;
	q.r = r;
	q.self = self;
	q.tgid = clues_tgid(c, r ? r->engine : engine);
	q.server = clues_server(c, q.tgid);
	q.by = carrier_of(c, q.tgid, r);
	q.process = front_group_of(c, front_key(OF_PROCESS, q.tgid));
	q.of_server = front_group_of(c, front_key(OF_SERVER, q.server));
	q.t0_ns = t0_ns;
	q.t1_ns = t1_ns;
	q.n = 0;
	ret->n = 0;
	if (!ask_found(&q))
		ask_each(&q);
	if (r && is_watched(&q) && q.n < MAX_QUERY && held_inside(c, self, t1_ns, &q.in[q.n]))
		q.n++;
	n = pieces_lay_out(q.in, q.n, out, room);
	for (size_t i = pieces_after(out, n, t0_ns); i < n && out[i].t0_ns < t1_ns; i++)
		list_add_piece(c, ret, &out[i], t0_ns, t1_ns);
	list_sort(ret);
}

/* How long a thread was on a CPU in [t0, t1]. */
static uint64_t on_cpu(const struct clues *c, const struct watched *w, uint64_t t0_ns,
		       uint64_t t1_ns)
{
	const struct tl_thread_span *s = c->ev->spans.v;
	size_t lo = w->span0, hi = w->span1;
	uint64_t ns = 0;

	while (lo < hi) { /* the first that ends behind t0 */
		size_t mid = lo + (hi - lo) / 2;

		if (s[mid].hdr.ts_ns <= t0_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < w->span1 && s[lo].since_ns < t1_ns; lo++) {
		uint64_t from = s[lo].since_ns > t0_ns ? s[lo].since_ns : t0_ns;
		uint64_t to = s[lo].hdr.ts_ns < t1_ns ? s[lo].hdr.ts_ns : t1_ns;

		if (s[lo].state == TL_SPAN_RUN && to > from)
			ns += to - from;
	}
	return ns;
}

/* Would it be recorded if who turns tokens into text were busy? vLLM's front end does that itself;
 * of others a thread may. */
static bool would_tell(const struct clues *c, const struct rec_request *r, const struct watched *w)
{
	return w->t->role == TL_ROLE_DETOKENIZER ||
	       (c->v->engines[r->engine].e.engine == TL_ENGINE_VLLM && is_front(w));
}

bool clues__front_may_be_busy(const struct clues *c, uint32_t request, uint64_t t0_ns,
			      uint64_t t1_ns)
{
	const struct rec_request *r = request < c->v->n_requests ? &c->v->requests[request] : NULL;
	uint32_t tgid = r ? clues_tgid(c, r->engine) : 0;
	bool watched = false;

	for (const struct watched *w = clues_process_threads(c, tgid);
	     tgid && w < c->threads + c->n_threads && w->t->hdr.tgid == tgid; w++) {
		if (2 * on_cpu(c, w, t0_ns, t1_ns) >= t1_ns - t0_ns)
			return true;
		watched |= would_tell(c, r, w);
	}
	return !watched;
}
