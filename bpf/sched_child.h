/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that a server starts, as compilers are: their begin and their end. */
#ifndef TL_SCHED_CHILD_H
#define TL_SCHED_CHILD_H

#include "sched_state.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);		/* tgid of the followed process that is above */
} children SEC(".maps");

enum { MAX_ABOVE = 6 };

/* The followed process that a task is a child of, or a child's child; 0: none. */
static __always_inline __u32 owner_of(struct task_struct *task)
{
#pragma unroll
	for (int i = 0; i < MAX_ABOVE; i++) {
		__u32 tgid;

		task = task->real_parent;
		if (!task)
			return 0;
		tgid = task->tgid;
		if (may_follow(tgid) && bpf_map_lookup_elem(&followed, &tgid))
			return tgid;
	}
	return 0;
}

static __always_inline void send_child(struct task_struct *task, __u32 what, __u32 owner)
{
	struct tl_raw_child ev = {
		.hdr = { sizeof(ev), TL_RAW_CHILD, 0, task->tgid, task->pid, bpf_ktime_get_ns() },
		.what = what,
		.owner = owner,
	};
	struct cell *cell = this_cell();

	bpf_probe_read_kernel(ev.name, sizeof(ev.name), task->comm);
	if (cell)
		send_event(cell, &ev.hdr, sizeof(ev));
}

SEC("?tp_btf/sched_process_exec")
int BPF_PROG(child_exec, struct task_struct *task)
{
	__u32 tgid = task->tgid, owner = owner_of(task);

	if (owner && !bpf_map_update_elem(&children, &tgid, &owner, BPF_ANY))
		send_child(task, TL_PROC_EXEC, owner);
	return 0;
}

SEC("?tp_btf/sched_process_exit")
int BPF_PROG(child_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid, *owner;

	if (task->signal->live.counter)
		return 0;	/* a thread, not the process */
	owner = bpf_map_lookup_elem(&children, &tgid);
	if (!owner)
		return 0;
	send_child(task, TL_PROC_EXIT, *owner);
	bpf_map_delete_elem(&children, &tgid);
	return 0;
}

#endif
