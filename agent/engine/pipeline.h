/* SPDX-License-Identifier: Apache-2.0 */
/* From raw events to semantic ones: the HTTP tracker and one adapter per engine process. Pure. */
#ifndef TL_PIPELINE_H
#define TL_PIPELINE_H

#include "base/emit.h"
#include "engine/wire.h"

struct pipeline;

/* NULL: no memory. */
struct pipeline *pipeline__new(const struct wire_opts *opts, const struct emit *out);
void pipeline__free(struct pipeline *p);	/* NULL is fine */

/* Takes any event: raw ones are understood and not passed on, semantic ones (TL_ENGINE, TL_LOST
 * ...) are passed on. Returns 0 or -errno; stays usable. */
int pipeline__feed(struct pipeline *p, const struct tl_hdr *ev);
/* This process stands before an engine and hands its answers on: what it does with them is
 * evidence, its own requests are none. -ENOMEM; -E2BIG: too many. */
int pipeline__add_proxy(struct pipeline *p, uint32_t tgid, const char *name);
int pipeline__end(struct pipeline *p, uint64_t now_ns);	/* closes what is open */

/* A TCP socket, by inode, that turned out to carry an engine's own wire: to be captured whole. */
bool pipeline__next_wire(struct pipeline *p, uint64_t *ret_sock);
const struct wire *pipeline__wire(const struct pipeline *p);
uint64_t pipeline__n_steps(const struct pipeline *p);
uint64_t pipeline__n_bad(const struct pipeline *p);	/* damaged raw events */

#endif
