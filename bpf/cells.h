/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What BPF programs count per CPU and the agent reads through mmap. */
#ifndef TL_CELLS_H
#define TL_CELLS_H

/*
 * A cache line per CPU. BPF only counts up. Of losses the agent remembers what it has told, and
 * raises `taken` to `n_lost` to say so: the next loss then begins a new span. A loss between the
 * agent's reading n_lost and its writing taken keeps the older `first_ns`, so a span may begin too
 * early, never too late, and no count is lost.
 */
struct cell {
	__u64 n_lost;
	__u64 first_ns, last_ns;	/* of the losses after the first `taken` */
	__u64 taken;
	__u32 what;			/* enum tl_kind that was lost, 0: of several kinds */
	__u32 asleep_bytes;		/* sent since the agent was last woken */
	__u64 run_ns, runs;		/* our programs at work for targets; time is sampled */
	__u64 hits;			/* of user-space probes */
};
_Static_assert(sizeof(struct cell) == 64, "a cache line");

static inline __attribute__((always_inline)) void cell_add_lost(struct cell *c, __u16 kind,
								__u64 now_ns)
{
	if (c->n_lost == c->taken) {
		c->first_ns = now_ns;
		c->what = kind;
	} else if (c->what != kind) {
		c->what = 0;
	}
	c->last_ns = now_ns;
	__sync_fetch_and_add(&c->n_lost, 1);	/* softirq may count on this CPU meanwhile */
}

#endif
