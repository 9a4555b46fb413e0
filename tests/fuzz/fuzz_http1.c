/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds bytes with gaps, resyncs and ends in between, once in long pieces and once in short ones:
 * what is told must be the same, in order, and well nested. */
#include "parse/http1.h"

#include "trace.h"

#include <errno.h>

/* The first byte chooses the side; then ESCAPE and a letter is a command, the rest are bytes. */
enum { ESCAPE = 0xfe };

struct run {
	struct trace trace;
	bool begun;		/* begin() told, head() not */
	bool in_message;	/* head() told, or joined behind it */
	char last;		/* what was told last: bodies and gaps are joined */
	uint64_t in, out;	/* bytes given, and told as body, ... */
	bool huge;		/* ... unless these overflow */
};

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

static void tell(struct run *r, char what)
{
	if (what == r->last && (what == 'b' || what == 'g'))
		return;
	trace_add(&r->trace, &what, 1);
	r->last = what;
}

static void on_begin(void *ctx)
{
	struct run *r = ctx;

	need(!r->begun && !r->in_message, "begin inside a message");
	/* Not in the trace: of garbage it may be told or not. */
	r->begun = true;
}

static void on_head(void *ctx, const struct http1_head *head)
{
	struct run *r = ctx;

	need(r->begun && !r->in_message, "head without begin");
	need(strnlen(head->path, sizeof(head->path)) < sizeof(head->path), "path has no end");
	need(strnlen(head->x_request_id, sizeof(head->x_request_id)) < sizeof(head->x_request_id),
	     "id has no end");
	need(strnlen(head->traceparent, sizeof(head->traceparent)) < sizeof(head->traceparent),
	     "traceparent has no end");
	r->begun = false;
	r->in_message = true;
	tell(r, 'h');
	trace_add(&r->trace, head, sizeof(*head));
}

static void on_body(void *ctx, const char *data, size_t len)
{
	struct run *r = ctx;

	need(r->in_message && len, "body outside a message");
	tell(r, 'b');
	trace_add(&r->trace, data, len);
	r->out += len;
}

static void on_gap(void *ctx, uint64_t len)
{
	struct run *r = ctx;

	need(r->in_message && len, "gap outside a message");
	tell(r, 'g');
	trace_add(&r->trace, &len, sizeof(len));
	r->out += len;
}

static void on_end(void *ctx)
{
	struct run *r = ctx;

	need(r->in_message, "end outside a message");
	r->in_message = false;
	tell(r, 'e');
}

static void feed(struct http1 *h, struct run *r, const uint8_t *p, size_t len, size_t piece)
{
	bool failed = false;

	for (size_t n; len; p += n, len -= n) {
		char *copy;
		int err;

		n = len < piece ? len : piece;
		copy = exact_copy(p, n);
		err = http1__feed(h, copy, n);
		free(copy);
		need(!err || err == -EPROTO, "feed: odd error");
		need(err || !failed, "feed: better without a resync");
		if (err)
			r->begun = false;
		failed = err;
		r->in += n;
	}
	if (failed)
		tell(r, '!');
}

static struct trace play(const uint8_t *p, size_t len, size_t piece)
{
	static const struct http1_fns fns = { on_begin, on_head, on_body, on_gap, on_end };
	enum http1_side side = *p & 1 ? HTTP1_RESPONSES : HTTP1_REQUESTS;
	struct run r = { .last = 0 };
	struct http1 *h = http1__new(side, &fns, &r);
	const uint8_t *end = p + len;
	uint64_t gap;

	http1__expect_head(h, *p & 2);
	for (p++; p < end; ) {
		const uint8_t *run = p;

		while (p < end && *p != ESCAPE)
			p++;
		http1_is_start(side, (const char *)run, p - run);
		feed(h, &r, run, p - run, piece);
		if (end - p < 2)
			break;
		switch (p[1]) {
		case 'g':	/* a gap of a few bytes */
		case 'G':	/* or of very many */
			if (end - p < 4)
				break;
			gap = p[1] == 'g' ? p[2] | p[3] << 8 : 1ull << (p[2] & 63);
			r.in += gap;
			r.huge |= gap > 1ull << 40;
			if (http1__gap(h, gap)) {
				r.begun = false;
				tell(&r, '!');
			}
			p += 2;
			break;
		case 'r':
			http1__resync(h);
			r.begun = r.in_message = false;
			tell(&r, 'r');
			break;
		case 'j':
			if (http1__join_chunked(h, (const char *)p + 2, end - p - 2)) {
				r.begun = false;
				r.in_message = true;
				tell(&r, 'j');
			}
			break;
		case 'h':
			http1__expect_head(h, true);
			break;
		case 'n':
			http1__expect_head(h, false);
			break;
		case '$':
			http1__eof(h);
			r.begun = false;
			tell(&r, '$');
			break;
		}
		p += 2;
	}
	need(r.huge || r.out <= r.in, "more body than bytes");
	http1__free(h);
	return r.trace;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace whole, split;
	size_t piece;

	if (!size)
		return 0;
	/* Short pieces: single bytes make the most cuts, others cut elsewhere. */
	piece = 1 + (data[0] >> 2) % 7;
	whole = play(data, size, SIZE_MAX);
	split = play(data, size, piece);
	trace_compare(&whole, &split, "http1");
	free(whole.p);
	free(split.p);
	return 0;
}
