/* SPDX-License-Identifier: Apache-2.0 */
/* How records of each kind are checked; what they consist of is in event_table.c. */
#include "parse/event.h"

#include <string.h>

uint32_t event_type_bytes(uint8_t type)
{
	switch ((enum event_type)type) {
	case EVENT_U16:
	case EVENT_S16:
		return 2;
	case EVENT_U32:
	case EVENT_S32:
		return 4;
	case EVENT_U64:
		return 8;
	case EVENT_U8:
	case EVENT_S8:
	case EVENT_TEXT:
	case EVENT_BYTES:
		break;
	}
	return 1;
}

size_t event_n_elements(const struct event_kind *k, const void *ev)
{
	size_t n = 0;

	for (size_t i = 0; i < k->n_fields; i++) {
		const struct event_field *f = &k->fields[i];
		uint32_t v = 0;

		if (f->role != EVENT_COUNT)
			continue;
		memcpy(&v, (const uint8_t *)ev + f->offset, f->bytes);	/* little endian */
		n += v;
	}
	return n;
}

size_t event_size(const struct event_kind *k, size_t n_elements)
{
	return k->array ? (k->size + n_elements * k->array->elem_size + 7) / 8 * 8 : k->size;
}

const struct tl_hdr *event_view(const struct event_kind *k, const struct tl_hdr *ev, void *room)
{
	size_t n;

	if (ev->size < k->size) {
		/* the counts of an array are not optional */
		if (k->array || ev->size < EVENT_MIN_SIZE || k->size > EVENT_ROOM)
			return NULL;
		memcpy(room, ev, ev->size);
		memset((uint8_t *)room + ev->size, 0, k->size - ev->size);
		return room;
	}
	if (!k->array)
		return ev;
	n = event_n_elements(k, ev);
	if (n > k->array->max || event_size(k, n) > ev->size)
		return NULL;
	return ev;
}
