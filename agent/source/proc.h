/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says about processes: candidates for engines, their files and sockets. */
#ifndef TL_SOURCE_PROC_H
#define TL_SOURCE_PROC_H

#include "engine/recognise.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Fills what recognise.h needs to know of one process. Free with proc_facts__free.
 * -ESRCH: no such process; -EACCES: not allowed (only what is readable is filled). */
int proc_read_facts(pid_t pid, struct proc_facts *ret);
void proc_facts__free(struct proc_facts *f);
/* Only pid, ppid, start_ns, comm and kernel_thread: one small file. Nothing is to be freed. */
int proc_glance(pid_t pid, struct proc_facts *ret);

/* Does it run a 32-bit program? Then system calls have other numbers, and
 * its memory other layouts. */
bool proc_is_32bit(pid_t pid);

/* The process that a thread belongs to, 0: there is no such thread. */
pid_t proc_of_thread(pid_t tid);

/* Calls fn for each process of the host until it returns non-zero; returns that. */
int proc_each(int (*fn)(void *ctx, pid_t pid), void *ctx);

/* A look at many processes: reads each file and network namespace once. Keep it for one look only,
 * what it remembers goes stale. */
struct proc_scan;
struct proc_scan *proc_scan__new(void);	/* NULL: out of memory */
void proc_scan__free(struct proc_scan *s);	/* NULL is fine */
/* For another look soon after: what files hold is still known, who listens is asked anew. */
void proc_scan__again(struct proc_scan *s);
/* As proc_read_facts; but descriptors (ports, GPUs, io_uring) and packages are read only of what
 * recognise() takes for an engine by the rest. */
int proc_scan__read(struct proc_scan *s, pid_t pid, struct proc_facts *ret);

/* Opens the file that a mapping of the process came from, whatever its mount namespace and even
 * if it was deleted: /proc/PID/map_files/RANGE, then /proc/PID/root/PATH. Returns an fd or -errno.
 * `path` receives a path that other programs (perf_event_open for uprobes) can open as long as the
 * process lives. */
struct proc_map {
	uint64_t start, end, offset;
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	char path[256];		/* as the process sees it, " (deleted)" included; cut if longer */
};
int proc_open_map(pid_t pid, const struct proc_map *map, char *path, size_t path_size);

/* Calls fn once per distinct file mapped executable. Non-zero from fn stops and is returned.
 * -ESRCH, -EACCES, -ENOMEM. */
int proc_each_exec_map(pid_t pid, int (*fn)(void *ctx, const struct proc_map *map), void *ctx);

/* Opens a path as the process sees it, symbolic links included; flags as for open(). */
int proc_open_in_root(pid_t pid, const char *path, int flags);

#endif
