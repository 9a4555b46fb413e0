/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that compute a prompt behind output of the same sequence: what it had
 * was lost, and comes again. */
#include "model/state.h"

/*
 * An adapter that reads the scheduler says so itself (TL_MEMBER_AGAIN). Seen from its steps
 * alone, a sequence that lost its place is away, and then computes what it had before in the
 * steps of a prompt. As much must come again as at least half of its context: less may be what a
 * front end added to it (a turn of a tool). llama.cpp never takes a place away; there, it is a
 * prompt whose start was missed.
 */

static bool is_prefill(const struct rec_visit *v)
{
	return v->phase == TL_PREFILL && !v->again;
}

static void mark(struct model *m, uint32_t seq, struct rec_visit *v)
{
	const struct rec_step *st = &m->steps[v->step];

	v->again = 1;
	for (uint32_t i = 0; i < st->n_members; i++)
		if (m->members[st->first_member + i].seq == seq)
			m->members[st->first_member + i].again = 1;
}

/* The run of prefill visits from k on: its end, and how many tokens. */
static size_t end_of_run(const struct rec_sequence *q, size_t k, uint64_t *ret_tokens)
{
	*ret_tokens = 0;
	for (; k < q->n_visits && is_prefill(&q->visits[k]); k++)
		*ret_tokens += q->visits[k].n_tokens;
	return k;
}

static void infer(struct model *m, uint32_t seq)
{
	struct rec_sequence *q = &m->seqs[seq];
	uint64_t context = q->kept > 0 ? (uint64_t)q->kept : 0, tokens;
	bool decoded = false;
	size_t end;

	for (size_t k = 0; k < q->n_visits; k = end) {
		end = end_of_run(q, k, &tokens);
		if (end == k) {
			decoded |= q->visits[k].phase == TL_DECODE;
			context += q->visits[k].n_tokens;
			end = k + 1;
		} else if (!decoded || 2 * tokens < context) {
			context += tokens;
		} else {
			for (size_t i = k; i < end; i++)
				mark(m, seq, &q->visits[i]);
			q->n_prefill -= (uint32_t)tokens;
			q->n_again += (uint32_t)tokens;
			context = tokens;
		}
	}
}

void infer_again(struct model *m)
{
	for (uint32_t i = 0; i < m->v.n_seqs; i++)
		if (!m->seqs[i].n_again &&
		    m->engines[m->seqs[i].engine].e.engine != TL_ENGINE_LLAMA)
			infer(m, i);
}
