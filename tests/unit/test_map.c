/* SPDX-License-Identifier: Apache-2.0 */
/* map: against a plain array as the model, at its bound, in order, out of memory. */
#include "unit.h"

#include "base/map.h"

#include <string.h>

static uint64_t random_next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void test_map__agrees_with_an_array(void **state)
{
	enum { KEYS = 600 };
	struct map *m = map__new(sizeof(uint32_t), 300);
	uint32_t want[KEYS] = { 0 };	/* 0: not there */
	uint64_t seed = 42, refused = 0;
	size_t n = 0;

	(void)state;
	for (int round = 0; round < 50000; round++) {
		uint32_t k = (uint32_t)(random_next(&seed) % KEYS);
		/* far apart, and small neighbours: both hash patterns */
		uint64_t key = k % 2 ? k : (uint64_t)k << 40;

		if (random_next(&seed) % 5 < 3) {
			bool is_new = false;
			uint32_t *v = map__put(m, key, &is_new);

			if (!v) {
				assert_int_equal(n, 300);
				assert_int_equal(want[k], 0);
				refused++;
				continue;
			}
			assert_int_equal(is_new, want[k] == 0);
			assert_int_equal(*v, want[k]);	/* zeros when new */
			n += is_new;
			want[k] = *v = (uint32_t)round + 1;
		} else {
			assert_int_equal(map__del(m, key), want[k] != 0);
			n -= want[k] != 0;
			want[k] = 0;
		}
		assert_int_equal(map__len(m), n);
	}
	assert_true(refused > 0);
	for (uint32_t k = 0; k < KEYS; k++) {
		uint32_t *v = map__get(m, k % 2 ? k : (uint64_t)k << 40);

		assert_int_equal(v ? *v : 0, want[k]);
	}
	map__free(m);
}

static void test_map__walks_by_age(void **state)
{
	struct map *m = map__new(sizeof(uint64_t), 1000);
	uint64_t key, want = 0;
	uint64_t *v;

	(void)state;
	for (uint64_t i = 0; i < 1000; i++)
		*(uint64_t *)map__put(m, i * 7919, NULL) = i;
	assert_true(map__is_full(m));
	for (uint64_t i = 0; i < 1000; i += 2)
		map__del(m, i * 7919);
	for (v = map__oldest(m, &key), want = 1; v; v = map__newer(m, v, &key), want += 2) {
		assert_int_equal(*v, want);
		assert_int_equal(key, want * 7919);
	}
	assert_int_equal(want, 1001);
	map__touch(m, map__get(m, 1 * 7919));
	map__touch(m, map__get(m, 1 * 7919));
	assert_int_equal(*(uint64_t *)map__oldest(m, NULL), 3);
	map__touch(m, map__get(m, 501 * 7919));
	map__del(m, 3 * 7919);
	assert_int_equal(*(uint64_t *)map__oldest(m, NULL), 5);
	map__free(m);
}

static bool drop_third(void *ctx, uint64_t key, void *value)
{
	uint64_t *last = ctx;

	assert_int_equal(*(uint64_t *)value, key + 1);
	assert_true(key == 0 || key > *last);	/* each once, by age */
	*last = key;
	return key % 3 == 0;
}

static void test_map__sweep(void **state)
{
	struct map *m = map__new(sizeof(uint64_t), 10000);
	uint64_t last = 0;

	(void)state;
	for (uint64_t i = 0; i < 3000; i++)
		*(uint64_t *)map__put(m, i, NULL) = i + 1;
	map__sweep(m, drop_third, &last);
	assert_int_equal(last, 2999);
	assert_int_equal(map__len(m), 2000);
	for (uint64_t i = 0; i < 3000; i++)
		assert_int_equal(map__get(m, i) == NULL, i % 3 == 0);
	map__free(m);
}

static void test_map__set_without_values(void **state)
{
	struct map *m = map__new(0, 2);

	(void)state;
	assert_null(map__get(m, 0));
	assert_non_null(map__put(m, 0, NULL));
	assert_non_null(map__put(m, UINT64_MAX, NULL));
	assert_null(map__put(m, 1, NULL));
	assert_non_null(map__put(m, 0, NULL));	/* old keys are still welcome */
	assert_true(map__del(m, 0));
	assert_false(map__del(m, 0));
	assert_non_null(map__get(m, UINT64_MAX));
	map__free(m);
	map__free(NULL);
}

static void test_map__oom(void **state)
{
	int n_failed = 0;

	(void)state;
	OOM_LOOP({
		struct map *m = map__new(24, 10000);
		uint64_t n = 0;

		while (m && n < 500 && map__put(m, n, NULL))
			n++;
		if (m) {
			n_failed += n < 500;
			assert_int_equal(map__len(m), n);
			for (uint64_t i = 0; i < n; i++)
				assert_non_null(map__get(m, i));
		}
		map__free(m);
	});
	assert_true(n_failed > 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_map__agrees_with_an_array),
		cmocka_unit_test(test_map__walks_by_age),
		cmocka_unit_test(test_map__sweep),
		cmocka_unit_test(test_map__set_without_values),
		cmocka_unit_test(test_map__oom),
	};

	return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
