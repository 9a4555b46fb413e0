/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When the bytes that a thread takes from a TCP socket arrived. */
#ifndef TL_BPF_ARRIVAL_H
#define TL_BPF_ARRIVAL_H

#include "ktypes.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* A clock that is further than this behind the last data was set by something later than that data:
 * delayed acknowledgements come 40 ms (TCP_DELACK_MIN) or more after it. */
enum { TOUCHED_NS = 20000000 };

const volatile __u32 tick_ns = 4000000;		/* length of a jiffy; set before load */

/*
 * CLOCK_MONOTONIC time at which the last data of the socket came. TCP has two notes of it: its
 * clock, which is exact to the nanosecond, but is set anew by a delayed acknowledgement that leaves
 * before the bytes are read; and icsk_ack.lrcvtime, in jiffies. Neither is ever too early: jiffies
 * are rounded so that a wait comes out up to two of them too short.
 */
static __always_inline __u64 arrived_ns(struct sock *sk, __u64 now)
{
	__u64 clock = BPF_CORE_READ((struct tcp_sock *)sk, tcp_clock_cache), waited;
	__u32 ticks = (__u32)bpf_jiffies64() -
		      BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_ack.lrcvtime);

	if (!ticks || ticks > 1u << 31)
		return clock;
	waited = (__u64)(ticks - 1) * tick_ns;
	return waited < now && now - waited + TOUCHED_NS < clock ? now - waited : clock;
}

#endif
