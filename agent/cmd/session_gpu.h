/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU work of the servers of a live capture: which processes are looked
 * into, how deep, and when. */
#ifndef TL_SESSION_GPU_H
#define TL_SESSION_GPU_H

#include "base/emit.h"
#include "source/bpf.h"
#include <stdbool.h>
#include <stdint.h>

struct session_gpu;
struct session_gpu_opts {
	struct src_bpf *bpf;
	struct emit out; /* semantic events */
	enum tl_gpu_level level; /* what is wanted, at most */
	uint32_t budget_ppm; /* of a server's speed; 0: the default */
	bool asked; /* by somebody, who wants to know if there is nothing of it */
	/* A process that is none of the session's targets turned out to use CUDA. 0 or -errno. */
	int (*adopt)(void *ctx, uint32_t tgid, uint32_t server);
	/* enum tl_tier bits that a process has got. 0 or -errno. */
	int (*tell_tiers)(void *ctx, uint32_t tgid, uint16_t tiers);
	void *ctx;
};

struct session_gpu *session_gpu__new(const struct session_gpu_opts *opts); /* NULL: out of memory */
void session_gpu__free(struct session_gpu *s); /* NULL is fine */

/* This process, its children and what they will start are looked into once they use CUDA. server:
 * the first process of its server. 0 or -errno. */
int session_gpu__add(struct session_gpu *s, uint32_t tgid, uint32_t server);
/* A process started another, or another program, or ended. */
int session_gpu__note(struct session_gpu *s, const struct tl_raw_proc *e);
/* A TL_GPU_LAUNCH that came out of src_bpf__poll. 0 or -errno of `out`. */
int session_gpu__launch(struct session_gpu *s, const struct tl_hdr *ev);
/* Each semantic event that is none of its own: what clients get tells what recording costs them. */
void session_gpu__see(struct session_gpu *s, const struct tl_hdr *ev);

/* To be called ten times a second, behind src_bpf__poll. 0 or -errno of `out`. */
int session_gpu__poll(struct session_gpu *s, uint64_t now_ns);
/* For tests: TL_NVML, the path of another NVML, "": none. NULL: the usual one. */
const char *session_gpu_nvml_path(void);
/* Devices that are partitioned, of which nothing is said. */
struct nvml;
uint32_t session_gpu_n_mig(const struct nvml *n);

/* Leaves all processes, taking what still arrives of what began before end_ns. */
int session_gpu__end(struct session_gpu *s, uint64_t end_ns);

#endif
