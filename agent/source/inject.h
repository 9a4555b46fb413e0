/* SPDX-License-Identifier: Apache-2.0 */
/* Brings libtokenlag.so into a running process that was not started for it. */
#ifndef TL_SOURCE_INJECT_H
#define TL_SOURCE_INJECT_H

#include <stdint.h>
#include <sys/types.h>

/*
 * A thread of the target that waits in a harmless system call is stopped, sent through a few
 * hundred bytes of code, and from there goes back into its call by itself: whatever becomes of us,
 * the target goes on. The code lies in the unused end of a page of the target's libc for as long as
 * it runs; the library comes in a memfd.
 */
struct inject_opts {
	const char *library;	/* NULL: libtokenlag.so beside this
				 * program, or in ../lib/tokenlag */
	/* Writes the head of a new ring into memfd, before the library sees it; 0 or -errno. Called
	 * again, with another memfd, if the library turns out to be busy. */
	int (*prepare)(void *ctx, int memfd);
	/* Called several times a second while a thread is looked for, which can
	 * take seconds; may be NULL. */
	void (*tick)(void *tick_ctx);
	void *ctx, *tick_ctx;
};
struct inject_result {
	int memfd;		/* of the ring, the caller's; -1: none */
	uint32_t n_stops;	/* how often a thread was stopped */
	uint64_t stopped_ns;	/* for how long all in all, what it did
				 * for us included: an upper bound */
	uint64_t longest_ns;	/* of these times */
	char why[160];		/* one sentence, if it failed */
};

/* Returns 0 or -errno, with *ret filled in both cases. -ENOTSUP, -EPERM, -EBUSY, -EAGAIN with
 * n_stops 0: refused, and nothing was done to the target. */
int inject(pid_t pid, const struct inject_opts *opts, struct inject_result *ret);

/* Would it be refused? Looks only. 0, or -errno; `why` gets one sentence if it is, or may be. */
int inject_check(pid_t pid, const char *library, char why[160]);

#endif
