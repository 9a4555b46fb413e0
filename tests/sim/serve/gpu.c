/* SPDX-License-Identifier: Apache-2.0 */
/* simserve: one device, driven through whatever libcuda.so.1 the loader finds; it has to be the simulated one. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../fault.h"
#include "serve.h"

struct cuda {			/* the driver API, as far as it is used */
	int (*cuInit)(unsigned int);
	int (*cuDevicePrimaryCtxRetain)(void **, int);
	int (*cuCtxSetCurrent)(void *);
	int (*cuStreamCreate)(void **, unsigned int);
	int (*cuModuleLoadData)(void **, const void *);
	int (*cuModuleGetFunction)(void **, void *, const char *);
	int (*cuLaunchKernel)(void *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
			      void *, void **, void **);
	int (*cuMemAlloc_v2)(uint64_t *, size_t);
	int (*cuMemcpyHtoDAsync_v2)(uint64_t, const void *, size_t, void *);
	int (*cuMemcpyDtoHAsync_v2)(void *, uint64_t, size_t, void *);
	int (*cuEventCreate)(void **, unsigned int);
	int (*cuEventRecord)(void *, void *);
	int (*cuEventSynchronize)(void *);
	int (*cuStreamBeginCapture_v2)(void *, int);
	int (*cuStreamEndCapture)(void *, void **);
	int (*cuGraphInstantiateWithFlags)(void **, void *, unsigned long long);
	int (*cuGraphLaunch)(void *, void *);
	sim_watch_fn watch;
};
struct gpu {
	struct cuda cu;
	const struct serve_opts *o;
	struct shared *shared;
	uint32_t rank;
	void *context, *stream, *functions[N_MODEL_NAMES];
	void *events[MAX_FLIGHT];
	void *graphs[MAX_BUCKETS];
	uint64_t tokens;	/* device memory for ids of tokens */
	uint32_t host_tokens[MAX_SLOTS];
	uint64_t not_before[MAX_KERNELS];
	uint64_t last_end_ns;	/* of what was enqueued so far */
	struct ran_step *ran;	/* where the step that is being enqueued is written down */
	struct kernel kernels[MAX_KERNELS];
};

static int load(struct cuda *cu)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	struct { const char *name; void *fn; } all[] = {
#define FN(n) { #n, &cu->n }
		FN(cuInit), FN(cuDevicePrimaryCtxRetain), FN(cuCtxSetCurrent), FN(cuStreamCreate),
		FN(cuModuleLoadData), FN(cuModuleGetFunction), FN(cuLaunchKernel), FN(cuMemAlloc_v2),
		FN(cuMemcpyHtoDAsync_v2), FN(cuMemcpyDtoHAsync_v2), FN(cuEventCreate), FN(cuEventRecord),
		FN(cuEventSynchronize), FN(cuStreamBeginCapture_v2),
		FN(cuStreamEndCapture), FN(cuGraphInstantiateWithFlags), FN(cuGraphLaunch),
		{ SIM_WATCH, &cu->watch },
	};

	if (!lib || !dlsym(lib, "tokenlag_simulated"))
		return -ENOENT;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		void *fn = dlsym(lib, all[i].name);

		if (!fn)
			return -ENOENT;
		memcpy(all[i].fn, &fn, sizeof(fn));
	}
	return 0;
}

/* Everything that this thread enqueues, with the times it has: that is the truth. */
static void note(void *ctx, const struct sim_work *w)
{
	struct gpu *g = ctx;
	struct ran_step *s = g->ran;
	struct ran r = { .stream = w->stream, .t0_ns = w->start_ns, .t1_ns = w->end_ns };

	if (!s)
		return;
	if (w->kind != SIM_SYNC)
		g->last_end_ns = w->end_ns;
	if (w->kind == SIM_KERNEL && s->n < MAX_KERNELS) {
		while (r.name + 1 < N_MODEL_NAMES && strcmp(model_names[r.name], w->name))
			r.name++;
		s->kernels[s->n++] = r;
	} else if (w->kind == SIM_MEMCPY && s->n_copies < MAX_COPIES) {
		r.name = w->copy;
		s->copies[s->n_copies++] = r;
	}
}

static int launch(struct gpu *g, const struct kernel *k, const uint64_t *not_before)
{
	uint64_t dur = k->dur_ns;
	void *args[] = { &dur, not_before ? &not_before : NULL };

	return g->cu.cuLaunchKernel(g->functions[k->name], k->blocks, 1, 1, 128, 1, 1, 0, g->stream, args,
				    NULL);
}

static int launch_forward(struct gpu *g, const struct plan *p)
{
	uint32_t n = model_forward(g->o, p, g->rank, g->kernels);
	int err = 0;

	for (uint32_t i = 0; i < n && !err; i++)
		err = launch(g, &g->kernels[i], &g->not_before[i]);
	return err;
}

static int capture(struct gpu *g)
{
	void *graph;
	int err = 0;

	for (uint32_t i = 0; i < MAX_BUCKETS && !err; i++) {
		struct plan p = { .n_decode = model_buckets[i], .bucket = model_buckets[i] };

		if (i && model_buckets[i - 1] >= g->o->slots)
			break;
		err = g->cu.cuStreamBeginCapture_v2(g->stream, 0);
		err = err ? err : launch_forward(g, &p);
		err = err ? err : g->cu.cuStreamEndCapture(g->stream, &graph);
		err = err ? err : g->cu.cuGraphInstantiateWithFlags(&g->graphs[i], graph, 0);
	}
	return err;
}

int gpu__open(const struct serve_opts *o, struct shared *s, uint32_t rank, struct gpu **ret)
{
	struct gpu *g = calloc(1, sizeof(*g));
	void *module;
	int err;

	if (!g)
		return -ENOMEM;
	g->o = o;
	g->shared = s;
	g->rank = rank;
	if (load(&g->cu) || (o->cupti && !dlopen(o->cupti, RTLD_NOW | RTLD_GLOBAL))) {
		fprintf(stderr, "simserve: the simulated CUDA is not where the loader looks: %s\n", dlerror());
		free(g);
		return -ENOENT;
	}
	err = g->cu.cuInit(0);
	err = err ? err : g->cu.cuDevicePrimaryCtxRetain(&g->context, rank);
	err = err ? err : g->cu.cuCtxSetCurrent(g->context);
	err = err ? err : g->cu.cuStreamCreate(&g->stream, 1);
	err = err ? err : g->cu.cuModuleLoadData(&module, "");
	for (uint32_t i = 0; i < N_MODEL_NAMES && !err; i++)
		err = g->cu.cuModuleGetFunction(&g->functions[i], module, model_names[i]);
	for (uint32_t i = 0; i < MAX_FLIGHT && !err; i++)
		err = g->cu.cuEventCreate(&g->events[i], 0);
	err = err ? err : g->cu.cuMemAlloc_v2(&g->tokens, sizeof(g->host_tokens));
	if (!err && o->graphs)
		err = capture(g);
	if (err) {
		fprintf(stderr, "simserve: rank %u: CUDA error %d\n", rank, err);
		free(g);
		return -EIO;
	}
	g->cu.watch(note, g);
	*ret = g;
	return 0;
}

/* From the thread that called gpu__open, as the truth is noted there. */
int gpu__step(struct gpu *g, const struct plan *p)
{
	struct ran_step *s = &g->shared->ran[g->rank][p->step % MAX_FLIGHT];
	struct kernel sample[2];
	uint32_t i = 0, n;
	int err;

	__atomic_store_n(&s->step, 0, __ATOMIC_RELEASE);
	s->n = s->n_copies = 0;
	g->ran = s;
	err = g->cu.cuMemcpyHtoDAsync_v2(g->tokens, g->host_tokens, 4 * (p->n_decode + 1), g->stream);
	ranks_agree(g->shared, g->o, g->rank, p, g->last_end_ns > sim_now() ? g->last_end_ns : sim_now(),
		    g->not_before);
	if (p->bucket) {
		while (model_buckets[i] != p->bucket)
			i++;
		err = err ? err : g->cu.cuGraphLaunch(g->graphs[i], g->stream);
	} else {
		err = err ? err : launch_forward(g, p);
	}
	n = p->n_out ? model_sample(g->o, p, g->rank, sample) : 0;
	for (i = 0; i < n && !err; i++)
		err = launch(g, &sample[i], NULL);
	err = err ? err : g->cu.cuMemcpyDtoHAsync_v2(g->host_tokens, g->tokens, 4 * (p->n_out + 1), g->stream);
	err = err ? err : g->cu.cuEventRecord(g->events[p->step % MAX_FLIGHT], g->stream);
	__atomic_store_n(&s->step, p->step, __ATOMIC_RELEASE);
	g->ran = NULL;
	return err ? -EIO : 0;
}

int gpu__wait(struct gpu *g, uint64_t step)
{
	return g->cu.cuEventSynchronize(g->events[step % MAX_FLIGHT]) ? -EIO : 0;
}
