/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes on sockets as they are captured, against what was really sent and received. */
#include "capture.h"
#include "pair.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { SMALL = 200, BIG = 1000 };	/* fits into HEAD; is longer than HEAD + TAIL */

static void fill(uint8_t *buf, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = seed * 31 + i * 7 + (i >> 8);
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

/* ---- every call ---- */

/* Cuts a buffer into n pieces of different sizes, one of them empty. */
static size_t cut_up(uint8_t *buf, size_t len, struct iovec *iov, size_t n)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		size_t piece = i + 1 == n ? len - at : i == 1 ? 0 : len / n;

		iov[i] = (struct iovec){ buf + at, piece };
		at += piece;
	}
	return n;
}

static ssize_t send_by(int call, int fd, uint8_t *buf, size_t len, size_t pieces)
{
	struct iovec iov[1024];
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = cut_up(buf, len, iov, pieces) };

	switch (call) {
	case 0: return write(fd, buf, len);
	case 1: return writev(fd, iov, pieces);
	case 2: return sendto(fd, buf, len, MSG_NOSIGNAL, NULL, 0);
	default: return sendmsg(fd, &msg, MSG_NOSIGNAL);
	}
}

static ssize_t recv_by(int call, int fd, uint8_t *buf, size_t len, size_t pieces)
{
	struct iovec iov[1024];
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = cut_up(buf, len, iov, pieces) };

	switch (call) {
	case 0: return read(fd, buf, len);
	case 1: return readv(fd, iov, pieces);
	case 2: return recvfrom(fd, buf, len, 0, NULL, NULL);
	default: return recvmsg(fd, &msg, 0);
	}
}

static size_t size_of_round(int round)
{
	return round < 16 ? SMALL : BIG;
}

/* 32 exchanges: each sending call with each receiving call, small and big. */
static int do_every_call(void *arg)
{
	const struct pair *p = arg;
	uint8_t out[BIG], in[BIG];

	for (int round = 0; round < 32; round++) {
		size_t len = size_of_round(round);

		fill(out, len, round);
		memset(in, 0, sizeof(in));
		if (send_by(round % 4, p->a, out, len, 5) != (ssize_t)len ||
		    recv_by(round / 4 % 4, p->b, in, len, 3) != (ssize_t)len || memcmp(in, out, len))
			return 1;
	}
	return 0;
}

static void assert_bytes(const struct tl_raw_net *ev, const uint8_t *data, size_t len)
{
	size_t head = len <= HEAD + TAIL ? len : HEAD, tail = len <= HEAD + TAIL ? 0 : TAIL;

	assert_int_equal(ev->total, len);
	assert_int_equal(ev->head, head);
	assert_int_equal(ev->tail, tail);
	assert_memory_equal(ev->data, data, head);
	assert_memory_equal(ev->data + head, data + len - tail, tail);
	assert_int_equal(ev->hdr.size, (sizeof(*ev) + head + tail + 7) / 8 * 8);
	for (size_t i = sizeof(*ev) + head + tail; i < ev->hdr.size; i++)
		assert_int_equal(((const uint8_t *)ev)[i], 0);
}

static void check_every_call(int family)
{
	struct pair p;
	struct capture *c;
	uint8_t data[BIG];
	uint32_t out_pos = 0, in_pos = 0;
	size_t at = 0;
	pid_t pid;

	assert_true(pair_open(&p, family));
	c = capture_of(do_every_call, &p, &pid);
	for (int round = 0; round < 32; round++) {
		const struct tl_raw_net *out = capture_next(c, TL_RAW_NET, &at);
		const struct tl_raw_net *in = capture_next(c, TL_RAW_NET, &at);

		assert_non_null(in);
		fill(data, sizeof(data), round);
		assert_bytes(out, data, size_of_round(round));
		assert_bytes(in, data, size_of_round(round));
		assert_int_equal(out->dir, TL_OUT);
		assert_int_equal(in->dir, TL_IN);
		assert_int_equal(out->fd, p.a);
		assert_int_equal(in->fd, p.b);
		assert_int_equal(out->sock, inode_of(p.a));
		assert_int_equal(in->sock, inode_of(p.b));
		assert_int_equal(out->family, family);
		assert_int_equal(out->local_port, port_of(p.a, false));
		assert_int_equal(out->peer_port, port_of(p.a, true));
		assert_int_equal(in->local_port, port_of(p.b, false));
		assert_int_equal(in->peer_port, port_of(p.b, true));
		assert_true(out->dur_ns > 0);
		assert_true(out->hdr.ts_ns + out->dur_ns <= in->hdr.ts_ns);
		/* the kernel had it after the send began and before the read returned */
		assert_int_equal(in->dur_ns > 0, family != AF_UNIX);
		assert_true(in->dur_ns <= in->hdr.ts_ns - out->hdr.ts_ns);
		/* TCP's own count of the stream goes on by what each call moved */
		assert_int_equal(out->hdr.flags, family == AF_UNIX ? 0 : TL_NET_POS);
		if (round && family != AF_UNIX) {
			assert_int_equal(out->stream_pos - out_pos, out->total);
			assert_int_equal(in->stream_pos - in_pos, in->total);
		}
		out_pos = out->stream_pos;
		in_pos = in->stream_pos;
		assert_int_equal(out->hdr.tgid, pid);
		assert_int_equal(in->hdr.tid, pid);
	}
	assert_null(capture_next(c, TL_RAW_NET, &at));
	assert_int_equal(c->n_lost, 0);
	capture_close(c);
	pair_close(&p);
}

static void test_every_call__tcp(void **state)
{
	(void)state;
	check_every_call(AF_INET);
}

static void test_every_call__tcp6(void **state)
{
	(void)state;
	check_every_call(AF_INET6);
}

static void test_every_call__unix(void **state)
{
	(void)state;
	check_every_call(AF_UNIX);
}

/* ---- odd lengths ---- */

static int do_many_pieces(void *arg)
{
	const struct pair *p = arg;
	uint8_t out[BIG], in[BIG];
	size_t n = 0;
	ssize_t len;

	fill(out, BIG, 3);
	if (send_by(3, p->a, out, BIG, 900) != BIG)
		return 1;
	while (n < BIG) {
		len = recv_by(1, p->b, in, BIG - n, 1000);
		if (len <= 0)
			return 2;
		n += len;
	}
	return 0;
}

static void test_many_pieces__are_one_call(void **state)
{
	struct pair p;
	struct capture *c;
	uint8_t data[BIG];
	size_t at = 0;

	(void)state;
	assert_true(pair_open(&p, AF_UNIX));
	c = capture_of(do_many_pieces, &p, NULL);
	fill(data, BIG, 3);
	assert_bytes(capture_next(c, TL_RAW_NET, &at), data, BIG);
	assert_bytes(capture_next(c, TL_RAW_NET, &at), data, BIG);
	capture_close(c);
	pair_close(&p);
}

/* A sender that nobody reads from: short writes, then EAGAIN. Then all is read. */
struct short_writes {
	struct pair pair;
	size_t *accepted;	/* shared with the parent */
};

static int do_short_writes(void *arg)
{
	const struct short_writes *s = arg;
	static uint8_t buf[300000];
	ssize_t len;

	fcntl(s->pair.a, F_SETFL, O_NONBLOCK);
	fill(buf, sizeof(buf), 9);
	while ((len = write(s->pair.a, buf, sizeof(buf))) > 0)
		*s->accepted += len;
	return errno == EAGAIN ? 0 : 1;
}

static void test_short_write__is_what_was_taken(void **state)
{
	struct short_writes s = { .accepted = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
						  MAP_SHARED | MAP_ANONYMOUS, -1, 0) };
	static uint8_t data[300000];
	const struct tl_raw_net *ev;
	struct capture *c;
	size_t at = 0, sum = 0, n_short = 0;

	(void)state;
	assert_true(pair_open(&s.pair, AF_INET));
	c = capture_of(do_short_writes, &s, NULL);
	fill(data, sizeof(data), 9);
	while ((ev = capture_next(c, TL_RAW_NET, &at))) {
		assert_bytes(ev, data, ev->total);
		sum += ev->total;
		n_short += ev->total < sizeof(data);
	}
	assert_int_equal(sum, *s.accepted);
	assert_true(n_short > 0);
	capture_close(c);
	pair_close(&s.pair);
	munmap(s.accepted, 4096);
}

/* ---- what is not in the stream ---- */

static int do_flags(void *arg)
{
	const struct pair *p = arg;
	uint8_t buf[SMALL], in[SMALL];
	struct iovec iov = { in, SMALL };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	fill(buf, SMALL, 1);
	if (send(p->a, buf, SMALL, 0) != SMALL || recv(p->b, in, SMALL, MSG_PEEK) != SMALL ||
	    recvmsg(p->b, &msg, MSG_PEEK) != SMALL || read(p->b, in, 0) != 0 ||
	    recv(p->b, in, 50, 0) != 50 || recv(p->b, in, 100, MSG_TRUNC) != 100 ||
	    recv(p->b, in, SMALL, 0) != 50)
		return 1;
	return 0;
}

static void test_peek_and_trunc__move_what_they_move(void **state)
{
	struct pair p;
	struct capture *c;
	uint8_t data[SMALL];
	const struct tl_raw_net *ev;
	size_t at = 0;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	c = capture_of(do_flags, &p, NULL);
	fill(data, SMALL, 1);
	assert_bytes(capture_next(c, TL_RAW_NET, &at), data, SMALL);
	assert_bytes(capture_next(c, TL_RAW_NET, &at), data, 50);
	ev = capture_next(c, TL_RAW_NET, &at);		/* TCP drops these bytes: there is nothing to copy */
	assert_int_equal(ev->total, 100);
	assert_int_equal(ev->head + ev->tail, 0);
	assert_bytes(capture_next(c, TL_RAW_NET, &at), data + 150, 50);
	assert_null(capture_next(c, TL_RAW_NET, &at));
	assert_int_equal(capture_count(c, TL_RAW_SOCK), 0);	/* a read of 0 bytes is no end */
	capture_close(c);
	pair_close(&p);
}

static int do_sendfile(void *arg)
{
	const struct pair *p = arg;
	int file = memfd_create("x", 0);
	uint8_t buf[BIG];

	fill(buf, BIG, 2);
	return write(file, buf, BIG) == BIG && !lseek(file, 0, SEEK_SET) &&
	       sendfile(p->a, file, NULL, BIG) == BIG ? 0 : 1;
}

/* Its bytes are in no buffer of the process: that they were sent is known, not what they were. */
static void test_sendfile__is_a_hole(void **state)
{
	const struct tl_raw_net *ev;
	struct capture *c;
	struct pair p;
	size_t at = 0;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	c = capture_of(do_sendfile, &p, NULL);
	ev = capture_next(c, TL_RAW_NET, &at);
	assert_non_null(ev);
	assert_int_equal(ev->dir, TL_OUT);
	assert_int_equal(ev->total, BIG);
	assert_int_equal(ev->head + ev->tail, 0);
	assert_null(capture_next(c, TL_RAW_NET, &at));
	capture_close(c);
	pair_close(&p);
}

enum { STREAM = 30000 };

static void fill_stream(char *buf, size_t len, const char *first)
{
	size_t n = snprintf(buf, len, "%s", first);

	memset(buf + n, 'x', len - n);
	for (size_t i = n + 100; i + 100 < len; i += 100)
		memcpy(buf + i, "\n\ndata: {\"a", 12);
}

static const char *const stream_begins[] = {
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "4e20\r\ndata: {", "41a\r\nnt\": 3}",
};

static int do_streams(void *arg)
{
	const struct pair *p = arg;
	static char out[STREAM], in[STREAM];

	for (size_t i = 0; i < 2 * 3; i++) {
		struct iovec iov[3] = { { out, 7 }, { out + 7, 20000 }, { out + 20007, STREAM - 20007 } };

		fill_stream(out, STREAM, stream_begins[i / 2]);
		if ((i % 2 ? writev(p->a, iov, 3) : write(p->a, out, STREAM)) != STREAM ||
		    recv(p->b, in, STREAM, MSG_WAITALL) != STREAM)
			return 1;
	}
	return 0;
}

/* Of a stream that comes in large writes, each event is wanted. */
static void test_large_writes_of_streams__are_kept_whole(void **state)
{
	const struct tl_raw_net *ev;
	static char want[STREAM];
	struct capture *c;
	struct pair p;
	size_t at = 0;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	c = capture_of(do_streams, &p, NULL);
	for (size_t i = 0; i < 2 * 3; i++) {
		do
			ev = capture_next(c, TL_RAW_NET, &at);
		while (ev && ev->dir == TL_IN);
		fill_stream(want, STREAM, stream_begins[i / 2]);
		assert_non_null(ev);
		assert_int_equal(ev->total, STREAM);
		assert_int_equal(ev->head, STREAM);
		assert_int_equal(ev->tail, 0);
		assert_memory_equal(ev->data, want, STREAM);
	}
	capture_close(c);
	pair_close(&p);
}

static int do_other_files(void *arg)
{
	int fds[2], udp = socket(AF_INET, SOCK_DGRAM, 0), file = memfd_create("x", 0), nul = open("/dev/null", O_RDWR);
	int dgram[2];
	struct sockaddr_storage a;
	socklen_t len = loopback(AF_INET, &a);
	char buf[64] = "not a stream socket";

	(void)arg;
	if (pipe(fds) || udp < 0 || bind(udp, (struct sockaddr *)&a, len) ||
	    socketpair(AF_UNIX, SOCK_DGRAM, 0, dgram))
		return 1;
	len = sizeof(a);
	getsockname(udp, (struct sockaddr *)&a, &len);
	if (write(fds[1], buf, 20) != 20 || read(fds[0], buf, 20) != 20 || write(file, buf, 20) != 20 ||
	    write(nul, buf, 20) != 20 || sendto(udp, buf, 20, 0, (struct sockaddr *)&a, len) != 20 ||
	    recv(udp, buf, 64, 0) != 20 || write(dgram[0], buf, 20) != 20 || read(dgram[1], buf, 64) != 20)
		return 2;
	return write(-1, buf, 1) == -1 && read(1 << 20, buf, 1) == -1 && !close(file) && !close(udp) ? 0 : 3;
}

static void test_other_files__are_left_alone(void **state)
{
	struct capture *c;

	(void)state;
	c = capture_of(do_other_files, NULL, NULL);
	assert_int_equal(capture_count(c, TL_RAW_NET), 0);
	assert_int_equal(capture_count(c, TL_RAW_SOCK), 0);
	capture_close(c);
}

/* ---- loss ---- */

enum { FLOOD = 3000 };

static int do_flood(void *arg)
{
	const struct pair *p = arg;
	char buf[SMALL];

	memset(buf, 'f', sizeof(buf));
	for (int i = 0; i < FLOOD; i++) {
		if (write(p->a, buf, sizeof(buf)) != sizeof(buf) || read(p->b, buf, sizeof(buf)) != sizeof(buf))
			return 1;
	}
	return 0;
}

/* A ring of 16 KiB and nobody who polls: what does not fit is counted, with its span, to the last. */
static void test_loss__is_counted(void **state)
{
	const struct src_bpf_opts opts = { .head_bytes = HEAD, .tail_bytes = TAIL, .ring_bytes = 16 << 10 };
	struct capture *c = capture_open(&opts);
	const struct tl_lost *lost;
	struct src_bpf_cost cost;
	struct child child;
	struct timespec t;
	struct pair p;
	uint64_t start_ns, n_told;
	size_t at = 0;

	(void)state;
	assert_true(pair_open(&p, AF_UNIX));
	child = child_start(do_flood, &p);
	assert_int_equal(src_bpf__add_target(c->bpf, child.pid), 0);
	clock_gettime(CLOCK_MONOTONIC, &t);
	start_ns = t.tv_sec * 1000000000ull + t.tv_nsec;
	child_go(&child);
	assert_int_equal(child_end(&child), 0);
	capture_drain(c);
	assert_true(c->n_lost > 0);
	/* the child's exit is an event as well, lost or not */
	assert_int_equal(capture_count(c, TL_RAW_NET) + capture_count(c, TL_RAW_PROC) + c->n_lost,
			 2 * FLOOD + 1);
	src_bpf__cost(c->bpf, &cost);
	assert_int_equal(cost.lost, c->n_lost);
	clock_gettime(CLOCK_MONOTONIC, &t);
	while ((lost = capture_next(c, TL_LOST, &at))) {
		assert_int_equal(lost->where, TL_LOST_RING);
		assert_true(lost->n > 0);
		assert_true(lost->since_ns >= start_ns && lost->since_ns <= lost->hdr.ts_ns);
		assert_true(lost->hdr.ts_ns <= t.tv_sec * 1000000000ull + t.tv_nsec);
		/* the exit alone, where the child came to another CPU before */
		assert_true(lost->what == TL_RAW_NET || lost->what == 0 ||
			    (lost->what == TL_RAW_PROC && lost->n == 1));
	}

	/* told once only */
	n_told = c->n_lost;
	capture_drain(c);
	assert_int_equal(c->n_lost, n_told);
	capture_close(c);
	pair_close(&p);
}

/* The same flood with room for it: nothing is lost, and events come in the order of their calls. */
static void test_order__is_that_of_the_calls(void **state)
{
	const struct tl_raw_net *ev;
	struct capture *c;
	struct pair p;
	uint64_t last = 0;
	size_t at = 0;

	(void)state;
	assert_true(pair_open(&p, AF_UNIX));
	{
		const struct src_bpf_opts opts = { .head_bytes = HEAD, .tail_bytes = TAIL,
						   .ring_bytes = 4 << 20 };
		struct child child = child_start(do_flood, &p);

		c = capture_open(&opts);
		assert_int_equal(src_bpf__add_target(c->bpf, child.pid), 0);
		child_go(&child);
		assert_int_equal(child_end(&child), 0);
		capture_drain(c);
	}
	assert_int_equal(c->n_lost, 0);
	assert_int_equal(capture_count(c, TL_RAW_NET), 2 * FLOOD);
	while ((ev = capture_next(c, TL_RAW_NET, &at))) {
		assert_true(ev->hdr.ts_ns >= last);
		last = ev->hdr.ts_ns;
	}
	capture_close(c);
	pair_close(&p);
}

/* An error of the consumer comes back, and what it had not seen yet is still there. */
static int refuse_third(void *ctx, const struct tl_hdr *ev)
{
	(void)ev;
	return ++*(int *)ctx == 3 ? -ENOSPC : 0;
}

static void test_poll__hands_errors_up(void **state)
{
	struct pair p;
	struct capture *c;
	int n = 0;
	const struct emit out = { refuse_third, &n };
	struct child child;

	(void)state;
	assert_true(pair_open(&p, AF_UNIX));
	c = capture_open(NULL);
	child = child_start(do_many_pieces, &p);
	assert_int_equal(src_bpf__add_target(c->bpf, child.pid), 0);
	child_go(&child);
	assert_int_equal(child_end(&child), 0);
	assert_int_equal(src_bpf__poll(c->bpf, &out, 0), -ENOSPC);
	assert_int_equal(n, 3);		/* a write, a read, and the exit of the child */
	assert_int_equal(src_bpf__poll(c->bpf, &out, 0), 0);
	capture_close(c);
	pair_close(&p);
}

enum { TIMES_LATE = 4, LATE_US = 200000 };

/* Who answers at once gets his next acknowledgement delayed by 40 ms: questions are read at once and late in turn. */
static int read_late(void *arg)
{
	const struct pair *p = arg;
	char buf[16];

	for (int i = 0; i < 2 * TIMES_LATE; i++) {
		if (send(p->a, "hello", 5, 0) != 5)
			return 1;
		if (i % 2)
			usleep(LATE_US);
		if (read(p->b, buf, sizeof(buf)) != 5 || send(p->b, "hi", 2, 0) != 2)
			return 2;
		if (read(p->a, buf, sizeof(buf)) != 2)
			return 3;
	}
	return 0;
}

static void test_late_read__says_since_when(void **state)
{
	const struct tl_raw_net *ev[4];
	struct capture *c;
	struct pair p;
	size_t at = 0, n_late = 0;

	(void)state;
	assert_true(pair_open(&p, AF_INET));
	c = capture_of(read_late, &p, NULL);
	for (int i = 0; i < 2 * TIMES_LATE; i++) {
		for (int k = 0; k < 4; k++)
			ev[k] = capture_next(c, TL_RAW_NET, &at);
		assert_non_null(ev[3]);
		assert_int_equal(ev[1]->dir, TL_IN);
		assert_true(ev[1]->hdr.ts_ns - ev[1]->dur_ns >= ev[0]->hdr.ts_ns);
		/* that acknowledgement turned TCP's clock in the meantime; a tick is 10 ms at most */
		n_late += i % 2 && ev[1]->dur_ns >= LATE_US * 1000 - 30000000;
	}
	assert_true(n_late > TIMES_LATE / 2);	/* a guest may lose ticks */
	capture_close(c);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call__tcp),
		cmocka_unit_test(test_every_call__tcp6),
		cmocka_unit_test(test_every_call__unix),
		cmocka_unit_test(test_many_pieces__are_one_call),
		cmocka_unit_test(test_short_write__is_what_was_taken),
		cmocka_unit_test(test_peek_and_trunc__move_what_they_move),
		cmocka_unit_test(test_sendfile__is_a_hole),
		cmocka_unit_test(test_large_writes_of_streams__are_kept_whole),
		cmocka_unit_test(test_other_files__are_left_alone),
		cmocka_unit_test(test_loss__is_counted),
		cmocka_unit_test(test_order__is_that_of_the_calls),
		cmocka_unit_test(test_late_read__says_since_when),
		cmocka_unit_test(test_poll__hands_errors_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
