/* SPDX-License-Identifier: Apache-2.0 */
/* What watching the scheduler costs per context switch, to a target and to everybody else. */
#include "source/bpf.h"
#include "source/host.h"
#include "tl_event.h"
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 9, BLOCKS = 40, TRIPS = 300, PER_SECOND = 10000 };

enum state { ALONE, EMPTY, T0_OTHER, HOST_OTHER, T0_TARGET, HOST_TARGET, N_STATES };
static const char *const names[N_STATES] = {
	"alone", "two empty programs", "not a target, T0+T1", "  and the host", "a target, T0+T1", "  and the host",
};
static double ns[N_STATES][ROUNDS];

static int there[2], back[2];
static pid_t partner;

static double clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* On one CPU, and before all others: their switches are not to be measured. */
static void pin(void)
{
	const struct sched_param first = { 1 };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	sched_setaffinity(0, sizeof(set), &set);
	sched_setscheduler(0, SCHED_FIFO, &first);	/* if that is allowed */
}

/* Answers each byte; on the same CPU, so each trip is two switches. */
static void answer(void)
{
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(there[0], &c, 1) == 1 && write(back[1], &c, 1) == 1)
		;
	_exit(0);
}

static void trips(int n)
{
	char c = 0;

	for (int i = 0; i < n; i++)
		if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
			abort();
}

/* ns per switch, the best of some blocks: others use this CPU, too. */
static double measure(void)
{
	double best = 1e12;

	for (int b = 0; b < BLOCKS; b++) {
		double start = clock_ns(CLOCK_MONOTONIC), d;

		trips(TRIPS);
		d = (clock_ns(CLOCK_MONOTONIC) - start) / (2 * TRIPS);
		best = d < best ? d : best;
	}
	return best;
}

static struct host *host;
static uint64_t n_events;

static int drop(void *ctx, const struct tl_hdr *ev)
{
	(void)ctx, (void)ev;
	n_events++;
	return 0;
}
static const struct emit out = { drop, NULL };

static int take(void *ctx, const struct tl_hdr *ev)
{
	int err = host ? host__take(host, ev, &out) : drop(ctx, ev);

	return err < 0 ? err : 0;
}

static void poll_all(struct src_bpf *s)
{
	const struct emit tap = { take, NULL };

	while (src_bpf__poll(s, &tap, 0) > 0)
		;
	host__poll(host, clock_ns(CLOCK_MONOTONIC), &out);
}

/* An engine, as far as the host's evidence goes: sleeps, long runs and stacks of its main thread are watched. */
static void follow(pid_t pid)
{
	host__add(host, &(struct host_process){ .tgid = pid, .server = pid, .engine = TL_ENGINE_VLLM,
						.role = "engine-core", .title = "" });
}

/* What the kernel takes to call any programs at a switch and a wakeup. */
static double measure_empty(void)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K },	/* r0 = 0 */
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int prog = bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "empty", "GPL", insns, 2, NULL);
	int at_switch = bpf_raw_tracepoint_open("sched_switch", prog);
	int at_wakeup = bpf_raw_tracepoint_open("sched_waking", prog);
	double d = measure();

	close(at_switch);
	close(at_wakeup);
	close(prog);
	return d;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *values)
{
	double v[ROUNDS];

	memcpy(v, values, sizeof(v));
	qsort(v, ROUNDS, sizeof(*v), by_value);
	return v[ROUNDS / 2];
}

/* The agent's share for 10,000 switches of a target in a second, polled as `record` does. */
static double agent_ns_per_second(struct src_bpf *s)
{
	double begin = clock_ns(CLOCK_MONOTONIC), cpu = 0;

	for (int i = 0; i < 10; i++) {
		double start;

		trips(PER_SECOND / 2 / 10);
		start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		poll_all(s);
		cpu += clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start;
		while (clock_ns(CLOCK_MONOTONIC) < begin + (i + 1) * 1e8)
			usleep(1000);
	}
	return cpu;
}

int main(void)
{
	const struct src_bpf_opts opts = { 0 };
	double attach[ROUNDS], agent[ROUNDS], base, cost;
	struct src_bpf *s;
	const char *why;
	pid_t other;

	pin();
	if (pipe(there) || pipe(back))
		return 1;
	partner = fork();
	if (partner == 0)
		answer();
	other = fork();
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	if (partner < 0 || other < 0)
		return 1;
	for (int r = 0; r < ROUNDS; r++) {
		double t;

		ns[ALONE][r] = measure();
		ns[EMPTY][r] = measure_empty();
		if (src_bpf__open(&opts, &s, &why)) {
			fprintf(stderr, "switches: %s\n", why);
			return 1;
		}
		if (src_bpf__add_target(s, other))
			return 1;
		ns[T0_OTHER][r] = measure();
		if (src_bpf__add_target(s, getpid()) || src_bpf__add_target(s, partner))
			return 1;
		ns[T0_TARGET][r] = measure();
		src_bpf__del_target(s, getpid());
		src_bpf__del_target(s, partner);
		t = clock_ns(CLOCK_MONOTONIC);
		if (host__open(s, &host))
			return 1;
		attach[r] = clock_ns(CLOCK_MONOTONIC) - t;
		follow(other);
		poll_all(s);
		ns[HOST_OTHER][r] = measure();
		follow(getpid());
		follow(partner);
		poll_all(s);
		if (src_bpf__add_target(s, getpid()) || src_bpf__add_target(s, partner))
			return 1;
		ns[HOST_TARGET][r] = measure();
		poll_all(s);
		agent[r] = agent_ns_per_second(s);
		host__close(host);
		host = NULL;
		src_bpf__close(s);
	}
	kill(partner, SIGKILL);
	kill(other, SIGKILL);
	base = median(ns[ALONE]);
	printf("ns per context switch (ping-pong on one CPU, with its two system calls and its wakeup), median of %d "
	       "rounds (best of %d blocks in each):\n", ROUNDS, BLOCKS);
	for (int i = 0; i < N_STATES; i++)
		printf("  %-22s %6.0f  %+5.0f\n", names[i], median(ns[i]), median(ns[i]) - base);
	cost = median(ns[HOST_OTHER]) - median(ns[T0_OTHER]);
	printf("  host's evidence: %+.0f ns for others, %+.0f beyond empty programs (target: 50)\n", cost,
	       cost - (median(ns[EMPTY]) - base));
	cost = median(ns[HOST_TARGET]) - median(ns[T0_TARGET]);
	printf("  %+.0f ns for a target; at %d switches/s that is %.2f %% of a core, and %.2f %% in the agent"
	       " (target: 1 %% together)\n", cost, PER_SECOND, cost * PER_SECOND / 1e7, median(agent) / 1e7);
	printf("  load and attach %.0f ms\n", median(attach) / 1e6);
	return 0;
}
