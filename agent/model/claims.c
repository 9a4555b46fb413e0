/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of other tools against what was seen. */
#include "model/claims.h"
#include "base/num.h"
#include "model/evidence.h"
#include "model/summary.h"

#include <errno.h>
#include <stdlib.h>

/* A claim's clock may have begun to count so long before the request came here, at most. */
static const uint64_t max_before_ns = 600000000000;

const char *claim_verdict_name(uint8_t verdict)
{
	static const char *const names[] = {
		"right", "V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", NULL, NULL, "V11",
	};

	if (verdict == CLAIM_NO_TRUTH)
		return "unknown";
	return verdict < sizeof(names) / sizeof(names[0]) && names[verdict] ? names[verdict] : "wrong";
}

/* ---- how near is near ---- */

static uint64_t apart(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* Logs have ms, and nginx's clock is coarse by up to 4 of them. */
static bool is_near(uint64_t claim_ns, uint64_t truth_ns)
{
	return apart(claim_ns, truth_ns) <= most(5000000, truth_ns / 33);
}

/* Times per token are short; some tools cut them to whole ms. */
static bool is_near_per_token(uint64_t claim_ns, uint64_t truth_ns)
{
	return apart(claim_ns, truth_ns) <= most(1000000, truth_ns / 33);
}

/* ---- truths ---- */

struct truth {
	const struct model_view *v;
	const struct rec_request *r;
	uint64_t from_ns;	/* where the claim began to count */
	uint64_t first_ns, last_ns, done_ns;	/* moments; 0: not seen */
	uint64_t tokens, chunks;
	int64_t tpot_ns;	/* -1: not known */
};

static uint64_t since(const struct truth *t, uint64_t moment_ns)
{
	return moment_ns > t->from_ns ? moment_ns - t->from_ns : 0;
}

static void find_truth(const struct model_view *v, const struct rec_request *r,
		       const struct tl_claim *k, struct truth *ret)
{
	uint64_t first_byte = r->at_ns[P_REQ_FIRST_BYTE], began = k->hdr.ts_ns;
	struct req_metrics m;

	request_metrics(v, r, &m);
	*ret = (struct truth){
		.v = v, .r = r, .from_ns = first_byte, .first_ns = r->at_ns[P_FIRST_TOKEN_WIRE],
		.last_ns = r->at_ns[P_LAST_TOKEN_WIRE], .done_ns = r->at_ns[P_DONE],
		.tokens = r->output.prov ? r->output.n : r->n_tokens_wire, .tpot_ns = m.tpot_ns,
	};
	for (size_t i = 0; i < r->n_chunks; i++)
		ret->chunks += chunk_is_token(&r->chunks[i]);
	if (began && began + max_before_ns >= first_byte && began < ret->done_ns)
		ret->from_ns = began;
}

/* When somebody behind the engine's socket had the first token; 0: nobody says. */
static uint64_t first_token_by(const struct truth *t, bool (*is_one)(uint16_t by))
{
	const struct evidence *ev = t->v->evidence;
	size_t lo = 0, hi = ev->delivered.n;
	uint32_t ordinal = t->r->n_chunks ? t->r->chunks[0].n_before + 1u : UINT32_MAX;
	uint64_t best = 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (ev->delivered.v[mid].req < t->r->req)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < ev->delivered.n && ev->delivered.v[lo].req == t->r->req; lo++) {
		const struct tl_delivered *d = &ev->delivered.v[lo];

		if (is_one(d->by) && d->n_chunks >= ordinal && (!best || d->hdr.ts_ns < best))
			best = d->hdr.ts_ns;
	}
	return best;
}

static bool is_hop(uint16_t by)
{
	return by == TL_BY_PROXY || by == TL_BY_CLIENT;
}

static bool is_kernel(uint16_t by)
{
	return by == TL_BY_ACK;
}

/* The point whose time is what is claimed; N_POINTS: none. */
static uint8_t point_at(const struct truth *t, uint64_t claim_ns)
{
	uint8_t best = N_POINTS;
	uint64_t best_ns = UINT64_MAX;

	for (uint8_t p = P_REQ_LAST_BYTE; p < N_POINTS; p++) {
		uint64_t ns = t->r->at_ns[p] ? since(t, t->r->at_ns[p]) : 0;

		if (ns && is_near(claim_ns, ns) && apart(claim_ns, ns) < best_ns) {
			best = p;
			best_ns = apart(claim_ns, ns);
		}
	}
	return best;
}

/* ---- verdicts ---- */

/* Tokens would have come far faster behind this stamp than they were seen to. */
static bool implies_too_fast(const struct truth *t, uint64_t claim_ns, struct claim_judged *j)
{
	uint64_t total = since(t, t->done_ns), first = since(t, t->first_ns);

	if (t->tokens < 2 || claim_ns <= first || claim_ns >= total || t->last_ns <= t->first_ns)
		return false;
	j->implied_per_s = t->tokens * 1e9 / (total - claim_ns);
	j->seen_per_s = (t->tokens - 1) * 1e9 / (t->last_ns - t->first_ns);
	for (size_t i = 0; i < t->r->n_chunks && since(t, chunk_ns(t->r, i)) < claim_ns; i++)
		j->n_skipped += chunk_is_token(&t->r->chunks[i]);
	return j->implied_per_s > 1.5 * j->seen_per_s;
}

/* Less than the engine took for the prompt alone. */
static bool is_impossible(const struct truth *t, uint64_t claim_ns)
{
	uint64_t begin = t->r->at_ns[P_PREFILL_START], end = t->r->at_ns[P_FIRST_TOKEN_ENGINE];

	return begin && end > begin && claim_ns < (end - begin) / 2;
}

static uint8_t judge_ttft(const struct truth *t, uint64_t claim_ns, struct claim_judged *j)
{
	uint64_t total = since(t, t->done_ns), hop = first_token_by(t, is_hop), ack;
	uint64_t headers = t->r->at_ns[P_HEADERS], chunk = t->r->at_ns[P_FIRST_CHUNK];

	j->truth_ns = since(t, t->first_ns);
	if (is_near(claim_ns, j->truth_ns)) {
		j->held_ns = hop > t->first_ns ? hop - t->first_ns : 0;
		if (j->held_ns > most(20000000, j->truth_ns / 10))
			return CLAIM_V3;
		j->held_ns = 0;
		return CLAIM_RIGHT;
	}
	if (hop && is_near(claim_ns, since(t, hop)))	/* it is that hop's, and true there */
		return CLAIM_RIGHT;
	if (t->tokens > 10 && total && claim_ns >= total - total / 100 && is_near(claim_ns, total))
		return CLAIM_V1;
	ack = first_token_by(t, is_kernel);
	if (ack && claim_ns > since(t, ack) && is_near(since(t, ack), j->truth_ns)) {
		j->held_ns = claim_ns - since(t, ack);
		return CLAIM_V11;
	}
	if (implies_too_fast(t, claim_ns, j))
		return CLAIM_V2;
	if (claim_ns < j->truth_ns && ((headers && is_near(claim_ns, since(t, headers))) ||
				       (chunk && is_near(claim_ns, since(t, chunk)))))
		return CLAIM_V4;
	return is_impossible(t, claim_ns) ? CLAIM_V8 : CLAIM_WRONG;
}

static uint8_t judge_total(const struct truth *t, uint64_t claim_ns, struct claim_judged *j)
{
	j->truth_ns = since(t, t->done_ns);
	if (is_near(claim_ns, j->truth_ns))
		return CLAIM_RIGHT;
	return t->first_ns && is_near(claim_ns, since(t, t->first_ns)) ? CLAIM_V6 : CLAIM_WRONG;
}

static uint8_t judge_per_token(const struct truth *t, uint64_t claim_ns, struct claim_judged *j)
{
	uint64_t total = since(t, t->done_ns);

	j->truth_ns = t->tpot_ns;
	/* Few tokens, and all but the first at once, are told apart by
	 * nothing: the right one stands. */
	if (is_near_per_token(claim_ns, j->truth_ns))
		return CLAIM_RIGHT;
	if (t->chunks > 1 && t->chunks < t->tokens &&
	    is_near_per_token(claim_ns, (t->last_ns - t->first_ns) / (t->chunks - 1))) {
		j->tokens_per_chunk = (double)(t->tokens - 1) / (double)(t->chunks - 1);
		j->seen_per_s = (double)(t->tokens - 1) * 1e9 / (double)(t->last_ns - t->first_ns);
		return CLAIM_V7;
	}
	if (t->tokens && total && is_near_per_token(claim_ns, total / t->tokens))
		return CLAIM_V5;
	return CLAIM_WRONG;
}

static uint8_t judge_point(uint64_t claim_ns, uint64_t truth_ns, struct claim_judged *j)
{
	j->truth_ns = truth_ns;
	return is_near(claim_ns, truth_ns) ? CLAIM_RIGHT : CLAIM_WRONG;
}

static uint8_t judge(const struct truth *t, const struct tl_claim *k, struct claim_judged *j)
{
	struct req_metrics m;

	switch (k->metric) {
	case TL_CLAIM_TTFT:
		return t->first_ns ? judge_ttft(t, k->value_ns, j) : CLAIM_NO_TRUTH;
	case TL_CLAIM_TOTAL:
		return t->done_ns ? judge_total(t, k->value_ns, j) : CLAIM_NO_TRUTH;
	case TL_CLAIM_TPOT:
	case TL_CLAIM_ITL:
		return t->tpot_ns > 0 ? judge_per_token(t, k->value_ns, j) : CLAIM_NO_TRUTH;
	case TL_CLAIM_HEADERS:
		if (!t->r->at_ns[P_HEADERS])
			return CLAIM_NO_TRUTH;
		return judge_point(k->value_ns, since(t, t->r->at_ns[P_HEADERS]), j);
	case TL_CLAIM_QUEUE:
		request_metrics(t->v, t->r, &m);
		if (m.queue_ns < 0)
			return CLAIM_NO_TRUTH;
		return judge_point(k->value_ns, m.queue_ns, j);
	default:
		return CLAIM_NO_TRUTH;
	}
}

/* ---- */

static int number_order(const void *pa, const void *pb)
{
	const struct rec_request *const *a = pa, *const *b = pb;

	return (*a)->req < (*b)->req ? -1 : (*a)->req > (*b)->req;
}

static const struct rec_request **by_number(const struct model_view *v)
{
	const struct rec_request **rs = malloc((v->n_requests + 1) * sizeof(*rs));

	for (size_t i = 0; rs && i < v->n_requests; i++)
		rs[i] = &v->requests[i];
	if (rs)
		qsort(rs, v->n_requests, sizeof(*rs), number_order);
	return rs;
}

static void judge_one(const struct model_view *v, const struct rec_request *r, uint32_t claim,
		      struct claim_judged *ret)
{
	const struct tl_claim *k = &v->evidence->claims.v[claim];
	uint64_t first_byte = r->at_ns[P_REQ_FIRST_BYTE];
	struct truth t;

	*ret = (struct claim_judged){ .claim = claim, .request = r - v->requests, .stamp = N_POINTS };
	if (!first_byte || r->joined_late) {
		ret->verdict = CLAIM_NO_TRUTH;
		return;
	}
	find_truth(v, r, k, &t);
	ret->verdict = judge(&t, k, ret);
	if (ret->truth_ns)
		ret->factor = (double)k->value_ns / ret->truth_ns;
	if (k->metric == TL_CLAIM_TTFT || k->metric == TL_CLAIM_TOTAL ||
	    k->metric == TL_CLAIM_HEADERS) {
		if (first_byte > t.from_ns)
			ret->before_host_ns = first_byte - t.from_ns;
		if (ret->verdict != CLAIM_RIGHT && ret->verdict != CLAIM_V3)
			ret->stamp = point_at(&t, k->value_ns);
	}
}

int claims_judge(const struct model_view *v, struct claim_judged **ret, size_t *ret_n)
{
	const struct evidence *ev = v->evidence;
	const struct rec_request **rs;
	struct claim_judged *out;
	size_t n = 0, at = 0;

	if (!ev || !ev->claims.n) {
		*ret = NULL;
		*ret_n = 0;
		return 0;
	}
	rs = by_number(v);
	out = calloc(ev->claims.n, sizeof(*out));
	if (!rs || !out) {
		free(rs);
		free(out);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < ev->claims.n; i++) {	/* both by number */
		while (at < v->n_requests && rs[at]->req < ev->claims.v[i].req)
			at++;
		if (at < v->n_requests && rs[at]->req == ev->claims.v[i].req)
			judge_one(v, rs[at], i, &out[n++]);
	}
	free(rs);
	*ret = out;
	*ret_n = n;
	return 0;
}
