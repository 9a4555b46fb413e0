/* SPDX-License-Identifier: Apache-2.0 */
/* A byte buffer for tests that grows up to a bound. */
#ifndef TL_TESTS_BUF_H
#define TL_TESTS_BUF_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct buf {
	uint8_t *data;
	size_t len, cap;
	size_t max;		/* bytes that len never exceeds */
};

static inline void buf__init(struct buf *b, size_t max)	/* allocates nothing */
{
	*b = (struct buf){ .max = max };
}

static inline void buf__free(struct buf *b)	/* back to its state after init */
{
	free(b->data);
	buf__init(b, b->max);
}

/* Room for n more bytes behind len. -ENOBUFS: over max; -ENOMEM. The content stays either way. */
static inline int buf__reserve(struct buf *b, size_t n)
{
	size_t cap = b->cap ? b->cap : 64;
	uint8_t *data;

	if (n > b->max - b->len)
		return -ENOBUFS;
	if (n <= b->cap - b->len)
		return 0;
	while (cap < b->len + n)
		cap += cap / 2;
	if (cap > b->max)
		cap = b->max;
	data = realloc(b->data, cap);
	if (!data)
		return -ENOMEM;
	b->data = data;
	b->cap = cap;
	return 0;
}

/* All of it, or an error and nothing. */
static inline int buf__append(struct buf *b, const void *p, size_t n)
{
	int err;

	if (n == 0)
		return 0;
	err = buf__reserve(b, n);
	if (err)
		return err;
	memcpy(b->data + b->len, p, n);
	b->len += n;
	return 0;
}

/* A jsonw_fn; ctx: struct buf. */
static inline int jsonw_to_buf(void *ctx, const char *data, size_t len)
{
	return buf__append(ctx, data, len);
}

#endif
