/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: which records belong to which step, and what is usual of them. */
#include "base/pct.h"
#include "model/clues_gpu.h"
#include "model/gpu.h"

#include <errno.h>

/* ---- which step ---- */

/* Engines whose wire tells of steps, by process and by server. */
struct steppers {
	struct map *by_tgid, *by_server;	/* index: the first one of a process,
						 * the last one of a server */
	uint32_t only;		/* UINT32_MAX: several, or none */
};

static int note_stepper(struct map *m, uint32_t key, uint32_t engine, bool last)
{
	bool new;
	uint32_t *at = map__put(m, key, &new);

	if (at && (new || last))
		*at = engine;
	return at ? 0 : -ENOMEM;
}

static int steppers_init(struct steppers *s, const struct clues *c)
{
	size_t n = 0;
	int err;

	*s = (struct steppers){ map__new(sizeof(uint32_t), SIZE_MAX), map__new(sizeof(uint32_t), SIZE_MAX), UINT32_MAX };
	err = s->by_tgid && s->by_server ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < c->v->n_engines && !err; i++) {
		if (c->ix.first[i] == c->ix.first[i + 1])
			continue;
		s->only = n++ ? UINT32_MAX : i;
		err = note_stepper(s->by_tgid, clues_tgid(c, i), i, false);
		if (!err)
			err = note_stepper(s->by_server, c->engine_servers[i], i, true);
	}
	return err;
}

static void steppers_free(struct steppers *s)
{
	map__free(s->by_tgid);
	map__free(s->by_server);
}

/* The first of a process's threads; NULL: none is recorded. */
static const struct watched *first_thread(const struct clues *c, uint32_t tgid)
{
	const struct watched *w = clues_process_threads(c, tgid);

	return w < c->threads + c->n_threads && w->t->hdr.tgid == tgid ? w : NULL;
}

/* The engine whose steps a process computes: itself, or the one of its server that has steps.
 * UINT32_MAX: none is known. */
static uint32_t engine_for(const struct clues *c, const struct steppers *s, uint32_t tgid)
{
	const struct watched *w = first_thread(c, tgid);
	uint32_t server = clues_server(c, tgid);
	const uint32_t *at = map__get(s->by_tgid, tgid);

	if (w && server == tgid)	/* a worker is known by its threads only */
		server = w->server;
	if (!at)
		at = map__get(s->by_server, server);
	return at ? *at : s->only;
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
	struct steppers steppers;
	int err = steppers_init(&steppers, c);

	for (uint32_t i = 0; i < c->ev->gpu_steps.n && !err; i++) {
		const struct tl_gpu_step *s = &c->ev->gpu_steps.v[i];
		uint64_t end = s->end_ns > s->hdr.ts_ns ? s->end_ns : s->hdr.ts_ns;
		uint64_t mid = s->hdr.ts_ns + (end - s->hdr.ts_ns) / 2;
		uint32_t engine = engine_for(c, &steppers, s->hdr.tgid);
		struct gpu_at *at;
		size_t place;

		if (engine == UINT32_MAX)
			continue;
		place = step_index__after(&c->ix, engine, mid);
		if (place == c->ix.first[engine + 1] || c->v->steps[c->ix.order[place]].t0_ns > mid)
			continue;
		at = vec_push(&c->gpu_of, SIZE_MAX);
		if (at)
			*at = (struct gpu_at){ c->ix.order[place], i };
		err = at ? 0 : -ENOMEM;
	}
	steppers_free(&steppers);
	if (!err && c->gpu_of.n)
		qsort(c->gpu_of.v, c->gpu_of.n, sizeof(*c->gpu_of.v), by_step);
	return err;
}

/* ---- which devices ---- */

uint32_t known_server(const struct clues *c, uint32_t tgid)
{
	const struct process *p = tgid ? map__get(c->processes, tgid) : NULL;
	const struct watched *w = tgid && !p ? first_thread(c, tgid) : NULL;

	return p ? p->server : w ? w->server : 0;
}

static int note_device(const struct clues *c, struct map *masks, uint32_t tgid, uint32_t device)
{
	uint32_t server = known_server(c, tgid);
	uint64_t *mask = server && device < 64 ? map__put(masks, server, NULL) : NULL;

	if (mask)
		*mask |= 1ull << device;
	return mask || !server || device >= 64 ? 0 : -ENOMEM;
}

/* A server is known to use a device by its records, or because somebody's look at
 * the device found it there. */
static int find_devices(struct clues *c)
{
	const struct gpu_facts *f = c->v->gpu;
	struct map *masks = map__new(sizeof(uint64_t), SIZE_MAX);	/* by server */
	int err = masks ? 0 : -ENOMEM;

	for (size_t i = 0; i < c->ev->gpu_steps.n && !err; i++)
		err = note_device(c, masks, c->ev->gpu_steps.v[i].hdr.tgid,
				  c->ev->gpu_steps.v[i].device);
	for (size_t i = 0; f && i < f->n_devices && !err; i++)
		err = note_device(c, masks, f->devices[i].tgid, f->devices[i].device);
	for (size_t i = 0; i < c->ev->gpu_states.n && !err; i++) {
		const struct tl_gpu_state *s = &c->ev->gpu_states.v[i];

		if (!s->hdr.tgid)	/* else that process has it, and
					 * `device` is its own name for it */
			err = note_device(c, masks, s->by_tgid, s->device);
	}
	for (size_t i = 0; i < c->v->n_engines && !err; i++) {
		const uint64_t *mask = map__get(masks, c->engine_servers[i]);

		c->gpu_usual[i].device_mask = mask ? *mask : 0;
	}
	map__free(masks);
	return err;
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

static int note_replay(struct clues *c, const struct tl_gpu_step *s, uint64_t ns,
		       struct gpu_usual *u)
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

/* at: records of an engine, n of them, by step. */
static int learn_engine(struct clues *c, uint32_t engine, const uint32_t *at, size_t n,
			struct sums *sums)
{
	struct gpu_usual *u = &c->gpu_usual[engine];
	uint32_t last = UINT32_MAX;

	sums->n = sums->n_idle = sums->n_missed = sums->n_decode = sums->n_replayed = 0;
	u->first_hit = c->hits.n;
	u->first_size = c->sizes.n;
	for (size_t i = 0; i < n; i++) {
		uint32_t step = c->gpu_of.v[at[i]].step;

		if (step == last)
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

/* Records engine after engine, in the order they have. end[i]: behind those of engine i. */
static void by_engine(const struct clues *c, uint32_t *at, size_t *end)
{
	for (size_t i = 0; i < c->gpu_of.n; i++)
		end[c->v->steps[c->gpu_of.v[i].step].engine + 1]++;
	for (size_t i = 0; i < c->v->n_engines; i++)
		end[i + 1] += end[i];
	for (size_t i = 0; i < c->gpu_of.n; i++)
		at[end[c->v->steps[c->gpu_of.v[i].step].engine]++] = i;
}

static int learn_steps(struct clues *c)
{
	size_t room = c->gpu_of.n + 1, from = 0;
	uint64_t *v = calloc(room, 4 * sizeof(*v));
	uint32_t *at = malloc(room * sizeof(*at));
	size_t *end = calloc(c->v->n_engines + 1, sizeof(*end));
	struct sums sums = { v, v + room, v + 2 * room, v + 3 * room, 0, 0, 0, 0, 0 };
	int err = v && at && end ? 0 : -ENOMEM;

	if (!err)
		by_engine(c, at, end);
	for (uint32_t i = 0; i < c->v->n_engines && !err; i++) {
		if (from < end[i])
			err = learn_engine(c, i, at + from, end[i] - from, &sums);
		from = end[i];
	}
	free(v);
	free(at);
	free(end);
	return err;
}

int gpu_make(struct clues *c)
{
	int err;

	c->gpu_usual = calloc(c->v->n_engines + 1, sizeof(*c->gpu_usual));
	if (!c->gpu_usual)
		return -ENOMEM;
	err = find_devices(c);
	if (!err)
		err = match_steps(c);
	if (!err)
		err = learn_steps(c);
	if (!err)
		err = devices_make(c);
	return err;
}

void gpu_free(struct clues *c)
{
	free(c->gpu_usual);
	vec_free(&c->gpu_of);
	vec_free(&c->hits);
	vec_free(&c->sizes);
	devices_free(c);
}
