/* SPDX-License-Identifier: Apache-2.0 */
/* Events as JSON, by the table of event_table.c. */
#include "parse/event.h"
#include "parse/event_json.h"

#include <string.h>

static const char *name_of(const struct event_name *names, uint32_t value)
{
	for (; names && names->name; names++)
		if (names->value == value)
			return names->name;
	return NULL;
}

/* ["A","B"], or a number when a bit has no name. */
static void put_bits(struct jsonw *w, uint32_t bits, const struct event_name *names,
		     const struct event_name *more)
{
	uint32_t known = 0;

	for (const struct event_name *n = names; n && n->name; n++)
		known |= n->value;
	for (const struct event_name *n = more; n && n->name; n++)
		known |= n->value;
	if (bits & ~known) {
		jsonw__u64(w, bits);
		return;
	}
	jsonw__array(w);
	for (const struct event_name *n = names; n && n->name; n++)
		if (bits & n->value)
			jsonw__str(w, n->name);
	for (const struct event_name *n = more; n && n->name; n++)
		if (bits & n->value)
			jsonw__str(w, n->name);
	jsonw__end_array(w);
}

static void put_number(struct jsonw *w, const struct event_field *f, const uint8_t *p)
{
	uint64_t v = 0;
	const char *name;

	memcpy(&v, p, event_type_bytes(f->type));	/* little endian */
	if (f->role == EVENT_BITS) {
		put_bits(w, (uint32_t)v, f->names, NULL);
		return;
	}
	name = name_of(f->names, (uint32_t)v);
	if (name)
		jsonw__str(w, name);
	else if (f->type == EVENT_S8)
		jsonw__s64(w, (int8_t)v);
	else if (f->type == EVENT_S16)
		jsonw__s64(w, (int16_t)v);
	else if (f->type == EVENT_S32)
		jsonw__s64(w, (int32_t)v);
	else
		jsonw__u64(w, v);
}

/* Texts are printable and filled up with zeros; one that is not is kept as hex of all its bytes. */
static void put_text(struct jsonw *w, const uint8_t *p, size_t size)
{
	size_t len = strnlen((const char *)p, size), i;

	for (i = 0; i < len && p[i] >= ' ' && p[i] <= '~'; i++)
		;
	if (i == len && len < size) {
		for (; i < size && !p[i]; i++)
			;
		if (i == size) {
			jsonw__strn(w, (const char *)p, len);
			return;
		}
	}
	jsonw__object(w);
	jsonw__key(w, "hex");
	jsonw__hex(w, p, size);
	jsonw__end_object(w);
}

static bool all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static void put_field(struct jsonw *w, const struct event_field *f, const uint8_t *p)
{
	size_t elem = event_type_bytes(f->type), n = f->bytes / elem;

	jsonw__key(w, f->name);
	if (f->type == EVENT_TEXT) {
		put_text(w, p, f->bytes);
	} else if (f->type == EVENT_BYTES) {
		jsonw__hex(w, p, f->bytes);
	} else if (n == 1) {
		put_number(w, f, p);
	} else {
		while (n > 0 && all_zero(p + (n - 1) * elem, elem))
			n--;
		jsonw__array(w);
		for (size_t i = 0; i < n; i++)
			put_number(w, f, p + i * elem);
		jsonw__end_array(w);
	}
}

/* Fields of a record of which `size` bytes are there. */
static void put_fields(struct jsonw *w, const struct event_field *fields, size_t n_fields,
		       const uint8_t *rec, size_t size, bool with_counts)
{
	for (size_t i = 0; i < n_fields; i++) {
		const struct event_field *f = &fields[i];
		const uint8_t *p = rec + f->offset;

		if (f->role == EVENT_IMPLIED || (f->role == EVENT_COUNT && !with_counts))
			continue;
		if (f->offset + (size_t)f->bytes > size)
			break;
		if ((f->role == EVENT_PAD || f->role == EVENT_BITS) && all_zero(p, f->bytes))
			continue;
		put_field(w, f, p);
	}
}

static void put_array(struct jsonw *w, const struct event_array *a, const uint8_t *p, size_t n)
{
	jsonw__key(w, a->name);
	if (!a->fields) {
		jsonw__hex(w, p, n);
		return;
	}
	jsonw__array(w);
	for (size_t i = 0; i < n; i++) {
		jsonw__object(w);
		put_fields(w, a->fields, a->n_fields, p + i * a->elem_size, a->elem_size, true);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

static void put_common(struct jsonw *w, const struct tl_hdr *ev, const struct event_name *flags)
{
	jsonw__key(w, "ts_ns");
	jsonw__u64(w, ev->ts_ns);
	if (ev->tgid) {
		jsonw__key(w, "tgid");
		jsonw__u64(w, ev->tgid);
	}
	if (ev->tid) {
		jsonw__key(w, "tid");
		jsonw__u64(w, ev->tid);
	}
	if (ev->flags) {
		jsonw__key(w, "flags");
		put_bits(w, ev->flags, flags, event_common_flags);
	}
}

void event_json_header(struct jsonw *w, const struct tl_file_hdr *hdr)
{
	const struct event_kind *k = &event_file_header;

	jsonw__object(w);
	jsonw__key(w, "kind");
	jsonw__str(w, k->name);
	put_fields(w, k->fields, k->n_fields, (const uint8_t *)hdr, k->size, true);
	jsonw__end_object(w);
}

/* One array with one count: its length says it. */
static bool counts_are_plain(const struct event_kind *k)
{
	size_t n = 0;

	for (size_t i = 0; i < k->n_fields; i++)
		n += k->fields[i].role == EVENT_COUNT;
	return n == 1;
}

/* A record that ends within a field comes from no writer. */
static bool ends_in_field(const struct event_kind *k, size_t size)
{
	for (size_t i = 0; i < k->n_fields; i++)
		if (k->fields[i].offset < size &&
		    size < k->fields[i].offset + (size_t)k->fields[i].bytes)
			return true;
	return false;
}

void event_json(struct jsonw *w, const struct tl_hdr *ev)
{
	const struct event_kind *k = event_kind(ev->kind);
	uint64_t room[EVENT_ROOM / sizeof(uint64_t)];
	const uint8_t *rec = (const uint8_t *)ev;
	size_t n = 0, end;

	jsonw__object(w);
	jsonw__key(w, "kind");
	if (!k || !event_view(k, ev, room) || ends_in_field(k, ev->size)) {
		jsonw__u64(w, ev->kind);
		put_common(w, ev, NULL);
		jsonw__key(w, "payload");
		jsonw__hex(w, ev + 1, ev->size - sizeof(*ev));
		jsonw__end_object(w);
		return;
	}
	jsonw__str(w, k->name);
	put_common(w, ev, k->flags);
	put_fields(w, k->fields, k->n_fields, rec, ev->size, !counts_are_plain(k));
	if (k->array) {
		n = event_n_elements(k, ev);
		put_array(w, k->array, rec + k->size, n);
	}
	end = k->size + (k->array ? n * k->array->elem_size : 0);
	if (ev->size < k->size) {
		jsonw__key(w, "size");	/* an older writer knew fewer fields */
		jsonw__u64(w, ev->size);
	} else if (ev->size != event_size(k, n) || !all_zero(rec + end, ev->size - end)) {
		jsonw__key(w, "more");	/* a newer writer knows more */
		jsonw__hex(w, rec + end, ev->size - end);
	}
	jsonw__end_object(w);
}
