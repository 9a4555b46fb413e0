/* SPDX-License-Identifier: Apache-2.0 */
/* Which waits are whose: stops, the server's own threads, quotas whose times are told short, tokenizers. */
#include "clues_feed.h"
#include "model/pauses.h"

enum { WORKER = 300, POOL = 151 };
#define T(name) cmocka_unit_test_setup_teardown(test_waits__##name, feed_setup, feed_teardown)

static struct clue_list crowd_clues(const struct feed *f, double t0, double t1)
{
	struct clue_list l;

	clues__crowd(f->c, core_of(f), at(t0), at(t1), &l);
	return l;
}

/* A request that is no LLM's, of 3 MB, read at 0 and answered at 510. */
static void feed_other(struct feed *f, const char *path)
{
	struct tl_conn open = { .hdr = FEED_HDR(open, TL_CONN, 0, FEED_API, FEED_FRONT, at(0)), .conn = 9,
				.what = TL_CONN_OPEN, .peer_port = 51111 };
	struct tl_req_begin b = { .hdr = FEED_HDR(b, TL_REQ_BEGIN, TL_API_OTHER, FEED_API, FEED_FRONT, at(0)),
				  .req = 9, .conn = 9 };
	struct tl_req_facts e = { .hdr = FEED_HDR(e, TL_REQ_FACTS, 0, FEED_API, FEED_FRONT, at(0)), .req = 9,
				  .body_bytes = 3000000 };
	struct tl_req_end end = { .hdr = FEED_HDR(end, TL_REQ_END, 0, FEED_API, FEED_FRONT, at(510)), .req = 9,
				  .how = TL_END_COMPLETE, .status = 200 };

	snprintf(e.path, sizeof(e.path), "%s", path);
	FEED(f, open);
	FEED(f, b);
	FEED(f, e);
	FEED(f, end);
}

static struct tl_thread_span span_by(double t0, double t1, uint16_t state, uint32_t by, double by_ms, const char *name)
{
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, t0, t1, state);

	s.by_tgid = s.by_tid = by;
	s.by_ns = len(by_ms);
	snprintf(s.by_name, sizeof(s.by_name), "%s", name);
	return s;
}

/* ---- stopped ---- */

static void test_waits__stopped(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(1000, 2500, TL_SPAN_SLEEP, 4711, 0, "docker");
	const struct clue *k;

	s.wait = TL_WAIT_STOPPED;
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 900, 2600);
	k = only(&l, MECH_STOPPED, 1500);
	assert_int_equal(k->who.type, WHO_PROCESS);	/* who let it go on */
	assert_int_equal(k->who.id, 4711);
	assert_string_equal(k->who.name, "docker");
	assert_int_equal(k->prov, PROV_OBSERVED);
	assert_true(clues__watched(f->c, 1) >> MECH_STOPPED & 1);
}

/* It stands above all else that its threads waited for, and nobody has to be known. */
static void test_waits__stopped_before_all_else(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 1000, 1100, TL_SPAN_SLEEP);
	struct tl_thread_span q = feed_span_of(FEED_CORE, 201, 1000, 1150, TL_SPAN_RUNNABLE);

	feed_thread(f, FEED_CORE, 201, TL_ROLE_COMPUTE, -1, "pool");
	s.wait = TL_WAIT_STOPPED;
	FEED(f, s);
	FEED(f, q);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1150);
	assert_int_equal(sum_of(&l, MECH_STOPPED), len(100));
	assert_int_equal(sum_of(&l, MECH_RUN_QUEUE), len(50));
	assert_int_equal(l.v[0].who.type, WHO_NOBODY);
}

/* A page that was read in a long sleep does not say that the sleep was for it. */
static void test_waits__fault_in_a_long_sleep(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_CORE, FEED_LOOP, 1000, 2500, TL_SPAN_SLEEP);

	s.major_faults = 1;
	FEED(f, s);
	feed_done(f);
	assert_int_equal(engine_clues(f, 900, 2600).n, 0);
}

/* ---- the server's own threads ---- */

static void test_waits__behind_own_worker(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(1000, 1004, TL_SPAN_RUNNABLE, WORKER, 4, "VLLM::Worker");

	feed_engine(f, WORKER, FEED_API);
	feed_thread(f, WORKER, WORKER, TL_ROLE_LAUNCH, -1, "VLLM::Worker");
	FEED(f, s);
	s = span_by(1010, 1014, TL_SPAN_RUNNABLE, 7777, 4, "ffmpeg");
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 990, 1020);
	only(&l, MECH_RUN_QUEUE, 4);	/* a stranger's */
	assert_int_equal(l.v[0].who.id, 7777);
	/* In a step its engine has nothing to do but wait for it; of threads that compute, each waits for the other. */
	assert_int_equal(crowd_clues(f, 990, 1020).n, 0);
}

static void test_waits__of_a_worker_behind_another(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(1000, 1004, TL_SPAN_RUNNABLE, WORKER, 4, "pool");
	const struct clue *k;

	feed_thread(f, WORKER, WORKER, TL_ROLE_COMPUTE, -1, "pool");
	feed_thread(f, FEED_CORE, 201, TL_ROLE_COMPUTE, -1, "pool");
	s.hdr.tid = 201;
	FEED(f, s);
	feed_done(f);
	assert_int_equal(engine_clues(f, 990, 1020).n, 0);	/* no disturbance: steps take that long as a rule */
	struct clue_list l = crowd_clues(f, 990, 1020);
	k = only(&l, MECH_FEW_CPUS, 4);
	assert_int_equal(k->prov, PROV_INFERRED);
	assert_int_equal(k->who.type, WHO_THREAD);
	assert_int_equal(k->who.id, WORKER);
}

/* Between steps the engine has work of its own. */
static void test_waits__between_steps_behind_own_worker(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(995, 1015, TL_SPAN_RUNNABLE, WORKER, 20, "VLLM::Worker");

	feed_engine(f, WORKER, FEED_API);
	feed_thread(f, WORKER, WORKER, TL_ROLE_LAUNCH, -1, "VLLM::Worker");
	feed_step(f, 980, 1000, 2, 0);
	feed_step(f, 1012, 1030, 2, 0);
	FEED(f, s);
	feed_done(f);
	struct clue_list l = crowd_clues(f, 990, 1020);
	only(&l, MECH_FEW_CPUS, 12);
	assert_string_equal(l.v[0].who.name, "VLLM::Worker");
}

/* The thread that reads and writes waits for a CPU that the engine has. */
static void test_waits__of_the_front_end_behind_its_engine(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(1000, 1030, TL_SPAN_RUNNABLE, FEED_CORE, 30, "VLLM::EngineCor");
	const struct clue *k;

	s.hdr.tgid = FEED_API;
	s.hdr.tid = FEED_FRONT;
	FEED(f, s);
	feed_request(f, 10, 990, 991, 282);
	feed_refused(f, 10, 1100);
	feed_done(f);
	struct clue_list l = front_clues(f, 991, 1100, 0);
	k = only(&l, MECH_FEW_CPUS, 30);
	assert_int_equal(k->prov, PROV_OBSERVED);
	assert_int_equal(k->who.type, WHO_THREAD);
	assert_string_equal(k->who.name, "VLLM::EngineCor");
	assert_int_equal(k->root.type, WHO_NOBODY);
}

/* Who had the CPU answered a scrape meanwhile: that is the root. */
static void test_waits__behind_a_scrape(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(20, 500, TL_SPAN_RUNNABLE, FEED_API, 480, "vllm");
	const struct clue *k;

	s.by_tid = FEED_FRONT;
	feed_other(f, "/metrics");
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 0, 600);
	k = only(&l, MECH_FEW_CPUS, 480);
	assert_int_equal(k->who.type, WHO_THREAD);
	assert_int_equal(k->who.id, FEED_FRONT);
	assert_int_equal(k->root.type, WHO_CLIENT);
	assert_int_equal(k->root.id, 51111);
	assert_string_equal(k->root.name, "/metrics");
}

/* It had the CPU for most of the wait: who had it for the rest is not known. */
static void test_waits__partly_behind_own_worker(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(1000, 1010, TL_SPAN_RUNNABLE, WORKER, 6, "VLLM::Worker");

	feed_engine(f, WORKER, FEED_API);
	feed_thread(f, WORKER, WORKER, TL_ROLE_LAUNCH, -1, "VLLM::Worker");
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 990, 1020);
	only(&l, MECH_RUN_QUEUE, 4);
	assert_int_equal(l.v[0].who.type, WHO_NOBODY);
}

/* Another server is a stranger; a thread of its own that computes no steps is not, but no part of them either. */
static void test_waits__behind_others_of_the_host(void **state)
{
	struct feed *f = *state;
	struct tl_thread t = { .hdr = FEED_HDR(t, TL_THREAD, 0, 900, 900, at(-999)), .role = TL_ROLE_ENGINE,
			       .rank = -1, .server = 900, .name = "llama-server" };
	struct tl_thread_span s = span_by(1000, 1004, TL_SPAN_RUNNABLE, 900, 4, "llama-server");

	FEED(f, t);
	FEED(f, s);
	s = span_by(1010, 1015, TL_SPAN_RUNNABLE, FEED_API, 5, "front");
	s.by_tid = FEED_FRONT;
	FEED(f, s);
	feed_done(f);
	struct clue_list l = engine_clues(f, 990, 1020);
	assert_int_equal(l.n, 2);
	assert_int_equal(l.v[0].mechanism, MECH_RUN_QUEUE);
	assert_int_equal(l.v[0].who.id, 900);
	assert_int_equal(l.v[1].mechanism, MECH_FEW_CPUS);
	assert_int_equal(l.v[1].who.type, WHO_THREAD);
	assert_int_equal(l.v[1].who.id, FEED_FRONT);
}

/* ---- quotas ---- */

/* Three short waits behind another process, then what the quota did, of which the kernel counted less. */
static void test_waits__quota_told_short(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s;

	for (int i = 0; i < 3; i++) {
		s = span_by(1000 + 10 * i, 1008 + 10 * i, TL_SPAN_RUNNABLE, 7777, 8, "cc1");
		FEED(f, s);
	}
	s = span_by(1039, 1100, TL_SPAN_RUNNABLE, 7778, 1.2, "tokenlag");
	FEED(f, s);
	feed_throttle(f, 1000, 1100, 43.6);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1030);
	assert_int_equal(sum_of(&l, MECH_RUN_QUEUE), len(24));
	l = engine_clues(f, 1030, 1100);
	only(&l, MECH_THROTTLED, 61);
	assert_int_equal(l.v[0].prov, PROV_OBSERVED);
}

/* Two CPUs, one time that it was throttled, of which little was counted: once, and not where somebody else ran. */
static void test_waits__quota_told_far_too_short(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = span_by(1020, 1100, TL_SPAN_RUNNABLE, 7777, 70, "ffmpeg");

	FEED(f, s);
	s = span_by(1120, 1180, TL_SPAN_RUNNABLE, 7777, 3, "ffmpeg");
	FEED(f, s);
	s = span_by(1190, 1250, TL_SPAN_RUNNABLE, 7777, 3, "ffmpeg");
	FEED(f, s);
	feed_throttle(f, 1000, 1260, 20);
	feed_done(f);
	struct clue_list l = engine_clues(f, 1000, 1110);
	only(&l, MECH_RUN_QUEUE, 80);
	l = engine_clues(f, 1110, 1185);
	only(&l, MECH_THROTTLED, 60);
	l = engine_clues(f, 1185, 1260);
	only(&l, MECH_RUN_QUEUE, 60);
}

/* ---- tokenizers ---- */

/* POST /tokenize with 3 MB; a thread of the process tokenizes it. */
static void feed_tokenize(struct feed *f)
{
	feed_other(f, "/tokenize");
	feed_thread(f, FEED_API, POOL, TL_ROLE_OTHER, -1, "vllm");
	feed_code(f, FEED_API, POOL, 5, 505, TL_CODE_TOKENIZER, 36, 36, 0, "tokenizers.abi3.so");
}

static void test_waits__behind_the_tokenizer(void **state)
{
	struct feed *f = *state;
	const struct clue *k;

	feed_tokenize(f);
	feed_request(f, 10, 10, 11, 282);
	feed_refused(f, 10, 512);
	feed_request(f, 11, 520, 521, 282);
	feed_refused(f, 11, 530);
	feed_done(f);
	struct clue_list l = front_clues(f, 11, 512, 0);
	k = only(&l, MECH_TOKENIZER, 505 - 11);
	assert_int_equal(k->who.type, WHO_CLIENT);
	assert_int_equal(k->who.id, 51111);
	assert_string_equal(k->who.name, "/tokenize");
	assert_int_equal(front_clues(f, 521, 530, 1).n, 0);
}

/* What was handed over before does not wait for it, nor does an answer. */
static void test_waits__behind_the_tokenizer_no_longer(void **state)
{
	struct feed *f = *state;

	feed_request(f, 10, -5, -4, 282);
	feed_refused(f, 10, 2);
	feed_tokenize(f);
	feed_done(f);
	assert_int_equal(front_clues(f, -4, 512, 0).n, 0);
	assert_int_equal(front_clues(f, 11, 512, UINT32_MAX).n, 0);
}

/* One after the other: the first one has only itself to wait for, the second one both. */
static void test_waits__behind_the_tokenizer_in_turn(void **state)
{
	struct feed *f = *state;

	feed_request(f, 10, 0, 1, 1000000);
	feed_request(f, 11, 2, 3, 1100000);
	feed_refused(f, 10, 300);
	feed_refused(f, 11, 600);
	feed_thread(f, FEED_API, POOL, TL_ROLE_OTHER, -1, "vllm");
	feed_code(f, FEED_API, POOL, 5, 299, TL_CODE_TOKENIZER, 36, 36, 0, "tokenizers.abi3.so");
	feed_code(f, FEED_API, POOL, 301, 599, TL_CODE_TOKENIZER, 36, 36, 0, "tokenizers.abi3.so");
	feed_done(f);
	assert_int_equal(front_clues(f, 1, 300, 0).n, 0);
	struct clue_list l = front_clues(f, 3, 600, 1);
	only(&l, MECH_TOKENIZER, 294);
	assert_int_equal(l.v[0].who.type, WHO_REQUEST);
	assert_int_equal(l.v[0].who.id, 0);
}

/* With a thread for each, what is about as large waits for nobody; what is small for the large one. */
static void test_waits__tokenizers_side_by_side(void **state)
{
	struct feed *f = *state;

	feed_tokenize(f);
	feed_request(f, 10, 2, 3, 2900000);
	feed_request(f, 11, 2, 3, 282);
	feed_refused(f, 10, 512);
	feed_refused(f, 11, 512);
	feed_thread(f, FEED_API, POOL + 1, TL_ROLE_OTHER, -1, "vllm");
	feed_code(f, FEED_API, POOL + 1, 5, 505, TL_CODE_TOKENIZER, 36, 36, 0, "tokenizers.abi3.so");
	feed_done(f);
	assert_int_equal(front_clues(f, 3, 512, 0).n, 0);
	struct clue_list l = front_clues(f, 3, 512, 1);
	only(&l, MECH_TOKENIZER, 500);
}

/* ---- a front end in Rust ---- */

/* Its main thread sleeps until the end, another reads requests, a third handles what they give. */
static void feed_pool(struct feed *f)
{
	struct tl_engine e = { .hdr = FEED_HDR(e, TL_ENGINE, 0, FEED_API, FEED_API, at(-998)),
			       .start_ns = 1,
			       .engine = TL_ENGINE_VLLM,
			       .server = FEED_API,
			       .role = "front" };

	FEED(f, e);
	feed_thread(f, FEED_API, POOL, TL_ROLE_OTHER, -1, "vllm-request");
	feed_request(f, 1, 0, 1, 100);
}

static struct tl_thread_span pool_span(uint32_t tid, double t0, double t1, uint16_t state)
{
	struct tl_thread_span s = feed_span_of(FEED_API, tid, t0, t1, state);

	s.by_tgid = s.by_tid = 7777;
	s.by_ns = len(t1 - t0);
	strcpy(s.by_name, "cc1");
	return s;
}

static void test_waits__of_a_pool(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span starved = pool_span(POOL, 500, 900, TL_SPAN_RUNNABLE);
	struct tl_thread_span idle = pool_span(FEED_FRONT, 0, 2000, TL_SPAN_SLEEP);
	const struct clue *k;

	feed_pool(f);
	idle.wait = TL_WAIT_FUTEX;
	idle.by_tgid = FEED_API;
	idle.by_tid = POOL;
	FEED(f, starved);
	FEED(f, idle);
	feed_done(f);
	struct clue_list l = front_clues(f, 400, 1000, 0);
	k = only(&l, MECH_RUN_QUEUE, 400);
	assert_string_equal(k->who.name, "cc1");
	assert_int_equal(k->prov, PROV_INFERRED); /* that the request waited with it */
	assert_false(clues__front_may_be_busy(f->c, 0, at(500), at(900)));
}

/* One that is busy keeps no other thread from working. All of them are if one is, for all that is
 * known. */
static void test_waits__of_a_busy_pool(void **state)
{
	struct feed *f = *state;
	struct tl_thread_span s = feed_span_of(FEED_API, POOL, 500, 900, TL_SPAN_RUN);

	feed_pool(f);
	FEED(f, s);
	feed_done(f);
	assert_int_equal(front_clues(f, 500, 900, 0).n, 0);
	assert_true(clues__front_may_be_busy(f->c, 0, at(600), at(1100)));
	assert_false(clues__front_may_be_busy(f->c, 0, at(600), at(1300)));
	assert_false(clues__front_may_be_busy(f->c, 0, at(2000), at(2100)));
}

/* ---- paused on request ---- */

static void feed_asked(struct feed *f, uint32_t req, const char *path, double at_ms,
		       uint16_t status)
{
	struct tl_conn open = { .hdr = FEED_HDR(open, TL_CONN, 0, FEED_API, FEED_FRONT, at(at_ms)),
				.conn = 100 + req,
				.what = TL_CONN_OPEN,
				.peer_port = 50000 + req };
	struct tl_req_begin b = { .hdr = FEED_HDR(b, TL_REQ_BEGIN, TL_API_OTHER, FEED_API,
						  FEED_FRONT, at(at_ms)),
				  .req = req,
				  .conn = 100 + req };
	struct tl_req_facts e = {
		.hdr = FEED_HDR(e, TL_REQ_FACTS, 0, FEED_API, FEED_FRONT, at(at_ms)), .req = req
	};
	struct tl_req_end end = { .hdr = FEED_HDR(end, TL_REQ_END, 0, FEED_API, FEED_FRONT,
						  at(at_ms + 1)),
				  .req = req,
				  .how = TL_END_COMPLETE,
				  .status = status };

	snprintf(e.path, sizeof(e.path), "%s", path);
	FEED(f, open);
	FEED(f, b);
	FEED(f, e);
	FEED(f, end);
}

static void test_waits__of_a_pause(void **state)
{
	struct feed *f = *state;
	const struct clue *k;
	struct clue_list l;
	struct pause p;

	feed_step(f, 0, 20, 1, 0);
	feed_asked(f, 1, "/pause", 10, 200); /* the step under way ends */
	feed_asked(f, 2, "/health", 500, 200);
	feed_asked(f, 3, "/resume", 1010, 200);
	feed_step(f, 1020, 1040, 1, 0);
	feed_asked(f, 4, "/sleep", 2000, 404); /* no such thing */
	feed_step(f, 3000, 3020, 1, 0);
	feed_asked(f, 5, "/pause", 3100, 200);
	feed_asked(f, 6, "/health", 3300, 200);
	feed_done(f);
	l = engine_clues(f, 0, 1040);
	k = only(&l, MECH_PAUSED, 990);
	assert_int_equal(k->t0_ns, at(20));
	assert_int_equal(k->who.type, WHO_CLIENT);
	assert_int_equal(k->who.id, 50001);
	assert_string_equal(k->who.name, "/pause");
	assert_int_equal(engine_clues(f, 1040, 3000).n, 0);
	l = engine_clues(f, 3020, 4000);
	only(&l, MECH_PAUSED, 201); /* until the recording ends */
	assert_true(pause_during(&f->v, core_of(f), at(100), at(1020), &p));
	assert_int_equal(p.other, 0);
	assert_true(p.ended);
	assert_false(pause_during(&f->v, core_of(f), at(900), at(1200), &p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(stopped),
		T(stopped_before_all_else),
		T(fault_in_a_long_sleep),
		T(behind_own_worker),
		T(of_a_worker_behind_another),
		T(between_steps_behind_own_worker),
		T(of_the_front_end_behind_its_engine),
		T(behind_a_scrape),
		T(partly_behind_own_worker),
		T(behind_others_of_the_host),
		T(quota_told_short),
		T(quota_told_far_too_short),
		T(behind_the_tokenizer),
		T(behind_the_tokenizer_no_longer),
		T(behind_the_tokenizer_in_turn),
		T(tokenizers_side_by_side),
		T(of_a_pool),
		T(of_a_busy_pool),
		T(of_a_pause),
	};

	return cmocka_run_group_tests_name("clues_waits", tests, NULL, NULL);
}
