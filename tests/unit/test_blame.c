/* SPDX-License-Identifier: Apache-2.0 */
/* Gaps of models made by hand, cut into parts: who slowed whom, and that parts add up. */
#include "blame_help.h"

/* ---- a long prompt in the steps of others ---- */

static void test_blame__long_prompt(void **state)
{
	struct told *t = *state;

	long_prompt(t->f);
	for (uint32_t victim = 0; victim < 2; victim++) {
		explain(t, victim);
		assert_int_equal(t->n, 100);
		for (size_t i = 0; i < 2; i++) {
			const struct gap *g = odd(t, i);

			assert_int_equal(g->t1_ns - g->t0_ns, MS(180));
			assert_int_equal(g->usual_ns, MS(20));
			assert_int_equal(g->token, 51 + i);
			assert_int_equal(part(g, MECH_PREFILL)->ns, MS(160));
			assert_who(&part(g, MECH_PREFILL)->who, WHO_REQUEST, 2);
			assert_int_equal(part(g, MECH_OWN_DECODE)->ns, MS(20));
		}
		assert_null(odd(t, 2));
	}
}

static void test_blame__few_tokens_of_prefill_are_no_stall(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 1), 20, 20, 1);
	uint32_t c = answer(t->f, at);

	fake_step(t->f, at, at + 20.2);
	decode(t->f, 0, at + 20.2);
	fake_member(t->f, c, 'P', 4);
	write_at(t->f, c, at + 20.2);
	explain(t, 0);
	assert_null(odd(t, 0));
	assert_int_equal(of(&t->gaps[t->n - 1], MECH_PREFILL), MS(0.2));
}

/* Members inferred from launches: that it computed a prompt is known, of how many tokens is not. */
static void test_blame__prefill_of_unknown_length(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 2), 50, 20, 2);
	uint32_t c = answer(t->f, at);

	fake_step(t->f, at, at + 60);
	decode(t->f, 0, at + 60);
	decode(t->f, 1, at + 60);
	fake_member(t->f, c, 'p', 0);
	run(t->f, at + 60, 20, 20, 2);
	explain(t, 0);
	assert_int_equal(part(odd(t, 0), MECH_PREFILL)->ns, MS(40));
	assert_who(&part(odd(t, 0), MECH_PREFILL)->who, WHO_REQUEST, 2);
	assert_null(odd(t, 1));
}

static void test_blame__prefill_far_beyond_its_usual_cost(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 20, 20, 1);
	uint32_t c = answer(f, at);
	const struct gap *g;

	for (int i = 0; i < 12; i++) {
		double ms = i == 5 ? 600 : 60;

		fake_step(f, at, at + ms);
		at += ms;
		decode(f, 0, at);
		fake_member(f, c, 'p', 512);
	}
	explain(t, 0);
	g = odd(t, 5);
	assert_int_equal(g->t1_ns - g->t0_ns, MS(600));
	/* 40 are usual for so many tokens: three times that, and the error */
	assert_int_equal(of(g, MECH_PREFILL), MS(3 * 40 + 6));
	assert_int_equal(of(g, MECH_UNEXPLAINED), MS(580 - 126));
	assert_true(g->ruled_out & 1ull << MECH_RECOMPUTE);
	assert_false(g->ruled_out & 1ull << MECH_PREFILL);
}

/* ---- S2: preemption ---- */

static void preempted(struct fake *f, uint32_t for_seq)
{
	double t = run(f, begin(f, 3), 40, 25, 3);	/* until 1020: A, B, C */
	double lost_at = t;

	for (int i = 0; i < 24; i++, t += 25) {		/* A and C go on; then C ends */
		fake_step(f, t, t + 25);
		decode(f, 0, t + 25);
		decode(f, 2, t + 25);
	}
	fake_step(f, t, t + 200);
	decode(f, 0, t + 200);
	fake_member(f, 1, 'A', 4096);
	write_at(f, 1, t + 200);
	fake_preempt(f, 1, lost_at, t, 4096);
	f->seqs[1].preemptions[0].for_seq = for_seq;
	run(f, t + 200, 20, 25, 2);
}

static void check_preempted(struct told *t, enum provenance prov)
{
	const struct gap *g;

	explain(t, 1);
	g = odd(t, 0);
	assert_int_equal(g->t1_ns - g->t0_ns, MS(800));
	assert_int_equal(g->usual_ns, MS(25));
	assert_int_equal(part(g, MECH_PREEMPTED)->ns, MS(600));
	assert_int_equal(part(g, MECH_PREEMPTED)->prov, prov);
	assert_who(&part(g, MECH_PREEMPTED)->who, WHO_REQUEST, 2);
	assert_int_equal(part(g, MECH_RECOMPUTE)->ns, MS(200));
	assert_who(&part(g, MECH_RECOMPUTE)->who, WHO_REQUEST, 2);
	assert_null(odd(t, 1));
	explain(t, 0);
	g = odd(t, 0);
	assert_int_equal(part(g, MECH_RECOMPUTE)->ns, MS(175));
	assert_who(&part(g, MECH_RECOMPUTE)->who, WHO_REQUEST, 1);
	assert_who(&part(g, MECH_RECOMPUTE)->root, WHO_REQUEST, 2);
	assert_int_equal(part(g, MECH_OWN_DECODE)->ns, MS(25));
	assert_null(odd(t, 1));
}

static void test_blame__preemption_as_said(void **state)
{
	struct told *t = *state;

	preempted(t->f, 3);
	check_preempted(t, PROV_REPORTED);
}

static void test_blame__preemption_by_whose_end_it_came_back(void **state)
{
	struct told *t = *state;

	preempted(t->f, 0);
	check_preempted(t, PROV_INFERRED);
}

/* Who is said to have taken the room did not run meanwhile: the last sequence of a slot may be long over. */
static void test_blame__preemption_by_one_that_did_not_run(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at;

	preempted(f, 4);
	at = run(f, 2320, 1, 25, 2);
	assert_int_equal(answer(f, at), 3);
	fake_step(f, at, at + 25);
	fake_member(f, 3, 'P', 9000);
	check_preempted(t, PROV_INFERRED);
}

static void test_blame__preemption_by_one_without_steps(void **state)
{
	struct told *t = *state;

	preempted(t->f, 4);
	assert_int_equal(answer(t->f, 2500), 3);
	check_preempted(t, PROV_INFERRED);
}

/* ---- holes, steps of others, losses ---- */

static void test_blame__hole_and_long_step(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 1), 30, 20, 1);

	at = run(t->f, at + 180, 10, 20, 1);	/* no step for 180 */
	at = run(t->f, at, 1, 200, 1);		/* a step of 200 */
	run(t->f, at, 10, 20, 1);
	explain(t, 0);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(of(odd(t, i), MECH_UNEXPLAINED), MS(180));
		assert_int_equal(of(odd(t, i), MECH_OWN_DECODE), MS(20));
	}
	assert_null(odd(t, 2));
}

static void test_blame__left_out(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 2), 30, 20, 2);
	const struct gap *g;

	fake_step(f, at, at + 100);
	fake_member(f, 1, 'd', 1);
	write_at(f, 1, at + 100);
	run(f, at + 100, 5, 20, 2);
	explain(t, 0);
	g = odd(t, 0);
	assert_int_equal(part(g, MECH_LEFT_OUT)->ns, MS(100));
	assert_who(&part(g, MECH_LEFT_OUT)->who, WHO_REQUEST, 1);
}

/* Pipeline parallelism: two batches take turns; a long one of the other's is still no turn. */
static void test_blame__turns(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = begin(f, 2);
	const struct gap *g;

	for (uint32_t i = 0; i < 80; i++) {
		double ms = i == 61 ? 60 : 10;

		fake_step(f, at, at + ms);
		at += ms;
		decode(f, i % 2, at);
	}
	for (int i = 0; i < 2; i++, at += 10) {	/* two turns of the other in a row */
		fake_step(f, at, at + 10);
		decode(f, 1, at + 10);
	}
	fake_step(f, at, at + 10);
	decode(f, 0, at + 10);
	explain(t, 0);
	g = odd(t, 0);
	assert_int_equal(g->usual_ns, MS(20));
	assert_int_equal(of(g, MECH_UNEXPLAINED), MS(50));
	g = odd(t, 1);
	assert_int_equal(of(g, MECH_LEFT_OUT), MS(20));
	assert_int_equal(of(g, MECH_OWN_DECODE), MS(20));
	assert_null(odd(t, 2));
}

static void test_blame__no_blame_where_events_were_lost(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = long_prompt(f);

	f->lost[0] = (struct rec_lost){ fake_ns(1100), fake_ns(1300), 10, TL_LOST_RING, 0 };
	f->v.n_lost = 1;
	fake_end(f, at);
	explain(t, 0);
	for (size_t i = 0; i < t->n; i++) {
		assert_int_equal(of(&t->gaps[i], MECH_PREFILL), 0);
		assert_int_equal(of(&t->gaps[i], MECH_UNEXPLAINED), 0);
	}
	assert_int_equal(of(odd(t, 0), MECH_LOST), MS(160));
}

static void test_blame__too_little_to_learn_from(void **state)
{
	struct told *t = *state;
	double at = run(t->f, begin(t->f, 1), 4, 20, 1);

	run(t->f, at, 1, 500, 1);
	explain(t, 0);
	assert_int_equal(blame__n_learnt(t->b), 0);
	for (size_t i = 0; i < t->n; i++) {
		assert_int_equal(t->gaps[i].usual_ns, 0);
		assert_int_equal(of(&t->gaps[i], MECH_OWN_DECODE),
				 t->gaps[i].t1_ns - t->gaps[i].t0_ns);
	}
}

/* ---- whatever happens ---- */

static void test_blame__more_culprits_than_room(void **state)
{
	struct told *t = *state;
	struct fake *f = t->f;
	double at = run(f, begin(f, 1), 20, 20, 1);
	const struct gap *g;

	fake_step(f, at, at + 620);
	decode(f, 0, at + 620);
	for (int i = 0; i < 60; i++)
		fake_member(f, fake_seq(f, NULL, 100 + (uint32_t)i), 'p', 100);
	explain(t, 0);
	g = odd(t, 0);
	assert_true(g->n_parts <= MAX_PARTS);
	assert_int_equal(of(g, MECH_PREFILL), MS(600));
}

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* Steps and writes at random moments, in no sensible relation: parts add up all the same. */
static void random_model(struct fake *f, uint32_t seed)
{
	static const char phases[] = "ppPaAddddddd";
	double at = 0;

	f->engines[0].e.engine = seed % 2 ? TL_ENGINE_VLLM : TL_ENGINE_LLAMA;
	for (uint32_t i = 0; i < 6; i++) {
		answer(f, next_random(&seed) % 100);
		if (next_random(&seed) % 4 == 0)
			f->reqs[i].body = TL_BODY_JSON;
	}
	for (int i = 0; i < 120; i++) {
		double begin_ms = at + next_random(&seed) % 30 - 10.0;

		at = begin_ms + next_random(&seed) % 50;
		fake_step(f, begin_ms > 0 ? begin_ms : 0, at > 0 ? at : 0);
		for (uint32_t s = 0; s < 6; s++) {
			if (next_random(&seed) % 3 == 0)
				continue;
			fake_member(f, s, phases[next_random(&seed) % 12],
				    1 + next_random(&seed) % 3);
			if (f->reqs[s].body == TL_BODY_SSE && next_random(&seed) % 5)
				write_at(f, s, at + next_random(&seed) % 40);
		}
		if (i % 40 == 39)
			fake_preempt(f, (uint32_t)i % 6, at, at + 50, 10);
	}
	if (next_random(&seed) % 2) {
		f->lost[0] = (struct rec_lost){ fake_ns(200), fake_ns(600), 5, TL_LOST_RING, 0 };
		f->v.n_lost = 1;
	}
}

static void test_blame__parts_always_add_up(void **state)
{
	struct told *t = *state;
	size_t n_gaps = 0, n_ttfts = 0;

	for (uint32_t seed = 1; seed <= 300; seed++) {
		random_model(t->f, seed);
		for (uint32_t i = 0; i < t->f->v.n_requests; i++) {
			explain(t, i);
			n_gaps += t->n;
			if (blame__ttft(t->b, i, &t->gaps[0])) {
				n_ttfts++;
				assert_int_equal(sum_of(&t->gaps[0]),
						 t->gaps[0].t1_ns - t->gaps[0].t0_ns);
			}
		}
		blame__free(t->b);
		t->b = NULL;
		fake__free(t->f);
		t->f = fake__new();
		t->f->v.evidence = &t->evidence;
	}
	assert_true(n_gaps > 50000 && n_ttfts > 300);
}

struct odd_ones {
	const struct told *t;
	size_t at, n;
};

/* The next of all gaps that is odd. */
static int check_odd(void *ctx, const struct gap *g)
{
	struct odd_ones *o = ctx;

	while (o->at < o->t->n && !gap_is_odd(&o->t->gaps[o->at]))
		o->at++;
	assert_true(o->at < o->t->n);
	assert_int_equal(g->token, o->t->gaps[o->at].token);
	assert_int_equal(g->t0_ns, o->t->gaps[o->at].t0_ns);
	assert_int_equal(g->n_parts, o->t->gaps[o->at].n_parts);
	assert_memory_equal(g->parts, o->t->gaps[o->at].parts, g->n_parts * sizeof(g->parts[0]));
	o->at++;
	o->n++;
	return 0;
}

static int count_odd(void *ctx, const struct gap *g)
{
	assert_true(gap_is_odd(g));
	++*(size_t *)ctx;
	return 0;
}

/* Walked over before or not, in part or whole: the same gaps. */
static void test_blame__odd_gaps_alone(void **state)
{
	struct told *t = *state;
	size_t n_odd = 0, n_all = 0;

	for (uint32_t seed = 1; seed <= 60; seed++) {
		random_model(t->f, seed);
		assert_int_equal(blame__new(&t->f->v, &t->b), 0);
		for (uint32_t i = 0; i < t->f->v.n_requests; i++) {
			struct odd_ones o = { .t = t };
			size_t n = 0, n_first = 0;
			int side, first_side;

			if (i % 3 == 1)
				assert_int_equal(blame__odd_gaps(t->b, i, count_odd, &n_first, &first_side), 0);
			explain(t, i);
			for (size_t k = 0; k < t->n; k++)
				n += gap_is_odd(&t->gaps[k]);
			assert_int_equal(blame__odd_gaps(t->b, i, check_odd, &o, &side), 0);
			assert_int_equal(o.n, n);
			assert_int_equal(side, t->n ? t->gaps[0].side : -1);
			if (i % 3 == 1) {
				assert_int_equal(n_first, n);
				assert_int_equal(first_side, side);
			}
			n_odd += n;
			n_all += t->n;
		}
		blame__free(t->b);
		t->b = NULL;
		fake__free(t->f);
		t->f = fake__new();
		t->f->v.evidence = &t->evidence;
	}
	assert_true(n_odd > 100 && n_odd < n_all);
}

static int stop(void *ctx, const struct gap *g)
{
	(void)g;
	return ++*(int *)ctx == 3 ? -EINTR : 0;
}

static void test_blame__walk_ends_when_told(void **state)
{
	struct told *t = *state;
	int n = 0;

	long_prompt(t->f);
	assert_int_equal(blame__new(&t->f->v, &t->b), 0);
	assert_int_equal(blame__gaps(t->b, 0, stop, &n), -EINTR);
	assert_int_equal(n, 3);
	explain(t, 0);		/* and the next one is whole */
	assert_true(t->n > 3);
}

static int ignore(void *ctx, const struct gap *g)
{
	(void)ctx, (void)g;
	return 0;
}

static int all_of_it(struct told *t)
{
	struct blame *b;
	int err = blame__new(&t->f->v, &b);

	if (err)
		return err;
	for (uint32_t i = 0; i < t->f->v.n_requests && !err; i++) {
		err = blame__gaps(b, i, ignore, NULL);
		if (!err && !blame__ttft(b, i, &t->gaps[0]))
			err = -ENOMEM;
	}
	blame__free(b);
	return err;
}

static void test_blame__out_of_memory(void **state)
{
	struct told *t = *state;
	int err = 0;

	preempted(t->f, 0);
	OOM_LOOP({
		err = all_of_it(t);
		assert_true(err == 0 || err == -ENOMEM);
	});
	assert_int_equal(err, 0);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_blame__long_prompt), T(test_blame__few_tokens_of_prefill_are_no_stall),
		T(test_blame__prefill_far_beyond_its_usual_cost),
		T(test_blame__prefill_of_unknown_length),
		T(test_blame__preemption_as_said),
		T(test_blame__preemption_by_whose_end_it_came_back),
		T(test_blame__preemption_by_one_that_did_not_run), T(test_blame__preemption_by_one_without_steps),
		T(test_blame__hole_and_long_step), T(test_blame__left_out), T(test_blame__turns),
		T(test_blame__no_blame_where_events_were_lost),
		T(test_blame__too_little_to_learn_from), T(test_blame__more_culprits_than_room),
		T(test_blame__parts_always_add_up), T(test_blame__odd_gaps_alone), T(test_blame__walk_ends_when_told),
		T(test_blame__out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
