/* SPDX-License-Identifier: Apache-2.0 */
/* A cursor over MessagePack that may be cut: walks arrays and maps, allocates nothing.
 *
 * Not libmsgpack: doc/design/msgpack.md says why, with numbers. */
#ifndef TL_MSGPACK_IN_H
#define TL_MSGPACK_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum mpin_type {
	MPIN_NONE = 0,		/* nothing more to read */
	MPIN_NIL, MPIN_BOOL, MPIN_INT, MPIN_FLOAT, MPIN_STR, MPIN_BIN, MPIN_ARRAY, MPIN_MAP,
	MPIN_EXT,
};

enum mpin_why {
	MPIN_OK = 0,
	MPIN_CUT,		/* a value needs more bytes than there are */
	MPIN_BAD,		/* a byte that begins no value */
};

/* Each function below takes exactly one value, or moves between values. Once the bytes end early or
 * make no sense, `why` is set and every call says "no": loops end by themselves. No call does more
 * work than there are bytes left, whatever a header claims and however deep values are nested. */
struct mpin {
	const uint8_t *p, *end;
	uint8_t why;		/* enum mpin_why */
};

/* The bytes of a string, binary or ext value. len < total: cut, and `why` is set. */
struct mpin_bytes {
	const uint8_t *p;
	size_t len;
	uint32_t total;
	uint8_t type;		/* enum mpin_type; MPIN_NONE: it was another */
	int8_t ext;		/* MPIN_EXT: its kind */
};
#define MPIN_IS(bytes, word) ((bytes).len == sizeof(word) - 1 && \
			      !memcmp((bytes).p, word, sizeof(word) - 1))

void mpin_init(struct mpin *m, const void *p, size_t len);

extern const uint8_t mpin_types[256];	/* enum mpin_type by a value's first byte */

static inline enum mpin_type mpin_peek(const struct mpin *m)
{
	return m->p < m->end ? (enum mpin_type)mpin_types[*m->p] : MPIN_NONE;
}

void mpin_skip(struct mpin *m, uint64_t n);	/* n values of any type */

/* A value of the wanted type. If it is of another, it is taken all the same, and false returned. */
bool mpin_bool(struct mpin *m, bool *ret);
bool mpin_int(struct mpin *m, int64_t *ret);	/* unsigned ones saturate */
bool mpin_float(struct mpin *m, double *ret);	/* integers too */
bool mpin_bytes(struct mpin *m, struct mpin_bytes *ret);

/* Enters a container: its elements, or its keys and values in turn, come next. *ret_n is what its
 * header says, also if less is there. */
bool mpin_array(struct mpin *m, uint32_t *ret_n);
bool mpin_map(struct mpin *m, uint32_t *ret_n);
/* while (mpin_more(m, &n)) { take one element } */
bool mpin_more(struct mpin *m, uint32_t *left);
/* while (mpin_key(m, &n, &key)) { take the value }; a key that is no string has
 * key.type != MPIN_STR and is none of the names that MPIN_IS() knows. */
bool mpin_key(struct mpin *m, uint32_t *left, struct mpin_bytes *key);

/* An array whose elements have meanings by position. */
struct mpin_row {
	uint32_t n;		/* as its header says */
	uint32_t next;		/* index of the element at the cursor */
};
bool mpin_row_begin(struct mpin *m, struct mpin_row *row);
/* Moves to element i, which the caller then takes. False: the row is shorter, cut before it, or
 * already behind it; nothing is to be taken then. */
bool mpin_row_at(struct mpin *m, struct mpin_row *row, uint32_t i);
void mpin_row_end(struct mpin *m, struct mpin_row *row);	/* moves behind the row */

#endif
