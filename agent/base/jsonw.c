/* SPDX-License-Identifier: Apache-2.0 */
/* JSON writer: nesting is checked by assert, output is buffered, the first error is kept. */
#include "base/jsonw.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void jsonw__init(struct jsonw *w, jsonw_fn fn, void *ctx)
{
	memset(w, 0, offsetof(struct jsonw, out));
	w->fn = fn;
	w->ctx = ctx;
}

static void flush(struct jsonw *w)
{
	if (w->len && !w->err)
		w->err = w->fn(w->ctx, w->out, w->len);
	w->len = 0;
}

static void put(struct jsonw *w, const char *s, size_t len)
{
	if (len > sizeof(w->out) - w->len) {
		flush(w);
		if (len > sizeof(w->out)) {
			if (!w->err)
				w->err = w->fn(w->ctx, s, len);
			return;
		}
	}
	memcpy(w->out + w->len, s, len);
	w->len += len;
}

static void put_char(struct jsonw *w, char c)
{
	put(w, &c, 1);
}

/* What stands before a value: nothing behind a key, a comma behind another item. */
static void begin_value(struct jsonw *w)
{
	unsigned int d = w->depth;

	if (w->after_key) {
		w->after_key = false;
		return;
	}
	assert(d == 0 ? !w->has_items[0] : !w->is_object[d]);
	if (d > 0 && w->has_items[d])
		put_char(w, ',');
	w->has_items[d] = true;
}

static void open_level(struct jsonw *w, bool is_object)
{
	begin_value(w);
	w->depth++;
	assert(w->depth < JSONW_MAX_DEPTH);
	w->is_object[w->depth] = is_object;
	w->has_items[w->depth] = false;
	put_char(w, is_object ? '{' : '[');
}

static void close_level(struct jsonw *w, bool is_object)
{
	assert(w->depth > 0 && w->is_object[w->depth] == is_object && !w->after_key);
	w->depth--;
	put_char(w, is_object ? '}' : ']');
}

void jsonw__object(struct jsonw *w)
{
	open_level(w, true);
}

void jsonw__end_object(struct jsonw *w)
{
	close_level(w, true);
}

void jsonw__array(struct jsonw *w)
{
	open_level(w, false);
}

void jsonw__end_array(struct jsonw *w)
{
	close_level(w, false);
}

/* Length of the UTF-8 sequence at s, 0 if there is none (RFC 3629). */
static size_t utf8_len(const unsigned char *s, size_t len)
{
	unsigned char lo = 0x80, hi = 0xbf;
	size_t n;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		n = 2;
	else if ((s[0] & 0xf0) == 0xe0)
		n = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		n = 4;
	else
		return 0;
	if (s[0] == 0xe0)
		lo = 0xa0;	/* else overlong */
	else if (s[0] == 0xed)
		hi = 0x9f;	/* else a surrogate */
	else if (s[0] == 0xf0)
		lo = 0x90;
	else if (s[0] == 0xf4)
		hi = 0x8f;
	if (len < n || s[1] < lo || s[1] > hi)
		return 0;
	for (size_t i = 2; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

static const char hex[] = "0123456789abcdef";

static void put_string(struct jsonw *w, const char *str, size_t len)
{
	const unsigned char *s = (const unsigned char *)str;
	size_t plain = 0;	/* bytes from here to i need no change */

	put_char(w, '"');
	for (size_t i = 0; i < len;) {
		char esc[6] = { '\\', 'u', '0', '0' };
		size_t n = utf8_len(s + i, len - i), n_esc = 6;

		if (n > 0 && s[i] >= ' ' && s[i] != '"' && s[i] != '\\' && s[i] != 0x7f) {
			i += n;
			continue;
		}
		if (n == 0) {
			memcpy(esc, "\xef\xbf\xbd", 3);
			n_esc = 3;
		} else if (s[i] == '"' || s[i] == '\\') {
			esc[1] = (char)s[i];
			n_esc = 2;
		} else if (s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
			esc[1] = s[i] == '\n' ? 'n' : s[i] == '\t' ? 't' : 'r';
			n_esc = 2;
		} else {
			esc[4] = hex[s[i] >> 4];
			esc[5] = hex[s[i] & 15];
		}
		put(w, str + plain, i - plain);
		put(w, esc, n_esc);
		plain = ++i;
	}
	put(w, str + plain, len - plain);
	put_char(w, '"');
}

void jsonw__key(struct jsonw *w, const char *name)
{
	unsigned int d = w->depth;

	assert(d > 0 && w->is_object[d] && !w->after_key);
	if (w->has_items[d])
		put_char(w, ',');
	w->has_items[d] = true;
	put_string(w, name, strlen(name));
	put_char(w, ':');
	w->after_key = true;
}

void jsonw__str(struct jsonw *w, const char *s)
{
	if (s)
		jsonw__strn(w, s, strlen(s));
	else
		jsonw__null(w);
}

void jsonw__strn(struct jsonw *w, const char *s, size_t len)
{
	begin_value(w);
	put_string(w, s, len);
}

void jsonw__hex(struct jsonw *w, const void *data, size_t len)
{
	const uint8_t *p = data;

	begin_value(w);
	put_char(w, '"');
	for (size_t i = 0; i < len; i++)
		put(w, (char[]){ hex[p[i] >> 4], hex[p[i] & 15] }, 2);
	put_char(w, '"');
}

/* Decimal digits of v, at least `min` of them, before `end`. Returns where they start. */
static char *digits(char *end, uint64_t v, unsigned int min)
{
	char *p = end;

	while (v || min) {
		*--p = (char)('0' + v % 10);
		v /= 10;
		if (min)
			min--;
	}
	return p;
}

void jsonw__u64(struct jsonw *w, uint64_t v)
{
	char tmp[24], *end = tmp + sizeof(tmp), *p = digits(end, v, 1);

	begin_value(w);
	put(w, p, (size_t)(end - p));
}

void jsonw__s64(struct jsonw *w, int64_t v)
{
	jsonw__fixed(w, v, 0);
}

void jsonw__fixed(struct jsonw *w, int64_t v, unsigned int decimals)
{
	uint64_t abs = v < 0 ? 0 - (uint64_t)v : (uint64_t)v, scale = 1;
	char tmp[48], *end = tmp + sizeof(tmp), *p = end;

	assert(decimals <= 18);
	for (unsigned int i = 0; i < decimals; i++)
		scale *= 10;
	if (decimals) {
		p = digits(p, abs % scale, decimals);
		*--p = '.';
	}
	p = digits(p, abs / scale, 1);
	if (v < 0)
		*--p = '-';
	begin_value(w);
	put(w, p, (size_t)(end - p));
}

void jsonw__double(struct jsonw *w, double v, unsigned int decimals)
{
	char tmp[64];
	int n;

	assert(decimals <= 15);
	if (__builtin_isnan(v) || __builtin_isinf(v)) {
		jsonw__null(w);
		return;
	}
	if (v > 1e15 || v < -1e15)	/* has no decimals, and could have 300 digits */
		n = snprintf(tmp, sizeof(tmp), "%.16g", v);
	else
		n = snprintf(tmp, sizeof(tmp), "%.*f", (int)decimals, v);
	begin_value(w);
	/* -0.000 is noise */
	if (tmp[0] == '-' && strspn(tmp + 1, "0.") == (size_t)n - 1)
		put(w, tmp + 1, (size_t)n - 1);
	else
		put(w, tmp, (size_t)n);
}

void jsonw__bool(struct jsonw *w, bool v)
{
	begin_value(w);
	put(w, v ? "true" : "false", v ? 4 : 5);
}

void jsonw__null(struct jsonw *w)
{
	begin_value(w);
	put(w, "null", 4);
}

void jsonw__newline(struct jsonw *w)
{
	assert(w->depth == 0 && w->has_items[0]);
	w->has_items[0] = false;
	put_char(w, '\n');
}

int jsonw__finish(struct jsonw *w)
{
	assert(w->depth == 0);
	flush(w);
	return w->err;
}
