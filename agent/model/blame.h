/* SPDX-License-Identifier: Apache-2.0 */
/* Every gap between tokens, and each TTFT, cut into parts that add up: who slowed whom. Pure. */
#ifndef TL_MODEL_BLAME_H
#define TL_MODEL_BLAME_H

#include "model/mechanism.h"
#include "model/model.h"

struct blame;

/* Learns what steps usually take and indexes the evidence. The model must be finished. 0 or -ENOMEM. */
int blame__new(const struct model_view *v, struct blame **ret);
void blame__free(struct blame *b);

enum gap_side {
	GAP_WIRE,	/* between the writes of two tokens */
	GAP_ENGINE,	/* between the ends of two steps: not streamed, or chunks fit no outputs */
	GAP_CLIENT,	/* between two arrivals at the client, as it (or a proxy) says */
};
/* For want of what requests queue. */
enum queue_limit { LIMIT_UNKNOWN, LIMIT_SLOTS, LIMIT_KV, LIMIT_TOKENS, N_QUEUE_LIMITS };
enum { MAX_PARTS = 48 };
struct gap {
	uint32_t request;	/* index */
	uint32_t seq;		/* index + 1; 0: joined to none */
	uint32_t token;		/* ordinal of the token at its end: 1 is the second; 0: this is a TTFT */
	uint8_t side;		/* enum gap_side */
	bool open;		/* it had not ended when the recording did: t1 is that moment */
	uint64_t t0_ns, t1_ns;
	uint64_t usual_ns;	/* what it would have taken undisturbed; 0: not known. excess = the rest */
	uint64_t ruled_out;	/* bit i: enum mechanism i was looked for and was not there */
	/* Of its parts, what lies between the engine's output and who gets it, by mechanism: at its end. No later
	 * token is made later because of it. */
	uint64_t behind_ns[N_MECHANISMS];
	uint64_t queue_ns[N_QUEUE_LIMITS];	/* of its time in the queue */
	bool is_behind;		/* while it is cut: what is added now does */
	struct blame_part parts[MAX_PARTS];	/* add up to t1 - t0 exactly; longest first */
	size_t n_parts;
};

/* Calls `each` for every gap of a request in order (its TTFT not included). `each` < 0 ends the walk.
 * Returns 0, -ENOMEM or what `each` returned. */
typedef int (*gap_fn)(void *ctx, const struct gap *g);
int blame__gaps(struct blame *b, uint32_t request, gap_fn each, void *ctx);

/* The same of those that are odd alone. Which these are is known from an earlier walk over the request, and the
 * others are then not cut again. *ret_side: enum gap_side of all its gaps; -1: it has none. */
int blame__odd_gaps(struct blame *b, uint32_t request, gap_fn each, void *ctx, int *ret_side);

/* The TTFT of a request: req_first_byte (or, where a claim says so, before) to first_token_wire.
 * false: not known. */
bool blame__ttft(struct blame *b, uint32_t request, struct gap *ret);

/* What a request waits for when the recording ends, if that is longer than usual: from its last token (token: the
 * ordinal of the one that did not come) or, with token 0, its first byte. blame__gaps and blame__ttft do not
 * have it. false: it does not wait, or not for long. */
bool blame__open(struct blame *b, uint32_t request, struct gap *ret);

/* Is a gap so much longer than usual that it is worth showing? */
bool gap_is_odd(const struct gap *g);

/* Was there enough to learn from? Steps that baselines rest on; 0: gaps without evidence are all own. */
uint32_t blame__n_learnt(const struct blame *b);

#endif
