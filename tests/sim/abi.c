/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles only if the simulation's records are laid out as NVIDIA's headers say; never run, never linked. */
#include <cuda.h>
#include <cupti.h>

#include "abi_fields.h"
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

#define SIZE(theirs, kind_, number) \
	NUMBER(kind_, number); \
	static const int theirs##_size[sizeof(theirs) == REC_SIZE(number, CUPTI_API_VERSION) ? 1 : -1] \
		__attribute__((unused))

SIZE(KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, K_CONCURRENT_KERNEL);
KERNEL_FIELDS(KERNEL, rec_kernel, rec_kernel, graph_node, graph);
SAME(KERNEL, gridX, rec_kernel, grid[0]);
SAME(KERNEL, blockZ, rec_kernel, block[2]);
SAME(KERNEL, dynamicSharedMemory, rec_kernel, shmem_dynamic);
SAME(KERNEL, queued, rec_kernel, queued);
SAME(KERNEL, submitted, rec_kernel, submitted);
SAME(KERNEL, launchType, rec_kernel, launch_type);

SIZE(MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY, K_MEMCPY);
COPY_FIELDS(MEMCPY, rec_memcpy);
SAME(MEMCPY, copyKind, rec_memcpy, copy);
SAME(MEMCPY, graphNodeId, rec_memcpy, graph_node);
SAME(MEMCPY, graphId, rec_memcpy, graph);

SIZE(MEMSET, CUPTI_ACTIVITY_KIND_MEMSET, K_MEMSET);
COPY_FIELDS(MEMSET, rec_memset);
SAME(MEMSET, value, rec_memset, value);
SAME(MEMSET, graphNodeId, rec_memset, graph_node);
SAME(MEMSET, graphId, rec_memset, graph);

SIZE(OVERHEAD, CUPTI_ACTIVITY_KIND_OVERHEAD, K_OVERHEAD);
OVERHEAD_FIELDS(OVERHEAD, rec_overhead, what);

SIZE(GRAPH, CUPTI_ACTIVITY_KIND_GRAPH_TRACE, K_GRAPH_TRACE);
GRAPH_FIELDS(GRAPH, rec_graph);

SIZE(SYNC, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, K_SYNCHRONIZATION);
SAME(SYNC, type, rec_sync, type);
SAME(SYNC, start, rec_sync, start);
SAME(SYNC, end, rec_sync, end);
SAME(SYNC, correlationId, rec_sync, corr);
SAME(SYNC, contextId, rec_sync, context);
SAME(SYNC, streamId, rec_sync, stream);
SAME(SYNC, cudaEventId, rec_sync, event);

_Static_assert(sizeof(CUpti_CallbackData) == sizeof(struct rec_callback), "CUpti_CallbackData");
CALLBACK_FIELDS(rec_callback, ret);
SAME(CUpti_CallbackData, contextUid, rec_callback, context_id);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 307);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, 514);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, 126);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize, 121);
