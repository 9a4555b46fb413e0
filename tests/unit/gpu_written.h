/* SPDX-License-Identifier: Apache-2.0 */
/* The report on what a gpu_feed holds. */
#ifndef TL_GPU_WRITTEN_H
#define TL_GPU_WRITTEN_H

#include "gpu_feed.h"
#include "model/summary.h"
#include "sink/json.h"
#include "sink/text.h"

/* As JSON, or as text of so many columns; the caller frees it. */
static inline char *gpu_written(const struct gpu_feed *f, bool json, int width)
{
	struct json_opts jo = { .no_self = true };
	struct text_opts to = { .width = width };
	struct summary s;
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	assert_non_null(out);
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(json ? json_report(&f->v, &s, &jo, out) : text_report(&f->v, &s, &to, out), 0);
	fclose(out);
	return text;
}

#endif
