/* SPDX-License-Identifier: Apache-2.0 */
/* Ties what ran on a device to the call that launched it. */
#include "model/gpu_priv.h"

#include <errno.h>

enum {
	SLACK_NS = 20000,	/* clocks of devices are mapped with an error */
	DOUBLE_NS = 100000,	/* a callback comes so soon behind a probe whose return was not seen */
	LATENCY_NS = 200000,	/* an idle device begins within this time of a launch */
	MAX_STREAMS = 64, MAX_AHEAD = 64,
	RECENT = 64,		/* threads that launch, one slot each by their number */
};

static int by_launch_time(const void *pa, const void *pb)
{
	const struct gpu_launch *a = pa, *b = pb;

	if (a->ts_ns != b->ts_ns)
		return a->ts_ns < b->ts_ns ? -1 : 1;
	return a->corr < b->corr ? -1 : a->corr > b->corr;
}

static int by_span_time(const void *pa, const void *pb)
{
	const struct gpu_span *a = pa, *b = pb;

	if (a->t0_ns != b->t0_ns)
		return a->t0_ns < b->t0_ns ? -1 : 1;
	if (a->t1_ns != b->t1_ns)
		return a->t1_ns < b->t1_ns ? -1 : 1;
	return a->corr < b->corr ? -1 : a->corr > b->corr;
}

/* ---- one call, told by a probe and by a callback inside it ---- */

struct recent {			/* of one thread and kind of call, index + 1 */
	uint32_t probe[8], callback[8];
};

/* Numbers of threads may be those of different namespaces: then they say nothing. */
static bool threads_agree(const struct gpu_process *p)
{
	uint32_t tids[RECENT] = { 0 };
	bool any = false;

	for (size_t i = 0; i < p->launches.n; i++)
		if (!p->launches.v[i].corr)
			tids[p->launches.v[i].tid % RECENT] = p->launches.v[i].tid;
	for (size_t i = 0; i < p->launches.n; i++) {
		const struct gpu_launch *l = &p->launches.v[i];

		if (l->corr && tids[l->tid % RECENT] == l->tid)
			return true;
		any |= l->corr != 0;
	}
	return !any;
}

static bool is_inside(const struct gpu_launch *probe, const struct gpu_launch *call)
{
	uint64_t end = probe->ts_ns + (probe->dur_ns ? probe->dur_ns : DOUBLE_NS);

	return call->ts_ns + SLACK_NS / 4 >= probe->ts_ns && call->ts_ns <= end;
}

static bool merge(struct gpu_launch *probe, struct gpu_launch *call)
{
	if (probe->flags & GPU_L_DOUBLE || !is_inside(probe, call))
		return false;
	probe->flags |= GPU_L_DOUBLE;
	call->flags |= probe->flags & GPU_L_DTOH;
	call->what = call->what ? call->what : probe->what;
	call->stream = call->stream ? call->stream : probe->stream;
	return true;
}

/* Of launches that a probe counted, those that a callback tells, too, count once. */
static void take_out(struct gpu_launch *counted, const struct gpu_launch *call)
{
	if (call->ts_ns > counted->ts_ns + counted->dur_ns + SLACK_NS || counted->flags & GPU_L_DOUBLE)
		return;
	if (--counted->n == 0)
		counted->flags |= GPU_L_DOUBLE;
}

static void drop_doubles(struct gpu_process *p, struct gpu_counts *c)
{
	struct recent recent[RECENT] = { 0 };
	bool by_tid = threads_agree(p);
	size_t out = 0;

	for (uint32_t i = 0; i < p->launches.n; i++) {
		struct gpu_launch *l = &p->launches.v[i];
		struct recent *r = &recent[by_tid ? l->tid % RECENT : 0];
		uint32_t *other = l->corr ? &r->probe[l->call % 8] : &r->callback[l->call % 8];
		struct gpu_launch *o = *other ? &p->launches.v[*other - 1] : NULL;

		if (l->corr && o && o->many)
			take_out(o, l);
		else if (o && o->call == l->call && (l->corr ? merge(o, l) : merge(l, o)))
			*other = 0;
		*(l->corr ? &r->callback[l->call % 8] : &r->probe[l->call % 8]) = i + 1;
	}
	for (size_t i = 0; i < p->launches.n; i++)
		if (!(p->launches.v[i].flags & GPU_L_DOUBLE))
			p->launches.v[out++] = p->launches.v[i];
	c->doubles += p->launches.n - out;
	p->launches.n = out;
}

/* ---- by id ---- */

static int by_corr(const void *pa, const void *pb)
{
	const struct gpu_id *a = pa, *b = pb;

	if (a->corr != b->corr)
		return a->corr < b->corr ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

bool gpu_call_fits(uint8_t call, const struct gpu_span *s)
{
	if (s->graph || s->what == TL_SPAN_GRAPH)
		return call == TL_CALL_GRAPH;
	switch (s->what) {
	case TL_SPAN_KERNEL:
		return call == TL_CALL_KERNEL;
	case TL_SPAN_MEMCPY:
		return call == TL_CALL_COPY;
	default:
		return true;
	}
}

static bool fits(const struct gpu_launch *l, const struct gpu_span *s)
{
	return l->ts_ns <= s->t0_ns + SLACK_NS && gpu_call_fits(l->call, s);
}

static void tie(struct gpu_process *p, struct gpu_span *s, uint32_t launch, struct gpu_counts *c)
{
	struct gpu_launch *l = &p->launches.v[launch];

	s->at = launch + 1;
	l->flags |= GPU_L_JOINED;
	if (s->what == TL_SPAN_MEMCPY && s->copy == 2 && l->call == TL_CALL_COPY)
		l->flags |= GPU_L_DTOH;
	c->spans_joined++;
}

/* Ids are in the order of launches, so of their times. */
uint32_t gpu_launch_of(const struct gpu_process *p, const struct gpu_ids *ids, uint32_t corr, uint64_t t_ns)
{
	size_t lo = 0, hi = ids->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct gpu_id *id = &ids->v[mid];

		if (id->corr < corr || (id->corr == corr && p->launches.v[id->at].ts_ns <= t_ns))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && ids->v[lo - 1].corr == corr ? ids->v[lo - 1].at : UINT32_MAX;
}

static int find_ids(const struct gpu_process *p, struct gpu_ids *ret)
{
	struct gpu_id *ids = malloc((p->launches.n + 1) * sizeof(*ids));
	size_t n = 0;

	if (!ids)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->launches.n; i++)
		if (p->launches.v[i].corr)
			ids[n++] = (struct gpu_id){ p->launches.v[i].corr, i };
	qsort(ids, n, sizeof(*ids), by_corr);
	*ret = (struct gpu_ids){ ids, n };
	return 0;
}

static void join_by_id(struct gpu_process *p, const struct gpu_ids *ids, struct gpu_counts *c)
{
	for (size_t i = 0; i < p->spans.n; i++) {
		struct gpu_span *s = &p->spans.v[i];
		const struct gpu_span *before = i ? s - 1 : NULL;
		uint32_t at = UINT32_MAX;

		/* the kernels of one graph have one id */
		if (before && before->at && before->corr == s->corr && before->graph == s->graph && s->graph)
			at = before->at - 1;
		else if (s->corr)
			at = gpu_launch_of(p, ids, s->corr, s->t0_ns + SLACK_NS);
		if (at != UINT32_MAX && fits(&p->launches.v[at], s))
			tie(p, s, at, c);
	}
}

/* ---- by order: streams are FIFO ---- */

struct stream {			/* CUPTI's number of it, and the driver's handle */
	uint32_t number;
	uint64_t handle;
	uint32_t n;		/* pairs that say so */
};

static struct stream *stream_of(struct stream *v, size_t *n, uint32_t number)
{
	for (size_t i = 0; i < *n; i++)
		if (v[i].number == number)
			return &v[i];
	if (*n == MAX_STREAMS)
		return NULL;
	v[*n] = (struct stream){ .number = number };
	return &v[(*n)++];
}

/* Which handle a stream has: as most of its joined spans say; else the only one that launches. */
static size_t find_streams(const struct gpu_process *p, struct stream *v)
{
	uint64_t only = 0;
	bool any = false, several = false;
	size_t n = 0;

	for (size_t i = 0; i < p->launches.n; i++) {
		const struct gpu_launch *l = &p->launches.v[i];

		if (l->call != TL_CALL_KERNEL && l->call != TL_CALL_GRAPH)
			continue;
		several |= any && l->stream != only;
		only = l->stream;
		any = true;
	}
	for (size_t i = 0; i < p->spans.n; i++) {
		struct stream *s = stream_of(v, &n, p->spans.v[i].stream);
		uint32_t at = p->spans.v[i].at;
		uint64_t handle = at ? p->launches.v[at - 1].stream : 0;

		if (!s || !at)
			continue;
		if (!s->n)
			s->handle = handle;
		s->n += s->handle == handle ? 1 : -1;
	}
	for (size_t i = 0; i < n; i++)
		if (!v[i].n && !several) {
			v[i].handle = only;
			v[i].n = 1;
		}
	return n;
}

static bool same_item(const struct gpu_span *a, const struct gpu_span *b)
{
	return b->graph && a->graph == b->graph && a->corr == b->corr && a->what == b->what;
}

/* ---- launches of a stream that have no span yet ---- */

struct queue {			/* launches that a span could be of, stream after stream, as they came */
	uint32_t *launch;	/* indices */
	uint32_t *next;		/* per place: the first place from here on that is free, as far as that is known */
	size_t n;
};

static int by_stream(const void *pa, const void *pb, void *ctx)
{
	const struct gpu_process *p = ctx;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
	uint64_t sa = p->launches.v[a].stream, sb = p->launches.v[b].stream;

	if (sa != sb)
		return sa < sb ? -1 : 1;
	return a < b ? -1 : a > b;
}

static int queue_init(struct queue *q, struct gpu_process *p)
{
	q->launch = malloc((p->launches.n + 1) * sizeof(*q->launch));
	q->next = malloc((p->launches.n + 1) * sizeof(*q->next));
	if (!q->launch || !q->next)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->launches.n; i++) {
		uint8_t call = p->launches.v[i].call;

		if (call == TL_CALL_KERNEL || call == TL_CALL_GRAPH || call == TL_CALL_COPY)
			q->launch[q->n++] = i;
	}
	qsort_r(q->launch, q->n, sizeof(*q->launch), by_stream, p);
	for (uint32_t i = 0; i <= q->n; i++)
		q->next[i] = i;
	return 0;
}

static void queue_free(struct queue *q)
{
	free(q->launch);
	free(q->next);
}

/* The first place of a stream whose launch is `from` or behind it. */
static uint32_t queue_from(const struct queue *q, const struct gpu_process *p, uint64_t stream, uint32_t from)
{
	uint32_t lo = 0, hi = q->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct gpu_launch *l = &p->launches.v[q->launch[mid]];

		if (l->stream < stream || (l->stream == stream && q->launch[mid] < from))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The first place from here on whose launch has no span. What is joined stays so: who comes this way again, jumps. */
static uint32_t queue_free_from(struct queue *q, const struct gpu_process *p, uint32_t place)
{
	uint32_t at = place;

	while (at < q->n && p->launches.v[q->launch[at]].flags & GPU_L_JOINED)
		at = q->next[at] > at ? q->next[at] : at + 1;
	while (place < at) {
		uint32_t then = q->next[place] > place ? q->next[place] : place + 1;

		q->next[place] = at;
		place = then;
	}
	return at;
}

/* The next launch of the stream that fits; those that it passes have no record. UINT32_MAX: none. */
static uint32_t next_fit(const struct gpu_process *p, struct queue *q, const struct stream *st, const struct gpu_span *s,
			 uint32_t from, uint64_t idle_since_ns)
{
	uint32_t found = UINT32_MAX, place = queue_from(q, p, st->handle, from);

	for (int seen = 0; seen < MAX_AHEAD; seen++, place++) {
		const struct gpu_launch *l;

		place = queue_free_from(q, p, place);
		if (place == q->n)
			break;
		l = &p->launches.v[q->launch[place]];
		if (l->stream != st->handle || l->ts_ns > s->t0_ns + SLACK_NS)
			break;
		if (!fits(l, s))
			continue;
		/* a launch on an idle stream runs at once: an older one that waits still has no record */
		if (found == UINT32_MAX || l->ts_ns > idle_since_ns + LATENCY_NS)
			found = q->launch[place];
		else
			break;
	}
	return found;
}

static void join_stream(struct gpu_process *p, struct queue *q, const struct stream *st, struct gpu_counts *c)
{
	const struct gpu_span *last = NULL;
	uint64_t idle_since_ns = 0;
	uint32_t at = 0, item = UINT32_MAX;

	for (size_t i = 0; i < p->spans.n; i++) {
		struct gpu_span *s = &p->spans.v[i];

		if (s->stream != st->number)
			continue;
		if (s->at) {
			at = s->at > at ? s->at : at;	/* FIFO: nothing before it any more */
		} else if (last && item != UINT32_MAX && same_item(last, s)) {
			tie(p, s, item, c);
			c->by_order++;
		} else {
			item = next_fit(p, q, st, s, at, idle_since_ns);
			if (item != UINT32_MAX) {
				tie(p, s, item, c);
				c->by_order++;
				at = item + 1;
			}
		}
		idle_since_ns = s->t1_ns > idle_since_ns ? s->t1_ns : idle_since_ns;
		last = s;
	}
}

static int join_by_order(struct gpu_process *p, struct gpu_counts *c)
{
	struct stream streams[MAX_STREAMS];
	struct queue q = { 0 };
	size_t n, loose = 0;
	int err;

	for (size_t i = 0; i < p->spans.n; i++)
		loose += !p->spans.v[i].at;
	if (!loose || !p->launches.n)
		return 0;
	n = find_streams(p, streams);
	err = queue_init(&q, p);
	for (size_t i = 0; i < n && !err; i++)
		if (streams[i].n)
			join_stream(p, &q, &streams[i], c);
	queue_free(&q);
	return err;
}

int gpu_join(struct gpu_process *p, const struct evidence *ev, const struct gpu_clocks *clocks, struct gpu_counts *c)
{
	struct gpu_ids ids;
	int err;

	if (p->launches.n)
		qsort(p->launches.v, p->launches.n, sizeof(*p->launches.v), by_launch_time);
	drop_doubles(p, c);
	err = find_ids(p, &ids);
	if (err)
		return err;
	err = gpu_settle_times(p, &ids, ev, clocks);
	if (p->spans.n)
		qsort(p->spans.v, p->spans.n, sizeof(*p->spans.v), by_span_time);
	for (size_t i = 0; i < p->launches.n; i++) {
		p->outside |= !p->launches.v[i].corr;
		p->outside_kernels |= !p->launches.v[i].corr && p->launches.v[i].call == TL_CALL_KERNEL;
		p->outside_copies |= !p->launches.v[i].corr && p->launches.v[i].call == TL_CALL_COPY &&
				     !(p->launches.v[i].flags & GPU_L_DTOH);
		if (p->launches.v[i].call <= TL_CALL_GRAPH)
			c->launches += p->launches.v[i].n;
	}
	c->spans += p->spans.n;
	join_by_id(p, &ids, c);
	free(ids.v);
	return err ? err : join_by_order(p, c);
}
