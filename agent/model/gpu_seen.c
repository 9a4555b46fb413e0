/* SPDX-License-Identifier: Apache-2.0 */
/* How long a device was watched: time in which something without a record may have run on it is not. */
#include "model/gpu_priv.h"

#include <errno.h>
#include <stdlib.h>

enum { MAX_HOLES = 1000000 };

static int add_hole(struct gpu_process *p, uint64_t t0_ns, uint64_t t1_ns)
{
	struct gpu_unseen *last = p->holes.n ? &p->holes.v[p->holes.n - 1] : NULL;

	if (last && t0_ns <= last->t1_ns) {
		last->t1_ns = t1_ns > last->t1_ns ? t1_ns : last->t1_ns;
		return 0;
	}
	if (t1_ns <= t0_ns)
		return 0;
	if (p->holes.n == MAX_HOLES) {	/* then nothing is known of what comes behind */
		last->t1_ns = UINT64_MAX;
		return 0;
	}
	last = vec_push(&p->holes, MAX_HOLES);
	if (!last)
		return -ENOMEM;
	*last = (struct gpu_unseen){ t0_ns, t1_ns };
	return 0;
}

static bool has_no_record(const struct gpu_launch *l)
{
	return (l->call == TL_CALL_KERNEL || l->call == TL_CALL_GRAPH) && !(l->flags & GPU_L_JOINED);
}

/* Of each launch, when the first thing of it began; UINT64_MAX: nothing is known to. */
static uint64_t *list_begins(const struct gpu_process *p)
{
	uint64_t *ret = malloc((p->launches.n + 1) * sizeof(*ret));

	for (size_t i = 0; ret && i <= p->launches.n; i++)
		ret[i] = UINT64_MAX;
	for (size_t i = 0; ret && i < p->spans.n; i++) {
		const struct gpu_span *s = &p->spans.v[i];

		if (s->at && s->t0_ns < ret[s->at - 1])
			ret[s->at - 1] = s->t0_ns;
	}
	/* ... it or one behind it */
	for (size_t i = p->launches.n; ret && i-- > 0;)
		ret[i] = ret[i + 1] < ret[i] ? ret[i + 1] : ret[i];
	return ret;
}

/*
 * What was launched and has no record runs at some time between the launch, or the end of what was recorded before it,
 * and the next thing that was recorded. Whether the device was busy or idle then, nobody knows.
 */
int gpu_find_holes(struct gpu_process *p)
{
	uint64_t *begins, end_ns = 0;
	size_t s = 0;
	int err = 0;

	if (!p->spans.n)	/* nothing is measured, so nothing is missing */
		return 0;
	begins = list_begins(p);
	if (!begins)
		return -ENOMEM;
	for (size_t i = 0; i < p->launches.n && !err; i++) {
		const struct gpu_launch *l = &p->launches.v[i];

		if (!has_no_record(l))
			continue;
		for (; s < p->spans.n && p->spans.v[s].t0_ns < begins[i]; s++)
			end_ns = p->spans.v[s].t1_ns > end_ns ? p->spans.v[s].t1_ns : end_ns;
		err = add_hole(p, l->ts_ns > end_ns ? l->ts_ns : end_ns, begins[i]);
	}
	free(begins);
	return err;
}

/* ---- windows ---- */

struct seen_in {
	uint32_t kernels, launches;
};

static struct seen_in look_into(const struct gpu_process *p, const struct gpu_window *w, size_t *launch, size_t *span)
{
	struct seen_in ret = { 0, 0 };

	for (; *launch < p->launches.n && p->launches.v[*launch].ts_ns <= w->t1_ns; ++*launch)
		ret.launches += p->launches.v[*launch].call == TL_CALL_KERNEL && p->launches.v[*launch].ts_ns >= w->t0_ns;
	for (; *span < p->spans.n && p->spans.v[*span].t0_ns <= w->t1_ns; ++*span)
		ret.kernels += p->spans.v[*span].what == TL_SPAN_KERNEL && p->spans.v[*span].t0_ns >= w->t0_ns;
	return ret;
}

static bool is_unseen(const struct gpu_process *p, const struct gpu_window *w)
{
	for (size_t i = 0; i < p->unseen.n; i++)
		if (p->unseen.v[i].t0_ns < w->t1_ns && w->t0_ns < p->unseen.v[i].t1_ns)
			return true;
	return false;
}

/* Where only graphs have records, kernels outside of them have none; unless none was launched. */
static void judge_windows(struct gpu_process *p)
{
	size_t launch = 0, span = 0;

	for (size_t i = 0; i < p->windows.n; i++) {
		struct gpu_window *w = &p->windows.v[i];
		struct seen_in in = look_into(p, w, &launch, &span);
		bool told = p->outside_kernels && !is_unseen(p, w);

		w->partial = !in.kernels && !(told && !in.launches) && !(w->marked && !w->graphs);
		w->partial |= p->lossy && !told;	/* what was lost may have been launches, too */
	}
}

static int watch(struct gpu_process *p, uint64_t t0_ns, uint64_t t1_ns)
{
	struct gpu_unseen *at = p->watched.n ? &p->watched.v[p->watched.n - 1] : NULL;

	t0_ns = at && at->t1_ns > t0_ns ? at->t1_ns : t0_ns;
	if (t0_ns >= t1_ns)
		return 0;
	at = vec_push(&p->watched, SIZE_MAX);
	if (!at)
		return -ENOMEM;
	*at = (struct gpu_unseen){ t0_ns, t1_ns };
	return 0;
}

/* A window without its holes. */
static int watch_between(struct gpu_process *p, const struct gpu_window *w, size_t *hole)
{
	uint64_t from = w->seen0_ns;
	int err = 0;

	while (*hole < p->holes.n && p->holes.v[*hole].t1_ns <= from)
		++*hole;
	for (size_t i = *hole; i < p->holes.n && p->holes.v[i].t0_ns < w->seen1_ns && !err; i++) {
		err = watch(p, from, p->holes.v[i].t0_ns);
		from = p->holes.v[i].t1_ns;
	}
	return err ? err : watch(p, from, w->seen1_ns);
}

int gpu_find_watched(struct gpu_process *p)
{
	bool any = false;
	size_t hole = 0;
	int err = 0;

	judge_windows(p);
	for (size_t i = 0; i < p->windows.n; i++)
		any |= !p->windows.v[i].partial && p->windows.v[i].seen0_ns < p->windows.v[i].seen1_ns;
	p->partial = !any;
	for (size_t i = 0; i < p->windows.n && !err; i++) {
		const struct gpu_window *w = &p->windows.v[i];

		if (p->partial)		/* at least so much was busy: nothing is taken off */
			err = watch(p, w->seen0_ns, w->seen1_ns);
		else if (!w->partial)
			err = watch_between(p, w, &hole);
	}
	return err;
}
