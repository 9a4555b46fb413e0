/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's steps: one output message per step and API server, put together and said. */
#include "engine/vllm_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* When the step can have begun at the earliest: when the one before it ended, or when work arrived
 * at an engine that was idle. */
static uint64_t begin_of_step(struct vllm *v, struct vengine *g, const struct vheld *h)
{
	uint64_t begin_ns = g->last_ns, first_ns;

	if (vsched__was_idle(&g->sched, v->seqs, g->last_ns, &first_ns)) {
		g->woke = true;
		begin_ns = first_ns;
	}
	return begin_ns && begin_ns < h->ts_ns ? begin_ns : h->ts_ns;
}

/* When it began: of one that took a request on, the engine says when. The one-byte messages that
 * wake the workers would tell of all, but under load most are dropped on the way (queues of one):
 * on 0.32 they came up to 30 ms late. With asynchronous scheduling a step is handed over before the
 * one before it has ended: it is counted from that end. */
static uint64_t start_of_step(const struct vheld *h, uint64_t begin_ns)
{
	return h->scheduled_ns > begin_ns && h->scheduled_ns < h->ts_ns ? h->scheduled_ns : begin_ns;
}

/* ---- rows ---- */

static void say_point(struct vllm *v, const struct vengine *g, uint32_t slot, uint32_t point,
		      uint64_t ns)
{
	struct tl_seq_point ev = { .hdr = { sizeof(ev), TL_SEQ_POINT, 0, g->tgid, 0, ns },
				   .slot = slot, .point = point };

	vllm_emit(v, &ev.hdr);
}

/* The engine's own account of a sequence: queued, scheduled, preempted, scheduled again. Returns
 * when it was scheduled first, 0: not said. */
static uint64_t on_events(struct vllm *v, const struct vengine *g, struct vheld *h,
			  const struct vseq *q, struct vllm_events *events)
{
	struct vpreemption *last = NULL;
	uint64_t scheduled_ns = 0;
	struct vllm_event e;

	while (vllm_msg_next_event(events, &e)) {
		switch (e.type) {
		case VLLM_QUEUED:
			say_point(v, g, q->slot, TL_POINT_QUEUED, e.ts_ns);
			break;
		case VLLM_SCHEDULED:
			if (last) {
				last->resumed_ns = e.ts_ns;
			} else {
				say_point(v, g, q->slot, TL_POINT_SCHEDULED, e.ts_ns);
				scheduled_ns = e.ts_ns;
			}
			if (e.ts_ns > h->scheduled_ns)
				h->scheduled_ns = e.ts_ns;
			last = NULL;
			break;
		case VLLM_PREEMPTED:
			last = vec_push(&h->preemptions, MAX_ROWS);
			if (!last) {
				v->err = -ENOMEM;
				return 0;
			}
			last->slot = q->slot;
			last->at_ns = e.ts_ns;
			break;
		}
	}
	return scheduled_ns;
}

static void say_preemption(struct vllm *v, const struct vengine *g, struct vseq *q,
			   const struct vpreemption *p, bool last, uint32_t flags)
{
	uint64_t lost = q->lost_before + (last ? q->lost : 0);
	struct tl_seq_preempt ev = {
		.hdr = { sizeof(ev), TL_SEQ_PREEMPT, flags, g->tgid, 0, p->at_ns },
		.slot = q->slot, .lost_tokens = lost < UINT32_MAX ? lost : UINT32_MAX,
		.resumed_ns = p->resumed_ns,
	};

	q->lost_before = 0;
	if (last)
		q->lost = 0;
	vllm_emit(v, &ev.hdr);
}

/* Once the step is settled, what was lost is known. */
static void say_preemptions(struct vllm *v, const struct vengine *g, const struct vheld *h)
{
	for (size_t i = 0; i < h->preemptions.n; i++) {
		const struct vpreemption *p = &h->preemptions.v[i];
		bool last = i + 1 == h->preemptions.n || p[1].slot != p->slot;

		say_preemption(v, g, &v->seqs[p->slot], p, last, 0);
	}
}

static void say_joined(struct vllm *v, const struct vengine *g, const struct vseq *q)
{
	struct tl_seq_begin ev = {
		.hdr = { sizeof(ev), TL_SEQ_BEGIN, TL_F_JOINED, g->tgid, 0, v->now_ns }, .kept = -1,
		.slot = q->slot,
	};

	vllm_emit(v, &ev.hdr);
}

/* The one that ran unseen shows: it came first, so it is the first that does. */
static struct vseq *shows(struct vllm *v, struct vengine *g, const struct vllm_row *r)
{
	struct vseq *q = &v->seqs[g->sched.unseen.runs - 1];

	vllm_seq_name(v, q, r->id);
	v->counts.unknown_rows++;
	g->sched.unseen.runs = 0;
	q->unseen = false;
	q->prompt = r->has_prefill ? r->prefill.prompt : -1;
	vllm_ids_link(v, q, 0);
	return q;
}

/* A sequence whose ADD was not seen: it was there before the capture. */
static struct vseq *join_late(struct vllm *v, struct vengine *g, const struct vllm_row *r)
{
	struct vseq *q;
	int err;

	if (g->sched.unseen.runs)
		return shows(v, g, r);
	q = vllm_seq_new(v, r->id, g - v->engines);
	if (!q)
		return NULL;
	say_joined(v, g, q);
	v->counts.unknown_rows++;
	q->guess = true;
	if (r->has_prefill) {
		q->prompt = r->prefill.prompt;
		q->cached = r->n_cached;
		err = vsched__arrive(&g->sched, q->slot);
	} else {
		q->state = VSEQ_DECODE;
		err = vsched__run(&g->sched, q->slot);
	}
	if (err)
		v->err = err;
	vllm_ids_link(v, q, 0);
	return q;
}

void vengine_row(struct vllm *v, struct vengine *g, struct vheld *h, struct vllm_row *r)
{
	struct vseq *q = vllm_seq_find(v, r->id, g - v->engines);
	struct vsched_row *row;
	uint64_t scheduled_ns;

	if (q && q->state == VSEQ_DONE && q->given_up) {
		vllm_seq_forget(v, q);	/* it lives */
		q = NULL;
	}
	if (!q && r->id.len)
		q = join_late(v, g, r);
	if (!q || q->state == VSEQ_DONE)
		return;		/* an output that came after its abort */
	scheduled_ns = on_events(v, g, h, q, &r->events);
	row = vec_push(&h->rows, MAX_ROWS);
	if (!row) {
		v->err = -ENOMEM;
		return;
	}
	*row = (struct vsched_row){
		.slot = q->slot, .n_tokens = r->n_tokens, .cached = r->n_cached,
		.scheduled_ns = scheduled_ns, .finished = r->finish != VLLM_NOT_FINISHED,
		.by_length = r->finish == VLLM_FINISH_LENGTH,
		.failed = r->finish == VLLM_FINISH_ABORT || r->finish == VLLM_FINISH_ERROR,
	};
	h->cut |= r->flags & VLLM_CUT;
}

/* ---- steps ---- */

static void say_stats(struct vllm *v, struct vengine *g, const struct vheld *h, size_t n_preempted)
{
	const struct vllm_stats *s = &h->stats;
	struct tl_step_stats ev = {
		.hdr = { sizeof(ev), TL_STEP_STATS, 0, g->tgid, 0, h->ts_ns },
		.running = s->running, .waiting = s->waiting + s->skipped,
		.kv_ppm = s->kv_usage * 1e6 + 0.5, .preempted = n_preempted,
		.prefix_queries = s->prefix.queries + g->carried_queries,
		.prefix_hits = s->prefix.hits + g->carried_hits, .drafted = s->spec.draft_tokens,
		.accepted = s->spec.accepted_tokens,
	};

	if (!h->has_stats)
		return;
	if ((s->known & (VLLM_STAT_RUNNING | VLLM_STAT_WAITING)) ==
	    (VLLM_STAT_RUNNING | VLLM_STAT_WAITING))
		ev.hdr.flags |= TL_STATS_QUEUES;
	ev.hdr.flags |= s->known & VLLM_STAT_KV ? TL_STATS_KV : 0;
	ev.hdr.flags |= s->known & VLLM_STAT_PREFIX ? TL_STATS_PREFIX : 0;
	ev.hdr.flags |= s->known & VLLM_STAT_SPEC ? TL_STATS_SPEC : 0;
	g->carried_queries = g->carried_hits = 0;
	vllm_emit(v, &ev.hdr);
}

static void say_step(struct vllm *v, struct vengine *g, const struct vheld *h,
		     const struct vsched_in *in, const struct vsched_out *out)
{
	struct tl_step *st = g->step;

	*st = (struct tl_step){
		.hdr = { 0, TL_STEP, out->open ? TL_F_GUESS : 0, g->tgid, 0,
			 start_of_step(h, in->begin_ns) },
		.end_ns = in->end_ns, .n_members = out->n,
	};
	for (size_t i = 0; i < out->n; i++)
		st->n_tokens += st->members[i].n_tokens;
	st->hdr.size = sizeof(*st) + out->n * sizeof(st->members[0]);
	v->counts.steps++;
	v->counts.inferred_steps += out->guess || out->open;
	vllm_emit(v, &st->hdr);
	say_stats(v, g, h, out->n_preempted);
}

static void end_sequences(struct vllm *v, struct vengine *g, const struct vsched_out *out,
			  uint64_t ns)
{
	for (size_t i = 0; i < out->n_over; i++) {
		struct vseq *q = &v->seqs[out->over[i]];
		struct vpreemption p = { .slot = q->slot, .at_ns = q->preempted_ns };

		if (q->state == VSEQ_PREEMPTED)	/* the engine has no more output to say it with */
			say_preemption(v, g, q, &p, true, TL_F_GUESS);
		vllm_seq_end(v, g, q, q->abort_ns ? q->abort_ns : ns);
	}
}

static struct vsched_in input_of(struct vllm *v, struct vengine *g, const struct vheld *h)
{
	const struct vllm_stats *s = &h->stats;
	const uint32_t queues = VLLM_STAT_RUNNING | VLLM_STAT_WAITING;
	struct vsched_in in = { .rows = h->rows.v, .n_rows = h->rows.n, .cut = h->cut,
				.begin_ns = begin_of_step(v, g, h), .end_ns = h->ts_ns,
				.scheduled_ns = h->scheduled_ns, .woke = g->woke };

	if (!h->has_stats)
		return in;
	if ((s->known & queues) == queues) {
		in.has_queues = true;
		in.running = s->running;
		in.waiting = s->waiting + s->skipped;
	}
	if (s->known & VLLM_STAT_PREFIX) {
		in.has_prefix = true;
		in.new_requests = s->prefix.requests;
		in.new_hits = s->prefix.hits;
		in.new_prompts = s->prefix.queries;
		in.again_requests = s->prefix.preempted_requests;
		in.again_hits = s->prefix.preempted_hits;
	}
	in.draft_tokens = s->spec.draft_tokens;
	return in;
}

static bool is_over(const struct vllm *v, uint32_t slot)
{
	return !v->seqs[slot].used || v->seqs[slot].state == VSEQ_DONE;
}

/* While it was held, the steps before it ended some that it names. */
static void forget_ended(const struct vllm *v, struct vheld *h)
{
	size_t n_rows = 0, n_preemptions = 0;

	for (size_t i = 0; i < h->rows.n; i++)
		if (!is_over(v, h->rows.v[i].slot))
			h->rows.v[n_rows++] = h->rows.v[i];
	for (size_t i = 0; i < h->preemptions.n; i++)
		if (!is_over(v, h->preemptions.v[i].slot))
			h->preemptions.v[n_preemptions++] = h->preemptions.v[i];
	h->rows.n = n_rows;
	h->preemptions.n = n_preemptions;
}

/* Takes the step, with a sequence at hand for one that runs unseen. With several API servers, which
 * of them shows first is not told by their order: there it stays unseen. */
static int step_with_spare(struct vllm *v, struct vengine *g, const struct vsched_in *in,
			   struct vsched_out *out)
{
	struct vunseen *u = &g->sched.unseen;
	struct vseq *spare = NULL;
	int err;

	if (!g->several && vsched__wants_spare(&g->sched, v->seqs, in))
		spare = vllm_seq_unseen(v, g - v->engines);
	u->spare = spare ? spare->slot + 1 : 0;
	err = vsched__step(&g->sched, v->seqs, in, out);
	u->spare = 0;
	if (spare && out->began)
		say_joined(v, g, spare);
	else if (spare)
		vllm_seq_forget(v, spare);
	return err;
}

void vengine_step(struct vllm *v, struct vengine *g, struct vheld *h)
{
	struct vsched_out out = { .max = TL_MAX_MEMBERS };
	struct vsched_in in;
	int err;

	forget_ended(v, h);
	in = input_of(v, g, h);

	if (!g->step)
		g->step = malloc(sizeof(*g->step) + TL_MAX_MEMBERS * sizeof(g->step->members[0]));
	if (!g->step) {
		v->err = -ENOMEM;
		return;
	}
	out.members = g->step->members;
	err = step_with_spare(v, g, &in, &out);
	if (err) {
		v->err = err;
	} else if (out.is_step) {
		say_step(v, g, h, &in, &out);
	} else if (h->has_stats) {
		/* Planning ahead, it may take a request on in a round that computes nothing. */
		g->carried_queries += h->stats.prefix.queries;
		g->carried_hits += h->stats.prefix.hits;
	}
	say_preemptions(v, g, h);
	end_sequences(v, g, &out, h->ts_ns);
	g->last_ns = h->ts_ns;
	g->woke &= !out.is_step;
}
