/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the steps of each engine by their end and counts what is in them. */
#include "model/step_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Steps come nearly in order of their ends: each is moved back past those that end later. false:
 * that takes too long, they are in no order. */
static bool put_in_order(struct step_index *ix, size_t *next)
{
	const struct rec_step *steps = ix->v->steps;
	size_t n_moves = 0, max_moves = 8 * ix->v->n_steps + 64;

	for (size_t i = 0; i < ix->v->n_steps; i++) {
		size_t first = ix->first[steps[i].engine], at = next[steps[i].engine]++;

		for (; at > first && steps[ix->order[at - 1]].t1_ns > steps[i].t1_ns; at--) {
			ix->order[at] = ix->order[at - 1];
			if (n_moves++ == max_moves)
				return false;
		}
		ix->order[at] = (uint32_t)i;
	}
	return true;
}

static int by_end(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : x[1] < y[1] ? -1 : x[1] > y[1];
}

static int sort_order(struct step_index *ix, size_t *next)
{
	const struct model_view *v = ix->v;
	uint64_t (*keys)[2] = malloc((v->n_steps + 1) * sizeof(*keys));

	if (!keys)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_steps; i++) {
		keys[i][0] = v->steps[i].t1_ns;
		keys[i][1] = i;
	}
	qsort(keys, v->n_steps, sizeof(*keys), by_end);
	memcpy(next, ix->first, v->n_engines * sizeof(*next));
	for (size_t i = 0; i < v->n_steps; i++)
		ix->order[next[v->steps[keys[i][1]].engine]++] = (uint32_t)keys[i][1];
	free(keys);
	return 0;
}

static int order(struct step_index *ix)
{
	const struct model_view *v = ix->v;
	size_t *next = malloc((v->n_engines + 1) * sizeof(*next));
	int err = 0;

	if (!next)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_steps; i++)
		ix->first[v->steps[i].engine + 1]++;
	for (size_t e = 0; e < v->n_engines; e++)
		ix->first[e + 1] += ix->first[e];
	memcpy(next, ix->first, v->n_engines * sizeof(*next));
	if (!put_in_order(ix, next))
		err = sort_order(ix, next);
	free(next);
	for (size_t at = 0; !err && at < v->n_steps; at++)
		ix->facts[ix->order[at]].place = (uint32_t)at;
	return err;
}

struct seq_so_far {
	uint32_t context;	/* tokens that it has computed */
	bool again;		/* its last step computed what it had lost */
};

static void count_member(const struct rec_member *m, struct seq_so_far *seq, struct step_facts *f,
			 uint64_t *context)
{
	bool again = m->phase != TL_DECODE && m->again;

	if (m->phase == TL_DECODE) {
		f->n_decode++;
		*context += seq->context;
	} else {
		f->prefill += member_weight(m->n_tokens);
		if (again && !seq->again)
			seq->context = 0;
	}
	seq->again = again;
	seq->context += m->n_tokens;
}

/* What each sequence has computed so far is its context; a place that is lost takes it along. */
static int count(struct step_index *ix)
{
	const struct model_view *v = ix->v;
	struct seq_so_far *seqs = calloc(v->n_seqs + 1, sizeof(*seqs));

	if (!seqs)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_seqs; i++)
		seqs[i].context = v->seqs[i].kept > 0 ? (uint32_t)v->seqs[i].kept : 0;
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct rec_step *st = &v->steps[i];
		struct step_facts *f = &ix->facts[i];
		uint64_t context = 0;

		for (uint32_t k = 0; k < st->n_members; k++) {
			const struct rec_member *m = &v->members[st->first_member + k];

			count_member(m, &seqs[m->seq], f, &context);
		}
		f->context = context < UINT32_MAX ? (uint32_t)context : UINT32_MAX;
	}
	free(seqs);
	return 0;
}

int step_index__init(struct step_index *ix, const struct model_view *v)
{
	int err = -ENOMEM;

	*ix = (struct step_index){ .v = v };
	ix->order = calloc(v->n_steps + 1, sizeof(*ix->order));
	ix->first = calloc(v->n_engines + 1, sizeof(*ix->first));
	ix->facts = calloc(v->n_steps + 1, sizeof(*ix->facts));
	if (ix->order && ix->first && ix->facts)
		err = order(ix);
	if (!err)
		err = count(ix);
	if (err)
		step_index__free(ix);
	return err;
}

void step_index__free(struct step_index *ix)
{
	free(ix->order);
	free(ix->first);
	free(ix->facts);
	*ix = (struct step_index){ 0 };
}

size_t step_index__after(const struct step_index *ix, uint32_t engine, uint64_t t_ns)
{
	size_t lo = ix->first[engine], hi = ix->first[engine + 1];

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (ix->v->steps[ix->order[mid]].t1_ns <= t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}
