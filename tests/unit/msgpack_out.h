/* SPDX-License-Identifier: Apache-2.0 */
/* Writes MessagePack as msgspec does: the shortest form of each value. */
#ifndef TL_MSGPACK_OUT_H
#define TL_MSGPACK_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct mp {
	uint8_t *p;
	size_t len, cap;
};

static inline void mp_free(struct mp *o)
{
	free(o->p);
	*o = (struct mp){ 0 };
}

static inline void mp_raw(struct mp *o, const void *p, size_t len)
{
	if (o->len + len > o->cap) {
		o->cap = 2 * (o->len + len) + 256;
		o->p = realloc(o->p, o->cap);
		if (!o->p)
			abort();
	}
	if (len)
		memcpy(o->p + o->len, p, len);
	o->len += len;
}

/* A first byte, then v in `bytes` bytes, big end first. */
static inline void mp_head(struct mp *o, uint8_t first, uint64_t v, unsigned bytes)
{
	uint8_t b[9] = { first };

	for (unsigned i = 0; i < bytes; i++)
		b[1 + i] = v >> 8 * (bytes - 1 - i);
	mp_raw(o, b, 1 + bytes);
}

static inline void mp_nil(struct mp *o)
{
	mp_head(o, 0xc0, 0, 0);
}

static inline void mp_bool(struct mp *o, bool v)
{
	mp_head(o, v ? 0xc3 : 0xc2, 0, 0);
}

static inline void mp_int(struct mp *o, int64_t v)
{
	if (v >= -32 && v < 128)
		mp_head(o, (uint8_t)v, 0, 0);
	else if (v >= 0)
		mp_head(o, v <= UINT8_MAX ? 0xcc : v <= UINT16_MAX ? 0xcd : v <= UINT32_MAX ? 0xce : 0xcf,
			v, v <= UINT8_MAX ? 1 : v <= UINT16_MAX ? 2 : v <= UINT32_MAX ? 4 : 8);
	else
		mp_head(o, v >= INT8_MIN ? 0xd0 : v >= INT16_MIN ? 0xd1 : v >= INT32_MIN ? 0xd2 : 0xd3,
			v, v >= INT8_MIN ? 1 : v >= INT16_MIN ? 2 : v >= INT32_MIN ? 4 : 8);
}

static inline void mp_float(struct mp *o, double v)
{
	uint64_t u;

	memcpy(&u, &v, sizeof(u));
	mp_head(o, 0xcb, u, 8);
}

static inline void mp_str_n(struct mp *o, const void *s, size_t n)
{
	if (n < 32)
		mp_head(o, 0xa0 | n, 0, 0);
	else
		mp_head(o, n <= UINT8_MAX ? 0xd9 : n <= UINT16_MAX ? 0xda : 0xdb, n,
			n <= UINT8_MAX ? 1 : n <= UINT16_MAX ? 2 : 4);
	mp_raw(o, s, n);
}

static inline void mp_str(struct mp *o, const char *s)	/* NULL: nil */
{
	if (s)
		mp_str_n(o, s, strlen(s));
	else
		mp_nil(o);
}

static inline void mp_bin(struct mp *o, const void *p, size_t n)
{
	mp_head(o, n <= UINT8_MAX ? 0xc4 : n <= UINT16_MAX ? 0xc5 : 0xc6, n,
		n <= UINT8_MAX ? 1 : n <= UINT16_MAX ? 2 : 4);
	mp_raw(o, p, n);
}

static inline void mp_ext(struct mp *o, int8_t kind, const void *p, size_t n)
{
	mp_head(o, n <= UINT8_MAX ? 0xc7 : n <= UINT16_MAX ? 0xc8 : 0xc9, n,
		n <= UINT8_MAX ? 1 : n <= UINT16_MAX ? 2 : 4);
	mp_raw(o, &kind, 1);
	mp_raw(o, p, n);
}

static inline void mp_array(struct mp *o, size_t n)
{
	mp_head(o, n < 16 ? 0x90 | n : n <= UINT16_MAX ? 0xdc : 0xdd, n,
		n < 16 ? 0 : n <= UINT16_MAX ? 2 : 4);
}

static inline void mp_map(struct mp *o, size_t n)
{
	mp_head(o, n < 16 ? 0x80 | n : n <= UINT16_MAX ? 0xde : 0xdf, n,
		n < 16 ? 0 : n <= UINT16_MAX ? 2 : 4);
}

/*
 * Writes values given as text: nil T F 12 -3 1.5 "text" [a,b] {key:a,key:b}, and #n: a list of n
 * numbers, !n: an ext value of n bytes. Returns behind the first one.
 */
static inline const char *mp_text(struct mp *o, const char *s)
{
	struct mp in = { 0 };
	char *end;
	size_t n = 0;
	char close = *s == '[' ? ']' : '}';

	switch (*s) {
	case 'n':
		mp_nil(o);
		return s + 3;
	case 'T':
	case 'F':
		mp_bool(o, *s == 'T');
		return s + 1;
	case '"':
		n = strcspn(s + 1, "\"");
		mp_str_n(o, s + 1, n);
		return s + n + 2;
	case '#':
		n = strtoul(s + 1, &end, 10);
		mp_array(o, n);
		for (size_t i = 0; i < n; i++)
			mp_int(o, (int64_t)i * 977 % 150000);
		return end;
	case '!':
		n = strtoul(s + 1, &end, 10);
		mp_head(&in, 0, 0, 0);
		while (in.len < n)
			mp_raw(&in, "x", 1);
		mp_ext(o, 3, in.p, n);
		mp_free(&in);
		return end;
	case '[':
	case '{':
		for (s++; *s != close; s += *s == ',') {
			if (close == '}') {
				size_t key = strcspn(s, ":");

				mp_str_n(&in, s, key);
				s += key + 1;
			}
			s = mp_text(&in, s);
			n++;
		}
		if (close == ']')
			mp_array(o, n);
		else
			mp_map(o, n);
		mp_raw(o, in.p, in.len);
		mp_free(&in);
		return s + 1;
	default:
		if (strcspn(s, ",]}") > strcspn(s, ".")) {
			mp_float(o, strtod(s, &end));
		} else {
			mp_int(o, strtoll(s, &end, 10));
		}
		if (end == s)
			abort();
		return end;
	}
}

#endif
