/* SPDX-License-Identifier: Apache-2.0 */
/* Seams of the way in by PEP 768: the interpreter that is asked, and the folder by
 * which the script finds us. */
#ifndef TL_SOURCE_PEP768_PRIV_H
#define TL_SOURCE_PEP768_PRIV_H

#include "source/pep768_layout.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- pep768_python.c ---- */

struct pep768_python {		/* addresses are the target's */
	int mem;		/* /proc/PID/mem, the caller's */
	uint64_t thread;	/* PyThreadState of the main thread of the main interpreter */
	struct pep768_layout l;
};
/* -ENOENT: there is none of 3.14 or newer; other -errno: it takes no scripts, `why` says it. */
int pep768_python__find(pid_t pid, int mem, struct pep768_python *ret, char why[96]);
/* Has it run a script. -EBUSY: it is to run another one already. */
int pep768_python__ask(const struct pep768_python *p, const char *path);
/* 1: it has not begun to, and will not; 0: it has; -errno. */
int pep768_python__take_back(const struct pep768_python *p);
void pep768_python__forget_path(const struct pep768_python *p);

/* ---- pep768_hand.c ---- */

#define PEP768_FOLDER "/dev/shm/.tokenlag-"
struct pep768_hand {		/* what we hold out to the script: a folder with it and a socket */
	pid_t pid;
	int shm, folder, listener;
	char name[32 + 12], script[32 + 32];	/* of the folder in /dev/shm; of the
						 * script, as the target sees it */
};
int pep768_hand__check(pid_t pid, char why[96]);	/* could one be made? */
int pep768_hand__open(pid_t pid, struct pep768_hand *ret, char why[96]);
void pep768_hand__close(struct pep768_hand *h);	/* a script that comes behind this does nothing */
/* A connection to the script, -EAGAIN if it does not come within that time. What lies in
 * the folder is gone then. */
int pep768_hand__await(struct pep768_hand *h, int timeout_ms);
/* start: tokenlag_start in the target, or 0: `library` is loaded first. */
int pep768_hand__give(int connection, uint64_t start, int ring, int library);
/* What tokenlag_start returned, and how long it all took; -EAGAIN: not within that time. */
int pep768_hand__result(int connection, int timeout_ms, int *ret, uint64_t *ret_ns);

#endif
