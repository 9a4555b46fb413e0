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
	uint64_t ready;		/* so many from the start on have their pages */
};

int ring__map(struct ring *r, int fd);
void ring__unmap(struct ring *r);

/* Copies events, each a struct that begins with tl_hdr, all of one size, one behind the other; from
 * any thread, never waits. Returns how many there was room for; the others are counted as
 * dropped. */
uint32_t ring__put_many(struct ring *r, const void *events, uint32_t n);

static inline bool ring__put(struct ring *r, const void *event)
{
	return ring__put_many(r, event, 1) == 1;
}

/* Gets the pages that are written to next: a new one costs its first writer microseconds, which no
 * thread of the target has to pay. One thread. */
void ring__prepare(struct ring *r);

/* Counters have one writer each, but the other process reads them; add: any thread. */
static inline void ring_count(__u64 *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

#endif
