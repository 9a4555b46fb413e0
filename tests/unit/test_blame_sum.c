/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of blame: by mechanism, pair, culprit and victim; the longest gaps; what would be without. */
#include "unit.h"
#include "fake_blame.h"
#include "model/blame_sum.h"

#include <errno.h>

#define MS(x) ((uint64_t)((x) * 1e6 + 0.5))

static struct blame_sum *sum_up(struct fake *f)
{
	struct blame_sum *s = NULL;

	assert_int_equal(blame_sum__new(&fake_blame, &f->v, &s), 0);
	return s;
}

/* A streamed request of that many tokens, the first one at first_ms. */
static uint32_t streamed(struct fake *f, uint32_t n_tokens, double first_ms, double last_ms)
{
	struct rec_request *r = fake_request(f, first_ms - 10);

	r->output = fake_count(n_tokens);
	fake_chunk(r, first_ms, TL_CHUNK_TEXT);
	fake_chunk(r, last_ms, TL_CHUNK_TEXT);
	return r->req - 1;
}

/* Long prefill in a mixed batch: C (index 2) keeps A and B waiting twice, 160 ms each. */
static void long_prefill(struct fake *f)
{
	uint32_t c;

	for (uint32_t r = 0; r < 2; r++) {
		streamed(f, 101, 20, 20 + 98 * 20 + 2 * 180);
		for (uint32_t t = 1; t <= 98; t++)
			fake_part(fake_gap(r, t, 20 * t, 20), MECH_OWN_DECODE, 20);
		for (uint32_t t = 99; t <= 100; t++) {
			struct gap *g = fake_gap(r, t, 1980 + (t - 99) * 180, 20);

			fake_part_by(g, MECH_PREFILL, 160, WHO_REQUEST, 2, "");
			fake_part(g, MECH_OWN_DECODE, 20);
		}
	}
	c = streamed(f, 1, 1380, 1380);
	fake_part(fake_gap(c, 0, 1005, 360), MECH_OWN_PREFILL, 360);
	fake_part_by(&fake_blame.gaps[fake_blame.n - 1], MECH_STEP_WAIT, 15, WHO_REQUEST, 0, "");
}

static void test_blame_sum__adds_up_by_mechanism(void **state)
{
	struct blame_sum *s;

	long_prefill(*state);
	s = sum_up(*state);
	assert_int_equal(s->by_mechanism[MECH_PREFILL].ns, MS(640));
	assert_int_equal(s->by_mechanism[MECH_PREFILL].ttft_ns, 0);
	assert_int_equal(s->by_mechanism[MECH_PREFILL].n_gaps, 4);
	assert_int_equal(s->by_mechanism[MECH_PREFILL].n_victims, 2);
	assert_int_equal(s->by_mechanism[MECH_STEP_WAIT].ttft_ns, MS(15));
	assert_int_equal(s->by_mechanism[MECH_STEP_WAIT].n_gaps, 0);
	assert_int_equal(s->by_mechanism[MECH_STEP_WAIT].n_victims, 1);
	assert_int_equal(s->by_mechanism[MECH_OWN_DECODE].ns, MS(4000));
	assert_int_equal(s->gaps_ns, MS(4640));
	assert_int_equal(s->ttfts_ns, MS(375));
	assert_int_equal(s->excess_ns, MS(640));
	assert_int_equal(s->ttft_excess_ns, MS(15));
	assert_int_equal(s->prov_ns[PROV_OBSERVED], MS(655));
	assert_int_equal(s->n_gaps, 200);
	assert_int_equal(s->n_odd_gaps, 4);
	assert_int_equal(s->n_no_baseline, 0);
	assert_int_equal(s->n_ttfts, 1);
	assert_int_equal(s->n_learnt, 100);
	blame_sum__free(s);
}

static void test_blame_sum__pairs_worst_first(void **state)
{
	struct blame_sum *s;

	long_prefill(*state);
	s = sum_up(*state);
	assert_int_equal(s->n_pairs, 3);
	assert_int_equal(s->pairs[0].victim, 0); /* equal ones by number */
	assert_int_equal(s->pairs[1].victim, 1);
	assert_int_equal(s->pairs[0].culprit.id, 2);
	assert_int_equal(s->pairs[0].ns, MS(320));
	assert_int_equal(s->pairs[0].n_gaps, 2);
	assert_int_equal(s->pairs[0].max_ns, MS(160));
	assert_int_equal(s->pairs[0].max_at_ns, fake_ns(1980));
	assert_int_equal(s->pairs[2].mechanism, MECH_STEP_WAIT);
	assert_int_equal(s->pairs[2].ttft_ns, MS(15));
	assert_int_equal(s->pairs[2].n_gaps, 0);
	blame_sum__free(s);
}

/* Two parts of one pair in one gap are one gap; another root or name is another pair. */
static void test_blame_sum__tells_pairs_apart(void **state)
{
	struct blame_sum *s;
	struct gap *g;

	streamed(*state, 3, 20, 60);
	g = fake_gap(0, 1, 20, 5);
	fake_part_by(g, MECH_RUN_QUEUE, 10, WHO_PROCESS, 7, "ffmpeg");
	fake_part_by(g, MECH_RUN_QUEUE, 3, WHO_PROCESS, 7, "ffmpeg")->prov = PROV_INFERRED;
	fake_part_by(g, MECH_RUN_QUEUE, 2, WHO_PROCESS, 7, "x264");
	fake_part_by(g, MECH_RECOMPUTE, 1, WHO_REQUEST, 7, "")->root.type = WHO_REQUEST;
	fake_part_by(g, MECH_RECOMPUTE, 0.5, WHO_REQUEST, 7, "");
	s = sum_up(*state);
	assert_int_equal(s->n_pairs, 4);
	assert_int_equal(s->pairs[0].ns, MS(13));
	assert_int_equal(s->pairs[0].n_gaps, 1);
	assert_int_equal(s->pairs[0].max_ns, MS(13));
	assert_int_equal(s->pairs[0].prov, PROV_INFERRED);
	assert_int_equal(s->pairs[1].ns, MS(2));
	assert_int_equal(s->pairs[2].root.type, WHO_REQUEST);
	assert_int_equal(s->by_mechanism[MECH_RUN_QUEUE].n_gaps, 1);
	blame_sum__free(s);
}

static void test_blame_sum__what_if(void **state)
{
	struct blame_sum *s;

	long_prefill(*state);
	s = sum_up(*state);
	assert_int_equal(s->n_what_if, 3);
	assert_int_equal(s->what_if[0].without, N_MECHANISMS);
	assert_int_equal(s->what_if[0].tpot.n, 2);
	assert_int_equal(s->what_if[0].tpot.p99, MS(23.2));
	assert_int_equal(s->what_if[0].ttft.p99, MS(375));
	assert_int_equal(s->what_if[1].without, MECH_PREFILL);
	assert_int_equal(s->what_if[1].tpot.p50, MS(20));
	assert_int_equal(s->what_if[1].tpot.p99, MS(20));
	assert_int_equal(s->what_if[1].ttft.p99, MS(375));
	assert_int_equal(s->what_if[2].without, MECH_STEP_WAIT);
	assert_int_equal(s->what_if[2].tpot.p99, MS(23.2));
	assert_int_equal(s->what_if[2].ttft.p99, MS(360));
	blame_sum__free(s);
}

/* Times of a damaged recording: nothing overflows in a way that the language does not define. */
static void test_blame_sum__gaps_of_centuries(void **state)
{
	struct blame_sum *s;

	streamed(*state, 4, 20, 60);
	for (uint32_t t = 1; t <= 3; t++) {
		struct gap *g = fake_gap(0, t, 20, 20);

		fake_part(g, MECH_UNEXPLAINED, 1)->ns = INT64_MAX - t;
		g->t1_ns = g->t0_ns + INT64_MAX - t;
		g->behind_ns[MECH_NAGLE] = t < 3 ? UINT64_MAX : 1ull << 63;
	}
	s = sum_up(*state);
	assert_int_equal(s->n_gaps, 3);
	blame_sum__free(s);
}

/* Where the client says when its tokens came, TPOT is the client's. */
static void test_blame_sum__what_if_at_the_client(void **state)
{
	struct blame_sum *s;

	streamed(*state, 3, 20, 60);
	for (uint32_t t = 1; t <= 2; t++) {
		struct gap *g = fake_gap(0, t, 100 * t, 20);

		g->side = GAP_CLIENT;
		fake_part(g, MECH_OWN_DECODE, 20);
		fake_part_by(g, MECH_SLOW_CLIENT, 80, WHO_CLIENT, 5000, "");
	}
	s = sum_up(*state);
	assert_int_equal(s->what_if[0].tpot.p50, MS(100));
	assert_int_equal(s->what_if[1].without, MECH_SLOW_CLIENT);
	assert_int_equal(s->what_if[1].tpot.p50, MS(20));
	blame_sum__free(s);
}

/* Four tokens, 20 ms each, come in two blocks of two: what held the first one made the time to the last shorter. */
static void test_blame_sum__what_if_chunks_came_as_they_were_written(void **state)
{
	struct rec_request *r;
	struct blame_sum *s;
	struct gap *g;

	streamed(*state, 4, 20, 80);
	r = (struct rec_request *)((struct fake *)*state)->v.requests;
	r->at_ns[P_LAST_TOKEN_ENGINE] = fake_ns(80);
	g = fake_gap(0, 2, 40, 20);
	g->side = GAP_CLIENT;
	fake_part(g, MECH_OWN_DECODE, 20);
	fake_part_by(g, MECH_PROXY_BUFFER, 20, WHO_PROCESS, 5000, "nginx");
	g->behind_ns[MECH_PROXY_BUFFER] = MS(20);
	g = fake_gap(0, 0, 10, 10);
	fake_part(g, MECH_OWN_PREFILL, 10);
	fake_part_by(g, MECH_PROXY_BUFFER, 20, WHO_PROCESS, 5000, "nginx");
	g->behind_ns[MECH_PROXY_BUFFER] = MS(20);
	s = sum_up(*state);
	assert_int_equal(s->what_if[0].tpot.p50, MS(40) / 3);
	assert_int_equal(s->what_if[0].ttft.p50, MS(30));
	assert_int_equal(s->what_if[1].without, MECH_PROXY_BUFFER);
	assert_int_equal(s->what_if[1].tpot.p50, MS(20));
	assert_int_equal(s->what_if[1].ttft.p50, MS(10));
	blame_sum__free(s);
}

/* What holds the last token until its end counts. */
static void test_blame_sum__what_if_the_last_token_is_held(void **state)
{
	struct rec_request *r;
	struct blame_sum *s;
	struct gap *g;

	streamed(*state, 2, 20, 40);
	r = (struct rec_request *)((struct fake *)*state)->v.requests;
	r->at_ns[P_LAST_TOKEN_ENGINE] = fake_ns(40);
	g = fake_gap(0, 1, 20, 20);
	g->side = GAP_CLIENT;
	fake_part(g, MECH_OWN_DECODE, 20);
	fake_part_by(g, MECH_SLOW_CLIENT, 80, WHO_CLIENT, 5000, "");
	g->behind_ns[MECH_SLOW_CLIENT] = MS(80);
	s = sum_up(*state);
	assert_int_equal(s->what_if[0].tpot.p50, MS(100));
	assert_int_equal(s->what_if[1].tpot.p50, MS(20));
	blame_sum__free(s);
}

/* All tokens came in one block, long after the last was made: most of that is in the first one's wait only. */
static void test_blame_sum__what_if_all_came_at_once(void **state)
{
	struct rec_request *r;
	struct blame_sum *s;
	struct gap *g;

	streamed(*state, 3, 20, 60);
	r = (struct rec_request *)((struct fake *)*state)->v.requests;
	r->at_ns[P_LAST_TOKEN_ENGINE] = fake_ns(60);
	g = fake_gap(0, 1, 158, 2);
	g->side = GAP_CLIENT;
	fake_part(g, MECH_OWN_DELIVERY, 2);
	g = fake_gap(0, 0, 10, 10);
	fake_part(g, MECH_OWN_PREFILL, 10);
	fake_part_by(g, MECH_PROXY_BUFFER, 138, WHO_PROCESS, 5000, "nginx");
	g->behind_ns[MECH_PROXY_BUFFER] = MS(138);
	s = sum_up(*state);
	assert_int_equal(s->what_if[0].tpot.p50, MS(1));
	assert_int_equal(s->what_if[1].without, MECH_PROXY_BUFFER);
	assert_int_equal(s->what_if[1].tpot.p50, MS(21));
	assert_int_equal(s->what_if[1].ttft.p50, MS(10));
	blame_sum__free(s);
}

static void test_blame_sum__what_if_keeps_the_best(void **state)
{
	struct blame_sum *s;
	struct gap *g;

	streamed(*state, 2, 20, 20 + 780);
	g = fake_gap(0, 1, 20, 1);
	for (int m = MECH_PREFILL; m < N_MECHANISMS; m++)
		fake_part(g, m, m);
	s = sum_up(*state);
	assert_int_equal(s->n_what_if, MAX_WHAT_IFS + 1);
	assert_int_equal(s->what_if[1].without, MECH_UNEXPLAINED); /* the longest */
	for (size_t i = 2; i < s->n_what_if; i++) /* what is lost is not known, so not taken out */
		assert_int_equal(s->what_if[i].without, MECH_LOST + 1 - i);
	blame_sum__free(s);
}

static void test_blame_sum__longest_gaps(void **state)
{
	struct blame_sum *s;

	streamed(*state, 101, 20, 2000);
	for (uint32_t t = 1; t <= 60; t++) {
		struct gap *g = fake_gap(0, t, 20 * t, 5);

		fake_part(g, MECH_OWN_DECODE, 1 + t % 3);
		fake_part(g, MECH_UNEXPLAINED, t * 7 % 61);
	}
	s = sum_up(*state);
	assert_int_equal(s->n_top, MAX_TOP_GAPS);
	for (size_t i = 0; i < s->n_top; i++) {
		assert_int_equal(s->top[i].n_parts, 2);
		assert_int_equal(s->top[i].parts[1].ns, MS(60 - i));
	}
	blame_sum__free(s);
}

static void test_blame_sum__open_gaps_are_no_what_if(void **state)
{
	struct blame_sum *s;
	struct gap *g;

	streamed(*state, 2, 100, 110);
	g = fake_gap(0, 1, 100, 10);
	fake_part(g, MECH_OWN_DECODE, 10);
	g = fake_gap(0, 2, 110, 10);
	g->open = true;
	fake_part(g, MECH_GIL, 5000);
	s = sum_up(*state);
	assert_int_equal(s->n_open, 1);
	assert_int_equal(s->longest_open_ns, MS(5000));
	assert_int_equal(s->by_mechanism[MECH_GIL].ns, MS(5000));
	assert_int_equal(s->by_mechanism[MECH_GIL].n_victims, 1);
	assert_int_equal(s->gaps_ns, MS(5010));
	assert_int_equal(s->n_gaps, 2);
	assert_int_equal(s->n_top, 1);
	assert_int_equal(s->n_what_if, 1);
	blame_sum__free(s);
}

static void test_blame_sum__ruled_out_in_all_that_is_unexplained(void **state)
{
	struct blame_sum *s;

	streamed(*state, 9, 20, 2000);
	fake_gap(0, 1, 20, 5)->ruled_out = 0; /* explained */
	for (uint32_t t = 2; t <= 3; t++) {
		struct gap *g = fake_gap(0, t, 20 * t, 5);

		fake_part(g, MECH_UNEXPLAINED, 180);
		g->ruled_out = 1ull << MECH_GC | 1ull << (MECH_GIL + t - 2);
	}
	s = sum_up(*state);
	assert_int_equal(s->ruled_out, 1ull << MECH_GC);
	blame_sum__free(s);
}

/* Lost is no blame: neither in pairs nor in what-ifs nor among the longest. */
static void test_blame_sum__lost_is_no_blame(void **state)
{
	struct blame_sum *s;

	streamed(*state, 2, 20, 120);
	fake_part(fake_gap(0, 1, 20, 5), MECH_LOST, 100);
	s = sum_up(*state);
	assert_int_equal(s->n_pairs, 0);
	assert_int_equal(s->n_top, 0);
	assert_int_equal(s->n_what_if, 1);
	assert_int_equal(s->by_mechanism[MECH_LOST].ns, MS(100));
	assert_int_equal(s->prov_ns[PROV_OBSERVED], 0);
	blame_sum__free(s);
}

static void test_blame_sum__selects(void **state)
{
	struct fake *f = *state;
	struct blame_sum *s;

	long_prefill(f);
	assert_int_equal(blame_sum__select(&fake_blame, &f->v,
					   &(struct blame_selection){ .request = 3 }, &s), 0);
	assert_int_equal(s->n_gaps, 0);
	assert_int_equal(s->n_ttfts, 1);
	assert_int_equal(s->n_pairs, 1);
	blame_sum__free(s);
	assert_int_equal(blame_sum__select(&fake_blame, &f->v,
					   &(struct blame_selection){
						   .mechanisms = 1ull << MECH_STEP_WAIT }, &s), 0);
	assert_int_equal(s->n_pairs, 1);
	assert_int_equal(s->n_top, 0);
	assert_int_equal(s->n_what_if, 2);
	assert_int_equal(s->by_mechanism[MECH_PREFILL].ns, MS(640)); /* sums are of all */
	blame_sum__free(s);
}

static void test_blame_sum__culprits_and_victims(void **state)
{
	struct blame_who who[2];
	struct blame_sum *s;

	long_prefill(*state);
	fake_part(fake_gap(0, 101, 3000, 5), MECH_UNEXPLAINED, 7);
	s = sum_up(*state);
	assert_int_equal(blame_sum__culprits(s, 0, IN_GAPS, who, 2), 1);
	assert_int_equal(blame_sum__culprits(s, 0, IN_TTFTS, who, 2), 1);
	assert_int_equal(who[0].who.id, 0);
	assert_int_equal(blame_sum__culprits(s, 0, IN_GAPS | IN_TTFTS, who, 2), 2);
	assert_int_equal(who[0].who.id, 2);
	assert_int_equal(who[0].ns, MS(640));
	assert_int_equal(who[0].n_victims, 2);
	assert_int_equal(who[1].who.id, 0);
	assert_int_equal(who[1].ttft_ns, MS(15));
	assert_int_equal(blame_sum__culprits(s, 0, IN_GAPS | BY_NOBODY, who, 1), 1); /* no room for more */
	assert_int_equal(who[0].who.id, 2);
	assert_int_equal(blame_sum__culprits(s, 1ull << MECH_UNEXPLAINED, IN_GAPS | BY_NOBODY, who, 2), 1);
	assert_int_equal(who[0].who.type, WHO_NOBODY);
	assert_int_equal(blame_sum__culprits(s, 1ull << MECH_UNEXPLAINED, IN_GAPS, who, 2), 0);
	assert_int_equal(blame_sum__victims(s, who, 2), 2);
	assert_int_equal(who[0].who.id, 0);
	assert_int_equal(who[0].ns, MS(327));
	assert_int_equal(who[1].who.id, 1);
	blame_sum__free(s);
}

static void test_blame_sum__processes_of_one_name(void **state)
{
	struct blame_who who[4];
	struct blame_pair *merged;
	struct blame_sum *s;
	struct gap *g;
	size_t n;

	streamed(*state, 9, 20, 2000);
	streamed(*state, 9, 20, 2000);
	for (uint32_t r = 0; r < 2; r++) {
		g = fake_gap(r, 1, 20, 5);
		fake_part_by(g, MECH_RUN_QUEUE, 10, WHO_PROCESS, 1 + r, "cc1");
		fake_part_by(g, MECH_RUN_QUEUE, 20, WHO_PROCESS, 3, "cc1");
		fake_part_by(g, MECH_RUN_QUEUE, 5, WHO_PROCESS, 4, "");
		fake_part_by(g, MECH_RUN_QUEUE, 4, WHO_PROCESS, 5, "");
		fake_part_by(g, MECH_HOST, 1, WHO_THREAD, 3, "cc1");
	}
	s = sum_up(*state);
	assert_int_equal(s->n_pairs, 10);
	assert_int_equal(blame_sum__culprits(s, 0, IN_GAPS, who, 4), 4);
	assert_int_equal(who[0].ns, MS(60));
	assert_int_equal(who[0].n_ids, 3);
	assert_int_equal(who[0].n_victims, 2);
	assert_int_equal(who[1].ns, MS(10)); /* without a name: by number */
	assert_int_equal(who[1].n_ids, 1);
	assert_int_equal(who[3].who.type, WHO_THREAD);
	merged = blame_sum__merged(s, &n);
	assert_non_null(merged);
	assert_int_equal(n, 8);
	assert_int_equal(merged[0].ns, MS(30));
	assert_int_equal(merged[0].max_ns, MS(20));
	assert_int_equal(merged[0].n_gaps, 0);
	assert_int_equal(merged[2].n_gaps, 1);
	free(merged);
	blame_sum__free(s);
}

/* More pairs than are kept: what does not fit is counted, sums stay whole. */
static void test_blame_sum__counts_pairs_it_cannot_keep(void **state)
{
	struct fake *f = *state;
	uint32_t n = 0;
	struct blame_sum *s;

	streamed(f, 2, 20, 120);
	while (n < 300 * MAX_PARTS) {
		struct gap *g = fake_gap(0, 1 + n / MAX_PARTS, 20, 1);

		for (int k = 0; k < MAX_PARTS; k++)
			fake_part_by(g, MECH_RUN_QUEUE, 1, WHO_PROCESS, n++, "");
	}
	fake_blame.n_rounds = 6;
	s = sum_up(f);
	assert_int_equal(s->n_pairs, MAX_PAIRS);
	assert_int_equal(s->n_pairs_not_kept, 7 * n - MAX_PAIRS);
	assert_int_equal(s->by_mechanism[MECH_RUN_QUEUE].ns, MS(7.0 * n));
	blame_sum__free(s);
}

static void test_blame_sum__nothing_at_all(void **state)
{
	struct blame_sum *s = sum_up(*state);

	assert_int_equal(s->n_gaps, 0);
	assert_int_equal(s->n_what_if, 1);
	assert_int_equal(s->what_if[0].tpot.n, 0);
	blame_sum__free(s);
	blame_sum__free(NULL);
}

static void test_blame_sum__out_of_memory(void **state)
{
	struct fake *f = *state;
	struct blame_who who[2];
	struct blame_sum *s;
	int err;
	long n;

	long_prefill(f);
	OOM_LOOP({
		err = blame_sum__new(&fake_blame, &f->v, &s);
		if (err)
			assert_int_equal(err, -ENOMEM);
		else
			blame_sum__free(s);
	});
	assert_int_equal(err, 0);
	s = sum_up(f);
	OOM_LOOP({
		n = blame_sum__culprits(s, 0, IN_GAPS | IN_TTFTS, who, 2);
		assert_true(n == 2 || n == -ENOMEM);
		n = blame_sum__victims(s, who, 2);
		assert_true(n == 2 || n == -ENOMEM);
	});
	blame_sum__free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fake_blame_setup, fake_blame_teardown)
		T(test_blame_sum__adds_up_by_mechanism),
		T(test_blame_sum__pairs_worst_first),
		T(test_blame_sum__tells_pairs_apart),
		T(test_blame_sum__what_if),
		T(test_blame_sum__what_if_at_the_client), T(test_blame_sum__gaps_of_centuries),
		T(test_blame_sum__what_if_chunks_came_as_they_were_written),
		T(test_blame_sum__what_if_the_last_token_is_held),
		T(test_blame_sum__what_if_all_came_at_once),
		T(test_blame_sum__what_if_keeps_the_best),
		T(test_blame_sum__longest_gaps),
		T(test_blame_sum__open_gaps_are_no_what_if),
		T(test_blame_sum__ruled_out_in_all_that_is_unexplained),
		T(test_blame_sum__lost_is_no_blame),
		T(test_blame_sum__selects),
		T(test_blame_sum__culprits_and_victims),
		T(test_blame_sum__processes_of_one_name),
		T(test_blame_sum__counts_pairs_it_cannot_keep),
		T(test_blame_sum__nothing_at_all),
		T(test_blame_sum__out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
