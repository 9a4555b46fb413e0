/* SPDX-License-Identifier: Apache-2.0 */
/* Seams inside of the follower of vLLM's scheduler: what its files do for each other. */
#ifndef TL_VLLM_SCHED_PRIV_H
#define TL_VLLM_SCHED_PRIV_H

#include "engine/vllm_sched.h"

/* Those that return int return 0 or -ENOMEM. `in`: the message at hand, whose rows are noted in
 * vseq.row. */

/* A request may take so long from the socket to the scheduler. */
enum { VSCHED_ON_THE_WAY_NS = 20000000 };

static inline bool vsched_is_async(const struct vsched *s)
{
	return s->async_votes > 0;
}

/* ---- vllm_sched.c ---- */

int vslots_push(struct vslots *v, uint32_t slot);
void vslots_erase(struct vslots *v, size_t at);

void vsched_see_rows(struct vseq *seqs, const struct vsched_in *in);	/* sets vseq.row */
/* Tokens of its prefill, cached ones included; -1: unknown. */
int64_t vseq_all(const struct vseq *q);
int64_t vseq_rest(const struct vseq *q);	/* ... of these to come */
void vsched_take_on(struct vseq *q);
/* Tokens of a step, as told, as learnt, or what is likely at least: told or not, s->budget says. */
int64_t vsched_budget(const struct vsched *s);
/* A prefill of `all` tokens came in n parts and a last one; others took tokens before it. */
void vsched_learn_budget(struct vsched *s, uint64_t all, uint64_t n, uint64_t others,
			 uint64_t others_at_last);
/* How many of the running the engine counts when it says how many run: those that have ended, or
 * are told to stop, are none of them; unless it does not know yet: *ret_n_aborted. */
int64_t vsched_count_running(const struct vsched *s, const struct vseq *seqs,
			     const struct vsched_in *in, int64_t *ret_n_aborted);
/* Tokens that those who run already take before anyone is taken on; -1: unknown. */
int64_t vsched_taken_by_running(const struct vsched *s, const struct vseq *seqs);
/* Would it have had output in this step, if it had been in it? It would if there was room for all
 * of it, however little of the others was cached. */
bool vsched_would_show(const struct vsched *s, const struct vseq *seqs, const struct vseq *q);

/* ---- vllm_mode.c: is scheduling asynchronous? ---- */

/* Lets the message vote. Does the output of a short prompt that a busy engine takes on come with
 * the message that tells of it, or with the one behind it? */
void vsched_look_for_mode(struct vsched *s, const struct vseq *seqs, const struct vsched_in *in);

/* ---- vllm_priority.c ---- */

/* Puts those from `at` on in order, if the scheduler minds priorities. */
void vsched_sort(const struct vsched *s, struct vslots *v, size_t at, const struct vseq *seqs);
bool vseq_goes_before(const struct vseq *a, const struct vseq *b);
/* By priority, one that came late would go first: did it come in time? One that needs an adapter
 * for which there is no room is passed over. The sum of the prompts tells, and who has output. Sets
 * `picked` of `n` that wait; false: they are the first ones, or it is not known. */
bool vsched_pick(struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n);

/* ---- vllm_preempt.c ---- */

/* The last `n` of the running lose their place. */
int vsched_preempt(struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n);
/* Was the engine told that all do, if it takes on n_new and n_again in this step? They do. */
bool vsched_is_evicted(const struct vsched *s, const struct vseq *seqs, const struct vsched_in *in,
		       uint64_t n_new, uint64_t n_again);
int vsched_evict(struct vsched *s, struct vseq *seqs, const struct vsched_in *in, uint64_t n_again);
/* Some wait that nobody else counts: they are given up, or run. */
int vsched_mend_waiting(struct vsched *s, struct vseq *seqs, const struct vsched_in *in);

/* ---- vllm_settle.c ---- */

/* Gives the planned ones their tokens, rows being the truth. */
int vsched_settle(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		  struct vsched_out *ret);

/* ---- vllm_unseen.c: those that came before the capture began ---- */

/* What the rows say of them. */
int vsched_unseen_hear(struct vsched *s, struct vseq *seqs, const struct vsched_in *in);
/* How many of them were taken on: takes these off what the counters say. */
void vsched_unseen_count(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
			 uint64_t *n_new, uint64_t *n_again);
/* `more` run than are known: is it one of them? */
int vsched_unseen_plan(struct vsched *s, struct vseq *seqs, const struct vsched_in *in,
		       int64_t *more);
/* May it be one that came on another socket that was taken on? They are read in turn. */
bool vsched_may_be_another(const struct vsched *s, const struct vseq *seqs, const struct vseq *q);
/* It was not taken on: back to where it was among those that wait. */
int vsched_unseen_put_back(struct vsched *s, struct vseq *seqs, struct vseq *q);
/* The one that runs does so no more. */
int vsched_unseen_leaves(struct vsched *s, struct vseq *seqs);
/* May the planned step have another one of them, or one that it has be none? */
bool vsched_unseen_is_open(const struct vsched *s, const struct vseq *seqs,
			   const struct vsched_in *in);

#endif
