/* SPDX-License-Identifier: Apache-2.0 */
/* A small server that fills a fake view: two slots, decode first, prefill in batches. */
#ifndef TL_FAKE_SERVER_H
#define TL_FAKE_SERVER_H

#include "fake_view.h"

struct fake_job {
	double at_ms;
	uint32_t prompt, cached, output;
	bool stream;
	bool joined_late;
	/* the server's */
	struct rec_request *r;
	uint32_t seq, prefilled, made;
	bool on_slot, over;
};

enum { FAKE_SLOTS = 2, FAKE_N_BATCH = 256 };

static inline void fake_start(struct fake *f, struct fake_job *j, uint32_t slot, double now)
{
	j->seq = fake_seq(f, j->r, slot);
	j->on_slot = true;
	f->seqs[j->seq].kept = (int32_t)j->cached;
	f->seqs[j->seq].begin_ns = fake_ns(now);
	if (!j->joined_late) {
		fake_point(j->r, P_SCHEDULED, now);
		return;
	}
	f->seqs[j->seq].joined_late = true;
	f->seqs[j->seq].kept = -1;
	j->prefilled = j->prompt;
	j->made = 1;
}

static inline void fake_token(struct fake *f, struct fake_job *j, double now)
{
	if (j->stream)
		fake_chunk(j->r, now + 0.3, TL_CHUNK_TEXT);
	if (++j->made < j->output)
		return;
	j->over = true;
	j->on_slot = false;
	fake_done(f, j->r, now + 0.6);
}

/* One step: all decoding jobs, then prefill up to the batch. Returns its end. */
static inline double fake_run_step(struct fake *f, struct fake_job *jobs, size_t n, double now)
{
	uint32_t tokens = 0, what[FAKE_MAX] = { 0 };
	double end;

	for (size_t i = 0; i < n; i++)
		if (jobs[i].on_slot && jobs[i].made)
			tokens += what[i] = 1;
	for (size_t i = 0; i < n; i++) {
		uint32_t left = jobs[i].prompt - jobs[i].cached - jobs[i].prefilled;

		if (!jobs[i].on_slot || jobs[i].made || tokens >= FAKE_N_BATCH)
			continue;
		what[i] = left < FAKE_N_BATCH - tokens ? left : FAKE_N_BATCH - tokens;
		tokens += what[i];
	}
	if (!tokens)
		return now;
	end = now + 4 + 0.2 * tokens;
	fake_step(f, now, end);
	for (size_t i = 0; i < n; i++) {
		struct fake_job *j = &jobs[i];
		bool decode = j->made > 0, last;

		if (!what[i])
			continue;
		j->prefilled += decode ? 0 : what[i];
		last = j->prefilled == j->prompt - j->cached || j->joined_late;
		fake_member(f, j->seq, decode ? 'd' : last ? 'P' : 'p', what[i]);
		if (decode || last)
			fake_token(f, j, end);
	}
	return end + 0.2;
}

static inline void fake_arrive(struct fake *f, struct fake_job *j)
{
	j->r = fake_request(f, j->at_ms);
	j->r->prompt = fake_count(j->prompt);
	j->r->cached = fake_count(j->cached);
	j->r->output = fake_count(j->output);
	j->r->finish = TL_FINISH_LENGTH;
	j->r->max_tokens = (int32_t)j->output;
	if (!j->stream) {
		j->r->stream = 0;
		j->r->body = TL_BODY_JSON;
	}
	if (j->joined_late) {
		j->r->joined_late = true;
		j->r->state = REQ_TRUNCATED;
		j->r->at_ns[P_REQ_FIRST_BYTE] = 0;
		j->r->prompt.prov = j->r->cached.prov = PROV_NONE;
		j->r->stream = 1;
		j->r->path[0] = j->r->model[0] = '\0';
		return;
	}
	fake_point(j->r, P_CONN_OPEN, j->at_ms - 0.2);
	fake_point(j->r, P_REQ_LAST_BYTE, j->at_ms + 0.1);
	fake_point(j->r, P_SUBMIT, j->at_ms + 1);
	fake_point(j->r, P_HEADERS, j->at_ms + 1.5);
}

/* Jobs are in order of arrival. */
static inline void fake_serve(struct fake *f, struct fake_job *jobs, size_t n)
{
	double now = jobs[0].at_ms;
	size_t left = n;

	for (size_t i = 0; i < n; i++)
		fake_arrive(f, &jobs[i]);
	while (left && f->v.n_steps < FAKE_MAX_STEPS) {
		bool used[FAKE_SLOTS] = { false };
		double next = 1e12;

		for (size_t i = 0; i < n; i++)
			if (jobs[i].on_slot)
				used[f->seqs[jobs[i].seq].slot] = true;
		for (size_t i = 0; i < n; i++)
			for (uint32_t s = 0; s < FAKE_SLOTS; s++)
				if (!used[s] && !jobs[i].on_slot && !jobs[i].over &&
				    jobs[i].at_ms + 1 <= now) {
					fake_start(f, &jobs[i], s, now);
					used[s] = true;
				}
		left = 0;
		for (size_t i = 0; i < n; i++) {
			left += !jobs[i].over;
			if (!jobs[i].over && !jobs[i].on_slot && jobs[i].at_ms + 1 < next)
				next = jobs[i].at_ms + 1;
		}
		if (used[0] || used[1])
			now = fake_run_step(f, jobs, n, now);
		else if (left && next > now)
			now = next;
	}
}

#endif
