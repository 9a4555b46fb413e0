/* SPDX-License-Identifier: Apache-2.0 */
/* What has no record is not idleness: how long devices were watched, and what is said of them then. */
#include "gpu_feed.h"
#include "oom.h"

#define DEVICE(f) (&(f)->v.gpu->devices[0])

static void feed_mark(struct gpu_feed *f, double t, uint32_t flags)
{
	struct tl_clock e = { .hdr = HDR(e, TL_CLOCK, flags, f->tgid, 0, at(t)), .realtime_ns = at(t) + 5 };

	FEED(f, e);
}

/* A launch that a probe saw, and nobody else. */
static void feed_probe(struct gpu_feed *f, double t, uint16_t call)
{
	struct tl_gpu_launch l = launch_of(f, t, call, 0);

	FEED(f, l);
}

/* A launch that a callback tells, without a record. */
static void feed_lost(struct gpu_feed *f, double t, uint16_t call)
{
	struct tl_gpu_launch l = launch_of(f, t, call, ++f->corr);

	FEED(f, l);
}

static void feed_dropped(struct gpu_feed *f, double t, uint64_t n)
{
	struct tl_gpu_health h = { .hdr = HDR(h, TL_GPU_HEALTH, 0, f->tgid, 0, at(t)), .since_ns = at(t - 1), .records = 10,
				   .dropped = n, .level = TL_GPU_KERNELS, .to_level = TL_GPU_KERNELS };

	FEED(f, h);
}

static struct gpu_feed start(void)
{
	struct gpu_feed f = gpu_feed_new();

	assert_non_null(f.m);
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	return f;
}

/* Kernels of 10 ms each, one every 20 ms from t on. */
static void feed_work(struct gpu_feed *f, double t, int n)
{
	for (int i = 0; i < n; i++, t += 20)
		feed_kernel(f, t, t + 1, t + 11, NAME_GEMM);
}

static void done(struct gpu_feed *f)
{
	gpu_feed_done(f);
	assert_int_equal(f->v.gpu->n_devices, 1);
}

static void test_gpu_seen__all(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_mark(&f, 90, TL_CLOCK_OPENS);
	feed_kernel(&f, 92, 96, 101, NAME_GEMM);
	feed_clock(&f, 100);
	feed_work(&f, 100, 5);
	feed_mark(&f, 200, TL_CLOCK_CLOSES);
	feed_kernel(&f, 201, 202, 204, NAME_GEMM);
	done(&f);
	/* from where all was switched on to where it was switched off again */
	assert_ns(DEVICE(&f)->seen_ns, 100);
	assert_ns(DEVICE(&f)->busy_ns, 51);
	assert_int_equal(DEVICE(&f)->missed_ns, 0);
	assert_false(DEVICE(&f)->at_least);
	assert_int_equal(f.v.gpu->n_windows, 1);
	assert_int_equal(f.v.gpu->windows[0].t0_ns, at(100));
	assert_int_equal(f.v.gpu->windows[0].t1_ns, at(200));
	gpu_feed_free(&f);
}

/* Its record was lost, or its times were none: from the end of what is known to the next thing that is. */
static void test_gpu_seen__lost(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_mark(&f, 90, TL_CLOCK_OPENS);
	feed_clock(&f, 100);
	feed_work(&f, 100, 2);			/* until 131 */
	feed_lost(&f, 125, TL_CALL_KERNEL);	/* behind that one, until 161 at most */
	feed_work(&f, 160, 2);
	feed_mark(&f, 200, TL_CLOCK_CLOSES);
	done(&f);
	assert_ns(DEVICE(&f)->seen_ns, 70);
	assert_ns(DEVICE(&f)->busy_ns, 40);
	assert_ns(DEVICE(&f)->missed_ns, 30);
	gpu_feed_free(&f);
}

/* CUPTI has died: it tells of launches, and of nothing that ran. */
static void test_gpu_seen__dead(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_mark(&f, 90, TL_CLOCK_OPENS);
	feed_clock(&f, 100);
	feed_work(&f, 100, 2);
	for (int t = 140; t < 200; t += 20)
		feed_lost(&f, t, TL_CALL_GRAPH);
	feed_mark(&f, 200, TL_CLOCK_CLOSES);
	done(&f);
	assert_ns(DEVICE(&f)->seen_ns, 40);
	assert_ns(DEVICE(&f)->busy_ns, 20);
	assert_ns(DEVICE(&f)->missed_ns, 60);
	gpu_feed_free(&f);
}

/* A pause of 100 ms between two windows, which no pause of clocks shows. */
static void test_gpu_seen__pause(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	for (int w = 0; w < 2; w++) {
		feed_mark(&f, 90 + 200 * w, TL_CLOCK_OPENS);
		feed_clock(&f, 100 + 200 * w);
		feed_work(&f, 100 + 200 * w, 5);
		feed_mark(&f, 200 + 200 * w, TL_CLOCK_CLOSES);
	}
	done(&f);
	assert_ns(DEVICE(&f)->seen_ns, 200);
	assert_ns(DEVICE(&f)->busy_ns, 100);
	assert_int_equal(f.v.gpu->n_windows, 2);
	gpu_feed_free(&f);
}

/* The same of a library that marks no windows: launches that only probes saw tell. */
static void test_gpu_seen__unmarked(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_clock(&f, 100);
	feed_work(&f, 100, 5);			/* until 191 */
	for (int t = 200; t < 300; t += 20)
		feed_probe(&f, t, TL_CALL_KERNEL);
	feed_work(&f, 300, 5);
	feed_clock(&f, 400);
	done(&f);
	assert_ns(DEVICE(&f)->seen_ns, 199);	/* without 200 to 301 */
	assert_ns(DEVICE(&f)->busy_ns, 100);
	gpu_feed_free(&f);
}

/* ---- windows of graphs ---- */

static void feed_graph_span(struct gpu_feed *f, double t)
{
	struct tl_gpu_launch l = launch_of(f, t, TL_CALL_GRAPH, ++f->corr);
	struct tl_gpu_span s = span_of(f, t + 1, t + 11, TL_SPAN_GRAPH, f->corr);

	l.what = GRAPHS;
	FEED(f, l);
	FEED(f, s);
}

static struct gpu_feed graphs(bool probes, bool kernels)
{
	struct gpu_feed f = start();

	if (probes)	/* they see kernels elsewhere, so they would here */
		feed_probe(&f, 250, TL_CALL_KERNEL);
	feed_mark(&f, 90, TL_CLOCK_OPENS | TL_CLOCK_GRAPHS);
	feed_clock(&f, 100);
	for (int i = 0; i < 5; i++) {
		feed_graph_span(&f, 100 + 20 * i);
		if (kernels)
			feed_probe(&f, 101 + 20 * i, TL_CALL_KERNEL);
	}
	feed_mark(&f, 200, TL_CLOCK_CLOSES);
	done(&f);
	return f;
}

static void test_gpu_seen__graphs(void **state)
{
	static const struct { bool probes, kernels, at_least; } cases[] = {
		{ true, true, true },	/* kernels outside of graphs, and no record of them */
		{ false, false, true },	/* nobody knows whether there are any */
		{ true, false, false },	/* there are none */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct gpu_feed f = graphs(cases[i].probes, cases[i].kernels);

		assert_int_equal(DEVICE(&f)->at_least, cases[i].at_least);
		assert_ns(DEVICE(&f)->busy_ns, 50);
		assert_ns(DEVICE(&f)->seen_ns, 100);
		gpu_feed_free(&f);
	}
}

/* A window of kernels in which none ran: it was idle, and that is known. */
static void test_gpu_seen__idle(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_mark(&f, 90, TL_CLOCK_OPENS);
	feed_clock(&f, 100);
	feed_copy(&f, 110, 111, 112, 2);
	feed_mark(&f, 200, TL_CLOCK_CLOSES);
	done(&f);
	assert_false(DEVICE(&f)->at_least);
	assert_ns(DEVICE(&f)->busy_ns, 1);
	gpu_feed_free(&f);
}

/* Whole windows are believed, those of graphs then say nothing of the device. */
static void test_gpu_seen__both(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_mark(&f, 90, TL_CLOCK_OPENS);
	feed_clock(&f, 100);
	feed_work(&f, 100, 5);
	feed_mark(&f, 200, TL_CLOCK_CLOSES);
	feed_mark(&f, 290, TL_CLOCK_OPENS | TL_CLOCK_GRAPHS);
	feed_clock(&f, 300);
	feed_graph_span(&f, 300);
	feed_mark(&f, 400, TL_CLOCK_CLOSES);
	done(&f);
	assert_false(DEVICE(&f)->at_least);
	assert_ns(DEVICE(&f)->seen_ns, 100);
	assert_ns(DEVICE(&f)->busy_ns, 50);
	gpu_feed_free(&f);
}

/* Of a window of graphs, a step with kernels outside of them was busy for at least, idle for at most so long. */
static void test_gpu_seen__step(void **state)
{
	for (int kernels = 0; kernels < 2; kernels++) {
		struct gpu_feed f = start();

		(void)state;
		feed_probe(&f, 50, TL_CALL_KERNEL);
		feed_mark(&f, 90, TL_CLOCK_OPENS | TL_CLOCK_GRAPHS);
		feed_clock(&f, 95);
		for (int i = 0; i < 5; i++) {
			double t = 100 + 20 * i;

			feed_graph_span(&f, t);
			if (kernels || i == 0)
				feed_probe(&f, t + 1, TL_CALL_KERNEL);
			feed_sync(&f, t + 2, t + 12);
			feed_step(&f, t - 0.1, t + 13, 2, 0);
		}
		feed_mark(&f, 200, TL_CLOCK_CLOSES);
		done(&f);
		assert_ns(STEP(&f, 2)->busy_ns, 10);
		assert_int_equal(STEP(&f, 2)->at_least, kernels);
		gpu_feed_free(&f);
	}
}

/* What was lost may have been launches, too: without probes nobody knows. */
static void test_gpu_seen__dropped(void **state)
{
	for (int probes = 0; probes < 2; probes++) {
		struct gpu_feed f = start();

		(void)state;
		if (probes)
			feed_probe(&f, 50, TL_CALL_KERNEL);
		feed_mark(&f, 90, TL_CLOCK_OPENS);
		feed_clock(&f, 100);
		feed_work(&f, 100, 5);
		feed_mark(&f, 200, TL_CLOCK_CLOSES);
		feed_dropped(&f, 210, 5);
		done(&f);
		assert_int_equal(DEVICE(&f)->at_least, !probes);
		gpu_feed_free(&f);
	}
}

/* ---- memory ---- */

static int run_all(struct gpu_feed *f)
{
	feed_engine(f, PID, PID);
	feed_process(f, PID, 0);
	for (int w = 0; w < 2; w++) {
		feed_mark(f, 90 + 200 * w, TL_CLOCK_OPENS);
		feed_clock(f, 100 + 200 * w);
		feed_work(f, 100 + 200 * w, 2);
		feed_lost(f, 135 + 200 * w, TL_CALL_KERNEL);
		feed_work(f, 160 + 200 * w, 1);
		feed_mark(f, 200 + 200 * w, TL_CLOCK_CLOSES);
	}
	return f->err ? f->err : model__finish(f->m);
}

static void test_gpu_seen__oom(void **state)
{
	int err = -ENOMEM;

	(void)state;
	OOM_LOOP({
		struct gpu_feed f = gpu_feed_new();

		err = f.m ? run_all(&f) : -ENOMEM;
		assert_true(err == 0 || err == -ENOMEM);
		gpu_feed_free(&f);
	});
	assert_int_equal(err, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu_seen__all), cmocka_unit_test(test_gpu_seen__lost),
		cmocka_unit_test(test_gpu_seen__dead), cmocka_unit_test(test_gpu_seen__pause),
		cmocka_unit_test(test_gpu_seen__unmarked), cmocka_unit_test(test_gpu_seen__graphs),
		cmocka_unit_test(test_gpu_seen__both), cmocka_unit_test(test_gpu_seen__idle), cmocka_unit_test(test_gpu_seen__step),
		cmocka_unit_test(test_gpu_seen__dropped), cmocka_unit_test(test_gpu_seen__oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
