/* SPDX-License-Identifier: Apache-2.0 */
/* Test programs that watch the threads of a child, and what it says of itself. */
#ifndef TL_TEST_WATCH_H
#define TL_TEST_WATCH_H

#include "capture.h"

#include "source/host.h"
#include <stdatomic.h>

enum { MS = 1000000, MAX_NOTES = 36, MAX_HOGS = 24 };

/* What the child says of itself, in shared memory. */
struct note {
	uint64_t before_ns, after_ns;
	uint32_t tid;
};
struct truth {
	struct note notes[MAX_NOTES];
	uint64_t run_delay_ns;
	uint32_t hog_tids[MAX_HOGS];	/* threads that woke another, and when they began */
	uint64_t hog_ns[MAX_HOGS];
	int n_hogs;
	_Atomic uint64_t hog_ran_ns;	/* of the hog beside it, by the clock */
	_Atomic int go, hog_is_first;
	int word;
};

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline uint64_t cpu_time_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static inline void spin_cpu_ms(int ms)
{
	for (uint64_t end = cpu_time_ns() + (uint64_t)ms * MS; cpu_time_ns() < end; )
		;
}

/* ---- capturing ---- */

struct watch {
	struct capture c;	/* bpf is its own; events: those that the host makes */
	struct host *host;
};

static inline int take_all(void *ctx, const struct tl_hdr *ev)
{
	struct watch *w = ctx;
	const struct emit out = { capture_take, &w->c };
	int err = host__take(w->host, ev, &out);

	return err < 0 ? err : 0;
}

static inline struct watch *watch_open(void)
{
	static const struct src_bpf_opts opts = { .ring_bytes = RING };
	struct watch *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->c.bpf = capture_load(&opts);
	assert_int_equal(host__open(w->c.bpf, &w->host), 0);
	return w;
}

static inline void watch_poll(struct watch *w)
{
	const struct emit tap = { take_all, w }, out = { capture_take, &w->c };

	while (src_bpf__poll(w->c.bpf, &tap, 0) > 0)
		;
	assert_int_equal(host__poll(w->host, now_ns(), &out), 0);
}

/* Captures a child whose main thread counts as the engine's. */
static inline struct watch *watch_child(scenario fn, void *arg, pid_t *ret_pid, const char *role)
{
	struct watch *w = watch_open();
	struct child child = child_start(fn, arg);
	const struct emit out = { capture_take, &w->c };
	int status;

	assert_int_equal(host__add(w->host, &(struct host_process){
		.tgid = child.pid, .server = child.pid, .engine = TL_ENGINE_VLLM, .role = role, .title = "" }), 0);
	watch_poll(w);		/* its main thread gets its role */
	child_go(&child);
	while (waitpid(child.pid, &status, WNOHANG) == 0) {
		watch_poll(w);
		usleep(20000);
	}
	if (status)
		fail_msg("the child ended with %d (%d)", status, status >> 8);
	watch_poll(w);
	assert_int_equal(host__end(w->host, now_ns(), &out), 0);
	*ret_pid = child.pid;
	return w;
}

static inline void watch_close(struct watch *w)
{
	host__close(w->host);
	src_bpf__close(w->c.bpf);
	capture_forget(&w->c);
	free(w);
}

static inline const struct tl_thread_span *next_span(const struct watch *w, size_t *at, uint32_t tid, uint16_t state)
{
	const struct tl_thread_span *s;

	while ((s = capture_next(&w->c, TL_THREAD_SPAN, at)))
		if (s->hdr.tid == tid && s->state == state)
			return s;
	return NULL;
}

static inline uint64_t length(const struct tl_thread_span *s)
{
	return s->hdr.ts_ns - s->since_ns;
}

static inline struct truth *new_truth(void)
{
	struct truth *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(t != MAP_FAILED);
	return t;
}

#endif
