/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP side of every engine: raw socket events in, requests and chunks out. Pure. */
#ifndef TL_WIRE_H
#define TL_WIRE_H

#include "base/emit.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_ID = 512 };	/* longer ids name nobody */

struct wire_opts {
	size_t max_conns;	/* 0: default 65,536 */
	/* Optional: told once per id that a request goes by: its X-Request-Id, and the
	 * id in its answer (`answered`), all of it as UTF-8, shorter than WIRE_ID. id
	 * lives during the call only. */
	void (*on_id)(void *ctx, uint32_t tgid, uint32_t req, const char *id, bool answered);
	void *ctx;
};

struct wire_stats {
	uint64_t conns, conns_now;
	uint64_t requests, requests_now;
	uint64_t chunks, tokens;	/* chunks that may hold a token: token_flags.h */
	uint64_t skipped_bytes;		/* no HTTP/1 that we could follow */
	uint64_t tls_conns;		/* encrypted: nothing to read */
	uint64_t refused;		/* connections or requests over a limit */
};

struct wire;

struct wire *wire__new(const struct wire_opts *opts, const struct emit *out); /* NULL: no memory */
void wire__free(struct wire *w);	/* NULL is fine */

/* Takes TL_RAW_NET, TL_RAW_SOCK, TL_RAW_TCP_STATE, TL_RAW_TCP and TL_RAW_PROC; others are ignored.
 * Returns 0, or -errno from `out` or -ENOMEM; the tracker stays usable. */
int wire__feed(struct wire *w, const struct tl_hdr *ev);

/* The capture ends: requests under way get their TL_REQ_END. */
int wire__end(struct wire *w, uint64_t now_ns);

/* Number of the request that this thread read last and that is still under way; 0: none. */
uint32_t wire__request_of_thread(const struct wire *w, uint32_t tid);

void wire__stats(const struct wire *w, struct wire_stats *ret);

#endif
