/* SPDX-License-Identifier: Apache-2.0 */
/* Tries every probe for a moment, or finds out why it cannot be tried. */
#include "source/probe_check.h"
#include "source/bpf_priv.h"
#include "source/host.h"
#include "source/probes.h"
#include "source/sites.h"
#include "tl_event.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { RING_BYTES = 64 << 10 };		/* nothing will be in it */

struct check {
	uint16_t engine;
	probe_say say;
	void *ctx;
	int n_ok;
};

static void say(struct check *c, size_t row, int err, const char *reason)
{
	c->say(c->ctx, probes[row].name, err, reason);
	c->n_ok += !err;
}

static const char *why_not(int err, char *buf, size_t size)
{
	switch (err) {
	case -ESRCH:
	case -ENOENT:
		return "this kernel has no such tracepoint, or does not describe it in BTF";
	case -EPERM:
	case -EACCES:
	case -EINVAL:
		snprintf(buf, size, "this kernel refuses the program: %s", strerror(-err));
		return buf;
	default:
		snprintf(buf, size, "%s", strerror(-err));
		return buf;
	}
}

static void check_system(struct check *c, const struct src_bpf *s)
{
	char buf[96];

	for (size_t i = 0; i < n_probes; i++) {
		if (probes[i].engine)
			continue;
		if (s->row_errs[i])
			say(c, i, s->row_errs[i], why_not(s->row_errs[i], buf, sizeof(buf)));
		else
			say(c, i, 0, "loaded, attached, and taken off again");
	}
}

static bool asked(const struct check *c, const struct probe *p)
{
	return p->engine && (!c->engine || p->engine == c->engine);
}

static void check_process(struct check *c, struct src_bpf *s, pid_t pid)
{
	struct sites sites = { 0 };
	char buf[320];
	int load_err, err;

	load_err = bpf_engine_load(s, c->engine);
	err = load_err ? load_err : sites__find(pid, c->engine, &sites);
	for (size_t i = 0; i < n_probes; i++) {
		if (!asked(c, &probes[i]))
			continue;
		if (load_err)
			say(c, i, err, why_not(err, buf, sizeof(buf)));
		else if (err)
			say(c, i, err, err == -ESRCH ? "no such process" :
			    "not allowed to look at what the process maps: run as root");
		else
			say(c, i, sites__describe(&sites, i, buf, sizeof(buf)) ? 0 : -ENOENT, buf);
	}
	sites__free(&sites);
}

int probe_check(pid_t pid, uint16_t engine, probe_say fn, void *ctx)
{
	struct src_bpf_opts opts = { .ring_bytes = RING_BYTES };
	struct check c = { .engine = engine, .say = fn, .ctx = ctx };
	struct src_bpf *s;
	struct host *host;
	const char *why;
	int err;

	err = src_bpf__open(&opts, &s, &why);
	if (err) {
		for (size_t i = 0; i < n_probes; i++) {
			if (!probes[i].engine || (pid && asked(&c, &probes[i])))
				say(&c, i, err, why);
		}
		return err;
	}
	err = host__open(s, &host);
	if (err) {
		src_bpf__close(s);
		return err;
	}
	check_system(&c, s);
	if (pid)
		check_process(&c, s, pid);
	host__close(host);
	src_bpf__close(s);
	return c.n_ok;
}
