/* SPDX-License-Identifier: Apache-2.0 */
/* A proxy before an engine: what its exchanges say of the engine's requests. */
#include "unit.h"

#include "engine/pipeline.h"
#include <errno.h>
#include <string.h>

enum { ENGINE = 100, PROXY = 200, ENGINE_PORT = 8000, PROXY_PORT = 80, MAX_TOLD = 256 };
enum sock { CLIENT1 = 1, CLIENT2, UP1, UP2, SERVED1, SERVED2 };	/* of the proxy, and of the engine */

struct fixture {
	struct pipeline *p;
	struct tl_delivered told[MAX_TOLD];
	size_t n_told;
	struct tl_send_held held[8];
	size_t n_held;
	unsigned n_begin, n_conn, n_proc, n_lost;
	uint32_t pos[16];	/* of the stream, by socket and direction */
};

static int take(void *ctx, const struct tl_hdr *ev)
{
	struct fixture *f = ctx;

	switch (ev->kind) {
	case TL_DELIVERED:
		assert_true(f->n_told < MAX_TOLD);
		f->told[f->n_told++] = *(const struct tl_delivered *)ev;
		break;
	case TL_SEND_HELD:
		assert_true(f->n_held < ARRAY_SIZE(f->held));
		f->held[f->n_held++] = *(const struct tl_send_held *)ev;
		break;
	case TL_REQ_BEGIN:
		f->n_begin++;
		break;
	case TL_CONN:
		f->n_conn++;
		assert_int_equal(ev->tgid, ENGINE);
		break;
	case TL_PROC:
		f->n_proc++;
		break;
	case TL_LOST:
		f->n_lost++;
		break;
	}
	return 0;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->p = pipeline__new(NULL, &(struct emit){ take, f });
	*state = f;
	return f->p && !pipeline__add_proxy(f->p, PROXY, "nginx") ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	pipeline__free(f->p);
	free(f);
	return 0;
}

/* ---- raw events ---- */

static uint32_t owner(unsigned sock)
{
	return sock >= SERVED1 ? ENGINE : PROXY;
}

static uint16_t local_port(unsigned sock)
{
	return sock >= SERVED1 ? ENGINE_PORT : sock >= UP1 ? 50000 + sock - UP1 : PROXY_PORT;
}

static uint16_t peer_port(unsigned sock)
{
	return sock >= SERVED1 ? 50000 + sock - SERVED1 : sock >= UP1 ? ENGINE_PORT : 60000 + sock;
}

static int sock_event(struct fixture *f, unsigned sock, uint8_t what, uint64_t ts)
{
	struct tl_raw_sock e = {
		.hdr = { sizeof(e), TL_RAW_SOCK, 0, owner(sock), owner(sock), ts }, .sock = sock, .what = what,
		.family = 2, .local_port = local_port(sock), .peer_port = peer_port(sock),
	};

	return pipeline__feed(f->p, &e.hdr);
}

static int bytes(struct fixture *f, unsigned sock, uint8_t dir, uint64_t ts, const char *data)
{
	static _Alignas(8) uint8_t space[8192];		/* not from the heap: that may be failing */
	struct tl_raw_net *e = (void *)space;
	size_t n = strlen(data);

	assert_true(sizeof(*e) + n + 8 <= sizeof(space));
	memset(space, 0, sizeof(*e) + n + 8);
	f->pos[2 * sock + dir - 1] += n;
	*e = (struct tl_raw_net){
		.hdr = { (sizeof(*e) + n + 7) & ~7u, TL_RAW_NET, TL_NET_POS, owner(sock), owner(sock), ts },
		.sock = sock, .total = n, .head = n, .dir = dir, .family = 2, .local_port = local_port(sock),
		.peer_port = peer_port(sock), .stream_pos = f->pos[2 * sock + dir - 1],
	};
	memcpy(e->data, data, n);
	return pipeline__feed(f->p, &e->hdr);
}

static int tcp_event(struct fixture *f, unsigned sock, uint16_t what, uint64_t ts)
{
	struct tl_raw_tcp e = {
		.hdr = { sizeof(e), TL_RAW_TCP, 0, owner(sock), what == TL_TCP_LEFT ? 0 : owner(sock), ts },
		.sock = sock, .seq = f->pos[2 * sock + TL_OUT - 1], .what = what, .bytes = 10, .why = TL_HELD_NAGLE,
	};

	return pipeline__feed(f->p, &e.hdr);
}

/* ---- exchanges ---- */

static const char *post(const char *text)
{
	static char buf[1024];

	snprintf(buf, sizeof(buf), "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %zu\r\n\r\n%s", strlen(text), text);
	return buf;
}

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
#define ASK "{\"model\":\"m\",\"stream\":true,\"messages\":[]}"
#define ASK_LONGER "{\"model\":\"m\",\"stream\":true,\"messages\":[], \"x\":1}"
#define ROLE(id) "data: {" id "\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"a\"}}]}\n\n"
#define TEXT(id) "data: {" id "\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n"
#define DONE "data: [DONE]\n\n"
#define ID1 "\"id\":\"c1\","
#define ID2 "\"id\":\"c2\","

/* A client asks the proxy, which asks the engine. */
static int begin(struct fixture *f, unsigned client, unsigned up, unsigned served, uint64_t ts, const char *text)
{
	int err = sock_event(f, client, TL_SOCK_ACCEPT, ts);

	err = err ? err : bytes(f, client, TL_IN, ts + 1, post(text));
	err = err ? err : sock_event(f, up, TL_SOCK_CONNECT, ts + 2);
	err = err ? err : bytes(f, up, TL_OUT, ts + 3, post(text));
	err = err ? err : sock_event(f, served, TL_SOCK_ACCEPT, ts + 4);
	return err ? err : bytes(f, served, TL_IN, ts + 5, post(text));
}

static int answer(struct fixture *f, unsigned sock, uint64_t ts, const char *data)
{
	return bytes(f, sock, TL_OUT, ts, data);
}

static void assert_told(const struct fixture *f, size_t i, uint32_t req, uint64_t ts, uint32_t n, uint32_t flags)
{
	assert_true(i < f->n_told);
	assert_int_equal(f->told[i].req, req);
	assert_int_equal(f->told[i].hdr.ts_ns, ts);
	assert_int_equal(f->told[i].n_chunks, n);
	assert_int_equal(f->told[i].hdr.flags, flags);
	assert_int_equal(f->told[i].by, TL_BY_PROXY);
	assert_int_equal(f->told[i].hdr.tgid, PROXY);
	assert_string_equal(f->told[i].name, "nginx");
}

static int whole(struct fixture *f)
{
	int err = begin(f, CLIENT1, UP1, SERVED1, 1000, ASK);

	err = err ? err : answer(f, SERVED1, 2000, HEAD ROLE(ID1));
	err = err ? err : answer(f, SERVED1, 2100, TEXT(ID1));
	err = err ? err : answer(f, CLIENT1, 3000, HEAD ROLE(ID1) TEXT(ID1));
	err = err ? err : answer(f, SERVED1, 3100, TEXT(ID1));
	err = err ? err : answer(f, SERVED1, 3200, DONE);
	err = err ? err : sock_event(f, SERVED1, TL_SOCK_CLOSE, 3300);
	err = err ? err : answer(f, CLIENT1, 4000, TEXT(ID1) DONE);
	err = err ? err : sock_event(f, CLIENT1, TL_SOCK_CLOSE, 4100);
	return err ? err : pipeline__end(f->p, 9000);
}

static void test_by_id(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(whole(f), 0);
	assert_int_equal(f->n_told, 2);
	assert_told(f, 0, 1, 3000, 2, 0);
	assert_told(f, 1, 1, 4000, 4, 0);
	assert_int_equal(f->n_begin, 1);	/* the proxy's own exchange is no request */
	assert_int_equal(f->n_conn, 2);		/* opened, closed: the engine's */
	assert_int_equal(f->n_lost, 0);
}

/* ---- what happens, row by row ---- */

#define GZIP "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
#define BR "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: br\r\nTransfer-Encoding: chunked\r\n\r\n"
#define LONGER ID1 "\"more\":\"yyyyyyyyyyy\","

enum what { NOTHING, BEGIN, ACCEPT, CONNECT, CLOSE, ASKED, WRITES, HELD, LEFT, UNSEEN, SO_FAR };
struct step {
	enum what what;		/* BEGIN: by way of UP1 and SERVED1; UNSEEN: 500 bytes */
	unsigned sock;		/* SO_FAR: so many were told */
	uint64_t ts;
	const char *data;
};
static const struct row {
	const char *name;
	struct step steps[18];
	struct { uint32_t req; uint64_t ts; uint32_t n, flags; } told[3];	/* req 0: nothing more */
} rows[] = {
	{ "what the proxy wrote comes before the engine's own write, which was longer in the kernel",
	  { { BEGIN, CLIENT1, 1000, ASK }, { WRITES, CLIENT1, 2001, HEAD ROLE(ID1) }, { WRITES, CLIENT1, 2101, TEXT(ID1) },
	    { SO_FAR, 0, 0, "" }, { WRITES, SERVED1, 2000, HEAD ROLE(ID1) }, { WRITES, SERVED1, 2100, TEXT(ID1) } },
	  { { 1, 2001, 1, 0 }, { 1, 2101, 2, 0 } } },
	{ "two at a time",
	  { { ACCEPT, CLIENT1, 1000, "" }, { ASKED, CLIENT1, 1001, ASK }, { CONNECT, UP2, 1002, "" },
	    { WRITES, UP2, 1003, ASK }, { ACCEPT, SERVED2, 1004, "" }, { ASKED, SERVED2, 1005, ASK },
	    { BEGIN, CLIENT2, 1100, ASK },
	    { WRITES, SERVED1, 2000, HEAD ROLE(ID2) }, { WRITES, SERVED2, 2010, HEAD ROLE(ID1) },
	    { WRITES, CLIENT2, 2020, HEAD ROLE(ID2) }, { WRITES, CLIENT1, 2030, HEAD ROLE(ID1) } },
	  { { 2, 2020, 1, 0 }, { 1, 2030, 1, 0 } } },
	{ "no id in the answers; the second asks first, the length of the bodies tells",
	  { { ACCEPT, CLIENT1, 1000, "" }, { ASKED, CLIENT1, 1001, ASK }, { ACCEPT, CLIENT2, 1002, "" },
	    { ASKED, CLIENT2, 1003, ASK_LONGER }, { CONNECT, UP1, 1004, "" }, { CONNECT, UP2, 1005, "" },
	    { ACCEPT, SERVED2, 1006, "" }, { ASKED, SERVED2, 1007, ASK_LONGER }, { ACCEPT, SERVED1, 1008, "" },
	    { ASKED, SERVED1, 1009, ASK }, { WRITES, SERVED1, 2000, HEAD TEXT("") TEXT("") DONE },
	    { WRITES, SERVED2, 2010, HEAD TEXT("") DONE }, { WRITES, CLIENT1, 2020, HEAD TEXT("") TEXT("") DONE },
	    { WRITES, CLIENT2, 2030, HEAD TEXT("") DONE }, { CLOSE, CLIENT1, 2040, "" }, { CLOSE, CLIENT2, 2050, "" } },
	  { { 2, 2020, 3, TL_F_GUESS }, { 1, 2030, 2, TL_F_GUESS } } },
	{ "a process of another host has the same port by chance: nothing is tied to it",
	  { { ACCEPT, CLIENT1, 1000, "" }, { ASKED, CLIENT1, 1001, ASK }, { ACCEPT, SERVED2, 1006, "" },
	    { ASKED, SERVED2, 1007, ASK }, { WRITES, SERVED2, 2000, HEAD TEXT("") DONE },
	    { WRITES, CLIENT1, 2020, HEAD TEXT("") DONE }, { CLOSE, CLIENT1, 2040, "" } }, { { 0, 0, 0, 0 } } },
	{ "compressed: only that it handed on all",
	  { { BEGIN, CLIENT1, 1000, ASK }, { WRITES, SERVED1, 2000, HEAD ROLE(ID1) TEXT(ID1) TEXT(ID1) DONE },
	    { WRITES, CLIENT1, 2100, BR "5\r\nabcde\r\n" }, { WRITES, CLIENT1, 2200, "3\r\nabc\r\n0\r\n\r\n" } },
	  { { 1, 2200, 4, TL_F_GUESS } } },
	{ "said to be compressed, but is not: the same",
	  { { BEGIN, CLIENT1, 1000, ASK }, { WRITES, SERVED1, 2000, HEAD ROLE(ID1) TEXT(ID1) TEXT(ID1) DONE },
	    { WRITES, CLIENT1, 2100, GZIP "5\r\nabcde\r\n" }, { WRITES, CLIENT1, 2200, "3\r\nabc\r\n0\r\n\r\n" } },
	  { { 1, 2200, 4, TL_F_GUESS } } },
	{ "chunks of its own, no role and longer ones: the tokens in them are what counts",
	  { { BEGIN, CLIENT1, 1000, ASK }, { WRITES, SERVED1, 2000, HEAD ROLE(ID1) TEXT(ID1) TEXT(ID1) },
	    { WRITES, CLIENT1, 2100, HEAD TEXT(LONGER) }, { WRITES, CLIENT1, 2200, TEXT(LONGER) } },
	  { { 1, 2100, 2, 0 }, { 1, 2200, 3, 0 } } },
	{ "the last write takes those with it that were held: they left inside of it",
	  { { BEGIN, CLIENT1, 1000, ASK }, { WRITES, SERVED1, 2000, HEAD ROLE(ID1) TEXT(ID1) TEXT(ID1) DONE },
	    { WRITES, CLIENT1, 3000, HEAD ROLE(ID1) }, { HELD, CLIENT1, 3000, "" },
	    { WRITES, CLIENT1, 4000, TEXT(ID1) }, { HELD, CLIENT1, 4000, "" }, { LEFT, CLIENT1, 500020, "" },
	    { SO_FAR, 1, 0, "" }, { WRITES, CLIENT1, 500000, TEXT(ID1) DONE } },
	  { { 1, 500020, 2, 0 }, { 1, 500020, 4, 0 } } },
	{ "how many chunks went before is not known: nothing is told, and nothing is tied wrongly",
	  { { BEGIN, CLIENT1, 1000, ASK }, { WRITES, SERVED1, 2000, HEAD ROLE(ID1) TEXT(ID1) TEXT(ID1) },
	    { WRITES, CLIENT2, 3000, "c8\r\n" TEXT(ID1) }, { WRITES, CLIENT2, 3100, TEXT(ID1) } }, { { 0, 0, 0, 0 } } },
	{ "bytes that nobody saw: none of the engine's is lost",
	  { { BEGIN, CLIENT1, 1000, ASK }, { WRITES, SERVED1, 2000, HEAD ROLE(ID1) TEXT(ID1) TEXT(ID1) },
	    { WRITES, CLIENT1, 3000, HEAD ROLE(ID1) }, { UNSEEN, CLIENT1, 0, "" }, { WRITES, CLIENT1, 4000, TEXT(ID1) } },
	  { { 1, 3000, 1, 0 } } },
};

static int do_step(struct fixture *f, const struct step *s)
{
	switch (s->what) {
	case BEGIN:
		return begin(f, s->sock, UP1, SERVED1, s->ts, s->data);
	case ACCEPT:
		return sock_event(f, s->sock, TL_SOCK_ACCEPT, s->ts);
	case CONNECT:
		return sock_event(f, s->sock, TL_SOCK_CONNECT, s->ts);
	case CLOSE:
		return sock_event(f, s->sock, TL_SOCK_CLOSE, s->ts);
	case ASKED:
		return bytes(f, s->sock, TL_IN, s->ts, post(s->data));
	case WRITES:
		return bytes(f, s->sock, TL_OUT, s->ts, s->sock == UP1 || s->sock == UP2 ? post(s->data) : s->data);
	case HELD:
		return tcp_event(f, s->sock, TL_TCP_HELD, s->ts);
	case LEFT:
		return tcp_event(f, s->sock, TL_TCP_LEFT, s->ts);
	case UNSEEN:
		f->pos[2 * s->sock + TL_OUT - 1] += 500;
		return 0;
	case SO_FAR:
		assert_int_equal(f->n_told, s->sock);
		return 0;
	default:
		return 0;
	}
}

static void test_rows(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *r = &rows[i];
		struct fixture *f = *state;
		size_t n = 0;

		for (const struct step *s = r->steps; s->what; s++)
			assert_int_equal(do_step(f, s), 0);
		pipeline__end(f->p, 9000000);
		while (n < ARRAY_SIZE(r->told) && r->told[n].req)
			n++;
		if (f->n_told != n)
			print_error("%s\n", r->name);
		assert_int_equal(f->n_told, n);
		for (size_t k = 0; k < n; k++)
			assert_told(f, k, r->told[k].req, r->told[k].ts, r->told[k].n, r->told[k].flags);
		assert_int_equal(f->n_lost, 0);
		teardown(state);
		assert_int_equal(setup(state), 0);
	}
}

/* What the proxy's own socket holds is handed on when it leaves, and the hold is the engine's request's. */
static void test_held_by_the_proxys_socket(void **state)
{
	struct fixture *f = *state;

	begin(f, CLIENT1, UP1, SERVED1, 1000, ASK);
	answer(f, SERVED1, 2000, HEAD ROLE(ID1) TEXT(ID1) TEXT(ID1));
	answer(f, CLIENT1, 3000, HEAD ROLE(ID1));
	answer(f, CLIENT1, 4000, TEXT(ID1));
	tcp_event(f, CLIENT1, TL_TCP_HELD, 4000);
	sock_event(f, UP2, TL_SOCK_CONNECT, 4100);	/* the same thread does something else */
	assert_int_equal(f->n_told, 1);
	tcp_event(f, CLIENT1, TL_TCP_LEFT, 1000000);
	assert_int_equal(f->n_told, 2);
	answer(f, CLIENT1, 2000000, TEXT(ID1));
	pipeline__end(f->p, 9000000);
	assert_int_equal(f->n_told, 3);
	assert_told(f, 0, 1, 3000, 1, 0);
	assert_told(f, 1, 1, 1000000, 2, 0);
	assert_told(f, 2, 1, 2000000, 3, 0);
	assert_int_equal(f->n_held, 1);
	assert_int_equal(f->held[0].req, 1);
	assert_int_equal(f->held[0].hdr.tgid, PROXY);
	assert_int_equal(f->held[0].conn, 0);
}

static void test_children_are_proxies_too(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_proc e = { .hdr = { sizeof(e), TL_RAW_PROC, 0, 300, 300, 500 }, .what = TL_PROC_FORK,
				 .parent = PROXY };
	struct tl_raw_sock s = { .hdr = { sizeof(s), TL_RAW_SOCK, 0, 300, 300, 600 }, .sock = 9,
				 .what = TL_SOCK_ACCEPT, .family = 2, .local_port = PROXY_PORT };

	assert_int_equal(pipeline__feed(f->p, &e.hdr), 0);
	assert_int_equal(pipeline__feed(f->p, &s.hdr), 0);
	assert_int_equal(f->n_conn, 0);
	assert_int_equal(f->n_proc, 0);
	e.what = TL_PROC_EXIT;
	assert_int_equal(pipeline__feed(f->p, &e.hdr), 0);
	e.what = TL_PROC_FORK;		/* the number is used again */
	e.parent = 7;
	assert_int_equal(pipeline__feed(f->p, &e.hdr), 0);
	assert_int_equal(f->n_proc, 1);
}

static void test_too_many_proxies(void **state)
{
	struct fixture *f = *state;
	int err = 0;

	for (uint32_t i = 0; i < 2000 && !err; i++)
		err = pipeline__add_proxy(f->p, 1000 + i, "a name that is longer than fits");
	assert_int_equal(err, -E2BIG);
	assert_int_equal(whole(f), 0);
	assert_int_equal(f->n_told, 2);
}

static void test_survives_oom(void **state)
{
	struct fixture *f = *state;

	OOM_LOOP({
		struct pipeline *old = f->p;

		f->n_told = f->n_begin = f->n_conn = 0;
		memset(f->pos, 0, sizeof(f->pos));
		f->p = pipeline__new(NULL, &(struct emit){ take, f });
		if (f->p) {
			int err = pipeline__add_proxy(f->p, PROXY, "nginx");

			err = err ? err : whole(f);
			assert_true(err == 0 || err == -ENOMEM);
			if (!err)
				assert_true(f->n_told <= 2);
			pipeline__free(f->p);
		}
		f->p = old;
	});
	assert_int_equal(f->n_told, 2);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(by_id), T(rows), T(held_by_the_proxys_socket), T(children_are_proxies_too), T(too_many_proxies),
		T(survives_oom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
