/* SPDX-License-Identifier: Apache-2.0 */
/* What messages between vLLM's API server and its engine mean: ids, counts and times. Pure.
 *
 * Told by shape, not by version: vLLM 0.7 to 0.33 and what resembles them. No token id and no text
 * of a prompt or an answer is handed out. Payloads may be cut, and what they claim may be a lie. */
#ifndef TL_VLLM_MSG_H
#define TL_VLLM_MSG_H

#include "parse/msgpack_in.h"
#include "parse/zmtp.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vllm_kind {
	VLLM_NONE = 0,		/* nothing that we know */
	VLLM_ADD, VLLM_ABORT, VLLM_WAVE, VLLM_UTILITY,	/* API server to engine */
	VLLM_OUTPUTS,		/* engine to API server: one engine step, or utility or wave */
	VLLM_HELLO,		/* an engine registers */
	VLLM_DEAD,		/* the engine died */
};
/* Kind of a message, with or without the identity frame that a ROUTER socket is given; *ret_body is
 * the frame to be read by the function for that kind. Those behind it hold tensors. */
enum vllm_kind vllm_msg_kind(const struct zmtp_frame *frames, size_t n,
			     const struct zmtp_frame **ret_body);

enum vllm_flag {
	VLLM_CUT = 1 << 0,	/* its end was missing: what was not found may be there */
	VLLM_SHAPE = 1 << 1,	/* a shape that we do not know: what was not found may be there */
};

/* An id where it lies in the payload, no NUL; len 0: none. */
struct vllm_id {
	const char *p;
	size_t len;
};

struct vllm_ids {		/* several of them */
	struct mpin at;
	uint32_t left;
};
bool vllm_msg_next_id(struct vllm_ids *ids, struct vllm_id *ret);
/* Payload of an ABORT. -EPROTO: it is none. */
int vllm_msg_abort(const void *data, size_t len, struct vllm_ids *ret);

/* ---- a request ---- */

struct vllm_add {
	struct vllm_id id;	/* the engine's */
	struct vllm_id external; /* the API server's; none before 0.14 */
	int64_t n_prompt;	/* tokens of the prompt; -1: unknown */
	uint64_t arrival_ns;	/* CLOCK_REALTIME; 0: unknown */
	int32_t client_index;	/* which API server; -1: not said */
	int32_t max_tokens;	/* -1: not said (vLLM leaves its default of 16 out) */
	int32_t n;		/* 0: not said (means 1) */
	int32_t lora;		/* number of the adapter that it asks for, 0: none */
	int32_t priority;	/* less goes first; 0, too, if it is not said */
	uint8_t flags;		/* VLLM_CUT, VLLM_SHAPE */
};
/* Payload of an ADD. -EPROTO: it is none, or its id is not whole. */
int vllm_msg_add(const void *data, size_t len, struct vllm_add *ret);

/* ---- an engine that is ready (from 0.20 on) ---- */

struct vllm_ready {		/* 0: not said */
	uint32_t max_step_tokens, max_seqs;	/* limits of one step, after all that the command
						 * line and the configuration made of them */
};
/* Payload of a HELLO. -EPROTO: it says nothing of this. */
int vllm_msg_ready(const void *data, size_t len, struct vllm_ready *ret);

/* ---- outputs of an engine step ---- */

enum vllm_stat {		/* which fields of vllm_stats are known */
	VLLM_STAT_RUNNING = 1 << 0,
	VLLM_STAT_WAITING = 1 << 1,
	VLLM_STAT_SKIPPED = 1 << 2,
	VLLM_STAT_KV = 1 << 3,
	VLLM_STAT_PREFIX = 1 << 4,
	VLLM_STAT_SPEC = 1 << 5,
	VLLM_STAT_ITERATION = 1 << 6,
	VLLM_STAT_GRAPH = 1 << 7,
};
/* State of the scheduler at the end of the step; counters are those of this step alone. */
struct vllm_stats {
	uint32_t known;		/* enum vllm_stat */
	uint64_t running, waiting, skipped;	/* requests; skipped: waiting for more than room */
	double kv_usage;	/* 0..1 */
	struct {		/* of requests first scheduled in this step; of those resumed */
		uint64_t requests, queries, hits;	/* queries, hits: tokens */
		uint64_t preempted_requests, preempted_queries, preempted_hits;
	} prefix;
	struct {
		uint64_t drafts, draft_tokens, accepted_tokens;
	} spec;
	struct {		/* only with --enable-logging-iteration-details */
		uint64_t index, prefill_requests, prefill_tokens, decode_requests, decode_tokens;
		double elapsed_ms;
		bool dummy;
	} iteration;
	struct {		/* only with --cudagraph-metrics */
		uint64_t tokens, padded_tokens;
	} graph;
};

struct vllm_outputs {
	int32_t engine;		/* index of the engine; -1: not said (0.7) */
	uint32_t n_rows;	/* as the message claims */
	uint64_t timestamp_ns;	/* CLOCK_MONOTONIC of the engine's host; 0: unknown */
	bool has_stats;
	bool utility;		/* carries the reply to a UTILITY, or control of a wave: no step */
	bool wave;		/* the latter: a wave of data parallelism begins or ends */
	uint8_t flags;		/* VLLM_CUT, VLLM_SHAPE: of the message, not of its rows */
	struct vllm_stats stats;	/* if has_stats */
	struct vllm_ids finished; /* requests that ended, if the API server is told of others' */
	struct mpin rows;	/* the next row ... */
	uint32_t rows_left;	/* ... and how many: for vllm_msg_next_row() */
};
/* Payload of an OUTPUTS message. -EPROTO: it is none. */
int vllm_msg_outputs(const void *data, size_t len, struct vllm_outputs *ret);

enum vllm_finish {		/* vLLM's own numbers */
	VLLM_NOT_FINISHED = -1,
	VLLM_FINISH_STOP = 0, VLLM_FINISH_LENGTH = 1, VLLM_FINISH_ABORT = 2, VLLM_FINISH_ERROR = 3,
	VLLM_FINISH_REPETITION = 4,
};
enum vllm_stop { VLLM_STOP_NOT_SAID, VLLM_STOP_TOKEN, VLLM_STOP_TEXT };

enum vllm_event_type { VLLM_QUEUED = 1, VLLM_SCHEDULED = 2, VLLM_PREEMPTED = 3 };
struct vllm_event {
	uint32_t type;		/* enum vllm_event_type, or one we do not know */
	uint64_t ts_ns;		/* CLOCK_MONOTONIC; 0: unknown */
};
struct vllm_events {
	struct mpin at;
	uint32_t left;
};
bool vllm_msg_next_event(struct vllm_events *events, struct vllm_event *ret);

/* One request's part of the step. */
struct vllm_row {
	struct vllm_id id;	/* len 0: the row has no id that we can read */
	int32_t n_tokens;	/* new output tokens; -1: unknown */
	int8_t finish;		/* enum vllm_finish */
	uint8_t stop;		/* enum vllm_stop: what stopped it */
	uint8_t flags;		/* VLLM_CUT, VLLM_SHAPE */
	bool has_prefill;	/* first output since it was scheduled: */
	struct {		/* tokens of its prompt; -1: not said */
		int64_t prompt, computed, cached, cached_local, cached_external;
	} prefill;
	int64_t n_cached;	/* prompt tokens from a cache, however it was said; -1: not said */
	struct vllm_events events;
};
/* The rows, once each, in order. A cut message ends early: then n_rows says more. */
bool vllm_msg_next_row(struct vllm_outputs *o, struct vllm_row *ret);

/* ---- ids ---- */

/* The names under which one sequence is known, each a part of the engine's id. */
struct vllm_names {
	struct vllm_id sequence; /* without the number of a child: shared by n > 1 siblings */
	struct vllm_id external; /* and without the engine's suffix of 8 hex digits */
	struct vllm_id http;	/* and without the number of a prompt in a list: what HTTP shows */
	int32_t child;		/* its number with n > 1; -1: none */
	int32_t prompt;		/* number of the prompt in a list; -1: none */
};
void vllm_msg_names(struct vllm_id id, struct vllm_names *ret);
/* Without what may be the number of a prompt: the Python front end numbers those of a completion,
 * the Rust one, which takes one each, does not. */
struct vllm_id vllm_msg_without_prompt(struct vllm_id id);
/* Without the number that a batch of chats gives each conversation: "chatcmpl-X_3". */
struct vllm_id vllm_msg_without_conversation(struct vllm_id id);
/* Is `id` the engine's name for `external`, or for a child of it? Exact, where vllm_msg_names() may
 * take the end of an older engine's id for a suffix. */
bool vllm_msg_id_is_of(struct vllm_id id, struct vllm_id external);

#endif
