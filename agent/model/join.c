/* SPDX-License-Identifier: Apache-2.0 */
/* Which sequence of the engine belongs to which request of the wire. */
#include "model/leads.h"
#include "model/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * The strongest evidence is the engine's own number of a task, seen on both sides; it arrives while
 * events come and is handled there. What is left is paired here, by falling trust:
 *
 * COUNTS  prompt and output tokens that the response reports equal those seen in steps, the times
 *         fit (the sequence lies inside the request), and no other pairing does.
 * ORDER   several pairings fit: that whose first and last tokens leave the engine nearest before
 *         they leave the socket. `rivals` says how many others there were.
 *
 * A sequence that fits no request stays alone: nothing is ever guessed without saying so.
 */

enum {
	MAX_DELIVERY_NS = 2000000000,	/* a token leaves the socket within 2 s, or counts decide nothing */
	MAX_TRIED = 1 << 23,	/* requests with sequences, in all: half a second ... */
	MIN_TRIED = 64,		/* ... and of one request at least so many of each kind */
};

int join_request(struct model *m, uint32_t req_index, uint32_t seq_index, enum join_method method,
		 unsigned confidence_pct, unsigned rivals)
{
	struct rec_request *r = &m->requests[req_index];
	struct rec_sequence *q = &m->seqs[seq_index];

	if (GROW(r->seqs, r->cap_seqs, r->n_seqs))
		return -ENOMEM;
	r->seqs[r->n_seqs++] = seq_index;
	q->req = req_index + 1;
	q->join = method;
	q->confidence_pct = confidence_pct;
	q->rivals = rivals;
	return 0;
}

/* First and last step of a sequence that yielded output; 0: none. */
static void output_span(const struct model *m, const struct rec_sequence *q, uint64_t *ret_first,
			uint64_t *ret_last)
{
	*ret_first = *ret_last = 0;
	for (size_t i = 0; i < q->n_visits; i++)
		if (q->visits[i].n_out) {
			*ret_first = m->steps[q->visits[i].step].t1_ns;
			break;
		}
	for (size_t i = q->n_visits; i-- > 0;)
		if (q->visits[i].n_out) {
			*ret_last = m->steps[q->visits[i].step].t1_ns;
			break;
		}
}

static uint64_t request_end(const struct rec_request *r)
{
	uint64_t end = r->at_ns[P_DONE];

	if (r->at_ns[P_CLOSE] && (!end || r->at_ns[P_CLOSE] < end))
		end = r->at_ns[P_CLOSE];
	return end ? end : UINT64_MAX;
}

static uint64_t request_start(const struct rec_request *r)
{
	return r->at_ns[P_REQ_LAST_BYTE] ? r->at_ns[P_REQ_LAST_BYTE] : r->at_ns[P_REQ_FIRST_BYTE];
}

/* The answer came to its proper end, whether or not its begin was seen. */
static bool is_whole(const struct rec_request *r)
{
	return r->how_ended == TL_END_COMPLETE && r->state != REQ_ERROR;
}

static bool counts_fit(const struct rec_request *r, const struct rec_sequence *q)
{
	bool whole = is_whole(r);

	if (r->max_tokens >= 0 && q->n_out > (uint32_t)r->max_tokens)
		return false;
	if (r->output.prov) {
		/* Behind a prefill all output was seen; without one, the first token was not. */
		if (whole && (!q->joined_late || q->n_prefill) ? q->n_out != r->output.n :
		    q->n_out + (whole ? 1 : 0) > r->output.n)
			return false;
	}
	if (r->prompt.prov && r->cached.prov) {
		uint32_t computed = r->prompt.n - r->cached.n;

		if (whole && !q->joined_late ? q->n_prefill != computed : q->n_prefill > computed)
			return false;
	}
	return true;
}

/* A server may read requests in one process and compute them in another. */
static bool same_server(const struct model *m, uint32_t a, uint32_t b)
{
	const struct tl_engine *x = &m->engines[a].e, *y = &m->engines[b].e;

	/* Ollama's front is a server of its own kind: what it reads, its runner reads again. */
	return a == b || (x->server && x->server == y->server && x->engine == y->engine);
}

/* How far the sequence's first and last output lie before the wire's, ns; UINT64_MAX: not possible. */
static uint64_t misfit(const struct model *m, const struct rec_request *r, const struct rec_sequence *q)
{
	uint64_t first, last, sum = 0, end = request_end(r);
	uint64_t wire_first = r->at_ns[P_FIRST_TOKEN_WIRE], wire_last = r->at_ns[P_LAST_TOKEN_WIRE];

	if (!same_server(m, q->engine, r->engine) || q->begin_ns > end || !q->n_visits)
		return UINT64_MAX;
	/* The start on the slot comes after the request was read, if both were seen. */
	if (!q->joined_late && request_start(r) && q->begin_ns < request_start(r))
		return UINT64_MAX;
	if (q->joined_late && !r->joined_late && request_start(r) &&
	    m->steps[q->visits[0].step].t0_ns < request_start(r))
		return UINT64_MAX;
	if (!counts_fit(r, q))
		return UINT64_MAX;
	output_span(m, q, &first, &last);
	if (wire_first && !q->joined_late) {
		if (!first || first > wire_first || wire_first - first > MAX_DELIVERY_NS)
			return UINT64_MAX;
		sum += wire_first - first;
	}
	if (!wire_last)
		wire_last = r->state == REQ_ABORTED ? 0 : end == UINT64_MAX ? 0 : end;
	if (wire_last) {
		/* An abort may cut either side short; a whole answer ends after its last step, though
		 * not its last text: the token that ends it may have none. */
		uint64_t apart = last > wire_last ? last - wire_last : wire_last - last;

		if (is_whole(r) && (!last || last > end))
			return UINT64_MAX;
		/* The engine stops after the step that it is in, which may be a long prefill. */
		if (apart > MAX_DELIVERY_NS && r->state != REQ_ABORTED)
			return UINT64_MAX;
		sum += apart;
	}
	return sum;
}

struct pair {
	uint64_t misfit_ns;
	uint32_t req, seq;
	uint32_t rival;		/* index + 1 of the next best pair with one of the two, 0: none */
};

static int by_misfit(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	if (x->misfit_ns != y->misfit_ns)
		return x->misfit_ns < y->misfit_ns ? -1 : 1;
	if (x->req != y->req)
		return x->req < y->req ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* Did a prompt of this request go to the engine, as far as the wire tells? */
static bool wants_sequence(const struct rec_request *r)
{
	return !r->n_seqs && r->state != REQ_ERROR && (r->joined_late || r->api != TL_API_OTHER);
}

struct pairs {
	struct pair *p;
	size_t n, cap;
	uint16_t *of_req, *of_seq;	/* how many pairs each is in; saturating */
};

/* Sequences without a request by their begin: those whose start was seen, and the others. */
struct loose {
	struct loose_seq { uint64_t begin_ns; uint32_t seq; } *timed, *late;
	size_t n_timed, n_late;
};

static int by_begin(const void *a, const void *b)
{
	const struct loose_seq *x = a, *y = b;

	if (x->begin_ns != y->begin_ns)
		return x->begin_ns < y->begin_ns ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static int find_loose(const struct model *m, struct loose *l)
{
	l->timed = calloc(m->v.n_seqs, sizeof(*l->timed));
	l->late = calloc(m->v.n_seqs, sizeof(*l->late));
	if (!l->timed || !l->late)
		return -ENOMEM;
	for (uint32_t j = 0; j < m->v.n_seqs; j++) {
		const struct rec_sequence *q = &m->seqs[j];
		struct loose_seq one = { q->begin_ns, j };

		if (q->req || !q->n_visits)
			continue;
		if (q->joined_late)
			l->late[l->n_late++] = one;
		else
			l->timed[l->n_timed++] = one;
	}
	if (l->n_timed)
		qsort(l->timed, l->n_timed, sizeof(*l->timed), by_begin);
	if (l->n_late)
		qsort(l->late, l->n_late, sizeof(*l->late), by_begin);
	return 0;
}

static int add_pair(struct model *m, struct pairs *ps, uint32_t req, uint32_t seq)
{
	uint64_t cost = misfit(m, &m->requests[req], &m->seqs[seq]);

	if (cost == UINT64_MAX)
		return 0;
	if (GROW(ps->p, ps->cap, ps->n))
		return -ENOMEM;
	ps->p[ps->n++] = (struct pair){ .misfit_ns = cost, .req = req, .seq = seq };
	ps->of_req[req] += ps->of_req[req] < UINT16_MAX;
	ps->of_seq[seq] += ps->of_seq[seq] < UINT16_MAX;
	return 0;
}

/* The first of `n` that begins at `ns` or later. */
static size_t first_from(const struct loose_seq *v, size_t n, uint64_t ns)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (v[mid].begin_ns < ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Looks at up to `max` sequences of each kind that may be of this request: those whose start was seen from
 * the request's start on, the others back from its end. */
static int collect_of(struct model *m, struct pairs *ps, const struct loose *l, uint32_t req, size_t max)
{
	const struct rec_request *r = &m->requests[req];
	uint64_t end = request_end(r);
	size_t first = first_from(l->timed, l->n_timed, request_start(r));
	size_t last = end == UINT64_MAX ? l->n_timed : first_from(l->timed, l->n_timed, end + 1);
	size_t late = end == UINT64_MAX ? l->n_late : first_from(l->late, l->n_late, end + 1);
	size_t n = last > first ? last - first : 0, n_late = late < max ? late : max;
	int err = 0;

	m->v.n_joins_not_tried += (n > max ? n - max : 0) + late - n_late;
	for (size_t k = 0; k < n && k < max && !err; k++)
		err = add_pair(m, ps, req, l->timed[first + k].seq);
	for (size_t k = late - n_late; k < late && !err; k++)
		err = add_pair(m, ps, req, l->late[k].seq);
	return err;
}

/* Each request with each sequence is too much where thousands are apart: only with those nearest in time. */
static int collect(struct model *m, struct pairs *ps)
{
	struct loose l = { 0 };
	size_t n_wanting = 0, max;
	int err = find_loose(m, &l);

	for (size_t i = 0; i < m->v.n_requests; i++)
		n_wanting += wants_sequence(&m->requests[i]);
	max = n_wanting ? MAX_TRIED / n_wanting : 0;
	max = max < MIN_TRIED ? MIN_TRIED : max;
	for (uint32_t i = 0; i < m->v.n_requests && !err; i++)
		if (wants_sequence(&m->requests[i]))
			err = collect_of(m, ps, &l, i, max);
	free(l.timed);
	free(l.late);
	return err;
}

static unsigned rivals_of(const struct pairs *ps, const struct pair *p)
{
	unsigned a = ps->of_req[p->req], b = ps->of_seq[p->seq];

	return (a > b ? a : b) - 1;
}

/* The next best pairing of either side of each. */
static int find_rivals(const struct model *m, struct pairs *ps)
{
	uint32_t *of_req = calloc(m->v.n_requests, sizeof(*of_req));
	uint32_t *of_seq = calloc(m->v.n_seqs, sizeof(*of_seq));
	bool ok = of_req && of_seq;

	for (size_t i = ps->n; i-- > 0 && ok;) {
		struct pair *p = &ps->p[i];
		uint32_t a = of_req[p->req], b = of_seq[p->seq];

		p->rival = !a || (b && b < a) ? b : a;
		of_req[p->req] = of_seq[p->seq] = i + 1;
	}
	free(of_req);
	free(of_seq);
	return ok ? 0 : -ENOMEM;
}

/* Best pairs first. The confidence of a contested one falls with the rivals' nearness. */
static int assign(struct model *m, struct pairs *ps)
{
	int err;

	if (!ps->n)
		return 0;
	qsort(ps->p, ps->n, sizeof(*ps->p), by_misfit);
	err = find_rivals(m, ps);
	for (size_t i = 0; i < ps->n && !err; i++) {
		const struct pair *p = &ps->p[i];
		unsigned rivals = rivals_of(ps, p), confidence = 99;

		if (m->requests[p->req].n_seqs || m->seqs[p->seq].req)
			continue;
		if (rivals && p->rival)	/* equal is a coin toss */
			confidence = 95 - 45.0 * (p->misfit_ns + 1) / (ps->p[p->rival - 1].misfit_ns + 1);
		err = join_request(m, p->req, p->seq, rivals ? JOIN_ORDER : JOIN_COUNTS, confidence,
				   rivals);
	}
	return err;
}

int join_rest(struct model *m)
{
	struct pairs ps = { 0 };
	int err = -ENOMEM;

	if (!m->v.n_requests || !m->v.n_seqs)
		return 0;
	ps.of_req = calloc(m->v.n_requests, sizeof(*ps.of_req));
	ps.of_seq = calloc(m->v.n_seqs, sizeof(*ps.of_seq));
	if (!ps.of_req || !ps.of_seq)
		goto out;
	err = collect(m, &ps);
	if (!err)
		err = assign(m, &ps);
out:
	free(ps.p);
	free(ps.of_req);
	free(ps.of_seq);
	return err;
}

static void first_point(struct rec_request *r, enum point p, uint64_t ns)
{
	if (!ns || (r->at_ns[p] && r->at_ns[p] <= ns))
		return;
	r->at_ns[p] = ns;
	r->prov[p] = PROV_OBSERVED;
}

static void reported_point(struct rec_request *r, enum point p, uint64_t ns)
{
	if (r->at_ns[p] && r->at_ns[p] <= ns)
		return;
	r->at_ns[p] = ns;
	r->prov[p] = PROV_REPORTED;
}

/* In those that ended before the engine took it on it was not, whatever was inferred of them. */
static const struct rec_step *first_step(const struct model *m, const struct rec_sequence *q)
{
	size_t i = 0;

	while (i + 1 < q->n_visits && m->steps[q->visits[i].step].t1_ns <= q->scheduled_ns)
		i++;
	return &m->steps[q->visits[i].step];
}

/* By the engine's own account. */
static void points_reported(struct rec_request *r, const struct rec_sequence *q)
{
	if (q->queued_ns)
		reported_point(r, P_QUEUED, q->queued_ns);
	if (q->scheduled_ns)
		reported_point(r, P_SCHEDULED, q->scheduled_ns);
}

/* Its queue and its prefill are those of one of its sequences: model/leads.h. */
static void points_of_lead(const struct model *m, struct rec_request *r, const struct rec_sequence *q)
{
	const struct rec_step *st = first_step(m, q);
	bool later = q->scheduled_ns > st->t0_ns && q->scheduled_ns < st->t1_ns;
	uint64_t first, last;

	output_span(m, q, &first, &last);
	points_reported(r, q);
	/* Where only the end of a step is seen, its begin may be that of what came before it. */
	first_point(r, P_PREFILL_START, later ? q->scheduled_ns : st->t0_ns);
	if (!r->joined_late || r->at_ns[P_REQ_FIRST_BYTE])
		first_point(r, P_FIRST_TOKEN_ENGINE, first);
}

static void points_of_sequence(const struct model *m, struct rec_request *r, const struct rec_sequence *q)
{
	uint64_t first, last;

	output_span(m, q, &first, &last);
	/* From process to process: the sequence begins when it is handed over. */
	if (q->engine != r->engine && !q->joined_late && !r->joined_late)
		first_point(r, P_SUBMIT, q->begin_ns);
	if (!q->cut_by_loss && last > r->at_ns[P_LAST_TOKEN_ENGINE]) {
		r->at_ns[P_LAST_TOKEN_ENGINE] = last;
		r->prov[P_LAST_TOKEN_ENGINE] = PROV_OBSERVED;
	}
}

/* Where nobody says how long the prompt was, sequences from their begin on do. Answers to one prompt have the same
 * one; with several prompts they add up, each as often as it is answered. */
static void prompt_of_sequences(const struct model *m, struct rec_request *r)
{
	uint32_t asked = r->n_seqs == 1 ? 1 : r->n_asked, most = 0, most_cached = 0;
	uint64_t prompt = 0, cached = 0;

	for (size_t i = 0; i < r->n_seqs; i++) {
		const struct rec_sequence *q = &m->seqs[r->seqs[i]];
		uint32_t n = q->n_prefill + (q->kept > 0 ? (uint32_t)q->kept : 0);

		if (q->kept < 0 || (!q->n_out && r->n_seqs > 1))
			return;
		prompt += n;
		cached += (uint32_t)q->kept;
		most_cached = n > most || (n == most && (uint32_t)q->kept < most_cached) ? (uint32_t)q->kept : most_cached;
		most = n > most ? n : most;
	}
	if (!asked || r->n_seqs % asked)
		return;		/* how many it asked for was not seen, or not all of them */
	if (r->n_seqs == asked) {
		prompt = most;
		cached = most_cached;
	} else {
		prompt /= asked;
		cached /= asked;
	}
	if (!r->prompt.prov)
		r->prompt = (struct rec_count){ (uint32_t)prompt, PROV_OBSERVED };
	if (!r->cached.prov)
		r->cached = (struct rec_count){ (uint32_t)cached, PROV_OBSERVED };
}

/* What the response did not say, the steps do. */
static void counts_of_sequences(const struct model *m, struct rec_request *r)
{
	bool whole = r->n_seqs > 0;
	uint32_t out = 0;

	for (size_t i = 0; i < r->n_seqs; i++) {
		const struct rec_sequence *q = &m->seqs[r->seqs[i]];

		out += q->n_out;
		whole &= !q->joined_late && !q->cut_by_loss;
	}
	if (!whole || !out)
		return;
	/* An embedding has rows of output, for any of its tokens, and none of them is a token. */
	if (!r->output.prov && r->api != TL_API_EMBEDDINGS)
		r->output = (struct rec_count){ out, PROV_OBSERVED };
	prompt_of_sequences(m, r);
}

void join_points(struct model *m)
{
	struct model_view v;

	model__view(m, &v);
	for (size_t i = 0; i < m->v.n_requests; i++) {
		struct rec_request *r = &m->requests[i];
		struct leads l;

		leads_of(&v, r, &l);
		for (size_t k = 0; k < r->n_seqs; k++) {
			points_of_sequence(m, r, &m->seqs[r->seqs[k]]);
			if (l.first == UINT32_MAX)
				points_reported(r, &m->seqs[r->seqs[k]]);
		}
		if (l.first != UINT32_MAX)
			points_of_lead(m, r, &m->seqs[l.first]);
		counts_of_sequences(m, r);
	}
}
