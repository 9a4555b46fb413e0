/* SPDX-License-Identifier: Apache-2.0 */
/* What sockets say of an answer: held, not read, in blocks; with the numbers of S6 and S7. */
#include "clues_feed.h"

#include <sys/socket.h>

#define T(name) cmocka_unit_test_setup_teardown(test_clues_send__##name, feed_setup, feed_teardown)

static struct tl_send_held held(uint32_t req, double t0, double t1, uint16_t why)
{
	struct tl_send_held e = { .hdr = FEED_HDR(e, TL_SEND_HELD, 0, FEED_API, 0, at(t1)), .since_ns = at(t0),
				  .ack_ns = at(t1), .conn = 1, .req = req, .why = why, .fd = 31,
				  .local_port = 8000, .peer_port = 40001 };

	return e;
}

static struct clue_list send_clues(const struct feed *f, uint32_t request, double t0, double t1)
{
	struct clue_list l;

	clues__send(f->c, request, at(t0), at(t1), &l);
	return l;
}

static double arrived(const struct feed *f, uint32_t request, size_t chunk, struct culprit *who)
{
	uint64_t ns = clues__delivered_ns(f->c, request, chunk, who);

	return ns ? (double)(ns - at(0)) / 1e6 : -1;
}

/* Ten small writes at 0, 5 ... 45; segments leave at 0, 40 (eight of them) and 80 (one). */
static void nagle(struct feed *f, uint32_t req)
{
	struct tl_send_held a = held(req, 5, 40, TL_HELD_NAGLE), b = held(req, 45, 80, TL_HELD_NAGLE);

	feed_request(f, 1, -20, -19, 100);
	for (int i = 0; i < 10; i++)
		feed_chunk(f, 1, 5 * i, TL_CHUNK_TEXT);
	FEED(f, a);
	FEED(f, b);
	feed_done(f);
}

static void check_nagle(const struct feed *f)
{
	struct clue_list l = send_clues(f, 0, 0, 100);
	struct culprit who;

	assert_int_equal(l.n, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(l.v[i].mechanism, MECH_NAGLE);
		assert_int_equal(l.v[i].ns, len(35));
		assert_int_equal(l.v[i].who.type, WHO_CLIENT);
		assert_int_equal(l.v[i].who.id, 40001);
		assert_string_equal(l.v[i].who.name, "fd 31, port 8000");
	}
	/* when chunks left: the write at 40 just precedes the acknowledgement */
	assert_true(arrived(f, 0, 0, &who) == 0);
	assert_int_equal(who.type, WHO_CLIENT);
	for (size_t i = 1; i < 9; i++)
		assert_true(arrived(f, 0, i, NULL) == 40);
	assert_true(arrived(f, 0, 9, NULL) == 80);
	assert_true(arrived(f, 0, 10, NULL) == -1);
	l = send_clues(f, 0, 20, 60);	/* only what lies in it */
	assert_int_equal(l.n, 2);
	assert_int_equal(l.v[0].ns, len(20));
	assert_int_equal(l.v[1].ns, len(15));
}

static void test_clues_send__nagle(void **state)
{
	nagle(*state, 1);
	check_nagle(*state);
}

/* The record knows its connection only. */
static void test_clues_send__nagle_by_connection(void **state)
{
	nagle(*state, 0);
	check_nagle(*state);
}

static void test_clues_send__slow_reader(void **state)
{
	struct feed *f = *state;
	struct tl_send_blocked e = { .hdr = FEED_HDR(e, TL_SEND_BLOCKED, 0, FEED_API, 0, at(8000)),
				     .since_ns = at(3120), .drained_ns = at(50000), .conn = 1, .req = 1,
				     .app_queue_bytes = 51232, .kernel_bytes = 32768 };
	struct tl_send_held h = held(1, 3000, 5000, TL_HELD_WINDOW);
	const struct clue *k;

	feed_request(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 20, TL_CHUNK_TEXT);
	FEED(f, e);
	FEED(f, h);
	feed_done(f);
	struct clue_list l = send_clues(f, 0, 8000, 60000);	/* behind the engine's last token */
	k = only(&l, MECH_SLOW_CLIENT, 42000);
	assert_int_equal(k->who.type, WHO_CLIENT);
	assert_int_equal(k->who.id, 40001);
	/* what is held meanwhile is no second reason */
	l = send_clues(f, 0, 0, 60000);
	assert_int_equal(sum_of(&l, MECH_SLOW_CLIENT), len(50000 - 3000));
}

static void test_clues_send__network(void **state)
{
	struct feed *f = *state;
	struct tl_send_held h = held(1, 100, 300, TL_HELD_RETRANSMIT);

	feed_request(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 20, TL_CHUNK_TEXT);
	FEED(f, h);
	feed_done(f);
	struct clue_list l = send_clues(f, 0, 0, 1000);
	only(&l, MECH_NETWORK, 200);
	assert_int_equal(l.v[0].who.type, WHO_NETWORK);
}

/* The same to a peer of this host: nothing is lost there. A proxy's own connection may lead elsewhere. */
static void test_clues_send__network_of_loopback(void **state)
{
	struct feed *f = *state;
	struct tl_send_held h = held(1, 100, 300, TL_HELD_RETRANSMIT);
	struct tl_conn open = { .hdr = FEED_HDR(open, TL_CONN, 0, FEED_API, FEED_FRONT, at(0)), .conn = 1,
				.what = TL_CONN_OPEN, .family = AF_INET, .peer_port = 40001, .peer_addr = { 127, 0, 0, 1 } };

	FEED(f, open);
	feed_request_on(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 20, TL_CHUNK_TEXT);
	h.conn = 1;
	FEED(f, h);
	h = held(1, 400, 500, TL_HELD_RETRANSMIT);
	h.conn = 0;
	FEED(f, h);
	feed_done(f);
	struct clue_list l = send_clues(f, 0, 0, 1000);
	only(&l, MECH_NETWORK, 100);
	assert_int_equal(l.v[0].t0_ns, at(400));
}

static void delivered(struct feed *f, double t, uint32_t n, uint16_t by, const char *name)
{
	struct tl_delivered e = { .hdr = FEED_HDR(e, TL_DELIVERED, 0, 900, 0, at(t)), .req = 1, .n_chunks = n,
				  .by = by };

	snprintf(e.name, sizeof(e.name), "%s", name);
	FEED(f, e);
}

/* 247-byte chunks; a proxy flushes 67 of them at 17.0 s. The first one announces the speaker. */
static void test_clues_send__proxy(void **state)
{
	struct feed *f = *state;
	struct culprit who;

	feed_request(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 400, TL_CHUNK_ROLE);
	for (int i = 0; i < 200; i++) {
		feed_chunk(f, 1, 500 + 250 * i, TL_CHUNK_TEXT);
		delivered(f, 500.4 + 250 * i, i + 2, TL_BY_ACK, "");
	}
	delivered(f, 17000, 68, TL_BY_PROXY, "nginx");
	delivered(f, 33750, 135, TL_BY_PROXY, "nginx");
	feed_done(f);
	assert_true(arrived(f, 0, 0, &who) == 17000);
	assert_int_equal(who.type, WHO_PROCESS);
	assert_int_equal(who.id, 900);
	assert_string_equal(who.name, "nginx");
	assert_true(arrived(f, 0, 66, NULL) == 17000);
	assert_true(arrived(f, 0, 67, NULL) == 33750);
	assert_true(arrived(f, 0, 134, NULL) == -1);	/* nobody saw these arrive */
}

/* It was the proxy's socket that held the chunk, not the engine's. */
static void test_clues_send__held_by_the_proxys_socket(void **state)
{
	struct feed *f = *state;
	struct tl_send_held h = held(1, 510, 710, TL_HELD_CORK);
	const struct clue *k;

	h.hdr.tgid = 900;
	h.conn = 0;
	feed_request(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 500, TL_CHUNK_TEXT);
	FEED(f, h);
	delivered(f, 710, 1, TL_BY_PROXY, "haproxy");
	feed_done(f);
	struct clue_list l = send_clues(f, 0, 500, 710);
	k = only(&l, MECH_NAGLE, 200);
	assert_int_equal(k->who.type, WHO_PROCESS);
	assert_int_equal(k->who.id, 900);
	assert_string_equal(k->who.name, "haproxy");
}

/* The client knows better than a proxy before it. */
static void test_clues_send__client_before_proxy(void **state)
{
	struct feed *f = *state;
	struct culprit who;

	feed_request(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 500, TL_CHUNK_TEXT);
	delivered(f, 600, 1, TL_BY_PROXY, "nginx");
	delivered(f, 700, 1, TL_BY_CLIENT, "bench");
	feed_done(f);
	assert_true(arrived(f, 0, 0, &who) == 700);
	assert_int_equal(who.type, WHO_CLIENT);
	assert_string_equal(who.name, "bench");
}

/* An acknowledgement says nothing of who got what late. */
static void test_clues_send__acknowledged_only(void **state)
{
	struct feed *f = *state;

	feed_request(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 500, TL_CHUNK_TEXT);
	delivered(f, 500.4, 1, TL_BY_ACK, "");
	feed_done(f);
	assert_true(arrived(f, 0, 0, NULL) == -1);
}

static void in_blocks(struct feed *f, size_t n_first, double first, size_t n, double last)
{
	feed_request(f, 1, 0, 1, 100);
	for (size_t i = 0; i < n_first; i++)
		feed_chunk(f, 1, first, TL_CHUNK_TEXT);
	for (size_t i = 0; i < n; i++)
		feed_chunk(f, 1, last, TL_CHUNK_TEXT);
}

/* The application hands on each token; the socket gets 32 KiB at once, and no thread was busy. */
static void test_clues_send__middleware(void **state)
{
	struct feed *f = *state;
	struct clue_list l;

	in_blocks(f, 133, 33500, 67, 50250);
	feed_done(f);
	clues__front(f->c, 0, at(33750), at(50250), 0, &l);
	only(&l, MECH_APP_BUFFER, 50250 - 33500 - 250);
	clues__front(f->c, 0, at(500), at(33500), 0, &l);	/* the first token */
	only(&l, MECH_APP_BUFFER, 33000);
}

/* A thread that was busy meanwhile is the nearer reason. */
static void test_clues_send__middleware_and_busy(void **state)
{
	struct feed *f = *state;
	struct clue_list l;

	in_blocks(f, 20, 1000, 20, 2000);
	feed_span(f, FEED_FRONT, 1200, 1900, TL_SPAN_RUN);
	feed_done(f);
	clues__front(f->c, 0, at(1020), at(2000), 0, &l);
	assert_int_equal(sum_of(&l, MECH_EVENT_LOOP), len(700));
	assert_int_equal(sum_of(&l, MECH_APP_BUFFER), len(280));
}

/* A burst now and then is none of it: the loop may have been blocked where nobody looked. */
static void test_clues_send__one_burst(void **state)
{
	struct feed *f = *state;
	struct clue_list l;

	feed_request(f, 1, 0, 1, 100);
	for (int i = 0; i < 24; i++)
		feed_chunk(f, 1, 20 + 20 * i, TL_CHUNK_TEXT);
	for (int i = 0; i < 20; i++)
		feed_chunk(f, 1, 900, TL_CHUNK_TEXT);
	feed_done(f);
	clues__front(f->c, 0, at(520), at(900), 0, &l);
	assert_int_equal(l.n, 0);
}

static void test_clues_send__survives_oom(void **state)
{
	struct feed *f = *state;
	struct tl_send_held a = held(1, 5, 40, TL_HELD_NAGLE), b = held(2, 45, 80, TL_HELD_NAGLE);

	feed_request(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 5, TL_CHUNK_TEXT);
	FEED(f, a);
	delivered(f, 600, 1, TL_BY_PROXY, "nginx");
	feed_request(f, 2, 0, 1, 100);
	feed_chunk(f, 2, 45, TL_CHUNK_TEXT);
	FEED(f, b);
	clues_survive_oom(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nagle), T(nagle_by_connection), T(slow_reader), T(network), T(network_of_loopback),
		T(proxy), T(held_by_the_proxys_socket),
		T(client_before_proxy),
		T(acknowledged_only), T(middleware), T(middleware_and_busy), T(one_burst), T(survives_oom),
	};

	return cmocka_run_group_tests_name("clues_send", tests, NULL, NULL);
}
