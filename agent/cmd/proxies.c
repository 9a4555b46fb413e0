/* SPDX-License-Identifier: Apache-2.0 */
/* Who is connected to an engine and listens itself stands before it. */
#include "cmd/proxies.h"

#include "base/map.h"
#include "cmd/log.h"
#include "source/peers.h"
#include "source/proc.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_KNOWN = 4096,	/* processes that were looked at */
	MAX_NOTED = 256,
	MAX_LOOKS = 16,		/* in one poll: clients that come and go are many */
	FORGET_NS = 1000000000,	/* a process that listened to nothing yet may do so later */
};

struct known {
	uint64_t start_ns;	/* tells a process from a later one of that number */
	uint64_t looked_ns;
	bool is_proxy;
};

struct proxies {
	struct proxies_opts opts;
	struct map *known;	/* tgid -> struct known */
	uint32_t noted[MAX_NOTED];
	size_t n_noted, n_proxies;
	uint64_t now_ns;
};

struct proxies *proxies__new(const struct proxies_opts *opts)
{
	struct proxies *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->opts = *opts;
	p->known = map__new(sizeof(struct known), MAX_KNOWN);
	if (!p->known) {
		free(p);
		return NULL;
	}
	return p;
}

void proxies__free(struct proxies *p)
{
	if (!p)
		return;
	map__free(p->known);
	free(p);
}

static struct known *remember(struct proxies *p, uint32_t tgid)
{
	uint64_t oldest;

	if (!map__get(p->known, tgid) && map__is_full(p->known) && map__oldest(p->known, &oldest))
		map__del(p->known, oldest);
	return map__put(p->known, tgid, NULL);
}

static int follow(struct proxies *p, const struct proc_facts *f)
{
	const struct host_process hp = { .tgid = f->pid, .server = f->pid, .role = "proxy",
					 .title = f->cmdline ? f->cmdline : "" };
	int err = pipeline__add_proxy(p->opts.pipe, f->pid, f->comm);

	if (err == -E2BIG) {
		log_warn("more than enough proxies are followed: not pid %u (%s)", f->pid, f->comm);
		return 0;
	}
	err = err ? err : src_bpf__add_target(p->opts.bpf, f->pid);
	if (err)
		return err;
	err = host__add(p->opts.host, &hp);
	p->n_proxies++;
	return err == -E2BIG ? 0 : err;
}

/* 1: it is a proxy and was none yet. */
static int look_at(struct proxies *p, uint32_t tgid)
{
	struct known *k = map__get(p->known, tgid);
	struct proc_facts f;
	bool fresh, serves;
	int err;

	if (p->opts.is_target(p->opts.ctx, tgid) || (k && p->now_ns - k->looked_ns < FORGET_NS))
		return 0;
	err = proc_read_facts(tgid, &f);
	if (err && err != -EACCES)
		return err == -ENOMEM ? err : 0;
	fresh = !k || k->start_ns != f.start_ns || !k->is_proxy;
	serves = f.n_ports > 0;
	k = remember(p, tgid);
	err = k ? 0 : -ENOMEM;
	if (k)
		*k = (struct known){ f.start_ns, p->now_ns, serves };
	if (!err && serves && fresh)
		err = follow(p, &f);
	if (!err && serves && fresh)
		log_info("pid %u (%s) is followed as a proxy", f.pid, f.comm);
	proc_facts__free(&f);
	return err == -ESRCH ? 0 : err ? err : serves && fresh;
}

/* What the user learns: once for all workers. */
static void announce(uint32_t tgid, int n)
{
	struct proc_facts f;

	if (proc_read_facts(tgid, &f))
		return;
	log_warn("%s (pid %u%s) stands before an engine of this host and is followed, too; --no-proxies leaves it out",
		 f.comm, tgid, n > 1 ? " and its workers" : "");
	proc_facts__free(&f);
}

/* A worker is one of several: the next request may go to another. */
static int look_at_workers(struct proxies *p, uint32_t tgid)
{
	uint32_t *pids = NULL;
	int n, found = 1, err = look_at(p, tgid);

	if (err <= 0)
		return err;
	n = peers_siblings(tgid, &pids);
	err = n < 0 ? n : 0;
	for (int i = 0; i < n && err >= 0; i++) {
		err = look_at(p, pids[i]);
		found += err == 1;
	}
	free(pids);
	announce(tgid, found);
	return err < 0 ? err : 0;
}

int proxies__look(struct proxies *p, const uint16_t *ports, size_t n_ports)
{
	uint32_t *pids = NULL;
	int n = n_ports ? peers_of_ports(ports, n_ports, &pids) : 0, err = n < 0 ? n : 0;

	for (int i = 0; i < n && !err; i++)
		err = look_at_workers(p, pids[i]);
	free(pids);
	return err;
}

void proxies__note(struct proxies *p, uint32_t tgid)
{
	for (size_t i = 0; i < p->n_noted; i++)
		if (p->noted[i] == tgid)
			return;
	if (p->n_noted < MAX_NOTED)
		p->noted[p->n_noted++] = tgid;
}

int proxies__poll(struct proxies *p, uint64_t now_ns)
{
	size_t n = p->n_noted < MAX_LOOKS ? p->n_noted : MAX_LOOKS;
	int err = 0;

	p->now_ns = now_ns;
	for (size_t i = 0; i < n && !err; i++)
		err = look_at_workers(p, p->noted[i]);
	p->n_noted -= n;
	memmove(p->noted, p->noted + n, p->n_noted * sizeof(p->noted[0]));
	return err;
}

size_t proxies__n(const struct proxies *p)
{
	return p->n_proxies;
}
