/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that TCP holds, as each kernel tells of them; times and lengths are judged by t_tcp. */
#include "capture.h"
#include "pair.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

enum { PIECE = 200, TOO_SLOW = 77 };

static bool read_all(int fd, size_t len)
{
	static char buf[1 << 20];

	return recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len;
}

static const struct tl_raw_tcp *next_tcp(const struct capture *c, size_t *at)
{
	return capture_next(c, TL_RAW_TCP, at);
}

/* ---- held ---- */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

/* For longer than 200 ms TCP does not hold what it was told to hold: then nothing was tried. */
static int since(uint64_t begin_ms)
{
	return now_ms() - begin_ms > 150 ? TOO_SLOW : 0;
}

static int do_cork(void *arg)
{
	const struct pair *p = arg;
	char buf[PIECE] = "";
	int on = 1, off = 0;
	uint64_t begin = now_ms();

	if (setsockopt(p->a, IPPROTO_TCP, TCP_CORK, &on, sizeof(on)) || write(p->a, buf, PIECE) != PIECE ||
	    write(p->a, buf, PIECE) != PIECE)
		return 1;
	if (setsockopt(p->a, IPPROTO_TCP, TCP_CORK, &off, sizeof(off)) || !read_all(p->b, 2 * PIECE))
		return 1;
	return since(begin);
}

static int do_more(void *arg)
{
	const struct pair *p = arg;
	char buf[PIECE] = "";
	struct iovec iov = { buf, PIECE };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	uint64_t begin = now_ms();

	if (send(p->a, buf, PIECE, MSG_MORE) != PIECE || sendmsg(p->a, &msg, MSG_MORE) != PIECE ||
	    write(p->a, buf, 1) != 1 || !read_all(p->b, 2 * PIECE + 1))
		return 1;
	return since(begin);
}

static struct capture *capture_in_time(scenario fn, struct pair *p, pid_t *ret_pid)
{
	for (int tries = 0; tries < 100; tries++) {
		struct capture *c = capture_open(NULL);
		struct child child;
		int status;

		assert_true(pair_open(p, AF_INET));
		child = child_start(fn, p);
		assert_int_equal(src_bpf__add_target(c->bpf, child.pid), 0);
		child_go(&child);
		status = child_end(&child);
		capture_drain(c);
		*ret_pid = child.pid;
		if (!status)
			return c;
		assert_int_equal(status, TOO_SLOW << 8);
		capture_close(c);
		pair_close(p);
	}
	fail_msg("this machine is too slow");
	return NULL;
}

static void check_two_held(scenario fn)
{
	const struct tl_raw_tcp *held[2], *left;
	const struct tl_raw_net *out[2];
	size_t at = 0, net_at = 0;
	struct capture *c;
	struct pair p;
	pid_t pid;

	c = capture_in_time(fn, &p, &pid);
	for (int i = 0; i < 2; i++) {
		held[i] = next_tcp(c, &at);
		out[i] = capture_next(c, TL_RAW_NET, &net_at);
		assert_non_null(held[i]);
		assert_int_equal(held[i]->what, TL_TCP_HELD);
		assert_int_equal(held[i]->why, TL_HELD_CORK);
		assert_int_equal(held[i]->bytes, (i + 1) * PIECE);
		assert_int_equal(held[i]->seq, out[i]->stream_pos);
		assert_int_equal(held[i]->sock, out[i]->sock);
		assert_int_equal(held[i]->fd, p.a);
		assert_int_equal(held[i]->hdr.ts_ns, out[i]->hdr.ts_ns);
		assert_int_equal(held[i]->hdr.tgid, pid);
		assert_int_equal(held[i]->local_port, port_of(p.a, false));
		assert_int_equal(held[i]->peer_port, port_of(p.a, true));
	}
	left = next_tcp(c, &at);
	assert_non_null(left);
	assert_int_equal(left->what, TL_TCP_LEFT);
	assert_int_equal(left->seq, held[1]->seq);
	assert_int_equal(left->sock, held[1]->sock);
	assert_int_equal(left->hdr.tgid, pid);
	assert_true(left->hdr.ts_ns > out[1]->hdr.ts_ns + out[1]->dur_ns);
	assert_null(next_tcp(c, &at));
	capture_close(c);
	pair_close(&p);
}

static void test_cork(void **state)
{
	(void)state;
	check_two_held(do_cork);
}

static void test_more(void **state)
{
	(void)state;
	check_two_held(do_more);
}

static int do_plain(void *arg)
{
	const struct pair *p = arg;
	char buf[PIECE] = "";

	for (int i = 0; i < 100; i++)
		if (write(p->a, buf, PIECE) != PIECE || !read_all(p->b, PIECE))
			return 1;
	return 0;
}

static void test_what_leaves_at_once_is_not_told(void **state)
{
	struct capture *c;
	struct pair p;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	c = capture_of(do_plain, &p, NULL);
	assert_int_equal(capture_count(c, TL_RAW_NET), 200);
	assert_int_equal(capture_count(c, TL_RAW_TCP), 0);
	capture_close(c);
	pair_close(&p);
}

/* ---- no room ---- */

/* Of all that was written. Who asks for its state waits till the segment that says so is dealt with. */
static bool wait_acked(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);
	int left = 1;

	while (left)
		if (ioctl(fd, SIOCOUTQ, &left) || usleep(1000))
			return false;
	return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
}

/* Writes until the kernel takes no more, then all is read. A second try changes nothing. */
static int do_full(void *arg)
{
	const struct pair *p = arg;
	static char buf[100000];
	size_t total = 0;
	ssize_t n;

	fcntl(p->a, F_SETFL, O_NONBLOCK);
	while ((n = write(p->a, buf, sizeof(buf))) > 0)
		total += n;
	if (errno != EAGAIN || write(p->a, buf, sizeof(buf)) >= 0)
		return 1;
	while (total) {
		size_t piece = total < sizeof(buf) ? total : sizeof(buf);

		if (!read_all(p->b, piece))
			return 2;
		total -= piece;
	}
	return !wait_acked(p->a);
}

static void test_no_room(void **state)
{
	const struct tl_raw_tcp *e;
	unsigned n_short = 0, n_drained = 0, n_held = 0;
	uint32_t seq = 0, left = 0;
	struct capture *c;
	size_t at = 0;
	struct pair p;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	c = capture_of(do_full, &p, NULL);
	while ((e = next_tcp(c, &at))) {
		switch (e->what) {
		case TL_TCP_HELD:
			n_held++;
			break;
		case TL_TCP_LEFT:
			left = e->seq;
			break;
		case TL_TCP_NO_ROOM:
			assert_int_equal(e->why, TL_ROOM_SHORT);
			assert_true(e->bytes > 0 && e->since_ns && e->since_ns <= e->hdr.ts_ns);
			assert_int_equal(n_drained, 0);
			seq = e->seq;
			n_short++;
			break;
		case TL_TCP_DRAINED:
			n_drained++;
			break;
		default:
			fail_msg("what %u", e->what);
		}
	}
	assert_true(n_short >= 2);	/* one took a part or nothing, and the second try */
	assert_int_equal(n_drained, 1);
	assert_true(n_held > 0);
	assert_int_equal(left, seq);
	capture_close(c);
	pair_close(&p);
}

static int do_wait(void *arg)
{
	const struct pair *p = arg;
	static char buf[8 << 20];
	int size = 16384;
	pid_t reader;

	setsockopt(p->a, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	reader = fork();
	if (reader == 0) {
		wait_state(getppid(), "S");
		usleep(50000);
		for (size_t at = 0; at < sizeof(buf); at += 1 << 20)
			if (!read_all(p->b, 1 << 20))
				_exit(1);
		_exit(0);
	}
	if (write(p->a, buf, sizeof(buf)) != sizeof(buf))
		return 1;
	waitpid(reader, NULL, 0);
	return 0;
}

static void test_writes_that_wait(void **state)
{
	const struct tl_raw_tcp *e;
	struct capture *c;
	size_t at = 0;
	struct pair p;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	c = capture_of(do_wait, &p, NULL);
	do
		e = next_tcp(c, &at);
	while (e && e->what != TL_TCP_NO_ROOM);
	assert_non_null(e);
	assert_int_equal(e->why, TL_ROOM_WAITED);
	assert_true(e->hdr.ts_ns - e->since_ns > 10000000);
	capture_close(c);
	pair_close(&p);
}

/* ---- who connects ---- */

static int do_connect(void *arg)
{
	const int *listener = arg;

	for (int i = 0; i < 3; i++) {
		int fd = connect_to(*listener, AF_INET);

		if (fd < 0)
			return 1;
		close(fd);
	}
	return 0;
}

static void test_who_connects(void **state)
{
	struct capture *c = capture_open(NULL);
	int listener = listen_on(AF_INET);
	uint16_t port = port_of(listener, false);
	const struct tl_raw_tcp *e;
	struct child child;
	size_t at = 0;

	(void)state;
	assert_int_equal(src_bpf__watch_port(c->bpf, port), 0);
	child = child_start(do_connect, &listener);	/* no target */
	child_go(&child);
	assert_int_equal(child_end(&child), 0);
	capture_drain(c);
	e = next_tcp(c, &at);
	assert_non_null(e);
	assert_int_equal(e->what, TL_TCP_CONNECT);
	assert_int_equal(e->hdr.tgid, child.pid);
	assert_int_equal(e->peer_port, port);
	for (uint64_t last = e->hdr.ts_ns; (e = next_tcp(c, &at)); last = e->hdr.ts_ns)
		assert_true(e->hdr.ts_ns - last >= 1000000000);		/* once for a while */
	capture_close(c);
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cork),
		cmocka_unit_test(test_more),
		cmocka_unit_test(test_what_leaves_at_once_is_not_told),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_writes_that_wait),
		cmocka_unit_test(test_who_connects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
