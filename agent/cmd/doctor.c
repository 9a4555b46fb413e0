/* SPDX-License-Identifier: Apache-2.0 */
/* `tokenlag doctor`: what this kernel, this user and this engine allow. */
#include "base/plural.h"
#include "base/str.h"
#include "base/util.h"
#include "base/vec.h"
#include "cmd/cmd.h"
#include "cmd/doctor.h"
#include "cmd/log.h"
#include "cmd/vllm_server.h"
#include "cmd/vllm_wires.h"
#include "source/discover.h"
#include "source/probe_check.h"
#include "source/probes.h"
#include "source/proc.h"

#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct argp_option options[] = {
	{ "pid", 'p', "PID", 0,
	  "Ask about this process (default: the host, and every engine on it)", 0 },
	{ "json", 'j', NULL, 0, "Print JSON", 0 },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct doctor *d = state->input;
	uint64_t pid;

	switch (key) {
	case 'p':
		if (str_parse_u64(arg, &pid) || !pid || pid > INT32_MAX)
			argp_error(state, "'%s' is no pid", arg);
		else
			d->pid = pid;
		return 0;
	case 'j':
		d->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s': name a process with -p PID", arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* ---- asking ---- */

static void say_probe(void *ctx, const char *probe, int err, const char *reason)
{
	struct outcome *outcomes = ctx;

	for (size_t i = 0; i < n_probes && i < DOCTOR_MAX_PROBES; i++) {
		if (strcmp(probes[i].name, probe))
			continue;
		outcomes[i].asked = true;
		outcomes[i].err = err;
		str_copy_clean(outcomes[i].reason, sizeof(outcomes[i].reason), reason,
			       strlen(reason));
		return;
	}
}

/* T0 needs every required row. */
static bool has_t0(const struct outcome *o)
{
	for (size_t i = 0; i < n_probes && i < DOCTOR_MAX_PROBES; i++) {
		if (probes[i].required && !probes[i].engine && (!o[i].asked || o[i].err))
			return false;
	}
	return true;
}

/* Can the steps be seen, by a row of this group (NULL: any) that computes one? */
static bool has_steps(const struct outcome *o, const char *group)
{
	for (size_t i = 0; i < n_probes && i < DOCTOR_MAX_PROBES; i++) {
		if (probes[i].tier == TL_T1 && o[i].asked && !o[i].err &&
		    recognise_is_step(probes[i].target) &&
		    (!group || !strcmp(probes[i].group, group)))
			return true;
	}
	return false;
}

static bool is_step_group(const char *group)
{
	for (size_t i = 0; i < n_probes; i++) {
		if (probes[i].group && !strcmp(probes[i].group, group) &&
		    recognise_is_step(probes[i].target))
			return true;
	}
	return false;
}

bool doctor_not_needed(const struct doctor *d, size_t i)
{
	const char *group = probes[i].group;

	return d->outcomes[i].err && group && is_step_group(group) &&
	       !has_steps(d->outcomes, group) && has_steps(d->outcomes, NULL);
}

/* Why T1 is missing: what the first step function that failed says. */
static const char *t1_reason(const struct outcome *o)
{
	for (size_t i = 0; i < n_probes && i < DOCTOR_MAX_PROBES; i++) {
		if (probes[i].tier == TL_T1 && o[i].asked && o[i].err &&
		    recognise_is_step(probes[i].target))
			return o[i].reason;
	}
	return "no probe applies";
}

static bool wants_t1(const struct found *f)
{
	return recognise_tiers(&f->facts, &f->id) & TL_T1;
}

/* ---- the verdict ---- */

static const char *t0_reason(const struct doctor *d)
{
	const char *why = doctor_blocker(&d->user);

	if (!why)
		why = doctor_blocker(&d->kernel);
	for (size_t i = 0; !why && i < n_probes && i < DOCTOR_MAX_PROBES; i++) {
		if (probes[i].required && d->outcomes[i].err)
			why = d->outcomes[i].reason;
	}
	return why ? why : strerror(d->check_err ? -d->check_err : EINVAL);
}

__attribute__((format(printf, 2, 3)))
static void verdict(struct doctor *d, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(d->verdict, sizeof(d->verdict), fmt, ap);
	va_end(ap);
}

static void judge_none(struct doctor *d)
{
	if (doctor_blocker(&d->user) && geteuid())
		verdict(d, "No capture: this user has no rights to it: run as root, or with "
			   "CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; list, "
			   "and reports of recordings, work without.");
	else
		verdict(d, "No capture: %.260s; reports of recordings work all the same.",
			t0_reason(d));
}

static void judge_host(struct doctor *d)
{
	size_t n = d->found.n_servers;

	if (!n)
		verdict(d, "T0 available: requests and tokens on the sockets of any server; no "
			   "engine runs here now, so T1 (engine steps) could not be tried.");
	else
		verdict(d, "%s available: requests and tokens on the sockets of any server, and "
			   "the steps of %zu of %zu engine%s found.",
			d->t1 ? "T0+T1" : "T0", d->n_steps, n, plural_s(n));
}

/* A process that is no engine: there may still be HTTP to see. */
static void judge_stranger(struct doctor *d, const char *comm)
{
	const struct found *f = &d->target;

	if (f->refused)
		verdict(d, "T0 available for pid %u (%s), but its files and sockets could not be "
			   "read%s: no engine by what is known of it.",
			f->facts.pid, comm, geteuid() ? " (run as root)" : "");
	else if (f->facts.n_ports)
		verdict(d, "T0 available for pid %u (%s), which is no engine that tokenlag knows: "
			   "HTTP on its sockets is seen, engine steps are not.",
			f->facts.pid, comm);
	else
		verdict(d, "T0 available for pid %u (%s), but it is no engine that tokenlag knows "
			   "and listens on no TCP port: there is nothing to see.",
			f->facts.pid, comm);
}

/* Why the steps of an engine cannot be seen. */
static const char *no_steps(const struct doctor *d, char *buf, size_t size)
{
	const struct found *f = &d->target;

	if (f->id.engine == TL_ENGINE_LLAMA && wants_t1(f))
		return t1_reason(d->outcomes);
	if (d->server.n)	/* "steps" is the first */
		return d->server.v[0].text;
	if (f->id.engine != TL_ENGINE_LLAMA)
		snprintf(buf, size, "the steps of %s are not known to this version",
			 engine_kind_name(f->id.engine));
	else if (f->facts.n_symbols)
		snprintf(buf, size,
			 "this build of llama.cpp (%s) has neither llama_process nor llama_decode",
			 *f->id.version ? f->id.version : "version unknown");
	else if (f->refused)
		snprintf(buf, size, "its files could not be read%s",
			 geteuid() ? ": run as root" : "");
	else
		snprintf(buf, size,
			 "it was stripped of its llama_* symbols, so its steps cannot be seen");
	return buf;
}

static void judge_target(struct doctor *d)
{
	const struct found *f = &d->target;
	char comm[16], who[96], why[200];

	str_copy_clean(comm, sizeof(comm), f->facts.comm, strlen(f->facts.comm));
	snprintf(who, sizeof(who), "pid %u (%s %s)", f->facts.pid, engine_kind_name(f->id.engine),
		 f->id.role);
	if (f->id.engine == TL_ENGINE_UNKNOWN)
		judge_stranger(d, comm);
	else if (d->wire_engine && d->tls)
		verdict(d, "T0 available for %s: engine steps on the wire (ZMQ) to pid %u; requests and tokens are "
			   "encrypted (TLS) and not read.",
			who, d->wire_engine);
	else if (d->wire_engine == f->facts.pid)
		verdict(d, "T0 available for %s, and enough: its steps on the wire (ZMQ) to pid %u, "
			   "requests and tokens on the sockets of that server.",
			who, f->server);
	else if (d->wire_engine)
		verdict(d, "T0 available for %s, and enough: requests and tokens on the sockets of "
			   "its server, engine steps on the wire (ZMQ) to pid %u.",
			who, d->wire_engine);
	else if (d->server.n)
		verdict(d, "T0 available for %s, its steps not: %s; requests and tokens on its "
			   "sockets are seen.",
			who, no_steps(d, why, sizeof(why)));
	else if (!d->t1)
		verdict(d, "T0 available for %s, T1 not: %s; requests and tokens on its sockets "
			   "are seen.",
			who, no_steps(d, why, sizeof(why)));
	else if (f->facts.n_ports)
		verdict(d, "T0+T1 available for %s: requests and tokens on its sockets, and its "
			   "steps.", who);
	else
		verdict(d, "T0+T1 available for %s: its steps; it has no listening socket, so no "
			   "requests.", who);
}

/* ---- collecting ---- */

/* Its steps are seen between its processes, if they are. */
static int ask_vllm(struct doctor *d)
{
	struct vllm_server s;
	int err = discover(&d->found);

	err = err ? err : vllm_wires_join(&d->found);
	if (!err && discovery__server_of(&d->found, d->pid))
		d->target.server = discovery__server_of(&d->found, d->pid);
	if (err || !vllm_server_look(&d->found, d->target.server, &s))
		return err;
	d->wire_engine = s.engine;
	d->tls = s.options.tls;
	return vllm_server_checks(&s, &d->server);
}

static int ask_target(struct doctor *d)
{
	uint16_t engine = d->target.id.engine;
	int err = engine == TL_ENGINE_VLLM ? ask_vllm(d) : 0;
	pid_t probed = d->wire_engine ? (pid_t)d->wire_engine : d->pid;

	if (err)
		return err;
	d->check_err = probe_check(engine ? probed : 0, engine, say_probe, d->outcomes);
	d->t0 = d->check_err >= 0 && has_t0(d->outcomes);
	d->t1 = d->t0 && wants_t1(&d->target) && has_steps(d->outcomes, NULL);
	return 0;
}

static int ask_host(struct doctor *d)
{
	int err = discover(&d->found);
	struct vllm_server s;
	uint32_t last = 0;

	err = err ? err : vllm_wires_join(&d->found);
	if (err)
		return err;
	d->engine_t1 = calloc(d->found.n + 1, sizeof(*d->engine_t1));
	if (!d->engine_t1)
		return -ENOMEM;
	d->check_err = probe_check(0, 0, say_probe, d->outcomes);
	d->t0 = d->check_err >= 0 && has_t0(d->outcomes);
	for (size_t i = 0; d->t0 && i < d->found.n; i++) {
		struct outcome o[DOCTOR_MAX_PROBES] = { 0 };
		const struct found *f = &d->found.found[i];

		if (f->server == f->facts.pid && vllm_server_look(&d->found, f->server, &s))
			d->n_steps += s.engine != 0;
		if (!wants_t1(f) || probe_check(f->facts.pid, f->id.engine, say_probe, o) < 0)
			continue;
		d->engine_t1[i] = has_steps(o, NULL);
		d->t1 |= d->engine_t1[i];
		if (d->engine_t1[i] && f->server != last) {
			d->n_steps++;
			last = f->server;
		}
	}
	return 0;
}

static int examine(struct doctor *d)
{
	int err = doctor_kernel(&d->kernel);
	bool allowed;

	if (!err)
		err = doctor_user(&d->user);
	allowed = !err && !doctor_blocker(&d->user) && !doctor_blocker(&d->kernel);
	if (!err && d->pid)
		err = doctor_gpu(d->pid, allowed, &d->gpu);
	if (!err && d->pid)
		err = ask_target(d);
	else if (!err)
		err = ask_host(d);
	if (err)
		return err;
	if (!allowed)
		d->t0 = d->t1 = false;
	if (!d->t0)
		judge_none(d);
	else if (d->pid)
		judge_target(d);
	else
		judge_host(d);
	return 0;
}

/* Finds the process that was asked about, or says why there is nothing to ask. */
static int find_target(struct doctor *d)
{
	pid_t process;
	int err = discover_one(d->pid, &d->target);

	if (!err && !d->target.facts.kernel_thread)
		return 0;
	process = proc_of_thread(d->pid);
	if (!err)
		log_error("doctor: pid %d is a kernel thread, no server", d->pid);
	else if (err == -ESRCH && process && process != d->pid)
		log_error("doctor: %d is a thread of process %d: ask with -p %d", d->pid, process,
			  process);
	else if (err == -ESRCH)
		log_error(
			"doctor: there is no process %d: `tokenlag list` shows the engines of this "
			"host",
			d->pid);
	else
		log_error("doctor: cannot read process %d: %s", d->pid, strerror(-err));
	return err ? err : -ESRCH;
}

int cmd_doctor(int argc, char **argv)
{
	static const struct argp_child children[] = { { &log_argp, 0, "Messages:", -1 }, { 0 } };
	static const struct argp argp = {
		options,
		parse,
		NULL,
		"Say what this kernel, this user and an engine allow: one line per probe with what "
		"is lost "
		"without it. The exit status is 0 if requests can be captured at all (T0), else 1.\v"
		"Example: tokenlag doctor -p 4242",
		children,
		NULL,
		NULL,
	};
	struct doctor d = { 0 };
	int err;

	argp_parse(&argp, argc, argv, 0, NULL, &d);
	if (d.pid && find_target(&d))
		return CMD_FAILED;
	err = examine(&d);
	if (err)
		log_error("doctor: cannot look at this host: %s", strerror(-err));
	else
		err = doctor_print(&d);
	proc_facts__free(&d.target.facts);
	discovery__free(&d.found);
	free(d.engine_t1);
	vec_free(&d.server);
	vec_free(&d.gpu);
	vec_free(&d.kernel);
	vec_free(&d.user);
	return err || !d.t0 ? CMD_FAILED : CMD_OK;
}
