/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a recording to disk so that whatever happens, what is there opens. */
#ifndef TL_SINK_RECORDING_H
#define TL_SINK_RECORDING_H

#include "tl_file.h"
#include <stdbool.h>
#include <stdint.h>

struct rec_writer_opts {
	bool force;		/* overwrite a file that is no recording */
	bool keep_old;		/* an older recording is renamed to PATH.old, as perf does it */
};

struct rec_writer;

/*
 * Creates the file, or replaces an older recording, and writes the header, marked as incomplete.
 * magic, hdr_size, major, minor and TL_FILE_INCOMPLETE of hdr are set by the writer. Errors,
 * besides those of open(2): -EEXIST: there is a file that is no recording; -EBUSY: another tokenlag
 * is writing it; -ENOTSUP: it is a pipe, a device or a directory.
 */
int rec_writer__open(const char *path, const struct tl_file_hdr *hdr,
		     const struct rec_writer_opts *opts, struct rec_writer **ret);
const char *rec_writer_error_text(int err);	/* a clause for the user about such an error */

/* Could a recording be made there? Leaves all as it is. Errors as for rec_writer__open. */
int rec_writer_check(const char *path, bool force);

/* Adds an event. -EINVAL: its size is not sound, or it is a raw event and the header does not say
 * TL_FILE_RAW; it is left out. -ENOSPC, -EIO ...: the disk refused, said once; what is on the disk
 * stays readable, and all that comes later is only counted. */
int rec_writer__write(struct rec_writer *w, const struct tl_hdr *ev);

/* Puts what is buffered on the disk; call it once a second, then a kill loses no more than that.
 * The file that close leaves does not depend on it. Errors as for write. */
int rec_writer__flush(struct rec_writer *w);

struct rec_writer_stats {
	uint64_t n_events;	/* taken, and on disk or in the buffer */
	uint64_t n_dropped;	/* after an error of the disk */
	uint64_t file_bytes;
};
void rec_writer__stats(const struct rec_writer *w, struct rec_writer_stats *ret);

/* Writes the rest and frees w. With `complete` and no error so far, the file gets its totals and
 * the mark is cleared; else it stays as a killed writer would have left it. Returns the first error
 * of the disk that write and flush have not told yet. NULL is fine. */
int rec_writer__close(struct rec_writer *w, bool complete);

#endif
