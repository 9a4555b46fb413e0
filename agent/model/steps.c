/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and sequences: what the engine computed, slot by slot. */
#include "model/state.h"

#include <errno.h>
#include <string.h>

/* Slot numbers are small or numbers of the adapter's own; others come from damaged events. */
static bool odd_slot(struct model *m, uint32_t slot)
{
	if (slot < MAX_SLOT)
		return false;
	m->v.n_unknown++;
	return true;
}

static struct slot_state *slot_of(struct model *m, uint32_t engine, uint32_t slot)
{
	struct engine_state *es = &m->engine_states[engine];

	while (es->n_slots <= slot) {
		if (GROW(es->slots, es->cap_slots, es->n_slots))
			return NULL;
		es->slots[es->n_slots++].seq = 0;
	}
	if (m->engines[engine].e.engine == TL_ENGINE_LLAMA)
		m->engines[engine].n_slots = (uint32_t)es->n_slots;
	return &es->slots[slot];
}

static struct rec_sequence *current(struct model *m, const struct slot_state *s)
{
	return s->seq ? &m->seqs[s->seq - 1] : NULL;
}

static void end_sequence(struct rec_sequence *q)
{
	q->ended = true;
	TRIM(q->visits, q->cap_visits, q->n_visits);
}

/* Puts a new sequence on the slot; the one before it is over. NULL: out of memory. */
static struct rec_sequence *sequence_new(struct model *m, uint32_t engine, uint32_t slot,
					 struct slot_state *s, uint64_t ns)
{
	struct rec_sequence *q = current(m, s);

	if (q)
		end_sequence(q);
	if (GROW(m->seqs, m->cap_seqs, m->v.n_seqs))
		return NULL;
	q = &m->seqs[m->v.n_seqs++];
	*q = (struct rec_sequence){ .id = m->v.n_seqs, .engine = engine, .slot = slot,
				    .begin_ns = ns, .kept = -1, .task = -1 };
	s->seq = m->v.n_seqs;
	return q;
}

int step_on_launch(struct model *m, const struct tl_seq_link *e)
{
	uint32_t engine;
	struct rec_sequence *q;
	struct rec_request *r;
	struct slot_state *s;

	if (odd_slot(m, e->slot))
		return 0;
	if (!model_engine(m, e->hdr.tgid, &engine))
		return -ENOMEM;
	s = slot_of(m, engine, e->slot);
	if (!s)
		return -ENOMEM;
	q = sequence_new(m, engine, e->slot, s, e->hdr.ts_ns);
	if (!q)
		return -ENOMEM;
	q->task = e->task;
	r = request_find(m, e->req);
	if (!r)
		return 0;
	if (!r->at_ns[P_SCHEDULED]) {
		r->at_ns[P_SCHEDULED] = e->hdr.ts_ns;
		r->prov[P_SCHEDULED] = PROV_OBSERVED;
	}
	return join_request(m, r - m->requests, s->seq - 1,
			    e->method == TL_LINK_SLOT ? JOIN_SLOT : JOIN_TASK, 100, 0);
}

/* The sequence that is, or was last, on this slot. NULL: none; *ret_err: out of memory. */
static struct rec_sequence *sequence_at(struct model *m, uint32_t tgid, uint32_t slot, int *ret_err)
{
	struct slot_state *s;
	uint32_t engine;

	*ret_err = 0;
	if (odd_slot(m, slot))
		return NULL;
	s = model_engine(m, tgid, &engine) ? slot_of(m, engine, slot) : NULL;
	if (!s)
		*ret_err = -ENOMEM;
	return s ? current(m, s) : NULL;
}

/* The response's id tells which sequence is the request's; it is there since it was submitted. */
int step_on_id(struct model *m, const struct tl_seq_link *e)
{
	struct rec_request *r = request_find(m, e->req);
	int err;
	struct rec_sequence *q = sequence_at(m, e->hdr.tgid, e->slot, &err);

	if (!q || !r || q->req)
		return err;
	if (!q->joined_late && !r->at_ns[P_SUBMIT]) {
		r->at_ns[P_SUBMIT] = q->begin_ns;
		r->prov[P_SUBMIT] = PROV_OBSERVED;
	}
	return join_request(m, r - m->requests, q - m->seqs, JOIN_ID, 100, 0);
}

int step_on_point(struct model *m, const struct tl_seq_point *e)
{
	int err;
	struct rec_sequence *q = sequence_at(m, e->hdr.tgid, e->slot, &err);

	if (!q)
		return err;
	if (e->point == TL_POINT_QUEUED && !q->queued_ns)
		q->queued_ns = e->hdr.ts_ns;
	if (e->point == TL_POINT_SCHEDULED && !q->scheduled_ns)
		q->scheduled_ns = e->hdr.ts_ns;
	return 0;
}

static int add_preemption(struct rec_sequence *q, const struct rec_preemption *p)
{
	if (GROW(q->preemptions, q->cap_preemptions, q->n_preemptions))
		return -ENOMEM;
	q->preemptions[q->n_preemptions++] = *p;
	return 0;
}

int step_on_preempt(struct model *m, const struct tl_seq_preempt *e)
{
	int err;
	struct rec_sequence *q = sequence_at(m, e->hdr.tgid, e->slot, &err), *other = NULL;
	struct rec_preemption p = { .at_ns = e->hdr.ts_ns, .resumed_ns = e->resumed_ns,
				    .lost_tokens = e->lost_tokens,
				    .prov = e->hdr.flags & TL_F_GUESS ? PROV_INFERRED : PROV_REPORTED };
	uint32_t index = q ? (uint32_t)(q - m->seqs) : 0;

	if (!q)
		return err;
	if (e->for_slot)
		other = sequence_at(m, e->hdr.tgid, e->for_slot - 1, &err);
	if (e->for_slot && !other && err)
		return err;
	p.for_seq = other ? (uint32_t)(other - m->seqs) + 1 : 0;
	return add_preemption(&m->seqs[index], &p);	/* the table may have moved */
}

/* Of an engine that says nothing of preemptions, its steps do: what was
 * computed before comes again. */
int step_infer_preemptions(struct model *m)
{
	for (size_t i = 0; i < m->v.n_seqs; i++) {
		struct rec_sequence *q = &m->seqs[i];

		if (q->n_preemptions || !q->n_again)
			continue;
		for (size_t k = 1; k < q->n_visits; k++) {
			struct rec_preemption p = { .at_ns = m->steps[q->visits[k - 1].step].t1_ns,
						    .resumed_ns = m->steps[q->visits[k].step].t0_ns,
						    .prov = PROV_INFERRED };

			if (!q->visits[k].again || q->visits[k - 1].again)
				continue;
			for (size_t n = k; n < q->n_visits && q->visits[n].again; n++)
				p.lost_tokens += q->visits[n].n_tokens;
			if (add_preemption(q, &p))
				return -ENOMEM;
		}
	}
	return 0;
}

/* Follows the step that it belongs to. */
int step_on_stats(struct model *m, const struct tl_step_stats *e)
{
	struct rec_step *st = m->v.n_steps ? &m->steps[m->v.n_steps - 1] : NULL;
	uint32_t engine;

	if (!model_engine(m, e->hdr.tgid, &engine))
		return -ENOMEM;
	if (!st || st->engine != engine || st->t1_ns != e->hdr.ts_ns)
		return 0;
	if (!st->stats) {
		if (GROW(m->stats, m->cap_stats, m->n_stats))
			return -ENOMEM;
		st->stats = (uint32_t)++m->n_stats;
	}
	m->stats[st->stats - 1] = (struct rec_step_stats){
		.known = e->hdr.flags & 0xffff,
		.running = e->running, .waiting = e->waiting,
		.kv_ppm = e->kv_ppm, .preempted = e->preempted,
		.prefix_queries = e->prefix_queries, .prefix_hits = e->prefix_hits,
		.drafted = e->drafted, .accepted = e->accepted,
	};
	return 0;
}

int step_on_seq_begin(struct model *m, const struct tl_seq_begin *e)
{
	uint32_t engine;
	struct rec_sequence *q;
	struct slot_state *s;

	if (odd_slot(m, e->slot))
		return 0;
	if (!model_engine(m, e->hdr.tgid, &engine))
		return -ENOMEM;
	s = slot_of(m, engine, e->slot);
	if (!s)
		return -ENOMEM;
	/* A launch seen just before made the sequence; otherwise this is its first sign. */
	q = current(m, s);
	if (!q || q->ended || q->n_visits || q->kept >= 0) {
		q = sequence_new(m, engine, e->slot, s, e->hdr.ts_ns);
		if (!q)
			return -ENOMEM;
	}
	q->kept = e->kept;
	q->joined_late = e->hdr.flags & TL_F_JOINED;
	return 0;
}

int step_on_seq_end(struct model *m, const struct tl_seq_end *e)
{
	uint32_t engine;
	struct slot_state *s;

	if (odd_slot(m, e->slot))
		return 0;
	if (!model_engine(m, e->hdr.tgid, &engine))
		return -ENOMEM;
	s = slot_of(m, engine, e->slot);
	if (s && s->seq)
		end_sequence(&m->seqs[s->seq - 1]);
	return 0;
}

/* Where the first chunk of a prompt begins tells what was taken from the cache. */
static void note_start(struct rec_sequence *q, const struct tl_member *mem)
{
	if (!q->n_visits && !q->joined_late && q->kept < 0 && mem->phase == TL_PREFILL)
		q->kept = mem->pos;
}

void visit_counts(struct rec_sequence *q, const struct rec_visit *v)
{
	if (v->again)
		q->n_again += v->n_tokens;
	else if (v->phase == TL_PREFILL)
		q->n_prefill += v->n_tokens;
	else
		q->n_decode += v->n_tokens;
	q->n_out += v->n_out;
}

static int add_visit(struct rec_sequence *q, const struct rec_visit *v)
{
	if (GROW(q->visits, q->cap_visits, q->n_visits))
		return -ENOMEM;
	q->visits[q->n_visits++] = *v;
	visit_counts(q, v);
	return 0;
}

/* The sequence that a step's member belongs to: the one on its slot, or
 * one whose start we missed. */
static int sequence_for(struct model *m, uint32_t engine, const struct tl_member *mem, uint64_t ns,
			uint32_t *ret_index)
{
	struct slot_state *s = slot_of(m, engine, mem->slot);
	struct rec_sequence *q;

	if (!s)
		return -ENOMEM;
	q = current(m, s);
	if (!q || q->ended) {
		q = sequence_new(m, engine, mem->slot, s, ns);
		if (!q)
			return -ENOMEM;
		q->joined_late = true;
	}
	*ret_index = s->seq - 1;
	return 0;
}

int step_on_step(struct model *m, const struct tl_step *e)
{
	struct rec_step *st;
	uint32_t engine, index = m->v.n_steps;
	uint64_t n_tokens_of_all = 0;
	int err;

	if (e->result)
		return 0;	/* nothing was computed; the engine tries again */
	if (m->v.n_steps >= m->opts.max_steps) {
		m->v.n_steps_not_kept++;
		return 0;
	}
	if (!model_engine(m, e->hdr.tgid, &engine) || GROW(m->steps, m->cap_steps, m->v.n_steps))
		return -ENOMEM;
	st = &m->steps[m->v.n_steps++];
	*st = (struct rec_step){ .t0_ns = e->hdr.ts_ns, .t1_ns = e->end_ns, .engine = engine,
				 .first_member = m->v.n_members, .n_tokens = e->n_tokens };
	for (unsigned i = 0; i < e->n_members; i++) {
		const struct tl_member *mem = &e->members[i];
		uint32_t n_tokens = mem->n_tokens < MAX_STEP_TOKENS ? mem->n_tokens : MAX_STEP_TOKENS;
		struct rec_visit v = {
			.step = index, .n_tokens = n_tokens, .n_out = mem->n_out,
			.phase = mem->phase == TL_PREFILL || mem->phase == TL_DECODE ? mem->phase : 0,
			.guess = !!(mem->flags & TL_MEMBER_GUESS),
			.again = !!(mem->flags & TL_MEMBER_AGAIN),
		};
		uint32_t seq;

		if (odd_slot(m, mem->slot))
			continue;
		err = sequence_for(m, engine, mem, e->hdr.ts_ns, &seq);
		if (!err)
			note_start(&m->seqs[seq], mem);
		if (!err)
			err = add_visit(&m->seqs[seq], &v);
		if (err || GROW(m->members, m->cap_members, m->v.n_members))
			return -ENOMEM;
		m->members[m->v.n_members++] = (struct rec_member){
			.seq = seq, .n_tokens = v.n_tokens, .n_out = v.n_out, .phase = v.phase,
			.guess = v.guess, .again = v.again,
		};
		st->n_members++;
		n_tokens_of_all += n_tokens;
	}
	if (st->n_tokens < n_tokens_of_all)	/* it contradicts itself: its members have them */
		st->n_tokens = n_tokens_of_all < UINT32_MAX ? (uint32_t)n_tokens_of_all
							    : UINT32_MAX;
	return 0;
}
