/* SPDX-License-Identifier: Apache-2.0 */
/* One direction of a ZMTP 3.x connection: bytes in, messages out. Pure; bounded memory. */
#ifndef TL_ZMTP_H
#define TL_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ZMTP_MAX_FRAMES = 8 };	/* of one message that are handed out; the rest is counted */

struct zmtp_frame {
	const uint8_t *data;	/* its first len bytes; NULL if len is 0 */
	size_t len;
	uint64_t total;		/* on the wire; len < total: cut by the limit or by a hole */
	bool more;		/* another frame of the same message follows */
};

struct zmtp_message {
	const struct zmtp_frame *frames;
	size_t n;		/* at most ZMTP_MAX_FRAMES */
	uint64_t n_total;	/* frames on the wire */
	uint64_t bytes;		/* payload on the wire, of all frames */
	bool joined;		/* the first since the stream was joined: may lack frames */
};

/* Strings end with NUL, cut to fit, "" if absent. */
struct zmtp_command {
	char name[16];		/* READY, PING, SUBSCRIBE ... */
	char socket_type[16];	/* READY: DEALER, PULL ... */
	uint8_t identity[32];	/* READY: cut to fit */
	size_t identity_len;
};

/* Both optional. What they are given lives during the call only. */
struct zmtp_fns {
	void (*message)(void *ctx, const struct zmtp_message *msg);
	void (*command)(void *ctx, const struct zmtp_command *cmd);
};

struct zmtp_stats {
	uint64_t n_messages, n_commands;
	uint64_t n_cut;		/* frames handed out with len < total */
	uint64_t n_dropped;	/* messages lost, with sync or for want of memory */
	uint64_t n_bad;		/* bytes that are no ZMTP, or a hole in a header: sync lost */
	uint64_t n_joined;	/* sync found in mid-stream */
	uint64_t skipped_bytes;	/* seen without sync */
};

struct zmtp;

/* Hands out up to max_bytes of one message, all its frames together, first come first kept. Holds
 * memory only for a message whose bytes come in several feeds, and no more than came; at most
 * max_bytes + 1 kB. NULL: out of memory. */
struct zmtp *zmtp__new(size_t max_bytes, const struct zmtp_fns *fns, void *ctx);
void zmtp__free(struct zmtp *z);	/* NULL is fine */

/*
 * Feed the next bytes, cut anywhere. `start`: buf begins where a read or write of the target did;
 * only there a stream is joined, at its greeting or at what zmtp_is_start() takes.
 * Returns 0; -EPROTO: no sync, or it was lost: the rest was skipped; -ENOMEM: the message under way
 * will not be handed out.
 */
int zmtp__feed(struct zmtp *z, const void *buf, size_t len, bool start);

/* The same for who sees whole frames, not bytes: one of `total` bytes, whose first `len` are at
 * hand. Not to be mixed with the other. Returns 0 or -ENOMEM. */
int zmtp__frame(struct zmtp *z, bool more, uint64_t total, const void *data, size_t len);

/* `len` bytes of the stream were not captured. Inside a frame they cut it: what follows the hole is
 * counted but not handed out. Elsewhere they lose sync: -EPROTO. */
int zmtp__gap(struct zmtp *z, uint64_t len);

/* An unknown number of bytes is missing: forget the message under way, join anew. */
void zmtp__resync(struct zmtp *z);

const struct zmtp_stats *zmtp__stats(const struct zmtp *z);

/* May buf, the bytes of one read or write, begin with a frame? Its frames must tile it: flags and
 * lengths as libzmq writes them, up to its end or up to a frame that goes on behind it. */
bool zmtp_is_start(const void *buf, size_t len);

#endif
