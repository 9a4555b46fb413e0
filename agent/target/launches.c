/* SPDX-License-Identifier: Apache-2.0 */
/* CUPTI's callbacks around launches, on threads of the target: no lock, no allocation, no call of
 * CUDA. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "target.h"

enum { TID_KEPT_NS = 10000000, SAMPLE_EVERY = 64, MAX_CBID = 1024, NO = 0xff /* nowhere */ };

/* Which calls, and where in their arguments is what we tell. Numbers of calls are only appended by
 * NVIDIA; one that a CUPTI does not know is refused by it, and not missed. */
static const struct call_row {
	uint16_t cbid;
	uint8_t domain, call, level;	/* level: from which on it is asked for */
	uint8_t what_at, stream_at, bytes_at;
	bool config;		/* the stream is in the struct that the first argument points to */
} calls[] = {
	/* LaunchKernel */
	{ 307, CUPTI_DRIVER, TL_CALL_KERNEL, TL_ORDER_KERNELS, 0, 40, NO, false },
	{ 442, CUPTI_DRIVER, TL_CALL_KERNEL, TL_ORDER_KERNELS, 0, 40, NO, false },	/* _ptsz */
	{ 652, CUPTI_DRIVER, TL_CALL_KERNEL, TL_ORDER_KERNELS, 8, 32, NO, true },	/* ... Ex */
	{ 653, CUPTI_DRIVER, TL_CALL_KERNEL, TL_ORDER_KERNELS, 8, 32, NO, true },
	{ 477, CUPTI_DRIVER, TL_CALL_KERNEL, TL_ORDER_KERNELS, 0, 40, NO, false }, /* cooperative */
	{ 478, CUPTI_DRIVER, TL_CALL_KERNEL, TL_ORDER_KERNELS, 0, 40, NO, false },
	{ 514, CUPTI_DRIVER, TL_CALL_GRAPH, TL_ORDER_GRAPH, 0, 8, NO, false },	/* cuGraphLaunch */
	{ 515, CUPTI_DRIVER, TL_CALL_GRAPH, TL_ORDER_GRAPH, 0, 8, NO, false },
	{ 277, CUPTI_DRIVER, TL_CALL_COPY, TL_ORDER_GRAPH, NO, 24, 16, false },	/* HtoD */
	{ 421, CUPTI_DRIVER, TL_CALL_COPY, TL_ORDER_GRAPH, NO, 24, 16, false },
	{ 279, CUPTI_DRIVER, TL_CALL_COPY, TL_ORDER_GRAPH, NO, 24, 16, false },	/* DtoH */
	{ 422, CUPTI_DRIVER, TL_CALL_COPY, TL_ORDER_GRAPH, NO, 24, 16, false },
	/* What is launched while a stream is captured runs later, or never: such a window proves
	 * nothing. */
	{ 539, CUPTI_DRIVER, 0, TL_ORDER_KERNELS, NO, NO, NO, false },	/* cuStreamBeginCapture */
	{ 540, CUPTI_DRIVER, 0, TL_ORDER_KERNELS, NO, NO, NO, false },
	/* The runtime's own: most nest a call of the driver, with the same correlation id, which
	 * comes first. */
	{ 211, CUPTI_RUNTIME, TL_CALL_KERNEL, TL_ORDER_KERNELS, NO, 48, NO, false },
	{ 214, CUPTI_RUNTIME, TL_CALL_KERNEL, TL_ORDER_KERNELS, NO, 48, NO, false },
	{ 430, CUPTI_RUNTIME, TL_CALL_KERNEL, TL_ORDER_KERNELS, NO, 32, NO, true },
	{ 431, CUPTI_RUNTIME, TL_CALL_KERNEL, TL_ORDER_KERNELS, NO, 32, NO, true },
	{ 311, CUPTI_RUNTIME, TL_CALL_GRAPH, TL_ORDER_GRAPH, 0, 8, NO, false },
	{ 312, CUPTI_RUNTIME, TL_CALL_GRAPH, TL_ORDER_GRAPH, 0, 8, NO, false },
};
enum { N_CALLS = sizeof(calls) / sizeof(calls[0]) };

static uint8_t row_of[2][MAX_CBID];	/* by domain and number: row + 1 */

static uint64_t word_at(const void *base, uint8_t at)
{
	uint64_t v;

	if (at == NO || !base)
		return 0;
	memcpy(&v, (const char *)base + at, sizeof(v));
	return v;
}

/* gettid() is a system call. A thread's address can be taken by another one later, so it is asked
 * again. */
static uint32_t tid_of(struct shard *s, uint64_t thread, uint64_t now)
{
	uint32_t tid;

	if (__atomic_load_n(&s->thread, __ATOMIC_ACQUIRE) == thread &&
	    now - __atomic_load_n(&s->tid_ns, __ATOMIC_RELAXED) < TID_KEPT_NS) {
		tid = __atomic_load_n(&s->tid, __ATOMIC_ACQUIRE);
		if (__atomic_load_n(&s->thread, __ATOMIC_ACQUIRE) == thread)
			return tid;
	}
	tid = syscall(SYS_gettid);
	__atomic_store_n(&s->thread, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&s->tid, tid, __ATOMIC_RELEASE);
	__atomic_store_n(&s->tid_ns, now, __ATOMIC_RELAXED);
	__atomic_store_n(&s->thread, thread, __ATOMIC_RELEASE);
	return tid;
}

static void tell(const struct call_row *row, const struct cupti_call *c, struct shard *s,
		 uint64_t thread)
{
	uint64_t now = now_ns(), began = c->data ? *c->data : 0;
	const void *stream_in = c->params;
	struct tl_gpu_launch e;

	if (began - 1 >= now || now - began > 600000000000ull)
		began = now;	/* it was entered before we listened */
	if (row->config && c->params)
		memcpy(&stream_in, c->params, sizeof(stream_in));
	e = (struct tl_gpu_launch){
		.hdr = { sizeof(e), TL_GPU_LAUNCH, 0, target.pid, tid_of(s, thread, now), began },
		.dur_ns = now - began,
		.corr = c->corr,
		.stream = word_at(stream_in, row->stream_at),
		.what = word_at(c->params, row->what_at),
		.bytes = word_at(c->params, row->bytes_at),
		.n = 1,
		.call = row->call,
	};
	ring__put(&target.ring, &e);
	if (row->call == TL_CALL_GRAPH && !__atomic_load_n(&target.any_graphs, __ATOMIC_RELAXED))
		__atomic_store_n(&target.any_graphs, 1, __ATOMIC_RELAXED);
	if (row->call == TL_CALL_GRAPH || row->call == TL_CALL_KERNEL)
		__atomic_fetch_add(&s->n_work, 1, __ATOMIC_RELAXED);
	if (__atomic_fetch_add(&s->n_calls, 1, __ATOMIC_RELAXED) % SAMPLE_EVERY == 0)
		ring_count(&target.ring.shared->callback_ns, (now_ns() - now) * SAMPLE_EVERY);
}

/* At the end of a call of CUDA, where NVIDIA wants it; the call is our own, so that no thread of
 * the target hangs with it, and none has to come by. */
static void detach(void)
{
	target.cupti.unsubscribe(target.subscriber);
	target.cupti.finalize();
	__atomic_store_n(&target.detach_thread, 0, __ATOMIC_RELEASE);
}

static void on_call(uint32_t domain, uint32_t cbid, const struct cupti_call *c, struct shard *s,
		    uint64_t thread)
{
	uint8_t row;

	if (domain - 1 > 1 || cbid >= MAX_CBID)
		return;
	if (__atomic_load_n(&target.detach_thread, __ATOMIC_RELAXED) == thread) {
		detach();
		return;
	}
	row = __atomic_load_n(&row_of[domain - 1][cbid], __ATOMIC_RELAXED);
	if (!row || !__atomic_load_n(&target.level, __ATOMIC_ACQUIRE))
		return;
	if (c->result && *(const int *)c->result)
		return;		/* refused: there is nothing to wait for */
	if (!calls[row - 1].call) {
		__atomic_fetch_add(&target.window.n_captures, 1, __ATOMIC_RELAXED);
		return;
	}
	if (__atomic_exchange_n(&target.seen[c->corr % 1024], c->corr, __ATOMIC_RELAXED) == c->corr)
		return;
	tell(&calls[row - 1], c, s, thread);
}

void launches__on_callback(void *ctx, uint32_t domain, uint32_t cbid, const void *data)
{
	uint64_t thread = (uint64_t)pthread_self();
	struct shard *s = &target.shards[(thread * 0x9e3779b97f4a7c15ull) >> 58];
	const struct cupti_call *c = data;

	(void)ctx;
	if (domain != CUPTI_STATE && c->site == CUPTI_ENTER) {	/* nothing of ours is used */
		if (c->data && !__atomic_load_n(&target.off, __ATOMIC_RELAXED))
			*c->data = now_ns();
		return;
	}
	__atomic_fetch_add(&s->n_inside, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&target.off, __ATOMIC_SEQ_CST)) {
		if (domain != CUPTI_STATE)
			on_call(domain, cbid, c, s, thread);
		else if (cbid == CUPTI_FATAL_ERROR)
			__atomic_store_n(&target.fatal, 1, __ATOMIC_RELEASE);
	}
	__atomic_fetch_sub(&s->n_inside, 1, __ATOMIC_RELEASE);
}

int launches__enable(bool on, uint32_t level)
{
	int n = 0;

	for (int i = 0; i < N_CALLS; i++) {
		const struct call_row *r = &calls[i];
		int ret;

		if (r->level > level)
			continue;
		__atomic_store_n(&row_of[r->domain - 1][r->cbid], i + 1, __ATOMIC_RELAXED);
		guard__enter(&target.guard, "cuptiEnableCallback", CALL_TIMEOUT_MS);
		ret = target.cupti.enable_callback(on, target.subscriber, r->domain, r->cbid);
		if (!guard__leave(&target.guard))
			return -ECANCELED;
		n += ret == 0;
	}
	return n;
}

bool launches__drained(void)
{
	for (int i = 0; i < N_SHARDS; i++)
		if (__atomic_load_n(&target.shards[i].n_inside, __ATOMIC_SEQ_CST))
			return false;
	return true;
}

void launches__count(void)
{
	uint32_t n_calls = 0, n_work = 0;

	for (int i = 0; i < N_SHARDS; i++) {
		n_calls += __atomic_load_n(&target.shards[i].n_calls, __ATOMIC_RELAXED);
		n_work += __atomic_load_n(&target.shards[i].n_work, __ATOMIC_RELAXED);
	}
	ring_count(&target.ring.shared->n_launches, n_calls - target.n_calls);
	target.window.n_launches += n_work - target.n_work;
	target.n_calls = n_calls;
	target.n_work = n_work;
}
