/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of proc and discover: processes to look at. A program that includes this passes for a
 * llama.cpp server: it defines llama_decode, and runs itself anew as a child in several roles. */
#ifndef TL_CHILDREN_H
#define TL_CHILDREN_H

#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int llama_decode(int x);
extern int LLAMA_BUILD_NUMBER;

__attribute__((noinline)) int llama_decode(int x)
{
	return x + LLAMA_BUILD_NUMBER;
}
int LLAMA_BUILD_NUMBER = 4711;

/* What the child does before it waits for its end. */
enum role { PLAIN, LISTEN, LISTEN6, URING };

static void child_role(enum role role, int ready)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct sockaddr *addr = role == LISTEN6 ? (void *)&six : (void *)&four;
	socklen_t len = role == LISTEN6 ? sizeof(six) : sizeof(four);
	struct io_uring_params params = { 0 };
	uint32_t port = 0;
	int fd;

	if (role == LISTEN || role == LISTEN6) {
		fd = socket(addr->sa_family, SOCK_STREAM, 0);
		if (fd < 0 || bind(fd, addr, len) || listen(fd, 8) || getsockname(fd, addr, &len))
			_exit(1);
		port = ntohs(role == LISTEN6 ? six.sin6_port : four.sin_port);
	} else if (role == URING) {
		port = syscall(SYS_io_uring_setup, 4, &params) < 0 ? errno : 0;
	}
	fd = open("/mnt/libcuda.so.1", O_RDONLY);	/* only in spawn_contained() */
	if (fd >= 0 && mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		_exit(1);
	if (write(ready, &port, sizeof(port)) != sizeof(port))
		_exit(1);
	for (;;)
		pause();
}

/* exe NULL: our own. argv[0] is name. Returns when the child is ready; *ret_port as it says. */
static pid_t spawn(const char *exe, const char *name, enum role role, uint32_t *ret_port)
{
	char fd_text[16], role_text[16];
	char *argv[] = { (char *)name, "--child", role_text, fd_text, NULL };
	int fds[2];
	uint32_t port;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(fds[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(role_text, sizeof(role_text), "%d", role);
		snprintf(fd_text, sizeof(fd_text), "%d", fds[1]);
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
		execv(exe ? exe : "/proc/self/exe", argv);
		_exit(1);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &port, sizeof(port)), sizeof(port));
	close(fds[0]);
	if (ret_port)
		*ret_port = port;
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/tokenlag-test.XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
	(void)state;
	return rmdir(folder);
}

/* A copy of a file in our temporary folder. */
static const char *copy_file(const char *from, const char *name)
{
	static char path[128];
	char buf[65536];
	ssize_t n;
	int in = open(from, O_RDONLY | O_CLOEXEC), out;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		assert_int_equal(write(out, buf, n), n);
	close(in);
	close(out);
	return path;
}

/* The main() of such a program. */
#define CHILDREN_MAIN(tests)								\
	int main(int argc, char **argv)							\
	{										\
		if (argc == 4 && !strcmp(argv[1], "--child"))				\
			child_role(atoi(argv[2]), atoi(argv[3]));			\
		return cmocka_run_group_tests(tests, make_folder, drop_folder) +	\
		       (llama_decode(0) != LLAMA_BUILD_NUMBER);				\
	}

#endif
