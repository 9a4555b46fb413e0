/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of event consists of: one table for checking, printing and reading them. */
#ifndef TL_PARSE_EVENT_H
#define TL_PARSE_EVENT_H

#include "tl_event.h"
#include "tl_file.h"
#include <stddef.h>
#include <stdint.h>

enum event_type {		/* of a field, or of the elements of an array */
	EVENT_U8, EVENT_S8, EVENT_U16, EVENT_S16, EVENT_U32, EVENT_S32, EVENT_U64,
	EVENT_TEXT,		/* char[]: ends with zeros */
	EVENT_BYTES,		/* __u8[] */
};
enum event_role {
	EVENT_VALUE,
	EVENT_BITS,		/* names[] are bits */
	EVENT_COUNT,		/* elements of the array at the end; several add up */
	EVENT_PAD,		/* zero */
	EVENT_IMPLIED,		/* same in all records of the kind: not shown */
};

struct event_name {
	uint32_t value;
	const char *name;	/* NULL ends a list */
};

struct event_field {
	const char *name;
	uint16_t offset, bytes;
	uint8_t type, role;	/* enum event_type, event_role */
	const struct event_name *names;	/* of its values; NULL: it is a plain number */
};

/* What stands at the end of a record. */
struct event_array {
	const char *name;
	uint16_t elem_size, max;
	const struct event_field *fields;	/* of an element; NULL: elements are bytes */
	size_t n_fields;
};

struct event_kind {
	uint16_t kind;
	uint16_t size;		/* without the array */
	const char *name;
	const struct event_field *fields;	/* by offset, behind the common header */
	size_t n_fields;
	const struct event_name *flags;	/* of tl_hdr.flags, besides the common ones; NULL: none */
	const struct event_array *array;	/* NULL: none */
};

const struct event_kind *event_kind(uint16_t kind);		/* NULL: not known */
const struct event_kind *event_kind_by_name(const char *name);	/* NULL: not known */
extern const struct event_name event_common_flags[];
/* tl_file_hdr, described the same way; its kind is TL_NONE. */
extern const struct event_kind event_file_header;

uint32_t event_type_bytes(uint8_t type);	/* of one element */
/* Elements of the array, as the record's own fields say. */
size_t event_n_elements(const struct event_kind *k, const void *ev);
/* Size of a record with n elements, as today's writers make it. */
size_t event_size(const struct event_kind *k, size_t n_elements);

/* The smallest record of a known kind that is taken: an older writer may know fewer fields. */
enum { EVENT_MIN_SIZE = sizeof(struct tl_hdr) + 8 };

/*
 * Is this record (whose size is sound) what its kind says? Returns it, or, if it is shorter than
 * today's struct, a copy in `room` with zeros behind (event_kind.size bytes are needed, 8-aligned;
 * EVENT_ROOM suffices for all). NULL: its counts and its size do not agree.
 */
enum { EVENT_ROOM = 512 };
const struct tl_hdr *event_view(const struct event_kind *k, const struct tl_hdr *ev, void *room);

#endif
