/* SPDX-License-Identifier: Apache-2.0 */
/* The report as JSON: every key always there, what is not known is null. */
#include "sink/json.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "sink/claims.h"
#include "sink/json_priv.h"
#include "sink/notes.h"
#include "sink/wall.h"

#include <errno.h>
#include <time.h>

static int to_file(void *ctx, const char *data, size_t len)
{
	errno = 0;
	if (fwrite(data, 1, len, ctx) == len)
		return 0;
	return errno ? -errno : -EIO;
}

void json_ms(struct jsonw *w, const char *key, int64_t ns)
{
	jsonw__key(w, key);
	if (ns < 0)
		jsonw__null(w);
	else
		jsonw__fixed(w, ns, 6);
}

void json_since(struct jsonw *w, const char *key, uint64_t ns, uint64_t t0_ns)
{
	jsonw__key(w, key);
	if (ns)
		jsonw__fixed(w, (int64_t)(ns - t0_ns), 6);
	else
		jsonw__null(w);
}

void json_str(struct jsonw *w, const char *key, const char *s)
{
	jsonw__key(w, key);
	jsonw__str(w, s && *s ? s : NULL);
}

void json_known_count(struct jsonw *w, const char *key, uint64_t n)
{
	jsonw__key(w, key);
	jsonw__u64(w, n);
}

void json_maybe_count(struct jsonw *w, const char *key, uint64_t n, bool known)
{
	jsonw__key(w, key);
	if (known)
		jsonw__u64(w, n);
	else
		jsonw__null(w);
}

void json_ppm_as_pct(struct jsonw *w, const char *key, uint32_t ppm, bool known)
{
	jsonw__key(w, key);
	if (known)
		jsonw__fixed(w, ppm, 4);
	else
		jsonw__null(w);
}

const char *json_phase(uint8_t phase, bool guess)
{
	if (phase == TL_PREFILL)
		return guess ? "p?" : "p";
	return guess ? "d?" : "d";
}

void json_double(struct jsonw *w, const char *key, double v, bool known)
{
	jsonw__key(w, key);
	if (known)
		jsonw__double(w, v, 3);
	else
		jsonw__null(w);
}

void json_tiers(struct jsonw *w, uint32_t tiers)
{
	static const char *const names[] = { "T0", "T1", "T2", "T3" };

	jsonw__key(w, "tiers");
	jsonw__array(w);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (tiers & 1u << i)
			jsonw__str(w, names[i]);
	jsonw__end_array(w);
}

/* A wall time, to the us; 0: not known. */
static void write_utc(struct jsonw *w, const char *key, uint64_t ns)
{
	time_t s = (time_t)(ns / 1000000000);
	char buf[48] = "";
	struct tm tm;
	size_t n;

	if (ns && gmtime_r(&s, &tm)) {
		n = strftime(buf, 32, "%Y-%m-%dT%H:%M:%S", &tm);
		snprintf(buf + n, sizeof(buf) - n, ".%06uZ", (unsigned int)(ns % 1000000000 / 1000));
	}
	json_str(w, key, buf);
}

/* Wall time at the start of the recording; 0 if the capture does not say. */
static uint64_t utc_of_start(const struct model_view *v)
{
	uint64_t since;

	if (!v->host || !v->host->realtime_ns)
		return 0;
	since = v->host->hdr.ts_ns > v->t0_ns ? v->host->hdr.ts_ns - v->t0_ns : 0;
	return v->host->realtime_ns - since;
}

static void write_host(struct jsonw *w, const struct model_view *v)
{
	const struct tl_host *h = v->host;

	jsonw__key(w, "tool");
	jsonw__object(w);
	json_str(w, "version", h ? h->tool : NULL);
	jsonw__end_object(w);
	jsonw__key(w, "host");
	jsonw__object(w);
	json_str(w, "kernel", h ? h->kernel : NULL);
	json_str(w, "hostname", h ? h->hostname : NULL);
	jsonw__key(w, "n_cpus");
	if (h && h->n_cpus)
		jsonw__u64(w, h->n_cpus);
	else
		jsonw__null(w);
	write_utc(w, "t0_utc", utc_of_start(v));
	json_ms(w, "clock_error_ms", h && h->realtime_ns ? (int64_t)h->clock_err_ns : -1);
	json_tiers(w, h ? h->tiers : 0);
	jsonw__end_object(w);
}

static void write_capture(struct jsonw *w, const struct model_view *v, const char *trouble)
{
	static const char *const stops[] = {
		NULL, "done", "signal", "target_exit", "error", "limit",
	};

	jsonw__key(w, "capture");
	jsonw__object(w);
	json_ms(w, "duration_ms", (int64_t)(v->t1_ns - v->t0_ns));
	json_str(w, "stop", v->stop < ARRAY_SIZE(stops) ? stops[v->stop] : NULL);
	json_str(w, "trouble", trouble);
	jsonw__end_object(w);
}

static void write_lost_spans(struct jsonw *w, const struct model_view *v)
{
	jsonw__key(w, "lost_spans");
	jsonw__array(w);
	for (size_t i = 0; i < v->n_lost; i++) {
		const struct rec_lost *l = &v->lost[i];

		jsonw__object(w);
		json_since(w, "t0_ms", l->since_ns, v->t0_ns);
		json_since(w, "t1_ms", l->until_ns, v->t0_ns);
		json_known_count(w, "n", l->n);
		json_str(w, "where", lost_where_name(l->where));
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

static void write_coverage(struct jsonw *w, const struct model_view *v, const struct summary *s)
{
	jsonw__key(w, "coverage");
	jsonw__object(w);
	json_known_count(w, "events", v->n_events);
	json_known_count(w, "lost", v->n_lost_events);
	json_known_count(w, "unknown_kinds", v->n_unknown);
	write_lost_spans(w, v);
	jsonw__key(w, "requests");
	jsonw__object(w);
	json_known_count(w, "complete", s->n_state[REQ_COMPLETE]);
	json_known_count(w, "truncated", s->n_state[REQ_TRUNCATED]);
	json_known_count(w, "aborted", s->n_state[REQ_ABORTED]);
	json_known_count(w, "error", s->n_state[REQ_ERROR]);
	json_known_count(w, "open", s->n_state[REQ_OPEN]);
	json_known_count(w, "not_kept", v->n_requests_not_kept);
	jsonw__end_object(w);
	json_known_count(w, "other_requests", v->n_other_requests);
	json_known_count(w, "not_streamed", s->n_non_streaming);
	jsonw__key(w, "steps");
	jsonw__object(w);
	json_known_count(w, "seen", s->steps_seen);
	json_known_count(w, "with_members", s->steps_with_members);
	json_double(w, "matched_tokens_pct", s->matched_tokens_pct, s->matched_tokens_pct >= 0);
	json_known_count(w, "tokens", s->tokens_in_steps);
	json_known_count(w, "prompt_tokens_in_none", s->prompt_unseen);
	json_known_count(w, "not_kept", v->n_steps_not_kept);
	jsonw__end_object(w);
	jsonw__key(w, "joins");
	jsonw__object(w);
	for (int j = JOIN_NONE; j < N_JOINS; j++)
		json_known_count(w, join_method_names[j], s->n_joins[j]);
	jsonw__end_object(w);
	json_known_count(w, "gaps_left_out", s->n_gaps_lost);
	json_known_count(w, "cut_by_server", s->n_cut);
	jsonw__end_object(w);
}

static void write_self(struct jsonw *w, const struct model_view *v, const struct summary *s)
{
	const struct tl_self *c = v->self;
	bool bpf_known = c && c->bpf_ns;
	uint64_t tokens_ns = c && c->bpf_ns > c->bpf_threads_ns ? c->bpf_ns - c->bpf_threads_ns : 0;

	jsonw__key(w, "self");
	jsonw__object(w);
	json_ms(w, "agent_cpu_ms", c ? (int64_t)c->agent_cpu_ns : -1);
	json_ms(w, "bpf_ms", bpf_known ? (int64_t)c->bpf_ns : -1);
	json_ms(w, "bpf_threads_ms", bpf_known ? (int64_t)c->bpf_threads_ns : -1);
	json_double(w, "bpf_ns_per_token",
		    bpf_known && s->output_tokens ? (double)tokens_ns / (double)s->output_tokens
						  : 0,
		    bpf_known && s->output_tokens);
	json_ms(w, "attach_ms", c && c->attach_ns ? (int64_t)c->attach_ns : -1);
	json_ms(w, "detach_ms", c && c->detach_ns ? (int64_t)c->detach_ns : -1);
	jsonw__key(w, "rss_bytes");
	if (c && c->rss_bytes)
		jsonw__u64(w, c->rss_bytes);
	else
		jsonw__null(w);
	jsonw__end_object(w);
}

/* ---- summary ---- */

void json_dist(struct jsonw *w, const char *key, const struct dist *d)
{
	jsonw__key(w, key);
	jsonw__object(w);
	json_ms(w, "p50", d->n ? (int64_t)d->p50 : -1);
	json_ms(w, "p90", d->n ? (int64_t)d->p90 : -1);
	json_ms(w, "p99", d->n ? (int64_t)d->p99 : -1);
	json_ms(w, "max", d->n ? (int64_t)d->max : -1);
	json_known_count(w, "n", d->n);
	jsonw__end_object(w);
}

static void write_row(struct jsonw *w, const struct summary_row *r)
{
	json_dist(w, "ttft_ms", &r->ttft);
	json_dist(w, "tpot_ms", &r->tpot);
	json_dist(w, "itl_token_ms", &r->itl_token);
	json_dist(w, "itl_chunk_ms", &r->itl_chunk);
	json_dist(w, "e2e_ms", &r->e2e);
	json_dist(w, "queue_ms", &r->queue);
	json_dist(w, "prefill_ms", &r->prefill);
	json_dist(w, "frontend_ms", &r->frontend);
	json_dist(w, "delivery_ms", &r->delivery);
}

static void write_classes(struct jsonw *w, const char *key, const struct summary_row *rows)
{
	jsonw__key(w, key);
	jsonw__array(w);
	for (int c = 0; c < N_LEN_CLASSES; c++) {
		if (!rows[c].n_requests)
			continue;
		jsonw__object(w);
		json_str(w, "tokens", len_class_names[c]);
		json_known_count(w, "n_requests", rows[c].n_requests);
		write_row(w, &rows[c]);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

static void write_prefix_classes(struct jsonw *w, const struct summary_row *rows)
{
	jsonw__key(w, "by_prefix");
	jsonw__object(w);
	for (int c = 0; c < N_PREFIX_CLASSES; c++) {
		jsonw__key(w, prefix_class_names[c]);
		jsonw__object(w);
		json_known_count(w, "n_requests", rows[c].n_requests);
		write_row(w, &rows[c]);
		jsonw__end_object(w);
	}
	jsonw__end_object(w);
}

static void write_batch(struct jsonw *w, const struct model_view *v, const struct summary *s)
{
	bool known = s->busy_from_steps;

	jsonw__key(w, "batch");
	jsonw__object(w);
	json_double(w, "p50", s->batch.p50, known);
	json_double(w, "mean", s->batch.mean, known);
	json_double(w, "max", s->batch.max, known);
	jsonw__key(w, "over_time");
	jsonw__array(w);
	for (size_t i = 0; i < s->n_bins; i++) {
		bool any = s->bins[i].busy_pct > 0;

		jsonw__object(w);
		json_since(w, "t0_ms", s->bins[i].t0_ns, v->t0_ns);
		json_double(w, "mean_members", s->bins[i].mean_members, any);
		json_double(w, "mean_tokens", s->bins[i].mean_tokens, any);
		json_double(w, "mean_kv_pct", s->bins[i].kv_pct, s->bins[i].kv_pct >= 0);
		json_double(w, "mean_running", s->bins[i].running, s->bins[i].running >= 0);
		json_double(w, "mean_waiting", s->bins[i].waiting, s->bins[i].waiting >= 0);
		json_double(w, "busy_pct", s->bins[i].busy_pct, true);
		json_known_count(w, "steps_begun", s->bins[i].n_steps);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
	jsonw__end_object(w);
}

static void write_note(void *ctx, const char *sentence)
{
	jsonw__str(ctx, sentence);
}

static int write_summary(struct jsonw *w, const struct model_view *v, const struct summary *s)
{
	int err;

	jsonw__key(w, "summary");
	jsonw__object(w);
	write_row(w, &s->all);
	jsonw__key(w, "output_tokens_per_s");
	jsonw__object(w);
	json_double(w, "wall", s->tok_per_s_wall, s->tok_per_s_wall >= 0);
	json_double(w, "busy", s->tok_per_s_busy, s->tok_per_s_busy >= 0);
	json_str(w, "busy_from", s->busy_ns ? s->busy_from_steps ? "steps" : "requests" : NULL);
	jsonw__end_object(w);
	json_ms(w, "wall_ms", s->wall_ns ? (int64_t)s->wall_ns : -1);
	json_ms(w, "busy_ms", s->busy_ns ? (int64_t)s->busy_ns : -1);
	json_known_count(w, "output_tokens", s->output_tokens);
	json_known_count(w, "prompt_tokens", s->prompt_tokens);
	json_known_count(w, "cached_tokens", s->cached_tokens);
	write_batch(w, v, s);
	write_classes(w, "by_input_len", s->by_input);
	write_classes(w, "by_output_len", s->by_output);
	write_prefix_classes(w, s->by_prefix);
	jsonw__key(w, "definitions");
	jsonw__object(w);
	for (const struct definition *d = definitions; d->metric; d++)
		json_str(w, d->metric, d->formula);
	jsonw__end_object(w);
	jsonw__key(w, "notes");
	jsonw__array(w);
	err = notes_each(v, s, write_note, w);
	jsonw__end_array(w);
	jsonw__end_object(w);
	return err;
}

/* ---- steps ---- */

static void write_steps(struct jsonw *w, const struct model_view *v)
{
	jsonw__key(w, "steps");
	jsonw__array(w);
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct rec_step *st = &v->steps[i];
		const struct rec_step_stats *s = step_stats(v, st);

		jsonw__object(w);
		json_known_count(w, "i", i);
		json_pid(w, v, st->engine);
		json_since(w, "t0_ms", st->t0_ns, v->t0_ns);
		json_since(w, "t1_ms", st->t1_ns, v->t0_ns);
		json_ppm_as_pct(w, "kv_pct", s->kv_ppm, s->known & TL_STATS_KV);
		json_maybe_count(w, "running", s->running, s->known & TL_STATS_QUEUES);
		json_maybe_count(w, "waiting", s->waiting, s->known & TL_STATS_QUEUES);
		json_gpu_step(w, v, i);
		jsonw__key(w, "members");
		jsonw__array(w);
		for (uint32_t j = 0; j < st->n_members; j++) {
			const struct rec_member *m = &v->members[st->first_member + j];

			jsonw__array(w);
			jsonw__u64(w, v->seqs[m->seq].id);
			jsonw__str(w, json_phase(m->phase, m->guess));
			jsonw__u64(w, m->n_tokens);
			jsonw__end_array(w);
		}
		jsonw__end_array(w);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

static int write_report(struct jsonw *w, const struct model_view *v, const struct summary *s,
			struct blame *b, const struct blame_sum *bs, const struct json_opts *o)
{
	int err;

	jsonw__object(w);
	json_known_count(w, "schema", 1);
	json_known_count(w, "t0_ns", v->t0_ns);
	write_host(w, v);
	write_capture(w, v, o->trouble);
	write_coverage(w, v, s);
	if (!o->no_self)
		write_self(w, v, s);
	err = json_health(w, v);
	if (!err)
		err = json_engines(w, v);
	if (err)
		return err;
	err = write_summary(w, v, s);
	if (err)
		return err;
	json_gpu(w, v);
	err = json_blame(w, v, b, bs);
	if (!err)
		err = json_claims(w, v);
	if (!err)
		err = json_requests(w, v, b, o);
	if (err)
		return err;
	if (!o->no_steps)
		write_steps(w, v);
	jsonw__end_object(w);
	jsonw__newline(w);
	return jsonw__finish(w);
}

int json_report(const struct model_view *v, const struct summary *s, const struct json_opts *o,
		FILE *out)
{
	struct blame_sum *bs = NULL;
	struct blame *b = NULL;
	struct jsonw w;
	int err;

	err = blame__new(v, &b);
	if (!err)
		err = blame_sum__new(b, v, &bs);
	if (!err) {
		jsonw__init(&w, to_file, out);
		err = write_report(&w, v, s, b, bs, o);
	}
	blame_sum__free(bs);
	blame__free(b);
	if (!err && fflush(out))
		err = errno ? -errno : -EIO;
	return err;
}

/* ---- documents of their own ---- */

void json_begin(struct jsonw *w, const struct model_view *v, const char *trouble, FILE *out)
{
	jsonw__init(w, to_file, out);
	jsonw__object(w);
	json_known_count(w, "schema", 1);
	json_known_count(w, "t0_ns", v->t0_ns);
	write_capture(w, v, trouble);
}

int json_end(struct jsonw *w, FILE *out)
{
	int err;

	jsonw__end_object(w);
	jsonw__newline(w);
	err = jsonw__finish(w);
	if (!err && fflush(out))
		err = errno ? -errno : -EIO;
	return err;
}

void json_began(struct jsonw *w, const struct model_view *v, uint64_t ns)
{
	json_since(w, "t0_ms", ns, v->t0_ns);
	write_utc(w, "t0_utc", wall_ns(v, ns));
}

static int write_requests_blame(struct jsonw *w, const struct model_view *v, struct blame *b,
				uint32_t request, bool all)
{
	int err = 0;

	jsonw__key(w, "requests");
	jsonw__array(w);
	for (uint32_t i = request ? request - 1 : 0; i < (request ? request : v->n_requests) && !err; i++) {
		jsonw__object(w);
		json_id(w, &v->requests[i]);
		err = json_gaps(w, v, b, i, all);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
	return err;
}

int json_blame_only(const struct model_view *v, const struct summary *s, struct blame *b,
		    const struct blame_selection *sel, const struct json_opts *o, FILE *out)
{
	struct blame_sum *bs;
	struct jsonw w;
	int err = blame_sum__select(b, v, sel, &bs);

	if (err)
		return err;
	json_begin(&w, v, o->trouble, out);
	write_coverage(&w, v, s);
	err = json_health(&w, v);
	if (!err)
		err = json_blame(&w, v, b, bs);
	if (!err)
		err = write_requests_blame(&w, v, b, sel->request, o->all_gaps);
	blame_sum__free(bs);
	return err ? err : json_end(&w, out);
}
