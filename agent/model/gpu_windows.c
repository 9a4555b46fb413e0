/* SPDX-License-Identifier: Apache-2.0 */
/* The windows in which a process had its records taken: told by its clocks, and by what came in them. */
#include "model/evidence.h"
#include "model/gpu_priv.h"

#include <errno.h>

enum {
	CLOCK_NS = 500000000,	/* a window tells its clock so often ... */
	CLOCK_LATE_NS = 300000000,	/* ... or so much later */
};

/* The first launch behind t. */
static size_t first_launch(const struct gpu_process *p, uint64_t t_ns)
{
	size_t lo = 0, hi = p->launches.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->launches.v[mid].ts_ns <= t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The longest pause of launches told by callbacks in [t0, t1]. */
static struct gpu_unseen pause_between(const struct gpu_process *p, uint64_t t0_ns, uint64_t t1_ns)
{
	struct gpu_unseen best = { t0_ns, t0_ns };
	uint64_t last = t0_ns;

	for (size_t i = first_launch(p, t0_ns); i < p->launches.n && last < t1_ns; i++) {
		const struct gpu_launch *l = &p->launches.v[i];
		uint64_t ts = l->ts_ns < t1_ns ? l->ts_ns : t1_ns;

		if (!l->corr)
			continue;
		if (ts - last > best.t1_ns - best.t0_ns)
			best = (struct gpu_unseen){ last, ts };
		last = ts;
	}
	return t1_ns - last > best.t1_ns - best.t0_ns ? (struct gpu_unseen){ last, t1_ns } : best;
}

static int add_window(struct gpu_process *p, uint64_t t0_ns)
{
	struct gpu_window *w = vec_push(&p->windows, SIZE_MAX);

	if (!w)
		return -ENOMEM;
	*w = (struct gpu_window){ .t0_ns = t0_ns, .t1_ns = UINT64_MAX, .clock0_ns = UINT64_MAX };
	return 0;
}

/*
 * A window tells its clock twice a second; a pause of that, and another one has begun. But the agent asks for the clock,
 * and on a busy host it may be late: then callbacks told of launches all the time.
 */
static bool is_between_windows(const struct gpu_unseen *pause, uint64_t clocks_ns)
{
	return clocks_ns > CLOCK_NS + CLOCK_LATE_NS && pause->t1_ns - pause->t0_ns > clocks_ns - CLOCK_NS - CLOCK_LATE_NS;
}

static bool is_marked(const struct evidence *ev, const struct gpu_clocks *clocks)
{
	return clocks->n && ev->clocks.v[clocks->at[0]].hdr.flags & TL_CLOCK_OPENS;
}

/* The library says when a window opens and when it closes, if it is none of an older version. */
static int find_marked(struct gpu_process *p, const struct evidence *ev, const struct gpu_clocks *clocks)
{
	struct gpu_window *w = NULL;

	for (size_t i = 0; i < clocks->n; i++) {
		const struct tl_clock *k = &ev->clocks.v[clocks->at[i]];
		uint64_t ts = k->hdr.ts_ns;

		if (w && ts < w->clock1_ns)
			continue;
		if (k->hdr.flags & TL_CLOCK_OPENS) {
			if (w)
				w->t1_ns = ts;
			if (add_window(p, ts))
				return -ENOMEM;
			w = &p->windows.v[p->windows.n - 1];
			w->marked = true;
			w->graphs = k->hdr.flags & TL_CLOCK_GRAPHS;
		} else if (!w->seen0_ns) {	/* the first one behind the mark: now all is switched on */
			w->seen0_ns = ts;
		} else if (k->hdr.flags & TL_CLOCK_CLOSES) {
			w->seen1_ns = ts;
		}
		w->clock0_ns = ts < w->clock0_ns ? ts : w->clock0_ns;
		w->clock1_ns = ts;
	}
	return 0;
}

static int find_windows(struct gpu_process *p, const struct evidence *ev, const struct gpu_clocks *clocks)
{
	bool any = p->spans.n > 0;
	uint64_t last = 0;

	for (size_t i = 0; i < p->launches.n && !any; i++)
		any = p->launches.v[i].corr != 0;
	if (any && is_marked(ev, clocks))
		return find_marked(p, ev, clocks);
	for (size_t i = 0; i < clocks->n && any; i++) {
		const struct tl_clock *k = &ev->clocks.v[clocks->at[i]];
		struct gpu_unseen pause = { 0, 0 };
		struct gpu_window *w;

		if (k->hdr.ts_ns < last)
			continue;
		if (last && k->hdr.ts_ns - last > CLOCK_NS + CLOCK_LATE_NS)
			pause = pause_between(p, last, k->hdr.ts_ns);
		if (last && is_between_windows(&pause, k->hdr.ts_ns - last)) {
			w = &p->windows.v[p->windows.n - 1];
			w->t1_ns = pause.t0_ns + (pause.t1_ns - pause.t0_ns) / 2;
			if (add_window(p, w->t1_ns))
				return -ENOMEM;
		} else if (!last && add_window(p, 0)) {
			return -ENOMEM;
		}
		last = k->hdr.ts_ns;
		w = &p->windows.v[p->windows.n - 1];
		w->clock0_ns = last < w->clock0_ns ? last : w->clock0_ns;
		w->clock1_ns = last;
	}
	return last || !any ? 0 : add_window(p, 0);
}

/* A window is known by its clocks and by what came in it. */
static void trim_windows(struct gpu_process *p)
{
	size_t l = 0, s = 0;

	for (size_t i = 0; i < p->windows.n; i++) {
		struct gpu_window *w = &p->windows.v[i];
		uint64_t first = w->clock0_ns, last = w->clock1_ns;

		for (; l < p->launches.n && p->launches.v[l].ts_ns < w->t1_ns; l++) {
			const struct gpu_launch *k = &p->launches.v[l];

			if (!k->corr || k->ts_ns < w->t0_ns)
				continue;
			w->kernels |= k->call == TL_CALL_KERNEL;
			w->last_kernel_ns = k->call == TL_CALL_KERNEL ? k->ts_ns : w->last_kernel_ns;
			first = k->ts_ns < first ? k->ts_ns : first;
			last = k->ts_ns > last ? k->ts_ns : last;
		}
		for (; s < p->spans.n && p->spans.v[s].t0_ns < w->t1_ns; s++) {
			first = p->spans.v[s].t0_ns < first ? p->spans.v[s].t0_ns : first;
			last = p->spans.v[s].t1_ns > last ? p->spans.v[s].t1_ns : last;
		}
		w->t0_ns = first < last ? first : w->t0_ns;
		w->t1_ns = last ? last : w->t0_ns;
		w->seen0_ns = w->marked ? w->seen0_ns : w->t0_ns;
		w->seen1_ns = w->seen1_ns ? w->seen1_ns : w->t1_ns;
		if (!w->seen0_ns || w->seen0_ns > w->seen1_ns)
			w->seen0_ns = w->seen1_ns;
	}
}

int gpu_find_windows(struct gpu_process *p, const struct evidence *ev, const struct gpu_clocks *clocks)
{
	int err = find_windows(p, ev, clocks);

	if (!err && p->launches.n)
		trim_windows(p);
	return err;
}

uint32_t gpu_window_of(const struct gpu_process *p, uint64_t t_ns, size_t *at)
{
	while (*at < p->windows.n && p->windows.v[*at].t1_ns < t_ns)
		++*at;
	return *at < p->windows.n && p->windows.v[*at].t0_ns <= t_ns ? *at + 1 : 0;
}
