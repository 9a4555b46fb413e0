/* SPDX-License-Identifier: Apache-2.0 */
/* JSON with its middle missing, for tests of llmapi. */
#ifndef TL_CUT_H
#define TL_CUT_H

#include "parse/llmapi.h"

#include <stdlib.h>
#include <string.h>

static inline struct cut_json whole(const char *s)
{
	return (struct cut_json){ s, strlen(s), strlen(s), strlen(s) };
}

/* The first n_head and the last n_tail bytes of s, alone in memory: free data. */
static inline struct cut_json cut(const char *s, size_t n_head, size_t n_tail)
{
	size_t len = strlen(s);
	char *p = malloc(n_head + n_tail ? n_head + n_tail : 1);

	memcpy(p, s, n_head);
	memcpy(p + n_head, s + len - n_tail, n_tail);
	return (struct cut_json){ p, n_head, n_head + n_tail, len };
}

#endif
