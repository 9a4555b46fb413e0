/* SPDX-License-Identifier: Apache-2.0 */
/* What we use of CUPTI's binary interface: prefixes of its records, from 11.8 to 13.x the same.
 * tests/sim/t_target_abi checks each offset and number against NVIDIA's own headers. */
#ifndef TL_TARGET_CUPTI_ABI_H
#define TL_TARGET_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {				/* CUptiResult */
	CUPTI_OK = 0, CUPTI_LIMIT = 12, CUPTI_BUSY = 39,
};
enum {				/* of cuptiGetVersion; from 13.0 on 10000 x major + 100 x minor */
	CUPTI_11_8 = 18, CUPTI_12_6 = 24, CUPTI_13_0 = 130000,
};
enum {				/* CUpti_ActivityKind */
	CUPTI_MEMCPY = 1, CUPTI_MEMSET = 2, CUPTI_KERNEL = 10, CUPTI_OVERHEAD = 17,
	CUPTI_GRAPH_TRACE = 51,
};
enum { CUPTI_FORCED = 1 };	/* cuptiActivityFlushAll */
enum {				/* CUpti_CallbackDomain */
	CUPTI_DRIVER = 1, CUPTI_RUNTIME = 2, CUPTI_STATE = 6,
};
enum { CUPTI_TOUCH = 4 };	/* CUPTI_DRIVER_TRACE_CBID_cuDeviceGetCount */
enum { CUPTI_ENTER = 0, CUPTI_EXIT = 1 };
enum { CUPTI_FATAL_ERROR = 1 };	/* CUpti_CallbackIdState */
enum { CUPTI_NAME_MIN = 64 };	/* room for the name of another subscriber */

struct cupti_kernel {		/* CUpti_ActivityKernel4 and later */
	uint32_t kind;
	uint32_t pad0[3];
	uint64_t start, end;
	uint64_t completed;
	uint32_t device, context, stream;
	uint32_t shape[6];	/* grid and block */
	uint32_t shmem[2];
	uint32_t pad1[2];
	uint32_t corr;
	int64_t grid_id;
	const char *name;
};
struct cupti_kernel_graph {	/* CUpti_ActivityKernel5 and later */
	struct cupti_kernel head;
	uint64_t pad[4];
	uint64_t node;
	uint32_t pad2;
	uint32_t graph;
};
struct cupti_memcpy {		/* CUpti_ActivityMemcpy and later */
	uint32_t kind;
	uint8_t copy, pad[3];
	uint64_t bytes, start, end;
	uint32_t device, context, stream, corr;
};
struct cupti_memset {		/* CUpti_ActivityMemset and later */
	uint32_t kind, value;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, corr;
};
struct cupti_graph_trace {	/* CUpti_ActivityGraphTrace and later */
	uint32_t kind, corr;
	uint64_t start, end;
	uint32_t device, graph, context, stream;
};
struct cupti_overhead {		/* CUpti_ActivityOverhead and later: the same up to here */
	uint32_t kind, overhead_kind, object_kind;
	uint32_t object[3];
	uint64_t start, end;
};
struct cupti_call {		/* CUpti_CallbackData */
	uint32_t site;
	uint32_t pad;
	const char *function;
	const void *params;
	const void *result;
	const char *symbol;
	void *context;
	uint32_t context_uid;
	uint32_t pad2;
	uint64_t *data;		/* for the subscriber, from enter to exit */
	uint32_t corr;
	uint32_t pad3;
};
struct cupti_subscriber_params {	/* of cuptiSubscribe_v2, as of 13.0 */
	size_t size;
	const char *name;
	char *old_name;
	size_t old_name_size;
};

_Static_assert(offsetof(struct cupti_kernel, corr) == 92 &&
		       offsetof(struct cupti_kernel, name) == 104,
	       "ABI");
_Static_assert(offsetof(struct cupti_kernel_graph, node) == 144, "ABI");
_Static_assert(offsetof(struct cupti_kernel_graph, graph) == 156, "ABI");
_Static_assert(offsetof(struct cupti_call, corr) == 64, "ABI");

typedef void (*cupti_callback_fn)(void *ctx, uint32_t domain, uint32_t cbid, const void *data);
typedef void (*cupti_request_fn)(uint8_t **buf, size_t *size, size_t *max_records);
typedef void (*cupti_complete_fn)(void *context, uint32_t stream, uint8_t *buf, size_t size,
				  size_t valid);

#endif
