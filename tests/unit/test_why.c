/* SPDX-License-Identifier: Apache-2.0 */
/* The waterfall: parts add up to e2e whatever happened, and each says what filled it. */
#include "fake_server.h"
#include "model/evidence.h"
#include "sink/trace.h"
#include "sink/why.h"
#include "sink/why_priv.h"
#include "unit.h"

#include <errno.h>
#include <time.h>

#define MS(x) ((uint64_t)((x)*1000000))

static int setup(void **state)
{
	*state = fake__new();
	return 0;
}

static int teardown(void **state)
{
	fake__free(*state);
	return 0;
}

/* Segments cover the whole time, the sums are those of the segments. */
static void check_partition(const struct trace *t)
{
	uint64_t at = t->t0_ns, sum[N_PARTS] = { 0 };

	for (size_t i = 0; i < t->n; i++) {
		assert_int_equal(t->segs[i].t0_ns, at);
		assert_true(t->segs[i].t1_ns > at);
		at = t->segs[i].t1_ns;
		sum[t->segs[i].part] += t->segs[i].t1_ns - t->segs[i].t0_ns;
	}
	assert_int_equal(at, t->t1_ns);
	assert_memory_equal(sum, t->sum_ns, sizeof(sum));
}

static struct trace trace_of(struct fake *f, size_t request)
{
	struct trace t;

	assert_int_equal(trace__init(&t, &f->v, request), 0);
	check_partition(&t);
	return t;
}

static char *why(struct fake *f, size_t request)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(why_request(&f->v, request, &(struct text_opts){ .width = 1000 }, out), 0);
	fclose(out);
	return text;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		print_error("not there: \"%s\" in:\n%s\n", part, text);
	assert_non_null(strstr(text, part));
}

static void three_jobs(struct fake *f)
{
	struct fake_job jobs[] = {
		{ .at_ms = 10, .prompt = 30, .output = 60, .stream = true },
		{ .at_ms = 20, .prompt = 64, .cached = 10, .output = 30, .stream = true },
		{ .at_ms = 30, .prompt = 900, .output = 5, .stream = true },
	};

	fake_serve(f, jobs, ARRAY_SIZE(jobs));
}

static void test_trace__parts_of_a_request_that_waited(void **state)
{
	struct trace t;

	three_jobs(*state);
	t = trace_of(*state, 2);
	assert_int_equal(t.sum_ns[PART_READ], MS(0.1));
	assert_int_equal(t.sum_ns[PART_BEFORE_SUBMIT], MS(0.9));
	assert_int_equal(t.sum_ns[PART_WAIT_SLOT], MS(138.6)); /* 31.0 .. 169.6, r2's last step */
	assert_int_equal(t.sum_ns[PART_WAIT_STEP], MS(0.2));
	assert_int_equal(t.sum_ns[PART_PREFILL], MS(3 * 55.2 + 31.2));
	assert_int_equal(t.n_prefill_steps, 4);
	assert_int_equal(t.n_decode_steps, 4);
	assert_int_equal(t.sum_ns[PART_DELIVERY], MS(0.3));
	assert_int_equal(t.sum_ns[PART_END], MS(0.3));
	assert_int_equal(t.sum_ns[PART_UNEXPLAINED], 0);
	assert_int_equal(t.slot_holder->id, 2);
	assert_int_equal(t.ttft_ns[PART_WAIT_SLOT], MS(138.6));
	assert_int_equal(t.ttft_ns[PART_DECODE], 0);
	assert_int_equal(t.ttft_ns[PART_DELIVERY], MS(0.3));
	trace__free(&t);
}

static void test_trace__shared_decode_names_the_culprit(void **state)
{
	struct trace t;

	three_jobs(*state);
	t = trace_of(*state, 0);
	assert_int_equal(t.n_shared, 5); /* r2's prefill once, r3's four times */
	assert_int_equal(t.shared.prefill, 54 + 900);
	assert_int_equal(t.shared.n, 2);
	assert_int_equal(t.median_decode_ns, MS(4.4));
	trace__free(&t);
}

/* Steps at 10..20, 21..31, and then one more at `last` of the same sequence. */
static struct rec_request *with_hole(struct fake *f, double last)
{
	struct rec_request *r = fake_request(f, 5);
	uint32_t q = fake_seq(f, r, 0);

	fake_point(r, P_REQ_LAST_BYTE, 6);
	fake_point(r, P_SUBMIT, 7);
	fake_step(f, 10, 20);
	fake_member(f, q, 'P', 10);
	for (int i = 0; i < 8; i++) {
		fake_step(f, 21 + 11 * i, 31 + 11 * i);
		fake_member(f, q, 'd', 1);
	}
	if (last > 0) {
		fake_step(f, last, last + 10);
		fake_member(f, q, 'd', 1);
		fake_done(f, r, last + 12);
	} else {
		fake_done(f, r, 120);
	}
	return r;
}

static void test_trace__short_holes_are_host_work(void **state)
{
	struct trace t;

	with_hole(*state, 109);
	t = trace_of(*state, 0);
	assert_int_equal(t.sum_ns[PART_BETWEEN], MS(9));
	assert_int_equal(t.sum_ns[PART_UNEXPLAINED], 0);
	trace__free(&t);
}

static void test_trace__a_long_hole_is_unexplained(void **state)
{
	struct fake *f = *state;
	struct trace t;
	char *text;

	with_hole(f, 300);
	t = trace_of(f, 0);
	assert_int_equal(t.sum_ns[PART_UNEXPLAINED], MS(192)); /* 108 .. 300 */
	assert_int_equal(t.sum_ns[PART_BETWEEN], MS(8));
	trace__free(&t);
	text = why(f, 0);
	assert_has(text, "; unexplained 192 ms.");
	assert_has(text, "unexplained: the engine ran no step");
	free(text);
	f->v.n_lost = 1;
	f->lost[0] = (struct rec_lost){ fake_ns(150), fake_ns(160), 3, TL_LOST_RING, 0 };
	text = why(f, 0);
	assert_has(text, "unexplained: events were lost here");
	assert_has(text, "3 events were lost while it ran");
	free(text);
}

static void test_trace__steps_of_others_fill_a_hole(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0), *other = fake_request(f, 0);
	uint32_t q = fake_seq(f, r, 0), o = fake_seq(f, other, 1);
	struct trace t;
	char *text;

	fake_step(f, 10, 20);
	fake_member(f, q, 'P', 10);
	fake_step(f, 20.5, 70);
	fake_member(f, o, 'p', 512);
	fake_step(f, 70.5, 80);
	fake_member(f, q, 'd', 1);
	fake_done(f, r, 81);
	t = trace_of(f, 0);
	assert_int_equal(t.sum_ns[PART_OTHER_STEPS], MS(49.5));
	assert_int_equal(t.sum_ns[PART_BETWEEN], MS(1));
	trace__free(&t);
	text = why(f, 0);
	assert_has(text, "1 step of others, 49.5 ms: prefill of r2 (512 tok)");
	free(text);
}

static void test_trace__overlapping_steps_count_once(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t q = fake_seq(f, r, 0);
	struct trace t;

	fake_step(f, 10, 20);
	fake_member(f, q, 'P', 10);
	fake_step(f, 15, 30); /* the engine runs one step ahead */
	fake_member(f, q, 'd', 1);
	fake_step(f, 25, 28);
	fake_member(f, q, 'd', 1);
	fake_done(f, r, 40);
	t = trace_of(f, 0);
	assert_int_equal(t.sum_ns[PART_PREFILL], MS(10));
	assert_int_equal(t.sum_ns[PART_DECODE], MS(10));
	trace__free(&t);
}

static void test_trace__steps_of_another_engine_are_not_ours(void **state)
{
	struct fake *f = *state;
	struct trace t;
	uint32_t other;

	f->v.n_engines = 2;
	other = fake_seq(f, NULL, 0);
	f->seqs[other].engine = 1;
	fake_step(f, 7.5, 9.5);
	fake_member(f, other, 'p', 99);
	f->steps[0].engine = 1;
	with_hole(f, 109);
	t = trace_of(f, 0);
	assert_int_equal(t.sum_ns[PART_WAIT_SLOT], 0);
	assert_int_equal(t.sum_ns[PART_WAIT_STEP], MS(3));
	for (size_t i = 0; i < t.n; i++)
		assert_int_equal(t.segs[i].n_steps, 0);
	trace__free(&t);
}

static void test_trace__unjoined_is_unexplained(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	struct trace t;
	char *text;

	fake_point(r, P_REQ_LAST_BYTE, 1);
	fake_point(r, P_HEADERS, 2); /* long before the first token */
	for (int i = 0; i < 10; i++)
		fake_chunk(r, 50 + 10 * i + (i > 5 ? 90 : 0), TL_CHUNK_TEXT);
	fake_done(f, r, 235);
	t = trace_of(f, 0);
	assert_null(t.q);
	assert_int_equal(t.sum_ns[PART_SERVER], MS(49));
	assert_int_equal(t.sum_ns[PART_STREAM], MS(180));
	assert_int_equal(t.sum_ns[PART_END], MS(5));
	trace__free(&t);
	text = why(f, 0);
	assert_has(text, "unexplained 229 ms");
	assert_has(text, "joined to no step of the engine");
	assert_has(text, "longest gap between chunks");
	free(text);
}

static void test_trace__what_came_before_we_did_is_not_claimed(void **state)
{
	struct fake *f = *state;
	struct fake_job jobs[] = {
		{ .prompt = 20, .output = 10, .stream = true, .joined_late = true },
	};
	struct trace t;
	char *text;

	fake_serve(f, jobs, 1);
	t = trace_of(f, 0);
	assert_int_equal(t.sum_ns[PART_WAIT_SLOT], 0);
	assert_int_equal(t.sum_ns[PART_PREFILL], 0);
	assert_int_equal(t.n_decode_steps, 9);
	trace__free(&t);
	text = why(f, 0);
	assert_has(text, "seen for");
	assert_has(text, "its beginning was not seen");
	free(text);
}

static void test_why__chunks_out_of_order_draw_no_endless_bar(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 100);
	char *text;

	fake_chunk(r, 150, TL_CHUNK_TEXT);
	fake_chunk(r, 20, TL_CHUNK_TEXT);
	fake_chunk(r, 140, TL_CHUNK_TEXT);
	fake_chunk(r, 4000, TL_CHUNK_TEXT);
	fake_point(r, P_LAST_TOKEN_WIRE, 170);
	fake_done(f, r, 180);
	text = why(f, 0);
	assert_true(strlen(text) < 4000);
	assert_has(text, "streaming 4 chunks with tokens");
	free(text);
}

static void test_trace__nothing_known(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	char *text;

	r->at_ns[P_REQ_FIRST_BYTE] = 0;
	r->joined_late = true;
	r->state = REQ_TRUNCATED;
	text = why(f, 0);
	assert_has(text, "nothing is known");
	free(text);
}

static void test_why__says_who_had_the_slot_and_what_ran(void **state)
{
	char *text;

	three_jobs(*state);
	text = why(*state, 2);
	assert_has(
		text,
		"r3: e2e 356 ms; 139 ms waiting for a slot held by r2 (5.20 ms behind prefill of "
		"r2 (54 tok), 128 ms behind decode of r1, r2), 197 ms prefill of 900 tokens in 4 steps, ");
	assert_has(text, "slot 1 had r2; 30 steps ran: prefill of r2 (54 tok), decode of r1");
	assert_has(text, "prefill 255 tok, 55.2 ms, with decode of r1");
	assert_has(text, "4 decode steps x 4.40 ms, with decode of r1");
	assert_has(text, "sum = e2e (done - req_first_byte)");
	free(text);
	text = why(*state, 0);
	assert_has(text, "shared with prefill of r3 (900 tok), r2 (54 tok))");
	assert_has(text, "decode 55.2 ms, with prefill of r3 (255 tok)");
	free(text);
}

/* The hole of 192 ms in r1 is the only part without evidence: it is one row, not two. */
static void test_why__what_is_unexplained_is_said_once(void **state)
{
	struct fake *f = *state;
	char *text;

	with_hole(f, 300);
	f->steps[9].t0_ns += 499; /* ns that round differently alone and in a sum */
	text = why(f, 0);
	assert_null(strstr(text, "of this unexplained"));
	assert_has(text, "   192.000    62.5 %  unexplained\n");
	assert_has(text, "   103.000   192.000"); /* at, and as long as in the table */
	free(text);
}

static void test_why__a_row_says_what_lies_between_its_steps(void **state)
{
	char *text;

	with_hole(*state, 109);
	text = why(*state, 0);
	assert_has(text, "9 decode steps x 10.0 ms + 9.00 ms between, alone");
	free(text);
}

static void test_why__says_when_it_began(void **state)
{
	struct fake *f = *state;
	char *text;

	setenv("TZ", "XST-5:30", 1);
	tzset();
	three_jobs(f);
	text = why(f, 2);
	assert_has(text, "It began 2023-11-15 03:43:20.030 +0530 (11-14 22:13:20 UTC), 30 ms after the "
			 "recording began.");
	free(text);
	setenv("TZ", "UTC", 1);
	tzset();
	text = why(f, 2);
	assert_has(text, "It began 2023-11-14 22:13:20.030 +0000, 30 ms after");
	free(text);
	f->v.host = NULL;
	text = why(f, 2);
	assert_has(text, "It began 30 ms after the recording began.");
	free(text);
}

/* One step with prefill of r1 and, smaller, of r2; r3 waits until it is over. */
static void crowded_prefill(struct fake *f, uint32_t r1_tokens)
{
	uint32_t q[3];

	for (int i = 0; i < 3; i++) {
		struct rec_request *r = fake_request(f, i == 2 ? 10 : 0);

		fake_point(r, P_REQ_LAST_BYTE, i == 2 ? 11 : 1);
		fake_point(r, P_SUBMIT, i == 2 ? 12 : 2);
		q[i] = fake_seq(f, r, (uint32_t)i);
	}
	fake_step(f, 3, 1061);
	fake_member(f, q[0], 'P', r1_tokens);
	fake_member(f, q[1], 'P', 50);
	fake_step(f, 1061, 1070);
	fake_member(f, q[0], 'd', 1);
	fake_member(f, q[2], 'P', 7);
	for (int i = 0; i < 3; i++)
		fake_done(f, &f->reqs[i], 1072);
}

static void test_why__a_prefill_of_others_is_not_its_own(void **state)
{
	struct fake *f = *state;
	struct why_rows w;
	struct trace t;
	char *text;

	crowded_prefill(f, 462);
	text = why(f, 1);
	assert_has(text, "1.06 s prefill of 50 tokens in 1 step that was mostly prefill of r1 (462 tok)");
	free(text);
	t = trace_of(f, 1);
	assert_int_equal(t.crowded_ns, MS(1058));
	assert_int_equal(why_rows__build(&w, &t, &(struct why_causes){ 0 }), 0);
	for (size_t i = 0; i < w.rows.n; i++)
		assert_int_not_equal(w.rows.v[i].style, STYLE_PREFILL);
	why_rows__free(&w);
	trace__free(&t);
	text = why(f, 0); /* the larger one keeps its blame */
	assert_has(text, "prefill of 462 tokens in 1 step, with prefill of r2 (50 tok)");
	free(text);
}

/* Two answers to one request: they are not each other's stranger. */
static void test_why__another_answer_of_its_own(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 5);
	uint32_t a = fake_seq(f, r, 0), b = fake_seq(f, r, 1);
	char *text;

	fake_point(r, P_REQ_LAST_BYTE, 6);
	fake_step(f, 10, 20);
	fake_member(f, a, 'P', 64);
	fake_member(f, b, 'P', 64);
	for (int i = 0; i < 4; i++) {
		fake_step(f, 20 + 10 * i, 30 + 10 * i);
		fake_member(f, a, 'd', 1);
		fake_member(f, b, 'd', 1);
	}
	fake_done(f, r, 61);
	text = why(f, 0);
	assert_has(text, "prefill 64 tok, 10.0 ms, with prefill of its other answer (64 tok)");
	assert_has(text, "4 decode steps x 10.0 ms, with decode of its other answer");
	assert_null(strstr(text, "of r1"));
	free(text);
}

/* It waited in a socket: the engine's clock begins when it was read. */
static void test_why__what_the_engine_would_say(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 5);
	uint32_t q = fake_seq(f, r, 0);
	char *text;

	fake_point(r, P_REQ_LAST_BYTE, 385);
	fake_step(f, 400, 430);
	fake_member(f, q, 'P', 64);
	fake_point(r, P_FIRST_TOKEN_ENGINE, 430);
	fake_done(f, r, 431);
	f->engines[0].e.engine = TL_ENGINE_VLLM;
	text = why(f, 0);
	assert_has(text, "the engine's own TTFT would read 45.0 ms: it begins when the request is tokenized, 380 ms after "
			 "its first byte had come");
	free(text);
	fake_point(r, P_REQ_LAST_BYTE, 6);	/* it waited for its turn: that is in it */
	text = why(f, 0);
	assert_null(strstr(text, "own TTFT"));
	free(text);
}

static void test_why__a_wait_names_who_filled_it(void **state)
{
	struct fake *f = *state;
	char *text;

	crowded_prefill(f, 462);
	text = why(f, 2);
	assert_has(text, "1.05 s until a step could take it in (behind prefill of r1 (462 tok), "
			 "r2 (50 tok))");
	free(text);
}

/* The parts as printed, to the us, add up to the sum as printed. */
static void test_why__printed_parts_add_up(void **state)
{
	struct fake *f = *state;
	char *text, *rest = NULL;
	long sum = 0, total = -1;
	bool in = false;

	three_jobs(f);
	for (size_t i = 0; i < f->v.n_steps; i++)
		f->steps[i].t1_ns += 333 + 7 * i; /* nothing falls on a us */
	text = why(f, 2);
	for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
		long us = (long)(strtod(l, NULL) * 1000 + 0.5);

		if (strstr(l, "share  part"))
			in = true;
		else if (in && strstr(l, "sum = "))
			total = us;
		else if (in && total < 0)
			sum += us;
	}
	assert_true(total > 0);
	assert_int_equal(sum, total);
	free(text);
}

/* 1500 decode steps, every third with somebody's prefill: still one screen, and all the time. */
static void test_why__long_stories_are_folded(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0), *other = fake_request(f, 0);
	uint32_t q = fake_seq(f, r, 0), o = fake_seq(f, other, 1);
	struct why_rows w;
	struct trace t;
	uint64_t at;

	fake_step(f, 0, 10);
	fake_member(f, q, 'P', 10);
	for (int i = 0; i < 1500; i++) {
		fake_step(f, 10 + 10 * i, 18 + 10 * i);
		fake_member(f, q, 'd', 1);
		if (i % 3 == 0)
			fake_member(f, o, i % 2 ? 'p' : 'd', 1);
	}
	fake_done(f, r, 15020);
	t = trace_of(f, 0);
	assert_int_equal(why_rows__build(&w, &t, &(struct why_causes){ 0 }), 0);
	assert_in_range(w.rows.n, 3, 60);
	at = t.t0_ns;
	for (size_t i = 0; i < w.rows.n; i++) {
		assert_int_equal(w.rows.v[i].t0_ns, at);
		at = w.rows.v[i].t1_ns;
	}
	assert_int_equal(at, t.t1_ns);
	why_rows__free(&w);
	trace__free(&t);
}

static void test_why__a_slow_step_says_what_is_usual(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = with_hole(f, 109);
	char *text;

	f->steps[9].t1_ns += 60000000;
	r->at_ns[P_DONE] += 60000000;
	r->at_ns[P_LAST_TOKEN_ENGINE] += 60000000;
	text = why(f, 0);
	assert_has(text, "decode 70.0 ms (its median is 10.0), no prefill in it, alone");
	free(text);
}

static void test_why__every_width(void **state)
{
	three_jobs(*state);
	for (int width = 0; width < 140; width += 7) {
		struct fake *f = *state;
		char *text = NULL, *rest = NULL;
		size_t len;
		FILE *out = open_memstream(&text, &len);
		struct text_opts o = { .width = width, .utf8 = true };

		assert_non_null(out);
		assert_int_equal(why_request(&f->v, 2, &o, out), 0);
		fclose(out);
		for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest))
			assert_true(utf8_width(l) <= (width == 0 ? 100 : width < 60 ? 60 : width));
		free(text);
	}
}

static void test_why__survives_no_memory(void **state)
{
	struct fake *f = *state;
	FILE *out = fopen("/dev/null", "w");
	int err = 0;

	assert_non_null(out);
	three_jobs(f);
	fputc('\n', out); /* stdio takes its buffer here */
	OOM_LOOP(err = why_request(&f->v, 0, &(struct text_opts){ 0 }, out);
		 if (err) assert_int_equal(err, -ENOMEM))
		assert_int_equal(err, 0);
	fclose(out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void test_why__gaps_above_usual(void **state)
{
	char *text;

	three_jobs(*state);
	text = why(*state, 0);
	assert_has(text, "usual  token  gaps between tokens above usual\n");
	assert_has(text, " prefill in the same step (r3), ");
	assert_has(text, " gaps are longer than usual, by ");
	assert_has(text, "  - to its first token, ");
	free(text);
}

/* Steps go on, and what they gave leaves all at once: no row of theirs shows that. */
static void test_why__shows_what_waited_between_step_and_write(void **state)
{
	struct fake *f = *state;
	struct rec_request *r;
	char *text;

	three_jobs(f);
	text = why(f, 0);
	assert_null(strstr(text, "Beside these rows"));
	assert_null(strstr(text, "its first token left"));
	free(text);
	r = &f->reqs[0];
	for (size_t i = 40; i < 50; i++)
		r->chunks[i].since_ns = r->chunks[50].since_ns;
	text = why(f, 0);
	assert_has(text, "Beside these rows, tokens that had been made:\n");
	assert_has(text, " late between its step and the write: unexplained\n");
	assert_null(strstr(strstr(text, "between its step and the write") + 1, " late between its step"));	/* once */
	free(text);
	r->at_ns[P_FIRST_TOKEN_WIRE] = chunk_ns(r, 0) + 200000000;
	text = why(f, 0);
	assert_has(text, "; its first token left 20");
	free(text);
}

static void test_why__says_what_was_held_behind_the_write(void **state)
{
	struct fake *f = *state;
	struct tl_send_held held[7] = { 0 };
	struct tl_send_blocked blocked = { .req = 1, .since_ns = fake_ns(60), .drained_ns = fake_ns(500),
					   .app_queue_bytes = 51232, .kernel_bytes = 32768 };
	struct evidence e = { .held.v = held, .held.n = 7, .blocked.v = &blocked, .blocked.n = 1 };
	char *text;

	for (uint32_t i = 0; i < 7; i++)
		held[i] = (struct tl_send_held){ .hdr.ts_ns = fake_ns(50 + i), .since_ns = fake_ns(15),
						 .req = i < 6 ? 1 : 2, .bytes = 2000, .n_writes = 1 + i,
						 .why = TL_HELD_NAGLE, .fd = i ? -1 : 31,
						 .local_port = 8000, .peer_port = 40001 };
	held[1].why = TL_HELD_OTHER;
	f->v.evidence = &e;
	three_jobs(f);
	text = why(f, 0);
	assert_has(text, "  - 35.0 ms held by the kernel: 1 write, 2000 bytes (fd 31, port 8000 to 40001): Nagle: ");
	assert_has(text, "  - 36.0 ms held by the kernel: 2 writes, 2000 bytes (port 8000 to 40001): the reason ");
	assert_has(text, "  - 2 more such holds; in 40.0 ms at least one of the 6 lasted\n");
	assert_has(text, "from 50 ms on: up to 51.2 kB waited in the server and 32.8 kB in the kernel; it had all ");
	free(text);
	f->v.evidence = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_trace__parts_of_a_request_that_waited),
		TEST(test_trace__shared_decode_names_the_culprit),
		TEST(test_trace__short_holes_are_host_work),
		TEST(test_trace__a_long_hole_is_unexplained),
		TEST(test_trace__steps_of_others_fill_a_hole),
		TEST(test_trace__overlapping_steps_count_once),
		TEST(test_trace__steps_of_another_engine_are_not_ours),
		TEST(test_trace__unjoined_is_unexplained),
		TEST(test_trace__what_came_before_we_did_is_not_claimed),
		TEST(test_why__chunks_out_of_order_draw_no_endless_bar),
		TEST(test_trace__nothing_known),
		TEST(test_why__says_who_had_the_slot_and_what_ran),
		TEST(test_why__what_is_unexplained_is_said_once),
		TEST(test_why__a_row_says_what_lies_between_its_steps),
		TEST(test_why__says_when_it_began),
		TEST(test_why__a_prefill_of_others_is_not_its_own),
		TEST(test_why__another_answer_of_its_own),
		TEST(test_why__what_the_engine_would_say),
		TEST(test_why__a_wait_names_who_filled_it),
		TEST(test_why__printed_parts_add_up),
		TEST(test_why__long_stories_are_folded),
		TEST(test_why__a_slow_step_says_what_is_usual),
		TEST(test_why__every_width),
		TEST(test_why__gaps_above_usual),
		TEST(test_why__says_what_was_held_behind_the_write),
		TEST(test_why__shows_what_waited_between_step_and_write),
		TEST(test_why__survives_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
