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
	cutbuf__init(c, c->max_head, c->max_tail);
}

int cutbuf__add(struct cutbuf *c, const char *p, size_t n)
{
	char *ring;

	if (!n)
		return 0;
	if (!c->data) {
		c->data = malloc(c->max_head + c->max_tail);
		if (!c->data)
			return -ENOMEM;
	}
	if (!c->after && c->head < c->max_head) {
		size_t k = c->max_head - c->head;

		k = n < k ? n : k;
		memcpy(c->data + c->head, p, k);
		c->head += k;
		p += k;
		n -= k;
	}
	ring = c->data + c->max_head;
	if (n > c->max_tail) {
		c->after += n - c->max_tail;
		p += n - c->max_tail;
		n = c->max_tail;
	}
	while (n) {
		size_t at = c->after % c->max_tail, k = c->max_tail - at;

		k = n < k ? n : k;
		memcpy(ring + at, p, k);
		c->after += k;
		p += k;
		n -= k;
	}
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

static void reverse(char *p, size_t n)
{
	for (size_t i = 0; i < n / 2; i++) {
		char x = p[i];

		p[i] = p[n - 1 - i];
		p[n - 1 - i] = x;
	}
}

/* Rotates n bytes left by k, in place. */
static void rotate(char *p, size_t n, size_t k)
{
	reverse(p, k);
	reverse(p + k, n - k);
	reverse(p, n);
}

const char *cutbuf__join(struct cutbuf *c, size_t *ret_head, size_t *ret_len)
{
	uint64_t from = c->after > c->max_tail ? c->after - c->max_tail : 0;
	size_t n;

	*ret_head = *ret_len = c->head;
	if (!c->data)
		return NULL;
	if (from < c->gap_at)
		from = c->gap_at;
	n = c->after - from;
	if (n) {
		char *ring = c->data + c->max_head;

		/* The oldest byte that is held lies at from % max_tail. */
		rotate(ring, c->max_tail, from % c->max_tail);
		memmove(c->data + c->head, ring, n);
	}
	*ret_len = c->head + n;
	return c->data;
}
