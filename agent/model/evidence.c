/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps evidence in tables and orders them, whatever order it came in. */
#include "model/evidence.h"

#include <errno.h>
#include <stdbool.h>

/* Of one kind: hours of a busy server. What comes after is counted. */
enum { MAX_ROWS = 4000000 };

static int not_kept(struct evidence *e, bool full)
{
	e->n_not_kept += full;
	return full ? 0 : -ENOMEM;
}

#define KEEP(table, ev) ({							\
	__typeof__((table)->v) row_ = vec_push(table, MAX_ROWS);		\
	if (row_)								\
		*row_ = *(const __typeof__(*row_) *)(ev);			\
	row_ ? 0 : not_kept(e, (table)->n >= MAX_ROWS);				\
})

int evidence_on(struct evidence *e, const struct tl_hdr *ev)
{
	switch (ev->kind) {
	case TL_THREAD:
		return KEEP(&e->threads, ev);
	case TL_THREAD_SPAN:
		return KEEP(&e->spans, ev);
	case TL_THROTTLE:
		return KEEP(&e->throttles, ev);
	case TL_CODE:
		return KEEP(&e->codes, ev);
	case TL_SEND_HELD:
		return KEEP(&e->held, ev);
	case TL_SEND_BLOCKED:
		return KEEP(&e->blocked, ev);
	case TL_DELIVERED:
		return KEEP(&e->delivered, ev);
	case TL_GPU_STEP:
		return KEEP(&e->gpu_steps, ev);
	case TL_GPU_STATE:
		return KEEP(&e->gpu_states, ev);
	case TL_GPU_HEALTH:
		return KEEP(&e->gpu_healths, ev);
	case TL_CLOCK:
		return KEEP(&e->clocks, ev);
	case TL_CLAIM:
		return KEEP(&e->claims, ev);
	default:
		return -ENOENT;
	}
}

/* ---- order ---- */

/* Numbers to compare by, the first one first. */
struct key {
	uint64_t v[3];
};

static int compare(const struct key a, const struct key b)
{
	for (int i = 0; i < 3; i++)
		if (a.v[i] != b.v[i])
			return a.v[i] < b.v[i] ? -1 : 1;
	return 0;
}

#define THREAD_OF(h) (((uint64_t)(h).tgid << 32) | (h).tid)
#define ORDER(type, k0, k1, k2)								\
	static int by_##type(const void *pa, const void *pb)				\
	{										\
		const struct tl_##type *a = pa, *b = pb, *x;				\
		struct key ka, kb;							\
		x = a; ka = (struct key){ { k0, k1, k2 } };				\
		x = b; kb = (struct key){ { k0, k1, k2 } };				\
		return compare(ka, kb);							\
	}

ORDER(thread, THREAD_OF(x->hdr), x->hdr.ts_ns, 0)
ORDER(thread_span, THREAD_OF(x->hdr), x->since_ns, x->hdr.ts_ns)
ORDER(throttle, x->cgroup, x->since_ns, x->hdr.ts_ns)
ORDER(code, THREAD_OF(x->hdr), x->since_ns, x->hdr.ts_ns)
ORDER(send_held, x->req, x->since_ns, x->hdr.ts_ns)
ORDER(send_blocked, x->req, x->since_ns, x->hdr.ts_ns)
ORDER(delivered, x->req, x->by, x->hdr.ts_ns)
ORDER(gpu_step, x->hdr.ts_ns, x->rank, x->end_ns)
ORDER(gpu_state, (uint64_t)x->hdr.tgid << 32 | x->device, x->since_ns, x->hdr.ts_ns)
ORDER(gpu_health, x->hdr.ts_ns, x->since_ns, 0)
ORDER(clock, x->hdr.ts_ns, x->realtime_ns, 0)
ORDER(claim, x->req, x->metric, x->hdr.ts_ns)

#define SORT(table, type) \
	do { if ((table)->n) qsort((table)->v, (table)->n, sizeof(*(table)->v), by_##type); } while (0)

void evidence_finish(struct evidence *e)
{
	SORT(&e->threads, thread);
	SORT(&e->spans, thread_span);
	SORT(&e->throttles, throttle);
	SORT(&e->codes, code);
	SORT(&e->held, send_held);
	SORT(&e->blocked, send_blocked);
	SORT(&e->delivered, delivered);
	SORT(&e->gpu_steps, gpu_step);
	SORT(&e->gpu_states, gpu_state);
	SORT(&e->gpu_healths, gpu_health);
	SORT(&e->clocks, clock);
	SORT(&e->claims, claim);
}

void evidence_free(struct evidence *e)
{
	vec_free(&e->threads);
	vec_free(&e->spans);
	vec_free(&e->throttles);
	vec_free(&e->codes);
	vec_free(&e->held);
	vec_free(&e->blocked);
	vec_free(&e->delivered);
	vec_free(&e->gpu_steps);
	vec_free(&e->gpu_states);
	vec_free(&e->gpu_healths);
	vec_free(&e->clocks);
	vec_free(&e->claims);
}
