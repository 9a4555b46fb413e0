/* SPDX-License-Identifier: Apache-2.0 */
/* Head and tail of texts of every length around the limits, in pieces of every size. */
#include "unit.h"

#include "base/cutbuf.h"
#include <errno.h>
#include <string.h>

enum { HEAD = 10, TAIL = 7 };

static void check(struct cutbuf *c, const char *text, size_t total)
{
	size_t head, len, tail = total > HEAD ? total - HEAD : 0;
	const char *p = cutbuf__join(c, &head, &len);

	if (tail > TAIL)
		tail = TAIL;
	assert_int_equal(cutbuf__total(c), total);
	assert_int_equal(head, total < HEAD ? total : HEAD);
	assert_int_equal(len, head + tail);
	if (len) {
		assert_memory_equal(p, text, head);
		assert_memory_equal(p + head, text + total - tail, tail);
	}
}

static void test_cutbuf__keeps_head_and_tail(void **state)
{
	static const char text[] = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ";

	(void)state;
	for (size_t total = 0; total < sizeof(text); total++)
		for (size_t piece = 1; piece < sizeof(text); piece++) {
			struct cutbuf c;

			cutbuf__init(&c, HEAD, TAIL);
			for (size_t at = 0; at < total; at += piece)
				assert_int_equal(cutbuf__add(&c, text + at, total - at < piece ? total - at : piece), 0);
			check(&c, text, total);
			cutbuf__free(&c);
		}
}

static void test_cutbuf__tail_begins_behind_a_hole(void **state)
{
	struct cutbuf c;
	size_t head, len;
	const char *p;

	(void)state;
	cutbuf__init(&c, HEAD, TAIL);
	cutbuf__add(&c, "abc", 3);
	cutbuf__gap(&c, 100);
	cutbuf__add(&c, "xyz", 3);
	p = cutbuf__join(&c, &head, &len);
	assert_int_equal(cutbuf__total(&c), 106);
	assert_int_equal(head, 3);
	assert_int_equal(len, 6);
	assert_memory_equal(p, "abcxyz", 6);
	cutbuf__free(&c);
}

static void test_cutbuf__survives_oom(void **state)
{
	struct cutbuf c;
	size_t head, len;

	(void)state;
	cutbuf__init(&c, HEAD, TAIL);
	OOM_LOOP({
		cutbuf__free(&c);
		if (!cutbuf__add(&c, "0123456789abcdefghi", 19))
			cutbuf__join(&c, &head, &len);
		assert_true(c.head <= HEAD);
	});
	cutbuf__free(&c);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cutbuf__keeps_head_and_tail),
		cmocka_unit_test(test_cutbuf__tail_begins_behind_a_hole),
		cmocka_unit_test(test_cutbuf__survives_oom),
	};

	return cmocka_run_group_tests_name("cutbuf", tests, NULL, NULL);
}
