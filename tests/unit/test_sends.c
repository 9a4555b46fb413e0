/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that TCP held, and writes that found no room: what becomes of the raw events. */
#include "unit.h"

#include "engine/sends.h"
#include <errno.h>
#include <string.h>

#define MS 1000000ull
enum { SOCK = 77, MAX_OUT = 64 };

struct fixture {
	struct sends *s;
	struct tl_send_held held[MAX_OUT];
	struct tl_send_blocked blocked[MAX_OUT];
	size_t n_held, n_blocked;
	int err;	/* of the next emit */
};

static int take(void *ctx, const struct tl_hdr *ev)
{
	struct fixture *f = ctx;

	if (f->err)
		return f->err;
	assert_true(f->n_held < MAX_OUT && f->n_blocked < MAX_OUT);
	if (ev->kind == TL_SEND_HELD)
		f->held[f->n_held++] = *(const struct tl_send_held *)ev;
	else if (ev->kind == TL_SEND_BLOCKED)
		f->blocked[f->n_blocked++] = *(const struct tl_send_blocked *)ev;
	else
		fail_msg("kind %u", ev->kind);
	return 0;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->s = sends__new(&(struct emit){ take, f });
	*state = f;
	return f->s ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	sends__free(f->s);
	free(f);
	return 0;
}

static struct tl_raw_tcp event(uint64_t sock, uint16_t what, double ms, uint32_t seq)
{
	return (struct tl_raw_tcp){
		.hdr = { sizeof(struct tl_raw_tcp), TL_RAW_TCP, 0, 100, 101, ms * MS },
		.sock = sock, .seq = seq, .fd = 9, .what = what, .local_port = 8080, .peer_port = 40001,
	};
}

static const struct sender who = { 3, 5, 0 };

static int held(struct fixture *f, double ms, uint32_t seq, uint32_t bytes, uint32_t req)
{
	struct tl_raw_tcp e = event(SOCK, TL_TCP_HELD, ms, seq);

	e.bytes = bytes;
	e.why = TL_HELD_NAGLE;
	return sends__feed(f->s, &e, &(struct sender){ 3, req, 0 });
}

static int left(struct fixture *f, double ms, uint32_t seq, double ack_ms)
{
	struct tl_raw_tcp e = event(SOCK, TL_TCP_LEFT, ms, seq);

	e.ack_ns = ack_ms * MS;
	return sends__feed(f->s, &e, &who);
}

static int no_room(struct fixture *f, double begin_ms, double end_ms, uint16_t why, uint32_t bytes)
{
	struct tl_raw_tcp e = event(SOCK, TL_TCP_NO_ROOM, end_ms, 0);

	e.since_ns = begin_ms * MS;
	e.why = why;
	e.bytes = bytes;
	return sends__feed(f->s, &e, &who);
}

static int drained(struct fixture *f, double ms)
{
	struct tl_raw_tcp e = event(SOCK, TL_TCP_DRAINED, ms, 0);

	return sends__feed(f->s, &e, &who);
}

/* Scenario S7a: ten writes of 200 bytes, 5 ms apart; what is held leaves with acknowledgements at 40 and 80. */
static void test_nagle(void **state)
{
	struct fixture *f = *state;

	for (int i = 1; i <= 8; i++)
		assert_int_equal(held(f, 5 * i, 200 + 200 * i, 200 * i, 5), 0);
	assert_int_equal(left(f, 40.05, 1800, 40.04), 0);
	assert_int_equal(held(f, 45, 2000, 200, 5), 0);
	assert_int_equal(left(f, 80.01, 2000, 80), 0);
	assert_int_equal(f->n_held, 2);
	assert_int_equal(f->held[0].since_ns, 5 * MS);
	assert_int_equal(f->held[0].hdr.ts_ns, 40.05 * MS);
	assert_int_equal(f->held[0].ack_ns, 40.04 * MS);
	assert_int_equal(f->held[0].n_writes, 8);
	assert_int_equal(f->held[0].bytes, 1600);
	assert_int_equal(f->held[0].why, TL_HELD_NAGLE);
	assert_int_equal(f->held[0].fd, 9);
	assert_int_equal(f->held[0].conn, 3);
	assert_int_equal(f->held[0].req, 5);
	assert_int_equal(f->held[0].local_port, 8080);
	assert_int_equal(f->held[0].peer_port, 40001);
	assert_int_equal(f->held[0].hdr.tgid, 100);
	assert_int_equal(f->held[1].since_ns, 45 * MS);
	assert_int_equal(f->held[1].n_writes, 1);
	assert_int_equal(f->held[1].bytes, 200);
}

static void test_ack_that_let_nothing_go(void **state)
{
	struct fixture *f = *state;

	held(f, 10, 100, 100, 5);
	left(f, 210, 100, 50);		/* a cork: the kernel's timer did */
	held(f, 300, 200, 100, 5);
	left(f, 301, 200, 299);		/* it was there before the bytes */
	assert_int_equal(f->n_held, 2);
	assert_int_equal(f->held[0].ack_ns, 0);
	assert_int_equal(f->held[1].ack_ns, 0);
}

static void test_partly_left(void **state)
{
	struct fixture *f = *state;

	held(f, 10, 100, 60, 5);	/* 40 of its bytes had left */
	held(f, 11, 200, 160, 5);
	held(f, 12, 300, 260, 5);
	left(f, 20, 80, 20);		/* the first not whole */
	assert_int_equal(f->n_held, 0);
	left(f, 21, 200, 21);
	assert_int_equal(f->n_held, 1);
	assert_int_equal(f->held[0].n_writes, 2);
	assert_int_equal(f->held[0].bytes, 160);
	left(f, 30, 300, 30);
	assert_int_equal(f->n_held, 2);
	assert_int_equal(f->held[1].since_ns, 12 * MS);
	assert_int_equal(f->held[1].bytes, 100);
}

static void test_sequence_wraps(void **state)
{
	struct fixture *f = *state;

	held(f, 10, 0xffffff00u, 100, 5);
	held(f, 11, 0x00000100u, 612, 5);
	left(f, 20, 0xffffff00u, 0);
	assert_int_equal(f->n_held, 1);
	left(f, 30, 0x00000100u, 0);
	assert_int_equal(f->n_held, 2);
	assert_int_equal(f->held[1].bytes, 512);
}

static void test_requests_are_told_apart(void **state)
{
	struct fixture *f = *state;

	held(f, 10, 100, 100, 5);
	held(f, 11, 200, 200, 6);
	left(f, 20, 200, 20);
	assert_int_equal(f->n_held, 2);
	assert_int_equal(f->held[0].req, 5);
	assert_int_equal(f->held[1].req, 6);
}

static void test_short_holds_are_none(void **state)
{
	struct fixture *f = *state;

	held(f, 10, 100, 100, 5);
	left(f, 10.05, 100, 0);
	sends__end(f->s, 20 * MS);
	assert_int_equal(f->n_held, 0);
}

static void test_what_never_left(void **state)
{
	struct fixture *f = *state;

	held(f, 10, 100, 100, 5);
	no_room(f, 11, 11.1, TL_ROOM_SHORT, 1000);
	assert_int_equal(sends__end(f->s, 500 * MS), 0);
	assert_int_equal(f->n_held, 1);
	assert_int_equal(f->held[0].hdr.ts_ns, 500 * MS);
	assert_int_equal(f->held[0].hdr.flags, TL_F_TRUNC);
	assert_int_equal(f->n_blocked, 1);
	assert_int_equal(f->blocked[0].hdr.flags, TL_F_TRUNC);
	assert_int_equal(f->blocked[0].drained_ns, 0);
}

/* That it left was not seen. */
static void test_what_was_held_too_long_to_be_true(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_tcp e = event(SOCK, TL_TCP_HELD, 20, 300);

	held(f, 10, 100, 100, 5);
	e.why = TL_HELD_WINDOW;		/* a window may be full for as long as it likes */
	e.bytes = 200;
	sends__feed(f->s, &e, &(struct sender){ 3, 6, 0 });
	assert_int_equal(sends__end(f->s, 3000 * MS), 0);
	assert_int_equal(f->n_held, 1);
	assert_int_equal(f->held[0].req, 6);
}

static void test_many_writes_take_bounded_room(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 1000; i++)
		held(f, 10 + i, 100 * (i + 1), 100 * (i + 1), 5);
	left(f, 2000, 100000, 0);
	assert_int_equal(f->n_held, 1);
	assert_int_equal(f->held[0].n_writes, 1000);
	assert_int_equal(f->held[0].bytes, 100000);
	assert_int_equal(f->held[0].since_ns, 10 * MS);
}

/* The oldest sockets make room, and say what they know. */
static void test_many_sockets_take_bounded_room(void **state)
{
	struct fixture *f = *state;

	for (uint64_t sock = 1; sock <= 4096 + 10; sock++) {
		struct tl_raw_tcp e = event(sock, TL_TCP_HELD, sock / 100.0, 100);

		e.bytes = 100;
		assert_int_equal(sends__feed(f->s, &e, &who), 0);
	}
	assert_int_equal(f->n_held, 10);
	assert_int_equal(f->held[9].hdr.flags, TL_F_TRUNC);
}

/* ---- no room ---- */

static void test_reader_that_is_slow(void **state)
{
	struct fixture *f = *state;

	no_room(f, 100, 100.1, TL_ROOM_SHORT, 30000);	/* it took a part */
	sends__wrote(f->s, SOCK, 150 * MS);
	no_room(f, 150, 150.1, TL_ROOM_SHORT, 32768);
	sends__wrote(f->s, SOCK, 300 * MS);		/* it took all */
	assert_int_equal(f->n_blocked, 0);
	drained(f, 900);
	assert_int_equal(f->n_blocked, 1);
	assert_int_equal(f->blocked[0].since_ns, 100 * MS);
	assert_int_equal(f->blocked[0].hdr.ts_ns, 300 * MS);
	assert_int_equal(f->blocked[0].drained_ns, 900 * MS);
	assert_int_equal(f->blocked[0].kernel_bytes, 32768);
	assert_int_equal(f->blocked[0].conn, 3);
	assert_int_equal(f->blocked[0].req, 5);
	drained(f, 950);		/* that was told */
	assert_int_equal(f->n_blocked, 1);
}

static void test_writes_that_wait(void **state)
{
	struct fixture *f = *state;

	no_room(f, 100, 150, TL_ROOM_WAITED, 30000);
	sends__wrote(f->s, SOCK, 151 * MS);
	no_room(f, 151, 220, TL_ROOM_WAITED, 30000);
	sends__wrote(f->s, SOCK, 250 * MS);
	drained(f, 300);
	assert_int_equal(f->n_blocked, 1);
	assert_int_equal(f->blocked[0].since_ns, 100 * MS);
	assert_int_equal(f->blocked[0].hdr.ts_ns, 220 * MS);
}

static void test_drained_before_the_process_looked(void **state)
{
	struct fixture *f = *state;

	no_room(f, 100, 100, TL_ROOM_SHORT, 30000);
	drained(f, 300);
	assert_int_equal(f->n_blocked, 1);
	assert_int_equal(f->blocked[0].hdr.ts_ns, 300 * MS);
	assert_int_equal(f->blocked[0].drained_ns, 300 * MS);
	no_room(f, 400, 400, TL_ROOM_SHORT, 7);		/* another time */
	drained(f, 410);
	assert_int_equal(f->n_blocked, 2);
	assert_int_equal(f->blocked[1].kernel_bytes, 7);
}

/* ---- sent again ---- */

static void test_sent_again(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_tcp e = event(SOCK, TL_TCP_AGAIN, 210, 500);

	e.bytes = 200;
	assert_int_equal(sends__feed(f->s, &e, &(struct sender){ 3, 5, 10 * MS }), 0);
	e.hdr.ts_ns = 610 * MS;
	assert_int_equal(sends__feed(f->s, &e, &(struct sender){ 3, 5, 10 * MS }), 0);
	e.seq = 700;		/* another, whose write was not seen */
	assert_int_equal(sends__feed(f->s, &e, &(struct sender){ 3, 5, 0 }), 0);
	assert_int_equal(f->n_held, 2);
	assert_int_equal(f->held[0].why, TL_HELD_RETRANSMIT);
	assert_int_equal(f->held[0].since_ns, 10 * MS);
	assert_int_equal(f->held[0].hdr.ts_ns, 210 * MS);
	assert_int_equal(f->held[0].retransmits, 1);
	assert_int_equal(f->held[1].since_ns, 210 * MS);
	assert_int_equal(f->held[1].hdr.ts_ns, 610 * MS);
}

static void test_strangers(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(left(f, 10, 100, 0), 0);
	assert_int_equal(drained(f, 11), 0);
	sends__wrote(f->s, SOCK, 12 * MS);
	assert_int_equal(sends__forget(f->s, SOCK, 13 * MS), 0);
	assert_int_equal(sends__end(f->s, 14 * MS), 0);
	assert_int_equal(f->n_held + f->n_blocked, 0);
}

/* Another connection has the number of a socket that is gone. */
static void test_forget(void **state)
{
	struct fixture *f = *state;

	held(f, 10, 100, 100, 5);
	assert_int_equal(sends__forget(f->s, SOCK, 90 * MS), 0);
	assert_int_equal(f->n_held, 1);
	left(f, 100, 100, 0);
	assert_int_equal(f->n_held, 1);
}

static void test_errors_come_up(void **state)
{
	struct fixture *f = *state;

	held(f, 10, 100, 100, 5);
	f->err = -ENOSPC;
	assert_int_equal(left(f, 20, 100, 0), -ENOSPC);
	no_room(f, 30, 30, TL_ROOM_SHORT, 1);
	assert_int_equal(drained(f, 40), -ENOSPC);
	held(f, 50, 200, 100, 5);
	assert_int_equal(sends__end(f->s, 60 * MS), -ENOSPC);
}

static void test_survives_oom(void **state)
{
	struct fixture *f = *state;

	OOM_LOOP({
		struct sends *s = sends__new(&(struct emit){ take, f });
		struct tl_raw_tcp e = event(SOCK, TL_TCP_HELD, 1, 100);

		f->n_held = 0;
		if (s) {
			int err = sends__feed(s, &e, &who);

			assert_true(err == 0 || err == -ENOMEM);
			sends__end(s, 50 * MS);
			assert_int_equal(f->n_held, err ? 0 : 1);
		}
		sends__free(s);
	});
	sends__free(NULL);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(nagle), T(ack_that_let_nothing_go), T(partly_left), T(sequence_wraps),
		T(requests_are_told_apart), T(short_holds_are_none), T(what_never_left), T(what_was_held_too_long_to_be_true),
		T(many_writes_take_bounded_room), T(many_sockets_take_bounded_room), T(reader_that_is_slow),
		T(writes_that_wait), T(drained_before_the_process_looked), T(sent_again), T(strangers),
		T(forget), T(errors_come_up), T(survives_oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
