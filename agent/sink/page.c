/* SPDX-License-Identifier: Apache-2.0 */
/* Text for a terminal or a mail: paragraphs, columns and bars of a given width. */
#include "sink/page.h"
#include "base/util.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

enum { GLUE = 1 }; /* a space at which no line ends */

void page__init(struct page *p, const struct text_opts *o, FILE *out)
{
	*p = (struct page){
		.out = out, .width = o->width ? o->width : 100, .color = o->color, .utf8 = o->utf8
	};
	if (p->width < 60)
		p->width = 60;
}

int page__finish(struct page *p)
{
	errno = 0;
	if (fflush(p->out) || ferror(p->out))
		return errno ? -errno : -EIO;
	return 0;
}

void page__style(struct page *p, enum page_style style)
{
	static const char *const codes[] = {
		[STYLE_PLAIN] = "\33[0m",  [STYLE_BOLD] = "\33[1m",	[STYLE_DIM] = "\33[2m",
		[STYLE_WAIT] = "\33[33m",  [STYLE_PREFILL] = "\33[34m", [STYLE_DECODE] = "\33[32m",
		[STYLE_OTHER] = "\33[36m", [STYLE_BAD] = "\33[31m",
	};

	if (p->color)
		fputs(codes[style], p->out);
}

int utf8_width(const char *s)
{
	int n = 0;

	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

/* Numbers are not parted from their units. */
static void glue_units(char *text)
{
	static const char *const units[] = { "ms", "us", "ns",	  "s",	   "%",
					     "MB", "kB", "tok/s", "tokens", "token" };

	for (char *s = strchr(text, ' '); s; s = strchr(s + 1, ' ')) {
		bool number = s > text && s[-1] >= '0' && s[-1] <= '9';

		for (size_t i = 0; number && i < ARRAY_SIZE(units); i++) {
			size_t n = strlen(units[i]);

			if (strncmp(s + 1, units[i], n) == 0 && !isalnum((unsigned char)s[1 + n])) {
				*s = GLUE;
				break;
			}
		}
	}
}

void page__text(struct page *p, const char *label, int indent, char *text)
{
	int column = indent;
	char *rest = NULL;
	bool first = true;

	glue_units(text);
	fputs(label, p->out);
	for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		int n = utf8_width(word);

		if (!first && column + 1 + n > p->width) {
			fprintf(p->out, "\n%*s", indent, "");
			column = indent;
			first = true;
		}
		for (char *g = strchr(word, GLUE); g; g = strchr(g, GLUE))
			*g = ' ';
		fprintf(p->out, "%s%s", first ? "" : " ", word);
		column += n + !first;
		first = false;
	}
	fputc('\n', p->out);
}

void page__para(struct page *p, const char *label, int indent, const char *fmt, ...)
{
	char text[2048], padded[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(padded, sizeof(padded), "%s%*s", label,
		 utf8_width(label) < indent ? indent - utf8_width(label) : 0, "");
	page__text(p, padded, indent, text);
}

void page__heading(struct page *p, const char *fmt, ...)
{
	va_list ap;

	fputc('\n', p->out);
	page__style(p, STYLE_BOLD);
	va_start(ap, fmt);
	vfprintf(p->out, fmt, ap);
	va_end(ap);
	page__style(p, STYLE_PLAIN);
	fputc('\n', p->out);
}

void page__spark(struct page *p, const double *values, size_t n, double max)
{
	static const char *const blocks[] = {
		"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█",
	};
	static const char ascii[] = "_.:-=+*#";

	for (size_t i = 0; i < n; i++) {
		int level = max > 0 ? (int)(values[i] / max * 7.999) : 0;

		if (values[i] < 0)
			fputc(' ', p->out);
		else if (p->utf8)
			fputs(blocks[level > 7 ? 7 : level], p->out);
		else
			fputc(ascii[level > 7 ? 7 : level], p->out);
	}
}

int page__bar(struct page *p, int cells, uint64_t t0, uint64_t t1, uint64_t span,
	      enum page_style style)
{
	static const char *const blocks[] = {
		[STYLE_PLAIN] = "█", [STYLE_BOLD] = "█",    [STYLE_DIM] = "▒",
		[STYLE_WAIT] = "░",  [STYLE_PREFILL] = "▓", [STYLE_DECODE] = "█",
		[STYLE_OTHER] = "▒", [STYLE_BAD] = "?",
	};
	static const char ascii[] = {
		[STYLE_PLAIN] = '#', [STYLE_BOLD] = '#',    [STYLE_DIM] = '-',
		[STYLE_WAIT] = '.',  [STYLE_PREFILL] = 'P', [STYLE_DECODE] = '#',
		[STYLE_OTHER] = '-', [STYLE_BAD] = '?',
	};
	int from, to;

	if (!span)
		span = 1;
	t0 = t0 < span ? t0 : span;
	t1 = t1 < span ? t1 : span;
	from = (int)((unsigned __int128)t0 * (unsigned int)cells / span);
	to = (int)(((unsigned __int128)t1 * (unsigned int)cells + span / 2) / span);
	if (from >= cells)
		from = cells - 1;
	if (to <= from)
		to = from + 1;
	if (to > cells)
		to = cells;
	fprintf(p->out, "%*s", from, "");
	page__style(p, style);
	for (int i = from; i < to; i++) {
		if (p->utf8)
			fputs(blocks[style], p->out);
		else
			fputc(ascii[style], p->out);
	}
	page__style(p, STYLE_PLAIN);
	return to;
}

const char *cell_ms(char buf[CELL_LEN], int64_t ns)
{
	double ms = (double)ns / 1e6;

	if (ns < 0)
		return "-";
	snprintf(buf, CELL_LEN, "%.*f", ms < 9.995 ? 2 : ms < 99.95 ? 1 : 0, ms);
	return buf;
}

const char *cell_count(char buf[CELL_LEN], uint64_t n, bool known)
{
	if (!known)
		return "-";
	snprintf(buf, CELL_LEN, "%" PRIu64, n);
	return buf;
}
