/* SPDX-License-Identifier: Apache-2.0 */
/* Very many threads of front ends and very many cgroups: the same ones are found as among few. */
#include "clues_feed.h"

enum { MANY = 100, FIRST = 1000, OTHER_SERVER = 900 };
#define T(name) cmocka_unit_test_setup_teardown(test_clues_crowds__##name, feed_setup, feed_teardown)

/* ---- threads ---- */

static void feed_fronts(struct feed *f, int n)
{
	for (int i = 0; i < n; i++)
		feed_thread(f, FEED_API, FIRST + i, TL_ROLE_FRONT, -1, "worker");
}

/* A thread of a server that this one has nothing to do with. */
static void feed_other_server(struct feed *f)
{
	struct tl_thread e = {
		.hdr = FEED_HDR(e, TL_THREAD, 0, OTHER_SERVER, OTHER_SERVER, at(-999)),
		.role = TL_ROLE_FRONT, .rank = -1, .server = OTHER_SERVER, .name = "other",
	};
	struct tl_thread_span s = feed_span_of(OTHER_SERVER, OTHER_SERVER, 0, 20000, TL_SPAN_RUN);

	FEED(f, e);
	FEED(f, s);
}

static void check_each(int n)
{
	struct feed *f = feed__new();

	feed_fronts(f, n);
	feed_other_server(f);
	for (int i = 0; i < n; i++)
		feed_span(f, FIRST + i, 10 * i, 10 * i + 5, TL_SPAN_RUN);
	feed_span(f, FIRST + 3, 2000, 9000, TL_SPAN_RUN);
	for (int i = 0; i < n; i++)
		if (i != 3)
			feed_span(f, FIRST + i, 8000 + 2 * i, 8000 + 2 * i + 1, TL_SPAN_RUN);
	feed_done(f);
	struct clue_list l = front_clues(f, 53, 84, UINT32_MAX);
	assert_int_equal(l.n, 4);
	for (uint32_t i = 0; i < l.n; i++) {
		assert_int_equal(l.v[i].mechanism, MECH_EVENT_LOOP);
		assert_int_equal(l.v[i].who.id, FIRST + 5 + i);
		assert_int_equal(l.v[i].ns, len(i == 0 ? 2 : i == 3 ? 4 : 5));
	}
	assert_int_equal(front_clues(f, 85, 90, UINT32_MAX).n, 0);
	l = front_clues(f, 8500, 8600, UINT32_MAX);	/* begun long before all others there */
	assert_int_equal(only(&l, MECH_EVENT_LOOP, 100)->who.id, FIRST + 3);
	feed__free(f);
}

static void test_clues_crowds__those_of_a_time(void **state)
{
	(void)state;
	check_each(10);
	check_each(MANY);
}

/* Who reads a request is known: no other one that reads keeps it waiting. One that writes for the
 * whole server does, in whatever process it is. */
static void test_clues_crowds__reader_and_detokenizer(void **state)
{
	struct feed *f = *state;

	feed_fronts(f, MANY);
	feed_thread(f, FEED_CORE, FEED_CORE + 1, TL_ROLE_DETOKENIZER, -1, "detok");
	feed_request(f, 1, 0, 1, 100);
	for (int i = 0; i < MANY; i++)
		feed_span(f, FIRST + i, 100 + i, 300, TL_SPAN_RUN);
	feed_span(f, FEED_FRONT, 150, 160, TL_SPAN_RUN);
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_CORE + 1, 200, 230, TL_SPAN_RUN);
	FEED(f, s);
	feed_done(f);
	struct clue_list l = front_clues(f, 90, 400, UINT32_MAX);
	assert_int_equal(sum_of(&l, MECH_EVENT_LOOP) + sum_of(&l, MECH_DETOKENIZER), len(200));
	l = front_clues(f, 90, 400, 0);
	assert_int_equal(sum_of(&l, MECH_DETOKENIZER), len(30));
	for (size_t i = 0; i < l.n; i++)
		assert_true(l.v[i].who.id == FEED_CORE + 1 || l.v[i].who.id == FEED_FRONT);
}

/* More than is looked at: the first threads stand for all, as they do where threads are few. */
static void test_clues_crowds__too_many_at_once(void **state)
{
	enum { EACH = 40, ASKED = 256 };
	struct feed *f = *state;
	struct clue_list l;

	feed_fronts(f, MANY);
	for (int i = 0; i < MANY; i++)
		for (int k = 0; k < EACH; k++)
			feed_span(f, FIRST + i, 400 * i + 10 * k, 400 * i + 10 * k + 5, TL_SPAN_RUN);
	feed_done(f);
	l = front_clues(f, 0, 400 * MANY, UINT32_MAX);
	assert_true(l.n > 0);
	for (size_t i = 0; i < l.n; i++)
		assert_true(l.v[i].who.id >= FIRST && l.v[i].who.id <= FIRST + ASKED / EACH);
}

/* ---- cgroups ---- */

static void throttle(struct feed *f, uint64_t cgroup, const char *path, double t0, double t1)
{
	struct tl_throttle e = {
		.hdr = FEED_HDR(e, TL_THROTTLE, 0, 0, 0, at(t1)), .since_ns = at(t0),
		.cgroup = cgroup, .throttled_ns = len(t1 - t0), .n_throttled = 1, .n_periods = 1,
		.quota_us = 20000, .period_us = 200000,
	};

	snprintf(e.path, sizeof(e.path), "%s", path);
	FEED(f, e);
}

static void waits(struct feed *f, double t0, double t1)
{
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, t0, t1, TL_SPAN_RUNNABLE);

	FEED(f, s);
}

/* The thread is in /engines.slice/llm.service, which is cgroup FEED_CGROUP. */
static void test_clues_crowds__quotas_that_hold(void **state)
{
	static const struct {
		uint64_t cgroup;
		const char *path;
		bool holds;
	} cases[] = {
		{ FEED_CGROUP, "/named/otherwise", true }, { 7, "/engines.slice", true },
		{ 8, "/engines.slice", true },		/* made anew */
		{ 500, "/engines.slice/llm.service", true }, { 9, "/engines", false },
		{ 10, "/engines.slice/llm", false },
		{ 11, "/engines.slice/llm.service/worker", false }, { 12, "/", false }, { 0, "", false }, { 0, "/engines.slice", true },
	};
	struct feed *f = *state;
	struct clue_list l;
	char path[64];

	for (uint64_t i = 0; i < 400; i++) {
		snprintf(path, sizeof(path), "/engines.slice/llm.service%u", (unsigned int)i);
		throttle(f, 1000 + i, path, 0, 100);
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double t = 1000 + 1000 * (double)i;

		waits(f, t, t + 80);
		throttle(f, cases[i].cgroup, cases[i].path, t, t + 100);
	}
	feed_done(f);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		double t = 1000 + 1000 * (double)i;

		l = engine_clues(f, t, t + 100);
		/* of a cgroup without a number the first path is that of all its looks */
		only(&l, cases[i].holds && cases[i].cgroup ? MECH_THROTTLED : MECH_RUN_QUEUE, 80);
	}
}

static void test_clues_crowds__survives_oom(void **state)
{
	struct feed *f = *state;

	feed_fronts(f, MANY);
	for (int i = 0; i < MANY; i++) {
		feed_span(f, FIRST + i, 10 * i, 10 * i + 5, TL_SPAN_RUN);
		throttle(f, 1 + i, "/engines.slice", 100, 200);
	}
	clues_survive_oom(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(those_of_a_time), T(reader_and_detokenizer), T(too_many_at_once),
		T(quotas_that_hold), T(survives_oom),
	};

	return cmocka_run_group_tests_name("clues_crowds", tests, NULL, NULL);
}
