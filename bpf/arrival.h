/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When the bytes that a thread takes from a TCP socket arrived. */
#ifndef TL_BPF_ARRIVAL_H
#define TL_BPF_ARRIVAL_H

#include "ktypes.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* TCP_DELACK_MIN is 40 ms: what touches the clock later than its packet touches it later by so much. */
enum { TOUCHED_NS = 20000000 };

const volatile __u32 tick_ns = 4000000;		/* of jiffies; set before load */

/* TCP notes its clock for each packet that comes or goes: to the nanosecond, but a delayed acknowledgement that
 * leaves before the bytes are read sets it anew. When the last data came it keeps, too, in jiffies. Neither is ever
 * too early: ticks are rounded so that a wait is up to two of them too short. */
static __always_inline __u64 arrived_ns(struct sock *sk, __u64 now)
{
	__u64 clock = BPF_CORE_READ((struct tcp_sock *)sk, tcp_clock_cache), waited;
	__u32 ticks = (__u32)bpf_jiffies64() - BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_ack.lrcvtime);

	if (!ticks || ticks > 1u << 31)
		return clock;
	waited = (__u64)(ticks - 1) * tick_ns;
	return waited < now && now - waited + TOUCHED_NS < clock ? now - waited : clock;
}

#endif
