/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed bodies: cut anywhere they give the same text, and never more than is allowed. */
#include "parse/gunzip.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
	uint64_t len, hash;
};

static void take(void *ctx, const char *data, size_t len)
{
	struct sum *s = ctx;

	s->len += len;
	for (size_t i = 0; i < len; i++)
		s->hash = (s->hash ^ (unsigned char)data[i]) * 0x100000001b3;
}

static struct sum unpack(const uint8_t *data, size_t size, size_t piece, bool *ret_ok)
{
	struct gunzip *g = gunzip__new();
	struct sum s = { 0 };

	*ret_ok = true;
	for (size_t at = 0; at < size && *ret_ok; at += piece)
		*ret_ok = !gunzip__feed(g, (const char *)data + at, size - at < piece ? size - at : piece, take, &s);
	gunzip__free(g);
	return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece = size ? data[0] % 64 + 1 : 1;
	bool whole_ok, pieces_ok;
	struct sum whole = unpack(data, size, size + 1, &whole_ok), pieces = unpack(data, size, piece, &pieces_ok);

	/* one that swells is given up as a whole, and perhaps not in pieces */
	if (whole_ok && (!pieces_ok || whole.len != pieces.len || whole.hash != pieces.hash))
		abort();
	return 0;
}
