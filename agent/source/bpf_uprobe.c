/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-uprobe links by system call (libbpf knows them from 1.3 on), or perf events by libbpf. */
#include "source/bpf_uprobe.h"
#include <bpf/bpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From <linux/bpf.h> of Linux 6.6; Debian 12 has that of 6.1. */
static const enum bpf_attach_type trace_uprobe_multi = 48;
enum { UPROBE_MULTI_RETURN = 1 };
struct multi_attr {		/* of BPF_LINK_CREATE */
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t n, multi_flags, pid, pad;
};
_Static_assert(sizeof(struct multi_attr) == 64, "ABI of the kernel");

static int multi_link(int prog_fd, pid_t pid, const char *path, const uint64_t *offsets,
		      const uint64_t *cookies, size_t n, bool is_return)
{
	struct multi_attr attr = {
		.prog_fd = prog_fd,
		.attach_type = trace_uprobe_multi,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.n = n,
		.multi_flags = is_return ? UPROBE_MULTI_RETURN : 0,
		.pid = pid,
	};
	int fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : fd;
}

bool bpf_uprobe_has_multi(void)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K },	/* r0 = 0 */
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = trace_uprobe_multi);
	const uint64_t begin = 0;
	int prog, dir, pid;

	prog = bpf_prog_load(BPF_PROG_TYPE_KPROBE, NULL, "GPL", insns, 2, &opts);
	if (prog < 0)
		return false;
	/* A directory cannot be probed: -EBADF, where such links are known. Kernels that take the
	 * pid for that of a process look at it first: -EINVAL. */
	dir = multi_link(prog, 0, "/", &begin, NULL, 1, false);
	pid = multi_link(prog, -1, "/", &begin, NULL, 1, false);
	close(prog);
	return dir == -EBADF && pid == -EINVAL;
}

void bpf_uprobe_prepare(struct bpf_program *prog, bool multi)
{
	if (multi)
		bpf_program__set_expected_attach_type(prog, trace_uprobe_multi);
}

/* By descriptor: names in another mount namespace, or of a deleted file, mean nothing here. */
static void path_of(int fd, char buf[32])
{
	snprintf(buf, 32, "/proc/self/fd/%d", fd);
}

static int attach(struct bpf_program *prog, bool multi, pid_t pid, int fd,
		  const struct bpf_uprobe_place *at, bool is_return, struct bpf_uprobe *ret)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = is_return, .bpf_cookie = at->cookie);
	struct bpf_uprobe u = { .fd = -1 };
	char path[32];

	path_of(fd, path);
	if (multi) {
		u.fd = multi_link(bpf_program__fd(prog), pid, path, &at->offset, &at->cookie, 1,
				  is_return);
		if (u.fd < 0)
			return u.fd;
	} else {
		u.link = bpf_program__attach_uprobe_opts(prog, pid, path, at->offset, &opts);
		if (!u.link)
			return -errno;
	}
	*ret = u;
	return 0;
}

int bpf_uprobe_attach(struct bpf_program *prog, bool multi, pid_t pid, int fd, uint64_t offset,
		      bool is_return, struct bpf_uprobe *ret)
{
	return attach(prog, multi, pid, fd, &(struct bpf_uprobe_place){ .offset = offset },
		      is_return, ret);
}

static int multi_link_all(struct bpf_program *prog, pid_t pid, int fd,
			  const struct bpf_uprobe_place *places, size_t n, bool is_return)
{
	uint64_t *numbers = calloc(2 * n, sizeof(*numbers));
	char path[32];
	int link;

	if (!numbers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		numbers[i] = places[i].offset;
		numbers[n + i] = places[i].cookie;
	}
	path_of(fd, path);
	link = multi_link(bpf_program__fd(prog), pid, path, numbers, numbers + n, n, is_return);
	free(numbers);
	return link;
}

int bpf_uprobe_attach_all(struct bpf_program *prog, bool multi, pid_t pid, int fd,
			  const struct bpf_uprobe_place *places, size_t n, bool is_return,
			  struct bpf_uprobe *ret, size_t *ret_n)
{
	int err = 0;
	int link = multi && n ? multi_link_all(prog, pid, fd, places, n, is_return) : -ENOENT;

	*ret_n = 0;
	if (link >= 0) {
		ret[(*ret_n)++] = (struct bpf_uprobe){ .fd = link };
		return n;
	}
	if (link == -ENOMEM || link == -ESRCH)
		return link;
	for (size_t i = 0; i < n; i++) {
		int one = attach(prog, multi, pid, fd, &places[i], is_return, &ret[*ret_n]);

		if (one)
			err = one;
		else
			++*ret_n;
	}
	return *ret_n ? (int)*ret_n : err;
}

static void *detach_one(void *arg)
{
	struct bpf_uprobe *u = arg;

	if (u->fd >= 0)
		close(u->fd);
	bpf_link__destroy(u->link);
	return NULL;
}

void bpf_uprobe_detach(struct bpf_uprobe *probes, size_t n)
{
	enum { MAX_THREADS = 32 };
	pthread_t threads[MAX_THREADS];
	size_t batch;

	for (size_t done = 0; done < n; done += batch) {
		for (batch = 0; batch < MAX_THREADS && done + batch < n; batch++) {
			if (pthread_create(&threads[batch], NULL, detach_one,
					   &probes[done + batch]))
				break;
		}
		for (size_t i = 0; i < batch; i++)
			pthread_join(threads[i], NULL);
		if (!batch) {
			detach_one(&probes[done]);
			batch = 1;
		}
	}
}
