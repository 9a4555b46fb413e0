/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts of which nobody says how long they are, in steps that are made of launches. */
#include "gpu_infer_feed.h"

#include "model/blame.h"

/* r1 decodes in each step; r2 comes before the fourth, its first token is of the tenth. Steps of `ms`. */
static const double unknown_ms[14] = { 3, 2, 2, 2, 4, 2, 2, 4, 4, 3.5, 2, 2, 2, 2 };

static void unknown_prompt(struct gpu_feed *f, double (*step)(struct gpu_feed *f, double t, double ms))
{
	feed_begin(f, 1, 5);
	for (int k = 0; k < 14; k++) {
		double t = 10 + 10 * k, end;

		if (k == 3)
			feed_begin(f, 2, t - 2);
		end = step(f, t, unknown_ms[k]);
		feed_chunk(f, 1, end + 0.2);
		if (k >= 9)
			feed_chunk(f, 2, end + 0.3);
	}
	feed_end(f, 1, 160, 0, 0);
	feed_end(f, 2, 160, 0, 0);
	gpu_feed_done(f);
}

/* Nothing is replayed here: what is far longer than decodes take, in a row up to the first token, has a part of it. */
static void test_gpu_prompts__long_steps(void **state)
{
	struct gpu_feed f = start(false);

	(void)state;
	unknown_prompt(&f, eager_of);
	assert_string_equal(members(&f, 54.11), "r1:d");	/* long, but the two behind it are not */
	assert_string_equal(members(&f, 72.11), "r1:d");
	assert_string_equal(members(&f, 84.11), "r1:d r2:p");
	assert_string_equal(members(&f, 94.11), "r1:d r2:p");
	assert_string_equal(members(&f, 103.61), "r1:d r2:p");
	assert_int_equal(f.v.requests[1].at_ns[P_PREFILL_START], at(80));
	gpu_feed_free(&f);
}

/* Nor is it told that it waited where another's prompt ended in the long step before. Where that step is no longer than
 * decodes are, it had no part. */
static void two_prompts(double ms, uint64_t want)
{
	struct gpu_feed f = start(false);

	feed_begin(&f, 1, 5);
	for (int k = 0; k < 14; k++) {
		double t = 10 + 10 * k, end;

		if (k == 8)
			feed_begin(&f, 2, t - 3);
		if (k == 8)
			feed_begin(&f, 3, t - 2);
		end = eager_of(&f, t, k == 8 ? ms : k == 9 ? 4 : 2);
		feed_chunk(&f, 1, end + 0.2);
		if (k >= 8)
			feed_chunk(&f, 2, end + 0.25);
		if (k >= 9)
			feed_chunk(&f, 3, end + 0.3);
	}
	for (uint32_t r = 1; r <= 3; r++)
		feed_end(&f, r, 160, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.requests[1].at_ns[P_PREFILL_START], at(90));
	assert_int_equal(f.v.requests[2].at_ns[P_PREFILL_START], want);
	for (size_t i = 0; i < f.v.n_seqs; i++)
		if (f.v.requests[f.v.seqs[i].req - 1].req == 3)
			assert_int_equal(f.v.seqs[i].open_ns, want ? 0 : at(90));
	gpu_feed_free(&f);
}

static void test_gpu_prompts__behind_another_prompt(void **state)
{
	(void)state;
	two_prompts(4, 0);
	two_prompts(2, at(100));
}

/* It came while nobody looked: the first steps that are seen need not be the first that had a part of its prompt. */
static void came_before(double t, uint64_t want)
{
	struct gpu_feed f = gpu_feed_new();

	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	feed_clock(&f, -1);
	feed_begin(&f, 1, t);
	for (int k = 0; k < 12; k++)
		feed_chunk(&f, 1, eager_of(&f, 10 + 10 * k, k ? 2 : 4) + 0.2);
	feed_end(&f, 1, 160, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.requests[0].at_ns[P_PREFILL_START], want);
	gpu_feed_free(&f);
}

static void test_gpu_prompts__came_unseen(void **state)
{
	(void)state;
	came_before(-30, 0);
	came_before(8, at(10));	/* nothing ran, and then its prompt */
}

/* Neither records nor waits: how long a step took is not known. */
static double launched_of(struct gpu_feed *f, double t, double ms)
{
	for (int i = 0; i < 9; i++) {
		struct tl_gpu_launch l = launch_of(f, t + 0.003 * i, TL_CALL_KERNEL, 0);

		FEED(f, l);
	}
	return t + ms;
}

/* When its prompt began is not known, then: no wait in a queue, of nobody. */
static void test_gpu_prompts__no_queue_that_nobody_saw(void **state)
{
	struct gpu_feed f = gpu_feed_new();
	struct gap ttft;
	struct blame *b;

	(void)state;
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	unknown_prompt(&f, launched_of);
	assert_int_equal(f.v.n_requests, 2);
	assert_int_equal(f.v.requests[1].at_ns[P_PREFILL_START], 0);
	assert_true(f.v.requests[1].at_ns[P_FIRST_TOKEN_ENGINE] > 0);
	assert_int_equal(blame__new(&f.v, &b), 0);
	assert_true(blame__ttft(b, 1, &ttft));
	assert_true(ttft.n_parts > 1);
	assert_int_equal(ttft.parts[0].mechanism, MECH_UNEXPLAINED);
	for (size_t i = 0; i < ttft.n_parts; i++)
		assert_int_not_equal(ttft.parts[i].mechanism, MECH_QUEUE);
	blame__free(b);
	gpu_feed_free(&f);
}

/* What a step takes: 2 ms, 0.01 for each that decodes, 0.01 for a token of a prompt. */
static double cost(int n_decode, int n_prompt)
{
	return 2 + 0.01 * n_decode + 0.01 * n_prompt;
}

/* Who came when a step was planned had the part that is left of it, though the first token of one who came later, before
 * the launch, is nearer. */
static void test_gpu_prompts__who_came_too_late(void **state)
{
	static const int lengths[] = { 40, 80, 20, 100, 60, 30 };
	struct gpu_feed f = start(false);
	double t = 0, end = 0;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(lengths); i++, t += 50) {	/* what tokens take is learnt from these */
		feed_begin(&f, i + 1, t + 9);
		feed_chunk(&f, i + 1, eager_of(&f, t + 10, cost(0, lengths[i])) + 0.2);
		for (int k = 1; k < 4; k++) {
			end = eager_of(&f, t + 10 + 10 * k, cost(1, 0));
			feed_chunk(&f, i + 1, end + 0.2);
		}
		feed_end(&f, i + 1, t + 45, lengths[i], 4);
	}
	feed_begin(&f, 7, end - 1);	/* the step before runs until `end`, then the next one is planned */
	feed_begin(&f, 8, t + 9);
	end = eager_of(&f, t + 10, cost(0, 250));
	assert_true(end < t + 20);
	feed_chunk(&f, 8, eager_of(&f, t + 20, cost(0, 550)) + 0.2);
	feed_chunk(&f, 7, eager_of(&f, t + 30, cost(0, 200)) + 0.2);
	feed_end(&f, 8, t + 45, 400, 1);
	feed_end(&f, 7, t + 45, 600, 1);
	eager_of(&f, t + 50, cost(0, 0));
	gpu_feed_done(&f);
	assert_string_equal(members(&f, end), "r7:p");
	gpu_feed_free(&f);
}

/* ---- steps that are full ---- */

enum { N_ALONE = 6, N_CROWDS = 2, N_WAIT = 3, N_FULL = 3 };
static const uint32_t wait_lengths[N_WAIT] = { 400, 300, 200 };

/* What a step takes is not always the same: so much of the tokens that it had seems to be in it. */
static const double noise[N_CROWDS * N_FULL] = { 0.97, 1.02, 0.98, 1.02, 0.99, 1.03 };

static const struct full_case {
	const char *name;
	uint32_t limit;		/* tokens of a step */
	uint32_t told;		/* as the server was told, 0: it is not known */
	int n_crowds;
	bool exact;		/* it is known how many each step had */
} full_cases[] = {
	{ "a power of two", 256, 0, 2, true },
	{ "none, but the server was told", 280, 280, 2, true },
	{ "no power of two", 290, 0, 2, false },
	{ "too few of them", 256, 0, 1, false },
};

static double prompt_ms(double tokens)
{
	return 2 + 0.01 * tokens;
}

/* Of known length, one by one: what tokens take is learnt from these. */
static double feed_alone(struct gpu_feed *f, double t)
{
	static const uint32_t lengths[N_ALONE] = { 40, 80, 20, 100, 60, 30 };

	for (uint32_t i = 0; i < N_ALONE; i++, t += 50) {
		feed_begin(f, i + 1, t + 9);
		feed_chunk(f, i + 1, eager_of(f, t + 10, prompt_ms(lengths[i])) + 0.2);
		for (int k = 1; k < 4; k++)
			feed_chunk(f, i + 1, eager_of(f, t + 10 + 10 * k, prompt_ms(0)) + 0.2);
		feed_end(f, i + 1, t + 45, lengths[i], 4);
	}
	return t;
}

/* Three come at once, and fill three steps and a part of a fourth; ends: tokens of each in its first step and in its last.
 * Each has one token. */
static double feed_crowd(struct gpu_feed *f, const struct full_case *c, int crowd, double t, uint32_t (*parts)[2])
{
	uint32_t first = N_ALONE + 1 + crowd * N_WAIT, cut = 0;

	for (uint32_t i = 0; i < N_WAIT; i++)
		feed_begin(f, first + i, t + 5 + 0.1 * i);
	for (uint32_t i = 0; i <= N_FULL; i++) {
		uint32_t ends = i ? wait_lengths[i - 1] - cut : 0;
		double seems = i < N_FULL ? c->limit * noise[crowd * N_FULL + i] : ends;
		double end = eager_of(f, t + 10 + 10 * i, prompt_ms(seems));

		if (i)
			parts[i - 1][1] = ends;
		cut = i < N_FULL ? c->limit - ends : 0;
		if (i < N_FULL)
			parts[i][0] = cut;
		if (i) {
			feed_chunk(f, first + i - 1, end + 0.2);
			feed_end(f, first + i - 1, end + 0.4, wait_lengths[i - 1], 1);
		}
	}
	return t + 60;
}

/* Who waits fills a step: then it had as many as all that are full, whatever it took. */
static void test_gpu_prompts__full(void **state)
{
	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(full_cases); k++) {
		const struct full_case *c = &full_cases[k];
		struct gpu_feed f = gpu_feed_new();
		struct tl_engine e = { .hdr = HDR(e, TL_ENGINE, 0, PID, PID, at(-1000)), .start_ns = 1, .server = PID,
				       .max_step_tokens = c->told };
		uint32_t parts[N_CROWDS][N_WAIT][2];
		bool exact = true;
		double t;

		FEED(&f, e);
		feed_process(&f, PID, 0);
		feed_clock(&f, -101);
		feed_eager(&f, -100, 10);
		t = feed_alone(&f, 0);
		for (int n = 0; n < c->n_crowds; n++)
			t = feed_crowd(&f, c, n, t, parts[n]);
		eager_of(&f, t, prompt_ms(0));
		gpu_feed_done(&f);
		for (size_t i = 0; i < f.v.n_seqs; i++) {
			const struct rec_sequence *q = &f.v.seqs[i];
			uint32_t req = f.v.requests[q->req - 1].req;
			const uint32_t *want = req > N_ALONE ? parts[(req - N_ALONE - 1) / N_WAIT][(req - N_ALONE - 1) % N_WAIT] : NULL;

			if (!want)
				continue;
			assert_int_equal(q->n_visits, 2);
			exact &= q->visits[0].n_tokens == want[0] && q->visits[1].n_tokens == want[1];
		}
		if (exact != c->exact)
			fail_msg("%s", c->name);
		gpu_feed_free(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu_prompts__who_came_too_late),
		cmocka_unit_test(test_gpu_prompts__long_steps), cmocka_unit_test(test_gpu_prompts__full),
		cmocka_unit_test(test_gpu_prompts__behind_another_prompt),
		cmocka_unit_test(test_gpu_prompts__came_unseen),
		cmocka_unit_test(test_gpu_prompts__no_queue_that_nobody_saw),
	};

	return cmocka_run_group_tests_name("gpu_prompts", tests, NULL, NULL);
}
