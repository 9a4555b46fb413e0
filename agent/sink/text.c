/* SPDX-License-Identifier: Apache-2.0 */
/* The report as text: the answer first, then what it rests on. */
#include "sink/text.h"
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "model/gpu.h"
#include "sink/claims.h"
#include "sink/notes.h"
#include "sink/text_priv.h"
#include "sink/wall.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- what it rests on ---- */

/* To one decimal; 100 % is said of nothing less. */
static double rounded_down(double pct)
{
	return pct > 0 ? (double)(int64_t)(pct * 10 + 1e-9) / 10 : 0;
}

enum { MAX_PATHS = 16, MAX_PATHS_NAMED = 3, LARGE_BODY = 100000 };
struct paths {	/* of requests that are no LLM's */
	struct {
		const char *path;
		uint64_t n, body_bytes;	/* the largest body */
	} v[MAX_PATHS];
	size_t n;
};

static void count_paths(const struct model_view *v, struct paths *ret)
{
	ret->n = 0;
	for (size_t i = 0; i < v->n_others; i++) {
		const struct rec_other *o = &v->others[i];
		size_t at = 0;

		while (at < ret->n && strcmp(ret->v[at].path, o->path))
			at++;
		if (at == MAX_PATHS || !o->path[0])
			continue;
		if (at == ret->n) {
			ret->v[at].path = o->path;
			ret->v[at].n = ret->v[at].body_bytes = 0;
			ret->n++;
		}
		ret->v[at].n++;
		if (o->body_bytes > ret->v[at].body_bytes)
			ret->v[at].body_bytes = o->body_bytes;
	}
}

/* The next one to name, marked as said: whose bodies are large comes first, then the most frequent. SIZE_MAX: none. */
static size_t next_path(const struct paths *p, uint32_t said)
{
	size_t best = SIZE_MAX;

	for (size_t i = 0; i < p->n; i++) {
		bool large = p->v[i].body_bytes >= LARGE_BODY;

		if (said & 1u << i)
			continue;
		if (best == SIZE_MAX || large > (p->v[best].body_bytes >= LARGE_BODY) ||
		    (large == (p->v[best].body_bytes >= LARGE_BODY) && p->v[i].n > p->v[best].n))
			best = i;
	}
	return best;
}

/* " and 1850 others (1848 /metrics, 2 /tokenize with bodies of up to 3.00 MB)" */
static void others_text(const struct model_view *v, char *buf, size_t size)
{
	char bytes[UNITS_LEN];
	struct paths p;
	uint32_t said = 0;
	uint64_t n = 0;
	size_t i, at = 0;

	buf[0] = '\0';
	if (!v->n_other_requests)
		return;
	count_paths(v, &p);
	at = (size_t)snprintf(buf, size, " and %" PRIu64 " other%s", v->n_other_requests,
			      plural_s(v->n_other_requests));
	for (int k = 0; k < MAX_PATHS_NAMED && (i = next_path(&p, said)) != SIZE_MAX; k++) {
		said |= 1u << i;
		n += p.v[i].n;
		at += (size_t)snprintf(buf + at, size - at, "%s%" PRIu64 " %.31s", k ? ", " : " (", p.v[i].n,
				       p.v[i].path);
		if (p.v[i].body_bytes)
			at += (size_t)snprintf(buf + at, size - at, " with %s of %s%s",
					       plural(p.v[i].n, "a body", "bodies"), plural(p.v[i].n, "", "up to "),
					       units_bytes(bytes, p.v[i].body_bytes));
	}
	if (said)
		snprintf(buf + at, size - at, n < v->n_other_requests ? ", and others)" : ")");
}

void text_seen(struct page *p, const struct model_view *v, const struct summary *s)
{
	char lost[160] = "none lost", steps[120] = "no engine steps", others[320], unseen[64] = "";
	uint64_t since = UINT64_MAX, until = 0;

	for (size_t i = 0; i < v->n_lost; i++) {
		since = v->lost[i].since_ns < since ? v->lost[i].since_ns : since;
		until = v->lost[i].until_ns > until ? v->lost[i].until_ns : until;
	}
	if (v->n_lost_events)
		snprintf(lost, sizeof(lost), "%" PRIu64 " LOST (%.1f %% seen)%s", v->n_lost_events,
			 rounded_down(100.0 * (double)v->n_events /
				      (double)(v->n_events + v->n_lost_events)),
			 v->n_lost ? ", see notes" : "");
	others_text(v, others, sizeof(others));
	if (s->steps_seen)
		snprintf(steps, sizeof(steps),
			 "%" PRIu64 " engine step%s, %.1f %% of %s %" PRIu64
			 " token%s to a request that was seen",
			 s->steps_seen, plural_s(s->steps_seen), rounded_down(s->matched_tokens_pct),
			 plural(s->steps_seen, "its", "their"), s->tokens_in_steps,
			 plural(s->tokens_in_steps, " belongs", "s belong"));
	if (s->prompt_unseen)
		snprintf(unseen, sizeof(unseen), "; %" PRIu64 " more of prompts %s in no step", s->prompt_unseen,
			 plural(s->prompt_unseen, "is", "are"));
	page__style(p, v->n_lost_events ? STYLE_BAD : STYLE_PLAIN);
	page__para(p, "seen", LABEL, "%" PRIu64 " event%s, %s; %zu request%s%s; %s%s", v->n_events,
		   plural_s(v->n_events), lost, v->n_requests, plural_s(v->n_requests), others, steps, unseen);
	page__style(p, STYLE_PLAIN);
	if (v->n_lost_events && v->n_lost)
		page__para(p, "lost", LABEL,
			   "between %.1f and %.1f ms: figures of that time are "
			   "incomplete",
			   (double)(since - v->t0_ns) / 1e6, (double)(until - v->t0_ns) / 1e6);
}

void text_cost(struct page *p, const struct model_view *v, const struct summary *s)
{
	const struct tl_self *c = v->self;
	char cpu[UNITS_LEN], bpf[UNITS_LEN], attach[UNITS_LEN], detach[UNITS_LEN], rss[UNITS_LEN];
	char per_token[40] = "BPF not measured", threads[48] = "", detached[40] = "";
	double span = (double)(v->t1_ns - v->t0_ns);
	uint64_t tokens_ns;

	if (!c) {
		page__para(p, "cost", LABEL, "not known: the recording does not say");
		return;
	}
	tokens_ns = c->bpf_ns > c->bpf_threads_ns ? c->bpf_ns - c->bpf_threads_ns : 0;
	if (c->bpf_ns && s->output_tokens)
		snprintf(per_token, sizeof(per_token), "BPF %s per output token",
			 units_ns(bpf, tokens_ns / s->output_tokens));
	else if (c->bpf_ns)
		snprintf(per_token, sizeof(per_token), "BPF %s", units_ns(bpf, c->bpf_ns));
	if (c->bpf_threads_ns && span > 0)
		snprintf(threads, sizeof(threads), ", threads %.2f %% of a core",
			 100 * (double)c->bpf_threads_ns / span);
	if (c->detach_ns)
		snprintf(detached, sizeof(detached), ", detach %s", units_ns(detach, c->detach_ns));
	page__para(p, "cost", LABEL,
		   "agent %s of CPU (%.2f %% of a core), at most %s of memory; %s%s; attach %s%s",
		   units_ns(cpu, c->agent_cpu_ns),
		   span > 0 ? 100 * (double)c->agent_cpu_ns / span : 0,
		   units_bytes(rss, c->rss_bytes), per_token, threads,
		   c->attach_ns ? units_ns(attach, c->attach_ns) : "not known", detached);
}

void text_capture(struct page *p, const struct model_view *v)
{
	const struct tl_host *h = v->host;
	char span[UNITS_LEN], began[WALL_LEN];

	units_ns(span, v->t1_ns - v->t0_ns);
	wall_text(v, v->t0_ns, began);
	if (h)
		page__para(p, "capture", LABEL, "%s%s%s on %s (kernel %s, %u CPU%s) with tokenlag %s",
			   span, *began ? " from " : "", began, h->hostname, h->kernel, h->n_cpus, plural_s(h->n_cpus),
			   h->tool);
	else
		page__para(p, "capture", LABEL, "%s on a host that the recording does not name",
			   span);
}

/* ---- percentiles ---- */

struct row {
	const char *name;
	size_t offset; /* in struct summary_row */
	const char *from; /* where its values are from, unless counted */
};
static const struct row rows[] = {
	{ "TTFT", offsetof(struct summary_row, ttft), "observed, on the wire" },
	{ "TPOT", offsetof(struct summary_row, tpot), "observed, on the wire" },
	{ "ITL per token", offsetof(struct summary_row, itl_token), "observed, engine side" },
	{ "ITL per chunk", offsetof(struct summary_row, itl_chunk), "observed, on the wire" },
	{ "e2e", offsetof(struct summary_row, e2e), "observed" },
	{ "queue", offsetof(struct summary_row, queue), "observed" },
	{ "prefill", offsetof(struct summary_row, prefill), "observed, engine side" },
	{ "front end", offsetof(struct summary_row, frontend), "observed" },
	{ "delivery", offsetof(struct summary_row, delivery), "observed, per output" },
};
enum { ROW_TTFT, ROW_TPOT, ROW_ITL_TOKEN, ROW_ITL_CHUNK, ROW_E2E, ROW_QUEUE, ROW_PREFILL,
       ROW_FRONT, ROW_DELIVERY };

static const struct dist *dist_at(const struct summary_row *r, const struct row *row)
{
	return (const struct dist *)((const char *)r + row->offset);
}

/* How many values of TPOT rest on token counts that the engine reported, of queue on a rule. */
static void count_provenance(const struct model_view *v, size_t *ret_reported, size_t *ret_inferred)
{
	*ret_reported = *ret_inferred = 0;
	for (size_t i = 0; i < v->n_requests; i++) {
		struct req_metrics m;

		if (!request_counts(&v->requests[i]))
			continue;
		request_metrics(v, &v->requests[i], &m);
		*ret_reported += m.tpot_ns >= 0 && m.tpot_prov == PROV_REPORTED;
		*ret_inferred += m.queue_ns >= 0 && m.queue_prov == PROV_INFERRED;
	}
}

/* Where steps are made of launches, what rests on them is no observation. */
static bool is_of_steps(size_t row)
{
	return row == ROW_ITL_TOKEN || row == ROW_PREFILL || row == ROW_DELIVERY;
}

static const char *cell_dist(char buf[CELL_LEN], const struct dist *d, uint64_t ns)
{
	return d->n ? cell_ms(buf, (int64_t)ns) : "-";
}

static void write_percentiles(struct page *p, const struct model_view *v, const struct summary *s)
{
	size_t reported, inferred;
	bool few = false;

	count_provenance(v, &reported, &inferred);
	page__heading(p, "%-13s%8s%8s%8s%8s%8s%s", "ms", "n", "p50", "p90", "p99", "max",
		      p->width >= FROM_WIDTH ? "  from" : "");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct dist *d = dist_at(&s->all, &rows[i]);
		char a[CELL_LEN], b[CELL_LEN], c[CELL_LEN], m[CELL_LEN], from[64];

		snprintf(from, sizeof(from), "%s", d->n ? rows[i].from : s->all.n_requests ? "not seen" : "errors only");
		if (d->n && v->gpu && v->gpu->n_inferred_steps && is_of_steps(i))
			snprintf(from, sizeof(from), "inferred from launches");
		if (i == ROW_TPOT && reported)
			snprintf(from, sizeof(from), "wire, tokens reported");
		if (i == ROW_QUEUE && inferred)
			snprintf(from, sizeof(from), "observed, %zu inferred", inferred);
		fprintf(p->out, "%-13s%8zu%8s%8s%8s%8s", rows[i].name, d->n,
			cell_dist(a, d, d->p50), cell_dist(b, d, d->p90),
			d->n < MIN_FOR_P99 ? "-" : cell_dist(c, d, d->p99),
			cell_dist(m, d, d->max));
		fprintf(p->out, p->width >= FROM_WIDTH ? "  %s\n" : "\n", from);
		few |= d->n && d->n < MIN_FOR_P99;
	}
	if (few)
		page__para(p, "", 0, "No p99 of fewer than %d values: it would be their max.",
			   MIN_FOR_P99);
	if (p->width < FROM_WIDTH)
		page__para(p, "", 0, "Column left out: from (%s).", WIDER);
}

/* What the rows of requests of one kind have in common. */
struct classes {
	const char *by, *column;
	const char *const *names;
	int n;
};
static const struct classes by_input = { "length of the prompt", "tokens", len_class_names,
					 N_LEN_CLASSES };
static const struct classes by_output = { "length of the output", "tokens", len_class_names,
					  N_LEN_CLASSES };
static const struct classes by_prefix = { "prefix cache (warm: at least half of the prompt was cached)",
					  "prefix", prefix_class_names, N_PREFIX_CLASSES };

static void write_classes(struct page *p, const struct classes *k, const struct summary_row *classes)
{
	/* those at the end are left out first */
	static const int shown[] = { ROW_TTFT,	ROW_TPOT,      ROW_E2E,
				     ROW_QUEUE, ROW_ITL_TOKEN, ROW_PREFILL };
	size_t n_shown = p->width >= FULL_WIDTH ? 6 : p->width >= MEDIUM_WIDTH ? 4 : 3;
	char left_out[60] = "";
	size_t populated = 0, at = 0;
	bool few = false;

	for (int c = 0; c < k->n; c++)
		populated += classes[c].n_requests > 0;
	if (populated < 2)
		return;
	fputc('\n', p->out);
	page__style(p, STYLE_BOLD);
	page__para(p, "", 0, "p50/p99 in ms by %s", k->by);
	page__style(p, STYLE_PLAIN);
	fprintf(p->out, "%-14s%6s", k->column, "n");
	for (size_t i = 0; i < ARRAY_SIZE(shown); i++) {
		const char *name = shown[i] == ROW_ITL_TOKEN ? "ITL/token" : rows[shown[i]].name;

		if (i < n_shown)
			fprintf(p->out, "%13s", name);
		else
			at += (size_t)snprintf(left_out + at, sizeof(left_out) - at, "%s%s",
					       at ? ", " : "", name);
	}
	fputc('\n', p->out);
	for (int c = 0; c < k->n; c++) {
		if (!classes[c].n_requests)
			continue;
		fprintf(p->out, "%-14s%6zu", k->names[c], classes[c].n_requests);
		for (size_t i = 0; i < n_shown; i++) {
			const struct dist *d = dist_at(&classes[c], &rows[shown[i]]);
			char a[CELL_LEN], b[CELL_LEN], both[2 * CELL_LEN + 2];

			snprintf(both, sizeof(both), "%s/%s%s", cell_dist(a, d, d->p50),
				 cell_dist(b, d, d->p99), d->n && d->n < MIN_FOR_P99 ? "*" : "");
			fprintf(p->out, "%13s", both);
			few |= d->n && d->n < MIN_FOR_P99;
		}
		fputc('\n', p->out);
	}
	if (few)
		page__para(p, "", 0, "* max, as there are fewer than %d values", MIN_FOR_P99);
	if (at)
		page__para(p, "", 0, "Columns left out: %s (%s).", left_out, WIDER);
}

/* ---- rates, batch ---- */

/* Busy time is summed over them. */
static size_t count_computing(const struct model_view *v)
{
	size_t n = 0;
	uint32_t seen = UINT32_MAX;
	uint64_t known = 0;

	for (size_t i = 0; i < v->n_steps; i++) {
		uint32_t e = v->steps[i].engine;

		if (e == seen)
			continue;
		seen = e;
		if (e < 64 && !(known >> e & 1)) {
			known |= 1ull << e;
			n++;
		}
	}
	return n;
}

static void write_rates(struct page *p, const struct model_view *v, const struct summary *s)
{
	char wall[UNITS_LEN], busy[UNITS_LEN], sum[48] = "";
	size_t n = s->busy_from_steps ? count_computing(v) : 0;

	if (n > 1)
		snprintf(sum, sizeof(sum), ", summed over %zu engines", n);

	fputc('\n', p->out);
	if (!s->wall_ns || !s->busy_ns) {
		page__para(p, "output", LABEL, "%" PRIu64 " token%s; no rate, nothing took any time",
			   s->output_tokens, plural_s(s->output_tokens));
		return;
	}
	page__para(p, "output", LABEL,
		   "%" PRIu64 " token%s: %.1f tok/s of wall time (%s, first request "
		   "to last), %.1f tok/s of busy time (%s with %s%s)",
		   s->output_tokens, plural_s(s->output_tokens), s->tok_per_s_wall,
		   units_ns(wall, s->wall_ns), s->tok_per_s_busy, units_ns(busy, s->busy_ns),
		   s->busy_from_steps ? "a step running" : "a request under way", sum);
	page__para(p, "prompts", LABEL, "%" PRIu64 " token%s, %" PRIu64 " of %s from a cache",
		   s->prompt_tokens, plural_s(s->prompt_tokens), s->cached_tokens,
		   plural(s->prompt_tokens, "it", "them"));
}

/* ---- notes, definitions ---- */

struct note_ctx {
	struct page *p;
	size_t n;
};

static void write_note(void *ctx, const char *sentence)
{
	struct note_ctx *c = ctx;

	if (!c->n++)
		page__heading(c->p, "notes");
	page__para(c->p, "  -", 4, "%s", sentence);
}

static void write_definitions(struct page *p)
{
	static const struct {
		const char *json, *shown;
	} names[] = {
		{ "ttft", "TTFT" },	      { "tpot", "TPOT" }, { "itl_token", "ITL/token" },
		{ "itl_chunk", "ITL/chunk" }, { "e2e", "e2e" },	  { "queue", "queue" },
		{ "prefill", "prefill" },     { "frontend", "front end" },
		{ "delivery", "delivery" },
	};

	page__heading(p, "what is measured, in points of a request");
	page__style(p, STYLE_DIM);
	page__para(p, "", 0, "Percentiles are nearest rank.");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (const struct definition *d = definitions; d->metric; d++)
			if (strcmp(d->metric, names[i].json) == 0)
				page__para(p, names[i].shown, LABEL, "= %s", d->formula);
	page__style(p, STYLE_PLAIN);
}

/* ---- what other tools say ---- */

enum { MAX_CLAIMS = 20 };

static void write_claim(void *ctx, const char *sentence)
{
	struct note_ctx *c = ctx;

	if (!c->n++)
		page__heading(c->p, "what other tools say");
	page__para(c->p, "  -", 4, "%s", sentence);
}

static int write_report(struct page *p, const struct model_view *v, const struct summary *s,
			struct blame *b, size_t max_requests)
{
	struct note_ctx notes = { p, 0 };
	int err = text_answer(p, v, s, b);

	if (err)
		return err;
	fputc('\n', p->out);
	text_seen(p, v, s);
	text_cost(p, v, s);
	err = text_engines(p, v);
	if (err)
		return err;
	text_capture(p, v);
	err = text_gpu(p, v);
	if (err)
		return err;
	if (v->n_requests) {
		write_percentiles(p, v, s);
		write_classes(p, &by_input, s->by_input);
		write_classes(p, &by_output, s->by_output);
		write_classes(p, &by_prefix, s->by_prefix);
		write_rates(p, v, s);
		text_batch(p, s);
		err = text_fronts(p, v);
		if (!err)
			err = text_scheduler(p, v, s);
		if (!err)
			err = text_slowest(p, v, b, max_requests);
		if (err)
			return err;
		text_failures(p, v);
	}
	err = claims_each(v, MAX_CLAIMS, write_claim, &(struct note_ctx){ p, 0 });
	if (err)
		return err;
	err = notes_each(v, s, write_note, &notes);
	if (err)
		return err;
	if (v->n_requests)
		write_definitions(p);
	return 0;
}

int text_report(const struct model_view *v, const struct summary *s, const struct text_opts *o,
		FILE *out)
{
	struct blame *b;
	struct page p;
	int err = blame__new(v, &b);

	if (err)
		return err;
	page__init(&p, o, out);
	err = write_report(&p, v, s, b, o->max_requests);
	blame__free(b);
	return err ? err : page__finish(&p);
}
