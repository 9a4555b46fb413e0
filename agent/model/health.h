/* SPDX-License-Identifier: Apache-2.0 */
/* What must be known of the evidence before it is believed: broken, dropped, too
 * dear, out of step. Pure. */
#ifndef TL_MODEL_HEALTH_H
#define TL_MODEL_HEALTH_H

#include "model/model.h"

enum health_kind {		/* append only */
	HEALTH_GPU_BROKEN,	/* launches and no records: nothing is
				 * known of the device, it was not idle */
	HEALTH_GPU_BAD_STAMPS,	/* records whose times are none were dropped */
	HEALTH_GPU_BUDGET,	/* observing cost too much: what was
				 * measured meanwhile is tainted */
	HEALTH_GPU_BUSY,	/* another tool has the device's records */
	HEALTH_GPU_DROPPED,	/* records were lost */
	HEALTH_GPU_STEPPED_DOWN, /* for none of these reasons */
	HEALTH_CLOCK_STEP,	/* wall time jumped: intervals are not concerned */
	HEALTH_HANG,		/* a rank never entered a collective that others wait in */
	HEALTH_COMMUNICATION,	/* most of the steps is moving data, on all ranks alike */
	HEALTH_NOT_KEPT,	/* evidence beyond what tables hold */
	HEALTH_STOPPED,		/* threads of a server were stopped or frozen for
				 * so long that requests may not even be read */
	HEALTH_GPU_NO_PROBES,	/* launches are not seen: no probe could be set */
	HEALTH_GPU_WAITS,	/* records are wanted, and something has to come first */
	HEALTH_GPU_NO_STATE,	/* clocks, neighbours and memory of devices are not seen */
};
struct health_note {
	uint8_t kind;		/* enum health_kind */
	uint8_t level, to_level;	/* enum tl_gpu_level: before and from then on */
	uint32_t tgid;		/* of the process (HANG, COMMUNICATION, STOPPED:
				 * the server) that is concerned, 0: none */
	uint64_t t0_ns, t1_ns;	/* the span that it is about */
	uint64_t n, of;		/* BROKEN: launches, at least; BUDGET: spans; BAD_STAMPS,
				 * DROPPED: records, of so many; NOT_KEPT: events; STOPPED:
				 * 1 if they still were when the recording ended */
	uint64_t missing, waiting;	/* HANG: ranks, bit i: rank i */
	uint32_t n_ranks;	/* COMMUNICATION, and on the mean of them and of the steps: */
	uint64_t collective_ns, step_ns;
	int64_t jump_ns;	/* CLOCK_STEP: by how much */
	uint32_t ppm;		/* BUDGET: of the target's speed, in the worst of n spans */
	char holder[32];	/* BUSY: who has them, "" if not known */
	uint32_t stopped;	/* STOPPED: the process that was: tgid if that one,
				 * alone or not, else one of its server ... */
	bool several;		/* ... and others of it */
	char why[192];		/* of GPU_*: in words, "" if that is all */
};
enum { MAX_HEALTH_NOTES = 64 };
struct health {
	struct health_note v[MAX_HEALTH_NOTES];
	size_t n;
	uint64_t n_not_kept;	/* notes beyond these */
};

/* One note per process and kind, by time. 0 or -ENOMEM. The model must be finished. */
int health_notes(const struct model_view *v, struct health *ret);

#endif
