/* SPDX-License-Identifier: Apache-2.0 */
/* A sentence that is put together piece by piece in a buffer of the caller's;
 * what does not fit is cut. */
#ifndef TL_SENTENCE_H
#define TL_SENTENCE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct sentence {
	char *buf;
	size_t at, size;	/* so much is in it; of the buffer, not 0 */
};

static inline void __attribute__((format(printf, 2, 3)))
append(struct sentence *s, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(s->buf + s->at, s->size - s->at, fmt, ap);
	va_end(ap);
	if (n > 0)
		s->at += (size_t)n < s->size - s->at ? (size_t)n : s->size - s->at - 1;
}

#endif
