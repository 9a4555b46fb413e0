/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ring of a library that waits among the descriptors of its process, which takes the
 * right to look at that process, not to trace it. */
#include "source/gpu_door.h"
#include "tl_ring.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "source/gpu_tids.h"

enum { DATA_OFFSET = 4096, MIN_BYTES = 1 << 16, MAX_BYTES = 64 << 20, TICK_MS = 10, LIMIT_MS = 2000 };

static int find(pid_t pid)
{
	char path[64], name[64], link[128];
	uint32_t own = gpu_tids_inside(pid, pid);
	struct dirent *d;
	int fd = -ENOENT;
	ssize_t n;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	snprintf(name, sizeof(name), "/memfd:" TL_DOOR_NAME "%u (deleted)", own);
	dir = own ? opendir(path) : NULL;
	if (!dir)
		return -ENOENT;
	while (fd == -ENOENT && (d = readdir(dir))) {
		n = readlinkat(dirfd(dir), d->d_name, link, sizeof(link) - 1);
		link[n < 0 ? 0 : n] = 0;
		if (strcmp(link, name))
			continue;
		fd = openat(dirfd(dir), d->d_name, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			fd = -ENOENT;
	}
	closedir(dir);
	return fd;
}

bool gpu_door_is_there(pid_t pid)
{
	int fd = find(pid);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void wait_tick(void (*tick)(void *ctx), void *ctx)
{
	if (tick)
		tick(ctx);
	nanosleep(&(struct timespec){ 0, TICK_MS * 1000000 }, NULL);
}

/* A file that shrinks would kill us. */
static int check(int fd, uint32_t *ret_data_bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	uint64_t bytes;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || st.st_size < DATA_OFFSET)
		return -EPROTO;
	bytes = st.st_size - DATA_OFFSET;
	if (bytes < MIN_BYTES || bytes > MAX_BYTES || bytes & (bytes - 1))
		return -EPROTO;
	*ret_data_bytes = bytes;
	return 0;
}

/* A library whose agent was killed leaves by itself. */
static int await_rest(int fd, void (*tick)(void *ctx), void *ctx)
{
	uint32_t state;

	for (int i = 0; i < LIMIT_MS / TICK_MS; i++) {
		if (pread(fd, &state, sizeof(state), offsetof(struct tl_ring, state)) != sizeof(state))
			return -EPROTO;
		if (state == TL_RING_LEFT || state == TL_RING_REFUSED)
			return 0;
		wait_tick(tick, ctx);
	}
	return -EBUSY;
}

/* What is left of the time before, events that nobody read included; not the word
 * that the library waits for. */
static int renew(int fd, uint32_t data_bytes)
{
	static const char zeros[offsetof(struct tl_ring, knock)];

	if (pwrite(fd, zeros, sizeof(zeros), 0) != sizeof(zeros))
		return -EPROTO;
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, DATA_OFFSET, data_bytes) ? -EPROTO : 0;
}

int gpu_door_open(pid_t pid, uint32_t *ret_data_bytes, void (*tick)(void *ctx), void *ctx)
{
	int fd = find(pid), err;

	if (fd < 0)
		return fd;
	err = check(fd, ret_data_bytes);
	if (!err && flock(fd, LOCK_EX | LOCK_NB))
		err = -EBUSY;
	if (!err)
		err = await_rest(fd, tick, ctx);
	if (!err)
		err = renew(fd, *ret_data_bytes);
	if (!err)
		return fd;
	close(fd);
	return err;
}

int gpu_door_knock(struct tl_ring *ring, void (*tick)(void *ctx), void *ctx)
{
	uint32_t knock = __atomic_add_fetch(&ring->knock, 1, __ATOMIC_ACQ_REL);

	syscall(SYS_futex, &ring->knock, FUTEX_WAKE, 1, NULL, NULL, 0);
	for (int i = 0; i < LIMIT_MS / TICK_MS; i++) {
		if (__atomic_load_n(&ring->answer, __ATOMIC_ACQUIRE) == knock) {
			int err = ring->answer_error;	/* as somebody else says it */

			return err >= 0 ? 0 : err < -4095 ? -EPROTO : err;
		}
		wait_tick(tick, ctx);
	}
	return -ETIMEDOUT;
}
