/* SPDX-License-Identifier: Apache-2.0 */
/* One program of each kind the agent may want, each telling the ring buffer that it ran. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct task_struct {
	int tgid;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} tasks SEC(".maps");

const volatile __u32 want_tgid;

static __always_inline int hit(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	if (tgid == want_tgid)
		bpf_ringbuf_output(&events, &tgid, sizeof(tgid), 0);
	return 0;
}

SEC("?tracepoint/syscalls/sys_enter_write")
int tp(void *ctx) { return hit(); }

SEC("?raw_tp/sys_enter")
int raw_tp(void *ctx) { return hit(); }

/* With a field by CO-RE and task storage. */
SEC("?tp_btf/sys_enter")
int tp_btf(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 *mine = bpf_task_storage_get(&tasks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	return mine && (__u32)task->tgid == want_tgid ? hit() : 0;
}

SEC("?uprobe")
int uprobe(void *ctx) { return hit(); }

SEC("?uretprobe")
int uretprobe(void *ctx) { return hit(); }

SEC("?kprobe/tcp_sendmsg")
int kprobe(void *ctx) { return hit(); }

SEC("?kretprobe/tcp_sendmsg")
int kretprobe(void *ctx) { return hit(); }

SEC("?kprobe.multi/tcp_sendmsg")
int kprobe_multi(void *ctx) { return hit(); }

SEC("?fentry/tcp_sendmsg")
int fentry(void *ctx) { return hit(); }

SEC("?fexit/tcp_sendmsg")
int fexit(void *ctx) { return hit(); }

SEC("?perf_event")
int perf_event(void *ctx) { return hit(); }

char _license[] SEC("license") = "GPL";
