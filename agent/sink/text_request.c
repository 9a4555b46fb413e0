/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that is known of one request: its points in the order of time, tokens, join, gaps. */
#include "base/pct.h"
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "sink/notes.h"
#include "sink/text_priv.h"
#include "sink/wall.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE_LABEL = 12 };

static void write_head(struct page *p, const struct model_view *v, const struct rec_request *r,
		       const struct trace *t, struct blame *b)
{
	char reason[160], hint[240], total[UNITS_LEN], began[WALL_LEN];
	const char *method = method_name(r->method);
	/* the body of an error has none: that it is one is ours to say */
	const char *finish = r->finish == TL_FINISH_ERROR ? NULL : finish_name(r->finish);

	request_reason(r, reason, sizeof(reason));
	page__style(p, STYLE_BOLD);
	page__para(p, "", 0, "r%u: %s after %s%s%s%s%s%s.", r->req, req_state_names[r->state],
		   units_ns(total, t->t1_ns - t->t0_ns), *reason ? " (" : "", reason,
		   *reason ? ")" : "", request_counts(r) ? "; " : "",
		   request_counts(r) ? text_hint(t, b, hint, sizeof(hint)) : "");
	page__style(p, STYLE_PLAIN);
	fputc('\n', p->out);
	page__para(p, "request", WIDE_LABEL, "%s %s%s%s, %s", method ? method : "(method not seen)",
		   r->path[0] ? r->path : "(path not seen)", r->model[0] ? ", model " : "",
		   r->model,
		   r->stream < 0 ? "not known if streamed"
		   : r->stream	 ? "streamed"
				 : "not streamed");
	if (r->status)
		page__para(p, "response", WIDE_LABEL, "HTTP %u%s%s, %" PRIu64 " byte%s", r->status,
			   finish ? ", finish reason " : "", finish ? finish : "", r->bytes_out, plural_s(r->bytes_out));
	else
		page__para(p, "response", WIDE_LABEL, "no response head was seen");
	if (r->id[0] || r->x_request_id[0] || r->traceparent[0])
		page__para(p, "ids", WIDE_LABEL, "%s%s%s%s%s%s", r->id[0] ? "response " : "", r->id,
			   r->x_request_id[0] ? " x-request-id " : "", r->x_request_id,
			   r->traceparent[0] ? " traceparent " : "", r->traceparent);
	if (r->engine < v->n_engines)
		page__para(p, "engine", WIDE_LABEL, "pid %u, connection %u",
			   v->engines[r->engine].e.hdr.tgid, r->conn);
	wall_text(v, t->t0_ns, began);
	page__para(p, r->joined_late ? "first seen" : "began", WIDE_LABEL,
		   "%s%s%.3f ms after the recording began", began,
		   *began ? ", " : "", t->t0_ns > v->t0_ns ? (double)(t->t0_ns - v->t0_ns) / 1e6 : 0);
}

static void write_count(struct page *p, const char *what, const struct rec_count *c)
{
	if (c->prov == PROV_NONE)
		page__para(p, what, WIDE_LABEL, "not known");
	else
		page__para(p, what, WIDE_LABEL, "%u token%s (%s)", c->n, plural_s(c->n), provenance_names[c->prov]);
}

static void write_tokens(struct page *p, const struct rec_request *r)
{
	write_count(p, "prompt", &r->prompt);
	write_count(p, "cached", &r->cached);
	write_count(p, "output", &r->output);
	if (r->reasoning.prov != PROV_NONE)
		write_count(p, "reasoning", &r->reasoning);
	if (r->max_tokens >= 0)
		page__para(p, "asked for", WIDE_LABEL, "at most %d token%s%s", r->max_tokens, plural_s((uint64_t)r->max_tokens),
			   r->n > 1 ? " per answer" : "");
	if (r->n > 1)
		page__para(p, "answers", WIDE_LABEL, "%u in parallel: no TPOT, no gaps between chunks",
			   r->n);
	page__para(p, "chunks", WIDE_LABEL, "%zu with tokens", r->n_chunks);
}

static void write_preemptions(struct page *p, const struct rec_request *r,
			      const struct rec_sequence *q)
{
	uint64_t origin = request_first_ns(r);
	bool known = sequence_knows_lost(q);

	for (size_t i = 0; i < q->n_preemptions; i++) {
		const struct rec_preemption *e = &q->preemptions[i];
		char parked[UNITS_LEN + 16] = "not scheduled again", ms[UNITS_LEN], lost[32] = "";

		if (e->resumed_ns >= e->at_ns)
			snprintf(parked, sizeof(parked), "parked for %s",
				 units_ns(ms, e->resumed_ns - e->at_ns));
		if (known)
			snprintf(lost, sizeof(lost), ", %u token%s lost", e->lost_tokens, plural_s(e->lost_tokens));
		page__para(p, i ? "" : "preempted", WIDE_LABEL, "%.3f ms after it %s, %s%s (%s)",
			   (double)(int64_t)(e->at_ns - origin) / 1e6, r->joined_late ? "was first seen" : "began", parked, lost,
			   provenance_names[e->prov]);
	}
	if (!known && q->n_preemptions)
		page__para(p, "", WIDE_LABEL, "how much it lost is not known: the begin of its prompt was not seen");
	else if (q->n_again)
		page__para(p, "", WIDE_LABEL, "%u token%s computed again", q->n_again, plural(q->n_again, " was", "s were"));
}

static void write_joins(struct page *p, const struct model_view *v, const struct rec_request *r)
{
	for (size_t i = 0; i < r->n_seqs; i++) {
		const struct rec_sequence *q = &v->seqs[r->seqs[i]];
		char rivals[64] = "", slot[32] = "", which[32] = "", rest[120] = "";
		uint32_t unseen = request_prompt_unseen(v, r);

		if (q->rivals)
			snprintf(rivals, sizeof(rivals), ", %u other pairing%s fitted too",
				 q->rivals, plural_s(q->rivals));
		if (text_has_slots(v))
			snprintf(slot, sizeof(slot), " on slot %u", q->slot);
		if (unseen)
			snprintf(rest, sizeof(rest), " (%u more of its prompt are in no step: cached, or it is not certain "
				 "who had them)", unseen);
		if (r->n_seqs > 1)
			snprintf(which, sizeof(which), " (answer %zu)", i + 1);
		page__para(p, i ? "" : "joined", WIDE_LABEL,
			   "to sequence %u%s%s by %s, confidence "
			   "%u %%%s; %u token%s in prefill%s, %u in decode, %zu step%s",
			   q->id, which, slot, join_method_names[q->join], q->confidence_pct, rivals,
			   q->n_prefill, plural_s(q->n_prefill), rest, q->n_decode, q->n_visits,
			   plural_s(q->n_visits));
		write_preemptions(p, r, q);
	}
	if (!r->n_seqs)
		page__para(p, "joined", WIDE_LABEL,
			   "to no sequence of the engine: no engine-side points");
}

/* ---- points ---- */

struct moment {
	uint64_t ns;
	int point;
};

static int by_time(const void *a, const void *b)
{
	const struct moment *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns < y->ns ? -1 : 1;
	return x->point - y->point;
}

static void write_points(struct page *p, const struct rec_request *r, uint64_t origin)
{
	struct moment m[N_POINTS];
	char missing[300] = "";
	size_t n = 0, at = 0;

	for (int i = 0; i < N_POINTS; i++) {
		if (r->at_ns[i])
			m[n++] = (struct moment){ r->at_ns[i], i };
		else
			at += (size_t)snprintf(missing + at, sizeof(missing) - at, "%s%s",
					       at ? ", " : "", point_names[i]);
	}
	qsort(m, n, sizeof(*m), by_time);
	page__heading(p, "%-22s%14s%14s  %s", "point", "ms", "since last", "from");
	for (size_t i = 0; i < n; i++) {
		fprintf(p->out, "%-22s%14.3f", point_names[m[i].point],
			(double)(int64_t)(m[i].ns - origin) / 1e6);
		if (i)
			fprintf(p->out, "%14.3f", (double)(m[i].ns - m[i - 1].ns) / 1e6);
		else
			fprintf(p->out, "%14s", "");
		fprintf(p->out, "  %s\n", provenance_names[r->prov[m[i].point]]);
	}
	if (at)
		page__para(p, "not seen:", WIDE_LABEL, "%s", missing);
	if (!r->at_ns[P_REQ_FIRST_BYTE])
		page__para(p, "", 0,
			   "Its beginning was not seen: ms count from the first thing that was.");
}

/* ---- metrics, gaps ---- */

static void write_metric(struct page *p, const char *name, int64_t ns, const char *note)
{
	char label[64];
	int n = snprintf(label, sizeof(label), "%-22s%14.3f", name, (double)ns / 1e6);

	if (*note)
		page__para(p, label, n + 2, "%s", note);
	else
		fprintf(p->out, "%s\n", label);
}

static void write_metrics(struct page *p, const struct model_view *v, const struct rec_request *r)
{
	char missing[160] = "";
	struct req_metrics m;
	size_t at = 0;

	request_metrics(v, r, &m);
	const struct {
		const char *name;
		int64_t ns;
		const char *note;
	} rows[] = {
		{ "TTFT", m.ttft_ns, "" },
		{ "TPOT", m.tpot_ns,
		  m.tpot_prov == PROV_REPORTED ? "tokens as the engine reports" : "" },
		{ "e2e", m.e2e_ns, "" },
		{ "front end", m.before_submit_ns, "" },
		{ "queue", m.queue_ns,
		  m.queue_prov == PROV_INFERRED
			  ? "inferred: from req_last_byte, submit was not seen"
			  : "" },
		{ "prefill", m.prefill_ns, "" },
		{ "decode", m.decode_ns, "" },
		{ "first token delivery", m.delivery_ns, "" },
		{ "engine-reported prefill",
		  r->reported_prefill_ns ? (int64_t)r->reported_prefill_ns : -1, "" },
		{ "engine-reported decode",
		  r->reported_decode_ns ? (int64_t)r->reported_decode_ns : -1, "" },
	};

	page__heading(p, "%-22s%14s", "metric", "ms");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].ns >= 0)
			write_metric(p, rows[i].name, rows[i].ns, rows[i].note);
		else
			at += (size_t)snprintf(missing + at, sizeof(missing) - at, "%s%s",
					       at ? ", " : "", rows[i].name);
	}
	if (at)
		page__para(p, "not known:", WIDE_LABEL, "%s", missing);
}

static void write_gaps(struct page *p, const char *name, uint64_t *gaps, size_t n)
{
	char a[CELL_LEN], b[CELL_LEN], c[CELL_LEN];

	if (n)
		page__para(p, name, WIDE_LABEL, "%zu gap%s: p50 %s ms, p99 %s ms, max %s ms", n, plural_s(n),
			   cell_ms(a, (int64_t)pct_u64(gaps, n, 500)),
			   cell_ms(b, (int64_t)pct_u64(gaps, n, 990)),
			   cell_ms(c, (int64_t)pct_u64(gaps, n, 1000)));
	else
		page__para(p, name, WIDE_LABEL, "no gaps were seen");
}

static void write_delivery(struct page *p, const struct trace *t, uint64_t *ns)
{
	char a[CELL_LEN], b[CELL_LEN], c[CELL_LEN];
	bool exact;
	size_t n = request_delivery(t->v, t->r, ns, &exact);

	if (n)
		page__para(p, "delivery", WIDE_LABEL, "%zu output%s: p50 %s ms, p99 %s ms, max %s ms%s",
			   n, plural_s(n), cell_ms(a, (int64_t)pct_u64(ns, n, 500)),
			   cell_ms(b, (int64_t)pct_u64(ns, n, 990)),
			   cell_ms(c, (int64_t)pct_u64(ns, n, 1000)),
			   exact ? "" : " (chunks hold several: at least this)");
	else if (t->r->n_chunks && t->r->n <= 1)
		page__para(p, "delivery", WIDE_LABEL, "outputs and chunks could not be matched");
}

static int write_both_gaps(struct page *p, const struct rec_request *r, const struct trace *t)
{
	size_t max = r->n_chunks + (t->q ? t->q->n_visits : 0) + request_delivery_max(t->v, r), n = 0;
	uint64_t *gaps = malloc((max + 1) * sizeof(*gaps)), last = 0, ts;

	if (!gaps)
		return -ENOMEM;
	for (size_t i = 0; t->q && i < t->q->n_visits; i++) {
		uint64_t end = t->v->steps[t->q->visits[i].step].t1_ns;

		if (!t->q->visits[i].n_out)
			continue;
		if (last)
			gaps[n++] = end > last ? end - last : 0;
		last = end;
	}
	fputc('\n', p->out);
	write_gaps(p, "ITL/token", gaps, n);
	n = 0;
	last = 0;
	for (size_t i = 0; r->n <= 1 && i < r->n_chunks; i++) {
		if (!chunk_is_token(&r->chunks[i]))
			continue;
		ts = chunk_ns(r, i);
		if (last)
			gaps[n++] = ts > last ? ts - last : 0;
		last = ts;
	}
	write_gaps(p, "ITL/chunk", gaps, n);
	write_delivery(p, t, gaps);
	free(gaps);
	return 0;
}

int text_request(const struct model_view *v, size_t request, const struct text_opts *o, FILE *out)
{
	const struct rec_request *r = &v->requests[request];
	struct blame *b;
	struct trace t;
	struct page p;
	int err;

	page__init(&p, o, out);
	err = trace__init(&t, v, request);
	if (err)
		return err;
	err = blame__new(v, &b);
	if (err) {
		trace__free(&t);
		return err;
	}
	write_head(&p, v, r, &t, b);
	blame__free(b);
	write_tokens(&p, r);
	write_joins(&p, v, r);
	write_points(&p, r, request_first_ns(r));
	write_metrics(&p, v, r);
	err = write_both_gaps(&p, r, &t);
	trace__free(&t);
	return err ? err : page__finish(&p);
}
