/* SPDX-License-Identifier: Apache-2.0 */
/* What evidence says of a span of time: who kept whom waiting, in pieces
 * that do not overlap. Pure. */
#ifndef TL_MODEL_CLUES_H
#define TL_MODEL_CLUES_H

#include "model/mechanism.h"
#include "model/step_index.h"

struct clues;	/* indices over a finished model's evidence */

int clues__new(const struct model_view *v, struct clues **ret);	/* 0 or -ENOMEM */
void clues__free(struct clues *c);

/* The index of steps that it is built on: lives as long as it does. Of an
 * hour, that is many megabytes. */
const struct step_index *clues__steps(const struct clues *c);

/* A piece of a span: located in time, or, where t1_ns is 0, an amount that lies somewhere in it. */
struct clue {
	uint64_t t0_ns, t1_ns, ns;	/* ns: its length, or the amount */
	uint8_t mechanism, prov;
	struct culprit who, root;
};
enum { MAX_CLUES = 64 };	/* of one span; the longest are kept, the rest is not explained */
struct clue_list {
	struct clue v[MAX_CLUES];
	size_t n;
};

/*
 * Located pieces of [t0, t1] in which an engine (index into the model's engines) was kept from
 * computing: threads of the roles ENGINE, LAUNCH, COMPUTE of that process (and, by rank, of the
 * workers of its server) that wanted a CPU, were throttled, collected garbage, waited for the GIL
 * or the disk, compiled. Disjoint, by time. Of two reasons at once the one stands that is nearer to
 * the hardware: throttled, run queue, page fault, GIL, then what the thread did on its CPU.
 */
void clues__engine(const struct clues *c, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns,
		   struct clue_list *ret);

/* The same of threads that had to wait for each other's CPU, beside these. Steps take that long as
 * a rule where there are too few CPUs, so it is no disturbance; of what is beyond usual it is the
 * reason if there is no other. */
void clues__crowd(const struct clues *c, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns,
		  struct clue_list *ret);

/* Of vLLM: located pieces of [t0, t1] in which its engine's thread, after the end of a step at
 * `made`, could not run to hand over what that gave: from then on, until it could for long enough.
 * Inferred: nobody sees the hand-over. */
void clues__hand_over(const struct clues *c, uint32_t engine, uint64_t made_ns, uint64_t t0_ns,
		      uint64_t t1_ns, struct clue_list *ret);

/* Amounts for one step (index), from the device's side: compile, graph miss or padding, a late
 * rank, copies, a host that kept it idle, slow clock, neighbour. `usual_ns`: what the step takes
 * undisturbed (0: not known). They may add up to more than the step's excess: taken in the order
 * given until it is used up. */
void clues__step(const struct clues *c, uint32_t step, uint64_t usual_ns, struct clue_list *ret);

/* Is the step one that a baseline must not learn from? (graph miss, cold, slow
 * clock, neighbour, late rank) */
bool clues__step_is_odd(const struct clues *c, uint32_t step);

/* Located pieces of [t0, t1] in which the front end of the server of `engine` could not read
 * requests or write answers: its threads (FRONT, DETOKENIZER, ZMQ) were on a CPU for something
 * else (whose request, which code), or as above. `self`: index of the request that waits; it
 * is no culprit of its own. */
void clues__front(const struct clues *c, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns,
		  uint32_t self, struct clue_list *ret);

/* May a thread of the process that serves a request have been on a CPU for most of [t0, t1]? true,
 * too, where nothing is recorded of its threads; of those that are, long runs are. */
bool clues__front_may_be_busy(const struct clues *c, uint32_t request, uint64_t t0_ns,
			      uint64_t t1_ns);

/* Located pieces of [t0, t1] in which what a request's answer had written did not reach the client:
 * Nagle, slow reader, network. Behind the write: no part of a gap between writes. */
void clues__send(const struct clues *c, uint32_t request, uint64_t t0_ns, uint64_t t1_ns,
		 struct clue_list *ret);

/* When the i-th chunk (all token chunks of rec_request.chunks, in order) reached what lies behind
 * the engine's socket (proxy, client), as far as somebody says so; 0: nobody does. */
uint64_t clues__delivered_ns(const struct clues *c, uint32_t request, size_t chunk,
			     struct culprit *ret_by);

/* Reasons that evidence would have shown, had they been there: for `unexplained`.
 * Bit i: enum mechanism i. */
uint64_t clues__watched(const struct clues *c, uint32_t engine);

#endif
