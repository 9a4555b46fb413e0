/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of blame: what would shorten a queue, and who stands out. */
#include "unit.h"
#include "base/util.h"
#include "fake_blame.h"
#include "sink/blame_words.h"

static void answer_of(struct fake *f, char text[2000])
{
	struct blame_sum *s = NULL;

	assert_int_equal(blame_sum__new(&fake_blame, &f->v, &s), 0);
	assert_int_equal(blame_answer(&f->v, s, N_MECHANISMS, text, 2000), 0);
	blame_sum__free(s);
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		print_error("not there: \"%s\" in: %s\n", part, text);
	assert_non_null(strstr(text, part));
}

/* A queue of 100 ms: for want of what, of which engine. */
static void test_answer__what_would_shorten_the_queue(void **state)
{
	static const struct {
		uint16_t engine;
		enum queue_limit limit;
		const char *want;
	} cases[] = {
		{ TL_ENGINE_LLAMA, LIMIT_SLOTS, "; 75 % of it while all places were taken: more sequences at once (llama.cpp "
						"--parallel), if there is memory for them, or another replica shortens it." },
		{ TL_ENGINE_VLLM, LIMIT_KV, "; 75 % of it for want of room in the KV cache: a larger one (vLLM "
					    "--gpu-memory-utilization, --kv-cache-dtype), shorter prompts or answers, or "
					    "another replica shortens it." },
		{ TL_ENGINE_VLLM, LIMIT_TOKENS, "; 75 % of it while the prompts of others filled the steps: more tokens in a "
						"step (vLLM --max-num-batched-tokens), which makes it longer, or another "
						"replica shortens it." },
		{ TL_ENGINE_UNKNOWN, LIMIT_SLOTS, ": more sequences at once (llama.cpp --parallel, vLLM --max-num-seqs), if" },
		{ TL_ENGINE_VLLM, LIMIT_UNKNOWN, "of TTFTs on 1 request; for want of what is not known; another replica "
						 "shortens it." },
	};
	struct fake *f = *state;
	struct gap *g;
	char text[2000];

	fake_request(f, 0);
	g = fake_gap(0, 0, 0, 5);
	fake_part_by(g, MECH_QUEUE, 100, WHO_REQUEST, 0, "");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		f->engines[0].e.engine = cases[i].engine;
		memset(g->queue_ns, 0, sizeof(g->queue_ns));
		g->queue_ns[LIMIT_UNKNOWN] = 25000000;
		g->queue_ns[cases[i].limit] += 75000000;
		answer_of(f, text);
		assert_has(text, cases[i].want);
	}
}

/* As many waits as in the report, and what is more is said to be of those that still wait. */
static void test_answer__what_still_waits(void **state)
{
	struct fake *f = *state;
	struct gap *g;
	char text[2000];

	fake_request(f, 0);
	fake_request(f, 0);
	fake_part(fake_gap(0, 0, 0, 5), MECH_RUN_QUEUE, 300);
	g = fake_gap(1, 0, 0, 5);
	g->open = true;
	fake_part(g, MECH_RUN_QUEUE, 100);
	answer_of(f, text);
	assert_has(text, "before first tokens (400 ms, that is 100 % of 400 ms, of which 100 ms of 1 still waiting) is");
}

static void test_answer__who_is_left_out(void **state)
{
	struct fake *f = *state;
	char text[2000];

	fake_request(f, 0);
	fake_part_by(fake_gap(0, 1, 20, 5), MECH_LEFT_OUT, 100, WHO_REQUEST, 0, "");
	answer_of(f, text);
	assert_has(text, "; look for an option that computes prefill and decode in one step (chunked prefill).");
	f->engines[0].e.engine = TL_ENGINE_VLLM;	/* which does */
	answer_of(f, text);
	assert_has(text, "on 1 request; more tokens in a step (vLLM --max-num-batched-tokens), or a limit on those of long prompts "
			 "(--long-prefill-token-threshold) leaves fewer out.");
}

/* Five have a fifth each: one of them is worst. Of six none has, and none stands out. */
static void test_answer__spread_over_many(void **state)
{
	struct fake *f = *state;
	struct gap *g;
	char text[2000];

	for (int i = 0; i < 7; i++)
		fake_request(f, 0)->prompt = fake_count(40);
	g = fake_gap(0, 1, 20, 5);
	for (uint32_t i = 1; i <= 5; i++)
		fake_part_by(g, MECH_PREFILL, 20, WHO_REQUEST, i, "");
	answer_of(f, text);
	assert_has(text, "; worst culprit r");
	fake_part_by(g, MECH_PREFILL, 21, WHO_REQUEST, 6, "");
	answer_of(f, text);
	assert_has(text, "; spread over many, most by r7 (40 tokens): 21.0 ms of gaps on 1 request; ");
}

/* A report opens with the worse side, and names the other one if it has another reason. */
static void test_answer__opening_names_both_sides(void **state)
{
	static const char other[] = " Before first tokens, 100 % of it is waiting in the queue behind others.";
	struct fake *f = *state;
	struct blame_sum *s;
	struct gap *ttft;
	char text[2000];

	fake_request(f, 0);
	fake_part(fake_gap(0, 1, 100, 5), MECH_RUN_QUEUE, 100);
	ttft = fake_gap(0, 0, 0, 5);
	fake_part(ttft, MECH_QUEUE, 80);
	for (int same = 0; same < 2; same++) {
		if (same)
			ttft->parts[0].mechanism = MECH_RUN_QUEUE;
		assert_int_equal(blame_sum__new(&fake_blame, &f->v, &s), 0);
		assert_int_equal(blame_opening(&f->v, s, text, sizeof(text)), 0);
		assert_has(text, "100 % of the time above baseline between tokens (100 ms, ");
		assert_true((strstr(text, other) != NULL) == !same);
		blame_sum__free(s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fake_blame_setup, fake_blame_teardown)
		T(test_answer__what_would_shorten_the_queue), T(test_answer__spread_over_many),
		T(test_answer__who_is_left_out), T(test_answer__what_still_waits),
		T(test_answer__opening_names_both_sides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
