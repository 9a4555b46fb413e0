/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and attaches the programs that watch the scheduler, and tells them whom to follow. */
#include "net.skel.h"
#include "sched.skel.h"
#include "source/bpf_priv.h"
#include "source/host_priv.h"
#include "source/probes.h"
#include "../../bpf/sched_thread.h"
#include "../../bpf/target_bits.h"
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BATCH = 256, SAMPLES_PER_SECOND = 99, MIN_OPEN_NS = 5000000 };

static bool is_mine(size_t row)
{
	return probes[row].family == PROBE_SCHED;
}

static int set_up(struct host *h, struct sched_bpf *sched)
{
	struct net_bpf *net = h->bpf->net;
	int err;

	sched->rodata->wakeup_bytes = net->rodata->wakeup_bytes;
	sched->rodata->has_prev_state = !h->no_prev_state;
	sched->rodata->cpu_cgroup_v1 = host_cgroup_is_v1(h);
	err = bpf_map__reuse_fd(sched->maps.events, bpf_map__fd(net->maps.events));
	err = err ? err : bpf_map__reuse_fd(sched->maps.cells, bpf_map__fd(net->maps.cells));
	err = err ? err : bpf_map__set_max_entries(sched->maps.stacks, h->bpf->n_cpus);
	err = err ? err : bpf_map__set_max_entries(sched->maps.tallies, h->bpf->n_cpus);
	return err ? err : bpf_map__set_max_entries(sched->maps.cpus, h->bpf->n_cpus);
}

static int try_load(struct host *h, uint64_t rows)
{
	struct sched_bpf *sched = sched_bpf__open();
	int err;

	if (!sched)
		return -errno;
	for (size_t i = 0; i < n_probes; i++) {
		if (rows >> i & 1)
			bpf_program__set_autoload(bpf_object__find_program_by_name(sched->obj,
						  probes[i].prog), true);
	}
	err = set_up(h, sched);
	err = err ? err : sched_bpf__load(sched);
	if (err)
		sched_bpf__destroy(sched);
	else
		h->sched = sched;
	return err;
}

/* All programs; if that fails, those that can be loaded one by one. */
static int load(struct host *h)
{
	uint64_t rows = 0;
	int err;

	for (size_t i = 0; i < n_probes; i++)
		rows |= (uint64_t)is_mine(i) << i;
	err = try_load(h, rows);
	if (err && err != -ENOMEM) {	/* asked of the verifier: to read the
					 * kernel's types takes longer */
		h->no_prev_state = true;
		err = try_load(h, rows);
	}
	if (!err || err == -ENOMEM)
		return err;
	for (size_t i = 0; i < n_probes; i++) {
		if (!is_mine(i))
			continue;
		err = try_load(h, 1ull << i);
		sched_bpf__destroy(h->sched);
		h->sched = NULL;
		h->bpf->row_errs[i] = err;
		if (err)
			rows &= ~(1ull << i);
	}
	return rows ? try_load(h, rows) : err;
}

/* On each CPU: a thread may run on any. 0 if one at least could be started. */
static int start_timers(struct host *h, struct bpf_program *prog)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .config = PERF_COUNT_SW_CPU_CLOCK,
		.freq = 1, .sample_freq = SAMPLES_PER_SECOND,
	};
	int err = -ENOENT;
	bool any = false;

	h->timers = calloc(h->bpf->n_cpus, sizeof(*h->timers));
	if (!h->timers)
		return -ENOMEM;
	for (int cpu = 0; cpu < h->bpf->n_cpus; cpu++) {
		int fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

		h->timers[cpu] = fd < 0 ? NULL : bpf_program__attach_perf_event(prog, fd);
		if (!h->timers[cpu])
			err = -errno;	/* mostly: that CPU is off */
		if (!h->timers[cpu] && fd >= 0)
			close(fd);
		any |= h->timers[cpu] != NULL;
	}
	return any ? 0 : err;
}

int host_bpf_open(struct host *h)
{
	int err = load(h);

	for (size_t i = 0; i < n_probes; i++) {
		struct bpf_program *prog;

		if (!is_mine(i))
			continue;
		if (err) {
			h->bpf->row_errs[i] = h->bpf->row_errs[i] ? h->bpf->row_errs[i] : err;
			continue;
		}
		if (h->bpf->row_errs[i])
			continue;
		prog = bpf_object__find_program_by_name(h->sched->obj, probes[i].prog);
		if (probes[i].type == PROBE_TIMER) {
			h->bpf->row_errs[i] = start_timers(h, prog);
			h->bpf->on |= (uint64_t)!h->bpf->row_errs[i] << i;
			continue;
		}
		h->bpf->links[i] = bpf_program__attach(prog);
		if (h->bpf->links[i])
			h->bpf->on |= 1ull << i;
		else
			h->bpf->row_errs[i] = -errno;
	}
	h->bpf->sched = h->sched ? h->sched->obj : NULL;
	return err == -ENOMEM ? err : 0;
}

void host_bpf_close(struct host *h)
{
	for (size_t i = 0; i < n_probes; i++) {
		if (!is_mine(i))
			continue;
		bpf_link__destroy(h->bpf->links[i]);
		h->bpf->links[i] = NULL;
	}
	for (int cpu = 0; h->timers && cpu < h->bpf->n_cpus; cpu++)
		bpf_link__destroy(h->timers[cpu]);
	free(h->timers);
	h->bpf->sched = NULL;
	sched_bpf__destroy(h->sched);
}

int host_bpf_follow(struct host *h)
{
	uint64_t bits[N_TARGET_WORDS] = { 0 }, key;
	uint32_t watch, tgid, *prev = NULL;
	int err = 0;

	if (!h->sched)
		return 0;
	for (struct process *p = map__oldest(h->processes, &key); p && !err;
	     p = map__newer(h->processes, p, &key)) {
		tgid = key;
		watch = thread_watch(p->engine, p->role, TL_ROLE_OTHER);
		bits[TARGET_WORD(tgid)] |= TARGET_BIT(tgid);
		err = bpf_map__update_elem(h->sched->maps.followed, &tgid, sizeof(tgid), &watch,
					   sizeof(watch), BPF_ANY);
	}
	/* Those that are gone; the walk begins anew behind a key that was deleted. */
	while (!bpf_map__get_next_key(h->sched->maps.followed, prev, &tgid, sizeof(tgid))) {
		prev = &tgid;
		if (map__get(h->processes, tgid))
			continue;
		bpf_map__delete_elem(h->sched->maps.followed, &tgid, sizeof(tgid), 0);
		prev = NULL;
	}
	for (size_t i = 0; i < N_TARGET_WORDS; i++)
		__atomic_store_n(&h->sched->bss->followed_bits[i], bits[i], __ATOMIC_RELAXED);
	return err;
}

void host_bpf_watch(struct host *h, const struct process *p, uint32_t tid, uint32_t watch)
{
	uint32_t *asked = map__get(h->watches, tid);

	if (!h->sched ||
	    watch == (asked ? *asked : thread_watch(p->engine, p->role, TL_ROLE_OTHER)))
		return;
	asked = map__put(h->watches, tid, NULL);
	if (!asked)
		return;		/* full: that thread is not watched */
	*asked = watch;
	bpf_map__update_elem(h->sched->maps.watched, &tid, sizeof(tid), &watch, sizeof(watch),
			     BPF_ANY);
	__atomic_fetch_add(&h->sched->bss->watch_gen, 1, __ATOMIC_RELEASE);
}

void host_bpf_cpu_times(struct host *h,
			void (*fn)(void *ctx, uint32_t tgid, uint32_t tid, uint64_t cpu_ns),
			void *ctx)
{
	struct sched_thread values[BATCH];
	uint32_t keys[BATCH], cursor = 0, n = BATCH;
	bool first = true;
	int err = 0, map;

	if (!h->sched)
		return;
	map = bpf_map__fd(h->sched->maps.threads);
	for (; !err; first = false, n = BATCH) {
		uint64_t now = monotonic_ns();

		err = bpf_map_lookup_batch(map, first ? NULL : &cursor, &cursor, keys, values, &n,
					   NULL);
		if (err && err != -ENOENT)	/* that says: these were the last */
			return;
		for (uint32_t i = 0; i < n; i++) {
			const struct sched_thread *t = &values[i];
			uint64_t running = t->where == ON_CPU && t->on_ns && now > t->on_ns ? now - t->on_ns : 0;

			fn(ctx, t->tgid, keys[i], t->cpu_ns + running);
		}
	}
}

bool host_bpf_is_busy(struct host *h, uint32_t tid, uint64_t since_ns)
{
	struct sched_thread t;

	return h->sched &&
	       !bpf_map__lookup_elem(h->sched->maps.threads, &tid, sizeof(tid), &t, sizeof(t), 0) &&
	       t.where != ASLEEP && t.awake_ns <= since_ns;
}

/* A thread that waits since before the capture's end, and for longer than what is told anyway. */
static bool open_wait(const struct sched_thread *t, uint64_t now_ns, struct tl_thread_span *ret)
{
	bool ready = t->where == READY;

	if (t->where == ON_CPU || (!ready && t->wait != TL_WAIT_DISK && t->wait != TL_WAIT_STOPPED))
		return false;
	ret->since_ns = ready ? t->ready_ns : t->off_ns;
	ret->state = ready ? TL_SPAN_RUNNABLE : TL_SPAN_SLEEP;
	ret->wait = ready ? TL_WAIT_OTHER : t->wait;
	ret->cpu = ret->from_cpu = t->cpu;
	ret->major_faults = !ready && t->fault;
	return ret->since_ns && now_ns > ret->since_ns + MIN_OPEN_NS;
}

int host_bpf_tell_open(struct host *h, uint64_t now_ns, const struct emit *out)
{
	int err = 0;
	uint64_t key;

	for (struct thread *t = map__oldest(h->threads, &key); h->sched && t && !err;
	     t = map__newer(h->threads, t, &key)) {
		uint32_t tid = key;
		struct sched_thread s;
		struct tl_thread_span span = {
			.hdr = { sizeof(span), TL_THREAD_SPAN, TL_F_TRUNC, t->tgid, tid, now_ns },
		};

		if (bpf_map__lookup_elem(h->sched->maps.threads, &tid, sizeof(tid), &s, sizeof(s),
					 0)) {
			/* It never left a CPU, nor came to one. */
			if (!host_is_stopped(t->tgid, tid))
				continue;
			span.since_ns = h->start_ns;
			span.state = TL_SPAN_SLEEP;
			span.wait = TL_WAIT_STOPPED;
		} else if (!open_wait(&s, now_ns, &span)) {
			continue;
		}
		err = t->told ? 0 : host_tell_thread(h, tid, t, out);
		err = err ? err : emit(out, &span.hdr);
	}
	return err;
}

/* Spans that the programs did not tell: for want of room, or because they were too many. */
int host_bpf_tell_lost(struct host *h, uint64_t now_ns, const struct emit *out)
{
	uint64_t n = h->sched ? __atomic_load_n(&h->sched->bss->n_untold, __ATOMIC_ACQUIRE) : 0;
	struct tl_lost ev = {
		.hdr = { sizeof(ev), TL_LOST, 0, 0, 0, now_ns },
		.n = n - h->n_untold,
		.where = TL_LOST_SCRATCH,
		.what = TL_THREAD_SPAN,
	};

	if (!ev.n)
		return 0;
	ev.since_ns = h->sched->bss->untold_first_ns;
	ev.hdr.ts_ns = h->sched->bss->untold_last_ns;
	h->sched->bss->untold_first_ns = 0;
	h->n_untold = n;
	return emit(out, &ev.hdr);
}
