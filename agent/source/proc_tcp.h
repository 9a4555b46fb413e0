/* SPDX-License-Identifier: Apache-2.0 */
/* TCP connections between processes of this host, found through /proc. */
#ifndef TL_SOURCE_PROC_TCP_H
#define TL_SOURCE_PROC_TCP_H

#include <stddef.h>
#include <stdint.h>

struct tcp_between {
	uint64_t inode_a, inode_b;	/* of the sockets that are its ends */
	uint32_t pid_a, pid_b;		/* who has them; one of these, if several share one */
};

/*
 * Established connections with one end in a process of `a` and the other in one of `b`, as the
 * network namespaces of `a` have them. Processes that are gone or not readable have none. *ret is
 * to be freed. Returns how many, or -ENOMEM.
 */
int proc_tcp_between(const uint32_t *a, size_t n_a, const uint32_t *b, size_t n_b,
		     struct tcp_between **ret);

#endif
