/* SPDX-License-Identifier: Apache-2.0 */
/* Enters a process by injection and says what came of it; for t_inject. */
#include "source/gpu.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct seen {
	uint64_t spans, launches, names, clocks, healths, other, simulated;
};

static void on_event(void *ctx, const struct tl_hdr *h)
{
	struct seen *s = ctx;

	switch (h->kind) {
	case TL_GPU_SPAN: s->spans++; break;
	case TL_GPU_LAUNCH: s->launches++; break;
	case TL_GPU_NAME: s->names++; break;
	case TL_CLOCK: s->clocks++; break;
	case TL_GPU_HEALTH: s->healths++; s->simulated += h->flags & TL_GPU_SIMULATED; break;
	default: s->other++;
	}
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Is this user allowed to? A child of ours is somebody we may trace, or nobody is. */
static bool is_allowed(void)
{
	pid_t child = fork();
	int status;
	bool ok;

	if (!child) {
		pause();
		_exit(0);
	}
	ok = child > 0 && !ptrace(PTRACE_SEIZE, child, NULL, NULL);
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, &status, __WALL);
	}
	return ok && !geteuid();
}

/* inject --allowed, or inject PID LIBRARY CYCLES [LEVEL MS] */
int main(int argc, char **argv)
{
	int pid = argc > 3 ? atoi(argv[1]) : 0, cycles = argc > 3 ? atoi(argv[3]) : 0, err = 0, left = 0, n = 0;
	uint32_t level = argc > 5 ? atoi(argv[4]) : 0, ms = argc > 5 ? atoi(argv[5]) : 0;
	uint64_t total_ns = 0, longest_ns = 0;
	const struct gpu_attach_opts opts = { .library = argc > 2 ? argv[2] : NULL };
	struct gpu_entry entry = { 0 };
	struct seen s = { 0 };

	if (argc == 2 && !strcmp(argv[1], "--allowed"))
		return !is_allowed();
	for (; n < cycles && !err; n++) {
		struct gpu *g;
		uint64_t until;

		err = gpu__attach(pid, &opts, &g, &entry);
		if (err)
			break;
		total_ns += entry.stopped_ns;
		longest_ns = entry.stopped_ns > longest_ns ? entry.stopped_ns : longest_ns;
		gpu__order(g, level, ms);
		until = now_ns() + ms * 1000000ull;
		do {
			err = gpu__poll(g, now_ns(), on_event, &s);
			err = err < 0 ? err : 0;
			nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
		} while (!err && now_ns() < until);
		printf("state=%d why=%s\n", gpu__state(g), gpu__why(g));
		err = gpu__leave(g, on_event, &s);
		left += !err;
	}
	printf("cycles=%d left=%d err=%d why=%s\n", n, left, err, err ? entry.why[0] ? entry.why : strerror(-err) : "");
	printf("stops=%u stopped_us=%lu most_us=%lu way=%d against=%s\n", entry.n_stops, n ? total_ns / n / 1000 : 0,
	       longest_ns / 1000, entry.way, err ? "" : entry.why);
	printf("spans=%lu launches=%lu names=%lu clocks=%lu healths=%lu simulated=%lu other=%lu\n", s.spans, s.launches,
	       s.names, s.clocks, s.healths, s.simulated, s.other);
	return err ? 1 : 0;
}
