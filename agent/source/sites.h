/* SPDX-License-Identifier: Apache-2.0 */
/* Where user-space probes go: functions of the files that one process maps. */
#ifndef TL_SOURCE_SITES_H
#define TL_SOURCE_SITES_H

#include "source/insn_x86_64.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct site {
	size_t row;		/* of probes[] */
	int fd;			/* of the file; shared by sites, owned by struct sites */
	uint64_t offset;	/* in the file, of the instruction to probe */
	struct probe_place place;
	char file[64];		/* its name, for messages */
};

struct sites {
	struct site *sites;
	size_t n;
	int *fds;
	size_t n_fds;
	size_t n_files;		/* looked at */
	size_t n_unreadable;
	bool stripped;		/* the executable has no symbols beyond those it exports */
};

/* Finds the functions of each user-space row of an engine (0: of every engine). A row has no site
 * where no file has its symbol, and several where several files do. 0, -ESRCH, -EACCES, -ENOMEM. */
int sites__find(pid_t pid, uint16_t engine, struct sites *ret);
void sites__free(struct sites *s);	/* also of a zeroed struct */

/* Writes what to tell of a row: where it goes and what a hit costs, or why nowhere. Returns
 * how many sites the row has. */
size_t sites__describe(const struct sites *s, size_t row, char *buf, size_t size);

#endif
