/* SPDX-License-Identifier: Apache-2.0 */
/* What a vLLM server lets be seen: T0 is enough for its steps, if they cross a wire. */
#include "cmd/vllm_server.h"

#include "base/plural.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

static bool has_role(const struct found *f, const char *role)
{
	return f->id.engine == TL_ENGINE_VLLM && !strcmp(f->id.role, role);
}

bool vllm_server_look(const struct discovery *d, uint32_t server, struct vllm_server *ret)
{
	struct vllm_server s = { .server = server };
	bool found = false;

	for (size_t i = 0; i < d->n; i++) {
		const struct found *f = &d->found[i];

		if (f->server != server || f->id.engine != TL_ENGINE_VLLM)
			continue;
		if (f->facts.pid == server) {
			found = true;
			s.step_tokens = recognise_max_step_tokens(&f->facts);
			recognise_vllm_options(&f->facts, &s.options);
		}
		s.n_api += has_role(f, "api");
		s.rust |= has_role(f, "front");
		s.n_engines += has_role(f, "engine-core");
		s.uring |= has_role(f, "engine-core") && f->facts.uses_io_uring;
		if (has_role(f, "engine-core") && !s.engine)
			s.engine = f->facts.pid;
	}
	if (found)
		*ret = s;
	return found;
}

/* ---- what it allows ---- */

static int check_steps(const struct vllm_server *s, struct check_list *list)
{
	if (s->n_engines == 1)
		return check_add(list, "steps", CHECK_OK,
				 "on the wire (ZMQ) to its engine, pid %u: T0 is enough",
				 s->engine);
	if (s->n_engines)
		return check_add(
			list, "steps", CHECK_OK,
			"on the wires (ZMQ) to its %zu engines, pid %u and others: T0 is enough",
			s->n_engines, s->engine);
	return check_add(list, "steps", CHECK_WARN,
			 "no engine process here: it runs inside this one "
			 "(VLLM_ENABLE_V1_MULTIPROCESSING=0) or on another host, or is not up yet; "
			 "lost: steps, queue, prefill");
}

static int check_requests(const struct vllm_server *s, struct check_list *list)
{
	if (s->options.tls)
		return check_add(list, "requests", CHECK_WARN,
				 "encrypted (--ssl-keyfile): not read; lost: requests and tokens on its sockets, and "
				 "whose the steps are");
	if (s->options.uds)
		return check_add(list, "requests", CHECK_OK, "on a unix socket (--uds)");
	return 0;
}

/* How, in the words of doctor's table of probes. */
static int check_wire(const struct vllm_server *s, struct check_list *list)
{
	if (!s->uring)
		return 0;
	return check_add(list, "io_uring", CHECK_INFO,
			 "its engine has one, so its wire is seen by probes on libzmq, not by system calls");
}

static int check_other_hosts(const struct vllm_server *s, struct check_list *list)
{
	const struct vllm_options *o = &s->options;
	uint32_t there;

	if (o->headless)
		return check_add(
			list, "other hosts", CHECK_WARN,
			"--headless: its API server is on another host; lost here: requests "
			"and tokens on sockets, its steps belong to no request");
	if (!o->engines_here || o->engines <= o->engines_here || o->engines <= s->n_engines)
		return 0;
	there = o->engines - (s->n_engines > o->engines_here ? (uint32_t)s->n_engines : o->engines_here);
	return check_add(list, "other hosts", CHECK_WARN,
			 "%u of its %u engines run%s there (--data-parallel-size-local); lost: %s steps, and the engine's "
			 "side of the requests %s", there, o->engines, plural(there, "s", ""), plural(there, "its", "their"),
			 plural(there, "it gets", "they get"));
}

static int check_scheduler(const struct vllm_server *s, struct check_list *list)
{
	if (s->options.no_stats)
		return check_add(
			list, "scheduler", CHECK_WARN,
			"--disable-log-stats; lost: queue length, KV use, counts of preemptions, "
			"accepted drafts, the engine's own queued time");
	return check_add(list, "scheduler", CHECK_OK,
			 "says queue, KV use, prefix hits and preemptions with each step");
}

static int check_budget(const struct vllm_server *s, struct check_list *list)
{
	if (s->step_tokens)
		return check_add(list, "tokens per step", CHECK_OK,
				 "at most %u (--max-num-batched-tokens)", s->step_tokens);
	return check_add(list, "tokens per step", CHECK_WARN,
			 "no --max-num-batched-tokens on its command line; lost: a bound of the "
			 "chunks of long prompts, so these are inferred (\"p?\")");
}

static int check_front(const struct vllm_server *s, struct check_list *list)
{
	/* With several, `vllm serve` itself is none of them. */
	size_t n = s->options.api_servers ? s->options.api_servers
		   : s->n_api > 1	  ? s->n_api - 1
					  : 1;
	int err = 0;

	if (n > 1)
		err = check_add(list, "API servers", CHECK_INFO,
				"%zu: each gets its share of a step's output; the shares are put "
				"together by their time stamp",
				n);
	if (!err && s->rust)
		err = check_add(list, "front end", CHECK_INFO,
				"vllm-rs: read like the one in Python; tried with 0.32");
	if (!err && s->options.config_file)
		err = check_add(
			list, "--config", CHECK_INFO,
			"flags in that file are not seen here, and may change what is said");
	return err;
}

int vllm_server_checks(const struct vllm_server *s, struct check_list *ret)
{
	int err = check_steps(s, ret);

	if (!err)
		err = check_requests(s, ret);
	if (!err)
		err = check_wire(s, ret);
	if (!err)
		err = check_other_hosts(s, ret);
	if (!err && s->n_engines)
		err = check_scheduler(s, ret);
	if (!err && s->n_engines)
		err = check_budget(s, ret);
	return err ? err : check_front(s, ret);
}

void vllm_step_source(const struct discovery *d, const struct found *f, char *ret, size_t size)
{
	struct vllm_server s;

	if (has_role(f, "engine-core"))
		str_copy(ret, size, "wire (ZMQ)");
	else if (has_role(f, "worker") || has_role(f, "coordinator") || has_role(f, "helper"))
		str_copy(ret, size, "-");
	else if (!vllm_server_look(d, f->server, &s) || !s.n_engines)
		str_copy(ret, size, "none");
	else if (s.n_engines == 1)
		snprintf(ret, size, "see pid %u", s.engine);
	else
		snprintf(ret, size, "see engine-core, %zu processes", s.n_engines);
}
