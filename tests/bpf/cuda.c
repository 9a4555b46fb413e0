/* SPDX-License-Identifier: Apache-2.0 */
/* Calls into a libcuda (the simulated one), seen by probes: every function, all threads, however it is mapped. */
#include "cuda_worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>

#define WRITE(call_, flags_, stream_, what_, bytes_, expr) do {						\
	size_t at_ = __atomic_fetch_add(&diary->n, 1, __ATOMIC_RELAXED);				\
	struct call c_ = { call_, flags_, gettid(), (uintptr_t)(stream_), (uintptr_t)(what_), bytes_, now_ns(), 0 }; \
	int err_ = expr;										\
	c_.end_ns = now_ns();										\
	c_.flags |= err_ ? TL_LAUNCH_FAILED : 0;							\
	diary->v[at_] = c_;										\
} while (0)

/* ---- the whole of a plain test ---- */

static struct capture *watch(int (*work)(void), const struct cuda_opts *opts, struct cuda **ret)
{
	struct capture *c = capture_open(NULL);
	struct worker w = { 0 };

	*ret = open_cuda(c, opts);
	memset(diary, 0, sizeof(*diary));
	start(&w, work);
	let_load(&w);
	assert_add(*ret, &w);
	let_work(&w);
	end(&w);
	capture_drain(c);
	return c;
}

static bool is_timed(const struct call *w)
{
	return w->call == TL_CALL_SYNC || w->call == TL_CALL_ALLOC || w->call == TL_CALL_LOAD ||
	       (w->call == TL_CALL_COPY && w->flags & (TL_LAUNCH_FROM | TL_LAUNCH_WAITS));
}

/* Where probes are slow to take off there are fewer of them. */
static bool is_left_out(const struct call *w)
{
	return one_by_one && (w->call == TL_CALL_ALLOC || w->call == TL_CALL_LOAD);
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
	size_t at = 0, n_runs = 0;

	(void)state;
	assert_int_equal(diary->n, 25);
	for (size_t i = 0; i < diary->n; i++) {
		const struct tl_gpu_launch *e;

		if (is_left_out(&diary->v[i]))
			continue;
		n_runs += 1 + is_timed(&diary->v[i]);
		e = next_launch(c, &at);
		assert_is(e, &diary->v[i]);
		if (diary->v[i].call == TL_CALL_SYNC && diary->v[i].what)	/* till the kernel before it ends */
			assert_true(e->hdr.ts_ns + e->dur_ns > diary->v[i - 1].begin_ns + WAIT_NS);
	}
	assert_null(next_launch(c, &at));
	assert_int_equal(c->n_lost, 0);
	cuda__cost(cuda, &cost);
	assert_int_equal(cost.launches, 8);
	assert_int_equal(cost.graph_launches, 2);
	assert_int_equal(cost.syncs, 4);
	assert_int_equal(cost.runs, n_runs);	/* the call inside of cuMemCreate is left out */
	assert_true(cost.per_hit_ns > 0 && cost.dear_hit_ns > cost.per_hit_ns);
	assert_int_equal(cost.paid_ns, cost.runs * cost.per_hit_ns);
	assert_false(cost.kernels_off);
	finish(c, cuda);
}

/* ---- threads and processes ---- */

enum { THREADS = 16 };

static void *one_thread(void *stream)
{
	for (int i = 0; i < ROUNDS; i++) {
		WRITE(TL_CALL_GRAPH, 0, stream, 1, 0, cu.graph_launch(NULL, stream));
		cu.stream_sync(stream);
	}
	return NULL;
}

static int many_threads(void)
{
	pthread_t threads[THREADS];
	void *stream;

	for (int i = 0; i < THREADS; i++)
		if (cu.stream_create(&stream, 0) || pthread_create(&threads[i], NULL, one_thread, stream))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static void test_cuda__many_threads(void **state)
{
	struct cuda *cuda;
	struct capture *c = watch(many_threads, &(struct cuda_opts){ 0 }, &cuda);
	size_t at = 0, n[TL_CALL_LOAD + 1] = { 0 };
	const struct tl_gpu_launch *e;

	(void)state;
	while ((e = next_launch(c, &at))) {
		const struct call *w = NULL;

		/* Each wait is its thread's, between two launches of that thread on that stream. */
		for (size_t i = 0; i < diary->n && !w; i++)
			if (diary->v[i].tid == e->hdr.tid && diary->v[i].stream == e->stream)
				w = &diary->v[i];
		assert_non_null(w);
		n[e->call]++;
	}
	assert_int_equal(n[TL_CALL_GRAPH], THREADS * ROUNDS);
	assert_int_equal(n[TL_CALL_SYNC], THREADS * ROUNDS);
	assert_int_equal(c->n_lost, 0);
	finish(c, cuda);
}

/* A child of a process with a libcuda has it mapped, with the probes' code in it. */
static int launches_and_fork(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(some_launches());
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return 1;
	return some_launches();
}

static bool is_probed(const struct worker *w)
{
	char path[64];
	uint8_t byte = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", w->child.pid);
	fd = open(path, O_RDONLY);
	assert_int_equal(pread(fd, &byte, 1, (uintptr_t)diary->code), 1);
	close(fd);
	return byte == 0xcc;		/* a breakpoint */
}

/* Several ranks of a server, and one that maps the same file and is none of ours. */
static void test_cuda__processes(void **state)
{
	struct capture *c = capture_open(NULL);
	struct cuda *cuda = open_cuda(c, &(struct cuda_opts){ 0 });
	struct worker w[3] = { 0 };
	const struct tl_gpu_launch *e;
	size_t at = 0, n[3] = { 0 };

	(void)state;
	for (int i = 0; i < 3; i++) {
		start(&w[i], i ? some_launches : launches_and_fork);
		let_load(&w[i]);
	}
	assert_add(cuda, &w[0]);
	assert_add(cuda, &w[1]);
	assert_true(is_probed(&w[0]) && is_probed(&w[1]));
	assert_int_equal(is_probed(&w[2]), one_by_one);
	for (int i = 0; i < 3; i++) {
		let_work(&w[i]);
		end(&w[i]);
	}
	capture_drain(c);
	while ((e = next_launch(c, &at))) {
		int i = 0;

		while (i < 3 && (uint32_t)w[i].child.pid != e->hdr.tgid)
			i++;
		assert_true(i < 2);
		n[i]++;
	}
	assert_int_equal(n[0], 2 * ROUNDS);
	assert_int_equal(n[1], 2 * ROUNDS);
	assert_int_equal(c->n_lost, 0);
	finish(c, cuda);
}

static int fork_and_wait(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		while (__atomic_load_n(&diary->stage, __ATOMIC_ACQUIRE) == 0)
			usleep(1000);
		_exit(some_launches());
	}
	diary->v[0].tid = pid;
	__atomic_store_n(&diary->n, 1, __ATOMIC_RELEASE);
	return pid < 0 || waitpid(pid, &status, 0) != pid ? 1 : status;
}

static void test_cuda__a_forked_child(void **state)
{
	struct capture *c = capture_open(NULL);
	struct cuda *cuda = open_cuda(c, &(struct cuda_opts){ 0 });
	struct worker w = { 0 };
	char why[160];
	size_t at = 0;

	(void)state;
	memset(diary, 0, sizeof(*diary));
	start(&w, fork_and_wait);
	let_load(&w);
	assert_add(cuda, &w);
	let_work(&w);
	while (!__atomic_load_n(&diary->n, __ATOMIC_ACQUIRE))
		usleep(1000);
	assert_true(cuda__add(cuda, diary->v[0].tid, why) > 10);
	cuda__del(cuda, w.child.pid);		/* the parent is let go, the child is not */
	__atomic_store_n(&diary->stage, 1, __ATOMIC_RELEASE);
	end(&w);
	capture_drain(c);
	for (int i = 0; i < 2 * ROUNDS; i++) {
		const struct tl_gpu_launch *e = next_launch(c, &at);

		assert_non_null(e);
		assert_int_equal(e->hdr.tgid, diary->v[0].tid);
		/* What its parent has set up is of no use to it. */
		assert_int_equal(e->hdr.flags, e->call == TL_CALL_SYNC ? TL_LAUNCH_FAILED : 0);
	}
	assert_null(next_launch(c, &at));
	finish(c, cuda);
}

/* ---- when, and from where, it is mapped ---- */

static void test_cuda__mapped_later_and_let_go(void **state)
{
	struct capture *c = capture_open(NULL);
	struct cuda *cuda = open_cuda(c, &(struct cuda_opts){ 0 });
	struct worker w = { 0 };
	char why[160];

	(void)state;
	start(&w, some_launches);
	assert_int_equal(cuda__add(cuda, w.child.pid, why), -ENOENT);
	let_load(&w);
	assert_false(is_probed(&w));
	assert_add(cuda, &w);
	assert_true(is_probed(&w));
	assert_int_equal(cuda__add(cuda, w.child.pid, why), cuda__add(cuda, w.child.pid, why));
	cuda__del(cuda, w.child.pid);
	assert_false(is_probed(&w));
	let_work(&w);
	end(&w);
	capture_drain(c);
	assert_int_equal(capture_count(c, TL_GPU_LAUNCH), 0);
	assert_int_equal(cuda__add(cuda, w.child.pid, why), -ESRCH);
	assert_string_equal(why, "the process is gone");
	finish(c, cuda);
}

static char elsewhere[64];

static int copy_file(const char *from, const char *to)
{
	char buf[65536];
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0700);
	ssize_t n = -1;

	while (in >= 0 && out >= 0 && (n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, n) != n)
			return -1;
	close(in);
	close(out);
	return n;
}

/* In a mount namespace of its own, from a file that is deleted. */
static int do_work_elsewhere(void *arg)
{
	struct worker *w = arg;
	char path[128];
	int err;

	snprintf(path, sizeof(path), "%s/libcuda.so.999.1", elsewhere);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", elsewhere, "tmpfs", 0, NULL) || copy_file(cuda_path("libcuda.so.1"), path))
		return 80;
	w->library = path;
	err = cuda_load(path);
	unlink(path);
	return err ? 81 : do_work_loaded(w);
}

static void test_cuda__deleted_file_of_another_namespace(void **state)
{
	struct capture *c = capture_open(NULL);
	struct cuda *cuda = open_cuda(c, &(struct cuda_opts){ 0 });
	struct worker w = { 0 };

	(void)state;
	strcpy(elsewhere, "/tmp/tokenlag-XXXXXX");
	assert_non_null(mkdtemp(elsewhere));
	w.load = do_work_elsewhere;
	start(&w, some_launches);
	let_load(&w);
	assert_add(cuda, &w);
	let_work(&w);
	end(&w);
	rmdir(elsewhere);
	capture_drain(c);
	assert_int_equal(capture_count(c, TL_GPU_LAUNCH), 2 * ROUNDS);
	finish(c, cuda);
}

/* Functions that begin with endbr64: the probe stands behind it, or its price is said. */
static void test_cuda__endbr(void **state)
{
	struct capture *c = capture_open(NULL);
	struct cuda *cuda = open_cuda(c, &(struct cuda_opts){ 0 });
	struct worker w = { .library = "endbr/libcuda.so.1" };
	struct cuda_cost cost;
	char why[160];
	size_t n = 0;

	(void)state;
	memset(diary, 0, sizeof(*diary));
	start(&w, every_call);
	let_load(&w);
	assert_true(cuda__add(cuda, w.child.pid, why) > 10);
	cuda__cost(cuda, &cost);
	print_message("%s; %u ns a hit, or %u ns\n", why, cost.per_hit_ns, cost.dear_hit_ns);
	assert_non_null(strstr(why, "single-steps"));
	let_work(&w);
	end(&w);
	capture_drain(c);
	for (size_t i = 0; i < diary->n; i++)
		n += !is_left_out(&diary->v[i]);
	assert_int_equal(capture_count(c, TL_GPU_LAUNCH), n);
	assert_int_equal(c->n_lost, 0);
	finish(c, cuda);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cuda__every_call),
		cmocka_unit_test(test_cuda__many_threads),
		cmocka_unit_test(test_cuda__processes),
		cmocka_unit_test(test_cuda__a_forked_child),
		cmocka_unit_test(test_cuda__mapped_later_and_let_go),
		cmocka_unit_test(test_cuda__deleted_file_of_another_namespace),
		cmocka_unit_test(test_cuda__endbr),
	};

	diary = mmap(NULL, sizeof(*diary), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return run_both_ways(tests, ARRAY_SIZE(tests));
}
