/* SPDX-License-Identifier: Apache-2.0 */
/* The waterfall of one request: the answer, the rows on a time axis, parts that add up to e2e. */
#include "sink/why.h"
#include "base/pct.h"
#include "base/units.h"
#include "base/util.h"
#include "sink/notes.h"
#include "sink/wall.h"
#include "sink/who.h"
#include "sink/why_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const enum part unknown_parts[] = { PART_UNEXPLAINED, PART_SERVER, PART_STREAM };

static uint64_t not_explained(const struct trace *t)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < ARRAY_SIZE(unknown_parts); i++)
		ns += t->sum_ns[unknown_parts[i]];
	return ns;
}

/* us since its beginning. Only boundaries are rounded, so rows, parts and sums add up as printed. */
static uint64_t at_us(const struct trace *t, uint64_t ns)
{
	return (ns - t->t0_ns + 500) / 1000;
}

/* ---- the answer ---- */

struct sentence {
	char text[2000];
	size_t at;
	uint64_t total_ns, small_ns;
};

static void __attribute__((format(printf, 2, 3))) append(struct sentence *s, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(s->text + s->at, sizeof(s->text) - s->at, fmt, ap);
	va_end(ap);
	if (n > 0)
		s->at += (size_t)n < sizeof(s->text) - s->at ? (size_t)n
							     : sizeof(s->text) - s->at - 1;
}

/* A part worth naming; what is below 1 % is added up as "other". */
static bool name_part(struct sentence *s, uint64_t ns)
{
	char ms[UNITS_LEN];

	if (100 * ns < s->total_ns || !ns) {
		s->small_ns += ns;
		return false;
	}
	append(s, ", %s ", units_ns(ms, ns));
	return true;
}

static void name_decode(struct sentence *s, const struct trace *t)
{
	char ms[UNITS_LEN], names[200];

	if (!name_part(s, t->sum_ns[PART_DECODE]))
		return;
	append(s, "in %zu decode step%s", t->n_decode_steps, t->n_decode_steps == 1 ? "" : "s");
	if (!t->n_shared)
		return;
	append(s, " (%s of it in %zu step%s shared with prefill of %s)", units_ns(ms, t->shared_ns),
	       t->n_shared, t->n_shared == 1 ? "" : "s",
	       crowd__prefill_text(&t->shared, t->v, names, sizeof(names)));
}

static void name_parts(struct sentence *s, const struct trace *t)
{
	char text[500];

	for (int part = 0; part < N_PARTS; part++) {
		if (part == PART_DECODE) {
			name_decode(s, t);
			continue;
		}
		if (part == PART_UNEXPLAINED || !name_part(s, t->sum_ns[part]))
			continue;
		if (part == PART_RECOMPUTE)
			append(s, "computing %u tokens again in %zu step%s", t->q->n_again,
			       t->n_recompute_steps, t->n_recompute_steps == 1 ? "" : "s");
		else
			append(s, "%s", who__text(t, (enum part)part, text, sizeof(text)));
	}
}

static int write_answer(struct page *p, const struct trace *t, struct blame *b)
{
	struct sentence s = { .total_ns = t->t1_ns - t->t0_ns };
	char total[UNITS_LEN], ms[UNITS_LEN], reason[160], began[WALL_LEN], client[320];
	const struct rec_request *r = t->r;
	bool whole = !r->joined_late && r->at_ns[P_DONE];
	char late[120];
	int err = why_client(t, b, client, sizeof(client));

	if (err)
		return err;
	why_first_token(t, b, late, sizeof(late));
	request_reason(r, reason, sizeof(reason));
	name_parts(&s, t);
	if (s.small_ns)
		append(&s, ", %s other", units_ns(ms, s.small_ns));
	page__style(p, STYLE_BOLD);
	if (!s.at)
		append(&s, ", nothing is known of what it did");
	page__para(p, "", 0, "r%u%s%s%s: %s %s%s%s;%s%s; %s%s.", r->req, *reason ? " (" : "", reason,
		   *reason ? ")" : "", whole ? "e2e" : "seen for", units_ns(total, s.total_ns),
		   *client ? " at the server's socket" : "", client, s.text + 1, late, not_explained(t) ? "unexplained " : "nothing unexplained",
		   not_explained(t) ? units_ns(ms, not_explained(t)) : "");
	page__style(p, STYLE_PLAIN);
	wall_text(t->v, t->t0_ns, began);
	page__para(p, "", 0, "It %s %s%s%.0f ms after the recording began.",
		   r->joined_late ? "was first seen" : "began", began, *began ? ", " : "",
		   t->t0_ns > t->v->t0_ns ? (double)(t->t0_ns - t->v->t0_ns) / 1e6 : 0);
	if (!t->q)
		page__para(p, "", 0,
			   "It is joined to no step of the engine: only what crossed the wire is "
			   "known, the rest counts as unexplained.");
	return 0;
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

static void write_row(struct page *p, const struct trace *t, struct why_row *r, int cells)
{
	int at = 10 + 10 + 2 + cells + 2, bar_end;
	char pad[160];

	fprintf(p->out, "%10.3f%10.3f  ", (double)at_us(t, r->t0_ns) / 1000,
		(double)(at_us(t, r->t1_ns) - at_us(t, r->t0_ns)) / 1000);
	bar_end = page__bar(p, cells, r->t0_ns - t->t0_ns, r->t1_ns - t->t0_ns, t->t1_ns - t->t0_ns,
			    r->style);
	snprintf(pad, sizeof(pad), "%*s", cells - bar_end + 2, "");
	page__text(p, pad, at, r->text);
}

/* What no row of the engine's time line shows. */
static int write_behind(struct page *p, const struct trace *t, struct blame *b, int cells)
{
	struct why_rows w;
	int err = why_rows__behind(&w, t, b);

	if (!err && w.rows.n)
		page__para(p, "", 0, "Beside these rows, tokens that had been made:");
	for (size_t i = 0; !err && i < w.rows.n; i++)
		write_row(p, t, &w.rows.v[i], cells);
	why_rows__free(&w);
	return err;
}

static int write_rows(struct page *p, const struct trace *t, struct blame *b)
{
	int cells = p->width >= 98 ? 32 : p->width >= 80 ? 20 : 12;
	struct why_rows w;
	int err = why_rows__build(&w, t);

	if (err)
		return err;
	write_axis(p, t, cells);
	for (size_t i = 0; i < w.rows.n; i++)
		write_row(p, t, &w.rows.v[i], cells);
	why_rows__free(&w);
	return write_behind(p, t, b, cells);
}

/* ---- the sum ---- */

static void write_part(struct page *p, const char *name, uint64_t us, uint64_t total_us)
{
	fprintf(p->out, "%10.3f%8.1f %%  %s\n", (double)us / 1000,
		total_us ? 100.0 * (double)us / (double)total_us : 0, name);
}

static void write_sum(struct page *p, const struct trace *t)
{
	uint64_t total = at_us(t, t->t1_ns), us[N_PARTS] = { 0 };
	int n_unknown = 0;
	bool whole = !t->r->joined_late && t->r->at_ns[P_DONE];

	page__heading(p, "%10s%10s  %s", "ms", "share", "part");
	for (size_t i = 0; i < t->n; i++)
		us[t->segs[i].part] += at_us(t, t->segs[i].t1_ns) - at_us(t, t->segs[i].t0_ns);
	for (int part = 0; part < N_PARTS; part++)
		if (t->sum_ns[part])
			write_part(p, part_names[part], us[part], total);
	write_part(p, whole ? "sum = e2e (done - req_first_byte)" : "sum = what was seen of it",
		   total, total);
	for (size_t i = 0; i < ARRAY_SIZE(unknown_parts); i++)
		n_unknown += t->sum_ns[unknown_parts[i]] > 0;
	if (n_unknown != 1) /* one is a row already */
		write_part(p, "of this unexplained",
			   us[PART_UNEXPLAINED] + us[PART_SERVER] + us[PART_STREAM], total);
}

/* ---- what else to know ---- */

static void write_ttft(struct page *p, const struct trace *t)
{
	char ttft[CELL_LEN], wire[CELL_LEN];
	struct req_metrics m;

	request_metrics(t->v, t->r, &m);
	if (m.ttft_ns < 0 || m.delivery_ns < 0)
		return;
	page__para(p, "  -", 4,
		   "TTFT %s ms: the rows up to its first token, and %s ms until that was "
		   "written",
		   cell_ms(ttft, m.ttft_ns), cell_ms(wire, m.delivery_ns));
}

static int write_delivery(struct page *p, const struct trace *t)
{
	size_t n, max = request_delivery_max(t->v, t->r);
	uint64_t *ns = malloc((max + 1) * sizeof(*ns));
	char p50[CELL_LEN], most[CELL_LEN];
	bool exact;

	if (!ns)
		return -ENOMEM;
	n = request_delivery(t->v, t->r, ns, &exact);
	if (n)
		page__para(p, "  -", 4,
			   "delivery, from the engine's output to the write of its chunk: p50 %s%s "
			   "ms, max %s ms over %zu outputs",
			   exact ? "" : "at least ", cell_ms(p50, (int64_t)pct_u64(ns, n, 500)),
			   cell_ms(most, (int64_t)pct_u64(ns, n, 1000)), n);
	free(ns);
	return 0;
}

static void write_join(struct page *p, const struct trace *t)
{
	if (!t->q)
		return;
	page__para(p, "  -", 4, "joined to sequence %u on slot %u by %s, confidence %u %%%s",
		   t->q->id, t->q->slot, join_method_names[t->q->join], t->q->confidence_pct,
		   t->q->rivals ? "; other pairings fit too" : "");
	if (t->r->n_seqs > 1)
		page__para(p, "  -", 4, "it has %zu sequences: this is the one that ended last",
			   t->r->n_seqs);
	if (t->r->joined_late)
		page__para(p, "  -", 4,
			   "its beginning was not seen: times count from the first thing that was");
	else if (!t->r->at_ns[P_SUBMIT])
		page__para(p, "  -", 4,
			   "submit was not seen: parsing and tokenizing are part of the wait");
	if (!request_is_streamed(t->r))
		page__para(p, "  -", 4,
			   "not streamed: when its tokens were ready is the engine's side only");
}

static void write_losses(struct page *p, const struct trace *t)
{
	uint64_t n = 0;

	for (size_t i = 0; i < t->v->n_lost; i++)
		if (t->v->lost[i].since_ns <= t->t1_ns && t->v->lost[i].until_ns >= t->t0_ns)
			n += t->v->lost[i].n;
	if (n)
		page__para(p, "  -", 4,
			   "%" PRIu64 " events were lost while it ran: some of this may be "
			   "wrong",
			   n);
}

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

static int write_waterfall(struct page *p, const struct trace *t)
{
	struct blame *b = NULL;
	int err = blame__new(t->v, &b);

	if (!err)
		err = write_answer(p, t, b);
	if (!err)
		err = write_rows(p, t, b);
	if (!err) {
		write_sum(p, t);
		err = why_gaps(p, t, b);
	}
	if (!err) {
		fputc('\n', p->out);
		write_ttft(p, t);
		why_ttft(p, t, b);
		why_open(p, t, b);
		why_engine_says(p, t);
		err = why_how(p, t, b);
	}
	if (!err)
		err = write_delivery(p, t);
	if (!err)
		err = why_send(p, t);
	if (!err) {
		text_gpu_request(p, t->v, (size_t)(t->r - t->v->requests));
		write_join(p, t);
		write_losses(p, t);
		write_legend(p, t);
	}
	blame__free(b);
	return err;
}

int why_request(const struct model_view *v, size_t request, const struct text_opts *o, FILE *out)
{
	struct trace t;
	struct page p;
	int err;

	page__init(&p, o, out);
	err = trace__init(&t, v, request);
	if (err)
		return err;
	err = write_waterfall(&p, &t);
	trace__free(&t);
	return err ? err : page__finish(&p);
}
