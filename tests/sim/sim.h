/* SPDX-License-Identifier: Apache-2.0 */
/* How the simulated libcuda, the simulated libcupti and simserve speak to each other. */
#ifndef TL_SIM_H
#define TL_SIM_H

#include <stdint.h>

/*
 * The stand-ins replace NVIDIA's libraries under our own programs, at the driver API. A simulated
 * device computes nothing: it has streams, and what is put into a stream takes its time there.
 * As streams are FIFO, the times of a piece of work are known once it is enqueued; whoever waits
 * or asks compares them with the clock. All times inside are CLOCK_MONOTONIC; libcupti shows
 * them in a simulated CLOCK_REALTIME.
 *
 * A kernel takes the time that its function has by default; or, if kernelParams is not NULL,
 * kernelParams[0] points to the time in ns (uint64_t), and kernelParams[1] to a pointer, NULL or
 * to a time (uint64_t) before which the kernel does not end: a collective that waits for others.
 * That time is read at each launch, so that a captured graph can be told anew.
 *
 * Environment: TL_SIM_FAULT=NAME[=VALUE],...  TL_SIM_CUPTI_VERSION=N  TL_SIM_DRIFT_PPM=N
 * TL_SIM_NTP_STEP=AT_MS:NS (after libcuda was loaded)  TL_SIM_DEVICES=N  TL_SIM_HOLDER=NAME
 * TL_SIM_MACHINE=FILE (machine.h)  TL_SIM_LOG=FILE (libcupti appends what is subscribed and enabled in it, and no longer)
 */

enum sim_work_kind {
	SIM_KERNEL = 1, SIM_GRAPH = 2 /* all of one launch */, SIM_MEMCPY = 3, SIM_MEMSET = 4,
	SIM_SYNC = 5,		/* a host thread waited */
};
struct sim_work {		/* in a stream, with its times */
	uint32_t kind;		/* enum sim_work_kind */
	uint32_t corr;
	uint32_t device, context, stream;
	uint32_t graph;		/* id of the executable graph that it is part of, 0: none */
	uint32_t copy;		/* MEMCPY: 1 HtoD, 2 DtoH, 8 DtoD */
	uint32_t sync;		/* SYNC: 1 event, 3 stream, 4 context */
	uint32_t grid[3], block[3], shmem;
	uint32_t value;		/* MEMSET */
	uint64_t node;		/* id of the graph's node, 0: none */
	uint64_t bytes;
	uint64_t start_ns, end_ns;
	const char *name;	/* KERNEL: lives as long as the process */
};

struct sim_call {		/* a call of the driver API, under way on this thread */
	uint32_t cbid, corr;
	const char *name;
	const void *params;	/* the arguments, one after the other */
	int *ret;
	void *context;
	uint32_t context_id;
	uint64_t data;		/* for the subscriber, from enter to exit */
	int told;		/* enter was told, so exit will be */
};

enum { SIM_MAX_CBID = 1024, SIM_WORKS_KERNELS = 2 };

struct sim_hooks {		/* what libcupti wants to hear; may change while calls are under way */
	uint8_t wanted[SIM_MAX_CBID];	/* calls with this cbid */
	uint8_t works;			/* anything enqueued; SIM_WORKS_KERNELS: kernel by kernel */
	void (*call)(struct sim_call *c, int exit);
	void (*work)(const struct sim_work *w);
	uint64_t records;	/* made so far */
};

struct sim_driver {		/* what libcuda tells libcupti */
	uint64_t (*realtime)(uint64_t mono_ns);
	uint32_t (*stream_id)(void *stream);
	uint32_t (*graph_id)(void *graph_or_exec);
	uint32_t (*context_id)(void *context);
	uint32_t (*device_id)(void *context);
};

/* In libcuda. NULL: no more. Returns what the other side may call. */
typedef const struct sim_driver *(*sim_bind_fn)(struct sim_hooks *hooks);
#define SIM_BIND "tokenlag_sim_bind"

/* In libcuda: fn hears of everything enqueued by the calling thread, NULL: no more. */
typedef void (*sim_watch_fn)(void (*fn)(void *ctx, const struct sim_work *w), void *ctx);
#define SIM_WATCH "tokenlag_sim_watch"

#define SIM_API __attribute__((visibility("default")))

#endif
