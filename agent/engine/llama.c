/* SPDX-License-Identifier: Apache-2.0 */
/* llama.cpp's engine loop: batches to steps with members, slots to sequences, tasks to requests. */
#include "engine/llama.h"

#include "base/map.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * What the server does, measured on builds 11063 (llama_decode) and 11549 (llama_process); see
 * doc/engines/llamacpp.md. On the engine thread, per request: launch_slot_with_task, then in
 * every step in which the slot prefills llama_memory_seq_rm(seq, p0, -1) with p0 = position of
 * the first token of this chunk, then the batch. A plain decode step has no seq_rm. Of a prompt
 * only its last token asks for logits. So: a slot with a seq_rm since the last step prefills, if
 * it gave no output since its launch; every other slot decodes. Verified drafts also end in a
 * seq_rm: it follows output.
 */

enum {
	MAX_TASKS = 16384,	/* tasks whose request is remembered */
	MAX_CONTEXTS = 16,	/* llama_context pointers told apart: target and draft models */
	SLOTS_PER_CONTEXT = 1 << 16,
	MAX_DRAFT = 64,		/* longest rollback that is taken for a rejected draft */
};

struct slot {
	int32_t pos;		/* of the next token, -1: not known */
	bool launched;		/* launch seen, no seq_rm yet */
	bool in_prompt;		/* between seq_rm of a new prompt and its first output */
	bool trimmed;		/* seq_rm since the last step */
	bool had_output;	/* since the prompt began */
	bool verified;		/* last step asked for logits of several tokens: drafts */
	bool known;		/* anything was seen of it */
};

struct llama {
	const struct wire *wire;
	struct emit out;
	struct map *tasks;	/* task -> request number */
	struct map *slots;	/* slot -> struct slot */
	uint64_t contexts[MAX_CONTEXTS];
	unsigned n_contexts;
	struct tl_step *step;	/* scratch: TL_LLAMA_MAX_RUNS members */
};

struct llama *llama__new(const struct wire *w, const struct emit *out)
{
	struct llama *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->wire = w;
	l->out = *out;
	l->tasks = map__new(sizeof(uint32_t), MAX_TASKS);
	l->slots = map__new(sizeof(struct slot), SLOTS_PER_CONTEXT);
	l->step = malloc(sizeof(*l->step) + TL_LLAMA_MAX_RUNS * sizeof(l->step->members[0]));
	if (!l->tasks || !l->slots || !l->step) {
		llama__free(l);
		return NULL;
	}
	return l;
}

void llama__free(struct llama *l)
{
	if (!l)
		return;
	map__free(l->tasks);
	map__free(l->slots);
	free(l->step);
	free(l);
}

static struct slot *slot_of(struct llama *l, uint32_t n)
{
	bool fresh;
	struct slot *s = map__put(l->slots, n, &fresh);

	if (s && fresh)
		s->pos = -1;
	return s;
}

/* ---- tasks ---- */

static int remember_task(struct llama *l, int32_t task, uint32_t req)
{
	uint32_t *p;
	uint64_t oldest;

	if (map__is_full(l->tasks) && map__oldest(l->tasks, &oldest))
		map__del(l->tasks, oldest);
	p = map__put(l->tasks, (uint32_t)task, NULL);
	if (!p)
		return -ENOMEM;
	*p = req;
	return 0;
}

static uint32_t request_of_task(const struct llama *l, int32_t task)
{
	const uint32_t *p = task < 0 ? NULL : map__get(l->tasks, (uint32_t)task);

	return p ? *p : 0;
}

static int link(struct llama *l, const struct tl_hdr *at, uint32_t req, int32_t slot, int32_t task)
{
	struct tl_seq_link ev = {
		.hdr = { sizeof(ev), TL_SEQ_LINK, 0, at->tgid, at->tid, at->ts_ns },
		.req = req, .slot = slot, .task = task, .method = TL_LINK_TASK,
	};

	return emit(&l->out, &ev.hdr);
}

static int on_task(struct llama *l, const struct tl_raw_llama_task *e)
{
	struct tl_seq_end end = {
		.hdr = { sizeof(end), TL_SEQ_END, 0, e->hdr.tgid, e->hdr.tid, e->hdr.ts_ns },
		.slot = e->slot,
	};
	uint32_t req;
	struct slot *s;
	int err;

	switch (e->what) {
	case TL_TASK_NEW_ID:
		req = wire__request_of_thread(l->wire, e->hdr.tid);
		return req ? remember_task(l, e->task, req) : 0;
	case TL_TASK_POST:
		req = wire__request_of_thread(l->wire, e->hdr.tid);
		if (!req)
			return 0;
		err = remember_task(l, e->task, req);
		return err ? err : link(l, &e->hdr, req, -1, e->task);
	case TL_TASK_LAUNCH:
		if (e->slot < 0)
			return 0;
		s = slot_of(l, e->slot);
		if (!s)
			return -ENOMEM;
		*s = (struct slot){ .pos = -1, .launched = true, .known = true };
		req = request_of_task(l, e->task);
		if (!req)
			req = request_of_task(l, e->parent);
		return link(l, &e->hdr, req, e->slot, e->task);
	case TL_TASK_RELEASE:
		return e->slot < 0 ? 0 : emit(&l->out, &end.hdr);
	}
	return 0;
}

/* ---- prompts ---- */

static bool is_rollback(const struct slot *s, int32_t p0)
{
	return s->had_output && s->verified && s->pos >= 0 && p0 > 0 && p0 <= s->pos &&
	       p0 >= s->pos - MAX_DRAFT;
}

static int on_seq_rm(struct llama *l, const struct tl_raw_llama_seq_rm *e)
{
	struct tl_seq_begin ev = {
		.hdr = { sizeof(ev), TL_SEQ_BEGIN, 0, e->hdr.tgid, e->hdr.tid, e->hdr.ts_ns },
		.slot = e->seq, .kept = e->p0,
	};
	struct slot *s;
	bool known;

	if (e->seq < 0 || e->p0 < 0)	/* a whole sequence is thrown away: nothing starts */
		return 0;
	s = slot_of(l, e->seq);
	if (!s)
		return -ENOMEM;
	known = s->known;
	s->known = true;
	if (!s->launched) {
		if (is_rollback(s, e->p0)) {
			s->pos = e->p0;
			return 0;
		}
		/* The next chunk of the same prompt. */
		if (s->in_prompt && s->pos == e->p0) {
			s->trimmed = true;
			return 0;
		}
	}
	s->trimmed = s->in_prompt = true;
	s->had_output = s->verified = false;
	s->pos = e->p0;
	/* Joined in the middle of a prompt: where it began is not known, so nothing begins here. */
	if (!known && e->p0 > 0)
		return 0;
	s->launched = false;
	return emit(&l->out, &ev.hdr);
}

/* ---- steps ---- */

/* Batches of a second llama_context (a draft model) go to slots of their own. */
static uint32_t slot_number(struct llama *l, uint64_t ctx, int32_t seq)
{
	unsigned i;

	for (i = 0; i < l->n_contexts; i++)
		if (l->contexts[i] == ctx)
			break;
	if (i == l->n_contexts && i < MAX_CONTEXTS)
		l->contexts[l->n_contexts++] = ctx;
	return i * SLOTS_PER_CONTEXT + seq;
}

static int member_of_run(struct llama *l, const struct tl_raw_llama_step *e,
			 const struct tl_llama_run *run, struct tl_member *ret)
{
	uint32_t n = slot_number(l, e->ctx, run->seq);
	struct slot *s = slot_of(l, n);
	bool prefill;

	if (!s)
		return -ENOMEM;
	if (run->pos >= 0)
		s->pos = run->pos;
	prefill = s->trimmed && !s->had_output;
	/* Joined in mid-prompt: tokens without logits cannot be decode. */
	if (run->n_out < run->n_tokens && !s->had_output)
		prefill = true;
	*ret = (struct tl_member){
		.slot = n, .n_tokens = run->n_tokens, .pos = s->pos,
		.phase = prefill ? TL_PREFILL : TL_DECODE,
		.n_out = run->n_out < UINT8_MAX ? run->n_out : UINT8_MAX,
		.flags = e->hdr.flags & TL_F_GUESS ? TL_MEMBER_GUESS : 0,
	};
	s->known = true;
	s->trimmed = s->launched = false;
	if (s->pos >= 0)
		s->pos += run->n_tokens;
	if (run->n_out) {
		s->had_output = true;
		s->in_prompt = false;
		s->verified = !prefill && run->n_out > 1;
	}
	return 0;
}

static int on_step(struct llama *l, const struct tl_raw_llama_step *e)
{
	struct tl_step *st = l->step;
	unsigned n = e->n_runs < TL_LLAMA_MAX_RUNS ? e->n_runs : TL_LLAMA_MAX_RUNS;
	int err;

	if (e->hdr.size < sizeof(*e) - sizeof(e->runs) + n * sizeof(e->runs[0]))
		return -EBADMSG;
	*st = (struct tl_step){
		.hdr = { 0, TL_STEP, e->hdr.flags & TL_F_TRUNC, e->hdr.tgid, e->hdr.tid, e->hdr.ts_ns },
		.end_ns = e->end_ns, .n_tokens = e->n_tokens, .result = e->result,
	};
	if (!e->result)
		for (unsigned i = 0; i < n; i++) {
			if (e->runs[i].seq < 0 || e->runs[i].seq >= SLOTS_PER_CONTEXT)
				continue;
			err = member_of_run(l, e, &e->runs[i], &st->members[st->n_members]);
			if (err)
				return err;
			st->n_members++;
		}
	st->hdr.size = sizeof(*st) + st->n_members * sizeof(st->members[0]);
	return emit(&l->out, &st->hdr);
}

int llama__feed(struct llama *l, const struct tl_hdr *ev)
{
	switch (ev->kind) {
	case TL_RAW_LLAMA_STEP:
		return on_step(l, (const void *)ev);
	case TL_RAW_LLAMA_SEQ_RM:
		return on_seq_rm(l, (const void *)ev);
	case TL_RAW_LLAMA_TASK:
		return on_task(l, (const void *)ev);
	default:
		return 0;
	}
}
