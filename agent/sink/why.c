/* SPDX-License-Identifier: Apache-2.0 */
/* The waterfall of one request as text: the answer, the rows on a time axis, parts that add up to e2e. */
#include "sink/why.h"
#include "base/plural.h"
#include "base/units.h"
#include "sink/blame_words.h"
#include "sink/wall.h"
#include "sink/why_priv.h"

#include <string.h>

/* us since its beginning. Only boundaries are rounded, so rows, parts and sums add up as printed. */
static uint64_t at_us(const struct trace *t, uint64_t ns)
{
	return (ns - t->t0_ns + 500) / 1000;
}

static void write_answer(struct page *p, const struct why *w)
{
	const struct trace *t = &w->t;
	char began[WALL_LEN];

	page__style(p, STYLE_BOLD);
	page__para(p, "", 0, "%s", w->answer);
	page__style(p, STYLE_PLAIN);
	wall_text(t->v, t->t0_ns, began);
	page__para(p, "", 0, "It %s %s%s%.0f ms after the recording began.",
		   t->r->joined_late ? "was first seen" : "began", began, *began ? ", " : "",
		   t->t0_ns > t->v->t0_ns ? (double)(t->t0_ns - t->v->t0_ns) / 1e6 : 0);
	if (!t->q)
		page__para(p, "", 0,
			   "It is joined to no step of the engine: only what crossed the wire is "
			   "known, the rest counts as unexplained.");
}

/* ---- the waterfall ---- */

static void write_axis(struct page *p, const struct trace *t, int cells)
{
	char end[CELL_LEN];
	int n;

	cell_ms(end, (int64_t)(t->t1_ns - t->t0_ns));
	n = (int)strlen(end) + 3;
	page__style(p, STYLE_BOLD);
	fprintf(p->out, "\n%10s%10s  0%*s ms  what\n", "at ms", "ms", cells - n + 2, end);
	page__style(p, STYLE_PLAIN);
}

static void write_row(struct page *p, const struct trace *t, const struct why_row *r, int cells)
{
	int at = 10 + 10 + 2 + cells + 2, bar_end;
	char pad[160], text[sizeof(r->text)];

	fprintf(p->out, "%10.3f%10.3f  ", (double)at_us(t, r->t0_ns) / 1000,
		(double)(at_us(t, r->t1_ns) - at_us(t, r->t0_ns)) / 1000);
	bar_end = page__bar(p, cells, r->t0_ns - t->t0_ns, r->t1_ns - t->t0_ns, t->t1_ns - t->t0_ns,
			    r->style);
	snprintf(pad, sizeof(pad), "%*s", cells - bar_end + 2, "");
	memcpy(text, r->text, sizeof(text));
	page__text(p, pad, at, text);
}

static void write_rows(struct page *p, const struct why *w)
{
	int cells = p->width >= 98 ? 32 : p->width >= 80 ? 20 : 12;

	write_axis(p, &w->t, cells);
	for (size_t i = 0; i < w->rows.rows.n; i++)
		write_row(p, &w->t, &w->rows.rows.v[i], cells);
	/* what no row of the engine's time line shows */
	if (w->behind.rows.n)
		page__para(p, "", 0, "Beside these rows, tokens that had been made:");
	for (size_t i = 0; i < w->behind.rows.n; i++)
		write_row(p, &w->t, &w->behind.rows.v[i], cells);
}

/* ---- the sum ---- */

static void write_part(struct page *p, const char *name, uint64_t us, uint64_t total_us)
{
	fprintf(p->out, "%10.3f%8.1f %%  %s\n", (double)us / 1000,
		total_us ? 100.0 * (double)us / (double)total_us : 0, name);
}

static void write_sum(struct page *p, const struct why *w)
{
	const struct trace *t = &w->t;
	uint64_t total = at_us(t, t->t1_ns), us[N_PARTS] = { 0 }, unknown = 0;
	int n_unknown = 0;

	page__heading(p, "%10s%10s  %s", "ms", "share", "part");
	for (size_t i = 0; i < t->n; i++)
		us[t->segs[i].part] += at_us(t, t->segs[i].t1_ns) - at_us(t, t->segs[i].t0_ns);
	for (int part = 0; part < N_PARTS; part++) {
		if (t->sum_ns[part])
			write_part(p, part_names[part], us[part], total);
		if (why_part_is_unknown((enum part)part)) {
			n_unknown += t->sum_ns[part] > 0;
			unknown += us[part];
		}
	}
	write_part(p, w->whole ? "sum = e2e (done - req_first_byte)" : "sum = what was seen of it",
		   total, total);
	if (n_unknown != 1) /* one is a row already */
		write_part(p, "of this unexplained", unknown, total);
}

/* ---- gaps ---- */

static void write_gap(struct page *p, const struct trace *t, const struct odd_gap *odd)
{
	char text[1200], row[64], at[CELL_LEN], ms[CELL_LEN], usual[CELL_LEN];
	size_t n = why_whose_gap(t, odd, text, sizeof(text));
	const struct gap *g = &odd->g;

	snprintf(row, sizeof(row), "%10s%10s%9s%7u  ",
		 cell_ms(at, (int64_t)(g->t0_ns > t->t0_ns ? g->t0_ns - t->t0_ns : 0)),
		 cell_ms(ms, (int64_t)(g->t1_ns - g->t0_ns)),
		 g->usual_ns ? cell_ms(usual, (int64_t)g->usual_ns) : "-", g->token);
	gap_text(t->v, g, text + n, sizeof(text) - n);
	page__text(p, row, 38, text);
}

static void write_gaps(struct page *p, const struct trace *t, const struct odd_gaps *o)
{
	char ms[UNITS_LEN];

	if (!o->n)
		return;
	page__heading(p, "%10s%10s%9s%7s  %s", "at ms", "ms", "usual", "token", "gaps between tokens above usual");
	for (size_t i = 0; i < o->n; i++)
		write_gap(p, t, &o->v[i]);
	page__para(p, "", 0, "%s%zu of %zu gap%s %s longer than usual, by %s in all.",
		   o->n_odd > o->n ? "These are the worst. " : "", o->n_odd, o->n_gaps, plural_s(o->n_gaps),
		   plural(o->n_odd, "is", "are"), units_ns(ms, o->excess_ns));
}

/* ---- the rest ---- */

static void write_legend(struct page *p, const struct trace *t)
{
	if (!t->q)
		return;
	if (p->utf8)
		page__para(p, "  -", 4,
			   "bars: ░ wait, ▓ own prefill, █ own decode, ▒ shared with more "
			   "prefill of others or outside the engine, ? not explained");
	else
		page__para(p, "  -", 4,
			   "bars: . wait, P own prefill, # own decode, - shared with more "
			   "prefill of others or outside the engine, ? not explained");
}

int why_request(const struct model_view *v, size_t request, const struct text_opts *o, FILE *out)
{
	struct page p;
	struct why *w;
	int err = why__new(v, request, &w);

	if (err)
		return err;
	page__init(&p, o, out);
	write_answer(&p, w);
	write_rows(&p, w);
	write_sum(&p, w);
	write_gaps(&p, &w->t, &w->gaps);
	fputc('\n', out);
	for (size_t i = 0; i < w->notes.n; i++)
		page__para(&p, "  -", 4, "%s", w->notes.v[i]);
	write_legend(&p, &w->t);
	why__free(w);
	return page__finish(&p);
}
