/* SPDX-License-Identifier: Apache-2.0 */
/* Who slowed whom, as text: the answer first, then tables that add up to it. */
#include "sink/blame_table.h"
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "sink/blame_priv.h"
#include "sink/blame_words.h"
#include "sink/how_words.h"
#include "sink/notes_priv.h"
#include "sink/text_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 98, NARROW = 76 };	/* more columns from here on; below: short names */
enum { MAX_HOW_LINES = 6 };

static bool is_narrow(const struct page *p)
{
	return p->width < NARROW;
}

static const char *label_of(const struct page *p, int m)
{
	return is_narrow(p) ? mechanism_names[m] : mechanism_labels[m];
}

/* Columns of the longest label, and a space. */
static int label_columns(const struct page *p)
{
	return is_narrow(p) ? 17 : 31;
}

/* ---- the answer ---- */

static bool concerns(const struct culprit *c, uint32_t request)
{
	return c->type == WHO_REQUEST && c->id == request;
}

/* "r17 kept 3 others waiting, 7.82 s in all. Itself: " where it did more than was done to it, else "r17: "; then `last`
 * says it. 0 or -ENOMEM */
static int whose_answer(const struct blame_text *t, char *first, size_t size, char *last)
{
	uint64_t suffered_ns = t->sum->excess_ns + t->sum->ttft_excess_ns;
	uint32_t self = t->request - 1, n = 0;
	bool *victims = calloc(t->v->n_requests + 1, sizeof(*victims));
	char ms[UNITS_LEN];
	uint64_t ns = 0;

	if (!victims)
		return -ENOMEM;
	for (size_t i = 0; t->all && i < t->all->n_pairs; i++) {
		const struct blame_pair *x = &t->all->pairs[i];

		if (x->victim == self || (!concerns(&x->culprit, self) && !concerns(&x->root, self)))
			continue;
		n += !victims[x->victim];
		victims[x->victim] = true;
		ns += x->ns + x->ttft_ns;
	}
	free(victims);
	units_ns(ms, ns);
	snprintf(first, size, "r%u: ", t->v->requests[self].req);
	if (ns > suffered_ns)
		snprintf(first, size, "r%u kept %u other%s waiting, %s in all. Itself: ", t->v->requests[self].req, n,
			 plural_s(n), ms);
	else if (n)
		snprintf(last, size, " It kept %u other%s waiting, %s in all.", n, plural_s(n), ms);
	return 0;
}

static int write_answer(struct page *p, const struct blame_text *t)
{
	char text[1600], first[96] = "", last[96] = "";
	int err = blame_answer(t->v, t->sum, t->mechanism, text, sizeof(text));

	if (!err && t->request)
		err = whose_answer(t, first, sizeof(first), last);
	if (err)
		return err;
	text_urgent(p, t->v);
	page__style(p, STYLE_BOLD);
	page__para(p, "", 0, "%s%s%s", first, text, last);
	page__style(p, STYLE_PLAIN);
	return 0;
}

/* ---- by mechanism ---- */

static unsigned int pct(uint64_t part, uint64_t all)
{
	return all ? (unsigned int)(100.0 * (double)part / (double)all + 0.5) : 0;
}

static uint64_t both(const struct blame_row *r)
{
	return r->ns + r->ttft_ns;
}

static int write_mechanism(struct page *p, const struct blame_text *t, uint8_t m)
{
	const struct blame_sum *s = t->sum;
	const struct blame_row *r = &s->by_mechanism[m];
	char ms[CELL_LEN], name[64], share[16];
	struct blame_who who;
	long n = blame_sum__culprits(s, 1ull << m, IN_GAPS | IN_TTFTS, &who, 1);

	if (n < 0)
		return (int)n;
	snprintf(share, sizeof(share), "%u %%",
		 pct(both(r), s->excess_ns + s->ttft_excess_ns - both(&s->by_mechanism[MECH_LOST])));
	page__style(p, m >= MECH_LOST ? STYLE_BAD : STYLE_PLAIN);
	fprintf(p->out, "%-*s%9s%7s", label_columns(p), label_of(p, m),
		cell_ms(ms, (int64_t)both(r)), m == MECH_LOST ? "-" : share);
	if (p->width >= WIDE) {
		fprintf(p->out, "%9s", r->ns ? cell_ms(ms, (int64_t)r->ns) : "-");
		fprintf(p->out, "%9s", r->ttft_ns ? cell_ms(ms, (int64_t)r->ttft_ns) : "-");
	}
	fprintf(p->out, "%9u", r->n_victims);
	page__style(p, STYLE_PLAIN);
	if (n && !is_narrow(p))
		fprintf(p->out, "  %.*s: %s", p->width >= WIDE ? 20 : 14,
			culprit_brief(t->v, &who.who, name, sizeof(name)),
			cell_ms(ms, (int64_t)(who.ns + who.ttft_ns)));
	fputc('\n', p->out);
	return 0;
}

/* "their own: 4.00 s decode, 360 ms prefill = 86 % of 5.01 s" */
static void write_own(struct page *p, const struct blame_sum *s)
{
	static const char *const names[] = { "decode", "prefill", "parsing and tokenizing", "delivery" };
	uint64_t own = 0, all = s->gaps_ns + s->ttfts_ns;
	char text[300], open[OPEN_TEXT], ms[UNITS_LEN], total[UNITS_LEN];
	int at = 0;

	for (size_t m = 0; m < ARRAY_SIZE(names); m++) {
		uint64_t ns = both(&s->by_mechanism[m]);

		own += ns;
		if (ns)
			at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%s %s", at ? ", " : "",
				       units_ns(ms, ns), names[m]);
	}
	if (!all)
		return;
	fputc('\n', p->out);
	page__para(p, "own", LABEL,
		   "%s: %u %% of the %s of all gaps (%" PRIu64 ") and waits for first "
		   "tokens (%" PRIu64 "%s)",
		   at ? text : "nothing", pct(own, all), units_ns(total, all), s->n_gaps,
		   s->n_ttfts, open_ttfts_text(s, " and ", open));
}

static void write_hows(struct page *p, const struct blame_text *t)
{
	char text[HOW_TEXT];

	for (size_t i = 0; t->hows && i < t->hows->n && i < MAX_HOW_LINES; i++)
		page__para(p, i ? "" : "how", LABEL, "%s", how_text(t->v, &t->hows->v[i], text, sizeof(text)));
}

static int write_mechanisms(struct page *p, const struct blame_text *t)
{
	uint8_t order[N_MECHANISMS];
	size_t n = blame_sum__order(t->sum, order);
	int err = 0;

	if (n) {
		page__heading(p, "%-*s%9s%7s%s%9s%s", label_columns(p),
			      is_narrow(p) ? "above baseline" : "ms above baseline", "gaps+TTFT", "share",
			      p->width >= WIDE ? "  in gaps in TTFTs" : "", "requests",
			      is_narrow(p) ? "" : "  worst culprit");
		for (size_t i = 0; i < n && !err; i++)
			err = write_mechanism(p, t, order[i]);
	}
	write_own(p, t->sum);
	write_hows(p, t);
	return err;
}

/* ---- pairs ---- */

static void write_pair(struct page *p, const struct blame_text *t, const struct blame_pair *x)
{
	char ms[CELL_LEN], victim[24], who[64], root[48], longest[CELL_LEN], at[CELL_LEN];
	char gaps[CELL_LEN];
	const struct culprit victim_of = { .type = WHO_REQUEST, .id = x->victim };

	culprit_brief(t->v, &victim_of, victim, sizeof(victim));
	culprit_brief(t->v, &x->culprit, who, sizeof(who));
	if (x->root.type != WHO_NOBODY && x->root.type != WHO_CGROUP) {
		culprit_brief(t->v, &x->root, root, sizeof(root));
		snprintf(who + strlen(who), sizeof(who) - strlen(who), " for %s", root);
	}
	fprintf(p->out, "%-8s%-18.17s%-*s%9s%6s", victim, who, label_columns(p),
		label_of(p, x->mechanism), cell_ms(ms, (int64_t)(x->ns + x->ttft_ns)),
		cell_count(gaps, x->n_gaps, x->n_gaps != 0));
	if (p->width >= WIDE)
		fprintf(p->out, "%9s%11s", cell_ms(longest, (int64_t)x->max_ns),
			cell_ms(at, (int64_t)(x->max_at_ns - t->v->t0_ns)));
	if (p->width >= WIDE + 12)
		fprintf(p->out, "  %s", x->prov ? provenance_names[x->prov] : "");
	fputc('\n', p->out);
}

/* Rows of pairs; of `culprit` (index + 1; 0: all). Returns how many there are, or -ENOMEM. */
static long write_pairs(struct page *p, const struct blame_text *t, const struct blame_sum *s,
			uint32_t culprit)
{
	size_t n = 0, n_pairs;
	struct blame_pair *pairs = blame_sum__merged(s, &n_pairs);
	uint64_t rest_ns = 0;
	char ms[UNITS_LEN];

	if (!pairs)
		return -ENOMEM;
	for (size_t i = 0; i < n_pairs; i++) {
		const struct blame_pair *x = &pairs[i];

		if (culprit && (x->victim == culprit - 1 || (!concerns(&x->culprit, culprit - 1) &&
							     !concerns(&x->root, culprit - 1))))
			continue;
		if (!n)
			page__heading(p, "%-8s%-18s%-*s%9s%6s%s%s", "victim", "culprit",
				      label_columns(p), "by", "ms", "gaps", p->width >= WIDE ? "  longest      at ms" : "",
				      p->width >= WIDE + 12 ? "  from" : "");
		if (n++ < t->top)
			write_pair(p, t, x);
		else
			rest_ns += x->ns + x->ttft_ns;
	}
	if (n > t->top)
		page__para(p, "", 0, "and %zu more (%s): --top %zu shows %s", n - t->top,
			   units_ns(ms, rest_ns), n, plural(n - t->top, "it", "them"));
	free(pairs);
	return (long)n;
}

/* ---- longest gaps ---- */

/* Did the same thing happen to both at the same time? */
static bool is_one_event(const struct gap *a, const struct gap *b)
{
	const uint64_t near_ns = 5000000;

	return a->n_parts && b->n_parts && a->parts[0].mechanism == b->parts[0].mechanism &&
	       culprit_equal(&a->parts[0].who, &b->parts[0].who) &&
	       a->t0_ns < b->t0_ns + near_ns && b->t0_ns < a->t0_ns + near_ns &&
	       a->t1_ns < b->t1_ns + near_ns && b->t1_ns < a->t1_ns + near_ns;
}

/* How many gaps with this one as the first (the longest) are one event; 0: it is part of an earlier one. */
static size_t n_alike(const struct blame_sum *s, size_t i)
{
	size_t n = 1;

	for (size_t k = 0; k < i; k++)
		if (is_one_event(&s->top[k], &s->top[i]))
			return 0;
	for (size_t k = i + 1; k < s->n_top; k++)
		n += is_one_event(&s->top[i], &s->top[k]);
	return n;
}

static void write_gap(struct page *p, const struct blame_text *t, const struct gap *g, size_t alike)
{
	char text[1200], row[160], at[CELL_LEN], ms[CELL_LEN], usual[CELL_LEN], token[16];
	char victim[24], victims[48];

	culprit_brief(t->v, &(struct culprit){ .type = WHO_REQUEST, .id = g->request }, victim,
		      sizeof(victim));
	snprintf(victims, sizeof(victims), alike > 1 ? "%s +%zu" : "%s", victim, alike - 1);
	snprintf(token, sizeof(token), g->token ? "%u" : "first", g->token);
	snprintf(row, sizeof(row), "%9s  %-8s%5s%9s%9s  ", cell_ms(at, (int64_t)(g->t0_ns - t->v->t0_ns)),
		 victims, token, cell_ms(ms, (int64_t)(g->t1_ns - g->t0_ns)),
		 g->usual_ns ? cell_ms(usual, (int64_t)g->usual_ns) : "-");
	snprintf(text, sizeof(text), g->open ? "still waiting when the recording ended: " : "");
	gap_text(t->v, g, text + strlen(text), sizeof(text) - strlen(text));
	if (is_narrow(p))
		strcat(row, "\n            ");
	page__text(p, row, is_narrow(p) ? 12 : 44, text);
}

static void write_gaps(struct page *p, const struct blame_text *t)
{
	const struct blame_sum *s = t->sum;
	size_t shown = 0;

	if (!s->n_top)
		return;
	page__heading(p, "%9s  %-8s%5s%9s%9s  %s", "at ms", "victim", "token", "ms", "usual",
		      is_narrow(p) ? "longest gaps" : "longest gaps: what filled them");
	for (size_t i = 0; i < s->n_top && shown < t->top; i++) {
		size_t alike = n_alike(s, i);

		if (!alike)
			continue;
		write_gap(p, t, &s->top[i], alike);
		shown++;
	}
	page__para(p, "", 0, "%" PRIu64 " of %" PRIu64 " gap%s %s longer than usual.", s->n_odd_gaps, s->n_gaps, plural_s(s->n_gaps),
		   plural(s->n_odd_gaps, "is", "are"));
}

/* ---- what if ---- */

static const char *cell_p99(char buf[CELL_LEN], const struct dist *d, bool *few)
{
	cell_ms(buf, d->n ? (int64_t)d->p99 : -1);
	if (!d->n)
		return "-";
	if (d->n < MIN_FOR_P99) {
		*few = true;
		strcat(buf, "*");
	}
	return buf;
}

static void write_what_if(struct page *p, const struct blame_sum *s)
{
	bool few = false;
	int columns;

	if (s->n_what_if < 2)
		return;
	columns = label_columns(p) + 9;
	page__heading(p, "%-*s%11s%11s%11s", columns, "what if, ms", "TPOT p50", "TPOT p99", "TTFT p99");
	for (size_t i = 0; i < s->n_what_if; i++) {
		const struct blame_what_if *w = &s->what_if[i];
		char a[CELL_LEN], b[CELL_LEN], c[CELL_LEN], name[64];

		if (i)
			snprintf(name, sizeof(name), "without %s", label_of(p, w->without));
		else
			snprintf(name, sizeof(name), "as it was");
		fprintf(p->out, "%-*s%11s%11s%11s\n", columns, name,
			w->tpot.n ? cell_ms(a, (int64_t)w->tpot.p50) : "-", cell_p99(b, &w->tpot, &few),
			cell_p99(c, &w->ttft, &few));
	}
	if (few)
		page__para(p, "", 0, "* max, as there are fewer than %d values", MIN_FOR_P99);
	if (s->n_at_client)
		page__para(p, "", 0, "At the client for %u request%s whose arrivals are known, at the server's socket for "
			   "others; report's TTFT and TPOT are those of the socket for all.", s->n_at_client,
			   plural_s(s->n_at_client));
}

/* ---- what it rests on ---- */

static void write_unexplained(struct page *p, const struct blame_sum *s)
{
	const struct blame_row *r = &s->by_mechanism[MECH_UNEXPLAINED];
	char ms[UNITS_LEN], out[900], not[900];
	uint64_t known = s->ruled_out;

	if (!both(r))
		return;
	mechanisms_text(s->ruled_out, out, sizeof(out));
	for (int m = 0; m < N_MECHANISMS; m++)
		known |= both(&s->by_mechanism[m]) ? 1ull << m : 0;
	not_watched_text(known, not, sizeof(not));
	page__style(p, STYLE_BAD);
	page__para(p, "unknown", LABEL, "%s in %u gap%s of %u request%s unexplained", units_ns(ms, both(r)),
		   r->n_gaps, plural_s(r->n_gaps), r->n_victims, plural(r->n_victims, " is", "s is"));
	page__style(p, STYLE_PLAIN);
	page__para(p, "", LABEL, "ruled out, in what is unexplained: %s", *out ? out : "nothing");
	if (*not)
		page__para(p, "", LABEL, "no evidence was recorded of: %s", not);
}

static void write_note(void *ctx, const char *sentence)
{
	page__para(ctx, "note", LABEL, "%s", sentence);
}

static void write_basis(struct page *p, const struct blame_text *t)
{
	const struct blame_sum *s = t->sum;
	uint64_t all = s->prov_ns[PROV_NONE], lost = both(&s->by_mechanism[MECH_LOST]);
	char text[200] = "", ms[UNITS_LEN];
	int at = 0;

	for (int i = PROV_OBSERVED; i <= PROV_INFERRED; i++)
		all += s->prov_ns[i];
	for (int i = PROV_OBSERVED; i <= PROV_INFERRED; i++)
		if (s->prov_ns[i])
			at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%u %% %s", at ? ", " : "",
				       pct(s->prov_ns[i], all), provenance_names[i]);
	if (at)
		page__para(p, "blame", LABEL, "%s", text);
	if (s->n_learnt)
		page__para(p, "usual", LABEL, "learnt from %u undisturbed step%s of this recording; %" PRIu64
			   " of %" PRIu64 " gap%s %s nothing to compare with", s->n_learnt, plural_s(s->n_learnt),
			   s->n_no_baseline, s->n_gaps, plural_s(s->n_gaps), plural(s->n_no_baseline, "has", "have"));
	if (lost)
		page__para(p, "lost", LABEL, "%s of gaps lie where events were lost: nobody is blamed there",
			   units_ns(ms, lost));
	if (s->n_pairs_not_kept)
		page__para(p, "not kept", LABEL, "%" PRIu64 " part%s of pairs beyond the limit of %d: in the "
			   "sums only", s->n_pairs_not_kept, plural_s(s->n_pairs_not_kept), MAX_PAIRS);
	note_health(t->v, &(struct say){ write_note, p });
	text_seen(p, t->v, t->summary);
	text_cost(p, t->v, t->summary);
	text_capture(p, t->v);
}

/* Pairs; of one request also whom it kept waiting. */
static int write_all_pairs(struct page *p, const struct blame_text *t)
{
	long n = write_pairs(p, t, t->sum, 0);

	if (n < 0 || !t->request || !t->all)
		return n < 0 ? (int)n : 0;
	n = write_pairs(p, t, t->all, t->request);
	if (!n)
		page__para(p, "", 0, "It kept nobody else waiting.");
	return n < 0 ? (int)n : 0;
}

int blame_text(const struct blame_text *t, const struct text_opts *o, FILE *out)
{
	struct page p;
	int err;

	page__init(&p, o, out);
	err = write_answer(&p, t);
	if (!err)
		err = write_mechanisms(&p, t);
	if (!err && !t->request)
		err = blame_matrix(&p, t);
	if (!err)
		err = write_all_pairs(&p, t);
	if (err)
		return err;
	write_gaps(&p, t);
	write_what_if(&p, t->sum);
	fputc('\n', out);
	write_unexplained(&p, t->sum);
	write_basis(&p, t);
	page__para(&p, "words", LABEL,
		   "above baseline: beyond what the same step takes undisturbed; each mechanism, what it is "
		   "confused with and what to do: doc/mechanisms.md");
	return page__finish(&p);
}
