/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that lost their place without a word: the recording ended first, or
 * the engine has no counters. */
#include "model/servers.h"
#include "model/state.h"

#include <errno.h>
#include <stdlib.h>

/*
 * vLLM gives each sequence that decodes its token in each step, as long as the step has tokens
 * left for it. One that is in none of many such steps, and has not ended, runs no more: it was put
 * back among those that wait. Its engine tells that with its next output at the earliest, and
 * without counters never. With pipeline parallelism a sequence is rightly left out of a few steps
 * in a row, never of so many.
 */
enum { MIN_AWAY = 8, MAX_LOOKED = 256, KV_FULL_PPM = 800000 };

/* Could this step have had one token more, of a sequence that runs?
 * Prompts may take all of them. */
static bool has_token_left(const struct model *m, const struct rec_step *st,
			   const struct engine_limits *limits)
{
	if (st->n_tokens < limits->max_step_tokens)
		return true;
	for (uint32_t i = 0; i < st->n_members; i++)
		if (m->members[st->first_member + i].phase != TL_DECODE)
			return false;
	return st->n_members > 0;
}

/* As far as the engine says: was the cache full? */
static bool may_be_full(const struct model *m, const struct rec_step *st)
{
	return !st->stats || !(m->stats[st->stats - 1].known & TL_STATS_KV) ||
	       m->stats[st->stats - 1].kv_ppm >= KV_FULL_PPM;
}

static bool lost_in(const struct model *m, uint64_t from_ns, uint64_t until_ns)
{
	for (size_t i = 0; i < m->v.n_lost; i++)
		if (m->lost[i].since_ns <= until_ns && m->lost[i].until_ns >= from_ns)
			return true;
	return false;
}

/* Was it in none of the steps behind its step `after` until then,
 * although they had tokens for it? */
static bool is_away(const struct model *m, const struct engine_limits *limits,
		    const struct rec_sequence *q, uint32_t after, uint32_t before,
		    uint64_t until_ns)
{
	bool full = may_be_full(m, &m->steps[after]);
	uint32_t n = 0;

	for (uint32_t i = after + 1; i < before && i - after <= MAX_LOOKED && n < MIN_AWAY; i++) {
		const struct rec_step *st = &m->steps[i];

		if (st->engine != q->engine || st->t0_ns < m->steps[after].t1_ns)
			continue;
		if (st->t1_ns > until_ns)
			break;
		full |= !n && may_be_full(m, st);
		n += has_token_left(m, st, limits);
	}
	return n == MIN_AWAY && full;
}

static bool is_told(const struct rec_sequence *q, uint64_t from_ns, uint64_t until_ns)
{
	for (size_t i = 0; i < q->n_preemptions; i++)
		if (q->preemptions[i].at_ns >= from_ns && q->preemptions[i].at_ns < until_ns)
			return true;
	return false;
}

static int add(struct rec_sequence *q, const struct rec_preemption *p)
{
	size_t at = q->n_preemptions;

	if (GROW(q->preemptions, q->cap_preemptions, q->n_preemptions))
		return -ENOMEM;
	for (; at && q->preemptions[at - 1].at_ns > p->at_ns; at--)
		q->preemptions[at] = q->preemptions[at - 1];
	q->preemptions[at] = *p;
	q->n_preemptions++;
	return 0;
}

/* Until when it waits for its next output, if it ever came to none; 0: it had all
 * of them, or nobody knows. */
static uint64_t waits_until(const struct model *m, const struct rec_sequence *q)
{
	const struct rec_request *r = q->req ? &m->requests[q->req - 1] : NULL;

	if (!r || r->n_seqs != 1 || r->state == REQ_COMPLETE || r->finish != TL_FINISH_UNKNOWN ||
	    q->cut_by_loss || (r->max_tokens >= 0 && q->n_out >= (uint32_t)r->max_tokens))
		return 0;
	if (r->at_ns[P_DONE] || r->at_ns[P_CLOSE])
		return r->at_ns[P_DONE] ? r->at_ns[P_DONE] : r->at_ns[P_CLOSE];
	return q->ended ? 0 : m->v.t1_ns;	/* its last output may not be written yet */
}

static int infer(struct model *m, const struct engine_limits *limits, struct rec_sequence *q)
{
	uint64_t context = q->kept > 0 ? (uint64_t)q->kept : 0;

	for (size_t k = 0; k < q->n_visits; k++) {
		const struct rec_visit *v = &q->visits[k];
		bool last = k + 1 == q->n_visits;
		uint32_t before = last ? (uint32_t)m->v.n_steps : v[1].step;
		uint64_t until_ns = last ? waits_until(m, q) : m->steps[v[1].step].t0_ns;
		struct rec_preemption p = { .at_ns = m->steps[v->step].t1_ns,
					    .resumed_ns = last ? 0 : until_ns,
					    .prov = PROV_INFERRED };

		context = v->again && k && !v[-1].again ? v->n_tokens : context + v->n_tokens;
		p.lost_tokens = (uint32_t)context;
		if (v->phase != TL_DECODE || before < v->step + MIN_AWAY ||
		    !is_away(m, limits, q, v->step, before, until_ns) ||
		    is_told(q, m->steps[v->step].t0_ns, until_ns) || lost_in(m, p.at_ns, until_ns))
			continue;
		if (add(q, &p))
			return -ENOMEM;
	}
	return 0;
}

int infer_parked(struct model *m)
{
	struct engine_limits *limits;
	struct model_view v;
	int err;

	model__view(m, &v);
	err = servers_limits(&v, &limits);
	if (err)
		return err;
	for (size_t i = 0; i < m->v.n_seqs && !err; i++)
		if (m->engines[m->seqs[i].engine].e.engine == TL_ENGINE_VLLM)
			err = infer(m, &limits[m->seqs[i].engine], &m->seqs[i]);
	free(limits);
	return err;
}
