/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers over all requests: percentiles by selection, rates over interval unions, coverage. */
#include "base/pct.h"
#include "model/summary_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What all rows of a summary are made from: one entry per request, and the gaps of all of them in
 * the order of the requests, so that a length class is a few ranges of one array. One kind of gaps
 * at a time: there is one of each kind per token. */
struct req_row {
	struct req_metrics m;
	int in_class, out_class;
	enum prefix_class prefix;
	bool counted; /* error responses are not */
	size_t n_gaps;
};

enum gap_kind { TOKEN_GAPS, CHUNK_GAPS, DELIVERIES, N_GAP_KINDS };

struct work {
	const struct model_view *v;
	struct req_row *rows;
	bool *chosen;		/* by request: is it in the row at hand? */
	enum gap_kind kind;
	uint64_t *gaps;
	uint64_t *scratch;	/* as many, and at least one per request */
	struct span {
		uint64_t t0, t1;
	} * lost; /* sorted, joined */
	size_t n_lost;
};

static void work__free(struct work *w)
{
	free(w->rows);
	free(w->chosen);
	free(w->gaps);
	free(w->scratch);
	free(w->lost);
}

/* ---- spans in which the kernel side lost events ---- */

static int span_cmp(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return (x->t0 > y->t0) - (x->t0 < y->t0);
}

static int collect_lost(struct work *w)
{
	const struct model_view *v = w->v;
	size_t n = 0;

	if (!v->n_lost)
		return 0;
	w->lost = malloc(v->n_lost * sizeof(*w->lost));
	if (!w->lost)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_lost; i++) {
		const struct rec_lost *l = &v->lost[i];

		/* the others concern one connection or one table, not whatever happened then */
		if (l->where == TL_LOST_RING || l->where == TL_LOST_SCRATCH)
			w->lost[n++] = (struct span){ l->since_ns, l->until_ns };
	}
	qsort(w->lost, n, sizeof(*w->lost), span_cmp);
	for (size_t i = 0; i < n; i++) {
		struct span *last = w->n_lost ? &w->lost[w->n_lost - 1] : NULL;

		if (!last || w->lost[i].t0 > last->t1)
			w->lost[w->n_lost++] = w->lost[i];
		else if (w->lost[i].t1 > last->t1)
			last->t1 = w->lost[i].t1;
	}
	return 0;
}

static bool hit_by_loss(const struct work *w, uint64_t t0, uint64_t t1)
{
	size_t lo = 0, hi = w->n_lost;

	while (lo < hi) { /* the first span that ends at or behind t0 */
		size_t mid = lo + (hi - lo) / 2;

		if (w->lost[mid].t1 < t0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < w->n_lost && w->lost[lo].t0 <= t1;
}

/* ---- gaps ---- */

static size_t sequence_gaps(const struct work *w, const struct rec_sequence *s, uint64_t *gaps,
			    struct summary *ret)
{
	uint64_t last = 0;
	size_t n = 0;

	for (size_t i = 0; i < s->n_visits; i++) {
		uint64_t end = w->v->steps[s->visits[i].step].t1_ns;

		if (!s->visits[i].n_out)
			continue;
		if (s->visits[i].n_out > 1 && s->visits[i].phase == TL_DECODE)
			ret->n_multi_token_steps++;
		if (last && hit_by_loss(w, last, end))
			ret->n_gaps_lost++;
		else if (last)
			gaps[n++] = end > last ? end - last : 0;
		last = end;
	}
	return n;
}

static size_t chunk_gaps(const struct work *w, const struct rec_request *r, uint64_t *gaps,
			 struct summary *ret)
{
	uint64_t last = 0;
	size_t n = 0;

	if (r->n > 1 || !request_is_streamed(r))
		return 0;
	for (size_t i = 0; i < r->n_chunks; i++) {
		uint64_t ts = chunk_ns(r, i);

		if (!chunk_is_token(&r->chunks[i]))
			continue;
		if (last && hit_by_loss(w, last, ts))
			ret->n_gaps_lost++;
		else if (last)
			gaps[n++] = ts > last ? ts - last : 0;
		last = ts;
	}
	return n;
}

static size_t max_gaps(const struct model_view *v, const struct rec_request *r, enum gap_kind kind)
{
	size_t n = 0;

	if (kind == CHUNK_GAPS)
		return r->n_chunks;
	if (kind == DELIVERIES)
		return request_delivery_max(v, r);
	for (size_t j = 0; j < r->n_seqs; j++)
		n += v->seqs[r->seqs[j]].n_visits;
	return n;
}

/* Room for all gaps of a kind. */
static int make_room(struct work *w)
{
	const struct model_view *v = w->v;
	size_t n = 0;

	free(w->gaps);
	free(w->scratch);
	w->gaps = w->scratch = NULL;
	for (size_t i = 0; i < v->n_requests; i++)
		n += max_gaps(v, &v->requests[i], w->kind);
	w->gaps = malloc((n + 1) * sizeof(*w->gaps));
	w->scratch = malloc(((n > v->n_requests ? n : v->n_requests) + 1) * sizeof(*w->scratch));
	return w->gaps && w->scratch ? 0 : -ENOMEM;
}

static size_t gaps_of(struct work *w, const struct rec_request *r, uint64_t *gaps,
		      struct summary *ret)
{
	size_t n = 0;
	bool exact;

	if (w->kind == CHUNK_GAPS)
		return chunk_gaps(w, r, gaps, ret);
	if (w->kind == DELIVERIES)
		return request_delivery(w->v, r, gaps, &exact);
	for (size_t j = 0; j < r->n_seqs; j++)
		n += sequence_gaps(w, &w->v->seqs[r->seqs[j]], gaps + n, ret);
	return n;
}

static int collect_gaps(struct work *w, enum gap_kind kind, struct summary *ret)
{
	size_t n = 0;
	int err;

	w->kind = kind;
	err = make_room(w);
	for (size_t i = 0; !err && i < w->v->n_requests; i++) {
		struct req_row *row = &w->rows[i];

		row->n_gaps = row->counted ? gaps_of(w, &w->v->requests[i], w->gaps + n, ret) : 0;
		n += row->n_gaps;
	}
	return err;
}

static int collect_requests(struct work *w)
{
	const struct model_view *v = w->v;

	w->rows = calloc(v->n_requests + 1, sizeof(*w->rows));
	w->chosen = calloc(v->n_requests + 1, sizeof(*w->chosen));
	if (!w->rows || !w->chosen)
		return -ENOMEM;
	for (size_t i = 0; i < v->n_requests; i++) {
		const struct rec_request *r = &v->requests[i];
		struct req_row *row = &w->rows[i];

		request_metrics(v, r, &row->m);
		row->in_class = len_class(&r->prompt);
		row->out_class = len_class(&r->output);
		row->prefix = prefix_class(r);
		row->counted = request_counts(r);
	}
	return 0;
}

/* ---- rows of percentiles ---- */

void summary_dist(uint64_t *values, size_t n, struct dist *ret)
{
	*ret = (struct dist){ .n = n };
	if (!n)
		return;
	ret->p50 = pct_u64(values, n, 500);
	ret->p90 = pct_u64(values, n, 900);
	ret->p99 = pct_u64(values, n, 990);
	for (size_t i = 0; i < n; i++)
		ret->max = values[i] > ret->max ? values[i] : ret->max;
}

/* One metric of the chosen requests; `offset` is where it lies in struct req_metrics. */
static void metric_dist(struct work *w, size_t offset, struct dist *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < w->v->n_requests; i++) {
		int64_t value;

		if (!w->chosen[i])
			continue;
		memcpy(&value, (const char *)&w->rows[i].m + offset, sizeof(value));
		if (value >= 0)
			w->scratch[n++] = (uint64_t)value;
	}
	summary_dist(w->scratch, n, ret);
}

static void fill_metrics(struct work *w, struct summary_row *ret)
{
	metric_dist(w, offsetof(struct req_metrics, ttft_ns), &ret->ttft);
	metric_dist(w, offsetof(struct req_metrics, tpot_ns), &ret->tpot);
	metric_dist(w, offsetof(struct req_metrics, e2e_ns), &ret->e2e);
	metric_dist(w, offsetof(struct req_metrics, queue_ns), &ret->queue);
	metric_dist(w, offsetof(struct req_metrics, prefill_ns), &ret->prefill);
	metric_dist(w, offsetof(struct req_metrics, before_submit_ns), &ret->frontend);
}

static void fill_gaps(struct work *w, struct summary_row *ret)
{
	struct dist *const to[N_GAP_KINDS] = { &ret->itl_token, &ret->itl_chunk, &ret->delivery };
	size_t n = 0, at = 0;

	for (size_t i = 0; i < w->v->n_requests; i++) {
		size_t n_gaps = w->rows[i].n_gaps;

		if (w->chosen[i]) {
			memcpy(w->scratch + n, w->gaps + at, n_gaps * sizeof(*w->gaps));
			n += n_gaps;
		}
		at += n_gaps;
	}
	summary_dist(w->scratch, n, to[w->kind]);
}

/* `all`: the row of all requests, NULL to make it. A class that holds them all is a copy. */
static void fill_row(struct work *w, const struct summary_row *all, struct summary_row *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < w->v->n_requests; i++)
		n += w->chosen[i];
	ret->n_requests = n;
	if (!n)
		return;
	if (all && n == all->n_requests) {
		*ret = *all;
		return;
	}
	if (w->kind == TOKEN_GAPS) /* with the first kind */
		fill_metrics(w, ret);
	fill_gaps(w, ret);
}

/* Of the gaps at hand. */
static void fill_rows(struct work *w, struct summary *ret)
{
	size_t n = w->v->n_requests;
	const struct req_row *rows = w->rows;

	for (size_t i = 0; i < n; i++)
		w->chosen[i] = rows[i].counted;
	fill_row(w, NULL, &ret->all);
	for (int c = 0; c < N_LEN_CLASSES; c++) {
		for (size_t i = 0; i < n; i++)
			w->chosen[i] = rows[i].counted && rows[i].in_class == c;
		fill_row(w, &ret->all, &ret->by_input[c]);
		for (size_t i = 0; i < n; i++)
			w->chosen[i] = rows[i].counted && rows[i].out_class == c;
		fill_row(w, &ret->all, &ret->by_output[c]);
	}
	for (int c = 0; c < N_PREFIX_CLASSES; c++) {
		for (size_t i = 0; i < n; i++)
			w->chosen[i] = rows[i].counted && rows[i].prefix == (enum prefix_class)c;
		fill_row(w, &ret->all, &ret->by_prefix[c]);
	}
}

/* ---- tokens, states, coverage ---- */

/* Output tokens that fell into the capture: what a request had before we came does not count. */
static uint64_t tokens_in_capture(const struct model_view *v, const struct rec_request *r)
{
	uint64_t n = 0;

	if (!r->joined_late && r->output.prov != PROV_NONE)
		return r->output.n;
	if (r->api == TL_API_EMBEDDINGS)
		return 0;
	for (size_t j = 0; j < r->n_seqs; j++)
		n += v->seqs[r->seqs[j]].n_out;
	if (r->output.prov != PROV_NONE && n > r->output.n)
		n = r->output.n;
	return n > r->n_tokens_wire ? n : r->n_tokens_wire;
}

static void count_requests(const struct model_view *v, struct summary *ret)
{
	uint64_t first = 0, last = 0;

	for (size_t i = 0; i < v->n_requests; i++) {
		const struct rec_request *r = &v->requests[i];
		uint64_t t0 = request_first_ns(r), t1 = request_last_ns(r);

		ret->n_state[r->state]++;
		ret->n_cut += request_is_cut(r);
		if (r->state != REQ_ERROR && !request_is_streamed(r))
			ret->n_non_streaming++;
		ret->output_tokens += tokens_in_capture(v, r);
		if (r->prompt.prov != PROV_NONE)
			ret->prompt_tokens += r->prompt.n;
		if (r->cached.prov != PROV_NONE)
			ret->cached_tokens += r->cached.n;
		if (t0 && (!first || t0 < first))
			first = t0;
		if (t1 > last)
			last = t1;
	}
	ret->wall_ns = last > first ? last - first : 0;
	for (size_t i = 0; i < v->n_seqs; i++)
		ret->n_joins[v->seqs[i].req ? v->seqs[i].join : JOIN_NONE]++;
}

static void count_steps(const struct model_view *v, struct summary *ret)
{
	uint64_t matched = 0;

	ret->steps_seen = v->n_steps;
	for (size_t i = 0; i < v->n_steps; i++) {
		const struct rec_step *s = &v->steps[i];

		ret->steps_with_members += s->n_members > 0;
		ret->tokens_in_steps += s->n_tokens;
		for (uint32_t j = 0; j < s->n_members; j++) {
			const struct rec_member *m = &v->members[s->first_member + j];

			if (v->seqs[m->seq].req)
				matched += m->n_tokens;
		}
	}
	for (size_t i = 0; i < v->n_requests; i++)
		ret->prompt_unseen += request_prompt_unseen(v, &v->requests[i]);
	ret->matched_tokens_pct =
		ret->tokens_in_steps ? 100.0 * (double)matched / (double)ret->tokens_in_steps : -1;
}

int summarise(const struct model_view *v, struct summary *ret)
{
	struct work w = { .v = v };
	struct summary s;
	int err;

	memset(&s, 0, sizeof(s));
	count_requests(v, &s);
	count_steps(v, &s);
	err = summary_time(v, &s);
	if (!err)
		err = collect_lost(&w);
	if (!err)
		err = collect_requests(&w);
	for (int k = 0; k < N_GAP_KINDS && !err; k++) {
		err = collect_gaps(&w, (enum gap_kind)k, &s);
		if (!err)
			fill_rows(&w, &s);
	}
	work__free(&w);
	if (err)
		return err;
	s.tok_per_s_wall = s.wall_ns ? (double)s.output_tokens * 1e9 / (double)s.wall_ns : -1;
	s.tok_per_s_busy = s.busy_ns ? (double)s.output_tokens * 1e9 / (double)s.busy_ns : -1;
	*ret = s;
	return 0;
}
