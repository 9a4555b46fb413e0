/* SPDX-License-Identifier: Apache-2.0 */
/* Text for a terminal or a mail: paragraphs, columns and bars of a given width. */
#ifndef TL_PAGE_H
#define TL_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct text_opts {
	int width;		/* columns, 0: 100; less than 60 is taken as 60 */
	bool color;		/* escape codes: for terminals only */
	bool utf8;		/* block characters for bars; the locale decides */
	size_t max_requests;	/* that a report's table lists; 0: as many as by default */
};

enum page_style { STYLE_PLAIN, STYLE_BOLD, STYLE_DIM, STYLE_WAIT, STYLE_PREFILL, STYLE_DECODE,
		  STYLE_OTHER, STYLE_BAD };

struct page {
	FILE *out;
	int width;
	bool color, utf8;
};

void page__init(struct page *p, const struct text_opts *o, FILE *out);
/* Returns 0 or -errno of what was written so far. */
int page__finish(struct page *p);

void page__style(struct page *p, enum page_style style); /* until the next call; PLAIN ends */

/* A paragraph: `label` padded to `indent` columns, then the text, wrapped and indented as far. */
void page__para(struct page *p, const char *label, int indent, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The same, with a label that already is as wide as it shall be; text is changed. */
void page__text(struct page *p, const char *label, int indent, char *text);

/* A line of its own in bold, with an empty line before it. */
void page__heading(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* One row of block characters, each value from 0 to max; below 0: '.', nothing is known. */
void page__spark(struct page *p, const double *values, size_t n, double max);

/* One bar on an axis of `cells` columns that stands for [0, span): from t0 to t1, at least a cell.
 * Returns the column where it ends. */
int page__bar(struct page *p, int cells, uint64_t t0, uint64_t t1, uint64_t span,
	      enum page_style style);

enum { CELL_LEN = 24 };
/* ms with three digits or all of them before the point: "0.53" "41.2" "380" "12345"; < 0: "-". */
const char *cell_ms(char buf[CELL_LEN], int64_t ns);
const char *cell_count(char buf[CELL_LEN], uint64_t n, bool known);
int utf8_width(const char *s);	/* columns of text without wide characters */

#endif
