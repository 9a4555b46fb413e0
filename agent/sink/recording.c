/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a recording to disk so that whatever happens, what is there opens. */
#include "sink/recording.h"
#include "parse/block.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Events gather in `raw` until a block is full; then they are written as one block. A flush before
 * that appends a small block with those that are new since the last flush. When the block is full,
 * it replaces the small ones: they are only there for a reader of a file whose writer was killed,
 * and the finished file depends on nothing but its events. Between the two, some events may be
 * there twice, which readers see by tl_block_hdr.first_event.
 */
/* Raw bytes at which a block is full, unless one event is larger. A damaged byte costs a block:
 * some hundred events. Blocks of 256 KiB would be a seventh smaller. */
enum { BLOCK_TARGET = 32 << 10 };

struct rec_writer {
	int fd;
	int err;		/* of the disk: nothing more is written */
	bool err_told;
	bool regular;		/* can be cut: not a device such as /dev/null */
	struct tl_file_hdr header;
	struct tl_file_totals totals;	/* of full blocks */
	struct block_packer *packer;
	uint64_t block_at;	/* in the file: where the block that is gathered will be */
	uint64_t end;		/* of the last small block that stands in for it, or block_at */
	uint64_t n_events;	/* all that were taken */
	uint64_t n_flushed;	/* of them, those on disk */
	uint64_t n_dropped;
	size_t flushed, len;	/* bytes of raw: on disk, gathered */
	uint64_t raw[TL_BLOCK_MAX / sizeof(uint64_t)];
};

const char *rec_writer_error_text(int err)
{
	switch (err) {
	case -EEXIST:
		return "it exists and is no recording; give another name, or --force to replace it";
	case -EBUSY:
		return "another tokenlag is writing it; give another name";
	case -ENOTSUP:
		return "it is not a regular file; give the name of a file";
	case -ENOSPC:
		return "the disk is full; what was recorded before can be read";
	default:
		return strerror(-err);
	}
}

static int write_at(int fd, uint64_t offset, const void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		off_t at = (off_t)(offset + done);
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		done += (size_t)n;
	}
	return 0;
}

static int cut(struct rec_writer *w, uint64_t size)
{
	if (!w->regular)
		return 0;
	return ftruncate(w->fd, (off_t)size) < 0 ? -errno : 0;
}

/* ---- open ---- */

/* May what is there be replaced? */
static int check_old_file(struct rec_writer *w, bool force)
{
	char magic[sizeof(w->header.magic)];
	struct stat st;

	if (fstat(w->fd, &st) < 0)
		return -errno;
	w->regular = S_ISREG(st.st_mode);
	if (!w->regular)
		return S_ISCHR(st.st_mode) && lseek(w->fd, 0, SEEK_CUR) == 0 ? 0 : -ENOTSUP;
	if (flock(w->fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (st.st_size == 0 || force)
		return 0;
	if (pread(w->fd, magic, sizeof(magic), 0) != sizeof(magic) ||
	    memcmp(magic, TL_FILE_MAGIC, sizeof(magic)) != 0)
		return -EEXIST;
	return 0;
}

static int open_path(struct rec_writer *w, const char *path, int flags)
{
	/* a pipe without a reader must not hang us */
	w->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags, 0644);
	if (w->fd < 0)
		return errno == EISDIR || errno == ENXIO ? -ENOTSUP : -errno;
	return 0;
}

/* The older recording, which is open and locked, gets out of the way of a new one. */
static int keep_old_file(struct rec_writer *w, const char *path)
{
	struct stat st;
	char old[4096];

	if (!w->regular || fstat(w->fd, &st) < 0 || st.st_size == 0)
		return 0;
	if ((size_t)snprintf(old, sizeof(old), "%s.old", path) >= sizeof(old))
		return -ENAMETOOLONG;
	if (rename(path, old) < 0)
		return -errno;
	close(w->fd);
	return open_path(w, path, O_CREAT);
}

static int open_file(struct rec_writer *w, const char *path, const struct rec_writer_opts *opts)
{
	int err = open_path(w, path, O_CREAT);

	if (!err)
		err = check_old_file(w, opts && opts->force);
	if (!err && opts && opts->keep_old)
		err = keep_old_file(w, path);
	if (!err)
		err = cut(w, 0);
	if (!err)
		err = write_at(w->fd, 0, &w->header, sizeof(w->header));
	return err;
}

int rec_writer__open(const char *path, const struct tl_file_hdr *hdr,
		     const struct rec_writer_opts *opts, struct rec_writer **ret)
{
	struct rec_writer *w = calloc(1, sizeof(*w));
	int err = -ENOMEM;

	if (!w)
		return -ENOMEM;
	w->fd = -1;
	w->packer = block_packer__new();
	if (!w->packer)
		goto fail;
	w->header = *hdr;
	memcpy(w->header.magic, TL_FILE_MAGIC, sizeof(w->header.magic));
	w->header.hdr_size = sizeof(w->header);
	w->header.major = TL_FILE_MAJOR;
	w->header.minor = TL_FILE_MINOR;
	w->header.flags |= TL_FILE_INCOMPLETE;
	w->block_at = w->end = sizeof(w->header);
	err = open_file(w, path, opts);
	if (err)
		goto fail;
	*ret = w;
	return 0;
fail:
	block_packer__free(w->packer);
	if (w->fd >= 0)
		close(w->fd);
	free(w);
	return err;
}

int rec_writer_check(const char *path, bool force)
{
	struct rec_writer w = { .fd = -1 };
	int err = open_path(&w, path, 0);

	if (err == -ENOENT) {	/* made and taken away again: nothing else
				 * tells of all that may be in the way */
		err = open_path(&w, path, O_CREAT | O_EXCL);
		if (!err)
			unlink(path);
		else if (err == -EEXIST)	/* a link to a file that is not there yet */
			err = 0;
	} else if (!err) {
		err = check_old_file(&w, force);
	}
	if (w.fd >= 0)
		close(w.fd);
	return err;
}

/* ---- write ---- */

/* The disk refused: leaves a file that ends with its last whole block. */
static void give_up(struct rec_writer *w, int err)
{
	cut(w, w->end);		/* cutting needs no space; if it fails, readers skip the rest */
	w->err = err;
	w->n_dropped += w->n_events - w->n_flushed;
	w->n_events = w->n_flushed;
	w->len = w->flushed;
}

static int tell(struct rec_writer *w)
{
	if (w->err_told)
		return 0;
	w->err_told = w->err != 0;
	return w->err;
}

int rec_writer__flush(struct rec_writer *w)
{
	const void *block;
	size_t len;
	int err;

	if (w->err || w->flushed == w->len)
		return tell(w);
	err = block_packer__pack(w->packer, (const uint8_t *)w->raw + w->flushed,
				 w->len - w->flushed, w->n_flushed, &block, &len);
	if (!err)
		err = write_at(w->fd, w->end, block, len);
	if (err) {
		give_up(w, err);
		return tell(w);
	}
	w->end += len;
	w->flushed = w->len;
	w->n_flushed = w->n_events;
	return 0;
}

/* Writes the gathered events as one block in place of the small ones. */
static int end_block(struct rec_writer *w)
{
	struct tl_file_totals *t = &w->totals;
	struct tl_block_hdr h;
	const void *block;
	size_t len;
	int err;

	if (w->len == 0)
		return 0;
	err = block_packer__pack(w->packer, w->raw, w->len, t->n_events, &block, &len);
	if (err) {
		give_up(w, err);
		return err;
	}
	err = write_at(w->fd, w->block_at, block, len);
	if (err) {
		/* the small blocks are damaged by now: make room, and try once more */
		w->end = w->block_at;
		err = cut(w, w->end) ?: write_at(w->fd, w->block_at, block, len);
		if (err) {
			w->n_flushed = t->n_events;
			w->flushed = 0;
			give_up(w, err);
			return err;
		}
	}
	if (w->block_at + len < w->end)
		cut(w, w->block_at + len);	/* if it fails, readers see that they are old */
	memcpy(&h, block, sizeof(h));
	if (t->n_blocks == 0 || h.min_ts_ns < t->min_ts_ns)
		t->min_ts_ns = h.min_ts_ns;
	if (h.max_ts_ns > t->max_ts_ns)
		t->max_ts_ns = h.max_ts_ns;
	t->n_blocks++;
	t->n_events += h.n_events;
	t->raw_bytes += h.raw_bytes;
	w->block_at += len;
	w->end = w->block_at;
	w->n_flushed = t->n_events;
	w->flushed = w->len = 0;
	return 0;
}

int rec_writer__write(struct rec_writer *w, const struct tl_hdr *ev)
{
	if (ev->size < sizeof(*ev) || ev->size % 8 || ev->size > TL_EVENT_MAX)
		return -EINVAL;
	/* text of prompts and answers only where it was asked for */
	if (ev->kind >= TL_RAW_FIRST && !(w->header.flags & TL_FILE_RAW))
		return -EINVAL;
	if (!w->err && w->len && w->len + ev->size > BLOCK_TARGET)
		end_block(w);
	if (w->err) {
		w->n_dropped++;
		return tell(w);
	}
	memcpy((uint8_t *)w->raw + w->len, ev, ev->size);
	w->len += ev->size;
	w->n_events++;
	return 0;
}

void rec_writer__stats(const struct rec_writer *w, struct rec_writer_stats *ret)
{
	*ret = (struct rec_writer_stats){ w->n_events, w->n_dropped, w->end };
}

/* ---- close ---- */

static int finish(struct rec_writer *w)
{
	uint8_t totals[128];
	size_t len;
	int err = end_block(w);

	if (err)
		return err;
	len = block_pack_totals(&w->totals, totals);
	err = write_at(w->fd, w->end, totals, len);
	if (err) {
		cut(w, w->end);
		w->err = err;
		return err;
	}
	w->end += len;
	/* before the mark is cleared, what it speaks of must be there */
	if (fdatasync(w->fd) < 0 && errno != EINVAL && errno != EROFS) {
		w->err = -errno;
		return w->err;
	}
	w->header.flags &= ~(uint32_t)TL_FILE_INCOMPLETE;
	w->err = write_at(w->fd, 0, &w->header, sizeof(w->header));
	return w->err;
}

int rec_writer__close(struct rec_writer *w, bool complete)
{
	int err;

	if (!w)
		return 0;
	if (w->err)
		err = tell(w);
	else if (complete)
		err = finish(w);
	else
		err = end_block(w);
	if (close(w->fd) < 0 && !err && !w->err)
		err = -errno;
	block_packer__free(w->packer);
	free(w);
	return err;
}
