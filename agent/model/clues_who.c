/* SPDX-License-Identifier: Apache-2.0 */
/* Who is behind a piece: names of threads, processes, cgroups and requests. */
#include "base/str.h"
#include "model/clues_priv.h"

#include <errno.h>
#include <string.h>

struct culprit who_named(enum culprit_type type, uint32_t id, const char *name, size_t size)
{
	struct culprit who = { .type = type, .id = id };
	size_t len = strnlen(name, size);

	if (len >= sizeof(who.name))
		len = sizeof(who.name) - 1;
	memcpy(who.name, name, len);
	return who;
}

/* By a frame of its code, as short as it tells. */
static struct culprit who_frame(enum culprit_type type, uint32_t id, const struct tl_code *code)
{
	char frame[sizeof(code->frame) + 1], name[sizeof(code->frame) + 1];

	memcpy(frame, code->frame, sizeof(code->frame));
	frame[sizeof(code->frame)] = '\0';
	str_library(name, sizeof(name), frame);
	return who_named(type, id, strchr(frame, ':') ? frame : name, sizeof(name));
}

#define NAMED(type, id, array) who_named(type, id, array, sizeof(array))

/* A cgroup by the last part of its path. */
static struct culprit who_cgroup(const char *path, size_t size)
{
	const char *last = memrchr(path, '/', strnlen(path, size));

	if (!path[0])
		return (struct culprit){ .type = WHO_NOBODY };
	if (last && last[1])
		return who_named(WHO_CGROUP, 0, last + 1, size - (last + 1 - path));
	return who_named(WHO_CGROUP, 0, path, size);
}

static int by_id(const void *pa, const void *pb)
{
	const struct cgroup_name *a = pa, *b = pb;

	return a->id < b->id ? -1 : a->id > b->id;
}

static int add_cgroup(struct clues *c, uint64_t id, const char *path)
{
	struct cgroup_name *at;

	/* Rows of one cgroup stand together: it is the one before in most cases. */
	if (!id || !path[0] || (c->cgroups.n && c->cgroups.v[c->cgroups.n - 1].id == id))
		return 0;
	at = vec_push(&c->cgroups, SIZE_MAX);
	if (!at)
		return -ENOMEM;
	*at = (struct cgroup_name){ id, path };
	return 0;
}

/* Names of cgroups are known as far as a thread or a quota of them is recorded. */
int cgroups_make(struct clues *c)
{
	const struct tl_throttle *q = c->ev->throttles.v;
	int err = 0;

	_Static_assert(sizeof(q->path) == CGROUP_NAME_SIZE, "");
	_Static_assert(sizeof(c->threads->t->cgroup_path) == CGROUP_NAME_SIZE, "");
	for (size_t i = 0; i < c->ev->throttles.n && !err; i++)
		err = add_cgroup(c, q[i].cgroup, q[i].path);
	for (size_t i = 0; i < c->n_threads && !err; i++)
		err = add_cgroup(c, c->threads[i].t->cgroup, c->threads[i].t->cgroup_path);
	if (c->cgroups.n)
		qsort(c->cgroups.v, c->cgroups.n, sizeof(*c->cgroups.v), by_id);
	return err;
}

static struct culprit who_cgroup_id(const struct clues *c, uint64_t id)
{
	size_t lo = 0, hi = c->cgroups.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->cgroups.v[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < c->cgroups.n && c->cgroups.v[lo].id == id)
		return who_cgroup(c->cgroups.v[lo].path, CGROUP_NAME_SIZE);
	return (struct culprit){ .type = WHO_NOBODY };
}

static void who_throttled(const struct clues *c, const struct piece *p,
			  const struct tl_thread_span *s, struct clue *k)
{
	const struct tl_throttle *q = p->more ? &c->ev->throttles.v[p->more - 1] : NULL;
	const struct watched *w = clues_thread(c, s->hdr.tgid, s->hdr.tid);

	if (!q) {
		k->who = w ? who_cgroup(w->t->cgroup_path, sizeof(w->t->cgroup_path)) :
			     (struct culprit){ .type = WHO_NOBODY };
		return;
	}
	k->who = who_cgroup(q->path, sizeof(q->path));
	if (!q->by_tgid)
		return;
	k->root = k->who;
	k->who = NAMED(WHO_PROCESS, q->by_tgid, q->by_name);
}

static void who_ran(const struct clues *c, const struct tl_thread_span *s, struct clue *k)
{
	if (!s->by_tgid)
		return;
	if (s->by_tgid == s->hdr.tgid) {
		k->who = NAMED(WHO_THREAD, s->by_tid, s->by_name);
		return;
	}
	k->who = NAMED(WHO_PROCESS, s->by_tgid, s->by_name);
	k->root = who_cgroup_id(c, s->by_cgroup);
}

static const struct rec_other *piece_other(const struct clues *c, const struct piece *p)
{
	const struct work *w = p->work ? &c->works[p->work - 1] : NULL;

	return w && w->what >= OTHER_BASE ? &c->v->others[w->what - OTHER_BASE] : NULL;
}

/* A thread of the same server, and what that worked on if it is one of the front end. */
static void who_crowded(const struct clues *c, const struct piece *p,
			const struct tl_thread_span *s, struct clue *k)
{
	const struct rec_other *other = piece_other(c, p);

	k->who = NAMED(WHO_THREAD, s->by_tid, s->by_name);
	if (other)
		k->root = NAMED(WHO_CLIENT, other->peer_port, other->path);
	else if (p->work)
		k->root = (struct culprit){ .type = WHO_REQUEST, .id = c->works[p->work - 1].what };
}

static void who_locked(const struct clues *c, const struct piece *p, const struct tl_thread_span *s,
		       struct clue *k)
{
	const struct tl_code *code = p->more ? &c->ev->codes.v[p->more - 1] : NULL;
	const struct watched *w = clues_thread(c, s->by_tgid, s->by_tid);
	uint32_t req = code && code->req ? clues_request(c, code->req) : UINT32_MAX;
	uint32_t work;

	if (req == UINT32_MAX && w && w->t->role == TL_ROLE_FRONT) {
		work = work_of(c, s->by_tgid, s->by_tid, p->t0_ns, p->t1_ns);
		if (work && c->works[work - 1].what < OTHER_BASE)
			req = c->works[work - 1].what;
	}
	if (p->mechanism == MECH_METRICS) {
		k->who = NAMED(WHO_CLIENT, piece_other(c, p)->peer_port, piece_other(c, p)->path);
		return;
	}
	k->who = code && code->frame[0] ? who_frame(WHO_THREAD, s->by_tid, code)
					: NAMED(WHO_THREAD, s->by_tid, s->by_name);
	if (req != UINT32_MAX)
		k->root = (struct culprit){ .type = WHO_REQUEST, .id = req };
}

uint32_t piece_request(const struct clues *c, const struct piece *p)
{
	const struct tl_code *code = p->src == SRC_CODE ? &c->ev->codes.v[p->at] : NULL;
	uint32_t req = UINT32_MAX;

	if (p->mechanism == MECH_GC || p->mechanism == MECH_COMPILE)	/* these work for nobody */
		return req;
	if (code && code->req)
		req = clues_request(c, code->req);
	if (req == UINT32_MAX && p->work && c->works[p->work - 1].what < OTHER_BASE)
		req = c->works[p->work - 1].what;
	return req;
}

/* On a CPU: for a request if it is known which. */
static void who_was_busy(const struct clues *c, const struct piece *p, struct clue *k)
{
	const struct tl_code *code = p->src == SRC_CODE ? &c->ev->codes.v[p->at] : NULL;
	const struct tl_thread_span *s = code ? NULL : &c->ev->spans.v[p->at];
	const struct rec_other *other = piece_other(c, p);
	uint32_t tgid = code ? code->hdr.tgid : s->hdr.tgid;
	uint32_t tid = code ? code->hdr.tid : s->hdr.tid;
	uint32_t req = piece_request(c, p);
	const struct watched *w = clues_thread(c, tgid, tid);

	if (other && (p->mechanism == MECH_METRICS || p->mechanism == MECH_EVENT_LOOP ||
		      p->mechanism == MECH_TOKENIZER)) {
		k->who = NAMED(WHO_CLIENT, other->peer_port, other->path);
		k->prov = PROV_INFERRED;
	} else if (req != UINT32_MAX) {
		k->who = code ? who_frame(WHO_REQUEST, req, code)
			      : (struct culprit){ .type = WHO_REQUEST, .id = req };
		if (!code || !code->req)
			k->prov = PROV_INFERRED;
	} else {
		k->who = code && code->frame[0] ? who_frame(WHO_THREAD, tid, code)
			 : w			? NAMED(WHO_THREAD, tid, w->t->name)
						: (struct culprit){ .type = WHO_THREAD, .id = tid };
	}
}

void list_add_piece(const struct clues *c, struct clue_list *l, const struct piece *p,
		    uint64_t t0_ns, uint64_t t1_ns)
{
	const struct tl_thread_span *s = p->src == SRC_SPAN ? &c->ev->spans.v[p->at] : NULL;
	struct clue k = { .mechanism = p->mechanism, .prov = p->prov };
	const struct watched *w;

	k.t0_ns = p->t0_ns > t0_ns ? p->t0_ns : t0_ns;
	k.t1_ns = p->t1_ns < t1_ns ? p->t1_ns : t1_ns;
	if (k.t1_ns <= k.t0_ns)
		return;
	k.ns = k.t1_ns - k.t0_ns;
	switch (p->rank) {
	case RANK_STOPPED:	/* who let it go on; mostly the one that had stopped it */
		if (!s)
			k.who = NAMED(WHO_CLIENT, c->v->others[p->at].peer_port,
				      c->v->others[p->at].path);
		else if (s->by_tgid)
			k.who = NAMED(WHO_PROCESS, s->by_tgid, s->by_name);
		break;
	case RANK_THROTTLED:
		who_throttled(c, p, s, &k);
		break;
	case RANK_RUN_QUEUE:
	case RANK_CROWD:
		if (p->mechanism == MECH_FEW_CPUS)
			who_crowded(c, p, s, &k);
		else if (!p->more)	/* else by nobody that is known */
			who_ran(c, s, &k);
		break;
	case RANK_PAGE_FAULT:
		w = clues_thread(c, s->hdr.tgid, s->hdr.tid);
		if (w)
			k.who = NAMED(WHO_THREAD, s->hdr.tid, w->t->name);
		break;
	case RANK_LOCK:
		who_locked(c, p, s, &k);
		break;
	case RANK_HELD:
		k.who = (struct culprit){ .type = WHO_PROCESS, .id = p->at };
		break;
	default:
		who_was_busy(c, p, &k);
	}
	list_add(l, &k);
}
