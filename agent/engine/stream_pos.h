/* SPDX-License-Identifier: Apache-2.0 */
/* TCP's own count of a stream: tells of bytes that no event told of. */
#ifndef TL_STREAM_POS_H
#define TL_STREAM_POS_H

#include "tl_event.h"
#include <stdbool.h>
#include <stdint.h>

/* One direction of a socket. */
struct stream_pos {
	bool known;
	uint32_t pos;		/* behind the last bytes that were seen, modulo 2^32 */
};

/* Bytes of the stream between the last event and this one that no event told of: a lost event, or a
 * call that is not probed (sendfile, io_uring). 0: none, or the socket cannot tell. */
static inline uint32_t stream_pos_unseen(struct stream_pos *p, const struct tl_raw_net *e)
{
	uint32_t missing = 0;

	if (!(e->hdr.flags & TL_NET_POS))
		return 0;
	if (p->known)
		missing = e->stream_pos - e->total - p->pos;
	p->known = true;
	p->pos = e->stream_pos;
	/* A peer that ends its side behind the last bytes: that end counts as one. */
	if (e->dir == TL_IN && missing == 1)
		return 0;
	/* Two threads on one socket can pass each other: a step back is no hole. */
	return missing < 1u << 31 ? missing : 0;
}

#endif
