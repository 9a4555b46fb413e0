/* SPDX-License-Identifier: Apache-2.0 */
/* Launches and spans of a GPU: joined, cut into steps, matched with the wire's, summed. */
#include "gpu_feed.h"

#include "model/clues.h"

static struct gpu_feed start(void)
{
	struct gpu_feed f = gpu_feed_new();

	assert_non_null(f.m);
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	feed_clock(&f, -1);
	feed_eager(&f, -0.9, 10);	/* the first of a window may be cut: never taken as whole */
	return f;
}

static void test_gpu_model__nothing(void **state)
{
	struct gpu_feed f = gpu_feed_new();

	(void)state;
	feed_engine(&f, PID, PID);
	feed_step(&f, 0, 10, 2, 0);
	gpu_feed_done(&f);
	assert_non_null(f.v.gpu);
	assert_int_equal(f.v.gpu->n_steps, 0);
	assert_int_equal(f.v.gpu->n_kernels, 0);
	assert_int_equal(f.v.evidence->gpu_steps.n, 0);
	gpu_feed_free(&f);
}

/* Ten kernels and a copy, without holes; the copy of the step before ended 0.69 ms before. */
static void test_gpu_model__one_step(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	feed_eager(&f, 1, 10);
	feed_step(&f, 0.9, 2.5, 2, 0);
	gpu_feed_done(&f);
	const struct gpu_step *s = STEP(&f, 1);

	assert_int_equal(s->launch_ns, at(1));
	assert_int_equal(s->gpu0_ns, at(1.1));
	assert_int_equal(s->gpu1_ns, at(2.11));
	assert_ns(s->busy_ns, 1.01);
	/* since the one before ended at 0.21, as the same sequences are in both */
	assert_ns(s->idle_ns, 2.11 - 0.21 - 1.01);
	assert_true(s->counted && s->seen);
	assert_int_equal(s->launches, 10);
	assert_int_equal(s->graph, TL_GRAPH_NONE);
	assert_true(STEP(&f, 0)->busy_ns == GPU_UNKNOWN && STEP(&f, 0)->idle_ns == GPU_UNKNOWN);
	assert_int_equal(f.v.gpu->counts.spans_joined, 22);
	gpu_feed_free(&f);
}

/* Kernels on two streams at once, with a hole: their union counts. */
static void test_gpu_model__union(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_step(&f, -1, 0.5, 0, 0);
	for (int i = 0; i < 10; i++)
		feed_kernel(&f, 10 + 0.003 * i, 11, 12, NAME_GEMM);
	feed_kernel(&f, 10.04, 11.5, 12.5, NAME_GEMM);
	feed_copy(&f, 10.05, 13, 13.25, 2);
	feed_step(&f, 9.9, 13.5, 0, 64);
	gpu_feed_done(&f);
	assert_ns(STEP(&f, 1)->busy_ns, 1.75);
	assert_ns(STEP(&f, 1)->idle_ns, 13.25 - 10 - 1.75);	/* another sequence: since its launch */
	gpu_feed_free(&f);
}

/* Each step is launched while the one before it runs: times alone would take each for the one before. */
static void run_ahead(struct gpu_feed *f, int n, double slow_wire)
{
	for (int k = 0; k < n; k++)
		feed_replay(f, 10 + 2.5 * k - 1.5, 10 + 2.5 * k, 8);
	for (int k = 0; k < n; k++)
		feed_step(f, 10 + 2.5 * k - 1.6, 10 + 2.5 * k + 2.01 + slow_wire, 8, 0);
}

static void test_gpu_model__ahead(void **state)
{
	/* the wire tells soon, or after the next step was launched */
	static const double slow[] = { 0.1, 1.2, 1.4 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(slow); i++) {
		struct gpu_feed f = start();

		feed_step(&f, -1, 0.5, 2, 0);
		run_ahead(&f, 50, slow[i]);
		gpu_feed_done(&f);
		for (int k = 0; k < 50; k++) {
			assert_int_equal(STEP(&f, k + 1)->gpu0_ns, at(10 + 2.5 * k));
			assert_int_equal(STEP(&f, k + 1)->launches, 1);
		}
		/* one burst per step, whatever the delay */
		assert_int_equal(f.v.gpu->counts.spans_in_steps, f.v.gpu->counts.spans);
		gpu_feed_free(&f);
	}
}

/* A slow host: it launches a step, waits for the one before, which is long done, and tells of that 4 ms later. */
static void test_gpu_model__slow_host(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	for (int k = 0; k < 50; k++)
		feed_replay(&f, 50 + 5 * k, 50.1 + 5 * k, 8);
	for (int k = 0; k < 50; k++)
		feed_step(&f, 50 + 5 * k, 50 + 5 * k + 9, 8, 0);
	gpu_feed_done(&f);
	for (int k = 0; k < 50; k++)
		assert_int_equal(STEP(&f, k + 1)->gpu0_ns, at(50.1 + 5 * k));
	gpu_feed_free(&f);
}

/* A step of the wire without launches, and launches without a step: only these are left out. */
static void test_gpu_model__gaps(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	for (int k = 0; k < 60; k++) {
		if (k != 20)
			feed_replay(&f, 10 + 4 * k, 10.1 + 4 * k, 8);
		if (k != 40)
			feed_step(&f, 9.9 + 4 * k, 12.3 + 4 * k, 8, 0);
	}
	gpu_feed_done(&f);
	for (int k = 0, i = 1; k < 60; k++) {
		if (k == 40)
			continue;
		if (k == 20)
			assert_true(STEP(&f, i)->busy_ns == GPU_UNKNOWN && !STEP(&f, i)->seen);
		else
			assert_int_equal(STEP(&f, i)->gpu0_ns, at(10.1 + 4 * k));
		i++;
	}
	gpu_feed_free(&f);
}

/* Launches without one record: nothing is known of the device, least of all that it was idle. */
static void test_gpu_model__no_records(void **state)
{
	struct gpu_feed f = gpu_feed_new();

	(void)state;
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	for (int k = 0; k < 5; k++) {
		for (int i = 0; i < 10; i++) {
			struct tl_gpu_launch l = launch_of(&f, 10 * k + 0.01 * i, TL_CALL_KERNEL, ++f.corr);

			FEED(&f, l);
		}
		feed_sync(&f, 10 * k + 0.2, 10 * k + 5);
		feed_step(&f, 10 * k - 0.1, 10 * k + 5.1, 2, 0);
	}
	gpu_feed_done(&f);
	for (int k = 1; k < 5; k++) {
		assert_true(STEP(&f, k)->busy_ns == GPU_UNKNOWN && STEP(&f, k)->idle_ns == GPU_UNKNOWN);
		assert_true(STEP(&f, k)->seen);
		assert_int_equal(STEP(&f, k)->launches, 10);
		assert_int_equal(STEP(&f, k)->gpu0_ns, 0);
	}
	assert_int_equal(f.v.gpu->n_devices, 0);
	for (size_t i = 0; i < f.v.evidence->gpu_steps.n; i++)
		assert_int_equal(f.v.evidence->gpu_steps.v[i].busy_ns, 0);	/* not known */
	gpu_feed_free(&f);
}

/* Two windows: what was under way when one closed, and what was when the other opened, is not known. */
static void test_gpu_model__windows(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	for (int k = 0; k < 8; k++) {
		double t = k < 4 ? 10 + 10 * k : 4000 + 10 * k;

		if (k == 4)
			feed_clock(&f, 4030);
		if (k == 3) {	/* cut: half of its kernels have no record */
			for (int i = 0; i < 10; i++) {
				struct tl_gpu_launch l = launch_of(&f, t + 0.01 * i, TL_CALL_KERNEL, ++f.corr);
				struct tl_gpu_span s = span_of(&f, t + 0.1 * i, t + 0.1 * i + 0.1,
							       TL_SPAN_KERNEL, f.corr);

				FEED(&f, l);
				if (i < 5)
					FEED(&f, s);
			}
		} else {
			feed_eager(&f, t, k == 4 ? 9 : 10);
		}
		feed_step(&f, t - 0.1, t + 1.5, 2, 0);
	}
	gpu_feed_done(&f);
	for (int k = 0; k < 8; k++) {
		bool known = k != 3 && k != 4;

		assert_int_equal(STEP(&f, k + 1)->busy_ns != GPU_UNKNOWN, known);
		if (known)
			assert_ns(STEP(&f, k + 1)->busy_ns, 1.01);
	}
	/* what lies between windows is no idleness */
	assert_int_equal(f.v.gpu->n_devices, 1);
	assert_true(f.v.gpu->devices[0].seen_ns < len(200));
	gpu_feed_free(&f);
}

/* Ids of graph launches that are another's, as some versions of CUPTI give them: their order tells. */
static void test_gpu_model__wrong_ids(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	for (int k = 0; k < 20; k++) {
		double t = 10 + 5 * k;
		struct tl_gpu_launch l = launch_of(&f, t, TL_CALL_GRAPH, ++f.corr);

		l.what = GRAPHS + 1;
		FEED(&f, l);
		for (int i = 0; i < 5; i++) {
			struct tl_gpu_span s = span_of(&f, t + 0.1 + 0.1 * i, t + 0.2 + 0.1 * i, TL_SPAN_KERNEL,
						       k % 2 ? f.corr + 1 : 5);

			s.graph = 9;
			FEED(&f, s);
		}
		feed_copy(&f, t + 0.01, t + 0.6, t + 0.61, 2);
		feed_step(&f, t - 0.1, t + 1, 2, 0);
	}
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->counts.by_order, 100);
	for (int k = 0; k < 20; k++) {
		assert_int_equal(STEP(&f, k + 1)->gpu0_ns, at(10.1 + 5 * k));
		assert_ns(STEP(&f, k + 1)->busy_ns, 0.51);
	}
	gpu_feed_free(&f);
}

/* A probe and a callback tell of the same call: it counts once. */
static void test_gpu_model__twice(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	for (int k = 0; k < 4; k++) {
		double t = 10 + 10 * k;
		struct tl_gpu_launch p;

		feed_eager(&f, t, 10);
		for (int i = 0; i < 10; i++) {
			p = launch_of(&f, t + 0.003 * i - 0.001, TL_CALL_KERNEL, 0);
			p.dur_ns = i % 2 ? 0 : 3500;	/* its return was seen, or not */
			if (k % 2)
				FEED(&f, p);
		}
		p = launch_of(&f, t - 0.001, TL_CALL_KERNEL, 0);
		p.dur_ns = len(0.03);
		p.n = 10;		/* or they were only counted */
		if (k % 2 == 0)
			FEED(&f, p);
		feed_step(&f, t - 0.1, t + 1.5, 2, 0);
	}
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->counts.launches, 50);
	for (int k = 0; k < 4; k++) {
		assert_int_equal(STEP(&f, k + 1)->launches, 10);
		assert_ns(STEP(&f, k + 1)->busy_ns, 1.01);
	}
	gpu_feed_free(&f);
}

/* What probes told before records began is a part of its step, whose time on the device is then not known. */
static void test_gpu_model__entered(void **state)
{
	(void)state;
	for (int told = 0; told < 2; told++) {
		struct gpu_feed f = gpu_feed_new();
		struct tl_gpu_launch l;

		feed_engine(&f, PID, PID);
		feed_process(&f, PID, 0);
		for (int k = 0; k < 4; k++) {
			double t = 10 + 10 * k;

			l = launch_of(&f, t - 0.2, TL_CALL_COPY, 0);
			l.hdr.flags = TL_LAUNCH_TO;
			FEED(&f, l);
			if (k == 1)
				feed_clock(&f, told ? t - 0.3 : t - 0.1);
			if (told ? k > 0 : k > 1) {
				l = launch_of(&f, t - 0.199, TL_CALL_COPY, ++f.corr);
				l.dur_ns = 500;
				struct tl_gpu_span s = span_of(&f, t - 0.1, t - 0.09, TL_SPAN_MEMCPY, f.corr);

				s.copy = 1;
				FEED(&f, l);
				FEED(&f, s);
			}
			if (k)
				feed_eager(&f, t, 10);
			l = launch_of(&f, t + 1.2, TL_CALL_SYNC, 0);
			FEED(&f, l);
			feed_step(&f, t - 0.3, t + 1.5, 2, 0);
		}
		gpu_feed_done(&f);
		assert_int_equal(STEP(&f, 1)->busy_ns != GPU_UNKNOWN, told);
		assert_ns(STEP(&f, 2)->busy_ns, 1.02);
		gpu_feed_free(&f);
	}
}

/* The agent asks for the clock, and may be late: where callbacks told of launches meanwhile, no window closed. */
static void test_gpu_model__late_clock(void **state)
{
	struct gpu_feed f = start();

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	for (int k = 0; k < 130; k++) {
		double t = 10 + 10 * k;

		if (k == 125)
			feed_clock(&f, t);
		feed_eager(&f, t, 10);
		feed_step(&f, t - 0.1, t + 1.5, 2, 0);
	}
	gpu_feed_done(&f);
	for (int k = 0; k < 130; k++)
		assert_ns(STEP(&f, k + 1)->busy_ns, 1.01);
	gpu_feed_free(&f);
}

/* On a busy host steps are told late, but for one now and then: each has its launches nevertheless. */
static void test_gpu_model__busy_host(void **state)
{
	static const double lags[] = { 16, 17, 15, 1, 17, 16, 17, 18, 1, 2, 16, 17 };
	struct gpu_feed f = gpu_feed_new();
	int n = 60;

	(void)state;
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	for (int k = 0; k < n; k++) {
		double t = 20 * k, end = t + 1 + lags[k % 12];
		struct tl_gpu_launch l = launch_of(&f, t, TL_CALL_GRAPH, 0);

		l.what = GRAPHS;
		FEED(&f, l);
		feed_sync(&f, t + 0.5, t + 1);
		feed_step(&f, t - 0.5, end, 2, 0);
	}
	gpu_feed_done(&f);
	for (int k = 0; k < n; k++)
		assert_int_equal(STEP(&f, k)->launch_ns, at(20 * k));
	gpu_feed_free(&f);
}

/* ---- graphs ---- */

static void test_gpu_model__graphs(void **state)
{
	/* of each step: its graph, or 0, and the batch */
	static const struct { int exec; uint16_t batch; uint32_t prefill; uint16_t want; } steps[] = {
		{ 4, 4, 0, TL_GRAPH_HIT }, { 4, 3, 0, TL_GRAPH_PADDED }, { 8, 7, 0, TL_GRAPH_PADDED },
		{ 8, 5, 0, TL_GRAPH_PADDED }, { 16, 12, 0, TL_GRAPH_PADDED }, { 1, 1, 0, TL_GRAPH_HIT },
		{ 0, 20, 0, TL_GRAPH_MISS }, { 0, 3, 64, TL_GRAPH_MISS }, { 16, 16, 0, TL_GRAPH_HIT },
	};
	struct gpu_feed f = start();
	const struct tl_gpu_step *e;

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		double t = 10 + 10 * (double)i;

		if (steps[i].exec)
			feed_replay(&f, t, t + 0.1, steps[i].exec);
		else
			feed_eager(&f, t, 10);
		feed_step(&f, t - 0.1, t + 3, steps[i].batch, steps[i].prefill);
	}
	gpu_feed_done(&f);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		assert_int_equal(STEP(&f, i + 1)->graph, steps[i].want);
	assert_int_equal(f.v.evidence->gpu_steps.n, ARRAY_SIZE(steps));
	e = f.v.evidence->gpu_steps.v;
	assert_int_equal(e[4].padded_to, 16);
	assert_int_equal(e[4].batch, 12);
	assert_int_equal(e[6].graph, TL_GRAPH_MISS);
	assert_int_equal(e[7].graph, TL_GRAPH_NONE);	/* a prompt is no miss that anybody is to blame for */
	gpu_feed_free(&f);
}

static uint64_t missed(const struct clues *c, uint32_t step)
{
	struct clue_list l;
	uint64_t ns = 0;

	clues__step(c, step, len(2.3), &l);
	for (size_t i = 0; i < l.n; i++)
		ns += l.v[i].mechanism == MECH_GRAPH_MISS ? l.v[i].ns : 0;
	return ns;
}

/* What is derived feeds blame: a step that was not replayed among many that were. */
static void test_gpu_model__blame(void **state)
{
	struct gpu_feed f = start();
	struct clues *c;

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	for (int k = 0; k < 20; k++) {
		feed_replay(&f, 10 + 5 * k, 10.1 + 5 * k, 4);
		feed_step(&f, 9.9 + 5 * k, 12.2 + 5 * k, 4, 0);
	}
	for (int k = 0; k < 12; k++)
		feed_kernel(&f, 200 + 0.9 * k, 200.1 + 0.9 * k, 200.2 + 0.9 * k, NAME_GEMM);
	feed_copy(&f, 211, 211.2, 211.3, 2);
	feed_step(&f, 199.9, 212, 4, 0);
	feed_eager(&f, 300, 12);	/* launched at once: what it took beyond is not for want of a graph */
	feed_step(&f, 299.9, 312, 4, 0);
	gpu_feed_done(&f);
	assert_int_equal(clues__new(&f.v, &c), 0);
	assert_true(missed(c, 21) > len(9));
	assert_in_range(missed(c, 22), 1, len(0.1));
	clues__free(c);
	gpu_feed_free(&f);
}

/* Records of steps that the recording has are not made again. */
static void test_gpu_model__recorded(void **state)
{
	struct gpu_feed f = start();
	struct tl_gpu_step e = { .hdr = HDR(e, TL_GPU_STEP, 0, PID, 0, at(0.9)), .end_ns = at(2.5), .busy_ns = 77 };

	(void)state;
	FEED(&f, e);
	feed_step(&f, -1, 0.5, 2, 0);
	feed_eager(&f, 1, 10);
	feed_step(&f, 0.9, 2.5, 2, 0);
	gpu_feed_done(&f);
	assert_int_equal(f.v.evidence->gpu_steps.n, 1);
	assert_int_equal(f.v.evidence->gpu_steps.v[0].busy_ns, 77);
	assert_ns(STEP(&f, 1)->busy_ns, 1.01);
	gpu_feed_free(&f);
}

/* ---- ranks ---- */

/* Rank 1 comes to the collective 0.5 ms late: rank 0 waits there. */
static void feed_rank(struct gpu_feed *f, double t, double late)
{
	for (int i = 0; i < 9; i++)
		feed_kernel(f, t + 0.003 * i, t + 0.1 + late + 0.1 * i, t + 0.2 + late + 0.1 * i, NAME_GEMM);
	feed_kernel(f, t + 0.03, t + 1 + late, t + 1.6, NAME_REDUCE);
	feed_copy(f, t + 0.04, t + 1.6, t + 1.61, 2);
}

static void test_gpu_model__ranks(void **state)
{
	struct gpu_feed f = start();
	const struct gpu_device *d;

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	for (int k = 0; k < 4; k++) {
		feed_rank(&f, 10 + 5 * k, 0);
		feed_step(&f, 9.9 + 5 * k, 12 + 5 * k, 2, 0);
	}
	feed_process(&f, PID + 50, 1);
	feed_clock(&f, -1);
	feed_eager(&f, -0.9, 10);
	for (int k = 0; k < 4; k++)
		feed_rank(&f, 10 + 5 * k, 0.5);
	gpu_feed_done(&f);
	assert_int_equal(f.v.gpu->n_devices, 2);
	d = f.v.gpu->devices;
	assert_int_equal(d[0].rank, 0);
	assert_int_equal(d[1].rank, 1);
	assert_int_equal(d[1].tgid, PID + 50);
	assert_ns(d[0].wait_ns, 4 * 0.5);
	assert_int_equal(d[1].wait_ns, 0);
	/* evidence: a record per rank and step, of what they spent in collectives and at least had to */
	assert_int_equal(f.v.evidence->gpu_steps.n, 8);
	for (size_t i = 0; i < 8; i++) {
		const struct tl_gpu_step *s = &f.v.evidence->gpu_steps.v[i];

		assert_int_equal(s->rank, i % 2);
		assert_ns(s->collective_ns, s->rank ? 0.1 : 0.6);
		assert_ns(s->transfer_ns, 0.1);
	}
	gpu_feed_free(&f);
}

/* ---- kernels and requests ---- */

static const struct gpu_kernel *kernel(const struct gpu_feed *f, const char *name, enum gpu_phase phase)
{
	for (size_t i = 0; i < f->v.gpu->n_kernels; i++)
		if (!strcmp(f->v.gpu->kernels[i].name, name) && f->v.gpu->kernels[i].phase == phase)
			return &f->v.gpu->kernels[i];
	fail_msg("no %s in phase %d", name, (int)phase);
	return NULL;
}

static void test_gpu_model__kernels(void **state)
{
	struct gpu_feed f = start();
	const struct gpu_kernel *k;

	(void)state;
	feed_step(&f, -1, 0.5, 2, 0);
	feed_eager(&f, 10, 10);
	feed_step(&f, 9.9, 12, 0, 64);
	feed_replay(&f, 20, 20.1, 1);
	feed_kernel(&f, 20.003, 22.2, 22.25, NAME_SAMPLE);
	feed_step(&f, 19.9, 23, 1, 0);
	gpu_feed_done(&f);
	k = kernel(&f, "kernel", GPU_PREFILL);
	assert_int_equal(k->n, 10);
	assert_ns(k->total_ns, 1);
	assert_in_range(k->p50_ns, 99000, 101000);
	assert_int_equal(kernel(&f, "kernel", GPU_DECODE)->n, 20 + 10);	/* ... those of the cut step, too */
	assert_int_equal(kernel(&f, "argmax_kernel", GPU_SAMPLING)->n, 1);
	assert_int_equal(kernel(&f, "memcpy DtoH", GPU_COPY)->n, 3);
	gpu_feed_free(&f);
}

/* A prompt alone in its step is exact; then two decode, and share by tokens. */
static void test_gpu_model__shares(void **state)
{
	struct gpu_feed f = start();
	struct tl_seq_link link[2] = {
		{ .hdr = HDR(link[0], TL_SEQ_LINK, 0, PID, 0, at(9)), .req = 1, .slot = 0, .task = 1, .method = TL_LINK_TASK },
		{ .hdr = HDR(link[1], TL_SEQ_LINK, 0, PID, 0, at(9)), .req = 2, .slot = 1, .task = 2, .method = TL_LINK_TASK },
	};

	(void)state;
	feed_begin(&f, 1, 8);
	feed_begin(&f, 2, 8);
	FEED(&f, link[0]);
	FEED(&f, link[1]);
	feed_eager(&f, 10, 10);
	feed_step(&f, 9.9, 12, 0, 64);	/* slot 0 */
	feed_eager(&f, 20, 10);
	feed_step(&f, 19.9, 22, 1, 63);	/* slot 0 decodes, slot 1 has a prompt of 63 */
	feed_eager(&f, 30, 10);
	feed_step(&f, 29.9, 32, 2, 0);
	gpu_feed_done(&f);
	const struct gpu_share *s = f.v.gpu->shares;

	assert_ns(s[0].prefill_ns, 1.01);
	assert_false(s[0].prefill_shared);
	assert_ns(s[0].decode_ns, 1.01 / 64 + 1.01 / 2);
	assert_true(s[0].decode_shared);
	assert_ns(s[1].prefill_ns, 1.01 * 63 / 64);
	assert_true(s[1].prefill_shared);
	assert_ns(s[1].decode_ns, 1.01 / 2);
	gpu_feed_free(&f);
}

/* How much of a prompt the second one had in its step is not known: none of it is said of either. */
static void test_gpu_model__shares_of_unknown_tokens(void **state)
{
	struct gpu_feed f = start();
	struct tl_seq_link link[2] = {
		{ .hdr = HDR(link[0], TL_SEQ_LINK, 0, PID, 0, at(9)), .req = 1, .slot = 0, .task = 1, .method = TL_LINK_TASK },
		{ .hdr = HDR(link[1], TL_SEQ_LINK, 0, PID, 0, at(9)), .req = 2, .slot = 1, .task = 2, .method = TL_LINK_TASK },
	};
	struct { struct tl_step s; struct tl_member m[2]; } u = {
		.s = { HDR(u, TL_STEP, 0, PID, TID, at(19.9)), .end_ns = at(22), .n_members = 2, .n_tokens = 1 },
		.m = { { 0, 1, -1, TL_DECODE, 1, 0 }, { 1, 0, -1, TL_PREFILL, 1, 0 } },
	};

	(void)state;
	feed_begin(&f, 1, 8);
	feed_begin(&f, 2, 8);
	FEED(&f, link[0]);
	FEED(&f, link[1]);
	feed_eager(&f, 10, 10);
	feed_step(&f, 9.9, 12, 0, 64);
	feed_eager(&f, 20, 10);
	feed_one(&f, &u.s.hdr);
	feed_eager(&f, 30, 10);
	feed_step(&f, 29.9, 32, 2, 0);
	gpu_feed_done(&f);
	assert_ns(f.v.gpu->shares[0].prefill_ns, 1.01);
	assert_true(f.v.gpu->shares[0].decode_ns == GPU_UNKNOWN);
	assert_true(f.v.gpu->shares[1].prefill_ns == GPU_UNKNOWN);
	assert_ns(f.v.gpu->shares[1].decode_ns, 1.01 / 2);
	gpu_feed_free(&f);
}

/* ---- memory ---- */

static int run_all(struct gpu_feed *f)
{
	feed_engine(f, PID, PID);
	feed_process(f, PID, 0);
	feed_clock(f, -1);
	for (int k = 0; k < 6; k++) {
		feed_rank(f, 10 + 5 * k, 0);
		feed_graph(f, 10 + 5 * k + 0.035, 11.55 + 5 * k, 2, 3);
		feed_step(f, 9.9 + 5 * k, 12 + 5 * k, 2, k == 3 ? 50 : 0);
	}
	feed_process(f, PID + 1, 1);
	feed_clock(f, -1);
	for (int k = 0; k < 6; k++)
		feed_rank(f, 10 + 5 * k, 0.2);
	return f->err ? f->err : model__finish(f->m);
}

static void test_gpu_model__oom(void **state)
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
		cmocka_unit_test(test_gpu_model__nothing), cmocka_unit_test(test_gpu_model__one_step),
		cmocka_unit_test(test_gpu_model__union), cmocka_unit_test(test_gpu_model__ahead),
		cmocka_unit_test(test_gpu_model__gaps), cmocka_unit_test(test_gpu_model__slow_host),
		cmocka_unit_test(test_gpu_model__no_records),
		cmocka_unit_test(test_gpu_model__windows), cmocka_unit_test(test_gpu_model__entered),
		cmocka_unit_test(test_gpu_model__late_clock), cmocka_unit_test(test_gpu_model__busy_host),
		cmocka_unit_test(test_gpu_model__wrong_ids),
		cmocka_unit_test(test_gpu_model__twice), cmocka_unit_test(test_gpu_model__graphs),
		cmocka_unit_test(test_gpu_model__blame), cmocka_unit_test(test_gpu_model__recorded),
		cmocka_unit_test(test_gpu_model__ranks), cmocka_unit_test(test_gpu_model__kernels),
		cmocka_unit_test(test_gpu_model__shares),
		cmocka_unit_test(test_gpu_model__shares_of_unknown_tokens), cmocka_unit_test(test_gpu_model__oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
