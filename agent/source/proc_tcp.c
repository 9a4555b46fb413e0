/* SPDX-License-Identifier: Apache-2.0 */
/* Matches the two ends of local TCP connections: one line of
 * /proc/PID/net/tcp is the other reversed. */
#include "source/proc_tcp.h"

#include "base/vec.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MAX_FDS = 1 << 20,	/* of one process */
	MAX_OWNED = 1 << 20,	/* sockets of all the processes */
	MAX_FOUND = 1 << 16,
	TCP_ESTABLISHED = 1,
};

struct owned {
	uint64_t inode;
	uint32_t pid;
	bool is_a;
	bool seen;	/* in a table: one that changes while it is read may have a line twice */
};

struct end {
	uint8_t addr[16];	/* IPv4 as IPv6 has it: the two may meet */
	uint16_t port;
};
struct conn_end {
	struct end local, peer;
	struct owned owner;
};

struct finder {
	VEC(struct owned) owned;	/* by inode */
	VEC(struct conn_end) ends;	/* of one network namespace */
	VEC(struct tcp_between) found;
};

/* ---- who has which socket ---- */

static int add_sockets(struct finder *f, uint32_t pid, bool is_a)
{
	char path[64], link[64];
	struct dirent *d;
	struct owned *o;
	uint64_t inode;
	int n = 0, err = 0;
	ssize_t len;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%u/fd", pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOMEM ? -ENOMEM : 0;
	while (!err && n++ < MAX_FDS && (d = readdir(dir))) {
		len = readlinkat(dirfd(dir), d->d_name, link, sizeof(link) - 1);
		if (len < 0)
			continue;	/* "." and "..", or closed meanwhile */
		link[len] = 0;
		if (sscanf(link, "socket:[%lu]", &inode) != 1)
			continue;
		o = vec_push(&f->owned, MAX_OWNED);
		if (o)
			*o = (struct owned){ .inode = inode, .pid = pid, .is_a = is_a };
		else if (f->owned.n < MAX_OWNED)
			err = -ENOMEM;
	}
	closedir(dir);
	return err;
}

static int by_inode(const void *a, const void *b)
{
	uint64_t x = ((const struct owned *)a)->inode, y = ((const struct owned *)b)->inode;

	return (x > y) - (x < y);
}

/* ---- the table of a network namespace ---- */

/* "0100007F:1F90": each group of 8 digits is a word as this machine stores it. */
static bool read_end(const char *text, struct end *ret)
{
	size_t n_words = strcspn(text, ":") / 8;
	unsigned int word, port;
	struct end e = { .addr = { 0 } };
	uint8_t *at = e.addr;

	if (n_words != 1 && n_words != 4)
		return false;
	if (n_words == 1) {
		at[10] = at[11] = 0xff;
		at += 12;
	}
	for (size_t i = 0; i < n_words; i++, text += 8) {
		if (sscanf(text, "%8x", &word) != 1)
			return false;
		memcpy(at + 4 * i, &word, 4);
	}
	if (sscanf(text, ":%4x", &port) != 1)
		return false;
	e.port = port;
	*ret = e;
	return true;
}

static int add_line(struct finder *f, const char *line)
{
	struct owned key = { 0 }, *owner;
	char local[48], peer[48];
	struct conn_end c, *at;
	unsigned int state;

	if (sscanf(line, " %*[^:]: %47s %47s %x %*s %*s %*s %*s %*s %lu", local, peer, &state,
		   &key.inode) != 4 || state != TCP_ESTABLISHED)
		return 0;
	owner = bsearch(&key, f->owned.v, f->owned.n, sizeof(key), by_inode);
	if (!owner || owner->seen || !read_end(local, &c.local) || !read_end(peer, &c.peer))
		return 0;
	owner->seen = true;
	c.owner = *owner;
	at = vec_push(&f->ends, MAX_OWNED);
	if (!at)
		return f->ends.n < MAX_OWNED ? -ENOMEM : 0;
	*at = c;
	return 0;
}

static int read_table(struct finder *f, uint32_t pid, const char *name)
{
	char path[64], line[512];
	int err = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%u/net/%s", pid, name);
	file = fopen(path, "re");
	if (!file)
		return errno == ENOMEM ? -ENOMEM : 0;
	while (!err && fgets(line, sizeof(line), file))
		err = add_line(f, line);	/* the title is none */
	fclose(file);
	return err;
}

static bool same_end(const struct end *x, const struct end *y)
{
	return x->port == y->port && !memcmp(x->addr, y->addr, sizeof(x->addr));
}

static int match(struct finder *f)
{
	struct tcp_between *at;

	for (size_t i = 0; i < f->ends.n; i++) {
		const struct conn_end *a = &f->ends.v[i];

		for (size_t k = 0; a->owner.is_a && k < f->ends.n; k++) {
			const struct conn_end *b = &f->ends.v[k];

			if (b->owner.is_a || !same_end(&a->local, &b->peer) ||
			    !same_end(&a->peer, &b->local))
				continue;
			at = vec_push(&f->found, MAX_FOUND);
			if (!at)
				return f->found.n < MAX_FOUND ? -ENOMEM : 0;
			*at = (struct tcp_between){ a->owner.inode, b->owner.inode, a->owner.pid,
						    b->owner.pid };
		}
	}
	return 0;
}

static uint64_t netns_of(uint32_t pid)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/ns/net", pid);
	return stat(path, &st) ? 0 : st.st_ino;
}

static int find(struct finder *f, const uint32_t *a, size_t n_a, const uint32_t *b, size_t n_b)
{
	int err = 0;

	for (size_t i = 0; !err && i < n_a; i++)
		err = add_sockets(f, a[i], true);
	for (size_t i = 0; !err && i < n_b; i++)
		err = add_sockets(f, b[i], false);
	if (!err && f->owned.n)
		qsort(f->owned.v, f->owned.n, sizeof(*f->owned.v), by_inode);
	for (size_t i = 0; !err && i < n_a; i++) {
		uint64_t netns = netns_of(a[i]);
		bool seen = !netns;

		for (size_t k = 0; !seen && k < i; k++)
			seen = netns_of(a[k]) == netns;
		if (seen)
			continue;
		f->ends.n = 0;
		err = read_table(f, a[i], "tcp");
		err = err ? err : read_table(f, a[i], "tcp6");
		err = err ? err : match(f);
	}
	return err;
}

int proc_tcp_between(const uint32_t *a, size_t n_a, const uint32_t *b, size_t n_b,
		     struct tcp_between **ret)
{
	struct finder f = { 0 };
	int err = find(&f, a, n_a, b, n_b);

	vec_free(&f.owned);
	vec_free(&f.ends);
	if (err) {
		vec_free(&f.found);
		return err;
	}
	*ret = f.found.v;
	return f.found.n;
}
