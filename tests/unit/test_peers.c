/* SPDX-License-Identifier: Apache-2.0 */
/* Who is connected to a port, who listens, who are siblings: processes of the test's own. */
#include "unit.h"

#include "source/peers.h"
#include "source/sock_diag.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

static int listen_on(uint16_t *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0 && !bind(fd, (void *)&a, len) && !listen(fd, 4) && !getsockname(fd, (void *)&a, &len));
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static int connect_to(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return fd >= 0 && !connect(fd, (void *)&a, sizeof(a)) ? fd : -1;
}

struct child {
	pid_t pid;
	int ready;		/* a byte comes when it has done what it does */
};

/* Connects to the port (0: does not), keeps what it inherited or closes `close_fd`, and waits to be killed. */
static struct child child_start(uint16_t port, int close_fd)
{
	struct child c;
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	fflush(NULL);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pipes[0]);
		if (close_fd >= 0)
			close(close_fd);
		if ((port && connect_to(port) < 0) || write(pipes[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(pipes[1]);
	c.ready = pipes[0];
	return c;
}

static void child_wait(const struct child *c)
{
	char byte;

	assert_int_equal(read(c->ready, &byte, 1), 1);
}

static void child_stop(const struct child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->ready);
}

static bool has(const uint32_t *pids, int n, pid_t pid)
{
	for (int i = 0; i < n; i++)
		if (pids[i] == (uint32_t)pid)
			return true;
	return false;
}

static void test_who_is_connected(void **state)
{
	uint16_t ports[2];
	int fd = listen_on(&ports[0]), other = listen_on(&ports[1]), n;
	struct child user = child_start(ports[0], -1), idle = child_start(0, -1);
	uint32_t *pids = NULL;

	(void)state;
	child_wait(&user);
	child_wait(&idle);
	n = peers_of_ports(ports, 2, &pids);
	assert_true(n > 0);
	assert_true(has(pids, n, user.pid));
	assert_false(has(pids, n, idle.pid));
	assert_false(has(pids, n, getpid()));	/* it listens, that is no connection */
	free(pids);
	pids = NULL;
	assert_int_equal(peers_of_ports(ports + 1, 1, &pids), 0);
	free(pids);
	child_stop(&user);
	child_stop(&idle);
	close(fd);
	close(other);
}

static void test_who_listens(void **state)
{
	uint16_t port;
	int fd = listen_on(&port);
	struct child with = child_start(0, -1), without = child_start(0, fd);
	struct peer p;

	(void)state;
	child_wait(&with);
	child_wait(&without);
	assert_int_equal(peers_look(with.pid, &p), 0);
	assert_true(p.listens);		/* inherited, as workers do */
	assert_string_equal(p.comm, "test_peers");
	assert_true(p.start > 0);
	assert_int_equal(peers_look(without.pid, &p), 0);
	assert_false(p.listens);
	child_stop(&with);
	child_stop(&without);
	assert_int_equal(peers_look(without.pid, &p), -ESRCH);
	close(fd);
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

/* Its port; 0: it is not among them. */
static uint16_t port_among(const struct listening *v, int n, uint64_t inode)
{
	for (int i = 0; i < n; i++)
		if (v[i].inode == inode)
			return v[i].port;
	return 0;
}

static void test_listening__is_asked_of_the_kernel(void **state)
{
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_addr = in6addr_any };
	int fd6 = socket(AF_INET6, SOCK_STREAM, 0), fd, user, n;
	struct listening *v = NULL;
	uint16_t port;

	(void)state;
	fd = listen_on(&port);
	user = connect_to(port);
	assert_true(user >= 0);
	n = sock_diag_listening(&v);
	if (n == -EPROTONOSUPPORT || n == -ENOENT)
		skip();		/* a kernel without inet_diag */
	assert_true(n > 0);
	assert_int_equal(port_among(v, n, inode_of(fd)), port);
	assert_int_equal(port_among(v, n, inode_of(user)), 0);
	free(v);
	if (fd6 >= 0 && !bind(fd6, (void *)&a6, sizeof(a6)) && !listen(fd6, 1)) {
		n = sock_diag_listening(&v);
		assert_true(n > 0 && port_among(v, n, inode_of(fd6)));
		free(v);
	}
	close(fd6);
	close(user);
	close(fd);
	n = sock_diag_listening(&v);
	assert_true(n >= 0);
	free(v);
}

/* In another network namespace than ours: its own table says it. */
static void test_who_listens_elsewhere(void **state)
{
	struct child c;
	struct peer p;
	int pipes[2];

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	fflush(NULL);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNET) || listen(socket(AF_INET, SOCK_STREAM, 0), 1) ||
		    write(pipes[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(pipes[1]);
	c.ready = pipes[0];
	if (geteuid()) {
		child_stop(&c);
		skip();
	}
	child_wait(&c);
	assert_true(sock_diag_reaches(getpid()));
	assert_false(sock_diag_reaches(c.pid));
	assert_int_equal(peers_look(c.pid, &p), 0);
	assert_true(p.listens);
	child_stop(&c);
}

static void test_odd_names(void **state)
{
	char before[16];
	struct peer p;

	(void)state;
	prctl(PR_GET_NAME, before);
	prctl(PR_SET_NAME, "a) S 1 (b) c d");
	assert_int_equal(peers_look(getpid(), &p), 0);
	assert_string_equal(p.comm, "a) S 1 (b) c d");
	prctl(PR_SET_NAME, before);
}

static void test_siblings(void **state)
{
	struct child a = child_start(0, -1), b = child_start(0, -1);
	uint32_t *pids = NULL;
	int n;

	(void)state;
	n = peers_siblings(a.pid, &pids);
	assert_true(has(pids, n, b.pid));
	assert_false(has(pids, n, a.pid));
	assert_false(has(pids, n, getpid()));
	free(pids);
	pids = NULL;
	child_stop(&a);
	child_stop(&b);
	assert_int_equal(peers_siblings(a.pid, &pids), 0);
	free(pids);
}

static void test_survives_oom(void **state)
{
	uint16_t port;
	int fd = listen_on(&port), n = 0;
	struct child user = child_start(port, -1);
	uint32_t *pids = NULL;

	(void)state;
	child_wait(&user);
	OOM_LOOP({
		pids = NULL;
		n = peers_of_ports(&port, 1, &pids);
		assert_true(n >= 0 || n == -ENOMEM);
		if (n > 0)
			assert_true(has(pids, n, user.pid));
		free(pids);
	});
	assert_int_equal(n, 1);
	child_stop(&user);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_is_connected),
		cmocka_unit_test(test_who_listens),
		cmocka_unit_test(test_listening__is_asked_of_the_kernel),
		cmocka_unit_test(test_who_listens_elsewhere),
		cmocka_unit_test(test_odd_names),
		cmocka_unit_test(test_siblings),
		cmocka_unit_test(test_survives_oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
