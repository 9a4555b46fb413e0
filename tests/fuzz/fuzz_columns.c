/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the columns of a block; what decodes must encode and decode to the same events. */
#include "parse/columns.h"

#include <stdlib.h>
#include <string.h>

static void check(const uint8_t *raw, size_t len, size_t n)
{
	struct columns *c = malloc(sizeof(*c));
	uint8_t *coded = malloc(COLUMNS_MAX_BYTES), *again = malloc(len);
	int n_coded = columns__encode(c, raw, len, coded);

	if (n_coded < 0 || columns__decode(c, coded, (size_t)n_coded, n, again, len) ||
	    memcmp(raw, again, len) != 0)
		abort();
	free(c);
	free(coded);
	free(again);
}

/* The first four bytes: how many events, and how many words of 8 bytes they have. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct columns *c;
	size_t n_events, raw_len;
	uint8_t *raw;

	if (len < 4)
		return 0;
	n_events = data[0] | data[1] << 8;
	raw_len = (data[2] | data[3] << 8) * 8u;
	c = malloc(sizeof(*c));
	raw = malloc(raw_len);
	if (n_events <= COLUMNS_MAX_EVENTS &&
	    !columns__decode(c, data + 4, len - 4, n_events, raw, raw_len) && raw_len)
		check(raw, raw_len, n_events);
	free(c);
	free(raw);
	return 0;
}
