/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON as it comes, compact, to a callback. Cannot write invalid JSON. */
#ifndef TL_JSONW_H
#define TL_JSONW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes the next bytes. Returns 0 or -errno; after an error nothing more is written. */
typedef int (*jsonw_fn)(void *ctx, const char *data, size_t len);

enum { JSONW_MAX_DEPTH = 32 };
struct jsonw {			/* private: use the functions */
	jsonw_fn fn;
	void *ctx;
	int err;
	unsigned int depth;
	bool after_key;
	bool is_object[JSONW_MAX_DEPTH], has_items[JSONW_MAX_DEPTH];
	size_t len;
	char out[2048];
};

void jsonw__init(struct jsonw *w, jsonw_fn fn, void *ctx);

void jsonw__object(struct jsonw *w);
void jsonw__end_object(struct jsonw *w);
void jsonw__array(struct jsonw *w);
void jsonw__end_array(struct jsonw *w);
void jsonw__key(struct jsonw *w, const char *name);	/* before each value of an object */

void jsonw__str(struct jsonw *w, const char *s);	/* NULL: null */
/* Bytes that form no UTF-8 become U+FFFD. */
void jsonw__strn(struct jsonw *w, const char *s, size_t len);
void jsonw__hex(struct jsonw *w, const void *data, size_t len);	/* a string of hex digits */
void jsonw__u64(struct jsonw *w, uint64_t v);
void jsonw__s64(struct jsonw *w, int64_t v);
/* v / 10^decimals, exactly and with all decimals: (1500, 3) is 1.500. For times: no double. */
void jsonw__fixed(struct jsonw *w, int64_t v, unsigned int decimals);
/* Rounded to that many decimals (at most 15); not finite: null. */
void jsonw__double(struct jsonw *w, double v, unsigned int decimals);
void jsonw__bool(struct jsonw *w, bool v);
void jsonw__null(struct jsonw *w);

/* Ends a document, from depth 0, with a newline; the next value starts another (JSON lines). */
void jsonw__newline(struct jsonw *w);
/* Hands out what is buffered. Returns 0, or the first error of fn. Call it last, from depth 0. */
int jsonw__finish(struct jsonw *w);

#endif
