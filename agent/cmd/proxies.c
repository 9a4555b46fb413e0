/* SPDX-License-Identifier: Apache-2.0 */
/* Who is connected to an engine and listens itself stands before it. */
#include "cmd/proxies.h"

#include "base/map.h"
#include "cmd/log.h"
#include "source/peers.h"
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
	uint64_t start;		/* tells a process from a later one of that number */
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

static int follow(struct proxies *p, uint32_t tgid, const char *comm)
{
	const struct host_process hp = { .tgid = tgid, .server = tgid, .role = "proxy", .title = comm };
	int err = pipeline__add_proxy(p->opts.pipe, tgid, comm);

	if (err == -E2BIG) {
		log_warn("more than enough proxies are followed: not pid %u (%s)", tgid, comm);
		return 0;
	}
	err = err ? err : src_bpf__add_target(p->opts.bpf, tgid);
	if (err)
		return err;
	err = host__add(p->opts.host, &hp);
	p->n_proxies++;
	log_info("pid %u (%s) is followed as a proxy", tgid, comm);
	return err == -E2BIG ? 0 : err;
}

/* 1: it is a proxy and was none yet. */
static int look_at(struct proxies *p, uint32_t tgid, struct peer *ret)
{
	struct known *k = map__get(p->known, tgid);
	bool fresh;
	int err;

	if (p->opts.is_target(p->opts.ctx, tgid) || (k && p->now_ns - k->looked_ns < FORGET_NS))
		return 0;
	err = peers_look(tgid, ret);
	if (err)
		return err == -ESRCH ? 0 : err;
	fresh = !k || k->start != ret->start || !k->is_proxy;
	k = remember(p, tgid);
	if (!k)
		return -ENOMEM;
	*k = (struct known){ ret->start, p->now_ns, ret->listens };
	if (!ret->listens || !fresh)
		return 0;
	err = follow(p, tgid, ret->comm);
	return err ? err : 1;
}

/* A worker is one of several: the next request may go to another. */
static int look_at_workers(struct proxies *p, uint32_t tgid)
{
	uint32_t *pids = NULL;
	struct peer first, other;
	int n, found = 1, err = look_at(p, tgid, &first);

	if (err <= 0)
		return err;
	n = peers_siblings(tgid, &pids);
	err = n < 0 ? n : 0;
	for (int i = 0; i < n && err >= 0; i++) {
		err = look_at(p, pids[i], &other);
		found += err == 1;
	}
	free(pids);
	log_warn("%s (pid %u%s) stands before an engine of this host and is followed, too; --no-proxies leaves it out",
		 first.comm, tgid, found > 1 ? " and its workers" : "");
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
