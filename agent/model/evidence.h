/* SPDX-License-Identifier: Apache-2.0 */
/* Evidence of who slowed whom, as it was recorded: threads, sockets, devices (tl_evidence.h). */
#ifndef TL_MODEL_EVIDENCE_H
#define TL_MODEL_EVIDENCE_H

#include "base/vec.h"
#include "tl_event.h"

/* Events as they came; evidence_finish() orders them by what they are
 * looked up with, then by time. */
struct evidence {
	VEC(struct tl_thread) threads;		/* tgid, tid, ts_ns: the last one counts */
	VEC(struct tl_thread_span) spans;	/* tgid, tid, since_ns */
	VEC(struct tl_throttle) throttles;	/* cgroup, since_ns */
	VEC(struct tl_code) codes;		/* tgid, tid, since_ns */
	VEC(struct tl_send_held) held;		/* req, since_ns */
	VEC(struct tl_send_blocked) blocked;	/* req, since_ns */
	VEC(struct tl_delivered) delivered;	/* req, by, ts_ns */
	VEC(struct tl_gpu_step) gpu_steps;	/* ts_ns */
	VEC(struct tl_gpu_state) gpu_states;	/* tgid, device, since_ns */
	VEC(struct tl_gpu_health) gpu_healths;	/* ts_ns */
	VEC(struct tl_clock) clocks;		/* ts_ns */
	VEC(struct tl_claim) claims;		/* req */
	uint64_t n_not_kept;			/* a table was full */
};

/* 0, -ENOMEM; -ENOENT: no kind of these. */
int evidence_on(struct evidence *e, const struct tl_hdr *ev);
void evidence_finish(struct evidence *e);
void evidence_free(struct evidence *e);

#endif
