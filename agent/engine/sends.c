/* SPDX-License-Identifier: Apache-2.0 */
/* Joins writes that TCP held with what let them go, and the first write
 * without room with the last. */
#include "engine/sends.h"

#include "base/map.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_SOCKS = 4096,	/* that wait at a time; the oldest makes room */
	MAX_WRITES = 64,	/* of one socket, then the newest are taken together */
	MIN_HELD_NS = 100000,	/* what leaves sooner did not wait for anybody */
	MAX_LOST_NS = 1000000000,	/* the kernel lets go within this,
					 * unless the peer has no room */
	ACK_NS = 1000000,	/* an acknowledgement lets bytes go at once;
				 * what leaves later, something else did */
};

struct held {			/* one write, or several */
	uint64_t since_ns;
	uint32_t req;
	uint32_t end;		/* of the stream behind it */
	uint32_t bytes;		/* of it, that were held */
	uint16_t n_writes, why;
};

struct waiting {		/* a socket */
	uint32_t tgid, conn;
	int32_t fd;
	uint16_t local_port, peer_port;
	struct held held[MAX_WRITES];
	size_t n_held;
	uint64_t full_ns;	/* the first write that found no room, 0: there is room */
	uint64_t room_ns;	/* there was room again, 0: not yet */
	uint64_t max_bytes;
	uint32_t full_req;
	uint32_t again_seq;	/* of the segment that was sent again last ... */
	uint64_t again_ns;	/* ... and when, 0: none was */
};

struct sends {
	struct emit out;
	struct map *socks;	/* inode -> struct waiting * */
};

struct sends *sends__new(const struct emit *out)
{
	struct sends *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->out = *out;
	s->socks = map__new(sizeof(struct waiting *), MAX_SOCKS);
	if (!s->socks) {
		free(s);
		return NULL;
	}
	return s;
}

void sends__free(struct sends *s)
{
	if (!s)
		return;
	for (struct waiting **p = map__oldest(s->socks, NULL); p; p = map__newer(s->socks, p, NULL))
		free(*p);
	map__free(s->socks);
	free(s);
}

/* ---- what is told ---- */

static void drop_held(struct waiting *w, size_t n)
{
	memmove(w->held, w->held + n, (w->n_held - n) * sizeof(*w->held));
	w->n_held -= n;
}

/* The oldest n of its writes left at ns. */
static int tell_held(struct sends *s, struct waiting *w, size_t n, uint64_t ns, uint64_t ack_ns,
		     uint32_t flags)
{
	const struct held *first = &w->held[0], *last = &w->held[n - 1];
	struct tl_send_held ev = {
		.hdr = { sizeof(ev), TL_SEND_HELD, flags, w->tgid, 0, ns },
		.since_ns = first->since_ns, .conn = w->conn, .req = first->req,
		.bytes = last->end - first->end + first->bytes, .why = first->why, .fd = w->fd,
		.local_port = w->local_port, .peer_port = w->peer_port,
	};

	if (ack_ns > first->since_ns && ack_ns <= ns && ns - ack_ns <= ACK_NS)
		ev.ack_ns = ack_ns;
	for (size_t i = 0; i < n; i++)
		ev.n_writes += w->held[i].n_writes;
	drop_held(w, n);
	return ns < ev.since_ns + MIN_HELD_NS ? 0 : emit(&s->out, &ev.hdr);
}

/* Writes up to `seq` left. Those of different requests are told apart. */
static int left(struct sends *s, struct waiting *w, const struct tl_raw_tcp *e)
{
	int err = 0;

	while (!err) {
		size_t n = 0;

		while (n < w->n_held && (int32_t)(w->held[n].end - e->seq) <= 0 &&
		       w->held[n].req == w->held[0].req)
			n++;
		if (!n)
			return 0;
		err = tell_held(s, w, n, e->hdr.ts_ns, e->ack_ns, e->hdr.flags & TL_F_GUESS);
	}
	return err;
}

static int tell_blocked(struct sends *s, struct waiting *w, uint64_t room_ns, uint64_t drained_ns,
			uint32_t flags)
{
	struct tl_send_blocked ev = {
		.hdr = { sizeof(ev), TL_SEND_BLOCKED, flags, w->tgid, 0, room_ns },
		.since_ns = w->full_ns, .drained_ns = drained_ns, .conn = w->conn,
		.req = w->full_req, .kernel_bytes = w->max_bytes,
	};

	w->full_ns = 0;
	return emit(&s->out, &ev.hdr);
}

static int tell_again(struct sends *s, struct waiting *w, const struct tl_raw_tcp *e,
		      const struct sender *who)
{
	bool known = w->again_ns && w->again_seq == e->seq;
	struct tl_send_held ev = {
		.hdr = { sizeof(ev), TL_SEND_HELD, 0, w->tgid, 0, e->hdr.ts_ns },
		.since_ns = known ? w->again_ns : who->written_ns, .conn = w->conn, .req = who->req,
		.bytes = e->bytes, .n_writes = 1, .why = TL_HELD_RETRANSMIT, .fd = w->fd,
		.local_port = w->local_port, .peer_port = w->peer_port, .retransmits = 1,
	};

	w->again_seq = e->seq;
	w->again_ns = e->hdr.ts_ns;
	return ev.since_ns && ev.since_ns < ev.hdr.ts_ns ? emit(&s->out, &ev.hdr) : 0;
}

/* What is not over: it lasted until now at least. But that it left may have been missed: after a
 * second without a word nothing is said of what only a window holds so long. */
static int tell_rest(struct sends *s, struct waiting *w, uint64_t now_ns)
{
	int err = 0;

	while (w->n_held && !err) {
		size_t n = 1;

		while (n < w->n_held && w->held[n].req == w->held[0].req)
			n++;
		if (w->held[0].why != TL_HELD_WINDOW && now_ns > w->held[0].since_ns + MAX_LOST_NS)
			drop_held(w, n);
		else
			err = tell_held(s, w, n, now_ns, 0, TL_F_TRUNC);
	}
	if (w->full_ns && !err)
		err = tell_blocked(s, w, w->room_ns ? w->room_ns : now_ns, 0,
				   w->room_ns ? 0 : TL_F_TRUNC);
	return err;
}

/* ---- sockets ---- */

int sends__forget(struct sends *s, uint64_t sock, uint64_t now_ns)
{
	struct waiting **p = map__get(s->socks, sock), *w;
	int err;

	if (!p)
		return 0;
	w = *p;
	map__del(s->socks, sock);
	err = tell_rest(s, w, now_ns);
	free(w);
	return err;
}

static struct waiting *waiting_of(struct sends *s, const struct tl_raw_tcp *e,
				  const struct sender *who)
{
	struct waiting **p = map__get(s->socks, e->sock), *w;
	uint64_t oldest;

	if (p)
		return *p;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	if (map__is_full(s->socks) && map__oldest(s->socks, &oldest))
		sends__forget(s, oldest, e->hdr.ts_ns);
	p = map__put(s->socks, e->sock, NULL);
	if (!p) {
		free(w);
		return NULL;
	}
	*w = (struct waiting){
		.tgid = e->hdr.tgid, .conn = who->conn, .fd = e->fd,
		.local_port = e->local_port, .peer_port = e->peer_port,
	};
	return *p = w;
}

static void add_held(struct waiting *w, const struct tl_raw_tcp *e, uint32_t req)
{
	struct held *h;

	if (w->n_held == MAX_WRITES) {
		h = &w->held[MAX_WRITES - 1];
		h->bytes += e->seq - h->end;
		h->end = e->seq;
		h->n_writes += h->n_writes < UINT16_MAX;
		return;
	}
	h = &w->held[w->n_held++];
	*h = (struct held){ .since_ns = e->hdr.ts_ns, .req = req, .end = e->seq, .bytes = e->bytes,
			    .n_writes = 1, .why = e->why };
	if (w->n_held > 1 && h->bytes > e->seq - h[-1].end)
		h->bytes = e->seq - h[-1].end;	/* the rest is of those before it */
}

static void add_full(struct waiting *w, const struct tl_raw_tcp *e, uint32_t req)
{
	if (!w->full_ns) {
		w->full_ns = e->since_ns ? e->since_ns : e->hdr.ts_ns;
		w->full_req = req;
		w->max_bytes = 0;
	}
	w->room_ns = e->why == TL_ROOM_WAITED ? e->hdr.ts_ns : 0;
	if (e->bytes > w->max_bytes)
		w->max_bytes = e->bytes;
}

static void drop_idle(struct sends *s, uint64_t sock)
{
	struct waiting **p = map__get(s->socks, sock);

	if (!p || (*p)->n_held || (*p)->full_ns || (*p)->again_ns)
		return;
	free(*p);
	map__del(s->socks, sock);
}

int sends__feed(struct sends *s, const struct tl_raw_tcp *e, const struct sender *who)
{
	struct waiting **p = map__get(s->socks, e->sock), *w = p ? *p : NULL;
	int err = 0;

	if (!w && (e->what == TL_TCP_LEFT || e->what == TL_TCP_DRAINED))
		return 0;
	if (!w)
		w = waiting_of(s, e, who);
	if (!w)
		return -ENOMEM;
	switch (e->what) {
	case TL_TCP_HELD:
		add_held(w, e, who->req);
		break;
	case TL_TCP_LEFT:
		err = left(s, w, e);
		break;
	case TL_TCP_NO_ROOM:
		add_full(w, e, who->req);
		break;
	case TL_TCP_DRAINED:
		if (w->full_ns)
			err = tell_blocked(s, w, w->room_ns ? w->room_ns : e->hdr.ts_ns,
					   e->hdr.ts_ns, 0);
		break;
	case TL_TCP_AGAIN:
		err = tell_again(s, w, e, who);
		break;
	}
	drop_idle(s, e->sock);
	return err;
}

void sends__wrote(struct sends *s, uint64_t sock, uint64_t begin_ns)
{
	struct waiting **p = map__len(s->socks) ? map__get(s->socks, sock) : NULL;

	if (p && (*p)->full_ns && !(*p)->room_ns)
		(*p)->room_ns = begin_ns;
}

int sends__end(struct sends *s, uint64_t now_ns)
{
	uint64_t sock;
	int err = 0;

	while (map__oldest(s->socks, &sock)) {
		int e = sends__forget(s, sock, now_ns);

		err = err ? err : e;
	}
	return err;
}
