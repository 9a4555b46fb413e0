/* SPDX-License-Identifier: Apache-2.0 */
/* The time of one request cut into parts that add up, each with what filled it. Pure. */
#ifndef TL_TRACE_H
#define TL_TRACE_H

#include "model/summary.h"
#include "sink/crowd.h"

enum part {
	PART_READ,		/* req_first_byte -> req_last_byte: until the server had read it */
	PART_BEFORE_SUBMIT,	/* front end: req_last_byte -> submit: parse, template, tokenize */
	PART_WAIT_SLOT,		/* after submit, while its slot was still another sequence's */
	PART_WAIT_STEP,		/* after that, until the next step began */
	PART_WAIT_QUEUE,	/* from then, if that step ran without it, until its first step began */
	PART_PREFILL,		/* its own prefill steps */
	PART_PARKED,		/* preempted: end of its step before -> begin of its step after */
	PART_RECOMPUTE,		/* its steps that compute again what it had before it was preempted */
	PART_DECODE,		/* its own decode steps */
	PART_LATE_WAIT,		/* of several answers: the first token -> that which ended last was in a step */
	PART_LATE_PREFILL,	/* behind the first token: prefill steps of the answer that ended last */
	PART_BETWEEN,		/* short spans between its steps in which the engine ran no step */
	PART_OTHER_STEPS,	/* between its steps: steps that it was no member of */
	PART_SERVER,		/* not joined to steps: read -> first token (or head) written */
	PART_STREAM,		/* not joined to steps: first token written -> last one written */
	PART_DELIVERY,		/* end of its last step -> its last token was written */
	PART_END,		/* last token written -> done (or the last thing seen) */
	PART_OPEN,		/* the last thing seen -> the recording ended, and it still waited */
	PART_UNEXPLAINED,	/* no evidence: a long span without a step, or events were lost */
	N_PARTS
};
extern const char *const part_names[N_PARTS];

struct segment {
	uint64_t t0_ns, t1_ns;
	uint8_t part;		/* enum part */
	bool in_lost;		/* UNEXPLAINED: events were lost inside it */
	bool blind;		/* UNEXPLAINED: nobody looked for the launches that steps are made of yet */
	uint32_t seq;		/* of its sequences, the one that is followed here */
	uint32_t step;		/* PREFILL, LATE_PREFILL, RECOMPUTE, DECODE, OTHER_STEPS: which; others: the first */
	uint32_t n_steps;	/* WAIT_*, PARKED: how many of the engine's steps ran in it, own excluded; UNEXPLAINED: of which
				 * it is not known whether it was in them */
};

struct trace {
	const struct model_view *v;
	const struct rec_request *r;
	const struct rec_sequence *q;	/* the sequence that ended last; NULL: joined to no step */
	const struct rec_sequence *first; /* up to its first token this one is followed; not NULL if q is not */
	struct segment *segs;
	size_t n, cap;
	uint64_t t0_ns, t1_ns;		/* segments cover it without a hole or an overlap */
	uint64_t sum_ns[N_PARTS];
	uint64_t ttft_ns[N_PARTS];	/* of it, before the first token; DELIVERY: of that */
	const struct rec_sequence *slot_holder;	/* WAIT_SLOT: whose slot it was */
	size_t n_prefill_steps, n_late_prefill_steps, n_recompute_steps, n_decode_steps, n_parked;
	uint64_t median_decode_ns;	/* of its decode steps that no prefill shared; 0: none */
	/* Its decode steps that other sequences' prefill shared. */
	size_t n_shared;
	uint64_t shared_ns;
	struct crowd shared;		/* whose prefill */
	/* Others' prefill in its own prefill steps. */
	uint64_t crowded_ns;		/* of those steps in which it was more than its own */
	struct crowd beside;		/* whose */
	/* private */
	struct segment nowhere;
	struct loss_span *losses;	/* kernel's, from its begin on: by begin, ends never fall */
	size_t n_losses;
};

/* Of a request that the end of the recording cut off, until then. Returns 0 or -ENOMEM. */
int trace__init(struct trace *t, const struct model_view *v, size_t request);
void trace__free(struct trace *t);	/* as after init, or all zeros */

/* The sequence whose prompt is that of PART_PREFILL. */
static inline const struct rec_sequence *trace__prompt_seq(const struct trace *t)
{
	return t->first ? t->first : t->q;
}

/* Tokens that sequences other than that of the segment prefill in a step; 0: none. */
uint64_t trace__prefill_of_others(const struct trace *t, const struct segment *s, uint32_t step, uint32_t *ret_seq);

/* What ran in its waits of this kind: for how long, of that with prefill, and whose that was. */
struct wait {
	uint64_t ns, prefill_ns;
	struct crowd prefill, all;
};
void trace__wait(const struct trace *t, enum part part, struct wait *ret);

/* The sequences that had its slot during this segment, the last one first. Returns how many. */
size_t trace__slot_holders(const struct trace *t, const struct segment *s, uint32_t *ret,
			   size_t max);

/* The largest part, those of which `skip` has the bit left out. Returns an enum part. */
int largest_part(const uint64_t ns[N_PARTS], uint32_t skip);

#endif
