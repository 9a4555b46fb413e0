/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds zlib and bounds what comes out. */
#include "parse/gunzip.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

enum {
	OUT_BYTES = 8192,
	MAX_OUT = 8 << 20,	/* of one feed: a write of 64 KiB
				 * holds less, unless it means harm */
	GZIP_OR_ZLIB = 32 + MAX_WBITS,	/* zlib tells them apart by their first bytes */
};

struct gunzip {
	z_stream z;
	bool failed, ended;
	unsigned char out[OUT_BYTES];
};

struct gunzip *gunzip__new(void)
{
	struct gunzip *g = calloc(1, sizeof(*g));

	if (g && inflateInit2(&g->z, GZIP_OR_ZLIB) != Z_OK) {
		free(g);
		return NULL;
	}
	return g;
}

void gunzip__free(struct gunzip *g)
{
	if (!g)
		return;
	inflateEnd(&g->z);
	free(g);
}

int gunzip__feed(struct gunzip *g, const char *buf, size_t len, gunzip_fn out, void *ctx)
{
	size_t total = 0, n;
	int r = Z_OK;

	if (g->failed)
		return -EBADMSG;
	g->z.next_in = (unsigned char *)buf;
	g->z.avail_in = len;
	while (!g->ended && r == Z_OK) {
		g->z.next_out = g->out;
		g->z.avail_out = OUT_BYTES;
		r = inflate(&g->z, Z_SYNC_FLUSH);
		n = OUT_BYTES - g->z.avail_out;
		total += n;
		if (n && (r == Z_OK || r == Z_STREAM_END))
			out(ctx, (const char *)g->out, n);
		if (r == Z_STREAM_END)
			g->ended = true;	/* what follows is padding */
		if (total > MAX_OUT || (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR))
			g->failed = true;
		if (g->failed)
			return -EBADMSG;
		if (!g->z.avail_in && g->z.avail_out)
			break;
	}
	return 0;
}
