/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the first and the last bytes of a long text, and how long it was. */
#ifndef TL_CUTBUF_H
#define TL_CUTBUF_H

#include <stddef.h>
#include <stdint.h>

struct cutbuf {
	char *data;		/* the start: grows as it comes, up to max_head */
	char *ring;		/* max_tail bytes, once more than max_head came */
	uint32_t max_head, max_tail;
	uint32_t head, cap;	/* bytes of the start that are held, and room for them */
	uint64_t after;		/* bytes that came after these; the
				 * last ones are held in the ring */
	uint64_t gap_at;	/* `after` as of the last hole: the tail
				 * never begins before it */
};

/* Allocates nothing. */
void cutbuf__init(struct cutbuf *c, uint32_t max_head, uint32_t max_tail);
void cutbuf__free(struct cutbuf *c);	/* back to its state after init */

int cutbuf__add(struct cutbuf *c, const char *p, size_t n);	/* 0 or -ENOMEM */
void cutbuf__gap(struct cutbuf *c, uint64_t n);	/* n bytes that nobody has */

uint64_t cutbuf__total(const struct cutbuf *c);
/* Lays what is held side by side: *ret_head bytes of the start, then the tail, *ret_len in all.
 * Whole when *ret_len == total. NULL when nothing is held; the start alone when memory runs out.
 * Adding more afterwards is not allowed. */
const char *cutbuf__join(struct cutbuf *c, size_t *ret_head, size_t *ret_len);

#endif
