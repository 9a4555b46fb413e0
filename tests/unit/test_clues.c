/* SPDX-License-Identifier: Apache-2.0 */
/* What threads say of a stall: four causes of one symptom, front ends that are busy, none at all. */
#include "clues_feed.h"

enum { HOG = 271 };
#define T(name) cmocka_unit_test_setup_teardown(test_clues__##name, feed_setup, feed_teardown)

/* ---- S5 ---- */

static void test_clues__gc(void **state)
{
	struct feed *f = *state;
	const struct clue *k;

	feed_step(f, 980, 1000, 1, 0);
	feed_step(f, 1000, 1200, 1, 0);
	feed_span(f, FEED_LOOP, 1000, 1180, TL_SPAN_RUN);
	feed_code(f, FEED_CORE, FEED_LOOP, 1000, 1180, TL_CODE_GC, 18, 18, 0, "gc_collect_main");
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1200);
	k = only(&l, MECH_GC, 180);
	assert_int_equal(k->who.type, WHO_THREAD);
	assert_int_equal(k->who.id, FEED_LOOP);
	assert_string_equal(k->who.name, "gc_collect_main");
	assert_int_equal(k->t0_ns, at(1000));
}

static void test_clues__throttled(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 2000, 2180, TL_SPAN_RUNNABLE);
	const struct clue *k;

	s.hdr.flags = TL_SPAN_IDLE_CPU;
	FEED(f, s);
	feed_throttle(f, 2000, 2200, 180);
	feed_done(f);
	struct clue_list l = engine_clues(f, 2000, 2200);
	k = only(&l, MECH_THROTTLED, 180);
	assert_int_equal(k->who.type, WHO_PROCESS);	/* whose 86 threads had used it up */
	assert_int_equal(k->who.id, FEED_CORE);
	assert_string_equal(k->who.name, "xgrammar-comp");
	assert_int_equal(k->root.type, WHO_CGROUP);
	assert_string_equal(k->root.name, "llm.service");
	assert_int_equal(k->prov, PROV_OBSERVED);
}

static void test_clues__run_queue(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 3000, 3180, TL_SPAN_RUNNABLE);
	const struct clue *k;

	s.by_tgid = s.by_tid = 7777;
	s.by_ns = len(180);
	s.by_cgroup = 99;
	strcpy(s.by_name, "ffmpeg");
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 3000, 3200);
	k = only(&l, MECH_RUN_QUEUE, 180);
	assert_int_equal(k->who.type, WHO_PROCESS);
	assert_int_equal(k->who.id, 7777);
	assert_string_equal(k->who.name, "ffmpeg");
}

static struct tl_thread_span lock_span(double t0, double t1, uint32_t by)
{
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, t0, t1, TL_SPAN_SLEEP);

	s.wait = TL_WAIT_FUTEX;
	s.by_tgid = FEED_CORE;
	s.by_tid = by;
	s.by_ns = len(t1 - t0);
	strcpy(s.by_name, "grammar-2");
	return s;
}

static void test_clues__gil(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = lock_span(4000, 4180, HOG);
	const struct clue *k;

	feed_thread(f, FEED_CORE, HOG, TL_ROLE_OTHER, -1, "grammar-2");
	FEED(f, s);
	feed_code(f, FEED_CORE, HOG, 4000, 4180, TL_CODE_REGEX, 18, 18, 0, "re.py:match");
	feed_done(f);
	struct clue_list l = engine_clues(f, 4000, 4200);
	k = only(&l, MECH_GIL, 180);
	assert_int_equal(k->who.type, WHO_THREAD);
	assert_int_equal(k->who.id, HOG);
	assert_string_equal(k->who.name, "re.py:match");
}

/* Python waits in turns, and queues for a CPU to look: all of it is one wait for the lock. */
static void test_clues__gil_in_turns(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span a = lock_span(4000, 4005, HOG), b = lock_span(4009, 4014, HOG);
	struct tl_thread_span queue = feed_span_of(FEED_CORE, FEED_LOOP, 4005, 4009, TL_SPAN_RUNNABLE);
	struct tl_thread_span later = feed_span_of(FEED_CORE, FEED_LOOP, 4014, 4018, TL_SPAN_RUNNABLE);
	uint64_t sums[N_MECHANISMS] = { 0 };

	feed_thread(f, FEED_CORE, HOG, TL_ROLE_OTHER, -1, "grammar-2");
	FEED(f, a);
	FEED(f, queue);
	FEED(f, b);
	FEED(f, later);
	feed_done(f);
	struct clue_list l = engine_clues(f, 4000, 4020);
	for (size_t i = 0; i < l.n; i++)
		sums[l.v[i].mechanism] += l.v[i].ns;
	assert_int_equal(sums[MECH_GIL], len(14));
	assert_int_equal(sums[MECH_RUN_QUEUE], len(4));
}

/* In one process: the front end tokenizes and holds the lock. Behind it is the request that it works on. */
static void test_clues__gil_for_a_request(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_API, 150, 500, 880, TL_SPAN_SLEEP);
	struct clue_list l;

	feed_thread(f, FEED_API, 150, TL_ROLE_ENGINE, -1, "loop");
	s.wait = TL_WAIT_FUTEX;
	s.by_tgid = FEED_API;
	s.by_tid = FEED_FRONT;
	s.by_ns = len(380);
	feed_request(f, 1, 499, 500, 1000000);
	FEED(f, s);
	feed_refused(f, 1, 899.9);
	feed_done(f);
	clues__engine(f->c, 0, at(400), at(1000), &l);
	only(&l, MECH_GIL, 380);
	assert_int_equal(l.v[0].who.type, WHO_THREAD);
	assert_int_equal(l.v[0].who.id, FEED_FRONT);
	assert_int_equal(l.v[0].root.type, WHO_REQUEST);
	assert_int_equal(l.v[0].root.id, 0);
}

/* An engine sleeps until its own workers have done their share: that is no lock. */
static void test_clues__worker_is_no_lock_holder(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = lock_span(4000, 4180, HOG);

	feed_thread(f, FEED_CORE, HOG, TL_ROLE_COMPUTE, -1, "worker");
	FEED(f, s);
	feed_done(f);
	assert_int_equal(engine_clues(f, 4000, 4200).n, 0);
}

/* Who wakes it but had hardly run before did not hold it up. */
static void test_clues__waker_is_no_lock_holder(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = lock_span(4000, 4180, HOG);

	s.by_ns = len(1);
	FEED(f, s);
	feed_done(f);
	assert_int_equal(engine_clues(f, 4000, 4200).n, 0);
}

/* Period 100, run window 20: 76 of each 84 are throttling. */
static void test_clues__quota_pattern(void **state)
{
	struct feed *f = *state;
	uint64_t sum = 0;

	for (int p = 0; p < 3000; p += 100) {
		struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, p + 24, p + 100,
						       TL_SPAN_RUNNABLE);

		FEED(f, s);	/* no idle CPU: another had it. What the cgroup says decides */
		feed_throttle(f, p, p + 100, 80);
	}
	feed_done(f);
	for (int p = 0; p < 3000; p += 100) {
		struct clue_list l = engine_clues(f, p + 16, p + 100);

		only(&l, MECH_THROTTLED, 76);
		sum += l.v[0].ns;
	}
	assert_int_equal(sum, len(30 * 76));
}

/* Somebody else had the CPU for longer than anything was throttled. */
static void test_clues__queue_beside_throttling(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 1000, 1180, TL_SPAN_RUNNABLE);

	s.by_tgid = s.by_tid = 7777;
	s.by_ns = len(179);
	s.by_cgroup = 99;
	FEED(f, s);
	feed_throttle(f, 1000, 2000, 100);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1200);
	only(&l, MECH_RUN_QUEUE, 180);
}

/* A quota's share is charged once: the second wait is the queue's. One behind a thread of its own cgroup is no
 * throttling at all. */
static void test_clues__throttling_is_charged_once(void **state)
{
	struct feed *f = *state;

	for (int i = 0; i < 3; i++) {
		struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 1000 + 200 * i, 1060 + 200 * i,
						       TL_SPAN_RUNNABLE);

		s.by_tgid = s.by_tid = 7777;
		s.by_ns = len(60);
		s.by_cgroup = i ? 99 : FEED_CGROUP;
		FEED(f, s);
	}
	feed_throttle(f, 900, 1900, 70);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1060);
	only(&l, MECH_RUN_QUEUE, 60);
	l = engine_clues(f, 1200, 1260);
	only(&l, MECH_THROTTLED, 60);
	l = engine_clues(f, 1400, 1460);
	only(&l, MECH_RUN_QUEUE, 60);
}

static void test_clues__page_fault(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 1000, 1150, TL_SPAN_SLEEP);

	s.wait = TL_WAIT_DISK;
	s.major_faults = 3;
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1200);
	only(&l, MECH_PAGE_FAULT, 150);
}

/* Nothing of all that, though all of it is looked for. */
static void test_clues__unknown(void **state)
{
	struct feed *f = *state;
	uint64_t watched;

	feed_step(f, 1000, 1200, 1, 0);
	feed_span(f, FEED_LOOP, 1000, 1180, TL_SPAN_SLEEP);
	feed_span(f, FEED_LOOP, 1180, 1200, TL_SPAN_RUN);	/* that is what it does in a step */
	feed_done(f);
	assert_int_equal(engine_clues(f, 1000, 1200).n, 0);
	watched = clues__watched(f->c, core_of(f));
	assert_true(watched & 1ull << MECH_THROTTLED);
	assert_true(watched & 1ull << MECH_RUN_QUEUE);
	assert_true(watched & 1ull << MECH_GC);
	assert_true(watched & 1ull << MECH_GIL);
	assert_false(watched & 1ull << MECH_CLOCK);
}

/* Between steps an engine's thread has nothing to do on a CPU, unless it keeps the next one waiting. */
static void test_clues__busy_between_steps(void **state)
{
	struct feed *f = *state;

	feed_step(f, 1000, 1020, 1, 0);
	feed_step(f, 1100, 1120, 1, 0);
	feed_span(f, FEED_LOOP, 1000, 1120, TL_SPAN_RUN);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1120);
	only(&l, MECH_HOST, 80);
	assert_int_equal(l.v[0].t0_ns, at(1020));
}

/* Of two reasons at once the one nearer to the hardware stands; the parts do not overlap. */
static void test_clues__two_at_once(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 1050, 1100, TL_SPAN_RUNNABLE);

	feed_code(f, FEED_CORE, FEED_LOOP, 1000, 1200, TL_CODE_GC, 20, 20, 0, "gc");
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 900, 1150);
	assert_int_equal(l.n, 3);
	assert_int_equal(l.v[0].mechanism, MECH_GC);
	assert_int_equal(l.v[0].t1_ns, at(1050));
	assert_int_equal(l.v[1].mechanism, MECH_RUN_QUEUE);
	assert_int_equal(l.v[2].mechanism, MECH_GC);
	assert_int_equal(l.v[2].t0_ns, at(1100));
	assert_int_equal(l.v[2].t1_ns, at(1150));	/* where the question ends */
}

/* Samples in two codes: each has its share. */
static void test_clues__samples_are_shared(void **state)
{
	struct feed *f = *state;

	feed_code(f, FEED_CORE, FEED_LOOP, 1000, 1100, TL_CODE_GC, 4, 10, 0, "gc");
	feed_code(f, FEED_CORE, FEED_LOOP, 1000, 1100, TL_CODE_GRAMMAR, 6, 10, 0, "xgrammar");
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1100);
	assert_int_equal(l.n, 2);
	assert_int_equal(sum_of(&l, MECH_GC), len(40));
	assert_int_equal(sum_of(&l, MECH_GRAMMAR), len(60));
}

/* Workers of other ranks belong to the engine of their server, and to no other. */
static void test_clues__threads_of_ranks(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(301, 301, 1000, 1050, TL_SPAN_RUNNABLE);

	feed_thread(f, 301, 301, TL_ROLE_LAUNCH, 1, "worker");
	feed_step(f, 1000, 1060, 1, 0);
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1060);
	only(&l, MECH_RUN_QUEUE, 50);
	clues__engine(f->c, 0, at(1000), at(1060), &l);	/* the front end's process */
	assert_int_equal(l.n, 0);
}

/* A worker that does not say of which rank it is, as with one rank, is the only engine's. */
static void test_clues__worker_of_the_only_engine(void **state)
{
	struct feed *f = *state;

	feed_thread(f, 301, 301, TL_ROLE_LAUNCH, -1, "VLLM::Worker");
	feed_step(f, 1000, 1060, 1, 0);
	feed_code(f, 301, 301, 1000, 1050, TL_CODE_COMPILE, 1, 1, 0, "g++");
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1060);
	only(&l, MECH_COMPILE, 50);
}

/* ---- S4: the event loop ---- */

static void blocked_loop(struct feed *f, bool codes)
{
	feed_request(f, 1, -1, -0.9, 100);	/* A streams */
	feed_chunk(f, 1, 100, TL_CHUNK_TEXT);
	feed_request(f, 2, 500, 500.1, 1000000);	/* D */
	feed_span(f, FEED_FRONT, 500, 900, TL_SPAN_RUN);
	if (codes)
		feed_code(f, FEED_API, FEED_FRONT, 500, 900, TL_CODE_TOKENIZER, 40, 40, 2,
			  "tokenizers.abi3.so");
	feed_refused(f, 2, 899.9);
	feed_request(f, 3, 520, 900, 100);	/* E, read when the loop is free again */
	feed_done(f);
}

static void test_clues__event_loop(void **state)
{
	struct feed *f = *state;
	const struct clue *k;

	blocked_loop(f, true);
	struct clue_list l = front_clues(f, 520, 900, 2);	/* E waits to be read */
	k = only(&l, MECH_EVENT_LOOP, 380);
	assert_int_equal(k->who.type, WHO_REQUEST);
	assert_int_equal(k->who.id, 1);
	assert_string_equal(k->who.name, "tokenizers.so");
	assert_int_equal(k->prov, PROV_OBSERVED);
	l = front_clues(f, 520, 900, 0);	/* A's outputs wait to be written */
	only(&l, MECH_EVENT_LOOP, 380);
	assert_int_equal(l.v[0].who.id, 1);
	l = front_clues(f, 500, 900, 1);	/* D itself: that is its own work */
	assert_int_equal(l.n, 0);
}

static void test_clues__event_loop_without_stacks(void **state)
{
	struct feed *f = *state;
	const struct clue *k;

	blocked_loop(f, false);
	struct clue_list l = front_clues(f, 520, 900, 2);
	k = only(&l, MECH_EVENT_LOOP, 380);
	assert_int_equal(k->who.type, WHO_REQUEST);	/* the one that had been read and was answered then */
	assert_int_equal(k->who.id, 1);
	assert_int_equal(k->prov, PROV_INFERRED);
}

/* Read before, by the same loop, but far smaller: it waited like the others. */
static void test_clues__biggest_of_those_read(void **state)
{
	struct feed *f = *state;

	feed_request(f, 1, 499, 499.5, 200);
	feed_request(f, 2, 499.6, 500, 1000000);
	feed_span(f, FEED_FRONT, 500, 900, TL_SPAN_RUN);
	feed_refused(f, 2, 899.9);
	feed_refused(f, 1, 901);
	feed_request(f, 3, 520, 900, 100);
	feed_done(f);
	struct clue_list l = front_clues(f, 520, 900, 2);
	only(&l, MECH_EVENT_LOOP, 380);
	assert_int_equal(l.v[0].who.id, 1);
}

static void feed_scrape(struct feed *f)
{
	struct tl_conn open = { .hdr = FEED_HDR(open, TL_CONN, 0, FEED_API, FEED_FRONT, at(1000)), .conn = 9,
				.what = TL_CONN_OPEN, .peer_port = 51111 };
	struct tl_req_begin b = { .hdr = FEED_HDR(b, TL_REQ_BEGIN, TL_API_OTHER, FEED_API, FEED_FRONT, at(1000)),
				  .req = 9, .conn = 9 };
	struct tl_req_facts e = { .hdr = FEED_HDR(e, TL_REQ_FACTS, 0, FEED_API, FEED_FRONT, at(1000.1)),
				  .req = 9, .path = "/metrics" };
	struct tl_req_end end = { .hdr = FEED_HDR(end, TL_REQ_END, 0, FEED_API, FEED_FRONT, at(1030)), .req = 9,
				  .how = TL_END_COMPLETE, .status = 200 };

	feed_request(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 100, TL_CHUNK_TEXT);
	FEED(f, open);
	FEED(f, b);
	FEED(f, e);
	FEED(f, end);
}

static void test_clues__scrape(void **state)
{
	struct feed *f = *state;
	const struct clue *k;

	feed_scrape(f);
	feed_span(f, FEED_FRONT, 1000, 1030, TL_SPAN_RUN);
	feed_done(f);
	struct clue_list l = front_clues(f, 1000, 1040, 0);
	k = only(&l, MECH_METRICS, 30);
	assert_int_equal(k->who.type, WHO_CLIENT);
	assert_int_equal(k->who.id, 51111);
	assert_string_equal(k->who.name, "/metrics");
}

/* A helper thread answers it, and the event loop waits for Python's lock. */
static void test_clues__scrape_by_a_helper(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_API, FEED_FRONT, 1004, 1024, TL_SPAN_SLEEP);
	const struct clue *k;

	s.wait = TL_WAIT_FUTEX;
	s.by_tgid = FEED_API;
	s.by_tid = HOG;
	s.by_ns = len(20);
	feed_thread(f, FEED_API, HOG, TL_ROLE_OTHER, -1, "vllm");
	feed_scrape(f);
	FEED(f, s);
	feed_done(f);
	struct clue_list l = front_clues(f, 1000, 1040, 0);
	k = only(&l, MECH_METRICS, 20);
	assert_int_equal(k->who.type, WHO_CLIENT);
	assert_int_equal(k->who.id, 51111);
	assert_string_equal(k->who.name, "/metrics");
}

/* Where a thread of its own carries each request, another's work is no reason to wait. */
static void test_clues__thread_per_request(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_API, 102, 500, 900, TL_SPAN_RUN);

	feed_thread(f, FEED_API, 102, TL_ROLE_FRONT, -1, "http");
	feed_request(f, 1, 0, 1, 100);		/* by FEED_FRONT */
	FEED(f, s);
	feed_done(f);
	assert_int_equal(front_clues(f, 500, 900, 0).n, 0);
	assert_int_equal(front_clues(f, 500, 900, UINT32_MAX).n, 1);	/* nobody in particular */
}

static void test_clues__detokenizer(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_API, 111, 39, 3639, TL_SPAN_RUN);

	feed_thread(f, FEED_API, 111, TL_ROLE_DETOKENIZER, -1, "detokenizer");
	feed_request(f, 1, 0, 1, 100);
	FEED(f, s);
	feed_done(f);
	struct clue_list l = front_clues(f, 780, 3639, 0);
	only(&l, MECH_DETOKENIZER, 3639 - 780);
	assert_int_equal(l.v[0].who.id, 111);
}

/* More pieces than a list holds: what has the same cause is added up. */
static void test_clues__many_pieces(void **state)
{
	struct feed *f = *state;

	for (int i = 0; i < 200; i++) {
		struct tl_thread_span s = lock_span(10 * i, 10 * i + 5, HOG);

		FEED(f, s);
	}
	feed_done(f);
	struct clue_list l = engine_clues(f, 0, 2000);
	assert_int_equal(l.n, MAX_CLUES);
	assert_int_equal(sum_of(&l, MECH_GIL), len(200 * 5));
}

/* Of very many pieces only some are looked at; what they say is taken for all, nearly and inferred. */
static void test_clues__too_many_pieces_to_ask_each(void **state)
{
	enum { N = 30000 };
	struct feed *f = *state;

	for (int i = 0; i < N; i++) {
		struct tl_thread_span s = lock_span(10 * i, 10 * i + 5, HOG);

		FEED(f, s);
	}
	feed_done(f);
	struct clue_list l = engine_clues(f, 0, 10 * N);
	only(&l, MECH_GIL, N * 5);
	assert_int_equal(l.v[0].prov, PROV_INFERRED);
	assert_int_equal(l.v[0].t1_ns, 0);
}

/* ---- */

static void fill(struct feed *f)
{
	struct tl_thread_span s = lock_span(100, 180, HOG);

	feed_step(f, 0, 20, 2, 64);
	feed_step(f, 20, 200, 2, 0);
	FEED(f, s);
	feed_throttle(f, 0, 100, 50);
	feed_request(f, 1, 0, 1, 100);
	feed_chunk(f, 1, 100, TL_CHUNK_TEXT);
	feed_span(f, FEED_FRONT, 100, 200, TL_SPAN_RUN);
	feed_code(f, FEED_CORE, FEED_LOOP, 20, 90, TL_CODE_GC, 7, 7, 0, "gc");
	feed_span(f, FEED_LOOP, 20, 60, TL_SPAN_RUNNABLE);
}

static void test_clues__survives_oom(void **state)
{
	struct feed *f = *state;

	fill(f);
	clues_survive_oom(f);
}

static void test_clues__nothing_recorded(void **state)
{
	struct model_view v = { .n_requests = 0 };
	struct clues *c;

	(void)state;
	assert_int_equal(clues__new(&v, &c), 0);
	clues__free(c);
	clues__free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(gc), T(throttled), T(run_queue), T(gil), T(gil_for_a_request), T(gil_in_turns),
		T(throttling_is_charged_once), T(worker_of_the_only_engine), T(scrape_by_a_helper), T(worker_is_no_lock_holder),
		T(waker_is_no_lock_holder), T(quota_pattern), T(queue_beside_throttling), T(page_fault),
		T(unknown), T(busy_between_steps), T(two_at_once), T(samples_are_shared), T(threads_of_ranks),
		T(event_loop), T(event_loop_without_stacks), T(biggest_of_those_read), T(scrape),
		T(thread_per_request), T(detokenizer), T(many_pieces), T(too_many_pieces_to_ask_each),
		T(survives_oom), T(nothing_recorded),
	};

	return cmocka_run_group_tests_name("clues", tests, NULL, NULL);
}
