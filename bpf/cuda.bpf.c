/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Calls into libcuda: launches as they are made; waits, copies and allocations
 * with the time they take. */
#include "ktypes.h"
#include "maps.h"
#include "cuda_tally.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Its memory is shared with the agent; max_entries is set before load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CUDA_MAX_PROCESSES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cuda_tally);
} tallies SEC(".maps");

/* Their places in it, by tgid: for probes that stand in every process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CUDA_MAX_PROCESSES);
	__type(key, __u32);
	__type(value, __u32);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CUDA_MAX_BURSTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cuda_burst);
} bursts SEC(".maps");

/* Calls that threads are in, each at one of two places by its tid. */
enum { MAX_CALLS = 4096 };
struct call {
	__u64 id;		/* tgid and tid; 0: free */
	__u64 sp, since_ns;
	__u64 stream, what, bytes;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CALLS);
	__type(key, __u32);
	__type(value, struct call);
} calls SEC(".maps");

/* A place that was not given back, because the thread died or its probes were taken off, is free
 * again after this time: for the thread that took it, and for others. */
#define MINE_STALE_NS 1000000000ull
#define STALE_NS 60000000000ull

#define MAX_BURST_NS 100000000ull	/* a longer one is told in parts */

struct launch {			/* an event in the making */
	__u64 id, since_ns, dur_ns;
	__u64 stream, what, bytes;
	__u64 n;
	__u32 flags;
	__u16 call;
};

static __always_inline __u32 bits(__u64 cookie, __u32 shift, __u32 n)
{
	return cookie >> shift & ((1u << n) - 1);
}

static __always_inline __u64 user_word(__u64 addr)
{
	__u64 v = 0;

	bpf_probe_read_user(&v, sizeof(v), (void *)addr);
	return v;
}

static __always_inline __u64 value_at(struct pt_regs *ctx, __u32 place)
{
	switch (place) {
	case 0: return 0;
	case 1: return ctx->di;
	case 2: return ctx->si;
	case 3: return ctx->dx;
	case 4: return ctx->cx;
	case 5: return ctx->r8;
	case 6: return ctx->r9;
	case CUDA_CONFIG: return user_word(ctx->di + CUDA_CONFIG_STREAM);
	}
	return user_word(ctx->sp + 8 * (place - 6));
}

/* NULL: the process is none of ours. */
static __always_inline struct cuda_tally *tally_of(__u64 cookie, __u64 id)
{
	__u32 slot = bits(cookie, CUDA_SLOT_SHIFT, 16), tgid = id >> 32, *known;

	if (slot == CUDA_ANY) {
		known = bpf_map_lookup_elem(&slots, &tgid);
		if (!known)
			return NULL;
		slot = *known;
	}
	return bpf_map_lookup_elem(&tallies, &slot);
}

/* The runs that are timed are picked as in count_run(). */
static __always_inline void count(struct cell *cell, struct cuda_tally *t, __u64 cookie,
				  __u64 start_ns)
{
	__u64 ns;

	cell->runs++;
	__sync_fetch_and_add(&t->runs, 1);
	if (bits(cookie, CUDA_DEAR_SHIFT, 1))
		__sync_fetch_and_add(&t->dear_runs, 1);
	if (start_ns % RUN_SAMPLE)
		return;
	ns = (bpf_ktime_get_ns() - start_ns) * RUN_SAMPLE;
	cell->run_ns += ns;
	__sync_fetch_and_add(&t->run_ns, ns);
}

/* A trial costs what the real thing does, and leaves nothing. */
static __always_inline void send_launch(struct cell *cell, const struct launch *l, bool trial)
{
	struct tl_gpu_launch *ev = bpf_ringbuf_reserve(&events, sizeof(*ev), 0);

	if (!ev) {
		if (!trial)
			cell_add_lost(cell, TL_GPU_LAUNCH, l->since_ns);
		return;
	}
	ev->hdr.size = sizeof(*ev);
	ev->hdr.kind = TL_GPU_LAUNCH;
	ev->hdr.flags = l->flags;
	ev->hdr.tgid = l->id >> 32;
	ev->hdr.tid = (__u32)l->id;
	ev->hdr.ts_ns = l->since_ns;
	ev->dur_ns = l->dur_ns;
	ev->corr = 0;
	ev->stream = l->stream;
	ev->what = l->what;
	ev->bytes = l->bytes;
	ev->n = l->n;
	ev->call = l->call;
	ev->pad = 0;
	if (trial) {
		bpf_ringbuf_discard(ev, BPF_RB_NO_WAKEUP);
		return;
	}
	bpf_ringbuf_submit(ev, wakeup_flag(cell, sizeof(*ev)));
}

/* ---- bursts of kernels ---- */

static __always_inline struct cuda_burst *burst_of(__u64 id)
{
	__u32 at = id % CUDA_MAX_BURSTS;

	return bpf_map_lookup_elem(&bursts, &at);
}

static __always_inline void say_burst(struct cell *cell, struct cuda_burst *b)
{
	struct launch l = { .call = TL_CALL_KERNEL };

	l.n = __sync_lock_test_and_set(&b->n, 0);	/* the agent may be at it, too */
	if (!l.n || !b->id)				/* 0: of a trial */
		return;
	l.id = b->id;
	l.since_ns = b->first_ns;
	l.dur_ns = b->last_ns - b->first_ns;
	l.stream = b->stream;
	l.what = b->what;
	l.flags = b->many ? TL_LAUNCH_MANY : 0;
	send_launch(cell, &l, false);
}

/* This thread is about to wait, or launches a graph: what it launched before stays before that. */
static __always_inline void end_burst(struct cell *cell, __u64 id)
{
	struct cuda_burst *b = burst_of(id);

	if (b && b->n && b->id == id)
		say_burst(cell, b);
}

static __always_inline void add_to_burst(struct cell *cell, const struct launch *l)
{
	struct cuda_burst *b = burst_of(l->id);

	if (!b)
		return;
	if (b->n && (b->id != l->id || l->since_ns - b->first_ns > MAX_BURST_NS))
		say_burst(cell, b);
	if (!b->n) {
		b->id = l->id;
		b->first_ns = l->since_ns;
		b->many = 0;
	} else if (b->stream != l->stream || b->what != l->what) {
		b->many = 1;
	}
	b->last_ns = l->since_ns;
	b->stream = l->stream;
	b->what = l->what;
	__sync_fetch_and_add(&b->n, 1);
}

/* ---- calls of which the begin is enough ---- */

SEC("?uprobe")
int cuda_launch(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct cell *cell = this_cell();
	struct launch l = {
		.id = bpf_get_current_pid_tgid(), .n = 1, .call = bits(cookie, CUDA_CALL_SHIFT, 8),
		.flags = bits(cookie, CUDA_FLAGS_SHIFT, 8),
	};
	struct cuda_tally *t = tally_of(cookie, l.id);
	bool trial = bits(cookie, CUDA_TRIAL_SHIFT, 1);

	if (!cell || !t)
		return 0;
	cell->hits++;
	l.since_ns = bpf_ktime_get_ns();
	l.stream = value_at(ctx, bits(cookie, CUDA_STREAM_SHIFT, 4));
	l.what = value_at(ctx, bits(cookie, CUDA_WHAT_SHIFT, 4));
	l.bytes = value_at(ctx, bits(cookie, CUDA_BYTES_SHIFT, 4));
	if (trial)
		l.id = 0;
	if (l.call == TL_CALL_KERNEL) {
		__sync_fetch_and_add(&t->kernels, 1);
		if (t->mode == CUDA_COUNTED) {
			add_to_burst(cell, &l);
			count(cell, t, cookie, l.since_ns);
			return 0;
		}
	} else if (l.call == TL_CALL_GRAPH) {
		__sync_fetch_and_add(&t->graphs, 1);
		end_burst(cell, l.id);
	} else {
		__sync_fetch_and_add(&t->copies, 1);
	}
	send_launch(cell, &l, trial);
	count(cell, t, cookie, l.since_ns);
	return 0;
}

/* ---- calls that take time ---- */

static __always_inline struct call *call_at(__u64 id, bool second)
{
	__u32 at = (second ? id * 2654435761u >> 7 : id) % MAX_CALLS;

	return bpf_map_lookup_elem(&calls, &at);
}

static __always_inline bool is_free(const struct call *c, __u64 id, __u64 now)
{
	return !c->id || c->id == id || now - c->since_ns > STALE_NS;
}

SEC("?uprobe")
int cuda_enter(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx), id = bpf_get_current_pid_tgid(), sp = ctx->sp;
	__u64 now = bpf_ktime_get_ns();
	struct call *c = call_at(id, false), *other = call_at(id, true);
	struct cuda_tally *t = tally_of(cookie, id);
	struct cell *cell = this_cell();

	if (!cell || !t || !c || !other)
		return 0;
	cell->hits++;
	if (other->id == id || !is_free(c, id, now))
		c = other;
	if (!is_free(c, id, now)) {
		cell_add_lost(cell, TL_GPU_LAUNCH, now);
		return 0;
	}
	/* Called from within another call that is followed: that one holds this one's time. */
	if (c->id == id && sp < c->sp && now - c->since_ns < MINE_STALE_NS)
		return 0;
	c->id = id;
	c->sp = sp;
	c->since_ns = now;
	c->stream = value_at(ctx, bits(cookie, CUDA_STREAM_SHIFT, 4));
	c->what = value_at(ctx, bits(cookie, CUDA_WHAT_SHIFT, 4));
	c->bytes = value_at(ctx, bits(cookie, CUDA_BYTES_SHIFT, 4));
	end_burst(cell, id);
	count(cell, t, cookie, now);
	return 0;
}

/* Older kernels run it once per process that has this function probed: only
 * the first finds the call. */
SEC("?uretprobe")
int cuda_leave(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	struct cell *cell = this_cell();
	struct launch l = {
		.id = bpf_get_current_pid_tgid(), .n = 1, .call = bits(cookie, CUDA_CALL_SHIFT, 8),
		.flags = bits(cookie, CUDA_FLAGS_SHIFT, 8),
	};
	struct cuda_tally *t = tally_of(cookie, l.id);
	struct call *c = call_at(l.id, false);
	__u64 now;

	if (c && c->id != l.id)
		c = call_at(l.id, true);
	if (!cell || !t || !c)
		return 0;
	cell->hits++;
	if (c->id != l.id || c->sp + 8 != ctx->sp)
		return 0;
	now = bpf_ktime_get_ns();
	l.since_ns = c->since_ns;
	l.dur_ns = now - c->since_ns;
	l.stream = c->stream;
	l.what = c->what;
	l.bytes = c->bytes;
	c->id = 0;
	if ((int)ctx->ax)
		l.flags |= TL_LAUNCH_FAILED;
	if (l.call == TL_CALL_SYNC)
		__sync_fetch_and_add(&t->syncs, 1);
	else if (l.call == TL_CALL_COPY)
		__sync_fetch_and_add(&t->copies, 1);
	send_launch(cell, &l, bits(cookie, CUDA_TRIAL_SHIFT, 1));
	count(cell, t, cookie, now);
	return 0;
}
