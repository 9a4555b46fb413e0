/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What threads of the targets wait for: a CPU that others have, a lock, the disk. */
#include "ktypes.h"
#include "sched_child.h"
#include "sched_state.h"
#include "watch.h"
#include "waits_x86_64.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * These programs see every switch of the host, with the run queue locked: no allocation here, all
 * maps are there from the start. Of what concerns no target they look at two numbers and leave.
 */

/* Set before load. */
const volatile __u64 min_runnable_ns = 500000;
const volatile __u64 min_sleep_ns = 1000000;
const volatile __u64 min_run_ns = 5000000;
const volatile __u64 min_code_ns = 10000000;	/* of CPU without a sleep, before
						 * a stack is looked at */
const volatile __u64 max_busy_ns = 1000000000;	/* what does not end is told in parts */
const volatile __u8 has_prev_state = 1;	/* sched_switch hands over the state (since 5.18) */

enum {
	SPANS_PER_SECOND = 4000,	/* of a CPU: the ring holds the wire, too */
	TASK_RUNNING = 0, TASK_UNINTERRUPTIBLE = 2, TASK_STOPPED = 4, TASK_TRACED = 8,
	TASK_DEAD = 0x80,
	TASK_FROZEN = 0x8000,		/* since 6.1; a freezer of cgroup v1, or the whole system */
	PF_FROZEN = 0x10000,		/* before */
	WAKE_SLACK_NS = 20000,		/* woken so shortly before it was
					 * off its CPU: it did not sleep */
	REJOIN_NS = 200000,		/* it ran no longer than this
					 * between two parts of one wait */
};

/* ---- telling ---- */

static __always_inline bool may_tell(struct run *run)
{
	struct cpu *c = run->cpu;

	if (run->now - c->second_ns > 1000000000) {
		c->second_ns = run->now;
		c->n_spans = 0;
	}
	if (c->n_spans >= SPANS_PER_SECOND) {
		count_untold(run->now);
		return false;
	}
	c->n_spans++;
	return true;
}

static __always_inline struct tl_thread_span span_of(struct task_struct *task,
						     const struct sched_thread *t, __u16 state,
						     __u64 since, __u64 end)
{
	return (struct tl_thread_span){
		.hdr = { sizeof(struct tl_thread_span), TL_THREAD_SPAN, 0, task->tgid, task->pid,
			 end },
		.since_ns = since,
		.state = state,
		.cpu = t->cpu,
		.from_cpu = t->cpu,
	};
}

static __always_inline __u32 new_faults(struct task_struct *task, struct sched_thread *t)
{
	__u64 before = t->maj_flt;

	t->maj_flt = task->maj_flt;
	return t->maj_flt - before;
}

static __always_inline void tell(struct run *run, struct tl_thread_span *span)
{
	if (may_tell(run))
		send_event(run->cell, &span->hdr, sizeof(*span));
}

static __always_inline void tell_sleep(struct run *run, struct task_struct *task,
				       struct sched_thread *t)
{
	__u64 since = t->off_ns, end = t->ready_ns;
	struct tl_thread_span span;
	bool always = t->wait == TL_WAIT_DISK || t->wait == TL_WAIT_STOPPED, rejoins;

	/* A wait that is cut by timeouts, as that for Python's GIL is:
	 * also its short end is told. */
	rejoins = t->timed_out && t->wait == TL_WAIT_FUTEX && since - t->on_ns < REJOIN_NS;
	t->timed_out = !t->by_tid;
	if (end < since + min_sleep_ns && !rejoins)
		return;
	if (!always && !(t->watch & (1u << t->wait)))
		return;
	span = span_of(task, t, TL_SPAN_SLEEP, since, end);
	span.wait = t->wait;
	span.cpu = run->cpu_nr;
	if (t->by_tid) {
		span.by_tgid = t->by_tgid;
		span.by_tid = t->by_tid;
		span.by_ns = t->by_ns;	/* the agent cuts it to the length of the span */
		__builtin_memcpy(span.by_name, t->by_name, sizeof(span.by_name));
	}
	span.major_faults = t->fault;
	tell(run, &span);
}

/* Sent as a raw event: adding up who had the CPU is not for here. */
static __always_inline void tell_runnable(struct run *run, struct task_struct *task,
					  struct sched_thread *t)
{
	struct cpu *c = run->cpu;
	struct tl_raw_wait *w = (void *)c->wait;
	__u64 size;
	__u32 n = 0;

	if (run->now < t->ready_ns + min_runnable_ns)
		return;
	for (__u32 i = 0; i < N_STINTS; i++) {
		const struct tl_stint *s = &c->stints[(c->n_stints - 1 - i) % N_STINTS];

		if (s->end_ns <= t->ready_ns)
			break;
		c->wait_stints[i] = *s;
		n = i + 1;
	}
	*w = (struct tl_raw_wait){
		.hdr = { sizeof(*w) + n * sizeof(struct tl_stint), TL_RAW_WAIT, 0, task->tgid,
			 task->pid, run->now },
		.since_ns = t->ready_ns,
		.cpu = run->cpu_nr,
		.from_cpu = t->cpu,
		.major_faults = new_faults(task, t),
		.n_stints = n,
	};
	size = w->hdr.size;
	barrier_var(size);	/* else the verifier of 6.1 does not see the bound */
	if (size <= sizeof(c->wait) + sizeof(c->wait_stints) && may_tell(run))
		send_event(run->cell, &w->hdr, size);
}

static __always_inline __u64 busy_since(const struct sched_thread *t)
{
	return t->code_told_ns > t->awake_ns ? t->code_told_ns : t->awake_ns;
}

static __always_inline void tell_run(struct run *run, struct task_struct *task,
				     struct sched_thread *t)
{
	__u64 since = t->run_told_ns > t->on_ns ? t->run_told_ns : t->on_ns;
	struct tl_thread_span span;

	if (!(t->watch & WATCH_RUN) || !t->on_ns || run->now < since + min_run_ns)
		return;
	span = span_of(task, t, TL_SPAN_RUN, since, run->now);
	span.major_faults = new_faults(task, t);
	t->run_told_ns = run->now;
	tell(run, &span);
}

/* Ends a row of samples: they are all of the time since the thread last slept, or
 * since the last such end. */
static __always_inline void tell_codes(struct run *run, struct task_struct *task,
				       struct sched_thread *t)
{
	struct tl_raw_stack end = {
		.hdr = { sizeof(end), TL_RAW_STACK, TL_STACK_END, task->tgid, task->pid, run->now },
		.busy_since_ns = busy_since(t),
	};

	t->sampled = 0;
	t->code_told_ns = run->now;
	send_event(run->cell, &end.hdr, sizeof(end));
}

/* ---- programs ---- */

/* Is it kept from running? A freezer of cgroup v2 lets it sleep as if for an event; a parent that
 * waits in vfork() counts as frozen, too. */
static __always_inline bool is_stopped(struct task_struct *task, __u32 state)
{
	if (state & (TASK_STOPPED | TASK_TRACED | TASK_FROZEN))
		return true;
	if (state & TASK_UNINTERRUPTIBLE)
		return task->flags & PF_FROZEN;
	return bpf_core_field_exists(task->frozen) && BPF_CORE_READ_BITFIELD_PROBED(task, frozen);
}

/* What does it sleep for? In an exception, not a system call, it is a page, or a lock if others
 * change the maps of the process meanwhile. */
static __always_inline void look_at_sleep(struct task_struct *task, struct sched_thread *t,
					  __u32 state)
{
	long nr = SYS_NR((struct pt_regs *)bpf_task_pt_regs(task));
	bool disk = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);

	t->fault = nr == -1 && (disk || !(state & TASK_UNINTERRUPTIBLE));
	t->wait = t->fault || disk ? TL_WAIT_DISK : wait_of_syscall(nr);
}

static __always_inline void switched_out(struct run *run, struct task_struct *task, __u32 state)
{
	struct sched_thread *t = thread_of(task, run->now);
	__u32 tid = task->pid;

	if (!t)
		return;
	tell_run(run, task, t);
	if (t->sampled && state != TASK_RUNNING)
		tell_codes(run, task, t);
	if (state & TASK_DEAD) {
		queue_leave(t);
		bpf_map_delete_elem(&watched, &tid);
		bpf_map_delete_elem(&threads, &tid);
		return;
	}
	if (t->on_ns)
		t->cpu_ns += run->now - t->on_ns;
	t->off_ns = run->now;
	t->cpu = run->cpu_nr;
	t->slept = state != TASK_RUNNING;
	if (!t->slept) {
		t->where = READY;
		t->ready_ns = run->now;
		queue_join(t, run->cpu_nr);
		return;
	}
	t->where = ASLEEP;
	t->by_tid = 0;
	t->fault = 0;
	t->wait = TL_WAIT_OTHER;
	if (is_stopped(task, state))
		t->wait = TL_WAIT_STOPPED;
	else if (t->watch || (state & TASK_UNINTERRUPTIBLE))
		look_at_sleep(task, t, state);
}

static __always_inline void switched_in(struct run *run, struct task_struct *task)
{
	struct sched_thread *t = thread_of(task, run->now);

	if (!t)
		return;
	queue_leave(t);
	if (t->off_ns && t->where != ON_CPU) {
		if (t->where == ASLEEP) {
			bool woken_before = t->waking_ns + WAKE_SLACK_NS > t->off_ns;

			t->ready_ns = woken_before ? t->off_ns : run->now;
		}
		if (t->slept)
			tell_sleep(run, task, t);
		tell_runnable(run, task, t);
	}
	if (t->slept || !t->awake_ns) {
		t->awake_ns = run->now;
		t->awake_cpu_ns = t->cpu_ns;
	}
	t->slept = 0;
	t->where = ON_CPU;
	t->on_ns = run->now;
	t->cpu = run->cpu_nr;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	bool out = may_follow(prev->tgid), in = may_follow(next->tgid);
	struct run run = { .cpu_nr = bpf_get_smp_processor_id() };
	__u32 state;

	run.cpu = bpf_map_lookup_elem(&cpus, &run.cpu_nr);
	if (!run.cpu || (!out && !in && run.cpu->n_waiting <= 0))
		return 0;
	run.cell = this_cell();
	if (!run.cell)
		return 0;
	run.now = bpf_ktime_get_ns();
	if (run.cpu->n_waiting > 0)
		log_stint(&run, prev);
	run.cpu->switched_ns = run.now;
	if (out) {
		state = preempt ? TASK_RUNNING : has_prev_state ? (__u32)ctx[3] : prev->__state;
		switched_out(&run, prev, state);
	}
	if (in)
		switched_in(&run, next);
	count_tally(&run);
	return 0;
}

/* Is it the current task that wakes, and not an interrupt that came while it ran? An
 * interrupt of user space leaves a negative number; one of a system call shows if it is
 * a call that wakes nobody. */
static __always_inline bool is_waker(struct task_struct *by, struct task_struct *task, __u8 wait)
{
	long nr = SYS_NR((struct pt_regs *)bpf_task_pt_regs(by));

	switch (wait) {
	case TL_WAIT_FUTEX:
		/* Nobody else has a way to it; and interrupts come to whom they find. */
		return wakes_futex(nr) && (by->tgid == task->tgid || may_follow(by->tgid));
	case TL_WAIT_POLL: case TL_WAIT_SOCKET: case TL_WAIT_PIPE: case TL_WAIT_STOPPED:
		return nr >= 0;
	default:	/* a timer, a disk, a device */
		return false;
	}
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct run run = { .cpu_nr = bpf_get_smp_processor_id() };
	struct task_struct *by;
	struct sched_thread *t, *waker;
	__u32 by_tid;

	if (!may_follow(task->tgid))
		return 0;
	run.cell = this_cell();
	if (!run.cell)
		return 0;
	run.now = bpf_ktime_get_ns();
	t = thread_of(task, run.now);
	if (!t)
		return 0;
	t->waking_ns = run.now;
	if (t->where == ASLEEP) {
		t->where = READY;
		t->ready_ns = run.now;
		queue_join(t, t->cpu);
	}
	by = bpf_get_current_task_btf();
	by_tid = by->pid;
	if ((t->watch || t->wait == TL_WAIT_STOPPED) && by_tid && is_waker(by, task, t->wait)) {
		t->by_tgid = by->tgid;
		t->by_tid = by_tid;
		waker = may_follow(by->tgid) ? bpf_map_lookup_elem(&threads, &by_tid) : NULL;
		t->by_ns = waker && waker->awake_ns ? run.now - waker->awake_ns : 0;
		bpf_probe_read_kernel(t->by_name, sizeof(t->by_name), by->comm);
	}
	count_tally(&run);
	return 0;
}

SEC("?tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate, struct task_struct *task, int to)
{
	__u32 tid = task->pid;
	struct sched_thread *t;

	if (!may_follow(task->tgid))
		return 0;
	t = bpf_map_lookup_elem(&threads, &tid);
	if (!t || !t->queue)
		return 0;
	queue_leave(t);
	queue_join(t, to);
	return 0;
}

/* ---- samples of stacks ---- */

struct stack {
	__u64 head[sizeof(struct tl_raw_stack) / 8];
	__u64 words[TL_RAW_STACK_WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);		/* set before load: one per CPU */
	__type(key, __u32);
	__type(value, struct stack);
} stacks SEC(".maps");

static __always_inline void send_stack(struct run *run, struct task_struct *task,
				       struct sched_thread *t, __u64 since, bool in_kernel)
{
	struct stack *s = bpf_map_lookup_elem(&stacks, &run->cpu_nr);
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct tl_raw_stack *ev = (void *)s;
	__u32 n = sizeof(s->words);

	if (!s)
		return;
	*ev = (struct tl_raw_stack){
		.hdr = { 0, TL_RAW_STACK, in_kernel ? TL_STACK_KERNEL : 0, task->tgid, task->pid,
			 run->now },
		.busy_since_ns = since,
		.ip = regs->ip,
		.sp = regs->sp,
	};
	/* Near its end, or where a page is not there, less of it. */
	if (bpf_probe_read_user(s->words, n, (void *)ev->sp)) {
		n /= 8;
		if (bpf_probe_read_user(s->words, n, (void *)ev->sp))
			n = 0;
	}
	ev->n_words = n / 8;
	n += sizeof(*ev);
	ev->hdr.size = n;
	/* At once, while the thread still does what it did: where it is in
	 * Python is read by the agent. */
	if (bpf_ringbuf_output(&events, ev, n, t->sampled ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP))
		cell_add_lost(run->cell, TL_RAW_STACK, run->now);
	t->sampled = 1;
}

/* The timer of each CPU. A thread that slept a moment ago, and one that waits for a CPU most of
 * the time, is left alone. */
SEC("?perf_event")
int stack_sample(struct timer_ctx *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct run run = { .cpu_nr = bpf_get_smp_processor_id() };
	__u64 since, cs = *(volatile __u64 *)&ctx->cs;	/* whole: a part of it may not be read */
	struct sched_thread *t;

	if (!may_follow(task->tgid))
		return 0;
	run.now = bpf_ktime_get_ns();
	t = thread_of(task, run.now);
	run.cell = this_cell();
	run.cpu = bpf_map_lookup_elem(&cpus, &run.cpu_nr);
	if (!t || !run.cell || !run.cpu || !(t->watch & WATCH_CODE) || t->where != ON_CPU ||
	    !t->awake_ns)
		return 0;
	if (t->cpu_ns - t->awake_cpu_ns + run.now - t->on_ns < min_code_ns)
		return 0;
	since = busy_since(t);
	send_stack(&run, task, t, since, !(cs & 3));
	if (run.now > since + max_busy_ns) {
		tell_run(&run, task, t);
		tell_codes(&run, task, t);
	}
	count_tally(&run);
	return 0;
}
