/* SPDX-License-Identifier: Apache-2.0 */
/* The writing end of the ring: maps it, checks what the agent says of it, writes events. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ring.h"

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
	*r = (struct ring){ shared, (char *)shared + offset, bytes, size };
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

bool ring__put(struct ring *r, const void *event)
{
	const struct tl_hdr *h = event;
	uint64_t head = __atomic_load_n(&r->shared->head, __ATOMIC_RELAXED), need, at, to_end;
	char *to;

	do {
		uint64_t used = head - __atomic_load_n(&r->shared->tail, __ATOMIC_ACQUIRE);

		at = head & (r->bytes - 1);
		to_end = r->bytes - at;
		need = to_end < h->size ? to_end + h->size : h->size;
		if (used > r->bytes || r->bytes - used < need) {
			ring_count(&r->shared->n_dropped, 1);
			return false;
		}
	} while (!__atomic_compare_exchange_n(&r->shared->head, &head, head + need, true,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (need != h->size) {
		commit(r->data + at, to_end, TL_NONE, 0);
		at = 0;
	}
	to = r->data + at;
	memcpy(to + 8, (const char *)event + 8, h->size - 8);
	commit(to, h->size, h->kind, h->flags);
	return true;
}
