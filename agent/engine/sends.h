/* SPDX-License-Identifier: Apache-2.0 */
/* What TCP did with bytes that servers wrote: raw events in, TL_SEND_HELD and
 * TL_SEND_BLOCKED out. Pure. */
#ifndef TL_SENDS_H
#define TL_SENDS_H

#include "base/emit.h"
#include <stdint.h>

struct sends;	/* sockets whose bytes wait in the kernel; those of all others take no memory */

struct sends *sends__new(const struct emit *out);	/* NULL: out of memory */
void sends__free(struct sends *s);	/* NULL is fine */

/* Who writes to the socket: as the tracker of connections knows it. */
struct sender {
	uint32_t conn, req;
	uint64_t written_ns;	/* TL_TCP_AGAIN: when its bytes were written, 0: not known */
};

/* A write took bytes: there was room. */
void sends__wrote(struct sends *s, uint64_t sock, uint64_t begin_ns);

/* All return 0, or -errno from `out`, or -ENOMEM. */
int sends__feed(struct sends *s, const struct tl_raw_tcp *e, const struct sender *who);
/* Another connection has that number now. */
int sends__forget(struct sends *s, uint64_t sock, uint64_t now_ns);
int sends__end(struct sends *s, uint64_t now_ns);	/* what still waits is
							 * told with TL_F_TRUNC */

#endif
