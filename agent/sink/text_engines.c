/* SPDX-License-Identifier: Apache-2.0 */
/* Engines in the text report: what they are, how full their steps were, what their schedulers say. */
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "engine/recognise.h"
#include "model/at_work.h"
#include "sink/notes.h"
#include "sink/text_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

enum { MAX_IDLE_NAMED = 12 };

/* Requests or steps of it were seen. */
static bool has_work(const struct at_work *w)
{
	return w->requests || w->steps;
}

static void write_idle(struct page *p, const struct model_view *v, const struct at_work *w, size_t n_idle)
{
	char pids[160] = "";
	size_t named = 0;
	int at = 0;

	for (size_t i = 0; i < v->n_engines && named < MAX_IDLE_NAMED; i++)
		if (!has_work(&w[i])) {
			at += snprintf(pids + at, sizeof(pids) - (size_t)at, " %u",
				       v->engines[i].e.hdr.tgid);
			named++;
		}
	if (n_idle > named)
		snprintf(pids + at, sizeof(pids) - (size_t)at, " and %zu other%s", n_idle - named, plural_s(n_idle - named));
	page__para(p, "", LABEL, "%zu more engine process%s without requests: pid%s%s", n_idle,
		   plural(n_idle, "", "es"), plural_s(n_idle), pids);
}

int text_engines(struct page *p, const struct model_view *v)
{
	struct at_work *w;
	size_t n_idle = 0;
	int err = at_work(v, &w);

	if (err)
		return err;
	for (size_t i = 0; i < v->n_engines; i++)
		n_idle += !has_work(&w[i]);
	for (size_t i = 0; i < v->n_engines; i++) {
		const struct tl_engine *e = &v->engines[i].e;
		char ports[80] = "";
		int at = 0;

		/* all are shown where none has any: whoever sees no request looks for its port */
		if (n_idle < v->n_engines && !has_work(&w[i]))
			continue;
		for (size_t k = 0; k < e->n_ports && k < ARRAY_SIZE(e->ports); k++)
			at += snprintf(ports + at, sizeof(ports) - (size_t)at, "%s%u",
				       at ? " " : ", port ", e->ports[k]);
		page__para(p, "engine", LABEL, "pid %u: %s %s%s%s%s%s%s%s%s%s; steps: %s", e->hdr.tgid,
			   engine_kind_name(e->engine),
			   e->version[0] ? e->version : "(version unknown)", e->role[0] ? ", " : "",
			   e->role, ports, e->tiers ? "," : "", e->tiers & TL_T0 ? " T0" : "",
			   e->tiers & TL_T1 ? " T1" : "", e->tiers & TL_T2 ? " T2" : "",
			   e->tiers & TL_T3 ? " T3" : "",
			   e->step_source[0] ? e->step_source : "not seen");
	}
	if (!v->n_engines)
		page__para(p, "engine", LABEL, "none");
	else if (n_idle && n_idle < v->n_engines)
		write_idle(p, v, w, n_idle);
	free(w);
	return 0;
}

/* Where the page is too narrow, so many values become one column: their mean. */
static size_t values_a_column(const struct page *p, size_t n)
{
	size_t room = (size_t)p->width - LABEL - 2;

	return (n + room - 1) / room;
}

static void spark(struct page *p, const double *values, size_t n, double max)
{
	double columns[ARRAY_SIZE(((struct summary *)0)->bins)];
	size_t per = values_a_column(p, n), n_columns = 0;

	for (size_t i = 0; i < n; i += per) {
		double sum = 0;
		size_t known = 0;

		for (size_t k = i; k < i + per && k < n; k++)
			if (values[k] >= 0) {
				sum += values[k];
				known++;
			}
		columns[n_columns++] = known ? sum / (double)known : -1;
	}
	fprintf(p->out, "%*s[", LABEL, "");
	page__spark(p, columns, n_columns, max);
	fputs("]\n", p->out);
}

void text_batch(struct page *p, const struct summary *s)
{
	double sizes[ARRAY_SIZE(s->bins)];
	char width[UNITS_LEN];

	if (!s->busy_from_steps)
		return;
	for (size_t i = 0; i < s->n_bins; i++)
		sizes[i] = s->bins[i].busy_pct > 0 ? s->bins[i].mean_members : -1;
	page__para(p, "batch", LABEL,
		   "mean %.2f, p50 %u, max %u sequence%s per step, weighted by time; %s a column, "
		   "blank: no step",
		   s->batch.mean, s->batch.p50, s->batch.max, plural_s(s->batch.max),
		   units_ns(width, s->n_bins > 1 ? (s->bins[1].t0_ns - s->bins[0].t0_ns) *
						       values_a_column(p, s->n_bins)
					     : 0));
	spark(p, sizes, s->n_bins, s->batch.max);
}

/* ---- schedulers ---- */

struct list {
	char text[400];
	size_t at;
};

static void __attribute__((format(printf, 2, 3))) item(struct list *l, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (l->at && l->at + 2 < sizeof(l->text))
		l->at += (size_t)snprintf(l->text + l->at, sizeof(l->text) - l->at, "; ");
	va_start(ap, fmt);
	n = vsnprintf(l->text + l->at, sizeof(l->text) - l->at, fmt, ap);
	va_end(ap);
	if (n > 0)
		l->at += (size_t)n < sizeof(l->text) - l->at ? (size_t)n : sizeof(l->text) - l->at - 1;
}

static void write_scheduler(struct page *p, uint32_t pid, const struct scheduler_summary *s)
{
	struct list l = { .at = 0 };

	if (s->kv_ppm.known)
		item(&l, "KV cache p50 %.1f %%, max %.1f %% in use", s->kv_ppm.p50 / 1e4,
		     s->kv_ppm.max / 1e4);
	if (s->running.known)
		item(&l, "running p50 %u, max %u; waiting p50 %u, max %u", s->running.p50,
		     s->running.max, s->waiting.p50, s->waiting.max);
	if (s->prefix_queries > 0)
		item(&l, "%.1f %% of %" PRId64 " prompt token%s from the prefix cache",
		     100.0 * (double)s->prefix_hits / (double)s->prefix_queries, s->prefix_queries,
		     plural_s((uint64_t)s->prefix_queries));
	if (s->preemptions >= 0 && s->untold)
		item(&l, "%" PRId64 " preemption%s (%" PRId64 " not yet told)", s->preemptions, plural_s(s->preemptions),
		     s->untold);
	else if (s->preemptions >= 0)
		item(&l, "%" PRId64 " preemption%s", s->preemptions, plural_s(s->preemptions));
	if (s->drafted > 0)
		item(&l, "%.1f %% of %" PRId64 " drafted token%s accepted",
		     100.0 * (double)s->accepted / (double)s->drafted, s->drafted, plural_s((uint64_t)s->drafted));
	if (l.at)
		page__para(p, "scheduler", LABEL, "pid %u: %s", pid, l.text);
}

/* ---- front ends ---- */

/* "front end p50 6.7, max 20.1 ms" */
static void add_dist(struct list *l, const char *name, const struct dist *d)
{
	char p50[UNITS_LEN], tail[UNITS_LEN];
	bool many = d->n >= 10;

	if (d->n)
		item(l, "%s p50 %s, %s %s", name, units_ns(p50, d->p50), many ? "p99" : "max",
		     units_ns(tail, many ? d->p99 : d->max));
}

static void write_front(struct page *p, const struct rec_engine *e, const struct front_summary *f,
			size_t n_all)
{
	struct list l = { .at = 0 };

	item(&l, "pid %u: %zu of %zu requests", e->e.hdr.tgid, f->n_requests, n_all);
	if (f->n_errors)
		item(&l, "%zu error%s", f->n_errors, f->n_errors == 1 ? "" : "s");
	if (f->n_aborted)
		item(&l, "%zu aborted", f->n_aborted);
	add_dist(&l, "front end", &f->frontend);
	add_dist(&l, "TTFT", &f->ttft);
	add_dist(&l, "delivery", &f->delivery);
	page__para(p, "front end", LABEL, "%s", l.text);
}

int text_fronts(struct page *p, const struct model_view *v)
{
	struct front_summary *f;
	size_t n = 0;
	int err = summarise_fronts(v, &f);

	if (err)
		return err;
	for (size_t i = 0; i < v->n_engines; i++)
		n += f[i].n_requests > 0;
	for (size_t i = 0; i < v->n_engines && n > 1; i++)
		if (f[i].n_requests)
			write_front(p, &v->engines[i], &f[i], v->n_requests);
	free(f);
	return 0;
}

bool text_has_slots(const struct model_view *v)
{
	for (size_t i = 0; i < v->n_engines; i++)
		if (v->engines[i].e.engine != TL_ENGINE_VLLM)
			return true;
	return !v->n_engines;
}

/* What preemptions cost, and whom: their sum, and the sequence that was parked longest. */
static void write_preemptions(struct page *p, const struct model_view *v)
{
	uint64_t lost = 0, parked_ns = 0, worst_ns = 0;
	size_t n = 0, n_seqs = 0, n_parked = 0, n_unknown = 0;
	char text[UNITS_LEN], most[UNITS_LEN], still[48] = "", parked[100] = "", name[24], tokens[120] = "";
	int at = 0;
	uint32_t worst = 0;

	for (uint32_t i = 0; i < v->n_seqs; i++) {
		const struct rec_sequence *q = &v->seqs[i];
		uint64_t ns = 0;

		for (size_t k = 0; k < q->n_preemptions; k++) {
			const struct rec_preemption *e = &q->preemptions[k];

			if (sequence_knows_lost(q))
				lost += e->lost_tokens;
			else
				n_unknown++;
			n_parked += e->resumed_ns < e->at_ns;
			ns += e->resumed_ns > e->at_ns ? e->resumed_ns - e->at_ns : 0;
		}
		n += q->n_preemptions;
		n_seqs += q->n_preemptions > 0;
		parked_ns += ns;
		if (q->n_preemptions && ns >= worst_ns) {
			worst_ns = ns;
			worst = i;
		}
	}
	if (!n)
		return;
	if (n_parked)
		snprintf(still, sizeof(still), "; %zu not scheduled again", n_parked);
	if (parked_ns)
		snprintf(parked, sizeof(parked), ", parked for %s in all, most %s for %s", units_ns(text, parked_ns),
			 sequence_name(v, worst, name), units_ns(most, worst_ns));
	if (n_unknown < n)
		at = snprintf(tokens, sizeof(tokens), "%" PRIu64 " token%s lost", lost, plural_s(lost));
	if (n_unknown)	/* of those that were there before the recording */
		snprintf(tokens + at, sizeof(tokens) - (size_t)at, "%show many tokens %s%zu lost is not known", at ? ", " : "",
			 at ? "the other " : "these ", n_unknown);
	page__para(p, "preempted", LABEL, "%zu time%s, %zu sequence%s: %s%s%s", n, plural_s(n),
		   n_seqs, plural_s(n_seqs), tokens, parked, still);
}

int text_scheduler(struct page *p, const struct model_view *v, const struct summary *s)
{
	double kv[ARRAY_SIZE(s->bins)], waiting[ARRAY_SIZE(s->bins)];
	double most_kv = -1, most_waiting = -1;
	struct scheduler_summary *sched;
	int err = summarise_schedulers(v, &sched);

	if (err)
		return err;
	for (size_t i = 0; i < v->n_engines; i++)
		write_scheduler(p, v->engines[i].e.hdr.tgid, &sched[i]);
	free(sched);
	write_preemptions(p, v);
	for (size_t i = 0; i < s->n_bins; i++) {
		kv[i] = s->bins[i].kv_pct;
		waiting[i] = s->bins[i].waiting;
		most_kv = kv[i] > most_kv ? kv[i] : most_kv;
		most_waiting = waiting[i] > most_waiting ? waiting[i] : most_waiting;
	}
	if (most_kv >= 0) {
		page__para(p, "KV cache", LABEL, "in use, means over time; full height is 100 %%");
		spark(p, kv, s->n_bins, 100);
	}
	if (most_waiting > 0) {
		page__para(p, "waiting", LABEL, "sequences, means over time; full height is %.1f",
			   most_waiting);
		spark(p, waiting, s->n_bins, most_waiting);
	}
	return 0;
}
