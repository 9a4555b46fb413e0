/* SPDX-License-Identifier: Apache-2.0 */
/* A process that uses the simulated CUDA, with libtokenlag.so in it and the ring's other end at
 * hand. */
#ifndef TL_SIM_IN_TARGET_H
#define TL_SIM_IN_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim.h"
#include "tl_event.h"
#include "tl_ring.h"

struct fact {			/* a piece of work, as it was done, or as a span tells it */
	uint32_t corr, what;	/* enum tl_gpu_span_what */
	uint64_t start_ns, end_ns;
	uint32_t graph, name;	/* name: hash of its text */
};
struct facts {
	struct fact *v;
	size_t n, max;
};
void facts__add(struct facts *f, const struct fact *x);
uint32_t fact_hash(const char *text);

struct cuda {			/* the driver API, by name as everybody gets it */
	int (*init)(unsigned int);
	int (*stream_create)(void **, unsigned int);
	int (*stream_synchronize)(void *);
	int (*get_function)(void **, void *, const char *);
	int (*launch)(void *f, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
		      uint32_t shmem, void *stream, void **args, void **extra);
	int (*begin_capture)(void *stream, int mode);
	int (*end_capture)(void *stream, void **graph);
	int (*instantiate)(void **exec, void *graph, unsigned long long flags);
	int (*destroy_graph)(void *graph);
	int (*graph_launch)(void *exec, void *stream);
	int (*alloc)(uint64_t *, size_t);
	int (*dtoh)(void *dst, uint64_t src, size_t n, void *stream);
	sim_watch_fn watch;
};
extern struct cuda cuda;

void target_load_cuda(const char *libcuda, const char *libcupti);	/* NULL: not */
void *target_symbol(const char *lib, const char *name);

/* ---- work: steps of GRAPH_NODES kernels in a graph, EAGER by themselves, and a copy ---- */
enum { GRAPH_NODES = 40, EAGER = 9, STEP_RECORDS = GRAPH_NODES + EAGER + 1 };
struct load {
	void *stream, *exec, *kernels[EAGER];
	uint64_t logits;		/* in the device's memory */
	struct facts truth;	/* all that was enqueued by load__step while `record` is set */
	bool record;
	uint64_t n_launches;	/* that a callback should see: graphs, kernels, copies */
};
extern uint64_t load_kernel_ns;	/* of each kernel */
void load__open(struct load *l);	/* the thread that steps is the one that opened it */
void load__step(struct load *l);
void load__capture(struct load *l);	/* launches that do not run */
void load__paced(struct load *l, uint64_t n_steps, uint64_t steps_per_s);

/* ---- the agent's end ---- */
struct agent {
	int memfd;
	struct tl_ring *ring;
	struct facts spans;
	uint64_t n_spans;	/* without OVERHEAD */
	uint64_t n_launches, n_names, n_clocks, n_unknown, n_bad_events;
	uint32_t names[8193];	/* hash by id */
	bool stop, count_only;
};
void agent__open(struct agent *a, size_t ring_bytes);
void agent__read(struct agent *a);
void agent__start_reader(struct agent *a);	/* a thread that reads, and beats */
void agent__stop_reader(struct agent *a);
bool agent__wait(struct agent *a, uint32_t state, uint32_t ms);	/* for a state */
void agent__close(struct agent *a);

#endif
