/* SPDX-License-Identifier: Apache-2.0 */
/* The BPF source where memory is short, and without rights; tests/bpf sees whether it captures. */
#include "unit.h"

#include "source/bpf.h"
#include "source/probe_check.h"
#include "source/probes.h"
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

static const struct src_bpf_opts opts = { .ring_bytes = 64 << 10 };

/* A function to probe. */
int llama_process(void *ctx, int type, void *batch);

__attribute__((noipa)) int llama_process(void *ctx, int type, void *batch)
{
	(void)ctx, (void)batch;
	return type;
}

static void say_nothing(void *ctx, const char *probe, int err, const char *reason)
{
	(void)ctx, (void)probe, (void)err, (void)reason;
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
	struct src_bpf *s;
	const char *why;
	int err;

	(void)state;
	OOM_LOOP({
		s = NULL;
		why = NULL;
		err = src_bpf__open(&opts, &s, &why);
		assert_non_null(why);
		if (err) {
			assert_int_equal(err, -ENOMEM);
			assert_null(s);
		}
		src_bpf__close(s);
	});
	assert_int_equal(err, 0);
	src_bpf__close(NULL);
}

static void test_attach_engine__survives_oom(void **state)
{
	struct src_bpf *s;
	const char *why;
	int n;

	(void)state;
	assert_int_equal(src_bpf__open(&opts, &s, &why), 0);
	OOM_LOOP({
		n = src_bpf__attach_engine(s, getpid(), TL_ENGINE_LLAMA, say_nothing, NULL);
		assert_true(n == 2 || n == 1 || n == 0 || n == -ENOMEM);
	});
	assert_int_equal(n, 2);
	assert_int_equal(llama_process(NULL, 7, NULL), 7);
	src_bpf__del_target(s, getpid());
	src_bpf__close(s);
}

static void test_sizes__are_checked(void **state)
{
	const struct src_bpf_opts odd = { .ring_bytes = 5000 };
	const struct src_bpf_opts huge = { .head_bytes = UINT32_MAX, .tail_bytes = UINT32_MAX, .ring_bytes = 4096 };
	struct src_bpf *s = NULL;
	const char *why;

	(void)state;
	assert_int_equal(src_bpf__open(&huge, &s, &why), 0);	/* cut to what a record can hold */
	src_bpf__close(s);
	s = NULL;
	if (src_bpf__open(&odd, &s, &why) == 0)			/* libbpf rounds it up */
		src_bpf__close(s);
}

struct refusals {
	size_t n;
	char why[256];
};

static void note(void *ctx, const char *probe, int err, const char *reason)
{
	struct refusals *r = ctx;

	assert_non_null(probe);
	r->n += err != 0;
	snprintf(r->why, sizeof(r->why), "%s", reason);
}

/* Runs in a child: rights that are given up do not come back. */
static void without_rights(void)
{
	struct refusals r = { 0 };
	struct src_bpf *s = NULL;
	const char *why = NULL;
	size_t n_system = 0;

	for (size_t i = 0; i < n_probes; i++)
		n_system += !probes[i].engine;
	if (geteuid() == 0 && setuid(65534))
		return;
	if (src_bpf__open(&opts, &s, &why) != -EPERM || s || !strstr(why, "CAP_BPF"))
		return;
	if (probe_check(0, 0, note, &r) != -EPERM || r.n != n_system || !strstr(r.why, "root"))
		return;
	abort();	/* all as it should be */
}

static void test_open__without_rights_says_so(void **state)
{
	(void)state;
	assert_true(unit_aborts(without_rights));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_open__survives_oom, as_root),
		cmocka_unit_test_setup(test_attach_engine__survives_oom, as_root),
		cmocka_unit_test_setup(test_sizes__are_checked, as_root),
		cmocka_unit_test(test_open__without_rights_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
