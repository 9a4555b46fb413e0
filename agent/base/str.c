/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded copies of strings, and the numbers that people type. */
#include "base/str.h"
#include "base/util.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool str_copy(char *dst, size_t size, const char *src)
{
	size_t len = strlen(src);
	bool whole = len < size;

	assert(size > 0);
	if (!whole)
		len = size - 1;
	memcpy(dst, src, len);
	memset(dst + len, 0, size - len);
	return whole;
}

bool str_copy_clean(char *dst, size_t size, const char *src, size_t len)
{
	bool whole = len < size;

	assert(size > 0);
	if (!whole)
		len = size - 1;
	for (size_t i = 0; i < len; i++)
		dst[i] = src[i] >= ' ' && src[i] <= '~' ? src[i] : '?';
	memset(dst + len, 0, size - len);
	return whole;
}

size_t utf8_put(char dst[4], uint32_t c)
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const uint8_t lead[] = { 0, 0x00, 0xc0, 0xe0, 0xf0 };

	for (size_t i = n; i-- > 1; c >>= 6)
		dst[i] = 0x80 | (c & 0x3f);
	dst[0] = lead[n] | c;
	return n;
}

int str_parse_u64(const char *s, uint64_t *ret)
{
	bool hex = s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
	unsigned long long v;
	char *end;

	/* strtoull takes spaces and signs, we do not */
	if (hex ? !isxdigit((unsigned char)s[2]) : !isdigit((unsigned char)s[0]))
		return -EINVAL;
	errno = 0;
	v = strtoull(s, &end, hex ? 16 : 10);
	if (*end)
		return -EINVAL;
	if (errno)
		return -errno;
	*ret = v;
	return 0;
}

struct unit {
	const char *name;
	uint64_t factor;
};

/* "12", "1.5": whole part, then up to nine decimals, then the name of a unit. */
static int parse_with_unit(const char *s, const struct unit *units, size_t n_units, uint64_t *ret)
{
	uint64_t whole = 0, frac = 0, frac_div = 1, v;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	for (; isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(whole, 10, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*s - '0'), &whole))
			return -ERANGE;
	if (*s == '.') {
		if (!isdigit((unsigned char)*++s))
			return -EINVAL;
		for (; isdigit((unsigned char)*s); s++) {
			if (frac_div >= 1000000000)
				continue;	/* finer than we count */
			frac = frac * 10 + (uint64_t)(*s - '0');
			frac_div *= 10;
		}
	}
	for (size_t i = 0; i < n_units; i++) {
		unsigned __int128 part;

		if (strcasecmp(s, units[i].name) != 0)
			continue;
		part = (unsigned __int128)frac * units[i].factor / frac_div;
		if (__builtin_mul_overflow(whole, units[i].factor, &v) ||
		    __builtin_add_overflow(v, (uint64_t)part, &v))
			return -ERANGE;
		*ret = v;
		return 0;
	}
	return -EINVAL;
}

int str_parse_duration(const char *s, uint64_t *ret_ns)
{
	static const struct unit units[] = {
		{ "", 1000000000 },  { "s", 1000000000 },     { "ms", 1000000 },
		{ "us", 1000 },	     { "ns", 1 },	      { "m", 60 * 1000000000ull },
		{ "min", 60 * 1000000000ull }, { "h", 3600 * 1000000000ull },
	};

	return parse_with_unit(s, units, ARRAY_SIZE(units), ret_ns);
}

int str_parse_size(const char *s, uint64_t *ret_bytes)
{
	static const struct unit units[] = {
		{ "", 1 },	   { "b", 1 },		{ "k", 1ull << 10 },
		{ "kb", 1ull << 10 }, { "kib", 1ull << 10 }, { "m", 1ull << 20 },
		{ "mb", 1ull << 20 }, { "mib", 1ull << 20 }, { "g", 1ull << 30 },
		{ "gb", 1ull << 30 }, { "gib", 1ull << 30 },
	};

	return parse_with_unit(s, units, ARRAY_SIZE(units), ret_bytes);
}

/* Where the part of a file's name begins that a build of Python gives it; NULL: it is none. */
static const char *python_suffix(const char *name)
{
	static const char *const suffixes[] = { ".cpython-", ".abi3.so", ".pypy" };
	const char *at = NULL;

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]) && !at; i++)
		at = strstr(name, suffixes[i]);
	return at > name ? at : NULL;
}

enum { MAX_MODULE = 31 }; /* as much as names of culprits hold */

void str_library(char *dst, size_t size, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *folder = slash;
	const char *end = python_suffix(name);
	size_t len = end ? (size_t)(end - name) : strlen(name), n_folder = 0, at = 0;

	while (end && folder > path && folder[-1] != '/')
		folder--;
	if (end && slash)
		n_folder = (size_t)(slash - folder);
	if ((n_folder && n_folder == len && !memcmp(folder, name, len)) ||
	    n_folder + 1 + len + 3 > MAX_MODULE || n_folder + len + 5 > size)
		n_folder = 0;
	if (n_folder) {
		str_copy_clean(dst, size, folder, n_folder);
		dst[n_folder] = '/';
		at = n_folder + 1;
	}
	str_copy_clean(dst + at, size - at, name, len);
	if (end && at + len + 4 <= size)
		memcpy(dst + at + len, ".so", 4);
}
