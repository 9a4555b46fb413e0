/* SPDX-License-Identifier: Apache-2.0 */
/* A way in for agents that may not trace: a ring that waits among the descriptors of
 * this process, and a thread that sleeps until somebody knocks. For a library that was
 * started with the process. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "door.h"
#include "guard.h"
#include "tl_ring.h"

enum { DATA_OFFSET = 4096, DATA_BYTES = 16 << 20 };	/* without memory until it is written to */

static struct door {
	int fd;
	struct tl_ring *shared;
	struct stat made;
	int (*open)(int memfd);
} door;

/* glibc has had several functions of that name. */
static int stat_of(int fd, struct stat *ret)
{
	return syscall(SYS_fstat, fd, ret);
}

/* The process may have closed all its descriptors, and opened others since. */
static bool is_there(const struct door *d)
{
	struct stat st;

	return !stat_of(d->fd, &st) && st.st_ino == d->made.st_ino && st.st_dev == d->made.st_dev;
}

static void *keep(void *ctx)
{
	struct door *d = ctx;
	uint32_t answered = 0;

	prctl(PR_SET_NAME, "tokenlag-door");
	for (;;) {
		uint32_t knock = __atomic_load_n(&d->shared->knock, __ATOMIC_ACQUIRE);

		if (knock == answered) {
			syscall(SYS_futex, &d->shared->knock, FUTEX_WAIT, knock, NULL, NULL, 0);
			continue;
		}
		answered = knock;
		if (!is_there(d))
			break;
		d->shared->answer_error = d->open(d->fd);
		__atomic_store_n(&d->shared->answer, knock, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Beyond the limit for files the kernel would end the process: memfds count. */
static bool may_be_so_large(uint64_t bytes)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes);
}

int door__open(int (*open)(int memfd))
{
	char name[32];

	if (door.shared)
		return -EALREADY;
	if (!may_be_so_large(DATA_OFFSET + DATA_BYTES))
		return -EFBIG;
	/* Children have it, too, and nobody who would answer: it is of
	 * the process of this number. */
	snprintf(name, sizeof(name), TL_DOOR_NAME "%d", getpid());
	door = (struct door){ .open = open };
	door.fd = syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (door.fd < 0)
		return -errno;
	if (ftruncate(door.fd, DATA_OFFSET + DATA_BYTES) || stat_of(door.fd, &door.made) ||
	    fcntl(door.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		goto fail;
	door.shared = mmap(NULL, DATA_OFFSET, PROT_READ | PROT_WRITE, MAP_SHARED, door.fd, 0);
	if (door.shared == MAP_FAILED) {
		door.shared = NULL;
		goto fail;
	}
	door.shared->magic = TL_RING_MAGIC;
	door.shared->data_offset = DATA_OFFSET;
	door.shared->data_bytes = DATA_BYTES;
	door.shared->state = TL_RING_LEFT;
	if (!start_thread(NULL, keep, &door))
		return 0;
	munmap(door.shared, DATA_OFFSET);
	door.shared = NULL;
fail:
	close(door.fd);
	return -ENOMEM;
}
