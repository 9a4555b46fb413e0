/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread of a server is for, told from what was seen of it. Pure. */
#ifndef TL_SOURCE_HOST_ROLES_H
#define TL_SOURCE_HOST_ROLES_H

#include "tl_event.h"
#include <stdbool.h>
#include <stdint.h>

struct thread_facts {
	uint16_t engine;	/* enum tl_engine_kind of its process */
	const char *process;	/* the role of its process: "api",
				 * "engine-core", "worker", "server" ... */
	const char *comm;
	bool is_main;		/* of its process */
	bool ran_step;		/* called the engine's step function */
	bool interprets;	/* was seen in code that holds the lock of an interpreter */
	bool spoke_http;	/* read requests, wrote answers, handed tasks to the engine */
	/* CPU time, since the last look or since it began */
	uint64_t cpu_ns;
	uint64_t engine_cpu_ns;	/* of the thread that runs the steps, 0: not known */
	uint64_t wall_ns;
};

uint16_t thread_role(const struct thread_facts *f);	/* enum tl_thread_role */

/* What to ask the kernel of a thread, besides its waits for a CPU: enum watch (bpf/watch.h).
 * `process`: the role of its process. */
uint32_t thread_watch(uint16_t engine, const char *process, uint16_t role);

/* The rank in a title like "VLLM::Worker_TP3", "sglang::scheduler_TP1": -1 if there is none. */
int thread_rank(const char *title);

#endif
