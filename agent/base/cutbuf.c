/* SPDX-License-Identifier: Apache-2.0 */
/* Head and tail of a long text: the head is linear, the tail a ring behind it. */
#include "base/cutbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void cutbuf__init(struct cutbuf *c, uint32_t max_head, uint32_t max_tail)
{
	*c = (struct cutbuf){ .max_head = max_head, .max_tail = max_tail };
}

void cutbuf__free(struct cutbuf *c)
{
	free(c->data);
	free(c->ring);
	cutbuf__init(c, c->max_head, c->max_tail);
}

/* Room for `want` bytes of the start. Most texts are short, and many are held at once. */
static int grow_head(struct cutbuf *c, size_t want)
{
	uint32_t cap = c->cap ? c->cap : 128;
	char *p;

	while (cap < want)
		cap *= 2;
	if (cap > c->max_head)
		cap = c->max_head;
	if (cap <= c->cap)
		return 0;
	p = realloc(c->data, cap);
	if (!p)
		return -ENOMEM;
	c->data = p;
	c->cap = cap;
	return 0;
}

static void add_to_ring(struct cutbuf *c, const char *p, size_t n)
{
	if (n > c->max_tail) {
		c->after += n - c->max_tail;
		p += n - c->max_tail;
		n = c->max_tail;
	}
	while (n) {
		size_t at = c->after % c->max_tail, k = c->max_tail - at;

		k = n < k ? n : k;
		memcpy(c->ring + at, p, k);
		c->after += k;
		p += k;
		n -= k;
	}
}

int cutbuf__add(struct cutbuf *c, const char *p, size_t n)
{
	if (!c->after && c->head < c->max_head) {
		size_t k = c->max_head - c->head;

		k = n < k ? n : k;
		if (grow_head(c, c->head + k))
			return -ENOMEM;
		if (k)
			memcpy(c->data + c->head, p, k);
		c->head += k;
		p += k;
		n -= k;
	}
	if (!n)
		return 0;
	if (!c->ring) {
		c->ring = malloc(c->max_tail);
		if (!c->ring)
			return -ENOMEM;
	}
	add_to_ring(c, p, n);
	return 0;
}

void cutbuf__gap(struct cutbuf *c, uint64_t n)
{
	c->after += n;
	c->gap_at = c->after;
}

uint64_t cutbuf__total(const struct cutbuf *c)
{
	return c->head + c->after;
}

const char *cutbuf__join(struct cutbuf *c, size_t *ret_head, size_t *ret_len)
{
	uint64_t from = c->after > c->max_tail ? c->after - c->max_tail : 0;
	size_t n, at, k;
	char *p;

	*ret_head = *ret_len = c->head;
	if (from < c->gap_at)
		from = c->gap_at;
	n = c->after - from;
	if (!n)
		return c->data;
	p = realloc(c->data, c->head + n);
	if (!p)
		return c->data;
	c->data = p;
	/* In the ring the oldest byte lies at from % max_tail. */
	at = from % c->max_tail;
	k = n < c->max_tail - at ? n : c->max_tail - at;
	memcpy(p + c->head, c->ring + at, k);
	memcpy(p + c->head + k, c->ring, n - k);
	*ret_len = c->head + n;
	return p;
}
