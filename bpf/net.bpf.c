/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Socket traffic of the target processes, TCP state of their ports, and their children. */
#include "ktypes.h"
#include "maps.h"
#include "net_copy.h"
#include "sock_id.h"
#include "arrival.h"
#include "held.h"
#include "ports.h"
#include "target_bits.h"
#include "syscalls_x86_64.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Processes to watch, each with its enum tl_target_mode. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* Spares nearly all other processes of the host the lookup, which is most of what they would pay.
 * The agent clears bits: update_bits() in agent/source/bpf.c. */
__u64 target_bits[N_TARGET_WORDS];

static __always_inline __u32 *target_of(__u32 tgid)
{
	if (!(target_bits[TARGET_WORD(tgid)] & TARGET_BIT(tgid)))
		return NULL;
	return bpf_map_lookup_elem(&targets, &tgid);
}

static __always_inline bool is_target(__u32 tgid)
{
	return target_of(tgid);
}

/* TCP sockets that carry an engine's own wire, by inode: the agent adds those that were there
 * before, the programs those on which a target greets as ZMTP does. The oldest makes room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u8);
} tcp_wires SEC(".maps");
__u32 has_tcp_wires;		/* spares the lookup where there are
				 * none, which is nearly everywhere */

/* When a thread entered the send call that it is in, or when the packet came that it reads, at the
 * low bits of its tid. Two threads that share a place and are both in a call make one of them lose
 * it: it is then as if the capture had begun in between. */
enum { MAX_ENTRIES = 4096 };
enum { MIN_WAIT_NS = 1000000 };	/* a send that took longer, and slept, has waited for room */
struct entry {
	__u64 id, ns;
	__u64 sk;		/* the socket that is read; 0: a send */
	__u64 n_slept;		/* a send: how often the thread had slept */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ENTRIES);
	__type(key, __u32);
	__type(value, struct entry);
} entries SEC(".maps");

/* One run for a target. */
struct run {
	__u64 id;		/* tgid and tid */
	__u64 now;
	struct cell *cell;
	__u32 mode;		/* enum tl_target_mode */
};

static __always_inline struct tl_hdr hdr_of(const struct run *run, __u16 size, __u16 kind,
					    __u64 ts_ns)
{
	return (struct tl_hdr){ size, kind, 0, run->id >> 32, (__u32)run->id, ts_ns };
}

static __always_inline void send_sock(const struct run *run, const struct sock_id *s, int fd,
				      __u8 what, __u8 how)
{
	struct tl_raw_sock ev = {
		.hdr = hdr_of(run, sizeof(ev), TL_RAW_SOCK, run->now),
		.sock = s->ino,
		.fd = fd,
		.what = what,
		.family = s->family,
		.how = how,
		.listening = s->state == TCP_LISTEN,
		.local_port = s->local_port,
		.peer_port = s->peer_port,
	};

	__builtin_memcpy(ev.peer_addr, s->peer_addr, sizeof(ev.peer_addr));
	send_event(run->cell, &ev.hdr, sizeof(ev));
}

/* ---- what was sent and received ---- */

/* How far TCP counts the stream behind these bytes: a jump from one event to the next of a socket
 * is bytes that no event told of. */
static __always_inline void set_stream_pos(struct tl_raw_net *ev, const struct sock_id *id,
					   bool out)
{
	struct sock *sk = id->sk;
	struct tcp_sock *tcp = (void *)sk;

	if (id->family == AF_UNIX || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return;
	ev->hdr.flags |= TL_NET_POS;
	ev->stream_pos = out ? BPF_CORE_READ(tcp, write_seq) : BPF_CORE_READ(tcp, copied_seq);
}

static __always_inline bool is_wire(const struct run *run, const struct sock_id *id)
{
	__u64 ino = id->ino;

	if (run->mode == TL_TARGET_ALL)
		return false;
	return id->family == AF_UNIX || (has_tcp_wires && bpf_map_lookup_elem(&tcp_wires, &ino));
}

/* Does what was written begin as each end of a ZMTP connection does (ff, a length below 256, 7f)?
 * Only the target's own writes are asked: what it reads, a stranger chose. */
static __always_inline bool is_greeting(const struct scratch *s)
{
	return s->head >= 10 && *(__u64 *)s->ev.data == 0xff && s->ev.data[9] == 0x7f;
}

static __always_inline void add_tcp_wire(const struct sock_id *id)
{
	__u64 ino = id->ino;
	__u8 one = 1;

	bpf_map_update_elem(&tcp_wires, &ino, &one, BPF_ANY);
	has_tcp_wires = 1;
}

/* A call that moved bytes, or could not. */
struct call {
	struct run run;
	struct sock_id id;
	struct io io;
	__u64 since_ns;		/* 0: not known */
	__s32 fd;
	__u32 total;
	__u16 room;		/* enum tl_tcp_room */
	bool out, wire;
	__u32 pos;		/* of the stream, behind what was written */
};

/* A global function, because it has many callers. In such a function the verifier takes
 * pointers inside of *call for plain numbers, so it finds the cell anew. Returns 1 for a write
 * that TCP has not sent yet; the caller then calls held_wrote(): functions that call each other
 * share 512 bytes of stack. */
__noinline int send_net(struct call *call)
{
	__u32 cpu = bpf_get_smp_processor_id(), n, total;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &cpu);
	struct cell *cell = this_cell();
	const struct sock_id *id;
	const struct run *run;
	__u64 since_ns;
	bool out, wire;

	if (!call || !s || !cell)
		return 0;
	run = &call->run;
	id = &call->id;
	total = call->total;
	since_ns = call->since_ns;
	out = call->out;
	wire = call->wire;
	s->head = s->tail = 0;
	s->max_head = wire ? whole_bytes - tail_bytes : head_bytes;
	s->ev = (struct tl_raw_net){
		.hdr = hdr_of(run, 0, TL_RAW_NET, out && since_ns ? since_ns : run->now),
		.sock = id->ino,
		.dur_ns = since_ns ? run->now - since_ns : 0,
		.fd = call->fd,
		.total = total,
		.dir = out ? TL_OUT : TL_IN,
		.family = id->family,
		.local_port = id->local_port,
		.peer_port = id->peer_port,
	};
	if (out && !since_ns)
		s->ev.hdr.flags = TL_F_JOINED;
	set_stream_pos(&s->ev, id, out);
	copy_call(s, &call->io, total);
	if (out && !wire && total > s->max_head + tail_bytes && is_stream(s->head)) {
		s->head = s->tail = 0;
		s->max_head = whole_bytes - tail_bytes;
		copy_call(s, &call->io, total);
	}

	if (out && !wire && run->mode != TL_TARGET_ALL && is_greeting(s)) {
		add_tcp_wire(id);
		if (run->mode == TL_TARGET_HTTP)
			return 0;
	}
	/* What was copied of the tail is of use only if all of it was. */
	if (s->tail != total - cut_of(total, s->max_head, tail_bytes).tail_start)
		s->tail = 0;
	s->ev.head = s->head;
	s->ev.tail = s->tail;
	n = s->head + s->tail;
	if (n > KEEP)
		return 0;
	__builtin_memset(s->ev.data + n, 0, 8);
	n = (sizeof(s->ev) + n + 7) & ~7u;
	s->ev.hdr.size = n;
	if (n > sizeof(s->ev) + KEEP + 7)
		return 0;
	send_event(cell, &s->ev.hdr, n);
	call->pos = s->ev.stream_pos;
	return out && !wire && s->ev.hdr.flags & TL_NET_POS &&
	       (call->room || held_any(id->sk, call->pos));
}

/* A write that took nothing: did it find no room? */
static __always_inline bool is_refused(struct call *call)
{
	struct sock *sk = call->id.sk;
	struct tcp_sock *tcp = (void *)sk;

	if (!call->id.full || call->id.family == AF_UNIX ||
	    BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return false;
	call->pos = BPF_CORE_READ(tcp, write_seq);
	call->room = TL_ROOM_SHORT;
	return true;
}

/* A write of a target returned, and TCP holds what was written, or had no room for it. */
static __always_inline void tell_written(const struct call *call)
{
	struct written w = {
		.ev = {
			.hdr = hdr_of(&call->run, sizeof(w.ev), TL_RAW_TCP,
				      call->since_ns ? call->since_ns : call->run.now),
			.sock = call->id.ino,
			.since_ns = call->since_ns,
			.seq = call->pos,
			.fd = call->fd,
			.local_port = call->id.local_port,
			.peer_port = call->id.peer_port,
		},
		.sk = (__u64)call->id.sk,
		.end_ns = call->run.now,
		.room = call->room,
		.more = call->io.more,
	};

	held_wrote(&w);
}

static __always_inline __u64 n_slept(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return task->nvcsw;
}

static __always_inline struct entry *entry_of(const struct run *run)
{
	__u32 at = run->id % MAX_ENTRIES;

	return bpf_map_lookup_elem(&entries, &at);
}

static __always_inline void io_done(struct call *call, struct pt_regs *regs, __u32 nr, long ret)
{
	bool out = nr < 64 && NR_SENDS >> nr & 1, tells;
	struct run *run = &call->run;
	struct entry *entry = entry_of(run);
	__u64 sk = 0;

	call->fd = SYS_ARG1(regs);
	if (entry && entry->id == run->id) {
		call->since_ns = entry->ns;
		sk = entry->sk;
		/* Nothing but room in the socket's buffer makes a send sleep for so long. */
		if (out && run->now - call->since_ns > MIN_WAIT_NS && entry->n_slept != n_slept())
			call->room = TL_ROOM_WAITED;
		entry->id = 0;
	}
	if (ret < 0 && ret != -EPIPE && ret != -ECONNRESET && !(out && ret == -EAGAIN))
		return;
	if (!sock_of_fd(call->fd, &call->id))
		return;
	call->wire = is_wire(run, &call->id);
	if (run->mode == TL_TARGET_HTTP && call->wire)
		return;
	if (ret == -EAGAIN) {
		tells = is_refused(call);
	} else if (ret < 0) {
		send_sock(run, &call->id, call->fd, TL_SOCK_RESET, 0);
		return;
	} else {
		call->io = io_of_call(regs, nr);
		if (ret == 0) {
			/* also when only peeking: that is how servers notice that a client left */
			if (!out && !call->io.empty && !(call->io.flags & MSG_ERRQUEUE))
				send_sock(run, &call->id, call->fd, TL_SOCK_EOF, 0);
			return;
		}
		if (call->io.flags & (MSG_PEEK | MSG_ERRQUEUE | MSG_OOB))
			return;		/* not taken from the stream */
		if (call->io.flags & MSG_TRUNC)
			call->io = (struct io){};	/* taken, but not copied */
		if (sk != (out ? 0 : (__u64)call->id.sk))
			call->since_ns = 0;	/* left behind by another call */
		if (call->id.full)
			call->room = TL_ROOM_SHORT;
		call->total = ret;
		call->out = out;
		tells = send_net(call);
	}
	if (tells)
		tell_written(call);
}

/* ---- programs ---- */

static __always_inline void call_entered(const struct run *run, struct pt_regs *regs, __u64 nr)
{
	struct entry *entry;
	struct sock_id id = {};
	int fd;

	if (NR_SENDS >> (nr & 63) & 1) {
		entry = entry_of(run);
		if (entry)
			*entry = (struct entry){ run->id, run->now, 0, n_slept() };
		return;
	}
	fd = SYS_ARG1(regs);
	if (!sock_of_fd(fd, &id))
		return;
	if (nr == NR_CLOSE)
		send_sock(run, &id, fd, TL_SOCK_CLOSE, file_is_shared(id.file));
	else
		send_sock(run, &id, fd, TL_SOCK_SHUTDOWN, SYS_ARG2(regs));
}

static __always_inline void call_returned(struct call *call, struct pt_regs *regs, __u64 nr,
					  long ret)
{
	struct run *run = &call->run;
	struct tl_hdr hdr;

	switch (nr) {
	case NR_ACCEPT:
	case NR_ACCEPT4:
		if (ret >= 0 && sock_of_fd(ret, &call->id))
			send_sock(run, &call->id, ret, TL_SOCK_ACCEPT, 0);
		break;
	case NR_CONNECT:
		if ((ret == 0 || ret == -EINPROGRESS) && sock_of_fd(SYS_ARG1(regs), &call->id))
			send_sock(run, &call->id, SYS_ARG1(regs), TL_SOCK_CONNECT, 0);
		break;
	case NR_IO_URING_SETUP:
		hdr = hdr_of(run, sizeof(hdr), TL_RAW_IO_URING, run->now);
		if (ret >= 0)
			send_event(run->cell, &hdr, sizeof(hdr));
		break;
	default:
		io_done(call, regs, nr, ret);
	}
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long nr)
{
	struct run run;
	__u32 *mode;

	if (!NR_WANT_ENTER((__u64)nr))
		return 0;
	run.id = bpf_get_current_pid_tgid();
	mode = target_of(run.id >> 32);
	if (!mode || *mode == TL_TARGET_QUIET || !REGS_64BIT(regs))
		return 0;
	run.cell = this_cell();
	if (!run.cell)
		return 0;
	run.now = bpf_ktime_get_ns();
	call_entered(&run, regs, nr);
	count_run(run.cell, run.now);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	__u64 nr = SYS_NR(regs), id, now;
	struct call call;
	struct cell *cell;
	__u32 *mode;

	if (!NR_WANT_EXIT(nr))
		return 0;
	id = bpf_get_current_pid_tgid();
	mode = target_of(id >> 32);
	if (!mode || *mode == TL_TARGET_QUIET || !REGS_64BIT(regs))
		return 0;
	cell = this_cell();
	if (!cell)
		return 0;
	now = bpf_ktime_get_ns();
	__builtin_memset(&call, 0, sizeof(call));
	call.run = (struct run){ .id = id, .now = now, .cell = cell, .mode = *mode };
	call_returned(&call, regs, nr, ret);
	count_run(cell, now);
	return 0;
}

/* A thread takes bytes from a socket; TCP sets its clock anew right after this. A call that takes
 * several packets' bytes comes here several times: the first counts. */
SEC("?tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(tcp_read, struct sock *sk)
{
	struct run run = { .id = bpf_get_current_pid_tgid() };
	struct entry *entry;

	if (!is_target(run.id >> 32))
		return 0;
	run.cell = this_cell();
	entry = entry_of(&run);
	if (!run.cell || !entry || (entry->id == run.id && entry->sk == (__u64)sk))
		return 0;
	run.now = bpf_ktime_get_ns();
	*entry = (struct entry){ run.id, arrived_ns(sk, run.now), (__u64)sk, 0 };
	count_run(run.cell, run.now);
	return 0;
}

SEC("?tp_btf/inet_sock_set_state")
int BPF_PROG(tcp_state, struct sock *sk, int old_state, int new_state)
{
	__u16 port = sk->__sk_common.skc_num;
	struct tl_raw_tcp_state ev;
	struct cell *cell;

	if (sk->sk_protocol != IPPROTO_TCP || !bpf_map_lookup_elem(&ports, &port))
		return 0;
	cell = this_cell();
	if (!cell)
		return 0;
	ev = (struct tl_raw_tcp_state){
		.hdr = { sizeof(ev), TL_RAW_TCP_STATE, 0, 0, 0, bpf_ktime_get_ns() },
		.old_state = old_state,
		.new_state = new_state,
		.local_port = port,
		.peer_port = __builtin_bswap16(sk->__sk_common.skc_dport),
		.family = sk->__sk_common.skc_family,
	};
	if (ev.family == AF_INET)
		*(__u32 *)ev.peer_addr = sk->__sk_common.skc_daddr;
	else if (ev.family == AF_INET6)
		bpf_core_read(ev.peer_addr, sizeof(ev.peer_addr), &sk->__sk_common.skc_v6_daddr);
	send_event(cell, &ev.hdr, sizeof(ev));
	return 0;
}

static __always_inline void send_proc(struct task_struct *task, __u32 what, __u32 parent,
				      __u32 code)
{
	struct tl_raw_proc ev = {
		.hdr = { sizeof(ev), TL_RAW_PROC, 0, task->tgid, task->pid, bpf_ktime_get_ns() },
		.what = what,
		.parent = parent,
		.exit_code = code,
	};
	struct cell *cell = this_cell();

	if (cell)
		send_event(cell, &ev.hdr, sizeof(ev));
}

/* A new target that finds no room in the set is not captured: that is a loss. */
SEC("?tp_btf/sched_process_fork")
int BPF_PROG(proc_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 tgid = child->tgid, zero = 0;
	struct cell *cell;

	if (parent->tgid == tgid || !is_target(parent->tgid))
		return 0;
	if (bpf_map_update_elem(&targets, &tgid, &zero, BPF_ANY)) {
		cell = this_cell();
		if (cell)
			cell_add_lost(cell, TL_RAW_PROC, bpf_ktime_get_ns());
	}
	__sync_fetch_and_or(&target_bits[TARGET_WORD(tgid)], TARGET_BIT(tgid));
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
