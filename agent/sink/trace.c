/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the time of one request along its points and its sequence's steps. */
#include "sink/trace.h"
#include "base/num.h"
#include "base/pct.h"
#include "model/evidence.h"
#include "model/leads.h"
#include "model/room.h"
#include "sink/gpu_words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A span without any step is host work (sampling, building the batch) as long as it is like the
 * others of its kind; what is longer than this and than four times their median has no evidence. */
enum { MAX_BETWEEN_NS = 2000000 };

const char *const part_names[N_PARTS] = {
	[PART_READ] = "arrival to read by the server",
	[PART_BEFORE_SUBMIT] = "in the front end (parse, tokenize)",
	[PART_WAIT_SLOT] = "waiting for a slot",
	[PART_WAIT_STEP] = "until a step could take it in",
	[PART_WAIT_QUEUE] = "in the queue, not scheduled",
	[PART_PREFILL] = "prefill steps",
	[PART_PARKED] = "parked after preemption",
	[PART_RECOMPUTE] = "recompute steps after preemption",
	[PART_DECODE] = "decode steps",
	[PART_LATE_WAIT] = "its last answer not scheduled yet",
	[PART_LATE_PREFILL] = "prefill steps of its last answer",
	[PART_BETWEEN] = "between steps (sampling, host)",
	[PART_OTHER_STEPS] = "steps of others",
	[PART_DELIVERY] = "delivery of the last token",
	[PART_END] = "end of the response",
	[PART_SERVER] = "in the server, not joined to steps",
	[PART_STREAM] = "streaming, not joined to steps",
	[PART_OPEN] = "still under way when the recording ended",
	[PART_UNEXPLAINED] = "unexplained",
};

void trace__free(struct trace *t)
{
	free(t->segs);
	free(t->losses);
	t->segs = NULL;
	t->losses = NULL;
	t->n = t->cap = t->n_losses = 0;
}

/* Appends a segment from where the last one ended; nothing if that is not before `until`. Later
 * segments never begin before earlier ones end: overlapping steps count once. */
static struct segment *add(struct trace *t, enum part part, uint64_t until, int *err)
{
	uint64_t from = t->n ? t->segs[t->n - 1].t1_ns : t->t0_ns;
	struct segment *s;

	if (until > t->t1_ns)
		until = t->t1_ns;
	if (*err || until <= from)
		return &t->nowhere;
	if (t->n == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 64;

		s = realloc(t->segs, cap * sizeof(*s));
		if (!s) {
			*err = -ENOMEM;
			return &t->nowhere;
		}
		t->segs = s;
		t->cap = cap;
	}
	s = &t->segs[t->n++];
	*s = (struct segment){ .t0_ns = from, .t1_ns = until, .part = part };
	if (t->q)
		s->seq = (uint32_t)(t->q - t->v->seqs);
	return s;
}

/* ---- the sequence and its slot ---- */

static uint64_t seq_end_ns(const struct model_view *v, const struct rec_sequence *q)
{
	return q->n_visits ? v->steps[q->visits[q->n_visits - 1].step].t1_ns : 0;
}

/* The sequence that had the slot before; sequences are in order of their start. */
static const struct rec_sequence *slot_predecessor(const struct model_view *v,
						   const struct rec_sequence *q)
{
	for (const struct rec_sequence *p = q; p-- > v->seqs;)
		if (p->engine == q->engine && p->slot == q->slot && p->n_visits)
			return p;
	return NULL;
}

/* ---- before its first step ---- */

/* Steps of its engine that ran in the segment, looking back from a step of its own. */
static void find_steps_in(const struct trace *t, struct segment *s, uint32_t before)
{
	for (uint32_t i = before; i-- > 0;) {
		const struct rec_step *st = &t->v->steps[i];

		if (st->engine != t->q->engine || st->t0_ns >= s->t1_ns)
			continue;
		if (st->t1_ns <= s->t0_ns)
			return;
		s->step = i;
		s->n_steps++;
	}
}

static void add_wait(struct trace *t, enum part part, uint64_t until, uint32_t before, int *err)
{
	size_t n = t->n;

	add(t, part, until, err);
	if (t->n > n)
		find_steps_in(t, &t->segs[n], before);
}

/* When the first step of its engine began that could have had it. One that began while it came, with
 * room for it, could not: then it is in the next one beside all of that one's members. */
static uint64_t next_step_ns(const struct trace *t)
{
	uint64_t from = t->n ? t->segs[t->n - 1].t1_ns : t->t0_ns;
	uint64_t own = t->v->steps[t->q->visits[0].step].t0_ns, next = own;
	uint32_t first = 0, n = 0;

	for (uint32_t i = t->q->visits[0].step; i-- > 0;) {
		const struct rec_step *st = &t->v->steps[i];

		if (st->engine != t->q->engine)
			continue;
		if (st->t1_ns <= from)
			break;
		if (st->t0_ns < from || st->t0_ns >= own)
			continue;
		n++;
		if (st->t0_ns < next) {
			next = st->t0_ns;
			first = i;
		}
	}
	return n == 1 && step_all_run_on(t->v, first) && !step_cuts_a_prompt(t->v, first) ? own
											  : next;
}

/* Until when its slot was another's while none was left; 0: it did not wait for that. */
static uint64_t slot_freed_ns(const struct trace *t, const struct rec_sequence *before)
{
	uint32_t n_slots = t->v->engines[t->q->engine].n_slots, last;

	if (!before)
		return 0;
	last = before->visits[before->n_visits - 1].step;
	return t->v->steps[last].n_members < n_slots ? 0 : t->v->steps[last].t1_ns;
}

static void add_before_steps(struct trace *t, int *err)
{
	const struct rec_request *r = t->r;
	const struct rec_sequence *before = slot_predecessor(t->v, t->q);
	uint32_t own = t->q->visits[0].step;
	uint64_t first_step = t->v->steps[own].t0_ns;
	uint64_t freed = slot_freed_ns(t, before);
	size_t n;

	add(t, PART_READ, r->at_ns[P_REQ_LAST_BYTE], err);
	add(t, PART_BEFORE_SUBMIT, r->at_ns[P_SUBMIT], err);
	if (t->q->joined_late) { /* its slot and its first steps are older than the capture */
		add(t, PART_UNEXPLAINED, first_step, err);
		return;
	}
	if (t->v->steps[own].inferred) {
		/* of steps that are made of launches, before these were looked for */
		uint64_t until = 0;

		if (!*err)
			*err = gpu_blind_until(t->v, t->q->engine, &until);
		add(t, PART_UNEXPLAINED, until < first_step ? until : first_step, err)->blind = true;
	}
	n = t->n;
	add_wait(t, PART_WAIT_SLOT, freed < first_step ? freed : first_step, own, err);
	if (t->n > n)
		t->slot_holder = before;
	add_wait(t, PART_WAIT_STEP, next_step_ns(t), own, err);
	if (t->q->open_ns) {	/* then it waited or was computed: nobody knows */
		add_wait(t, PART_WAIT_QUEUE, t->q->open_ns, own, err);
		add_wait(t, PART_UNEXPLAINED, first_step, own, err);
		return;
	}
	add_wait(t, PART_WAIT_QUEUE, first_step, own, err);
}

/* ---- its steps and what lies between ---- */

static enum part part_of(const struct rec_visit *visit)
{
	if (visit->again)
		return PART_RECOMPUTE;
	return visit->phase == TL_PREFILL ? PART_PREFILL : PART_DECODE;
}

struct loss_span {
	uint64_t since_ns, until_ns;
};

static int by_since(const void *pa, const void *pb)
{
	const struct loss_span *a = pa, *b = pb;

	return a->since_ns < b->since_ns ? -1 : a->since_ns > b->since_ns;
}

static int find_losses(struct trace *t)
{
	const struct model_view *v = t->v;
	struct loss_span *l;
	bool sorted = true;
	size_t n = 0;

	if (!v->n_lost)
		return 0;
	t->losses = l = malloc(v->n_lost * sizeof(*l));
	if (!l)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_lost; i++) {
		const struct rec_lost *r = &v->lost[i];

		if ((r->where != TL_LOST_RING && r->where != TL_LOST_SCRATCH) ||
		    r->until_ns < t->t0_ns)
			continue;
		sorted &= !n || l[n - 1].since_ns <= r->since_ns;
		l[n++] = (struct loss_span){ r->since_ns, r->until_ns };
	}
	if (!sorted)
		qsort(l, n, sizeof(*l), by_since);
	for (size_t i = 1; i < n; i++)
		l[i].until_ns = most(l[i].until_ns, l[i - 1].until_ns);
	t->n_losses = n;
	return 0;
}

static bool in_lost(const struct trace *t, uint64_t t0, uint64_t t1)
{
	size_t lo = 0, hi = t->n_losses;	/* the first one that ends at t0 or later */

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->losses[mid].until_ns < t0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < t->n_losses && t->losses[lo].since_ns <= t1;
}

static void add_hole(struct trace *t, uint64_t until, uint64_t max_ns, int *err)
{
	uint64_t from = t->n ? t->segs[t->n - 1].t1_ns : t->t0_ns;
	bool lost;

	if (until <= from)
		return;
	lost = in_lost(t, from, until);
	if (!lost && until - from <= max_ns)
		add(t, PART_BETWEEN, until, err);
	else
		add(t, PART_UNEXPLAINED, until, err)->in_lost = lost;
}

/* How long may a hole be? From those of this sequence; 0 visits have none. */
static int longest_hole(const struct trace *t, uint64_t *ret_ns)
{
	const struct rec_sequence *q = t->q;
	uint64_t *holes, median;
	size_t n = 0;

	*ret_ns = MAX_BETWEEN_NS;
	if (q->n_visits < 2)
		return 0;
	holes = malloc(q->n_visits * sizeof(*holes));
	if (!holes)
		return -ENOMEM;
	for (size_t i = 1; i < q->n_visits; i++) {
		uint64_t end = t->v->steps[q->visits[i - 1].step].t1_ns;
		uint64_t begin = t->v->steps[q->visits[i].step].t0_ns;

		holes[n++] = begin > end ? begin - end : 0;
	}
	median = pct_u64(holes, n, 500);
	free(holes);
	if (4 * median > *ret_ns)
		*ret_ns = 4 * median;
	return 0;
}

/* Did it lose its place between its step number i - 1 and this one? *next: the first preemption that may be
 * behind the step before; asked for one step after the other. */
static bool was_preempted(const struct trace *t, size_t i, uint32_t *next)
{
	const struct rec_sequence *q = t->q;
	uint64_t from, until;

	if (!i)
		return false;
	if (q->visits[i].again && !q->visits[i - 1].again)
		return true;
	from = t->v->steps[q->visits[i - 1].step].t0_ns;
	until = t->v->steps[q->visits[i].step].t0_ns;
	while (*next < q->n_preemptions && q->preemptions[*next].at_ns < from)
		++*next;
	return *next < q->n_preemptions && q->preemptions[*next].at_ns < until;
}

/* What filled the time between two steps of its own. */
static void add_others(struct trace *t, uint32_t after, uint32_t before, uint64_t max_ns, int *err)
{
	const struct rec_step *own = &t->v->steps[before];

	for (uint32_t o = after + 1; o < before; o++) {
		const struct rec_step *other = &t->v->steps[o];

		if (other->engine != t->q->engine || other->t0_ns >= own->t0_ns)
			continue;
		add_hole(t, other->t0_ns, max_ns, err);
		add(t, PART_OTHER_STEPS, other->t1_ns < own->t0_ns ? other->t1_ns : own->t0_ns, err)
			->step = o;
	}
}

/* Had it lost its place when the last thing of it was seen? */
static bool ends_parked(const struct trace *t)
{
	const struct rec_sequence *q = t->q;
	const struct rec_preemption *last = q->n_preemptions ? &q->preemptions[q->n_preemptions - 1]
							     : NULL;

	return last && !last->resumed_ns && t->r->state != REQ_COMPLETE &&
	       last->at_ns >= t->v->steps[q->visits[q->n_visits - 1].step].t0_ns;
}

/* One more step of the sequence that is followed, and what was between it and the one before. */
static void add_visit(struct trace *t, size_t i, uint64_t max_ns, uint32_t *next, enum part part, int *err)
{
	const struct rec_sequence *q = t->q;
	uint32_t step = q->visits[i].step;
	const struct rec_step *own = &t->v->steps[step];

	if (was_preempted(t, i, next)) {
		add_wait(t, PART_PARKED, own->t0_ns, step, err);
	} else {
		add_others(t, i ? q->visits[i - 1].step : step, step, max_ns, err);
		add_hole(t, own->t0_ns, max_ns, err);
	}
	add(t, part, own->t1_ns, err)->step = step;
}

/* Up to its visit `until`, that included. */
static void add_own_steps(struct trace *t, size_t until, int *err)
{
	uint64_t max_ns = 0;
	uint32_t next = 0;

	if (!*err)
		*err = longest_hole(t, &max_ns);
	for (size_t i = 0; i < t->q->n_visits && i <= until && !*err; i++)
		add_visit(t, i, max_ns, &next, part_of(&t->q->visits[i]), err);
}

/* Behind the first token the answer that ended last is followed. If it was in no step by then, that is no queue of the
 * request: it had a token. */
static void add_late_answer(struct trace *t, int *err)
{
	const struct rec_sequence *q = t->q;
	uint64_t from = t->n ? t->segs[t->n - 1].t1_ns : t->t0_ns, max_ns = 0;
	uint32_t next = 0;

	if (!*err)
		*err = longest_hole(t, &max_ns);
	for (size_t i = 0; i < q->n_visits && !*err; i++) {
		const struct rec_step *own = &t->v->steps[q->visits[i].step];
		enum part part = part_of(&q->visits[i]);
		size_t n = t->n;

		if (own->t1_ns <= from)
			continue;
		if (!i && own->t0_ns > from) {
			add_wait(t, PART_LATE_WAIT, own->t0_ns, q->visits[i].step, err);
			if (t->n > n && !t->segs[n].n_steps && own->t0_ns - from <= max_ns) {
				t->segs[n].part = PART_BETWEEN;
				t->segs[n].step = 0;
			}
		}
		add_visit(t, i, max_ns, &next, part == PART_PREFILL ? PART_LATE_PREFILL : part, err);
	}
}

static void add_steps(struct trace *t, const struct leads *l, int *err)
{
	const struct rec_sequence *last = t->q;

	if (t->first)
		t->q = t->first;
	add_before_steps(t, err);
	add_own_steps(t, t->first ? l->first_visit : SIZE_MAX, err);
	t->q = last;
	if (t->first)
		add_late_answer(t, err);
}

/* ---- totals ---- */

uint64_t trace__prefill_of_others(const struct trace *t, const struct segment *s, uint32_t step, uint32_t *ret_seq)
{
	const struct rec_step *st = &t->v->steps[step];
	uint64_t tokens = 0;
	uint32_t most = 0;

	for (uint32_t i = 0; i < st->n_members; i++) {
		const struct rec_member *m = &t->v->members[st->first_member + i];

		if (m->phase != TL_PREFILL || m->seq == s->seq)
			continue;
		tokens += m->n_tokens;
		if (m->n_tokens > most) {
			most = m->n_tokens;
			*ret_seq = m->seq;
		}
	}
	return tokens;
}

static uint64_t prefill_of(const struct trace *t, uint32_t step, uint32_t seq)
{
	const struct rec_step *st = &t->v->steps[step];
	uint64_t n = 0;

	for (uint32_t i = 0; i < st->n_members; i++) {
		const struct rec_member *m = &t->v->members[st->first_member + i];

		n += m->phase == TL_PREFILL && m->seq == seq ? m->n_tokens : 0;
	}
	return n;
}

static int add_up_decode(struct trace *t)
{
	uint64_t *plain = malloc((t->n + 1) * sizeof(*plain));
	size_t n = 0;

	if (!plain)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++) {
		const struct segment *s = &t->segs[i];
		uint32_t seq;

		if (s->part != PART_DECODE)
			continue;
		if (!trace__prefill_of_others(t, s, s->step, &seq)) {
			plain[n++] = s->t1_ns - s->t0_ns;
			continue;
		}
		t->n_shared++;
		t->shared_ns += s->t1_ns - s->t0_ns;
		crowd__add_prefill(&t->shared, t->v, s->step, s->seq);
	}
	if (n)
		t->median_decode_ns = pct_u64(plain, n, 500);
	free(plain);
	return 0;
}

static void add_up_prefill(struct trace *t)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct segment *s = &t->segs[i];
		uint32_t seq;

		if (s->part != PART_PREFILL)
			continue;
		if (trace__prefill_of_others(t, s, s->step, &seq) >
		    prefill_of(t, s->step, s->seq))
			t->crowded_ns += s->t1_ns - s->t0_ns;
		crowd__add_prefill(&t->beside, t->v, s->step, s->seq);
	}
}

static void add_up(struct trace *t)
{
	uint64_t first_token = t->r->at_ns[P_FIRST_TOKEN_ENGINE];
	uint64_t on_wire = t->r->at_ns[P_FIRST_TOKEN_WIRE];

	if (!first_token)
		first_token = on_wire;
	for (size_t i = 0; i < t->n; i++) {
		const struct segment *s = &t->segs[i];

		t->sum_ns[s->part] += s->t1_ns - s->t0_ns;
		t->n_prefill_steps += s->part == PART_PREFILL;
		t->n_late_prefill_steps += s->part == PART_LATE_PREFILL;
		t->n_recompute_steps += s->part == PART_RECOMPUTE;
		t->n_parked += s->part == PART_PARKED;
		t->n_decode_steps += s->part == PART_DECODE;
		if (s->t0_ns < first_token)
			t->ttft_ns[s->part] +=
				(s->t1_ns < first_token ? s->t1_ns : first_token) - s->t0_ns;
	}
	if (on_wire > first_token)
		t->ttft_ns[PART_DELIVERY] += on_wire - first_token;
}

static void add_unjoined(struct trace *t, int *err)
{
	const struct rec_request *r = t->r;
	uint64_t written = r->at_ns[P_FIRST_TOKEN_WIRE];

	if (!written)
		written = r->at_ns[P_HEADERS] ? r->at_ns[P_HEADERS] : r->joined_late ? 0 : t->t1_ns;
	add(t, PART_READ, r->at_ns[P_REQ_LAST_BYTE], err);
	add(t, PART_BEFORE_SUBMIT, r->at_ns[P_SUBMIT], err);
	add(t, PART_SERVER, written, err);
	add(t, PART_STREAM, r->at_ns[P_LAST_TOKEN_WIRE], err);
}

/* The recording ended first. */
static bool is_cut_off(const struct rec_request *r)
{
	return r->state == REQ_TRUNCATED && r->how_ended == TL_END_CAPTURE;
}

int trace__init(struct trace *t, const struct model_view *v, size_t request)
{
	struct leads l;
	int err = 0;

	memset(t, 0, sizeof(*t));
	t->v = v;
	t->r = &v->requests[request];
	leads_of(v, t->r, &l);
	t->q = l.last == UINT32_MAX ? NULL : &v->seqs[l.last];
	if (l.first != l.last && l.first_visit != SIZE_MAX && !t->r->joined_late)
		t->first = &v->seqs[l.first];
	t->t0_ns = request_first_ns(t->r);
	t->t1_ns = request_last_ns(t->r);
	if (is_cut_off(t->r) && v->t1_ns > t->t1_ns)
		t->t1_ns = v->t1_ns;
	if (t->t1_ns < t->t0_ns) /* a damaged recording */
		t->t1_ns = t->t0_ns;
	if (t->q && t->r->joined_late) {
		uint64_t begin = v->steps[t->q->visits[0].step].t0_ns;

		if (!t->t0_ns || begin < t->t0_ns)
			t->t0_ns = begin;
	}
	if (t->q) {
		err = find_losses(t);
		add_steps(t, &l, &err);
		if (request_is_streamed(t->r))
			add(t, PART_DELIVERY, t->r->at_ns[P_LAST_TOKEN_WIRE], &err);
		if (ends_parked(t))
			add_wait(t, PART_PARKED, t->t1_ns, (uint32_t)v->n_steps, &err);
	} else {
		add_unjoined(t, &err);
	}
	add(t, PART_END, request_last_ns(t->r), &err);
	add(t, is_cut_off(t->r) ? PART_OPEN : PART_END, t->t1_ns, &err);
	if (!err)
		err = add_up_decode(t);
	if (err) {
		trace__free(t);
		return err;
	}
	add_up_prefill(t);
	add_up(t);
	return 0;
}

/* ---- what filled its waits ---- */

void trace__wait(const struct trace *t, enum part part, struct wait *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < t->n; i++) {
		const struct segment *s = &t->segs[i];
		uint32_t left = s->n_steps;

		for (uint32_t k = s->step; s->part == part && left && k < t->v->n_steps; k++) {
			const struct rec_step *st = &t->v->steps[k];
			uint64_t from = st->t0_ns > s->t0_ns ? st->t0_ns : s->t0_ns;
			uint64_t until = st->t1_ns < s->t1_ns ? st->t1_ns : s->t1_ns;
			uint32_t seq;

			if (st->engine != t->v->seqs[s->seq].engine)
				continue;
			left--;
			crowd__add(&ret->all, t->v, k, s->seq);
			crowd__add_prefill(&ret->prefill, t->v, k, s->seq);
			if (until <= from)
				continue;
			ret->ns += until - from;
			if (trace__prefill_of_others(t, s, k, &seq))
				ret->prefill_ns += until - from;
		}
	}
}

size_t trace__slot_holders(const struct trace *t, const struct segment *s, uint32_t *ret,
			   size_t max)
{
	const struct rec_sequence *own = &t->v->seqs[s->seq];
	size_t n = 0;

	for (uint32_t i = s->seq; i-- > 0 && n < max;) {
		const struct rec_sequence *p = &t->v->seqs[i];

		if (p->engine != own->engine || p->slot != own->slot || !p->n_visits)
			continue;
		if (seq_end_ns(t->v, p) <= s->t0_ns)
			break;
		ret[n++] = i;
	}
	return n;
}

int largest_part(const uint64_t ns[N_PARTS], uint32_t skip)
{
	int best = -1;

	for (int p = 0; p < N_PARTS; p++)
		if (!(skip & 1u << p) && (best < 0 || ns[p] > ns[best]))
			best = p;
	return best;
}
