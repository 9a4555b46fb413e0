/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of in_target: work on the simulated device with its truth, and a reader of the ring. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"
#include "in_target.h"

struct cuda cuda;

static void fail(const char *what)
{
	fprintf(stderr, "in_target: %s: %s\n", what, dlerror());
	exit(2);
}

void facts__add(struct facts *f, const struct fact *x)
{
	if (f->n == f->max) {
		f->max = f->max ? f->max * 2 : 4096;
		f->v = realloc(f->v, f->max * sizeof(*f->v));
		if (!f->v)
			fail("memory");
	}
	f->v[f->n++] = *x;
}

uint32_t fact_hash(const char *text)
{
	uint32_t h = 5381;

	for (int i = 0; i < 127 && text[i]; i++)
		h = h * 33 + (unsigned char)text[i];
	return h;
}

void *target_symbol(const char *path, const char *name)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL), *s = lib ? dlsym(lib, name) : NULL;

	if (!s)
		fail(path);
	return s;
}

void target_load_cuda(const char *libcuda, const char *libcupti)
{
	static const struct { const char *name; size_t at; } rows[] = {
		{ "cuInit", offsetof(struct cuda, init) },
		{ "cuStreamCreate", offsetof(struct cuda, stream_create) },
		{ "cuStreamSynchronize", offsetof(struct cuda, stream_synchronize) },
		{ "cuModuleGetFunction", offsetof(struct cuda, get_function) },
		{ "cuLaunchKernel", offsetof(struct cuda, launch) },
		{ "cuStreamBeginCapture_v2", offsetof(struct cuda, begin_capture) },
		{ "cuStreamEndCapture", offsetof(struct cuda, end_capture) },
		{ "cuGraphInstantiateWithFlags", offsetof(struct cuda, instantiate) },
		{ "cuGraphDestroy", offsetof(struct cuda, destroy_graph) },
		{ "cuGraphLaunch", offsetof(struct cuda, graph_launch) },
		{ "cuMemAlloc_v2", offsetof(struct cuda, alloc) },
		{ "cuMemcpyDtoHAsync_v2", offsetof(struct cuda, dtoh) },
		{ SIM_WATCH, offsetof(struct cuda, watch) },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *s = target_symbol(libcuda, rows[i].name);

		memcpy((char *)&cuda + rows[i].at, &s, sizeof(s));
	}
	if (libcupti)
		target_symbol(libcupti, "cuptiGetVersion");
	if (cuda.init(0))
		fail("cuInit");
}

/* ---- work ---- */
uint64_t load_kernel_ns = 4000;
static void *kernel_args[2] = { &load_kernel_ns, NULL };

static void on_work(void *ctx, const struct sim_work *w)
{
	static const uint32_t whats[] = { [SIM_KERNEL] = TL_SPAN_KERNEL,
					  [SIM_GRAPH] = TL_SPAN_GRAPH,
					  [SIM_MEMCPY] = TL_SPAN_MEMCPY,
					  [SIM_MEMSET] = TL_SPAN_MEMSET,
					  [SIM_SYNC] = 0 };
	struct load *l = ctx;
	struct fact x = { w->corr, whats[w->kind], w->start_ns, w->end_ns, w->graph,
			  w->name ? fact_hash(w->name) : 0 };

	if (l->record && x.what)
		facts__add(&l->truth, &x);
}

static void launch(struct load *l, void *kernel)
{
	if (cuda.launch(kernel, 1, 1, 1, 32, 1, 1, 0, l->stream, kernel_args, NULL))
		fail("cuLaunchKernel");
}

static void *capture(struct load *l)
{
	void *graph;

	if (cuda.begin_capture(l->stream, 0))
		fail("cuStreamBeginCapture");
	for (int i = 0; i < GRAPH_NODES; i++)
		launch(l, l->kernels[i % EAGER]);
	if (cuda.end_capture(l->stream, &graph))
		fail("cuStreamEndCapture");
	return graph;
}

void load__open(struct load *l)
{
	void *graph;
	char name[300];

	*l = (struct load){ 0 };
	cuda.watch(on_work, l);
	if (cuda.stream_create(&l->stream, 0) || cuda.alloc(&l->logits, 4096))
		fail("cuStreamCreate");
	for (int i = 0; i < EAGER; i++) {	/* one of them longer than an event keeps */
		snprintf(
			name, sizeof(name), "_Z%dkernel_%d_%.*s", i, i, i == 8 ? 200 : i,
			"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
			"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
			"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc");
		if (cuda.get_function(&l->kernels[i], (void *)1, name))
			fail("cuModuleGetFunction");
	}
	graph = capture(l);
	if (cuda.instantiate(&l->exec, graph, 0))
		fail("cuGraphInstantiateWithFlags");
}

void load__capture(struct load *l)
{
	cuda.destroy_graph(capture(l));
}

void load__step(struct load *l)
{
	static char token[64];

	if (cuda.graph_launch(l->exec, l->stream))
		fail("cuGraphLaunch");
	for (int i = 0; i < EAGER; i++)
		launch(l, l->kernels[i]);
	if (cuda.dtoh(token, l->logits, sizeof(token), l->stream))
		fail("cuMemcpyDtoHAsync");
	if (l->record)
		l->n_launches += 1 + EAGER + 1;
}

void load__paced(struct load *l, uint64_t n_steps, uint64_t steps_per_s)
{
	uint64_t begin = sim_now();

	for (uint64_t i = 0; i < n_steps; i++) {
		load__step(l);
		if (i % 8 == 7)
			sim_sleep_until(begin + i * 1000000000 / steps_per_s);
	}
	cuda.stream_synchronize(l->stream);
}

/* ---- the agent's end ---- */
void agent__open(struct agent *a, size_t ring_bytes)
{
	size_t offset = 4096;

	*a = (struct agent){ 0 };
	a->memfd = memfd_create("tokenlag", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (a->memfd < 0 || ftruncate(a->memfd, offset + ring_bytes))
		fail("memfd");
	a->ring = mmap(NULL, offset + ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a->memfd, 0);
	if (a->ring == MAP_FAILED)
		fail("mmap");
	a->ring->magic = TL_RING_MAGIC;
	a->ring->data_offset = offset;
	a->ring->data_bytes = ring_bytes;
	a->ring->heartbeat_ns = sim_now();
}

void agent__close(struct agent *a)
{
	munmap(a->ring, a->ring->data_offset + a->ring->data_bytes);
	close(a->memfd);
	free(a->spans.v);
}

static void on_event(struct agent *a, const struct tl_hdr *h)
{
	const struct tl_gpu_span *s = (const void *)h;
	const struct tl_gpu_name *n = (const void *)h;

	switch (h->kind) {
	case TL_GPU_SPAN:
		a->n_spans += s->what != TL_SPAN_OVERHEAD;
		if (s->what != TL_SPAN_OVERHEAD && !a->count_only)
			facts__add(&a->spans,
				   &(struct fact){ s->corr, s->what, h->ts_ns, s->end_ns, s->graph,
						   s->name <= 8192 ? a->names[s->name] : 0 });
		break;
	case TL_GPU_NAME:
		a->n_names++;
		if (n->id && n->id <= 8192)
			a->names[n->id] = fact_hash(n->name);
		break;
	case TL_GPU_LAUNCH:
		a->n_launches++;
		if (h->tid == 0 || h->tgid != (uint32_t)getpid() || !h->ts_ns)
			a->n_bad_events++;
		break;
	case TL_CLOCK:
		a->n_clocks++;
		break;
	default:
		a->n_unknown++;
	}
}

void agent__read(struct agent *a)
{
	struct tl_ring *r = a->ring;
	char *data = (char *)r + r->data_offset;

	for (;;) {
		char *at = data + (r->tail & (r->data_bytes - 1));
		uint64_t word = __atomic_load_n((uint64_t *)(void *)at, __ATOMIC_ACQUIRE);
		uint16_t size = word;

		if (!size)
			return;
		if (size % 8 || at + size > data + r->data_bytes) {
			a->n_bad_events++;
			return;
		}
		if ((uint16_t)(word >> 16) != TL_NONE)
			on_event(a, (struct tl_hdr *)(void *)at);
		memset(at, 0, size);
		__atomic_store_n(&r->tail, r->tail + size, __ATOMIC_RELEASE);
	}
}

static pthread_t reader;

static void *read_on(void *ctx)
{
	struct agent *a = ctx;

	while (!__atomic_load_n(&a->stop, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&a->ring->heartbeat_ns, sim_now(), __ATOMIC_RELEASE);
		agent__read(a);
		sim_sleep_until(sim_now() + 5000000);
	}
	agent__read(a);
	return NULL;
}

void agent__start_reader(struct agent *a)
{
	a->stop = false;
	if (pthread_create(&reader, NULL, read_on, a))
		fail("thread");
}

void agent__stop_reader(struct agent *a)
{
	__atomic_store_n(&a->stop, true, __ATOMIC_RELEASE);
	pthread_join(reader, NULL);
}

bool agent__wait(struct agent *a, uint32_t state, uint32_t ms)
{
	uint64_t until = sim_now() + ms * 1000000ull;

	while (__atomic_load_n(&a->ring->state, __ATOMIC_ACQUIRE) != state) {
		if (sim_now() >= until)
			return false;
		sim_sleep_until(sim_now() + 1000000);
	}
	return true;
}
