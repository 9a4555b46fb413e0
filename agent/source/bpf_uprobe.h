/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching BPF programs to functions of a process, in the fastest way that this kernel has. */
#ifndef TL_SOURCE_BPF_UPROBE_H
#define TL_SOURCE_BPF_UPROBE_H

#include <bpf/libbpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One attached probe: a multi link (an fd), or a perf event. */
struct bpf_uprobe {
	int fd;			/* -1: not a multi link */
	struct bpf_link *link;
};

/* Does the kernel have multi-uprobe links (6.6) that know processes from threads
 * (6.10, backported)? They are made and closed in a fraction of the time of perf
 * events, and without a global lock. */
bool bpf_uprobe_has_multi(void);

/* Has to be said of a program before it is loaded, and holds for all its probes. */
void bpf_uprobe_prepare(struct bpf_program *prog, bool multi);

/* `fd`: the file, `offset`: in it. Returns 0 or -errno. */
int bpf_uprobe_attach(struct bpf_program *prog, bool multi, pid_t pid, int fd, uint64_t offset,
		      bool is_return, struct bpf_uprobe *ret);

/* Several places of one file at once; the program gets the cookie of each (Linux 5.15). `ret` has
 * room for n probes, of which *ret_n are made: with multi-uprobe links, mostly one. Places that the
 * kernel refuses are left out. Returns how many are probed, or -errno if none is. */
struct bpf_uprobe_place {
	uint64_t offset, cookie;
};
int bpf_uprobe_attach_all(struct bpf_program *prog, bool multi, pid_t pid, int fd,
			  const struct bpf_uprobe_place *places, size_t n, bool is_return,
			  struct bpf_uprobe *ret, size_t *ret_n);

/* Takes all probes off. They wait for grace periods of the kernel, so
 * they do it at the same time. */
void bpf_uprobe_detach(struct bpf_uprobe *probes, size_t n);

#endif
