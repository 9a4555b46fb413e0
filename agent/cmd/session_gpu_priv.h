/* SPDX-License-Identifier: Apache-2.0 */
/* Seams inside of session_gpu: processes are entered and left, servers are
 * governed, launches are seen. */
#ifndef TL_SESSION_GPU_PRIV_H
#define TL_SESSION_GPU_PRIV_H

#include "base/map.h"
#include "base/units.h"
#include "cmd/session_gpu.h"
#include "engine/governor.h"
#include "engine/twins.h"
#include "source/cuda.h"
#include "source/gpu.h"
#include "source/nvml.h"
#include "source/nvml_view.h"

struct gpu_probed_window {		/* of the library's, as probes see it */
	uint64_t open_ns, close_ns;	/* 0: none, or not yet */
	bool graphs;		/* no records of single kernels are asked for */
	uint64_t n_launches;	/* that should have given a record */
	struct gpu_counts before;	/* what the library had told of before it */
};

struct gpu_process {
	uint32_t server;
	bool uses_cuda, simulated, adopted, probed;
	bool probes_refused;	/* ... and that was said */
	bool leaving, gone;
	bool ordered; /* the window that is open is open here, too */
	bool refused; /* it cannot be recorded ... */
	uint64_t entered_ns;
	uint64_t retry_ns; /* since the last try: what kept it from
			    * being entered may have passed by then */
	uint64_t wait_ns; /* since when its library waits for CUPTI; 1: that was said */
	enum tl_gpu_trouble trouble; /* ... for this reason */
	struct gpu *gpu; /* NULL: not entered */
	struct gpu_counts before; /* at the last look */
	struct gpu_probed_window window;
	uint64_t look_ns, pause_ns; /* when to look at it again; 0: never */
	uint64_t devices; /* that it is on, by NVML's index */
	bool sought, viewed; /* ... was asked for; `view` was made */
	struct nvml_view view;
	struct tl_gpu_state state; /* as it was said last */
};

struct gpu_server {
	struct governor gov;
	uint64_t chunk_ns; /* the last chunk that a client got, 0: none yet */
	uint64_t launch_ns; /* the last launch that probes saw */
	bool looked; /* at all its processes, for libcuda */
};

struct session_gpu {
	struct session_gpu_opts opts;
	struct map *processes; /* tgid -> struct gpu_process */
	struct map *servers; /* tgid of the first process -> struct gpu_server */
	struct map *streams; /* request and choice -> ns of the last chunk */
	struct cuda *cuda; /* NULL: not needed yet, or not to be had */
	struct cuda_cost cost; /* of it, at the last look */
	struct twins *twins;
	bool no_probes;
	char no_probes_why[128];
	struct nvml *nvml; /* NULL: not needed yet, or not to be had */
	bool no_nvml, mig_said;
	uint64_t seek_ns, seek_pause_ns; /* when to look for processes on all devices */
	uint64_t free_bytes[NVML_MAX_DEVICES]; /* 0: not known */
	bool uses_cuda; /* one of its processes does, or did */
	bool any_gone, any_new; /* processes, servers */
	uint64_t end_ns; /* of the capture: what comes later is left out; 0: it goes on */
	int err; /* of opts.out */
};

/* An event of a process: into opts.out, whose error is kept. For gpu__poll. */
void session_gpu_pass(void *ctx, const struct tl_hdr *ev);

struct gpu_reason {
	enum tl_gpu_trouble trouble;
	uint32_t ppm;		/* BUDGET: of the process's speed ... */
	uint64_t since_ns, until_ns;	/* ... in this time; 0: now */
	char holder[32];	/* BUSY */
	char why[192];
};
/* The level of a process that has no library to say it; why: NULL if there is nothing to say. */
void session_gpu_say_level(struct session_gpu *s, uint32_t tgid, const struct gpu_process *p,
			   enum tl_gpu_level from, enum tl_gpu_level to, const struct gpu_reason *why);

/* session_gpu_words.c: adds what can be done, as far as there is room, to what a library says and
 * to why a process could not be entered. */
void session_gpu_advise(char *why, size_t size);
void session_gpu_advise_entry(int err, char *why, size_t size);
/* A subscriber that calls itself tokenlag: another agent, with another libtokenlag.so. Then who
 * it is, in holder and why. */
void session_gpu_name_holder(uint32_t tgid, char holder[32], char *why, size_t size);

/* session_gpu_launches.c: probes on libcuda. 0, -ENOMEM, or -errno of opts.out. */
int session_gpu_probe(struct session_gpu *s, uint32_t tgid, struct gpu_process *p);
/* A window closed in which probes saw launches, and CUPTI none: it is left. */
void session_gpu_judge_window(uint32_t tgid, struct gpu_process *p);
void session_gpu_unprobe(struct session_gpu *s, uint32_t tgid, struct gpu_process *p);
int session_gpu_poll_probes(struct session_gpu *s, uint64_t now_ns);
int session_gpu_end_probes(struct session_gpu *s);
void session_gpu_close_probes(struct session_gpu *s);
uint64_t session_gpu_probes_ns(
	struct session_gpu *s); /* what they cost all targets since the last call */

/* session_gpu_nvml.c: clocks, neighbours, memory. 0, -ENOMEM, or -errno of opts.out. */
int session_gpu_poll_nvml(struct session_gpu *s, uint64_t now_ns);
void session_gpu_close_nvml(struct session_gpu *s);
uint64_t session_gpu_free_bytes(const struct session_gpu *s,
				const struct gpu_process *p); /* 0: not known */

/* session_gpu_servers.c: what governors say of all that was seen since the last
 * time, done. 0 or -ENOMEM. */
int session_gpu_govern(struct session_gpu *s, uint64_t now_ns);
/* What is known by now of the last window. */
void session_gpu_end_govern(struct session_gpu *s, uint64_t now_ns);

#endif
