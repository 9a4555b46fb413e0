/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces that overlap: each moment has the reason nearest to the hardware, and none is lost or doubled. */
#include "unit.h"

#include "base/util.h"
#include "model/clues_priv.h"
#include "oom.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40, SPAN = 200, ROUNDS = 3000 };

/* The best rank at each moment; N_PIECE_RANKS: none. */
static void paint(const struct piece *p, size_t n, uint8_t at[SPAN])
{
	memset(at, N_PIECE_RANKS, SPAN);
	for (size_t i = 0; i < n; i++)
		for (uint64_t t = p[i].t0_ns; t < p[i].t1_ns; t++)
			if (p[i].rank < at[t])
				at[t] = p[i].rank;
}

static void check(const struct piece *p, size_t n, const uint8_t want[SPAN])
{
	uint8_t at[SPAN];

	for (size_t i = 0; i < n; i++) {
		assert_true(p[i].t0_ns < p[i].t1_ns);
		assert_true(!i || p[i - 1].t1_ns <= p[i].t0_ns);
	}
	paint(p, n, at);
	assert_memory_equal(at, want, sizeof(at));
}

static size_t draw(struct piece *p)
{
	size_t n = rand() % N;

	for (size_t i = 0; i < n; i++) {
		uint64_t t0 = rand() % (SPAN - 1), t1 = t0 + 1 + rand() % 30;

		p[i] = (struct piece){ .t0_ns = t0, .t1_ns = t1 < SPAN ? t1 : SPAN, .at = i,
				       .rank = rand() % N_PIECE_RANKS };
	}
	return n;
}

static void test_pieces__random(void **state)
{
	struct piece in[N], ret[2 * N], room[2 * N];
	uint8_t want[SPAN];

	(void)state;
	srand(7);
	for (int round = 0; round < ROUNDS; round++) {
		struct piece_list raw = { 0 };
		struct line l = { 0 };
		size_t n = draw(in), n_out;

		paint(in, n, want);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(piece_add(&raw, &in[i]), 0);
		assert_int_equal(line_make(&raw, &l), 0);
		check(l.p, l.n, want);
		n_out = pieces_lay_out(in, n, ret, room);
		check(ret, n_out, want);
		assert_int_equal(n_out, l.n);
		vec_free(&raw.l);
		free(l.p);
	}
}

static void test_pieces__after(void **state)
{
	static const struct piece p[] = { { .t0_ns = 10, .t1_ns = 20 }, { .t0_ns = 20, .t1_ns = 30 },
					  { .t0_ns = 50, .t1_ns = 60 } };
	static const struct { uint64_t t; size_t want; } cases[] = {
		{ 0, 0 }, { 10, 0 }, { 19, 0 }, { 20, 1 }, { 30, 2 }, { 59, 2 }, { 60, 3 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(pieces_after(p, ARRAY_SIZE(p), cases[i].t), cases[i].want);
	assert_int_equal(pieces_after(NULL, 0, 5), 0);
}

static void test_pieces__empty_ones_are_not_kept(void **state)
{
	struct piece_list raw = { 0 };

	(void)state;
	assert_int_equal(piece_add(&raw, &(struct piece){ .t0_ns = 5, .t1_ns = 5 }), 0);
	assert_int_equal(piece_add(&raw, &(struct piece){ .t0_ns = 6, .t1_ns = 5 }), 0);
	assert_int_equal(raw.l.n, 0);
}

static void test_pieces__survives_oom(void **state)
{
	struct piece in[N];
	size_t n;
	int err = -1;

	(void)state;
	srand(11);
	do
		n = draw(in);
	while (n < N / 2);
	OOM_LOOP({
		struct piece_list raw = { 0 };
		struct line l = { 0 };

		err = 0;
		for (size_t i = 0; i < n && !err; i++)
			err = piece_add(&raw, &in[i]);
		if (!err)
			err = line_make(&raw, &l);
		assert_true(!err || err == -ENOMEM);
		vec_free(&raw.l);
		free(l.p);
	});
	assert_int_equal(err, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces__random), cmocka_unit_test(test_pieces__after),
		cmocka_unit_test(test_pieces__empty_ones_are_not_kept), cmocka_unit_test(test_pieces__survives_oom),
	};

	return cmocka_run_group_tests_name("clues_pieces", tests, NULL, NULL);
}
