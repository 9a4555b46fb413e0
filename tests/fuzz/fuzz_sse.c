/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds bytes with holes, once in long pieces and once in short ones: the events must be the same.
 * Without holes they must also be those of the standard's algorithm, written down literally. */
#include "parse/sse.h"

#include "trace.h"

#include <stdbool.h>

/* The first two bytes choose limits and piece; then ESCAPE, a letter and a length is a hole. */
enum { ESCAPE = 0xfe };

static void add_event(struct trace *t, const struct sse_event *ev)
{
	uint64_t n[3] = { ev->len, ev->head, ev->total };

	if (ev->head > ev->len || ev->len > ev->total)
		abort();
	trace_add(t, n, sizeof(n));
	trace_add(t, ev->data, ev->len);
	trace_add(t, ev->event, strlen(ev->event) + 1);
}

static void on_event(void *ctx, const struct sse_event *ev)
{
	add_event(ctx, ev);
}

struct limits {
	size_t head, tail;
	bool lines;
};

static struct trace play(const struct limits *l, const uint8_t *p, size_t len, size_t piece)
{
	struct sse *s = l->lines ? sse__new_lines(l->head, l->tail) : sse__new(l->head, l->tail);
	const uint8_t *end = p + len;
	struct trace t = { NULL, 0, 0 };
	uint64_t n_comments;

	while (p < end) {
		const uint8_t *run = p;

		while (p < end && *p != ESCAPE)
			p++;
		for (size_t left = p - run, n; left; left -= n) {
			char *copy;

			n = left < piece ? left : piece;
			copy = exact_copy(p - left, n);
			if (sse__feed(s, copy, n, on_event, &t) < 0)
				abort();
			free(copy);
		}
		if (end - p >= 3 && p[1] == 'g') {
			sse__gap(s, p[2]);
			p++;
		}
		p += 2;
	}
	n_comments = sse__n_comments(s);
	trace_add(&t, &n_comments, sizeof(n_comments));
	sse__free(s);
	return t;
}

/* ---- the standard (WHATWG HTML, 9.2.6), line by line, on the whole stream ---- */

struct standard {
	const struct limits *limits;
	struct trace out;
	char *data;
	size_t len;
	bool any;		/* a data field was there */
	char event[64];
	uint64_t n_comments;
};

static void emit_event(struct standard *s)
{
	struct sse_event ev = { s->data, s->len, s->len, s->len, s->event };
	size_t max = s->limits->head + s->limits->tail;

	if (s->any) {
		if (s->len > max) {
			memmove(s->data + s->limits->head, s->data + s->len - s->limits->tail,
				s->limits->tail);
			ev.len = max;
			ev.head = s->limits->head;
		}
		add_event(&s->out, &ev);
	}
	s->len = 0;
	s->any = false;
	s->event[0] = '\0';
}

static void add_data(struct standard *s, const char *value, size_t len)
{
	if (s->any)
		s->data[s->len++] = '\n';
	memcpy(s->data + s->len, value, len);
	s->len += len;
	s->any = true;
}

static void take_line(struct standard *s, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);
	size_t name = colon ? (size_t)(colon - line) : len;
	const char *value = colon ? colon + 1 : line + len;
	size_t n = line + len - value;

	if (s->limits->lines) {
		if (len) {
			add_data(s, line, len);
			emit_event(s);
		}
		return;
	}
	if (!len) {
		emit_event(s);
		return;
	}
	if (n && *value == ' ') {
		value++;
		n--;
	}
	if (!name) {
		s->n_comments++;
	} else if (name == 4 && !memcmp(line, "data", 4)) {
		add_data(s, value, n);
	} else if (name == 5 && !memcmp(line, "event", 5)) {
		n = n < 63 ? n : 63;
		memcpy(s->event, value, n);
		s->event[n] = '\0';
	} else if (name == 5 && !memcmp(line, "error", 5)) {	/* ours: see sse.c */
		add_data(s, value, n);
		strcpy(s->event, "error");
	}
}

static struct trace standard(const struct limits *l, const char *p, size_t len)
{
	struct standard s = { .limits = l, .data = malloc(2 * len + 2) };
	const char *end = p + len;

	if (!l->lines && len >= 3 && !memcmp(p, "\xEF\xBB\xBF", 3))
		p += 3;
	while (p < end) {
		const char *eol = p;

		while (eol < end && *eol != '\n' && *eol != '\r')
			eol++;
		if (eol == end)
			break;		/* not ended: not an event */
		take_line(&s, p, eol - p);
		p = eol + 1;
		if (*eol == '\r' && p < end && *p == '\n')
			p++;
	}
	/* A comment counts when it begins. */
	if (p < end && *p == ':' && !l->lines)
		s.n_comments++;
	trace_add(&s.out, &s.n_comments, sizeof(s.n_comments));
	free(s.data);
	return s.out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace whole, split, right;
	struct limits l;

	if (size < 2)
		return 0;
	l = (struct limits){ data[0] & 31, data[0] >> 5, data[1] & 1 };
	whole = play(&l, data + 2, size - 2, SIZE_MAX);
	split = play(&l, data + 2, size - 2, 1 + (data[1] >> 1) % 9);
	trace_compare(&whole, &split, "sse, split");
	if (!memchr(data + 2, ESCAPE, size - 2)) {
		right = standard(&l, (const char *)data + 2, size - 2);
		trace_compare(&whole, &right, "sse, standard");
		free(right.p);
	}
	free(whole.p);
	free(split.p);
	return 0;
}
