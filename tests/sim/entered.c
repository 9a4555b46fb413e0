/* SPDX-License-Identifier: Apache-2.0 */
/* A process to be entered: threads of several habits, whose output is the same in each run; for t_inject. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "source/seccomp.h"

static volatile int over;
static int bad;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Waits in epoll_wait, and looks at whether it was disturbed: neither EINTR nor an event is to be expected. */
static void *wait_on(void *ctx)
{
	int ep = epoll_create1(EPOLL_CLOEXEC), n;
	struct epoll_event ev;

	(void)ctx;
	while (!over) {
		errno = 77;
		n = epoll_wait(ep, &ev, 1, 20);
		if (n || errno != 77)
			__atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *allocate(void *ctx)
{
	void *v[64] = { 0 };

	for (uint32_t i = (uintptr_t)ctx; !over; i = i * 1103515245 + 12345) {
		free(v[i % 64]);
		v[i % 64] = malloc(i >> 16);
		if (i % 1024 == 0)
			usleep(1000);
	}
	for (int i = 0; i < 64; i++)
		free(v[i]);
	return NULL;
}

/* As agents leave them that are killed between two visits. */
static void keep_left(void)
{
	for (int i = 0; i < 3; i++)
		if (syscall(SYS_memfd_create, "tokenlag-ring", 0) < 0 ||
		    syscall(SYS_memfd_create, "libtokenlag.so", 0) < 0)
			exit(2);
}

/* How many descriptors more it may open, which it does. */
static int fill_files(void)
{
	int n = 0;

	while (dup(STDERR_FILENO) >= 0)
		n++;
	return n;
}

/* The only thread that waits where it can be sent away has descriptors of its own, of which one
 * is free. */
static void *live_apart(void *ctx)
{
	const int *steps = ctx;
	int last;

	if (unshare(CLONE_FILES) || setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 64, 64 }))
		exit(2);
	last = fill_files() > 0 ? 63 : -1;
	close(last);
	puts("begun");
	fflush(stdout);
	for (int i = 0; i < *steps; i++)
		nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
	printf("free %d\n", fill_files());
	exit(0);
}

enum { FILTER_MAX = 256 };

static void add(struct sock_filter *f, unsigned short *n, int code, int yes, int no, uint32_t k)
{
	if (*n == FILTER_MAX)
		exit(2);
	f[(*n)++] = (struct sock_filter){ code, yes, no, k };
}

static void allow(struct sock_filter *f, unsigned short *n, int nr)
{
	add(f, n, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, nr);
	add(f, n, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
}

/* Kills for any call that the agent does not say it needs, and that we do not make ourselves. but: and for this. */
static void sandbox(int but)
{
	static const int own[] = { SYS_write, SYS_epoll_create1, SYS_epoll_wait, SYS_exit_group };
	struct sock_filter f[FILTER_MAX];
	struct sock_fprog prog = { 0, f };

	add(f, &prog.len, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		allow(f, &prog.len, own[i]);
	for (size_t i = 0; i < n_seccomp_calls; i++)
		if (seccomp_calls[i].nr != but)
			allow(f, &prog.len, seccomp_calls[i].nr);
	add(f, &prog.len, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		exit(2);
}

/* A child traces this process, until it ends. */
static void be_traced(void)
{
	pid_t parent = getpid(), child;
	int ready[2], status;
	char c;

	if (pipe(ready))
		exit(2);
	child = fork();
	if (!child) {
		c = ptrace(PTRACE_SEIZE, parent, NULL, NULL) ? 'n' : 'y';
		if (write(ready[1], &c, 1) != 1)
			_exit(1);
		while (waitpid(parent, &status, __WALL) > 0 && WIFSTOPPED(status))
			ptrace(PTRACE_CONT, parent, NULL, WSTOPSIG(status));
		_exit(0);
	}
	if (child < 0 || read(ready[0], &c, 1) != 1 || c != 'y')
		exit(2);
}

/* entered MODE STEPS: mode "waits" (with threads in epoll and malloc), "writes" (never sleeps), "computes" (no
 * system calls at all), "sandboxed", "confined" (the same, and no memfd), "traced", "left"
 * (descriptors of killed agents are there; these wait) or "apart" (one descriptor is free). */
int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	int steps = argc > 2 ? atoi(argv[2]) : 0, n_threads = 0;
	pthread_t threads[4];
	double x = 0.5;

	bool waits = strcmp(mode, "writes") && strcmp(mode, "computes");
	bool sleeps = !strcmp(mode, "sleeps");

	if (!strcmp(mode, "sandboxed"))
		sandbox(-1);
	if (!strcmp(mode, "confined"))
		sandbox(SYS_memfd_create);
	if (!strcmp(mode, "traced"))
		be_traced();
	if (!strcmp(mode, "left"))
		keep_left();
	if (!strcmp(mode, "apart")) {
		pthread_create(&threads[0], NULL, live_apart, &steps);
		for (;;)
			pause();
	}
	if (!strcmp(mode, "waits")) {
		for (; n_threads < 4; n_threads++)
			pthread_create(&threads[n_threads], NULL, n_threads % 2 ? allocate : wait_on,
				       (void *)(uintptr_t)n_threads);
	}
	for (int i = 0; i < steps; i++) {
		uint64_t until = now_ns() + 10000000;
		int ended = 0;

		for (int k = 0; k < 20000; k++)
			x = 3.9 * x * (1 - x) + 1e-9 * sqrt(x);
		if (waits) {
			if (nanosleep(&(struct timespec){ sleeps && i ? 5 : 0, 10000000 }, NULL))
				bad++;
		} else {
			while (!ended && now_ns() < until) {
				for (int k = 0; k < 2000; k++)
					x = 3.9 * x * (1 - x) + 1e-9 * sqrt(x);
				x = 0.25 + i % 7 * 0.1;
				ended = strcmp(mode, "computes") && write(STDERR_FILENO, "", 0) != 0;
			}
		}
		if (strcmp(mode, "computes") || !i)
			printf("%d %.17g\n", i, x);
		if (!i)
			fflush(stdout);
	}
	over = 1;
	for (int i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	printf("end bad=%d\n", bad);
	return 0;
}
