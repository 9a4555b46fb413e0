/* SPDX-License-Identifier: Apache-2.0 */
/* What a device did for a step, as its clues and the health of its collection look at it. Pure. */
#ifndef TL_CLUES_GPU_H
#define TL_CLUES_GPU_H

#include "model/clues_priv.h"

struct gpu_view {		/* what is recorded of one step: a record per rank */
	const struct gpu_at *at;
	size_t n;
};
struct gpu_view gpu_of_step(const struct clues *c, uint32_t step);
const struct tl_gpu_step *gpu_rank(const struct clues *c, const struct gpu_view *g, size_t i);

struct collective {		/* of one step, over its ranks */
	uint64_t least_ns, most_ns, late_ns;
	uint16_t late_rank;	/* waited least */
	uint16_t said_rank;	/* the one whose late_ns is the largest */
	uint32_t n_ranks;
};
struct collective collective_of(const struct clues *c, const struct gpu_view *g);

struct device_state {		/* in a span */
	uint32_t device;
	uint32_t mhz, usual_mhz;	/* 0: not known */
	uint32_t why;
	const struct tl_gpu_state *neighbour;	/* NULL: none for most of it */
};
bool is_slow_clock(const struct device_state *d);
/* The device of a step that is worst off: slow, or with a neighbour; without records of the step,
 * of all that are looked at and that its server may use. */
struct device_state worst_device(const struct clues *c, uint32_t step, const struct gpu_view *g);
/* The device of a step that a clue of it names so. */
struct device_state device_as(const struct clues *c, uint32_t step, uint32_t device);

/* clues_gpu_learn.c: the first process of the server that a process is
 * known to be of; 0: of none. */
uint32_t known_server(const struct clues *c, uint32_t tgid);

bool step_only_decodes(const struct model_view *v, uint32_t step);
uint64_t step_ns(const struct clues *c, uint32_t step);

void add_amount(struct clue_list *l, enum mechanism m, enum provenance prov, uint64_t ns,
		struct culprit who);
/* fmt takes a and b, a alone or neither. */
struct culprit who_device(uint32_t device, const char *fmt, unsigned int a, unsigned int b);

/* clues_gpu_graph.c: pieces of a step by its graph, where it has a record; padding comes last, what
 * else is known is nearer. */
void add_graph(const struct clues *c, uint32_t step, uint64_t usual_ns, const struct tl_gpu_step *s,
	       struct clue_list *ret);
void add_padding(const struct clues *c, uint32_t step, uint64_t usual_ns,
		 const struct tl_gpu_step *s, struct clue_list *ret);
/* At most so much of the step is padding's; usual_ns 0: against what graphs take that fit. */
uint64_t padding_ns(const struct clues *c, uint32_t step, const struct tl_gpu_step *s,
		    uint64_t usual_ns);
bool graph_is_odd(const struct clues *c, uint32_t step, const struct tl_gpu_step *s);

#endif
