/* SPDX-License-Identifier: Apache-2.0 */
/* Typed growable arrays: struct { VEC(struct thing) things; } with zeros as the empty one. */
#ifndef TL_VEC_H
#define TL_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VEC(type) struct { type *v; size_t n, cap; }

/* A larger block for `n` elements, *cap updated; NULL: over max or out of memory, v stays valid. */
static inline void *vec_grow_(void *v, size_t *cap, size_t n, size_t size, size_t max)
{
	size_t want = *cap ? *cap + *cap / 2 : 8;

	if (n > max)
		return NULL;
	if (want < n)
		want = n;
	if (want > max)
		want = max;
	if (want > SIZE_MAX / size)
		return NULL;
	v = realloc(v, want * size);
	if (v)
		*cap = want;
	return v;
}

/* Appends one element of zeros and gives its address, or NULL: there are max of them already, or
 * out of memory. Addresses of older elements are valid no more. */
#define vec_push(vec, max) ({						\
	__typeof__(vec) vec_ = (vec);					\
	__typeof__(vec_->v) vec_at = NULL;				\
	if (vec_->n < vec_->cap) {					\
		vec_at = vec_->v + vec_->n++;				\
	} else {							\
		vec_at = vec_grow_(vec_->v, &vec_->cap, vec_->n + 1,	\
				   sizeof(*vec_->v), (max));		\
		if (vec_at) {						\
			vec_->v = vec_at;				\
			vec_at += vec_->n++;				\
		}							\
	}								\
	if (vec_at)							\
		memset(vec_at, 0, sizeof(*vec_at));			\
	vec_at;								\
})

#define vec_free(vec) do {		\
	__typeof__(vec) vec_ = (vec);	\
	free(vec_->v);			\
	vec_->v = NULL;			\
	vec_->n = vec_->cap = 0;	\
} while (0)

#endif
