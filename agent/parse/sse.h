/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of one text/event-stream body (WHATWG HTML, 9.2.6). Pure; bounded memory. */
#ifndef TL_SSE_H
#define TL_SSE_H

#include <stddef.h>
#include <stdint.h>

struct sse;

/* One event: its data lines joined by '\n'. `data` lives during the call only and has no NUL.
 * `total` is the length of the data on the wire; len < total when the event was longer than what is
 * kept or had a hole, then data is its first `head` bytes followed by its last len - head bytes.
 * `event` is the event field, "" if none. */
struct sse_event {
	const char *data;
	size_t len, head;
	uint64_t total;
	const char *event;
};
typedef void (*sse_fn)(void *ctx, const struct sse_event *ev);

/* Keeps up to max_head first and max_tail last bytes of one event's data. NULL: out of memory.
 * Holds no buffer between events that arrive whole. */
struct sse *sse__new(size_t max_head, size_t max_tail);
/* The same for JSON lines: each line that is not empty is the data of one event. */
struct sse *sse__new_lines(size_t max_head, size_t max_tail);
void sse__free(struct sse *s);		/* NULL is fine */

/* Feed the next bytes of the body, cut anywhere; fn is called once per complete event. Comments are
 * skipped (and counted). Returns the number of events, or -ENOMEM: the event under way is lost. */
int sse__feed(struct sse *s, const char *buf, size_t len, sse_fn fn, void *ctx);
void sse__gap(struct sse *s, uint64_t len);	/* bytes that were not captured: inside a line */
uint64_t sse__n_comments(const struct sse *s);

#endif
