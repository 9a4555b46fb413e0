/* SPDX-License-Identifier: Apache-2.0 */
/* Blame as text: the first line is the answer, tables add up, what is not known is said. */
#include "unit.h"
#include "fake_blame.h"
#include "sink/blame_table.h"
#include "sink/blame_words.h"

#include <errno.h>

/* A streamed request of that many tokens, the first one at first_ms. Returns its index. */
static uint32_t streamed(struct fake *f, uint32_t prompt, uint32_t n_tokens, double first_ms,
			 double last_ms)
{
	struct rec_request *r = fake_request(f, first_ms - 10);

	r->prompt = fake_count(prompt);
	r->output = fake_count(n_tokens);
	fake_chunk(r, first_ms, TL_CHUNK_TEXT);
	fake_chunk(r, last_ms, TL_CHUNK_TEXT);
	fake_done(f, r, last_ms + 1);
	return r->req - 1;
}

/* Long prefill in a mixed batch: r3 keeps r1 and r2 waiting twice, 160 ms each. */
static void long_prefill(struct fake *f)
{
	uint32_t c, q[2];

	for (uint32_t r = 0; r < 2; r++) {
		streamed(f, 40, 101, 20, 20 + 98 * 20 + 2 * 180);
		q[r] = fake_seq(f, &f->reqs[r], r);
	}
	c = streamed(f, 8188, 1, 2340, 2340);
	fake_seq(f, &f->reqs[c], 2);
	for (uint32_t t = 1; t <= 100; t++) {
		double t0 = t <= 99 ? 20 * t : 1980 + 180 * (t - 99.0), ms = t < 99 ? 20 : 180;

		fake_step(f, t0, t0 + ms);
		for (uint32_t r = 0; r < 2; r++) {
			struct gap *g = fake_gap(r, t, t0, 20);

			g->seq = q[r] + 1;
			fake_member(f, q[r], 'd', 1);
			if (t >= 99)
				fake_part_by(g, MECH_PREFILL, 160, WHO_REQUEST, 2, "");
			fake_part(g, MECH_OWN_DECODE, 20);
		}
		if (t >= 99)
			fake_member(f, 2, t == 99 ? 'p' : 'P', 4094);
	}
	fake_part(fake_gap(c, 0, 1965, 360), MECH_OWN_PREFILL, 360);
	fake_part_by(&fake_blame.gaps[fake_blame.n - 1], MECH_STEP_WAIT, 15, WHO_REQUEST, 0, "");
}

static char *render(struct fake *f, struct blame_text *t, const struct text_opts *o)
{
	struct blame_selection sel = { .request = t->request };
	struct blame_sum *sum = NULL, *all = NULL;
	struct summary summary;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	if (t->mechanism < N_MECHANISMS)
		sel.mechanisms = 1ull << t->mechanism;
	assert_int_equal(summarise(&f->v, &summary), 0);
	assert_int_equal(blame_sum__select(&fake_blame, &f->v, &sel, &sum), 0);
	assert_int_equal(blame_sum__new(&fake_blame, &f->v, &all), 0);
	t->v = &f->v;
	t->summary = &summary;
	t->sum = sum;
	t->all = all;
	t->hows = &fake_blame.hows;
	assert_int_equal(blame_text(t, o, out), 0);
	fclose(out);
	blame_sum__free(sum);
	blame_sum__free(all);
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

static void assert_begins(const char *text, const char *with)
{
	size_t same = 0;

	while (with[same] && with[same] == text[same])
		same++;
	if (with[same])
		print_error("wanted \"%.60s\", not \"%.60s\"\n", with + same, text + same);
	assert_int_equal(with[same], 0);
}

static char *all_of(struct fake *f, int width)
{
	struct blame_text t = { .mechanism = N_MECHANISMS, .top = 10 };

	return render(f, &t, &(struct text_opts){ .width = width });
}

/* The whole page, as a person sees it on 80 columns. */
static const char golden_80[] =
	"100 % of the time above baseline between tokens (640 ms, that is 14 % of 4.64 s)\n"
	"is prefill of other requests in the same step; worst culprit r3 (8188 tokens):\n"
	"640 ms of gaps on 2 requests; with chunks of 1024 tokens instead of 4094 the\n"
	"longest stall by prefill would take about 60.0 ms instead of 180 ms; there would\n"
	"be more of them (llama.cpp --batch-size).\n"
	"\n"
	"ms above baseline              gaps+TTFT  share requests  worst culprit\n"
	"prefill in the same step             640   98 %        2  r3: 640\n"
	"wait for a step's end               15.0    2 %        1  r1: 15.0\n"
	"\n"
	"own       4.00 s decode, 360 ms prefill: 87 % of the 5.02 s of all gaps (200)\n"
	"          and waits for first tokens (1)\n"
	"\n"
	"who slowed whom, ms: victims down, culprits across\n"
	"                     r3         r1        all\n"
	"r1                  320          .        320\n"
	"r2                  320          .        320\n"
	"r3                    .       15.0       15.0\n"
	"all                 640       15.0        655\n"
	"\n"
	"victim  culprit           by                                    ms  gaps\n"
	"r1      r3                prefill in the same step             320     2\n"
	"r2      r3                prefill in the same step             320     2\n"
	"r3      r1                wait for a step's end               15.0     -\n"
	"\n"
	"    at ms  victim  token       ms    usual  longest gaps: what filled them\n"
	"     1980  r1 +1      99      180     20.0  160 ms prefill in the same step\n"
	"                                            (r3), 20.0 ms own decode\n"
	"     2160  r1 +1     100      180     20.0  160 ms prefill in the same step\n"
	"                                            (r3), 20.0 ms own decode\n"
	"4 of 200 gaps are longer than usual.\n"
	"\n"
	"what if, ms                                TPOT p50   TPOT p99   TTFT p99\n"
	"as it was                                      23.2      23.2*       375*\n"
	"without prefill in the same step               20.0      20.0*       375*\n"
	"without wait for a step's end                  23.2      23.2*       360*\n"
	"* max, as there are fewer than 10 values\n"
	"\n"
	"blame     100 % observed\n";

static void test_blame__page(void **state)
{
	char *text;

	long_prefill(*state);
	text = all_of(*state, 80);
	assert_begins(text, golden_80);
	assert_has(text, "learnt from 100 undisturbed steps of this recording; 0 of 200 gaps");
	assert_has(text, "\nseen      ");
	assert_has(text, "\ncost      ");
	assert_has(text, "doc/mechanisms.md");
	assert_lacks(text, "unknown");
	assert_lacks(text, "\33[");
	free(text);
}

static void test_blame__says_how(void **state)
{
	char *text;

	long_prefill(*state);
	fake_blame.hows.n = 2;
	for (int i = 0; i < 2; i++)
		fake_blame.hows.v[i] = (struct how){ .mechanism = i ? MECH_GC : MECH_THROTTLED, .n_steps = 2, .busy_pct = i ? 6 : -1,
						     .all_busy_pct = 15, .steps_ns = 168000000, .lost_ns = 152000000 };
	text = all_of(*state, 120);
	assert_has(text, "\nhow       CPU quota used up: 2 steps of 84.0 ms lost 76.0 ms each to it\n"
			 "          garbage collection: 2 steps of 84.0 ms lost 76.0 ms each to it; GPU busy 6.0 % of them, 15.0 % of");
	free(text);
}

static void test_blame__fits_its_width(void **state)
{
	static const int widths[] = { 60, 80, 100, 120 };

	long_prefill(*state);
	for (size_t i = 0; i < ARRAY_SIZE(widths); i++) {
		char *text = all_of(*state, widths[i]);

		for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			assert_true(utf8_width(line) <= widths[i]);
		free(text);
	}
}

static void test_blame__wider_says_more(void **state)
{
	char *text;

	long_prefill(*state);
	text = all_of(*state, 120);
	assert_has(text, "ms above baseline              gaps+TTFT  share  in gaps in TTFTs requests  worst");
	assert_has(text, "prefill in the same step             640   98 %      640        -        2  r3: 640\n");
	assert_has(text, "ms  gaps  longest      at ms  from\n");
	assert_has(text, "320     2      160       1980  observed\n");
	free(text);
}

static void test_blame__color(void **state)
{
	struct blame_text t = { .mechanism = N_MECHANISMS, .top = 10 };
	char *text;

	long_prefill(*state);
	text = render(*state, &t, &(struct text_opts){ .width = 80, .color = true });
	assert_begins(text, "\33[1m100 % of");
	free(text);
}

static void test_blame__names_every_kind_of_culprit(void **state)
{
	static const struct {
		enum culprit_type type;
		uint32_t id;
		const char *name, *text, *brief;
	} cases[] = {
		{ WHO_NOBODY, 0, "", "", "nobody" },
		{ WHO_REQUEST, 0, "", "r1", "r1" },
		{ WHO_REQUEST, 99, "", "a request", "a request" },
		{ WHO_SEQUENCE, 0, "", "slot 3", "slot 3" },
		{ WHO_SEQUENCE, 99, "", "?", "?" },
		{ WHO_THREAD, 31, "grammar-2", "grammar-2 (tid 31)", "grammar-2" },
		{ WHO_THREAD, 31, "", "tid 31", "tid 31" },
		{ WHO_PROCESS, 4343, "ffmpeg", "ffmpeg (pid 4343)", "ffmpeg" },
		{ WHO_PROCESS, 4242, "llama-server", "llama-server (pid 4242, of this server)", "llama-server" },
		{ WHO_PROCESS, 77, "tokenlag", "tokenlag (pid 77, this recording)", "tokenlag" },
		{ WHO_PROCESS, 78, "tokenlag", "tokenlag (pid 78, not this recording)", "tokenlag" },
		{ WHO_PROCESS, 4242, "", "pid 4242", "pid 4242" },
		{ WHO_CGROUP, 0, "llm.slice", "cgroup llm.slice", "llm.slice" },
		{ WHO_CGROUP, 0, "", "cgroup", "cgroup" },
		{ WHO_DEVICE, 1, "", "GPU 1", "GPU 1" },
		{ WHO_RANK, 2, "worker", "rank 2 (worker)", "rank 2" },
		{ WHO_CLIENT, 5000, "", "client at port 5000", ":5000" },
		{ WHO_CLIENT, 5000, "bench", "client at port 5000 (bench)", "bench" },
		{ WHO_CLIENT, 0, "", "client", "client" },
		{ WHO_NETWORK, 0, "", "network", "network" },
		{ N_CULPRIT_TYPES, 0, "", "?", "?" },
	};
	struct fake *f = *state;

	fake_request(f, 1);
	fake_seq(f, NULL, 3);
	f->v.self = &(struct tl_self){ .hdr.tgid = 77 };
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct culprit c = { .type = (uint8_t)cases[i].type, .id = cases[i].id };
		char buf[100];

		snprintf(c.name, sizeof(c.name), "%s", cases[i].name);
		assert_string_equal(culprit_text(&f->v, &c, buf, sizeof(buf)), cases[i].text);
		assert_string_equal(culprit_brief(&f->v, &c, buf, sizeof(buf)), cases[i].brief);
	}
}

static void test_blame__says_what_is_unknown(void **state)
{
	struct fake *f = *state;
	struct gap *g;
	char *text;

	streamed(f, 40, 2, 20, 240);
	g = fake_gap(0, 1, 20, 20);
	fake_part(g, MECH_UNEXPLAINED, 180);
	fake_part(g, MECH_LOST, 20);
	fake_part(g, MECH_OWN_DECODE, 20);
	g->ruled_out = 1ull << MECH_GC | 1ull << MECH_THROTTLED;
	text = all_of(f, 1000);
	assert_begins(text, "100 % of the time above baseline between tokens (180 ms, that is 82 % of 220 ms) "
			    "is unexplained; ruled out, in what is unexplained: garbage collection; CPU quota used up.\n");
	assert_has(text, "unknown   180 ms in 1 gap of 1 request is unexplained\n"
			 "          ruled out, in what is unexplained: garbage collection; CPU quota used up\n"
			 "          no evidence was recorded of: engine thread busy on its CPU; wait for the GIL or "
			 "a lock; first use: compile, load; grammar of structured output; wait for a CPU; too few "
			 "CPUs for its threads; wait for the disk; stopped or frozen; devices (graphs, ranks, neighbours, clocks, copies); the front end "
			 "(event loop, detokenizer); what is behind its sockets (Nagle, client, proxy, "
			 "network)\n");
	assert_has(text, "lost      20.0 ms of gaps lie where events were lost: nobody is blamed there\n");
	free(text);
}

static void test_blame__root_and_provenance(void **state)
{
	struct fake *f = *state;
	struct blame_part *p;
	char *text;

	streamed(f, 40, 2, 20, 220);
	streamed(f, 40, 2, 20, 220);
	p = fake_part_by(fake_gap(0, 1, 20, 20), MECH_RECOMPUTE, 200, WHO_REQUEST, 1, "");
	p->root = (struct culprit){ .type = WHO_PROCESS, .id = 7, .name = "x" };
	p->prov = PROV_INFERRED;
	text = all_of(f, 1000);
	assert_has(text, "200 ms recompute after a preemption (r2, because of x, pid 7, inferred)\n");
	assert_has(text, "r1      r2 for x          recompute after a preemption");
	assert_has(text, "blame     100 % inferred\n");
	free(text);
}

static void test_blame__first_tokens_have_a_sentence(void **state)
{
	struct fake *f = *state;
	char *text;

	streamed(f, 40, 1, 900, 900);
	fake_part_by(fake_gap(0, 0, 20, 5), MECH_EVENT_LOOP, 380, WHO_REQUEST, 1, "");
	fake_part(&fake_blame.gaps[0], MECH_OWN_PREFILL, 20);
	fake_request(f, 3)->status = 400;
	f->reqs[1].body_bytes = 1040000;
	text = all_of(f, 1000);
	assert_begins(text, "100 % of the time above baseline before first tokens (380 ms, that is 95 % of "
			    "400 ms) is the front end's event loop, blocked; worst culprit r2 (1.04 MB of body, "
			    "HTTP 400): 380 ms of TTFTs on 1 request; tokenize off the event loop");
	free(text);
}

static void test_blame__the_same_advice_once(void **state)
{
	struct fake *f = *state;
	char *text;

	streamed(f, 40, 2, 900, 1000);
	fake_part_by(fake_gap(0, 0, 20, 5), MECH_EVENT_LOOP, 380, WHO_THREAD, 7, "uvicorn");
	fake_part_by(fake_gap(0, 1, 20, 5), MECH_EVENT_LOOP, 95, WHO_THREAD, 7, "uvicorn");
	text = all_of(f, 1000);
	assert_begins(text, "100 % of the time above baseline before first tokens (380 ms, that is 100 % of "
			    "380 ms) is the front end's event loop, blocked; worst culprit uvicorn (tid 7): "
			    "380 ms of TTFTs on 1 request; tokenize off the event loop or run more API processes; "
			    "limit the size of prompts at the gateway. 100 % of the time above baseline "
			    "between tokens (95.0 ms, that is 100 % of 95.0 ms) is the front end's event "
			    "loop, blocked, too.\n");
	free(text);
}

static void test_blame__several_mechanisms(void **state)
{
	struct fake *f = *state;
	struct gap *g;
	char *text;

	streamed(f, 40, 2, 900, 1000);
	g = fake_gap(0, 1, 20, 5);
	fake_part(g, MECH_GC, 50);
	fake_part(g, MECH_RUN_QUEUE, 30);
	fake_part(g, MECH_UNEXPLAINED, 15);
	fake_part(g, MECH_GIL, 5);
	fake_part(g, MECH_LOST, 500);
	fake_part(fake_gap(0, 0, 20, 5), MECH_QUEUE, 9); /* less than a tenth: no sentence */
	text = all_of(f, 1000);
	assert_begins(text, "50 % of the time above baseline between tokens (100 ms, that is 17 % of 600 ms) "
			    "is garbage collection; freeze what is there after the start (gc.freeze()), or "
			    "collect less often. Then waiting for a CPU (30 %), unexplained (15 %).\n");
	assert_has(text, "events lost                          500      -      500 ");
	free(text);
}

static void test_blame__when_nobody_is_to_blame(void **state)
{
	struct fake *f = *state;
	char *text = all_of(f, 1000);

	assert_begins(text, "No gap between tokens and no wait for a first token was seen: there is "
			    "nothing to explain.\n");
	free(text);
	streamed(f, 40, 101, 20, 2020);
	for (uint32_t t = 1; t <= 100; t++)
		fake_part(fake_gap(0, t, 20 * t, 20), MECH_OWN_DECODE, 20);
	fake_part(&fake_blame.gaps[3], MECH_RUN_QUEUE, 2.5);
	fake_blame.n_learnt = 0;
	text = all_of(f, 1000);
	assert_begins(text, "Nobody slowed anybody worth naming: 99.8 % of the time between tokens is what "
			    "they take undisturbed; most of the rest is waiting for a CPU (2.50 ms). Too few "
			    "undisturbed steps to "
			    "learn what is usual: only what left evidence is blamed.\n");
	free(text);
}

/* All tokens left in one write: no time lies between them, and no share of it. */
static void test_blame__gaps_of_no_time(void **state)
{
	struct fake *f = *state;
	char *text;

	streamed(f, 40, 11, 20, 20);
	for (uint32_t t = 1; t <= 10; t++)
		fake_gap(0, t, 20, 20);
	text = all_of(f, 1000);
	assert_begins(text, "Nobody slowed anybody worth naming.");
	free(text);
}

static void test_blame__what_a_report_opens_with(void **state)
{
	struct fake *f = *state;
	struct blame_sum *s;
	char text[1600];

	streamed(f, 40, 101, 20, 2020);
	for (uint32_t t = 1; t <= 100; t++)
		fake_part(fake_gap(0, t, 20 * t, 20), MECH_OWN_DECODE, 20);
	fake_part(&fake_blame.gaps[3], MECH_UNEXPLAINED, 90); /* 4 %: blame says it, a report does not */
	assert_int_equal(blame_sum__new(&fake_blame, &f->v, &s), 0);
	assert_int_equal(blame_opening(&f->v, s, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	blame_sum__free(s);
	fake_part(&fake_blame.gaps[4], MECH_UNEXPLAINED, 90);
	assert_int_equal(blame_sum__new(&fake_blame, &f->v, &s), 0);
	assert_int_equal(blame_opening(&f->v, s, text, sizeof(text)), 0);
	assert_begins(text, "100 % of the time above baseline between tokens (180 ms, ");
	s->n_learnt = 0; /* nothing to compare with */
	assert_int_equal(blame_opening(&f->v, s, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	blame_sum__free(s);
}

static void test_blame__one_request(void **state)
{
	struct blame_text t = { .mechanism = N_MECHANISMS, .top = 10, .request = 3 };
	char *text;

	long_prefill(*state);
	text = render(*state, &t, &(struct text_opts){ .width = 1000 });
	assert_begins(text, "r3 kept 2 others waiting, 640 ms in all. Itself: Nobody slowed anybody worth naming.\n");
	assert_has(text, "r3      r1                wait for a step's end ");
	assert_has(text, "r1      r3                prefill in the same step ");
	assert_lacks(text, "who slowed whom");
	free(text);
	t.request = 2;
	text = render(*state, &t, &(struct text_opts){ .width = 1000 });
	assert_begins(text, "r2: 100 % of the time above baseline between tokens (320 ms, ");
	assert_has(text, "It kept nobody else waiting.\n");
	free(text);
}

static void test_blame__one_mechanism(void **state)
{
	struct blame_text t = { .mechanism = MECH_STEP_WAIT, .top = 10 };
	char *text;

	long_prefill(*state);
	text = render(*state, &t, &(struct text_opts){ .width = 1000 });
	assert_begins(text, "waiting for a step's end: 15.0 ms before first tokens of 1 request; worst culprit r1 "
			    "(40 tokens): 15.0 ms on 1 request; shorter steps bound it");
	assert_lacks(text, "\nr1      r3 ");
	free(text);
	t.mechanism = MECH_STEP_WAIT;	/* by nobody: no prompt made the step longer */
	fake_blame.gaps[fake_blame.n - 1].parts[fake_blame.gaps[fake_blame.n - 1].n_parts - 1].who.type = WHO_NOBODY;
	text = render(*state, &t, &(struct text_opts){ .width = 1000 });
	assert_begins(text, "waiting for a step's end: 15.0 ms before first tokens of 1 request; most of these steps were not longer "
			    "for prompts: smaller chunks");
	free(text);
	t.mechanism = MECH_GC;
	text = render(*state, &t, &(struct text_opts){ .width = 1000 });
	assert_begins(text, "No time went to garbage collection.\n");
	free(text);
}

/* A build has many processes: one culprit. */
static void test_blame__processes_of_one_name_are_one(void **state)
{
	struct fake *f = *state;
	char *text;

	streamed(f, 40, 4, 20, 500);
	for (uint32_t i = 0; i < 2; i++) {
		struct gap *g = fake_gap(0, 1 + i, 20 + 100 * i, 5);

		fake_part_by(g, MECH_RUN_QUEUE, 10, WHO_PROCESS, 100 + i, "cc1")->root =
			(struct culprit){ .type = WHO_CGROUP, .name = "/" };
		fake_part_by(g, MECH_RUN_QUEUE, 20, WHO_PROCESS, 200, "cc1")->root =
			(struct culprit){ .type = WHO_CGROUP, .name = "/" };
		fake_part_by(g, MECH_RUN_QUEUE, 25, WHO_PROCESS, 300, "as")->root =
			(struct culprit){ .type = WHO_CGROUP, .name = "ci.slice" };
		fake_part(g, MECH_OWN_DECODE, 4);
	}
	text = all_of(f, 1000);
	assert_has(text, "; worst culprit cc1 (3 processes, pids 100, 101, 200): 60.0 ms of gaps on 1 request; ");
	assert_has(text, "30.0 ms wait for a CPU (cc1, 2 processes), 25.0 ms wait for a CPU (as, pid 300, of "
			 "cgroup ci.slice), 4.00 ms own decode\n");
	assert_has(text, "r1      cc1               wait for a CPU                      60.0     -     20.0 ");
	assert_has(text, "r1      as                wait for a CPU                      50.0     2     25.0 ");
	free(text);
}

static void test_blame__says_where_what_is_unexplained_lies(void **state)
{
	static const struct {
		double behind_ms;
		uint8_t side;
		const char *text;
	} cases[] = {
		{ 0, GAP_WIRE, "180 ms unexplained before its step ended, 20.0 ms own decode" },
		{ 100, GAP_WIRE, "180 ms unexplained, 20.0 ms own decode" },
		{ 180, GAP_WIRE, "180 ms unexplained between its step and the write, 20.0 ms own decode" },
		{ 180, GAP_CLIENT, "180 ms unexplained between its step and the client, 20.0 ms own decode" },
	};
	struct fake *f = *state;
	char buf[600];

	streamed(f, 40, 2, 20, 240);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct gap *g = fake_gap(0, 1, 20, 20);

		fake_part(g, MECH_UNEXPLAINED, 180);
		fake_part(g, MECH_OWN_DECODE, 20);
		g->seq = 1;
		g->side = cases[i].side;
		g->behind_ns[MECH_UNEXPLAINED] = (uint64_t)(1e6 * cases[i].behind_ms);
		assert_string_equal(gap_text(&f->v, g, buf, sizeof(buf)), cases[i].text);
	}
}

static void test_blame__names_whose_quota_it_was(void **state)
{
	struct fake *f = *state;
	char *text;

	streamed(f, 40, 2, 20, 240);
	fake_part_by(fake_gap(0, 1, 20, 20), MECH_THROTTLED, 220, WHO_PROCESS, 4242, "python")->root =
		(struct culprit){ .type = WHO_CGROUP, .name = "llm.slice" };
	text = all_of(f, 1000);
	assert_has(text, " is a CPU quota that was used up (of cgroup llm.slice); worst culprit python (pid 4242, of this "
			 "server): 220 ms of gaps on 1 request; ");
	free(text);
}

/* Each scrape comes from another port: one culprit. */
static void test_blame__clients_of_one_path_are_one(void **state)
{
	struct fake *f = *state;
	char *text;

	streamed(f, 40, 4, 20, 500);
	for (uint32_t i = 0; i < 5; i++)
		fake_part_by(fake_gap(0, 1 + i, 20 + 100 * i, 5), MECH_METRICS, 20, WHO_CLIENT, 5000 + i, "/metrics");
	text = all_of(f, 1000);
	assert_has(text, "; worst culprit /metrics (5 connections): 100 ms of gaps on 1 request; ");
	assert_has(text, "r1      /metrics          metrics scrape                       100     -     20.0 ");
	free(text);
}

/* What the server's own thread was busy with, if that was mostly one thing. */
static void test_blame__says_what_own_threads_worked_on(void **state)
{
	static const struct {
		const char *root, *want;
	} cases[] = {
		{ "/metrics", "; worst culprit vllm (tid 77), mostly for /metrics: 100 ms of gaps on 1 request; give the "
			      "server more CPUs" },
		{ "/health", "; worst culprit vllm (tid 77): 100 ms of gaps on 1 request; give the server more CPUs" },
	};
	struct fake *f = *state;

	streamed(f, 40, 4, 20, 500);
	for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
		char *text;

		fake_blame_clear();
		for (uint32_t i = 0; i < 5; i++) {
			struct gap *g = fake_gap(0, 1 + i, 20 + 100 * i, 5);
			struct blame_part *p = fake_part_by(g, MECH_FEW_CPUS, 20, WHO_THREAD, 77, "vllm");

			p->root = (struct culprit){ .type = WHO_CLIENT, .id = 5000 + i };
			snprintf(p->root.name, sizeof(p->root.name), "%s", i < 3 ? cases[k].root : "/metrics");
			if (k && i == 2)
				p->root = (struct culprit){ .type = WHO_NOBODY };
		}
		text = all_of(f, 1000);
		assert_has(text, cases[k].want);
		free(text);
	}
}

static void test_blame__top_says_what_it_left_out(void **state)
{
	struct blame_text t = { .mechanism = N_MECHANISMS, .top = 1 };
	char *text;

	long_prefill(*state);
	text = render(*state, &t, &(struct text_opts){ .width = 1000 });
	assert_has(text, "and 2 more (335 ms): --top 3 shows them\n");
	assert_has(text, "4 of 200 gaps are longer than usual.\n");
	free(text);
}

/* More victims and culprits than there is room for: the sums stay whole. */
static void test_blame__matrix_adds_up_what_does_not_fit(void **state)
{
	struct fake *f = *state;
	char *text;

	for (uint32_t i = 0; i < 20; i++)
		streamed(f, 40, 2, 20, 120);
	for (uint32_t i = 0; i < 20; i++)
		for (uint32_t k = 0; k < 15; k++)
			fake_part_by(fake_gap(i, 1, 20, 20), MECH_RUN_QUEUE, 10 + k, WHO_PROCESS, k + 1, "");
	text = all_of(f, 80);
	assert_has(text, "    pid 15     pid 14     pid 13     pid 12     others        all\n");
	assert_has(text, "r1                 24.0       23.0       22.0       21.0        165        255\n");
	assert_has(text, "others              192        184        176        168       1320       2040\n");
	assert_has(text, "all                 480        460        440        420       3300       5100\n");
	free(text);
}

static int try_page(struct fake *f, const struct blame_sum *s, const struct summary *summary)
{
	struct blame_text t = { .v = &f->v, .summary = summary, .sum = s, .all = s,
				.mechanism = N_MECHANISMS, .top = 10 };
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	int err = out ? blame_text(&t, &(struct text_opts){ .width = 80 }, out) : -ENOMEM;

	if (out)
		fclose(out);
	free(text);
	return err;
}

static void test_blame__out_of_memory(void **state)
{
	struct fake *f = *state;
	struct blame_sum *s = NULL;
	struct summary summary;
	int err;

	long_prefill(f);
	assert_int_equal(summarise(&f->v, &summary), 0);
	assert_int_equal(blame_sum__new(&fake_blame, &f->v, &s), 0);
	OOM_LOOP(err = try_page(f, s, &summary));
	assert_int_equal(err, 0);
	blame_sum__free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fake_blame_setup, fake_blame_teardown)
		T(test_blame__page),
		T(test_blame__says_how),
		T(test_blame__fits_its_width),
		T(test_blame__wider_says_more),
		T(test_blame__color),
		T(test_blame__names_every_kind_of_culprit),
		T(test_blame__says_what_is_unknown),
		T(test_blame__root_and_provenance),
		T(test_blame__first_tokens_have_a_sentence),
		T(test_blame__the_same_advice_once),
		T(test_blame__several_mechanisms),
		T(test_blame__when_nobody_is_to_blame), T(test_blame__gaps_of_no_time),
		T(test_blame__what_a_report_opens_with),
		T(test_blame__one_request),
		T(test_blame__one_mechanism),
		T(test_blame__processes_of_one_name_are_one),
		T(test_blame__clients_of_one_path_are_one), T(test_blame__says_what_own_threads_worked_on),
		T(test_blame__says_where_what_is_unexplained_lies),
		T(test_blame__names_whose_quota_it_was),
		T(test_blame__top_says_what_it_left_out),
		T(test_blame__matrix_adds_up_what_does_not_fit),
		T(test_blame__out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
