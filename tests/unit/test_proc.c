/* SPDX-License-Identifier: Apache-2.0 */
/* proc: on processes that the test starts, from other places, names and namespaces. */
#include "children.h"

#include "source/discover.h"
#include "source/proc.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

static bool has_symbol(const struct proc_facts *f, const char *name)
{
	for (size_t i = 0; i < f->n_symbols; i++) {
		if (!strcmp(f->symbols[i], name))
			return true;
	}
	return false;
}

/* ---- facts ---- */

static void test_proc__facts_of_child(void **state)
{
	struct timespec now;
	uint32_t port;
	pid_t pid = spawn(NULL, "my-server", LISTEN, &port);
	struct proc_facts f;

	(void)state;
	assert_int_equal(proc_read_facts(pid, &f), 0);
	clock_gettime(CLOCK_MONOTONIC, &now);
	assert_int_equal(f.pid, pid);
	assert_int_equal(f.ppid, getpid());
	assert_int_equal(f.pid_inside, pid);
	assert_int_equal(f.uid, geteuid());
	assert_true(f.start_ns > 0 && f.start_ns <= now.tv_sec * 1000000000ull + now.tv_nsec);
	assert_memory_equal(f.cmdline, "my-server\0--child\0001\0", 20);
	assert_int_equal(f.cmdline[f.cmdline_len], 0);
	assert_string_equal(strrchr(f.exe, '/') + 1, program_invocation_short_name);
	assert_false(f.other_mnt_ns || f.other_pid_ns || f.deleted_exe || f.kernel_thread ||
		     f.uses_io_uring);
	assert_true(f.n_libs > 1);
	assert_true(!f.has_cuda && !f.gpus && !f.ports_unknown);
	assert_true(has_symbol(&f, "llama_decode"));
	assert_false(has_symbol(&f, "llama_process"));
	assert_string_equal(f.symbols_in, f.exe);
	assert_int_equal(f.llama_build, 4711);
	assert_true(f.exe_symtab);
	assert_int_equal(f.n_ports, 1);
	assert_int_equal(f.ports[0], port);
	proc_facts__free(&f);
	end(pid);
}

/* A process is known again by pid and start: the same each time. */
static void test_proc__start_is_stable(void **state)
{
	struct proc_scan *scan = proc_scan__new();
	struct proc_facts f;
	uint64_t start = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		assert_int_equal(proc_scan__read(scan, getpid(), &f), 0);
		assert_true(!i || f.start_ns == start);
		start = f.start_ns;
		proc_facts__free(&f);
	}
	proc_scan__free(scan);
}

static void test_proc__listens_on_ipv6(void **state)
{
	uint32_t port;
	pid_t pid = spawn(NULL, "six", LISTEN6, &port);
	struct proc_facts f;

	(void)state;
	assert_int_equal(proc_read_facts(pid, &f), 0);
	assert_int_equal(f.n_ports, 1);
	assert_int_equal(f.ports[0], port);
	proc_facts__free(&f);
	end(pid);
}

static void test_proc__io_uring(void **state)
{
	uint32_t err;
	pid_t pid = spawn(NULL, "ring", URING, &err);
	struct proc_facts f;

	(void)state;
	assert_int_equal(proc_read_facts(pid, &f), 0);
	assert_int_equal(f.uses_io_uring, !err);	/* a kernel may refuse it */
	proc_facts__free(&f);
	end(pid);
}

static void test_proc__deleted_exe(void **state)
{
	const char *exe = copy_file("/proc/self/exe", "gone");
	pid_t pid;
	struct proc_facts f;

	(void)state;
	pid = spawn(exe, "gone", PLAIN, NULL);
	assert_int_equal(unlink(exe), 0);
	assert_int_equal(proc_read_facts(pid, &f), 0);
	assert_true(f.deleted_exe);
	assert_string_equal(f.exe, exe);
	assert_true(has_symbol(&f, "llama_decode"));
	assert_int_equal(f.llama_build, 4711);
	proc_facts__free(&f);
	end(pid);
}

/* Another file has taken the path: the symbols must be those of the file that runs. */
static void test_proc__replaced_exe(void **state)
{
	const char *exe = copy_file("/proc/self/exe", "new");
	pid_t pid;
	struct proc_facts f;

	(void)state;
	pid = spawn(exe, "new", PLAIN, NULL);
	assert_int_equal(unlink(exe), 0);
	copy_file("/bin/true", "new");
	assert_int_equal(proc_read_facts(pid, &f), 0);
	assert_true(f.deleted_exe && has_symbol(&f, "llama_decode"));
	proc_facts__free(&f);
	end(pid);
	unlink(exe);
}

static void test_proc__stripped_exe(void **state)
{
	const char *exe = copy_file("/proc/self/exe", "llama-server");
	char command[256];
	struct proc_facts f;
	struct engine_id id;
	pid_t pid;

	(void)state;
	snprintf(command, sizeof(command), "strip '%s'", exe);
	assert_int_equal(system(command), 0);
	pid = spawn(exe, "llama-server", PLAIN, NULL);
	assert_int_equal(proc_read_facts(pid, &f), 0);
	assert_false(f.exe_symtab);
	assert_int_equal(f.n_symbols, 0);
	assert_int_equal(f.llama_build, 0);
	assert_true(recognise(&f, &id));
	assert_string_equal(id.why, "command 'llama-server', stripped: no llama_* symbols");
	proc_facts__free(&f);
	end(pid);
	unlink(exe);
}

/* ---- processes without much to see ---- */

static void *thread_waits(void *tid)
{
	__atomic_store_n((pid_t *)tid, gettid(), __ATOMIC_RELEASE);
	pause();
	return NULL;
}

static void test_proc__no_process(void **state)
{
	struct proc_facts f = { .pid = 77 };
	struct found found = { .server = 77 };
	pthread_t thread;
	pid_t pid = spawn(NULL, "dead", PLAIN, NULL), tid = 0;

	(void)state;
	end(pid);
	assert_int_equal(proc_read_facts(pid, &f), -ESRCH);
	assert_int_equal(discover_one(pid, &found), -ESRCH);
	assert_int_equal(proc_read_facts(0, &f), -ESRCH);
	assert_int_equal(proc_read_facts(-1, &f), -ESRCH);
	assert_int_equal(proc_each_exec_map(pid, NULL, NULL), -ESRCH);
	assert_int_equal(pthread_create(&thread, NULL, thread_waits, &tid), 0);
	while (!__atomic_load_n(&tid, __ATOMIC_ACQUIRE))
		sched_yield();
	assert_int_equal(proc_read_facts(tid, &f), -ESRCH);	/* a thread is no process */
	assert_int_equal(f.pid, 77);
	assert_int_equal(found.server, 77);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

static void *thread_number(void *ret)
{
	*(pid_t *)ret = proc_of_thread(gettid());
	return NULL;
}

static void test_proc__of_thread(void **state)
{
	pthread_t thread;
	pid_t process = 0;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, thread_number, &process), 0);
	pthread_join(thread, NULL);
	assert_int_equal(process, getpid());
	assert_int_equal(proc_of_thread(1 << 30), 0);
}

static void test_proc__zombie(void **state)
{
	struct proc_facts f;
	siginfo_t info;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(proc_read_facts(pid, &f), -ESRCH);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_proc__init(void **state)
{
	struct proc_facts f;
	int err = proc_read_facts(1, &f);

	(void)state;
	assert_true(!err || err == -EACCES);	/* a sandbox may guard it even from root */
	assert_int_equal(f.pid, 1);
	assert_true(strlen(f.comm) > 0);
	assert_false(f.kernel_thread);
	proc_facts__free(&f);
}

static int find_kernel_thread(void *ctx, pid_t pid)
{
	struct proc_facts f;
	int err = proc_read_facts(pid, &f);

	(void)ctx;
	if (err && err != -EACCES)
		return 0;
	if (f.kernel_thread) {
		assert_int_equal(err, 0);
		assert_int_equal(f.n_libs, 0);
		assert_string_equal(f.exe, "");
	}
	err = f.kernel_thread ? pid : 0;
	proc_facts__free(&f);
	return err;
}

/* In a container there may be none to see: then none may be taken for one. */
static void test_proc__kernel_thread(void **state)
{
	bool sees_any = !access("/proc/2/comm", F_OK);

	(void)state;
	assert_int_equal(proc_each(find_kernel_thread, NULL) > 0, sees_any);
}

/* What nobody may read of a process of root: exits with the number of the check that failed. */
static void read_as_nobody(pid_t root)
{
	struct discovery d;
	struct proc_facts f;

	if (setresuid(65534, 65534, 65534))
		_exit(1);
	if (proc_read_facts(root, &f) != -EACCES)
		_exit(2);
	if (strcmp(f.cmdline, "guarded") || f.uid || f.n_libs || f.n_ports || *f.exe ||
	    !f.ports_unknown)
		_exit(3);
	proc_facts__free(&f);
	if (discover(&d))
		_exit(4);
	if (!d.n_refused || d.n_refused > d.n_processes || !d.refused_pid)
		_exit(5);
	discovery__free(&d);
	_exit(0);
}

static void test_proc__not_allowed(void **state)
{
	pid_t pid, guarded;
	int status;

	(void)state;
	if (geteuid())
		skip();		/* nothing to give up */
	guarded = spawn(NULL, "guarded", LISTEN, NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		read_as_nobody(guarded);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	end(guarded);
}

/* ---- maps ---- */

struct maps {
	pid_t pid;
	size_t n;
	char own[256];
};

static int count_map(void *ctx, const struct proc_map *m)
{
	struct maps *maps = ctx;
	char path[320], via[320];
	struct stat a, b;
	int fd, fd2;

	maps->n++;
	fd = proc_open_map(maps->pid, m, path, sizeof(path));
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &a), 0);
	assert_int_equal(a.st_ino, m->inode);
	fd2 = open(path, O_RDONLY | O_CLOEXEC);		/* as perf_event_open will */
	assert_true(fd2 >= 0);
	assert_int_equal(fstat(fd2, &b), 0);
	assert_int_equal(b.st_ino, a.st_ino);
	close(fd2);
	close(fd);
	assert_int_equal(proc_open_map(maps->pid, m, via, 8), -ENAMETOOLONG);
	if (strstr(m->path, program_invocation_short_name))
		snprintf(maps->own, sizeof(maps->own), "%s", m->path);
	return 0;
}

static int stop_at_once(void *ctx, const struct proc_map *m)
{
	(void)m;
	++*(int *)ctx;
	return 42;
}

static void test_proc__maps(void **state)
{
	struct maps maps = { .pid = spawn(NULL, "maps", PLAIN, NULL) };
	int calls = 0;

	(void)state;
	assert_int_equal(proc_each_exec_map(maps.pid, count_map, &maps), 0);
	assert_true(maps.n > 1);
	assert_true(*maps.own);
	assert_int_equal(proc_each_exec_map(maps.pid, stop_at_once, &calls), 42);
	assert_int_equal(calls, 1);
	end(maps.pid);
}

/* A mapping that is not there any more is found by its path; by another inode it is not. */
static int open_moved(void *ctx, const struct proc_map *m)
{
	struct proc_map moved = *m;
	char path[320];
	int fd;

	if (!strstr(m->path, program_invocation_short_name))
		return 0;
	moved.start = 0x1000;
	moved.end = 0x2000;
	fd = proc_open_map(*(pid_t *)ctx, &moved, path, sizeof(path));
	assert_true(fd >= 0);
	close(fd);
	assert_non_null(strstr(path, "/root/"));
	moved.inode++;
	assert_true(proc_open_map(*(pid_t *)ctx, &moved, path, sizeof(path)) < 0);
	return 1;
}

static void test_proc__moved_map(void **state)
{
	pid_t pid = spawn(NULL, "moved", PLAIN, NULL);

	(void)state;
	assert_int_equal(proc_each_exec_map(pid, open_moved, &pid), 1);
	end(pid);
}

/* ---- other namespaces ---- */

/* Runs the program from a file system that only it sees, as pid 1 of a pid namespace. Its path
 * leads to nothing here. Returns the pid on this side. */
static pid_t spawn_contained(pid_t *ret_outer)
{
	int fds[2], to_child[2];
	uint32_t port;
	pid_t outer, inner;

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(to_child), 0);
	outer = fork();
	assert_true(outer >= 0);
	if (outer == 0) {
		char fd_text[16];
		char *argv[] = { "contained", "--child", "1", fd_text, NULL };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNS | CLONE_NEWPID) ||
		    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("tmpfs", "/mnt", "tmpfs", 0, "mode=755"))
			_exit(1);
		snprintf(folder, sizeof(folder), "/mnt");
		copy_file("/proc/self/exe", "inside");
		copy_file("/proc/self/exe", "libcuda.so.1");
		if (mount("tmpfs", "/dev", "tmpfs", 0, "mode=755") ||
		    open("/dev/nvidia3", O_RDWR | O_CREAT, 0666) < 0 ||
		    open("/dev/nvidia12", O_RDWR | O_CREAT, 0666) < 0 ||
		    open("/dev/nvidiactl", O_RDWR | O_CREAT, 0666) < 0)
			_exit(1);
		inner = fork();
		if (inner == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
			snprintf(fd_text, sizeof(fd_text), "%d", fds[1]);
			execv("/mnt/inside", argv);
			_exit(1);
		}
		if (write(to_child[1], &inner, sizeof(inner)) != sizeof(inner))
			_exit(1);
		waitpid(inner, NULL, 0);
		_exit(0);
	}
	close(fds[1]);
	close(to_child[1]);
	assert_int_equal(read(to_child[0], &inner, sizeof(inner)), sizeof(inner));
	assert_int_equal(read(fds[0], &port, sizeof(port)), sizeof(port));
	close(fds[0]);
	close(to_child[0]);
	*ret_outer = outer;
	return inner;
}

static void test_proc__other_namespaces(void **state)
{
	struct proc_facts f;
	pid_t outer, pid;
	int fd;

	(void)state;
	if (geteuid())
		skip();		/* namespaces need root */
	pid = spawn_contained(&outer);
	assert_int_equal(access("/mnt/inside", F_OK), -1);
	assert_int_equal(proc_read_facts(pid, &f), 0);
	assert_int_equal(f.pid, pid);
	assert_int_equal(f.ppid, outer);
	assert_int_equal(f.pid_inside, 1);
	assert_true(f.other_mnt_ns && f.other_pid_ns);
	assert_string_equal(f.exe, "/mnt/inside");
	assert_true(has_symbol(&f, "llama_decode"));
	assert_int_equal(f.llama_build, 4711);
	assert_int_equal(f.n_ports, 1);
	assert_int_equal(f.gpus, 1 << 3 | 1 << 12);
	assert_true(f.has_cuda);
	proc_facts__free(&f);
	fd = proc_open_in_root(pid, "/mnt/inside", O_RDONLY);
	assert_true(fd >= 0);
	close(fd);
	end(outer);		/* its end ends the other */
}

/* A link inside the container that points to an absolute path must stay inside. */
static void test_proc__links_stay_inside(void **state)
{
	char path[128];
	pid_t outer, pid;
	int fd;

	(void)state;
	if (geteuid())
		skip();
	pid = spawn_contained(&outer);
	snprintf(path, sizeof(path), "/proc/%d/root/mnt/link", pid);
	assert_int_equal(symlink("/inside-only", path), 0);
	assert_int_equal(proc_open_in_root(pid, "/mnt/link", O_RDONLY), -ENOENT);
	unlink(path);
	assert_int_equal(symlink("/mnt/inside", path), 0);
	fd = proc_open_in_root(pid, "/mnt/link", O_RDONLY);
	assert_true(fd >= 0);
	close(fd);
	end(outer);
}

/* ---- packages ---- */

static void test_proc__packages(void **state)
{
	static const char *const dirs[] = {
		"site-packages",
		"site-packages/pkg",
		"site-packages/pkg/bin",
		"site-packages/Pkg-0.3.1.dist-info",
		"site-packages/vLLM-0.32.0+cpu.dist-info",
		"site-packages/other-1.0.dist-info",
		"site-packages/vllm-9.dist-info-old",
		"site-packages/sglang",
		"site-packages/.dist-info",
	};
	struct proc_facts f;
	struct engine_id id;
	char path[160];
	const char *exe;
	pid_t pid;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, dirs[i]);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	exe = copy_file("/proc/self/exe", "site-packages/pkg/bin/server");
	pid = spawn(exe, "server", LISTEN, NULL);
	assert_int_equal(proc_read_facts(pid, &f), 0);
	assert_int_equal(f.n_packages, 2);
	assert_true(!strcmp(f.packages[0], "vllm 0.32.0+cpu") ||
		    !strcmp(f.packages[1], "vllm 0.32.0+cpu"));
	assert_true(!strcmp(f.packages[0], "pkg 0.3.1") || !strcmp(f.packages[1], "pkg 0.3.1"));
	f.llama_build = 0;
	assert_true(recognise(&f, &id));
	assert_string_equal(id.version, "pkg 0.3.1");
	assert_string_equal(id.role, "server");
	proc_facts__free(&f);
	end(pid);
	unlink(exe);
	for (size_t i = ARRAY_SIZE(dirs); i-- > 0;) {
		snprintf(path, sizeof(path), "%s/%s", folder, dirs[i]);
		assert_int_equal(rmdir(path), 0);
	}
}

/* ---- no memory ---- */

static void test_proc__oom(void **state)
{
	struct proc_facts f = { 0 };
	struct proc_scan *scan = NULL;
	struct found found = { 0 };
	int err = 0;

	(void)state;
	OOM_LOOP({
		err = proc_read_facts(getpid(), &f);
		assert_true(err == -ENOMEM || err == 0);
		if (!err)
			proc_facts__free(&f);
	});
	assert_int_equal(err, 0);
	OOM_LOOP({
		scan = proc_scan__new();
		err = scan ? proc_scan__read(scan, getpid(), &f) : -ENOMEM;
		assert_true(err == -ENOMEM || err == 0);
		if (!err)
			proc_facts__free(&f);
		proc_scan__free(scan);
	});
	assert_int_equal(err, 0);
	OOM_LOOP({
		err = discover_one(getpid(), &found);
		assert_true(err == -ENOMEM || err == 0);
		if (!err)
			proc_facts__free(&found.facts);
	});
	assert_int_equal(err, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_proc__facts_of_child),
	cmocka_unit_test(test_proc__start_is_stable),
	cmocka_unit_test(test_proc__listens_on_ipv6),
	cmocka_unit_test(test_proc__io_uring),
	cmocka_unit_test(test_proc__deleted_exe),
	cmocka_unit_test(test_proc__replaced_exe),
	cmocka_unit_test(test_proc__stripped_exe),
	cmocka_unit_test(test_proc__no_process),
	cmocka_unit_test(test_proc__of_thread),
	cmocka_unit_test(test_proc__zombie),
	cmocka_unit_test(test_proc__init),
	cmocka_unit_test(test_proc__kernel_thread),
	cmocka_unit_test(test_proc__not_allowed),
	cmocka_unit_test(test_proc__maps),
	cmocka_unit_test(test_proc__moved_map),
	cmocka_unit_test(test_proc__other_namespaces),
	cmocka_unit_test(test_proc__links_stay_inside),
	cmocka_unit_test(test_proc__packages),
	cmocka_unit_test(test_proc__oom),
};

CHILDREN_MAIN(tests)
