/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with several answers: queue, prefill, counts and what is told of each are the same everywhere. */
#include "fake_view.h"
#include "model/leads.h"
#include "model/summary.h"
#include "sink/text.h"
#include "sink/trace.h"
#include "sink/why.h"
#include "unit.h"

#include <errno.h>

#define MS(x) ((uint64_t)((x) * 1e6 + 0.5))
#define assert_has(text, what) assert_non_null(strstr(text, what))
enum { TGID = 100 };

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

static char *told(struct fake *f, int (*tell)(const struct model_view *, size_t, const struct text_opts *, FILE *))
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(tell(&f->v, 0, &(struct text_opts){ .width = 1000 }, out), 0);
	fclose(out);
	return text;
}

/* The second answer is scheduled 5 ms behind the first token, prefills for 30 ms and ends last. */
static struct rec_request *two_answers(struct fake *f, uint32_t *ret_a, uint32_t *ret_b)
{
	struct rec_request *r = fake_request(f, 0);
	uint32_t a = fake_seq(f, r, 0), b = fake_seq(f, r, 1);

	r->n = 2;
	fake_point(r, P_REQ_LAST_BYTE, 1);
	fake_point(r, P_SUBMIT, 2);
	fake_step(f, 4, 20);
	fake_member(f, a, 'P', 6);
	fake_chunk(r, 21, TL_CHUNK_TEXT);
	fake_step(f, 25, 55);
	fake_member(f, a, 'd', 1);
	fake_member(f, b, 'P', 6);
	for (int i = 0; i < 10; i++) {
		fake_step(f, 55 + 10 * i, 65 + 10 * i);
		if (i < 9)
			fake_member(f, a, 'd', 1);
		fake_member(f, b, 'd', 1);
	}
	fake_chunk(r, 155, TL_CHUNK_TEXT);
	fake_done(f, r, 156);
	*ret_a = a;
	*ret_b = b;
	return r;
}

/* Up to the first token rows and metrics are of the answer that gave it. */
static void test_answers__rows_are_what_metrics_say(void **state)
{
	struct fake *f = *state;
	uint32_t a, b;
	struct rec_request *r = two_answers(f, &a, &b);
	struct req_metrics m;
	struct trace t;
	uint64_t sum = 0;

	request_metrics(&f->v, r, &m);
	assert_int_equal(trace__init(&t, &f->v, 0), 0);
	assert_ptr_equal(t.first, &f->seqs[a]);
	assert_ptr_equal(t.q, &f->seqs[b]);
	assert_int_equal(t.sum_ns[PART_WAIT_STEP] + t.sum_ns[PART_WAIT_QUEUE], m.queue_ns);
	assert_int_equal(t.sum_ns[PART_PREFILL], m.prefill_ns);
	assert_int_equal(t.sum_ns[PART_LATE_WAIT], MS(5));
	assert_int_equal(t.sum_ns[PART_LATE_PREFILL], MS(30));
	assert_int_equal(t.sum_ns[PART_LATE_WAIT] + t.sum_ns[PART_LATE_PREFILL] + t.sum_ns[PART_DECODE], m.decode_ns);
	for (int part = 0; part < N_PARTS; part++)
		sum += t.ttft_ns[part];
	assert_int_equal(sum, m.ttft_ns);
	trace__free(&t);
}

static void test_answers__are_told_apart(void **state)
{
	struct fake *f = *state;
	uint32_t a, b;
	char *text;

	two_answers(f, &a, &b);
	text = told(f, why_request);
	assert_has(text, "its last answer not scheduled yet (answer 2 of 2); none ran");
	assert_has(text, "prefill 6 tok of its last answer, 30.0 ms, with decode of its other answer");
	assert_has(text, "up to its first token the rows are those of answer 1, which gave it; then those of answer 2");
	free(text);
	text = told(f, text_request);
	assert_has(text, "to sequence 2 (answer 2) on slot 1 by");
	assert_null(strstr(text, "last answer's prefill"));	/* decode took more */
	free(text);
}

/* One of two loses its place: the other one goes on. */
static void test_answers__one_was_parked(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t a = fake_seq(f, r, 0), b = fake_seq(f, r, 1);
	char *text;

	r->n = 2;
	fake_point(r, P_REQ_LAST_BYTE, 1);
	for (int i = 0; i < 40; i++) {
		fake_step(f, 10 * i, 10 + 10 * i);
		fake_member(f, a, i ? 'd' : 'P', i ? 1 : 6);
		if (i < 10)
			fake_member(f, b, i ? 'd' : 'P', i ? 1 : 6);
	}
	fake_preempt(f, b, 100, 400, 15);
	fake_step(f, 400, 420);
	fake_member(f, b, 'A', 15);
	fake_done(f, r, 421);
	text = told(f, why_request);
	assert_has(text, "parked after preemption, one of its answers");
	assert_has(text, "parked after preemption (answer 2 of 2)");
	assert_has(text, "answer 2: 300 ms parked after a preemption");
	free(text);
	text = told(f, text_request);
	assert_has(text, "answer 2 of 2 preempted: parked for 300 ms");
	free(text);
	/* that of the answer that ended earlier is in no row, and told */
	fake_step(f, 420, 440);
	fake_member(f, a, 'd', 1);
	fake_done(f, r, 441);
	text = told(f, why_request);
	assert_has(text, "answer 2 was preempted, too, and is in no row: parked for 300 ms, 15 tokens computed again");
	free(text);
}

/* Gaps of both between the same steps are one line. */
static void test_answers__the_same_gap_stands_once(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t a = fake_seq(f, r, 0), b = fake_seq(f, r, 1);
	double at = 0;
	char *text, *first;

	r->n = 2;
	for (int i = 0; i < 40; i++) {
		double ms = i == 30 ? 400 : 10;

		fake_step(f, at, at + ms);
		fake_member(f, a, i ? 'd' : 'P', i ? 1 : 6);
		fake_member(f, b, i ? 'd' : 'P', i ? 1 : 6);
		at += ms;
	}
	fake_done(f, r, at + 1);
	text = told(f, why_request);
	first = strstr(text, "both answers: ");
	assert_non_null(first);
	assert_null(strstr(first + 1, "both answers: "));
	free(text);
}

/* Another request with two answers is one culprit. */
static void test_answers__of_another_are_one(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0), *other = fake_request(f, 0);
	uint32_t own = fake_seq(f, r, 0), a = fake_seq(f, other, 1), b = fake_seq(f, other, 2);
	char *text;

	for (int i = 0; i < 4; i++) {
		fake_step(f, 10 * i, 10 + 10 * i);
		fake_member(f, own, i ? 'd' : 'P', i ? 1 : 6);
		fake_member(f, a, i ? 'd' : 'P', i ? 1 : 5);
		fake_member(f, b, i ? 'd' : 'P', i ? 1 : 4);
	}
	fake_done(f, r, 41);
	text = told(f, why_request);
	assert_has(text, "with prefill of r2 (9 tok)");
	assert_null(strstr(text, "r2 r2"));
	free(text);
}

/* Its prompt and what it had given were there before we came: nobody knows what a preemption took. */
static void test_answers__joined_late_lost_what_it_had(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t a = fake_seq(f, r, 0);
	char *text;

	r->at_ns[P_REQ_FIRST_BYTE] = 0;
	r->joined_late = f->seqs[a].joined_late = true;
	r->state = REQ_TRUNCATED;
	for (int i = 0; i < 10; i++) {
		fake_step(f, 10 * i, 10 + 10 * i);
		fake_member(f, a, 'd', 1);
		fake_chunk(r, 11 + 10 * i, TL_CHUNK_TEXT);
	}
	fake_preempt(f, a, 100, 400, 10);
	fake_step(f, 400, 440);
	fake_member(f, a, 'A', 1);
	f->seqs[a].visits[10].guess = 1;
	fake_chunk(r, 441, TL_CHUNK_TEXT);
	assert_false(sequence_knows_lost(&f->seqs[a]));
	text = told(f, text_request);
	assert_has(text, "89.000 ms after it was first seen, parked for 300 ms (reported)");
	assert_has(text, "how much it lost is not known");
	assert_null(strstr(text, "tokens lost"));
	assert_null(strstr(text, "tok again"));
	assert_null(strstr(text, "computed again"));
	free(text);
	text = told(f, why_request);
	assert_has(text, "computing what it had again in 1 step");
	assert_has(text, "prefill again, 40.0 ms");
	free(text);
	/* an adapter that knew it all along may have lost events of the begin only */
	f->seqs[a].visits[10].guess = 0;
	assert_true(sequence_knows_lost(&f->seqs[a]));
	text = told(f, text_request);
	assert_has(text, "10 tokens lost (reported)");
	free(text);
}

/* ---- what the model counts ---- */

#define HDR(ev, kind, flags, ts) { sizeof(ev), kind, flags, TGID, 1, ts }
#define FEED(m, ev) assert_int_equal(model__feed(m, &(ev).hdr), 0)

static void request(struct model *m, uint32_t req, uint32_t flags, uint16_t n)
{
	struct tl_req_begin e = { .hdr = HDR(e, TL_REQ_BEGIN, TL_API_COMPLETIONS, 100), .req = req, .conn = req };
	struct tl_req_facts f = { .hdr = HDR(f, TL_REQ_FACTS, flags, 110), .req = req, .max_tokens = -1,
				  .api = TL_API_COMPLETIONS, .stream = 1, .n = n, .path = "/v1/completions" };

	FEED(m, e);
	FEED(m, f);
}

/* One whole sequence of the request; its step ends at `end`. */
static void sequence(struct model *m, uint32_t req, uint32_t slot, uint64_t end, int32_t kept, uint32_t prompt)
{
	struct tl_seq_link l = { .hdr = HDR(l, TL_SEQ_LINK, 0, end - 60), .req = req, .slot = (int32_t)slot,
				 .task = (int32_t)slot, .method = TL_LINK_TASK };
	struct tl_seq_begin b = { .hdr = HDR(b, TL_SEQ_BEGIN, 0, end - 55), .slot = slot, .kept = kept };
	struct { struct tl_step s; struct tl_member m; } e = {
		.s = { .hdr = HDR(e, TL_STEP, 0, end - 50), .end_ns = end, .n_members = 1, .n_tokens = prompt },
		.m = { slot, prompt, -1, TL_PREFILL, 1, 0 },
	};

	FEED(m, l);
	FEED(m, b);
	assert_int_equal(model__feed(m, &e.s.hdr), 0);
}

static void finish(struct model *m, struct model_view *ret)
{
	for (uint32_t r = 1; r <= 4; r++) {
		struct tl_req_end e = { .hdr = HDR(e, TL_REQ_END, 0, 9000), .req = r, .how = TL_END_COMPLETE, .status = 200 };

		FEED(m, e);
	}
	assert_int_equal(model__finish(m), 0);
	model__view(m, ret);
}

/* No usage came: two answers to one prompt, two prompts, two of each, and a body of which the end was not seen. */
static void test_answers__prompts_are_counted(void **state)
{
	struct model *m = model__new(NULL);
	struct model_view v;

	(void)state;
	assert_non_null(m);
	request(m, 1, 0, 2);
	sequence(m, 1, 0, 1000, 0, 6);
	sequence(m, 1, 1, 2000, 4, 2);
	request(m, 2, 0, 0);
	sequence(m, 2, 2, 3000, 0, 6);
	sequence(m, 2, 3, 3500, 0, 9);
	request(m, 3, 0, 2);
	for (uint32_t i = 0; i < 4; i++)
		sequence(m, 3, 4 + i, 4000 + 500 * i, 0, i < 2 ? 6 : 8);
	request(m, 4, TL_F_TRUNC, 0);
	sequence(m, 4, 8, 7000, 0, 6);
	sequence(m, 4, 9, 7500, 0, 6);
	finish(m, &v);
	assert_int_equal(v.requests[0].prompt.n, 6);
	assert_int_equal(v.requests[0].cached.n, 0);
	assert_int_equal(v.requests[1].prompt.n, 15);
	assert_int_equal(v.requests[2].prompt.n, 14);
	assert_int_equal(v.requests[3].prompt.prov, PROV_NONE);
	assert_int_equal(v.requests[3].output.n, 2);
	/* queue and prefill are those of the first token's */
	assert_int_equal(v.requests[0].at_ns[P_PREFILL_START], 950);
	assert_int_equal(v.requests[0].at_ns[P_FIRST_TOKEN_ENGINE], 1000);
	assert_int_equal(v.requests[0].at_ns[P_LAST_TOKEN_ENGINE], 2000);
	model__free(m);
}

/* One began first and lost its place; the other gave the first token: all of it is of the other. */
static void test_answers__points_are_of_one(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t a = fake_seq(f, r, 0), b = fake_seq(f, r, 1), none;
	struct leads l;

	fake_step(f, 10, 20);
	fake_member(f, a, 'p', 100);
	fake_step(f, 30, 40);
	fake_member(f, b, 'P', 6);
	fake_step(f, 50, 60);
	fake_member(f, a, 'P', 100);
	leads_of(&f->v, r, &l);
	assert_int_equal(l.first, b);
	assert_int_equal(l.first_visit, 0);
	assert_int_equal(l.last, a);
	f->seqs[b].joined_late = true;
	leads_of(&f->v, r, &l);
	assert_int_equal(l.first, a);
	assert_int_equal(l.first_visit, 1);
	r = fake_request(f, 0);
	none = fake_seq(f, r, 2);
	leads_of(&f->v, r, &l);
	assert_int_equal(l.first, UINT32_MAX);
	assert_int_equal(l.last, UINT32_MAX);
	assert_int_equal(answer_number(r, none), 1);
	assert_int_equal(answer_number(r, a), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_answers__##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(rows_are_what_metrics_say), T(are_told_apart), T(one_was_parked), T(the_same_gap_stands_once),
		T(of_another_are_one), T(joined_late_lost_what_it_had), T(prompts_are_counted), T(points_are_of_one),
	};

	return cmocka_run_group_tests_name("answers", tests, NULL, NULL);
}
