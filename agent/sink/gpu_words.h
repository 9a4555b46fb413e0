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

uint32_t gpu_server(const struct model_view *v, uint32_t tgid);	/* its first process, as far as is known */

struct gpu_health_sum {		/* of all processes of a server */
	uint32_t server;
	uint16_t level;		/* the most that was on */
	bool simulated;
	uint64_t launches, records, dropped;
	uint32_t n_broken;	/* spans that are told to be broken; 1, if there were launches and no record at all */
};
/* For the engine (index) that stands for its server. false: nobody looked at GPUs there. */
bool gpu_sum_health(const struct model_view *v, uint32_t engine, struct gpu_health_sum *ret);

#endif
