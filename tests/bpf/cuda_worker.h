/* SPDX-License-Identifier: Apache-2.0 */
/* Test programs that probe the libcuda of a child of their own. */
#ifndef TL_TEST_CUDA_WORKER_H
#define TL_TEST_CUDA_WORKER_H

#include "capture.h"
#include "cuda.h"

#include "base/util.h"
#include "source/bpf_uprobe.h"
#include "source/cuda.h"

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
	const void *code;		/* a function that is probed, in the child's memory */
	int stage;			/* where the child is */
} *diary;				/* shared with children */

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* ---- both ways to attach ---- */

static bool one_by_one;			/* as on kernels without multi-uprobe links */

static inline int all_at_once(void **state)
{
	(void)state;
	one_by_one = !bpf_uprobe_has_multi();
	return 0;
}

static inline int one_at_a_time(void **state)
{
	(void)state;
	one_by_one = true;
	return 0;
}

static inline int run_both_ways(const struct CMUnitTest *tests, size_t n)
{
	struct CMUnitTest *all = calloc(2 * n, sizeof(*all));
	char (*names)[96] = calloc(n, sizeof(*names));
	bool is_one_way = !bpf_uprobe_has_multi();

	if (!all || !names)
		return 1;
	for (size_t i = 0; i < n; i++) {
		all[i] = all[n + i] = tests[i];
		snprintf(names[i], sizeof(names[i]), "%s, one by one", tests[i].name);
		all[n + i].name = names[i];
		all[i].setup_func = all_at_once;
		all[n + i].setup_func = one_at_a_time;
	}
	return _cmocka_run_group_tests("tests", all, is_one_way ? n : 2 * n, NULL, NULL);
}

static inline struct cuda *open_cuda(struct capture *c, const struct cuda_opts *opts)
{
	struct cuda_opts how = *opts;
	struct cuda *cuda = NULL;
	const char *why;
	int err;

	how.one_by_one = one_by_one;
	err = cuda__open(c->bpf, &how, &cuda, &why);

	if (err)
		fail_msg("cuda__open: %d, %s", err, why);
	return cuda;
}

/* ---- a process that has a libcuda: it loads it, then it waits to be told to work ---- */

struct worker {
	int (*work)(void);
	scenario load;			/* NULL: as usual */
	const char *library;		/* of build/sim, or an absolute path */
	struct child child;
	int ready[2], go[2];		/* pipes */
};

static inline int do_work_loaded(struct worker *w)
{
	char c = 0;

	diary->code = cu.graph_launch;
	if (write(w->ready[1], &c, 1) != 1 || read(w->go[0], &c, 1) != 1)
		return 91;
	return w->work();
}

static inline int do_work(void *arg)
{
	struct worker *w = arg;

	return cuda_load(cuda_path(w->library)) ? 90 : do_work_loaded(w);
}

static inline void start(struct worker *w, int (*work)(void))
{
	w->work = work;
	w->library = w->library ? w->library : "libcuda.so.1";
	assert_int_equal(pipe(w->ready), 0);
	assert_int_equal(pipe(w->go), 0);
	w->child = child_start(w->load ? w->load : do_work, w);
	close(w->ready[1]);
	close(w->go[0]);
}

static inline void let_load(struct worker *w)
{
	char c;

	child_go(&w->child);
	if (read(w->ready[0], &c, 1) != 1)
		fail_msg("the child could not load %s: %d", cuda_path(w->library), child_end(&w->child) >> 8);
	close(w->ready[0]);
}

static inline void let_work(struct worker *w)
{
	assert_int_equal(write(w->go[1], "g", 1), 1);
	close(w->go[1]);
}

static inline void end(struct worker *w)
{
	int status = child_end(&w->child);

	if (status)
		fail_msg("the child ended with %d (%d)", status, status >> 8);
}

static inline void assert_add(struct cuda *cuda, const struct worker *w)
{
	char why[160];
	int n = cuda__add(cuda, w->child.pid, why);

	if (n < 10)
		fail_msg("cuda__add: %d, %s", n, why);
}

static inline void finish(struct capture *c, struct cuda *cuda)
{
	cuda__close(cuda);
	capture_close(c);
}

static inline const struct tl_gpu_launch *next_launch(struct capture *c, size_t *at)
{
	const struct tl_gpu_launch *e = capture_next(c, TL_GPU_LAUNCH, at);

	if (e) {
		assert_int_equal(e->hdr.size, sizeof(*e));
		assert_int_equal(e->corr, 0);
		assert_int_equal(e->pad, 0);
	}
	return e;
}

/* ---- work ---- */

enum { ROUNDS = 50 };
static inline int some_launches(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		cu.graph_launch(NULL, NULL);
		cu.ctx_sync();
	}
	return 0;
}

#endif
