/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed bodies, cut anywhere, damaged, and those that mean harm. */
#include "unit.h"

#include "engine/wire.h"
#include "parse/gunzip.h"
#include "wire_feed.h"
#include <errno.h>
#include <string.h>
#include <zlib.h>

enum { TEXT = 20000, PLACE = 65536, GZIP = 16 + MAX_WBITS, ZLIB = MAX_WBITS };

struct got {
	char text[PLACE];
	size_t len;
	uint64_t total;
};

static void take(void *ctx, const char *data, size_t len)
{
	struct got *g = ctx;

	g->total += len;
	if (g->len + len > sizeof(g->text))
		return;
	memcpy(g->text + g->len, data, len);
	g->len += len;
}

/* Appends text to what was compressed before; `flush` as zlib has it. */
static size_t pack(z_stream *z, int flush, const char *text, size_t len, char *out, size_t room)
{
	z->next_in = (unsigned char *)text;
	z->avail_in = len;
	z->next_out = (unsigned char *)out;
	z->avail_out = room;
	deflate(z, flush);
	return room - z->avail_out;
}

static size_t pack_all(int bits, const char *text, size_t len, char *out, size_t room)
{
	z_stream z = { 0 };
	size_t n;

	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
	n = pack(&z, Z_FINISH, text, len, out, room);
	deflateEnd(&z);
	return n;
}

static void fill(char *text)
{
	for (size_t i = 0; i < TEXT; i++)
		text[i] = 'a' + (i * i / 7 + i) % 26;
}

static void check_cut(int bits, size_t piece)
{
	static char text[TEXT], packed[PLACE];
	static struct got got;
	struct gunzip *g = gunzip__new();
	size_t n;

	memset(&got, 0, sizeof(got));
	fill(text);
	n = pack_all(bits, text, TEXT, packed, sizeof(packed));
	assert_non_null(g);
	for (size_t at = 0; at < n; at += piece)
		assert_int_equal(gunzip__feed(g, packed + at, n - at < piece ? n - at : piece, take, &got), 0);
	assert_int_equal(got.len, TEXT);
	assert_memory_equal(got.text, text, TEXT);
	assert_int_equal(gunzip__feed(g, "padding", 7, take, &got), 0);
	assert_int_equal(got.len, TEXT);
	gunzip__free(g);
}

static void test_whole_and_in_pieces(void **state)
{
	(void)state;
	for (size_t piece = 1; piece <= PLACE; piece *= 4) {
		check_cut(GZIP, piece);
		check_cut(ZLIB, piece);
	}
}

static void test_no_such_thing(void **state)
{
	struct got got = { .len = 0 };
	struct gunzip *g = gunzip__new();

	(void)state;
	assert_int_equal(gunzip__feed(g, "data: {\"a\"", 10, take, &got), -EBADMSG);
	assert_int_equal(gunzip__feed(g, "\x1f\x8b", 2, take, &got), -EBADMSG);
	gunzip__free(g);
	gunzip__free(NULL);
}

/* 60 KiB that hold 60 MB. */
static void test_bombs_are_not_unpacked(void **state)
{
	static char zeros[1 << 20], packed[PLACE];
	static struct got got;
	z_stream z = { 0 };
	struct gunzip *g = gunzip__new();
	size_t n = 0;

	(void)state;
	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY), Z_OK);
	for (int i = 0; i < 60; i++)
		n += pack(&z, i == 59 ? Z_FINISH : Z_NO_FLUSH, zeros, sizeof(zeros), packed + n, sizeof(packed) - n);
	deflateEnd(&z);
	assert_int_equal(gunzip__feed(g, packed, n, take, &got), -EBADMSG);
	assert_true(got.total < 9 << 20);
	gunzip__free(g);
}

static void test_survives_oom(void **state)
{
	struct gunzip *g = NULL;

	(void)state;
	OOM_LOOP({ gunzip__free(g); g = gunzip__new(); });
	assert_non_null(g);
	gunzip__free(g);
}

/* ---- in an answer ---- */

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
#define EVENT "data: {\"id\":\"c1\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n"
#define POST "POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"

/* A middleware that compresses hands on nothing, then what is flushed: chunks have the time of that write. */
static void test_answer__chunks_are_there_when_they_can_be_read(void **state)
{
	static struct wire_log log;
	struct wire *w = wire__new(NULL, &(struct emit){ wire_log_event, &log });
	char packed[4096];
	z_stream z = { 0 };
	size_t n = 0;

	(void)state;
	memset(&log, 0, sizeof(log));
	assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY), Z_OK);
	feed_bytes(w, 1, 1000, TL_IN, POST, strlen(POST), 4096);
	feed_bytes(w, 1, 2000, TL_OUT, HEAD, strlen(HEAD), 4096);
	for (int i = 0; i < 3; i++)
		n += pack(&z, Z_NO_FLUSH, EVENT, strlen(EVENT), packed + n, sizeof(packed) - n);
	assert_int_equal(feed_bytes(w, 1, 3000, TL_OUT, packed, n, 4096), 0);	/* the head of gzip alone */
	n = pack(&z, Z_SYNC_FLUSH, EVENT, strlen(EVENT), packed, sizeof(packed));
	assert_int_equal(feed_bytes(w, 1, 4000, TL_OUT, packed, n, 4096), 0);
	assert_int_equal(log.n_kind[TL_CHUNK], 4);
	n = pack(&z, Z_FINISH, EVENT, strlen(EVENT), packed, sizeof(packed));
	assert_int_equal(feed_bytes(w, 1, 5000, TL_OUT, packed, n, 1), 0);
	deflateEnd(&z);
	assert_int_equal(log.n_kind[TL_CHUNK], 5);
	assert_non_null(strstr(log.text, "chunk 1 text @4000\nchunk 1 text @4000\nchunk 1 text @4000\nchunk 1 text @4000\nchunk 1 text @5000\n"));
	assert_int_equal(log.n_kind[TL_LOST], 0);
	wire__free(w);
}

static void test_answer__with_a_hole(void **state)
{
	static struct wire_log log;
	struct wire *w = wire__new(NULL, &(struct emit){ wire_log_event, &log });
	char packed[4096];
	size_t n;

	(void)state;
	memset(&log, 0, sizeof(log));
	feed_bytes(w, 1, 1000, TL_IN, POST, strlen(POST), 4096);
	feed_bytes(w, 1, 2000, TL_OUT, HEAD, strlen(HEAD), 4096);
	n = pack_all(GZIP, EVENT EVENT, 2 * strlen(EVENT), packed, sizeof(packed));
	assert_int_equal(feed_cut(w, 1, 3000, TL_OUT, packed, n, 20, 20), 0);
	assert_int_equal(feed_bytes(w, 1, 4000, TL_OUT, EVENT, strlen(EVENT), 4096), 0);
	assert_int_equal(log.n_kind[TL_CHUNK], 0);
	assert_int_equal(log.n_kind[TL_LOST], 1);
	wire__free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_and_in_pieces),
		cmocka_unit_test(test_no_such_thing),
		cmocka_unit_test(test_bombs_are_not_unpacked),
		cmocka_unit_test(test_survives_oom),
		cmocka_unit_test(test_answer__chunks_are_there_when_they_can_be_read),
		cmocka_unit_test(test_answer__with_a_hole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
