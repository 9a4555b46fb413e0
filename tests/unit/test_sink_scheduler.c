/* SPDX-License-Identifier: Apache-2.0 */
/* The answers about a scheduler, as text: queue, preemption, front end, delivery, warm and cold. */
#include "unit.h"
#include "fake_view.h"
#include "sink/text.h"
#include "sink/trace.h"
#include "sink/why.h"

#include <errno.h>

#define MS(x) ((uint64_t)((x) * 1000000))

static int setup(void **state)
{
	*state = fake__new();
	return 0;
}

static int teardown(void **state)
{
	fake__free(*state);
	return 0;
}

static char *report(struct fake *f, int width)
{
	struct summary s;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(text_report(&f->v, &s, &(struct text_opts){ .width = width }, out), 0);
	fclose(out);
	return text;
}

/* One request, as waterfall or in full; so wide that no sentence is wrapped. */
static char *one(struct fake *f, size_t request, bool why)
{
	const struct text_opts o = { .width = 1000 };
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(why ? why_request(&f->v, request, &o, out) :
			       text_request(&f->v, request, &o, out), 0);
	fclose(out);
	return text;
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		print_error("not there: \"%s\" in:\n%s\n", part, text);
	assert_non_null(strstr(text, part));
}

static void assert_lacks(const char *text, const char *part)
{
	if (strstr(text, part))
		print_error("there: \"%s\" in:\n%s\n", part, text);
	assert_null(strstr(text, part));
}

static struct trace trace_of(struct fake *f, size_t request)
{
	uint64_t at, sum[N_PARTS] = { 0 };
	struct trace t;

	assert_int_equal(trace__init(&t, &f->v, request), 0);
	at = t.t0_ns;
	for (size_t i = 0; i < t.n; i++) {
		assert_int_equal(t.segs[i].t0_ns, at);
		at = t.segs[i].t1_ns;
		sum[t.segs[i].part] += t.segs[i].t1_ns - t.segs[i].t0_ns;
	}
	assert_int_equal(at, t.t1_ns);
	assert_memory_equal(sum, t.sum_ns, sizeof(sum));
	return t;
}

/*
 * r2 decodes all the time, 10 ms a step. r1 is submitted at 15 in the middle of a step, waits in the
 * queue from 20 to 60, prefills to 80, decodes to 90, loses its place, is parked until 190, computes
 * 41 tokens again in two steps, and decodes once more, to 220.
 */
static void preempted(struct fake *f, bool said)
{
	struct rec_request *r1 = fake_request(f, 10), *r2 = fake_request(f, 0);
	uint32_t q1 = fake_seq(f, r1, 7), q2 = fake_seq(f, r2, 0);

	f->engines[0].e.engine = TL_ENGINE_VLLM;
	fake_point(r1, P_REQ_LAST_BYTE, 11);
	fake_point(r1, P_SUBMIT, 15);
	f->seqs[q1].begin_ns = fake_ns(15);
	for (int i = 0; i < 22; i++) {
		fake_step(f, 10 * i, 10 * i + 10);
		fake_stats(f, i < 19 ? 97 : 50, i < 6 ? 5 : 6, i < 6 || (i > 8 && i < 19) ? 1 : 0);
		fake_member(f, q2, 'd', 1);
		if (i == 6)
			fake_member(f, q1, 'p', 30);
		else if (i == 7)
			fake_member(f, q1, 'P', 10);
		else if (i == 19)
			fake_member(f, q1, 'a', 31);
		else if (i == 20)
			fake_member(f, q1, 'A', 10);
		else if (i == 8 || i == 21)
			fake_member(f, q1, 'd', 1);
	}
	if (said)
		fake_preempt(f, q1, 90.5, 190.25, 41);
	fake_chunk(r1, 83, TL_CHUNK_TEXT);
	fake_chunk(r1, 95, TL_CHUNK_TEXT);
	fake_chunk(r1, 213, TL_CHUNK_TEXT);
	fake_chunk(r1, 222, TL_CHUNK_TEXT | TL_CHUNK_FINISH);
	fake_done(f, r1, 223);
	fake_done(f, r2, 221);
	r1->finish = TL_FINISH_LENGTH;
	r1->prompt = fake_count(40);
	r1->cached = fake_count(0);
	r1->output = fake_count(4);
}

static void test_trace__parts_of_a_preempted_request(void **state)
{
	for (int said = 0; said < 2; said++) {
		struct fake *f = fake__new();
		struct trace t;

		preempted(f, said);
		t = trace_of(f, 0);
		assert_int_equal(t.sum_ns[PART_READ], MS(1));
		assert_int_equal(t.sum_ns[PART_BEFORE_SUBMIT], MS(4));
		assert_int_equal(t.sum_ns[PART_WAIT_STEP], MS(5));
		assert_int_equal(t.sum_ns[PART_WAIT_QUEUE], MS(40));
		assert_int_equal(t.sum_ns[PART_PREFILL], MS(20));
		assert_int_equal(t.sum_ns[PART_DECODE], MS(20));
		assert_int_equal(t.sum_ns[PART_PARKED], MS(100));
		assert_int_equal(t.sum_ns[PART_RECOMPUTE], MS(20));
		assert_int_equal(t.sum_ns[PART_DELIVERY], MS(2));
		assert_int_equal(t.sum_ns[PART_END], MS(1));
		assert_int_equal(t.sum_ns[PART_OTHER_STEPS] + t.sum_ns[PART_UNEXPLAINED], 0);
		assert_int_equal(t.n_recompute_steps, 2);
		assert_int_equal(t.n_prefill_steps, 2);
		assert_int_equal(t.n_parked, 1);
		assert_int_equal(t.ttft_ns[PART_WAIT_QUEUE], MS(40));
		trace__free(&t);
		fake__free(f);
	}
	(void)state;
}

/* In the middle of its prompt it has nothing to compute "again" that its steps would show. */
static void test_trace__preempted_in_its_prompt(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t q = fake_seq(f, r, 0), other = fake_seq(f, NULL, 1);
	struct trace t;

	fake_step(f, 0, 10);
	fake_member(f, q, 'p', 10);
	fake_step(f, 10, 50);
	fake_member(f, other, 'd', 1);
	fake_step(f, 50, 60);
	fake_member(f, q, 'P', 10);
	fake_done(f, r, 61);
	t = trace_of(f, 0);
	assert_int_equal(t.sum_ns[PART_PARKED], 0);
	assert_int_equal(t.sum_ns[PART_OTHER_STEPS], MS(40));
	trace__free(&t);
	fake_preempt(f, q, 10.5, 50.5, 10);
	t = trace_of(f, 0);
	assert_int_equal(t.sum_ns[PART_PARKED], MS(40));
	assert_int_equal(t.sum_ns[PART_OTHER_STEPS], 0);
	trace__free(&t);
}

/* The recording ends before it comes back: to its end it is parked, and waits for no front end. */
static void test_why__parked_at_the_end(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t q = fake_seq(f, r, 0), other = fake_seq(f, NULL, 1);
	struct trace t;
	char *text;

	f->engines[0].e.engine = TL_ENGINE_VLLM;
	for (int i = 0; i < 10; i++) {
		fake_step(f, 10 * i, 10 * i + 10);
		fake_member(f, other, 'd', 1);
		if (i < 3)
			fake_member(f, q, i ? 'd' : 'P', i ? 1 : 10);
	}
	fake_chunk(r, 31, TL_CHUNK_TEXT);
	r->state = REQ_TRUNCATED;
	r->how_ended = TL_END_CAPTURE;
	t = trace_of(f, 0);
	assert_int_equal(t.sum_ns[PART_OPEN], MS(69));
	trace__free(&t);
	fake_preempt(f, q, 30, 0, 12);
	f->seqs[q].preemptions[0].prov = PROV_INFERRED;
	t = trace_of(f, 0);
	assert_int_equal(t.sum_ns[PART_OPEN], 0);
	assert_int_equal(t.sum_ns[PART_PARKED], MS(69));
	trace__free(&t);
	text = one(f, 0, true);
	assert_has(text, "  parked after preemption (inferred: it was in none of the steps); 7 steps ran: decode of ");
	assert_has(text, "book the 69.0 ms parked as decode: its queue time has 0 of it");
	free(text);
	text = one(f, 0, false);
	assert_has(text, "; preempted 69.0 ms, not back.\n");
	free(text);
}

static void test_why__preemption_queue_and_front_end(void **state)
{
	char *text;

	preempted(*state, true);
	text = one(*state, 0, true);
	assert_has(text, "r1: e2e 213 ms; 4.00 ms in the front end (parse, tokenize), ");
	assert_has(text, "40.0 ms in the queue, not scheduled (behind decode of r2), 20.0 ms prefill of 40 "
			 "tokens in 2 steps, 100 ms parked after preemption (behind decode of r2), 20.0 ms computing 41 tokens again in 2 steps, ");
	assert_has(text, "  in the front end (parse, tokenize)\n");
	assert_has(text, "  in the queue, not scheduled; up to 5 running, KV cache up to 97 % full; 4 steps "
			 "ran: decode of r2\n");
	assert_has(text, "  parked after preemption; up to 6 running, KV cache up to 97 % full; 10 steps "
			 "ran: decode of r2\n");
	assert_has(text, "  prefill 31 tok again, 10.0 ms, with decode of r2\n");
	assert_has(text, "    100.000    46.9 %  parked after preemption\n" + 1);
	assert_has(text, "  recompute steps after preemption\n");
	assert_has(text, "delivery, from the engine's output to the write of its chunk: p50 3.00 ms, max "
			 "5.00 ms over 4 outputs\n");
	free(text);
}

static void test_why__a_silent_scheduler_is_not_called_full(void **state)
{
	struct fake *f = *state;
	char *text;

	preempted(f, true);
	for (size_t i = 0; i < f->v.n_steps; i++)
		f->steps[i].stats = 0;
	text = one(f, 0, true);
	assert_has(text, "  parked after preemption; 10 steps ran: decode of r2\n");
	free(text);
}

static void test_request__preemption(void **state)
{
	struct fake *f = *state;
	char *text;

	preempted(f, true);
	fake_preempt(f, 0, 220, 0, 44);
	f->seqs[0].preemptions[1].prov = PROV_INFERRED;
	text = one(f, 0, false);
	assert_has(text, "r1: complete after 213 ms; preempted: parked for 100 ms, then 20.0 ms for 41 tokens computed again.\n");
	assert_has(text, "preempted   80.500 ms after it began, parked for 99.8 ms, 41 tokens lost (reported)\n");
	assert_has(text, "            210.000 ms after it began, not scheduled again, 44 tokens lost (inferred)\n");
	assert_has(text, "            41 tokens were computed again\n");
	assert_has(text, "front end                      4.000\n");
	assert_has(text, "delivery    4 outputs: p50 3.00 ms, p99 5.00 ms, max 5.00 ms\n");
	free(text);
	text = one(f, 1, false);
	assert_lacks(text, "preempted");
	assert_lacks(text, "could not be matched");	/* there is no chunk */
	free(text);
	fake_chunk(&f->reqs[1], 0.5, TL_CHUNK_TEXT);
	f->reqs[1].finish = TL_FINISH_ERROR;
	text = one(f, 1, false);
	assert_has(text, "delivery    outputs and chunks could not be matched\n");
	assert_lacks(text, "finish reason");	/* nobody sent one */
	assert_lacks(text, " on slot ");	/* vLLM has none */
	free(text);
}

static void test_report__scheduler(void **state)
{
	struct fake *f = *state;
	char *text;

	preempted(f, true);
	fake_stats_of(f, 0)->known |= TL_STATS_PREFIX | TL_STATS_SPEC;
	fake_stats_of(f, 0)->prefix_queries = 300;
	fake_stats_of(f, 0)->prefix_hits = 100;
	fake_stats_of(f, 0)->drafted = 9;
	fake_stats_of(f, 0)->accepted = 6;
	text = report(f, 1000);
	assert_has(text, "scheduler pid 4242: KV cache p50 97.0 %, max 97.0 % in use; running p50 6, max 6; "
			 "waiting p50 1, max 1; 33.3 % of 300 prompt tokens from the prefix cache; "
			 "1 preemption; 66.7 % of 9 drafted tokens accepted\n");
	assert_has(text, "KV cache  in use, means over time; full height is 100 %\n          [#");
	assert_has(text, "waiting   sequences, means over time; full height is 1.0\n          [#");
	assert_has(text, "front end           1    4.00    4.00       -    4.00  observed\n");
	assert_has(text, "delivery            4    3.00    5.00       -    5.00  observed, per output\n");
	assert_has(text, "parked 99.8 ms, +41 tok\n");
	assert_lacks(text, " slot ");
	assert_has(text, "preempted 1 time, 1 sequence: 41 tokens lost, parked for 99.8 ms in all, most r1 for 99.8 ms\n");
	assert_has(text, "front end = submit - req_last_byte");
	free(text);
}

static void test_report__without_a_scheduler_says_nothing_of_one(void **state)
{
	struct fake *f = *state;
	char *text;

	preempted(f, true);
	for (size_t i = 0; i < f->v.n_steps; i++)
		f->steps[i].stats = 0;
	f->seqs[0].n_preemptions = 0;
	text = report(f, 1000);
	assert_lacks(text, "\nscheduler");
	assert_lacks(text, "KV cache p50");
	assert_lacks(text, "waiting   ");
	assert_has(text, "pid 4242 says nothing of its scheduler (--disable-log-stats?): how many wait, how full "
			 "the KV cache is, its own queued time and its count of preemptions are unknown; what is said of "
			 "these is inferred from its steps");
	free(text);
	f->engines[0].e.engine = TL_ENGINE_LLAMA;	/* of which nobody expects it */
	text = report(f, 1000);
	assert_lacks(text, "log-stats");
	free(text);
}

static void test_report__nobody_waits(void **state)
{
	struct fake *f = *state;
	char *text;

	preempted(f, true);
	for (size_t i = 0; i < f->v.n_steps; i++)
		fake_stats_of(f, i)->waiting = 0;
	text = report(f, 1000);
	assert_has(text, "waiting p50 0, max 0");
	assert_lacks(text, "waiting   sequences");
	free(text);
}

static void test_report__says_what_is_inferred(void **state)
{
	struct fake *f = *state;
	char *text;

	preempted(f, true);
	f->members[0].guess = 1;
	f->seqs[0].preemptions[0].prov = PROV_INFERRED;
	text = report(f, 1000);
	assert_has(text, "1 of 28 members of steps is inferred and not certain: \"p?\" in --json");
	assert_has(text, "1 preemption is inferred from steps: who computes again, or is in none of them");
	assert_has(text, "; 1 preemption\n");
	free(text);
	f->seqs[0].preemptions[0].resumed_ns = 0;
	text = report(f, 1000);
	assert_has(text, "; 1 preemption (1 not yet told)\n");
	free(text);
}

static void test_delivery__of_chunks_that_hold_several_is_at_least_that(void **state)
{
	struct fake *f = *state;
	char *text;

	preempted(f, true);
	f->reqs[0].n_chunks--;
	f->reqs[0].chunks[2] = f->reqs[0].chunks[3];
	text = one(f, 0, false);
	assert_has(text, "delivery    4 outputs: p50 3.00 ms, p99 12.0 ms, max 12.0 ms (chunks hold several: at "
			 "least this)\n");
	free(text);
	text = one(f, 0, true);
	assert_has(text, "of its chunk: p50 at least 3.00 ms, max 12.0 ms over 4 outputs\n");
	free(text);
}

static void test_report__warm_and_cold(void **state)
{
	struct fake *f = *state;
	char *text;

	preempted(f, true);
	text = report(f, 1000);
	assert_has(text, "by prefix cache (warm: at least half of the prompt was cached)");
	assert_has(text, "\ncold               1 ");
	assert_has(text, "\nunknown            1 ");
	free(text);
	f->reqs[1].cached = fake_count(16);
	f->reqs[1].prompt = fake_count(32);
	text = report(f, 1000);
	assert_has(text, "\nwarm               1 ");
	free(text);
	f->reqs[1].cached = fake_count(0);
	text = report(f, 1000);
	assert_lacks(text, "by prefix cache");
	free(text);
}

static void test_report__fits_its_width(void **state)
{
	static const int widths[] = { 80, 100, 132 };

	preempted(*state, true);
	((struct fake *)*state)->seqs[0].n_again = 123456;
	for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
		char *text = report(*state, widths[i]), *rest = NULL;

		for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
			if (utf8_width(l) > widths[i])
				print_error("%d columns: %s\n", utf8_width(l), l);
			assert_in_range(utf8_width(l), 1, widths[i]);
		}
		free(text);
	}
}

static void test_sinks__survive_no_memory(void **state)
{
	struct fake *f = *state;
	FILE *out = fopen("/dev/null", "w");
	struct summary s;
	int err = 0;

	assert_non_null(out);
	preempted(f, true);
	assert_int_equal(summarise(&f->v, &s), 0);
	fputc('\n', out);	/* stdio takes its buffer here */
	OOM_LOOP(err = text_report(&f->v, &s, &(struct text_opts){ 0 }, out);
		 if (err) assert_int_equal(err, -ENOMEM))
	assert_int_equal(err, 0);
	OOM_LOOP(err = why_request(&f->v, 0, &(struct text_opts){ 0 }, out);
		 if (err) assert_int_equal(err, -ENOMEM))
	assert_int_equal(err, 0);
	OOM_LOOP(err = text_request(&f->v, 0, &(struct text_opts){ 0 }, out);
		 if (err) assert_int_equal(err, -ENOMEM))
	assert_int_equal(err, 0);
	fclose(out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_trace__parts_of_a_preempted_request),
		TEST(test_trace__preempted_in_its_prompt),
		TEST(test_why__parked_at_the_end),
		TEST(test_why__preemption_queue_and_front_end),
		TEST(test_why__a_silent_scheduler_is_not_called_full),
		TEST(test_request__preemption),
		TEST(test_report__scheduler),
		TEST(test_report__without_a_scheduler_says_nothing_of_one),
		TEST(test_report__nobody_waits),
		TEST(test_report__says_what_is_inferred),
		TEST(test_delivery__of_chunks_that_hold_several_is_at_least_that),
		TEST(test_report__warm_and_cold),
		TEST(test_report__fits_its_width),
		TEST(test_sinks__survive_no_memory),
	};

	return cmocka_run_group_tests_name("sink_scheduler", tests, NULL, NULL);
}
