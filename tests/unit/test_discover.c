/* SPDX-License-Identifier: Apache-2.0 */
/* discover: which processes are engines, and which of them form one server. */
#include "children.h"

#include "source/discover.h"
#include "source/proc.h"
#include <time.h>

static const struct found *find(const struct discovery *d, pid_t pid)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->found[i].facts.pid == (uint32_t)pid)
			return &d->found[i];
	}
	return NULL;
}

/* Until it runs another program, a child that was forked is one of ours. */
static void wait_until_it_runs(pid_t pid, const char *exe)
{
	char link[64], runs[512];
	ssize_t n = 0;

	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	for (int i = 0; i < 10000; i++) {
		n = readlink(link, runs, sizeof(runs) - 1);
		if (n > 0 && strncmp(runs, exe, (size_t)n) == 0)
			return;
		usleep(1000);
	}
	fail_msg("%s does not run", exe);
}

static void test_discover__finds_children(void **state)
{
	const char *exe = copy_file("/bin/sleep", "ollama");
	uint32_t port;
	pid_t a = spawn(NULL, "a", LISTEN, &port), b = spawn(NULL, "b", PLAIN, NULL), ollama;
	struct discovery d;
	const struct found *f;

	(void)state;
	ollama = fork();
	if (ollama == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(exe, "ollama", "infinity", NULL);
		_exit(1);
	}
	wait_until_it_runs(ollama, exe);
	assert_int_equal(discover(&d), 0);
	assert_true(d.n >= 3);		/* this program is one as well */
	f = find(&d, a);
	assert_non_null(f);
	assert_string_equal(f->id.role, "server");
	assert_int_equal(f->facts.n_ports, 1);
	assert_int_equal(f->facts.ports[0], port);
	assert_int_equal(f->server, getpid());	/* its parent embeds the same engine */
	f = find(&d, b);
	assert_non_null(f);
	assert_string_equal(f->id.role, "library");
	assert_null(find(&d, ollama));		/* its name alone is not enough */
	for (size_t i = 1; i < d.n; i++)
		assert_true(d.found[i].server >= d.found[i - 1].server);
	discovery__free(&d);
	end(a);
	end(b);
	end(ollama);
	unlink(exe);
}

/* What was old and no engine is not looked into again: a minute later it is. */
static void test_discover__again(void **state)
{
	static const uint64_t s = 1000000000;
	struct discover_past *p = discover_past__new();
	struct discovery d;
	struct timespec ts;
	uint64_t now;

	(void)state;
	assert_non_null(p);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (uint64_t)ts.tv_sec * s;
	assert_int_equal(discover_again(p, now, &d), 0);
	assert_int_equal(d.n_skipped, 0);
	discovery__free(&d);
	/* all that is here now is old then */
	assert_int_equal(discover_again(p, now + 1000 * s, &d), 0);
	discovery__free(&d);
	assert_int_equal(discover_again(p, now + 1001 * s, &d), 0);
	assert_true(d.n_skipped > 0);
	assert_true(d.n_skipped < d.n_processes);
	assert_non_null(find(&d, getpid()));	/* this program is an engine */
	discovery__free(&d);
	assert_int_equal(discover_again(p, now + 1100 * s, &d), 0);
	assert_int_equal(d.n_skipped, 0);
	discovery__free(&d);
	discover_past__free(p);
}

/* An Ollama, played by a shell of that name, that runs a llama-server. */
static void test_discover__run_by_ollama(void **state)
{
	const char *shell = copy_file("/bin/sh", "ollama");
	char command[400], self[256] = "";
	struct discovery d;
	struct found one;
	const struct found *f = NULL;
	pid_t pid;

	(void)state;
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(command, sizeof(command), "%s/serve", folder);
	pid = open(command, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	assert_true(pid >= 0);
	dprintf(pid, "'%s' --child 0 1 > /dev/null & wait\n", self);
	close(pid);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (chdir(folder))
			_exit(1);
		setpgid(0, 0);
		execl(shell, "ollama", "serve", NULL);
		_exit(1);
	}
	for (int i = 0; i < 1000 && !f; i++) {	/* until the shell has started it */
		assert_int_equal(discover(&d), 0);
		for (size_t k = 0; k < d.n; k++) {
			if (d.found[k].facts.ppid == (uint32_t)pid)
				f = &d.found[k];
		}
		if (!f) {
			discovery__free(&d);
			usleep(10000);
		}
	}
	assert_non_null(f);
	assert_int_equal(f->id.engine, TL_ENGINE_LLAMA);
	assert_int_equal(f->ollama, pid);
	assert_int_equal(f->server, pid);
	assert_string_equal(find(&d, pid)->id.role, "front");
	assert_int_equal(discover_one(f->facts.pid, &one), 0);
	assert_int_equal(one.ollama, pid);
	assert_int_equal(one.server, pid);
	proc_facts__free(&one.facts);
	discovery__free(&d);
	kill(-pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	unlink(shell);
	unlink(command);
}

static void test_discover__one_no_engine(void **state)
{
	struct found f;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/bin/sleep", "sleep", "infinity", NULL);
		_exit(1);
	}
	do {
		assert_int_equal(discover_one(pid, &f),
				 0); /* our copy, until it has called execl */
		proc_facts__free(&f.facts);
	} while (strcmp(f.facts.comm, "sleep") && f.id.engine);
	assert_int_equal(f.id.engine, TL_ENGINE_UNKNOWN);
	assert_int_equal(f.server, pid);
	end(pid);
}

static void test_discover__oom(void **state)
{
	struct discovery d;
	int err = 0;
	bool hit = true;

	(void)state;
	/* some per process of the host: not each of them */
	for (long n = 0; hit; n += n / 8 + 1) {
		struct discover_past *p;

		oom_after(n);
		p = discover_past__new();
		err = p ? discover_again(p, UINT64_MAX / 2, &d) : -ENOMEM;
		hit = oom_hit();
		discover_past__free(p);
		assert_true(err == -ENOMEM || err == 0);
		if (!err)
			discovery__free(&d);
	}
	assert_int_equal(err, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_discover__finds_children),
	cmocka_unit_test(test_discover__again),
	cmocka_unit_test(test_discover__run_by_ollama),
	cmocka_unit_test(test_discover__one_no_engine),
	cmocka_unit_test(test_discover__oom),
};

CHILDREN_MAIN(tests)
