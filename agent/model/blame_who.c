/* SPDX-License-Identifier: Apache-2.0 */
/* Which mechanism is worst, who is worst among culprits and victims. */
#include "model/blame_sum.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t both(const struct blame_row *r)
{
	return r->ns + r->ttft_ns;
}

size_t blame_sum__order(const struct blame_sum *s, uint8_t ret[N_MECHANISMS])
{
	size_t n = 0;

	for (uint8_t m = 0; m < N_MECHANISMS; m++) {
		size_t at = n;

		if (!both(&s->by_mechanism[m]) || mechanism_is_own((enum mechanism)m))
			continue;
		while (at && both(&s->by_mechanism[ret[at - 1]]) < both(&s->by_mechanism[m])) {
			ret[at] = ret[at - 1];
			at--;
		}
		ret[at] = m;
		n++;
	}
	return n;
}

/* ---- who is the same ---- */

static bool goes_by_name(const struct culprit *c)
{
	return ((c->type == WHO_PROCESS || c->type == WHO_THREAD) && c->name[0]) ||
	       (c->type == WHO_CLIENT && c->name[0] == '/');
}

/* 0: the same. */
static int compare_who(const struct culprit *a, const struct culprit *b)
{
	int d = a->type - b->type;

	if (!d)
		d = strcmp(a->name, b->name);
	if (d || goes_by_name(a))
		return d;
	return (a->id > b->id) - (a->id < b->id);
}

bool culprit_same(const struct culprit *a, const struct culprit *b)
{
	return !compare_who(a, b);
}

/* ---- added up ---- */

struct side {
	struct culprit who;
	uint64_t ns, ttft_ns;
	uint32_t victim;
};

static int by_name(const void *x, const void *y)
{
	const struct side *a = x, *b = y;
	int d = compare_who(&a->who, &b->who);

	if (!d)
		d = (a->who.id > b->who.id) - (a->who.id < b->who.id);
	return d ? d : (a->victim > b->victim) - (a->victim < b->victim);
}

static int by_victim(const void *x, const void *y)
{
	const uint32_t *a = x, *b = y;

	return (*a > *b) - (*a < *b);
}

static void insert_who(struct blame_who *ret, size_t *n, size_t max, const struct blame_who *w)
{
	size_t at = *n;

	while (at && ret[at - 1].ns + ret[at - 1].ttft_ns < w->ns + w->ttft_ns)
		at--;
	if (at == max)
		return;
	if (*n < max)
		++*n;
	memmove(&ret[at + 1], &ret[at], (*n - 1 - at) * sizeof(*ret));
	ret[at] = *w;
}

/* Adds up what is the same, the worst first. Frees sides. */
static long add_up(struct side *sides, size_t n, struct blame_who *ret, size_t max)
{
	uint32_t *victims = malloc((n + 1) * sizeof(*victims));
	size_t n_ret = 0;

	if (!victims) {
		free(sides);
		return -ENOMEM;
	}
	qsort(sides, n, sizeof(*sides), by_name);
	for (size_t i = 0; i < n;) {
		struct blame_who w = { .who = sides[i].who };
		size_t n_victims = 0, first = i;

		for (; i < n && culprit_same(&sides[i].who, &w.who); i++) {
			w.ns += sides[i].ns;
			w.ttft_ns += sides[i].ttft_ns;
			if (i == first || sides[i].who.id != sides[i - 1].who.id) {
				if (w.n_ids < MAX_WHO_IDS)
					w.ids[w.n_ids] = sides[i].who.id;
				w.n_ids++;
			}
			victims[n_victims++] = sides[i].victim;
		}
		qsort(victims, n_victims, sizeof(*victims), by_victim);
		for (size_t k = 0; k < n_victims; k++)
			w.n_victims += !k || victims[k] != victims[k - 1];
		insert_who(ret, &n_ret, max, &w);
	}
	free(victims);
	free(sides);
	return (long)n_ret;
}

long blame_sum__culprits(const struct blame_sum *s, uint64_t mechanisms, unsigned int where,
			 struct blame_who *ret, size_t max)
{
	struct side *sides = malloc((s->n_pairs + 1) * sizeof(*sides));
	size_t n = 0;

	if (!sides)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_pairs; i++) {
		const struct blame_pair *p = &s->pairs[i];
		uint64_t ns = where & IN_GAPS ? p->ns : 0;
		uint64_t ttft_ns = where & IN_TTFTS ? p->ttft_ns : 0;

		if ((mechanisms && !(mechanisms & 1ull << p->mechanism)) || !(ns + ttft_ns) ||
		    (p->culprit.type == WHO_NOBODY && !(where & BY_NOBODY)))
			continue;
		sides[n++] = (struct side){ p->culprit, ns, ttft_ns, p->victim };
	}
	return add_up(sides, n, ret, max);
}

long blame_sum__victims(const struct blame_sum *s, struct blame_who *ret, size_t max)
{
	struct side *sides = malloc((s->n_pairs + 1) * sizeof(*sides));

	if (!sides)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_pairs; i++) {
		const struct blame_pair *p = &s->pairs[i];

		sides[i] = (struct side){ { .type = WHO_REQUEST, .id = p->victim }, p->ns,
					  p->ttft_ns, p->victim };
	}
	return add_up(sides, s->n_pairs, ret, max);
}

/* ---- pairs ---- */

static int by_pair(const void *x, const void *y)
{
	const struct blame_pair *a = x, *b = y;
	int d = (a->victim > b->victim) - (a->victim < b->victim);

	if (!d)
		d = a->mechanism - b->mechanism;
	if (!d)
		d = compare_who(&a->culprit, &b->culprit);
	if (!d)
		d = compare_who(&a->root, &b->root);
	return d ? d : longer_pair(a, b);
}

static bool is_same(const struct blame_pair *a, const struct blame_pair *b)
{
	return a->victim == b->victim && a->mechanism == b->mechanism &&
	       culprit_same(&a->culprit, &b->culprit) && culprit_same(&a->root, &b->root);
}

static void merge(struct blame_pair *to, const struct blame_pair *from)
{
	to->ns += from->ns;
	to->ttft_ns += from->ttft_ns;
	to->n_gaps = 0;	/* one gap may have several of them */
	to->prov = from->prov > to->prov ? from->prov : to->prov;
	if (from->max_ns > to->max_ns) {
		to->max_ns = from->max_ns;
		to->max_at_ns = from->max_at_ns;
	}
}

struct blame_pair *blame_sum__merged(const struct blame_sum *s, size_t *ret_n)
{
	struct blame_pair *v = malloc((s->n_pairs + 1) * sizeof(*v));
	size_t n = 0;

	if (!v)
		return NULL;
	if (s->n_pairs)
		memcpy(v, s->pairs, s->n_pairs * sizeof(*v));
	qsort(v, s->n_pairs, sizeof(*v), by_pair);
	for (size_t i = 0; i < s->n_pairs; i++) {
		if (n && is_same(&v[n - 1], &v[i]))
			merge(&v[n - 1], &v[i]);
		else
			v[n++] = v[i];
	}
	qsort(v, n, sizeof(*v), longer_pair);
	*ret_n = n;
	return v;
}
