/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How events that found no room are counted: written by BPF, read by the agent. */
#ifndef TL_LOST_H
#define TL_LOST_H

/*
 * One per CPU, in its own cache line. BPF only counts up; the agent remembers what it has
 * reported, and raises `taken` to `n` to say so: the next loss then begins a new span. A loss
 * between the agent's reading n and its writing taken keeps the older `first_ns`, so a span may
 * begin too early, never too late, and no count is lost.
 */
struct lost_cell {
	__u64 n;
	__u64 first_ns, last_ns;	/* of the losses after the first `taken` */
	__u64 taken;
	__u32 what;			/* enum tl_kind, 0: of several kinds */
	__u32 pad[7];
};
_Static_assert(sizeof(struct lost_cell) == 64, "a cache line");

static inline __attribute__((always_inline)) void lost_cell_add(struct lost_cell *l, __u16 kind,
								 __u64 now_ns)
{
	if (l->n == l->taken) {
		l->first_ns = now_ns;
		l->what = kind;
	} else if (l->what != kind) {
		l->what = 0;
	}
	l->last_ns = now_ns;
	__sync_fetch_and_add(&l->n, 1);	/* softirq may count on this CPU meanwhile */
}

#endif
