/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a recording from whatever holds its bytes; survives any damage. Pure. */
#ifndef TL_RECORDING_H
#define TL_RECORDING_H

#include "tl_file.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of a recording. read_at returns how many it read, fewer than len only at the end, or
 * -errno. */
struct rec_input {
	int64_t (*read_at)(void *ctx, uint64_t offset, void *buf, size_t len);
	void *ctx;
};

struct rec_reader;

/* Reads the file header. Errors, besides -ENOMEM and those of read_at: see rec_error_text. */
int rec_reader__new(const struct rec_input *in, struct rec_reader **ret);
void rec_reader__free(struct rec_reader *r);	/* NULL is fine */

/* A clause for the user about an error of rec_reader__new or rec_reader__next. */
const char *rec_error_text(int err);

/* Fields that a shorter header of an older writer lacks are zero. */
const struct tl_file_hdr *rec_reader__header(const struct rec_reader *r);

/* Also hand out events of unknown kinds and ones that are not what their kind says (as they are,
 * only their size is sound): for tools that show everything. Shorter records are not extended. */
void rec_reader__want_all(struct rec_reader *r);

/* The next event, valid until the next call. Returns 1, 0 at the end, or -errno of read_at. Damage
 * is skipped and counted. */
int rec_reader__next(struct rec_reader *r, const struct tl_hdr **ret);

struct rec_stats {
	uint64_t n_events;	/* handed out */
	uint64_t n_unknown;	/* of kinds we do not know; skipped unless all are wanted */
	uint64_t n_invalid;	/* not what their kind says; skipped unless all are wanted */
	uint64_t n_damaged;	/* stretches of the file that hold no sound block */
	uint64_t n_missing;	/* events that were in them, as far as later blocks tell */
	uint64_t n_cut_bytes;	/* at the end, of a block that is not whole */
	bool closed;		/* the writer ended it in good order, and the end is there */
};
/* Complete once rec_reader__next returned 0. */
const struct rec_stats *rec_reader__stats(const struct rec_reader *r);

/* One sentence on what is not as it should be, without a full stop; false: all is well. Call it
 * after the last event. */
bool rec_reader__trouble(const struct rec_reader *r, char *buf, size_t size);

#endif
