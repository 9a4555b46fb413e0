/* SPDX-License-Identifier: Apache-2.0 */
/* Who of a vLLM's requests lost their place, and who is given up: nobody else counts them. */
#include "engine/vllm_sched_priv.h"

#include <errno.h>
#include <string.h>

enum {
	PATIENCE = 32,		/* steps until a request that nobody else counts is given up ... */
	GRACE_NS = 1000000000,	/* ... if it is so old: it takes ms
				 * from the socket to the scheduler */
};

static int push_front(struct vslots *v, uint32_t slot)
{
	int err = vslots_push(v, slot);

	if (err)
		return err;
	memmove(v->v + 1, v->v, (v->n - 1) * sizeof(*v->v));
	v->v[0] = slot;
	return 0;
}

/* The one that loses its place next, of the running ones; SIZE_MAX: none. */
static size_t find_last(const struct vsched *s, const struct vseq *seqs, bool all)
{
	const struct vseq *last = NULL;
	size_t at = SIZE_MAX;

	for (size_t i = s->running.n; i-- > 0 && (!last || s->by_priority);) {
		const struct vseq *q = &seqs[s->running.v[i]];

		if (q->state == VSEQ_OVER || q->abort_ns ||
		    ((!vsched_is_async(s) || s->unseen.unsettled) && q->row && !all))
			continue;
		if (!last || vseq_goes_before(last, q)) {
			last = q;
			at = i;
		}
	}
	return at;
}

/* Moves the last of the running, `n` of them, to the head of the waiting ones; `all` of them, too,
 * that have output in this very step. So many of them do not wait behind it: n_back. */
static int preempt(struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n,
		   uint64_t n_back, bool all)
{
	int err = 0;

	for (; n && !err; n--) {
		size_t at = find_last(s, seqs, all);
		struct vseq *q;

		if (at == SIZE_MAX)
			break;
		q = &seqs[s->running.v[at]];
		if (q->unseen) {
			err = vsched_unseen_leaves(s, seqs);
			continue;
		}
		if (!all && q->state == VSEQ_PREFILL && !q->n_out &&
		    (s->unseen.unsettled || q->doubt)) {
			err = vsched_unseen_put_back(s, seqs, q);
			continue;
		}
		vslots_erase(&s->running, at);
		/* It does not wait either: its end was not seen. */
		if (s->preempted.n >= in->waiting + n_back) {
			q->given_up = true;
			err = vslots_push(&s->over, q->slot);
			continue;
		}
		q->lost_before += q->lost;
		q->lost = q->state == VSEQ_DECODE ? (q->prompt > 0 ? q->prompt : 0) + q->n_out :
			  (q->cached > 0 ? q->cached : 0) + q->computed;
		if (q->state == VSEQ_DECODE && q->lost)
			q->lost--;	/* its last token was not computed yet */
		q->to_compute_again = q->prompt >= 0 ? q->prompt + q->n_out : 0;
		q->state = VSEQ_PREEMPTED;
		q->preempted_ns = in->begin_ns;
		q->computed = 0;
		q->cached = -1;
		err = push_front(&s->waiting, q->slot);
		if (!err)
			err = vslots_push(&s->preempted, q->slot);
	}
	return err;
}

int vsched_preempt(struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n)
{
	return preempt(s, seqs, in, n, 0, false);
}

/* The scheduler itself never takes one on in the step in which another loses its place. But who
 * tells the engine to forget its cache, or to pause, takes the places of all, and some are back in
 * the next step: more come back than are known to be gone, and nobody runs who does not. */
bool vsched_is_evicted(const struct vsched *s, const struct vseq *seqs, const struct vsched_in *in,
		       uint64_t n_new, uint64_t n_again)
{
	uint64_t n_gone = 0, n_in_it = in->running;

	if (!in->has_queues || !s->complete || !s->unseen.none)
		return false;
	for (size_t i = 0; i < s->waiting.n; i++)
		n_gone += seqs[s->waiting.v[i]].state == VSEQ_PREEMPTED;
	for (size_t i = 0; i < in->n_rows && !vsched_is_async(s); i++)
		n_in_it += in->rows[i].finished;
	return n_again > n_gone && n_in_it <= n_new + n_again;
}

int vsched_evict(struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n_again)
{
	return preempt(s, seqs, in, UINT64_MAX, n_again, true);
}

/* More wait here than there, for long or while all is idle there: messages were lost. If as many
 * more run there, these do. */
int vsched_mend_waiting(struct vsched *s, struct vseq *seqs, const struct vsched_in *in)
{
	uint64_t here = 0, more;
	int err = 0;

	for (size_t i = 0; i < s->waiting.n; i++)
		here += seqs[s->waiting.v[i]].arrived_ns + GRACE_NS < in->begin_ns;
	if (!in->has_queues || here <= in->waiting) {
		s->n_too_many = 0;
		return 0;
	}
	more = here - in->waiting;
	if (!s->n_too_many++ || more < s->too_many)
		s->too_many = more;
	if (s->n_too_many < PATIENCE && in->running + in->waiting)
		return 0;
	s->n_too_many = 0;
	while (s->too_many-- && s->waiting.n && !err) {
		struct vseq *q = &seqs[s->waiting.v[0]];

		vslots_erase(&s->waiting, 0);
		if (in->running <= s->running.n) {
			q->given_up = true;
			err = vslots_push(&s->over, q->slot);
			continue;
		}
		vsched_take_on(q);
		q->fresh = 0;
		q->guess = true;
		err = vslots_push(&s->running, q->slot);
	}
	return err;
}
