/* SPDX-License-Identifier: Apache-2.0 */
/* A byte buffer that grows up to a bound. */
#ifndef TL_BUF_H
#define TL_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
	uint8_t *data;
	size_t len, cap;
	size_t max;		/* bytes that len never exceeds */
};

void buf__init(struct buf *b, size_t max);	/* allocates nothing */
void buf__free(struct buf *b);			/* back to its state after init */

/* Room for n more bytes behind len. -ENOBUFS: over max; -ENOMEM. The content stays either way. */
int buf__reserve(struct buf *b, size_t n);
/* All of it, or an error and nothing. */
int buf__append(struct buf *b, const void *p, size_t n);
void buf__clear(struct buf *b);			/* keeps the memory */
void buf__consume(struct buf *b, size_t n);	/* drops the first n bytes, n <= len */

#endif
