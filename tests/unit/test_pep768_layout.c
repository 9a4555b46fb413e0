/* SPDX-License-Identifier: Apache-2.0 */
/* What CPython 3.14 says of its structs: a true table, and those that somebody made up. */
#include "source/pep768_layout.h"

#include <errno.h>
#include <string.h>

#include "unit.h"

enum { N_WORDS = PEP768_TABLE_BYTES / 8, SECTION = 0x4d4c8 };

/* As in 3.14.8 for x86-64, where it matters to us. */
static void fill(uint64_t w[N_WORDS])
{
	memset(w, 0, PEP768_TABLE_BYTES);
	memcpy(w, "xdebugpy", 8);
	w[1] = 0x030e08f0;
	w[3] = SECTION;
	w[4] = 0x310;
	w[5] = 0x328;
	w[6] = 0x37248;
	w[7] = 0x1c70;
	w[8] = 0x1c68;
	w[9] = 0x1ca8;
	w[10] = 0x1cb0;
	w[22] = 832;
	w[24] = 8;
	w[25] = 16;
	w[28] = 160;
	w[89] = 24;
	w[90] = 304;
	w[91] = 8076;
	w[92] = 0;
	w[93] = 4;
	w[94] = 512;
}

static int parse(const uint64_t w[N_WORDS], struct pep768_layout *ret, char why[96])
{
	*why = 0;
	return pep768_layout__parse(w, PEP768_TABLE_BYTES, SECTION, ret, why);
}

static void test_layout__true_table(void **state)
{
	struct pep768_layout l;
	uint64_t w[N_WORDS];
	char why[96];

	(void)state;
	fill(w);
	assert_int_equal(parse(w, &l, why), 0);
	assert_int_equal(l.finalizing, 0x310);
	assert_int_equal(l.interpreters_head, 0x328);
	assert_int_equal(l.id, 0x1c70);
	assert_int_equal(l.next, 0x1c68);
	assert_int_equal(l.threads_main, 0x1cb0);
	assert_int_equal(l.may_debug, 8076);
	assert_int_equal(l.interp, 16);
	assert_int_equal(l.native_id, 160);
	assert_int_equal(l.eval_breaker, 24);
	assert_int_equal(l.pending, 304);
	assert_int_equal(l.path, 308);
	assert_int_equal(l.path_bytes, 512);
	assert_string_equal(why, "");
}

/* Which it may be, and what is said of the others. */
static void test_layout__versions(void **state)
{
	static const struct {
		uint64_t version, free_threaded;
		int err;
		const char *why;
	} cases[] = {
		{ 0x030e00f0, 0, 0, "" },
		{ 0x030e63f0, 0, 0, "" },
		{ 0x030d05f0, 0, -ENOENT, "" },
		{ 0x020712f0, 0, -ENOENT, "" },
		{ 0, 0, -ENOENT, "" },
		{ 0x1030e08f0, 0, -ENOENT, "" },
		{ 0x030e00c2, 0, -ENOTSUP, "no final release" },
		{ 0x030e08f0, 1, -ENOTSUP, "without a GIL" },
		{ 0x030f00f0, 0, -ENOTSUP, "Python 3.15 is newer" },
		{ 0x041000f0, 0, -ENOTSUP, "Python 4.16 is newer" },
		{ 0xffffffff, 0, -ENOTSUP, "is newer" },
	};
	struct pep768_layout l;
	uint64_t w[N_WORDS];
	char why[96];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fill(w);
		w[1] = cases[i].version;
		w[2] = cases[i].free_threaded;
		assert_int_equal(parse(w, &l, why), cases[i].err);
		assert_non_null(strstr(why, cases[i].why));
		assert_int_equal(!*why, !*cases[i].why);
	}
	fill(w);
	memcpy(w, "xdebugpx", 8);
	assert_int_equal(parse(w, &l, why), -ENOENT);
	fill(w);
	assert_int_equal(pep768_layout__parse(w, PEP768_TABLE_BYTES - 1, SECTION, &l, why), -ENOENT);
	assert_int_equal(pep768_layout__parse(w, 0, SECTION, &l, why), -ENOENT);
}

static void test_layout__impossible(void **state)
{
	static const struct { uint32_t word; uint64_t value; } cases[] = {
		{ 3, 0 }, { 3, SECTION + 1 },		/* the runtime is the section */
		{ 4, 0 }, { 4, 0x311 }, { 4, SECTION },	/* within the table; not aligned; outside */
		{ 5, 0x2f0 }, { 5, SECTION - 7 }, { 5, UINT64_MAX },
		{ 6, 0 }, { 6, UINT64_MAX }, { 6, 1 << 30 },
		{ 7, 0x37248 }, { 8, 0x37244 }, { 10, 0x1cb4 }, { 10, UINT64_MAX - 7 },
		{ 91, 0x37248 }, { 91, 8077 },
		{ 22, 0 }, { 22, 512 }, { 22, UINT64_MAX },
		{ 25, 17 }, { 25, 832 }, { 28, 832 }, { 28, UINT64_MAX - 3 },
		{ 89, 20 }, { 89, 832 }, { 89, 304 }, { 89, 808 },	/* it would be the flag; the end of the path */
		{ 90, 832 }, { 90, 318 }, { 90, UINT64_MAX - 3 }, { 90, 8 },	/* the path would be over the rest */
		{ 92, 4 }, { 92, 832 }, { 92, UINT64_MAX - 303 }, { 92, 2 },
		{ 93, 0 }, { 93, 60 }, { 93, UINT64_MAX - 299 },
		{ 94, 0 }, { 94, 127 }, { 94, 525 }, { 94, 4097 }, { 94, UINT64_MAX },
	};
	struct pep768_layout l;
	uint64_t w[N_WORDS];
	char why[96];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fill(w);
		w[cases[i].word] = cases[i].value;
		if (parse(w, &l, why) != -EPROTO)
			fail_msg("word %u may be %lx", cases[i].word, (unsigned long)cases[i].value);
		assert_string_equal(why, "what its Python says of its own structs cannot be true");
	}
}

/* Whatever stands there: what is taken lies where it belongs, and nothing over something else. */
static void test_layout__any_word(void **state)
{
	static const uint64_t values[] = { 0, 1, 7, 8, 16, 24, 160, 300, 304, 312, 324, 500, 831, 832, 4096, 8076, 0x37240,
					   0x37248, SECTION, UINT32_MAX, 1ull << 32, 1ull << 63, UINT64_MAX - 511, UINT64_MAX };
	struct pep768_layout l;
	uint64_t w[N_WORDS];
	size_t n_taken = 0;
	char why[96];

	(void)state;
	for (size_t a = 3; a < N_WORDS; a++) {
		for (size_t b = a; b < N_WORDS; b++) {
			for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
				fill(w);
				w[a] = values[i];
				w[b] = values[(i * 7 + b) % ARRAY_SIZE(values)];
				if (parse(w, &l, why))
					continue;
				n_taken++;
				assert_true(l.finalizing >= PEP768_TABLE_BYTES && l.finalizing + 8 <= SECTION);
				assert_true(l.interpreters_head >= PEP768_TABLE_BYTES && l.interpreters_head + 8 <= SECTION);
				assert_true(l.id + 8 <= w[6] && l.next + 8 <= w[6] && l.threads_main + 8 <= w[6] &&
					    l.may_debug + 4 <= w[6]);
				assert_true(l.interp + 8 <= w[22] && l.native_id + 8 <= w[22] && l.eval_breaker + 8 <= w[22] &&
					    l.pending + 4 <= w[22] && l.path + l.path_bytes <= w[22]);
				assert_true(l.pending + 4 <= l.path || l.path + l.path_bytes <= l.pending);
				assert_true(l.eval_breaker + 8 <= l.path || l.path + l.path_bytes <= l.eval_breaker);
				assert_true(l.eval_breaker + 8 <= l.pending || l.pending + 4 <= l.eval_breaker);
			}
		}
	}
	assert_true(n_taken > 1000);	/* most words do not matter */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout__true_table),
		cmocka_unit_test(test_layout__versions),
		cmocka_unit_test(test_layout__impossible),
		cmocka_unit_test(test_layout__any_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
