/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the model: what its files share and nobody else sees. */
#ifndef TL_MODEL_STATE_H
#define TL_MODEL_STATE_H

#include "base/map.h"
#include "model/evidence.h"
#include "model/gpu_priv.h"
#include "model/model.h"

/* Where a request number leads; from REQ_EMBRYO on, to an embryo. */
enum { REQ_NOWHERE = 0, REQ_IS_OTHER = UINT32_MAX, REQ_NOT_KEPT = UINT32_MAX - 1,
       REQ_EMBRYO = 3u << 30 };

/* What the model knows of one slot of one engine. */
struct slot_state {
	uint32_t seq;		/* index + 1 of the sequence on it, 0: none */
};

struct engine_state {
	struct slot_state *slots;	/* by slot number */
	size_t n_slots, cap_slots;
};

enum { MAX_SLOT = 1 << 20 };	/* slot numbers above are counted and skipped */

/* Growable arrays of the model: `n` used of `cap`. */
struct model {
	struct model_opts opts;
	struct model_view v;	/* the counters; its pointers are set by model__view */

	struct tl_host host;
	struct tl_self self;
	bool has_host, has_self, finished;

	struct rec_request *requests;
	size_t cap_requests;
	struct rec_sequence *seqs;
	size_t cap_seqs;
	struct rec_step *steps;
	size_t cap_steps;
	struct rec_step_stats *stats;
	size_t n_stats, cap_stats;
	struct rec_member *members;
	size_t cap_members;
	struct rec_engine *engines;
	struct engine_state *engine_states;
	struct map *engine_of;		/* tgid -> index of the engine that has it now */
	size_t cap_engines, cap_engine_states;
	struct rec_lost *lost;
	size_t cap_lost;
	struct rec_other *others;
	size_t cap_others;

	struct evidence evidence;
	struct gpu_log gpu_log;		/* launches and spans as they came,
					 * until the model is finished */
	struct gpu_facts gpu;

	uint32_t *by_number;	/* request number -> index + 1, or one
				 * of REQ_*, or that + an index */
	size_t n_by_number, cap_by_number;
	uint64_t last_chunk_ns;	/* when the latest one was written */
	uint32_t *last_of_conn;	/* connection number -> index + 1 of its last request */
	size_t n_last_of_conn, cap_last_of_conn;
	struct peer {
		uint16_t port;
		bool is_local;
	} *peers;		/* of a connection, by its number */
	size_t n_peers, cap_peers;

	/* Requests joined late, not yet known to be of an LLM: at most one per connection. */
	struct rec_request *embryos;
	size_t n_embryos, cap_embryos;
};

/* Makes room for n + 1 elements of `size` bytes in *p. Returns 0 or -ENOMEM. */
int model_grow(void *p, size_t *cap, size_t n, size_t size);
#define GROW(arr, cap, n) model_grow(&(arr), &(cap), (n), sizeof(*(arr)))

/* Gives back room that nothing will be put into. */
void model_trim(void *p, size_t *cap, size_t n, size_t size);
#define TRIM(arr, cap, n) model_trim(&(arr), &(cap), (n), sizeof(*(arr)))

/* The engine of a process; made known if it is not yet. NULL: out of memory. */
struct rec_engine *model_engine(struct model *m, uint32_t tgid, uint32_t *ret_index);

/* requests.c: 0 or -ENOMEM */
int request_on_begin(struct model *m, const struct tl_req_begin *e);
int request_on_facts(struct model *m, const struct tl_req_facts *e);
int request_on_resp(struct model *m, const struct tl_resp_begin *e);
int request_on_chunk(struct model *m, const struct tl_chunk *e);
int request_on_usage(struct model *m, const struct tl_usage *e);
int request_on_end(struct model *m, const struct tl_req_end *e);
int request_on_conn(struct model *m, const struct tl_conn *e);
void request_on_submit(struct model *m, const struct tl_seq_link *e);
/* The kept request with this number, NULL: none. */
struct rec_request *request_find(struct model *m, uint32_t req);
void request_finish_all(struct model *m);

/* others.c: requests that are no LLM's. 0 or -ENOMEM */
int other_on_begin(struct model *m, const struct rec_request *r);
void other_on_facts(struct model *m, const struct tl_req_facts *e);
void other_on_end(struct model *m, const struct tl_req_end *e);

/* steps.c: 0 or -ENOMEM */
int step_on_step(struct model *m, const struct tl_step *e);
int step_on_seq_begin(struct model *m, const struct tl_seq_begin *e);
int step_on_seq_end(struct model *m, const struct tl_seq_end *e);
int step_on_launch(struct model *m, const struct tl_seq_link *e);
int step_on_id(struct model *m, const struct tl_seq_link *e);
int step_on_point(struct model *m, const struct tl_seq_point *e);
int step_on_preempt(struct model *m, const struct tl_seq_preempt *e);
int step_on_stats(struct model *m, const struct tl_step_stats *e);
int step_infer_preemptions(struct model *m);

void visit_counts(struct rec_sequence *q, const struct rec_visit *v);	/* adds to its sums */

/* again.c: prompts computed anew behind a preemption that nobody told of */
void infer_again(struct model *m);

/* parked.c: places that sequences lost without a word. 0 or -ENOMEM */
int infer_parked(struct model *m);

/* losses.c: sequences that go on behind lost events are split there. 0 or -ENOMEM */
int split_at_losses(struct model *m);

/* join.c: 0 or -ENOMEM */
int join_request(struct model *m, uint32_t req_index, uint32_t seq_index, enum join_method method,
		 unsigned confidence_pct, unsigned rivals);
int join_rest(struct model *m);		/* the weaker methods, for what is still apart */
void join_points(struct model *m);	/* engine-side points and counts of joined requests */

#endif
