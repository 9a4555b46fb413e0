/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's end of the ring: what a library writes there, and what a hostile process might. */
#include "source/gpu.h"
#include "source/gpu_find.h"
#include "source/gpu_other.h"
#include "source/gpu_clock.h"
#include "source/gpu_tids.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "unit.h"

enum { DATA = 4096, DATA_BYTES = 16 << 20 };

struct got {
	size_t n, n_healths;
	struct tl_gpu_span span;
	struct tl_gpu_health health;
	struct tl_gpu_name name;
};
struct fixture {
	struct gpu *gpu;
	struct tl_ring *ring;	/* as the process has it */
	struct got got;
	uint64_t now_ns;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_non_null(f);
	assert_int_equal(gpu__serve(getpid(), fd, &f->gpu), 0);
	f->ring = mmap(NULL, DATA + DATA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(f->ring != MAP_FAILED);
	f->now_ns = f->ring->heartbeat_ns;
	*state = f;
	return 0;
}

static void on_event(void *ctx, const struct tl_hdr *ev)
{
	struct got *g = ctx;

	if (ev->kind == TL_GPU_HEALTH) {
		g->n_healths++;
		memcpy(&g->health, ev, sizeof(g->health));
		return;
	}
	g->n++;
	if (ev->kind == TL_GPU_SPAN)
		memcpy(&g->span, ev, sizeof(g->span));
	if (ev->kind == TL_GPU_NAME)
		memcpy(&g->name, ev, sizeof(g->name));
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	f->ring->state = TL_RING_LEFT;
	gpu__leave(f->gpu, on_event, &f->got);
	munmap(f->ring, DATA + DATA_BYTES);
	free(f);
	return 0;
}

static int poll_after(struct fixture *f, uint64_t ms)
{
	f->now_ns += ms * 1000000;
	return gpu__poll(f->gpu, f->now_ns, on_event, &f->got);
}

/* As the library does, of one thread. */
static void put(struct fixture *f, const void *event, size_t size)
{
	memcpy((char *)f->ring + DATA + f->ring->head % DATA_BYTES, event, size);
	f->ring->head += size;
}

static struct tl_gpu_span span(uint16_t size)
{
	return (struct tl_gpu_span){ .hdr = { size, TL_GPU_SPAN, 0, 12345, 0, 7 }, .end_ns = 9, .corr = 3 };
}

static void test_gpu__takes_events(void **state)
{
	struct fixture *f = *state;
	struct tl_gpu_span s = span(sizeof(s));
	struct tl_gpu_name name = { .hdr = { sizeof(name), TL_GPU_NAME, 0, 1, 0, 7 }, .id = 1 };

	memset(name.name, 'x', sizeof(name.name));
	put(f, &s, sizeof(s));
	put(f, &name, sizeof(name));
	assert_int_equal(poll_after(f, 10), 2);
	assert_int_equal(f->got.n, 2);
	assert_int_equal(f->got.span.corr, 3);
	assert_int_equal(f->got.span.hdr.tgid, getpid());	/* not what it says itself */
	assert_int_equal(strlen(f->got.name.name), sizeof(name.name) - 1);
	assert_int_equal(f->ring->tail, sizeof(s) + sizeof(name));
	assert_int_equal(*((char *)f->ring + DATA), 0);	/* for the next round */
	assert_int_equal(f->ring->heartbeat_ns, f->now_ns);
	assert_int_equal(poll_after(f, 10), 0);
}

static void test_gpu__goes_round(void **state)
{
	struct fixture *f = *state;
	struct tl_gpu_span s = span(sizeof(s));
	size_t n = 2 * DATA_BYTES / sizeof(s), k = 0;

	for (size_t i = 0; i < n; i++) {
		size_t room = DATA_BYTES - f->ring->head % DATA_BYTES;

		if (room < sizeof(s))
			put(f, &(struct tl_hdr){ .size = room, .kind = TL_NONE }, 8), f->ring->head += room - 8;
		put(f, &s, sizeof(s));
		k++;
		if (i % 1000 == 0)
			assert_true(poll_after(f, 0) > 0);
	}
	assert_true(poll_after(f, 0) > 0);
	assert_int_equal(f->got.n, k);
	assert_int_equal(f->ring->tail, f->ring->head);
}

static void test_gpu__skips_other_kinds(void **state)
{
	struct fixture *f = *state;
	struct tl_hdr engine = { .size = sizeof(engine), .kind = TL_ENGINE }, short_span = engine;
	struct tl_gpu_span s = span(sizeof(s));

	short_span.kind = TL_GPU_SPAN;
	put(f, &engine, sizeof(engine));
	put(f, &short_span, sizeof(short_span));
	put(f, &s, sizeof(s));
	poll_after(f, 10);
	assert_int_equal(f->got.n, 1);
}

static const struct bad { const char *name; uint16_t size, kind; uint64_t at; } bads[] = {
	{ "odd size", 73, TL_GPU_SPAN, 0 },
	{ "smaller than a head", 8, TL_GPU_SPAN, 0 },
	{ "larger than any event", 4096, TL_GPU_SPAN, 0 },
	{ "all there is", 65528, TL_GPU_SPAN, 0 },
};

static void test_gpu__stops_at_garbage(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bads); i++) {
		struct tl_gpu_span s = span(bads[i].size);
		struct fixture *f;

		setup((void **)&f);
		s.hdr.kind = bads[i].kind;
		put(f, &s, sizeof(s));
		assert_int_equal(poll_after(f, 10), -EPROTO);
		s = span(sizeof(s));
		memcpy((char *)f->ring + DATA, &s, sizeof(s));
		assert_int_equal(poll_after(f, 10), -EPROTO);
		assert_int_equal(f->got.n, 0);
		teardown((void **)&f);
	}
}

/* Nothing comes from the future, and a report would be as long as until then. */
static void test_gpu__stops_at_what_is_to_come(void **state)
{
	static const uint64_t late[] = { 3600000000000, 1ull << 62, INT64_MAX };

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(late); i++) {
		struct tl_gpu_span s = span(sizeof(s));
		struct fixture *f;

		setup((void **)&f);
		*(i % 2 ? &s.hdr.ts_ns : &s.end_ns) = f->now_ns + late[i / 2];
		put(f, &s, sizeof(s));
		assert_int_equal(poll_after(f, 10), -EPROTO);
		assert_int_equal(f->got.n, 0);
		teardown((void **)&f);
	}
}

static void test_gpu__does_not_begin_with_a_step_down(void **state)
{
	struct fixture *f = *state;

	gpu__falls_to(f->gpu, TL_GPU_LAUNCHES);
	f->ring->state = TL_RING_IDLE;			/* entered, nothing is ordered */
	poll_after(f, 10);
	assert_int_equal(f->got.n_healths, 1);
	assert_int_equal(f->got.health.level, TL_GPU_LAUNCHES);
	assert_int_equal(f->got.health.to_level, TL_GPU_LAUNCHES);
	gpu__order(f->gpu, TL_GPU_KERNELS, 500);
	poll_after(f, 10);
	assert_int_equal(f->got.health.level, TL_GPU_LAUNCHES);
	assert_int_equal(f->got.health.to_level, TL_GPU_KERNELS);
}

static void test_gpu__tells_health(void **state)
{
	struct fixture *f = *state;

	gpu__order(f->gpu, TL_GPU_GRAPH, 500);
	assert_int_equal(f->ring->order & 0xff, TL_ORDER_GRAPH);
	assert_int_equal(f->ring->max_window_ms, 500);
	f->ring->state = TL_RING_ACTIVE;
	f->ring->simulated = 1;
	poll_after(f, 10);
	assert_int_equal(f->got.n_healths, 1);		/* the state is new */
	poll_after(f, 10);
	assert_int_equal(f->got.n_healths, 1);
	f->ring->n_records = 100;
	f->ring->n_launches = 120;
	f->ring->n_dropped = 5;
	f->ring->n_cupti_dropped = 2;
	f->ring->callback_ns = 10000000;
	poll_after(f, 1000);
	assert_int_equal(f->got.n_healths, 2);
	assert_int_equal(f->got.health.records, 100);
	assert_int_equal(f->got.health.launches, 120);
	assert_int_equal(f->got.health.dropped, 7);
	assert_int_equal(f->got.health.hdr.flags, TL_GPU_SIMULATED);
	assert_int_equal(f->got.health.level, TL_GPU_GRAPH);
	assert_true(f->got.health.overhead_ppm > 9000 && f->got.health.overhead_ppm < 11000);
	f->ring->n_records = 130;
	poll_after(f, 1000);
	assert_int_equal(f->got.health.records, 30);
	f->ring->n_records = 0;				/* a counter that falls is no flood */
	poll_after(f, 1000);
	assert_int_equal(f->got.health.records, 0);
}

static const struct trouble { const char *why, *holder; uint16_t trouble; } troubles[] = {
	{ "CUPTI is held by another tool: CUPTI for other", "CUPTI for other", TL_GPU_BUSY },
	{ "CUPTI gives impossible times", "", TL_GPU_BAD_STAMPS },
	{ "collection is dead: 100 launches and no record", "", TL_GPU_BROKEN },
	{ "no CUPTI in the target", "", TL_GPU_FINE },
};

static void test_gpu__says_what_is_wrong(void **state)
{
	struct fixture *f = *state;

	gpu__order(f->gpu, TL_GPU_KERNELS, 0);
	for (size_t i = 0; i < ARRAY_SIZE(troubles); i++) {
		f->ring->state = TL_RING_ACTIVE;
		poll_after(f, 10);
		memset(f->ring->why, 0, sizeof(f->ring->why));
		memcpy(f->ring->why, troubles[i].why, strlen(troubles[i].why));
		f->ring->state = TL_RING_REFUSED;
		poll_after(f, 10);
		assert_string_equal(gpu__why(f->gpu), troubles[i].why);
		assert_int_equal(f->got.health.trouble, troubles[i].trouble);
		assert_string_equal(f->got.health.holder, troubles[i].holder);
		assert_int_equal(f->got.health.to_level, TL_GPU_OFF);
	}
}

static void test_gpu__lowers_the_level(void **state)
{
	struct fixture *f = *state;

	gpu__order(f->gpu, TL_GPU_KERNELS, 0);
	f->ring->state = TL_RING_ACTIVE;
	poll_after(f, 10);
	assert_int_equal(f->ring->max_records, 0);
	gpu__pause(f->gpu);
	assert_int_equal(f->ring->order & 0xff, TL_ORDER_IDLE);
	poll_after(f, 10);
	assert_int_equal(f->got.n_healths, 1);		/* a pause is nothing new */
	gpu__lower(f->gpu, TL_GPU_GRAPH, "it costs 56.8 %");
	poll_after(f, 10);
	assert_int_equal(f->got.n_healths, 2);
	assert_int_equal(f->got.health.level, TL_GPU_KERNELS);
	assert_int_equal(f->got.health.to_level, TL_GPU_GRAPH);
	assert_int_equal(f->got.health.trouble, TL_GPU_FINE);
	assert_string_equal(f->got.health.why, "it costs 56.8 %");
	poll_after(f, 10);
	assert_int_equal(f->got.n_healths, 2);
	gpu__order(f->gpu, TL_GPU_GRAPH, 600000);
	assert_int_equal(f->ring->max_records, UINT32_MAX);
	gpu__falls_to(f->gpu, TL_GPU_LAUNCHES);
	memcpy(f->ring->why, "collection is dead", 19);
	f->ring->state = TL_RING_REFUSED;
	assert_int_equal(gpu__trouble(f->gpu), TL_GPU_BROKEN);
	poll_after(f, 10);
	assert_int_equal(f->got.health.level, TL_GPU_GRAPH);
	assert_int_equal(f->got.health.to_level, TL_GPU_LAUNCHES);
	assert_int_equal(f->got.health.trouble, TL_GPU_BROKEN);
	assert_string_equal(f->got.health.why, "collection is dead");
	poll_after(f, 10);
	assert_int_equal(f->got.n_healths, 3);
}

static void test_gpu__leaves_without_a_word(void **state)
{
	struct fixture *f = *state;

	gpu__order(f->gpu, TL_GPU_KERNELS, 0);
	f->ring->state = TL_RING_ACTIVE;
	poll_after(f, 10);
	gpu__let_go(f->gpu, 0);
	assert_int_equal(f->ring->order & 0xff, TL_ORDER_LEAVE);
	f->ring->state = TL_RING_LEFT;
	poll_after(f, 10);
	assert_int_equal(f->got.health.to_level, TL_GPU_KERNELS);	/* nothing was lost by it */
}

static void test_gpu__others_saw_launches(void **state)
{
	struct fixture *f = *state;

	gpu__falls_to(f->gpu, TL_GPU_LAUNCHES);
	gpu__order(f->gpu, TL_GPU_KERNELS, 0);
	f->ring->state = TL_RING_IDLE;
	poll_after(f, 10);
	gpu__break(f->gpu, TL_GPU_LAUNCHES, 340, "collection is dead: probes saw 340 launches");
	poll_after(f, 10);
	assert_int_equal(f->got.health.trouble, TL_GPU_BROKEN);
	assert_int_equal(f->got.health.launches, 340);
	assert_int_equal(f->got.health.level, TL_GPU_KERNELS);
	assert_int_equal(f->got.health.to_level, TL_GPU_LAUNCHES);
	assert_string_equal(f->got.health.why, "collection is dead: probes saw 340 launches");
	poll_after(f, 1000);
	assert_int_equal(f->got.health.trouble, TL_GPU_FINE);	/* said once */
	assert_int_equal(f->got.health.launches, 0);
}

/* A capture that ended so long ago waits for nothing: only what is there is taken. */
static int leave_late(struct fixture *f, uint32_t ring_state, const char *why, uint64_t ms_ago)
{
	struct tl_gpu_span s = span(sizeof(s));

	put(f, &s, sizeof(s));
	f->ring->state = ring_state;
	strcpy(f->ring->why, why);
	gpu__let_go(f->gpu, f->now_ns - ms_ago * 1000000);
	assert_int_equal(f->ring->order & 0xff, TL_ORDER_LEAVE);
	return gpu__wait_left(f->gpu, on_event, &f->got);
}

static void test_gpu__does_not_wait_for_nothing(void **state)
{
	struct fixture *f = *state;
	char rest[64];

	assert_int_equal(leave_late(f, TL_RING_LEAVING, "waiting for cuptiFinalize", 500),
			 -EINPROGRESS);
	assert_int_equal(f->got.n, 1);
	assert_string_equal(gpu__rest(f->gpu, rest), "cuptiFinalize");
}

static void test_gpu__does_not_wait_for_a_subscription(void **state)
{
	struct fixture *f = *state;
	char rest[64];

	assert_int_equal(leave_late(f, TL_RING_STARTING, "waiting for cuptiSubscribe: some time", 500),
			 -EINPROGRESS);
	assert_string_equal(gpu__rest(f->gpu, rest), "cuptiSubscribe");
	f->ring->why[0] = 0;
	assert_string_equal(gpu__rest(f->gpu, rest), "");
}

static void test_gpu__waits_for_records_for_so_long(void **state)
{
	struct fixture *f = *state;
	char rest[64];

	assert_int_equal(leave_late(f, TL_RING_ACTIVE, "", 1500), -ETIMEDOUT);
	assert_int_equal(f->got.n, 1);
	assert_null(gpu__rest(f->gpu, rest));
}

/* It was told to leave while the capture went on, with more time than there is now. */
static void test_gpu__an_end_leaves_less_time(void **state)
{
	struct fixture *f = *state;
	uint32_t order;

	gpu__let_go(f->gpu, 0);
	order = f->ring->order;
	assert_int_equal(leave_late(f, TL_RING_ACTIVE, "", 1500), -ETIMEDOUT);
	assert_int_equal(f->ring->order, order);
}

static void test_gpu_clock__reads_offsets(void **state)
{
	(void)state;
	assert_int_equal(gpu_clock_parse("monotonic       1000         0\nboottime           0         0\n"), 1000000000000);
	assert_int_equal(gpu_clock_parse("monotonic         -2 500000000\nboottime           0         0\n"), -1500000000);
	assert_int_equal(gpu_clock_parse("boottime           5         0\n"), 0);
	assert_int_equal(gpu_clock_parse("monotonic 9223372036854775807 0\n"), 0);
	assert_int_equal(gpu_clock_parse("monotonic"), 0);
	assert_int_equal(gpu_clock_parse(""), 0);
	assert_int_equal(gpu_clock_offset_ns(getpid()), 0);
	assert_int_equal(gpu_clock_offset_ns(-1), 0);
}

static void test_gpu_tids__reads_status(void **state)
{
	(void)state;
	assert_int_equal(gpu_tids_last("Name:\tx\nNSpid:\t4711\nNSpgid:\t1\n"), 4711);
	assert_int_equal(gpu_tids_last("Name:\tx\nNSpid:\t4711\t12\t7\nNSpgid:\t1\n"), 7);
	assert_int_equal(gpu_tids_last("Name:\tx\nNSpid:\n"), 0);
	assert_int_equal(gpu_tids_last(""), 0);
}

/* A process that is the first of its namespace, and a thread that it has not. */
static void test_gpu_tids__maps(void **state)
{
	struct gpu_tids t;
	int ready[2], status;
	pid_t child;
	char c;

	(void)state;
	gpu_tids__init(&t, getpid());
	assert_int_equal(gpu_tids__ours(&t, 12345, 1), 12345);
	gpu_tids__free(&t);
	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (!child) {		/* its children are in another namespace */
		pid_t inner = unshare(CLONE_NEWPID) ? -1 : fork();

		if (inner < 0)
			c = 'n';
		else if (inner)
			_exit(waitpid(inner, &status, 0) < 0);
		else
			c = 'y';
		if (write(ready[1], &c, 1) != 1)
			_exit(1);
		if (c == 'y')
			pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	if (c == 'y') {
		uint32_t *pids;

		assert_int_equal(gpu_descendants(child, &pids), 1);
		gpu_tids__init(&t, pids[0]);
		assert_false(t.same);
		OOM_LOOP({ t.look_ns = 0; (void)gpu_tids__ours(&t, 1, 1); });
		assert_int_equal(gpu_tids__ours(&t, 1, 2000000000), pids[0]);
		assert_int_equal(gpu_tids__ours(&t, 77, 4000000000), 0);
		gpu_tids__free(&t);
		kill(pids[0], SIGKILL);
		free(pids);
	}
	waitpid(child, &status, 0);
	close(ready[0]);
	close(ready[1]);
	if (c != 'y')
		skip();
}

static void test_gpu_find(void **state)
{
	uint32_t *pids = NULL;
	int n = -1;

	(void)state;
	assert_int_equal(gpu_maps_cuda(getpid()), 0);
	assert_int_equal(gpu_maps_cuda(INT32_MAX), -ESRCH);
	OOM_LOOP({ n = gpu_descendants(getpid(), &pids); if (n < 0) assert_int_equal(n, -ENOMEM); else free(pids); });
	assert_int_equal(n, 0);
}

static void test_gpu__sees_the_end(void **state)
{
	int fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct got got = { 0 };
	pid_t child = fork();
	struct tl_ring *ring;
	struct gpu *g;

	(void)state;
	if (!child) {
		pause();
		_exit(0);
	}
	assert_int_equal(gpu__serve(child, fd, &g), 0);
	ring = mmap(NULL, DATA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(ring != MAP_FAILED);
	assert_int_equal(gpu__poll(g, 0, on_event, &got), 0);
	ring->n_records = 7;	/* since the last health */
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_int_equal(gpu__poll(g, 0, on_event, &got), -ESRCH);
	assert_int_equal(got.n_healths, 1);
	assert_int_equal(got.health.records, 7);
	assert_int_equal(gpu__leave(g, on_event, &got), -ESRCH);
	munmap(ring, DATA);
}

/* A process that has this mapped, and waits. */
static pid_t who_has(int fd, const void *also)
{
	int ready[2];
	pid_t child;
	char c;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (!child) {
		void *at = mmap(NULL, DATA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		bool good = at != MAP_FAILED;

		prctl(PR_SET_NAME, "some agent");
		if (also)
			munmap((void *)also, DATA);
		if (write(ready[1], good ? "y" : "n", 1) == 1)
			pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	close(ready[0]);
	close(ready[1]);
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static uint32_t n_ticks;

static void tick(void *ctx)
{
	(void)ctx;
	n_ticks++;
}

static void test_gpu_other__who_is_attached(void **state)
{
	int fd = memfd_create("tokenlag-ring", 0), library = memfd_create("libtokenlag.so", 0);
	struct gpu_other other;
	pid_t target, agent;
	void *code;

	(void)state;
	assert_int_equal(ftruncate(fd, DATA), 0);
	assert_int_equal(ftruncate(library, DATA), 0);
	assert_false(gpu_other_agent(getpid(), NULL, NULL, &other));
	target = who_has(fd, NULL);
	assert_false(gpu_other_agent(target, NULL, NULL, &other));	/* its agent has ended */
	agent = who_has(fd, NULL);
	assert_true(gpu_other_agent(target, tick, NULL, &other));
	assert_int_equal(other.pid, agent);
	assert_string_equal(other.name, "some agent");
	assert_true(n_ticks > 0);
	end(agent);
	assert_false(gpu_other_agent(target, NULL, NULL, &other));
	/* A child of the target has its library, too. */
	code = mmap(NULL, DATA, PROT_READ | PROT_EXEC, MAP_SHARED, library, 0);
	assert_true(code != MAP_FAILED);
	agent = who_has(fd, NULL);
	assert_false(gpu_other_agent(target, NULL, NULL, &other));
	end(agent);
	agent = who_has(fd, code);
	assert_true(gpu_other_agent(target, NULL, NULL, &other));
	end(agent);
	end(target);
	munmap(code, DATA);
	close(fd);
	close(library);
}

static void test_gpu__serve_refuses(void **state)
{
	struct gpu *g = NULL;

	(void)state;
	assert_int_equal(gpu__serve(getpid(), -1, &g), -EBADF);
	oom_after(0);
	assert_int_equal(gpu__serve(getpid(), -1, &g), -ENOMEM);
	assert_true(oom_hit());
	assert_null(g);
	assert_int_equal(gpu__leave(NULL, NULL, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_gpu__takes_events, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gpu__goes_round, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gpu__skips_other_kinds, setup, teardown),
		cmocka_unit_test(test_gpu__stops_at_garbage),
		cmocka_unit_test(test_gpu__stops_at_what_is_to_come),
		cmocka_unit_test_setup_teardown(test_gpu__does_not_begin_with_a_step_down, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gpu__tells_health, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gpu__says_what_is_wrong, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gpu__lowers_the_level, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gpu__leaves_without_a_word, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gpu__others_saw_launches, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gpu__does_not_wait_for_nothing, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_gpu__does_not_wait_for_a_subscription, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_gpu__waits_for_records_for_so_long, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_gpu__an_end_leaves_less_time, setup, teardown),
		cmocka_unit_test(test_gpu_clock__reads_offsets),
		cmocka_unit_test(test_gpu_tids__reads_status),
		cmocka_unit_test(test_gpu_tids__maps),
		cmocka_unit_test(test_gpu_find),
		cmocka_unit_test(test_gpu__sees_the_end),
		cmocka_unit_test(test_gpu_other__who_is_attached),
		cmocka_unit_test(test_gpu__serve_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
