/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a recording: block after block, looking for the next one where one is damaged. */
#include "parse/recording.h"
#include "parse/block.h"
#include "parse/event.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_EXTRA = 4096,	/* of a block header that a newer writer made longer */
	SCAN_BYTES = 64 * 1024,
};

struct rec_reader {
	struct rec_input in;
	struct tl_file_hdr header;
	struct rec_stats stats;
	struct block_unpacker *unpacker;
	bool want_all;
	uint64_t offset;	/* of the next block */
	uint64_t next_event;	/* ordinal of the next one to be handed out */
	size_t at, len;		/* of raw: what is left of the block at hand */
	uint64_t room[EVENT_ROOM / sizeof(uint64_t)];
	uint64_t raw[TL_BLOCK_MAX / sizeof(uint64_t)];
	uint8_t stored[MAX_EXTRA + BLOCK_MAX_STORED];
};

const char *rec_error_text(int err)
{
	switch (err) {
	case -ENODATA:
		return "it is empty: nothing was recorded";
	case -ENOMSG:
		return "it is not a tokenlag recording";
	case -EBADMSG:
		return "it ends within its header: nothing was recorded";
	case -EPROTONOSUPPORT:
		return "a newer tokenlag wrote it, in a format that this one cannot read";
	default:
		return strerror(-err);
	}
}

static int read_header(struct rec_reader *r)
{
	struct tl_file_hdr *h = &r->header;
	int64_t n = r->in.read_at(r->in.ctx, 0, h, sizeof(*h));
	size_t known = offsetof(struct tl_file_hdr, flags);

	if (n < 0)
		return (int)n;
	if (n == 0)
		return -ENODATA;
	if (memcmp(h->magic, TL_FILE_MAGIC,
		   (size_t)n < sizeof(h->magic) ? (size_t)n : sizeof(h->magic)))
		return -ENOMSG;
	if ((size_t)n < known)
		return -EBADMSG;
	if (h->major != TL_FILE_MAJOR)
		return -EPROTONOSUPPORT;
	if (h->hdr_size < known ||
	    (size_t)n < (h->hdr_size < sizeof(*h) ? h->hdr_size : sizeof(*h)))
		return -EBADMSG;
	if (h->hdr_size < sizeof(*h))
		memset((uint8_t *)h + h->hdr_size, 0, sizeof(*h) - h->hdr_size);
	/* texts end, whoever wrote them */
	h->hostname[sizeof(h->hostname) - 1] = 0;
	h->kernel[sizeof(h->kernel) - 1] = 0;
	h->tool[sizeof(h->tool) - 1] = 0;
	r->offset = h->hdr_size;
	return 0;
}

int rec_reader__new(const struct rec_input *in, struct rec_reader **ret)
{
	struct rec_reader *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->in = *in;
	r->unpacker = block_unpacker__new();
	err = r->unpacker ? read_header(r) : -ENOMEM;
	if (err) {
		rec_reader__free(r);
		return err;
	}
	*ret = r;
	return 0;
}

void rec_reader__free(struct rec_reader *r)
{
	if (!r)
		return;
	block_unpacker__free(r->unpacker);
	free(r);
}

const struct tl_file_hdr *rec_reader__header(const struct rec_reader *r)
{
	return &r->header;
}

void rec_reader__want_all(struct rec_reader *r)
{
	r->want_all = true;
}

const struct rec_stats *rec_reader__stats(const struct rec_reader *r)
{
	return &r->stats;
}

/* ---- finding blocks ---- */

/* Reads what is at `offset`. Returns 1: it is a sound block, its bytes are in r->stored; 0: not. */
static int read_block(struct rec_reader *r, struct tl_block_hdr *ret)
{
	int64_t n = r->in.read_at(r->in.ctx, r->offset, ret, sizeof(*ret));
	size_t len;

	if (n < 0)
		return (int)n;
	if ((size_t)n < sizeof(*ret) || block_check_header(ret))
		return 0;
	len = ret->hdr_size - sizeof(*ret) + ret->stored_bytes;
	n = r->in.read_at(r->in.ctx, r->offset + sizeof(*ret), r->stored, len);
	if (n < 0)
		return (int)n;
	return (size_t)n == len &&
	       !block_check_sum(ret, r->stored, r->stored + (ret->hdr_size - sizeof(*ret)));
}

/* Looks for a sound header behind `offset` and moves there. Returns 1; 0: there is none, and
 * `offset` is the end of the file. */
static int find_block(struct rec_reader *r)
{
	const uint32_t magic = TL_BLOCK_MAGIC;
	uint64_t from = r->offset;
	size_t skip = 1;

	for (;; skip = 0) {
		int64_t n = r->in.read_at(r->in.ctx, from, r->stored, SCAN_BYTES);
		const uint8_t *p = r->stored + skip, *end = r->stored + n;

		if (n < 0)
			return (int)n;
		if (end < p)
			p = end;
		while ((p = memmem(p, (size_t)(end - p), &magic, sizeof(magic))) != NULL) {
			struct tl_block_hdr h;

			if ((size_t)(end - p) < sizeof(h))
				break;
			memcpy(&h, p, sizeof(h));
			if (!block_check_header(&h)) {
				r->offset = from + (uint64_t)(p - r->stored);
				return 1;
			}
			p++;
		}
		if (n < SCAN_BYTES) {
			r->offset = from + (uint64_t)n;
			return 0;
		}
		from += (uint64_t)n - (sizeof(struct tl_block_hdr) - 1);
	}
}

/* The next sound block. Returns 1, 0: end of the file, or -errno. */
static int next_block(struct rec_reader *r, struct tl_block_hdr *ret)
{
	uint64_t start = r->offset;

	for (;;) {
		int found = read_block(r, ret);

		if (found) {
			r->stats.n_damaged += found > 0 && r->offset != start;
			return found;
		}
		found = find_block(r);
		if (found < 0)
			return found;
		if (found == 0) {
			r->stats.n_cut_bytes = r->offset - start;
			return 0;
		}
	}
}

/* ---- events ---- */

/* `first` events should have come before this point of the file. */
static void expect_events(struct rec_reader *r, uint64_t first)
{
	if (first <= r->next_event)
		return;
	r->stats.n_missing += first - r->next_event;
	r->next_event = first;
}

static void take_events(struct rec_reader *r, const struct tl_block_hdr *h, const uint8_t *stored)
{
	uint8_t *raw = (uint8_t *)r->raw;

	/* A writer first appends small blocks, then replaces them by a large one; when it is
	 * stopped in between, some events are there twice. */
	if (h->first_event < r->next_event && r->next_event - h->first_event >= h->n_events)
		return;
	expect_events(r, h->first_event);
	if (block_unpacker__unpack(r->unpacker, h, stored, raw)) {
		r->stats.n_damaged++;
		return;
	}
	r->len = h->raw_bytes;
	r->at = 0;
	for (uint64_t i = h->first_event; i < r->next_event; i++)
		r->at += ((const struct tl_hdr *)(raw + r->at))->size;
}

/* Fills r->raw. Returns 1, 0: end of the recording, or -errno. */
static int load_events(struct rec_reader *r)
{
	struct tl_file_totals totals;
	struct tl_block_hdr h;
	const uint8_t *stored;
	int found;

	do {
		found = next_block(r, &h);
		if (found <= 0)
			return found;
		stored = r->stored + (h.hdr_size - sizeof(h));
		r->offset += h.hdr_size + (uint64_t)h.stored_bytes;
		if (h.kind == TL_BLOCK_EVENTS) {
			take_events(r, &h, stored);
		} else if (h.kind == TL_BLOCK_TOTALS && h.stored_bytes >= sizeof(totals)) {
			memcpy(&totals, stored, sizeof(totals));
			expect_events(r, totals.n_events);
			r->stats.closed = !(r->header.flags & TL_FILE_INCOMPLETE);
		}
	} while (r->at == r->len);
	return 1;
}

int rec_reader__next(struct rec_reader *r, const struct tl_hdr **ret)
{
	for (;;) {
		const struct event_kind *k;
		const struct tl_hdr *ev, *view;

		if (r->at == r->len) {
			int more = load_events(r);

			if (more <= 0)
				return more;
		}
		ev = (const struct tl_hdr *)((const uint8_t *)r->raw + r->at);
		r->at += ev->size;
		r->next_event++;
		k = event_kind(ev->kind);
		view = k ? event_view(k, ev, r->room) : NULL;
		if (!view) {
			*(k ? &r->stats.n_invalid : &r->stats.n_unknown) += 1;
			if (!r->want_all)
				continue;
		}
		r->stats.n_events++;
		*ret = r->want_all ? ev : view;
		return 1;
	}
}

/* ---- what to tell ---- */

__attribute__((format(printf, 3, 4)))
static void add(char *buf, size_t size, const char *fmt, ...)
{
	size_t len = strlen(buf);
	va_list ap;

	if (len > 0 && len + 2 < size) {
		memcpy(buf + len, "; ", 3);
		len += 2;
	}
	va_start(ap, fmt);
	vsnprintf(buf + len, size - len, fmt, ap);
	va_end(ap);
}

bool rec_reader__trouble(const struct rec_reader *r, char *buf, size_t size)
{
	const struct rec_stats *s = &r->stats;

	buf[0] = 0;
	if (r->header.flags & TL_FILE_INCOMPLETE)
		add(buf, size, "the recorder was stopped before it could finish the file");
	else if (!s->closed)
		add(buf, size, "the end of the file is missing");
	if (s->n_cut_bytes)
		add(buf, size, "the last %llu bytes are no whole block",
		    (unsigned long long)s->n_cut_bytes);
	if (s->n_damaged)
		add(buf, size, "damaged places skipped: %llu", (unsigned long long)s->n_damaged);
	if (s->n_missing)
		add(buf, size, "events missing: %llu", (unsigned long long)s->n_missing);
	if (s->n_unknown)
		add(buf, size, "events of kinds that only a newer tokenlag knows: %llu",
		    (unsigned long long)s->n_unknown);
	if (s->n_invalid)
		add(buf, size, "events that contradict themselves: %llu",
		    (unsigned long long)s->n_invalid);
	return buf[0] != 0;
}
