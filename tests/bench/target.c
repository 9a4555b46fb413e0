/* SPDX-License-Identifier: Apache-2.0 */
/* What libtokenlag.so costs in its target, on the simulated CUDA: ns of a thread that launches,
 * beside a client of CUPTI that throws all away; and ns of our own thread per record. Runs from the
 * root of the tree. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../sim/fault.h"
#include "../sim/in_target.h"

enum { ROUNDS = 31, LAUNCHES = 10000, GRAPHS = 250 };

static char path[4][512];
static struct load load;
static int (*start)(int memfd);

/* ---- the client that throws all away: asks for the same, and does nothing with it ---- */
static struct {
	int (*subscribe)(void **, void (*)(void *, uint32_t, uint32_t, const void *), void *);
	int (*unsubscribe)(void *);
	int (*callback)(uint32_t, void *, uint32_t, uint32_t);
	int (*buffers)(void (*)(uint8_t **, size_t *, size_t *),
		       void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
	int (*enable)(uint32_t), (*disable)(uint32_t), (*flush)(uint32_t);
} cupti;
/* Kernels, copies, memsets, CUPTI's overhead; cuLaunchKernel, cuGraphLaunch, cuMemcpyDtoHAsync. */
static const uint32_t kinds[] = { 10, 1, 2, 17 };
static const uint32_t calls[] = { 307, 514, 279 };
static uint8_t waste[1 << 20] __attribute__((aligned(4096)));
static void *subscriber;

static void on_call(void *ctx, uint32_t domain, uint32_t cbid, const void *data)
{
	(void)ctx, (void)domain, (void)cbid, (void)data;
}

static void on_request(uint8_t **buf, size_t *size, size_t *max_records)
{
	*buf = waste;
	*size = sizeof(waste);
	*max_records = 0;
}

static void on_complete(void *context, uint32_t stream, uint8_t *buf, size_t size, size_t valid)
{
	(void)context, (void)stream, (void)buf, (void)size, (void)valid;
}

static void waster_begin(void)
{
	if (cupti.subscribe(&subscriber, on_call, NULL))
		exit(1);
	cupti.buffers(on_request, on_complete);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		cupti.callback(1, subscriber, 1, calls[i]);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		cupti.enable(kinds[i]);
}

static void waster_end(void)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		cupti.disable(kinds[i]);
	cupti.flush(1);
	cupti.unsubscribe(subscriber);
}

static void load_cupti(void)
{
	static const struct { const char *name; void *at;
	} rows[] = {
		{ "cuptiSubscribe", &cupti.subscribe },
		{ "cuptiUnsubscribe", &cupti.unsubscribe },
		{ "cuptiEnableCallback", &cupti.callback },
		{ "cuptiActivityEnable", &cupti.enable },
		{ "cuptiActivityRegisterCallbacks", &cupti.buffers },
		{ "cuptiActivityDisable", &cupti.disable },
		{ "cuptiActivityFlushAll", &cupti.flush },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *s = target_symbol(path[1], rows[i].name);

		memcpy(rows[i].at, &s, sizeof(s));
	}
}

/* ---- measuring ---- */
enum who { NOBODY, WASTER, OURS, N_WHO };
static double launch_ns[N_WHO][ROUNDS], graph_ns[N_WHO][ROUNDS], record_ns[ROUNDS],
	callback_ns[ROUNDS];

/* CPU time of this thread: others on this machine do not count. */
static uint64_t cpu_ns(void)
{
	return sim_clock(CLOCK_THREAD_CPUTIME_ID);
}

static void measure(enum who who, int round)
{
	static uint64_t kernel = 100;
	void *args[2] = { &kernel, NULL };
	uint64_t begin = cpu_ns();

	for (int i = 0; i < LAUNCHES; i++)
		cuda.launch(load.kernels[i % EAGER], 1, 1, 1, 32, 1, 1, 0, load.stream, args, NULL);
	launch_ns[who][round] = (double)(cpu_ns() - begin) / LAUNCHES;
	cuda.stream_synchronize(load.stream);
	begin = cpu_ns();
	for (int i = 0; i < GRAPHS; i++)
		cuda.graph_launch(load.exec, load.stream);
	graph_ns[who][round] = (double)(cpu_ns() - begin) / GRAPHS;
	cuda.stream_synchronize(load.stream);
}

static void measure_ours(int round)
{
	struct agent a;

	agent__open(&a, 8 << 20);
	a.ring->max_records = a.ring->max_window_ms = UINT32_MAX;
	if (start(a.memfd))
		exit(1);
	agent__start_reader(&a);
	a.ring->order = TL_ORDER_KERNELS;
	if (!agent__wait(&a, TL_RING_ACTIVE, 5000))
		exit(1);
	measure(OURS, round);
	a.ring->order = TL_ORDER_LEAVE;
	agent__wait(&a, TL_RING_LEFT, 5000);
	record_ns[round] = (double)a.ring->record_ns / (a.ring->n_records + 1);
	callback_ns[round] = (double)a.ring->callback_ns / (a.ring->n_launches + 1);
	if (a.ring->n_dropped || a.ring->n_bad)
		printf("  (%" PRIu64 " records dropped, %" PRIu64 " bad)\n",
		       (uint64_t)a.ring->n_dropped, (uint64_t)a.ring->n_bad);
	sim_sleep_until(sim_now() + 20000000);	/* its thread ends */
	agent__stop_reader(&a);
	agent__close(&a);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), by_value);
	return v[ROUNDS / 2];
}

int main(void)
{
	static const char *const names[] = { "sim/libcuda.so.1", "sim/libcupti.so.13",
					     "libtokenlag.so" };
	const char *build = getenv("B") ? getenv("B") : "build";
	double launch[N_WHO], graph[N_WHO];
	void *s;

	for (int i = 0; i < 3; i++)
		snprintf(path[i], sizeof(path[i]), "%s/%s", build, names[i]);
	target_load_cuda(path[0], path[1]);
	load_cupti();
	s = target_symbol(path[2], "tokenlag_start");
	memcpy(&start, &s, sizeof(start));
	load__open(&load);
	for (int round = 0; round < ROUNDS; round++) {
		measure(NOBODY, round);
		waster_begin();
		measure(WASTER, round);
		waster_end();
		measure_ours(round);
	}
	for (int who = 0; who < N_WHO; who++) {
		launch[who] = median(launch_ns[who]);
		graph[who] = median(graph_ns[who]);
	}
	printf("simulated, medians of %d rounds      nobody  a client that      ours   ours - "
	       "client   target\n"
	       "                                     attached  does nothing\n",
	       ROUNDS);
	printf("ns per cuLaunchKernel                %8.0f %14.0f %9.0f %15.0f   <= 300\n",
	       launch[NOBODY], launch[WASTER], launch[OURS], launch[OURS] - launch[WASTER]);
	printf("ns per cuGraphLaunch of %d kernels %10.0f %14.0f %9.0f %15.0f   <= 300\n",
	       GRAPH_NODES, graph[NOBODY], graph[WASTER], graph[OURS], graph[OURS] - graph[WASTER]);
	printf("ns per launch, as the library says itself (EXIT only)   %.0f\n",
	       median(callback_ns));
	printf("ns per record, on the library's own thread              %.0f   <= 150\n",
	       median(record_ns));
	return 0;
}
