/* SPDX-License-Identifier: Apache-2.0 */
/* What a scheduler says of itself, delivery token by token, warm prompts apart from cold ones. */
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

static struct scheduler_summary of(struct fake *f, uint32_t engine)
{
	struct scheduler_summary *all, s;

	assert_int_equal(summarise_schedulers(&f->v, &all), 0);
	s = all[engine];
	free(all);
	return s;
}

/* ---- levels and counts ---- */

static void test_scheduler__levels_are_weighted_by_time(void **state)
{
	struct fake *f = *state;
	struct scheduler_summary s;

	fake_step(f, 0, 10);	/* 10 ms at 90 %, then 30 ms at 20 % in more but shorter steps */
	fake_stats(f, 90, 8, 7);
	for (int i = 0; i < 6; i++) {
		fake_step(f, 10 + 5 * i, 15 + 5 * i);
		fake_stats(f, 20, 2, 0);
	}
	fake_step(f, 40, 140);	/* says nothing */
	s = of(f, 0);
	assert_true(s.kv_ppm.known);
	assert_int_equal(s.kv_ppm.p50, 200000);
	assert_int_equal(s.kv_ppm.max, 900000);
	assert_int_equal(s.running.p50, 2);
	assert_int_equal(s.running.max, 8);
	assert_int_equal(s.waiting.p50, 0);
	assert_int_equal(s.waiting.max, 7);
	assert_int_equal(s.preemptions, 0);
	assert_int_equal(s.prefix_queries, -1);
	assert_int_equal(s.drafted, -1);
	f->steps[0].t1_ns = fake_ns(40.5);	/* now most of the time is at 90 % */
	assert_int_equal(of(f, 0).kv_ppm.p50, 900000);
}

static void test_scheduler__steps_that_took_no_time_count(void **state)
{
	struct fake *f = *state;

	fake_step(f, 5, 5);
	fake_stats(f, 33, 3, 1);
	assert_int_equal(of(f, 0).running.p50, 3);
}

static void test_scheduler__counters_add_up(void **state)
{
	struct fake *f = *state;
	struct scheduler_summary s;

	for (int i = 0; i < 3; i++) {
		fake_step(f, 10 * i, 10 * i + 10);
		fake_stats_of(f, i)->known = TL_STATS_PREFIX | (i ? TL_STATS_SPEC : 0);
		fake_stats_of(f, i)->prefix_queries = 100;
		fake_stats_of(f, i)->prefix_hits = 40;
		fake_stats_of(f, i)->drafted = 4;
		fake_stats_of(f, i)->accepted = 3;
		fake_stats_of(f, i)->preempted = 1;	/* the adapter's conclusion: its sequences say it, or not */
	}
	fake_preempt(f, fake_seq(f, NULL, 0), 5, 25, 9);
	s = of(f, 0);
	assert_int_equal(s.prefix_queries, 300);
	assert_int_equal(s.prefix_hits, 120);
	assert_int_equal(s.drafted, 8);
	assert_int_equal(s.accepted, 6);
	assert_int_equal(s.preemptions, 1);
	assert_false(s.kv_ppm.known);
}

static void test_scheduler__each_engine_for_itself(void **state)
{
	struct fake *f = *state;

	f->v.n_engines = 2;
	fake_step(f, 0, 10);
	fake_stats(f, 90, 8, 7);
	fake_step(f, 0, 10);
	f->steps[1].engine = 1;
	assert_int_equal(of(f, 0).preemptions, 0);
	assert_int_equal(of(f, 1).preemptions, -1);
	assert_false(of(f, 1).running.known);
}

static void test_scheduler__silent_engine_has_inferred_preemptions_only(void **state)
{
	struct fake *f = *state;
	uint32_t q = fake_seq(f, NULL, 0);

	fake_step(f, 0, 10);
	fake_member(f, q, 'P', 5);
	assert_int_equal(of(f, 0).preemptions, -1);	/* not 0: nobody said so */
	fake_preempt(f, q, 20, 30, 5);
	fake_preempt(f, q, 40, 0, 6);
	assert_int_equal(of(f, 0).preemptions, 2);
	f->seqs[q].preemptions[0].at_ns = f->v.t0_ns - 1;	/* before the recording */
	assert_int_equal(of(f, 0).preemptions, 1);
}

static void test_summary__levels_over_time(void **state)
{
	struct fake *f = *state;
	struct summary s;

	fake_step(f, 0, 300);
	fake_stats(f, 50, 4, 2);
	fake_step(f, 300, 400);
	fake_end(f, 600);
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_float_equal(s.bins[10].kv_pct, 50, 1e-6);
	assert_float_equal(s.bins[10].running, 4, 1e-6);
	assert_float_equal(s.bins[10].waiting, 2, 1e-6);
	assert_true(s.bins[35].kv_pct < 0);	/* a step that said nothing */
	assert_true(s.bins[50].waiting < 0);	/* no step */
}

/* ---- warm and cold ---- */

static void test_summary__warm_and_cold_are_kept_apart(void **state)
{
	static const struct { uint32_t cached; uint8_t prov; double ttft; } requests[] = {
		{ 0, PROV_OBSERVED, 100 }, { 6, PROV_REPORTED, 200 }, { 512, PROV_REPORTED, 10 },
		{ 99, PROV_NONE, 50 }, { 511, PROV_REPORTED, 150 },
	};
	struct fake *f = *state;
	struct summary s;

	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		struct rec_request *r = fake_request(f, 1000.0 * (double)i);

		fake_chunk(r, 1000.0 * (double)i + requests[i].ttft, TL_CHUNK_TEXT);
		r->prompt = fake_count(1024);
		r->cached = (struct rec_count){ requests[i].cached, requests[i].prov };
	}
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(s.by_prefix[PREFIX_COLD].n_requests, 3);
	assert_int_equal(s.by_prefix[PREFIX_COLD].ttft.p50, MS(150));
	assert_int_equal(s.by_prefix[PREFIX_COLD].ttft.max, MS(200));
	assert_int_equal(s.by_prefix[PREFIX_WARM].n_requests, 1);
	assert_int_equal(s.by_prefix[PREFIX_WARM].ttft.max, MS(10));
	assert_int_equal(s.by_prefix[PREFIX_UNKNOWN].n_requests, 1);
}

/* ---- delivery ---- */

/* Steps of 10 ms from `at` on, each with one output; `drafts`: that many. */
static struct rec_request *answer(struct fake *f, double at, int steps, uint32_t drafts)
{
	struct rec_request *r = fake_request(f, at);
	uint32_t q = fake_seq(f, r, 0);

	for (int i = 0; i < steps; i++) {
		fake_step(f, at + 10 * i, at + 10 * i + 10);
		fake_member(f, q, i ? 'd' : 'P', i ? drafts : 5);
	}
	r->finish = TL_FINISH_LENGTH;
	return r;
}

/* Chunks at these ms; 0 ends. The last one also says that it is the last, unless `apart`. */
static void chunks(struct rec_request *r, const double *ms, bool apart)
{
	for (; *ms > 0; ms++)
		fake_chunk(r, *ms, TL_CHUNK_TEXT | (ms[1] > 0 || apart ? 0 : TL_CHUNK_FINISH));
}

static size_t delivery(struct fake *f, const struct rec_request *r, uint64_t *ret)
{
	bool exact;
	size_t n = request_delivery(&f->v, r, ret, &exact);

	assert_true(n <= request_delivery_max(&f->v, r));
	return n;
}

static bool is_exact(struct fake *f, const struct rec_request *r)
{
	uint64_t ns[64];
	bool exact;

	assert_true(request_delivery(&f->v, r, ns, &exact) > 0);
	return exact;
}

static void test_delivery__as_many_chunks_as_outputs(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 4, 1);
	uint64_t ns[8];

	chunks(r, (double[]){ 11, 35, 36, 42, 0 }, false);	/* the second waited for 15 ms */
	assert_int_equal(delivery(f, r, ns), 4);
	assert_int_equal(ns[0], MS(1));
	assert_int_equal(ns[1], MS(15));
	assert_int_equal(ns[2], MS(6));
	assert_int_equal(ns[3], MS(2));
	assert_true(is_exact(f, r));
}

/* An output that was made at no time, and all before it, belong to no chunk: then nothing is known of any. */
static void test_delivery__of_a_step_that_ended_at_no_time(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 4, 1);
	uint64_t ns[8];

	chunks(r, (double[]){ 11, 35, 36, 42, 0 }, false);
	f->steps[1].t1_ns = 0;
	assert_int_equal(delivery(f, r, ns), 0);
}

static void test_delivery__last_output_without_text(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 4, 1);
	uint64_t ns[8];

	/* The finish chunk has no text: three chunks, four outputs, and a late one is still told. */
	chunks(r, (double[]){ 11, 35, 36, 0 }, true);
	assert_int_equal(delivery(f, r, ns), 3);
	assert_int_equal(ns[1], MS(15));
}

static void test_delivery__merged_outputs(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 6, 1);
	uint64_t ns[8];

	/* Ends at 10 .. 60; those of 20 and 30 are in one chunk. */
	chunks(r, (double[]){ 11, 31, 41, 51, 61, 0 }, false);
	assert_int_equal(delivery(f, r, ns), 6);
	assert_int_equal(ns[0], MS(1));
	assert_int_equal(ns[1], MS(11));
	assert_int_equal(ns[2], MS(1));
	assert_int_equal(ns[5], MS(1));
	assert_false(is_exact(f, r));
}

static void test_delivery__no_chunk_is_left_empty(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 5, 1);
	uint64_t ns[8];

	/* Ends at 10 .. 50. The chunk at 30.2 was made before the third output reached the front end: by
	 * nearest time that would be in it, and nothing in the next. */
	chunks(r, (double[]){ 11, 30.2, 39, 52, 0 }, false);
	assert_int_equal(delivery(f, r, ns), 5);
	assert_int_equal(ns[1], MS(10.2));
	assert_int_equal(ns[2], MS(9));
	assert_int_equal(ns[3], MS(12));	/* the two last are in one */
	assert_int_equal(ns[4], MS(2));
}

static void test_delivery__drafts_with_a_chunk_each(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 2, 3);
	uint64_t ns[8];

	chunks(r, (double[]){ 11, 21, 22, 23, 0 }, false);
	assert_int_equal(delivery(f, r, ns), 4);
	assert_int_equal(ns[0], MS(1));
	assert_int_equal(ns[3], MS(3));
}

static void test_delivery__drafts_in_one_chunk(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 3, 3);
	uint64_t ns[8];

	chunks(r, (double[]){ 11, 22, 33, 0 }, false);
	assert_int_equal(delivery(f, r, ns), 3);
	assert_int_equal(ns[2], MS(3));
}

static void test_delivery__chunks_that_are_no_token_do_not_count(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 2, 1);
	uint64_t ns[8];

	fake_chunk(r, 1, TL_CHUNK_ROLE);
	fake_chunk(r, 11, TL_CHUNK_TEXT);
	fake_chunk(r, 12, TL_CHUNK_OTHER);
	fake_chunk(r, 23, TL_CHUNK_TEXT);
	assert_int_equal(delivery(f, r, ns), 2);
	assert_int_equal(ns[1], MS(3));
}

static void test_delivery__what_an_abort_left_behind_is_in_no_chunk(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 5, 1);
	uint64_t ns[8];

	r->state = REQ_ABORTED;
	r->finish = TL_FINISH_UNKNOWN;
	chunks(r, (double[]){ 11, 22, 33, 0 }, true);
	assert_int_equal(delivery(f, r, ns), 3);
	assert_int_equal(ns[2], MS(3));
}

static void test_delivery__more_chunks_than_tokens_match_nothing(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 2, 1);
	uint64_t ns[8];

	chunks(r, (double[]){ 11, 12, 21, 0 }, false);
	assert_int_equal(delivery(f, r, ns), 0);
}

static void test_delivery__where_ordinals_are_not_known(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 2, 1);
	uint64_t ns[8];

	chunks(r, (double[]){ 11, 21, 0 }, false);
	f->lost[0] = (struct rec_lost){ fake_ns(5), fake_ns(6), 1, TL_LOST_RING, 0 };
	f->v.n_lost = 1;
	assert_int_equal(delivery(f, r, ns), 0);
	f->lost[0].where = TL_LOST_PARSER;
	assert_int_equal(delivery(f, r, ns), 2);
	r->joined_late = true;
	assert_int_equal(delivery(f, r, ns), 0);
	r->joined_late = false;
	r->n = 2;
	assert_int_equal(delivery(f, r, ns), 0);
	r->n = 1;
	r->body = TL_BODY_JSON;
	assert_int_equal(delivery(f, r, ns), 0);
}

static void test_delivery__a_chunk_before_its_output_matches_nothing(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 3, 1);
	uint64_t ns[8];

	chunks(r, (double[]){ 5, 21, 31, 0 }, false);	/* joined to the wrong sequence */
	assert_int_equal(delivery(f, r, ns), 0);
	r = answer(f, 100, 3, 1);
	chunks(r, (double[]){ 105, 0 }, false);
	assert_int_equal(delivery(f, r, ns), 0);
}

static void test_summary__percentiles_of_delivery_and_front_end(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = answer(f, 0, 4, 1);
	struct summary s;

	fake_point(r, P_REQ_LAST_BYTE, 0.5);
	fake_point(r, P_SUBMIT, 3);
	chunks(r, (double[]){ 11, 35, 36, 42, 0 }, false);
	r = answer(f, 100, 1, 1);
	chunks(r, (double[]){ 190, 0 }, false);
	r->state = REQ_ERROR;
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(s.all.delivery.n, 4);
	assert_int_equal(s.all.delivery.p50, MS(2));
	assert_int_equal(s.all.delivery.max, MS(15));
	assert_int_equal(s.all.frontend.n, 1);
	assert_int_equal(s.all.frontend.max, MS(2.5));
}

static void test_scheduler__survives_no_memory(void **state)
{
	struct fake *f = *state;
	struct scheduler_summary *s;
	struct summary sum;
	int err = 0;

	chunks(answer(f, 0, 4, 1), (double[]){ 11, 35, 36, 42, 0 }, false);
	fake_stats(f, 20, 2, 0);
	OOM_LOOP({
		err = summarise_schedulers(&f->v, &s);
		if (err)
			assert_int_equal(err, -ENOMEM);
		else
			free(s);
	})
	assert_int_equal(err, 0);
	OOM_LOOP(err = summarise(&f->v, &sum); if (err) assert_int_equal(err, -ENOMEM))
	assert_int_equal(err, 0);
	assert_int_equal(sum.all.delivery.n, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A prompt of which a part is in no step: where the members are guessed, that is said, and not that all was seen. */
static void test_summary__prompts_that_are_in_no_step(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t a = fake_seq(f, r, 0);
	struct summary s;

	r->prompt = fake_count(162);
	f->seqs[a].kept = -1;
	fake_step(f, 10, 20);
	fake_member(f, a, 'P', 46);
	fake_done(f, r, 30);
	assert_int_equal(request_prompt_unseen(&f->v, r), 0);	/* it was seen: the rest had been cached */
	f->seqs[a].visits[0].guess = 1;
	assert_int_equal(request_prompt_unseen(&f->v, r), 116);
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(s.prompt_unseen, 116);
	r->cached = fake_count(112);
	assert_int_equal(request_prompt_unseen(&f->v, r), 4);
	f->seqs[a].joined_late = true;
	assert_int_equal(request_prompt_unseen(&f->v, r), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_scheduler__levels_are_weighted_by_time),
		TEST(test_scheduler__steps_that_took_no_time_count),
		TEST(test_scheduler__counters_add_up),
		TEST(test_scheduler__each_engine_for_itself),
		TEST(test_scheduler__silent_engine_has_inferred_preemptions_only),
		TEST(test_summary__levels_over_time),
		TEST(test_summary__warm_and_cold_are_kept_apart), TEST(test_summary__prompts_that_are_in_no_step),
		TEST(test_delivery__as_many_chunks_as_outputs),
		TEST(test_delivery__of_a_step_that_ended_at_no_time),
		TEST(test_delivery__last_output_without_text),
		TEST(test_delivery__merged_outputs),
		TEST(test_delivery__no_chunk_is_left_empty),
		TEST(test_delivery__drafts_with_a_chunk_each),
		TEST(test_delivery__drafts_in_one_chunk),
		TEST(test_delivery__chunks_that_are_no_token_do_not_count),
		TEST(test_delivery__what_an_abort_left_behind_is_in_no_chunk),
		TEST(test_delivery__more_chunks_than_tokens_match_nothing),
		TEST(test_delivery__where_ordinals_are_not_known),
		TEST(test_delivery__a_chunk_before_its_output_matches_nothing),
		TEST(test_summary__percentiles_of_delivery_and_front_end),
		TEST(test_scheduler__survives_no_memory),
	};

	return cmocka_run_group_tests_name("scheduler_summary", tests, NULL, NULL);
}
