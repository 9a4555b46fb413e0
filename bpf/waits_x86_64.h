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
	case NR_POLL: case NR_SELECT: case NR_PPOLL: case NR_PSELECT6:
	case NR_EPOLL_WAIT: case NR_EPOLL_PWAIT: case NR_EPOLL_PWAIT2: case NR_IO_URING_ENTER:
		return TL_WAIT_POLL;
	case NR_IOCTL:		/* how drivers of GPUs wait */
		return TL_WAIT_GPU;
	case NR_CONNECT: case NR_ACCEPT: case NR_ACCEPT4: case NR_SENDTO: case NR_RECVFROM:
	case NR_SENDMSG: case NR_RECVMSG: case NR_SENDMMSG: case NR_RECVMMSG:
		return TL_WAIT_SOCKET;
	case NR_FUTEX: case NR_FUTEX_WAIT: case NR_FUTEX_WAITV:
		return TL_WAIT_FUTEX;
	default:
		return TL_WAIT_OTHER;
	}
}

/* Context of a perf_event program: struct bpf_perf_event_data of the kernel's user API begins with
 * the registers in the order of struct pt_regs, 8 bytes each. */
struct timer_ctx {
	__u64 r15_to_orig_ax[16];
	__u64 ip, cs, flags, sp, ss;
};

/* May this system call wake a thread that waits for a futex? */
static __always_inline bool wakes_futex(long nr)
{
	switch (nr) {
	case NR_FUTEX: case NR_FUTEX_WAKE: case NR_FUTEX_REQUEUE:
	case NR_EXIT: case NR_EXIT_GROUP:	/* wake a thread that joins this one */
		return true;
	default:
		return false;
	}
}

#endif
