/* SPDX-License-Identifier: Apache-2.0 */
/* From the engine's outputs to the wire, answers of other kinds, and times to the first token. */
#include "blame_help.h"

/* ---- delivery ---- */

static void steps_written_late(struct fake *f, size_t n, double ms, double late_ms)
{
	double at = f->v.n_steps ? (double)(f->steps[f->v.n_steps - 1].t1_ns - fake_ns(0)) / 1e6
				 : 0;

	for (size_t i = 0; i < n; i++, at += ms) {
		fake_step(f, at, at + ms);
		fake_member(f, 0, 'd', 1);
		write_at(f, 0, at + ms + late_ms);
	}
}

static void test_blame__usual_delivery_is_no_gap(void **state)
{
	struct told *t = *state;

	begin(t->f, 1);
	steps_written_late(t->f, 40, 20, 8);
	explain(t, 0);
	for (size_t i = 1; i < t->n; i++) {
		assert_int_equal(t->gaps[i].usual_ns, MS(20));
		assert_int_equal(of(&t->gaps[i], MECH_OWN_DELIVERY), MS(8));
		assert_int_equal(of(&t->gaps[i], MECH_OWN_DECODE), MS(12));
	}
}

static void test_blame__late_write(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	begin(t->f, 1);
	steps_written_late(t->f, 40, 20, 1);
	steps_written_late(t->f, 1, 20, 15);
	steps_written_late(t->f, 10, 20, 1);
	explain(t, 0);
	g = odd(t, 0);
	assert_int_equal(g->t1_ns - g->t0_ns, MS(34));
	assert_int_equal(of(g, MECH_UNEXPLAINED), MS(14));
	assert_null(odd(t, 1));
	assert_int_equal(of(g + 1, MECH_UNEXPLAINED), 0);	/* shorter by that */
	assert_int_equal((g + 1)->t1_ns - (g + 1)->t0_ns, MS(6));
}

/* All its chunks are held by a window that is full: the shortest hold is no way that each has to go. */
static void test_blame__every_chunk_held_by_its_client(void **state)
{
	static const double until[] = { 200, 400, 600 };
	struct told *t = *state;
	const struct gap *g;

	begin(t->f, 1);
	steps_written_late(t->f, 2, 20, 0);
	for (int i = 0; i < 3; i++) {
		struct tl_send_held *h = vec_push(&t->evidence.held, 3);

		*h = (struct tl_send_held){ .hdr = { .kind = TL_SEND_HELD, .ts_ns = fake_ns(until[i]) }, .req = 1,
					    .since_ns = fake_ns(20 * (i + 1)), .why = TL_HELD_WINDOW };
	}
	g = ttft(t, 0);
	assert_int_equal(of(g, MECH_SLOW_CLIENT), MS(180));
	assert_int_equal(g->behind_ns[MECH_SLOW_CLIENT], MS(180));
	explain(t, 0);
	assert_int_equal(t->n, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(t->gaps[i].side, GAP_CLIENT);
		assert_int_equal(of(&t->gaps[i], MECH_SLOW_CLIENT), MS(200));
		assert_int_equal(t->gaps[i].behind_ns[MECH_SLOW_CLIENT], MS(200));
	}
}

static void passed_on(struct told *t, uint32_t req, uint32_t n_chunks, double ms)
{
	struct tl_delivered *d = vec_push(&t->evidence.delivered, 8);

	*d = (struct tl_delivered){ .hdr = { .kind = TL_DELIVERED, .tgid = 77, .ts_ns = fake_ns(ms) }, .req = req,
				    .n_chunks = n_chunks, .by = TL_BY_PROXY, .name = "nginx" };
}

/* A proxy holds all of the first answer's chunks for 100 ms at least; the second one's show how quick it is. */
static void test_blame__other_answers_tell_how_quick_a_proxy_is(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	begin(t->f, 2);
	run(t->f, 20, 1, 20, 2);
	passed_on(t, 1, 1, 140);
	passed_on(t, 1, 2, 140);
	passed_on(t, 2, 1, 21);
	passed_on(t, 2, 2, 41);
	g = ttft(t, 0);
	assert_int_equal(of(g, MECH_PROXY_BUFFER), MS(119));
	assert_int_equal(of(g, MECH_OWN_DELIVERY), MS(1));
}

/* Two answers, served one after the other, 90 each; the engine needs 39. */
static void served_in_turn(struct told *t)
{
	struct fake *f = t->f;
	double written = 20;

	begin(f, 2);
	for (int i = 0; i < 20; i++) {
		double end = 20 + 39 * (i + 1);

		fake_step(f, end - 39, end);
		for (uint32_t s = 0; s < 2; s++) {
			written = (written > end ? written : end) + 90;
			fake_member(f, s, 'd', 1);
			write_at(f, s, written);
		}
	}
	explain(t, 0);
}

static void test_blame__served_one_after_the_other(void **state)
{
	struct told *t = *state;

	served_in_turn(t);
	for (size_t i = 2; i < t->n; i++) {
		assert_int_equal(t->gaps[i].t1_ns - t->gaps[i].t0_ns, MS(180));
		assert_int_equal(of(&t->gaps[i], MECH_DETOKENIZER), MS(141));
		assert_int_equal(of(&t->gaps[i], MECH_OWN_DELIVERY), MS(39));
	}
}

/* The same to look at, but its thread's long runs would have been told, and there are none:
 * it was not busy. */
static void test_blame__nobody_was_busy(void **state)
{
	struct told *t = *state;
	struct tl_thread thread = { .hdr = { sizeof(thread), TL_THREAD, 0, 4242, 4242, fake_ns(0) },
				    .role = TL_ROLE_FRONT, .rank = -1, .server = 4242 };

	t->f->engines[0].e.engine = TL_ENGINE_VLLM;
	assert_int_equal(evidence_on(&t->evidence, &thread.hdr), 0);
	evidence_finish(&t->evidence);
	served_in_turn(t);
	for (size_t i = 2; i < t->n; i++) {
		assert_int_equal(of(&t->gaps[i], MECH_DETOKENIZER), 0);
		assert_int_equal(of(&t->gaps[i], MECH_UNEXPLAINED), MS(141));
	}
}

/* Two stalls, one behind the other: an output waits behind the one before it, and then all are out. No pace is too slow. */
static void test_blame__two_stalls_are_no_saturation(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 40, 20, 1);	/* until 820 */

	for (int i = 0; i < 60; i++, at += 20) {
		double end = at + 20, written = i < 10 ? end : i == 10 ? 1340 : 1640;

		fake_step(f, at, end);
		fake_member(f, 0, 'd', 1);
		write_at(f, 0, written > end ? written : end);
	}
	explain(t, 0);
	assert_non_null(odd(t, 1));
	for (size_t i = 0; i < t->n; i++)
		assert_int_equal(of(&t->gaps[i], MECH_DETOKENIZER), 0);
	assert_int_equal(of(odd(t, 1), MECH_UNEXPLAINED), MS(280));
}

static void test_blame__written_many_at_once(void **state)
{
	struct told *t = *state;

	begin(t->f, 1);
	for (int i = 0; i < 30; i++) {
		double at = 20 + 25 * i;

		fake_step(t->f, at, at + 25);
		fake_member(t->f, 0, 'd', 1);
		write_at(t->f, 0, 20 + 25 * (i / 10 * 10 + 10));
	}
	explain(t, 0);
	assert_int_equal(t->n, 30);
	assert_int_equal(of(&t->gaps[10], MECH_APP_BUFFER), MS(225));
	assert_int_equal(of(&t->gaps[10], MECH_OWN_DECODE), MS(25));
	assert_int_equal(t->gaps[11].n_parts, 0);	/* no time at all */
}

/* Nothing in a short recording leaves undisturbed: what is held teaches nothing, so it is no usual delivery. */
static void test_blame__a_hold_is_not_usual(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	answer(t->f, 0);
	for (int i = 0; i < 30; i++) {
		fake_step(t->f, 20 + 25 * i, 45 + 25 * i);
		fake_member(t->f, 0, i ? 'd' : 'P', i ? 1 : 16);
		write_at(t->f, 0, 46 + 25 * (i / 10 * 10 + 9));
	}
	g = ttft(t, 0);
	assert_int_equal(of(g, MECH_OWN_DELIVERY), MS(1));
	assert_int_equal(of(g, MECH_APP_BUFFER), MS(225));
	explain(t, 0);
	assert_int_equal(t->n, 29);
	assert_int_equal(of(&t->gaps[9], MECH_APP_BUFFER), MS(225));
	assert_int_equal(of(&t->gaps[9], MECH_OWN_DECODE) + of(&t->gaps[9], MECH_OWN_DELIVERY), MS(25));
}

/* ---- other kinds of answers ---- */

static void test_blame__not_streamed(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 20, 20, 1);

	run(f, at, 1, 120, 1);
	f->reqs[0].body = TL_BODY_JSON;
	f->reqs[0].stream = 0;
	explain(t, 0);
	assert_int_equal(t->n, 21);
	assert_int_equal(t->gaps[20].side, GAP_ENGINE);
	assert_int_equal(of(&t->gaps[20], MECH_UNEXPLAINED), MS(100));
}

static void test_blame__parallel_answers(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;

	answer(f, 0);
	fake_seq(f, &f->reqs[0], 1);
	f->reqs[0].n = 2;
	for (int i = 0; i < 20; i++) {
		fake_step(f, 20 * i, 20 * i + 20);
		fake_member(f, 0, i ? 'd' : 'P', i ? 1 : 64);
		fake_member(f, 1, 'd', 1);
		write_at(f, 0, 20 * i + 20);
	}
	explain(t, 0);
	assert_int_equal(t->n, 38);	/* of both */
	assert_int_equal(t->gaps[0].seq, 1);
	assert_int_equal(t->gaps[37].seq, 2);
}

static void test_blame__nobody_slows_himself(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 20, 20, 1);
	uint32_t second = fake_seq(f, &f->reqs[0], 7);

	f->reqs[0].n = 2;
	fake_step(f, at, at + 120);
	decode(f, 0, at + 120);
	fake_member(f, second, 'P', 500);
	explain(t, 0);
	assert_int_equal(part(&t->gaps[20], MECH_OWN_PREFILL)->ns, MS(100));
	assert_null(odd(t, 0));
}

static void test_blame__stream_without_steps(void **state)
{
	struct told *t = *state;
	struct rec_request *r = fake_request(t->f, 0);

	fake_point(r, P_REQ_LAST_BYTE, 1);
	for (int i = 0; i < 30; i++)
		fake_chunk(r, 100 + 20 * i + (i > 20 ? 300 : 0), TL_CHUNK_TEXT);
	explain(t, 0);
	assert_int_equal(t->n, 29);
	assert_int_equal(of(&t->gaps[3], MECH_OWN_DECODE), MS(20));
	assert_int_equal(of(odd(t, 0), MECH_UNEXPLAINED), MS(300));
	assert_int_equal(of(ttft(t, 0), MECH_UNEXPLAINED), MS(99));
}

static void test_blame__tokens_of_drafts(void **state)
{
	struct told *t = *state;

	begin(t->f, 1);
	for (int i = 0; i < 12; i++) {
		fake_step(t->f, 20 + 24 * i, 44 + 24 * i);
		fake_member(t->f, 0, 'd', 3);
		for (int k = 0; k < 3; k++)
			write_at(t->f, 0, 44 + 24 * i + 0.01 * k);
	}
	explain(t, 0);
	assert_int_equal(t->n, 36);
	assert_int_equal(t->gaps[35].token, 36);
	assert_int_equal(t->gaps[3].t1_ns - t->gaps[3].t0_ns, MS(24) - MS(0.02));
	assert_null(odd(t, 0));
}

/* ---- TTFT ---- */

static void test_blame__ttft_of_long_prompt(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	long_prompt(t->f);
	g = ttft(t, 2);
	assert_int_equal(g->t1_ns - g->t0_ns, MS(375));
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(15));
	assert_int_equal(of(g, MECH_OWN_PREFILL), MS(360));
	assert_int_equal(g->usual_ns, MS(360));
}

/* The step under way when it came had waited 150 ms for a CPU, of that 100 since. */
static void test_blame__step_under_way_was_held_up(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	struct tl_thread thread = { .hdr = { sizeof(thread), TL_THREAD, 0, 4242, 4243, fake_ns(0) },
				    .role = TL_ROLE_ENGINE, .rank = -1, .server = 4242 };
	struct tl_thread_span span = { .hdr = { sizeof(span), TL_THREAD_SPAN, 0, 4242, 4243, 0 },
				       .state = TL_SPAN_RUNNABLE, .by_tgid = 99, .by_tid = 99,
				       .by_name = "ffmpeg" };
	double at = run(f, begin(f, 1), 20, 20, 1);
	uint32_t c = answer(f, at + 60);
	const struct gap *g;

	f->engines[0].e.server = 4242;
	run(f, at, 1, 170, 1);
	fake_step(f, at + 170, at + 210);
	decode(f, 0, at + 210);
	fake_member(f, c, 'P', 16);
	write_at(f, c, at + 210);
	span.since_ns = fake_ns(at + 10);
	span.hdr.ts_ns = fake_ns(at + 160);
	span.by_ns = MS(150);
	assert_int_equal(evidence_on(&t->evidence, &thread.hdr), 0);
	assert_int_equal(evidence_on(&t->evidence, &span.hdr), 0);
	evidence_finish(&t->evidence);
	g = ttft(t, c);
	assert_int_equal(part(g, MECH_RUN_QUEUE)->ns, MS(100));
	assert_string_equal(part(g, MECH_RUN_QUEUE)->who.name, "ffmpeg");
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(10));
	assert_int_equal(of(g, MECH_OWN_PREFILL), MS(40));
	explain(t, 0);
	g = odd(t, 0);
	assert_int_equal(part(g, MECH_RUN_QUEUE)->ns, MS(150));
	assert_int_equal(of(g, MECH_OWN_DECODE), MS(20));
}

/* llama.cpp's thread had computed a step and got no CPU to hand its token over: for 75 of the 80 ms till the write.
 * In vLLM another thread does that, to which this one gives it right after the step: no matter whether it had a CPU later,
 * but it matters who kept the GIL from both. */
static void late_hand_over(struct told *t, uint16_t engine, bool for_a_lock, double since_ms)
{
	struct fake *f = t->f;
	struct tl_thread thread = { .hdr = { sizeof(thread), TL_THREAD, 0, 4242, 4243, fake_ns(0) },
				    .role = TL_ROLE_ENGINE, .rank = -1, .server = 4242 };
	struct tl_thread_span span = { .hdr = { sizeof(span), TL_THREAD_SPAN, 0, 4242, 4243, 0 },
				       .state = TL_SPAN_RUNNABLE, .by_tgid = 99, .by_tid = 99, .by_ns = MS(75),
				       .by_name = "ffmpeg" };
	double at = run(f, begin(f, 1), 20, 20, 1);

	if (for_a_lock) {
		span.state = TL_SPAN_SLEEP;
		span.wait = TL_WAIT_FUTEX;
		span.by_tgid = 4242;
		strcpy(span.by_name, "holder");
	}
	f->engines[0].e.server = 4242;
	f->engines[0].e.engine = engine;
	fake_step(f, at, at + 20);
	decode(f, 0, at + 100);
	run(f, at + 96, 10, 20, 1);
	span.since_ns = fake_ns(at + 20 + since_ms);
	span.hdr.ts_ns = fake_ns(at + 95);
	assert_int_equal(evidence_on(&t->evidence, &thread.hdr), 0);
	assert_int_equal(evidence_on(&t->evidence, &span.hdr), 0);
	evidence_finish(&t->evidence);
	explain(t, 0);
}

static void test_blame__hand_over_was_held_up(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	late_hand_over(t, TL_ENGINE_LLAMA, false, 0);
	g = odd(t, 0);
	assert_int_equal(part(g, MECH_RUN_QUEUE)->ns, MS(75));
	assert_string_equal(part(g, MECH_RUN_QUEUE)->who.name, "ffmpeg");
	assert_int_equal(of(g, MECH_OWN_DECODE), MS(20));
}

static void test_blame__hand_over_was_over(void **state)
{
	struct told *t = *state;

	late_hand_over(t, TL_ENGINE_VLLM, false, 2);
	assert_int_equal(of(odd(t, 0), MECH_RUN_QUEUE), 0);
}

static void test_blame__hand_over_got_no_cpu(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	late_hand_over(t, TL_ENGINE_VLLM, false, 0.375);
	g = odd(t, 0);
	assert_int_equal(part(g, MECH_RUN_QUEUE)->ns, MS(75) - MS(0.375));
	assert_int_equal(part(g, MECH_RUN_QUEUE)->prov, PROV_INFERRED);
	assert_string_equal(part(g, MECH_RUN_QUEUE)->who.name, "ffmpeg");
	for (size_t i = 0; i < t->n; i++)	/* and not once more for the steps behind it */
		if (&t->gaps[i] != g)
			assert_int_equal(of(&t->gaps[i], MECH_RUN_QUEUE), 0);
}

static void test_blame__hand_over_waited_for_the_gil(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	late_hand_over(t, TL_ENGINE_VLLM, true, 0);
	g = odd(t, 0);
	assert_int_equal(part(g, MECH_GIL)->ns, MS(75));
	assert_int_equal(part(g, MECH_GIL)->who.id, 99);
}

static void test_blame__queue_behind_slot_holder(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 2), 50, 20, 2);	/* until 1020 */
	struct rec_request *r = fake_request(f, 510);
	uint32_t c = fake_seq(f, r, 1);			/* the slot of number 1 */
	const struct gap *g;

	fake_point(r, P_REQ_LAST_BYTE, 511);
	fake_point(r, P_SUBMIT, 513);
	fake_step(f, at, at + 50);
	decode(f, 0, at + 50);
	fake_member(f, c, 'P', 100);
	write_at(f, c, at + 50);
	g = ttft(t, 2);
	assert_int_equal(g->t1_ns - g->t0_ns, MS(560));
	assert_int_equal(of(g, MECH_OWN_FRONT), MS(3));
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(7));
	assert_int_equal(part(g, MECH_QUEUE)->ns, MS(500));
	assert_who(&part(g, MECH_QUEUE)->who, WHO_REQUEST, 1);
	assert_int_equal(of(g, MECH_OWN_PREFILL), MS(50));
}

static void test_blame__queue_behind_those_that_run(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at;
	const struct gap *g;
	uint32_t c;

	f->engines[0].e.engine = TL_ENGINE_VLLM;
	at = run(f, begin(f, 2), 50, 20, 2);
	c = answer(f, 520);
	fake_step(f, at, at + 50);
	decode(f, 0, at + 50);
	fake_member(f, c, 'P', 100);
	write_at(f, c, at + 50);
	g = ttft(t, 2);
	assert_int_equal(of(g, MECH_QUEUE), MS(500));
	assert_int_equal(g->parts[0].ns, MS(250));
	assert_int_equal(g->parts[1].ns, MS(250));
}

/* Its slot is free, but another's prompt fills the steps; who decodes beside it is in nobody's way. */
static void test_blame__queue_behind_a_prompt(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 20, 20, 1);
	uint32_t large = answer(f, at), c = answer(f, at + 100);
	const struct gap *g;

	for (int i = 0; i < 3; i++, at += 200) {
		fake_step(f, at, at + 200);
		decode(f, 0, at + 200);
		fake_member(f, large, i < 2 ? 'p' : 'P', 255);
		if (i == 2)
			fake_member(f, c, 'P', 1);
	}
	write_at(f, large, at);
	write_at(f, c, at);
	g = ttft(t, c);
	assert_int_equal(part(g, MECH_STEP_WAIT)->ns, MS(100));
	assert_who(&part(g, MECH_STEP_WAIT)->who, WHO_REQUEST, large);
	assert_int_equal(part(g, MECH_QUEUE)->ns, MS(200));
	assert_who(&part(g, MECH_QUEUE)->who, WHO_REQUEST, large);
}

/* A step that decodes, and has a prompt of next to nothing, was under way: nobody made it any longer. */
static void test_blame__step_wait_for_decodes(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 2), 50, 20, 2);
	uint32_t small = answer(f, at - 5), c = answer(f, at + 8);
	const struct gap *g;

	for (int i = 0; i < 2; i++, at += 21) {
		fake_step(f, at, at + 21);
		decode(f, 0, at + 21);
		decode(f, 1, at + 21);
		fake_member(f, i ? c : small, 'P', 2);
		write_at(f, i ? c : small, at + 21);
	}
	g = ttft(t, c);
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(13));
	assert_int_equal(part(g, MECH_STEP_WAIT)->who.type, WHO_NOBODY);
}

/* Each arrives in the middle of a step, and the next one is planned already. */
static void test_blame__steps_planned_ahead(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 10, 20, 1);
	const struct gap *g;

	f->engines[0].e.engine = TL_ENGINE_VLLM;
	for (int i = 0; i < 10; i++) {
		uint32_t c = answer(f, at + 5);

		at = run(f, at, i == 9 ? 4 : 2, 20, 1);
		fake_step(f, at, at + 25);
		decode(f, 0, at + 25);
		fake_member(f, c, 'P', 16);
		write_at(f, c, at + 25);
		at += 25;
	}
	g = ttft(t, 5);
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(35));
	assert_int_equal(of(g, MECH_QUEUE), 0);
	g = ttft(t, 10);
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(35));
	assert_int_equal(of(g, MECH_QUEUE), MS(40));
}

static void test_blame__shared_prefill(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 20, 20, 1);
	uint32_t small = answer(f, at), large = answer(f, at);
	const struct gap *g;

	fake_step(f, at, at + 220);
	decode(f, 0, at + 220);
	fake_member(f, small, 'P', 500);
	fake_member(f, large, 'P', 1500);
	write_at(f, small, at + 220);
	write_at(f, large, at + 220);
	g = ttft(t, small);
	assert_int_equal(part(g, MECH_PREFILL)->ns, MS(150));	/* three quarters of the 200 */
	assert_who(&part(g, MECH_PREFILL)->who, WHO_REQUEST, large);
	assert_int_equal(of(g, MECH_OWN_PREFILL), MS(70));
	assert_int_equal(of(ttft(t, large), MECH_PREFILL), 0);
}

static void test_blame__before_the_host(void **state)
{
	struct told *t = *state;
	struct tl_claim c = { .hdr = { sizeof(c), TL_CLAIM, 0, 0, 0, fake_ns(0) }, .req = 1,
			      .metric = TL_CLAIM_TTFT };
	const struct gap *g;

	answer(t->f, 1141);
	fake_step(t->f, 1141, 1181);
	fake_member(t->f, 0, 'P', 10);
	write_at(t->f, 0, 1181);
	assert_int_equal(evidence_on(&t->evidence, &c.hdr), 0);
	evidence_finish(&t->evidence);
	g = ttft(t, 0);
	assert_int_equal(g->t1_ns - g->t0_ns, MS(1181));
	assert_int_equal(of(g, MECH_BEFORE_HOST), MS(1141));
}

static void test_blame__ttft_not_known(void **state)
{
	struct told *t = *state;
	struct gap g;

	fake_request(t->f, 10);
	assert_int_equal(blame__new(&t->f->v, &t->b), 0);
	assert_false(blame__ttft(t->b, 0, &g));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_blame__usual_delivery_is_no_gap), T(test_blame__late_write),
		T(test_blame__every_chunk_held_by_its_client),
		T(test_blame__other_answers_tell_how_quick_a_proxy_is),
		T(test_blame__served_one_after_the_other), T(test_blame__written_many_at_once),
		T(test_blame__two_stalls_are_no_saturation), T(test_blame__nobody_was_busy),
		T(test_blame__a_hold_is_not_usual),
		T(test_blame__not_streamed), T(test_blame__parallel_answers),
		T(test_blame__nobody_slows_himself),
		T(test_blame__stream_without_steps), T(test_blame__tokens_of_drafts),
		T(test_blame__ttft_of_long_prompt), T(test_blame__step_under_way_was_held_up),
		T(test_blame__hand_over_was_held_up), T(test_blame__hand_over_was_over),
		T(test_blame__hand_over_waited_for_the_gil), T(test_blame__hand_over_got_no_cpu),
		T(test_blame__queue_behind_slot_holder), T(test_blame__step_wait_for_decodes),
		T(test_blame__queue_behind_those_that_run), T(test_blame__queue_behind_a_prompt),
		T(test_blame__steps_planned_ahead), T(test_blame__shared_prefill),
		T(test_blame__before_the_host), T(test_blame__ttft_not_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
