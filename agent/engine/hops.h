/* SPDX-License-Identifier: Apache-2.0 */
/* Proxies on this host before an engine: when they handed each chunk of its answers on. Pure. */
#ifndef TL_HOPS_H
#define TL_HOPS_H

#include "base/emit.h"
#include <stdbool.h>
#include <stdint.h>

/*
 * A proxy's exchanges with its clients are followed as an engine's are, but are no requests of
 * their own: they are tied to the engine's by the id that the answer bears or, where there is
 * none, by the connection on which the engine was asked, the length of the body, and order
 * (TL_F_GUESS). What comes out are TL_DELIVERED, and TL_SEND_HELD and TL_SEND_BLOCKED of the
 * proxy's socket, with the engine's request.
 */
struct hops;

struct hops *hops__new(const struct emit *out);	/* NULL: out of memory */
void hops__free(struct hops *h);	/* NULL is fine */

int hops__add(struct hops *h, uint32_t tgid, const char *name);	/* -ENOMEM; -E2BIG: too many */
bool hops__has(const struct hops *h, uint32_t tgid);

/* All return 0, -errno of `out`, -ENOMEM, or -EBADMSG as wire__feed does. */
int hops__feed(struct hops *h, const struct tl_hdr *ev);	/* raw, of one of the processes */
int hops__end(struct hops *h, uint64_t now_ns);

/* What the engine's side says: semantic events, and the ids of its answers. */
int hops__on_engine(struct hops *h, const struct tl_hdr *ev);
int hops__on_id(struct hops *h, uint32_t req, const char *id);

#endif
