/* SPDX-License-Identifier: Apache-2.0 */
/* Of a request with several answers: whose times are its queue, prefill and decode. Pure. */
#ifndef TL_LEADS_H
#define TL_LEADS_H

#include "model/model.h"

/*
 * What a request waits for is its first token, and then its last: so its queue and prefill are those of the sequence that
 * gave the first token, and what follows is told along the sequence that ended last. With one answer they are the same.
 */
struct leads {
	uint32_t first;		/* index of the sequence that gave the first token, or would have; UINT32_MAX: not seen */
	size_t first_visit;	/* with its first output; SIZE_MAX: there is none */
	uint32_t last;		/* that ended last; UINT32_MAX: none was in a step */
};
void leads_of(const struct model_view *v, const struct rec_request *r, struct leads *ret);

/* "answer 2 of 3": the sequence's place among those of its request, from 1; 0: it is none of these. */
uint32_t answer_number(const struct rec_request *r, uint32_t seq);

#endif
