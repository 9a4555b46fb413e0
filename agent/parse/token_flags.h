/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunks of an answer may hold a token: one rule for all who count them. */
#ifndef TL_TOKEN_FLAGS_H
#define TL_TOKEN_FLAGS_H

#include "tl_event.h"

#include <stdbool.h>
#include <stdint.h>

/* May a chunk with these flags (TL_CHUNK_*) hold a token? Text, reasoning and tool pieces do. An
 * empty piece of text does unless it came with something that explains it; counts do not: some
 * servers send them with every chunk (vLLM's continuous_usage_stats), and a chunk of counts
 * alone has no piece of text. */
static inline bool flags_may_be_token(uint32_t flags)
{
	if (flags & TL_CHUNK_TOKEN)
		return true;
	return (flags & TL_CHUNK_EMPTY) &&
	       !(flags & (TL_CHUNK_ROLE | TL_CHUNK_FINISH | TL_CHUNK_PROGRESS | TL_CHUNK_DONE |
			  TL_CHUNK_ERROR));
}

#endif
