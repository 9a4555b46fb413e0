/* SPDX-License-Identifier: Apache-2.0 */
/* Units of time, and numbers as people read them: three digits and a unit. */
#ifndef TL_UNITS_H
#define TL_UNITS_H

#include <stdint.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

enum { UNITS_LEN = 16 };	/* holds any of the texts below */

/* All return buf. */
char *units_ns(char buf[UNITS_LEN], uint64_t ns); /* "850 ns" "1.23 ms" "12.3 s" "2m03s" "5h07m" */
char *units_bytes(char buf[UNITS_LEN], uint64_t n); /* "512 B" "1.50 kB" "12.3 MB": 1 kB = 1000 */
char *units_count(char buf[UNITS_LEN], uint64_t n); /* "512" "1.50k" "12.3M" */

#endif
