/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor looks at, and how it holds what it saw. */
#ifndef TL_CMD_DOCTOR_H
#define TL_CMD_DOCTOR_H

#include "source/discover.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum check_state {
	CHECK_OK = 0,
	CHECK_INFO = 1,		/* a fact: neither good nor bad */
	CHECK_WARN = 2,		/* something is lost */
	CHECK_BAD = 3,		/* no capture at all */
};

struct check {
	const char *name;	/* static */
	uint8_t state;		/* enum check_state */
	char text[200];		/* why, and what to do or what is lost */
};
struct check_list {		/* as VEC(struct check) */
	struct check *v;
	size_t n, cap;
};

/* What became of one row of probes[]. */
struct outcome {
	bool asked;
	int err;
	char reason[160];
};
enum { DOCTOR_MAX_PROBES = 64 };	/* bits of tl_host.probes */

struct doctor {
	pid_t pid;		/* 0: the host */
	bool json;
	struct found target;	/* with pid */
	struct discovery found;	/* without; with the pid of a vLLM: what is around it */
	bool *engine_t1;	/* of found.found[i]: can its steps be seen by probes? */
	bool tls;		/* with the pid of a vLLM: what it
				 * says to its clients is encrypted */
	uint32_t wire_engine;	/* with the pid of a vLLM: whose wire
				 * shows its steps, 0: nobody's */
	struct check_list server;	/* with the pid of a vLLM: what that server lets be seen */
	struct check_list gpu;	/* with pid: of those that use CUDA, it and its children */
	struct check_list kernel, user;
	struct outcome outcomes[DOCTOR_MAX_PROBES];
	int check_err;		/* probe_check itself failed */
	bool t0, t1;
	size_t n_steps;		/* without pid: servers of which steps can be seen */
	char verdict[512];
};

/* Is row i missing, but in the place of another that works? Builds of llama.cpp call one of two
 * step functions. */
bool doctor_not_needed(const struct doctor *d, size_t i);
int doctor_print(const struct doctor *d);	/* 0 or -errno */

/* Appends a line; `name` lives on. 0 or -ENOMEM. */
__attribute__((format(printf, 4, 5))) int check_add(struct check_list *list, const char *name,
						     enum check_state state, const char *fmt, ...);
/* This kernel and this user: each appends its lines. -ENOMEM. */
int doctor_kernel(struct check_list *kernel);
int doctor_user(struct check_list *user);
/* A process and its children: what of their GPU work can be seen, if capture
 * is allowed at all. -errno. */
int doctor_gpu(pid_t pid, bool allowed, struct check_list *gpu);
/* The first thing that makes capture impossible here: its text, NULL if nothing does. */
const char *doctor_blocker(const struct check_list *list);

#endif
