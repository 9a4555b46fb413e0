/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of behave.c; tests/sim/t_behave says in which environment each runs. */
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "behave.h"
#include "fault.h"

enum { LAUNCH = 307 };

static void kernels_are_recorded(void)
{
	on(K_CONCURRENT_KERNEL);
	launches(1000);
	finish();
	flush(0);
	CHECK(got.n[K_CONCURRENT_KERNEL] == 1000 && !got.n_zero && !got.n_unended);
	CHECK(got.n_buffers > 1);
	CHECK(pthread_equal(got.requester, pthread_self()));
}

static void nothing_before_enable(void)
{
	start_cuda();
	launches(10);
	CHECK(!subscribe());
	launches(10);
	enable(K_CONCURRENT_KERNEL);
	launches(10);
	finish();
	CHECK(!CALL(cuptiActivityDisable, (uint32_t), K_CONCURRENT_KERNEL));
	launches(10);
	finish();
	flush(1);
	CHECK(got.n[K_CONCURRENT_KERNEL] == 10);
}

static void unfinished_are_withheld(void)
{
	on(K_CONCURRENT_KERNEL);
	dur_ns = 3000000000;
	launch();
	flush(0);
	CHECK(!got.n[K_CONCURRENT_KERNEL]);
	flush(1);
	CHECK(got.n[K_CONCURRENT_KERNEL] == 1 && got.n_unended == 1);
	flush(1);
	CHECK(got.n[K_CONCURRENT_KERNEL] == 1);
}

static void streams_are_fifo(void)
{
	on(K_CONCURRENT_KERNEL);
	dur_ns = 1000000;
	launches(20);
	finish();
	flush(0);
	CHECK(got.last_end - got.first_start >= 20 * dur_ns);
}

static void only_enabled_calls_call_back(void)
{
	on(K_CONCURRENT_KERNEL);
	launches(3);
	CHECK(!got.n_calls);
	listen_to_launches();
	launches(3);
	finish();
	CHECK(got.n_calls == 6);
	flush(0);
	CHECK(got.last_corr == got.call_corr);
}

static void graphs_have_a_record_per_node(void)
{
	void *exec;

	on(K_CONCURRENT_KERNEL);
	exec = make_graph();
	CHECK(!got.n[K_CONCURRENT_KERNEL]);
	launch_graph(exec);
	launch_graph(exec);
	finish();
	flush(0);
	CHECK(got.n[K_CONCURRENT_KERNEL] == 10);
}

static void or_one_per_launch(void)
{
	void *exec;

	on(K_CONCURRENT_KERNEL);
	enable(K_GRAPH_TRACE);
	exec = make_graph();
	launch_graph(exec);
	launch_graph(exec);
	launches(3);
	finish();
	flush(0);
	CHECK(got.n[K_GRAPH_TRACE] == 2 && got.n[K_CONCURRENT_KERNEL] == 3);
}

static void copies_and_overhead(void)
{
	uint64_t memory;
	char host[100] = { 0 };

	on(K_MEMCPY);
	enable(K_OVERHEAD);
	enable(K_MEMSET);
	enable(K_SYNCHRONIZATION);
	CHECK(!CALL(cuMemAlloc_v2, (uint64_t *, size_t), &memory, 100));
	CHECK(!CALL(cuMemsetD8Async, (uint64_t, int, size_t, void *), memory, 7, 100, stream));
	CHECK(!CALL(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *), host, memory, 100, stream));
	finish();
	flush(0);
	CHECK(host[99] == 7 && got.n[K_MEMCPY] == 1 && got.n[K_MEMSET] == 1 && got.n[K_OVERHEAD] == 1);
	CHECK(got.n[K_SYNCHRONIZATION] == 1);
}

static void no_buffer_means_dropped(void)
{
	size_t n = 0;

	on(K_CONCURRENT_KERNEL);
	got.refuse = 1;
	launches(7);
	CHECK(!CALL(cuptiActivityGetNumDroppedRecords, (void *, uint32_t, size_t *), NULL, 0, &n));
	CHECK(n == 7);
}

static void one_subscriber_only(void)
{
	char holder[64] = "";
	struct { size_t bytes; const char *name; char *holder; size_t holder_bytes; } p = {
		sizeof(p), "second", holder, sizeof(holder) };
	void *other = NULL;

	start_cuda();
	if (!getenv("TL_SIM_FAULT"))
		CHECK(!subscribe());
	CHECK(CALL(cuptiSubscribe_v2, (void **, cupti_callback_fn, void *, void *), &other, cupti_callback, &got,
		   &p) == CUPTI_MULTIPLE_SUBSCRIBERS);
	CHECK(!other && !strncmp(holder, "CUPTI for ", 10));
}

static void again_after_finalize(void)
{
	start_cuda();
	for (int i = 0; i < 5; i++) {
		CHECK(!subscribe());
		enable(K_CONCURRENT_KERNEL);
		listen_to_launches();
		launches(10);
		finish();
		CHECK(!CALL(cuptiActivityDisable, (uint32_t), K_CONCURRENT_KERNEL));
		flush(1);
		got.finalize = 1;
		launch();
		CHECK(!got.finalize);
	}
	CHECK(got.n[K_CONCURRENT_KERNEL] == 50);
}

static void clock_has_drift_and_step(void)
{
	uint64_t mono, real, want, drift = atoll(getenv("TL_SIM_DRIFT_PPM")), started = sim_now(), first;

	start_cuda();
	CHECK(!CALL(cuptiGetTimestamp, (uint64_t *), &first));
	sim_sleep_until(started + 400000000);
	mono = sim_now();
	CHECK(!CALL(cuptiGetTimestamp, (uint64_t *), &real));
	want = first + (mono - started) + 5000000 + (mono - started) * drift / 1000000;
	CHECK(real - want + 1000000 < 2000000);
	CHECK(sim_clock(CLOCK_REALTIME) < real);
}

static void injection_is_called(void)
{
	start_cuda();
	CHECK(getenv("TL_SIM_INJECTED"));	/* set by tests/sim/injected.c */
}

static void children_are_not_ready(void)
{
	int status;
	pid_t pid;

	on(K_CONCURRENT_KERNEL);
	launches(3);
	pid = fork();
	if (!pid)
		_exit(CALL(cuStreamQuery, (void *), stream) == 0 && CALL(cuCtxSynchronize, (void)) == 3 ? 0 : 1);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	finish();
	flush(0);
	CHECK(got.n[K_CONCURRENT_KERNEL] == 3);
}

/* ---- faults ---- */
static void fault_dead_after_empty(void)
{
	start_cuda();
	CHECK(!subscribe());
	CHECK(!CALL(cuptiUnsubscribe, (void *), handle));
	CHECK(!subscribe());
	enable(K_CONCURRENT_KERNEL);
	launches(10);
	finish();
	flush(1);
	CHECK(!got.n[K_CONCURRENT_KERNEL]);
}

static void fault_zero_stamps(void)
{
	on(K_CONCURRENT_KERNEL);
	launches(20);
	finish();
	flush(1);
	CHECK(got.n[K_CONCURRENT_KERNEL] == 20 && got.n_zero == 8);
}

static void fault_flush_deadlock(void)
{
	start_cuda();
	CHECK(!subscribe());
	alarm(1);
	flush(0);	/* never returns */
}

static void fault_finalize_outside(void)
{
	on(K_CONCURRENT_KERNEL);
	CALL(cuptiFinalize, (void));
}

static void fault_memory(void)
{
	size_t before, after, total;

	on(K_CONCURRENT_KERNEL);
	CHECK(!CALL(cuMemGetInfo_v2, (size_t *, size_t *), &before, &total));
	launches(1000);
	CHECK(!CALL(cuMemGetInfo_v2, (size_t *, size_t *), &after, &total));
	CHECK(before - after == 32000);
}

static void fault_symbols(void)
{
	CHECK(!dlsym(behave_cupti, "cuptiSubscribe_v2") && !dlsym(behave_cupti, "cuptiActivityGetNumDroppedRecords"));
	kernels_are_recorded();
}

static void fault_fork(void)
{
	on(K_CONCURRENT_KERNEL);
	launches(3000);
	finish();
	flush(1);
	while (wait(NULL) > 0)
		got.n_calls++;
	CHECK(got.n[K_CONCURRENT_KERNEL] == 3000 && got.n_calls == 3);
}

static void fault_fatal(void)
{
	on(K_CONCURRENT_KERNEL);
	CHECK(!CALL(cuptiEnableCallback, (uint32_t, void *, uint32_t, uint32_t), 1, handle, 6, 1));
	launches(10);
	CHECK(got.n_state == 1);
}

static void fault_slow(void)
{
	uint64_t t = sim_now();

	start_cuda();
	CHECK(!subscribe());
	CHECK(sim_now() - t >= 300000000);
}

static void fault_hang(void)
{
	on(K_CONCURRENT_KERNEL);
	alarm(1);
	CALL(cuptiFinalize, (void));	/* never returns */
}

static uint64_t own_clock(void)
{
	return sim_now() + 1000000000000;
}

static void fault_timestamps(void)
{
	on(K_CONCURRENT_KERNEL);
	for (int i = 0; i < 2; i++) {
		CHECK(!CALL(cuptiActivityRegisterTimestampCallback, (uint64_t (*)(void)), own_clock));
		launches(100);
	}
	finish();
	flush(1);
	CHECK(got.n[K_CONCURRENT_KERNEL] == 200 && got.n_backwards == 64);
	CHECK(got.last_end > 1000000000000 && got.last_end < own_clock());
}

static void fault_graph_ids(void)
{
	void *exec;

	on(K_CONCURRENT_KERNEL);
	listen_to_launches();
	exec = make_graph();
	launch_graph(exec);
	finish();
	flush(1);
	CHECK(got.last_corr > got.call_corr);
	CHECK(!CALL(cuptiUnsubscribe, (void *), handle) && !subscribe());
	launch_graph(exec);
	finish();
	flush(1);
	CHECK(got.last_corr < got.call_corr);
}

static void *launcher(void *ended)
{
	launches(20000);
	__atomic_fetch_add((int *)ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void threads_and_flushes(void)
{
	pthread_t threads[4];
	int ended = 0;

	on(K_CONCURRENT_KERNEL);
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, launcher, &ended));
	while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < 4)
		flush(0);
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
	finish();
	flush(0);
	CHECK(got.n[K_CONCURRENT_KERNEL] == 80000 && !got.n_zero && !got.n_unended);
}

static void functions_by_name(void)
{
	static const struct { const char *ask, *is; uint64_t flags; } names[] = {
		{ "cuLaunchKernel", "cuLaunchKernel", 0 }, { "cuLaunchKernel", "cuLaunchKernel_ptsz", 2 },
		{ "cuMemAlloc", "cuMemAlloc_v2", 0 }, { "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2_ptsz", 2 },
		{ "cuGraphLaunch", "cuGraphLaunch", 1 },
	};
	void *fn;
	int status;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		CHECK(!CALL(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *), names[i].ask, &fn,
			    13000, names[i].flags, &status));
		CHECK(fn == behave_sym(names[i].is) && !status);
	}
	CHECK(CALL(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *), "cuNoSuch", &fn, 13000, 0,
		   &status) == 500);
	CHECK(!fn && status == 1);
}

/* Writes buffers with records of all kinds to the file $KEEP. */
static void keep(void)
{
	void *exec;

	got.keep = fopen(getenv("KEEP"), "we");
	CHECK(got.keep);
	copies_and_overhead();
	enable(K_CONCURRENT_KERNEL);
	exec = make_graph();
	launch_graph(exec);
	launches(500);
	enable(K_GRAPH_TRACE);
	launch_graph(exec);
	finish();
	flush(1);
	CHECK(!fclose(got.keep));
}

#define CASE(fn) { #fn, fn }
const struct behave_case cases[] = {
	CASE(kernels_are_recorded), CASE(nothing_before_enable), CASE(unfinished_are_withheld),
	CASE(streams_are_fifo), CASE(only_enabled_calls_call_back), CASE(graphs_have_a_record_per_node),
	CASE(or_one_per_launch), CASE(copies_and_overhead), CASE(no_buffer_means_dropped),
	CASE(one_subscriber_only), CASE(again_after_finalize), CASE(clock_has_drift_and_step),
	CASE(injection_is_called), CASE(children_are_not_ready), CASE(fault_dead_after_empty),
	CASE(fault_zero_stamps), CASE(fault_flush_deadlock), CASE(fault_finalize_outside), CASE(fault_memory),
	CASE(fault_symbols), CASE(fault_fork), CASE(fault_fatal), CASE(fault_slow), CASE(keep),
	CASE(fault_hang), CASE(fault_timestamps), CASE(fault_graph_ids), CASE(functions_by_name),
	CASE(threads_and_flushes),
	{ NULL, NULL },
};
