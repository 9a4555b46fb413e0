/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What programs on libcuda and the agent tell each other: cookies of probes,
 * counts in shared memory. */
#ifndef TL_CUDA_TALLY_H
#define TL_CUDA_TALLY_H

/*
 * The cookie of a probe says which call it stands on, where the call's arguments of interest are,
 * and in which process. Places of arguments: 0 is nowhere, 1 to 6 are registers, 7 to 14 the
 * stack; CUDA_CONFIG is the stream in the CUlaunchConfig that argument 1 points to,
 * CUDA_CONFIG_STREAM bytes from its start.
 */
enum { CUDA_CONFIG = 15, CUDA_CONFIG_STREAM = 32 };
enum { CUDA_ANY = 0xffff };	/* no slot: see CUDA_SLOT_SHIFT */
enum cuda_cookie {
	CUDA_CALL_SHIFT = 0,		/* enum tl_gpu_call, 8 bits */
	CUDA_STREAM_SHIFT = 8,		/* places, 4 bits each */
	CUDA_WHAT_SHIFT = 12,
	CUDA_BYTES_SHIFT = 16,
	CUDA_FLAGS_SHIFT = 24,		/* enum tl_launch_flag, 8 bits */
	CUDA_SLOT_SHIFT = 32,		/* of its process in `tallies`, 16
					 * bits; CUDA_ANY: look it up */
	CUDA_TRIAL_SHIFT = 48,		/* 1: all of the work, but no event */
	CUDA_DEAR_SHIFT = 49,		/* 1: the instruction under the probe is single-stepped */
};

enum cuda_mode {
	CUDA_EACH = 0,			/* an event per launch of a kernel */
	CUDA_COUNTED = 1,		/* one per burst of them */
};

struct cuda_tally {			/* of a process; counts only go up */
	__u64 kernels, graphs, syncs, copies;
	__u64 runs, dear_runs;		/* of our programs; of these, behind
					 * an instruction that is dear */
	__u64 run_ns;			/* sampled */
	__u32 mode;			/* enum cuda_mode, written by the agent */
	__u32 pad;
};
_Static_assert(sizeof(struct cuda_tally) == 64, "a cache line");

/* Launches of one thread since it last waited. Its place is given by the low bits of the thread's
 * id; another thread that needs the place first tells of this one's. */
struct cuda_burst {
	__u64 id;			/* tgid and tid */
	__u64 n;
	__u64 first_ns, last_ns;
	__u64 stream, what;		/* of the last launch */
	__u64 many;			/* they were not the same for all */
	__u64 pad;
};
enum { CUDA_MAX_BURSTS = 1024, CUDA_MAX_PROCESSES = 1024 };

#endif
