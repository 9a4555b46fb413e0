/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's scheduler followed from outside: chunks, preemptions, aborts. */
#include "vllm_sched_msg.h"

/* ---- synchronous ---- */

static void test_sync__chunks_fill_the_budget(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 250);
	EXPECT(f, "", "p0:100", .run = 1, .fresh = 1);
	EXPECT(f, "", "p0:100", .run = 1);
	arrive(f, 1, 30);
	EXPECT(f, "0c0 1c0", "p0:50 p1:30", .run = 2, .fresh = 1);
	arrive(f, 2, 300);
	EXPECT(f, "0 1", "d0:1 d1:1 p2:98", .run = 3, .fresh = 1);
	EXPECT(f, "0 1!", "d0:1 d1:1 p2:98 over1", .run = 2);
	EXPECT(f, "0", "d0:1 p2:99", .run = 2);
	EXPECT(f, "0. 2c0", "d0:1 p2:5 over0", .run = 1);
	EXPECT(f, "2", "d2:1", .run = 1);
}

static void test_sync__several_taken_on_in_one_step(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 20);
	EXPECT(f, "0c0", "p0:20", .run = 1, .fresh = 1);
	arrive(f, 1, 40);
	arrive(f, 2, 10);
	arrive(f, 3, 200);
	arrive(f, 4, 10);
	EXPECT(f, "0 1c0 2c0", "d0:1 p1:40 p2:10 p3:49", .run = 4, .wait = 1, .fresh = 3);
	EXPECT(f, "0 1 2", "d0:1 d1:1 d2:1 p3:97", .run = 4, .wait = 1);
	EXPECT(f, "0 1 2 3c0 4c0", "d0:1 d1:1 d2:1 p3:54 p4:10", .run = 5, .fresh = 1);
}

static void test_sync__cached_tokens_are_not_computed(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 500);
	EXPECT(f, "", "p0:100", .run = 1, .fresh = 1, .hits = 256);
	EXPECT(f, "", "p0:100", .run = 1);
	EXPECT(f, "0c256", "p0:44", .run = 1);
	/* each says its own; what is left is the silent one's */
	arrive(f, 1, 140);
	arrive(f, 2, 500);
	EXPECT(f, "0 1c128", "d0:1 p1:12 p2:87", .run = 3, .fresh = 2, .hits = 128 + 384);
	EXPECT(f, "0 1 2c384", "d0:1 d1:1 p2:29", .run = 3);
}

/* Older releases count one that waits for room in the KV cache in every step. */
static void test_sync__looked_up_but_not_taken_on(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 250);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2, .wait = 1, .fresh = 1);
	EXPECT(f, "0! 1", "d0:1 d1:1 over0", .run = 1, .wait = 1, .fresh = 1);
	EXPECT(f, "1", "d1:1 p2:99", .run = 2, .fresh = 1);
	/* one that ends in its first step does not run behind it */
	arrive(f, 3, 1);
	EXPECT(f, "1", "d1:1 p2:99", .run = 2, .wait = 1);
	EXPECT(f, "1 2c0 3!c0", "d1:1 p2:52 p3:1 over3", .run = 2, .fresh = 1);
}

static void test_sync__speculation_takes_budget(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 10);
	EXPECT(f, "0c0", "p0:10", .run = 1, .fresh = 1);
	arrive(f, 1, 300);
	/* Five drafts: two of them are tokens now, three are not. */
	EXPECT(f, "0*3", "d0:3 p1:94", .run = 2, .fresh = 1, .drafted = 5);
	EXPECT(f, "0*1", "d0:1 p1:97", .run = 2, .drafted = 2);
}

/* Two API servers: the engine reads their sockets in turn, not in the order in which requests came. */
static void test_sync__taken_on_in_another_order_than_they_came(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 60);
	arrive(f, 3, 50);
	EXPECT(f, "0 1 3c0", "d0:1 d1:1 p3:50", .run = 3, .wait = 1, .fresh = 1);
	EXPECT(f, "0 1 2c0 3", "d0:1 d1:1 d3:1 p2:60", .run = 4, .fresh = 1);
	/* 5 had output, so 6 had what was left; 4 would have had output, too */
	arrive(f, 4, 20);
	arrive(f, 5, 40);
	arrive(f, 6, 300);
	EXPECT(f, "0 1 3 2 5c0", "d0:1 d1:1 d3:1 d2:1 p5:40 p6:56", .run = 6, .wait = 1, .fresh = 2);
	EXPECT(f, "0 1 3 2 5", "d0:1 d1:1 d3:1 d2:1 d5:1 p6:95", .run = 6, .wait = 1);
}

/* Told to stop before the step was scheduled, and yet in it: word came late. It is over once. */
static void test_abort__that_the_step_does_not_know_of(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 30);
	stop(f, 1, 0);
	stop(f, 2, 0);
	EXPECT(f, "0 1 2c0", "d0:1 d1:1 p2:30 over1 over2", .run = 1, .fresh = 1);
	EXPECT(f, "0", "d0:1", .run = 1);
}

/* ---- preemption ---- */

static void test_preempt__computes_again(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	EXPECT(f, "0", "d0:1 lost1", .run = 1, .wait = 1);
	assert_int_equal(f->seqs[1].state, VSEQ_PREEMPTED);
	assert_int_equal(f->seqs[1].lost, 30 + 2 - 1);
	EXPECT(f, "0", "d0:1", .run = 1, .wait = 1);
	EXPECT(f, "0! 1", "d0:1 p1:16~ over0", .run = 1, .again = 1, .again_hits = 16);
	assert_int_equal(f->seqs[1].lost, 30 + 2 - 1 - 16);
	EXPECT(f, "1", "d1:1", .run = 1);
}

/* The last of the running goes first, and those taken together come back in their old order. */
static void test_preempt__last_in_first_out(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 10);
	arrive(f, 1, 20);
	arrive(f, 2, 30);
	EXPECT(f, "0c0 1c0 2c0", "p0:10 p1:20 p2:30", .run = 3, .fresh = 3);
	EXPECT(f, "0", "d0:1 lost2 lost1", .run = 1, .wait = 2);
	EXPECT(f, "0 1", "d0:1 p1:21~", .run = 2, .wait = 1, .again = 1);
	EXPECT(f, "0 1 2", "d0:1 d1:1 p2:31~", .run = 3, .again = 1);
}

/* One in the middle of its prompt is silent anyway: only the count of the running tells. */
static void test_preempt__in_the_middle_of_a_prompt(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 10);
	EXPECT(f, "0c0", "p0:10", .run = 1, .fresh = 1);
	arrive(f, 1, 250);
	EXPECT(f, "0", "d0:1 p1:99", .run = 2, .fresh = 1);
	EXPECT(f, "0", "d0:1 lost1", .run = 1, .wait = 1);
	assert_int_equal(f->seqs[1].lost, 99);
	EXPECT(f, "0", "d0:1 p1:67~ p1:32", .run = 2, .again = 1, .again_hits = 32);
	EXPECT(f, "0", "d0:1 p1:99", .run = 2);
	EXPECT(f, "0 1", "d0:1 p1:20", .run = 2);
}

/* How the cached tokens of two that come back are shared is not on the wire: that they are there is. */
static void test_preempt__two_come_back_at_once(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 90);
	EXPECT(f, "0c0", "p0:90", .run = 1, .fresh = 1);
	arrive(f, 1, 90);
	EXPECT(f, "0 1c0", "d0:1 p1:90", .run = 2, .fresh = 1);
	arrive(f, 2, 5);
	EXPECT(f, "0 1 2c0", "d0:1 d1:1 p2:5", .run = 3, .fresh = 1);
	EXPECT(f, "0", "d0:1 lost2 lost1", .run = 1, .wait = 2);
	f->seqs[2].to_compute_again = f->seqs[2].prompt = 90;
	EXPECT(f, "0! 1", "d0:1 p1:28?~ p2:71?~ over0", .run = 2, .again = 2, .again_hits = 64);
	EXPECT(f, "1 2", "d1:1 p2:19?~", .run = 2);
}

static void test_preempt__another_than_thought(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 40);
	EXPECT(f, "0 1 2c0", "d0:1 d1:1 p2:40", .run = 3, .fresh = 1);
	/* by priority: the first one, not the last */
	EXPECT(f, "1 2", "d1:1 d2:1 lost0", .run = 2, .wait = 1);
	EXPECT(f, "1 2", "d1:1 d2:1", .run = 2, .wait = 1);
}

/* POST /reset_prefix_cache?reset_running_requests=true: who is back in the very next step was gone, too, the ones with
 * output in it and those without. */
static void test_evict__all_lose_their_place(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 60);
	EXPECT(f, "0c0", "p0:60", .run = 1, .fresh = 1);
	arrive(f, 1, 60);
	EXPECT(f, "0 1c0", "d0:1 p1:60", .run = 2, .fresh = 1);
	arrive(f, 2, 20);
	EXPECT(f, "0 1 2c0", "d0:1 d1:1 p2:20", .run = 3, .fresh = 1);
	EXPECT(f, "0", "p0:63~ p1:37~ lost2 lost1 lost0", .run = 2, .wait = 1, .again = 2);
	assert_int_equal(f->seqs[0].lost, 60 + 3 - 1);
	assert_int_equal(f->seqs[1].lost, 60 + 2 - 1);
	EXPECT(f, "0 1 2", "d0:1 p1:25~ p2:21~", .run = 3, .again = 1);
	EXPECT(f, "0! 1 2", "d0:1 d1:1 d2:1 over0", .run = 2);
	/* One of them ends in it. */
	EXPECT(f, "1! 2", "p1:64~ p2:23~ lost2 lost1 over1", .run = 1, .again = 2);
}

/* A pause that keeps requests: they wait, and others come meanwhile. */
static void test_evict__with_new_ones(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 26);
	EXPECT(f, "0 1 2c0", "p0:42~ p1:32~ p2:26 lost1 lost0", .run = 3, .again = 2, .fresh = 1);
	EXPECT(f, "0 1 2", "d0:1 d1:1 d2:1", .run = 3);
}

/* The first of all steps that could tell the mode: of what comes back nobody knows yet how much it takes. */
static void test_evict__tells_no_mode(void **state)
{
	struct fixture *f = *state;

	f->s.async_votes = 0;
	arrive(f, 0, 60);
	EXPECT(f, "0c0", "p0:60", .run = 1, .fresh = 1);
	arrive(f, 1, 80);
	EXPECT(f, "0", "p0:61~ p1:39? open lost0", .run = 2, .again = 1, .fresh = 1);
	assert_int_equal(f->s.async_votes, 0);
}

/* One that lost its place unseen is not taken for all: others run that do not come back. */
static void test_evict__not_for_one(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 20);
	EXPECT(f, "0 1 2c0", "d0:1 d1:1 p2:20", .run = 3, .fresh = 1);
	EXPECT(f, "0 1 2", "d0:1 d1:1 d2:1", .run = 3, .again = 1);
}

/* ---- by priority ---- */

static void arrive_by(struct fixture *f, uint32_t slot, int64_t prompt, int priority)
{
	f->seqs[slot].priority = priority;
	arrive(f, slot, prompt);
	f->seqs[slot].asked_ns = f->seqs[slot].arrived_ns;
}

static void test_priority__who_goes_first(void **state)
{
	struct fixture *f = *state;

	f->s.by_priority = true;
	arrive_by(f, 0, 10, 0);
	EXPECT(f, "0c0", "p0:10", .run = 1, .fresh = 1, .prompts = 10);
	arrive_by(f, 1, 120, 5);
	arrive_by(f, 2, 130, 1);
	arrive_by(f, 3, 140, -1);
	arrive_by(f, 4, 150, 1);
	f->now_ns += 3 * STEP_NS;
	f->last_ns = f->now_ns;
	EXPECT(f, "0", "d0:1 p3:99", .run = 2, .wait = 3, .fresh = 1, .prompts = 140);
	EXPECT(f, "0 3c0", "d0:1 p3:41 p2:58", .run = 3, .wait = 2, .fresh = 1, .prompts = 130);
	EXPECT(f, "0 3 2c0", "d0:1 d3:1 p2:72 p4:26", .run = 4, .wait = 1, .fresh = 1, .prompts = 150);
	EXPECT(f, "0 3 2", "d0:1 d3:1 d2:1 p4:97", .run = 4, .wait = 1);
}

/* The last in that order, not the last that came to run. */
static void test_priority__who_loses_its_place(void **state)
{
	struct fixture *f = *state;

	f->s.by_priority = true;
	arrive_by(f, 0, 30, 7);
	EXPECT(f, "0c0", "p0:30", .run = 1, .fresh = 1, .prompts = 30);
	arrive_by(f, 1, 20, 1);
	EXPECT(f, "0 1c0", "d0:1 p1:20", .run = 2, .fresh = 1, .prompts = 20);
	EXPECT(f, "1", "d1:1 lost0", .run = 1, .wait = 1);
	arrive_by(f, 2, 10, 1);
	EXPECT(f, "1! 2c0", "d1:1 p2:10 over1", .run = 1, .wait = 1, .fresh = 1, .prompts = 10);
	EXPECT(f, "2! 0", "d2:1 p0:32~ over2", .run = 1, .again = 1);
}

/* One that came a moment ago would go first, if it had been in time: the prompts say that another did, or its output. */
static void test_priority__too_late(void **state)
{
	struct fixture *f = *state;

	f->s.by_priority = true;
	arrive_by(f, 0, 10, 0);
	EXPECT(f, "0c0", "p0:10", .run = 1, .fresh = 1, .prompts = 10);
	arrive_by(f, 1, 120, 5);
	arrive_by(f, 2, 130, 1);
	EXPECT(f, "0", "d0:1 p1:99", .run = 2, .wait = 1, .fresh = 1, .prompts = 120);
	EXPECT(f, "0! 1c0", "d0:1 p1:21 p2:78 over0", .run = 2, .fresh = 1, .prompts = 130);
	EXPECT(f, "1! 2c0", "d1:1 p2:52 over1", .run = 1);
	arrive_by(f, 3, 20, 5);
	arrive_by(f, 4, 20, 1);
	EXPECT(f, "2 3c0", "d2:1 p3:20", .run = 2, .wait = 1, .fresh = 1, .prompts = 20);
}

/* Who needs an adapter for which there is no room is passed over, until there is. */
static void test_loras__passed_over(void **state)
{
	struct fixture *f = *state;

	f->seqs[0].lora = f->seqs[3].lora = 1;
	f->seqs[1].lora = 2;
	arrive(f, 0, 10);
	EXPECT(f, "0c0", "p0:10", .run = 1, .fresh = 1, .prompts = 10);
	arrive(f, 1, 120);
	arrive(f, 2, 130);
	arrive(f, 3, 140);
	EXPECT(f, "0", "d0:1 p2:99", .run = 2, .wait = 2, .fresh = 1, .prompts = 130);
	EXPECT(f, "0 2c0", "d0:1 p2:31 p3:68", .run = 3, .wait = 1, .fresh = 1, .prompts = 140);
	EXPECT(f, "0! 2 3c0", "d0:1 d2:1 p3:72 over0", .run = 2, .wait = 1);
	EXPECT(f, "2 3!", "d2:1 d3:1 over3", .run = 1, .wait = 1);
	EXPECT(f, "2", "d2:1 p1:99", .run = 2, .fresh = 1, .prompts = 120);
	/* One more ran beside it: then there was room for two. */
	f->seqs[4].lora = 3;
	f->seqs[5].lora = 2;
	arrive(f, 4, 150);
	arrive(f, 5, 160);
	EXPECT(f, "2 1c0", "d2:1 p1:21 p4:78", .run = 3, .wait = 1, .fresh = 1, .prompts = 150);
	EXPECT(f, "2 1 4c0", "d2:1 d1:1 p4:72 p5:26", .run = 4, .fresh = 1, .prompts = 160);
}

/* With pipeline parallelism a running one is in every second step only. */
static void test_sync__left_out_is_not_preempted(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	EXPECT(f, "0", "d0:1", .run = 2);
	EXPECT(f, "1", "d1:1", .run = 2);
	EXPECT(f, "0", "d0:1", .run = 2);
}

/* Without counters it may as well have lost its place, and who has output may compute again what it had. */
static void test_sync__left_out_without_counters(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	EXPECT(f, "0", "d0:1 open", .run = -1);
	EXPECT(f, "0 1", "d0:1 d1:1?", .run = -1);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = -1);
}

/* ---- aborts ---- */

static void test_abort__during_a_step(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	stop(f, 1, STEP_NS / 2);
	EXPECT(f, "0", "d0:1 d1:1/0 over1", .run = 1);
	EXPECT(f, "0", "d0:1", .run = 1);
}

static void test_abort__its_output_came_first(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	stop(f, 1, STEP_NS / 2);
	EXPECT(f, "0 1", "d0:1 d1:1 over1", .run = 1);
	EXPECT(f, "0", "d0:1", .run = 1);
	stop(f, 0, STEP_NS / 2);
	EXPECT(f, "0!", "d0:1 over0", .run = 0);
}

static void test_abort__of_one_that_waits(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 50);
	arrive(f, 3, 40);
	stop(f, 2, STEP_NS / 2);
	EXPECT(f, "0 1", "d0:1 d1:1 over2", .run = 2, .wait = 1);
	EXPECT(f, "0 1 3c0", "d0:1 d1:1 p3:40", .run = 3, .fresh = 1);
}

static void test_abort__in_the_middle_of_a_prompt(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 10);
	EXPECT(f, "0c0", "p0:10", .run = 1, .fresh = 1);
	arrive(f, 1, 350);
	EXPECT(f, "0", "d0:1 p1:99", .run = 2, .fresh = 1);
	stop(f, 1, STEP_NS / 2);
	EXPECT(f, "0", "d0:1 p1:99 over1", .run = 1);
	EXPECT(f, "0", "d0:1", .run = 1);
}

/* Between two steps: the engine goes round once more, with nothing to compute. */
static void test_abort__between_two_steps(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 10);
	EXPECT(f, "0c0", "p0:10", .run = 1, .fresh = 1);
	stop(f, 0, 1000);
	assert_int_equal(message(f, STEP_NS / 50, "", (struct says){ .run = 0 }), 0);
	assert_string_equal(f->text, "- over0");
	assert_true(is_idle(f));
	/* but one that took as long as a step was one */
	arrive(f, 1, 10);
	EXPECT(f, "1c0", "p1:10", .run = 1, .fresh = 1);
	stop(f, 1, 1000);
	EXPECT(f, "", "d1:1?/0 open over1", .run = 0);
}

/* Word of it had come, but had not reached the scheduler: it is in the next step, too. */
static void test_abort__that_the_engine_is_slow_to_see(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	stop(f, 1, STEP_NS - 1000);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
	EXPECT(f, "0", "d0:1 d1:1?/0 open over1", .run = 1);
	EXPECT(f, "0", "d0:1", .run = 1);
}

/* One that gave no output is known to be aborted: that as many run means that another was taken on. */
static void test_abort__and_an_admission_that_is_not_counted(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 40);
	stop(f, 1, STEP_NS / 2);
	EXPECT(f, "0 2", "d0:1 d1:1/0 p2:40 over1", .run = 2);
	arrive(f, 3, 150);
	stop(f, 2, STEP_NS / 2);
	EXPECT(f, "0", "d0:1 d2:1/0 p3:98 over2", .run = 2);
}

static void test_abort__of_one_that_lost_its_place(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	EXPECT(f, "0", "d0:1 lost1", .run = 1, .wait = 1);
	stop(f, 1, STEP_NS / 2);
	EXPECT(f, "0", "d0:1 over1", .run = 1);
	assert_int_equal(f->s.waiting.n, 0);
}

static void test_failed__was_in_no_step(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 50);
	EXPECT(f, "0 1 2x", "d0:1 d1:1 over2", .run = 2);
}

/* POST /pause?mode=abort, or a server that is told to stop: the engine says so in a message of its own, of no step. */
static void test_failed__between_two_steps(void **state)
{
	struct fixture *f = *state;

	two_run(f);
	arrive(f, 2, 50);
	EXPECT(f, "1x", "- over1", .run = -1);
	EXPECT(f, "2x", "- over2", .run = -1);
	assert_int_equal(f->s.waiting.n, 0);
	EXPECT(f, "0", "d0:1", .run = 1);
	arrive(f, 3, 10);
	EXPECT(f, "0x 3x", "- over0 over3", .run = -1);
	assert_true(is_idle(f));
}

static void test_vsched__keeps_to_the_room_it_is_given(void **state)
{
	struct fixture *f = *state;
	struct tl_member members[2];
	struct vsched_out out = { .members = members, .max = 2 };
	struct vsched_row rows[N_SEQS];
	struct vsched_in in = { .rows = rows, .n_rows = parse_rows("0c0 1c0 2c0", rows),
				.end_ns = f->now_ns + STEP_NS };

	for (uint32_t i = 0; i < 3; i++)
		arrive(f, i, 10);
	assert_int_equal(vsched__step(&f->s, f->seqs, &in, &out), 0);
	assert_int_equal(out.n, 2);
	assert_int_equal(f->seqs[2].n_out, 1);
}

static void test_vsched__survives_oom(void **state)
{
	(void)state;
	OOM_LOOP({
		struct fixture *f = NULL;

		oom_after(-1);
		setup((void **)&f);
		oom_after(oom_i);
		if (!vsched__arrive(&f->s, 0) && !vsched__arrive(&f->s, 1)) {
			f->seqs[0].prompt = 10;
			f->seqs[1].prompt = 250;
			if (!message(f, STEP_NS, "0c0", (struct says){ .run = 2, .fresh = 2 }))
				message(f, STEP_NS, "0!", (struct says){ .run = 0, .wait = 1 });
		}
		teardown((void **)&f);
	});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(sync__chunks_fill_the_budget), T(sync__several_taken_on_in_one_step),
		T(sync__cached_tokens_are_not_computed), T(sync__looked_up_but_not_taken_on), T(sync__speculation_takes_budget),
		T(sync__taken_on_in_another_order_than_they_came),
		T(preempt__computes_again), T(preempt__last_in_first_out),
		T(preempt__in_the_middle_of_a_prompt), T(preempt__two_come_back_at_once),
		T(preempt__another_than_thought), T(evict__all_lose_their_place), T(evict__with_new_ones),
		T(evict__tells_no_mode), T(evict__not_for_one), T(sync__left_out_is_not_preempted), T(sync__left_out_without_counters),
		T(priority__who_goes_first), T(priority__who_loses_its_place), T(priority__too_late), T(loras__passed_over),
		T(abort__during_a_step), T(abort__its_output_came_first), T(abort__of_one_that_waits),
		T(abort__in_the_middle_of_a_prompt), T(abort__between_two_steps), T(abort__that_the_engine_is_slow_to_see),
		T(abort__and_an_admission_that_is_not_counted),
		T(abort__of_one_that_lost_its_place), T(failed__was_in_no_step), T(failed__between_two_steps),
		T(abort__that_the_step_does_not_know_of),
		T(vsched__keeps_to_the_room_it_is_given), T(vsched__survives_oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
