/* SPDX-License-Identifier: Apache-2.0 */
/* The library's one state, and what its files do for each other. */
#ifndef TL_TARGET_TARGET_H
#define TL_TARGET_TARGET_H

#include "buffers.h"
#include "clocks.h"
#include "cupti.h"
#include "guard.h"
#include "names.h"
#include "ring.h"

#include "tl_event.h"

enum { N_SHARDS = 64, MAX_SPANS = 32 };
enum { CALL_TIMEOUT_MS = 1500, SUBSCRIBE_TIMEOUT_MS = 60000 };

enum phase { PHASE_FREE = 0, PHASE_TAKEN = 1 };		/* by a thread of ours */

struct shard {			/* of threads of the target, which rarely share one */
	uint32_t n_inside;	/* callbacks at the end of a call */
	uint32_t n_calls;	/* that were told */
	uint32_t n_work;	/* those of them that should give a record of a kernel or a graph */
	uint32_t tid;		/* of the thread `thread`, asked at tid_ns */
	uint64_t thread, tid_ns;
} __attribute__((aligned(64)));

struct window {
	uint32_t level;		/* enum tl_ring_order: GRAPH or KERNELS; 0: none is open */
	uint64_t begin_ns, first_launch_ns, flush_ns, overhead_ns;
	uint64_t n_records, n_bad, n_device;	/* n_device: kernels or graphs */
	uint64_t judged_records, judged_bad;	/* of those */
	uint64_t n_launches;	/* that should give a record on this level; as counted last */
	uint64_t n_captures;	/* of streams into graphs */
	uint64_t discarded_bytes;
	bool closing;		/* what did not end is cut off, which is no fault */
};

struct target {
	struct ring ring;
	struct cupti cupti;
	struct buffers buffers;
	struct names names;
	struct clocks clocks;
	struct guard guard;
	struct window window;

	uint32_t phase;		/* enum phase */
	uint32_t off;		/* callbacks do nothing */
	uint32_t dead;		/* CUPTI hung or gave up: never again in this process */
	char dead_why[128];
	uint32_t fatal;		/* CUPTI says that it gave up */
	uint64_t detach_thread;	/* ours, in a call at whose end CUPTI is let go */
	uint32_t level;		/* enum tl_ring_order, as the callbacks see it */
	uint32_t any_graphs;	/* graph launches were seen */

	void *subscriber;	/* NULL: not subscribed */
	bool callbacks;		/* launches are asked for, of level callbacks_level */
	uint32_t callbacks_level;
	uint32_t pid;
	uint64_t told_clock_ns, last_pair_ns;
	uint64_t asked_cuda_ns;	/* whether it is in use */

	uint32_t n_calls, n_work;	/* of all shards, when they were counted last */
	uint32_t n_spans;
	struct tl_gpu_span spans[MAX_SPANS];	/* to be put into the ring together */
	uint32_t seen[1024];	/* correlation ids of launches that were told */
	struct shard shards[N_SHARDS];
};
extern struct target target;

/* target.c */
void target__say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Closes a guarded call; < 0: it failed, or was given up (-ECANCELED). */
int target__call(const char *name, int result);

/* launches.c */
void launches__on_callback(void *ctx, uint32_t domain, uint32_t cbid, const void *data);
int launches__enable(bool on, uint32_t level);
bool launches__drained(void);		/* no thread is inside a callback that uses the ring */
void launches__count(void);		/* for the window and for the agent, what is new */

/* records.c */
void records__on_request(uint8_t **buf, size_t *size, size_t *max_records);
void records__on_complete(void *context, uint32_t stream, uint8_t *buf, size_t size, size_t valid);
int records__read_clock(bool settled);	/* a pair of clocks */
void records__mark(uint32_t flags);	/* TL_CLOCK_OPENS or CLOSES: of a window, now */
int records__drain(void);		/* all full buffers into the ring */

/* window.c */
int window__begin(uint32_t level);
int window__tick(void);		/* 1: it is over; < 0: it broke, and why was said */
int window__end(void);
int window__let_go(void);	/* of CUPTI */

#endif
