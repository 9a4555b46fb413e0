/* SPDX-License-Identifier: Apache-2.0 */
/* A server, its threads and devices in ms, fed to a model: what clues are tested with. */
#ifndef TL_CLUES_FEED_H
#define TL_CLUES_FEED_H

#include "unit.h"

#include "model/clues.h"
#include "oom.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEED_API = 100, FEED_CORE = 200, FEED_FRONT = 101, FEED_LOOP = 200, FEED_CGROUP = 40 };

struct feed {
	struct model *m;
	struct model_view v;
	struct clues *c;
};

static inline uint64_t at(double ms)
{
	return (uint64_t)((10000 + ms) * 1e6 + 0.5);
}

static inline uint64_t len(double ms)
{
	return (uint64_t)(ms * 1e6 + 0.5);
}

#define FEED_HDR(ev, kind, flags, tgid, tid, ts) { sizeof(ev), kind, flags, tgid, tid, ts }
#define FEED(f, ev) assert_int_equal(model__feed((f)->m, &(ev).hdr), 0)

static inline void feed_engine(struct feed *f, uint32_t tgid, uint32_t server)
{
	struct tl_engine e = { .hdr = FEED_HDR(e, TL_ENGINE, 0, tgid, tgid, at(-1000)), .start_ns = 1,
			       .engine = TL_ENGINE_VLLM, .server = server };

	FEED(f, e);
}

static inline void feed_thread(struct feed *f, uint32_t tgid, uint32_t tid, uint16_t role, int16_t rank,
			       const char *name)
{
	struct tl_thread e = { .hdr = FEED_HDR(e, TL_THREAD, 0, tgid, tid, at(-999)), .role = role,
			       .rank = rank, .server = FEED_API, .cgroup = FEED_CGROUP,
			       .cgroup_path = "/engines.slice/llm.service" };

	snprintf(e.name, sizeof(e.name), "%s", name);
	FEED(f, e);
}

/* A front end and an engine in processes of their own, a thread each. */
static inline struct feed *feed__new(void)
{
	struct feed *f = calloc(1, sizeof(*f));

	f->m = model__new(NULL);
	assert_non_null(f->m);
	feed_engine(f, FEED_API, FEED_API);
	feed_engine(f, FEED_CORE, FEED_API);
	feed_thread(f, FEED_CORE, FEED_LOOP, TL_ROLE_ENGINE, -1, "engine");
	feed_thread(f, FEED_API, FEED_FRONT, TL_ROLE_FRONT, -1, "front");
	return f;
}

static inline void feed__free(struct feed *f)
{
	clues__free(f->c);
	model__free(f->m);
	free(f);
}

static inline void feed_done(struct feed *f)
{
	assert_int_equal(model__finish(f->m), 0);
	model__view(f->m, &f->v);
	assert_int_equal(clues__new(&f->v, &f->c), 0);
}

static inline int feed_setup(void **state)
{
	*state = feed__new();
	return 0;
}

static inline int feed_teardown(void **state)
{
	feed__free(*state);
	return 0;
}

/* Sequences 0 to n - 1 decode a token each; `prefill` tokens of one more, if any. */
static inline void feed_step(struct feed *f, double t0, double t1, uint16_t n, uint32_t prefill)
{
	static union { struct tl_step s; char room[sizeof(struct tl_step) + 64 * sizeof(struct tl_member)]; } u;

	memset(&u, 0, sizeof(u));
	u.s = (struct tl_step){ .hdr = { 0, TL_STEP, 0, FEED_CORE, FEED_LOOP, at(t0) }, .end_ns = at(t1),
				.n_members = n + (prefill > 0), .n_tokens = n + prefill };
	u.s.hdr.size = sizeof(u.s) + u.s.n_members * sizeof(struct tl_member);
	for (uint16_t i = 0; i < n; i++)
		u.s.members[i] = (struct tl_member){ i, 1, -1, TL_DECODE, 1, 0 };
	if (prefill)
		u.s.members[n] = (struct tl_member){ n, prefill, -1, TL_PREFILL, 1, 0 };
	FEED(f, u.s);
}

static inline struct tl_thread_span feed_span_of(uint32_t tgid, uint32_t tid, double t0, double t1,
						 uint16_t state)
{
	struct tl_thread_span e = { .hdr = FEED_HDR(e, TL_THREAD_SPAN, 0, tgid, tid, at(t1)),
				    .since_ns = at(t0), .state = state };

	return e;
}

static inline void feed_span(struct feed *f, uint32_t tid, double t0, double t1, uint16_t state)
{
	struct tl_thread_span e = feed_span_of(tid == FEED_LOOP ? FEED_CORE : FEED_API, tid, t0, t1, state);

	FEED(f, e);
}

static inline void feed_code(struct feed *f, uint32_t tgid, uint32_t tid, double t0, double t1, uint16_t code,
			     uint16_t n, uint16_t of, uint32_t req, const char *frame)
{
	struct tl_code e = { .hdr = FEED_HDR(e, TL_CODE, 0, tgid, tid, at(t1)), .since_ns = at(t0),
			     .code = code, .n_samples = n, .of_samples = of, .req = req };

	snprintf(e.frame, sizeof(e.frame), "%s", frame);
	FEED(f, e);
}

static inline void feed_throttle(struct feed *f, double t0, double t1, double throttled)
{
	struct tl_throttle e = { .hdr = FEED_HDR(e, TL_THROTTLE, 0, 0, 0, at(t1)), .since_ns = at(t0),
				 .cgroup = FEED_CGROUP, .throttled_ns = len(throttled), .n_throttled = 1,
				 .n_periods = 1, .quota_us = 1720000, .period_us = 200000,
				 .by_tgid = FEED_CORE, .by_threads = 86, .by_name = "xgrammar-comp",
				 .path = "/engines.slice/llm.service" };

	FEED(f, e);
}

/* A request that is read from t0 to `read` by the front end's thread, on a connection that is known. */
static inline void feed_request_on(struct feed *f, uint32_t req, double t0, double read, uint64_t body_bytes)
{
	struct tl_req_begin b = { .hdr = FEED_HDR(b, TL_REQ_BEGIN, TL_API_CHAT, FEED_API, FEED_FRONT, at(t0)),
				  .req = req, .conn = req };
	struct tl_req_facts e = { .hdr = FEED_HDR(e, TL_REQ_FACTS, 0, FEED_API, FEED_FRONT, at(read)),
				  .req = req, .max_tokens = -1, .api = TL_API_CHAT, .stream = 1,
				  .method = TL_POST, .body_bytes = body_bytes };

	FEED(f, b);
	FEED(f, e);
}

static inline void feed_request(struct feed *f, uint32_t req, double t0, double read, uint64_t body_bytes)
{
	struct tl_conn open = { .hdr = FEED_HDR(open, TL_CONN, 0, FEED_API, FEED_FRONT, at(t0)),
				.conn = req, .what = TL_CONN_OPEN, .peer_port = 40000 + req };

	FEED(f, open);
	feed_request_on(f, req, t0, read, body_bytes);
}

static inline void feed_refused(struct feed *f, uint32_t req, double t)
{
	struct tl_resp_begin b = { .hdr = FEED_HDR(b, TL_RESP_BEGIN, 0, FEED_API, FEED_FRONT, at(t)),
				   .req = req, .status = 400, .body = TL_BODY_JSON };
	struct tl_req_end e = { .hdr = FEED_HDR(e, TL_REQ_END, 0, FEED_API, FEED_FRONT, at(t)), .req = req,
				.how = TL_END_COMPLETE, .status = 400 };

	FEED(f, b);
	FEED(f, e);
}

static inline void feed_chunk(struct feed *f, uint32_t req, double t, uint32_t flags)
{
	struct tl_chunk e = { .hdr = FEED_HDR(e, TL_CHUNK, flags, FEED_API, FEED_FRONT, at(t)), .req = req,
			      .bytes = 250, .write_us = 10 };

	FEED(f, e);
}

static inline uint32_t core_of(const struct feed *f)
{
	for (uint32_t i = 0; i < f->v.n_engines; i++)
		if (f->v.engines[i].e.hdr.tgid == FEED_CORE)
			return i;
	return UINT32_MAX;
}

static inline struct clue_list engine_clues(const struct feed *f, double t0, double t1)
{
	struct clue_list l;

	clues__engine(f->c, core_of(f), at(t0), at(t1), &l);
	return l;
}

static inline struct clue_list front_clues(const struct feed *f, double t0, double t1, uint32_t self)
{
	struct clue_list l;

	clues__front(f->c, 0, at(t0), at(t1), self, &l);
	return l;
}

/* The list holds exactly one clue, and that is this. */
static inline const struct clue *only(const struct clue_list *l, enum mechanism m, double ms)
{
	assert_int_equal(l->n, 1);
	assert_string_equal(mechanism_names[l->v[0].mechanism], mechanism_names[m]);
	assert_int_equal(l->v[0].ns, len(ms));
	return &l->v[0];
}

/* Of a mechanism so much in all. */
static inline uint64_t sum_of(const struct clue_list *l, enum mechanism m)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < l->n; i++)
		ns += l->v[i].mechanism == m ? l->v[i].ns : 0;
	return ns;
}

/* What was fed: clues are made of it, or -ENOMEM is told and nothing leaks, whichever allocation fails. */
static inline void clues_survive_oom(struct feed *f)
{
	int err = -1;

	assert_int_equal(model__finish(f->m), 0);
	model__view(f->m, &f->v);
	OOM_LOOP({
		struct clues *c = NULL;

		err = clues__new(&f->v, &c);
		assert_true(err == 0 ? c != NULL : err == -ENOMEM && !c);
		clues__free(c);
	});
	assert_int_equal(err, 0);
}

#endif
