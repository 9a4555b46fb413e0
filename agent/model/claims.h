/* SPDX-License-Identifier: Apache-2.0 */
/* What other tools say of requests, held against what was seen: right, or wrong,
 * and by which mistake. Pure. */
#ifndef TL_MODEL_CLAIMS_H
#define TL_MODEL_CLAIMS_H

#include "model/model.h"

/* Mistakes that released tools make. The numbers are those of doc/claims.md and stay. */
enum claim_verdict {
	CLAIM_RIGHT = 0,
	CLAIM_V1 = 1,	/* time to first token stamped on the last chunk */
	CLAIM_V2 = 2,	/* stamped late: tokens before it were skipped (reasoning, hidden output) */
	CLAIM_V3 = 3,	/* right where it was taken, but held between there and the client */
	CLAIM_V4 = 4,	/* headers, or a chunk without a token, are no first token */
	CLAIM_V5 = 5,	/* the whole time divided by tokens: time to first token is inside */
	CLAIM_V6 = 6,	/* the first token's time is no total */
	CLAIM_V7 = 7,	/* per chunk, and chunks hold several tokens */
	CLAIM_V8 = 8,	/* not possible: shorter than the prompt took to compute */
	CLAIM_V11 = 11,	/* the client's kernel had it long before: the delay is in the client */
	CLAIM_WRONG = 100,	/* none of these */
	CLAIM_NO_TRUTH = 101,	/* that which it could be held against was not seen */
};

struct claim_judged {
	uint32_t claim;		/* index into the evidence's claims */
	uint32_t request;	/* index */
	uint8_t verdict;	/* enum claim_verdict */
	uint8_t stamp;		/* enum point that it fits instead; N_POINTS: none */
	uint64_t truth_ns;	/* counted from where the claim began to count; 0: not seen */
	uint64_t before_host_ns;	/* of truth_ns, before the first byte came here */
	uint64_t held_ns;	/* V3: behind that point; V11: inside the client */
	double factor;		/* claim / truth; 0: not known */
	double implied_per_s, seen_per_s;	/* tokens/s: V2: that it would
						 * mean; V2, V7: that were seen */
	double tokens_per_chunk;	/* V7 */
	uint32_t n_skipped;	/* V2: chunks with tokens before the stamp */
};

/* All claims of requests that were kept, in the order of the evidence. *ret is to be freed; NULL
 * if there are none. 0 or -ENOMEM. */
int claims_judge(const struct model_view *v, struct claim_judged **ret, size_t *ret_n);

/* "right", "V1" ..., "wrong", "unknown" */
const char *claim_verdict_name(uint8_t verdict);

#endif
