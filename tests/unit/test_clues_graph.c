/* SPDX-License-Identifier: Apache-2.0 */
/* What a step lost because no CUDA graph fitted it, with the numbers of S3; and who launches. */
#include "clues_gpu_feed.h"

#define T(name) cmocka_unit_test_setup_teardown(test_clues_graph__##name, feed_setup, feed_teardown)

static void graph_miss(struct feed *f, uint16_t said)
{
	for (int i = 0; i < 10; i++)
		replay(f, 900 + 10 * i, 910 + 10 * i, 48, 48);
	eager(f, 1000, 1030, 29, 48, TL_GRAPH_NONE, 64);
	eager(f, 1030, 1064, 10, 49, said, 0);
	feed_done(f);
}

static void test_clues_graph__graph_miss(void **state)
{
	struct feed *f = *state;
	const struct clue *k;

	graph_miss(f, TL_GRAPH_MISS);
	struct clue_list l = step_clues(f, 11, 10);
	k = only(&l, MECH_GRAPH_MISS, 24);
	assert_int_equal(k->who.type, WHO_DEVICE);
	assert_string_equal(k->who.name, "batch 49, largest graph 48");
	assert_int_equal(k->prov, PROV_OBSERVED);
	assert_true(clues__step_is_odd(f->c, 11));
	/* with a prefill in it, it never had a graph */
	l = step_clues(f, 10, 10);
	assert_int_equal(l.n, 0);
	assert_false(clues__step_is_odd(f->c, 10));
	l = step_clues(f, 5, 10);
	assert_int_equal(l.n, 0);
	assert_false(clues__step_is_odd(f->c, 5));
}

/* Nobody says, but steps that only decode are replayed, and this one was not. */
static void test_clues_graph__graph_miss_inferred(void **state)
{
	struct feed *f = *state;

	graph_miss(f, TL_GRAPH_NONE);
	struct clue_list l = step_clues(f, 11, 10);
	only(&l, MECH_GRAPH_MISS, 24);
	assert_int_equal(l.v[0].prov, PROV_INFERRED);
}

/* The trap: 33 padded to 48 take 10.0 instead of 8.4. */
static void test_clues_graph__padding(void **state)
{
	struct feed *f = *state;
	const struct clue *k;

	for (int i = 0; i < 10; i++)
		replay(f, 900 + 8.4 * i, 908.4 + 8.4 * i, 32, 32);
	replay(f, 1000, 1010, 33, 48);
	feed_done(f);
	struct clue_list l = step_clues(f, 10, 8.4);
	k = only(&l, MECH_PADDING, 1.6);
	assert_string_equal(k->who.name, "batch 33 padded to 48");
	l = step_clues(f, 10, 0);	/* the graphs themselves tell what fits */
	only(&l, MECH_PADDING, 1.6);
	assert_true(clues__step_is_odd(f->c, 10));
}

/* Padding that costs next to nothing is how steps are. */
static void test_clues_graph__padding_for_free(void **state)
{
	struct feed *f = *state;

	replay(f, 900, 908.4, 32, 32);
	replay(f, 910, 918.5, 33, 48);
	feed_done(f);
	assert_false(clues__step_is_odd(f->c, 1));
}

/* Padded steps like it, and one that something held up: no longer than the others for being padded. */
static void test_clues_graph__padding_of_a_step_that_stood(void **state)
{
	struct feed *f = *state;
	struct tl_gpu_step e = gpu(2000, 2600, 0);

	for (int i = 0; i < 10; i++)
		replay(f, 900 + 8.4 * i, 908.4 + 8.4 * i, 32, 32);
	for (int i = 0; i < 8; i++)
		replay(f, 1000 + 10 * i, 1010 + 10 * i, 33, 48);
	e.graph = TL_GRAPH_PADDED;
	e.launches = e.graph_launches = 1;
	e.batch = 33;
	e.padded_to = 48;
	FEED(f, e);
	feed_step(f, 2000, 2600, 33, 0);
	feed_done(f);
	struct clue_list l = step_clues(f, 18, 8.4);
	only(&l, MECH_PADDING, 1.6);
	assert_true(clues__step_is_odd(f->c, 18));
}

/* The only one of its size. What the device did is the bound; nor can a batch cost more than it is larger. */
static void padded_alone(struct feed *f, double busy)
{
	struct tl_gpu_step e = gpu(2000, 2600, busy);

	for (int i = 0; i < 10; i++)
		replay(f, 900 + 8.4 * i, 908.4 + 8.4 * i, 32, 32);
	e.graph = TL_GRAPH_PADDED;
	e.launches = e.graph_launches = 1;
	e.batch = 32;
	e.padded_to = 48;
	FEED(f, e);
	feed_step(f, 2000, 2600, 32, 0);
	feed_done(f);
}

static void test_clues_graph__padding_within_what_the_device_did(void **state)
{
	struct feed *f = *state;

	padded_alone(f, 9.8);
	struct clue_list l = step_clues(f, 10, 8.4);
	only(&l, MECH_PADDING, 1.6);
}

static void test_clues_graph__padding_within_its_batch(void **state)
{
	struct feed *f = *state;

	padded_alone(f, 0);
	struct clue_list l = step_clues(f, 10, 8.4);
	only(&l, MECH_PADDING, 4.2);
}

/* Eager steps take 30; what one takes beyond twice that is not for want of a graph. */
static void test_clues_graph__graph_miss_of_a_step_that_stood(void **state)
{
	struct feed *f = *state;

	for (int i = 0; i < 10; i++)
		replay(f, 900 + 10 * i, 910 + 10 * i, 48, 48);
	for (int i = 0; i < 4; i++)
		eager(f, 1000 + 30 * i, 1030 + 30 * i, 8, 49, TL_GRAPH_MISS, 0);
	eager(f, 2000, 2600, 8, 49, TL_GRAPH_MISS, 0);
	feed_done(f);
	struct clue_list l = step_clues(f, 14, 10);
	only(&l, MECH_GRAPH_MISS, 50);
	l = step_clues(f, 13, 10);
	only(&l, MECH_GRAPH_MISS, 20);
}

/* A step that is launched while the one before it runs is as long as it adds to that. */
static void test_clues_graph__steps_that_run_ahead(void **state)
{
	struct feed *f = *state;

	for (int i = 0; i < 20; i++) {
		struct tl_gpu_step e = gpu(1010 + 10 * i, 1020 + 10 * i, 9.8);

		e.launches = e.graph_launches = 1;
		e.batch = 33;
		e.padded_to = 48;
		e.graph = TL_GRAPH_PADDED;
		FEED(f, e);
		feed_step(f, 1000 + 10 * i, 1020 + 10 * i, 33, 0);
	}
	feed_done(f);
	assert_int_equal(step_clues(f, 10, 10).n, 0);
}

/* ---- who launches ---- */

static void launches(struct feed *f, uint32_t tid, double t0, int n)
{
	for (int i = 0; i < n; i++) {
		struct tl_gpu_launch e = { .hdr = FEED_HDR(e, TL_GPU_LAUNCH, 0, FEED_CORE, tid, at(t0 + i)),
					   .dur_ns = 2000, .n = 1, .call = TL_CALL_KERNEL };

		FEED(f, e);
	}
}

/* Nobody knows what a thread is there for, but it launches: steps stand still when it does. One that launches now and
 * then is not waited for. */
static void test_clues_graph__thread_that_launches(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, 203, 1000, 1600, TL_SPAN_SLEEP);

	feed_thread(f, FEED_CORE, 203, TL_ROLE_OTHER, -1, "worker");
	feed_thread(f, FEED_CORE, 204, TL_ROLE_OTHER, -1, "other");
	launches(f, 203, 100, 90);
	launches(f, 204, 200, 10);
	s.wait = TL_WAIT_STOPPED;
	FEED(f, s);
	s = feed_span_of(FEED_CORE, 204, 2000, 2600, TL_SPAN_SLEEP);
	s.wait = TL_WAIT_STOPPED;
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 900, 1700);
	only(&l, MECH_STOPPED, 600);
	l = engine_clues(f, 1900, 2700);
	assert_int_equal(l.n, 0);
}

/* What else is known comes before padding, and leaves it what it costs. */
static void test_clues_graph__neighbour_then_padding(void **state)
{
	struct feed *f = *state;
	struct clue_list l;

	states(f, FULL_MHZ, TL_GPU_NEIGHBOUR);
	for (int i = 0; i < 10; i++)
		replay(f, 100 + 8.4 * i, 108.4 + 8.4 * i, 32, 32);
	for (int i = 0; i < 8; i++)
		replay(f, 200 + 10 * i, 210 + 10 * i, 33, 48);
	replay(f, 1500, 1520, 33, 48);
	feed_done(f);
	l = step_clues(f, 18, 8.4);
	assert_int_equal(l.n, 2);
	assert_int_equal(l.v[0].mechanism, MECH_NEIGHBOUR);
	assert_int_equal(l.v[0].ns, len(10));
	assert_int_equal(l.v[1].mechanism, MECH_PADDING);
	assert_int_equal(l.v[1].ns, len(1.6));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(graph_miss), T(graph_miss_inferred), T(padding), T(padding_for_free), T(padding_of_a_step_that_stood),
		T(padding_within_what_the_device_did), T(padding_within_its_batch), T(neighbour_then_padding),
		T(graph_miss_of_a_step_that_stood), T(steps_that_run_ahead), T(thread_that_launches),
	};

	return cmocka_run_group_tests_name("clues_graph", tests, NULL, NULL);
}
