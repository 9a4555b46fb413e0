/* SPDX-License-Identifier: Apache-2.0 */
/* Places lost without a word: of whom it is inferred, and of whom it is not. */
#include "unit.h"

#include "model/model.h"
#include <errno.h>

enum { API = 100, CORE = 101, PROMPT = 40, OWN_STEPS = 5, LIMIT = 512 };

#define HDR(ev, kind, flags, tgid, ts) { sizeof(ev), kind, flags, tgid, 1, ts }
#define FEED(m, ev) assert_int_equal(model__feed(m, &(ev).hdr), 0)

/* Two run, 0 and 1, until 1 is in no step any more. What is not the usual: */
struct story {
	uint16_t engine;	/* 0: vLLM */
	uint32_t away;		/* steps without it */
	double kv_pct;		/* meanwhile, and in its last step; < 0: the engine has no counters */
	uint32_t prompts;	/* tokens of somebody's prompt in each of these steps */
	uint32_t limit;		/* tokens of a step, as its server was told; 0: nobody knows */
	bool back;		/* it comes again behind them */
	bool told, lost, finished, ended, closed;
	int32_t max_tokens;	/* 0: not said */
};

struct at {
	struct model *m;
	uint64_t t;
};

static void step(struct at *at, bool both, const struct story *s, bool first)
{
	struct { struct tl_step s; struct tl_member m[3]; } e = {
		.s = { .hdr = HDR(e, TL_STEP, 0, CORE, at->t), .end_ns = at->t + 10 },
	};
	struct tl_step_stats said = { .hdr = HDR(said, TL_STEP_STATS, TL_STATS_KV | TL_STATS_QUEUES, CORE, at->t + 10),
				      .kv_ppm = (uint32_t)(s->kv_pct * 1e4) };

	for (uint32_t i = 0; i < (both ? 2 : 1); i++)
		e.m[e.s.n_members++] = first ? (struct tl_member){ i, PROMPT, 0, TL_PREFILL, 1, 0 }
					     : (struct tl_member){ i, 1, -1, TL_DECODE, 1, 0 };
	if (!both && s->prompts)
		e.m[e.s.n_members++] = (struct tl_member){ 2, s->prompts, -1, TL_PREFILL, 0, 0 };
	for (uint32_t i = 0; i < e.s.n_members; i++)
		e.s.n_tokens += e.m[i].n_tokens;
	e.s.hdr.size = (uint16_t)(sizeof(e.s) + e.s.n_members * sizeof(e.m[0]));
	assert_int_equal(model__feed(at->m, &e.s.hdr), 0);
	if (s->kv_pct >= 0)
		FEED(at->m, said);
	at->t += 10;
}

/* One with an answer that streams: begun, and what is known of its end. */
static void request(struct at *at, uint32_t slot, const struct story *s)
{
	struct tl_req_begin b = { .hdr = HDR(b, TL_REQ_BEGIN, TL_API_CHAT, API, 900), .req = slot + 1, .conn = slot + 1 };
	struct tl_req_facts f = { .hdr = HDR(f, TL_REQ_FACTS, 0, API, 900), .req = slot + 1, .api = TL_API_CHAT,
				  .max_tokens = slot && s->max_tokens ? s->max_tokens : -1, .stream = 1 };
	struct tl_seq_begin q = { .hdr = HDR(q, TL_SEQ_BEGIN, 0, CORE, 950), .slot = slot, .kept = -1 };
	struct tl_seq_link id = { .hdr = HDR(id, TL_SEQ_LINK, 0, CORE, 951), .req = slot + 1, .slot = (int32_t)slot,
				  .task = -1, .method = TL_LINK_ID };

	FEED(at->m, b);
	FEED(at->m, f);
	FEED(at->m, q);
	FEED(at->m, id);
}

static void end_of(struct at *at, const struct story *s)
{
	struct tl_usage u = { .hdr = HDR(u, TL_USAGE, 0, API, at->t), .req = 2, .finish = TL_FINISH_STOP, .slot = -1 };
	struct tl_seq_end q = { .hdr = HDR(q, TL_SEQ_END, 0, CORE, at->t), .slot = 1 };
	struct tl_req_end e = { .hdr = HDR(e, TL_REQ_END, 0, API, at->t), .req = 2, .how = TL_END_SERVER, .status = 200 };
	struct tl_lost lost = { .hdr = HDR(lost, TL_LOST, 0, 0, at->t - 20), .n = 1, .since_ns = at->t - 30,
				.where = TL_LOST_RING };

	if (s->finished)
		FEED(at->m, u);
	if (s->ended || s->closed)
		FEED(at->m, q);
	if (s->closed)
		FEED(at->m, e);
	if (s->lost)
		FEED(at->m, lost);
}

static void play(struct model *m, const struct story *s)
{
	struct at at = { m, 1000 };
	uint16_t kind = s->engine ? s->engine : TL_ENGINE_VLLM;
	struct tl_engine api = { .hdr = HDR(api, TL_ENGINE, 0, API, 1), .start_ns = 1, .engine = kind, .server = API,
				 .max_step_tokens = s->limit };
	struct tl_engine core = { .hdr = HDR(core, TL_ENGINE, 0, CORE, 1), .start_ns = 1, .engine = kind, .server = API };
	struct tl_seq_preempt told = { .hdr = HDR(told, TL_SEQ_PREEMPT, 0, CORE, 1000 + 10 * OWN_STEPS + 1), .slot = 1,
				       .lost_tokens = 44, .resumed_ns = 0 };

	FEED(m, api);
	FEED(m, core);
	request(&at, 0, s);
	request(&at, 1, s);
	for (uint32_t i = 0; i < OWN_STEPS; i++)
		step(&at, true, s, !i);
	for (uint32_t i = 0; i < s->away; i++)
		step(&at, false, s, false);
	if (s->told)
		FEED(m, told);
	if (s->back)
		step(&at, true, s, false);
	end_of(&at, s);
}

/* How many places are said to be lost; *ret: the first. */
static size_t places_lost(const struct story *s, struct rec_preemption *ret)
{
	struct model *m = model__new(NULL);
	struct model_view v;
	size_t n = 0;

	assert_non_null(m);
	play(m, s);
	assert_int_equal(model__finish(m), 0);
	model__view(m, &v);
	assert_int_equal(v.seqs[0].n_preemptions, 0);	/* that one runs on */
	for (size_t i = 0; i < v.n_seqs; i++)
		n += v.seqs[i].n_preemptions;
	if (n)
		*ret = v.seqs[1].preemptions[0];
	model__free(m);
	return n;
}

static void test_parked__at_the_end(void **state)
{
	static const struct story cases[] = {
		{ .away = 8, .kv_pct = 97, .limit = LIMIT },
		{ .away = 20, .kv_pct = -1, .limit = LIMIT },
		{ .away = 20, .kv_pct = 97 },				/* all of these steps only decode */
		{ .away = 20, .kv_pct = 97, .limit = LIMIT, .prompts = 100 },
		{ .away = 20, .kv_pct = 97, .limit = LIMIT, .closed = true },	/* the server died */
		{ .away = 20, .kv_pct = 97, .limit = LIMIT, .max_tokens = OWN_STEPS + 1 },
	};
	struct rec_preemption p;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(places_lost(&cases[i], &p), 1);
		assert_int_equal(p.at_ns, 1000 + 10 * OWN_STEPS);
		assert_int_equal(p.resumed_ns, 0);
		assert_int_equal(p.lost_tokens, PROMPT + OWN_STEPS - 1);
		assert_int_equal(p.prov, PROV_INFERRED);
	}
}

static void test_parked__and_back(void **state)
{
	struct rec_preemption p;

	(void)state;
	assert_int_equal(places_lost(&(struct story){ .away = 20, .kv_pct = -1, .limit = LIMIT, .back = true }, &p), 1);
	assert_int_equal(p.at_ns, 1000 + 10 * OWN_STEPS);
	assert_int_equal(p.resumed_ns, 1000 + 10 * OWN_STEPS + 200);
}

static void test_parked__not(void **state)
{
	static const struct story cases[] = {
		{ .away = 7, .kv_pct = 97, .limit = LIMIT },	/* pipelines leave out as many */
		{ .away = 20, .kv_pct = 50, .limit = LIMIT },	/* there was room */
		{ .away = 20, .kv_pct = 97, .limit = LIMIT, .prompts = LIMIT - 1 },	/* no token was left */
		{ .away = 20, .kv_pct = 97, .prompts = 100 },	/* or nobody knows */
		{ .away = 20, .kv_pct = 97, .limit = LIMIT, .finished = true },
		{ .away = 20, .kv_pct = 97, .limit = LIMIT, .ended = true },
		{ .away = 20, .kv_pct = 97, .limit = LIMIT, .max_tokens = OWN_STEPS },
		{ .away = 20, .kv_pct = 97, .limit = LIMIT, .lost = true },
		{ .away = 20, .kv_pct = 97, .limit = LIMIT, .engine = TL_ENGINE_LLAMA },
	};
	struct rec_preemption p;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (places_lost(&cases[i], &p))
			fail_msg("case %zu", i);
}

static void test_parked__told_is_not_inferred(void **state)
{
	struct rec_preemption p;

	(void)state;
	assert_int_equal(places_lost(&(struct story){ .away = 20, .kv_pct = 97, .limit = LIMIT, .told = true }, &p), 1);
	assert_int_equal(p.prov, PROV_REPORTED);
}

static void test_parked__out_of_memory(void **state)
{
	(void)state;
	for (long i = 0, hit = 1; hit; i++) {
		struct model *m = model__new(NULL);
		int err;

		assert_non_null(m);
		assert_true(i < 100);
		play(m, &(struct story){ .away = 20, .kv_pct = 97, .limit = LIMIT });
		oom_after(i);
		err = model__finish(m);
		hit = oom_hit();
		assert_true(err == (hit ? -ENOMEM : 0));
		model__free(m);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parked__at_the_end), cmocka_unit_test(test_parked__and_back),
		cmocka_unit_test(test_parked__not), cmocka_unit_test(test_parked__told_is_not_inferred),
		cmocka_unit_test(test_parked__out_of_memory),
	};

	return cmocka_run_group_tests_name("parked", tests, NULL, NULL);
}
