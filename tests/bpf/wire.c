/* SPDX-License-Identifier: Apache-2.0 */
/* Which sockets are taken for an engine's own wire, and how much of these is kept. */
#include "capture.h"
#include "pair.h"

#include <sys/stat.h>

enum { LONG = 40000, WHOLE = 60 << 10, HUGE_CALL = 100000 };

static const uint8_t greeting[] = { 0xff, 0, 0, 0, 0, 0, 0, 0, 3, 0x7f };
static uint8_t bytes[HUGE_CALL];

static bool move(int from, int to, const void *p, size_t len)
{
	static uint8_t in[HUGE_CALL];
	size_t got = 0;
	ssize_t n;

	if (write(from, p, len) != (ssize_t)len)
		return false;
	for (; got < len; got += n) {
		n = recv(to, in + got, len - got, MSG_WAITALL);
		if (n <= 0)
			return false;
	}
	return true;
}

/* ---- the child: both ends of each connection are its own ---- */

struct plan {
	struct pair pair;
	bool greet_a, greet_b;	/* who writes a greeting first */
	size_t len;		/* then this much goes from a to b */
};

static int do_plan(void *arg)
{
	const struct plan *p = arg;
	int big = 1 << 20;

	setsockopt(p->pair.a, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	setsockopt(p->pair.b, SOL_SOCKET, SO_RCVBUF, &big, sizeof(big));
	if (p->greet_a && !move(p->pair.a, p->pair.b, greeting, sizeof(greeting)))
		return 1;
	if (p->greet_b && !move(p->pair.b, p->pair.a, greeting, sizeof(greeting)))
		return 2;
	return move(p->pair.a, p->pair.b, bytes, p->len) ? 0 : 3;
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

/* What became of the long call: bytes kept on either side, -1: no event. */
struct kept {
	long out, in;
	size_t n;		/* events of bytes, the greetings' too */
};

static struct kept run(struct plan *p, uint32_t mode, bool tell_a, bool tell_b)
{
	struct capture *c = capture_open(NULL);
	struct child child = child_start(do_plan, p);
	struct kept k = { -1, -1, 0 };
	const struct tl_raw_net *ev;
	size_t at = 0;

	assert_int_equal(src_bpf__add_target_mode(c->bpf, child.pid, mode), 0);
	if (tell_a)
		assert_int_equal(src_bpf__add_tcp_wire(c->bpf, inode_of(p->pair.a)), 0);
	if (tell_b)
		assert_int_equal(src_bpf__add_tcp_wire(c->bpf, inode_of(p->pair.b)), 0);
	child_go(&child);
	assert_int_equal(child_end(&child), 0);
	capture_drain(c);
	while ((ev = capture_next(c, TL_RAW_NET, &at))) {
		long *kept = ev->dir == TL_OUT ? &k.out : &k.in;

		k.n++;
		if (ev->total <= sizeof(greeting))
			continue;
		if (*kept < 0)
			*kept = 0;
		*kept += ev->head + ev->tail;
		assert_memory_equal(ev->data, bytes, ev->head < 16 || ev->dir == TL_IN ? 1 : ev->head);
	}
	assert_int_equal(c->n_lost, 0);
	capture_close(c);
	pair_close(&p->pair);
	return k;
}

static struct plan plan(int family, bool greet_a, bool greet_b, size_t len)
{
	struct plan p = { .greet_a = greet_a, .greet_b = greet_b, .len = len };

	assert_true(pair_open(&p.pair, family));
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = 1 + i % 250;
	return p;
}

/* ---- tests ---- */

static void test_wire__tcp_that_greets_is_kept_whole(void **state)
{
	for (int v6 = 0; v6 < 2; v6++) {
		struct plan p = plan(v6 ? AF_INET6 : AF_INET, true, true, LONG);
		struct kept k = run(&p, TL_TARGET_WIRE, false, false);

		assert_int_equal(k.out, LONG);
		assert_int_equal(k.in, LONG);
	}
	(void)state;
}

/* A stranger's bytes make no wire: only the end that wrote a greeting is one. */
static void test_wire__what_is_read_does_not_decide(void **state)
{
	struct plan p = plan(AF_INET, true, false, LONG);
	struct kept k = run(&p, TL_TARGET_WIRE, false, false);

	assert_int_equal(k.out, LONG);
	assert_true(k.in >= HEAD && k.in < LONG / 2);
	p = plan(AF_INET, true, false, LONG);
	k = run(&p, TL_TARGET_HTTP, false, false);
	assert_int_equal(k.out, -1);
	assert_true(k.in >= HEAD && k.in < LONG / 2);
	(void)state;
}

static void test_wire__other_tcp_stays_short(void **state)
{
	struct plan p = plan(AF_INET, false, false, LONG);
	struct kept k = run(&p, TL_TARGET_WIRE, false, false);

	assert_int_equal(k.out, HEAD + TAIL);
	assert_true(k.in >= HEAD && k.in < LONG / 2);
	/* where ZMTP means nothing */
	p = plan(AF_INET, true, true, LONG);
	assert_int_equal(run(&p, TL_TARGET_ALL, false, false).out, HEAD + TAIL);
	(void)state;
}

static void test_wire__told_of_older_connections(void **state)
{
	struct plan p = plan(AF_INET, false, false, LONG);
	struct kept k = run(&p, TL_TARGET_WIRE, true, true);

	assert_int_equal(k.out, LONG);
	assert_int_equal(k.in, LONG);
	p = plan(AF_INET, false, false, LONG);
	k = run(&p, TL_TARGET_HTTP, true, false);
	assert_int_equal(k.out, -1);
	assert_true(k.in > 0);
	(void)state;
}

static void test_wire__limit_of_one_call(void **state)
{
	struct plan p = plan(AF_UNIX, false, false, HUGE_CALL);
	struct kept k = run(&p, TL_TARGET_WIRE, false, false);

	assert_int_equal(k.out, WHOLE);
	p = plan(AF_INET, true, true, HUGE_CALL);
	k = run(&p, TL_TARGET_WIRE, false, false);
	assert_int_equal(k.out, WHOLE);
	(void)state;
}

static void test_wire__quiet_targets_say_nothing_of_sockets(void **state)
{
	struct plan p = plan(AF_UNIX, false, false, LONG);

	assert_int_equal(run(&p, TL_TARGET_QUIET, false, false).n, 0);
	p = plan(AF_INET, true, true, LONG);
	assert_int_equal(run(&p, TL_TARGET_QUIET, false, false).n, 0);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire__tcp_that_greets_is_kept_whole),
		cmocka_unit_test(test_wire__what_is_read_does_not_decide),
		cmocka_unit_test(test_wire__other_tcp_stays_short),
		cmocka_unit_test(test_wire__told_of_older_connections),
		cmocka_unit_test(test_wire__limit_of_one_call),
		cmocka_unit_test(test_wire__quiet_targets_say_nothing_of_sockets),
	};

	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
