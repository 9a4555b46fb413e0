/* SPDX-License-Identifier: Apache-2.0 */
/* The first value that is large enough: against a walk along all of them. */
#include "unit.h"

#include "base/firstfit.h"

static size_t walk(const double *v, size_t n, size_t from, double least)
{
	while (from < n && !(v[from] >= least))
		from++;
	return from < n ? from : n;
}

static void test_firstfit__as_a_walk(void **state)
{
	uint32_t random = 1;

	(void)state;
	for (size_t n = 0; n < 20; n++) {
		struct firstfit *f = firstfit__new(n);
		double v[20];

		assert_non_null(f);
		for (size_t i = 0; i < 20; i++)
			v[i] = -__builtin_inf();
		for (int round = 0; round < 200; round++) {
			random = random * 1103515245 + 12345;
			if (n && round) {
				size_t i = (random >> 8) % n;

				v[i] = random >> 16 & 1 ? (random >> 17) % 50 : -__builtin_inf();
				firstfit__set(f, i, v[i]);
			}
			for (size_t from = 0; from <= n; from++)
				for (double least = -1; least < 52; least += 3)
					assert_int_equal(firstfit__find(f, from, least), walk(v, n, from, least));
		}
		firstfit__free(f);
	}
}

/* Of what is not known how large it is, any amount can be had. */
static void test_firstfit__endless(void **state)
{
	struct firstfit *f = firstfit__new(3);

	(void)state;
	firstfit__set(f, 1, __builtin_inf());
	firstfit__set(f, 2, 5);
	assert_int_equal(firstfit__find(f, 0, 1e30), 1);
	assert_int_equal(firstfit__find(f, 2, 5), 2);
	assert_int_equal(firstfit__find(f, 2, 6), 3);
	firstfit__free(f);
	firstfit__free(NULL);
}

static void test_firstfit__oom(void **state)
{
	struct firstfit *f = NULL;

	(void)state;
	OOM_LOOP({
		f = firstfit__new(5);
		firstfit__free(f);
	});
	assert_non_null(f);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_firstfit__as_a_walk), cmocka_unit_test(test_firstfit__endless),
		cmocka_unit_test(test_firstfit__oom),
	};

	return cmocka_run_group_tests_name("firstfit", tests, NULL, NULL);
}
