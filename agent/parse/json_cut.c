/* SPDX-License-Identifier: Apache-2.0 */
/* The cursor over JSON text, forwards; and from the end backwards where the middle is missing. */
#include "parse/json_cut.h"
#include "base/str.h"

#include <ctype.h>
#include <limits.h>

static bool is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void fail(struct json *j)
{
	j->bad = true;
	j->p = j->end;
}

static void skip_space(struct json *j)
{
	while (j->p < j->end && is_space(*j->p))
		j->p++;
}

void json_init(struct json *j, const char *p, const char *end)
{
	*j = (struct json){ .p = p, .end = end, .first = true };
}

char json_peek(struct json *j)
{
	skip_space(j);
	return j->p < j->end ? *j->p : '\0';
}

/* From behind an opening quote to the closing one, NULL if it is missing. */
static const char *string_end(const char *start, const char *end)
{
	const char *p = start, *b;

	while ((p = memchr(p, '"', end - p))) {
		for (b = p; b > start && b[-1] == '\\'; b--)
			;
		if ((p - b) % 2 == 0)
			return p;
		p++;
	}
	return NULL;
}

static void skip_string(struct json *j)
{
	const char *e = string_end(j->p + 1, j->end);

	if (e)
		j->p = e + 1;
	else
		fail(j);
}

static void skip_container(struct json *j)
{
	const char *p = j->p;
	unsigned int depth = 0;

	for (; p < j->end; p++) {
		switch (*p) {
		case '"':
			p = string_end(p + 1, j->end);
			if (!p) {
				fail(j);
				return;
			}
			break;
		case '{':
		case '[':
			depth++;
			break;
		case '}':
		case ']':
			if (--depth == 0) {
				j->p = p + 1;
				return;
			}
			break;
		}
	}
	fail(j);
}

static bool is_plain(char c)	/* of a number, true, false, null */
{
	return isalnum((unsigned char)c) || c == '-' || c == '+' || c == '.';
}

void json_skip(struct json *j)
{
	const char *start;

	switch (json_peek(j)) {
	case '"':
		skip_string(j);
		return;
	case '{':
	case '[':
		skip_container(j);
		return;
	}
	start = j->p;
	while (j->p < j->end && is_plain(*j->p))
		j->p++;
	if (j->p == start || j->p == j->end)
		fail(j);
}

static bool enter(struct json *j, char open)
{
	if (json_peek(j) != open) {
		json_skip(j);
		return false;
	}
	j->p++;
	j->first = true;
	return true;
}

bool json_object(struct json *j)
{
	return enter(j, '{');
}

bool json_array(struct json *j)
{
	return enter(j, '[');
}

/* To the next key or element; false behind the closing bracket. */
static bool next(struct json *j, char close)
{
	char c = json_peek(j);

	if (c == close) {
		j->p++;
		j->first = false;
		return false;
	}
	if (!j->first) {
		if (c != ',') {
			fail(j);
			return false;
		}
		j->p++;
		c = json_peek(j);
	}
	j->first = false;
	return c != '\0';
}

bool json_key(struct json *j, struct json_key *ret)
{
	const char *start, *e;

	if (!next(j, '}'))
		return false;
	start = j->p + 1;
	e = *j->p == '"' ? string_end(start, j->end) : NULL;
	if (!e) {
		fail(j);
		return false;
	}
	j->p = e + 1;
	if (json_peek(j) != ':') {
		fail(j);
		return false;
	}
	j->p++;
	*ret = (struct json_key){ start, e - start };
	return true;
}

bool json_element(struct json *j)
{
	return next(j, ']');
}

bool json_bool(struct json *j, bool *ret)
{
	const char *start;
	size_t len;

	json_peek(j);
	start = j->p;
	json_skip(j);
	len = j->p - start;
	if (j->bad)
		return false;
	if (len == 4 && !memcmp(start, "true", 4))
		*ret = true;
	else if (len == 5 && !memcmp(start, "false", 5))
		*ret = false;
	else
		return false;
	return true;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* n * 10^exp, towards zero, saturating. */
static int64_t scaled(uint64_t n, int exp)
{
	for (; exp < 0 && n; exp++)
		n /= 10;
	for (; exp > 0 && n; exp--) {
		if (n > INT64_MAX / 10)
			return INT64_MAX;
		n *= 10;
	}
	return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

bool json_number(struct json *j, int scale, int64_t *ret)
{
	const char *p, *end;
	bool minus, minus_exp, point = false;
	uint64_t n = 0;
	int exp = scale, e = 0;

	json_peek(j);
	p = j->p;
	json_skip(j);
	end = j->p;
	if (j->bad)
		return false;
	minus = *p == '-';
	p += minus;
	if (p == end || !is_digit(*p))
		return false;
	for (; p < end && (is_digit(*p) || (*p == '.' && !point)); p++) {
		if (*p == '.')
			point = true;
		else if (n < UINT64_MAX / 10 - 1) {
			n = n * 10 + (*p - '0');
			exp -= point;
		} else
			exp += !point;
	}
	if (p < end && (*p == 'e' || *p == 'E')) {
		p++;
		minus_exp = p < end && *p == '-';
		p += p < end && (*p == '-' || *p == '+');
		for (; p < end && is_digit(*p); p++)
			e = e < 10000 ? e * 10 + (*p - '0') : e;
		exp += minus_exp ? -e : e;
	}
	if (p != end)
		return false;
	*ret = minus ? -scaled(n, exp) : scaled(n, exp);
	return true;
}

/* Four hexadecimal digits, or -1. */
static int32_t hex4(const char *p, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	int32_t c = 0;

	for (size_t i = 0; i < 4; i++) {
		const char *d = i < len && p[i] ? strchr(hex, tolower((unsigned char)p[i])) : NULL;

		if (!d)
			return -1;
		c = c << 4 | (d - hex);
	}
	return c;
}

static char unescaped(const char *p, const char *end)
{
	int32_t c;

	if (*p == '"' || *p == '\\' || *p == '/')
		return *p;
	c = *p == 'u' ? hex4(p + 1, end - p - 1) : -1;
	return c >= ' ' && c < 127 ? c : '?';
}

bool json_string(struct json *j, char *ret, size_t size)
{
	const char *p, *end;
	size_t n = 0;

	if (json_peek(j) != '"') {
		json_skip(j);
		return false;
	}
	p = j->p + 1;
	skip_string(j);
	if (j->bad)
		return false;
	end = j->p - 1;
	while (p < end && n < size - 1) {
		char c = *p++;

		if (c == '\\') {
			c = unescaped(p, end);
			p += *p == 'u' && end - p >= 5 ? 5 : 1;
		} else if (c < ' ' || c == 127) {
			c = '?';
		}
		ret[n++] = c;
	}
	ret[n] = '\0';
	return true;
}

/* The character behind a backslash at p, which is moved behind it. -1: none. */
static int32_t escaped(const char **p, const char *end)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = *p < end && **p ? strchr(from, **p) : NULL;
	int32_t c, low;

	if (at) {
		(*p)++;
		return to[at - from];
	}
	if (*p == end || **p != 'u')
		return -1;
	c = hex4(*p + 1, end - *p - 1);
	*p += c < 0 ? 0 : 5;
	if (c < 0xd800 || c > 0xdfff)
		return c;
	low = c < 0xdc00 && end - *p >= 2 && (*p)[0] == '\\' && (*p)[1] == 'u' ? hex4(*p + 2, end - *p - 2) : -1;
	if (low < 0xdc00 || low > 0xdfff)
		return -1;
	*p += 6;
	return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

bool json_unescape(const char *p, size_t len, char *ret, size_t size)
{
	const char *end = p + len;
	size_t n = 0;

	while (p < end) {
		char one[4];
		size_t n_one = 1;

		one[0] = *p++;
		if (one[0] == '\\') {
			int32_t c = escaped(&p, end);

			if (c < 0)
				return false;
			n_one = utf8_put(one, c);
		}
		if (n + n_one >= size || !one[0])
			return false;
		memcpy(ret + n, one, n_one);
		n += n_one;
	}
	ret[n] = '\0';
	return true;
}

int json_has_text(struct json *j)
{
	bool more;

	if (json_peek(j) != '"') {
		json_skip(j);
		return -1;
	}
	if (j->end - j->p < 2) {
		fail(j);
		return -1;
	}
	more = j->p[1] != '"';
	skip_string(j);
	return more;
}

int json_count(struct json *j)
{
	int n = 0;

	if (!json_array(j))
		return -1;
	while (json_element(j)) {
		json_skip(j);
		n += n < INT_MAX;
	}
	return j->bad ? -1 : n;
}

/* ---- backwards: each function looks at [lo, p) and returns where something begins ---- */

static const char *back_space(const char *lo, const char *p)
{
	while (p > lo && is_space(p[-1]))
		p--;
	return p;
}

/* p[-1] is a closing quote. NULL: the opening one is not there, or could be an escaped one. */
static const char *back_string(const char *lo, const char *p)
{
	const char *q = p - 1, *b;

	while ((q = memrchr(lo, '"', q - lo))) {
		for (b = q; b > lo && b[-1] == '\\'; b--)
			;
		if (b == lo)
			return NULL;
		if ((q - b) % 2 == 0)
			return q;
	}
	return NULL;
}

static const char *back_container(const char *lo, const char *p)
{
	unsigned int depth = 0;

	while (p > lo) {
		switch (*--p) {
		case '"':
			p = back_string(lo, p + 1);
			if (!p)
				return NULL;
			break;
		case '}':
		case ']':
			depth++;
			break;
		case '{':
		case '[':
			if (--depth == 0)
				return p;
			break;
		}
	}
	return NULL;
}

static const char *back_value(const char *lo, const char *p)
{
	const char *start = p;

	if (p == lo)
		return NULL;
	if (p[-1] == '"')
		return back_string(lo, p);
	if (p[-1] == '}' || p[-1] == ']')
		return back_container(lo, p);
	while (p > lo && is_plain(p[-1]))
		p--;
	return p == start ? NULL : p;
}

/* Where the key of the member that ends at p begins, given where its value does. */
static const char *back_key(const char *lo, const char *value)
{
	const char *p = back_space(lo, value);

	if (p == lo || p[-1] != ':')
		return NULL;
	p = back_space(lo, p - 1);
	return p > lo && p[-1] == '"' ? back_string(lo, p) : NULL;
}

/* p is behind the last member or element of something that closes there. Puts the first whole one
 * into *ret (or leaves it), and returns the end of one that is not whole; NULL: there is none. */
static const char *back_members(const char *lo, const char *p, bool object, const char **ret)
{
	const char *start;

	for (;;) {
		p = back_space(lo, p);
		if (p == lo || p[-1] == '{' || p[-1] == '[')
			return NULL;
		start = back_value(lo, p);
		if (!start)
			return p;
		if (object) {
			start = back_key(lo, start);
			if (!start)
				return NULL;
		}
		*ret = start;
		p = back_space(lo, start);
		if (p == lo || p[-1] != ',')
			return NULL;
		p--;
	}
}

const char *json_tail(const char *lo, const char *end, const char **inner, size_t n_inner)
{
	const char *p = back_space(lo, end), *outer = end, *element = NULL;
	size_t n = 0;

	for (size_t i = 0; i < n_inner; i++)
		inner[i] = NULL;
	if (p == lo || p[-1] != '}')
		return end;
	p = back_members(lo, p - 1, true, &outer);
	while (p && n < n_inner) {
		if (p[-1] == '}')
			p = back_members(lo, p - 1, true, &inner[n++]);
		else if (p[-1] == ']')
			p = back_members(lo, p - 1, false, &element);
		else
			break;
	}
	return outer;
}
