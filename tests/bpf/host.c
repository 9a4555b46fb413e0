/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of CPU time and the code of busy threads as they are captured, against what is known of them. */
#include "watch.h"

#include "source/cgroup_text.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

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

/* A cgroup of 4 ms in each 100: so little that a busy host gives it. false: not on this host. */
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
	if (m.v1 ? put("cpu.cfs_period_us", "100000") && put("cpu.cfs_quota_us", "4000") :
		   put("cpu.max", "4000 100000"))
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

	usleep(500000);		/* the quota is looked at before it is used */
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
	uint64_t sum = 0, n = 0, idle = 0, waited = 0, eater = 0, others = 0;
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
		assert_int_equal(ev->quota_us, 4000);
		assert_int_equal(ev->period_us, 100000);
		assert_true(ev->since_ns < ev->hdr.ts_ns);
		sum += ev->throttled_ns;
		n += ev->n_throttled;
		if (ev->by_tgid) {
			assert_int_equal(ev->by_tgid, child.pid);
			assert_int_equal(ev->by_threads, 1);
			/* before the other one runs, the main thread is whoever used most */
			*(strcmp(ev->by_name, "eater") ? &others : &eater) += ev->by_ns;
		}
	}
	assert_true(n > 0);
	assert_true(eater > others);
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

/* ---- in which code ---- */

/* Of native code only what was not stripped shows; frames of Python are read from 3.11 to 3.13. */
static int do_python(void *arg)
{
	static char script[] =
		"import gc, sys, time\n"
		"if not (3, 11) <= sys.version_info < (3, 14): sys.exit(77)\n"
		"class Handler:\n"
		"    def grind(self):\n"
		"        x = 0\n"
		"        for i in range(1500000): x += i\n"
		"keep = [[i, {}] for i in range(300000)]\n"
		"for i in range(4):\n"
		"    time.sleep(0.05); Handler().grind()\n"
		"    time.sleep(0.05); gc.collect()\n"
		"time.sleep(0.05)\n";

	(void)arg;
	execlp("python3", "python3", "-c", script, NULL);
	return 77;
}

static void test_code__of_python(void **state)
{
	size_t at = 0, n_loop = 0, n_gc = 0;
	const struct tl_code *ev;
	struct watch *w = watch_open();
	const struct emit out = { capture_take, &w->c };
	struct child child = child_start(do_python, NULL);
	int status;

	(void)state;
	assert_int_equal(host__add(w->host, &(struct host_process){
		.tgid = child.pid, .server = child.pid, .engine = TL_ENGINE_VLLM, .role = "api", .title = "" }), 0);
	watch_poll(w);
	child_go(&child);
	while (waitpid(child.pid, &status, WNOHANG) == 0) {
		const struct emit tap = { take_all, w };

		assert_true(src_bpf__poll(w->c.bpf, &tap, 20) >= 0);	/* woken by samples */
		watch_poll(w);
	}
	assert_int_equal(host__end(w->host, now_ns(), &out), 0);
	if (WEXITSTATUS(status) == 77) {
		watch_close(w);
		skip();
	}
	assert_int_equal(status, 0);
	while ((ev = capture_next(&w->c, TL_CODE, &at))) {
		assert_int_equal(ev->hdr.tid, child.pid);
		assert_true(ev->since_ns + 10 * MS <= ev->hdr.ts_ns);
		assert_true(ev->n_samples > 0 && ev->n_samples <= ev->of_samples);
		n_loop += !strcmp(ev->frame, "<string>:Handler.grind");
		n_gc += ev->code == TL_CODE_GC;
	}
	assert_true(n_loop > 0);
	assert_true(n_gc > 0);
	watch_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_throttle__is_as_the_kernel_counts_it),
		cmocka_unit_test(test_code__of_python),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
