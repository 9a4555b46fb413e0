/* SPDX-License-Identifier: Apache-2.0 */
/* Values in a row, and the first of them from some place on that is large enough: in
 * log n, as a tree of maxima. */
#ifndef TL_FIRSTFIT_H
#define TL_FIRSTFIT_H

#include <stddef.h>

struct firstfit;

struct firstfit *firstfit__new(size_t n);	/* all of them empty: never large
						 * enough. NULL: out of memory */
void firstfit__free(struct firstfit *f);	/* NULL is fine */
void firstfit__set(struct firstfit *f, size_t i, double value);
/* The first place from `from` on with a value of `least` or more; n: none. */
size_t firstfit__find(const struct firstfit *f, size_t from, double least);

#endif
