/* SPDX-License-Identifier: Apache-2.0 */
/* The model with many of everything: what it looks up, what it gives up, and that it says so; and odd files. */
#include "unit.h"

#include "model/model.h"
#include "model/summary.h"

enum { TGID = 100 };

#define HDR(ev, kind, flags, tgid, ts) { sizeof(ev), kind, flags, tgid, 1, ts }
#define FEED(m, ev) assert_int_equal(model__feed(m, &(ev).hdr), 0)

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

static void begin(struct model *m, uint32_t tgid, uint32_t req, uint64_t ts, uint32_t flags)
{
	struct tl_req_begin e = { .hdr = HDR(e, TL_REQ_BEGIN, flags, tgid, ts), .req = req, .conn = req };

	FEED(m, e);
}

static const struct model_view *finish(struct model *m)
{
	static struct model_view v;

	assert_int_equal(model__finish(m), 0);
	model__view(m, &v);
	return &v;
}

/* Joined late, nobody knows yet what they are: each is found again, in whatever order the others go. */
static void test_crowd__of_late_exchanges(void **state)
{
	enum { N = 3000 };
	struct model *m = *state;
	const struct model_view *v;

	for (uint32_t i = 1; i <= N; i++)
		begin(m, TGID, i, i, TL_F_JOINED);
	for (uint32_t k = 0; k < N; k++) {
		uint32_t i = 1 + k * 1999 % N;		/* coprime: each once */
		struct tl_chunk c = { .hdr = HDR(c, TL_CHUNK, TL_CHUNK_TEXT, TGID, N + k), .req = i };
		struct tl_req_end e = { .hdr = HDR(e, TL_REQ_END, 0, TGID, 2 * N + k), .req = i, .how = TL_END_COMPLETE };

		if (i % 3 == 0)
			FEED(m, c);
		if (i % 3 < 2)
			FEED(m, e);
	}
	v = finish(m);
	assert_int_equal(v->n_requests, N / 3);
	assert_int_equal(v->n_other_requests, N - N / 3);
	for (size_t i = 0; i < v->n_requests; i++) {
		assert_int_equal(v->requests[i].req % 3, 0);
		assert_int_equal(v->requests[i].n_chunks, 1);
		assert_int_equal(v->requests[i].how_ended, TL_END_COMPLETE);
	}
}

static void test_crowd__of_processes(void **state)
{
	enum { N = 20000 };
	struct model *m = *state;
	const struct model_view *v;

	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t i = 0; i < N; i++) {
			struct tl_engine e = { .hdr = HDR(e, TL_ENGINE, 0, 1 + i, 5), .start_ns = 1 + (i % 2 ? round : 0),
					       .engine = TL_ENGINE_LLAMA };
			struct tl_proc exit = { .hdr = HDR(exit, TL_PROC, 0, 1 + i, 10 + round), .what = TL_PROC_EXIT };

			FEED(m, e);
			FEED(m, exit);
		}
	begin(m, 2, 1, 20, TL_API_CHAT);
	begin(m, 3, 2, 20, TL_API_CHAT);
	v = finish(m);
	assert_int_equal(v->n_engines, N + N / 2);
	/* pid 2 was used again, pid 3 is the same process */
	assert_true(v->requests[0].engine >= N);
	assert_int_equal(v->engines[1].exit_ns, 10);
	assert_int_equal(v->engines[v->requests[0].engine].exit_ns, 11);
	assert_int_equal(v->requests[1].engine, 2);
}

/* Requests that never end and sequences of nobody: not all are compared, and it says how many were not. */
static void test_crowd__of_what_may_belong_together(void **state)
{
	enum { N_REQS = 1000, N_SEQS = 9000, TRIED = (1 << 23) / N_REQS };
	struct model *m = *state;
	const struct model_view *v;

	for (uint32_t i = 1; i <= N_REQS; i++)
		begin(m, TGID, i, i, TL_API_CHAT);
	for (uint32_t i = 0; i < N_SEQS; i++) {
		uint64_t ts = 1000000000000 + i * 1000;
		struct tl_seq_begin b = { .hdr = HDR(b, TL_SEQ_BEGIN, 0, TGID, ts), .slot = i % 50, .kept = 0 };
		struct { struct tl_step s; struct tl_member mem; } s = {
			.s = { .hdr = HDR(s, TL_STEP, 0, TGID, ts + 1), .end_ns = ts + 9, .n_tokens = 5, .n_members = 1 },
			.mem = { i % 50, 5, -1, TL_PREFILL, 1, 0 },
		};

		FEED(m, b);
		assert_int_equal(model__feed(m, &s.s.hdr), 0);
	}
	v = finish(m);
	assert_int_equal(v->n_seqs, N_SEQS);
	assert_int_equal(v->n_joins_not_tried, (uint64_t)N_REQS * (N_SEQS - TRIED));
}

/* A step that contradicts itself has the tokens of its members: no more than all of them can be matched. */
static void test_crowd__step_of_fewer_tokens_than_its_members(void **state)
{
	struct model *m = *state;
	struct { struct tl_step s; struct tl_member mem; } s = {
		.s = { .hdr = HDR(s, TL_STEP, 0, TGID, 110), .end_ns = 120, .n_tokens = 5, .n_members = 1 },
		.mem = { 0, 300, -1, TL_PREFILL, 1, 0 },
	};
	struct summary sum;
	struct tl_seq_link launch = { .hdr = HDR(launch, TL_SEQ_LINK, 0, TGID, 102), .req = 1, .slot = 0, .task = 7,
				      .method = TL_LINK_TASK };

	begin(m, TGID, 1, 100, TL_API_CHAT);
	FEED(m, launch);
	assert_int_equal(model__feed(m, &s.s.hdr), 0);
	assert_int_equal(summarise(finish(m), &sum), 0);
	assert_int_equal(sum.tokens_in_steps, 300);
	assert_true(sum.matched_tokens_pct > 99.9 && sum.matched_tokens_pct < 100.1);
}

static void chunk(struct model *m, uint32_t req, uint64_t ts)
{
	struct tl_chunk e = { .hdr = HDR(e, TL_CHUNK, TL_CHUNK_TEXT, TGID, ts), .req = req };

	FEED(m, e);
}

/* No capture does that. */
static void test_crowd__what_was_put_together(void **state)
{
	struct model_view v;

	begin(*state, TGID, 1, 1000, 0);
	chunk(*state, 1, 20000000000);
	begin(*state, TGID, 2, 2000, 0);
	chunk(*state, 2, 19990000000);	/* as one poll may tell it */
	model__view(*state, &v);
	assert_int_equal(v.n_numbers_twice, 0);
	assert_int_equal(v.n_times_back, 0);
	begin(*state, TGID, 1, 3000, 0);
	chunk(*state, 1, 4990000000);
	chunk(*state, 1, 4990000001);	/* goes on from there */
	model__view(*state, &v);
	assert_int_equal(v.n_numbers_twice, 1);
	assert_int_equal(v.n_times_back, 1);
	assert_int_equal(v.most_back_ns, 15000000000);
}

#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(crowd__of_late_exchanges), T(crowd__of_processes), T(crowd__of_what_may_belong_together),
		T(crowd__step_of_fewer_tokens_than_its_members), T(crowd__what_was_put_together),
	};

	return cmocka_run_group_tests_name("model_crowds", tests, NULL, NULL);
}
