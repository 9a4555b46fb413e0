/* SPDX-License-Identifier: Apache-2.0 */
/* Behind whom a request waited in the queue, and for want of what: a place, room in the cache, tokens. */
#include "model/blame_priv.h"
#include "model/room.h"

#include <stdlib.h>
#include <string.h>

enum {
	MAX_HOLDERS_NAMED = 16,
	MAX_HOLDERS = 4096, /* more are a crowd; on a slot, of so many that began before */
	MAX_STEPS_BEHIND = 1024, /* a longer queue is one for places */
	MAX_STEPS_ASKED = 4096, /* then the rest is like the last of them */
	KV_FULL_PPM = 950000,
	KV_TIGHT_PPM = 500000 /* with less in use, it is no prompt that finds no room */
};

/* ---- for want of what ---- */

static bool is_full(uint32_t n, uint32_t max)
{
	return max && n >= max;
}

/* For want of what a sequence that is not in this step waits, as far as is known. One that waits although the step has
 * a place and tokens left for it waits for room in the cache: in vLLM there is no fourth reason as common. */
static enum queue_limit queue_limit(const struct blame *b, uint32_t step)
{
	const struct rec_step *st = &b->v.steps[step];
	const struct turns *t = &b->turns[st->engine];
	const struct rec_step_stats *said = step_stats(&b->v, st);
	bool llama = b->v.engines[st->engine].e.engine == TL_ENGINE_LLAMA,
	     kv = said->known & TL_STATS_KV;

	if (is_full(st->n_members, t->max_seqs) || (llama && is_full(st->n_members, t->places)))
		return LIMIT_SLOTS;
	if (kv && said->kv_ppm >= KV_FULL_PPM)
		return LIMIT_KV;
	if (is_full(st->n_tokens, t->max_tokens) || is_full(st->n_tokens, t->full_tokens))
		return LIMIT_TOKENS;
	if (t->full_of_seqs && is_full(st->n_members, t->places))
		return LIMIT_SLOTS;
	if (t->max_tokens && t->max_seqs && (!kv || said->kv_ppm >= KV_TIGHT_PPM))
		return LIMIT_KV;
	return LIMIT_UNKNOWN;
}

bool step_had_room(const struct blame *b, uint32_t step, bool next)
{
	const struct rec_step *st = &b->v.steps[step];
	const struct turns *t = &b->turns[st->engine];
	uint32_t max_seqs = t->max_seqs ? t->max_seqs : t->places;
	const struct rec_step_stats *said = step_stats(&b->v, st);
	bool vllm = b->v.engines[st->engine].e.engine == TL_ENGINE_VLLM;

	if (is_full(st->n_tokens, t->max_tokens) || is_full(st->n_tokens, t->full_tokens))
		return false;
	if (next && step_all_run_on(&b->v, step))
		return true;
	if (said->known & TL_STATS_KV ? said->kv_ppm >= KV_TIGHT_PPM : vllm)
		return false;
	return st->n_members < max_seqs;
}

/* ---- behind whom ---- */

/* When a sequence had its place: from its first step to its last. */
static struct loss life_of(const struct blame *b, uint32_t seq)
{
	const struct rec_sequence *q = &b->v.seqs[seq];

	return (struct loss){ b->v.steps[q->visits[0].step].t0_ns,
			      b->v.steps[q->visits[q->n_visits - 1].step].t1_ns };
}

static int add_holder(struct blame *b, const struct walk *w, uint64_t until_ns, uint32_t seq,
		      size_t *n)
{
	struct loss life = life_of(b, seq);
	uint64_t from = most(life.since_ns, w->at_ns), until = least(life.until_ns, until_ns);

	if (seq == w->seq || until <= from || b->v.seqs[seq].req == w->g->request + 1)
		return 0;
	if (blame_room(&b->holders, &b->cap_holders, *n + 1, sizeof(*b->holders)))
		return -1;
	b->holders[(*n)++] = (struct holder){ until - from, seq };
	return 0;
}

static int by_weight(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Where those begin in by_begin whose first step lies behind this place. */
static size_t begun_behind(const struct blame *b, uint32_t engine, size_t place)
{
	size_t lo = b->first_of[engine], hi = b->first_of[engine + 1];

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (b->ix.facts[b->v.seqs[b->by_begin[mid]].visits[0].step].place <= place)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Of one slot per sequence (llama.cpp): who had it. Sequences are in order of their start. */
static int slot_holders(struct blame *b, const struct walk *w, uint64_t until_ns, size_t *n)
{
	const struct rec_sequence *q = &b->v.seqs[w->seq];
	size_t first = b->first_of[q->engine], at, back = 0;

	if (b->v.engines[q->engine].e.engine != TL_ENGINE_LLAMA)
		return 0;
	at = begun_behind(b, q->engine, b->ix.facts[q->visits[0].step].place);
	while (at-- > first && back++ < MAX_HOLDERS) {
		uint32_t seq = b->by_begin[at];

		if (seq == w->seq || b->v.seqs[seq].slot != q->slot)
			continue;
		if (life_of(b, seq).until_ns <= w->at_ns)
			break;
		if (add_holder(b, w, until_ns, seq, n))
			return -1;
	}
	return 0;
}

/* Those that ran when the wait began, and those that were taken on before it. */
static int room_holders(struct blame *b, const struct walk *w, uint32_t engine, uint64_t until_ns,
			size_t *n)
{
	size_t place = step_index__after(&b->ix, engine, w->at_ns), at;
	const struct rec_step *st;

	if (place == b->ix.first[engine + 1])
		return 0;
	st = &b->v.steps[b->ix.order[place]];
	for (uint32_t i = 0; i < st->n_members; i++)
		if (add_holder(b, w, until_ns, b->v.members[st->first_member + i].seq, n))
			return -1;
	at = begun_behind(b, engine, place);
	for (; at < b->first_of[engine + 1] && *n <= MAX_HOLDERS; at++) {
		if (life_of(b, b->by_begin[at]).since_ns >= until_ns)
			break;
		if (add_holder(b, w, until_ns, b->by_begin[at], n))
			return -1;
	}
	return 0;
}

/* Room in the cache is what they held of it, as long as they did. */
static void weigh_by_context(struct blame *b, size_t n, uint64_t until_ns)
{
	for (size_t i = 0; i < n; i++) {
		struct holder *h = &b->holders[i];

		h->weight = (h->weight / 1000 + 1) *
			    (context_at(b, h->seq, least(life_of(b, h->seq).until_ns, until_ns)) + 1);
	}
}

static void split_over_holders(struct walk *w, size_t n, uint64_t left)
{
	struct holder *v = w->b->holders;
	uint64_t weight = 0;

	for (size_t i = 0; i < n; i++)
		weight += v[i].weight;
	if (n)
		qsort(v, n, sizeof(*v), by_weight);
	for (size_t i = 0; i < n && i < MAX_HOLDERS_NAMED; i++) {
		struct culprit who = culprit_of(w->b, v[i].seq);
		uint64_t ns = (uint64_t)((unsigned __int128)left * v[i].weight / weight);

		gap_add(w->g, MECH_QUEUE, PROV_INFERRED, ns, &who, NULL);
		left -= ns;
		weight -= v[i].weight;
	}
	gap_add(w->g, MECH_QUEUE, PROV_INFERRED, left, NULL, NULL);
}

/* [at_ns, until] step by step: for want of what. Returns how many steps. */
static size_t ask_steps(const struct walk *w, uint32_t engine, uint64_t until_ns,
			uint64_t ret_ns[N_QUEUE_LIMITS])
{
	const struct step_index *ix = &w->b->ix;
	size_t first = step_index__after(ix, engine, w->at_ns), n = 0;
	enum queue_limit limit = LIMIT_UNKNOWN;
	uint64_t at_ns = w->at_ns;

	for (size_t place = first; place < ix->first[engine + 1] && n < MAX_STEPS_ASKED; place++, n++) {
		uint32_t step = ix->order[place];
		uint64_t end = least(w->b->v.steps[step].t1_ns, until_ns);

		if (step_index__span(ix, step).t0_ns >= until_ns)
			break;
		limit = queue_limit(w->b, step);
		ret_ns[limit] += less(end, at_ns);
		at_ns = most(at_ns, end);
	}
	ret_ns[limit] += less(until_ns, at_ns);
	return n;
}

/* What of [at_ns, until] was for want of tokens: behind those whose tokens filled the steps. `n`: steps in it. */
static void cut_behind_tokens(struct walk *w, uint32_t engine, uint64_t until_ns, size_t n)
{
	const struct step_index *ix = &w->b->ix;
	size_t first = step_index__after(ix, engine, w->at_ns);
	uint64_t at_ns = w->at_ns;

	for (size_t i = 0; i < n; i++) {
		uint32_t step = ix->order[first + i];
		uint64_t end = i + 1 < n ? least(w->b->v.steps[step].t1_ns, until_ns) : until_ns;

		if (queue_limit(w->b, step) == LIMIT_TOKENS)
			gap_add_members(w->b, w->g, MECH_QUEUE, less(end, at_ns), step, w->seq);
		at_ns = most(at_ns, end);
	}
}

int cut_queue(struct walk *w, uint32_t engine, uint64_t until_ns)
{
	struct blame *b = w->b;
	uint64_t ns[N_QUEUE_LIMITS] = { 0 }, left = less(until_ns, w->at_ns);
	size_t n = 0, n_steps;

	if (!left)
		return 0;
	n_steps = ask_steps(w, engine, until_ns, ns);
	/* a slot that another had is what it waited for if there was no other one */
	if (2 * ns[LIMIT_SLOTS] >= left && w->seq != UINT32_MAX && slot_holders(b, w, until_ns, &n))
		return -1;
	if (n) {
		memset(ns, 0, sizeof(ns));
		ns[LIMIT_SLOTS] = left;
	} else {
		if (n_steps <= MAX_STEPS_BEHIND) {
			cut_behind_tokens(w, engine, until_ns, n_steps);
			left -= ns[LIMIT_TOKENS];
		}
		if (left && room_holders(b, w, engine, until_ns, &n))
			return -1;
		n = n > MAX_HOLDERS ? 0 : n;
		if (2 * ns[LIMIT_KV] > left)
			weigh_by_context(b, n, until_ns);
	}
	for (int i = 0; i < N_QUEUE_LIMITS; i++)
		w->g->queue_ns[i] += ns[i];
	split_over_holders(w, n > MAX_HOLDERS ? 0 : n, left);
	w->at_ns = until_ns;
	return 0;
}
