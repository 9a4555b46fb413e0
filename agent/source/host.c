/* SPDX-License-Identifier: Apache-2.0 */
/* Evidence from the host: follows the threads of servers, and finishes what
 * the kernel says of them. */
#include "source/host.h"

#include "base/str.h"
#include "source/bpf_priv.h"
#include "source/host_priv.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROCESSES = 1024, MAX_THREADS = 16384, MAX_HELD = 64 };
/* Of a wait that timeouts cut into pieces. */
static const uint64_t max_moment_ns = 250000, max_gap_ns = 50000000, max_held_ns = 200000000;

int host__open(struct src_bpf *bpf, struct host **ret)
{
	struct host *h = calloc(1, sizeof(*h));
	uint64_t start_ns = monotonic_ns();
	int err = -ENOMEM;

	if (!h)
		return err;
	h->start_ns = start_ns;
	h->bpf = bpf;
	h->processes = map__new(sizeof(struct process), MAX_PROCESSES);
	h->threads = map__new(sizeof(struct thread), MAX_THREADS);
	h->watches = map__new(sizeof(uint32_t), MAX_THREADS);
	if (!h->processes || !h->threads || !h->watches)
		goto fail;
	err = host_cgroup_open(h);
	err = err ? err : host_stack_open(h);
	err = err ? err : host_compilers_open(h);
	err = err ? err : host_bpf_open(h);
	if (err)
		goto fail;
	bpf->attach_ns += monotonic_ns() - start_ns;
	*ret = h;
	return 0;
fail:
	host__close(h);
	return err;
}

void host__close(struct host *h)
{
	if (!h)
		return;
	host_bpf_close(h);
	host_cgroup_close(h);
	host_compilers_close(h);
	for (struct process *p = h->processes ? map__oldest(h->processes, NULL) : NULL; p;
	     p = map__newer(h->processes, p, NULL))
		host_stack_forget(p);
	host_stack_close(h);
	for (struct thread *t = h->threads ? map__oldest(h->threads, NULL) : NULL; t;
	     t = map__newer(h->threads, t, NULL))
		vec_free(&t->held);
	map__free(h->processes);
	map__free(h->threads);
	map__free(h->watches);
	free(h);
}

static void forget_process(struct host *h, uint32_t tgid)
{
	struct process *p = map__get(h->processes, tgid);

	if (!p)
		return;
	host_stack_forget(p);
	map__del(h->processes, tgid);
	host_bpf_follow(h);
}

int host__add(struct host *h, const struct host_process *p)
{
	struct process *at;

	forget_process(h, p->tgid);	/* its number may have been another's */
	at = map__put(h->processes, p->tgid, NULL);
	if (!at)
		return map__is_full(h->processes) ? -E2BIG : -ENOMEM;
	*at = (struct process){ .tgid = p->tgid, .server = p->server, .engine = p->engine,
				.rank = thread_rank(p->title) };
	str_copy(at->role, sizeof(at->role), p->role);
	host_cgroup_find(h, at);
	return host_bpf_follow(h);
}

/* ---- events ---- */

/* Whoever let go did not have to wake this thread if it was awake just then. A thread of the
 * process that did not sleep meanwhile is the one it waited for, by all that shows. */
static void guess_holder(struct host *h, struct tl_thread_span *s)
{
	const struct thread *by;
	uint64_t ns;
	uint32_t tid = host_stack_busy(h, s->hdr.tgid, s->hdr.tid, s->since_ns, s->hdr.ts_ns, &ns);

	if (!tid)
		return;
	by = map__get(h->threads, tid);
	s->hdr.flags |= TL_F_GUESS;
	s->by_tgid = s->hdr.tgid;
	s->by_tid = tid;
	s->by_ns = ns;
	if (by)
		memcpy(s->by_name, by->comm, sizeof(s->by_name));
}

/*
 * A wait that timeouts cut into pieces, as that for Python's lock is, belongs to the thread that
 * ends it. The pieces are held back until that is known. If nothing but a moment lies between two,
 * they are one; others may have had the CPU in between.
 */
static int release_held(struct host *h, struct thread *t, const struct emit *out)
{
	int err = 0;

	for (size_t i = 0; i < t->held.n && !err; i++) {
		if (!t->held.v[i].by_tid)
			guess_holder(h, &t->held.v[i]);
		err = emit(out, &t->held.v[i].hdr);
	}
	t->held.n = 0;
	return err;
}

/* Who ended the last piece had been awake for by_ns then: maybe since before the first. */
static void name_held(struct thread *t, const struct tl_thread_span *last)
{
	uint64_t since_ns = last->hdr.ts_ns - last->by_ns;

	for (size_t i = 0; i < t->held.n; i++) {
		struct tl_thread_span *s = &t->held.v[i];
		uint64_t from = s->since_ns > since_ns ? s->since_ns : since_ns;

		s->by_ns = s->hdr.ts_ns > from ? s->hdr.ts_ns - from : 0;
		s->by_tgid = last->by_tgid;
		s->by_tid = last->by_tid;
		memcpy(s->by_name, last->by_name, sizeof(s->by_name));
	}
}

static int hold(struct host *h, struct thread *t, const struct tl_thread_span *span,
		const struct emit *out)
{
	struct tl_thread_span *last = t->held.n ? &t->held.v[t->held.n - 1] : NULL;
	uint64_t gap_ns = last ? span->since_ns - last->hdr.ts_ns : 0;
	int err = 0;

	if (last && gap_ns < max_moment_ns) {
		last->hdr.ts_ns = span->hdr.ts_ns;
		return 0;
	}
	if (last && (gap_ns > max_gap_ns || t->held.n == MAX_HELD))
		err = release_held(h, t, out);
	last = vec_push(&t->held, MAX_HELD);
	if (!last)
		return err ? err : emit(out, &span->hdr);
	*last = *span;
	return err;
}

static int on_sleep(struct host *h, struct thread *t, const struct tl_thread_span *span,
		    const struct emit *out)
{
	struct tl_thread_span cut = *span;
	int err;

	if (cut.by_ns > cut.hdr.ts_ns - cut.since_ns)
		cut.by_ns = cut.hdr.ts_ns - cut.since_ns;
	if (span->wait != TL_WAIT_FUTEX) {
		err = release_held(h, t, out);
		return err ? err : emit(out, &cut.hdr);
	}
	err = hold(h, t, &cut, out);
	if (err || !span->by_tid)
		return err;
	name_held(t, span);
	return release_held(h, t, out);
}

/* ---- who had the CPU ---- */

struct share {			/* of one process */
	uint64_t ns, longest_ns;
	const struct tl_stint *longest;
};

/* The process that had the CPU for most of [since, until], idle time counting as one. */
static struct share most_of(const struct tl_raw_wait *w)
{
	struct share shares[TL_RAW_MAX_STINTS] = { 0 }, best = { 0 };
	size_t n = 0, k;

	for (uint32_t i = 0; i < w->n_stints && i < TL_RAW_MAX_STINTS; i++) {
		const struct tl_stint *s = &w->stints[i];
		uint64_t from = s->start_ns > w->since_ns ? s->start_ns : w->since_ns;
		uint64_t ns = s->end_ns > from ? s->end_ns - from : 0;

		for (k = 0; k < n && shares[k].longest->tgid != s->tgid; k++)
			;
		if (k == n)
			shares[n++] = (struct share){ .longest = s };
		shares[k].ns += ns;
		if (ns > shares[k].longest_ns) {
			shares[k].longest_ns = ns;
			shares[k].longest = s;
		}
	}
	for (k = 0; k < n; k++)
		best = shares[k].ns > best.ns ? shares[k] : best;
	return best;
}

static struct tl_thread_span span_of_wait(const struct tl_raw_wait *w)
{
	struct tl_thread_span span = {
		.hdr = w->hdr, .since_ns = w->since_ns, .state = TL_SPAN_RUNNABLE, .cpu = w->cpu,
		.from_cpu = w->from_cpu, .major_faults = w->major_faults,
	};
	struct share most = most_of(w);

	span.hdr.size = sizeof(span);
	span.hdr.kind = TL_THREAD_SPAN;
	if (w->cpu != w->from_cpu)
		span.hdr.flags |= TL_SPAN_MIGRATED;
	if (!most.ns)
		return span;
	span.by_ns = most.ns;
	if (!most.longest->tid) {
		span.hdr.flags |= TL_SPAN_IDLE_CPU;
		return span;
	}
	span.by_tgid = most.longest->tgid;
	span.by_tid = most.longest->tid;
	span.by_cgroup = most.longest->cgroup;
	memcpy(span.by_name, most.longest->name, sizeof(span.by_name));
	return span;
}

static int on_span(struct host *h, const struct tl_thread_span *span, const struct emit *out)
{
	struct thread *t = host_thread(h, span->hdr.tgid, span->hdr.tid);
	int err;

	if (!t)
		return emit(out, &span->hdr);
	err = t->told ? 0 : host_tell_thread(h, span->hdr.tid, t, out);
	if (err)
		return err;
	if (span->state == TL_SPAN_SLEEP)
		return on_sleep(h, t, span, out);
	/* It ran for long: it has what it waited for. */
	err = span->state == TL_SPAN_RUN ? release_held(h, t, out) : 0;
	return err ? err : emit(out, &span->hdr);
}

/* What a thread does shows what it is for. */
static int learn(struct host *h, const struct tl_hdr *ev, bool ran_step, const struct emit *out)
{
	struct thread *t = host_thread(h, ev->tgid, ev->tid);
	struct process *p;

	if (!t || (ran_step ? t->ran_step : t->spoke_http))
		return 0;
	t->ran_step |= ran_step;
	t->spoke_http |= !ran_step;
	p = map__get(h->processes, ev->tgid);
	if (ran_step && p) {	/* its helpers show by the CPU time that they take from now on */
		p->gap_ns = 0;
		p->next_scan_ns = 0;
	}
	return host_judge(h, ev->tid, t, 0, out);
}

static void on_proc(struct host *h, const struct tl_raw_proc *ev)
{
	struct process *p = map__get(h->processes, ev->hdr.tgid);

	if (ev->what == TL_PROC_EXIT) {
		forget_process(h, ev->hdr.tgid);
	} else if (p && ev->what == TL_PROC_EXEC) {	/* another program: what was mapped is gone */
		host_stack_forget(p);
		p->n_python_tries = 0;
	}
}

int host__take(struct host *h, const struct tl_hdr *ev, const struct emit *out)
{
	const struct process *p;
	struct tl_thread_span span;
	int err = 0;

	switch (ev->kind) {
	case TL_THREAD_SPAN:
		err = on_span(h, (const void *)ev, out);
		return err ? err : 1;
	case TL_RAW_WAIT:
		span = span_of_wait((const void *)ev);
		p = map__get(h->processes, ev->tgid);
		/* Without a quota an idle CPU is one that was slow to wake. */
		if (p && !host_cgroup_is_limited(h, p))
			span.hdr.flags &= ~TL_SPAN_IDLE_CPU;
		err = on_span(h, &span, out);
		return err ? err : 1;
	case TL_RAW_STACK:
		err = host_stack_take(h, (const void *)ev, out);
		return err ? err : 1;
	case TL_RAW_CHILD:
		err = host_compilers_take(h, (const void *)ev, out);
		return err ? err : 1;
	case TL_RAW_LLAMA_STEP:
		return learn(h, ev, true, out);
	case TL_RAW_NET:
		return learn(h, ev, false, out);
	case TL_RAW_PROC:
		on_proc(h, (const void *)ev);
		return 0;
	default:
		return 0;
	}
}

static int release_old(struct host *h, uint64_t until_ns, const struct emit *out)
{
	int err = 0;

	for (struct thread *t = map__oldest(h->threads, NULL); t && !err;
	     t = map__newer(h->threads, t, NULL)) {
		if (t->held.n && t->held.v[t->held.n - 1].hdr.ts_ns < until_ns)
			err = release_held(h, t, out);
	}
	return err;
}

int host__poll(struct host *h, uint64_t now_ns, const struct emit *out)
{
	int err = release_old(h, now_ns - max_held_ns, out);

	err = err ? err : host_scan(h, now_ns, out);
	err = err ? err : host_cgroup_poll(h, now_ns, out);
	return err ? err : host_bpf_tell_lost(h, now_ns, out);
}

int host__end(struct host *h, uint64_t now_ns, const struct emit *out)
{
	int err = release_old(h, UINT64_MAX, out);

	for (struct process *p = map__oldest(h->processes, NULL); p;
	     p = map__newer(h->processes, p, NULL))
		p->next_scan_ns = 0;
	err = err ? err : host_scan(h, now_ns, out);
	err = err ? err : host_bpf_tell_open(h, now_ns, out);
	err = err ? err : host_compilers_end(h, now_ns, out);
	return err ? err : host_bpf_tell_lost(h, now_ns, out);
}
