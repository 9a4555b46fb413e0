/* SPDX-License-Identifier: Apache-2.0 */
/* Stops a thread of the target where that does no harm, and has it load the library. */
#include "source/inject_priv.h"
#include "source/now.h"
#include "source/seccomp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	N_BUSY_TRIES = 5, MAX_LEFT = 8,	/* killed agents whose descriptors are closed at a time */
	N_TRIES = 20, MAX_BUSY = 8,	/* threads that run, looked at in one try */
	STACK_ROOM = 256 * 1024,	/* that a thread must have left */
};
static const uint64_t stop_limit_ns = 10 * NS_PER_MS;	/* behind this a stopped thread
							 * is let go, untouched */
static const uint64_t visit_limit_ns = 2000 * NS_PER_MS, busy_limit_ns = 50 * NS_PER_MS;

static void pause_us(uint32_t us)
{
	nanosleep(&(struct timespec){ 0, us * 1000 }, NULL);
}

/* ---- one thread ---- */

/* Of a thread that is not running: 0, or -EAGAIN. */
static int read_call(pid_t pid, pid_t tid, struct inject_call *ret)
{
	struct inject_call c;
	char path[64];
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return -EAGAIN;
	n = fscanf(f, "%ld %lx %lx %lx %lx %lx %lx %lx %lx", &c.nr, &c.args[0], &c.args[1], &c.args[2], &c.args[3],
		   &c.args[4], &c.args[5], &c.sp, &c.pc);
	fclose(f);
	if (n != 9)
		return -EAGAIN;
	*ret = c;
	return 0;
}

static bool has_room(pid_t pid, uint64_t sp)
{
	unsigned long start, end;
	char path[64], *line = NULL;
	size_t size = 0;
	bool ok = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (getline(&line, &size, f) > 0) {
		if (sscanf(line, "%lx-%lx", &start, &end) != 2 || sp < start || sp >= end)
			continue;
		/* The main thread's grows by itself. What it has at first is
		 * enough for what we note there. */
		ok = sp - start >= (strstr(line, "[stack]") ? 80 * 1024 : STACK_ROOM);
		break;
	}
	free(line);
	fclose(f);
	return ok;
}

static bool is_good(const struct inject_target *t, const struct inject_call *c)
{
	return inject_arch__harmless(c) && !(c->pc >= t->ld_start && c->pc < t->ld_end) && has_room(t->pid, c->sp);
}

struct thread_state {
	bool signalled;		/* a signal waits for it, to end its
				 * call: not to be hidden from it */
	int seccomp;		/* mode */
};
static int read_state(pid_t pid, pid_t tid, struct thread_state *ret)
{
	uint64_t pending = 0, shared = 0, blocked = 0;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	f = fopen(path, "re");
	if (!f)
		return -EAGAIN;
	ret->seccomp = 0;
	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "SigPnd: %lx", &pending);
		sscanf(line, "ShdPnd: %lx", &shared);
		sscanf(line, "SigBlk: %lx", &blocked);
		sscanf(line, "Seccomp: %d", &ret->seccomp);
	}
	fclose(f);
	ret->signalled = (pending | shared) & ~blocked;
	return 0;
}

bool inject_has_seccomp(pid_t pid)
{
	struct thread_state s;

	return read_state(pid, pid, &s) || s.seccomp;
}

/* May the thread, which is stopped, be sent? 0; -EAGAIN: not now; -EPERM: its filters forbid it. */
static int may_be_sent(pid_t pid, pid_t tid, struct inject_visit *v)
{
	struct thread_state s;
	const char *call = NULL;
	int err = read_state(pid, tid, &s);

	if (err || s.signalled)
		return -EAGAIN;
	if (s.seccomp == SECCOMP_MODE_DISABLED)
		return 0;
	err = s.seccomp == SECCOMP_MODE_FILTER ? seccomp_check(tid, &call) : -EPERM;
	if (call)
		snprintf(v->why, sizeof(v->why), "runs under seccomp, whose filter does not allow %s", call);
	else if (err)
		snprintf(v->why, sizeof(v->why), "runs under seccomp, and its filters cannot be read (%s)",
			 err == -EACCES ? "that needs CAP_SYS_ADMIN" : strerror(-err));
	return err ? -EPERM : 0;
}

/* Waits until it stops. 1: at the begin or end of a call; 2: because we asked; 0: for a signal,
 * which it was given; -ETIMEDOUT, -ESRCH. */
static int wait_stop(pid_t tid, uint64_t until_ns)
{
	int status, n;

	while ((n = waitpid(tid, &status, __WALL | WNOHANG)) == 0) {
		if (monotonic_ns() > until_ns)
			return -ETIMEDOUT;
		pause_us(20);
	}
	if (n < 0 || !WIFSTOPPED(status))
		return -ESRCH;
	if (status >> 16 == PTRACE_EVENT_STOP)
		return WSTOPSIG(status) == SIGTRAP ? 2 : -EAGAIN;
	if (WSTOPSIG(status) == (SIGTRAP | 0x80))
		return 1;
	ptrace(PTRACE_CONT, tid, NULL, WSTOPSIG(status));
	return 0;
}

static int stop(pid_t tid, uint64_t limit_ns)
{
	uint64_t until = monotonic_ns() + limit_ns;
	int n;

	if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL))
		return -errno;
	do {
		n = wait_stop(tid, until);
		if (n == 1)
			ptrace(PTRACE_CONT, tid, NULL, NULL);
	} while (n == 0 || n == 1);
	return n < 0 ? n : 0;
}

static void let_go(pid_t tid, const struct user_regs_struct *regs)
{
	struct user_regs_struct r = *regs;

	inject_arch__repair(tid, &r);
	ptrace(PTRACE_DETACH, tid, NULL, NULL);
}

/* A thread that runs is watched until it makes a harmless call. Stopped at the begin of one: 0. */
static int reach_call(const struct inject_target *t, pid_t tid, struct user_regs_struct *regs, uint64_t *ret_since_ns)
{
	uint64_t until = monotonic_ns() + busy_limit_ns;
	struct inject_call c;
	bool entry = false;
	int n;

	for (;;) {
		if (ptrace(PTRACE_SYSCALL, tid, NULL, NULL))
			return -errno;
		n = wait_stop(tid, until);
		if (n == -ETIMEDOUT) {
			n = stop(tid, visit_limit_ns);
			if (!n)
				ptrace(PTRACE_GETREGS, tid, NULL, regs);
			return n ? n : -EAGAIN;
		}
		if (n < 0)
			return n;
		*ret_since_ns = monotonic_ns();
		if (n != 1)
			continue;
		entry = !entry;
		if (ptrace(PTRACE_GETREGS, tid, NULL, regs))
			return -errno;
		if (entry && inject_arch__at_call(regs, true, &c) && is_good(t, &c))
			return 0;
	}
}

/* Sends the thread to do what `v` says. 0: it is on its way; -EAGAIN: not this
 * one, and it is as it was. */
static int divert(const struct inject_target *t, pid_t tid, bool busy, struct inject_visit *v, uint64_t *ret_since_ns)
{
	struct user_regs_struct regs;
	struct inject_call c;
	bool entry = false;
	int err;

	if (ptrace(PTRACE_SEIZE, tid, NULL, PTRACE_O_TRACESYSGOOD))
		return errno == EPERM ? -EPERM : -EAGAIN;
	*ret_since_ns = monotonic_ns();
	err = stop(tid, visit_limit_ns);
	if (err || ptrace(PTRACE_GETREGS, tid, NULL, &regs)) {
		ptrace(PTRACE_DETACH, tid, NULL, NULL);
		return -EAGAIN;
	}
	err = inject_arch__at_call(&regs, false, &c) && is_good(t, &c) ? 0 : -EAGAIN;
	if (err && busy && (int64_t)regs.orig_rax < 0) {
		err = reach_call(t, tid, &regs, ret_since_ns);
		entry = !err;
	}
	if (!err)
		err = monotonic_ns() - *ret_since_ns > stop_limit_ns ? -EAGAIN : may_be_sent(t->pid, tid, v);
	if (!err)
		err = inject_arch__divert(t, tid, &regs, entry, v);
	if (err) {
		let_go(tid, &regs);
		return err;
	}
	ptrace(PTRACE_DETACH, tid, NULL, NULL);
	return 0;
}

/* ---- all of them ---- */

/* Until the thread has done it. */
static int await(const struct inject_target *t, const struct inject_visit *v, int *ret)
{
	uint64_t until = monotonic_ns() + visit_limit_ns;

	while (!inject_arch__done(t, v, ret)) {
		if (monotonic_ns() > until)
			return -ETIMEDOUT;
		pause_us(20);
	}
	return 0;
}

static bool in_cave(const struct inject_target *t, uint64_t pc)
{
	return pc >= t->cave && pc < t->cave + t->cave_bytes;
}

/* Puts back what was in the page, as soon as the thread is seen to be elsewhere. */
static int clean(const struct inject_target *t, pid_t tid)
{
	static const uint8_t zeros[1024];
	struct user_regs_struct regs;
	struct inject_call c;
	bool out = false;

	for (int i = 0; i < 50 && !out; i++) {
		out = !read_call(t->pid, tid, &c) && !in_cave(t, c.pc);
		if (!out)
			pause_us(100);
	}
	for (int i = 0; i < 50 && !out; i++) {
		if (ptrace(PTRACE_SEIZE, tid, NULL, PTRACE_O_TRACESYSGOOD)) {
			out = errno == ESRCH;	/* the thread has ended */
			break;
		}
		if (stop(tid, visit_limit_ns) || ptrace(PTRACE_GETREGS, tid, NULL, &regs)) {
			ptrace(PTRACE_DETACH, tid, NULL, NULL);
			continue;
		}
		out = !in_cave(t, regs.rip);
		let_go(tid, &regs);
		pause_us(200);
	}
	if (!out)
		return -EBUSY;
	return pwrite(t->mem, zeros, t->cave_bytes, t->cave) == (ssize_t)t->cave_bytes ? 0 : -EPERM;
}

static void account(struct inject_result *r, uint64_t since_ns)
{
	uint64_t ns = monotonic_ns() - since_ns;

	r->n_stops++;
	r->stopped_ns += ns;
	r->longest_ns = ns > r->longest_ns ? ns : r->longest_ns;
}

/* Tries the threads of the target, those that wait first. */
static int try_threads(const struct inject_target *t, struct inject_visit *v, struct inject_result *r, int *ret)
{
	char path[64];
	int err = -EAGAIN, n_busy;
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", t->pid);
	for (int i = 0; i < N_TRIES && err == -EAGAIN; i++) {
		bool busy = i % 2;

		dir = opendir(path);
		if (!dir)
			return -ESRCH;
		n_busy = 0;
		while (err == -EAGAIN && (d = readdir(dir))) {
			pid_t tid = atoi(d->d_name);
			struct inject_call c;
			uint64_t since_ns = 0;

			if (tid <= 0)
				continue;
			if (v->opts->tick)
				v->opts->tick(v->opts->tick_ctx);
			if (!read_call(t->pid, tid, &c) ? !is_good(t, &c) : !busy || n_busy++ >= MAX_BUSY)
				continue;
			err = divert(t, tid, busy, v, &since_ns);
			if (err == -EPERM && *v->why)
				snprintf(r->why, sizeof(r->why), "process %d %s", t->pid, v->why);
			if (!err) {
				err = await(t, v, ret);
				account(r, since_ns);
				if (!err)
					err = clean(t, tid);
				if (err == -EAGAIN)
					err = -EBUSY;
			}
		}
		closedir(dir);
		if (err == -EAGAIN)
			pause_us(2000);
	}
	return err;
}

/* While a thread stands still, it waits for nobody but us. */
static int visit(const struct inject_target *t, struct inject_visit *v, struct inject_result *r, int *ret)
{
	int nice = getpriority(PRIO_PROCESS, 0), err;

	setpriority(PRIO_PROCESS, 0, -20);
	err = try_threads(t, v, r, ret);
	setpriority(PRIO_PROCESS, 0, nice);
	return err;
}

/* ---- descriptors ---- */

/* As the kernel calls those that the target has made for us. */
static const char ring_link[] = "/memfd:tokenlag-ring (deleted)";
static const char library_link[] = "/memfd:libtokenlag.so (deleted)";

/* Made in the target just now: by its name; the newest, if others were left behind. */
static int find_memfd(pid_t pid, const char *name)
{
	char path[64], link[128];
	struct dirent *d;
	int fd = -1;
	ssize_t n;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return -1;
	while ((d = readdir(dir))) {
		n = readlinkat(dirfd(dir), d->d_name, link, sizeof(link) - 1);
		link[n < 0 ? 0 : n] = 0;
		if (!strcmp(link, name) && atoi(d->d_name) > fd)
			fd = atoi(d->d_name);
	}
	closedir(dir);
	return fd;
}

static int take_fd(pid_t pid, int fd)
{
	int pidfd = syscall(SYS_pidfd_open, pid, 0), got;

	if (pidfd < 0)
		return -errno;
	got = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	if (got < 0)
		got = -errno;
	else
		fcntl(got, F_SETFD, FD_CLOEXEC);
	close(pidfd);
	return got;
}

static int fill_library(pid_t pid, int fd, int library)
{
	struct stat st;
	off_t at = 0;
	int to = take_fd(pid, fd), err = 0;

	if (to < 0)
		return to;
	if (fstat(library, &st))
		err = -errno;
	while (!err && at < st.st_size) {
		ssize_t n = sendfile(to, library, &at, st.st_size - at);

		err = n < 0 ? -errno : n ? 0 : -EIO;
	}
	close(to);
	return err;
}

int inject_open_library(const char *path)
{
	static const char *const places[] = { "libtokenlag.so", "../lib/tokenlag/libtokenlag.so" };
	char self[4096], full[4200];
	int fd = -1;
	ssize_t n;

	if (path) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0)
		return -errno;
	self[n] = 0;
	*(strrchr(self, '/') + 1) = 0;
	for (size_t i = 0; fd < 0 && i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(full, sizeof(full), "%s%s", self, places[i]);
		fd = open(full, O_RDONLY | O_CLOEXEC);
	}
	return fd < 0 ? -errno : fd;
}

/* ---- the whole ---- */

/* Two visits: memfds are made, and once they are filled, taken. *ret_busy: the library serves
 * another ring. */
static int bring_once(const struct inject_target *t, int library, const struct inject_opts *o,
		      struct inject_result *r, bool *ret_busy)
{
	struct inject_visit v = { .what = INJECT_MEMFDS, .library = -1, .ring = -1, .opts = o };
	int err, result = 0;

	err = visit(t, &v, r, &result);
	if (err || result)
		return err ? err : inject_target__explain(t, result, r->why);
	v.what = INJECT_LOAD;
	v.ring = find_memfd(t->pid, ring_link);
	v.library = t->start ? -1 : find_memfd(t->pid, library_link);
	if (v.ring < 0 || (!t->start && v.library < 0))
		return -EBADF;
	if (!t->start)
		err = fill_library(t->pid, v.library, library);
	r->memfd = err ? err : take_fd(t->pid, v.ring);
	if (r->memfd < 0)
		err = r->memfd;
	if (!err)
		err = o->prepare(o->ctx, r->memfd);
	if (err) {
		snprintf(r->why, sizeof(r->why), "process %d cannot be given a ring and a library: %s",
			 t->pid, strerror(-err));
		v.what = INJECT_CLOSE;
		visit(t, &v, r, &result);
		return err;
	}
	err = visit(t, &v, r, &result);
	*ret_busy = !err && result == -EBUSY;
	if (!err && result && !*ret_busy)
		err = inject_target__explain(t, result, r->why);
	return err ? err : result;
}

/* By agents that were killed between two visits. Nobody uses them: whoever enters has a lock,
 * and no code of ours runs. */
static int close_left(const struct inject_target *t, const struct inject_opts *o,
		      struct inject_result *r)
{
	struct inject_visit v = { .what = INJECT_CLOSE, .opts = o };
	int err = 0, unused;

	for (int i = 0; i < MAX_LEFT && !err; i++) {
		v.ring = find_memfd(t->pid, ring_link);
		v.library = find_memfd(t->pid, library_link);
		if (v.ring < 0 && v.library < 0)
			break;
		err = visit(t, &v, r, &unused);
	}
	return err;
}

static void drop_memfd(struct inject_result *r)
{
	if (r->memfd >= 0)
		close(r->memfd);
	r->memfd = -1;
}

/* What a process that did not load the library lacks. */
static const char *lacks(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/root/proc/stat", pid);
	return access(path, F_OK) ? "has no /proc, by which it would load the library" : "does not load the library";
}

static void explain(struct inject_result *r, pid_t pid, int err)
{
	const char *what = NULL;

	if (r->why[0])
		return;
	if (err == -EAGAIN)
		what = "has no thread that waits in a harmless system call";
	else if (err == -EPERM)
		what = "may not be traced, or may not make a memfd";
	else if (err == -ELIBACC)
		what = lacks(pid);
	else if (err == -ETIMEDOUT)
		what = "has not finished loading the library in 2 s";
	else if (err == -EBUSY)
		what = "has the library at work for another agent; if that has ended, try again in 2 s";
	else if (err == -ESRCH)
		what = "has ended";
	if (what)
		snprintf(r->why, sizeof(r->why), "process %d %s", pid, what);
	else
		snprintf(r->why, sizeof(r->why), "process %d cannot be entered: %s", pid,
			 strerror(-err));
}

int inject_check(pid_t pid, const char *path, char why[160])
{
	int library = inject_open_library(path), err;
	struct thread_state s;
	struct inject_target t;

	why[0] = 0;
	if (library < 0) {
		snprintf(why, 160, "libtokenlag.so: %s", strerror(-library));
		return library;
	}
	err = inject_target__open(pid, library, INJECT_BY_PTRACE, &t, why);
	if (!err)
		inject_target__close(&t);
	if (!err && !read_state(pid, pid, &s) && s.seccomp)
		snprintf(why, 160, "it has a seccomp filter, which is read when it is entered");
	close(library);
	return err;
}

int inject(pid_t pid, const struct inject_opts *opts, struct inject_result *ret)
{
	struct inject_target t;
	int library, err;

	*ret = (struct inject_result){ .memfd = -1 };
	library = inject_open_library(opts->library);
	if (library < 0) {
		snprintf(ret->why, sizeof(ret->why), "libtokenlag.so: %s", strerror(-library));
		return library;
	}
	err = inject_target__open(pid, library, INJECT_BY_PTRACE, &t, ret->why);
	if (!err) {
		bool busy = true;

		err = close_left(&t, opts, ret);
		/* One that was just told to leave takes a moment to be free for the next. */
		for (int i = 0; i < N_BUSY_TRIES && busy && !err; i++) {
			if (i) {
				drop_memfd(ret);
				pause_us(50000);
			}
			busy = false;
			err = bring_once(&t, library, opts, ret, &busy);
		}
		inject_target__close(&t);
	}
	close(library);
	if (err) {
		explain(ret, pid, err);
		drop_memfd(ret);
	}
	return err;
}
