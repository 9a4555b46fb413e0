/* SPDX-License-Identifier: Apache-2.0 */
/* What devices say of a step: graphs, ranks, clocks and neighbours, with the numbers of S3, S10, S11. */
#include "clues_gpu_feed.h"

enum { WORKER = 300 };
#define T(name) cmocka_unit_test_setup_teardown(test_clues_gpu__##name, feed_setup, feed_teardown)

/* ---- S10 ---- */

static void ranks(struct feed *f, double t0, double t1, const double collective[4], double late2)
{
	for (uint16_t r = 0; r < 4; r++) {
		struct tl_gpu_step e = gpu(t0, t1, t1 - t0);

		e.hdr.tgid = WORKER + r;
		e.rank = e.device = r;
		e.collective_ns = len(collective[r]);
		e.late_ns = r == 2 ? len(late2) : 0;
		FEED(f, e);
	}
	feed_step(f, t0, t1, 3, 0);
}

static void workers(struct feed *f)
{
	for (int16_t r = 0; r < 4; r++)
		feed_thread(f, WORKER + r, WORKER + r, TL_ROLE_LAUNCH, r, "VLLM::Worker_TP");
}

static void late_rank(struct feed *f, double late2)
{
	struct tl_thread_span s = feed_span_of(WORKER + 2, WORKER + 2, 1000, 1044, TL_SPAN_RUN);

	workers(f);
	for (int i = 0; i < 10; i++)
		ranks(f, 800 + 14 * i, 814 + 14 * i, (double[4]){ 2, 2, 2, 2 }, 0);
	s.hdr.flags = TL_SPAN_MIGRATED;
	s.from_cpu = 3;
	s.cpu = 67;
	FEED(f, s);
	ranks(f, 1000, 1058, (double[4]){ 46, 46, 2, 46 }, late2);
	feed_done(f);
}

static void check_late(const struct feed *f)
{
	struct clue_list l = step_clues(f, 10, 14);
	const struct clue *k = only(&l, MECH_COLLECTIVE, 44);

	assert_int_equal(k->who.type, WHO_RANK);
	assert_int_equal(k->who.id, 2);
	assert_int_equal(k->root.type, WHO_THREAD);
	assert_int_equal(k->root.id, WORKER + 2);
	assert_string_equal(k->root.name, "VLLM::Worker_TP CPU 3 to 67");
	assert_true(clues__step_is_odd(f->c, 10));
	assert_false(clues__step_is_odd(f->c, 9));
	l = step_clues(f, 9, 14);
	assert_int_equal(l.n, 0);
}

static void test_clues_gpu__late_rank(void **state)
{
	late_rank(*state, 44);
	check_late(*state);
}

/* Nobody says who was late: it is the one that did not wait. */
static void test_clues_gpu__late_rank_by_its_wait(void **state)
{
	late_rank(*state, 0);
	check_late(*state);
}

/* All ranks alike, within 5 %: bound by what they send. */
static void test_clues_gpu__communication(void **state)
{
	struct feed *f = *state;

	workers(f);
	for (int i = 0; i < 5; i++)
		ranks(f, 802 * i, 802 * (i + 1), (double[4]){ 733, 730, 740, 733 }, 0);
	ranks(f, 4010, 5012, (double[4]){ 933, 930, 940, 933 }, 0);
	feed_done(f);
	assert_int_equal(step_clues(f, 2, 802).n, 0);	/* that is what it takes here */
	assert_false(clues__step_is_odd(f->c, 2));
	struct clue_list l = step_clues(f, 5, 802);
	only(&l, MECH_COMMUNICATION, 200);
}

/* Rank 3 never enters: the step does not end, whoever waits in it. */
static void test_clues_gpu__missing_rank(void **state)
{
	struct feed *f = *state;

	workers(f);
	ranks(f, 0, 14, (double[4]){ 2, 2, 2, 2 }, 0);
	for (uint16_t r = 0; r < 3; r++) {
		struct tl_gpu_step e = gpu(14, 60014, 60000);

		e.hdr.tgid = WORKER + r;
		e.hdr.flags = TL_GPU_OPEN;
		e.rank = e.device = r;
		e.collective_ns = len(59988);
		FEED(f, e);
	}
	feed_step(f, 14, 60014, 3, 0);
	feed_done(f);
	struct clue_list l = step_clues(f, 1, 14);
	only(&l, MECH_COLLECTIVE, 59988);
	assert_int_equal(l.v[0].who.id, 3);
	assert_true(clues__step_is_odd(f->c, 1));
}

/* ---- S11 ---- */

static void step_at(struct feed *f, double t0, double ms)
{
	struct tl_gpu_step e = gpu(t0, t0 + ms, ms - 0.2);

	FEED(f, e);
	feed_step(f, t0, t0 + ms, 1, 0);
}

static void test_clues_gpu__neighbour(void **state)
{
	struct feed *f = *state;
	const struct clue *k;

	states(f, FULL_MHZ, TL_GPU_NEIGHBOUR);
	for (int i = 0; i < 10; i++)
		step_at(f, 100 + 10 * i, 10);
	step_at(f, 1500, 20);
	feed_done(f);
	struct clue_list l = step_clues(f, 10, 10);
	k = only(&l, MECH_NEIGHBOUR, 10);
	assert_int_equal(k->who.type, WHO_PROCESS);
	assert_int_equal(k->who.id, 4242);
	assert_string_equal(k->who.name, "embedder");
	assert_true(clues__step_is_odd(f->c, 10));
	assert_false(clues__step_is_odd(f->c, 3));
	assert_int_equal(step_clues(f, 3, 10).n, 0);
}

static void test_clues_gpu__clock(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_step probe = gpu(1500, 1873, 372);
	const struct clue *k;

	states(f, CAPPED_MHZ, TL_GPU_POWER);
	step_at(f, 100, 10);
	step_at(f, 1100, 10.5);
	FEED(f, probe);
	feed_step(f, 1500, 1873, 1, 4096);
	feed_done(f);
	struct clue_list l = step_clues(f, 1, 10);	/* at most so much; what it took more is less */
	assert_int_equal(l.n, 1);
	k = &l.v[0];
	assert_int_equal(k->mechanism, MECH_CLOCK);
	assert_in_range(k->ns, len(2.436), len(2.437));	/* 10 * (1965 / 1580 - 1) */
	assert_int_equal(k->who.type, WHO_DEVICE);
	assert_string_equal(k->who.name, "power: 1580 of 1965 MHz");
	l = step_clues(f, 2, 0);	/* what it takes undisturbed was not learnt */
	assert_int_equal(l.n, 1);
	assert_in_range(l.v[0].ns, len(72.5), len(73.5));
	assert_true(clues__step_is_odd(f->c, 1));
}

/* Both at once: the clock's by its ratio, the rest the neighbour's. In this order. */
static void test_clues_gpu__clock_then_neighbour(void **state)
{
	struct feed *f = *state;

	states(f, CAPPED_MHZ, TL_GPU_POWER | TL_GPU_NEIGHBOUR);
	step_at(f, 100, 10);
	step_at(f, 1500, 20);
	feed_done(f);
	struct clue_list l = step_clues(f, 1, 10);
	assert_int_equal(l.n, 2);
	assert_int_equal(l.v[0].mechanism, MECH_CLOCK);
	assert_in_range(l.v[0].ns, len(2.43), len(2.44));
	assert_int_equal(l.v[1].mechanism, MECH_NEIGHBOUR);
	assert_int_equal(l.v[1].ns, len(10));	/* as much as the clock leaves of it */
}

/* The device was idle for most of the step: no neighbour stretched that. */
static void test_clues_gpu__neighbour_takes_no_idle_time(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_step e = gpu(1500, 1700, 9.8);

	states(f, FULL_MHZ, TL_GPU_NEIGHBOUR);
	for (int i = 0; i < 10; i++)
		step_at(f, 100 + 10 * i, 10);
	FEED(f, e);
	feed_step(f, 1500, 1700, 1, 0);
	feed_done(f);
	assert_int_equal(step_clues(f, 10, 10).n, 0);
}

/* A device has one state at a time; of many that say so at once the first ones are believed. */
static void test_clues_gpu__states_that_overlap(void **state)
{
	struct feed *f = *state;

	for (int i = 0; i < 3000; i++) {
		struct tl_gpu_state e = state_of(1000, 3000 + (i > 2000), FULL_MHZ, i > 2000 ? 0 : TL_GPU_NEIGHBOUR);

		FEED(f, e);
	}
	step_at(f, 1500, 20);
	feed_done(f);
	struct clue_list l = step_clues(f, 0, 10);
	only(&l, MECH_NEIGHBOUR, 10);
}

/* Two devices; who has no records is judged by those that its server is known to use, once one is known. */
static void slow_device_2(struct feed *f, uint32_t by_tgid)
{
	struct tl_gpu_state e = state_of(900, 2000, FULL_MHZ, 0);

	feed_step(f, 1000, 1020, 1, 0);
	FEED(f, e);
	e.device = 1;
	FEED(f, e);
	e = state_of(0, 900, CAPPED_MHZ, 0);
	e.by_tgid = by_tgid;
	FEED(f, e);
	e = state_of(500, 1500, CAPPED_MHZ, TL_GPU_POWER);
	e.device = 2;
	FEED(f, e);
	e = state_of(1500, 9000, FULL_MHZ, 0);
	e.device = 2;
	FEED(f, e);
	feed_done(f);
}

static void test_clues_gpu__only_its_devices(void **state)
{
	struct feed *f = *state;
	struct clue_list l;

	slow_device_2(f, FEED_CORE);	/* seen on device 0 */
	l = step_clues(f, 0, 10);
	assert_int_equal(l.n, 0);
	assert_false(clues__step_is_odd(f->c, 0));
}

static void test_clues_gpu__any_device_if_none_is_known(void **state)
{
	struct feed *f = *state;
	struct clue_list l;

	slow_device_2(f, 4242);
	l = step_clues(f, 0, 10);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.v[0].who.id, 2);
}

/* Its own worker is no neighbour. */
static void test_clues_gpu__its_own_process_is_no_neighbour(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_state e = state_of(900, 2000, FULL_MHZ, TL_GPU_NEIGHBOUR);

	e.by_tgid = FEED_CORE;
	FEED(f, e);
	feed_step(f, 1000, 1020, 1, 0);
	feed_done(f);
	struct clue_list l = step_clues(f, 0, 10);
	assert_int_equal(l.n, 0);
}

/* Two processes that call different devices 0, as each was given its own. */
static void device_0_of(struct feed *f, uint32_t tgid, uint32_t mhz)
{
	struct tl_gpu_state e = state_of(0, 1000, FULL_MHZ, 0);

	e.hdr.tgid = tgid;
	FEED(f, e);
	e = state_of(1000, 3000, mhz, mhz == FULL_MHZ ? 0 : TL_GPU_POWER);
	e.hdr.tgid = tgid;
	FEED(f, e);
}

static void test_clues_gpu__numbers_are_of_a_process(void **state)
{
	struct feed *f = *state;

	device_0_of(f, FEED_CORE, FULL_MHZ);
	device_0_of(f, 4242, CAPPED_MHZ);
	feed_step(f, 1500, 1520, 1, 0);
	step_at(f, 1600, 20);
	feed_done(f);
	assert_int_equal(step_clues(f, 0, 10).n, 0);	/* known by no record ... */
	assert_int_equal(step_clues(f, 1, 10).n, 0);	/* ... and by one */
	assert_false(clues__step_is_odd(f->c, 1));
}

static void test_clues_gpu__clock_of_its_own(void **state)
{
	struct feed *f = *state;
	struct clue_list l;

	device_0_of(f, 4242, FULL_MHZ);
	device_0_of(f, FEED_CORE, CAPPED_MHZ);
	feed_step(f, 1500, 1520, 1, 0);
	step_at(f, 1600, 20);
	feed_done(f);
	for (uint32_t i = 0; i < 2; i++) {
		l = step_clues(f, i, 10);
		assert_int_equal(l.n, 1);
		assert_int_equal(l.v[0].mechanism, MECH_CLOCK);
	}
}

/* Nobody who sees launches only knows the device's number; who is on one device means that. */
static void test_clues_gpu__only_device_of_a_process(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_state e = state_of(0, 1000, FULL_MHZ, 0);
	struct clue_list l;

	e.hdr.tgid = FEED_CORE;
	e.device = 5;
	FEED(f, e);
	e = state_of(1000, 3000, CAPPED_MHZ, TL_GPU_POWER);
	e.hdr.tgid = FEED_CORE;
	e.device = 5;
	FEED(f, e);
	step_at(f, 1500, 20);
	feed_done(f);
	l = step_clues(f, 0, 10);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.v[0].who.id, 5);
}

static void test_clues_gpu__cold(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_step e = gpu(6000, 8400, 9.8);

	step_at(f, 100, 10);
	e.hdr.flags = TL_GPU_COLD;
	FEED(f, e);
	feed_step(f, 6000, 8400, 1, 0);
	feed_done(f);
	struct clue_list l = step_clues(f, 1, 10);
	only(&l, MECH_COMPILE, 2390);
	assert_true(clues__step_is_odd(f->c, 1));
}

/* A slow mode without any sign: nothing is said, and all of it was looked at. */
static void test_clues_gpu__no_sign(void **state)
{
	struct feed *f = *state;
	uint64_t watched;

	states(f, FULL_MHZ, 0);
	step_at(f, 100, 10);
	step_at(f, 1500, 12);
	feed_done(f);
	assert_int_equal(step_clues(f, 1, 10).n, 0);
	assert_false(clues__step_is_odd(f->c, 1));
	watched = clues__watched(f->c, 1);
	assert_true(watched & 1ull << MECH_CLOCK);
	assert_true(watched & 1ull << MECH_NEIGHBOUR);
	assert_true(watched & 1ull << MECH_GRAPH_MISS);
	assert_false(watched & 1ull << MECH_COLLECTIVE);	/* one rank */
}

/* The engine's thread is on a CPU, nobody knows in which code: it is the host, if the device is idle. */
static void test_clues_gpu__host_keeps_device_idle(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_step e = gpu(1500, 1700, 17), busy = gpu(1800, 2000, 199.8);

	for (int i = 0; i < 10; i++)
		step_at(f, 100 + 20 * i, 20);
	FEED(f, e);
	feed_step(f, 1500, 1700, 1, 0);
	feed_span(f, FEED_LOOP, 1510, 1680, TL_SPAN_RUN);
	FEED(f, busy);
	feed_step(f, 1800, 2000, 1, 0);
	feed_span(f, FEED_LOOP, 1800, 2000, TL_SPAN_RUN);	/* spins until it is done */
	feed_done(f);
	struct clue_list l = step_clues(f, 10, 20);
	only(&l, MECH_HOST, 170);
	assert_int_equal(l.v[0].who.type, WHO_THREAD);
	assert_int_equal(l.v[0].who.id, FEED_LOOP);
	assert_int_equal(step_clues(f, 11, 20).n, 0);
}

static void test_clues_gpu__copies(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_step e = gpu(1500, 1582, 10);

	for (int i = 0; i < 10; i++)
		step_at(f, 100 + 10 * i, 10);
	e.copy_ns = len(72);
	FEED(f, e);
	feed_step(f, 1500, 1582, 1, 0);
	feed_done(f);
	struct clue_list l = step_clues(f, 10, 10);
	only(&l, MECH_COPY, 72);
}

static void test_clues_gpu__survives_oom(void **state)
{
	struct feed *f = *state;

	states(f, CAPPED_MHZ, TL_GPU_POWER | TL_GPU_NEIGHBOUR);
	workers(f);
	for (int i = 0; i < 20; i++)
		replay(f, 10 * i, 10 * i + 10, 8, 8);
	ranks(f, 1000, 1058, (double[4]){ 46, 46, 2, 46 }, 0);
	clues_survive_oom(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(late_rank), T(late_rank_by_its_wait), T(communication), T(missing_rank), T(neighbour), T(clock),
		T(states_that_overlap), T(clock_then_neighbour), T(neighbour_takes_no_idle_time), T(only_its_devices),
		T(any_device_if_none_is_known), T(its_own_process_is_no_neighbour), T(numbers_are_of_a_process), T(clock_of_its_own),
		T(only_device_of_a_process), T(cold), T(no_sign), T(host_keeps_device_idle), T(copies),
		T(survives_oom),
	};

	return cmocka_run_group_tests_name("clues_gpu", tests, NULL, NULL);
}
