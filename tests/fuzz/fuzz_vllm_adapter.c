/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's adapter on messages that contradict each other: it may be wrong, but says whole events. */
#include "engine/vllm.h"
#include "unit/msgpack_out.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { API = 1, CORE = 2, CORE2 = 3, MAX_IDS = 12, MAX_SLOTS = 1 << 16 };

struct input {
	const uint8_t *p;
	size_t n;
};

static unsigned take(struct input *in)
{
	if (!in->n)
		return 0;
	in->n--;
	return *in->p++;
}

struct run {
	struct vllm *v;
	struct input in;
	uint64_t now, end_of_step[CORE2 + 1];
	bool by_probes;			/* frames as libzmq is given them, not bytes of a socket */
	uint8_t owner[MAX_SLOTS];	/* the engine whose sequence has this number, 0: nobody's */
};

static void check_member(const struct run *r, const struct tl_step *st, int i)
{
	const struct tl_member *m = &st->members[i];

	assert(m->n_tokens > 0 && m->n_tokens < 1u << 30);
	assert(m->phase == TL_PREFILL || m->phase == TL_DECODE);
	assert(m->slot >= 0 && m->slot < MAX_SLOTS && r->owner[m->slot] == st->hdr.tgid);
	/* Twice only if a part of it is computed again: that comes first. */
	for (int k = 0; k < i; k++)
		assert(st->members[k].slot != m->slot || (k == i - 1 && st->members[k].flags & TL_MEMBER_AGAIN));
}

static void check_step(struct run *r, const struct tl_step *st)
{
	uint64_t sum = 0, *last_ns = &r->end_of_step[st->hdr.tgid];

	assert(st->hdr.size == sizeof(*st) + st->n_members * sizeof(st->members[0]));
	assert(st->hdr.ts_ns <= st->end_ns);
	assert(st->hdr.ts_ns >= *last_ns);
	*last_ns = st->end_ns;
	for (int i = 0; i < st->n_members; i++) {
		check_member(r, st, i);
		sum += st->members[i].n_tokens;
	}
	assert(sum == st->n_tokens);
}

static uint8_t *owner(struct run *r, uint32_t slot)
{
	assert(slot < MAX_SLOTS);
	return &r->owner[slot];
}

static int check(void *ctx, const struct tl_hdr *ev)
{
	struct run *r = ctx;

	assert(ev->size && ev->size % 8 == 0 && (ev->tgid == CORE || ev->tgid == CORE2));
	switch (ev->kind) {
	case TL_STEP:
		check_step(r, (const void *)ev);
		return 0;
	case TL_SEQ_BEGIN:
		assert(!*owner(r, ((const struct tl_seq_begin *)ev)->slot));
		*owner(r, ((const struct tl_seq_begin *)ev)->slot) = ev->tgid;
		return 0;
	case TL_SEQ_END:
		assert(*owner(r, ((const struct tl_seq_end *)ev)->slot) == ev->tgid);
		*owner(r, ((const struct tl_seq_end *)ev)->slot) = 0;
		return 0;
	case TL_SEQ_PREEMPT:
		assert(*owner(r, ((const struct tl_seq_preempt *)ev)->slot) == ev->tgid);
		return 0;
	case TL_SEQ_POINT:
		assert(*owner(r, ((const struct tl_seq_point *)ev)->slot) == ev->tgid);
		return 0;
	case TL_SEQ_LINK:	/* its request may show when it has ended */
	case TL_STEP_STATS:
		return 0;
	}
	abort();	/* it has nothing else to say */
}

static void send_frame(struct run *r, uint32_t tgid, uint64_t sock, int dir, bool more, const void *p, size_t n, size_t kept)
{
	static _Alignas(8) uint8_t space[60000];
	struct tl_raw_zmq *e = (void *)space;

	memset(e, 0, sizeof(*e));
	e->hdr = (struct tl_hdr){ (sizeof(*e) + kept + 7) & ~7u, TL_RAW_ZMQ, 0, tgid, tgid, r->now };
	e->sock = sock;
	e->total = n;
	e->head = kept;
	e->dir = dir;
	e->has_more = more;
	memcpy(e->data, p, kept);
	assert(!vllm__feed(r->v, &e->hdr));
}

static void send_frames(struct run *r, uint32_t tgid, uint64_t sock, int dir, int kind, const struct mp *body,
			size_t cut)
{
	static _Alignas(8) uint8_t space[60000];
	struct tl_raw_net *e = (void *)space;
	struct mp wire = { 0 };
	uint8_t type = kind;

	if (r->by_probes) {
		if (kind >= 0)
			send_frame(r, tgid, sock, dir, true, &type, 1, 1);
		send_frame(r, tgid, sock, dir, false, body->p, body->len, cut && cut < body->len ? cut : body->len);
		return;
	}
	if (kind >= 0) {
		mp_head(&wire, 1, 1, 1);
		mp_head(&wire, kind, 0, 0);
	}
	mp_head(&wire, 2, body->len, 8);
	mp_raw(&wire, body->p, body->len);
	memset(e, 0, sizeof(*e));
	e->total = wire.len;
	e->head = cut && cut < wire.len ? cut : wire.len;
	e->hdr = (struct tl_hdr){ (sizeof(*e) + e->head + 7) & ~7u, TL_RAW_NET, 0, tgid, tgid, r->now };
	e->sock = sock;
	e->dir = dir;
	memcpy(e->data, wire.p, e->head);
	assert(!vllm__feed(r->v, &e->hdr));
	mp_free(&wire);
}

static void name(char *to, size_t size, unsigned id)
{
	snprintf(to, size, "%scmpl-%u-0-0a0a0a0a", id & 1 ? "1_" : "", id % MAX_IDS / 2);
}

static void add(struct run *r, uint32_t tgid)
{
	char id[40], text[160];
	struct mp body = { 0 };

	name(id, sizeof(id), take(&r->in));
	snprintf(text, sizeof(text), "[\"%s\",#%u,nil,{max_tokens:%u},nil,1.5]", id, 1 + take(&r->in) * 9,
		 take(&r->in) % 20);
	mp_text(&body, text);
	send_frames(r, tgid, 10 + tgid, TL_IN, 0, &body, take(&r->in) == 7 ? 60 : 0);
	mp_free(&body);
}

static void abort_one(struct run *r, uint32_t tgid)
{
	struct mp body = { 0 };
	char id[40];

	name(id, sizeof(id), take(&r->in));
	mp_array(&body, 1);
	mp_str(&body, id);
	send_frames(r, tgid, 10 + tgid, TL_IN, 1, &body, 0);
	mp_free(&body);
}

static void outputs(struct run *r, uint32_t tgid)
{
	static const char *const finish[] = { "nil", "nil", "nil", "nil", "nil", "0", "1", "2" };
	static const char *const events[] = {
		"nil", "nil", "[{type:1,timestamp:1.5},{type:2,timestamp:1.6}]",
		"[{type:3,timestamp:1.7},{type:2,timestamp:1.8},{type:3,timestamp:1.9}]",
	};
	unsigned rows = take(&r->in) | take(&r->in) << 8, how = take(&r->in);
	char id[40], text[8192];
	struct mp body = { 0 };
	size_t n = snprintf(text, sizeof(text), "[0,[");

	for (unsigned i = 0; i < MAX_IDS; i++) {
		unsigned b;

		if (!(rows & 1u << i))
			continue;
		b = take(&r->in);
		name(id, sizeof(id), i);
		n += snprintf(text + n, sizeof(text) - n, "%s[\"%s\",#%u,nil,nil,nil,%s,nil,%s,nil,nil,%s]",
			      text[n - 1] == '[' ? "" : ",", id, b >> 5 & 3, finish[b & 7], events[b >> 3 & 3],
			      b & 128 ? "{num_prompt_tokens:77,num_cached_tokens:16}" : "nil");
	}
	n += snprintf(text + n, sizeof(text) - n, "],");
	if (how & 3)
		n += snprintf(text + n, sizeof(text) - n, "{num_running_reqs:%u,num_waiting_reqs:%u,"
			      "prefix_cache_stats:{requests:%u,queries:9,hits:%u,preempted_requests:%u,"
			      "preempted_hits:%u},spec_decoding_stats:{num_draft_tokens:%u}}", take(&r->in) % 14,
			      take(&r->in) % 14, take(&r->in) % 4, take(&r->in), take(&r->in) % 3,
			      take(&r->in), how & 8 ? take(&r->in) : 0);
	else
		n += snprintf(text + n, sizeof(text) - n, "nil");
	r->now += 1000ull * take(&r->in) * take(&r->in);
	snprintf(text + n, sizeof(text) - n, ",%llu.%09llu,nil,nil,nil,nil]",
		 (unsigned long long)r->now / 1000000000, (unsigned long long)r->now % 1000000000);
	mp_text(&body, text);
	send_frames(r, tgid, 20 + tgid + (how >> 6 & 1), TL_OUT, -1, &body, how & 4 ? take(&r->in) * 8 : 0);
	mp_free(&body);
}

static void process(struct run *r, uint32_t tgid, const char *role, uint32_t budget)
{
	struct tl_engine e = { .hdr = { sizeof(e), TL_ENGINE, 0, tgid, 0, r->now }, .server = API,
			       .engine = TL_ENGINE_VLLM, .max_step_tokens = budget };

	strcpy(e.role, role);
	assert(!vllm__add_process(r->v, &e));
}

static void one(struct run *r)
{
	unsigned op = take(&r->in);
	uint32_t tgid = op & 128 ? CORE2 : CORE;
	char id[24];

	switch (op % 16) {
	case 0:
	case 1:
	case 2:
		add(r, tgid);
		break;
	case 3:
		abort_one(r, tgid);
		break;
	case 4:
		snprintf(id, sizeof(id), "%u", take(&r->in) % MAX_IDS / 2);
		assert(!vllm__on_id(r->v, r->now, API, 1 + take(&r->in), id, op & 16));
		break;
	case 7:
		vllm__on_end(r->v, 1 + take(&r->in));
		break;
	case 5:
		r->now += 10000000ull * take(&r->in);
		break;
	case 6:
		if (take(&r->in) < 16)
			assert(!vllm__lost(r->v));
		break;
	default:
		outputs(r, tgid);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct run r;
	struct emit out = { check, &r };
	unsigned kind;

	r = (struct run){ .in = { data, size }, .now = 1000000000 };
	kind = take(&r.in);
	r.by_probes = kind & 8;
	r.v = vllm__new(&out);
	assert(r.v);
	process(&r, API, "api", kind & 1 ? 512 : 0);
	process(&r, CORE, "engine-core", 0);
	process(&r, CORE2, "engine-core", 0);
	if (kind & 2)
		process(&r, 7, "api", 0);
	if (kind & 4)
		process(&r, 8, "coordinator", 0);
	while (r.in.n)
		one(&r);
	assert(!vllm__end(r.v));
	vllm__free(r.v);
	return 0;
}
