/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a waterfall fit a screen also where each step is followed by a pause without one. */
#include "unit.h"
#include "fake_blame.h"
#include "sink/why_priv.h"

enum { N_STEPS = 200 };

/* Each third pause is long, and a little longer than the long one before. */
static void step_by_step(struct fake *f)
{
	struct rec_request *r = fake_request(f, 0);
	uint32_t q = fake_seq(f, r, 0);
	double at = 40;

	fake_step(f, 0, at);
	fake_member(f, q, 'P', 30);
	fake_chunk(r, at, TL_CHUNK_TEXT);
	for (int i = 0; i < N_STEPS; i++) {
		at += i % 3 != 1 ? 0.5 : 10 + 0.05 * i;
		fake_step(f, at, at + 5);
		fake_member(f, q, 'd', 1);
		at += 5;
		fake_chunk(r, at, TL_CHUNK_TEXT);
	}
	fake_done(f, r, at);
}

static void test_why_fold__pauses(void **state)
{
	struct why_causes causes = { .all = { 0 } };
	struct fake *f = fake__new();
	struct why_rows w;
	struct trace t;
	size_t n_holes = 0, n_told = 0;
	uint64_t at;

	(void)state;
	step_by_step(f);
	assert_int_equal(trace__init(&t, &f->v, 0), 0);
	assert_true(t.sum_ns[PART_UNEXPLAINED] > 800000000);	/* else the test tests nothing */
	assert_int_equal(why_rows__build(&w, &t, &causes), 0);
	assert_in_range(w.rows.n, 10, 40);
	at = t.t0_ns;
	for (size_t i = 0; i < w.rows.n; i++) {
		const struct why_row *r = &w.rows.v[i];

		assert_int_equal(r->t0_ns, at);
		at = r->t1_ns;
		if (strstr(r->text, "unexplained: the engine ran no step")) {
			n_holes++;
			assert_true(r->t1_ns - r->t0_ns >= 18500000);	/* the longest ones */
		}
		n_told += strstr(r->text, " decode steps x 5.00 ms + ") && strstr(r->text, " ms unexplained)");
	}
	assert_int_equal(at, t.t1_ns);
	assert_int_equal(n_holes, 8);
	assert_true(n_told >= 1);
	why_rows__free(&w);
	trace__free(&t);
	fake__free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_why_fold__pauses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
