/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up the parts of all gaps and all TTFTs of a recording. */
#include "model/blame_sum.h"
#include "base/map.h"
#include "base/vec.h"
#include "model/blame_sum_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REHASH = 16 };	/* keys tried for one pair before it is given up */

/* Of a pair: the number of the last gap it was in, and how much of that. */
struct last_gap {
	uint64_t gap, ns;
};

struct adder {
	struct blame *b;
	const struct model_view *v;
	struct blame_selection sel;
	struct blame_sum *s;
	struct map *by_key;	/* of pairs: index */
	VEC(struct blame_pair) pairs;
	VEC(struct last_gap) last;	/* by index, too */
	struct what_if_input in;
	/* of the request at hand */
	uint32_t request;
	uint64_t ns[N_MECHANISMS], ttft_ns[N_MECHANISMS];
	uint64_t open;		/* bit i: mechanism i had a part in what it still waits for */
	uint64_t client_ns;	/* its gaps, where they are between arrivals at the client */
	uint64_t last_ns;	/* when its last token was made, as far as that is known */
	uint64_t span_ns[N_MECHANISMS];	/* what each took of the time from its first to its last token, two's complement */
	/* of all */
	uint64_t gap;		/* number of the gap at hand, from 1 */
	bool any_unexplained;
};

static bool is_blame(uint8_t mechanism)
{
	return mechanism < N_MECHANISMS && !mechanism_is_own(mechanism);
}

static bool is_selected(const struct adder *a, uint8_t mechanism)
{
	return is_blame(mechanism) && mechanism != MECH_LOST &&
	       (!a->sel.mechanisms || a->sel.mechanisms & 1ull << mechanism);
}

/* ---- pairs ---- */

bool culprit_equal(const struct culprit *a, const struct culprit *b)
{
	return a->type == b->type && a->id == b->id && !strcmp(a->name, b->name);
}

static uint64_t hash_bytes(uint64_t h, const void *p, size_t n)	/* FNV-1a */
{
	const uint8_t *at = p;

	while (n--)
		h = (h ^ *at++) * 0x100000001b3;
	return h;
}

static uint64_t hash_culprit(uint64_t h, const struct culprit *c)
{
	h = hash_bytes(h, &c->type, sizeof(c->type));
	h = hash_bytes(h, &c->id, sizeof(c->id));
	return hash_bytes(h, c->name, strnlen(c->name, sizeof(c->name)));
}

static bool is_of(const struct blame_pair *p, uint32_t victim, const struct blame_part *part)
{
	return p->victim == victim && p->mechanism == part->mechanism &&
	       culprit_equal(&p->culprit, &part->who) && culprit_equal(&p->root, &part->root);
}

static int add_pair(struct adder *a, const struct blame_part *part, uint32_t *index)
{
	struct blame_pair *p = vec_push(&a->pairs, MAX_PAIRS);
	struct last_gap *last = p ? vec_push(&a->last, MAX_PAIRS) : NULL;

	if (!last)
		return -ENOMEM;
	*p = (struct blame_pair){ .victim = a->request, .mechanism = part->mechanism,
				  .culprit = part->who, .root = part->root };
	*index = (uint32_t)a->pairs.n - 1;
	return 0;
}

/* The index of the pair that this part belongs to. -ENOSPC: there are too many. */
static int pair_of(struct adder *a, const struct blame_part *part, uint32_t *ret)
{
	uint64_t key = 0xcbf29ce484222325;

	key = hash_bytes(key, &a->request, sizeof(a->request));
	key = hash_bytes(key, &part->mechanism, sizeof(part->mechanism));
	key = hash_culprit(hash_culprit(key, &part->who), &part->root);
	for (int i = 0; i < MAX_REHASH; i++, key = hash_bytes(key, &i, sizeof(i))) {
		bool is_new;
		uint32_t *index = map__put(a->by_key, key, &is_new);
		int err = 0;

		if (!index)
			return map__is_full(a->by_key) ? -ENOSPC : -ENOMEM;
		if (is_new)
			err = add_pair(a, part, index);
		if (err)
			return err;
		if (is_of(&a->pairs.v[*index], a->request, part)) {
			*ret = *index;
			return 0;
		}
	}
	return -ENOSPC;
}

static int add_to_pair(struct adder *a, const struct gap *g, const struct blame_part *part)
{
	struct blame_pair *p;
	struct last_gap *last;
	uint32_t i;
	int err = pair_of(a, part, &i);

	if (err == -ENOSPC)
		a->s->n_pairs_not_kept++;
	if (err)
		return err == -ENOSPC ? 0 : err;
	p = &a->pairs.v[i];
	last = &a->last.v[i];
	if (last->gap != a->gap) {
		*last = (struct last_gap){ .gap = a->gap };
		p->n_gaps += g->token != 0;
	}
	last->ns += part->ns;
	if (last->ns > p->max_ns) {
		p->max_ns = last->ns;
		p->max_at_ns = g->t0_ns;
	}
	p->prov = part->prov > p->prov ? part->prov : p->prov;
	*(g->token ? &p->ns : &p->ttft_ns) += part->ns;
	return 0;
}

int longer_pair(const void *x, const void *y)
{
	const struct blame_pair *a = x, *b = y;
	uint64_t na = a->ns + a->ttft_ns, nb = b->ns + b->ttft_ns;
	int d = (na < nb) - (na > nb);

	if (!d)
		d = (a->victim > b->victim) - (a->victim < b->victim);
	if (!d)
		d = a->mechanism - b->mechanism;
	if (!d)
		d = a->culprit.type - b->culprit.type;
	if (!d)
		d = (a->culprit.id > b->culprit.id) - (a->culprit.id < b->culprit.id);
	if (!d)
		d = strcmp(a->culprit.name, b->culprit.name);
	if (!d)
		d = a->root.type - b->root.type;
	if (!d)
		d = (a->root.id > b->root.id) - (a->root.id < b->root.id);
	return d ? d : strcmp(a->root.name, b->root.name);
}

static void take_pairs(struct adder *a)
{
	struct blame_sum *s = a->s;

	s->pairs = a->pairs.v;
	s->n_pairs = a->pairs.n;
	a->pairs.v = NULL;
	if (s->n_pairs)
		qsort(s->pairs, s->n_pairs, sizeof(*s->pairs), longer_pair);
}

/* ---- gaps ---- */

static uint64_t blamed_ns(const struct adder *a, const struct gap *g)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < g->n_parts; i++)
		ns += is_selected(a, g->parts[i].mechanism) ? g->parts[i].ns : 0;
	return ns;
}

static void copy_gap(struct gap *to, const struct gap *from)
{
	memcpy(to, from, offsetof(struct gap, parts) + from->n_parts * sizeof(from->parts[0]));
	to->n_parts = from->n_parts;
}

static void add_to_top(struct adder *a, const struct gap *g)
{
	struct blame_sum *s = a->s;
	uint64_t ns = gap_is_odd(g) ? blamed_ns(a, g) : 0;
	size_t at = s->n_top;

	if (!ns)
		return;
	while (at && blamed_ns(a, &s->top[at - 1]) < ns)
		at--;
	if (at == MAX_TOP_GAPS)
		return;
	if (s->n_top < MAX_TOP_GAPS)
		s->n_top++;
	for (size_t i = s->n_top - 1; i > at; i--)
		copy_gap(&s->top[i], &s->top[i - 1]);
	copy_gap(&s->top[at], g);
}

static int add_parts(struct adder *a, const struct gap *g)
{
	struct blame_sum *s = a->s;
	uint64_t seen = 0;
	int err = 0;

	a->gap++;
	for (int i = 0; i < N_QUEUE_LIMITS; i++)
		s->queue_ns[i] += g->queue_ns[i];
	for (size_t i = 0; i < g->n_parts && !err; i++) {
		const struct blame_part *part = &g->parts[i];
		uint8_t m = part->mechanism < N_MECHANISMS ? part->mechanism : MECH_UNEXPLAINED;

		*(g->token ? &s->by_mechanism[m].ns : &s->by_mechanism[m].ttft_ns) += part->ns;
		s->by_mechanism[m].n_gaps += g->token && !(seen & 1ull << m);
		seen |= 1ull << m;
		if (g->open)
			a->open |= 1ull << m;
		else
			*(g->token ? &a->ns[m] : &a->ttft_ns[m]) += part->ns;
		if (!is_blame(m))
			continue;
		*(g->token ? &s->excess_ns : &s->ttft_excess_ns) += part->ns;
		if (m < MECH_LOST && part->prov <= PROV_INFERRED)
			s->prov_ns[part->prov] += part->ns;
		if (is_selected(a, m))
			err = add_to_pair(a, g, part);
	}
	if (seen & 1ull << MECH_UNEXPLAINED) {
		s->ruled_out = a->any_unexplained ? s->ruled_out & g->ruled_out : g->ruled_out;
		a->any_unexplained = true;
	}
	return err;
}

/* What makes tokens later makes all those behind them later, too. What only brings them later does not: of that
 * what holds the last token counts, less what held the first. */
static void add_span(struct adder *a, const struct gap *g)
{
	uint64_t held_ns = 0;

	if (g->t1_ns > a->last_ns)
		held_ns = g->t1_ns - (g->t0_ns > a->last_ns ? g->t0_ns : a->last_ns);
	for (size_t i = 0; g->token && i < g->n_parts; i++)
		if (g->parts[i].mechanism < N_MECHANISMS)
			a->span_ns[g->parts[i].mechanism] += g->parts[i].ns;
	for (int m = 0; m < N_MECHANISMS; m++) {
		uint64_t ns = g->behind_ns[m] < held_ns ? g->behind_ns[m] : held_ns;

		a->span_ns[m] -= g->behind_ns[m] - ns;
	}
}

static int add_gap(void *ctx, const struct gap *g)
{
	struct adder *a = ctx;
	struct blame_sum *s = a->s;
	uint64_t ns = g->t1_ns - g->t0_ns;

	s->n_gaps++;
	s->gaps_ns += ns;
	s->n_odd_gaps += gap_is_odd(g);
	s->n_no_baseline += !g->usual_ns;
	if (g->side == GAP_CLIENT)
		a->client_ns += ns;
	add_to_top(a, g);
	add_span(a, g);
	return add_parts(a, g);
}

/* ---- requests ---- */

static int keep_shares(struct adder *a)
{
	for (uint8_t m = 0; m < N_MECHANISMS; m++) {
		struct share *sh;

		if (!a->ns[m] && !a->ttft_ns[m] && !(a->open >> m & 1))
			continue;
		a->s->by_mechanism[m].n_victims++;
		if (!is_selected(a, m) || (!a->ns[m] && !a->ttft_ns[m]))
			continue;
		sh = vec_push(&a->in.shares, SIZE_MAX / sizeof(*sh));
		if (!sh)
			return -ENOMEM;
		*sh = (struct share){ a->request, m, a->ttft_ns[m], (int64_t)a->span_ns[m] };
	}
	return 0;
}

/* What it waits for is counted as what it has waited for, but its time is no TPOT and no TTFT. */
static int add_open(struct adder *a, uint32_t request)
{
	struct blame_sum *s = a->s;
	struct gap g;
	uint64_t ns;

	if (!blame__open(a->b, request, &g))
		return 0;
	ns = g.t1_ns - g.t0_ns;
	s->n_open++;
	s->longest_open_ns = ns > s->longest_open_ns ? ns : s->longest_open_ns;
	s->n_gaps += g.token != 0;
	s->n_odd_gaps += g.token != 0;
	*(g.token ? &s->gaps_ns : &s->ttfts_ns) += ns;
	s->n_open_ttfts += !g.token;
	s->open_ttfts_ns += g.token ? 0 : ns;
	add_to_top(a, &g);
	return add_parts(a, &g);
}

static int add_request(struct adder *a, uint32_t request)
{
	const struct rec_request *r = &a->v->requests[request];
	struct as_it_was *was = &a->in.was[request];
	struct req_metrics m;
	struct gap ttft;
	int err;

	a->request = request;
	memset(a->ns, 0, sizeof(a->ns));
	memset(a->ttft_ns, 0, sizeof(a->ttft_ns));
	memset(a->span_ns, 0, sizeof(a->span_ns));
	a->client_ns = a->open = 0;
	a->last_ns = r->at_ns[P_LAST_TOKEN_ENGINE] ? r->at_ns[P_LAST_TOKEN_ENGINE] : r->at_ns[P_LAST_TOKEN_WIRE];
	request_metrics(a->v, r, &m);
	err = blame__gaps(a->b, request, add_gap, a);
	if (err)
		return err;
	if (m.tpot_ns >= 0 && request_counts(r)) {
		was->n_tokens = m.delivered_tokens - 1;
		was->span_ns = a->client_ns ? a->client_ns
					    : r->at_ns[P_LAST_TOKEN_WIRE] -
						      r->at_ns[P_FIRST_TOKEN_WIRE];
	}
	if (blame__ttft(a->b, request, &ttft)) {
		a->s->n_ttfts++;
		a->s->ttfts_ns += ttft.t1_ns - ttft.t0_ns;
		if (request_counts(r))
			was->ttft_ns = ttft.t1_ns - ttft.t0_ns;
		a->s->n_at_client += ttft.side == GAP_CLIENT;
		add_span(a, &ttft);
		err = add_parts(a, &ttft);
	} else if (m.ttft_ns > 0 && request_counts(r)) {
		was->ttft_ns = (uint64_t)m.ttft_ns;
	}
	if (!err)
		err = add_open(a, request);
	return err ? err : keep_shares(a);
}

int blame_sum__select(struct blame *b, const struct model_view *v, const struct blame_selection *sel,
		      struct blame_sum **ret)
{
	struct adder a = { .b = b, .v = v, .sel = *sel };
	size_t from = sel->request ? sel->request - 1 : 0;
	size_t to = sel->request ? sel->request : v->n_requests;
	int err = 0;

	a.s = calloc(1, sizeof(*a.s));
	a.by_key = map__new(sizeof(uint32_t), MAX_PAIRS);
	a.in.was = calloc(v->n_requests + 1, sizeof(*a.in.was));
	a.in.n = v->n_requests;
	if (!a.s || !a.by_key || !a.in.was)
		err = -ENOMEM;
	for (size_t i = from; i < to && !err; i++)
		err = add_request(&a, (uint32_t)i);
	if (!err) {
		a.s->n_learnt = blame__n_learnt(b);
		take_pairs(&a);
		err = add_what_ifs(a.s, &a.in);
	}
	map__free(a.by_key);
	vec_free(&a.pairs);
	vec_free(&a.last);
	free(a.in.was);
	vec_free(&a.in.shares);
	if (err)
		blame_sum__free(a.s);
	else
		*ret = a.s;
	return err;
}

int blame_sum__new(struct blame *b, const struct model_view *v, struct blame_sum **ret)
{
	return blame_sum__select(b, v, &(struct blame_selection){ 0 }, ret);
}

void blame_sum__free(struct blame_sum *s)
{
	if (!s)
		return;
	free(s->pairs);
	free(s);
}
