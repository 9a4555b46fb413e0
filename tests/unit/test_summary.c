/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of a request, percentiles, rates and coverage, from views written by hand. */
#include "unit.h"
#include "fake_view.h"
#include "model/summary.h"

#include <errno.h>

#define MS(x) ((int64_t)((x) * 1000000))

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

static struct summary summary_of(struct fake *f)
{
	struct summary s;

	assert_int_equal(summarise(&f->v, &s), 0);
	return s;
}

static struct req_metrics metrics_of(struct fake *f, const struct rec_request *r)
{
	struct req_metrics m;

	request_metrics(&f->v, r, &m);
	return m;
}

/* Read 0..1, submitted 2, prefill 10..30, tokens at 30, 40, 50, 60 and on the wire 1 ms later. */
static struct rec_request *plain(struct fake *f, double at)
{
	struct rec_request *r = fake_request(f, at);
	uint32_t s = fake_seq(f, r, 0);

	fake_point(r, P_REQ_LAST_BYTE, at + 1);
	fake_point(r, P_SUBMIT, at + 2);
	fake_step(f, at + 10, at + 30);
	fake_member(f, s, 'P', 100);
	for (int i = 0; i < 3; i++) {
		fake_step(f, at + 30 + 10 * i, at + 40 + 10 * i);
		fake_member(f, s, 'd', 1);
	}
	for (int i = 0; i < 4; i++)
		fake_chunk(r, at + 31 + 10 * i, TL_CHUNK_TEXT);
	r->prompt = fake_count(100);
	r->cached = fake_count(0);
	r->output = fake_count(4);
	fake_done(f, r, at + 62);
	return r;
}

static void test_metrics__plain(void **state)
{
	struct req_metrics m = metrics_of(*state, plain(*state, 100));

	assert_int_equal(m.ttft_ns, MS(31));
	assert_int_equal(m.tpot_ns, MS(10));
	assert_int_equal(m.tpot_prov, PROV_REPORTED);
	assert_int_equal(m.e2e_ns, MS(62));
	assert_int_equal(m.before_submit_ns, MS(1));
	assert_int_equal(m.queue_ns, MS(8));
	assert_int_equal(m.queue_prov, PROV_OBSERVED);
	assert_int_equal(m.prefill_ns, MS(20));
	assert_int_equal(m.decode_ns, MS(30));
	assert_int_equal(m.delivery_ns, MS(1));
}

static void test_metrics__queue_without_submit_is_inferred(void **state)
{
	struct rec_request *r = plain(*state, 0);
	struct req_metrics m;

	r->at_ns[P_SUBMIT] = 0;
	m = metrics_of(*state, r);
	assert_int_equal(m.queue_ns, MS(9));
	assert_int_equal(m.queue_prov, PROV_INFERRED);
	assert_int_equal(m.before_submit_ns, -1);
	r->at_ns[P_REQ_LAST_BYTE] = 0;
	m = metrics_of(*state, r);
	assert_int_equal(m.queue_ns, -1);
	assert_int_equal(m.queue_prov, PROV_NONE);
}

static void test_metrics__joined_late_has_no_ttft(void **state)
{
	struct rec_request *r = plain(*state, 0);
	struct req_metrics m;

	r->joined_late = true;
	m = metrics_of(*state, r);
	assert_int_equal(m.ttft_ns, -1);
	assert_int_equal(m.tpot_ns, -1);
	assert_int_equal(m.e2e_ns, -1);
	assert_int_equal(m.queue_ns, -1);
}

static void test_metrics__not_streamed_has_engine_side_only(void **state)
{
	struct rec_request *r = plain(*state, 0);
	struct req_metrics m;

	r->stream = 0;
	r->body = TL_BODY_JSON;
	m = metrics_of(*state, r);
	assert_int_equal(m.ttft_ns, -1);
	assert_int_equal(m.tpot_ns, -1);
	assert_int_equal(m.e2e_ns, MS(62));
	assert_int_equal(m.prefill_ns, MS(20));
}

static void test_metrics__tpot_needs_two_tokens_of_one_answer(void **state)
{
	struct rec_request *r = plain(*state, 0);

	r->output = fake_count(1);
	assert_int_equal(metrics_of(*state, r).tpot_ns, -1);
	r->output = (struct rec_count){ 0, PROV_NONE };
	assert_int_equal(metrics_of(*state, r).tpot_ns, -1);
	r->output = (struct rec_count){ 4, PROV_INFERRED };
	assert_int_equal(metrics_of(*state, r).tpot_prov, PROV_INFERRED);
	r->n = 2;
	assert_int_equal(metrics_of(*state, r).tpot_ns, -1);
	/* all at once is not fast */
	r->n = 1;
	r->at_ns[P_FIRST_TOKEN_WIRE] = r->at_ns[P_LAST_TOKEN_WIRE];
	assert_int_equal(metrics_of(*state, r).tpot_ns, -1);
	assert_true(metrics_of(*state, r).ttft_ns > 0);
}

/* The client left after two of four chunks: the engine made the others for nobody. */
static void test_metrics__tpot_of_a_cut_answer_is_of_what_left(void **state)
{
	struct rec_request *r = plain(*state, 0);
	struct req_metrics m;

	r->state = REQ_ABORTED;
	r->output = (struct rec_count){ 4, PROV_OBSERVED };
	r->n_chunks = r->n_tokens_wire = 2;
	fake_point(r, P_LAST_TOKEN_WIRE, 41);
	m = metrics_of(*state, r);
	assert_int_equal(m.tpot_ns, MS(10));
	assert_int_equal(m.delivered_tokens, 2);
	/* chunks may hold several: what the engine had by then */
	fake_point(r, P_LAST_TOKEN_WIRE, 51);
	assert_int_equal(metrics_of(*state, r).delivered_tokens, 3);
	/* the engine's own count is of the whole answer, and so is a complete one */
	r->state = REQ_COMPLETE;
	assert_int_equal(metrics_of(*state, r).delivered_tokens, 4);
	r->state = REQ_ABORTED;
	r->output = fake_count(4);
	assert_int_equal(metrics_of(*state, r).delivered_tokens, 4);
}

static void test_metrics__crossed_points_are_unknown(void **state)
{
	struct rec_request *r = plain(*state, 0);

	fake_point(r, P_SUBMIT, 11);	/* behind prefill_start */
	assert_int_equal(metrics_of(*state, r).queue_ns, -1);
}

static const struct chunk_case { uint32_t flags; bool token; } chunk_cases[] = {
	{ TL_CHUNK_TEXT, true },
	{ TL_CHUNK_REASONING, true },
	{ TL_CHUNK_TOOL | TL_CHUNK_FINISH, true },
	{ TL_CHUNK_ROLE | TL_CHUNK_TEXT, true },
	{ TL_CHUNK_EMPTY, true },	/* a token without text */
	{ TL_CHUNK_EMPTY | TL_CHUNK_ROLE, false },
	{ TL_CHUNK_EMPTY | TL_CHUNK_FINISH, false },
	{ TL_CHUNK_EMPTY | TL_CHUNK_USAGE, true },	/* vLLM, continuous_usage_stats */
	{ TL_CHUNK_EMPTY | TL_CHUNK_PROGRESS, false },
	{ TL_CHUNK_ROLE, false },
	{ TL_CHUNK_DONE, false },
	{ TL_CHUNK_OTHER, false },
	{ 0, false },
};

static void test_chunk_is_token__cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(chunk_cases); i++) {
		struct rec_chunk c = { .flags = chunk_cases[i].flags };

		assert_int_equal(chunk_is_token(&c), chunk_cases[i].token);
	}
}

static void test_len_class__edges(void **state)
{
	static const struct { uint32_t n; const char *name; } cases[] = {
		{ 0, "<=16" }, { 16, "<=16" }, { 17, "<=128" }, { 128, "<=128" }, { 129, "<=1024" },
		{ 1024, "<=1024" }, { 8192, "<=8192" }, { 8193, ">8192" },
	};
	struct rec_count unknown = { 5, PROV_NONE };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rec_count c = fake_count(cases[i].n);

		assert_string_equal(len_class_names[len_class(&c)], cases[i].name);
	}
	assert_string_equal(len_class_names[len_class(&unknown)], "unknown");
}

static void test_summary__empty(void **state)
{
	struct summary s = summary_of(*state);

	assert_int_equal(s.all.ttft.n, 0);
	assert_int_equal(s.all.n_requests, 0);
	assert_true(s.tok_per_s_wall < 0);
	assert_true(s.tok_per_s_busy < 0);
	assert_true(s.matched_tokens_pct < 0);
	assert_int_equal(s.n_bins, 0);
}

/* The interference case: A and B decode, 20 ms a step; C's prefill shares two steps of 180. */
static void long_prefill(struct fake *f)
{
	struct rec_request *a = fake_request(f, 0), *b = fake_request(f, 0);
	struct rec_request *c = fake_request(f, 1005);
	uint32_t sa = fake_seq(f, a, 0), sb = fake_seq(f, b, 1), sc = fake_seq(f, c, 2);
	double t = 200;

	for (int i = 0; i < 101; i++) {
		double d = i == 41 || i == 42 ? 180 : 20;

		fake_step(f, t, t + d);
		fake_member(f, sa, 'd', 1);
		fake_member(f, sb, 'd', 1);
		if (d > 20)
			fake_member(f, sc, i == 41 ? 'p' : 'P', 4094);
		t += d;
	}
	fake_chunk(c, 1381, TL_CHUNK_TEXT);
}

static void test_summary__long_prefill_in_a_mixed_batch(void **state)
{
	struct fake *f = *state;
	struct summary s;

	long_prefill(f);
	s = summary_of(f);
	assert_int_equal(s.all.itl_token.n, 200);
	assert_int_equal(s.all.itl_token.p50, MS(20));
	assert_int_equal(s.all.itl_token.p90, MS(20));
	assert_int_equal(s.all.itl_token.p99, MS(180));
	assert_int_equal(s.all.itl_token.max, MS(180));
	assert_int_equal(s.batch.p50, 2);
	assert_int_equal(s.batch.max, 3);
	assert_int_equal(s.all.prefill.max, MS(360));
	assert_int_equal(s.steps_seen, 101);
	assert_int_equal(s.tokens_in_steps, 2 * 101 + 2 * 4094);
	assert_float_equal(s.matched_tokens_pct, 100.0, 1e-9);
}

/* 3, 3, 2 accepted tokens per step of 24 ms: TPOT is per token, the gaps are per step and chunk. */
static void test_summary__several_tokens_per_step(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t q = fake_seq(f, r, 0);
	struct summary s;

	fake_step(f, 50, 100);
	fake_member(f, q, 'P', 10);
	fake_chunk(r, 100, TL_CHUNK_TEXT);
	for (int i = 0; i < 30; i++) {
		fake_step(f, 100 + 24 * i, 124 + 24 * i);
		fake_member(f, q, 'd', i % 3 == 2 ? 2 : 3);
		fake_chunk(r, 124 + 24 * i, TL_CHUNK_TEXT);
	}
	r->output = fake_count(81);
	s = summary_of(f);
	assert_int_equal(s.all.tpot.p50, MS(9));
	assert_int_equal(s.all.itl_chunk.p50, MS(24));
	assert_int_equal(s.all.itl_chunk.n, 30);
	assert_int_equal(s.all.itl_token.p50, MS(24));
	assert_int_equal(s.all.itl_token.n, 30);
	assert_int_equal(s.n_multi_token_steps, 30);
}

static void test_summary__busy_is_a_union_per_engine(void **state)
{
	struct fake *f = *state;
	struct summary s;

	f->v.n_engines = 2;
	fake_step(f, 0, 100);
	fake_step(f, 50, 150);		/* overlaps: an engine that runs ahead */
	fake_step(f, 60, 160);
	f->steps[2].engine = 1;
	fake_step(f, 300, 310);
	s = summary_of(f);
	assert_int_equal(s.busy_ns, MS(150 + 100 + 10));
	assert_true(s.busy_from_steps);
}

static void test_summary__order_of_steps_does_not_matter(void **state)
{
	struct fake *f = *state;
	struct summary s;

	fake_step(f, 300, 310);
	fake_step(f, 50, 150);
	fake_step(f, 0, 100);
	s = summary_of(f);
	assert_int_equal(s.busy_ns, MS(160));
}

static void test_summary__busy_without_steps_is_requests(void **state)
{
	struct fake *f = *state;
	struct summary s;

	fake_done(f, fake_request(f, 0), 100);
	fake_done(f, fake_request(f, 50), 200);
	fake_done(f, fake_request(f, 500), 600);
	s = summary_of(f);
	assert_false(s.busy_from_steps);
	assert_int_equal(s.busy_ns, MS(300));
	assert_int_equal(s.wall_ns, MS(600));
	assert_int_equal(s.n_bins, 0);
}

static void test_summary__rates_are_wall_and_busy(void **state)
{
	struct fake *f = *state;
	struct summary s;

	plain(f, 0);
	plain(f, 938);
	s = summary_of(f);
	assert_int_equal(s.wall_ns, MS(1000));
	assert_int_equal(s.busy_ns, MS(100));
	assert_float_equal(s.tok_per_s_wall, 8.0, 1e-9);
	assert_float_equal(s.tok_per_s_busy, 80.0, 1e-9);
	assert_int_equal(s.output_tokens, 8);
	assert_int_equal(s.prompt_tokens, 200);
}

static void test_summary__joined_late_gives_gaps_and_only_tokens_seen(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t q = fake_seq(f, r, 0);
	struct summary s;

	r->joined_late = f->seqs[q].joined_late = true;
	r->state = REQ_TRUNCATED;
	r->at_ns[P_REQ_FIRST_BYTE] = 0;
	r->output = fake_count(500);	/* most of it before we came */
	for (int i = 0; i < 3; i++) {
		fake_step(f, 10 * i, 10 * i + 10);
		fake_member(f, q, 'd', 1);
		fake_chunk(r, 10 * i + 11, TL_CHUNK_TEXT);
	}
	s = summary_of(f);
	assert_int_equal(s.all.ttft.n, 0);
	assert_int_equal(s.all.itl_token.n, 2);
	assert_int_equal(s.all.itl_chunk.n, 2);
	assert_int_equal(s.output_tokens, 3);
	assert_int_equal(s.n_state[REQ_TRUNCATED], 1);
}

static void test_summary__errors_are_counted_not_timed(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	struct summary s;

	r->state = REQ_ERROR;
	r->status = 400;
	fake_done(f, r, 1);
	s = summary_of(f);
	assert_int_equal(s.n_state[REQ_ERROR], 1);
	assert_int_equal(s.all.e2e.n, 0);
	assert_int_equal(s.all.n_requests, 0);
}

/* A server that dies in the middle of an answer leaves no e2e, but all that was before. */
static void test_summary__answers_cut_by_the_server_are_timed(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = plain(f, 0);
	struct summary s;

	r->state = REQ_ERROR;
	r->how_ended = TL_END_SERVER;
	r->at_ns[P_DONE] = 0;
	s = summary_of(f);
	assert_int_equal(s.n_state[REQ_ERROR], 1);
	assert_int_equal(s.n_cut, 1);
	assert_int_equal(s.all.n_requests, 1);
	assert_int_equal(s.all.ttft.p50, MS(31));
	assert_int_equal(s.all.itl_token.n, 3);
	assert_int_equal(s.all.e2e.n, 0);
	/* an error that the server sent is none of these, nor is one that had no token */
	r->status = 500;
	assert_int_equal(summary_of(f).all.n_requests, 0);
	r->status = 200;
	r->how_ended = TL_END_COMPLETE;
	assert_int_equal(summary_of(f).all.n_requests, 0);
	r->how_ended = TL_END_SERVER;
	r->n_chunks = 0;
	s = summary_of(f);
	assert_int_equal(s.n_cut, 0);
	assert_int_equal(s.all.n_requests, 0);
}

static void test_summary__gaps_over_lost_events_are_left_out(void **state)
{
	struct fake *f = *state;
	struct summary s;

	plain(f, 0);
	f->lost[0] = (struct rec_lost){ fake_ns(44), fake_ns(46), 7, TL_LOST_RING, 0 };
	f->v.n_lost = 1;
	s = summary_of(f);
	assert_int_equal(s.all.itl_token.n, 2);
	assert_int_equal(s.all.itl_chunk.n, 2);
	assert_int_equal(s.n_gaps_lost, 2);
	f->lost[0].where = TL_LOST_PARSER;	/* of some other connection */
	s = summary_of(f);
	assert_int_equal(s.all.itl_token.n, 3);
}

static void test_summary__lost_spans_in_any_order(void **state)
{
	struct fake *f = *state;

	plain(f, 0);
	f->lost[0] = (struct rec_lost){ fake_ns(500), fake_ns(600), 1, TL_LOST_RING, 0 };
	f->lost[1] = (struct rec_lost){ fake_ns(32), fake_ns(33), 1, TL_LOST_SCRATCH, 0 };
	f->lost[2] = (struct rec_lost){ fake_ns(32.5), fake_ns(58), 1, TL_LOST_RING, 0 };
	f->v.n_lost = 3;
	assert_int_equal(summary_of(f).all.itl_token.n, 0);
}

static void test_summary__length_classes(void **state)
{
	struct fake *f = *state;
	struct rec_request *r;
	struct summary s;

	plain(f, 0);
	r = plain(f, 100);
	r->prompt = fake_count(5000);
	r = plain(f, 200);
	r->prompt = fake_count(5000);
	fake_chunk(r, 300, TL_CHUNK_TEXT);
	r->output.prov = PROV_NONE;
	s = summary_of(f);
	assert_int_equal(s.by_input[1].n_requests, 1);
	assert_int_equal(s.by_input[3].n_requests, 2);
	assert_int_equal(s.by_input[3].ttft.n, 2);
	assert_int_equal(s.by_input[3].itl_chunk.n, 7);
	assert_int_equal(s.by_input[3].itl_chunk.max, MS(39));
	assert_int_equal(s.by_input[1].itl_chunk.max, MS(10));
	assert_int_equal(s.by_output[0].n_requests, 2);
	assert_int_equal(s.by_output[5].n_requests, 1);
	assert_int_equal(s.by_output[0].itl_chunk.max, MS(10));
	assert_int_equal(s.all.itl_chunk.n, 10);
}

static void test_summary__batch_over_time(void **state)
{
	struct fake *f = *state;
	uint32_t a = fake_seq(f, NULL, 0), b = fake_seq(f, NULL, 1);
	double busy = 0;
	size_t steps = 0;
	struct summary s;

	fake_step(f, 0, 300);
	fake_member(f, a, 'd', 1);
	fake_step(f, 300, 400);
	fake_member(f, a, 'd', 1);
	fake_member(f, b, 'd', 1);
	fake_end(f, 600);
	s = summary_of(f);
	assert_int_equal(s.batch.p50, 1);
	assert_float_equal(s.batch.mean, 1.25, 1e-9);
	assert_int_equal(s.n_bins, 60);
	for (size_t i = 0; i < s.n_bins; i++) {
		busy += s.bins[i].busy_pct;
		steps += s.bins[i].n_steps;
	}
	assert_float_equal(busy / 60, 400.0 / 6, 0.01);
	assert_int_equal(steps, 2);
	assert_float_equal(s.bins[10].mean_members, 1, 1e-6);
	assert_float_equal(s.bins[35].mean_members, 2, 1e-6);
	assert_float_equal(s.bins[50].busy_pct, 0, 1e-6);
	assert_float_equal(s.matched_tokens_pct, 0, 1e-9);
	assert_int_equal(s.n_joins[JOIN_NONE], 2);
}

static void test_summary__survives_no_memory(void **state)
{
	struct fake *f = *state;
	struct summary s;
	int err = 0;

	long_prefill(f);
	f->steps[50].t0_ns -= 30000000;	/* out of order: one more allocation */
	f->v.n_lost = 1;
	OOM_LOOP(err = summarise(&f->v, &s); if (err) assert_int_equal(err, -ENOMEM))
	assert_int_equal(err, 0);
	assert_int_equal(s.all.itl_token.n, 200);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_metrics__plain),
		TEST(test_metrics__queue_without_submit_is_inferred),
		TEST(test_metrics__joined_late_has_no_ttft),
		TEST(test_metrics__not_streamed_has_engine_side_only),
		TEST(test_metrics__tpot_needs_two_tokens_of_one_answer),
		TEST(test_metrics__tpot_of_a_cut_answer_is_of_what_left),
		TEST(test_metrics__crossed_points_are_unknown),
		TEST(test_chunk_is_token__cases),
		TEST(test_len_class__edges),
		TEST(test_summary__empty),
		TEST(test_summary__long_prefill_in_a_mixed_batch),
		TEST(test_summary__several_tokens_per_step),
		TEST(test_summary__busy_is_a_union_per_engine),
		TEST(test_summary__order_of_steps_does_not_matter),
		TEST(test_summary__busy_without_steps_is_requests),
		TEST(test_summary__rates_are_wall_and_busy),
		TEST(test_summary__joined_late_gives_gaps_and_only_tokens_seen),
		TEST(test_summary__errors_are_counted_not_timed),
		TEST(test_summary__answers_cut_by_the_server_are_timed),
		TEST(test_summary__gaps_over_lost_events_are_left_out),
		TEST(test_summary__lost_spans_in_any_order),
		TEST(test_summary__length_classes),
		TEST(test_summary__batch_over_time),
		TEST(test_summary__survives_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
