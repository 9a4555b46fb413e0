/* SPDX-License-Identifier: Apache-2.0 */
/* A Python is asked to run a script: this program has what looks like one, at its place and in its state. */
#include "source/pep768_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "unit.h"

struct fake_thread {
	uint64_t before[3], eval_breaker, interp, native_id;
	uint32_t support, pending;
	char path[512];
	uint64_t behind;
};
struct fake_interp {
	uint64_t next, id, threads_main;
	int32_t may_debug, behind;
};
/* All that is found of it, is found by the name of its section and of this file. */
static struct fake_runtime {
	uint64_t table[PEP768_TABLE_BYTES / 8];
	uint64_t finalizing, head;
} runtime __attribute__((section(".PyRuntime"), used)) = { .table = { 1 } };
static struct fake_interp interps[3];
static struct fake_thread thread;

static const char a_path[] = "/dev/shm/.tokenlag-0123456789abcdef0123456789abcdef/script";

static void fill(void)
{
	uint64_t *w = runtime.table;

	memset(&runtime, 0, sizeof(runtime));
	memcpy(w, "xdebugpy", 8);
	w[1] = 0x030e08f0;
	w[3] = sizeof(runtime);
	w[4] = offsetof(struct fake_runtime, finalizing);
	w[5] = offsetof(struct fake_runtime, head);
	w[6] = sizeof(struct fake_interp);
	w[7] = offsetof(struct fake_interp, id);
	w[8] = offsetof(struct fake_interp, next);
	w[10] = offsetof(struct fake_interp, threads_main);
	w[91] = offsetof(struct fake_interp, may_debug);
	w[22] = sizeof(struct fake_thread);
	w[25] = offsetof(struct fake_thread, interp);
	w[28] = offsetof(struct fake_thread, native_id);
	w[89] = offsetof(struct fake_thread, eval_breaker);
	w[90] = offsetof(struct fake_thread, support);
	w[92] = offsetof(struct fake_thread, pending) - w[90];
	w[93] = offsetof(struct fake_thread, path) - w[90];
	w[94] = sizeof(thread.path);
	/* Two that came later stand before the main one. */
	interps[0] = (struct fake_interp){ .next = (uintptr_t)&interps[1], .id = 2 };
	interps[1] = (struct fake_interp){ .next = (uintptr_t)&interps[2], .id = 1 };
	interps[2] = (struct fake_interp){ .threads_main = (uintptr_t)&thread, .may_debug = 1 };
	runtime.head = (uintptr_t)&interps[0];
	memset(&thread, 0, sizeof(thread));
	thread.interp = (uintptr_t)&interps[2];
	thread.native_id = getpid();
	thread.support = thread.behind = 0x55;
}

static int find(struct pep768_python *ret, char why[96])
{
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	*why = 0;
	assert_true(mem >= 0);
	return pep768_python__find(getpid(), mem, ret, why);
}

static void test_python__found(void **state)
{
	struct pep768_python p;
	char why[96];

	(void)state;
	fill();
	assert_int_equal(find(&p, why), 0);
	assert_int_equal(p.thread, (uintptr_t)&thread);
	assert_string_equal(why, "");
	close(p.mem);
}

static void check_refused(int err, const char *why)
{
	struct pep768_python p = { .mem = -1 };
	char got[96];

	assert_int_equal(find(&p, got), err);
	assert_int_equal(p.mem, -1);
	assert_non_null(strstr(got, why));
	fill();
}

static void test_python__refused(void **state)
{
	static const char lost[] = "the main thread of its Python is not to be found";

	(void)state;
	fill();
	memset(&runtime, 0, sizeof(runtime));
	check_refused(-ENOENT, "");
	runtime.table[1] = 0x030f00f0;
	check_refused(-ENOTSUP, "Python 3.15");
	runtime.table[5] = 12345678;
	check_refused(-EPROTO, "cannot be true");
	runtime.finalizing = 1;
	check_refused(-EAGAIN, "about to end");
	interps[2].may_debug = 0;
	check_refused(-EPERM, "was told to take no scripts");
	interps[2].threads_main = 0;
	check_refused(-EAGAIN, "is not at work for its Python");
	thread.native_id++;		/* it is another one's */
	check_refused(-EPROTO, lost);
	thread.interp = (uintptr_t)&interps[1];
	check_refused(-EPROTO, lost);
	runtime.head = 0;
	check_refused(-EPROTO, lost);
	runtime.head = 8;		/* not mapped */
	check_refused(-EPROTO, lost);
	runtime.head = UINT64_MAX - 4;
	check_refused(-EPROTO, lost);
	interps[1].next = (uintptr_t)&interps[0];	/* without an end */
	check_refused(-EPROTO, lost);
	interps[1].next = 1ull << 63;
	check_refused(-EPROTO, lost);
	interps[2].threads_main = 0xdead0000dead0000;
	check_refused(-EPROTO, lost);
}

/* What is written, is written there and nowhere else. */
static void test_python__asked(void **state)
{
	struct fake_thread want;
	struct pep768_python p;
	char why[96];

	(void)state;
	fill();
	assert_int_equal(find(&p, why), 0);
	thread.eval_breaker = 0x123456789a10;	/* upper bytes: a version; the collector is asked for */
	want = thread;
	strcpy(want.path, a_path);
	want.pending = 1;
	want.eval_breaker = 0x123456789a3e;
	assert_int_equal(pep768_python__ask(&p, a_path), 0);
	assert_memory_equal(&thread, &want, sizeof(want));

	/* taken: it is not to be taken back, and nothing but the path is removed */
	thread.pending = 0;
	assert_int_equal(pep768_python__take_back(&p), 0);
	assert_string_equal(thread.path, a_path);
	pep768_python__forget_path(&p);
	for (size_t i = 0; i < sizeof(thread.path); i++)
		assert_int_equal(thread.path[i], 0);

	/* A thread that is asked for the GIL, and does not see who asks, waits for ever. */
	thread.eval_breaker = 1;
	assert_int_equal(pep768_python__ask(&p, a_path), 0);
	assert_int_equal(thread.eval_breaker, 0x2e);

	/* not taken */
	assert_int_equal(pep768_python__ask(&p, a_path), 0);
	assert_int_equal(pep768_python__take_back(&p), 1);
	assert_int_equal(thread.pending, 0);
	assert_string_equal(thread.path, "");
	close(p.mem);
}

static void test_python__others(void **state)
{
	struct fake_thread want;
	struct pep768_python p;
	char why[96], long_path[600];

	(void)state;
	fill();
	assert_int_equal(find(&p, why), 0);
	thread.pending = 1;
	strcpy(thread.path, "/tmp/theirs.py");
	want = thread;
	assert_int_equal(pep768_python__ask(&p, a_path), -EBUSY);
	pep768_python__forget_path(&p);
	assert_memory_equal(&thread, &want, sizeof(want));
	/* ours, of somebody who was killed */
	strcpy(thread.path, "/dev/shm/.tokenlag-00000000000000000000000000000000/script");
	assert_int_equal(pep768_python__ask(&p, a_path), 0);
	assert_int_equal(thread.pending, 1);
	assert_string_equal(thread.path, a_path);
	/* no room for it */
	fill();
	memset(long_path, 'x', sizeof(long_path));
	long_path[512] = 0;
	want = thread;
	assert_int_equal(pep768_python__ask(&p, long_path), -ENAMETOOLONG);
	assert_memory_equal(&thread, &want, sizeof(want));
	/* its memory has gone */
	p.thread = 4096;
	assert_int_equal(pep768_python__ask(&p, a_path), -EFAULT);
	assert_int_equal(pep768_python__take_back(&p), -EFAULT);
	pep768_python__forget_path(&p);
	close(p.mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_python__found),
		cmocka_unit_test(test_python__refused),
		cmocka_unit_test(test_python__asked),
		cmocka_unit_test(test_python__others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
