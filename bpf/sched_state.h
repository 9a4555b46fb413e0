/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs that watch the scheduler keep: of threads, of CPUs, and of whom they follow. */
#ifndef TL_SCHED_STATE_H
#define TL_SCHED_STATE_H

#include "maps.h"
#include "sched_thread.h"
#include "target_bits.h"

const volatile __u8 cpu_cgroup_v1 = 0;	/* which cgroup of a task is meant; set before load */

enum { MAX_THREADS = 16384, N_STINTS = TL_RAW_MAX_STINTS };

/* Processes whose threads are followed, and the bits that spare all others the lookup. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);		/* enum watch of threads that `watched` does not name */
} followed SEC(".maps");
__u64 followed_bits[N_TARGET_WORDS];

/* What user space wants to know of a thread besides waits for a CPU: enum watch bits, by tid.
 * Looked up anew when the generation is another. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} watched SEC(".maps");
__u32 watch_gen;

/* Spans that were not told, for want of room in a map or because they were too many. */
__u64 n_untold, untold_first_ns, untold_last_ns;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__type(value, struct sched_thread);
} threads SEC(".maps");

/* A CPU, and who had it while a target waited for it. */
struct cpu {
	__s32 n_waiting;		/* followed threads that wait for this CPU */
	__u32 n_stints;			/* so far; the last N_STINTS are kept */
	__u64 switched_ns;		/* last switch that was looked at */
	__u64 second_ns;		/* in which n_spans are told */
	__u32 n_spans, pad;
	struct tl_stint stints[N_STINTS];
	/* a struct tl_raw_wait to be sent */
	__u64 wait[sizeof(struct tl_raw_wait) / 8];
	struct tl_stint wait_stints[N_STINTS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);		/* set before load */
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* One program run that concerns a target. */
struct run {
	__u64 now;
	struct cell *cell;
	struct cpu *cpu;
	__u32 cpu_nr;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);		/* set before load: one per CPU */
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

/* As count_run does. */
static __always_inline void count_tally(struct run *run)
{
	struct tally *t = bpf_map_lookup_elem(&tallies, &run->cpu_nr);

	if (!t)
		return;
	t->runs++;
	if (run->now % RUN_SAMPLE == 0)
		t->run_ns += (bpf_ktime_get_ns() - run->now) * RUN_SAMPLE;
}

static __always_inline bool may_follow(__u32 tgid)
{
	return followed_bits[TARGET_WORD(tgid)] & TARGET_BIT(tgid);
}

static __always_inline __u64 cgroup_of(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *css = NULL;

	if (!cpu_cgroup_v1)
		return BPF_CORE_READ(set, dfl_cgrp, kn, id);
	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)set + bpf_core_field_offset(struct css_set, subsys) +
				      8 * bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id));
	return BPF_CORE_READ(css, cgroup, kn, id);
}

static __always_inline void count_untold(__u64 now)
{
	if (!untold_first_ns)
		untold_first_ns = now;
	untold_last_ns = now;
	__sync_fetch_and_add(&n_untold, 1);
}

/* NULL: not of a followed process, or no room. */
static __always_inline struct sched_thread *thread_of(struct task_struct *task, __u64 now)
{
	__u32 tid = task->pid, tgid = task->tgid, *watch;
	struct sched_thread *t = bpf_map_lookup_elem(&threads, &tid);

	if (!t) {
		struct sched_thread fresh = {
			.gen = watch_gen - 1, .where = ON_CPU, .maj_flt = task->maj_flt,
			.tgid = tgid,
		};

		if (!bpf_map_lookup_elem(&followed, &tgid))
			return NULL;
		bpf_map_update_elem(&threads, &tid, &fresh, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&threads, &tid);
		if (!t) {
			count_untold(now);
			return NULL;
		}
	}
	if (t->gen != watch_gen) {
		t->gen = watch_gen;
		watch = bpf_map_lookup_elem(&watched, &tid);
		if (!watch)
			watch = bpf_map_lookup_elem(&followed, &tgid);
		t->watch = watch ? *watch : 0;
	}
	return t;
}

/* ---- who waits for which CPU ---- */

static __always_inline void queue_leave(struct sched_thread *t)
{
	__u32 cpu = t->queue - 1;
	struct cpu *c = t->queue ? bpf_map_lookup_elem(&cpus, &cpu) : NULL;

	if (c)
		__sync_fetch_and_add(&c->n_waiting, -1);
	t->queue = 0;
}

static __always_inline void queue_join(struct sched_thread *t, __u32 cpu)
{
	struct cpu *c = bpf_map_lookup_elem(&cpus, &cpu);

	if (!c)
		return;
	__sync_fetch_and_add(&c->n_waiting, 1);
	t->queue = cpu + 1;
}

/* A stint may have begun before anybody waited and before the last switch that was looked at: its
 * start is then too early. It is only ever used up to the wait that it overlaps. */
static __always_inline void log_stint(struct run *run, struct task_struct *prev)
{
	struct cpu *c = run->cpu;
	struct tl_stint *s = &c->stints[c->n_stints++ % N_STINTS];

	s->start_ns = c->switched_ns;
	s->end_ns = run->now;
	s->tgid = prev->tgid;
	s->tid = prev->pid;
	s->cgroup = s->tid ? cgroup_of(prev) : 0;
	bpf_probe_read_kernel(s->name, sizeof(s->name), prev->comm);
}

#endif
