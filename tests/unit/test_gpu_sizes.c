/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of graphs are not told: what they ran says when a replay is of its batch, of a larger one, or either. */
#include "gpu_feed.h"

struct replayed {
	int exec;
	uint16_t batch, want;	/* enum tl_graph */
	bool sized;
};
static const struct sizes_case {
	const char *name;
	struct replayed steps[8];	/* until one has no batch */
} cases[] = {
	{ "one size all the time", { { 1, 5, TL_GRAPH_HIT, false }, { 1, 5, TL_GRAPH_HIT, false } } },
	{ "one size each, far apart", { { 1, 3, TL_GRAPH_HIT, false }, { 2, 7, TL_GRAPH_HIT, false } } },
	{ "one size each, all there are", { { 1, 5, TL_GRAPH_HIT, true }, { 2, 6, TL_GRAPH_HIT, true }, { 3, 7, TL_GRAPH_HIT, false } } },
	{ "sizes that nobody captures", { { 1, 3, TL_GRAPH_PADDED, true }, { 1, 4, TL_GRAPH_HIT, true }, { 2, 5, TL_GRAPH_HIT, true },
					  { 3, 6, TL_GRAPH_PADDED, false }, { 3, 7, TL_GRAPH_HIT, false } } },
	{ "sizes that are captured", { { 4, 4, TL_GRAPH_HIT, true }, { 4, 3, TL_GRAPH_PADDED, true }, { 8, 7, TL_GRAPH_PADDED, true },
				       { 16, 16, TL_GRAPH_HIT, true } } },
};

enum { TIMES = 4 };		/* that all of them run, one after the other */

static int n_steps(const struct sizes_case *c)
{
	int n = 0;

	while (c->steps[n].batch)
		n++;
	return n;
}

static void feed_case(struct gpu_feed *f, const struct sizes_case *c)
{
	feed_engine(f, PID, PID);
	feed_process(f, PID, 0);
	feed_eager(f, -1, 10);	/* whose begin nobody saw */
	feed_step(f, -1, 0.5, 2, 0);
	for (int i = 0; i < TIMES * n_steps(c); i++) {
		const struct replayed *s = &c->steps[i % n_steps(c)];
		double t = 10 + 10 * i;

		feed_replay(f, t, t + 0.1, (uint64_t)s->exec);
		feed_step(f, t - 0.1, t + 3, s->batch, 0);
	}
	gpu_feed_done(f);
}

static void test_gpu_sizes__cases(void **state)
{
	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		struct gpu_feed f = gpu_feed_new();

		assert_non_null(f.m);
		feed_case(&f, &cases[k]);
		for (int i = 0; i < TIMES * n_steps(&cases[k]); i++) {
			const struct replayed *s = &cases[k].steps[i % n_steps(&cases[k])];
			const struct tl_gpu_step *e = &f.v.evidence->gpu_steps.v[i];

			assert_int_equal(e->batch, s->batch);
			if (STEP(&f, i + 1)->graph != s->want || STEP(&f, i + 1)->sized != s->sized ||
			    (s->want == TL_GRAPH_HIT && e->padded_to != (s->sized ? s->batch : 0)))
				fail_msg("%s: step %d has graph %u, sized %d, padded to %u", cases[k].name, i,
					 STEP(&f, i + 1)->graph, STEP(&f, i + 1)->sized, e->padded_to);
		}
		gpu_feed_free(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu_sizes__cases),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
