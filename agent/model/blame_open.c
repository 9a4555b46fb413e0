/* SPDX-License-Identifier: Apache-2.0 */
/* What a request still waits for when the recording ends: a server that hangs has no gap that ever ends. */
#include "model/blame_priv.h"
#include "model/summary.h"

/* The next output that was made and not written; q->n_visits: none. */
static size_t not_written(const struct rec_sequence *q, size_t from)
{
	size_t i = from + 1;

	while (i < q->n_visits && !q->visits[i].n_out)
		i++;
	return i < q->n_visits ? i : q->n_visits;
}

/* Behind the last output that was written: its steps since, and what came of them. */
static void cut_behind(struct blame *b, const struct answer *a, struct gap *g)
{
	const struct rec_sequence *q = &b->v.seqs[a->seq - 1];
	const struct output *last = &b->outputs[a->n - 1];
	size_t next = not_written(q, last->visit), to = next < q->n_visits ? next : q->n_visits - 1;
	struct walk w = { .b = b, .g = g, .seq = a->seq - 1, .at_ns = g->t0_ns };
	struct output made = { .written_ns = g->t1_ns, .visit = (uint32_t)to };

	made.made_ns = w.end_ns = least(b->v.steps[q->visits[to].step].t1_ns, g->t1_ns);
	if (to > last->visit)
		cut_visits(&w, last->visit, to);
	if (next < q->n_visits) {
		cut_delivery(b, g, a, &made, most(w.at_ns, made.made_ns), g->t1_ns, a->delivery.ns);
	} else {
		w.end_ns = g->t1_ns;
		cut_to_end(&w);
	}
}

bool blame__open(struct blame *b, uint32_t request, struct gap *ret)
{
	const struct rec_request *r = &b->v.requests[request];
	uint64_t t0 = r->at_ns[P_REQ_FIRST_BYTE], t1 = b->v.t1_ns;
	struct answer a = { 0 };
	int err = 0;

	if (r->state != REQ_TRUNCATED || r->how_ended != TL_END_CAPTURE || r->n > 1)
		return false;
	if (request_is_streamed(r))
		err = answer_of(b, request, &a);
	if (!err && !a.n && r->n_seqs == 1)
		err = answer_of_seq(b, r->seqs[0], &a);
	if (a.n)
		t0 = output_ns(&a, &b->outputs[a.n - 1]);
	if (err || !t0 || t0 >= t1 || (!a.n && r->joined_late))
		return false;
	gap_begin(ret, request, a.seq, a.side, a.n ? b->outputs[a.n - 1].token + 1 : 0, t0, t1);
	ret->open = true;
	if (!a.n)
		err = cut_open_ttft(b, r, ret);
	else if (a.seq)
		cut_behind(b, &a, ret);
	else
		cut_stream(b, ret, &a, t1);
	if (err)
		return false;
	gap_end(b, ret, ret->seq ? b->v.seqs[ret->seq - 1].engine : r->engine);
	return gap_is_odd(ret);
}
