/* SPDX-License-Identifier: Apache-2.0 */
/* Injection on x86-64: the code that a thread of the target runs, and how it is
 * sent there and comes back. */
#include "source/inject_priv.h"

#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* ERESTART*, which only tracers see. */
enum { RESTART_SYS = 512, RESTART_NOINTR = 513, RESTART_NOHAND = 514, RESTART_BLOCK = 516 };

#define DONE_MAGIC 0x656e6f646c746b74ull
#define BEGUN_MAGIC 0x6e7567656274746bull
enum { RED_ZONE = 128, GAP_BYTES = 64 * 1024, XSAVE_BYTES = 2752 };

struct frame {			/* on the thread's stack; offsets are
				 * written out in the code below */
	uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi;
	uint64_t flags, rsp, done;	/* 120, 128, 136 */
	uint64_t what;			/* 144 */
	uint64_t errno_location, dlopen, dlsym;	/* 152, 160, 168 */
	int64_t library, ring, result;	/* 176, 184, 192 */
	uint64_t start;			/* 200 */
	char memfd_name[24], ring_name[24];	/* 208, 232 */
	char path[64];			/* 256 */
	char symbol[32];		/* 320 */
	uint64_t begun, pad[3];
	uint8_t xsave[XSAVE_BYTES] __attribute__((aligned(64)));	/* 384 */
};
_Static_assert(offsetof(struct frame, flags) == 120 && offsetof(struct frame, done) == 136, "code");
_Static_assert(offsetof(struct frame, what) == 144 && offsetof(struct frame, dlsym) == 168, "code");
_Static_assert(offsetof(struct frame, library) == 176 && offsetof(struct frame, start) == 200, "code");
_Static_assert(offsetof(struct frame, memfd_name) == 208 && offsetof(struct frame, path) == 256, "code");
_Static_assert(offsetof(struct frame, symbol) == 320 && offsetof(struct frame, xsave) == 384, "code");

/*
 * rbx is the frame, rsp too. Registers of all kinds are as they were at its end, errno too. The
 * stack may be overwritten by a signal's handler as soon as rsp is back: the last two words
 * come from behind the code.
 */
extern const char inject_code[], inject_code_end[];
asm(".pushsection .rodata\n"
    ".balign 16\n"
    ".globl inject_code, inject_code_end\n"
    ".hidden inject_code, inject_code_end\n"
    "inject_code:\n"
    "	cld\n"
    "	movl $0xe7, %eax\n"	/* x87, SSE, AVX, AVX-512 */
    "	xorl %edx, %edx\n"
    "	xsave64 384(%rbx)\n"
    "	call *152(%rbx)\n"
    "	movq %rax, %r12\n"
    "	movl (%rax), %r13d\n"
    "	cmpl $2, 144(%rbx)\n"
    "	je 2f\n"
    "	ja 4f\n"
    "	movq $-1, %rax\n"
    "	cmpq $0, 200(%rbx)\n"
    "	jne 1f\n"
    "	movl $319, %eax\n"	/* memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING) */
    "	leaq 208(%rbx), %rdi\n"
    "	movl $3, %esi\n"
    "	syscall\n"
    "	movq %rax, 184(%rbx)\n"
    "	testq %rax, %rax\n"
    "	js 9f\n"
    "1:	movq %rax, 176(%rbx)\n"
    "	movl $319, %eax\n"
    "	leaq 232(%rbx), %rdi\n"
    "	movl $3, %esi\n"
    "	syscall\n"
    "	movq %rax, 184(%rbx)\n"
    "	testq %rax, %rax\n"
    "	js 5f\n"
    "	jmp 9f\n"
    "2:	movq 200(%rbx), %rax\n"
    "	testq %rax, %rax\n"
    "	jne 3f\n"
    "	leaq 256(%rbx), %rdi\n"
    "	movl $2, %esi\n"	/* RTLD_NOW */
    "	call *160(%rbx)\n"
    "	testq %rax, %rax\n"
    "	je 4f\n"
    "	movq %rax, %rdi\n"
    "	leaq 320(%rbx), %rsi\n"
    "	call *168(%rbx)\n"
    "	testq %rax, %rax\n"
    "	je 4f\n"
    "3:	movl 184(%rbx), %edi\n"
    "	call *%rax\n"
    "	cltq\n"
    "	movq %rax, 192(%rbx)\n"
    "4:	movl $3, %eax\n"	/* close */
    "	movl 184(%rbx), %edi\n"
    "	syscall\n"
    "5:	movl $3, %eax\n"
    "	movl 176(%rbx), %edi\n"
    "	syscall\n"
    "9:	movl %r13d, (%r12)\n"
    "	movl $0xe7, %eax\n"
    "	xorl %edx, %edx\n"
    "	xrstor64 384(%rbx)\n"
    "	movabsq $0x656e6f646c746b74, %rax\n"
    "	movq %rax, 136(%rbx)\n"
    "	pushq 120(%rbx)\n"
    "	popfq\n"
    "	movq 0(%rbx), %r15\n"
    "	movq 8(%rbx), %r14\n"
    "	movq 16(%rbx), %r13\n"
    "	movq 24(%rbx), %r12\n"
    "	movq 32(%rbx), %rbp\n"
    "	movq 48(%rbx), %r11\n"
    "	movq 56(%rbx), %r10\n"
    "	movq 64(%rbx), %r9\n"
    "	movq 72(%rbx), %r8\n"
    "	movq 80(%rbx), %rax\n"
    "	movq 88(%rbx), %rcx\n"
    "	movq 96(%rbx), %rdx\n"
    "	movq 104(%rbx), %rsi\n"
    "	movq 112(%rbx), %rdi\n"
    "	movq 128(%rbx), %rsp\n"
    "	movq inject_code_end(%rip), %rbx\n"
    "	jmp *inject_code_end+8(%rip)\n"
    "	.balign 8\n"
    "inject_code_end:\n"	/* rbx, rip, and for those who find this: the frame */
    ".popsection\n");

bool inject_arch__elf(uint16_t machine)
{
	return machine == EM_X86_64;
}

bool inject_arch__supported(void)
{
	uint32_t a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && c & bit_OSXSAVE;
}

static size_t code_bytes(void)
{
	return inject_code_end - inject_code;
}

size_t inject_arch__code_bytes(void)
{
	return code_bytes() + 3 * sizeof(uint64_t);
}

bool inject_arch__is_ours(const void *bytes)
{
	return !memcmp(bytes, inject_code, code_bytes());
}

/* The frame of the last visit is still as it was filled, or has been overwritten
 * since, or is marked as done. */
bool inject_arch__is_busy(const struct inject_target *t)
{
	struct frame f = { 0 };
	uint64_t at;

	if (pread(t->mem, &at, sizeof(at), t->cave + code_bytes() + 16) != sizeof(at) ||
	    pread(t->mem, &f, offsetof(struct frame, pad), at) < 0)
		return false;
	return f.begun == BEGUN_MAGIC && f.done != DONE_MAGIC;
}

/* ---- calls ---- */

static bool is_epoll(long nr)
{
	return nr == SYS_epoll_wait || nr == SYS_epoll_pwait || nr == SYS_epoll_pwait2;
}

bool inject_arch__at_call(const struct user_regs_struct *r, bool entry, struct inject_call *ret)
{
	int64_t result = r->rax;

	*ret = (struct inject_call){ r->orig_rax, { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 }, r->rsp, r->rip };
	if (r->cs != 0x33 || (int64_t)r->orig_rax < 0)
		return false;
	return entry || result == -RESTART_SYS || result == -RESTART_NOINTR || result == -RESTART_NOHAND ||
	       result == -RESTART_BLOCK || (result == -EINTR && is_epoll(r->orig_rax));
}

bool inject_arch__harmless(const struct inject_call *c)
{
	switch (c->nr) {
	case SYS_epoll_wait: case SYS_epoll_pwait: case SYS_epoll_pwait2: case SYS_poll: case SYS_ppoll:
	case SYS_select: case SYS_pselect6: case SYS_nanosleep: case SYS_clock_nanosleep: case SYS_accept:
	case SYS_accept4: case SYS_recvfrom: case SYS_recvmsg: case SYS_sendto: case SYS_sendmsg: case SYS_write:
	case SYS_sched_yield:
	case SYS_restart_syscall:	/* of poll, nanosleep or a futex with a time limit, after a stop */
		return true;
	case SYS_futex:		/* a condition, a semaphore, a thread's end; locks, malloc's too, use FUTEX_WAIT, in
				 * one process only and for as long as it takes */
		if ((c->args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT)
			return !(c->args[1] & FUTEX_PRIVATE_FLAG) || c->args[3];
		return (c->args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
	default:
		return false;
	}
}

static void set_regs(pid_t tid, struct user_regs_struct *r)
{
	ptrace(PTRACE_SETREGS, tid, NULL, r);
}

/* An epoll_wait that was stopped ends with EINTR, unlike other calls: make
 * the kernel begin it again. */
void inject_arch__repair(pid_t tid, struct user_regs_struct *r)
{
	if ((int64_t)r->rax != -EINTR || !is_epoll(r->orig_rax))
		return;
	r->rax = -RESTART_NOHAND;
	set_regs(tid, r);
}

/* ---- there and back ---- */

static int write_stack(pid_t pid, uint64_t at, const void *buf, size_t len)
{
	struct iovec from = { (void *)buf, len }, to = { (void *)at, len };

	return process_vm_writev(pid, &from, 1, &to, 1, 0) == (ssize_t)len ? 0 : -EFAULT;
}

static void fill(struct frame *f, const struct inject_target *t, const struct user_regs_struct *r, bool entry,
		 const struct inject_visit *v)
{
	int at;

	*f = (struct frame){
		.r15 = r->r15, .r14 = r->r14, .r13 = r->r13, .r12 = r->r12, .rbp = r->rbp, .rbx = r->rbx,
		.r11 = r->r11, .r10 = r->r10, .r9 = r->r9, .r8 = r->r8, .rcx = r->rcx, .rdx = r->rdx,
		.rsi = r->rsi, .rdi = r->rdi, .flags = r->eflags, .rsp = r->rsp, .what = v->what,
		.rax = !entry && (int64_t)r->rax == -RESTART_BLOCK ? SYS_restart_syscall : r->orig_rax,
		.errno_location = t->errno_location, .dlopen = t->dlopen, .dlsym = t->dlsym,
		.library = v->library, .ring = v->ring, .result = -ELIBACC, .start = t->start,
		.memfd_name = "libtokenlag.so", .ring_name = "tokenlag-ring", .symbol = "tokenlag_start",
		.begun = BEGUN_MAGIC,
	};
	/* The loader takes equal paths for the same library. */
	at = snprintf(f->path, sizeof(f->path), "/proc/self/fd/");
	for (uint32_t i = 0; i < t->n_libraries && at < 48; i++)
		at += snprintf(f->path + at, sizeof(f->path) - at, "./");
	snprintf(f->path + at, sizeof(f->path) - at, "%d", v->library);
}

int inject_arch__divert(const struct inject_target *t, pid_t tid, const struct user_regs_struct *regs, bool entry,
			struct inject_visit *v)
{
	struct user_regs_struct r = *regs;
	struct frame f;
	uint64_t last[3] = { regs->rbx, regs->rip - 2 };
	uint8_t insn[2];

	if (pread(t->mem, insn, 2, last[1]) != 2 || insn[0] != 0x0f || insn[1] != 0x05)
		return -EAGAIN;
	v->frame = (regs->rsp - RED_ZONE - GAP_BYTES - sizeof(f)) & ~63ull;
	last[2] = v->frame;
	fill(&f, t, regs, entry, v);
	if (write_stack(t->pid, v->frame, &f, sizeof(f)))
		return -EAGAIN;
	if (pwrite(t->mem, inject_code, code_bytes(), t->cave) != (ssize_t)code_bytes() ||
	    pwrite(t->mem, last, sizeof(last), t->cave + code_bytes()) != sizeof(last))
		return -EPERM;
	r.rip = t->cave;
	r.rsp = r.rbx = v->frame;
	r.orig_rax = -1;	/* no call is to be made, or begun again */
	r.rax = 0;
	return ptrace(PTRACE_SETREGS, tid, NULL, &r) ? -errno : 0;
}

int inject_arch__done(const struct inject_target *t, const struct inject_visit *v, int *ret)
{
	struct frame f;

	if (pread(t->mem, &f, offsetof(struct frame, pad), v->frame) < 0 || f.done != DONE_MAGIC)
		return 0;
	*ret = v->what == INJECT_LOAD			? f.result :
	       v->what == INJECT_MEMFDS && f.ring < 0	? f.ring :
							  0;
	return 1;
}
