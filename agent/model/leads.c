/* SPDX-License-Identifier: Apache-2.0 */
/* Of a request with several answers: whose times are its queue, prefill and decode. */
#include "model/leads.h"

struct lead {
	uint32_t seq;
	size_t visit;		/* SIZE_MAX: without output */
	uint64_t first_ns, begin_ns;
	bool prompt;		/* it computes it: of parallel answers some engines let one do it for all */
};

static struct lead lead_of(const struct model_view *v, uint32_t seq)
{
	const struct rec_sequence *q = &v->seqs[seq];
	struct lead l = { .seq = seq, .visit = SIZE_MAX, .first_ns = UINT64_MAX, .prompt = q->n_prefill > 0 };

	l.begin_ns = v->steps[q->visits[0].step].t0_ns;
	for (size_t i = 0; i < q->n_visits && l.visit == SIZE_MAX; i++)
		if (q->visits[i].n_out) {
			l.visit = i;
			l.first_ns = v->steps[q->visits[i].step].t1_ns;
		}
	return l;
}

/* Output before none, who computes the prompt before who does not, then the earlier one. */
static bool leads_before(const struct lead *a, const struct lead *b)
{
	if ((a->visit == SIZE_MAX) != (b->visit == SIZE_MAX))
		return a->visit != SIZE_MAX;
	if (a->prompt != b->prompt)
		return a->prompt;
	return a->first_ns != b->first_ns ? a->first_ns < b->first_ns : a->begin_ns < b->begin_ns;
}

static uint64_t end_ns(const struct model_view *v, const struct rec_sequence *q)
{
	return v->steps[q->visits[q->n_visits - 1].step].t1_ns;
}

void leads_of(const struct model_view *v, const struct rec_request *r, struct leads *ret)
{
	struct lead best = { .seq = UINT32_MAX };

	*ret = (struct leads){ .first = UINT32_MAX, .first_visit = SIZE_MAX, .last = UINT32_MAX };
	for (size_t i = 0; i < r->n_seqs; i++) {
		const struct rec_sequence *q = &v->seqs[r->seqs[i]];
		struct lead l;

		if (!q->n_visits)
			continue;
		if (ret->last == UINT32_MAX || end_ns(v, q) > end_ns(v, &v->seqs[ret->last]))
			ret->last = r->seqs[i];
		if (q->joined_late)
			continue;
		l = lead_of(v, r->seqs[i]);
		if (best.seq == UINT32_MAX || leads_before(&l, &best))
			best = l;
	}
	if (best.seq == UINT32_MAX)
		return;
	ret->first = best.seq;
	ret->first_visit = best.visit;
	/* Several that end in one step: no need to follow another one. */
	if (end_ns(v, &v->seqs[best.seq]) == end_ns(v, &v->seqs[ret->last]))
		ret->last = best.seq;
}

uint32_t answer_number(const struct rec_request *r, uint32_t seq)
{
	for (size_t i = 0; i < r->n_seqs; i++)
		if (r->seqs[i] == seq)
			return (uint32_t)i + 1;
	return 0;
}
