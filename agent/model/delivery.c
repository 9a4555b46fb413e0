/* SPDX-License-Identifier: Apache-2.0 */
/* Delivery: how long after the engine had a token its chunk was written. */
#include "model/summary.h"

/*
 * Outputs and chunks are matched by ordinal, never by nearest time: a front end that lags would
 * look fast. With as many chunks as outputs (an output is what a step gave, or, where drafts leave
 * in a chunk each, a token) the i-th chunk holds the i-th output. With fewer, some chunks hold
 * several, and none says how many. What is sure: chunks are in the order of outputs, each holds at
 * least one, and none was written before the engine had what it holds. The earliest matching that
 * keeps to this is taken; walked from the end, an output is in the chunk before that of its
 * successor if that chunk was written after the engine had the output, else in the same.
 *
 * Checked against chunks that say their tokens (vLLM 0.32, 50 answers, 20 of them merged): 99.6 %
 * of 5,433 outputs were in the chunk taken, the others in a later one; nearest times: 93.6 %.
 */

size_t request_delivery_max(const struct model_view *v, const struct rec_request *r)
{
	return r->n_seqs == 1 ? v->seqs[r->seqs[0]].n_out : 0;
}

/* The last token chunk before number i; n_chunks: there is none. */
static size_t chunk_before(const struct rec_request *r, size_t i)
{
	while (i-- > 0)
		if (chunk_is_token(&r->chunks[i]))
			return i;
	return r->n_chunks;
}

static bool lost_meanwhile(const struct model_view *v, const struct rec_request *r)
{
	uint64_t t0 = request_first_ns(r), t1 = request_last_ns(r);

	for (size_t i = 0; i < v->n_lost; i++) {
		const struct rec_lost *l = &v->lost[i];

		if ((l->where == TL_LOST_RING || l->where == TL_LOST_SCRATCH) &&
		    l->since_ns <= t1 && l->until_ns >= t0)
			return true;
	}
	return false;
}

struct counts {
	size_t chunks;		/* that are tokens */
	size_t outputs;		/* of the engine that they hold */
	bool per_token;		/* an output is a token, not what a step gave */
};

static void count(const struct rec_request *r, const struct rec_sequence *q, struct counts *ret)
{
	struct counts c = { 0 };
	bool finish_apart = r->n_chunks && r->finish != TL_FINISH_UNKNOWN &&
			    !(r->chunks[r->n_chunks - 1].flags & TL_CHUNK_FINISH);

	for (size_t i = 0; i < r->n_chunks; i++)
		c.chunks += chunk_is_token(&r->chunks[i]);
	for (size_t i = 0; i < q->n_visits; i++)
		c.outputs += q->visits[i].n_out > 0;
	c.per_token = c.chunks > c.outputs;
	if (c.per_token)
		c.outputs = q->n_out;
	/* The last output may be in the chunk that ends the answer, which has no text. */
	if (c.outputs > c.chunks && finish_apart)
		c.outputs--;
	*ret = c;
}

/* A walk over outputs from the last to the first. */
struct outputs {
	const struct rec_sequence *q;
	size_t visit, left;	/* visits not yet begun; outputs left of the one at hand */
	bool per_token;
};

/* When the engine had the output before; 0: there is none. */
static uint64_t output_before(struct outputs *o, const struct model_view *v)
{
	while (!o->left && o->visit) {
		uint16_t n = o->q->visits[--o->visit].n_out;

		o->left = o->per_token ? n : n > 0;
	}
	if (!o->left)
		return 0;
	o->left--;
	return v->steps[o->q->visits[o->visit].step].t1_ns;
}

/* Outputs behind those that the last chunk can hold: left over by an abort, or without text. */
static uint64_t skip_rest(struct outputs *o, const struct model_view *v, struct counts *c,
			  uint64_t last_ns, size_t n)
{
	uint64_t had = output_before(o, v);

	for (; had && n > c->outputs; n--)
		had = output_before(o, v);
	for (; had && had > last_ns; c->outputs--)
		had = output_before(o, v);
	return had;
}

size_t request_delivery(const struct model_view *v, const struct rec_request *r, uint64_t *ret,
			bool *ret_exact)
{
	const struct rec_sequence *q = r->n_seqs == 1 ? &v->seqs[r->seqs[0]] : NULL;
	struct outputs o = { .q = q };
	struct counts c;
	size_t i, chunk, ordinal, n_steps = 0, n_known = 0;
	uint64_t had;

	*ret_exact = false;
	if (!q || r->n > 1 || r->joined_late || q->joined_late || !request_is_streamed(r) ||
	    lost_meanwhile(v, r))
		return 0;
	count(r, q, &c);
	if (!c.chunks || c.chunks > c.outputs)
		return 0;
	for (size_t k = 0; k < q->n_visits; k++)
		n_steps += q->visits[k].n_out > 0;
	o.visit = q->n_visits;
	o.per_token = c.per_token;
	chunk = chunk_before(r, r->n_chunks);
	had = skip_rest(&o, v, &c, chunk_ns(r, chunk), c.per_token ? q->n_out : n_steps);
	if (c.outputs < c.chunks)
		return 0;
	ordinal = c.chunks - 1;
	for (i = c.outputs; had && i-- > 0; had = output_before(&o, v)) {
		size_t before = i + 1 < c.outputs ? chunk_before(r, chunk) : r->n_chunks;

		if (before < r->n_chunks && chunk_ns(r, before) >= had) {
			chunk = before;
			ordinal--;
		}
		if (ordinal > i) /* a chunk before there was anything to put into it: not its own */
			return 0;
		ret[i] = chunk_ns(r, chunk) - had;
		n_known++;
	}
	if (n_known < c.outputs) /* a step that ended at no time: a damaged recording */
		return 0;
	*ret_exact = c.outputs == c.chunks && !v->steps[q->visits[0].step].inferred;
	return c.outputs;
}
