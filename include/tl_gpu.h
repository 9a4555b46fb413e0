/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* What was launched and what ran on GPUs: part of the event ABI, included by tl_event.h only. */
#ifndef TL_GPU_H
#define TL_GPU_H

/*
 * Launches are seen on the host (uprobes on libcuda, or CUPTI's callbacks), spans on the device
 * (CUPTI's activity records). One is tied to the other by the correlation id where both have one,
 * else by the order in their stream. Device times arrive in CLOCK_REALTIME and are mapped by pairs
 * of clocks (TL_CLOCK) before they become events: ts_ns is CLOCK_MONOTONIC here as everywhere.
 */

enum tl_gpu_call {		/* what the host did; append only */
	TL_CALL_KERNEL = 1,	/* cuLaunchKernel and its kin */
	TL_CALL_GRAPH = 2,	/* cuGraphLaunch */
	TL_CALL_SYNC = 3,	/* waited for a stream, an event, a context */
	TL_CALL_COPY = 4,	/* a copy, synchronous or queued */
	TL_CALL_ALLOC = 5,	/* device memory */
	TL_CALL_LOAD = 6,	/* a module or a library of code */
};
enum tl_launch_flag {		/* in tl_hdr.flags; those of copies are not known of all */
	TL_LAUNCH_WAITS = 1 << 0, /* COPY: the call returns when it is done */
	TL_LAUNCH_TO = 1 << 1,	/* COPY: from host to device */
	TL_LAUNCH_FROM = 1 << 2, /* COPY: from device to host */
	TL_LAUNCH_FREE = 1 << 3, /* ALLOC: memory was given back */
	TL_LAUNCH_MANY = 1 << 4, /* n > 1: several streams or functions;
				  * `stream` and `what` are of the last */
	TL_LAUNCH_FAILED = 1 << 5, /* it returned an error */
	TL_LAUNCH_UNSEEN = 1 << 6, /* KERNEL, n is 0: nobody looked for them, from ts_ns on
				    * and for dur_ns; 0: it is not known yet for how long */
};
struct tl_gpu_launch {
	struct tl_hdr hdr;	/* tgid, tid; ts_ns: the call was entered */
	__u64 dur_ns;		/* until it returned; 0: not seen. n
				 * > 1: until the last was entered */
	__u64 corr;		/* CUPTI's correlation id, 0: not known */
	__u64 stream, what;	/* handles as the driver API has them:
				 * CUstream; CUgraphExec or CUfunction */
	__u64 bytes;		/* COPY, ALLOC */
	__u32 n;		/* calls that this event stands for: more
				 * than 1 where they were counted only */
	__u16 call;		/* enum tl_gpu_call */
	__u16 pad;
};

enum tl_gpu_span_what {		/* append only */
	TL_SPAN_KERNEL = 1,
	TL_SPAN_GRAPH = 2,	/* all of one launch */
	TL_SPAN_MEMCPY = 3,
	TL_SPAN_MEMSET = 4,
	TL_SPAN_OVERHEAD = 5,	/* CUPTI's own work */
};
struct tl_gpu_span {
	struct tl_hdr hdr;	/* tgid; ts_ns: it began on the device */
	__u64 end_ns;
	__u64 corr;		/* 0: not known */
	__u64 bytes;		/* MEMCPY, MEMSET */
	__u32 device, stream;	/* stream: CUPTI's number of it */
	__u32 name;		/* KERNEL: tl_gpu_name.id, 0: none */
	__u32 graph;		/* CUPTI's graph id, 0: none */
	__u16 what;		/* enum tl_gpu_span_what */
	__u16 copy;		/* MEMCPY: CUpti_ActivityMemcpyKind (1: HtoD, 2: DtoH, 8: DtoD) */
	__u32 pad;
};

struct tl_gpu_name {		/* comes before the first span that has its id */
	struct tl_hdr hdr;	/* tgid: ids are of the process */
	__u32 id;		/* from 1 */
	__u32 pad;
	char name[128];		/* of the kernel, mangled; cut with TL_F_TRUNC */
};

_Static_assert(sizeof(struct tl_gpu_launch) == 24 + 40 + 8, "ABI");
_Static_assert(sizeof(struct tl_gpu_span) == 24 + 24 + 24, "ABI");
_Static_assert(sizeof(struct tl_gpu_name) == 24 + 8 + 128, "ABI");

#endif
