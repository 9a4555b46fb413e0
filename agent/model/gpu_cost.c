/* SPDX-License-Identifier: Apache-2.0 */
/* What steps take. Decodes: a line through steps in which nobody waited. Tokens of prompts: least squares
 * over steps in a row with prompts that all begin and end there, as it is not known how they were cut. */
#include "model/gpu_cost.h"
#include "base/pct.h"

#include <errno.h>
#include <math.h>

enum {
	MIN_SAMPLES = 4,
	ODD_TIMES = 4,		/* so many times the usual error is none: a token was late */
};

struct line_fit {
	double n, sx, sy, sxx, sxy;
};

static void fit_add(struct line_fit *f, double x, double y)
{
	f->n++;
	f->sx += x;
	f->sy += y;
	f->sxx += x * x;
	f->sxy += x * y;
}

static bool fit_end(const struct line_fit *f, double *ret_base, double *ret_slope)
{
	double d = f->n * f->sxx - f->sx * f->sx;

	if (f->n < MIN_SAMPLES || d <= 0)
		return false;
	*ret_slope = (f->n * f->sxy - f->sx * f->sy) / d;
	*ret_slope = *ret_slope > 0 ? *ret_slope : 0;
	*ret_base = (f->sy - *ret_slope * f->sx) / f->n;
	return true;
}

/* A step that only decodes, as far as that is known, and how long it took is. */
static bool is_decode(const struct inferred *f, const struct gpu_load *loads, size_t i, int by)
{
	const struct istep *s = &f->steps.v[i];

	return gpu_time_of(s, by) != GPU_UNKNOWN && !loads[i].waits && !loads[i].ends && s->n_decode;
}

static void fit_decodes(const struct inferred *f, const struct gpu_load *loads, int by, struct gpu_cost *c)
{
	struct line_fit l = { 0 };

	for (size_t i = 0; i < f->steps.n; i++) {
		const struct istep *s = &f->steps.v[i];

		/* steps with prompts are not replayed */
		if (is_decode(f, loads, i, by) && (!f->has_graphs || !s->replayed))
			fit_add(&l, s->n_decode, (double)gpu_time_of(s, by));
	}
	c->decodes = fit_end(&l, &c->base_ns, &c->per_seq_ns);
}

static double off_decodes(const struct gpu_decodes *d, const struct istep *s, int by)
{
	return fabs((double)gpu_time_of(s, by) - d->base_ns - d->per_seq_ns * s->n_decode);
}

/* Those within max_err of what is known so far. Batches of one size say nothing of what a sequence takes. */
static void fit_near(const struct inferred *f, const struct gpu_load *loads, int by, double max_err, struct gpu_decodes *d)
{
	struct gpu_decodes was = *d;
	struct line_fit l = { 0 };

	for (size_t i = 0; i < f->steps.n; i++)
		if (is_decode(f, loads, i, by) && off_decodes(&was, &f->steps.v[i], by) <= max_err)
			fit_add(&l, f->steps.v[i].n_decode, (double)gpu_time_of(&f->steps.v[i], by));
	if (l.n < MIN_SAMPLES)
		return;
	d->known = true;
	if (!fit_end(&l, &d->base_ns, &d->per_seq_ns)) {
		d->base_ns = l.sy / l.n;
		d->per_seq_ns = 0;
	}
}

int gpu_decodes_fit(const struct inferred *f, const struct gpu_load *loads, int by, struct gpu_decodes *ret)
{
	uint64_t *room = malloc((f->steps.n + 1) * sizeof(*room));

	*ret = (struct gpu_decodes){ .known = false };
	if (!room)
		return -ENOMEM;
	/* from the median on, which some that stood still do not move */
	for (int round = 0; round < 3; round++) {
		size_t n = 0;

		for (size_t i = 0; i < f->steps.n; i++)
			if (is_decode(f, loads, i, by))
				room[n++] = (uint64_t)off_decodes(ret, &f->steps.v[i], by);
		if (n < MIN_SAMPLES)
			break;
		ret->err_ns = (double)pct_u64(room, n, 500);
		if (!round)
			ret->base_ns = ret->err_ns;
		else
			fit_near(f, loads, by, ODD_TIMES * ret->err_ns + 1, ret);
	}
	free(room);
	return 0;
}

/* Steps in a row with prompts that all begin and end there: what is in them together is known. */
enum { DECODES, STEPS, TOKENS, N_PARTS };
struct clump {
	double n[N_PARTS], ns;
	bool odd;
};
struct clumps {
	VEC(struct clump) l;
};

static bool is_last_of_clump(const struct inferred *f, const struct gpu_load *loads, uint32_t i)
{
	const struct istep *s = &f->steps.v[i];

	return loads[i].waits == loads[i].ends || i + 1 == f->steps.n || s[1].segment != s->segment;
}

static int find_clumps(const struct inferred *f, const struct gpu_load *loads, int by, struct clumps *ret)
{
	struct clump c = { .odd = false };

	for (uint32_t i = 0; i < f->steps.n; i++) {
		const struct istep *s = &f->steps.v[i];

		c.odd |= loads[i].open;
		if (loads[i].waits && !(f->has_graphs && s->replayed)) {
			c.odd |= gpu_time_of(s, by) == GPU_UNKNOWN;
			c.n[STEPS]++;
			c.n[DECODES] += s->n_decode;
			c.ns += (double)gpu_time_of(s, by);
		}
		c.n[TOKENS] += loads[i].tokens;
		if (!is_last_of_clump(f, loads, i))
			continue;
		if (c.n[STEPS] > 0 && c.n[TOKENS] > 0 && !c.odd) {
			struct clump *at = vec_push(&ret->l, SIZE_MAX);

			if (!at)
				return -ENOMEM;
			*at = c;
		}
		c = (struct clump){ .odd = false };
	}
	return 0;
}

static double cost_of(const struct gpu_cost *k, const struct clump *c)
{
	return k->base_ns * c->n[STEPS] + k->per_seq_ns * c->n[DECODES] + k->per_token_ns * c->n[TOKENS];
}

/* Gauss-Jordan, of sums of squares. false: some of them say nothing that others do not. */
static bool eliminate(double a[N_PARTS][N_PARTS + 1], int n)
{
	double whole[N_PARTS];

	for (int r = 0; r < n; r++)
		whole[r] = a[r][r];
	for (int r = 0; r < n; r++) {
		double by = a[r][r];

		if (by <= whole[r] * 1e-6)
			return false;
		for (int k = 0; k <= n; k++)
			a[r][k] /= by;
		for (int other = 0; other < n; other++) {
			by = other == r ? 0 : a[other][r];
			for (int k = 0; k <= n; k++)
				a[other][k] -= by * a[r][k];
		}
	}
	return true;
}

/* Least squares: what one of each part from `first` to `last` takes, beside what is known. Long clumps
 * count no more. */
static bool solve(const struct clumps *l, int first, int last, const struct gpu_cost *known, double *ret)
{
	double a[N_PARTS][N_PARTS + 1] = { 0 };
	int n = last - first + 1, n_clumps = 0;

	for (size_t i = 0; i < l->l.n; i++) {
		const struct clump *c = &l->l.v[i];

		if (c->odd)
			continue;
		n_clumps++;
		for (int r = 0; r < n; r++) {
			double x = c->n[first + r] / c->n[STEPS];

			for (int k = 0; k < n; k++)
				a[r][k] += x * c->n[first + k];
			a[r][n] += x * (c->ns - cost_of(known, c));
		}
	}
	if (n_clumps < MIN_SAMPLES || !eliminate(a, n))
		return false;
	for (int r = 0; r < n; r++)
		ret[first + r] = a[r][n];
	return true;
}

/* What a token takes; where decodes are replayed, only here is seen what a step and a decode in it take. */
static bool fit_once(const struct clumps *l, struct gpu_cost *c)
{
	struct gpu_cost known = { c->base_ns, c->per_seq_ns, 0, c->decodes };
	double x[N_PARTS] = { 0 };

	if (c->decodes) {
		if (!solve(l, TOKENS, TOKENS, &known, x))
			return false;
	} else {
		known = (struct gpu_cost){ .decodes = false };
		if (!solve(l, DECODES, TOKENS, &known, x) || x[DECODES] < 0) {
			x[DECODES] = 0;
			if (!solve(l, STEPS, TOKENS, &known, x))
				return false;
		}
	}
	*c = (struct gpu_cost){ known.base_ns + x[STEPS], known.per_seq_ns + x[DECODES], x[TOKENS], c->decodes };
	return true;
}

static double error_of(const struct gpu_cost *k, const struct clump *c)
{
	return fabs(c->ns - cost_of(k, c)) / c->n[STEPS];
}

/* Once with all of them, once without those that do not fit: a token of theirs was late. */
static int fit_prompts(const struct inferred *f, const struct gpu_load *loads, int by, struct gpu_cost *c)
{
	struct clumps l = { 0 };
	uint64_t *errors = NULL, usual;
	int err = find_clumps(f, loads, by, &l);

	if (!err && l.l.n) {
		errors = malloc(l.l.n * sizeof(*errors));
		err = errors ? 0 : -ENOMEM;
	}
	if (!err && fit_once(&l, c)) {
		for (size_t i = 0; i < l.l.n; i++)
			errors[i] = (uint64_t)error_of(c, &l.l.v[i]);
		usual = pct_u64(errors, l.l.n, 500);
		for (size_t i = 0; i < l.l.n; i++)
			l.l.v[i].odd = error_of(c, &l.l.v[i]) > ODD_TIMES * (double)usual + 1;
		fit_once(&l, c);
	}
	free(errors);
	vec_free(&l.l);
	return err;
}

int gpu_cost_fit(const struct inferred *f, const struct gpu_load *loads, int by, struct gpu_cost *ret)
{
	*ret = (struct gpu_cost){ .decodes = false };
	fit_decodes(f, loads, by, ret);
	return fit_prompts(f, loads, by, ret);
}
