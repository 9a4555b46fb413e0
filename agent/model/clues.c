/* SPDX-License-Identifier: Apache-2.0 */
/* What evidence says of a span of time: its indices, and the lists that answers are. */
#include "model/clues_priv.h"
#include "model/gpu.h"

#include <errno.h>
#include <string.h>

/* ---- look-ups ---- */

static int by_req(const void *pa, const void *pb)
{
	const struct by_number *a = pa, *b = pb;

	if (a->req != b->req)
		return a->req < b->req ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

static int numbers_make(struct clues *c)
{
	const struct model_view *v = c->v;

	c->numbers = calloc(v->n_requests + 1, sizeof(*c->numbers));
	if (!c->numbers)
		return -ENOMEM;
	for (uint32_t i = 0; i < v->n_requests; i++)
		c->numbers[i] = (struct by_number){ v->requests[i].req, i };
	qsort(c->numbers, v->n_requests, sizeof(*c->numbers), by_req);
	return 0;
}

uint32_t clues_request(const struct clues *c, uint32_t req)
{
	size_t lo = 0, hi = c->v->n_requests;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->numbers[mid].req < req)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < c->v->n_requests && c->numbers[lo].req == req ? c->numbers[lo].index : UINT32_MAX;
}

uint32_t clues_tgid(const struct clues *c, uint32_t engine)
{
	return engine < c->v->n_engines ? c->v->engines[engine].e.hdr.tgid : 0;
}

uint32_t clues_server(const struct clues *c, uint32_t tgid)
{
	const struct process *p = map__get(c->processes, tgid);

	return p ? p->server : tgid;
}

/* A pid that was used again belongs to its last owner. */
static int processes_make(struct clues *c)
{
	size_t n = c->v->n_engines;

	c->processes = map__new(sizeof(struct process), n + 1);
	c->engine_servers = calloc(n + 1, sizeof(*c->engine_servers));
	if (!c->processes || !c->engine_servers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const struct tl_engine *e = &c->v->engines[i].e;
		struct process *p = map__put(c->processes, e->hdr.tgid, NULL);

		if (!p)
			return -ENOMEM;
		p->server = e->server ? e->server : e->hdr.tgid;
		p->has_steps |= c->ix.first[i] < c->ix.first[i + 1];
		p->is_pool = !strncmp(e->role, "front", sizeof(e->role));
	}
	for (size_t i = 0; i < n; i++)
		c->engine_servers[i] = clues_server(c, c->v->engines[i].e.hdr.tgid);
	return 0;
}

static uint64_t thread_key(uint32_t tgid, uint32_t tid)
{
	return (uint64_t)tgid << 32 | tid;
}

const struct watched *clues_thread(const struct clues *c, uint32_t tgid, uint32_t tid)
{
	size_t lo = 0, hi = c->n_threads;
	uint64_t key = thread_key(tgid, tid);

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct tl_hdr *h = &c->threads[mid].t->hdr;

		if (thread_key(h->tgid, h->tid) < key)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == c->n_threads ||
	    thread_key(c->threads[lo].t->hdr.tgid, c->threads[lo].t->hdr.tid) != key)
		return NULL;
	return &c->threads[lo];
}

/* The rows of one thread in a table that is ordered by thread; *i runs on with the threads. */
#define ROWS_OF(table, key, i, first, end) do {						\
	while (*(i) < (table)->n && thread_key((table)->v[*(i)].hdr.tgid,		\
					       (table)->v[*(i)].hdr.tid) < (key))	\
		(*(i))++;								\
	(first) = *(i);									\
	while (*(i) < (table)->n && thread_key((table)->v[*(i)].hdr.tgid,		\
					       (table)->v[*(i)].hdr.tid) == (key))	\
		(*(i))++;								\
	(end) = *(i);									\
} while (0)

/* *at runs on with the threads: both are in their order. */
static bool does_launch(const struct clues *c, const struct tl_thread *t, size_t *at)
{
	const struct gpu_facts *f = c->v->gpu;
	uint64_t key = thread_key(t->hdr.tgid, t->hdr.tid);

	while (f && *at < f->n_launchers &&
	       thread_key(f->launchers[*at].tgid, f->launchers[*at].tid) < key)
		++*at;
	return f && *at < f->n_launchers &&
	       thread_key(f->launchers[*at].tgid, f->launchers[*at].tid) == key;
}

static int threads_make(struct clues *c)
{
	const struct evidence *ev = c->ev;
	size_t span = 0, code = 0, launcher = 0;

	c->threads = calloc(ev->threads.n + 1, sizeof(*c->threads));
	if (!c->threads)
		return -ENOMEM;
	for (size_t i = 0; i < ev->threads.n; i++) {
		const struct tl_thread *t = &ev->threads.v[i];
		struct watched *w = &c->threads[c->n_threads];
		uint64_t key = thread_key(t->hdr.tgid, t->hdr.tid);

		if (i + 1 < ev->threads.n && thread_key(t[1].hdr.tgid, t[1].hdr.tid) == key)
			continue;	/* the last word counts */
		w->t = t;
		w->launches = does_launch(c, t, &launcher);
		w->server = t->server ? t->server : clues_server(c, t->hdr.tgid);
		ROWS_OF(&ev->spans, key, &span, w->span0, w->span1);
		ROWS_OF(&ev->codes, key, &code, w->code0, w->code1);
		c->n_threads++;
	}
	return 0;
}

static int by_rank(const void *pa, const void *pb, void *ctx)
{
	const struct clues *c = ctx;
	uint32_t ia = *(const uint32_t *)pa, ib = *(const uint32_t *)pb;
	const struct watched *a = &c->threads[ia], *b = &c->threads[ib];

	if (a->server != b->server)
		return a->server < b->server ? -1 : 1;
	if (a->t->rank != b->t->rank)
		return a->t->rank < b->t->rank ? -1 : 1;
	return ia < ib ? -1 : ia > ib;
}

static int server_threads_make(struct clues *c)
{
	c->server_threads = malloc((c->n_threads + 1) * sizeof(*c->server_threads));
	if (!c->server_threads)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_threads; i++)
		c->server_threads[i] = i;
	qsort_r(c->server_threads, c->n_threads, sizeof(*c->server_threads), by_rank, c);
	return 0;
}

size_t clues_threads_from(const struct clues *c, uint32_t server, int rank)
{
	size_t lo = 0, hi = c->n_threads;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct watched *w = &c->threads[c->server_threads[mid]];

		if (w->server < server || (w->server == server && w->t->rank < rank))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

const struct watched *clues_process_threads(const struct clues *c, uint32_t tgid)
{
	size_t lo = 0, hi = c->n_threads;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->threads[mid].t->hdr.tgid < tgid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return &c->threads[lo];
}

/* ---- what was looked at ---- */

#define BIT(m) (1ull << (m))

static uint64_t watched_of(const struct watched *w)
{
	static const uint64_t of_cpu = BIT(MECH_THROTTLED) | BIT(MECH_RUN_QUEUE) |
				       BIT(MECH_FEW_CPUS) | BIT(MECH_PAGE_FAULT) |
				       BIT(MECH_STOPPED);
	const uint64_t more = w->launches ? of_cpu : 0;

	switch (w->t->role) {
	case TL_ROLE_ENGINE:
	case TL_ROLE_LAUNCH:
		return BIT(MECH_GC) | BIT(MECH_GIL) | BIT(MECH_GRAMMAR) | BIT(MECH_COMPILE) |
		       of_cpu;
	case TL_ROLE_COMPUTE:
		return of_cpu;
	case TL_ROLE_FRONT:
		return BIT(MECH_EVENT_LOOP) | BIT(MECH_TOKENIZER) | BIT(MECH_METRICS) | more;
	case TL_ROLE_DETOKENIZER:
		return BIT(MECH_DETOKENIZER) | more;
	default:
		return more;
	}
}

/* Threads count for their process and for their server: bits by its tgid
 * (KIND_PROCESS) or first process. */
enum { KIND_PROCESS = 0, KIND_SERVER = 1 };

static int watch(struct map *m, int kind, uint32_t tgid, uint64_t bits)
{
	uint64_t *at = map__put(m, (uint64_t)kind << 32 | tgid, NULL);

	if (at)
		*at |= bits;
	return at ? 0 : -ENOMEM;
}

static uint64_t watched_in(const struct map *m, int kind, uint32_t tgid)
{
	const uint64_t *at = map__get(m, (uint64_t)kind << 32 | tgid);

	return at ? *at : 0;
}

static uint64_t watched_devices(const struct clues *c)
{
	uint64_t bits = 0;
	bool ranks = false;

	if (c->gpu_of.n) {
		bits |= BIT(MECH_GRAPH_MISS) | BIT(MECH_PADDING) | BIT(MECH_COPY) |
			BIT(MECH_COMPILE);
		for (size_t i = 0; i < c->ev->gpu_steps.n && !ranks; i++)
			ranks = c->ev->gpu_steps.v[i].rank > 0;
		if (ranks)
			bits |= BIT(MECH_COLLECTIVE) | BIT(MECH_COMMUNICATION);
	}
	if (c->ev->gpu_states.n)
		bits |= BIT(MECH_CLOCK) | BIT(MECH_NEIGHBOUR);
	return bits;
}

static int watched_make(struct clues *c)
{
	struct map *by = map__new(sizeof(uint64_t), SIZE_MAX);
	uint64_t bits = watched_devices(c);
	int err;

	if (c->ev->held.n || c->ev->blocked.n)
		bits |= BIT(MECH_NAGLE) | BIT(MECH_SLOW_CLIENT) | BIT(MECH_NETWORK);
	c->watched = calloc(c->v->n_engines + 1, sizeof(*c->watched));
	err = by && c->watched ? 0 : -ENOMEM;
	for (size_t i = 0; i < c->n_threads && !err; i++) {
		const struct watched *w = &c->threads[i];

		err = watch(by, KIND_PROCESS, w->t->hdr.tgid, watched_of(w));
		if (!err)
			err = watch(by, KIND_SERVER, w->server, watched_of(w));
	}
	for (uint32_t i = 0; i < c->v->n_engines && !err; i++)
		c->watched[i] = bits | watched_in(by, KIND_PROCESS, clues_tgid(c, i)) |
				watched_in(by, KIND_SERVER, c->engine_servers[i]);
	map__free(by);
	return err;
}

/* ---- life ---- */

int clues__new(const struct model_view *v, struct clues **ret)
{
	static const struct evidence none;
	struct clues *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	c->v = v;
	c->ev = v->evidence ? v->evidence : &none;
	err = step_index__init(&c->ix, v);
	if (!err)
		err = processes_make(c);
	if (!err)
		err = numbers_make(c);
	if (!err)
		err = threads_make(c);
	if (!err)
		err = server_threads_make(c);
	if (!err)
		err = works_make(c);
	if (!err)
		err = quotas_make(c);
	if (!err)
		err = gpu_make(c);
	if (!err)
		err = engine_lines_make(c);
	if (!err)
		err = front_lines_make(c);
	if (!err)
		err = send_make(c);
	if (!err)
		err = cgroups_make(c);
	if (!err)
		err = watched_make(c);
	if (err) {
		clues__free(c);
		return err;
	}
	*ret = c;
	return 0;
}

static void lines_free(struct line *l, size_t n)
{
	for (size_t i = 0; l && i < n; i++)
		free(l[i].p);
	free(l);
}

void clues__free(struct clues *c)
{
	if (!c)
		return;
	lines_free(c->engine_lines, c->v->n_engines);
	lines_free(c->run_lines, c->v->n_engines);
	lines_free(c->crowd_lines, c->v->n_engines);
	lines_free(c->kept_lines, c->v->n_engines);
	lines_free(c->front_lines, c->n_threads);
	gpu_free(c);
	send_free(c);
	quotas_free(c);
	front_groups_free(c);
	step_index__free(&c->ix);
	map__free(c->processes);
	free(c->engine_servers);
	free(c->numbers);
	free(c->threads);
	free(c->server_threads);
	free(c->works);
	free(c->fronts);
	free(c->watched);
	vec_free(&c->cgroups);
	free(c);
}

/* ---- lists ---- */

static bool same_cause(const struct clue *a, const struct clue *b)
{
	return a->mechanism == b->mechanism && a->who.type == b->who.type && a->who.id == b->who.id;
}

void list_add_up(struct clue_list *l, const struct clue *k)
{
	size_t shortest = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (same_cause(&l->v[i], k)) {
			l->v[i].ns += k->ns;
			l->v[i].t0_ns = l->v[i].t1_ns = 0;	/* no longer in one place */
			return;
		}
		if (l->v[i].ns < l->v[shortest].ns)
			shortest = i;
	}
	if (l->n < MAX_CLUES)
		l->v[l->n++] = *k;
	else if (l->v[shortest].ns < k->ns)
		l->v[shortest] = *k;
}

/* A list that is full keeps the amounts of what it has already, and for the rest the longest. */
void list_add(struct clue_list *l, const struct clue *k)
{
	if (!k->ns)
		return;
	if (l->n < MAX_CLUES)
		l->v[l->n++] = *k;
	else
		list_add_up(l, k);
}

static int clue_by_time(const void *pa, const void *pb)
{
	const struct clue *a = pa, *b = pb;

	return a->t0_ns < b->t0_ns ? -1 : a->t0_ns > b->t0_ns;
}

void list_sort(struct clue_list *l)
{
	if (l->n == MAX_CLUES)
		qsort(l->v, l->n, sizeof(*l->v), clue_by_time);
}

const struct step_index *clues__steps(const struct clues *c)
{
	return &c->ix;
}

uint64_t clues__watched(const struct clues *c, uint32_t engine)
{
	return engine < c->v->n_engines ? c->watched[engine] : 0;
}
