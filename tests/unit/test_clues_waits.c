/* SPDX-License-Identifier: Apache-2.0 */
/* Which waits are whose: stops, the server's own threads, quotas whose times are told short, tokenizers. */
#include "clues_feed.h"

enum { WORKER = 300, POOL = 151 };
#define T(name) cmocka_unit_test_setup_teardown(test_waits__##name, feed_setup, feed_teardown)

static struct clue_list engine_clues(const struct feed *f, double t0, double t1)
{
	struct clue_list l;
	uint32_t i = 0;

	while (f->v.engines[i].e.hdr.tgid != FEED_CORE)
		i++;
	clues__engine(f->c, i, at(t0), at(t1), &l);
	return l;
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

/* What computes no steps, or those of another server, has no business on its CPU. */
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
	assert_int_equal(l.v[0].who.id, 900);
	assert_int_equal(l.v[1].who.id, FEED_API);
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

static struct clue_list front_clues(const struct feed *f, double t0, double t1, uint32_t self)
{
	struct clue_list l;

	clues__front(f->c, 0, at(t0), at(t1), self, &l);
	return l;
}

/* POST /tokenize with 3 MB, read at 0 and answered at 510; a thread of the process tokenizes it. */
static void feed_tokenize(struct feed *f)
{
	struct tl_conn open = { .hdr = FEED_HDR(open, TL_CONN, 0, FEED_API, FEED_FRONT, at(0)), .conn = 9,
				.what = TL_CONN_OPEN, .peer_port = 51111 };
	struct tl_req_begin b = { .hdr = FEED_HDR(b, TL_REQ_BEGIN, TL_API_OTHER, FEED_API, FEED_FRONT, at(0)),
				  .req = 9, .conn = 9 };
	struct tl_req_facts e = { .hdr = FEED_HDR(e, TL_REQ_FACTS, 0, FEED_API, FEED_FRONT, at(0)), .req = 9,
				  .body_bytes = 3000000, .path = "/tokenize" };
	struct tl_req_end end = { .hdr = FEED_HDR(end, TL_REQ_END, 0, FEED_API, FEED_FRONT, at(510)), .req = 9,
				  .how = TL_END_COMPLETE, .status = 200 };

	FEED(f, open);
	FEED(f, b);
	FEED(f, e);
	FEED(f, end);
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
	k = only(&l, MECH_EVENT_LOOP, 505 - 11);
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
	only(&l, MECH_EVENT_LOOP, 294);
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
	only(&l, MECH_EVENT_LOOP, 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(stopped), T(stopped_before_all_else), T(fault_in_a_long_sleep), T(behind_own_worker), T(partly_behind_own_worker),
		T(behind_others_of_the_host), T(quota_told_short), T(quota_told_far_too_short),
		T(behind_the_tokenizer), T(behind_the_tokenizer_no_longer), T(behind_the_tokenizer_in_turn),
		T(tokenizers_side_by_side),
	};

	return cmocka_run_group_tests_name("clues_waits", tests, NULL, NULL);
}
