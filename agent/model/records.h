/* SPDX-License-Identifier: Apache-2.0 */
/* What the model holds: plain records, read by sinks, written by the model alone. */
#ifndef TL_RECORDS_H
#define TL_RECORDS_H

#include "parse/token_flags.h"
#include "tl_event.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Measurement points of a request (doc/metrics.md), in the order in which they usually fall.
 * 0 in rec_request.at_ns means: not known. */
enum point {
	P_CONN_OPEN, P_REQ_FIRST_BYTE, P_REQ_LAST_BYTE, P_SUBMIT, P_QUEUED, P_SCHEDULED,
	P_PREFILL_START, P_FIRST_TOKEN_ENGINE, P_HEADERS, P_FIRST_CHUNK, P_FIRST_TOKEN_WIRE,
	P_LAST_TOKEN_ENGINE, P_LAST_TOKEN_WIRE, P_DONE, P_CLOSE, N_POINTS
};
extern const char *const point_names[N_POINTS];

enum provenance { PROV_NONE = 0, PROV_OBSERVED = 1, PROV_REPORTED = 2, PROV_INFERRED = 3 };
extern const char *const provenance_names[];

enum req_state {
	REQ_OPEN = 0,		/* still under way (only while events come) */
	REQ_COMPLETE = 1,
	REQ_ABORTED = 2,	/* the client went away */
	REQ_ERROR = 3,		/* HTTP status >= 400, an error event, or the server closed early */
	REQ_TRUNCATED = 4,	/* joined late, or the capture stopped first, or sync was lost */
};
extern const char *const req_state_names[];

/* One write that carried at least one event with (what may be) output. One per
 * token: it is kept small. */
struct rec_chunk {
	int64_t since_ns : 48;	/* the request's chunks_ns: see chunk_ns() */
	uint64_t flags : 16;	/* TL_CHUNK_* */
	uint16_t write_us;
	uint16_t n_before;	/* chunks without a token between the
				 * one before and this; saturates */
} __attribute__((packed, aligned(4)));
_Static_assert(sizeof(struct rec_chunk) == 12, "most of what a model takes");

/* A value that may be unknown, and where it is from. */
struct rec_count {
	uint32_t n;
	uint8_t prov;		/* enum provenance; PROV_NONE: not known */
};

struct rec_request {
	uint32_t req;		/* number in the capture, from 1; shown as "r1" */
	uint32_t conn;
	uint32_t engine;	/* index into the model's engines */
	uint32_t tid;		/* the thread that read it, 0: not known */
	uint16_t peer_port;	/* of its connection, 0: not known */
	uint16_t n_between;	/* chunks without a token since the last one with */
	bool peer_is_local;	/* by the loopback device */
	uint8_t state;		/* enum req_state */
	uint8_t api;		/* enum tl_api */
	int8_t stream;		/* 1, 0, -1: not known */
	uint8_t method;		/* enum tl_method */
	uint8_t finish;		/* enum tl_finish */
	uint8_t body;		/* enum tl_body of the response */
	uint8_t how_ended;	/* enum tl_end */
	bool joined_late;
	bool encoded;		/* the answer is compressed: what is in it was not seen */
	uint16_t status;	/* HTTP, 0: none seen */
	uint16_t n;		/* parallel answers, as asked for or seen, at least 1 */
	uint16_t n_asked;	/* to each of its prompts; 0: not seen */
	int32_t max_tokens;	/* -1: not said */
	uint64_t body_bytes, bytes_in, bytes_out;
	uint64_t at_ns[N_POINTS];
	uint8_t prov[N_POINTS];	/* enum provenance */
	struct rec_count prompt, cached, output, reasoning;
	uint64_t reported_prefill_ns, reported_decode_ns;	/* 0: not said */
	int32_t reported_slot;	/* -1: not said */
	int32_t task;		/* the engine's number for it, -1: not known */
	uint32_t n_tokens_wire;	/* chunks with tokens: a lower bound
				 * of tokens, see doc/metrics.md */
	uint32_t n_progress;
	uint64_t chunks_ns;	/* when the first of them was written */
	struct rec_chunk *chunks;	/* chunks that may be tokens, in order */
	size_t n_chunks, cap_chunks;
	uint32_t *seqs;		/* indices into the model's sequences */
	size_t n_seqs, cap_seqs;
	char path[64], model[64], x_request_id[64], traceparent[56], id[64];
};

/* When a chunk was written. */
static inline uint64_t chunk_ns(const struct rec_request *r, size_t chunk)
{
	return r->chunks_ns + (uint64_t)r->chunks[chunk].since_ns;
}

/* A request of another kind (/metrics, /health ...): only who was busy with it, and when. */
struct rec_other {
	uint32_t req, conn;
	uint32_t engine;	/* index into the model's engines */
	uint32_t tid;		/* the thread that read it, 0: not known */
	uint16_t peer_port;	/* 0: not known */
	uint16_t status;	/* HTTP, 0: none seen */
	uint64_t begin_ns, read_ns, end_ns;	/* 0: not seen */
	uint64_t body_bytes;	/* 0: none, or not seen */
	char path[32];		/* "" if not known */
};

/* Of one sequence in one step; more is cut. Two such records per token are
 * most of a model's memory. */
enum { MAX_STEP_TOKENS = (1 << 20) - 1 };

/* A sequence's share of one step. */
struct rec_visit {
	uint32_t step;		/* index into the model's steps */
	uint32_t n_tokens : 20;
	uint32_t n_out : 8;
	uint32_t phase : 2;	/* enum tl_phase */
	uint32_t guess : 1;	/* phase or tokens are inferred */
	uint32_t again : 1;	/* of what it had computed before it was preempted */
};

enum join_method { JOIN_NONE = 0, JOIN_TASK = 1, JOIN_SLOT = 2, JOIN_COUNTS = 3, JOIN_ORDER = 4,
		   JOIN_ID = 5, N_JOINS };
extern const char *const join_method_names[];

/* A sequence lost its place and what it had computed. */
struct rec_preemption {
	uint64_t at_ns, resumed_ns;	/* resumed_ns 0: not in this recording */
	uint32_t lost_tokens;		/* had been computed, as far as sequence_knows_lost() */
	uint32_t for_seq;		/* whose growth took its place, index + 1; 0: not said */
	uint8_t prov;			/* enum provenance */
};

struct rec_sequence {
	uint32_t id;		/* from 1 */
	uint32_t engine;
	uint32_t slot;
	uint64_t begin_ns;	/* its start on the slot; of the first
				 * step seen if that was missed */
	bool joined_late;	/* its start was not seen */
	uint64_t open_ns;	/* it may have been in steps before those that it
				 * is known to have been in: from then on; 0: no */
	bool ended;		/* the slot went to another sequence */
	bool cut_by_loss;	/* events were lost behind its last step: it may have gone on */
	int32_t kept;		/* tokens from the cache, -1: not known */
	int32_t task;		/* -1: not known */
	uint32_t n_prefill;	/* tokens computed in prefill, those computed again apart */
	uint32_t n_again;	/* tokens computed again after a preemption */
	uint32_t n_decode;	/* tokens computed in decode steps */
	uint32_t n_out;		/* logits rows: output tokens, unless drafts are verified */
	uint32_t req;		/* index into the model's requests + 1; 0: not joined */
	uint8_t join;		/* enum join_method */
	uint8_t confidence_pct;	/* of the join */
	uint16_t rivals;	/* other requests (or sequences) that fitted as well */
	uint64_t queued_ns, scheduled_ns;	/* by the engine's own account, 0: not said */
	struct rec_visit *visits;
	size_t n_visits, cap_visits;
	struct rec_preemption *preemptions;
	size_t n_preemptions, cap_preemptions;
};

struct rec_member {
	uint32_t seq;		/* index into the model's sequences */
	uint32_t n_tokens : 20;
	uint32_t n_out : 8;
	uint32_t phase : 2;	/* enum tl_phase */
	uint32_t guess : 1;
	uint32_t again : 1;	/* of what it had computed before it was preempted */
};
/* Tokens as a weight: where they are not known (members inferred from launches) it is one. */
static inline uint32_t member_weight(uint32_t n_tokens)
{
	return n_tokens ? n_tokens : 1;
}

/* An engine's own account of its scheduler at the end of a step. */
struct rec_step_stats {
	uint32_t known;		/* enum tl_stats_flag */
	uint32_t running, waiting, kv_ppm, preempted;
	uint32_t prefix_queries, prefix_hits, drafted, accepted;
};
enum { MAX_REC_ENGINES = 1 << 20 };	/* processes of one recording */
struct rec_step {
	uint64_t t0_ns, t1_ns;
	uint32_t engine : 20;	/* below MAX_REC_ENGINES */
	uint32_t n_members : 12;
	uint32_t first_member;	/* index into the model's members */
	uint32_t n_tokens;
	uint32_t stats : 31;	/* index into the model's stats + 1; 0: the engine says nothing */
	uint32_t inferred : 1;	/* from launches on a GPU: the engine says nothing of steps */
};
_Static_assert(sizeof(struct rec_step) == 32, "with few streams most of what a model takes");
_Static_assert(UINT16_MAX / sizeof(struct tl_member) < 1 << 12, "members of an event have room");

struct rec_engine {
	struct tl_engine e;
	uint64_t exit_ns;	/* 0: still there */
	uint32_t exit_code;	/* as wait(2) reports it */
	bool io_uring;
	uint32_t n_slots;	/* of llama.cpp: those that were seen, by their number; 0: not known */
};

struct rec_lost {
	uint64_t since_ns, until_ns, n;
	uint16_t where, what;
};

#endif
