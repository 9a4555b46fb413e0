/* SPDX-License-Identifier: Apache-2.0 */
/* Busy time and batch size: unions of intervals, and sizes weighted by how long they lasted. */
#include "base/num.h"
#include "base/util.h"
#include "model/gpu.h"
#include "model/summary_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_BIN_NS = 1000000 }; /* more bins than that show noise */

/* The intervals to add up, ordered by begin: the model's own steps where these are in order
 * (always, unless engines overlap), else a sorted copy. */
struct intervals {
	const struct rec_step *v;
	size_t n;
	struct rec_step *copy;
	size_t n_engines;
};

static int by_begin(const void *a, const void *b)
{
	const struct rec_step *x = a, *y = b;

	return (x->t0_ns > y->t0_ns) - (x->t0_ns < y->t0_ns);
}

static int intervals_of_steps(const struct model_view *v, struct intervals *ret)
{
	bool sorted = true;

	*ret = (struct intervals){ .v = v->steps, .n = v->n_steps };
	for (size_t i = 0; i < v->n_steps; i++) {
		if (v->steps[i].engine >= ret->n_engines)
			ret->n_engines = v->steps[i].engine + 1;
		sorted = sorted && (i == 0 || v->steps[i].t0_ns >= v->steps[i - 1].t0_ns);
	}
	if (sorted)
		return 0;
	ret->copy = malloc(v->n_steps * sizeof(*ret->copy));
	if (!ret->copy)
		return -ENOMEM;
	memcpy(ret->copy, v->steps, v->n_steps * sizeof(*ret->copy));
	qsort(ret->copy, v->n_steps, sizeof(*ret->copy), by_begin);
	ret->v = ret->copy;
	return 0;
}

/* Without steps, an engine is busy while it has a request. */
static int intervals_of_requests(const struct model_view *v, struct intervals *ret)
{
	*ret = (struct intervals){ .n = 0 };
	if (!v->n_requests)
		return 0;
	ret->copy = calloc(v->n_requests, sizeof(*ret->copy));
	if (!ret->copy)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_requests; i++) {
		const struct rec_request *r = &v->requests[i];
		uint64_t t0 = request_first_ns(r);

		if (!t0)
			continue;
		ret->copy[ret->n++] = (struct rec_step){ .t0_ns = t0,
							 .t1_ns = request_last_ns(r),
							 .engine = r->engine };
		if (r->engine >= ret->n_engines)
			ret->n_engines = r->engine + 1;
	}
	qsort(ret->copy, ret->n, sizeof(*ret->copy), by_begin);
	ret->v = ret->copy;
	return 0;
}

struct bin_sums {
	double step_ns, busy_ns, members, tokens;
	double kv_ns, kv_pct, queues_ns, running, waiting; /* of steps of which the
							    * engine says them */
};

static void add_stats(struct bin_sums *b, const struct rec_step_stats *s, double ns)
{
	if (s->known & TL_STATS_KV) {
		b->kv_ns += ns;
		b->kv_pct += ns * s->kv_ppm / 1e4;
	}
	if (s->known & TL_STATS_QUEUES) {
		b->queues_ns += ns;
		b->running += ns * s->running;
		b->waiting += ns * s->waiting;
	}
}

static void add_to_bins(const struct model_view *v, const struct rec_step *s, uint64_t fresh_ns,
			uint64_t width, struct bin_sums *sums, struct summary *ret)
{
	size_t bin = s->t0_ns > v->t0_ns ? (size_t)((s->t0_ns - v->t0_ns) / width) : 0;

	if (bin >= ret->n_bins)
		return;
	ret->bins[bin].n_steps++;
	for (; bin < ret->n_bins; bin++) {
		uint64_t t0 = v->t0_ns + bin * width, t1 = t0 + width;
		uint64_t from = most(t0, s->t0_ns), to = least(t1, s->t1_ns);
		uint64_t fresh = most(from, fresh_ns);

		if (from >= to)
			break;
		sums[bin].step_ns += (double)(to - from);
		sums[bin].busy_ns += to > fresh ? (double)(to - fresh) : 0;
		sums[bin].members += (double)(to - from) * s->n_members;
		sums[bin].tokens += (double)(to - from) * s->n_tokens;
		add_stats(&sums[bin], step_stats(v, s), (double)(to - from));
	}
}

static void finish_bins(const struct bin_sums *sums, uint64_t width, size_t n_engines,
			struct summary *ret)
{
	for (size_t i = 0; i < ret->n_bins; i++) {
		const struct bin_sums *b = &sums[i];

		if (b->step_ns > 0) {
			ret->bins[i].mean_members = b->members / b->step_ns;
			ret->bins[i].mean_tokens = b->tokens / b->step_ns;
		}
		ret->bins[i].busy_pct = 100.0 * b->busy_ns / ((double)width * (double)n_engines);
		ret->bins[i].kv_pct = b->kv_ns > 0 ? b->kv_pct / b->kv_ns : -1;
		ret->bins[i].running = b->queues_ns > 0 ? b->running / b->queues_ns : -1;
		ret->bins[i].waiting = b->queues_ns > 0 ? b->waiting / b->queues_ns : -1;
	}
}

/* Half of the time in steps was spent at this batch size or below. */
static uint32_t median_batch(const uint64_t *ns_at_size, size_t n, uint64_t total)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		sum += ns_at_size[i];
		if (sum >= total - total / 2)
			return (uint32_t)i;
	}
	return (uint32_t)(n - 1);
}

static void add_up(const struct model_view *v, const struct intervals *in, uint64_t *covered_to,
		   uint64_t *ns_at_size, struct summary *ret)
{
	struct bin_sums sums[ARRAY_SIZE(ret->bins)] = { { 0 } };
	uint64_t width = v->t1_ns > v->t0_ns ? (v->t1_ns - v->t0_ns) / ARRAY_SIZE(ret->bins) + 1
					     : 0;
	uint64_t total = 0;
	double members = 0;

	if (ret->busy_from_steps && width) {
		width = most(width, MIN_BIN_NS);
		ret->n_bins = (size_t)((v->t1_ns - v->t0_ns) / width) + 1;
		for (size_t i = 0; i < ret->n_bins; i++)
			ret->bins[i].t0_ns = v->t0_ns + i * width;
	}
	for (size_t i = 0; i < in->n; i++) {
		const struct rec_step *s = &in->v[i];
		uint64_t fresh = most(s->t0_ns, covered_to[s->engine]);
		uint64_t ns = s->t1_ns > s->t0_ns ? s->t1_ns - s->t0_ns : 0;

		ret->busy_ns += s->t1_ns > fresh ? s->t1_ns - fresh : 0;
		covered_to[s->engine] = most(covered_to[s->engine], s->t1_ns);
		if (ret->n_bins)
			add_to_bins(v, s, fresh, width, sums, ret);
		total += ns;
		members += (double)ns * s->n_members;
		ns_at_size[least(s->n_members, TL_MAX_MEMBERS)] += ns;
		if (s->n_members > ret->batch.max)
			ret->batch.max = s->n_members;
	}
	finish_bins(sums, width, in->n_engines, ret);
	ret->batch.mean = total ? members / (double)total : 0;
	ret->batch.p50 = total ? median_batch(ns_at_size, TL_MAX_MEMBERS + 1, total) : 0;
}

int summary_time(const struct model_view *v, struct summary *ret)
{
	struct intervals in;
	uint64_t *covered_to, *ns_at_size;
	int err;

	/* steps that are known for some of the time only say nothing of the rest */
	ret->busy_from_steps = v->n_steps > 0 && !(v->gpu && v->gpu->n_stretches > 1);
	err = ret->busy_from_steps ? intervals_of_steps(v, &in) : intervals_of_requests(v, &in);
	if (err)
		return err;
	covered_to = calloc(in.n_engines + 1, sizeof(*covered_to));
	ns_at_size = calloc(TL_MAX_MEMBERS + 1, sizeof(*ns_at_size));
	if (covered_to && ns_at_size)
		add_up(v, &in, covered_to, ns_at_size, ret);
	else
		err = -ENOMEM;
	free(covered_to);
	free(ns_at_size);
	free(in.copy);
	return err;
}
