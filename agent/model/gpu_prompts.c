/* SPDX-License-Identifier: Apache-2.0 */
/* Which prompts were computed in which of the steps that are made of launches. */
#include "model/gpu_cost.h"
#include "base/firstfit.h"
#include "base/pct.h"

#include <errno.h>
#include <math.h>

/*
 * The step that a first token is from computed the end of its prompt. Whether others had a part of theirs in it
 * is told by how long the device was busy, and what that takes (gpu_cost.h). What is more than the prompts that end
 * there is a part of the one whose first token comes next (rule: at most one is cut per step).
 */
enum {
	MIN_SAMPLES = 4,	/* of full steps */
	PART_PCT = 8,		/* of a step's prompt tokens, and less is noise */
	MIN_PART = 4,		/* tokens */
	NOISE_PCT = 3,		/* of a step's length: no two are alike */
	LONG_PCT = 25, LONG_TIMES = 4,	/* beyond what its decodes take, and beyond the usual error: a prompt is in it */
};
#define NEAR 0.06		/* of a step's length */
#define FAR 0.24		/* then it is no full step */
#define ENOUGH 0.8		/* of what a step had left: lengths in time are not exact */

struct waiting {		/* a request with a first token */
	uint64_t since_ns;
	uint32_t request, first;	/* istep of its first token */
	uint32_t chance;	/* the first one that could have had a part of it */
	uint32_t from;		/* from this one to `first` all took longer than decodes do; first: none did */
	uint32_t begin;		/* the first one that is taken to have one */
	uint32_t prompt, done;	/* tokens; prompt 0: not known */
	uint32_t place;		/* in `order` */
	bool cut_before;	/* a part may have been computed before anything was seen */
};
struct prompts {
	struct inferred *f;
	VEC(struct waiting) w;	/* by arrival */
	uint32_t *order;	/* of these, by first token */
	size_t here, early;	/* of these, so many have come when a step was launched; when it was planned ... */
	struct firstfit *here_rest, *early_rest;	/* ... what is left of them, by `order`; INFINITY: not known */
	size_t lo;		/* in `order`: those before it had their first token */
	struct gpu_cost cost[2];	/* on the device; as the host saw it */
	struct gpu_decodes decodes[2];
	uint32_t *long_from;	/* per step: from this one to the one before it all took longer than decodes do, and no
				 * prompt ends there; itself: none does */
	uint32_t budget;	/* tokens of a full step, 0: not known ... */
	uint32_t full[2];	/* ... and as they are measured, by each of the costs */
};

static int by_arrival(const void *pa, const void *pb)
{
	const struct waiting *a = pa, *b = pb;

	if (a->since_ns != b->since_ns)
		return a->since_ns < b->since_ns ? -1 : 1;
	return a->request < b->request ? -1 : a->request > b->request;
}

static int list_waiting(struct prompts *p)
{
	for (uint32_t i = 0; i < p->f->n_requests; i++) {
		const struct rec_request *r = irequest(p->f, i);
		uint64_t since = r->at_ns[P_REQ_LAST_BYTE] ? r->at_ns[P_REQ_LAST_BYTE] : r->at_ns[P_REQ_FIRST_BYTE];
		struct waiting *w;

		if (!p->f->first_of[i])
			continue;
		w = vec_push(&p->w, SIZE_MAX);
		if (!w)
			return -ENOMEM;
		*w = (struct waiting){ .since_ns = since, .request = i, .first = p->f->first_of[i] - 1,
				       .begin = p->f->first_of[i] - 1 };
		if (r->prompt.prov && r->prompt.n > (r->cached.prov ? r->cached.n : 0))
			w->prompt = r->prompt.n - (r->cached.prov ? r->cached.n : 0);
	}
	if (p->w.n)
		qsort(p->w.v, p->w.n, sizeof(*p->w.v), by_arrival);
	return 0;
}

static int by_first(const void *pa, const void *pb, void *ctx)
{
	const struct prompts *p = ctx;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	if (p->w.v[a].first != p->w.v[b].first)
		return p->w.v[a].first < p->w.v[b].first ? -1 : 1;
	return a < b ? -1 : a > b;
}

static int put_in_order(struct prompts *p)
{
	p->order = malloc((p->w.n + 1) * sizeof(*p->order));
	p->here_rest = firstfit__new(p->w.n);
	p->early_rest = firstfit__new(p->w.n);
	if (!p->order || !p->here_rest || !p->early_rest)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->w.n; i++)
		p->order[i] = i;
	qsort_r(p->order, p->w.n, sizeof(*p->order), by_first, p);
	for (uint32_t i = 0; i < p->w.n; i++)
		p->w.v[p->order[i]].place = i;
	return 0;
}

/* Could this request have been scheduled for step i? */
static bool was_there(const struct inferred *f, const struct waiting *w, uint32_t i)
{
	return w->since_ns < f->steps.v[i].launch0_ns && i <= w->first;
}

/* The first step that was launched behind its arrival, in the segment of its first token: both only rise. */
static uint32_t first_chance(const struct inferred *f, const struct waiting *w)
{
	uint32_t lo = 0, hi = w->first;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (f->steps.v[mid].segment == f->steps.v[w->first].segment && was_there(f, w, mid))
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* How many tokens of prompts a step had, by its length; < 0: nothing to measure by. */
static double measured(const struct prompts *p, const struct istep *s, int by)
{
	const struct gpu_cost *c = &p->cost[by];
	double ns = (double)gpu_time_of(s, by) - c->base_ns - c->per_seq_ns * s->n_decode;

	if (c->per_token_ns <= 0 || gpu_time_of(s, by) == GPU_UNKNOWN)
		return -1;
	return ns > 0 ? ns / c->per_token_ns : 0;
}

/* Does somebody wait whose prompt does not end in this step? */
static bool is_crowded(const struct gpu_load *l)
{
	return l->waits > l->ends;
}

/* What crowded steps had, by their length: the median. 0: not known. */
static uint32_t usual_full(const struct prompts *p, const struct gpu_load *loads, int by, uint32_t *room)
{
	size_t k = 0;

	for (size_t i = 0; i < p->f->steps.n; i++) {
		const struct istep *s = &p->f->steps.v[i];
		double t = is_crowded(&loads[i]) ? measured(p, s, by) : -1;

		if (t > 0 && t < MAX_STEP_TOKENS && !(p->f->has_graphs && s->replayed))
			room[k++] = (uint32_t)t + s->n_decode;
	}
	return k >= MIN_SAMPLES ? pct_u32(room, k, 500) : 0;
}

/* Schedulers have a limit of tokens per step, and fill it while somebody waits: such steps have all as many. Where their
 * lengths say so, and it is near a power of two, that is it. */
static int find_budget(struct prompts *p, const struct gpu_load *loads)
{
	uint32_t *room = malloc((p->f->steps.n + 1) * sizeof(*room)), two = 1, n;

	if (!room)
		return -ENOMEM;
	for (int by = 0; by < 2; by++)
		p->full[by] = usual_full(p, loads, by, room);
	free(room);
	n = p->full[0] ? p->full[0] : p->full[1];
	while (two < n - n / 4)
		two *= 2;
	if (n && n > two * (1 - NEAR) && n < two * (1 + NEAR))
		p->budget = two;
	if (p->f->m->engines[p->f->engine].e.max_step_tokens)
		p->budget = p->f->m->engines[p->f->engine].e.max_step_tokens;
	return 0;
}

/* By its length, but exact where it is that of a full step rather than that of the prompts that end in it, where all of
 * these are known. < 0: nothing to measure by. */
static double tokens_of(const struct prompts *p, const struct istep *s, const struct gpu_load *l, const double *ends,
			bool *ret_full)
{
	*ret_full = false;
	for (int by = 0; by < 2; by++) {
		double t = measured(p, s, by), full = p->full[by], off = fabs(t + s->n_decode - full);

		if (t < 0)
			continue;
		*ret_full = full > 0 && p->budget > s->n_decode && is_crowded(l) &&
			    (!ends || (l->early && fabs(full - s->n_decode - *ends) < full * 2 * NEAR) ?
				     off < full * 2 * NEAR : off < full * FAR && off < fabs(t - *ends));
		return *ret_full ? p->budget - s->n_decode : t;
	}
	return -1;
}

/* Who waits fills a step. If it is not full, nobody was cut; if it is not known when it is, noise is no part. */
static bool is_cut(const struct prompts *p, const struct istep *s, bool full, double all, double left)
{
	const struct gpu_cost *c = &p->cost[s->busy_ns == GPU_UNKNOWN];
	double tokens = all + c->base_ns / c->per_token_ns;	/* as long as that */

	if (full)
		return left >= 1;
	if (p->budget)
		return left > p->budget * FAR;
	return left >= MIN_PART && left * 100 >= all * PART_PCT && left * 100 >= tokens * NOISE_PCT;
}

/* ---- where nobody says how long prompts are ---- */

/* Whichever tells of this step; NULL: none. */
static const struct gpu_decodes *decodes_of(const struct prompts *p, const struct istep *s, int *ret_by)
{
	for (int by = 0; by < 2; by++)
		if (p->decodes[by].known && gpu_time_of(s, by) != GPU_UNKNOWN) {
			*ret_by = by;
			return &p->decodes[by];
		}
	return NULL;
}

static bool took_long(const struct prompts *p, const struct istep *s)
{
	int by;
	const struct gpu_decodes *d = decodes_of(p, s, &by);
	double ns = d ? d->base_ns + d->per_seq_ns * s->n_decode : 0;
	double over = d ? (double)gpu_time_of(s, by) - ns : 0;

	return d && over > ns * LONG_PCT / 100 && over > LONG_TIMES * d->err_ns;
}

static int find_runs(struct prompts *p, const struct gpu_load *loads)
{
	const struct inferred *f = p->f;

	p->long_from = calloc(f->steps.n + 1, sizeof(*p->long_from));
	if (!p->long_from)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->steps.n; i++) {
		bool in_run = i && !loads[i - 1].ends && took_long(p, &f->steps.v[i - 1]);

		p->long_from[i] = in_run ? p->long_from[i - 1] : i;
	}
	return 0;
}

/* A prompt is computed in steps in a row, up to that of its first token. */
static void find_long(const struct prompts *p, struct waiting *w)
{
	uint32_t from = p->long_from[w->first];

	w->from = from > w->chance ? from : w->chance;
}

/* Is it known that this step had no part of a prompt that did not end there? Where it is not known what its tokens take, a
 * step with the end of another's may be long for either. */
static bool tells(const struct prompts *p, const struct gpu_load *l, const struct istep *s)
{
	int by;

	if ((p->f->has_graphs && s->replayed) || measured(p, s, 0) >= 0 || measured(p, s, 1) >= 0)
		return true;
	return decodes_of(p, s, &by) && !(l->ends && took_long(p, s));
}

/* Nobody saw what ran when it came, for longer than a step. */
static bool came_unseen(const struct prompts *p, const struct waiting *w)
{
	return w->cut_before && p->f->steps.v[w->chance].launch0_ns > w->since_ns + p->f->usual_ns;
}

/* Before the first step that is taken to have a part of it there may be others, up to one that is known to have none: then
 * it is not known when its prompt began, and from the first of these on nobody saw it wait. */
static void note_open(const struct prompts *p, const struct gpu_load *loads, const struct waiting *w)
{
	uint32_t i = w->begin;

	while (i > w->chance && !tells(p, &loads[i - 1], &p->f->steps.v[i - 1]))
		i--;
	if (i == w->chance && came_unseen(p, w))
		p->f->open_ns[w->request] = w->since_ns;
	else if (i < w->begin)
		p->f->open_ns[w->request] = p->f->steps.v[i].launch0_ns;
}

/* ---- who ---- */

static uint32_t whole(double tokens)
{
	return tokens <= 0 ? 0 : tokens < MAX_STEP_TOKENS ? (uint32_t)(tokens + 0.5) : MAX_STEP_TOKENS;
}

static uint32_t rest_of(const struct waiting *w)
{
	return w->prompt > w->done ? w->prompt - w->done : 1;
}

static void note_rest(struct prompts *p, size_t k)
{
	const struct waiting *w = &p->w.v[k];
	double rest = w->prompt ? rest_of(w) : INFINITY;

	if (k < p->here)
		firstfit__set(p->here_rest, w->place, rest);
	if (k < p->early)
		firstfit__set(p->early_rest, w->place, rest);
}

static int add_part(struct prompts *p, struct waiting *w, uint32_t at, uint32_t n_tokens)
{
	w->done += n_tokens;
	w->begin = at < w->begin ? at : w->begin;
	note_rest(p, w - p->w.v);
	return imember_add(p->f, &(struct imember){ at, w->request, n_tokens, TL_PREFILL, at == w->first });
}

/* The host plans a step when it has the outputs of one: who comes between that and the launch may have been too late. */
static uint64_t planned_from(const struct inferred *f, uint32_t i)
{
	uint32_t lo = 0, hi = i;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (f->steps.v[mid].end_ns <= f->steps.v[i].launch0_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? f->steps.v[lo - 1].end_ns : 0;
}

/* The first step from lo to hi - 1 that was planned when this request was there, or hi. */
static uint32_t first_planned(const struct inferred *f, const struct waiting *w, uint32_t lo, uint32_t hi)
{
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (planned_from(f, mid) < w->since_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct waiting *nearest(struct prompts *p, const struct firstfit *rest, uint32_t i, double left)
{
	size_t at = firstfit__find(rest, p->lo, left * ENOUGH);
	struct waiting *w = at < p->w.n ? &p->w.v[p->order[at]] : NULL;

	return w && p->f->steps.v[w->first].segment == p->f->steps.v[i].segment ? w : NULL;
}

/* Who had a part of its prompt in step i, and not the end: of those that wait and had more than `left` to compute the
 * one whose first token is nearest; of those that came when it was planned, if there is one. NULL: nobody. */
static struct waiting *who_waits(struct prompts *p, uint32_t i, double left)
{
	struct waiting *w = nearest(p, p->early_rest, i, left);

	return w ? w : nearest(p, p->here_rest, i, left);
}

/* Who came until step i; p->lo: behind those that end in it. Returns where these begin. */
static size_t come_to(struct prompts *p, uint32_t i)
{
	uint64_t planned_ns = planned_from(p->f, i);
	size_t ends;

	while (p->here < p->w.n && p->w.v[p->here].since_ns < p->f->steps.v[i].launch0_ns)
		note_rest(p, p->here++);
	while (p->early < p->here && p->w.v[p->early].since_ns <= planned_ns)
		note_rest(p, p->early++);
	while (p->lo < p->w.n && p->w.v[p->order[p->lo]].first < i)
		p->lo++;
	ends = p->lo;
	while (p->lo < p->w.n && p->w.v[p->order[p->lo]].first == i)
		p->lo++;
	return ends;
}

/* Prompts that end in step i, and a part of one that does not. */
static int fill_step(struct prompts *p, uint32_t i, const struct gpu_load *l)
{
	const struct istep *s = &p->f->steps.v[i];
	bool full;
	double ends = 0, all, left;
	struct waiting *cut = NULL;
	uint32_t n_open = 0;	/* that end here, and nobody knows how much was left of them */
	size_t first = come_to(p, i);
	int err = 0;

	for (size_t k = first; k < p->lo; k++) {
		const struct waiting *w = &p->w.v[p->order[k]];

		if (p->order[k] >= p->here)
			continue;
		n_open += !w->prompt || w->cut_before;
		if (w->prompt && !w->cut_before)
			ends += rest_of(w);
	}
	all = tokens_of(p, s, l, n_open ? NULL : &ends, &full);
	left = all - ends;
	if (!p->f->has_graphs || !s->replayed)
		cut = who_waits(p, i, n_open ? 0 : left);
	if (!cut && full)	/* somebody filled it, whatever was thought of those before */
		cut = who_waits(p, i, 0);
	for (size_t k = first; k < p->lo && !err; k++) {
		struct waiting *w = &p->w.v[p->order[k]];
		bool open = !w->prompt || w->cut_before;

		if (p->order[k] < p->here)
			err = add_part(p, w, i, !open ? rest_of(w) : whole(left / (n_open + !!cut)));
	}
	if (err || !cut)
		return err;
	if (all < 0)		/* nothing to measure by: a step without an end that is no replay has a part */
		return !l->ends && (p->f->has_graphs || i >= cut->from) ? add_part(p, cut, i, 0) : 0;
	if (n_open)		/* who waits fills what is left of a step */
		return add_part(p, cut, i, whole(left / (n_open + 1)));
	if (!is_cut(p, s, full, all, left))
		return 0;
	if (cut->prompt && cut->done + left >= cut->prompt)
		left = rest_of(cut) > 1 ? rest_of(cut) - 1 : 1;
	return add_part(p, cut, i, whole(left));
}

/* How many more wait at a step than at the one before it, and how many more came before it was planned. */
struct edge {
	int32_t waits, early;
};

static int find_loads(struct prompts *p, struct gpu_load *loads)
{
	const struct inferred *f = p->f;
	struct edge *edges = calloc(f->steps.n + 2, sizeof(*edges));
	int32_t waits = 0, early = 0;

	if (!edges)
		return -ENOMEM;
	for (size_t k = 0; k < p->w.n; k++) {
		struct waiting *w = &p->w.v[k];
		uint32_t i = first_chance(f, w);

		w->chance = i;
		w->cut_before = was_there(f, w, i) && (!i || f->steps.v[i - 1].segment != f->steps.v[i].segment);
		edges[i].waits++;
		edges[w->first + 1].waits--;
		edges[first_planned(f, w, i, w->first)].early++;
		edges[w->first].early--;
		loads[w->first].ends++;
		loads[w->first].tokens += w->prompt;
		loads[w->first].open |= !w->prompt || w->cut_before;
	}
	for (size_t i = 0; i < f->steps.n; i++) {
		waits += edges[i].waits;
		early += edges[i].early;
		loads[i].waits = waits;
		loads[i].early = early > 0;
	}
	free(edges);
	return 0;
}

int gpu_infer_prompts(struct inferred *f)
{
	struct prompts p = { .f = f };
	struct gpu_load *loads = calloc(f->steps.n + 1, sizeof(*loads));
	int err = loads ? list_waiting(&p) : -ENOMEM;

	if (!err)
		err = put_in_order(&p);
	if (!err)
		err = find_loads(&p, loads);
	for (int by = 0; by < 2 && !err; by++) {
		err = gpu_cost_fit(f, loads, by, &p.cost[by]);
		if (!err)
			err = gpu_decodes_fit(f, loads, by, &p.decodes[by]);
	}
	if (!err)
		err = find_budget(&p, loads);
	if (!err)
		err = find_runs(&p, loads);
	for (size_t k = 0; k < p.w.n && !err; k++)
		find_long(&p, &p.w.v[k]);
	for (uint32_t i = 0; i < f->steps.n && !err; i++)
		err = fill_step(&p, i, &loads[i]);
	for (size_t k = 0; k < p.w.n && !err; k++)
		note_open(&p, loads, &p.w.v[k]);
	free(loads);
	free(p.order);
	free(p.long_from);
	firstfit__free(p.here_rest);
	firstfit__free(p.early_rest);
	vec_free(&p.w);
	return err;
}
