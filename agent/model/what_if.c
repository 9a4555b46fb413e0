/* SPDX-License-Identifier: Apache-2.0 */
/* What TPOT and TTFT would be without a mechanism. */
#include "base/num.h"
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

/* Without what held the first token, that one comes earlier: then the
 * time to the last is longer. */
static uint64_t span_without(uint64_t span_ns, int64_t took_ns)
{
	if (took_ns < 0)
		return span_ns - (uint64_t)took_ns;
	return (uint64_t)took_ns < span_ns ? span_ns - (uint64_t)took_ns : 0;
}

/* `scratch`: what that mechanism took, and room for the values; three numbers per request. */
static void without(const struct what_if_input *in, uint8_t mechanism, uint64_t *scratch,
		    struct blame_what_if *ret)
{
	int64_t *took = (int64_t *)scratch;
	uint64_t *took_ttft = scratch + in->n, *values = scratch + 2 * in->n;
	size_t n = 0;

	memset(scratch, 0, 2 * in->n * sizeof(*scratch));
	for (size_t i = 0; i < in->shares.n; i++) {
		const struct share *sh = &in->shares.v[i];

		if (sh->mechanism != mechanism)
			continue;
		took[sh->request] = sh->span_ns;
		took_ttft[sh->request] = sh->ttft_ns;
	}
	ret->without = mechanism;
	for (size_t i = 0; i < in->n; i++)
		if (in->was[i].n_tokens)
			values[n++] = span_without(in->was[i].span_ns, took[i]) / in->was[i].n_tokens;
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
