/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers over all requests of a model: percentiles, rates, coverage. Pure. */
#ifndef TL_SUMMARY_H
#define TL_SUMMARY_H

#include "model/model.h"

/* Nearest-rank percentiles of one metric, ns. n == 0: nothing known, the rest is meaningless. */
struct dist {
	uint64_t p50, p90, p99, max;
	size_t n;
};

/* Metrics of one request, derived from its points (doc/metrics.md). -1: not known. */
struct req_metrics {
	int64_t ttft_ns, tpot_ns, e2e_ns, queue_ns, prefill_ns, decode_ns;
	int64_t before_submit_ns;	/* front end: req_last_byte -> submit:
					 * parse, template, tokenize */
	int64_t delivery_ns;		/* of the first token: first_token_engine
					 * -> first_token_wire */
	uint8_t queue_prov;		/* PROV_INFERRED when submit was not seen */
	uint8_t tpot_prov;
	uint32_t delivered_tokens;	/* that left until its last chunk,
					 * 0: not known, or not streamed */
};
void request_metrics(const struct model_view *v, const struct rec_request *r,
		     struct req_metrics *ret);

/* The first and the last thing that is known of a request, whatever it is; 0: nothing is. For a
 * request that was joined late the first one is where we came in, not where it began. */
uint64_t request_first_ns(const struct rec_request *r);
uint64_t request_last_ns(const struct rec_request *r);
bool request_is_streamed(const struct rec_request *r);

/* Is it in the percentiles? Errors are not: a 400 after 1 ms is no fast answer. An answer that the
 * server cut short was none until then. */
bool request_counts(const struct rec_request *r);
bool request_is_cut(const struct rec_request *r);

/* Of its prompt, tokens that are in no step, nor known to be from a cache, although it had output: where it is inferred
 * who was in a step they may have been cached, or be counted to another one. */
uint32_t request_prompt_unseen(const struct model_view *v, const struct rec_request *r);

/* Is it known how many tokens it lost when it was preempted, and computed again? */
bool sequence_knows_lost(const struct rec_sequence *q);

/* Engine's output -> write, output by output (delivery.c). ret has room for request_delivery_max().
 * *ret_exact: each has a chunk of its own, so it is sure which. Returns how many, 0: not known. */
size_t request_delivery_max(const struct model_view *v, const struct rec_request *r);
size_t request_delivery(const struct model_view *v, const struct rec_request *r, uint64_t *ret,
			bool *ret_exact);

/* Is this a token as far as the wire can tell? EMPTY alone counts: a token without text. */
bool chunk_is_token(const struct rec_chunk *c);

enum { N_LEN_CLASSES = 6 };
/* Length classes by tokens: <=16, <=128, <=1024, <=8192, more, unknown. */
extern const char *const len_class_names[N_LEN_CLASSES];
int len_class(const struct rec_count *tokens);

/* Was at least half of the prompt in the prefix cache? The two are never
 * averaged without saying so. */
enum prefix_class { PREFIX_WARM, PREFIX_COLD, PREFIX_UNKNOWN, N_PREFIX_CLASSES };
extern const char *const prefix_class_names[N_PREFIX_CLASSES];
enum prefix_class prefix_class(const struct rec_request *r);

struct summary_row {
	struct dist ttft, tpot, itl_token, itl_chunk, e2e, queue, prefill, frontend, delivery;
	size_t n_requests;
};

struct summary {
	struct summary_row all;
	struct summary_row by_input[N_LEN_CLASSES], by_output[N_LEN_CLASSES];
	struct summary_row by_prefix[N_PREFIX_CLASSES];
	double tok_per_s_wall, tok_per_s_busy;	/* < 0: not known */
	uint64_t output_tokens, prompt_tokens, cached_tokens;
	uint64_t busy_ns, wall_ns;	/* busy: union of the steps' intervals (or of requests) */
	bool busy_from_steps;
	/* Batch size: by step, weighted by time; and over time in up to 60 equal bins. */
	struct { uint32_t p50, max; double mean; } batch;
	struct {
		uint64_t t0_ns;
		double mean_members, mean_tokens, busy_pct;
		double kv_pct, running, waiting;	/* means of what engines
							 * say; < 0: nothing */
		uint32_t n_steps;
	} bins[60];
	size_t n_bins;
	size_t n_state[5];		/* by enum req_state */
	uint64_t steps_seen, steps_with_members;
	double matched_tokens_pct;	/* tokens in steps joined to a request; < 0: no steps */
	uint64_t tokens_in_steps;
	uint64_t prompt_unseen;		/* tokens of prompts that are in none: request_prompt_unseen() */
	size_t n_joins[N_JOINS];		/* sequences by enum join_method */
	size_t n_non_streaming;
	size_t n_cut;			/* errors that are in the percentiles all the same */
	size_t n_gaps_lost;		/* gaps left out because events were lost inside them */
	size_t n_multi_token_steps;	/* a sequence's steps that yielded several tokens at once */
};
/* Returns 0 or -ENOMEM. */
int summarise(const struct model_view *v, struct summary *ret);

/* A level that an engine says at the end of each step, weighted by how long the step took. */
struct level {
	bool known;
	uint32_t p50, max;
};
/* What an engine says of its scheduler. -1: it does not. */
struct scheduler_summary {
	struct level kv_ppm, running, waiting;
	int64_t prefix_queries, prefix_hits;	/* tokens of prompts first
						 * scheduled; found in the cache */
	int64_t preemptions;	/* said, or inferred from steps */
	int64_t untold;		/* of these the engine had not said when the recording ended */
	int64_t drafted, accepted;	/* speculative tokens */
};
/* Per engine of the model; the caller's, for free(). Returns 0 or -ENOMEM. */
int summarise_schedulers(const struct model_view *v, struct scheduler_summary **ret);

/* What a process had of the requests that it read; n_requests 0: it read none. */
struct front_summary {
	size_t n_requests, n_errors, n_aborted;
	struct dist frontend, ttft, delivery;	/* as in summary_row */
};
/* Per engine of the model; the caller's, for free(). Returns 0 or -ENOMEM. */
int summarise_fronts(const struct model_view *v, struct front_summary **ret);

#endif
