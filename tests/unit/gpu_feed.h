/* SPDX-License-Identifier: Apache-2.0 */
/* A server that launches on a GPU, in ms, fed to a model: what its GPU side is tested with. */
#ifndef TL_GPU_FEED_H
#define TL_GPU_FEED_H

#include "unit.h"

#include "model/evidence.h"
#include "model/gpu.h"
#include "model/model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PID = 500, TID = 501, STREAM = 0x7000, GRAPHS = 0x9000 };
enum { NAME_GEMM = 1, NAME_SAMPLE, NAME_REDUCE };

struct gpu_feed {
	struct model *m;
	struct model_view v;
	uint64_t corr;
	int err;		/* the first one of feeding */
	uint32_t tgid, device;
};

static inline uint64_t at(double ms)
{
	return (uint64_t)((10000 + ms) * 1e6 + 0.5);
}

static inline uint64_t len(double ms)
{
	return (uint64_t)(ms * 1e6 + 0.5);
}

#define HDR(ev, kind, flags, tgid, tid, ts) { sizeof(ev), kind, flags, tgid, tid, ts }
#define FEED(f, ev) feed_one(f, &(ev).hdr)

static inline void feed_one(struct gpu_feed *f, const struct tl_hdr *ev)
{
	int err = model__feed(f->m, ev);

	f->err = f->err ? f->err : err;
}

static inline void feed_engine(struct gpu_feed *f, uint32_t tgid, uint32_t server)
{
	struct tl_engine e = { .hdr = HDR(e, TL_ENGINE, 0, tgid, tgid, at(-1000)), .start_ns = 1, .server = server };

	FEED(f, e);
}

static inline void feed_name(struct gpu_feed *f, uint32_t id, const char *name)
{
	struct tl_gpu_name e = { .hdr = HDR(e, TL_GPU_NAME, 0, f->tgid, 0, at(-999)), .id = id };

	snprintf(e.name, sizeof(e.name), "%s", name);
	FEED(f, e);
}

static inline void feed_clock(struct gpu_feed *f, double t)
{
	struct tl_clock e = { .hdr = HDR(e, TL_CLOCK, 0, f->tgid, 0, at(t)), .realtime_ns = at(t) + 5 };

	FEED(f, e);
}

/* The process whose launches come next, with the names of its kernels. */
static inline void feed_process(struct gpu_feed *f, uint32_t tgid, uint32_t device)
{
	f->tgid = tgid;
	f->device = device;
	feed_name(f, NAME_GEMM, "_ZN4gemm6kernelIfEEvPT_");
	feed_name(f, NAME_SAMPLE, "argmax_kernel");
	feed_name(f, NAME_REDUCE, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
}

static inline struct gpu_feed gpu_feed_new(void)
{
	struct gpu_feed f = { .m = model__new(NULL), .corr = 100 };

	return f;
}

static inline void gpu_feed_done(struct gpu_feed *f)
{
	assert_int_equal(f->err, 0);
	assert_int_equal(model__finish(f->m), 0);
	model__view(f->m, &f->v);
}

static inline void gpu_feed_free(struct gpu_feed *f)
{
	model__free(f->m);
	f->m = NULL;
}

static inline struct tl_gpu_launch launch_of(const struct gpu_feed *f, double t, uint16_t call, uint64_t corr)
{
	struct tl_gpu_launch e = { .hdr = HDR(e, TL_GPU_LAUNCH, 0, f->tgid, TID, at(t)), .dur_ns = 2000, .corr = corr,
				   .stream = STREAM, .what = 0x8000, .n = 1, .call = call };

	return e;
}

static inline struct tl_gpu_span span_of(const struct gpu_feed *f, double t0, double t1, uint16_t what, uint64_t corr)
{
	struct tl_gpu_span e = { .hdr = HDR(e, TL_GPU_SPAN, 0, f->tgid, 0, at(t0)), .end_ns = at(t1), .corr = corr,
				 .device = f->device, .stream = 7, .what = what };

	return e;
}

/* A kernel that is launched at t and runs from t0 to t1. */
static inline void feed_kernel(struct gpu_feed *f, double t, double t0, double t1, uint32_t name)
{
	struct tl_gpu_launch l = launch_of(f, t, TL_CALL_KERNEL, ++f->corr);
	struct tl_gpu_span s = span_of(f, t0, t1, TL_SPAN_KERNEL, f->corr);

	s.name = name;
	FEED(f, l);
	FEED(f, s);
}

static inline void feed_copy(struct gpu_feed *f, double t, double t0, double t1, uint16_t copy)
{
	struct tl_gpu_launch l = launch_of(f, t, TL_CALL_COPY, ++f->corr);
	struct tl_gpu_span s = span_of(f, t0, t1, TL_SPAN_MEMCPY, f->corr);

	s.copy = copy;
	l.what = 0;
	FEED(f, l);
	FEED(f, s);
}

/* A graph of n kernels of 0.1 ms each. */
static inline void feed_graph(struct gpu_feed *f, double t, double t0, int n, uint64_t exec)
{
	struct tl_gpu_launch l = launch_of(f, t, TL_CALL_GRAPH, ++f->corr);

	l.what = GRAPHS + exec;
	FEED(f, l);
	for (int i = 0; i < n; i++) {
		struct tl_gpu_span s = span_of(f, t0 + 0.1 * i, t0 + 0.1 * (i + 1), TL_SPAN_KERNEL, f->corr);

		s.name = NAME_GEMM;
		s.graph = 40 + (uint32_t)exec;
		FEED(f, s);
	}
}

static inline void feed_sync(struct gpu_feed *f, double t0, double t1)
{
	struct tl_gpu_launch l = launch_of(f, t0, TL_CALL_SYNC, 0);

	l.dur_ns = len(t1 - t0);
	FEED(f, l);
}

/* A step launched at t, one by one: n kernels of 0.1 ms from t + 0.1 on, and a copy of results of 0.01 ms. */
static inline void feed_eager(struct gpu_feed *f, double t, int n)
{
	for (int i = 0; i < n; i++)
		feed_kernel(f, t + 0.003 * i, t + 0.1 * (i + 1), t + 0.1 * (i + 2), NAME_GEMM);
	feed_copy(f, t + 0.003 * n, t + 0.1 * (n + 1), t + 0.1 * (n + 1) + 0.01, 2);
}

/* A step replayed: launched at t, on the device from t0 on for 2 ms, and the copy of its results. */
static inline void feed_replay(struct gpu_feed *f, double t, double t0, uint64_t exec)
{
	feed_graph(f, t, t0, 20, exec);
	feed_copy(f, t + 0.005, t0 + 2, t0 + 2.01, 2);
}

/* The wire tells of a step: sequences 0 to n - 1 decode, and `prefill` tokens of one more. */
static inline void feed_step(struct gpu_feed *f, double t0, double t1, uint16_t n, uint32_t prefill)
{
	static union { struct tl_step s; char room[sizeof(struct tl_step) + 64 * sizeof(struct tl_member)]; } u;

	memset(&u, 0, sizeof(u));
	u.s = (struct tl_step){ .hdr = { 0, TL_STEP, 0, PID, TID, at(t0) }, .end_ns = at(t1),
				.n_members = n + (prefill > 0), .n_tokens = n + prefill };
	u.s.hdr.size = sizeof(u.s) + u.s.n_members * sizeof(struct tl_member);
	for (uint16_t i = 0; i < n; i++)
		u.s.members[i] = (struct tl_member){ i, 1, -1, TL_DECODE, 1, 0 };
	if (prefill)
		u.s.members[n] = (struct tl_member){ n, prefill, -1, TL_PREFILL, 1, 0 };
	FEED(f, u.s);
}

static inline void feed_chunk(struct gpu_feed *f, uint32_t req, double t)
{
	struct tl_chunk e = { .hdr = HDR(e, TL_CHUNK, TL_CHUNK_TEXT, PID, 0, at(t)), .req = req, .bytes = 10 };

	FEED(f, e);
}

static inline void feed_begin(struct gpu_feed *f, uint32_t req, double t)
{
	struct tl_req_begin b = { .hdr = HDR(b, TL_REQ_BEGIN, TL_API_CHAT, PID, 0, at(t)), .req = req, .conn = req };
	struct tl_req_facts k = { .hdr = HDR(k, TL_REQ_FACTS, 0, PID, 0, at(t + 0.05)), .req = req, .max_tokens = -1,
				  .api = TL_API_CHAT, .stream = 1, .method = TL_POST, .path = "/v1/chat/completions" };

	FEED(f, b);
	FEED(f, k);
}

static inline void feed_end(struct gpu_feed *f, uint32_t req, double t, uint32_t prompt, uint32_t output)
{
	struct tl_usage u = { .hdr = HDR(u, TL_USAGE, TL_USAGE_PROMPT | TL_USAGE_OUTPUT, PID, 0, at(t)), .req = req,
			      .prompt = prompt, .output = output, .slot = -1 };
	struct tl_req_end e = { .hdr = HDR(e, TL_REQ_END, 0, PID, 0, at(t)), .req = req, .how = TL_END_COMPLETE,
				.status = 200 };
	struct tl_chunk done = { .hdr = HDR(done, TL_CHUNK, TL_CHUNK_DONE, PID, 0, at(t)), .req = req };

	if (prompt)
		FEED(f, u);
	FEED(f, done);
	FEED(f, e);
}

#define STEP(f, i) (&(f)->v.gpu->steps[i])
#define assert_ns(got, want_ms) assert_true((got) + 2 > len(want_ms) && (got) < len(want_ms) + 2)

#endif
