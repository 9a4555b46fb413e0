/* SPDX-License-Identifier: Apache-2.0 */
/* Reads filters of a stopped thread, and runs them on the system calls that we need. */
#include "source/seccomp.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ptrace.h>

#ifndef PTRACE_SECCOMP_GET_FILTER
#define PTRACE_SECCOMP_GET_FILTER 0x420c
#endif

enum { MAX_FILTERS = 64, CELLS = BPF_MEMWORDS };

/* ---- the machine ---- */

/* A word of struct seccomp_data. */
static int load(const struct seccomp_call *c, uint32_t offset, uint32_t *ret)
{
	uint32_t arg = (offset - offsetof(struct seccomp_data, args)) / 8;

	if (offset == offsetof(struct seccomp_data, nr))
		*ret = c->nr;
	else if (offset == offsetof(struct seccomp_data, arch))
		*ret = seccomp_arch;
	else if (offset < offsetof(struct seccomp_data, args) || offset % 4 || arg > 5 ||
		 !(c->known & 1u << arg))
		return -EINVAL; /* of what is not known, or where the call is made */
	else
		*ret = c->args[arg] >> (offset % 8 ? 32 : 0);
	return 0;
}

static int compute(uint16_t op, uint32_t *a, uint32_t b)
{
	switch (op) {
	case BPF_ADD:
		*a += b;
		return 0;
	case BPF_SUB:
		*a -= b;
		return 0;
	case BPF_MUL:
		*a *= b;
		return 0;
	case BPF_DIV:
		if (!b)
			return -EINVAL;
		*a /= b;
		return 0;
	case BPF_AND:
		*a &= b;
		return 0;
	case BPF_OR:
		*a |= b;
		return 0;
	case BPF_XOR:
		*a ^= b;
		return 0;
	case BPF_LSH:
		*a = b < 32 ? *a << b : 0;
		return 0;
	case BPF_RSH:
		*a = b < 32 ? *a >> b : 0;
		return 0;
	case BPF_NEG:
		*a = -*a;
		return 0;
	}
	return -EINVAL;
}

static int test(uint16_t op, uint32_t a, uint32_t b, bool *ret)
{
	switch (op) {
	case BPF_JEQ:
		*ret = a == b;
		return 0;
	case BPF_JGT:
		*ret = a > b;
		return 0;
	case BPF_JGE:
		*ret = a >= b;
		return 0;
	case BPF_JSET:
		*ret = a & b;
		return 0;
	}
	return -EINVAL;
}

/* Between the machine's registers `a` and `x` and its memory. */
static int load_or_store(const struct sock_filter *f, uint32_t cells[CELLS], uint32_t *a,
			 uint32_t *x)
{
	if (f->k >= CELLS)
		return -EINVAL;
	switch (f->code) {
	case BPF_LD | BPF_MEM:
		*a = cells[f->k];
		break;
	case BPF_LDX | BPF_MEM:
		*x = cells[f->k];
		break;
	case BPF_ST:
		cells[f->k] = *a;
		break;
	case BPF_STX:
		cells[f->k] = *x;
		break;
	}
	return 0;
}

/* Runs a filter: 0 and what it says (SECCOMP_RET_*), or -EINVAL: it is none, or asks what we do not
 * know. Jumps go forward only, so it ends. */
static int run_filter(const struct sock_filter *filter, size_t n, const struct seccomp_call *call,
		      uint32_t *ret)
{
	uint32_t a = 0, x = 0, cells[CELLS] = { 0 };

	for (size_t at = 0; at < n; at++) {
		const struct sock_filter *f = &filter[at];
		uint32_t operand = BPF_SRC(f->code) == BPF_X ? x : f->k;
		bool yes = false;
		int err = 0;

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			err = load(call, f->k, &a);
			break;
		case BPF_LD | BPF_W | BPF_LEN:
			a = sizeof(struct seccomp_data);
			break;
		case BPF_LDX | BPF_W | BPF_LEN:
			x = sizeof(struct seccomp_data);
			break;
		case BPF_LD | BPF_IMM:
			a = f->k;
			break;
		case BPF_LDX | BPF_IMM:
			x = f->k;
			break;
		case BPF_MISC | BPF_TAX:
			x = a;
			break;
		case BPF_MISC | BPF_TXA:
			a = x;
			break;
		case BPF_RET | BPF_K:
			*ret = f->k;
			return 0;
		case BPF_RET | BPF_A:
			*ret = a;
			return 0;
		case BPF_JMP | BPF_JA:
			at += f->k;
			break;
		case BPF_LD | BPF_MEM:
		case BPF_LDX | BPF_MEM:
		case BPF_ST:
		case BPF_STX:
			err = load_or_store(f, cells, &a, &x);
			break;
		default:
			if (BPF_CLASS(f->code) == BPF_ALU) {
				err = compute(BPF_OP(f->code), &a, operand);
			} else if (BPF_CLASS(f->code) == BPF_JMP) {
				err = test(BPF_OP(f->code), a, operand, &yes);
				at += yes ? f->jt : f->jf;
			} else {
				err = -EINVAL;
			}
		}
		if (err)
			return err;
	}
	return -EINVAL;
}

const char *seccomp_forbids(const struct sock_filter *filter, size_t n)
{
	for (size_t i = 0; i < n_seccomp_calls; i++) {
		const struct seccomp_call *c = &seccomp_calls[i];
		uint32_t action = 0;

		if (run_filter(filter, n, c, &action))
			return c->name;
		action &= SECCOMP_RET_ACTION_FULL;
		if (action != SECCOMP_RET_ALLOW && action != SECCOMP_RET_LOG &&
		    !(c->may_fail && action == SECCOMP_RET_ERRNO))
			return c->name;
	}
	return NULL;
}

/* ---- a thread's ---- */

int seccomp_check(pid_t tid, const char **ret_call)
{
	struct sock_filter *filter;
	int err = 0;

	for (unsigned long i = 0; !err; i++) {
		long n = ptrace(PTRACE_SECCOMP_GET_FILTER, tid, i, NULL);

		if (n < 0)
			return errno == ENOENT && i ? 0 : -errno;
		if (!n || n > BPF_MAXINSNS || i >= MAX_FILTERS)
			return -EINVAL;
		filter = calloc(n, sizeof(*filter));
		if (!filter)
			return -ENOMEM;
		if (ptrace(PTRACE_SECCOMP_GET_FILTER, tid, i, filter) != n)
			err = -EINVAL;
		*ret_call = err ? NULL : seccomp_forbids(filter, n);
		if (*ret_call)
			err = -EPERM;
		free(filter);
	}
	return err;
}
