/* SPDX-License-Identifier: Apache-2.0 */
/* Does vLLM plan a step ahead? Told by when those that are taken on show their first output. */
#include "engine/vllm_sched_priv.h"

enum { MAX_VOTES = 8 };	/* evidence for one mode that is remembered against the other */

static void vote(struct vsched *s, int by)
{
	if (by > 0 ? s->async_votes < MAX_VOTES : s->async_votes > -MAX_VOTES)
		s->async_votes += by;
}

/* Output of one that we did not know to run. */
static bool is_first_row(const struct vseq *seqs, const struct vsched_row *row)
{
	return seqs[row->slot].state == VSEQ_WAITING && !seqs[row->slot].guess;
}

/* Rows say when they were taken on. One that shares its step with one that goes on decoding, and
 * was taken on after the step before: not planned ahead. Two that were taken on before: planned
 * ahead, or one would have had no room. */
static void look_at_times(struct vsched *s, const struct vseq *seqs, const struct vsched_in *in)
{
	bool goes_on = false, late = false;
	unsigned n_before = 0;

	for (size_t i = 0; i < in->n_rows; i++) {
		const struct vseq *q = &seqs[in->rows[i].slot];
		uint64_t ns = in->rows[i].scheduled_ns;

		goes_on |= q->state == VSEQ_DECODE && q->spoke_ns == in->begin_ns;
		late |= ns > in->begin_ns;
		n_before += ns && ns < in->begin_ns;
	}
	if (late && goes_on)
		vote(s, -1);
	else if (n_before > 1)
		vote(s, 1);
}

void vsched_look_for_mode(struct vsched *s, const struct vseq *seqs, const struct vsched_in *in)
{
	int64_t taken, n_aborted;
	const struct vseq *first = NULL;
	bool more;

	if (!in->has_queues || in->cut)
		return;
	if (!in->woke && in->begin_ns < in->end_ns)
		look_at_times(s, seqs, in);
	if (!s->complete && !in->new_requests)
		return;
	if (!s->unseen.none)
		return;		/* who was taken on is not known */
	more = in->new_requests ||
	       (int64_t)in->running > vsched_count_running(s, seqs, in, &n_aborted);
	for (size_t i = 0; i < in->n_rows; i++)
		if (is_first_row(seqs, &in->rows[i])) {
			if (!in->woke)
				vote(s, -1);
			return;
		}
	if (in->again_requests)
		return;		/* what these took is not known yet */
	for (size_t i = 0; i < s->waiting.n && more; i++) {
		const struct vseq *q = &seqs[s->waiting.v[i]];

		if (q->abort_ns)
			return;		/* its output may have been thrown away */
		if (!first && q->state == VSEQ_WAITING)
			first = q;
	}
	taken = vsched_taken_by_running(s, seqs);
	if (first && first->prompt >= 0 && taken >= 0 && taken + first->prompt <= vsched_budget(s))
		vote(s, 1);
}
