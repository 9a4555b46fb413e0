/* SPDX-License-Identifier: Apache-2.0 */
/* Where a thread of another process is in Python, read from outside: CPython 3.11 to 3.13. */
#ifndef TL_SOURCE_PYFRAMES_H
#define TL_SOURCE_PYFRAMES_H

#include "source/images.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct pyframes;	/* of one process */

/* -ENOENT: it has no Python that we can read; -ENOMEM. */
int pyframes__new(pid_t pid, struct images *images, uint64_t now_ns, struct pyframes **ret);
void pyframes__free(struct pyframes *p);	/* NULL is fine */

struct pyframe {
	char file[96];		/* the end of its path, if it is longer */
	char function[64];	/* with its class, as Python qualifies it */
};
/* Reads up to `max` frames of a thread, innermost first, and whether the garbage collector is at
 * work. The process runs on meanwhile: what is read may be damaged, and then it is left out.
 * Returns their number, or -ENOENT: not a thread of Python's; -errno. */
int pyframes__read(struct pyframes *p, pid_t tid, struct pyframe *ret, size_t max, bool *ret_gc);

#endif
