/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated libcuda.so.1: streams, events, launches, copies and graphs. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "fault.h"

enum { COPY_LATENCY_NS = 2000, BYTES_PER_US = 25000 };

struct launch_node {		/* as CUDA_KERNEL_NODE_PARAMS_v2 begins */
	void *f;
	uint32_t grid[3], block[3], shmem;
	void **args;
};
struct launch_config {		/* as CUlaunchConfig begins */
	uint32_t grid[3], block[3], shmem;
	void *stream;
};

/* ---- streams and events ---- */
SIM_API int cuStreamCreate(void **stream, unsigned int flags)
{
	struct { void **stream; unsigned int flags; } params = { stream, flags };

	ENTER(124, "cuStreamCreate");
	if (!stream || sim_ready())
		EXIT(sim_ready() ? sim_ready() : CUDA_INVALID_VALUE);
	*stream = sim_stream__new();
	EXIT(*stream ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

SIM_API int cuStreamCreateWithPriority(void **stream, unsigned int flags, int priority)
{
	(void)priority;
	return cuStreamCreate(stream, flags);
}

SIM_API int cuStreamDestroy_v2(void *stream)
{
	struct { void *stream; } params = { stream };

	ENTER(326, "cuStreamDestroy_v2");
	if ((uintptr_t)stream <= 2)
		EXIT(CUDA_INVALID_HANDLE);
	sim_stream__free(stream);
	EXIT(CUDA_OK);
}

static int stream_sync(void *stream, uint32_t cbid, const char *name)
{
	struct { void *stream; } params = { stream };
	struct sim_stream *s = sim_stream__of(stream);

	ENTER(cbid, name);
	if (!sim_ready())
		sim_stream__wait(s, call_.corr, 3, sim_stream__end(s));
	EXIT(sim_ready());
}

SIM_API int cuStreamSynchronize(void *stream)
{
	return stream_sync(stream, 126, "cuStreamSynchronize");
}

SIM_API int cuStreamSynchronize_ptsz(void *stream)
{
	return stream_sync(stream, 440, "cuStreamSynchronize_ptsz");
}

SIM_API int cuStreamQuery(void *stream)
{
	struct { void *stream; } params = { stream };

	ENTER(125, "cuStreamQuery");
	EXIT(sim_stream__end(sim_stream__of(stream)) <= sim_now() ? CUDA_OK : CUDA_NOT_READY);
}

SIM_API int cuEventCreate(void **event, unsigned int flags)
{
	struct { void **event; unsigned int flags; } params = { event, flags };

	ENTER(118, "cuEventCreate");
	if (!event)
		EXIT(CUDA_INVALID_VALUE);
	*event = calloc(1, sizeof(struct sim_event));
	EXIT(*event ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

SIM_API int cuEventDestroy_v2(void *event)
{
	struct { void *event; } params = { event };

	ENTER(325, "cuEventDestroy_v2");
	free(event);
	EXIT(CUDA_OK);
}

static int event_record(struct sim_event *event, void *stream, uint32_t cbid, const char *name)
{
	struct { void *event, *stream; } params = { event, stream };

	ENTER(cbid, name);
	event->at_ns = sim_stream__end(sim_stream__of(stream));
	if (!event->at_ns)
		event->at_ns = 1;
	EXIT(CUDA_OK);
}

SIM_API int cuEventRecord(void *event, void *stream)
{
	return event_record(event, stream, 119, "cuEventRecord");
}

SIM_API int cuEventRecord_ptsz(void *event, void *stream)
{
	return event_record(event, stream, 441, "cuEventRecord_ptsz");
}

SIM_API int cuEventQuery(void *event)
{
	struct { void *event; } params = { event };

	ENTER(120, "cuEventQuery");
	EXIT(((struct sim_event *)event)->at_ns <= sim_now() ? CUDA_OK : CUDA_NOT_READY);
}

SIM_API int cuEventSynchronize(void *event)
{
	struct { void *event; } params = { event };

	ENTER(121, "cuEventSynchronize");
	sim_stream__wait(sim_stream__of(NULL), call_.corr, 1, ((struct sim_event *)event)->at_ns);
	EXIT(CUDA_OK);
}

SIM_API int cuEventElapsedTime(float *ret_ms, void *first, void *second)
{
	const struct sim_event *a = first, *b = second;

	if (!ret_ms || !a->at_ns || !b->at_ns)
		return CUDA_INVALID_HANDLE;
	*ret_ms = (double)(int64_t)(b->at_ns - a->at_ns) / 1e6;
	return CUDA_OK;
}

SIM_API int cuStreamWaitEvent(void *stream, void *event, unsigned int flags)
{
	struct { void *stream, *event; unsigned int flags; } params = { stream, event, flags };
	struct sim_stream *s = sim_stream__of(stream);
	const struct sim_event *e = event;

	ENTER(295, "cuStreamWaitEvent");
	pthread_mutex_lock(&s->lock);
	if (s->end_ns < e->at_ns)
		s->end_ns = e->at_ns;
	pthread_mutex_unlock(&s->lock);
	EXIT(CUDA_OK);
}

SIM_API int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *ctx)
{
	struct { void *stream; void (*fn)(void *); void *ctx; } params = { stream, fn, ctx };

	ENTER(527, "cuLaunchHostFunc");
	sim_stream__call(sim_stream__of(stream), fn, ctx);
	EXIT(CUDA_OK);
}

/* ---- kernels ---- */
struct launch_params {		/* in the order of cuLaunchKernel's arguments */
	struct sim_function *function;
	uint32_t grid[3], block[3], shmem;
	void *stream;
	void **args, **extra;
};

static void describe(const struct launch_params *p, struct sim_node *ret_node)
{
	*ret_node = (struct sim_node){
		.work = {
			.kind = SIM_KERNEL, .name = p->function->name, .shmem = p->shmem,
			.grid = { p->grid[0], p->grid[1], p->grid[2] },
			.block = { p->block[0], p->block[1], p->block[2] },
		},
		.dur_ns = p->args ? *(uint64_t *)p->args[0] : p->function->default_ns,
		.not_before_ns = p->args && p->args[1] ? *(uint64_t **)p->args[1] : NULL,
	};
}

static int launch(const struct launch_params *p, const void *config, uint32_t cbid, const char *name)
{
	struct { const void *config; struct sim_function *f; void **args, **extra; } ex = {
		config, p->function, p->args, p->extra };
	struct launch_params params = *p;
	struct sim_node node;
	int ret_ = 0;
	struct sim_call call_ = { .cbid = cbid, .name = name, .ret = &ret_,
				  .params = config ? (void *)&ex : (void *)&params };

	sim_call__enter(&call_);
	if (sim_ready() || !p->function)
		EXIT(sim_ready() ? sim_ready() : CUDA_INVALID_HANDLE);
	describe(p, &node);
	EXIT(sim_stream__put(sim_stream__of(p->stream), &node, call_.corr));
}

#define GRID uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz
#define LAUNCH(number, text, args_, extra_)                                                      \
	struct launch_params p = { f, { gx, gy, gz }, { bx, by, bz }, shmem, stream, args_, extra_ }; \
	return launch(&p, NULL, number, text)

SIM_API int cuLaunchKernel(void *f, GRID, uint32_t shmem, void *stream, void **args, void **extra)
{
	LAUNCH(307, "cuLaunchKernel", args, extra);
}

SIM_API int cuLaunchKernel_ptsz(void *f, GRID, uint32_t shmem, void *stream, void **args, void **extra)
{
	LAUNCH(442, "cuLaunchKernel_ptsz", args, extra);
}

SIM_API int cuLaunchCooperativeKernel(void *f, GRID, uint32_t shmem, void *stream, void **args)
{
	LAUNCH(477, "cuLaunchCooperativeKernel", args, NULL);
}

SIM_API int cuLaunchCooperativeKernel_ptsz(void *f, GRID, uint32_t shmem, void *stream, void **args)
{
	LAUNCH(478, "cuLaunchCooperativeKernel_ptsz", args, NULL);
}

static int launch_ex(const struct launch_config *c, void *f, void **args, void **extra, uint32_t cbid,
		     const char *name)
{
	struct launch_params p = { .function = f, .shmem = c->shmem, .stream = c->stream, .args = args,
				   .extra = extra };

	memcpy(p.grid, c->grid, sizeof(p.grid));
	memcpy(p.block, c->block, sizeof(p.block));
	return launch(&p, c, cbid, name);
}

SIM_API int cuLaunchKernelEx(const struct launch_config *c, void *f, void **args, void **extra)
{
	return launch_ex(c, f, args, extra, 652, "cuLaunchKernelEx");
}

SIM_API int cuLaunchKernelEx_ptsz(const struct launch_config *c, void *f, void **args, void **extra)
{
	return launch_ex(c, f, args, extra, 653, "cuLaunchKernelEx_ptsz");
}

/* ---- copies ---- */
static int copy(uint32_t kind, uint64_t bytes, void *stream, uint32_t corr, int wait)
{
	struct sim_stream *s = sim_stream__of(stream);
	struct sim_node node = {
		.work = { .kind = kind ? SIM_MEMCPY : SIM_MEMSET, .copy = kind, .bytes = bytes },
		.dur_ns = COPY_LATENCY_NS + bytes * 1000 / BYTES_PER_US,
	};
	int err = sim_stream__put(s, &node, corr);

	if (!err && wait)
		sim_sleep_until(sim_stream__end(s));
	return err;
}

#define COPY(number, text, direction, where, wait)                                               \
	struct { __typeof__(dst) d; __typeof__(src) s; size_t n; void *stream; } params = {      \
		dst, src, n, where };                                                            \
	ENTER(number, text);                                                                     \
	if (sim_ready())                                                                         \
		EXIT(sim_ready());                                                               \
	memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, n);                         \
	EXIT(copy(direction, n, where, call_.corr, wait))

SIM_API int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, void *stream)
{
	COPY(277, "cuMemcpyHtoDAsync_v2", 1, stream, 0);
}

SIM_API int cuMemcpyHtoDAsync_v2_ptsz(uint64_t dst, const void *src, size_t n, void *stream)
{
	COPY(421, "cuMemcpyHtoDAsync_v2_ptsz", 1, stream, 0);
}

SIM_API int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, void *stream)
{
	COPY(279, "cuMemcpyDtoHAsync_v2", 2, stream, 0);
}

SIM_API int cuMemcpyDtoHAsync_v2_ptsz(void *dst, uint64_t src, size_t n, void *stream)
{
	COPY(422, "cuMemcpyDtoHAsync_v2_ptsz", 2, stream, 0);
}

SIM_API int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t n)
{
	COPY(276, "cuMemcpyHtoD_v2", 1, NULL, 1);
}

SIM_API int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t n)
{
	COPY(278, "cuMemcpyDtoH_v2", 2, NULL, 1);
}

SIM_API int cuMemsetD8Async(uint64_t dst, unsigned char value, size_t n, void *stream)
{
	struct { uint64_t dst; unsigned char value; size_t n; void *stream; } params = {
		dst, value, n, stream };

	ENTER(216, "cuMemsetD8Async");
	memset((void *)(uintptr_t)dst, value, n);
	EXIT(copy(0, n, stream, call_.corr, 0));
}

/* ---- graphs ---- */
SIM_API int cuStreamBeginCapture_v2(void *stream, int mode)
{
	struct { void *stream; int mode; } params = { stream, mode };
	struct sim_stream *s = sim_stream__of(stream);

	ENTER(539, "cuStreamBeginCapture_v2");
	if (s->capture || (uintptr_t)stream <= 2)
		EXIT(CUDA_CAPTURE_INVALID);
	s->capture = sim_graph__new();
	EXIT(s->capture ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

SIM_API int cuStreamEndCapture(void *stream, void **graph)
{
	struct { void *stream; void **graph; } params = { stream, graph };
	struct sim_stream *s = sim_stream__of(stream);

	ENTER(497, "cuStreamEndCapture");
	if (!s->capture || !graph)
		EXIT(CUDA_CAPTURE_INVALID);
	*graph = s->capture;
	s->capture = NULL;
	EXIT(CUDA_OK);
}

SIM_API int cuGraphCreate(void **graph, unsigned int flags)
{
	if (!graph || flags)
		return CUDA_INVALID_VALUE;
	*graph = sim_graph__new();
	return *graph ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

SIM_API int cuGraphAddKernelNode_v2(void **ret_node, void *graph, const void *dependencies,
				    size_t n_dependencies, const struct launch_node *n)
{
	struct launch_params p = { n->f, { n->grid[0], n->grid[1], n->grid[2] },
				   { n->block[0], n->block[1], n->block[2] }, n->shmem, NULL, n->args, NULL };
	struct sim_graph *g = graph;
	struct sim_node node;
	int err;

	(void)dependencies;	/* nodes run in the order in which they were added */
	(void)n_dependencies;
	describe(&p, &node);
	err = sim_graph__add(g, &node);
	if (!err && ret_node)
		*ret_node = (void *)(uintptr_t)g->nodes[g->n - 1].work.node;
	return err;
}

SIM_API int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
	struct { void **exec; void *graph; unsigned long long flags; } params = { exec, graph, flags };

	ENTER(643, "cuGraphInstantiateWithFlags");
	if (!exec || !graph)
		EXIT(CUDA_INVALID_VALUE);
	*exec = sim_graph__copy(graph);
	EXIT(*exec ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

SIM_API int cuGraphInstantiateWithParams(void **exec, void *graph, void *how)
{
	struct { void **exec; void *graph; void *how; } params = { exec, graph, how };

	ENTER(656, "cuGraphInstantiateWithParams");
	if (!exec || !graph)
		EXIT(CUDA_INVALID_VALUE);
	*exec = sim_graph__copy(graph);
	EXIT(*exec ? CUDA_OK : CUDA_OUT_OF_MEMORY);
}

static int graph_launch(void *exec, void *stream, uint32_t cbid, const char *name)
{
	struct { void *exec, *stream; } params = { exec, stream };

	ENTER(cbid, name);
	if (sim_ready() || !exec)
		EXIT(sim_ready() ? sim_ready() : CUDA_INVALID_HANDLE);
	EXIT(sim_stream__launch(sim_stream__of(stream), exec, call_.corr));
}

SIM_API int cuGraphLaunch(void *exec, void *stream)
{
	return graph_launch(exec, stream, 514, "cuGraphLaunch");
}

SIM_API int cuGraphLaunch_ptsz(void *exec, void *stream)
{
	return graph_launch(exec, stream, 515, "cuGraphLaunch_ptsz");
}

SIM_API int cuGraphExecDestroy(void *exec)
{
	sim_graph__free(exec);
	return CUDA_OK;
}

SIM_API int cuGraphDestroy(void *graph)
{
	sim_graph__free(graph);
	return CUDA_OK;
}
