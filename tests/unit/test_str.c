/* SPDX-License-Identifier: Apache-2.0 */
/* str and units: what people type, what they read, what the wire may put into a record. */
#include "unit.h"

#include "base/str.h"
#include "base/units.h"

#include <errno.h>
#include <string.h>

static void test_str__copy(void **state)
{
	char d[6] = "xxxxx";

	(void)state;
	assert_true(str_copy(d, sizeof(d), "ab"));
	assert_memory_equal(d, "ab\0\0\0", 6);
	assert_true(str_copy(d, sizeof(d), "abcde"));
	assert_false(str_copy(d, sizeof(d), "abcdef"));
	assert_string_equal(d, "abcde");
	assert_true(str_copy(d, 1, ""));
	assert_false(str_copy(d, 1, "a"));
	assert_string_equal(d, "");
}

static void test_str__copy_clean(void **state)
{
	char d[8];

	(void)state;
	assert_true(str_copy_clean(d, sizeof(d), "a\0b\n\xc3\xa9~", 7));
	assert_string_equal(d, "a?b???~");
	assert_false(str_copy_clean(d, sizeof(d), "12345678", 8));
	assert_string_equal(d, "1234567");
	assert_true(str_copy_clean(d, sizeof(d), "\x7f\x1b", 2));
	assert_memory_equal(d, "??\0\0\0\0\0", 8);
}

static void test_str__library(void **state)
{
	static const struct {
		const char *path, *want;
	} rows[] = {
		{ "/v/site-packages/msgspec/_core.cpython-311-x86_64-linux-gnu.so", "msgspec/_core.so" },
		{ "/v/site-packages/vllm/_C.abi3.so", "vllm/_C.so" },
		{ "_core.cpython-311-x86_64-linux-gnu.so", "_core.so" },		/* of an older recording */
		{ "_core.cpython-311-x86_64-linux-", "_core.so" },
		{ "/v/tokenizers/tokenizers.abi3.so", "tokenizers.so" },
		{ "/v/a_folder_with_a_long_name_of_its_own/_speedups.cpython-312-aarch64-linux-gnu.so", "_speedups.so" },
		{ "/usr/lib/x86_64-linux-gnu/libc.so.6", "libc.so.6" },
		{ "/a\n/b\xff.abi3.so", "a?/b?.so" },
		{ "/.abi3.so", ".abi3.so" },
		{ "[vdso]", "[vdso]" },
		{ "", "" },
	};
	char d[64], small[8];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		str_library(d, sizeof(d), rows[i].path);
		assert_string_equal(d, rows[i].want);
		str_library(small, sizeof(small), rows[i].path);
		assert_true(strlen(small) < sizeof(small));
	}
}

static const struct {
	int (*parse)(const char *s, uint64_t *ret);
	const char *in;
	int err;
	uint64_t want;
} parse_cases[] = {
	{ str_parse_u64, "0", 0, 0 },
	{ str_parse_u64, "18446744073709551615", 0, UINT64_MAX },
	{ str_parse_u64, "18446744073709551616", -ERANGE, 0 },
	{ str_parse_u64, "0x1f", 0, 31 },
	{ str_parse_u64, "0x", -EINVAL, 0 },
	{ str_parse_u64, "", -EINVAL, 0 },
	{ str_parse_u64, "-1", -EINVAL, 0 },
	{ str_parse_u64, " 1", -EINVAL, 0 },
	{ str_parse_u64, "1 ", -EINVAL, 0 },
	{ str_parse_u64, "010", 0, 10 },
	{ str_parse_duration, "10", 0, 10000000000 },
	{ str_parse_duration, "10s", 0, 10000000000 },
	{ str_parse_duration, "1.5s", 0, 1500000000 },
	{ str_parse_duration, "0.5", 0, 500000000 },
	{ str_parse_duration, "500ms", 0, 500000000 },
	{ str_parse_duration, "250us", 0, 250000 },
	{ str_parse_duration, "7ns", 0, 7 },
	{ str_parse_duration, "2m", 0, 120000000000 },
	{ str_parse_duration, "1h", 0, 3600000000000 },
	{ str_parse_duration, "1.123456789123s", 0, 1123456789 },
	{ str_parse_duration, "0", 0, 0 },
	{ str_parse_duration, "", -EINVAL, 0 },
	{ str_parse_duration, "s", -EINVAL, 0 },
	{ str_parse_duration, "1.s", -EINVAL, 0 },
	{ str_parse_duration, "-1s", -EINVAL, 0 },
	{ str_parse_duration, "1 s", -EINVAL, 0 },
	{ str_parse_duration, "1x", -EINVAL, 0 },
	{ str_parse_duration, "99999999999999999999h", -ERANGE, 0 },
	{ str_parse_duration, "18446744074s", -ERANGE, 0 },
	{ str_parse_size, "4096", 0, 4096 },
	{ str_parse_size, "4k", 0, 4096 },
	{ str_parse_size, "4K", 0, 4096 },
	{ str_parse_size, "1.5MiB", 0, 1572864 },
	{ str_parse_size, "1G", 0, 1u << 30 },
	{ str_parse_size, "4kk", -EINVAL, 0 },
	{ str_parse_size, "17179869184G", -ERANGE, 0 },
};

static void test_str__parse_cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(parse_cases); i++) {
		uint64_t got = 77;
		int err = parse_cases[i].parse(parse_cases[i].in, &got);

		if (err != parse_cases[i].err || got != (err ? 77 : parse_cases[i].want))
			fail_msg("'%s' gave %d, %llu", parse_cases[i].in, err,
				 (unsigned long long)got);
	}
}

static const struct {
	char *(*format)(char *buf, uint64_t n);
	uint64_t n;
	const char *want;
} unit_cases[] = {
	{ units_ns, 0, "0 ns" },
	{ units_ns, 999, "999 ns" },
	{ units_ns, 1000, "1.00 us" },
	{ units_ns, 1234567, "1.23 ms" },
	{ units_ns, 1235000, "1.24 ms" },
	{ units_ns, 12345678, "12.3 ms" },
	{ units_ns, 9994999, "9.99 ms" },
	{ units_ns, 9995000, "10.0 ms" },
	{ units_ns, 99949999, "99.9 ms" },
	{ units_ns, 99950000, "100 ms" },
	{ units_ns, 999499999, "999 ms" },
	{ units_ns, 999500000, "1.00 s" },
	{ units_ns, 99949999999, "99.9 s" },
	{ units_ns, 99999999999, "100 s" },
	{ units_ns, 100000000000, "1m40s" },
	{ units_ns, 123400000000, "2m03s" },
	{ units_ns, 3599600000000, "1h00m" },
	{ units_ns, 18420000000000, "5h07m" },
	{ units_ns, UINT64_MAX, "5124095h34m" },
	{ units_bytes, 512, "512 B" },
	{ units_bytes, 1500, "1.50 kB" },
	{ units_bytes, 999999, "1.00 MB" },
	{ units_bytes, UINT64_MAX, "18.4 EB" },
	{ units_count, 512, "512" },
	{ units_count, 12345678, "12.3M" },
};

static void test_units__cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(unit_cases); i++) {
		char buf[UNITS_LEN];

		assert_string_equal(unit_cases[i].format(buf, unit_cases[i].n), unit_cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_str__copy),
		cmocka_unit_test(test_str__copy_clean),
		cmocka_unit_test(test_str__library),
		cmocka_unit_test(test_str__parse_cases),
		cmocka_unit_test(test_units__cases),
	};

	return cmocka_run_group_tests_name("str", tests, NULL, NULL);
}
