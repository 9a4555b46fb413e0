/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What TCP does with bytes that targets wrote: when those that it held
 * leave, and what is sent again. */
#include "ktypes.h"
#include "maps.h"
#include "held.h"
#include "ports.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Offsets in struct tcphdr. */
enum { TCPHDR_SEQ = 4, TCPHDR_ACK = 8, TCPHDR_DOFF = 12, TCPHDR_MIN = 20 };

/* Processes that connected to a watched port, and when the agent was last told of it. It is woken
 * for each, to find proxies before they hand on what they are told. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} connectors SEC(".maps");

enum { CONNECT_AGAIN_NS = 1000000000 };	/* how often one process is told of */

/* A segment goes to the device. Those that carry new bytes of a held socket let them go. */
SEC("?tp_btf/net_dev_start_xmit")
int BPF_PROG(tcp_xmit, const struct sk_buff *skb)
{
	__u64 sk, now, at;
	struct held_sock *h;
	__u8 th[TCPHDR_MIN];
	struct cell *cell;
	__u32 end, skip;

	if (held_none())
		return 0;
	sk = (__u64)skb->sk;
	h = bpf_map_lookup_elem(&helds, &sk);
	if (!h || h->left == h->end)
		return 0;
	cell = this_cell();
	at = (__u64)skb->head + skb->transport_header;
	if (!cell || bpf_probe_read_kernel(th, sizeof(th), (void *)at))
		return 0;
	now = bpf_ktime_get_ns();
	skip = at - (__u64)skb->data + (th[TCPHDR_DOFF] >> 4) * 4;
	if (skb->len > skip) {
		end = __builtin_bswap32(*(__u32 *)(th + TCPHDR_SEQ)) + skb->len - skip;
		if (seq_after(end, h->left)) {
			h->left = seq_after(end, h->end) ? h->end : end;
			held_send(h, TL_TCP_LEFT, h->left, now, 0);
			if (h->left == h->end && !h->wants_ack)
				held_forget(sk);
		}
	}
	count_run(cell, now);
	return 0;
}

/* Bytes that have left without being seen by tcp_xmit: at some time before now. */
static __always_inline void catch_up(struct held_sock *h, struct tcp_sock *tcp, __u64 now)
{
	__u32 next;

	if (h->left == h->end)
		return;
	next = BPF_CORE_READ(tcp, snd_nxt);
	if (!seq_after(next, h->left))
		return;
	h->left = seq_after(next, h->end) ? h->end : next;
	held_send(h, TL_TCP_LEFT, h->left, now, TL_F_GUESS);
}

/* A segment of the peer came. */
SEC("?tp_btf/tcp_probe")
int BPF_PROG(tcp_ack, struct sock *sk_, struct sk_buff *skb)
{
	__u64 sk = (__u64)sk_, now;
	struct held_sock *h;
	struct cell *cell;
	__u32 ack;

	if (held_none())
		return 0;
	h = bpf_map_lookup_elem(&helds, &sk);
	cell = this_cell();
	if (!h || !cell)
		return 0;
	now = bpf_ktime_get_ns();
	catch_up(h, (void *)sk_, now);
	h->ack_ns = now;
	if (h->wants_ack && !bpf_probe_read_kernel(&ack, sizeof(ack), skb->data + TCPHDR_ACK)) {
		ack = __builtin_bswap32(ack);
		if (!seq_after(h->end, ack)) {
			held_send(h, TL_TCP_DRAINED, ack, now, 0);
			held_forget(sk);
		}
	} else if (!h->wants_ack && h->left == h->end) {
		held_forget(sk);
	}
	count_run(cell, now);
	return 0;
}

/* A segment is sent again. Sockets that no process has open any more are left out:
 * whose they were is not known. */
SEC("?tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_again, const struct sock *sk, const struct sk_buff *skb)
{
	__u16 port = sk->__sk_common.skc_num;
	__u32 seqs[2];
	struct cell *cell;

	if (!sk->sk_socket || !bpf_map_lookup_elem(&ports, &port))
		return 0;
	cell = this_cell();
	/* struct tcp_skb_cb begins with seq and end_seq */
	if (!cell || bpf_probe_read_kernel(seqs, sizeof(seqs), skb->cb))
		return 0;
	struct tl_raw_tcp ev = {
		.hdr = { sizeof(ev), TL_RAW_TCP, 0, 0, 0, bpf_ktime_get_ns() },
		.sock = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino),
		.seq = seqs[1],
		.bytes = seqs[1] - seqs[0],
		.fd = -1,
		.what = TL_TCP_AGAIN,
		.local_port = port,
		.peer_port = __builtin_bswap16(sk->__sk_common.skc_dport),
	};
	send_event(cell, &ev.hdr, sizeof(ev));
	count_run(cell, ev.hdr.ts_ns);
	return 0;
}

/* tcp_probe is silent once one side has closed: what was acknowledged since
 * shows with the next state. */
static __always_inline void look_again(const struct sock *sk_, bool is_gone)
{
	struct tcp_sock *tcp = (void *)sk_;
	__u64 sk = (__u64)sk_;
	struct held_sock *h = bpf_map_lookup_elem(&helds, &sk);
	__u64 now;
	bool done;

	if (!h)
		return;
	now = bpf_ktime_get_ns();
	catch_up(h, tcp, now);
	done = h->wants_ack && !seq_after(h->end, BPF_CORE_READ(tcp, snd_una));
	if (done)
		held_send(h, TL_TCP_DRAINED, h->end, now, 0);
	if (done || is_gone)
		held_forget(sk);
}

/* A process of this host begins to connect, or a socket comes closer to its end. */
SEC("?tp_btf/inet_sock_set_state")
int BPF_PROG(tcp_life, const struct sock *sk, int old_state, int new_state)
{
	__u64 id = bpf_get_current_pid_tgid(), now, *last;
	__u32 tgid = id >> 32;
	struct cell *cell;
	__u16 port;

	if (!held_none())
		look_again(sk, new_state == TCP_CLOSE);
	if (new_state != TCP_SYN_SENT || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	port = __builtin_bswap16(sk->__sk_common.skc_dport);
	cell = bpf_map_lookup_elem(&ports, &port) ? this_cell() : NULL;
	if (!cell)
		return 0;
	now = bpf_ktime_get_ns();
	last = bpf_map_lookup_elem(&connectors, &tgid);
	if (last && now - *last < CONNECT_AGAIN_NS)
		return 0;
	bpf_map_update_elem(&connectors, &tgid, &now, BPF_ANY);
	struct tl_raw_tcp ev = {
		.hdr = { sizeof(ev), TL_RAW_TCP, 0, tgid, (__u32)id, now },
		.fd = -1,
		.what = TL_TCP_CONNECT,
		.peer_port = port,
	};
	cell->asleep_bytes = wakeup_bytes;
	send_event(cell, &ev.hdr, sizeof(ev));
	return 0;
}
