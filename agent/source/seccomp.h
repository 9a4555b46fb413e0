/* SPDX-License-Identifier: Apache-2.0 */
/* Does a thread's seccomp filter let through what we would have it do? */
#ifndef TL_SOURCE_SECCOMP_H
#define TL_SOURCE_SECCOMP_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A system call that the way in or the library makes, with those of its arguments
 * that are always the same. */
struct seccomp_call {
	const char *name;
	int nr;
	uint32_t known;		/* bit i: args[i] is as here; of the others a filter must not ask */
	uint64_t args[6];
	bool may_fail;		/* an error is no harm: only a signal would be */
};
extern const struct seccomp_call seccomp_calls[];
extern const size_t n_seccomp_calls;
extern const uint32_t seccomp_arch;	/* AUDIT_ARCH_* */

/* The first of our calls that the filter does not let through, NULL: none. */
const char *seccomp_forbids(const struct sock_filter *filter, size_t n);

/* All filters of a thread that is stopped by us. 0; -EPERM: *ret_call is not allowed; or -errno:
 * they cannot be read (-EACCES: without CAP_SYS_ADMIN, -EINVAL: this kernel does not give them). */
int seccomp_check(pid_t tid, const char **ret_call);

#endif
