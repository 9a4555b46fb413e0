/* SPDX-License-Identifier: Apache-2.0 */
/* One block of a recording: events packed into bytes with a checksum, and back. Pure. */
#ifndef TL_BLOCK_H
#define TL_BLOCK_H

#include "tl_file.h"
#include <stddef.h>
#include <stdint.h>

struct block_packer;

struct block_packer *block_packer__new(void);	/* NULL: out of memory */
void block_packer__free(struct block_packer *p);	/* NULL is fine */
/* Packs len > 0 bytes of whole events (8-aligned, at most TL_BLOCK_MAX) that come after first_event
 * others. *ret lives until the next call and starts with its tl_block_hdr. The same input gives the
 * same bytes, whatever was packed before. */
int block_packer__pack(struct block_packer *p, const void *raw, size_t len, uint64_t first_event,
		       const void **ret, size_t *ret_len);

/* A totals block; returns its size, at most the 128 bytes that out must have. */
size_t block_pack_totals(const struct tl_file_totals *totals, void *out);

/* Largest value of stored_bytes that is taken. */
enum { BLOCK_MAX_STORED = TL_BLOCK_MAX + TL_BLOCK_MAX / 64 };

/* Looks at the header (its first sizeof(*hdr) bytes): 0; -EBADMSG: nothing sound can follow. */
int block_check_header(const struct tl_block_hdr *hdr);
/* Checks the checksum; stored: hdr->stored_bytes behind a header that was found sound. extra: the
 * hdr_size - sizeof(*hdr) bytes by which a newer writer's header is longer. */
int block_check_sum(const struct tl_block_hdr *hdr, const void *extra, const void *stored);

struct block_unpacker;

struct block_unpacker *block_unpacker__new(void);	/* NULL: out of memory */
void block_unpacker__free(struct block_unpacker *u);
/* Unpacks events into raw (8-aligned, TL_BLOCK_MAX bytes): hdr->raw_bytes of hdr->n_events whole
 * events with sound sizes. Trusts nothing. -EBADMSG: damaged; -ENOTSUP: a newer coding. */
int block_unpacker__unpack(struct block_unpacker *u, const struct tl_block_hdr *hdr,
			   const void *stored, uint8_t *raw);

#endif
