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
	MAX_BLOCKS = 1024,
	STEP_HEAD = sizeof(struct tl_raw_llama_step) - TL_LLAMA_MAX_RUNS * sizeof(struct tl_llama_run),
	MAX_TASKS_PER_POST = 64,
	SAMPLE = 16,			/* of the hits per token one in so many is timed */
};

/* ---- state ---- */

/* A batch that is being filled, of the current generation: an opaque struct llama_batch_ext. */
struct batch_key {
	__u64 batch;
	__u32 tgid, pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 512);
	__type(key, struct batch_key);
	__type(value, struct tl_raw_llama_step);
} batches SEC(".maps");

/* The step that a thread is in. */
struct step {
	__u64 sp;			/* of the caller at entry; 0: in none */
	struct tl_raw_llama_step ev;
	/* one block of the arrays of a struct llama_batch */
	__u64 seqs[BLOCK];
	__s32 pos[BLOCK];
	__u8 logits[BLOCK];
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct step);
} steps SEC(".maps");

/* All zeros, to make new values of `batches`: too big for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tl_raw_llama_step);
} blanks SEC(".maps");

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

static __always_inline void count_hits(__u64 start_ns, __u32 weight)
{
	struct cell *c = this_cell();

	if (c)
		c->hits += weight;
	count_run(start_ns, weight);
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

static __always_inline struct tl_raw_llama_step *batch_of(void *batch, bool *ret_new)
{
	struct batch_key key = { (__u64)batch, bpf_get_current_pid_tgid() >> 32, 0 };
	struct tl_raw_llama_step *ev = bpf_map_lookup_elem(&batches, &key), *blank;
	__u32 zero = 0;

	*ret_new = !ev;
	if (ev)
		return ev;
	blank = bpf_map_lookup_elem(&blanks, &zero);
	if (blank)
		bpf_map_update_elem(&batches, &key, blank, BPF_ANY);
	return bpf_map_lookup_elem(&batches, &key);
}

SEC("?uprobe")
int BPF_KPROBE(batch_clear, void *batch)
{
	__u64 start = bpf_ktime_get_ns();
	struct tl_raw_llama_step *ev;
	bool new;

	ev = batch_of(batch, &new);
	if (ev)
		ev->hdr.flags = ev->n_tokens = ev->n_runs = 0;
	count_hits(start, 1);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(batch_add, void *batch, int seq)
{
	struct tl_raw_llama_step *ev;
	__u64 start = 0;
	bool new;

	if (bpf_get_prandom_u32() % SAMPLE == 0)
		start = bpf_ktime_get_ns();
	ev = batch_of(batch, &new);
	if (!ev)
		return 0;
	if (new)
		ev->hdr.flags = TL_F_JOINED;	/* its clear was not seen, nor what else came before */
	add_token(ev, seq, -1, false);
	if (start)
		count_hits(start, SAMPLE);
	return 0;
}

/* Called for output tokens only, mostly the one just added. */
SEC("?uprobe")
int BPF_KPROBE(batch_output, void *batch, __u32 idx, bool wanted)
{
	__u64 start = bpf_ktime_get_ns();
	struct tl_raw_llama_step *ev;
	__u32 end;
	bool new;

	ev = batch_of(batch, &new);
	if (!ev || !wanted)
		return 0;
	end = ev->n_tokens;
	for (int i = TL_LLAMA_MAX_RUNS - 1; i >= 0; i--) {
		if (i >= ev->n_runs)
			continue;
		end -= ev->runs[i].n_tokens;
		if (idx >= end) {
			ev->runs[i].n_out++;
			break;
		}
	}
	count_hits(start, 1);
	return 0;
}

/* ---- the older generation passes struct llama_batch by value, which is on the stack ---- */

struct llama_batch {
	__s32 n_tokens, pad;
	__u64 token, embd, pos, n_seq_id, seq_id, logits;
};

/* Global functions, so that the verifier looks at each once. */
__noinline int take_token(struct step *s, __u32 i, bool last)
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
	add_token(&s->ev, seq, pos, out);
	return 0;
}

/* Tokens [first, first + BLOCK) of the batch. An array that is NULL means: sequence 0, positions as
 * they follow, output of the last token only. */
__noinline int take_block(struct step *s, struct llama_batch *b, __u32 first)
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

/* ---- steps ---- */

/* NULL: no memory, or a call inside a call, of which the outer one counts. A step whose return was
 * missed (an exception went through it) does not hide later ones: these have no deeper stack. */
static __always_inline struct step *step_begin(struct pt_regs *ctx, void *llama, __u32 api, __u64 now)
{
	struct step *s = bpf_task_storage_get(&steps, bpf_get_current_task_btf(), NULL,
					      BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!s) {
		count_lost(TL_RAW_LLAMA_STEP);
		return NULL;
	}
	if (s->sp && PT_REGS_SP(ctx) < s->sp)
		return NULL;
	s->sp = PT_REGS_SP(ctx);
	s->ev.hdr = hdr_of(0, TL_RAW_LLAMA_STEP, now);
	s->ev.ctx = (__u64)llama;
	s->ev.api = api;
	s->ev.n_tokens = s->ev.n_runs = 0;
	return s;
}

SEC("?uprobe")
int BPF_KPROBE(step_process, void *llama, int type, void *batch)
{
	__u64 start = bpf_ktime_get_ns();
	struct step *s = step_begin(ctx, llama, 1, start);
	struct tl_raw_llama_step *ev;
	__u32 n;
	bool new;

	if (!s)
		return 0;
	ev = batch_of(batch, &new);
	if (ev) {
		n = ev->n_runs;
		if (n > TL_LLAMA_MAX_RUNS)
			n = TL_LLAMA_MAX_RUNS;
		s->ev.hdr.flags = new ? TL_F_JOINED : ev->hdr.flags;
		s->ev.n_tokens = ev->n_tokens;
		s->ev.n_runs = n;
		bpf_probe_read_kernel(s->ev.runs, n * sizeof(ev->runs[0]), ev->runs);
	}
	count_hits(start, 1);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(step_decode, void *llama)
{
	__u64 start = bpf_ktime_get_ns();
	struct step *s = step_begin(ctx, llama, 2, start);
	struct llama_batch b = {};

	if (!s)
		return 0;
	bpf_probe_read_user(&b, sizeof(b), (void *)(PT_REGS_SP(ctx) + 8));
	for (int i = 0; i < MAX_BLOCKS; i++) {
		if (take_block(s, &b, i * BLOCK))
			break;
	}
	if (b.n_tokens > MAX_BLOCKS * BLOCK) {
		s->ev.n_tokens = b.n_tokens;
		s->ev.hdr.flags |= TL_F_TRUNC;
	}
	count_hits(start, 1);
	return 0;
}

SEC("?uretprobe")
int BPF_KRETPROBE(step_return, int result)
{
	__u64 start = bpf_ktime_get_ns();
	struct step *s = bpf_task_storage_get(&steps, bpf_get_current_task_btf(), NULL, 0);
	__u32 n;

	if (!s || PT_REGS_SP(ctx) != s->sp + 8)
		return 0;
	s->sp = 0;
	n = s->ev.n_runs;
	if (n > TL_LLAMA_MAX_RUNS)
		return 0;
	n = STEP_HEAD + n * sizeof(s->ev.runs[0]);
	s->ev.hdr.size = n;
	s->ev.end_ns = start;
	s->ev.result = result;
	send_event(&s->ev.hdr, n);
	count_hits(start, 1);
	return 0;
}

SEC("?uprobe")
int BPF_KPROBE(seq_rm, void *mem, int seq, int p0, int p1)
{
	__u64 start = bpf_ktime_get_ns();
	struct tl_raw_llama_seq_rm ev = {
		.hdr = hdr_of(sizeof(ev), TL_RAW_LLAMA_SEQ_RM, start),
		.seq = seq,
		.p0 = p0,
		.p1 = p1,
	};

	send_event(&ev.hdr, sizeof(ev));
	count_hits(start, 1);
	return 0;
}

/* ---- tasks and slots ---- */

/* First members of struct server_task, as all builds had them so far. */
struct server_task {
	__s32 id, pad;
	__u64 index;
	__s32 id_target, id_slot, id_parent;
};

static __always_inline void send_task(__u32 what, __s32 task, __s32 slot, __s32 parent, __u64 now)
{
	struct tl_raw_llama_task ev = {
		.hdr = hdr_of(sizeof(ev), TL_RAW_LLAMA_TASK, now),
		.what = what,
		.task = task,
		.slot = slot,
		.parent = parent,
	};

	send_event(&ev.hdr, sizeof(ev));
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

/* server_queue::post(std::vector<server_task> &&, bool front): a request's tasks, or a cancel. */
SEC("?uprobe")
int BPF_KPROBE(task_post, void *queue, void *tasks)
{
	__u64 start = bpf_ktime_get_ns(), range[2] = {}, at;
	struct server_task t;
	__u32 size;

	if (bpf_probe_read_user(range, sizeof(range), tasks) || range[1] < range[0] + sizeof(t))
		return 0;
	size = learn_task_size(range[1] - range[0]);
	at = range[0];
	for (int i = 0; i < MAX_TASKS_PER_POST; i++) {
		if (at + sizeof(t) > range[1] || bpf_probe_read_user(&t, sizeof(t), (void *)at))
			break;
		if (t.id >= 0)
			send_task(TL_TASK_POST, t.id, -1, t.id_parent, start);
		else
			send_task(TL_TASK_CANCEL, t.id_target, -1, -1, start);
		at += size;
	}
	count_hits(start, 1);
	return 0;
}

/* server_context_impl::launch_slot_with_task(server_slot &, server_task &&) */
SEC("?uprobe")
int BPF_KPROBE(task_launch, void *server, void *slot, void *task)
{
	__u64 start = bpf_ktime_get_ns();
	struct server_task t = {};
	__s32 id = -1;

	bpf_probe_read_user(&id, sizeof(id), slot);
	if (!bpf_probe_read_user(&t, sizeof(t), task))
		send_task(TL_TASK_LAUNCH, t.id, id, t.id_parent, start);
	count_hits(start, 1);
	return 0;
}

/* server_slot::release() */
SEC("?uprobe")
int BPF_KPROBE(slot_release, void *slot)
{
	__u64 start = bpf_ktime_get_ns();
	__s32 id;

	if (!bpf_probe_read_user(&id, sizeof(id), slot))
		send_task(TL_TASK_RELEASE, -1, id, -1, start);
	count_hits(start, 1);
	return 0;
}
