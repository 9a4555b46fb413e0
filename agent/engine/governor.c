/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes windows, weighs what they cost, and steps down before it is too much. */
#include "engine/governor.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/pct.h"
#include "base/plural.h"
#include "base/units.h"

#define PPM 1000000ull

enum phase {
	REST, /* no window: until the pause is over and there is work */
	OPENING, /* ordered; the library may have to subscribe first */
	OPEN,
	CLOSING, /* ordered */
};
enum {
	DEFAULT_PPM = 10000,
	DEFAULT_WINDOW_MS = 2000,
	GRAPH_WINDOW_MS = 600000, /* opened again behind that */
	MIN_GAPS = 8, /* of a part, to have a median */
	MIN_PARTS = 3,
	FLOOR_PPM = 5000, /* nobody can see less than that in gaps */
	LOSSY_PCT = 5,
	MAX_LOSSY = 2,
	MAX_OVER = 3, /* seconds over the budget ... */
	MUCH_OVER = 10, /* ... or so many times the budget */
	MAX_KERNELS = 20000000, /* a gigabyte was gone, and times were none, behind 25 million */
	TAINTED_PPM = 50000, /* whatever the budget is: then times
			      * are not those of the server alone */
	UNKNOWN_PAUSES = 3, /* windows long, while it is not known what clients see of them */
};
static const uint64_t part_length_ns = 500 * NS_PER_MS, part_kept_ns = 120 * NS_PER_S;
static const uint64_t min_pause_ns = 1000 * NS_PER_MS, max_pause_ns = 60 * NS_PER_S;
/* Watched before graphs are recorded, which have no pauses to compare with. */
static const uint64_t baseline_ns = 2000 * NS_PER_MS;
static const uint64_t trial_pause_ns = 3000 * NS_PER_MS, trial_ns = 4000 * NS_PER_MS;
static const uint64_t first_trial_wait_ns = 15 * NS_PER_S, max_trial_wait_ns = 240 * NS_PER_S;
static const uint64_t opening_limit_ns = 70 * NS_PER_S; /* the library's own limit is 60 s */
static const uint64_t first_wait_ns = 60 * NS_PER_S, max_wait_ns = 960 * NS_PER_S;
static const uint64_t min_fall_bytes = 256ull << 20;
/* A record of a kernel takes 32 bytes of device memory, a buffer of them 3 MB; 250
 * buffers is CUPTI's own limit. */
static const uint64_t min_free_bytes = 256ull << 20;

void governor__init(struct governor *g, const struct governor_opts *opts, uint64_t now_ns)
{
	*g = (struct governor){ .opts = *opts,
				.level = opts->wanted,
				.phase = REST,
				.phase_ns = now_ns,
				.wait_ns = first_wait_ns,
				.trial = { .wait_ns = first_trial_wait_ns },
				.part_ns = now_ns,
				.second = { .begin_ns = now_ns } };
	if (!g->opts.budget_ppm)
		g->opts.budget_ppm = DEFAULT_PPM;
	if (!g->opts.window_ms)
		g->opts.window_ms = DEFAULT_WINDOW_MS;
	if (g->level == TL_GPU_GRAPH && g->opts.budget_ppm < PPM)
		g->pause_ns = baseline_ns;
}

static bool is_free(const struct governor *g)
{
	return g->opts.budget_ppm >= PPM;
}

/* ---- what clients see ---- */

static uint64_t median(uint64_t *v, size_t n)
{
	return pct_u64(v, n, 500);
}

static void end_part(struct governor *g, uint64_t now_ns, bool inside)
{
	struct governor_parts *to = g->part_inside ? &g->inside : &g->outside;

	if (g->n_gaps >= MIN_GAPS) {
		to->v[to->n % GOVERNOR_MAX_PARTS] =
			(struct governor_part){ now_ns, median(g->gaps, g->n_gaps) };
		to->n++;
	}
	g->n_gaps = 0;
	g->part_ns = now_ns;
	g->part_inside = inside;
}

void governor__gap(struct governor *g, uint64_t from_ns, uint64_t to_ns)
{
	/* All of it lies in one part, or it tells nothing. What comes late
	 * belongs to the part before. */
	if (from_ns < g->part_ns || to_ns <= from_ns || g->n_gaps == GOVERNOR_MAX_GAPS)
		return;
	g->gaps[g->n_gaps++] = to_ns - from_ns;
}

static size_t recent(const struct governor_parts *p, uint64_t now_ns,
		     uint64_t ret[GOVERNOR_MAX_PARTS])
{
	size_t n = 0;

	for (size_t i = 0; i < GOVERNOR_MAX_PARTS && i < p->n; i++)
		if (now_ns - p->v[i].at_ns < part_kept_ns)
			ret[n++] = p->v[i].gap_ns;
	return n;
}

/* Twice the error of the median of so many, squared, from how far they lie from it. */
static double error2(const uint64_t *v, size_t n, uint64_t middle)
{
	uint64_t away[GOVERNOR_MAX_PARTS];
	double e;

	for (size_t i = 0; i < n; i++)
		away[i] = v[i] > middle ? v[i] - middle : middle - v[i];
	e = 2 * 1.2533 * 1.4826 * median(away, n);
	return e * e / n;
}

int64_t governor__drift_ppm(const struct governor *g, uint64_t now_ns)
{
	uint64_t in[GOVERNOR_MAX_PARTS], out[GOVERNOR_MAX_PARTS], a, b;
	size_t n_in = recent(&g->inside, now_ns, in), n_out = recent(&g->outside, now_ns, out);
	double noise2, drift, floor;

	if (n_in < MIN_PARTS || n_out < MIN_PARTS)
		return -1;
	a = median(in, n_in);
	b = median(out, n_out);
	if (!b || a <= b)
		return 0;
	drift = (double)(a - b);
	floor = (double)b * FLOOR_PPM / PPM;
	noise2 = error2(in, n_in, a) + error2(out, n_out, b);
	noise2 = noise2 > floor * floor ? noise2 : floor * floor;
	if (drift * drift <= noise2)
		return 0;
	/* sqrt() without libm: between 0 and the drift. */
	for (double low = 0, high = drift;;) {
		double mid = (low + high) / 2;

		if (high - low < b / 1e6)
			return (drift - mid) * PPM / b;
		if (mid * mid < noise2)
			low = mid;
		else
			high = mid;
	}
}

static uint32_t own_ppm(uint64_t own_ns, uint64_t span_ns)
{
	uint64_t own = span_ns ? own_ns * PPM / span_ns : 0;

	return own > PPM ? PPM : own;
}

static uint32_t cost_ppm(const struct governor *g, uint64_t own_ns, uint64_t span_ns,
			 uint64_t now_ns)
{
	int64_t drift = governor__drift_ppm(g, now_ns), own = own_ppm(own_ns, span_ns);

	return drift > own ? drift : own;
}

/* ---- levels ---- */

static const char *level_name(enum tl_gpu_level level)
{
	static const char *const names[] = {
		[TL_GPU_OFF] = "off",
		[TL_GPU_LAUNCHES] = "launches",
		[TL_GPU_GRAPH] = "graph",
		[TL_GPU_KERNELS] = "kernels",
	};

	return names[level];
}

static void enter_phase(struct governor *g, enum phase phase, uint64_t now_ns)
{
	g->phase = phase;
	g->phase_ns = now_ns;
}

__attribute__((format(printf, 6, 7))) static void change(
	struct governor *g, const struct governor_look *l, enum tl_gpu_level to,
	enum tl_gpu_trouble trouble, struct governor_order *ret, const char *format, ...)
{
	int n = snprintf(ret->why, sizeof(ret->why), "%s -> %s: ", level_name(g->level),
			 level_name(to));
	va_list args;

	va_start(args, format);
	vsnprintf(ret->why + n, sizeof(ret->why) - n, format, args);
	ret->reason_at = n;
	va_end(args);
	if (to < g->level) {
		if (g->down_ns && g->wait_ns < max_wait_ns)
			g->wait_ns *= 2;
		g->down_ns = l->now_ns;
	}
	g->level = ret->level = to;
	ret->changed = true;
	ret->trouble = trouble;
	ret->what = g->phase == REST ? GOVERNOR_NOTHING : GOVERNOR_CLOSE;
	if (g->phase == OPEN)
		g->inside_ns += l->now_ns - g->window.begin_ns;
	g->n_over = g->n_lossy = 0;
	g->inside.n = 0; /* that was another level */
	g->last_ns = 0;
	g->trial.wanted = false;
	g->trial.until_ns = 0;
	g->pause_ns = to == TL_GPU_GRAPH && !is_free(g) ? baseline_ns : min_pause_ns;
	end_part(g, l->now_ns, false);
	enter_phase(g, g->phase == REST ? REST : CLOSING, l->now_ns);
}

static enum tl_gpu_level below(enum tl_gpu_level level)
{
	return level == TL_GPU_OFF ? TL_GPU_OFF : level - 1;
}

static void taint(struct governor_order *ret, uint32_t ppm, uint64_t since_ns, uint64_t until_ns)
{
	ret->tainted = true;
	ret->cost_ppm = ppm;
	ret->since_ns = since_ns;
	ret->until_ns = until_ns;
}

static bool is_dear(const struct governor *g, uint32_t ppm)
{
	return ppm > TAINTED_PPM || ppm > g->opts.budget_ppm;
}

static bool too_dear(struct governor *g, const struct governor_look *l, struct governor_order *ret,
		     uint32_t ppm, uint64_t since_ns, uint64_t until_ns)
{
	taint(ret, ppm, since_ns, until_ns);
	change(g, l, below(g->level), TL_GPU_BUDGET, ret,
	       "it costs %.1f %% of the server's speed while it lasts, "
	       "allowed is %.1f %%",
	       ppm / 1e4, g->opts.budget_ppm / 1e4);
	return true;
}

/* ---- windows ---- */

static uint32_t length_ms(const struct governor *g)
{
	return g->level == TL_GPU_GRAPH ? GRAPH_WINDOW_MS : g->opts.window_ms;
}

uint32_t governor__window_ms(const struct governor *g, uint64_t now_ns)
{
	uint64_t past_ms;

	if (g->phase != OPENING && g->phase != OPEN)
		return 0;
	past_ms = g->phase == OPEN && now_ns > g->window.begin_ns ?
			  (now_ns - g->window.begin_ns) / NS_PER_MS : 0;
	return past_ms < length_ms(g) ? length_ms(g) - past_ms : 0;
}

/* What a window may cost: so much, if the longest pause comes behind it. */
static uint64_t most_ns(const struct governor *g, uint64_t length_ns)
{
	return (length_ns + max_pause_ns) / PPM * g->opts.budget_ppm;
}

static void set_pause(struct governor *g, uint64_t length_ns, uint64_t now_ns)
{
	uint64_t spent = length_ns / PPM * g->cost_ppm, pause = spent / g->opts.budget_ppm * PPM;

	pause = pause > length_ns ? pause - length_ns : 0;
	if (governor__drift_ppm(g, now_ns) < 0 && pause < UNKNOWN_PAUSES * length_ns)
		pause = UNKNOWN_PAUSES * length_ns;
	pause = pause < min_pause_ns ? min_pause_ns : pause > max_pause_ns ? max_pause_ns : pause;
	g->pause_ns = is_free(g) || g->level == TL_GPU_GRAPH ? 0 : pause;
}

/* What clients saw of the last window may be known only now, in the pause behind it:
 * before the next one opens. */
static bool check_pause(struct governor *g, const struct governor_look *l,
			struct governor_order *ret)
{
	int64_t drift = governor__drift_ppm(g, l->now_ns);
	uint64_t until_ns;

	if (g->level != TL_GPU_KERNELS || is_free(g) || !g->last_ns ||
	    drift <= (int64_t)g->cost_ppm)
		return false;
	g->cost_ppm = drift;
	until_ns = g->window.begin_ns + g->last_ns;
	if (g->last_ns / PPM * g->cost_ppm > most_ns(g, g->last_ns))
		return too_dear(g, l, ret, g->cost_ppm, g->window.begin_ns, until_ns);
	if (is_dear(g, g->cost_ppm))
		taint(ret, g->cost_ppm, g->window.begin_ns, until_ns);
	set_pause(g, g->last_ns, l->now_ns);
	return false;
}

static bool is_lossy(struct governor *g)
{
	uint64_t all = g->window.records + g->window.dropped;

	if (!g->window.dropped || g->window.dropped * 100 < all * LOSSY_PCT)
		g->n_lossy = 0;
	else
		g->n_lossy++;
	return g->n_lossy >= MAX_LOSSY;
}

/* A window has closed, by itself or because we said so. */
static void end_window(struct governor *g, const struct governor_look *l,
		       struct governor_order *ret)
{
	uint64_t length = l->now_ns - g->window.begin_ns;

	end_part(g, l->now_ns, false);
	g->inside_ns += length;
	g->last_ns = length;
	g->cost_ppm = g->level == TL_GPU_GRAPH ? own_ppm(g->window.own_ns, length) :
						 cost_ppm(g, g->window.own_ns, length, l->now_ns);
	g->trial.until_ns = 0;
	enter_phase(g, REST, l->now_ns);
	set_pause(g, length, l->now_ns);
	if (ret->changed)
		return;
	if (is_lossy(g))
		change(g, l, below(g->level), TL_GPU_FINE, ret, "%llu of %llu record%s lost",
		       (unsigned long long)g->window.dropped,
		       (unsigned long long)(g->window.records + g->window.dropped),
		       plural(g->window.records + g->window.dropped, " was", "s were"));
	else if (g->level == TL_GPU_KERNELS && !is_free(g) &&
		 length / PPM * g->cost_ppm > most_ns(g, length))
		too_dear(g, l, ret, g->cost_ppm, g->window.begin_ns, l->now_ns);
	else if (is_dear(g, g->cost_ppm))
		taint(ret, g->cost_ppm, g->window.begin_ns, l->now_ns);
}

static bool check_window(struct governor *g, const struct governor_look *l,
			 struct governor_order *ret)
{
	uint64_t length = l->now_ns - g->window.begin_ns;

	if (!l->open) {
		end_window(g, l, ret);
		return ret->changed;
	}
	if (g->level == TL_GPU_KERNELS && !is_free(g) && g->window.own_ns > most_ns(g, length))
		return too_dear(g, l, ret, cost_ppm(g, g->window.own_ns, length, l->now_ns),
				g->window.begin_ns, l->now_ns);
	return false;
}

/* Gaps are longer than before. So they are if there is more load, or a slower clock: it is found out. */
static void begin_trial(struct governor *g, const struct governor_look *l, struct governor_order *ret)
{
	ret->what = GOVERNOR_CLOSE;
	ret->trial = true;
	g->inside_ns += l->now_ns - g->window.begin_ns;
	end_part(g, l->now_ns, false);
	g->inside.n = g->outside.n = 0;
	g->n_over = 0;
	g->pause_ns = trial_pause_ns;
	g->trial.wanted = true;
	enter_phase(g, CLOSING, l->now_ns);
}

/* Graphs, by what clients see. true: the level has changed. Where the cost does not matter nothing is to be missed
 * for a trial, and without one this tells nothing. */
static bool check_drift(struct governor *g, const struct governor_look *l, struct governor_order *ret)
{
	int64_t drift;

	if (g->level != TL_GPU_GRAPH || g->phase != OPEN || is_free(g))
		return false;
	drift = governor__drift_ppm(g, l->now_ns);
	if (!g->trial.until_ns) {
		if (drift > 0 && is_dear(g, drift) && l->now_ns >= g->trial.next_ns)
			begin_trial(g, l, ret);
		return false;
	}
	if (l->now_ns < g->trial.until_ns)
		return false;
	g->trial.until_ns = 0;
	g->trial.next_ns = l->now_ns + g->trial.wait_ns;
	if (g->trial.wait_ns < max_trial_wait_ns)
		g->trial.wait_ns *= 2;
	if (drift <= 0 || !is_dear(g, drift))
		return false;
	return too_dear(g, l, ret, drift, g->window.begin_ns, l->now_ns);
}

/* What lasts is judged by the second. */
static bool check_second(struct governor *g, const struct governor_look *l,
			 struct governor_order *ret)
{
	uint64_t span = l->now_ns - g->second.begin_ns, own;

	if (span < NS_PER_S)
		return false;
	own = g->second.probes_ns + (g->level == TL_GPU_GRAPH ? g->second.own_ns : 0);
	g->second.begin_ns = l->now_ns;
	g->second.own_ns = g->second.probes_ns = 0;
	if (g->level == TL_GPU_OFF || g->level == TL_GPU_KERNELS)
		return false;
	g->cost_ppm = own * PPM / span;
	if (!is_dear(g, g->cost_ppm))
		g->n_over = 0;
	else if (!g->n_over++)
		g->over_ns = l->now_ns - span;
	if (g->n_over < MAX_OVER && g->cost_ppm / MUCH_OVER <= g->opts.budget_ppm)
		return check_drift(g, l, ret);
	if (!is_free(g) && g->cost_ppm > g->opts.budget_ppm)
		return too_dear(g, l, ret, g->cost_ppm, g->over_ns, l->now_ns);
	taint(ret, g->cost_ppm, g->over_ns, l->now_ns);
	return false;
}

static bool check_memory(struct governor *g, const struct governor_look *l,
			 struct governor_order *ret)
{
	uint64_t fall;

	if (g->level == TL_GPU_KERNELS)
		g->n_kernels += l->records;
	if (g->n_kernels > MAX_KERNELS && g->level == TL_GPU_KERNELS && !is_free(g)) {
		change(g, l, below(g->level), TL_GPU_FINE, ret,
		       "%llu million kernels were recorded, and CUPTI may keep "
		       "device memory of each",
		       (unsigned long long)g->n_kernels / 1000000);
		g->opts.wanted = TL_GPU_GRAPH;
		return true;
	}
	if (!l->free_bytes || g->level < TL_GPU_GRAPH)
		return false;
	if (l->free_bytes < min_free_bytes) {
		change(g, l, TL_GPU_LAUNCHES, TL_GPU_FINE, ret,
		       "%llu MB of device memory are free, and CUPTI takes some",
		       (unsigned long long)(l->free_bytes >> 20));
		g->most_free_bytes = 0;
		return true;
	}
	if (l->free_bytes > g->most_free_bytes)
		g->most_free_bytes = l->free_bytes;
	fall = g->most_free_bytes - l->free_bytes;
	if (fall < min_fall_bytes || l->free_bytes > g->most_free_bytes / 2)
		return false;
	change(g, l, below(g->level), TL_GPU_FINE, ret,
	       "free device memory fell by %llu MB to %llu MB", (unsigned long long)(fall >> 20),
	       (unsigned long long)(l->free_bytes >> 20));
	g->most_free_bytes = l->free_bytes;
	return true;
}

static bool check_refused(struct governor *g, const struct governor_look *l,
			  struct governor_order *ret)
{
	static const char *const reasons[] = {
		[TL_GPU_FINE] = "no records can be had",
		[TL_GPU_BROKEN] = "launches gave no records",
		[TL_GPU_BAD_STAMPS] = "impossible times",
		[TL_GPU_BUSY] = "somebody else holds what is needed",
		[TL_GPU_BUDGET] = "it costs too much",
	};
	uint32_t trouble = l->trouble <= TL_GPU_BUDGET ? l->trouble : TL_GPU_FINE;

	if (!l->refused || g->level < TL_GPU_GRAPH)
		return false;
	/* Another tool may be done one day. */
	g->for_good = trouble != TL_GPU_BUSY;
	change(g, l, TL_GPU_LAUNCHES, trouble, ret, "%s", reasons[trouble]);
	enter_phase(g, REST, l->now_ns);
	ret->what = GOVERNOR_NOTHING;
	return true;
}

static bool check_up(struct governor *g, const struct governor_look *l, struct governor_order *ret)
{
	if (g->level >= g->opts.wanted || g->for_good || g->phase != REST || !l->busy ||
	    l->now_ns - g->down_ns < g->wait_ns ||
	    (l->free_bytes && l->free_bytes < min_free_bytes && g->level + 1 >= TL_GPU_GRAPH))
		return false;
	change(g, l, g->level + 1, TL_GPU_FINE, ret, "tried again after %llu s",
	       (unsigned long long)((l->now_ns - g->down_ns) / NS_PER_S));
	return true;
}

static void add_up(struct governor *g, const struct governor_look *l)
{
	if (g->phase == OPEN || g->phase == CLOSING) {
		g->window.own_ns += l->own_ns;
		g->window.records += l->records;
		g->window.dropped += l->dropped;
	}
	g->second.own_ns += l->own_ns;
	g->second.probes_ns += l->probes_ns;
	if (l->now_ns - g->part_ns >= part_length_ns)
		end_part(g, l->now_ns, g->part_inside);
}

static void walk(struct governor *g, const struct governor_look *l, struct governor_order *ret)
{
	uint64_t in_phase = l->now_ns - g->phase_ns;

	switch ((enum phase)g->phase) {
	case REST:
		/* A window of an idle server proves nothing, and has broken CUPTI for good. */
		if (g->level < TL_GPU_GRAPH || !l->busy || l->refused || in_phase < g->pause_ns ||
		    check_pause(g, l, ret) || in_phase < g->pause_ns)
			return;
		ret->what = GOVERNOR_OPEN;
		ret->window_ms = length_ms(g);
		enter_phase(g, OPENING, l->now_ns);
		return;
	case OPENING:
		if (l->open ||
		    l->records) { /* records only: it has closed again since the last look */
			end_part(g, l->now_ns, true);
			g->window.begin_ns = l->now_ns;
			g->window.own_ns = l->own_ns;
			g->window.records = l->records;
			g->window.dropped = l->dropped;
			g->n_windows++;
			g->trial.until_ns = g->trial.wanted ? l->now_ns + trial_ns : 0;
			g->trial.wanted = false;
			enter_phase(g, OPEN, l->now_ns);
		} else if (in_phase > opening_limit_ns) {
			enter_phase(g, REST, l->now_ns);
		}
		return;
	case OPEN:
		check_window(g, l, ret);
		return;
	case CLOSING:
		if (!l->open)
			enter_phase(g, REST, l->now_ns);
		return;
	}
}

void governor__look(struct governor *g, const struct governor_look *l, struct governor_order *ret)
{
	*ret = (struct governor_order){ .level = g->level, .from = g->level };
	add_up(g, l);
	if (check_refused(g, l, ret) || check_memory(g, l, ret) || check_second(g, l, ret) ||
	    check_up(g, l, ret))
		return;
	walk(g, l, ret);
}

void governor__end(struct governor *g, uint64_t now_ns, struct governor_order *ret)
{
	uint64_t since_ns = g->window.begin_ns;
	uint64_t until_ns = g->phase == OPEN ? now_ns : since_ns + g->last_ns;
	uint32_t ppm;

	*ret = (struct governor_order){ .level = g->level, .from = g->level };
	if (g->level != TL_GPU_KERNELS || !g->n_windows || until_ns <= since_ns)
		return;
	end_part(g, now_ns, false);
	ppm = cost_ppm(g, g->window.own_ns, until_ns - since_ns, now_ns);
	/* If it cost no more than when the window closed, that was said then. */
	if (is_dear(g, ppm) && (g->phase == OPEN || ppm > g->cost_ppm))
		taint(ret, ppm, since_ns, until_ns);
}
