/* SPDX-License-Identifier: Apache-2.0 */
/* libtokenlag.so in a process of the simulation, one case per run: in_target CASE [NAME=VALUE...].
 * Prints what came of it as name=value; ends with 1 if spans or launches differ from the truth. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "in_target.h"

static int n_args;
static char **args;

static const char *text(const char *name, const char *otherwise)
{
	size_t n = strlen(name);

	for (int i = n_args; i-- > 0;)	/* the last one counts */
		if (!strncmp(args[i], name, n) && args[i][n] == '=')
			return args[i] + n + 1;
	return otherwise;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *s = text(name, NULL);

	return s ? strtoull(s, NULL, 0) : otherwise;
}

static int (*start)(int memfd);
static struct agent agent;
static struct load load;

static uint32_t level(void)
{
	return strcmp(text("level", "kernels"), "graph") ? TL_ORDER_KERNELS : TL_ORDER_GRAPH;
}

static void order(uint32_t what)
{
	static uint32_t n;

	__atomic_store_n(&agent.ring->order, what | ++n << 8, __ATOMIC_RELEASE);
}

/* Threads of ours that are left, by name. */
static int n_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d))) {
		char path[300], name[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f))
			n += !strncmp(name, "tokenlag", 8);
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return n;
}

static void wait_no_threads(void)
{
	for (int i = 0; i < 200 && n_threads(); i++)
		sim_sleep_until(sim_now() + 5000000);
}

/* libcuda itself loads the library, as CUDA_INJECTION64_PATH says, and gives it nothing. */
static void inject(const char *how)
{
	char text_of_fd[32];

	snprintf(text_of_fd, sizeof(text_of_fd), strcmp(how, "fd") ? "/proc/self/fd/%d" : "%d",
		 agent.memfd);
	setenv(strcmp(how, "fd") ? "TOKENLAG_RING" : "TOKENLAG_RING_FD", text_of_fd, 1);
	setenv("CUDA_INJECTION64_PATH", text("library", "build/libtokenlag.so"), 1);
}

static int start_injected(int memfd)
{
	(void)memfd;
	return 0;
}

static void open_all(void)
{
	void *s;

	agent__open(&agent, number("ring", 16 << 20));
	if (text("inject", NULL))
		inject(text("inject", NULL));
	if (number("cuda", 1))
		target_load_cuda(text("libcuda", "build/sim/libcuda.so.1"),
				 number("own", 0) ? NULL
						  : text("libcupti", "build/sim/libcupti.so.13"));
	if (text("also", NULL))
		target_symbol(text("also", NULL), "cuptiGetVersion");
	if (text("map", NULL))
		target_symbol(text("map", NULL), "mapped");
	s = target_symbol(text("library", "build/libtokenlag.so"), "tokenlag_start");
	memcpy(&start, &s, sizeof(start));
	if (text("inject", NULL))
		start = start_injected;
	agent.ring->max_records = number("max_records", UINT32_MAX);
	agent.ring->max_window_ms = number("max_ms", UINT32_MAX);
	agent.ring->flush_ms = number("flush_ms", 0);
	if (number("cuda", 1))
		load__open(&load);
}

static void print_end(void)
{
	const struct tl_ring *r = agent.ring;

	printf("state=%u why=%s|\n", r->state, r->why);
	printf("records=%" PRIu64 " bad=%" PRIu64 " dropped=%" PRIu64 " cupti_dropped=%" PRIu64
	       "\n",
	       (uint64_t)r->n_records, (uint64_t)r->n_bad, (uint64_t)r->n_dropped,
	       (uint64_t)r->n_cupti_dropped);
	printf("version=%u simulated=%u error=%u threads=%d overhead_ns=%" PRIu64 "\n",
	       r->cupti_version, r->simulated, r->error, n_threads(), (uint64_t)r->overhead_ns);
	printf("names=%" PRIu64 " clocks=%" PRIu64 " unknown=%" PRIu64 " bad_events=%" PRIu64 "\n",
	       agent.n_names, agent.n_clocks, agent.n_unknown, agent.n_bad_events);
	if (r->n_records && r->n_launches)
		printf("ns_per_record=%.0f ns_per_launch=%.0f\n",
		       (double)r->record_ns / r->n_records, (double)r->callback_ns / r->n_launches);
}

/* The target goes on meanwhile. */
static bool leave(void)
{
	order(TL_ORDER_LEAVE);
	for (int i = 0; i < 5000 && agent.ring->state != TL_RING_LEFT; i++) {
		load__step(&load);
		sim_sleep_until(sim_now() + 1000000);
	}
	wait_no_threads();
	return agent.ring->state == TL_RING_LEFT;
}

/* ---- truth and spans, one by one ---- */
static int by_time(const void *a, const void *b)
{
	const struct fact *x = a, *y = b;

	if (x->corr != y->corr)
		return x->corr < y->corr ? -1 : 1;
	return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static void keep_of_level(struct facts *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		if (f->v[i].what == TL_SPAN_MEMCPY ||
		    f->v[i].what == (level() == TL_ORDER_GRAPH ? TL_SPAN_GRAPH : TL_SPAN_KERNEL))
			f->v[n++] = f->v[i];
	f->n = n;
}

static uint64_t off(uint64_t a, uint64_t b)
{
	return a < b ? b - a : a - b;
}

/* Each piece of work has its span, and no span is without work. How far off is a time at most? */
static int compare(struct facts *truth, struct facts *spans)
{
	uint64_t missing = 0, more = 0, differ = 0, worst = 0;
	size_t i = 0, k = 0;

	keep_of_level(truth);
	qsort(truth->v, truth->n, sizeof(*truth->v), by_time);
	qsort(spans->v, spans->n, sizeof(*spans->v), by_time);
	while (i < truth->n || k < spans->n) {
		const struct fact *t = &truth->v[i], *s = &spans->v[k];
		uint64_t d;

		if (k == spans->n || (i < truth->n && t->corr < s->corr)) {
			missing++, i++;
			continue;
		}
		if (i == truth->n || s->corr < t->corr) {
			more++, k++;
			continue;
		}
		d = off(t->start_ns, s->start_ns);
		if (off(t->end_ns, s->end_ns) > d)
			d = off(t->end_ns, s->end_ns);
		if (d > worst)
			worst = d;
		differ += t->what != s->what ||
			  t->graph != (s->what == TL_SPAN_MEMCPY ? t->graph : s->graph) ||
			  t->name != s->name;
		i++, k++;
	}
	printf("truth=%zu spans=%zu missing=%" PRIu64 " more=%" PRIu64 " differ=%" PRIu64
	       " worst_ns=%" PRIu64 "\n",
	       truth->n, spans->n, missing, more, differ, worst);
	return missing || more || differ || worst > number("worst_ns", 5000);
}

/* ---- cases ---- */

/* More threads of the target that launch, each into its own stream. */
enum { MAX_WORKERS = 8 };
static struct worker {
	pthread_t thread;
	struct load load;
} workers[MAX_WORKERS];
static int n_workers;
static pthread_barrier_t meet;

static void *work(void *ctx)
{
	struct worker *w = ctx;
	uint64_t rate = number("rate", 50000), steps = number("seconds", 1) * rate / STEP_RECORDS;

	load__open(&w->load);
	pthread_barrier_wait(&meet);	/* all are ready */
	pthread_barrier_wait(&meet);	/* a window is open */
	w->load.record = true;
	load__paced(&w->load, steps, rate / STEP_RECORDS);
	pthread_barrier_wait(&meet);	/* all is done */
	return NULL;
}

static void open_workers(void)
{
	n_workers = number("threads", 1) - 1;
	if (n_workers < 1 || n_workers > MAX_WORKERS) {
		n_workers = 0;
		return;
	}
	pthread_barrier_init(&meet, NULL, n_workers + 1);
	for (int i = 0; i < n_workers; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			exit(2);
	pthread_barrier_wait(&meet);
}

static void close_workers(void)
{
	for (int i = 0; i < n_workers; i++) {
		const struct load *l = &workers[i].load;

		pthread_join(workers[i].thread, NULL);
		for (size_t k = 0; k < l->truth.n; k++)
			facts__add(&load.truth, &l->truth.v[k]);
		load.n_launches += l->n_launches;
	}
}

static int one_window(void)
{
	uint64_t rate = number("rate", 50000), steps = number("seconds", 1) * rate / STEP_RECORDS;

	order(level());
	if (!agent__wait(&agent, TL_RING_ACTIVE, 5000))
		return 1;
	if (n_workers)
		pthread_barrier_wait(&meet);
	load.record = true;
	load__paced(&load, steps, rate / STEP_RECORDS);
	load.record = false;
	if (n_workers)
		pthread_barrier_wait(&meet);
	order(TL_ORDER_IDLE);
	return !agent__wait(&agent, TL_RING_IDLE, 5000);
}

/* Work before, in and behind windows: all that was enqueued in them is told, exactly once. */
static int case_window(void)
{
	uint64_t want;
	int bad = 0;

	open_workers();
	if (start(agent.memfd))
		return 1;
	agent__start_reader(&agent);
	for (uint64_t i = number("windows", 1); i && !bad; i--) {
		load__step(&load);
		cuda.stream_synchronize(load.stream);
		bad = one_window();
		load__step(&load);
		cuda.stream_synchronize(load.stream);
	}
	bad |= !leave();
	agent__stop_reader(&agent);
	close_workers();
	print_end();
	want = level() == TL_ORDER_GRAPH ? load.n_launches / (EAGER + 2) * 2 : load.n_launches;
	printf("launches=%" PRIu64 " of %" PRIu64 "\n", agent.n_launches, want);
	return compare(&load.truth, &agent.spans) || bad || agent.n_launches != want;
}

/* Steps without end, while the library does whatever the fault makes it do. */
static int case_fault(void)
{
	uint64_t begin = sim_now(), limit = number("limit_ms", 6000), until;
	uint32_t wanted = number("state", TL_RING_REFUSED);
	uint64_t leave_after = number("leave_after_ms", 0);

	if (start(agent.memfd))
		return 1;
	agent__start_reader(&agent);
	if (number("empty", 0)) {	/* a session before, in which nothing happened */
		order(level());
		agent__wait(&agent, TL_RING_ACTIVE, 5000);
		order(TL_ORDER_LEAVE);
		agent__wait(&agent, TL_RING_LEFT, 5000);
		wait_no_threads();
		if (start(agent.memfd))
			return 1;
		begin = sim_now();
	}
	order(level());
	if (wanted == TL_RING_IDLE)	/* which it is before the order has come, too */
		agent__wait(&agent, TL_RING_ACTIVE, 5000);
	until = begin + limit * 1000000;
	while (sim_now() < until && agent.ring->state != wanted) {
		if (number("load", 1) == 2)
			load__capture(&load);
		else if (number("load", 1))
			load__step(&load);
		if (leave_after && sim_now() - begin > leave_after * 1000000) {
			order(TL_ORDER_LEAVE);
			leave_after = 0;
		}
		sim_sleep_until(sim_now() + 1000000);
	}
	printf("ms=%" PRIu64 " reached=%d why=%.127s|\n", (sim_now() - begin) / 1000000,
	       agent.ring->state == wanted, agent.ring->why);
	for (int i = 0; i < 50; i++)	/* the target goes on */
		load__step(&load);
	cuda.stream_synchronize(load.stream);
	sim_sleep_until(sim_now() + 50000000);
	print_end();
	printf("again=%d\n", start(agent.memfd));
	sim_sleep_until(sim_now() + 50000000);
	printf("then=%u\n", agent.ring->state);
	agent__stop_reader(&agent);
	return 0;
}

static uint64_t memory_kib(void)
{
	char line[256];
	uint64_t kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

/* Very many records in one window: as many come out, and no memory is taken for them. */
static int case_soak(void)
{
	uint64_t steps = number("n", 1000000) / STEP_RECORDS, rate = number("rate", 200000), begin,
		 before;

	if (start(agent.memfd))
		return 1;
	agent.count_only = true;
	agent__start_reader(&agent);
	order(level());
	if (!agent__wait(&agent, TL_RING_ACTIVE, 5000))
		return 1;
	load__paced(&load, steps / 10, rate / STEP_RECORDS);
	before = memory_kib();
	begin = sim_now();
	load__paced(&load, steps - steps / 10, rate / STEP_RECORDS);
	printf("s=%.1f kib=%" PRIu64 " grown=%" PRId64 "\n", (double)(sim_now() - begin) / 1e9,
	       before, (int64_t)(memory_kib() - before));
	order(TL_ORDER_IDLE);
	agent__wait(&agent, TL_RING_IDLE, 5000);
	leave();
	agent__stop_reader(&agent);
	print_end();
	printf("spans=%" PRIu64 " of %" PRIu64 "\n", agent.n_spans, steps * STEP_RECORDS);
	return agent.n_spans != steps * STEP_RECORDS || memory_kib() > before + 4096;
}

static int case_cycles(void)
{
	uint64_t n = number("n", 200), finalized = 0;
	int bad = 0;

	for (uint64_t i = 0; i < n && !bad; i++) {
		agent__open(&agent, 1 << 20);
		if (start(agent.memfd)) {
			printf("refused in cycle %" PRIu64 "\n", i);
			return 1;
		}
		agent__start_reader(&agent);
		order(i % 2 ? TL_ORDER_KERNELS : TL_ORDER_GRAPH);
		bad = !agent__wait(&agent, TL_RING_ACTIVE, 5000);
		load__step(&load);
		cuda.stream_synchronize(load.stream);
		bad |= !leave();
		finalized += !agent.ring->why[0];
		bad |= !agent.ring->n_records || n_threads();
		agent__stop_reader(&agent);
		if (bad)
			print_end();
		agent__close(&agent);
	}
	printf("cycles=%" PRIu64 " finalized=%" PRIu64 "\n", n, finalized);
	return bad;
}

/* Whoever sees that it has left may start it again at once. */
static int case_at_once(void)
{
	uint64_t n = number("n", 500), busy = 0;
	int ret;

	for (uint64_t i = 0; i < n; i++) {
		agent__open(&agent, 1 << 20);
		order(TL_ORDER_LEAVE);
		ret = start(agent.memfd);
		while (!ret && __atomic_load_n(&agent.ring->state, __ATOMIC_ACQUIRE) != TL_RING_LEFT)
			;
		busy += ret != 0;
		agent__close(&agent);
	}
	printf("started=%" PRIu64 " busy=%" PRIu64 "\n", n, busy);
	return busy != 0;
}

/* The agent is another process, and is killed in the middle of a window. */
static int case_orphan(void)
{
	int (*subscribe)(void **, void (*)(void), void *), ret;
	uint64_t killed, n, more;
	void *handle, *s;
	pid_t pid = fork();

	if (!pid) {
		agent__start_reader(&agent);
		for (;;)
			pause();
	}
	if (start(agent.memfd))
		return 1;
	order(level());
	agent__wait(&agent, TL_RING_ACTIVE, 5000);
	for (int i = 0; i < 100; i++)
		load__step(&load);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	killed = sim_now();
	while (agent.ring->state != TL_RING_LEFT && sim_now() - killed < 6000000000) {
		load__step(&load);
		sim_sleep_until(sim_now() + 1000000);
	}
	printf("ms=%" PRIu64 "\n", (sim_now() - killed) / 1000000);
	wait_no_threads();
	n = agent.ring->head;
	for (int i = 0; i < 100; i++)
		load__step(&load);
	more = agent.ring->head - n;
	print_end();
	s = target_symbol(text("libcupti", "build/sim/libcupti.so.13"), "cuptiSubscribe");
	memcpy(&subscribe, &s, sizeof(subscribe));
	ret = subscribe(&handle, wait_no_threads, NULL);
	printf("written_behind=%" PRIu64 " subscribe=%d\n", more, ret);
	return agent.ring->state != TL_RING_LEFT || more || ret || n_threads();
}

/* A child has its parent's memory and CUPTI's state, and must not write into the ring. */
static int case_fork(void)
{
	uint64_t head;
	int status = 0, again = 0;

	if (start(agent.memfd))
		return 1;
	agent__start_reader(&agent);
	order(level());
	agent__wait(&agent, TL_RING_ACTIVE, 5000);
	load.record = true;
	for (int i = 0; i < 20; i++) {
		load__step(&load);
		cuda.stream_synchronize(load.stream);
		if (i % 5)
			continue;
		fflush(NULL);
		if (!fork()) {
			head = agent.ring->n_launches;
			load.record = false;
			for (int k = 0; k < 10; k++)	/* CUDA itself refuses it in a child */
				cuda.graph_launch(load.exec, load.stream);
			_exit(agent.ring->n_launches != head || start(agent.memfd) != -EBUSY ||
			      n_threads());
		}
		wait(&status);
		again |= status;
	}
	load.record = false;
	order(TL_ORDER_IDLE);
	agent__wait(&agent, TL_RING_IDLE, 5000);
	again |= !leave();
	agent__stop_reader(&agent);
	print_end();
	printf("children=%d\n", again);
	return compare(&load.truth, &agent.spans) || again;
}

/* No CUDA in the process: nothing is asked of it, and nothing is loaded into it. */
static int case_quiet(void)
{
	if (start(agent.memfd))
		return 1;
	agent__start_reader(&agent);
	order(level());
	sim_sleep_until(sim_now() + 300000000);
	print_end();
	order(TL_ORDER_LEAVE);
	agent__wait(&agent, TL_RING_LEFT, 5000);
	wait_no_threads();
	agent__stop_reader(&agent);
	printf("left=%u threads=%d\n", agent.ring->state, n_threads());
	return 0;
}

/* What is no ring is refused, and nothing starts. */
static int case_garbage(void)
{
	int ret[4];

	ret[0] = start(-1);
	agent.ring->magic++;
	ret[1] = start(agent.memfd);
	agent.ring->magic--;
	agent.ring->data_bytes = 3 << 12;
	ret[2] = start(agent.memfd);
	agent.ring->data_bytes = 1u << 31;
	ret[3] = start(agent.memfd);
	printf("start=%d,%d,%d,%d threads=%d\n", ret[0], ret[1], ret[2], ret[3], n_threads());
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*fn)(void);
	} cases[] = {
		{ "window", case_window }, { "fault", case_fault },   { "cycles", case_cycles },
		{ "orphan", case_orphan }, { "fork", case_fork },     { "quiet", case_quiet },
		{ "garbage", case_garbage }, { "soak", case_soak },   { "at_once", case_at_once },
	};

	n_args = argc - 2;
	args = argv + 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!strcmp(argv[1], cases[i].name)) {
			load_kernel_ns = number("kernel_ns", load_kernel_ns);
			open_all();
			return cases[i].fn();
		}
	fprintf(stderr, "in_target: no such case\n");
	return 2;
}
