/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's adapter on messages made by hand: several API servers and engines, and its limits. */
#include "vllm_feed.h"

/* ---- several processes ---- */

/* Two API servers: one shows three steps before the other shows the first. */
static void test_several__put_in_order(void **state)
{
	struct fixture *f = *state;
	uint64_t t;

	known_mode(f);
	assert_int_equal(process(f, API2, "api"), 0);
	add(f, "a", 20);
	add_to(f, IN2, "b", 20);
	SAID(f, "begin 2\nbegin 3\n");
	t = f->now;
	f->now += 40 * MS;
	outputs_on(f, OUT, t + 10 * MS, "a", stats(2, 0, 2, 0, 0));
	outputs_on(f, OUT, t + 20 * MS, "a", stats(2, 0, 0, 0, 0));
	outputs_on(f, OUT, t + 30 * MS, "a!", NULL);
	f->now += 5 * MS;
	outputs_on(f, OUT2, t + 10 * MS + 2000, "b", NULL);
	outputs_on(f, OUT2, t + 20 * MS + 2000, "b", NULL);
	outputs_on(f, OUT2, t + 30 * MS - 2000, "b", stats(1, 0, 0, 0, 0));
	SAID(f, "");
	f->now += 600 * MS;
	assert_int_equal(vllm__on_id(f->v, f->now, API, 1, "b", true), 0);
	abort_it(f, "nobody");
	SAID(f, "link r1 3 of 20\nstep 2:p20 3:p20 @1020-1030\nstep 2:d1 3:d1 @1030-1040\n"
	     "step 2:d1 3:d1 @1040-1049\nend 2\n");
	/* what is held at the end is said */
	step(f, "", stats(0, 0, 0, 0, 0));
	outputs_on(f, OUT2, f->now + 1000, "b!", NULL);
	SAID(f, "");
	assert_int_equal(vllm__end(f->v), 0);
	SAID(f, "step 3:d1 @1049-1675\nend 3\n");
}

/* While its output waits for that of the other API server, the step before is said to be its last. */
static void test_several__output_behind_the_end(void **state)
{
	struct fixture *f = *state;

	known_mode(f);
	assert_int_equal(process(f, API2, "api"), 0);
	add(f, "a", 20);
	add_to(f, IN2, "b", 20);
	outputs_on(f, OUT, f->now + 10 * MS, "a!", stats(1, 0, 2, 0, 0));
	outputs_on(f, OUT2, f->now + 10 * MS + 2000, "b", NULL);
	outputs_on(f, OUT, f->now + 20 * MS, "a:[{type:3,timestamp:1.041}]", stats(1, 0, 0, 0, 0));
	outputs_on(f, OUT2, f->now + 20 * MS + 2000, "b", NULL);
	assert_int_equal(vllm__end(f->v), 0);
	SAID(f, "begin 2\nbegin 3\nstep 2:p20 3:p20 @1020-1030\nend 2\nstep 3:d1 @1030-1040\n");
}

/* Told to pause, the engine says to each of them whom it ended, at once behind a step: none of that is the step's. */
static void test_several__ended_behind_a_step(void **state)
{
	struct fixture *f = *state;
	uint64_t t;

	known_mode(f);
	assert_int_equal(process(f, API2, "api"), 0);
	add(f, "a", 20);
	add_to(f, IN2, "b", 20);
	add_to(f, IN2, "c", 20);
	t = f->now;
	outputs_on(f, OUT, t + 10 * MS, "a", stats(3, 0, 3, 0, 0));
	outputs_on(f, OUT2, t + 10 * MS + 2000, "b c", NULL);
	outputs_on(f, OUT, t + 10 * MS + 50000, "a~", NULL);
	outputs_on(f, OUT2, t + 10 * MS + 60000, "b~", NULL);
	outputs_on(f, OUT2, t + 20 * MS, "c", stats(1, 0, 0, 0, 0));
	assert_int_equal(vllm__end(f->v), 0);
	SAID(f, "begin 2\nbegin 3\nbegin 4\nstep 2:p20 3:p20 4:p20 @1020-1030\nend 2\nend 3\nstep 4:d1 @1030-1040\n");
}

/* With no counters only time tells what belongs together. */
static void test_several__without_counters(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(process(f, API2, "api"), 0);
	add(f, "a", 20);
	add_to(f, IN2, "b", 20);
	step(f, "a", NULL);
	outputs_on(f, OUT2, f->now + 3000, "b", NULL);
	step(f, "a", NULL);
	outputs_on(f, OUT2, f->now + 900000, "b", NULL);
	assert_int_equal(vllm__end(f->v), 0);
	SAID(f, "begin 0\nbegin 1\nstep 0:p20? 1:p20? @1000-1010\nopen step 0:d1 @1010-1020\n"
	     "open step 1:d1? @1020-1020\n");
}

static void test_engines__each_has_its_own_steps(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(process(f, CORE2, "engine-core-dp1"), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 4, "b", true), 0);
	add(f, "a", 20);
	f->core = CORE2;
	add_to(f, 11, "b", 30);
	f->now += 10 * MS;
	outputs_on(f, 12, f->now, "b", stats(1, 0, 1, 0, 0));
	f->core = CORE;
	step(f, "a", stats(1, 0, 1, 0, 0));
	SAID(f, "begin 0\nbegin 1\nlink r4 1 of 21\nstep of 21 1:p30 @1000-1010\nstep 0:p20 @1000-1020\n");
}

/* A proxy gives both servers of a split prefill and decode the same X-Request-Id; up to 0.14 their engines
 * know the request by nothing else. */
static void test_servers__may_use_the_same_ids(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(process_of(f, API2, API2, "api"), 0);
	assert_int_equal(process_of(f, API2, CORE2, "engine-core"), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 1, "x", false), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, API2, 2, "x", false), 0);
	add(f, "chatcmpl-x", 20);
	f->core = CORE2;
	add_to(f, 11, "chatcmpl-x", 20);
	outputs_on(f, 12, f->now += MS, "chatcmpl-x!", stats(0, 0, 1, 0, 0));
	f->core = CORE;
	SAID(f, "begin 0\nlink r1 0 of 20\nbegin 1\nlink r2 1 of 21\nstep of 21 1:p20 @1000-1001\nend 1\n");
	step(f, "chatcmpl-x", stats(1, 0, 1, 0, 0));
	SAID(f, "step 0:p20 @1000-1011\n");
}

/* Attached to while it starts: the engine looks like an API server first, and may be told twice. */
static void test_engines__told_again(void **state)
{
	struct fixture *f = *state;

	known_mode(f);
	assert_int_equal(process(f, CORE2, "api"), 0);
	assert_false(vllm__wants(f->v, CORE2));
	assert_int_equal(process(f, CORE2, "engine-core"), 0);
	assert_true(vllm__wants(f->v, CORE2));
	add(f, "a", 20);
	f->core = CORE2;
	add_to(f, 11, "b", 30);
	assert_int_equal(process(f, CORE2, "engine-core"), 0);
	assert_int_equal(process(f, CORE, "engine-core"), 0);
	outputs_on(f, 12, f->now += 10 * MS, "b!", stats(0, 0, 1, 0, 0));
	f->core = CORE;
	step(f, "a!", stats(0, 0, 1, 0, 0));
	SAID(f, "begin 2\nbegin 3\nstep of 21 3:p30 @1020-1030\nend 3\nstep 2:p20 @1020-1040\nend 2\n");
}

/* A front end that was not started with the engine, and one that is not known to be of vLLM. */
static void test_servers__started_apart(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(process_of(f, API2, API2, "api"), 0);
	assert_int_equal(process_of(f, CORE2, CORE2, "engine-core"), 0);
	f->core = CORE2;
	assert_int_equal(vllm__on_id(f->v, f->now, API2, 1, "x", false), 0);
	add_to(f, 11, "chatcmpl-x-0a0a0a0a", 20);
	assert_int_equal(vllm__on_id(f->v, f->now, 777, 2, "y", false), 0);
	add_to(f, 11, "chatcmpl-y-0a0a0a0a", 20);
	f->core = CORE;
	SAID(f, "begin 0\nlink r1 0 of 21\nbegin 1\nlink r2 1 of 21\n");
}

static void test_ids__used_again(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vllm__on_id(f->v, f->now, API, 1, "x", false), 0);
	add(f, "chatcmpl-x", 20);
	add(f, "chatcmpl-x", 20);	/* while it runs nobody else can have it */
	step(f, "chatcmpl-x!", stats(0, 0, 1, 0, 0));
	SAID(f, "begin 0\nlink r1 0 of 20\nstep 0:p20 @1000-1010\nend 0\n");
	vllm__on_end(f->v, 1);
	assert_int_equal(vllm__on_id(f->v, f->now, API, 2, "x", false), 0);
	add(f, "chatcmpl-x", 30);
	step(f, "chatcmpl-x!", stats(0, 0, 1, 0, 0));
	SAID(f, "begin 0\nlink r2 0 of 20\nstep 0:p30 @1010-1020\nend 0\n");
}

/* To a coordinator they say how many they run, before and after each step. */
static void test_engines__a_coordinator_is_told_of_no_step(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(process(f, COORD, "coordinator"), 0);
	add(f, "a", 900);
	add(f, "b", 20);
	f->now += MS;
	outputs_on(f, OUT_COORD, f->now, "", "{num_running_reqs:0,num_waiting_reqs:2}");
	step(f, "b", NULL);
	SAID(f, "begin 0\nbegin 1\nopen step 1:p20? @1000-1011\n");
	outputs_on(f, OUT_COORD, f->now + 100, "", "{num_running_reqs:2,num_waiting_reqs:0}");
	SAID(f, "");
	/* but the same on a socket of an API server is one */
	step(f, "", stats(2, 0, 1, 0, 0));
	assert_int_equal(f->log.n_kind[TL_STEP], 2);
}

/* ---- limits ---- */

static void test_numbers__used_again_join_no_stranger(void **state)
{
	struct fixture *f = *state;
	char id[32];

	/* Of two siblings one ends, and its number goes to somebody else. */
	assert_int_equal(vllm__on_id(f->v, f->now, API, 1, "both", false), 0);
	add(f, "0_chatcmpl-both-0a0a0a0a", 20);
	add(f, "1_chatcmpl-both-0a0a0a0a", 20);
	step(f, "0_chatcmpl-both-0a0a0a0a! 1_chatcmpl-both-0a0a0a0a", stats(1, 0, 2, 0, 0));
	for (int i = 2; i < 1024; i++) {
		snprintf(id, sizeof(id), "n%d", i);
		add(f, id, 5);
	}
	f->log.len = 0;
	*f->log.text = 0;
	add(f, "stranger", 5);
	SAID(f, "begin 0\n");
	assert_int_equal(vllm__on_id(f->v, f->now, API, 99, "chatcmpl-both", true), 0);
	SAID(f, "");
	assert_int_equal(vllm__on_id(f->v, f->now, API, 7, "stranger", true), 0);
	SAID(f, "link r7 0 of 20\n");
}

/* Ids of requests that never reach an engine do not fill the table for good. */
static void test_ids__oldest_make_room(void **state)
{
	struct fixture *f = *state;
	char id[32];

	for (int i = 0; i < 140000; i++) {
		snprintf(id, sizeof(id), "lost-%d", i);
		assert_int_equal(vllm__on_id(f->v, f->now, API, 1 + i, id, false), 0);
	}
	add(f, "chatcmpl-lost-139999-0a0a0a0a", 5);
	add(f, "chatcmpl-lost-3-0a0a0a0a", 5);
	SAID(f, "begin 0\nlink r140000 0 of 20\nbegin 1\n");
}

static void test_step__of_more_than_a_record_holds(void **state)
{
	struct fixture *f = *state;
	char id[16], *text = malloc(400000);
	size_t len = 0;

	for (int i = 0; i < TL_MAX_MEMBERS + 50; i++) {
		snprintf(id, sizeof(id), "n%d", i);
		add(f, id, 5);
		len += sprintf(text + len, "%s[\"%s\",[7],nil,nil,nil,nil,nil,nil]", i ? "," : "[0,[", id);
	}
	sprintf(text + len, "],nil,1.5]");
	f->log.len = 0;
	struct mp body = { 0 }, wire = { 0 };

	mp_text(&body, text);
	frame(&wire, 0, body.p, body.len);
	f->now += 500 * (uint64_t)MS;
	for (size_t at = 0; at < wire.len; at += 8192)
		net(f, OUT, TL_OUT, wire.p + at, wire.len - at < 8192 ? wire.len - at : 8192,
		    wire.len - at < 8192 ? wire.len - at : 8192);
	assert_int_equal(f->err, 0);
	assert_int_equal(f->log.n_kind[TL_STEP], 1);
	mp_free(&body);
	mp_free(&wire);
	free(text);
}

static void test_vllm__survives_oom(void **state)
{
	(void)state;
	OOM_LOOP({
		struct fixture *f;

		oom_after(-1);
		f = calloc(1, sizeof(*f));
		f->now = 1000 * (uint64_t)MS;
		f->core = CORE;
		oom_after(oom_i);
		f->v = vllm__new(&(struct emit){ note, &f->log });
		if (f->v && !process(f, API, "api") && !process(f, CORE, "engine-core")) {
			static const uint8_t wire[] = "\1\1\0\0\x10\x96\xa1" "a\x92\1\2\xc0\x80\xc0\xcb\x3f\xf8\0\0\0\0\0";
			static const uint8_t answer[] = "\0\x14\x94\0\x91\x92\xa1" "a\x91\7\xc0\xcb\x3f\xf8\0\0\0\0\0\0\xc0";

			net(f, IN, TL_IN, wire, sizeof(wire) - 1, sizeof(wire) - 1);
			vllm__on_id(f->v, f->now, API, 1, "a", true);
			net(f, OUT, TL_OUT, answer, sizeof(answer) - 1, sizeof(answer) - 1);
			vllm__end(f->v);
		}
		vllm__free(f->v);
		free(f);
	});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(several__put_in_order), T(several__without_counters),
		T(several__output_behind_the_end), T(several__ended_behind_a_step),
		T(engines__each_has_its_own_steps), T(engines__a_coordinator_is_told_of_no_step),
		T(servers__may_use_the_same_ids), T(servers__started_apart), T(engines__told_again), T(ids__used_again),
		T(numbers__used_again_join_no_stranger), T(ids__oldest_make_room),
		T(step__of_more_than_a_record_holds),
		cmocka_unit_test(test_vllm__survives_oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
