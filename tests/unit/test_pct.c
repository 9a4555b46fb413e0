/* SPDX-License-Identifier: Apache-2.0 */
/* pct and hist: exact ranks against a sort, bucket edges against powers of two, merge. */
#include "unit.h"

#include "base/hist.h"
#include "base/pct.h"

#include <errno.h>
#include <string.h>

static uint64_t random_next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static int cmp_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void test_pct__small(void **state)
{
	uint64_t one[] = { 7 }, ten[] = { 10, 9, 8, 7, 6, 5, 4, 3, 2, 1 };
	uint32_t two[] = { 5, 3 };

	(void)state;
	assert_int_equal(pct_u64(one, 1, 0), 7);
	assert_int_equal(pct_u64(one, 1, 1000), 7);
	assert_int_equal(pct_u32(two, 2, 500), 3);
	assert_int_equal(pct_u32(two, 2, 501), 5);
	assert_int_equal(pct_u64(ten, 10, 500), 5);
	assert_int_equal(pct_u64(ten, 10, 900), 9);
	assert_int_equal(pct_u64(ten, 10, 990), 10);
	assert_int_equal(pct_u64(ten, 10, 100), 1);
	assert_int_equal(pct_u64(ten, 10, 0), 1);
}

/* Shapes that break a careless quickselect. */
static uint64_t shape(int kind, size_t i, size_t n, uint64_t *seed)
{
	switch (kind) {
	case 0: return random_next(seed);
	case 1: return i;			/* sorted */
	case 2: return n - i;
	case 3: return 5;			/* all equal */
	case 4: return i % 3;
	case 5: return i < n / 2 ? i : n - i;	/* organ pipe */
	default: return i % 2 ? i : n * 2 - i;
	}
}

static void test_pct__agrees_with_sort(void **state)
{
	enum { N = 5001 };
	static uint64_t sorted[N], work[N];
	static uint32_t work32[N];
	uint64_t seed = 1;

	(void)state;
	for (int kind = 0; kind < 7; kind++) {
		for (size_t i = 0; i < N; i++) {
			sorted[i] = shape(kind, i, N, &seed) & 0xffffffff;
			work[i] = sorted[i];
			work32[i] = (uint32_t)sorted[i];
		}
		qsort(sorted, N, sizeof(sorted[0]), cmp_u64);
		for (unsigned int p = 0; p <= 1000; p += 5) {
			size_t rank = (N * (size_t)p + 999) / 1000;
			uint64_t want = sorted[rank ? rank - 1 : 0];

			assert_int_equal(pct_u64(work, N, p), want);
			assert_int_equal(pct_u32(work32, N, p), want);
		}
	}
}

static void test_hist__edges(void **state)
{
	struct hist h = { 0 };

	(void)state;
	/* upper ends belong to the bucket: (base^i, base^(i+1)] */
	assert_int_equal(hist_bucket_max(-1), 1);
	assert_int_equal(hist_bucket_max(127), 2);
	assert_int_equal(hist_bucket_max(128 * 10 - 1), 1024);
	assert_int_equal(hist_bucket_max(128 * 64 - 1), UINT64_MAX);
	assert_int_equal(hist_bucket_max(128 * 20 + 63), 1482910);	/* 2^20.5 = 1482910.4 */
	hist__add(&h, 1024, 1);
	assert_int_equal(h.counts[128 * 10 - 1 - h.first], 1);
	hist__add(&h, 1025, 1);
	assert_int_equal(h.counts[128 * 10 - h.first], 1);
	hist__add(&h, 1, 3);
	assert_int_equal(h.counts[-1 - h.first], 3);
	hist__add(&h, UINT64_MAX, 1);
	assert_int_equal(h.counts[128 * 64 - 1 - h.first], 1);
	hist__add(&h, 1482910, 1);
	assert_int_equal(h.counts[128 * 20 + 63 - h.first], 1);
	hist__add(&h, 1482911, 1);
	assert_int_equal(h.counts[128 * 20 + 64 - h.first], 1);
	assert_true(h.n_counts <= 65 * 128);
	hist__free(&h);
}

static void test_hist__quantiles_are_near(void **state)
{
	enum { N = 20000 };
	static uint64_t v[N];
	struct hist h = { 0 };
	uint64_t seed = 9;

	(void)state;
	for (size_t i = 0; i < N; i++) {
		v[i] = random_next(&seed) >> (random_next(&seed) % 50);
		if (i % 100 == 0)
			v[i] = 0;
		assert_int_equal(hist__add(&h, v[i], 1), 0);
	}
	for (unsigned int p = 0; p <= 1000; p += 5) {
		uint64_t want = pct_u64(v, N, p), got = hist__quantile(&h, p);
		uint64_t off = got > want ? got - want : want - got;

		assert_true(off <= want / 200 + 1);
		if (want < 128)
			assert_int_equal(got, want);	/* one integer per bucket: exact */
	}
	assert_int_equal(hist__quantile(&h, 0), pct_u64(v, N, 0));
	assert_int_equal(hist__quantile(&h, 1000), pct_u64(v, N, 1000));
	hist__free(&h);
}

static void test_hist__merge_is_the_same_as_adding(void **state)
{
	struct hist all = { 0 }, a = { 0 }, b = { 0 };
	uint64_t seed = 3;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		uint64_t v = (random_next(&seed) >> (i % 60)) | 1;

		hist__add(&all, v, 2);
		hist__add(i % 2 ? &a : &b, v, 2);
	}
	hist__add(&all, 0, 1);
	hist__add(&b, 0, 1);
	assert_int_equal(hist__merge(&a, &b), 0);
	assert_int_equal(a.n, all.n);
	assert_int_equal(a.n_zero, 1);
	assert_int_equal(a.sum, all.sum);
	assert_int_equal(a.min, 0);
	assert_int_equal(a.max, all.max);
	for (unsigned int p = 0; p <= 1000; p++)
		assert_int_equal(hist__quantile(&a, p), hist__quantile(&all, p));
	hist__free(&b);
	assert_int_equal(hist__merge(&a, &b), 0);	/* an empty one changes nothing */
	assert_int_equal(hist__merge(&b, &a), 0);
	assert_int_equal(b.min, a.min);
	hist__free(&all);
	hist__free(&a);
	hist__free(&b);
}

static void test_hist__oom(void **state)
{
	int n_failed = 0;

	(void)state;
	OOM_LOOP({
		struct hist a = { 0 };
		struct hist b = { 0 };

		for (uint64_t v = 1; v < 1u << 20; v *= 2) {
			uint64_t n = a.n;
			int err = hist__add(&a, v, 1);

			assert_int_equal(a.n, n + (err == 0));
			assert_true(err == 0 || err == -ENOMEM);
			n_failed += err != 0;
		}
		if (hist__merge(&b, &a))
			assert_int_equal(b.n, 0);
		else
			assert_int_equal(b.n, a.n);
		assert_int_equal(a.n + a.n_refused, 20);
		hist__free(&a);
		hist__free(&b);
	});
	assert_true(n_failed > 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pct__small),
		cmocka_unit_test(test_pct__agrees_with_sort),
		cmocka_unit_test(test_hist__edges),
		cmocka_unit_test(test_hist__quantiles_are_near),
		cmocka_unit_test(test_hist__merge_is_the_same_as_adding),
		cmocka_unit_test(test_hist__oom),
	};

	return cmocka_run_group_tests_name("pct", tests, NULL, NULL);
}
