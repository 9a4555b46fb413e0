/* SPDX-License-Identifier: Apache-2.0 */
/* What the pieces that probe libcuda share among themselves. */
#ifndef TL_SOURCE_CUDA_PRIV_H
#define TL_SOURCE_CUDA_PRIV_H

#include "base/vec.h"
#include "source/bpf_uprobe.h"
#include "source/cuda.h"
#include <linux/types.h>
#include <sys/types.h>
#include "../../bpf/cuda_tally.h"

/* ---- cuda_calls.c: where in a libcuda the functions are ---- */

enum cuda_group {		/* functions that are probed alike, by
				 * the programs of bpf/cuda.bpf.c */
	CUDA_LAUNCHES = 0,	/* where they begin */
	CUDA_KERNELS = 1,	/* the same, but these may be too many */
	CUDA_TIMED = 2,		/* where they begin and return */
	N_CUDA_GROUPS = 3,
};
enum { CUDA_MAX_PLACES = 64 };	/* of one group */

struct cuda_places {		/* in one file */
	struct bpf_uprobe_place at[N_CUDA_GROUPS][CUDA_MAX_PLACES];
	size_t n[N_CUDA_GROUPS];
	size_t n_dear[N_CUDA_GROUPS];	/* where the kernel has to single-step */
	char dear[48];			/* one of those: its name ... */
	const char *dear_insn;		/* ... and first instruction */
};
/* Cookies are for the process of this slot, or CUDA_ANY. few: only those functions without which
 * steps are not to be told. -ENOENT: the file has none of the functions. */
int cuda_places_find(int fd, uint16_t slot, bool few, struct cuda_places *ret);
bool cuda_is_library(const char *path);	/* by the name of its file */
uint64_t cuda_trial_cookie(void);	/* a launch of a kernel, for cuda_price_measure() */
enum { CUDA_TRIAL_SLOT = 0 };		/* no process has it */

/* ---- cuda_price_x86_64.c: what a probe costs here ---- */

struct cuda_price {		/* ns per call, 0: could not be measured */
	uint32_t cheap_ns, dear_ns;	/* by the instruction under the probe (insn_x86_64.h) */
	uint32_t counted_ns;		/* cheap, and CUDA_COUNTED */
};
/* Lets this very process pay for some calls of functions of its own. `prog` is the program of
 * launches, `cookie` makes it a trial, `mode` is that of the cookie's slot. */
void cuda_price_measure(struct bpf_program *prog, bool multi, uint64_t cookie,
			volatile uint32_t *mode, struct cuda_price *ret);

/* ---- the whole ---- */

enum cuda_level {		/* what is seen of single launches */
	CUDA_LEVEL_EACH = CUDA_EACH, CUDA_LEVEL_COUNTED = CUDA_COUNTED,
	CUDA_LEVEL_OFF = 2,	/* nothing: their probes are taken off */
};

enum { CUDA_EVERYONE = 0xffffffff };	/* a tgid: -1 */

struct cuda_file {		/* a libcuda that a process maps */
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	int fd;				/* -1: the probes in it are those of `everyone` */
	struct bpf_uprobe_place kernels[CUDA_MAX_PLACES];
	size_t n_kernels;
};

struct cuda_probes {		/* a VEC */
	struct bpf_uprobe *v;
	size_t n, cap;
};

struct cuda_process {
	uint32_t tgid;
	uint16_t slot;			/* in the tallies; CUDA_ANY: of everyone */
	VEC(struct cuda_file) files;
	struct cuda_probes probes, kernel_probes;
	int n_functions, n_kernel_functions;
	bool kernels_dear;		/* of the probes on single launches,
					 * some have to be single-stepped */

	/* cuda_budget.c */
	uint8_t level;			/* enum cuda_level */
	uint8_t n_calm;			/* seconds in a row in which there was
					 * room for an event per launch */
	uint64_t since_ns, seen;	/* this second began then, with so many launches */
	bool off_untold;
	uint64_t off_ns;		/* since when nothing is seen */
	uint64_t retry_ns, pause_ns;	/* when to look again; how long after
					 * that, if it is too much still */
};

struct cuda_bpf;
struct cuda {
	struct src_bpf *bpf;
	struct cuda_bpf *skel;
	bool multi;
	struct cuda_opts opts;
	struct cuda_price price;
	bool priced, counted;		/* counted: some process was CUDA_LEVEL_COUNTED */
	/* Without multi-uprobe links each probe is a perf event of its own, and one is slow to
	 * take off: they are made once for all processes, and programs tell ours from others.
	 * NULL: none yet, or not needed. */
	struct cuda_process *everyone;
	struct cuda_tally *tallies;	/* shared with the programs */
	struct cuda_burst *bursts;	/* the same */
	VEC(struct cuda_process *) processes;
};

/* cuda.c: the probes on single launches of one process. Number of functions, or -errno. */
int cuda_kernels_attach(struct cuda *c, struct cuda_process *p);
void cuda_kernels_detach(struct cuda_process *p);

/* cuda_budget.c */
void cuda_budget_begin(struct cuda *c, struct cuda_process *p, uint64_t now_ns);
int cuda_budget_poll(struct cuda *c, struct cuda_process *p, uint64_t now_ns,
		     const struct emit *out);
/* Those that are over. */
int cuda_bursts_say(struct cuda *c, uint64_t now_ns, const struct emit *out);
uint32_t cuda_hit_ns(const struct cuda *c, bool dear);	/* measured, else what is usual */

#endif
