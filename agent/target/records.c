/* SPDX-License-Identifier: Apache-2.0 */
/* CUPTI's records, checked, their times mapped, as events in the ring. CUPTI's callbacks only move
 * buffers; all else is done on our thread. */
#include <errno.h>
#include <string.h>

#include "target.h"

enum {
	AHEAD_NS = 1000000,	/* a record may be so much younger than our clock */
	MAX_AGE_S = 10,		/* ... and begin so long before its window */
	TELL_CLOCK_NS = 500000000,
	GOOD_PAIR_NS = 500, MAX_PAIR_NS = 50000,
	GRAPH_RECORDS = 64,	/* of a buffer: some tenths of a second of a decoding server */
};

void records__on_request(uint8_t **buf, size_t *size, size_t *max_records)
{
	*buf = buffers__take(&target.buffers);
	*size = BUFFER_BYTES;
	/* As many as fit; but a buffer comes back when it is full, or when a flush finds all
	 * of its work done. Of a device that always has work to do, a buffer of graphs would
	 * come after many seconds. */
	*max_records = __atomic_load_n(&target.level, __ATOMIC_RELAXED) == TL_ORDER_GRAPH ? GRAPH_RECORDS : 0;
}

void records__on_complete(void *context, uint32_t stream, uint8_t *buf, size_t size, size_t valid)
{
	(void)context, (void)stream, (void)size;
	buffers__fill(&target.buffers, buf, valid);
}

/* ---- clocks ---- */

static void tell_clock(const struct clock_pair *p, uint32_t flags)
{
	struct tl_clock e = {
		.hdr = { sizeof(e), TL_CLOCK, flags, target.pid, 0, p->mono_ns },
		.realtime_ns = p->real_ns,
		.err_ns = p->err_ns,
	};

	ring__put(&target.ring, &e);
	target.told_clock_ns = flags ? 0 : p->mono_ns;	/* behind a mark, the next one is told */
}

void records__mark(uint32_t flags)
{
	struct timespec real;
	uint64_t before = now_ns(), width;

	clock_gettime(CLOCK_REALTIME, &real);
	width = now_ns() - before;
	tell_clock(&(struct clock_pair){ before + width / 2, real.tv_sec * 1000000000ull + real.tv_nsec, width / 2 }, flags);
}

int records__read_clock(bool settled)
{
	struct clock_pair best = { .err_ns = UINT64_MAX }, last;
	int tries = settled ? 5 : 100, ret = 0;
	bool stepped;

	guard__enter(&target.guard, "cuptiGetTimestamp", CALL_TIMEOUT_MS);
	for (int i = 0; i < tries && !ret && best.err_ns > GOOD_PAIR_NS / 2; i++) {
		uint64_t before = now_ns(), real_ns = 0, width;

		ret = target.cupti.get_timestamp(&real_ns);
		width = now_ns() - before;
		if (width / 2 < best.err_ns)
			best = (struct clock_pair){ before + width / 2, real_ns, width / 2 };
	}
	ret = target__call("cuptiGetTimestamp", ret);
	if (ret < 0)
		return ret;
	if (target.clocks.n && best.err_ns > MAX_PAIR_NS)
		return 0;	/* we lost the CPU each time: the next one will do */
	last = target.clocks.pairs[(target.clocks.n ? target.clocks.n - 1 : 0) % MAX_PAIRS];
	stepped = clocks__add(&target.clocks, &best);
	target.last_pair_ns = best.mono_ns;
	if (stepped && last.mono_ns != target.told_clock_ns)	/* by how much it was set is told by both */
		tell_clock(&last, 0);
	if (stepped || best.mono_ns - target.told_clock_ns >= TELL_CLOCK_NS)
		tell_clock(&best, 0);
	return 0;
}

/* ---- one record ---- */

static void flush_spans(void)
{
	uint32_t n = target.n_spans;

	target.n_spans = 0;
	if (!n)
		return;
	n = ring__put_many(&target.ring, target.spans, n);
	ring_count(&target.ring.shared->n_records, n);
}

/* Completes and keeps the one that was begun in next_span(), if its times can be true. */
static void put_span(struct tl_gpu_span *s, uint64_t start, uint64_t end, uint64_t now)
{
	struct tl_ring *shared = target.ring.shared;
	bool guess_start, guess_end;
	uint64_t from, to;

	if (end == 0 && target.window.closing) {	/* not done when the window closed */
		ring_count(&shared->n_dropped, 1);
		return;
	}
	to = clocks__map(&target.clocks, end, now + AHEAD_NS, &guess_end);
	from = clocks__map(&target.clocks, start, to + AHEAD_NS, &guess_start);
	target.window.n_records++;
	/* a clock that was set back may have been so while this ran */
	if (start == 0 || (end < start && (!end || target.clocks.n_epochs < 2)) || to < from || to > now + AHEAD_NS ||
	    from + MAX_AGE_S * 1000000000ull < target.window.begin_ns) {
		target.window.n_bad++;
		ring_count(&shared->n_bad, 1);
		return;
	}
	s->hdr = (struct tl_hdr){ sizeof(*s), TL_GPU_SPAN, 0, target.pid, 0, from };
	if (guess_start || guess_end)
		s->hdr.flags = TL_F_GUESS;
	s->end_ns = to;
	if (++target.n_spans == MAX_SPANS)
		flush_spans();
}

static struct tl_gpu_span *next_span(void)
{
	return &target.spans[target.n_spans];
}

/* false: there was no room for it, so nothing may refer to it. */
static bool tell_name(uint32_t id, const char *name)
{
	struct tl_gpu_name e = { .hdr = { sizeof(e), TL_GPU_NAME, 0, target.pid, 0, now_ns() },
				 .id = id };

	memcpy(e.name, target.names.text[id], sizeof(e.name));
	if (strnlen(name, sizeof(e.name)) == sizeof(e.name))
		e.hdr.flags |= TL_F_TRUNC;
	return ring__put(&target.ring, &e);
}

static uint32_t name_id(const char *name)
{
	uint32_t id;
	bool new;

	if (!name)
		return 0;
	id = names__id(&target.names, name, &new);
	if (!new || tell_name(id, name))
		return id;
	names__forget_last(&target.names);
	return 0;
}

static void on_kernel(const struct cupti_kernel *k, uint64_t now)
{
	const struct cupti_kernel_graph *g = (const void *)k;	/* from 11.8 on */
	struct tl_gpu_span *s = next_span();

	*s = (struct tl_gpu_span){
		.corr = k->corr, .device = k->device, .stream = k->stream, .name = name_id(k->name),
		.graph = g->graph, .what = TL_SPAN_KERNEL,
	};
	target.window.n_device++;
	put_span(s, k->start, k->end, now);
}

static void on_graph(const struct cupti_graph_trace *g, uint64_t now)
{
	struct tl_gpu_span *s = next_span();

	*s = (struct tl_gpu_span){
		.corr = g->corr, .device = g->device, .stream = g->stream, .graph = g->graph,
		.what = TL_SPAN_GRAPH,
	};
	target.window.n_device++;
	put_span(s, g->start, g->end, now);
}

static void on_memcpy(const struct cupti_memcpy *m, uint64_t now)
{
	struct tl_gpu_span *s = next_span();

	*s = (struct tl_gpu_span){
		.corr = m->corr, .bytes = m->bytes, .device = m->device, .stream = m->stream,
		.what = TL_SPAN_MEMCPY, .copy = m->copy,
	};
	put_span(s, m->start, m->end, now);
}

static void on_memset(const struct cupti_memset *m, uint64_t now)
{
	struct tl_gpu_span *s = next_span();

	*s = (struct tl_gpu_span){
		.corr = m->corr, .bytes = m->bytes, .device = m->device, .stream = m->stream,
		.what = TL_SPAN_MEMSET,
	};
	put_span(s, m->start, m->end, now);
}

static void on_overhead(const struct cupti_overhead *o, uint64_t now)
{
	struct tl_gpu_span *s = next_span();

	if (!o->start && !o->end)
		return;		/* NVIDIA: "could not be collected" */
	if (o->start && o->start <= o->end)
		ring_count(&target.ring.shared->overhead_ns, o->end - o->start);
	*s = (struct tl_gpu_span){ .what = TL_SPAN_OVERHEAD };
	put_span(s, o->start, o->end, now);
}

/* ---- buffers ---- */

static int walk(uint8_t *buf, size_t valid, uint64_t now)
{
	void *record = NULL;
	int ret;

	names__new_turn(&target.names);
	for (;;) {
		ret = target.cupti.next_record(buf, valid, &record);
		if (ret) {
			flush_spans();
			return ret == CUPTI_LIMIT ? 0 : ret;
		}
		switch (*(const uint32_t *)record) {
		case CUPTI_KERNEL:
			on_kernel(record, now);
			break;
		case CUPTI_GRAPH_TRACE:
			on_graph(record, now);
			break;
		case CUPTI_MEMCPY:
			on_memcpy(record, now);
			break;
		case CUPTI_MEMSET:
			on_memset(record, now);
			break;
		case CUPTI_OVERHEAD:
			on_overhead(record, now);
			break;
		default:	/* not asked for by us */
			break;
		}
	}
}

/* Records that went to the buffer of which nobody reads: as many as kernels would fit into it. */
static void count_discarded(void)
{
	uint64_t bytes = __atomic_load_n(&target.buffers.discarded_bytes, __ATOMIC_RELAXED);
	uint64_t n =
		(bytes - target.window.discarded_bytes) / (sizeof(struct cupti_kernel_graph) + 40);

	if (bytes == target.window.discarded_bytes)
		return;
	target.window.discarded_bytes = bytes;
	ring_count(&target.ring.shared->n_dropped, n ? n : 1);
}

int records__drain(void)
{
	uint64_t now, own;
	size_t valid;
	uint8_t *buf;
	int err;

	count_discarded();
	while ((buf = buffers__next(&target.buffers, &valid))) {
		own = own_time_ns();
		ring__prepare(&target.ring);
		if (now_ns() - target.last_pair_ns > 1000000) {
			err = records__read_clock(target.clocks.n > 0);
			if (err)
				return err;
		}
		guard__enter(&target.guard, "cuptiActivityGetNextRecord", CALL_TIMEOUT_MS);
		now = now_ns();
		err = valid ? walk(buf, valid, now) : 0;
		err = target__call("cuptiActivityGetNextRecord", err);
		buffers__free(&target.buffers, buf);
		if (err == -ECANCELED)
			return err;
		ring_count(&target.ring.shared->record_ns, own_time_ns() - own);
	}
	return 0;
}
