/* SPDX-License-Identifier: Apache-2.0 */
/* Calls into libcuda, seen from outside by uprobes: launches, waits, copies,
 * allocations (tl_gpu_launch). */
#ifndef TL_SOURCE_CUDA_H
#define TL_SOURCE_CUDA_H

#include "source/bpf.h"
#include <stdbool.h>
#include <stdint.h>

struct cuda;
struct cuda_opts {
	uint32_t kernel_budget_ppm;	/* of a core, for probes on single kernel launches;
					 * beyond it they are taken off and only counted
					 * calls are left. 0: default 10,000 (1 %) */
	bool no_kernels;	/* leave single kernel launches alone:
				 * graph launches, waits and copies only */
	bool one_by_one;	/* attach as on kernels without multi-uprobe
				 * links (before 6.6). For tests */
	bool count_kernels;	/* never an event per single launch: one per burst of them, n > 1 */
};
/* Its events come out of src_bpf__poll as TL_GPU_LAUNCH, in the order of their end. Close it before
 * `bpf`. 0, -ENOMEM, or -errno of loading with *why set. */
int cuda__open(struct src_bpf *bpf, const struct cuda_opts *opts, struct cuda **ret,
	       const char **why);
void cuda__close(struct cuda *c);	/* NULL is fine */

/* Probes the libcuda that this process has mapped, by inode. `why` (160 bytes) gets one
 * sentence on what is not probed. Returns how many functions are, -ENOENT: it has none (may
 * come later), or -errno. Idempotent. */
int cuda__add(struct cuda *c, uint32_t tgid, char why[160]);
void cuda__del(struct cuda *c, uint32_t tgid);

/* To be called ten times a second: keeps the budget, says counted
 * launches. 0 or -errno of `out`. */
int cuda__poll(struct cuda *c, uint64_t now_ns, const struct emit *out);

struct cuda_cost {
	uint64_t run_ns, runs;	/* of our programs in the targets; a run
				 * is a hit, but for calls within calls */
	uint64_t paid_ns;	/* by the callers, traps included: the
				 * runs at the price measured here */
	uint64_t launches, graph_launches, syncs;
	uint32_t per_hit_ns;	/* that price, of the cheaper kind: measured
				 * with the first process; 0: not known */
	uint32_t dear_hit_ns;	/* where the kernel has to single-step an instruction */
	bool kernels_off;	/* the budget took single launches off, of one process at least */
	bool kernels_counted;	/* the same, but bursts of them are still told */
};
void cuda__cost(const struct cuda *c, struct cuda_cost *ret);

#endif
