/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a process in another pid namespace: the numbers that it uses
 * itself, and those of ours. */
#ifndef TL_SOURCE_GPU_TIDS_H
#define TL_SOURCE_GPU_TIDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gpu_tids {
	pid_t pid;
	bool same; /* its namespace is ours */
	struct gpu_tid {
		uint32_t inside, ours;
	} * v;
	size_t n, max;
	uint64_t look_ns; /* when they were read */
};

void gpu_tids__init(struct gpu_tids *t, pid_t pid);
void gpu_tids__free(struct gpu_tids *t);

/* Our number of a thread that calls itself `inside`; 0: not known, it may have ended. */
uint32_t gpu_tids__ours(struct gpu_tids *t, uint32_t inside, uint64_t now_ns);

/* What a thread is called in its own namespace; 0: it has ended. */
uint32_t gpu_tids_inside(pid_t pid, uint32_t tid);
/* The last number in the NSpid line of a status file; 0: there is none. For tests, too. */
uint32_t gpu_tids_last(const char *status);

#endif
