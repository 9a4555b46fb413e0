/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a step of vLLM's: who was planned to be in it, and what the wire says of them. */
#include "engine/vllm_sched_priv.h"

#include <errno.h>

/* An abort so soon behind a step may come before the next one; on a host that is short of CPUs this
 * takes longer, as the step itself does (seen: 7 ms of a step of 200). */
enum { ABORT_RACE_NS = 1000000, ABORT_RACE_SHARE = 16 };

/* The step that is being settled. */
struct settling {
	struct vsched *s;
	struct vseq *seqs;
	const struct vsched_in *in;
	struct vsched_out *out;
	int64_t left;		/* of the budget */
	uint64_t taken;		/* tokens so far */
	uint32_t n_decoding;
	bool only_raced;	/* so far: members that may have been aborted before it */
};

/* Cached tokens of those taken on in this step: each says its own with its first output, their sum
 * is known at once. One that is silent has what the others leave; of several, the first ones have
 * most: the last to be preempted were the first to lose their blocks. */
static void share_hits(struct vsched *s, struct vseq *seqs, enum vseq_fresh kind, uint64_t hits)
{
	unsigned n_silent = 0;
	bool unsure;

	for (size_t i = 0; i < s->plan.n; i++) {
		const struct vseq *q = &seqs[s->plan.v[i]];

		if (q->fresh == kind && q->cached < 0)
			n_silent++;
		else if (q->fresh == kind)
			hits -= (uint64_t)q->cached < hits ? (uint64_t)q->cached : hits;
	}
	unsure = !s->has_hits || (n_silent > 1 && hits);
	for (size_t i = 0; i < s->plan.n && n_silent; i++) {
		struct vseq *q = &seqs[s->plan.v[i]];
		int64_t all = vseq_all(q);

		if (q->fresh != kind || q->cached >= 0)
			continue;
		q->guess |= unsure;
		q->cached = n_silent == 1 || all < 0 || (int64_t)hits < all ? (int64_t)hits : all - 1;
		hits -= q->cached;
	}
}

static void add(struct settling *t, const struct vseq *q, struct tl_member m)
{
	struct vsched_out *out = t->out;
	uint64_t share_ns = (t->in->end_ns - t->s->plan_ns) / ABORT_RACE_SHARE;
	uint64_t race_ns = share_ns > ABORT_RACE_NS ? share_ns : ABORT_RACE_NS;
	/* As long as the mode is not known, nor is whether it is in one step more. */
	bool raced = !m.n_out && q->abort_ns &&
		     (!t->s->async_votes || q->abort_ns - t->s->plan_ns < race_ns);
	/* Of a decoding one, the drafts are taken off for all at once:
	 * which it had, no row says. */
	uint32_t n = m.phase == TL_DECODE ? 1 : m.n_tokens;

	t->taken += n;
	t->left -= n < t->left ? n : t->left;
	if (raced)
		m.flags |= TL_MEMBER_GUESS;
	else
		t->only_raced = false;
	out->open |= raced;
	out->guess |= m.flags & TL_MEMBER_GUESS;
	if (out->n < out->max)
		out->members[out->n++] = m;
}

static uint32_t row_tokens(const struct vsched_row *row)
{
	return row && row->n_tokens > 0 ? row->n_tokens : 0;
}

/* ---- decoding ---- */

static void decode(struct settling *t, struct vseq *q, const struct vsched_row *row)
{
	uint32_t n_out = row_tokens(row);
	struct tl_member m = { .slot = q->slot, .n_tokens = n_out ? n_out : 1, .pos = -1,
			       .phase = TL_DECODE, .n_out = n_out < 255 ? n_out : 255 };

	if (!row && q->state == VSEQ_DECODE && !q->abort_ns) {
		if (!t->in->cut && !t->s->thrown_away) {
			/* It runs, but was left out: pipeline parallelism. Or it lost its place,
			 * which only counters tell. */
			q->left_out = !t->in->has_queues;
			t->out->open |= q->left_out;
			return;
		}
		m.n_out = !t->s->thrown_away;	/* its row was not seen */
		m.flags = t->s->thrown_away ? 0 : TL_MEMBER_GUESS;
	}
	if (row && q->left_out) {	/* it may have computed again what it had */
		m.flags = TL_MEMBER_GUESS;
		q->left_out = false;
	}
	if (!row && t->s->n_draft)
		t->out->open = true;	/* its drafts are not counted */
	q->n_out += m.n_out;
	t->n_decoding++;
	add(t, q, m);
}

/* ---- prefill ---- */

/* Of one that was preempted in the middle of its prompt, the first part is computed again. */
static void add_prefill(struct settling *t, struct vseq *q, struct tl_member m)
{
	uint32_t again = q->again_left < m.n_tokens ? q->again_left : m.n_tokens;
	struct tl_member first = m;

	q->again_left -= again;
	if (again && again < m.n_tokens) {
		first.n_tokens = again;
		first.n_out = 0;
		first.flags |= TL_MEMBER_AGAIN;
		add(t, q, first);
		m.n_tokens -= again;
		m.pos += m.pos >= 0 ? (int32_t)again : 0;
	} else if (again) {
		m.flags |= TL_MEMBER_AGAIN;
	}
	add(t, q, m);
}

static void prefill_ends(struct settling *t, struct vseq *q, const struct vsched_row *row)
{
	uint32_t n_out = row_tokens(row);
	int64_t rest = vseq_rest(q);
	bool fits = rest > 0 && (!t->s->budget || rest <= t->left);
	/* Without counters nobody says when it was taken on: before the message before,
	 * it had no output to give. */
	bool whole = t->in->has_queues || q->arrived_ns >= t->in->begin_ns;
	struct tl_member m = { .slot = q->slot, .n_tokens = rest > 0 ? rest : 1, .pos = -1,
			       .phase = TL_PREFILL, .n_out = n_out < 255 ? n_out : 255 };

	if (rest > 0 && !fits)	/* parts of it came before, and were not seen */
		m.n_tokens = t->left > 0 ? t->left : 1;
	if (!t->s->budget && q->n_parts && rest > 0)
		vsched_learn_budget(t->s, vseq_all(q) - q->cached, q->n_parts, q->others, t->taken);
	/* With speculation a last part may have drafts, too. */
	if (!fits || !whole || q->guess || t->s->unseen.unsettled ||
	    (q->n_parts && (!t->s->budget || t->s->n_draft)))
		m.flags = TL_MEMBER_GUESS;
	if (q->prompt >= 0 && q->cached >= 0 && fits)
		m.pos = q->cached + q->computed;
	q->n_out += n_out;
	add_prefill(t, q, m);
	q->state = VSEQ_DECODE;
	q->to_compute_again = q->again_left = 0;
	q->computed = 0;
	q->guess = q->doubt = false;
}

/* No output yet: a part of its prompt, or of what it computes again. */
static void prefill_goes_on(struct settling *t, struct vseq *q)
{
	struct vsched *s = t->s;
	int64_t rest = vseq_rest(q), tokens = rest < t->left ? rest : t->left;
	bool unknown = !s->async_votes;
	bool sure = s->budget && rest >= 0 && !q->guess && !t->in->cut && !s->open;
	struct tl_member m = { .slot = q->slot, .pos = -1, .phase = TL_PREFILL };

	if (rest >= 0 && rest <= t->left && !q->abort_ns) {
		/* There was room for all of it, but no output came. */
		if (sure && unknown)
			s->async_votes++;
		sure = false;
		tokens = rest - 1;
		t->out->open |= q->doubt;	/* it was another one */
		q->guess |= s->budget > 0;
	}
	if (unknown && q->fresh && !t->in->woke)
		t->out->open = q->guess = true;	/* or it is in the next step,
						 * if the engine plans ahead */
	if (rest < 0)	/* one that is not seen had all that was left */
		tokens = q->unseen && s->budget ? t->left : t->left < 1 ? 0 : 1;
	/* There was room, or it would not have been taken on; and one that is not
	 * seen runs since it had some. */
	if (tokens <= 0 && (q->fresh || (q->unseen && t->out->guess))) {
		tokens = 1;
		q->guess = true;
	}
	if (tokens <= 0) {	/* no room for it in this step */
		t->out->open |= t->out->guess;
		return;
	}
	q->guess |= s->open || t->out->guess;	/* others may have taken more
						 * of the room, or less */
	m.n_tokens = tokens;
	m.flags = sure && !q->guess ? 0 : TL_MEMBER_GUESS;
	if (q->cached >= 0)
		m.pos = q->cached + q->computed;
	q->computed += tokens;
	q->n_parts++;
	q->others += t->taken;
	add_prefill(t, q, m);
}

/* ---- the step ---- */

static int finish(struct settling *t, struct vseq *q, const struct vsched_row *row)
{
	/* One that stopped by a token is in the step that was planned before that was known. */
	bool had_all = row->by_length || (q->max_out >= 0 && q->n_out >= (uint64_t)q->max_out);

	q->state = VSEQ_OVER;
	q->in_flight = vsched_is_async(t->s) && !had_all && !row->failed;
	t->s->unsure |= !t->s->async_votes && !had_all && !row->failed;
	return q->in_flight ? 0 : vslots_push(&t->s->over, q->slot);
}

static int settle_one(struct settling *t, struct vseq *q)
{
	const struct vsched_row *row = q->row ? &t->in->rows[q->row - 1] : NULL;
	uint64_t hits = q->cached > 0 ? q->cached : 0;

	q->row = 0;
	if (row)
		q->spoke_ns = t->in->end_ns;
	if (q->fresh == VSEQ_AGAIN) {	/* some of what was lost is in the cache still */
		q->lost -= hits < q->lost ? hits : q->lost;
		q->again_left = q->n_out ? UINT64_MAX : q->lost;
	}
	if (q->state == VSEQ_OVER) {
		decode(t, q, NULL);
		q->in_flight = false;
		q->fresh = 0;
		return vslots_push(&t->s->over, q->slot);
	}
	if (row && row->failed && !row_tokens(row))
		;			/* ended without having been computed */
	else if (q->state == VSEQ_DECODE)
		decode(t, q, row);
	else if (row)
		prefill_ends(t, q, row);
	else
		prefill_goes_on(t, q);
	q->fresh = 0;
	return row && row->finished ? finish(t, q, row) : 0;
}

/* It was taken for one whose end was not seen, and gives output: it runs. */
static int take_back(struct vsched *s, struct vseq *q)
{
	for (size_t i = 0; i < s->over.n; i++)
		if (s->over.v[i] == q->slot)
			vslots_erase(&s->over, i--);
	q->given_up = false;
	return vslots_push(&s->running, q->slot);
}

/* Output of some that were not planned: their admission was not counted,
 * or nobody was preempted. */
static int settle_unplanned(struct settling *t)
{
	struct vsched *s = t->s;
	int err = 0;

	for (size_t i = 0; i < t->in->n_rows && !err; i++) {
		struct vseq *q = &t->seqs[t->in->rows[i].slot];

		if (!q->row || q->state == VSEQ_OVER)
			continue;
		if (q->state == VSEQ_WAITING || q->state == VSEQ_PREEMPTED) {
			for (size_t k = 0; k < s->waiting.n; k++)
				if (s->waiting.v[k] == q->slot)
					vslots_erase(&s->waiting, k--);
			err = vslots_push(&s->running, q->slot);
			if (q->state == VSEQ_PREEMPTED) {	/* it was another one */
				q->state = VSEQ_DECODE;
				q->to_compute_again = q->lost = 0;
			} else {
				vsched_take_on(q);
			}
			q->guess |= t->left < vseq_rest(q);
		} else if (q->given_up) {
			err = take_back(s, q);
		}
		if (!err)
			err = settle_one(t, q);
	}
	return err;
}

/* Is the message one of a step? An empty round of the engine is short. */
static void judge(struct settling *t, bool unsure)
{
	const struct vsched_in *in = t->in;
	struct vsched_out *out = t->out;
	uint64_t ns = in->end_ns - in->begin_ns;
	bool empty_round = 2 * ns < t->s->last_step_ns;

	out->is_step = out->n > 0 || in->n_rows > 0 || out->open;
	/* Told to stop between two steps, or in one? */
	if (!in->n_rows && out->n && t->only_raced && empty_round)
		out->is_step = false;
	if (unsure && !out->is_step && !empty_round) {
		/* What had ended was computed once more: scheduling is asynchronous. */
		t->s->async_votes++;
		out->is_step = true;
	}
	out->open |= unsure;
	if (out->is_step)
		t->s->last_step_ns = ns;
}

int vsched_settle(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		  struct vsched_out *ret)
{
	struct settling t = { .s = s, .seqs = seqs, .in = in, .out = ret, .only_raced = true,
			      .taken = in->draft_tokens, .left = vsched_budget(s) - in->draft_tokens };
	bool unsure = s->unsure && !s->async_votes;
	int err = 0;

	s->unsure = false;
	for (size_t i = 0; i < in->n_rows; i++) {
		struct vseq *q = &seqs[in->rows[i].slot];

		/* Of what is computed again they still say what it was the first time. */
		if (in->rows[i].cached >= 0 && q->state != VSEQ_DECODE && !q->to_compute_again)
			q->cached = in->rows[i].cached;
	}
	share_hits(s, seqs, VSEQ_NEW, s->new_hits);
	share_hits(s, seqs, VSEQ_AGAIN, s->again_hits);
	ret->open = s->open;
	for (size_t i = 0; i < s->plan.n && !err; i++)
		err = settle_one(&t, &seqs[s->plan.v[i]]);
	if (!err)
		err = settle_unplanned(&t);
	if (t.n_decoding)
		s->n_draft = (in->draft_tokens + t.n_decoding - 1) / t.n_decoding;
	judge(&t, unsure);
	return err;
}
