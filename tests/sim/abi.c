/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles only if the simulation's records are laid out as NVIDIA's headers say; never run, never linked. */
#include <cuda.h>
#include <cupti.h>

#include "records.h"

#if CUPTI_API_VERSION >= 130000
#define KERNEL CUpti_ActivityKernel10
#elif CUPTI_API_VERSION >= 19
#define KERNEL CUpti_ActivityKernel9
#else
#define KERNEL CUpti_ActivityKernel8
#endif
#if CUPTI_API_VERSION >= 26
#define MEMCPY CUpti_ActivityMemcpy6
#define SYNC CUpti_ActivitySynchronization2
#else
#define MEMCPY CUpti_ActivityMemcpy5
#define SYNC CUpti_ActivitySynchronization
#endif
#if CUPTI_API_VERSION >= 22
#define OVERHEAD CUpti_ActivityOverhead3
#elif CUPTI_API_VERSION >= 21
#define OVERHEAD CUpti_ActivityOverhead2
#else
#define OVERHEAD CUpti_ActivityOverhead
#endif
#if CUPTI_API_VERSION >= 21
#define GRAPH CUpti_ActivityGraphTrace2
#else
#define GRAPH CUpti_ActivityGraphTrace
#endif
#define MEMSET CUpti_ActivityMemset4

#define SAME(theirs, field, ours, name) \
	_Static_assert(offsetof(theirs, field) == offsetof(struct ours, name) && \
		       sizeof(((theirs *)0)->field) == sizeof(((struct ours *)0)->name), #theirs "." #field)
#define SIZE(theirs, kind_, number) \
	_Static_assert(kind_ == (int)number, #number); \
	static const int theirs##_size[sizeof(theirs) == REC_SIZE(number, CUPTI_API_VERSION) ? 1 : -1] \
		__attribute__((unused))

SIZE(KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, K_CONCURRENT_KERNEL);
SAME(KERNEL, kind, rec_kernel, kind);
SAME(KERNEL, start, rec_kernel, start);
SAME(KERNEL, end, rec_kernel, end);
SAME(KERNEL, completed, rec_kernel, completed);
SAME(KERNEL, deviceId, rec_kernel, device);
SAME(KERNEL, contextId, rec_kernel, context);
SAME(KERNEL, streamId, rec_kernel, stream);
SAME(KERNEL, gridX, rec_kernel, grid[0]);
SAME(KERNEL, blockZ, rec_kernel, block[2]);
SAME(KERNEL, dynamicSharedMemory, rec_kernel, shmem_dynamic);
SAME(KERNEL, correlationId, rec_kernel, corr);
SAME(KERNEL, gridId, rec_kernel, grid_id);
SAME(KERNEL, name, rec_kernel, name);
SAME(KERNEL, queued, rec_kernel, queued);
SAME(KERNEL, submitted, rec_kernel, submitted);
SAME(KERNEL, launchType, rec_kernel, launch_type);
SAME(KERNEL, graphNodeId, rec_kernel, graph_node);
SAME(KERNEL, graphId, rec_kernel, graph);

SIZE(MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY, K_MEMCPY);
SAME(MEMCPY, copyKind, rec_memcpy, copy);
SAME(MEMCPY, bytes, rec_memcpy, bytes);
SAME(MEMCPY, start, rec_memcpy, start);
SAME(MEMCPY, end, rec_memcpy, end);
SAME(MEMCPY, deviceId, rec_memcpy, device);
SAME(MEMCPY, streamId, rec_memcpy, stream);
SAME(MEMCPY, correlationId, rec_memcpy, corr);
SAME(MEMCPY, graphNodeId, rec_memcpy, graph_node);
SAME(MEMCPY, graphId, rec_memcpy, graph);

SIZE(MEMSET, CUPTI_ACTIVITY_KIND_MEMSET, K_MEMSET);
SAME(MEMSET, value, rec_memset, value);
SAME(MEMSET, bytes, rec_memset, bytes);
SAME(MEMSET, start, rec_memset, start);
SAME(MEMSET, end, rec_memset, end);
SAME(MEMSET, streamId, rec_memset, stream);
SAME(MEMSET, correlationId, rec_memset, corr);
SAME(MEMSET, graphNodeId, rec_memset, graph_node);
SAME(MEMSET, graphId, rec_memset, graph);

SIZE(OVERHEAD, CUPTI_ACTIVITY_KIND_OVERHEAD, K_OVERHEAD);
SAME(OVERHEAD, overheadKind, rec_overhead, what);
SAME(OVERHEAD, objectKind, rec_overhead, object_kind);
SAME(OVERHEAD, start, rec_overhead, start);
SAME(OVERHEAD, end, rec_overhead, end);

SIZE(GRAPH, CUPTI_ACTIVITY_KIND_GRAPH_TRACE, K_GRAPH_TRACE);
SAME(GRAPH, correlationId, rec_graph, corr);
SAME(GRAPH, start, rec_graph, start);
SAME(GRAPH, end, rec_graph, end);
SAME(GRAPH, deviceId, rec_graph, device);
SAME(GRAPH, graphId, rec_graph, graph);
SAME(GRAPH, contextId, rec_graph, context);
SAME(GRAPH, streamId, rec_graph, stream);

SIZE(SYNC, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, K_SYNCHRONIZATION);
SAME(SYNC, type, rec_sync, type);
SAME(SYNC, start, rec_sync, start);
SAME(SYNC, end, rec_sync, end);
SAME(SYNC, correlationId, rec_sync, corr);
SAME(SYNC, contextId, rec_sync, context);
SAME(SYNC, streamId, rec_sync, stream);
SAME(SYNC, cudaEventId, rec_sync, event);

_Static_assert(sizeof(CUpti_CallbackData) == sizeof(struct rec_callback), "CUpti_CallbackData");
SAME(CUpti_CallbackData, callbackSite, rec_callback, site);
SAME(CUpti_CallbackData, functionName, rec_callback, function);
SAME(CUpti_CallbackData, functionParams, rec_callback, params);
SAME(CUpti_CallbackData, functionReturnValue, rec_callback, ret);
SAME(CUpti_CallbackData, context, rec_callback, context);
SAME(CUpti_CallbackData, contextUid, rec_callback, context_id);
SAME(CUpti_CallbackData, correlationData, rec_callback, data);
SAME(CUpti_CallbackData, correlationId, rec_callback, corr);
_Static_assert(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel == 307 && CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch == 514 &&
	       CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize == 126 &&
	       CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize == 121, "numbers of calls");
