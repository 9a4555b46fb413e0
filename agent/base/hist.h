/* SPDX-License-Identifier: Apache-2.0 */
/* Histogram of u64 with buckets equal to those of an OTLP exponential histogram of scale 7. */
#ifndef TL_HIST_H
#define TL_HIST_H

#include <stddef.h>
#include <stdint.h>

/*
 * Bucket i holds values v with base^i < v <= base^(i+1), base = 2^(1/128): a quantile is off by
 * less than 0.3 %. Zeros are counted apart. Memory is what the range of the values needs, 1 kB per
 * factor of two, at most 64 kB.
 */
enum { HIST_SCALE = 7 };

struct hist {
	uint64_t n, n_zero;	/* of all values; of those that are 0 */
	uint64_t sum;
	uint64_t min, max;	/* when n > 0 */
	uint64_t n_refused;	/* values not taken: out of memory */
	uint64_t *counts;	/* of the buckets from `first` on */
	int first;
	size_t n_counts;
};

/* All zeros is an empty histogram. */
void hist__free(struct hist *h);
int hist__add(struct hist *h, uint64_t v, uint64_t times);	/* -ENOMEM: counted as refused */
int hist__merge(struct hist *h, const struct hist *other);	/* -ENOMEM: nothing was added */
/* Nearest rank, as pct_u64 counts it; n > 0. The result is exact for 0, min and max. */
uint64_t hist__quantile(const struct hist *h, unsigned int permille);
/* Upper end of a bucket (the largest value in it). */
uint64_t hist_bucket_max(int bucket);

#endif
