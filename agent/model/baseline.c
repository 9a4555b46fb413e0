/* SPDX-License-Identifier: Apache-2.0 */
/* Learns per engine what decode costs by batch size and context, and what prefill adds. */
#include "model/baseline.h"
#include "base/num.h"
#include "base/pct.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * A step without prefill takes base(n) + slope * contexts, n sequences decoding. Medians carry
 * both: base(n) is one per batch size, the slope the median of those between eighths of the
 * contexts (Theil and Sen), so that a slow spell, which is a minority in its own batch size, moves
 * neither. Prefill adds a cost per token, the median among steps of like size: it is not the same
 * for few tokens, which share a pass over the weights, and many.
 */
enum { MIN_STEPS = 8,		/* of an engine, to learn at all */
       MIN_CELL = 4,		/* of a batch size; with fewer its neighbours say */
       MIN_PREFILL = 3,
       MIN_FOR_SLOPE = 64,
       MAX_SAMPLES = 1 << 19,	/* of an engine; of more, every k-th */
       N_EIGHTHS = 8, N_SIZES = 32 /* prefill, by powers of two */ };
/* What differs by less is never odd: of a step, and of a pause between two. */
enum { MIN_ERR_NS = 200000, MIN_HOLE_ERR_NS = 500000 };

struct cell {			/* one batch size */
	uint32_t n_decode, n;
	uint64_t base_ns, spread_ns;
	uint64_t hole_ns, hole_spread_ns;
};
struct learnt {			/* one engine */
	struct cell *cells;	/* by n_decode */
	size_t n_cells;
	double slope;		/* ns per token of context */
	uint32_t n;
	struct { double per_token_ns; uint32_t n; } prefill[N_SIZES];
};
struct baseline {
	const struct step_index *ix;
	struct learnt *engines;
	size_t n_engines;
};

void baseline__free(struct baseline *b)
{
	if (!b)
		return;
	for (size_t i = 0; b->engines && i < b->n_engines; i++)
		free(b->engines[i].cells);
	free(b->engines);
	free(b);
}

/* A step that prefills alone still costs a pass over the weights, as one that decodes does. */
static uint32_t batch_of(uint32_t n_decode)
{
	return n_decode ? n_decode : 1;
}

/* ---- samples ---- */

struct sample {
	uint64_t ns, hole_ns;	/* without what is known to have disturbed */
	uint32_t n_decode, context;
	uint32_t prefill;
	uint32_t disturbed_pct;
};
struct samples {
	struct sample *v;
	size_t n;
	uint64_t *scratch;	/* as many */
};

static uint64_t disturbed(const struct baseline_evidence *ev, uint32_t engine, uint64_t t0,
			  uint64_t t1)
{
	uint64_t ns = ev && ev->disturbed_ns && t1 > t0 ? ev->disturbed_ns(ev->ctx, engine, t0, t1)
							: 0;

	return ns < t1 - t0 ? ns : t1 - t0;
}

/* Nobody waits in the hole before a step that only begins prompts: it says nothing. */
static bool sample_of(const struct step_index *ix, const struct baseline_evidence *ev,
		      uint32_t step, struct sample *ret)
{
	const struct step_facts *f = &ix->facts[step];
	struct step_span at = step_index__span(ix, step);
	uint32_t engine = ix->v->steps[step].engine;
	uint64_t in_step, in_hole;

	if (at.t1_ns == at.t0_ns || !ix->v->steps[step].n_members ||
	    (ev && ev->is_odd && ev->is_odd(ev->ctx, step)))
		return false;
	in_step = disturbed(ev, engine, at.t0_ns, at.t1_ns);
	in_hole = disturbed(ev, engine, at.hole_ns, at.t0_ns);
	*ret = (struct sample){
		.ns = at.t1_ns - at.t0_ns - in_step, .hole_ns = at.t0_ns - at.hole_ns - in_hole,
		.n_decode = f->n_decode, .context = f->context, .prefill = f->prefill,
		.disturbed_pct = (uint32_t)((in_step + in_hole) * 100 / (at.t1_ns - at.hole_ns)),
	};
	return true;
}

static int compare(uint32_t a, uint32_t b)
{
	return a < b ? -1 : a > b;
}

static int by_batch(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;
	int c = compare(x->n_decode, y->n_decode);

	if (!c)
		c = compare(x->disturbed_pct, y->disturbed_pct);
	return c ? c : compare(x->context, y->context);
}

static int by_context(const void *a, const void *b)
{
	return compare(((const struct sample *)a)->context, ((const struct sample *)b)->context);
}

/* Those that nothing disturbed suffice. Where that are few, the least disturbed fifth: evidence is
 * of several threads, and less what all of them waited is often less than the step needs. `v` is in
 * order of how disturbed they were. */
static size_t n_usable(const struct sample *v, size_t n)
{
	size_t enough = n / 5 > MIN_STEPS ? n / 5 : MIN_STEPS, k = 0;

	while (k < n && (k < enough || !v[k].disturbed_pct))
		k++;
	return k;
}

/* Steps that decode and do nothing else, or those that prefill; as many as there is room for. */
static void collect(const struct step_index *ix, const struct baseline_evidence *ev,
		    uint32_t engine, bool prefill, struct samples *s)
{
	size_t n = 0, stride, k = 0;

	for (size_t at = ix->first[engine]; at < ix->first[engine + 1]; at++)
		n += !!ix->facts[ix->order[at]].prefill == prefill;
	stride = n / MAX_SAMPLES + 1;
	s->n = 0;
	for (size_t at = ix->first[engine]; at < ix->first[engine + 1]; at++) {
		uint32_t step = ix->order[at];

		if (!!ix->facts[step].prefill == prefill && k++ % stride == 0)
			s->n += sample_of(ix, ev, step, &s->v[s->n]);
	}
}

/* ---- decode ---- */

/* Slope between the eighths of samples of one batch size, ordered by context. */
static double slope_of(const struct sample *v, size_t n, uint64_t *scratch)
{
	double ns[N_EIGHTHS], context[N_EIGHTHS];
	uint64_t slopes[N_EIGHTHS * N_EIGHTHS / 2];
	size_t k = 0;

	for (size_t e = 0; e < N_EIGHTHS; e++) {
		size_t from = e * n / N_EIGHTHS, until = (e + 1) * n / N_EIGHTHS;

		for (size_t i = from; i < until; i++)
			scratch[i - from] = v[i].ns;
		ns[e] = (double)pct_u64(scratch, until - from, 500);
		context[e] = v[(from + until) / 2].context;
	}
	for (size_t i = 0; i < N_EIGHTHS; i++)
		for (size_t j = i + 1; j < N_EIGHTHS; j++) {
			double rise = ns[j] - ns[i], run = context[j] - context[i];

			/* in 1/1000 ns, so that the median of integers will do */
			slopes[k++] = rise > 0 && run >= 1 ? (uint64_t)(rise / run * 1000) : 0;
		}
	return (double)pct_u64(slopes, k, 500) / 1000;
}

/* How many samples of the next batch size there are. */
static size_t next_group(const struct samples *s, size_t at)
{
	size_t n = 1;

	while (at + n < s->n && s->v[at + n].n_decode == s->v[at].n_decode)
		n++;
	return n;
}

/* The slope of the batch size that most steps had: sizes change while contexts grow. */
static double learn_slope(struct samples *s)
{
	double best = 0;
	size_t most = 0, n;

	for (size_t at = 0; at < s->n; at += n) {
		size_t usable;

		n = next_group(s, at);
		usable = n_usable(s->v + at, n);
		if (usable <= most || usable < MIN_FOR_SLOPE)
			continue;
		qsort(s->v + at, usable, sizeof(*s->v), by_context);
		best = slope_of(s->v + at, usable, s->scratch);
		most = usable;
	}
	return best;
}

/* Median of what is in scratch, and the median distance from it. */
static uint64_t middle(uint64_t *scratch, size_t n, uint64_t *ret_spread)
{
	uint64_t median = pct_u64(scratch, n, 500);

	for (size_t i = 0; i < n; i++)
		scratch[i] = scratch[i] > median ? scratch[i] - median : median - scratch[i];
	*ret_spread = pct_u64(scratch, n, 500);
	return median;
}

static void learn_cell(const struct sample *v, size_t n, double slope, uint64_t *scratch,
		       struct cell *ret)
{
	ret->n_decode = v->n_decode;
	ret->n = (uint32_t)n;
	for (size_t i = 0; i < n; i++)
		scratch[i] = less(v[i].ns, (uint64_t)(slope * v[i].context));
	ret->base_ns = middle(scratch, n, &ret->spread_ns);
	for (size_t i = 0; i < n; i++)
		scratch[i] = v[i].hole_ns;
	ret->hole_ns = middle(scratch, n, &ret->hole_spread_ns);
}

static int learn_decode(struct learnt *l, struct samples *s)
{
	size_t n_cells = 0, n;

	if (s->n < MIN_STEPS)
		return 0;
	for (size_t at = 0; at < s->n; at += next_group(s, at))
		n_cells++;
	l->cells = calloc(n_cells, sizeof(*l->cells));
	if (!l->cells)
		return -ENOMEM;
	l->slope = learn_slope(s);
	for (size_t at = 0; at < s->n; at += n) {
		n = next_group(s, at);
		if (n < MIN_CELL)
			continue;
		learn_cell(s->v + at, n_usable(s->v + at, n), l->slope, s->scratch,
			   &l->cells[l->n_cells]);
		l->n += l->cells[l->n_cells++].n;
	}
	return 0;
}

/* ---- what a batch size costs, those that were never seen between their neighbours ---- */

static uint64_t blend(uint64_t a, uint64_t b, double share)
{
	return (uint64_t)((double)a + ((double)b - (double)a) * share + 0.5);
}

static struct cell cell_for(const struct learnt *l, uint32_t n_decode)
{
	size_t lo = 0, hi = l->n_cells;
	const struct cell *a, *b;
	double share;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (l->cells[mid].n_decode < n_decode)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == l->n_cells)
		return l->cells[lo - 1];
	b = &l->cells[lo];
	if (!lo || b->n_decode == n_decode)
		return *b;
	a = b - 1;
	share = (double)(n_decode - a->n_decode) / (b->n_decode - a->n_decode);
	return (struct cell){
		.n_decode = n_decode, .n = a->n < b->n ? a->n : b->n,
		.base_ns = blend(a->base_ns, b->base_ns, share),
		.spread_ns = a->spread_ns > b->spread_ns ? a->spread_ns : b->spread_ns,
		.hole_ns = blend(a->hole_ns, b->hole_ns, share),
		.hole_spread_ns = a->hole_spread_ns > b->hole_spread_ns ? a->hole_spread_ns
									: b->hole_spread_ns,
	};
}

/* ---- prefill ---- */

static int size_of(uint32_t tokens)
{
	return tokens ? 31 - __builtin_clz(tokens) : 0;
}

static int by_size(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;
	int c = size_of(x->prefill) - size_of(y->prefill);

	return c ? c : compare(x->disturbed_pct, y->disturbed_pct);
}

static void learn_prefill(struct learnt *l, struct samples *s)
{
	size_t n;

	if (!l->n_cells || !s->n)
		return;
	qsort(s->v, s->n, sizeof(*s->v), by_size);
	for (size_t at = 0; at < s->n; at += n) {
		int size = size_of(s->v[at].prefill);
		size_t usable;

		for (n = 0; at + n < s->n && size_of(s->v[at + n].prefill) == size;)
			n++;
		if (n < MIN_PREFILL)
			continue;
		usable = n_usable(s->v + at, n);
		for (size_t i = 0; i < usable; i++) {
			const struct sample *x = &s->v[at + i];
			struct cell c = cell_for(l, batch_of(x->n_decode));
			uint64_t decode = c.base_ns + (uint64_t)(l->slope * x->context);

			s->scratch[i] = less(x->ns, decode) * 1000 / x->prefill;
		}
		l->prefill[size].n = (uint32_t)usable;
		l->prefill[size].per_token_ns = (double)pct_u64(s->scratch, usable, 500) / 1000;
	}
}

/* What so many tokens cost, from the next size that was learnt; 0 steps: none near enough. */
static uint64_t prefill_ns(const struct learnt *l, uint32_t tokens, uint32_t *ret_n)
{
	int size = size_of(tokens);

	*ret_n = 0;
	for (int d = 0; tokens && d <= 2; d++)
		for (int sign = -1; sign <= 1; sign += 2) {
			int i = size + sign * d;

			if (i < 0 || i >= N_SIZES || !l->prefill[i].n)
				continue;
			*ret_n = l->prefill[i].n;
			return (uint64_t)(l->prefill[i].per_token_ns * tokens);
		}
	return 0;
}

/* ---- all of it ---- */

static int learn_engine(const struct step_index *ix, const struct baseline_evidence *ev,
			uint32_t engine, struct learnt *l)
{
	size_t n = ix->first[engine + 1] - ix->first[engine];
	struct samples s = { 0 };
	int err = -ENOMEM;

	if (n > MAX_SAMPLES)
		n = MAX_SAMPLES;
	s.v = malloc((n + 1) * sizeof(*s.v));
	s.scratch = malloc((n + 1) * sizeof(*s.scratch));
	if (s.v && s.scratch) {
		collect(ix, ev, engine, false, &s);
		qsort(s.v, s.n, sizeof(*s.v), by_batch);
		err = learn_decode(l, &s);
	}
	if (!err) {
		collect(ix, ev, engine, true, &s);
		learn_prefill(l, &s);
	}
	free(s.v);
	free(s.scratch);
	return err;
}

int baseline__new(const struct step_index *ix, const struct baseline_evidence *ev,
		  struct baseline **ret)
{
	struct baseline *b = calloc(1, sizeof(*b));
	int err = 0;

	if (!b)
		return -ENOMEM;
	b->ix = ix;
	b->n_engines = ix->v->n_engines;
	b->engines = calloc(b->n_engines + 1, sizeof(*b->engines));
	if (!b->engines)
		err = -ENOMEM;
	for (size_t e = 0; e < b->n_engines && !err; e++)
		err = learn_engine(ix, ev, (uint32_t)e, &b->engines[e]);
	if (err) {
		baseline__free(b);
		return err;
	}
	*ret = b;
	return 0;
}

/* Of a normal error: 4.5 times the median distance from the median. */
static uint64_t three_deviations(uint64_t median_distance_ns)
{
	return median_distance_ns * 9 / 2;
}

void baseline__step(const struct baseline *b, uint32_t step, struct expected *ret)
{
	const struct step_facts *f = &b->ix->facts[step];
	const struct learnt *l = &b->engines[b->ix->v->steps[step].engine];
	struct cell c;

	*ret = (struct expected){ 0 };
	if (!l->n_cells)
		return;
	c = cell_for(l, batch_of(f->n_decode));
	ret->n_learnt = c.n;
	ret->decode_ns = c.base_ns + (uint64_t)(l->slope * f->context);
	ret->step_ns = ret->decode_ns + prefill_ns(l, f->prefill, &ret->n_prefill);
	ret->err_ns = most(most(ret->step_ns / 10, MIN_ERR_NS), three_deviations(c.spread_ns));
	ret->hole_ns = c.hole_ns;
	ret->hole_err_ns = most(most(c.hole_ns / 2, MIN_HOLE_ERR_NS),
				three_deviations(c.hole_spread_ns));
}

uint32_t baseline__n_learnt(const struct baseline *b)
{
	uint32_t n = 0;

	for (size_t e = 0; e < b->n_engines; e++)
		n += b->engines[e].n;
	return n;
}
