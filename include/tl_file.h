/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Layout of a recording: a file header, then blocks of events. See doc/recording-format.md. */
#ifndef TL_FILE_H
#define TL_FILE_H

#include "tl_event.h"

/* Little endian throughout. Structs grow at their end only, their size says how far. */
#define TL_FILE_MAGIC "\x89TLAG\r\n\x1a"	/* 8 bytes; shows damage by text-mode copies */

enum tl_file_version {
	TL_FILE_MAJOR = 1,	/* another one: not readable */
	TL_FILE_MINOR = 0,	/* a higher one: readable, with kinds and fields we do not know */
};

enum tl_file_flag {
	TL_FILE_INCOMPLETE = 1 << 0,	/* not closed: cleared as the last act of the writer */
	TL_FILE_RAW = 1 << 1,	/* holds raw events: text of prompts and answers may be inside */
};

struct tl_file_hdr {
	__u8 magic[8];
	__u16 hdr_size;		/* bytes; the first block begins there */
	__u16 major, minor;	/* enum tl_file_version */
	__u16 pad;
	__u32 flags;		/* enum tl_file_flag */
	__u32 tiers;		/* enum tl_tier bits that the capture was allowed */
	__u64 probes;		/* bit i: probe i of the table in source/probes.c was on */
	__u64 mono_ns;		/* start of the capture, CLOCK_MONOTONIC ... */
	__u64 realtime_ns;	/* ... and CLOCK_REALTIME at that moment */
	__u64 clock_err_ns;	/* half the width of the bracket in which the pair was read */
	char hostname[64];
	char kernel[64];	/* uname -r */
	char tool[32];		/* version of tokenlag */
};

#define TL_BLOCK_MAGIC 0x9e6b4c54u	/* bytes 54 4c 6b 9e: "TLk" and one that is not ASCII */

enum tl_block_kind {		/* append only; readers skip those they do not know */
	TL_BLOCK_EVENTS = 1,
	TL_BLOCK_TOTALS = 2,	/* struct tl_file_totals; last block of a complete recording */
};
enum tl_block_coding {		/* append only */
	TL_CODING_PLAIN = 0,	/* the bytes themselves: totals */
	TL_CODING_ZSTD = 1,	/* one zstd frame */
	TL_CODING_COLUMNS = 2,	/* one zstd frame of columns, see the format page */
};

/* A block can be read without any other. stored_bytes follow it. */
struct tl_block_hdr {
	__u32 magic;
	__u16 hdr_size;		/* bytes */
	__u8 kind;		/* enum tl_block_kind */
	__u8 coding;		/* enum tl_block_coding */
	__u32 stored_bytes;
	__u32 raw_bytes;	/* when decoded, at most TL_BLOCK_MAX */
	__u32 n_events;
	__u32 crc32;		/* of this header with crc32 = 0, then the stored bytes */
	__u64 first_event;	/* how many events come before it in the recording */
	__u64 min_ts_ns, max_ts_ns;	/* of its events */
};

struct tl_file_totals {
	__u64 n_events;
	__u64 n_blocks;		/* of events */
	__u64 raw_bytes;
	__u64 min_ts_ns, max_ts_ns;
};

#define TL_BLOCK_MAX (256 * 1024)	/* raw bytes of a block */

_Static_assert(sizeof(struct tl_file_hdr) == 216, "ABI");
_Static_assert(sizeof(struct tl_block_hdr) == 48, "ABI");
_Static_assert(sizeof(struct tl_file_totals) == 40, "ABI");
_Static_assert(TL_BLOCK_MAX > TL_EVENT_MAX, "an event fits a block");

#endif
