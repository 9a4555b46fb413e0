/* SPDX-License-Identifier: Apache-2.0 */
/* How a process numbers the devices that NVML lists, whose neighbour is whose, and a library that is not there or does
 * not answer. tests/sim/t_nvml sees the rest. */
#include "unit.h"

#include "../bpf/cuda.h"
#include "../sim/machine.h"
#include "oom.h"
#include "source/nvml_abi.h"
#include "source/nvml_view.h"
#include "tl_event.h"
#include <errno.h>
#include <time.h>
#include <unistd.h>

enum { ENOUGH = 3000 };		/* looks, 10 ms apart */
#define ALL UINT64_MAX

/* By bus: 2, 0, 1, 3. */
static struct nvml_device four[4] = {
	{ .uuid = "GPU-aa00", .name = "H", .bus = 0x20, .max_mhz = 1980 },
	{ .uuid = "GPU-aa11", .name = "H", .bus = 0x30, .max_mhz = 1980 },
	{ .uuid = "GPU-bb22", .name = "H", .bus = 0x10, .max_mhz = 1980 },
	{ .uuid = "GPU-cc33", .name = "H", .bus = 0x01, .domain = 1, .max_mhz = 1980 },
};

static const struct view_case {
	const char *list;
	uint64_t reachable;
	const char *want;	/* NVML's indices, in their order */
	bool mig;
} cases[] = {
	{ NULL, ALL, "2013", false },
	{ NULL, 0x9, "03", false },		/* in a container */
	{ "0,1,2,3", ALL, "2013", false },
	{ "3,0", ALL, "32", false },
	{ "1", 0xc, "3", false },		/* of those that it can open */
	{ "", ALL, "", false },
	{ "-1", ALL, "", false },
	{ "NoDevFiles", ALL, "", false },
	{ "1,-1,2", ALL, "0", false },		/* ends there */
	{ "1,4,2", ALL, "0", false },
	{ "1,99999999999999999999", ALL, "0", false },
	{ "1,1", ALL, "", false },		/* then there is none at all */
	{ " 2 , 1", ALL, "10", false },
	{ "GPU-cc33,GPU-bb", ALL, "32", false },
	{ "GPU-aa", ALL, "", false },		/* two begin so */
	{ "GPU-aa1,0", ALL, "12", false },
	{ "GPU-dd", ALL, "", false },
	{ "GPU-bb22,0", ALL, "", false },	/* the same one */
	{ "MIG-aa", ALL, "", true },
	{ "0,MIG-GPU-aa/1/0", ALL, "2", true },
	{ "0,,1", ALL, "2", false },
	{ "0,1,2,3,0", ALL, "", false },
};

static void test_view__cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvml_view v;

		nvml_view_make(four, 4, cases[i].reachable, cases[i].list, NULL, &v);
		if (v.n != strlen(cases[i].want) || v.mig != cases[i].mig || v.guessed)
			fail_msg("'%s': %u devices, mig %d", cases[i].list, v.n, v.mig);
		for (uint32_t k = 0; k < v.n; k++) {
			assert_int_equal(v.device[k], cases[i].want[k] - '0');
			assert_int_equal(nvml_view_number(&v, v.device[k]), k);
		}
		if (v.n < 4)
			assert_int_equal(nvml_view_number(&v, 5), -1);
	}
}

/* CUDA puts the fastest first, which nobody but CUDA can tell. */
static void test_view__devices_that_differ(void **state)
{
	static const struct { const char *list, *order; bool guessed; } rows[] = {
		{ NULL, NULL, true }, { NULL, "PCI_BUS_ID", false }, { NULL, "FASTEST_FIRST", true },
		{ "0", NULL, true }, { "0", "PCI_BUS_ID", false }, { "GPU-aa00,GPU-bb22", NULL, false },
		{ "GPU-aa00,0", NULL, true }, { "", NULL, false },
	};
	struct nvml_device d[4];
	struct nvml_view v;

	(void)state;
	memcpy(d, four, sizeof(d));
	strcpy(d[1].name, "L");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		nvml_view_make(d, 4, ALL, rows[i].list, rows[i].order, &v);
		if (v.guessed != rows[i].guessed)
			fail_msg("row %zu", i);
	}
	nvml_view_make(d, 4, 0x2, NULL, NULL, &v);	/* one is no choice */
	assert_int_equal(v.n, 1);
	assert_false(v.guessed);
}

static void test_view__of_a_process(void **state)
{
	struct nvml_view v;

	(void)state;
	assert_int_equal(nvml_view_of(0x7ffffffe, four, 4, &v), -ENOENT);
	oom_after(0);
	assert_int_equal(nvml_view_of(getpid(), four, 4, &v), -ENOMEM);
	assert_true(oom_hit());
	assert_int_equal(nvml_view_of(getpid(), four, 4, &v), 0);
}

static void test_why(void **state)
{
	(void)state;
	assert_int_equal(nvml_why(0), 0);
	assert_int_equal(nvml_why(NVML_WHY_IDLE | 0x2 | 0x10 | 0x100 | NVML_WHY_SLOWDOWN), 0);
	assert_int_equal(nvml_why(NVML_WHY_POWER_CAP), TL_GPU_POWER);
	assert_int_equal(nvml_why(NVML_WHY_SLOWDOWN | NVML_WHY_POWER_BRAKE), TL_GPU_POWER);
	assert_int_equal(nvml_why(NVML_WHY_HEAT), TL_GPU_THERMAL);
	assert_int_equal(nvml_why(NVML_WHY_HEAT_HW | NVML_WHY_POWER_CAP), TL_GPU_THERMAL | TL_GPU_POWER);
}

static bool is_ten(void *ctx, uint32_t pid)
{
	(void)ctx;
	return pid == 10;
}

static void test_neighbour(void **state)
{
	struct nvml_look l = { .n_processes = 1, .processes = { { 10, 9, 90 }, { 11, 8, -1 }, { 12, 1, 3 }, { 13, 7, -1 } } };

	(void)state;
	assert_null(nvml_neighbour(&l, is_ten, NULL));
	l.n_processes = 2;
	assert_int_equal(nvml_neighbour(&l, is_ten, NULL)->pid, 11);
	l.n_processes = 4;
	assert_int_equal(nvml_neighbour(&l, is_ten, NULL)->pid, 12);	/* what it does counts more than what it holds */
	l.processes[2].sm_pct = -1;
	assert_int_equal(nvml_neighbour(&l, is_ten, NULL)->pid, 11);
}

/* ---- the library ---- */

static void test_nvml__absent(void **state)
{
	struct nvml *n = NULL;
	char why[160];

	(void)state;
	assert_int_equal(nvml__open("/nonexistent/libnvidia-ml.so.1", &n, why), -ENOENT);
	assert_string_equal(why, "there is no NVML here (/nonexistent/libnvidia-ml.so.1)");
	assert_int_equal(nvml__open(cuda_path("libcuda.so.1"), &n, why), -ENOSYS);	/* not that library */
	assert_non_null(strstr(why, "has no nvmlInit_v2"));
	assert_null(n);
	nvml__close(NULL);
}

static enum nvml_state wait_for(struct nvml *n, enum nvml_state not, uint64_t later_ns, char why[160])
{
	struct timespec t;
	enum nvml_state s = not;

	for (int i = 0; i < ENOUGH && s == not; i++) {
		usleep(10000);
		clock_gettime(CLOCK_MONOTONIC, &t);
		s = nvml__state(n, t.tv_sec * 1000000000ull + t.tv_nsec + later_ns, why);
	}
	return s;
}

static struct nvml *open_simulated(void)
{
	struct nvml *n;
	char why[160];
	int err = nvml__open(cuda_path("libnvidia-ml.so.1"), &n, why);

	if (err)
		fail_msg("%s: make sim", why);
	assert_true(nvml__is_simulated(n));
	return n;
}

static void test_nvml__looks(void **state)
{
	const struct nvml_device *d;
	struct nvml *n = open_simulated();
	struct nvml_look l;
	struct nvml_cost c;
	uint64_t before = 0;
	uint32_t n_looks = 0;
	char why[160];

	(void)state;
	assert_int_equal(wait_for(n, NVML_STARTING, 0, why), NVML_READY);
	assert_int_equal(nvml__devices(n, &d), 8);
	assert_string_equal(nvml__driver(n), "580.0 (simulated)");
	assert_string_equal(d[1].uuid, "GPU-000000a1-0000-0000-0000-000000000000");
	assert_int_equal(d[1].bus, 0x11);
	assert_int_equal(d[1].max_mhz, 1980);
	assert_false(nvml__take(n, &l));	/* nothing was asked for */
	nvml__watch(n, 1 << 3, false);
	for (int i = 0; i < ENOUGH && n_looks < 2; i++) {
		usleep(10000);
		if (!nvml__take(n, &l))
			continue;
		assert_int_equal(l.device, 3);
		assert_int_equal(l.mhz, 1980);
		assert_int_equal(l.free_bytes, 40ull << 30);
		assert_true(l.deep && l.since_ns <= l.at_ns && l.at_ns > before);
		before = l.at_ns;
		n_looks++;
	}
	assert_int_equal(n_looks, 2);
	nvml__watch(n, 0, true);
	for (int i = 0; i < ENOUGH && n_looks < 10; i++) {
		usleep(10000);
		while (nvml__take(n, &l))
			n_looks += !l.deep;
	}
	assert_true(n_looks >= 9);	/* of 8 devices; the third may have been looked at meanwhile */
	nvml__cost(n, &c);
	assert_true(c.n_calls > 30 && c.longest_ns <= c.calls_ns);
	assert_int_equal(c.n_failed, 0);
	nvml__close(n);
}

/* An hour has passed, as the watchdog is told, and the call has not returned. */
static void test_nvml__hangs(void **state)
{
	char path[] = "/tmp/tl-machine-XXXXXX", why[160];
	struct sim_machine m = { .hang = 1 };
	int fd = mkstemp(path);
	struct nvml *n;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, &m, sizeof(m)), sizeof(m));
	setenv("TL_SIM_MACHINE", path, 1);
	n = open_simulated();
	assert_int_equal(wait_for(n, NVML_STARTING, 3600000000000, why), NVML_STOPPED);
	assert_non_null(strstr(why, "has not returned for 3600 s: NVML is left alone from now on"));
	m.hang = 0;	/* it returns after all, and must find that nobody wants it any more */
	assert_int_equal(pwrite(fd, &m, sizeof(m), 0), sizeof(m));
	nvml__close(n);
	unsetenv("TL_SIM_MACHINE");
	unlink(path);
	close(fd);
}

static void test_nvml__without_memory(void **state)
{
	struct nvml *n = NULL;
	char why[160];
	int err = 0;

	(void)state;
	oom_after(0);
	err = nvml__open("/nonexistent/x.so", &n, why);
	assert_true(oom_hit());
	assert_int_equal(err, -ENOMEM);
	assert_null(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_view__cases),
		cmocka_unit_test(test_view__devices_that_differ),
		cmocka_unit_test(test_view__of_a_process),
		cmocka_unit_test(test_why),
		cmocka_unit_test(test_neighbour),
		cmocka_unit_test(test_nvml__absent),
		cmocka_unit_test(test_nvml__looks),
		cmocka_unit_test(test_nvml__hangs),
		cmocka_unit_test(test_nvml__without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
