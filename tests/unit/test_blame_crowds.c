/* SPDX-License-Identifier: Apache-2.0 */
/* Blame with very many of everything: beyond a bound nobody is named, and the parts add up all the same. */
#include "unit.h"

#include "model/blame.h"
#include "model/model.h"

#define MS 1000000ull

enum { TGID = 100, N = 6000 };

#define HDR(ev, kind, flags, ts) { sizeof(ev), kind, flags, TGID, TGID, ts }
#define FEED(m, ev) assert_int_equal(model__feed(m, &(ev).hdr), 0)

static int setup(void **state)
{
	struct tl_engine e = { .hdr = HDR(e, TL_ENGINE, 0, 5), .start_ns = 1, .engine = TL_ENGINE_VLLM, .server = TGID };

	*state = model__new(NULL);
	return *state ? model__feed(*state, &e.hdr) : -1;
}

static int teardown(void **state)
{
	model__free(*state);
	return 0;
}

/* A request that the engine has on a slot of the same number. */
static void begin(struct model *m, uint32_t i, uint64_t ts)
{
	struct tl_req_begin b = { .hdr = HDR(b, TL_REQ_BEGIN, TL_API_CHAT, ts), .req = i, .conn = i };
	struct tl_req_facts f = { .hdr = HDR(f, TL_REQ_FACTS, 0, ts), .req = i, .max_tokens = -1,
				  .api = TL_API_CHAT, .stream = 1 };
	struct tl_seq_link submit = { .hdr = HDR(submit, TL_SEQ_LINK, 0, ts), .req = i, .slot = -1, .task = (int)i,
				      .method = TL_LINK_TASK }, launch = submit;
	struct tl_seq_begin q = { .hdr = HDR(q, TL_SEQ_BEGIN, 0, ts), .slot = i, .kept = 0 };

	launch.slot = (int)i;
	FEED(m, b);
	FEED(m, f);
	FEED(m, submit);
	FEED(m, launch);
	FEED(m, q);
}

static void step(struct model *m, uint64_t t0, uint32_t slot, uint8_t phase, uint16_t flags)
{
	struct { struct tl_step s; struct tl_member mem; } s = {
		.s = { .hdr = HDR(s, TL_STEP, 0, t0), .end_ns = t0 + MS, .n_tokens = 1, .n_members = 1 },
		.mem = { slot, 1, -1, phase, 1, flags },
	};
	struct tl_chunk c = { .hdr = HDR(c, TL_CHUNK, TL_CHUNK_TEXT, t0 + MS), .req = slot };

	assert_int_equal(model__feed(m, &s.s.hdr), 0);
	FEED(m, c);
}

struct sums {
	uint64_t ns[N_MECHANISMS], named_ns, all_ns;
	size_t n;
};

static int add(void *ctx, const struct gap *g)
{
	struct sums *s = ctx;
	uint64_t ns = 0;

	for (size_t i = 0; i < g->n_parts; i++) {
		s->ns[g->parts[i].mechanism] += g->parts[i].ns;
		s->named_ns += g->parts[i].who.type != WHO_NOBODY ? g->parts[i].ns : 0;
		ns += g->parts[i].ns;
	}
	assert_int_equal(ns, g->t1_ns - g->t0_ns);
	s->all_ns += ns;
	s->n++;
	return 0;
}

static struct blame *blame_of(struct model *m)
{
	static struct model_view v;
	struct blame *b;

	assert_int_equal(model__finish(m), 0);
	model__view(m, &v);
	assert_int_equal(blame__new(&v, &b), 0);
	return b;
}

static void test_crowd__of_steps_of_others(void **state)
{
	struct model *m = *state;
	struct sums s = { .n = 0 };
	struct blame *b;
	uint64_t t = 1000 * MS;

	begin(m, 1, t - MS);
	begin(m, 2, t - MS);
	step(m, t, 1, TL_PREFILL, 0);
	for (int i = 0; i < N; i++)
		step(m, t += MS, 2, i ? TL_DECODE : TL_PREFILL, 0);
	step(m, t + MS, 1, TL_DECODE, 0);
	b = blame_of(m);
	assert_int_equal(blame__gaps(b, 0, add, &s), 0);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.all_ns, (N + 1) * MS);
	assert_int_equal(s.ns[MECH_LEFT_OUT], N * MS);
	assert_true(s.named_ns > N / 2 * MS && s.named_ns < N * MS);
	blame__free(b);
}

/* The first ones wait behind few, who are named; the last ones behind too many. */
static void test_crowd__in_the_queue(void **state)
{
	struct model *m = *state;
	struct sums few = { .n = 0 }, many = { .n = 0 };
	uint64_t t = 1000 * MS;
	struct gap g;
	struct blame *b;

	for (uint32_t i = 1; i <= N; i++)
		begin(m, i, t - MS + i);
	for (uint32_t i = 1; i <= N; i++, t += MS)
		step(m, t, i, TL_PREFILL, 0);
	for (uint32_t i = 1; i <= N; i++, t += MS)
		step(m, t, i, TL_DECODE, 0);
	b = blame_of(m);
	assert_true(blame__ttft(b, 9, &g));
	add(&few, &g);
	assert_true(blame__ttft(b, N - 1, &g));
	add(&many, &g);
	assert_true(few.ns[MECH_QUEUE] && few.named_ns);
	assert_true(many.ns[MECH_QUEUE] > (N - 10) * MS);
	assert_int_equal(many.named_ns, 0);
	blame__free(b);
}

/* One sequence loses its place again and again; each time another is said to have taken it. */
static void test_crowd__of_preemptions(void **state)
{
	struct model *m = *state;
	struct sums s = { .n = 0 };
	uint64_t t = 1000 * MS;
	struct blame *b;

	for (uint32_t i = 1; i <= 3; i++)
		begin(m, i, t - MS);
	for (uint32_t i = 1; i <= 3; i++, t += MS)
		step(m, t, i, TL_PREFILL, 0);
	for (uint32_t i = 0; i < N; i++, t += 3 * MS) {
		struct tl_seq_preempt p = { .hdr = HDR(p, TL_SEQ_PREEMPT, 0, t), .slot = 3, .lost_tokens = 5,
					    .resumed_ns = t + 2 * MS, .for_slot = 2 + i % 2 };

		step(m, t, 1, TL_DECODE, 0);
		step(m, t + MS, 2, TL_DECODE, 0);
		FEED(m, p);
		step(m, t + 2 * MS, 3, TL_PREFILL, TL_MEMBER_AGAIN);
	}
	b = blame_of(m);
	assert_int_equal(blame__gaps(b, 2, add, &s), 0);
	assert_int_equal(s.n, N);
	assert_int_equal(s.ns[MECH_PREEMPTED], N * 2 * MS);
	assert_int_equal(s.ns[MECH_RECOMPUTE], N * MS);
	assert_int_equal(s.named_ns, s.all_ns);
	blame__free(b);
}

#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(crowd__of_steps_of_others), T(crowd__in_the_queue), T(crowd__of_preemptions),
	};

	return cmocka_run_group_tests_name("blame_crowds", tests, NULL, NULL);
}
