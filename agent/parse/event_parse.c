/* SPDX-License-Identifier: Apache-2.0 */
/* Events from JSON lines, by the table of event_table.c. */
#define JSMN_STATIC
#define JSMN_STRICT
#include <jsmn.h>

#include "base/plural.h"
#include "base/util.h"
#include "parse/event.h"
#include "parse/event_json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	MAX_TOKENS = 64 * 1024,	/* a step with all its members needs half of that */
	MAX_NAME = 64,
	MAX_KEYS = 64,		/* of one object: twice as many as any record has */
};

struct event_parser {
	jsmntok_t *tokens;
	size_t n_tokens, max_tokens;
	const char *line;	/* during event_parser__line */
	struct tl_file_hdr header;
	char why[160];
	size_t dirty_bytes;	/* of rec: those that may not be zero */
	union {
		struct tl_hdr hdr;
		uint8_t bytes[TL_EVENT_MAX + 8];
	} rec;
};

/* The object that is read: a record, or an element of its array. */
struct target {
	const struct event_field *fields;
	size_t n_fields;
	uint8_t *at;
};

struct event_parser *event_parser__new(void)
{
	struct event_parser *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->max_tokens = 128;
	p->tokens = malloc(p->max_tokens * sizeof(*p->tokens));
	if (!p->tokens) {
		free(p);
		return NULL;
	}
	return p;
}

void event_parser__free(struct event_parser *p)
{
	if (!p)
		return;
	free(p->tokens);
	free(p);
}

const char *event_parser__why(const struct event_parser *p)
{
	return p->why;
}

__attribute__((format(printf, 2, 3)))
static int refuse(struct event_parser *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->why, sizeof(p->why), fmt, ap);
	va_end(ap);
	/* what is quoted comes from a file */
	for (char *c = p->why; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return -EINVAL;
}

/* ---- tokens ---- */

static size_t token_len(const jsmntok_t *t)
{
	return (size_t)(t->end - t->start);
}

/* How much of a token an error message quotes; for "%.*s". */
static int shown(const jsmntok_t *t)
{
	return token_len(t) < 40 ? (int)token_len(t) : 40;
}

/* The token behind t and all that is in it. */
static const jsmntok_t *skip(const struct event_parser *p, const jsmntok_t *t)
{
	const jsmntok_t *end = p->tokens + p->n_tokens;
	int stop = t->end;

	for (t++; t < end && t->start < stop; t++)
		;
	return t;
}

static bool token_is(const struct event_parser *p, const jsmntok_t *t, const char *s)
{
	return t->type == JSMN_STRING && token_len(t) == strlen(s) &&
	       strncasecmp(p->line + t->start, s, token_len(t)) == 0;
}

/* A string without escapes other than of '"' and '\': nothing that we print needs more. */
static int token_text(struct event_parser *p, const jsmntok_t *t, char *out, size_t size)
{
	const char *s = p->line + t->start;
	size_t n = 0;

	if (t->type != JSMN_STRING)
		return refuse(p, "a string is wanted, not '%.*s'", shown(t), s);
	for (size_t i = 0; i < token_len(t); i++) {
		char c = s[i];

		if (c == '\\') {
			c = s[++i];
			if (c != '"' && c != '\\' && c != '/')
				return refuse(p, "a string has an escape other than \\\" and \\\\");
		} else if (c < ' ' || c > '~') {
			return refuse(p, "a string has a character that is not printable ASCII");
		}
		if (n + 1 >= size)
			return refuse(p, "a string is longer than %zu bytes", size - 1);
		out[n++] = c;
	}
	memset(out + n, 0, size - n);
	return 0;
}

/* An integer, times scale (a power of ten): then it may have as many decimals. */
static int token_number(struct event_parser *p, const jsmntok_t *t, uint64_t scale,
			bool *ret_negative, uint64_t *ret)
{
	const char *s = p->line + t->start, *end = p->line + t->end;
	bool negative = t->type == JSMN_PRIMITIVE && *s == '-', point = false;
	uint64_t v = 0, left = scale;

	s += negative;
	if (t->type != JSMN_PRIMITIVE || s == end || *s < '0' || *s > '9')
		goto bad;
	for (; s < end; s++) {
		if (*s == '.' && !point && scale > 1 && s + 1 < end) {
			point = true;
			continue;
		}
		if (*s < '0' || *s > '9' || left == 0)
			goto bad;
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			goto bad;
		if (point) {
			left /= 10;
			if (left == 0)
				goto bad;
		}
	}
	if (__builtin_mul_overflow(v, left, &v))
		goto bad;
	*ret_negative = negative && v != 0;
	*ret = v;
	return 0;
bad:
	return refuse(p, "'%.*s' is no number that fits", shown(t), p->line + t->start);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A string of hex digits; at most max bytes. Returns how many, or -EINVAL. */
static int token_hex(struct event_parser *p, const jsmntok_t *t, uint8_t *out, size_t max)
{
	const char *s = p->line + t->start;
	size_t n = token_len(t) / 2;

	if (t->type != JSMN_STRING || token_len(t) % 2)
		return refuse(p, "a string with an even number of hex digits is wanted");
	if (n > max)
		return refuse(p, "%zu byte%s of hex %s not fit into %zu", n, plural_s(n), plural(n, "does", "do"), max);
	for (size_t i = 0; i < n; i++) {
		int hi = hex_digit(s[2 * i]), lo = hex_digit(s[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return refuse(p, "a string with an even number of hex digits is wanted");
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return (int)n;
}

/* ---- values ---- */

static bool find_name(const struct event_parser *p, const jsmntok_t *t,
		      const struct event_name *names, uint32_t *ret)
{
	for (; names && names->name; names++) {
		if (token_is(p, t, names->name)) {
			*ret = names->value;
			return true;
		}
	}
	return false;
}

static int unknown_name(struct event_parser *p, const jsmntok_t *t)
{
	return refuse(p, "'%.*s' is no name of a value here", shown(t), p->line + t->start);
}

static int parse_bits(struct event_parser *p, const jsmntok_t *t, const struct event_name *names,
		      const struct event_name *more, uint64_t *ret)
{
	const jsmntok_t *item = t + 1;
	uint32_t bits = 0, bit;
	bool negative = false;
	int err;

	if (t->type != JSMN_ARRAY) {
		err = token_number(p, t, 1, &negative, ret);
		return err ? err : negative ? refuse(p, "bits cannot be negative") : 0;
	}
	for (int i = 0; i < t->size; i++, item = skip(p, item)) {
		if (!find_name(p, item, names, &bit) && !find_name(p, item, more, &bit))
			return unknown_name(p, item);
		bits |= bit;
	}
	*ret = bits;
	return 0;
}

static bool fits(uint8_t type, bool negative, uint64_t v)
{
	switch ((enum event_type)type) {
	case EVENT_U8:
		return !negative && v <= UINT8_MAX;
	case EVENT_U16:
		return !negative && v <= UINT16_MAX;
	case EVENT_U32:
		return !negative && v <= UINT32_MAX;
	case EVENT_U64:
		return !negative;
	case EVENT_S8:
		return v <= (uint64_t)INT8_MAX + negative;
	case EVENT_S16:
		return v <= (uint64_t)INT16_MAX + negative;
	case EVENT_S32:
		return v <= (uint64_t)INT32_MAX + negative;
	case EVENT_TEXT:
	case EVENT_BYTES:
		break;
	}
	return false;
}

static int parse_number(struct event_parser *p, const jsmntok_t *t, const struct event_field *f,
			uint8_t *at)
{
	bool negative = false;
	uint64_t v = 0;
	uint32_t named;
	int err;

	if (f->role == EVENT_BITS) {
		err = parse_bits(p, t, f->names, NULL, &v);
	} else if (t->type == JSMN_STRING) {
		err = find_name(p, t, f->names, &named) ? 0 : unknown_name(p, t);
		v = named;
	} else {
		err = token_number(p, t, 1, &negative, &v);
	}
	if (err)
		return err;
	if (!fits(f->type, negative, v))
		return refuse(p, "the value of '%s' is out of range", f->name);
	if (negative)
		v = 0 - v;
	memcpy(at, &v, event_type_bytes(f->type));	/* little endian */
	return 0;
}

static int parse_field(struct event_parser *p, const jsmntok_t *t, const struct event_field *f,
		       uint8_t *at)
{
	size_t elem = event_type_bytes(f->type), max = f->bytes / elem;
	const jsmntok_t *item = t + 1;
	int n;

	if (f->type == EVENT_TEXT && t->type == JSMN_OBJECT && t->size == 1 && item->size == 1 &&
	    token_is(p, item, "hex"))
		t = item + 1;
	else if (f->type == EVENT_TEXT)
		return token_text(p, t, (char *)at, f->bytes);
	if (f->type == EVENT_TEXT || f->type == EVENT_BYTES) {
		n = token_hex(p, t, at, f->bytes);
		return n < 0 ? n : 0;
	}
	if (max == 1)
		return parse_number(p, t, f, at);
	if (t->type != JSMN_ARRAY || (size_t)t->size > max)
		return refuse(p, "'%s' wants an array of at most %zu numbers", f->name, max);
	for (int i = 0; i < t->size; i++, item = skip(p, item)) {
		int err = parse_number(p, item, f, at + (size_t)i * elem);

		if (err)
			return err;
	}
	return 0;
}

/* ---- objects ---- */

/* Which of two would count is not for us to choose. */
static bool is_twice(const struct event_parser *p, const jsmntok_t *const *seen, int n,
		     const jsmntok_t *t)
{
	for (int i = 0; i < n; i++)
		if (token_len(seen[i]) == token_len(t) &&
		    !memcmp(p->line + seen[i]->start, p->line + t->start, token_len(t)))
			return true;
	return false;
}

/* Calls fn with each key and its value; the object's grammar is checked here. */
static int each_pair(struct event_parser *p, const jsmntok_t *object,
		     int (*fn)(struct event_parser *p, const char *key, const jsmntok_t *value,
			       void *ctx),
		     void *ctx)
{
	const jsmntok_t *t = object + 1, *end = p->tokens + p->n_tokens, *seen[MAX_KEYS];

	if (object->type != JSMN_OBJECT)
		return refuse(p, "an object {...} is wanted");
	for (int i = 0; i < object->size; i++) {
		char key[MAX_NAME];
		int err;

		if (t + 1 >= end || t->type != JSMN_STRING || t->size != 1)
			return refuse(p, "it is not valid JSON");
		err = token_text(p, t, key, sizeof(key));
		if (!err && i == MAX_KEYS)
			err = refuse(p, "an object has more than %d keys", MAX_KEYS);
		else if (!err && is_twice(p, seen, i, t))
			err = refuse(p, "the key '%s' comes twice", key);
		if (!err)
			err = fn(p, key, t + 1, ctx);
		if (!err)
			seen[i] = t;
		if (err)
			return err;
		t = skip(p, t + 1);
	}
	return 0;
}

static int set_field(struct event_parser *p, const char *key, const jsmntok_t *value, void *ctx)
{
	const struct target *to = ctx;

	for (size_t i = 0; i < to->n_fields; i++) {
		const struct event_field *f = &to->fields[i];

		if (f->role != EVENT_IMPLIED && strcmp(f->name, key) == 0)
			return parse_field(p, value, f, to->at + f->offset);
	}
	return refuse(p, "unknown key '%s'", key);
}

/* What a record needs besides its fields. */
struct record {
	const struct event_kind *k;	/* NULL: not known, has a payload */
	struct target fields;
	const jsmntok_t *array, *more, *payload, *size;
	bool has_time;
};

static int set_number(struct event_parser *p, const jsmntok_t *t, uint8_t type, uint64_t scale,
		      void *at)
{
	bool negative = false;
	uint64_t v = 0;
	int err = token_number(p, t, scale, &negative, &v);

	if (err)
		return err;
	if (!fits(type, negative, v))
		return refuse(p, "'%.*s' is out of range", shown(t), p->line + t->start);
	memcpy(at, &v, event_type_bytes(type));
	return 0;
}

static int set_record(struct event_parser *p, const char *key, const jsmntok_t *value, void *ctx)
{
	struct record *r = ctx;
	struct tl_hdr *hdr = &p->rec.hdr;
	uint64_t bits = 0;
	int err;

	if (strcmp(key, "kind") == 0)
		return 0;	/* read before all others */
	if (!strncmp(key, "ts_", 3) && r->has_time)
		return refuse(p, "it has both ts_ns and ts_ms");
	r->has_time |= !strncmp(key, "ts_", 3);
	if (strcmp(key, "ts_ns") == 0)
		return set_number(p, value, EVENT_U64, 1, &hdr->ts_ns);
	if (strcmp(key, "ts_ms") == 0)
		return set_number(p, value, EVENT_U64, 1000000, &hdr->ts_ns);
	if (strcmp(key, "tgid") == 0)
		return set_number(p, value, EVENT_U32, 1, &hdr->tgid);
	if (strcmp(key, "tid") == 0)
		return set_number(p, value, EVENT_U32, 1, &hdr->tid);
	if (strcmp(key, "flags") == 0) {
		err = parse_bits(p, value, r->k ? r->k->flags : NULL, event_common_flags, &bits);
		if (!err && bits > UINT32_MAX)
			return refuse(p, "the value of 'flags' is out of range");
		if (!err)
			hdr->flags = (uint32_t)bits;
		return err;
	}
	if (strcmp(key, "payload") == 0)
		r->payload = value;
	else if (strcmp(key, "more") == 0)
		r->more = value;
	else if (strcmp(key, "size") == 0)
		r->size = value;
	else if (r->k && r->k->array && strcmp(key, r->k->array->name) == 0)
		r->array = value;
	else
		return set_field(p, key, value, &r->fields);
	return 0;
}

static int parse_elements(struct event_parser *p, const struct event_array *a, const jsmntok_t *t,
			  uint8_t *at, size_t *ret_n)
{
	struct target to = { .fields = a->fields, .n_fields = a->n_fields };
	const jsmntok_t *item = t + 1;
	int err;

	if (!a->fields) {
		err = token_hex(p, t, at, a->max);
		*ret_n = err < 0 ? 0 : (size_t)err;
		return err < 0 ? err : 0;
	}
	if (t->type != JSMN_ARRAY || t->size > a->max)
		return refuse(p, "'%s' wants an array of at most %u objects", a->name, a->max);
	for (int i = 0; i < t->size; i++, item = skip(p, item)) {
		to.at = at + (size_t)i * a->elem_size;
		err = each_pair(p, item, set_field, &to);
		if (err)
			return err;
	}
	*ret_n = (size_t)t->size;
	return 0;
}

/* The array, and that its counts agree; one that stands alone need not be written. */
static int finish_array(struct event_parser *p, const struct record *r, size_t *ret_n)
{
	const struct event_field *count = NULL;
	size_t n_counts = 0, said = event_n_elements(r->k, p->rec.bytes);
	int err;

	*ret_n = 0;
	if (r->array) {
		err = parse_elements(p, r->k->array, r->array, p->rec.bytes + r->k->size, ret_n);
		if (err)
			return err;
	}
	for (size_t i = 0; i < r->k->n_fields; i++) {
		if (r->k->fields[i].role == EVENT_COUNT) {
			count = &r->k->fields[i];
			n_counts++;
		}
	}
	if (n_counts == 1 && said == 0)
		memcpy(p->rec.bytes + count->offset, ret_n, count->bytes);
	else if (said != *ret_n)
		return refuse(p, "'%s' has %zu elements, but %zu are announced", r->k->array->name,
			      *ret_n, said);
	return 0;
}

static int finish_record(struct event_parser *p, const struct record *r)
{
	struct tl_hdr *hdr = &p->rec.hdr;
	size_t n = 0, end;
	int err;

	if (r->payload) {
		err = token_hex(p, r->payload, (uint8_t *)(hdr + 1), TL_EVENT_MAX - sizeof(*hdr));
		if (err < 0)
			return err;
		end = sizeof(*hdr) + (size_t)err;
	} else if (!r->k) {
		return refuse(p, "a kind that is not known needs a 'payload'");
	} else if (r->size) {
		uint16_t size = 0;

		err = set_number(p, r->size, EVENT_U16, 1, &size);
		if (err)
			return err;
		if (r->k->array || size >= r->k->size || size < EVENT_MIN_SIZE)
			return refuse(p, "'size' is not between %d and %u", EVENT_MIN_SIZE,
				      r->k->size);
		end = size;
	} else {
		if (r->k->array) {
			err = finish_array(p, r, &n);
			if (err)
				return err;
		}
		end = r->k->size + (r->k->array ? n * r->k->array->elem_size : 0);
		if (r->more) {
			err = token_hex(p, r->more, p->rec.bytes + end, TL_EVENT_MAX - end);
			if (err < 0)
				return err;
			end += (size_t)err;
		} else {
			end = event_size(r->k, n);
		}
	}
	if (end % 8 || end > TL_EVENT_MAX)
		return refuse(p, "the record would have %zu bytes: no multiple of 8, or too many",
			      end);
	hdr->size = (uint16_t)end;
	return 0;
}

/* ---- lines ---- */

static int tokenize(struct event_parser *p, const char *line, size_t len)
{
	jsmn_parser parser;
	int n;

	for (;;) {
		jsmntok_t *more;

		jsmn_init(&parser);
		n = jsmn_parse(&parser, line, len, p->tokens, (unsigned int)p->max_tokens);
		if (n != JSMN_ERROR_NOMEM)
			break;
		if (p->max_tokens * 2 > MAX_TOKENS)
			return refuse(p, "the line is too long");
		more = realloc(p->tokens, p->max_tokens * 2 * sizeof(*more));
		if (!more)
			return -ENOMEM;
		p->tokens = more;
		p->max_tokens *= 2;
	}
	if (n == JSMN_ERROR_PART && memchr(line, '{', len))
		return refuse(p, "it ends too early");
	if (n <= 0)
		return refuse(p, "it is not valid JSON");
	p->n_tokens = (size_t)n;
	if (skip(p, p->tokens) != p->tokens + n)
		return refuse(p, "something follows the object");
	return 0;
}

static int find_kind(struct event_parser *p, const char *key, const jsmntok_t *value, void *ctx)
{
	const jsmntok_t **ret = ctx;

	(void)p;
	if (strcmp(key, "kind") == 0)
		*ret = value;
	return 0;
}

static int set_header(struct event_parser *p, const char *key, const jsmntok_t *value, void *ctx)
{
	return strcmp(key, "kind") == 0 ? 0 : set_field(p, key, value, ctx);
}

static int parse_header(struct event_parser *p)
{
	struct target to = { event_file_header.fields, event_file_header.n_fields,
			     (uint8_t *)&p->header };
	struct tl_file_hdr *h = &p->header;
	int err;

	*h = (struct tl_file_hdr){ .hdr_size = sizeof(*h),
				   .major = TL_FILE_MAJOR,
				   .minor = TL_FILE_MINOR };
	memcpy(h->magic, TL_FILE_MAGIC, sizeof(h->magic));
	err = each_pair(p, p->tokens, set_header, &to);
	if (!err && h->major != TL_FILE_MAJOR)
		err = refuse(p, "format %u is not known", h->major);
	return err;
}

static int parse_record(struct event_parser *p, const jsmntok_t *kind)
{
	struct record r = { 0 };
	char name[MAX_NAME];
	int err;

	memset(&p->rec, 0, p->dirty_bytes);
	p->dirty_bytes = sizeof(p->rec);
	if (kind->type == JSMN_STRING) {
		err = token_text(p, kind, name, sizeof(name));
		if (err)
			return err;
		r.k = event_kind_by_name(name);
		if (!r.k)
			return refuse(p, "unknown kind '%s'", name);
		p->rec.hdr.kind = r.k->kind;
	} else {
		err = set_number(p, kind, EVENT_U16, 1, &p->rec.hdr.kind);
		if (err)
			return err;
		r.k = event_kind(p->rec.hdr.kind);
	}
	if (r.k)
		r.fields = (struct target){ r.k->fields, r.k->n_fields, p->rec.bytes };
	err = each_pair(p, p->tokens, set_record, &r);
	if (!err)
		err = finish_record(p, &r);
	if (!err)
		p->dirty_bytes = r.k && r.k->size > p->rec.hdr.size ? r.k->size : p->rec.hdr.size;
	return err;
}

int event_parser__line(struct event_parser *p, const char *line, size_t len, struct event_line *ret)
{
	const jsmntok_t *kind = NULL;
	int err;

	p->line = line;
	if (memchr(line, 0, len))
		return refuse(p, "it has a NUL byte");
	err = tokenize(p, line, len);
	if (!err)
		err = each_pair(p, p->tokens, find_kind, &kind);
	if (err)
		return err;
	if (!kind)
		return refuse(p, "it has no 'kind'");
	if (token_is(p, kind, event_file_header.name)) {
		err = parse_header(p);
		if (!err)
			*ret = (struct event_line){ NULL, &p->header };
		return err;
	}
	err = parse_record(p, kind);
	if (!err)
		*ret = (struct event_line){ &p->rec.hdr, NULL };
	return err;
}
