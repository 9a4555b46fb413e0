/* SPDX-License-Identifier: Apache-2.0 */
/* How mechanisms took their time, in the report's JSON: "how" of blame. */
#include "sink/how_words.h"
#include "sink/json_priv.h"

static void json_pct(struct jsonw *w, const char *key, double pct)
{
	json_double(w, key, pct, pct >= 0);
}

static void json_us(struct jsonw *w, const char *key, uint64_t ns)
{
	json_double(w, key, (double)ns / 1e3, ns > 0);
}

static void write_graph(struct jsonw *w, const struct how_graph *g)
{
	jsonw__object(w);
	json_known_count(w, "least_batch", g->least_batch);
	json_known_count(w, "most_batch", g->most_batch);
	json_maybe_count(w, "largest_graph", g->largest, g->largest);
	json_maybe_count(w, "launches_per_step", g->launches, g->launches);
	json_us(w, "launch_us", g->launch_ns);
	jsonw__key(w, "launch_us_is_bound");
	jsonw__bool(w, g->at_most);
	jsonw__end_object(w);
}

static void write_rank(struct jsonw *w, const struct how_rank *r)
{
	jsonw__object(w);
	json_known_count(w, "rank", r->rank);
	json_known_count(w, "steps", r->n_steps);
	jsonw__key(w, "waiting_ranks");
	jsonw__array(w);
	for (unsigned int i = 0; i < 64; i++)
		if (r->waiting >> i & 1)
			jsonw__u64(w, i);
	jsonw__end_array(w);
	json_ms(w, "wait_ms", (int64_t)r->wait_ns);
	json_ms(w, "transfer_ms", (int64_t)r->transfer_ns);
	json_ms(w, "compute_ms", r->compute_ns ? (int64_t)r->compute_ns : -1);
	json_ms(w, "compute_usual_ms", r->compute_usual_ns ? (int64_t)r->compute_usual_ns : -1);
	json_pct(w, "waiting_busy_pct", r->waiting_busy_pct);
	jsonw__end_object(w);
}

static void write_clock(struct jsonw *w, const struct how_clock *c)
{
	jsonw__object(w);
	json_maybe_count(w, "mhz", c->mhz, c->mhz);
	json_maybe_count(w, "usual_mhz", c->usual_mhz, c->usual_mhz);
	json_pct(w, "decode_pct", c->decode_pct);
	json_pct(w, "prefill_pct", c->prefill_pct);
	json_known_count(w, "steps_with_both", c->n_both);
	jsonw__end_object(w);
}

static void write_backlog(struct jsonw *w, const struct model_view *v, const struct how_backlog *k)
{
	jsonw__object(w);
	json_since(w, "made_at_ms", k->made_ns, v->t0_ns);
	json_since(w, "written_at_ms", k->written_ns, v->t0_ns);
	json_ms(w, "late_ms", (int64_t)(k->written_ns - k->made_ns));
	json_known_count(w, "pending_steps", k->n_pending);
	json_ms(w, "step_ms", (int64_t)k->step_ns);
	json_ms(w, "written_every_ms", (int64_t)k->out_ns);
	jsonw__end_object(w);
}

void json_how(struct jsonw *w, const struct model_view *v, const struct how *h)
{
	char text[HOW_TEXT];

	jsonw__object(w);
	json_str(w, "mechanism", mechanism_names[h->mechanism]);
	json_pid(w, v, h->engine);
	json_str(w, "text", how_text(v, h, text, sizeof(text)));
	json_maybe_count(w, "steps", h->n_steps, h->n_steps);
	json_ms(w, "steps_ms", h->n_steps ? (int64_t)h->steps_ns : -1);
	json_ms(w, "lost_ms", h->n_steps ? (int64_t)h->lost_ns : -1);
	json_pct(w, "gpu_busy_pct", h->busy_pct);
	json_pct(w, "gpu_busy_all_pct", h->all_busy_pct);
	jsonw__key(w, "gpu_busy_at_least");
	jsonw__bool(w, h->busy_at_least);
	jsonw__key(w, "gpu_busy_all_at_least");
	jsonw__bool(w, h->all_at_least);
	if (h->mechanism == MECH_GRAPH_MISS) {
		jsonw__key(w, "graph");
		write_graph(w, &h->graph);
	} else if (h->mechanism == MECH_COLLECTIVE && h->late.n_steps) {
		jsonw__key(w, "late_rank");
		write_rank(w, &h->late);
	} else if (h->mechanism == MECH_CLOCK || h->mechanism == MECH_NEIGHBOUR) {
		jsonw__key(w, "clock");
		write_clock(w, &h->clock);
	} else if (h->mechanism == MECH_DETOKENIZER) {
		jsonw__key(w, "backlog");
		write_backlog(w, v, &h->backlog);
	}
	jsonw__end_object(w);
}
