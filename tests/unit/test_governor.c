/* SPDX-License-Identifier: Apache-2.0 */
/* The governor, before a server whose library follows its orders and whose costs are as each test wants them. */
#include "unit.h"

#include "engine/governor.h"

#include <string.h>

#define MS 1000000ull
#define S 1000000000ull

struct server {
	struct governor g;
	uint64_t now, gap_ns, window_end, next_gap;
	uint64_t own_ppm, own_now_ppm; /* of the time in a window; whether or not one is open */
	uint32_t slower_pct; /* gaps in windows */
	uint32_t records_per_look, dropped_per_look;
	uint64_t free_bytes;
	bool idle, refused, deaf; /* deaf: windows do not open */
	enum tl_gpu_trouble trouble;
	uint32_t noise; /* percent of each gap, up or down */
	/* what came of it */
	uint64_t open_ns, n_opened;
	uint32_t n_changes, window_ms;
	struct governor_order last, taint;
	uint32_t n_tainted;
	uint64_t changed_ns;
};

static void init(struct server *s, enum tl_gpu_level wanted, uint32_t budget_ppm)
{
	struct governor_opts o = { .wanted = wanted, .budget_ppm = budget_ppm };

	*s = (struct server){ .now = 1000 * S, .gap_ns = 10 * MS, .records_per_look = 1000 };
	s->next_gap = s->now;
	governor__init(&s->g, &o, s->now);
}

static bool is_open(const struct server *s)
{
	return s->now < s->window_end;
}

static void obey(struct server *s, const struct governor_order *o)
{
	if (o->what == GOVERNOR_OPEN && !s->deaf) {
		s->window_end = s->now + o->window_ms * MS;
		s->window_ms = o->window_ms;
		s->n_opened++;
	}
	if (o->what == GOVERNOR_CLOSE)
		s->window_end = 0;
	if (o->tainted) {
		s->n_tainted++;
		s->taint = *o;
	}
	if (o->changed) {
		s->n_changes++;
		s->last = *o;
		s->changed_ns = s->now;
	}
}

/* Runs for so long, or until a level is changed. */
static void run_for(struct server *s, uint64_t ns, bool until_change)
{
	uint64_t end = s->now + ns;
	uint32_t n = s->n_changes;

	while (s->now < end && (!until_change || s->n_changes == n)) {
		struct governor_look l = { .refused = s->refused,
					   .trouble = s->trouble,
					   .busy = !s->idle,
					   .free_bytes = s->free_bytes };
		struct governor_order o;
		bool open = is_open(s);

		for (; !s->idle && s->next_gap < s->now + 100 * MS;) {
			uint64_t gap = s->gap_ns + (open ? s->gap_ns * s->slower_pct / 100 : 0);

			gap += gap * s->noise / 100 * ((s->next_gap / 7) % 3) -
			       gap * s->noise / 100;
			governor__gap(&s->g, s->next_gap, s->next_gap + gap);
			s->next_gap += gap;
		}
		s->now += 100 * MS;
		if (s->next_gap < s->now)
			s->next_gap = s->now;
		s->open_ns += open ? 100 * MS : 0;
		l.now_ns = s->now;
		l.open = is_open(s);
		l.own_ns = (open ? s->own_ppm : 0) * (100 * MS) / 1000000;
		l.probes_ns = s->own_now_ppm * (100 * MS) / 1000000;
		l.records = open ? s->records_per_look : 0;
		l.dropped = open ? s->dropped_per_look : 0;
		governor__look(&s->g, &l, &o);
		obey(s, &o);
	}
}

/* How much of the time a window was open, in parts of a thousand. */
static uint64_t duty(struct server *s, uint64_t ns)
{
	uint64_t before = s->open_ns;

	run_for(s, ns, false);
	return (s->open_ns - before) * 1000 / ns;
}

static void test_windows_keep_the_budget(void **state)
{
	static const struct {
		uint64_t own_ppm, at_least, at_most;
	} rows[] = {
		{ 0, 600, 700 }, /* pauses of a second, whatever they cost */
		{ 20000, 400, 500 }, /* 2 % in windows, 1 % allowed */
		{ 50000, 170, 210 },
		{ 200000, 40, 60 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct server s;
		uint64_t d;

		init(&s, TL_GPU_KERNELS, 0);
		s.own_ppm = rows[i].own_ppm;
		run_for(&s, 30 * S, false);
		d = duty(&s, 600 * S);
		assert_in_range(d, rows[i].at_least, rows[i].at_most);
		assert_int_equal(s.g.level, TL_GPU_KERNELS);
		assert_int_equal(s.window_ms, 2000);
	}
}

static void test_without_a_budget_windows_follow_each_other(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 1000000);
	s.own_ppm = 900000;
	s.slower_pct = 300;
	assert_in_range(duty(&s, 60 * S), 850, 1000);
	assert_int_equal(s.n_changes, 0);
}

static void test_windows_are_rare_while_clients_are_not_heard(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.next_gap = UINT64_MAX; /* no chunks */
	assert_in_range(duty(&s, 600 * S), 200, 260);
	assert_int_equal(governor__drift_ppm(&s.g, s.now), -1);
}

static void test_what_clients_see_counts(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.slower_pct = 10;
	run_for(&s, 60 * S, false);
	assert_in_range(governor__drift_ppm(&s.g, s.now), 90000, 100000);
	assert_in_range(duty(&s, 600 * S), 80, 125);
	assert_int_equal(s.n_changes, 0);
}

static void test_noise_is_no_drift(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.noise = 20;
	run_for(&s, 120 * S, false);
	assert_int_equal(governor__drift_ppm(&s.g, s.now), 0);
	assert_int_equal(s.n_changes, 0);
}

static void test_too_dear_by_what_clients_see(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.slower_pct = 64;
	run_for(&s, 60 * S, true);
	assert_int_equal(s.n_changes, 1);
	assert_int_equal(s.n_opened, 1); /* once is enough */
	assert_int_equal(s.last.level, TL_GPU_GRAPH);
	assert_int_equal(s.last.trouble, TL_GPU_BUDGET);
	assert_string_equal(
		s.last.why,
		"kernels -> graph: it costs 63.5 % of the server's speed while it lasts, "
		"allowed is 1.0 %");
	assert_string_equal(s.last.why + s.last.reason_at,
			    "it costs 63.5 % of the server's speed while it lasts, allowed is 1.0 %");
	/* what is tainted is the window, not the time when that was found out */
	assert_true(s.last.tainted);
	assert_int_equal(s.last.cost_ppm / 1000, 635);
	assert_true(s.last.until_ns - s.last.since_ns >= 1900 * MS && s.last.until_ns - s.last.since_ns <= 2100 * MS);
	assert_true(s.last.since_ns < s.changed_ns - 1900 * MS);
}

/* Whoever allows all of it still has to know what was measured meanwhile; and whoever allows little, of a window
 * that pauses make up for. */
static void test_taints(void **state)
{
	static const struct { uint32_t budget_ppm, slower_pct; uint64_t own_ppm; uint32_t least_ppm; } rows[] = {
		{ 1000000, 50, 0, 400000 }, { 1000000, 0, 60000, 59000 }, { 0, 0, 15000, 14000 }, { 30000, 0, 40000, 39000 },
		{ 1000000, 0, 40000, 0 }, { 0, 0, 9000, 0 }, { 30000, 0, 20000, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct server s;

		init(&s, TL_GPU_KERNELS, rows[i].budget_ppm);
		s.slower_pct = rows[i].slower_pct;
		s.own_ppm = rows[i].own_ppm;
		s.idle = true;		/* so that there is something to compare with */
		run_for(&s, S, false);
		s.idle = false;
		run_for(&s, 60 * S, false);
		assert_int_equal(s.n_changes, 0);
		assert_int_equal(s.n_tainted > 0, rows[i].least_ppm > 0);
		if (!rows[i].least_ppm)
			continue;
		assert_true(s.taint.cost_ppm >= rows[i].least_ppm);
		assert_true(s.taint.until_ns - s.taint.since_ns >= 1900 * MS);
		assert_true(s.taint.until_ns - s.taint.since_ns <= 2100 * MS);
	}
}

/* What clients saw of a window may be known only when nobody looks any more. */
static void test_taints_at_the_end(void **state)
{
	for (uint32_t slower = 0; slower <= 50; slower += 50) {
		struct governor_order o;
		struct server s;

		(void)state;
		init(&s, TL_GPU_KERNELS, 0);
		s.slower_pct = slower;
		run_for(&s, 7 * S, false);	/* a window, and most of the pause behind it */
		assert_int_equal(s.n_opened, 1);
		assert_int_equal(s.n_tainted, 0);
		governor__end(&s.g, s.now, &o);
		assert_int_equal(o.tainted, slower > 0);
		assert_false(o.changed);
		if (slower)
			assert_true(o.cost_ppm > 400000 && o.until_ns - o.since_ns <= 2100 * MS);
	}
}

/* Graphs are recorded all the time: three seconds in a row, if all is allowed. */
static void test_taints_by_the_second(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_GRAPH, 1000000);
	s.own_ppm = 40000;
	run_for(&s, 20 * S, false);
	assert_int_equal(s.n_tainted, 0);
	s.own_ppm = 80000;
	run_for(&s, 20 * S, false);
	assert_int_equal(s.n_changes, 0);
	assert_true(s.n_tainted >= 10);
	assert_true(s.taint.cost_ppm >= 75000);
}

/* Graphs have no pauses to compare with: more load later is not taken for what they cost. */
static void test_more_load_is_no_cost_of_graphs(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_GRAPH, 0);
	s.noise = 3;
	run_for(&s, 10 * S, false);
	for (int i = 0; i < 3; i++) {
		uint64_t n_opened = s.n_opened;

		s.gap_ns += s.gap_ns / 2;
		assert_in_range(duty(&s, 60 * S), 930, 960);	/* it was put on trial once ... */
		assert_int_equal(s.n_opened, n_opened + 1);
	}
	assert_int_equal(s.n_changes, 0);	/* ... and acquitted */
	assert_int_equal(s.n_tainted, 0);
	/* Load that comes and goes does not have it on trial for ever. */
	for (int i = 0; i < 60; i++) {
		s.gap_ns = i & 1 ? 30 * MS : 10 * MS;
		run_for(&s, 20 * S, false);
	}
	assert_int_equal(s.n_changes, 0);
	assert_in_range(s.n_opened, 5, 12);
}

/* All is allowed: nothing is missed for a trial, though gaps before the first window can be compared with. */
static void test_no_trial_where_the_cost_does_not_matter(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_GRAPH, 1000000);
	s.deaf = true;
	run_for(&s, 5 * S, false);	/* ordered, and not open yet */
	s.deaf = false;
	run_for(&s, 70 * S, false);
	assert_int_equal(s.n_opened, 1);
	s.gap_ns *= 2;
	assert_int_equal(duty(&s, 60 * S), 1000);
	assert_int_equal(s.n_changes, 0);
	assert_int_equal(s.n_tainted, 0);
}

static void test_graphs_that_slow_clients_down(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_GRAPH, 0);
	s.slower_pct = 20;
	s.noise = 3;
	run_for(&s, 30 * S, true);
	assert_int_equal(s.last.level, TL_GPU_LAUNCHES);
	assert_int_equal(s.last.trouble, TL_GPU_BUDGET);
	assert_true(s.last.tainted);
	assert_in_range(s.last.cost_ppm, 120000, 210000);
	assert_true(s.changed_ns - 1000 * S < 15 * S);
	assert_int_equal(s.n_opened, 2);
}

static void test_too_dear_by_its_own_time_ends_the_window_at_once(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.own_ppm = 900000;
	run_for(&s, 60 * S, true);
	assert_int_equal(s.last.level, TL_GPU_GRAPH);
	assert_int_equal(s.last.what, GOVERNOR_CLOSE);
	assert_true(s.open_ns < S);
}

static void test_graphs_are_recorded_all_the_time(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_GRAPH, 0);
	s.own_ppm = 5000;
	run_for(&s, 3 * S, false);
	assert_in_range(duty(&s, 3000 * S), 999, 1000);
	assert_in_range(s.n_opened, 5, 7); /* each lasts ten minutes */
	assert_int_equal(s.n_changes, 0);
}

static void test_dear_graphs_and_probes_go(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_GRAPH, 0);
	s.own_ppm = 20000;
	run_for(&s, 60 * S, true);
	assert_int_equal(s.last.level, TL_GPU_LAUNCHES);
	assert_int_equal(s.last.trouble, TL_GPU_BUDGET);
	s.own_now_ppm = 500000;
	run_for(&s, 60 * S, true);
	assert_int_equal(s.last.level, TL_GPU_OFF);
	assert_false(is_open(&s));
	/* One busy second is no reason, unless it is much. */
	init(&s, TL_GPU_LAUNCHES, 0);
	s.own_now_ppm = 20000;
	run_for(&s, 2 * S, false);
	s.own_now_ppm = 0;
	run_for(&s, 10 * S, false);
	assert_int_equal(s.n_changes, 0);
}

static void test_up_again_not_more_than_once_a_minute(void **state)
{
	struct server s;
	uint64_t last, ups = 0, downs = 0, wait = 60 * S;

	(void)state;
	init(&s, TL_GPU_GRAPH, 0);
	s.own_ppm = 50000;
	for (int i = 0; i < 12; i++) {
		enum tl_gpu_level before = s.g.level;

		last = s.changed_ns;
		run_for(&s, 3600 * S, true);
		if (s.last.level > before) {
			ups++;
			assert_true(s.changed_ns - last >= wait);
			wait = wait < 960 * S ? 2 * wait : wait;
			assert_int_equal(s.last.trouble, TL_GPU_FINE);
			assert_non_null(
				strstr(s.last.why, "launches -> graph: tried again after "));
		} else {
			downs++;
		}
	}
	assert_int_equal(ups, 6);
	assert_int_equal(downs, 6);
}

static void test_lost_records(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.dropped_per_look = 10; /* one in a hundred */
	run_for(&s, 60 * S, false);
	assert_int_equal(s.n_changes, 0);
	s.dropped_per_look = 100;
	run_for(&s, 60 * S, true);
	assert_int_equal(s.last.level, TL_GPU_GRAPH);
	assert_int_equal(s.last.trouble, TL_GPU_FINE);
	assert_non_null(strstr(s.last.why, "records were lost"));
}

static void test_device_memory(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.free_bytes = 4ull << 30;
	run_for(&s, 10 * S, false);
	s.free_bytes = 3ull << 30; /* much is left */
	run_for(&s, 10 * S, false);
	assert_int_equal(s.n_changes, 0);
	s.free_bytes = 1ull << 30;
	run_for(&s, 10 * S, true);
	assert_int_equal(s.last.level, TL_GPU_GRAPH);
	assert_string_equal(s.last.why,
			    "kernels -> graph: free device memory fell by 3072 MB to 1024 MB");
}

/* However little changed: what CUPTI takes may be what the server needs next. */
static void test_little_device_memory(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.free_bytes = 300ull << 20;
	run_for(&s, 10 * S, false);
	assert_int_equal(s.n_changes, 0);
	s.free_bytes = 200ull << 20;
	run_for(&s, 10 * S, true);
	assert_int_equal(s.last.level, TL_GPU_LAUNCHES);
	assert_int_equal(s.last.trouble, TL_GPU_FINE);	/* it did not cost speed */
	assert_false(s.last.tainted);
	assert_string_equal(s.last.why, "kernels -> launches: 200 MB of device memory are free, and CUPTI takes some");
	run_for(&s, 3600 * S, false);	/* not tried again as long as that is so */
	assert_int_equal(s.n_changes, 1);
	s.free_bytes = 2ull << 30;
	run_for(&s, 10 * S, true);
	assert_int_equal(s.last.level, TL_GPU_GRAPH);
}

static void test_many_kernels(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.records_per_look = 100000;
	run_for(&s, 3600 * S, true);
	assert_int_equal(s.last.level, TL_GPU_GRAPH);
	assert_string_equal(
		s.last.why,
		"kernels -> graph: 20 million kernels were recorded, and CUPTI may keep device "
		"memory of each");
	run_for(&s, 3600 * S, false);
	assert_int_equal(s.n_changes, 1); /* it is not tried again */
	init(&s, TL_GPU_KERNELS, 1000000);
	s.records_per_look = 1000000;
	run_for(&s, 60 * S, false);
	assert_int_equal(s.n_changes, 0);
}

static void test_refused(void **state)
{
	static const struct {
		enum tl_gpu_trouble trouble;
		bool for_good;
		const char *why;
	} rows[] = {
		{ TL_GPU_BROKEN, true, "kernels -> launches: launches gave no records" },
		{ TL_GPU_BAD_STAMPS, true, "kernels -> launches: impossible times" },
		{ TL_GPU_FINE, true, "kernels -> launches: no records can be had" },
		{ TL_GPU_BUSY, false, "kernels -> launches: somebody else holds what is needed" },
		{ 77, true, "kernels -> launches: no records can be had" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct server s;

		init(&s, TL_GPU_KERNELS, 0);
		run_for(&s, 1500 * MS, false);
		s.refused = true;
		s.trouble = rows[i].trouble;
		s.window_end = 0;
		run_for(&s, S, true);
		assert_int_equal(s.last.level, TL_GPU_LAUNCHES);
		assert_int_equal(s.last.trouble,
				 rows[i].trouble <= TL_GPU_BUDGET ? rows[i].trouble : TL_GPU_FINE);
		assert_string_equal(s.last.why, rows[i].why);
		s.refused = false; /* the other one has gone */
		s.trouble = TL_GPU_FINE;
		run_for(&s, 600 * S, false);
		assert_int_equal(s.g.level, rows[i].for_good ? TL_GPU_LAUNCHES : TL_GPU_KERNELS);
	}
}

static void test_no_window_of_an_idle_server(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.idle = true;
	run_for(&s, 600 * S, false);
	assert_int_equal(s.n_opened, 0);
	s.idle = false;
	run_for(&s, S, false);
	assert_int_equal(s.n_opened, 1);
}

static void test_a_window_that_does_not_open_is_ordered_again(void **state)
{
	struct server s;

	(void)state;
	init(&s, TL_GPU_KERNELS, 0);
	s.deaf = true;
	run_for(&s, 60 * S, false);
	s.deaf = false;
	run_for(&s, 60 * S, false);
	assert_in_range(s.n_opened, 1, 20);
}

static void test_a_window_between_two_looks(void **state)
{
	struct governor_opts o = { .wanted = TL_GPU_KERNELS };
	struct governor_look l = { .now_ns = 10 * S, .busy = true };
	struct governor_order order;
	struct governor g;

	(void)state;
	governor__init(&g, &o, 8 * S);
	governor__look(&g, &l, &order);
	assert_int_equal(order.what, GOVERNOR_OPEN);
	l.now_ns += 100 * MS;
	l.records = 200000; /* it was full at once */
	governor__look(&g, &l, &order);
	l.now_ns += 100 * MS;
	l.records = 0;
	governor__look(&g, &l, &order);
	for (int i = 0; i < 20 && order.what != GOVERNOR_OPEN; i++) {
		l.now_ns += 100 * MS;
		governor__look(&g, &l, &order);
	}
	assert_int_equal(order.what, GOVERNOR_OPEN);
	assert_int_equal(g.n_windows, 1);
}

static void test_what_is_left_of_a_window(void **state)
{
	struct governor_opts o = { .wanted = TL_GPU_KERNELS };
	struct governor_look l = { .now_ns = 10 * S, .busy = true };
	struct governor_order order;
	struct governor g;

	(void)state;
	governor__init(&g, &o, 8 * S);
	assert_int_equal(governor__window_ms(&g, 8 * S), 0);
	governor__look(&g, &l, &order);
	assert_int_equal(governor__window_ms(&g, 11 * S), 2000); /* ordered: it begins when it is open */
	l.now_ns = 12 * S;
	l.open = true;
	governor__look(&g, &l, &order);
	assert_int_equal(governor__window_ms(&g, 12 * S), 2000);
	assert_int_equal(governor__window_ms(&g, 12 * S + 500 * MS), 1500);
	assert_int_equal(governor__window_ms(&g, 15 * S), 0); /* it is late to close */
	l.now_ns = 14 * S;
	l.open = false;
	governor__look(&g, &l, &order);
	assert_int_equal(governor__window_ms(&g, 14 * S), 0);
	o.wanted = TL_GPU_GRAPH;
	o.budget_ppm = 1000000;
	governor__init(&g, &o, 8 * S);
	l.now_ns = 9 * S;
	governor__look(&g, &l, &order);
	l.open = true;
	governor__look(&g, &l, &order);
	assert_int_equal(governor__window_ms(&g, 309 * S), 300000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_windows_keep_the_budget),
		cmocka_unit_test(test_without_a_budget_windows_follow_each_other),
		cmocka_unit_test(test_windows_are_rare_while_clients_are_not_heard),
		cmocka_unit_test(test_what_clients_see_counts),
		cmocka_unit_test(test_noise_is_no_drift),
		cmocka_unit_test(test_taints), cmocka_unit_test(test_taints_at_the_end), cmocka_unit_test(test_taints_by_the_second),
		cmocka_unit_test(test_too_dear_by_what_clients_see),
		cmocka_unit_test(test_more_load_is_no_cost_of_graphs),
		cmocka_unit_test(test_no_trial_where_the_cost_does_not_matter),
		cmocka_unit_test(test_graphs_that_slow_clients_down),
		cmocka_unit_test(test_too_dear_by_its_own_time_ends_the_window_at_once),
		cmocka_unit_test(test_graphs_are_recorded_all_the_time),
		cmocka_unit_test(test_dear_graphs_and_probes_go),
		cmocka_unit_test(test_up_again_not_more_than_once_a_minute),
		cmocka_unit_test(test_lost_records),
		cmocka_unit_test(test_device_memory),
		cmocka_unit_test(test_little_device_memory),
		cmocka_unit_test(test_many_kernels),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_no_window_of_an_idle_server),
		cmocka_unit_test(test_a_window_that_does_not_open_is_ordered_again),
		cmocka_unit_test(test_what_is_left_of_a_window),
		cmocka_unit_test(test_a_window_between_two_looks),
	};

	return cmocka_run_group_tests_name("governor", tests, NULL, NULL);
}
