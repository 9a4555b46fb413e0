/* SPDX-License-Identifier: Apache-2.0 */
/* Lives of connections and processes as they are captured, and who is captured at all. */
#include "capture.h"
#include "pair.h"

#include <pthread.h>
#include <sys/syscall.h>

/* ---- life of a connection ---- */

static int do_life(void *arg)
{
	int listener = *(int *)arg, client, server, copy;
	char buf[16];

	client = connect_to(listener, AF_INET);
	server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (client < 0 || server < 0 || write(client, "hello", 5) != 5 || read(server, buf, 16) != 5)
		return 1;
	if (shutdown(client, SHUT_WR) || recv(server, buf, 1, MSG_PEEK) != 0 || read(server, buf, 16) != 0)
		return 2;
	copy = dup(server);
	close(copy);
	close(server);
	close(client);
	return 0;
}

static const struct tl_raw_sock *expect_sock(const struct capture *c, size_t *at, uint8_t what)
{
	const struct tl_raw_sock *ev = capture_next(c, TL_RAW_SOCK, at);

	assert_non_null(ev);
	assert_int_equal(ev->what, what);
	assert_int_equal(ev->family, AF_INET);
	assert_int_equal(ev->listening, 0);
	return ev;
}

static void test_connection__from_connect_to_close(void **state)
{
	const uint8_t addr[16] = { 127, 0, 0, 1 };
	int listener = listen_on(AF_INET);
	struct capture *c = capture_open(NULL);
	struct child child = child_start(do_life, &listener);
	const struct tl_raw_sock *ev;
	const struct tl_raw_tcp_state *tcp;
	uint16_t port = port_of(listener, false), client_port;
	uint64_t client, server;
	size_t at = 0, tcp_at = 0;
	bool seen_open = false, seen_end = false;

	(void)state;
	assert_int_equal(src_bpf__add_target(c->bpf, child.pid), 0);
	assert_int_equal(src_bpf__watch_port(c->bpf, port), 0);
	child_go(&child);
	assert_int_equal(child_end(&child), 0);
	capture_drain(c);

	ev = expect_sock(c, &at, TL_SOCK_CONNECT);
	client = ev->sock;
	client_port = ev->local_port;
	assert_int_equal(ev->peer_port, port);
	assert_memory_equal(ev->peer_addr, addr, 16);
	ev = expect_sock(c, &at, TL_SOCK_ACCEPT);
	server = ev->sock;
	assert_int_equal(ev->local_port, port);
	assert_int_equal(ev->peer_port, client_port);
	assert_memory_equal(ev->peer_addr, addr, 16);
	ev = expect_sock(c, &at, TL_SOCK_SHUTDOWN);
	assert_int_equal(ev->sock, client);
	assert_int_equal(ev->how, SHUT_WR);
	assert_int_equal(expect_sock(c, &at, TL_SOCK_EOF)->sock, server);	/* by the peek */
	assert_int_equal(expect_sock(c, &at, TL_SOCK_EOF)->sock, server);
	ev = expect_sock(c, &at, TL_SOCK_CLOSE);
	assert_int_equal(ev->sock, server);
	assert_int_equal(ev->how, 1);			/* of a copy: the socket lives on */
	ev = expect_sock(c, &at, TL_SOCK_CLOSE);
	assert_int_equal(ev->sock, server);
	assert_int_equal(ev->how, 0);
	assert_int_equal(expect_sock(c, &at, TL_SOCK_CLOSE)->sock, client);
	assert_null(capture_next(c, TL_RAW_SOCK, &at));

	while ((tcp = capture_next(c, TL_RAW_TCP_STATE, &tcp_at))) {
		assert_int_equal(tcp->local_port, port);
		assert_int_equal(tcp->family, AF_INET);
		if (tcp->new_state == TCP_ESTABLISHED)
			assert_int_equal(tcp->peer_port, client_port);
		seen_open |= tcp->old_state == TCP_SYN_RECV && tcp->new_state == TCP_ESTABLISHED;
		seen_end |= tcp->old_state == TCP_ESTABLISHED && tcp->new_state == TCP_CLOSE_WAIT;
	}
	assert_true(seen_open && seen_end);
	capture_close(c);
	close(listener);
}

static int do_reset(void *arg)
{
	const struct pair *p = arg;
	struct linger hard = { 1, 0 };
	char buf[8] = "x";

	setsockopt(p->a, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	close(p->a);
	if (read(p->b, buf, 8) != -1 || errno != ECONNRESET)
		return 1;
	return send(p->b, buf, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE ? 0 : 2;
}

static void test_reset__is_seen_on_both_sides(void **state)
{
	struct capture *c;
	struct pair p;
	struct child child;
	size_t at = 0;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	c = capture_open(NULL);
	child = child_start(do_reset, &p);
	close(p.a);			/* so that the child holds the last copy */
	assert_int_equal(src_bpf__add_target(c->bpf, child.pid), 0);
	child_go(&child);
	assert_int_equal(child_end(&child), 0);
	capture_drain(c);
	assert_int_equal(expect_sock(c, &at, TL_SOCK_CLOSE)->how, 0);
	assert_int_equal(expect_sock(c, &at, TL_SOCK_RESET)->fd, p.b);
	assert_int_equal(expect_sock(c, &at, TL_SOCK_RESET)->fd, p.b);
	assert_null(capture_next(c, TL_RAW_SOCK, &at));
	capture_close(c);
	close(p.b);
}

enum { MANY = 400 };

static int do_many_connections(void *arg)
{
	int listener = *(int *)arg;
	char buf[4];

	for (int i = 0; i < MANY; i++) {
		int client = connect_to(listener, AF_INET), server = accept(listener, NULL, NULL);

		if (client < 0 || server < 0 || write(client, "ping", 4) != 4 || read(server, buf, 4) != 4)
			return 1;
		close(client);
		close(server);
	}
	return 0;
}

static void test_many_connections__all_are_seen(void **state)
{
	int listener = listen_on(AF_INET);
	size_t n[TL_SOCK_RESET + 1] = { 0 }, at = 0;
	const struct tl_raw_sock *ev;
	struct capture *c;

	(void)state;
	c = capture_of(do_many_connections, &listener, NULL);
	while ((ev = capture_next(c, TL_RAW_SOCK, &at)))
		n[ev->what]++;
	assert_int_equal(n[TL_SOCK_CONNECT], MANY);
	assert_int_equal(n[TL_SOCK_ACCEPT], MANY);
	assert_int_equal(n[TL_SOCK_CLOSE], 2 * MANY);
	assert_int_equal(capture_count(c, TL_RAW_NET), 2 * MANY);
	assert_int_equal(c->n_lost, 0);
	capture_close(c);
	close(listener);
}

/* ---- who is captured ---- */

struct thread_arg {
	int fd, tid;
};

static void *send_in_thread(void *arg)
{
	struct thread_arg *t = arg;

	t->tid = syscall(SYS_gettid);
	return write(t->fd, "from a thread", 13) == 13 ? arg : NULL;
}

static int do_thread(void *arg)
{
	const struct pair *p = arg;
	struct thread_arg t = { p->a, 0 };
	pthread_t id;
	void *ret;
	char buf[32];

	if (pthread_create(&id, NULL, send_in_thread, &t) || pthread_join(id, &ret) || !ret)
		return 1;
	/* the parent cannot ask which tid it was: tell it on the wire */
	return write(p->a, &t.tid, sizeof(t.tid)) == sizeof(t.tid) && read(p->b, buf, 32) > 0 ? 0 : 2;
}

static void test_thread__is_named(void **state)
{
	const struct tl_raw_net *first, *second;
	struct capture *c;
	struct pair p;
	size_t at = 0;
	pid_t pid;
	int tid;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	c = capture_of(do_thread, &p, &pid);
	first = capture_next(c, TL_RAW_NET, &at);
	second = capture_next(c, TL_RAW_NET, &at);
	memcpy(&tid, second->data, sizeof(tid));
	assert_int_equal(first->hdr.tid, tid);
	assert_int_equal(first->hdr.tgid, pid);
	assert_int_equal(second->hdr.tid, pid);
	at = 0;
	while (at < c->n) {
		const struct tl_raw_proc *ev = capture_next(c, TL_RAW_PROC, &at);

		assert_true(!ev || ev->what == TL_PROC_EXIT);	/* a thread is no process */
	}
	capture_close(c);
	pair_close(&p);
}

static int do_family(void *arg)
{
	const struct pair *p = arg;
	char fd[12];
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		snprintf(fd, sizeof(fd), "%d", p->a);
		execl("/proc/self/exe", "life", "--say", fd, NULL);
		_exit(98);
	}
	return waitpid(pid, &status, 0) == pid && status == 7 << 8 ? 0 : 1;
}

static void test_family__is_followed(void **state)
{
	const struct tl_raw_proc *fork_ev, *exec_ev, *exit_ev, *own;
	const struct tl_raw_net *net;
	struct capture *c;
	struct pair p;
	size_t at = 0;
	pid_t pid;

	(void)state;
	assert_true(pair_open(&p, AF_UNIX));
	c = capture_of(do_family, &p, &pid);
	fork_ev = capture_next(c, TL_RAW_PROC, &at);
	exec_ev = capture_next(c, TL_RAW_PROC, &at);
	exit_ev = capture_next(c, TL_RAW_PROC, &at);
	own = capture_next(c, TL_RAW_PROC, &at);
	assert_non_null(own);
	assert_int_equal(fork_ev->what, TL_PROC_FORK);
	assert_int_equal(fork_ev->parent, pid);
	assert_int_not_equal(fork_ev->hdr.tgid, pid);
	assert_int_equal(exec_ev->what, TL_PROC_EXEC);
	assert_int_equal(exec_ev->hdr.tgid, fork_ev->hdr.tgid);
	assert_int_equal(exit_ev->what, TL_PROC_EXIT);
	assert_int_equal(exit_ev->hdr.tgid, fork_ev->hdr.tgid);
	assert_int_equal(exit_ev->exit_code, 7 << 8);
	assert_int_equal(own->what, TL_PROC_EXIT);
	assert_int_equal(own->hdr.tgid, pid);
	assert_int_equal(own->exit_code, 0);
	at = 0;
	net = capture_next(c, TL_RAW_NET, &at);
	assert_non_null(net);
	assert_int_equal(net->hdr.tgid, fork_ev->hdr.tgid);
	assert_memory_equal(net->data, "after exec", 10);
	capture_close(c);
	pair_close(&p);
}

static int do_get_killed(void *arg)
{
	(void)arg;
	return raise(SIGKILL);
}

static void test_kill__is_in_the_exit_code(void **state)
{
	const struct tl_raw_proc *ev;
	struct capture *c = capture_open(NULL);
	struct child child = child_start(do_get_killed, NULL);
	size_t at = 0;

	(void)state;
	assert_int_equal(src_bpf__add_target(c->bpf, child.pid), 0);
	child_go(&child);
	assert_int_equal(child_end(&child), SIGKILL);
	capture_drain(c);
	ev = capture_next(c, TL_RAW_PROC, &at);
	assert_non_null(ev);
	assert_int_equal(ev->what, TL_PROC_EXIT);
	assert_int_equal(ev->exit_code, SIGKILL);
	capture_close(c);
}

static int do_say(void *arg)
{
	const struct pair *p = arg;

	return write(p->a, "hello", 5) == 5 ? 0 : 1;
}

static void test_strangers__are_not_captured(void **state)
{
	struct pair p;
	struct capture *c = capture_open(NULL);
	struct child stranger, left;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	stranger = child_start(do_say, &p);
	left = child_start(do_say, &p);
	assert_int_equal(src_bpf__add_target(c->bpf, left.pid), 0);
	src_bpf__del_target(c->bpf, left.pid);
	child_go(&stranger);
	child_go(&left);
	assert_int_equal(child_end(&stranger), 0);
	assert_int_equal(child_end(&left), 0);
	capture_drain(c);
	assert_int_equal(c->n, 0);
	capture_close(c);
	pair_close(&p);
}

static int do_io_uring(void *arg)
{
	uint8_t params[120] = { 0 };
	long fd = syscall(SYS_io_uring_setup, 1, params);

	(void)arg;
	if (fd >= 0)
		return 0;
	return errno == ENOSYS || errno == EPERM ? 77 : 1;
}

static void test_io_uring__is_noticed(void **state)
{
	struct capture *c = capture_open(NULL);
	struct child child = child_start(do_io_uring, NULL);
	int status;

	(void)state;
	assert_int_equal(src_bpf__add_target(c->bpf, child.pid), 0);
	child_go(&child);
	status = child_end(&child);
	capture_drain(c);
	assert_true(status == 0 || status == 77 << 8);
	assert_int_equal(capture_count(c, TL_RAW_IO_URING), status == 0);	/* 77: this kernel has none */
	capture_close(c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connection__from_connect_to_close),
		cmocka_unit_test(test_reset__is_seen_on_both_sides),
		cmocka_unit_test(test_many_connections__all_are_seen),
		cmocka_unit_test(test_thread__is_named),
		cmocka_unit_test(test_family__is_followed),
		cmocka_unit_test(test_kill__is_in_the_exit_code),
		cmocka_unit_test(test_strangers__are_not_captured),
		cmocka_unit_test(test_io_uring__is_noticed),
	};

	if (argc == 3 && !strcmp(argv[1], "--say"))
		return write(atoi(argv[2]), "after exec", 10) == 10 ? 7 : 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
