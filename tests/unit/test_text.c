/* SPDX-License-Identifier: Apache-2.0 */
/* The report as text: its first line, its honesty, its columns; finding a request by name. */
#include "unit.h"
#include "fake_server.h"
#include "model/gpu.h"
#include "sink/find.h"
#include "sink/text.h"

#include <errno.h>

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

static char *render(struct fake *f, const struct text_opts *o, long request)
{
	struct summary s;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(summarise(&f->v, &s), 0);
	if (request < 0)
		assert_int_equal(text_report(&f->v, &s, o, out), 0);
	else
		assert_int_equal(text_request(&f->v, (size_t)request, o, out), 0);
	fclose(out);
	return text;
}

/* So wide that no sentence is wrapped. */
static char *report(struct fake *f)
{
	return render(f, &(struct text_opts){ .width = 1000 }, -1);
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

/* r1 and r2 fill both slots; r3 waits for one. */
static void busy_server(struct fake *f)
{
	struct fake_job jobs[] = {
		{ .at_ms = 10, .prompt = 30, .output = 60, .stream = true },
		{ .at_ms = 20, .prompt = 64, .cached = 10, .output = 30, .stream = true },
		{ .at_ms = 30, .prompt = 900, .output = 5, .stream = true },
	};

	fake_serve(f, jobs, ARRAY_SIZE(jobs));
}

static void test_report__first_line_is_the_answer(void **state)
{
	char *text;

	busy_server(*state);
	text = report(*state);
	assert_int_equal(strncmp(text, "100 % of the time above baseline between tokens (", 49), 0);
	assert_has(text, " is prefill of other requests in the same step; worst culprit r3 (900 tokens): 1");
	assert_has(text, "\n3 of 3 requests complete; TTFT p50 ");
	assert_has(text, "most of the worst TTFT (r3, 338 ms): 197 ms its own prefill.\n");
	assert_has(text, ": r3 prefill, 1 more\n");
	assert_has(text, " from 2023-11-14 22:13:20.000 +0000 on box (kernel");
	assert_has(text, "ITL per token      92    4.60    4.60    55.4    55.4  observed, engine");
	assert_has(text, "TPOT                3    4.60    7.75       -    7.75  wire, tokens reported");
	assert_has(text, "No p99 of fewer than 10 values: it would be their max.\n");
	assert_has(text, "queue               3    0.20     139       -     139  observed\n");
	free(text);
}

static void test_report__says_which_values_are_inferred(void **state)
{
	struct fake *f = *state;
	char *text;

	busy_server(f);
	f->reqs[1].at_ns[P_SUBMIT] = 0;
	text = report(f);
	assert_has(text, "observed, 1 inferred\n");
	assert_has(text, "queue of 1 request is counted from req_last_byte, as submit was");
	free(text);
}

static void test_report__says_what_it_did_not_see(void **state)
{
	struct fake *f = *state;
	struct rec_request *r;
	char *text;

	busy_server(f);
	r = fake_request(f, 40);
	r->state = REQ_ERROR;
	r->status = 400;
	r->how_ended = TL_END_COMPLETE;
	r->n = 2;	/* and got none */
	r = fake_request(f, 50);
	r->state = REQ_ABORTED;
	r->how_ended = TL_END_CLIENT;
	f->reqs[f->v.n_requests] = *r;
	f->reqs[f->v.n_requests++].req++;
	f->v.n_lost_events = 10;
	f->v.n_events = 990;
	f->v.n_lost = 1;
	f->lost[0] = (struct rec_lost){ fake_ns(60), fake_ns(70), 10, TL_LOST_RING, 0 };
	text = report(f);
	assert_has(text, "3 of 6 requests complete (2 aborted by the client, 1 error)");
	assert_has(text, "10 LOST (99.0 % seen)");
	assert_has(text, "between 60.0 and 70.0 ms: figures of that time are incomplete");
	assert_has(text, "error     r4: HTTP 400, /v1/chat/completions\n");
	assert_null(strstr(text, "several answers"));
	assert_has(text, "aborted   r5 r6: the client went away before the first token");
	assert_has(text, "cost      not known");
	free(text);
}

static void test_report__hundred_percent_is_said_of_nothing_less(void **state)
{
	struct fake *f = *state;
	char *text;

	busy_server(f);
	text = report(f);
	assert_has(text, "100.0 % of their");
	free(text);
	f->seqs[1].req = 0;
	f->seqs[1].n_visits = 1;
	f->steps[0].n_tokens += 1000000;
	f->members[0].n_tokens += 1000000;
	text = report(f);
	assert_has(text, "99.9 % of their");
	free(text);
}

static void test_report__empty(void **state)
{
	static const struct rec_other others[] = {
		{ .req = 1, .path = "/health" }, { .req = 2, .path = "/metrics" }, { .req = 3, .path = "/metrics" },
		{ .req = 4, .path = "/tokenize", .body_bytes = 3000000 }, { .req = 5, .path = "/metrics" },
	};
	struct fake *f = *state;
	char *text;

	f->v.t1_ns = f->v.t0_ns + 30000000000;
	f->v.n_other_requests = 6;
	f->v.others = others;
	f->v.n_others = 5;
	text = report(f);
	assert_has(text, "No request to an LLM API was seen in 30.0 s; is there traffic");
	assert_has(text, " and 6 others (1 /tokenize with a body of 3.00 MB, 3 /metrics, 1 /health, and others)");
	assert_has(text, "port 8080");
	assert_lacks(text, "TTFT");
	free(text);
	f->v.n_conns_tls = 1;
	text = report(f);
	assert_has(text, "No request to an LLM API was read in 30.0 s: clients speak TLS, which is not.");
	assert_has(text, "1 connection is encrypted (TLS): what it carried was not read");
	f->v.n_conns_tls = 0;
	f->v.n_engines = 0;
	f->v.host = NULL;
	free(text);
	text = report(f);
	assert_has(text, "engine    none");
	free(text);
}

static void test_report__fits_its_width(void **state)
{
	static const int widths[] = { 60, 80, 100, 132 };

	busy_server(*state);
	strcpy(((struct fake *)*state)->reqs[2].x_request_id, "6f1e2d3c-0000-4000-8000-000000000000");
	for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
		struct text_opts o = { .width = widths[i], .utf8 = true };
		char *text = render(*state, &o, -1), *rest = NULL;

		for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
			if (utf8_width(l) > widths[i])
				print_error("%d columns: %s\n", utf8_width(l), l);
			assert_in_range(utf8_width(l), 1, widths[i]);
			assert_int_not_equal(l[strlen(l) - 1], ' ');
		}
		free(text);
	}
}

/* What a gateway's log has, too. */
static void test_report__names_requests_as_their_clients_do(void **state)
{
	struct fake *f = *state;
	char *text;

	busy_server(f);
	strcpy(f->reqs[2].x_request_id, "6f1e2d3c-0000-4000-8000-000000000000");
	text = report(f);
	assert_has(text, "\nid    x-request-id state     in/cached/out ");
	assert_has(text, "\nr3    6f1e2d3c-000 complete ");
	assert_has(text, "\nr1    -            complete ");
	free(text);
}

static void test_report__says_which_columns_it_left_out(void **state)
{
	static const struct { int width; const char *has[3]; } cases[] = {
		{ 100, { "  why\n", "observed, engine side\n", "\n<=1024             1" } },
		{ 80, { "Columns left out: ITL/token, prefill (wider terminal or COLUMNS=100).\n",
			"observed, engine side\n", "    e2e slot\n" } },
		{ 60, { "Columns left out: queue, ITL/token, prefill (",
			"Columns left out: prefill, slot (wider terminal",
			"Column left out: from (wider" } },
	};

	busy_server(*state);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *text = render(*state, &(struct text_opts){ .width = cases[i].width }, -1);

		for (size_t k = 0; k < 3; k++)
			assert_has(text, cases[i].has[k]);
		if (cases[i].width == 100)
			assert_lacks(text, "left out:");
		free(text);
	}
}

static void test_request__fits_its_width(void **state)
{
	struct fake *f = *state;

	busy_server(f);
	f->reqs[2].at_ns[P_SUBMIT] = 0;
	for (int width = 60; width < 110; width += 20) {
		char *text = render(f, &(struct text_opts){ .width = width }, 2), *rest = NULL;

		for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest)) {
			if (utf8_width(l) > width)
				print_error("%d columns: %s\n", utf8_width(l), l);
			assert_in_range(utf8_width(l), 1, width);
		}
		free(text);
	}
}

/* The largest batch that was seen is no limit where the engine has room for more, or who was in a step is inferred. */
static void test_report__says_what_all_waited_for(void **state)
{
	struct gpu_facts facts = { .n_inferred_steps = 1 };
	struct fake *f = *state;
	struct fake_job jobs[12];
	char *text;

	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
		jobs[i] = (struct fake_job){ .at_ms = 10 + (double)i, .prompt = 100, .output = 40,
					     .stream = true };
	fake_serve(*state, jobs, ARRAY_SIZE(jobs));
	text = report(*state);
	assert_has(text, "\nOf all waiting for first tokens (");
	assert_has(text, " s, 12 requests): 9");
	assert_has(text, " % waiting for a slot; the batch is nearly always full at 2.\n");
	assert_has(text, "; TTFT p50 492 ms, p99 1.16 s; TPOT");	/* 12 values have a p99 */
	free(text);
	f->engines[0].e.max_seqs = 3;
	text = report(f);
	assert_has(text, " % waiting for a slot.\n");
	free(text);
	f->engines[0].e.max_seqs = 2;
	text = report(f);
	assert_has(text, " % waiting for a slot; the batch is nearly always full at 2.\n");
	free(text);
	f->v.gpu = &facts;
	text = report(f);
	assert_has(text, " % waiting for a slot.\n");
	free(text);
}

static void test_report__answers_for_what_is_not_streamed(void **state)
{
	struct fake_job jobs[] = {
		{ .at_ms = 10, .prompt = 30, .output = 60 },
		{ .at_ms = 20, .prompt = 64, .output = 30 },
	};
	char *text;

	fake_serve(*state, jobs, ARRAY_SIZE(jobs));
	text = report(*state);
	assert_int_equal(strncmp(text, "2 of 2 requests complete; e2e p50 ", 34), 0);
	assert_lacks(text, "Of all waiting");
	free(text);
}

static void test_report__several_servers(void **state)
{
	struct fake *f = *state;
	char *text;

	f->engines[1] = f->engines[0];
	f->engines[1].e.hdr.tgid = 4711;
	f->v.n_engines = 2;
	text = report(f);
	assert_has(text, "engine    pid 4711: llama.cpp");	/* none has requests: both are shown */
	free(text);
	busy_server(f);
	text = report(f);
	assert_has(text, "engine    pid 4242: llama.cpp");
	assert_has(text, "          1 more engine process without requests: pid 4711\n");
	assert_lacks(text, "pid 4711: llama.cpp");
	assert_lacks(text, "id    pid ");
	free(text);
	f->reqs[2].engine = 1;
	text = report(f);
	assert_has(text, "id    pid      state ");
	assert_has(text, "r3    4711     complete");
	assert_lacks(text, "more engine process");
	free(text);
}

static void test_report__escapes_only_with_color(void **state)
{
	char *text;

	busy_server(*state);
	text = report(*state);
	assert_lacks(text, "\33");
	for (const char *c = text; *c; c++)
		assert_false((unsigned char)*c >= 0x80);
	free(text);
	text = render(*state, &(struct text_opts){ .color = true }, -1);
	assert_has(text, "\33[1m");
	free(text);
}

/* In few columns there is no room for "its other answers's prefill". */
static void test_report__names_own_prefills_shortly(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	uint32_t q[3];
	char *text;

	fake_point(r, P_REQ_LAST_BYTE, 1);
	fake_point(r, P_SUBMIT, 2);
	fake_point(r, P_FIRST_TOKEN_WIRE, 1062);
	for (int i = 0; i < 3; i++)
		q[i] = fake_seq(f, r, (uint32_t)i);
	fake_step(f, 3, 1061);
	fake_member(f, q[0], 'P', 50);
	fake_member(f, q[1], 'P', 400);
	fake_member(f, q[2], 'P', 62);
	fake_done(f, r, 1070);
	text = report(f);
	assert_has(text, "  with own prefills: 1.06 s\n");
	free(text);
}

/* One step prefills much of r1 and little of r2; the table says whose time that was. */
static void test_report__names_who_filled_a_prefill(void **state)
{
	struct fake *f = *state;
	uint32_t q[2];
	char *text;

	for (int i = 0; i < 2; i++) {
		struct rec_request *r = fake_request(f, i);

		fake_point(r, P_REQ_LAST_BYTE, i + 1);
		fake_point(r, P_SUBMIT, i + 2);
		fake_point(r, P_FIRST_TOKEN_WIRE, 1062 - i);
		q[i] = fake_seq(f, r, (uint32_t)i);
	}
	fake_step(f, 3, 1061);
	fake_member(f, q[0], 'P', 462);
	fake_member(f, q[1], 'P', 50);
	for (int i = 0; i < 2; i++)
		fake_done(f, &f->reqs[i], 1070);
	text = report(f);
	assert_has(text, "  prefill of 462 tok: 1.06 s\n");
	assert_has(text, "  with r1's prefill: 1.06 s\n");
	free(text);
	/* nor is it called one request's where it was several */
	q[0] = fake_seq(f, fake_request(f, 1), 2);
	fake_member(f, q[0], 'P', 40);
	text = report(f);
	assert_has(text, "  with r1, 1 more: 1.06 s\n");
	free(text);
	f->v.n_members--;
	f->steps[0].n_members--;
	free(f->reqs[--f->v.n_requests].seqs);
	f->reqs[0].state = REQ_ERROR; /* so that r2 is the worst */
	text = report(f);
	assert_has(text, " s prefill of 50 tokens in 1 step that was mostly prefill of r1 (462 tok)");
	free(text);
}

static void test_report__of_errors_only(void **state)
{
	struct fake *f = *state;
	char *text;

	busy_server(f);
	for (size_t i = 0; i < f->v.n_requests; i++) {
		f->reqs[i].state = REQ_ERROR;
		f->reqs[i].how_ended = TL_END_SERVER;
	}
	text = report(f);
	assert_has(text, "requests were cut short by the server: what is known of them is in the percentiles");
	assert_null(strstr(text, "not in any percentile"));
	assert_has(text, " error     ");
	free(text);
	for (size_t i = 0; i < f->v.n_requests; i++)
		f->reqs[i].status = 500;
	text = report(f);
	assert_has(text, "-  errors only\n");
	assert_null(strstr(text, "slowest TTFT first"));
	free(text);
}

static void test_report__classes_only_when_mixed(void **state)
{
	struct fake *f = *state;
	char *text;

	busy_server(f);
	text = report(f);
	assert_has(text, "by length of the prompt");
	assert_has(text, "<=1024             1");
	assert_has(text, "by length of the output");
	free(text);
	f->v.n_requests = 2;
	text = report(f);
	assert_lacks(text, "by length of the prompt");
	assert_lacks(text, "by length of the output");
	f->v.n_requests = 3;
	free(text);
}

static void test_request__points_in_order_of_time(void **state)
{
	struct fake *f = *state;
	char *text, *a, *b;

	busy_server(f);
	strcpy(f->reqs[2].x_request_id, "req-77");
	text = render(f, &(struct text_opts){ .width = 1000 }, 2);
	assert_has(text, "r3: complete after");
	assert_has(text, "began       2023-11-14 22:13:20.030 +0000, 30.000 ms after the recording began\n");
	assert_has(text, "POST /v1/chat/completions, model tiny, streamed");
	assert_has(text, "x-request-id req-77");
	assert_has(text, "900 tokens (reported)");
	assert_has(text, "by task, confidence 100 %");
	a = strstr(text, "headers");	/* behind it in the order of enum point */
	b = strstr(text, "first_token_engine");
	assert_non_null(a);
	assert_true(a < b);
	assert_has(text, "req_last_byte                  0.100         0.100  observed");
	assert_has(text, "submit                         1.000         0.900  observed");
	assert_has(text, "not seen:   queued, close");
	free(text);
}

static void test_request__of_which_nothing_is_known(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	char *text;

	memset(r->at_ns, 0, sizeof(r->at_ns));
	r->joined_late = true;
	r->state = REQ_TRUNCATED;
	r->how_ended = TL_END_CAPTURE;
	r->status = 0;
	r->stream = -1;
	r->path[0] = '\0';
	text = render(f, &(struct text_opts){ .width = 1000 }, 0);
	assert_has(text, "its beginning was not seen; its end was not seen");
	assert_has(text, "(path not seen)");
	assert_has(text, "no response head was seen");
	assert_has(text, "to no sequence of the engine");
	free(text);
}

static void test_text__survives_no_memory(void **state)
{
	struct fake *f = *state;
	FILE *out = fopen("/dev/null", "w");
	struct summary s;
	int err = 0;

	assert_non_null(out);
	busy_server(f);
	assert_int_equal(summarise(&f->v, &s), 0);
	fputc('\n', out);	/* stdio takes its buffer here */
	OOM_LOOP(err = text_report(&f->v, &s, &(struct text_opts){ 0 }, out);
		 if (err) assert_int_equal(err, -ENOMEM))
	assert_int_equal(err, 0);
	OOM_LOOP(err = text_request(&f->v, 1, &(struct text_opts){ 0 }, out);
		 if (err) assert_int_equal(err, -ENOMEM))
	assert_int_equal(err, 0);
	fclose(out);
}

static void test_text__full_disk_is_an_error(void **state)
{
	FILE *full = fopen("/dev/full", "w");
	struct fake *f = *state;
	struct summary s;

	assert_non_null(full);
	busy_server(f);
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(text_report(&f->v, &s, &(struct text_opts){ 0 }, full), -ENOSPC);
	fclose(full);
}

/* ---- find_request ---- */

static const struct find_case {
	const char *what;
	int err;
	size_t index;
	const char *says;
} find_cases[] = {
	{ "r2", 0, 1, NULL },
	{ "2", 0, 1, NULL },
	{ "R3", 0, 2, NULL },
	{ "chatcmpl-a001", 0, 0, NULL },
	{ "alpha", 0, 0, NULL },		/* equal to one, begin of another */
	{ "alpha-b", 0, 1, NULL },
	{ "al", -ENOTUNIQ, 0, "'al' is the beginning of 2 requests: r1 r2; name one of them" },
	{ "chatcmpl", -ENOTUNIQ, 0, "r1 r2 r3" },
	{ "7", 0, 2, NULL },			/* no r7, but an id that begins so */
	{ "r9", -ENOENT, 0, "no request 'r9'; there are r1 to r3" },
	{ "r5", -ENOENT, 0, "'r5' was /tokenize, no request to an LLM" },
	{ "6", -ENOENT, 0, "'6' was of another kind, no request to an LLM" },
	{ "", -ENOENT, 0, "no request ''" },
	{ "zeta", -ENOENT, 0, "no request 'zeta'" },
	{ "00-abc", 0, 2, NULL },
};

static void test_find__cases(void **state)
{
	static const struct rec_other others[] = { { .req = 5, .path = "/tokenize" }, { .req = 6 } };
	struct fake *f = *state;

	f->v.others = others;
	f->v.n_others = ARRAY_SIZE(others);
	for (int i = 0; i < 3; i++)
		fake_request(f, i);
	strcpy(f->reqs[0].x_request_id, "alpha");
	strcpy(f->reqs[1].x_request_id, "alpha-beta");
	strcpy(f->reqs[2].x_request_id, "77-x");
	strcpy(f->reqs[2].traceparent, "00-abcdef-01");
	for (size_t i = 0; i < ARRAY_SIZE(find_cases); i++) {
		const struct find_case *c = &find_cases[i];
		char why[200] = "";
		size_t index = 99;

		assert_int_equal(find_request(&f->v, c->what, &index, why, sizeof(why)), c->err);
		if (c->err)
			assert_has(why, c->says);
		assert_int_equal(index, c->err ? 99 : c->index);
	}
}

static void test_find__many_candidates_are_cut(void **state)
{
	struct fake *f = *state;
	char why[200], small[20];
	size_t index;

	for (int i = 0; i < 30; i++)
		fake_request(f, i);
	assert_int_equal(find_request(&f->v, "chat", &index, why, sizeof(why)), -ENOTUNIQ);
	assert_has(why, "30 requests: r1 r2 r3 r4 r5 r6 r7 r8 ...; say more of it");
	assert_int_equal(find_request(&f->v, "chat", &index, small, sizeof(small)), -ENOTUNIQ);
	f->v.n_requests = 0;
	assert_int_equal(find_request(&f->v, "chat", &index, why, sizeof(why)), -ENOENT);
	assert_has(why, "holds no requests");
	f->v.n_requests = 30;
}

static const struct { int64_t ns; const char *want; } ms_cases[] = {
	{ -1, "-" },	       { 0, "0.00" },	       { 4999, "0.00" },      { 5001, "0.01" },
	{ 9994000, "9.99" },   { 9996000, "10.0" },    { 41230000, "41.2" },  { 99960000, "100" },
	{ 380400000, "380" },  { 12345600000, "12346" },
};

static void test_cell_ms__three_digits(void **state)
{
	char buf[CELL_LEN];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ms_cases); i++)
		assert_string_equal(cell_ms(buf, ms_cases[i].ns), ms_cases[i].want);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	setenv("TZ", "UTC", 1);
	const struct CMUnitTest tests[] = {
		TEST(test_report__first_line_is_the_answer),
		TEST(test_report__says_which_values_are_inferred),
		TEST(test_report__says_what_it_did_not_see),
		TEST(test_report__hundred_percent_is_said_of_nothing_less),
		TEST(test_report__empty),
		TEST(test_report__fits_its_width),
		TEST(test_report__names_requests_as_their_clients_do),
		TEST(test_report__says_which_columns_it_left_out),
		TEST(test_request__fits_its_width),
		TEST(test_report__says_what_all_waited_for),
		TEST(test_report__answers_for_what_is_not_streamed),
		TEST(test_report__several_servers),
		TEST(test_report__escapes_only_with_color),
		TEST(test_report__names_who_filled_a_prefill),
		TEST(test_report__names_own_prefills_shortly),
		TEST(test_report__of_errors_only),
		TEST(test_report__classes_only_when_mixed),
		TEST(test_request__points_in_order_of_time),
		TEST(test_request__of_which_nothing_is_known),
		TEST(test_text__survives_no_memory),
		TEST(test_text__full_disk_is_an_error),
		TEST(test_find__cases),
		TEST(test_find__many_candidates_are_cut),
		TEST(test_cell_ms__three_digits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
