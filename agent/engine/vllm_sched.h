/* SPDX-License-Identifier: Apache-2.0 */
/* What vLLM's scheduler did in a step, worked out from what the wire says of it. Pure. */
#ifndef TL_VLLM_SCHED_H
#define TL_VLLM_SCHED_H

#include "tl_event.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One message per step names the requests that gave output. Those in the middle of their prompt
 * give none; they follow from the scheduler's rules (vLLM V1, judged against its own log on 0.32):
 *
 *  - running requests are served first, in the order in which they came to run; a
 *    decoding one takes one token, one in prefill takes min(rest of its prompt, what is
 *    left of the step's budget);
 *  - then waiting ones in order of arrival (or of priority, if it is told to), the same way. How
 *    many were taken on, with how many prompt tokens and how many of them cached, is in
 *    prefix_cache_stats; without it, the number running tells;
 *  - if the KV cache is full, the last of the running lose their place: fewer run than we thought.
 *    They go to the head of the waiting ones and compute all again. No step both preempts and takes
 *    on, but where the engine was told to take the places of all (POST /pause,
 *    /reset_prefix_cache): some are back at once;
 *  - one that is aborted while a step runs is in that step, and its output is thrown away.
 *
 * With asynchronous scheduling (the default on GPUs) a message tells the outputs of its own step,
 * but the state of a scheduler that has planned the next step already: what it says of requests
 * taken on, running and preempted is about the step of the next message, and one that stopped by a
 * token is in one step more. Which of the two it is shows when the first short prompt arrives at a
 * busy engine: its output comes with the message that tells of it, or with the one behind it.
 */

enum vseq_state {
	VSEQ_WAITING, VSEQ_PREFILL, VSEQ_DECODE, VSEQ_PREEMPTED,
	VSEQ_OVER,		/* has ended, but is in the step that is under way */
	VSEQ_DONE,
};
enum vseq_fresh { VSEQ_NEW = 1, VSEQ_AGAIN = 2 };	/* taken on in the step at hand */

struct vseq {
	uint64_t id_hash;
	uint64_t http_hash;	/* of the id that HTTP shows, as far as known: the key in by_http */
	uint64_t external_hash;	/* of the engine's id without its suffix */
	uint32_t slot;		/* its number in events */
	uint32_t engine;	/* index of its scheduler */
	uint32_t next_same_http;	/* slot + 1 of a sibling (n > 1,
					 * several prompts), 0: none */
	uint8_t state;		/* enum vseq_state */
	uint8_t fresh;		/* enum vseq_fresh, 0: runs already */
	bool used;
	bool linked;		/* to its request, or never to be by its id */
	bool guess;		/* something of its prefill was not seen */
	bool picked;		/* taken on in the step at hand, by what the counters say */
	bool left_out;		/* of a step, and whether it lost its place there nothing tells */
	bool in_flight;		/* has ended, but one more step has it */
	bool given_up;		/* nobody else counts it any more: its end was not seen */
	int32_t priority;	/* less goes first, where the scheduler minds */
	int32_t lora;		/* its adapter, 0: none */
	bool unseen;		/* it runs, but has shown nothing yet: its id is not known */
	bool doubt;		/* it was taken on, or one that is not seen */
	uint8_t client;		/* which of the engine's sockets it came on */
	int32_t max_out;	/* output tokens that it may have, -1: unknown */
	int64_t prompt;		/* tokens; -1: unknown */
	int64_t cached;		/* of these from the cache, -1: unknown yet */
	uint64_t computed;	/* since it was taken on, cached ones apart */
	uint64_t to_compute_again;	/* after a preemption: its prompt and output, 0: none */
	uint32_t n_parts;	/* steps that had a part of its prefill but the last ... */
	uint64_t others;	/* ... and tokens that others took before it in these */
	uint64_t again_left;	/* of these, to come */
	uint64_t lost;		/* computed tokens that the last preemption took ... */
	uint64_t lost_before;	/* ... and those before it, since its last output */
	uint64_t n_out;		/* output tokens so far */
	uint32_t row;		/* index + 1 of its row in the step at hand, 0: none */
	uint64_t arrived_ns;
	uint64_t asked_ns;	/* by the clock of its API server, which
				 * decides among equal priorities */
	uint64_t preempted_ns;
	uint64_t ended_ns;
	uint64_t spoke_ns;	/* end of the last step that it gave output in */
	uint64_t abort_ns;	/* told to stop; 0: not */
};

/* One request's output in a step, as the wire says it. */
struct vsched_row {
	uint32_t slot;
	int32_t n_tokens;
	int64_t cached;		/* prompt tokens from the cache, -1: not said */
	uint64_t scheduled_ns;	/* when it was taken on, if this is its first output; 0: not said */
	bool finished, by_length, failed;
};

struct vsched_in {
	const struct vsched_row *rows;
	size_t n_rows;
	bool cut;		/* rows or counters may be missing */
	bool has_prefix;	/* the counters below are known */
	uint64_t new_requests, new_hits;
	uint64_t new_prompts;	/* tokens of their prompts, cached ones included; 0: not said */
	uint64_t again_requests, again_hits;	/* resumed after preemption */
	bool has_queues;
	uint64_t running, waiting;	/* behind this step */
	uint32_t draft_tokens;	/* speculative ones of this step, in all */
	uint64_t begin_ns, end_ns;	/* the message before (or what woke
					 * the engine), this message */
	uint64_t scheduled_ns;	/* when it was scheduled, if one that
				 * was taken on says so; 0: not said */
	bool woke;		/* the engine was idle before begin_ns */
};

struct vsched_out {
	bool is_step;		/* else the message tells of no step, and nothing below is set */
	bool guess;		/* tokens of a member are inferred */
	bool open;		/* its members are not certain: some are
				 * not known, or are in the next step */
	bool began;		/* one of them is the spare one: it runs unseen */
	struct tl_member *members;	/* the caller's, max of them */
	size_t max, n;
	const uint32_t *preempted, *over;	/* slots: lost their place; no
						 * step has them any more */
	size_t n_preempted, n_over;
};

struct vslots {
	uint32_t *v;
	size_t n, cap;
};

/* Who came before the capture began and has shown nothing yet. */
struct vunseen {
	bool none;		/* there is none of them: the rest does not matter */
	bool found_out;		/* ... as the message at hand shows ... */
	bool unsettled;		/* ... and who of the known ones was taken
				 * for one of them, is not known yet */
	uint64_t since_ns;	/* when it began, or when events were lost */
	bool counted;		/* a message said how many wait and run */
	bool bounded;		/* known is how many wait at most */
	uint64_t likely, most;	/* so many wait, ahead of all that are known */
	uint64_t n_taken_on;	/* of them, in the step at hand and without output ... */
	bool muddled;		/* some were taken on that may have been others */
	bool doubt;		/* ... and it may be as well that they were others */
	uint32_t spare, runs;	/* slot + 1: for one that runs, the
				 * caller's; one that runs. 0: none */
	unsigned n_clients;	/* sockets on which requests come ... */
	uint64_t heard;		/* ... and those of whose later ones
				 * one had its first output, as bits */
	uint64_t abort_ns;	/* when one was told to stop that nobody knew */
	uint64_t before_ns;	/* when the step before the one before ended */
};

struct vsched {
	bool by_priority;	/* who waits is served in that order, the
				 * last in it loses its place first */
	uint32_t budget;	/* tokens per step as told, 0: not told ... */
	uint64_t least_budget, most_budget;	/* ... then what prompts that took
						 * several steps leave open, 0: all */
	struct vslots running, waiting;	/* in the scheduler's order */
	struct vslots plan;	/* who is in the step at hand, or (asynchronous) in the next one */
	struct vslots preempted, over;	/* for struct vsched_out */
	bool planned;		/* asynchronous: the step of the next message is known */
	bool has_hits, open;	/* of the plan ... */
	uint64_t plan_ns;	/* ... and when it was made: who was aborted later is in it */
	uint64_t new_hits, again_hits;	/* of those that are fresh in it */
	int8_t async_votes;	/* > 0: scheduling is asynchronous, 0: not known yet ... */
	bool turned;		/* ... shown by the message at hand,
				 * while some were not seen yet ... */
	bool unsure;		/* ... and so whether what ended is in one step more */
	bool thrown_away;	/* outputs of the step at hand: all lost their place while it ran */
	bool complete;		/* all that run are known */
	struct vunseen unseen;
	uint32_t n_draft;	/* speculative tokens per decoding request, last known */
	uint32_t most_loras;	/* adapters that ran at once */
	bool few_loras;		/* who needs one more is passed over */
	uint32_t n_too_many;	/* steps in a row with more waiting here than there ... */
	uint64_t too_many;	/* ... at least so many */
	uint64_t last_step_ns;	/* how long the last step took */
};

/* seqs: all sequences by slot number. Return 0 or -ENOMEM. */
int vsched__arrive(struct vsched *s, uint32_t slot);
int vsched__run(struct vsched *s, uint32_t slot);	/* is running already: it
							 * was there before us */
/* Takes one message: works out the members of its step, and moves the sequences on. Those in
 * ret->over are no longer known to it. Returns 0 or -ENOMEM. */
int vsched__step(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		 struct vsched_out *ret);
/* The engine ends some by itself, between two steps: it is told to pause or to stop, or cannot take
 * a request. Its message then has these rows and no counters, and is of no step. */
bool vsched_only_ends(const struct vsched_row *rows, size_t n);
void vsched__lost(struct vsched *s, uint64_t now_ns);	/* messages were not seen: what
							 * was planned is not known */
/* May the step find that one runs unseen? Then it needs a sequence, in unseen.spare. */
bool vsched__wants_spare(const struct vsched *s, struct vseq *seqs, const struct vsched_in *in);
/* Had the engine nothing to do at ns, and since until the first arrival? */
bool vsched__was_idle(const struct vsched *s, const struct vseq *seqs, uint64_t ns,
		      uint64_t *ret_first_ns);
void vsched__free(struct vsched *s);

#endif
