/* SPDX-License-Identifier: Apache-2.0 */
/* What probes on libcuda (the simulated one) cost per call: to a process that is watched, to one that maps the same
 * file, and beside bpftrace on the same functions. */
#include "../bpf/cuda.h"

#include "source/cuda.h"
#include "tl_event.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { ROUNDS = 5, BLOCKS = 20, CALLS = 100 };

static struct cuda_api push, endbr;
static void *stream, *event;
static char host[64];

/* Calls that return at once: what is measured is not the simulation. */
static void op_graph(void) { push.graph_launch(NULL, stream); }
static void op_kernel(void) { push.launch(NULL, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL); }
static void op_sync(void) { push.event_sync(event); }
static void op_copy(void) { push.htod_async(0, host, 0, stream); }
static void op_endbr_graph(void) { endbr.graph_launch(NULL, NULL); }
static void op_endbr_kernel(void) { endbr.launch(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL); }

static const struct op {
	const char *name;
	void (*fn)(void);
} ops[] = {
	{ "cuGraphLaunch", op_graph },
	{ "cuLaunchKernel", op_kernel },
	{ "cuEventSynchronize, timed", op_sync },
	{ "cuMemcpyHtoDAsync", op_copy },
	{ "endbr64: cuGraphLaunch", op_endbr_graph },
	{ "endbr64: cuLaunchKernel", op_endbr_kernel },
};
enum { N_OPS = sizeof(ops) / sizeof(ops[0]) };

enum state { ALONE, BYSTANDER, EACH, COUNTED, BT_COUNT, BT_PRINT, N_STATES };
static double ns[N_OPS][N_STATES][ROUNDS];

static double clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void measure(enum state state, int round)
{
	for (int i = 0; i < N_OPS; i++) {
		double best = 1e12;

		for (int b = 0; b < BLOCKS; b++) {
			double begin = clock_ns(CLOCK_MONOTONIC), d;

			for (int k = 0; k < CALLS; k++)
				ops[i].fn();
			d = (clock_ns(CLOCK_MONOTONIC) - begin) / CALLS;
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

static void fail(const char *reason)
{
	fprintf(stderr, "launches: %s\n", reason);
	exit(1);
}

/* ---- our own probes ---- */

static int drop(void *ctx, const struct tl_hdr *ev)
{
	*(uint64_t *)ctx += ev->kind == TL_GPU_LAUNCH;
	return 0;
}

static double add_ms[ROUNDS], close_ms[ROUNDS], agent_ns[ROUNDS];
static struct cuda_cost cost;
static char why[160];

static struct cuda *open_cuda(struct src_bpf *bpf, const struct cuda_opts *opts)
{
	struct cuda *cuda;
	const char *reason;

	if (cuda__open(bpf, opts, &cuda, &reason))
		fail(reason);
	return cuda;
}

static void measure_ours(enum state state, int round, uint32_t tgid, struct src_bpf *bpf, struct cuda *cuda)
{
	uint64_t n_events = 0;
	const struct emit out = { drop, &n_events };
	double begin, end;

	begin = clock_ns(CLOCK_MONOTONIC);
	if (cuda__add(cuda, tgid, why) < 15)
		fail(why);
	end = clock_ns(CLOCK_MONOTONIC);
	measure(state, round);
	if (state == EACH) {
		add_ms[round] = (end - begin) / 1e6;
		begin = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		while (src_bpf__poll(bpf, &out, 0) > 0)
			;
		end = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		agent_ns[round] = n_events ? (end - begin) / n_events : 0;
		cuda__cost(cuda, &cost);
	}
	begin = clock_ns(CLOCK_MONOTONIC);
	cuda__del(cuda, tgid);
	close_ms[round] = (clock_ns(CLOCK_MONOTONIC) - begin) / 1e6;
	while (src_bpf__poll(bpf, &out, 0) > 0)
		;
}

static void print_one_by_one(struct src_bpf *bpf)
{
	struct cuda *cuda = open_cuda(bpf, &(struct cuda_opts){ .one_by_one = true });
	double begin, added;

	begin = clock_ns(CLOCK_MONOTONIC);
	cuda__add(cuda, getpid(), why);
	added = clock_ns(CLOCK_MONOTONIC);
	cuda__close(cuda);
	printf("  without multi-uprobe links (before Linux 6.6): attach %.0f ms, detach %.0f ms, for all processes\n",
	       (added - begin) / 1e6, (clock_ns(CLOCK_MONOTONIC) - added) / 1e6);
}

/* ---- bpftrace ---- */

static const char *const count_script =
	"uprobe:%1$s:cuGraphLaunch, uprobe:%1$s:cuLaunchKernel, uprobe:%1$s:cuMemcpyHtoDAsync_v2 "
	"{ @n[probe] = count(); }\n"
	"uprobe:%1$s:cuEventSynchronize { @t[tid] = nsecs; }\n"
	"uretprobe:%1$s:cuEventSynchronize /@t[tid]/ { @wait = sum(nsecs - @t[tid]); delete(@t[tid]); }\n"
	"uprobe:%2$s:cuGraphLaunch, uprobe:%2$s:cuLaunchKernel { @n[probe] = count(); }\n";
static const char *const print_script =
	"uprobe:%1$s:cuGraphLaunch, uprobe:%1$s:cuMemcpyHtoDAsync_v2 "
	"{ printf(\"%%d %%lld %%lx %%lx\\n\", tid, nsecs, arg0, arg1); }\n"
	"uprobe:%1$s:cuLaunchKernel { printf(\"%%d %%lld %%lx %%lx\\n\", tid, nsecs, arg0, sarg2); }\n"
	"uprobe:%1$s:cuEventSynchronize { @t[tid] = nsecs; }\n"
	"uretprobe:%1$s:cuEventSynchronize /@t[tid]/ "
	"{ printf(\"%%d %%lld %%lld\\n\", tid, @t[tid], nsecs); delete(@t[tid]); }\n"
	"uprobe:%2$s:cuGraphLaunch { printf(\"%%d %%lld %%lx %%lx\\n\", tid, nsecs, arg0, arg1); }\n"
	"uprobe:%2$s:cuLaunchKernel { printf(\"%%d %%lld %%lx %%lx\\n\", tid, nsecs, arg0, sarg2); }\n";

static bool is_probed(const void *code)
{
	return *(const volatile uint8_t *)code == 0xcc;
}

/* It lets its probes go when it ends, by itself or not. */
static void end_bpftrace(pid_t pid)
{
	kill(pid, SIGTERM);
	for (int i = 0; i < 500; i++) {
		if (waitpid(pid, NULL, WNOHANG))
			return;
		usleep(10000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* False: there is no bpftrace, or it does not attach. */
static bool measure_bpftrace(enum state state, int round, const char *const paths[2])
{
	char script[8192], pid_text[16];
	bool attached = false;
	pid_t pid;

	snprintf(script, sizeof(script), state == BT_COUNT ? count_script : print_script, paths[0], paths[1]);
	snprintf(pid_text, sizeof(pid_text), "%d", getpid());
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(null, 1);
		dup2(null, 2);
		execlp("bpftrace", "bpftrace", "-q", "-p", pid_text, "-e", script, NULL);
		_exit(127);
	}
	for (int i = 0; i < 3000 && !attached; i++) {
		if (waitpid(pid, NULL, WNOHANG))
			return false;
		usleep(10000);
		attached = is_probed(push.graph_launch) && is_probed(push.launch) && is_probed(push.event_sync) &&
			   is_probed(push.htod_async) && is_probed(endbr.launch) && is_probed(endbr.graph_launch);
	}
	if (!attached) {
		end_bpftrace(pid);
		return false;
	}
	usleep(200000);
	measure(state, round);
	end_bpftrace(pid);
	return true;
}

static pid_t start_bystander(void)
{
	pid_t pid = fork();		/* it has the same libraries mapped */

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static void print(bool has_bpftrace)
{
	printf("simulated; ns per call that returns at once, median of %d rounds (best of %d blocks in each)\n",
	       ROUNDS, BLOCKS);
	printf("  %-26s %7s %11s %16s %16s %16s %16s\n", "", "alone", "bystander", "an event each", "bursts",
	       "bpftrace counts", "bpftrace prints");
	for (int i = 0; i < N_OPS; i++) {
		double a = median(ns[i][ALONE]);

		printf("  %-26s %7.0f %+11.0f", ops[i].name, a, median(ns[i][BYSTANDER]) - a);
		for (int s = EACH; s < (has_bpftrace ? N_STATES : BT_COUNT); s++)
			printf(" %+16.0f", median(ns[i][s]) - a);
		printf("\n");
	}
	if (!has_bpftrace)
		printf("  no bpftrace here: nothing to compare with\n");
	printf("  one hit, as measured when the first process is probed: %u ns on push, %u ns single-stepped\n",
	       cost.per_hit_ns, cost.dear_hit_ns);
	if (cost.per_hit_ns)
		printf("  1 %% of a core is %.0f launches/s with an event each; the agent reads an event in "
		       "%.0f ns\n", 1e7 / cost.per_hit_ns, median(agent_ns));
	printf("  attach %.1f ms, detach %.1f ms; %s\n", median(add_ms), median(close_ms), why);
}

static struct cuda_api load(const char *name, char path[PATH_MAX])
{
	const char *build = getenv("B") ? getenv("B") : "build";
	char given[PATH_MAX];

	snprintf(given, sizeof(given), "%s/sim/%s", build, name);
	if (!realpath(given, path) || cuda_load(path)) {
		fprintf(stderr, "launches: cannot load %s\n", given);
		exit(1);
	}
	return cu;
}

int main(void)
{
	const struct src_bpf_opts opts = { 0 };
	const char *reason;
	char paths[2][PATH_MAX];
	const char *const both[] = { paths[0], paths[1] };
	bool has_bpftrace = true;
	struct cuda *each, *counted;
	struct src_bpf *bpf;
	pid_t other;

	endbr = load("endbr/libcuda.so.1", paths[1]);
	push = load("libcuda.so.1", paths[0]);
	if (push.stream_create(&stream, 0) || push.event_create(&event, 0))
		fail("the simulated CUDA does not start");
	if (src_bpf__open(&opts, &bpf, &reason))
		fail(reason);
	each = open_cuda(bpf, &(struct cuda_opts){ 0 });
	counted = open_cuda(bpf, &(struct cuda_opts){ .count_kernels = true });
	other = start_bystander();
	for (int round = 0; round < ROUNDS; round++) {
		measure(ALONE, round);
		measure_ours(BYSTANDER, round, other, bpf, each);
		measure_ours(EACH, round, getpid(), bpf, each);
		measure_ours(COUNTED, round, getpid(), bpf, counted);
		for (int s = BT_COUNT; s <= BT_PRINT && has_bpftrace; s++)
			has_bpftrace = measure_bpftrace(s, round, both);
	}
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	print(has_bpftrace);
	cuda__close(each);
	cuda__close(counted);
	print_one_by_one(bpf);
	src_bpf__close(bpf);
	return 0;
}
