/* SPDX-License-Identifier: Apache-2.0 */
/* Seams of the injection: what depends on the processor, what looks at
 * the target, what stops it. */
#ifndef TL_SOURCE_INJECT_PRIV_H
#define TL_SOURCE_INJECT_PRIV_H

#include "source/inject.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/user.h>

enum inject_what { INJECT_MEMFDS = 1, INJECT_LOAD = 2, INJECT_CLOSE = 3 };

struct inject_target {		/* addresses are the target's */
	pid_t pid;
	int mem;		/* /proc/PID/mem */
	uint64_t dlopen, dlsym, errno_location;
	uint64_t cave, cave_bytes;	/* unused and executable */
	bool left_behind;		/* our code is there: somebody was killed */
	uint64_t ld_start, ld_end;	/* code of the loader */
	uint64_t start;		/* tokenlag_start of a copy that is there already, 0: none */
	uint32_t n_libraries;	/* copies of ours, this one's or others */
};
enum inject_way { INJECT_BY_PTRACE, INJECT_BY_SCRIPT };	/* a script needs neither a
							 * tracer nor room for code */
/* Looks at everything before anything is touched; `why` gets the reason of a
 * refusal. library: fd of ours. */
int inject_target__open(pid_t pid, int library, enum inject_way way, struct inject_target *ret, char why[160]);
void inject_target__close(struct inject_target *t);
/* What it lacks, if that is known, to whom a call in it, or tokenlag_start, failed like this.
 * Returns err, or a better one. */
int inject_target__explain(const struct inject_target *t, int err, char why[160]);
int inject_open_library(const char *path);	/* NULL: the usual places. A
						 * descriptor, or -errno */
bool inject_has_seccomp(pid_t pid);		/* or nothing is known of it */

/* ---- of the processor ---- */

struct inject_visit {		/* what a thread is sent to do */
	enum inject_what what;
	int library, ring;	/* LOAD, CLOSE: descriptors in the target, -1: none;
				 * LOAD without library: t->start is called */
	uint64_t frame;		/* where the code notes things, on the thread's stack */
	const struct inject_opts *opts;
	char why[96];		/* why a thread may not do it, "" if that is not known */
};
struct inject_call {		/* the system call that a thread is in */
	long nr;
	uint64_t args[6], sp, pc;
};

bool inject_arch__elf(uint16_t machine);	/* can we enter programs of it? */
bool inject_arch__supported(void);		/* has this processor what the code needs? */
size_t inject_arch__code_bytes(void);
bool inject_arch__is_ours(const void *bytes);	/* is it code that we left behind? */
bool inject_arch__is_busy(const struct inject_target *t);	/* does a thread run that code? */
/* Is the thread, which is stopped, in a call that it may be taken out of? */
bool inject_arch__at_call(const struct user_regs_struct *regs, bool entry, struct inject_call *ret);
bool inject_arch__harmless(const struct inject_call *c);
/* Sends it there. The thread is stopped, and goes when it is let go. */
int inject_arch__divert(const struct inject_target *t, pid_t tid, const struct user_regs_struct *regs, bool entry,
			struct inject_visit *v);
/* 1: done, and *ret is what tokenlag_start returned (-ELIBACC: not loaded); 0: not yet. */
int inject_arch__done(const struct inject_target *t, const struct inject_visit *v, int *ret);
/* Before it is let go untouched: some calls would end early for having been stopped. */
void inject_arch__repair(pid_t tid, struct user_regs_struct *regs);

#endif
