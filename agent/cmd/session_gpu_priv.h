/* SPDX-License-Identifier: Apache-2.0 */
/* Seam inside of session_gpu: processes are entered and left in one file, servers are governed in another. */
#ifndef TL_SESSION_GPU_PRIV_H
#define TL_SESSION_GPU_PRIV_H

#include "base/map.h"
#include "cmd/session_gpu.h"
#include "engine/governor.h"
#include "source/gpu.h"

#define SECOND_NS 1000000000ull

struct gpu_process {
	uint32_t server;
	bool uses_cuda, adopted, probed;
	bool leaving;
	bool refused;		/* it cannot be recorded ... */
	uint64_t wait_ns;	/* since when its library waits for CUPTI; 1: that was said */
	enum tl_gpu_trouble trouble;	/* ... for this reason */
	struct gpu *gpu;	/* NULL: not entered */
	struct gpu_counts before;	/* at the last look */
	uint64_t look_ns, pause_ns;	/* when to look at it again; 0: never */
};

struct gpu_server {
	struct governor gov;
	uint64_t chunk_ns;	/* the last chunk that a client got, 0: none yet */
	uint64_t launch_ns;	/* the last launch that probes saw */
};

struct session_gpu {
	struct session_gpu_opts opts;
	struct map *processes;	/* tgid -> struct gpu_process */
	struct map *servers;	/* tgid of the first process -> struct gpu_server */
	struct map *streams;	/* request and choice -> ns of the last chunk */
	int err;		/* of opts.out */
};

/* An event of a process: into opts.out, whose error is kept. For gpu__poll. */
void session_gpu_pass(void *ctx, const struct tl_hdr *ev);
/* session_gpu_servers.c: what governors say of all that was seen since the last time, done. */
void session_gpu_govern(struct session_gpu *s, uint64_t now_ns);

#endif
