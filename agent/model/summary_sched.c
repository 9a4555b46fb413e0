/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine's scheduler says of itself, over a whole recording. */
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

static void find_level(const struct model_view *v, uint32_t engine, enum which which,
		       struct held *h, struct level *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_steps; i++) {
		const struct rec_step *st = &v->steps[i];
		const struct rec_step_stats *s = step_stats(v, st);

		if (st->engine != engine ||
		    !(s->known & (which == KV ? TL_STATS_KV : TL_STATS_QUEUES)))
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
static int64_t preemptions_of_sequences(const struct model_view *v, uint32_t engine)
{
	int64_t n = 0;

	for (size_t i = 0; i < v->n_seqs; i++)
		for (size_t k = 0; v->seqs[i].engine == engine && k < v->seqs[i].n_preemptions; k++)
			n += v->seqs[i].preemptions[k].at_ns >= v->t0_ns;
	return n;
}

int summarise_scheduler(const struct model_view *v, uint32_t engine, struct scheduler_summary *ret)
{
	struct scheduler_summary s = { .prefix_queries = -1, .prefix_hits = -1, .preemptions = -1,
				       .drafted = -1, .accepted = -1 };
	int64_t preemptions = preemptions_of_sequences(v, engine);
	size_t n = 0;

	for (size_t i = 0; i < v->n_steps; i++) {
		const struct rec_step_stats *said = step_stats(v, &v->steps[i]);

		if (v->steps[i].engine != engine || !v->steps[i].stats)
			continue;
		n++;
		if (said->known & TL_STATS_PREFIX) {
			add(&s.prefix_queries, said->prefix_queries);
			add(&s.prefix_hits, said->prefix_hits);
		}
		if (said->known & TL_STATS_SPEC) {
			add(&s.drafted, said->drafted);
			add(&s.accepted, said->accepted);
		}
	}
	if (n || preemptions)	/* of a silent engine none is not known to be none */
		s.preemptions = preemptions;
	if (n) {
		struct held *h = malloc(n * sizeof(*h));

		if (!h)
			return -ENOMEM;
		find_level(v, engine, KV, h, &s.kv_ppm);
		find_level(v, engine, RUNNING, h, &s.running);
		find_level(v, engine, WAITING, h, &s.waiting);
		free(h);
	}
	*ret = s;
	return 0;
}
