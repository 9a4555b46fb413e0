/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of slow steps say what slowed them, and many parts of a gap are added up by mechanism. */
#include "unit.h"
#include "fake_blame.h"
#include "sink/blame_words.h"
#include "sink/why.h"

#include <errno.h>

#define assert_has(text, what) assert_non_null(strstr(text, what))

/* Steps of 10 ms, number 9 and 15 of 70 ms: their gaps end with the tokens of these numbers. */
static void two_slow_steps(struct fake *f)
{
	struct rec_request *r = fake_request(f, 0);
	uint32_t a = fake_seq(f, r, 0);
	double at = 1;

	fake_point(r, P_REQ_LAST_BYTE, 1);
	for (int i = 0; i < 20; i++) {
		double ms = i == 9 || i == 15 ? 70 : 10;

		fake_step(f, at, at + ms);
		fake_member(f, a, i ? 'd' : 'P', i ? 1 : 64);
		at += ms;
	}
	fake_done(f, r, at + 1);
}

static struct gap *slow_gap(uint32_t token)
{
	struct gap *g = fake_gap(0, token, token == 9 ? 91 : 211, 10);

	g->seq = 1;
	fake_part(g, MECH_OWN_DECODE, 10);
	return g;
}

static char *why(struct fake *f)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(why_request(&f->v, 0, &(struct text_opts){ .width = 1000 }, out), 0);
	fclose(out);
	return text;
}

static void test_causes__are_in_the_rows(void **state)
{
	struct gap *g;
	char *text;

	two_slow_steps(*state);
	g = slow_gap(9);
	fake_part_by(g, MECH_RUN_QUEUE, 40, WHO_PROCESS, 7, "cc1");
	fake_part_by(g, MECH_RUN_QUEUE, 15, WHO_PROCESS, 8, "as");
	fake_part(g, MECH_UNEXPLAINED, 5);
	g = slow_gap(15);
	fake_part_by(g, MECH_GC, 60, WHO_THREAD, 9, "python");
	text = why(*state);
	assert_has(text, "decode 70.0 ms (its median is 10.0): 55.0 ms wait for a CPU "
			 "(cc1 and others), alone");
	assert_has(text, "decode 70.0 ms (its median is 10.0): 60.0 ms ");
	assert_has(text, " (python), alone");
	assert_null(strstr(text, "no prefill in it"));
	free(text);
}

/* What came behind the step did not make it longer; and what nobody knows is no cause. */
static void test_causes__of_the_step_alone(void **state)
{
	struct gap *g;
	char *text, *first;

	two_slow_steps(*state);
	g = slow_gap(9);
	fake_part_by(g, MECH_RUN_QUEUE, 60, WHO_PROCESS, 7, "cc1");
	g->behind_ns[MECH_RUN_QUEUE] = 60000000;
	g = slow_gap(15);
	fake_part(g, MECH_UNEXPLAINED, 50);
	fake_part(g, MECH_GC, 10);
	text = why(*state);
	first = strstr(text, "decode 70.0 ms (its median is 10.0), no prefill in it, alone");
	assert_non_null(first);
	assert_has(first + 1, "decode 70.0 ms (its median is 10.0), no prefill in it, alone");
	free(text);
}

static void test_causes__survive_no_memory(void **state)
{
	FILE *out = fopen("/dev/null", "w");
	int err = 0;

	assert_non_null(out);
	two_slow_steps(*state);
	fake_part_by(slow_gap(9), MECH_RUN_QUEUE, 60, WHO_PROCESS, 7, "cc1");
	fputc('\n', out); /* stdio takes its buffer here */
	OOM_LOOP(err = why_request(&((struct fake *)*state)->v, 0, &(struct text_opts){ 0 }, out);
		 if (err) assert_int_equal(err, -ENOMEM))
		assert_int_equal(err, 0);
	fclose(out);
}

/* Eleven small parts are one large one: none of it is hidden in "smaller parts". */
static void test_words__many_parts_are_added_up(void **state)
{
	struct fake *f = *state;
	struct gap *g = fake_gap(0, 1, 0, 0);
	char name[16], buf[1200];

	two_slow_steps(f);
	for (uint32_t i = 0; i < 11; i++) {
		snprintf(name, sizeof(name), "p%u", i);
		fake_part_by(g, MECH_RUN_QUEUE, 40 - i, WHO_PROCESS, i + 1, name);
	}
	fake_part(g, MECH_OWN_PREFILL, 60);
	fake_part_by(g, MECH_GC, 25, WHO_THREAD, 50, "python");
	fake_part(g, MECH_OWN_FRONT, 5);
	fake_part(g, MECH_PAGE_FAULT, 4);
	gap_text(&f->v, g, buf, sizeof(buf));
	assert_ptr_equal(strstr(buf, "385 ms wait for a CPU (40.0 ms p0, 39.0 ms p1, 38.0 ms p2 "
				     "and 8 more), 60.0 ms own prefill, 25.0 ms "), buf);
	assert_has(buf, ", 9.00 ms in smaller parts");
	/* in little room all of it is accounted for still */
	gap_text(&f->v, g, buf, 480);
	assert_true(strlen(buf) < 480);
	assert_has(buf, "385 ms wait for a CPU");
	assert_has(buf, "94.0 ms in smaller parts");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, fake_blame_setup, fake_blame_teardown)
	const struct CMUnitTest tests[] = {
		T(causes__are_in_the_rows), T(causes__of_the_step_alone),
		T(causes__survive_no_memory),
		T(words__many_parts_are_added_up),
	};

	return cmocka_run_group_tests_name("why_causes", tests, NULL, NULL);
}
