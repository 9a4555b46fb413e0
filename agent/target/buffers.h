/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers that CUPTI writes records to: allocated beforehand, taken and given back without a
 * lock. */
#ifndef TL_TARGET_BUFFERS_H
#define TL_TARGET_BUFFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BUFFER_BYTES = 256 * 1024, MAX_BUFFERS = 64 };	/* some 1,200 kernels each */

/*
 * A buffer is free, or CUPTI's, or full. CUPTI takes it on a thread of the application and gives it
 * back on any thread; our thread reads it later and frees it. Who finds none free gets the discard
 * buffer, one for all, which nobody reads: NULL has crashed some CUPTIs.
 */
struct buffers {
	uint8_t *memory;	/* NULL: not allocated */
	uint8_t *discard;
	uint64_t free;		/* bit i: buffer i is free */
	uint32_t n_asked;	/* since buffers__open */
	uint32_t n_out;		/* CUPTI has them */
	uint64_t discarded_bytes;
	uint32_t full_head, full_tail;	/* a queue, in the order in which they came back */
	uint64_t full[MAX_BUFFERS];	/* (valid bytes << 8 | buffer) + 1, 0: none yet */
};

int buffers__open(struct buffers *b);
/* Gives the memory back, and keeps the addresses: a thread of the target may still be inside CUPTI
 * with one of them, and must not crash. */
void buffers__close(struct buffers *b);

uint8_t *buffers__take(struct buffers *b);	/* any thread; never NULL behind buffers__open */
void buffers__fill(struct buffers *b, uint8_t *buf, size_t valid);	/* any thread */

/* The oldest full buffer, NULL: none. Our thread only, which frees it with buffers__free. */
uint8_t *buffers__next(struct buffers *b, size_t *ret_valid);
void buffers__free(struct buffers *b, const uint8_t *buf);

#endif
