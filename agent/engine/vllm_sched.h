/* SPDX-License-Identifier: Apache-2.0 */
/* What vLLM's scheduler did in a step, worked out from what the wire says of it. Pure. */
#ifndef TL_VLLM_SCHED_H
#define TL_VLLM_SCHED_H

#include "tl_event.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The wire names the requests that gave output in a step. Those in the middle of their prompt give none;
 * they follow from the scheduler's rules (vLLM V1, measured on 0.32):
 *
 *  - running requests are served first, in the order in which they came to run; a decoding one takes one
 *    token, one in prefill takes min(rest of its prompt, what is left of the step's budget);
 *  - then waiting ones in order of arrival, the same way. How many were taken on in a step, with how many
 *    prompt tokens and how many of them cached, is in prefix_cache_stats;
 *  - a decoding request without output was preempted: it goes to the head of the waiting ones and
 *    computes its prompt and its output again;
 *  - one that is aborted while a step runs is in that step, and its output is thrown away.
 */

enum vseq_state { VSEQ_WAITING, VSEQ_PREFILL, VSEQ_DECODE, VSEQ_PREEMPTED, VSEQ_DONE };

struct vseq {
	uint64_t id_hash, http_hash;
	uint32_t slot;		/* its number in events */
	uint8_t state;		/* enum vseq_state */
	bool used;
	bool guess;		/* something of what follows was not seen */
	int64_t prompt;		/* tokens; -1: unknown */
	int64_t cached;		/* of these from the cache, -1: unknown yet */
	uint64_t computed;	/* of the prompt (or of what is computed again) so far, cached ones apart */
	uint64_t to_compute_again;	/* after a preemption: tokens lost */
	uint64_t n_out;		/* output tokens so far */
	uint64_t preempted_ns;
	uint32_t engine;	/* index of its scheduler */
	uint32_t next_same_http;	/* slot + 1 of a sibling (n > 1, several prompts), 0: none */
	bool linked;
	bool in_step;		/* has a row in the step at hand */
	uint64_t ended_ns;
	uint64_t abort_ns;	/* told to stop; leaves with the next step. 0: not */
};

/* One request's output in a step, as the wire says it. */
struct vsched_row {
	uint32_t slot;
	int32_t n_tokens;
	bool first;		/* first output since it was scheduled */
	int64_t cached;		/* prompt tokens from the cache, -1: not said */
	bool finished;
};

struct vsched_step {
	const struct vsched_row *rows;
	size_t n_rows;
	bool has_prefix;	/* the counters below are known */
	uint64_t new_requests, new_queries, new_hits;
	uint64_t again_requests, again_queries, again_hits;	/* resumed after preemption */
	uint64_t begin_ns;	/* of the step */
};

struct vsched {
	uint32_t budget;	/* tokens per step, 0: unknown */
	uint32_t *running, *waiting;	/* slots, in the scheduler's order */
	size_t n_running, cap_running, n_waiting, cap_waiting;
};

/* seqs: all sequences by slot number. Returns 0 or -ENOMEM. */
int vsched__arrive(struct vsched *s, uint32_t slot);
int vsched__run(struct vsched *s, uint32_t slot);	/* is running already: it was there before us */
void vsched__leave(struct vsched *s, uint32_t slot);	/* finished or aborted */
/* Works out the members of a step, at most max, and moves the sequences on. *ret_guess: some member's
 * tokens are inferred. Slots that were found preempted are reported through ret_preempted (at most
 * max). Returns the number of members or -ENOMEM. */
int vsched__step(struct vsched *s, struct vseq *seqs, const struct vsched_step *in, struct tl_member *ret,
		 size_t max, uint32_t *ret_preempted, size_t *ret_n_preempted, bool *ret_guess);
void vsched__free(struct vsched *s);

#endif
