/* SPDX-License-Identifier: Apache-2.0 */
/* Looks in /proc for sockets that are connected to a port, then for who has them. */
#include "source/peers.h"

#include "base/vec.h"
#include "source/proc.h"
#include "source/sock_diag.h"
#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MAX_SOCKETS = 1 << 20, MAX_NETNS = 4096, MAX_PIDS = 65536,
	MAX_FDS = 1 << 20,	/* of one process */
};

struct look {
	const uint16_t *ports;
	size_t n_ports;
	VEC(uint64_t) netns;		/* whose tables were read */
	VEC(uint64_t) inodes;		/* sockets connected to a port, in order */
	VEC(uint32_t) pids;
	uint32_t parent, self;		/* of siblings */
	uint64_t exe_dev, exe_inode;
};

#define ADD(vec, value, max) ({								\
	__typeof__((vec)->v) at_ = vec_push(vec, max);					\
	if (at_)									\
		*at_ = (value);								\
	at_ || (vec)->n >= (max) ? 0 : -ENOMEM;						\
})

static int read_table(struct look *l, pid_t pid, const char *name)
{
	char path[64], line[512];
	unsigned int port, state;
	uint64_t inode;
	int err = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", pid, name);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOMEM ? -ENOMEM : 0;
	while (!err && fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %*[^:]: %*[^:]:%*x %*[^:]:%x %x %*s %*s %*s %*s %*s %lu", &port,
			   &state, &inode) != 3 ||
		    (state != TCP_ESTABLISHED && state != TCP_SYN_SENT))
			continue;
		for (size_t i = 0; i < l->n_ports && !err; i++)
			if (l->ports[i] == port)
				err = ADD(&l->inodes, inode, MAX_SOCKETS);
	}
	fclose(f);
	return err;
}

/* The table of its network namespace, unless that was read already. */
static int look_at_netns(void *ctx, pid_t pid)
{
	struct look *l = ctx;
	struct stat st;
	char path[64];
	int err;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	if (stat(path, &st))
		return 0;
	for (size_t i = 0; i < l->netns.n; i++)
		if (l->netns.v[i] == st.st_ino)
			return 0;
	err = ADD(&l->netns, st.st_ino, MAX_NETNS);
	err = err ? err : read_table(l, pid, "tcp");
	return err ? err : read_table(l, pid, "tcp6");
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* 1: it has one of these sockets, 0: none, or -ENOMEM. */
static int has_socket(pid_t pid, const uint64_t *inodes, size_t n_inodes)
{
	char path[64], link[64];
	struct dirent *d;
	bool has = false;
	uint64_t inode;
	ssize_t len;
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOMEM ? -ENOMEM : 0;
	while (!has && n++ < MAX_FDS && (d = readdir(dir))) {
		len = readlinkat(dirfd(dir), d->d_name, link, sizeof(link) - 1);
		if (len < 0)
			continue;	/* "." and "..", or closed meanwhile */
		link[len] = 0;
		has = sscanf(link, "socket:[%lu]", &inode) == 1 &&
		      bsearch(&inode, inodes, n_inodes, sizeof(inode), by_value);
	}
	closedir(dir);
	return has;
}

static int look_at_fds(void *ctx, pid_t pid)
{
	struct look *l = ctx;
	int has = has_socket(pid, l->inodes.v, l->inodes.n);

	return has > 0 ? ADD(&l->pids, (uint32_t)pid, MAX_PIDS) : has;
}

static int give(struct look *l, int err, uint32_t **ret)
{
	vec_free(&l->netns);
	vec_free(&l->inodes);
	if (err) {
		vec_free(&l->pids);
		return err;
	}
	*ret = l->pids.v;
	return l->pids.n;
}

int peers_of_ports(const uint16_t *ports, size_t n_ports, uint32_t **ret)
{
	struct look l = { .ports = ports, .n_ports = n_ports };
	int err = proc_each(look_at_netns, &l);

	if (!err && l.inodes.n) {
		qsort(l.inodes.v, l.inodes.n, sizeof(*l.inodes.v), by_value);
		err = proc_each(look_at_fds, &l);
	}
	return give(&l, err, ret);
}

/* ---- siblings ---- */

struct stat_line {
	char comm[16];
	uint32_t ppid;
	uint64_t start;		/* in ticks since boot */
};

static bool read_stat(pid_t pid, struct stat_line *ret)
{
	char path[64], line[1024], *begin, *end;
	size_t len;
	bool ok;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(line, sizeof(line), f);
	fclose(f);
	/* pid (comm) state ppid ...: comm may hold anything, its end is the last ')' */
	begin = ok ? strchr(line, '(') : NULL;
	end = begin ? strrchr(begin, ')') : NULL;
	/* fields 4 (ppid) and 22 (starttime) of proc(5) */
	if (!end || sscanf(end + 1,
			   " %*c %u %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			   "%*d %*d %lu",
			   &ret->ppid, &ret->start) != 2)
		return false;
	len = end - begin - 1;
	if (len >= sizeof(ret->comm))
		len = sizeof(ret->comm) - 1;
	memcpy(ret->comm, begin + 1, len);
	ret->comm[len] = 0;
	return true;
}

static int look_at_parent(void *ctx, pid_t pid)
{
	struct look *l = ctx;
	struct stat st;
	struct stat_line line;
	char path[64];

	if ((uint32_t)pid == l->self || !read_stat(pid, &line) || line.ppid != l->parent)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (stat(path, &st) || st.st_dev != l->exe_dev || st.st_ino != l->exe_inode)
		return 0;
	return ADD(&l->pids, (uint32_t)pid, MAX_PIDS);
}

int peers_siblings(uint32_t pid, uint32_t **ret)
{
	struct look l = { .self = pid };
	struct stat_line line;
	struct stat st;
	char path[64];
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%u/exe", pid);
	if (!stat(path, &st) && read_stat(pid, &line) && line.ppid > 1) {
		l.parent = line.ppid;
		l.exe_dev = st.st_dev;
		l.exe_inode = st.st_ino;
		err = proc_each(look_at_parent, &l);
	}
	return give(&l, err, ret);
}

/* ---- what tells a proxy ---- */

/* The kernel lists listening sockets before all others. */
static int read_listeners(struct look *l, pid_t pid, const char *name)
{
	char path[64], line[512];
	unsigned int state;
	uint64_t inode;
	int err = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", pid, name);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOMEM ? -ENOMEM : 0;
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;	/* the title */
	while (!err && fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %*[^:]: %*s %*s %x %*s %*s %*s %*s %*s %lu", &state, &inode) != 2 ||
		    state != TCP_LISTEN)
			break;
		err = ADD(&l->inodes, inode, MAX_SOCKETS);
	}
	fclose(f);
	return err;
}

/* Every client that connects anew is looked at: the tables in /proc are for
 * other network namespaces. */
static int find_listeners(struct look *l, pid_t pid)
{
	struct listening *found = NULL;
	int n = sock_diag_reaches(pid) ? sock_diag_listening(&found) : -ENOENT, err = 0;

	for (int i = 0; i < n && !err; i++)
		err = ADD(&l->inodes, found[i].inode, MAX_SOCKETS);
	free(found);
	if (n >= 0 || n == -ENOMEM)
		return n < 0 ? n : err;
	err = read_listeners(l, pid, "tcp");
	return err ? err : read_listeners(l, pid, "tcp6");
}

int peers_look(uint32_t pid, struct peer *ret)
{
	struct look l = { .self = pid };
	struct stat_line line;
	int has;

	if (!read_stat(pid, &line))
		return -ESRCH;
	has = find_listeners(&l, pid);
	if (!has && l.inodes.n) {
		qsort(l.inodes.v, l.inodes.n, sizeof(*l.inodes.v), by_value);
		has = has_socket(pid, l.inodes.v, l.inodes.n);
	}
	vec_free(&l.inodes);
	if (has < 0)
		return has;
	*ret = (struct peer){ .start = line.start, .listens = has };
	memcpy(ret->comm, line.comm, sizeof(ret->comm));
	return 0;
}
