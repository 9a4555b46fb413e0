/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the follower of proxies: their exchanges, and how they are tied
 * to an engine's requests. */
#ifndef TL_HOPS_PRIV_H
#define TL_HOPS_PRIV_H

#include "base/map.h"
#include "engine/hops.h"
#include "engine/wire.h"

enum {
	MAX_HANDED = 8,		/* writes of an exchange that wait to be told */
	MAX_FRESH = 16,
};

struct handed {			/* a write of the proxy that carried chunks */
	uint64_t ns;
	uint32_t n_chunks, n_tokens;	/* of the answer up to here */
	uint32_t pos;		/* of the stream behind it */
	bool held;		/* it has not left yet */
};

/* An exchange of a proxy with its client. */
struct passed {
	uint32_t number;	/* in the tracker of the proxies */
	uint32_t tgid;
	uint32_t req;		/* the engine's, 0: not known yet */
	uint32_t maybe;		/* by connection and order, if no id tells otherwise */
	uint32_t n_chunks, n_tokens;
	uint32_t first_bytes;	/* of its first chunk */
	uint64_t body_bytes;	/* of the request */
	bool was_held;		/* its socket held bytes: it may come to speak after the end */
	bool guess;		/* `req` is by order */
	bool opaque;		/* its chunks could not be read */
	bool joined;		/* it was under way: what it handed on before is not known */
	struct handed handed[MAX_HANDED];
	size_t n_handed;
	uint64_t told_ns;	/* of the last that was told: what is written
				 * behind it does not come before it */
};

/* A request of an engine. */
struct asked {
	uint32_t conn;
	uint32_t n_chunks;
	uint32_t n_before_tokens;	/* chunks before the first that has a token */
	uint32_t first_bytes;
	bool has_tokens;
};

struct proxy {
	char name[16];
};

/* An exchange of which a write was just seen: whether the kernel holds it, the
 * thread's next event tells. */
struct fresh {
	uint32_t number, tid;
	uint64_t sock;
};

struct hops {
	struct emit out;
	struct wire *wire;	/* of the proxies */
	struct map *proxies;	/* tgid -> struct proxy */
	struct map *upstreams;	/* local port of a proxy's connection -> tgid */
	struct map *passed;	/* number -> struct passed */
	struct map *asked;	/* the engine's request -> struct asked */
	struct map *conns;	/* the engine's connection -> its peer's port */
	struct map *ids;	/* hash of an id -> the engine's request */
	struct map *wanted;	/* hash of an id -> number of an exchange that waits for it */
	struct map *held;	/* socket that holds bytes -> number of the exchange */
	struct fresh fresh[MAX_FRESH];
	size_t n_fresh;
	const struct tl_raw_net *net;	/* the event at hand */
	int err;
};

int hops_flush(struct hops *h, struct passed *x);	/* tells what need not wait any more */

/* hops_join.c */
int hops_join_init(struct hops *h);	/* -ENOMEM */
void hops_join_free(struct hops *h);
void hops_join(struct passed *x, uint32_t req, bool guess);
int hops_passed_id(struct hops *h, uint32_t number, const char *id);

#endif
