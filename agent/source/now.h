/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that all events are in. */
#ifndef TL_SOURCE_NOW_H
#define TL_SOURCE_NOW_H

#include "base/units.h"
#include <stdint.h>
#include <time.h>

/* CLOCK_MONOTONIC. */
static inline uint64_t monotonic_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

#endif
