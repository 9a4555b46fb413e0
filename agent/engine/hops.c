/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the exchanges of proxies, and says what they delivered of which engine's request. */
#include "engine/hops_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROXIES = 1024, MAX_UPSTREAMS = 65536, MAX_EXCHANGES = 8192 };

/* ---- what goes out ---- */

static int tell(struct hops *h, struct passed *x, const struct handed *d)
{
	const struct asked *a = map__get(h->asked, x->req);
	const struct proxy *p = map__get(h->proxies, x->tgid);
	struct tl_delivered ev = {
		.hdr = { sizeof(ev), TL_DELIVERED, x->guess ? TL_F_GUESS : 0, x->tgid, 0,
			 d->ns > x->told_ns ? d->ns : x->told_ns },
		.req = x->req, .n_chunks = d->n_chunks, .by = TL_BY_PROXY,
	};

	/* One that makes chunks of its own hands on fewer or more of them:
	 * the tokens in them tell. */
	if (a && a->n_chunks && a->first_bytes != x->first_bytes && !x->opaque)
		ev.n_chunks = d->n_tokens ? a->n_before_tokens + d->n_tokens : 0;
	if (!ev.n_chunks || (x->joined && !x->opaque))
		return 0;
	x->told_ns = ev.hdr.ts_ns;
	if (p)
		memcpy(ev.name, p->name, sizeof(ev.name));
	return emit(&h->out, &ev.hdr);
}

int hops_flush(struct hops *h, struct passed *x)
{
	size_t n = 0;
	int err = 0;

	if (!x->req)
		return 0;
	for (size_t i = 0; i < h->n_fresh; i++)
		if (h->fresh[i].number == x->number)
			return 0;
	for (; n < x->n_handed && !x->handed[n].held && !err; n++) {
		const struct handed *d = &x->handed[n];

		/* of several that left together the last tells all */
		if (n + 1 == x->n_handed || d[1].held || d[1].ns > d->ns)
			err = tell(h, x, d);
	}
	memmove(x->handed, x->handed + n, (x->n_handed - n) * sizeof(x->handed[0]));
	x->n_handed -= n;
	return err;
}

static int take_fresh(struct hops *h, size_t i)
{
	struct passed *x = map__get(h->passed, h->fresh[i].number);

	memmove(h->fresh + i, h->fresh + i + 1, (--h->n_fresh - i) * sizeof(h->fresh[0]));
	return x ? hops_flush(h, x) : 0;
}

/* The kernel did not hold what this thread wrote last. */
static int settle(struct hops *h, uint32_t tid)
{
	int err = 0;

	for (size_t i = 0; i < h->n_fresh && !err;) {
		if (h->fresh[i].tid == tid)
			err = take_fresh(h, i);
		else
			i++;
	}
	return err;
}

/* ---- the proxies' exchanges ---- */

static int add_fresh(struct hops *h, uint32_t number)
{
	int err = 0;

	for (size_t i = 0; i < h->n_fresh; i++)
		if (h->fresh[i].number == number)
			return 0;
	if (h->n_fresh == MAX_FRESH)
		err = take_fresh(h, 0);
	h->fresh[h->n_fresh++] = (struct fresh){ number, h->net->hdr.tid, h->net->sock };
	return err;
}

/* One more write that carried chunks; the same one again if it carried several. */
static int hand_on(struct hops *h, struct passed *x, const struct tl_hdr *ev)
{
	struct handed *d = x->n_handed ? &x->handed[x->n_handed - 1] : NULL;

	if (!d || d->ns != ev->ts_ns) {
		if (x->n_handed == MAX_HANDED) {	/* the oldest is known by
							 * what came behind it */
			memmove(x->handed, x->handed + 1, (MAX_HANDED - 1) * sizeof(x->handed[0]));
			x->n_handed--;
		}
		d = &x->handed[x->n_handed++];
		*d = (struct handed){ .ns = ev->ts_ns, .pos = h->net ? h->net->stream_pos : 0 };
	}
	d->n_chunks = x->n_chunks;
	d->n_tokens = x->n_tokens;
	return h->net ? add_fresh(h, x->number) : 0;
}

static int on_chunk(struct hops *h, const struct tl_chunk *e)
{
	struct passed *x = map__get(h->passed, e->req);

	if (!x)
		return 0;
	if (!x->n_chunks)
		x->first_bytes = e->bytes;
	x->n_chunks++;
	x->n_tokens += (e->hdr.flags & TL_CHUNK_TOKEN) != 0;
	return hand_on(h, x, &e->hdr);
}

static int on_begin(struct hops *h, const struct tl_req_begin *e)
{
	struct passed *x;
	uint64_t oldest;

	if (map__is_full(h->passed) && map__oldest(h->passed, &oldest))
		map__del(h->passed, oldest);
	x = map__put(h->passed, e->req, NULL);
	if (!x)
		return -ENOMEM;
	*x = (struct passed){ .number = e->req, .tgid = e->hdr.tgid, .joined = e->hdr.flags & TL_F_JOINED };
	return 0;
}

static int on_end(struct hops *h, const struct tl_req_end *e)
{
	struct passed *x = map__get(h->passed, e->req);
	const struct asked *a;
	int err = 0;

	if (!x)
		return 0;
	if (!x->req && x->maybe)
		hops_join(x, x->maybe, true);
	a = x->req ? map__get(h->asked, x->req) : NULL;
	if (a && a->n_chunks && !x->n_chunks && e->how == TL_END_COMPLETE) {
		x->opaque = true;	/* compressed in a way that is not read: all or nothing */
		x->n_chunks = a->n_chunks;
		err = hand_on(h, x, &e->hdr);
	}
	err = err ? err : hops_flush(h, x);
	/* What is not told yet, or waits for the engine's word, goes when there is no more room. */
	if (!x->n_handed && !x->was_held)
		map__del(h->passed, e->req);
	return err;
}

/* Bytes of a proxy's stream were not seen: the number of chunks before and
 * behind that is not known. */
static void on_lost(struct hops *h, uint32_t tgid)
{
	for (struct passed *x = map__oldest(h->passed, NULL); x; x = map__newer(h->passed, x, NULL))
		x->joined |= x->tgid == tgid;
}

/* Events of the proxy's socket, with the engine's request in the place of its own. */
static int on_send(struct hops *h, const struct tl_hdr *ev)
{
	union {
		struct tl_send_held held;
		struct tl_send_blocked blocked;
	} u;
	const struct passed *x;
	uint32_t *req;

	if (ev->kind == TL_SEND_HELD) {
		u.held = *(const struct tl_send_held *)ev;
		u.held.conn = 0;
		req = &u.held.req;
	} else {
		u.blocked = *(const struct tl_send_blocked *)ev;
		u.blocked.conn = 0;
		req = &u.blocked.req;
	}
	x = map__get(h->passed, *req);
	if (!x || !x->req)
		return 0;
	*req = x->req;
	return emit(&h->out, (const struct tl_hdr *)&u);
}

static int on_wire(void *ctx, const struct tl_hdr *ev)
{
	struct hops *h = ctx;
	struct passed *x;

	switch (ev->kind) {
	case TL_REQ_BEGIN:
		return on_begin(h, (const void *)ev);
	case TL_REQ_FACTS:
		x = map__get(h->passed, ((const struct tl_req_facts *)ev)->req);
		if (x)
			x->body_bytes = ((const struct tl_req_facts *)ev)->body_bytes;
		return 0;
	case TL_CHUNK:
		return on_chunk(h, (const void *)ev);
	case TL_REQ_END:
		return on_end(h, (const void *)ev);
	case TL_LOST:
		on_lost(h, ev->tgid);
		return 0;
	case TL_SEND_HELD:
	case TL_SEND_BLOCKED:
		return on_send(h, ev);
	}
	return 0;
}

static void on_hop_id(void *ctx, uint32_t tgid, uint32_t req, const char *id, bool answered)
{
	struct hops *h = ctx;

	(void)tgid;
	if (answered && !h->err)
		h->err = hops_passed_id(h, req, id);
}

/* ---- raw events ---- */

static int on_held(struct hops *h, const struct tl_raw_tcp *e)
{
	struct passed *x = NULL;
	uint32_t *number;

	for (size_t i = 0; i < h->n_fresh; i++)
		if (h->fresh[i].tid == e->hdr.tid && h->fresh[i].sock == e->sock)
			x = map__get(h->passed, h->fresh[i].number);
	if (!x || !x->n_handed || x->handed[x->n_handed - 1].pos != e->seq)
		return 0;
	number = map__put(h->held, e->sock, NULL);
	if (!number)
		return map__is_full(h->held) ? 0 : -ENOMEM;
	*number = x->number;
	x->was_held = true;
	x->handed[x->n_handed - 1].held = true;
	return 0;
}

/* Bytes that the proxy's socket held are handed on as they leave. */
static int on_left(struct hops *h, const struct tl_raw_tcp *e)
{
	const uint32_t *number = map__get(h->held, e->sock);
	struct passed *x = number ? map__get(h->passed, *number) : NULL;
	bool more = false;

	for (size_t i = 0; x && i < x->n_handed; i++) {
		struct handed *d = &x->handed[i];

		if (d->held && (int32_t)(d->pos - e->seq) <= 0) {
			d->held = false;
			d->ns = e->hdr.ts_ns;
		}
		more |= d->held;
	}
	if (!more)
		map__del(h->held, e->sock);
	return x ? hops_flush(h, x) : 0;
}

/* A connection that the proxy opened: the engine sees its port as its peer's. */
static int on_upstream(struct hops *h, uint32_t tgid, uint16_t port)
{
	uint32_t *owner = map__get(h->upstreams, port);
	uint64_t oldest;

	if (owner && *owner == tgid)
		return 0;
	if (!owner && map__is_full(h->upstreams) && map__oldest(h->upstreams, &oldest))
		map__del(h->upstreams, oldest);
	owner = map__put(h->upstreams, port, NULL);
	if (!owner)
		return -ENOMEM;
	*owner = tgid;
	return 0;
}

static int on_proc(struct hops *h, const struct tl_raw_proc *e)
{
	const struct proxy *parent = map__get(h->proxies, e->parent);
	char name[sizeof(parent->name)];

	if (e->what == TL_PROC_EXIT)
		map__del(h->proxies, e->hdr.tgid);
	if (e->what != TL_PROC_FORK || !parent)
		return 0;
	memcpy(name, parent->name, sizeof(name));
	return hops__add(h, e->hdr.tgid, name);
}

static int on_raw(struct hops *h, const struct tl_hdr *ev)
{
	const struct tl_raw_tcp *tcp = (const void *)ev;
	const struct tl_raw_sock *sock = (const void *)ev;
	int err;

	if (ev->kind == TL_RAW_TCP && tcp->what == TL_TCP_HELD) {
		err = on_held(h, tcp);
		return err ? err : settle(h, ev->tid);
	}
	if (ev->kind == TL_RAW_TCP)
		return tcp->what == TL_TCP_LEFT ? on_left(h, tcp) : 0;
	err = settle(h, ev->tid);
	if (!err && ev->kind == TL_RAW_NET) {
		h->net = (const void *)ev;
		err = on_upstream(h, ev->tgid, h->net->local_port);
	} else if (!err && ev->kind == TL_RAW_SOCK && sock->what == TL_SOCK_CONNECT) {
		err = on_upstream(h, ev->tgid, sock->local_port);
	} else if (!err && ev->kind == TL_RAW_PROC) {
		err = on_proc(h, (const void *)ev);
	}
	return err;
}

int hops__feed(struct hops *h, const struct tl_hdr *ev)
{
	int err, wire_err;

	h->err = 0;
	err = on_raw(h, ev);
	wire_err = wire__feed(h->wire, ev);
	h->net = NULL;
	err = err ? err : wire_err;
	return err ? err : h->err;
}

/* ---- life ---- */

struct hops *hops__new(const struct emit *out)
{
	struct hops *h = calloc(1, sizeof(*h));
	struct wire_opts wo = { .on_id = on_hop_id, .ctx = h };
	const struct emit tap = { on_wire, h };

	if (!h)
		return NULL;
	h->out = *out;
	h->wire = wire__new(&wo, &tap);
	h->proxies = map__new(sizeof(struct proxy), MAX_PROXIES);
	h->upstreams = map__new(sizeof(uint32_t), MAX_UPSTREAMS);
	h->passed = map__new(sizeof(struct passed), MAX_EXCHANGES);
	h->held = map__new(sizeof(uint32_t), MAX_EXCHANGES);
	if (!h->wire || !h->proxies || !h->upstreams || !h->passed || !h->held ||
	    hops_join_init(h)) {
		hops__free(h);
		return NULL;
	}
	return h;
}

void hops__free(struct hops *h)
{
	if (!h)
		return;
	wire__free(h->wire);
	map__free(h->proxies);
	map__free(h->upstreams);
	map__free(h->passed);
	map__free(h->held);
	hops_join_free(h);
	free(h);
}

int hops__add(struct hops *h, uint32_t tgid, const char *name)
{
	struct proxy *p = map__put(h->proxies, tgid, NULL);

	if (!p)
		return map__is_full(h->proxies) ? -E2BIG : -ENOMEM;
	strncpy(p->name, name, sizeof(p->name) - 1);
	return 0;
}

bool hops__has(const struct hops *h, uint32_t tgid)
{
	return map__get(h->proxies, tgid);
}

int hops__end(struct hops *h, uint64_t now_ns)
{
	int err = 0, wire_err;

	while (h->n_fresh && !err)
		err = take_fresh(h, 0);
	wire_err = wire__end(h->wire, now_ns);
	return err ? err : wire_err;
}
