/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of vLLM's that came before the capture and have shown nothing yet: do
 * they wait, does one run? */
#include "engine/vllm_sched_priv.h"
#include "base/num.h"

/*
 * Of what came before us, the engine counts how many wait and run, and names those that give
 * output. The others are told by the scheduler's rules:
 *
 *  - who came first is taken on first (but for priorities and adapters), so once one whose arrival
 *    we saw has given its first output, all that came before it on the same socket have shown, too:
 *    or they would have left it no room in the step;
 *  - as many wait unseen as wait there, less those that we know to wait: at least, for one
 *    that we know may be on its way still. At most, too, once all that came before us has
 *    had the time to get there;
 *  - one that runs unseen is in the middle of its prompt, and had all that the
 *    others left of the step.
 *
 * Where these leave open who it was that was taken on without output, the step is marked.
 */

enum {
	RACE_NS = 5000000,	/* what came to two API servers within it,
				 * may be queued the other way round */
	GRACE_NS = 2000000000,	/* it takes no longer from the socket to the scheduler,
				 * however busy the host and the engine ... */
	IDLE_NS = 500000000,	/* ... or this, if the engine is idle */
};

/* The waiting ones, as a message leaves them. */
struct waiting {
	uint64_t known;		/* whose arrival we saw, before the message ... */
	uint64_t sure;		/* ... so long ago that the scheduler has them ... */
	uint64_t likely;	/* ... or probably has */
	uint64_t preempted;	/* of the known ones */
	uint64_t joined, shown;	/* with output in it: unseen until now, known ... */
	uint64_t counted_before;	/* ... and those that were taken on in a step before */
	const struct vseq *first;	/* of the known ones that were not taken on
					 * and have none, NULL: there is none */
};

static bool gives_first_output(const struct vseq *q, const struct vsched_row *row)
{
	return !q->n_out && row->n_tokens > 0 &&
	       (q->state == VSEQ_WAITING || q->state == VSEQ_PREFILL);
}

/* Is who came first taken on first? */
static bool is_first_come(const struct vsched *s)
{
	return !s->by_priority && !s->few_loras;
}

/* It was in the middle of its prompt already. Planned ahead, a step is scheduled before the
 * one before it has ended. */
static bool ran_before(const struct vsched *s, const struct vsched_in *in, const struct vseq *q)
{
	uint64_t ns = in->rows[q->row - 1].scheduled_ns;

	return in->begin_ns < in->end_ns && ns &&
	       ns < (vsched_is_async(s) ? s->unseen.before_ns : in->begin_ns);
}

/* It says that it was taken on in this step. */
static bool is_taken_on(const struct vsched *s, const struct vsched_in *in, const struct vseq *q)
{
	return in->rows[q->row - 1].scheduled_ns && in->begin_ns < in->end_ns &&
	       !ran_before(s, in, q);
}

static struct waiting look_at_waiting(const struct vsched *s, const struct vseq *seqs,
				      const struct vsched_in *in)
{
	/* Of the first message the begin is not known. */
	bool exact = !s->unseen.counted && in->begin_ns < in->end_ns;
	uint64_t begin_ns = exact ? in->begin_ns : less(in->begin_ns, VSCHED_ON_THE_WAY_NS);
	struct waiting w = { 0 };

	for (size_t i = 0; i < s->waiting.n; i++) {
		const struct vseq *q = &seqs[s->waiting.v[i]];
		bool has_row = q->row && q->state == VSEQ_WAITING;
		bool in_time = has_row && !ran_before(s, in, q);

		w.counted_before += has_row && !in_time;
		if (!q->arrived_ns) {
			w.joined += in_time;
			continue;
		}
		w.known += q->arrived_ns <= in->end_ns;
		w.likely += q->arrived_ns <= begin_ns;
		w.sure += q->arrived_ns + GRACE_NS <= in->end_ns;
		w.preempted += q->state == VSEQ_PREEMPTED;
		w.shown += in_time;
		if (!w.first && !q->row && q->state == VSEQ_WAITING && q->arrived_ns <= in->end_ns)
			w.first = q;
	}
	return w;
}

/* ---- what the rows tell ---- */

static void erase_from(struct vslots *v, uint32_t slot)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->v[i] == slot) {
			vslots_erase(v, i);
			return;
		}
}

static void replace(struct vslots *v, uint32_t slot, uint32_t by)
{
	for (size_t i = 0; i < v->n; i++)
		if (v->v[i] == slot)
			v->v[i] = by;
}

/* The one that ran unseen was this one all the time. */
static void take_its_place(struct vsched *s, struct vseq *from, struct vseq *q)
{
	replace(&s->running, from->slot, q->slot);
	replace(&s->plan, from->slot, q->slot);
	erase_from(&s->waiting, q->slot);
	q->state = VSEQ_PREFILL;
	q->guess = true;
	q->computed = from->computed;
	q->n_parts = from->n_parts;
	q->others = from->others;
}

int vsched_unseen_put_back(struct vsched *s, struct vseq *seqs, struct vseq *q)
{
	int err = vslots_push(&s->waiting, q->slot);
	size_t to = 0;

	if (err)
		return err;
	erase_from(&s->plan, q->slot);
	erase_from(&s->running, q->slot);
	q->state = VSEQ_WAITING;
	q->doubt = q->guess = false;
	q->computed = q->n_parts = q->others = q->fresh = 0;
	q->cached = -1;
	while (seqs[s->waiting.v[to]].arrived_ns < q->arrived_ns)
		to++;
	for (size_t i = s->waiting.n - 1; i > to; i--)
		s->waiting.v[i] = s->waiting.v[i - 1];
	s->waiting.v[to] = q->slot;
	return 0;
}

/* Taken for the one that was taken on, and it was not: another one, `shows`, came before
 * it, or it says so itself. */
static int give_back(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		     struct vseq *shows)
{
	for (size_t i = s->running.n; i-- > 0;) {
		struct vseq *q = &seqs[s->running.v[i]];
		int err;

		if (!q->doubt || q->state != VSEQ_PREFILL ||
		    (q->row ? !q->computed || !is_taken_on(s, in, q) : !shows))
			continue;
		if (shows && shows->state == VSEQ_WAITING && ran_before(s, in, shows))
			take_its_place(s, q, shows);
		err = vsched_unseen_put_back(s, seqs, q);
		if (err)
			return err;
	}
	return 0;
}

/* All that came before us has shown, but for one that runs: it is one that we know. */
static int find_out(struct vsched *s, struct vseq *seqs, const struct vsched_in *in)
{
	struct vseq *runs = &seqs[s->unseen.runs - 1], *known = NULL;
	int64_t n_aborted;

	if (runs->row || runs->state != VSEQ_PREFILL)
		return 0;
	for (size_t i = 0; i < s->waiting.n; i++) {
		struct vseq *q = &seqs[s->waiting.v[i]];

		if (q->state != VSEQ_WAITING || !q->arrived_ns)
			continue;
		if (q->row && (vsched_is_async(s) || !is_taken_on(s, in, q))) {
			known = q;
			break;
		}
		if (!q->row && !known)
			known = q;
	}
	if (known && (int64_t)in->running >= vsched_count_running(s, seqs, in, &n_aborted))
		take_its_place(s, runs, known);
	return vsched_unseen_leaves(s, seqs);
}

static void all_known(struct vsched *s)
{
	s->unseen.none = true;
	/* Rows may be of one step and counters of the next: who of the known
	 * ones was taken for whom? */
	s->unseen.unsettled = s->unseen.muddled && s->async_votes >= 0;
}

int vsched_unseen_hear(struct vsched *s, struct vseq *seqs, const struct vsched_in *in)
{
	struct vunseen *u = &s->unseen;
	struct vseq *came_first = NULL;
	bool known = false;
	int err = 0;

	u->found_out = false;
	for (size_t i = 0; i < in->n_rows; i++) {
		struct vseq *q = &seqs[in->rows[i].slot];

		if (!gives_first_output(q, &in->rows[i]))
			continue;
		if ((q->state == VSEQ_WAITING || !u->none) && !q->computed && ran_before(s, in, q))
			q->guess = true;	/* a part of it was computed before */
		if (u->none && u->n_clients < 2)
			continue;
		if (is_taken_on(s, in, q) && !vsched_is_async(s))
			q->guess = false;	/* all of it in this step */
		if (!came_first && q->state == VSEQ_WAITING && (!q->arrived_ns || u->n_clients > 1))
			came_first = q;
		if (q->arrived_ns <= u->since_ns)
			continue;
		u->heard |= 1ull << (q->client & 63);
		known = true;
	}
	if (!u->none || u->n_clients > 1)
		err = give_back(s, seqs, in, came_first);
	if (err || u->none || !known || !is_first_come(s) ||
	    (unsigned)__builtin_popcountll(u->heard) < u->n_clients)
		return err;
	all_known(s);
	u->found_out = s->complete = true;	/* who else runs is one of the known ones */
	return u->runs ? find_out(s, seqs, in) : 0;
}

int vsched_unseen_leaves(struct vsched *s, struct vseq *seqs)
{
	uint32_t slot = s->unseen.runs - 1;

	s->unseen.runs = 0;
	erase_from(&s->running, slot);
	erase_from(&s->plan, slot);
	seqs[slot].given_up = true;
	return vslots_push(&s->over, slot);
}

/* ---- what the counters tell ---- */

/* The engine was idle when the first request came that we saw: it had said nothing for so long. */
static bool was_idle(const struct vunseen *u, const struct vsched_in *in, uint64_t n_new)
{
	return !u->counted && in->woke && in->begin_ns < in->end_ns &&
	       in->begin_ns > u->since_ns + IDLE_NS && in->running <= n_new;
}

/* Of `n` that were taken on without output, how many were unseen ones? */
static uint64_t count_unseen(struct vsched *s, const struct vseq *seqs, const struct waiting *w,
			     uint64_t least, uint64_t n)
{
	struct vunseen *u = &s->unseen;

	if (!n || !w->first || (least >= n && is_first_come(s)))
		return n;
	if (u->bounded && !u->most)
		return 0;
	if (s->async_votes < 0 && n == 1 && is_first_come(s) &&
	    vsched_would_show(s, seqs, w->first))
		return 1;
	u->doubt = true;
	return u->likely < n ? u->likely : n;
}

void vsched_unseen_count(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
			 uint64_t *n_new, uint64_t *n_again)
{
	struct vunseen *u = &s->unseen;
	bool sync = !vsched_is_async(s);	/* else rows are of the step before */
	uint64_t there = in->waiting + *n_new + *n_again, least, shown, joined, silent;
	struct waiting w;

	u->doubt = false;
	u->n_taken_on = 0;
	if (was_idle(u, in, *n_new))
		u->none = true;
	if (u->none || !in->has_queues)
		return;
	w = look_at_waiting(s, seqs, in);
	if (!u->counted)
		u->likely = in->running + in->waiting > s->running.n + s->waiting.n ?
				    less(there, w.likely) : 0;
	least = less(there, w.known);
	/* Some were aborted. */
	u->likely = u->likely < less(there, w.likely) ? u->likely : less(there, w.likely);
	u->likely = u->likely > least ? u->likely : least;
	if (u->bounded && u->likely > u->most)
		u->likely = u->most;
	if (*n_again > w.preempted) {
		uint64_t n = less(*n_again, w.preempted);

		u->likely = less(u->likely, n);
		*n_again -= n;
		s->has_hits = false;
	}
	joined = sync ? w.joined : 0;
	joined = joined < *n_new ? joined : *n_new;
	shown = sync ? w.shown : 0;
	silent = less(*n_new, joined + shown);
	u->likely = less(u->likely, joined);
	if (s->async_votes < 0)
		u->most = less(u->most, joined);
	u->n_taken_on = count_unseen(s, seqs, &w, less(least, joined), silent);
	u->likely = less(u->likely, u->n_taken_on);
	if (s->async_votes)
		u->most = less(u->most, silent);
	*n_new += (sync ? w.counted_before : 0) - u->n_taken_on;
	s->has_hits &= !u->n_taken_on || sync;
}

/* Is there one that runs unseen, and no more than one? */
static bool one_runs(const struct vsched *s, int64_t more)
{
	return more == 1 && s->unseen.spare && !s->unseen.runs;
}

static int let_it_run(struct vsched *s, struct vseq *seqs)
{
	struct vunseen *u = &s->unseen;
	struct vseq *q = &seqs[u->spare - 1];

	q->unseen = q->guess = true;
	q->state = VSEQ_PREFILL;
	q->fresh = u->n_taken_on ? VSEQ_NEW : 0;
	u->runs = u->spare;
	u->spare = 0;
	return vslots_push(&s->running, q->slot);
}

static bool any_in_prefill(const struct vsched *s, const struct vseq *seqs)
{
	for (size_t i = 0; i < s->running.n; i++)
		if (seqs[s->running.v[i]].state == VSEQ_PREFILL)
			return true;
	return false;
}

static bool any_in_doubt(const struct vsched *s, const struct vseq *seqs)
{
	for (size_t i = 0; i < s->running.n; i++)
		if (seqs[s->running.v[i]].doubt)
			return true;
	return false;
}

int vsched_unseen_plan(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		       int64_t *more)
{
	struct vunseen *u = &s->unseen;
	struct waiting w;
	int err = 0;

	if (u->unsettled && in->has_queues)
		u->unsettled = *more || in->new_requests || any_in_prefill(s, seqs);
	if (u->none || !in->has_queues)
		return 0;
	for (size_t i = 0; i < s->running.n && u->doubt; i++) {
		struct vseq *q = &seqs[s->running.v[i]];

		if (q->fresh == VSEQ_NEW && q->arrived_ns && !q->row)
			q->doubt = q->guess = true;
	}
	w = look_at_waiting(s, seqs, in);
	if (one_runs(s, *more)) {
		/* Or it does not read the prefix cache, or begins to run in the next step. */
		u->doubt |= !u->n_taken_on &&
			    ((w.first && u->counted) || (in->new_requests && !s->async_votes));
		err = let_it_run(s, seqs);
		--*more;
	}
	if (in->end_ns > u->since_ns + GRACE_NS) {
		uint64_t most = less(in->waiting, w.sure);

		u->most = u->bounded && u->most < most ? u->most : most;
		u->bounded = true;
	}
	u->counted = true;
	u->muddled |= u->doubt || u->runs || *more > 0;
	if (u->bounded && !u->most && !u->runs && *more <= 0 && !u->doubt && !any_in_doubt(s, seqs))
		all_known(s);
	return err;
}

bool vsched_may_be_another(const struct vsched *s, const struct vseq *seqs, const struct vseq *q)
{
	for (size_t i = 0; i < s->waiting.n && s->unseen.n_clients > 1; i++) {
		const struct vseq *other = &seqs[s->waiting.v[i]];

		if (other->client != q->client && !other->row && other->state == q->state &&
		    other->arrived_ns < q->arrived_ns + RACE_NS &&
		    !vsched_would_show(s, seqs, other))
			return true;
	}
	return false;
}

bool vsched_unseen_is_open(const struct vsched *s, const struct vseq *seqs,
			   const struct vsched_in *in)
{
	const struct vunseen *u = &s->unseen;
	/* In the first of all messages, and behind an abort, one may be missing
	 * that is computed in vain. */
	bool open = u->doubt || !in->has_queues || in->begin_ns >= in->end_ns ||
		    (u->abort_ns && u->abort_ns + VSCHED_ON_THE_WAY_NS > in->begin_ns);

	if (in->has_queues && !in->running && !in->n_rows)
		return false;	/* it may be no step at all */
	return u->none ? u->unsettled : open || any_in_doubt(s, seqs);
}

bool vsched__wants_spare(const struct vsched *s, struct vseq *seqs, const struct vsched_in *in)
{
	int64_t more = in->running, n_aborted;

	if (s->unseen.none || s->unseen.runs || !in->has_queues)
		return false;
	vsched_see_rows(seqs, in);
	more -= vsched_count_running(s, seqs, in, &n_aborted);
	for (size_t i = 0; i < s->waiting.n; i++) {
		const struct vseq *q = &seqs[s->waiting.v[i]];

		more -= q->row && !in->rows[q->row - 1].finished;
	}
	return more > 0;
}
