/* SPDX-License-Identifier: Apache-2.0 */
/* Probes on libcuda where memory is short, and where they are put; tests/bpf/cuda.c sees what they capture. */
#include "unit.h"

#include "../bpf/cuda.h"
#include "source/cuda_priv.h"
#include "tl_event.h"
#include <errno.h>
#include <fcntl.h>

static void test_library__by_name(void **state)
{
	static const struct {
		const char *path;
		bool want;
	} cases[] = {
		{ "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", true },
		{ "/usr/local/cuda/compat/libcuda.so.1", true },
		{ "/run/nvidia/driver/libcuda.so.570.1 (deleted)", true },
		{ "libcuda.so", true },
		{ "/usr/lib/libcudart.so.13", false },
		{ "/usr/lib/libcudadebugger.so.1", false },
		{ "/libcuda.so/other", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(cuda_is_library(cases[i].path), cases[i].want);
}

static int open_simulated(const char *name)
{
	int fd = open(cuda_path(name), O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fail_msg("no %s beside the tests: make sim", name);
	return fd;
}

/* Calls that a cookie of a group may be of. */
static bool fits(int group, uint64_t cookie)
{
	switch (cookie >> CUDA_CALL_SHIFT & 0xff) {
	case TL_CALL_KERNEL: return group == CUDA_KERNELS;
	case TL_CALL_GRAPH: return group == CUDA_LAUNCHES;
	case TL_CALL_COPY: return group == CUDA_LAUNCHES || group == CUDA_TIMED;
	case TL_CALL_SYNC: case TL_CALL_ALLOC: case TL_CALL_LOAD: return group == CUDA_TIMED;
	}
	return false;
}

static void test_places__of_a_library(void **state)
{
	static const char *const names[] = { "libcuda.so.1", "endbr/libcuda.so.1" };

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
		struct cuda_places p;
		int fd = open_simulated(names[k]);

		assert_int_equal(cuda_places_find(fd, 17, false, &p), 0);
		assert_int_equal(p.n[CUDA_KERNELS], 6);
		assert_int_equal(p.n[CUDA_LAUNCHES], 4);
		assert_true(p.n[CUDA_TIMED] >= 12);
		for (int g = 0; g < N_CUDA_GROUPS; g++) {
			size_t n_dear = 0;

			for (size_t i = 0; i < p.n[g]; i++) {
				uint64_t cookie = p.at[g][i].cookie;
				uint8_t code[4];

				assert_true(fits(g, cookie));
				assert_int_equal(cookie >> CUDA_SLOT_SHIFT & 0xffff, 17);
				n_dear += cookie >> CUDA_DEAR_SHIFT & 1;
				assert_int_equal(pread(fd, code, 4, p.at[g][i].offset), 4);
				if (!k)		/* built to begin with it, as NVIDIA's do */
					assert_int_equal(code[0], 0x55);
			}
			assert_int_equal(p.n_dear[g], n_dear);
			assert_true(k || !n_dear);
		}
		close(fd);
	}
}

static void test_places__of_other_files(void **state)
{
	struct cuda_places p;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(cuda_places_find(fd, 1, false, &p), -ENOENT);
	assert_true(cuda_places_find(null, 1, false, &p) < 0);
	close(fd);
	close(null);
}

static int as_root(void **state)
{
	(void)state;
	if (geteuid() == 0)
		return 0;
	skip();
	return -1;
}

static void test_open__survives_oom(void **state)
{
	const struct src_bpf_opts opts = { .ring_bytes = 64 << 10 };
	const struct cuda_opts co = { 0 };
	struct src_bpf *bpf;
	struct cuda *c;
	const char *why;
	int err = -1;

	(void)state;
	assert_int_equal(src_bpf__open(&opts, &bpf, &why), 0);
	OOM_LOOP({
		c = NULL;
		why = NULL;
		err = cuda__open(bpf, &co, &c, &why);
		assert_true(err == 0 || (err == -ENOMEM && !c && why));
		cuda__close(c);
	});
	assert_int_equal(err, 0);
	cuda__close(NULL);
	src_bpf__close(bpf);
}

static void add_where_memory_is_short(bool one_by_one)
{
	const struct src_bpf_opts opts = { .ring_bytes = 64 << 10 };
	const struct cuda_opts co = { .one_by_one = one_by_one };
	struct src_bpf *bpf;
	struct cuda *c;
	const char *reason;
	char why[160];
	int n = 0, first;

	assert_int_equal(src_bpf__open(&opts, &bpf, &reason), 0);
	assert_int_equal(cuda__open(bpf, &co, &c, &reason), 0);
	if (!cu.lib) {
		assert_int_equal(cuda__add(c, getpid(), why), -ENOENT);
		assert_int_equal(cuda_load(cuda_path("libcuda.so.1")), 0);
	}
	first = cuda__add(c, getpid(), why);
	assert_true(first > 10);
	OOM_LOOP({
		cuda__del(c, getpid());
		n = cuda__add(c, getpid(), why);
		assert_true(n == first || (n == -ENOMEM && why[0]));
	});
	assert_int_equal(n, first);
	cuda__close(c);
	src_bpf__close(bpf);
}

static void test_add__survives_oom(void **state)
{
	(void)state;
	add_where_memory_is_short(false);
	add_where_memory_is_short(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_library__by_name),
		cmocka_unit_test(test_places__of_a_library),
		cmocka_unit_test(test_places__of_other_files),
		cmocka_unit_test_setup(test_open__survives_oom, as_root),
		cmocka_unit_test_setup(test_add__survives_oom, as_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
