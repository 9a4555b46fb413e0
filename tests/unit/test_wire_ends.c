/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP tracker where things do not end as they should: refusals, half-closed connections, bytes that
 * cannot be followed, and sockets that nobody closes. */
#include "unit.h"
#include "wire_feed.h"

struct fixture {
	struct wire *w;
	struct wire_log log;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->w = wire__new(NULL, &(struct emit){ wire_log_event, &f->log });
	*state = f;
	return f->w ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	wire__free(f->w);
	free(f);
	return 0;
}

#define HEAD "POST /v1/chat/completions HTTP/1.1\r\nX-Request-Id: abc\r\nContent-Length: 86\r\n\r\n"
#define CHAT "{\"model\":\"m\",\"stream\":true,\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define ASK HEAD CHAT
#define SSE "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
#define TEXT "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n"
#define DONE "data: [DONE]\n\n"
#define OK "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

static void in(struct fixture *f, uint64_t ts, const char *text)
{
	feed_bytes(f->w, 5, ts, TL_IN, text, strlen(text), 4096);
}

static void out(struct fixture *f, uint64_t ts, const char *text)
{
	feed_bytes(f->w, 5, ts, TL_OUT, text, strlen(text), 4096);
}

#define SAYS(f, part) assert_non_null(strstr((f)->log.text, part))

/* ---- answers before the request's end ---- */

static void test_early__refusal(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	in(f, 1000, HEAD "{\"model\":\"m\",\"stream\":true,\"max_tokens\":9,");
	out(f, 1100, "HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"error\":\"x\"}");
	SAYS(f, "facts 1 /v1/chat/completions model=m stream=1 max=9 n=0 body=42 id=abc unread @1100\n"
	     "resp 1 413 body 2 @1100\n");
	SAYS(f, "end 1 how 1 status 413 @1100\n");
	in(f, 1200, "\"messages\":[]}");
	feed_sock(f->w, 5, 1300, TL_SOCK_CLOSE);
	assert_int_equal(f->log.n_kind[TL_REQ_FACTS], 1);
}

static void test_early__stream_goes_on(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	in(f, 1000, HEAD "{\"model\":\"m\",\"stream\":true,\"max_tokens\":9,");
	out(f, 1100, SSE "\r\n" TEXT);
	in(f, 1200, "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
	SAYS(f, "facts 1 /v1/chat/completions model=m stream=1 max=9 n=0 body=86 id=abc @1200\n");
	out(f, 1300, DONE);
	feed_sock(f->w, 5, 1400, TL_SOCK_CLOSE);
	SAYS(f, "end 1 how 1 status 200 @1400\n");
	assert_int_equal(f->log.n_kind[TL_REQ_FACTS], 1);
}

static void test_early__client_goes_away(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	in(f, 1000, HEAD "{\"model\":\"m\",");
	feed_sock(f->w, 5, 1100, TL_SOCK_EOF);
	feed_sock(f->w, 5, 1200, TL_SOCK_CLOSE);
	SAYS(f, "facts 1 /v1/chat/completions model=m stream=-1 max=-1 n=0 body=13 id=abc unread @1100\n"
	     "end 1 how 2 status 0 @1100\n");
}

/* ---- who goes away, and who only says no more ---- */

/* Without a mark of its end: that the client took all of it shows that it listened. */
static void test_half_closed__until_close(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	in(f, 1000, ASK);
	feed_sock(f->w, 5, 1100, TL_SOCK_EOF);
	out(f, 2000, SSE "\r\n" TEXT);
	out(f, 3000, TEXT);
	feed_sock(f->w, 5, 4000, TL_SOCK_CLOSE);
	SAYS(f, "end 1 how 1 status 200 @4000\n");
}

static void test_half_closed__several_pieces_in_one_write_are_one(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	in(f, 1000, ASK);
	out(f, 2000, SSE "Transfer-Encoding: chunked\r\n\r\n");
	feed_sock(f->w, 5, 2100, TL_SOCK_EOF);
	out(f, 3000, "3\r\n: a\r\n3\r\n: b\r\n3\r\n: c\r\n0\r\n\r\n");
	SAYS(f, "end 1 how 2 status 200 @2100\n");
}

static void test_half_closed__then_reset(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	in(f, 1000, ASK);
	feed_sock(f->w, 5, 1100, TL_SOCK_EOF);
	out(f, 2000, SSE "\r\n" TEXT);
	out(f, 3000, TEXT);
	out(f, 3100, TEXT);
	feed_sock(f->w, 5, 3200, TL_SOCK_RESET);
	feed_sock(f->w, 5, 4000, TL_SOCK_CLOSE);
	SAYS(f, "end 1 how 2 status 200 @1100\n");
}

static void test_answer__is_compressed(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	in(f, 1000, ASK);
	out(f, 2000, SSE "Content-Encoding: zstd\r\nContent-Length: 9\r\n\r\n");
	SAYS(f, "resp 1 200 body 1 encoded @2000\n");
	out(f, 3000, "123456789");
	SAYS(f, "end 1 how 1 status 200 @3000\n");
	assert_int_equal(f->log.n_kind[TL_CHUNK], 0);
}

/* ---- bytes that cannot be followed ---- */

/* Forty requests in one read, of which the first bytes were kept: those that are whole have their answers,
 * those in the gap are not seen, and none is told twice. */
static void test_pipelined__beyond_what_is_kept(void **state)
{
	struct fixture *f = *state;
	enum { N = 40, KEPT = 5 };
	size_t one = strlen(ASK);
	char all[N * sizeof(ASK) + 1] = "";

	for (int i = 0; i < N; i++)
		memcpy(all + i * one, ASK, one);
	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_cut(f->w, 5, 1000, TL_IN, all, N * one, KEPT * one + 20, 30);
	assert_int_equal(f->log.n_kind[TL_REQ_FACTS], KEPT);
	for (int i = 0; i < N; i++)
		out(f, 2000 + i, OK);
	assert_int_equal(f->log.n_kind[TL_REQ_BEGIN], N);
	assert_int_equal(f->log.n_kind[TL_REQ_END], N);
	SAYS(f, "end 1 how 1 status 200 @2000\n");
	SAYS(f, "end 5 how 1 status 200 @2004\n");
	SAYS(f, "begin 6 conn 1 api 0 joined @2005\n");
	/* and then all is as ever */
	in(f, 3000, ASK);
	out(f, 3100, OK);
	SAYS(f, "end 41 how 1 status 200 @3100\n");
}

/* While an answer waits, nobody knows which request the next one is to: those in the gap go first. */
static void test_pipelined__more_behind_the_gap(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_cut(f->w, 5, 1000, TL_IN, ASK "POST /v1/chat/completions HTTP/1.1\r\n\r\n and many more",
		 strlen(ASK) + 3000, strlen(ASK) + 10, 0);
	in(f, 1100, ASK);
	out(f, 2000, OK);
	out(f, 2100, OK);
	out(f, 2200, OK);
	assert_int_equal(f->log.n_kind[TL_REQ_FACTS], 1);
	SAYS(f, "end 1 how 1 status 200 @2000\n");
	SAYS(f, "begin 2 conn 1 api 0 joined @2100\n");
	SAYS(f, "begin 3 conn 1 api 0 joined @2200\n");
}

static void test_garbage__behind_a_request(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	in(f, 1000, ASK);
	in(f, 1100, "\1\2\3 what is this");
	out(f, 2000, SSE "\r\n" TEXT DONE);
	feed_sock(f->w, 5, 2100, TL_SOCK_CLOSE);
	assert_int_equal(f->log.n_kind[TL_REQ_BEGIN], 1);
	SAYS(f, "end 1 how 1 status 200 @2100\n");
}

static void test_garbage__where_chunks_should_be(void **state)
{
	struct fixture *f = *state;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	in(f, 1000, "POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
	out(f, 2000, "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n");
	SAYS(f, "facts 1 /v1/chat/completions model= stream=-1 max=-1 n=0 body=0 id= unread @2000\n");
	SAYS(f, "end 1 how 1 status 400 @2000\n");
	assert_int_equal(f->log.n_kind[TL_REQ_BEGIN], 1);
}

/* ---- sockets that several hold open ---- */

static void tcp_closed(struct fixture *f, uint64_t ts)
{
	struct tl_raw_tcp_state e = { .hdr = { sizeof(e), TL_RAW_TCP_STATE, 0, 0, 0, ts }, .old_state = 9,
				      .new_state = 7, .local_port = 8080, .peer_port = 40005, .family = 2 };

	wire__feed(f->w, &e.hdr);
}

/* One process accepts and closes its end, a child holds it and ends without a close. */
static void test_left__until_tcp_closes(void **state)
{
	struct fixture *f = *state;
	struct wire_stats st;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_sock_by(f->w, 999, 5, 600, TL_SOCK_CLOSE, 1);	/* a stranger's copy */
	in(f, 1000, ASK);
	tcp_closed(f, 1100);		/* our read or close is still to come */
	assert_int_equal(f->log.n_kind[TL_REQ_END], 0);
	out(f, 2000, OK);
	feed_sock_how(f->w, 5, 2100, TL_SOCK_CLOSE, 1);
	wire__stats(f->w, &st);
	assert_int_equal(st.conns_now, 1);
	tcp_closed(f, 3000);
	wire__stats(f->w, &st);
	assert_int_equal(st.conns_now, 0);
	SAYS(f, "conn 1 close @3000\n");
}

/* It is another's as soon as that one reads from it. */
static void test_left__another_goes_on(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_proc gone = { .hdr = { sizeof(gone), TL_RAW_PROC, 0, FEED_TGID, FEED_TGID, 4000 },
				    .what = TL_PROC_EXIT };
	struct wire_stats st;

	feed_sock_by(f->w, 70, 5, 500, TL_SOCK_ACCEPT, 0);
	feed_sock_by(f->w, 70, 5, 600, TL_SOCK_CLOSE, 1);
	in(f, 1000, ASK);
	out(f, 2000, OK);
	tcp_closed(f, 3000);
	wire__stats(f->w, &st);
	assert_int_equal(st.conns_now, 1);
	wire__feed(f->w, &gone.hdr);
	wire__stats(f->w, &st);
	assert_int_equal(st.conns_now, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(early__refusal), T(early__stream_goes_on), T(early__client_goes_away),
		T(half_closed__until_close), T(half_closed__several_pieces_in_one_write_are_one),
		T(half_closed__then_reset), T(answer__is_compressed),
		T(pipelined__beyond_what_is_kept), T(pipelined__more_behind_the_gap),
		T(garbage__behind_a_request), T(garbage__where_chunks_should_be),
		T(left__until_tcp_closes), T(left__another_goes_on),
	};

	return cmocka_run_group_tests_name("wire_ends", tests, NULL, NULL);
}
