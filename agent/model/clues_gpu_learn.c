/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: which records belong to which step, and what is usual of them. */
#include "base/pct.h"
#include "model/clues_gpu.h"
#include "model/gpu.h"

#include <errno.h>

enum { MAX_DEVICES = 1024 };

/* ---- which step ---- */

/* The engine whose steps a process computes: itself, or the one of its server that has steps. UINT32_MAX:
 * none is known. */
static uint32_t engine_for(const struct clues *c, uint32_t tgid)
{
	uint32_t server = clues_server(c, tgid), best = UINT32_MAX, n_with_steps = 0, any = 0;

	for (size_t i = 0; i < c->n_threads; i++)	/* a worker is known by its threads only */
		if (c->threads[i].t->hdr.tgid == tgid && server == tgid) {
			server = c->threads[i].server;
			break;
		}
	for (uint32_t i = 0; i < c->v->n_engines; i++) {
		if (c->ix.first[i] == c->ix.first[i + 1])
			continue;
		n_with_steps++;
		any = i;
		if (c->v->engines[i].e.hdr.tgid == tgid)
			return i;
		if (clues_server(c, c->v->engines[i].e.hdr.tgid) == server)
			best = i;
	}
	return best == UINT32_MAX && n_with_steps == 1 ? any : best;
}

static int by_step(const void *pa, const void *pb)
{
	const struct gpu_at *a = pa, *b = pb;

	if (a->step != b->step)
		return a->step < b->step ? -1 : 1;
	return a->gpu < b->gpu ? -1 : a->gpu > b->gpu;
}

/* A record belongs to the step that its middle is in: both clocks have their errors. */
static int match_steps(struct clues *c)
{
	uint32_t tgid = 0, engine = UINT32_MAX;

	for (uint32_t i = 0; i < c->ev->gpu_steps.n; i++) {
		const struct tl_gpu_step *s = &c->ev->gpu_steps.v[i];
		uint64_t end = s->end_ns > s->hdr.ts_ns ? s->end_ns : s->hdr.ts_ns;
		uint64_t mid = s->hdr.ts_ns + (end - s->hdr.ts_ns) / 2;
		struct gpu_at *at;
		size_t place;

		if (!i || s->hdr.tgid != tgid) {
			tgid = s->hdr.tgid;
			engine = engine_for(c, tgid);
		}
		if (engine == UINT32_MAX)
			continue;
		place = step_index__after(&c->ix, engine, mid);
		if (place == c->ix.first[engine + 1] || c->v->steps[c->ix.order[place]].t0_ns > mid)
			continue;
		at = vec_push(&c->gpu_of, SIZE_MAX);
		if (!at)
			return -ENOMEM;
		*at = (struct gpu_at){ c->ix.order[place], i };
	}
	if (c->gpu_of.n)
		qsort(c->gpu_of.v, c->gpu_of.n, sizeof(*c->gpu_of.v), by_step);
	return 0;
}

/* ---- which devices ---- */

uint32_t known_server(const struct clues *c, uint32_t tgid)
{
	for (size_t i = 0; i < c->v->n_engines && tgid; i++)
		if (c->v->engines[i].e.hdr.tgid == tgid)
			return clues_server(c, tgid);
	for (size_t i = 0; i < c->n_threads && tgid; i++)
		if (c->threads[i].t->hdr.tgid == tgid)
			return c->threads[i].server;
	return 0;
}

static void note_device(struct clues *c, uint32_t server, uint32_t device)
{
	for (uint32_t i = 0; i < c->v->n_engines && server && device < 64; i++)
		if (clues_server(c, clues_tgid(c, i)) == server)
			c->gpu_usual[i].device_mask |= 1ull << device;
}

/* A server is known to use a device by its records, or because somebody's look at the device found it there. */
static void find_devices(struct clues *c)
{
	const struct gpu_facts *f = c->v->gpu;
	uint32_t tgid = 0, device = 0;

	for (size_t i = 0; i < c->ev->gpu_steps.n; i++) {
		const struct tl_gpu_step *s = &c->ev->gpu_steps.v[i];

		if (s->hdr.tgid != tgid || s->device != device)
			note_device(c, known_server(c, s->hdr.tgid), s->device);
		tgid = s->hdr.tgid;
		device = s->device;
	}
	for (size_t i = 0; f && i < f->n_devices; i++)
		note_device(c, known_server(c, f->devices[i].tgid), f->devices[i].device);
	tgid = 0;
	for (size_t i = 0; i < c->ev->gpu_states.n; i++) {
		const struct tl_gpu_state *s = &c->ev->gpu_states.v[i];

		if (s->hdr.tgid)	/* that process has it, and `device` is its own name for it */
			continue;
		if (s->by_tgid != tgid || s->device != device)
			note_device(c, known_server(c, s->by_tgid), s->device);
		tgid = s->by_tgid;
		device = s->device;
	}
}

/* ---- what is usual ---- */

struct sums {			/* of the steps of one engine */
	uint64_t *idle, *collective, *copy, *missed;
	size_t n, n_idle, n_missed;
	size_t n_decode, n_replayed;
};

static int hit_order(const void *pa, const void *pb)
{
	const struct graph_hit *a = pa, *b = pb;

	if (a->batch != b->batch)
		return a->batch < b->batch ? -1 : 1;
	return a->ns < b->ns ? -1 : a->ns > b->ns;
}

static int note_replay(struct clues *c, const struct tl_gpu_step *s, uint64_t ns, struct gpu_usual *u)
{
	uint32_t size = s->padded_to > s->batch ? s->padded_to : s->batch;
	struct graph_hit *h;

	if (size > u->max_captured)
		u->max_captured = size;
	if (!s->batch)
		return 0;
	h = vec_push(&c->sizes, SIZE_MAX);
	if (!h)
		return -ENOMEM;
	*h = (struct graph_hit){ size, 1, ns };
	if (s->graph != TL_GRAPH_HIT)
		return 0;
	h = vec_push(&c->hits, SIZE_MAX);
	if (!h)
		return -ENOMEM;
	*h = (struct graph_hit){ s->batch, 1, ns };
	return 0;
}

static int note_step(struct clues *c, uint32_t step, struct sums *sums, struct gpu_usual *u)
{
	struct gpu_view g = gpu_of_step(c, step);
	const struct tl_gpu_step *s = gpu_rank(c, &g, 0);
	uint64_t ns = step_ns(c, step);

	for (size_t i = 0; i < g.n; i++)
		if (gpu_rank(c, &g, i)->rank < 64)
			u->rank_mask |= 1ull << gpu_rank(c, &g, i)->rank;
	if (s->busy_ns)
		sums->idle[sums->n_idle++] = ns > s->busy_ns ? ns - s->busy_ns : 0;
	sums->collective[sums->n] = collective_of(c, &g).least_ns;
	sums->copy[sums->n++] = s->copy_ns;
	if (!step_only_decodes(c->v, step))
		return 0;
	sums->n_decode++;
	sums->n_replayed += s->graph_launches > 0;
	if (s->graph == TL_GRAPH_HIT || s->graph == TL_GRAPH_PADDED)
		return note_replay(c, s, ns, u);
	sums->missed[sums->n_missed++] = ns;
	return 0;
}

/* Of those from `first` on one per batch is kept: the median. */
static void fold_hits(struct hit_list *l, size_t first)
{
	size_t n = l->n - first, out = 0;
	struct graph_hit *h;

	if (!n)
		return;
	h = l->v + first;
	qsort(h, n, sizeof(*h), hit_order);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && h[k].batch == h[i].batch;)
			k++;
		h[out] = h[i + (k - i - 1) / 2];
		h[out++].n = k - i;
	}
	l->n = first + out;
}

static int learn_engine(struct clues *c, uint32_t engine, struct sums *sums)
{
	struct gpu_usual *u = &c->gpu_usual[engine];
	uint32_t last = UINT32_MAX;

	sums->n = sums->n_idle = sums->n_missed = sums->n_decode = sums->n_replayed = 0;
	u->first_hit = c->hits.n;
	u->first_size = c->sizes.n;
	for (size_t i = 0; i < c->gpu_of.n; i++) {
		uint32_t step = c->gpu_of.v[i].step;

		if (step == last || c->v->steps[step].engine != engine)
			continue;
		last = step;
		if (note_step(c, step, sums, u))
			return -ENOMEM;
	}
	fold_hits(&c->hits, u->first_hit);
	fold_hits(&c->sizes, u->first_size);
	u->n_hits = c->hits.n - u->first_hit;
	u->n_sizes = c->sizes.n - u->first_size;
	u->has_graphs = sums->n_replayed > sums->n_decode / 2;
	if (!sums->n)
		return 0;
	u->idle_ns = sums->n_idle ? pct_u64(sums->idle, sums->n_idle, 500) : 0;
	u->collective_ns = pct_u64(sums->collective, sums->n, 500);
	u->copy_ns = pct_u64(sums->copy, sums->n, 500);
	u->n_missed = sums->n_missed;
	u->missed_ns = sums->n_missed ? pct_u64(sums->missed, sums->n_missed, 500) : 0;
	return 0;
}

static int learn_steps(struct clues *c)
{
	size_t room = c->gpu_of.n + 1;
	uint64_t *v = calloc(room, 4 * sizeof(*v));
	struct sums sums = { v, v + room, v + 2 * room, v + 3 * room, 0, 0, 0, 0, 0 };
	int err = v ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < c->v->n_engines && !err; i++)
		if (c->ix.first[i] < c->ix.first[i + 1])
			err = learn_engine(c, i, &sums);
	free(v);
	return err;
}

/* ---- clocks ---- */

/* What a device's clock usually is when nothing holds it down: the median of those looks; where all of
 * them were held down, the fastest. Never more than it can. */
static int learn_clock(struct clues *c, const struct tl_gpu_state *s, size_t n, uint32_t *room)
{
	struct clock_ref *ref = vec_push(&c->clock_refs, MAX_DEVICES);
	uint32_t fastest = 0;
	size_t k = 0;

	if (!ref)
		return c->clock_refs.n < MAX_DEVICES ? -ENOMEM : 0;
	for (size_t i = 0; i < n; i++) {
		if (s[i].clock_mhz > fastest)
			fastest = s[i].clock_mhz;
		if (s[i].clock_mhz && !(s[i].why & (TL_GPU_POWER | TL_GPU_THERMAL)))
			room[k++] = s[i].clock_mhz;
	}
	ref->tgid = s->hdr.tgid;
	ref->device = s->device;
	ref->mhz = k ? pct_u32(room, k, 500) : fastest;
	return 0;
}

static int learn_clocks(struct clues *c)
{
	const struct tl_gpu_state *s = c->ev->gpu_states.v;
	size_t n = c->ev->gpu_states.n;
	uint32_t *room = malloc((n + 1) * sizeof(*room));
	int err = room ? 0 : -ENOMEM;

	for (size_t i = 0, k; i < n && !err; i = k) {
		for (k = i + 1; k < n && s[k].hdr.tgid == s[i].hdr.tgid && s[k].device == s[i].device;)
			k++;
		err = learn_clock(c, s + i, k - i, room);
	}
	free(room);
	return err;
}

int gpu_make(struct clues *c)
{
	int err;

	c->gpu_usual = calloc(c->v->n_engines + 1, sizeof(*c->gpu_usual));
	if (!c->gpu_usual)
		return -ENOMEM;
	find_devices(c);
	err = match_steps(c);
	if (!err)
		err = learn_steps(c);
	if (!err)
		err = learn_clocks(c);
	return err;
}

void gpu_free(struct clues *c)
{
	free(c->gpu_usual);
	vec_free(&c->gpu_of);
	vec_free(&c->hits);
	vec_free(&c->sizes);
	vec_free(&c->clock_refs);
}
