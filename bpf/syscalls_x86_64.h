/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* System calls of x86-64: their numbers, and where their arguments lie in pt_regs. */
#ifndef TL_SYSCALLS_X86_64_H
#define TL_SYSCALLS_X86_64_H

/* From arch/x86/entry/syscalls/syscall_64.tbl of the kernel; numbers never change. */
enum {
	NR_READ = 0, NR_WRITE = 1, NR_CLOSE = 3, NR_POLL = 7, NR_IOCTL = 16, NR_READV = 19,
	NR_WRITEV = 20, NR_SELECT = 23, NR_SENDFILE = 40, NR_CONNECT = 42, NR_ACCEPT = 43,
	NR_SENDTO = 44, NR_RECVFROM = 45, NR_SENDMSG = 46, NR_RECVMSG = 47, NR_SHUTDOWN = 48,
	NR_EXIT = 60, NR_FUTEX = 202, NR_EXIT_GROUP = 231, NR_EPOLL_WAIT = 232, NR_PSELECT6 = 270,
	NR_PPOLL = 271, NR_EPOLL_PWAIT = 281, NR_ACCEPT4 = 288, NR_RECVMMSG = 299,
	NR_SENDMMSG = 307, NR_IO_URING_SETUP = 425, NR_IO_URING_ENTER = 426,
	NR_EPOLL_PWAIT2 = 441, NR_FUTEX_WAITV = 449, NR_FUTEX_WAKE = 454, NR_FUTEX_WAIT = 455,
	NR_FUTEX_REQUEUE = 456,
};

#define NR_BIT(nr) (1ull << (nr))
#define NR_SENDS (NR_BIT(NR_WRITE) | NR_BIT(NR_WRITEV) | NR_BIT(NR_SENDTO) | NR_BIT(NR_SENDMSG) | \
		  NR_BIT(NR_SENDFILE))
#define NR_RECVS (NR_BIT(NR_READ) | NR_BIT(NR_READV) | NR_BIT(NR_RECVFROM) | NR_BIT(NR_RECVMSG))

/* The first test of the programs that see every system call of the host: no memory is touched. */
#define NR_WANT_ENTER(nr) ((nr) < 64 && \
			   ((NR_SENDS | NR_BIT(NR_CLOSE) | NR_BIT(NR_SHUTDOWN)) >> (nr) & 1))
#define NR_WANT_EXIT(nr) ((nr) < 64 ? \
	(NR_SENDS | NR_RECVS | NR_BIT(NR_ACCEPT) | NR_BIT(NR_CONNECT)) >> (nr) & 1 : \
	(nr) == NR_ACCEPT4 || (nr) == NR_IO_URING_SETUP)

/* A 32-bit task numbers its calls otherwise; it runs with another code segment. */
enum { USER_CS_64BIT = 0x33 };	/* __USER_CS of the kernel */
#define REGS_64BIT(regs) (((regs)->cs & 0xffff) == USER_CS_64BIT)

#define SYS_NR(regs) ((regs)->orig_ax)
#define SYS_ARG1(regs) ((regs)->di)
#define SYS_ARG2(regs) ((regs)->si)
#define SYS_ARG3(regs) ((regs)->dx)
#define SYS_ARG4(regs) ((regs)->r10)

#endif
