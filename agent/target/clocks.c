/* SPDX-License-Identifier: Apache-2.0 */
/* Maps CUPTI's clock piece by piece between pairs of clocks; a piece in which it was set has two
 * readings. */
#include "clocks.h"

enum { MAX_DRIFT_PPM = 500, SLACK_NS = 2000, MAX_SLEW_PCT = 10 };
#define MAX_PIECE_NS 10000000000ull

void clocks__reset(struct clocks *c)
{
	c->n = 0;
	c->n_epochs = 0;
	c->off_in_ns = 0;
	c->piece.width = 0;
}

static const struct clock_pair *pair(const struct clocks *c, uint64_t i)
{
	return &c->pairs[i % MAX_PAIRS];
}

static uint64_t distance(int64_t a, int64_t b)
{
	return a > b ? (uint64_t)a - b : (uint64_t)b - a;
}

/* A clock that somebody slows down or speeds up, by a tenth at most, gains as it did before. */
static bool is_slewed(const struct clocks *c, int64_t off_ns, uint64_t in_ns, uint64_t allowed_ns)
{
	if (!c->off_in_ns || distance(off_ns, 0) > in_ns / 100 * MAX_SLEW_PCT)
		return false;
	return distance(off_ns, (int64_t)((double)c->off_ns * in_ns / c->off_in_ns)) <= allowed_ns;
}

bool clocks__add(struct clocks *c, const struct clock_pair *p)
{
	bool stepped = false;

	if (c->n) {
		const struct clock_pair *last = pair(c, c->n - 1);
		uint64_t in_ns = p->mono_ns - last->mono_ns;
		int64_t off = (int64_t)(p->real_ns - last->real_ns) - (int64_t)in_ns;
		uint64_t allowed = p->err_ns + last->err_ns + SLACK_NS + in_ns / 1000000 * MAX_DRIFT_PPM;

		stepped = distance(off, 0) > allowed && !is_slewed(c, off, in_ns, allowed);
		c->off_ns = off;
		c->off_in_ns = in_ns;
	}
	if (stepped)
		c->piece.width = 0;
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

/* b is behind a, in the same epoch. */
static struct clock_piece between(const struct clock_pair *a, const struct clock_pair *b)
{
	uint64_t width = b->real_ns - a->real_ns;
	struct clock_piece p = { a->real_ns, 0, a->mono_ns, 1ull << 32 };

	if (!width || width > MAX_PIECE_NS)
		return p;
	p.width = width;
	p.mul = (unsigned __int128)(b->mono_ns - a->mono_ns) * (1ull << 32) / width;
	return p;
}

static uint64_t in_piece(const struct clock_piece *p, uint64_t real_ns)
{
	return p->mono + (uint64_t)((unsigned __int128)(real_ns - p->begin) * p->mul >> 32);
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

/* A time before the first pair of each epoch: between that and the last one of the epoch before, or
 * before all that is kept. */
static uint64_t in_no_epoch(const struct clocks *c, uint32_t oldest, uint64_t real_ns)
{
	uint64_t from = 0, to, before_from, before_to;

	for (uint32_t e = c->n_epochs; e-- > oldest + 1;) {
		uint64_t at;

		if (!epoch_range(c, e, &from, &to) || !epoch_range(c, e - 1, &before_from, &before_to))
			break;
		at = from_pair(pair(c, from), real_ns);
		if ((int64_t)(at - pair(c, before_to - 1)->mono_ns) >= 0 && at <= pair(c, from)->mono_ns)
			return at;
	}
	for (uint32_t e = oldest; !epoch_range(c, e, &from, &to);)
		e++;
	return from_pair(pair(c, from), real_ns);
}

/* Had epoch e begun? One of a clock that was set back began before its first pair, but behind the last one before that. */
static bool has_begun(const struct clocks *c, uint32_t e, uint32_t oldest, uint64_t from, uint64_t real_ns)
{
	const struct clock_pair *first = pair(c, from), *last;
	uint64_t before_from, before_to;

	if (first->real_ns <= real_ns)
		return true;
	if (e == oldest || !epoch_range(c, e - 1, &before_from, &before_to))
		return false;
	last = pair(c, before_to - 1);
	return first->real_ns < last->real_ns && first->real_ns - real_ns <= first->mono_ns - last->mono_ns;
}

uint64_t clocks__map(struct clocks *c, uint64_t real_ns, uint64_t not_after_ns, bool *ret_guess)
{
	uint32_t oldest = c->n_epochs > MAX_EPOCHS ? c->n_epochs - MAX_EPOCHS : 0, e = c->n_epochs;
	uint64_t from = 0, to = 0, lo, hi;
	uint64_t prev_from, prev_to;
	const struct clock_pair *last;
	struct clock_piece piece;

	*ret_guess = false;
	if (!c->n)
		return 0;
	if (real_ns - c->piece.begin < c->piece.width)
		return in_piece(&c->piece, real_ns);
	/* The newest epoch that had begun. A clock set back shows times twice: the later one is
	 * taken, unless that is still to come. */
	while (e-- > oldest) {
		if (!epoch_range(c, e, &from, &to))
			break;
		if (has_begun(c, e, oldest, from, real_ns) &&
		    (e == oldest || from_pair(pair(c, to - 1), real_ns) <= not_after_ns))
			goto found;
	}
	return in_no_epoch(c, oldest, real_ns);
found:
	if (e > oldest && epoch_range(c, e - 1, &prev_from, &prev_to) && pair(c, prev_from)->real_ns <= real_ns &&
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
	if (real_ns < pair(c, from)->real_ns)
		return from_pair(pair(c, from), real_ns);
	for (lo = from, hi = to - 1; lo + 1 < hi;) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (pair(c, mid)->real_ns <= real_ns)
			lo = mid;
		else
			hi = mid;
	}
	piece = between(pair(c, lo), pair(c, hi));
	if (c->n_epochs == 1)
		c->piece = piece;
	return in_piece(&piece, real_ns);
}
