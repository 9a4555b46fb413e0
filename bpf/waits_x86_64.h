/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a thread waits for, by the number of the system call that it sleeps in, on x86-64. */
#ifndef TL_WAITS_X86_64_H
#define TL_WAITS_X86_64_H

#include "syscalls_x86_64.h"

static __always_inline __u8 wait_of_syscall(long nr)
{
	switch (nr) {
	case NR_READ: case NR_WRITE: case NR_READV: case NR_WRITEV:
		return TL_WAIT_PIPE;
	case 7: case 23: case 232: case 270: case 271: case 281: case 441: /* poll, select, epoll_wait ... */
	case 426:						/* io_uring_enter */
		return TL_WAIT_POLL;
	case 16:						/* ioctl: how drivers of GPUs wait */
		return TL_WAIT_GPU;
	case NR_CONNECT: case NR_ACCEPT: case NR_SENDTO: case NR_RECVFROM: case NR_SENDMSG: case NR_RECVMSG:
	case NR_ACCEPT4: case 299: case 307:			/* recvmmsg, sendmmsg */
		return TL_WAIT_SOCKET;
	case 202: case 449: case 455:				/* futex, futex_waitv, futex_wait */
		return TL_WAIT_FUTEX;
	default:
		return TL_WAIT_OTHER;
	}
}

/* What a program of a timer is given; the registers as user space knows them, 8 bytes each. */
struct timer_ctx {
	__u64 r15_to_orig_ax[16];
	__u64 ip, cs, flags, sp, ss;
};

static __always_inline bool wakes_futex(long nr)
{
	switch (nr) {
	case 202: case 454: case 456:				/* futex, futex_wake, futex_requeue */
	case 60: case 231:					/* exit, exit_group: for who joins */
		return true;
	default:
		return false;
	}
}

#endif
