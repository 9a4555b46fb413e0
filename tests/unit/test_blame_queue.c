/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of vLLM: for want of what, and behind whom. */
#include "blame_help.h"

/* A core that schedules, and the process of its server that was told how much a step may have. */
static struct fake *vllm(struct told *t, uint32_t max_seqs, uint32_t max_tokens)
{
	struct fake *f = t->f;

	f->engines[0].e.engine = f->engines[1].e.engine = TL_ENGINE_VLLM;
	f->engines[1].e.hdr.tgid = 4200;
	f->engines[0].e.server = f->engines[1].e.server = 4200;
	f->engines[1].e.max_seqs = max_seqs;
	f->engines[1].e.max_step_tokens = max_tokens;
	f->v.n_engines = 2;
	return f;
}

/* Two run, one of them with a large prompt; the third comes while step 0 runs, and waits for ten steps of 50 ms with so
 * much of the cache in use. kv_pct < 0: the engine says nothing. */
static const struct gap *wait_of(struct told *t, double kv_pct)
{
	struct fake *f = t->f;
	double at = 20;
	uint32_t c;

	fake_step(f, 0, 20);
	for (uint32_t s = 0; s < 2; s++) {
		answer(f, 0);
		fake_member(f, s, 'P', s ? 1900 : 80);
		write_at(f, s, 20);
	}
	c = answer(f, 10);
	for (int i = 0; i < 10; i++, at += 50) {
		run(f, at, 1, 50, 2);
		if (kv_pct >= 0)
			fake_stats(f, kv_pct, 2, 1);
	}
	fake_step(f, at, at + 50);
	decode(f, 0, at + 50);
	fake_member(f, c, 'P', 100);
	write_at(f, c, at + 50);
	return ttft(t, c);
}

static uint64_t by_request(const struct gap *g, uint32_t request)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < g->n_parts; i++)
		if (g->parts[i].mechanism == MECH_QUEUE && g->parts[i].who.type == WHO_REQUEST &&
		    g->parts[i].who.id == request)
			ns += g->parts[i].ns;
	return ns;
}

static void test_queue__for_places(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	vllm(t, 2, 512);
	g = wait_of(t, 97);
	assert_int_equal(of(g, MECH_QUEUE), MS(500));
	assert_int_equal(g->queue_ns[LIMIT_SLOTS], MS(500));
	assert_int_equal(by_request(g, 0), MS(250));	/* a place is a place, whatever its prompt */
	assert_int_equal(by_request(g, 1), MS(250));
}

static void test_queue__for_room_in_the_cache(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	vllm(t, 8, 512);
	g = wait_of(t, 91);
	assert_int_equal(g->queue_ns[LIMIT_KV], MS(500));
	assert_int_equal(of(g, MECH_QUEUE), MS(500));
	assert_true(by_request(g, 1) > MS(450));	/* it holds 1900 tokens of some 2000 */
	assert_true(by_request(g, 0) > MS(10));
}

/* Nothing says how full the cache is, but there were places, and tokens. */
static void test_queue__for_room_without_counters(void **state)
{
	struct told *t = *state;

	vllm(t, 8, 512);
	assert_int_equal(wait_of(t, -1)->queue_ns[LIMIT_KV], MS(500));
}

static void test_queue__nobody_knows_for_what(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	vllm(t, 8, 512);
	g = wait_of(t, 10);	/* a cache that is nearly empty: the first step may have been planned before it came */
	assert_int_equal(g->queue_ns[LIMIT_UNKNOWN], MS(450));
	assert_int_equal(of(g, MECH_QUEUE), MS(450));
	assert_int_equal(by_request(g, 0), MS(225));
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(10 + 50));
}

/* Two run on, and a third comes while the engine plans a step, in which another prompt is computed: of so many tokens. */
static const struct gap *amid_planning(struct told *t, uint8_t engine, uint32_t n_tokens)
{
	struct fake *f = t->f;
	double at = run(f, begin(f, 3), 20, 20, 2);
	uint32_t other = answer(f, at), c = answer(f, at + 0.9);

	f->engines[0].e.engine = engine;
	fake_step(f, at + 1, at + 81);
	decode(f, 0, at + 81);
	decode(f, 1, at + 81);
	fake_member(f, other, 'P', n_tokens);
	fake_stats(f, 10, 3, 1);
	write_at(f, other, at + 81);
	at += 82;
	fake_step(f, at, at + 30);
	for (uint32_t s = 0; s < 2; s++)
		decode(f, s, at + 30);
	decode(f, other, at + 30);
	fake_member(f, c, 'P', 40);
	write_at(f, c, at + 30);
	return ttft(t, c);
}

static void assert_waits_for_a_step(const struct gap *g, uint32_t other)
{
	assert_int_equal(of(g, MECH_QUEUE), 0);
	for (int i = 0; i < N_QUEUE_LIMITS; i++)
		assert_int_equal(g->queue_ns[i], 0);
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(80));
	assert_who(&part(g, MECH_STEP_WAIT)->who, WHO_REQUEST, other);
}

static void test_queue__behind_nobody_with_a_slot_left(void **state)
{
	assert_waits_for_a_step(amid_planning(*state, TL_ENGINE_LLAMA, 64), 3);
}

static void test_queue__behind_nobody_in_an_engine_that_says_nothing(void **state)
{
	assert_waits_for_a_step(amid_planning(*state, TL_ENGINE_UNKNOWN, 64), 3);
}

static void test_queue__behind_nobody_with_tokens_left(void **state)
{
	struct told *t = *state;

	vllm(t, 8, 512);
	assert_waits_for_a_step(amid_planning(t, TL_ENGINE_VLLM, 64), 3);
}

static void test_queue__behind_a_prompt_that_took_all_tokens(void **state)
{
	struct told *t = *state;
	const struct gap *g;

	vllm(t, 8, 512);
	g = amid_planning(t, TL_ENGINE_VLLM, 510);
	assert_int_equal(g->queue_ns[LIMIT_TOKENS], MS(80));
	assert_int_equal(by_request(g, 3), MS(80));
	assert_int_equal(of(g, MECH_STEP_WAIT), 0);
}

static void test_queue__limits_are_not_known(void **state)
{
	struct told *t = *state;

	vllm(t, 0, 0);
	assert_int_equal(wait_of(t, 91)->queue_ns[LIMIT_UNKNOWN], MS(500));
}

/* The limits of another server are not its own. */
static void test_queue__limits_of_another_server(void **state)
{
	struct told *t = *state;

	vllm(t, 2, 512)->engines[1].e.server = 4201;
	assert_int_equal(wait_of(t, 91)->queue_ns[LIMIT_UNKNOWN], MS(500));
}

/* A prompt of 1530 tokens takes three steps, then its room in the cache for as long as it runs. */
static const struct gap *behind_a_prompt(struct told *t, double kv_pct, uint32_t *ret_large)
{
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 20, 20, 1);
	uint32_t large = answer(f, at), c = answer(f, at + 100);

	for (int i = 0; i < 3; i++, at += 200) {
		fake_step(f, at, at + 200);
		decode(f, 0, at + 200);
		fake_member(f, large, i < 2 ? 'p' : 'P', 511);
		fake_stats(f, kv_pct, 2, 1);
	}
	write_at(f, large, at);
	for (int i = 0; i < 4; i++, at += 50) {
		fake_step(f, at, at + 50);
		decode(f, 0, at + 50);
		decode(f, large, at + 50);
		fake_stats(f, kv_pct, 2, 1);
	}
	fake_step(f, at, at + 50);
	fake_member(f, c, 'P', 100);
	write_at(f, c, at + 50);
	*ret_large = large;
	return ttft(t, c);
}

static void test_queue__for_tokens_and_then_for_room(void **state)
{
	struct told *t = *state;
	const struct gap *g;
	uint32_t large;

	vllm(t, 8, 512);
	g = behind_a_prompt(t, 60, &large);
	assert_int_equal(g->queue_ns[LIMIT_TOKENS], MS(400));
	assert_int_equal(g->queue_ns[LIMIT_KV], MS(200));
	assert_int_equal(of(g, MECH_QUEUE), MS(600));
	assert_true(by_request(g, large) > MS(400 + 180));	/* not by half: it has nearly all of the tokens */
}

/* With a cache that is full, more tokens in a step would not help. */
static void test_queue__for_room_though_steps_are_full(void **state)
{
	struct told *t = *state;
	uint32_t large;

	vllm(t, 8, 512);
	assert_int_equal(behind_a_prompt(t, 96, &large)->queue_ns[LIMIT_KV], MS(600));
}

/* A step that is full at another size than was told: its prompt is in the way all the same. */
static void test_queue__for_the_turn_of_a_prompt(void **state)
{
	struct told *t = *state;
	uint32_t large;
	const struct gap *g;

	vllm(t, 8, 2048);
	g = behind_a_prompt(t, 10, &large);
	assert_int_equal(g->queue_ns[LIMIT_TOKENS], MS(400));
	assert_int_equal(g->queue_ns[LIMIT_UNKNOWN], MS(200));
}

/* Nobody was told how much a step may have, but prompts are cut at 512 tokens. */
static void test_queue__for_tokens_where_prompts_are_cut(void **state)
{
	struct told *t = *state;
	uint32_t large;
	const struct gap *g = behind_a_prompt(t, 10, &large);

	assert_int_equal(g->queue_ns[LIMIT_TOKENS], MS(400));
	assert_true(by_request(g, large) > MS(390));
}

static void told_tokens(struct told *t, double at, uint32_t seq, uint32_t n_tokens, char what)
{
	fake_step(t->f, at, at + 20);
	decode(t->f, 0, at + 20);
	fake_member(t->f, seq, what, n_tokens);
}

/* As they are inferred from launches: where a prompt was cut, now a few more tokens, now a few less. */
static void test_queue__for_tokens_that_are_inferred(void **state)
{
	struct told *t = *state;
	static const uint32_t n_tokens[] = { 250, 215, 290, 240, 205, 251 };
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 20, 20, 1);
	uint32_t large = answer(f, at), c = answer(f, at + 1);
	const struct gap *g;

	for (int i = 0; i < 6; i++, at += 20)
		told_tokens(t, at, large, n_tokens[i], i < 5 ? 'p' : 'P');
	write_at(f, large, at);
	told_tokens(t, at, c, 40, 'P');
	write_at(f, c, at + 20);
	for (size_t i = 0; i < f->v.n_steps; i++)
		f->steps[i].inferred = 1;
	g = ttft(t, c);
	assert_int_equal(g->queue_ns[LIMIT_TOKENS], MS(100));
	assert_int_equal(by_request(g, large), MS(100));
}

static int try_wait(struct told *t)
{
	struct blame *b = NULL;
	struct gap g;
	int err = blame__new(&t->f->v, &b);

	if (!err && !blame__ttft(b, 2, &g))
		err = -ENOMEM;
	blame__free(b);
	return err;
}

static void test_queue__out_of_memory(void **state)
{
	struct told *t = *state;
	int err;

	vllm(t, 8, 512);
	wait_of(t, 91);
	OOM_LOOP(err = try_wait(t));
	assert_int_equal(err, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(test_queue__##name, setup, teardown)
		T(for_places), T(for_room_in_the_cache), T(for_room_without_counters), T(nobody_knows_for_what),
		T(limits_are_not_known), T(limits_of_another_server), T(for_tokens_and_then_for_room),
		T(for_room_though_steps_are_full), T(for_the_turn_of_a_prompt),
		T(behind_nobody_with_a_slot_left), T(behind_nobody_in_an_engine_that_says_nothing),
		T(behind_nobody_with_tokens_left), T(behind_a_prompt_that_took_all_tokens),
		T(for_tokens_where_prompts_are_cut), T(for_tokens_that_are_inferred), T(out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
