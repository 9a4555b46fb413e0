/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that add up blame. */
#ifndef TL_MODEL_BLAME_SUM_PRIV_H
#define TL_MODEL_BLAME_SUM_PRIV_H

#include "base/vec.h"
#include "model/blame_sum.h"

/* What one mechanism took of one request. */
struct share {
	uint32_t request;
	uint8_t mechanism;
	uint64_t ttft_ns;
	int64_t span_ns;	/* of the time from its first to its last token; < 0: the first one was held longer */
};

/* TPOT and TTFT of a request as they were. */
struct as_it_was {
	uint64_t span_ns;	/* first to last token */
	uint64_t ttft_ns;	/* 0: not known */
	uint32_t n_tokens;	/* behind the first one; 0: TPOT is not known */
};

struct what_if_input {
	struct as_it_was *was;	/* by request */
	size_t n;
	VEC(struct share) shares;	/* of mechanisms that could be absent */
};

/* Fills what_if and n_what_if. 0 or -ENOMEM. */
int add_what_ifs(struct blame_sum *s, const struct what_if_input *in);

#endif
