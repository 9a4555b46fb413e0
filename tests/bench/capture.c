/* SPDX-License-Identifier: Apache-2.0 */
/* What capturing costs per system call and per probed function, to a target and to everybody else. */
#include "source/bpf.h"
#include "tl_event.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 15, BLOCKS = 40, CALLS = 200, MESSAGE = 270 };

/* Two functions to probe, one whose first instruction the kernel emulates and one that it has to
 * single-step. */
__asm__(".text\n.globl llama_batch_ext_clear\n.type llama_batch_ext_clear, @function\n"
	"llama_batch_ext_clear:\n	push %rbx\n	pop %rbx\n	ret\n.size llama_batch_ext_clear, 3\n"
	".globl _ZN11server_slot7releaseEv\n.type _ZN11server_slot7releaseEv, @function\n"
	"_ZN11server_slot7releaseEv:\n	sub $8, %rsp\n	add $8, %rsp\n	ret\n"
	".size _ZN11server_slot7releaseEv, 9\n");
void llama_batch_ext_clear(void *batch);
void release(void *slot) __asm__("_ZN11server_slot7releaseEv");

static int zero, null, sockets[2], tcp[2];
static char buf[MESSAGE];

static void op_getppid(void) { syscall(SYS_getppid); }
static void op_read(void) { if (read(zero, buf, 1) != 1) abort(); }
static void op_write(void) { if (write(null, buf, 1) != 1) abort(); }
static void op_message(void)
{
	if (send(sockets[0], buf, MESSAGE, 0) != MESSAGE || recv(sockets[1], buf, MESSAGE, 0) != MESSAGE)
		abort();
}
static void op_tcp(void)
{
	if (send(tcp[0], buf, MESSAGE, 0) != MESSAGE || recv(tcp[1], buf, MESSAGE, 0) != MESSAGE)
		abort();
}
static void op_held(void)
{
	if (send(tcp[0], buf, MESSAGE, MSG_MORE) != MESSAGE || send(tcp[0], buf, 1, 0) != 1 ||
	    recv(tcp[1], buf, MESSAGE + 1, MSG_WAITALL) != MESSAGE + 1)
		abort();
}
static void op_cheap(void) { llama_batch_ext_clear(buf); }
static void op_dear(void) { release(buf); }

static const struct op {
	const char *name;
	void (*fn)(void);
} ops[] = {
	{ "getppid", op_getppid },
	{ "read /dev/zero", op_read },
	{ "write /dev/null", op_write },
	{ "send and recv 270 B", op_message },
	{ "the same by TCP", op_tcp },
	{ "TCP, held, let go", op_held },
	{ "probed push", op_cheap },
	{ "probed sub rsp", op_dear },
};
enum { N_OPS = sizeof(ops) / sizeof(ops[0]) };

enum state { ALONE, BYSTANDER, TARGET, N_STATES };
static double ns[N_OPS][N_STATES][ROUNDS];

static int connect_tcp(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	socklen_t len = sizeof(a);

	tcp[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (void *)&a, len) || listen(listener, 1) ||
	    getsockname(listener, (void *)&a, &len) || connect(tcp[0], (void *)&a, len))
		return -1;
	tcp[1] = accept(listener, NULL, NULL);
	close(listener);
	return setsockopt(tcp[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) || tcp[1] < 0 ? -1 : 0;
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void measure(enum state state, int round)
{
	for (int i = 0; i < N_OPS; i++) {
		double best = 1e12;

		for (int b = 0; b < BLOCKS; b++) {
			double start = now_ns(), d;

			for (int k = 0; k < CALLS; k++)
				ops[i].fn();
			d = (now_ns() - start) / CALLS;
			best = d < best ? d : best;
		}
		ns[i][state][round] = best;
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), by_value);
	return v[ROUNDS / 2];
}

static int drop(void *ctx, const struct tl_hdr *ev)
{
	(void)ev;
	++*(uint64_t *)ctx;
	return 0;
}

static void say(void *ctx, const char *probe, int err, const char *reason)
{
	(void)ctx, (void)probe, (void)err, (void)reason;
}

int main(void)
{
	const struct src_bpf_opts opts = { 0 };
	uint64_t n_events = 0;
	const struct emit out = { drop, &n_events };
	double attach[ROUNDS], engine[ROUNDS], detach[ROUNDS];
	struct src_bpf *s;
	const char *why;
	pid_t other = fork();

	if (other == 0) {	/* maps the same file and is probed while this process is not */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	zero = open("/dev/zero", O_RDONLY);
	null = open("/dev/null", O_WRONLY);
	if (other < 0 || zero < 0 || null < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) ||
	    connect_tcp())
		return 1;
	for (int r = 0; r < ROUNDS; r++) {
		double t = now_ns();

		measure(ALONE, r);
		t = now_ns();
		if (src_bpf__open(&opts, &s, &why)) {
			fprintf(stderr, "capture: %s\n", why);
			return 1;
		}
		attach[r] = now_ns() - t;
		t = now_ns();
		if (src_bpf__attach_engine(s, other, TL_ENGINE_LLAMA, say, NULL) != 2)
			return 2;
		engine[r] = now_ns() - t;
		measure(BYSTANDER, r);
		if (src_bpf__add_target(s, getpid()) ||
		    src_bpf__attach_engine(s, getpid(), TL_ENGINE_LLAMA, say, NULL) != 2)
			return 2;
		measure(TARGET, r);
		while (src_bpf__poll(s, &out, 0) > 0)
			;
		t = now_ns();
		src_bpf__close(s);
		detach[r] = now_ns() - t;
	}
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	printf("ns per call, median of %d rounds (best of %d blocks in each):\n", ROUNDS, BLOCKS);
	printf("  %-20s %8s %10s %8s\n", "", "alone", "bystander", "target");
	for (int i = 0; i < N_OPS; i++) {
		double a = median(ns[i][ALONE]), b = median(ns[i][BYSTANDER]), t = median(ns[i][TARGET]);

		printf("  %-20s %8.0f %4.0f %+5.0f %8.0f (%+.0f)\n", ops[i].name, a, b, b - a, t, t - a);
	}
	printf("  load and attach %.0f ms, two probes %.0f ms, detach %.0f ms (medians)\n", median(attach) / 1e6,
	       median(engine) / 1e6, median(detach) / 1e6);
	return 0;
}
