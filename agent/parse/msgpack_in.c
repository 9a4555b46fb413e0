/* SPDX-License-Identifier: Apache-2.0 */
/* Reads MessagePack where it lies, also when its end is missing. */
#include "parse/msgpack_in.h"

#include <endian.h>

/* Bytes of a whole value by its first byte; 0: more must be looked at. */
static const uint8_t sizes[256] = {
	[0x00 ... 0x7f] = 1,
	[0xa0] = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
	[0xb0] = 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
	[0xc0] = 1, [0xc2] = 1, 1,
	[0xca] = 5, 9, 2, 3, 5, 9, 2, 3, 5, 9,
	[0xd4] = 3, 4, 6, 10, 18,
	[0xe0 ... 0xff] = 1,
};

const uint8_t mpin_types[256] = {
	[0x00 ... 0x7f] = MPIN_INT,
	[0x80 ... 0x8f] = MPIN_MAP,
	[0x90 ... 0x9f] = MPIN_ARRAY,
	[0xa0 ... 0xbf] = MPIN_STR,
	[0xc0] = MPIN_NIL,
	[0xc2 ... 0xc3] = MPIN_BOOL,
	[0xc4 ... 0xc6] = MPIN_BIN,
	[0xc7 ... 0xc9] = MPIN_EXT,
	[0xca ... 0xcb] = MPIN_FLOAT,
	[0xcc ... 0xd3] = MPIN_INT,
	[0xd4 ... 0xd8] = MPIN_EXT,
	[0xd9 ... 0xdb] = MPIN_STR,
	[0xdc ... 0xdd] = MPIN_ARRAY,
	[0xde ... 0xdf] = MPIN_MAP,
	[0xe0 ... 0xff] = MPIN_INT,
};

void mpin_init(struct mpin *m, const void *p, size_t len)
{
	*m = (struct mpin){ .p = p, .end = (const uint8_t *)p + len };
}

static void stop(struct mpin *m, enum mpin_why why)
{
	m->p = m->end;
	if (!m->why)
		m->why = why;
}

/* Is there anything? A caller that asks for more than the end is cut. */
static bool at_value(struct mpin *m)
{
	if (m->p < m->end)
		return true;
	stop(m, MPIN_CUT);
	return false;
}

static uint32_t get(const uint8_t *p, size_t bytes)
{
	uint32_t v = 0;

	for (size_t i = 0; i < bytes; i++)
		v = v << 8 | p[i];
	return v;
}

/* What a value consists of: `size` bytes of header and number, `body` bytes behind it, then
 * `children` values. */
struct head {
	uint8_t size;
	uint32_t body;
	uint64_t children;
};

/* Of any value but those that sizes[] tells. Sets `why` if the header itself is not whole. */
static bool read_head(struct mpin *m, struct head *h)
{
	static const struct {
		uint8_t length;	/* bytes of the length field */
		uint8_t more;	/* bytes of header behind it */
	} forms[] = {		/* from 0xc4 to 0xdf */
		[0x00] = { 1, 0 }, { 2, 0 }, { 4, 0 },		/* bin */
		[0x03] = { 1, 1 }, { 2, 1 }, { 4, 1 },		/* ext */
		[0x15] = { 1, 0 }, { 2, 0 }, { 4, 0 },		/* str */
		[0x18] = { 2, 0 }, { 4, 0 }, { 2, 0 }, { 4, 0 },	/* array, map */
	};
	uint8_t c = *m->p, type = mpin_types[c], length;
	uint32_t n;

	*h = (struct head){ .size = 1 };
	if (!type) {
		stop(m, MPIN_BAD);
		return false;
	}
	if (c < 0xa0) {
		n = c & 0x0f;
	} else {
		length = forms[c - 0xc4].length;
		h->size += length + forms[c - 0xc4].more;
		if (m->end - m->p < h->size) {
			stop(m, MPIN_CUT);
			return false;
		}
		n = get(m->p + 1, length);
	}
	if (type == MPIN_ARRAY)
		h->children = n;
	else if (type == MPIN_MAP)
		h->children = 2ull * n;
	else
		h->body = n;
	return true;
}

/* One value that sizes[] does not tell; adds to *n what it contains. */
static void skip_head(struct mpin *m, uint64_t *n)
{
	struct head h;

	if (!read_head(m, &h))
		return;
	m->p += h.size;
	if ((uint64_t)(m->end - m->p) < h.body)
		stop(m, MPIN_CUT);
	else
		m->p += h.body;
	*n += h.children;
}

void mpin_skip(struct mpin *m, uint64_t n)
{
	const uint8_t *p = m->p, *end = m->end;
	unsigned size;

	for (; n; n--) {
		/* Each value has a byte at least: a header that lies ends here. */
		if (n > (uint64_t)(end - p)) {
			stop(m, MPIN_CUT);
			return;
		}
		/* Most are one byte. A branch that is guessed right is faster than the table. */
		if (*p < 0x80 || *p == 0xc0) {
			p++;
			continue;
		}
		size = sizes[*p];
		if (size) {
			if (end - p < size) {
				stop(m, MPIN_CUT);
				return;
			}
			p += size;
		} else {
			m->p = p;
			skip_head(m, &n);
			if (m->why)
				return;
			p = m->p;
		}
	}
	m->p = p;
}

bool mpin_bool(struct mpin *m, bool *ret)
{
	if (mpin_peek(m) != MPIN_BOOL) {
		mpin_skip(m, 1);
		return false;
	}
	*ret = *m->p++ & 1;
	return true;
}

/* The bytes of a number, behind its first one; NULL: it is cut. */
static const uint8_t *take_number(struct mpin *m)
{
	const uint8_t *p = m->p;

	mpin_skip(m, 1);
	return m->why ? NULL : p + 1;
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

bool mpin_int(struct mpin *m, int64_t *ret)
{
	const uint8_t *p;
	uint64_t v;

	if (mpin_peek(m) != MPIN_INT) {
		mpin_skip(m, 1);
		return false;
	}
	p = take_number(m);
	if (!p)
		return false;
	switch (p[-1]) {
	case 0xcc: *ret = p[0]; break;
	case 0xcd: *ret = get(p, 2); break;
	case 0xce: *ret = get(p, 4); break;
	case 0xcf:
		v = get64(p);
		*ret = v < INT64_MAX ? (int64_t)v : INT64_MAX;
		break;
	case 0xd0: *ret = (int8_t)p[0]; break;
	case 0xd1: *ret = (int16_t)get(p, 2); break;
	case 0xd2: *ret = (int32_t)get(p, 4); break;
	case 0xd3: *ret = (int64_t)get64(p); break;
	default: *ret = (int8_t)p[-1]; break;
	}
	return true;
}

bool mpin_float(struct mpin *m, double *ret)
{
	const uint8_t *p;
	uint64_t v64;
	uint32_t v32;
	int64_t i;
	float f;

	if (mpin_peek(m) == MPIN_INT) {
		if (!mpin_int(m, &i))
			return false;
		*ret = i;
		return true;
	}
	if (mpin_peek(m) != MPIN_FLOAT) {
		mpin_skip(m, 1);
		return false;
	}
	p = take_number(m);
	if (!p)
		return false;
	if (p[-1] == 0xcb) {
		v64 = get64(p);
		memcpy(ret, &v64, sizeof(v64));
	} else {
		v32 = get(p, 4);
		memcpy(&f, &v32, sizeof(v32));
		*ret = f;
	}
	return true;
}

bool mpin_bytes(struct mpin *m, struct mpin_bytes *ret)
{
	enum mpin_type type = mpin_peek(m);
	struct head h = { .size = 1 };
	uint8_t c;

	*ret = (struct mpin_bytes){ .p = m->end };
	if (type != MPIN_STR && type != MPIN_BIN && type != MPIN_EXT) {
		mpin_skip(m, 1);
		return false;
	}
	c = *m->p;
	if (c < 0xc0) {
		h.body = c & 0x1f;
	} else if (c >= 0xd4 && c <= 0xd8) {
		if (m->end - m->p < 2) {
			stop(m, MPIN_CUT);
			return false;
		}
		h.size = 2;
		h.body = 1 << (c - 0xd4);
	} else if (!read_head(m, &h)) {
		return false;
	}
	m->p += h.size;
	ret->p = m->p;
	ret->type = type;
	ret->ext = type == MPIN_EXT ? (int8_t)m->p[-1] : 0;
	ret->len = ret->total = h.body;
	if (ret->len > (size_t)(m->end - m->p)) {
		ret->len = m->end - m->p;
		stop(m, MPIN_CUT);
	} else {
		m->p += ret->len;
	}
	return true;
}

static bool enter(struct mpin *m, enum mpin_type type, uint32_t per, uint32_t *ret_n)
{
	struct head h;

	if (mpin_peek(m) != type) {
		mpin_skip(m, 1);
		return false;
	}
	if (!read_head(m, &h))
		return false;
	m->p += h.size;
	*ret_n = h.children / per;
	return true;
}

bool mpin_array(struct mpin *m, uint32_t *ret_n)
{
	return enter(m, MPIN_ARRAY, 1, ret_n);
}

bool mpin_map(struct mpin *m, uint32_t *ret_n)
{
	return enter(m, MPIN_MAP, 2, ret_n);
}

bool mpin_more(struct mpin *m, uint32_t *left)
{
	if (!*left || m->why)
		return false;
	if (!at_value(m))
		return false;
	(*left)--;
	return true;
}

bool mpin_key(struct mpin *m, uint32_t *left, struct mpin_bytes *key)
{
	if (!mpin_more(m, left))
		return false;
	mpin_bytes(m, key);
	if (key->type != MPIN_STR)
		key->len = 0;
	return !m->why && at_value(m);
}

bool mpin_row_begin(struct mpin *m, struct mpin_row *row)
{
	row->next = 0;
	return mpin_array(m, &row->n);
}

bool mpin_row_at(struct mpin *m, struct mpin_row *row, uint32_t i)
{
	if (i >= row->n || i < row->next || m->why)
		return false;
	if (i > row->next)
		mpin_skip(m, i - row->next);
	row->next = i;
	if (!at_value(m))
		return false;
	row->next++;
	return true;
}

void mpin_row_end(struct mpin *m, struct mpin_row *row)
{
	mpin_skip(m, row->n - row->next);
	row->next = row->n;
}
