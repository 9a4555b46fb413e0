/* SPDX-License-Identifier: Apache-2.0 */
/* Test programs that capture a child of their own: what it does is known to the byte. */
#ifndef TL_TEST_CAPTURE_H
#define TL_TEST_CAPTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <cmocka.h>

#include "source/bpf.h"
#include "tl_event.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 256, TAIL = 64, RING = 1 << 20, MAX_CAUGHT = 65536 };

/* What the child does, after it was made a target. Its exit code is what it returns. */
typedef int (*scenario)(void *arg);

struct capture {
	struct src_bpf *bpf;
	bool shared;		/* with other tests: loading takes seconds on an emulated processor */
	struct tl_hdr *events[MAX_CAUGHT];
	size_t n;
	uint64_t n_lost;
};

static inline int capture_take(void *ctx, const struct tl_hdr *ev)
{
	struct capture *c = ctx;

	if (ev->kind == TL_LOST)
		c->n_lost += ((const struct tl_lost *)ev)->n;
	assert_true(c->n < MAX_CAUGHT);
	assert_true(ev->size % 8 == 0 && ev->size >= sizeof(*ev));
	c->events[c->n] = malloc(ev->size);
	assert_non_null(c->events[c->n]);
	memcpy(c->events[c->n++], ev, ev->size);
	return 0;
}

/* Takes all that waits, without waiting for more. */
static inline void capture_drain(struct capture *c)
{
	const struct emit out = { capture_take, c };

	while (src_bpf__poll(c->bpf, &out, 0) > 0)
		;
}

static inline void capture_forget(struct capture *c)
{
	while (c->n)
		free(c->events[--c->n]);
	c->n_lost = 0;
}

static inline struct src_bpf *capture_load(const struct src_bpf_opts *opts)
{
	struct src_bpf *bpf = NULL;
	const char *why;
	int err = src_bpf__open(opts, &bpf, &why);

	if (err)
		fail_msg("src_bpf__open: %d, %s", err, why);
	return bpf;
}

/* NULL: the usual options, and the programs that other tests used. */
static inline struct capture *capture_open(const struct src_bpf_opts *opts)
{
	static const struct src_bpf_opts usual = { .head_bytes = HEAD, .tail_bytes = TAIL, .ring_bytes = RING };
	static struct src_bpf *shared;
	struct capture *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->shared = !opts;
	if (!opts && !shared)
		shared = capture_load(&usual);
	c->bpf = opts ? capture_load(opts) : shared;
	capture_drain(c);	/* late events of an earlier test */
	capture_forget(c);
	return c;
}

static inline void capture_close(struct capture *c)
{
	if (!c->shared)
		src_bpf__close(c->bpf);
	capture_forget(c);
	free(c);
}

/* The next event of a kind at or after *at, which moves behind it; NULL if there is none. */
static inline const void *capture_next(const struct capture *c, uint16_t kind, size_t *at)
{
	while (*at < c->n) {
		const struct tl_hdr *ev = c->events[(*at)++];

		if (ev->kind == kind)
			return ev;
	}
	return NULL;
}

static inline size_t capture_count(const struct capture *c, uint16_t kind)
{
	size_t at = 0, n = 0;

	while (capture_next(c, kind, &at))
		n++;
	return n;
}

/* ---- the child ---- */

/* Waits till a thread is off its CPU and in one of these states of /proc: who is to end a sleep must not come
 * before it, and on a busy host the way there may be long. */
static inline void wait_state(pid_t tid, const char *states)
{
	char path[64], text[512] = "";
	const char *at;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", tid, tid);
	do {
		usleep(1000);
		f = fopen(path, "re");
		if (!f || !fgets(text, sizeof(text), f))
			_exit(92);
		fclose(f);
		at = strrchr(text, ')');	/* behind its name */
	} while (!at || !strchr(states, at[2]));
}

struct child {
	pid_t pid;
	int go;			/* a byte written here lets it run */
};

static inline struct child child_start(scenario fn, void *arg)
{
	struct child c;
	int pipes[2];
	char byte;

	assert_int_equal(pipe(pipes), 0);
	fflush(NULL);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pipes[1]);
		if (read(pipes[0], &byte, 1) != 1)
			_exit(99);
		_exit(fn(arg));
	}
	close(pipes[0]);
	c.go = pipes[1];
	return c;
}

static inline void child_go(struct child *c)
{
	assert_int_equal(write(c->go, "g", 1), 1);
	close(c->go);
}

/* Its exit status, as wait(2) gives it. */
static inline int child_end(struct child *c)
{
	int status = -1;

	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	return status;
}

/* The whole of a plain test: captures one child from its start to its end. */
static inline struct capture *capture_of(scenario fn, void *arg, pid_t *ret_pid)
{
	struct capture *c = capture_open(NULL);
	struct child child = child_start(fn, arg);
	int status;

	assert_int_equal(src_bpf__add_target(c->bpf, child.pid), 0);
	child_go(&child);
	status = child_end(&child);
	if (status)
		fail_msg("the child ended with %d (%d)", status, status >> 8);
	capture_drain(c);
	if (ret_pid)
		*ret_pid = child.pid;
	return c;
}

#endif
