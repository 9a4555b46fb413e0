/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a gap: added up by mechanism and culprit, and what happens when there are too many. */
#include "unit.h"
#include "model/blame_priv.h"

#include <string.h>

#define MS 1000000ull

static struct gap *begin(void **state)
{
	struct gap *g = *state;

	gap_begin(g, 0, 1, GAP_WIRE, 1, 0, 1000000 * MS);
	return g;
}

static int set_up(void **state)
{
	*state = calloc(1, sizeof(struct gap));
	return *state ? 0 : -1;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static void add(struct gap *g, enum mechanism m, enum provenance prov, uint64_t ms, uint32_t pid)
{
	struct culprit who = { .type = pid ? WHO_PROCESS : WHO_NOBODY, .id = pid };

	gap_add(g, m, prov, ms * MS, &who, NULL);
}

static uint64_t sum_ms(const struct gap *g, enum mechanism m)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < g->n_parts; i++)
		ns += g->parts[i].mechanism == m ? g->parts[i].ns : 0;
	return ns / MS;
}

/* The part of a process; 0: of nobody. NULL: it has none. */
static const struct blame_part *part_of(const struct gap *g, enum mechanism m, uint32_t pid)
{
	for (size_t i = 0; i < g->n_parts; i++) {
		const struct blame_part *p = &g->parts[i];

		if (p->mechanism == m && p->who.id == pid && (p->who.type == WHO_NOBODY) == !pid)
			return p;
	}
	return NULL;
}

/* Process number i of n took i ms, in some order. */
static void many_processes(struct gap *g, uint32_t n)
{
	for (uint32_t i = 1; i <= n; i++) {
		uint32_t pid = (uint32_t)(37ull * i % (n + 1));

		add(g, MECH_RUN_QUEUE, PROV_OBSERVED, pid, pid);
	}
}

static void test_parts__of_one_culprit_are_one(void **state)
{
	struct gap *g = begin(state);

	add(g, MECH_RUN_QUEUE, PROV_OBSERVED, 3, 7);
	add(g, MECH_RUN_QUEUE, PROV_OBSERVED, 4, 7);
	add(g, MECH_RUN_QUEUE, PROV_OBSERVED, 5, 8);
	add(g, MECH_RUN_QUEUE, PROV_INFERRED, 6, 8);	/* known in another way */
	add(g, MECH_RUN_QUEUE, PROV_OBSERVED, 0, 9);
	assert_int_equal(g->n_parts, 3);
	assert_int_equal(part_of(g, MECH_RUN_QUEUE, 7)->ns, 7 * MS);
	assert_int_equal(part_of(g, MECH_RUN_QUEUE, 8)->ns, 5 * MS);
}

static void test_parts__those_who_did_least_lose_their_names(void **state)
{
	enum { N = 100, BIG = 20 };
	struct gap *g = begin(state);

	add(g, MECH_COMPILE, PROV_OBSERVED, 17000, 5);
	many_processes(g, N);
	assert_true(g->n_parts <= MAX_PARTS);
	assert_int_equal(sum_ms(g, MECH_RUN_QUEUE), N * (N + 1) / 2);
	for (uint32_t pid = N; pid > N - BIG; pid--) {
		assert_non_null(part_of(g, MECH_RUN_QUEUE, pid));
		assert_int_equal(part_of(g, MECH_RUN_QUEUE, pid)->ns, pid * MS);
	}
	assert_non_null(part_of(g, MECH_RUN_QUEUE, 0));
	assert_null(part_of(g, MECH_RUN_QUEUE, 1));
	assert_int_equal(part_of(g, MECH_COMPILE, 5)->ns, 17000 * MS);
}

/* Whatever came before: another mechanism has its part, with who it was. */
static void test_parts__each_mechanism_has_a_place(void **state)
{
	struct gap *g = begin(state);
	int n = 0;

	many_processes(g, 1000);
	for (int m = 0; m < N_MECHANISMS && n < N_MECHANISMS / 2; m++) {
		if (m == MECH_RUN_QUEUE)
			continue;
		add(g, (enum mechanism)m, PROV_OBSERVED, 1, 7);
		n++;
		assert_non_null(part_of(g, (enum mechanism)m, 7));
		assert_int_equal(part_of(g, (enum mechanism)m, 7)->ns, MS);
	}
	assert_true(g->n_parts <= MAX_PARTS);
	assert_int_equal(sum_ms(g, MECH_RUN_QUEUE), 1000 * 1001 / 2);
}

/* Two of each mechanism, and then more of them: nothing is lost, and nothing is added to another one. */
static void test_parts__of_every_mechanism(void **state)
{
	struct gap *g = begin(state);

	for (uint32_t pid = 1; pid <= 3; pid++)
		for (int m = 0; m < N_MECHANISMS; m++)
			add(g, (enum mechanism)m, PROV_OBSERVED, pid, pid);
	assert_true(g->n_parts <= MAX_PARTS);
	for (int m = 0; m < N_MECHANISMS; m++)
		assert_int_equal(sum_ms(g, (enum mechanism)m), 1 + 2 + 3);
}

/* What is added up of several is known as well as the weakest of them. */
static void test_parts__merged_are_as_sure_as_the_weakest(void **state)
{
	struct gap *g = begin(state);

	many_processes(g, 100);
	add(g, MECH_RUN_QUEUE, PROV_INFERRED, 1, 4711);
	for (uint32_t pid = 200; pid < 203; pid++)
		add(g, MECH_RUN_QUEUE, PROV_OBSERVED, 50, pid);
	assert_null(part_of(g, MECH_RUN_QUEUE, 4711));
	assert_int_equal(part_of(g, MECH_RUN_QUEUE, 0)->prov, PROV_INFERRED);
}

/* What its own request did is a reason, but nobody's fault. */
static void test_parts__nobody_slows_himself(void **state)
{
	struct gap *g = begin(state);
	const struct culprit self = { .type = WHO_REQUEST, .id = 0, .name = "compile_grammar" };
	const struct culprit thread = { .type = WHO_THREAD, .id = 0 }, another = { .type = WHO_REQUEST, .id = 1 };

	gap_add(g, MECH_GRAMMAR, PROV_OBSERVED, 3 * MS, &self, NULL);
	gap_add(g, MECH_GIL, PROV_OBSERVED, 4 * MS, &thread, &self);
	gap_add(g, MECH_RECOMPUTE, PROV_OBSERVED, 5 * MS, &another, &self);
	assert_int_equal(g->n_parts, 3);
	assert_int_equal(g->parts[0].who.type, WHO_NOBODY);
	assert_int_equal(g->parts[0].mechanism, MECH_GRAMMAR);
	assert_int_equal(g->parts[1].who.type, WHO_THREAD);
	assert_int_equal(g->parts[2].who.type, WHO_REQUEST);
	for (int i = 0; i < 3; i++)
		assert_int_equal(g->parts[i].root.type, WHO_NOBODY);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(test_parts__of_one_culprit_are_one), T(test_parts__those_who_did_least_lose_their_names),
		T(test_parts__each_mechanism_has_a_place), T(test_parts__of_every_mechanism),
		T(test_parts__merged_are_as_sure_as_the_weakest), T(test_parts__nobody_slows_himself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
