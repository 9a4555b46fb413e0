/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the HTTP tracker: connections and the exchanges on them. */
#ifndef TL_WIRE_PRIV_H
#define TL_WIRE_PRIV_H

#include "base/cutbuf.h"
#include "base/map.h"
#include "engine/sends.h"
#include "engine/stream_pos.h"
#include "engine/wire.h"
#include "parse/gunzip.h"
#include "parse/http1.h"
#include "parse/llmapi.h"
#include "parse/sse.h"
#include <stdbool.h>

enum {
	BODY_HEAD = 8192,	/* bytes kept of a request's or a whole answer's body ... */
	BODY_TAIL = 4096,	/* ... and of its end: counts stand there */
	SSE_HEAD = 2048,	/* of one streamed event that comes in pieces */
	SSE_TAIL = 2048,
	MAX_GUNZIPS = 256,	/* compressed answers under way that are read; more are not */
	MAX_PIPELINE = 256,	/* exchanges under way on one connection */
	N_WRITTEN = 16,		/* writes of a connection whose time is remembered */
};

/* One exchange, from the first byte of the request to the last of the response. */
struct exchange {
	struct exchange *next;	/* the next one on this connection: pipelining */
	uint32_t req;
	uint32_t tid;		/* thread that read it */
	uint8_t api, method, body;
	bool announced;		/* TL_REQ_BEGIN was sent */
	bool response_begun;
	bool joined;		/* its request was not seen */
	bool failed;		/* an error event came */
	uint8_t n_behind_eof;	/* writes of the answer after the peer had closed ... */
	uint64_t behind_eof_ns;	/* ... the last of them */
	bool finished;		/* the answer said that it is over: finish reason, usage, [DONE] */
	uint16_t status;
	uint16_t n_ended;	/* answers that said their own counts as they ended */
	uint64_t first_byte_ns;
	uint64_t bytes_in, bytes_out;
	struct http1_head *head; /* of the request, until its end is read */
	struct cutbuf text;	/* body of the request, then of an answer that is no stream */
	struct sse *sse;
	struct gunzip *gunzip;	/* the answer is compressed */
	struct llm_chunk *last;	/* counts and id gathered so far; made
				 * with the first that has any */
};

/* A write: when it began, and TCP's count of the stream behind it. */
struct written {
	uint64_t ns;
	uint32_t pos;
};

struct conn {
	uint64_t sock;
	uint32_t conn;		/* number */
	uint32_t tgid, tid;
	uint64_t open_ns;	/* handshake done; 0: not seen */
	uint64_t peer_eof_ns;	/* the peer said it is done, or reset; 0: not yet */
	bool peer_reset;	/* it takes nothing any more */
	uint64_t last_ns;
	uint16_t local_port, peer_port;
	uint8_t family;
	uint8_t peer_addr[16];
	bool client;		/* the target opened it: not a served connection */
	bool left;		/* who used it has closed it, others hold it open */
	bool in_lost, out_lost;	/* no sync in this direction: wait for a start line */
	bool tls;
	bool answers_over;	/* the target shut its side down: what
				 * it still reads it throws away */
	struct stream_pos pos[2];	/* by direction: in, out */
	uint32_t out_req;	/* whose answer was written last */
	struct written written[N_WRITTEN];	/* the last ones, at n_written
						 * % N_WRITTEN the oldest */
	unsigned n_written;
	struct http1 *in, *out;
	struct exchange *first, *last;	/* oldest and newest under way */
	unsigned n_under_way;
};

struct wire {
	struct emit out;
	struct wire_opts opts;
	struct wire_stats stats;
	struct map *conns;	/* socket -> struct conn * */
	struct map *opened;	/* peer and local port -> ns of a handshake not yet accepted */
	struct sends *sends;
	struct map *threads;	/* tid -> number of the request that it read last */
	uint32_t n_conns, n_reqs;
	size_t n_gunzips;
	size_t n_left;		/* connections with `left` */
	uint64_t begin_ns;	/* of the first event */

	/* The event that is being fed: what the parsers' callbacks need to know of it. */
	struct conn *c;
	uint64_t now_ns;
	uint64_t waited_ns;	/* bytes that were read: since the kernel had them */
	uint32_t write_us;
	uint32_t tid;
	int err;		/* first error of a callback */
};

/* exchange.c: the life of one exchange. All report errors in w->err. */
struct exchange *exchange_new(struct wire *w, struct conn *c);	/* queued last; NULL: refused */
void exchange_announce(struct wire *w, struct conn *c, struct exchange *x, bool joined);
void exchange_request_done(struct wire *w, struct conn *c, struct exchange *x);
void exchange_response_head(struct wire *w, struct conn *c, struct exchange *x,
			    const struct http1_head *head);
void exchange_response_body(struct wire *w, struct conn *c, struct exchange *x, const char *data,
			    size_t len);
void exchange_response_gap(struct wire *w, struct conn *c, struct exchange *x, uint64_t len);
/* Forgets the newest one if its head was not read. */
void exchange_drop_unread(struct wire *w, struct conn *c);
/* Ends the oldest exchange of the connection and frees it. */
void exchange_end(struct wire *w, struct conn *c, uint16_t how, uint64_t ns);

/* conn.c: served connections; w->now_ns, w->tid say when and by whom. */
struct conn *conn_find(struct wire *w, uint64_t sock);
/* A connection with this socket; an older one that still has it is closed first. NULL: over the
 * limit (counted) or out of memory (w->err). */
struct conn *conn_new(struct wire *w, uint64_t sock, uint32_t tgid);
void conn_begin(struct wire *w, struct conn *c, uint8_t family, uint16_t local_port,
		uint16_t peer_port, const uint8_t *peer_addr);
void conn_is_tls(struct wire *w, struct conn *c);	/* nothing of it is read: say so */
void conn_serve(struct wire *w, struct conn *c);	/* it is one: give it a
							 * number, say TL_CONN */
void conn_close(struct wire *w, struct conn *c, uint64_t ns);	/* ends what is open and frees it */
void conn_end_all(struct wire *w, struct conn *c, uint16_t how, uint64_t ns);
void conn_free(struct wire *w, struct conn *c);	/* says nothing */
void exchange_free(struct wire *w, struct exchange *x);
void conn_set_left(struct wire *w, struct conn *c, bool left);
/* The exchange that a response belongs to; one whose request was missed if there is none. */
struct exchange *conn_answered(struct wire *w, struct conn *c);
void conn_expect_next(struct conn *c);	/* tells the parser whether a HEAD is answered next */
uint64_t conn_opened_key(uint16_t peer_port, uint16_t local_port);

void wire_emit(struct wire *w, const struct tl_hdr *ev);

#endif
