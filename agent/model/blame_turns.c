/* SPDX-License-Identifier: Apache-2.0 */
/* How an engine takes turns: not every sequence is in every step, and steps are planned ahead. */
#include "base/pct.h"
#include "model/blame_priv.h"
#include "model/leads.h"
#include "model/servers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_SKIPPED = 15,
	MIN_TURNS = 32,
	MIN_ARRIVALS = 8,
	OFTEN = 10 /* of all steps, one in so many */
};

/* ---- which sequence of a request, and since when the engine has it ---- */

/* The one that gave its first token. */
uint32_t prompt_seq(const struct blame *b, const struct rec_request *r, size_t *ret_visit)
{
	struct leads l;

	leads_of(&b->v, r, &l);
	*ret_visit = l.first_visit;
	return l.first_visit == SIZE_MAX ? UINT32_MAX : l.first;
}

/* Where it was before the engine had it: the first of these points that is known. */
uint64_t handed_over(const struct rec_request *r)
{
	if (r->at_ns[P_SUBMIT])
		return r->at_ns[P_SUBMIT];
	return r->at_ns[P_QUEUED] ? r->at_ns[P_QUEUED] : r->at_ns[P_REQ_LAST_BYTE];
}

/* ---- steps without it between two of a sequence's own ---- */

/* The median: with pipeline parallelism a sequence is rightly in every second step, or every fourth. */
static uint32_t skipped_of(const uint64_t *n_by_steps)
{
	uint64_t n = 0, sum = 0;
	uint32_t steps = 0;

	for (uint32_t i = 0; i <= MAX_SKIPPED; i++)
		n += n_by_steps[i];
	if (n < MIN_TURNS)
		return 0;
	while (sum + n_by_steps[steps] < n / 2 + 1)
		sum += n_by_steps[steps++];
	return steps;
}

static int learn_skipped(struct blame *b)
{
	uint64_t (*counts)[MAX_SKIPPED + 1] = calloc(b->v.n_engines + 1, sizeof(*counts));

	if (!counts)
		return -ENOMEM;
	for (size_t i = 0; i < b->v.n_seqs; i++) {
		const struct rec_sequence *q = &b->v.seqs[i];

		for (size_t k = 1; k < q->n_visits; k++) {
			uint32_t from = b->ix.facts[q->visits[k - 1].step].place;
			uint32_t to = b->ix.facts[q->visits[k].step].place;

			if (q->visits[k].phase == TL_DECODE && to > from)
				counts[q->engine][least(to - from - 1, MAX_SKIPPED)]++;
		}
	}
	for (size_t e = 0; e < b->v.n_engines; e++)
		b->turns[e].skipped = skipped_of(counts[e]);
	free(counts);
	return 0;
}

/* ---- steps planned ahead ---- */

/* How many whole steps ran without a request that arrived in the middle of one; false: it did not. */
static bool steps_waited(const struct blame *b, const struct rec_request *r, uint32_t *ret_engine,
			 uint64_t *ret_steps)
{
	uint64_t t_ns = handed_over(r);
	size_t visit, place, own;
	uint32_t seq = prompt_seq(b, r, &visit);
	struct step_span at;

	if (seq == UINT32_MAX || !t_ns)
		return false;
	*ret_engine = b->v.seqs[seq].engine;
	own = b->ix.facts[b->v.seqs[seq].visits[0].step].place;
	place = step_index__after(&b->ix, *ret_engine, t_ns);
	if (place >= own)
		return false;
	at = step_index__span(&b->ix, b->ix.order[place]);
	*ret_steps = own - place - 1;
	return at.t0_ns < t_ns;
}

/* One if nearly nobody gets into the next step. Where that is so because all of them queue, one step more
 * of many is said to be a wait for a step. */
static int learn_ahead(struct blame *b)
{
	struct arrival {
		uint32_t engine;
		uint64_t steps;
	} *v = malloc((b->v.n_requests + 1) * sizeof(*v));
	size_t n = 0;
	int err =
		blame_room(&b->numbers, &b->cap_numbers, b->v.n_requests + 1, sizeof(*b->numbers));

	if (!v || err) {
		free(v);
		return -ENOMEM;
	}
	for (size_t i = 0; i < b->v.n_requests; i++)
		n += steps_waited(b, &b->v.requests[i], &v[n].engine, &v[n].steps);
	for (size_t e = 0; e < b->v.n_engines; e++) {
		size_t k = 0;

		for (size_t i = 0; i < n; i++)
			if (v[i].engine == e)
				b->numbers[k++] = v[i].steps;
		b->turns[e].ahead = k >= MIN_ARRIVALS && pct_u64(b->numbers, k, 100) >= 1;
	}
	free(v);
	return 0;
}

/* ---- what a step may have ---- */

/* Steps in which a prompt was cut: these had no token left. */
struct cuts {
	uint32_t most; /* tokens */
	uint64_t n, sum;
	bool inferred;
};

static void count_cuts(const struct blame *b, const struct rec_sequence *q, struct cuts *c)
{
	for (size_t i = 0; i + 1 < q->n_visits; i++) {
		const struct rec_step *st = &b->v.steps[q->visits[i].step];

		if (q->visits[i].phase != TL_PREFILL || q->visits[i + 1].phase != TL_PREFILL)
			continue;
		c->n++;
		c->sum += st->n_tokens;
		c->most = (uint32_t)most(c->most, st->n_tokens);
		c->inferred |= st->inferred;
	}
}

/* A prompt may be cut elsewhere, too: the largest of these steps is full. Where tokens are inferred
 * it is the one that erred most, and one that is full may seem to have a quarter less. */
static int learn_tokens(struct blame *b)
{
	struct cuts *cuts = calloc(b->v.n_engines + 1, sizeof(*cuts));

	if (!cuts)
		return -ENOMEM;
	for (size_t i = 0; i < b->v.n_seqs; i++)
		count_cuts(b, &b->v.seqs[i], &cuts[b->v.seqs[i].engine]);
	for (size_t e = 0; e < b->v.n_engines; e++) {
		const struct cuts *c = &cuts[e];

		b->turns[e].full_tokens = c->inferred ? (uint32_t)(c->sum / c->n / 4 * 3)
						      : c->most - c->most / 16;
	}
	free(cuts);
	return 0;
}

/* llama.cpp has slots, with numbers from 0. Of an engine that nothing is known of, what is seen often
 * is all that it has; vLLM may have as many by chance: its cache is what it lacks. */
static void learn_places(struct blame *b)
{
	for (size_t i = 0; i < b->v.n_seqs; i++) {
		const struct rec_sequence *q = &b->v.seqs[i];

		if (b->v.engines[q->engine].e.engine == TL_ENGINE_LLAMA && q->n_visits)
			b->turns[q->engine].places =
				(uint32_t)most(b->turns[q->engine].places, q->slot + 1ull);
	}
	for (size_t e = 0; e < b->v.n_engines; e++) {
		uint8_t kind = b->v.engines[e].e.engine;
		struct turns *t = &b->turns[e];
		size_t n = 0, all = b->ix.first[e + 1] - b->ix.first[e];

		t->full_of_seqs = kind == TL_ENGINE_LLAMA;
		if (kind == TL_ENGINE_LLAMA)
			continue;
		for (size_t i = b->ix.first[e]; i < b->ix.first[e + 1]; i++) {
			uint32_t n_members = b->v.steps[b->ix.order[i]].n_members;

			if (n_members > t->places) {
				t->places = n_members;
				n = 0;
			}
			n += n_members == t->places;
		}
		t->full_of_seqs = kind != TL_ENGINE_VLLM && n * OFTEN >= all;
	}
}

static int learn_limits(struct blame *b)
{
	struct engine_limits *limits;
	int err = servers_limits(&b->v, &limits);

	if (err)
		return err;
	for (size_t e = 0; e < b->v.n_engines; e++) {
		b->turns[e].max_seqs = limits[e].max_seqs;
		b->turns[e].max_tokens = limits[e].max_step_tokens;
	}
	free(limits);
	learn_places(b);
	return learn_tokens(b);
}

int turns_learn(struct blame *b)
{
	int err = learn_skipped(b);

	if (!err)
		err = learn_limits(b);
	return err ? err : learn_ahead(b);
}
