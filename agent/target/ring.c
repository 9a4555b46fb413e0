/* SPDX-License-Identifier: Apache-2.0 */
/* The writing end of the ring: maps it, checks what the agent says of it, writes events. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ring.h"

#define MADV_POPULATE_WRITE_ 23	/* of Linux 5.14 */

/* Children inherit what their parent was given: one process only writes. */
static bool claim(struct tl_ring *shared)
{
	uint32_t owner = 0, me = getpid();

	return __atomic_compare_exchange_n(&shared->owner, &owner, me, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE) || owner == me;
}

int ring__map(struct ring *r, int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);
	struct tl_ring *shared;
	uint64_t offset, bytes;

	if (size < (off_t)sizeof(*shared))
		return size < 0 ? -errno : -EINVAL;
	/* A memfd that shrinks would kill the target by SIGBUS. Fails for plain files, and where it
	 * is done. */
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		return -errno;
	offset = shared->data_offset;
	bytes = shared->data_bytes;
	if (shared->magic != TL_RING_MAGIC || offset < sizeof(*shared) || offset % 8 ||
	    bytes < 4096 || bytes & (bytes - 1) || offset + bytes > (uint64_t)size) {
		munmap(shared, size);
		return -EINVAL;
	}
	if (!claim(shared)) {
		munmap(shared, size);
		return -EBUSY;
	}
	*r = (struct ring){ shared, (char *)shared + offset, bytes, size, 0 };
	return 0;
}

void ring__unmap(struct ring *r)
{
	uint32_t me = getpid();

	if (r->shared) {
		__atomic_compare_exchange_n(&r->shared->owner, &me, 0, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_RELAXED);
		munmap(r->shared, r->map_bytes);
	}
	*r = (struct ring){ 0 };
}

static void commit(char *at, uint16_t size, uint16_t kind, uint32_t flags)
{
	uint64_t word = size | (uint64_t)kind << 16 | (uint64_t)flags << 32;

	__atomic_store_n((uint64_t *)(void *)at, word, __ATOMIC_RELEASE);
}

/* All that is written often has this size, and is copied by the compiler's own code. */
_Static_assert(sizeof(struct tl_gpu_span) == sizeof(struct tl_gpu_launch), "one size");

static void write_event(char *to, const char *event)
{
	const struct tl_hdr *h = (const void *)event;

	if (h->size == sizeof(struct tl_gpu_span))
		memcpy(to + 8, event + 8, sizeof(struct tl_gpu_span) - 8);
	else
		memcpy(to + 8, event + 8, h->size - 8);
	commit(to, h->size, h->kind, h->flags);
}

/* Room in one piece for some of n events, at *ret_at; 0: there is none. */
static uint32_t reserve(struct ring *r, uint32_t size, uint32_t n, uint64_t *ret_at)
{
	uint64_t head = __atomic_load_n(&r->shared->head, __ATOMIC_RELAXED);
	uint64_t skip, at, room, to_end, next;

	do {
		uint64_t used = head - __atomic_load_n(&r->shared->tail, __ATOMIC_ACQUIRE);

		at = head & (r->bytes - 1);
		to_end = r->bytes - at;
		skip = to_end < size ? to_end : 0;
		if (used > r->bytes || r->bytes - used < skip + size)
			return 0;
		room = r->bytes - used - skip;
		if (!skip && room > to_end)
			room = to_end;
		if (room < (uint64_t)n * size)
			n = room / size;
		next = head + skip + (uint64_t)n * size;
	} while (!__atomic_compare_exchange_n(&r->shared->head, &head, next, true,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (skip)
		commit(r->data + at, skip, TL_NONE, 0);
	*ret_at = skip ? 0 : at;
	return n;
}

uint32_t ring__put_many(struct ring *r, const void *events, uint32_t n)
{
	const uint32_t size = ((const struct tl_hdr *)events)->size;
	uint32_t done = 0, got;
	uint64_t at;

	while (done < n && (got = reserve(r, size, n - done, &at))) {
		for (uint32_t i = 0; i < got; i++, done++, at += size)
			write_event(r->data + at, (const char *)events + (size_t)done * size);
	}
	if (done < n)
		ring_count(&r->shared->n_dropped, n - done);
	return done;
}

void ring__prepare(struct ring *r)
{
	enum { AHEAD_BYTES = 1 << 20, STEP_BYTES = 256 << 10 };
	uint64_t head = __atomic_load_n(&r->shared->head, __ATOMIC_RELAXED);

	while (r->ready < r->bytes && r->ready < head + AHEAD_BYTES) {
		uint64_t left = r->bytes - r->ready, step = left < STEP_BYTES ? left : STEP_BYTES;

		/* An old kernel cannot, and the pages come one by one. */
		if (madvise(r->data + r->ready, step, MADV_POPULATE_WRITE_))
			r->ready = r->bytes;
		else
			r->ready += step;
	}
}
