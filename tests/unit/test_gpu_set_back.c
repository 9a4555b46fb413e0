/* SPDX-License-Identifier: Apache-2.0 */
/* Records whose clock was set back while they were taken: each is told at one of two times, and belongs to one. */
#include "gpu_feed.h"
#include "oom.h"

#include <math.h>

enum { N_STEPS = 24, N_PARTS = 10, IDLE_FROM = 6, IDLE_TO = 12 };
#define STEP_MS 7.0
#define BEGIN_MS -84.0		/* of the first step on the device; the clock is set at 0 or a little later */
#define LAST_MS -1.0		/* pairs of clocks around that */
#define FIRST_MS 1.0

/* What the library may take for the time of a record that has two. */
enum told { LATE, EARLY, BY_TURNS };
enum odd { AS_EVER, LONG, PAUSE };	/* one kernel per step; none for a while before it was set */

static const struct set_back_case {
	const char *name;
	double by_ms, set_ms;
	enum told told;
	bool graphs;		/* each step is one, else kernels one by one */
	bool last_told;	/* the last pair before it was set is told, too */
	double ahead_ms;	/* of its step's begin a launch comes */
	double slew_ms;	/* it was not set, but ran slower for a while, and it was not sure that it was not */
	enum odd odd;
} cases[] = {
	{ "late", 50, 0, LATE, false, true, 6, 0, AS_EVER },
	{ "early", 50, 0, EARLY, false, true, 6, 0, AS_EVER },
	{ "by turns", 50, 0, BY_TURNS, false, true, 6, 0, AS_EVER },
	{ "inside a kernel", 50, 0.35, LATE, false, true, 6, 0, AS_EVER },
	{ "inside a kernel, by turns", 50, 0.35, BY_TURNS, false, true, 6, 0, AS_EVER },
	{ "graphs", 50, 0.35, LATE, true, true, 6, 0, AS_EVER },
	{ "graphs, by turns", 50, 0.35, BY_TURNS, true, true, 6, 0, AS_EVER },
	{ "less than a step", 5, 0.35, LATE, false, true, 6, 0, AS_EVER },
	{ "less than a step, by turns", 5, 0.35, BY_TURNS, false, true, 6.5, 0, AS_EVER },
	{ "less than a step, graphs", 5, 0.35, LATE, true, true, 6, 0, AS_EVER },
	{ "less than a step, graphs, early", 5, 0.35, EARLY, true, true, 6.5, 0, AS_EVER },
	{ "the last pair is long ago", 80, 0, LATE, false, false, 6, 0, AS_EVER },
	{ "long kernels", 5, 0.35, LATE, true, true, 6, 0, LONG },
	{ "long kernels, by turns", 5, 0.35, BY_TURNS, true, true, 6, 0, LONG },
	{ "long kernels, between two", 5, 0, LATE, true, true, 6, 0, LONG },
	{ "launched a little later, by another clock", 50, 0, LATE, false, true, -0.01, 0, AS_EVER },
	{ "idle before", 50, 0, LATE, false, true, 6, 0, PAUSE },
	{ "slower", 0, 0, LATE, false, false, 6.5, 4, AS_EVER },
	{ "faster", 0, 0, LATE, false, false, 6.5, -4, AS_EVER },
};

static void feed_pair(struct gpu_feed *f, double t, double gain_ms)
{
	struct tl_clock e = { .hdr = HDR(e, TL_CLOCK, 0, f->tgid, 0, at(t)), .realtime_ns = at(t + 1000 + gain_ms) };

	FEED(f, e);
}

/* As it is told: a clock that was set back by so much showed what it showed then at another time, too. */
static double told_ms(const struct set_back_case *c, double t, int turn, bool *ret_guess)
{
	bool before = t < c->set_ms, twice = fabs(t - c->set_ms) < c->by_ms;
	bool late = c->told == LATE || (c->told == BY_TURNS && turn % 2);

	*ret_guess |= twice;
	if (!twice || before != late)
		return t;
	return before ? t + c->by_ms : t - c->by_ms;
}

static void feed_told(struct gpu_feed *f, const struct set_back_case *c, struct tl_gpu_span s, double t0, double t1, int turn)
{
	bool guess = false;
	double from = told_ms(c, t0, turn, &guess), to = told_ms(c, t1, turn, &guess);

	if (to < from)		/* the library sees to it that none ends before it begins */
		from = t0;
	if (to < from)
		to = t1;
	s.hdr.flags = guess || c->slew_ms != 0 ? TL_F_GUESS : 0;
	s.hdr.ts_ns = at(from);
	s.end_ns = at(to);
	FEED(f, s);
}

static int parts_of(const struct set_back_case *c)
{
	return c->odd == LONG ? 1 : N_PARTS;
}

static void feed_run(struct gpu_feed *f, const struct set_back_case *c, double t, int step)
{
	struct tl_gpu_launch l = launch_of(f, t - c->ahead_ms, TL_CALL_GRAPH, ++f->corr);
	double part = STEP_MS / parts_of(c);

	if (c->graphs)
		FEED(f, l);
	for (int i = 0; i < parts_of(c); i++) {
		double t0 = t + i * part;
		struct tl_gpu_span s = span_of(f, t0, t0 + part, TL_SPAN_KERNEL, f->corr);

		if (!c->graphs) {
			l = launch_of(f, t - c->ahead_ms + 0.003 * i, TL_CALL_KERNEL, ++f->corr);
			FEED(f, l);
			s.corr = f->corr;
		}
		s.graph = c->graphs ? 40 : 0;
		s.name = NAME_GEMM;
		feed_told(f, c, s, t0, t0 + part - 0.01, i + step);
	}
}

static void feed_case(struct gpu_feed *f, const struct set_back_case *c)
{
	feed_engine(f, PID, PID);
	feed_process(f, PID, 0);
	feed_pair(f, -600, 0);
	feed_pair(f, -200, 0);
	if (c->last_told)
		feed_pair(f, LAST_MS, 0);
	feed_pair(f, FIRST_MS, -c->by_ms - c->slew_ms);
	feed_pair(f, 300, -c->by_ms - c->slew_ms);
	for (int i = 0; i < N_STEPS; i++) {
		double t = BEGIN_MS + i * STEP_MS;

		if (c->odd == PAUSE && i >= IDLE_FROM && i < IDLE_TO)
			continue;
		feed_run(f, c, t, i);
		feed_sync(f, t + 0.4, t + STEP_MS + 0.01);
		feed_step(f, t - c->ahead_ms, t + STEP_MS + 0.1, 2, 0);
	}
}

static void check(const struct set_back_case *c, const struct gpu_step *s, double t)
{
	int parts = parts_of(c);

	if (llabs((int64_t)(s->gpu0_ns - at(t))) > 2 || llabs((int64_t)(s->gpu1_ns - at(t + STEP_MS - 0.01))) > 2 ||
	    llabs((int64_t)(s->busy_ns - len(STEP_MS - 0.01 * parts))) > 2 * parts)
		fail_msg("%s: a step at %f is told from %f to %f, busy %f", c->name, t, s->gpu0_ns / 1e6 - 10000,
			 s->gpu1_ns / 1e6 - 10000, s->busy_ns / 1e6);
}

static void test_gpu_set_back__cases(void **state)
{
	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		struct gpu_feed f = gpu_feed_new();
		size_t n = 0, at = 0;

		assert_non_null(f.m);
		feed_case(&f, &cases[k]);
		gpu_feed_done(&f);
		for (int i = 0; i < N_STEPS; i++) {
			if (cases[k].odd == PAUSE && i >= IDLE_FROM && i < IDLE_TO)
				continue;
			assert_true(at < f.v.n_steps);
			n += STEP(&f, at)->busy_ns != GPU_UNKNOWN;
			if (STEP(&f, at)->busy_ns != GPU_UNKNOWN)
				check(&cases[k], STEP(&f, at), BEGIN_MS + i * STEP_MS);
			at++;
		}
		assert_int_equal(at, f.v.n_steps);
		if (n + 1 < at)
			fail_msg("%s: %zu steps of %zu are known", cases[k].name, n, at);
		gpu_feed_free(&f);
	}
}

static void test_gpu_set_back__oom(void **state)
{
	int err = -ENOMEM;

	(void)state;
	OOM_LOOP({
		struct gpu_feed f = gpu_feed_new();

		if (f.m)
			feed_case(&f, &cases[5]);
		err = !f.m ? -ENOMEM : f.err ? f.err : model__finish(f.m);
		assert_true(err == 0 || err == -ENOMEM);
		gpu_feed_free(&f);
	});
	assert_int_equal(err, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu_set_back__cases), cmocka_unit_test(test_gpu_set_back__oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
