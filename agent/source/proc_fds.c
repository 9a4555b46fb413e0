/* SPDX-License-Identifier: Apache-2.0 */
/* What the open descriptors of a process tell: listening ports, GPUs, io_uring. */
#include "source/proc_priv.h"
#include "source/sock_diag.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MAX_FDS = 1 << 20,		/* of one process */
	MAX_LISTENERS = 1 << 16,	/* of the host */
};

static int add_listener(struct proc_scan *s, uint64_t netns, uint64_t inode, uint16_t port)
{
	size_t max = s->max_listeners ? 2 * s->max_listeners : 64;
	struct listener *more;

	if (s->n_listeners == MAX_LISTENERS)
		return 0;
	if (s->n_listeners == s->max_listeners) {
		more = realloc(s->listeners, max * sizeof(*more));
		if (!more)
			return -ENOMEM;
		s->listeners = more;
		s->max_listeners = max;
	}
	s->listeners[s->n_listeners++] = (struct listener){ netns, inode, port };
	return 0;
}

/* The kernel lists listening sockets before all others. */
static int read_tcp(struct proc_scan *s, pid_t pid, const char *name, uint64_t netns)
{
	char path[64], line[512];
	unsigned int port, state;
	uint64_t inode;
	int err = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", pid, name);
	f = fopen(path, "re");
	if (!f)
		return errno == EACCES || errno == EPERM ? -EACCES : 0;	/* tcp6 may be turned off */
	if (fgets(line, sizeof(line), f)) {
		while (!err && fgets(line, sizeof(line), f)) {
			if (sscanf(line, " %*[^:]: %*[^:]:%x %*[^:]:%*x %x %*s %*s %*s %*s %*s %lu",
				   &port, &state, &inode) != 3 ||
			    state != TCP_LISTEN)
				break;
			err = add_listener(s, netns, inode, port);
		}
	}
	fclose(f);
	return err;
}

/* Without a table of all connections; -ENOENT: it does not answer. */
static int ask_kernel(struct proc_scan *s, pid_t pid, uint64_t netns)
{
	struct listening *found = NULL;
	int n = sock_diag_reaches(pid) ? sock_diag_listening(&found) : -ENOENT, err = 0;

	for (int i = 0; i < n && !err; i++)
		err = add_listener(s, netns, found[i].inode, found[i].port);
	free(found);
	return n >= 0 ? err : n == -ENOMEM ? n : -ENOENT;
}

static int load_netns(struct proc_scan *s, pid_t pid, uint64_t netns)
{
	uint64_t *more;
	int err;

	for (size_t i = 0; i < s->n_netns; i++) {
		if (s->netns[i] == netns)
			return 0;
	}
	err = ask_kernel(s, pid, netns);
	if (err == -ENOENT) {
		err = read_tcp(s, pid, "tcp", netns);
		err = err ? err : read_tcp(s, pid, "tcp6", netns);
	}
	if (err)
		return err;
	if (s->n_netns == s->max_netns) {
		s->max_netns = s->max_netns ? 2 * s->max_netns : 16;
		more = realloc(s->netns, s->max_netns * sizeof(*more));
		if (!more) {
			s->max_netns = s->n_netns;
			return -ENOMEM;
		}
		s->netns = more;
	}
	s->netns[s->n_netns++] = netns;
	return 0;
}

static void add_port(struct proc_facts *f, uint16_t port)
{
	size_t i = 0;

	while (i < f->n_ports && f->ports[i] < port)
		i++;
	if ((i < f->n_ports && f->ports[i] == port) ||
	    f->n_ports == sizeof(f->ports) / sizeof(f->ports[0]))
		return;
	memmove(f->ports + i + 1, f->ports + i, (f->n_ports - i) * sizeof(f->ports[0]));
	f->ports[i] = port;
	f->n_ports++;
}

static void add_fd(const struct proc_scan *s, uint64_t netns, const char *link,
		   struct proc_facts *f)
{
	unsigned int gpu;
	uint64_t inode;
	char rest;

	if (sscanf(link, "socket:[%lu]", &inode) == 1) {
		for (size_t i = 0; i < s->n_listeners; i++) {
			if (s->listeners[i].inode == inode && s->listeners[i].netns == netns)
				add_port(f, s->listeners[i].port);
		}
	} else if (sscanf(link, "/dev/nvidia%u%c", &gpu, &rest) == 1 && gpu < 64) {
		f->gpus |= 1ull << gpu;
	} else if (!strcmp(link, "anon_inode:[io_uring]")) {
		f->uses_io_uring = true;
	}
}

int proc_fds__read(struct proc_scan *s, pid_t pid, struct proc_facts *f)
{
	char path[64], link[64];
	struct dirent *d;
	struct stat st;
	uint64_t netns;
	int err, n = 0;
	ssize_t len;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	if (stat(path, &st))
		return errno == ENOENT ? -ESRCH : -EACCES;
	netns = st.st_ino;
	err = load_netns(s, pid, netns);
	if (err && err != -EACCES)
		return err;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? -ESRCH : errno == ENOMEM ? -ENOMEM : -EACCES;
	while (n++ < MAX_FDS && (d = readdir(dir))) {
		len = readlinkat(dirfd(dir), d->d_name, link, sizeof(link) - 1);
		if (len < 0)
			continue;	/* "." and "..", or closed meanwhile */
		link[len] = 0;
		add_fd(s, netns, link, f);
	}
	closedir(dir);
	return err;
}
