/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs with very many of everything, as no capture has it but a crafted file may: each is found all the same. Of most of
 * these there are so many that nobody would wait for a search through all of them, for each of them. */
#include "gpu_feed.h"

#include "model/at_work.h"
#include "model/clues.h"
#include "model/servers.h"

enum { N = 300000 };

static struct gpu_feed start(void)
{
	struct gpu_feed f = gpu_feed_new();

	assert_non_null(f.m);
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	return f;
}

/* i-th microsecond, in the ms that feeds take */
static double us(int i)
{
	return i * 0.001;
}

/* All launches and all records have one id: each record is of the last launch before it. */
static void test_gpu_crowd__of_one_id(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	for (int i = 0; i < N; i++) {
		struct tl_gpu_launch l = launch_of(&f, us(2 * i + N), TL_CALL_KERNEL, 7);
		struct tl_gpu_span early = span_of(&f, us(i) / 2, us(i) / 2, TL_SPAN_KERNEL, 7);

		FEED(&f, l);
		FEED(&f, early);	/* before any launch: of none */
	}
	for (int i = 0; i < 1000; i++) {
		struct tl_gpu_span s = span_of(&f, us(3 * N + i), us(3 * N + i + 1), TL_SPAN_KERNEL, 7);

		FEED(&f, s);
	}
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->counts.launches, N);
	assert_int_equal(f.v.gpu->counts.spans, N + 1000);
	assert_int_equal(f.v.gpu->counts.spans_joined, 1000);
	gpu_feed_free(&f);
}

/* Records without an id, on a stream of which most launches have theirs, behind launches of another stream. */
static void test_gpu_crowd__of_launches_before_one_that_is_free(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	for (int i = 0; i < N; i++) {
		struct tl_gpu_launch l = launch_of(&f, us(i), TL_CALL_KERNEL, 1000 + i), other = l;
		struct tl_gpu_span s = span_of(&f, us(2 * N + i), us(2 * N + i + 1), TL_SPAN_KERNEL, 1000 + i);

		other.stream = STREAM + 1;
		other.corr = 1000000 + i;
		FEED(&f, other);
		FEED(&f, l);
		FEED(&f, s);
	}
	for (int i = 0; i < N; i++) {	/* graphs, of which none was launched; and one kernel that was */
		struct tl_gpu_span s = span_of(&f, us(3 * N + i + 1), us(3 * N + i + 2), TL_SPAN_GRAPH, 0);

		FEED(&f, s);
	}
	struct tl_gpu_launch l = launch_of(&f, us(4 * N + 5), TL_CALL_KERNEL, 0);
	struct tl_gpu_span s = span_of(&f, us(4 * N + 6), us(4 * N + 7), TL_SPAN_KERNEL, 0);

	FEED(&f, l);
	FEED(&f, s);
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->counts.spans_joined, N + 1);
	assert_int_equal(f.v.gpu->counts.by_order, 1);
	gpu_feed_free(&f);
}

/* Names beyond what is listed, and the same ones again from other processes. */
static void test_gpu_crowd__of_names(void **state)
{
	enum { NAMES = 60000, LISTED = 4096 };
	struct gpu_feed f = start();
	char name[40];

	(void)state;
	for (uint32_t p = 0; p < 2; p++) {
		f.tgid = PID + p;
		for (uint32_t i = 0; i < NAMES; i++) {
			snprintf(name, sizeof(name), "kernel_%u", i);
			feed_name(&f, 10 + i, name);
			feed_kernel(&f, us(3 * i), us(3 * i + 1), us(3 * i + 2), 10 + i);
		}
	}
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->n_kernels, LISTED);
	for (size_t i = 0; i < f.v.gpu->n_kernels; i++) {
		unsigned int number;

		assert_int_equal(sscanf(f.v.gpu->kernels[i].name, "kernel_%u", &number), 1);
		assert_true(number < LISTED);	/* the first ones */
		assert_int_equal(f.v.gpu->kernels[i].n, 2);
	}
	gpu_feed_free(&f);
}

/* A chain of processes: each is of the server that the first one was started by; launches take turns. */
static void test_gpu_crowd__of_processes(void **state)
{
	enum { KIN = 60000, PROCESSES = 1024, FIRST = 100000 };
	struct gpu_feed f = gpu_feed_new();

	(void)state;
	feed_engine(&f, PID, PID);
	feed_engine(&f, PID + 1, PID + 1);	/* not the only server */
	for (uint32_t i = 0; i < KIN; i++) {
		struct tl_proc e = { .hdr = HDR(e, TL_PROC, 0, FIRST + i, 0, at(0)), .what = TL_PROC_FORK,
				     .parent = i ? FIRST + i - 1 : PID };
		struct tl_thread t = { .hdr = HDR(t, TL_THREAD, 0, 2 * FIRST + i, i, at(0)), .rank = -1, .server = 3 };

		FEED(&f, e);
		FEED(&f, t);
	}
	for (int i = 0; i < N; i++) {
		struct tl_gpu_launch l = launch_of(&f, us(i), TL_CALL_KERNEL, 0);

		l.hdr.tgid = FIRST + KIN - 1 - i % (PROCESSES + 1);
		FEED(&f, l);
	}
	for (uint32_t i = 0; i < PROCESSES; i++) {
		struct tl_gpu_span s = span_of(&f, us(N), us(N + 1), TL_SPAN_KERNEL, 0);
		struct tl_clock k = { .hdr = HDR(k, TL_CLOCK, 0, FIRST + KIN - 1 - i, 0, at(0)), .realtime_ns = 5 };

		s.hdr.tgid = FIRST + KIN - 1 - i;
		FEED(&f, s);
		FEED(&f, k);
	}
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->counts.not_kept, N / (PROCESSES + 1));	/* of the one too many */
	assert_int_equal(f.v.gpu->n_devices, PROCESSES);
	for (uint32_t i = 0; i < PROCESSES; i++)	/* ranks of one server */
		assert_int_equal(f.v.gpu->devices[i].rank, i);
	gpu_feed_free(&f);
}

/* A look at the clock as late as it can be, behind each launch: each begins a window. */
static void test_gpu_crowd__of_windows(void **state)
{
	enum { WINDOWS = 100000 };
	struct gpu_feed f = start();

	(void)state;
	for (int i = 0; i < WINDOWS; i++) {
		feed_kernel(&f, 900.0 * i, 900.0 * i + 1, 900.0 * i + 2, NAME_GEMM);
		feed_clock(&f, 900.0 * i);
	}
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->n_devices, 1);
	assert_ns(f.v.gpu->devices[0].seen_ns, 2.0 * WINDOWS);
	assert_ns(f.v.gpu->devices[0].busy_ns, 1.0 * WINDOWS);
	gpu_feed_free(&f);
}

/* Nobody looked for kernels, as very many events say, and events were lost; of some steps neither is true. */
static void test_gpu_crowd__of_what_was_not_seen(void **state)
{
	enum { STEPS = 60000, KNOWN = 100, TIMES = 60000 };
	struct gpu_feed f = start();
	size_t counted = 0, seen = 0;

	(void)state;
	for (int i = 0; i < STEPS; i++) {
		for (int k = 0; k < 9; k++) {
			struct tl_gpu_launch l = launch_of(&f, i + us(k), TL_CALL_KERNEL, 0);

			FEED(&f, l);
		}
		feed_sync(&f, i + 0.1, i + 0.2);
	}
	for (int i = 0; i < TIMES; i++) {
		struct tl_gpu_launch off = launch_of(&f, 0, TL_CALL_KERNEL, 0);
		struct tl_lost lost = { .hdr = HDR(lost, TL_LOST, 0, 0, 0, at(STEPS - 2 * KNOWN - 0.5)), .n = 1,
					.since_ns = at(-1) };

		off.hdr.flags = TL_LAUNCH_UNSEEN;
		off.dur_ns = len(STEPS - KNOWN - 0.5) - i;
		FEED(&f, off);
		FEED(&f, lost);
	}
	gpu_feed_done(&f);
	assert_int_equal(f.v.n_steps, STEPS);
	for (size_t i = 0; i < STEPS; i++) {
		seen += STEP(&f, i)->seen;
		counted += STEP(&f, i)->counted;
	}
	assert_int_equal(seen, 2 * KNOWN);
	assert_int_equal(counted, KNOWN);
	gpu_feed_free(&f);
}

/* All requests wait for all steps. */
static void test_gpu_crowd__of_prompts_that_wait(void **state)
{
	enum { STEPS = 30000 };
	struct gpu_feed f = start();

	(void)state;
	for (uint32_t i = 0; i < STEPS; i++)
		feed_begin(&f, i + 1, -100 + us(i));
	for (int i = 0; i < STEPS; i++) {
		for (int k = 0; k < 9; k++) {
			struct tl_gpu_launch l = launch_of(&f, i + us(k), TL_CALL_KERNEL, 0);

			FEED(&f, l);
		}
		feed_sync(&f, i + 0.1, i + 0.2);
	}
	for (uint32_t i = 0; i < STEPS; i++)
		feed_chunk(&f, i + 1, i + 0.3);
	gpu_feed_done(&f);
	assert_int_equal(f.v.n_steps, STEPS);
	for (uint32_t i = 0; i < STEPS; i++)
		assert_int_equal(f.v.requests[i].at_ns[P_FIRST_TOKEN_ENGINE], at(i + 0.2));
	gpu_feed_free(&f);
}

/* Servers whose wire tells of no step, each with a process of its own and a request that only it answers. */
static void test_gpu_crowd__of_servers(void **state)
{
	enum { SERVERS = 1000, REQUESTS = 100000 };
	struct gpu_feed f = gpu_feed_new();

	(void)state;
	for (uint32_t p = 0; p < SERVERS; p++)
		feed_engine(&f, PID + p, PID + p);
	for (uint32_t i = 0; i < REQUESTS; i++) {
		struct tl_req_begin b = { .hdr = HDR(b, TL_REQ_BEGIN, TL_API_CHAT, PID + i % SERVERS, 0, at(-1)),
					  .req = i + 1, .conn = i + 1 };

		FEED(&f, b);
	}
	for (f.tgid = PID; f.tgid < PID + SERVERS; f.tgid++)
		for (int i = 0; i < 2; i++) {
			for (int k = 0; k < 9; k++) {
				struct tl_gpu_launch l = launch_of(&f, 10 * i + us(k), TL_CALL_KERNEL, 0);

				FEED(&f, l);
			}
			feed_sync(&f, 10 * i + 0.1, 10 * i + 0.2);
		}
	for (uint32_t i = 0; i < SERVERS; i++)
		feed_chunk(&f, i + 1, 1 + us(i));
	gpu_feed_done(&f);
	assert_int_equal(f.v.n_steps, 2 * SERVERS);
	assert_int_equal(f.v.n_seqs, SERVERS);
	for (size_t i = 0; i < 2 * SERVERS; i++) {
		const struct rec_step *st = &f.v.steps[i];

		assert_int_equal(st->n_members, i % 2 == 0);
		if (!st->n_members)
			continue;
		assert_int_equal(f.v.requests[f.v.seqs[f.v.members[st->first_member].seq].req - 1].engine, st->engine);
	}
	gpu_feed_free(&f);
}

/* ---- who is who ---- */

static struct tl_thread thread_of(uint32_t tgid, uint32_t tid, uint32_t server, int16_t rank)
{
	return (struct tl_thread){ .hdr = { sizeof(struct tl_thread), TL_THREAD, 0, tgid, tid, at(0) },
				   .role = TL_ROLE_ENGINE, .server = server, .rank = rank };
}

static void test_gpu_crowd__servers(void **state)
{
	struct gpu_feed f = gpu_feed_new();
	struct tl_thread t[] = {
		thread_of(20, 21, 0, -1), thread_of(20, 22, 10, -1), thread_of(20, 23, 99, 3), thread_of(20, 24, 99, 4),
		thread_of(12, 13, 99, 1), thread_of(30, 31, 0, -1),
	};
	struct servers *s;
	int err = -1;

	(void)state;
	feed_engine(&f, 10, 0);
	feed_engine(&f, 12, 10);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		FEED(&f, t[i]);
	gpu_feed_done(&f);
	OOM_LOOP({
		s = NULL;
		err = servers__new(&f.v, &s);
		assert_true(err == 0 ? s != NULL : err == -ENOMEM && !s);
		if (err)
			continue;
		assert_int_equal(servers__of(s, 10), 10);
		assert_int_equal(servers__of(s, 12), 10);	/* the engine says more than its thread */
		assert_int_equal(servers__rank(s, 12), 1);
		assert_int_equal(servers__of(s, 20), 10);	/* the first thread that knows */
		assert_int_equal(servers__rank(s, 20), 3);
		assert_int_equal(servers__of(s, 30), 0);
		assert_int_equal(servers__rank(s, 30), -1);
		assert_int_equal(servers__of(s, 31), 0);
		assert_int_equal(servers__only(s), 10);
		servers__free(s);
	});
	assert_int_equal(err, 0);
	feed_engine(&f, 40, 0);
	model__view(f.m, &f.v);
	assert_int_equal(servers__new(&f.v, &s), 0);
	assert_int_equal(servers__only(s), 0);
	servers__free(s);
	gpu_feed_free(&f);
}

static void test_gpu_crowd__at_work(void **state)
{
	struct gpu_feed f = gpu_feed_new();
	struct at_work *w = NULL;
	int err = -1;

	(void)state;
	feed_engine(&f, PID, 0);
	feed_engine(&f, 12, 0);
	feed_engine(&f, 13, 0);
	feed_step(&f, 0, 1, 2, 0);
	struct tl_req_begin b = { .hdr = HDR(b, TL_REQ_BEGIN, TL_API_CHAT, 12, 0, at(0)), .req = 1, .conn = 1 };
	FEED(&f, b);
	gpu_feed_done(&f);
	OOM_LOOP({
		err = at_work(&f.v, &w);
		assert_true(err == 0 || err == -ENOMEM);
	});
	assert_int_equal(err, 0);
	assert_true(w[0].steps && !w[0].requests && !w[0].stats);
	assert_true(w[1].requests && !w[1].steps);
	assert_false(w[2].requests || w[2].steps);
	free(w);
	gpu_feed_free(&f);
}

/* ---- devices ---- */

static void feed_state(struct gpu_feed *f, uint32_t tgid, uint32_t device, double t0, double t1, uint32_t mhz,
		       uint32_t by_pct)
{
	struct tl_gpu_state e = { .hdr = HDR(e, TL_GPU_STATE, 0, tgid, 0, at(t1)), .since_ns = at(t0), .device = device,
				  .clock_mhz = mhz, .max_mhz = 2000, .by_pct = by_pct, .by_tgid = by_pct ? 9999 : 0 };

	FEED(f, e);
}

static struct clue_list clues_of(const struct clues *c, uint32_t step)
{
	struct clue_list l;

	clues__step(c, step, len(0.5), &l);
	return l;
}

/* 1,024 devices, which processes of others number for themselves, whose states overlap; steps of very many engines, of
 * which one has a device that is slow in its last step. */
static void test_gpu_crowd__of_devices(void **state)
{
	enum { ENGINES = 20000, DEVICES = 1024, STATES = 300 };
	struct gpu_feed f = gpu_feed_new();
	struct clues *c;
	size_t odd = 0;

	(void)state;
	for (uint32_t i = 0; i < ENGINES; i++)
		feed_engine(&f, PID + i, PID + i);
	for (uint32_t i = 0; i < ENGINES; i++) {
		struct tl_thread t = thread_of(PID + i, PID + i, PID + i, 0);
		struct tl_gpu_step g = { .hdr = HDR(g, TL_GPU_STEP, 0, PID + i, 0, at(i)), .end_ns = at(i + 1),
					 .busy_ns = len(1) };
		struct tl_step s = { .hdr = HDR(s, TL_STEP, 0, PID + i, 0, at(i)), .end_ns = at(i + 1) };

		FEED(&f, t);
		FEED(&f, g);
		FEED(&f, s);
	}
	for (uint32_t d = 0; d < DEVICES; d++)
		for (uint32_t i = 0; i < STATES; i++)
			feed_state(&f, PID + ENGINES - 1 - d, 0, us(i), ENGINES + us(i), d ? 2000 : 1000 + i, 0);
	gpu_feed_done(&f);
	assert_int_equal(clues__new(&f.v, &c), 0);
	for (uint32_t i = 0; i < ENGINES; i++)
		odd += clues__step_is_odd(c, i);
	assert_int_equal(odd, 1);
	assert_true(clues__step_is_odd(c, ENGINES - 1));
	assert_int_equal(clues_of(c, ENGINES - 1).v[0].mechanism, MECH_CLOCK);
	clues__free(c);
	gpu_feed_free(&f);
}

/* What is said of any span of time is what a walk through all looks says. */
static void test_gpu_crowd__looks_as_a_walk(void **state)
{
	enum { LOOKS = 37, STEPS = 300 };
	struct { double t0, t1; uint32_t mhz, pct; } v[LOOKS];
	struct gpu_feed f = gpu_feed_new();
	struct clues *c;
	uint32_t random = 7;

	(void)state;
	feed_engine(&f, PID, PID);
	for (int i = 0; i < LOOKS; i++) {
		random = random * 1103515245 + 12345;
		v[i].t0 = i ? v[i - 1].t1 + (random >> 9) % 2 : 0;
		v[i].t1 = v[i].t0 + 1 + (random >> 12) % 9;
		v[i].mhz = (random >> 16) % 4 ? 2000 : 1000 + 100 * ((random >> 20) % 8);
		v[i].pct = (random >> 24) % 3 ? 0 : 50 + i;
		feed_state(&f, 0, 0, v[i].t0, v[i].t1, v[i].mhz, v[i].pct);
	}
	for (int i = 0; i < STEPS; i++) {
		double t0 = 0.5 * (i % 60) + 2 * (i % 17), t1 = t0 + 0.5 + i * 3 % 41;

		feed_step(&f, t0, t1, 1, 0);
	}
	gpu_feed_done(&f);
	assert_int_equal(clues__new(&f.v, &c), 0);
	for (uint32_t i = 0; i < STEPS; i++) {
		struct step_span st = step_index__span(clues__steps(c), i);
		double sum = 0, all = 0, by = 0;
		uint32_t pct = 0;
		struct clue_list l;
		bool slow = false, neighbour = false;

		for (int k = 0; k < LOOKS; k++) {
			double from = at(v[k].t0) > st.t0_ns ? at(v[k].t0) : st.t0_ns;
			double to = at(v[k].t1) < st.t1_ns ? at(v[k].t1) : st.t1_ns, ns = to > from ? to - from : 0;

			sum += ns * v[k].mhz;
			all += ns;
			if (v[k].pct && ns > by) {
				by = ns;
				pct = v[k].pct;
			}
		}
		if (by < (double)(st.t1_ns - st.t0_ns) / 2)
			pct = 0;
		clues__step(c, i, 0, &l);
		for (size_t k = 0; k < l.n; k++) {
			uint64_t took = st.t1_ns - st.t0_ns;
			char name[40];

			slow |= l.v[k].mechanism == MECH_CLOCK;
			neighbour |= l.v[k].mechanism == MECH_NEIGHBOUR;
			snprintf(name, sizeof(name), "%u of 2000 MHz", (uint32_t)(sum / all + 0.5));
			if (l.v[k].mechanism == MECH_CLOCK)
				assert_string_equal(l.v[k].who.name, name);
			if (l.v[k].mechanism == MECH_NEIGHBOUR)
				assert_int_equal(l.v[k].ns, took / 100 * pct);
		}
		assert_int_equal(slow, all > 0 && (uint32_t)(sum / all + 0.5) < 2000 - 2000 / 33);
		assert_int_equal(neighbour, pct > 0);
	}
	clues__free(c);
	gpu_feed_free(&f);
}

#define T(name) cmocka_unit_test(test_gpu_crowd__##name)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(of_one_id), T(of_launches_before_one_that_is_free), T(of_names), T(of_processes), T(of_windows),
		T(of_what_was_not_seen), T(of_prompts_that_wait), T(of_servers), T(servers), T(at_work), T(of_devices),
		T(looks_as_a_walk),
	};

	return cmocka_run_group_tests_name("gpu_crowds", tests, NULL, NULL);
}
