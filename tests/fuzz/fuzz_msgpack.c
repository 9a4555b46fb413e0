/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as MessagePack: reading value by value, skipping, and a plain reader of the format must
 * find the same values, of the same length, cut at the same place. */
#include "parse/msgpack_in.h"

#include "trace.h"

#include <stdbool.h>

enum { MAX_DEPTH = 500 };

/* Takes one value by its type; adds what it is. */
static void read_value(struct mpin *m, struct trace *t, int depth)
{
	enum mpin_type type = mpin_peek(m);
	struct mpin_bytes b;
	uint32_t n = 0;
	int64_t i = 0;
	double f = 0;
	bool v = false;

	if (type == MPIN_NONE || type == MPIN_NIL || depth > MAX_DEPTH) {
		mpin_skip(m, 1);
		return;
	}
	trace_add(t, &type, sizeof(type));
	switch (type) {
	case MPIN_BOOL:
		if (mpin_bool(m, &v))
			trace_add(t, &v, sizeof(v));
		break;
	case MPIN_INT:
		if (mpin_int(m, &i))
			trace_add(t, &i, sizeof(i));
		break;
	case MPIN_FLOAT:
		if (mpin_float(m, &f))
			trace_add(t, &f, sizeof(f));
		break;
	case MPIN_ARRAY:
		if (mpin_array(m, &n))
			trace_add(t, &n, sizeof(n));
		while (mpin_more(m, &n))
			read_value(m, t, depth + 1);
		break;
	case MPIN_MAP:
		if (mpin_map(m, &n))
			trace_add(t, &n, sizeof(n));
		while (mpin_key(m, &n, &b)) {
			trace_add(t, b.p, b.len);
			read_value(m, t, depth + 1);
		}
		break;
	default:
		if (mpin_bytes(m, &b)) {
			if (b.p + b.len > m->end || b.len > b.total || (b.len < b.total) != !!m->why)
				abort();
			trace_add(t, b.p, b.len);
		}
		break;
	}
}

/* The format as its specification has it. Bytes of the value at p, 0: cut, -1: no value. */
static int64_t plain_size(const uint8_t *p, size_t len)
{
	uint64_t open = 1, at = 0;

	while (open) {
		uint64_t n = 0, size = 1, body = 0;
		unsigned width = 0;
		uint8_t c;

		if (at >= len)
			return 0;
		c = p[at];
		open--;
		if (c == 0xc1)
			return -1;
		if (c >= 0xc4 && c <= 0xc6)
			width = 1 << (c - 0xc4);
		else if (c >= 0xc7 && c <= 0xc9)
			width = 1 << (c - 0xc7);
		else if (c >= 0xd9 && c <= 0xdb)
			width = 1 << (c - 0xd9);
		else if (c >= 0xdc && c <= 0xdf)
			width = c & 1 ? 4 : 2;
		if (at + 1 + width > len)
			return 0;
		for (unsigned i = 0; i < width; i++)
			n = n << 8 | p[at + 1 + i];
		size += width;
		if (c < 0x80 || c >= 0xe0)
			body = 0;
		else if (c < 0x90)
			open += 2 * (c & 15);
		else if (c < 0xa0)
			open += c & 15;
		else if (c < 0xc0)
			body = c & 31;
		else if (c < 0xc4)
			body = 0;
		else if (c < 0xc7)
			body = n;
		else if (c < 0xca)
			body = n + 1;
		else if (c < 0xcc)
			body = c == 0xca ? 4 : 8;
		else if (c < 0xd4)
			body = 1 << (c & 3);
		else if (c < 0xd9)
			body = 1 + (1 << (c - 0xd4));
		else if (c < 0xdc)
			body = n;
		else if (c < 0xde)
			open += n;
		else
			open += 2 * n;
		at += size + body;
		if (at > len)
			return 0;
		/* Bytes enough for what is still open are not looked for here: just read on. */
	}
	return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = (uint8_t *)exact_copy(data, size);
	struct trace t = { NULL, 0, 0 };
	struct mpin read, skip, seq;
	struct mpin_row row;
	int64_t want;

	mpin_init(&read, copy, size);
	mpin_init(&skip, copy, size);
	while (!skip.why && skip.p < skip.end) {
		want = plain_size(skip.p, skip.end - skip.p);
		seq = skip;
		mpin_skip(&skip, 1);
		read_value(&read, &t, 0);
		if (want > 0 && (skip.why || skip.p != seq.p + want))
			abort();
		/* A cut value may hide a bad one behind the cut, and the other way round. */
		if (want <= 0 && (!skip.why || skip.p != skip.end))
			abort();
		if (!!read.why != !!skip.why || read.p != skip.p)
			abort();
		if (mpin_row_begin(&seq, &row)) {
			uint32_t i = size % 7;

			if (mpin_row_at(&seq, &row, i))
				mpin_skip(&seq, 1);
			mpin_row_end(&seq, &row);
			if (!!seq.why != !!skip.why || seq.p != skip.p)
				abort();
		}
	}
	free(t.p);
	free(copy);
	return 0;
}
