/* SPDX-License-Identifier: Apache-2.0 */
/* Facts, not ports: a connection from an engine to a front end is a wire. */
#include "cmd/vllm_wires.h"

#include "cmd/log.h"
#include "source/probes.h"
#include "source/proc_tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_core(const struct found *f)
{
	return f->id.engine == TL_ENGINE_VLLM && !strncmp(f->id.role, "engine-core", 11);
}

/* Workers talk to engines over TCP, too: that is collectives. */
static bool is_front(const struct found *f)
{
	return f->id.engine == TL_ENGINE_VLLM && !is_core(f) && strncmp(f->id.role, "worker", 6) &&
	       strcmp(f->id.role, "helper");
}

/* Connections between engines and front ends. Not of one server only: another node's may run on
 * this host. Returns how many, or -ENOMEM. */
static int find_wires(const struct discovery *d, struct tcp_between **ret)
{
	uint32_t *pids = calloc(2 * d->n + 1, sizeof(*pids)), *fronts = pids + d->n;
	size_t n_cores = 0, n_fronts = 0;
	int n = 0;

	*ret = NULL;
	if (!pids)
		return -ENOMEM;
	for (size_t i = 0; i < d->n; i++) {
		if (is_core(&d->found[i]))
			pids[n_cores++] = d->found[i].facts.pid;
		else if (is_front(&d->found[i]))
			fronts[n_fronts++] = d->found[i].facts.pid;
	}
	if (n_cores && n_fronts)
		n = proc_tcp_between(pids, n_cores, fronts, n_fronts, ret);
	free(pids);
	return n;
}

int vllm_wires_mark(struct src_bpf *bpf, const struct discovery *d)
{
	struct tcp_between *wires;
	int n = find_wires(d, &wires);

	for (int i = 0; i < n; i++) {
		src_bpf__add_tcp_wire(bpf, wires[i].inode_a);
		src_bpf__add_tcp_wire(bpf, wires[i].inode_b);
	}
	free(wires);
	return n;
}

/* ---- nodes ---- */

/* Does a process of it listen for requests? */
static bool has_listener(const struct discovery *d, uint32_t server)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->found[i].server == server && is_front(&d->found[i]) && d->found[i].facts.n_ports)
			return true;
	return false;
}

int vllm_wires_join(struct discovery *d)
{
	struct tcp_between *wires = NULL;
	bool any = false;
	int n = 0;

	for (size_t i = 0; i < d->n; i++)
		any |= is_core(&d->found[i]) && !has_listener(d, d->found[i].server);
	if (any)
		n = find_wires(d, &wires);
	for (int i = 0; i < n; i++) {
		uint32_t node = discovery__server_of(d, wires[i].pid_a);
		uint32_t server = discovery__server_of(d, wires[i].pid_b);

		if (node != server && !has_listener(d, node) && has_listener(d, server))
			discovery__join(d, node, server);
	}
	free(wires);
	return n < 0 ? n : 0;
}

/* ---- the second way ---- */

/* Why system calls do not do, NULL: they do. */
static const char *why_probes(const struct src_bpf *bpf, const struct found *f)
{
	const char *asked = getenv("TL_WIRE");

	if (src_bpf__is_blind(bpf))
		return "system calls cannot be probed here";
	if (asked && !strcmp(asked, "zmq"))
		return "TL_WIRE=zmq asks for it";
	if (asked && !strcmp(asked, "syscalls"))
		return NULL;
	if (f->facts.uses_io_uring)
		return "it uses an io_uring, which could hide what it sends";
	return NULL;
}

static bool an_engine_runs(void)
{
	struct discovery d;
	bool any = false;

	if (discover(&d))
		return false;
	for (size_t i = 0; i < d.n; i++)
		any |= is_core(&d.found[i]);
	discovery__free(&d);
	return any;
}

int vllm_wires_open(const struct src_bpf_opts *opts, struct src_bpf **ret, const char **ret_why)
{
	struct src_bpf_opts blind = *opts;
	int err = src_bpf__open(opts, ret, ret_why);
	const char *why_not;

	if (!err || err == -EPERM || err == -ENOMEM || err == -EAGAIN || !(opts->tiers & TL_T1) || !an_engine_runs())
		return err;
	blind.blind = true;
	if (src_bpf__open(&blind, ret, &why_not))
		return err;
	log_warn("system calls cannot be probed here, so no requests are seen; steps of vLLM's engines are, by "
		 "probes on libzmq in them: %s", *ret_why);
	return 0;
}

static void on_probe(void *ctx, const char *probe, int err, const char *reason)
{
	uint32_t pid = *(const uint32_t *)ctx;

	log_info("pid %u: %s: %s%s", pid, probe, err ? "" : "ok, ", reason);
}

static int n_rows(void)
{
	int n = 0;

	for (size_t i = 0; i < n_probes; i++)
		n += probes[i].engine == TL_ENGINE_VLLM;
	return n;
}

bool vllm_wires_probe(struct src_bpf *bpf, const struct found *f, const char **ret_why)
{
	uint32_t pid = f->facts.pid;

	*ret_why = is_core(f) ? why_probes(bpf, f) : NULL;
	if (!*ret_why)
		return false;
	if (src_bpf__attach_engine(bpf, pid, TL_ENGINE_VLLM, on_probe, &pid) == n_rows())
		return true;
	src_bpf__detach_engine(bpf, pid);
	*ret_why = src_bpf__is_blind(bpf) ?
		"libzmq cannot be probed in it (-v says why), nor system calls: nothing of it is seen" :
		"libzmq cannot be probed in it (-v says why): its system calls are watched instead";
	return false;
}
