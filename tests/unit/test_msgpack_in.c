/* SPDX-License-Identifier: Apache-2.0 */
/* MessagePack, whole, cut at every byte, and full of lies. */
#include "parse/msgpack_in.h"
#include "msgpack_out.h"
#include "unit.h"

/* A copy of exactly len bytes, so that reading past it is seen. */
static uint8_t *exact(const void *p, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	memcpy(copy, p, len);
	return copy;
}

struct text {
	char s[2048];
	size_t len;
};

__attribute__((format(printf, 2, 3)))
static void say(struct text *t, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	t->len += vsnprintf(t->s + t->len, sizeof(t->s) - t->len, format, ap);
	va_end(ap);
	assert_true(t->len < sizeof(t->s));
}

/* Writes one value as text: 5, 5.5, "str", bin(2), ext1(2), [1,2], {1:2}. */
static void write_value(struct mpin *m, struct text *t)
{
	struct mpin_bytes b;
	const char *sep = "";
	uint32_t n = 0;
	int64_t i = 0;
	double f = 0;
	bool v = false;

	switch (mpin_peek(m)) {
	case MPIN_NIL:
		mpin_skip(m, 1);
		say(t, "nil");
		break;
	case MPIN_BOOL:
		if (mpin_bool(m, &v))
			say(t, v ? "true" : "false");
		break;
	case MPIN_INT:
		if (mpin_int(m, &i))
			say(t, "%lld", (long long)i);
		break;
	case MPIN_FLOAT:
		if (mpin_float(m, &f))
			say(t, "%g", f);
		break;
	case MPIN_STR:
	case MPIN_BIN:
	case MPIN_EXT:
		if (!mpin_bytes(m, &b))
			break;
		if (b.type == MPIN_STR)
			say(t, "\"%.*s\"", (int)b.len, (const char *)b.p);
		else if (b.type == MPIN_BIN)
			say(t, "bin(%zu)", b.len);
		else
			say(t, "ext%d(%zu)", b.ext, b.len);
		if (b.len < b.total)
			say(t, "/%u", b.total);
		break;
	case MPIN_ARRAY:
		if (!mpin_array(m, &n))
			break;
		say(t, "[");
		for (; mpin_more(m, &n); sep = ",") {
			say(t, "%s", sep);
			write_value(m, t);
		}
		say(t, "]");
		break;
	case MPIN_MAP:
		if (!mpin_map(m, &n))
			break;
		say(t, "{");
		for (; mpin_key(m, &n, &b); sep = ",") {
			say(t, "%s%.*s:", sep, (int)b.len, (const char *)b.p);
			write_value(m, t);
		}
		say(t, "}");
		break;
	case MPIN_NONE:
		mpin_skip(m, 1);
		break;
	}
	if (m->why)
		say(t, m->why == MPIN_CUT ? "<cut>" : "<bad>");
}

static const struct row {
	const char *hex, *want;
} rows[] = {
	{ "00", "0" }, { "7f", "127" }, { "ff", "-1" }, { "e0", "-32" },
	{ "cc80", "128" }, { "ccff", "255" }, { "cd0100", "256" }, { "cdffff", "65535" },
	{ "ce80000000", "2147483648" }, { "ceffffffff", "4294967295" },
	{ "cf7fffffffffffffff", "9223372036854775807" },
	{ "cfffffffffffffffff", "9223372036854775807" },	/* saturates */
	{ "d080", "-128" }, { "d18000", "-32768" }, { "d280000000", "-2147483648" },
	{ "d38000000000000000", "-9223372036854775808" },
	{ "ca3fc00000", "1.5" }, { "cbbff8000000000000", "-1.5" },
	{ "c0", "nil" }, { "c2", "false" }, { "c3", "true" },
	{ "a0", "\"\"" }, { "a3616263", "\"abc\"" }, { "d903616263", "\"abc\"" },
	{ "da0003616263", "\"abc\"" }, { "db00000003616263", "\"abc\"" },
	{ "c400", "bin(0)" }, { "c4020000", "bin(2)" }, { "c500020000", "bin(2)" },
	{ "c6000000020000", "bin(2)" },
	{ "d40300", "ext3(1)" }, { "d5ff0000", "ext-1(2)" }, { "d60100000000", "ext1(4)" },
	{ "d7010000000000000000", "ext1(8)" }, { "d80100000000000000000000000000000000", "ext1(16)" },
	{ "c7020300ff", "ext3(2)" }, { "c800020300ff", "ext3(2)" }, { "c9000000020300ff", "ext3(2)" },
	{ "90", "[]" }, { "93010203", "[1,2,3]" }, { "dc00020102", "[1,2]" }, { "dd000000020102", "[1,2]" },
	{ "80", "{}" }, { "82a16101a16202", "{a:1,b:2}" }, { "de0001a16101", "{a:1}" },
	{ "df00000001a16101", "{a:1}" }, { "810102", "{:2}" }, { "8191a16102", "{:2}" },
	{ "929182a16190a162c001", "[[{a:[],b:nil}],1]" },
	{ "c1", "<bad>" }, { "92c101", "[<bad>]<bad>" }, { "81c101", "{}<bad>" },
	{ "", "<cut>" },
};

static size_t from_hex(const char *hex, uint8_t *ret)
{
	size_t n = 0;
	unsigned c;

	for (; sscanf(hex, "%2x", &c) == 1; hex += 2)
		ret[n++] = c;
	return n;
}

static void test_msgpack_in__every_type(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct text t = { .len = 0 };
		uint8_t bytes[64], *copy;
		struct mpin m;

		copy = exact(bytes, from_hex(rows[i].hex, bytes));
		mpin_init(&m, copy, strlen(rows[i].hex) / 2);
		write_value(&m, &t);
		if (strcmp(t.s, rows[i].want))
			fail_msg("%s:\n  got  %s\n  want %s", rows[i].hex, t.s, rows[i].want);
		assert_ptr_equal(m.p, m.end);
		free(copy);
	}
}

/* Each prefix of each value ends in "cut", by reading and by skipping alike. */
static void test_msgpack_in__every_prefix_is_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint8_t bytes[64], *copy;
		size_t len = from_hex(rows[i].hex, bytes);

		for (size_t n = 0; n < len && !strchr(rows[i].want, '<'); n++) {
			struct text t = { .len = 0 };
			struct mpin m;

			copy = exact(bytes, n);
			mpin_init(&m, copy, n);
			write_value(&m, &t);
			assert_non_null(strstr(t.s, "<cut>"));
			assert_int_equal(m.why, MPIN_CUT);
			mpin_init(&m, copy, n);
			mpin_skip(&m, 1);
			assert_int_equal(m.why, MPIN_CUT);
			assert_ptr_equal(m.p, m.end);
			free(copy);
		}
	}
}

static void test_msgpack_in__wrong_types_are_taken(void **state)
{
	struct mpin_bytes b;
	struct mpin m;
	uint32_t n = 77;
	int64_t i = 77;
	double f = 77;
	bool v = true;

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(rows); k++) {
		uint8_t bytes[64];
		size_t len = from_hex(rows[k].hex, bytes);
		enum mpin_type type;

		if (strchr(rows[k].want, '<'))
			continue;
		for (int want = 0; want < 6; want++) {
			bool ok = false, right = false;

			mpin_init(&m, bytes, len);
			type = mpin_peek(&m);
			switch (want) {
			case 0:
				ok = mpin_bool(&m, &v);
				right = type == MPIN_BOOL;
				break;
			case 1:
				ok = mpin_int(&m, &i);
				right = type == MPIN_INT;
				break;
			case 2:
				ok = mpin_float(&m, &f);
				right = type == MPIN_INT || type == MPIN_FLOAT;
				break;
			case 3:
				ok = mpin_bytes(&m, &b);
				right = type == MPIN_STR || type == MPIN_BIN || type == MPIN_EXT;
				break;
			case 4:
				ok = mpin_array(&m, &n);
				right = type == MPIN_ARRAY;
				break;
			case 5:
				ok = mpin_map(&m, &n);
				right = type == MPIN_MAP;
				break;
			}
			assert_int_equal(ok, right);
			assert_int_equal(m.why, MPIN_OK);
			if (!right)
				assert_ptr_equal(m.p, m.end);
		}
	}
}

static void test_msgpack_in__cut_bytes_say_their_length(void **state)
{
	static const uint8_t in[] = "\xd9\x40" "abcdef";
	struct mpin_bytes b;
	struct mpin m;

	(void)state;
	mpin_init(&m, in, 8);
	assert_true(mpin_bytes(&m, &b));
	assert_int_equal(b.type, MPIN_STR);
	assert_int_equal(b.len, 6);
	assert_int_equal(b.total, 64);
	assert_int_equal(m.why, MPIN_CUT);
	assert_int_equal(mpin_peek(&m), MPIN_NONE);
	assert_false(mpin_bytes(&m, &b));
	assert_int_equal(b.len, 0);
}

static void test_msgpack_in__cut_array_says_its_length(void **state)
{
	static const uint8_t in[] = { 0xdd, 0x00, 0x01, 0x00, 0x00, 1, 2, 3 };
	struct mpin m;
	uint32_t n, left, seen = 0;
	int64_t v;

	(void)state;
	mpin_init(&m, in, sizeof(in));
	assert_true(mpin_array(&m, &n));
	assert_int_equal(n, 65536);
	for (left = n; mpin_more(&m, &left); seen++)
		assert_true(mpin_int(&m, &v));
	assert_int_equal(seen, 3);
	assert_int_equal(m.why, MPIN_CUT);
}

/* Headers that claim more than is there cost no more than what is there. */
static void test_msgpack_in__lies_are_bounded(void **state)
{
	static const char *const lies[] = {
		"ddffffffff", "dfffffffff", "dbffffffff61", "c6ffffffff", "c9ffffffff01",
		"ddffffffffddffffffffddffffffff", "dfffffffffdfffffffffdfffffffff", "94ddffffffff0000",
		"ddffffffff00000000000000000000", "d8", "df80000000", "dd80000000c0",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		uint8_t bytes[64];
		size_t len = from_hex(lies[i], bytes);
		struct text t = { .len = 0 };
		struct mpin_row row;
		struct mpin m;
		uint32_t n;

		mpin_init(&m, bytes, len);
		mpin_skip(&m, 1);
		assert_int_equal(m.why, MPIN_CUT);
		mpin_init(&m, bytes, len);
		mpin_skip(&m, UINT64_MAX);
		assert_int_equal(m.why, MPIN_CUT);
		mpin_init(&m, bytes, len);
		write_value(&m, &t);
		assert_int_equal(m.why, MPIN_CUT);
		mpin_init(&m, bytes, len);
		if (mpin_row_begin(&m, &row)) {
			assert_false(mpin_row_at(&m, &row, row.n - 1));
			mpin_row_end(&m, &row);
			assert_int_equal(m.why, MPIN_CUT);
		}
		mpin_init(&m, bytes, len);
		if (mpin_map(&m, &n)) {
			struct mpin_bytes key;

			while (mpin_key(&m, &n, &key))
				mpin_skip(&m, 1);
			assert_int_equal(m.why, MPIN_CUT);
		}
	}
}

static void test_msgpack_in__deep_nesting(void **state)
{
	enum { DEEP = 1000000 };
	uint8_t *in = malloc(DEEP + 1);
	struct mpin m;

	(void)state;
	for (int maps = 0; maps < 2; maps++) {
		for (size_t depth = 10000; depth <= DEEP; depth *= 100) {
			/* {0:{0:{0:...}}} needs a key per level */
			for (size_t i = 0; i < depth; i++)
				in[i] = !maps ? 0x91 : i % 2 ? 0x00 : 0x81;
			in[depth] = 0x2a;
			mpin_init(&m, in, depth + 1);
			mpin_skip(&m, 1);
			assert_int_equal(m.why, MPIN_OK);
			assert_ptr_equal(m.p, m.end);
			mpin_init(&m, in, depth);
			mpin_skip(&m, 1);
			assert_int_equal(m.why, MPIN_CUT);
		}
	}
	free(in);
}

static void test_msgpack_in__skips_many(void **state)
{
	static const uint8_t in[] = { 1, 0x92, 2, 3, 0xa1, 'x', 0x2a };
	struct mpin m;
	int64_t v;

	(void)state;
	mpin_init(&m, in, sizeof(in));
	mpin_skip(&m, 0);
	assert_ptr_equal(m.p, in);
	mpin_skip(&m, 3);
	assert_true(mpin_int(&m, &v));
	assert_int_equal(v, 42);
	assert_int_equal(m.why, MPIN_OK);
}

/* [0, [1], {2: 3}, nil, "x"], 6 */
static const uint8_t row_bytes[] = { 0x95, 0, 0x91, 1, 0x81, 2, 3, 0xc0, 0xa1, 'x', 6 };

static void test_msgpack_in__row_by_position(void **state)
{
	struct mpin_bytes b;
	struct mpin_row row;
	struct mpin m;
	int64_t v = -1;

	(void)state;
	mpin_init(&m, row_bytes, sizeof(row_bytes));
	assert_true(mpin_row_begin(&m, &row));
	assert_int_equal(row.n, 5);
	assert_true(mpin_row_at(&m, &row, 0));
	assert_true(mpin_int(&m, &v));
	assert_int_equal(v, 0);
	assert_true(mpin_row_at(&m, &row, 3));	/* over two containers */
	assert_int_equal(mpin_peek(&m), MPIN_NIL);
	mpin_skip(&m, 1);
	assert_false(mpin_row_at(&m, &row, 2));	/* behind it already */
	assert_true(mpin_row_at(&m, &row, 4));
	assert_true(mpin_bytes(&m, &b));
	assert_true(MPIN_IS(b, "x"));
	assert_false(mpin_row_at(&m, &row, 5));	/* shorter than wanted */
	assert_int_equal(m.why, MPIN_OK);
	mpin_row_end(&m, &row);
	assert_true(mpin_int(&m, &v));
	assert_int_equal(v, 6);
}

static void test_msgpack_in__row_end_from_anywhere(void **state)
{
	(void)state;
	for (uint32_t taken = 0; taken <= 5; taken++) {
		struct mpin_row row;
		struct mpin m;
		int64_t v;

		mpin_init(&m, row_bytes, sizeof(row_bytes));
		assert_true(mpin_row_begin(&m, &row));
		for (uint32_t i = 0; i < taken; i++) {
			assert_true(mpin_row_at(&m, &row, i));
			mpin_skip(&m, 1);
		}
		mpin_row_end(&m, &row);
		assert_true(mpin_int(&m, &v));
		assert_int_equal(v, 6);
	}
}

static void test_msgpack_in__row_cut(void **state)
{
	(void)state;
	for (size_t len = 0; len < sizeof(row_bytes) - 1; len++) {
		uint8_t *copy = exact(row_bytes, len);
		struct mpin_row row;
		struct mpin m;

		mpin_init(&m, copy, len);
		if (mpin_row_begin(&m, &row)) {
			if (mpin_row_at(&m, &row, 4))
				mpin_skip(&m, 1);
			assert_int_equal(m.why, MPIN_CUT);
			assert_false(mpin_row_at(&m, &row, 4));
			mpin_row_end(&m, &row);
		}
		assert_int_equal(m.why, MPIN_CUT);
		free(copy);
	}
}

static void test_msgpack_in__keys(void **state)
{
	struct mp o = { 0 };
	struct mpin_bytes key;
	struct mpin m;
	uint32_t n;
	int64_t v, a = 0, b = 0;

	(void)state;
	mp_map(&o, 5);
	mp_text(&o, "\"a\"");
	mp_int(&o, 1);
	mp_text(&o, "[\"a\"]");	/* no string: passed over with its value */
	mp_int(&o, 2);
	mp_text(&o, "\"ab\"");
	mp_int(&o, 3);
	mp_text(&o, "\"b\"");
	mp_int(&o, 4);
	mp_bin(&o, "a", 1);	/* nor is this one */
	mp_int(&o, 9);
	mpin_init(&m, o.p, o.len);
	assert_true(mpin_map(&m, &n));
	while (mpin_key(&m, &n, &key)) {
		assert_true(mpin_int(&m, &v));
		if (MPIN_IS(key, "a"))
			a = v;
		else if (MPIN_IS(key, "b"))
			b = v;
	}
	assert_int_equal(m.why, MPIN_OK);
	assert_int_equal(a, 1);
	assert_int_equal(b, 4);
	mp_free(&o);
}

static void test_msgpack_in__ints_round_trip(void **state)
{
	(void)state;
	for (unsigned bit = 0; bit < 63; bit++) {
		for (int64_t d = -1; d <= 1; d++) {
			int64_t vs[2] = { (1ll << bit) + d, -(1ll << bit) + d };

			for (int i = 0; i < 2; i++) {
				struct mp o = { 0 };
				struct mpin m;
				int64_t v = 0;
				double f = 0;

				mp_int(&o, vs[i]);
				mpin_init(&m, o.p, o.len);
				assert_true(mpin_int(&m, &v));
				assert_true(v == vs[i]);
				mpin_init(&m, o.p, o.len);
				assert_true(mpin_float(&m, &f));
				assert_true(f == (double)vs[i]);
				mp_free(&o);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_msgpack_in__every_type),
		cmocka_unit_test(test_msgpack_in__every_prefix_is_cut),
		cmocka_unit_test(test_msgpack_in__wrong_types_are_taken),
		cmocka_unit_test(test_msgpack_in__cut_bytes_say_their_length),
		cmocka_unit_test(test_msgpack_in__cut_array_says_its_length),
		cmocka_unit_test(test_msgpack_in__lies_are_bounded),
		cmocka_unit_test(test_msgpack_in__deep_nesting),
		cmocka_unit_test(test_msgpack_in__skips_many),
		cmocka_unit_test(test_msgpack_in__row_by_position),
		cmocka_unit_test(test_msgpack_in__row_end_from_anywhere),
		cmocka_unit_test(test_msgpack_in__row_cut),
		cmocka_unit_test(test_msgpack_in__keys),
		cmocka_unit_test(test_msgpack_in__ints_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
