/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a compressed body (gzip, or deflate as HTTP means it), cut anywhere. Pure; zlib inside. */
#ifndef TL_GUNZIP_H
#define TL_GUNZIP_H

#include <stddef.h>
#include <stdint.h>

struct gunzip;		/* about 40 KiB */

struct gunzip *gunzip__new(void);	/* NULL: out of memory */
void gunzip__free(struct gunzip *g);	/* NULL is fine */

/* Feeds the next bytes; `out` gets what they hold, as far as it can be told by now. Returns 0, or
 * -EBADMSG: they are no such thing, or swell beyond all measure; from then on always. */
typedef void (*gunzip_fn)(void *ctx, const char *data, size_t len);
int gunzip__feed(struct gunzip *g, const char *buf, size_t len, gunzip_fn out, void *ctx);

#endif
