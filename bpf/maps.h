/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Maps and helpers that every BPF program family shares. */
#ifndef TL_MAPS_H
#define TL_MAPS_H

#include "ktypes.h"
#include "tl_event.h"
#include "cells.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Raw events, for the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} events SEC(".maps");

/* One cell per CPU (max_entries is set to their number before load). Not a per-CPU map, so that the
 * agent reads it through mmap, without a system call per poll. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cell);
} cells SEC(".maps");

/* The agent is woken once a CPU has sent this much: it polls every 100 ms anyway, and a wakeup per
 * event would be paid by the target. Set before load. */
const volatile __u32 wakeup_bytes = 256 << 10;

enum { RUN_SAMPLE = 16 };	/* one run in so many is timed: reading the clock is not cheap */

static __always_inline struct cell *this_cell(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cells, &cpu);
}

/* Our own cost, without bpf_stats: those time every run for every process of the host. The low bits
 * of the clock pick the runs that are timed. */
static __always_inline void count_run(struct cell *c, __u64 start_ns)
{
	c->runs++;
	if (start_ns % RUN_SAMPLE == 0)
		c->run_ns += (bpf_ktime_get_ns() - start_ns) * RUN_SAMPLE;
}

/* With which flag the next `size` bytes go into the ring: most of the time nobody is woken. */
static __always_inline __u64 wakeup_flag(struct cell *c, __u32 size)
{
	c->asleep_bytes += size;
	if (c->asleep_bytes < wakeup_bytes)
		return BPF_RB_NO_WAKEUP;
	c->asleep_bytes = 0;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline void send_event(struct cell *c, struct tl_hdr *ev, __u32 size)
{
	if (bpf_ringbuf_output(&events, ev, size, wakeup_flag(c, size)))
		cell_add_lost(c, ev->kind, bpf_ktime_get_ns());
}

#endif
