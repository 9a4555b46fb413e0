/* SPDX-License-Identifier: Apache-2.0 */
/* One direction of an HTTP/1.x connection: bytes in, messages out. Pure; llhttp inside. */
#ifndef TL_HTTP1_H
#define TL_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http1_side { HTTP1_REQUESTS, HTTP1_RESPONSES };

/* What a message head says. Strings are printable ASCII with a NUL, cut to fit, "" if absent; of a
 * field that comes twice it is the first. */
struct http1_head {
	uint8_t method;		/* requests: enum tl_method */
	uint16_t status;	/* responses */
	uint8_t body;		/* responses: enum tl_body, by content type */
	bool encoded;		/* Content-Encoding other than identity ... */
	bool gzip;		/* ... in a way that gunzip.h reads */
	bool keep_alive;
	bool chunked;
	int64_t content_length;	/* -1: not given */
	char path[64];		/* requests: target without query */
	char x_request_id[256];	/* as it was sent, any bytes but blanks around them and NUL */
	char traceparent[56];
	bool cut;		/* some field did not fit */
};

/* All optional. They are called in the feed that holds the byte in question; none may feed or free.
 * Bytes that are no HTTP may be told as a begin, never as more. */
struct http1_fns {
	void (*begin)(void *ctx);	/* first byte of a message, or of a 1xx before it */
	void (*head)(void *ctx, const struct http1_head *head);	/* end of its head; none for 1xx */
	void (*body)(void *ctx, const char *data, size_t len);	/* dechunked, as it comes */
	void (*gap)(void *ctx, uint64_t len);	/* body bytes that were not captured */
	void (*end)(void *ctx);		/* the message is whole */
};

struct http1;

/* Copies fns. NULL: out of memory. For responses, http1__expect_head must be called per request. */
struct http1 *http1__new(enum http1_side side, const struct http1_fns *fns, void *ctx);
void http1__free(struct http1 *h);	/* NULL is fine */

/* Feed the next bytes, cut anywhere. Returns 0, or -EPROTO if they are no HTTP/1 (or follow an
 * upgrade), or -ENOMEM. After an error every call gives -EPROTO until http1__resync. */
int http1__feed(struct http1 *h, const char *buf, size_t len);

/* `len` bytes of the stream were not captured. Inside a body they are counted as body; a gap that
 * hits a head or chunk framing loses sync: -EPROTO. (Where a body of known length ends inside the
 * gap, its end is still told.) Takes no time, however long the gap. */
int http1__gap(struct http1 *h, uint64_t len);

/* The connection's end: ends a response whose body runs until close. No more is fed after it. */
void http1__eof(struct http1 *h);

/* Responses: tells the parser whether the response to come answers a HEAD request. Counts from now
 * until said otherwise; may be called in head() at the latest. */
void http1__expect_head(struct http1 *h, bool head);

/* Does buf begin a message (request line or status line)? For joining in mid-stream. */
bool http1_is_start(enum http1_side side, const char *buf, size_t len);

/* Forget the message under way and begin anew with the next byte. */
void http1__resync(struct http1 *h);

/* A response joined in mid-body: treats what comes as a chunked body, from a chunk boundary.
 * Returns true if buf looks like such a boundary (`HEX\r\n`); then feed it. That message has no
 * begin and no head, only body and end. */
bool http1__join_chunked(struct http1 *h, const char *buf, size_t len);

#endif
