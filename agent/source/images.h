/* SPDX-License-Identifier: Apache-2.0 */
/* Which file, and which known function, the code at an address of a process belongs to. */
#ifndef TL_SOURCE_IMAGES_H
#define TL_SOURCE_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct image_files;		/* the files looked at, shared by processes */
struct image_files *image_files__new(void);	/* NULL: out of memory */
void image_files__free(struct image_files *f);

struct images;			/* of one process: what it has mapped executable */
struct images *images__new(pid_t pid, struct image_files *files);	/* NULL: out of memory */
void images__free(struct images *m);	/* NULL is fine */

struct image_place {
	const char *file;	/* its name, without folders; lives until the next call */
	int code;		/* as code_of_library or, where a
				 * function is known, code_of_symbol */
	const char *function;	/* one of code_symbols, else NULL */
};
/* Reads the process's maps anew, if the address is in none and they are
 * older than a second. -ENOENT. */
int images__find(struct images *m, uint64_t addr, uint64_t now_ns, struct image_place *ret);
bool images__has(const struct images *m, uint64_t addr);	/* is it in a map? Reads nothing */

/* Is there a call right before this address? 1, 0, or -1: not noted. Code
 * of files stays as it is. */
int images__call(const struct images *m, uint64_t addr);
void images__note_call(struct images *m, uint64_t addr, bool is_call);

/* Where the file of that name (a part of it) is mapped, with a path that can
 * be opened; for pyframes.c. */
struct proc_map;
int images__map_of(struct images *m, const char *part, uint64_t now_ns, struct proc_map *ret);

#endif
