/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the threads that are recorded compute the steps of which engine. */
#include "model/clues_priv.h"

#include <errno.h>

bool thread_computes(const struct watched *w)
{
	return w->launches || w->t->role == TL_ROLE_ENGINE || w->t->role == TL_ROLE_LAUNCH ||
	       w->t->role == TL_ROLE_COMPUTE;
}

static bool has_steps(const struct clues *c, uint32_t engine)
{
	return c->ix.first[engine] < c->ix.first[engine + 1];
}

/* Is it an engine process of its own, with steps? Then its ranks are not another's. */
static bool is_engine(const struct clues *c, uint32_t tgid)
{
	const struct process *p = map__get(c->processes, tgid);

	return p && p->has_steps;
}

static bool works_for(const struct clues *c, const struct watched *w, uint32_t engine,
		      bool of_server)
{
	uint32_t tgid = clues_tgid(c, engine);

	if (!thread_computes(w))
		return false;
	if (w->t->hdr.tgid == tgid)
		return true;
	return has_steps(c, engine) && (w->t->rank >= 0 || of_server) &&
	       w->server == c->engine_servers[engine] && !is_engine(c, w->t->hdr.tgid);
}

static int add_index(struct workers *l, uint32_t i)
{
	uint32_t *at = vec_push(&l->l, SIZE_MAX);

	if (at)
		*at = i;
	return at ? 0 : -ENOMEM;
}

static int by_index(const void *pa, const void *pb)
{
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	return a < b ? -1 : a > b;
}

/* Those of its server that say of which rank they are, or those that do not. */
static int add_of_server(const struct clues *c, uint32_t engine, bool ranked, struct workers *ret)
{
	uint32_t tgid = clues_tgid(c, engine), server = c->engine_servers[engine];
	int err = 0;

	for (size_t i = clues_threads_from(c, server, ranked ? 0 : INT16_MIN);
	     i < c->n_threads && has_steps(c, engine) && !err; i++) {
		const struct watched *w = &c->threads[c->server_threads[i]];

		if (w->server != server || (!ranked && w->t->rank >= 0))
			break;
		if (w->t->hdr.tgid != tgid && works_for(c, w, engine, true))
			err = add_index(ret, c->server_threads[i]);
	}
	return err;
}

/* The threads of an engine: of its process, and workers of its server. Those that do
 * not say of which rank they are can be of no other if this is the only engine with
 * steps; and somebody computes. */
static int workers_of(const struct clues *c, uint32_t engine, bool only, struct workers *ret)
{
	const struct watched *end = c->threads + c->n_threads;
	uint32_t tgid = clues_tgid(c, engine);
	int err = 0;

	for (const struct watched *w = clues_process_threads(c, tgid);
	     w < end && w->t->hdr.tgid == tgid && !err; w++)
		if (works_for(c, w, engine, false))
			err = add_index(ret, w - c->threads);
	if (!err)
		err = add_of_server(c, engine, true, ret);
	if (!err && (only || !ret->l.n))
		err = add_of_server(c, engine, false, ret);
	if (ret->l.n)
		qsort(ret->l.v, ret->l.n, sizeof(*ret->l.v), by_index);
	return err;
}

/* How many engines of a server have steps. */
static int count_steppers(const struct clues *c, struct map *ret)
{
	for (uint32_t i = 0; i < c->v->n_engines; i++) {
		uint32_t *n = has_steps(c, i) ? map__put(ret, c->engine_servers[i], NULL) : NULL;

		if (n)
			++*n;
		else if (has_steps(c, i))
			return -ENOMEM;
	}
	return 0;
}

int workers_each(const struct clues *c, workers_fn fn, void *ctx)
{
	struct map *steppers = map__new(sizeof(uint32_t), SIZE_MAX);
	int err = steppers ? count_steppers(c, steppers) : -ENOMEM;

	for (uint32_t i = 0; i < c->v->n_engines && !err; i++) {
		const uint32_t *n = map__get(steppers, c->engine_servers[i]);
		struct workers w = { 0 };

		err = workers_of(c, i, !n || (*n == 1 && has_steps(c, i)), &w);
		if (!err)
			err = fn(ctx, i, &w);
		vec_free(&w.l);
	}
	map__free(steppers);
	return err;
}
