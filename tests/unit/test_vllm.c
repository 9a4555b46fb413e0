/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's adapter on messages made by hand: sockets, API servers, engines, ids, and what goes missing. */
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

static char member_kind(const struct tl_member *m)
{
	return m->phase == TL_DECODE ? 'd' : m->flags & TL_MEMBER_AGAIN ? '~' : 'p';
}

static void note_step(struct wire_log *log, const struct tl_step *st)
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

static int note(void *ctx, const struct tl_hdr *ev)
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

static int process(struct fixture *f, uint32_t tgid, const char *role)
{
	struct tl_engine e = { .hdr = { sizeof(e), TL_ENGINE, 0, tgid, 0, f->now }, .server = API,
			       .engine = TL_ENGINE_VLLM, .max_step_tokens = tgid == API ? 512 : 0 };

	strcpy(e.role, role);
	return vllm__add_process(f->v, &e);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->now = 1000 * (uint64_t)MS;
	f->core = CORE;
	f->v = vllm__new(&(struct emit){ note, &f->log });
	*state = f;
	return f->v && !process(f, API, "api") && !process(f, CORE, "engine-core") ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	vllm__free(f->v);
	free(f);
	return 0;
}

/* ---- bytes ---- */

static void frame(struct mp *to, uint8_t flags, const void *p, size_t n)
{
	if (n > 255) {
		mp_head(to, flags | 2, n, 8);
	} else {
		mp_head(to, flags, n, 1);
	}
	mp_raw(to, p, n);
}

/* One read or write of the engine's that moves `n` bytes, of which `kept` are captured. */
static void net(struct fixture *f, uint64_t sock, int dir, const void *p, size_t n, size_t kept)
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

static void send_text(struct fixture *f, uint64_t sock, int dir, int kind, const char *text, size_t cut)
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

static void add_to(struct fixture *f, uint64_t sock, const char *id, int n_prompt)
{
	char text[512];

	snprintf(text, sizeof(text), "[\"%s\",#%d,nil,{max_tokens:40},nil,1.5,nil,nil,nil,nil,F,0,0,0,nil,F,\"x\","
		 "nil,nil,F,nil,nil]", id, n_prompt);
	send_text(f, sock, TL_IN, 0, text, 0);
}

static void add(struct fixture *f, const char *id, int n_prompt)
{
	add_to(f, IN, id, n_prompt);
}

static void abort_it(struct fixture *f, const char *id)
{
	char text[128];

	snprintf(text, sizeof(text), "[\"%s\"]", id);
	send_text(f, IN, TL_IN, 1, text, 0);
}

/* "A B! C.": rows of these ids, which end by length (!) or by a token (.); after a colon, events. */
static void rows_text(char *to, size_t size, const char *rows)
{
	size_t len = 0;

	*to = 0;
	while (*rows) {
		size_t n = strcspn(rows, " ");
		const char *events = memchr(rows, ':', n), *end = events ? events : rows + n;
		char how = end[-1];
		bool ends = how == '!' || how == '.';

		len += snprintf(to + len, size - len, "%s[\"%.*s\",[7],nil,nil,nil,%s,nil,%.*s,nil,nil,nil,nil,nil,0]",
				len ? "," : "", (int)(end - rows) - ends, rows,
				!ends ? "nil" : how == '!' ? "1" : "0",
				events ? (int)(rows + n - events - 1) : 3, events ? events + 1 : "nil");
		rows += n;
		rows += *rows == ' ';
	}
}

/* One message of outputs; stats NULL: none. */
static void outputs_on(struct fixture *f, uint64_t sock, uint64_t ts, const char *rows, const char *stats)
{
	char list[4096], text[8192];

	rows_text(list, sizeof(list), rows);
	snprintf(text, sizeof(text), "[0,[%s],%s,%llu.%09llu,nil,nil,nil,nil,nil]", list, stats ? stats : "nil",
		 (unsigned long long)ts / 1000000000, (unsigned long long)ts % 1000000000);
	send_text(f, sock, TL_OUT, -1, text, 0);
}

static const char *stats(int run, int wait, int fresh, int again, int again_hits)
{
	static char text[512];

	snprintf(text, sizeof(text), "{num_running_reqs:%d,num_waiting_reqs:%d,kv_cache_usage:%s,prefix_cache_stats:"
		 "{requests:%d,queries:0,hits:0,preempted_requests:%d,preempted_queries:0,preempted_hits:%d}}",
		 run, wait, "0.0", fresh, again, again_hits);
	return text;
}

/* 10 ms later, a step ends and its message is seen. */
static void step(struct fixture *f, const char *rows, const char *st)
{
	f->now += 10 * MS;
	outputs_on(f, OUT, f->now, rows, st);
}

/* A short prompt at a busy engine shows that it does not plan ahead. Takes the slots 0 and 1. */
static void known_mode(struct fixture *f)
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

/* ---- one engine, one API server ---- */

static void test_request__from_add_to_end(void **state)
{
	struct fixture *f = *state;

	add(f, "chatcmpl-a-00000001", 700);
	SAID(f, "begin 0\n");
	step(f, "", stats(1, 0, 1, 0, 0));
	SAID(f, "step 0:p512 @1000-1010\n");
	step(f, "chatcmpl-a-00000001:[{type:1,timestamp:1.001},{type:2,timestamp:1.002}]", stats(1, 0, 0, 0, 0));
	SAID(f, "queued 0 @1001\nscheduled 0 @1002\nstep 0:p188 @1010-1020\n");
	assert_int_equal(vllm__on_id(f->v, f->now, 5, "chatcmpl-a", true), 0);
	SAID(f, "link r5 0 of 20\n");
	step(f, "chatcmpl-a-00000001!",
	     "{num_running_reqs:0,num_waiting_reqs:3,num_skipped_waiting_reqs:1,kv_cache_usage:0.25,"
	     "prefix_cache_stats:{requests:0,queries:90,hits:16,preempted_requests:0}}");
	SAID(f, "step 0:d1 @1020-1030\nrun 0 wait 4 kv 250000 prefix 16/90\nend 0\n");
	/* the message that follows the last output is none of a step */
	step(f, "", stats(0, 0, 0, 0, 0));
	SAID(f, "");
	/* the engine slept meanwhile: the next step begins with what woke it */
	f->now += 500 * MS;
	add(f, "chatcmpl-b-00000001", 20);
	step(f, "chatcmpl-b-00000001", stats(1, 0, 1, 0, 0));
	SAID(f, "begin 1\nstep 1:p20 @1540-1550\n");
}

static void test_request__step_begins_when_it_was_scheduled(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	step(f, "a:[{type:1,timestamp:1.003},{type:2,timestamp:1.004}]", stats(1, 0, 1, 0, 0));
	SAID(f, "begin 0\nqueued 0 @1003\nscheduled 0 @1004\nstep 0:p20 @1004-1010\n");
}

/* X-Request-Id is known before the request is handed over, and its prefix is not. */
static void test_ids__children_and_prompts_of_one_request(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vllm__on_id(f->v, f->now, 7, "mine", false), 0);
	add(f, "0_chatcmpl-mine-0a0a0a0a", 20);
	add(f, "1_chatcmpl-mine-0a0a0a0a", 20);
	assert_int_equal(vllm__on_id(f->v, f->now, 8, "other", false), 0);
	add(f, "cmpl-other-0-0a0a0a0a", 20);
	add(f, "cmpl-other-1-0a0a0a0a", 20);
	SAID(f, "begin 0\nlink r7 0 of 20\nbegin 1\nlink r7 1 of 20\nbegin 2\nlink r8 2 of 20\nbegin 3\nlink r8 3 of 20\n");
	/* said again with the answer: no news */
	assert_int_equal(vllm__on_id(f->v, f->now, 7, "chatcmpl-mine", true), 0);
	SAID(f, "");
	/* an id that the server chose */
	add(f, "resp_77_0-0a0a0a0a", 20);
	add(f, "resp_77_1-0a0a0a0a", 20);
	SAID(f, "begin 4\nbegin 5\n");
	assert_int_equal(vllm__on_id(f->v, f->now, 9, "resp_77", true), 0);
	SAID(f, "link r9 5 of 20\nlink r9 4 of 20\n");
	/* the same X-Request-Id once more: the newer request's */
	assert_int_equal(vllm__on_id(f->v, f->now, 10, "mine", false), 0);
	add(f, "chatcmpl-mine-0b0b0b0b", 20);
	SAID(f, "begin 6\nlink r10 6 of 20\n");
}

static void test_add__seen_twice_is_one(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	add_to(f, IN2, "a", 20);
	SAID(f, "begin 0\n");
}

/* Of a long prompt only the begin is captured: its length stands there. */
static void test_add__cut(void **state)
{
	struct fixture *f = *state;

	send_text(f, IN, TL_IN, 0, "[\"a\",#600,nil,{max_tokens:5},nil,1.5]", 200);
	step(f, "", stats(1, 0, 1, 0, 0));
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "begin 0\nstep 0:p512 @1000-1010\nstep 0:p88 @1010-1020\n");
}

static void test_abort__ends_with_the_step(void **state)
{
	struct fixture *f = *state;

	known_mode(f);
	add(f, "a", 20);
	add(f, "b", 20);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	SAID(f, "begin 2\nbegin 3\nstep 2:p20 3:p20 @1020-1030\n");
	f->now += 5 * MS;
	abort_it(f, "b");
	abort_it(f, "nobody");
	f->now -= 5 * MS;
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "step 2:d1 3:d1 @1030-1040\nend 3\n");
	step(f, "a b", stats(1, 0, 0, 0, 0));	/* its output came late */
	SAID(f, "step 2:d1 @1040-1050\n");
}

static void test_preempt__told_with_the_next_output(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	add(f, "b", 30);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "begin 0\nbegin 1\nstep 0:p20 1:p30 @1000-1010\nstep 0:d1 1:d1 @1010-1020\n");
	step(f, "a", stats(1, 1, 0, 0, 0));
	step(f, "a", stats(1, 1, 0, 0, 0));
	SAID(f, "step 0:d1 @1020-1030\nstep 0:d1 @1030-1040\n");
	/* 30 + 2 tokens, the last of them not computed; 16 are in the cache still */
	step(f, "a b:[{type:3,timestamp:1.021},{type:2,timestamp:1.041}]", stats(2, 0, 0, 1, 16));
	SAID(f, "step 0:d1 1:~16 @1041-1050\npreempted 1 @1021-1041 lost 15\n");
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "step 0:d1 1:d1 @1050-1060\n");
}

/* Two preemptions between two outputs, and one that the capture is over before it comes back. */
static void test_preempt__several_and_the_last_word(void **state)
{
	struct fixture *f = *state;

	known_mode(f);
	add(f, "a", 20);
	add(f, "b", 600);
	step(f, "a", stats(2, 0, 2, 0, 0));
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "begin 2\nbegin 3\nstep 2:p20 3:p492 @1020-1030\nstep 2:d1 3:p108 @1030-1040\n");
	step(f, "a", stats(1, 1, 0, 0, 0));
	step(f, "a", stats(2, 0, 0, 1, 0));
	step(f, "a", stats(1, 1, 0, 0, 0));
	SAID(f, "step 2:d1 @1040-1050\nstep 2:d1 3:~511 @1050-1060\nstep 2:d1 @1060-1070\n");
	step(f, "a", stats(2, 0, 0, 1, 0));
	step(f, "a b:[{type:3,timestamp:1.041},{type:2,timestamp:1.051},{type:3,timestamp:1.061},{type:2,timestamp:1.071}]",
	     stats(2, 0, 0, 0, 0));
	SAID(f, "step 2:d1 3:~511 @1070-1080\nstep 2:d1 3:~90 @1080-1090\n"
	     "preempted 3 @1041-1051 lost 600\npreempted 3 @1061-1071 lost 511\n");
	step(f, "a", stats(1, 1, 0, 0, 0));
	f->now += 5 * MS;
	abort_it(f, "b");
	f->now -= 5 * MS;
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "step 2:d1 @1090-1100\nstep 2:d1 @1100-1110\npreempted 3 @1090-0 lost 601?\nend 3\n");
}

/* ---- joined late, cut, lost ---- */

static void test_late__rows_of_strangers(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(vllm__on_id(f->v, f->now, 3, "chatcmpl-a", true), 0);
	step(f, "chatcmpl-a-00000001 b", stats(3, 0, 0, 0, 0));
	SAID(f, "joined 0\nlink r3 0 of 20\njoined 1\nopen step 0:d1 1:d1 @1010-1010\n");
	step(f, "chatcmpl-a-00000001 b! c", stats(2, 0, 0, 0, 0));
	SAID(f, "joined 2\nstep 0:d1 1:d1 2:d1 @1010-1020\nend 1\n");
}

static void test_cut__message_is_no_preemption(void **state)
{
	struct fixture *f = *state;
	struct vllm_counts c;

	add(f, "a", 20);
	add(f, "b", 20);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	SAID(f, "begin 0\nbegin 1\nstep 0:p20 1:p20 @1000-1010\n");
	f->now += 10 * MS;
	send_text(f, OUT, TL_OUT, -1, "[0,[[\"a\",[7],nil,nil,nil,nil,nil,nil],[\"b\",[7],nil,nil,nil,nil,nil,nil]],{num_running_reqs:2},1.5]", 16);
	SAID(f, "step 0:d1 1:d1? @1010-1020\n");
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "step 0:d1 1:d1 @1020-1030\n");
	vllm__counts(f->v, &c);
	assert_int_equal(c.inferred_steps, 1);
}

static void test_lost__streams_are_joined_anew(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	add(f, "b", 20);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	SAID(f, "begin 0\nbegin 1\nstep 0:p20 1:p20 @1000-1010\n");
	/* half of a frame, and then nothing more of it */
	net(f, OUT, TL_OUT, "\x02\0\0\0\0\0\0\x10\0", 9, 9);
	assert_int_equal(vllm__lost(f->v), 0);
	/* the end of b was in it */
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "step 0:d1 @1010-1020\nend 1\n");
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "step 0:d1 @1020-1030\n");
}

/* It was given up too early: it comes back as one that was there before. */
static void test_lost__given_up_but_alive(void **state)
{
	struct fixture *f = *state;

	add(f, "a", 20);
	add(f, "b", 20);
	step(f, "a b", stats(2, 0, 2, 0, 0));
	step(f, "a", stats(1, 0, 0, 0, 0));
	SAID(f, "begin 0\nbegin 1\nstep 0:p20 1:p20 @1000-1010\nstep 0:d1 @1010-1020\nend 1\n");
	step(f, "a b", stats(2, 0, 0, 0, 0));
	SAID(f, "joined 1\nstep 0:d1 1:d1 @1020-1030\n");
}

static void test_garbage__is_counted(void **state)
{
	struct fixture *f = *state;
	struct vllm_counts c;
	struct tl_raw_net bad = { .hdr = { sizeof(bad), TL_RAW_NET, 0, CORE, CORE, 5 }, .head = 9, .total = 9 };

	send_text(f, OUT, TL_OUT, -1, "[0,[[7,8]],nil,1.5]", 0);
	send_text(f, OUT, TL_OUT, -1, "[0,[],nil,1.5,[1,nil],nil,nil,nil,nil]", 0);	/* a reply */
	send_text(f, OUT, TL_OUT, -1, "[0,[],nil,1.5,nil,nil,3,nil,nil]", 0);	/* the end of a wave */
	send_text(f, IN, TL_IN, 0, "[7,8,9]", 0);
	send_text(f, IN, TL_IN, 1, "7", 0);
	send_text(f, IN, TL_IN, 9, "[1]", 0);
	net(f, IN, TL_IN, "GET / HTTP/1.1\r\n\r\n", 18, 18);
	SAID(f, "");
	assert_int_equal(vllm__feed(f->v, &bad.hdr), -EBADMSG);
	vllm__counts(f->v, &c);
	assert_int_equal(c.messages, 6);
	assert_int_equal(c.steps, 0);
}

static void test_process__exit_ends_its_sequences(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_proc gone = { .hdr = { sizeof(gone), TL_RAW_PROC, 0, CORE, CORE, f->now + MS },
				    .what = TL_PROC_EXIT };

	add(f, "a", 20);
	step(f, "a", stats(1, 0, 1, 0, 0));
	SAID(f, "begin 0\nstep 0:p20 @1000-1010\n");
	assert_true(vllm__wants(f->v, CORE));
	assert_int_equal(vllm__feed(f->v, &gone.hdr), 0);
	SAID(f, "end 0\n");
	assert_false(vllm__wants(f->v, CORE));
	add(f, "b", 20);
	SAID(f, "");
}

/* ---- several processes ---- */

/* Two API servers: one shows three steps before the other shows the first. */
static void test_several__put_in_order(void **state)
{
	struct fixture *f = *state;
	uint64_t t;

	known_mode(f);
	assert_int_equal(process(f, API2, "api"), 0);
	add(f, "a", 20);
	add_to(f, IN2, "b", 20);
	SAID(f, "begin 2\nbegin 3\n");
	t = f->now;
	f->now += 40 * MS;
	outputs_on(f, OUT, t + 10 * MS, "a", stats(2, 0, 2, 0, 0));
	outputs_on(f, OUT, t + 20 * MS, "a", stats(2, 0, 0, 0, 0));
	outputs_on(f, OUT, t + 30 * MS, "a!", NULL);
	f->now += 5 * MS;
	outputs_on(f, OUT2, t + 10 * MS + 2000, "b", NULL);
	outputs_on(f, OUT2, t + 20 * MS + 2000, "b", NULL);
	outputs_on(f, OUT2, t + 30 * MS - 2000, "b", stats(1, 0, 0, 0, 0));
	SAID(f, "");
	f->now += 200 * MS;
	assert_int_equal(vllm__on_id(f->v, f->now, 1, "b", true), 0);
	abort_it(f, "nobody");
	SAID(f, "link r1 3 of 20\nstep 2:p20 3:p20 @1020-1030\nstep 2:d1 3:d1 @1030-1040\n"
	     "step 2:d1 3:d1 @1040-1049\nend 2\n");
	/* what is held at the end is said */
	step(f, "", stats(0, 0, 0, 0, 0));
	outputs_on(f, OUT2, f->now + 1000, "b!", NULL);
	SAID(f, "");
	assert_int_equal(vllm__end(f->v), 0);
	SAID(f, "step 3:d1 @1049-1275\nend 3\n");
}

/* With no counters only time tells what belongs together. */
static void test_several__without_counters(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(process(f, API2, "api"), 0);
	add(f, "a", 20);
	add_to(f, IN2, "b", 20);
	step(f, "a", NULL);
	outputs_on(f, OUT2, f->now + 3000, "b", NULL);
	step(f, "a", NULL);
	outputs_on(f, OUT2, f->now + 900000, "b", NULL);
	assert_int_equal(vllm__end(f->v), 0);
	SAID(f, "begin 0\nbegin 1\nstep 0:p20? 1:p20? @1000-1010\nstep 0:d1 @1010-1020\nstep 1:d1 @1020-1020\n");
}

static void test_engines__each_has_its_own_steps(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(process(f, CORE2, "engine-core-dp1"), 0);
	assert_int_equal(vllm__on_id(f->v, f->now, 4, "b", true), 0);
	add(f, "a", 20);
	f->core = CORE2;
	add_to(f, 11, "b", 30);
	f->now += 10 * MS;
	outputs_on(f, 12, f->now, "b", stats(1, 0, 1, 0, 0));
	f->core = CORE;
	step(f, "a", stats(1, 0, 1, 0, 0));
	SAID(f, "begin 0\nbegin 1\nlink r4 1 of 21\nstep of 21 1:p30 @1000-1010\nstep 0:p20 @1000-1020\n");
}

/* To a coordinator they say how many they run, before and after each step. */
static void test_engines__a_coordinator_is_told_of_no_step(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(process(f, COORD, "coordinator"), 0);
	add(f, "a", 900);
	add(f, "b", 20);
	f->now += MS;
	outputs_on(f, OUT_COORD, f->now, "", "{num_running_reqs:0,num_waiting_reqs:2}");
	step(f, "b", NULL);
	SAID(f, "begin 0\nbegin 1\nopen step 1:p20? @1000-1011\n");
	outputs_on(f, OUT_COORD, f->now + 100, "", "{num_running_reqs:2,num_waiting_reqs:0}");
	SAID(f, "");
	/* but the same on a socket of an API server is one */
	step(f, "", stats(2, 0, 1, 0, 0));
	assert_int_equal(f->log.n_kind[TL_STEP], 2);
}

/* ---- limits ---- */

static void test_numbers__used_again_join_no_stranger(void **state)
{
	struct fixture *f = *state;
	char id[32];

	/* Of two siblings one ends, and its number goes to somebody else. */
	assert_int_equal(vllm__on_id(f->v, f->now, 1, "both", false), 0);
	add(f, "0_chatcmpl-both-0a0a0a0a", 20);
	add(f, "1_chatcmpl-both-0a0a0a0a", 20);
	step(f, "0_chatcmpl-both-0a0a0a0a! 1_chatcmpl-both-0a0a0a0a", stats(1, 0, 2, 0, 0));
	for (int i = 2; i < 1024; i++) {
		snprintf(id, sizeof(id), "n%d", i);
		add(f, id, 5);
	}
	f->log.len = 0;
	*f->log.text = 0;
	add(f, "stranger", 5);
	SAID(f, "begin 0\n");
	assert_int_equal(vllm__on_id(f->v, f->now, 99, "chatcmpl-both", true), 0);
	SAID(f, "");
	assert_int_equal(vllm__on_id(f->v, f->now, 7, "stranger", true), 0);
	SAID(f, "link r7 0 of 20\n");
}

/* Ids of requests that never reach an engine do not fill the table for good. */
static void test_ids__oldest_make_room(void **state)
{
	struct fixture *f = *state;
	char id[32];

	for (int i = 0; i < 140000; i++) {
		snprintf(id, sizeof(id), "lost-%d", i);
		assert_int_equal(vllm__on_id(f->v, f->now, 1 + i, id, false), 0);
	}
	add(f, "chatcmpl-lost-139999-0a0a0a0a", 5);
	add(f, "chatcmpl-lost-3-0a0a0a0a", 5);
	SAID(f, "begin 0\nlink r140000 0 of 20\nbegin 1\n");
}

static void test_step__of_more_than_a_record_holds(void **state)
{
	struct fixture *f = *state;
	char id[16], *text = malloc(400000);
	size_t len = 0;

	for (int i = 0; i < TL_MAX_MEMBERS + 50; i++) {
		snprintf(id, sizeof(id), "n%d", i);
		add(f, id, 5);
		len += sprintf(text + len, "%s[\"%s\",[7],nil,nil,nil,nil,nil,nil]", i ? "," : "[0,[", id);
	}
	sprintf(text + len, "],nil,1.5]");
	f->log.len = 0;
	struct mp body = { 0 }, wire = { 0 };

	mp_text(&body, text);
	frame(&wire, 0, body.p, body.len);
	f->now += 500 * (uint64_t)MS;
	for (size_t at = 0; at < wire.len; at += 8192)
		net(f, OUT, TL_OUT, wire.p + at, wire.len - at < 8192 ? wire.len - at : 8192,
		    wire.len - at < 8192 ? wire.len - at : 8192);
	assert_int_equal(f->err, 0);
	assert_int_equal(f->log.n_kind[TL_STEP], 1);
	mp_free(&body);
	mp_free(&wire);
	free(text);
}

static void test_vllm__survives_oom(void **state)
{
	(void)state;
	OOM_LOOP({
		struct fixture *f;

		oom_after(-1);
		f = calloc(1, sizeof(*f));
		f->now = 1000 * (uint64_t)MS;
		f->core = CORE;
		oom_after(oom_i);
		f->v = vllm__new(&(struct emit){ note, &f->log });
		if (f->v && !process(f, API, "api") && !process(f, CORE, "engine-core")) {
			static const uint8_t wire[] = "\1\1\0\0\x10\x96\xa1" "a\x92\1\2\xc0\x80\xc0\xcb\x3f\xf8\0\0\0\0\0";
			static const uint8_t answer[] = "\0\x14\x94\0\x91\x92\xa1" "a\x91\7\xc0\xcb\x3f\xf8\0\0\0\0\0\0\xc0";

			net(f, IN, TL_IN, wire, sizeof(wire) - 1, sizeof(wire) - 1);
			vllm__on_id(f->v, f->now, 1, "a", true);
			net(f, OUT, TL_OUT, answer, sizeof(answer) - 1, sizeof(answer) - 1);
			vllm__end(f->v);
		}
		vllm__free(f->v);
		free(f);
	});
}

#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(request__from_add_to_end), T(request__step_begins_when_it_was_scheduled),
		T(ids__children_and_prompts_of_one_request), T(add__seen_twice_is_one), T(add__cut),
		T(abort__ends_with_the_step), T(preempt__told_with_the_next_output),
		T(preempt__several_and_the_last_word), T(late__rows_of_strangers),
		T(cut__message_is_no_preemption), T(lost__streams_are_joined_anew),
		T(lost__given_up_but_alive), T(garbage__is_counted), T(process__exit_ends_its_sequences),
		T(several__put_in_order), T(several__without_counters), T(engines__each_has_its_own_steps),
		T(engines__a_coordinator_is_told_of_no_step), T(numbers__used_again_join_no_stranger),
		T(ids__oldest_make_room), T(step__of_more_than_a_record_holds),
		cmocka_unit_test(test_vllm__survives_oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
