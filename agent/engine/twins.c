/* SPDX-License-Identifier: Apache-2.0 */
/* Merges what CUPTI told and what probes saw, thread by thread. */
#include "engine/twins.h"

#include "base/vec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
	MAX_HELD = 65536,
	MAX_TOLD = 131072,
	LOOK_BACK = 8, /* calls of other kinds between a call's entry and its twin: nested ones */
};
static const uint64_t held_ns = 2000000000, told_ns = 1000000000;

struct held {
	struct tl_gpu_launch l;
	bool later; /* the thread did something else since */
};
struct told {
	uint64_t ts_ns;
	uint32_t tgid, tid;
	uint16_t call;
	bool matched;
};
struct twins {
	VEC(struct held) held;
	VEC(struct told) told;
};

struct twins *twins__new(void)
{
	return calloc(1, sizeof(struct twins));
}

void twins__free(struct twins *t)
{
	if (!t)
		return;
	vec_free(&t->held);
	vec_free(&t->told);
	free(t);
}

int twins__told(struct twins *t, const struct tl_gpu_launch *l)
{
	struct told *at = vec_push(&t->told, MAX_TOLD);

	if (!at)
		return -ENOMEM;
	*at = (struct told){ l->hdr.ts_ns, l->hdr.tgid, l->hdr.tid, l->call, false };
	return 0;
}

int twins__saw(struct twins *t, const struct tl_gpu_launch *l)
{
	struct held *at = vec_push(&t->held, MAX_HELD);

	if (!at)
		return -ENOMEM;
	*at = (struct held){ .l = *l };
	return 0;
}

/* ---- order ---- */

static int compare(uint32_t tgid_a, uint32_t tid_a, uint64_t ts_a, uint32_t tgid_b, uint32_t tid_b,
		   uint64_t ts_b)
{
	if (tgid_a != tgid_b)
		return tgid_a < tgid_b ? -1 : 1;
	if (tid_a != tid_b)
		return tid_a < tid_b ? -1 : 1;
	return (ts_a > ts_b) - (ts_a < ts_b);
}

static int by_thread_held(const void *a, const void *b)
{
	const struct tl_hdr *x = &((const struct held *)a)->l.hdr,
			    *y = &((const struct held *)b)->l.hdr;

	return compare(x->tgid, x->tid, x->ts_ns, y->tgid, y->tid, y->ts_ns);
}

static int by_thread_told(const void *a, const void *b)
{
	const struct told *x = a, *y = b;

	return compare(x->tgid, x->tid, x->ts_ns, y->tgid, y->tid, y->ts_ns);
}

static int by_time(const void *a, const void *b)
{
	const struct tl_hdr *x = &((const struct held *)a)->l.hdr,
			    *y = &((const struct held *)b)->l.hdr;

	return (x->ts_ns > y->ts_ns) - (x->ts_ns < y->ts_ns);
}

/* qsort() wants an array even of nothing. */
static void sort(void *v, size_t n, size_t size, int (*by)(const void *, const void *))
{
	if (n > 1)
		qsort(v, n, size, by);
}

/* ---- matching ---- */

static bool same_thread(const struct held *h, const struct told *d)
{
	return h->l.hdr.tgid == d->tgid && h->l.hdr.tid == d->tid;
}

static bool is_twin(const struct held *h, const struct told *d)
{
	if (!h->l.n || h->l.call != d->call)
		return false;
	/* Of several that were counted, one lies between the first and the last. */
	return h->l.n == 1 || d->ts_ns <= h->l.hdr.ts_ns + h->l.dur_ns;
}

/* The last entry at or before it. */
static void match(struct held *first, struct held *last, struct told *d)
{
	for (int i = 0; i < LOOK_BACK && last >= first && same_thread(last, d); i++, last--) {
		if (!is_twin(last, d))
			continue;
		last->l.n--;
		d->matched = true;
		return;
	}
}

static void match_all(struct twins *t)
{
	struct held *h = t->held.v;
	size_t at = 0; /* behind the last entry that is not later than the one that was told */

	sort(h, t->held.n, sizeof(*h), by_thread_held);
	sort(t->told.v, t->told.n, sizeof(*t->told.v), by_thread_told);
	for (size_t i = 0; i < t->told.n; i++) {
		struct told *d = &t->told.v[i];

		while (at < t->held.n && compare(h[at].l.hdr.tgid, h[at].l.hdr.tid,
						 h[at].l.hdr.ts_ns, d->tgid, d->tid, d->ts_ns) <= 0)
			at++;
		if (at && !d->matched)
			match(h, &h[at - 1], d);
		/* Its own entry has been left behind, too, if the call returned: but
		 * not what came before that. */
		for (size_t k = at; k && same_thread(&h[k - 1], d) && !h[k - 1].later; k--)
			h[k - 1].later = h[k - 1].l.hdr.ts_ns < d->ts_ns;
	}
	for (size_t i = 0; i + 1 < t->held.n; i++) {
		const struct tl_hdr *a = &h[i].l.hdr, *b = &h[i + 1].l.hdr;

		h[i].later |= a->tgid == b->tgid && a->tid == b->tid;
	}
}

static bool is_settled(const struct held *h, uint64_t now_ns, bool all_read)
{
	return (all_read && (h->later || h->l.dur_ns || h->l.n != 1)) ||
	       now_ns > h->l.hdr.ts_ns + held_ns;
}

static int say(struct twins *t, uint64_t now_ns, bool all_read, bool all, const struct emit *out)
{
	size_t kept = 0, kept_told = 0;
	int err = 0;

	if (!t->held.n && !t->told.n)
		return 0;
	match_all(t);
	sort(t->held.v, t->held.n, sizeof(*t->held.v), by_time);
	for (size_t i = 0; i < t->held.n; i++) {
		struct held *h = &t->held.v[i];

		if (h->l.n && (err || !(all || is_settled(h, now_ns, all_read))))
			t->held.v[kept++] = *h;
		else if (h->l.n)
			err = emit(out, &h->l.hdr);
	}
	t->held.n = kept;
	for (size_t i = 0; i < t->told.n; i++) {
		if (!t->told.v[i].matched && now_ns < t->told.v[i].ts_ns + told_ns)
			t->told.v[kept_told++] = t->told.v[i];
	}
	t->told.n = kept_told;
	return err;
}

int twins__say(struct twins *t, uint64_t now_ns, bool all_read, const struct emit *out)
{
	return say(t, now_ns, all_read, false, out);
}

int twins__end(struct twins *t, const struct emit *out)
{
	return say(t, UINT64_MAX, true, true, out);
}
