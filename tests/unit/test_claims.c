/* SPDX-License-Identifier: Apache-2.0 */
/* What gateways and load generators say of requests, against the wire: the eight of S8, and honest ones. */
#include "clues_feed.h"

#include "base/util.h"
#include "model/claims.h"

#define T(name) cmocka_unit_test_setup_teardown(test_claims__##name, feed_setup, feed_teardown)

static void claim(struct feed *f, uint32_t req, uint16_t metric, double ms, double began)
{
	struct tl_claim e = { .hdr = FEED_HDR(e, TL_CLAIM, 0, 0, 0, at(began)), .req = req, .metric = metric,
			      .value_ns = len(ms), .tool = "tool", .field = "field" };

	FEED(f, e);
}

/* A streamed answer of n tokens, even from `first` to `last`, which ends with it. */
static void answer(struct feed *f, uint32_t req, double first, double last, int n)
{
	struct tl_resp_begin b = { .hdr = FEED_HDR(b, TL_RESP_BEGIN, 0, FEED_API, FEED_FRONT, at(first)),
				   .req = req, .status = 200, .body = TL_BODY_SSE };
	struct tl_usage u = { .hdr = FEED_HDR(u, TL_USAGE, TL_USAGE_OUTPUT, FEED_API, FEED_FRONT, at(last)),
			      .req = req, .output = n };
	struct tl_req_end e = { .hdr = FEED_HDR(e, TL_REQ_END, 0, FEED_API, FEED_FRONT, at(last)), .req = req,
				.how = TL_END_COMPLETE, .status = 200 };

	FEED(f, b);
	for (int i = 0; i < n; i++)
		feed_chunk(f, req, first + (n > 1 ? (last - first) * i / (n - 1) : 0), TL_CHUNK_TEXT);
	FEED(f, u);
	FEED(f, e);
}

static void told(struct feed *f, uint32_t req, double t, uint32_t n, uint16_t by)
{
	struct tl_delivered e = { .hdr = FEED_HDR(e, TL_DELIVERED, 0, 900, 0, at(t)), .req = req,
				  .n_chunks = n, .by = by };

	FEED(f, e);
}

/* The only claim, judged. */
static struct claim_judged judged(struct feed *f)
{
	struct claim_judged *j, one;
	size_t n;

	assert_int_equal(model__finish(f->m), 0);
	model__view(f->m, &f->v);
	assert_int_equal(claims_judge(&f->v, &j, &n), 0);
	assert_int_equal(n, 1);
	one = j[0];
	free(j);
	return one;
}

/* One request, one claim, one verdict. */
static const struct row {
	const char *name;
	double first_byte, read;	/* of the request; the claim counts from 0 */
	double first, last;		/* tokens of its answer */
	int n;
	struct { double at; uint32_t n; uint16_t by; } told[2];	/* n 0: nobody says */
	uint16_t metric;
	double claim;
	uint8_t verdict;
	double truth, before, held, factor;	/* ms; of held within 1; 0: not looked at */
} rows[] = {
	{ "the last chunk is no first token", 7, 7.1, 107, 4513.9, 128, {}, TL_CLAIM_TTFT, 4515,
	  CLAIM_V1, 107, 7, 0, 42.2 },
	{ "nor is the first one behind the reasoning", 0, 0.1, 1175, 192851, 13228, {}, TL_CLAIM_TTFT, 183581,
	  CLAIM_V2, 1175, 0, 0, 0 },
	{ "true at the engine, held in the gateway", 0, 0.1, 200, 9000, 200,
	  { { 200.3, 1, TL_BY_ACK }, { 8000, 180, TL_BY_PROXY } }, TL_CLAIM_TTFT, 200,
	  CLAIM_V3, 200, 0, 7800, 0 },
	{ "the hop behind it says when its client had the token", 0, 0.1, 200, 9000, 200,
	  { { 8000, 180, TL_BY_PROXY } }, TL_CLAIM_TTFT, 8001, CLAIM_RIGHT, 0, 0, 0, 0 },
	{ "total over tokens is no TPOT", 0, 0.1, 1000, 1200, 11, {}, TL_CLAIM_TPOT, 109,
	  CLAIM_V5, 20, 0, 0, 5.45 },
	{ "the first token is no total", 0, 0.1, 108, 4514, 128, {}, TL_CLAIM_TOTAL, 108,
	  CLAIM_V6, 4514, 0, 0, 0 },
	{ "right, though nearly all of it passed before this host", 1141, 1141.1, 1181, 2500, 60, {},
	  TL_CLAIM_TTFT, 1181, CLAIM_RIGHT, 0, 1141, 0, 0 },
	{ "acknowledged at once: the client is late", 0, 0.1, 1331, 5000, 100,
	  { { 1331.3, 1, TL_BY_ACK } }, TL_CLAIM_TTFT, 134173, CLAIM_V11, 0, 0, 132842, 0 },
	{ "and nobody saw an acknowledgement: no verdict that rests on one", 0, 0.1, 1331, 5000, 100, {},
	  TL_CLAIM_TTFT, 134173, CLAIM_WRONG, 0, 0, 0, 0 },
	{ "headers", 0, 0.1, 100, 500, 10, {}, TL_CLAIM_HEADERS, 101, CLAIM_RIGHT, 0, 0, 0, 0 },
};

static struct claim_judged play(struct feed *f, const struct row *r)
{
	feed_request(f, 1, r->first_byte, r->read, 100);
	answer(f, 1, r->first, r->last, r->n);
	for (size_t i = 0; i < ARRAY_SIZE(r->told) && r->told[i].n; i++)
		told(f, 1, r->told[i].at, r->told[i].n, r->told[i].by);
	claim(f, 1, r->metric, r->claim, 0);
	return judged(f);
}

static void test_claims__rows(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *r = &rows[i];
		struct claim_judged j = play(*state, r);

		if (j.verdict != r->verdict)
			print_error("%s\n", r->name);
		assert_int_equal(j.verdict, r->verdict);
		if (r->truth)
			assert_int_equal(j.truth_ns, len(r->truth));
		if (r->before)
			assert_int_equal(j.before_host_ns, len(r->before));
		if (r->held)
			assert_in_range(j.held_ns, len(r->held - 1), len(r->held + 1));
		if (r->factor)
			assert_true(j.factor > r->factor - 0.2 && j.factor < r->factor + 0.2);
		feed_teardown(state);
		feed_setup(state);
	}
}

static struct claim_judged play_first_with(void **state, uint8_t verdict)
{
	size_t i = 0;

	feed_teardown(state);
	feed_setup(state);
	while (i + 1 < ARRAY_SIZE(rows) && rows[i].verdict != verdict)
		i++;
	return play(*state, &rows[i]);
}

static void test_claims__stamp_and_rates(void **state)
{
	struct claim_judged j = play_first_with(state, CLAIM_V1);

	assert_true(j.stamp == P_LAST_TOKEN_WIRE || j.stamp == P_DONE);
	j = play_first_with(state, CLAIM_V2);
	assert_true(j.implied_per_s > 1426 && j.implied_per_s < 1428);
	assert_true(j.seen_per_s > 68.9 && j.seen_per_s < 69.1);
	assert_in_range(j.n_skipped, 12500, 12600);
	j = play_first_with(state, CLAIM_WRONG);
	assert_int_equal(j.stamp, N_POINTS);
}

static void test_claims__headers(void **state)
{
	struct feed *f = *state;
	struct tl_resp_begin b = { .hdr = FEED_HDR(b, TL_RESP_BEGIN, 0, FEED_API, FEED_FRONT, at(9)), .req = 1,
				   .status = 200, .body = TL_BODY_SSE };
	struct claim_judged j;

	feed_request(f, 1, 0, 0.1, 100);
	FEED(f, b);
	answer(f, 1, 107, 1500, 60);
	claim(f, 1, TL_CLAIM_TTFT, 9, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_V4);
	assert_int_equal(j.stamp, P_HEADERS);
	assert_int_equal(j.truth_ns, len(107));
}

/* 80 tokens behind the first in 30 chunks: 24 per chunk, 9 per token. */
static void test_claims__per_chunk(void **state)
{
	struct feed *f = *state;
	struct tl_usage u = { .hdr = FEED_HDR(u, TL_USAGE, TL_USAGE_OUTPUT, FEED_API, FEED_FRONT, at(820)),
			      .req = 1, .output = 81 };
	struct tl_req_end e = { .hdr = FEED_HDR(e, TL_REQ_END, 0, FEED_API, FEED_FRONT, at(820)), .req = 1,
				.how = TL_END_COMPLETE, .status = 200 };
	struct claim_judged j;

	feed_request(f, 1, 0, 0.1, 100);
	for (int i = 0; i <= 30; i++)
		feed_chunk(f, 1, 100 + 24 * i, TL_CHUNK_TEXT);
	FEED(f, u);
	FEED(f, e);
	claim(f, 1, TL_CLAIM_ITL, 24, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_V7);
	assert_int_equal(j.truth_ns, len(9));
}

static void test_claims__impossible(void **state)
{
	struct feed *f = *state;
	struct tl_seq_begin s = { .hdr = FEED_HDR(s, TL_SEQ_BEGIN, 0, FEED_CORE, FEED_LOOP, at(5)), .slot = 0,
				  .kept = -1 };

	feed_request(f, 1, 0, 0.1, 100);
	FEED(f, s);
	feed_step(f, 6, 100, 0, 64);
	feed_chunk(f, 1, 101, TL_CHUNK_TEXT);
	for (int i = 1; i < 12; i++) {
		feed_step(f, 90 + 10 * i, 100 + 10 * i, 1, 0);
		feed_chunk(f, 1, 101 + 10 * i, TL_CHUNK_TEXT);
	}
	struct tl_req_end e = { .hdr = FEED_HDR(e, TL_REQ_END, 0, FEED_API, FEED_FRONT, at(212)), .req = 1,
				.how = TL_END_COMPLETE, .status = 200 };
	FEED(f, e);
	claim(f, 1, TL_CLAIM_TTFT, 0.07, 0);
	assert_int_equal(judged(f).verdict, CLAIM_V8);
}

/* Twenty honest requests, three claims each, with what logs do to numbers: no false alarm. */
static void test_claims__honest(void **state)
{
	struct feed *f = *state;
	struct claim_judged *j;
	size_t n;

	for (int i = 0; i < 20; i++) {
		double t0 = 10000 * i, first = 80 + 7 * i, period = 15 + i % 5;
		int tokens = 40 + i;
		double last = first + period * (tokens - 1);

		feed_request(f, i + 1, t0, t0 + 0.1, 100);
		answer(f, i + 1, t0 + first, t0 + last, tokens);
		claim(f, i + 1, TL_CLAIM_TTFT, first + 0.8, t0);
		claim(f, i + 1, TL_CLAIM_TPOT, period, t0);
		claim(f, i + 1, TL_CLAIM_TOTAL, last + 1.2, t0);
	}
	assert_int_equal(model__finish(f->m), 0);
	model__view(f->m, &f->v);
	assert_int_equal(claims_judge(&f->v, &j, &n), 0);
	assert_int_equal(n, 60);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(j[i].verdict, CLAIM_RIGHT);
	free(j);
}

static void test_claims__not_seen(void **state)
{
	struct feed *f = *state;

	feed_request(f, 1, 0, 0.1, 100);
	claim(f, 1, TL_CLAIM_TTFT, 101, 0);
	claim(f, 77, TL_CLAIM_TTFT, 101, 0);	/* of no request: not judged */
	assert_int_equal(judged(f).verdict, CLAIM_NO_TRUTH);
}

static void test_claims__names(void **state)
{
	(void)state;
	assert_string_equal(claim_verdict_name(CLAIM_RIGHT), "right");
	assert_string_equal(claim_verdict_name(CLAIM_V11), "V11");
	assert_string_equal(claim_verdict_name(CLAIM_WRONG), "wrong");
	assert_string_equal(claim_verdict_name(CLAIM_NO_TRUTH), "unknown");
	assert_string_equal(claim_verdict_name(9), "wrong");
}

static void test_claims__survives_oom(void **state)
{
	struct feed *f = *state;
	struct claim_judged *j = NULL;
	size_t n = 0;
	int err = -1;

	feed_request(f, 1, 0, 0.1, 100);
	claim(f, 1, TL_CLAIM_TTFT, 101, 0);
	assert_int_equal(model__finish(f->m), 0);
	model__view(f->m, &f->v);
	OOM_LOOP(err = claims_judge(&f->v, &j, &n));
	assert_int_equal(err, 0);
	assert_int_equal(n, 1);
	free(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(rows), T(stamp_and_rates), T(headers), T(per_chunk), T(impossible), T(honest), T(not_seen),
		T(names), T(survives_oom),
	};

	return cmocka_run_group_tests_name("claims", tests, NULL, NULL);
}
