/* SPDX-License-Identifier: Apache-2.0 */
/* Where events go: the one seam between whoever makes events and whoever takes them. */
#ifndef TL_EMIT_H
#define TL_EMIT_H

#include "tl_event.h"

/* Takes one event, which lives during the call only. Returns 0, or -errno: the maker stops
 * and hands the error up. */
struct emit {
	int (*fn)(void *ctx, const struct tl_hdr *ev);
	void *ctx;
};

static inline int emit(const struct emit *e, const struct tl_hdr *ev)
{
	return e->fn(e->ctx, ev);
}

#endif
