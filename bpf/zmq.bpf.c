/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames that a process hands to libzmq or takes from it: the second way to
 * see an engine's own wire. */
#include "ktypes.h"
#include "maps.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * zmq_msg_t of libzmq 4.1 to 4.3, 64 bytes. Small frames lie in it, others in a block that it
 * points to, which begins with { void *data; size_t size; }; a constant frame has that pair in it.
 */
enum {
	MSG_BYTES = 64, MSG_CONTENT = 8, MSG_SMALL_SIZE = 41, MSG_TYPE = 42, MSG_FLAGS = 43,
	MAX_SMALL = 33,
};
enum { TYPE_SMALL = 101, TYPE_LONG = 102, TYPE_CONST = 104, TYPE_SHARED = 105 };
enum { MSG_MORE = 1 };		/* in its flags */
enum { SEND_MORE = 2 };		/* in those of zmq_msg_send() */

enum { MAX_KEPT = 60 << 10 };	/* of one frame; an event's size is 16 bits */

/* The receive call that a thread is in, at the low bits of its tid. Two threads that share a place
 * and are both in a call make one of them lose its frame. */
enum { MAX_CALLS = 4096 };
struct call {
	__u64 id, msg, sock;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CALLS);
	__type(key, __u32);
	__type(value, struct call);
} calls SEC(".maps");

struct frame {
	__u64 id;		/* tgid and tid */
	__u64 now, sock;
	__u64 data, size;	/* data 0: it was not found */
	bool out, more;
	__u8 unknown;
};

/* Where a frame's bytes are. */
static __always_inline void look_at(struct frame *f, __u64 msg, __u8 *ret_flags)
{
	__u64 raw[MSG_BYTES / sizeof(__u64)] = {}, content[2] = {};
	__u8 *m = (void *)raw;

	f->unknown = 1;
	if (bpf_probe_read_user(raw, sizeof(raw), (void *)msg))
		return;
	*ret_flags = m[MSG_FLAGS];
	switch (m[MSG_TYPE]) {
	case TYPE_SMALL:
		f->data = msg + MSG_CONTENT;
		f->size = m[MSG_SMALL_SIZE];
		f->unknown = f->size > MAX_SMALL;
		return;
	case TYPE_CONST:
		content[0] = raw[1];
		content[1] = raw[2];
		break;
	case TYPE_LONG:
	case TYPE_SHARED:
		if (bpf_probe_read_user(content, sizeof(content), (void *)raw[1]))
			return;
		break;
	default:
		return;
	}
	f->data = content[0];
	f->size = content[1];
	f->unknown = 0;
}

/*
 * Writes the event where the agent reads it: no scratch memory, because these programs may be
 * interrupted by another of them on the same CPU. What is reserved has a constant size, so there
 * are a few of them; of what is behind the event nothing is read.
 */
static __always_inline void send_in(const struct frame *f, struct cell *cell, __u64 len,
				    const __u32 room)
{
	struct tl_raw_zmq *ev = bpf_ringbuf_reserve(&events, sizeof(*ev) + room + 8, 0);
	__u32 size;

	if (!ev) {
		cell_add_lost(cell, TL_RAW_ZMQ, f->now);
		return;
	}
	/* The compiler knows that it is not longer and would drop this test;
	 * verifiers before 6.3 need it. */
	barrier_var(len);
	if (len > room)
		len = room;
	if (len && bpf_probe_read_user(ev->data, len, (void *)f->data))
		len = 0;
	barrier_var(len);
	if (len <= room)
		__builtin_memset(ev->data + len, 0, 8);
	size = (sizeof(*ev) + len + 7) & ~7u;
	__builtin_memset(ev, 0, sizeof(*ev));
	ev->hdr.size = size;
	ev->hdr.kind = TL_RAW_ZMQ;
	ev->hdr.tgid = f->id >> 32;
	ev->hdr.tid = (__u32)f->id;
	ev->hdr.ts_ns = f->now;
	ev->sock = f->sock;
	ev->total = f->size;
	ev->head = len;
	ev->dir = f->out ? TL_OUT : TL_IN;
	ev->has_more = f->more;
	ev->unknown = f->unknown;
	bpf_ringbuf_submit(ev, wakeup_flag(cell, size));
}

static __always_inline void send_frame(struct frame *f, struct cell *cell)
{
	__u32 len = f->size < MAX_KEPT ? f->size : MAX_KEPT;

	if (f->unknown)
		len = f->size = 0;
	if (len <= 64)
		send_in(f, cell, len, 64);
	else if (len <= 1024)
		send_in(f, cell, len, 1024);
	else if (len <= 4096)
		send_in(f, cell, len, 4096);
	else if (len <= 16384)
		send_in(f, cell, len, 16384);
	else
		send_in(f, cell, len, MAX_KEPT);
	count_run(cell, f->now);
}

/* int zmq_msg_send(zmq_msg_t *msg, void *socket, int flags). It empties msg, so its bytes are taken
 * before it is known whether they will be sent: a call that fails (the context ends, a signal, a
 * full queue of a socket that must not wait) and is made again shows them twice. */
SEC("?uprobe")
int BPF_KPROBE(zmq_send, __u64 msg, __u64 sock, int flags)
{
	struct frame f = { .id = bpf_get_current_pid_tgid(), .sock = sock, .out = true,
			   .more = flags & SEND_MORE };
	struct cell *cell = this_cell();
	__u8 ignored;

	if (!cell)
		return 0;
	cell->hits++;
	f.now = bpf_ktime_get_ns();
	look_at(&f, msg, &ignored);
	send_frame(&f, cell);
	return 0;
}

static __always_inline struct call *call_of(__u64 id)
{
	__u32 at = id % MAX_CALLS;

	return bpf_map_lookup_elem(&calls, &at);
}

/* int zmq_msg_recv(zmq_msg_t *msg, void *socket, int flags): the bytes, or -1. */
SEC("?uprobe")
int BPF_KPROBE(zmq_recv, __u64 msg, __u64 sock)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct call *call = call_of(id);
	struct cell *cell = this_cell();

	if (cell)
		cell->hits++;
	if (call)
		*call = (struct call){ id, msg, sock };
	return 0;
}

SEC("?uretprobe")
int BPF_KRETPROBE(zmq_recv_done, int ret)
{
	struct frame f = { .id = bpf_get_current_pid_tgid() };
	struct call *call = call_of(f.id);
	struct cell *cell = this_cell();
	__u8 flags = 0;

	if (!cell)
		return 0;
	cell->hits++;
	if (!call || call->id != f.id)
		return 0;
	call->id = 0;
	if (ret < 0)
		return 0;
	f.now = bpf_ktime_get_ns();
	f.sock = call->sock;
	look_at(&f, call->msg, &flags);
	if (f.size != (__u32)ret)
		f.unknown = 1;
	f.more = flags & MSG_MORE;
	send_frame(&f, cell);
	return 0;
}
