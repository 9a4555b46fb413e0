/* SPDX-License-Identifier: Apache-2.0 */
/* Launches and spans of GPUs inside the model: how they are kept, joined and cut into steps. */
#ifndef TL_GPU_PRIV_H
#define TL_GPU_PRIV_H

#include "base/map.h"
#include "base/vec.h"
#include "model/gpu.h"
#include "model/model.h"
#include "model/step_index.h"

enum { GPU_MAX_PROCESSES = 1024, GPU_MAX_SPANS = 8000000, GPU_MAX_LAUNCHES = 4000000, GPU_MAX_NAMES = 65536,
       GPU_MAX_PARENTS = 65536, GPU_MAX_UNSEEN = 65536 };

enum gpu_launch_flag { GPU_L_DTOH = 1, GPU_L_JOINED = 2, GPU_L_DOUBLE = 4, GPU_L_WAITS = 8 };
struct gpu_launch {
	uint64_t ts_ns, stream, what;
	uint32_t dur_ns;	/* saturates */
	uint32_t corr, tid, n;
	uint32_t burst;		/* index + 1, 0: of none */
	uint8_t call;		/* enum tl_gpu_call */
	uint8_t flags;
	bool many;		/* a probe counted them */
};
struct gpu_span {
	uint64_t t0_ns, t1_ns;
	uint32_t corr, graph, stream;
	uint32_t name;		/* index + 1 in `names` of the process, 0: none */
	uint32_t at;		/* index + 1 of its launch; once bursts are made, of its burst */
	uint16_t device;
	uint8_t what;		/* enum tl_gpu_span_what */
	uint8_t copy : 7, guess : 1;	/* as in tl_gpu_span; its clock was set about then: it may have been another time */
};
struct gpu_name {
	char name[128];
	uint32_t kernel;	/* index + 1 among the short names of all processes, once it was looked up */
	bool collective;
};
struct gpu_window {		/* in which records were taken */
	uint64_t t0_ns, t1_ns;
	uint64_t seen0_ns, seen1_ns;	/* all that ran between them has a record, if it was not lost */
	uint64_t clock0_ns, clock1_ns;	/* first and last time that it told its clock; UINT64_MAX, 0: never */
	bool marked, graphs;	/* it said itself when it opened, and that it is of graphs */
	bool partial;		/* kernels may have run in it that have no record */
	bool kernels;		/* launches of single kernels are told ... */
	uint64_t last_kernel_ns;	/* ... the last one then */
};
/* What a process launches for one step: from one wait for results, or copy of them, to the next. */
struct gpu_burst {
	uint32_t first, end;	/* launches of the process */
	uint32_t window;	/* index + 1 of the window that its records are from, 0: none */
	uint32_t n_kernels, n_graphs, n_other;
	uint32_t no_kernels, no_graphs;	/* of these (and of copies that CUPTI told), so many have no record */
	uint32_t step;		/* index + 1, 0: none */
	uint64_t begin_ns;	/* the first call, wait or launch */
	uint64_t launch0_ns, launch1_ns;	/* first one entered, last one returned; 0: only waits */
	uint64_t sync0_ns, sync1_ns;	/* the first and the last wait behind its launches returned; 0: not seen */
	uint64_t gpu0_ns, gpu1_ns;	/* 0: no record */
	uint64_t exec;		/* its last graph */
	bool whole;		/* seen from its begin to its end */
	bool told;		/* CUPTI told its last launch: it still did then */
	bool entered;		/* records began in its middle */
	bool unseen;		/* kernels may have been launched that nobody looked for */
	bool cold;		/* code was loaded for it */
};
struct gpu_unseen {		/* launches, of single kernels or all, that nobody looked for */
	uint64_t t0_ns, t1_ns;
};
struct gpu_process {
	uint32_t tgid, server;
	uint16_t rank, device;
	bool outside, outside_kernels;	/* launches, those of kernels are told by probes, window or not ... */
	bool outside_copies;		/* ... those of copies to the device, too */
	VEC(struct gpu_unseen) unseen;
	VEC(struct gpu_launch) launches;	/* by ts_ns */
	VEC(struct gpu_span) spans;		/* by t0_ns */
	VEC(struct gpu_name) names;
	VEC(uint32_t) name_of;			/* by id: index + 1 of the name that it has now */
	VEC(struct gpu_window) windows;
	VEC(struct gpu_burst) bursts;
	VEC(struct gpu_unseen) holes;		/* in which something without a record may have run */
	VEC(struct gpu_unseen) watched;		/* windows without these, the whole ones if there are any ... */
	bool lossy;				/* records of it were lost */
	bool partial;				/* ... else all of them: more than was recorded may have run */
};
struct gpu_parent {
	uint32_t tgid, parent;
};
struct gpu_log {
	VEC(struct gpu_parent) parents;	/* of processes that were forked meanwhile */
	VEC(struct gpu_process) processes;	/* by first sight, until the log is at its end */
	struct map *by_tgid;	/* index in `processes`; NULL: of none yet */
	uint32_t last;		/* index of the one that the last event was of */
	uint64_t not_kept;
};

/* gpu_log.c */
int gpu_log_on(struct gpu_log *g, const struct tl_hdr *ev);	/* 0, -ENOMEM; -ENOENT: none of these kinds */
int gpu_log_fork(struct gpu_log *g, uint32_t tgid, uint32_t parent);	/* 0 or -ENOMEM */
void gpu_log_free(struct gpu_log *g);

struct gpu_clocks {		/* indices into the evidence */
	const uint32_t *at;
	size_t n;
};

/* gpu_join.c: order, doubles, and which span is of which launch. clocks: of this process, as they came. 0 or -ENOMEM, as
 * all below */
struct evidence;
int gpu_join(struct gpu_process *p, const struct evidence *ev, const struct gpu_clocks *clocks, struct gpu_counts *c);

struct gpu_ids {		/* of launches, in order */
	struct gpu_id {
		uint32_t corr, at;
	} *v;
	size_t n;
};
/* The last launch with this id at t or before: ids may begin anew, or be one and the same. UINT32_MAX: none. */
uint32_t gpu_launch_of(const struct gpu_process *p, const struct gpu_ids *ids, uint32_t corr, uint64_t t_ns);
/* Could such a call (enum tl_gpu_call) have led to this span? Some versions of CUPTI give wrong ids. */
bool gpu_call_fits(uint8_t call, const struct gpu_span *s);

/* gpu_set_back.c: times that the clock of the records showed twice. Launches are in order, spans as they came. */
int gpu_settle_times(struct gpu_process *p, const struct gpu_ids *ids, const struct evidence *ev,
		     const struct gpu_clocks *clocks);

/* gpu_windows.c: the windows of a process whose launches and spans are in order. */
int gpu_find_windows(struct gpu_process *p, const struct evidence *ev, const struct gpu_clocks *clocks);
/* Index + 1; 0: none. For times that only rise: *at is the one to begin with. */
uint32_t gpu_window_of(const struct gpu_process *p, uint64_t t_ns, size_t *at);

/* gpu_bursts.c: windows and bursts of a process; spans then know their burst. */
int gpu_cut(struct gpu_process *p, const struct model_view *v, const struct gpu_clocks *clocks);

/* gpu_seen.c: how long its devices were watched. Behind gpu_join and before gpu_cut, which forgets what is joined ... */
int gpu_find_holes(struct gpu_process *p);
/* ... and behind it. */
int gpu_find_watched(struct gpu_process *p);

/* Does its host launch a step while the one before it runs, as a rule? */
bool gpu_runs_ahead(const struct gpu_process *p);
/* When the host's wait for this burst returned; next: the one behind it, or NULL. 0: not seen. */
uint64_t gpu_wait_for(const struct gpu_burst *b, const struct gpu_burst *next, bool ahead);

/* gpu_align.c: which burst of a process is which step. */
struct gpu_ref {		/* a step, to be matched */
	uint64_t end_ns;	/* when it ended ... */
	bool exact;		/* ... on a device; else the host told of it then or later */
	uint32_t step;
};
int gpu_align(struct gpu_process *p, const struct gpu_ref *refs, size_t n);

/* gpu_launchers.c: which threads launch. */
int gpu_find_launchers(struct model *m);

/* gpu_infer.c: steps of a server whose wire tells of none, and who was in them; n requests: those of the server. */
int gpu_infer(struct model *m, struct gpu_process *p, uint32_t engine, const uint32_t *requests, size_t n);

/* gpu_sums.c: what became of each step, and evidence of it. */
int gpu_sum_steps(struct model *m, const struct step_index *ix);
/* Are this burst's times on the device all of it, as far as records of its level go? */
bool gpu_is_known(const struct gpu_process *p, const struct gpu_burst *b);

/* gpu_totals.c: kernels, devices, requests. */
int gpu_sum_rest(struct model *m, const struct step_index *ix);
int gpu_sum_kernels(struct model *m, const struct step_index *ix);

/* gpu_steps.c: the whole of it, for model__finish. */
int gpu_finish(struct model *m);

#endif
