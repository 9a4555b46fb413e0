/* SPDX-License-Identifier: Apache-2.0 */
/* From launches and spans to steps: which processes are ranks of which server, and which step is which. */
#include "base/pct.h"
#include "model/state.h"

#include <errno.h>

/* ---- servers and ranks ---- */

/* The first process of a server that this one belongs to; 0: not known. */
static uint32_t server_said(const struct model *m, uint32_t tgid)
{
	for (size_t i = m->v.n_engines; i-- > 0;)
		if (m->engines[i].e.hdr.tgid == tgid)
			return m->engines[i].e.server ? m->engines[i].e.server : tgid;
	for (size_t i = 0; i < m->evidence.threads.n; i++)
		if (m->evidence.threads.v[i].hdr.tgid == tgid && m->evidence.threads.v[i].server)
			return m->evidence.threads.v[i].server;
	return 0;
}

static uint32_t server_of(const struct model *m, uint32_t tgid)
{
	uint32_t at = tgid, server = server_said(m, at), only = 0;

	for (size_t i = m->gpu_log.parents.n; i-- > 0 && !server;)	/* a child comes behind its parent */
		if (m->gpu_log.parents.v[i].tgid == at) {
			at = m->gpu_log.parents.v[i].parent;
			server = server_said(m, at);
		}
	for (size_t i = 0; i < m->v.n_engines && !server; i++) {
		const struct tl_engine *e = &m->engines[i].e;
		uint32_t s = e->server ? e->server : e->hdr.tgid;

		if (only && s != only)
			return tgid;
		only = s;
	}
	return server ? server : only ? only : tgid;
}

static int rank_said(const struct model *m, uint32_t tgid)
{
	for (size_t i = 0; i < m->evidence.threads.n; i++)
		if (m->evidence.threads.v[i].hdr.tgid == tgid && m->evidence.threads.v[i].rank >= 0)
			return m->evidence.threads.v[i].rank;
	return -1;
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
static void find_ranks(struct model *m)
{
	struct gpu_log *g = &m->gpu_log;
	uint32_t rank = 0;

	for (size_t i = 0; i < g->processes.n; i++) {
		struct gpu_process *p = &g->processes.v[i];
		int said = rank_said(m, p->tgid);

		p->server = server_of(m, p->tgid);
		p->device = p->spans.n ? p->spans.v[0].device : 0;
		p->rank = said >= 0 ? said : UINT16_MAX;
	}
	qsort(g->processes.v, g->processes.n, sizeof(*g->processes.v), by_rank);
	for (size_t i = 0; i < g->processes.n; i++) {
		struct gpu_process *p = &g->processes.v[i];

		rank = i && p[-1].server == p->server ? rank + 1 : 0;
		p->rank = p->rank == UINT16_MAX ? rank : p->rank;
	}
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

/* The engine of a server whose wire tells of steps; else the one that reads its requests. UINT32_MAX: none. */
static uint32_t engine_of(const struct model *m, const struct step_index *ix, uint32_t server,
			  bool *ret_has_steps)
{
	uint32_t front = UINT32_MAX, first = UINT32_MAX;

	*ret_has_steps = false;
	for (uint32_t i = 0; i < m->v.n_engines; i++) {
		const struct tl_engine *e = &m->engines[i].e;

		if ((e->server ? e->server : e->hdr.tgid) != server)
			continue;
		if (ix->first[i] < ix->first[i + 1]) {
			*ret_has_steps = true;
			return i;
		}
		first = first == UINT32_MAX ? i : first;
	}
	for (size_t i = 0; i < m->v.n_requests && front == UINT32_MAX; i++) {
		const struct tl_engine *e = &m->engines[m->requests[i].engine].e;

		if ((e->server ? e->server : e->hdr.tgid) == server)
			front = m->requests[i].engine;
	}
	return front != UINT32_MAX ? front : first;
}

/* The ranks of one server: n processes from p on. */
static int match_server(struct model *m, const struct step_index *ix, struct gpu_process *p, size_t n)
{
	struct refs wire = { 0 }, exact = { 0 };
	bool has_steps;
	uint32_t engine = engine_of(m, ix, p->server, &has_steps);
	int err = 0;

	if (engine == UINT32_MAX)
		return 0;
	if (has_steps) {
		err = refs_of_wire(m, ix, engine, &wire);
		if (!err)
			err = gpu_align(p, wire.l.v, wire.l.n);
	} else {
		err = gpu_infer(m, p, engine);
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
	struct step_index ix;
	struct model_view v;
	int err;

	model__view(m, &v);
	err = step_index__init(&ix, &v);
	if (err)
		return err;
	for (size_t i = 0, n; i < g->processes.n && !err; i += n) {
		for (n = 1; i + n < g->processes.n && g->processes.v[i + n].server == g->processes.v[i].server;)
			n++;
		err = match_server(m, &ix, &g->processes.v[i], n);
	}
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

static int join_all(struct model *m)
{
	struct gpu_log *g = &m->gpu_log;
	struct model_view v;
	int err = 0;

	model__view(m, &v);
	for (size_t i = 0; i < g->processes.n && !err; i++) {
		err = gpu_join(&g->processes.v[i], &m->gpu.counts);
		if (!err)
			err = gpu_cut(&g->processes.v[i], &v);
	}
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
			find_ranks(m);
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
