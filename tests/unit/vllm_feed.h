/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of vLLM's made by hand, fed to the adapter; what it says of them, as lines. */
#ifndef TL_VLLM_FEED_H
#define TL_VLLM_FEED_H

#include "unit.h"

#include "engine/vllm.h"
#include "msgpack_out.h"
#include "parse/vllm_msg.h"
#include "wire_feed.h"
#include <errno.h>

enum { API = 10, API2 = 11, CORE = 20, CORE2 = 21, COORD = 30, MS = 1000000 };
enum { IN = 1, OUT = 2, OUT2 = 3, IN2 = 4, OUT_COORD = 5 };	/* sockets */

struct fixture {
	struct vllm *v;
	struct wire_log log;
	uint64_t now;		/* ns */
	uint32_t core;		/* whose sockets */
	int err;
};

static inline char member_kind(const struct tl_member *m)
{
	return m->phase == TL_DECODE ? 'd' : m->flags & TL_MEMBER_AGAIN ? '~' : 'p';
}

static inline void note_step(struct wire_log *log, const struct tl_step *st)
{
	wire_log_add(log, "%s", st->hdr.flags & TL_F_GUESS ? "open step" : "step");
	if (st->hdr.tgid != CORE)
		wire_log_add(log, " of %u", st->hdr.tgid);
	for (int i = 0; i < st->n_members && i < 8; i++)
		wire_log_add(log, " %u:%c%u%s", st->members[i].slot, member_kind(&st->members[i]),
			     st->members[i].n_tokens, st->members[i].flags & TL_MEMBER_GUESS ? "?" : "");
	wire_log_add(log, " @%llu-%llu\n", (unsigned long long)st->hdr.ts_ns / MS,
		     (unsigned long long)st->end_ns / MS);
}

static inline int note(void *ctx, const struct tl_hdr *ev)
{
	struct wire_log *log = ctx;
	const struct tl_seq_link *link = (const void *)ev;
	const struct tl_seq_point *point = (const void *)ev;
	const struct tl_seq_preempt *pre = (const void *)ev;
	const struct tl_step_stats *st = (const void *)ev;

	log->n_kind[ev->kind]++;
	switch (ev->kind) {
	case TL_STEP:
		note_step(log, (const void *)ev);
		break;
	case TL_SEQ_BEGIN:
		wire_log_add(log, "%s %u\n", ev->flags & TL_F_JOINED ? "joined" : "begin",
			     ((const struct tl_seq_begin *)ev)->slot);
		break;
	case TL_SEQ_END:
		wire_log_add(log, "end %u\n", ((const struct tl_seq_end *)ev)->slot);
		break;
	case TL_SEQ_LINK:
		wire_log_add(log, "link r%u %d of %u\n", link->req, link->slot, ev->tgid);
		break;
	case TL_SEQ_POINT:
		wire_log_add(log, "%s %u @%llu\n", point->point == TL_POINT_QUEUED ? "queued" : "scheduled",
			     point->slot, (unsigned long long)ev->ts_ns / MS);
		break;
	case TL_SEQ_PREEMPT:
		wire_log_add(log, "preempted %u @%llu-%llu lost %u%s\n", pre->slot,
			     (unsigned long long)ev->ts_ns / MS, (unsigned long long)pre->resumed_ns / MS,
			     pre->lost_tokens, ev->flags & TL_F_GUESS ? "?" : "");
		break;
	case TL_STEP_STATS:
		if (st->kv_ppm)
			wire_log_add(log, "run %u wait %u kv %u prefix %llu/%llu\n", st->running, st->waiting,
				     st->kv_ppm, (unsigned long long)st->prefix_hits,
				     (unsigned long long)st->prefix_queries);
		break;
	}
	return 0;
}

static inline int process_of(struct fixture *f, uint32_t server, uint32_t tgid, const char *role)
{
	struct tl_engine e = { .hdr = { sizeof(e), TL_ENGINE, 0, tgid, 0, f->now }, .server = server,
			       .engine = TL_ENGINE_VLLM, .max_step_tokens = tgid == API ? 512 : 0 };

	strcpy(e.role, role);
	return vllm__add_process(f->v, &e);
}

static inline int process(struct fixture *f, uint32_t tgid, const char *role)
{
	return process_of(f, API, tgid, role);
}

/* ---- bytes ---- */

static inline void frame(struct mp *to, uint8_t flags, const void *p, size_t n)
{
	if (n > 255) {
		mp_head(to, flags | 2, n, 8);
	} else {
		mp_head(to, flags, n, 1);
	}
	mp_raw(to, p, n);
}

/* One read or write of the engine's that moves `n` bytes, of which `kept` are captured. */
static inline void net(struct fixture *f, uint64_t sock, int dir, const void *p, size_t n, size_t kept)
{
	size_t size = (sizeof(struct tl_raw_net) + kept + 7) & ~(size_t)7;
	static _Alignas(8) uint8_t space[UINT16_MAX];	/* not allocated: that may be made to fail */
	struct tl_raw_net *e = (void *)space;

	memset(space, 0, sizeof(*e));
	e->hdr = (struct tl_hdr){ size <= UINT16_MAX ? size : 0, TL_RAW_NET, 0, f->core, f->core, f->now };
	assert_true(e->hdr.size);
	e->sock = sock;
	e->dir = dir;
	e->family = 1;
	e->total = n;
	e->head = kept;
	memcpy(e->data, p, kept);
	f->err = vllm__feed(f->v, &e->hdr);
}

/* The engine begins, with a frame of no bytes: nobody asked it for anything before. */
static inline void hello(struct fixture *f, uint64_t sock)
{
	net(f, sock, TL_OUT, "\0", 2, 2);
}

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->now = 1000 * (uint64_t)MS;
	f->core = CORE;
	f->v = vllm__new(&(struct emit){ note, &f->log });
	*state = f;
	if (!f->v || process(f, API, "api") || process(f, CORE, "engine-core"))
		return -1;
	hello(f, IN);
	return f->err;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	vllm__free(f->v);
	free(f);
	return 0;
}

static inline void send_text(struct fixture *f, uint64_t sock, int dir, int kind, const char *text, size_t cut)
{
	struct mp body = { 0 }, wire = { 0 };
	uint8_t k = kind;

	mp_text(&body, text);
	if (kind >= 0)
		frame(&wire, 1, &k, 1);
	frame(&wire, 0, body.p, body.len);
	net(f, sock, dir, wire.p, wire.len, cut && cut < wire.len ? cut : wire.len);
	mp_free(&body);
	mp_free(&wire);
}

static inline void add_to(struct fixture *f, uint64_t sock, const char *id, int n_prompt)
{
	char text[512];

	snprintf(text, sizeof(text), "[\"%s\",#%d,nil,{max_tokens:40},nil,1.5,nil,nil,nil,nil,F,0,0,0,nil,F,\"x\","
		 "nil,nil,F,nil,nil]", id, n_prompt);
	send_text(f, sock, TL_IN, 0, text, 0);
}

static inline void add(struct fixture *f, const char *id, int n_prompt)
{
	add_to(f, IN, id, n_prompt);
}

static inline void abort_it(struct fixture *f, const char *id)
{
	char text[128];

	snprintf(text, sizeof(text), "[\"%s\"]", id);
	send_text(f, IN, TL_IN, 1, text, 0);
}

/* "A B! C. D~": rows of these ids, which end by length (!), by a token (.), or aborted without one (~); after a colon,
 * events. */
static inline void rows_text(char *to, size_t size, const char *rows)
{
	size_t len = 0;

	*to = 0;
	while (*rows) {
		size_t n = strcspn(rows, " ");
		const char *events = memchr(rows, ':', n), *end = events ? events : rows + n;
		char how = end[-1];
		bool ends = how == '!' || how == '.' || how == '~';

		len += snprintf(to + len, size - len, "%s[\"%.*s\",[%s],nil,nil,nil,%s,nil,%.*s,nil,nil,nil,nil,nil,0]",
				len ? "," : "", (int)(end - rows) - ends, rows, how == '~' ? "" : "7",
				!ends ? "nil" : how == '!' ? "1" : how == '.' ? "0" : "2",
				events ? (int)(rows + n - events - 1) : 3, events ? events + 1 : "nil");
		rows += n;
		rows += *rows == ' ';
	}
}

/* One message of outputs; stats NULL: none. */
static inline void outputs_on(struct fixture *f, uint64_t sock, uint64_t ts, const char *rows, const char *stats)
{
	char list[4096], text[8192];

	rows_text(list, sizeof(list), rows);
	snprintf(text, sizeof(text), "[0,[%s],%s,%llu.%09llu,nil,nil,nil,nil,nil]", list, stats ? stats : "nil",
		 (unsigned long long)ts / 1000000000, (unsigned long long)ts % 1000000000);
	send_text(f, sock, TL_OUT, -1, text, 0);
}

static inline const char *stats(int run, int wait, int fresh, int again, int again_hits)
{
	static char text[512];

	snprintf(text, sizeof(text), "{num_running_reqs:%d,num_waiting_reqs:%d,kv_cache_usage:%s,prefix_cache_stats:"
		 "{requests:%d,queries:0,hits:0,preempted_requests:%d,preempted_queries:0,preempted_hits:%d}}",
		 run, wait, "0.0", fresh, again, again_hits);
	return text;
}

/* 10 ms later, a step ends and its message is seen. */
static inline void step(struct fixture *f, const char *rows, const char *st)
{
	f->now += 10 * MS;
	outputs_on(f, OUT, f->now, rows, st);
}

/* A short prompt at a busy engine shows that it does not plan ahead. Takes the slots 0 and 1. */
static inline void known_mode(struct fixture *f)
{
	add(f, "w", 5);
	step(f, "w", stats(1, 0, 1, 0, 0));
	add(f, "x", 5);
	step(f, "w! x!", stats(0, 0, 1, 0, 0));
	f->log.len = 0;
}

#define SAID(f, want) do {				\
	assert_int_equal((f)->err, 0);			\
	assert_string_equal((f)->log.text, want);	\
	*(f)->log.text = 0;				\
	(f)->log.len = 0;				\
} while (0)

#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

#endif
