/* SPDX-License-Identifier: Apache-2.0 */
/* The ring through which the library inside a target talks to the agent:
 * one memfd, mapped by both. */
#ifndef TL_RING_H
#define TL_RING_H

#include "tl_event.h"

/*
 * Events (tl_event.h) of several threads of the target go one way, orders of the agent the other.
 *
 * A writer reserves room by moving `head` (compare and swap, never waiting: no room means n_dropped
 * + 1), copies its event there, and last stores the event's first 8 bytes with a release: size and
 * kind, which were 0 before. The reader takes events from `tail` on until it meets a size of 0,
 * zeroes what it took, and moves `tail`. An event never wraps: the room up to the end of the ring
 * is skipped by an event of kind TL_NONE. Neither side trusts the other: indices are taken modulo
 * the ring's size, sizes are checked.
 */
#define TL_RING_MAGIC 0x31676e6972676c74ull	/* "tlgring1" */

enum tl_ring_order {		/* what the agent wants; the library follows within 10 ms */
	TL_ORDER_IDLE = 0,	/* subscribe to nothing */
	TL_ORDER_GRAPH = 1,	/* a record per graph launch, copies */
	TL_ORDER_KERNELS = 2,	/* a record per kernel */
	TL_ORDER_LEAVE = 3,	/* let go of CUPTI, stop the thread, never come back by itself */
};
enum tl_ring_state {		/* what the library does */
	TL_RING_STARTING = 0, TL_RING_IDLE = 1, TL_RING_ACTIVE = 2, TL_RING_LEFT = 3,
	TL_RING_REFUSED = 4,	/* cannot: `why` says it */
	TL_RING_LEAVING = 5,	/* told to, and all that it had is in the ring: lets go of CUPTI.
				 * `why`: by which call */
};

struct tl_ring {		/* at the start of the memfd; all counters only grow */
	__u64 magic;
	__u32 data_offset;	/* of the ring's data in the memfd */
	__u32 data_bytes;	/* a power of two */

	/* the agent writes */
	__u64 tail __attribute__((aligned(64)));
	__u64 heartbeat_ns;	/* CLOCK_MONOTONIC, at least twice a second: after 1.5 s without
				 * it the library behaves as if TL_ORDER_LEAVE had come */
	__u32 order;		/* low byte: enum tl_ring_order. Upper bits: a number
				 * of the agent's choice; a window that closed by
				 * itself opens again when any bit of this changes */
	__u32 max_records;	/* of one window; 0: 200,000 */
	__u32 max_window_ms;	/* 0: 2,000; both hold for GRAPH, too */
	__u32 flush_ms;		/* CUPTI's buffers are asked back so often; 0: 100 */

	/* the library writes */
	__u64 head __attribute__((aligned(64)));
	__u64 n_records, n_bad, n_dropped;	/* activity records; with impossible
						 * times; no room or no buffer */
	__u64 n_cupti_dropped;	/* as CUPTI says */
	__u64 n_launches;	/* seen by callbacks */
	__u64 callback_ns, record_ns;	/* its own time, sampled and scaled */
	__u64 overhead_ns;	/* CUPTI_ACTIVITY_KIND_OVERHEAD, all of them */
	__u32 state;		/* enum tl_ring_state */
	__u32 cupti_version;	/* as cuptiGetVersion says, 0: none */
	__u32 error;		/* last CUresult/CUptiResult that was not 0 */
	__u32 simulated;	/* 1: tests/sim stands in for NVIDIA's libraries */
	char why[128];		/* one sentence */
	__u32 owner;		/* pid, as it is in its own namespace, of the
				 * process whose library writes; 0: none. A second
				 * process that is given the ring leaves it alone */

	/* A library that was started with its process (CUDA_INJECTION64_PATH) keeps a ring among
	 * its descriptors, of the name TL_DOOR_NAME and its pid, as it is in its own namespace. An
	 * agent that opens /proc/PID/fd/N, which needs no right to trace, takes a lock on it
	 * (flock), waits until `state` is LEFT or REFUSED, makes the ring new but for this word,
	 * adds 1 to it, wakes who waits for it (futex), and is served when `answer` is equal. */
	__u32 knock;
	__u32 answer;
	__s32 answer_error;	/* 0, or -errno of tokenlag_start */
};
#define TL_DOOR_NAME "tokenlag-door-"

#endif
