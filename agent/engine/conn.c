/* SPDX-License-Identifier: Apache-2.0 */
/* One served connection: its two parsers, what they report, its beginning and its end. */
#include "engine/wire_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- callbacks of the parsers; w->c is the connection that is being fed ---- */

static void in_begin(void *ctx)
{
	exchange_new(ctx, ((struct wire *)ctx)->c);
}

static void in_head(void *ctx, const struct http1_head *head)
{
	struct wire *w = ctx;
	struct exchange *x = w->c->last;

	if (!x || x->announced)
		return;
	x->head = malloc(sizeof(*head));
	if (!x->head) {
		w->err = -ENOMEM;
		return;
	}
	*x->head = *head;
	x->method = head->method;
	x->api = head->method == TL_POST ? llmapi_of_path(head->path) : TL_API_OTHER;
	if (x == w->c->first)	/* else the end of the answer before it tells */
		conn_expect_next(w->c);
	exchange_announce(w, w->c, x, false);
}

static void in_body(void *ctx, const char *data, size_t len)
{
	struct wire *w = ctx;
	struct exchange *x = w->c->last;

	if (!x || !x->head)
		return;
	if (x->api == TL_API_OTHER)	/* nobody reads it: how long it is says enough */
		cutbuf__gap(&x->text, len);
	else if (cutbuf__add(&x->text, data, len))
		w->err = -ENOMEM;
}

static void in_gap(void *ctx, uint64_t len)
{
	struct exchange *x = ((struct wire *)ctx)->c->last;

	if (x && x->head)
		cutbuf__gap(&x->text, len);
}

static void in_end(void *ctx)
{
	struct wire *w = ctx;
	struct exchange *x = w->c->last;

	if (x && x->head)
		exchange_request_done(w, w->c, x);
}

static const struct http1_fns in_fns = { in_begin, in_head, in_body, in_gap, in_end };

struct exchange *conn_answered(struct wire *w, struct conn *c)
{
	struct exchange *x = c->first;

	if (x && x->announced)
		return x;
	if (!x)
		x = exchange_new(w, c);
	if (x)
		exchange_announce(w, c, x, true);
	return x;
}

static void out_head(void *ctx, const struct http1_head *head)
{
	struct wire *w = ctx;
	struct exchange *x = conn_answered(w, w->c);

	if (!x)
		return;
	x->response_begun = true;
	exchange_response_head(w, w->c, x, head);
}

static void out_body(void *ctx, const char *data, size_t len)
{
	struct wire *w = ctx;

	if (w->c->first)
		exchange_response_body(w, w->c, w->c->first, data, len);
}

static void out_gap(void *ctx, uint64_t len)
{
	struct wire *w = ctx;

	if (w->c->first)
		exchange_response_gap(w, w->c, w->c->first, len);
}

void conn_expect_next(struct conn *c)
{
	http1__expect_head(c->out, c->first && c->first->method == TL_HEAD);
}

static void out_end(void *ctx)
{
	struct wire *w = ctx;
	struct conn *c = w->c;

	if (!c->first)
		return;
	exchange_end(w, c, TL_END_COMPLETE, w->now_ns);
	conn_expect_next(c);
}

static const struct http1_fns out_fns = { NULL, out_head, out_body, out_gap, out_end };

/* ---- life ---- */

void conn_free(struct wire *w, struct conn *c)
{
	while (c->first) {
		struct exchange *x = c->first;

		c->first = x->next;
		exchange_free(w, x);
	}
	http1__free(c->in);
	http1__free(c->out);
	free(c);
}

struct conn *conn_find(struct wire *w, uint64_t sock)
{
	struct conn **p = map__get(w->conns, sock);

	return p ? *p : NULL;
}

static void conn_event(struct wire *w, struct conn *c, uint8_t what, uint64_t ns)
{
	struct tl_conn ev = {
		.hdr = { sizeof(ev), TL_CONN, 0, c->tgid, w->tid, ns },
		.conn = c->conn, .what = what, .family = c->family,
		.local_port = c->local_port, .peer_port = c->peer_port,
	};

	memcpy(ev.peer_addr, c->peer_addr, sizeof(ev.peer_addr));
	wire_emit(w, &ev.hdr);
}

void conn_is_tls(struct wire *w, struct conn *c)
{
	c->tls = true;
	w->stats.tls_conns++;
	conn_event(w, c, TL_CONN_TLS, w->now_ns);
}

/* How an exchange ended whose connection went away at `ns`. */
void conn_end_all(struct wire *w, struct conn *c, uint16_t how, uint64_t ns)
{
	while (c->first)
		exchange_end(w, c, how, ns);
}

void conn_close(struct wire *w, struct conn *c, uint64_t ns)
{
	w->c = c;
	w->now_ns = ns;
	http1__eof(c->out);	/* completes a response that runs until close */
	if (c->peer_eof_ns)
		conn_end_all(w, c, TL_END_CLIENT, c->peer_eof_ns);
	else
		conn_end_all(w, c, TL_END_SERVER, ns);
	if (!c->client)
		conn_event(w, c, TL_CONN_CLOSE, ns);
	map__del(w->conns, c->sock);
	w->stats.conns_now--;
	conn_set_left(w, c, false);
	conn_free(w, c);
}

void conn_set_left(struct wire *w, struct conn *c, bool left)
{
	w->n_left += (size_t)left - c->left;
	c->left = left;
}

uint64_t conn_opened_key(uint16_t peer_port, uint16_t local_port)
{
	return (uint64_t)local_port << 16 | peer_port;
}

struct conn *conn_new(struct wire *w, uint64_t sock, uint32_t tgid)
{
	struct conn *c = conn_find(w, sock);
	struct conn **p;

	int err = sends__forget(w->sends, sock, w->now_ns);

	if (err && !w->err)
		w->err = err;
	if (c)
		conn_close(w, c, w->now_ns);	/* its close was not seen:
						 * the inode is used again */
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->in = http1__new(HTTP1_REQUESTS, &in_fns, w);
	c->out = http1__new(HTTP1_RESPONSES, &out_fns, w);
	p = c->in && c->out ? map__put(w->conns, sock, NULL) : NULL;
	if (!p) {
		if (c->in && c->out)
			w->stats.refused++;
		else
			w->err = -ENOMEM;
		conn_free(w, c);
		return NULL;
	}
	*p = c;
	c->sock = sock;
	c->tgid = tgid;
	w->stats.conns_now++;
	return c;
}

void conn_begin(struct wire *w, struct conn *c, uint8_t family, uint16_t local_port,
		       uint16_t peer_port, const uint8_t *peer_addr)
{
	uint64_t *open_ns = map__get(w->opened, conn_opened_key(peer_port, local_port));

	c->family = family;
	c->local_port = local_port;
	c->peer_port = peer_port;
	if (peer_addr)
		memcpy(c->peer_addr, peer_addr, sizeof(c->peer_addr));
	if (open_ns) {
		c->open_ns = *open_ns;
		map__del(w->opened, conn_opened_key(peer_port, local_port));
	}
}

void conn_serve(struct wire *w, struct conn *c)
{
	c->conn = ++w->n_conns;
	w->stats.conns++;
	conn_event(w, c, TL_CONN_OPEN, c->open_ns ? c->open_ns : w->now_ns);
}
