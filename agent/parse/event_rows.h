/* SPDX-License-Identifier: Apache-2.0 */
/* How rows of the tables of kinds and fields are written: for the files that hold these tables. */
#ifndef TL_PARSE_EVENT_ROWS_H
#define TL_PARSE_EVENT_ROWS_H

#include "base/util.h"
#include "parse/event.h"

#define NAMES(list, ...) static const struct event_name list[] = { __VA_ARGS__, { 0, NULL } }

/* The type of a field follows from the struct, so that it cannot disagree with it. */
#define MEMBER(st, f) (((struct st *)0)->f)
#define TYPE(st, f) _Generic(MEMBER(st, f),					\
	__u8: EVENT_U8, __s8: EVENT_S8, __u16: EVENT_U16, __s16: EVENT_S16,	\
	__u32: EVENT_U32, __s32: EVENT_S32, __u64: EVENT_U64,			\
	__u16 *: EVENT_U16, __u64 *: EVENT_U64, char *: EVENT_TEXT, __u8 *: EVENT_BYTES)
#define ROW(st, f, role, names) \
	{ #f, offsetof(struct st, f), sizeof(MEMBER(st, f)), TYPE(st, f), role, names }

#define F(st, f) ROW(st, f, EVENT_VALUE, NULL)
#define F_NAMED(st, f, names) ROW(st, f, EVENT_VALUE, names)
#define F_BITS(st, f, names) ROW(st, f, EVENT_BITS, names)
#define F_COUNT(st, f) ROW(st, f, EVENT_COUNT, NULL)
#define F_PAD(st, f) ROW(st, f, EVENT_PAD, NULL)
#define F_IMPLIED(st, f) ROW(st, f, EVENT_IMPLIED, NULL)

#define KIND(number, st, flags, array, size) \
	{ number, size, #st, st##_fields, ARRAY_SIZE(st##_fields), flags, array }
#define PLAIN(number, st) KIND(number, st, NULL, NULL, sizeof(struct tl_##st))

/* event_evidence.c: the kinds of tl_evidence.h and tl_gpu.h that recordings hold, by
 * number from TL_THREAD on. */
extern const struct event_kind event_evidence_kinds[];
extern const size_t event_n_evidence_kinds;

#endif
