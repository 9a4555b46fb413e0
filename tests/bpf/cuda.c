/* SPDX-License-Identifier: Apache-2.0 */
/* Calls into a libcuda (the simulated one), seen by probes: every function, all threads, within a budget. */
#include "capture.h"
#include "cuda.h"

#include "base/util.h"
#include "source/cuda.h"
#include <pthread.h>
#include <sys/syscall.h>

/* ---- what a child writes down of its own calls ---- */

struct call {
	uint16_t call;
	uint32_t flags, tid;
	uint64_t stream, what, bytes;
	uint64_t begin_ns, end_ns;
};
enum { MAX_WRITTEN = 4096 };
static struct diary {
	size_t n;
	struct call v[MAX_WRITTEN];
	uint8_t first_byte;		/* of cuGraphLaunch, as it stands in memory */
} *diary;				/* shared with children */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

#define WRITE(call_, flags_, stream_, what_, bytes_, expr) do {						\
	size_t at_ = __atomic_fetch_add(&diary->n, 1, __ATOMIC_RELAXED);				\
	struct call c_ = { call_, flags_, gettid(), (uintptr_t)(stream_), (uintptr_t)(what_), bytes_, now_ns(), 0 }; \
	int err_ = expr;										\
	c_.end_ns = now_ns();										\
	c_.flags |= err_ ? TL_LAUNCH_FAILED : 0;							\
	diary->v[at_] = c_;										\
} while (0)

static struct cuda *open_cuda(struct capture *c, const struct cuda_opts *opts)
{
	struct cuda *cuda = NULL;
	const char *why;
	int err = cuda__open(c->bpf, opts, &cuda, &why);

	if (err)
		fail_msg("cuda__open: %d, %s", err, why);
	return cuda;
}

/* ---- a child that has a libcuda, in two steps: it loads it, then it works ---- */

struct worker {
	struct child child;
	int ready;
};

static int ready_pipe[2], go_pipe[2];
static const char *library = "libcuda.so.1";

static int load_then(int (*work)(void))
{
	char c = 0;

	if (cuda_load(cuda_path(library)))
		return 90;
	if (write(ready_pipe[1], &c, 1) != 1 || read(go_pipe[0], &c, 1) != 1)
		return 91;
	return work();
}

static int do_work(void *work)
{
	return load_then((int (*)(void))work);
}

static struct child start_worker(int (*work)(void))
{
	struct child child;
	char c;

	assert_int_equal(pipe(ready_pipe), 0);
	assert_int_equal(pipe(go_pipe), 0);
	child = child_start(do_work, (void *)work);
	child_go(&child);
	close(ready_pipe[1]);
	close(go_pipe[0]);
	if (read(ready_pipe[0], &c, 1) != 1)
		fail_msg("the child could not load %s: %d", cuda_path(library), child_end(&child) >> 8);
	close(ready_pipe[0]);
	return child;
}

static void let_work(struct child *child)
{
	int status;

	assert_int_equal(write(go_pipe[1], "g", 1), 1);
	status = child_end(child);
	if (status)
		fail_msg("the child ended with %d (%d)", status, status >> 8);
	close(go_pipe[1]);
}

/* ---- the whole of a plain test ---- */

static struct capture *watch(int (*work)(void), const struct cuda_opts *opts, struct cuda **ret)
{
	struct capture *c = capture_open(NULL);
	struct cuda *cuda = open_cuda(c, opts);
	struct child child = start_worker(work);
	char why[160];
	int n = cuda__add(cuda, child.pid, why);

	memset(diary, 0, sizeof(*diary));
	if (n < 20)
		fail_msg("cuda__add: %d, %s", n, why);
	assert_int_equal(cuda__add(cuda, child.pid, why), n);
	let_work(&child);
	capture_drain(c);
	*ret = cuda;
	return c;
}

static void finish(struct capture *c, struct cuda *cuda)
{
	cuda__close(cuda);
	capture_close(c);
}

static const struct tl_gpu_launch *next_launch(struct capture *c, size_t *at)
{
	const struct tl_gpu_launch *e = capture_next(c, TL_GPU_LAUNCH, at);

	if (e) {
		assert_int_equal(e->hdr.size, sizeof(*e));
		assert_int_equal(e->corr, 0);
		assert_int_equal(e->pad, 0);
	}
	return e;
}

static bool is_timed(const struct call *w)
{
	return w->call == TL_CALL_SYNC || w->call == TL_CALL_ALLOC || w->call == TL_CALL_LOAD ||
	       (w->call == TL_CALL_COPY && w->flags & (TL_LAUNCH_FROM | TL_LAUNCH_WAITS));
}

static void assert_is(const struct tl_gpu_launch *e, const struct call *w)
{
	assert_non_null(e);
	assert_int_equal(e->call, w->call);
	assert_int_equal(e->hdr.tid, w->tid);
	assert_int_equal(e->hdr.flags, w->flags);
	assert_int_equal(e->stream, w->stream);
	assert_int_equal(e->what, w->what);
	assert_int_equal(e->bytes, w->bytes);
	assert_int_equal(e->n, 1);
	assert_true(e->hdr.ts_ns >= w->begin_ns && e->hdr.ts_ns + e->dur_ns <= w->end_ns);
	assert_int_equal(e->dur_ns != 0, is_timed(w));
}

/* ---- tests ---- */

enum { BYTES = 4096, WAIT_NS = 3000000 };

static int every_call(void)
{
	static char host[BYTES];
	uint64_t device = 0, memory, kernel_ns = 1000, long_ns = WAIT_NS;
	void *args[2] = { &kernel_ns, NULL }, *long_args[2] = { &long_ns, NULL };
	void *module, *f = NULL, *stream, *event, *graph, *exec;
	struct launch_config config = { .grid = { 1, 1, 1 }, .block = { 32, 1, 1 } };

	WRITE(TL_CALL_LOAD, 0, 0, 0, 0, cu.module_load(&module, host));
	cu.get_function(&f, module, "some_kernel");
	cu.stream_create(&stream, 0);
	cu.event_create(&event, 0);
	config.stream = stream;
	WRITE(TL_CALL_ALLOC, 0, 0, 0, BYTES, cu.alloc(&device, BYTES));
	cu.capture(stream, 0);
	WRITE(TL_CALL_KERNEL, 0, stream, f, 0, cu.launch(f, 1, 1, 1, 32, 1, 1, 0, stream, args, NULL));
	cu.end_capture(stream, &graph);
	cu.instantiate(&exec, graph, 0);
	WRITE(TL_CALL_GRAPH, 0, stream, exec, 0, cu.graph_launch(exec, stream));
	WRITE(TL_CALL_GRAPH, 0, stream, exec, 0, cu.graph_launch_ptsz(exec, stream));
	WRITE(TL_CALL_KERNEL, 0, stream, f, 0, cu.launch(f, 1, 2, 3, 4, 5, 6, 7, stream, args, NULL));
	WRITE(TL_CALL_KERNEL, 0, 0, f, 0, cu.launch_ptsz(f, 1, 2, 3, 4, 5, 6, 7, NULL, args, NULL));
	WRITE(TL_CALL_KERNEL, 0, stream, f, 0, cu.cooperative(f, 1, 1, 1, 32, 1, 1, 0, stream, args));
	WRITE(TL_CALL_KERNEL, 0, 2, f, 0, cu.cooperative_ptsz(f, 1, 1, 1, 32, 1, 1, 0, (void *)2, args));
	WRITE(TL_CALL_KERNEL, 0, stream, f, 0, cu.launch_ex(&config, f, args, NULL));
	WRITE(TL_CALL_KERNEL, 0, stream, f, 0, cu.launch_ex_ptsz(&config, f, args, NULL));
	WRITE(TL_CALL_SYNC, 0, stream, 0, 0, cu.stream_sync(stream));
	WRITE(TL_CALL_SYNC, 0, 2, 0, 0, cu.stream_sync_ptsz((void *)2));
	WRITE(TL_CALL_KERNEL, 0, stream, f, 0, cu.launch(f, 1, 1, 1, 32, 1, 1, 0, stream, long_args, NULL));
	cu.event_record(event, stream);
	WRITE(TL_CALL_SYNC, 0, 0, event, 0, cu.event_sync(event));
	WRITE(TL_CALL_SYNC, 0, 0, 0, 0, cu.ctx_sync());
	WRITE(TL_CALL_COPY, TL_LAUNCH_TO, stream, 0, 100, cu.htod_async(device, host, 100, stream));
	WRITE(TL_CALL_COPY, TL_LAUNCH_TO, 0, 0, 101, cu.htod_async_ptsz(device, host, 101, NULL));
	WRITE(TL_CALL_COPY, TL_LAUNCH_FROM, stream, 0, 102, cu.dtoh_async(host, device, 102, stream));
	WRITE(TL_CALL_COPY, TL_LAUNCH_FROM, 0, 0, 103, cu.dtoh_async_ptsz(host, device, 103, NULL));
	WRITE(TL_CALL_COPY, TL_LAUNCH_TO | TL_LAUNCH_WAITS, 0, 0, 104, cu.htod(device, host, 104));
	WRITE(TL_CALL_COPY, TL_LAUNCH_FROM | TL_LAUNCH_WAITS, 0, 0, 105, cu.dtoh(host, device, 105));
	WRITE(TL_CALL_ALLOC, TL_LAUNCH_FREE, 0, device, 0, cu.free(device));
	/* It asks for memory itself; what it does inside is its own time. */
	WRITE(TL_CALL_ALLOC, 0, 0, 0, BYTES, cu.create(&memory, BYTES, NULL, 0));
	WRITE(TL_CALL_ALLOC, 0, 0, 0, 0, cu.alloc(&memory, 0));		/* fails */
	return 0;
}

static void test_cuda__every_call(void **state)
{
	struct cuda *cuda;
	struct capture *c = watch(every_call, &(struct cuda_opts){ 0 }, &cuda);
	struct cuda_cost cost;
	size_t at = 0;

	(void)state;
	assert_int_equal(diary->n, 25);
	for (size_t i = 0; i < diary->n; i++) {
		const struct tl_gpu_launch *e = next_launch(c, &at);

		assert_is(e, &diary->v[i]);
		if (diary->v[i].call == TL_CALL_SYNC && diary->v[i].what)
			assert_true(e->dur_ns > WAIT_NS / 2);
	}
	assert_null(next_launch(c, &at));
	assert_int_equal(c->n_lost, 0);
	cuda__cost(cuda, &cost);
	assert_int_equal(cost.launches, 8);
	assert_int_equal(cost.graph_launches, 2);
	assert_int_equal(cost.syncs, 4);
	assert_int_equal(cost.runs, diary->n);
	assert_true(cost.per_hit_ns > 0);
	assert_false(cost.kernels_off);
	finish(c, cuda);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cuda__every_call),
	};

	diary = mmap(NULL, sizeof(*diary), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
