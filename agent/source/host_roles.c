/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread of a server is for, told from what was seen of it. */
#include "source/host_roles.h"

#include "../../bpf/watch.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
	COMPUTES_PCT_OF_ENGINE = 30,	/* as much CPU time as this, and it computes steps, too */
	COMPUTES_PCT_OF_WALL = 5,
};

static bool is_llama(uint16_t engine)
{
	return engine == TL_ENGINE_LLAMA || engine == TL_ENGINE_OLLAMA;
}

/* A front end that is a program of its own, in Rust or Go: any of its threads reads requests,
 * turns tokens into text and writes them. Those in Python have one event loop. */
static bool is_pool(const char *process)
{
	return !strcmp(process, "front");
}

/* The main thread of a process that has one purpose. */
static uint16_t role_of_main(const struct thread_facts *f)
{
	static const struct {
		const char *process;
		uint16_t role;
	} roles[] = {
		{ "api", TL_ROLE_FRONT },	{ "front", TL_ROLE_FRONT },
		{ "engine-core", TL_ROLE_ENGINE }, { "scheduler", TL_ROLE_ENGINE },
		{ "detokenizer", TL_ROLE_DETOKENIZER }, { "worker", TL_ROLE_LAUNCH },
		{ "proxy", TL_ROLE_PROXY },
	};

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (!strcmp(f->process, roles[i].process))
			return roles[i].role;
	return TL_ROLE_OTHER;
}

/* In a process that computes: threads that are as busy as the one that runs the steps. One that the
 * engine waits for because it has the interpreter is none of them. */
static bool computes(const struct thread_facts *f)
{
	if (f->interprets || !f->wall_ns || f->cpu_ns < f->wall_ns / 100 * COMPUTES_PCT_OF_WALL)
		return false;
	if (!strcmp(f->process, "api") || !strcmp(f->process, "front") ||
	    !strcmp(f->process, "detokenizer"))
		return false;
	return f->engine_cpu_ns && f->cpu_ns >= f->engine_cpu_ns / 100 * COMPUTES_PCT_OF_ENGINE;
}

uint16_t thread_role(const struct thread_facts *f)
{
	uint16_t role = f->is_main ? role_of_main(f) : TL_ROLE_OTHER;

	if (f->ran_step)
		return TL_ROLE_ENGINE;
	if (!strncmp(f->comm, "ZMQbg", 5))
		return TL_ROLE_ZMQ;
	if (role != TL_ROLE_OTHER)
		return role;
	if (f->spoke_http && (f->is_main || is_llama(f->engine) || f->engine == TL_ENGINE_UNKNOWN ||
			      is_pool(f->process)))
		return TL_ROLE_FRONT;
	return computes(f) ? TL_ROLE_COMPUTE : TL_ROLE_OTHER;
}

static bool is_python(uint16_t engine)
{
	return engine == TL_ENGINE_VLLM || engine == TL_ENGINE_SGLANG || engine == TL_ENGINE_TRTLLM;
}

#define SLEEP(wait) (1u << TL_WAIT_##wait)

uint32_t thread_watch(uint16_t engine, const char *process, uint16_t role)
{
	/* They sleep in futexes whenever they are idle. */
	if (is_pool(process) && (role == TL_ROLE_FRONT || role == TL_ROLE_OTHER))
		return WATCH_RUN | WATCH_CODE;
	switch (role) {
	case TL_ROLE_ENGINE:
		/* llama.cpp's computes itself: that it runs for long is no news. */
		if (is_llama(engine))
			return SLEEP(FUTEX) | SLEEP(OTHER) | WATCH_CODE;
		return SLEEP(FUTEX) | SLEEP(OTHER) | SLEEP(GPU) | SLEEP(SOCKET) | SLEEP(PIPE) |
		       SLEEP(POLL) | WATCH_RUN | WATCH_CODE;
	case TL_ROLE_FRONT:
		/* One thread per connection, which waits for each token, is no event loop. */
		if (is_llama(engine))
			return WATCH_RUN | WATCH_CODE;
		return SLEEP(FUTEX) | SLEEP(OTHER) | WATCH_RUN | WATCH_CODE;
	case TL_ROLE_DETOKENIZER:
		return SLEEP(FUTEX) | SLEEP(OTHER) | WATCH_RUN | WATCH_CODE;
	case TL_ROLE_LAUNCH:
		return SLEEP(FUTEX) | SLEEP(OTHER) | SLEEP(GPU) | WATCH_CODE;
	case TL_ROLE_OTHER:
		/* In Python it may keep all others of its process waiting. */
		return is_python(engine) ? WATCH_CODE : 0;
	default:
		return 0;
	}
}

int thread_rank(const char *title)
{
	const char *at = strstr(title, "TP");

	return at && isdigit((unsigned char)at[2]) ? atoi(at + 2) : -1;
}
