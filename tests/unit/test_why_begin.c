/* SPDX-License-Identifier: Apache-2.0 */
/* The waterfall of a request of which it is not known when its prompt began. */
#include "fake_server.h"
#include "sink/trace.h"
#include "sink/why.h"
#include "unit.h"

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

static struct trace trace_of(struct fake *f, size_t request)
{
	struct trace t;

	assert_int_equal(trace__init(&t, &f->v, request), 0);
	return t;
}

/* From some step on it is not known whether it waited: what is before that is its queue still. */
static void test_why_begin__is_not_known(void **state)
{
	struct fake_job jobs[] = {
		{ .at_ms = 10, .prompt = 30, .output = 60, .stream = true },
		{ .at_ms = 20, .prompt = 64, .output = 30, .stream = true },
		{ .at_ms = 30, .prompt = 900, .output = 5, .stream = true },
	};
	struct fake *f = *state;
	struct rec_sequence *q;
	struct trace t;
	uint64_t queue;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	fake_serve(f, jobs, ARRAY_SIZE(jobs));
	t = trace_of(f, 2);
	q = &f->seqs[t.q - f->v.seqs];
	trace__free(&t);
	q->slot = 9;	/* none that another had */
	t = trace_of(f, 2);
	queue = t.sum_ns[PART_WAIT_QUEUE];
	assert_true(queue > 50000000);
	trace__free(&t);
	q->open_ns = f->v.steps[q->visits[0].step].t0_ns - 20000000;
	t = trace_of(f, 2);
	assert_int_equal(t.sum_ns[PART_WAIT_QUEUE], queue - 20000000);
	assert_int_equal(t.sum_ns[PART_UNEXPLAINED], 20000000);
	trace__free(&t);
	assert_int_equal(why_request(&f->v, 2, &(struct text_opts){ .width = 1000 }, out), 0);
	fclose(out);
	assert_non_null(strstr(text, " steps ran, and whether with it is not known"));
	free(text);
}

static void step_of(struct fake *f, double at_ms, double end_ms, const char *phases, const uint32_t *n_tokens)
{
	fake_step(f, at_ms, end_ms);
	for (uint32_t s = 0; phases[s]; s++)
		if (phases[s] != ' ')
			fake_member(f, s, phases[s], phases[s] == 'd' ? 1 : n_tokens[s]);
}

/* Two run, and a third comes within the step before the last one of the first, whose slot it gets. */
static struct trace comes_third(struct fake *f, double came_ms)
{
	static const uint32_t n_tokens[] = { 60, 50, 40 };

	for (uint32_t i = 0; i < 3; i++) {
		struct rec_request *r = fake_request(f, i < 2 ? 0 : came_ms);

		fake_point(r, P_REQ_LAST_BYTE, i < 2 ? 0 : came_ms);
		fake_point(r, P_SUBMIT, i < 2 ? 0 : came_ms);
		fake_seq(f, r, i % 2);
		fake_chunk(r, 300, TL_CHUNK_TEXT);
	}
	f->engines[0].e.engine = TL_ENGINE_LLAMA;
	step_of(f, 0, 100, "PP", n_tokens);
	step_of(f, 100, 200, "dd", n_tokens);
	step_of(f, 201, 300, " dP", n_tokens);
	return trace_of(f, 2);
}

static void test_why_begin__another_slot_was_free(void **state)
{
	struct fake *f = *state;
	struct trace t;

	f->engines[0].n_slots = 4;
	t = comes_third(f, 150);
	assert_int_equal(t.sum_ns[PART_WAIT_SLOT], 0);
	assert_int_equal(t.sum_ns[PART_WAIT_STEP], 51000000);
	trace__free(&t);
}

static void test_why_begin__no_slot_was_free(void **state)
{
	struct fake *f = *state;
	struct trace t;

	f->engines[0].n_slots = 2;
	t = comes_third(f, 150);
	assert_int_equal(t.sum_ns[PART_WAIT_SLOT], 50000000);
	assert_int_equal(t.sum_ns[PART_WAIT_STEP], 1000000);
	trace__free(&t);
}

/* A step begins as it comes; both of its members are beside it in the next one, unless the prompt of one goes on there. */
static struct trace comes_amid_planning(struct fake *f, bool cut)
{
	static const uint32_t n_tokens[] = { 60, 50, 40 };

	for (uint32_t i = 0; i < 3; i++) {
		struct rec_request *r = fake_request(f, i < 2 ? 0 : 99);

		fake_point(r, P_REQ_LAST_BYTE, i < 2 ? 0 : 99);
		fake_seq(f, r, i);
		fake_chunk(r, 300, TL_CHUNK_TEXT);
	}
	f->engines[0].e.engine = TL_ENGINE_LLAMA;
	step_of(f, 0, 98, "P", n_tokens);
	step_of(f, 100, 200, cut ? "dp" : "dP", n_tokens);
	step_of(f, 201, 300, cut ? "dPP" : "ddP", n_tokens);
	return trace_of(f, 2);
}

static void test_why_begin__while_a_step_is_planned(void **state)
{
	struct trace t = comes_amid_planning(*state, false);

	assert_int_equal(t.sum_ns[PART_WAIT_QUEUE], 0);
	assert_int_equal(t.sum_ns[PART_WAIT_STEP], 102000000);
	trace__free(&t);
}

static void test_why_begin__while_a_full_step_is_planned(void **state)
{
	struct trace t = comes_amid_planning(*state, true);

	assert_int_equal(t.sum_ns[PART_WAIT_STEP], 1000000);
	assert_int_equal(t.sum_ns[PART_WAIT_QUEUE], 101000000);
	trace__free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(test_why_begin__##name, setup, teardown)
		T(is_not_known), T(another_slot_was_free), T(no_slot_was_free), T(while_a_step_is_planned),
		T(while_a_full_step_is_planned),
	};

	return cmocka_run_group_tests_name("why_begin", tests, NULL, NULL);
}
