/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of one request: differences of its measurement points (doc/metrics.md). */
#include "model/summary.h"

const char *const len_class_names[N_LEN_CLASSES] = {
	"<=16", "<=128", "<=1024", "<=8192", ">8192", "unknown",
};

int len_class(const struct rec_count *tokens)
{
	static const uint32_t upto[] = { 16, 128, 1024, 8192 };
	int c = 0;

	if (tokens->prov == PROV_NONE)
		return N_LEN_CLASSES - 1;
	while (c < 4 && tokens->n > upto[c])
		c++;
	return c;
}

const char *const prefix_class_names[N_PREFIX_CLASSES] = { "warm", "cold", "unknown" };

enum prefix_class prefix_class(const struct rec_request *r)
{
	if (r->cached.prov == PROV_NONE || (r->cached.n && r->prompt.prov == PROV_NONE))
		return PREFIX_UNKNOWN;
	/* a template's few tokens are nearly always cached, and say nothing */
	return r->cached.n && 2ull * r->cached.n >= r->prompt.n ? PREFIX_WARM : PREFIX_COLD;
}

/* Of one that was there before we came nobody says how long its prompt is, nor how much output it had: what an adapter
 * counts of it began with us, and what it computes again has no known end. */
bool sequence_knows_lost(const struct rec_sequence *q)
{
	bool again = false;

	if (!q->joined_late)
		return true;
	for (size_t i = 0; i < q->n_visits; i++) {
		again |= q->visits[i].again;
		if (q->visits[i].again && q->visits[i].guess)
			return false;
	}
	return again;
}

uint32_t request_prompt_unseen(const struct model_view *v, const struct rec_request *r)
{
	const struct rec_sequence *q = r->n_seqs == 1 ? &v->seqs[r->seqs[0]] : NULL;
	uint64_t seen;
	bool guess = false;

	if (!q || q->joined_late || q->cut_by_loss || !q->n_out || r->prompt.prov == PROV_NONE)
		return 0;
	for (size_t i = 0; i < q->n_visits; i++)
		guess |= q->visits[i].guess && q->visits[i].phase == TL_PREFILL && !q->visits[i].again;
	seen = (uint64_t)q->n_prefill + (r->cached.prov != PROV_NONE ? r->cached.n : q->kept > 0 ? (uint32_t)q->kept : 0);
	return guess && r->prompt.n > seen ? (uint32_t)(r->prompt.n - seen) : 0;
}

bool chunk_is_token(const struct rec_chunk *c)
{
	return flags_may_be_token(c->flags);
}

bool request_is_streamed(const struct rec_request *r)
{
	if (r->body == TL_BODY_SSE || r->body == TL_BODY_JSONL)
		return true;
	return r->body != TL_BODY_JSON && (r->stream == 1 || r->n_chunks > 0);
}

uint64_t request_first_ns(const struct rec_request *r)
{
	uint64_t first = r->at_ns[P_REQ_FIRST_BYTE];

	if (first)
		return first;
	/* a connection may be far older than the request */
	for (int p = P_REQ_FIRST_BYTE; p < N_POINTS; p++)
		if (r->at_ns[p] && (!first || r->at_ns[p] < first))
			first = r->at_ns[p];
	if (r->n_chunks && (!first || chunk_ns(r, 0) < first))
		first = chunk_ns(r, 0);
	return first;
}

uint64_t request_last_ns(const struct rec_request *r)
{
	uint64_t last = r->at_ns[P_DONE];

	if (last)
		return last;
	for (int p = P_REQ_FIRST_BYTE; p < N_POINTS; p++)
		if (r->at_ns[p] > last)
			last = r->at_ns[p];
	if (r->n_chunks && chunk_ns(r, r->n_chunks - 1) > last)
		last = chunk_ns(r, r->n_chunks - 1);
	return last;
}

/* -1 when one is unknown, or when they fall the wrong way round: then one of them is another's. */
static int64_t between(const struct rec_request *r, enum point from, enum point to)
{
	uint64_t a = r->at_ns[from], b = r->at_ns[to];

	return a && b && b >= a ? (int64_t)(b - a) : -1;
}

static uint8_t weaker(uint8_t a, uint8_t b)
{
	return a > b ? a : b;
}

bool request_counts(const struct rec_request *r)
{
	return r->state != REQ_ERROR || request_is_cut(r);
}

bool request_is_cut(const struct rec_request *r)
{
	return r->state == REQ_ERROR && r->how_ended == TL_END_SERVER && r->status < 400 &&
	       r->n_chunks;
}

/* Tokens of an answer that left with its last chunk. Of one that was cut short, the engine may have
 * made more since, and these took no time on the wire. */
static uint32_t delivered_tokens(const struct model_view *v, const struct rec_request *r)
{
	uint32_t n = 0;

	if (r->state == REQ_COMPLETE || r->output.prov == PROV_REPORTED)
		return r->output.n;
	for (size_t i = 0; i < r->n_seqs; i++) {
		const struct rec_sequence *q = &v->seqs[r->seqs[i]];

		for (size_t k = 0; k < q->n_visits; k++)
			if (v->steps[q->visits[k].step].t1_ns <= r->at_ns[P_LAST_TOKEN_WIRE])
				n += q->visits[k].n_out;
	}
	if (n < r->n_tokens_wire)
		n = r->n_tokens_wire;
	return n < r->output.n ? n : r->output.n;
}

void request_metrics(const struct model_view *v, const struct rec_request *r,
		     struct req_metrics *ret)
{
	struct req_metrics m = {
		.ttft_ns = -1,
		.tpot_ns = -1,
		.e2e_ns = -1,
		.queue_ns = -1,
		.prefill_ns = -1,
		.decode_ns = -1,
		.before_submit_ns = -1,
		.delivery_ns = -1,
	};

	m.prefill_ns = between(r, P_PREFILL_START, P_FIRST_TOKEN_ENGINE);
	m.decode_ns = between(r, P_FIRST_TOKEN_ENGINE, P_LAST_TOKEN_ENGINE);
	if (r->joined_late) { /* what was before we came, and how much it was, is unknown */
		*ret = m;
		return;
	}
	m.e2e_ns = between(r, P_REQ_FIRST_BYTE, P_DONE);
	m.before_submit_ns = between(r, P_REQ_LAST_BYTE, P_SUBMIT);
	if (r->at_ns[P_SUBMIT]) {
		m.queue_ns = between(r, P_SUBMIT, P_PREFILL_START);
		m.queue_prov = weaker(r->prov[P_SUBMIT], r->prov[P_PREFILL_START]);
	} else {
		m.queue_ns = between(r, P_REQ_LAST_BYTE, P_PREFILL_START);
		m.queue_prov = PROV_INFERRED;
	}
	if (m.queue_ns < 0)
		m.queue_prov = PROV_NONE;
	if (request_is_streamed(r)) {
		int64_t span = between(r, P_FIRST_TOKEN_WIRE, P_LAST_TOKEN_WIRE);

		m.ttft_ns = between(r, P_REQ_FIRST_BYTE, P_FIRST_TOKEN_WIRE);
		m.delivery_ns = between(r, P_FIRST_TOKEN_ENGINE, P_FIRST_TOKEN_WIRE);
		/* Parallel answers share the wire: their tokens are not one after another. And
		 * what left all at once (a tool call that was held back until it was whole) says
		 * nothing of a token's time. */
		m.delivered_tokens = r->output.prov == PROV_NONE ? 0 : delivered_tokens(v, r);
		if (r->n <= 1 && span > 0 && m.delivered_tokens >= 2) {
			m.tpot_ns = span / (m.delivered_tokens - 1);
			m.tpot_prov = weaker(r->output.prov, weaker(r->prov[P_FIRST_TOKEN_WIRE],
								    r->prov[P_LAST_TOKEN_WIRE]));
		}
	}
	*ret = m;
}
