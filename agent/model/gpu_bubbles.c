/* SPDX-License-Identifier: Apache-2.0 */
/* Holes on a device while its server had work, and what the host did then. */
#include "model/gpu_bubbles.h"
#include "model/clues.h"
#include "model/gpu.h"
#include "model/step_index.h"

enum { MIN_HOLE_NS = 20000 };	/* launching takes that */

/* Saturates: times in a damaged recording may lie centuries apart, and a part stays no more than its whole. */
static void add(uint64_t *sum_ns, uint64_t ns)
{
	if (__builtin_add_overflow(*sum_ns, ns, sum_ns))
		*sum_ns = UINT64_MAX;
}

static void count_graph(const struct gpu_step *s, struct gpu_bubbles *ret)
{
	if (!s->seen)
		return;
	ret->n_hit += s->graph == TL_GRAPH_HIT;
	ret->n_padded += s->graph == TL_GRAPH_PADDED;
	ret->n_eager += s->graph == TL_GRAPH_MISS || s->graph == TL_GRAPH_NONE;
}

static void look_at_host(const struct clues *c, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns,
			 struct gpu_bubbles *ret)
{
	struct clue_list l;

	clues__engine(c, engine, t0_ns, t1_ns, &l);
	for (size_t i = 0; i < l.n; i++)
		add(&ret->by_ns[l.v[i].mechanism], l.v[i].ns);
}

static void sum_engine(const struct model_view *v, const struct step_index *ix, const struct clues *c, uint32_t engine,
		       struct gpu_bubbles *ret)
{
	const struct gpu_step *before = NULL;

	*ret = (struct gpu_bubbles){ 0 };
	for (size_t i = ix->first[engine]; i < ix->first[engine + 1]; i++) {
		const struct gpu_step *s = &v->gpu->steps[ix->order[i]];
		uint64_t hole;

		count_graph(s, ret);
		if (s->busy_ns == GPU_UNKNOWN || s->idle_ns == GPU_UNKNOWN) {
			before = NULL;
			continue;
		}
		hole = before && s->gpu0_ns > before->gpu1_ns ? s->gpu0_ns - before->gpu1_ns : 0;
		ret->n_steps++;
		ret->at_most |= s->at_least;
		add(&ret->busy_ns, s->busy_ns);
		add(&ret->idle_ns, s->idle_ns);
		if (hole > MIN_HOLE_NS && hole <= s->idle_ns) {	/* else it is behind a pause without work */
			add(&ret->between_ns, hole);
			look_at_host(c, engine, before->gpu1_ns, s->gpu0_ns, ret);
		}
		before = s;
	}
}

int gpu_bubbles_each(const struct model_view *v, gpu_bubbles_fn fn, void *ctx)
{
	struct clues *c = NULL;
	struct gpu_bubbles b;
	int err;

	if (!v->gpu || !v->gpu->n_steps)
		return 0;
	err = clues__new(v, &c);
	for (uint32_t i = 0; i < v->n_engines && !err; i++) {
		sum_engine(v, clues__steps(c), c, i, &b);
		if (b.n_steps || b.n_hit || b.n_padded || b.n_eager)
			fn(ctx, i, &b);
	}
	clues__free(c);
	return err;
}
