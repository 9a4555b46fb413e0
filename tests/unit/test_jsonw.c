/* SPDX-License-Identifier: Apache-2.0 */
/* jsonw: exact output, escapes, numbers without noise, misuse, errors of the callback. */
#include "unit.h"

#include "base/jsonw.h"
#include "buf.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static char text[1 << 16];

static const char *finish(struct jsonw *w, struct buf *b)
{
	assert_int_equal(jsonw__finish(w), 0);
	assert_true(b->len < sizeof(text));
	memcpy(text, b->data, b->len);
	text[b->len] = 0;
	buf__free(b);
	return text;
}

static void start(struct jsonw *w, struct buf *b)
{
	buf__init(b, sizeof(text));
	jsonw__init(w, jsonw_to_buf, b);
}

static void test_jsonw__nesting(void **state)
{
	struct jsonw w;
	struct buf b;

	(void)state;
	start(&w, &b);
	jsonw__object(&w);
	jsonw__key(&w, "a");
	jsonw__array(&w);
	jsonw__u64(&w, 1);
	jsonw__object(&w);
	jsonw__end_object(&w);
	jsonw__array(&w);
	jsonw__end_array(&w);
	jsonw__bool(&w, true);
	jsonw__bool(&w, false);
	jsonw__end_array(&w);
	jsonw__key(&w, "b");
	jsonw__null(&w);
	jsonw__key(&w, "c");
	jsonw__str(&w, NULL);
	jsonw__key(&w, "d");
	jsonw__str(&w, "x");
	jsonw__key(&w, "e");
	jsonw__hex(&w, "\x00\xaf", 2);
	jsonw__end_object(&w);
	jsonw__newline(&w);
	jsonw__s64(&w, -1);
	assert_string_equal(
		finish(&w, &b),
		"{\"a\":[1,{},[],true,false],\"b\":null,\"c\":null,\"d\":\"x\","
			    "\"e\":\"00af\"}\n-1");
}

static const struct {
	const char *in, *want;
} strings[] = {
	{ "", "" },
	{ "plain", "plain" },
	{ "q\"b\\s/", "q\\\"b\\\\s/" },
	{ "\n\r\t\x01\x1f\x7f", "\\n\\r\\t\\u0001\\u001f\\u007f" },
	{ "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80" },
	{ "\xc3", "\xef\xbf\xbd" },			/* cut */
	{ "\xc3(", "\xef\xbf\xbd(" },
	{ "\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd" },	/* overlong */
	{ "\xe0\x9f\xbf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },	/* surrogate */
	{ "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xf5", "\xef\xbf\xbd" },
	{ "\x80", "\xef\xbf\xbd" },
};

static void test_jsonw__strings(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		struct jsonw w;
		struct buf b;
		char want[64];

		start(&w, &b);
		jsonw__str(&w, strings[i].in);
		snprintf(want, sizeof(want), "\"%s\"", strings[i].want);
		assert_string_equal(finish(&w, &b), want);
	}
}

static void test_jsonw__long_string_is_whole(void **state)
{
	static char in[30000];
	struct jsonw w;
	struct buf b;

	(void)state;
	memset(in, 'x', sizeof(in) - 1);
	start(&w, &b);
	jsonw__array(&w);
	jsonw__str(&w, in);
	jsonw__str(&w, in);
	jsonw__end_array(&w);
	assert_int_equal(strlen(finish(&w, &b)), 2 * (sizeof(in) - 1) + 7);
}

static void test_jsonw__numbers(void **state)
{
	struct jsonw w;
	struct buf b;

	(void)state;
	start(&w, &b);
	jsonw__array(&w);
	jsonw__u64(&w, UINT64_MAX);
	jsonw__s64(&w, INT64_MIN);
	jsonw__fixed(&w, 1500, 3);
	jsonw__fixed(&w, -1, 6);
	jsonw__fixed(&w, 0, 2);
	jsonw__fixed(&w, INT64_MIN, 18);
	jsonw__double(&w, 0.1 + 0.2, 3);
	jsonw__double(&w, -0.0001, 3);
	jsonw__double(&w, -0.5, 0);
	jsonw__double(&w, 2.5e20, 3);
	jsonw__double(&w, NAN, 3);
	jsonw__double(&w, -INFINITY, 3);
	jsonw__end_array(&w);
	assert_string_equal(finish(&w, &b),
			    "[18446744073709551615,-9223372036854775808,1.500,-0.000001,0.00,"
			    "-9.223372036854775808,0.300,0.000,0,2.5e+20,null,null]");
}

static void value_without_key(void)
{
	struct jsonw w;
	struct buf b;

	start(&w, &b);
	jsonw__object(&w);
	jsonw__u64(&w, 1);
}

static void key_without_value(void)
{
	struct jsonw w;
	struct buf b;

	start(&w, &b);
	jsonw__object(&w);
	jsonw__key(&w, "a");
	jsonw__end_object(&w);
}

static void two_roots(void)
{
	struct jsonw w;
	struct buf b;

	start(&w, &b);
	jsonw__u64(&w, 1);
	jsonw__u64(&w, 2);
}

static void wrong_end(void)
{
	struct jsonw w;
	struct buf b;

	start(&w, &b);
	jsonw__array(&w);
	jsonw__end_object(&w);
}

static void unfinished(void)
{
	struct jsonw w;
	struct buf b;

	start(&w, &b);
	jsonw__array(&w);
	jsonw__finish(&w);
}

static void test_jsonw__misuse_aborts(void **state)
{
	(void)state;
	assert_true(unit_aborts(value_without_key));
	assert_true(unit_aborts(key_without_value));
	assert_true(unit_aborts(two_roots));
	assert_true(unit_aborts(wrong_end));
	assert_true(unit_aborts(unfinished));
}

static int full(void *ctx, const char *data, size_t len)
{
	(void)data;
	(void)len;
	++*(int *)ctx;
	return -ENOSPC;
}

static void test_jsonw__keeps_first_error_and_stops(void **state)
{
	struct jsonw w;
	int n_calls = 0;

	(void)state;
	jsonw__init(&w, full, &n_calls);
	jsonw__array(&w);
	for (int i = 0; i < 10000; i++)
		jsonw__str(&w, "something");
	jsonw__end_array(&w);
	assert_int_equal(jsonw__finish(&w), -ENOSPC);
	assert_int_equal(n_calls, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jsonw__nesting),
		cmocka_unit_test(test_jsonw__strings),
		cmocka_unit_test(test_jsonw__long_string_is_whole),
		cmocka_unit_test(test_jsonw__numbers),
		cmocka_unit_test(test_jsonw__misuse_aborts),
		cmocka_unit_test(test_jsonw__keeps_first_error_and_stops),
	};

	return cmocka_run_group_tests_name("jsonw", tests, NULL, NULL);
}
