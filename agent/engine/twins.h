/* SPDX-License-Identifier: Apache-2.0 */
/* Launches that two saw, a probe on libcuda and CUPTI: told once, by CUPTI, who
 * knows more of them. Pure. */
#ifndef TL_TWINS_H
#define TL_TWINS_H

#include "base/emit.h"
#include <stdbool.h>
#include <stdint.h>

/*
 * A probe sees a call when it is entered, CUPTI a moment later on the same thread: the last
 * call of that kind that a probe saw on the thread before is the same. What probes saw is
 * held until CUPTI cannot tell it any more: the thread has done something else since, or the
 * call was seen to return.
 */
struct twins;

struct twins *twins__new(void); /* NULL: out of memory */
void twins__free(struct twins *t); /* NULL is fine */

/* CUPTI told this one, which needs no further telling. -ENOMEM: its twin may be told, too. */
int twins__told(struct twins *t, const struct tl_gpu_launch *l);
/* A probe saw this one. -ENOMEM: it was not taken. */
int twins__saw(struct twins *t, const struct tl_gpu_launch *l);

/* To be called whenever both sides have been read, probes first: says what CUPTI has not told. Of
 * calls that were counted only, those that are left. all_read: CUPTI's side was read to its end, as
 * it was behind the probes'; else only what is two seconds old is said. 0 or -errno of `out`. */
int twins__say(struct twins *t, uint64_t now_ns, bool all_read, const struct emit *out);
int twins__end(struct twins *t, const struct emit *out); /* all that is held */

#endif
