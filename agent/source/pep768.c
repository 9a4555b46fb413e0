/* SPDX-License-Identifier: Apache-2.0 */
/* Has the Python of a target load the library: asks, waits for the script to
 * come, hands it what it needs. */
#include "source/pep768.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "source/inject_priv.h"
#include "source/now.h"
#include "source/pep768_priv.h"

enum {
	TICK_MS = 50, LIMIT_MS = 2000,
	GRACE_MS = 300,		/* between taking the request and opening the script */
	N_BUSY_TRIES = 5, BUSY_PAUSE_MS = 50,
};

/* What goes to and fro in one try. */
struct visit {
	const struct inject_target *t;
	const struct inject_opts *o;
	struct inject_result *r;
	int library;		/* -1: it is there already */
	char why[96];
};

static void tick(const struct visit *v)
{
	if (v->o->tick)
		v->o->tick(v->o->tick_ctx);
}

static uint64_t now_ms(void)
{
	return monotonic_ns() / NS_PER_MS;
}

static bool lives(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	return !access(path, F_OK);
}

/* ---- while the script is on its way ---- */

static int await_for(const struct visit *v, struct pep768_hand *h, uint32_t limit_ms)
{
	uint64_t until = now_ms() + limit_ms;
	int fd;

	do {
		tick(v);
		fd = pep768_hand__await(h, TICK_MS);
		if (fd == -EAGAIN && !lives(v->t->pid))
			return -ESRCH;
	} while (fd == -EAGAIN && now_ms() < until);
	return fd;
}

/* A connection to the script; else nothing of the request is left. */
static int await(struct visit *v, const struct pep768_python *p, struct pep768_hand *h)
{
	int fd = await_for(v, h, LIMIT_MS), was_waiting;

	if (fd != -EAGAIN)
		return fd;
	was_waiting = pep768_python__take_back(p);
	/* It may have been taken in that moment, and then the script must still be
	 * there; and it comes to us. */
	fd = await_for(v, h, GRACE_MS);
	if (fd != -EAGAIN)
		return fd;
	if (was_waiting == 1) {
		snprintf(v->why, sizeof(v->why),
			 "its main thread has not come to run Python code in 2 s");
		return -EAGAIN;
	}
	/* An audit hook forbids it: each try would be told by the process. */
	snprintf(v->why, sizeof(v->why), "its Python has not run the script that it took");
	return -EPERM;
}

static int await_result(const struct visit *v, int connection, int *ret)
{
	uint64_t until = now_ms() + LIMIT_MS, ns = 0;
	int err;

	do {
		tick(v);
		err = pep768_hand__result(connection, TICK_MS, ret, &ns);
	} while (err == -EAGAIN && now_ms() < until);
	v->r->stopped_ns += ns;
	v->r->longest_ns = ns > v->r->longest_ns ? ns : v->r->longest_ns;
	return err == -EAGAIN ? -ETIMEDOUT : err;
}

/* ---- the whole ---- */

static int copy_library(int from)
{
	int to = memfd_create("libtokenlag.so-given", MFD_CLOEXEC), err = 0;
	struct stat st;
	off_t at = 0;

	if (to < 0)
		return -errno;
	if (fstat(from, &st))
		err = -errno;
	while (!err && at < st.st_size) {
		ssize_t n = sendfile(to, from, &at, st.st_size - at);

		err = n < 0 ? -errno : n ? 0 : -EIO;
	}
	if (!err)
		return to;
	close(to);
	return err;
}

static int make_ring(const struct inject_opts *o)
{
	int fd = memfd_create("tokenlag-ring-given", MFD_CLOEXEC | MFD_ALLOW_SEALING), err;

	if (fd < 0)
		return -errno;
	err = o->prepare(o->ctx, fd);
	if (!err)
		return fd;
	close(fd);
	return err;
}

/* *ret: what tokenlag_start returned. */
static int try_once(struct visit *v, const struct pep768_python *p, int *ret)
{
	struct pep768_hand h;
	int fd, err = pep768_hand__open(v->t->pid, &h, v->why);

	if (err)
		return err;
	err = pep768_python__ask(p, h.script);
	if (err == -EBUSY)
		snprintf(v->why, sizeof(v->why), "somebody else's script waits in its Python");
	if (!err) {
		fd = await(v, p, &h);
		err = fd < 0 ? fd : pep768_hand__give(fd, v->t->start, v->r->memfd, v->library);
		err = err ? err : await_result(v, fd, ret);
		if (fd >= 0)
			close(fd);
		pep768_python__forget_path(p);
	}
	pep768_hand__close(&h);
	return err;
}

static void drop_ring(struct inject_result *r)
{
	if (r->memfd >= 0)
		close(r->memfd);
	r->memfd = -1;
}

/* A library that was just told to leave takes a moment to be free for the next. */
static int bring(struct visit *v, const struct pep768_python *p)
{
	int err = 0, result = -EBUSY;

	for (int i = 0; i < N_BUSY_TRIES && !err && result == -EBUSY; i++) {
		if (i)
			nanosleep(&(struct timespec){ 0, BUSY_PAUSE_MS * 1000000 }, NULL);
		drop_ring(v->r);
		v->r->memfd = make_ring(v->o);
		err = v->r->memfd < 0 ? v->r->memfd : try_once(v, p, &result);
	}
	return err ? err : result;
}

static void explain(struct visit *v, int err)
{
	const char *what = NULL;

	if (*v->why)
		return;
	if (err == -ENOSYS)
		what = "has no _ctypes";
	else if (err == -ELIBACC)
		what = "does not load the library";
	else if (err == -EBUSY)
		what = "has the library at work for another agent; if that has ended, try again in 2 s";
	else if (err == -ETIMEDOUT)
		what = "has not finished loading the library in 2 s";
	else if (err == -EPIPE)
		what = "has not waited for what the script needs";
	else if (err == -ESRCH)
		what = "has ended";
	if (what)
		snprintf(v->why, sizeof(v->why), "its Python %s", what);
	else
		snprintf(v->why, sizeof(v->why), "its Python cannot be asked to (%s)",
			 strerror(-err));
}

static int look(pid_t pid, int library, struct inject_target *ret_t, struct pep768_python *ret_p,
		char why[96])
{
	char unused[160] = "";
	int err = inject_target__open(pid, library, INJECT_BY_SCRIPT, ret_t, unused);

	/* What it is refused for here, it was refused for before. */
	if (err)
		return err == -ESRCH ? err : -ENOENT;
	err = pep768_python__find(pid, ret_t->mem, ret_p, why);
	if (!err && inject_has_seccomp(pid)) {
		snprintf(why, 96, "no script is given to a Python under seccomp");
		err = -EPERM;
	}
	err = err ? err : pep768_hand__check(pid, why);
	if (err)
		inject_target__close(ret_t);
	return err;
}

int pep768_check(pid_t pid, const char *path, char why[96])
{
	int library = inject_open_library(path), err;
	struct pep768_python p;
	struct inject_target t;

	*why = 0;
	if (library < 0)
		return -ENOENT;
	err = look(pid, library, &t, &p, why);
	if (!err)
		inject_target__close(&t);
	close(library);
	return err;
}

int pep768_enter(pid_t pid, const struct inject_opts *opts, struct inject_result *ret)
{
	struct inject_target t;
	struct pep768_python p;
	struct visit v = { .t = &t, .o = opts, .r = ret, .library = -1 };
	int library = inject_open_library(opts->library), nice, err;

	*ret = (struct inject_result){ .memfd = -1 };
	if (library < 0)
		return -ENOENT;
	err = look(pid, library, &t, &p, v.why);
	if (!err) {
		if (!t.start)
			v.library = copy_library(library);
		nice = getpriority(PRIO_PROCESS, 0);
		setpriority(PRIO_PROCESS, 0, -20);	/* the script waits for nobody but us */
		err = !t.start && v.library < 0 ? v.library : bring(&v, &p);
		setpriority(PRIO_PROCESS, 0, nice);
		if (v.library >= 0)
			close(v.library);
		inject_target__close(&t);
	}
	close(library);
	if (err) {
		drop_ring(ret);
		if (err != -ENOENT)
			explain(&v, err);
		snprintf(ret->why, sizeof(ret->why), "%s", v.why);
	}
	return err == -EPIPE ? -EAGAIN : err;
}
