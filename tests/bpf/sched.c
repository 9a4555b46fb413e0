/* SPDX-License-Identifier: Apache-2.0 */
/* Waits, sleeps and runs of threads as they are captured, against what the kernel and the thread say. */
#include "watch.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* For the log, if a test fails. */
static void print_spans(const struct watch *w, const struct truth *t)
{
	const struct tl_thread_span *s;
	size_t at = 0;

	print_message("noted: %lu us, lost: %lu\n", (t->notes[0].after_ns - t->notes[0].before_ns) / 1000, w->c.n_lost);
	while ((s = capture_next(&w->c, TL_THREAD_SPAN, &at)))
		print_message("tid %u state %u wait %u: %ld to %ld us, by %u\n", s->hdr.tid, s->state, s->wait,
			      (long)(s->since_ns - t->notes[0].before_ns) / 1000,
			      (long)(s->hdr.ts_ns - t->notes[0].before_ns) / 1000, s->by_tid);
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

/* ---- starved by somebody on the same CPU ---- */

/* Before all others, where that is allowed: on a busy host they would have the CPU for longer. */
static pid_t start_hog(struct truth *t)
{
	const struct sched_param first = { 1 };
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "a-hog");
		pin(t->word);
		t->hog_is_first = !sched_setscheduler(0, SCHED_FIFO, &first);
		for (;;) {
			uint64_t begin = now_ns();

			spin_cpu_ms(20);
			t->hog_ran_ns += now_ns() - begin;
			usleep(20000);
		}
	}
	assert_true(pid > 0);
	return pid;
}

/* The time, and how long the thread had waited for a CPU by then: it did not wait between the two. */
static uint64_t read_both(uint64_t *delay)
{
	uint64_t cpu, now, after;

	do {
		read_schedstat(&cpu, delay);
		now = now_ns();
		read_schedstat(&cpu, &after);
	} while (after != *delay);
	return now;
}

enum { ENOUGH_NS = 100 * MS, TOO_LONG_MS = 20000 };

/* Till it was kept waiting for long enough. How much CPU time that takes is up to the host: where it is a
 * guest that stood still, the guest's kernel counts that, too. */
static int do_starve(void *arg)
{
	struct truth *t = arg;
	uint64_t begin, cpu, cpu_begin = cpu_time_ns(), delay;

	pin(t->word);
	t->notes[0].before_ns = read_both(&begin);
	do {
		spin_cpu_ms(20);
		read_schedstat(&cpu, &delay);
	} while (delay - begin < ENOUGH_NS && cpu_time_ns() - cpu_begin < TOO_LONG_MS * 1ull * MS);
	t->notes[0].after_ns = read_both(&t->run_delay_ns);
	t->run_delay_ns -= begin;
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
	hog = start_hog(t);
	w = watch_child(do_starve, t, &pid, "engine-core");
	kill(hog, SIGKILL);
	assert_int_equal(wait4(hog, NULL, 0, &usage), hog);
	hog_ns = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000ull +
		 (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000ull;
	/* Interrupts while it has the CPU are not in its CPU time. */
	if (t->hog_is_first && t->hog_ran_ns > hog_ns)
		hog_ns = t->hog_ran_ns;
	while ((s = next_span(w, &at, pid, TL_SPAN_RUNNABLE))) {
		if (s->since_ns < t->notes[0].before_ns || s->hdr.ts_ns > t->notes[0].after_ns)
			continue;
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
	/* Waits of less than 0.5 ms are not told. */
	if (sum > t->run_delay_ns + t->run_delay_ns / 4 + 20 * MS || sum < t->run_delay_ns / 2)
		fail_msg("waited %lu us for a CPU by the kernel, %lu us by spans", t->run_delay_ns / 1000, sum / 1000);
	assert_true(t->run_delay_ns >= ENOUGH_NS);	/* else nothing was tried */
	if (by_hog > hog_ns + hog_ns / 5 + 5 * MS)
		fail_msg("the hog ran for %lu us, and is said to have run for %lu us", hog_ns / 1000, by_hog / 1000);
	assert_true(by_hog > 0 || !t->hog_is_first);
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

	t->hog_tids[t->n_hogs] = gettid();
	t->hog_ns[t->n_hogs++] = now_ns();
	wait_state(getpid(), "S");
	spin_cpu_ms(30);
	wait_state(getpid(), "S");	/* it looks up now and then, if its wait has a limit */
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
	wait_state(getpid(), "SD");
	usleep(20000);
	z = (struct uffdio_zeropage){ .range = { msg.arg.pagefault.address & ~4095ull, 4096 } };
	if (ioctl(fd, UFFDIO_ZEROPAGE, &z))
		_exit(81);
	return NULL;
}

/* A page that takes 20 ms and more to come in. */
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

/* Stopped by a signal, for 20 ms and more, while it computes. */
static int be_stopped(struct truth *t, int i)
{
	struct note *n = note_begin(t, i);
	pid_t self = getpid(), pid = fork();

	if (pid == 0) {
		if (kill(self, SIGSTOP))
			_exit(1);
		wait_state(self, "T");
		usleep(20000);
		_exit(kill(self, SIGCONT) != 0);
	}
	while (pid > 0 && !waitpid(pid, NULL, WNOHANG))
		;
	n->after_ns = now_ns();
	return pid < 0;
}

/* Kinds of sleep, as do_sleep does them one after the other, some times: on a busy host a thread may be
 * taken off its CPU on its way to sleep, and is woken before it does. */
static const uint16_t kinds[] = { TL_WAIT_OTHER, TL_WAIT_POLL, TL_WAIT_FUTEX, TL_WAIT_PIPE, TL_WAIT_DISK,
				  TL_WAIT_STOPPED };
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]), N_TIMES = 6 };
_Static_assert(N_KINDS * N_TIMES <= MAX_NOTES && (int)N_TIMES <= (int)MAX_HOGS, "there is a note for each");

static int sleep_each(struct truth *t, int at)
{
	pid_t self = getpid();
	struct note *n;
	pthread_t waker;
	int pipes[2];
	char byte;

	n = note_begin(t, at);
	usleep(20000);
	n->after_ns = now_ns();
	n = note_begin(t, at + 1);
	poll(NULL, 0, 20);
	n->after_ns = now_ns();

	n = note_begin(t, at + 2);
	t->go = 0;
	if (pthread_create(&waker, NULL, wake_later, t))
		return 1;
	while (!t->go)
		syscall(SYS_futex, &t->word, FUTEX_WAIT, 0, NULL, NULL, 0);
	n->after_ns = now_ns();
	pthread_join(waker, NULL);

	if (pipe(pipes))
		return 2;
	n = note_begin(t, at + 3);
	if (fork() == 0) {
		wait_state(self, "S");
		usleep(20000);
		_exit(write(pipes[1], "x", 1) != 1);
	}
	if (read(pipes[0], &byte, 1) != 1)
		return 3;
	n->after_ns = now_ns();
	if (touch_slow_page(t, at + 4))
		return 4;
	return be_stopped(t, at + 5) ? 5 : 0;
}

static int do_sleep(void *arg)
{
	int err = 0;

	for (int i = 0; i < N_TIMES && !err; i++)
		err = sleep_each(arg, i * N_KINDS);
	return err;
}

/* The last one that began before the sleep ended. */
static uint32_t hog_of(const struct truth *t, const struct tl_thread_span *s)
{
	uint32_t tid = 0;

	for (int i = 0; i < t->n_hogs; i++)
		if (t->hog_ns[i] < s->hdr.ts_ns)
			tid = t->hog_tids[i];
	return tid;
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
			for (int k = i; k < N_TIMES * N_KINDS; k += N_KINDS)
				if (s->wait == kinds[i] && s->since_ns >= t->notes[k].before_ns &&
				    s->hdr.ts_ns <= t->notes[k].after_ns && length(s) > 15 * MS)
					found = s;
		if (!found)
			fail_msg("sleep %d was not seen", i);
		if (kinds[i] == TL_WAIT_FUTEX) {
			assert_int_equal(found->by_tid, hog_of(t, found));
			assert_int_equal(found->by_tgid, pid);
			assert_true(found->by_ns <= length(found));
		}
		assert_int_equal(found->major_faults, kinds[i] == TL_WAIT_DISK);
		if (kinds[i] == TL_WAIT_STOPPED)	/* who let it go on */
			assert_true(found->by_tgid && found->by_tgid != (uint32_t)pid);
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
		assert_true(s->wait == TL_WAIT_DISK || s->wait == TL_WAIT_STOPPED);	/* they keep whoever needs it */
	watch_close(w);
}

enum { N_HOLDERS = 12 };

/* As CPython waits for its GIL: 5 ms at a time, till the thread that has it lets go. */
static int do_gil(void *arg)
{
	struct timespec five = { 0, 5 * MS };
	struct truth *t = arg;
	struct note *n = note_begin(t, 0);
	pthread_t holder;

	for (int i = 0; i < N_HOLDERS; i++) {
		t->go = 0;
		if (pthread_create(&holder, NULL, wake_later, t))
			return 1;
		while (!t->go)
			syscall(SYS_futex, &t->word, FUTEX_WAIT, 0, &five, NULL, 0);
		pthread_join(holder, NULL);
	}
	n->after_ns = now_ns();
	return 0;
}

/* In pieces if others had the CPU in between, else in one; all have the one that ended the last of them. */
static void test_sleep__that_timeouts_cut_has_one_cause(void **state)
{
	struct truth *t = new_truth();
	pid_t pid;
	struct watch *w = watch_child(do_gil, t, &pid, "engine-core");
	const struct tl_thread_span *s;
	uint64_t sum = 0, by = 0;
	size_t at = 0;

	(void)state;
	while ((s = next_span(w, &at, pid, TL_SPAN_SLEEP))) {
		if (s->since_ns < t->notes[0].before_ns || s->hdr.ts_ns > t->notes[0].after_ns)
			continue;
		assert_true(s->by_ns <= length(s));
		sum += length(s);
		for (int i = 0; i < t->n_hogs; i++)
			by += s->by_tid == t->hog_tids[i] ? s->by_ns : 0;
	}
	/* On a busy host it may be in the queue of a CPU, not asleep, when the lock is let go. */
	assert_true(sum > 10 * MS && by > 0);
	watch_close(w);
}

/* ---- long runs ---- */

/* A short sleep alone may be over before the thread is off its CPU, on a slow machine. */
static void leave_cpu(void)
{
	struct rusage before, after;

	getrusage(RUSAGE_THREAD, &before);
	do {
		usleep(1000);
		getrusage(RUSAGE_THREAD, &after);
	} while (after.ru_nvcsw == before.ru_nvcsw);
}

static int do_run(void *arg)
{
	struct truth *t = arg;
	const struct sched_param first = { 1 };
	struct note *n;

	/* Others must not break it, or there is no long run to see. */
	if (sched_setscheduler(0, SCHED_FIFO, &first))
		setpriority(PRIO_PROCESS, 0, -20);
	n = note_begin(t, 0);
	leave_cpu();		/* else the run is of before the note, too */
	spin_cpu_ms(200);
	leave_cpu();
	n->after_ns = now_ns();
	return 0;
}

/* Of the time between two looks at the clock: of CPU time it may be more, where the kernel takes interrupts
 * out of that, and on an emulated machine these are long. */
static void test_run__is_part_of_the_time(void **state)
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
		if (s->since_ns >= t->notes[0].before_ns && s->hdr.ts_ns <= t->notes[0].after_ns)
			sum += length(s);
	}
	if (!sum)
		print_spans(w, t);
	assert_true(sum > 0);
	assert_true(sum <= t->notes[0].after_ns - t->notes[0].before_ns);
	watch_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runnable__is_as_the_kernel_counts_it),
		cmocka_unit_test(test_sleep__says_what_for_and_who_ended_it),
		cmocka_unit_test(test_sleep__of_other_threads_is_not_told),
		cmocka_unit_test(test_sleep__that_timeouts_cut_has_one_cause),
		cmocka_unit_test(test_run__is_part_of_the_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
