/* SPDX-License-Identifier: Apache-2.0 */
/* The time to the first token: read, front end, queue, its own prompt, the first delivery. */
#include "model/blame_priv.h"
#include "model/evidence.h"
#include "model/summary.h"

enum { TINY_NS = 20000,
       READ_NS = 2000000,	/* a request arrives within this, unless something is wrong */
       IDLE_NS = 5000000	/* and an idle engine begins within this */ };
enum { HANG_NS = 1000000000 };	/* no prompt is parsed for so long, and still not done */
enum { MAX_BEFORE_NS = 60000000000ull };	/* a claim's clock began at most so long before */

/* ---- before its first step ---- */

/* Nothing ran: an engine that sleeps needs a moment to begin. */
static void cut_idle(struct walk *w, uint32_t engine, uint64_t until_ns)
{
	uint64_t left;
	struct clue_list l;

	until_ns = least(until_ns, w->end_ns);
	left = less(until_ns, w->at_ns);
	if (!left)
		return;
	if (left > IDLE_NS && lost_in(w->b, w->at_ns, until_ns)) {
		gap_add(w->g, MECH_LOST, PROV_NONE, left, NULL, NULL);
		left = 0;
	}
	if (left > TINY_NS) {
		clues__engine(w->b->clues, engine, w->at_ns, until_ns, &l);
		gap_add_clues(w->g, &l, &left);
	}
	gap_add(w->g, left > IDLE_NS ? MECH_UNEXPLAINED : MECH_OWN_FRONT,
		left > IDLE_NS ? PROV_NONE : PROV_OBSERVED, left, NULL, NULL);
	w->at_ns = until_ns;
}

/* That a step is under way is nobody's doing; that it is twice as long for prompts is theirs. */
static void add_step_wait(struct walk *w, uint32_t step, uint64_t ns, const struct expected *e)
{
	struct step_span at = step_index__span(&w->b->ix, step);

	if (w->b->ix.facts[step].prefill && (!e->n_learnt || 2 * e->decode_ns <= at.t1_ns - at.t0_ns))
		gap_add_members(w->b, w->g, MECH_STEP_WAIT, ns, step, w->seq);
	else
		gap_add(w->g, MECH_STEP_WAIT, PROV_OBSERVED, ns, NULL, NULL);
}

/* A step that was under way, or planned, when it came. What made it longer than usual, if evidence says,
 * is the reason for that much of the wait. */
static void cut_planned(struct walk *w, uint32_t engine, uint32_t step)
{
	struct step_span at = step_index__span(&w->b->ix, step);
	uint64_t until = least(at.t1_ns, w->end_ns), wait = less(until, w->at_ns), excess, left;
	struct clue_list l;
	struct expected e;

	baseline__step(w->b->base, step, &e);
	excess = e.n_learnt ? least(wait, less(at.t1_ns - at.t0_ns, e.step_ns)) : 0;
	left = excess;
	if (left > e.err_ns && !lost_in(w->b, w->at_ns, until)) {
		clues__engine(w->b->clues, engine, w->at_ns, until, &l);
		gap_add_clues(w->g, &l, &left);
	}
	if (left > e.err_ns) {
		clues__step(w->b->clues, step, e.step_ns, &l);
		gap_add_clues(w->g, &l, &left);
	}
	add_step_wait(w, step, wait - excess + left, &e);
	w->at_ns = most(w->at_ns, until);
}

/* From when the engine has it to its first step: the step under way, then the steps without it. */
static int cut_wait(struct walk *w)
{
	struct blame *b = w->b;
	const struct rec_sequence *q = &b->v.seqs[w->seq];
	size_t place = step_index__after(&b->ix, q->engine, w->at_ns);
	size_t own = b->ix.facts[q->visits[0].step].place;
	struct step_span at, first = step_index__span(&b->ix, q->visits[0].step);
	uint64_t last_end;

	if (place >= own) {
		cut_idle(w, q->engine, first.t0_ns);
		return 0;
	}
	at = step_index__span(&b->ix, b->ix.order[place]);
	if (at.t0_ns < w->at_ns) {
		for (uint32_t n = b->turns[q->engine].ahead + 1; n && place < own; n--)
			cut_planned(w, q->engine, b->ix.order[place++]);
	} else {
		cut_idle(w, q->engine, at.t0_ns);
	}
	/* new ones are taken in before a step: who comes while it is planned is behind nobody */
	if (place < own && step_had_room(b, b->ix.order[place], place + 1 == own))
		cut_planned(w, q->engine, b->ix.order[place++]);
	last_end = least(first.hole_ns, w->end_ns);
	if (place < own && last_end > w->at_ns) {
		if (lost_in(b, w->at_ns, last_end)) {
			gap_add(w->g, MECH_LOST, PROV_NONE, last_end - w->at_ns, NULL, NULL);
			w->at_ns = last_end;
		} else if (cut_queue(w, q->engine,
				     q->open_ns ? most(w->at_ns, least(q->open_ns, last_end))
						: last_end)) {
			return -1;
		}
		/* from then on it may not have waited at all: nobody is to blame */
		gap_add(w->g, MECH_UNEXPLAINED, PROV_NONE, less(last_end, w->at_ns), NULL, NULL);
		w->at_ns = last_end;
	}
	cut_hole(w, first.t0_ns, q->visits[0].step, MECH_OWN_PREFILL);
	return 0;
}

/* The front end: what evidence says of it, the rest is its own, up to `max`. */
static void cut_front(struct walk *w, uint64_t until_ns, uint64_t max_ns)
{
	uint32_t engine = w->b->v.requests[w->g->request].engine;
	uint64_t left;
	struct clue_list l;
	bool lost;

	until_ns = least(until_ns, w->end_ns);
	left = less(until_ns, w->at_ns);
	if (!left)
		return;
	lost = lost_in(w->b, w->at_ns, until_ns);
	if (left > TINY_NS && !lost) {
		clues__front(w->b->clues, engine, w->at_ns, until_ns, w->g->request, &l);
		gap_add_clues(w->g, &l, &left);
	}
	if (left > max_ns)
		gap_add(w->g, lost ? MECH_LOST : MECH_UNEXPLAINED, PROV_NONE, left, NULL, NULL);
	else
		gap_add(w->g, MECH_OWN_FRONT, PROV_OBSERVED, left, NULL, NULL);
	w->at_ns = until_ns;
}

/* ---- the whole ---- */

/* When a gateway says that its own clock began, if that is before the first byte came here. */
static uint64_t claimed_begin(const struct blame *b, const struct rec_request *r, uint64_t first_ns)
{
	const struct evidence *e = b->v.evidence;
	size_t lo = 0, hi = e ? e->claims.n : 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (e->claims.v[mid].req < r->req)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; e && lo < e->claims.n && e->claims.v[lo].req == r->req; lo++) {
		const struct tl_claim *c = &e->claims.v[lo];

		if (c->metric == TL_CLAIM_TTFT && c->hdr.ts_ns && c->hdr.ts_ns < first_ns &&
		    first_ns - c->hdr.ts_ns < MAX_BEFORE_NS)
			return c->hdr.ts_ns;
	}
	return first_ns;
}

static int cut_joined(struct walk *w, const struct rec_request *r, size_t visit)
{
	if (r->at_ns[P_QUEUED] > r->at_ns[P_SUBMIT])
		cut_front(w, r->at_ns[P_QUEUED], UINT64_MAX);
	if (cut_wait(w))
		return -1;
	w->end_ns = least(w->end_ns, w->b->v.steps[w->b->v.seqs[w->seq].visits[visit].step].t1_ns);
	cut_visits(w, SIZE_MAX, visit);
	return 0;
}

static uint64_t own_ns(const struct gap *g)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < g->n_parts; i++)
		if (mechanism_is_own((enum mechanism)g->parts[i].mechanism))
			ns += g->parts[i].ns;
	return ns;
}

/* From the end of the step that gave it to the write of the first token, and on to the client. */
static void cut_way_out(struct walk *w, const struct answer *a, uint64_t made_ns,
			uint64_t written_ns)
{
	struct gap *g = w->g;
	const struct output first = { .made_ns = made_ns, .written_ns = written_ns };
	struct answer own = { .seq = g->seq,
			      .delivery = w->b->delivery[w->b->v.requests[g->request].engine] };

	if (!g->seq)
		gap_add(g, MECH_UNEXPLAINED, PROV_NONE, less(written_ns, w->at_ns), NULL, NULL);
	else if (a->n && a->seq == g->seq && w->b->outputs[0].made_ns == made_ns)
		cut_delivery(w->b, g, a, &w->b->outputs[0], w->at_ns, written_ns, a->delivery.ns);
	else
		cut_delivery(w->b, g, &own, &first, w->at_ns, written_ns, own.delivery.ns);
	cut_client(w->b, g, most(w->at_ns, written_ns), g->t1_ns, a->client_ns,
		   a->n > 1 && w->b->outputs[1].client_ns == w->b->outputs[0].client_ns, 0);
}

bool blame__ttft(struct blame *b, uint32_t request, struct gap *ret)
{
	const struct rec_request *r = &b->v.requests[request];
	uint64_t first = r->at_ns[P_REQ_FIRST_BYTE], written = r->at_ns[P_FIRST_TOKEN_WIRE], t0,
		 client;
	struct walk w = { .b = b, .g = ret };
	struct answer a;
	uint64_t made = 0;
	uint32_t seq;
	size_t visit = 0;

	if (!first || written < first || r->joined_late || answer_of(b, request, &a))
		return false;
	client = a.n && a.side == GAP_CLIENT ? b->outputs[0].client_ns : 0;
	t0 = claimed_begin(b, r, first);
	seq = prompt_seq(b, r, &visit);
	gap_begin(ret, request, seq == UINT32_MAX ? 0 : seq + 1, client ? GAP_CLIENT : GAP_WIRE, 0,
		  t0, most(written, client));
	gap_add(ret, MECH_BEFORE_HOST, PROV_REPORTED, first - t0, NULL, NULL);
	w.at_ns = first;
	w.end_ns = written;
	cut_front(&w, r->at_ns[P_REQ_LAST_BYTE], READ_NS);
	cut_front(&w, handed_over(r), UINT64_MAX);
	if (seq != UINT32_MAX) {
		w.seq = seq;
		if (cut_joined(&w, r, visit))
			return false;
		made = b->v.steps[b->v.seqs[seq].visits[visit].step].t1_ns;
	}
	cut_way_out(&w, &a, made, written);
	ret->usual_ns = own_ns(ret);
	gap_end(b, ret, seq == UINT32_MAX ? r->engine : b->v.seqs[seq].engine);
	return true;
}

/* ---- no first token yet ---- */

/* The engine that would compute a request of this process: itself, or the only other one of its server with steps. */
static uint32_t computes_for(const struct blame *b, uint32_t engine)
{
	const struct tl_engine *e = &b->v.engines[engine].e, *other;
	uint32_t server = e->server ? e->server : e->hdr.tgid, found = engine;

	if (b->ix.first[engine] < b->ix.first[engine + 1])
		return engine;
	for (uint32_t i = 0; i < b->v.n_engines; i++) {
		other = &b->v.engines[i].e;
		if (b->ix.first[i] == b->ix.first[i + 1] || (other->server ? other->server : other->hdr.tgid) != server)
			continue;
		if (found != engine)
			return engine;	/* of several nobody knows which */
		found = i;
	}
	return found;
}

/* A step under way takes as long as usual; behind the last one the queue stands as it did. */
static uint64_t queue_end(const struct walk *w, uint32_t engine)
{
	const struct step_index *ix = &w->b->ix;
	uint32_t last = ix->order[ix->first[engine + 1] - 1];
	struct expected e;

	baseline__step(w->b->base, last, &e);
	return least(w->b->v.steps[last].t1_ns + e.hole_ns + e.step_ns + e.err_ns, w->end_ns);
}

/* Steps that ran without it: as of one that got into a step in the end. Then evidence, then
 * nothing is known. */
static int cut_not_begun(struct walk *w, uint32_t engine)
{
	const struct step_index *ix = &w->b->ix;
	size_t place = step_index__after(ix, engine, w->at_ns), end = ix->first[engine + 1];
	uint32_t n = w->b->turns[engine].ahead + 1;
	uint64_t left;
	struct clue_list l;

	if (place < end && step_index__span(ix, ix->order[place]).t0_ns >= w->at_ns)
		cut_idle(w, engine, step_index__span(ix, ix->order[place]).t0_ns);
	else
		for (; n && place < end; n--)
			cut_planned(w, engine, ix->order[place++]);
	if (place < end && step_had_room(w->b, ix->order[place], false))
		cut_planned(w, engine, ix->order[place++]);
	if (place < end && !lost_in(w->b, w->at_ns, w->end_ns) &&
	    cut_queue(w, engine, queue_end(w, engine)))
		return -1;
	left = less(w->end_ns, w->at_ns);
	clues__engine(w->b->clues, engine, w->at_ns, w->end_ns, &l);
	gap_add_clues(w->g, &l, &left);
	clues__front(w->b->clues, w->b->v.requests[w->g->request].engine, w->at_ns, w->end_ns, w->g->request, &l);
	gap_add_clues(w->g, &l, &left);
	gap_add(w->g, left > IDLE_NS ? MECH_UNEXPLAINED : MECH_OWN_FRONT,
		left > IDLE_NS ? PROV_NONE : PROV_OBSERVED, left, NULL, NULL);
	w->at_ns = w->end_ns;
	return 0;
}

int cut_open_ttft(struct blame *b, const struct rec_request *r, struct gap *g)
{
	struct walk w = { .b = b, .g = g, .seq = UINT32_MAX, .at_ns = g->t0_ns, .end_ns = g->t1_ns };
	const struct rec_sequence *q = r->n_seqs == 1 ? &b->v.seqs[r->seqs[0]] : NULL;
	uint64_t read = r->at_ns[P_REQ_LAST_BYTE], handed = handed_over(r);

	cut_front(&w, read ? read : g->t1_ns, READ_NS);
	cut_front(&w, handed ? handed : g->t1_ns, handed ? UINT64_MAX : HANG_NS);
	if (q && q->n_visits) {
		w.seq = r->seqs[0];
		g->seq = w.seq + 1;
		if (!cut_wait(&w)) {
			w.end_ns = least(b->v.steps[q->visits[q->n_visits - 1].step].t1_ns, g->t1_ns);
			cut_visits(&w, SIZE_MAX, q->n_visits - 1);
		}
		w.end_ns = g->t1_ns;
		cut_to_end(&w);
	} else if (cut_not_begun(&w, q ? q->engine : computes_for(b, r->engine))) {
		return -1;
	}
	g->usual_ns = own_ns(g);
	return 0;
}
