/* SPDX-License-Identifier: Apache-2.0 */
/* What GPUs did for steps and requests, launch by launch: made when the model is finished, read by sinks. Pure. */
#ifndef TL_MODEL_GPU_H
#define TL_MODEL_GPU_H

#include "tl_event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPU_UNKNOWN UINT64_MAX	/* of times: nobody knows; never idle, never 0 */

enum gpu_phase {		/* append only */
	GPU_PREFILL, GPU_DECODE, GPU_SAMPLING, GPU_COPY, GPU_COLLECTIVE,
	GPU_OUTSIDE,		/* of no step that is known */
	N_GPU_PHASES
};

/* Of one step. Times on the device are those of the first rank of which any are known. */
struct gpu_step {
	uint64_t launch_ns;		/* the host entered its first launch; 0: not seen */
	uint64_t launching_ns;		/* from its first launch of a kernel or a graph to the end of the last; 0: not seen */
	uint64_t gpu0_ns, gpu1_ns;	/* first and last thing on the device; 0: not known */
	uint64_t busy_ns;		/* union of what ran; GPU_UNKNOWN */
	uint64_t idle_ns;		/* of the time since the step before it ended there, if they follow each other,
					 * else since its launch; GPU_UNKNOWN */
	uint32_t launches;		/* of kernels and graphs by the host */
	uint16_t graph;			/* enum tl_graph */
	bool seen;			/* all its graph launches were; else graph means nothing */
	bool sized;			/* what sizes its graphs have can be told; else TL_GRAPH_HIT may be a padded one, too */
	bool at_least;			/* kernels of it have no record: busy_ns is no less, idle_ns no more than that */
	bool counted;			/* all its launches were; else `launches` means nothing */
};
struct gpu_kernel {		/* all of one name in one phase */
	char name[64];		/* short, as people know it */
	uint8_t phase;		/* enum gpu_phase */
	uint64_t n, total_ns, p50_ns;
	size_t first_on, n_on;	/* kernels_on: the same of each device that it ran on, 1 or more */
};
struct gpu_kernel_on {
	uint32_t tgid, device;	/* as in gpu_device; tgid 0: of several, more than are told apart */
	uint64_t n, total_ns, p50_ns;
};
struct gpu_device {		/* as one process sees it, while its records were taken */
	uint32_t tgid, device;
	uint16_t rank;
	uint64_t seen_ns, busy_ns, copy_ns;	/* copies: while no kernel ran */
	uint64_t missed_ns;	/* of windows, no part of seen_ns: something without a record may have run */
	bool at_least;		/* kernels outside of graphs have no record: so much was busy, and idle is not known */
	uint64_t wait_ns;	/* in collectives, beyond what the shortest of the ranks took; GPU_UNKNOWN */
};
struct gpu_time {		/* in which records of a process were taken */
	uint32_t tgid;
	uint64_t t0_ns, t1_ns;
};
struct gpu_share {		/* of a request */
	uint64_t prefill_ns, decode_ns;	/* GPU_UNKNOWN */
	bool prefill_shared, decode_shared;	/* with others in the same steps: split by tokens */
};
struct gpu_launcher {		/* a thread that makes a good part of its process's launches */
	uint32_t tgid, tid;
};
struct gpu_counts {		/* what came, and what could be made of it */
	uint64_t launches, spans;	/* kernels, graphs and copies */
	uint64_t doubles;		/* launches that two sources told */
	uint64_t spans_joined;		/* to a launch */
	uint64_t spans_in_steps;
	uint64_t by_order;		/* of those joined, for want of an id that could be believed */
	uint64_t not_kept;		/* beyond what is held in memory */
};
struct gpu_facts {		/* all zeros: no launch and no record in this recording */
	struct gpu_step *steps;		/* by index of the step */
	struct gpu_share *shares;	/* by index of the request */
	size_t n_steps, n_shares;
	struct gpu_kernel *kernels;	/* by phase, the longest first */
	size_t n_kernels;
	struct gpu_kernel_on *kernels_on;
	size_t n_kernels_on;
	struct gpu_device *devices;
	size_t n_devices;
	struct gpu_launcher *launchers;	/* by tgid, tid */
	size_t n_launchers;
	struct gpu_time *windows;	/* by process, then by time */
	size_t n_windows;
	struct gpu_counts counts;
	uint64_t unseen_ns;	/* in which nobody looked for single kernels of a process: of that with the most of it */
	size_t n_inferred_steps;	/* made of launches, for want of a wire that tells of steps ... */
	size_t n_stretches;	/* ... without others between them; more than 1: nobody saw what ran meanwhile */
};
void gpu_facts_free(struct gpu_facts *f);	/* as made, or all zeros */

/* gpu_names.c: the function of a kernel without its scope, template and arguments. */
void gpu_short_name(const char *mangled, char *ret, size_t size);
bool gpu_is_collective(const char *short_name);
bool gpu_is_sampling(const char *short_name);

#endif
