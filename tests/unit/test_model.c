/* SPDX-License-Identifier: Apache-2.0 */
/* The model: states, points, sequences and the three ways of joining them to requests. */
#include "unit.h"

#include "model/model.h"
#include "model/summary.h"
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

enum { TGID = 100 };

static struct model *fresh(const struct model_opts *o)
{
	struct model *m = model__new(o);

	assert_non_null(m);
	return m;
}

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

#define HDR(ev, kind, flags, ts) { sizeof(ev), kind, flags, TGID, 1, ts }
#define FEED(m, ev) assert_int_equal(model__feed(m, &(ev).hdr), 0)

static void begin(struct model *m, uint32_t req, uint64_t ts, uint32_t flags)
{
	struct tl_req_begin e = { .hdr = HDR(e, TL_REQ_BEGIN, TL_API_CHAT | flags, ts), .req = req, .conn = req };
	struct tl_req_facts f = { .hdr = HDR(f, TL_REQ_FACTS, 0, ts), .req = req, .max_tokens = -1,
				  .api = TL_API_CHAT, .stream = 1, .path = "/v1/chat/completions" };

	FEED(m, e);
	if (!(flags & TL_F_JOINED))
		FEED(m, f);
}

static void chunk(struct model *m, uint32_t req, uint64_t ts, uint32_t flags)
{
	struct tl_chunk e = { .hdr = HDR(e, TL_CHUNK, flags, ts), .req = req };

	FEED(m, e);
}

static void test_model__memory_is_the_most_of_all(void **state)
{
	const uint64_t rss[] = { 8, 20, 4 };
	struct model_view v;

	for (size_t i = 0; i < 3; i++) {
		struct tl_self e = { .hdr = HDR(e, TL_SELF, 0, 10 + i), .rss_bytes = rss[i],
				     .agent_cpu_ns = 100 + i };

		FEED(*state, e);
	}
	model__view(*state, &v);
	assert_int_equal(v.self->rss_bytes, 20);
	assert_int_equal(v.self->agent_cpu_ns, 102);
}

static void usage(struct model *m, uint32_t req, uint64_t ts, uint32_t prompt, uint32_t cached, uint32_t output)
{
	struct tl_usage e = {
		.hdr = HDR(e, TL_USAGE, TL_USAGE_PROMPT | TL_USAGE_CACHED | TL_USAGE_OUTPUT, ts),
		.req = req, .prompt = prompt, .cached = cached, .output = output, .slot = -1,
	};

	FEED(m, e);
}

static void end(struct model *m, uint32_t req, uint64_t ts, uint16_t how, uint16_t status)
{
	struct tl_req_end e = { .hdr = HDR(e, TL_REQ_END, 0, ts), .req = req, .how = how, .status = status };

	FEED(m, e);
}

static void seq_begin(struct model *m, uint32_t slot, uint64_t ts, int32_t kept)
{
	struct tl_seq_begin e = { .hdr = HDR(e, TL_SEQ_BEGIN, 0, ts), .slot = slot, .kept = kept };

	FEED(m, e);
}

static void seq_link(struct model *m, uint32_t req, int32_t slot, int32_t task, uint64_t ts)
{
	struct tl_seq_link e = { .hdr = HDR(e, TL_SEQ_LINK, 0, ts), .req = req, .slot = slot, .task = task,
				 .method = TL_LINK_TASK };

	FEED(m, e);
}

/* A step of one or two members: slot, phase, tokens, outputs each. */
static void step2(struct model *m, uint64_t t0, uint64_t t1, const struct tl_member *a,
		  const struct tl_member *b)
{
	struct { struct tl_step s; struct tl_member m[2]; } e = {
		.s = { .hdr = HDR(e, TL_STEP, 0, t0), .end_ns = t1, .n_members = b ? 2 : 1,
		       .n_tokens = a->n_tokens + (b ? b->n_tokens : 0) },
		.m = { *a, b ? *b : (struct tl_member){ 0 } },
	};

	e.s.hdr.size = sizeof(e.s) + e.s.n_members * sizeof(e.m[0]);
	assert_int_equal(model__feed(m, &e.s.hdr), 0);
}

static void step1(struct model *m, uint64_t t0, uint64_t t1, uint32_t slot, uint8_t phase, uint32_t n,
		  uint8_t out)
{
	step2(m, t0, t1, &(struct tl_member){ slot, n, -1, phase, out, 0 }, NULL);
}

static const struct model_view *finish(struct model *m)
{
	static struct model_view v;

	assert_int_equal(model__finish(m), 0);
	model__view(m, &v);
	return &v;
}

/* A streamed answer of `out` tokens on `slot`: read at t, prefill [t+10, t+20), steps of 10. */
static void whole(struct model *m, uint32_t req, uint32_t slot, uint64_t t, uint32_t prompt, uint32_t out)
{
	begin(m, req, t, 0);
	seq_begin(m, slot, t + 5, 0);
	step1(m, t + 10, t + 20, slot, TL_PREFILL, prompt, 1);
	chunk(m, req, t + 21, TL_CHUNK_TEXT);
	for (uint32_t i = 1; i < out; i++) {
		step1(m, t + 10 + 10 * i, t + 20 + 10 * i, slot, TL_DECODE, 1, 1);
		chunk(m, req, t + 21 + 10 * i, TL_CHUNK_TEXT);
	}
	usage(m, req, t + 22 + 10 * out, prompt, 0, out);
	end(m, req, t + 22 + 10 * out, TL_END_COMPLETE, 200);
}

static void test_model__points_and_counts(void **state)
{
	struct model *m = *state;
	const struct model_view *v;
	const struct rec_request *r;

	begin(m, 1, 1000, 0);
	seq_link(m, 1, -1, 7, 1100);
	seq_link(m, 1, 2, 7, 1200);
	seq_begin(m, 2, 1250, 3);
	step1(m, 1300, 1400, 2, TL_PREFILL, 50, 0);
	step1(m, 1400, 1500, 2, TL_PREFILL, 10, 1);
	chunk(m, 1, 1510, TL_CHUNK_ROLE);
	chunk(m, 1, 1520, TL_CHUNK_TEXT);
	step1(m, 1500, 1600, 2, TL_DECODE, 1, 1);
	chunk(m, 1, 1610, TL_CHUNK_TEXT);
	chunk(m, 1, 1620, TL_CHUNK_FINISH);
	chunk(m, 1, 1630, TL_CHUNK_DONE);
	end(m, 1, 1640, TL_END_COMPLETE, 200);
	v = finish(m);
	assert_int_equal(v->n_requests, 1);
	r = &v->requests[0];
	assert_int_equal(r->state, REQ_COMPLETE);
	assert_int_equal(r->at_ns[P_SUBMIT], 1100);
	assert_int_equal(r->at_ns[P_SCHEDULED], 1200);
	assert_int_equal(r->at_ns[P_PREFILL_START], 1300);
	assert_int_equal(r->at_ns[P_FIRST_TOKEN_ENGINE], 1500);
	assert_int_equal(r->at_ns[P_FIRST_CHUNK], 1510);
	assert_int_equal(r->at_ns[P_FIRST_TOKEN_WIRE], 1520);
	assert_int_equal(r->at_ns[P_LAST_TOKEN_ENGINE], 1600);
	assert_int_equal(r->at_ns[P_LAST_TOKEN_WIRE], 1610);
	assert_int_equal(r->at_ns[P_DONE], 1630);
	assert_int_equal(r->n_chunks, 2);
	/* no usage in the answer: the steps tell, and it is marked so */
	assert_int_equal(r->output.n, 2);
	assert_int_equal(r->output.prov, PROV_OBSERVED);
	assert_int_equal(r->prompt.n, 63);
	assert_int_equal(r->cached.n, 3);
	assert_int_equal(v->seqs[r->seqs[0]].join, JOIN_TASK);
	assert_int_equal(v->seqs[r->seqs[0]].confidence_pct, 100);
}

static void test_model__joins_by_counts(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	whole(m, 1, 0, 1000, 40, 4);
	whole(m, 2, 1, 1003, 41, 5);
	whole(m, 3, 0, 2000, 40, 4);
	v = finish(m);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(v->requests[i].n_seqs, 1);
		assert_int_equal(v->requests[i].seqs[0], i);
		assert_int_equal(v->seqs[i].join, JOIN_COUNTS);
	}
}

static void test_model__says_when_it_cannot_tell(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	/* Two requests alike in everything, batched together: no evidence, and no silence about it. */
	for (uint32_t r = 1; r <= 2; r++) {
		begin(m, r, 1000, 0);
		seq_begin(m, r, 1005, 0);
	}
	step2(m, 1010, 1020, &(struct tl_member){ 1, 9, -1, TL_PREFILL, 1, 0 },
	      &(struct tl_member){ 2, 9, -1, TL_PREFILL, 1, 0 });
	for (uint32_t r = 1; r <= 2; r++) {
		chunk(m, r, 1021, TL_CHUNK_TEXT);
		usage(m, r, 1030, 9, 0, 1);
		end(m, r, 1030, TL_END_COMPLETE, 200);
	}
	v = finish(m);
	for (int i = 0; i < 2; i++) {
		const struct rec_sequence *q = &v->seqs[v->requests[i].seqs[0]];

		assert_int_equal(q->join, JOIN_ORDER);
		assert_int_equal(q->rivals, 1);
	}
	assert_true(v->seqs[0].confidence_pct <= 50);
}

static void test_model__leaves_strangers_alone(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	seq_begin(m, 0, 10, 0);		/* the server's own warm-up */
	step1(m, 20, 30, 0, TL_PREFILL, 2, 1);
	whole(m, 1, 0, 1000, 40, 4);
	v = finish(m);
	assert_int_equal(v->seqs[0].req, 0);
	assert_int_equal(v->seqs[1].req, 1);
}

static void test_model__counts_must_fit(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	begin(m, 1, 1000, 0);
	seq_begin(m, 0, 1005, 0);
	step1(m, 1010, 1020, 0, TL_PREFILL, 40, 1);
	chunk(m, 1, 1021, TL_CHUNK_TEXT);
	usage(m, 1, 1030, 41, 0, 1);	/* one token more than was computed */
	end(m, 1, 1030, TL_END_COMPLETE, 200);
	v = finish(m);
	assert_int_equal(v->requests[0].n_seqs, 0);
}

static void test_model__states(void **state)
{
	struct model *m = *state;
	const struct model_view *v;
	static const struct { uint16_t how, status; uint32_t flags; uint8_t want; } cases[] = {
		{ TL_END_COMPLETE, 200, 0, REQ_COMPLETE },
		{ TL_END_COMPLETE, 400, 0, REQ_ERROR },
		{ TL_END_COMPLETE, 503, 0, REQ_ERROR },
		{ TL_END_CLIENT, 200, 0, REQ_ABORTED },
		{ TL_END_SERVER, 200, 0, REQ_ERROR },
		{ TL_END_CAPTURE, 200, 0, REQ_TRUNCATED },
		{ TL_END_LOST_SYNC, 200, 0, REQ_TRUNCATED },
		{ TL_END_COMPLETE, 200, TL_F_JOINED, REQ_TRUNCATED },
		{ TL_END_CLIENT, 200, TL_F_JOINED, REQ_ABORTED },
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(m, i + 1, 100 * i, cases[i].flags);
		chunk(m, i + 1, 100 * i + 10, TL_CHUNK_TEXT);
		end(m, i + 1, 100 * i + 20, cases[i].how, cases[i].status);
	}
	begin(m, 100, 5000, 0);		/* no end at all */
	v = finish(m);
	assert_int_equal(v->n_requests, ARRAY_SIZE(cases) + 1);
	for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(v->requests[i].state, cases[i].want);
	assert_int_equal(v->requests[ARRAY_SIZE(cases)].state, REQ_TRUNCATED);
	/* joined late: gaps, never a first token */
	assert_int_equal(v->requests[7].at_ns[P_FIRST_TOKEN_WIRE], 0);
	assert_int_equal(v->requests[7].at_ns[P_LAST_TOKEN_WIRE], 710);
}

static void test_model__other_exchanges_are_counted(void **state)
{
	struct model *m = *state;
	struct tl_req_begin get = { .hdr = HDR(get, TL_REQ_BEGIN, TL_API_OTHER, 10), .req = 1, .conn = 1 };
	const struct model_view *v;
	struct tl_conn open = { .hdr = HDR(open, TL_CONN, 0, 5), .conn = 1, .what = TL_CONN_OPEN,
				.peer_port = 50001 };
	struct tl_req_facts facts = { .hdr = HDR(facts, TL_REQ_FACTS, 0, 12), .req = 1, .path = "/metrics" };

	FEED(m, open);
	open.what = TL_CONN_TLS;
	FEED(m, open);
	FEED(m, get);
	FEED(m, facts);
	end(m, 1, 20, TL_END_COMPLETE, 200);
	begin(m, 2, 30, TL_F_JOINED);	/* joined late, no sign of an LLM */
	end(m, 2, 40, TL_END_COMPLETE, 200);
	begin(m, 3, 50, TL_F_JOINED);
	v = finish(m);
	assert_int_equal(v->n_requests, 0);
	assert_int_equal(v->n_other_requests, 3);
	assert_int_equal(10 * v->n_conns_tls + v->n_conns_open, 11);
	/* whoever waits for the thread that was busy with it wants to know */
	assert_int_equal(v->n_others, 1);
	assert_string_equal(v->others[0].path, "/metrics");
	assert_int_equal(v->others[0].begin_ns, 10);
	assert_int_equal(v->others[0].read_ns, 12);
	assert_int_equal(v->others[0].end_ns, 20);
	assert_int_equal(v->others[0].peer_port, 50001);
}

/* Who counts an answer's chunks counts all of them: those without a token are remembered by number. */
static void test_model__counts_chunks_between_tokens(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	begin(m, 1, 10, 0);
	chunk(m, 1, 20, TL_CHUNK_ROLE);
	chunk(m, 1, 30, TL_CHUNK_TEXT);
	chunk(m, 1, 40, TL_CHUNK_TEXT);
	chunk(m, 1, 50, TL_CHUNK_OTHER);
	chunk(m, 1, 60, TL_CHUNK_OTHER);
	chunk(m, 1, 70, TL_CHUNK_TEXT);
	v = finish(m);
	assert_int_equal(v->requests[0].n_chunks, 3);
	assert_int_equal(v->requests[0].chunks[0].n_before, 1);
	assert_int_equal(v->requests[0].chunks[1].n_before, 0);
	assert_int_equal(v->requests[0].chunks[2].n_before, 2);
}

/* Chunks are kept by their distance from the first: to the ns up to 39 hours, before it or behind. */
static void test_model__keeps_when_chunks_were_written(void **state)
{
	static const uint64_t ms = 1000000, hour = 3600000 * ms, max = (1ull << 47) - 1;
	struct model *m = *state;
	const struct model_view *v;

	begin(m, 1, hour, 0);
	chunk(m, 1, 100 * hour + 7, TL_CHUNK_TEXT);
	chunk(m, 1, 139 * hour + 1, TL_CHUNK_TEXT | TL_CHUNK_FINISH);
	chunk(m, 1, 62 * hour + 3, TL_CHUNK_TEXT);
	chunk(m, 1, 140 * hour, TL_CHUNK_TEXT);
	chunk(m, 1, hour, TL_CHUNK_TEXT);
	v = finish(m);
	assert_int_equal(v->requests[0].n_chunks, 5);
	assert_int_equal(chunk_ns(&v->requests[0], 0), 100 * hour + 7);
	assert_int_equal(chunk_ns(&v->requests[0], 1), 139 * hour + 1);
	assert_int_equal(chunk_ns(&v->requests[0], 2), 62 * hour + 3);
	assert_int_equal(chunk_ns(&v->requests[0], 3), 100 * hour + 7 + max);
	assert_int_equal(chunk_ns(&v->requests[0], 4), 100 * hour + 7 - max);
	assert_int_equal(v->requests[0].chunks[1].flags, TL_CHUNK_TEXT | TL_CHUNK_FINISH);
}

/* Several prompts in one request, or n by another name: the chunks tell. */
static void test_model__answers_are_counted_as_seen(void **state)
{
	struct model *m = *state;
	struct tl_chunk e = { .hdr = HDR(e, TL_CHUNK, TL_CHUNK_TEXT, 200), .req = 1, .choice = 2 };
	const struct model_view *v;

	begin(m, 1, 100, 0);
	chunk(m, 1, 150, TL_CHUNK_TEXT);
	FEED(m, e);
	e.req = 2;
	e.choice = UINT16_MAX;
	begin(m, 2, 100, 0);
	FEED(m, e);
	begin(m, 3, 100, 0);
	chunk(m, 3, 150, TL_CHUNK_TEXT);
	v = finish(m);
	assert_int_equal(v->requests[0].n, 3);
	assert_int_equal(v->requests[1].n, UINT16_MAX);
	assert_int_equal(v->requests[2].n, 1);
}

static void test_model__facts_that_were_cut_are_unknown(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	for (uint32_t r = 1; r <= 4; r++) {
		struct tl_req_begin b = { .hdr = HDR(b, TL_REQ_BEGIN, TL_API_CHAT, r), .req = r, .conn = r };
		struct tl_req_facts f = { .hdr = HDR(f, TL_REQ_FACTS, r == 1 ? 0 : TL_F_TRUNC, r), .req = r,
					  .max_tokens = -1, .api = TL_API_CHAT, .stream = -1 };
		struct tl_resp_begin a = { .hdr = HDR(a, TL_RESP_BEGIN, 0, r + 9), .req = r,
					   .status = r == 2 ? 400 : 200,
					   .body = r == 4 ? TL_BODY_SSE : TL_BODY_JSON };

		FEED(m, b);
		FEED(m, f);
		FEED(m, a);
	}
	v = finish(m);
	assert_int_equal(v->requests[0].stream, 0);	/* whole, and did not say */
	assert_int_equal(v->requests[1].stream, -1);	/* an error is JSON either way */
	assert_int_equal(v->requests[2].stream, 0);	/* the answer tells */
	assert_int_equal(v->requests[3].stream, 1);
}

static void test_model__aborted_in_a_long_step(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	begin(m, 1, 1000, 0);
	seq_begin(m, 0, 1005, 0);
	step1(m, 1010, 1020, 0, TL_PREFILL, 9, 1);
	chunk(m, 1, 1021, TL_CHUNK_TEXT);
	end(m, 1, 1022, TL_END_CLIENT, 200);
	step1(m, 1021, 5000001021, 0, TL_DECODE, 1, 1);	/* with somebody's prompt */
	v = finish(m);
	assert_int_equal(v->requests[0].n_seqs, 1);
}

static void test_model__late_stream_joins_its_slot(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	/* Two streams under way on two slots; they end at different steps. */
	begin(m, 1, 100, TL_F_JOINED);
	begin(m, 2, 101, TL_F_JOINED);
	for (uint64_t t = 100; t < 160; t += 10) {
		step2(m, t, t + 8, &(struct tl_member){ 5, 1, -1, TL_DECODE, 1, 0 },
		      &(struct tl_member){ 6, 1, -1, TL_DECODE, 1, 0 });
		chunk(m, 1, t + 9, TL_CHUNK_TEXT);
		chunk(m, 2, t + 9, TL_CHUNK_TEXT);
	}
	end(m, 2, 161, TL_END_COMPLETE, 200);
	for (uint64_t t = 160; t < 4000000160; t += 1000000000) {
		step1(m, t, t + 8, 5, TL_DECODE, 1, 1);
		chunk(m, 1, t + 9, TL_CHUNK_TEXT);
	}
	end(m, 1, 4000000171, TL_END_COMPLETE, 200);
	v = finish(m);
	assert_int_equal(v->seqs[0].slot, 5);
	assert_int_equal(v->seqs[0].req, 1);
	assert_int_equal(v->seqs[1].req, 2);
	assert_true(v->seqs[0].joined_late);
}

static void test_model__late_answer_that_is_over_takes_no_slot(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	/* It ends before a step of its own was seen; the slot works on for somebody unseen. */
	begin(m, 1, 97, TL_F_JOINED);
	chunk(m, 1, 97, TL_CHUNK_TEXT);
	step1(m, 95, 98, 5, TL_DECODE, 1, 1);
	end(m, 1, 99, TL_END_COMPLETE, 200);
	step1(m, 98, 110, 5, TL_DECODE, 1, 1);
	v = finish(m);
	assert_int_equal(v->requests[0].n_seqs, 0);
}

static void test_model__late_answer_needs_the_counts_of_a_whole_sequence(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	/* Read before the capture, started within it: slot 6 ends nearer, slot 5 has what it reports. */
	seq_begin(m, 5, 90, 0);
	seq_begin(m, 6, 90, 0);
	step1(m, 100, 110, 5, TL_PREFILL, 40, 1);
	step1(m, 110, 120, 6, TL_PREFILL, 30, 1);
	begin(m, 1, 121, TL_F_JOINED);
	chunk(m, 1, 121, TL_CHUNK_TEXT);
	usage(m, 1, 125, 40, 0, 1);
	end(m, 1, 125, TL_END_COMPLETE, 200);
	v = finish(m);
	assert_int_equal(v->requests[0].n_seqs, 1);
	assert_int_equal(v->seqs[v->requests[0].seqs[0]].slot, 5);
}

static void test_model__late_answers_that_end_together(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	/* Slot 5 prefills as the capture begins, slot 6 decodes; both end in the same step. */
	begin(m, 1, 95, TL_F_JOINED);
	begin(m, 2, 95, TL_F_JOINED);
	step2(m, 100, 110, &(struct tl_member){ 5, 7, -1, TL_PREFILL, 1, 0 },
	      &(struct tl_member){ 6, 1, -1, TL_DECODE, 1, 0 });
	for (uint64_t t = 111; t <= 121; t += 10) {
		chunk(m, 1, t, TL_CHUNK_TEXT);
		chunk(m, 2, t, TL_CHUNK_TEXT);
		if (t == 111)
			step2(m, 112, 120, &(struct tl_member){ 5, 1, -1, TL_DECODE, 1, 0 },
			      &(struct tl_member){ 6, 1, -1, TL_DECODE, 1, 0 });
	}
	usage(m, 1, 122, 500, 0, 30);
	usage(m, 2, 122, 500, 0, 2);
	end(m, 1, 122, TL_END_COMPLETE, 200);
	end(m, 2, 122, TL_END_COMPLETE, 200);
	v = finish(m);
	assert_int_equal(v->seqs[0].slot, 5);
	assert_int_equal(v->seqs[0].req, 2);
	assert_int_equal(v->seqs[1].req, 1);
	assert_int_equal(v->seqs[0].rivals, 0);
}

static void test_model__last_token_may_have_no_text(void **state)
{
	struct model *m = *state;
	const struct model_view *v;

	begin(m, 1, 1000, 0);
	seq_begin(m, 0, 1005, 0);
	step1(m, 1010, 1020, 0, TL_PREFILL, 9, 1);
	chunk(m, 1, 1021, TL_CHUNK_TEXT);
	step1(m, 1021, 1030, 0, TL_DECODE, 1, 1);	/* the token that ends it */
	usage(m, 1, 1031, 9, 0, 2);
	end(m, 1, 1032, TL_END_COMPLETE, 200);
	v = finish(m);
	assert_int_equal(v->requests[0].n_seqs, 1);
}

static void test_model__unknown_and_lost(void **state)
{
	struct model *m = *state;
	struct tl_hdr odd = { sizeof(odd), 999, 0, 1, 1, 5 };
	struct tl_lost lost = { .hdr = HDR(lost, TL_LOST, 0, 50), .n = 7, .since_ns = 20, .where = TL_LOST_RING };
	const struct model_view *v;

	assert_int_equal(model__feed(m, &odd), 0);
	FEED(m, lost);
	v = finish(m);
	assert_int_equal(v->n_unknown, 1);
	assert_int_equal(v->n_lost_events, 7);
	assert_int_equal(v->lost[0].since_ns, 20);
}

/* One request on a slot, a loss, and steps of who knows whom on the same slot. */
static void test_model__trusts_no_slot_behind_a_loss(void **state)
{
	struct model *m = *state;
	struct tl_lost lost = { .hdr = HDR(lost, TL_LOST, 0, 1900), .n = 70, .since_ns = 1200, .where = TL_LOST_RING };
	const struct model_view *v;

	begin(m, 1, 1000, 0);
	seq_link(m, 1, -1, 7, 1010);
	seq_link(m, 1, 0, 7, 1020);
	seq_begin(m, 0, 1020, 0);
	step1(m, 1030, 1100, 0, TL_PREFILL, 9, 1);
	chunk(m, 1, 1101, TL_CHUNK_TEXT);
	step1(m, 2000, 2100, 0, TL_DECODE, 1, 1);
	step1(m, 2100, 2200, 0, TL_DECODE, 1, 1);
	FEED(m, lost);		/* told late, as the kernel's counters are read after the ring */
	v = finish(m);
	assert_int_equal(v->n_seqs, 2);
	assert_int_equal(v->seqs[0].req, 1);
	assert_int_equal(v->seqs[0].n_out, 1);
	assert_true(v->seqs[0].cut_by_loss);
	assert_int_equal(v->seqs[1].req, 0);
	assert_int_equal(v->seqs[1].n_decode, 2);
	assert_int_equal(v->members[v->steps[2].first_member].seq, 1);
	assert_int_equal(v->requests[0].output.prov, PROV_NONE);	/* not known: it may have gone on */
	assert_int_equal(v->requests[0].at_ns[P_LAST_TOKEN_ENGINE], 0);
}

static void test_model__limits(void **state)
{
	struct model *m = fresh(&(struct model_opts){ .max_requests = 2, .max_steps = 3 });
	const struct model_view *v;

	(void)state;
	for (uint32_t i = 0; i < 5; i++)
		whole(m, i + 1, 0, 1000 * (i + 1), 5, 2);
	v = finish(m);
	assert_int_equal(v->n_requests, 2);
	assert_int_equal(v->n_requests_not_kept, 3);
	assert_int_equal(v->n_steps, 3);
	assert_int_equal(v->n_steps_not_kept, 7);
	model__free(m);
}

static void test_model__damaged_numbers(void **state)
{
	struct model *m = *state;

	begin(m, UINT32_MAX - 5, 10, 0);	/* no table of 4 billion entries */
	chunk(m, UINT32_MAX - 5, 20, TL_CHUNK_TEXT);
	chunk(m, 12345, 20, TL_CHUNK_TEXT);
	seq_begin(m, UINT32_MAX, 30, 0);
	step1(m, 40, 50, UINT32_MAX, TL_DECODE, 1, 1);
	assert_int_equal(finish(m)->n_steps, 1);
}

static void test_model__embeddings_have_no_output(void **state)
{
	struct model *m = *state;
	struct tl_req_begin e = { .hdr = HDR(e, TL_REQ_BEGIN, TL_API_EMBEDDINGS, 100), .req = 1, .conn = 1 };
	const struct model_view *v;
	struct summary s;

	FEED(m, e);
	seq_link(m, 1, -1, 7, 101);
	seq_link(m, 1, 0, 7, 102);
	seq_begin(m, 0, 103, 0);
	step1(m, 110, 120, 0, TL_PREFILL, 300, 255);	/* all its tokens ask for a row of output */
	end(m, 1, 130, TL_END_COMPLETE, 200);
	v = finish(m);
	assert_int_equal(v->requests[0].prompt.n, 300);
	assert_int_equal(v->requests[0].output.prov, PROV_NONE);
	assert_int_equal(summarise(v, &s), 0);
	assert_int_equal(s.output_tokens, 0);
	assert_int_equal(s.n_multi_token_steps, 0);
}

/* A few wild numbers cost no large memory. */
static void test_model__wild_numbers(void **state)
{
	struct model *m = *state;
	struct rusage before, after;

	assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
	for (uint32_t i = 1; i < 100; i++)
		begin(m, i << 20, i, 0);
	assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
	assert_true(after.ru_maxrss - before.ru_maxrss < 64 << 10);	/* KiB */
	assert_int_equal(finish(m)->n_requests, 99);
}

static void test_model__engines(void **state)
{
	struct model *m = *state;
	struct tl_engine e = { .hdr = HDR(e, TL_ENGINE, 0, 5), .start_ns = 1, .engine = TL_ENGINE_LLAMA };
	struct tl_proc exit = { .hdr = HDR(exit, TL_PROC, 0, 9), .what = TL_PROC_EXIT };
	const struct model_view *v;

	FEED(m, e);
	FEED(m, exit);
	e.start_ns = 20;		/* restarted, the pid was used again */
	FEED(m, e);
	whole(m, 1, 0, 1000, 4, 2);
	v = finish(m);
	assert_int_equal(v->n_engines, 2);
	assert_int_equal(v->engines[0].exit_ns, 9);
	assert_int_equal(v->requests[0].engine, 1);
}

static void test_model__survives_oom(void **state)
{
	(void)state;
	OOM_LOOP(model__free(model__new(NULL)));
	for (long i = 0, hit = 1; hit; i++) {
		struct model *m = fresh(NULL);

		assert_true(i < 1000);
		oom_after(i);
		for (uint32_t r = 1; r < 4; r++) {
			struct tl_req_begin b = { .hdr = HDR(b, TL_REQ_BEGIN, TL_API_CHAT, 10), .req = r, .conn = r };
			struct tl_chunk c = { .hdr = HDR(c, TL_CHUNK, TL_CHUNK_TEXT, 10), .req = r };
			struct { struct tl_step s; struct tl_member mem; } s = {
				.s = { .hdr = HDR(s, TL_STEP, 0, 5), .end_ns = 6, .n_members = 1 },
				.mem = { r, 1, -1, TL_DECODE, 1, 0 },
			};

			model__feed(m, &b.hdr);
			model__feed(m, &c.hdr);
			model__feed(m, &s.s.hdr);
		}
		model__finish(m);
		hit = oom_hit();
		model__free(m);
	}
}

#define T(name) cmocka_unit_test_setup_teardown(test_model__##name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(memory_is_the_most_of_all), T(points_and_counts), T(joins_by_counts), T(says_when_it_cannot_tell),
		T(leaves_strangers_alone), T(counts_must_fit), T(states), T(other_exchanges_are_counted), T(counts_chunks_between_tokens),
		T(keeps_when_chunks_were_written),
		T(answers_are_counted_as_seen), T(facts_that_were_cut_are_unknown),
		T(aborted_in_a_long_step),
		T(late_stream_joins_its_slot), T(late_answer_that_is_over_takes_no_slot),
		T(late_answer_needs_the_counts_of_a_whole_sequence),
		T(late_answers_that_end_together), T(last_token_may_have_no_text),
		T(unknown_and_lost), T(trusts_no_slot_behind_a_loss), T(limits), T(damaged_numbers), T(wild_numbers), T(embeddings_have_no_output),
		T(engines), T(survives_oom),
	};

	return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
