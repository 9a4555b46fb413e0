/* SPDX-License-Identifier: Apache-2.0 */
/* What made one request slow, in a few words: it is what blame says. */
#include "unit.h"
#include "fake_blame.h"
#include "sink/text_priv.h"

/* r1: its prompt until 40 ms, then five tokens, 20 ms each; r2 has a prompt in the third of their steps. */
static void two_requests(struct fake *f)
{
	struct rec_request *r1 = fake_request(f, 0), *r2 = fake_request(f, 70);
	uint32_t q1 = fake_seq(f, r1, 0), q2 = fake_seq(f, r2, 1);

	fake_step(f, 0, 40);
	fake_member(f, q1, 'P', 30);
	fake_chunk(r1, 41, TL_CHUNK_TEXT);
	for (int i = 0; i < 5; i++) {
		fake_step(f, 40 + 20 * i, 60 + 20 * i);
		fake_member(f, q1, 'd', 1);
		if (i == 2)
			fake_member(f, q2, 'P', 50);
		fake_chunk(r1, 61 + 20 * i, TL_CHUNK_TEXT);
	}
	fake_done(f, r1, 142);
}

static void assert_hint(struct fake *f, const char *brief, const char *text)
{
	char buf[HINT_LEN], wide[240];
	struct trace t;

	assert_int_equal(trace__init(&t, &f->v, 0), 0);
	assert_string_equal(text_hint(&t, &fake_blame, buf, sizeof(buf)), brief);
	assert_string_equal(text_hint(&t, &fake_blame, wide, sizeof(wide)), text);
	trace__free(&t);
}

static void test_hint__a_stop_is_no_prefill(void **state)
{
	struct gap *ttft;

	two_requests(*state);
	ttft = fake_gap(0, 0, 0, 5);
	fake_part_by(ttft, MECH_STOPPED, 30, WHO_PROCESS, 7, "bash");
	fake_part(ttft, MECH_OWN_PREFILL, 10);
	assert_hint(*state, "stopped or frozen: 30.0 ms", "stopped or frozen 30.0 ms (bash)");
	ttft->parts[0].ns = 15000000;	/* less than half of it: it is its own prefill then */
	ttft->parts[1].ns = 25000000;
	assert_hint(*state, "prefill of 30 tok: 40.0 ms", "prefill of 30 tok: 40.0 ms");
}

static void test_hint__steps_are_not_all_prefill(void **state)
{
	struct gap *late;

	two_requests(*state);
	late = fake_gap(0, 3, 81, 5);
	fake_part_by(late, MECH_RUN_QUEUE, 60, WHO_PROCESS, 9, "cc1");
	fake_part_by(late, MECH_PREFILL, 20, WHO_REQUEST, 1, "");
	fake_part(late, MECH_OWN_DECODE, 5);
	assert_hint(*state, "+60.0 ms: wait for a CPU",
		    "+80.0 ms between tokens: wait for a CPU 60.0 ms (cc1), prefill in the same step 20.0 ms (r2)");
	late->parts[0].ns = 10000000;
	late->parts[1].ns = 70000000;
	assert_hint(*state, "+70.0 ms: r2's prefill", "+70.0 ms: prefill of r2 (50 tok)");
}

/* Nothing was learnt of what steps take: then they are compared with each other. */
static void test_hint__without_blame(void **state)
{
	two_requests(*state);
	fake_part_by(fake_gap(0, 3, 81, 5), MECH_RUN_QUEUE, 60, WHO_PROCESS, 9, "cc1");
	fake_blame.n_learnt = 0;
	assert_hint(*state, "prefill of 30 tok: 40.0 ms", "prefill of 30 tok: 40.0 ms");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hint__a_stop_is_no_prefill, fake_blame_setup, fake_blame_teardown),
		cmocka_unit_test_setup_teardown(test_hint__steps_are_not_all_prefill, fake_blame_setup, fake_blame_teardown),
		cmocka_unit_test_setup_teardown(test_hint__without_blame, fake_blame_setup, fake_blame_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
