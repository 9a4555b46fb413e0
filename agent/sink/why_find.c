/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to say of one request: the answer, and the sentences below its waterfall. Pure. */
#include "base/pct.h"
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "model/leads.h"
#include "sink/gpu_words.h"
#include "sink/notes.h"
#include "sink/sentence.h"
#include "sink/who.h"
#include "sink/why_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool why_part_is_unknown(enum part part)
{
	return part == PART_UNEXPLAINED || part == PART_SERVER || part == PART_STREAM;
}

int why_note(struct why *w, const char *fmt, ...)
{
	char text[NOTE_LEN], **at = vec_push(&w->notes, SIZE_MAX);
	va_list ap;

	if (!at)
		return -ENOMEM;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	*at = strdup(text);
	return *at ? 0 : -ENOMEM;
}

/* ---- the answer ---- */

struct parts {
	struct sentence s;
	uint64_t total_ns, small_ns;
};

/* A part worth naming; what is below 1 % is added up as "other". */
static bool name_part(struct parts *p, uint64_t ns)
{
	char ms[UNITS_LEN];

	if (100 * ns < p->total_ns || !ns) {
		p->small_ns += ns;
		return false;
	}
	append(&p->s, ", %s ", units_ns(ms, ns));
	return true;
}

static void name_decode(struct parts *p, const struct trace *t)
{
	char ms[UNITS_LEN], names[200];

	if (!name_part(p, t->sum_ns[PART_DECODE]))
		return;
	append(&p->s, "in %zu decode step%s", t->n_decode_steps, plural_s(t->n_decode_steps));
	if (!t->n_shared)
		return;
	append(&p->s, " (%s of it in %zu step%s shared with prefill of %s)", units_ns(ms, t->shared_ns),
	       t->n_shared, plural_s(t->n_shared),
	       crowd__prefill_text(&t->shared, t->v, names, sizeof(names)));
}

static const char *tokens_again(const struct rec_sequence *q, char *buf, size_t size)
{
	if (sequence_knows_lost(q))
		snprintf(buf, size, "%u token%s", q->n_again, plural_s(q->n_again));
	else
		snprintf(buf, size, "what it had");
	return buf;
}

static void name_parts(struct parts *p, const struct trace *t)
{
	char text[500];

	for (int part = 0; part < N_PARTS; part++) {
		if (part == PART_DECODE) {
			name_decode(p, t);
			continue;
		}
		if (part == PART_UNEXPLAINED || !name_part(p, t->sum_ns[part]))
			continue;
		if (part == PART_RECOMPUTE)
			append(&p->s, "computing %s again in %zu step%s", tokens_again(t->q, text, sizeof(text)),
			       t->n_recompute_steps, plural_s(t->n_recompute_steps));
		else
			append(&p->s, "%s", who__text(t, (enum part)part, text, sizeof(text)));
	}
}

/* "; at its client it took 5.62 s, ..." */
static void add_client(struct sentence *s, const struct why_client *c)
{
	char total[UNITS_LEN], ms[UNITS_LEN];

	if (c->total_ns)
		append(s, " at the server's socket; at its client it took %s, %s of it %s%s%s%s", units_ns(total, c->total_ns),
		       units_ns(ms, c->ns), mechanism_labels[c->mechanism], *c->who ? " (" : "", c->who, *c->who ? ")" : "");
}

static void find_answer(struct why *w)
{
	const struct trace *t = &w->t;
	const struct rec_request *r = t->r;
	char ms[UNITS_LEN], reason[160], named[2000] = "";
	struct parts p = { .s = { named, 0, sizeof(named) }, .total_ns = t->t1_ns - t->t0_ns };
	struct sentence s = { w->answer, 0, sizeof(w->answer) };

	request_reason(r, reason, sizeof(reason));
	name_parts(&p, t);
	if (p.small_ns)
		append(&p.s, ", %s other", units_ns(ms, p.small_ns));
	append(&s, "r%u%s%s%s: %s %s", r->req, *reason ? " (" : "", reason, *reason ? ")" : "", w->whole ? "e2e" : "seen for",
	       units_ns(ms, p.total_ns));
	add_client(&s, &w->client);
	append(&s, ";%s", *named ? named + 1 : " nothing is known of what it did");
	if (w->late.ns)
		append(&s, "; its first token left %s late behind its step: %s", units_ns(ms, w->late.ns),
		       mechanism_labels[w->late.mechanism]);
	if (w->unexplained_ns)
		append(&s, "; unexplained %s.", units_ns(ms, w->unexplained_ns));
	else
		append(&s, "; nothing unexplained.");
}

/* ---- what else to know ---- */

static int note_ttft(struct why *w)
{
	char ttft[CELL_LEN], wire[CELL_LEN];

	request_metrics(w->t.v, w->t.r, &w->metrics);
	if (w->metrics.ttft_ns < 0 || w->metrics.delivery_ns < 0)
		return 0;
	return why_note(w, "TTFT %s ms: the rows up to its first token, and %s ms until that was written",
			cell_ms(ttft, w->metrics.ttft_ns), cell_ms(wire, w->metrics.delivery_ns));
}

static int find_delivery(struct why *w)
{
	const struct trace *t = &w->t;
	size_t max = request_delivery_max(t->v, t->r);
	uint64_t *ns = malloc((max + 1) * sizeof(*ns));
	char p50[CELL_LEN], most[CELL_LEN];
	struct why_delivery *d = &w->delivery;
	int err = 0;

	if (!ns)
		return -ENOMEM;
	d->n = request_delivery(t->v, t->r, ns, &d->exact);
	if (d->n) {
		d->p50_ns = pct_u64(ns, d->n, 500);
		d->max_ns = pct_u64(ns, d->n, 1000);
		err = why_note(w, "delivery, from the engine's output to the write of its chunk: p50 %s%s ms, max %s ms over "
			       "%zu output%s", d->exact ? "" : "at least ", cell_ms(p50, (int64_t)d->p50_ns),
			       cell_ms(most, (int64_t)d->max_ns), d->n, plural_s(d->n));
	}
	free(ns);
	return err;
}

static int note_gpu(struct why *w)
{
	char text[240];

	if (!gpu_request_text(w->t.v, (size_t)(w->t.r - w->t.v->requests), text, sizeof(text)))
		return 0;
	return why_note(w, "%s", text);
}

/* Whose time the rows show, and what they do not show of the others. */
static int note_answers(struct why *w)
{
	const struct trace *t = &w->t;
	uint32_t last = answer_number(t->r, (uint32_t)(t->q - t->v->seqs));
	char parked[UNITS_LEN], again[40];
	int err;

	if (t->first)
		err = why_note(w, "it has %zu answers: up to its first token the rows are those of answer %u, which gave it; then "
			       "those of answer %u, which ended last", t->r->n_seqs,
			       answer_number(t->r, (uint32_t)(t->first - t->v->seqs)), last);
	else
		err = why_note(w, "it has %zu answers: the rows are those of answer %u, which ended last", t->r->n_seqs, last);
	for (size_t i = 0; i < t->r->n_seqs && !err; i++) {
		const struct rec_sequence *q = &t->v->seqs[t->r->seqs[i]];
		uint64_t ns = 0;

		for (size_t k = 0; k < q->n_preemptions; k++)
			ns += q->preemptions[k].resumed_ns > q->preemptions[k].at_ns ?
				      q->preemptions[k].resumed_ns - q->preemptions[k].at_ns : 0;
		if (q != t->q && q->n_preemptions)
			err = why_note(w, "answer %zu was preempted, too, and is in no row: parked for %s, %s computed again",
				       i + 1, units_ns(parked, ns), tokens_again(q, again, sizeof(again)));
	}
	return err;
}

static int note_join(struct why *w)
{
	const struct trace *t = &w->t;
	int err;

	if (!t->q)
		return 0;
	err = why_note(w, "joined to sequence %u on slot %u by %s, confidence %u %%%s",
		       t->q->id, t->q->slot, join_method_names[t->q->join], t->q->confidence_pct,
		       t->q->rivals ? "; other pairings fit too" : "");
	if (!err && t->r->n_seqs > 1)
		err = note_answers(w);
	if (!err && t->r->joined_late)
		err = why_note(w, "its beginning was not seen: times count from the first thing that was");
	else if (!err && !t->r->at_ns[P_SUBMIT])
		err = why_note(w, "submit was not seen: parsing and tokenizing are part of the wait");
	if (!err && !request_is_streamed(t->r))
		err = why_note(w, "not streamed: when its tokens were ready is the engine's side only");
	return err;
}

static int find_losses(struct why *w)
{
	const struct model_view *v = w->t.v;

	for (size_t i = 0; i < v->n_lost; i++)
		if (v->lost[i].since_ns <= w->t.t1_ns && v->lost[i].until_ns >= w->t.t0_ns)
			w->n_lost += v->lost[i].n;
	if (!w->n_lost)
		return 0;
	return why_note(w, "%" PRIu64 " event%s lost while it ran: some of this may be wrong", w->n_lost,
			plural(w->n_lost, " was", "s were"));
}

/* ---- all of it ---- */

static int find_notes(struct why *w)
{
	static int (*const parts[])(struct why *w) = {
		note_ttft, why_find_ttft, why_find_engine, why_find_how, find_delivery, why_find_send, note_gpu, note_join,
		find_losses,
	};
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(parts) && !err; i++)
		err = parts[i](w);
	return err;
}

static int fill(struct why *w)
{
	struct why_causes causes = { 0 };
	int err = blame__new(w->t.v, &w->b);

	if (!err)
		err = why_find_client(w);
	if (err)
		return err;
	why_find_late(w);
	w->whole = !w->t.r->joined_late && w->t.r->at_ns[P_DONE];
	for (int part = 0; part < N_PARTS; part++)
		if (why_part_is_unknown((enum part)part))
			w->unexplained_ns += w->t.sum_ns[part];
	find_answer(w);
	err = why_causes__find(&causes, &w->t, w->b);
	if (!err)
		err = why_rows__build(&w->rows, &w->t, &causes);
	why_causes__free(&causes);
	if (!err)
		err = why_rows__behind(&w->behind, &w->t, w->b);
	if (!err)
		err = why_find_gaps(w);
	return err ? err : find_notes(w);
}

int why__new(const struct model_view *v, size_t request, struct why **ret)
{
	struct why *w = calloc(1, sizeof(*w));
	int err = w ? trace__init(&w->t, v, request) : -ENOMEM;

	if (!err)
		err = fill(w);
	if (err)
		why__free(w);
	else
		*ret = w;
	return err;
}

void why__free(struct why *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->notes.n; i++)
		free(w->notes.v[i]);
	vec_free(&w->notes);
	vec_free(&w->send.blocked);
	why_rows__free(&w->rows);
	why_rows__free(&w->behind);
	blame__free(w->b);
	trace__free(&w->t);
	free(w);
}
