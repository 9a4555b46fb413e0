/* SPDX-License-Identifier: Apache-2.0 */
/* An engine whose scheduler runs in a process of its own: joins across processes, preemptions. */
#include "unit.h"

#include "model/model.h"
#include <errno.h>
#include <string.h>

enum { API = 100, CORE = 101, OTHER = 102 };

static int setup(void **state)
{
	*state = model__new(NULL);
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	model__free(*state);
	return 0;
}

#define HDR(ev, kind, flags, tgid, ts) { sizeof(ev), kind, flags, tgid, 1, ts }
#define FEED(m, ev) assert_int_equal(model__feed(m, &(ev).hdr), 0)

static void engine(struct model *m, uint32_t tgid, uint32_t server, uint16_t kind)
{
	struct tl_engine e = { .hdr = HDR(e, TL_ENGINE, 0, tgid, 1), .start_ns = 1, .engine = kind,
			       .server = server };

	FEED(m, e);
}

static void seq_begin(struct model *m, uint32_t tgid, uint32_t slot, uint64_t ts)
{
	struct tl_seq_begin e = { .hdr = HDR(e, TL_SEQ_BEGIN, 0, tgid, ts), .slot = slot, .kept = -1 };

	FEED(m, e);
}

static void step(struct model *m, uint32_t tgid, uint64_t t0, uint64_t t1, struct tl_member member)
{
	struct { struct tl_step s; struct tl_member m; } e = {
		.s = { .hdr = HDR(e, TL_STEP, 0, tgid, t0), .end_ns = t1, .n_members = 1,
		       .n_tokens = member.n_tokens },
		.m = member,
	};

	assert_int_equal(model__feed(m, &e.s.hdr), 0);
}

static void prefill(struct model *m, uint64_t t0, uint32_t slot, uint32_t n, uint8_t out, uint16_t flags)
{
	step(m, CORE, t0, t0 + 10, (struct tl_member){ slot, n, -1, TL_PREFILL, out, flags });
}

static void decode(struct model *m, uint64_t t0, uint32_t slot)
{
	step(m, CORE, t0, t0 + 10, (struct tl_member){ slot, 1, -1, TL_DECODE, 1, 0 });
}

/* Read at t by the API server, two tokens written at t + 21 and t + 31, as reported. */
static void request(struct model *m, uint32_t tgid, uint32_t req, uint64_t t, uint32_t prompt)
{
	struct tl_req_begin b = { .hdr = HDR(b, TL_REQ_BEGIN, TL_API_CHAT, tgid, t), .req = req, .conn = req };
	struct tl_req_facts f = { .hdr = HDR(f, TL_REQ_FACTS, 0, tgid, t), .req = req, .max_tokens = -1,
				  .api = TL_API_CHAT, .stream = 1 };
	struct tl_chunk c = { .hdr = HDR(c, TL_CHUNK, TL_CHUNK_TEXT, tgid, t + 21), .req = req };
	struct tl_usage u = {
		.hdr = HDR(u, TL_USAGE, TL_USAGE_PROMPT | TL_USAGE_CACHED | TL_USAGE_OUTPUT, tgid, t + 32),
		.req = req, .prompt = prompt, .output = 2, .slot = -1,
	};
	struct tl_req_end e = { .hdr = HDR(e, TL_REQ_END, 0, tgid, t + 33), .req = req,
				.how = TL_END_COMPLETE, .status = 200 };

	FEED(m, b);
	FEED(m, f);
	FEED(m, c);
	c.hdr.ts_ns = t + 31;
	FEED(m, c);
	if (prompt)
		FEED(m, u);
	FEED(m, e);
}

static const struct model_view *finish(struct model *m)
{
	static struct model_view v;

	assert_int_equal(model__finish(m), 0);
	model__view(m, &v);
	return &v;
}

static void one_of_each(struct model *m, uint32_t core_server, uint16_t api_kind)
{
	engine(m, API, API, api_kind);
	engine(m, CORE, core_server, TL_ENGINE_VLLM);
	seq_begin(m, CORE, 7, 1005);
	prefill(m, 1010, 7, 40, 1, 0);
	decode(m, 1020, 7);
	request(m, API, 1, 1000, 40);
}

static void test_join__counts_reach_the_engine_of_the_same_server(void **state)
{
	const struct model_view *v;
	const struct rec_request *r;

	one_of_each(*state, API, TL_ENGINE_VLLM);
	v = finish(*state);
	r = &v->requests[0];
	assert_int_equal(r->n_seqs, 1);
	assert_int_equal(v->seqs[0].join, JOIN_COUNTS);
	assert_int_equal(v->engines[r->engine].e.hdr.tgid, API);
	assert_int_equal(v->engines[v->seqs[0].engine].e.hdr.tgid, CORE);
	/* From one process to the other: then it was submitted. */
	assert_int_equal(r->at_ns[P_SUBMIT], 1005);
	assert_int_equal(r->at_ns[P_PREFILL_START], 1010);
}

static void test_join__never_reaches_another_server(void **state)
{
	one_of_each(*state, OTHER, TL_ENGINE_VLLM);
	assert_int_equal(finish(*state)->requests[0].n_seqs, 0);
}

static void test_join__unknown_servers_are_not_the_same(void **state)
{
	struct model *m = *state;

	seq_begin(m, CORE, 7, 1005);	/* no TL_ENGINE of either: server 0 is no server */
	prefill(m, 1010, 7, 40, 1, 0);
	decode(m, 1020, 7);
	request(m, API, 1, 1000, 40);
	assert_int_equal(finish(m)->requests[0].n_seqs, 0);
}

static void test_join__a_front_of_another_kind_takes_nothing(void **state)
{
	one_of_each(*state, API, TL_ENGINE_OLLAMA);
	assert_int_equal(finish(*state)->requests[0].n_seqs, 0);
}

/* Prompt of 40, one token, preempted at 1030, comes again at 1100 in two steps. */
static void preempted(struct model *m, bool said)
{
	struct tl_seq_preempt p = { .hdr = HDR(p, TL_SEQ_PREEMPT, 0, CORE, 1021), .slot = 7, .lost_tokens = 41,
				    .resumed_ns = 1098 };

	engine(m, API, API, TL_ENGINE_VLLM);
	engine(m, CORE, API, TL_ENGINE_VLLM);
	seq_begin(m, CORE, 7, 1005);
	prefill(m, 1010, 7, 40, 1, 0);
	prefill(m, 1100, 7, 30, 0, TL_MEMBER_AGAIN);
	prefill(m, 1110, 7, 11, 1, TL_MEMBER_AGAIN);
	if (said)
		FEED(m, p);
	decode(m, 1120, 7);
}

static void test_preemption__what_is_computed_again_is_no_prompt(void **state)
{
	struct model *m = *state;
	struct tl_seq_link id = { .hdr = HDR(id, TL_SEQ_LINK, 0, CORE, 1130), .req = 1, .slot = 7, .task = -1,
				  .method = TL_LINK_ID };
	const struct model_view *v;

	preempted(m, true);
	request(m, API, 1, 1000, 0);
	FEED(m, id);
	v = finish(m);
	assert_int_equal(v->seqs[0].n_prefill, 40);
	assert_int_equal(v->seqs[0].n_again, 41);
	assert_int_equal(v->seqs[0].n_decode, 1);
	assert_int_equal(v->seqs[0].visits[1].again, 1);
	assert_int_equal(v->seqs[0].visits[3].again, 0);
	assert_int_equal(v->seqs[0].n_preemptions, 1);
	assert_int_equal(v->seqs[0].preemptions[0].at_ns, 1021);
	assert_int_equal(v->seqs[0].preemptions[0].resumed_ns, 1098);
	assert_int_equal(v->seqs[0].preemptions[0].lost_tokens, 41);
	assert_int_equal(v->seqs[0].preemptions[0].prov, PROV_REPORTED);
	assert_int_equal(v->requests[0].output.n, 3);
}

static void test_preemption__steps_tell_where_the_engine_does_not(void **state)
{
	const struct rec_preemption *p;

	preempted(*state, false);
	p = finish(*state)->seqs[0].preemptions;
	assert_non_null(p);
	assert_int_equal(p->at_ns, 1020);
	assert_int_equal(p->resumed_ns, 1100);
	assert_int_equal(p->lost_tokens, 41);
	assert_int_equal(p->prov, PROV_INFERRED);
}

static void test_preemption__the_adapter_may_infer_it(void **state)
{
	struct model *m = *state;
	struct tl_seq_preempt p = { .hdr = HDR(p, TL_SEQ_PREEMPT, TL_F_GUESS, CORE, 1021), .slot = 7 };

	preempted(m, true);
	FEED(m, p);
	assert_int_equal(finish(m)->seqs[0].n_preemptions, 2);
	assert_int_equal(finish(m)->seqs[0].preemptions[0].prov, PROV_REPORTED);
	assert_int_equal(finish(m)->seqs[0].preemptions[1].prov, PROV_INFERRED);
}

static void test_preemption__joins_by_counts_all_the_same(void **state)
{
	struct model *m = *state;

	engine(m, API, API, TL_ENGINE_VLLM);
	engine(m, CORE, API, TL_ENGINE_VLLM);
	seq_begin(m, CORE, 7, 1001);
	prefill(m, 1001, 7, 40, 1, 0);
	prefill(m, 1015, 7, 41, 1, TL_MEMBER_AGAIN);
	request(m, API, 1, 1000, 40);
	assert_int_equal(finish(m)->requests[0].n_seqs, 1);
}

/* Prompt of 40, two tokens decoded; then a prompt of n tokens on the same sequence. */
static const struct rec_sequence *prompt_again(struct model *m, uint16_t kind, uint32_t n)
{
	engine(m, CORE, CORE, kind);
	seq_begin(m, CORE, 7, 1005);
	prefill(m, 1010, 7, 40, 1, 0);
	decode(m, 1020, 7);
	decode(m, 1030, 7);
	prefill(m, 1100, 7, n / 2, 0, 0);
	prefill(m, 1110, 7, n - n / 2, 1, 0);
	return finish(m)->seqs;
}

static void test_preemption__a_prompt_behind_output_comes_again(void **state)
{
	const struct rec_sequence *q = prompt_again(*state, TL_ENGINE_VLLM, 42);

	assert_int_equal(q->n_prefill, 40);
	assert_int_equal(q->n_again, 42);
	assert_int_equal(q->n_preemptions, 1);
	assert_int_equal(q->preemptions[0].at_ns, 1040);
	assert_int_equal(q->preemptions[0].resumed_ns, 1100);
	assert_int_equal(q->preemptions[0].lost_tokens, 42);
	assert_int_equal(q->preemptions[0].prov, PROV_INFERRED);
	assert_int_equal(finish(*state)->members[4].again, 1);
}

static void test_preemption__a_short_prompt_behind_output_is_new(void **state)
{
	assert_int_equal(prompt_again(*state, TL_ENGINE_VLLM, 20)->n_again, 0);
}

static void test_preemption__llama_takes_no_place_away(void **state)
{
	assert_int_equal(prompt_again(*state, TL_ENGINE_LLAMA, 42)->n_again, 0);
}

static void test_preemption__survives_no_memory(void **state)
{
	(void)state;
	for (long i = 0, hit = 1; hit; i++) {
		struct model *m = model__new(NULL);
		struct tl_seq_preempt p = { .hdr = HDR(p, TL_SEQ_PREEMPT, 0, CORE, 1021), .slot = 7 };

		assert_non_null(m);
		assert_true(i < 100);
		preempted(m, false);
		oom_after(i);
		if (!model__feed(m, &p.hdr))
			model__finish(m);
		hit = oom_hit();
		model__free(m);
	}
	for (long i = 0, hit = 1; hit; i++) {
		struct model *m = model__new(NULL);
		int err;

		assert_non_null(m);
		assert_true(i < 100);
		preempted(m, false);
		oom_after(i);
		err = model__finish(m);
		hit = oom_hit();
		assert_true(err == (hit ? -ENOMEM : 0));
		model__free(m);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_join__counts_reach_the_engine_of_the_same_server),
		TEST(test_join__never_reaches_another_server),
		TEST(test_join__unknown_servers_are_not_the_same),
		TEST(test_join__a_front_of_another_kind_takes_nothing),
		TEST(test_preemption__what_is_computed_again_is_no_prompt),
		TEST(test_preemption__steps_tell_where_the_engine_does_not),
		TEST(test_preemption__the_adapter_may_infer_it),
		TEST(test_preemption__joins_by_counts_all_the_same),
		TEST(test_preemption__a_prompt_behind_output_comes_again),
		TEST(test_preemption__a_short_prompt_behind_output_is_new),
		TEST(test_preemption__llama_takes_no_place_away),
		TEST(test_preemption__survives_no_memory),
	};

	return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
