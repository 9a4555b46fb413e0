/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the n-th allocation of the code under test fail (malloc, calloc, realloc, strdup). */
#ifndef TL_OOM_H
#define TL_OOM_H

#include <stdbool.h>

void oom_after(long n);	/* the n-th allocation from now on fails (0: the next); -1: none */
bool oom_hit(void);	/* did it fail since then? Also ends the mode. */

/* Runs `stmt` with the 0th, 1st, ... allocation failing until it succeeds without a failure. */
#define OOM_LOOP(stmt) for (long oom_i = 0; oom_i < 10000; oom_i++) { \
		oom_after(oom_i); stmt; if (!oom_hit()) break; }

#endif
