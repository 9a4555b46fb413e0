/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a recording: no crash, bounded work, and each event survives its text form. */
#include "base/jsonw.h"
#include "buf.h"
#include "parse/event_json.h"
#include "parse/recording.h"

#include <stdlib.h>
#include <string.h>

struct bytes {
	const uint8_t *data;
	size_t len;
};

static int64_t read_at(void *ctx, uint64_t offset, void *buf, size_t len)
{
	const struct bytes *b = ctx;

	if (offset >= b->len)
		return 0;
	if (len > b->len - offset)
		len = b->len - offset;
	memcpy(buf, b->data + offset, len);
	return (int64_t)len;
}

static void check_text(struct event_parser *p, const struct tl_hdr *ev)
{
	struct event_line got;
	struct jsonw w;
	struct buf b;

	buf__init(&b, 1 << 20);
	jsonw__init(&w, jsonw_to_buf, &b);
	event_json(&w, ev);
	if (jsonw__finish(&w) || event_parser__line(p, (const char *)b.data, b.len, &got) ||
	    !got.ev || got.ev->size != ev->size || memcmp(got.ev, ev, ev->size) != 0)
		abort();
	buf__free(&b);
}

static void read_all(struct bytes *b, struct event_parser *p)
{
	const struct rec_input in = { read_at, b };
	const struct tl_hdr *ev;
	struct rec_reader *r;
	char text[512];
	size_t n = 0;

	if (rec_reader__new(&in, &r))
		return;
	if (p)
		rec_reader__want_all(r);
	while (rec_reader__next(r, &ev) > 0) {
		if (ev->size < sizeof(*ev) || ev->size % 8)
			abort();
		if (p && n++ < 200)
			check_text(p, ev);
	}
	rec_reader__trouble(r, text, sizeof(text));
	rec_reader__free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct bytes b = { data, len };
	static struct event_parser *p;

	if (!p)
		p = event_parser__new();
	read_all(&b, NULL);
	read_all(&b, p);
	return 0;
}
