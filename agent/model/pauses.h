/* SPDX-License-Identifier: Apache-2.0 */
/* Servers that were told to compute nothing: vLLM's POST /pause and /sleep, until /resume and
 * /wake_up. Pure. */
#ifndef TL_MODEL_PAUSES_H
#define TL_MODEL_PAUSES_H

#include "model/model.h"

struct pause {
	/* from when it was asked for; until it was asked to go on, or the recording's end */
	uint64_t t0_ns, t1_ns;
	uint32_t server; /* the first process of the server */
	uint32_t other; /* index of the request that asked */
	bool ended; /* somebody asked it to go on */
};

enum { MAX_PAUSES = 256 }; /* of one recording; more are not looked at */

/* Those that were asked for and not refused, by time; returns how many. While some steps still run
 * (mode=wait) a pause is for those to come only: no step lies in what it explains. */
size_t pauses_find(const struct model_view *v, struct pause ret[MAX_PAUSES]);

/* A pause of the engine's server for most of [t0, t1]; false: none. */
bool pause_during(const struct model_view *v, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns,
		  struct pause *ret);

#endif
