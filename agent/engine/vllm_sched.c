/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's scheduler, followed from outside: who runs, who waits, who is in the next step. */
#include "engine/vllm_sched_priv.h"

#include "base/vec.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	LIKELY_BUDGET = 2048,	/* tokens per step, if nothing tells: no default is smaller */
	ARRIVAL_RACE_NS = 5000000,
};

int vslots_push(struct vslots *v, uint32_t slot)
{
	if (v->n == v->cap) {
		uint32_t *p = vec_grow_(v->v, &v->cap, v->n + 1, sizeof(*p), SIZE_MAX);

		if (!p)
			return -ENOMEM;
		v->v = p;
	}
	v->v[v->n++] = slot;
	return 0;
}

void vslots_erase(struct vslots *v, size_t at)
{
	memmove(v->v + at, v->v + at + 1, (v->n - at - 1) * sizeof(*v->v));
	v->n--;
}

int vsched__arrive(struct vsched *s, uint32_t slot)
{
	return vslots_push(&s->waiting, slot);
}

int vsched__run(struct vsched *s, uint32_t slot)
{
	return vslots_push(&s->running, slot);
}

bool vsched__was_idle(const struct vsched *s, const struct vseq *seqs, uint64_t ns,
		      uint64_t *ret_first_ns)
{
	uint64_t first_ns = UINT64_MAX;

	if (s->running.n || s->plan.n || !s->waiting.n)
		return false;
	for (size_t i = 0; i < s->waiting.n; i++) {
		const struct vseq *q = &seqs[s->waiting.v[i]];

		if (q->arrived_ns <= ns || q->state != VSEQ_WAITING)
			return false;
		if (q->arrived_ns < first_ns)
			first_ns = q->arrived_ns;
	}
	*ret_first_ns = first_ns;
	return true;
}

void vsched__lost(struct vsched *s, uint64_t now_ns)
{
	s->planned = s->complete = false;
	s->unseen = (struct vunseen){
		.since_ns = now_ns, .runs = s->unseen.runs, .n_clients = s->unseen.n_clients,
	};
}

/* The step that was planned is not known to be this one: who has ended
 * and was in it, is over now. */
static int drop_plan(struct vsched *s, struct vseq *seqs)
{
	int err = 0;

	for (size_t i = 0; i < s->plan.n && !err; i++) {
		struct vseq *q = &seqs[s->plan.v[i]];

		if (q->state != VSEQ_OVER)
			continue;
		q->in_flight = false;
		err = vslots_push(&s->over, q->slot);
	}
	s->plan.n = 0;
	return err;
}

void vsched__free(struct vsched *s)
{
	free(s->running.v);
	free(s->waiting.v);
	free(s->plan.v);
	free(s->preempted.v);
	free(s->over.v);
	*s = (struct vsched){ 0 };
}

int64_t vseq_all(const struct vseq *q)
{
	return q->to_compute_again ? (int64_t)q->to_compute_again : q->prompt;
}

int64_t vseq_rest(const struct vseq *q)
{
	int64_t all = vseq_all(q);

	if (all < 0 || q->cached < 0)
		return -1;
	all -= q->cached;
	return all > (int64_t)q->computed ? all - (int64_t)q->computed : 0;
}

void vsched_take_on(struct vseq *q)
{
	q->fresh = q->state == VSEQ_PREEMPTED ? VSEQ_AGAIN : VSEQ_NEW;
	q->state = VSEQ_PREFILL;
	q->computed = q->n_parts = q->others = 0;
}

int64_t vsched_budget(const struct vsched *s)
{
	uint64_t power = 1, found = 0;

	if (s->budget)
		return s->budget;
	if (!s->most_budget)
		return LIKELY_BUDGET;
	/* Defaults are powers of two; people like round numbers, too. */
	for (; power <= s->most_budget; power *= 2)
		if (power >= s->least_budget)
			found = found ? s->least_budget : power;
	return found ? found : s->least_budget;
}

void vsched_learn_budget(struct vsched *s, uint64_t all, uint64_t n, uint64_t others,
			 uint64_t others_at_last)
{
	uint64_t most = (all - 1 + others) / n;
	uint64_t least = (all + others + others_at_last + n) / (n + 1);

	if (least > most)
		return;		/* something else held it up */
	if (s->most_budget && (least > s->most_budget || most < s->least_budget))
		s->most_budget = 0;
	if (!s->most_budget)
		s->least_budget = 0;
	if (!s->most_budget || most < s->most_budget)
		s->most_budget = most;
	if (least > s->least_budget)
		s->least_budget = least;
}

static bool aborted_before(const struct vseq *q, uint64_t ns)
{
	return q->abort_ns && q->abort_ns <= ns;
}

/* Those that were told to stop before `ns` are in no step that is scheduled then; but for
 * those with output in it. */
static int drop_aborted(struct vsched *s, struct vslots *v, const struct vseq *seqs, uint64_t ns)
{
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < v->n; i++) {
		const struct vseq *q = &seqs[v->v[i]];

		if (!err && aborted_before(q, ns) && !q->row && q->state != VSEQ_OVER)
			err = vslots_push(&s->over, q->slot);
		else
			v->v[kept++] = v->v[i];
	}
	v->n = kept;
	return err;
}

/* Told to stop, but does the engine know? It does if a decoding one gave no output. */
static bool may_not_know(const struct vseq *q, const struct vsched_in *in)
{
	if (q->state == VSEQ_OVER || !aborted_before(q, in->end_ns))
		return false;
	return q->state != VSEQ_DECODE || q->row || q->spoke_ns == in->end_ns;
}

int64_t vsched_count_running(const struct vsched *s, const struct vseq *seqs,
			     const struct vsched_in *in, int64_t *ret_n_aborted)
{
	int64_t n = 0;

	*ret_n_aborted = 0;
	for (size_t i = 0; i < s->running.n; i++) {
		const struct vseq *q = &seqs[s->running.v[i]];

		if (q->state == VSEQ_OVER || (q->row && in->rows[q->row - 1].finished))
			continue;
		*ret_n_aborted += may_not_know(q, in);
		n += !aborted_before(q, in->end_ns);
	}
	return n;
}

int64_t vsched_taken_by_running(const struct vsched *s, const struct vseq *seqs)
{
	int64_t sum = 0;

	for (size_t i = 0; i < s->running.n; i++) {
		const struct vseq *q = &seqs[s->running.v[i]];
		int64_t rest = q->state == VSEQ_PREFILL ? vseq_rest(q) : 1 + s->n_draft;

		if (rest < 0)
			return -1;
		sum += rest;
	}
	return sum;
}

/* ---- planning a step ---- */

bool vsched_would_show(const struct vsched *s, const struct vseq *seqs, const struct vseq *q)
{
	int64_t most = vseq_all(q);

	if (vsched_is_async(s) || q->abort_ns || most < 0)
		return false;
	for (size_t i = 0; i < s->running.n; i++) {
		const struct vseq *other = &seqs[s->running.v[i]];
		int64_t all = vseq_all(other);

		if (other->state != VSEQ_PREFILL)
			most += 1 + s->n_draft;
		else if (all < 0)
			return false;
		else
			most += all - (other->cached > 0 ? other->cached : 0) -
				(int64_t)other->computed;
	}
	return most <= (int64_t)s->budget;
}

static int take_on_ith(struct vsched *s, struct vseq *seqs, size_t i)
{
	struct vseq *q = &seqs[s->waiting.v[i]];
	int err = vslots_push(&s->running, q->slot);

	if (err)
		return err;
	vslots_erase(&s->waiting, i);
	vsched_take_on(q);
	return 0;
}

/* `n` of the waiting ones in this state begin to run: those with output, then those who had to
 * do with what these left of the budget, then any; of each the first ones. The engine reads
 * the sockets of its API servers in turn, so what came to two of them within a few ms may be
 * queued the other way round. */
static int take_on(struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n,
		   enum vseq_state state)
{
	enum { WITH_OUTPUT, SILENT, ANY };
	bool picked = state == VSEQ_WAITING && vsched_pick(s, seqs, in, n);

	for (int pass = picked ? ANY : WITH_OUTPUT; pass <= ANY; pass++) {
		for (size_t i = 0; i < s->waiting.n && n;) {
			struct vseq *q = &seqs[s->waiting.v[i]];
			int err;

			if (q->state != state || q->arrived_ns > in->end_ns ||
			    (picked && !q->picked) || (pass == WITH_OUTPUT && !q->row) ||
			    (pass == SILENT && vsched_would_show(s, seqs, q))) {
				i++;
				continue;
			}
			q->picked = false;
			if (!q->row && vsched_may_be_another(s, seqs, q))
				q->doubt = q->guess = true;
			err = take_on_ith(s, seqs, i);
			if (err)
				return err;
			n--;
		}
	}
	return 0;
}

/* Output of some that were not known to run: their own kind of admission, or we joined late. */
static int take_on_those_with_rows(struct vsched *s, struct vseq *seqs)
{
	for (size_t i = 0; i < s->waiting.n;) {
		int err;

		if (!seqs[s->waiting.v[i]].row) {
			i++;
			continue;
		}
		err = take_on_ith(s, seqs, i);
		if (err)
			return err;
	}
	return 0;
}

/* The engine still counts `n` of those that are told to stop: word had not reached it
 * when it counted, and the next step may have them, or not: seen to go either way
 * with word 3 to 6 ms old. */
static void put_off_aborts(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
			   int64_t n)
{
	while (n-- > 0) {
		struct vseq *last = NULL;

		for (size_t i = 0; i < s->running.n; i++) {
			struct vseq *q = &seqs[s->running.v[i]];

			if (may_not_know(q, in) && (!last || q->abort_ns > last->abort_ns))
				last = q;
		}
		if (last)
			last->abort_ns = in->end_ns + 1;
	}
}

/* How many more run than before, at most: those who ended in the step that
 * took them on run no more. */
static uint64_t count_taken_on(const struct vsched *s, const struct vseq *seqs,
			       const struct vsched_in *in)
{
	int64_t n_aborted, n = (int64_t)in->running - vsched_count_running(s, seqs, in, &n_aborted);

	for (size_t i = 0; i < s->waiting.n; i++) {
		const struct vseq *q = &seqs[s->waiting.v[i]];

		n += (q->row && in->rows[q->row - 1].finished) || aborted_before(q, in->end_ns);
	}
	return n > 0 ? n : 0;
}

/* More run than the counters say were taken on: some are not counted, because they do not read the
 * prefix cache. *more: how many, then how many of them were not found. */
static int take_on_uncounted(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
			     int64_t *more)
{
	size_t waiting = s->waiting.n;
	int err = take_on(s, seqs, in, *more, VSEQ_PREEMPTED);

	if (!err)
		err = take_on(s, seqs, in, *more - (waiting - s->waiting.n), VSEQ_WAITING);
	*more -= waiting - s->waiting.n;
	for (size_t i = 0; i < s->running.n && s->unseen.found_out; i++) {
		struct vseq *q = &seqs[s->running.v[i]];

		q->guess |= q->fresh && !q->row;
	}
	return err;
}

static int plan_running(struct vsched *s, const struct vseq *seqs)
{
	int err = 0;

	for (size_t i = 0; i < s->running.n && !err; i++) {
		const struct vseq *q = &seqs[s->running.v[i]];

		if (q->state != VSEQ_OVER || q->in_flight)
			err = vslots_push(&s->plan, q->slot);
	}
	return err;
}

/* Who is in the step: the running ones, and those that the counters say were taken on. */
static int plan(struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n_new,
		uint64_t n_again)
{
	int64_t n_aborted, more;
	size_t n_running;
	int err = drop_aborted(s, &s->running, seqs, in->begin_ns);

	if (!err)
		err = drop_aborted(s, &s->waiting, seqs, in->begin_ns);
	s->plan.n = 0;
	s->plan_ns = in->begin_ns;
	s->open = false;
	if (!err && vsched_is_evicted(s, seqs, in, n_new, n_again))
		err = vsched_evict(s, seqs, in, n_again);
	if (in->has_queues) {	/* older releases count those, too, that
				 * were looked up and found no room */
		uint64_t most = count_taken_on(s, seqs, in);

		s->has_hits &= n_new + n_again <= most;
		n_again = n_again < most ? n_again : most;
		n_new = n_new < most - n_again ? n_new : most - n_again;
	}
	vsched_sort(s, &s->waiting, 0, seqs);
	n_running = s->running.n;
	vsched_unseen_count(s, seqs, in, &n_new, &n_again);
	if (!err && n_again)
		err = take_on(s, seqs, in, n_again, VSEQ_PREEMPTED);
	if (!err && n_new)
		err = take_on(s, seqs, in, n_new, VSEQ_WAITING);
	if (!err && !vsched_is_async(s))
		err = take_on_those_with_rows(s, seqs);
	vsched_sort(s, &s->running, n_running, seqs);
	more = (int64_t)in->running - vsched_count_running(s, seqs, in, &n_aborted);
	if (!err && in->has_queues && more < 0 && !n_new && !n_again)
		err = vsched_preempt(s, seqs, in, -more);
	if (in->has_queues && more > 0) {
		int64_t late = more < n_aborted ? more : n_aborted;

		put_off_aborts(s, seqs, in, late);
		more -= late;
	}
	if (!err && in->has_queues)
		err = vsched_unseen_plan(s, seqs, in, &more);
	if (!err && in->has_queues && more > 0 && s->complete && s->unseen.none)
		err = take_on_uncounted(s, seqs, in, &more);
	s->open = in->has_queues ? more > 0 : s->waiting.n > 0;
	if (in->has_queues)
		s->complete = !s->open;
	s->open |= vsched_unseen_is_open(s, seqs, in);
	return err ? err : plan_running(s, seqs);
}

/* Those that have ended run no more, though the plan may still have them. */
static void drop_over(struct vsched *s, const struct vseq *seqs)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->running.n; i++)
		if (seqs[s->running.v[i]].state != VSEQ_OVER)
			s->running.v[kept++] = s->running.v[i];
	s->running.n = kept;
}

static void use_hits(struct vsched *s, const struct vsched_in *in, uint64_t new_hits)
{
	s->has_hits = in->has_prefix;
	s->new_hits = new_hits;
	s->again_hits = in->again_hits;
}

/* Who comes back goes first. How many of them are in a step with so much room; those
 * with output are for certain. */
static uint64_t count_back(const struct vsched *s, const struct vseq *seqs,
			   const struct vsched_in *in, int64_t *left)
{
	uint64_t n = 0;

	for (size_t i = 0; i < s->waiting.n && n < in->again_requests; i++) {
		const struct vseq *q = &seqs[s->waiting.v[i]];

		if (q->state != VSEQ_PREEMPTED)
			continue;
		if (!q->row && *left <= 0)
			break;
		*left -= vseq_all(q) > 0 ? vseq_all(q) : 0;
		n++;
	}
	return n;
}

/* Taken on in a step that counts more than its own. */
struct taken_on {
	uint64_t n_new, hits, n_again;
};

/* Asynchronous, and the step of this message was not planned: the first since the engine
 * woke, or since we joined. What was taken on may be in this step or in the next; returns
 * how many are in this one. */
static int plan_first(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		      struct taken_on *ret)
{
	struct vsched_in this = *in;
	uint64_t n = 0, hits = 0;
	bool unsure = false;
	int err;
	int64_t left = vsched_budget(s), taken = vsched_taken_by_running(s, seqs), n_aborted;
	int64_t more = (int64_t)in->running - vsched_count_running(s, seqs, in, &n_aborted);
	int64_t max = more;

	if (max < (int64_t)in->new_requests || !s->complete)
		max = in->new_requests;
	if (!s->unseen.none)
		max = 0;	/* it may be others */

	left -= taken > 0 ? taken : 0;
	ret->n_again = count_back(s, seqs, in, &left);
	for (size_t i = 0; i < s->waiting.n && (int64_t)n < max; i++) {
		struct vseq *q = &seqs[s->waiting.v[i]];

		if (q->state != VSEQ_WAITING)
			continue;
		if (q->row) {
			int64_t cached = in->rows[q->row - 1].cached;

			hits += cached > 0 ? cached : 0;
			left -= q->prompt - (cached > 0 ? cached : 0);
		} else if (left <= 0 || q->prompt - (int64_t)(in->new_hits - hits) <= left) {
			break;		/* there was room for all of it: it is in the next one */
		} else if (in->scheduled_ns && q->arrived_ns > in->scheduled_ns) {
			break;
		} else {
			left = 0;	/* a part of it, if it was in time */
			hits = in->new_hits;
			unsure = in->n_rows && q->arrived_ns + ARRIVAL_RACE_NS > in->scheduled_ns;
			q->guess |= unsure;
		}
		n++;
	}
	ret->n_new = n;
	ret->hits = hits;
	this.has_queues = false;	/* they tell of the next step */
	use_hits(s, in, hits);
	err = plan(s, seqs, &this, n, ret->n_again);
	/* Who runs unseen now was in this one, too, or will be in the next one. */
	s->open = unsure || s->turned || s->unseen.unsettled ||
		  (!s->unseen.none && (in->n_rows || in->running) && (more > 0 || in->new_requests));
	return err;
}

static int step_async(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		      struct vsched_out *ret)
{
	struct taken_on first = { 0 };
	int err = 0;

	/* All lost their place while the step was under way: its outputs are thrown away.
	 * With outputs it is none that was under way: the engine had paused, and this is
	 * what it began anew with. */
	s->thrown_away = vsched_is_evicted(s, seqs, in, in->new_requests, in->again_requests);
	if (s->thrown_away && in->n_rows) {
		s->thrown_away = s->planned = false;
		err = drop_plan(s, seqs);
		if (!err)
			err = vsched_evict(s, seqs, in, in->again_requests);
	}
	if (!err && !s->planned)
		err = plan_first(s, seqs, in, &first);
	if (!err) {
		drop_over(s, seqs);
		err = vsched_settle(s, seqs, in, ret);
	}
	s->thrown_away = false;
	if (err)
		return err;
	use_hits(s, in, in->new_hits > first.hits ? in->new_hits - first.hits : 0);
	err = plan(s, seqs, in, in->new_requests > first.n_new ? in->new_requests - first.n_new : 0,
		   in->again_requests - first.n_again);
	drop_over(s, seqs);
	/* Behind a message of no step nothing is under way, but for what was taken on meanwhile. */
	s->planned = ret->is_step || s->plan.n;
	return err;
}

static int step_sync(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		     struct vsched_out *ret)
{
	size_t n_running;
	int err;

	use_hits(s, in, in->new_hits);
	err = plan(s, seqs, in, in->new_requests, in->again_requests);
	if (!err)
		err = vsched_settle(s, seqs, in, ret);
	drop_over(s, seqs);
	n_running = s->running.n;
	if (!err)
		err = drop_aborted(s, &s->running, seqs, in->end_ns);
	s->unsure |= !s->async_votes && s->running.n < n_running;
	if (!err)
		err = drop_aborted(s, &s->waiting, seqs, in->end_ns);
	s->plan.n = 0;
	s->planned = false;
	return err;
}

bool vsched_only_ends(const struct vsched_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!rows[i].failed || rows[i].n_tokens > 0)
			return false;
	return n > 0;
}

static int end_these(struct vsched *s, struct vseq *seqs, const struct vsched_in *in)
{
	int err = 0;

	for (size_t i = 0; i < in->n_rows; i++) {
		struct vseq *q = &seqs[in->rows[i].slot];

		if (!q->abort_ns || q->abort_ns > in->end_ns)
			q->abort_ns = in->end_ns;
	}
	if (!s->planned)	/* else the step that is under way may have them */
		err = drop_aborted(s, &s->running, seqs, in->end_ns);
	return err ? err : drop_aborted(s, &s->waiting, seqs, in->end_ns);
}

static int follow(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		  struct vsched_out *ret)
{
	bool unseen = !s->unseen.none;
	int err;

	vsched_see_rows(seqs, in);
	err = vsched_unseen_hear(s, seqs, in);
	if (err)
		return err;
	s->turned = !vsched_is_async(s) && unseen;
	vsched_look_for_mode(s, seqs, in);
	s->turned &= vsched_is_async(s);
	err = s->planned && vsched_is_async(s) ? 0 : drop_plan(s, seqs);
	if (!err)
		err = vsched_is_async(s) ? step_async(s, seqs, in, ret)
					 : step_sync(s, seqs, in, ret);
	if (!err)
		err = vsched_mend_waiting(s, seqs, in);
	for (size_t i = 0; i < in->n_rows; i++)
		seqs[in->rows[i].slot].row = 0;
	return err;
}

void vsched_see_rows(struct vseq *seqs, const struct vsched_in *in)
{
	for (size_t i = 0; i < in->n_rows; i++)
		seqs[in->rows[i].slot].row = i + 1;
}

int vsched__step(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		 struct vsched_out *ret)
{
	uint32_t spare = s->unseen.spare;
	int err;

	ret->n = 0;
	ret->is_step = ret->guess = ret->open = ret->began = false;
	s->preempted.n = s->over.n = 0;
	if (vsched_only_ends(in->rows, in->n_rows) && !in->has_queues && !in->has_prefix)
		err = end_these(s, seqs, in);
	else
		err = follow(s, seqs, in, ret);
	s->unseen.before_ns = in->begin_ns;
	ret->began = spare && s->unseen.runs == spare;
	ret->preempted = s->preempted.v;
	ret->n_preempted = s->preempted.n;
	ret->over = s->over.v;
	ret->n_over = s->over.n;
	return err;
}
