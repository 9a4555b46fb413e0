/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls of the way in and of the library on x86-64, those of older
 * and newer glibc included. */
#include "source/seccomp.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define THREAD_FLAGS 0x3d0f00	/* as pthread_create() has them: CLONE_VM, ... */
#define KNOWN(i) (1u << (i))

const uint32_t seccomp_arch = AUDIT_ARCH_X86_64;

const struct seccomp_call seccomp_calls[] = {
	{ "memfd_create", SYS_memfd_create, KNOWN(1), { 0, 3 }, false },
	/* dlopen(), and what the library reads */
	{ "openat", SYS_openat, 0, { 0 }, false },
	{ "open", SYS_open, 0, { 0 }, true },
	{ "stat", SYS_stat, 0, { 0 }, true },
	{ "lstat", SYS_lstat, 0, { 0 }, true },
	{ "readlink", SYS_readlink, 0, { 0 }, true },
	{ "read", SYS_read, 0, { 0 }, false },
	{ "pread64", SYS_pread64, 0, { 0 }, false },
	{ "newfstatat", SYS_newfstatat, 0, { 0 }, false },
	{ "fstat", SYS_fstat, 0, { 0 }, true },
	{ "close", SYS_close, 0, { 0 }, false },
	{ "mmap of code", SYS_mmap, KNOWN(2) | KNOWN(3), { 0, 0, PROT_READ | PROT_EXEC,
	  MAP_PRIVATE | MAP_FIXED | MAP_DENYWRITE }, false },
	{ "mmap", SYS_mmap, KNOWN(2) | KNOWN(3), { 0, 0, PROT_READ | PROT_WRITE, MAP_SHARED }, false },
	{ "mmap of a stack", SYS_mmap, KNOWN(2) | KNOWN(3), { 0, 0, PROT_NONE,
	  MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK }, false },
	{ "mprotect", SYS_mprotect, KNOWN(2), { 0, 0, PROT_READ | PROT_WRITE }, false },
	{ "munmap", SYS_munmap, 0, { 0 }, false },
	{ "getrandom", SYS_getrandom, 0, { 0 }, true },	/* malloc(), the first time */
	{ "brk", SYS_brk, 0, { 0 }, false },
	{ "lseek", SYS_lseek, KNOWN(1) | KNOWN(2), { 0, 0, 2 }, false },
	{ "fcntl", SYS_fcntl, KNOWN(1), { 0, F_ADD_SEALS }, true },
	{ "access", SYS_access, 0, { 0 }, true },
	{ "getpid", SYS_getpid, 0, { 0 }, false },
	{ "gettid", SYS_gettid, 0, { 0 }, false },
	/* its threads */
	{ "clone", SYS_clone, KNOWN(0), { THREAD_FLAGS }, false },
	{ "clone3", SYS_clone3, 0, { 0 }, true },
	{ "set_robust_list", SYS_set_robust_list, 0, { 0 }, true },
	{ "rseq", SYS_rseq, 0, { 0 }, true },
	{ "prctl", SYS_prctl, KNOWN(0), { PR_SET_NAME }, true },
	{ "sched_getaffinity", SYS_sched_getaffinity, 0, { 0 }, true },
	/* Of the first thread of a process. */
	{ "rt_sigaction", SYS_rt_sigaction, 0, { 0 }, true },
	{ "rt_sigprocmask", SYS_rt_sigprocmask, 0, { 0 }, false },
	{ "futex", SYS_futex, 0, { 0 }, false },
	{ "clock_nanosleep", SYS_clock_nanosleep, 0, { 0 }, false },
	{ "nanosleep", SYS_nanosleep, 0, { 0 }, true },
	{ "clock_gettime", SYS_clock_gettime, 0, { 0 }, false },
	{ "madvise", SYS_madvise, 0, { 0 }, true },
	{ "exit", SYS_exit, 0, { 0 }, false },
	/* the call that the thread was taken out of */
	{ "restart_syscall", SYS_restart_syscall, 0, { 0 }, false },
};
const size_t n_seccomp_calls = sizeof(seccomp_calls) / sizeof(seccomp_calls[0]);
