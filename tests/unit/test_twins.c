/* SPDX-License-Identifier: Apache-2.0 */
/* Launches as a probe and CUPTI see them, and what is told of them in the end. */
#include "unit.h"

#include "engine/twins.h"
#include "oom.h"

#include <errno.h>

#define US 1000ull
#define S 1000000000ull

struct said {
	struct tl_gpu_launch v[64];
	size_t n;
};

static int on_event(void *ctx, const struct tl_hdr *ev)
{
	struct said *s = ctx;

	assert_true(s->n < ARRAY_SIZE(s->v));
	s->v[s->n++] = *(const struct tl_gpu_launch *)ev;
	return 0;
}

static struct tl_gpu_launch launch(uint32_t tid, uint16_t call, uint64_t ts_ns, uint64_t dur_ns,
				   uint32_t n)
{
	return (struct tl_gpu_launch){
		.hdr = { sizeof(struct tl_gpu_launch), TL_GPU_LAUNCH, 0, 100, tid, ts_ns },
		.dur_ns = dur_ns,
		.n = n,
		.call = call,
	};
}

static void saw(struct twins *t, uint32_t tid, uint16_t call, uint64_t ts_ns, uint64_t dur_ns,
		uint32_t n)
{
	struct tl_gpu_launch l = launch(tid, call, ts_ns, dur_ns, n);

	assert_int_equal(twins__saw(t, &l), 0);
}

static void told(struct twins *t, uint32_t tid, uint16_t call, uint64_t ts_ns)
{
	struct tl_gpu_launch l = launch(tid, call, ts_ns, 2 * US, 1);

	assert_int_equal(twins__told(t, &l), 0);
}

static struct said say(struct twins *t, uint64_t now_ns)
{
	struct said s = { .n = 0 };
	struct emit out = { on_event, &s };

	assert_int_equal(twins__say(t, now_ns, true, &out), 0);
	return s;
}

static struct said end(struct twins *t)
{
	struct said s = { .n = 0 };
	struct emit out = { on_event, &s };

	assert_int_equal(twins__end(t, &out), 0);
	twins__free(t);
	return s;
}

static void test_what_both_saw_is_not_said(void **state)
{
	struct twins *t = twins__new();

	(void)state;
	for (int i = 0; i < 10; i++) {
		saw(t, 1 + i % 2, TL_CALL_KERNEL, i * 10 * US + 1, 0, 1);
		told(t, 1 + i % 2, TL_CALL_KERNEL, i * 10 * US + 400);
	}
	assert_int_equal(say(t, 200 * US).n, 0);
	assert_int_equal(end(t).n, 0);
}

static void test_what_only_a_probe_saw_is_said(void **state)
{
	struct twins *t = twins__new();
	struct said s;

	(void)state;
	saw(t, 1, TL_CALL_KERNEL, 10 * US, 0, 1); /* before the window */
	saw(t, 1, TL_CALL_KERNEL, 20 * US, 0, 1);
	told(t, 1, TL_CALL_KERNEL, 20 * US + 400);
	saw(t, 1, TL_CALL_COPY, 25 * US, 1 * US, 1); /* CUPTI was not asked for it */
	saw(t, 1, TL_CALL_KERNEL, 30 * US, 0, 1); /* behind it */
	saw(t, 1, TL_CALL_KERNEL, 40 * US, 0, 1);
	s = say(t, 100 * US);
	assert_int_equal(s.n, 3);
	assert_int_equal(s.v[0].hdr.ts_ns, 10 * US);
	assert_int_equal(s.v[1].hdr.ts_ns, 25 * US);
	assert_int_equal(s.v[2].hdr.ts_ns, 30 * US);
	s = end(t); /* of the last it was not known */
	assert_int_equal(s.n, 1);
	assert_int_equal(s.v[0].hdr.ts_ns, 40 * US);
}

static void test_a_call_that_is_under_way_is_waited_for(void **state)
{
	struct twins *t = twins__new();

	(void)state;
	saw(t, 1, TL_CALL_GRAPH, 10 * US, 0, 1);
	assert_int_equal(say(t, S).n, 0);
	told(t, 1, TL_CALL_GRAPH, 11 * US); /* it took a second to return */
	assert_int_equal(say(t, S + 10 * US).n, 0);
	assert_int_equal(end(t).n, 0);
}

static void test_not_for_ever(void **state)
{
	struct twins *t = twins__new();

	(void)state;
	saw(t, 1, TL_CALL_GRAPH, 10 * US, 0, 1);
	assert_int_equal(say(t, 3 * S).n, 1);
	assert_int_equal(end(t).n, 0);
}

static void test_a_ring_that_was_not_read_to_its_end(void **state)
{
	struct twins *t = twins__new();
	struct said s = { .n = 0 };
	struct emit out = { on_event, &s };

	(void)state;
	for (int i = 1; i < 4; i++)
		saw(t, 1, TL_CALL_KERNEL, i * 10 * US, 0, 1);
	assert_int_equal(twins__say(t, 100 * US, false, &out), 0);
	assert_int_equal(s.n, 0);
	for (int i = 1; i < 3; i++)
		told(t, 1, TL_CALL_KERNEL, i * 10 * US + 300);
	assert_int_equal(twins__say(t, 200 * US, false, &out), 0);
	assert_int_equal(s.n, 0);
	assert_int_equal(twins__say(t, 3 * S, false, &out), 0);
	assert_int_equal(s.n, 1);
	assert_int_equal(end(t).n, 0);
}

static void test_cupti_comes_first(void **state)
{
	struct twins *t = twins__new();

	(void)state;
	told(t, 1, TL_CALL_COPY, 11 * US);
	assert_int_equal(say(t, 5 * US).n, 0); /* read by a clock from before */
	saw(t, 1, TL_CALL_COPY, 10 * US, 30 * US, 1);
	assert_int_equal(say(t, 100 * US).n, 0);
	assert_int_equal(end(t).n, 0);
}

static void test_calls_that_were_counted(void **state)
{
	struct twins *t = twins__new();
	struct said s;

	(void)state;
	/* Ten in a burst, of which CUPTI told the last four, and one that is none of them. */
	for (int i = 0; i < 4; i++)
		told(t, 1, TL_CALL_KERNEL, (60 + i * 10) * US);
	told(t, 1, TL_CALL_KERNEL, 200 * US);
	assert_int_equal(say(t, 210 * US).n, 0);
	saw(t, 1, TL_CALL_KERNEL, 1 * US, 95 * US, 10);
	s = say(t, 300 * US);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.v[0].n, 6);
	assert_int_equal(end(t).n, 0);
}

static void test_other_threads_and_processes(void **state)
{
	struct twins *t = twins__new();
	struct tl_gpu_launch l = launch(1, TL_CALL_KERNEL, 12 * US, 0, 1);

	(void)state;
	saw(t, 1, TL_CALL_KERNEL, 10 * US, 1 * US, 1);
	told(t, 2, TL_CALL_KERNEL, 11 * US);
	l.hdr.tgid = 99;
	assert_int_equal(twins__told(t, &l), 0);
	assert_int_equal(say(t, 100 * US).n, 1);
	assert_int_equal(end(t).n, 0);
}

static void test_survives_oom(void **state)
{
	struct tl_gpu_launch l = launch(1, TL_CALL_KERNEL, 10 * US, 0, 1);
	struct twins *t = NULL;

	(void)state;
	OOM_LOOP({
		t = twins__new();
		if (!t || twins__saw(t, &l) || twins__told(t, &l))
			twins__free(t);
	})
		;
	assert_non_null(t);
	assert_int_equal(end(t).n, 0);
	twins__free(NULL);
}

/* Calls of several threads, some seen by one side only, in any order of arrival. */
static void test_random(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (int round = 0; round < 200; round++) {
		struct twins *t = twins__new();
		size_t expected = 0, n = 0;

		for (int i = 0; i < 40; i++) {
			uint64_t ts = i * 10 * US;
			bool cupti, probe;

			seed = seed * 6364136223846793005 + 1442695040888963407;
			probe = seed >> 33 & 3;
			cupti = seed >> 35 & 1;
			expected += probe && !cupti;
			if (probe)
				saw(t, 1 + i % 3, TL_CALL_KERNEL, ts, seed >> 37 & 1 ? 5 * US : 0,
				    1);
			if (cupti && probe)
				told(t, 1 + i % 3, TL_CALL_KERNEL, ts + 300);
			if (i % 8 == 7)
				n += say(t, ts + 9 * US).n;
		}
		n += end(t).n;
		assert_int_equal(n, expected);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_both_saw_is_not_said),
		cmocka_unit_test(test_what_only_a_probe_saw_is_said),
		cmocka_unit_test(test_a_call_that_is_under_way_is_waited_for),
		cmocka_unit_test(test_not_for_ever),
		cmocka_unit_test(test_a_ring_that_was_not_read_to_its_end),
		cmocka_unit_test(test_cupti_comes_first),
		cmocka_unit_test(test_calls_that_were_counted),
		cmocka_unit_test(test_other_threads_and_processes),
		cmocka_unit_test(test_survives_oom),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests_name("twins", tests, NULL, NULL);
}
