/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of HTTP/1 out of bytes that are cut anywhere, or partly missing. */
#include "parse/http1.h"
#include "base/util.h"
#include "oom.h"
#include "split.h"
#include "tl_event.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the parser told, as text: bodies are joined, so that splits make no difference. */
struct trace {
	char s[8192];
	size_t len;
	bool in_body;
	struct http1 *h;
	struct http1_head last;
	int n_begin, n_end;
};

__attribute__((format(printf, 2, 3))) static void say(struct trace *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->s + t->len, sizeof(t->s) - t->len, fmt, ap);
	va_end(ap);
	assert_true(n >= 0 && (size_t)n < sizeof(t->s) - t->len);
	t->len += n;
	t->in_body = false;
}

static void on_begin(void *ctx)
{
	struct trace *t = ctx;

	t->n_begin++;
	say(t, "(");
}

static void on_head(void *ctx, const struct http1_head *head)
{
	static const char *const methods[] = { "?", "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS" };
	static const char *const bodies[] = { "other", "sse", "json", "jsonl", "none" };
	struct trace *t = ctx;

	t->last = *head;
	if (head->status)
		say(t, "%u %s", head->status, bodies[head->body]);
	else
		say(t, "%s %s", methods[head->method], head->path);
	if (head->content_length >= 0)
		say(t, " %lld", (long long)head->content_length);
	say(t, "%s%s%s%s;", head->chunked ? " chunked" : "", head->keep_alive ? "" : " close",
	    head->encoded ? " encoded" : "", head->cut ? " cut" : "");
}

static void on_body(void *ctx, const char *data, size_t len)
{
	struct trace *t = ctx;
	bool joined = t->in_body;

	assert_true(len > 0);
	say(t, "%s%.*s", joined ? "" : " ", (int)len, data);
	t->in_body = true;
}

static void on_gap(void *ctx, uint64_t len)
{
	say(ctx, " gap %llu", (unsigned long long)len);
}

static void on_end(void *ctx)
{
	struct trace *t = ctx;

	t->n_end++;
	say(t, ")");
}

static const struct http1_fns fns = { on_begin, on_head, on_body, on_gap, on_end };

/* Feeds a script: <x> is a chunk with x, @n@ a gap of n bytes, $ the connection's end, ^ a resync.
 * Everything else is itself. */
static void play(struct trace *t, const char *in, int mode)
{
	struct split split = split_new(mode);
	char run[70000];
	bool failed = false;
	size_t n = 0;

	for (;; in++) {
		if (*in == '<') {
			size_t size = strchr(in, '>') - in - 1;

			n += sprintf(run + n, "%zx\r\n%.*s\r\n", size, (int)size, in + 1);
			in += size + 1;
			continue;
		}
		if (*in && !strchr("@$^", *in)) {
			run[n++] = *in;
			continue;
		}
		for (size_t i = 0, piece; i < n; i += piece) {
			char *copy;	/* exact, so that reading past it is seen */
			int err;

			piece = split_next(&split, n - i);
			copy = malloc(piece);
			memcpy(copy, run + i, piece);
			err = http1__feed(t->h, copy, piece);
			free(copy);
			assert_true(err == 0 || err == -EPROTO);
			if (err && !failed)
				say(t, "!");
			failed = err;
		}
		n = 0;
		if (*in == '@') {
			char *end;

			if (http1__gap(t->h, strtoull(in + 1, &end, 10)) && !failed) {
				say(t, "!");
				failed = true;
			}
			in = end;
		} else if (*in == '$') {
			http1__eof(t->h);
		} else if (*in == '^') {
			http1__resync(t->h);
			failed = false;
		} else {
			return;
		}
	}
}

static void check(enum http1_side side, const char *name, const char *in, const char *want, int mode)
{
	struct trace t = { .h = http1__new(side, &fns, &t) };

	assert_non_null(t.h);
	play(&t, in, mode);
	if (strcmp(t.s, want))
		fail_msg("%s, split %d:\n  got  %s\n  want %s", name, mode, t.s, want);
	http1__free(t.h);
}

struct row {
	const char *name, *in, *want;
};

static const struct row requests[] = {
	{ "no body", "GET /health HTTP/1.1\r\nHost: a\r\n\r\n", "(GET /health;)" },
	{ "content length", "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
	  "(POST /v1/chat/completions 5; hello)" },
	{ "chunked", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n<hel><lo>0\r\n\r\n",
	  "(POST /a chunked; hello)" },
	{ "chunked with trailers and extension",
	  "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: X-Request-Id\r\n\r\n"
	  "3;name=value\r\nabc\r\n0\r\nX-Request-Id: late\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
	  "(POST /a chunked; abc)(GET /b;)" },
	{ "keep-alive", "GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n", "(GET /a;)(GET /b;)" },
	{ "empty line between messages", "GET /a HTTP/1.1\r\n\r\n\r\n\nGET /b HTTP/1.1\r\n\r\n",
	  "(GET /a;)(GET /b;)" },
	{ "close, and yet another", "GET /a HTTP/1.1\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
	  "(GET /a close;)(GET /b;)" },
	{ "1.0", "GET /a HTTP/1.0\r\n\r\n", "(GET /a close;)" },
	{ "1.0 keep-alive", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "(GET /a;)" },
	{ "expect continue", "POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
	  "(POST /a 2; hi)" },
	{ "methods", "HEAD /a HTTP/1.1\r\n\r\nPUT /b HTTP/1.1\r\n\r\nDELETE /c HTTP/1.1\r\n\r\n"
	  "OPTIONS * HTTP/1.1\r\n\r\nPATCH /d HTTP/1.1\r\n\r\n",
	  "(HEAD /a;)(PUT /b;)(DELETE /c;)(OPTIONS *;)(? /d;)" },
	{ "query is not path", "GET /a?model=b/c HTTP/1.1\r\n\r\n", "(GET /a;)" },
	{ "absolute form", "GET http://host:80/v1/models?x HTTP/1.1\r\n\r\n", "(GET /v1/models;)" },
	{ "absolute form without path", "GET http://host HTTP/1.1\r\n\r\n", "(GET /;)" },
	{ "bare line feeds", "POST /a HTTP/1.1\nContent-Length: 1\n\nx", "(POST /a 1; x)" },
	{ "upgrade offered, not taken", "GET /a HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
	  "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
	  "(GET /a;)(GET /b;)" },
	{ "upgrade offered with a body", "POST /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
	  "Content-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\n\r\n", "(POST /a 2; hi)(GET /b;)" },
	{ "tls", "\x16\x03\x01\x02", "!" },
	{ "garbage, then resync", "hello?\r\n\r\n^GET /b HTTP/1.1\r\n\r\n", "!(GET /b;)" },
	{ "odd header bytes", "GET /a HTTP/1.1\r\nX-Odd: \x01\xff\r\n\r\n", "(GET /a;)" },
	{ "odd bytes in the path", "GET /a\xc3\xa9 HTTP/1.1\r\n\r\n", "(GET /a??;)" },
	{ "both lengths: chunked counts", "POST /a HTTP/1.1\r\nContent-Length: 100\r\n"
	  "Transfer-Encoding: chunked\r\n\r\n<x>0\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
	  "(POST /a chunked; x)(GET /b;)" },
	{ "gap in body", "POST /a HTTP/1.1\r\nContent-Length: 200\r\n\r\nhel@195@loGET /b HTTP/1.1\r\n\r\n",
	  "(POST /a 200; hel gap 195 lo)(GET /b;)" },
	{ "gap up to the end", "POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nh@4@GET /b HTTP/1.1\r\n\r\n",
	  "(POST /a 5; h gap 4)(GET /b;)" },
	{ "gap is the whole body", "POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\n@5@GET /b HTTP/1.1\r\n\r\n",
	  "(POST /a 5; gap 5)(GET /b;)" },
	{ "huge gap", "POST /a HTTP/1.1\r\nContent-Length: 9000000000000000000\r\n\r\na"
	  "@8999999999999999990@bcdefghijGET /b HTTP/1.1\r\n\r\n",
	  "(POST /a 9000000000000000000; a gap 8999999999999999990 bcdefghij)(GET /b;)" },
	{ "several gaps", "POST /a HTTP/1.1\r\nContent-Length: 11\r\n\r\n@1@a@1@b@2@@2@cd@1@",
	  "(POST /a 11; gap 1 a gap 1 b gap 2 gap 2 cd gap 1)" },
	{ "gap over the body's end", "POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nh@5@GET /b HTTP/1.1\r\n\r\n",
	  "(POST /a 5; h gap 4)!" },
	{ "gap in a chunk", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	  "c8\r\nab@196@yz\r\n<x>0\r\n\r\n", "(POST /a chunked; ab gap 196 yzx)" },
	{ "gap is a whole chunk", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	  "c8\r\n@200@\r\n0\r\n\r\n", "(POST /a chunked; gap 200)" },
	{ "chunk length padded with blanks", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	  "3 \r\nabc\r\n0 \r\nX: y\r\n\r\nGET /b HTTP/1.1\r\n\r\n", "(POST /a chunked; abc)(GET /b;)" },
	{ "gap in a chunk whose length is padded", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	  "c8  \r\nab@196@yz\r\n<x>0\r\n\r\n", "(POST /a chunked; ab gap 196 yzx)" },
	{ "gap over the chunk's end", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	  "5\r\nab@4@\n0\r\n\r\n", "(POST /a chunked; ab!" },
	{ "gap between chunks", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n<ab>@4@",
	  "(POST /a chunked; ab!" },
	{ "gap in a chunk's length", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1@1@\r\n",
	  "(POST /a chunked;!" },
	{ "gap in a head", "POST /a HT@3@.1\r\n\r\n", "(!" },
	{ "gap between messages", "GET /a HTTP/1.1\r\n\r\n@1@ET /b HTTP/1.1\r\n\r\n", "(GET /a;)!" },
	{ "gap while lost", "garbage @5@ more", "!" },
	{ "no gap", "GET /a@0@b HTTP/1.1\r\n\r\n", "(GET /ab;)" },
	{ "end amid a body", "POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nab$", "(POST /a 5; ab" },
};

static const struct row responses[] = {
	{ "json", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
	  "(200 json 2; {})" },
	{ "stream", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
	  "Transfer-Encoding: chunked\r\n\r\n<data: a\n\n><data: b\n\n>0\r\n\r\n",
	  "(200 sse chunked; data: a\n\ndata: b\n\n)" },
	{ "json lines", "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1\r\n\r\n\n",
	  "(200 jsonl 1; \n)" },
	{ "other names of json lines", "HTTP/1.1 200 OK\r\ncontent-type:APPLICATION/JSONL\r\n"
	  "Content-Length: 1\r\n\r\nx", "(200 jsonl 1; x)" },
	{ "type that only begins so", "HTTP/1.1 200 OK\r\nContent-Type: application/jsonx\r\n"
	  "Content-Length: 1\r\n\r\nx", "(200 other 1; x)" },
	{ "no reason phrase", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "(200 none 0;)" },
	{ "continue", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
	  "(200 other 1; x)" },
	{ "interim with a length", "HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\n\r\n"
	  "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "(200 other 1; x)" },
	{ "early hints twice", "HTTP/1.1 103 Early Hints\r\nLink: /a\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
	  "HTTP/1.1 204 No Content\r\n\r\n", "(204 none;)" },
	{ "no content", "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
	  "(204 none;)(200 other 1; x)" },
	{ "not modified has a length and no body", "HTTP/1.1 304 Not Modified\r\n"
	  "Content-Length: 500\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "(304 none 500;)(200 other 1; x)" },
	{ "error", "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\n"
	  "Content-Length: 12\r\n\r\n{\"error\":{}}", "(400 json 12; {\"error\":{}})" },
	{ "until close", "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n$",
	  "(200 sse close; data: a\n\n)" },
	{ "until close, 1.1", "HTTP/1.1 200 OK\r\n\r\nabc$", "(200 other close; abc)" },
	{ "until close, with a gap", "HTTP/1.1 200 OK\r\n\r\nab@1000@c$", "(200 other close; ab gap 1000 c)" },
	{ "closed amid chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n<ab>$",
	  "(200 other chunked; ab" },
	{ "closed when idle", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx$", "(200 other 1; x)" },
	{ "compressed", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
	  "(200 other 1 encoded; x)" },
	{ "identity is not compressed", "HTTP/1.1 200 OK\r\nContent-Encoding: identity \r\n"
	  "Content-Length: 1\r\n\r\nx", "(200 other 1; x)" },
	{ "connection close", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"
	  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", "(200 other 1 close; x)(200 other 2; ab)" },
	{ "upper case chunk length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	  "A\r\n0123456789\r\n0\r\n\r\n", "(200 other chunked; 0123456789)" },
	{ "chunk length padded with blanks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	  "3  \r\nabc\r\n00a \t ;x=y\r\n0123456789\r\n0     \r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
	  "(200 other chunked; abc0123456789)(200 other 1; x)" },
	{ "blanks inside a chunk length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n<a>1  1\r\nx",
	  "(200 other chunked; a!" },
	{ "no chunk length, only blanks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n<a>  1\r\nx",
	  "(200 other chunked; a!" },
	{ "bad chunk length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n<a>zz\r\n",
	  "(200 other chunked; a!" },
	{ "a request is no response", "GET / HTTP/1.1\r\n\r\n", "!" },
};

static void test_http1__requests(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
		for (int mode = 0; mode < N_SPLITS; mode++)
			check(HTTP1_REQUESTS, requests[i].name, requests[i].in, requests[i].want, mode);
}

static void test_http1__responses(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(responses); i++)
		for (int mode = 0; mode < N_SPLITS; mode++)
			check(HTTP1_RESPONSES, responses[i].name, responses[i].in, responses[i].want, mode);
}

/* Some garbage looks like a message at first; then begin() may be told before it is known. */
static void test_http1__garbage_has_no_head(void **state)
{
	static const struct {
		enum http1_side side;
		const char *in;
	} rows[] = {
		{ HTTP1_REQUESTS, "GARBAGE" },
		{ HTTP1_REQUESTS, "GET\r\n\r\n" },
		{ HTTP1_REQUESTS, "POST /a HTTP/9.9\r\n\r\n" },
		{ HTTP1_REQUESTS, "{\"a\":1}\n" },
		{ HTTP1_REQUESTS, "*1\r\n4\r\nPING\r\n" },
		{ HTTP1_REQUESTS, "HTTP/1.1 200 OK\r\n\r\n" },
		{ HTTP1_REQUESTS, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" },
		{ HTTP1_REQUESTS, "POST /a HTTP/1.1\r\nContent-Length: x\r\n\r\n" },
		{ HTTP1_REQUESTS, "POST /a HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab" },
		{ HTTP1_REQUESTS, "POST /a HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\nab" },
		{ HTTP1_RESPONSES, "GET / HTTP/1.1\r\n\r\n" },
		{ HTTP1_RESPONSES, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
		  "Upgrade: websocket\r\n\r\n\x81\x05hello" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (int mode = 0; mode < N_SPLITS; mode++) {
			struct trace t = { .h = http1__new(rows[i].side, &fns, &t) };

			play(&t, rows[i].in, mode);
			if (!strchr(t.s, '!') || strchr(t.s, ';'))
				fail_msg("'%s', split %d: %s", rows[i].in, mode, t.s);
			http1__free(t.h);
		}
	}
}

static void test_http1__pipelined(void **state)
{
	char in[64 * 64] = "", want[64 * 64] = "";

	(void)state;
	for (int i = 0; i < 64; i++) {
		sprintf(in + strlen(in), "POST /r%d HTTP/1.1\r\nContent-Length: 2\r\n\r\n%02d", i, i);
		sprintf(want + strlen(want), "(POST /r%d 2; %02d)", i, i);
	}
	for (int mode = 0; mode < N_SPLITS; mode++)
		check(HTTP1_REQUESTS, "64 requests", in, want, mode);
}

/* HEAD among other requests, answered in one write: the caller says so per answer. */
static void say_head_for_second(void *ctx)
{
	struct trace *t = ctx;

	on_begin(ctx);
	http1__expect_head(t->h, t->n_begin == 2);
}

static void test_http1__head_is_answered_without_body(void **state)
{
	static const struct http1_fns head_fns = { say_head_for_second, on_head, on_body, on_gap, on_end };
	static const char in[] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"
		"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nConnection: close\r\n\r\n"
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb";

	(void)state;
	for (int mode = 0; mode < N_SPLITS; mode++) {
		struct trace t = { .h = http1__new(HTTP1_RESPONSES, &head_fns, &t) };

		play(&t, in, mode);
		assert_string_equal(t.s, "(200 other 1; a)(200 none 500 close;)(200 other 1; b)");
		http1__free(t.h);
	}
}

static void test_http1__head_fields(void **state)
{
	static const char in[] = "POST /a HTTP/1.1\r\nHost: x\r\nX-REQUEST-ID:  abc-1 \r\n"
		"X-Request-Id-Not: no\r\nX-Request-Idx: no\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
		"Cookie: c\r\n\r\n";

	(void)state;
	for (int mode = 0; mode < N_SPLITS; mode++) {
		struct trace t = { .h = http1__new(HTTP1_REQUESTS, &fns, &t) };

		play(&t, in, mode);
		assert_string_equal(t.last.x_request_id, "abc-1");
		assert_string_equal(t.last.traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
		assert_false(t.last.cut);
		http1__free(t.h);
	}
}

static void test_http1__head_fields_are_harmless(void **state)
{
	static const char in[] = "GET /a HTTP/1.1\r\nX-Request-Id: a\x1b[2Jb\xff \r\ntraceparent: 0\x1b[2J\xff\r\n\r\n";
	struct trace t = { .h = http1__new(HTTP1_REQUESTS, &fns, &t) };

	(void)state;
	play(&t, in, SPLIT_WHOLE);
	assert_string_equal(t.last.x_request_id, "a\x1b[2Jb\xff");	/* as it was sent: who shows it has to take care */
	assert_string_equal(t.last.traceparent, "0?[2J?");
	http1__free(t.h);
}

static void test_http1__fields_are_cut_to_fit(void **state)
{
	static char in[60000];
	char path[64] = "/";

	(void)state;
	memset(path + 1, 'p', 62);
	/* ids, paths, names and values far longer than what is kept */
	sprintf(in, "GET /%020000d?%010000d HTTP/1.1\r\nX-Request-Id: %010000d\r\n%010000d: x\r\n"
		"X-Long: %05000d\r\n\r\n", 0, 0, 0, 0, 0);
	memset(in + 5, 'p', 20000);
	for (int mode = 0; mode < SPLIT_RANDOM + 2; mode++) {
		struct trace t = { .h = http1__new(HTTP1_REQUESTS, &fns, &t) };

		play(&t, in, mode);
		assert_string_equal(t.last.path, path);
		assert_int_equal(strlen(t.last.x_request_id), sizeof(t.last.x_request_id) - 1);
		assert_true(t.last.cut);
		assert_int_equal(t.n_end, 1);
		http1__free(t.h);
	}
}

static void test_http1__long_query_cuts_nothing(void **state)
{
	char in[1000];

	(void)state;
	sprintf(in, "GET /a?%0500d HTTP/1.1\r\n\r\n", 0);
	check(HTTP1_REQUESTS, "long query", in, "(GET /a;)", SPLIT_WHOLE);
	check(HTTP1_REQUESTS, "long query", in, "(GET /a;)", SPLIT_BYTES);
}

static void test_http1__callbacks_are_optional(void **state)
{
	static const struct http1_fns none;
	static const char in[] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
	struct http1 *h = http1__new(HTTP1_RESPONSES, &none, NULL);

	(void)state;
	assert_int_equal(http1__feed(h, in, sizeof(in) - 1), 0);
	assert_int_equal(http1__gap(h, 6), 0);
	http1__eof(h);
	http1__free(h);
	http1__free(NULL);
}

static void test_http1__joins_chunked_body(void **state)
{
	(void)state;
	for (int mode = 0; mode < N_SPLITS; mode++) {
		struct trace t = { .h = http1__new(HTTP1_RESPONSES, &fns, &t) };
		static const char chunk[] = "9\r\ndata: b\n\n\r\n";

		play(&t, "ta: a\n\n\r\n", mode);
		assert_string_equal(t.s, "!");
		assert_true(http1__join_chunked(t.h, chunk, sizeof(chunk) - 1));
		play(&t, "<data: b\n\n><data: c\n\n>0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", mode);
		assert_string_equal(t.s, "! data: b\n\ndata: c\n\n)(200 other 1; x)");
		http1__free(t.h);
	}
}

static void test_http1__joins_at_chunk_boundary_only(void **state)
{
	static const struct {
		const char *in;
		bool want;
	} rows[] = {
		{ "5\r\nabcde\r\n", true },
		{ "1A\r\nabc", true },		/* its end is yet to come */
		{ "0\r\n\r\n", true },
		{ "5\r\nabcdefgh", false },	/* a chunk of 5 would end there */
		{ "5", false },
		{ "5\r", false },
		{ "\r\n", false },
		{ "", false },
		{ "5 \r\n", false },
		{ "g\r\n", false },
		{ "123456789\r\n", false },
		{ "data: 5\r\n", false },
	};
	struct trace t = { .h = http1__new(HTTP1_RESPONSES, &fns, &t) };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (http1__join_chunked(t.h, rows[i].in, strlen(rows[i].in)) != rows[i].want)
			fail_msg("'%s' should give %d", rows[i].in, rows[i].want);
	http1__free(t.h);
	t.h = http1__new(HTTP1_REQUESTS, &fns, &t);
	assert_false(http1__join_chunked(t.h, "0\r\n\r\n", 5));
	http1__free(t.h);
}

static void test_http1_is_start__cases(void **state)
{
	static const struct {
		enum http1_side side;
		const char *in;
		bool want;
	} rows[] = {
		{ HTTP1_REQUESTS, "POST /v1/chat/completions HTTP/1.1\r\nHost", true },
		{ HTTP1_REQUESTS, "GET / HTTP/1.0\n", true },
		{ HTTP1_REQUESTS, "OPTIONS * HTTP/1.1\r\n", true },
		{ HTTP1_REQUESTS, "GET http://a/ HTTP/1.1\r\n", true },
		{ HTTP1_REQUESTS, "POST /v1/a-path-whose-line-is-not-yet-who", true },
		{ HTTP1_REQUESTS, "POST /v1 and more text\n", false },
		{ HTTP1_REQUESTS, "POST /\n", false },
		{ HTTP1_REQUESTS, "GET the milk HTTP/1.1\r\n", false },
		{ HTTP1_REQUESTS, "GET ", false },
		{ HTTP1_REQUESTS, "", false },
		{ HTTP1_REQUESTS, "HTTP/1.1 200 OK\r\n", false },
		{ HTTP1_RESPONSES, "HTTP/1.1 200 OK\r\n", true },
		{ HTTP1_RESPONSES, "HTTP/1.0 503 \r\n", true },
		{ HTTP1_RESPONSES, "HTTP/1.1 20", false },
		{ HTTP1_RESPONSES, "HTTP/1.1 999 x\r\n", false },
		{ HTTP1_RESPONSES, "HTTP/2.0 200 OK\r\n", false },
		{ HTTP1_RESPONSES, "data: a\n\n", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (http1_is_start(rows[i].side, rows[i].in, strlen(rows[i].in)) != rows[i].want)
			fail_msg("'%s' should give %d", rows[i].in, rows[i].want);
}

static void test_http1__survives_oom(void **state)
{
	static const char in[] = "POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi";
	struct http1 *h;
	int n_failed = 0;

	(void)state;
	OOM_LOOP({
		struct trace t = { 0 };

		h = http1__new(HTTP1_REQUESTS, &fns, &t);
		if (h && http1__feed(h, in, sizeof(in) - 1)) {
			n_failed++;
			/* lost as after garbage, and a resync helps */
			assert_int_equal(http1__feed(h, in, sizeof(in) - 1), -EPROTO);
			http1__resync(h);
			assert_int_equal(http1__feed(h, in, sizeof(in) - 1), 0);
			assert_string_equal(t.s, "(POST /a 2; hi)");
		}
		http1__free(h);
	});
	assert_int_equal(n_failed, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_http1__requests),
		cmocka_unit_test(test_http1__responses),
		cmocka_unit_test(test_http1__garbage_has_no_head),
		cmocka_unit_test(test_http1__pipelined),
		cmocka_unit_test(test_http1__head_is_answered_without_body),
		cmocka_unit_test(test_http1__head_fields),
		cmocka_unit_test(test_http1__head_fields_are_harmless),
		cmocka_unit_test(test_http1__fields_are_cut_to_fit),
		cmocka_unit_test(test_http1__long_query_cuts_nothing),
		cmocka_unit_test(test_http1__callbacks_are_optional),
		cmocka_unit_test(test_http1__joins_chunked_body),
		cmocka_unit_test(test_http1__joins_at_chunk_boundary_only),
		cmocka_unit_test(test_http1_is_start__cases),
		cmocka_unit_test(test_http1__survives_oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
