/* SPDX-License-Identifier: Apache-2.0 */
/* CUPTI's clock (CLOCK_REALTIME, drifting, sometimes set) mapped to CLOCK_MONOTONIC. Pure: no clock
 * is read. */
#ifndef TL_TARGET_CLOCKS_H
#define TL_TARGET_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_PAIRS = 1024, MAX_EPOCHS = 8 };

struct clock_pair {
	uint64_t mono_ns, real_ns;
	uint64_t err_ns;	/* half the width of the bracket */
};

/* Pairs read one after the other. Between steps of the clock they make a line, bent a little at
 * each. */
struct clocks {
	uint64_t n;		/* pairs so far; the last MAX_PAIRS are kept */
	struct clock_pair pairs[MAX_PAIRS];
	uint32_t n_epochs;	/* steps so far, and one */
	uint64_t first[MAX_EPOCHS];	/* pair of an epoch; the last MAX_EPOCHS are kept */
	int64_t off_ns;		/* what the clock gained between the last two pairs ... */
	uint64_t off_in_ns;	/* ... which were so far from each other, 0: there are none */
	/* Between the two pairs that were used last, if no time there has two readings:
	 * mono + (real - begin) x mul / 2^32. Records come in order: nearly all fall there. */
	struct clock_piece { uint64_t begin, width /* 0: none */, mono, mul; } piece;
};

void clocks__reset(struct clocks *c);
/* true: the clock was set since the one before. */
bool clocks__add(struct clocks *c, const struct clock_pair *p);

/* When real_ns was. ret_guess: the clock was set about then, so that it may have been another time,
 * too. Of two readings one behind not_after_ns is none, if there is another. */
uint64_t clocks__map(struct clocks *c, uint64_t real_ns, uint64_t not_after_ns, bool *ret_guess);

#endif
