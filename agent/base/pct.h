/* SPDX-License-Identifier: Apache-2.0 */
/* Exact percentiles of numbers in memory. */
#ifndef TL_PCT_H
#define TL_PCT_H

#include <stddef.h>
#include <stdint.h>

/* Nearest rank: the smallest value such that at least permille/1000 of the values are <= it; 500 is
 * the median, 1000 the maximum, 0 the minimum. n > 0: no data has no percentile. Reorders v, which
 * makes the next call on it faster. */
uint64_t pct_u64(uint64_t *v, size_t n, unsigned int permille);
uint32_t pct_u32(uint32_t *v, size_t n, unsigned int permille);

#endif
