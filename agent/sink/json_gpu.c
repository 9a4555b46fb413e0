/* SPDX-License-Identifier: Apache-2.0 */
/* What the report's JSON says of GPUs: of engines, steps and requests, of kernels and devices. */
#include "base/util.h"
#include "model/evidence.h"
#include "model/gpu.h"
#include "sink/gpu_words.h"
#include "sink/json_priv.h"

/* ---- engines ---- */

static void write_governor(struct jsonw *w, const struct model_view *v, const struct gpu_healths *h, uint32_t server)
{
	size_t n;
	const uint32_t *changes = gpu_healths__changes(h, server, &n);

	jsonw__key(w, "governor");
	jsonw__array(w);
	for (size_t i = 0; i < n && i < GPU_MAX_CHANGES; i++) {
		const struct tl_gpu_health *e = &v->evidence->gpu_healths.v[changes[i]];
		char why[80];

		jsonw__object(w);
		json_since(w, "at_ms", e->hdr.ts_ns, v->t0_ns);
		json_str(w, "from", gpu_level_name(e->level));
		json_str(w, "to", gpu_level_name(e->to_level));
		json_str(w, "why", gpu_why(e, why));
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

void json_gpu_engine(struct jsonw *w, const struct model_view *v, const struct gpu_healths *h, uint32_t engine)
{
	const struct gpu_health_sum *s = gpu_healths__of(h, engine);

	jsonw__key(w, "gpu");
	if (!s) {
		jsonw__null(w);
		return;
	}
	jsonw__object(w);
	json_str(w, "level", gpu_level_name(s->level));
	jsonw__key(w, "simulated");
	jsonw__bool(w, s->simulated);
	json_known_count(w, "records", s->records);
	json_known_count(w, "dropped", s->dropped);
	json_known_count(w, "broken_windows", s->n_broken);
	write_governor(w, v, h, s->server);
	jsonw__end_object(w);
}

/* ---- steps ---- */

static void write_ns(struct jsonw *w, const char *key, uint64_t ns)
{
	json_ms(w, key, ns == GPU_UNKNOWN ? -1 : (int64_t)ns);
}

void json_gpu_step(struct jsonw *w, const struct model_view *v, size_t step)
{
	static const struct gpu_step none = { .busy_ns = GPU_UNKNOWN, .idle_ns = GPU_UNKNOWN };
	const struct gpu_step *s = v->gpu && step < v->gpu->n_steps ? &v->gpu->steps[step] : &none;

	write_ns(w, "gpu_busy_ms", s->busy_ns);
	write_ns(w, "gpu_idle_ms", s->at_least ? GPU_UNKNOWN : s->idle_ns);
	json_maybe_count(w, "launches", s->launches, s->counted);
	json_str(w, "graph", s->seen ? gpu_graph_name(s->graph) : NULL);
	jsonw__key(w, "graph_maybe_padded");
	jsonw__bool(w, s->seen && s->graph == TL_GRAPH_HIT && !s->sized);
	json_since(w, "t_launch_ms", s->launch_ns, v->t0_ns);
	json_since(w, "t_gpu0_ms", s->gpu0_ns, v->t0_ns);
	json_since(w, "t_gpu1_ms", s->gpu1_ns, v->t0_ns);
}

/* ---- requests ---- */

static const struct gpu_share *share_of(const struct model_view *v, uint32_t request)
{
	static const struct gpu_share none = { .prefill_ns = GPU_UNKNOWN, .decode_ns = GPU_UNKNOWN };

	return v->gpu && request < v->gpu->n_shares ? &v->gpu->shares[request] : &none;
}

void json_gpu_request(struct jsonw *w, const struct model_view *v, uint32_t request)
{
	const struct gpu_share *s = share_of(v, request);

	write_ns(w, "gpu_prefill_ms", s->prefill_ns);
	write_ns(w, "gpu_decode_ms", s->decode_ns);
}

static void write_prov(struct jsonw *w, const char *key, uint64_t ns, bool shared)
{
	json_str(w, key, ns == GPU_UNKNOWN ? NULL : provenance_names[shared ? PROV_INFERRED : PROV_OBSERVED]);
}

void json_gpu_provenance(struct jsonw *w, const struct model_view *v, uint32_t request)
{
	const struct gpu_share *s = share_of(v, request);

	write_prov(w, "gpu_prefill_ms", s->prefill_ns, s->prefill_shared);
	write_prov(w, "gpu_decode_ms", s->decode_ns, s->decode_shared);
}

/* ---- kernels and devices ---- */

static void write_sums(struct jsonw *w, uint64_t n, uint64_t total_ns, uint64_t p50_ns)
{
	json_known_count(w, "n", n);
	json_ms(w, "total_ms", (int64_t)total_ns);
	jsonw__key(w, "p50_us");
	jsonw__fixed(w, (int64_t)p50_ns, 3);
}

/* Those of one device (`on`), else those of several together. */
static void write_where(struct jsonw *w, const struct gpu_kernel_on *on)
{
	json_maybe_count(w, "device", on ? on->device : 0, on && on->tgid);
	json_maybe_count(w, "pid", on ? on->tgid : 0, on && on->tgid);
}

static void write_kernel(struct jsonw *w, const struct gpu_facts *g, const struct gpu_kernel *k)
{
	const struct gpu_kernel_on *on = &g->kernels_on[k->first_on];

	jsonw__object(w);
	json_str(w, "name", k->name);
	json_str(w, "phase", gpu_phase_name(k->phase));
	write_where(w, k->n_on == 1 ? on : NULL);
	write_sums(w, k->n, k->total_ns, k->p50_ns);
	jsonw__key(w, "by_device");
	jsonw__array(w);
	for (size_t i = 0; i < k->n_on; i++) {
		jsonw__object(w);
		write_where(w, &on[i]);
		write_sums(w, on[i].n, on[i].total_ns, on[i].p50_ns);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
	jsonw__end_object(w);
}

static void write_windows(struct jsonw *w, const struct model_view *v, uint32_t tgid)
{
	jsonw__key(w, "windows");
	jsonw__array(w);
	for (size_t i = 0; i < v->gpu->n_windows; i++) {
		const struct gpu_time *t = &v->gpu->windows[i];

		if (t->tgid != tgid)
			continue;
		jsonw__array(w);
		jsonw__fixed(w, (int64_t)(t->t0_ns - v->t0_ns), 6);
		jsonw__fixed(w, (int64_t)(t->t1_ns - v->t0_ns), 6);
		jsonw__end_array(w);
	}
	jsonw__end_array(w);
}

static void write_device(struct jsonw *w, const struct model_view *v, const struct gpu_device *d)
{
	double seen = (double)d->seen_ns;
	bool known = d->seen_ns > 0, all = known && !d->at_least, waits = known && d->wait_ns != GPU_UNKNOWN;

	jsonw__object(w);
	json_known_count(w, "id", d->device);
	json_known_count(w, "pid", d->tgid);
	json_known_count(w, "rank", d->rank);
	json_ms(w, "seen_ms", (int64_t)d->seen_ns);
	json_ms(w, "missed_ms", (int64_t)d->missed_ns);
	json_double(w, "busy_pct", 100.0 * (double)d->busy_ns / seen, all);
	json_double(w, "busy_min_pct", 100.0 * (double)d->busy_ns / seen, known);
	json_double(w, "idle_pct", 100.0 * (seen - (double)d->busy_ns) / seen, all);
	json_double(w, "copy_pct", 100.0 * (double)d->copy_ns / seen, all);
	json_double(w, "collective_wait_pct", 100.0 * (double)d->wait_ns / seen, waits);
	write_windows(w, v, d->tgid);
	jsonw__end_object(w);
}

void json_gpu(struct jsonw *w, const struct model_view *v)
{
	jsonw__key(w, "kernels");
	jsonw__array(w);
	for (size_t i = 0; v->gpu && i < v->gpu->n_kernels; i++)
		write_kernel(w, v->gpu, &v->gpu->kernels[i]);
	jsonw__end_array(w);
	jsonw__key(w, "devices");
	jsonw__array(w);
	for (size_t i = 0; v->gpu && i < v->gpu->n_devices; i++)
		write_device(w, v, &v->gpu->devices[i]);
	jsonw__end_array(w);
}
