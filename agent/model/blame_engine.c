/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's side of a gap: the holes, others' steps and own steps in it, one after the other. */
#include "model/blame_priv.h"

/* What is less is no reason to look for evidence. */
enum { TINY_NS = 20000 };
/* A step that computes a prompt is odd only far from usual: what it costs depends on more than tokens. */
enum { MIN_PREFILL_STEPS = 8, MAX_PREFILL_FACTOR = 3 };
/* Of more steps of others in a row nobody asks who was in them: time would go by the square of their number. */
enum { MAX_OTHERS = 4096 };

bool lost_in(const struct blame *b, uint64_t t0_ns, uint64_t t1_ns)
{
	size_t lo = 0, hi = b->n_losses;	/* the first one that ends behind t0 */

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (b->losses[mid].until_ns <= t0_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < b->n_losses && b->losses[lo].since_ns < t1_ns;
}

static uint32_t engine_of(const struct walk *w)
{
	return w->b->v.seqs[w->seq].engine;
}

/* What is usual of a part begins before the gap does when the token before left late, as it usually
 * does: that much less of it is own here. */
static uint64_t take_credit(struct walk *w, uint64_t usual_ns)
{
	uint64_t ns = least(usual_ns, w->credit_ns);

	w->credit_ns -= ns;
	return usual_ns - ns;
}

/* What evidence says of [at_ns, until_ns] of the engine, out of *left. */
static void take_clues(struct walk *w, uint64_t until_ns, uint64_t *left)
{
	struct clue_list l;

	if (*left <= TINY_NS)
		return;
	clues__engine(w->b->clues, engine_of(w), w->at_ns, until_ns, &l);
	gap_add_clues(w->g, &l, left);
}

/* What its own threads did to each other is the reason where no other is left. */
static void take_crowd(struct walk *w, uint64_t until_ns, uint64_t *left)
{
	struct clue_list l;

	clues__crowd(w->b->clues, engine_of(w), w->at_ns, until_ns, &l);
	gap_add_clues(w->g, &l, left);
}

static void take_step_clues(struct walk *w, uint32_t step, uint64_t usual_ns, uint64_t *left)
{
	struct clue_list l;

	if (*left <= TINY_NS)
		return;
	clues__step(w->b->clues, step, usual_ns, &l);
	gap_add_clues(w->g, &l, left);
}

/* ---- time without a step ---- */

void cut_hole(struct walk *w, uint64_t until_ns, uint32_t next_step, enum mechanism own)
{
	uint64_t own_ns, left;
	struct expected e;

	until_ns = least(until_ns, w->end_ns);
	if (until_ns <= w->at_ns)
		return;
	baseline__step(w->b->base, next_step, &e);
	left = until_ns - w->at_ns;
	own_ns = least(left, take_credit(w, e.hole_ns));
	left -= own_ns;
	if (left > e.hole_err_ns && lost_in(w->b, w->at_ns, until_ns)) {
		gap_add(w->g, MECH_LOST, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	take_clues(w, until_ns, &left);
	if (e.n_learnt && left > e.hole_err_ns)
		take_crowd(w, until_ns, &left);
	if (e.n_learnt && left > e.hole_err_ns)
		gap_add(w->g, MECH_UNEXPLAINED, PROV_NONE, left, NULL, NULL);
	else
		own_ns += left;
	gap_add(w->g, own, PROV_OBSERVED, own_ns, NULL, NULL);
	w->at_ns = until_ns;
}

/* ---- steps ---- */

/* What others' prefill costs at least and at most of `left`, where that was learnt: what is far more
 * than usual for so many tokens has another reason. */
static uint64_t prefill_floor(const struct expected *e, uint64_t left)
{
	return e->n_prefill >= MIN_PREFILL_STEPS ? least(left, e->step_ns - e->decode_ns) : 0;
}

static uint64_t prefill_bound(const struct expected *e, uint64_t left)
{
	return e->n_prefill >= MIN_PREFILL_STEPS
		       ? least(left, MAX_PREFILL_FACTOR * (e->step_ns - e->decode_ns) + e->err_ns)
		       : left;
}

/* Without a baseline: what evidence says, of the rest prefill has its share of the step's tokens. */
static void cut_unknown(struct walk *w, uint32_t step, uint64_t until_ns, enum mechanism own)
{
	const struct step_facts *f = &w->b->ix.facts[step];
	uint64_t left = until_ns - w->at_ns, ns;

	take_clues(w, until_ns, &left);
	if (own == MECH_OWN_DECODE && f->prefill) {
		ns = (uint64_t)((double)left * f->prefill / ((double)f->prefill + f->n_decode));
		gap_add_prefill(w->b, w->g, ns, step, w->seq);
		left -= ns;
	}
	gap_add(w->g, own, PROV_OBSERVED, left, NULL, NULL);
}

/* A step in which it decodes, [at_ns, until]. */
static void cut_decode(struct walk *w, uint32_t step, uint64_t until_ns, const struct expected *e,
		       enum mechanism own)
{
	uint64_t own_ns = least(until_ns - w->at_ns, take_credit(w, e->decode_ns));
	uint64_t left = until_ns - w->at_ns - own_ns, prefill = 0;

	if (left > e->err_ns && lost_in(w->b, w->at_ns, until_ns)) {
		gap_add(w->g, MECH_LOST, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	if (w->b->ix.facts[step].prefill)
		prefill = prefill_floor(e, left);
	left -= prefill;
	take_clues(w, until_ns, &left);
	/* what a prompt costs may not be known: then the step has no usual length */
	take_step_clues(w, step, w->b->ix.facts[step].prefill && !e->n_prefill ? 0 : e->step_ns,
			&left);
	left += prefill;
	if (left && w->b->ix.facts[step].prefill) {
		prefill = prefill_bound(e, left);
		gap_add_prefill(w->b, w->g, prefill, step, w->seq);
		left -= prefill;
	}
	if (left > e->err_ns)
		take_crowd(w, until_ns, &left);
	if (left > e->err_ns) {
		gap_add(w->g, MECH_UNEXPLAINED, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	gap_add(w->g, own, PROV_OBSERVED, own_ns + left, NULL, NULL);
}

/* A step in which it computes its prompt: its own doing, unless most of it is others' prompts. */
static void cut_prefill(struct walk *w, uint32_t step, uint32_t own_tokens, uint64_t until_ns,
			const struct expected *e)
{
	const struct step_facts *f = &w->b->ix.facts[step];
	uint64_t left, own_ns, others = f->prefill > own_tokens ? f->prefill - own_tokens : 0;

	own_ns = least(until_ns - w->at_ns, e->n_prefill ? e->step_ns : e->decode_ns);
	left = until_ns - w->at_ns - own_ns;
	if (left > e->err_ns && lost_in(w->b, w->at_ns, until_ns)) {
		gap_add(w->g, MECH_LOST, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	take_clues(w, until_ns, &left);
	take_step_clues(w, step, e->n_prefill ? e->step_ns : 0, &left);
	if (e->n_prefill >= MIN_PREFILL_STEPS &&
	    left > (MAX_PREFILL_FACTOR - 1) * e->step_ns + e->err_ns) {
		gap_add(w->g, MECH_UNEXPLAINED, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	own_ns += left;
	if (2ull * own_tokens < f->prefill) {
		uint64_t shared = less(own_ns, e->decode_ns);
		uint64_t ns = (uint64_t)((double)shared * (double)others / f->prefill);

		gap_add_prefill(w->b, w->g, ns, step, w->seq);
		own_ns -= ns;
	}
	gap_add(w->g, MECH_OWN_PREFILL, PROV_OBSERVED, own_ns, NULL, NULL);
}

/* A step that computes again what it had: whoever took its room is behind all of it. */
static void cut_again(struct walk *w, uint32_t step, uint64_t len_ns)
{
	const struct preempt_root *root = root_at(w->b, w->seq, w->b->v.steps[step].t1_ns);
	struct culprit who = { .type = WHO_NOBODY };

	if (root && root->root)
		who = culprit_of(w->b, root->root - 1);
	gap_add(w->g, MECH_RECOMPUTE, root ? (enum provenance)root->prov : PROV_INFERRED, len_ns,
		&who, NULL);
}

static enum mechanism own_of(const struct rec_visit *visit)
{
	return visit->phase == TL_PREFILL && !visit->again ? MECH_OWN_PREFILL : MECH_OWN_DECODE;
}

static void cut_own_step(struct walk *w, const struct rec_visit *visit, const struct step_span *at)
{
	uint64_t until_ns = least(at->t1_ns, w->end_ns);
	struct expected e;

	baseline__step(w->b->base, visit->step, &e);
	w->g->usual_ns += visit->phase == TL_PREFILL && !visit->again ? 0 : e.decode_ns + e.hole_ns;
	if (until_ns <= w->at_ns)
		return;
	if (visit->again)
		cut_again(w, visit->step, until_ns - w->at_ns);
	else if (!e.n_learnt)
		cut_unknown(w, visit->step, until_ns, own_of(visit));
	else if (visit->phase == TL_PREFILL)
		cut_prefill(w, visit->step, member_weight(visit->n_tokens), until_ns, &e);
	else
		cut_decode(w, visit->step, until_ns, &e, MECH_OWN_DECODE);
	w->at_ns = until_ns;
}

/* A step that is another's turn, as usual: what it takes undisturbed is part of what a token takes. */
static void cut_turn(struct walk *w, uint32_t step, uint64_t until_ns, enum mechanism own)
{
	struct expected e;

	baseline__step(w->b->base, step, &e);
	w->g->usual_ns += e.decode_ns + e.hole_ns;
	if (until_ns <= w->at_ns)
		return;
	if (e.n_learnt)
		cut_decode(w, step, until_ns, &e, own);
	else
		cut_unknown(w, step, until_ns, own);
}

static void cut_other_step(struct walk *w, uint32_t step, const struct step_span *at,
			   enum mechanism own)
{
	uint64_t until_ns = least(at->t1_ns, w->end_ns);

	if (w->skips) {
		w->skips--;
		cut_turn(w, step, until_ns, own);
	} else if (until_ns <= w->at_ns) {
		return;
	} else if (lost_in(w->b, w->at_ns, until_ns)) {
		gap_add(w->g, MECH_LOST, PROV_NONE, until_ns - w->at_ns, NULL, NULL);
	} else {
		gap_add_members(w->b, w->g, MECH_LEFT_OUT, until_ns - w->at_ns, step, w->seq);
	}
	w->at_ns = most(w->at_ns, until_ns);
}

/* A pause of the whole server takes the place of those that run, too. */
static void take_pause(struct walk *w, uint64_t until_ns, uint64_t *left)
{
	struct clue_list l;
	size_t n = 0;

	clues__engine(w->b->clues, engine_of(w), w->at_ns, until_ns, &l);
	for (size_t i = 0; i < l.n; i++)
		if (l.v[i].mechanism == MECH_PAUSED)
			l.v[n++] = l.v[i];
	l.n = n;
	gap_add_clues(w->g, &l, left);
}

/* Parked until the step that takes it on again begins. */
static void cut_parked(struct walk *w, const struct preempt_root *root, uint64_t until_ns)
{
	struct culprit who = { .type = WHO_NOBODY };
	uint64_t left;

	until_ns = least(until_ns, w->end_ns);
	if (until_ns <= w->at_ns)
		return;
	if (root && root->root)
		who = culprit_of(w->b, root->root - 1);
	left = until_ns - w->at_ns;
	if (lost_in(w->b, w->at_ns, until_ns)) {
		gap_add(w->g, MECH_LOST, PROV_NONE, left, NULL, NULL);
	} else {
		take_pause(w, until_ns, &left);
		gap_add(w->g, MECH_PREEMPTED, root ? (enum provenance)root->prov : PROV_INFERRED,
			left, &who, NULL);
	}
	w->at_ns = until_ns;
}

/* Away for very many steps: who ran meanwhile is not asked any more. */
static void cut_crowd(struct walk *w, uint64_t until_ns)
{
	until_ns = least(until_ns, w->end_ns);
	if (until_ns <= w->at_ns)
		return;
	if (lost_in(w->b, w->at_ns, until_ns))
		gap_add(w->g, MECH_LOST, PROV_NONE, until_ns - w->at_ns, NULL, NULL);
	else
		gap_add(w->g, MECH_LEFT_OUT, PROV_INFERRED, until_ns - w->at_ns, NULL, NULL);
	w->at_ns = until_ns;
}

/* Everything from w->at_ns to the end of the visit's step, that step included. */
static void cut_visit(struct walk *w, size_t visit, size_t place)
{
	const struct step_index *ix = &w->b->ix;
	const struct rec_visit *own = &w->b->v.seqs[w->seq].visits[visit];
	size_t own_place = ix->facts[own->step].place, others = 0;
	const struct preempt_root *root = NULL;
	struct step_span at = step_index__span(ix, own->step);

	if (visit && parked_before(w->b, w->seq, visit, &root)) {
		cut_parked(w, root, at.t0_ns);
		place = own_place;
	}
	w->skips = w->b->turns[w->b->v.seqs[w->seq].engine].skipped;
	for (; place < own_place && others++ < MAX_OTHERS; place++) {
		uint32_t step = ix->order[place];
		struct step_span other = step_index__span(ix, step);

		cut_hole(w, other.t0_ns, own->step, own_of(own));
		cut_other_step(w, step, &other, own_of(own));
	}
	if (place < own_place)
		cut_crowd(w, at.t0_ns);
	cut_hole(w, at.t0_ns, own->step, own_of(own));
	cut_own_step(w, own, &at);
}

void cut_visits(struct walk *w, size_t from, size_t to)
{
	const struct step_index *ix = &w->b->ix;
	const struct rec_sequence *q = &w->b->v.seqs[w->seq];
	size_t place = from == SIZE_MAX ? step_index__after(ix, q->engine, w->at_ns)
					: ix->facts[q->visits[from].step].place + 1;

	for (size_t i = from == SIZE_MAX ? 0 : from + 1; i <= to && i < q->n_visits; i++) {
		cut_visit(w, i, place);
		place = ix->facts[q->visits[i].step].place + 1;
	}
	/* steps out of order: a damaged recording, or two of its own at once */
	gap_add(w->g, MECH_OWN_DECODE, PROV_OBSERVED, less(w->end_ns, w->at_ns), NULL, NULL);
	w->at_ns = most(w->at_ns, w->end_ns);
}

/* ---- the end of the recording ---- */

/* A step may be under way: what it usually takes is its own. */
static void cut_tail(struct walk *w, uint32_t like, enum mechanism own)
{
	enum { HANG_NS = 1000000000 };	/* so long is odd, whatever is usual */
	uint64_t left = less(w->end_ns, w->at_ns), err_ns, own_ns;
	struct expected e;

	baseline__step(w->b->base, like, &e);
	own_ns = least(left, e.hole_ns + (own == MECH_OWN_PREFILL ? e.step_ns : e.decode_ns));
	err_ns = e.n_learnt ? e.err_ns + e.hole_err_ns : HANG_NS;
	w->g->usual_ns += own_ns;
	left -= own_ns;
	if (left > err_ns && lost_in(w->b, w->at_ns, w->end_ns)) {
		gap_add(w->g, MECH_LOST, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	if (left > err_ns)
		take_clues(w, w->end_ns, &left);
	if (left > err_ns) {
		gap_add(w->g, MECH_UNEXPLAINED, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	gap_add(w->g, own, PROV_OBSERVED, own_ns + left, NULL, NULL);
	w->at_ns = w->end_ns;
}

void cut_to_end(struct walk *w)
{
	const struct step_index *ix = &w->b->ix;
	const struct rec_sequence *q = &w->b->v.seqs[w->seq];
	const struct rec_visit *last = &q->visits[q->n_visits - 1];
	bool parked = q->n_preemptions && !q->preemptions[q->n_preemptions - 1].resumed_ns &&
		      q->preemptions[q->n_preemptions - 1].at_ns >= w->b->v.steps[last->step].t0_ns;
	size_t place = ix->facts[last->step].place + 1;

	if (parked)
		cut_parked(w, root_at(w->b, w->seq, w->end_ns), w->end_ns);
	w->skips = w->b->turns[q->engine].skipped;
	for (; place < ix->first[q->engine + 1] && w->at_ns < w->end_ns; place++) {
		struct step_span other = step_index__span(ix, ix->order[place]);

		cut_hole(w, other.t0_ns, last->step, own_of(last));
		cut_other_step(w, ix->order[place], &other, own_of(last));
	}
	cut_tail(w, last->step, own_of(last));
}
