/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the ring of a target, trusting nothing that is in it, and says what the agent wants. */
#include "source/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "source/gpu_clock.h"
#include "source/gpu_door.h"
#include "source/gpu_other.h"
#include "source/gpu_tids.h"
#include "source/inject.h"
#include "source/now.h"
#include "source/pep768.h"

enum {
	DATA_OFFSET = 4096, DEFAULT_BYTES = 16 << 20,	/* 2 s of 100,000 records/s */
	MAX_EVENT = 512,		/* of what the library writes */
	MAX_EVENTS = 200000,		/* in one call */
	LEAVE_MS = 2000,
	END_MS = 1500, REST_MS = 500,	/* behind the end of a capture */
};

struct gpu {
	pid_t pid;
	int memfd, pidfd;
	struct tl_ring *ring;
	uint32_t data_bytes;	/* of it: what it says itself is not to be trusted */
	uint64_t tail;		/* ours: the one in the ring is for the library to see */
	uint32_t n_orders;
	int64_t ahead_ns;	/* its clock, in a time namespace of its own */
	enum tl_gpu_level level;	/* as ordered */
	enum tl_gpu_level fallback;	/* if there is no library any more */
	bool lowered;		/* ... and that is not told yet */
	uint64_t n_unanswered;	/* because of so many launches; 0: of something else */
	char reason[sizeof(((struct tl_gpu_health *)0)->why)];
	bool broken, leaving, behind;
	uint64_t late_ns;	/* leaving: should have left by then ... */
	uint64_t rest_ns;	/* ... or have given all that it has */
	struct gpu_tids tids;
	struct gpu_counts told;	/* in the last health */
	uint64_t told_ns;
	uint32_t told_state;
	enum tl_gpu_level told_level;
	char why[sizeof(((struct tl_ring *)0)->why) + 1];
};

/* ---- in and out ---- */

/* memfd has its size; its data are zeros. */
static int use_memfd(struct gpu *g, int memfd)
{
	size_t size = DATA_OFFSET + g->data_bytes;

	if (g->ring)		/* of a try before this one */
		munmap(g->ring, size);
	g->ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (g->ring == MAP_FAILED) {
		g->ring = NULL;
		return -errno;
	}
	g->ring->magic = TL_RING_MAGIC;
	g->ring->data_offset = DATA_OFFSET;
	g->ring->data_bytes = g->data_bytes;
	g->ring->heartbeat_ns = monotonic_ns() + g->ahead_ns;
	return 0;
}

static int prepare(void *ctx, int memfd)
{
	struct gpu *g = ctx;

	if (ftruncate(memfd, DATA_OFFSET + g->data_bytes) || fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return -errno;
	return use_memfd(g, memfd);
}

static void gpu__free(struct gpu *g)
{
	if (g->ring)
		munmap(g->ring, DATA_OFFSET + g->data_bytes);
	if (g->memfd >= 0)
		close(g->memfd);
	if (g->pidfd >= 0)
		close(g->pidfd);
	gpu_tids__free(&g->tids);
	free(g);
}

static struct gpu *gpu__new(pid_t pid, uint32_t data_bytes)
{
	struct gpu *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->pid = pid;
	g->data_bytes = data_bytes ? data_bytes : DEFAULT_BYTES;
	g->memfd = -1;
	g->pidfd = syscall(SYS_pidfd_open, pid, 0);
	g->told_ns = monotonic_ns();
	g->ahead_ns = gpu_clock_offset_ns(pid);
	gpu_tids__init(&g->tids, pid);
	return g;
}

int gpu__serve(pid_t pid, int memfd, struct gpu **ret)
{
	struct gpu *g = gpu__new(pid, 0);
	int err;

	if (!g)
		return -ENOMEM;
	err = g->pidfd < 0 ? -ESRCH : prepare(g, memfd);
	if (err) {
		gpu__free(g);
		return err;
	}
	g->memfd = memfd;
	*ret = g;
	return 0;
}

void gpu__beat(struct gpu *g)
{
	__atomic_store_n(&g->ring->heartbeat_ns, monotonic_ns() + g->ahead_ns, __ATOMIC_RELEASE);
}

/* A library that was started with the process waits for us: nobody has to be
 * stopped. -ENOENT: there is none. */
static int come_by_door(struct gpu *g, const struct gpu_attach_opts *opts, char why[256])
{
	int fd = gpu_door_open(g->pid, &g->data_bytes, opts->tick, opts->ctx), err;

	if (fd == -ENOENT)
		return fd;
	g->memfd = fd < 0 ? -1 : fd;
	err = fd < 0 ? fd : use_memfd(g, fd);
	if (!err)
		err = gpu_door_knock(g->ring, opts->tick, opts->ctx);
	if (err == -EBUSY)
		snprintf(why, 256, "the library of process %d serves another agent", g->pid);
	else if (err)
		snprintf(why, 256, "the library that process %d was started with does not answer: %s", g->pid, strerror(-err));
	return err;
}

static int come_by_injection(struct gpu *g, const struct gpu_attach_opts *opts, struct gpu_entry *entry)
{
	const struct inject_opts io = { .library = opts->library, .prepare = prepare, .ctx = g, .tick = opts->tick,
					.tick_ctx = opts->ctx };
	struct inject_result r, second;
	int err = inject(g->pid, &io, &r), other;

	entry->way = GPU_BY_PTRACE;
	snprintf(entry->why, sizeof(entry->why), "%s", r.why);
	/* Nothing was done to it, and what stood against it may not stand against this. */
	if (!r.n_stops && (err == -EBUSY || err == -EAGAIN || err == -EPERM || err == -ENOTSUP)) {
		other = pep768_enter(g->pid, &io, &second);
		if (!other) {
			entry->way = GPU_BY_PYTHON;
			r = second;
		} else if (*second.why) {
			snprintf(entry->why, sizeof(entry->why), "%s, and %.90s", r.why, second.why);
		}
		/* The last two: it may go well later. */
		err = !other || other == -ESRCH || other == -EAGAIN || other == -ETIMEDOUT ? other : err;
	}
	entry->n_stops = r.n_stops;
	entry->stopped_ns = r.stopped_ns;
	entry->longest_ns = r.longest_ns;
	g->memfd = r.memfd;
	return err;
}

/* The library says only that it is at work. */
static void name_other(pid_t pid, const struct gpu_attach_opts *opts, struct gpu_entry *entry)
{
	struct gpu_other other;

	if (!strstr(entry->why, "another agent") ||
	    !gpu_other_agent(pid, opts->tick, opts->ctx, &other))
		return;
	snprintf(entry->holder, sizeof(entry->holder), "%s (pid %d)", other.name, other.pid);
	snprintf(entry->why, sizeof(entry->why), "%s is already attached to process %d",
		 entry->holder, pid);
}

int gpu__attach(pid_t pid, const struct gpu_attach_opts *opts, struct gpu **ret, struct gpu_entry *ret_entry)
{
	struct gpu *g = gpu__new(pid, opts->ring_bytes);
	int err;

	*ret_entry = (struct gpu_entry){ .why = "this agent is out of memory" };
	if (!g)
		return -ENOMEM;
	*ret_entry->why = 0;
	err = come_by_door(g, opts, ret_entry->why);
	if (err == -ENOENT)
		err = come_by_injection(g, opts, ret_entry);
	if (err == -EBUSY)
		name_other(pid, opts, ret_entry);
	if (err) {
		gpu__free(g);
		return err;
	}
	*ret = g;
	return 0;
}

static void order(struct gpu *g, uint32_t what)
{
	__atomic_store_n(&g->ring->order, what | ++g->n_orders << 8, __ATOMIC_RELEASE);
}

void gpu__order(struct gpu *g, enum tl_gpu_level level, uint32_t max_window_ms)
{
	uint32_t what = level == TL_GPU_KERNELS ? TL_ORDER_KERNELS : level == TL_GPU_GRAPH ? TL_ORDER_GRAPH :
			TL_ORDER_IDLE;

	g->level = level;
	g->ring->max_window_ms = max_window_ms;
	g->ring->max_records = level == TL_GPU_GRAPH ? UINT32_MAX : 0;
	order(g, what);
}

void gpu__pause(struct gpu *g)
{
	order(g, TL_ORDER_IDLE);
}

void gpu__lower(struct gpu *g, enum tl_gpu_level level, const char *why)
{
	g->level = level;
	snprintf(g->reason, sizeof(g->reason), "%s", why);
	g->lowered = true;
	gpu__pause(g);
}

void gpu__break(struct gpu *g, enum tl_gpu_level level, uint64_t n_launches, const char *why)
{
	gpu__lower(g, level, why);
	g->n_unanswered = n_launches;
}

void gpu__falls_to(struct gpu *g, enum tl_gpu_level level)
{
	g->fallback = level;
	if (g->told_level == TL_GPU_OFF)
		g->told_level = level;
	if (g->level == TL_GPU_OFF)	/* nothing is ordered yet: it is no step down */
		g->level = level;
}

void gpu__let_go(struct gpu *g, uint64_t end_ns)
{
	uint64_t late_ns = end_ns ? end_ns + END_MS * NS_PER_MS :
		monotonic_ns() + LEAVE_MS * NS_PER_MS;

	if (!g->leaving)
		order(g, TL_ORDER_LEAVE);
	if (!g->leaving || late_ns < g->late_ns)
		g->late_ns = late_ns;
	g->rest_ns = end_ns ? end_ns + REST_MS * NS_PER_MS : g->late_ns;
	g->leaving = true;
}

bool gpu__is_late(const struct gpu *g, uint64_t now_ns)
{
	return g->leaving && now_ns > g->late_ns;
}

enum tl_ring_state gpu__state(const struct gpu *g)
{
	return __atomic_load_n(&g->ring->state, __ATOMIC_ACQUIRE);
}

const char *gpu__why(struct gpu *g)
{
	memcpy(g->why, g->ring->why, sizeof(g->ring->why));
	return g->why;
}

/* Before its first window it has nothing, and behind its last one. */
static bool gives_no_more(uint32_t state)
{
	return state == TL_RING_STARTING || state == TL_RING_LEAVING;
}

const char *gpu__rest(struct gpu *g, char ret[64])
{
	static const char waiting[] = "waiting for ";
	const char *why = gpu__why(g);
	bool named = !strncmp(why, waiting, sizeof(waiting) - 1);

	if (!gives_no_more(gpu__state(g)))
		return NULL;
	snprintf(ret, 64, "%s", named ? why + sizeof(waiting) - 1 : "");
	ret[strcspn(ret, ":")] = 0;
	return ret;
}

/* ---- events ---- */

static bool is_known(const struct tl_hdr *h)
{
	switch (h->kind) {
	case TL_GPU_LAUNCH: return h->size >= sizeof(struct tl_gpu_launch);
	case TL_GPU_SPAN: return h->size >= sizeof(struct tl_gpu_span);
	case TL_GPU_NAME: return h->size >= sizeof(struct tl_gpu_name);
	case TL_CLOCK: return h->size >= sizeof(struct tl_clock);
	default: return false;
	}
}

/* Whoever takes events takes a while: the time now is asked for only where it matters. */
static bool is_to_come(uint64_t ts_ns, uint64_t now_ns)
{
	return ts_ns > now_ns + NS_PER_S && ts_ns > monotonic_ns() + NS_PER_S;
}

/* The target can write what it likes, at any time: an event is copied, then looked at. */
static int take(struct gpu *g, uint64_t now_ns, gpu_event_fn fn, void *ctx)
{
	union { struct tl_hdr hdr; struct tl_gpu_name name; struct tl_gpu_span span; char bytes[MAX_EVENT]; } ev;
	char *data = (char *)g->ring + DATA_OFFSET, *at = data + (g->tail & (g->data_bytes - 1));
	uint64_t word = __atomic_load_n((uint64_t *)(void *)at, __ATOMIC_ACQUIRE);
	uint32_t size = word & 0xffff, to_end = data + g->data_bytes - at;
	uint16_t kind = word >> 16 & 0xffff;
	bool tell;

	if (!size)
		return 0;
	if (size % 8 || size > to_end || (kind != TL_NONE && (size < sizeof(ev.hdr) || size > MAX_EVENT)))
		return -EPROTO;
	tell = kind != TL_NONE;
	if (tell) {
		memcpy(&ev, at, size);
		memcpy(&ev, &word, sizeof(word));
		ev.hdr.tgid = g->pid;
		ev.hdr.ts_ns -= g->ahead_ns;
		if (ev.hdr.tid)
			ev.hdr.tid = gpu_tids__ours(&g->tids, ev.hdr.tid, now_ns);
		tell = is_known(&ev.hdr);
		if (tell && kind == TL_GPU_SPAN)
			ev.span.end_ns -= g->ahead_ns;
		if (tell && kind == TL_GPU_NAME)
			ev.name.name[sizeof(ev.name.name) - 1] = 0;
		if (is_to_come(ev.hdr.ts_ns, now_ns) || (tell && kind == TL_GPU_SPAN && is_to_come(ev.span.end_ns, now_ns)))
			return -EPROTO;
	}
	memset(at, 0, size);
	g->tail += size;
	__atomic_store_n(&g->ring->tail, g->tail, __ATOMIC_RELEASE);
	if (tell)
		fn(ctx, &ev.hdr);
	return 1;
}

/* ---- health ---- */

struct gpu_counts gpu__counts(const struct gpu *g)
{
	const struct tl_ring *r = g->ring;

	return (struct gpu_counts){
		r->n_launches, r->n_records, r->n_bad, r->n_dropped + r->n_cupti_dropped,
		r->callback_ns + r->record_ns + r->overhead_ns,
	};
}

static uint64_t since(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/* The library says it in words, which begin so. */
static uint16_t trouble_of(uint32_t state, const char *why, char holder[32])
{
	static const char held[] = "CUPTI is held by another tool";

	if (state != TL_RING_REFUSED)
		return TL_GPU_FINE;
	if (!strncmp(why, held, sizeof(held) - 1)) {
		why += sizeof(held) - 1;
		strncpy(holder, strncmp(why, ": ", 2) ? "" : why + 2, 31);
		return TL_GPU_BUSY;
	}
	if (strstr(why, "impossible times"))
		return TL_GPU_BAD_STAMPS;
	return strstr(why, "collection is dead") ? TL_GPU_BROKEN : TL_GPU_FINE;
}

enum tl_gpu_trouble gpu__trouble(struct gpu *g)
{
	char holder[32] = "";

	return trouble_of(gpu__state(g), gpu__why(g), holder);
}

/* Its words may also be on what went well. */
static bool stands_against(uint32_t state, const char *why)
{
	static const char no_cuda[] = "CUDA is not in use";

	return state == TL_RING_REFUSED || state == TL_RING_STARTING ||
	       (state == TL_RING_IDLE && !strncmp(why, no_cuda, sizeof(no_cuda) - 1));
}

static void tell_health(struct gpu *g, uint64_t now_ns, gpu_event_fn fn, void *ctx)
{
	struct gpu_counts c = gpu__counts(g), *t = &g->told;
	uint32_t state = gpu__state(g);
	uint64_t span_ns = since(now_ns, g->told_ns), own_ns = since(c.own_ns, t->own_ns);
	bool gone = (state == TL_RING_REFUSED || state == TL_RING_LEFT || g->broken) && !g->leaving;
	enum tl_gpu_level to = gone && g->level > g->fallback ? g->fallback : g->level;
	struct tl_gpu_health h = {
		.hdr = { sizeof(h), TL_GPU_HEALTH, g->ring->simulated ? TL_GPU_SIMULATED : 0, g->pid, 0, now_ns },
		.since_ns = g->told_ns < now_ns ? g->told_ns : now_ns, .launches = since(c.launches, t->launches),
		.records = since(c.records, t->records), .bad_records = since(c.bad, t->bad),
		.dropped = since(c.dropped, t->dropped), .level = g->told_level, .to_level = to,
	};

	if (span_ns && own_ns < span_ns)
		h.overhead_ppm = own_ns * 1000 / (span_ns / 1000 + 1);
	else if (span_ns)
		h.overhead_ppm = 1000000;
	h.trouble = trouble_of(state, gpu__why(g), h.holder);
	if (stands_against(state, g->why))
		snprintf(h.why, sizeof(h.why), "%s", g->why);
	if (g->lowered && !*h.why)
		memcpy(h.why, g->reason, sizeof(h.why));
	if (g->n_unanswered) {
		h.trouble = TL_GPU_BROKEN;
		h.launches += g->n_unanswered;
	}
	g->lowered = false;
	g->n_unanswered = 0;
	*t = c;
	g->told_ns = now_ns;
	g->told_state = state;
	g->told_level = g->level = to;
	fn(ctx, &h.hdr);
}

int gpu__poll(struct gpu *g, uint64_t now_ns, gpu_event_fn fn, void *ctx)
{
	uint64_t head = __atomic_load_n(&g->ring->head, __ATOMIC_ACQUIRE);
	struct pollfd p = { g->pidfd, POLLIN, 0 };
	struct gpu_counts c;
	int n = 0, got = 1;

	__atomic_store_n(&g->ring->heartbeat_ns, now_ns + g->ahead_ns, __ATOMIC_RELEASE);
	while (!g->broken && n < MAX_EVENTS && (got = take(g, now_ns, fn, ctx)) > 0)
		n++;
	g->broken |= got < 0;
	g->behind = !g->broken && (int64_t)(head - g->tail) > 0;
	if (gpu__state(g) != g->told_state || g->level != g->told_level || g->lowered ||
	    since(now_ns, g->told_ns) >= NS_PER_S) {
		tell_health(g, now_ns, fn, ctx);
		n++;
	}
	if (g->broken)
		return -EPROTO;
	if (n || poll(&p, 1, 0) <= 0)
		return n;
	c = gpu__counts(g);
	if (c.records != g->told.records || c.launches != g->told.launches)	/* its last ones */
		tell_health(g, now_ns, fn, ctx);
	return -ESRCH;
}

bool gpu__is_behind(const struct gpu *g)
{
	return g->behind;
}

int gpu__wait_left(struct gpu *g, gpu_event_fn fn, void *ctx)
{
	int n;

	if (!g->leaving)
		gpu__let_go(g, 0);
	for (;;) {
		enum tl_ring_state state = gpu__state(g);
		uint64_t now_ns;

		n = gpu__poll(g, monotonic_ns(), fn, ctx);
		if (n == -ESRCH)
			return n;
		if (n <= 0 && (state == TL_RING_LEFT || state == TL_RING_REFUSED))
			return 0;
		now_ns = monotonic_ns();
		if (n <= 0 && gives_no_more(state) && now_ns > g->rest_ns)
			return -EINPROGRESS;
		if (gpu__is_late(g, now_ns))
			return -ETIMEDOUT;
		if (n <= 0)
			nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
	}
}

int gpu__leave(struct gpu *g, gpu_event_fn fn, void *ctx)
{
	int err;

	if (!g)
		return 0;
	err = gpu__wait_left(g, fn, ctx);
	gpu__free(g);
	return err;
}

void gpu__abandon(struct gpu *g, gpu_event_fn fn, void *ctx)
{
	uint64_t now_ns = monotonic_ns();

	for (int n = 0; n < MAX_EVENTS && !g->broken && take(g, now_ns, fn, ctx) > 0;)
		n++;
	g->broken = true;
	tell_health(g, now_ns, fn, ctx);
	gpu__free(g);
}
