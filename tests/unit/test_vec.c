/* SPDX-License-Identifier: Apache-2.0 */
/* vec: growth, bounds, what is left after a failure. */
#include "unit.h"

#include "base/vec.h"

#include <errno.h>
#include <string.h>

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
		cmocka_unit_test(test_vec__push),
		cmocka_unit_test(test_vec__oom),
	};

	return cmocka_run_group_tests_name("vec", tests, NULL, NULL);
}
