/* SPDX-License-Identifier: Apache-2.0 */
/* What made single steps of a request longer than usual: the largest part of the gap that they ended. */
#include "model/blame_sum.h"
#include "sink/why_priv.h"

#include <errno.h>
#include <stdlib.h>

struct finding {
	struct why_causes *c;
	const struct trace *t;
	uint32_t seq;		/* index + 1 of the one that is walked over */
	size_t visit;		/* of it: all before are behind */
	uint64_t n_out;		/* of these */
};

/* Its visit that gave a token. SIZE_MAX: none did. Gaps come in the order of their tokens. */
static size_t visit_of(struct finding *f, const struct gap *g)
{
	const struct rec_sequence *q = &f->t->v->seqs[g->seq - 1];

	if (f->seq != g->seq) {
		f->seq = g->seq;
		f->visit = 0;
		f->n_out = 0;
	}
	while (f->visit < q->n_visits && f->n_out + q->visits[f->visit].n_out <= g->token)
		f->n_out += q->visits[f->visit++].n_out;
	return f->visit < q->n_visits ? f->visit : SIZE_MAX;
}

/* What is not its own and was not behind the step, the mechanism with most of it. 0: nothing. */
static uint64_t chief_of(const struct gap *g, struct why_cause *ret)
{
	uint64_t ns[N_MECHANISMS] = { 0 }, best = 0;
	int chief = -1;

	for (size_t i = 0; i < g->n_parts; i++)
		ns[g->parts[i].mechanism] += g->parts[i].ns;
	for (int m = 0; m < N_MECHANISMS; m++) {
		uint64_t in_step = ns[m] > g->behind_ns[m] ? ns[m] - g->behind_ns[m] : 0;

		if (mechanism_is_own((enum mechanism)m) || in_step <= best)
			continue;
		best = in_step;
		chief = m;
	}
	if (chief < 0 || chief == MECH_UNEXPLAINED || chief == MECH_LOST)
		return 0;
	ret->ns = best;
	ret->mechanism = (uint8_t)chief;
	for (size_t i = g->n_parts; i-- > 0;)	/* the longest stands first */
		if (g->parts[i].mechanism == chief) {
			ret->more |= ret->who.type && !culprit_same(&ret->who, &g->parts[i].who);
			ret->who = g->parts[i].who;
		}
	return best;
}

static int keep(void *ctx, const struct gap *g)
{
	struct finding *f = ctx;
	struct why_cause cause = { 0 }, *at;
	size_t visit = g->seq ? visit_of(f, g) : SIZE_MAX;

	if (visit == SIZE_MAX || !chief_of(g, &cause))
		return 0;
	at = vec_push(&f->c->all, SIZE_MAX);
	if (!at)
		return -ENOMEM;
	*at = cause;
	at->seq = g->seq - 1;
	at->step = f->t->v->seqs[at->seq].visits[visit].step;
	return 0;
}

static int by_step(const void *a, const void *b)
{
	const struct why_cause *x = a, *y = b;

	if (x->step != y->step)
		return x->step < y->step ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

int why_causes__find(struct why_causes *c, const struct trace *t, struct blame *b)
{
	struct finding f = { .c = c, .t = t };
	int side, err = blame__odd_gaps(b, (uint32_t)(t->r - t->v->requests), keep, &f, &side);

	if (!err && c->all.n)
		qsort(c->all.v, c->all.n, sizeof(*c->all.v), by_step);
	return err;
}

const struct why_cause *why_causes__of(const struct why_causes *c, uint32_t seq, uint32_t step)
{
	const struct why_cause key = { .seq = seq, .step = step };

	return c->all.n ? bsearch(&key, c->all.v, c->all.n, sizeof(key), by_step) : NULL;
}

void why_causes__free(struct why_causes *c)
{
	vec_free(&c->all);
}
