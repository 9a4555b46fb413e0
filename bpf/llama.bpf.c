/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* llama.cpp from inside: what each engine step computes, and which task runs on which slot. */
#include "ktypes.h"
#include "maps.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * No program here checks the process: the probes are attached to one, and the kernel runs them for
 * no other. They may be preempted by another thread's run on the same CPU, so nothing is per CPU.
 */

enum {
	BLOCK = 64,			/* tokens of a struct llama_batch that are read at once */
	BLOCKS_PART = 32,
	MAX_BLOCKS = 1024,
	STEP_HEAD = sizeof(struct tl_raw_llama_step) -
		    TL_LLAMA_MAX_RUNS * sizeof(struct tl_llama_run),
	MAX_TASKS_PER_POST = 64,
};

/* ---- state ---- */

/* Of the current generation, a batch that is filled by calls, and then the step that computes it.
 * An opaque struct llama_batch_ext, told by its address. */
struct built {
	__u64 batch;
	struct tl_raw_llama_step ev;
};

/*
 * All state is per thread, in one piece: a thread that fills a batch also runs it. It may
 * fill two at a time, for a target and a draft model. A hash map by address was tried:
 * twice the time per token.
 */
enum { N_BUILT = 2, PASSED = 2 };	/* PASSED: place of a batch that is passed by value */
struct work {
	__u64 sp;			/* of the caller of the step that
					 * the thread is in; 0: in none */
	__u32 step;			/* its place in built */
	__u32 last;			/* place used last of the first two */
	struct built built[N_BUILT + 1];
	/* one block of the arrays of a struct llama_batch */
	__u64 seqs[BLOCK];
	__s32 pos[BLOCK];
	__u8 logits[BLOCK];
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct work);
} works SEC(".maps");

/* sizeof(server_task) of a process, learnt: the shortest list of tasks that was posted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} task_sizes SEC(".maps");

static __always_inline struct tl_hdr hdr_of(__u16 size, __u16 kind, __u64 ts_ns)
{
	__u64 id = bpf_get_current_pid_tgid();

	return (struct tl_hdr){ size, kind, 0, id >> 32, (__u32)id, ts_ns };
}

/* For programs that need no clock: nearly random, to time one hit in so many whatever the pattern
 * of calls is. Returns 0, or when a hit that is timed began. */
static __always_inline __u64 hit_begin(struct cell *c)
{
	c->runs++;
	c->hits++;
	return (__u32)c->hits * 2654435769u >> 28 ? 0 : bpf_ktime_get_ns();
}

static __always_inline void hit_end(struct cell *c, __u64 start_ns)
{
	if (start_ns)
		c->run_ns += (bpf_ktime_get_ns() - start_ns) * RUN_SAMPLE;
}

/* And for those that do. */
static __always_inline void count_hit(struct cell *c, __u64 start_ns)
{
	c->hits++;
	count_run(c, start_ns);
}

/* ---- tokens to runs ---- */

/* pos -1: unknown */
static __always_inline void add_token(struct tl_raw_llama_step *ev, __s32 seq, __s32 pos, bool out)
{
	__u32 last = ev->n_runs - 1, next = ev->n_runs;
	struct tl_llama_run *run;

	ev->n_tokens++;
	if (last < TL_LLAMA_MAX_RUNS) {
		run = &ev->runs[last];
		if (run->seq == seq && (pos < 0 || pos == run->pos + run->n_tokens)) {
			run->n_tokens++;
			run->n_out += out;
			return;
		}
	}
	if (next >= TL_LLAMA_MAX_RUNS) {
		ev->hdr.flags |= TL_F_TRUNC;
		return;
	}
	ev->runs[next] = (struct tl_llama_run){ seq, 1, pos, out };
	ev->n_runs = next + 1;
}

/* ---- the current generation fills a batch by calls ---- */

static __always_inline struct work *this_work(struct cell *c)
{
	struct work *w = bpf_task_storage_get(&works, bpf_get_current_task_btf(), NULL,
					      BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!w)
		cell_add_lost(c, TL_RAW_LLAMA_STEP, bpf_ktime_get_ns());
	return w;
}

/* The place of a batch; a new one begins as if nothing of it were known, till it is cleared. */
static __always_inline struct tl_raw_llama_step *batch_of(struct work *w, void *batch)
{
	__u32 i = w->last & 1;

	if (w->built[i].batch != (__u64)batch) {
		i ^= 1;
		w->last = i;
		if (w->built[i].batch != (__u64)batch) {
			w->built[i].batch = (__u64)batch;
			w->built[i].ev.hdr.flags = TL_F_JOINED;
			w->built[i].ev.n_tokens = w->built[i].ev.n_runs = 0;
		}
	}
	return &w->built[i].ev;
}

SEC("?uprobe")
int BPF_KPROBE(batch_clear, void *batch)
{
	struct tl_raw_llama_step *ev;
	struct cell *c = this_cell();
	struct work *w;
	__u64 start;

	if (!c)
		return 0;
	start = hit_begin(c);
	w = this_work(c);
	if (!w)
		return 0;
	ev = batch_of(w, batch);
	ev->hdr.flags = ev->n_tokens = ev->n_runs = 0;
	hit_end(c, start);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(batch_add, void *batch, int seq)
{
	struct cell *c = this_cell();
	struct work *w;
	__u64 start;

	if (!c)
		return 0;
	start = hit_begin(c);
	w = this_work(c);
	if (!w)
		return 0;
	add_token(batch_of(w, batch), seq, -1, false);
	hit_end(c, start);
	return 0;
}

/* Called for output tokens only, mostly the one just added. */
SEC("?uprobe")
int BPF_KPROBE(batch_output, void *batch, __u32 idx, bool wanted)
{
	struct tl_raw_llama_step *ev;
	struct cell *c = this_cell();
	struct work *w;
	__u64 start;
	__u32 end, n;

	if (!c || !wanted)
		return 0;
	start = hit_begin(c);
	w = this_work(c);
	if (!w)
		return 0;
	ev = batch_of(w, batch);
	end = ev->n_tokens;
	n = ev->n_runs;
	for (int i = 0; i < TL_LLAMA_MAX_RUNS; i++) {
		n--;
		barrier_var(n);		/* else two numbers are made of
					 * it, and the bound is on one */
		if (n >= TL_LLAMA_MAX_RUNS)
			break;
		end -= ev->runs[n].n_tokens;
		if (idx >= end) {
			ev->runs[n].n_out++;
			break;
		}
	}
	hit_end(c, start);
	return 0;
}

/* ---- the older generation passes struct llama_batch by value, which is on the stack ---- */

struct llama_batch {
	__s32 n_tokens, pad;
	__u64 token, embd, pos, n_seq_id, seq_id, logits;
};

/* Global functions, so that the verifier looks at each once. */
__noinline int take_token(struct work *s, __u32 i, bool last)
{
	__s32 seq = 0, pos = -1;
	bool out = last;

	if (!s || i >= BLOCK)
		return -1;
	if (s->seqs[i])
		bpf_probe_read_user(&seq, sizeof(seq), (void *)s->seqs[i]);
	pos = s->pos[i];
	if (s->logits[i] != 0xff)
		out = s->logits[i];
	add_token(&s->built[PASSED].ev, seq, pos, out);
	return 0;
}

/* Tokens [first, first + BLOCK) of the batch. An array that is NULL means: sequence 0, positions as
 * they follow, output of the last token only. */
__noinline int take_block(struct work *s, struct llama_batch *b, __u32 first)
{
	__u32 n;

	if (!s || !b || first >= b->n_tokens)
		return -1;
	n = b->n_tokens - first;
	if (n > BLOCK)
		n = BLOCK;
	__builtin_memset(s->seqs, 0, sizeof(s->seqs));
	__builtin_memset(s->pos, 0xff, sizeof(s->pos));
	__builtin_memset(s->logits, 0xff, sizeof(s->logits));
	if (b->seq_id)
		bpf_probe_read_user(s->seqs, n * 8, (void *)(b->seq_id + first * 8ull));
	if (b->pos)
		bpf_probe_read_user(s->pos, n * 4, (void *)(b->pos + first * 4ull));
	if (b->logits)
		bpf_probe_read_user(s->logits, n, (void *)(b->logits + first));
	for (int i = 0; i < BLOCK; i++) {
		if (i >= n)
			break;
		take_token(s, i, first + i + 1 == b->n_tokens);
	}
	return 0;
}

/* Loops in loops of global functions: the verifier walks each once. */
__noinline int take_blocks(struct work *w, struct llama_batch *b, __u32 first)
{
	for (int i = 0; i < BLOCKS_PART; i++)
		if (take_block(w, b, first + i * BLOCK))
			return -1;
	return 0;
}

/* ---- steps ---- */

/* False for a call inside a call, of which the outer one counts. A step whose return was missed (an
 * exception went through it) does not hide later ones: these have no deeper stack. */
static __always_inline bool step_begin(struct work *w, struct pt_regs *ctx, __u32 place,
				       struct tl_raw_llama_step *ev, void *llama, __u64 now)
{
	if (w->sp && PT_REGS_SP(ctx) < w->sp)
		return false;
	w->sp = PT_REGS_SP(ctx);
	w->step = place;
	ev->hdr.ts_ns = now;
	ev->ctx = (__u64)llama;
	return true;
}

SEC("?uprobe")
int BPF_KPROBE(step_process, void *llama, int type, void *batch)
{
	__u64 now = bpf_ktime_get_ns();
	struct tl_raw_llama_step *ev;
	struct cell *c = this_cell();
	struct work *w;

	if (!c)
		return 0;
	w = this_work(c);
	if (!w)
		return 0;
	ev = batch_of(w, batch);
	step_begin(w, ctx, w->last & 1, ev, llama, now);
	count_hit(c, now);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(step_decode, void *llama)
{
	__u64 now = bpf_ktime_get_ns();
	struct tl_raw_llama_step *ev;
	struct cell *c = this_cell();
	struct llama_batch b = {};
	struct work *w;

	if (!c)
		return 0;
	w = this_work(c);
	if (!w)
		return 0;
	ev = &w->built[PASSED].ev;
	if (!step_begin(w, ctx, PASSED, ev, llama, now))
		return 0;
	bpf_probe_read_user(&b, sizeof(b), (void *)(PT_REGS_SP(ctx) + 8));
	ev->hdr.flags = ev->n_tokens = ev->n_runs = 0;
	for (int i = 0; i < MAX_BLOCKS; i += BLOCKS_PART) {
		if (take_blocks(w, &b, i * BLOCK))
			break;
	}
	if (b.n_tokens > MAX_BLOCKS * BLOCK) {
		ev->n_tokens = b.n_tokens;
		ev->hdr.flags |= TL_F_TRUNC;
	}
	count_hit(c, now);
	return 0;
}

SEC("?uretprobe")
int BPF_KRETPROBE(step_return, int result)
{
	__u64 now = bpf_ktime_get_ns();
	struct tl_raw_llama_step *ev;
	struct cell *c = this_cell();
	struct work *w;
	struct tl_hdr hdr;
	__u32 n, at;

	if (!c)
		return 0;
	w = bpf_task_storage_get(&works, bpf_get_current_task_btf(), NULL, 0);
	if (!w || PT_REGS_SP(ctx) != w->sp + 8)
		return 0;
	w->sp = 0;
	at = w->step;
	if (at > PASSED)
		return 0;
	ev = &w->built[at].ev;
	n = ev->n_runs;
	if (n > TL_LLAMA_MAX_RUNS)
		return 0;
	n = STEP_HEAD + n * sizeof(ev->runs[0]);
	hdr = hdr_of(n, TL_RAW_LLAMA_STEP, ev->hdr.ts_ns);
	hdr.flags = ev->hdr.flags;
	ev->hdr = hdr;
	ev->end_ns = now;
	ev->result = result;
	ev->api = at == PASSED ? 2 : 1;
	send_event(c, &ev->hdr, n);
	count_hit(c, now);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(seq_rm, void *mem, int seq, int p0, int p1)
{
	struct tl_raw_llama_seq_rm ev = {
		.hdr = hdr_of(sizeof(ev), TL_RAW_LLAMA_SEQ_RM, bpf_ktime_get_ns()),
		.seq = seq,
		.p0 = p0,
		.p1 = p1,
	};
	struct cell *c = this_cell();

	if (!c)
		return 0;
	send_event(c, &ev.hdr, sizeof(ev));
	count_hit(c, ev.hdr.ts_ns);
	return 0;
}

/* ---- tasks and slots ---- */

/* First members of struct server_task, as all builds had them so far. */
struct server_task {
	__s32 id, pad;
	__u64 index;
	__s32 id_target, id_slot, id_parent;
};

static __always_inline void send_task(struct cell *c, __u64 now, __u32 what, __s32 task, __s32 slot,
				      __s32 parent)
{
	struct tl_raw_llama_task ev = {
		.hdr = hdr_of(sizeof(ev), TL_RAW_LLAMA_TASK, now),
		.what = what,
		.task = task,
		.slot = slot,
		.parent = parent,
	};

	send_event(c, &ev.hdr, sizeof(ev));
}

static __always_inline __u32 learn_task_size(__u64 bytes)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, size = bytes;
	__u32 *known = bpf_map_lookup_elem(&task_sizes, &tgid);

	if (known && *known <= bytes)
		return *known;
	bpf_map_update_elem(&task_sizes, &tgid, &size, BPF_ANY);
	return size;
}

__noinline int send_post(__u64 at, __u64 now)
{
	struct cell *c = this_cell();
	struct server_task t;

	if (!c || bpf_probe_read_user(&t, sizeof(t), (void *)at))
		return -1;
	if (t.id >= 0)
		send_task(c, now, TL_TASK_POST, t.id, -1, t.id_parent);
	else
		send_task(c, now, TL_TASK_CANCEL, t.id_target, -1, -1);
	return 0;
}

/* server_queue::post(std::vector<server_task> &&, bool front): a request's tasks, or a cancel. */
SEC("?uprobe")
int BPF_KPROBE(task_post, void *queue, void *tasks)
{
	__u64 now = bpf_ktime_get_ns(), range[2] = {}, at;
	struct cell *c = this_cell();
	__u32 size;

	if (!c || bpf_probe_read_user(range, sizeof(range), tasks) ||
	    range[1] < range[0] + sizeof(struct server_task))
		return 0;
	size = learn_task_size(range[1] - range[0]);
	at = range[0];
	for (int i = 0; i < MAX_TASKS_PER_POST; i++) {
		if (at + sizeof(struct server_task) > range[1] || send_post(at, now))
			break;
		at += size;
	}
	count_hit(c, now);
	return 0;
}

/* server_context_impl::launch_slot_with_task(server_slot &, server_task &&) */
SEC("?uprobe")
int BPF_KPROBE(task_launch, void *server, void *slot, void *task)
{
	__u64 now = bpf_ktime_get_ns();
	struct cell *c = this_cell();
	struct server_task t = {};
	__s32 id = -1;

	if (!c)
		return 0;
	bpf_probe_read_user(&id, sizeof(id), slot);
	if (!bpf_probe_read_user(&t, sizeof(t), task))
		send_task(c, now, TL_TASK_LAUNCH, t.id, id, t.id_parent);
	count_hit(c, now);
	return 0;
}

/* server_slot::release() */
SEC("?uprobe")
int BPF_KPROBE(slot_release, void *slot)
{
	__u64 now = bpf_ktime_get_ns();
	struct cell *c = this_cell();
	__s32 id;

	if (!c)
		return 0;
	if (!bpf_probe_read_user(&id, sizeof(id), slot))
		send_task(c, now, TL_TASK_RELEASE, -1, id, -1);
	count_hit(c, now);
	return 0;
}
