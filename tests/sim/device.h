/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the simulated libcuda: devices, streams and what runs in them. */
#ifndef TL_SIM_DEVICE_H
#define TL_SIM_DEVICE_H

#include <pthread.h>
#include <stddef.h>

#include "sim.h"

enum {				/* results of the driver API that the simulation gives */
	CUDA_OK = 0, CUDA_INVALID_VALUE = 1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_INITIALIZED = 3,
	CUDA_NO_DEVICE = 100, CUDA_INVALID_DEVICE = 101, CUDA_INVALID_HANDLE = 400,
	CUDA_NOT_FOUND = 500, CUDA_NOT_READY = 600, CUDA_CAPTURE_INVALID = 901,
};
enum { SIM_MAX_DEVICES = 16, SIM_MAX_NODES = 1 << 16, SIM_LAUNCH_LATENCY_NS = 3000 };

struct sim_context {
	uint32_t id, device;
};
struct sim_stream {
	pthread_mutex_t lock;
	uint32_t id;
	struct sim_context *context;
	uint64_t end_ns;	/* of all that is in it so far */
	struct sim_graph *capture;
};
struct sim_event {
	uint64_t at_ns;		/* when all that was before it has ended; 0: not recorded */
};
struct sim_function {		/* CUfunction; never freed */
	uint64_t default_ns;
	struct sim_function *next;
	char name[];
};
struct sim_node {
	struct sim_work work;	/* what is known before it is launched */
	uint64_t dur_ns;
	const uint64_t *not_before_ns;
};
struct sim_graph {		/* CUgraph and CUgraphExec */
	uint32_t id;
	uint32_t n, max;
	struct sim_node *nodes;
};

extern struct sim_hooks *volatile sim_hooks;

struct sim_context *sim_context(void);	/* the thread's current one */
int sim_context__set(struct sim_context *c);
struct sim_context *sim_device_context(int device);	/* NULL: no such device */
int sim_n_devices(void);
int sim_ready(void);		/* cuInit was called, in this process: CUDA_OK or why not */
int sim_init(void);

struct sim_stream *sim_stream__new(void);
void sim_stream__free(struct sim_stream *s);
struct sim_stream *sim_stream__of(void *handle);	/* 0, 1, 2: the default one */
int sim_stream__put(struct sim_stream *s, struct sim_node *node, uint32_t corr);
int sim_stream__launch(struct sim_stream *s, const struct sim_graph *g, uint32_t corr);
void sim_stream__wait(struct sim_stream *s, uint32_t corr, uint32_t sync, uint64_t until_ns);
void sim_stream__call(struct sim_stream *s, void (*fn)(void *), void *ctx);
uint64_t sim_stream__end(struct sim_stream *s);
uint64_t sim_context__end(void);	/* of all streams of the thread's context */

struct sim_graph *sim_graph__new(void);
struct sim_graph *sim_graph__copy(const struct sim_graph *g);
void sim_graph__free(struct sim_graph *g);
int sim_graph__add(struct sim_graph *g, const struct sim_node *node);

struct sim_function *sim_function(const char *name);	/* NULL: out of memory */

/* Each call of the API is between these two. */
void sim_call__enter(struct sim_call *c);
int sim_call__exit(struct sim_call *c, int ret);

#endif
