/* SPDX-License-Identifier: Apache-2.0 */
/* Delivery: how long after the engine had a token its chunk was written. */
#include "model/summary.h"

/*
 * Tokens and chunks are matched by ordinal, never by nearest time: a front end that lags would look
 * fast. As many chunks as outputs (of steps; of tokens where drafts give a chunk each): the i-th is
 * the i-th. With fewer chunks, some hold several outputs, and which is not said. The i-th output of
 * n is then in a chunk not behind the i-th and, as all n are in the k chunks, not before number
 * i - (n - k), nor in one written before the engine had it. Where that leaves one chunk, it is
 * counted; where it leaves several, the output is left out.
 */

size_t request_delivery_max(const struct model_view *v, const struct rec_request *r)
{
	return r->n_seqs == 1 ? v->seqs[r->seqs[0]].n_out : 0;
}

/* A walk over the chunks that are tokens. */
struct cursor {
	size_t at, ordinal;
};

static bool next_chunk(const struct rec_request *r, struct cursor *c)
{
	size_t i = c->at + 1;

	while (i < r->n_chunks && !chunk_is_token(&r->chunks[i]))
		i++;
	if (i >= r->n_chunks)
		return false;
	*c = (struct cursor){ i, c->ordinal + 1 };
	return true;
}

static size_t first_chunk(const struct rec_request *r)
{
	size_t i = 0;

	while (i < r->n_chunks && !chunk_is_token(&r->chunks[i]))
		i++;
	return i;
}

static bool lost_meanwhile(const struct model_view *v, const struct rec_request *r)
{
	uint64_t t0 = request_first_ns(r), t1 = request_last_ns(r);

	for (size_t i = 0; i < v->n_lost; i++) {
		const struct rec_lost *l = &v->lost[i];

		if ((l->where == TL_LOST_RING || l->where == TL_LOST_SCRATCH) && l->since_ns <= t1 &&
		    l->until_ns >= t0)
			return true;
	}
	return false;
}

struct counts {
	size_t chunks;		/* that are tokens */
	size_t outputs;		/* of the engine that they hold */
	bool per_token;		/* an output is a token, not what a step gave */
};

static bool count(const struct rec_request *r, const struct rec_sequence *q, struct counts *ret)
{
	struct counts c = { 0 };
	bool finish_apart;

	for (size_t i = 0; i < r->n_chunks; i++)
		c.chunks += chunk_is_token(&r->chunks[i]);
	for (size_t i = 0; i < q->n_visits; i++)
		c.outputs += q->visits[i].n_out > 0;
	if (!c.chunks || !c.outputs)
		return false;
	c.per_token = c.chunks > c.outputs;
	if (c.per_token)
		c.outputs = q->n_out;
	/* The last output may be in the chunk that ends the answer, which has no text. */
	finish_apart = r->finish != TL_FINISH_UNKNOWN &&
		       !(r->chunks[r->n_chunks - 1].flags & TL_CHUNK_FINISH);
	if (c.outputs > c.chunks && finish_apart)
		c.outputs--;
	*ret = c;
	return c.chunks <= c.outputs;
}

size_t request_delivery(const struct model_view *v, const struct rec_request *r, uint64_t *ret)
{
	const struct rec_sequence *q = r->n_seqs == 1 ? &v->seqs[r->seqs[0]] : NULL;
	struct cursor lo, hi;
	struct counts c;
	size_t n = 0, i = 0;

	if (!q || r->n > 1 || r->joined_late || q->joined_late || !request_is_streamed(r) ||
	    !count(r, q, &c) || lost_meanwhile(v, r))
		return 0;
	lo = hi = (struct cursor){ first_chunk(r), 0 };
	for (size_t k = 0; k < q->n_visits; k++) {
		uint64_t had = v->steps[q->visits[k].step].t1_ns;
		size_t outputs = c.per_token ? q->visits[k].n_out : q->visits[k].n_out > 0;

		for (; outputs; outputs--, i++) {
			/* What an answer that was cut short still had is in no chunk. */
			if (i >= c.outputs || (i >= c.chunks && r->state != REQ_COMPLETE))
				return n;
			while (lo.ordinal + c.outputs - c.chunks < i || r->chunks[lo.at].ts_ns < had)
				if (!next_chunk(r, &lo))
					return n;
			while (hi.ordinal < i && next_chunk(r, &hi))
				;
			if (lo.ordinal == hi.ordinal)
				ret[n++] = r->chunks[lo.at].ts_ns - had;
		}
	}
	return n;
}
