/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of threads as they are captured, against what the kernel and the thread itself say. */
#include "capture.h"

#include "source/cgroup_text.h"
#include "source/host.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { MS = 1000000, MAX_NOTES = 16 };

/* What the child says of itself, in shared memory. */
struct note {
	uint64_t before_ns, after_ns;
	uint32_t tid;
};
struct truth {
	struct note notes[MAX_NOTES];
	uint64_t run_delay_ns, cpu_ns;
	uint32_t hog_tid, tid;
	_Atomic int go;
	int word;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t cpu_time_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void spin_cpu_ms(int ms)
{
	for (uint64_t end = cpu_time_ns() + (uint64_t)ms * MS; cpu_time_ns() < end; )
		;
}

static void read_schedstat(uint64_t *cpu, uint64_t *delay)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", gettid());
	f = fopen(path, "re");
	if (!f || fscanf(f, "%lu %lu", cpu, delay) != 2)
		_exit(90);
	fclose(f);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		_exit(91);
}

static int some_cpu(void)
{
	cpu_set_t set;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set))
			return i;
	return 0;
}

/* ---- capturing ---- */

struct watch {
	struct capture c;	/* bpf is its own; events: those that the host makes */
	struct host *host;
};

static int take_all(void *ctx, const struct tl_hdr *ev)
{
	struct watch *w = ctx;
	const struct emit out = { capture_take, &w->c };
	int err = host__take(w->host, ev, &out);

	return err < 0 ? err : 0;
}

static struct watch *watch_open(void)
{
	static const struct src_bpf_opts opts = { .ring_bytes = RING };
	struct watch *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->c.bpf = capture_load(&opts);
	assert_int_equal(host__open(w->c.bpf, &w->host), 0);
	return w;
}

static void watch_poll(struct watch *w)
{
	const struct emit tap = { take_all, w }, out = { capture_take, &w->c };

	while (src_bpf__poll(w->c.bpf, &tap, 0) > 0)
		;
	assert_int_equal(host__poll(w->host, now_ns(), &out), 0);
}

/* Captures a child whose main thread counts as the engine's. */
static struct watch *watch_child(scenario fn, void *arg, pid_t *ret_pid, const char *role)
{
	struct watch *w = watch_open();
	struct child child = child_start(fn, arg);
	const struct emit out = { capture_take, &w->c };
	int status;

	assert_int_equal(host__add(w->host, &(struct host_process){
		.tgid = child.pid, .server = child.pid, .engine = TL_ENGINE_VLLM, .role = role, .title = "" }), 0);
	watch_poll(w);		/* its main thread gets its role */
	child_go(&child);
	while (waitpid(child.pid, &status, WNOHANG) == 0) {
		watch_poll(w);
		usleep(20000);
	}
	if (status)
		fail_msg("the child ended with %d (%d)", status, status >> 8);
	watch_poll(w);
	assert_int_equal(host__end(w->host, now_ns(), &out), 0);
	*ret_pid = child.pid;
	return w;
}

static void watch_close(struct watch *w)
{
	host__close(w->host);
	src_bpf__close(w->c.bpf);
	capture_forget(&w->c);
	free(w);
}

static const struct tl_thread_span *next_span(const struct watch *w, size_t *at, uint32_t tid, uint16_t state)
{
	const struct tl_thread_span *s;

	while ((s = capture_next(&w->c, TL_THREAD_SPAN, at)))
		if (s->hdr.tid == tid && s->state == state)
			return s;
	return NULL;
}

static uint64_t length(const struct tl_thread_span *s)
{
	return s->hdr.ts_ns - s->since_ns;
}

static struct truth *new_truth(void)
{
	struct truth *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(t != MAP_FAILED);
	return t;
}

/* ---- starved by somebody on the same CPU ---- */

static void *spin_forever(void *arg)
{
	for (;;)
		;
	return arg;
}

static pid_t start_hog(int cpu)
{
	pthread_t thread;
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "a-hog");
		pin(cpu);
		for (int i = 0; i < 3; i++)
			pthread_create(&thread, NULL, spin_forever, NULL);
		spin_forever(NULL);
	}
	assert_true(pid > 0);
	return pid;
}

static int do_starve(void *arg)
{
	struct truth *t = arg;
	uint64_t cpu, delay;

	pin(t->word);
	read_schedstat(&cpu, &delay);
	spin_cpu_ms(100);
	read_schedstat(&t->cpu_ns, &t->run_delay_ns);
	t->cpu_ns -= cpu;
	t->run_delay_ns -= delay;
	return 0;
}

static void test_runnable__is_as_the_kernel_counts_it(void **state)
{
	struct truth *t = new_truth();
	const struct tl_thread_span *s;
	uint64_t sum = 0, by_hog = 0, hog_ns, before = 0;
	struct rusage usage;
	struct watch *w;
	size_t at = 0;
	pid_t pid, hog;

	(void)state;
	t->word = some_cpu();
	hog = start_hog(t->word);
	w = watch_child(do_starve, t, &pid, "engine-core");
	kill(hog, SIGKILL);
	assert_int_equal(wait4(hog, NULL, 0, &usage), hog);
	hog_ns = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000ull +
		 (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000ull;
	while ((s = next_span(w, &at, pid, TL_SPAN_RUNNABLE))) {
		assert_true(s->since_ns >= before && length(s) >= MS / 2);
		assert_true(s->by_ns <= length(s));
		if (s->by_tgid == (uint32_t)hog) {
			assert_string_equal(s->by_name, "a-hog");
			assert_true(s->by_cgroup != 0);
			by_hog += s->by_ns;
		}
		before = s->hdr.ts_ns;
		sum += length(s);
	}
	if (sum > t->run_delay_ns + t->run_delay_ns / 20 + 5 * MS || sum < t->run_delay_ns * 3 / 4)
		fail_msg("waited %lu us for a CPU by the kernel, %lu us by spans", t->run_delay_ns / 1000, sum / 1000);
	assert_true(t->run_delay_ns > 20 * MS);		/* else nothing was tried */
	assert_true(by_hog > 0 && by_hog <= hog_ns + MS);
	watch_close(w);
}

/* ---- sleeps ---- */

static struct note *note_begin(struct truth *t, int i)
{
	t->notes[i].before_ns = now_ns();
	return &t->notes[i];
}

static void *wake_later(void *arg)
{
	struct truth *t = arg;

	t->hog_tid = gettid();
	spin_cpu_ms(30);
	t->go = 1;
	syscall(SYS_futex, &t->word, FUTEX_WAKE, 1, NULL, NULL, 0);
	return NULL;
}

static void *handle_fault(void *arg)
{
	struct uffd_msg msg;
	int fd = *(int *)arg;
	struct uffdio_zeropage z;

	if (read(fd, &msg, sizeof(msg)) != sizeof(msg))
		_exit(80);
	usleep(20000);
	z = (struct uffdio_zeropage){ .range = { msg.arg.pagefault.address & ~4095ull, 4096 } };
	if (ioctl(fd, UFFDIO_ZEROPAGE, &z))
		_exit(81);
	return NULL;
}

/* A page that takes 20 ms to come in. */
static int touch_slow_page(struct truth *t, int i)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t handler;
	struct note *n;

	reg.range.start = (uintptr_t)page;
	reg.range.len = 4096;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &reg))
		return 1;
	if (pthread_create(&handler, NULL, handle_fault, &fd))
		return 1;
	n = note_begin(t, i);
	page[0] = 1;
	n->after_ns = now_ns();
	return pthread_join(handler, NULL);
}

/* Kinds of sleep, as do_sleep does them one after the other. */
static const uint16_t kinds[] = { TL_WAIT_OTHER, TL_WAIT_POLL, TL_WAIT_FUTEX, TL_WAIT_PIPE, TL_WAIT_DISK };
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static int do_sleep(void *arg)
{
	struct truth *t = arg;
	struct note *n;
	pthread_t waker;
	int pipes[2];
	char byte;

	n = note_begin(t, 0);
	usleep(20000);
	n->after_ns = now_ns();
	n = note_begin(t, 1);
	poll(NULL, 0, 20);
	n->after_ns = now_ns();

	n = note_begin(t, 2);
	if (pthread_create(&waker, NULL, wake_later, t))
		return 1;
	while (!t->go)
		syscall(SYS_futex, &t->word, FUTEX_WAIT, 0, NULL, NULL, 0);
	n->after_ns = now_ns();
	pthread_join(waker, NULL);

	if (pipe(pipes))
		return 2;
	n = note_begin(t, 3);
	if (fork() == 0) {
		usleep(20000);
		_exit(write(pipes[1], "x", 1) != 1);
	}
	if (read(pipes[0], &byte, 1) != 1)
		return 3;
	n->after_ns = now_ns();
	return touch_slow_page(t, 4) ? 4 : 0;
}

static void test_sleep__says_what_for_and_who_ended_it(void **state)
{
	struct truth *t = new_truth();
	pid_t pid;
	struct watch *w = watch_child(do_sleep, t, &pid, "engine-core");

	(void)state;
	for (int i = 0; i < N_KINDS; i++) {
		const struct tl_thread_span *s, *found = NULL;
		size_t at = 0;

		while ((s = next_span(w, &at, pid, TL_SPAN_SLEEP)))
			if (s->wait == kinds[i] && s->since_ns >= t->notes[i].before_ns &&
			    s->hdr.ts_ns <= t->notes[i].after_ns && length(s) > 15 * MS)
				found = s;
		if (!found)
			fail_msg("sleep %d was not seen", i);
		if (kinds[i] == TL_WAIT_FUTEX) {
			assert_int_equal(found->by_tid, t->hog_tid);
			assert_int_equal(found->by_tgid, pid);
			assert_true(found->by_ns <= length(found));
		}
		assert_int_equal(found->major_faults, kinds[i] == TL_WAIT_DISK);
	}
	watch_close(w);
}

static void test_sleep__of_other_threads_is_not_told(void **state)
{
	struct truth *t = new_truth();
	pid_t pid;
	struct watch *w = watch_child(do_sleep, t, &pid, "worker-of-nobody");
	const struct tl_thread_span *s;
	size_t at = 0;

	(void)state;
	while ((s = next_span(w, &at, pid, TL_SPAN_SLEEP)))
		assert_int_equal(s->wait, TL_WAIT_DISK);	/* that keeps whoever needs it */
	watch_close(w);
}

/* As CPython waits for its GIL: 5 ms at a time, till the thread that has it lets go. */
static int do_gil(void *arg)
{
	struct timespec five = { 0, 5 * MS };
	struct truth *t = arg;
	struct note *n = note_begin(t, 0);
	pthread_t holder;

	if (pthread_create(&holder, NULL, wake_later, t))
		return 1;
	while (!t->go)
		syscall(SYS_futex, &t->word, FUTEX_WAIT, 0, &five, NULL, 0);
	n->after_ns = now_ns();
	pthread_join(holder, NULL);
	return 0;
}

static void test_sleep__that_timeouts_cut_is_one(void **state)
{
	struct truth *t = new_truth();
	pid_t pid;
	struct watch *w = watch_child(do_gil, t, &pid, "engine-core");
	const struct tl_thread_span *s;
	uint64_t longest = 0;
	size_t at = 0;

	(void)state;
	while ((s = next_span(w, &at, pid, TL_SPAN_SLEEP))) {
		if (s->since_ns < t->notes[0].before_ns || s->hdr.ts_ns > t->notes[0].after_ns)
			continue;
		assert_true(s->by_ns <= length(s));
		if (length(s) <= longest)
			continue;
		longest = length(s);
	}
	assert_true(longest > 10 * MS);		/* of 30; a load of others may break it */
	watch_close(w);
}

/* ---- long runs ---- */

static int do_run(void *arg)
{
	struct truth *t = arg;
	struct note *n = note_begin(t, 0);
	uint64_t cpu = cpu_time_ns();
	const struct sched_param first = { 1 };

	/* Others must not break it, or there is no long run to see. */
	if (sched_setscheduler(0, SCHED_FIFO, &first))
		setpriority(PRIO_PROCESS, 0, -20);
	spin_cpu_ms(200);
	usleep(1000);
	t->cpu_ns = cpu_time_ns() - cpu;
	n->after_ns = now_ns();
	return 0;
}

static void test_run__is_part_of_the_cpu_time(void **state)
{
	struct truth *t = new_truth();
	pid_t pid;
	struct watch *w = watch_child(do_run, t, &pid, "api");
	const struct tl_thread_span *s;
	uint64_t sum = 0;
	size_t at = 0;

	(void)state;
	while ((s = next_span(w, &at, pid, TL_SPAN_RUN))) {
		assert_true(length(s) >= 5 * MS);
		if (s->since_ns + MS >= t->notes[0].before_ns && s->hdr.ts_ns <= t->notes[0].after_ns)
			sum += length(s);
	}
	assert_true(sum > 0 && sum <= t->cpu_ns + t->cpu_ns / 20 + 2 * MS);
	watch_close(w);
}

/* ---- throttled ---- */

static char quota_dir[256];

static bool put(const char *name, const char *text)
{
	char path[320];
	int fd, n;

	snprintf(path, sizeof(path), "%s/%s", quota_dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : write(fd, text, strlen(text));
	if (fd >= 0)
		close(fd);
	return n > 0;
}

static bool get_stat(struct cgroup_stat *ret)
{
	char path[320], buf[1024];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/cpu.stat", quota_dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);
	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n > 0 && !cgroup_parse_stat(buf, ret);
}

/* A cgroup of 20 ms in each 100; false: not on this host. */
static bool make_quota(void)
{
	struct cgroup_mount m;
	char buf[16384];
	int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, buf, sizeof(buf) - 1);

	close(fd);
	buf[n > 0 ? n : 0] = '\0';
	if (cgroup_parse_mounts(buf, &m))
		return false;
	snprintf(quota_dir, sizeof(quota_dir), "%s/tokenlag-test-%d", m.dir, getpid());
	if (mkdir(quota_dir, 0755))
		return false;
	if (m.v1 ? put("cpu.cfs_period_us", "100000") && put("cpu.cfs_quota_us", "20000") :
		   put("cpu.max", "20000 100000"))
		return true;
	rmdir(quota_dir);
	return false;
}

static void *spin_thread(void *arg)
{
	pthread_setname_np(pthread_self(), "eater");
	while (!((struct truth *)arg)->go)
		;
	return NULL;
}

static int do_throttled(void *arg)
{
	struct truth *t = arg;
	pthread_t eater;
	uint64_t end;

	usleep(150000);		/* the quota is looked at before it is used */
	end = now_ns() + 600ull * MS;
	if (pthread_create(&eater, NULL, spin_thread, t))
		return 1;
	while (now_ns() < end)
		usleep(2000);
	t->go = 1;
	pthread_join(eater, NULL);
	usleep(150000);
	return 0;
}

static void join_quota(pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	assert_true(put("cgroup.procs", text));
}

static void test_throttle__is_as_the_kernel_counts_it(void **state)
{
	struct truth *t = new_truth();
	struct watch *w = watch_open();
	const struct emit out = { capture_take, &w->c };
	struct cgroup_stat kernel;
	const struct tl_throttle *ev;
	const struct tl_thread *thread;
	const struct tl_thread_span *s;
	uint64_t sum = 0, n = 0, idle = 0, waited = 0;
	size_t at = 0;
	struct child child;
	struct stat st;
	int status;

	(void)state;
	if (!make_quota()) {
		watch_close(w);
		skip();
	}
	assert_int_equal(stat(quota_dir, &st), 0);
	child = child_start(do_throttled, t);
	join_quota(child.pid);
	assert_int_equal(host__add(w->host, &(struct host_process){
		.tgid = child.pid, .server = child.pid, .engine = TL_ENGINE_VLLM, .role = "engine-core",
		.title = "" }), 0);
	watch_poll(w);
	child_go(&child);
	while (waitpid(child.pid, &status, WNOHANG) == 0) {
		watch_poll(w);
		usleep(20000);
	}
	usleep(100000);
	watch_poll(w);
	assert_int_equal(status, 0);
	assert_int_equal(host__end(w->host, now_ns(), &out), 0);
	assert_true(get_stat(&kernel));
	rmdir(quota_dir);

	while ((ev = capture_next(&w->c, TL_THROTTLE, &at))) {
		assert_int_equal(ev->cgroup, st.st_ino);
		assert_int_equal(ev->quota_us, 20000);
		assert_int_equal(ev->period_us, 100000);
		assert_true(ev->since_ns < ev->hdr.ts_ns);
		sum += ev->throttled_ns;
		n += ev->n_throttled;
		if (ev->by_tgid) {
			assert_int_equal(ev->by_tgid, child.pid);
			assert_string_equal(ev->by_name, "eater");
			assert_int_equal(ev->by_threads, 1);
		}
	}
	assert_true(n > 0);
	assert_int_equal(n, kernel.n_throttled);
	assert_int_equal(sum, kernel.throttled_ns);
	at = 0;
	thread = capture_next(&w->c, TL_THREAD, &at);
	assert_non_null(thread);
	assert_int_equal(thread->role, TL_ROLE_ENGINE);
	assert_int_equal(thread->cgroup, st.st_ino);
	at = 0;
	while ((s = capture_next(&w->c, TL_THREAD_SPAN, &at))) {
		if (s->state != TL_SPAN_RUNNABLE)
			continue;
		waited += length(s);
		if (s->hdr.flags & TL_SPAN_IDLE_CPU) {
			assert_int_equal(s->by_tid, 0);
			idle += length(s);
		}
	}
	assert_true(waited > 0);
	(void)idle;		/* none if others keep all CPUs busy */
	watch_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runnable__is_as_the_kernel_counts_it),
		cmocka_unit_test(test_sleep__says_what_for_and_who_ended_it),
		cmocka_unit_test(test_sleep__of_other_threads_is_not_told),
		cmocka_unit_test(test_sleep__that_timeouts_cut_is_one),
		cmocka_unit_test(test_run__is_part_of_the_cpu_time),
		cmocka_unit_test(test_throttle__is_as_the_kernel_counts_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
