/* SPDX-License-Identifier: Apache-2.0 */
/* Exact percentiles: quickselect with three-way partition, so that equal values cost nothing. */
#include "base/pct.h"

#include <assert.h>
#include <stdlib.h>

static size_t rank_of(size_t n, unsigned int permille)
{
	unsigned __int128 up = (unsigned __int128)n * permille + 999;
	size_t rank = (size_t)(up / 1000);

	assert(n > 0 && permille <= 1000);
	return rank ? rank - 1 : 0;
}

/* Pivots are taken at scattered places: ends and middle are bad ones in an array that an earlier
 * call has partitioned. Should they ever be bad too, sort after that many rounds. */
static size_t scatter(uint64_t *state, size_t n)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (size_t)(((unsigned __int128)*state * n) >> 64);
}

#define DEFINE_PCT(name, type)								\
static int name##_cmp(const void *a, const void *b)					\
{											\
	type x = *(const type *)a, y = *(const type *)b;				\
											\
	return (x > y) - (x < y);							\
}											\
											\
static type name##_median(type a, type b, type c)					\
{											\
	if (a > b)									\
		return b > c ? b : a > c ? c : a;					\
	return a > c ? a : b > c ? c : b;						\
}											\
											\
type name(type *v, size_t n, unsigned int permille)					\
{											\
	size_t k = rank_of(n, permille), lo = 0, hi = n;				\
	uint64_t rnd = n;								\
											\
	for (int rounds = 0; hi - lo > 16; rounds++) {					\
		type p = name##_median(v[lo + scatter(&rnd, hi - lo)],			\
				       v[lo + scatter(&rnd, hi - lo)],			\
				       v[lo + scatter(&rnd, hi - lo)]);			\
		size_t lt = lo, gt = hi, i = lo;	/* [lt, gt) is equal to p */	\
											\
		if (rounds > 64)							\
			break;								\
		while (i < gt) {							\
			type x = v[i];							\
											\
			if (x < p) {							\
				v[i++] = v[lt];						\
				v[lt++] = x;						\
			} else if (x > p) {						\
				v[i] = v[--gt];						\
				v[gt] = x;						\
			} else {							\
				i++;							\
			}								\
		}									\
		if (k < lt)								\
			hi = lt;							\
		else if (k >= gt)							\
			lo = gt;							\
		else									\
			return p;							\
	}										\
	qsort(v + lo, hi - lo, sizeof(*v), name##_cmp);					\
	return v[k];									\
}

DEFINE_PCT(pct_u64, uint64_t)
DEFINE_PCT(pct_u32, uint32_t)
