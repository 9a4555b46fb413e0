/* SPDX-License-Identifier: Apache-2.0 */
/* Which burst of launches is which step: in their order, not by what is nearest in time. */
#include "base/pct.h"
#include "model/gpu_priv.h"

#include <errno.h>

/*
 * Engines run ahead: they launch step k + 1 before they tell the outputs of step k, and hosts may be slow: times alone
 * mislead. Both sides come in the same order, one burst per step, and how long the wire lags behind the device
 * changes little from step to step. What is missing on either side makes that jump, and is skipped at a price. Of all
 * pairings the one with the least price is taken, where no step ends on the wire before it did on the device, and no
 * launch comes before the outputs of the step before the last are told.
 */
enum {
	CHOICES = 6,		/* steps that are tried for a burst */
	BACK = 3,		/* bursts without a step, in a row ... */
	MAX_BACK = 256,		/* ... and if it cannot be otherwise */
	SLACK_NS = 100000,	/* of the clocks, and of a wire that is seen where it is written */
	AHEAD_NS = 1000000,	/* outputs may be sent by another thread, meanwhile */
	PAUSE_STEPS = 8,	/* without a launch are a pause */
	MAX_SKIPS = 2,		/* what is longer is a pause, and no dearer */
	PAIR = 4,		/* times as dear to leave out: a step alone between a burst's end and the next launch */
};
#define NO_COST UINT64_MAX

struct choice {
	uint64_t cost;
	int64_t lag_ns;		/* of the step's end behind the burst's ... */
	int64_t level_ns;	/* ... and as it was of those before, smoothed */
	uint32_t ref;
	int16_t from_burst;	/* so many bursts back; 0: the first */
	int16_t from;		/* which of its choices */
};
struct aligner {
	const struct gpu_ref *refs;
	size_t n_refs;
	struct gpu_process *p;
	struct choice (*at)[CHOICES];
	uint64_t skip_ns;
	bool ahead;
	uint8_t *burst_price, *ref_price;	/* to leave them out, in skip_ns */
};

/* When a burst was over, as well as it is known: the wire tells of its step then or later. */
static uint64_t burst_end(const struct aligner *a, size_t i)
{
	const struct gpu_burst *b = &a->p->bursts.v[i];
	uint64_t wait = gpu_wait_for(b, i + 1 < a->p->bursts.n ? b + 1 : NULL, a->ahead);

	if (b->gpu1_ns && !b->no_kernels && !b->no_graphs)
		return b->gpu1_ns;
	return wait > b->launch1_ns ? wait : b->launch1_ns;
}

static size_t first_ref(const struct aligner *a, uint64_t t_ns)
{
	size_t lo = 0, hi = a->n_refs;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (a->refs[mid].end_ns < t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static uint64_t size_of(int64_t ns)
{
	return ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
}

/*
 * What a pairing costs by itself. On a device, where ends are compared with ends: what they are apart. On the wire
 * nothing, unless it cannot be: the step would end before its burst, or the host would be more than one step ahead.
 */
static uint64_t own_cost(const struct aligner *a, uint32_t ref, size_t burst, int64_t lag)
{
	uint64_t launch = a->p->bursts.v[burst].launch0_ns;

	if (a->refs[ref].exact)
		return size_of(lag);
	if (lag < -SLACK_NS)
		return 8 * a->skip_ns;
	return ref > 1 && launch + AHEAD_NS < a->refs[ref - 2].end_ns ? 4 * a->skip_ns : 0;
}

static bool is_pause(const struct aligner *a, size_t i)
{
	return a->p->bursts.v[i].launch0_ns > burst_end(a, i - 1) + PAUSE_STEPS * 2 * a->skip_ns;
}

/* A lag that is odd once costs less than to leave out a burst and a step, one that stays odd more. Behind a pause it may
 * be another: that costs less than to leave out anything. */
static uint64_t lag_cost(const struct aligner *a, int64_t lag, int64_t level, bool pause)
{
	uint64_t off = size_of((int64_t)((uint64_t)lag - (uint64_t)level));
	uint64_t most = pause ? a->skip_ns / 2 : a->skip_ns + a->skip_ns / 2;

	return off < most ? off : most;
}

static uint64_t step_cost(const struct aligner *a, const struct choice *from, const struct choice *to, size_t i,
			  int back)
{
	uint64_t skips = to->ref - from->ref - 1, n = 0;
	uint64_t cost = a->refs[to->ref].exact ? 0 : lag_cost(a, to->lag_ns, from->level_ns, is_pause(a, i));

	for (int k = 1; k < back; k++)
		n += a->burst_price[i - k];
	for (uint64_t k = 1; k <= skips && skips <= MAX_SKIPS; k++)
		n += a->ref_price[from->ref + k];
	return from->cost + cost + a->skip_ns * (n + (skips > MAX_SKIPS ? MAX_SKIPS : 0));
}

/* What makes a step late comes and goes: the level falls at once, and rises slowly, but for the first one behind a pause. */
static int64_t new_level(const struct aligner *a, const struct choice *from, int64_t lag, size_t i)
{
	int64_t off = (int64_t)((uint64_t)lag - (uint64_t)from->level_ns), most = a->skip_ns / 4;

	if (is_pause(a, i) || off < 0)
		return lag;
	return (int64_t)((uint64_t)from->level_ns + (uint64_t)(off > most ? most : off));
}

/* The cheapest way to come to this choice of burst i. */
static void extend(struct aligner *a, size_t i, struct choice *c)
{
	uint64_t own = own_cost(a, c->ref, i, c->lag_ns);

	c->cost = own + a->skip_ns * (i < MAX_SKIPS ? i : MAX_SKIPS) + size_of(c->lag_ns);
	c->level_ns = c->lag_ns;
	for (int back = 1; back <= (c->from_burst ? BACK : MAX_BACK) && (size_t)back <= i; back++)
		for (int k = 0; k < CHOICES; k++) {
			const struct choice *b = &a->at[i - back][k];
			uint64_t cost;

			if (b->cost == NO_COST || b->ref >= c->ref)
				continue;
			cost = own + step_cost(a, b, c, i, back);
			if (cost < c->cost || !c->from_burst) {
				c->cost = cost;
				c->from_burst = back;
				c->from = k;
				c->level_ns = new_level(a, b, c->lag_ns, i);
			}
		}
}

static void try_burst(struct aligner *a, size_t i)
{
	uint64_t end = burst_end(a, i);
	size_t ref = first_ref(a, end > SLACK_NS ? end - SLACK_NS : 0);

	/* on a device, steps end where they end: some before are tried, too */
	if (ref < a->n_refs ? a->refs[ref].exact : a->n_refs && a->refs[a->n_refs - 1].exact)
		ref = ref > CHOICES / 2 ? ref - CHOICES / 2 : 0;
	for (int k = 0; k < CHOICES; k++) {
		struct choice *c = &a->at[i][k];

		*c = (struct choice){ .cost = NO_COST };
		if (ref + k >= a->n_refs)
			continue;
		c->ref = ref + k;
		c->lag_ns = (int64_t)(a->refs[c->ref].end_ns - end);
		extend(a, i, c);
	}
}

static void walk_back(struct aligner *a)
{
	size_t i = a->p->bursts.n;
	int best = -1;

	while (i-- > 0 && best < 0)	/* the last burst that has a choice: there may be no step behind it */
		for (int c = 0; c < CHOICES; c++)
			if (a->at[i][c].cost != NO_COST && (best < 0 || a->at[i][c].cost < a->at[i][best].cost))
				best = c;
	i++;
	while (best >= 0) {
		const struct choice *c = &a->at[i][best];

		a->p->bursts.v[i].step = a->refs[c->ref].step + 1;
		if (!c->from_burst)
			break;
		i -= c->from_burst;
		best = c->from;
	}
}

/* Half of a step: one that is missing makes the lag jump by a whole one. */
static int find_skip_cost(struct aligner *a)
{
	uint64_t *gaps = malloc((a->n_refs + 1) * sizeof(*gaps));

	if (!gaps)
		return -ENOMEM;
	for (size_t i = 1; i < a->n_refs; i++)
		gaps[i - 1] = a->refs[i].end_ns - a->refs[i - 1].end_ns;
	a->skip_ns = a->n_refs > 1 ? pct_u64(gaps, a->n_refs - 1, 500) / 2 + 1 : 1000000;
	free(gaps);
	return 0;
}

/* A burst and a step that have nobody else near them are hardly both without the other: on a busy host lags vary. */
static void find_prices(struct aligner *a)
{
	size_t n = a->p->bursts.n;

	memset(a->burst_price, 1, n + a->n_refs);
	for (size_t i = 0; i < n && !a->refs[0].exact; i++) {
		uint64_t end = burst_end(a, i);
		size_t from = first_ref(a, end > SLACK_NS ? end - SLACK_NS : 0);
		size_t to = i + 1 < n ? first_ref(a, a->p->bursts.v[i + 1].launch0_ns) : a->n_refs;

		if (to == from + 1)
			a->burst_price[i] = a->ref_price[from] = PAIR;
	}
}

int gpu_align(struct gpu_process *p, const struct gpu_ref *refs, size_t n)
{
	struct aligner a = { .refs = refs, .n_refs = n, .p = p, .ahead = gpu_runs_ahead(p) };
	int err;

	if (!n || !p->bursts.n)
		return 0;
	err = find_skip_cost(&a);
	a.at = err ? NULL : malloc(p->bursts.n * sizeof(*a.at));
	a.burst_price = a.at ? malloc(p->bursts.n + n) : NULL;
	if (a.burst_price) {
		a.ref_price = a.burst_price + p->bursts.n;
		find_prices(&a);
		for (size_t i = 0; i < p->bursts.n; i++)
			try_burst(&a, i);
		walk_back(&a);
	}
	err = a.burst_price ? 0 : -ENOMEM;
	free(a.burst_price);
	free(a.at);
	return err;
}
