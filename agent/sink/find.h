/* SPDX-License-Identifier: Apache-2.0 */
/* Which request a person means. */
#ifndef TL_FIND_H
#define TL_FIND_H

#include "model/model.h"

/* `what` is "r17", 17, a response id, an x-request-id or a traceparent; of the last three the start
 * is enough if only one request has it. Returns 0, -ENOENT or -ENOTUNIQ; a sentence that says what
 * to do is then in why. */
int find_request(const struct model_view *v, const char *what, size_t *ret, char *why, size_t size);

/* Is it "r17", "R17" or "17"? */
bool find_is_number(const char *what, uint64_t *ret);

#endif
