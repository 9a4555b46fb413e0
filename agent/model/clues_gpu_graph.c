/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs: what a step lost because none fitted it, and what that can cost at most. */
#include "model/clues_gpu.h"
#include "base/num.h"
#include "model/gpu.h"

enum { MIN_LIKE = 4,	/* steps, to say what others like it take ... */
       MAX_FACTOR = 2,	/* ... and of more than that no graph is the reason */
       ODD_PART = 12 };

static const struct gpu_usual *usual_of(const struct clues *c, uint32_t step)
{
	return &c->gpu_usual[c->v->steps[step].engine];
}

/* ---- padding ---- */

/* What a batch takes when a graph fits it: as seen, or between the two graphs
 * around it. 0: not known. */
static uint64_t fitting_ns(const struct clues *c, const struct gpu_usual *u, uint32_t batch)
{
	const struct graph_hit *h = u->n_hits ? &c->hits.v[u->first_hit] : NULL;
	const struct graph_hit *below = NULL, *above = NULL;

	for (uint32_t i = 0; i < u->n_hits; i++) {
		if (h[i].batch <= batch)
			below = &h[i];
		if (h[i].batch >= batch && !above)
			above = &h[i];
	}
	if (below && below->batch == batch)
		return below->ns;
	if (!below)
		return 0;
	/* Next to a captured size it costs what that takes; between two of them, its share. */
	if (!above || above->ns <= below->ns)
		return below->ns;
	return below->ns +
	       (above->ns - below->ns) * (batch - below->batch) / (above->batch - below->batch);
}

/* What a replay of this size takes, padded to it or not. UINT64_MAX: too few to say. */
static uint64_t replay_ns(const struct clues *c, const struct gpu_usual *u, uint32_t size)
{
	for (uint32_t i = 0; i < u->n_sizes; i++)
		if (c->sizes.v[u->first_size + i].batch == size &&
		    c->sizes.v[u->first_size + i].n >= MIN_LIKE)
			return c->sizes.v[u->first_size + i].ns;
	return UINT64_MAX;
}

/*
 * The device computes for a larger batch: by no more than that is larger, for no longer
 * than a replay of that size takes, and within what it was busy. What the step took
 * beyond has another reason.
 */
static uint64_t padding_of(const struct clues *c, uint32_t step, const struct tl_gpu_step *s,
			   uint64_t fit_ns)
{
	const struct gpu_usual *u = usual_of(c, step);
	uint64_t ns = least(step_ns(c, step), replay_ns(c, u, s->padded_to));

	if (s->busy_ns)
		ns = least(ns, s->busy_ns + u->idle_ns);
	return least(less(ns, fit_ns), fit_ns / s->batch * (s->padded_to - s->batch));
}

static bool is_padded(const struct tl_gpu_step *s)
{
	return s->graph == TL_GRAPH_PADDED && s->batch && s->padded_to > s->batch;
}

uint64_t padding_ns(const struct clues *c, uint32_t step, const struct tl_gpu_step *s,
		    uint64_t usual_ns)
{
	uint64_t fit_ns;

	if (!is_padded(s))
		return 0;
	fit_ns = usual_ns ? usual_ns : fitting_ns(c, usual_of(c, step), s->batch);
	return fit_ns ? padding_of(c, step, s, fit_ns) : 0;
}

void add_padding(const struct clues *c, uint32_t step, uint64_t usual_ns,
		 const struct tl_gpu_step *s, struct clue_list *ret)
{
	add_amount(ret, MECH_PADDING, PROV_INFERRED, padding_ns(c, step, s, usual_ns),
		   who_device(s->device, "batch %u padded to %u", s->batch, s->padded_to));
}

/* ---- no graph ---- */

static bool missed_graph(const struct clues *c, uint32_t step, const struct tl_gpu_step *s)
{
	if (s->graph == TL_GRAPH_MISS)
		return true;
	/* Nobody says: where steps that only decode are replayed, one without a replay was not. */
	return s->graph == TL_GRAPH_NONE && s->launches && !s->graph_launches &&
	       usual_of(c, step)->has_graphs && step_only_decodes(c->v, step);
}

/* Of what a step took beyond usual, the device was not busy for so long. */
static uint64_t idle_excess(const struct clues *c, uint32_t step, const struct tl_gpu_step *s,
			    uint64_t usual_ns)
{
	uint64_t ns = step_ns(c, step), excess = less(ns, usual_ns);

	return s->busy_ns ? least(excess, less(ns, s->busy_ns)) : excess;
}

/* The host launches one kernel after the other: no longer than it was at that, nor far
 * longer than others like it. */
static uint64_t miss_ns(const struct clues *c, uint32_t step, const struct tl_gpu_step *s,
			uint64_t usual_ns)
{
	const struct gpu_usual *u = usual_of(c, step);
	const struct gpu_facts *f = c->v->gpu;
	uint64_t ns = idle_excess(c, step, s, usual_ns);

	if (f && step < f->n_steps && f->steps[step].launching_ns)
		ns = least(ns, f->steps[step].launching_ns);
	if (u->n_missed >= MIN_LIKE)
		ns = least(ns, less(MAX_FACTOR * u->missed_ns, usual_ns));
	return ns;
}

void add_graph(const struct clues *c, uint32_t step, uint64_t usual_ns, const struct tl_gpu_step *s,
	       struct clue_list *ret)
{
	const struct gpu_usual *u = usual_of(c, step);
	uint32_t batch = s->batch ? s->batch : c->v->steps[step].n_members;

	if (s->hdr.flags & TL_GPU_COLD)
		add_amount(ret, MECH_COMPILE, PROV_OBSERVED, idle_excess(c, step, s, usual_ns),
			   who_device(s->device, "first use", 0, 0));
	if (missed_graph(c, step, s))
		add_amount(ret, MECH_GRAPH_MISS, s->graph == TL_GRAPH_MISS ? PROV_OBSERVED : PROV_INFERRED,
			   miss_ns(c, step, s, usual_ns),
			   u->max_captured && batch > u->max_captured ?
				   who_device(s->device, "batch %u, largest graph %u", batch, u->max_captured) :
				   who_device(s->device, "batch %u", batch, 0));
}

bool graph_is_odd(const struct clues *c, uint32_t step, const struct tl_gpu_step *s)
{
	uint64_t fit_ns = is_padded(s) ? fitting_ns(c, usual_of(c, step), s->batch) : 0;

	return missed_graph(c, step, s) ||
	       (fit_ns && padding_of(c, step, s, fit_ns) > fit_ns / ODD_PART);
}
