/* SPDX-License-Identifier: Apache-2.0 */
/* buf and vec: growth, bounds, what is left after a failure. */
#include "unit.h"

#include "base/buf.h"
#include "base/vec.h"

#include <errno.h>
#include <string.h>

static void test_buf__grows_to_max_and_no_further(void **state)
{
	struct buf b;

	(void)state;
	buf__init(&b, 1000);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(buf__append(&b, (char[]){ (char)i }, 1), 0);
	assert_int_equal(buf__append(&b, "x", 1), -ENOBUFS);
	assert_int_equal(b.len, 1000);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(b.data[i], (uint8_t)i);
	buf__free(&b);
	assert_int_equal(buf__append(&b, "abc", 3), 0);	/* usable after free */
	buf__free(&b);
}

static void test_buf__append_is_all_or_nothing(void **state)
{
	struct buf b;

	(void)state;
	buf__init(&b, 4);
	assert_int_equal(buf__append(&b, "abc", 3), 0);
	assert_int_equal(buf__append(&b, "de", 2), -ENOBUFS);
	assert_int_equal(buf__reserve(&b, SIZE_MAX), -ENOBUFS);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "abc", 3);
	assert_int_equal(buf__append(&b, "d", 1), 0);
	buf__free(&b);
}

static void test_buf__consume(void **state)
{
	struct buf b;

	(void)state;
	buf__init(&b, 100);
	buf__append(&b, "hello", 5);
	buf__consume(&b, 2);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "llo", 3);
	buf__consume(&b, 3);
	assert_int_equal(b.len, 0);
	buf__clear(&b);
	buf__free(&b);
}

static void test_buf__oom(void **state)
{
	int n_failed = 0;

	(void)state;
	OOM_LOOP({
		struct buf b;
		int err = 0;

		buf__init(&b, 4096);
		for (int i = 0; i < 300 && !err; i++) {
			size_t len = b.len;

			err = buf__append(&b, "0123456789", 10);
			assert_true(err == 0 || (err == -ENOMEM && b.len == len));
		}
		n_failed += err != 0;
		assert_int_equal(b.len % 10, 0);
		buf__free(&b);
	});
	assert_true(n_failed > 3);
}

struct point {
	uint32_t x, y;
};

static void test_vec__push(void **state)
{
	VEC(struct point) v = { 0 };
	struct point *p;

	(void)state;
	for (uint32_t i = 0; i < 100; i++) {
		p = vec_push(&v, 100);
		assert_non_null(p);
		assert_int_equal(p->x, 0);
		assert_int_equal(p->y, 0);
		*p = (struct point){ i, i + 1 };
	}
	assert_null(vec_push(&v, 100));
	assert_int_equal(v.n, 100);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(v.v[i].x, i);
	v.n = 50;	/* a shorter array gives zeros again */
	p = vec_push(&v, 100);
	assert_int_equal(p->x, 0);
	vec_free(&v);
	assert_int_equal(v.cap, 0);
}

static void test_vec__oom(void **state)
{
	int n_failed = 0;

	(void)state;
	OOM_LOOP({
		VEC(uint64_t) v = { 0 };
		size_t n = 0;

		while (n < 200 && vec_push(&v, 1000))
			n++;
		n_failed += n < 200;
		assert_int_equal(v.n, n);
		vec_free(&v);
	});
	assert_true(n_failed > 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buf__grows_to_max_and_no_further),
		cmocka_unit_test(test_buf__append_is_all_or_nothing),
		cmocka_unit_test(test_buf__consume),
		cmocka_unit_test(test_buf__oom),
		cmocka_unit_test(test_vec__push),
		cmocka_unit_test(test_vec__oom),
	};

	return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
