/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: raw socket events made from strings, semantic events written down as lines. */
#ifndef TL_WIRE_FEED_H
#define TL_WIRE_FEED_H

#include "engine/wire.h"

#include <stdio.h>
#include <string.h>

struct wire_log {
	char text[65536];
	size_t len;
	unsigned n_kind[32];
};

__attribute__((format(printf, 2, 3)))
static inline void wire_log_add(struct wire_log *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	if (n > 0 && l->len + n < sizeof(l->text))
		l->len += n;
}

static inline void wire_log_chunk(struct wire_log *l, const struct tl_chunk *e)
{
	static const char *const names[] = { "role", "text", "empty", "reasoning", "tool", "progress",
					     "usage", "finish", "done", "error", "other" };

	wire_log_add(l, "chunk %u", e->req);
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (e->hdr.flags & 1u << i)
			wire_log_add(l, " %s", names[i]);
	wire_log_add(l, " @%llu\n", (unsigned long long)e->hdr.ts_ns);
}

static inline int wire_log_event(void *ctx, const struct tl_hdr *ev)
{
	struct wire_log *l = ctx;
	const struct tl_conn *conn = (const void *)ev;
	const struct tl_req_begin *begin = (const void *)ev;
	const struct tl_req_facts *facts = (const void *)ev;
	const struct tl_resp_begin *resp = (const void *)ev;
	const struct tl_usage *usage = (const void *)ev;
	const struct tl_req_end *end = (const void *)ev;
	const struct tl_lost *lost = (const void *)ev;
	unsigned long long ts = ev->ts_ns;

	l->n_kind[ev->kind % 32]++;
	switch (ev->kind) {
	case TL_CONN:
		wire_log_add(l, "conn %u %s @%llu\n", conn->conn, conn->what == TL_CONN_OPEN ? "open" :
			     conn->what == TL_CONN_TLS ? "tls" : "close", ts);
		break;
	case TL_REQ_BEGIN:
		wire_log_add(l, "begin %u conn %u api %u%s @%llu\n", begin->req, begin->conn, ev->flags & 0xff,
			     ev->flags & TL_F_JOINED ? " joined" : "", ts);
		break;
	case TL_REQ_FACTS:
		wire_log_add(l, "facts %u %s model=%s stream=%d max=%d n=%u body=%llu id=%s%s @%llu\n", facts->req,
			     facts->path, facts->model, facts->stream, facts->max_tokens, facts->n,
			     (unsigned long long)facts->body_bytes, facts->x_request_id,
			     ev->flags & TL_FACTS_UNREAD ? " unread" : "", ts);
		break;
	case TL_RESP_BEGIN:
		wire_log_add(l, "resp %u %u body %u%s @%llu\n", resp->req, resp->status, resp->body,
			     ev->flags & TL_RESP_ENCODED ? " encoded" : "", ts);
		break;
	case TL_CHUNK:
		wire_log_chunk(l, (const void *)ev);
		break;
	case TL_USAGE:
		wire_log_add(l, "usage %u prompt %u cached %u output %u finish %u id %s @%llu\n", usage->req,
			     usage->prompt, usage->cached, usage->output, usage->finish, usage->id, ts);
		break;
	case TL_REQ_END:
		wire_log_add(l, "end %u how %u status %u @%llu\n", end->req, end->how, end->status, ts);
		break;
	case TL_LOST:
		wire_log_add(l, "lost where %u @%llu\n", lost->where, ts);
		break;
	}
	return 0;
}

enum { FEED_TGID = 100, FEED_TID = 101 };

static inline int feed_sock_by(struct wire *w, uint32_t tgid, uint64_t sock, uint64_t ts, uint8_t what, uint8_t how)
{
	struct tl_raw_sock e = {
		.hdr = { sizeof(e), TL_RAW_SOCK, 0, tgid, tgid + 1, ts },
		.sock = sock, .what = what, .how = how, .family = 2, .local_port = 8080, .peer_port = 40000 + sock,
	};

	return wire__feed(w, &e.hdr);
}

static inline int feed_sock_how(struct wire *w, uint64_t sock, uint64_t ts, uint8_t what, uint8_t how)
{
	return feed_sock_by(w, FEED_TGID, sock, ts, what, how);
}

static inline int feed_sock(struct wire *w, uint64_t sock, uint64_t ts, uint8_t what)
{
	return feed_sock_how(w, sock, ts, what, 0);
}

/* `total` bytes moved of which the first `head` of data and the last `tail` were kept. */
static inline int feed_cut(struct wire *w, uint64_t sock, uint64_t ts, uint8_t dir, const char *data,
			   size_t total, size_t head, size_t tail)
{
	static _Alignas(8) uint8_t space[TL_EVENT_MAX];	/* not from the heap: that may be failing */
	struct tl_raw_net *e = (void *)space;

	memset(e, 0, sizeof(*e) + head + tail + 8);

	e->hdr = (struct tl_hdr){ (sizeof(*e) + head + tail + 7) & ~7u, TL_RAW_NET, 0, FEED_TGID, FEED_TID, ts };
	e->sock = sock;
	e->total = total;
	e->head = head;
	e->tail = tail;
	e->dir = dir;
	e->family = 2;
	e->local_port = 8080;
	e->peer_port = 40000 + sock;
	memcpy(e->data, data, head);
	memcpy(e->data + head, data + total - tail, tail);
	return wire__feed(w, &e->hdr);
}

/* Feeds data in pieces of at most `piece` bytes, all with the same time. */
static inline int feed_bytes(struct wire *w, uint64_t sock, uint64_t ts, uint8_t dir, const char *data,
			     size_t len, size_t piece)
{
	int err = 0;

	for (size_t at = 0; at < len && !err; at += piece) {
		size_t n = len - at < piece ? len - at : piece;

		err = feed_cut(w, sock, ts, dir, data + at, n, n, 0);
	}
	return err;
}

#endif
