/* SPDX-License-Identifier: Apache-2.0 */
/* One block of a recording: events packed into bytes with a checksum, and back. */
#include "parse/block.h"
#include "parse/columns.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

/* Of the levels this one gives the most per time; measured with tests/bench/replay. */
enum { ZSTD_LEVEL = 3 };

_Static_assert(BLOCK_MAX_STORED >= ZSTD_COMPRESSBOUND(TL_BLOCK_MAX), "any block fits");

struct block_packer {
	ZSTD_CCtx *zstd;
	struct columns columns;
	uint8_t coded[COLUMNS_MAX_BYTES];
	uint8_t out[sizeof(struct tl_block_hdr) + BLOCK_MAX_STORED];
};

struct block_unpacker {
	ZSTD_DCtx *zstd;
	struct columns columns;
	uint8_t coded[TL_BLOCK_MAX];
};

struct block_packer *block_packer__new(void)
{
	struct block_packer *p = malloc(sizeof(*p));

	if (!p)
		return NULL;
	p->zstd = ZSTD_createCCtx();
	if (!p->zstd) {
		free(p);
		return NULL;
	}
	return p;
}

void block_packer__free(struct block_packer *p)
{
	if (!p)
		return;
	ZSTD_freeCCtx(p->zstd);
	free(p);
}

static uint32_t sum_of(const struct tl_block_hdr *hdr, const void *extra, const void *stored)
{
	struct tl_block_hdr h = *hdr;
	uLong sum;

	h.crc32 = 0;
	sum = crc32(0, (const Bytef *)&h, sizeof(h));
	if (extra)	/* crc32() of no bytes at NULL forgets what came before */
		sum = crc32(sum, extra, (uInt)(h.hdr_size - sizeof(h)));
	return (uint32_t)crc32(sum, stored, h.stored_bytes);
}

/* Counts the events and finds their span. */
static void describe(const uint8_t *raw, size_t len, struct tl_block_hdr *h)
{
	h->min_ts_ns = UINT64_MAX;
	for (size_t at = 0; at < len;) {
		const struct tl_hdr *ev = (const struct tl_hdr *)(raw + at);

		assert(ev->size >= sizeof(*ev) && ev->size % 8 == 0 && ev->size <= len - at);
		if (ev->ts_ns < h->min_ts_ns)
			h->min_ts_ns = ev->ts_ns;
		if (ev->ts_ns > h->max_ts_ns)
			h->max_ts_ns = ev->ts_ns;
		h->n_events++;
		at += ev->size;
	}
}

int block_packer__pack(struct block_packer *p, const void *raw, size_t len, uint64_t first_event,
		       const void **ret, size_t *ret_len)
{
	struct tl_block_hdr h = {
		.magic = TL_BLOCK_MAGIC,
		.hdr_size = sizeof(h),
		.kind = TL_BLOCK_EVENTS,
		.coding = TL_CODING_COLUMNS,
		.raw_bytes = (uint32_t)len,
		.first_event = first_event,
	};
	const void *in = p->coded;
	size_t stored;
	int n;

	assert(len > 0 && len <= TL_BLOCK_MAX);
	describe(raw, len, &h);
	n = columns__encode(&p->columns, raw, len, p->coded);
	if (n < 0 || n > TL_BLOCK_MAX) {	/* columns of noise can be longer than the events */
		h.coding = TL_CODING_ZSTD;
		in = raw;
		n = (int)len;
	}
	stored = ZSTD_compressCCtx(p->zstd, p->out + sizeof(h), sizeof(p->out) - sizeof(h), in,
				   (size_t)n, ZSTD_LEVEL);
	if (ZSTD_isError(stored))	/* the room is always enough: only memory is left */
		return -ENOMEM;
	h.stored_bytes = (uint32_t)stored;
	h.crc32 = sum_of(&h, NULL, p->out + sizeof(h));
	memcpy(p->out, &h, sizeof(h));
	*ret = p->out;
	*ret_len = sizeof(h) + stored;
	return 0;
}

size_t block_pack_totals(const struct tl_file_totals *totals, void *out)
{
	struct tl_block_hdr h = {
		.magic = TL_BLOCK_MAGIC,
		.hdr_size = sizeof(h),
		.kind = TL_BLOCK_TOTALS,
		.coding = TL_CODING_PLAIN,
		.stored_bytes = sizeof(*totals),
		.raw_bytes = sizeof(*totals),
		.first_event = totals->n_events,
		.min_ts_ns = totals->min_ts_ns,
		.max_ts_ns = totals->max_ts_ns,
	};

	h.crc32 = sum_of(&h, NULL, totals);
	memcpy(out, &h, sizeof(h));
	memcpy((uint8_t *)out + sizeof(h), totals, sizeof(*totals));
	return sizeof(h) + sizeof(*totals);
}

int block_check_header(const struct tl_block_hdr *h)
{
	if (h->magic != TL_BLOCK_MAGIC || h->hdr_size < sizeof(*h) || h->hdr_size > 4096)
		return -EBADMSG;
	if (h->stored_bytes > BLOCK_MAX_STORED || h->raw_bytes > TL_BLOCK_MAX)
		return -EBADMSG;
	return 0;
}

int block_check_sum(const struct tl_block_hdr *h, const void *extra, const void *stored)
{
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
	/* a fuzzer would never get past it */
	(void)h;
	(void)extra;
	(void)stored;
	return 0;
#else
	if (sum_of(h, h->hdr_size > sizeof(*h) ? extra : NULL, stored) != h->crc32)
		return -EBADMSG;
	return 0;
#endif
}

struct block_unpacker *block_unpacker__new(void)
{
	struct block_unpacker *u = malloc(sizeof(*u));

	if (!u)
		return NULL;
	u->zstd = ZSTD_createDCtx();
	if (!u->zstd) {
		free(u);
		return NULL;
	}
	return u;
}

void block_unpacker__free(struct block_unpacker *u)
{
	if (!u)
		return;
	ZSTD_freeDCtx(u->zstd);
	free(u);
}

/* Are these n_events whole events with sound sizes? */
static int check_events(const uint8_t *raw, size_t len, size_t n_events)
{
	size_t n = 0;

	for (size_t at = 0; at < len; n++) {
		struct tl_hdr ev;

		if (len - at < sizeof(ev))
			return -EBADMSG;
		memcpy(&ev, raw + at, sizeof(ev));
		if (ev.size < sizeof(ev) || ev.size % 8 || ev.size > len - at)
			return -EBADMSG;
		at += ev.size;
	}
	return n == n_events ? 0 : -EBADMSG;
}

int block_unpacker__unpack(struct block_unpacker *u, const struct tl_block_hdr *h,
			   const void *stored, uint8_t *raw)
{
	size_t n;

	switch (h->coding) {
	case TL_CODING_ZSTD:
		n = ZSTD_decompressDCtx(u->zstd, raw, h->raw_bytes, stored, h->stored_bytes);
		if (ZSTD_isError(n) || n != h->raw_bytes)
			return -EBADMSG;
		return check_events(raw, h->raw_bytes, h->n_events);
	case TL_CODING_COLUMNS:
		n = ZSTD_decompressDCtx(u->zstd, u->coded, sizeof(u->coded), stored,
					h->stored_bytes);
		if (ZSTD_isError(n))
			return -EBADMSG;
		return columns__decode(&u->columns, u->coded, n, h->n_events, raw, h->raw_bytes);
	default:
		return -ENOTSUP;
	}
}
