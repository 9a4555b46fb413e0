/* SPDX-License-Identifier: Apache-2.0 */
/* What must be known of the evidence before it is believed. */
#include "model/health.h"
#include "base/map.h"
#include "model/evidence.h"
#include "model/servers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_RANKS = 64,
	/* Clocks are steered by up to 500 ppm; what is beyond that and the
	 * errors of reading is a step. */
	STEERED_PPM = 500,
	MIN_STEP_NS = 200000,
	/* Of the steps' time on every rank, in so many steps, to call it bound by communication. */
	BOUND_PCT = 50, MIN_STEPS = 8,
};
/* A collective that the capture's end has cut is no hang. */
static const uint64_t hang_ns = 1000000000;
/* Whoever waits for a server that is stopped for so long looks for the reason. */
static const uint64_t long_stop_ns = 1000000000;
static const uint64_t long_wait_ns = 900000000;	/* a library tells of itself once a second */

static struct health_note *add(struct health *h, enum health_kind kind, uint32_t tgid,
			       uint64_t t0_ns, uint64_t t1_ns)
{
	if (h->n == MAX_HEALTH_NOTES) {
		h->n_not_kept++;
		return NULL;
	}
	h->v[h->n] = (struct health_note){ .kind = kind, .tgid = tgid, .t0_ns = t0_ns, .t1_ns = t1_ns };
	return &h->v[h->n++];
}

/* ---- GPU records ---- */

/* The process's note of this kind, which then spans the record, too. NULL: no room. */
static struct health_note *note_of(struct health *h, enum health_kind kind,
				   const struct tl_gpu_health *e)
{
	struct health_note *n = NULL;

	for (size_t i = 0; i < h->n; i++)
		if (h->v[i].kind == kind && h->v[i].tgid == e->hdr.tgid)
			n = &h->v[i];
	if (!n) {
		n = add(h, kind, e->hdr.tgid, e->since_ns, e->hdr.ts_ns);
		if (n)
			n->level = e->level;
	}
	if (n) {
		n->t1_ns = e->hdr.ts_ns > n->t1_ns ? e->hdr.ts_ns : n->t1_ns;
		n->to_level = e->to_level;
		if (*e->why)
			memcpy(n->why, e->why, sizeof(n->why) - 1);
	}
	return n;
}

static void note_trouble(struct health *h, const struct tl_gpu_health *e)
{
	struct health_note *n;

	if (e->trouble == TL_GPU_BUSY) {
		n = note_of(h, HEALTH_GPU_BUSY, e);
		if (n)
			memcpy(n->holder, e->holder, sizeof(n->holder) - 1);
	} else if (e->trouble == TL_GPU_BUDGET) {
		n = note_of(h, HEALTH_GPU_BUDGET, e);
		if (n) {
			n->ppm = e->overhead_ppm > n->ppm ? e->overhead_ppm : n->ppm;
			n->n++;
		}
	} else if (e->trouble == TL_GPU_NO_PROBES) {
		note_of(h, HEALTH_GPU_NO_PROBES, e);
	} else if (e->trouble == TL_GPU_FINE && e->to_level < e->level) {
		note_of(h, HEALTH_GPU_STEPPED_DOWN, e);
	} else if (e->trouble == TL_GPU_NO_STATE) {
		note_of(h, HEALTH_GPU_NO_STATE, e);
	} else if (e->trouble == TL_GPU_FINE && *e->why && !e->records && !e->bad_records) {
		note_of(h, HEALTH_GPU_WAITS, e);
	}
	if (e->bad_records || e->trouble == TL_GPU_BAD_STAMPS) {
		n = note_of(h, HEALTH_GPU_BAD_STAMPS, e);
		if (n) {
			n->n += e->bad_records;
			n->of += e->bad_records + e->records;
		}
	}
	if (e->dropped) {
		n = note_of(h, HEALTH_GPU_DROPPED, e);
		if (n) {
			n->n += e->dropped;
			n->of += e->dropped + e->records;
		}
	}
}

static bool has_records(const struct evidence *ev, uint32_t tgid)
{
	for (size_t i = 0; i < ev->gpu_healths.n; i++)
		if (ev->gpu_healths.v[i].hdr.tgid == tgid && ev->gpu_healths.v[i].records)
			return true;
	return false;
}

/* What passed soon is not worth a word. */
static void drop_short_waits(const struct evidence *ev, struct health *h)
{
	size_t out = 0;

	for (size_t i = 0; i < h->n; i++)
		if (h->v[i].kind != HEALTH_GPU_WAITS ||
		    h->v[i].t1_ns >= h->v[i].t0_ns + long_wait_ns || !has_records(ev, h->v[i].tgid))
			h->v[out++] = h->v[i];
	h->n = out;
}

/*
 * Launches without one record are broken whoever says so. But records come in buffers,
 * later than the launches: what counts is the whole of a process, as far as records were
 * asked for and could be had.
 */
struct asked_for {
	const struct tl_gpu_health *first, *last;	/* without a record between them */
	uint64_t launches, records;
	uint64_t silent, said;	/* launches since the last record, and how
				 * many of them there were when it was told */
};

static void note_broken(const struct evidence *ev, struct health *h)
{
	struct asked_for by[MAX_HEALTH_NOTES];
	size_t n = 0, k;

	for (size_t i = 0; i < ev->gpu_healths.n; i++) {
		const struct tl_gpu_health *e = &ev->gpu_healths.v[i];

		if (e->trouble == TL_GPU_BUSY ||
		    (e->level < TL_GPU_GRAPH && e->trouble != TL_GPU_BROKEN))
			continue;
		for (k = 0; k < n && by[k].first->hdr.tgid != e->hdr.tgid;)
			k++;
		if (k == MAX_HEALTH_NOTES)
			continue;
		if (k == n)
			by[n++] = (struct asked_for){ .first = e, .last = e };
		by[k].launches += e->launches;
		by[k].records += e->records + e->bad_records;
		if (!by[k].silent && !by[k].said)
			by[k].first = e;
		if (!by[k].said)
			by[k].last = e;
		by[k].silent = e->records + e->bad_records ? 0 : by[k].silent + e->launches;
		if (e->trouble == TL_GPU_BROKEN)
			by[k].said = by[k].silent > by[k].said ? by[k].silent : by[k].said;
	}
	for (k = 0; k < n; k++) {
		struct health_note *note;

		if (!by[k].said && (by[k].records || !by[k].launches))
			continue;
		note_of(h, HEALTH_GPU_BROKEN, by[k].first);
		note = note_of(h, HEALTH_GPU_BROKEN, by[k].last);
		if (note)
			note->n = by[k].said ? by[k].said : by[k].launches;
	}
}

/* ---- clocks ---- */

static void note_clocks(const struct model_view *v, struct health *h)
{
	const struct evidence *ev = v->evidence;
	uint64_t mono = 0, real = 0, err = 0;

	if (v->host) {
		mono = v->host->hdr.ts_ns;
		real = v->host->realtime_ns;
		err = v->host->clock_err_ns;
	}
	for (size_t i = 0; i < ev->clocks.n; i++) {
		const struct tl_clock *k = &ev->clocks.v[i];
		int64_t step = (int64_t)(k->realtime_ns - k->hdr.ts_ns - (real - mono));
		uint64_t size = step < 0 ? -(uint64_t)step : (uint64_t)step;
		uint64_t allowed = err + k->err_ns + MIN_STEP_NS;
		struct health_note *n;

		if (k->hdr.ts_ns > mono)
			allowed += (k->hdr.ts_ns - mono) / 1000000 * STEERED_PPM;
		if (real && size > allowed) {
			n = add(h, HEALTH_CLOCK_STEP, 0, mono, k->hdr.ts_ns);
			if (n)
				n->jump_ns = step;
		}
		mono = k->hdr.ts_ns;
		real = k->realtime_ns;
		err = k->err_ns;
	}
}

/* ---- ranks ---- */

struct rank_sums {
	uint64_t ns, collective_ns, transfer_ns;
	uint32_t n_steps;
};
struct group {			/* the ranks of one server */
	uint32_t server;
	uint64_t enters;	/* ranks that took part in collectives, bits */
	uint64_t waits;		/* ranks that wait in one that does not end */
	uint64_t open_t0_ns, open_t1_ns;
	uint64_t t0_ns, t1_ns;
	struct rank_sums rank[MAX_RANKS];
};
struct groups {
	struct group *v;
	size_t n, cap;
};

static uint32_t server_of(const struct servers *s, uint32_t tgid)
{
	uint32_t server = servers__of(s, tgid);

	return server ? server : tgid;
}

enum { MAX_GROUPS = 64 };

/* *ret NULL: none of the first MAX_GROUPS. */
static int group_of(struct groups *g, uint32_t server, struct group **ret)
{
	struct group *v;

	for (size_t i = 0; i < g->n; i++)
		if (g->v[i].server == server) {
			*ret = &g->v[i];
			return 0;
		}
	*ret = NULL;
	if (g->n == MAX_GROUPS)
		return 0;
	v = realloc(g->v, (g->n + 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	g->v = v;
	memset(&v[g->n], 0, sizeof(*v));
	v[g->n].server = server;
	*ret = &v[g->n++];
	return 0;
}

static void add_open(struct group *g, const struct tl_gpu_step *s)
{
	uint64_t ns = s->end_ns > s->hdr.ts_ns ? s->end_ns - s->hdr.ts_ns : 0;

	if (ns < hang_ns || s->collective_ns < ns / 10 * 9)
		return;
	if (!g->open_t0_ns || s->hdr.ts_ns < g->open_t0_ns)
		g->open_t0_ns = s->hdr.ts_ns;
	if (s->end_ns > g->open_t1_ns)
		g->open_t1_ns = s->end_ns;
	g->waits |= 1ull << s->rank;
}

static void add_to_group(struct group *g, const struct tl_gpu_step *s)
{
	struct rank_sums *r = &g->rank[s->rank];

	if (!g->t0_ns)
		g->t0_ns = s->hdr.ts_ns;
	if (s->end_ns > g->t1_ns)
		g->t1_ns = s->end_ns;
	if (s->hdr.flags & TL_GPU_OPEN) {
		add_open(g, s);
		return;
	}
	if (s->collective_ns)
		g->enters |= 1ull << s->rank;
	r->n_steps++;
	r->ns += s->end_ns > s->hdr.ts_ns ? s->end_ns - s->hdr.ts_ns : 0;
	r->collective_ns += s->collective_ns;
	/* Where nobody knows what of it was transfer, all of it counts;
	 * ranks are compared below. */
	r->transfer_ns += s->transfer_ns ? s->transfer_ns : s->collective_ns;
}

static void note_hang(const struct group *g, struct health *h)
{
	uint64_t missing = g->enters & ~g->waits;
	struct health_note *n = g->waits && missing ?
				add(h, HEALTH_HANG, g->server, g->open_t0_ns, g->open_t1_ns) : NULL;

	if (!n)
		return;
	n->missing = missing;
	n->waiting = g->waits;
}

/* All ranks spend the most of their steps in moving data, within a twentieth of each other. */
static void note_bound(const struct group *g, struct health *h)
{
	uint64_t least = UINT64_MAX, most = 0, collective = 0, step = 0;
	uint32_t n_ranks = 0;
	struct health_note *n;

	for (uint16_t r = 0; r < MAX_RANKS; r++) {
		const struct rank_sums *s = &g->rank[r];

		if (!s->n_steps)
			continue;
		if (s->n_steps < MIN_STEPS || s->transfer_ns < s->ns / 100 * BOUND_PCT)
			return;
		n_ranks++;
		least = s->collective_ns < least ? s->collective_ns : least;
		most = s->collective_ns > most ? s->collective_ns : most;
		collective += s->collective_ns / s->n_steps;
		step += s->ns / s->n_steps;
	}
	if (n_ranks < 2 || most - least > most / 20)
		return;
	n = add(h, HEALTH_COMMUNICATION, g->server, g->t0_ns, g->t1_ns);
	if (!n)
		return;
	n->n_ranks = n_ranks;
	n->collective_ns = collective / n_ranks;
	n->step_ns = step / n_ranks;
}

static int note_ranks(const struct evidence *ev, const struct servers *servers, struct health *h)
{
	struct groups groups = { 0 };
	int err = 0;

	for (size_t i = 0; i < ev->gpu_steps.n && !err; i++) {
		const struct tl_gpu_step *s = &ev->gpu_steps.v[i];
		struct group *g;

		if (s->rank >= MAX_RANKS)
			continue;
		err = group_of(&groups, server_of(servers, s->hdr.tgid), &g);
		if (!err && g)
			add_to_group(g, s);
	}
	for (size_t i = 0; i < groups.n && !err; i++) {
		note_hang(&groups.v[i], h);
		note_bound(&groups.v[i], h);
	}
	free(groups.v);
	return err;
}

/* ---- stops ---- */

static struct health_note *stop_of(struct health *h, uint32_t server, uint64_t t0_ns,
				   uint64_t t1_ns)
{
	for (size_t i = 0; i < h->n; i++)
		if (h->v[i].kind == HEALTH_STOPPED && h->v[i].tgid == server &&
		    h->v[i].t0_ns <= t1_ns && t0_ns <= h->v[i].t1_ns)
			return &h->v[i];
	return add(h, HEALTH_STOPPED, server, t0_ns, t1_ns);
}

static int find_proxies(const struct evidence *ev, struct map *ret)
{
	for (size_t i = 0; i < ev->threads.n; i++)
		if (ev->threads.v[i].role == TL_ROLE_PROXY &&
		    !map__put(ret, ev->threads.v[i].hdr.tgid, NULL))
			return -ENOMEM;
	return 0;
}

/* All threads of a process, and mostly all of a server, are stopped together. */
static int note_stops(const struct model_view *v, const struct servers *servers, struct health *h)
{
	const struct evidence *ev = v->evidence;
	struct map *proxies = map__new(0, SIZE_MAX);
	int err = proxies ? find_proxies(ev, proxies) : -ENOMEM;

	for (size_t i = 0; i < ev->spans.n && !err; i++) {
		const struct tl_thread_span *s = &ev->spans.v[i];
		uint64_t t0 = s->since_ns > v->t0_ns ? s->since_ns : v->t0_ns;
		struct health_note *n;

		if (s->state != TL_SPAN_SLEEP || s->wait != TL_WAIT_STOPPED ||
		    s->hdr.ts_ns < t0 + long_stop_ns || map__get(proxies, s->hdr.tgid))
			continue;
		n = stop_of(h, server_of(servers, s->hdr.tgid), t0, s->hdr.ts_ns);
		if (!n)
			continue;
		n->t0_ns = t0 < n->t0_ns ? t0 : n->t0_ns;
		n->t1_ns = s->hdr.ts_ns > n->t1_ns ? s->hdr.ts_ns : n->t1_ns;
		n->n |= (s->hdr.flags & TL_F_TRUNC) != 0;
		n->several |= n->stopped && n->stopped != s->hdr.tgid;
		if (!n->stopped || s->hdr.tgid == n->tgid)
			n->stopped = s->hdr.tgid;
	}
	map__free(proxies);
	return err;
}

/* ---- */

static int by_time(const void *pa, const void *pb)
{
	const struct health_note *a = pa, *b = pb;

	if (a->t0_ns != b->t0_ns)
		return a->t0_ns < b->t0_ns ? -1 : 1;
	return (int)a->kind - (int)b->kind;
}

int health_notes(const struct model_view *v, struct health *ret)
{
	struct servers *servers;
	struct health_note *n;
	int err;

	memset(ret, 0, sizeof(*ret));
	if (!v->evidence)
		return 0;
	err = servers__new(v, &servers);
	if (err)
		return err;
	note_broken(v->evidence, ret);
	for (size_t i = 0; i < v->evidence->gpu_healths.n; i++)
		note_trouble(ret, &v->evidence->gpu_healths.v[i]);
	drop_short_waits(v->evidence, ret);
	err = note_ranks(v->evidence, servers, ret);
	note_clocks(v, ret);
	if (!err)
		err = note_stops(v, servers, ret);
	servers__free(servers);
	if (err)
		return err;
	if (v->evidence->n_not_kept) {
		n = add(ret, HEALTH_NOT_KEPT, 0, v->t1_ns, v->t1_ns);
		if (n)
			n->n = v->evidence->n_not_kept;
	}
	qsort(ret->v, ret->n, sizeof(*ret->v), by_time);
	return 0;
}
