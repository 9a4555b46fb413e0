/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Socket traffic of the target processes, TCP state of their ports, and their children. */
#include "ktypes.h"
#include "maps.h"
#include "cut.h"
#include "syscalls_x86_64.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before load. The scratch area holds a record of up to keep = head + tail bytes, and room for
 * one more copy of that length: the verifier bounds offset and length apart, not their sum. */
const volatile __u32 head_bytes = 4096;
const volatile __u32 tail_bytes = 1024;

enum { MAX_IOV = 1024 };	/* IOV_MAX of the kernel */

struct scratch {
	__u32 head, tail;	/* bytes copied so far */
	struct tl_raw_net ev;	/* its data[] runs to the end of the map's value */
};

/* One per CPU (max_entries and value_size are set before load). Only sys_exit uses it, and the
 * kernel does not run that program again on a CPU where it runs. Not a per-CPU map: their values
 * are limited to 32 KiB. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct scratch) + 2 * (4096 + 1024) + 8);
} scratches SEC(".maps");

/* Local ports whose TCP state changes are reported. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u16);
	__type(value, __u8);
} ports SEC(".maps");

/* When a thread of a target entered the send call that it is in. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} entries SEC(".maps");

/* ---- fd -> socket ---- */

struct sock_id {
	__u64 ino;
	struct file *file;
	struct sock *sk;
	__u16 local_port, peer_port;
	__u8 family, state;
};

/* False unless fd is a stream socket of a family we follow. */
static __always_inline bool sock_of_fd(int fd, struct sock_id *ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *fdt = task->files->fdt;
	struct file *file = NULL;
	struct inode *inode;
	struct socket *sock;
	struct sock *sk;

	if (fd < 0 || (__u32)fd >= fdt->max_fds)
		return false;
	bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(fdt, fd) + fd);
	inode = BPF_CORE_READ(file, f_inode);
	if ((BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFSOCK)
		return false;
	sock = BPF_CORE_READ(file, private_data);
	if (BPF_CORE_READ(sock, type) != SOCK_STREAM)
		return false;
	sk = BPF_CORE_READ(sock, sk);
	ret->file = file;
	ret->sk = sk;
	ret->ino = BPF_CORE_READ(inode, i_ino);
	ret->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	ret->state = BPF_CORE_READ(sk, __sk_common.skc_state);
	ret->local_port = ret->peer_port = 0;
	if (ret->family == AF_UNIX)
		return true;
	if (ret->family != AF_INET && ret->family != AF_INET6)
		return false;
	ret->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	ret->peer_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	return true;
}

static __always_inline void peer_addr_of(struct sock *sk, __u16 family, __u8 *addr)
{
	if (family == AF_INET)
		BPF_CORE_READ_INTO(addr, sk, __sk_common.skc_daddr);
	else if (family == AF_INET6)
		bpf_core_read(addr, 16, &sk->__sk_common.skc_v6_daddr);
}

/* struct file's reference count was f_count up to 6.12, then f_ref, which counts from 0. */
struct file___old {
	struct {
		__s64 counter;
	} f_count;
} __attribute__((preserve_access_index));
struct file___new {
	struct {
		struct {
			__s64 counter;
		} refcnt;
	} f_ref;
} __attribute__((preserve_access_index));

static __always_inline bool file_is_shared(struct file *file)
{
	struct file___old *old = (void *)file;
	struct file___new *new = (void *)file;

	if (bpf_core_field_exists(new->f_ref))
		return BPF_CORE_READ(new, f_ref.refcnt.counter) > 0;
	return BPF_CORE_READ(old, f_count.counter) > 1;
}

static __always_inline struct tl_hdr hdr_of(__u16 size, __u16 kind, __u64 ts_ns)
{
	__u64 id = bpf_get_current_pid_tgid();

	return (struct tl_hdr){ size, kind, 0, id >> 32, (__u32)id, ts_ns };
}

static __always_inline void send_sock(const struct sock_id *s, int fd, __u8 what, __u8 how, __u64 now)
{
	struct tl_raw_sock ev = {
		.hdr = hdr_of(sizeof(ev), TL_RAW_SOCK, now),
		.sock = s->ino,
		.fd = fd,
		.what = what,
		.family = s->family,
		.how = how,
		.listening = s->state == TCP_LISTEN,
		.local_port = s->local_port,
		.peer_port = s->peer_port,
	};

	peer_addr_of(s->sk, s->family, ev.peer_addr);
	send_event(&ev.hdr, sizeof(ev));
}

/* ---- bytes ---- */

/* Global functions: the verifier looks at them once, for any arguments, and not again for every
 * pass of the loop that calls them. They return 0, or -1: user memory could not be read, stop. */

__noinline int copy_user(__u64 src, __u32 dst, __u32 len)
{
	__u32 cpu = bpf_get_smp_processor_id(), keep = head_bytes + tail_bytes;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &cpu);

	if (!s || dst > keep || len > keep)
		return -1;
	return bpf_probe_read_user(s->ev.data + dst, len, (void *)src) ? -1 : 0;
}

/* Copies what is to be kept of the piece [pos, pos + len) of a call's `total` bytes. */
__noinline int copy_piece(__u64 base, __u32 pos, __u32 len, __u32 total)
{
	struct cut c = cut_of(total, head_bytes, tail_bytes);
	struct cut_range head = cut_head(c, pos, len), tail = cut_tail(c, pos, len);
	__u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = bpf_map_lookup_elem(&scratches, &cpu);

	if (!s)
		return -1;
	if (head.len) {
		if (copy_user(base, head.dst, head.len))
			return -1;
		s->head += head.len;
	}
	if (tail.len) {
		if (copy_user(base + tail.src, tail.dst, tail.len))
			return -1;
		s->tail += tail.len;
	}
	return 0;
}

static __always_inline void copy_iov(__u64 iov, __u64 n_iov, __u32 total)
{
	struct user_iovec v;
	__u32 pos = 0, len;

	for (int i = 0; i < MAX_IOV; i++) {
		if (i >= n_iov || pos >= total)
			return;
		if (bpf_probe_read_user(&v, sizeof(v), (void *)(iov + i * sizeof(v))))
			return;
		len = v.len < total - pos ? v.len : total - pos;
		if (copy_piece(v.base, pos, len, total))
			return;
		pos += len;
	}
}

/* Where a call's bytes are: one buffer, or n_iov of them; `flags` of recvfrom and recvmsg. */
struct io {
	__u64 base, iov, n_iov;
	__u32 flags;
	bool empty;		/* asked for nothing */
};

static __always_inline void io_of_msghdr(struct io *io, __u64 msg)
{
	struct user_msghdr m = {};

	bpf_probe_read_user(&m, sizeof(m), (void *)msg);
	io->iov = m.iov;
	io->n_iov = m.iov_len;
}

static __always_inline struct io io_of_call(struct pt_regs *regs, __u32 nr)
{
	struct io io = {};

	switch (nr) {
	case NR_RECVFROM:
		io.flags = SYS_ARG4(regs);
		/* fallthrough */
	case NR_READ:
	case NR_WRITE:
	case NR_SENDTO:
		io.base = SYS_ARG2(regs);
		io.empty = !SYS_ARG3(regs);
		break;
	case NR_READV:
	case NR_WRITEV:
		io.iov = SYS_ARG2(regs);
		io.n_iov = SYS_ARG3(regs);
		io.empty = !io.n_iov;
		break;
	case NR_RECVMSG:
		io.flags = SYS_ARG3(regs);
		/* fallthrough */
	case NR_SENDMSG:
		io_of_msghdr(&io, SYS_ARG2(regs));
		io.empty = !io.n_iov;
		break;
	}
	return io;
}

static __always_inline void send_net(const struct sock_id *id, const struct io *io, int fd,
				     __u32 total, __u64 enter_ns, __u64 now, bool out)
{
	__u32 cpu = bpf_get_smp_processor_id(), keep = head_bytes + tail_bytes, n;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &cpu);

	if (!s)
		return;
	s->head = s->tail = 0;
	s->ev = (struct tl_raw_net){
		.hdr = hdr_of(0, TL_RAW_NET, enter_ns ? enter_ns : now),
		.sock = id->ino,
		.dur_ns = enter_ns ? now - enter_ns : 0,
		.fd = fd,
		.total = total,
		.dir = out ? TL_OUT : TL_IN,
		.family = id->family,
		.local_port = id->local_port,
		.peer_port = id->peer_port,
	};
	if (out && !enter_ns)
		s->ev.hdr.flags = TL_F_JOINED;
	if (io->base)
		copy_piece(io->base, 0, total, total);
	else
		copy_iov(io->iov, io->n_iov, total);

	/* A tail is one only if its end was reached. */
	if (s->tail != total - cut_of(total, head_bytes, tail_bytes).tail_start)
		s->tail = 0;
	s->ev.head = s->head;
	s->ev.tail = s->tail;
	n = s->head + s->tail;
	if (n > keep)
		return;
	__builtin_memset(s->ev.data + n, 0, 8);
	n = (sizeof(s->ev) + n + 7) & ~7u;
	if (n > sizeof(s->ev) + keep + 7)
		return;
	s->ev.hdr.size = n;
	send_event(&s->ev.hdr, n);
}

static __always_inline void io_done(struct pt_regs *regs, __u32 nr, long ret, __u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	bool out = nr < 64 && NR_SENDS >> nr & 1;
	int fd = SYS_ARG1(regs);
	__u64 *entry, enter_ns = 0;
	struct sock_id id;
	struct io io;

	if (out) {
		entry = bpf_task_storage_get(&entries, task, NULL, 0);
		if (entry) {
			enter_ns = *entry;
			*entry = 0;
		}
	}
	if (ret < 0 && ret != -EPIPE && ret != -ECONNRESET)
		return;
	if (!sock_of_fd(fd, &id))
		return;
	if (ret < 0) {
		send_sock(&id, fd, TL_SOCK_RESET, 0, now);
		return;
	}
	io = io_of_call(regs, nr);
	if (ret == 0) {
		/* also when only peeking: that is how servers notice that a client left */
		if (!out && !io.empty && !(io.flags & MSG_ERRQUEUE))
			send_sock(&id, fd, TL_SOCK_EOF, 0, now);
		return;
	}
	if (io.flags & (MSG_PEEK | MSG_ERRQUEUE | MSG_OOB))
		return;		/* not taken from the stream */
	if (io.flags & MSG_TRUNC)
		io = (struct io){};	/* taken, but not copied */
	send_net(&id, &io, fd, ret, enter_ns, now, out);
}

/* ---- programs ---- */

static __always_inline void call_entered(struct pt_regs *regs, __u64 nr, __u64 now)
{
	struct sock_id id;
	__u64 *entry;
	int fd;

	if (NR_SENDS >> (nr & 63) & 1) {
		entry = bpf_task_storage_get(&entries, bpf_get_current_task_btf(), NULL,
					     BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (entry)
			*entry = now;
		return;
	}
	fd = SYS_ARG1(regs);
	if (!sock_of_fd(fd, &id))
		return;
	if (nr == NR_CLOSE)
		send_sock(&id, fd, TL_SOCK_CLOSE, file_is_shared(id.file), now);
	else
		send_sock(&id, fd, TL_SOCK_SHUTDOWN, SYS_ARG2(regs), now);
}

static __always_inline void call_returned(struct pt_regs *regs, __u64 nr, long ret, __u64 now)
{
	struct sock_id id;
	struct tl_hdr hdr;

	switch (nr) {
	case NR_ACCEPT:
	case NR_ACCEPT4:
		if (sock_of_fd(ret, &id))
			send_sock(&id, ret, TL_SOCK_ACCEPT, 0, now);
		break;
	case NR_CONNECT:
		if ((ret == 0 || ret == -EINPROGRESS) && sock_of_fd(SYS_ARG1(regs), &id))
			send_sock(&id, SYS_ARG1(regs), TL_SOCK_CONNECT, 0, now);
		break;
	case NR_IO_URING_SETUP:
		hdr = hdr_of(sizeof(hdr), TL_RAW_IO_URING, now);
		if (ret >= 0)
			send_event(&hdr, sizeof(hdr));
		break;
	default:
		io_done(regs, nr, ret, now);
	}
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long nr)
{
	__u64 start;

	if (!NR_WANT_ENTER((__u64)nr) || !is_target(bpf_get_current_pid_tgid() >> 32) ||
	    !REGS_64BIT(regs))
		return 0;
	start = bpf_ktime_get_ns();
	call_entered(regs, nr, start);
	count_run(start, 1);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	__u64 nr = SYS_NR(regs), start;

	if (!NR_WANT_EXIT(nr) || !is_target(bpf_get_current_pid_tgid() >> 32) || !REGS_64BIT(regs))
		return 0;
	start = bpf_ktime_get_ns();
	call_returned(regs, nr, ret, start);
	count_run(start, 1);
	return 0;
}

SEC("?tp_btf/inet_sock_set_state")
int BPF_PROG(tcp_state, struct sock *sk, int old_state, int new_state)
{
	__u16 port = sk->__sk_common.skc_num;
	struct tl_raw_tcp_state ev;

	if (sk->sk_protocol != IPPROTO_TCP || !bpf_map_lookup_elem(&ports, &port))
		return 0;
	ev = (struct tl_raw_tcp_state){
		.hdr = { sizeof(ev), TL_RAW_TCP_STATE, 0, 0, 0, bpf_ktime_get_ns() },
		.old_state = old_state,
		.new_state = new_state,
		.local_port = port,
		.peer_port = __builtin_bswap16(sk->__sk_common.skc_dport),
		.family = sk->__sk_common.skc_family,
	};
	peer_addr_of(sk, ev.family, ev.peer_addr);
	send_event(&ev.hdr, sizeof(ev));
	return 0;
}

static __always_inline void send_proc(struct task_struct *task, __u32 what, __u32 parent, __u32 code)
{
	struct tl_raw_proc ev = {
		.hdr = { sizeof(ev), TL_RAW_PROC, 0, task->tgid, task->pid, bpf_ktime_get_ns() },
		.what = what,
		.parent = parent,
		.exit_code = code,
	};

	send_event(&ev.hdr, sizeof(ev));
}

SEC("?tp_btf/sched_process_fork")
int BPF_PROG(proc_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = child->tgid, zero = 0;

	if (parent->tgid == tgid || !is_target(parent->tgid))
		return 0;
	if (bpf_map_update_elem(&targets, &tgid, &zero, BPF_ANY))
		count_lost(TL_RAW_PROC);
	send_proc(child, TL_PROC_FORK, parent->tgid, 0);
	return 0;
}

SEC("?tp_btf/sched_process_exec")
int BPF_PROG(proc_exec, struct task_struct *task)
{
	if (is_target(task->tgid))
		send_proc(task, TL_PROC_EXEC, task->real_parent->tgid, 0);
	return 0;
}

SEC("?tp_btf/sched_process_exit")
int BPF_PROG(proc_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid, code;

	if (task->signal->live.counter || !is_target(tgid))
		return 0;	/* a thread, not the process */
	code = task->signal->group_exit_code;
	if (!code)
		code = task->group_leader->exit_code;
	send_proc(task, TL_PROC_EXIT, task->real_parent->tgid, code);
	bpf_map_delete_elem(&targets, &tgid);
	return 0;
}
