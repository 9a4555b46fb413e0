/* SPDX-License-Identifier: Apache-2.0 */
/* Server-sent events: an event that lies whole in the fed bytes is handed out where it lies; only
 * what is cut between feeds, joined of several lines or too long is copied. */
#include "parse/sse.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EVENT = 64, NAME_SIZE = 8, FIRST_CAP = 512 };

enum line {
	LINE_BOM,		/* at the very start: a byte order mark may come */
	LINE_START,
	LINE_NAME,		/* in the field name, kept in `name` */
	LINE_SPACE,		/* behind the colon: one space is not part of the value */
	LINE_VALUE,
};
enum field { FIELD_OTHER, FIELD_DATA, FIELD_EVENT };

/* What an event under way needs; NULL as long as it lies in the bytes just fed. */
struct kept {
	size_t len, cap;	/* bytes used and there in data[] */
	size_t event_len;	/* without the NUL behind it */
	char event[MAX_EVENT];
	char data[];		/* the head, then at least the last max_tail bytes */
};

struct sse {
	struct kept *kept;
	uint64_t total;		/* data bytes of the event so far */
	uint64_t n_comments;
	uint32_t max_head, max_tail;
	uint32_t head;		/* with `cut`: data behind these bytes are not contiguous */
	bool cut;
	bool has_data;
	bool lost;		/* out of memory: skip to the event's end */
	bool failed;		/* the same, not yet reported */
	bool lines;		/* JSON lines */
	bool skip_lf;		/* the last byte was CR: an LF is part of it */
	uint8_t line;		/* enum line */
	uint8_t field;		/* enum field of the line under way */
	uint8_t name_len;
	char name[NAME_SIZE];
};

/* The event as far as it lies in the fed bytes. */
struct view {
	const char *data;	/* NULL: none, or moved to `kept` */
	size_t len;
	const char *event;
	size_t event_len;
};

static struct sse *new(size_t max_head, size_t max_tail, bool lines)
{
	struct sse *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->max_head = max_head < UINT32_MAX / 4 ? max_head : UINT32_MAX / 4;
	s->max_tail = max_tail < UINT32_MAX / 4 ? max_tail : UINT32_MAX / 4;
	s->lines = lines;
	s->line = lines ? LINE_START : LINE_BOM;
	return s;
}

struct sse *sse__new(size_t max_head, size_t max_tail)
{
	return new(max_head, max_tail, false);
}

struct sse *sse__new_lines(size_t max_head, size_t max_tail)
{
	return new(max_head, max_tail, true);
}

void sse__free(struct sse *s)
{
	if (!s)
		return;
	free(s->kept);
	free(s);
}

uint64_t sse__n_comments(const struct sse *s)
{
	return s->n_comments;
}

static bool keep_room(struct sse *s, size_t need)
{
	size_t max = s->max_head + 2 * (size_t)s->max_tail;
	size_t cap = s->kept ? s->kept->cap : 0;
	bool fresh = !s->kept;
	struct kept *k;

	if (!fresh && need <= cap)
		return true;
	if (!cap)
		cap = FIRST_CAP;
	while (cap < need)
		cap *= 2;
	if (cap > max && need <= max)
		cap = max;
	k = realloc(s->kept, sizeof(*k) + cap);
	if (!k)
		return false;
	if (fresh) {
		k->len = k->event_len = 0;
		k->event[0] = '\0';
	}
	k->cap = cap;
	s->kept = k;
	return true;
}

/* Forget what stands between the head and the last max_tail bytes. */
static void squeeze(struct sse *s)
{
	struct kept *k = s->kept;

	if (k->len - s->head <= s->max_tail)
		return;
	memmove(k->data + s->head, k->data + k->len - s->max_tail, s->max_tail);
	k->len = s->head + s->max_tail;
}

static bool append(struct sse *s, const char *p, size_t len)
{
	if (!keep_room(s, (s->kept ? s->kept->len : 0) + len))
		return false;
	memcpy(s->kept->data + s->kept->len, p, len);
	s->kept->len += len;
	return true;
}

/* Data that cannot stay where it is. */
static bool keep(struct sse *s, const char *p, size_t len)
{
	size_t n = s->kept ? s->kept->len : 0;

	if (!s->cut) {
		if (n + len <= (size_t)s->max_head + s->max_tail)
			return append(s, p, len);
		s->cut = true;
		s->head = s->max_head;
		if (n < s->head) {
			size_t part = s->head - n;

			if (!append(s, p, part))
				return false;
			p += part;
			len -= part;
			n = s->head;
		}
	}
	if (len >= s->max_tail) {
		if (s->kept)
			s->kept->len = s->head;
		p += len - s->max_tail;
		len = s->max_tail;
	} else if (n - s->head + len > 2 * (size_t)s->max_tail) {
		squeeze(s);
	}
	return append(s, p, len);
}

static void lose(struct sse *s)
{
	free(s->kept);
	s->kept = NULL;
	s->lost = s->failed = true;
}

static void add_event(struct kept *k, const char *event, size_t len)
{
	size_t room = MAX_EVENT - 1 - k->event_len;

	if (len > room)
		len = room;
	memcpy(k->event + k->event_len, event, len);
	k->event_len += len;
	k->event[k->event_len] = '\0';
}

/* The fed bytes go away, or a second piece comes: copy what was only looked at. */
static void keep_view(struct sse *s, struct view *v)
{
	struct view old = *v;

	*v = (struct view){ 0 };
	if (s->lost || (!old.data && !old.event))
		return;
	if (!keep_room(s, 0) || (old.len && !keep(s, old.data, old.len))) {
		lose(s);
		return;
	}
	if (old.event) {
		s->kept->event_len = 0;	/* the last one counts */
		add_event(s->kept, old.event, old.event_len);
	}
}

static void start_data(struct sse *s, struct view *v)
{
	if (s->has_data) {
		keep_view(s, v);
		s->total++;
		if (!s->lost && !keep(s, "\n", 1))
			lose(s);
	}
	s->has_data = true;
}

static void add_data(struct sse *s, struct view *v, const char *p, size_t len)
{
	bool first = !s->total && !s->kept && !s->cut && !v->data;

	s->total += len;
	if (first) {
		v->data = p;
		v->len = len;
		return;
	}
	keep_view(s, v);
	if (!s->lost && !keep(s, p, len))
		lose(s);
}

static void start_field(struct sse *s, struct view *v)
{
	const char *name = s->name;
	size_t n = s->name_len;

	s->field = FIELD_OTHER;
	if (n == 4 && !memcmp(name, "data", 4)) {
		s->field = FIELD_DATA;
		start_data(s, v);
	} else if (n == 5 && !memcmp(name, "event", 5)) {
		s->field = FIELD_EVENT;
		v->event = "";
		v->event_len = 0;
	} else if (n == 5 && !memcmp(name, "error", 5)) {
		/* No field of the standard: llama.cpp wrote errors so for years. */
		s->field = FIELD_DATA;
		start_data(s, v);
		v->event = "error";
		v->event_len = 5;
	} else if (!n) {
		s->n_comments++;
	}
}

/* Some bytes of one line, without its end. */
static void add_piece(struct sse *s, struct view *v, const char *p, const char *end)
{
	bool fresh = false;	/* the value begins in these bytes */

	if (p == end)
		return;
	if (s->line == LINE_START) {
		s->name_len = 0;
		s->line = LINE_NAME;
		if (s->lines) {
			s->field = FIELD_DATA;
			s->line = LINE_VALUE;
			start_data(s, v);
		}
	}
	if (s->line == LINE_NAME) {
		while (p < end && *p != ':' && s->name_len < NAME_SIZE)
			s->name[s->name_len++] = *p++;
		if (s->name_len == NAME_SIZE) {
			s->field = FIELD_OTHER;
			s->line = LINE_VALUE;
		} else if (p < end) {
			p++;
			s->line = LINE_SPACE;
			start_field(s, v);
			fresh = true;
		}
	}
	if (s->line == LINE_SPACE && p < end) {
		fresh = true;
		p += *p == ' ';
		s->line = LINE_VALUE;
	}
	if (s->line != LINE_VALUE)
		return;
	if (s->field == FIELD_DATA) {
		add_data(s, v, p, end - p);
	} else if (s->field == FIELD_EVENT && fresh) {
		v->event = p;
		v->event_len = end - p;
	} else if (s->field == FIELD_EVENT && s->kept) {
		add_event(s->kept, p, end - p);
	}
}

/* The event is whole: hand it out, unless it was lost. True if it was handed out. */
static bool dispatch(struct sse *s, struct view *v, sse_fn fn, void *ctx)
{
	char event[MAX_EVENT] = "";
	struct sse_event ev = { .total = s->total, .event = event };
	bool out = s->has_data && !s->lost;

	if (out && v->data && v->len > (size_t)s->max_head + s->max_tail)
		keep_view(s, v);
	out = out && !s->lost;
	if (out) {
		ev.data = v->data ? v->data : "";
		ev.len = ev.head = v->len;
		if (s->kept) {
			if (s->cut)
				squeeze(s);
			ev.data = s->kept->data;
			ev.len = s->kept->len;
			ev.head = s->cut ? s->head : ev.len;
			ev.event = s->kept->event;
		}
		if (v->event) {
			size_t n = v->event_len < MAX_EVENT ? v->event_len : MAX_EVENT - 1;

			memcpy(event, v->event, n);
			ev.event = event;
		}
		fn(ctx, &ev);
	}
	free(s->kept);
	s->kept = NULL;
	s->total = 0;
	s->cut = s->has_data = s->lost = false;
	*v = (struct view){ 0 };
	return out;
}

/* A byte order mark, or what looked like one. Returns the bytes taken. */
static size_t skip_bom(struct sse *s, const char *p, size_t len)
{
	static const char bom[] = "\xEF\xBB\xBF";
	size_t i = 0;

	while (i < len && s->name_len < 3 && p[i] == bom[s->name_len])
		s->name[s->name_len++] = p[i++];
	if (s->name_len == 3 || (i < len && !s->name_len))
		s->line = LINE_START;
	else if (i < len)
		s->line = LINE_NAME;
	return i;
}

int sse__feed(struct sse *s, const char *buf, size_t len, sse_fn fn, void *ctx)
{
	const char *p = buf, *end = buf + len, *lf = NULL, *eol;
	struct view v = { 0 };
	int n = 0;

	if (s->line == LINE_BOM)
		p += skip_bom(s, p, len);
	while (p < end) {
		if (s->skip_lf) {
			s->skip_lf = false;
			if (*p == '\n') {
				p++;
				continue;
			}
		}
		if (!lf || lf < p) {
			lf = memchr(p, '\n', end - p);
			if (!lf)
				lf = end;
		}
		eol = memchr(p, '\r', lf - p);
		if (!eol)
			eol = lf;
		add_piece(s, &v, p, eol);
		if (eol == end)
			break;
		s->skip_lf = *eol == '\r';
		p = eol + 1;
		if (s->line == LINE_NAME)	/* a field without a colon: its value is "" */
			start_field(s, &v);
		if (s->lines ? s->has_data : s->line == LINE_START)
			n += dispatch(s, &v, fn, ctx);
		s->line = LINE_START;
	}
	keep_view(s, &v);
	if (s->failed) {
		s->failed = false;
		return -ENOMEM;
	}
	return n;
}

void sse__gap(struct sse *s, uint64_t len)
{
	static const char data[] = "data";
	struct view v = { 0 };

	if (!len)
		return;
	s->skip_lf = false;
	switch (s->line) {
	case LINE_BOM:
		s->name_len = 0;
		/* fallthrough */
	case LINE_START:
		s->name_len = 0;
		/* fallthrough */
	case LINE_NAME:
		/* What is missing may end the field's name; it is data unless it cannot be. */
		s->field = FIELD_OTHER;
		if (s->name_len <= 4 && !memcmp(s->name, data, s->name_len)) {
			s->field = FIELD_DATA;
			start_data(s, &v);
		}
		break;
	}
	s->line = LINE_VALUE;
	if (s->field != FIELD_DATA)
		return;
	s->total += len;
	if (!s->cut) {
		size_t n = s->kept ? s->kept->len : 0;

		s->cut = true;
		s->head = n < s->max_head ? n : s->max_head;
	}
	if (s->kept)
		s->kept->len = s->head;
}
