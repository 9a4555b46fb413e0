/* SPDX-License-Identifier: Apache-2.0 */
/* A byte buffer that grows up to a bound. */
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void buf__init(struct buf *b, size_t max)
{
	*b = (struct buf){ .max = max };
}

void buf__free(struct buf *b)
{
	free(b->data);
	buf__init(b, b->max);
}

int buf__reserve(struct buf *b, size_t n)
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

int buf__append(struct buf *b, const void *p, size_t n)
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

void buf__clear(struct buf *b)
{
	b->len = 0;
}

void buf__consume(struct buf *b, size_t n)
{
	assert(n <= b->len);
	b->len -= n;
	if (b->len)
		memmove(b->data, b->data + n, b->len);
}
