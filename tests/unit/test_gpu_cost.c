/* SPDX-License-Identifier: Apache-2.0 */
/* What steps take, learnt from steps of which it is known what was in them. */
#include "unit.h"

#include "model/gpu.h"
#include "model/gpu_cost.h"

#include "oom.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { MAX_STEPS = 64 };

struct world {
	struct istep steps[MAX_STEPS];
	struct gpu_load loads[MAX_STEPS];
	struct inferred f;
};

static struct world world(bool graphs)
{
	struct world w;

	memset(&w, 0, sizeof(w));
	w.f.has_graphs = graphs;
	return w;
}

static struct istep *add(struct world *w, uint32_t n_decode, double us)
{
	struct istep *s = &w->steps[w->f.steps.n++];

	assert_true(w->f.steps.n <= MAX_STEPS);
	*s = (struct istep){ .n_decode = n_decode, .busy_ns = (uint64_t)(us * 1000), .waited_ns = GPU_UNKNOWN };
	return s;
}

/* A step in which a prompt of so many tokens begins and ends. */
static struct istep *add_prompt(struct world *w, uint32_t n_decode, uint32_t tokens, double us)
{
	w->loads[w->f.steps.n] = (struct gpu_load){ .ends = 1, .waits = 1, .tokens = tokens };
	return add(w, n_decode, us);
}

static struct gpu_cost fit(struct world *w, int by)
{
	struct gpu_cost c;

	w->f.steps.v = w->steps;
	assert_int_equal(gpu_cost_fit(&w->f, w->loads, by, &c), 0);
	return c;
}

static struct gpu_decodes fit_decodes(struct world *w, int by)
{
	struct gpu_decodes d;

	w->f.steps.v = w->steps;
	assert_int_equal(gpu_decodes_fit(&w->f, w->loads, by, &d), 0);
	return d;
}

#define assert_near(got, want) assert_float_equal((got) / (want), 1, 1e-3)

/* 4,000 us, 100 us per sequence, 10 us per token of a prompt. */
static double us_of(uint32_t n_decode, uint32_t tokens)
{
	return 4000 + 100.0 * n_decode + 10.0 * tokens;
}

static void add_usual(struct world *w)
{
	for (uint32_t n = 1; n <= 6; n++)
		add(w, n, us_of(n, 0));
	for (uint32_t n = 0; n < 6; n++)
		add_prompt(w, n, 40 + 30 * n, us_of(n, 40 + 30 * n));
}

static void assert_usual(const struct gpu_cost *c)
{
	assert_near(c->base_ns, 4000e3);
	assert_near(c->per_seq_ns, 100e3);
	assert_near(c->per_token_ns, 10e3);
}

static void test_gpu_cost__learnt(void **state)
{
	struct world w = world(false);
	struct gpu_cost c;

	(void)state;
	add_usual(&w);
	c = fit(&w, 0);
	assert_true(c.decodes);
	assert_usual(&c);
	c = fit(&w, 1);		/* nobody saw the host wait */
	assert_false(c.decodes);
	assert_true(c.per_token_ns == 0);
}

/* Fewer than four say nothing, and batches of one size say nothing of what a sequence takes. */
static void test_gpu_cost__too_little(void **state)
{
	struct world few = world(false), same = world(false);
	struct gpu_cost c;

	(void)state;
	for (uint32_t n = 1; n <= 3; n++)
		add(&few, n, us_of(n, 0));
	for (uint32_t n = 0; n < 3; n++)
		add_prompt(&few, 1, 40 + n, us_of(1, 40 + n));
	c = fit(&few, 0);
	assert_false(c.decodes);
	assert_true(c.per_token_ns == 0);
	for (int i = 0; i < 6; i++)
		add(&same, 3, us_of(3, 0));
	c = fit(&same, 0);
	assert_false(c.decodes);
}

/* A sequence more takes no less. */
static void test_gpu_cost__never_less(void **state)
{
	struct world w = world(false);
	struct gpu_cost c;

	(void)state;
	for (uint32_t n = 1; n <= 5; n++)
		add(&w, n, 5000 - 10.0 * n);
	c = fit(&w, 0);
	assert_true(c.per_seq_ns == 0);
	assert_near(c.base_ns, 4970e3);
}

/* Steps for which somebody waits, of which it is not known how long they took, or in which nobody decodes: no decodes. */
static void test_gpu_cost__no_decodes(void **state)
{
	struct world w = world(false);
	struct gpu_cost c;

	(void)state;
	add_usual(&w);
	w.loads[w.f.steps.n].waits = 2;
	add(&w, 20, 90000);
	for (uint32_t i = 0; i < 10; i++) {
		add_prompt(&w, 20, 5 + i, 90000);
		w.loads[w.f.steps.n - 1].open = true;
		add_prompt(&w, 20, 5 + i, 0)->busy_ns = GPU_UNKNOWN;
	}
	add(&w, 20, 0)->busy_ns = GPU_UNKNOWN;
	add(&w, 0, 90000);
	c = fit(&w, 0);
	assert_usual(&c);
}

/* What is cut over steps in a row counts together, up to the last of those that wait. */
static void test_gpu_cost__in_a_row(void **state)
{
	struct world w = world(false);
	struct gpu_cost c;

	(void)state;
	for (uint32_t n = 1; n <= 6; n++)
		add(&w, n, us_of(n, 0));
	for (uint32_t n = 1; n <= 5; n++) {
		w.loads[w.f.steps.n].waits = 1;		/* the first part of it, nobody knows how much */
		add(&w, n, us_of(n, 25 * n));
		add_prompt(&w, n, 60 * n, us_of(n, 35 * n));
	}
	c = fit(&w, 0);
	assert_usual(&c);
	/* where nobody saw the steps between two, they do not count together */
	w = world(false);
	for (uint32_t n = 1; n <= 6; n++)
		add(&w, n, us_of(n, 0));
	for (uint32_t n = 1; n <= 5; n++) {
		w.loads[w.f.steps.n].waits = 1;
		add(&w, n, 90000 + n)->segment = 2 * n;
		add_prompt(&w, n, 60 * n, us_of(n, 60 * n))->segment = 2 * n + 1;
	}
	c = fit(&w, 0);
	assert_usual(&c);
}

/* One whose token was late is left out the second time. */
static void test_gpu_cost__odd(void **state)
{
	struct world w = world(false);
	struct gpu_cost c;

	(void)state;
	add_usual(&w);
	for (uint32_t n = 0; n < 12; n++)
		add_prompt(&w, n % 4, 50 + 20 * n, us_of(n % 4, 50 + 20 * n) + (n % 2 ? 3 : -3));
	add_prompt(&w, 2, 100, us_of(2, 100) + 3000);
	c = fit(&w, 0);
	assert_float_equal(c.per_token_ns / 10e3, 1, 0.01);
}

/* Where decodes are replayed, what a step and a sequence take beside a prompt is told by steps with prompts only. */
static void test_gpu_cost__replayed(void **state)
{
	struct world w = world(true);
	struct gpu_cost c;

	(void)state;
	for (uint32_t n = 1; n <= 6; n++)
		add(&w, n, 2000)->replayed = true;
	for (uint32_t n = 0; n < 8; n++)
		add_prompt(&w, n % 4, 40 + 30 * n, us_of(n % 4, 40 + 30 * n));
	add_prompt(&w, 5, 9, 2000)->replayed = true;
	c = fit(&w, 0);
	assert_false(c.decodes);
	assert_usual(&c);
	/* sequences that seem to cost less than nothing cost nothing */
	w = world(true);
	for (uint32_t n = 0; n < 8; n++)
		add_prompt(&w, n, 100 + 30 * (n % 3), 9000 + 10.0 * (100 + 30 * (n % 3)) - 50.0 * n);
	c = fit(&w, 0);
	assert_true(c.per_seq_ns == 0 && c.per_token_ns > 0);
}

static void test_gpu_cost__decodes(void **state)
{
	struct world w = world(true);
	struct gpu_decodes d;

	(void)state;
	for (uint32_t n = 0; n < 16; n++)
		add(&w, 1 + n % 4, us_of(1 + n % 4, 0) + (n / 4 % 2 ? 5 : -5))->replayed = true;
	add(&w, 2, 90000)->replayed = true;	/* it stood still */
	d = fit_decodes(&w, 0);
	assert_true(d.known);
	assert_float_equal(d.base_ns / 4000e3, 1, 0.01);
	assert_float_equal(d.per_seq_ns / 100e3, 1, 0.05);
	assert_in_range(d.err_ns, 4000, 7000);
	assert_false(fit_decodes(&w, 1).known);
	/* one size: what it takes, and nothing of a sequence */
	w = world(false);
	for (int i = 0; i < 5; i++)
		add(&w, 3, 4297 + i * i);
	d = fit_decodes(&w, 0);
	assert_true(d.known && d.per_seq_ns == 0);
	assert_float_equal(d.base_ns, 4303e3, 1);
	w = world(false);
	for (int i = 0; i < 3; i++)
		add(&w, 3, 4300);
	assert_false(fit_decodes(&w, 0).known);
}

static void test_gpu_cost__oom(void **state)
{
	struct world w = world(false);
	int err = -ENOMEM;

	(void)state;
	add_usual(&w);
	w.f.steps.v = w.steps;
	OOM_LOOP({
		struct gpu_cost c;
		struct gpu_decodes d;

		err = gpu_cost_fit(&w.f, w.loads, 0, &c);
		if (!err)
			err = gpu_decodes_fit(&w.f, w.loads, 0, &d);
		assert_true(err == 0 || err == -ENOMEM);
	});
	assert_int_equal(err, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu_cost__learnt), cmocka_unit_test(test_gpu_cost__too_little),
		cmocka_unit_test(test_gpu_cost__never_less), cmocka_unit_test(test_gpu_cost__no_decodes),
		cmocka_unit_test(test_gpu_cost__in_a_row), cmocka_unit_test(test_gpu_cost__odd),
		cmocka_unit_test(test_gpu_cost__replayed), cmocka_unit_test(test_gpu_cost__decodes),
		cmocka_unit_test(test_gpu_cost__oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
