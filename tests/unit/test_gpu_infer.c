/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a server whose wire tells of none: made of launches, and who was in them. */
#include "gpu_infer_feed.h"

#include "model/summary.h"

/* ---- decodes ---- */

static void test_gpu_infer__decodes(void **state)
{
	struct gpu_feed f = start(false);

	(void)state;
	feed_begin(&f, 1, 5);
	feed_begin(&f, 2, 32);
	for (int k = 0; k < 12; k++)
		eager_of(&f, 10 + 10 * k, k == 3 ? 4 : 2);
	for (int k = 0; k < 10; k++) {
		/* r1 has a token of each of the steps 0 to 9, r2 of 3 to 6 */
		feed_chunk(&f, 1, 10 + 10 * k + (k == 3 ? 4 : 2) + 0.3);
		if (k >= 3 && k < 7)
			feed_chunk(&f, 2, 10 + 10 * k + (k == 3 ? 4 : 2) + 0.4);
	}
	feed_end(&f, 1, 103, 0, 0);
	feed_end(&f, 2, 80, 0, 0);
	gpu_feed_done(&f);
	assert_string_equal(members(&f, 12.11), "r1:p");
	assert_string_equal(members(&f, 22.11), "r1:d");
	assert_string_equal(members(&f, 44.11), "r1:d r2:p");
	assert_string_equal(members(&f, 72.11), "r1:d r2:d");
	assert_string_equal(members(&f, 82.11), "r1:d");
	assert_string_equal(members(&f, 112.11), "");
	assert_int_equal(f.v.requests[0].prov[P_FIRST_TOKEN_ENGINE], PROV_INFERRED);
	assert_int_equal(f.v.requests[0].at_ns[P_FIRST_TOKEN_ENGINE], at(12.11));
	assert_int_equal(f.v.gpu->n_inferred_steps, f.v.n_steps);
	/* a prompt is p?, so its share is no observation, although it was alone */
	assert_true(f.v.gpu->shares[0].prefill_shared);
	gpu_feed_free(&f);
}

/* Tokens that are written late, one behind the end of the next step, are of their own steps still. */
static void test_gpu_infer__late_writes(void **state)
{
	struct gpu_feed f = start(false);

	(void)state;
	feed_begin(&f, 1, 5);
	for (int k = 0; k < 20; k++) {
		bool late = k == 5 || k == 6 || k >= 18;

		eager_of(&f, 10 + 3 * k, 2);
		feed_chunk(&f, 1, 10 + 3 * k + 2.3 + (late ? 3 : 0));
	}
	eager_of(&f, 10 + 3 * 20, 2);
	feed_end(&f, 1, 200, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.n_seqs, 1);
	assert_int_equal(f.v.seqs[0].n_visits, 20);
	for (int k = 1; k < 20; k++)
		assert_string_equal(members(&f, 10 + 3 * k + 2.11), "r1:d");
	gpu_feed_free(&f);
}

/* Nothing is written for 40 ms, then all that came meanwhile at once, until the answer ends: no step was left out. */
static void test_gpu_infer__stalled(void **state)
{
	struct gpu_feed f = start(false);

	(void)state;
	feed_begin(&f, 1, 5);
	for (int k = 0; k < 30; k++) {
		eager_of(&f, 10 + 3 * k, 2);
		feed_chunk(&f, 1, k < 10 ? 10 + 3 * k + 2.3 : 100 + 0.3 * k);
	}
	for (int k = 30; k < 36; k++)
		eager_of(&f, 10 + 3 * k, 2);
	feed_end(&f, 1, 200, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.seqs[0].n_visits, 30);
	for (int k = 1; k < 30; k++)
		assert_string_equal(members(&f, 10 + 3 * k + 2.11), "r1:d");
	gpu_feed_free(&f);
}

/* It was left out of one step: each later token is a step further on. */
static void test_gpu_infer__left_out(void **state)
{
	struct gpu_feed f = start(false);

	(void)state;
	feed_begin(&f, 1, 5);
	for (int k = 0; k < 31; k++) {
		eager_of(&f, 10 + 3 * k, 2);
		if (k != 12)
			feed_chunk(&f, 1, 10 + 3 * k + 2.3);
	}
	feed_end(&f, 1, 200, 0, 0);
	gpu_feed_done(&f);
	assert_string_equal(members(&f, 10 + 3 * 11 + 2.11), "r1:d");
	assert_string_equal(members(&f, 10 + 3 * 12 + 2.11), "");
	assert_string_equal(members(&f, 10 + 3 * 13 + 2.11), "r1:d");
	assert_int_equal(f.v.seqs[0].n_visits, 30);
	gpu_feed_free(&f);
}

/* The engine launches step k + 1 before it waits for step k, and tells of k then. */
static void test_gpu_infer__ahead(void **state)
{
	struct gpu_feed f = start(true);

	(void)state;
	feed_begin(&f, 1, 5);
	for (int k = 0; k < 20; k++) {
		feed_replay(&f, 8.5 + 2.5 * k, 10 + 2.5 * k, 1);
		if (k)	/* the wait behind the launch of k is for k - 1, and returns late */
			feed_sync(&f, 8.6 + 2.5 * k, 10 + 2.5 * (k - 1) + 2.4);
		if (k)
			feed_chunk(&f, 1, 10 + 2.5 * (k - 1) + 2.49);
	}
	feed_sync(&f, 60, 62);
	feed_chunk(&f, 1, 62.1);
	feed_end(&f, 1, 62.2, 0, 0);
	gpu_feed_done(&f);
	assert_string_equal(members(&f, 12.01), "r1:p");
	for (int k = 1; k < 20; k++)
		assert_string_equal(members(&f, 10 + 2.5 * k + 2.01), "r1:d");
	gpu_feed_free(&f);
}

/* Without records, waits alone tell where steps end. */
static void test_gpu_infer__launches_only(void **state)
{
	struct gpu_feed f = gpu_feed_new();
	uint32_t n = 0;

	(void)state;
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	feed_begin(&f, 1, 5);
	for (int k = -1; k < 10; k++) {
		for (int i = 0; i < 10; i++) {
			struct tl_gpu_launch l = launch_of(&f, 10 + 10 * k + 0.01 * i, TL_CALL_KERNEL, 0);

			FEED(&f, l);
		}
		feed_sync(&f, 10 + 10 * k + 0.2, 10 + 10 * k + 6);
		if (k >= 0)
			feed_chunk(&f, 1, 10 + 10 * k + 6.1);
	}
	feed_end(&f, 1, 120, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.n_steps, 11);
	for (size_t i = 0; i < f.v.n_steps; i++) {
		assert_true(STEP(&f, i)->busy_ns == GPU_UNKNOWN);
		assert_int_equal(f.v.steps[i].t1_ns, at(10 * (double)i + 6));
		n += f.v.steps[i].n_members;
	}
	assert_int_equal(n, 10);
	assert_true(f.v.gpu->shares[0].decode_ns == GPU_UNKNOWN);
	gpu_feed_free(&f);
}

/* Tokens behind the end of a window are of no step that is known. */
static void test_gpu_infer__behind_window(void **state)
{
	struct gpu_feed f = start(false);

	(void)state;
	feed_begin(&f, 1, 5);
	for (int k = 0; k < 5; k++)
		eager_of(&f, 10 + 10 * k, 2);
	for (int k = 0; k < 200; k++)
		feed_chunk(&f, 1, 10 + 10 * k + 2.2);
	feed_end(&f, 1, 2100, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.seqs[0].n_visits, 5);
	gpu_feed_free(&f);
}

/* Between two windows nobody saw what ran: no gap of a sequence spans that, and time with a step is not known. */
static void test_gpu_infer__two_windows(void **state)
{
	struct gpu_feed f = start(false);
	struct summary s;

	(void)state;
	feed_begin(&f, 1, 5);
	for (int k = 0; k < 210; k++) {
		if (k < 5 || k >= 205)
			eager_of(&f, 10 + 10 * k, 2);
		if (k == 204)
			feed_clock(&f, 10 + 10 * k);
		feed_chunk(&f, 1, 10 + 10 * k + 2.2);
	}
	feed_end(&f, 1, 2110, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.n_seqs, 2);
	assert_true(f.v.seqs[0].cut_by_loss && !f.v.seqs[0].joined_late && f.v.seqs[1].joined_late);
	assert_int_equal(f.v.seqs[0].n_visits, 5);
	assert_int_equal(f.v.seqs[1].n_visits, 5);
	assert_int_equal(f.v.gpu->n_stretches, 2);
	assert_int_equal(summarise(&f.v, &s), 0);
	assert_false(s.busy_from_steps);
	assert_true(s.all.itl_token.max < len(20));
	gpu_feed_free(&f);
}

/* Probes on single kernels are taken off: copies of results and waits still tell of steps, though not of launches. */
static void test_gpu_infer__kernels_unseen(void **state)
{
	struct gpu_feed f = gpu_feed_new();
	struct tl_gpu_launch off;

	(void)state;
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	feed_begin(&f, 1, 5);
	off = launch_of(&f, 55, TL_CALL_KERNEL, 0);
	off.hdr.flags = TL_LAUNCH_UNSEEN;
	off.n = 0;
	off.dur_ns = 0;
	FEED(&f, off);
	for (int k = -1; k < 20; k++) {
		double t = 10 + 10 * k;
		struct tl_gpu_launch copy = launch_of(&f, t + 0.15, TL_CALL_COPY, 0);

		for (int i = 0; i < 10 && k < 4; i++) {
			struct tl_gpu_launch l = launch_of(&f, t + 0.01 * i, TL_CALL_KERNEL, 0);

			FEED(&f, l);
		}
		copy.hdr.flags = TL_LAUNCH_FROM;
		FEED(&f, copy);
		feed_sync(&f, t + 0.2, t + 6);
		if (k >= 0)
			feed_chunk(&f, 1, t + 6.1);
	}
	feed_end(&f, 1, 220, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.n_steps, 21);
	assert_int_equal(f.v.n_seqs, 1);
	assert_int_equal(f.v.seqs[0].n_visits, 20);
	assert_true(STEP(&f, 3)->counted && STEP(&f, 3)->launches == 10);
	assert_false(STEP(&f, 10)->counted);
	assert_int_equal(f.v.gpu->unseen_ns, f.v.t1_ns - at(55));
	gpu_feed_free(&f);
}

/* ... and are set again after 50 ms: from then on all launches count. */
static void test_gpu_infer__kernels_seen_again(void **state)
{
	struct gpu_feed f = gpu_feed_new();

	(void)state;
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	feed_begin(&f, 1, 5);
	for (int i = 0; i < 2; i++) {	/* said when they are taken off, and when they are back */
		struct tl_gpu_launch off = launch_of(&f, 55, TL_CALL_KERNEL, 0);

		off.hdr.flags = TL_LAUNCH_UNSEEN;
		off.n = 0;
		off.dur_ns = i ? len(50) : 0;
		FEED(&f, off);
	}
	for (int k = -1; k < 20; k++) {
		double t = 10 + 10 * k;

		for (int i = 0; i < 10 && (k < 4 || k >= 10); i++) {
			struct tl_gpu_launch l = launch_of(&f, t + 0.01 * i, TL_CALL_KERNEL, 0);

			FEED(&f, l);
		}
		if (k >= 4 && k < 10) {
			struct tl_gpu_launch copy = launch_of(&f, t + 0.15, TL_CALL_COPY, 0);

			copy.hdr.flags = TL_LAUNCH_FROM;
			FEED(&f, copy);
		}
		feed_sync(&f, t + 0.2, t + 6);
		if (k >= 0)
			feed_chunk(&f, 1, t + 6.1);
	}
	feed_end(&f, 1, 220, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->unseen_ns, len(50));
	assert_true(STEP(&f, 15)->counted && STEP(&f, 15)->launches == 10);
	gpu_feed_free(&f);
}

/* No step is seen for 1 s, in which tokens come: what is before and behind that are two sequences. */
static void test_gpu_infer__hole(void **state)
{
	struct gpu_feed f = start(false);

	(void)state;
	feed_begin(&f, 1, 5);
	feed_clock(&f, 500);
	feed_clock(&f, 1000);
	for (int k = 0; k < 150; k++) {
		if (k < 20 || k >= 120)
			eager_of(&f, 10 + 10 * k, 2);
		feed_chunk(&f, 1, 10 + 10 * k + 2.3);
	}
	feed_end(&f, 1, 1600, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->n_stretches, 2);
	assert_int_equal(f.v.n_seqs, 2);
	assert_int_equal(f.v.seqs[0].n_visits, 20);
	assert_true(f.v.seqs[1].n_visits >= 29);
	assert_string_equal(members(&f, 10 + 10 * 19 + 2.11), "r1:d");
	assert_string_equal(members(&f, 10 + 10 * 140 + 2.11), "r1:d");
	gpu_feed_free(&f);
}

/* The server stands still when a step has ended and nothing is written yet: what comes then is of that step, and no step
 * was left unseen. */
static void test_gpu_infer__stood_still(void **state)
{
	struct gpu_feed f = start(false);

	(void)state;
	feed_begin(&f, 1, 5);
	feed_begin(&f, 2, 6);
	for (int k = 0; k < 40; k++) {
		double t = 10 + 10 * k + (k < 20 ? 0 : 700);

		eager_of(&f, t, 2);
		for (uint32_t r = 1; r <= 2; r++)
			feed_chunk(&f, r, t + 2.3 + (k == 19 ? 700 : 0));
	}
	feed_end(&f, 1, 1600, 0, 0);
	feed_end(&f, 2, 1600, 0, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->n_stretches, 1);
	assert_int_equal(f.v.n_seqs, 2);
	assert_int_equal(f.v.seqs[0].n_visits, 40);
	assert_string_equal(members(&f, 10 + 10 * 19 + 2.11), "r1:d r2:d");
	gpu_feed_free(&f);
}

/* An answer in one piece: its tokens are of the last steps before it. */
static void test_gpu_infer__not_streamed(void **state)
{
	struct gpu_feed f = start(false);
	struct tl_usage u = { .hdr = HDR(u, TL_USAGE, TL_USAGE_PROMPT | TL_USAGE_OUTPUT, PID, 0, at(52.3)), .req = 1,
			      .prompt = 9, .output = 3, .slot = -1 };
	struct tl_req_end e = { .hdr = HDR(e, TL_REQ_END, 0, PID, 0, at(52.4)), .req = 1, .how = TL_END_COMPLETE,
				.status = 200 };

	(void)state;
	feed_begin(&f, 1, 25);
	for (int k = 0; k < 6; k++)
		eager_of(&f, 10 + 10 * k, 2);
	FEED(&f, u);
	FEED(&f, e);
	gpu_feed_done(&f);
	assert_string_equal(members(&f, 22.11), "");
	assert_string_equal(members(&f, 32.11), "r1:p");
	assert_string_equal(members(&f, 42.11), "r1:d");
	assert_string_equal(members(&f, 52.11), "r1:d");
	assert_string_equal(members(&f, 62.11), "");
	gpu_feed_free(&f);
}

/* ---- prompts ---- */

/* What a step takes: 2 ms, 0.01 for each that decodes, 0.01 for a token of a prompt. */
static double cost(int n_decode, int n_prompt)
{
	return 2 + 0.01 * n_decode + 0.01 * n_prompt;
}

/* Requests of known length one by one, from which it is learnt; then one of 600 in parts of 250, 250 and the rest,
 * with another of 50 in its last step. */
static void test_gpu_infer__parts(void **state)
{
	static const int lengths[] = { 40, 80, 20, 100, 60, 30 };
	struct gpu_feed f = start(false);
	double t = 0, ends[4];

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		feed_begin(&f, i + 1, t + 9);
		feed_chunk(&f, i + 1, eager_of(&f, t + 10, cost(0, lengths[i])) + 0.2);
		for (int k = 1; k < 4; k++)
			feed_chunk(&f, i + 1, eager_of(&f, t + 10 + 10 * k, cost(1, 0)) + 0.2);
		feed_end(&f, i + 1, t + 45, lengths[i], 4);
		t += 50;
	}
	feed_begin(&f, 7, t + 9);
	ends[0] = eager_of(&f, t + 10, cost(0, 250));
	ends[1] = eager_of(&f, t + 20, cost(0, 250));
	feed_begin(&f, 8, t + 25);
	ends[2] = eager_of(&f, t + 30, cost(0, 150));
	feed_chunk(&f, 7, ends[2] + 0.2);
	feed_chunk(&f, 8, ends[2] + 0.3);
	ends[3] = eager_of(&f, t + 40, cost(2, 0));
	feed_chunk(&f, 7, ends[3] + 0.2);
	feed_chunk(&f, 8, ends[3] + 0.3);
	feed_end(&f, 7, t + 45, 600, 2);
	feed_end(&f, 8, t + 45, 50, 2);
	eager_of(&f, t + 50, cost(0, 0));
	gpu_feed_done(&f);
	assert_string_equal(members(&f, ends[0]), "r7:p");
	assert_string_equal(members(&f, ends[1]), "r7:p");
	assert_string_equal(members(&f, ends[2]), "r7:p r8:p");
	assert_string_equal(members(&f, ends[3]), "r7:d r8:d");
	for (size_t i = 0; i < f.v.n_seqs; i++)
		if (f.v.requests[f.v.seqs[i].req - 1].req == 7)
			assert_in_range(f.v.seqs[i].visits[0].n_tokens, 240, 260);
	gpu_feed_free(&f);
}

/* Steps that only decode are replayed: one that is not, before a first token, has a part of the prompt. */
static void test_gpu_infer__not_replayed(void **state)
{
	struct gpu_feed f = start(false);
	double end;

	(void)state;
	feed_begin(&f, 1, 5);
	feed_begin(&f, 2, 45);
	end = eager_of(&f, 10, 3);
	feed_chunk(&f, 1, end + 0.2);
	for (int k = 1; k < 10; k++) {
		double t = 10 + 10 * k;

		if (k >= 4 && k < 6) {
			feed_chunk(&f, 1, eager_of(&f, t, 3) + 0.2);
		} else {
			feed_replay(&f, t, t + 0.1, 1);
			feed_chunk(&f, 1, t + 2.3);
		}
		if (k >= 5)
			feed_chunk(&f, 2, t + 3.4);
	}
	feed_end(&f, 1, 120, 0, 0);
	feed_end(&f, 2, 120, 0, 0);
	gpu_feed_done(&f);
	assert_string_equal(members(&f, 53.11), "r1:d r2:p");
	assert_string_equal(members(&f, 63.11), "r1:d r2:p");
	assert_string_equal(members(&f, 72.11), "r1:d r2:d");
	gpu_feed_free(&f);
}

/* ---- memory ---- */

static int run_all(struct gpu_feed *f)
{
	feed_engine(f, PID, PID);
	feed_process(f, PID, 0);
	feed_clock(f, -101);
	feed_eager(f, -100, 10);
	for (uint32_t i = 0; i < 6; i++) {
		double t = 50 * i;

		feed_begin(f, i + 1, t + 9);
		feed_chunk(f, i + 1, eager_of(f, t + 10, cost(0, 20 + 10 * (int)i)) + 0.2);
		for (int k = 1; k < 4; k++)
			feed_chunk(f, i + 1, eager_of(f, t + 10 + 10 * k, cost(1, 0)) + 0.2);
		feed_end(f, i + 1, t + 45, 20 + 10 * i, 4);
	}
	return f->err ? f->err : model__finish(f->m);
}

static void test_gpu_infer__oom(void **state)
{
	int err = -ENOMEM;

	(void)state;
	OOM_LOOP({
		struct gpu_feed f = gpu_feed_new();

		err = f.m ? run_all(&f) : -ENOMEM;
		assert_true(err == 0 || err == -ENOMEM);
		gpu_feed_free(&f);
	});
	assert_int_equal(err, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu_infer__decodes), cmocka_unit_test(test_gpu_infer__late_writes),
		cmocka_unit_test(test_gpu_infer__left_out), cmocka_unit_test(test_gpu_infer__stalled),
		cmocka_unit_test(test_gpu_infer__kernels_unseen), cmocka_unit_test(test_gpu_infer__kernels_seen_again),
		cmocka_unit_test(test_gpu_infer__hole), cmocka_unit_test(test_gpu_infer__stood_still),
		cmocka_unit_test(test_gpu_infer__ahead),
		cmocka_unit_test(test_gpu_infer__launches_only), cmocka_unit_test(test_gpu_infer__behind_window),
		cmocka_unit_test(test_gpu_infer__two_windows), cmocka_unit_test(test_gpu_infer__not_streamed), cmocka_unit_test(test_gpu_infer__parts),
		cmocka_unit_test(test_gpu_infer__not_replayed), cmocka_unit_test(test_gpu_infer__oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
