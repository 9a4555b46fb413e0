/* SPDX-License-Identifier: Apache-2.0 */
/* Connections on the loopback device, for test programs. */
#ifndef TL_TEST_PAIR_H
#define TL_TEST_PAIR_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Both ends of a connection. The child inherits them: they are older than the capture. */
struct pair {
	int a, b;
};

static inline socklen_t loopback(int family, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->ss_family = family;
	if (family == AF_INET) {
		((struct sockaddr_in *)ret)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof(struct sockaddr_in);
	}
	((struct sockaddr_in6 *)ret)->sin6_addr = in6addr_loopback;
	return sizeof(struct sockaddr_in6);
}

static inline uint16_t port_of(int fd, bool peer)
{
	struct sockaddr_storage a = { 0 };
	socklen_t len = sizeof(a);

	if ((peer ? getpeername : getsockname)(fd, (struct sockaddr *)&a, &len))
		return 0;
	if (a.ss_family == AF_INET)
		return ntohs(((struct sockaddr_in *)&a)->sin_port);
	return a.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&a)->sin6_port) : 0;
}

static inline int listen_on(int family)
{
	struct sockaddr_storage a;
	socklen_t len = loopback(family, &a);
	int fd = socket(family, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) || listen(fd, 16))
		return -1;
	return fd;
}

static inline int connect_to(int listener, int family)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int fd = socket(family, SOCK_STREAM, 0), one = 1;

	if (fd < 0 || getsockname(listener, (struct sockaddr *)&a, &len) ||
	    connect(fd, (struct sockaddr *)&a, len))
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static inline bool pair_open(struct pair *p, int family)
{
	int fds[2], listener;

	p->a = p->b = -1;
	if (family == AF_UNIX) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
			return false;
		p->a = fds[0];
		p->b = fds[1];
		return true;
	}
	listener = listen_on(family);
	if (listener < 0)
		return false;
	p->a = connect_to(listener, family);
	p->b = accept(listener, NULL, NULL);
	close(listener);
	return p->a >= 0 && p->b >= 0;
}

static inline void pair_close(const struct pair *p)
{
	close(p->a);
	close(p->b);
}

#endif
