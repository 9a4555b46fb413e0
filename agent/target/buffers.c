/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of record buffers: a bit mask of free ones, and a queue of full ones with one reader. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "buffers.h"

#define MADV_POPULATE_WRITE_ 23	/* of Linux 5.14 */

_Static_assert(MAX_BUFFERS == 64, "one bit each");

enum { ALL_BYTES = (MAX_BUFFERS + 1) * BUFFER_BYTES };

int buffers__open(struct buffers *b)
{
	if (!b->memory) {
		void *p = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		if (p == MAP_FAILED)
			return -errno;
		b->memory = p;
		b->discard = b->memory + MAX_BUFFERS * (size_t)BUFFER_BYTES;
		b->free = ~0ull;
	}
	/* So that no thread of the target has to wait for pages; an old kernel cannot, which is no
	 * fault. */
	(void)madvise(b->memory, ALL_BYTES, MADV_POPULATE_WRITE_);
	__atomic_store_n(&b->n_asked, 0, __ATOMIC_RELAXED);
	return 0;
}

void buffers__close(struct buffers *b)
{
	if (b->memory)
		(void)madvise(b->memory, ALL_BYTES, MADV_DONTNEED);
}

uint8_t *buffers__take(struct buffers *b)
{
	uint64_t mask = __atomic_load_n(&b->free, __ATOMIC_RELAXED);

	__atomic_fetch_add(&b->n_asked, 1, __ATOMIC_RELAXED);
	while (mask) {
		int i = __builtin_ctzll(mask);

		if (__atomic_compare_exchange_n(&b->free, &mask, mask & ~(1ull << i), false,
						__ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			__atomic_fetch_add(&b->n_out, 1, __ATOMIC_RELAXED);
			return b->memory + (size_t)i * BUFFER_BYTES;
		}
	}
	return b->discard;
}

static uint32_t buffer_index(const struct buffers *b, const uint8_t *buf)
{
	return (buf - b->memory) / BUFFER_BYTES;
}

void buffers__fill(struct buffers *b, uint8_t *buf, size_t valid)
{
	uint32_t at;

	if (buf == b->discard) {
		__atomic_fetch_add(&b->discarded_bytes, valid, __ATOMIC_RELAXED);
		return;
	}
	if (!b->memory || buf < b->memory || buf > b->discard)
		return;		/* not ours: of another client whose callbacks were replaced */
	/* There are as many places as buffers, so the place is free: each buffer is in the queue
	 * once. */
	at = __atomic_fetch_add(&b->full_head, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&b->full[at % MAX_BUFFERS],
			 ((uint64_t)valid << 8 | buffer_index(b, buf)) + 1, __ATOMIC_RELEASE);
	__atomic_fetch_sub(&b->n_out, 1, __ATOMIC_RELAXED);
}

uint8_t *buffers__next(struct buffers *b, size_t *ret_valid)
{
	uint64_t *place = &b->full[b->full_tail % MAX_BUFFERS];
	uint64_t entry = __atomic_load_n(place, __ATOMIC_ACQUIRE);

	if (!entry)
		return NULL;
	__atomic_store_n(place, 0, __ATOMIC_RELAXED);
	b->full_tail++;
	*ret_valid = (entry - 1) >> 8;
	if (*ret_valid > BUFFER_BYTES)
		*ret_valid = BUFFER_BYTES;
	return b->memory + ((entry - 1) & 0xff) * BUFFER_BYTES;
}

void buffers__free(struct buffers *b, const uint8_t *buf)
{
	__atomic_fetch_or(&b->free, 1ull << buffer_index(b, buf), __ATOMIC_RELEASE);
}
