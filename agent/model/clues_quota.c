/* SPDX-License-Identifier: Apache-2.0 */
/* CPU quotas: which waits for a CPU were no queue, but a thread that was not allowed to run. */
#include "model/clues_priv.h"
#include "base/num.h"

#include <string.h>

void quotas_of(const struct clues *c, const struct tl_thread *t, struct thread_quotas *ret)
{
	const struct tl_throttle *q = c->ev->throttles.v;
	size_t k;

	*ret = (struct thread_quotas){ .n = 0 };
	for (size_t i = 0; i < c->ev->throttles.n && ret->n < MAX_CGROUPS; i = k) {
		size_t len = strnlen(q[i].path, sizeof(q[i].path));

		for (k = i + 1; k < c->ev->throttles.n && q[k].cgroup == q[i].cgroup;)
			k++;
		if ((q[i].cgroup && q[i].cgroup == t->cgroup) ||
		    (len > 1 && len < sizeof(t->cgroup_path) &&
		     !strncmp(q[i].path, t->cgroup_path, len) &&
		     (!t->cgroup_path[len] || t->cgroup_path[len] == '/')))
			ret->v[ret->n++] = (struct quota_range){ i, k };
	}
}

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
