/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the engines of a host and joins the processes of one server. */
#include "source/discover.h"

#include "base/vec.h"
#include "source/proc.h"

#include <errno.h>

enum {
	MAX_PROCESSES = 4 << 20,	/* the kernel's own limit of pids */
	MAX_ANCESTORS = 64,
};

struct parent {
	uint32_t pid, ppid;
};

struct search {
	struct discovery *d;
	struct proc_scan *scan;
	VEC(struct parent) parents;
	VEC(struct found) found;
};

static int look_at(void *ctx, pid_t pid)
{
	struct search *s = ctx;
	struct found f = { 0 };
	struct parent *parent;
	struct found *at;
	int err;

	err = proc_scan__read(s->scan, pid, &f.facts);
	if (err == -ENOMEM)
		return err;
	if (err && err != -EACCES)
		return 0;	/* it ended meanwhile */
	f.refused = err == -EACCES;
	if (f.facts.kernel_thread) {
		proc_facts__free(&f.facts);
		return 0;
	}
	s->d->n_processes++;
	if (f.refused) {
		s->d->n_refused++;
		s->d->refused_pid = pid;
	}
	parent = vec_push(&s->parents, MAX_PROCESSES);
	if (parent)
		*parent = (struct parent){ f.facts.pid, f.facts.ppid };
	if (!recognise(&f.facts, &f.id)) {
		proc_facts__free(&f.facts);
		return parent ? 0 : -ENOMEM;
	}
	at = vec_push(&s->found, MAX_PROCESSES);
	if (!at) {
		proc_facts__free(&f.facts);
		return -ENOMEM;
	}
	*at = f;
	return parent ? 0 : -ENOMEM;
}

static int by_pid(const void *a, const void *b)
{
	const struct parent *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static int by_found_pid(const void *key, const void *f)
{
	uint32_t pid = *(const uint32_t *)key, other = ((const struct found *)f)->facts.pid;

	return pid < other ? -1 : pid > other;
}

static int by_server(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->server != y->server)
		return x->server < y->server ? -1 : 1;
	if ((x->facts.pid == x->server) != (y->facts.pid == y->server))
		return x->facts.pid == x->server ? -1 : 1;
	return x->facts.pid < y->facts.pid ? -1 : x->facts.pid > y->facts.pid;
}

/* One step up: an ancestor that is an engine may be the server that f belongs to. */
static void join(struct found *f, uint16_t *engine, const struct engine_id *ancestor, uint32_t pid)
{
	if (!recognise_same_server(*engine, ancestor->engine))
		return;
	f->server = pid;
	if (ancestor->engine == TL_ENGINE_OLLAMA && f->id.engine == TL_ENGINE_LLAMA)
		f->ollama = pid;
	*engine = ancestor->engine;
}

static void find_server(struct search *s, struct found *f)
{
	struct parent key = { .pid = f->facts.ppid }, *up;
	uint16_t engine = f->id.engine;
	const struct found *ancestor;

	f->server = f->facts.pid;
	for (int i = 0; i < MAX_ANCESTORS && key.pid; i++) {
		ancestor = bsearch(&key.pid, s->found.v, s->found.n, sizeof(*s->found.v),
				   by_found_pid);
		if (ancestor)
			join(f, &engine, &ancestor->id, key.pid);
		up = bsearch(&key, s->parents.v, s->parents.n, sizeof(*s->parents.v), by_pid);
		key.pid = up ? up->ppid : 0;
	}
}

int discover(struct discovery *ret)
{
	struct discovery d = { 0 };
	struct search s = { .d = &d, .scan = proc_scan__new() };
	int err;

	err = s.scan ? proc_each(look_at, &s) : -ENOMEM;
	proc_scan__free(s.scan);
	if (!err && s.found.n) {
		qsort(s.parents.v, s.parents.n, sizeof(*s.parents.v), by_pid);
		for (size_t i = 0; i < s.found.n; i++)
			s.found.v[i].server = s.found.v[i].facts.pid;
		qsort(s.found.v, s.found.n, sizeof(*s.found.v), by_server);	/* so: by pid */
		for (size_t i = 0; i < s.found.n; i++) {
			find_server(&s, &s.found.v[i]);
			d.n_servers += s.found.v[i].server == s.found.v[i].facts.pid;
		}
		qsort(s.found.v, s.found.n, sizeof(*s.found.v), by_server);
	}
	vec_free(&s.parents);
	d.found = s.found.v;
	d.n = s.found.n;
	if (err) {
		discovery__free(&d);
		return err;
	}
	*ret = d;
	return 0;
}

int discover_one(pid_t pid, struct found *ret)
{
	struct proc_scan *scan;
	struct found f = { 0 };
	uint32_t up;
	uint16_t engine;
	int err;

	err = proc_read_facts(pid, &f.facts);
	if (err && err != -EACCES)
		return err;
	f.refused = err == -EACCES;
	f.server = pid;
	scan = recognise(&f.facts, &f.id) ? proc_scan__new() : NULL;
	engine = f.id.engine;
	up = scan ? f.facts.ppid : 0;
	for (int i = 0; i < MAX_ANCESTORS && up; i++) {
		struct proc_facts facts;
		struct engine_id id;

		err = proc_scan__read(scan, up, &facts);
		if (err && err != -EACCES)
			break;
		if (recognise(&facts, &id))
			join(&f, &engine, &id, up);
		up = facts.ppid;
		proc_facts__free(&facts);
	}
	proc_scan__free(scan);
	*ret = f;
	return 0;
}

void discovery__join(struct discovery *d, uint32_t part, uint32_t server)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->found[i].server != part)
			continue;
		d->n_servers -= d->found[i].facts.pid == part;
		d->found[i].server = server;
	}
	qsort(d->found, d->n, sizeof(*d->found), by_server);
}

uint32_t discovery__server_of(const struct discovery *d, uint32_t pid)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->found[i].facts.pid == pid)
			return d->found[i].server;
	return 0;
}

void discovery__free(struct discovery *d)
{
	for (size_t i = 0; i < d->n; i++)
		proc_facts__free(&d->found[i].facts);
	free(d->found);
	*d = (struct discovery){ 0 };
}
