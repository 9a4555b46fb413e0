/* SPDX-License-Identifier: Apache-2.0 */
/* CPU quotas: which waits for a CPU were no queue, but a thread that was not allowed to run. */
#include "model/clues_priv.h"

#include <string.h>

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

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
		    (len > 1 && len < sizeof(t->cgroup_path) && !strncmp(q[i].path, t->cgroup_path, len) &&
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
	*a = (struct allowance){ at, c->ev->throttles.v[at - 1].throttled_ns };
	return a;
}

/* Looks at quotas that saw throttling in a span, the latest first: throttling is counted when it ends. */
static size_t allowances(const struct clues *c, struct thread_quotas *q, uint64_t t0_ns, uint64_t t1_ns,
			 struct allowance **ret)
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

/*
 * A thread that is not allowed to run is runnable like any other. Its CPU is idle then, or runs somebody
 * else. The quota tells: what was throttled and is not charged yet must be at least half of the span. If
 * somebody else had the CPU for nearly all of a span that is clearly longer than the throttling, the queue
 * is the reason, and so it is while another one of its cgroup runs there: then the cgroup may run.
 */
static bool is_throttled(const struct tl_thread_span *s, uint64_t own_cgroup, uint64_t throttled_ns)
{
	uint64_t len = s->hdr.ts_ns - s->since_ns;
	bool sibling = s->by_tgid && s->by_cgroup && s->by_cgroup == own_cgroup;

	if (s->hdr.flags & TL_SPAN_IDLE_CPU)
		return true;
	if (throttled_ns < len / 2)
		return false;
	if (sibling)
		return s->by_ns < len / 2;
	return !s->by_tgid || s->by_ns < len / 10 * 9 || throttled_ns >= len / 4 * 3;
}

bool was_throttled(const struct clues *c, const struct watched *w, const struct tl_thread_span *s,
		   struct thread_quotas *q, uint32_t *ret_at)
{
	struct allowance *v[MAX_LOOKS];
	size_t n = allowances(c, q, s->since_ns, s->hdr.ts_ns, v);
	uint64_t rest_ns = s->hdr.ts_ns - s->since_ns, left_ns = 0, part_ns;

	for (size_t i = 0; i < n; i++)
		left_ns += v[i]->left_ns;
	if (!is_throttled(s, w->t->cgroup, left_ns))
		return false;
	*ret_at = n ? v[0]->at : 0;
	for (size_t i = 0; i < n; i++) {
		part_ns = least(rest_ns, v[i]->left_ns);
		v[i]->left_ns -= part_ns;
		rest_ns -= part_ns;
	}
	return true;
}
