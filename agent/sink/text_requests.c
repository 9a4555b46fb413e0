/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of single requests in the text report: the slowest, and those that failed. */
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "sink/notes.h"
#include "sink/text_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEFAULT_LISTED = 12,
	MAX_FAILURES = 20,
	MAX_NAMED = 12,
	NAME_COLUMNS = 12	/* of an X-Request-Id: its begin, which is what tells them apart */
};

/* ---- the slowest ---- */

struct pick {
	struct req_metrics m;
	size_t index;
	bool taken;
};

static int by_ttft(const void *a, const void *b)
{
	const struct pick *x = a, *y = b;

	if (x->m.ttft_ns != y->m.ttft_ns)
		return x->m.ttft_ns < y->m.ttft_ns ? 1 : -1;
	return (x->index > y->index) - (x->index < y->index);
}

static int by_tpot(const void *a, const void *b)
{
	const struct pick *x = a, *y = b;

	if (x->m.tpot_ns != y->m.tpot_ns)
		return x->m.tpot_ns < y->m.tpot_ns ? 1 : -1;
	return (x->index > y->index) - (x->index < y->index);
}

static int by_e2e(const void *a, const void *b)
{
	const struct pick *x = a, *y = b;

	if (x->m.e2e_ns != y->m.e2e_ns)
		return x->m.e2e_ns < y->m.e2e_ns ? 1 : -1;
	return (x->index > y->index) - (x->index < y->index);
}

static uint32_t pid_of(const struct model_view *v, const struct rec_request *r)
{
	return r->engine < v->n_engines ? v->engines[r->engine].e.hdr.tgid : 0;
}

/* What the page has room for. */
struct table {
	bool pid, state, prefill, slot, hint;	/* hint: in the row, not below it */
	bool name;	/* X-Request-Id: of some requests at least */
	bool no_slots;	/* there is nothing to show */
};

static struct table table_for(const struct page *p, const struct model_view *v)
{
	struct table t = { .pid = false };
	int room = p->width - 46;

	for (size_t i = 1; i < v->n_requests && !t.pid; i++)
		t.pid = v->requests[i].engine != v->requests[0].engine;
	for (size_t i = 0; i < v->n_requests && !t.name; i++)
		t.name = v->requests[i].x_request_id[0];
	room -= t.pid ? 9 : 0;
	t.name &= room > NAME_COLUMNS;
	room -= t.name ? NAME_COLUMNS + 1 : 0;
	t.state = room >= 10;
	t.prefill = room >= 18;
	t.no_slots = !text_has_slots(v);
	t.slot = room >= 23 && !t.no_slots;
	t.hint = room >= (t.no_slots ? 18 : 23) + 2 + HINT_LEN - 1;
	return t;
}

static void write_table_head(struct page *p, const struct table *t)
{
	fprintf(p->out, "%-6s%s%s%s%13s%7s%7s%s%6s%7s%s%s\n", "id", t->name ? "x-request-id " : "", t->pid ? "pid      " : "",
		t->state ? "state     " : "", "in/cached/out", "TTFT", "queue",
		t->prefill ? " prefill" : "", "TPOT", "e2e", t->slot ? " slot" : "",
		t->hint ? "  why" : "");
}

static void write_left_out(struct page *p, const struct table *t)
{
	if (t->slot || (t->no_slots && t->prefill))
		return;
	page__para(p, "", 0, "Columns left out: %s%s%s%s (%s).", t->state ? "" : "state, ",
		   t->prefill ? "" : "prefill", t->prefill || t->no_slots ? "" : ", ", t->no_slots ? "" : "slot", WIDER);
}

static int write_pick(struct page *p, const struct model_view *v, struct blame *blame, const struct table *table,
		      size_t index)
{
	const struct rec_request *r = &v->requests[index];
	char a[CELL_LEN], b[CELL_LEN], c[CELL_LEN], d[CELL_LEN], e[CELL_LEN], f[CELL_LEN],
		g[CELL_LEN];
	char h[CELL_LEN], hint[HINT_LEN], tokens[64], slot[16] = "-";
	struct req_metrics m;
	struct trace t;
	int err = trace__init(&t, v, index);

	if (err)
		return err;
	request_metrics(v, r, &m);
	snprintf(tokens, sizeof(tokens), "%s/%s/%s", cell_count(a, r->prompt.n, r->prompt.prov),
		 cell_count(b, r->cached.n, r->cached.prov),
		 cell_count(c, r->output.n, r->output.prov));
	if (t.q)
		snprintf(slot, sizeof(slot), "%u", t.q->slot);
	fprintf(p->out, "r%-5u", r->req);
	if (table->name)
		fprintf(p->out, "%-*.*s ", NAME_COLUMNS, NAME_COLUMNS, r->x_request_id[0] ? r->x_request_id : "-");
	if (table->pid)
		fprintf(p->out, "%-8u ", pid_of(v, r));
	if (table->state)
		fprintf(p->out, "%-10s", req_state_names[r->state]);
	fprintf(p->out, "%13s%7s%7s", tokens, cell_ms(d, m.ttft_ns), cell_ms(e, m.queue_ns));
	if (table->prefill)
		fprintf(p->out, "%8s", cell_ms(f, m.prefill_ns));
	fprintf(p->out, "%6s%7s", cell_ms(g, m.tpot_ns), cell_ms(h, m.e2e_ns));
	if (table->slot)
		fprintf(p->out, "%5s", slot);
	text_hint(&t, blame, hint, sizeof(hint));
	if (table->hint)
		fprintf(p->out, "  %s\n", hint);
	else
		fprintf(p->out, "\n      %s\n", hint);
	trace__free(&t);
	return 0;
}

/* Which requests the table lists, in its order. */
struct listed {
	size_t *at;	/* indices of picks */
	size_t n, n_ttft, n_tpot;
};

/* Up to max more of the first n picks; returns how many. */
static size_t take(struct listed *l, struct pick *picks, size_t n, size_t max)
{
	size_t before = l->n;

	for (size_t i = 0; i < n && l->n - before < max; i++)
		if (!picks[i].taken) {
			picks[i].taken = true;
			l->at[l->n++] = picks[i].index;
		}
	return l->n - before;
}

/* Two of three by TTFT and the others by TPOT; those without by e2e, as far as there is room. */
static void choose(struct listed *l, struct pick *picks, size_t n, size_t max)
{
	size_t n_ttft = 0, n_tpot = 0;

	for (size_t i = 0; i < n; i++) {
		n_ttft += picks[i].m.ttft_ns >= 0;
		n_tpot += picks[i].m.tpot_ns >= 0;
	}
	qsort(picks, n, sizeof(*picks), by_ttft);
	l->n_ttft = take(l, picks, n_ttft, n > max ? max - max / 3 : n);
	if (n > max) {
		qsort(picks, n, sizeof(*picks), by_tpot);
		l->n_tpot = take(l, picks, n_tpot, max / 3);
	}
	qsort(picks, n, sizeof(*picks), by_e2e);
	take(l, picks, n, max - l->n);
}

/* "slowest requests: 8 by TTFT, then 4 by TPOT (ms)" */
static void write_title(struct page *p, const struct listed *l, bool all)
{
	const struct { const char *by; size_t n; } orders[] = {
		{ "TTFT", l->n_ttft }, { "TPOT", l->n_tpot }, { "e2e", l->n - l->n_ttft - l->n_tpot },
	};
	char text[120];
	int at = 0;

	if (all) {
		page__heading(p, "requests, slowest TTFT first (ms)");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(orders); i++)
		if (orders[i].n)
			at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%zu by %s", at ? ", then " : "", orders[i].n,
				       orders[i].by);
	page__heading(p, "slowest request%s: %s (ms)", plural_s(l->n), text);
}

static int write_listed(struct page *p, const struct model_view *v, struct blame *b, const struct listed *l,
			size_t n)
{
	struct table t = table_for(p, v);
	int err = 0;

	write_title(p, l, l->n == n);
	write_table_head(p, &t);
	for (size_t i = 0; i < l->n && !err; i++)
		err = write_pick(p, v, b, &t, l->at[i]);
	if (err)
		return err;
	if (l->n < n)
		page__para(p, "", 0, "%zu more request%s not in this table: report --all lists all %zu, -n N the slowest N.",
			   n - l->n, plural(n - l->n, " is", "s are"), n);
	write_left_out(p, &t);
	return 0;
}

int text_slowest(struct page *p, const struct model_view *v, struct blame *b, size_t max)
{
	struct pick *picks = calloc(v->n_requests, sizeof(*picks));
	struct listed l = { .at = calloc(v->n_requests, sizeof(*l.at)) };
	int err = picks && l.at ? 0 : -ENOMEM;
	size_t n = 0;

	for (size_t i = 0; i < v->n_requests && !err; i++) {
		if (!request_counts(&v->requests[i]))
			continue;
		request_metrics(v, &v->requests[i], &picks[n].m);
		picks[n++].index = i;
	}
	if (n) {
		choose(&l, picks, n, max ? max : DEFAULT_LISTED);
		err = write_listed(p, v, b, &l, n);
	}
	free(l.at);
	free(picks);
	return err;
}

/* ---- failures ---- */

/* Requests with the same state, reason and path are one line. */
struct failure {
	char text[240];
};

static void failure_text(const struct rec_request *r, struct failure *ret)
{
	char reason[160];

	snprintf(ret->text, sizeof(ret->text), "%s%s%s", request_reason(r, reason, sizeof(reason)),
		 r->path[0] ? ", " : "", r->path);
}

static bool has_failed(const struct rec_request *r)
{
	return r->state != REQ_COMPLETE && r->state != REQ_OPEN;
}

/* The requests of the group that `first` begins. */
static void write_failure(struct page *p, const struct model_view *v, size_t first,
			  const struct failure *group)
{
	const struct rec_request *r = &v->requests[first];
	size_t named = 0, more = 0;
	char ids[MAX_NAMED * 56] = "", label[16];
	int at = 0;

	for (size_t i = first; i < v->n_requests; i++) {
		struct failure f;

		if (v->requests[i].state != r->state)
			continue;
		failure_text(&v->requests[i], &f);
		if (strcmp(f.text, group->text) != 0)
			continue;
		if (named++ >= MAX_NAMED) {
			more++;
			continue;
		}
		at += snprintf(ids + at, sizeof(ids) - (size_t)at, "%sr%u", at ? " " : "",
			       v->requests[i].req);
		if (v->requests[i].x_request_id[0])
			at += snprintf(ids + at, sizeof(ids) - (size_t)at, " (%.40s)",
				       v->requests[i].x_request_id);
	}
	if (more)
		snprintf(ids + at, sizeof(ids) - (size_t)at, " and %zu more", more);
	snprintf(label, sizeof(label), "%-10s", req_state_names[r->state]);
	page__para(p, label, 10, "%s: %s", ids, group->text);
}

void text_failures(struct page *p, const struct model_view *v)
{
	struct failure groups[MAX_FAILURES];
	size_t n = 0, more = 0;

	for (size_t i = 0; i < v->n_requests; i++) {
		struct failure f;
		size_t k = 0;

		if (!has_failed(&v->requests[i]))
			continue;
		failure_text(&v->requests[i], &f);
		while (k < n && strcmp(groups[k].text, f.text) != 0)
			k++;
		if (k < n)
			continue;
		if (n == MAX_FAILURES) {
			more++;
			continue;
		}
		groups[n] = f;
		if (!n++)
			page__heading(p, "errors, aborted, truncated");
		write_failure(p, v, i, &f);
	}
	if (more)
		fprintf(p->out, "and %zu more: see --json\n", more);
}
