/* SPDX-License-Identifier: Apache-2.0 */
/* What the pieces of the host's evidence share among themselves. */
#ifndef TL_SOURCE_HOST_PRIV_H
#define TL_SOURCE_HOST_PRIV_H

#include "base/map.h"
#include "base/vec.h"
#include "source/host.h"
#include "source/host_roles.h"
#include "source/now.h"
#include <stdbool.h>

enum { MAX_ABOVE = 8 };			/* cgroups of a process: its own and those above it */

struct cgroup_mount;
struct sched_bpf;
struct bpf_link;
struct image_files;
struct images;
struct pyframes;

struct process {
	uint32_t tgid, server;
	uint16_t engine;
	int16_t rank;
	uint64_t cgroup, last_cgroup;	/* id of its own, now and at the
					 * look before; 0: not known */
	uint64_t cgroups[MAX_ABOVE];	/* its own, and those above it */
	size_t n_cgroups;
	uint64_t scanned_ns, next_scan_ns, gap_ns;
	uint64_t engine_cpu_ns;		/* of its thread that runs the steps, between two scans */
	struct images *images;		/* NULL until a stack of it was sampled */
	struct pyframes *python;	/* NULL: none, or not looked for */
	uint64_t python_sought_ns;
	uint32_t n_python_tries;
	uint32_t n_compilers;		/* that it has started and that run now */
	uint64_t compile_since_ns;	/* when the first of them began */
	char compiler[16];
	char role[32];
	char cgroup_path[96];
};

struct thread {
	uint32_t tgid;
	uint16_t role;			/* enum tl_thread_role */
	bool told, ran_step, spoke_http, interprets, seen;
	uint64_t cpu_ns, last_cpu_ns;	/* so far, and between the last two scans */
	uint64_t quota_cpu_ns;		/* so far, when its cgroup was last looked at */
	uint64_t named_ns;		/* when its name was last read ... */
	uint8_t n_named;		/* ... and how often; saturates */
	char comm[16];
	VEC(struct tl_thread_span) held;	/* pieces of a sleep that timeouts cut */
};

struct host {
	struct src_bpf *bpf;
	struct sched_bpf *sched;	/* NULL: none of its programs can be loaded */
	bool no_prev_state;		/* before 5.18 sched_switch does not
					 * hand over that of who leaves */
	struct map *processes;		/* tgid -> struct process */
	struct map *threads;		/* tid -> struct thread */
	struct map *watches;		/* tid -> uint32_t: what the kernel was asked of it */
	struct map *children;		/* tgid -> struct child: compilers that run */
	struct map *quotas;		/* id of a cgroup -> struct quota */
	struct cgroup_mount *mount;
	struct map *runs;		/* tid -> struct run: long ones under way */
	struct image_files *files;
	struct bpf_link **timers;	/* one per CPU; NULL where it has none */
	uint64_t start_ns;		/* nothing is known of what was before */
	uint64_t placed_ns;		/* when the cgroups of all processes were last read */
	uint64_t n_untold;		/* as of the last TL_LOST */
};

/* host_bpf.c: the programs of bpf/sched.bpf.c */
int host_bpf_open(struct host *h);
void host_bpf_close(struct host *h);
int host_bpf_follow(struct host *h);	/* the processes of h->processes, and no others */
/* Has the thread not slept since? */
bool host_bpf_is_busy(struct host *h, uint32_t tid, uint64_t since_ns);
void host_bpf_watch(struct host *h, const struct process *p, uint32_t tid, uint32_t watch);
/* Calls fn for each thread with its CPU time since it is followed. */
void host_bpf_cpu_times(struct host *h,
			void (*fn)(void *ctx, uint32_t tgid, uint32_t tid, uint64_t cpu_ns),
			void *ctx);
/* Waits that have not ended: for a CPU, for the disk, and of threads that are stopped. */
int host_bpf_tell_open(struct host *h, uint64_t now_ns, const struct emit *out);
int host_bpf_tell_lost(struct host *h, uint64_t now_ns, const struct emit *out);

/* host_stack.c */
int host_stack_open(struct host *h);
void host_stack_close(struct host *h);
int host_stack_take(struct host *h, const struct tl_raw_stack *ev, const struct emit *out);

void host_stack_forget(struct process *p);
/* The thread of a process, other than `tid`, that did not sleep for most of a span: its id,
 * 0: none; and for how long. */
uint32_t host_stack_busy(const struct host *h, uint32_t tgid, uint32_t tid, uint64_t since_ns,
			 uint64_t end_ns, uint64_t *ret_ns);

/* host_cgroup.c */
int host_cgroup_open(struct host *h);
void host_cgroup_close(struct host *h);
bool host_cgroup_is_v1(const struct host *h);
void host_cgroup_find(struct host *h, struct process *p);	/* sets its cgroups */
bool host_cgroup_is_limited(const struct host *h, const struct process *p);
int host_cgroup_poll(struct host *h, uint64_t now_ns, const struct emit *out);

/* host_threads.c: who they are */
/* Reads its name, if that is old. */
void host_name_thread(struct thread *t, uint32_t tid, uint64_t now_ns);
/* NULL: not of ours, or no room. */
struct thread *host_thread(struct host *h, uint32_t tgid, uint32_t tid);
bool host_is_stopped(uint32_t tgid, uint32_t tid);	/* by a signal, a debugger or
							 * a freezer, as /proc says */
int host_judge(struct host *h, uint32_t tid, struct thread *t, uint64_t wall_ns,
	       const struct emit *out);
int host_tell_thread(struct host *h, uint32_t tid, struct thread *t, const struct emit *out);
int host_scan(struct host *h, uint64_t now_ns, const struct emit *out);

/* host_compilers.c */
int host_compilers_open(struct host *h);
void host_compilers_close(struct host *h);
int host_compilers_take(struct host *h, const struct tl_raw_child *ev, const struct emit *out);
int host_compilers_end(struct host *h, uint64_t now_ns, const struct emit *out);

#endif
