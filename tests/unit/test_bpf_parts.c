/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of BPF programs that are plain C: what is kept of a call's bytes, and counting losses. */
#include "unit.h"

#include <linux/types.h>
#include <string.h>

#include "../bpf/cells.h"
#include "../bpf/cut.h"

enum { MAX_TOTAL = 64 };

/* Copies as copy_piece of net.bpf.c does; returns head + tail bytes kept, in buf. */
static size_t keep(const uint8_t *data, uint32_t total, const uint32_t *pieces, size_t n, uint32_t max_head,
		   uint32_t max_tail, uint8_t *buf, size_t size)
{
	struct cut c = cut_of(total, max_head, max_tail);
	uint32_t pos = 0, head = 0, tail = 0;

	for (size_t i = 0; i < n && pos < total; i++) {
		uint32_t len = pieces[i] < total - pos ? pieces[i] : total - pos;
		struct cut_range h = cut_head(c, pos, len), t = cut_tail(c, pos, len);

		assert_true(h.dst <= max_head + max_tail || !h.len);
		assert_true(h.src + h.len <= len && t.src + t.len <= len);
		assert_true(!h.len || h.dst + h.len <= size);
		assert_true(!t.len || t.dst + t.len <= size);
		memcpy(buf + h.dst, data + pos + h.src, h.len);
		memcpy(buf + t.dst, data + pos + t.src, t.len);
		head += h.len;
		tail += t.len;
		pos += len;
	}
	assert_int_equal(head, c.head_end);
	assert_int_equal(tail, total - c.tail_start);
	return head + tail;
}

/* Every total, head and tail limit, cut into pieces of every size: the ends come out, in order. */
static void test_cut__keeps_both_ends(void **state)
{
	static const uint32_t heads[] = { 0, 1, 5, 16 }, tails[] = { 0, 1, 3, 16 };
	uint8_t data[MAX_TOTAL], want[MAX_TOTAL], got[MAX_TOTAL];
	uint32_t pieces[MAX_TOTAL];
	size_t n;

	(void)state;
	for (size_t i = 0; i < MAX_TOTAL; i++)
		data[i] = i + 1;
	for (size_t h = 0; h < ARRAY_SIZE(heads); h++) {
		for (size_t t = 0; t < ARRAY_SIZE(tails); t++) {
			for (uint32_t total = 1; total <= MAX_TOTAL; total++) {
				uint32_t head = heads[h], tail = tails[t];

				if (total <= head + tail) {
					memcpy(want, data, total);
					head = total;
					tail = 0;
				} else {
					memcpy(want, data, head);
					memcpy(want + head, data + total - tail, tail);
				}
				for (uint32_t size = 1; size <= total; size++) {
					for (size_t i = 0; i < MAX_TOTAL; i++)
						pieces[i] = size;
					n = keep(data, total, pieces, MAX_TOTAL, heads[h], tails[t], got,
						 heads[h] + tails[t]);
					assert_int_equal(n, head + tail);
					assert_memory_equal(got, want, n);
				}
			}
		}
	}
}

static void test_cut__skips_empty_pieces(void **state)
{
	const uint32_t pieces[] = { 0, 3, 0, 0, 9, 0 };
	const uint8_t data[] = "abcdefghijkl";
	uint8_t got[8];

	(void)state;
	assert_int_equal(keep(data, 12, pieces, 6, 4, 2, got, 6), 6);
	assert_memory_equal(got, "abcdkl", 6);
}

static void test_cut__does_not_overflow_at_the_largest_call(void **state)
{
	struct cut c = cut_of(0x7fffffff, 4096, 1024);
	struct cut_range r = cut_tail(c, 0, 0x7fffffff);

	(void)state;
	assert_int_equal(c.head_end, 4096);
	assert_int_equal(r.src, 0x7fffffff - 1024);
	assert_int_equal(r.dst, 4096);
	assert_int_equal(r.len, 1024);
}

static void test_cell__remembers_span_and_kind(void **state)
{
	struct cell c = { 0 };

	(void)state;
	cell_add_lost(&c, 7, 100);
	cell_add_lost(&c, 7, 150);
	assert_int_equal(c.n_lost, 2);
	assert_int_equal(c.first_ns, 100);
	assert_int_equal(c.last_ns, 150);
	assert_int_equal(c.what, 7);
	cell_add_lost(&c, 8, 160);
	assert_int_equal(c.what, 0);	/* mixed */

	c.taken = c.n_lost;		/* the agent told */
	cell_add_lost(&c, 8, 900);
	assert_int_equal(c.n_lost, 4);
	assert_int_equal(c.first_ns, 900);
	assert_int_equal(c.what, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut__keeps_both_ends),
		cmocka_unit_test(test_cut__skips_empty_pieces),
		cmocka_unit_test(test_cut__does_not_overflow_at_the_largest_call),
		cmocka_unit_test(test_cell__remembers_span_and_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
