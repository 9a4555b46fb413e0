/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of this host that use a server of this host, and those that serve beside them. */
#ifndef TL_SOURCE_PEERS_H
#define TL_SOURCE_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Processes that are connected to one of these TCP ports now, wherever it is. *ret is to be freed.
 * Returns how many, or -ENOMEM. */
int peers_of_ports(const uint16_t *ports, size_t n_ports, uint32_t **ret);

/* Other processes with the same parent and the same executable: workers. As above. */
int peers_siblings(uint32_t pid, uint32_t **ret);

/* What tells a proxy. Cheap: clients that come and go are looked at, too. */
struct peer {
	uint64_t start;		/* when it began, in ticks: tells it from
				 * a later process of that number */
	char comm[16];
	bool listens;		/* on a TCP port */
};
int peers_look(uint32_t pid, struct peer *ret);	/* 0; -ESRCH: gone, or not readable; -ENOMEM */

#endif
