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

static void test_claims__last_chunk(void **state)
{
	struct feed *f = *state;
	struct claim_judged j;

	feed_request(f, 1, 7, 7.1, 100);
	answer(f, 1, 107, 4513.9, 128);
	claim(f, 1, TL_CLAIM_TTFT, 4515, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_V1);
	assert_int_equal(j.truth_ns, len(107));
	assert_int_equal(j.before_host_ns, len(7));
	assert_true(j.factor > 42 && j.factor < 42.3);
	assert_true(j.stamp == P_LAST_TOKEN_WIRE || j.stamp == P_DONE);
}

static void test_claims__reasoning_skipped(void **state)
{
	struct feed *f = *state;
	struct claim_judged j;

	feed_request(f, 1, 0, 0.1, 100);
	answer(f, 1, 1175, 192851, 13228);
	claim(f, 1, TL_CLAIM_TTFT, 183581, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_V2);
	assert_int_equal(j.truth_ns, len(1175));
	assert_true(j.implied_per_s > 1426 && j.implied_per_s < 1428);
	assert_true(j.seen_per_s > 68.9 && j.seen_per_s < 69.1);
	assert_in_range(j.n_skipped, 12500, 12600);
}

static void test_claims__held_in_gateway(void **state)
{
	struct feed *f = *state;
	struct claim_judged j;

	feed_request(f, 1, 0, 0.1, 100);
	answer(f, 1, 200, 9000, 200);
	told(f, 1, 200.3, 1, TL_BY_ACK);
	told(f, 1, 8000, 180, TL_BY_PROXY);
	claim(f, 1, TL_CLAIM_TTFT, 200, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_V3);
	assert_int_equal(j.truth_ns, len(200));
	assert_int_equal(j.held_ns, len(7800));
}

/* The hop behind it says when its client had the token. */
static void test_claims__true_at_the_hop(void **state)
{
	struct feed *f = *state;

	feed_request(f, 1, 0, 0.1, 100);
	answer(f, 1, 200, 9000, 200);
	told(f, 1, 8000, 180, TL_BY_PROXY);
	claim(f, 1, TL_CLAIM_TTFT, 8001, 0);
	assert_int_equal(judged(f).verdict, CLAIM_RIGHT);
}

static void test_claims__total_over_tokens(void **state)
{
	struct feed *f = *state;
	struct claim_judged j;

	feed_request(f, 1, 0, 0.1, 100);
	answer(f, 1, 1000, 1200, 11);
	claim(f, 1, TL_CLAIM_TPOT, 109, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_V5);
	assert_int_equal(j.truth_ns, len(20));
	assert_true(j.factor > 5.44 && j.factor < 5.46);
}

static void test_claims__first_token_is_no_total(void **state)
{
	struct feed *f = *state;
	struct claim_judged j;

	feed_request(f, 1, 0, 0.1, 100);
	answer(f, 1, 108, 4514, 128);
	claim(f, 1, TL_CLAIM_TOTAL, 108, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_V6);
	assert_int_equal(j.truth_ns, len(4514));
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

/* Right, though nearly all of it passed before this host. */
static void test_claims__before_host(void **state)
{
	struct feed *f = *state;
	struct claim_judged j;

	feed_request(f, 1, 1141, 1141.1, 100);
	answer(f, 1, 1181, 2500, 60);
	claim(f, 1, TL_CLAIM_TTFT, 1181, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_RIGHT);
	assert_int_equal(j.before_host_ns, len(1141));
}

static void test_claims__client_is_late(void **state)
{
	struct feed *f = *state;
	struct claim_judged j;

	feed_request(f, 1, 0, 0.1, 100);
	answer(f, 1, 1331, 5000, 100);
	told(f, 1, 1331.3, 1, TL_BY_ACK);
	claim(f, 1, TL_CLAIM_TTFT, 134173, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_V11);
	assert_in_range(j.held_ns, len(132841), len(132842));
}

/* The same claim, and nobody saw an acknowledgement: no verdict that rests on one. */
static void test_claims__client_or_network(void **state)
{
	struct feed *f = *state;
	struct claim_judged j;

	feed_request(f, 1, 0, 0.1, 100);
	answer(f, 1, 1331, 5000, 100);
	claim(f, 1, TL_CLAIM_TTFT, 134173, 0);
	j = judged(f);
	assert_int_equal(j.verdict, CLAIM_WRONG);
	assert_int_equal(j.stamp, N_POINTS);
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

static void test_claims__other_metrics(void **state)
{
	struct feed *f = *state;

	feed_request(f, 1, 0, 0.1, 100);
	answer(f, 1, 100, 500, 10);
	claim(f, 1, TL_CLAIM_HEADERS, 101, 0);
	assert_int_equal(judged(f).verdict, CLAIM_RIGHT);
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
		T(last_chunk), T(reasoning_skipped), T(held_in_gateway), T(true_at_the_hop),
		T(total_over_tokens), T(first_token_is_no_total), T(headers), T(before_host),
		T(client_is_late), T(client_or_network), T(per_chunk), T(impossible), T(honest),
		T(other_metrics), T(not_seen), T(names), T(survives_oom),
	};

	return cmocka_run_group_tests_name("claims", tests, NULL, NULL);
}
