/* SPDX-License-Identifier: Apache-2.0 */
/* How deep the GPU work of one server is looked into, and when, so that it costs
 * no more than it may. Pure. */
#ifndef TL_GOVERNOR_H
#define TL_GOVERNOR_H

#include "tl_event.h"
#include <stdbool.h>
#include <stdint.h>

/*
 * At the level of kernels there are windows with pauses between them, each pause as long as the
 * budget wants it; graphs are recorded all the time. The cost of a window is the larger of two: the
 * library's own time, as it says, and what clients see, which is gaps between tokens in windows
 * against those outside, as far as they differ by more than noise. Graphs have no pauses to compare
 * with, and load and clocks change: if gaps become longer while graphs are recorded, that is put on
 * trial. Recording stops for three seconds and goes on for four, and only these two are compared.
 * Where the longest pause does not make up for a window, or a level does harm, the next lower level is
 * taken; the higher one is tried again after a minute, then two, four ...
 */
enum { GOVERNOR_MAX_PARTS = 16, GOVERNOR_MAX_GAPS = 256 };

struct governor_opts {
	enum tl_gpu_level wanted;	/* never more than this */
	uint32_t budget_ppm;	/* of the server's speed; 0: 10,000 (1 %);
				 * from 1,000,000 on: whatever it costs */
	uint32_t window_ms;	/* 0: 2,000 */
};

struct governor_look {		/* what has been seen since the look before */
	uint64_t now_ns;
	bool open;		/* a window is, in any of the server's processes */
	bool busy;		/* the server has work */
	bool refused;		/* no process of it can be recorded
				 * (any more); `trouble` says why */
	enum tl_gpu_trouble trouble;
	uint64_t own_ns;	/* the library's and CUPTI's time, in
				 * the process that had most of it */
	uint64_t probes_ns;	/* of uprobes, the same */
	uint64_t records, dropped;
	uint64_t free_bytes;	/* of the fullest device, now; 0: not known */
};
enum governor_do { GOVERNOR_NOTHING = 0, GOVERNOR_OPEN = 1, GOVERNOR_CLOSE = 2 };
struct governor_order {
	enum governor_do what;	/* CLOSE: at once, it does not close by itself */
	enum tl_gpu_level level;	/* from now on ... */
	enum tl_gpu_level from;	/* ... and so far */
	uint32_t window_ms;	/* OPEN */
	bool trial;		/* CLOSE: to see whether clients wait for less without it; the level stays */
	bool changed;		/* the level has: `trouble` and `why` say the reason, down or up */
	enum tl_gpu_trouble trouble;
	char why[128];		/* "kernels -> graph: it costs ..." */
	uint32_t reason_at;	/* ... and in it, where the reason begins */
	bool tainted;		/* changed or not: it cost more than it may, or
				 * more than anybody would take for nothing, ... */
	uint32_t cost_ppm;	/* ... so much, between these times */
	uint64_t since_ns, until_ns;
};

struct governor_part {		/* of a window, or of the time outside */
	uint64_t at_ns, gap_ns;	/* gap_ns: the median */
};
struct governor_parts {
	struct governor_part v[GOVERNOR_MAX_PARTS];
	uint32_t n;		/* all so far */
};
struct governor {
	struct governor_opts opts;
	enum tl_gpu_level level;
	uint32_t phase;
	uint64_t phase_ns;	/* since when */
	uint64_t pause_ns;	/* behind the last window ... */
	uint64_t last_ns;	/* ... which was so long */

	struct { uint64_t begin_ns, own_ns, records, dropped; } window;
	uint32_t n_lossy;	/* windows in a row that lost much */
	struct { uint64_t begin_ns, own_ns, probes_ns; } second;
	uint32_t n_over;	/* seconds in a row that cost too much ... */
	uint64_t over_ns;	/* ... since then */
	uint64_t most_free_bytes, n_kernels;	/* records of kernels so far */

	struct governor_parts inside, outside;
	uint64_t part_ns;	/* the one that is under way began */
	bool part_inside;
	uint64_t gaps[GOVERNOR_MAX_GAPS];
	uint32_t n_gaps;

	struct {
		bool wanted;		/* recording goes on next ... */
		uint64_t until_ns;	/* ... or went on, and is judged then; 0: not on trial */
		uint64_t next_ns, wait_ns;	/* not again before; so long behind the next one */
	} trial;

	uint64_t down_ns, wait_ns;	/* the last step down, and how
					 * long until the next step up */
	bool for_good;		/* it is of no use to try again */

	uint64_t n_windows, inside_ns;	/* so far, to be told */
	uint32_t cost_ppm;	/* of the last window or second, while it lasted */
};

void governor__init(struct governor *g, const struct governor_opts *opts, uint64_t now_ns);
/* A client got two pieces of one answer, one after the other, at these times. */
void governor__gap(struct governor *g, uint64_t from_ns, uint64_t to_ns);
/* To be called ten times a second. */
void governor__look(struct governor *g, const struct governor_look *look,
		    struct governor_order *ret);

/* No more looks: what is known by now of the last window, in *ret (`tainted`). */
void governor__end(struct governor *g, uint64_t now_ns, struct governor_order *ret);

/* How long the window that is open, or was ordered, lasts from now on; 0: there is none. */
uint32_t governor__window_ms(const struct governor *g, uint64_t now_ns);

/* How much longer gaps are in windows than outside, by more than noise; -1: not known. */
int64_t governor__drift_ppm(const struct governor *g, uint64_t now_ns);

#endif
