/* SPDX-License-Identifier: Apache-2.0 */
/* CUPTI's activity records as the simulation writes them, and the sizes they have by version. */
#ifndef TL_SIM_RECORDS_H
#define TL_SIM_RECORDS_H

#include <stddef.h>
#include <stdint.h>

enum {				/* CUpti_ActivityKind */
	K_MEMCPY = 1, K_MEMSET = 2, K_CONCURRENT_KERNEL = 10, K_OVERHEAD = 17, K_SYNCHRONIZATION = 38,
	K_GRAPH_TRACE = 51, K_MAX = 64,
};

/*
 * Written from what tests/sim/abi.c measures on NVIDIA's headers. Fields that only newer versions have stand
 * at the end: a version's record is the first so many bytes.
 */
struct rec_kernel {
	uint32_t kind, pad0;
	uint64_t pad1;
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	int32_t grid[3], block[3];
	int32_t shmem_static, shmem_dynamic;
	uint32_t local_thread, local_total, corr;
	int64_t grid_id;
	const char *name;
	uint64_t pad2, queued, submitted;
	uint8_t launch_type, pad3[7];
	uint64_t graph_node;
	uint32_t pad4, graph;
	uint64_t pad5[7];
};
struct rec_memcpy {
	uint32_t kind;
	uint8_t copy, src_kind, dst_kind, flags;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, corr, runtime_corr, pad0;
	uint64_t pad1, graph_node;
	uint32_t graph, pad2[5];
};
struct rec_memset {
	uint32_t kind, value;
	uint64_t bytes, start, end;
	uint32_t device, context, stream, corr;
	uint32_t flags_kind, pad0;
	uint64_t pad1, graph_node;
	uint32_t graph, pad2[3];
};
struct rec_overhead {
	uint32_t kind, what, object_kind;
	uint32_t object[3];
	uint64_t start, end;
	uint32_t corr, pad0;
	uint64_t data;
};
struct rec_graph {
	uint32_t kind, corr;
	uint64_t start, end;
	uint32_t device, graph, context, stream;
	uint64_t pad[2];
};
struct rec_sync {
	uint32_t kind, type;
	uint64_t start, end;
	uint32_t corr, context, stream, event;
	uint64_t pad[2];
};
struct rec_callback {		/* CUpti_CallbackData */
	uint32_t site, pad0;
	const char *function;
	const void *params;
	void *ret;
	const char *symbol;
	void *context;
	uint32_t context_id, pad1;
	uint64_t *data;
	uint32_t corr, pad2;
};

_Static_assert(sizeof(struct rec_kernel) == 216 && offsetof(struct rec_kernel, corr) == 92 &&
	       offsetof(struct rec_kernel, name) == 104 && offsetof(struct rec_kernel, graph) == 156, "");
_Static_assert(sizeof(struct rec_memcpy) == 96 && offsetof(struct rec_memcpy, graph_node) == 64, "");
_Static_assert(sizeof(struct rec_memset) == 88 && offsetof(struct rec_memset, graph_node) == 64, "");
_Static_assert(sizeof(struct rec_overhead) == 56 && sizeof(struct rec_graph) == 56, "");
_Static_assert(sizeof(struct rec_sync) == 56 && sizeof(struct rec_callback) == 72, "");

/* Bytes of a record of this kind in a version of CUPTI (as cuptiGetVersion says it), 0: no such kind. 18 is taken for
 * 11.8; CUDA 12.0 and 12.1 say 18, too, but have kernels of 208 bytes. 20 is 12.2, 21 12.3, 22 12.4, 26 12.8.
 * A macro, so that tests/sim/abi.c can use it where the language wants a constant. */
#define REC_SIZE(kind, version)                                                                  \
	((kind) == K_CONCURRENT_KERNEL ? (version) >= 130000 ? 216 : (version) < 19 ? 200 : 208 : \
	 (kind) == K_MEMCPY ? (version) < 26 ? 88 : 96 :                                         \
	 (kind) == K_MEMSET ? 88 :                                                               \
	 (kind) == K_OVERHEAD ? (version) < 21 ? 40 : (version) < 22 ? 48 : 56 :                 \
	 (kind) == K_GRAPH_TRACE ? (version) < 21 ? 48 : 56 :                                    \
	 (kind) == K_SYNCHRONIZATION ? (version) < 26 ? 40 : 56 : 0)
static inline size_t rec_size(uint32_t kind, uint32_t version)
{
	return REC_SIZE(kind, version);
}

#endif
