/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated device: contexts, streams with their timelines, graphs, functions. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "fault.h"
#include "machine.h"

enum { MAX_STREAMS = 256 };

SIM_API const int tokenlag_simulated = 1;	/* how to tell this library from NVIDIA's */

struct sim_hooks *volatile sim_hooks;

static struct sim_context contexts[SIM_MAX_DEVICES];
static struct sim_stream defaults[SIM_MAX_DEVICES];
static struct sim_stream *streams[MAX_STREAMS];		/* that were created */
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t next_stream = 13, next_graph = 1, next_corr;
static uint64_t next_node = 1;
static struct sim_function *functions;
static pthread_mutex_t functions_lock = PTHREAD_MUTEX_INITIALIZER;
static int ready;		/* cuInit was called, by this process */
static uint64_t loaded_mono_ns, loaded_real_ns;
static int64_t drift_ppm, step_ns;
static uint64_t step_at_ns;
static int fork_fault;
static volatile struct sim_machine *machine;
static __thread struct sim_context *current;
static __thread void (*watch)(void *ctx, const struct sim_work *w);
static __thread void *watch_ctx;

static void in_child(void);

__attribute__((constructor)) static void load(void)
{
	const char *drift = getenv("TL_SIM_DRIFT_PPM"), *step = getenv("TL_SIM_NTP_STEP");
	char *end;

	loaded_mono_ns = sim_now();
	loaded_real_ns = sim_clock(CLOCK_REALTIME);
	drift_ppm = drift ? atoll(drift) : 0;
	if (step) {
		step_at_ns = loaded_mono_ns + strtoull(step, &end, 10) * 1000000;
		step_ns = *end == ':' ? atoll(end + 1) : 0;
	}
	fork_fault = sim_fault("fork_in_window", NULL);
	machine = sim_machine_open();
	pthread_atfork(NULL, NULL, in_child);
	for (uint32_t i = 0; i < SIM_MAX_DEVICES; i++) {
		contexts[i] = (struct sim_context){ .id = i + 1, .device = i };
		defaults[i].context = &contexts[i];
		defaults[i].id = 7;
		pthread_mutex_init(&defaults[i].lock, NULL);
	}
}

/* ---- contexts ---- */
int sim_n_devices(void)
{
	const char *n = getenv("TL_SIM_DEVICES");
	int v = n ? atoi(n) : 8;

	return v < 0 ? 0 : v > SIM_MAX_DEVICES ? SIM_MAX_DEVICES : v;
}

struct sim_context *sim_device_context(int device)
{
	return device < 0 || device >= sim_n_devices() ? NULL : &contexts[device];
}

struct sim_context *sim_context(void)
{
	return current ? current : &contexts[0];
}

int sim_context__set(struct sim_context *c)
{
	if (c && (c < contexts || c >= contexts + SIM_MAX_DEVICES))
		return CUDA_INVALID_HANDLE;
	current = c;
	return CUDA_OK;
}

int sim_init(void)
{
	if (!sim_n_devices())
		return CUDA_NO_DEVICE;
	ready = 1;
	return CUDA_OK;
}

/* As with the real one, a child made by fork cannot use what its parent set up. */
static void in_child(void)
{
	ready = 0;
}

int sim_ready(void)
{
	return ready ? CUDA_OK : CUDA_NOT_INITIALIZED;
}

/* ---- streams ---- */
struct sim_stream *sim_stream__new(void)
{
	struct sim_stream *s = calloc(1, sizeof(*s));
	int i = 0;

	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	s->context = sim_context();
	pthread_mutex_lock(&streams_lock);
	s->id = next_stream++;
	while (i < MAX_STREAMS && streams[i])
		i++;
	if (i < MAX_STREAMS)
		streams[i] = s;
	pthread_mutex_unlock(&streams_lock);
	if (i < MAX_STREAMS)
		return s;
	free(s);
	return NULL;
}

void sim_stream__free(struct sim_stream *s)
{
	pthread_mutex_lock(&streams_lock);
	for (int i = 0; i < MAX_STREAMS; i++)
		if (streams[i] == s)
			streams[i] = NULL;
	pthread_mutex_unlock(&streams_lock);
	free(s);
}

struct sim_stream *sim_stream__of(void *handle)
{
	return (uintptr_t)handle > 2 ? handle : &defaults[sim_context()->device];
}

static void tell(const struct sim_work *w)
{
	struct sim_hooks *h = sim_hooks;

	if (watch)
		watch(watch_ctx, w);
	if (h && h->works)
		h->work(w);
}

/* What a record of each kernel costs the device. */
static uint64_t record_cost_ns(void)
{
	static uint64_t us;
	static int known;
	struct sim_hooks *h = sim_hooks;

	if (!known) {
		us = 20;
		us = sim_fault("costly", &us) ? us : 0;
		known = 1;
	}
	return h && h->works == SIM_WORKS_KERNELS ? us * 1000 : 0;
}

/* Gives the node its times; the stream is locked. */
static void place(struct sim_stream *s, const struct sim_node *node, struct sim_work *w, uint64_t now)
{
	uint64_t start = now + SIM_LAUNCH_LATENCY_NS, slow_pct = machine->devices[s->context->device].slow_pct;
	uint64_t dur_ns = slow_pct ? node->dur_ns * slow_pct / 100 : node->dur_ns;

	if (start < s->end_ns)
		start = s->end_ns;
	w->start_ns = start;
	w->end_ns = start + (dur_ns ? dur_ns : 1) + record_cost_ns();
	if (node->not_before_ns && w->end_ns < *node->not_before_ns)
		w->end_ns = *node->not_before_ns;
	s->end_ns = w->end_ns;
	w->device = s->context->device;
	w->context = s->context->id;
	w->stream = s->id;
}

int sim_stream__put(struct sim_stream *s, struct sim_node *node, uint32_t corr)
{
	int err = CUDA_OK;

	pthread_mutex_lock(&s->lock);
	if (s->capture) {
		err = sim_graph__add(s->capture, node);
		pthread_mutex_unlock(&s->lock);
		return err;
	}
	node->work.corr = corr;
	place(s, node, &node->work, sim_now());
	pthread_mutex_unlock(&s->lock);
	tell(&node->work);
	return err;
}

int sim_stream__launch(struct sim_stream *s, const struct sim_graph *g, uint32_t corr)
{
	struct sim_work whole = { .kind = SIM_GRAPH, .corr = corr, .graph = g->id };
	uint64_t now = sim_now(), begin = 0;

	if (s->capture)
		return CUDA_CAPTURE_INVALID;
	/* The lock is not held while others are told; launches into one stream come from one
	 * thread, as an engine does it, or their nodes mix. */
	for (uint32_t i = 0; i < g->n; i++) {
		struct sim_work w = g->nodes[i].work;

		w.corr = corr;
		w.graph = g->id;
		pthread_mutex_lock(&s->lock);
		place(s, &g->nodes[i], &w, now);
		pthread_mutex_unlock(&s->lock);
		if (!begin)
			begin = w.start_ns;
		whole.device = w.device;
		whole.context = w.context;
		whole.stream = w.stream;
		whole.end_ns = w.end_ns;
		tell(&w);
	}
	whole.start_ns = begin;
	if (g->n)
		tell(&whole);
	return CUDA_OK;
}

void sim_stream__wait(struct sim_stream *s, uint32_t corr, uint32_t sync, uint64_t until_ns)
{
	struct sim_work w = { .kind = SIM_SYNC, .corr = corr, .sync = sync, .start_ns = sim_now() };

	if (until_ns > w.start_ns)
		sim_sleep_until(until_ns);
	w.end_ns = sim_now();
	w.device = s->context->device;
	w.context = s->context->id;
	w.stream = s->id;
	tell(&w);
}

uint64_t sim_stream__end(struct sim_stream *s)
{
	uint64_t end;

	pthread_mutex_lock(&s->lock);
	end = s->end_ns;
	pthread_mutex_unlock(&s->lock);
	return end;
}

uint64_t sim_context__end(void)
{
	struct sim_context *c = sim_context();
	uint64_t end = sim_stream__end(&defaults[c->device]);

	pthread_mutex_lock(&streams_lock);
	for (int i = 0; i < MAX_STREAMS; i++)
		if (streams[i] && streams[i]->context == c && streams[i]->end_ns > end)
			end = streams[i]->end_ns;
	pthread_mutex_unlock(&streams_lock);
	return end;
}

/* ---- host functions: a worker calls them when their stream has come so far ---- */
struct host_call {
	uint64_t at_ns;
	void (*fn)(void *);
	void *ctx;
	struct host_call *next;
};
static struct host_call *calls;		/* by time */
static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t calls_more = PTHREAD_COND_INITIALIZER;

static void *call_worker(void *unused)
{
	struct host_call *c;

	for (;;) {
		pthread_mutex_lock(&calls_lock);
		while (!calls)
			pthread_cond_wait(&calls_more, &calls_lock);
		c = calls;
		calls = c->next;
		pthread_mutex_unlock(&calls_lock);
		sim_sleep_until(c->at_ns);
		c->fn(c->ctx);
		free(c);
	}
	return unused;
}

void sim_stream__call(struct sim_stream *s, void (*fn)(void *), void *ctx)
{
	static pthread_t worker;
	struct host_call *c = malloc(sizeof(*c)), **at = &calls;

	if (!c)
		return;
	*c = (struct host_call){ sim_stream__end(s), fn, ctx, NULL };
	pthread_mutex_lock(&calls_lock);
	if (!worker && !pthread_create(&worker, NULL, call_worker, NULL))
		pthread_detach(worker);
	while (*at && (*at)->at_ns <= c->at_ns)
		at = &(*at)->next;
	c->next = *at;
	*at = c;
	pthread_cond_signal(&calls_more);
	pthread_mutex_unlock(&calls_lock);
}

/* ---- graphs ---- */
struct sim_graph *sim_graph__new(void)
{
	struct sim_graph *g = calloc(1, sizeof(*g));

	if (g)
		g->id = __atomic_fetch_add(&next_graph, 1, __ATOMIC_RELAXED);
	return g;
}

struct sim_graph *sim_graph__copy(const struct sim_graph *g)
{
	struct sim_graph *c = sim_graph__new();

	for (uint32_t i = 0; c && i < g->n; i++)
		if (sim_graph__add(c, &g->nodes[i]) != CUDA_OK) {
			sim_graph__free(c);
			return NULL;
		}
	return c;
}

void sim_graph__free(struct sim_graph *g)
{
	if (!g)
		return;
	free(g->nodes);
	free(g);
}

int sim_graph__add(struct sim_graph *g, const struct sim_node *node)
{
	if (g->n == g->max) {
		uint32_t max = g->max ? g->max * 2 : 64;
		struct sim_node *n = max > SIM_MAX_NODES ? NULL : realloc(g->nodes, max * sizeof(*n));

		if (!n)
			return CUDA_OUT_OF_MEMORY;
		g->nodes = n;
		g->max = max;
	}
	g->nodes[g->n] = *node;
	g->nodes[g->n++].work.node = __atomic_fetch_add(&next_node, 1, __ATOMIC_RELAXED);
	return CUDA_OK;
}

struct sim_function *sim_function(const char *name)
{
	struct sim_function *f;
	uint32_t hash = 2166136261u;

	pthread_mutex_lock(&functions_lock);
	for (f = functions; f && strcmp(f->name, name); f = f->next)
		;
	if (!f) {
		f = calloc(1, sizeof(*f) + strlen(name) + 1);
		if (f) {
			strcpy(f->name, name);
			for (; *name; name++)
				hash = (hash ^ (uint8_t)*name) * 16777619u;
			f->default_ns = 2000 + hash % 8000;
			f->next = functions;
			functions = f;
		}
	}
	pthread_mutex_unlock(&functions_lock);
	return f;
}

/* ---- what libcupti is told ---- */
static void fork_now_and_then(const struct sim_call *c)
{
	static uint32_t n;
	typedef int (*launch_fn)(void *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
				 uint32_t, void *, void **, void **);
	extern int cuLaunchKernel(void *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
				  uint32_t, void *, void **, void **);
	launch_fn launch = cuLaunchKernel;
	static int child;

	if (child || !sim_hooks || !sim_hooks->works || (c->cbid != 307 && c->cbid != 514))
		return;
	if (++n % 1000 || fork())
		return;
	child = 1;
	for (int i = 0; i < 3; i++)
		launch(sim_function("child"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	_exit(0);
}

void sim_call__enter(struct sim_call *c)
{
	struct sim_hooks *h = sim_hooks;

	c->corr = __atomic_add_fetch(&next_corr, 1, __ATOMIC_RELAXED);
	c->context = sim_context();
	c->context_id = sim_context()->id;
	c->data = 0;
	c->told = h && h->wanted[c->cbid];
	if (fork_fault)
		fork_now_and_then(c);
	if (c->told)
		h->call(c, 0);
}

int sim_call__exit(struct sim_call *c, int ret)
{
	struct sim_hooks *h = sim_hooks;

	*c->ret = ret;
	if (h && (c->told || h->wanted[c->cbid]))
		h->call(c, 1);
	return ret;
}

static uint64_t realtime(uint64_t mono_ns)
{
	int64_t since = mono_ns - loaded_mono_ns;
	uint64_t t = loaded_real_ns + since + since / 1000000 * drift_ppm +
		     since % 1000000 * drift_ppm / 1000000;

	return step_ns && mono_ns >= step_at_ns ? t + step_ns : t;
}

static uint32_t stream_id(void *stream)
{
	return sim_stream__of(stream)->id;
}

static uint32_t graph_id(void *graph)
{
	return ((struct sim_graph *)graph)->id;
}

static uint32_t context_id(void *context)
{
	return context ? ((struct sim_context *)context)->id : sim_context()->id;
}

static uint32_t device_id(void *context)
{
	return context ? ((struct sim_context *)context)->device : sim_context()->device;
}

SIM_API const struct sim_driver *tokenlag_sim_bind(struct sim_hooks *h)
{
	static const struct sim_driver driver = { realtime, stream_id, graph_id, context_id, device_id };

	sim_hooks = h;
	return &driver;
}

SIM_API void tokenlag_sim_watch(void (*fn)(void *ctx, const struct sim_work *w), void *ctx)
{
	watch = fn;
	watch_ctx = ctx;
}
