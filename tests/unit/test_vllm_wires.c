/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's wires: frames as libzmq is given them, TCP streams with holes, and which sockets are wires. */
#include "vllm_feed.h"

enum { INET = 2 };

/* ---- frames ---- */

static void frame_event(struct fixture *f, uint64_t sock, int dir, bool more, const void *p, size_t n, size_t kept)
{
	static _Alignas(8) uint8_t space[UINT16_MAX];
	size_t size = (sizeof(struct tl_raw_zmq) + kept + 7) & ~(size_t)7;
	struct tl_raw_zmq *e = (void *)space;

	assert_true(size <= sizeof(space));
	memset(space, 0, size);
	e->hdr = (struct tl_hdr){ size, TL_RAW_ZMQ, 0, f->core, f->core + 1, f->now };
	e->sock = sock;
	e->total = n;
	e->head = kept;
	e->dir = dir;
	e->has_more = more;
	memcpy(e->data, p, kept);
	f->err = vllm__feed(f->v, &e->hdr);
}

static void frames(struct fixture *f, uint64_t sock, int dir, int kind, const char *text, size_t cut)
{
	struct mp body = { 0 };
	uint8_t k = kind;

	mp_text(&body, text);
	if (kind >= 0)
		frame_event(f, sock, dir, true, &k, 1, 1);
	frame_event(f, sock, dir, false, body.p, body.len, cut && cut < body.len ? cut : body.len);
	mp_free(&body);
}

static void answer(struct fixture *f, bool by_frames, uint64_t sock, const char *rows, const char *st, size_t cut)
{
	char list[1024], text[4096];

	f->now += 10 * MS;
	rows_text(list, sizeof(list), rows);
	snprintf(text, sizeof(text), "[0,[%s],%s,%llu.%09llu,nil,nil,nil,nil,nil]", list, st ? st : "nil",
		 (unsigned long long)f->now / 1000000000, (unsigned long long)f->now % 1000000000);
	(by_frames ? frames : send_text)(f, sock, TL_OUT, -1, text, cut);
}

/* One busy time, as bytes of sockets or as frames. */
static void play(struct fixture *f, bool by_frames)
{
	void (*say)(struct fixture *, uint64_t, int, int, const char *, size_t) = by_frames ? frames : send_text;

	say(f, IN, TL_IN, 0, "[\"a\",#900,nil,{max_tokens:40},nil,1.5,nil,nil,nil,nil,F,0,0,0,nil,F,\"x\",nil,nil,F,nil,nil]", 0);
	say(f, IN, TL_IN, 3, "[0,1,\"reset\",[]]", 0);
	answer(f, by_frames, OUT, "", stats(1, 0, 1, 0, 0), 0);
	say(f, IN, TL_IN, 0, "[\"b\",#20,nil,{max_tokens:40},nil,1.5,nil,nil,nil,nil,F,0,0,0,nil,F,\"x\",nil,nil,F,nil,nil]", 0);
	answer(f, by_frames, OUT, "a b", stats(2, 0, 1, 0, 0), 0);
	answer(f, by_frames, OUT, "a b!", stats(1, 0, 0, 0, 0), 0);
	say(f, IN, TL_IN, 1, "[\"a\"]", 0);
	answer(f, by_frames, OUT, "", stats(0, 0, 0, 0, 0), 0);
	vllm__end(f->v);
}

static void test_frames__say_what_bytes_say(void **state)
{
	struct fixture *f = *state;
	struct fixture *other;
	void *again;

	play(f, true);
	assert_int_equal(f->err, 0);
	assert_true(f->log.n_kind[TL_STEP] >= 3 && f->log.n_kind[TL_SEQ_BEGIN] == 2 && f->log.n_kind[TL_SEQ_END] == 2);
	assert_int_equal(setup(&again), 0);
	other = again;
	play(other, false);
	assert_string_equal(f->log.text, other->log.text);
	teardown(&again);
}

static void play_cut(struct fixture *f, bool by_frames)
{
	const size_t kept = 60, header = 2;

	add(f, "a", 20);
	add(f, "b", 20);
	answer(f, by_frames, OUT, "", stats(2, 0, 0, 0, 0), 0);
	answer(f, by_frames, OUT, "a b", stats(2, 0, 2, 0, 0), by_frames ? kept : kept + header);
	answer(f, by_frames, OUT, "a b", stats(2, 0, 0, 0, 0), 0);
}

/* The first rows of a message whose end was not kept, as with bytes. */
static void test_frames__cut(void **state)
{
	struct fixture *f = *state;
	struct fixture *other;
	void *again;

	play_cut(f, true);
	assert_non_null(strchr(f->log.text, '?'));
	assert_int_equal(setup(&again), 0);
	other = again;
	play_cut(other, false);
	assert_string_equal(f->log.text, other->log.text);
	teardown(&again);
}

static void test_frames__of_a_layout_that_is_not_known(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_zmq e = { .hdr = { sizeof(e), TL_RAW_ZMQ, 0, CORE, CORE, f->now }, .sock = OUT,
				.dir = TL_OUT, .unknown = 1 };
	struct vllm_counts counts;

	frame_event(f, OUT, TL_OUT, true, "\0", 1, 1);
	assert_int_equal(vllm__feed(f->v, &e.hdr), 0);
	vllm__counts(f->v, &counts);
	assert_int_equal(counts.bad_messages, 1);
	assert_int_equal(f->log.n_kind[TL_LOST], 1);
	add(f, "a", 20);
	answer(f, true, OUT, "a", stats(1, 0, 1, 0, 0), 0);
	assert_int_equal(f->log.n_kind[TL_STEP], 1);
}

static void test_frames__damaged_or_of_others(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_zmq e = { .hdr = { sizeof(e), TL_RAW_ZMQ, 0, CORE, CORE, f->now }, .sock = OUT,
				.dir = TL_OUT, .total = 8, .head = 8 };

	assert_int_equal(vllm__feed(f->v, &e.hdr), -EBADMSG);
	e.head = 0;
	e.total = UINT64_MAX;		/* whatever the target says */
	assert_int_equal(vllm__feed(f->v, &e.hdr), 0);
	e.hdr.tgid = API;
	assert_int_equal(vllm__feed(f->v, &e.hdr), 0);
	SAID(f, "");
}

/* A socket's address means nothing in another process, nor in the next one of the same number. */
static void test_frames__sockets_belong_to_a_process(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_proc gone = { .hdr = { sizeof(gone), TL_RAW_PROC, 0, CORE, CORE, f->now }, .what = TL_PROC_EXIT };
	uint8_t type = 0;

	assert_int_equal(process(f, CORE2, "engine-core-dp1"), 0);
	frame_event(f, IN, TL_IN, true, &type, 1, 1);
	f->core = CORE2;
	frames(f, IN, TL_IN, 0, "[\"b\",#20,nil,{},nil,1.5,nil,nil,nil,nil,F,0,0,0,nil,F,\"x\",nil,nil,F,nil,nil]", 0);
	SAID(f, "begin 0\n");
	f->core = CORE;
	assert_int_equal(vllm__feed(f->v, &gone.hdr), 0);
	assert_int_equal(process(f, CORE, "engine-core"), 0);
	frames(f, IN, TL_IN, 0, "[\"a\",#20,nil,{},nil,1.5,nil,nil,nil,nil,F,0,0,0,nil,F,\"x\",nil,nil,F,nil,nil]", 0);
	SAID(f, "begin 1\n");
}

/* An engine whose API servers are on another host: that there are two shows in its sockets. */
static void test_frames__clients_that_nobody_sees(void **state)
{
	struct fixture *f = *state;

	known_mode(f);
	frames(f, IN, TL_IN, 0, "[\"a\",#20,nil,{max_tokens:40},nil,1.5,nil,nil,nil,nil,F,0,0,0,nil,F,\"x\",nil,nil,F,nil,nil]", 0);
	frames(f, IN2, TL_IN, 0, "[\"b\",#20,nil,{max_tokens:40},nil,1.5,nil,nil,nil,nil,F,0,0,0,nil,F,\"x\",nil,nil,F,nil,nil]", 0);
	answer(f, true, 31, "a", stats(2, 0, 2, 0, 0), 0);
	answer(f, true, 32, "b", NULL, 0);
	f->log.len = *f->log.text = 0;
	for (int i = 0; i < 3; i++) {
		answer(f, true, 31, "a", stats(2, 0, 0, 0, 0), 0);
		f->now -= 10 * MS - 2000;
		answer(f, true, 32, "b", NULL, 0);
		f->now -= 2000;
	}
	vllm__end(f->v);
	assert_int_equal(f->log.n_kind[TL_STEP], 2 + 1 + 3);
}

/* ---- TCP ---- */

/* The next `n` bytes of a stream; `pos` is TCP's count in front of them. */
static void tcp(struct fixture *f, uint64_t sock, int dir, uint32_t pos, const void *p, size_t n)
{
	static _Alignas(8) uint8_t space[UINT16_MAX];
	size_t size = (sizeof(struct tl_raw_net) + n + 7) & ~(size_t)7;
	struct tl_raw_net *e = (void *)space;

	memset(space, 0, size);
	e->hdr = (struct tl_hdr){ size, TL_RAW_NET, TL_NET_POS, f->core, f->core, f->now };
	e->sock = sock;
	e->dir = dir;
	e->family = INET;
	e->total = e->head = n;
	e->stream_pos = pos + n;
	memcpy(e->data, p, n);
	f->err = vllm__feed(f->v, &e->hdr);
}

/* Three messages of outputs, 10 ms apart, and where each begins. */
static size_t three(struct fixture *f, struct mp *wire, size_t *at)
{
	char list[1024], text[4096];

	for (int i = 0; i < 3; i++) {
		struct mp body = { 0 };

		at[i] = wire->len;
		rows_text(list, sizeof(list), "a b c d e f");
		snprintf(text, sizeof(text), "[0,[%s],%s,%llu.%09llu,nil,nil,nil,nil,nil]", list,
			 stats(6, 0, i ? 0 : 6, 0, 0), (unsigned long long)(f->now + 10ull * MS * (i + 1)) / 1000000000,
			 (unsigned long long)(f->now + 10ull * MS * (i + 1)) % 1000000000);
		mp_text(&body, text);
		frame(wire, 0, body.p, body.len);
		mp_free(&body);
	}
	return wire->len;
}

static void play_hole(struct fixture *f, uint32_t pos, size_t from, size_t to, unsigned want_steps, bool want_guess)
{
	struct mp wire = { 0 };
	size_t at[3], len;

	for (int i = 0; i < 6; i++)
		add(f, (char[]){ 'a' + i, 0 }, 20);
	len = three(f, &wire, at);
	from += at[1];
	to += at[1];
	assert_true(to <= len);
	f->now += 50 * MS;
	tcp(f, OUT, TL_OUT, pos, wire.p, from);
	tcp(f, OUT, TL_OUT, pos + to, wire.p + to, len - to);
	assert_int_equal(f->err, 0);
	assert_int_equal(f->log.n_kind[TL_LOST], to != from);
	assert_int_equal(f->log.n_kind[TL_STEP], want_steps);
	assert_int_equal(strchr(f->log.text, '?') != NULL, want_guess);
	mp_free(&wire);
}

static void test_tcp__without_a_hole(void **state)
{
	play_hole(*state, 0xffffff00, 100, 100, 3, false);
}

/* Of the message with the hole the rows before it are known, and the next message is whole. */
static void test_tcp__hole_in_a_message(void **state)
{
	play_hole(*state, 0xffffff00, 60, 80, 3, true);
}

/* A hole that hides where the next message begins: the stream is joined anew where a write begins, and that
 * something was lost is told. */
static void test_tcp__hole_over_a_header(void **state)
{
	struct fixture *f = *state;
	struct mp wire = { 0 };
	size_t at[3];

	three(f, &wire, at);
	mp_free(&wire);
	play_hole(f, 77, 0, at[2] - at[1], 2, false);
}

static void test_tcp__found_to_be_a_wire(void **state)
{
	struct fixture *f = *state;
	struct mp wire = { 0 };
	size_t at[3], len = three(f, &wire, at);
	uint64_t sock = 0;
	const uint8_t utility[] = "\1\1\3\0\4\x93\0\1\xc0";

	step(f, "x", NULL);
	assert_false(vllm__next_wire(f->v, &sock));	/* a unix socket: whole anyway */
	tcp(f, 70, TL_IN, 0, utility, sizeof(utility) - 1);
	assert_false(vllm__next_wire(f->v, &sock));	/* nothing that only vLLM says */
	tcp(f, 71, TL_OUT, 0, wire.p, len);
	assert_true(vllm__next_wire(f->v, &sock));
	assert_int_equal(sock, 71);
	tcp(f, 71, TL_OUT, len, wire.p, len);
	assert_false(vllm__next_wire(f->v, &sock));	/* once */
	for (uint64_t s = 100; s < 150; s++)
		tcp(f, s, TL_OUT, 0, wire.p, len);
	for (sock = 0, len = 0; vllm__next_wire(f->v, &sock); len++)
		assert_true(sock >= 100 && sock < 150);
	assert_int_equal(len, 16);			/* the others when they speak again */
	tcp(f, 140, TL_OUT, wire.len, wire.p, wire.len);
	assert_true(vllm__next_wire(f->v, &sock));
	assert_int_equal(sock, 140);
	mp_free(&wire);
}

static void test_frames__survive_oom(void **state)
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
			frame_event(f, IN, TL_IN, true, "\0", 1, 1);
			frame_event(f, IN, TL_IN, false, "\x96\xa1" "a\x92\1\2\xc0\x80\xc0\xcb\x3f\xf8\0\0\0\0\0\0", 18, 18);
			frame_event(f, OUT, TL_OUT, false, "\x94\0\x91\x92\xa1" "a\x91\7\xc0\xcb\x3f\xf8\0\0\0\0\0\0\xc0", 20, 20);
			vllm__end(f->v);
		}
		vllm__free(f->v);
		free(f);
	});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(frames__say_what_bytes_say), T(frames__cut), T(frames__of_a_layout_that_is_not_known),
		T(frames__damaged_or_of_others), T(frames__sockets_belong_to_a_process), T(frames__clients_that_nobody_sees),
		T(tcp__without_a_hole), T(tcp__hole_in_a_message), T(tcp__hole_over_a_header),
		T(tcp__found_to_be_a_wire),
		cmocka_unit_test(test_frames__survive_oom),
	};

	return cmocka_run_group_tests_name("vllm_wires", tests, NULL, NULL);
}
