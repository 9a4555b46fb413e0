/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's scheduler, followed from outside: see the header for the rules. */
#include "engine/vllm_sched.h"

#include "base/vec.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int push(uint32_t **v, size_t *n, size_t *cap, uint32_t slot)
{
	if (*n == *cap) {
		uint32_t *p = vec_grow_(*v, cap, *n + 1, sizeof(**v), SIZE_MAX);

		if (!p)
			return -ENOMEM;
		*v = p;
	}
	(*v)[(*n)++] = slot;
	return 0;
}

static void erase(uint32_t *v, size_t *n, size_t at)
{
	memmove(v + at, v + at + 1, (*n - at - 1) * sizeof(*v));
	--*n;
}

static bool take_out(uint32_t *v, size_t *n, uint32_t slot)
{
	for (size_t i = 0; i < *n; i++)
		if (v[i] == slot) {
			erase(v, n, i);
			return true;
		}
	return false;
}

int vsched__arrive(struct vsched *s, uint32_t slot)
{
	return push(&s->waiting, &s->n_waiting, &s->cap_waiting, slot);
}

int vsched__run(struct vsched *s, uint32_t slot)
{
	return push(&s->running, &s->n_running, &s->cap_running, slot);
}

void vsched__leave(struct vsched *s, uint32_t slot)
{
	take_out(s->running, &s->n_running, slot);
	take_out(s->waiting, &s->n_waiting, slot);
}

void vsched__free(struct vsched *s)
{
	free(s->running);
	free(s->waiting);
	*s = (struct vsched){ 0 };
}

/* A waiting sequence begins to run. */
static int start(struct vsched *s, struct vseq *q, size_t at)
{
	int err = push(&s->running, &s->n_running, &s->cap_running, q->slot);

	if (err)
		return err;
	erase(s->waiting, &s->n_waiting, at);
	q->state = VSEQ_PREFILL;
	q->computed = 0;
	return 0;
}

/* The first `n` waiting sequences of a kind begin to run. */
static int start_some(struct vsched *s, struct vseq *seqs, uint64_t n, enum vseq_state kind)
{
	for (size_t i = 0; i < s->n_waiting && n;) {
		struct vseq *q = &seqs[s->waiting[i]];
		int err;

		if (q->state != kind) {
			i++;
			continue;
		}
		err = start(s, q, i);
		if (err)
			return err;
		n--;
	}
	return 0;
}

/* Rows of sequences that we did not know to run: joined late, or the counters are off. */
static int start_those_with_rows(struct vsched *s, struct vseq *seqs, const struct vsched_step *in)
{
	for (size_t i = 0; i < in->n_rows; i++) {
		struct vseq *q = &seqs[in->rows[i].slot];

		q->in_step = true;
		if (in->rows[i].cached >= 0)
			q->cached = in->rows[i].cached;
		if (q->state != VSEQ_WAITING && q->state != VSEQ_PREEMPTED)
			continue;
		for (size_t k = 0; k < s->n_waiting; k++)
			if (s->waiting[k] == q->slot) {
				int err = start(s, q, k);

				if (err)
					return err;
				break;
			}
	}
	return 0;
}


/* Cached tokens of those taken on in this step: each says its own with its first output; the sum is known
 * now. One that is silent gets what the others leave. */
static void share_hits(struct vsched *s, struct vseq *seqs, size_t old_running, uint64_t hits)
{
	struct vseq *silent = NULL;
	uint64_t known = 0;
	unsigned n_silent = 0;

	for (size_t i = old_running; i < s->n_running; i++) {
		struct vseq *q = &seqs[s->running[i]];

		if (q->cached >= 0) {
			known += q->cached;
			continue;
		}
		silent = q;
		n_silent++;
	}
	if (!n_silent)
		return;
	if (n_silent == 1 && hits >= known) {
		silent->cached = hits - known;
		return;
	}
	for (size_t i = old_running; i < s->n_running; i++) {
		struct vseq *q = &seqs[s->running[i]];

		if (q->cached >= 0)
			continue;
		/* Several are silent: all or none can be told, a split cannot. */
		q->cached = 0;
		q->guess |= hits > known;
	}
}

/* Tokens that a sequence in prefill has still to compute; -1: unknown. */
static int64_t rest_of(const struct vseq *q)
{
	int64_t all = q->to_compute_again ? (int64_t)q->to_compute_again : q->prompt;

	if (all < 0 || q->cached < 0)
		return -1;
	all -= q->cached;
	return all > (int64_t)q->computed ? all - (int64_t)q->computed : 0;
}

static const struct vsched_row *row_of(const struct vsched_step *in, uint32_t slot)
{
	for (size_t i = 0; i < in->n_rows; i++)
		if (in->rows[i].slot == slot)
			return &in->rows[i];
	return NULL;
}

/* After a preemption its prompt and its output are computed again. */
static uint16_t member_flags(const struct vseq *q, bool guess)
{
	return (guess || q->guess ? TL_MEMBER_GUESS : 0) | (q->to_compute_again ? TL_MEMBER_AGAIN : 0);
}

static void decode(struct vseq *q, const struct vsched_row *row, struct tl_member *m)
{
	*m = (struct tl_member){ .slot = q->slot, .n_tokens = row->n_tokens > 0 ? row->n_tokens : 1, .pos = -1,
				 .phase = TL_DECODE, .n_out = row->n_tokens > 0 ? row->n_tokens : 0 };
	q->n_out += m->n_out;
}

static void prefill_ends(struct vseq *q, const struct vsched_row *row, struct tl_member *m)
{
	int64_t rest = rest_of(q);

	*m = (struct tl_member){ .slot = q->slot, .n_tokens = rest > 0 ? rest : 1, .pos = -1,
				 .phase = TL_PREFILL, .n_out = row->n_tokens > 0 ? row->n_tokens : 0,
				 .flags = member_flags(q, rest <= 0) };
	if (q->prompt >= 0 && q->cached >= 0)
		m->pos = q->cached + q->computed;
	q->n_out += m->n_out;
	q->state = VSEQ_DECODE;
	q->to_compute_again = 0;
	q->computed = 0;
}

static void prefill_goes_on(struct vseq *q, uint64_t tokens, bool sure, struct tl_member *m)
{
	*m = (struct tl_member){ .slot = q->slot, .n_tokens = tokens, .pos = -1, .phase = TL_PREFILL,
				 .flags = member_flags(q, !sure) };
	if (q->cached >= 0)
		m->pos = q->cached + q->computed;
	q->computed += tokens;
}

/* Moves a decoding sequence without output to the head of the waiting ones. */
static int preempt(struct vsched *s, struct vseq *q, size_t at)
{
	int err = push(&s->waiting, &s->n_waiting, &s->cap_waiting, q->slot);

	if (err)
		return err;
	memmove(s->waiting + 1, s->waiting, (s->n_waiting - 1) * sizeof(*s->waiting));
	s->waiting[0] = q->slot;
	erase(s->running, &s->n_running, at);
	q->state = VSEQ_PREEMPTED;
	q->to_compute_again = (q->prompt > 0 ? q->prompt : 0) + q->n_out;
	q->computed = 0;
	q->cached = -1;
	return 0;
}

int vsched__step(struct vsched *s, struct vseq *seqs, const struct vsched_step *in, struct tl_member *ret,
		 size_t max, uint32_t *ret_preempted, size_t *ret_n_preempted, bool *ret_guess)
{
	size_t n = 0, old_running = s->n_running;
	int64_t left = s->budget ? s->budget : INT64_MAX;
	int err;

	*ret_n_preempted = 0;
	*ret_guess = false;
	/* Resumed ones stand at the head of the waiting, new ones behind. */
	err = in->has_prefix ? start_some(s, seqs, in->again_requests, VSEQ_PREEMPTED) : 0;
	if (!err && in->has_prefix)
		err = start_some(s, seqs, in->new_requests, VSEQ_WAITING);
	if (!err)
		err = start_those_with_rows(s, seqs, in);
	if (err)
		return err;
	share_hits(s, seqs, old_running, in->has_prefix ? in->new_hits + in->again_hits : 0);

	for (size_t i = 0; i < s->n_running && n < max;) {
		struct vseq *q = &seqs[s->running[i]];
		const struct vsched_row *row = q->in_step ? row_of(in, q->slot) : NULL;
		bool sure = s->budget && rest_of(q) >= 0;
		int64_t tokens;

		if (!row && q->abort_ns && q->abort_ns <= in->begin_ns) {
			i++;	/* stopped before the step began */
			continue;
		}
		if (row && q->state == VSEQ_DECODE) {
			decode(q, row, &ret[n]);
		} else if (row) {
			prefill_ends(q, row, &ret[n]);
		} else if (q->state == VSEQ_PREFILL) {
			tokens = rest_of(q) >= 0 ? rest_of(q) : 0;
			tokens = tokens < left ? tokens : left;
			if (tokens <= 0 && sure) {	/* no room for it in this step */
				i++;
				continue;
			}
			prefill_goes_on(q, tokens, sure, &ret[n]);
		} else if (q->abort_ns) {
			ret[n] = (struct tl_member){ .slot = q->slot, .n_tokens = 1, .pos = -1,
						     .phase = TL_DECODE };
		} else {
			err = preempt(s, q, i);
			if (err)
				return err;
			if (*ret_n_preempted < max)
				ret_preempted[(*ret_n_preempted)++] = q->slot;
			continue;
		}
		left -= ret[n].n_tokens;
		left = left > 0 ? left : 0;
		*ret_guess |= ret[n].flags & TL_MEMBER_GUESS;
		n++;
		i++;
	}
	for (size_t i = 0; i < in->n_rows; i++)
		seqs[in->rows[i].slot].in_step = false;
	return n;
}
