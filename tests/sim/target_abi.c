/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles only if what libtokenlag.so takes for CUPTI's interface is what NVIDIA's headers say;
 * never run. */
#include <cuda.h>
#include <cupti.h>

#include "../../agent/target/cupti_abi.h"
#include "abi_fields.h"

#define FITS(theirs, ours) _Static_assert(sizeof(theirs) >= sizeof(struct ours), #theirs)

/* Each form of a record that a CUPTI from 11.8 on may write. */
#define KERNEL(theirs) \
	KERNEL_FIELDS(theirs, cupti_kernel, cupti_kernel_graph, node, graph); \
	FITS(theirs, cupti_kernel_graph)
#define COPY(theirs, ours) \
	COPY_FIELDS(theirs, ours); \
	FITS(theirs, ours)
#define GRAPH(theirs) \
	GRAPH_FIELDS(theirs, cupti_graph_trace); \
	FITS(theirs, cupti_graph_trace)
#define OVERHEAD(theirs) \
	OVERHEAD_FIELDS(theirs, cupti_overhead, overhead_kind); \
	FITS(theirs, cupti_overhead)

KERNEL(CUpti_ActivityKernel8);
COPY(CUpti_ActivityMemcpy5, cupti_memcpy);
SAME(CUpti_ActivityMemcpy5, copyKind, cupti_memcpy, copy);
COPY(CUpti_ActivityMemset4, cupti_memset);
GRAPH(CUpti_ActivityGraphTrace);
OVERHEAD(CUpti_ActivityOverhead);
#if CUPTI_API_VERSION >= 19
KERNEL(CUpti_ActivityKernel9);
#endif
#if CUPTI_API_VERSION >= 21
GRAPH(CUpti_ActivityGraphTrace2);
OVERHEAD(CUpti_ActivityOverhead2);
#endif
#if CUPTI_API_VERSION >= 22
OVERHEAD(CUpti_ActivityOverhead3);
#endif
#if CUPTI_API_VERSION >= 26
COPY(CUpti_ActivityMemcpy6, cupti_memcpy);
#endif
#if CUPTI_API_VERSION >= 130000
KERNEL(CUpti_ActivityKernel10);
SAME(CUpti_SubscriberParams, structSize, cupti_subscriber_params, size);
SAME(CUpti_SubscriberParams, subscriberName, cupti_subscriber_params, name);
SAME(CUpti_SubscriberParams, oldSubscriberName, cupti_subscriber_params, old_name);
SAME(CUpti_SubscriberParams, oldSubscriberSize, cupti_subscriber_params, old_name_size);
_Static_assert(CUpti_SubscriberParams_STRUCT_SIZE == sizeof(struct cupti_subscriber_params),
	       "params");
NUMBER(CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN, CUPTI_NAME_MIN);
#endif

CALLBACK_FIELDS(cupti_call, result);

NUMBER(CUPTI_SUCCESS, CUPTI_OK);
NUMBER(CUPTI_ERROR_MAX_LIMIT_REACHED, CUPTI_LIMIT);
NUMBER(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, CUPTI_BUSY);
NUMBER(CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_MEMCPY);
NUMBER(CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_MEMSET);
NUMBER(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_KERNEL);
NUMBER(CUPTI_ACTIVITY_KIND_OVERHEAD, CUPTI_OVERHEAD);
NUMBER(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, CUPTI_GRAPH_TRACE);
NUMBER(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, CUPTI_FORCED);
NUMBER(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER);
NUMBER(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME);
NUMBER(CUPTI_API_ENTER, CUPTI_ENTER);
NUMBER(CUPTI_API_EXIT, CUPTI_EXIT);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuDeviceGetCount, CUPTI_TOUCH);
#if CUPTI_API_VERSION >= 19	/* 11.8 cannot tell that it gave up */
NUMBER(CUPTI_CB_DOMAIN_STATE, CUPTI_STATE);
NUMBER(CUPTI_CBID_STATE_FATAL_ERROR, CUPTI_FATAL_ERROR);
#endif

/* The numbers of calls in launches.c, and where it looks for their arguments. */
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 307);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, 442);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, 652);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, 653);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, 477);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz, 478);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, 514);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz, 515);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, 277);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz, 421);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2, 279);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz, 422);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2, 539);
NUMBER(CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2_ptsz, 540);
NUMBER(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, 211);
NUMBER(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000, 214);
NUMBER(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, 430);
NUMBER(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060, 431);
NUMBER(CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000, 311);
NUMBER(CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000, 312);
#define AT(theirs, field, at) _Static_assert(offsetof(theirs, field) == (at), #theirs "." #field)
AT(cuLaunchKernel_params, f, 0);
AT(cuLaunchKernel_params, hStream, 40);
AT(cuLaunchCooperativeKernel_params, hStream, 40);
AT(cuLaunchKernelEx_params, config, 0);
AT(cuLaunchKernelEx_params, f, 8);
AT(CUlaunchConfig, hStream, 32);
AT(cuGraphLaunch_params, hGraph, 0);
AT(cuGraphLaunch_params, hStream, 8);
AT(cuMemcpyHtoDAsync_v2_params, ByteCount, 16);
AT(cuMemcpyHtoDAsync_v2_params, hStream, 24);
AT(cuMemcpyDtoHAsync_v2_params, ByteCount, 16);
AT(cuMemcpyDtoHAsync_v2_params, hStream, 24);
AT(cudaLaunchKernel_v7000_params, stream, 48);
AT(cudaLaunchKernelExC_v11060_params, config, 0);
AT(cudaLaunchConfig_t, stream, 32);
AT(cudaGraphLaunch_v10000_params, graphExec, 0);
AT(cudaGraphLaunch_v10000_params, stream, 8);
