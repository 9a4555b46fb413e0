/* SPDX-License-Identifier: Apache-2.0 */
/* Model views written by hand, in ms: what sinks and summaries are tested with. */
#ifndef TL_FAKE_VIEW_H
#define TL_FAKE_VIEW_H

#include "model/model.h"
#include "oom.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAKE_T0_MS = 1000, FAKE_MAX = 64, FAKE_MAX_STEPS = 2000 };

struct fake {
	struct model_view v;
	struct tl_host host;
	struct tl_self self;
	struct rec_engine engines[2];
	struct rec_request reqs[FAKE_MAX];
	struct rec_sequence seqs[FAKE_MAX];
	struct rec_step steps[FAKE_MAX_STEPS];
	struct rec_step_stats stats[FAKE_MAX_STEPS];	/* of the step with the same index */
	struct rec_member members[4 * FAKE_MAX_STEPS];
	struct rec_lost lost[4];
};

/* Times of fakes are ms since the start of the recording. */
static inline uint64_t fake_ns(double ms)
{
	return (uint64_t)((FAKE_T0_MS + ms) * 1e6 + 0.5);
}

static inline struct fake *fake__new(void)
{
	struct fake *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->host = (struct tl_host){ .hdr.ts_ns = fake_ns(0), .realtime_ns = 1700000000000000000,
				    .n_cpus = 2, .tiers = TL_T0 | TL_T1 };
	strcpy(f->host.kernel, "6.1.0-test");
	strcpy(f->host.hostname, "box");
	strcpy(f->host.tool, "0.1.0");
	f->engines[0].e = (struct tl_engine){ .hdr.tgid = 4242, .engine = TL_ENGINE_LLAMA,
					      .tiers = TL_T0 | TL_T1, .n_ports = 1,
					      .ports = { 8080 } };
	strcpy(f->engines[0].e.version, "b4567");
	strcpy(f->engines[0].e.role, "server");
	strcpy(f->engines[0].e.step_source, "uprobe llama_process");
	f->v = (struct model_view){ .host = &f->host, .t0_ns = fake_ns(0), .t1_ns = fake_ns(0),
				    .stop = TL_STOP_DONE, .requests = f->reqs, .seqs = f->seqs,
				    .steps = f->steps, .stats = f->stats, .members = f->members, .engines = f->engines,
				    .lost = f->lost, .n_engines = 1 };
	return f;
}

static inline void fake__free(struct fake *f)
{
	for (size_t i = 0; i < f->v.n_requests; i++) {
		free(f->reqs[i].chunks);
		free(f->reqs[i].seqs);
	}
	for (size_t i = 0; i < f->v.n_seqs; i++) {
		free(f->seqs[i].visits);
		free(f->seqs[i].preemptions);
	}
	free(f);
}

static inline void fake_point(struct rec_request *r, enum point p, double ms)
{
	r->at_ns[p] = fake_ns(ms);
	r->prov[p] = PROV_OBSERVED;
}

static inline struct rec_count fake_count(uint32_t n)
{
	return (struct rec_count){ n, PROV_REPORTED };
}

/* A streamed chat request, complete, with nothing known but its begin. */
static inline struct rec_request *fake_request(struct fake *f, double begin_ms)
{
	struct rec_request *r = &f->reqs[f->v.n_requests++];

	r->req = (uint32_t)f->v.n_requests;
	r->conn = r->req;
	r->state = REQ_COMPLETE;
	r->api = TL_API_CHAT;
	r->stream = 1;
	r->body = TL_BODY_SSE;
	r->method = TL_POST;
	r->how_ended = TL_END_COMPLETE;
	r->status = 200;
	r->n = 1;
	r->max_tokens = -1;
	r->reported_slot = r->task = -1;
	strcpy(r->path, "/v1/chat/completions");
	strcpy(r->model, "tiny");
	snprintf(r->id, sizeof(r->id), "chatcmpl-%04x", 0xa000 + r->req);
	fake_point(r, P_REQ_FIRST_BYTE, begin_ms);
	return r;
}

static inline void fake_end(struct fake *f, double ms)
{
	if (fake_ns(ms) > f->v.t1_ns)
		f->v.t1_ns = fake_ns(ms);
}

static inline void fake_done(struct fake *f, struct rec_request *r, double ms)
{
	fake_point(r, P_DONE, ms);
	fake_end(f, ms);
}

static inline void fake_chunk(struct rec_request *r, double ms, uint32_t flags)
{
	struct rec_chunk *c;

	r->chunks = realloc(r->chunks, (r->n_chunks + 1) * sizeof(*r->chunks));
	if (!r->chunks)
		abort();
	c = &r->chunks[r->n_chunks++];
	*c = (struct rec_chunk){ .since_ns = (int64_t)fake_ns(ms), .flags = flags };
	if (!r->at_ns[P_FIRST_CHUNK])
		fake_point(r, P_FIRST_CHUNK, ms);
	if (!(flags & TL_CHUNK_TOKEN))
		return;
	r->n_tokens_wire++;
	if (!r->at_ns[P_FIRST_TOKEN_WIRE] && !r->joined_late)
		fake_point(r, P_FIRST_TOKEN_WIRE, ms);
	fake_point(r, P_LAST_TOKEN_WIRE, ms);
}

/* A sequence of that request (NULL: of none), to be put into steps. Returns its index. */
static inline uint32_t fake_seq(struct fake *f, struct rec_request *r, uint32_t slot)
{
	struct rec_sequence *s = &f->seqs[f->v.n_seqs++];

	s->id = (uint32_t)f->v.n_seqs;
	s->slot = slot;
	s->kept = 0;
	s->task = -1;
	if (r) {
		s->req = r->req;
		s->join = JOIN_TASK;
		s->confidence_pct = 100;
		r->seqs = realloc(r->seqs, (r->n_seqs + 1) * sizeof(*r->seqs));
		if (!r->seqs)
			abort();
		r->seqs[r->n_seqs++] = s->id - 1;
	}
	return s->id - 1;
}

static inline void fake_step(struct fake *f, double t0_ms, double t1_ms)
{
	f->steps[f->v.n_steps++] = (struct rec_step){
		.t0_ns = fake_ns(t0_ms), .t1_ns = fake_ns(t1_ms),
		.first_member = (uint32_t)f->v.n_members,
	};
	fake_end(f, t1_ms);
}

static inline struct rec_step_stats *fake_stats_of(struct fake *f, size_t step)
{
	f->steps[step].stats = (uint32_t)step + 1;
	return &f->stats[step];
}

/* What the engine says at the end of the last step. */
static inline void fake_stats(struct fake *f, double kv_pct, uint32_t running, uint32_t waiting)
{
	struct rec_step_stats *s = fake_stats_of(f, f->v.n_steps - 1);

	s->known = TL_STATS_KV | TL_STATS_QUEUES;
	s->kv_ppm = (uint32_t)(kv_pct * 1e4 + 0.5);
	s->running = running;
	s->waiting = waiting;
}

/* resumed_ms <= at_ms: not in the recording */
static inline void fake_preempt(struct fake *f, uint32_t seq, double at_ms, double resumed_ms,
				uint32_t lost)
{
	struct rec_sequence *s = &f->seqs[seq];

	s->preemptions = realloc(s->preemptions, (s->n_preemptions + 1) * sizeof(*s->preemptions));
	if (!s->preemptions)
		abort();
	s->preemptions[s->n_preemptions++] = (struct rec_preemption){
		.at_ns = fake_ns(at_ms), .resumed_ns = resumed_ms > at_ms ? fake_ns(resumed_ms) : 0,
		.lost_tokens = lost, .prov = PROV_REPORTED,
	};
}

/* Puts a sequence into the last step. 'p': prefill of n tokens, no output; 'P': its last part, with
 * the first token; 'a' and 'A': the same of what it computes again; 'd': decode of n tokens, all of
 * them output. */
static inline void fake_member(struct fake *f, uint32_t seq, char what, uint32_t n)
{
	struct rec_sequence *s = &f->seqs[seq];
	struct rec_step *st = &f->steps[f->v.n_steps - 1];
	uint16_t n_out = what == 'd' ? (uint16_t)n : what == 'P' || what == 'A';
	bool again = what == 'a' || what == 'A';
	uint8_t phase = what == 'd' ? TL_DECODE : TL_PREFILL;
	struct rec_request *r = s->req ? &f->reqs[s->req - 1] : NULL;

	f->members[f->v.n_members++] = (struct rec_member){
		.seq = seq, .n_tokens = n, .phase = phase, .n_out = n_out, .again = again,
	};
	st->n_members++;
	st->n_tokens += n;
	s->visits = realloc(s->visits, (s->n_visits + 1) * sizeof(*s->visits));
	if (!s->visits)
		abort();
	s->visits[s->n_visits++] = (struct rec_visit){
		.step = (uint32_t)f->v.n_steps - 1, .n_tokens = n, .n_out = n_out, .phase = phase,
		.again = again,
	};
	if (!s->begin_ns)
		s->begin_ns = st->t0_ns;
	s->n_out += n_out;
	*(again ? &s->n_again : phase == TL_DECODE ? &s->n_decode : &s->n_prefill) += n;
	if (!r)
		return;
	if (!r->at_ns[P_PREFILL_START] && phase == TL_PREFILL) {
		r->at_ns[P_PREFILL_START] = st->t0_ns;
		r->prov[P_PREFILL_START] = PROV_OBSERVED;
	}
	if (n_out && !r->at_ns[P_FIRST_TOKEN_ENGINE] && !s->joined_late) {
		r->at_ns[P_FIRST_TOKEN_ENGINE] = st->t1_ns;
		r->prov[P_FIRST_TOKEN_ENGINE] = PROV_OBSERVED;
	}
	if (n_out) {
		r->at_ns[P_LAST_TOKEN_ENGINE] = st->t1_ns;
		r->prov[P_LAST_TOKEN_ENGINE] = PROV_OBSERVED;
	}
}

#endif
