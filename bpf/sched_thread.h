/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the scheduler's programs keep of a thread; the agent reads CPU times from it. */
#ifndef TL_SCHED_THREAD_H
#define TL_SCHED_THREAD_H

/* What the programs cost, per CPU: apart from those that go by tokens. */
struct tally {
	__u64 run_ns, runs;		/* for followed threads; time is sampled */
};

enum where { ON_CPU = 0, ASLEEP = 1, READY = 2 };
struct sched_thread {
	__u64 on_ns, off_ns;		/* last switched in and out; 0: not seen */
	__u64 awake_ns;			/* on a CPU, or waiting for one, since; 0: not known */
	__u64 cpu_ns;			/* on a CPU since it is followed, up to off_ns */
	__u64 awake_cpu_ns;		/* cpu_ns as of awake_ns */
	__u64 ready_ns;			/* woken, or taken off its CPU while it wanted to run */
	__u64 waking_ns;		/* last time that somebody woke it */
	__u64 run_told_ns;		/* up to here is its running told */
	__u64 code_told_ns;		/* up to here is told in which code */
	__u64 maj_flt;			/* as of the last span */
	__u64 by_ns;			/* who woke it, and how long that one had been awake */
	__u32 by_tgid, by_tid;
	char by_name[16];
	__u32 gen, watch;		/* enum watch */
	__u32 queue;			/* CPU in whose n_waiting it is
					 * counted, plus 1; 0: in none */
	__u16 cpu;			/* where it ran last */
	__u8 where, wait;		/* enum where; enum tl_wait of its sleep */
	__u8 slept, fault, timed_out;
	__u8 sampled;			/* its stack, since code_told_ns or since it is awake */
	__u32 tgid;
};

#endif
