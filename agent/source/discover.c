/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the engines of a host and joins the processes of one server. */
#include "source/discover.h"

#include "base/map.h"
#include "base/vec.h"
#include "source/proc.h"

#include <errno.h>
#include <string.h>

enum {
	MAX_PROCESSES = 4 << 20,	/* the kernel's own limit of pids */
	MAX_ANCESTORS = 64,
	MAX_PAST = 65536,
};
/* A server that starts has shown what it is by then; one that loads an engine later
 * is looked at now and then. */
static const uint64_t old_ns = 300000000000, past_age_ns = 60000000000;

/* A process that is no engine. */
struct past {
	uint64_t looked_ns;
	uint64_t start_ns;		/* tells it from a later one of its number ... */
	char comm[16];			/* ... and by this shows another program */
	bool seen;			/* in the look under way */
};
struct discover_past {
	struct map *by_pid;
	struct proc_scan *scan;		/* what was read of files since ... */
	uint64_t scan_ns;		/* ... then */
};

struct parent {
	uint32_t pid, ppid;
};

struct search {
	struct discovery *d;
	struct proc_scan *scan;
	struct discover_past *past;	/* NULL: look into all */
	uint64_t now_ns;
	VEC(struct parent) parents;
	VEC(struct found) found;
};

static int add_parent(struct search *s, const struct proc_facts *f)
{
	struct parent *parent = vec_push(&s->parents, MAX_PROCESSES);

	if (!parent)
		return -ENOMEM;
	*parent = (struct parent){ f->pid, f->ppid };
	return 0;
}

/* ---- what earlier looks found to be nothing ---- */

struct discover_past *discover_past__new(void)
{
	struct discover_past *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->by_pid = map__new(sizeof(struct past), MAX_PAST);
	if (!p->by_pid) {
		free(p);
		return NULL;
	}
	return p;
}

void discover_past__free(struct discover_past *p)
{
	if (!p)
		return;
	map__free(p->by_pid);
	proc_scan__free(p->scan);
	free(p);
}

/* To be given back, or freed. NULL: out of memory. */
static struct proc_scan *take_scan(struct discover_past *p, uint64_t now_ns)
{
	struct proc_scan *scan = p ? p->scan : NULL;

	if (p)
		p->scan = NULL;
	if (scan && now_ns - p->scan_ns <= past_age_ns) {
		proc_scan__again(scan);
		return scan;
	}
	proc_scan__free(scan);
	if (p)
		p->scan_ns = now_ns;
	return proc_scan__new();
}

static void give_scan(struct discover_past *p, struct proc_scan *scan)
{
	if (p)
		p->scan = scan;
	else
		proc_scan__free(scan);
}

/* 1: it is as it was, 0: look into it, or -ENOMEM. */
static int is_past(struct search *s, pid_t pid)
{
	struct past *p = s->past ? map__get(s->past->by_pid, (uint64_t)pid) : NULL;
	struct proc_facts f = { 0 };
	int err;

	if (!p || s->now_ns - p->looked_ns > past_age_ns || proc_glance(pid, &f) ||
	    f.start_ns != p->start_ns || strcmp(f.comm, p->comm) != 0)
		return 0;
	p->seen = true;
	if (f.kernel_thread)
		return 1;
	s->d->n_processes++;
	s->d->n_skipped++;
	err = add_parent(s, &f);
	return err ? err : 1;
}

/* If there is no room, it is looked into again. */
static void remember(struct search *s, const struct found *f)
{
	struct past *p;

	if (!s->past || f->refused ||
	    (!f->facts.kernel_thread && s->now_ns - f->facts.start_ns < old_ns))
		return;
	p = map__put(s->past->by_pid, f->facts.pid, NULL);
	if (!p)
		return;
	*p = (struct past){ .looked_ns = s->now_ns, .start_ns = f->facts.start_ns, .seen = true };
	memcpy(p->comm, f->facts.comm, sizeof(p->comm));
}

static bool is_gone(void *ctx, uint64_t pid, void *value)
{
	struct past *p = value;
	bool gone = !p->seen;

	(void)ctx, (void)pid;
	p->seen = false;
	return gone;
}

/* ---- a look ---- */

static int look_at(void *ctx, pid_t pid)
{
	struct search *s = ctx;
	struct found f = { 0 };
	struct found *at;
	int err = is_past(s, pid);

	if (err)
		return err < 0 ? err : 0;
	err = proc_scan__read(s->scan, pid, &f.facts);
	if (err == -ENOMEM)
		return err;
	if (err && err != -EACCES)
		return 0;	/* it ended meanwhile */
	f.refused = err == -EACCES;
	if (f.facts.kernel_thread) {
		remember(s, &f);
		proc_facts__free(&f.facts);
		return 0;
	}
	s->d->n_processes++;
	if (f.refused) {
		s->d->n_refused++;
		s->d->refused_pid = pid;
	}
	err = add_parent(s, &f.facts);
	if (err || !recognise(&f.facts, &f.id)) {
		remember(s, &f);
		proc_facts__free(&f.facts);
		return err;
	}
	at = vec_push(&s->found, MAX_PROCESSES);
	if (!at) {
		proc_facts__free(&f.facts);
		return -ENOMEM;
	}
	*at = f;
	return 0;
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
	return discover_again(NULL, 0, ret);
}

int discover_again(struct discover_past *past, uint64_t now_ns, struct discovery *ret)
{
	struct discovery d = { 0 };
	struct search s = { .d = &d, .scan = take_scan(past, now_ns), .past = past, .now_ns = now_ns };
	int err;

	err = s.scan ? proc_each(look_at, &s) : -ENOMEM;
	give_scan(past, s.scan);
	if (!err && past)
		map__sweep(past->by_pid, is_gone, NULL);
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
