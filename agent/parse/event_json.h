/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a recording: one JSON object per line, out and in without loss. Pure. */
#ifndef TL_EVENT_JSON_H
#define TL_EVENT_JSON_H

#include "base/jsonw.h"
#include "tl_event.h"
#include "tl_file.h"
#include <stddef.h>

/* Each writes one object. Any record whose size is sound can be printed: one that is of no known
 * kind, or not what its kind says, as its number and its bytes in hex. */
void event_json_header(struct jsonw *w, const struct tl_file_hdr *hdr);
void event_json(struct jsonw *w, const struct tl_hdr *ev);

/* The reverse. Omitted fields are zero; ts_ms may stand for ts_ns; names of values may be numbers,
 * upper and lower case are the same. Anything that is not understood is refused. */
struct event_parser;

struct event_parser *event_parser__new(void);	/* NULL: out of memory */
void event_parser__free(struct event_parser *p);	/* NULL is fine */

/* One of them is NULL; both live until the next line. */
struct event_line {
	const struct tl_hdr *ev;
	const struct tl_file_hdr *header;
};
/* Reads one line (without or with its newline). -EINVAL: event_parser__why tells; -ENOMEM. */
int event_parser__line(struct event_parser *p, const char *line, size_t len,
		       struct event_line *ret);
/* After -EINVAL, a clause for the user: "unknown key 'foo'". */
const char *event_parser__why(const struct event_parser *p);

#endif
