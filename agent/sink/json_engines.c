/* SPDX-License-Identifier: Apache-2.0 */
/* The "engines" of the report's JSON, with what their schedulers say. */
#include "base/util.h"
#include "engine/recognise.h"
#include "sink/gpu_words.h"
#include "sink/json_priv.h"

#include <stdlib.h>

static void write_level(struct jsonw *w, const char *key, const struct level *l)
{
	jsonw__key(w, key);
	jsonw__object(w);
	json_maybe_count(w, "p50", l->p50, l->known);
	json_maybe_count(w, "max", l->max, l->known);
	jsonw__end_object(w);
}

static void write_known(struct jsonw *w, const char *key, int64_t n)
{
	json_maybe_count(w, key, (uint64_t)n, n >= 0);
}

static void write_scheduler(struct jsonw *w, const struct scheduler_summary *s)
{
	jsonw__key(w, "kv_usage_pct");
	jsonw__object(w);
	json_ppm_as_pct(w, "p50", s->kv_ppm.p50, s->kv_ppm.known);
	json_ppm_as_pct(w, "max", s->kv_ppm.max, s->kv_ppm.known);
	jsonw__end_object(w);
	write_level(w, "running", &s->running);
	write_level(w, "waiting", &s->waiting);
	json_double(w, "prefix_hit_pct", 100.0 * (double)s->prefix_hits / (double)s->prefix_queries,
		    s->prefix_queries > 0);
	write_known(w, "preemptions", s->preemptions);
	jsonw__key(w, "spec");
	jsonw__object(w);
	write_known(w, "drafted", s->drafted);
	write_known(w, "accepted", s->accepted);
	jsonw__end_object(w);
}

static void write_front(struct jsonw *w, const struct front_summary *f)
{
	jsonw__key(w, "front");
	if (!f->n_requests) {
		jsonw__null(w);
		return;
	}
	jsonw__object(w);
	json_known_count(w, "requests", f->n_requests);
	json_known_count(w, "errors", f->n_errors);
	json_known_count(w, "aborted", f->n_aborted);
	json_dist(w, "frontend_ms", &f->frontend);
	json_dist(w, "ttft_ms", &f->ttft);
	json_dist(w, "delivery_ms", &f->delivery);
	jsonw__end_object(w);
}

static void write_engine(struct jsonw *w, const struct model_view *v,
			 const struct rec_engine *engine)
{
	const struct tl_engine *e = &engine->e;

	json_known_count(w, "pid", e->hdr.tgid);
	json_str(w, "kind", engine_kind_name(e->engine));
	json_str(w, "version", e->version);
	jsonw__key(w, "roles");
	jsonw__array(w);
	if (e->role[0])
		jsonw__str(w, e->role);
	jsonw__end_array(w);
	json_maybe_count(w, "server_pid", e->server, e->server != 0);
	json_tiers(w, e->tiers);
	json_str(w, "step_source", e->step_source);
	json_maybe_count(w, "max_step_tokens", e->max_step_tokens, e->max_step_tokens != 0);
	json_maybe_count(w, "max_seqs", e->max_seqs, e->max_seqs != 0);
	jsonw__key(w, "ports");
	jsonw__array(w);
	for (size_t p = 0; p < e->n_ports && p < ARRAY_SIZE(e->ports); p++)
		jsonw__u64(w, e->ports[p]);
	jsonw__end_array(w);
	json_since(w, "exit_ms", engine->exit_ns, v->t0_ns);
	jsonw__key(w, "io_uring");
	jsonw__bool(w, engine->io_uring);
}

int json_engines(struct jsonw *w, const struct model_view *v)
{
	struct scheduler_summary *s = NULL;
	struct front_summary *fronts = NULL;
	struct gpu_healths *h = NULL;
	int err = summarise_schedulers(v, &s);

	if (!err)
		err = summarise_fronts(v, &fronts);
	if (!err)
		err = gpu_healths__new(v, &h);
	jsonw__key(w, "engines");
	jsonw__array(w);
	for (size_t i = 0; i < v->n_engines && !err; i++) {
		jsonw__object(w);
		write_engine(w, v, &v->engines[i]);
		write_scheduler(w, &s[i]);
		write_front(w, &fronts[i]);
		json_gpu_engine(w, v, h, (uint32_t)i);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
	gpu_healths__free(h);
	free(fronts);
	free(s);
	return err;
}
