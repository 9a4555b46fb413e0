/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sockets whose bytes wait in the kernel: noted by the programs that see writes,
 * followed by those of TCP. */
#ifndef TL_HELD_H
#define TL_HELD_H

#include "maps.h"

struct held_sock {
	__u64 ino;
	__u64 ack_ns;		/* the peer's last acknowledgement, 0: none since it is here */
	__u32 tgid;
	__s32 fd;
	__u32 end;		/* of the stream, behind the last write that was noted */
	__u32 left;		/* up to where all has left; == end: nothing is held any more ... */
	__u32 wants_ack;	/* ... but the acknowledgement of all is waited for */
	__u32 pad;
};

/* By address of struct sock. An entry goes when its bytes have left, or the socket is closed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct held_sock);
} helds SEC(".maps");

/* How many there are, or a few more while they come and go: at 0 the programs that see every packet
 * of the host return at once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} n_helds SEC(".maps");

static __always_inline void held_count(__s64 by)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&n_helds, &zero);

	if (n)
		__sync_fetch_and_add(n, by);
}

static __always_inline bool held_none(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&n_helds, &zero);

	return !n || !*n;
}

static __always_inline void held_forget(__u64 sk)
{
	if (!bpf_map_delete_elem(&helds, &sk))
		held_count(-1);
}

static __always_inline void held_send(const struct held_sock *h, __u16 what, __u32 seq, __u64 ns,
				      __u32 flags)
{
	struct tl_raw_tcp ev = {
		.hdr = { sizeof(ev), TL_RAW_TCP, flags, h->tgid, 0, ns },
		.sock = h->ino,
		.ack_ns = what == TL_TCP_LEFT ? h->ack_ns : 0,
		.seq = seq,
		.fd = h->fd,
		.what = what,
	};
	struct cell *cell = this_cell();

	if (cell)
		send_event(cell, &ev.hdr, sizeof(ev));
}

/* Is `a` behind `b` in the stream? Numbers wrap. */
static __always_inline bool seq_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/* Why the bytes behind snd_nxt stay, in the order in which the kernel asks. */
static __always_inline __u16 held_why(struct tcp_sock *tcp, __u32 n_held, bool more)
{
	__u32 mss = BPF_CORE_READ(tcp, mss_cache), out = BPF_CORE_READ(tcp, packets_out);
	__u32 gone = BPF_CORE_READ(tcp, sacked_out) + BPF_CORE_READ(tcp, lost_out);
	__u32 room = BPF_CORE_READ(tcp, snd_una) + BPF_CORE_READ(tcp, snd_wnd) -
		     BPF_CORE_READ(tcp, snd_nxt);
	__u8 nagle = BPF_CORE_READ_BITFIELD_PROBED(tcp, nonagle);

	if (out - gone + BPF_CORE_READ(tcp, retrans_out) >= BPF_CORE_READ(tcp, snd_cwnd))
		return TL_HELD_CONGESTION;
	if ((__s32)room < (__s32)(n_held < mss ? n_held : mss))
		return TL_HELD_WINDOW;
	if (n_held < mss && (more || nagle & TCP_NAGLE_CORK))
		return TL_HELD_CORK;
	if (n_held < mss && out && !(nagle & (TCP_NAGLE_OFF | TCP_NAGLE_PUSH)))
		return TL_HELD_NAGLE;
	return TL_HELD_OTHER;
}

/* Has TCP still bytes up to `end` of the stream? Of nearly every write all has left by now. */
static __always_inline bool held_any(struct sock *sk, __u32 end)
{
	struct tcp_sock *tcp = (void *)sk;

	return seq_after(end, BPF_CORE_READ(tcp, snd_nxt));
}

/* A write of a target that returned. The caller fills in what all events of one write have in
 * common, so that there is one event on the stack. */
struct written {
	struct tl_raw_tcp ev;
	__u64 sk;
	__u64 end_ns;		/* it returned */
	__u16 room;		/* enum tl_tcp_room, 0: there was room */
	__u16 more;		/* MSG_MORE */
	__u32 pad;
};

static __always_inline void held_say(struct written *w, __u16 what, __u16 why, __u32 bytes)
{
	struct cell *cell = this_cell();

	w->ev.what = what;
	w->ev.why = why;
	w->ev.bytes = bytes;
	if (what == TL_TCP_NO_ROOM)
		w->ev.hdr.ts_ns = w->end_ns;
	if (cell)
		send_event(cell, &w->ev.hdr, sizeof(w->ev));
}

/* From here on the programs of TCP follow the socket. */
static __always_inline bool held_note(const struct written *w, __u32 next)
{
	__u32 end = w->ev.seq;
	__u64 sk = w->sk;
	struct held_sock *h, fresh = {
		.ino = w->ev.sock, .tgid = w->ev.hdr.tgid, .fd = w->ev.fd,
		.end = end, .left = next, .wants_ack = w->room != 0,
	};

	held_count(1);
	if (bpf_map_update_elem(&helds, &sk, &fresh, BPF_NOEXIST))
		held_count(-1);
	h = bpf_map_lookup_elem(&helds, &sk);
	if (!h)
		return false;
	if (h->ino != w->ev.sock)	/* of a socket that is gone */
		*h = fresh;
	h->end = end;
	if (w->room)
		h->wants_ack = 1;
	return true;
}

/* What left before its HELD was sent is told now: some us too late. */
static __always_inline void held_look_again(struct written *w)
{
	struct tcp_sock *tcp = (void *)w->sk;
	struct sock *s = (void *)w->sk;
	__u64 sk = w->sk;
	struct held_sock *h;

	if (seq_after(w->ev.seq, BPF_CORE_READ(tcp, snd_nxt))) {
		if (BPF_CORE_READ(s, __sk_common.skc_state) == TCP_CLOSE)
			held_forget(sk);	/* reset meanwhile: nothing will come of it */
		return;
	}
	h = bpf_map_lookup_elem(&helds, &sk);
	w->ev.hdr.ts_ns = bpf_ktime_get_ns();
	w->ev.ack_ns = h ? h->ack_ns : 0;
	if (h && h->ino == w->ev.sock)
		h->left = h->end;
	held_say(w, TL_TCP_LEFT, 0, 0);
	if (h && !h->wants_ack)
		held_forget(sk);
}

/* A global function: the verifier looks at it once, not again for each way
 * that leads to it. Returns 0. */
__noinline int held_wrote(struct written *w)
{
	struct tcp_sock *tcp;
	struct cell *cell;
	__u32 next;

	if (!w)
		return 0;
	tcp = (void *)w->sk;
	next = BPF_CORE_READ(tcp, snd_nxt);
	if (!held_note(w, next)) {
		cell = this_cell();
		if (cell)
			cell_add_lost(cell, TL_RAW_TCP, w->end_ns);
		return 0;
	}
	if (seq_after(w->ev.seq, next))
		held_say(w, TL_TCP_HELD, held_why(tcp, w->ev.seq - next, w->more),
			 w->ev.seq - next);
	if (w->room)
		held_say(w, TL_TCP_NO_ROOM, w->room, w->ev.seq - BPF_CORE_READ(tcp, snd_una));
	held_look_again(w);
	return 0;
}

#endif
