/* SPDX-License-Identifier: Apache-2.0 */
/* Evidence from the host: what threads of servers wait for, run for long, and in which code. */
#ifndef TL_SOURCE_HOST_H
#define TL_SOURCE_HOST_H

#include "base/emit.h"
#include "source/bpf.h"
#include <stdint.h>

struct host;

/* Loads and attaches what this kernel allows; what it does not shows in src_bpf__probes and in
 * doctor, and is no error. Its events come out of src_bpf__poll. Close it before `bpf`. -ENOMEM. */
int host__open(struct src_bpf *bpf, struct host **ret);
void host__close(struct host *h);	/* NULL is fine */

struct host_process {
	uint32_t tgid;
	uint32_t server;	/* tgid of the first process of its server */
	uint16_t engine;	/* enum tl_engine_kind */
	const char *role;	/* as struct engine_id says it */
	const char *title;	/* argv[0], "" if not known */
};
/* Follow the threads of this process from now on. -ENOMEM, or -E2BIG: too many processes. */
int host__add(struct host *h, const struct host_process *p);

/*
 * Takes every event that src_bpf__poll yields, in its order: learns from it, and makes evidence of
 * what is evidence. Returns 1 if the event was for it alone, 0 if it is for others, too, or -errno
 * of `out`.
 */
int host__take(struct host *h, const struct tl_hdr *ev, const struct emit *out);

/* To be called ten times a second at least: looks for new threads and at quotas, each in its own
 * time. 0 or -errno of `out`. */
int host__poll(struct host *h, uint64_t now_ns, const struct emit *out);
/* Says what it still holds back. */
int host__end(struct host *h, uint64_t now_ns, const struct emit *out);

#endif
