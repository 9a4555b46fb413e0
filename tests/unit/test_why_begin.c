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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_why_begin__is_not_known, setup, teardown),
	};

	return cmocka_run_group_tests_name("why_begin", tests, NULL, NULL);
}
