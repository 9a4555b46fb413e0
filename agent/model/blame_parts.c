/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a gap: added up by mechanism and culprit, split without losing a nanosecond. */
#include "model/blame_priv.h"

#include <string.h>

enum { MAX_NAMED = 8,	/* of those that only decode; more are a crowd */
       TRACE_NS = 5000	/* less is not worth a line */ };

static const struct culprit nobody = { .type = WHO_NOBODY };

void gap_begin(struct gap *g, uint32_t request, uint32_t seq, enum gap_side side, uint32_t token,
	       uint64_t t0_ns, uint64_t t1_ns)
{
	g->request = request;
	g->seq = seq;
	g->token = token;
	g->side = side;
	g->open = false;
	g->t0_ns = t0_ns;
	g->t1_ns = t1_ns;
	g->usual_ns = 0;
	g->ruled_out = 0;
	memset(g->behind_ns, 0, sizeof(g->behind_ns));
	memset(g->queue_ns, 0, sizeof(g->queue_ns));
	g->is_behind = false;
	g->n_parts = 0;
}

static bool is_same(const struct culprit *a, const struct culprit *b)
{
	return a->type == b->type && a->id == b->id && !strcmp(a->name, b->name);
}

/* The smallest part of a mechanism besides `not`; of nobody before all others. NULL: none. */
static struct blame_part *partner_of(struct gap *g, const struct blame_part *not)
{
	struct blame_part *best = NULL;

	for (size_t i = 0; i < g->n_parts; i++) {
		struct blame_part *p = &g->parts[i];

		if (p == not || p->mechanism != not->mechanism)
			continue;
		if (p->who.type == WHO_NOBODY)
			return p;
		if (!best || p->ns < best->ns)
			best = p;
	}
	return best;
}

/* Those who did least are not told apart any more. false: each mechanism has one part only. */
static bool make_room(struct gap *g)
{
	struct blame_part *least_part = NULL, *to;

	for (size_t i = 0; i < g->n_parts; i++) {
		struct blame_part *p = &g->parts[i];

		if (p->who.type != WHO_NOBODY && (!least_part || p->ns < least_part->ns) && partner_of(g, p))
			least_part = p;
	}
	if (!least_part)
		return false;
	to = partner_of(g, least_part);
	to->ns += least_part->ns;
	to->prov = (uint8_t)most(to->prov, least_part->prov);
	to->who = to->root = nobody;
	*least_part = g->parts[--g->n_parts];
	return true;
}

/* The part to add to; when there is no room for another culprit, those with least become one of nobody. */
static struct blame_part *part_for(struct gap *g, enum mechanism m, enum provenance prov,
				   const struct culprit *who, const struct culprit *root)
{
	struct blame_part *like = NULL;

	for (size_t i = 0; i < g->n_parts; i++) {
		struct blame_part *p = &g->parts[i];

		if (p->mechanism != m)
			continue;
		if (p->prov == prov && is_same(&p->who, who) && is_same(&p->root, root))
			return p;
		like = p;
	}
	if (like && g->n_parts + N_MECHANISMS / 2 >= MAX_PARTS && make_room(g))
		like = NULL;
	/* the last places are kept for mechanisms that have none yet */
	if (g->n_parts + N_MECHANISMS / 2 < MAX_PARTS || (!like && g->n_parts < MAX_PARTS)) {
		struct blame_part *p = &g->parts[g->n_parts++];

		*p = (struct blame_part){ 0, (uint8_t)m, (uint8_t)prov, *who, *root };
		return p;
	}
	if (!like)
		like = &g->parts[MAX_PARTS - 1];
	like->who = like->root = nobody;
	like->prov = (uint8_t)most(like->prov, prov);
	return like;
}

/* Nobody slows himself: what its own request did is for no other's sake. */
static const struct culprit *other(const struct gap *g, const struct culprit *who)
{
	return who && (who->type != WHO_REQUEST || who->id != g->request) ? who : &nobody;
}

void gap_add(struct gap *g, enum mechanism m, enum provenance prov, uint64_t ns,
	     const struct culprit *who, const struct culprit *root)
{
	if (!ns)
		return;
	part_for(g, m, prov, other(g, who), other(g, root))->ns += ns;
	if (g->is_behind)
		g->behind_ns[m] += ns;
}

void gap_add_clues(struct gap *g, const struct clue_list *l, uint64_t *left)
{
	for (size_t i = 0; i < l->n && *left; i++) {
		const struct clue *c = &l->v[i];
		uint64_t ns = least(c->ns, *left);

		if (ns < TRACE_NS)
			continue;
		gap_add(g, (enum mechanism)c->mechanism, (enum provenance)c->prov, ns, &c->who,
			&c->root);
		*left -= ns;
	}
}

struct culprit culprit_of(const struct blame *b, uint32_t seq)
{
	uint32_t req = b->v.seqs[seq].req;

	return req ? (struct culprit){ .type = WHO_REQUEST, .id = req - 1 }
		   : (struct culprit){ .type = WHO_SEQUENCE, .id = seq };
}

static enum provenance prov_of(const struct rec_member *m)
{
	return m->guess ? PROV_INFERRED : PROV_OBSERVED;
}

static bool counts(const struct rec_member *m, enum tl_phase phase, uint32_t except)
{
	return m->phase == phase && m->seq != except;
}

static uint64_t tokens_of(const struct blame *b, uint32_t step, enum tl_phase phase,
			  uint32_t except)
{
	const struct rec_step *st = &b->v.steps[step];
	uint64_t n = 0;

	for (uint32_t i = 0; i < st->n_members; i++) {
		const struct rec_member *m = &b->v.members[st->first_member + i];

		n += counts(m, phase, except) ? member_weight(m->n_tokens) : 0;
	}
	return n;
}

static void add_member(struct blame *b, struct gap *g, enum mechanism m, uint64_t ns,
		       const struct rec_member *mem, uint64_t t_ns)
{
	struct culprit who = culprit_of(b, mem->seq), root = nobody;
	enum provenance prov = prov_of(mem);

	if (m == MECH_PREFILL && mem->again) {
		const struct preempt_root *p = root_at(b, mem->seq, t_ns);

		m = MECH_RECOMPUTE;
		if (p && p->root)
			root = culprit_of(b, p->root - 1);
		if (p && p->prov > prov)
			prov = (enum provenance)p->prov;
	}
	/* of parallel answers one computes the prompt of all */
	if (m == MECH_PREFILL && who.type == WHO_REQUEST && who.id == g->request)
		m = MECH_OWN_PREFILL;
	gap_add(g, m, prov, ns, &who, &root);
}

/* Shares of what is left by what is left of the weights: the last one gets the rest. */
static void split(struct blame *b, struct gap *g, enum mechanism m, uint64_t ns, uint32_t step,
		  enum tl_phase phase, uint32_t except, uint64_t tokens)
{
	const struct rec_step *st = &b->v.steps[step];

	for (uint32_t i = 0; i < st->n_members && tokens; i++) {
		const struct rec_member *mem = &b->v.members[st->first_member + i];
		uint64_t share;

		if (!counts(mem, phase, except))
			continue;
		share = (uint64_t)((unsigned __int128)ns * member_weight(mem->n_tokens) / tokens);
		add_member(b, g, m, share, mem, st->t1_ns);
		ns -= share;
		tokens -= member_weight(mem->n_tokens);
	}
	gap_add(g, m, PROV_OBSERVED, ns, NULL, NULL);
}

void gap_add_prefill(struct blame *b, struct gap *g, uint64_t ns, uint32_t step, uint32_t except)
{
	split(b, g, MECH_PREFILL, ns, step, TL_PREFILL, except,
	      tokens_of(b, step, TL_PREFILL, except));
}

void gap_add_members(struct blame *b, struct gap *g, enum mechanism m, uint64_t ns, uint32_t step,
		     uint32_t except)
{
	uint64_t tokens = tokens_of(b, step, TL_PREFILL, except);

	if (tokens)
		split(b, g, m, ns, step, TL_PREFILL, except, tokens);
	else if (b->ix.facts[step].n_decode <= MAX_NAMED)
		split(b, g, m, ns, step, TL_DECODE, except, tokens_of(b, step, TL_DECODE, except));
	else
		gap_add(g, m, PROV_OBSERVED, ns, NULL, NULL);
}

/* What blame looks for itself wherever a gap is joined to steps. */
static const uint64_t always_looked_for = 1ull << MECH_PREFILL | 1ull << MECH_RECOMPUTE |
					  1ull << MECH_PREEMPTED | 1ull << MECH_LEFT_OUT;

/* A step that took longer than usual behind a short one is no reason for anything: what nobody can
 * explain is at most what the gap as a whole has beyond usual. */
static void bound_unexplained(struct gap *g)
{
	uint64_t others = 0, over;

	for (size_t i = 0; i < g->n_parts; i++)
		if (!mechanism_is_own((enum mechanism)g->parts[i].mechanism))
			others += g->parts[i].ns;
	over = less(others, less(g->t1_ns - g->t0_ns, g->usual_ns));
	for (size_t i = 0; i < g->n_parts && over; i++) {
		struct blame_part *p = &g->parts[i];
		uint64_t ns = least(p->ns, over);

		if (p->mechanism != MECH_UNEXPLAINED)
			continue;
		p->ns -= ns;
		if (!p->ns)
			*p = g->parts[--g->n_parts];
		gap_add(g, MECH_OWN_DECODE, PROV_OBSERVED, ns, NULL, NULL);
		return;
	}
}

void gap_end(struct blame *b, struct gap *g, uint32_t engine)
{
	uint64_t found = 0;

	if (g->token && g->usual_ns)
		bound_unexplained(g);
	for (size_t i = 0; i < g->n_parts; i++) {
		struct blame_part p = g->parts[i];
		size_t at = i;

		found |= 1ull << p.mechanism;
		for (; at && g->parts[at - 1].ns < p.ns; at--)
			g->parts[at] = g->parts[at - 1];
		g->parts[at] = p;
	}
	if (found & 1ull << MECH_UNEXPLAINED)
		g->ruled_out =
			(clues__watched(b->clues, engine) | (g->seq ? always_looked_for : 0)) &
			~found;
}

bool gap_is_odd(const struct gap *g)
{
	uint64_t ns = 0, enough = g->usual_ns / 10;

	for (size_t i = 0; i < g->n_parts; i++)
		if (!mechanism_is_own((enum mechanism)g->parts[i].mechanism))
			ns += g->parts[i].ns;
	return ns > (enough > 500000 ? enough : 500000);
}
