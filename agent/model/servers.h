/* SPDX-License-Identifier: Apache-2.0 */
/* Which server a process is of, and which rank of it, as the engines and threads
 * of a recording say. Pure. */
#ifndef TL_MODEL_SERVERS_H
#define TL_MODEL_SERVERS_H

#include "model/model.h"

struct servers;		/* by process: a look-up takes the same time however many there are */

int servers__new(const struct model_view *v, struct servers **ret);	/* 0 or -ENOMEM */
void servers__free(struct servers *s);		/* NULL is fine */

/* The first process of its server: the last engine with this pid says it, else the first of its
 * threads that knows. 0: nobody. */
uint32_t servers__of(const struct servers *s, uint32_t tgid);
/* Of tensor parallelism, as the first of its threads says that has one; -1: none does. */
int servers__rank(const struct servers *s, uint32_t tgid);
/* The first process of the only server of all engines; 0: there are several, or none. */
uint32_t servers__only(const struct servers *s);

static inline uint32_t server_of_engine(const struct tl_engine *e)
{
	return e->server ? e->server : e->hdr.tgid;
}

struct engine_limits {
	uint32_t max_seqs, max_step_tokens;	/* most in one step; 0: not known */
};
/* Of each engine, as it or else the first process of its server says: which one was told is often
 * not the one that schedules. *ret is to be freed. 0 or -ENOMEM. */
int servers_limits(const struct model_view *v, struct engine_limits **ret);

#endif
