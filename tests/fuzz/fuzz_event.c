/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as the lines of `tokenlag import`: no crash, and what is taken is printed so that it
 * reads as the same again. */
#include "base/jsonw.h"
#include "buf.h"
#include "parse/event_json.h"

#include <stdlib.h>
#include <string.h>

static void check(struct event_parser *p, struct event_parser *again, const char *line, size_t len)
{
	struct event_line got, same;
	struct jsonw w;
	struct buf b;

	if (event_parser__line(p, line, len, &got))
		return;
	buf__init(&b, 1 << 20);
	jsonw__init(&w, jsonw_to_buf, &b);
	if (got.ev)
		event_json(&w, got.ev);
	else
		event_json_header(&w, got.header);
	if (jsonw__finish(&w) || event_parser__line(again, (const char *)b.data, b.len, &same))
		abort();
	if (got.ev && (!same.ev || same.ev->size != got.ev->size ||
		       memcmp(same.ev, got.ev, got.ev->size) != 0))
		abort();
	if (got.header && memcmp(same.header, got.header, sizeof(*got.header)) != 0)
		abort();
	buf__free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct event_parser *p, *again;

	if (!p) {
		p = event_parser__new();
		again = event_parser__new();
	}
	while (len > 0) {
		const uint8_t *end = memchr(data, '\n', len);
		size_t n = end ? (size_t)(end - data) + 1 : len;
		char *line = malloc(n);		/* of its own, so that reading on is noticed */

		memcpy(line, data, n);
		check(p, again, line, n);
		free(line);
		data += n;
		len -= n;
	}
	return 0;
}
