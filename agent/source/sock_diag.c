/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel for listening sockets by NETLINK_SOCK_DIAG: some us, where the table in /proc
 * takes ms, whose pages are filled from the hash of all connections. */
#include "source/sock_diag.h"

#include "base/vec.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { MAX_SOCKETS = 1 << 20, ANSWER_BYTES = 32 << 10, MAX_WAIT_S = 1 };

struct answer {
	VEC(struct listening) sockets;
};

bool sock_diag_reaches(uint32_t pid)
{
	struct stat ours, theirs;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%u/ns/net", pid);
	return !stat("/proc/self/ns/net", &ours) && !stat(path, &theirs) &&
	       ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

static int ask(int fd, uint8_t family)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 req;
	} m = {
		.head = { .nlmsg_len = sizeof(m), .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.req = { .sdiag_family = family, .sdiag_protocol = IPPROTO_TCP,
		.idiag_states = 1 << TCP_LISTEN },
	};

	return send(fd, &m, sizeof(m), 0) == sizeof(m) ? 0 : -errno;
}

/* 1: that was the last of it. */
static int take(struct answer *a, const struct nlmsghdr *h)
{
	const struct inet_diag_msg *d = NLMSG_DATA(h);
	const struct nlmsgerr *e = NLMSG_DATA(h);
	struct listening *at;

	if (h->nlmsg_type == NLMSG_DONE)
		return 1;
	if (h->nlmsg_type == NLMSG_ERROR)
		return h->nlmsg_len >= NLMSG_LENGTH(sizeof(*e)) && e->error < 0 ? e->error : -EPROTO;
	if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY || h->nlmsg_len < NLMSG_LENGTH(sizeof(*d)))
		return 0;
	at = vec_push(&a->sockets, MAX_SOCKETS);
	if (!at)
		return -ENOMEM;
	*at = (struct listening){ d->idiag_inode, ntohs(d->id.idiag_sport) };
	return 0;
}

static int read_answer(int fd, struct answer *a)
{
	_Alignas(struct nlmsghdr) char buf[ANSWER_BYTES];
	ssize_t n;
	int err = 0;

	while (!err) {
		n = recv(fd, buf, sizeof(buf), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPROTO;
		for (struct nlmsghdr *h = (void *)buf; !err && NLMSG_OK(h, (size_t)n);
		     h = NLMSG_NEXT(h, n))
			err = take(a, h);
	}
	return err < 0 ? err : 0;
}

int sock_diag_listening(struct listening **ret)
{
	static const uint8_t families[] = { AF_INET, AF_INET6 };
	const struct timeval wait = { .tv_sec = MAX_WAIT_S };
	struct answer a = { 0 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), err;

	if (fd < 0)
		return -errno;
	err = setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) ? -errno : 0;
	for (size_t i = 0; i < sizeof(families) && !err; i++) {
		err = ask(fd, families[i]);
		err = err ? err : read_answer(fd, &a);
	}
	close(fd);
	if (err) {
		vec_free(&a.sockets);
		return err;
	}
	*ret = a.sockets.v;
	return (int)a.sockets.n;
}
