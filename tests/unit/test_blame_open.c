/* SPDX-License-Identifier: Apache-2.0 */
/* What requests still wait for when a recording ends. */
#include "blame_help.h"

/* The recording ends at this moment, and the request had not. */
static void cut_off(struct fake *f, uint32_t request, double ms)
{
	f->reqs[request].state = REQ_TRUNCATED;
	f->reqs[request].how_ended = TL_END_CAPTURE;
	fake_end(f, ms);
}

static const struct gap *open_gap(struct told *t, uint32_t request)
{
	struct gap *g = &t->gaps[0];

	if (!t->b)
		assert_int_equal(blame__new(&t->f->v, &t->b), 0);
	if (!blame__open(t->b, request, g))
		return NULL;
	assert_true(g->open);
	assert_int_equal(g->t1_ns, t->f->v.t1_ns);
	assert_int_equal(sum_of(g), g->t1_ns - g->t0_ns);
	return g;
}

static void test_open__between_two_tokens(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 2), 50, 20, 2);

	cut_off(t->f, 0, at + 15);
	assert_null(open_gap(t, 0));
	assert_null(open_gap(t, 1));	/* complete */
}

static void test_open__the_engine_hangs(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 2), 50, 20, 2);
	const struct gap *g;

	cut_off(t->f, 0, at + 7000);
	g = open_gap(t, 0);
	assert_non_null(g);
	assert_int_equal(g->t0_ns, fake_ns(at));
	assert_int_equal(g->token, 51);
	assert_int_equal(g->usual_ns, MS(20));
	assert_int_equal(of(g, MECH_OWN_DECODE), MS(20));
	assert_int_equal(of(g, MECH_UNEXPLAINED), MS(6980));
}

static void test_open__others_go_on(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 2), 50, 20, 2);
	const struct gap *g;

	for (int i = 0; i < 30; i++, at += 20) {
		fake_step(t->f, at, at + 20);
		decode(t->f, 1, at + 20);
	}
	cut_off(t->f, 0, at);
	g = open_gap(t, 0);
	assert_non_null(g);
	assert_who(&part(g, MECH_LEFT_OUT)->who, WHO_REQUEST, 1);
	assert_int_equal(of(g, MECH_LEFT_OUT), MS(600));
}

static void test_open__made_and_not_written(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 2), 50, 20, 2);
	const struct gap *g;

	for (int i = 0; i < 30; i++, at += 20) {
		fake_step(t->f, at, at + 20);
		fake_member(t->f, 0, 'd', 1);
		decode(t->f, 1, at + 20);
	}
	cut_off(t->f, 0, at);
	g = open_gap(t, 0);
	assert_non_null(g);
	assert_int_equal(of(g, MECH_OWN_DECODE), MS(20));
	assert_int_equal(of(g, MECH_UNEXPLAINED) + of(g, MECH_OWN_DELIVERY), MS(580));
	assert_true(of(g, MECH_UNEXPLAINED) > MS(570));
}

static void test_open__parked(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 2), 50, 20, 2);
	const struct gap *g;

	fake_preempt(t->f, 0, at, 0, 60);
	for (int i = 0; i < 30; i++, at += 20) {
		fake_step(t->f, at, at + 20);
		decode(t->f, 1, at + 20);
	}
	cut_off(t->f, 0, at);
	g = open_gap(t, 0);
	assert_non_null(g);
	assert_int_equal(of(g, MECH_PREEMPTED), MS(600));
}

/* ---- no first token yet ---- */

static void test_open__queues_behind_others(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 2), 50, 20, 2), came = at + 5;
	struct rec_request *r = fake_request(t->f, came);
	const struct gap *g;

	fake_point(r, P_REQ_LAST_BYTE, came);
	fake_point(r, P_SUBMIT, came + 1);
	at = run(t->f, at, 50, 20, 2);
	cut_off(t->f, 2, at);
	g = open_gap(t, 2);
	assert_non_null(g);
	assert_int_equal(g->token, 0);
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(20 - 5 - 1));
	assert_int_equal(of(g, MECH_QUEUE), MS(1000 - 20));
	assert_int_equal(of(g, MECH_OWN_FRONT), MS(1));
}

/* Both places are taken, and between steps the engine is slow: that it waits in the queue is no less true. */
static void test_open__queues_for_a_place(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 2), 50, 20, 2), came = at - 5;
	const struct gap *g;
	uint32_t c;

	t->f->engines[0].e.engine = TL_ENGINE_LLAMA;
	c = (uint32_t)(fake_request(t->f, came) - t->f->reqs);
	fake_point(&t->f->reqs[c], P_REQ_LAST_BYTE, came);
	fake_point(&t->f->reqs[c], P_SUBMIT, came);
	for (int i = 0; i < 10; i++, at += 50)
		run(t->f, at + 30, 1, 20, 2);
	cut_off(t->f, c, at + 10);	/* the next step is under way */
	g = open_gap(t, c);
	assert_non_null(g);
	assert_int_equal(of(g, MECH_UNEXPLAINED), 0);
	assert_int_equal(g->queue_ns[LIMIT_SLOTS], of(g, MECH_QUEUE));
	assert_true(of(g, MECH_QUEUE) > MS(450));
	for (uint32_t r = 0; r < 2; r++)
		for (size_t i = 0; i < g->n_parts; i++)
			if (g->parts[i].who.type == WHO_REQUEST && g->parts[i].who.id == r)
				assert_true(g->parts[i].ns > MS(220));
}

/* It is the third of three places: when the recording ends its first step is near. */
static void test_open__with_a_place_left(void **state)
{
	struct told *t = *state;
	double at = run(t->f, run(t->f, begin(t->f, 3), 10, 20, 3), 50, 20, 2);
	const struct gap *g;
	uint32_t c;

	t->f->engines[0].e.engine = TL_ENGINE_LLAMA;
	c = (uint32_t)(fake_request(t->f, at - 1) - t->f->reqs);
	fake_point(&t->f->reqs[c], P_REQ_LAST_BYTE, at - 1);
	at = run(t->f, at, 1, 90, 2);
	cut_off(t->f, c, at);
	g = open_gap(t, c);
	assert_non_null(g);
	assert_int_equal(of(g, MECH_QUEUE), 0);
	assert_int_equal(of(g, MECH_STEP_WAIT), MS(91));
}

static void test_open__in_the_front_end(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 2), 50, 20, 2);
	const struct gap *g;

	fake_request(t->f, at);
	cut_off(t->f, 2, at + 5000);
	g = open_gap(t, 2);
	assert_non_null(g);
	assert_int_equal(of(g, MECH_UNEXPLAINED), MS(5000));
}

static void test_open__its_own_prompt(void **state)
{
	struct told *t = *state;
	double at = long_prompt(t->f);
	uint32_t c = answer(t->f, at);

	fake_step(t->f, at, at + 180);
	decode(t->f, 0, at + 180);
	decode(t->f, 1, at + 180);
	decode(t->f, 2, at + 180);
	fake_member(t->f, c, 'p', 4094);
	cut_off(t->f, c, at + 250);
	assert_null(open_gap(t, c));	/* its next step takes as long */
}

static void test_open__was_there_before(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 1), 50, 20, 1);
	struct rec_request *r = fake_request(t->f, at);

	r->joined_late = true;
	cut_off(t->f, 1, at + 5000);
	assert_null(open_gap(t, 1));	/* nobody knows since when it waits */
}

#define T(name) cmocka_unit_test_setup_teardown(test_open__##name, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(between_two_tokens), T(the_engine_hangs), T(others_go_on), T(made_and_not_written), T(parked),
		T(queues_behind_others), T(queues_for_a_place), T(with_a_place_left), T(in_the_front_end), T(its_own_prompt), T(was_there_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
