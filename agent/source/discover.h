/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of this host: processes that recognise() knows, and which of them form one server. */
#ifndef TL_DISCOVER_H
#define TL_DISCOVER_H

#include "engine/recognise.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct found {
	struct proc_facts facts;
	struct engine_id id;
	uint32_t server; /* pid of the topmost process of its server: its own, or an ancestor's */
	uint32_t ollama;	/* pid of the Ollama that runs it, 0: none does */
	bool refused;		/* part of it could not be read: ports may be missing */
};

struct discovery {
	struct found *found;	/* servers by pid, each followed by its other processes by pid */
	size_t n;
	size_t n_servers;
	size_t n_processes;	/* kernel threads apart */
	size_t n_skipped;	/* of these, not looked into again */
	size_t n_refused;	/* of these, not readable: an engine among them may be missed */
	uint32_t refused_pid;	/* one of them */
};

/* Looks at every process. 0 or -errno. */
int discover(struct discovery *ret);
/* The same again and again: what was no engine, and is too old to become one, is not looked into
 * once more for a minute, unless it runs another program. */
struct discover_past;
struct discover_past *discover_past__new(void);	/* NULL: out of memory */
void discover_past__free(struct discover_past *p);	/* NULL is fine */
int discover_again(struct discover_past *p, uint64_t now_ns, struct discovery *ret);
/* Looks at one process and its ancestors. ret->id.engine is TL_ENGINE_UNKNOWN if it is no engine;
 * the facts are there either way, to be freed with proc_facts__free. -ESRCH: no such process. */
int discover_one(pid_t pid, struct found *ret);
/* The processes of one server turn out to be part of another. Moves them: what
 * pointed into found[] is stale. */
void discovery__join(struct discovery *d, uint32_t part, uint32_t server);
/* The server that a process was found to be of; 0: it is not there. */
uint32_t discovery__server_of(const struct discovery *d, uint32_t pid);
void discovery__free(struct discovery *d);

#endif
