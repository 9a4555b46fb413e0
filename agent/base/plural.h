/* SPDX-License-Identifier: Apache-2.0 */
/* Words that follow a number: "1 step", "2 steps", "0 steps". */
#ifndef TL_PLURAL_H
#define TL_PLURAL_H

#include <stdint.h>

static inline const char *plural(uint64_t n, const char *one, const char *many)
{
	return n == 1 ? one : many;
}

/* For "%zu step%s". */
static inline const char *plural_s(uint64_t n)
{
	return plural(n, "", "s");
}

#endif
