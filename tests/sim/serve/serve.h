/* SPDX-License-Identifier: Apache-2.0 */
/* simserve: a streaming LLM server that computes nothing, drives simulated CUDA, and tells the truth. */
#ifndef TL_SIMSERVE_H
#define TL_SIMSERVE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "../sim.h"

enum {
	MAX_RANKS = 8, MAX_SLOTS = 256, MAX_KERNELS = 4096, MAX_LAYERS = 256, MAX_FLIGHT = 4,
	MAX_COPIES = 8, MAX_BUCKETS = 9, MAX_QUEUE = 4096,
};

struct serve_opts {
	uint16_t port;
	const char *truth;	/* NULL: none is written */
	const char *cupti;	/* library that is loaded and not used, as PyTorch does it; NULL: none */
	uint64_t seed;
	uint32_t tp, slots, chunk, layers;
	uint32_t step_us;	/* GPU time of a decode step of one sequence */
	uint32_t token_ns;	/* GPU time per token of a prompt */
	uint32_t host_us;	/* of the engine thread, before each step */
	bool graphs, async;
};

/* ---- model.c: which kernels a step has ---- */
struct plan {			/* of a step, for each rank */
	uint64_t step;		/* from 1; 0: leave */
	uint32_t n_prefill;	/* tokens */
	uint32_t n_decode;	/* sequences */
	uint32_t bucket;	/* size of the graph that runs it, 0: kernel by kernel */
	uint32_t n_out;		/* sequences that get a token */
};
struct kernel {
	uint32_t name;		/* index in model_names */
	uint32_t blocks;
	uint64_t dur_ns;
	bool collective;	/* ends for all ranks at once; dur_ns is the least */
};
extern const char *const model_names[];
enum { N_MODEL_NAMES = 13 };
/* Up to and with the last layer, in their order; returns how many. */
uint32_t model_forward(const struct serve_opts *o, const struct plan *p, uint32_t rank, struct kernel *ret);
/* Behind it, never part of a graph. */
uint32_t model_sample(const struct serve_opts *o, const struct plan *p, uint32_t rank, struct kernel *ret);
uint32_t model_bucket(uint32_t n_decode);	/* the smallest graph that it fits in, 0: none */
extern const uint32_t model_buckets[MAX_BUCKETS];

/* ---- ranks.c: processes of one model, and the memory they share ---- */
struct ran {			/* a kernel or a copy as it ran */
	uint32_t name, stream;	/* copy: its direction is the name */
	uint64_t t0_ns, t1_ns;
};
struct ran_step {
	uint64_t step;		/* written last */
	uint32_t n, n_copies;
	struct ran kernels[MAX_KERNELS], copies[MAX_COPIES];
};
struct shared {
	uint32_t turn;		/* futex: counts plans */
	uint32_t posted;	/* futex: ranks that told their start, all steps together */
	struct plan plan;
	uint64_t start_ns[2][MAX_RANKS];	/* of even and of odd steps */
	struct ran_step ran[MAX_RANKS][MAX_FLIGHT];
};
struct shared *ranks_start(const struct serve_opts *o);	/* forks; returns in rank 0 only */
void ranks_plan(struct shared *s, const struct plan *p);	/* rank 0: to the others */
/* All ranks: tell when the device is ready, get the agreed times at which collectives end. */
void ranks_agree(struct shared *s, const struct serve_opts *o, uint32_t rank, const struct plan *p,
		 uint64_t ready_ns, uint64_t *ret_not_before);
/* Rank 0: what another rank ran in this step; waits for it. NULL: it died. */
const struct ran_step *ranks_ran(struct shared *s, uint32_t rank, uint64_t step);

/* ---- gpu.c: one device ---- */
struct gpu;
int gpu__open(const struct serve_opts *o, struct shared *s, uint32_t rank, struct gpu **ret);
int gpu__step(struct gpu *g, const struct plan *p);	/* enqueues it */
int gpu__wait(struct gpu *g, uint64_t step);		/* until it has run */

/* ---- engine.c: continuous batching ---- */
enum finish { RUNNING = 0, FINISH_LENGTH = 1, FINISH_STOP = 2 };
struct job {			/* a request, from the front to the engine */
	uint32_t req, conn;
	uint64_t recv_ns, hash;
	uint32_t prompt, max_out;
	bool ignore_eos;
	char id[40];
};
struct output {			/* a token, from the engine to the front */
	uint32_t req, conn, index;
	uint64_t hash;
	enum finish finish;
};
struct engine;
int engine__start(const struct serve_opts *o, struct shared *s, int wake_fd, struct engine **ret);
int engine__submit(struct engine *e, const struct job *j);
void engine__abort(struct engine *e, uint32_t req);
uint32_t engine__take(struct engine *e, struct output *ret, uint32_t max);

/* ---- front.c: HTTP ---- */
int front_run(struct engine *e, int listen_fd, int wake_fd);

/* ---- answer.c: the JSON of answers ---- */
struct answer {			/* to one request */
	struct job job;
	bool chat, stream, usage;
	uint32_t n_out;
};
int answer_parse(const char *path, const char *body, size_t n, struct answer *ret);	/* HTTP status */
size_t answer_token(const struct answer *a, const struct output *o, char *buf, size_t max);
size_t answer_role(const struct answer *a, char *buf, size_t max);
size_t answer_usage(const struct answer *a, char *buf, size_t max);
size_t answer_whole(const struct answer *a, enum finish finish, char *buf, size_t max);

uint64_t mix(uint64_t x);	/* a number that looks random */

#endif
