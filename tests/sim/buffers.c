/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated libcupti: activity records, in buffers per thread, given back as CUPTI does it. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cupti.h"
#include "fault.h"

/*
 * A record is written when its work is enqueued, with the times that it will have; a buffer counts as
 * unfinished until the clock has passed the last of them. So nothing has to be done per record later.
 */
enum { OVERHEAD_NS = 2000, OVERHEAD_REQUEST = 7 << 16, OVERHEAD_FLUSH = 1 << 16, WORKER_NS = 2000000 };

struct buffer {
	uint8_t *data;
	size_t bytes, used;
	size_t n, max;		/* records, without CUPTI's own; 0: as many as fit */
	uint64_t last_end_ns;	/* CLOCK_MONOTONIC */
	struct buffer *next;
};
struct thread {			/* that has enqueued something; kept when it is gone, as others walk the list */
	pthread_mutex_t lock;
	struct buffer now;
	struct thread *next;
};

static cupti_request_fn request;
static cupti_complete_fn complete;
static uint8_t enabled[K_MAX];
static struct thread *threads;
static struct buffer *full, **full_end = &full;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;	/* threads, full */
static __thread struct thread *mine;
static uint64_t dropped, session_records;
static int dead, sessions, asked, worker_runs, worker_stop, clock_changes, corrupt_left;
static uint32_t period_ms;
static pthread_t worker;
static uint64_t (*own_clock)(void);
static uint64_t zero_after = UINT64_MAX, fatal_after = UINT64_MAX, overhead_us;
static int corr_fault, whole_buffers;
static int forked;

static void in_child(void)
{
	forked = 1;
}

__attribute__((constructor)) static void load(void)
{
	sim_fault("zero_stamps_after", &zero_after);
	sim_fault("fatal_error", &fatal_after);
	sim_fault("overhead", &overhead_us);
	corr_fault = sim_fault("corr_wrong", NULL);
	whole_buffers = sim_fault("whole_buffers", NULL);
	pthread_atfork(NULL, NULL, in_child);
}

static struct thread *thread__mine(void)
{
	struct thread *t = mine;

	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_lock(&lock);
	t->next = threads;
	threads = t;
	pthread_mutex_unlock(&lock);
	mine = t;
	return t;
}

static uint64_t to_real(uint64_t mono_ns)
{
	const struct sim_driver *d = cupti_driver();

	return d ? d->realtime(mono_ns) : mono_ns;
}

/* ---- giving buffers back ---- */

/* What has not ended by now is given with an end of 0, and not given again. */
static void cut_unfinished(const struct buffer *b, uint64_t now)
{
	uint64_t now_real = to_real(now);
	uint32_t version = cupti_version();

	for (size_t at = 0; at < b->used;) {
		uint32_t kind;
		uint64_t *end;

		memcpy(&kind, b->data + at, 4);
		end = (uint64_t *)(b->data + at + (kind == K_GRAPH_TRACE || kind == K_SYNCHRONIZATION ? 16 :
						   kind == K_OVERHEAD ? 32 : 24));
		if (kind != K_OVERHEAD && *end > now_real)
			*end = 0;
		at += rec_size(kind, version);
	}
}

static void give(struct buffer *b, int forced)
{
	uint64_t now = sim_now();

	if (forced && b->last_end_ns > now)
		cut_unfinished(b, now);
	if (complete)
		complete(NULL, 0, b->data, b->bytes, b->used);
}

static int buffer__put_away(const struct buffer *b)
{
	struct buffer *f = malloc(sizeof(*f));

	if (!f)
		return -1;
	*f = *b;
	f->next = NULL;
	pthread_mutex_lock(&lock);
	*full_end = f;
	full_end = &f->next;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* Full ones that are finished, in their order; all if forced. */
static void give_full(int forced)
{
	struct buffer *b, **at, *ready = NULL, **end = &ready;
	uint64_t now = sim_now();

	pthread_mutex_lock(&lock);
	for (at = &full; (b = *at);) {
		if (!forced && b->last_end_ns > now) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		b->next = NULL;
		*end = b;
		end = &b->next;
	}
	full_end = at;
	pthread_mutex_unlock(&lock);
	while ((b = ready)) {
		ready = b->next;
		give(b, forced);
		free(b);
	}
}

void buffers__flush(int forced)
{
	struct thread *t;

	give_full(forced);
	pthread_mutex_lock(&lock);
	t = threads;
	pthread_mutex_unlock(&lock);
	/* Threads are only added, at the front, and never taken away: the list can be walked. */
	for (; t; t = t->next) {
		struct buffer b = { 0 };

		pthread_mutex_lock(&t->lock);
		if (t->now.data && t->now.used && (forced || t->now.last_end_ns <= sim_now())) {
			b = t->now;
			t->now = (struct buffer){ 0 };
		}
		pthread_mutex_unlock(&t->lock);
		if (b.data)
			give(&b, forced);
	}
}

static void *work(void *unused)
{
	uint64_t next = sim_now();

	while (!__atomic_load_n(&worker_stop, __ATOMIC_ACQUIRE)) {
		sim_sleep_until(sim_now() + WORKER_NS);
		if (period_ms && sim_now() >= next) {
			buffers__flush(0);
			next = sim_now() + period_ms * 1000000ull;
		}
		give_full(0);
	}
	return unused;
}

static void start_worker(void)
{
	pthread_mutex_lock(&lock);
	if (!worker_runs) {
		worker_stop = 0;
		worker_runs = !pthread_create(&worker, NULL, work, NULL);
	}
	pthread_mutex_unlock(&lock);
}

void buffers__stop(void)
{
	int runs;

	memset(enabled, 0, sizeof(enabled));
	cupti_hooks()->works = 0;
	pthread_mutex_lock(&lock);
	runs = worker_runs;
	worker_runs = 0;
	pthread_mutex_unlock(&lock);
	__atomic_store_n(&worker_stop, 1, __ATOMIC_RELEASE);
	if (runs && !pthread_equal(worker, pthread_self()))
		pthread_join(worker, NULL);
	if (complete)
		buffers__flush(1);
}

/* ---- making records ---- */

/* Room for a record in the thread's buffer, which is locked then; NULL: it is dropped. */
static uint8_t *reserve(struct thread *t, size_t bytes, uint64_t end_ns)
{
	struct rec_overhead o = { .kind = K_OVERHEAD, .what = OVERHEAD_REQUEST };
	struct buffer fresh = { 0 };
	size_t max_records = 0, size;
	uint8_t *at;

	pthread_mutex_lock(&t->lock);
	if (t->now.data && (t->now.used + bytes > t->now.bytes || (t->now.max && t->now.n == t->now.max))) {
		if (buffer__put_away(&t->now))
			__atomic_fetch_add(&dropped, 1, __ATOMIC_RELAXED);
		t->now = (struct buffer){ 0 };
	}
	if (!t->now.data) {
		/* Asked for on the application's own thread, as CUPTI does; nothing is locked. */
		pthread_mutex_unlock(&t->lock);
		o.start = to_real(sim_now());
		__atomic_store_n(&asked, 1, __ATOMIC_RELAXED);
		if (request)
			request(&fresh.data, &fresh.bytes, &max_records);
		fresh.max = whole_buffers ? 0 : max_records;
		o.end = o.start + (overhead_us ? overhead_us * 1000 : OVERHEAD_NS);
		if (!fresh.data || fresh.bytes < 1024)
			return NULL;
		pthread_mutex_lock(&t->lock);
		t->now = fresh;
		size = rec_size(K_OVERHEAD, cupti_version());
		if (enabled[K_OVERHEAD]) {
			memcpy(t->now.data, &o, size);
			t->now.used = size;
		}
	}
	at = t->now.data + t->now.used;
	t->now.used += bytes;
	t->now.n++;
	if (t->now.last_end_ns < end_ns)
		t->now.last_end_ns = end_ns;
	return at;
}

union record {
	struct rec_kernel kernel;
	struct rec_memcpy memcpy;
	struct rec_memset memset;
	struct rec_graph graph;
	struct rec_sync sync;
};

static uint32_t kind_of(const struct sim_work *w)
{
	static const uint8_t kinds[] = {
		[SIM_KERNEL] = K_CONCURRENT_KERNEL, [SIM_GRAPH] = K_GRAPH_TRACE, [SIM_MEMCPY] = K_MEMCPY,
		[SIM_MEMSET] = K_MEMSET, [SIM_SYNC] = K_SYNCHRONIZATION,
	};

	/* One record for all of a graph takes the place of those of its nodes. */
	if (w->graph && w->kind != SIM_GRAPH && enabled[K_GRAPH_TRACE])
		return 0;
	return enabled[kinds[w->kind]] ? kinds[w->kind] : 0;
}

static void fill(union record *r, const struct sim_work *w, uint32_t kind, uint64_t start, uint64_t end,
		 uint32_t corr)
{
	switch (kind) {
	case K_CONCURRENT_KERNEL:
		r->kernel = (struct rec_kernel){
			.kind = kind, .start = start, .end = end, .device = w->device,
			.context = w->context, .stream = w->stream, .corr = corr, .name = w->name,
			.grid = { w->grid[0], w->grid[1], w->grid[2] },
			.block = { w->block[0], w->block[1], w->block[2] },
			.shmem_dynamic = w->shmem, .graph = w->graph, .graph_node = w->node,
		};
		break;
	case K_MEMCPY:
		r->memcpy = (struct rec_memcpy){
			.kind = kind, .copy = w->copy, .bytes = w->bytes, .start = start, .end = end,
			.device = w->device, .context = w->context, .stream = w->stream, .corr = corr,
			.graph = w->graph, .graph_node = w->node,
		};
		break;
	case K_MEMSET:
		r->memset = (struct rec_memset){
			.kind = kind, .value = w->value, .bytes = w->bytes, .start = start, .end = end,
			.device = w->device, .context = w->context, .stream = w->stream, .corr = corr,
			.graph = w->graph, .graph_node = w->node,
		};
		break;
	case K_GRAPH_TRACE:
		r->graph = (struct rec_graph){
			.kind = kind, .corr = corr, .start = start, .end = end, .device = w->device,
			.graph = w->graph, .context = w->context, .stream = w->stream,
		};
		break;
	default:
		r->sync = (struct rec_sync){
			.kind = kind, .type = w->sync, .start = start, .end = end, .corr = corr,
			.context = w->context, .stream = w->stream,
		};
	}
}

void buffers__work(const struct sim_work *w)
{
	uint64_t start = to_real(w->start_ns), end = to_real(w->end_ns), n;
	uint32_t kind = kind_of(w), corr = w->corr;
	struct sim_hooks *h = cupti_hooks();
	struct thread *t;
	union record r;
	size_t bytes;
	uint8_t *at;

	if (!kind || dead || forked)
		return;
	t = thread__mine();
	if (!t)
		return;
	n = __atomic_add_fetch(&h->records, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&session_records, 1, __ATOMIC_RELAXED);
	if (own_clock) {
		uint64_t shift = own_clock() - sim_now();

		start = w->start_ns + shift;
		end = w->end_ns + shift;
	}
	if (corrupt_left > 0) {
		corrupt_left--;
		start += 100000000000000;
	}
	if (n > zero_after)
		start = end = 0;
	if (w->graph && sessions > 1 && corr_fault)
		corr = 1;
	bytes = rec_size(kind, cupti_version());
	fill(&r, w, kind, start, end, corr);
	at = reserve(t, bytes, w->end_ns);
	if (!at) {
		__atomic_fetch_add(&dropped, 1, __ATOMIC_RELAXED);
		return;
	}
	memcpy(at, &r, bytes);
	pthread_mutex_unlock(&t->lock);
	if (n == fatal_after)
		cupti_fatal();
}

/* ---- what the API asks for ---- */
int buffers__set_callbacks(cupti_request_fn request_fn, cupti_complete_fn complete_fn)
{
	if (!request_fn || !complete_fn)
		return CUPTI_INVALID_PARAMETER;
	request = request_fn;		/* silently takes another client's place */
	complete = complete_fn;
	return CUPTI_OK;
}

int buffers__enable(uint32_t kind, int on)
{
	uint8_t any = 0;

	if (kind >= K_MAX)
		return CUPTI_INVALID_KIND;
	enabled[kind] = on;
	for (uint32_t i = 0; i < K_MAX; i++)
		any |= enabled[i];
	if (on)
		start_worker();
	cupti_hooks()->works = enabled[K_CONCURRENT_KERNEL] ? SIM_WORKS_KERNELS : any;
	return CUPTI_OK;
}

void buffers__new_session(void)
{
	sessions++;
	session_records = 0;
}

void buffers__end_session(void)
{
	if (!session_records && sim_fault("dead_after_empty", NULL))
		dead = 1;
}

void buffers__flush_period(uint32_t ms)
{
	period_ms = ms;
}

uint64_t buffers__take_dropped(void)
{
	return __atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
}

int buffers__ever_asked(void)
{
	return __atomic_load_n(&asked, __ATOMIC_RELAXED);
}

void buffers__clock(uint64_t (*clock)(void))
{
	own_clock = clock;
	if (++clock_changes > 1 && sim_fault("timestamp_corrupt", NULL))
		corrupt_left = 64;
}
