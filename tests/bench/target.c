/* SPDX-License-Identifier: Apache-2.0 */
/* What libtokenlag.so costs in its target, on the simulated CUDA: ns of a thread that launches,
 * beside a client of CUPTI that throws all away; and ns of our own thread per record. Runs from the
 * root of the tree. PARCAGPU=PATH: the same for that library (parca-dev/parcagpu), in processes of
 * its own that do their rounds in turn with ours. */
#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../sim/fault.h"
#include "../sim/in_target.h"

enum { ROUNDS = 31, SLICES = 11, LAUNCHES = 11000, GRAPHS = 550, KERNEL_NS = 100 };

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
/* As much memory as ours, as new, in the same order, and not used again for as long as it takes
 * until somebody would have read it: how much of it is in caches is a good part of what a launch
 * costs here. */
enum { N_WASTE = 64, WASTE_BYTES = 256 << 10, READ_AFTER_NS = 2000000 };
static uint8_t (*waste)[WASTE_BYTES];
static uint64_t waste_done_ns[N_WASTE];		/* UINT64_MAX: CUPTI has it */
static void *subscriber;

static void on_call(void *ctx, uint32_t domain, uint32_t cbid, const void *data)
{
	(void)ctx, (void)domain, (void)cbid, (void)data;
}

static void on_request(uint8_t **buf, size_t *size, size_t *max_records)
{
	uint64_t now = sim_now();
	int i = 0;

	while (i < N_WASTE - 1 &&
	       __atomic_load_n(&waste_done_ns[i], __ATOMIC_ACQUIRE) > now - READ_AFTER_NS)
		i++;
	waste_done_ns[i] = UINT64_MAX;
	*buf = waste[i];
	*size = WASTE_BYTES;
	*max_records = 0;
}

static void on_complete(void *context, uint32_t stream, uint8_t *buf, size_t size, size_t valid)
{
	(void)context, (void)stream, (void)size, (void)valid;
	__atomic_store_n(&waste_done_ns[(buf - waste[0]) / WASTE_BYTES], sim_now(),
			 __ATOMIC_RELEASE);
}

static void waster_begin(void)
{
	waste = mmap(NULL, N_WASTE * (size_t)WASTE_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	memset(waste_done_ns, 0, sizeof(waste_done_ns));
	if (waste == MAP_FAILED || cupti.subscribe(&subscriber, on_call, NULL))
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
	munmap(waste, N_WASTE * (size_t)WASTE_BYTES);
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

/* The thread that launches has a CPU of its own, where there are two: others start on the other. */
static void use_cpu(int nth)
{
	static cpu_set_t all;
	cpu_set_t one;

	if (!CPU_COUNT(&all) && sched_getaffinity(0, sizeof(all), &all))
		return;
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && !nth--)
			CPU_SET(cpu, &one);
	if (CPU_COUNT(&one))
		sched_setaffinity(0, sizeof(one), &one);
}

enum who { NOBODY, WASTER, OURS, N_WHO };
static double launch_ns[N_WHO][ROUNDS], graph_ns[N_WHO][ROUNDS], record_ns[ROUNDS],
	callback_ns[ROUNDS], elsewhere_ns[N_WHO][ROUNDS];

/* CPU time of this thread: others on this machine do not count. */
static uint64_t cpu_ns(void)
{
	return sim_clock(CLOCK_THREAD_CPUTIME_ID);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(const double *v, int n)
{
	double sorted[ROUNDS > SLICES ? ROUNDS : SLICES];

	memcpy(sorted, v, n * sizeof(*v));
	qsort(sorted, n, sizeof(*v), by_value);
	return sorted[n / 2];
}

static void launch_kernels(int n)
{
	static uint64_t kernel = KERNEL_NS;
	void *args[2] = { &kernel, NULL };

	for (int i = 0; i < n; i++)
		cuda.launch(load.kernels[i % EAGER], 1, 1, 1, 32, 1, 1, 0, load.stream, args, NULL);
}

static void launch_graphs(int n)
{
	for (int i = 0; i < n; i++)
		cuda.graph_launch(load.exec, load.stream);
}

/* Of the slice in the middle, each long enough for some changes of buffers and pages: what else
 * this machine does hits some. Then CUPTI gives its buffers back and our thread reads them, which
 * on a CPU that shares its core would slow down what is measured next. */
enum { SETTLE_NS = 30000000 };
static double time_slices(void (*launch)(int), int n)
{
	double ns[SLICES];

	for (int i = 0; i < SLICES; i++) {
		uint64_t begin = cpu_ns();

		launch(n / SLICES);
		ns[i] = (double)(cpu_ns() - begin) / (n / SLICES);
	}
	cuda.stream_synchronize(load.stream);
	sim_sleep_until(sim_now() + SETTLE_NS);
	return median(ns, SLICES);
}

static void launch_all(enum who who, int round)
{
	launch_ns[who][round] = time_slices(launch_kernels, LAUNCHES);
	graph_ns[who][round] = time_slices(launch_graphs, GRAPHS);
}

/* The second time counts: memory that is new costs more than all that is done with it. */
static void measure(enum who who, int round)
{
	uint64_t process_ns, thread_ns;

	use_cpu(1);
	launch_all(who, round);
	process_ns = sim_clock(CLOCK_PROCESS_CPUTIME_ID), thread_ns = cpu_ns();
	launch_all(who, round);
	if (who == WASTER)
		cupti.flush(0);
	process_ns = sim_clock(CLOCK_PROCESS_CPUTIME_ID) - process_ns;
	elsewhere_ns[who][round] = (double)(int64_t)(process_ns - (cpu_ns() - thread_ns)) /
				   (LAUNCHES + GRAPHS * GRAPH_NODES);
	use_cpu(0);
}

static void measure_client(int round)
{
	waster_begin();
	measure(WASTER, round);
	waster_end();
}

static void measure_ours(int round)
{
	struct agent a;

	agent__open(&a, 32 << 20);	/* room for all: nobody has to read meanwhile */
	a.ring->max_records = a.ring->max_window_ms = UINT32_MAX;
	a.ring->flush_ms = 10;
	if (start(a.memfd))
		exit(1);
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
	agent__close(&a);
}

/* What ours costs more than the client, round by round: what changes between rounds is in both. */
struct more { double median, low, high; };	/* low, high: the quarters of the rounds beyond */

static struct more more_than_client(double v[N_WHO][ROUNDS])
{
	double d[ROUNDS];

	for (int i = 0; i < ROUNDS; i++)
		d[i] = v[OURS][i] - v[WASTER][i];
	qsort(d, ROUNDS, sizeof(*d), by_value);
	return (struct more){ d[ROUNDS / 2], d[ROUNDS / 4], d[ROUNDS * 3 / 4] };
}

static void print_row(const char *what, double v[N_WHO][ROUNDS], const char *target)
{
	struct more m = more_than_client(v);

	printf("%-30s %8.0f %8.0f %8.0f %9.0f (%.0f to %.0f)   <= %s\n", what,
	       median(v[NOBODY], ROUNDS), median(v[WASTER], ROUNDS), median(v[OURS], ROUNDS),
	       m.median, m.low, m.high, target);
}

/* ---- the peer ---- */
static const struct peer_way { const char *says, *launches_s, *graphs_s;	/* NULL: nobody listens */
} ways[] = {
	{ "nobody listens", NULL, NULL },
	{ "its own rates", "100", "20" },
	{ "all launches", "1000000000", "1000000000" },
};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };
static struct peer { pid_t pid; int fd; double ns[3][ROUNDS];	/* launch, graph, record */
} peers[N_WAYS];

/* Its probes are live while somebody counts up their semaphores. A tracer would; it would also cost
 * a uprobe for each probe that is hit, which is not in these numbers. */
static void listen_to(const char *lib, void *handle)
{
	char command[600], line[64];
	struct link_map *map;
	FILE *f;

	snprintf(command, sizeof(command), "readelf -nW '%s' | sed -n 's/.*Semaphore: //p'", lib);
	f = popen(command, "r");
	if (!f || dlinfo(handle, RTLD_DI_LINKMAP, &map))
		exit(1);
	while (fgets(line, sizeof(line), f))
		++*(uint16_t *)(map->l_addr + strtoull(line, NULL, 16));
	if (pclose(f))
		exit(1);
}

/* A process that does a round for each byte that it gets. */
static void be_peer(const char *lib, const struct peer_way *way, int fd)
{
	void *handle, *s = target_symbol(lib, "InitializeInjection");
	int (*initialize)(void);
	char c;

	memcpy(&initialize, &s, sizeof(initialize));
	handle = dlopen(lib, RTLD_NOW | RTLD_NOLOAD);
	if (way->launches_s)
		listen_to(lib, handle);
	if (!initialize())
		_exit(1);
	for (int round = 0; round < ROUNDS && read(fd, &c, 1) == 1; round++) {
		double got[3];

		measure(WASTER, round);
		got[0] = launch_ns[WASTER][round];
		got[1] = graph_ns[WASTER][round];
		got[2] = elsewhere_ns[WASTER][round];
		if (write(fd, got, sizeof(got)) != sizeof(got))
			break;
	}
	_exit(0);
}

/* Starts this program again, with the library's own way to be told where CUPTI is. */
static void peer__start(struct peer *p, const struct peer_way *way, const char *dir)
{
	int fds[2];
	char fd[16], n[16];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		exit(1);
	p->fd = fds[0];
	p->pid = fork();
	if (p->pid)
		close(fds[1]);
	if (p->pid)
		return;
	close(fds[0]);
	setenv("TRITON_CUPTI_LIB_PATH", dir, 1);
	if (way->launches_s) {
		setenv("PARCAGPU_RATE_LIMIT", way->launches_s, 1);
		setenv("PARCAGPU_GRAPH_RATE_LIMIT", way->graphs_s, 1);
	}
	snprintf(fd, sizeof(fd), "%d", fds[1]);
	snprintf(n, sizeof(n), "%d", (int)(way - ways));
	execl("/proc/self/exe", "target", n, fd, NULL);
	_exit(127);
}

static void peer__round(struct peer *p, int round)
{
	double got[3];

	if (write(p->fd, "", 1) != 1 || recv(p->fd, got, sizeof(got), MSG_WAITALL) != sizeof(got)) {
		fprintf(stderr, "target: parcagpu did not come through\n");
		exit(1);
	}
	for (int i = 0; i < 3; i++)
		p->ns[i][round] = got[i];
}

static void print_peers(void)
{
	static const char *const whats[] = { "ns per cuLaunchKernel", "ns per cuGraphLaunch",
					     "ns per record, other threads" };
	double(*const all[])[ROUNDS] = { launch_ns, graph_ns, elsewhere_ns };

	printf("\n                                     ours - client   parcagpu - client:\n%50s", "");
	for (int i = 0; i < N_WAYS; i++)
		printf("%16s", ways[i].says);
	for (int what = 0; what < 3; what++) {
		printf("\n%-35s %14.0f", whats[what], more_than_client(all[what]).median);
		for (int i = 0; i < N_WAYS; i++)
			printf("%16.0f", median(peers[i].ns[what], ROUNDS) -
						 median(all[what][WASTER], ROUNDS));
	}
	printf("\n");
}

static void load_all(void)
{
	static const char *const names[] = { "sim/libcuda.so.1", "sim/libcupti.so.13",
					     "libtokenlag.so" };
	const char *build = getenv("B") ? getenv("B") : "build";

	for (int i = 0; i < 3; i++)
		snprintf(path[i], sizeof(path[i]), "%s/%s", build, names[i]);
	target_load_cuda(path[0], path[1]);
	load_cupti();
	load_kernel_ns = KERNEL_NS;
	load__open(&load);
}

/* A folder in which CUPTI has the name that the peer asks for. */
static void start_peers(char *dir)
{
	char link[64], cupti_path[PATH_MAX];

	if (!mkdtemp(dir) || !realpath(path[1], cupti_path))
		exit(1);
	snprintf(link, sizeof(link), "%s/libcupti.so", dir);
	if (symlink(cupti_path, link))
		exit(1);
	for (int i = 0; i < N_WAYS; i++)
		peer__start(&peers[i], &ways[i], dir);
}

static void end_peers(const char *dir)
{
	char link[64];

	for (int i = 0; i < N_WAYS; i++)
		waitpid(peers[i].pid, NULL, 0);
	snprintf(link, sizeof(link), "%s/libcupti.so", dir);
	unlink(link);
	rmdir(dir);
}

int main(int argc, char **argv)
{
	const char *parcagpu = getenv("PARCAGPU");
	char dir[] = "/tmp/tokenlag-bench.XXXXXX";
	void *s;

	load_all();
	if (argc > 2)
		be_peer(parcagpu, &ways[atoi(argv[1])], atoi(argv[2]));
	s = target_symbol(path[2], "tokenlag_start");
	memcpy(&start, &s, sizeof(start));
	signal(SIGPIPE, SIG_IGN);
	if (parcagpu)
		start_peers(dir);
	use_cpu(0);
	for (int round = 0; round < ROUNDS; round++) {
		measure(NOBODY, round);
		for (int i = 0; i < 2; i++)	/* who is first takes turns */
			(i ^ (round & 1) ? measure_ours : measure_client)(round);
		for (int i = 0; parcagpu && i < N_WAYS; i++)
			peer__round(&peers[i], round);
	}
	printf("simulated, medians of %d rounds  nobody a client     ours  ours - client in a round"
	       "   target\n                                        that does    "
	       "      (middle half of the rounds)\n", ROUNDS);
	print_row("ns per cuLaunchKernel", launch_ns, "300");
	print_row("ns per cuGraphLaunch", graph_ns, "300");
	print_row("ns per record, other threads", elsewhere_ns, "150");
	printf("as the library says itself: %.0f ns per launch (EXIT only), %.0f ns per record\n",
	       median(callback_ns, ROUNDS), median(record_ns, ROUNDS));
	if (!parcagpu) {
		printf("(PARCAGPU=PATH of its library: the same for parcagpu)\n");
		return 0;
	}
	print_peers();
	end_peers(dir);
	return 0;
}
