/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a block, turned into columns that compress well, and back. */
#ifndef TL_COLUMNS_H
#define TL_COLUMNS_H

#include "tl_file.h"
#include <stddef.h>
#include <stdint.h>

/*
 * Layout of the columns (TL_CODING_COLUMNS, before zstd). An event is taken as 32-bit words.
 *
 *	heads	4 planes of n_events bytes: word 0 (size, kind), not differenced
 *	times	ts_ns of all events, as a column of 8 planes
 *	kinds	for each kind by number, for each word from 1 on that some event of the kind has,
 *		4 and 5 (ts_ns) left out: a column of 4 planes over the events that have it
 *
 * A column is a byte that tells which of its planes follow (bit i: plane i has bytes other than 0);
 * for words bit 7 tells that a base follows, for times it always does; the base, as wide as the
 * value; the planes. Plane i holds byte i of each zigzag-coded difference to the value before, the
 * first one to the base, which is the first value.
 */
enum {
	COLUMNS_MAX_EVENTS = TL_BLOCK_MAX / sizeof(struct tl_hdr),
	COLUMNS_MAX_KIND = TL_RAW_FIRST - 1,	/* raw events are text: no columns in them */
	/* each word adds 5 bytes of column head at most, and is at least one word of raw data */
	COLUMNS_MAX_BYTES = TL_BLOCK_MAX / 4 * 9 + 16,
};

struct columns {		/* scratch memory of one thread; private */
	uint32_t offset[COLUMNS_MAX_EVENTS];	/* of each event in the block */
	uint32_t by_kind[COLUMNS_MAX_EVENTS];	/* offsets, sorted by kind */
	uint32_t some[COLUMNS_MAX_EVENTS];	/* of by_kind, those that have the word at hand */
	uint32_t first[COLUMNS_MAX_KIND + 2];	/* in by_kind, of each kind */
	uint32_t value[COLUMNS_MAX_EVENTS];
	uint64_t times[COLUMNS_MAX_EVENTS];
};

/* raw: len bytes of whole events, 8-aligned, at most TL_BLOCK_MAX. out: COLUMNS_MAX_BYTES. Returns
 * the bytes written, or -ENOTSUP if a kind is over COLUMNS_MAX_KIND. */
int columns__encode(struct columns *c, const uint8_t *raw, size_t len, uint8_t *out);

/* The reverse; raw (8-aligned) gets raw_len bytes of n_events whole events with sound sizes.
 * -EBADMSG: in is no such thing. Trusts nothing of it. */
int columns__decode(struct columns *c, const uint8_t *in, size_t len, size_t n_events, uint8_t *raw,
		    size_t raw_len);

#endif
