/* SPDX-License-Identifier: Apache-2.0 */
/* proc_tcp_between: finds the two ends of connections between processes, and takes no others for them. */
#include "unit.h"

#include "source/proc_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { N_CONNS = 3 };	/* IPv4, IPv6, and IPv4 to a listener of both */

static uint64_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

static int open_listener(int i)
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
	int fd = socket(i ? AF_INET6 : AF_INET, SOCK_STREAM, 0), zero = 0;

	if (i == 1)
		six.sin6_addr = in6addr_loopback;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (fd < 0 || bind(fd, i ? (void *)&six : (void *)&four, i ? sizeof(six) : sizeof(four)) ||
	    listen(fd, 4))
		return -1;
	return fd;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_in6 a;	/* the port lies where IPv4 has it */
	socklen_t len = sizeof(a);

	return getsockname(fd, (void *)&a, &len) ? 0 : a.sin6_port;
}

static int connect_to(int i, uint16_t port)
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) },
				    .sin_port = port };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT,
				    .sin6_port = port };
	int fd = socket(i == 1 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);

	return connect(fd, i == 1 ? (void *)&six : (void *)&four, i == 1 ? sizeof(six) : sizeof(four))
	       ? -1 : fd;
}

/* A child with one end of each connection; this process has the other. */
struct fixture {
	pid_t child;
	int fds[N_CONNS];
	uint64_t theirs[N_CONNS];
	int own[2];		/* both ends are ours: not between the two */
};

static void child_main(const int *listeners, int ready)
{
	uint64_t inodes[N_CONNS];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < N_CONNS; i++) {
		inodes[i] = inode_of(connect_to(i, port_of(listeners[i])));
		close(listeners[i]);
	}
	if (write(ready, inodes, sizeof(inodes)) != sizeof(inodes))
		_exit(1);
	for (;;)
		pause();
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int listeners[N_CONNS], pipes[2];

	*state = f;
	for (int i = 0; i < N_CONNS; i++)
		listeners[i] = open_listener(i);
	if (pipe(pipes))
		return -1;
	fflush(NULL);
	f->child = fork();
	if (f->child == 0)
		child_main(listeners, pipes[1]);
	if (read(pipes[0], f->theirs, sizeof(f->theirs)) != sizeof(f->theirs))
		return -1;
	for (int i = 0; i < N_CONNS; i++) {
		f->fds[i] = accept(listeners[i], NULL, NULL);
		if (f->fds[i] < 0)
			return -1;
	}
	f->own[0] = connect_to(0, port_of(listeners[0]));
	f->own[1] = accept(listeners[0], NULL, NULL);
	for (int i = 0; i < N_CONNS; i++)
		close(listeners[i]);
	close(pipes[0]);
	close(pipes[1]);
	return f->own[0] < 0 || f->own[1] < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	kill(f->child, SIGKILL);
	waitpid(f->child, NULL, 0);
	for (int i = 0; i < N_CONNS; i++)
		close(f->fds[i]);
	close(f->own[0]);
	close(f->own[1]);
	free(f);
	return 0;
}

static void test_proc_tcp__finds_both_ends(void **state)
{
	struct fixture *f = *state;
	uint32_t a[] = { getpid(), getpid() }, b[] = { 1u << 30, f->child };	/* twice, and one that is gone */
	struct tcp_between *found;
	int n = proc_tcp_between(a, 2, b, 2, &found);

	assert_int_equal(n, N_CONNS);
	for (int i = 0; i < N_CONNS; i++) {
		int k = 0;

		while (k < n && found[k].inode_a != inode_of(f->fds[i]))
			k++;
		assert_int_not_equal(k, n);
		assert_int_equal(found[k].inode_b, f->theirs[i]);
		assert_int_equal(found[k].pid_a, getpid());
		assert_int_equal(found[k].pid_b, f->child);
	}
	free(found);
}

static void test_proc_tcp__none(void **state)
{
	struct fixture *f = *state;
	uint32_t us = getpid(), child = f->child, nobody = 1u << 30;
	struct tcp_between *found;

	assert_int_equal(proc_tcp_between(&us, 1, &nobody, 1, &found), 0);
	free(found);
	assert_int_equal(proc_tcp_between(&nobody, 1, &child, 1, &found), 0);
	free(found);
	assert_int_equal(proc_tcp_between(NULL, 0, NULL, 0, &found), 0);
	free(found);
}

static void test_proc_tcp__oom(void **state)
{
	struct fixture *f = *state;
	uint32_t us = getpid(), child = f->child;
	struct tcp_between *found;
	int n;

	OOM_LOOP({
		n = proc_tcp_between(&us, 1, &child, 1, &found);
		if (n >= 0)
			free(found);
		else
			assert_int_equal(n, -ENOMEM);
	});
	assert_int_equal(n, N_CONNS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_proc_tcp__finds_both_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_proc_tcp__none, setup, teardown),
		cmocka_unit_test_setup_teardown(test_proc_tcp__oom, setup, teardown),
	};

	return cmocka_run_group_tests_name("proc_tcp", tests, NULL, NULL);
}
