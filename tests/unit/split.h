/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to cut a stream into pieces: at once, byte by byte, and at random places. */
#ifndef TL_SPLIT_H
#define TL_SPLIT_H

#include <stddef.h>
#include <stdint.h>

enum { SPLIT_WHOLE, SPLIT_BYTES, SPLIT_RANDOM, N_SPLITS = SPLIT_RANDOM + 20 };

struct split {
	int mode;
	uint32_t seed;
};

static inline struct split split_new(int mode)
{
	return (struct split){ mode, 2654435761u * (uint32_t)(mode + 1) };
}

/* Length of the next piece of the `left` > 0 bytes that are left. */
static inline size_t split_next(struct split *s, size_t left)
{
	size_t n = 1;

	if (s->mode == SPLIT_WHOLE)
		return left;
	if (s->mode != SPLIT_BYTES) {
		s->seed = s->seed * 1664525u + 1013904223u;
		/* short and long pieces in turn */
		n = 1 + (s->seed >> 16) % (s->seed >> 31 ? 7 : 100);
	}
	return n < left ? n : left;
}

#endif
