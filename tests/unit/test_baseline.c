/* SPDX-License-Identifier: Apache-2.0 */
/* What a step costs when nobody disturbs: learnt from steps made by hand. */
#include "unit.h"
#include "fake_view.h"
#include "model/baseline.h"

#include <errno.h>

struct learnt {
	struct fake *f;
	struct step_index ix;
	struct baseline *b;
	double at_ms;
};

static int setup(void **state)
{
	struct learnt *l = calloc(1, sizeof(*l));

	l->f = fake__new();
	for (uint32_t i = 0; i < 60; i++)
		fake_seq(l->f, NULL, i);
	*state = l;
	return 0;
}

static int teardown(void **state)
{
	struct learnt *l = *state;

	baseline__free(l->b);
	step_index__free(&l->ix);
	fake__free(l->f);
	free(l);
	return 0;
}

/* A step behind the last one in which n sequences decode and, if any, another prefills. */
static uint32_t step(struct learnt *l, double hole_ms, double ms, uint32_t n, uint32_t prefill)
{
	fake_step(l->f, l->at_ms + hole_ms, l->at_ms + hole_ms + ms);
	l->at_ms += hole_ms + ms;
	for (uint32_t i = 0; i < n; i++)
		fake_member(l->f, i, 'd', 1);
	if (prefill)
		fake_member(l->f, 59, 'p', prefill);
	return (uint32_t)l->f->v.n_steps - 1;
}

static void steps(struct learnt *l, size_t n_steps, double ms, uint32_t n, uint32_t prefill)
{
	for (size_t i = 0; i < n_steps; i++)
		step(l, 1, ms, n, prefill);
}

static void learn(struct learnt *l, const struct baseline_evidence *ev)
{
	assert_int_equal(step_index__init(&l->ix, &l->f->v), 0);
	assert_int_equal(baseline__new(&l->ix, ev, &l->b), 0);
}

static double decode_ms(const struct learnt *l, uint32_t i)
{
	struct expected e;

	baseline__step(l->b, i, &e);
	return (double)e.decode_ns / 1e6;
}

#define assert_near(a, b, tolerance) do {						\
	double a_ = (a), b_ = (b);							\
	if (a_ < b_ - (tolerance) || a_ > b_ + (tolerance))				\
		fail_msg("%g is not within %g of %g", a_, (double)(tolerance), b_);	\
} while (0)

static void test_baseline__decode_by_batch(void **state)
{
	struct learnt *l = *state;
	struct expected e;
	uint32_t two, eight;

	steps(l, 20, 10, 2, 0);
	two = step(l, 1, 10, 2, 0);
	steps(l, 20, 16, 8, 0);
	eight = step(l, 1, 50, 8, 0);
	learn(l, NULL);
	assert_near(decode_ms(l, two), 10, 0.001);
	assert_near(decode_ms(l, eight), 16, 0.001);
	baseline__step(l->b, two, &e);
	assert_near((double)e.hole_ns / 1e6, 1, 0.001);
	assert_int_equal(e.n_learnt, 21);
	assert_int_equal(e.err_ns, 1000000);	/* a tenth, as nothing spreads */
	assert_int_equal(e.step_ns, e.decode_ns);
	assert_int_equal(baseline__n_learnt(l->b), 42);
}

static void test_baseline__slow_minority(void **state)
{
	struct learnt *l = *state;

	steps(l, 100, 10, 1, 0);
	steps(l, 30, 12, 1, 0);	/* a slow mode, one spell of it, at the largest contexts */
	learn(l, NULL);
	assert_near(decode_ms(l, 0), 10, 0.1);
	assert_near(decode_ms(l, 129), 10, 0.3);
}

static void test_baseline__batch_never_seen(void **state)
{
	struct learnt *l = *state;
	uint32_t between, above, below;

	steps(l, 10, 10, 2, 0);
	steps(l, 10, 20, 12, 0);
	between = step(l, 1, 99, 7, 0);
	above = step(l, 1, 99, 13, 0);
	below = step(l, 1, 99, 1, 0);
	learn(l, NULL);
	assert_near(decode_ms(l, between), 15, 0.001);
	assert_near(decode_ms(l, above), 20, 0.001);
	assert_near(decode_ms(l, below), 10, 0.001);
}

static void test_baseline__context(void **state)
{
	struct learnt *l = *state;

	for (int i = 0; i < 400; i++)
		step(l, 0, 5 + i * 0.01, 1, 0);
	learn(l, NULL);
	assert_near(decode_ms(l, 10), 5.1, 0.1);
	assert_near(decode_ms(l, 390), 8.9, 0.1);
}

static void test_baseline__prefill(void **state)
{
	struct learnt *l = *state;
	struct expected e;
	uint32_t known, twice, odd;

	steps(l, 20, 10, 2, 0);
	steps(l, 4, 110, 2, 1000);
	known = step(l, 1, 110, 2, 1000);
	twice = step(l, 1, 300, 2, 2000);
	odd = step(l, 1, 10, 2, 3);
	learn(l, NULL);
	baseline__step(l->b, known, &e);
	assert_near((double)e.step_ns / 1e6, 110, 0.1);
	assert_near((double)e.decode_ns / 1e6, 10, 0.1);
	assert_int_equal(e.n_prefill, 5);
	baseline__step(l->b, twice, &e);	/* from the size nearest */
	assert_near((double)e.step_ns / 1e6, 210, 0.1);
	baseline__step(l->b, odd, &e);		/* nothing like it */
	assert_int_equal(e.n_prefill, 0);
	assert_int_equal(e.step_ns, e.decode_ns);
}

static void test_baseline__too_few(void **state)
{
	struct learnt *l = *state;
	struct expected e;

	steps(l, 5, 10, 1, 0);
	learn(l, NULL);
	baseline__step(l->b, 0, &e);
	assert_int_equal(e.n_learnt, 0);
	assert_int_equal(e.decode_ns, 0);
	assert_int_equal(baseline__n_learnt(l->b), 0);
}

/* Each step of 12 ms was held up for 2. */
static uint64_t two_ms(void *ctx, uint32_t engine, uint64_t t0, uint64_t t1)
{
	assert_null(ctx);
	assert_int_equal(engine, 0);
	return t1 - t0 == 12000000 ? 2000000 : 0;
}

static bool longer_than_20(void *ctx, uint32_t i)
{
	const struct model_view *v = ctx;

	return v->steps[i].t1_ns - v->steps[i].t0_ns > 20000000;
}

static void test_baseline__disturbed(void **state)
{
	struct learnt *l = *state;
	const struct baseline_evidence ev = { .disturbed_ns = two_ms };

	steps(l, 40, 12, 1, 0);
	learn(l, &ev);
	assert_near(decode_ms(l, 0), 10, 0.001);
}

static void test_baseline__odd_steps_teach_nothing(void **state)
{
	struct learnt *l = *state;
	const struct baseline_evidence ev = { .is_odd = longer_than_20, .ctx = &l->f->v };
	uint32_t odd;

	steps(l, 10, 10, 48, 0);
	steps(l, 20, 34, 49, 0);
	odd = step(l, 1, 34, 49, 0);
	learn(l, &ev);
	assert_near(decode_ms(l, odd), 10, 0.001);
}

static void test_step_index__overlap_counts_once(void **state)
{
	struct learnt *l = *state;
	struct step_span s;

	fake_step(l->f, 0, 10);
	fake_step(l->f, 5, 30);
	fake_step(l->f, 12, 20);	/* ends before the one before it */
	assert_int_equal(step_index__init(&l->ix, &l->f->v), 0);
	s = step_index__span(&l->ix, 2);
	assert_int_equal(s.hole_ns, fake_ns(10));
	assert_int_equal(s.t0_ns, fake_ns(12));
	s = step_index__span(&l->ix, 1);
	assert_int_equal(s.t0_ns, fake_ns(20));
	assert_int_equal(s.t1_ns, fake_ns(30));
	assert_int_equal(step_index__after(&l->ix, 0, fake_ns(10)), 1);
	assert_int_equal(step_index__after(&l->ix, 0, fake_ns(99)), 3);
}

static void test_step_index__no_order_at_all(void **state)
{
	struct learnt *l = *state;

	for (int i = 0; i < 1000; i++)
		fake_step(l->f, 1000 - i, 1001 - i);
	assert_int_equal(step_index__init(&l->ix, &l->f->v), 0);
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(l->ix.order[i], 999 - i);
}

static void test_baseline__out_of_memory(void **state)
{
	struct learnt *l = *state;

	steps(l, 20, 10, 2, 0);
	steps(l, 20, 110, 2, 1000);
	OOM_LOOP({
		int err = step_index__init(&l->ix, &l->f->v);

		if (!err)
			err = baseline__new(&l->ix, NULL, &l->b);
		if (err) {
			assert_int_equal(err, -ENOMEM);
			step_index__free(&l->ix);
			l->b = NULL;
		}
	});
	assert_non_null(l->b);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_baseline__decode_by_batch),
		T(test_baseline__slow_minority),
		T(test_baseline__batch_never_seen),
		T(test_baseline__context),
		T(test_baseline__prefill),
		T(test_baseline__too_few),
		T(test_baseline__disturbed),
		T(test_baseline__odd_steps_teach_nothing),
		T(test_step_index__overlap_counts_once),
		T(test_step_index__no_order_at_all),
		T(test_baseline__out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
