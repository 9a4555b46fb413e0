/* SPDX-License-Identifier: Apache-2.0 */
/* From launches and spans to steps: which processes are ranks of which server, and which step is which. */
#include "base/pct.h"
#include "model/servers.h"
#include "model/state.h"

#include <errno.h>

/* ---- servers and ranks ---- */

struct kin {			/* which server a process is of */
	struct servers *said;
	struct map *by_parent;	/* tgid of one that was forked -> the server that it is of by its parents, 0: not known */
};

/* A child comes behind its parent; who has a pid twice is the child of the last one. */
static int kin_init(struct kin *k, const struct model *m)
{
	const struct gpu_log *g = &m->gpu_log;
	struct model_view v;
	int err;

	model__view(m, &v);
	err = servers__new(&v, &k->said);
	k->by_parent = err ? NULL : map__new(sizeof(uint32_t), GPU_MAX_PARENTS);
	if (!k->by_parent)
		return -ENOMEM;
	for (size_t i = 0; i < g->parents.n; i++) {
		uint32_t parent = g->parents.v[i].parent, server = servers__of(k->said, parent);
		const uint32_t *above = map__get(k->by_parent, parent);
		uint32_t *at;

		if (!server && above)
			server = *above;
		at = map__put(k->by_parent, g->parents.v[i].tgid, NULL);
		if (!at)
			return -ENOMEM;
		*at = server;
	}
	return 0;
}

static void kin_free(struct kin *k)
{
	servers__free(k->said);
	map__free(k->by_parent);
}

static uint32_t server_of(const struct kin *k, uint32_t tgid)
{
	uint32_t server = servers__of(k->said, tgid);
	const uint32_t *above = map__get(k->by_parent, tgid);

	if (!server && above)
		server = *above;
	if (!server)
		server = servers__only(k->said);
	return server ? server : tgid;
}

static int by_rank(const void *pa, const void *pb)
{
	const struct gpu_process *a = pa, *b = pb;

	if (a->server != b->server)
		return a->server < b->server ? -1 : 1;
	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	return a->tgid < b->tgid ? -1 : a->tgid > b->tgid;
}

/* Ranks as threads are said to have them, else in the order of devices. */
static int find_ranks(struct model *m)
{
	struct gpu_log *g = &m->gpu_log;
	struct kin kin = { 0 };
	int err = kin_init(&kin, m);
	uint32_t rank = 0;

	for (size_t i = 0; i < g->processes.n && !err; i++) {
		struct gpu_process *p = &g->processes.v[i];
		int said = servers__rank(kin.said, p->tgid);

		p->server = server_of(&kin, p->tgid);
		p->device = p->spans.n ? p->spans.v[0].device : 0;
		p->rank = said >= 0 ? said : UINT16_MAX;
	}
	kin_free(&kin);
	if (err)
		return err;
	qsort(g->processes.v, g->processes.n, sizeof(*g->processes.v), by_rank);
	for (size_t i = 0; i < g->processes.n; i++) {
		struct gpu_process *p = &g->processes.v[i];

		rank = i && p[-1].server == p->server ? rank + 1 : 0;
		p->rank = p->rank == UINT16_MAX ? rank : p->rank;
	}
	return 0;
}

/* ---- steps ---- */

struct refs {
	VEC(struct gpu_ref) l;
};

static int add_ref(struct refs *r, uint32_t step, uint64_t end_ns, bool exact)
{
	struct gpu_ref *ref = vec_push(&r->l, SIZE_MAX);

	if (!ref)
		return -ENOMEM;
	*ref = (struct gpu_ref){ .end_ns = end_ns, .exact = exact, .step = step };
	return 0;
}

static int refs_of_wire(const struct model *m, const struct step_index *ix, uint32_t engine, struct refs *ret)
{
	for (size_t i = ix->first[engine]; i < ix->first[engine + 1]; i++)
		if (add_ref(ret, ix->order[i], m->steps[ix->order[i]].t1_ns, false))
			return -ENOMEM;
	return 0;
}

/* How long behind its end on the device the wire tells of a step, usually. */
static int usual_lag(const struct model *m, const struct gpu_process *p, uint64_t *ret)
{
	uint64_t *lags = malloc((p->bursts.n + 1) * sizeof(*lags));
	size_t n = 0;

	*ret = 0;
	if (!lags)
		return -ENOMEM;
	for (size_t i = 0; i < p->bursts.n; i++) {
		const struct gpu_burst *b = &p->bursts.v[i];
		uint64_t t1 = b->step ? m->steps[b->step - 1].t1_ns : 0;

		if (b->gpu1_ns && t1 > b->gpu1_ns)
			lags[n++] = t1 - b->gpu1_ns;
	}
	*ret = n ? pct_u64(lags, n, 500) : 0;
	free(lags);
	return 0;
}

/* Where the steps of rank 0 ended on its device: what another rank is compared with. */
static int refs_of_rank(const struct model *m, const struct gpu_process *p, const struct refs *wire,
			struct refs *ret)
{
	uint64_t lag, last = 0;
	size_t b = 0;
	int err = usual_lag(m, p, &lag);

	for (size_t i = 0; i < wire->l.n && !err; i++) {
		const struct gpu_ref *r = &wire->l.v[i];
		uint64_t end = r->end_ns > lag ? r->end_ns - lag : 0;

		while (b < p->bursts.n && !p->bursts.v[b].step)
			b++;
		if (b < p->bursts.n && p->bursts.v[b].step == r->step + 1) {
			end = p->bursts.v[b].gpu1_ns ? p->bursts.v[b].gpu1_ns : end;
			b++;	/* both are in the order of steps */
		}
		last = end > last ? end : last;
		err = add_ref(ret, r->step, last, true);
	}
	return err;
}

/* ---- which engine tells of a server, and its requests ---- */

enum { NOBODY = UINT32_MAX };
struct teller {			/* of a server: indices of engines; NOBODY */
	uint32_t of_steps;	/* the first one whose wire tells of steps */
	uint32_t front;		/* the one that reads its first request */
	uint32_t first;
	size_t at, n;		/* its requests in `requests` */
};
struct tellers {
	struct map *by_server;
	uint32_t *requests;	/* server after server, in order */
};

static struct teller *teller_of(const struct tellers *t, const struct model *m, uint32_t engine)
{
	return map__get(t->by_server, server_of_engine(&m->engines[engine].e));
}

static int add_engines(struct tellers *t, const struct model *m, const struct step_index *ix)
{
	for (uint32_t i = 0; i < m->v.n_engines; i++) {
		bool new;
		struct teller *s = map__put(t->by_server, server_of_engine(&m->engines[i].e), &new);

		if (!s)
			return -ENOMEM;
		if (new)
			*s = (struct teller){ .of_steps = NOBODY, .front = NOBODY, .first = i };
		if (s->of_steps == NOBODY && ix->first[i] < ix->first[i + 1])
			s->of_steps = i;
	}
	return 0;
}

static void add_requests(struct tellers *t, const struct model *m)
{
	size_t at = 0;

	for (size_t i = 0; i < m->v.n_requests; i++) {
		struct teller *s = teller_of(t, m, m->requests[i].engine);

		s->front = s->front == NOBODY ? m->requests[i].engine : s->front;
		s->n++;
	}
	for (struct teller *s = map__oldest(t->by_server, NULL); s; s = map__newer(t->by_server, s, NULL)) {
		s->at = at;
		at += s->n;
		s->n = 0;
	}
	for (uint32_t i = 0; i < m->v.n_requests; i++) {
		struct teller *s = teller_of(t, m, m->requests[i].engine);

		t->requests[s->at + s->n++] = i;
	}
}

static int tellers_init(struct tellers *t, const struct model *m, const struct step_index *ix)
{
	int err = -ENOMEM;

	t->by_server = map__new(sizeof(struct teller), SIZE_MAX);
	t->requests = malloc((m->v.n_requests + 1) * sizeof(*t->requests));
	if (t->by_server && t->requests)
		err = add_engines(t, m, ix);
	if (!err)
		add_requests(t, m);
	return err;
}

static void tellers_free(struct tellers *t)
{
	map__free(t->by_server);
	free(t->requests);
}

/* The ranks of one server: n processes from p on. */
static int match_server(struct model *m, const struct step_index *ix, const struct tellers *tellers,
			struct gpu_process *p, size_t n)
{
	const struct teller *t = map__get(tellers->by_server, p->server);
	struct refs wire = { 0 }, exact = { 0 };
	int err = 0;

	if (!t)
		return 0;
	if (t->of_steps != NOBODY) {
		err = refs_of_wire(m, ix, t->of_steps, &wire);
		if (!err)
			err = gpu_align(p, wire.l.v, wire.l.n);
	} else {
		err = gpu_infer(m, p, t->front != NOBODY ? t->front : t->first, tellers->requests + t->at, t->n);
		for (size_t i = 0; i < p->bursts.n && !err; i++)
			if (p->bursts.v[i].step)
				err = add_ref(&wire, p->bursts.v[i].step - 1,
					      m->steps[p->bursts.v[i].step - 1].t1_ns, false);
	}
	if (!err && n > 1)
		err = refs_of_rank(m, p, &wire, &exact);
	for (size_t i = 1; i < n && !err; i++)
		err = gpu_align(&p[i], exact.l.v, exact.l.n);
	vec_free(&wire.l);
	vec_free(&exact.l);
	return err;
}

static int match_all(struct model *m)
{
	struct gpu_log *g = &m->gpu_log;
	struct tellers tellers = { 0 };
	struct step_index ix;
	struct model_view v;
	int err;

	model__view(m, &v);
	err = step_index__init(&ix, &v);
	if (err)
		return err;
	err = tellers_init(&tellers, m, &ix);
	for (size_t i = 0, n; i < g->processes.n && !err; i += n) {
		for (n = 1; i + n < g->processes.n && g->processes.v[i + n].server == g->processes.v[i].server;)
			n++;
		err = match_server(m, &ix, &tellers, &g->processes.v[i], n);
	}
	tellers_free(&tellers);
	step_index__free(&ix);
	return err;
}

static int sum_up(struct model *m)
{
	struct step_index ix;
	struct model_view v;
	int err;

	model__view(m, &v);
	err = step_index__init(&ix, &v);
	if (err)
		return err;
	err = gpu_sum_steps(m, &ix);
	if (!err)
		err = gpu_sum_rest(m, &ix);
	step_index__free(&ix);
	return err;
}

/* The clocks of process i, as they came, are from first[i + 1] to first[i + 2] in *ret, which is the caller's. */
static int sort_clocks(const struct model *m, uint32_t **ret, size_t *first)
{
	const struct gpu_log *g = &m->gpu_log;
	const struct evidence *ev = &m->evidence;
	uint32_t *at;

	*ret = malloc((ev->clocks.n + 1) * sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	for (size_t i = 0; i < ev->clocks.n; i++) {
		at = map__get(g->by_tgid, ev->clocks.v[i].hdr.tgid);
		if (at)
			first[*at + 1]++;
	}
	for (size_t i = 0; i < g->processes.n; i++)
		first[i + 1] += first[i];
	first[g->processes.n + 1] = first[g->processes.n];
	for (size_t i = ev->clocks.n; i-- > 0;) {
		at = map__get(g->by_tgid, ev->clocks.v[i].hdr.tgid);
		if (at)
			(*ret)[--first[*at + 1]] = i;
	}
	return 0;
}

static void note_losses(struct model *m)
{
	for (size_t i = 0; i < m->evidence.gpu_healths.n; i++) {
		const struct tl_gpu_health *h = &m->evidence.gpu_healths.v[i];
		const uint32_t *at = h->dropped ? map__get(m->gpu_log.by_tgid, h->hdr.tgid) : NULL;

		if (at)
			m->gpu_log.processes.v[*at].lossy = true;
	}
}

static int join_all(struct model *m)
{
	struct gpu_log *g = &m->gpu_log;
	size_t *first = calloc(g->processes.n + 2, sizeof(*first));
	uint32_t *clocks = NULL;
	struct model_view v;
	int err = first ? sort_clocks(m, &clocks, first) : -ENOMEM;

	model__view(m, &v);
	note_losses(m);
	for (size_t i = 0; i < g->processes.n && !err; i++) {
		struct gpu_clocks of = { clocks + first[i + 1], first[i + 2] - first[i + 1] };

		err = gpu_join(&g->processes.v[i], &m->evidence, &of, &m->gpu.counts);
		if (!err)
			err = gpu_find_holes(&g->processes.v[i]);
		if (!err)
			err = gpu_cut(&g->processes.v[i], &v, &of);
		if (!err)
			err = gpu_find_watched(&g->processes.v[i]);
	}
	free(clocks);
	free(first);
	return err;
}

static uint64_t unseen_ns(const struct gpu_process *p, uint64_t end_ns)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < p->unseen.n; i++) {
		const struct gpu_unseen *u = &p->unseen.v[i];
		uint64_t t1_ns = u->t1_ns < end_ns ? u->t1_ns : end_ns;

		ns += t1_ns > u->t0_ns ? t1_ns - u->t0_ns : 0;
	}
	return ns;
}

static void sum_unseen(struct model *m)
{
	struct model_view v;

	model__view(m, &v);
	for (size_t i = 0; i < m->gpu_log.processes.n; i++) {
		uint64_t ns = unseen_ns(&m->gpu_log.processes.v[i], v.t1_ns);

		m->gpu.unseen_ns = ns > m->gpu.unseen_ns ? ns : m->gpu.unseen_ns;
	}
}

int gpu_finish(struct model *m)
{
	int err = 0;

	sum_unseen(m);
	m->gpu.counts.not_kept = m->gpu_log.not_kept;
	if (m->gpu_log.processes.n) {
		err = join_all(m);
		if (!err)
			err = gpu_find_launchers(m);
		if (!err)
			err = find_ranks(m);
		if (!err)
			err = match_all(m);
		if (!err)
			err = sum_up(m);
	}
	gpu_log_free(&m->gpu_log);	/* only what it came to is needed; a half of that is of no use */
	if (err)
		gpu_facts_free(&m->gpu);
	return err;
}
