/* SPDX-License-Identifier: Apache-2.0 */
/* What other tools say of requests, and what is true: sentences and JSON. */
#ifndef TL_SINK_CLAIMS_H
#define TL_SINK_CLAIMS_H

#include "base/jsonw.h"
#include "model/claims.h"

/* Calls fn for what does not hold, in order, at most `max` times; one more call says how many hold
 * and how many are left out. Nothing if there are no claims. 0 or -ENOMEM. */
typedef void (*claim_fn)(void *ctx, const char *sentence);
int claims_each(const struct model_view *v, size_t max, claim_fn fn, void *ctx);

/* "claims": an array. 0 or -ENOMEM. */
int json_claims(struct jsonw *w, const struct model_view *v);

#endif
