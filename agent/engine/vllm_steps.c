/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's steps: one output message per step and API server, put together and said. */
#include "engine/vllm_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void vengine_free(struct vengine *g)
{
	vsched__free(&g->sched);
	free(g->rows);
	free(g->step);
}

/* When the step that ended at end_ns began: when the one before it ended, or when work arrived at an engine
 * that was idle. The one-byte messages that wake the workers would tell more closely, but under load most
 * are dropped on the way (queues of one): on 0.32 they came up to 30 ms late. With asynchronous scheduling a
 * step is handed over before the one before it has ended: it is counted from that end. */
static uint64_t begin_of_step(const struct vengine *g, uint64_t end_ns)
{
	return g->last_ns && g->last_ns < end_ns ? g->last_ns : end_ns;
}

/* ---- rows ---- */

static void say_point(struct vllm *v, const struct vengine *g, uint32_t slot, uint32_t point, uint64_t ns)
{
	struct tl_seq_point ev = { .hdr = { sizeof(ev), TL_SEQ_POINT, 0, g->tgid, 0, ns },
				   .slot = slot, .point = point };

	vllm_emit(v, &ev.hdr);
}

/* The engine's own account of a sequence: queued, scheduled, preempted, scheduled again. */
static void on_events(struct vllm *v, const struct vengine *g, struct vseq *q, struct vllm_events *events)
{
	struct tl_seq_preempt pre = { .hdr = { sizeof(pre), TL_SEQ_PREEMPT, 0, g->tgid, 0, 0 }, .slot = q->slot };
	struct vllm_event e;

	while (vllm_msg_next_event(events, &e)) {
		switch (e.type) {
		case VLLM_QUEUED:
			say_point(v, g, q->slot, TL_POINT_QUEUED, e.ts_ns);
			break;
		case VLLM_SCHEDULED:
			if (!pre.hdr.ts_ns) {
				say_point(v, g, q->slot, TL_POINT_SCHEDULED, e.ts_ns);
				break;
			}
			pre.resumed_ns = e.ts_ns;
			vllm_emit(v, &pre.hdr);
			pre.hdr.ts_ns = 0;
			break;
		case VLLM_PREEMPTED:
			if (pre.hdr.ts_ns)
				vllm_emit(v, &pre.hdr);
			pre.hdr.ts_ns = e.ts_ns;
			pre.lost_tokens = (q->prompt > 0 ? q->prompt : 0) + q->n_out;
			break;
		}
	}
	if (pre.hdr.ts_ns)
		vllm_emit(v, &pre.hdr);
}

/* A sequence whose ADD was not seen: it was there before the capture. */
static struct vseq *join_late(struct vllm *v, struct vengine *g, const struct vllm_row *r)
{
	struct vseq *q = vllm_seq_new(v, r->id, g - v->engines);
	const struct vhttp *h;

	if (!q || vsched__arrive(&g->sched, q->slot)) {
		v->err = -ENOMEM;
		return NULL;
	}
	v->counts.unknown_rows++;
	q->guess = true;
	if (r->has_prefill) {
		q->prompt = r->prefill.prompt;
		q->cached = r->n_cached;
	} else {
		q->state = VSEQ_DECODE;
		vsched__leave(&g->sched, q->slot);
		if (vsched__run(&g->sched, q->slot))
			v->err = -ENOMEM;
	}
	h = map__get(v->by_http, q->http_hash);
	if (h && h->req)
		vllm_link(v, q, h->req);
	return q;
}

static void add_row(struct vllm *v, struct vengine *g, struct vllm_row *r)
{
	struct vseq *q = vllm_seq_find(v, r->id);
	struct vsched_row *row;

	if (!q && r->id.len)
		q = join_late(v, g, r);
	if (!q || q->state == VSEQ_DONE)
		return;		/* an output that came after its abort */
	on_events(v, g, q, &r->events);
	if (g->n_rows == g->cap_rows) {
		row = g->n_rows < MAX_ROWS ?
		      vec_grow_(g->rows, &g->cap_rows, g->n_rows + 1, sizeof(*row), MAX_ROWS) : NULL;
		if (!row) {
			v->err = -ENOMEM;
			return;
		}
		g->rows = row;
	}
	g->rows[g->n_rows++] = (struct vsched_row){
		.slot = q->slot, .n_tokens = r->n_tokens, .first = r->has_prefill, .cached = r->n_cached,
		.finished = r->finish != VLLM_NOT_FINISHED,
	};
}

/* ---- steps ---- */

static void say_stats(struct vllm *v, const struct vengine *g, uint64_t ns, size_t n_preempted)
{
	const struct vllm_stats *s = &g->stats;
	struct tl_step_stats ev = {
		.hdr = { sizeof(ev), TL_STEP_STATS, 0, g->tgid, 0, ns },
		.running = s->running, .waiting = s->waiting + s->skipped, .kv_ppm = s->kv_usage * 1e6 + 0.5,
		.preempted = n_preempted, .prefix_queries = s->prefix.queries, .prefix_hits = s->prefix.hits,
		.drafted = s->spec.draft_tokens, .accepted = s->spec.accepted_tokens,
	};

	if (!g->has_stats)
		return;
	if ((s->known & (VLLM_STAT_RUNNING | VLLM_STAT_WAITING)) == (VLLM_STAT_RUNNING | VLLM_STAT_WAITING))
		ev.hdr.flags |= TL_STATS_QUEUES;
	ev.hdr.flags |= s->known & VLLM_STAT_KV ? TL_STATS_KV : 0;
	ev.hdr.flags |= s->known & VLLM_STAT_PREFIX ? TL_STATS_PREFIX : 0;
	ev.hdr.flags |= s->known & VLLM_STAT_SPEC ? TL_STATS_SPEC : 0;
	vllm_emit(v, &ev.hdr);
}

static void say_step(struct vllm *v, struct vengine *g)
{
	struct vsched_step in = {
		.rows = g->rows, .n_rows = g->n_rows,
		.has_prefix = g->has_stats && g->stats.known & VLLM_STAT_PREFIX,
		.new_requests = g->stats.prefix.requests, .new_queries = g->stats.prefix.queries,
		.new_hits = g->stats.prefix.hits, .again_requests = g->stats.prefix.preempted_requests,
		.again_queries = g->stats.prefix.preempted_queries, .again_hits = g->stats.prefix.preempted_hits,
		.begin_ns = begin_of_step(g, g->held_ns),
	};
	struct tl_step *st = g->step;
	uint32_t preempted[64];
	size_t n_preempted = 0;
	bool guess;
	int n;

	if (!in.has_prefix)
		in.new_requests = in.again_requests = 0;
	n = vsched__step(&g->sched, v->seqs, &in, st->members, MAX_ROWS, preempted, &n_preempted, &guess);
	if (n < 0) {
		v->err = n;
		return;
	}
	*st = (struct tl_step){
		.hdr = { 0, TL_STEP, 0, g->tgid, 0, in.begin_ns },
		.end_ns = g->held_ns, .n_members = n,
	};
	for (int i = 0; i < n; i++)
		st->n_tokens += st->members[i].n_tokens;
	st->hdr.size = sizeof(*st) + n * sizeof(st->members[0]);
	v->counts.steps++;
	v->counts.inferred_steps += guess;
	vllm_emit(v, &st->hdr);
	say_stats(v, g, g->held_ns, n_preempted);
}

/* A message of counters alone follows the last output before the engine falls asleep: no step. */
static bool is_step(const struct vengine *g)
{
	if (g->n_rows)
		return true;
	if (g->has_stats && g->stats.known & VLLM_STAT_RUNNING)
		return g->stats.running > 0;
	return false;
}

void vengine_end_aborted(struct vllm *v, struct vengine *g)
{
	for (unsigned i = 0; i < g->n_aborting; i++) {
		struct vseq *q = &v->seqs[g->aborting[i]];

		if (q->used && q->state != VSEQ_DONE)
			vllm_seq_end(v, g, q, q->abort_ns);
	}
	g->n_aborting = 0;
}

void vengine_flush(struct vllm *v, struct vengine *g)
{
	if (!g->held)
		return;
	g->held = false;
	if (is_step(g))
		say_step(v, g);
	for (size_t i = 0; i < g->n_rows; i++) {
		struct vseq *q = &v->seqs[g->rows[i].slot];

		if (g->rows[i].finished && q->used && q->state != VSEQ_DONE)
			vllm_seq_end(v, g, q, g->held_ns);
	}
	vengine_end_aborted(v, g);
	g->n_rows = 0;
	g->has_stats = false;
	g->last_ns = g->held_ns;
	g->busy = g->sched.n_running + g->sched.n_waiting > 0;
}

void vllm_outputs(struct vllm *v, struct vengine *g, const struct zmtp_frame *body)
{
	struct vllm_outputs o;
	struct vllm_row row;

	if (vllm_msg_outputs(body->data, body->len, &o)) {
		v->counts.bad_messages++;
		return;
	}
	if (o.utility)
		return;
	if (!g->step) {
		g->step = malloc(sizeof(*g->step) + MAX_ROWS * sizeof(g->step->members[0]));
		if (!g->step) {
			v->err = -ENOMEM;
			return;
		}
	}
	if (!o.timestamp_ns)
		o.timestamp_ns = v->now_ns;
	/* Another message of the same step bears the same time stamp. */
	if (g->held && o.timestamp_ns - g->held_ns > 1000)
		vengine_flush(v, g);
	g->held = true;
	g->held_ns = o.timestamp_ns;
	while (vllm_msg_next_row(&o, &row))
		add_row(v, g, &row);
	if (o.has_stats) {
		g->stats = o.stats;
		g->has_stats = true;
	}
	if (!g->several)
		vengine_flush(v, g);
}
