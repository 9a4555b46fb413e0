/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a process has mapped, opened without trusting a path. */
#include "source/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_EXEC_FILES = 8192 };		/* of one process; a big Python server has some hundreds */

/* One line of /proc/PID/maps; false unless it is a file mapped executable. */
static bool parse_line(const char *line, struct proc_map *m)
{
	const char *p = strchr(line, ' ');
	char perms[5];
	int at = 0;

	if (!p || strlen(p) < 4 || p[3] != 'x')		/* most are not */
		return false;
	if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %n", &m->start, &m->end, perms, &m->offset,
		   &m->dev_major, &m->dev_minor, &m->inode, &at) < 7)
		return false;
	if (!m->inode || line[at] != '/')
		return false;
	snprintf(m->path, sizeof(m->path), "%.*s", (int)strcspn(line + at, "\n"), line + at);
	return true;
}

struct seen {
	uint64_t inode;
	uint32_t dev_major, dev_minor;
};

static bool was_seen(const struct seen *seen, size_t n, const struct proc_map *m)
{
	while (n--) {	/* backwards: mappings of a file lie side by side */
		if (seen[n].inode == m->inode && seen[n].dev_major == m->dev_major &&
		    seen[n].dev_minor == m->dev_minor)
			return true;
	}
	return false;
}

int proc_each_exec_map(pid_t pid, int (*fn)(void *ctx, const struct proc_map *map), void *ctx)
{
	struct seen *seen = NULL, *more;
	size_t n = 0, max = 0, line_size = 0;
	char path[64], page[4096], *line = NULL;	/* the kernel gives no more at a time */
	struct proc_map m;
	int err = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? -ESRCH : -errno;
	setvbuf(f, page, _IOFBF, sizeof(page));
	while (!err && n < MAX_EXEC_FILES && getline(&line, &line_size, f) > 0) {
		if (!parse_line(line, &m) || was_seen(seen, n, &m))
			continue;
		if (n == max) {
			max = max ? 2 * max : 64;
			more = realloc(seen, max * sizeof(*seen));
			if (!more) {
				err = -ENOMEM;
				break;
			}
			seen = more;
		}
		seen[n++] = (struct seen){ m.inode, m.dev_major, m.dev_minor };
		err = fn(ctx, &m);
	}
	if (!err && ferror(f))
		err = errno == ENOENT ? -ESRCH : -errno;
	free(line);
	free(seen);
	fclose(f);
	return err;
}

int proc_open_in_root(pid_t pid, const char *path, int flags)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	char root[64];
	int dir, fd;

	snprintf(root, sizeof(root), "/proc/%d/root", pid);
	dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));
	fd = fd < 0 ? -errno : fd;
	close(dir);
	return fd;
}

/* Only a regular file is of use, and an open FIFO or device of a stranger could do harm. */
static int check_regular(int fd, uint64_t inode)
{
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (inode && st.st_ino != inode)) {
		close(fd);
		return -ESTALE;
	}
	return fd;
}

int proc_open_map(pid_t pid, const struct proc_map *map, char *path, size_t path_size)
{
	int fd, n, first;

	n = snprintf(path, path_size, "/proc/%d/map_files/%lx-%lx", pid, map->start, map->end);
	if (n < 0 || (size_t)n >= path_size)
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	first = fd < 0 ? -errno : 0;
	fd = check_regular(fd < 0 ? first : fd, 0);
	if (fd >= 0)
		return fd;

	/* No CAP_CHECKPOINT_RESTORE, or the process remapped it meanwhile. The path may by now be
	 * another file: the inode tells. */
	n = snprintf(path, path_size, "/proc/%d/root%s", pid, map->path);
	if (n < 0 || (size_t)n >= path_size)
		return -ENAMETOOLONG;
	fd = check_regular(proc_open_in_root(pid, map->path, O_RDONLY), map->inode);
	if (fd >= 0)
		return fd;

	snprintf(path, path_size, "/proc/%d/exe", pid);
	fd = check_regular(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), map->inode);
	if (fd >= 0)
		return fd;
	return first ? first : -ESTALE;
}
