/* SPDX-License-Identifier: Apache-2.0 */
/* The ids that requests go by, from the wire to who compares them: whole, as the engine has them. */
#include "unit.h"

#include "base/str.h"
#include "parse/json_cut.h"
#include "wire_feed.h"

struct fixture {
	struct wire *w;
	struct wire_log log;
	char asked[2048], answered[2048];	/* all ids, a blank behind each */
};

static void on_id(void *ctx, uint32_t tgid, uint32_t req, const char *id, bool answered)
{
	struct fixture *f = ctx;
	char *to = answered ? f->answered : f->asked;

	(void)tgid;
	(void)req;
	assert_true(strlen(id) < WIRE_ID);
	strcat(strcat(to, id), " ");
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->w = wire__new(&(struct wire_opts){ .on_id = on_id, .ctx = f }, &(struct emit){ wire_log_event, &f->log });
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

/* A request with these heads, and an answer with this id. */
static void exchange(struct fixture *f, const char *heads, const char *id)
{
	static uint64_t sock;
	char buf[4096], body[2048];
	size_t n = sprintf(buf, "POST /v1/completions HTTP/1.1\r\n%sContent-Length: 2\r\n\r\n{}", heads);

	f->log.len = f->asked[0] = f->answered[0] = 0;
	assert_int_equal(feed_bytes(f->w, ++sock, 1000, TL_IN, buf, n, 40), 0);
	n = sprintf(body, "{\"id\":\"%s\",\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"x\"}],"
		    "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}", id);
	n = sprintf(buf, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", n, body);
	assert_int_equal(feed_bytes(f->w, sock, 2000, TL_OUT, buf, n, 4096), 0);
	assert_non_null(strstr(f->log.text, "end "));
}

static char *repeated(char *buf, const char *before, char c, size_t n, const char *behind)
{
	char *p = stpcpy(buf, before);

	memset(p, c, n);
	strcpy(p + n, behind);
	return buf;
}

/* A gateway's id may be any text: what is shown of it is cut, what is compared is not. */
static void test_ids__long_ones_are_whole(void **state)
{
	struct fixture *f = *state;
	char heads[600], id[600], want[600];

	for (size_t n = 50; n <= 254; n++) {
		exchange(f, repeated(heads, "X-Request-Id: ", 'a', n, "\r\n"), repeated(id, "cmpl-", 'a', n, ""));
		assert_string_equal(f->asked, repeated(want, "", 'a', n, " "));
		assert_string_equal(f->answered, repeated(want, "cmpl-", 'a', n, " "));
		repeated(want, "id=", 'a', n < 63 ? n : 63, " @");
		assert_non_null(strstr(f->log.text, want));
	}
}

/* Of one that is longer still, others may have what was kept of it. */
static void test_ids__too_long_ones_name_nobody(void **state)
{
	struct fixture *f = *state;
	char heads[1000], id[1000];

	exchange(f, repeated(heads, "X-Request-Id: ", 'a', 255, "\r\n"), repeated(id, "cmpl-", 'a', 507, ""));
	assert_string_equal(f->asked, "");
	assert_string_equal(f->answered, "");
	exchange(f, repeated(heads, "X-Request-Id: ", '\xe9', 254, "\r\n"), repeated(id, "cmpl-", 'a', 506, ""));
	assert_int_equal(strlen(f->asked), 2 * 254 + 1);
	assert_int_equal(strlen(f->answered), 5 + 506 + 1);
}

/* As vLLM was seen to have them: it reads a head as Latin-1, and writes UTF-8. */
static void test_ids__other_than_ascii(void **state)
{
	struct fixture *f = *state;

	exchange(f, "X-Request-Id: r\xc3\xa9 a\tb\"c\\d \r\n", "cmpl-r\xc3\x83\xc2\xa9 a\\tb\\\"c\\\\d");
	assert_string_equal(f->asked, "r\xc3\x83\xc2\xa9 a\tb\"c\\d ");
	assert_string_equal(f->answered, "cmpl-r\xc3\x83\xc2\xa9 a\tb\"c\\d ");
	assert_non_null(strstr(f->log.text, "id=r?? a?b\"c\\d @"));
	exchange(f, "X-Request-Id: \xe9\r\n", "cmpl-\\u00e9");
	assert_string_equal(f->asked, "\xc3\xa9 ");
	assert_string_equal(f->answered, "cmpl-\xc3\xa9 ");
}

/* Frameworks take the first. */
static void test_ids__sent_twice(void **state)
{
	struct fixture *f = *state;

	exchange(f, "X-Request-Id: one\r\nHost: x\r\nX-Request-Id: two\r\n", "cmpl-one");
	assert_string_equal(f->asked, "one ");
	assert_non_null(strstr(f->log.text, "id=one @"));
	exchange(f, "X-Request-Id:\r\nX-Request-Id: two\r\n", "cmpl-0");
	assert_string_equal(f->asked, "");
}

static void test_unescape__cases(void **state)
{
	static const struct {
		const char *in, *want;	/* NULL: refused */
	} cases[] = {
		{ "", "" }, { "plain \xc3\xa9", "plain \xc3\xa9" },
		{ "\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t" },
		{ "\\u0041\\u00e9\\u20AC\\ud83d\\ude00.", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80." },
		{ "\\u007f\\u0080\\u07ff\\u0800\\uffff", "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf" },
		{ "\\", NULL }, { "\\x", NULL }, { "\\u", NULL }, { "\\u12", NULL }, { "\\u123g", NULL },
		{ "\\u0000", NULL }, { "\\ud83d", NULL }, { "\\ud83dx", NULL }, { "\\ud83d\\u0041", NULL },
		{ "\\ud83d\\", NULL }, { "\\ud83d\\u", NULL }, { "\\ude00", NULL },
	};
	char out[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t len = strlen(cases[i].in);
		char *in = memcpy(malloc(len + 1), cases[i].in, len);	/* no NUL: reading on is an error */

		in = realloc(in, len ? len : 1);
		assert_int_equal(json_unescape(in, len, out, sizeof(out)), cases[i].want != NULL);
		if (cases[i].want)
			assert_string_equal(out, cases[i].want);
		free(in);
	}
	assert_true(json_unescape("abc", 3, out, 4));
	assert_false(json_unescape("abc", 3, out, 3));
	assert_true(json_unescape("a\\u20ac", 7, out, 5));
	assert_false(json_unescape("a\\u20ac", 7, out, 4));
	assert_false(json_unescape("a\0b", 3, out, sizeof(out)));
}

#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(ids__long_ones_are_whole), T(ids__too_long_ones_name_nobody), T(ids__other_than_ascii),
		T(ids__sent_twice), cmocka_unit_test(test_unescape__cases),
	};

	return cmocka_run_group_tests_name("wire_ids", tests, NULL, NULL);
}
