/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a block, turned into columns that compress well, and back. */
#include "parse/columns.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum {
	WORD = 4,
	TS_WORD = offsetof(struct tl_hdr, ts_ns) / WORD,	/* and the one behind it */
	HAS_BASE = 0x80,
};

static uint32_t load32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static void store32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

static uint16_t size_at(const uint8_t *raw, uint32_t offset)
{
	return (uint16_t)load32(raw + offset);
}

static uint32_t kind_at(const uint8_t *raw, uint32_t offset)
{
	return load32(raw + offset) >> 16;
}

/* Sorts the events by kind; their order within a kind stays. Returns false if a kind has none. */
static bool sort_by_kind(struct columns *c, const uint8_t *raw, size_t n)
{
	uint32_t next[COLUMNS_MAX_KIND + 1] = { 0 }, sum = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t kind = kind_at(raw, c->offset[i]);

		if (kind > COLUMNS_MAX_KIND)
			return false;
		next[kind]++;
	}
	for (size_t k = 0; k <= COLUMNS_MAX_KIND; k++) {
		uint32_t count = next[k];

		c->first[k] = next[k] = sum;
		sum += count;
	}
	c->first[COLUMNS_MAX_KIND + 1] = sum;
	for (size_t i = 0; i < n; i++)
		c->by_kind[next[kind_at(raw, c->offset[i])]++] = c->offset[i];
	return true;
}

/* The columns of one kind, word by word. */
struct walk {
	const uint8_t *raw;
	const uint32_t *offset;	/* of the events that have `word` */
	size_t n;
	size_t word, min_words, max_words;
	uint32_t *some;		/* memory for offset[] when not all of the kind have it */
};

static void walk_begin(struct walk *w, struct columns *c, const uint8_t *raw, size_t kind)
{
	size_t min = UINT16_MAX, max = 0;

	*w = (struct walk){ .raw = raw, .offset = c->by_kind + c->first[kind],
			    .n = c->first[kind + 1] - c->first[kind], .some = c->some };
	for (size_t i = 0; i < w->n; i++) {
		size_t size = size_at(raw, w->offset[i]);

		min = size < min ? size : min;
		max = size > max ? size : max;
	}
	w->min_words = min / WORD;
	w->max_words = max / WORD;
}

/* The next word that has a column of its own. */
static bool walk_next(struct walk *w)
{
	size_t n = 0;

	w->word = w->word + 1 == TS_WORD ? TS_WORD + 2 : w->word + 1;
	if (w->word >= w->max_words)
		return false;
	if (w->word < w->min_words)
		return true;
	/* those that have this word are among those that have the one before */
	for (size_t i = 0; i < w->n; i++) {
		w->some[n] = w->offset[i];
		n += size_at(w->raw, w->offset[i]) > w->word * WORD;
	}
	w->offset = w->some;
	w->n = n;
	return true;
}

/* ---- encode ---- */

static uint8_t *put_plane32(uint8_t *out, const uint32_t *v, size_t n, unsigned int plane)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)(v[i] >> (8 * plane));
	return out + n;
}

static uint8_t *put_planes32(uint8_t *out, uint8_t *mask, const uint32_t *v, size_t n)
{
	uint32_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= v[i];
	for (unsigned int p = 0; p < 4; p++) {
		if (!(any >> (8 * p) & 0xff))
			continue;
		*mask |= (uint8_t)(1 << p);
		out = put_plane32(out, v, n, p);
	}
	return out;
}

static uint8_t *put_times(struct columns *c, const uint8_t *raw, size_t n, uint8_t *out)
{
	uint8_t *mask = out++;
	uint64_t before, any = 0;

	memcpy(&before, raw + c->offset[0] + TS_WORD * WORD, sizeof(before));
	memcpy(out, &before, sizeof(before));
	out += sizeof(before);
	for (size_t i = 0; i < n; i++) {
		uint64_t ts, d;

		memcpy(&ts, raw + c->offset[i] + TS_WORD * WORD, sizeof(ts));
		d = ts - before;
		before = ts;
		c->times[i] = d << 1 ^ (uint64_t)((int64_t)d >> 63);
		any |= c->times[i];
	}
	*mask = 0;
	for (unsigned int p = 0; p < 8; p++) {
		if (!(any >> (8 * p) & 0xff))
			continue;
		*mask |= (uint8_t)(1 << p);
		for (size_t i = 0; i < n; i++)
			*out++ = (uint8_t)(c->times[i] >> (8 * p));
	}
	return out;
}

static uint8_t *put_column(struct columns *c, const struct walk *w, uint8_t *out)
{
	const uint8_t *raw = w->raw + w->word * WORD;
	uint32_t before = load32(raw + w->offset[0]);
	uint8_t *mask = out++;

	*mask = 0;
	if (before) {
		*mask = HAS_BASE;
		store32(out, before);
		out += WORD;
	}
	for (size_t i = 0; i < w->n; i++) {
		uint32_t v = load32(raw + w->offset[i]), d = v - before;

		before = v;
		c->value[i] = d << 1 ^ (uint32_t)((int32_t)d >> 31);
	}
	return put_planes32(out, mask, c->value, w->n);
}

int columns__encode(struct columns *c, const uint8_t *raw, size_t len, uint8_t *out)
{
	uint8_t *p = out;
	size_t n = 0;

	for (size_t at = 0; at < len; at += size_at(raw, (uint32_t)at))
		c->offset[n++] = (uint32_t)at;
	if (n == 0)
		return 0;
	if (!sort_by_kind(c, raw, n))
		return -ENOTSUP;
	for (size_t i = 0; i < n; i++)
		c->value[i] = load32(raw + c->offset[i]);
	for (unsigned int plane = 0; plane < 4; plane++)
		p = put_plane32(p, c->value, n, plane);
	p = put_times(c, raw, n, p);
	for (size_t k = 0; k <= COLUMNS_MAX_KIND; k++) {
		struct walk w;

		walk_begin(&w, c, raw, k);
		while (walk_next(&w))
			p = put_column(c, &w, p);
	}
	assert(p - out <= COLUMNS_MAX_BYTES);
	return (int)(p - out);
}

/* ---- decode ---- */

struct input {
	const uint8_t *at, *end;
};

static const uint8_t zeros[COLUMNS_MAX_EVENTS];

static const uint8_t *take(struct input *in, size_t n)
{
	const uint8_t *p = in->at;

	if ((size_t)(in->end - p) < n)
		return NULL;
	in->at += n;
	return p;
}

/* Planes that the mask does not name read as zeros. */
static bool take_planes(struct input *in, uint8_t mask, unsigned int n_planes, size_t n,
			const uint8_t **ret)
{
	for (unsigned int p = 0; p < n_planes; p++) {
		ret[p] = mask >> p & 1 ? take(in, n) : zeros;
		if (!ret[p])
			return false;
	}
	return true;
}

/* Word 0 of all events: where each begins. */
static bool take_heads(struct columns *c, struct input *in, size_t n, uint8_t *raw, size_t raw_len)
{
	const uint8_t *p = take(in, 4 * n);
	size_t at = 0;

	if (!p)
		return false;
	for (size_t i = 0; i < n; i++) {
		uint32_t head = p[i] | p[n + i] << 8 | p[2 * n + i] << 16 |
				(uint32_t)p[3 * n + i] << 24;
		uint16_t size = (uint16_t)head;

		if (size < sizeof(struct tl_hdr) || size % 8 || size > raw_len - at)
			return false;
		store32(raw + at, head);
		c->offset[i] = (uint32_t)at;
		at += size;
	}
	return at == raw_len;
}

static bool take_times(struct columns *c, struct input *in, size_t n, uint8_t *raw)
{
	const uint8_t *mask = take(in, 1), *base = take(in, 8), *p[8];
	uint64_t ts;

	if (!mask || !base || !take_planes(in, *mask, 8, n, p))
		return false;
	memcpy(&ts, base, sizeof(ts));
	for (size_t i = 0; i < n; i++) {
		uint64_t z = p[0][i] | (uint64_t)p[1][i] << 8 | (uint64_t)p[2][i] << 16 |
			     (uint64_t)p[3][i] << 24;

		if (*mask & 0xf0)
			z |= (uint64_t)p[4][i] << 32 | (uint64_t)p[5][i] << 40 |
			     (uint64_t)p[6][i] << 48 | (uint64_t)p[7][i] << 56;
		ts += z >> 1 ^ (0 - (z & 1));
		memcpy(raw + c->offset[i] + TS_WORD * WORD, &ts, sizeof(ts));
	}
	return true;
}

static bool take_column(struct input *in, const struct walk *w, uint8_t *raw)
{
	const uint8_t *mask = take(in, 1), *base, *p[4];
	const uint32_t *offset = w->offset;
	size_t n = w->n;
	uint32_t v = 0;

	if (!mask)
		return false;
	if (*mask & HAS_BASE) {
		base = take(in, WORD);
		if (!base)
			return false;
		v = load32(base);
	}
	if (!take_planes(in, *mask, 4, n, p))
		return false;
	raw += w->word * WORD;
	if (!(*mask & 0x0f)) {
		for (size_t i = 0; i < n; i++)
			store32(raw + offset[i], v);
		return true;
	}
	for (size_t i = 0; i < n; i++) {
		uint32_t z = p[0][i] | p[1][i] << 8 | p[2][i] << 16 | (uint32_t)p[3][i] << 24;

		v += z >> 1 ^ (0 - (z & 1));
		store32(raw + offset[i], v);
	}
	return true;
}

int columns__decode(struct columns *c, const uint8_t *data, size_t len, size_t n_events,
		    uint8_t *raw, size_t raw_len)
{
	struct input in = { data, data + len };

	if (n_events > COLUMNS_MAX_EVENTS || raw_len > TL_BLOCK_MAX)
		return -EBADMSG;
	if (n_events == 0)
		return len || raw_len ? -EBADMSG : 0;
	if (!take_heads(c, &in, n_events, raw, raw_len) || !sort_by_kind(c, raw, n_events) ||
	    !take_times(c, &in, n_events, raw))
		return -EBADMSG;
	for (size_t k = 0; k <= COLUMNS_MAX_KIND; k++) {
		struct walk w;

		walk_begin(&w, c, raw, k);
		while (walk_next(&w))
			if (!take_column(&in, &w, raw))
				return -EBADMSG;
	}
	return in.at == in.end ? 0 : -EBADMSG;
}
