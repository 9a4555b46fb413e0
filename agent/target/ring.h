/* SPDX-License-Identifier: Apache-2.0 */
/* The writing end of the ring that the agent reads: see tl_ring.h. */
#ifndef TL_TARGET_RING_H
#define TL_TARGET_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tl_ring.h"

struct ring {
	struct tl_ring *shared;
	char *data;
	uint64_t bytes;		/* ours: what the other side wrote was checked once */
	size_t map_bytes;
};

int ring__map(struct ring *r, int fd);
void ring__unmap(struct ring *r);

/* Copies an event (a struct that begins with tl_hdr), from any thread; never waits. false: no room,
 * counted. */
bool ring__put(struct ring *r, const void *event);

/* Counters have one writer each, but the other process reads them; add: any thread. */
static inline void ring_count(__u64 *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

#endif
