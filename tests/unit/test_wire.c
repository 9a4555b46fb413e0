/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP tracker: what exchanges become, whole and in pieces, cut, joined late, broken. */
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

static void reset(struct fixture *f)
{
	wire__free(f->w);
	memset(&f->log, 0, sizeof(f->log));
	f->w = wire__new(NULL, &(struct emit){ wire_log_event, &f->log });
	assert_non_null(f->w);
}

#define POST(path, body) "POST " path " HTTP/1.1\r\nHost: x\r\nX-Request-Id: abc\r\nContent-Length: %zu\r\n\r\n%s", \
	sizeof(body) - 1, body
#define CHAT "{\"model\":\"m\",\"stream\":true,\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define SSE_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
#define ROLE "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n"
#define TEXT "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n"
#define LAST "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]," \
	"\"timings\":{\"cache_n\":2,\"prompt_n\":5,\"predicted_n\":2}}\n\n"
#define DONE "data: [DONE]\n\n"

static size_t chunked(char *out, const char *data)
{
	return sprintf(out, "%zx\r\n%s\r\n", strlen(data), data);
}

static void exchange(struct fixture *f, uint64_t sock, size_t piece)
{
	char buf[4096];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	assert_int_equal(feed_bytes(f->w, sock, 1000, TL_IN, buf, n, piece), 0);
	assert_int_equal(feed_bytes(f->w, sock, 2000, TL_OUT, SSE_HEAD, strlen(SSE_HEAD), piece), 0);
	n = chunked(buf, ROLE TEXT);
	assert_int_equal(feed_bytes(f->w, sock, 3000, TL_OUT, buf, n, piece), 0);
	n = chunked(buf, TEXT);
	assert_int_equal(feed_bytes(f->w, sock, 4000, TL_OUT, buf, n, piece), 0);
	n = chunked(buf, LAST);
	assert_int_equal(feed_bytes(f->w, sock, 5000, TL_OUT, buf, n, piece), 0);
	n = chunked(buf, DONE);
	assert_int_equal(feed_bytes(f->w, sock, 5100, TL_OUT, buf, n, piece), 0);
	assert_int_equal(feed_bytes(f->w, sock, 5200, TL_OUT, "0\r\n\r\n", 5, piece), 0);
}

#define EXCHANGE_LOG(r) \
	"begin " r " conn 1 api 1 @1000\n" \
	"facts " r " /v1/chat/completions model=m stream=1 max=9 n=0 body=86 id=abc @1000\n" \
	"resp " r " 200 body 1 @2000\n" \
	"chunk " r " role @3000\n" \
	"chunk " r " text @3000\n" \
	"chunk " r " text @4000\n" \
	"chunk " r " usage finish @5000\n" \
	"chunk " r " done @5100\n" \
	"usage " r " prompt 7 cached 2 output 2 finish 2 id c1 @5200\n" \
	"end " r " how 1 status 200 @5200\n"

static void test_wire__stream(void **state)
{
	struct fixture *f = *state;
	static const size_t pieces[] = { SIZE_MAX / 2, 1, 7, 100 };

	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		reset(f);
		feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
		exchange(f, 5, pieces[i]);
		exchange(f, 5, pieces[i]);	/* keep-alive */
		feed_sock(f->w, 5, 9000, TL_SOCK_CLOSE);
		assert_string_equal(f->log.text, "conn 1 open @500\n" EXCHANGE_LOG("1") EXCHANGE_LOG("2")
				    "conn 1 close @9000\n");
	}
}

static void test_wire__older_than_capture(void **state)
{
	struct fixture *f = *state;

	exchange(f, 5, 4096);	/* no accept seen */
	assert_string_equal(f->log.text, "conn 1 open @1000\n" EXCHANGE_LOG("1"));
}

static void test_wire__joins_mid_stream(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n = chunked(buf, TEXT);

	feed_bytes(f->w, 5, 100, TL_OUT, buf, n, 4096);
	n = chunked(buf, LAST);
	feed_bytes(f->w, 5, 200, TL_OUT, buf, n, 4096);
	feed_bytes(f->w, 5, 300, TL_OUT, "0\r\n\r\n", 5, 4096);
	exchange(f, 5, 4096);	/* and what comes next is followed from its start */
	assert_string_equal(f->log.text, "conn 1 open @100\n"
			    "begin 1 conn 1 api 0 joined @100\n"
			    "chunk 1 text @100\n"
			    "chunk 1 usage finish @200\n"
			    "usage 1 prompt 7 cached 2 output 2 finish 2 id c1 @300\n"
			    "end 1 how 1 status 0 @300\n" EXCHANGE_LOG("2"));
}

static void test_wire__joins_before_response(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n;

	feed_bytes(f->w, 5, 100, TL_OUT, SSE_HEAD, strlen(SSE_HEAD), 4096);
	n = chunked(buf, TEXT);
	feed_bytes(f->w, 5, 200, TL_OUT, buf, n, 4096);
	feed_sock(f->w, 5, 300, TL_SOCK_CLOSE);
	assert_string_equal(f->log.text, "conn 1 open @100\n"
			    "begin 1 conn 1 api 0 joined @100\n"
			    "resp 1 200 body 1 @100\n"
			    "chunk 1 text @200\n"
			    "usage 1 prompt 0 cached 0 output 0 finish 0 id c1 @300\n"
			    "end 1 how 3 status 200 @300\n"
			    "conn 1 close @300\n");
}

static void test_wire__joins_before_whole_answer(void **state)
{
	struct fixture *f = *state;
	static const char body[] = "{\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"message\":{\"content\":\"a\"}}],"
		"\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}";
	char buf[1024];
	size_t n = sprintf(buf, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			   sizeof(body) - 1, body);

	feed_bytes(f->w, 5, 100, TL_OUT, buf, n, 4096);
	assert_non_null(strstr(f->log.text, "begin 1 conn 1 api 0 joined @100\n"));
	assert_non_null(strstr(f->log.text, "usage 1 prompt 7 cached 0 output 3 finish 1 id  @100\n"));
}

static void test_wire__client_goes_away(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
	feed_bytes(f->w, 5, 2000, TL_OUT, SSE_HEAD, strlen(SSE_HEAD), 4096);
	feed_sock(f->w, 5, 2500, TL_SOCK_EOF);
	feed_sock(f->w, 5, 2600, TL_SOCK_CLOSE);
	assert_non_null(strstr(f->log.text, "end 1 how 2 status 200 @2500\n"));
}

static void test_wire__half_close_is_no_abort(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
	feed_sock(f->w, 5, 1100, TL_SOCK_EOF);
	n = sprintf(buf, SSE_HEAD "e\r\n" DONE "\r\n0\r\n\r\n");
	feed_bytes(f->w, 5, 2000, TL_OUT, buf, n, 4096);
	feed_sock(f->w, 5, 2600, TL_SOCK_CLOSE);
	assert_non_null(strstr(f->log.text, "end 1 how 1 status 200 @2000\n"));
}

static void test_wire__server_ends_an_abandoned_stream(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
	n = chunked(buf, TEXT);
	feed_bytes(f->w, 5, 2000, TL_OUT, SSE_HEAD, strlen(SSE_HEAD), 4096);
	feed_bytes(f->w, 5, 2100, TL_OUT, buf, n, 4096);
	feed_sock(f->w, 5, 2200, TL_SOCK_EOF);
	feed_bytes(f->w, 5, 2300, TL_OUT, "0\r\n\r\n", 5, 4096);	/* whole for HTTP, not for the client */
	assert_non_null(strstr(f->log.text, "end 1 how 2 status 200 @2200\n"));
}

static void test_wire__server_dies(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_proc exit = { .hdr = { sizeof(exit), TL_RAW_PROC, 0, FEED_TGID, 0, 3000 },
				    .what = TL_PROC_EXIT };
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	for (uint64_t sock = 1; sock <= 50; sock++) {
		feed_sock(f->w, sock, 500, TL_SOCK_ACCEPT);
		feed_bytes(f->w, sock, 1000, TL_IN, buf, n, 4096);
	}
	wire__feed(f->w, &exit.hdr);
	assert_int_equal(f->log.n_kind[TL_REQ_END], 50);
	assert_non_null(strstr(f->log.text, "end 50 how 3 status 0 @3000\n"));
}

static void test_wire__capture_ends(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
	assert_int_equal(wire__end(f->w, 7000), 0);
	assert_non_null(strstr(f->log.text, "end 1 how 5 status 0 @7000\n"));
}

static void test_wire__not_streamed(void **state)
{
	struct fixture *f = *state;
	static const char body[] = "{\"id\":\"c9\",\"choices\":[{\"finish_reason\":\"stop\",\"message\":{\"content\":\"hello\"}}],"
		"\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":1}}}";
	char buf[2048];
	size_t n = sprintf(buf, POST("/v1/chat/completions", "{\"model\":\"m\"}"));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
	n = sprintf(buf, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		    sizeof(body) - 1, body);
	feed_bytes(f->w, 5, 4000, TL_OUT, buf, n, 4096);
	assert_non_null(strstr(f->log.text, "stream=-1"));
	assert_non_null(strstr(f->log.text, "usage 1 prompt 7 cached 1 output 3 finish 1 id c9 @4000\n"));
	assert_int_equal(f->log.n_kind[TL_CHUNK], 0);
}

#define LINES "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"

static void test_wire__json_lines(void **state)
{
	struct fixture *f = *state;
	static const size_t pieces[] = { SIZE_MAX / 2, 1, 7, 100 };
	char buf[2048];
	size_t n;

	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		reset(f);
		feed_sock(f->w, 5, 50, TL_SOCK_ACCEPT);
		n = sprintf(buf, POST("/api/generate", "{\"model\":\"m\"}"));
		feed_bytes(f->w, 5, 100, TL_IN, buf, n, pieces[i]);
		n = sprintf(buf, LINES);
		/* two lines in one chunk, the second not yet ended */
		n += chunked(buf + n, "{\"response\":\"a\",\"done\":false}\n{\"response\":\"b\",");
		feed_bytes(f->w, 5, 200, TL_OUT, buf, n, pieces[i]);
		n = chunked(buf, "\"done\":false}\n");
		feed_bytes(f->w, 5, 300, TL_OUT, buf, n, pieces[i]);
		n = chunked(buf, "{\"response\":\"\",\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":7,"
			    "\"eval_count\":2}\n");
		n += sprintf(buf + n, "0\r\n\r\n");
		feed_bytes(f->w, 5, 400, TL_OUT, buf, n, pieces[i]);
		assert_string_equal(f->log.text, "conn 1 open @50\n"
				    "begin 1 conn 1 api 7 @100\n"
				    "facts 1 /api/generate model=m stream=1 max=-1 n=0 body=13 id=abc @100\n"
				    "resp 1 200 body 3 @200\n"
				    "chunk 1 text @200\n"
				    "chunk 1 text @300\n"
				    "chunk 1 empty usage finish done @400\n"
				    "usage 1 prompt 7 cached 0 output 2 finish 1 id  @400\n"
				    "end 1 how 1 status 200 @400\n");
	}
}

#define ENDS(choice) "data: {\"id\":\"c1\",\"choices\":[{\"index\":" choice ",\"delta\":{},\"finish_reason\":\"length\"}]," \
	"\"timings\":{\"cache_n\":0,\"prompt_n\":5,\"predicted_n\":10}}\n\n"

static void test_wire__several_answers_add_up(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
	feed_bytes(f->w, 5, 2000, TL_OUT, SSE_HEAD, strlen(SSE_HEAD), 4096);
	n = chunked(buf, ENDS("1") ENDS("0"));
	feed_bytes(f->w, 5, 3000, TL_OUT, buf, n, 4096);
	feed_bytes(f->w, 5, 3100, TL_OUT, "0\r\n\r\n", 5, 4096);
	assert_non_null(strstr(f->log.text, "usage 1 prompt 5 cached 0 output 20 finish 2 id c1 @3100\n"));
}

static void test_wire__error_answer(void **state)
{
	struct fixture *f = *state;
	static const char body[] = "{\"error\":{\"code\":400,\"message\":\"bad\"}}";
	char buf[2048];
	size_t n = sprintf(buf, POST("/v1/chat/completions", "{broken"));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
	n = sprintf(buf, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
		    sizeof(body) - 1, body);
	feed_bytes(f->w, 5, 1100, TL_OUT, buf, n, 4096);
	assert_non_null(strstr(f->log.text, "finish 5"));
	assert_non_null(strstr(f->log.text, "end 1 how 1 status 400 @1100\n"));
}

static void test_wire__facts_behind_a_long_prompt(void **state)
{
	struct fixture *f = *state;
	size_t len = 200000, n;
	char *body = malloc(len + 100), *msg = malloc(len + 400);

	n = sprintf(body, "{\"prompt\":\"");
	memset(body + n, 'a', len);
	sprintf(body + n + len, "\",\"model\":\"late\",\"stream\":true,\"max_tokens\":77}");
	n = sprintf(msg, "POST /v1/completions HTTP/1.1\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	/* 16 kB reads of which 4 kB and 1 kB are kept, as the kernel side does */
	for (size_t at = 0; at < n; at += 16384) {
		size_t k = n - at < 16384 ? n - at : 16384;
		size_t head = k < 4096 ? k : 4096, tail = k - head < 1024 ? k - head : 1024;

		assert_int_equal(feed_cut(f->w, 5, 1000 + at, TL_IN, msg + at, k, head, tail), 0);
	}
	sprintf(msg, "facts 1 /v1/completions model=late stream=1 max=77 n=0 body=%zu id=", strlen(body));
	assert_non_null(strstr(f->log.text, msg));
	assert_int_equal(f->log.n_kind[TL_REQ_BEGIN], 1);
	free(body);
	free(msg);
}

/* A request that a read returned at ts, wait ns after it had arrived. */
static void late_read(struct fixture *f, uint64_t sock, uint64_t ts, uint64_t wait)
{
	static _Alignas(8) uint8_t space[sizeof(struct tl_raw_net) + 512];
	struct tl_raw_net *e = (void *)space;
	size_t n = sprintf((char *)e->data, POST("/v1/chat/completions", CHAT));

	e->hdr = (struct tl_hdr){ (sizeof(*e) + n + 7) & ~7u, TL_RAW_NET, 0, FEED_TGID, FEED_TID, ts };
	e->sock = sock;
	e->dur_ns = wait;
	e->total = e->head = n;
	e->dir = TL_IN;
	e->family = 2;
	e->local_port = 8080;
	e->peer_port = 40000 + sock;
	assert_int_equal(wire__feed(f->w, &e->hdr), 0);
}

static void test_wire__begins_when_it_arrived(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_tcp_state open = {
		.hdr = { sizeof(open), TL_RAW_TCP_STATE, 0, 0, 0, 5000 }, .new_state = 1, .local_port = 8080,
		.peer_port = 40003,
	};

	assert_int_equal(feed_sock(f->w, 1, 1000, TL_SOCK_ACCEPT), 0);
	late_read(f, 1, 3000, 500);
	assert_non_null(strstr(f->log.text, "begin 1 conn 1 api 1 @2500\n"));
	assert_non_null(strstr(f->log.text, "id=abc @3000\n"));
	/* not before the capture */
	assert_int_equal(feed_sock(f->w, 2, 3100, TL_SOCK_ACCEPT), 0);
	late_read(f, 2, 3200, 9000);
	assert_non_null(strstr(f->log.text, "begin 2 conn 2 api 1 @1000\n"));
	/* nor before its connection */
	assert_int_equal(wire__feed(f->w, &open.hdr), 0);
	assert_int_equal(feed_sock(f->w, 3, 5100, TL_SOCK_ACCEPT), 0);
	late_read(f, 3, 5200, 1000);
	assert_non_null(strstr(f->log.text, "begin 3 conn 3 api 1 @5000\n"));
}

static void test_wire__pipelined(void **state)
{
	struct fixture *f = *state;
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
	char one[512], *all = malloc(64 * 1024);
	size_t n = sprintf(one, POST("/v1/chat/completions", CHAT)), len = 0;

	for (int i = 0; i < 64; i++) {
		memcpy(all + len, one, n);
		len += n;
	}
	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	assert_int_equal(feed_bytes(f->w, 5, 1000, TL_IN, all, len, 16384), 0);
	assert_int_equal(f->log.n_kind[TL_REQ_FACTS], 64);
	for (int i = 0; i < 64; i++) {
		/* read all at once, worked on one by one */
		assert_int_equal(wire__request_of_thread(f->w, FEED_TID), i + 1);
		feed_bytes(f->w, 5, 2000 + i, TL_OUT, answer, strlen(answer), 4096);
	}
	assert_int_equal(f->log.n_kind[TL_REQ_END], 64);
	assert_non_null(strstr(f->log.text, "end 64 how 1 status 200 @2063\n"));
	free(all);
}

/* As the report counts: a token may have no text of its own; what comes with a role has none. */
static void test_wire__counts_tokens_without_text(void **state)
{
	static const char *const chunks[] = {
		ROLE, TEXT,
		"data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}\n\n",
		"data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
	};
	struct fixture *f = *state;
	struct wire_stats st;
	char buf[1024];

	feed_bytes(f->w, 5, 100, TL_OUT, SSE_HEAD, strlen(SSE_HEAD), 4096);
	for (size_t i = 0; i < ARRAY_SIZE(chunks); i++)
		feed_bytes(f->w, 5, 200, TL_OUT, buf, chunked(buf, chunks[i]), 4096);
	wire__stats(f->w, &st);
	assert_int_equal(st.chunks, 4);
	assert_int_equal(st.tokens, 2);
}

static void test_wire__limits_pipeline(void **state)
{
	struct fixture *f = *state;
	struct wire_stats st;
	char one[512];
	size_t n = sprintf(one, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	for (int i = 0; i < 1000; i++)
		feed_bytes(f->w, 5, 1000, TL_IN, one, n, 4096);
	wire__stats(f->w, &st);
	assert_int_equal(st.requests + st.refused, 1000);
	assert_int_equal(st.requests_now, 256);
}

static void test_wire__garbage(void **state)
{
	struct fixture *f = *state;
	struct wire_stats st;
	char junk[3000];

	for (size_t i = 0; i < sizeof(junk); i++)
		junk[i] = i * 37 + 11;
	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	assert_int_equal(feed_bytes(f->w, 5, 600, TL_IN, junk, sizeof(junk), 1000), 0);
	wire__stats(f->w, &st);
	assert_int_equal(st.skipped_bytes, sizeof(junk));
	assert_int_equal(f->log.n_kind[TL_REQ_BEGIN], 0);
	exchange(f, 5, 4096);
	assert_non_null(strstr(f->log.text, EXCHANGE_LOG("1")));
}

static void test_wire__tls(void **state)
{
	struct fixture *f = *state;
	struct wire_stats st;

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 600, TL_IN, "\x16\x03\x01\x02\x00\x01", 6, 4096);
	wire__stats(f->w, &st);
	assert_int_equal(st.tls_conns, 1);
	assert_int_equal(f->log.n_kind[TL_LOST], 0);
	feed_bytes(f->w, 5, 700, TL_IN, "\x17\x03\x03\x00\x01x", 6, 4096);
	feed_sock(f->w, 5, 800, TL_SOCK_CLOSE);
	assert_string_equal(f->log.text, "conn 1 open @500\nconn 1 tls @600\nconn 1 close @800\n");
}

static void test_wire__client_side_is_ignored(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_CONNECT);
	feed_bytes(f->w, 5, 600, TL_OUT, buf, n, 4096);
	feed_bytes(f->w, 6, 600, TL_OUT, buf, n, 4096);	/* connect not seen */
	assert_string_equal(f->log.text, "");
}

static void test_wire__other_paths(void **state)
{
	struct fixture *f = *state;
	static const char get[] = "GET /users/jane HTTP/1.1\r\nHost: x\r\n\r\n";
	static const char scrape[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
	static const char pause[] = "POST /pause?mode=keep HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 600, TL_IN, get, sizeof(get) - 1, 4096);
	assert_non_null(strstr(f->log.text, "begin 1 conn 1 api 0 @600\n"));
	assert_int_equal(f->log.n_kind[TL_REQ_FACTS], 0);
	feed_sock(f->w, 6, 700, TL_SOCK_ACCEPT);	/* a path that names nobody */
	feed_bytes(f->w, 6, 800, TL_IN, scrape, sizeof(scrape) - 1, 4096);
	assert_int_equal(f->log.n_kind[TL_REQ_FACTS], 1);
	feed_sock(f->w, 7, 900, TL_SOCK_ACCEPT);	/* and one that stops all others */
	feed_bytes(f->w, 7, 950, TL_IN, pause, sizeof(pause) - 1, 4096);
	assert_non_null(strstr(f->log.text, "facts 3 /pause "));
}

/* However it comes: its text is not kept, but how long it is, and how to find it again. */
static void test_wire__other_paths_with_a_body(void **state)
{
	static const size_t pieces[] = { 1, 7, 4096 };
	struct fixture *f = *state;
	char buf[1024];
	size_t n = sprintf(buf, POST("/tokenize", CHAT));

	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		reset(f);
		feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
		feed_bytes(f->w, 5, 600, TL_IN, buf, n, pieces[i]);
		assert_non_null(strstr(f->log.text, "facts 1 /tokenize model= stream=-1 max=-1 n=0 body=86 id=abc @600\n"));
	}
}

static void test_wire__inode_used_again(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
	feed_sock(f->w, 5, 2000, TL_SOCK_ACCEPT);	/* its close was lost */
	assert_non_null(strstr(f->log.text, "end 1 how 3 status 0 @2000\nconn 1 close @2000\nconn 2 open @2000\n"));
}

/* TCP's own position shows that an event is missing: inside a body it is a hole, elsewhere a loss. */
static void feed_at(struct fixture *f, uint64_t ts, uint8_t dir, const char *data, uint32_t end_pos)
{
	size_t len = strlen(data);
	struct tl_raw_net *e = calloc(1, sizeof(*e) + len + 8);

	e->hdr = (struct tl_hdr){ (sizeof(*e) + len + 7) & ~7u, TL_RAW_NET, TL_NET_POS, FEED_TGID, FEED_TID, ts };
	e->sock = 5;
	e->total = e->head = len;
	e->dir = dir;
	e->stream_pos = end_pos;
	memcpy(e->data, data, len);
	assert_int_equal(wire__feed(f->w, &e->hdr), 0);
	free(e);
}

static void test_wire__hole_in_stream(void **state)
{
	struct fixture *f = *state;
	char buf[1024], text[256];
	uint32_t at = UINT32_MAX - 700;	/* the count wraps on its way */
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
	feed_at(f, 2000, TL_OUT, SSE_HEAD, at += strlen(SSE_HEAD));
	chunked(text, TEXT);
	feed_at(f, 3000, TL_OUT, text, at += strlen(text));
	at += 2 * strlen(text);		/* two events were lost */
	feed_at(f, 4000, TL_OUT, text, at += strlen(text));
	feed_at(f, 5000, TL_OUT, text, at += strlen(text));
	assert_non_null(strstr(f->log.text, "lost where 3 @4000\n"));
	assert_non_null(strstr(f->log.text, "end 1 how 4 status 200 @4000\n"));
}

static void test_wire__end_of_input_is_no_hole(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	uint32_t at = 5000;

	sprintf(buf, POST("/v1/chat/completions", CHAT));
	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_at(f, 1000, TL_IN, buf, at += strlen(buf));
	feed_at(f, 1100, TL_IN, buf, at += strlen(buf) + 1);	/* and shutdown(SHUT_WR) */
	assert_null(strstr(f->log.text, "lost"));
	assert_non_null(strstr(f->log.text, "facts 2 "));
}

/* A server that closes after an answer shuts its side down first and throws away what still comes. */
static void test_wire__request_too_late(void **state)
{
	struct fixture *f = *state;
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	exchange(f, 5, 4096);
	feed_sock_how(f->w, 5, 5300, TL_SOCK_SHUTDOWN, 0);	/* SHUT_RD */
	exchange(f, 5, 4096);
	feed_sock_how(f->w, 5, 5300, TL_SOCK_SHUTDOWN, 1);	/* SHUT_WR */
	feed_bytes(f->w, 5, 6000, TL_IN, buf, n, 4096);
	feed_sock(f->w, 5, 6100, TL_SOCK_EOF);
	feed_sock(f->w, 5, 6200, TL_SOCK_CLOSE);
	assert_string_equal(f->log.text, "conn 1 open @500\n" EXCHANGE_LOG("1") EXCHANGE_LOG("2") "conn 1 close @6200\n");
}

#define NO_BODY "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n"

/* Whatever length it gives, the answer to a HEAD ends with its head. */
static void test_wire__head_then_post(void **state)
{
	struct fixture *f = *state;
	static const char head[] = "HEAD /health HTTP/1.1\r\n\r\n";

	for (size_t piece = 1; piece < 4096; piece *= 8) {
		reset(f);
		feed_sock(f->w, 5, 50, TL_SOCK_ACCEPT);
		for (unsigned i = 0; i < 2; i++) {	/* the first of its connection, and a later one */
			feed_bytes(f->w, 5, 100, TL_IN, head, strlen(head), piece);
			feed_bytes(f->w, 5, 200, TL_OUT, NO_BODY, strlen(NO_BODY), piece);
		}
		exchange(f, 5, piece);
		assert_non_null(strstr(f->log.text, EXCHANGE_LOG("3")));
		assert_null(strstr(f->log.text, "lost"));
	}
}

static void test_wire__hole_in_request_body(void **state)
{
	struct fixture *f = *state;
	static const char end[] = "aaaaaaaa\",\"max_tokens\":5,\"stream\":true}";
	char start[256];
	uint32_t at = 5000;

	sprintf(start, "POST /v1/completions HTTP/1.1\r\nContent-Length: %zu\r\n\r\n{\"prompt\":\"",
		11 + 40 + strlen(end));
	feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
	feed_at(f, 1000, TL_IN, start, at += strlen(start));
	at += 40;	/* not seen */
	feed_at(f, 1100, TL_IN, end, at += strlen(end));
	assert_non_null(strstr(f->log.text, "facts 1 /v1/completions model= stream=1 max=5 n=0 body="));
	assert_non_null(strstr(f->log.text, "lost where 3 @1100\n"));
}

static void test_wire__survives_oom(void **state)
{
	struct fixture *f = *state;
	static struct wire_log log;
	char buf[1024];
	size_t n = sprintf(buf, POST("/v1/chat/completions", CHAT));

	OOM_LOOP(wire__free(wire__new(NULL, &(struct emit){ wire_log_event, &log })));
	for (long i = 0, hit = 1; hit; i++) {
		assert_true(i < 1000);
		reset(f);
		oom_after(i);
		feed_sock(f->w, 5, 500, TL_SOCK_ACCEPT);
		feed_bytes(f->w, 5, 1000, TL_IN, buf, n, 4096);
		feed_bytes(f->w, 5, 2000, TL_OUT, SSE_HEAD, strlen(SSE_HEAD), 4096);
		feed_bytes(f->w, 5, 3000, TL_OUT, "3\r\ndat\r\n", 8, 4096);
		feed_sock(f->w, 5, 4000, TL_SOCK_CLOSE);
		hit = oom_hit();
		/* whatever failed, the next connection is followed */
		memset(&f->log, 0, sizeof(f->log));
		feed_sock(f->w, 6, 5000, TL_SOCK_ACCEPT);
		feed_bytes(f->w, 6, 6000, TL_IN, buf, n, 4096);
		assert_int_equal(f->log.n_kind[TL_REQ_FACTS], 1);
	}
}

#define T(name) cmocka_unit_test_setup_teardown(test_wire__##name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(stream), T(older_than_capture), T(joins_mid_stream), T(joins_before_response), T(joins_before_whole_answer),
		T(client_goes_away), T(half_close_is_no_abort),
		T(server_ends_an_abandoned_stream), T(server_dies), T(capture_ends),
		T(not_streamed), T(json_lines), T(error_answer), T(several_answers_add_up), T(facts_behind_a_long_prompt), T(pipelined),
		T(begins_when_it_arrived),
		T(counts_tokens_without_text), T(limits_pipeline), T(garbage), T(tls), T(client_side_is_ignored), T(other_paths), T(other_paths_with_a_body),
		T(inode_used_again), T(hole_in_stream), T(end_of_input_is_no_hole),
		T(hole_in_request_body), T(head_then_post), T(request_too_late), T(survives_oom),
	};

	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
