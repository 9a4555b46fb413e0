/* SPDX-License-Identifier: Apache-2.0 */
/* Notes on the evidence: broken, dropped, too dear, taken by another, out of step; S10 and S12. */
#include "clues_feed.h"

#include "base/util.h"
#include "model/health.h"

enum { WORKER = 300 };
#define T(name) cmocka_unit_test_setup_teardown(test_health__##name, feed_setup, feed_teardown)

static struct tl_gpu_health health(double t0, double t1, uint16_t level, uint16_t to, uint64_t launches,
				   uint64_t records)
{
	struct tl_gpu_health e = { .hdr = FEED_HDR(e, TL_GPU_HEALTH, 0, FEED_CORE, 0, at(t1)),
				   .since_ns = at(t0), .launches = launches, .records = records,
				   .level = level, .to_level = to };

	return e;
}

static struct health notes(struct feed *f)
{
	struct health h;

	assert_int_equal(model__finish(f->m), 0);
	model__view(f->m, &f->v);
	assert_int_equal(health_notes(&f->v, &h), 0);
	return h;
}

/* There is one note, and it is of this kind. */
static struct health_note one(struct feed *f, enum health_kind kind)
{
	struct health h = notes(f);

	assert_int_equal(h.n, 1);
	assert_int_equal(h.v[0].kind, kind);
	return h.v[0];
}

static struct tl_thread_span stop(uint32_t tgid, uint32_t tid, double t0, double t1, uint32_t flags)
{
	struct tl_thread_span s = feed_span_of(tgid, tid, t0, t1, TL_SPAN_SLEEP);

	s.wait = TL_WAIT_STOPPED;
	s.hdr.flags = flags;
	return s;
}

/* Nobody's request was read: nothing else tells. */
static void test_health__stopped(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span a = stop(FEED_API, FEED_FRONT, 100, 5000, 0), b = stop(FEED_CORE, FEED_LOOP, 90, 5010, TL_F_TRUNC);
	struct health_note n;

	FEED(f, a);
	FEED(f, b);
	n = one(f, HEALTH_STOPPED);
	assert_int_equal(n.tgid, FEED_API);
	assert_int_equal(n.t0_ns, at(90));
	assert_int_equal(n.t1_ns, at(5010));
	assert_int_equal(n.n, 1);
}

static void test_health__stopped_twice_and_shortly(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span a = stop(FEED_API, FEED_FRONT, 100, 1400, 0), b = stop(FEED_API, FEED_FRONT, 2000, 2900, 0),
			      c = stop(FEED_API, FEED_FRONT, 3000, 4000, 0);
	struct health h;

	FEED(f, a);
	FEED(f, b);
	FEED(f, c);
	h = notes(f);
	assert_int_equal(h.n, 2);	/* not the one of 0.9 s */
	assert_int_equal(h.v[0].t1_ns, at(1400));
	assert_int_equal(h.v[1].t0_ns, at(3000));
	assert_int_equal(h.v[1].n, 0);
}

static void test_health__nothing_to_say(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_health e = health(500, 3000, TL_GPU_GRAPH, TL_GPU_GRAPH, 340, 340);
	struct tl_gpu_health off = health(3000, 4000, TL_GPU_LAUNCHES, TL_GPU_LAUNCHES, 340, 0);

	FEED(f, e);
	FEED(f, off);	/* nobody asked for records */
	assert_int_equal(notes(f).n, 0);
}

static void test_health__broken(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_health e = health(500, 3000, TL_GPU_GRAPH, TL_GPU_LAUNCHES, 340, 0);
	struct health_note n;

	e.trouble = TL_GPU_BROKEN;
	FEED(f, e);
	n = one(f, HEALTH_GPU_BROKEN);
	assert_int_equal(n.n, 340);
}

/* Nobody says that it is broken: the numbers do. */
static void test_health__broken_by_numbers(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_health a = health(500, 1000, TL_GPU_GRAPH, TL_GPU_GRAPH, 40, 0);
	struct tl_gpu_health b = health(1000, 2000, TL_GPU_GRAPH, TL_GPU_GRAPH, 300, 0);

	FEED(f, a);
	FEED(f, b);
	assert_int_equal(one(f, HEALTH_GPU_BROKEN).n, 340);
}

/* Records come later than launches. */
static void test_health__late_records(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_health a = health(500, 1000, TL_GPU_GRAPH, TL_GPU_GRAPH, 40, 0);
	struct tl_gpu_health b = health(1000, 2000, TL_GPU_GRAPH, TL_GPU_GRAPH, 0, 40);

	FEED(f, a);
	FEED(f, b);
	assert_int_equal(notes(f).n, 0);
}

static void test_health__bad_stamps(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_health a = health(500, 1000, TL_GPU_KERNELS, TL_GPU_KERNELS, 4500, 2290);
	struct tl_gpu_health b = health(1000, 2000, TL_GPU_KERNELS, TL_GPU_GRAPH, 4500, 2500);
	struct health_note n;

	a.bad_records = 2210;
	b.bad_records = 2000;
	b.trouble = TL_GPU_BAD_STAMPS;
	FEED(f, a);
	FEED(f, b);
	n = one(f, HEALTH_GPU_BAD_STAMPS);
	assert_int_equal(n.n, 4210);
	assert_int_equal(n.of, 9000);
	assert_int_equal(n.to_level, TL_GPU_GRAPH);
}

static void test_health__budget(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_health e = health(500, 3000, TL_GPU_KERNELS, TL_GPU_OFF, 9000, 9000);
	struct health_note n;

	e.trouble = TL_GPU_BUDGET;
	e.overhead_ppm = 640000;
	FEED(f, e);
	n = one(f, HEALTH_GPU_BUDGET);
	assert_int_equal(n.ppm, 640000);
	assert_int_equal(n.to_level, TL_GPU_OFF);
	assert_int_equal(n.t0_ns, at(500));
	assert_int_equal(n.t1_ns, at(3000));
}

static void test_health__busy(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_health e = health(500, 3000, TL_GPU_GRAPH, TL_GPU_LAUNCHES, 9000, 0);

	e.trouble = TL_GPU_BUSY;
	strcpy(e.holder, "nsys[991]");
	FEED(f, e);
	assert_string_equal(one(f, HEALTH_GPU_BUSY).holder, "nsys[991]");
}

static void test_health__dropped(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_health e = health(500, 3000, TL_GPU_GRAPH, TL_GPU_GRAPH, 9000, 8990);

	e.dropped = 10;
	FEED(f, e);
	assert_int_equal(one(f, HEALTH_GPU_DROPPED).n, 10);
}

/* ---- clocks ---- */

static void clock_pair(struct feed *f, double t, double realtime_ms, double err_ms)
{
	struct tl_clock e = { .hdr = FEED_HDR(e, TL_CLOCK, 0, 0, 0, at(t)),
			      .realtime_ns = 1700000000000000000 + len(realtime_ms), .err_ns = len(err_ms) };

	FEED(f, e);
}

static void test_health__clock_step(void **state)
{
	struct feed *f = *state;
	struct health_note n;

	for (int t = 0; t <= 20000; t += 1000)	/* +5 at 12.4 s */
		clock_pair(f, t, t + (t > 12400 ? 5 : 0), 0.01);
	n = one(f, HEALTH_CLOCK_STEP);
	assert_int_equal(n.jump_ns, len(5));
	assert_int_equal(n.t0_ns, at(12000));
	assert_int_equal(n.t1_ns, at(13000));
}

/* Back, while it is steered by 100 ppm; and a pair that was read with a wide bracket. */
static void test_health__clock_is_steered(void **state)
{
	struct feed *f = *state;

	for (int t = 0; t <= 20000; t += 1000)
		clock_pair(f, t, t * 1.0001, 0.01);
	clock_pair(f, 21000, 21000 + 8, 7);
	assert_int_equal(notes(f).n, 0);
}

static void test_health__clock_steps_back(void **state)
{
	struct feed *f = *state;

	clock_pair(f, 0, 5000, 0.01);
	clock_pair(f, 1000, 5000, 0.01);
	assert_int_equal(one(f, HEALTH_CLOCK_STEP).jump_ns, -(int64_t)len(1000));
}

/* ---- ranks ---- */

static void rank_step(struct feed *f, uint16_t rank, double t0, double t1, double collective, uint32_t flags)
{
	struct tl_gpu_step e = { .hdr = FEED_HDR(e, TL_GPU_STEP, flags, WORKER + rank, 0, at(t0)),
				 .end_ns = at(t1), .busy_ns = len(t1 - t0), .collective_ns = len(collective),
				 .rank = rank, .device = rank };

	FEED(f, e);
}

static void ranks(struct feed *f, double t0, double t1, const double collective[4])
{
	for (uint16_t r = 0; r < 4; r++)
		rank_step(f, r, t0, t1, collective[r], 0);
}

static void workers(struct feed *f)
{
	for (int16_t r = 0; r < 4; r++)
		feed_thread(f, WORKER + r, WORKER + r, TL_ROLE_LAUNCH, r, "worker");
}

static void test_health__rank_missing(void **state)
{
	struct feed *f = *state;
	struct health_note n;

	workers(f);
	for (int i = 0; i < 100; i++)
		ranks(f, 14 * i, 14 * i + 14, (double[4]){ 2, 2, 2, 2 });
	for (uint16_t r = 0; r < 3; r++)
		rank_step(f, r, 1400, 61400, 59988, TL_GPU_OPEN);
	n = one(f, HEALTH_HANG);
	assert_int_equal(n.tgid, FEED_API);
	assert_int_equal(n.missing, 1 << 3);
	assert_int_equal(n.waiting, 1 | 1 << 1 | 1 << 2);
	assert_int_equal(n.t1_ns - n.t0_ns, len(60000));
}

/* The capture's end has cut a collective that not all had entered, and a long one that all are in. */
static void test_health__cut_by_the_end(void **state)
{
	struct feed *f = *state;

	workers(f);
	ranks(f, 0, 14, (double[4]){ 2, 2, 2, 2 });
	for (uint16_t r = 0; r < 3; r++)
		rank_step(f, r, 14, 20, 5.9, TL_GPU_OPEN);
	for (uint16_t r = 0; r < 4; r++)
		rank_step(f, r, 20, 2020, 1999, TL_GPU_OPEN);
	assert_int_equal(notes(f).n, 0);
}

static void test_health__bound_by_communication(void **state)
{
	struct feed *f = *state;
	struct health_note n;

	workers(f);
	for (int i = 0; i < 10; i++)
		ranks(f, 802 * i, 802 * i + 802, (double[4]){ 733, 730, 735, 733 });
	n = one(f, HEALTH_COMMUNICATION);
	assert_int_equal(n.n_ranks, 4);
	assert_in_range(n.collective_ns, len(732), len(734));
	assert_int_equal(n.step_ns, len(802));
}

static void test_health__straggler_is_no_communication(void **state)
{
	struct feed *f = *state;

	workers(f);
	for (int i = 0; i < 10; i++)
		ranks(f, 58 * i, 58 * i + 58, (double[4]){ 46, 46, 2, 46 });
	assert_int_equal(notes(f).n, 0);
}

static void test_health__survives_oom(void **state)
{
	struct feed *f = *state;
	struct health h;
	int err = -1;

	workers(f);
	ranks(f, 0, 14, (double[4]){ 2, 2, 2, 2 });
	assert_int_equal(model__finish(f->m), 0);
	model__view(f->m, &f->v);
	OOM_LOOP(err = health_notes(&f->v, &h));
	assert_int_equal(err, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nothing_to_say), T(stopped), T(stopped_twice_and_shortly), T(broken), T(broken_by_numbers), T(late_records), T(bad_stamps), T(budget),
		T(busy), T(dropped), T(clock_step), T(clock_is_steered), T(clock_steps_back), T(rank_missing),
		T(cut_by_the_end), T(bound_by_communication), T(straggler_is_no_communication),
		T(survives_oom),
	};

	return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
