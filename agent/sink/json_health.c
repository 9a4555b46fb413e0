/* SPDX-License-Identifier: Apache-2.0 */
/* The "health" of the report's JSON: what must be known of the evidence before it is believed. */
#include "model/health.h"
#include "base/util.h"
#include "sink/json_priv.h"
#include "sink/notes.h"

#include <errno.h>

static const char *const kind_names[] = {
	[HEALTH_GPU_BROKEN] = "gpu_broken",
	[HEALTH_GPU_BAD_STAMPS] = "gpu_bad_stamps",
	[HEALTH_GPU_BUDGET] = "gpu_over_budget",
	[HEALTH_GPU_BUSY] = "gpu_busy",
	[HEALTH_GPU_DROPPED] = "gpu_dropped",
	[HEALTH_GPU_STEPPED_DOWN] = "gpu_stepped_down",
	[HEALTH_CLOCK_STEP] = "clock_step",
	[HEALTH_HANG] = "hang",
	[HEALTH_COMMUNICATION] = "bound_by_communication",
	[HEALTH_NOT_KEPT] = "evidence_not_kept",
	[HEALTH_STOPPED] = "stopped",
	[HEALTH_GPU_NO_PROBES] = "gpu_no_probes",
	[HEALTH_GPU_WAITS] = "gpu_waits",
	[HEALTH_GPU_NO_STATE] = "gpu_no_state",
};
static const char *const level_names[] = {
	[TL_GPU_OFF] = "off", [TL_GPU_LAUNCHES] = "launches", [TL_GPU_GRAPH] = "graph",
	[TL_GPU_KERNELS] = "kernels",
};

static const char *name_of(const char *const *names, size_t n, uint8_t i)
{
	return i < n ? names[i] : NULL;
}

static void write_text(void *ctx, const char *sentence)
{
	json_str(ctx, "text", sentence);
}

static void write_ranks(struct jsonw *w, const char *key, uint64_t ranks)
{
	jsonw__key(w, key);
	jsonw__array(w);
	for (unsigned int i = 0; i < 64; i++)
		if (ranks & 1ull << i)
			jsonw__u64(w, i);
	jsonw__end_array(w);
}

static void write_signed_ms(struct jsonw *w, const char *key, int64_t ns, bool known)
{
	jsonw__key(w, key);
	if (known)
		jsonw__fixed(w, ns, 6);
	else
		jsonw__null(w);
}

static void write_note(struct jsonw *w, const struct model_view *v, const struct health_note *n)
{
	bool gpu = n->kind <= HEALTH_GPU_STEPPED_DOWN || (n->kind >= HEALTH_GPU_NO_PROBES && n->kind <= HEALTH_GPU_NO_STATE),
	      bound = n->kind == HEALTH_COMMUNICATION;
	bool counted = n->kind == HEALTH_GPU_BROKEN || n->kind == HEALTH_GPU_BAD_STAMPS ||
		       n->kind == HEALTH_GPU_DROPPED || n->kind == HEALTH_NOT_KEPT || n->kind == HEALTH_GPU_BUDGET;

	jsonw__object(w);
	json_str(w, "kind", name_of(kind_names, ARRAY_SIZE(kind_names), n->kind));
	note_of_health(v, n, write_text, w);
	json_maybe_count(w, "pid", n->tgid, n->tgid != 0);
	json_since(w, "t0_ms", n->t0_ns, v->t0_ns);
	json_since(w, "t1_ms", n->t1_ns, v->t0_ns);
	json_maybe_count(w, "n", n->n, counted);
	json_maybe_count(w, "of", n->of, counted && n->of);
	json_str(w, "level", gpu ? name_of(level_names, ARRAY_SIZE(level_names), n->level) : NULL);
	json_str(w, "to_level", gpu ? name_of(level_names, ARRAY_SIZE(level_names), n->to_level) : NULL);
	json_ppm_as_pct(w, "overhead_pct", n->ppm, n->kind == HEALTH_GPU_BUDGET);
	json_str(w, "holder", n->holder);
	json_maybe_count(w, "stopped_pid", n->stopped, n->kind == HEALTH_STOPPED);
	json_str(w, "why", *n->why ? n->why : NULL);
	write_ranks(w, "missing_ranks", n->missing);
	write_ranks(w, "waiting_ranks", n->waiting);
	json_maybe_count(w, "n_ranks", n->n_ranks, bound);
	json_ms(w, "collective_ms", bound ? (int64_t)n->collective_ns : -1);
	json_ms(w, "step_ms", bound ? (int64_t)n->step_ns : -1);
	write_signed_ms(w, "jump_ms", n->jump_ns, n->kind == HEALTH_CLOCK_STEP);
	jsonw__end_object(w);
}

int json_health(struct jsonw *w, const struct model_view *v)
{
	struct health h;
	int err = health_notes(v, &h);

	if (err)
		return err;
	jsonw__key(w, "health");
	jsonw__array(w);
	for (size_t i = 0; i < h.n; i++)
		write_note(w, v, &h.v[i]);
	jsonw__end_array(w);
	return 0;
}
