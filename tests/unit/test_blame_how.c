/* SPDX-License-Identifier: Apache-2.0 */
/* What is behind sums of blame: numbers of graph misses, late ranks, clocks, backlogs; and how it is said. */
#include "blame_help.h"
#include "model/blame_how.h"
#include "model/gpu.h"
#include "oom.h"
#include "sink/how_words.h"

enum { FULL_MHZ = 1965, CAPPED_MHZ = 1580 };
#define T(name) cmocka_unit_test_setup_teardown(test_how__##name, setup, teardown)

static struct hows how(struct told *t)
{
	struct blame_sum *s;
	struct hows h;

	evidence_finish(&t->evidence);
	assert_int_equal(blame__new(&t->f->v, &t->b), 0);
	assert_int_equal(blame_sum__new(t->b, &t->f->v, &s), 0);
	assert_int_equal(blame__how(t->b, s, &h), 0);
	blame_sum__free(s);
	return h;
}

static void assert_says(const struct told *t, const struct how *h, const char *what)
{
	char text[HOW_TEXT];

	how_text(&t->f->v, h, text, sizeof(text));
	if (strcmp(text, what))
		print_error("says \"%s\"\n", text);
	assert_string_equal(text, what);
}

static void device_did(struct told *t, struct tl_gpu_step e, double t0, double t1, double busy)
{
	e.hdr = (struct tl_hdr){ sizeof(e), TL_GPU_STEP, 0, 4242, 0, fake_ns(t0) };
	e.end_ns = fake_ns(t1);
	e.busy_ns = MS(busy);
	assert_int_equal(evidence_on(&t->evidence, &e.hdr), 0);
}

/* Steps of one sequence, and what the device did for each. Returns the end of the last one. */
static double steps(struct told *t, double at, int n, double ms, double busy, struct tl_gpu_step like)
{
	for (int i = 0; i < n; i++, at += ms) {
		device_did(t, like, at, at + ms, busy);
		run(t->f, at, 1, ms, 1);
	}
	return at;
}

static const struct tl_gpu_step replayed = { .launches = 10, .graph_launches = 1, .graph = TL_GRAPH_HIT,
					     .batch = 48, .padded_to = 48 };
static const struct tl_gpu_step eager = { .launches = 1185, .graph = TL_GRAPH_MISS, .batch = 49 };

static double graph_misses(struct told *t)
{
	double at = steps(t, begin(t->f, 1), 30, 10, 9.8, replayed);

	return steps(t, steps(t, at, 5, 34, 10, eager), 10, 10, 9.8, replayed);
}

static void test_how__graph_miss(void **state)
{
	struct told *t = *state;
	struct hows h;

	graph_misses(t);
	h = how(t);
	assert_int_equal(h.n, 1);
	assert_int_equal(h.v[0].mechanism, MECH_GRAPH_MISS);
	assert_int_equal(h.v[0].n_steps, 5);
	assert_int_equal(h.v[0].lost_ns, MS(120));
	assert_int_equal(h.v[0].graph.launches, 1185);
	assert_int_equal(h.v[0].graph.launch_ns, 34000000 / 1185);
	assert_true(h.v[0].graph.at_most);
	assert_says(t, &h.v[0], "CUDA graph miss: batch 49 has no graph, the largest is of 48: 5 steps of 34.0 ms ran kernel by "
		    "kernel, 1185 launches of at most 28.7 us each; GPU busy 29.4 % of them, 77.5 % of all steps");
}

/* A device works on for a step that the host has ended: no more than all of the step's time is of it. */
static void test_how__busy_beyond_the_step(void **state)
{
	struct told *t = *state;
	struct hows h;
	double at = steps(t, begin(t->f, 1), 30, 10, 15, replayed);

	steps(t, steps(t, at, 5, 34, 10, eager), 10, 10, 15, replayed);
	h = how(t);
	assert_int_equal(h.n, 1);
	assert_float_equal(h.v[0].all_busy_pct, 100.0 * (40 * 10 + 5 * 10) / (40 * 10 + 5 * 34), 1e-9);
}

/* A step that is launched while the one before runs has the device from then on that that one ends. */
static void test_how__runs_ahead(void **state)
{
	struct told *t = *state;
	double at = begin(t->f, 1);
	struct hows h;

	for (int i = 0; i < 45; i++) {
		double ms = i / 5 == 6 ? 34 : 10;

		device_did(t, ms > 10 ? eager : replayed, at, at + ms, 9.8);
		fake_step(t->f, at - 10, at + ms);
		at += ms;
		decode(t->f, 0, at);
	}
	h = how(t);
	assert_int_equal(h.n, 1);
	assert_int_equal(h.v[0].steps_ns, 5 * MS(34));
	assert_float_equal(h.v[0].busy_pct, 100 * 9.8 / 34, 1e-9);
	assert_float_equal(h.v[0].all_busy_pct, 100.0 * 45 * 9.8 / (40 * 10 + 5 * 34), 1e-9);
}

/* Kernels outside of graphs had no record in the step that follows: so much is the least that devices were busy. */
static void test_how__busy_at_least(void **state)
{
	static const struct { size_t step; bool some, all; const char *busy; } cases[] = {
		{ 5, false, true, "GPU busy 29.4 % of them, at least 77.5 % of all steps" },
		{ 33, true, true, "GPU busy at least 29.4 % of them, at least 77.5 % of all steps" },
		{ FAKE_MAX_STEPS, false, false, "GPU busy 29.4 % of them, 77.5 % of all steps" },
	};
	static struct gpu_step of[FAKE_MAX_STEPS + 1];
	struct gpu_facts facts = { .steps = of, .n_steps = FAKE_MAX_STEPS };
	struct told *t = *state;

	graph_misses(t);
	t->f->v.gpu = &facts;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[HOW_TEXT];
		struct hows h;

		memset(of, 0, sizeof(of));
		of[cases[i].step].at_least = true;
		h = how(t);
		assert_int_equal(h.n, 1);
		assert_int_equal(h.v[0].busy_at_least, cases[i].some);
		assert_int_equal(h.v[0].all_at_least, cases[i].all);
		assert_non_null(strstr(how_text(&t->f->v, &h.v[0], text, sizeof(text)), cases[i].busy));
		blame__free(t->b);
		t->b = NULL;
	}
}

/* Where each launch was seen, it is known how long they took. */
static void test_how__launches_seen(void **state)
{
	static struct gpu_step of[FAKE_MAX_STEPS];
	struct gpu_facts facts = { .steps = of, .n_steps = FAKE_MAX_STEPS };
	struct told *t = *state;
	struct hows h;

	for (size_t i = 0; i < FAKE_MAX_STEPS; i++)
		of[i].launching_ns = 1185 * 27000;
	t->f->v.gpu = &facts;
	graph_misses(t);
	h = how(t);
	assert_int_equal(h.v[0].graph.launch_ns, 27000);
	assert_false(h.v[0].graph.at_most);
}

/* Four ranks; one of them comes so much later. */
static double ranks(struct told *t, double at, double late)
{
	for (uint16_t rank = 0; rank < 4; rank++) {
		struct tl_gpu_step e = { .rank = rank, .device = rank, .collective_ns = MS(rank == 2 ? 2 : 2 + late),
					 .late_ns = MS(rank == 2 ? late : 0) };

		device_did(t, e, at, at + 14 + late, rank == 2 ? 14 : 14 + late);
	}
	return run(t->f, at, 1, 14 + late, 1);
}

static void test_how__late_rank(void **state)
{
	struct told *t = *state;
	double at = begin(t->f, 1);
	struct hows h;

	for (int i = 0; i < 60; i++)
		at = ranks(t, at, i % 10 == 9 ? 44 : 0);
	h = how(t);
	assert_int_equal(h.n, 1);
	assert_int_equal(h.v[0].late.rank, 2);
	assert_int_equal(h.v[0].late.n_steps, 6);
	assert_int_equal(h.v[0].late.waiting, 1 << 0 | 1 << 1 | 1 << 3);
	assert_int_equal(h.v[0].late.compute_ns, MS(12));
	assert_says(t, &h.v[0], "wait for a late rank: rank 2 came late to collectives in 6 steps: ranks 0, 1, 3 waited 44.0 ms "
		    "for it, moving data took 2.00 ms; computing took 12.0 ms, unchanged (12.0 ms in other steps); that GPUs show "
		    "utilization 100 % meanwhile is the wait: kernels of collectives spin");
}

static void device_was(struct told *t, double t0, double t1, uint32_t mhz, uint32_t why, uint32_t by)
{
	struct tl_gpu_state e = { .hdr = { sizeof(e), TL_GPU_STATE, 0, 0, 0, fake_ns(t1) }, .since_ns = fake_ns(t0),
				  .clock_mhz = mhz, .max_mhz = FULL_MHZ, .why = why, .by_tgid = by, .by_pct = by ? 50 : 0 };

	assert_int_equal(evidence_on(&t->evidence, &e.hdr), 0);
}

/* Both at once: the split is said. */
static void test_how__clock_and_neighbour(void **state)
{
	struct told *t = *state;
	double t0 = begin(t->f, 1), t1 = steps(t, t0, 50, 10, 9.8, replayed), t2 = steps(t, t1, 20, 20, 19.8, replayed),
	       t3 = steps(t, t2, 50, 10, 9.8, replayed);
	struct hows h;

	device_was(t, 0, t1, FULL_MHZ, 0, 0);
	device_was(t, t1, t2, CAPPED_MHZ, TL_GPU_POWER | TL_GPU_NEIGHBOUR, 77);
	device_was(t, t2, t3, FULL_MHZ, 0, 0);
	h = how(t);
	assert_int_equal(h.n, 2);
	assert_int_equal(h.v[0].mechanism, MECH_NEIGHBOUR);
	assert_int_equal(h.v[1].clock.n_both, 20);
	assert_says(t, &h.v[1], "GPU clock lowered: 20 steps of 20.0 ms ran at 1580 instead of 1965 MHz (-19.6 %): decode took "
		    "13.9 % more; in 20 of them there were both a lower clock and a neighbour: the clock's share is by its "
		    "ratio, the rest is the neighbour's");
}

/* A step every 20 ms, and 60 ms to write what it gave, one answer after the other. */
static void backlog(struct told *t)
{
	for (uint32_t i = 0; i < 10; i++)
		answer(t->f, 0);
	for (int k = 0; k < 10; k++) {
		fake_step(t->f, 20 * k, 20 * k + 20);
		for (uint32_t i = 0; i < 10; i++) {
			fake_member(t->f, i, k ? 'd' : 'P', k ? 1 : 4);
			write_at(t->f, i, 20 + 60 * k + 6 * (i + 1));
		}
	}
}

static void test_how__backlog(void **state)
{
	struct told *t = *state;
	struct hows h;

	backlog(t);
	h = how(t);
	assert_int_equal(h.n, 1);
	assert_int_equal(h.v[0].mechanism, MECH_DETOKENIZER);
	assert_int_equal(h.v[0].backlog.n_pending, 7);	/* at 200: the first three are out by 200 */
	assert_int_equal(h.v[0].backlog.step_ns, MS(20));
	assert_int_equal(h.v[0].backlog.out_ns, MS(60));
	assert_int_equal(h.v[0].backlog.written_ns - h.v[0].backlog.made_ns, MS(420));
	assert_says(t, &h.v[0], "detokenizer saturated: the engine gave outputs every 20.0 ms, they were written every 60.0 ms; at "
		    "worst, at 200 ms, those of 7 steps were pending, and the last one was written 420 ms later: neither the GPU "
		    "nor the scheduler is late");
}

static void test_how__nothing_is_wrong(void **state)
{
	struct told *t = *state;

	steps(t, begin(t->f, 1), 50, 10, 9.8, replayed);
	assert_int_equal(how(t).n, 0);
}

static void test_how__survives_no_memory(void **state)
{
	struct told *t = *state;
	struct blame_sum *s;
	struct hows h;
	int err = -1;

	graph_misses(t);
	how(t);
	assert_int_equal(blame_sum__new(t->b, &t->f->v, &s), 0);
	OOM_LOOP({
		err = blame__how(t->b, s, &h);
		assert_true(!err || err == -ENOMEM);
	});
	assert_int_equal(err, 0);
	assert_int_equal(h.n, 1);
	blame_sum__free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(graph_miss), T(busy_beyond_the_step), T(busy_at_least), T(runs_ahead), T(launches_seen), T(late_rank), T(clock_and_neighbour),
		T(backlog), T(nothing_is_wrong), T(survives_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
