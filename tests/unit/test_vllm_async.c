/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's scheduler followed from outside: when it plans ahead, and when not all of it was seen. */
#include "vllm_sched_msg.h"

#include "engine/vllm_sched_priv.h"

/* ---- asynchronous ---- */

static void go_async(struct fixture *f)
{
	f->s.async_votes = 0;
	arrive(f, 30, 10);
	EXPECT(f, "30c0", "p30:10", .run = 1, .fresh = 1);
	arrive(f, 31, 10);
	EXPECT(f, "30", "d30:1", .run = 2, .fresh = 1);
	assert_true(vsched_is_async(&f->s));
	EXPECT(f, "30! 31c0", "d30:1 p31:10 over30", .run = 1);
	EXPECT(f, "31!", "d31:1 over31", .run = 0);
	EXPECT(f, "", "-", .run = 0);
	assert_true(is_idle(f));
}

static void test_async__counters_tell_of_the_next_step(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	EXPECT(f, "0c0", "p0:20", .run = 1, .fresh = 1);
	arrive(f, 1, 250);
	EXPECT(f, "0", "d0:1", .run = 2, .fresh = 1);
	EXPECT(f, "0", "d0:1 p1:99", .run = 2);
	EXPECT(f, "0", "d0:1 p1:99", .run = 2);
	arrive(f, 2, 30);
	EXPECT(f, "0 1c0", "d0:1 p1:52", .run = 3, .fresh = 1);
	EXPECT(f, "0 1 2c0", "d0:1 d1:1 p2:30", .run = 3);
}

static void test_async__what_stops_is_in_one_step_more(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	arrive(f, 1, 20);
	EXPECT(f, "0c0 1c0", "p0:20 p1:20", .run = 2, .fresh = 2);
	EXPECT(f, "0. 1", "d0:1 d1:1", .run = 1);
	EXPECT(f, "1!", "d0:1/0 d1:1 over0 over1", .run = 0);
	EXPECT(f, "", "-", .run = 0);
	/* not if its last token was the last that it may have */
	f->seqs[2].max_out = 2;
	arrive(f, 2, 20);
	EXPECT(f, "2c0", "p2:20", .run = 1, .fresh = 1);
	EXPECT(f, "2.", "d2:1 over2", .run = 0);
	EXPECT(f, "", "-", .run = 0);
}

static void test_async__abort_is_in_two_steps(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	arrive(f, 1, 20);
	EXPECT(f, "0c0 1c0", "p0:20 p1:20", .run = 2, .fresh = 2);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
	stop(f, 1, STEP_NS / 2);
	EXPECT(f, "0", "d0:1 d1:1/0", .run = 1);
	EXPECT(f, "0", "d0:1 d1:1/0 over1", .run = 1);
	EXPECT(f, "0", "d0:1", .run = 1);
}

/* POST /reset_prefix_cache?reset_running_requests=true: the step that was under way has lost its outputs, and those of
 * it who are in the next step come back. */
static void test_async__evicted_while_a_step_runs(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 60);
	EXPECT(f, "0c0", "p0:60", .run = 1, .fresh = 1);
	arrive(f, 1, 60);
	EXPECT(f, "0", "d0:1", .run = 2, .fresh = 1);
	EXPECT(f, "0 1c0", "d0:1 p1:60", .run = 2);
	EXPECT(f, "", "d0:1/0 d1:1/0 lost1 lost0", .run = 2, .again = 2);
	EXPECT(f, "0", "p0:63~ p1:37~", .run = 2);
	EXPECT(f, "0 1", "d0:1 p1:24~", .run = 2);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
}

/* POST /pause?mode=keep, and later /resume: nothing was under way, whatever had been planned; the first message behind
 * it counts for its own step and for the next. */
static void test_async__evicted_while_nothing_runs(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 60);
	arrive(f, 1, 40);
	EXPECT(f, "0c0 1c0", "p0:60 p1:40", .run = 2, .fresh = 2);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
	EXPECT(f, "0", "p0:63~ p1:37~ lost1 lost0", .run = 2, .again = 2);
	EXPECT(f, "0 1", "d0:1 p1:6~", .run = 2);
	/* again, and a third has come meanwhile: what comes back goes first, and fills the first step */
	arrive(f, 2, 20);
	EXPECT(f, "0", "p0:65~ p1:35~ lost1 lost0", .run = 3, .again = 2, .fresh = 1);
	EXPECT(f, "0 1 2c0", "d0:1 p1:9~ p2:20", .run = 3);
	EXPECT(f, "0 1 2", "d0:1 d1:1 d2:1", .run = 3);
}

/* The engine ended it by itself: the step that was under way has it still. */
static void test_async__failed_between_two_steps(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	arrive(f, 1, 20);
	EXPECT(f, "0c0 1c0", "p0:20 p1:20", .run = 2, .fresh = 2);
	arrive(f, 2, 20);
	EXPECT(f, "1x 2x", "- over2", .run = -1);
	EXPECT(f, "0", "d0:1 d1:1/0 over1", .run = 1);
	EXPECT(f, "0", "d0:1", .run = 1);
}

/* It ended by itself, and was told to stop before that was known: it is over once. */
static void test_async__abort_of_one_that_has_ended(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	arrive(f, 1, 20);
	EXPECT(f, "0c0 1c0", "p0:20 p1:20", .run = 2, .fresh = 2);
	stop(f, 1, 0);
	EXPECT(f, "0 1.", "d0:1 d1:1", .run = 1);
	EXPECT(f, "0", "d0:1 d1:1?/0 open over1", .run = 1);
	EXPECT(f, "0", "d0:1", .run = 1);
}

/* One that has ended is in one step more, which is not seen, or of which it shows that it was none. */
static void test_async__end_in_a_step_that_is_lost(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	arrive(f, 1, 20);
	EXPECT(f, "0c0 1c0", "p0:20 p1:20", .run = 2, .fresh = 2);
	EXPECT(f, "0 1.", "d0:1 d1:1", .run = 1);
	vsched__lost(&f->s, f->now_ns);
	EXPECT(f, "0", "d0:1 over1", .run = 1);
	arrive(f, 2, 20);
	EXPECT(f, "0", "d0:1", .run = 2, .fresh = 1);
	/* or one whose arrival was lost */
	EXPECT(f, "0 2.c0", "d0:1 p2:20? open", .run = 1);
	f->s.async_votes = -1;
	EXPECT(f, "0", "d0:1 over2", .run = 1);
}

static void test_async__preemption(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	arrive(f, 1, 20);
	EXPECT(f, "0c0 1c0", "p0:20 p1:20", .run = 2, .fresh = 2);
	/* its output was under way when it lost its place */
	EXPECT(f, "0 1", "d0:1 d1:1 lost1", .run = 1, .wait = 1);
	EXPECT(f, "0", "d0:1", .run = 1, .wait = 1);
	EXPECT(f, "0", "d0:1", .run = 2, .again = 1, .again_hits = 16);
	EXPECT(f, "0 1", "d0:1 p1:6~", .run = 2);
}

/* Two arrive at an idle engine; there was room for both, so the silent one came a step later. */
static void test_async__first_step_after_idleness(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	arrive(f, 1, 30);
	EXPECT(f, "0c0", "p0:20", .run = 2, .fresh = 2);
	EXPECT(f, "0 1c0", "d0:1 p1:30", .run = 2);
	EXPECT(f, "0! 1!", "d0:1 d1:1 over0 over1", .run = 0);
	EXPECT(f, "", "-", .run = 0);
	/* A long one begins at once. */
	arrive(f, 2, 150);
	EXPECT(f, "", "p2:100", .run = 1, .fresh = 1);
	EXPECT(f, "2c0", "p2:50", .run = 1);
}

/* A second, long one: was it there when the first step was scheduled? */
static void test_async__first_step_and_a_late_arrival(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	f->now_ns += 2000000;
	arrive(f, 1, 150);
	EXPECT(f, "0c0", "p0:20", .run = 2, .fresh = 2, .scheduled = 1000000);
	EXPECT(f, "0!", "d0:1 p1:99 over0", .run = 1);
	EXPECT(f, "1!", "p1:51 over1", .run = 0);
	EXPECT(f, "", "-", .run = 0);
	arrive(f, 2, 20);
	arrive(f, 3, 150);
	EXPECT(f, "2c0", "p2:20 p3:80? open", .run = 2, .fresh = 2, .scheduled = 1000000);
	EXPECT(f, "2! 3!", "d2:1 p3:70? over2 over3", .run = 0);
	EXPECT(f, "", "-", .run = 0);
	arrive(f, 4, 20);
	arrive(f, 5, 150);
	EXPECT(f, "4c0", "p4:20 p5:80", .run = 2, .fresh = 2, .scheduled = 8000000);
	EXPECT(f, "4! 5c0", "d4:1 p5:70 over4", .run = 1);
}

/* Taken on while the last message of the busy time was under way: that is one of no step. */
static void test_async__arrival_at_an_empty_round(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	EXPECT(f, "0c0", "p0:20", .run = 1, .fresh = 1);
	EXPECT(f, "0!", "d0:1 over0", .run = 0);
	arrive(f, 1, 30);
	EXPECT(f, "", "-", .run = 1, .fresh = 1);
	EXPECT(f, "1c0", "p1:30", .run = 1);
}

/* ---- not knowing ---- */

static void test_mode__sync_is_known_by_the_first_short_prompt(void **state)
{
	struct fixture *f = *state;

	f->s.async_votes = 0;
	two_run(f);
	assert_int_equal(f->s.async_votes, 0);
	arrive(f, 2, 10);
	EXPECT(f, "0 1 2c0", "d0:1 d1:1 p2:10", .run = 3, .fresh = 1);
	assert_true(f->s.async_votes < 0);
}

/* A long prompt tells nothing at first: it is said that it may not be in the step. */
static void test_mode__unknown_is_said(void **state)
{
	struct fixture *f = *state;

	f->s.async_votes = 0;
	two_run(f);
	arrive(f, 2, 150);
	EXPECT(f, "0 1", "d0:1 d1:1 p2:98? open", .run = 3, .fresh = 1);
	EXPECT(f, "0 1", "d0:1 d1:1 p2:51?", .run = 3);
	EXPECT(f, "0 1 2c0", "d0:1 d1:1 p2:1?", .run = 3);
}

static void test_mode__async_shows_when_one_stops(void **state)
{
	struct fixture *f = *state;

	f->s.async_votes = 0;
	arrive(f, 0, 10);
	EXPECT(f, "0c0", "p0:10", .run = 1, .fresh = 1);
	EXPECT(f, "0.", "d0:1 over0", .run = 0);
	EXPECT(f, "", " open", .run = 0);	/* a step without a member that we know */
	assert_true(vsched_is_async(&f->s));
	EXPECT(f, "", "-", .run = 0);
}

static void test_late__running_ones_are_taken_as_they_show(void **state)
{
	struct fixture *f = *state;

	f->seqs[0].state = VSEQ_DECODE;
	f->seqs[0].guess = true;
	assert_int_equal(vsched__run(&f->s, 0), 0);
	/* the engine runs one more: in the middle of its prompt */
	EXPECT(f, "0", "d0:1 open", .run = 2);
	f->seqs[1].prompt = 300;
	f->seqs[1].guess = true;
	assert_int_equal(vsched__arrive(&f->s, 1), 0);
	EXPECT(f, "0 1c0", "d0:1 p1:99?", .run = 2);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
}

/* Who waited before the capture began is taken on before those whose arrival was seen. */
static void test_late__who_waited_goes_first(void **state)
{
	struct fixture *f = *state;

	EXPECT(f, "", " open", .run = 2, .wait = 3);
	f->now_ns += LONG_NS;
	arrive(f, 0, 30);
	EXPECT(f, "", " open", .run = 3, .wait = 3, .fresh = 1);
	EXPECT(f, "", " open", .run = 4, .wait = 2, .fresh = 1);
	arrive(f, 1, 30);
	EXPECT(f, "", " open", .run = 5, .wait = 2, .fresh = 1);
	EXPECT(f, "0c16 1c0", "p0:14 p1:30 open", .run = 7, .fresh = 2, .hits = 16);
}

/* More than can run arrive at once at an idle engine, right after the capture began: nobody was before them. */
static void test_late__a_crowd_of_known_ones(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 4; i++)
		arrive(f, i, 120);
	EXPECT(f, "", "p0:100", .run = 1, .wait = 3, .fresh = 1);
	EXPECT(f, "0c0", "p0:20 p1:80", .run = 2, .wait = 2, .fresh = 1);
}

/* One of them left unseen: it is not waited for. */
static void test_late__who_waited_may_leave(void **state)
{
	struct fixture *f = *state;

	EXPECT(f, "", " open", .run = 1, .wait = 2);
	f->now_ns += LONG_NS;
	arrive(f, 0, 30);
	f->last_ns = f->now_ns += LONG_NS;
	EXPECT(f, "", " open", .run = 1, .wait = 1);
	EXPECT(f, "0c0", "p0:30 open", .run = 2, .fresh = 1);
}

static void test_no_counters__rows_alone(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 60);
	EXPECT(f, "0c0", "p0:60", .run = -1);
	arrive(f, 1, 250);
	EXPECT(f, "0", "d0:1 open", .run = -1);	/* is the other one in the middle of its prompt? */
	EXPECT(f, "0", "d0:1 open", .run = -1);
	EXPECT(f, "0 1c0", "d0:1 p1:99?", .run = -1);
	EXPECT(f, "0! 1", "d0:1 d1:1 over0", .run = -1);
	EXPECT(f, "1!", "d1:1 over1", .run = -1);
	assert_true(is_idle(f));
}

/* Those who do not read the prefix cache are not counted as taken on: the number running tells. */
static void test_no_prefix_cache__running_tells(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 60);
	EXPECT(f, "0", "p0:60", .run = 1);
	arrive(f, 1, 250);
	arrive(f, 2, 30);
	EXPECT(f, "0", "d0:1 p1:99", .run = 2, .wait = 1);
	EXPECT(f, "0!", "d0:1 p1:99 over0", .run = 1, .wait = 1);
	EXPECT(f, "1 2c16", "p1:52 p2:14", .run = 2, .fresh = 1, .hits = 16);
}

static void test_no_budget__is_learnt(void **state)
{
	struct fixture *f = *state;

	f->s.budget = 0;
	/* One that needs one step is certain; of one that takes three, only the sum is. */
	arrive(f, 0, 30);
	EXPECT(f, "0c0", "p0:30", .run = 1, .fresh = 1);
	arrive(f, 1, 20000);
	EXPECT(f, "0", "d0:1 p1:2047?", .run = 2, .fresh = 1);
	EXPECT(f, "0", "d0:1 p1:2047?", .run = 2);
	EXPECT(f, "0! 1c0", "d0:1 p1:15906? over0", .run = 1);
	/* 20,000 tokens in three steps beside one decoding: 6,668 to 10,000, and 8,192 is a default. */
	assert_in_range(f->s.least_budget, 6600, 6700);
	assert_in_range(f->s.most_budget, 9900, 10100);
	arrive(f, 2, 20000);
	EXPECT(f, "1", "d1:1 p2:8191?", .run = 2, .fresh = 1);
	EXPECT(f, "1", "d1:1 p2:8191?", .run = 2);
	EXPECT(f, "1 2c0", "d1:1 p2:3618?", .run = 2);
	assert_int_equal(vsched_budget(&f->s), 8192);
}

static void test_no_budget__bounds_that_contradict_begin_anew(void **state)
{
	struct fixture *f = *state;

	f->s.budget = 0;
	assert_int_equal(vsched_budget(&f->s), 2048);
	vsched_learn_budget(&f->s, 3000, 5, 0, 0);
	assert_int_equal(vsched_budget(&f->s), 512);
	vsched_learn_budget(&f->s, 3000, 2, 0, 0);
	assert_int_equal(vsched_budget(&f->s), 1024);
	vsched_learn_budget(&f->s, 10, 9, 1, 0);	/* nothing fits: it was held up by something else */
	assert_int_equal(vsched_budget(&f->s), 1024);
	/* no power of two, then two of them */
	f->s.least_budget = 1100;
	f->s.most_budget = 1200;
	assert_int_equal(vsched_budget(&f->s), 1100);
	f->s.least_budget = 900;
	f->s.most_budget = 4200;
	assert_int_equal(vsched_budget(&f->s), 900);
}

/* ---- loss ---- */

static void test_cut__rows_that_are_missing_are_inferred(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	EXPECT(f, "0", "d0:1 d1:1?", .run = -1, .cut = true);
	assert_int_equal(f->seqs[1].n_out, 3);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
}

/* The message with its end was not seen: fewer run than here, and nobody waits. */
static void test_lost__ends_are_mended_by_the_count(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	EXPECT(f, "0", "d0:1 over1", .run = 1, .wait = 0);
	assert_true(f->seqs[1].given_up);
	EXPECT(f, "", "- over0", .run = 0);
	assert_true(is_idle(f));
}

/* Here one waits that there does not: it ended unseen ... */
static void test_lost__waiting_ones_are_given_up(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 40);
	for (int i = 0; i < 40; i++)
		EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);	/* it may be on its way still */
	f->now_ns += LONG_NS;
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
	for (int i = 0; i < 31; i++)
		EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
	EXPECT(f, "0 1", "d0:1 d1:1 over2", .run = 2);
	assert_true(f->seqs[2].given_up);
	arrive(f, 3, 40);
	EXPECT(f, "0 1 3c0", "d0:1 d1:1 p3:40", .run = 3, .fresh = 1);
}

/* ... or it runs, and was taken on unseen. */
static void test_lost__waiting_ones_run(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	vsched__lost(&f->s, f->now_ns);
	arrive(f, 2, 90000);
	EXPECT(f, "0 1", "d0:1 d1:1 open", .run = 3);
	f->now_ns += LONG_NS;
	for (int i = 0; i < 33; i++)
		EXPECT(f, "0 1", "d0:1 d1:1 open", .run = 3);
	assert_int_equal(f->seqs[2].state, VSEQ_PREFILL);
	EXPECT(f, "0 1", "d0:1 d1:1 p2:1?", .run = 3);
	EXPECT(f, "0 1 2c0", "d0:1 d1:1 p2:98?", .run = 3);
}

static void test_lost__a_plan_is_forgotten(void **state)
{
	struct fixture *f = *state;

	go_async(f);
	arrive(f, 0, 20);
	EXPECT(f, "0c0", "p0:20", .run = 1, .fresh = 1);
	vsched__lost(&f->s, f->now_ns);
	EXPECT(f, "0", "d0:1", .run = 1);
	EXPECT(f, "0", "d0:1", .run = 1);
}

static void test_idle__nothing_is_left(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 40);
	EXPECT(f, "0! 1!", "d0:1 d1:1 over0 over1", .run = 0, .wait = 1);
	EXPECT(f, "", "-", .run = 0, .wait = 0);	/* it may be on its way still */
	f->now_ns += LONG_NS;
	EXPECT(f, "", "-", .run = 0, .wait = 1);
	EXPECT(f, "", "- over2", .run = 0, .wait = 0);
	assert_true(is_idle(f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(async__counters_tell_of_the_next_step), T(async__what_stops_is_in_one_step_more),
		T(async__abort_is_in_two_steps), T(async__failed_between_two_steps),
		T(async__evicted_while_a_step_runs), T(async__evicted_while_nothing_runs), T(async__preemption),
		T(async__abort_of_one_that_has_ended), T(async__end_in_a_step_that_is_lost),
		T(async__first_step_after_idleness),
		T(async__first_step_and_a_late_arrival), T(async__arrival_at_an_empty_round),
		T(mode__sync_is_known_by_the_first_short_prompt), T(mode__unknown_is_said),
		T(mode__async_shows_when_one_stops), T(late__running_ones_are_taken_as_they_show),
		T(late__who_waited_goes_first), T(late__who_waited_may_leave),
		T(late__a_crowd_of_known_ones),
		T(no_counters__rows_alone), T(no_prefix_cache__running_tells),
		T(no_budget__is_learnt),
		T(no_budget__bounds_that_contradict_begin_anew), T(cut__rows_that_are_missing_are_inferred),
		T(lost__ends_are_mended_by_the_count), T(lost__waiting_ones_are_given_up),
		T(lost__waiting_ones_run), T(lost__a_plan_is_forgotten), T(idle__nothing_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
