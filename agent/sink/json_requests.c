/* SPDX-License-Identifier: Apache-2.0 */
/* The "requests" of the report's JSON. */
#include "base/pct.h"
#include "base/util.h"
#include "sink/json_priv.h"
#include "sink/notes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void json_pid(struct jsonw *w, const struct model_view *v, uint32_t engine)
{
	jsonw__key(w, "engine_pid");
	if (engine < v->n_engines && v->engines[engine].e.hdr.tgid)
		jsonw__u64(w, v->engines[engine].e.hdr.tgid);
	else
		jsonw__null(w);
}

static void write_tokens(struct jsonw *w, const char *key, const struct rec_count *c)
{
	jsonw__key(w, key);
	if (c->prov == PROV_NONE)
		jsonw__null(w);
	else
		jsonw__u64(w, c->n);
}

static void write_points(struct jsonw *w, const struct rec_request *r)
{
	uint64_t origin = request_first_ns(r);

	jsonw__key(w, "points");
	jsonw__object(w);
	for (int p = 0; p < N_POINTS; p++)
		json_since(w, point_names[p], r->at_ns[p], origin);
	jsonw__end_object(w);
}

static void write_prov(struct jsonw *w, const char *field, uint8_t prov)
{
	jsonw__key(w, field);
	jsonw__str(w, prov == PROV_NONE ? NULL : provenance_names[prov]);
}

/* A difference is no better than the weaker of its ends. */
static uint8_t of_difference(const struct rec_request *r, enum point a, enum point b, int64_t value)
{
	if (value < 0)
		return PROV_NONE;
	return r->prov[a] > r->prov[b] ? r->prov[a] : r->prov[b];
}

static void write_provenance(struct jsonw *w, const struct model_view *v, uint32_t request,
			     const struct req_metrics *m, uint8_t delivery)
{
	const struct rec_request *r = &v->requests[request];

	jsonw__key(w, "provenance");
	jsonw__object(w);
	write_prov(w, "prompt_tokens", r->prompt.prov);
	write_prov(w, "cached_tokens", r->cached.prov);
	write_prov(w, "output_tokens", r->output.prov);
	write_prov(w, "reasoning_tokens", r->reasoning.prov);
	write_prov(w, "ttft_ms",
		   of_difference(r, P_REQ_FIRST_BYTE, P_FIRST_TOKEN_WIRE, m->ttft_ns));
	write_prov(w, "tpot_ms", m->tpot_ns < 0 ? PROV_NONE : m->tpot_prov);
	write_prov(w, "e2e_ms", of_difference(r, P_REQ_FIRST_BYTE, P_DONE, m->e2e_ns));
	write_prov(w, "frontend_ms",
		   of_difference(r, P_REQ_LAST_BYTE, P_SUBMIT, m->before_submit_ns));
	write_prov(w, "queue_ms", m->queue_prov);
	write_prov(w, "prefill_ms",
		   of_difference(r, P_PREFILL_START, P_FIRST_TOKEN_ENGINE, m->prefill_ns));
	write_prov(w, "decode_ms",
		   of_difference(r, P_FIRST_TOKEN_ENGINE, P_LAST_TOKEN_ENGINE, m->decode_ns));
	write_prov(w, "delivery_ms", delivery);
	json_gpu_provenance(w, v, request);
	for (int p = 0; p < N_POINTS; p++)
		write_prov(w, point_names[p], r->at_ns[p] ? r->prov[p] : PROV_NONE);
	jsonw__end_object(w);
}

void json_join(struct jsonw *w, const struct rec_sequence *q)
{
	jsonw__key(w, "join");
	jsonw__object(w);
	json_str(w, "method", join_method_names[q ? q->join : JOIN_NONE]);
	jsonw__key(w, "confidence_pct");
	if (q)
		jsonw__u64(w, q->confidence_pct);
	else
		jsonw__null(w);
	jsonw__key(w, "rivals");
	if (q)
		jsonw__u64(w, q->rivals);
	else
		jsonw__null(w);
	jsonw__end_object(w);
}

/* What a preemption took, in tokens. */
static void json_lost(struct jsonw *w, const char *key, const struct rec_sequence *q, uint32_t n)
{
	jsonw__key(w, key);
	if (sequence_knows_lost(q) || (!n && !q->n_preemptions))
		jsonw__u64(w, n);
	else
		jsonw__null(w);
}

static void write_seq(struct jsonw *w, const struct rec_sequence *q, const struct json_opts *o)
{
	jsonw__object(w);
	json_known_count(w, "id", q->id);
	json_known_count(w, "slot", q->slot);
	jsonw__key(w, "joined_late");
	jsonw__bool(w, q->joined_late);
	jsonw__key(w, "kept");
	if (q->kept >= 0)
		jsonw__s64(w, q->kept);
	else
		jsonw__null(w);
	json_known_count(w, "n_prefill", q->n_prefill);
	json_known_count(w, "n_decode", q->n_decode);
	json_known_count(w, "n_out", q->n_out);
	json_lost(w, "n_recomputed", q, q->n_again);
	json_join(w, q);
	if (!o->no_steps) {
		jsonw__key(w, "steps");
		jsonw__array(w);
		for (size_t i = 0; i < q->n_visits; i++) {
			jsonw__array(w);
			jsonw__u64(w, q->visits[i].step);
			jsonw__str(w, json_phase(q->visits[i].phase, q->visits[i].guess));
			jsonw__u64(w, q->visits[i].n_tokens);
			jsonw__end_array(w);
		}
		jsonw__end_array(w);
	}
	jsonw__end_object(w);
}

static void write_status(struct jsonw *w, const char *key, uint16_t status)
{
	jsonw__key(w, key);
	if (status)
		jsonw__u64(w, status);
	else
		jsonw__null(w);
}

void json_id(struct jsonw *w, const struct rec_request *r)
{
	char id[16];

	snprintf(id, sizeof(id), "r%u", r->req);
	json_str(w, "id", id);
}

void json_identity(struct jsonw *w, const struct model_view *v, const struct rec_request *r)
{
	json_pid(w, v, r->engine);
	json_known_count(w, "conn", r->conn);
	json_str(w, "method", method_name(r->method));
	json_str(w, "path", r->path);
	json_str(w, "api", r->path[0] || r->api != TL_API_OTHER ? api_name(r->api) : NULL);
	write_status(w, "status", r->status);
	write_status(w, "http_status", r->status);
	jsonw__key(w, "stream");
	if (r->stream < 0)
		jsonw__null(w);
	else
		jsonw__bool(w, r->stream);
	json_str(w, "model", r->model);
	json_str(w, "response_id", r->id);
	json_str(w, "x_request_id", r->x_request_id);
	json_str(w, "traceparent", r->traceparent);
}

void json_state(struct jsonw *w, const struct rec_request *r)
{
	char reason[160];

	json_str(w, "state", req_state_names[r->state]);
	json_str(w, "reason", request_reason(r, reason, sizeof(reason)));
	jsonw__key(w, "joined_late");
	jsonw__bool(w, r->joined_late);
}

static void write_outcome(struct jsonw *w, const struct rec_request *r)
{
	json_state(w, r);
	write_tokens(w, "prompt_tokens", &r->prompt);
	write_tokens(w, "cached_tokens", &r->cached);
	write_tokens(w, "output_tokens", &r->output);
	write_tokens(w, "reasoning_tokens", &r->reasoning);
	jsonw__key(w, "max_tokens");
	if (r->max_tokens >= 0)
		jsonw__s64(w, r->max_tokens);
	else
		jsonw__null(w);
	json_known_count(w, "n", r->n);
	json_str(w, "finish", finish_name(r->finish));
	json_known_count(w, "token_chunks", r->n_chunks);
}

/* Does the engine say of this request when it was preempted? */
static bool tells_of_preemption(const struct model_view *v, const struct rec_request *r)
{
	for (size_t i = 0; i < r->n_seqs; i++) {
		const struct rec_sequence *q = &v->seqs[r->seqs[i]];

		if (q->n_preemptions)
			return true;
		for (size_t k = 0; k < q->n_visits; k++)
			if (v->steps[q->visits[k].step].stats)
				return true;
	}
	return false;
}

static void write_preempted(struct jsonw *w, const struct model_view *v,
			    const struct rec_request *r)
{
	uint64_t origin = request_first_ns(r);

	jsonw__key(w, "preempted");
	if (!tells_of_preemption(v, r)) {
		jsonw__null(w);
		return;
	}
	jsonw__array(w);
	for (size_t i = 0; i < r->n_seqs; i++) {
		const struct rec_sequence *q = &v->seqs[r->seqs[i]];

		for (size_t k = 0; k < q->n_preemptions; k++) {
			const struct rec_preemption *p = &q->preemptions[k];

			jsonw__object(w);
			json_known_count(w, "seq", q->id);
			json_since(w, "at_ms", p->at_ns, origin);
			json_lost(w, "lost_tokens", q, p->lost_tokens);
			json_ms(w, "parked_ms",
				p->resumed_ns >= p->at_ns ? (int64_t)(p->resumed_ns - p->at_ns)
							  : -1);
			json_str(w, "provenance", provenance_names[p->prov]);
			jsonw__end_object(w);
		}
	}
	jsonw__end_array(w);
}

struct delivery {
	size_t n;
	int64_t p50_ns;		/* -1: not known */
	uint8_t prov;
};

/* scratch: room for what request_delivery() finds */
static struct delivery delivery_of(const struct model_view *v, const struct rec_request *r,
				   uint64_t *scratch)
{
	struct delivery d = { .p50_ns = -1, .prov = PROV_NONE };
	bool exact;

	d.n = request_delivery(v, r, scratch, &exact);
	if (d.n) {
		d.p50_ns = (int64_t)pct_u64(scratch, d.n, 500);
		d.prov = exact ? PROV_OBSERVED : PROV_INFERRED;
	}
	return d;
}

static int write_request(struct jsonw *w, const struct model_view *v, uint32_t request,
			 struct blame *b, const struct json_opts *o, uint64_t *scratch)
{
	const struct rec_request *r = &v->requests[request];
	struct delivery d = delivery_of(v, r, scratch);
	struct req_metrics m;
	int err;

	request_metrics(v, r, &m);
	jsonw__object(w);
	json_id(w, r);
	json_since(w, "t0_ms", request_first_ns(r), v->t0_ns);
	json_identity(w, v, r);
	write_outcome(w, r);
	write_points(w, r);
	json_ms(w, "ttft_ms", m.ttft_ns);
	json_ms(w, "tpot_ms", m.tpot_ns);
	json_ms(w, "e2e_ms", m.e2e_ns);
	json_ms(w, "frontend_ms", m.before_submit_ns);
	json_ms(w, "before_submit_ms", m.before_submit_ns);
	json_ms(w, "queue_ms", m.queue_ns);
	json_ms(w, "prefill_ms", m.prefill_ns);
	json_ms(w, "decode_ms", m.decode_ns);
	json_ms(w, "first_delivery_ms", m.delivery_ns);
	json_ms(w, "delivery_ms", d.p50_ns);
	json_known_count(w, "delivery_outputs", d.n);
	json_gpu_request(w, v, request);
	write_preempted(w, v, r);
	jsonw__key(w, "engine_reported");
	jsonw__object(w);
	json_ms(w, "prefill_ms", r->reported_prefill_ns ? (int64_t)r->reported_prefill_ns : -1);
	json_ms(w, "decode_ms", r->reported_decode_ns ? (int64_t)r->reported_decode_ns : -1);
	jsonw__key(w, "slot");
	if (r->reported_slot >= 0)
		jsonw__s64(w, r->reported_slot);
	else
		jsonw__null(w);
	jsonw__end_object(w);
	write_provenance(w, v, request, &m, d.prov);
	err = json_gaps(w, v, b, request, o->all_gaps);
	json_join(w, request_join(v, r));
	jsonw__key(w, "seqs");
	jsonw__array(w);
	for (size_t i = 0; i < r->n_seqs; i++)
		write_seq(w, &v->seqs[r->seqs[i]], o);
	jsonw__end_array(w);
	jsonw__end_object(w);
	return err;
}

int json_requests(struct jsonw *w, const struct model_view *v, struct blame *b,
		  const struct json_opts *o)
{
	uint64_t *scratch;
	size_t max = 1;
	int err = 0;

	for (size_t i = 0; i < v->n_requests; i++) {
		size_t n = request_delivery_max(v, &v->requests[i]);

		max = n > max ? n : max;
	}
	scratch = malloc(max * sizeof(*scratch));
	if (!scratch)
		return -ENOMEM;
	jsonw__key(w, "requests");
	jsonw__array(w);
	for (size_t i = 0; i < v->n_requests && !err; i++)
		err = write_request(w, v, (uint32_t)i, b, o, scratch);
	jsonw__end_array(w);
	free(scratch);
	return err;
}
