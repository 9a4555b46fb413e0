/* SPDX-License-Identifier: Apache-2.0 */
/* Words for what is known of GPUs, the same for text and JSON. */
#ifndef TL_SINK_GPU_WORDS_H
#define TL_SINK_GPU_WORDS_H

#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

enum { GPU_MAX_CHANGES = 200 };	/* of the level of collection, that are listed */

/* NULL: not one of them */
const char *gpu_level_name(uint16_t level);
const char *gpu_graph_name(uint16_t graph);
const char *gpu_phase_name(uint8_t phase);

/* Why the level changed, in a few words; buf is for those that hold a number or a name. */
const char *gpu_why(const struct tl_gpu_health *h, char buf[80]);

/* "GPU time: prefill 12.3 ms (its share, by tokens), decode not known" of a request (index);
 * false: nothing is known. */
bool gpu_request_text(const struct model_view *v, size_t request, char *buf, size_t size);

struct gpu_health_sum {		/* of all processes of a server */
	uint32_t server;	/* its first process, as far as is known */
	bool any;
	uint16_t level;		/* the most that was on */
	uint16_t wanted;	/* what was asked for; TL_GPU_OFF: not known */
	bool no_probes;		/* launches are not seen */
	bool simulated;
	uint64_t launches, records, dropped;
	uint32_t n_broken;	/* spans that are told to be broken; 1, if
				 * there were launches and no record at all */
};
struct gpu_healths;		/* of all engines of a recording */
int gpu_healths__new(const struct model_view *v, struct gpu_healths **ret);	/* 0 or -ENOMEM */
void gpu_healths__free(struct gpu_healths *h);		/* NULL is fine */
/* For the engine (index) that speaks of its server's devices: the process itself, or the first of
 * those that have none. NULL: nobody looked at GPUs there. */
const struct gpu_health_sum *gpu_healths__of(const struct gpu_healths *h, uint32_t engine);
/* Changes of the level of a server's processes, by time: indices of the evidence's
 * gpu_healths, *ret_n of them. */
const uint32_t *gpu_healths__changes(const struct gpu_healths *h, uint32_t server, size_t *ret_n);
/* Until when nobody looked for launches in the engine's server; 0: no such time. 0 or -ENOMEM */
int gpu_blind_until(const struct model_view *v, uint32_t engine, uint64_t *ret_ns);

#endif
