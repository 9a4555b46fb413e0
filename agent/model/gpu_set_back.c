/* SPDX-License-Identifier: Apache-2.0 */
/* Which of two times a span had, where the clock of its records was set back: such a clock shows some times twice. */
#include "model/evidence.h"
#include "model/gpu_priv.h"

#include <errno.h>

/*
 * The library maps each record by itself, so it takes one of the two readings, and says that it is a guess. All of a
 * stream together leave no choice: nothing runs before it was launched, or, far, before what was launched before it on the
 * stream had ended; of what is left, the first.
 */
enum {
	MAX_SET_BACK = 16,	/* times that a process's clock was */
	MIN_BACK_NS = 50000,
	MAX_SLEW_PCT = 10,	/* a clock may be made so much slower */
	SLACK_PART = 4,		/* of that is no contradiction: who is taken for later than it was makes all behind it late */
};

struct set_back {		/* by so much, between these two times */
	uint64_t last_ns, first_ns, by_ns;
};
struct turn {			/* of a span, on its stream */
	uint64_t stream;
	uint32_t launch;	/* index + 1; of the one before it, where it is not known which; 0 */
	uint32_t span;
	bool launched;		/* it is this one's */
};
struct stream_end {
	uint64_t begin_ns, end_ns;	/* of the last launch's spans, the latest so far */
	uint64_t before_ns;		/* the end of what was launched before that */
};

static size_t find_set_back(const struct evidence *ev, const struct gpu_clocks *clocks, struct set_back *ret)
{
	const struct tl_clock *last = NULL;
	size_t n = 0;

	for (size_t i = 0; i < clocks->n && n < MAX_SET_BACK; i++) {
		const struct tl_clock *k = &ev->clocks.v[clocks->at[i]];
		int64_t gain;

		/* marks are of the host's clock */
		if (k->hdr.flags & (TL_CLOCK_OPENS | TL_CLOCK_CLOSES)) {
			last = NULL;
			continue;
		}
		gain = last ? (int64_t)((k->realtime_ns - last->realtime_ns) - (k->hdr.ts_ns - last->hdr.ts_ns)) : 0;
		if (gain < -MIN_BACK_NS && -(uint64_t)gain > (k->hdr.ts_ns - last->hdr.ts_ns) / 100 * MAX_SLEW_PCT)
			ret[n++] = (struct set_back){ last->hdr.ts_ns, k->hdr.ts_ns, -(uint64_t)gain };
		last = k;
	}
	return n;
}

/* The one that this time may have been mapped wrong by; NULL: none. */
static const struct set_back *set_near(const struct set_back *v, size_t n, uint64_t t_ns)
{
	const struct set_back *best = NULL;
	uint64_t nearest = UINT64_MAX;

	for (size_t i = 0; i < n; i++) {
		uint64_t off = t_ns > v[i].first_ns ? t_ns - v[i].first_ns : v[i].first_ns - t_ns;

		if (off < nearest && off <= v[i].by_ns + (v[i].first_ns - v[i].last_ns)) {
			best = &v[i];
			nearest = off;
		}
	}
	return best;
}

static const struct set_back *set_of(const struct set_back *v, size_t n, const struct gpu_span *s)
{
	const struct set_back *b = s->guess ? set_near(v, n, s->t0_ns) : NULL;

	return b || !s->guess ? b : set_near(v, n, s->t1_ns);
}

/* The first of the times that this one may have been, from `from` on. Before the clock was set it was what it would be if
 * it had not been, or it is behind that. 0: none. */
static uint64_t first_reading(const struct set_back *b, uint64_t t_ns, uint64_t from_ns)
{
	uint64_t early = t_ns > b->by_ns ? t_ns - b->by_ns : 0, late = t_ns + b->by_ns;

	if (early && early <= b->first_ns && early >= from_ns)
		return early;
	if (t_ns >= from_ns)
		return t_ns;
	return late > t_ns && late >= from_ns && t_ns <= b->first_ns ? late : 0;
}

static int by_turn(const void *pa, const void *pb)
{
	const struct turn *a = pa, *b = pb;

	if (a->stream != b->stream)
		return a->stream < b->stream ? -1 : 1;
	if (a->launch != b->launch)
		return a->launch < b->launch ? -1 : 1;
	return a->span < b->span ? -1 : a->span > b->span;
}

/* Spans by stream, and as they were launched there; those of one launch as they came. NULL: out of memory. */
static struct turn *in_turn(const struct gpu_process *p, const struct gpu_ids *ids, const struct set_back *v, size_t n)
{
	struct turn *turns = malloc((p->spans.n + 1) * sizeof(*turns));

	for (uint32_t i = 0; i < p->spans.n && turns; i++) {
		const struct gpu_span *s = &p->spans.v[i];
		const struct set_back *b = set_of(v, n, s);
		uint32_t at = s->corr ? gpu_launch_of(p, ids, s->corr, s->t0_ns + (b ? b->by_ns : 0)) : UINT32_MAX;
		bool launched = at != UINT32_MAX && gpu_call_fits(p->launches.v[at].call, s);

		turns[i] = (struct turn){ (uint64_t)s->device << 32 | s->stream, 0, i, launched };
		if (launched)
			turns[i].launch = at + 1;
		else if (i && turns[i - 1].stream == turns[i].stream)
			turns[i].launch = turns[i - 1].launch;
	}
	if (turns)
		qsort(turns, p->spans.n, sizeof(*turns), by_turn);
	return turns;
}

/* Both of its times at once; as they were if there is none that can be. */
static void settle(const struct set_back *b, struct gpu_span *s, uint64_t launched_ns, uint64_t before_ns)
{
	uint64_t from = before_ns > b->by_ns / 2 ? before_ns - b->by_ns / 2 : 0, t0, t1;

	if (launched_ns > from + b->by_ns / SLACK_PART)
		from = launched_ns - b->by_ns / SLACK_PART;
	t0 = first_reading(b, s->t0_ns, from);
	t1 = t0 ? first_reading(b, s->t1_ns, t0) : 0;
	if (!t1)
		return;
	s->t0_ns = t0;
	s->t1_ns = t1;
}

static void settle_all(struct gpu_process *p, const struct turn *turns, const struct set_back *v, size_t n)
{
	struct stream_end e = { 0 };

	for (size_t i = 0; i < p->spans.n; i++) {
		const struct turn *t = &turns[i], *last = i && turns[i - 1].stream == t->stream ? t - 1 : NULL;
		struct gpu_span *s = &p->spans.v[t->span];
		const struct set_back *b = set_of(v, n, s);

		if (!last)
			e = (struct stream_end){ 0 };
		/* the nodes of a graph may run side by side: they begin in about the order in which they came */
		if (last && (!t->launched || last->launch != t->launch))
			e = (struct stream_end){ .before_ns = e.end_ns };
		if (b)
			settle(b, s, t->launched ? p->launches.v[t->launch - 1].ts_ns : 0,
			       e.begin_ns > e.before_ns ? e.begin_ns : e.before_ns);
		e.begin_ns = s->t0_ns > e.begin_ns ? s->t0_ns : e.begin_ns;
		e.end_ns = s->t1_ns > e.end_ns ? s->t1_ns : e.end_ns;
	}
}

int gpu_settle_times(struct gpu_process *p, const struct gpu_ids *ids, const struct evidence *ev,
		     const struct gpu_clocks *clocks)
{
	struct set_back v[MAX_SET_BACK];
	size_t n = find_set_back(ev, clocks, v), guessed = 0;
	struct turn *turns;

	for (size_t i = 0; i < p->spans.n && n; i++)
		guessed += p->spans.v[i].guess;
	if (!guessed)
		return 0;
	turns = in_turn(p, ids, v, n);
	if (!turns)
		return -ENOMEM;
	settle_all(p, turns, v, n);
	free(turns);
	return 0;
}
