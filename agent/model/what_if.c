/* SPDX-License-Identifier: Apache-2.0 */
/* What TPOT and TTFT would be without a mechanism; and who is worst among culprits and victims. */
#include "base/pct.h"
#include "model/blame_sum_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void to_dist(uint64_t *v, size_t n, struct dist *ret)
{
	*ret = (struct dist){ .n = n };
	if (!n)
		return;
	ret->p50 = pct_u64(v, n, 500);
	ret->p90 = pct_u64(v, n, 900);
	ret->p99 = pct_u64(v, n, 990);
	ret->max = pct_u64(v, n, 1000);
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* `scratch`: what that mechanism took, and room for the values; three numbers per request. */
static void without(const struct what_if_input *in, uint8_t mechanism, uint64_t *scratch,
		    struct blame_what_if *ret)
{
	uint64_t *took = scratch, *took_ttft = scratch + in->n, *values = scratch + 2 * in->n;
	size_t n = 0;

	memset(scratch, 0, 2 * in->n * sizeof(*scratch));
	for (size_t i = 0; i < in->shares.n; i++) {
		const struct share *sh = &in->shares.v[i];

		if (sh->mechanism != mechanism)
			continue;
		took[sh->request] = sh->ns;
		took_ttft[sh->request] = sh->ttft_ns;
	}
	ret->without = mechanism;
	for (size_t i = 0; i < in->n; i++)
		if (in->was[i].n_tokens)
			values[n++] = less(in->was[i].span_ns, took[i]) / in->was[i].n_tokens;
	to_dist(values, n, &ret->tpot);
	n = 0;
	for (size_t i = 0; i < in->n; i++)
		if (in->was[i].ttft_ns)
			values[n++] = less(in->was[i].ttft_ns, took_ttft[i]);
	to_dist(values, n, &ret->ttft);
}

/* By how much of themselves the two p99 would fall. */
static double gain(const struct blame_what_if *was, const struct blame_what_if *w)
{
	double sum = 0;

	if (was->tpot.n && was->tpot.p99)
		sum += 1 - (double)w->tpot.p99 / (double)was->tpot.p99;
	if (was->ttft.n && was->ttft.p99)
		sum += 1 - (double)w->ttft.p99 / (double)was->ttft.p99;
	return sum;
}

static void insert(struct blame_sum *s, const struct blame_what_if *w)
{
	const struct blame_what_if *was = &s->what_if[0];
	const struct blame_row *row = &s->by_mechanism[w->without];
	size_t at = s->n_what_if;

	while (at > 1) {
		const struct blame_what_if *o = &s->what_if[at - 1];
		const struct blame_row *orow = &s->by_mechanism[o->without];
		double d = gain(was, w) - gain(was, o);

		if (d < 0 || (d == 0 && row->ns + row->ttft_ns <= orow->ns + orow->ttft_ns))
			break;
		at--;
	}
	if (at > MAX_WHAT_IFS)
		return;
	if (s->n_what_if <= MAX_WHAT_IFS)
		s->n_what_if++;
	memmove(&s->what_if[at + 1], &s->what_if[at],
		(s->n_what_if - 1 - at) * sizeof(s->what_if[0]));
	s->what_if[at] = *w;
}

int add_what_ifs(struct blame_sum *s, const struct what_if_input *in)
{
	uint64_t *scratch = calloc(3 * in->n + 1, sizeof(*scratch));
	uint64_t any = 0;

	if (!scratch)
		return -ENOMEM;
	for (size_t i = 0; i < in->shares.n; i++)
		any |= 1ull << in->shares.v[i].mechanism;
	without(in, N_MECHANISMS, scratch, &s->what_if[0]);
	s->n_what_if = 1;
	for (uint8_t m = 0; m < N_MECHANISMS; m++) {
		struct blame_what_if w;

		if (!(any & 1ull << m))
			continue;
		without(in, m, scratch, &w);
		insert(s, &w);
	}
	free(scratch);
	return 0;
}

/* ---- what and who is worst ---- */

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

struct side {
	struct culprit who;
	uint64_t ns, ttft_ns;
	uint32_t victim;
};

static int by_name(const void *x, const void *y)
{
	const struct side *a = x, *b = y;
	int d = a->who.type - b->who.type;

	if (!d)
		d = (a->who.id > b->who.id) - (a->who.id < b->who.id);
	if (!d)
		d = strcmp(a->who.name, b->who.name);
	return d ? d : (a->victim > b->victim) - (a->victim < b->victim);
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
	size_t n_ret = 0;

	qsort(sides, n, sizeof(*sides), by_name);
	for (size_t i = 0; i < n;) {
		struct blame_who w = { .who = sides[i].who };
		uint32_t last = UINT32_MAX;

		for (; i < n && culprit_equal(&sides[i].who, &w.who); i++) {
			w.ns += sides[i].ns;
			w.ttft_ns += sides[i].ttft_ns;
			w.n_victims += sides[i].victim != last;
			last = sides[i].victim;
		}
		insert_who(ret, &n_ret, max, &w);
	}
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
