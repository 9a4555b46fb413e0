/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that listen, asked of the kernel: /proc/net/tcp walks all that are connected, too. */
#ifndef TL_SOURCE_SOCK_DIAG_H
#define TL_SOURCE_SOCK_DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is a process in our network namespace? Of others nothing can be asked. */
bool sock_diag_reaches(uint32_t pid);

/* The TCP sockets that listen in our network namespace. *ret is to be freed. Returns how many, or
 * -errno: this kernel does not answer. */
struct listening {
	uint64_t inode;
	uint16_t port;
};
int sock_diag_listening(struct listening **ret);

#endif
