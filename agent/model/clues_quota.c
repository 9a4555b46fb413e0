/* SPDX-License-Identifier: Apache-2.0 */
/* CPU quotas: which waits for a CPU were no queue, but a thread that was not allowed to run. */
#include "model/clues_priv.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- which quotas hold for a thread ---- */

static const char *path_of(const struct clues *c, uint32_t quota)
{
	return c->ev->throttles.v[c->quotas.v[quota].first].path;
}

static int by_path(const void *pa, const void *pb, void *ctx)
{
	const struct clues *c = ctx;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
	int d = strncmp(path_of(c, a), path_of(c, b), sizeof(c->ev->throttles.v->path));

	return d ? d : (a > b) - (a < b);
}

int quotas_make(struct clues *c)
{
	const struct tl_throttle *q = c->ev->throttles.v;

	for (size_t i = 0, k; i < c->ev->throttles.n; i = k) {
		struct quota_range *range = vec_push(&c->quotas, UINT32_MAX);

		if (!range)
			return -ENOMEM;
		for (k = i + 1; k < c->ev->throttles.n && q[k].cgroup == q[i].cgroup;)
			k++;
		*range = (struct quota_range){ i, k };
	}
	c->quotas_by_path = malloc((c->quotas.n + 1) * sizeof(*c->quotas_by_path));
	if (!c->quotas_by_path)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->quotas.n; i++)
		c->quotas_by_path[i] = i;
	if (c->quotas.n)
		qsort_r(c->quotas_by_path, c->quotas.n, sizeof(*c->quotas_by_path), by_path, c);
	return 0;
}

void quotas_free(struct clues *c)
{
	vec_free(&c->quotas);
	free(c->quotas_by_path);
}

struct found {			/* the first of those that hold, by number */
	uint32_t v[MAX_CGROUPS];
	size_t n;
};

static bool is_full(const struct found *f, uint32_t quota)
{
	return f->n == MAX_CGROUPS && quota >= f->v[f->n - 1];
}

static void add_found(struct found *f, uint32_t quota)
{
	size_t at = f->n;

	while (at && f->v[at - 1] >= quota)
		at--;
	if (is_full(f, quota) || (at < f->n && f->v[at] == quota))
		return;
	f->n += f->n < MAX_CGROUPS;
	memmove(&f->v[at + 1], &f->v[at], (f->n - 1 - at) * sizeof(f->v[0]));
	f->v[at] = quota;
}

static void find_cgroup(const struct clues *c, uint64_t cgroup, struct found *f)
{
	size_t lo = 0, hi = c->quotas.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->ev->throttles.v[c->quotas.v[mid].first].cgroup < cgroup)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < c->quotas.n && c->ev->throttles.v[c->quotas.v[lo].first].cgroup == cgroup)
		add_found(f, (uint32_t)lo);
}

/* Those whose path these `len` characters are: several where a cgroup was made anew. */
static void find_path(const struct clues *c, const char *path, size_t len, struct found *f)
{
	char key[sizeof(c->ev->throttles.v->path)] = "";
	size_t lo = 0, hi = c->quotas.n;

	memcpy(key, path, len);
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strncmp(path_of(c, c->quotas_by_path[mid]), key, sizeof(key)) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < c->quotas.n && !is_full(f, c->quotas_by_path[lo]) &&
	       !strncmp(path_of(c, c->quotas_by_path[lo]), key, sizeof(key)); lo++)
		add_found(f, c->quotas_by_path[lo]);
}

void quotas_of(const struct clues *c, const struct tl_thread *t, struct thread_quotas *ret)
{
	size_t len = strnlen(t->cgroup_path, sizeof(t->cgroup_path));
	struct found f = { .n = 0 };

	*ret = (struct thread_quotas){ .n = 0 };
	if (!c->quotas.n)
		return;
	if (t->cgroup)
		find_cgroup(c, t->cgroup, &f);
	for (size_t i = 2; i <= len && i < sizeof(t->cgroup_path); i++)
		if (i == len || t->cgroup_path[i] == '/')
			find_path(c, t->cgroup_path, i, &f);
	for (size_t i = 0; i < f.n; i++)
		ret->v[ret->n++] = c->quotas.v[f.v[i]];
}

/* ---- which waits they explain ---- */

/* Keeps the order: `at` may be asked for once more. */
static struct allowance *allowance_of(const struct clues *c, struct thread_quotas *q, uint32_t at)
{
	struct allowance *a;

	for (size_t i = 0; i < MAX_LOOKS && i < q->n_seen; i++)
		if (q->seen[i].at == at)
			return &q->seen[i];
	a = &q->seen[q->n_seen++ % MAX_LOOKS];
	*a = (struct allowance){ at, c->ev->throttles.v[at - 1].n_throttled,
				 c->ev->throttles.v[at - 1].throttled_ns };
	return a;
}

/* Looks at quotas that saw throttling in a span, the latest first: throttling
 * is counted when it ends. */
static size_t allowances(const struct clues *c, struct thread_quotas *q, uint64_t t0_ns,
			 uint64_t t1_ns, struct allowance **ret)
{
	const struct tl_throttle *at = c->ev->throttles.v;
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++) {
		size_t lo = q->v[i].first, hi = q->v[i].end;

		while (lo < hi) {	/* the first that begins at t1 or later */
			size_t mid = lo + (hi - lo) / 2;

			if (at[mid].since_ns < t1_ns)
				lo = mid + 1;
			else
				hi = mid;
		}
		while (lo-- > q->v[i].first && at[lo].hdr.ts_ns > t0_ns && n < MAX_LOOKS)
			if (at[lo].throttled_ns)
				ret[n++] = allowance_of(c, q, lo + 1);
	}
	return n;
}

/* How long a thread is kept when the quota is used up: to the end of the period at most, while the
 * kernel adds up all CPUs. */
static uint64_t usual_ns(const struct tl_throttle *q)
{
	uint64_t ns = q->throttled_ns / (q->n_throttled ? q->n_throttled : 1);

	return q->period_us ? least(ns, 1000ull * q->period_us) : ns;
}

struct throttling {		/* as looks at quotas saw it around a
				 * span, as far as it is not charged */
	uint64_t left_ns, usual_ns;
	uint32_t left;
};

/*
 * A thread that is not allowed to run is runnable like any other. Its CPU is idle then, or runs
 * somebody else. The quota tells: what was throttled and is not charged yet must be at least half
 * of the span. If somebody else had the CPU for nearly all of a span that is clearly longer than
 * the throttling, or clearly shorter than one usually is, the queue is the reason, and so it is
 * while another one of its cgroup runs there: then the cgroup may run. The kernel counts less than
 * a thread waits where a throttling ends on one CPU before it does on another: a span as long as
 * they usually are, for which nobody else had the CPU, is one.
 */
static bool is_throttled(const struct tl_thread_span *s, uint64_t own_cgroup,
			 const struct throttling *q)
{
	uint64_t len = s->hdr.ts_ns - s->since_ns;
	bool sibling = s->by_tgid && s->by_cgroup && s->by_cgroup == own_cgroup;
	bool explained = s->by_tgid && s->by_ns >= len / 10 * 9, as_usual = len >= q->usual_ns / 2;

	if (s->hdr.flags & TL_SPAN_IDLE_CPU)
		return true;
	if (q->left_ns < len / 2)
		return q->left && as_usual && !sibling && s->by_ns < len / 2;
	if (sibling)
		return s->by_ns < len / 2;
	return !explained || (as_usual && q->left_ns >= len / 4 * 3);
}

bool was_throttled(const struct clues *c, const struct watched *w, const struct tl_thread_span *s,
		   struct thread_quotas *q, uint32_t *ret_at)
{
	struct allowance *v[MAX_LOOKS];
	size_t n = allowances(c, q, s->since_ns, s->hdr.ts_ns, v);
	uint64_t rest_ns = s->hdr.ts_ns - s->since_ns, part_ns;
	struct throttling t = { .left = 0 };
	bool counted = false;

	for (size_t i = 0; i < n; i++) {
		uint64_t ns = usual_ns(&c->ev->throttles.v[v[i]->at - 1]);

		t.left_ns += v[i]->left_ns;
		t.left += v[i]->left;
		t.usual_ns = ns > t.usual_ns ? ns : t.usual_ns;
	}
	if (!is_throttled(s, w->t->cgroup, &t))
		return false;
	*ret_at = n ? v[0]->at : 0;
	for (size_t i = 0; i < n; i++) {
		part_ns = least(rest_ns, v[i]->left_ns);
		v[i]->left_ns -= part_ns;
		rest_ns -= part_ns;
		if (!counted && v[i]->left) {
			v[i]->left--;
			counted = true;
		}
	}
	return true;
}
