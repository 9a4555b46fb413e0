/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of times and counts that does not wrap. */
#ifndef TL_NUM_H
#define TL_NUM_H

#include <stdint.h>

/* a - b, 0 if b is larger. */
static inline uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static inline uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
