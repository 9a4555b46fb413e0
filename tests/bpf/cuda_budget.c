/* SPDX-License-Identifier: Apache-2.0 */
/* Calls into a libcuda (the simulated one) when they are too many: counted, left alone, lost and told. */
#include "cuda_worker.h"

static struct emit into(struct capture *c)
{
	return (struct emit){ capture_take, c };
}

static uint64_t fake_ns;	/* for the budget's clock */

static void poll_after(struct cuda *cuda, struct capture *c, uint64_t ns)
{
	const struct emit out = into(c);

	capture_drain(c);
	fake_ns = fake_ns ? fake_ns : now_ns();
	fake_ns += ns;
	assert_int_equal(cuda__poll(cuda, fake_ns, &out), 0);
}

enum { BURST = 100 };

/* Launches in bursts as often as it is told to: by stage. */
static int on_demand(void)
{
	static uint64_t kernel_ns = 100;
	void *args[2] = { &kernel_ns, NULL }, *f[2], *streams[2];

	cu.get_function(&f[0], (void *)1, "one");
	cu.get_function(&f[1], (void *)1, "two");
	cu.stream_create(&streams[0], 0);
	cu.stream_create(&streams[1], 0);
	for (int stage = 1;; stage++) {
		int told;

		while ((told = __atomic_load_n(&diary->stage, __ATOMIC_ACQUIRE)) >= 0 && told < stage)
			usleep(500);
		if (told < 0)
			return 0;
		for (int i = 0; i < BURST; i++)
			cu.launch(f[0], 1, 1, 1, 32, 1, 1, 0, streams[0], args, NULL);
		cu.stream_sync(streams[0]);
		for (int i = 0; i < BURST; i++)
			cu.launch(f[i % 2], 1, 1, 1, 32, 1, 1, 0, streams[i % 2], args, NULL);
		cu.graph_launch(NULL, streams[0]);
		cu.launch(f[0], 1, 1, 1, 32, 1, 1, 0, streams[0], args, NULL);
		__atomic_store_n(&diary->n, stage, __ATOMIC_RELEASE);
	}
}

static void run_stage(int stage)
{
	__atomic_store_n(&diary->stage, stage, __ATOMIC_RELEASE);
	while (__atomic_load_n(&diary->n, __ATOMIC_ACQUIRE) < (size_t)stage)
		usleep(500);
}

static struct capture *watch_on_demand(const struct cuda_opts *opts, struct worker *w, struct cuda **ret)
{
	struct capture *c = capture_open(NULL);

	*ret = open_cuda(c, opts);
	memset(diary, 0, sizeof(*diary));
	fake_ns = 0;
	*w = (struct worker){ 0 };
	start(w, on_demand);
	let_load(w);
	assert_add(*ret, w);
	let_work(w);
	return c;
}

static void finish_on_demand(struct capture *c, struct cuda *cuda, struct worker *w)
{
	__atomic_store_n(&diary->stage, -1, __ATOMIC_RELEASE);
	end(w);
	finish(c, cuda);
}

/* The launches up to the next call of another kind, which is returned. One event holds them, but what lasts for
 * longer than 100 ms is said in parts. */
static const struct tl_gpu_launch *expect_burst(struct capture *c, size_t *at, unsigned n, uint16_t flags)
{
	const struct tl_gpu_launch *e, *last = NULL;
	unsigned sum = 0;

	while ((e = next_launch(c, at)) && e->call == TL_CALL_KERNEL) {
		assert_true(!last || e->hdr.ts_ns - last->hdr.ts_ns > 100000000);
		assert_true(e->n == 1 || e->dur_ns > 0);
		assert_int_equal(e->hdr.flags, e->n == 1 ? 0 : flags);
		sum += e->n;
		last = e;
	}
	assert_int_equal(sum, n);
	return e;
}

/* The events of one stage whose launches are counted. */
static void assert_counted(struct capture *c, size_t *at)
{
	const struct tl_gpu_launch *e = expect_burst(c, at, BURST, 0);

	assert_non_null(e);
	assert_int_equal(e->call, TL_CALL_SYNC);
	e = expect_burst(c, at, BURST, TL_LAUNCH_MANY);
	assert_non_null(e);
	assert_int_equal(e->call, TL_CALL_GRAPH);
	/* the agent's: its thread neither waits nor launches on */
	assert_null(expect_burst(c, at, 1, 0));
}

static void test_cuda__counted(void **state)
{
	struct worker w;
	struct cuda *cuda;
	struct capture *c = watch_on_demand(&(struct cuda_opts){ .count_kernels = true }, &w, &cuda);
	size_t at = 0;

	(void)state;
	run_stage(1);
	poll_after(cuda, c, 900000000);
	assert_counted(c, &at);
	finish_on_demand(c, cuda, &w);
}

static void test_cuda__budget(void **state)
{
	const uint64_t second = 1000000000;
	struct worker w;
	struct cuda *cuda;
	struct capture *c = watch_on_demand(&(struct cuda_opts){ .kernel_budget_ppm = 1 }, &w, &cuda);
	const struct tl_gpu_launch *e;
	struct cuda_cost cost;
	size_t at = 0;

	(void)state;
	run_stage(1);			/* before anybody could know: an event each */
	poll_after(cuda, c, second / 10);
	for (int i = 0; i < 2 * BURST + 3; i++)
		assert_int_equal(next_launch(c, &at)->n, 1);
	e = next_launch(c, &at);
	assert_non_null(e);
	assert_int_equal(e->hdr.flags, TL_LAUNCH_UNSEEN);
	assert_int_equal(e->hdr.tgid, w.child.pid);
	assert_int_equal(e->hdr.ts_ns, fake_ns);
	assert_int_equal(e->n + e->dur_ns, 0);
	cuda__cost(cuda, &cost);
	assert_true(cost.kernels_off);

	run_stage(2);			/* what is left: the wait and the graph */
	poll_after(cuda, c, second);
	assert_int_equal(next_launch(c, &at)->call, TL_CALL_SYNC);
	assert_int_equal(next_launch(c, &at)->call, TL_CALL_GRAPH);
	assert_null(next_launch(c, &at));

	poll_after(cuda, c, 10 * second);	/* it looks again, and counts only */
	e = next_launch(c, &at);
	assert_non_null(e);
	assert_int_equal(e->hdr.flags, TL_LAUNCH_UNSEEN);
	assert_int_equal(e->hdr.ts_ns + e->dur_ns, fake_ns);
	cuda__cost(cuda, &cost);
	assert_false(cost.kernels_off);
	assert_true(cost.kernels_counted);
	for (int i = 0; i < 6; i++)		/* few launches for long enough: an event each again */
		poll_after(cuda, c, second);
	run_stage(3);
	capture_drain(c);
	for (int i = 0; i < 2 * BURST + 3; i++)
		assert_int_equal(next_launch(c, &at)->n, 1);
	poll_after(cuda, c, second / 10);
	assert_int_equal(next_launch(c, &at)->hdr.flags, TL_LAUNCH_UNSEEN);
	assert_null(next_launch(c, &at));
	finish_on_demand(c, cuda, &w);
}

static void test_cuda__no_kernels(void **state)
{
	struct worker w;
	struct cuda *cuda;
	struct capture *c = watch_on_demand(&(struct cuda_opts){ .no_kernels = true }, &w, &cuda);
	size_t at = 0;

	(void)state;
	poll_after(cuda, c, 1000);
	assert_int_equal(next_launch(c, &at)->hdr.flags, TL_LAUNCH_UNSEEN);
	run_stage(1);
	poll_after(cuda, c, 2000000000);
	assert_int_equal(next_launch(c, &at)->call, TL_CALL_SYNC);
	assert_int_equal(next_launch(c, &at)->call, TL_CALL_GRAPH);
	assert_null(next_launch(c, &at));
	finish_on_demand(c, cuda, &w);
}

enum { FLOOD = 3000 };
static int flood(void)
{
	for (int i = 0; i < FLOOD; i++)
		cu.graph_launch(NULL, NULL);
	return 0;
}

static void test_cuda__losses_are_counted(void **state)
{
	const struct src_bpf_opts opts = { .ring_bytes = 64 << 10 };
	struct capture *c = capture_open(&opts);
	struct cuda *cuda = open_cuda(c, &(struct cuda_opts){ 0 });
	struct worker w = { 0 };
	const struct tl_lost *lost;
	size_t at = 0;

	(void)state;
	start(&w, flood);
	let_load(&w);
	assert_add(cuda, &w);
	let_work(&w);
	end(&w);
	capture_drain(c);
	assert_true(c->n_lost > 0);
	assert_int_equal(capture_count(c, TL_GPU_LAUNCH) + c->n_lost, FLOOD);
	lost = capture_next(c, TL_LOST, &at);
	assert_int_equal(lost->what, TL_GPU_LAUNCH);
	finish(c, cuda);
}

/* Its probes are taken off and put on again while it is in a call: that one is seen as it was or not at all, as
 * the kernel has it; later ones are seen. */
static int long_wait_then_many(void)
{
	uint64_t long_ns = 1000000000;
	void *args[2] = { &long_ns, NULL }, *f;

	cu.get_function(&f, (void *)1, "long");
	cu.launch(f, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL);
	diary->v[0].begin_ns = now_ns();
	__atomic_store_n(&diary->n, 1, __ATOMIC_RELEASE);
	cu.stream_sync(NULL);
	diary->v[0].end_ns = now_ns();
	__atomic_store_n(&diary->n, 2, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&diary->stage, __ATOMIC_ACQUIRE))
		usleep(1000);
	return some_launches();
}

static void test_cuda__probed_anew_in_a_call(void **state)
{
	struct capture *c = capture_open(NULL);
	struct cuda *cuda = open_cuda(c, &(struct cuda_opts){ .no_kernels = true });
	struct worker w = { 0 };
	size_t at = 0, n = 0, n_early = 0;
	const struct tl_gpu_launch *e;

	(void)state;
	memset(diary, 0, sizeof(*diary));
	start(&w, long_wait_then_many);
	let_load(&w);
	assert_add(cuda, &w);
	let_work(&w);
	while (!__atomic_load_n(&diary->n, __ATOMIC_ACQUIRE))
		usleep(1000);
	wait_state(w.child.pid, "S");
	cuda__del(cuda, w.child.pid);
	assert_add(cuda, &w);
	while (__atomic_load_n(&diary->n, __ATOMIC_ACQUIRE) < 2)
		usleep(1000);
	__atomic_store_n(&diary->stage, 1, __ATOMIC_RELEASE);
	end(&w);
	capture_drain(c);
	while ((e = next_launch(c, &at))) {
		if (e->call != TL_CALL_SYNC)
			continue;
		if (e->hdr.ts_ns > diary->v[0].end_ns) {
			n++;
			continue;
		}
		n_early++;
		assert_true(e->hdr.ts_ns >= diary->v[0].begin_ns);
		assert_true(e->hdr.ts_ns + e->dur_ns <= diary->v[0].end_ns);
	}
	assert_int_equal(n, ROUNDS);
	assert_true(n_early <= 1);
	assert_int_equal(c->n_lost, 0);
	finish(c, cuda);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cuda__counted),
		cmocka_unit_test(test_cuda__budget),
		cmocka_unit_test(test_cuda__no_kernels),
		cmocka_unit_test(test_cuda__losses_are_counted),
		cmocka_unit_test(test_cuda__probed_anew_in_a_call),
	};

	diary = mmap(NULL, sizeof(*diary), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return run_both_ways(tests, ARRAY_SIZE(tests));
}
