/* SPDX-License-Identifier: Apache-2.0 */
/* The model: semantic events in, requests, sequences and steps out. Pure; live and replay alike. */
#ifndef TL_MODEL_H
#define TL_MODEL_H

#include "model/records.h"

struct model_opts {
	size_t max_requests;	/* kept; 0: default 1,000,000. What comes after is counted only */
	size_t max_steps;	/* 0: default 20,000,000 */
	bool no_task_join;	/* ignore TL_LINK_TASK evidence: for tests of the weaker joins */
};

struct model;
struct evidence;
struct gpu_facts;

struct model *model__new(const struct model_opts *opts);	/* NULL: out of memory */
void model__free(struct model *m);				/* NULL is fine */

/* Feed one semantic event; raw and unknown kinds are counted and skipped. Returns 0 or -ENOMEM (the
 * event is then counted as lost and the model stays usable). */
int model__feed(struct model *m, const struct tl_hdr *ev);

/* No more events will come: requests still open become truncated, sequences that are not joined get
 * a last chance. Idempotent. Returns 0 or -ENOMEM. */
int model__finish(struct model *m);

/* Everything below is read-only and valid until the next feed. */
struct model_view {
	const struct tl_host *host;	/* NULL: not seen */
	const struct tl_self *self;	/* the last one, with the most memory of all; NULL: none */
	uint64_t t0_ns, t1_ns;		/* first and last event */
	uint32_t stop;			/* enum tl_stop, 0: the recording has no end mark */
	const struct rec_request *requests;
	const struct rec_sequence *seqs;
	const struct rec_step *steps;
	const struct rec_step_stats *stats;
	const struct rec_member *members;
	const struct rec_engine *engines;
	const struct rec_lost *lost;
	const struct rec_other *others;	/* of n_other_requests, those that are kept; by `req` */
	const struct evidence *evidence;	/* model/evidence.h; in order
						 * once the model is finished */
	const struct gpu_facts *gpu;	/* model/gpu.h; NULL until the model is finished */
	size_t n_requests, n_seqs, n_steps, n_members, n_engines, n_lost, n_others;
	uint64_t n_events;		/* semantic events fed */
	uint64_t n_lost_events;		/* sum over `lost` */
	uint64_t n_unknown;		/* events of kinds that we do not know */
	uint64_t n_requests_not_kept, n_steps_not_kept;
	/* No capture gives these; a file that was put together, or is damaged:
	 * requests with the number of an earlier one, and how often and how far the
	 * time of what is written went back. */
	uint64_t n_numbers_twice, n_times_back, most_back_ns;
	uint64_t n_joins_not_tried;	/* requests and sequences that were
					 * not looked at together: too many */
	uint64_t n_other_requests;	/* /health, /metrics ...: not listed, counted */
	uint64_t n_conns_open, n_conns, n_conns_tls;
};
void model__view(const struct model *m, struct model_view *ret);

/* What the engine said of its scheduler at the end of a step; if nothing, all is unknown. */
extern const struct rec_step_stats no_stats;
static inline const struct rec_step_stats *step_stats(const struct model_view *v,
						      const struct rec_step *st)
{
	return st->stats ? &v->stats[st->stats - 1] : &no_stats;
}

#endif
