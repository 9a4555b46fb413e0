/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that a target serves: socket events in, two HTTP parsers each, exchanges out. */
#include "engine/wire_priv.h"

#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_THREADS = 65536,	/* threads whose last request is remembered */
	MAX_OPENED = 8192,	/* handshakes done, accept() not yet seen */
};

void wire_emit(struct wire *w, const struct tl_hdr *ev)
{
	int err = emit(&w->out, ev);

	if (err && !w->err)
		w->err = err;
}

struct wire *wire__new(const struct wire_opts *opts, const struct emit *out)
{
	struct wire *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->out = *out;
	if (opts)
		w->opts = *opts;
	if (!w->opts.max_conns)
		w->opts.max_conns = 65536;
	w->conns = map__new(sizeof(struct conn *), w->opts.max_conns);
	w->opened = map__new(sizeof(uint64_t), MAX_OPENED);
	w->threads = map__new(sizeof(uint32_t), MAX_THREADS);
	w->sends = sends__new(out);
	if (!w->conns || !w->opened || !w->threads || !w->sends) {
		wire__free(w);
		return NULL;
	}
	return w;
}

void wire__free(struct wire *w)
{
	if (!w)
		return;
	if (w->conns)
		for (struct conn **p = map__oldest(w->conns, NULL); p;
		     p = map__newer(w->conns, p, NULL))
			conn_free(w, *p);
	map__free(w->conns);
	map__free(w->opened);
	map__free(w->threads);
	sends__free(w->sends);
	free(w);
}

/* ---- bytes ---- */

static bool looks_like_tls(const char *p, size_t n)
{
	return n >= 3 && p[0] == 0x16 && p[1] == 0x03;	/* handshake record, RFC 8446 5.1 */
}

static void lose_sync(struct wire *w, struct conn *c, bool in, uint64_t bytes)
{
	struct tl_lost ev = {
		.hdr = { sizeof(ev), TL_LOST, 0, c->tgid, w->tid, w->now_ns },
		.n = 1, .since_ns = w->now_ns, .where = TL_LOST_PARSER, .what = TL_RAW_NET,
	};
	bool had = c->n_under_way > 0;

	w->stats.skipped_bytes += bytes;
	*(in ? &c->in_lost : &c->out_lost) = true;
	if (in)
		exchange_drop_unread(w, c);	/* those whose head was read
						 * will have their answers */
	else
		conn_end_all(w, c, TL_END_LOST_SYNC, w->now_ns);
	if (had)
		wire_emit(w, &ev.hdr);
}

static int feed_gap(struct http1 *h, const char *head, size_t n_head, uint64_t gap,
		    const char *tail, size_t n_tail)
{
	int err = http1__feed(h, head, n_head);

	if (!err && gap)
		err = http1__gap(h, gap);
	if (!err && n_tail)
		err = http1__feed(h, tail, n_tail);
	return err;
}

static void feed_in(struct wire *w, struct conn *c, const struct tl_raw_net *e)
{
	const char *data = (const char *)e->data;
	uint64_t gap = e->total - e->head - e->tail;

	if (c->answers_over) {	/* a client that used the connection again, too late */
		w->stats.skipped_bytes += e->total;
		return;
	}
	if (c->in_lost) {
		/* Some that were not seen may wait in line behind those that are under way. */
		if (c->first || !http1_is_start(HTTP1_REQUESTS, data, e->head)) {
			w->stats.skipped_bytes += e->total;
			return;
		}
		http1__resync(c->in);
		c->in_lost = false;
	}
	if (feed_gap(c->in, data, e->head, gap, data + e->head, e->tail))
		lose_sync(w, c, true, e->total);
	else if (c->last && c->last->announced && !c->last->response_begun)
		c->last->bytes_in += e->total;
}

static void feed_out(struct wire *w, struct conn *c, const struct tl_raw_net *e)
{
	const char *data = (const char *)e->data;
	uint64_t gap = e->total - e->head - e->tail;

	if (c->out_lost) {
		if (http1_is_start(HTTP1_RESPONSES, data, e->head)) {
			http1__resync(c->out);
		} else if (!c->first && http1__join_chunked(c->out, data, e->head)) {
			/* A stream that was under way: what it is shows in its first event. */
			struct exchange *x = conn_answered(w, c);

			if (!x)
				return;
			x->response_begun = true;
			x->body = TL_BODY_SSE;
		} else {
			w->stats.skipped_bytes += e->total;
			return;
		}
		c->out_lost = false;
		conn_expect_next(c);
	}
	if (c->first)
		c->first->bytes_out += e->total;
	if (c->first && c->first->announced)
		c->out_req = c->first->req;
	if (feed_gap(c->out, data, e->head, gap, data + e->head, e->tail))
		lose_sync(w, c, false, e->total);
}

static void on_hole(struct wire *w, struct conn *c, const struct tl_raw_net *e, uint32_t missing)
{
	bool in = e->dir == TL_IN;
	struct tl_lost ev = {
		.hdr = { sizeof(ev), TL_LOST, 0, c->tgid, w->tid, w->now_ns },
		.n = 1, .since_ns = c->last_ns, .where = TL_LOST_PARSER, .what = TL_RAW_NET,
	};

	wire_emit(w, &ev.hdr);
	if (*(in ? &c->in_lost : &c->out_lost))
		return;
	if (http1__gap(in ? c->in : c->out, missing))
		lose_sync(w, c, in, missing);
}

static void remember_write(struct wire *w, struct conn *c, const struct tl_raw_net *e)
{
	if (!(e->hdr.flags & TL_NET_POS))
		return;
	c->written[c->n_written++ % N_WRITTEN] = (struct written){ e->hdr.ts_ns, e->stream_pos };
	sends__wrote(w->sends, c->sock, e->hdr.ts_ns);
}

/* When the bytes before this place of the stream were written; the oldest time that is known if
 * they are older. 0: no write is known. */
static uint64_t written_ns(const struct conn *c, uint32_t pos)
{
	uint64_t ns = 0;

	for (unsigned i = 0; i < N_WRITTEN && i < c->n_written; i++) {
		const struct written *wr = &c->written[(c->n_written - 1 - i) % N_WRITTEN];

		if (i && (int32_t)(wr->pos - pos) < 0)
			break;
		ns = wr->ns;
	}
	return ns;
}

static void on_tcp(struct wire *w, const struct tl_raw_tcp *e)
{
	struct conn *c = conn_find(w, e->sock);
	struct sender who = { 0 };
	int err;

	if (c && (c->client || c->tls || !c->conn))
		return;
	if (c)
		who = (struct sender){ c->conn, c->out_req, written_ns(c, e->seq) };
	else if (e->what != TL_TCP_LEFT && e->what != TL_TCP_DRAINED)
		return;		/* those may come behind the close */
	err = sends__feed(w->sends, e, &who);
	if (err && !w->err)
		w->err = err;
}

static void on_net(struct wire *w, const struct tl_raw_net *e)
{
	uint32_t missing;
	struct conn *c = conn_find(w, e->sock);

	if (!c) {
		/* Older than the capture, or its accept was missed. */
		bool in = e->dir == TL_IN;
		bool start = http1_is_start(in ? HTTP1_REQUESTS : HTTP1_RESPONSES,
					    (const char *)e->data, e->head);
		/* The first bytes tell who serves: a target that writes a request is a client. */
		bool client = http1_is_start(in ? HTTP1_RESPONSES : HTTP1_REQUESTS,
					     (const char *)e->data, e->head);

		c = conn_new(w, e->sock, e->hdr.tgid);
		if (!c)
			return;
		conn_begin(w, c, e->family, e->local_port, e->peer_port, NULL);
		c->client = client;
		c->in_lost = c->out_lost = true;
		if (in && start)
			c->in_lost = false;
		if (!client)
			conn_serve(w, c);
	}
	w->c = c;
	missing = stream_pos_unseen(&c->pos[e->dir == TL_OUT], e);
	if (missing && !c->client && !c->tls)
		on_hole(w, c, e, missing);
	c->last_ns = w->now_ns;
	if (c->client || c->tls)
		return;
	c->tid = e->hdr.tid;
	conn_set_left(w, c, false);
	if (e->dir == TL_IN && !c->first)	/* one process accepts, another serves */
		c->tgid = e->hdr.tgid;
	if (e->dir == TL_IN && !c->last && looks_like_tls((const char *)e->data, e->head)) {
		conn_is_tls(w, c);
		return;
	}
	if (e->dir == TL_IN) {
		feed_in(w, c, e);
		return;
	}
	remember_write(w, c, e);
	feed_out(w, c, e);
}

static void on_sock(struct wire *w, const struct tl_raw_sock *e)
{
	struct conn *c;

	switch (e->what) {
	case TL_SOCK_ACCEPT:
	case TL_SOCK_CONNECT:
		c = conn_new(w, e->sock, e->hdr.tgid);
		if (!c)
			return;
		conn_begin(w, c, e->family, e->local_port, e->peer_port, e->peer_addr);
		c->client = e->what == TL_SOCK_CONNECT;
		c->last_ns = w->now_ns;
		if (!c->client)
			conn_serve(w, c);
		return;
	case TL_SOCK_EOF:
	case TL_SOCK_RESET:
		c = conn_find(w, e->sock);
		if (c && !c->peer_eof_ns)
			c->peer_eof_ns = w->now_ns;
		if (c)
			c->peer_reset |= e->what == TL_SOCK_RESET;
		return;
	case TL_SOCK_SHUTDOWN:
		c = conn_find(w, e->sock);
		if (c && e->how)	/* not SHUT_RD alone */
			c->answers_over = true;
		return;
	case TL_SOCK_CLOSE:
		c = conn_find(w, e->sock);
		if (c && !e->how)
			conn_close(w, c, w->now_ns);
		else if (c && c->tgid == e->hdr.tgid)
			conn_set_left(w, c, true);
		return;
	}
}

/* The last who held it open did not close it, but ended. */
static void close_left(struct wire *w, const struct tl_raw_tcp_state *e)
{
	struct conn **p = map__oldest(w->conns, NULL);

	for (; p; p = map__newer(w->conns, p, NULL))
		if ((*p)->left && (*p)->local_port == e->local_port &&
		    (*p)->peer_port == e->peer_port)
			break;
	if (p)
		conn_close(w, *p, e->hdr.ts_ns);
}

/* Handshakes are done before accept() returns: remember when. */
static void on_tcp_state(struct wire *w, const struct tl_raw_tcp_state *e)
{
	enum { ESTABLISHED = 1, CLOSE = 7 };	/* TCP_ESTABLISHED ..., include/net/tcp_states.h */
	uint64_t *ns;

	if (e->new_state == CLOSE && w->n_left)
		close_left(w, e);
	if (e->new_state != ESTABLISHED)
		return;
	ns = map__put(w->opened, conn_opened_key(e->peer_port, e->local_port), NULL);
	if (!ns) {
		uint64_t oldest;

		/* Connections that nobody accepted: the oldest makes room. */
		if (map__oldest(w->opened, &oldest))
			map__del(w->opened, oldest);
		ns = map__put(w->opened, conn_opened_key(e->peer_port, e->local_port), NULL);
	}
	if (ns)
		*ns = e->hdr.ts_ns;
}

static void on_proc(struct wire *w, const struct tl_raw_proc *e)
{
	struct conn **p;

	if (e->what != TL_PROC_EXIT)
		return;
	do {	/* each close changes the map: look again */
		for (p = map__oldest(w->conns, NULL); p; p = map__newer(w->conns, p, NULL))
			if ((*p)->tgid == e->hdr.tgid)
				break;
		if (p)
			conn_close(w, *p, e->hdr.ts_ns);
	} while (p);
}

int wire__feed(struct wire *w, const struct tl_hdr *ev)
{
	const struct tl_raw_net *net = (const void *)ev;

	w->err = 0;
	w->now_ns = ev->ts_ns;
	w->tid = ev->tid;
	w->write_us = 0;
	w->waited_ns = 0;
	if (!w->begin_ns)
		w->begin_ns = ev->ts_ns;
	switch (ev->kind) {
	case TL_RAW_NET:
		if (ev->size < sizeof(*net) + net->head + net->tail ||
		    net->total < (uint32_t)net->head + net->tail)
			return -EBADMSG;
		if (net->dir == TL_IN)
			w->waited_ns = net->dur_ns;
		else
			w->write_us = least(net->dur_ns / 1000, UINT32_MAX);
		on_net(w, net);
		break;
	case TL_RAW_SOCK:
		on_sock(w, (const void *)ev);
		break;
	case TL_RAW_TCP_STATE:
		on_tcp_state(w, (const void *)ev);
		break;
	case TL_RAW_TCP:
		on_tcp(w, (const void *)ev);
		break;
	case TL_RAW_PROC:
		on_proc(w, (const void *)ev);
		break;
	}
	return w->err;
}

int wire__end(struct wire *w, uint64_t now_ns)
{
	struct tl_lost ev = {
		.hdr = { sizeof(ev), TL_LOST, 0, 0, 0, now_ns },
		.n = w->stats.refused, .since_ns = w->begin_ns, .where = TL_LOST_LIMIT,
		.what = TL_REQ_BEGIN,
	};

	int err;

	w->err = 0;
	w->now_ns = now_ns;
	w->tid = 0;
	if (ev.n)
		wire_emit(w, &ev.hdr);
	w->stats.refused = 0;	/* told */
	for (struct conn **p = map__oldest(w->conns, NULL); p; p = map__newer(w->conns, p, NULL)) {
		uint16_t how = (*p)->peer_eof_ns ? TL_END_CLIENT : TL_END_CAPTURE;

		conn_end_all(w, *p, how, (*p)->peer_eof_ns ? (*p)->peer_eof_ns : now_ns);
	}
	err = sends__end(w->sends, now_ns);
	return w->err ? w->err : err;
}

uint32_t wire__request_of_thread(const struct wire *w, uint32_t tid)
{
	const uint32_t *req = map__get(w->threads, tid);

	return req ? *req : 0;
}

void wire__stats(const struct wire *w, struct wire_stats *ret)
{
	*ret = w->stats;
}
