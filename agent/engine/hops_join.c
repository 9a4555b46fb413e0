/* SPDX-License-Identifier: Apache-2.0 */
/* Which exchange of a proxy is which request of an engine: by the answer's id, else
 * by connection and order. */
#include "engine/hops_priv.h"

#include <errno.h>

enum { MAX_ASKED = 16384, MAX_CONNS = 65536, MAX_IDS = 16384 };

/* Ids are long and random: 64 bits of FNV-1a tell them apart. */
static uint64_t hash_of(const char *id)
{
	uint64_t h = 0xcbf29ce484222325;

	for (; *id; id++)
		h = (h ^ (unsigned char)*id) * 0x100000001b3;
	return h;
}

int hops_join_init(struct hops *h)
{
	h->asked = map__new(sizeof(struct asked), MAX_ASKED);
	h->conns = map__new(sizeof(uint16_t), MAX_CONNS);
	h->ids = map__new(sizeof(uint32_t), MAX_IDS);
	h->wanted = map__new(sizeof(uint32_t), MAX_IDS);
	return h->asked && h->conns && h->ids && h->wanted ? 0 : -ENOMEM;
}

void hops_join_free(struct hops *h)
{
	map__free(h->asked);
	map__free(h->conns);
	map__free(h->ids);
	map__free(h->wanted);
}

/* A place for a key; the oldest makes room. */
static void *put(struct map *m, uint64_t key)
{
	uint64_t oldest;

	if (map__is_full(m) && !map__get(m, key) && map__oldest(m, &oldest))
		map__del(m, oldest);
	return map__put(m, key, NULL);
}

void hops_join(struct passed *x, uint32_t req, bool guess)
{
	x->req = req;
	x->guess = guess;
}

int hops_passed_id(struct hops *h, uint32_t number, const char *id)
{
	const uint32_t *req = map__get(h->ids, hash_of(id));
	struct passed *x = map__get(h->passed, number);
	uint32_t *waits;

	if (!x)
		return 0;
	if (req) {
		hops_join(x, *req, false);
		return 0;
	}
	waits = put(h->wanted, hash_of(id));
	if (!waits)
		return -ENOMEM;
	*waits = number;
	return 0;
}

int hops__on_id(struct hops *h, uint32_t req, const char *id)
{
	const uint64_t hash = hash_of(id);
	const uint32_t *waits = map__get(h->wanted, hash);
	struct passed *x = waits ? map__get(h->passed, *waits) : NULL;
	uint32_t *known;

	if (!map__len(h->proxies))
		return 0;
	known = put(h->ids, hash);
	if (!known)
		return -ENOMEM;
	*known = req;
	if (waits)
		map__del(h->wanted, hash);
	if (!x)
		return 0;
	hops_join(x, req, false);
	return hops_flush(h, x);
}

/* ---- the engine's side ---- */

/* The proxy's oldest exchange that is not tied to another request; one with a body of that
 * length before all others. */
static void guess(struct hops *h, uint32_t req, uint32_t conn, uint64_t body_bytes)
{
	const uint16_t *port = map__get(h->conns, conn);
	const uint32_t *owner = port ? map__get(h->upstreams, *port) : NULL;
	struct passed *best = NULL;

	for (struct passed *x = owner ? map__oldest(h->passed, NULL) : NULL; x;
	     x = map__newer(h->passed, x, NULL)) {
		if (x->tgid != *owner || x->req || x->maybe)
			continue;
		if (!best || (best->body_bytes != body_bytes && x->body_bytes == body_bytes))
			best = x;
	}
	if (best)
		best->maybe = req;
}

static void on_chunk(struct hops *h, const struct tl_chunk *e)
{
	struct asked *a = map__get(h->asked, e->req);

	if (!a)
		return;
	if (!a->n_chunks)
		a->first_bytes = e->bytes;
	a->has_tokens |= (e->hdr.flags & TL_CHUNK_TOKEN) != 0;
	a->n_before_tokens += !a->has_tokens;
	a->n_chunks++;
}

int hops__on_engine(struct hops *h, const struct tl_hdr *ev)
{
	const struct tl_req_begin *begin = (const void *)ev;
	const struct tl_req_facts *facts = (const void *)ev;
	const struct tl_conn *conn = (const void *)ev;
	struct asked *a;
	uint16_t *port;

	if (!map__len(h->proxies))
		return 0;
	switch (ev->kind) {
	case TL_CONN:
		port = conn->what == TL_CONN_OPEN ? put(h->conns, conn->conn) : NULL;
		if (port)
			*port = conn->peer_port;
		return conn->what == TL_CONN_OPEN && !port ? -ENOMEM : 0;
	case TL_REQ_BEGIN:
		a = put(h->asked, begin->req);
		if (!a)
			return -ENOMEM;
		*a = (struct asked){ .conn = begin->conn };
		return 0;
	case TL_REQ_FACTS:
		a = map__get(h->asked, facts->req);
		if (a)
			guess(h, facts->req, a->conn, facts->body_bytes);
		return 0;
	case TL_CHUNK:
		on_chunk(h, (const void *)ev);
	}
	return 0;
}
