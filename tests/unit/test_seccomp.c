/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of several makes, and whether they let the library in. */
#include "unit.h"

#include "source/seccomp.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, what))
#define LOAD_ARG(i) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (i))
#define IF(op, k, yes, no) BPF_JUMP(BPF_JMP | (op) | BPF_K, k, yes, no)
#define RET(action) BPF_STMT(BPF_RET | BPF_K, action)
#define ALLOW RET(SECCOMP_RET_ALLOW)
#define DENY RET(SECCOMP_RET_ERRNO | EPERM)
#define KILL RET(SECCOMP_RET_KILL_PROCESS)

static const struct filter {
	const char *name, *forbids;	/* NULL: lets us in */
	size_t n;
	struct sock_filter v[16];
} filters[] = {
	{ "all", NULL, 1, { ALLOW } },
	{ "all, and logs", NULL, 1, { RET(SECCOMP_RET_LOG) } },
	{ "nothing", "memfd_create", 1, { KILL } },
	{ "an error for all", "memfd_create", 1, { DENY } },
	{ "a supervisor is asked", "futex", 4, { LOAD(nr), IF(BPF_JEQ, SYS_futex, 0, 1), RET(SECCOMP_RET_USER_NOTIF), ALLOW } },
	{ "other architectures are killed", NULL, 4, { LOAD(arch), IF(BPF_JEQ, 0xc000003e, 1, 0), KILL, ALLOW } },
	{ "this one is", "memfd_create", 4, { LOAD(arch), IF(BPF_JEQ, 0xc000003e, 0, 1), KILL, ALLOW } },
	{ "calls of x32 are killed", NULL, 4, { LOAD(nr), IF(BPF_JGE, 0x40000000, 0, 1), KILL, ALLOW } },
	{ "no new namespaces", NULL, 6, { LOAD(nr), IF(BPF_JEQ, SYS_clone, 0, 3), LOAD_ARG(0), IF(BPF_JSET, 0x7e020000, 0, 1),
	  DENY, ALLOW } },
	{ "no threads", "clone", 6, { LOAD(nr), IF(BPF_JEQ, SYS_clone, 0, 3), LOAD_ARG(0), IF(BPF_JSET, 0x00010000, 0, 1),
	  DENY, ALLOW } },
	{ "clone3 is not there", NULL, 4, { LOAD(nr), IF(BPF_JEQ, SYS_clone3, 0, 1), RET(SECCOMP_RET_ERRNO | ENOSYS), ALLOW } },
	{ "clone3 kills", "clone3", 4, { LOAD(nr), IF(BPF_JEQ, SYS_clone3, 0, 1), KILL, ALLOW } },
	{ "no memory that is code", "mmap of code", 6, { LOAD(nr), IF(BPF_JEQ, SYS_mmap, 0, 3), LOAD_ARG(2), IF(BPF_JSET, 4, 0, 1),
	  DENY, ALLOW } },
	{ "asks for an address", "mmap of code", 6, { LOAD(nr), IF(BPF_JEQ, SYS_mmap, 0, 3), LOAD_ARG(0), IF(BPF_JEQ, 0, 1, 0),
	  DENY, ALLOW } },
	{ "asks who calls", "memfd_create", 3, { LOAD(instruction_pointer), IF(BPF_JGT, 0, 0, 0), ALLOW } },
	{ "computes", NULL, 9, { BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, 60),
	  BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_STX, 3), BPF_STMT(BPF_LD | BPF_IMM, 1),
	  BPF_STMT(BPF_LD | BPF_MEM, 3), BPF_STMT(BPF_ALU | BPF_MUL | BPF_X, 0), IF(BPF_JEQ, 16, 0, 1), ALLOW } },
	{ "divides by nothing", "memfd_create", 2, { BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), ALLOW } },
	{ "jumps behind its end", "memfd_create", 2, { BPF_STMT(BPF_JMP | BPF_JA, 7), ALLOW } },
	{ "does not end", "memfd_create", 1, { LOAD(nr) } },
	{ "is of another kind", "memfd_create", 2, { BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), ALLOW } },
	{ "uses a cell that is not there", "memfd_create", 2, { BPF_STMT(BPF_ST, 16), ALLOW } },
};

static void test_filters(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(filters); i++) {
		const char *got = seccomp_forbids(filters[i].v, filters[i].n);

		if ((got != NULL) != (filters[i].forbids != NULL) || (got && strcmp(got, filters[i].forbids)))
			fail_msg("%s: %s, not %s", filters[i].name, got ? got : "lets in",
				 filters[i].forbids ? filters[i].forbids : "lets in");
	}
	assert_non_null(seccomp_forbids(NULL, 0));
}

/* A child with two filters: the first lets all through, the second as it says. */
static int check_child(const struct filter *second, const char **ret_call)
{
	struct sock_filter all = ALLOW;
	struct sock_fprog progs[2] = { { 1, &all }, { second->n, (struct sock_filter *)second->v } };
	int ready[2], status, err;
	pid_t child;
	char c = 0;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (!child) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &progs[0]) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &progs[1]) || write(ready[1], "y", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	err = ptrace(PTRACE_SEIZE, child, NULL, NULL) || ptrace(PTRACE_INTERRUPT, child, NULL, NULL) ? -errno : 0;
	if (!err) {
		waitpid(child, &status, __WALL);
		err = seccomp_check(child, ret_call);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, __WALL);
	close(ready[0]);
	close(ready[1]);
	return err;
}

static void test_filters_of_a_thread(void **state)
{
	static const struct filter no_futex = { "", NULL, 4, { LOAD(nr), IF(BPF_JEQ, SYS_madvise, 0, 1), KILL, ALLOW } };
	const char *call = NULL;
	int err = check_child(&filters[0], &call);

	(void)state;
	if (err == -EACCES || err == -EINVAL || err == -EIO)	/* not allowed, or a kernel that does not give them */
		skip();
	assert_int_equal(err, 0);
	assert_null(call);
	assert_int_equal(check_child(&no_futex, &call), -EPERM);
	assert_string_equal(call, "madvise");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_filters_of_a_thread),
	};

	return cmocka_run_group_tests_name("seccomp", tests, NULL, NULL);
}
