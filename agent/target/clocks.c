/* SPDX-License-Identifier: Apache-2.0 */
/* Maps CUPTI's clock piece by piece between pairs of clocks; a piece in which it was set has two
 * readings. */
#include "clocks.h"

enum { MAX_DRIFT_PPM = 500, SLACK_NS = 2000 };

void clocks__reset(struct clocks *c)
{
	c->n = 0;
	c->n_epochs = 0;
	c->hint = 0;
}

static const struct clock_pair *pair(const struct clocks *c, uint64_t i)
{
	return &c->pairs[i % MAX_PAIRS];
}

bool clocks__add(struct clocks *c, const struct clock_pair *p)
{
	bool stepped = false;

	if (c->n) {
		const struct clock_pair *last = pair(c, c->n - 1);
		int64_t off = (int64_t)(p->real_ns - last->real_ns) -
			      (int64_t)(p->mono_ns - last->mono_ns);
		uint64_t allowed = p->err_ns + last->err_ns + SLACK_NS +
				   (p->mono_ns - last->mono_ns) / 1000000 * MAX_DRIFT_PPM;

		stepped = (uint64_t)(off < 0 ? -off : off) > allowed;
	}
	if (!c->n || stepped)
		c->first[c->n_epochs++ % MAX_EPOCHS] = c->n;
	c->pairs[c->n++ % MAX_PAIRS] = *p;
	return stepped;
}

/* Moved from a pair by what the clock says; both run at the same speed but for some ppm. */
static uint64_t from_pair(const struct clock_pair *p, uint64_t real_ns)
{
	return p->mono_ns + (real_ns - p->real_ns);
}

static uint64_t between(const struct clock_pair *a, const struct clock_pair *b, uint64_t real_ns)
{
	uint64_t width = b->real_ns - a->real_ns, off = real_ns - a->real_ns;

	if (!width || off > width || width > 10000000000ull)
		return from_pair(a, real_ns);
	return a->mono_ns +
	       (uint64_t)((double)off * ((double)(b->mono_ns - a->mono_ns) / (double)width));
}

/* Which pairs of epoch e (from 0 on, of those kept) are still there: [from, to). */
static bool epoch_range(const struct clocks *c, uint32_t e, uint64_t *ret_from, uint64_t *ret_to)
{
	uint64_t oldest = c->n > MAX_PAIRS ? c->n - MAX_PAIRS : 0;

	*ret_from = c->first[e % MAX_EPOCHS];
	*ret_to = e + 1 < c->n_epochs ? c->first[(e + 1) % MAX_EPOCHS] : c->n;
	if (*ret_from < oldest)
		*ret_from = oldest;
	return *ret_from < *ret_to;
}

uint64_t clocks__map(struct clocks *c, uint64_t real_ns, bool *ret_guess)
{
	uint32_t oldest = c->n_epochs > MAX_EPOCHS ? c->n_epochs - MAX_EPOCHS : 0, e = c->n_epochs;
	uint64_t from = 0, to = 0, lo, hi;
	uint64_t prev_from, prev_to;
	const struct clock_pair *last;

	*ret_guess = false;
	if (!c->n)
		return 0;
	if (c->n_epochs == 1 && c->hint + 1 < c->n && c->hint + MAX_PAIRS > c->n &&
	    pair(c, c->hint)->real_ns <= real_ns && real_ns < pair(c, c->hint + 1)->real_ns)
		return between(pair(c, c->hint), pair(c, c->hint + 1), real_ns);
	/* The newest epoch that had begun. A clock set back shows times twice: the later one is
	 * taken. */
	while (e-- > oldest) {
		if (!epoch_range(c, e, &from, &to))
			break;
		if (pair(c, from)->real_ns <= real_ns)
			goto found;
	}
	/* Before all that is kept: from the oldest pair backwards. */
	epoch_range(c, e + 1, &from, &to);
	return from_pair(pair(c, from), real_ns);
found:
	if (e > oldest && epoch_range(c, e - 1, &prev_from, &prev_to) &&
	    (int64_t)(from_pair(pair(c, prev_to - 1), real_ns) - pair(c, prev_to)->mono_ns) <= 0)
		*ret_guess = true;
	last = pair(c, to - 1);
	if (e + 1 < c->n_epochs) {	/* it was set between two pairs: before or behind that? */
		const struct clock_pair *next = pair(c, to);
		uint64_t behind = from_pair(next, real_ns);

		if (real_ns >= last->real_ns && from_pair(last, real_ns) > next->mono_ns)
			return behind;
		*ret_guess |= behind >= last->mono_ns && behind <= next->mono_ns;
	}
	if (real_ns >= last->real_ns)
		return from_pair(last, real_ns);
	for (lo = from, hi = to - 1; lo + 1 < hi;) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (pair(c, mid)->real_ns <= real_ns)
			lo = mid;
		else
			hi = mid;
	}
	c->hint = lo;
	return between(pair(c, lo), pair(c, hi), real_ns);
}
