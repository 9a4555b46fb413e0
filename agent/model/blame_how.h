/* SPDX-License-Identifier: Apache-2.0 */
/* What is behind the sum of a mechanism: numbers of the steps and writes that lost time to it. Pure. */
#ifndef TL_MODEL_BLAME_HOW_H
#define TL_MODEL_BLAME_HOW_H

#include "model/blame_sum.h"

struct how_graph {		/* GRAPH_MISS */
	uint32_t least_batch, most_batch;
	uint32_t largest;	/* graph that was seen to be replayed, 0: none */
	uint64_t launches;	/* of a step, mean; 0: not known */
	uint64_t launch_ns;	/* each; 0: not known ... */
	bool at_most;		/* ... of the whole step, for when it was launched was not seen */
};
struct how_rank {		/* COLLECTIVE: the rank that cost most. Means of its late steps */
	uint32_t rank;
	uint64_t n_steps;
	uint64_t waiting;	/* ranks that waited for it, bit i: rank i */
	uint64_t wait_ns, transfer_ns;	/* in the collective: for it; moving data */
	uint64_t compute_ns, compute_usual_ns;	/* outside of collectives, late steps and others; 0: not known */
	double waiting_busy_pct;	/* the devices of those that wait; < 0: not known ... */
	bool waiting_at_least;		/* ... no less than that */
};
struct how_clock {		/* CLOCK, NEIGHBOUR */
	uint32_t mhz, usual_mhz;	/* mean of these steps; 0: not known */
	double decode_pct, prefill_pct;	/* CLOCK: what steps took more for it; < 0: none of these */
	uint64_t n_both;		/* of the steps, so many have both */
};
struct how_backlog {		/* DETOKENIZER: where it was worst */
	uint64_t made_ns, written_ns;	/* a step ended; the last of what it gave was written */
	uint64_t n_pending;	/* steps whose outputs had not all been written when it ended, itself included */
	uint64_t step_ns, out_ns;	/* between ends of these steps; between their last writes. Means */
};
struct how {
	uint8_t mechanism;	/* enum mechanism */
	uint32_t engine;	/* index */
	uint64_t n_steps;	/* that lost time to it ... */
	uint64_t steps_ns, lost_ns;	/* ... so long are all of them, and so much of that it was */
	double busy_pct, all_busy_pct;	/* of its first rank's device: in these steps, in all; < 0: not known ... */
	bool busy_at_least, all_at_least;	/* ... no less than that: kernels outside of graphs had no record */
	struct how_graph graph;
	struct how_rank late;
	struct how_clock clock;
	struct how_backlog backlog;
};
enum { MAX_HOWS = 32 };		/* the longest ones are kept */
struct hows {
	struct how v[MAX_HOWS];	/* the longest first, as in the sum */
	size_t n;
};

/* Of mechanisms that took time worth naming in a sum. 0 or -ENOMEM. */
int blame__how(struct blame *b, const struct blame_sum *s, struct hows *ret);

#endif
