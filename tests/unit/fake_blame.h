/* SPDX-License-Identifier: Apache-2.0 */
/* Blame written by hand, in ms, in the place of agent/model/blame.c: for tests of what shows it. */
#ifndef TL_FAKE_BLAME_H
#define TL_FAKE_BLAME_H

#include "fake_view.h"
#include "model/blame_how.h"

enum { FAKE_MAX_GAPS = 400 };
struct blame {
	struct gap gaps[FAKE_MAX_GAPS];	/* token 0: TTFTs */
	size_t n;
	uint32_t n_learnt;
	struct hows hows;
	uint32_t n_rounds;	/* gaps come again so often, and then others are the culprits; 0: once */
};
static struct blame fake_blame;

static inline void fake_blame_clear(void)
{
	fake_blame.n = 0;
	fake_blame.n_learnt = 100;
	fake_blame.n_rounds = 0;
	fake_blame.hows.n = 0;
}

/* Of each test: an empty fake (fake_view.h) in *state, and no blame. */
static inline int fake_blame_setup(void **state)
{
	fake_blame_clear();
	*state = fake__new();
	return 0;
}

static inline int fake_blame_teardown(void **state)
{
	fake__free(*state);
	return 0;
}

/* A gap of a request (index) that ends with this token; its parts follow. */
static inline struct gap *fake_gap(uint32_t request, uint32_t token, double t0_ms, double usual_ms)
{
	struct gap *g = &fake_blame.gaps[fake_blame.n++];

	if (fake_blame.n == FAKE_MAX_GAPS)
		abort();
	memset(g, 0, sizeof(*g));
	g->request = request;
	g->token = token;
	g->t0_ns = g->t1_ns = fake_ns(t0_ms);
	g->usual_ns = (uint64_t)(usual_ms * 1e6);
	return g;
}

static inline struct blame_part *fake_part(struct gap *g, enum mechanism m, double ms)
{
	struct blame_part *p = &g->parts[g->n_parts++];

	*p = (struct blame_part){ .ns = (uint64_t)(ms * 1e6), .mechanism = (uint8_t)m,
				  .prov = PROV_OBSERVED };
	g->t1_ns += p->ns;
	return p;
}

static inline struct blame_part *fake_part_by(struct gap *g, enum mechanism m, double ms,
					      enum culprit_type type, uint32_t id, const char *name)
{
	struct blame_part *p = fake_part(g, m, ms);

	p->who.type = (uint8_t)type;
	p->who.id = id;
	snprintf(p->who.name, sizeof(p->who.name), "%s", name);
	return p;
}

int blame__new(const struct model_view *v, struct blame **ret)
{
	void *p = malloc(1);	/* so that this, too, can run out of memory */

	(void)v;
	if (!p)
		return -12;
	free(p);
	*ret = &fake_blame;
	return 0;
}

void blame__free(struct blame *b)
{
	(void)b;
}

int blame__gaps(struct blame *b, uint32_t request, gap_fn each, void *ctx)
{
	int err = 0;

	for (uint32_t round = 0; round <= b->n_rounds; round++)
		for (size_t i = 0; i < b->n && !err; i++) {
			struct gap g = b->gaps[i];

			for (size_t k = 0; k < g.n_parts; k++)
				g.parts[k].who.id += 1000000 * round;
			if (g.request == request && g.token && !g.open)
				err = each(ctx, &g);
		}
	return err;
}

int blame__odd_gaps(struct blame *b, uint32_t request, gap_fn each, void *ctx, int *ret_side)
{
	int err = 0;

	*ret_side = -1;
	for (size_t i = 0; i < b->n && !err; i++) {
		if (b->gaps[i].request != request || !b->gaps[i].token || b->gaps[i].open)
			continue;
		*ret_side = b->gaps[i].side;
		if (gap_is_odd(&b->gaps[i]))
			err = each(ctx, &b->gaps[i]);
	}
	return err;
}

bool blame__ttft(struct blame *b, uint32_t request, struct gap *ret)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->gaps[i].request == request && !b->gaps[i].token && !b->gaps[i].open) {
			*ret = b->gaps[i];
			return true;
		}
	return false;
}

bool blame__open(struct blame *b, uint32_t request, struct gap *ret)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->gaps[i].request == request && b->gaps[i].open) {
			*ret = b->gaps[i];
			return true;
		}
	return false;
}

bool gap_is_odd(const struct gap *g)
{
	return g->usual_ns && g->t1_ns - g->t0_ns > g->usual_ns + g->usual_ns / 10;
}

int blame__how(struct blame *b, const struct blame_sum *s, struct hows *ret)
{
	(void)s;
	*ret = b->hows;
	return 0;
}

uint32_t blame__n_learnt(const struct blame *b)
{
	return b->n_learnt;
}

#endif
