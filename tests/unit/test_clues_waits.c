/* SPDX-License-Identifier: Apache-2.0 */
/* Which waits are whose: stops, the server's own threads, quotas whose times are told short, tokenizers. */
#include "clues_feed.h"

enum { WORKER = 300 };
#define T(name) cmocka_unit_test_setup_teardown(test_waits__##name, feed_setup, feed_teardown)

static struct clue_list engine_clues(const struct feed *f, double t0, double t1)
{
	struct clue_list l;
	uint32_t i = 0;

	while (f->v.engines[i].e.hdr.tgid != FEED_CORE)
		i++;
	clues__engine(f->c, i, at(t0), at(t1), &l);
	return l;
}

static struct tl_thread_span span_by(double t0, double t1, uint16_t state, uint32_t by, double by_ms, const char *name)
{
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, t0, t1, state);

	s.by_tgid = s.by_tid = by;
	s.by_ns = len(by_ms);
	snprintf(s.by_name, sizeof(s.by_name), "%s", name);
	return s;
}

/* ---- stopped ---- */

static void test_waits__stopped(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(1000, 2500, TL_SPAN_SLEEP, 4711, 0, "docker");
	const struct clue *k;

	s.wait = TL_WAIT_STOPPED;
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 900, 2600);
	k = only(&l, MECH_STOPPED, 1500);
	assert_int_equal(k->who.type, WHO_PROCESS);	/* who let it go on */
	assert_int_equal(k->who.id, 4711);
	assert_string_equal(k->who.name, "docker");
	assert_int_equal(k->prov, PROV_OBSERVED);
	assert_true(clues__watched(f->c, 1) >> MECH_STOPPED & 1);
}

/* It stands above all else that its threads waited for, and nobody has to be known. */
static void test_waits__stopped_before_all_else(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 1000, 1100, TL_SPAN_SLEEP);
	struct tl_thread_span q = feed_span_of(FEED_CORE, 201, 1000, 1150, TL_SPAN_RUNNABLE);

	feed_thread(f, FEED_CORE, 201, TL_ROLE_COMPUTE, -1, "pool");
	s.wait = TL_WAIT_STOPPED;
	FEED(f, s);
	FEED(f, q);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1150);
	assert_int_equal(sum_of(&l, MECH_STOPPED), len(100));
	assert_int_equal(sum_of(&l, MECH_RUN_QUEUE), len(50));
	assert_int_equal(l.v[0].who.type, WHO_NOBODY);
}

/* A page that was read in a long sleep does not say that the sleep was for it. */
static void test_waits__fault_in_a_long_sleep(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 1000, 2500, TL_SPAN_SLEEP);

	s.major_faults = 1;
	FEED(f, s);
	feed_done(f);
	assert_int_equal(engine_clues(f, 900, 2600).n, 0);
}

/* ---- the server's own threads ---- */

static void test_waits__behind_own_worker(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(1000, 1004, TL_SPAN_RUNNABLE, WORKER, 4, "VLLM::Worker");

	feed_engine(f, WORKER, FEED_API);
	feed_thread(f, WORKER, WORKER, TL_ROLE_LAUNCH, -1, "VLLM::Worker");
	FEED(f, s);
	s = span_by(1010, 1014, TL_SPAN_RUNNABLE, 7777, 4, "ffmpeg");
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 990, 1020);
	only(&l, MECH_RUN_QUEUE, 4);	/* a stranger's */
	assert_int_equal(l.v[0].who.id, 7777);
}

/* What computes no steps, or those of another server, has no business on its CPU. */
static void test_waits__behind_others_of_the_host(void **state)
{
	struct feed *f = *state;
	struct tl_thread t = { .hdr = FEED_HDR(t, TL_THREAD, 0, 900, 900, at(-999)), .role = TL_ROLE_ENGINE,
			       .rank = -1, .server = 900, .name = "llama-server" };
	struct tl_thread_span s = span_by(1000, 1004, TL_SPAN_RUNNABLE, 900, 4, "llama-server");

	FEED(f, t);
	FEED(f, s);
	s = span_by(1010, 1015, TL_SPAN_RUNNABLE, FEED_API, 5, "front");
	s.by_tid = FEED_FRONT;
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 990, 1020);
	assert_int_equal(l.n, 2);
	assert_int_equal(l.v[0].who.id, 900);
	assert_int_equal(l.v[1].who.id, FEED_API);
}

/* ---- quotas ---- */

/* Three short waits behind another process, then what the quota did, of which the kernel counted less. */
static void test_waits__quota_told_short(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s;

	for (int i = 0; i < 3; i++) {
		s = span_by(1000 + 10 * i, 1008 + 10 * i, TL_SPAN_RUNNABLE, 7777, 8, "cc1");
		FEED(f, s);
	}
	s = span_by(1039, 1100, TL_SPAN_RUNNABLE, 7778, 1.2, "tokenlag");
	FEED(f, s);
	feed_throttle(f, 1000, 1100, 43.6);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1030);
	assert_int_equal(sum_of(&l, MECH_RUN_QUEUE), len(24));
	l = engine_clues(f, 1030, 1100);
	only(&l, MECH_THROTTLED, 61);
	assert_int_equal(l.v[0].prov, PROV_OBSERVED);
}

/* Two CPUs, one time that it was throttled, of which little was counted: once, and not where somebody else ran. */
static void test_waits__quota_told_far_too_short(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(1020, 1100, TL_SPAN_RUNNABLE, 7777, 70, "ffmpeg");

	FEED(f, s);
	s = span_by(1120, 1180, TL_SPAN_RUNNABLE, 7777, 3, "ffmpeg");
	FEED(f, s);
	s = span_by(1190, 1250, TL_SPAN_RUNNABLE, 7777, 3, "ffmpeg");
	FEED(f, s);
	feed_throttle(f, 1000, 1260, 20);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1110);
	only(&l, MECH_RUN_QUEUE, 80);
	l = engine_clues(f, 1110, 1185);
	only(&l, MECH_THROTTLED, 60);
	l = engine_clues(f, 1185, 1260);
	only(&l, MECH_RUN_QUEUE, 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(stopped), T(stopped_before_all_else), T(fault_in_a_long_sleep), T(behind_own_worker),
		T(behind_others_of_the_host), T(quota_told_short), T(quota_told_far_too_short),
	};

	return cmocka_run_group_tests_name("clues_waits", tests, NULL, NULL);
}
