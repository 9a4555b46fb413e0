/* SPDX-License-Identifier: Apache-2.0 */
/* Events out of a text/event-stream body that is cut anywhere, or partly missing. */
#include "parse/sse.h"
#include "base/util.h"
#include "oom.h"
#include "split.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The events as text: event=data|, with head+tail:total where data is not whole. */
struct trace {
	char s[4096];
	size_t len;
	int n;
	size_t last_len, last_head;
	uint64_t last_total;
	const char *from, *to;	/* the bytes fed, ... */
	bool copied;		/* ... and whether data stood outside them */
};

static void on_event(void *ctx, const struct sse_event *ev)
{
	struct trace *t = ctx;
	int n;

	t->n++;
	t->last_len = ev->len;
	t->last_head = ev->head;
	t->last_total = ev->total;
	t->copied = ev->len && (ev->data < t->from || ev->data >= t->to);
	assert_true(ev->head <= ev->len && ev->len <= ev->total);
	if (ev->len > 1000)
		return;
	n = snprintf(t->s + t->len, sizeof(t->s) - t->len, "%s%s%.*s", ev->event,
		     *ev->event ? "=" : "", (int)ev->head, ev->data);
	t->len += n;
	if (ev->len < ev->total)
		t->len += snprintf(t->s + t->len, sizeof(t->s) - t->len, "~%.*s:%llu",
				   (int)(ev->len - ev->head), ev->data + ev->head,
				   (unsigned long long)ev->total);
	t->len += snprintf(t->s + t->len, sizeof(t->s) - t->len, "|");
	assert_true(t->len < sizeof(t->s));
}

/* @n@ in a script is a gap of n bytes. */
static void play(struct sse *s, struct trace *t, const char *in, int mode)
{
	struct split split = split_new(mode);
	size_t run, piece;

	while (*in) {
		run = strcspn(in, "@");
		for (size_t i = 0; i < run; i += piece) {
			char *copy;	/* exact, so that reading past it is seen */
			int n = t->n, got;

			piece = split_next(&split, run - i);
			copy = malloc(piece);
			memcpy(copy, in + i, piece);
			t->from = copy;
			t->to = copy + piece;
			got = sse__feed(s, copy, piece, on_event, t);
			free(copy);
			assert_int_equal(got, t->n - n);
		}
		in += run;
		if (*in == '@') {
			char *end;

			sse__gap(s, strtoull(in + 1, &end, 10));
			in = end + 1;
		}
	}
}

struct row {
	const char *name, *in, *want;
};

/* max_head is 8, max_tail 4 */
static const struct row rows[] = {
	{ "one event", "data: a\n\n", "a|" },
	{ "no space behind the colon", "data:a\n\n", "a|" },
	{ "only one space is taken", "data:  a\n\n", " a|" },
	{ "crlf", "data: a\r\n\r\ndata: b\r\n\r\n", "a|b|" },
	{ "crlf, several lines", "data: a\r\ndata: b\r\nevent: e\r\n\r\n", "e=a\nb|" },
	{ "cr", "data: a\r\rdata: b\r\r", "a|b|" },
	{ "mixed line ends", "data: a\rdata: b\n\r\ndata: c\r\n\n", "a\nb|c|" },
	{ "several lines", "data: a\ndata: b\ndata: c\n\n", "a\nb\nc|" },
	{ "several events", "data: a\n\ndata: b\n\ndata: c\n\n", "a|b|c|" },
	{ "comment", ": ping\n\ndata: a\n\n", "a|" },
	{ "comment inside", "data: a\n: ping\ndata: b\n\n", "a\nb|" },
	{ "comment with colons", ":: a: b\ndata: a\n\n", "a|" },
	{ "event name", "event: delta\ndata: a\n\ndata: b\n\n", "delta=a|b|" },
	{ "event behind data", "data: a\nevent: x\n\n", "x=a|" },
	{ "last event name counts", "event: x\nevent: y\ndata: a\n\n", "y=a|" },
	{ "event name is taken back", "event: x\nevent\ndata: a\n\n", "a|" },
	{ "event without data is none", "event: x\n\ndata: a\n\n", "a|" },
	{ "id and retry", "id: 1\nretry: 5\ndata: a\n\n", "a|" },
	{ "unknown field", "foo: b\ndata: a\ndatafoo: b\ndat: c\nDATA: d\n\n", "a|" },
	{ "no colon", "data\n\n", "|" },
	{ "empty data", "data:\n\ndata: \n\n", "||" },
	{ "two empty lines of data", "data\ndata\n\n", "\n|" },
	{ "data then empty", "data: a\ndata:\n\n", "a\n|" },
	{ "empty then data", "data:\ndata: a\n\n", "\na|" },
	{ "colons in data", "data: a:b\n\n", "a:b|" },
	{ "empty lines", "\n\n\r\n\rdata: a\n\n\n\n", "a|" },
	{ "space before the field", " data: a\n\n", "" },
	{ "byte order mark", "\xEF\xBB\xBF" "data: a\n\n", "a|" },
	{ "only one mark", "\xEF\xBB\xBF\xEF\xBB\xBF" "data: a\n\ndata: b\n\n", "b|" },
	{ "mark in the midst", "data: a\n\n\xEF\xBB\xBF" "data: b\n\n", "a|" },
	{ "half a mark", "\xEF\xBB" "data: a\n\ndata: b\n\n", "b|" },
	{ "mark, then empty line", "\xEF\xBB\xBF\ndata: b\n\n", "b|" },
	{ "nul and bytes over 127", "data: \xc3\xa9\n\n", "\xc3\xa9|" },
	{ "not ended", "data: a\n\ndata: b\n", "a|" },
	{ "error field of llama.cpp", "error: {}\n\ndata: a\n\n", "error={}|a|" },
	{ "as long as is kept", "data: 0123456789ab\n\n", "0123456789ab|" },
	{ "one longer", "data: 0123456789abc\n\n", "01234567~9abc:13|" },
	{ "far longer, then one more", "data: 0123456789abcdefghijklmnopqrstuvw\n\ndata: x\n\n",
	  "01234567~tuvw:33|x|" },
	{ "too long in lines", "data: 0123\ndata: 4567\ndata: 89ab\ndata: c\n\n", "0123\n456~ab\nc:16|" },
	{ "too long with a name", "event: n\ndata: 0123456789abc\n\n", "n=01234567~9abc:13|" },
	{ "hole", "data: abc@100@xyz\n\ndata: b\n\n", "abc~xyz:106|b|" },
	{ "hole at the value's start", "data: @5@xyz\n\n", "~xyz:8|" },
	{ "hole at the value's end", "data: abc@5@\n\n", "abc~:8|" },
	{ "hole where the space may be", "data:@5@xyz\n\n", "~xyz:8|" },
	{ "hole in the field name", "da@5@xyz\n\ndata: b\n\n", "~xyz:8|b|" },
	{ "hole for a whole event's start", "data: a\n\n@50@xyz\n\ndata: b\n\n", "a|~xyz:53|b|" },
	{ "hole at the stream's start", "@50@xyz\n\ndata: b\n\n", "~xyz:53|b|" },
	{ "hole in a mark", "\xEF@50@xyz\n\ndata: b\n\n", "~xyz:53|b|" },
	{ "hole in a comment", ": a@5@b\n\ndata: b\n\n", "b|" },
	{ "hole in another field", "id: a@5@b\ndata: b\n\n", "b|" },
	{ "hole in another field's name", "i@5@b\ndata: b\n\n", "b|" },
	{ "hole in the event name", "event: a@5@b\ndata: b\n\n", "ab=b|" },
	{ "hole behind the line's end", "data: a\n@5@b\n\n", "a\n~b:8|" },
	{ "hole behind a carriage return", "data: a\r\r@5@b\r\r", "a|~b:6|" },
	{ "two holes", "data: abc@10@def@20@xyz\n\n", "abc~xyz:39|" },
	{ "hole behind the head's end", "data: 0123456789@10@xyz\n\n", "01234567~xyz:23|" },
	{ "hole in the tail", "data: 0123456789abcdef@10@xyz\n\n", "01234567~xyz:29|" },
	{ "hole, then a long tail", "data: a@10@0123456789abcdef\n\n", "a~cdef:27|" },
	{ "hole of nothing", "data: a@0@b\n\n", "ab|" },
};

static void check(const struct row *row, bool lines, int mode)
{
	struct sse *s = lines ? sse__new_lines(8, 4) : sse__new(8, 4);
	struct trace t = { .n = 0 };

	assert_non_null(s);
	play(s, &t, row->in, mode);
	if (strcmp(t.s, row->want))
		fail_msg("%s, split %d:\n  got  '%s'\n  want '%s'", row->name, mode, t.s, row->want);
	sse__free(s);
}

static void test_sse__cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (int mode = 0; mode < N_SPLITS; mode++)
			check(&rows[i], false, mode);
}

static void test_sse__json_lines(void **state)
{
	static const struct row lines[] = {
		{ "lines", "{\"a\":1}\n{}\r\n", "{\"a\":1}|{}|" },
		{ "empty lines", "\n{}\n\n\r\n{}\n", "{}|{}|" },
		{ "no field names", "data: a\n", "data: a|" },
		{ "a colon first", ":a\n", ":a|" },
		{ "not ended", "{}\n{", "{}|" },
		{ "too long", "0123456789abcdefghi\n{}\n", "01234567~fghi:19|{}|" },
		{ "hole", "01@5@89\n@5@ab\n", "01~89:9|~ab:7|" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		for (int mode = 0; mode < N_SPLITS; mode++)
			check(&lines[i], true, mode);
}

static void test_sse__no_head_and_no_tail(void **state)
{
	static const struct {
		size_t head, tail;
		const char *want;
	} limits[] = {
		{ 0, 0, "~:6|~:2|" }, { 0, 3, "~def:6|ab|" }, { 3, 0, "abc~:6|ab|" },
		{ SIZE_MAX, SIZE_MAX, "abcdef|ab|" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		for (int mode = 0; mode < N_SPLITS; mode++) {
			struct sse *s = sse__new(limits[i].head, limits[i].tail);
			struct trace t = { .n = 0 };

			play(s, &t, "data: abcdef\n\ndata: ab\n\n", mode);
			assert_string_equal(t.s, limits[i].want);
			sse__free(s);
		}
	}
}

static void test_sse__whole_events_are_not_copied(void **state)
{
	static const char in[] = "data: a\n\nevent: x\ndata: b\n\ndata: c\r\n\r\n";
	struct sse *s = sse__new(100, 100);
	struct trace t = { .from = in, .to = in + sizeof(in) };

	(void)state;
	oom_after(0);		/* and need no memory */
	assert_int_equal(sse__feed(s, in, sizeof(in) - 1, on_event, &t), 3);
	assert_false(oom_hit());
	assert_false(t.copied);
	assert_string_equal(t.s, "a|x=b|c|");
	sse__free(s);
}

static void test_sse__long_line_is_one_event(void **state)
{
	enum { LEN = 300000 };
	char *in = malloc(LEN + 8);

	(void)state;
	memset(in, 'x', LEN + 8);
	memcpy(in, "data: ", 6);
	memcpy(in + 6 + LEN, "\n\n", 2);
	for (int mode = 0; mode < SPLIT_RANDOM + 3; mode++) {
		struct sse *s = sse__new(4096, 1024);
		struct split split = split_new(mode);
		struct trace t = { .n = 0 };

		for (size_t i = 0, n; i < LEN + 8; i += n) {
			n = split_next(&split, LEN + 8 - i);
			assert_true(sse__feed(s, in + i, n, on_event, &t) >= 0);
		}
		assert_int_equal(t.n, 1);
		assert_int_equal(t.last_total, LEN);
		assert_int_equal(t.last_len, 4096 + 1024);
		assert_int_equal(t.last_head, 4096);
		sse__free(s);
	}
	free(in);
}

size_t __sanitizer_get_current_allocated_bytes(void);	/* unit tests have the sanitizer */

/* Of a line without end, only what is kept takes memory. */
static void test_sse__endless_line_takes_little_memory(void **state)
{
	enum { HEAD = 4096, TAIL = 1024 };
	struct sse *s = sse__new(HEAD, TAIL);
	struct trace t = { .n = 0 };
	size_t before = __sanitizer_get_current_allocated_bytes();
	char x[600];

	(void)state;
	memset(x, 'x', sizeof(x));
	sse__feed(s, "data: ", 6, on_event, &t);
	for (int i = 0; i < 10000; i++) {
		sse__feed(s, x, 1 + i % sizeof(x), on_event, &t);
		assert_true(__sanitizer_get_current_allocated_bytes() < before + HEAD + 2 * TAIL + 500);
	}
	sse__feed(s, "\n\n", 2, on_event, &t);
	assert_int_equal(t.n, 1);
	assert_int_equal(__sanitizer_get_current_allocated_bytes(), before);
	sse__free(s);
}

static void test_sse__long_event_name_is_cut(void **state)
{
	char in[400] = "event: ", want[80] = "";

	(void)state;
	memset(in + 7, 'e', 200);
	strcpy(in + 207, "\ndata: a\n\n");
	memset(want, 'e', 63);
	strcpy(want + 63, "=a|");
	for (int mode = 0; mode < N_SPLITS; mode++)
		check(&(struct row){ "long event name", in, want }, false, mode);
}

static void test_sse__counts_comments(void **state)
{
	struct sse *s = sse__new(8, 4);
	struct trace t = { .n = 0 };

	(void)state;
	play(s, &t, ": ping\n\n:\n: \ndata: a\n:x\n\n", SPLIT_BYTES);
	assert_int_equal(sse__n_comments(s), 4);
	sse__free(s);
	sse__free(NULL);
}

static void test_sse__survives_oom(void **state)
{
	static const char *const feeds[] = {
		"event: x\ndata: 012", "3\ndata: b\n\n", "data: 0123456789abcdefg\n\n",
		"data: a\nda", "ta: b\n\n", "data: c\n\n",
	};
	struct sse *s;
	int n_lost = 0;

	(void)state;
	OOM_LOOP({
		struct trace t = { .n = 0 };

		s = sse__new(8, 4);
		for (size_t i = 0; s && i < ARRAY_SIZE(feeds); i++) {
			int n = sse__feed(s, feeds[i], strlen(feeds[i]), on_event, &t);

			n_lost += n == -ENOMEM;
			assert_true(n >= 0 || n == -ENOMEM);
			if (i == ARRAY_SIZE(feeds) - 1 && n >= 0)
				assert_string_equal(t.s + t.len - 2, "c|");
		}
		sse__free(s);
	});
	assert_true(n_lost >= 3);
}

static void test_sse__lost_event_is_the_only_one(void **state)
{
	struct sse *s = sse__new(8, 4);
	struct trace t = { .n = 0 };
	static const char in[] = "data: more\n\ndata: b\n\n";

	(void)state;
	oom_after(0);
	assert_int_equal(sse__feed(s, "data: a", 7, on_event, &t), -ENOMEM);
	assert_true(oom_hit());
	assert_int_equal(sse__feed(s, in, sizeof(in) - 1, on_event, &t), 1);
	assert_string_equal(t.s, "b|");
	sse__free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sse__cases),
		cmocka_unit_test(test_sse__json_lines),
		cmocka_unit_test(test_sse__no_head_and_no_tail),
		cmocka_unit_test(test_sse__whole_events_are_not_copied),
		cmocka_unit_test(test_sse__long_line_is_one_event),
		cmocka_unit_test(test_sse__endless_line_takes_little_memory),
		cmocka_unit_test(test_sse__long_event_name_is_cut),
		cmocka_unit_test(test_sse__counts_comments),
		cmocka_unit_test(test_sse__survives_oom),
		cmocka_unit_test(test_sse__lost_event_is_the_only_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
