/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.x by llhttp, for someone who watches: lenient, in little memory, and able to step over
 * bytes that were not captured. */
#include "parse/http1.h"
#include "base/str.h"
#include "base/util.h"
#include "tl_event.h"

#include <errno.h>
#include <inttypes.h>
#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum field { FIELD_OTHER, FIELD_CONTENT_TYPE, FIELD_CONTENT_ENCODING, FIELD_X_REQUEST_ID,
	     FIELD_TRACEPARENT };

/* A bounded copy of something that comes in pieces. */
struct text {
	uint16_t len;
	bool cut;
};

/* What is only needed while a head is parsed. */
struct work {
	struct http1_head head;
	enum field field;	/* whose value comes ... */
	unsigned had;		/* ... and those that came, bits 1 << field */
	struct text url_t, name_t, type_t, encoding_t, id_t, trace_t;
	bool url_done;		/* the rest is query or fragment */
	char url[192];
	char name[20];		/* longer than any field that is wanted */
	char type[48];
	char encoding[16];
};

struct http1 {
	llhttp_t parser;
	struct http1_fns fns;
	void *ctx;
	struct work *work;	/* NULL unless inside a head */
	bool begin_due;		/* first byte was seen, begin() not yet called */
	bool begun;		/* begin() was called, end() not yet: 1xx heads stay inside */
	bool in_body;		/* between a final head and its end */
	bool in_chunk;		/* inside a chunk's data or the CRLF behind it */
	bool quiet;		/* the bytes fed are ours, not the wire's */
	bool expect_head;
	bool padded;		/* blanks came behind a chunk's size */
	bool lost;		/* until resync */
	bool no_memory;
};

static bool text_add(struct text *t, char *dst, size_t size, const char *s, size_t len)
{
	size_t room = size - 1 - t->len;

	if (len > room) {
		t->cut = true;
		len = room;
	}
	memcpy(dst + t->len, s, len);
	t->len += len;
	dst[t->len] = '\0';
	return !t->cut;
}

static void flush_begin(struct http1 *h)
{
	if (!h->begin_due)
		return;
	h->begin_due = false;
	h->begun = true;
	if (h->fns.begin)
		h->fns.begin(h->ctx);
}

static int on_message_begin(llhttp_t *p)
{
	struct http1 *h = p->data;

	/* Left over from the answer to a HEAD request that closed the connection. */
	p->content_length = 0;
	if (h->quiet)
		return 0;
	h->work = calloc(1, sizeof(*h->work));
	if (!h->work) {
		h->no_memory = true;
		return -1;
	}
	h->begin_due = !h->begun;
	return 0;
}

static int on_url(llhttp_t *p, const char *at, size_t len)
{
	struct work *w = ((struct http1 *)p->data)->work;

	if (!w || w->url_done)
		return 0;
	for (size_t i = 0; i < len; i++) {
		if (at[i] == '?' || at[i] == '#') {
			w->url_done = true;
			len = i;
		}
	}
	text_add(&w->url_t, w->url, sizeof(w->url), at, len);
	return 0;
}

static int on_header_field(llhttp_t *p, const char *at, size_t len)
{
	struct work *w = ((struct http1 *)p->data)->work;

	if (w)			/* else a trailer */
		text_add(&w->name_t, w->name, sizeof(w->name), at, len);
	return 0;
}

static int on_header_field_complete(llhttp_t *p)
{
	static const struct {
		const char *name;
		enum field field;
	} fields[] = {
		{ "content-type", FIELD_CONTENT_TYPE },
		{ "content-encoding", FIELD_CONTENT_ENCODING },
		{ "x-request-id", FIELD_X_REQUEST_ID },
		{ "traceparent", FIELD_TRACEPARENT },
	};
	struct work *w = ((struct http1 *)p->data)->work;

	if (!w)
		return 0;
	w->field = FIELD_OTHER;
	for (size_t i = 0; i < ARRAY_SIZE(fields) && !w->name_t.cut; i++)
		if (!(w->had & 1u << fields[i].field) && !strcasecmp(w->name, fields[i].name))
			w->field = fields[i].field;
	if (w->field != FIELD_OTHER)
		w->had |= 1u << w->field;
	w->name_t = (struct text){ 0 };
	w->name[0] = '\0';
	return 0;
}

static int on_header_value(llhttp_t *p, const char *at, size_t len)
{
	struct work *w = ((struct http1 *)p->data)->work;

	if (!w)
		return 0;
	switch (w->field) {
	case FIELD_CONTENT_TYPE:
		text_add(&w->type_t, w->type, sizeof(w->type), at, len);
		break;
	case FIELD_CONTENT_ENCODING:
		text_add(&w->encoding_t, w->encoding, sizeof(w->encoding), at, len);
		break;
	case FIELD_X_REQUEST_ID:
		text_add(&w->id_t, w->head.x_request_id, sizeof(w->head.x_request_id), at, len);
		break;
	case FIELD_TRACEPARENT:
		text_add(&w->trace_t, w->head.traceparent, sizeof(w->head.traceparent), at, len);
		break;
	case FIELD_OTHER:
		break;
	}
	return 0;
}

static uint8_t method_of(uint8_t method)
{
	switch (method) {
	case HTTP_GET: return TL_GET;
	case HTTP_POST: return TL_POST;
	case HTTP_HEAD: return TL_HEAD;
	case HTTP_PUT: return TL_PUT;
	case HTTP_DELETE: return TL_DELETE;
	case HTTP_OPTIONS: return TL_OPTIONS;
	default: return TL_METHOD_OTHER;
	}
}

/* By the media type alone: parameters such as charset do not count. */
static uint8_t body_of(const char *type)
{
	static const struct {
		const char *type;
		uint8_t body;
	} types[] = {
		{ "text/event-stream", TL_BODY_SSE },
		{ "application/json", TL_BODY_JSON },
		{ "application/problem+json", TL_BODY_JSON },
		{ "application/x-ndjson", TL_BODY_JSONL },
		{ "application/ndjson", TL_BODY_JSONL },
		{ "application/jsonl", TL_BODY_JSONL },
		{ "application/x-jsonlines", TL_BODY_JSONL },
		{ "application/jsonlines", TL_BODY_JSONL },
	};
	size_t len = strcspn(type, "; \t,");

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strncasecmp(type, types[i].type, len) && !types[i].type[len])
			return types[i].body;
	return TL_BODY_OTHER;
}

/* The path of a request target, which may be in absolute form: http://host/path. */
static const char *path_of(const char *url)
{
	const char *host;

	if (strncasecmp(url, "http://", 7) && strncasecmp(url, "https://", 8))
		return url;
	host = strstr(url, "//") + 2;
	host += strcspn(host, "/");
	return *host ? host : "/";
}

/* Without blanks at the end. */
static void trim(char *s)
{
	size_t len = strlen(s);

	while (len && (s[len - 1] == ' ' || s[len - 1] == '\t'))
		s[--len] = '\0';
}

/* And with '?' for what could harm a terminal. */
static void clean(char *s)
{
	trim(s);
	for (; *s; s++)
		if (*s < ' ' || *s == 127)
			*s = '?';
}

/* Whatever lengths the head gives (RFC 9112, 6.3): llhttp would believe these. */
static bool has_no_body(const struct http1 *h)
{
	int status = h->parser.status_code;

	return h->parser.type == HTTP_RESPONSE &&
	       (h->expect_head || status / 100 == 1 || status == 204 || status == 304);
}

static void finish_head(struct http1 *h)
{
	struct work *w = h->work;
	struct http1_head *head = &w->head;
	const llhttp_t *p = &h->parser;
	const char *path;

	clean(w->encoding);
	trim(head->x_request_id);
	clean(head->traceparent);
	head->chunked = p->flags & F_CHUNKED;
	head->content_length = p->flags & F_CONTENT_LENGTH && !head->chunked ?
			       (int64_t)p->content_length : -1;
	head->keep_alive = llhttp_should_keep_alive(p);
	head->encoded = w->encoding[0] && strcasecmp(w->encoding, "identity");
	head->gzip = !strcasecmp(w->encoding, "gzip") || !strcasecmp(w->encoding, "x-gzip") ||
		     !strcasecmp(w->encoding, "deflate");
	head->cut = w->id_t.cut || w->trace_t.cut || w->url_t.cut;
	if (p->type == HTTP_REQUEST) {
		head->method = method_of(p->method);
		path = path_of(w->url);
		head->cut |= !str_copy_clean(head->path, sizeof(head->path), path, strlen(path));
		return;
	}
	head->status = p->status_code;
	head->body = has_no_body(h) || head->content_length == 0 ? TL_BODY_NONE : body_of(w->type);
}

static int on_headers_complete(llhttp_t *p)
{
	struct http1 *h = p->data;

	h->in_body = true;
	if (h->quiet)
		return 0;
	/* A request may offer to upgrade (some clients always do); that it happens is known
	 * from the bytes that follow, which are then no HTTP/1. */
	if (p->type == HTTP_REQUEST)
		p->upgrade = 0;
	else if (p->status_code / 100 == 1)
		h->in_body = false;
	if (h->in_body) {
		flush_begin(h);
		finish_head(h);
		if (h->fns.head)
			h->fns.head(h->ctx, &h->work->head);
	}
	free(h->work);
	h->work = NULL;
	return has_no_body(h);
}

static int on_body(llhttp_t *p, const char *at, size_t len)
{
	struct http1 *h = p->data;

	if (!h->quiet && h->fns.body)
		h->fns.body(h->ctx, at, len);
	return 0;
}

static int on_chunk_header(llhttp_t *p)
{
	((struct http1 *)p->data)->in_chunk = true;
	return 0;
}

static int on_chunk_complete(llhttp_t *p)
{
	((struct http1 *)p->data)->in_chunk = false;
	return 0;
}

static int on_message_complete(llhttp_t *p)
{
	struct http1 *h = p->data;

	h->in_chunk = false;
	if (!h->in_body)	/* 1xx: the answer itself is still to come */
		return 0;
	h->in_body = false;
	h->begun = false;
	if (h->fns.end)
		h->fns.end(h->ctx);
	return 0;
}

static const llhttp_settings_t settings = {
	.on_message_begin = on_message_begin,
	.on_url = on_url,
	.on_header_field = on_header_field,
	.on_header_field_complete = on_header_field_complete,
	.on_header_value = on_header_value,
	.on_headers_complete = on_headers_complete,
	.on_body = on_body,
	.on_chunk_header = on_chunk_header,
	.on_chunk_complete = on_chunk_complete,
	.on_message_complete = on_message_complete,
};

struct http1 *http1__new(enum http1_side side, const struct http1_fns *fns, void *ctx)
{
	struct http1 *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	llhttp_init(&h->parser, side == HTTP1_REQUESTS ? HTTP_REQUEST : HTTP_RESPONSE, &settings);
	/* What both peers accept is theirs to judge; we only follow. */
	llhttp_set_lenient_headers(&h->parser, 1);
	llhttp_set_lenient_chunked_length(&h->parser, 1);
	llhttp_set_lenient_keep_alive(&h->parser, 1);
	llhttp_set_lenient_transfer_encoding(&h->parser, 1);
	h->parser.data = h;
	h->fns = *fns;
	h->ctx = ctx;
	return h;
}

void http1__free(struct http1 *h)
{
	if (!h)
		return;
	free(h->work);
	free(h);
}

static int lose(struct http1 *h)
{
	int err = h->no_memory ? -ENOMEM : -EPROTO;

	free(h->work);
	h->work = NULL;
	h->no_memory = false;
	h->begin_due = false;
	h->lost = true;
	return err;
}

/* Starts anew inside a chunked body: quietly, with a head and the start of a
 * chunk's size that are ours. */
static void begin_chunked(struct http1 *h, const char *size)
{
	static const char request[] = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
			  response[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
	const char *head = h->parser.type == HTTP_REQUEST ? request : response;

	llhttp_reset(&h->parser);
	h->quiet = true;
	llhttp_execute(&h->parser, head, strlen(head));
	llhttp_execute(&h->parser, size, strlen(size));
	h->quiet = false;
}

/* Some old servers pad the size of a chunk with blanks (RFC 9112, 7.1.1 lets one accept that).
 * llhttp does not, and cannot be told to. */
static bool is_at_padding(const struct http1 *h, const char *at)
{
	return llhttp_get_errno(&h->parser) == HPE_INVALID_CHUNK_SIZE && h->in_body &&
	       !h->in_chunk && !h->padded && (*at == ' ' || *at == '\t');
}

/* Skips such blanks; what comes behind them must be the end of the line or an extension. */
static int skip_padding(struct http1 *h, const char **buf, const char *end)
{
	while (*buf < end && (**buf == ' ' || **buf == '\t'))
		++*buf;
	if (*buf < end)
		h->padded = false;
	return *buf < end && **buf != '\r' && **buf != ';' ? lose(h) : 0;
}

int http1__feed(struct http1 *h, const char *buf, size_t len)
{
	const char *end = buf + len;
	char size[24];
	int err = 0;

	if (h->lost)
		return -EPROTO;
	if (h->padded)
		err = skip_padding(h, &buf, end);
	while (!err && llhttp_execute(&h->parser, buf, end - buf) != HPE_OK) {
		const char *at = llhttp_get_error_pos(&h->parser);

		/* Some errors are behind the end. */
		if (at < buf || at >= end || !is_at_padding(h, at))
			return lose(h);
		buf = at;
		snprintf(size, sizeof(size), "%" PRIx64, h->parser.content_length);
		begin_chunked(h, size);
		h->padded = true;
		err = skip_padding(h, &buf, end);
	}
	if (!err)
		flush_begin(h);
	return err;
}

int http1__gap(struct http1 *h, uint64_t len)
{
	llhttp_t *p = &h->parser;
	uint64_t n;

	if (h->lost)
		return -EPROTO;
	if (!len)
		return 0;
	if (!h->in_body)
		return lose(h);
	if (llhttp_message_needs_eof(p)) {
		if (h->fns.gap)
			h->fns.gap(h->ctx, len);
		return 0;
	}
	/* llhttp counts what is left of a body or chunk in content_length. All but one of the
	 * missing bytes are counted there for it; it is fed the last, so that it moves on. */
	if (p->flags & F_CHUNKED && (!h->in_chunk || len > p->content_length))
		return lose(h);
	n = len < p->content_length ? len : p->content_length;
	if (!n)
		return lose(h);
	if (h->fns.gap)
		h->fns.gap(h->ctx, n);
	p->content_length -= n - 1;
	h->quiet = true;
	llhttp_execute(p, "", 1);
	h->quiet = false;
	return n == len ? 0 : lose(h);
}

void http1__eof(struct http1 *h)
{
	if (!h->lost && h->in_body)
		llhttp_finish(&h->parser);
	lose(h);
}

void http1__expect_head(struct http1 *h, bool head)
{
	h->expect_head = head;
}

void http1__resync(struct http1 *h)
{
	lose(h);
	llhttp_reset(&h->parser);
	h->begun = h->in_body = h->in_chunk = h->padded = h->lost = false;
}

static bool starts_with(const char *buf, size_t len, const char *word)
{
	size_t n = strlen(word);

	return len >= n && !memcmp(buf, word, n);
}

bool http1_is_start(enum http1_side side, const char *buf, size_t len)
{
	static const char *const methods[] = { "POST ", "GET ", "HEAD ", "PUT ", "DELETE ",
					       "OPTIONS ", "PATCH " };
	const char *nl;

	if (side == HTTP1_RESPONSES)
		return len >= 12 && starts_with(buf, len, "HTTP/1.") && buf[8] == ' ' &&
		       buf[9] >= '1' && buf[9] <= '5';
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		size_t n = strlen(methods[i]);

		if (!starts_with(buf, len, methods[i]) || len == n)
			continue;
		if (buf[n] != '/' && buf[n] != '*' && !starts_with(buf + n, len - n, "http"))
			return false;
		nl = memchr(buf, '\n', len);
		if (!nl)
			return true;
		len = nl - buf - (nl[-1] == '\r');
		return len >= n + 10 && starts_with(buf + len - 9, 9, " HTTP/1.");
	}
	return false;
}

bool http1__join_chunked(struct http1 *h, const char *buf, size_t len)
{
	uint64_t size = 0;
	size_t i;

	if (h->parser.type != HTTP_RESPONSE)
		return false;
	for (i = 0; i < len && i < 9; i++) {
		const char *digits = "0123456789abcdef";
		const char *d = buf[i] ? strchr(digits, buf[i] | 0x20) : NULL;

		if (!d || (buf[i] < '0'))
			break;
		size = size << 4 | (d - digits);
	}
	if (!i || i == 9 || len - i < 2 || buf[i] != '\r' || buf[i + 1] != '\n')
		return false;
	/* If the chunk's end is here too, it must look like one. */
	i += 2;
	if (size && len - i > size && buf[i + size] != '\r')
		return false;
	http1__resync(h);
	begin_chunked(h, "");
	return true;
}
