/* SPDX-License-Identifier: Apache-2.0 */
/* The model's life cycle and its event dispatch. */
#include "base/vec.h"
#include "model/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const point_names[N_POINTS] = {
	"conn_open", "req_first_byte", "req_last_byte", "submit", "queued", "scheduled",
	"prefill_start", "first_token_engine", "headers", "first_chunk", "first_token_wire",
	"last_token_engine", "last_token_wire", "done", "close",
};
const struct rec_step_stats no_stats;
const char *const provenance_names[] = { "unknown", "observed", "reported", "inferred" };
const char *const req_state_names[] = { "open", "complete", "aborted", "error", "truncated" };
const char *const join_method_names[] = { "none", "task", "slot", "counts", "order", "id" };

int model_grow(void *p, size_t *cap, size_t n, size_t size)
{
	void **arr = p;
	void *q;

	if (n < *cap)
		return 0;
	q = vec_grow_(*arr, cap, n + 1, size, SIZE_MAX);
	if (!q)
		return -ENOMEM;
	*arr = q;
	return 0;
}

void model_trim(void *p, size_t *cap, size_t n, size_t size)
{
	void **arr = p;
	void *q = n && n < *cap ? realloc(*arr, n * size) : NULL;

	if (!q)
		return;
	*arr = q;
	*cap = n;
}

struct model *model__new(const struct model_opts *opts)
{
	struct model *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	if (opts)
		m->opts = *opts;
	if (!m->opts.max_requests)
		m->opts.max_requests = 1000000;
	if (!m->opts.max_steps)
		m->opts.max_steps = 20000000;
	m->engine_of = map__new(sizeof(uint32_t), MAX_REC_ENGINES);
	if (!m->engine_of) {
		free(m);
		return NULL;
	}
	return m;
}

void model__free(struct model *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->v.n_requests; i++) {
		free(m->requests[i].chunks);
		free(m->requests[i].seqs);
	}
	for (size_t i = 0; i < m->v.n_seqs; i++) {
		free(m->seqs[i].visits);
		free(m->seqs[i].preemptions);
	}
	for (size_t i = 0; i < m->v.n_engines; i++)
		free(m->engine_states[i].slots);
	free(m->requests);
	free(m->seqs);
	free(m->steps);
	free(m->stats);
	free(m->members);
	free(m->engines);
	free(m->engine_states);
	map__free(m->engine_of);
	free(m->lost);
	free(m->by_number);
	free(m->last_of_conn);
	free(m->peers);
	free(m->others);
	free(m->embryos);
	evidence_free(&m->evidence);
	gpu_log_free(&m->gpu_log);
	gpu_facts_free(&m->gpu);
	free(m);
}

struct rec_engine *model_engine(struct model *m, uint32_t tgid, uint32_t *ret_index)
{
	uint32_t *at = map__get(m->engine_of, tgid);
	struct rec_engine *e;

	if (at) {
		*ret_index = *at;
		return &m->engines[*at];
	}
	if (m->v.n_engines == MAX_REC_ENGINES ||
	    GROW(m->engines, m->cap_engines, m->v.n_engines) ||
	    GROW(m->engine_states, m->cap_engine_states, m->v.n_engines))
		return NULL;
	at = map__put(m->engine_of, tgid, NULL);
	if (!at)
		return NULL;
	*at = m->v.n_engines;
	e = &m->engines[m->v.n_engines];
	memset(e, 0, sizeof(*e));
	memset(&m->engine_states[m->v.n_engines], 0, sizeof(m->engine_states[0]));
	e->e.hdr.tgid = tgid;
	*ret_index = m->v.n_engines++;
	return e;
}

static int on_engine(struct model *m, const struct tl_engine *ev)
{
	uint32_t index;
	struct rec_engine *e = model_engine(m, ev->hdr.tgid, &index);

	if (!e)
		return -ENOMEM;
	if (e->e.start_ns && e->e.start_ns != ev->start_ns) {
		/* The pid was used again: keep the old process apart. */
		e->e.hdr.tgid = 0;
		map__del(m->engine_of, ev->hdr.tgid);
		e = model_engine(m, ev->hdr.tgid, &index);
		if (!e)
			return -ENOMEM;
	}
	e->e = *ev;
	return 0;
}

static int on_proc(struct model *m, const struct tl_proc *ev)
{
	const uint32_t *at = map__get(m->engine_of, ev->hdr.tgid);

	if (at && ev->what == TL_PROC_EXIT) {
		m->engines[*at].exit_ns = ev->hdr.ts_ns;
		m->engines[*at].exit_code = ev->exit_code;
	} else if (at && ev->what == TL_PROC_IO_URING) {
		m->engines[*at].io_uring = true;
	}
	if (ev->what == TL_PROC_FORK)
		return gpu_log_fork(&m->gpu_log, ev->hdr.tgid, ev->parent);
	return 0;
}

static int on_lost(struct model *m, const struct tl_lost *ev)
{
	m->v.n_lost_events += ev->n;
	if (m->v.n_lost >= 10000)	/* the spans shown; the sum stays exact */
		return 0;
	if (GROW(m->lost, m->cap_lost, m->v.n_lost))
		return -ENOMEM;
	m->lost[m->v.n_lost++] = (struct rec_lost){ ev->since_ns, ev->hdr.ts_ns, ev->n, ev->where,
						    ev->what };
	return 0;
}

static int on_link(struct model *m, const struct tl_seq_link *ev)
{
	if (m->opts.no_task_join && ev->method == TL_LINK_TASK)
		return 0;
	if (ev->req && ev->slot < 0)
		request_on_submit(m, ev);
	if (ev->slot < 0)
		return 0;
	return ev->method == TL_LINK_ID ? step_on_id(m, ev) : step_on_launch(m, ev);
}

/* Costs are running totals, but memory is given back before the last one: the most counts. */
static void on_self(struct model *m, const struct tl_self *e)
{
	uint64_t rss = m->self.rss_bytes;

	m->self = *e;
	if (rss > m->self.rss_bytes)
		m->self.rss_bytes = rss;
	m->has_self = true;
}

static int dispatch(struct model *m, const struct tl_hdr *ev)
{
	int err;

	switch (ev->kind) {
	case TL_LOST:
		return on_lost(m, (const void *)ev);
	case TL_HOST:
		m->host = *(const struct tl_host *)ev;
		m->has_host = true;
		return 0;
	case TL_ENGINE:
		return on_engine(m, (const void *)ev);
	case TL_PROC:
		return on_proc(m, (const void *)ev);
	case TL_GPU_LAUNCH:
	case TL_GPU_SPAN:
	case TL_GPU_NAME:
		return gpu_log_on(&m->gpu_log, ev);
	case TL_CONN:
		return request_on_conn(m, (const void *)ev);
	case TL_REQ_BEGIN:
		return request_on_begin(m, (const void *)ev);
	case TL_REQ_FACTS:
		return request_on_facts(m, (const void *)ev);
	case TL_RESP_BEGIN:
		return request_on_resp(m, (const void *)ev);
	case TL_CHUNK:
		return request_on_chunk(m, (const void *)ev);
	case TL_USAGE:
		return request_on_usage(m, (const void *)ev);
	case TL_REQ_END:
		return request_on_end(m, (const void *)ev);
	case TL_STEP:
		return step_on_step(m, (const void *)ev);
	case TL_SEQ_BEGIN:
		return step_on_seq_begin(m, (const void *)ev);
	case TL_SEQ_END:
		return step_on_seq_end(m, (const void *)ev);
	case TL_SEQ_LINK:
		return on_link(m, (const void *)ev);
	case TL_SEQ_POINT:
		return step_on_point(m, (const void *)ev);
	case TL_SEQ_PREEMPT:
		return step_on_preempt(m, (const void *)ev);
	case TL_STEP_STATS:
		return step_on_stats(m, (const void *)ev);
	case TL_SELF:
		on_self(m, (const void *)ev);
		return 0;
	case TL_CAPTURE_END:
		m->v.stop = ((const struct tl_capture_end *)ev)->why;
		return 0;
	default:
		err = evidence_on(&m->evidence, ev);
		m->v.n_unknown += err == -ENOENT;
		return err == -ENOENT ? 0 : err;
	}
}

/* Chunks are told as they are written: of all servers in order, but for a poll. */
static void check_time(struct model *m, uint64_t ts_ns)
{
	enum { FAR_BACK_S = 10 };

	if (m->last_chunk_ns > ts_ns + FAR_BACK_S * 1000000000ull) {
		m->v.n_times_back++;
		if (m->last_chunk_ns - ts_ns > m->v.most_back_ns)
			m->v.most_back_ns = m->last_chunk_ns - ts_ns;
	}
	m->last_chunk_ns = ts_ns;
}

int model__feed(struct model *m, const struct tl_hdr *ev)
{
	int err;

	m->v.n_events++;
	/* The observer's own bookkeeping is no part of what was observed. */
	if (ev->kind != TL_SELF) {
		if (!m->v.t0_ns)
			m->v.t0_ns = ev->ts_ns;
		if (ev->ts_ns > m->v.t1_ns)
			m->v.t1_ns = ev->ts_ns;
	}
	if (ev->kind == TL_CHUNK)
		check_time(m, ev->ts_ns);
	err = dispatch(m, ev);
	if (err)
		m->v.n_lost_events++;
	return err;
}

int model__finish(struct model *m)
{
	int err;

	if (m->finished)
		return 0;
	request_finish_all(m);
	err = split_at_losses(m);
	infer_again(m);		/* before joins: they compare counts of prompts */
	if (!err)
		err = join_rest(m);
	if (!err)
		err = step_infer_preemptions(m);
	if (!err)
		err = infer_parked(m);
	if (err)
		return err;
	join_points(m);
	err = gpu_finish(m);
	if (err)
		return err;
	evidence_finish(&m->evidence);
	m->finished = true;
	return 0;
}

void model__view(const struct model *m, struct model_view *ret)
{
	*ret = m->v;
	ret->host = m->has_host ? &m->host : NULL;
	ret->self = m->has_self ? &m->self : NULL;
	ret->requests = m->requests;
	ret->seqs = m->seqs;
	ret->steps = m->steps;
	ret->stats = m->stats;
	ret->members = m->members;
	ret->engines = m->engines;
	ret->lost = m->lost;
	ret->others = m->others;
	ret->evidence = &m->evidence;
	ret->gpu = m->finished ? &m->gpu : NULL;
}
