/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's adapter on messages made by hand: one engine, ids, preemptions, and what goes missing. */
#include "vllm_feed.h"

/* ---- one engine, one API server ---- */

static void test_request__from_add_to_end(void **state)
{
	struct fixture *f = *state;

	add(f, "chatcmpl-a-00000001", 700);
	SAID(f, "begin 0\n");
	step(f, "", stats(1, 0, 1, 0, 0));
	SAID(f, "step 0:p512 @1000-1010\n");
	step(f, "chatcmpl-a-00000001:[{type:1,timestamp:1.001},{type:2,timestamp:1.002}]", stats(1, 0, 0, 0, 0));
	SAID(f, "queued 0 @1001\nscheduled 0 @1002\nstep 0:p188 @1010-1020\n");
	assert_int_equal(vllm__on_id(f->v, f->now, API, 5, "chatcmpl-a", true), 0);
	SAID(f, "link r5 0 of 20\n");
	step(f, "chatcmpl-a-00000001!",
	     "{num_running_reqs:0,num_waiting_reqs:3,num_skipped_waiting_reqs:1,kv_cache_usage:0.25,"
	     "prefix_cache_stats:{requests:0,queries:90,hits:16,preempted_requests:0}}");
	SAID(f, "step 0:d1 @1020-1030\nrun 0 wait 4 kv 250000 prefix 16/90\nend 0\n");
	/* the message that follows the last output is none of a step */
	step(f, "", stats(0, 0, 0, 0, 0));
	SAID(f, "");
	/* the engine slept meanwhile: the next step begins with what woke it */
	f->now += 500 * MS;
	add(f, "chatcmpl-b-00000001", 20);
	step(f, "chatcmpl-b-00000001", stats(1, 0, 1, 0, 0));
	SAID(f, "begin 1\nstep 1:p20 @1540-1550\n");
}

static void test_request__step_begins_when_it_was_scheduled(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	step(f, "a:[{type:1,timestamp:1.003},{type:2,timestamp:1.004}]", stats(1, 0, 1, 0, 0));
	SAID(f, "begin 0\nqueued 0 @1003\nscheduled 0 @1004\nstep 0:p20 @1004-1010\n");
}

/* Planning ahead, the engine counts a request in a round that computes nothing: no count is lost. */
static void test_stats__of_no_step_are_those_of_the_next(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	step(f, "a", stats(1, 0, 1, 0, 0));
	step(f, "a!", stats(0, 0, 0, 0, 0));
	SAID(f, "begin 0\nstep 0:p20 @1000-1010\nstep 0:d1 @1010-1020\nend 0\n");
	add(f, "b", 30);
	f->now += MS;
	outputs_on(f, OUT, f->now, "", "{num_running_reqs:1,num_waiting_reqs:0,prefix_cache_stats:{requests:1,queries:30,hits:16}}");
	step(f, "b", "{num_running_reqs:1,num_waiting_reqs:0,kv_cache_usage:0.5,prefix_cache_stats:{requests:0,queries:4,hits:0}}");
	SAID(f, "begin 1\nstep 1:p14 @1021-1031\nrun 1 wait 0 kv 500000 prefix 16/34\n");
}

/* X-Request-Id is known before the request is handed over, and its prefix is not. */
static void test_ids__children_and_prompts_of_one_request(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vllm__on_id(f->v, f->now, API, 7, "mine", false), 0);
	add(f, "0_chatcmpl-mine-0a0a0a0a", 20);
	add(f, "1_chatcmpl-mine-0a0a0a0a", 20);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 8, "other", false), 0);
	add(f, "cmpl-other-0-0a0a0a0a", 20);
	add(f, "cmpl-other-1-0a0a0a0a", 20);
	SAID(f, "begin 0\nlink r7 0 of 20\nbegin 1\nlink r7 1 of 20\nbegin 2\nlink r8 2 of 20\nbegin 3\nlink r8 3 of 20\n");
	/* said again with the answer: no news */
	assert_int_equal(vllm__on_id(f->v, f->now, API, 7, "chatcmpl-mine", true), 0);
	SAID(f, "");
	/* an id that the server chose */
	add(f, "resp_77_0-0a0a0a0a", 20);
	add(f, "resp_77_1-0a0a0a0a", 20);
	SAID(f, "begin 4\nbegin 5\n");
	assert_int_equal(vllm__on_id(f->v, f->now, API, 9, "resp_77", true), 0);
	SAID(f, "link r9 5 of 20\nlink r9 4 of 20\n");
	/* the same X-Request-Id once more: the newer request's */
	vllm__on_end(f->v, 7);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 10, "mine", false), 0);
	add(f, "chatcmpl-mine-0b0b0b0b", 20);
	SAID(f, "begin 6\nlink r10 6 of 20\n");
}

/* The Rust front end numbers no prompts: the end of its ids is the client's own. */
static void test_ids__end_in_a_number_of_the_client(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vllm__on_id(f->v, f->now, API, 1, "run-1-0", false), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 2, "run-1-1", false), 0);
	add(f, "cmpl-run-1-0-0a0a0a0a", 20);
	add(f, "cmpl-run-1-1-0a0a0a0b", 20);
	SAID(f, "begin 0\nlink r1 0 of 20\nbegin 1\nlink r2 1 of 20\n");
	/* what they asked was not seen: their answers say it */
	add(f, "cmpl-run-2-0-0a0a0a0a", 20);
	add(f, "cmpl-run-2-1-0a0a0a0b", 20);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 4, "cmpl-run-2-1", true), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 3, "cmpl-run-2-0", true), 0);
	SAID(f, "begin 2\nbegin 3\nlink r4 3 of 20\nlink r3 2 of 20\n");
	/* the Python front end's: a number of a prompt, although another goes by the same */
	assert_int_equal(vllm__on_id(f->v, f->now, API, 5, "run-3", false), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 6, "run-3-0", false), 0);
	add(f, "cmpl-run-3-0-0a0a0a0a", 20);
	add(f, "cmpl-run-3-0-0-0a0a0a0a", 20);
	SAID(f, "begin 4\nlink r5 4 of 20\nbegin 5\nlink r6 5 of 20\n");
}

/* Of a batch of chats each conversation has a number; of a client that numbers its chats so, each
 * is alone. */
static void test_ids__conversations_of_a_batch(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vllm__on_id(f->v, f->now, API, 1, "batch", false), 0);
	add(f, "chatcmpl-batch_0-0a0a0a0a", 20);
	add(f, "chatcmpl-batch_1-0a0a0a0a", 20);
	SAID(f, "begin 0\nlink r1 0 of 20\nbegin 1\nlink r1 1 of 20\n");
	assert_int_equal(vllm__on_id(f->v, f->now, API, 2, "user", false), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 3, "user_1", false), 0);
	add(f, "chatcmpl-user_1-0a0a0a0a", 20);
	add(f, "chatcmpl-user-0a0a0a0a", 20);
	SAID(f, "begin 2\nlink r3 2 of 20\nbegin 3\nlink r2 3 of 20\n");
}

/* Paths whose answers show the id at their end, when the sequence may be over. */
static void test_ids__of_other_paths(void **state)
{
	static const char *const ids[] = { "generate-tokens-a-0a0a0a0a", "generative-scoring-a-0-0a0a0a0a",
					   "generative-scoring-a-1-0a0a0a0a", "decision-a-0-0a0a0a0a", "embd-a-0-0a0a0a0a",
					   "pooling-a-0-0a0a0a0a", "classify-a-0-0a0a0a0a", "score-a-0-0a0a0a0a" };
	struct fixture *f = *state;
	char want[64];

	assert_int_equal(vllm__on_id(f->v, f->now, API, 7, "a", false), 0);
	for (unsigned i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		add(f, ids[i], 20);
		snprintf(want, sizeof(want), "begin %u\nlink r7 %u of 20\n", i, i);
		SAID(f, want);
	}
}

/* A gateway that tries again too soon, a script that names all of its requests alike. */
static void test_request__one_name_of_several_at_once_tells_nothing(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vllm__on_id(f->v, f->now, API, 1, "same", false), 0);
	add(f, "chatcmpl-same-0a0a0a0a", 20);
	SAID(f, "begin 0\nlink r1 0 of 20\n");		/* was alone then */
	assert_int_equal(vllm__on_id(f->v, f->now, API, 2, "same", false), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 3, "same", false), 0);
	add(f, "chatcmpl-same-0b0b0b0b", 20);
	add(f, "0_resp_same-0c0c0c0c", 20);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 2, "chatcmpl-same", true), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 3, "resp_same", true), 0);
	SAID(f, "begin 1\nbegin 2\n");
	/* one is left, but which? */
	vllm__on_end(f->v, 1);
	vllm__on_end(f->v, 3);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 4, "same", false), 0);
	add(f, "cmpl-same-0-0d0d0d0d", 20);
	SAID(f, "begin 3\n");
	vllm__on_end(f->v, 2);
	vllm__on_end(f->v, 4);
	/* all have ended: the next one is alone, and gets nothing of theirs */
	assert_int_equal(vllm__on_id(f->v, f->now, API, 5, "same", false), 0);
	add(f, "chatcmpl-same-0e0e0e0e", 20);
	SAID(f, "begin 4\nlink r5 4 of 20\n");
	/* a name of its own, and an end that was told before */
	vllm__on_end(f->v, 2);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 6, "other", false), 0);
	add(f, "chatcmpl-other-0f0f0f0f", 20);
	SAID(f, "begin 5\nlink r6 5 of 20\n");
}

static void test_add__seen_twice_is_one(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	add_to(f, IN2, "a", 20);
	SAID(f, "begin 0\n");
}

/* Of a long prompt only the begin is captured: its length stands there. */
static void test_add__cut(void **state)
{
	struct fixture *f = *state;

	send_text(f, IN, TL_IN, 0, "[\"a\",#600,nil,{max_tokens:5},nil,1.5]", 200);
	step(f, "", stats(1, 0, 1, 0, 0));
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "begin 0\nstep 0:p512 @1000-1010\nstep 0:p88 @1010-1020\n");
}

static void test_abort__ends_with_the_step(void **state)
{
	struct fixture *f = *state;

	known_mode(f);
	add(f, "a", 20);
	add(f, "b", 20);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	SAID(f, "begin 2\nbegin 3\nstep 2:p20 3:p20 @1020-1030\n");
	f->now += 5 * MS;
	abort_it(f, "b");
	abort_it(f, "nobody");
	f->now -= 5 * MS;
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "step 2:d1 3:d1 @1030-1040\nend 3\n");
	step(f, "a b", stats(1, 0, 0, 0, 0));	/* its output came late */
	SAID(f, "step 2:d1 @1040-1050\n");
}

/* Where a step takes long for want of a CPU, so does what lies between two: an abort may be read there or not. */
static void test_abort__soon_behind_the_begin_of_a_long_step(void **state)
{
	struct fixture *f = *state;

	known_mode(f);
	add(f, "a", 20);
	add(f, "b", 20);
	add(f, "c", 20);
	step(f, "a b c", stats(3, 0, 3, 0, 0));
	SAID(f, "begin 2\nbegin 3\nbegin 4\nstep 2:p20 3:p20 4:p20 @1020-1030\n");
	f->now += 9 * MS;
	abort_it(f, "b");
	f->now += 2 * MS;
	abort_it(f, "c");
	f->now += 139 * MS;
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "open step 2:d1 3:d1? 4:d1 @1030-1190\nend 3\nend 4\n");
}

static void test_preempt__told_with_the_next_output(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	add(f, "b", 30);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "begin 0\nbegin 1\nstep 0:p20 1:p30 @1000-1010\nstep 0:d1 1:d1 @1010-1020\n");
	step(f, "a", stats(1, 1, 0, 0, 0));
	step(f, "a", stats(1, 1, 0, 0, 0));
	SAID(f, "step 0:d1 @1020-1030\nstep 0:d1 @1030-1040\n");
	/* 30 + 2 tokens, the last of them not computed; 16 are in the cache still */
	step(f, "a b:[{type:3,timestamp:1.021},{type:2,timestamp:1.041}]", stats(2, 0, 0, 1, 16));
	SAID(f, "step 0:d1 1:~16 @1041-1050\npreempted 1 @1021-1041 lost 15\n");
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "step 0:d1 1:d1 @1050-1060\n");
}

/* Two preemptions between two outputs, and one that the capture is over before it comes back. */
static void test_preempt__several_and_the_last_word(void **state)
{
	struct fixture *f = *state;

	known_mode(f);
	add(f, "a", 20);
	add(f, "b", 600);
	step(f, "a", stats(2, 0, 2, 0, 0));
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "begin 2\nbegin 3\nstep 2:p20 3:p492 @1020-1030\nstep 2:d1 3:p108 @1030-1040\n");
	step(f, "a", stats(1, 1, 0, 0, 0));
	step(f, "a", stats(2, 0, 0, 1, 0));
	step(f, "a", stats(1, 1, 0, 0, 0));
	SAID(f, "step 2:d1 @1040-1050\nstep 2:d1 3:~511 @1050-1060\nstep 2:d1 @1060-1070\n");
	step(f, "a", stats(2, 0, 0, 1, 0));
	step(f, "a b:[{type:3,timestamp:1.041},{type:2,timestamp:1.051},{type:3,timestamp:1.061},{type:2,timestamp:1.071}]",
	     stats(2, 0, 0, 0, 0));
	SAID(f, "step 2:d1 3:~511 @1070-1080\nstep 2:d1 3:~90 @1080-1090\n"
	     "preempted 3 @1041-1051 lost 600\npreempted 3 @1061-1071 lost 511\n");
	step(f, "a", stats(1, 1, 0, 0, 0));
	f->now += 5 * MS;
	abort_it(f, "b");
	f->now -= 5 * MS;
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "step 2:d1 @1090-1100\nstep 2:d1 @1100-1110\npreempted 3 @1090-0 lost 601?\nend 3\n");
}

/* ---- joined late, cut, lost ---- */

static void test_late__rows_of_strangers(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vllm__on_id(f->v, f->now, API, 3, "chatcmpl-a", true), 0);
	step(f, "chatcmpl-a-00000001 b", stats(3, 0, 0, 0, 0));
	SAID(f, "joined 0\nlink r3 0 of 20\njoined 1\nopen step 0:d1 1:d1 @1010-1010\n");
	step(f, "chatcmpl-a-00000001 b! c", stats(2, 0, 0, 0, 0));
	SAID(f, "joined 2\nstep 0:d1 1:d1 2:d1 @1010-1020\nend 1\n");
}

/* In the middle of its prompt when events were lost, and unseen till then: it goes by its id once that shows. */
static void test_late__one_runs_unseen(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vllm__lost(f->v), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 3, "chatcmpl-b", true), 0);
	step(f, "a", stats(2, 1, 0, 0, 0));
	SAID(f, "joined 0\njoined 1\nopen step 0:d1 1:p511? @1010-1010\n");
	step(f, "a", stats(2, 1, 0, 0, 0));
	SAID(f, "step 0:d1 1:p511? @1010-1020\n");
	step(f, "a chatcmpl-b-00000001", stats(2, 0, 0, 0, 0));
	SAID(f, "link r3 1 of 20\nstep 0:d1 1:p1? @1020-1030\n");
	step(f, "a! chatcmpl-b-00000001!", stats(0, 0, 0, 0, 0));
	SAID(f, "step 0:d1 1:d1 @1030-1040\nend 0\nend 1\n");
}

static void test_cut__message_is_no_preemption(void **state)
{
	struct fixture *f = *state;
	struct vllm_counts c;

	add(f, "a", 20);
	add(f, "b", 20);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	SAID(f, "begin 0\nbegin 1\nstep 0:p20 1:p20 @1000-1010\n");
	f->now += 10 * MS;
	send_text(f, OUT, TL_OUT, -1, "[0,[[\"a\",[7],nil,nil,nil,nil,nil,nil],[\"b\",[7],nil,nil,nil,nil,nil,nil]],{num_running_reqs:2},1.5]", 16);
	SAID(f, "step 0:d1 1:d1? @1010-1020\n");
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "step 0:d1 1:d1 @1020-1030\n");
	vllm__counts(f->v, &c);
	assert_int_equal(c.inferred_steps, 1);
}

static void test_lost__streams_are_joined_anew(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	add(f, "b", 20);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	SAID(f, "begin 0\nbegin 1\nstep 0:p20 1:p20 @1000-1010\n");
	/* half of a frame, and then nothing more of it */
	net(f, OUT, TL_OUT, "\x02\0\0\0\0\0\0\x10\0", 9, 9);
	assert_int_equal(vllm__lost(f->v), 0);
	/* the end of b was in it */
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "step 0:d1 @1010-1020\nend 1\n");
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "step 0:d1 @1020-1030\n");
}

/* It was given up too early: it comes back as one that was there before. */
static void test_lost__given_up_but_alive(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	add(f, "b", 20);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "begin 0\nbegin 1\nstep 0:p20 1:p20 @1000-1010\nstep 0:d1 @1010-1020\nend 1\n");
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "joined 1\nstep 0:d1 1:d1 @1020-1030\n");
}

static void test_garbage__is_counted(void **state)
{
	struct fixture *f = *state;
	struct vllm_counts c;
	struct tl_raw_net bad = { .hdr = { sizeof(bad), TL_RAW_NET, 0, CORE, CORE, 5 }, .head = 9, .total = 9 };

	send_text(f, OUT, TL_OUT, -1, "[0,[[7,8]],nil,1.5]", 0);
	send_text(f, OUT, TL_OUT, -1, "[0,[],nil,1.5,[1,nil],nil,nil,nil,nil]", 0);	/* a reply */
	send_text(f, OUT, TL_OUT, -1, "[0,[],nil,1.5,nil,nil,3,nil,nil]", 0);	/* the end of a wave */
	send_text(f, IN, TL_IN, 0, "[7,8,9]", 0);
	send_text(f, IN, TL_IN, 1, "7", 0);
	send_text(f, IN, TL_IN, 9, "[1]", 0);
	net(f, IN, TL_IN, "GET / HTTP/1.1\r\n\r\n", 18, 18);
	SAID(f, "");
	assert_int_equal(vllm__feed(f->v, &bad.hdr), -EBADMSG);
	vllm__counts(f->v, &c);
	assert_int_equal(c.messages, 1 + 6);	/* the first is of setup() */
	assert_int_equal(c.steps, 0);
}

static void test_process__exit_ends_its_sequences(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_proc gone = { .hdr = { sizeof(gone), TL_RAW_PROC, 0, CORE, CORE, f->now + MS },
				    .what = TL_PROC_EXIT };

	add(f, "a", 20);
	step(f, "a", stats(1, 0, 1, 0, 0));
	SAID(f, "begin 0\nstep 0:p20 @1000-1010\n");
	assert_true(vllm__wants(f->v, CORE));
	assert_int_equal(vllm__feed(f->v, &gone.hdr), 0);
	SAID(f, "end 0\n");
	assert_false(vllm__wants(f->v, CORE));
	add(f, "b", 20);
	SAID(f, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(request__from_add_to_end), T(request__step_begins_when_it_was_scheduled),
		T(stats__of_no_step_are_those_of_the_next),
		T(ids__children_and_prompts_of_one_request),
		T(ids__end_in_a_number_of_the_client), T(ids__conversations_of_a_batch), T(ids__of_other_paths),
		T(request__one_name_of_several_at_once_tells_nothing), T(add__seen_twice_is_one), T(add__cut),
		T(abort__ends_with_the_step), T(abort__soon_behind_the_begin_of_a_long_step),
		T(preempt__told_with_the_next_output),
		T(preempt__several_and_the_last_word), T(late__rows_of_strangers), T(late__one_runs_unseen),
		T(cut__message_is_no_preemption), T(lost__streams_are_joined_anew),
		T(lost__given_up_but_alive), T(garbage__is_counted),
		T(process__exit_ends_its_sequences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
