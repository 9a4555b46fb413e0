/* SPDX-License-Identifier: Apache-2.0 */
/* What the schedulers of engines say of themselves, over a whole recording. */
#include "model/summary.h"

#include <errno.h>
#include <stdlib.h>

/* A level and for how long it held: that of the step at whose end it was said. */
struct held {
	uint32_t level;
	uint64_t ns;
};

static int by_level(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	return (x->level > y->level) - (x->level < y->level);
}

/* Half of the time was spent at the median or below. */
static void level_of(struct held *h, size_t n, struct level *ret)
{
	uint64_t total = 0, sum = 0;

	if (!n)
		return;
	qsort(h, n, sizeof(*h), by_level);
	for (size_t i = 0; i < n; i++)
		total += h[i].ns;
	for (size_t i = 0; i < n && !ret->known; i++) {
		sum += h[i].ns;
		if (sum >= total - total / 2)
			*ret = (struct level){ true, h[i].level, h[n - 1].level };
	}
}

enum which { KV, RUNNING, WAITING };

/* at: steps of one engine, n of them, at whose end it said something. */
static void find_level(const struct model_view *v, const uint32_t *at, size_t n_at,
		       enum which which, struct held *h, struct level *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < n_at; i++) {
		const struct rec_step *st = &v->steps[at[i]];
		const struct rec_step_stats *s = step_stats(v, st);

		if (!(s->known & (which == KV ? TL_STATS_KV : TL_STATS_QUEUES)))
			continue;
		h[n++] = (struct held){
			.level = which == KV	    ? s->kv_ppm
				 : which == RUNNING ? s->running
						    : s->waiting,
			.ns = st->t1_ns > st->t0_ns ? st->t1_ns - st->t0_ns : 1,
		};
	}
	level_of(h, n, ret);
}

static void add(int64_t *sum, int64_t n)
{
	*sum = (*sum < 0 ? 0 : *sum) + n;
}

/* A victim says it with its next output. What the steps show is the adapter's own conclusion. */
static void add_preemptions(const struct model_view *v, struct scheduler_summary *s)
{
	for (size_t i = 0; i < v->n_seqs; i++)
		for (size_t k = 0; k < v->seqs[i].n_preemptions; k++) {
			const struct rec_preemption *p = &v->seqs[i].preemptions[k];
			struct scheduler_summary *to = &s[v->seqs[i].engine];

			if (p->at_ns < v->t0_ns)
				continue;
			add(&to->preemptions, 1);
			to->untold += p->prov == PROV_INFERRED && !p->resumed_ns;
		}
}

/* Steps at whose end something was said, engine after engine; end[i]: behind those of engine i. */
static void by_engine(const struct model_view *v, uint32_t *at, size_t *end)
{
	for (size_t i = 0; i < v->n_steps; i++)
		end[v->steps[i].engine + 1] += v->steps[i].stats != 0;
	for (size_t i = 0; i < v->n_engines; i++)
		end[i + 1] += end[i];
	for (size_t i = 0; i < v->n_steps; i++)
		if (v->steps[i].stats)
			at[end[v->steps[i].engine]++] = i;
}

static void summarise_engine(const struct model_view *v, const uint32_t *at, size_t n,
			     struct held *h, struct scheduler_summary *ret)
{
	for (size_t i = 0; i < n; i++) {
		const struct rec_step_stats *said = step_stats(v, &v->steps[at[i]]);

		if (said->known & TL_STATS_PREFIX) {
			add(&ret->prefix_queries, said->prefix_queries);
			add(&ret->prefix_hits, said->prefix_hits);
		}
		if (said->known & TL_STATS_SPEC) {
			add(&ret->drafted, said->drafted);
			add(&ret->accepted, said->accepted);
		}
	}
	if (n)		/* of a silent engine none is not known to be none */
		add(&ret->preemptions, 0);
	find_level(v, at, n, KV, h, &ret->kv_ppm);
	find_level(v, at, n, RUNNING, h, &ret->running);
	find_level(v, at, n, WAITING, h, &ret->waiting);
}

int summarise_schedulers(const struct model_view *v, struct scheduler_summary **ret)
{
	struct scheduler_summary *s = malloc((v->n_engines + 1) * sizeof(*s));
	uint32_t *at = malloc((v->n_steps + 1) * sizeof(*at));
	struct held *h = malloc((v->n_steps + 1) * sizeof(*h));
	size_t *end = calloc(v->n_engines + 1, sizeof(*end)), from = 0;
	int err = s && at && h && end ? 0 : -ENOMEM;

	if (err)
		goto end;
	for (size_t i = 0; i < v->n_engines; i++)
		s[i] = (struct scheduler_summary){ .prefix_queries = -1, .prefix_hits = -1, .preemptions = -1,
						   .drafted = -1, .accepted = -1 };
	add_preemptions(v, s);
	by_engine(v, at, end);
	for (size_t i = 0; i < v->n_engines; i++) {
		summarise_engine(v, at + from, end[i] - from, h, &s[i]);
		from = end[i];
	}
	*ret = s;
end:
	if (err)
		free(s);
	free(at);
	free(h);
	free(end);
	return err;
}
