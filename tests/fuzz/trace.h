/* SPDX-License-Identifier: Apache-2.0 */
/* What a parser reported, as bytes to compare: the same input must give the same trace however it
 * is cut into pieces. */
#ifndef TL_TRACE_H
#define TL_TRACE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trace {
	uint8_t *p;
	size_t len, cap;
};

static inline void trace_add(struct trace *t, const void *p, size_t len)
{
	if (t->len + len > t->cap) {
		t->cap = 2 * (t->len + len) + 1024;
		t->p = realloc(t->p, t->cap);
		if (!t->p)
			abort();
	}
	if (len)
		memcpy(t->p + t->len, p, len);
	t->len += len;
}

/* Aborts, so that the fuzzer sees it, if two traces differ. */
static inline void trace_compare(const struct trace *a, const struct trace *b, const char *what)
{
	size_t i = 0;

	if (a->len == b->len && (!a->len || !memcmp(a->p, b->p, a->len)))
		return;
	while (i < a->len && i < b->len && a->p[i] == b->p[i])
		i++;
	fprintf(stderr, "%s: traces of %zu and %zu bytes differ from byte %zu\n", what, a->len,
		b->len, i);
	abort();
}

/* A copy of exactly len bytes on the heap, so that reading past it is seen. */
static inline char *exact_copy(const void *p, size_t len)
{
	char *copy = malloc(len ? len : 1);

	if (!copy)
		abort();
	memcpy(copy, p, len);
	return copy;
}

#endif
