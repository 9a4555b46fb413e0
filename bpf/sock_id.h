/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a file descriptor of the current task to its socket. */
#ifndef TL_SOCK_ID_H
#define TL_SOCK_ID_H

#include "ktypes.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

struct sock_id {
	__u64 ino;
	struct file *file;
	struct sock *sk;
	__u16 local_port, peer_port;
	__u8 family, state;
	bool full;		/* a write found no room, and there is still none */
	__u8 pad;
	__u8 peer_addr[16];
};

/* A struct is read in one call and its fields are picked out of the copy: a helper call costs more
 * than the bytes. `end` is the last field that is wanted. */
#define READ_UP_TO(buf, ptr, type, end) \
	bpf_probe_read_kernel( \
		buf, bpf_core_field_offset(type, end) + bpf_core_field_size(type, end), ptr)
#define FIELD(buf, type, field) \
	(*(typeof(((type *)0)->field) *)((buf) + bpf_core_field_offset(type, field)))

/* False unless fd is a stream socket of a family we follow. A global function, which the verifier
 * looks at once per program: to check what is read of a task takes it long. */
__noinline int sock_of_fd(int fd, struct sock_id *ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 buf[16] = {};
	struct file *file = NULL;
	struct sock *sk;
	void *b = buf;

	if (!ret)
		return false;
	READ_UP_TO(b, task->files->fdt, struct fdtable, fd);
	if ((__u32)fd >= FIELD(b, struct fdtable, max_fds))
		return false;
	bpf_probe_read_kernel(&file, sizeof(file), FIELD(b, struct fdtable, fd) + fd);
	READ_UP_TO(b, BPF_CORE_READ(file, f_inode), struct inode, i_ino);
	if ((FIELD(b, struct inode, i_mode) & S_IFMT) != S_IFSOCK)
		return false;
	ret->ino = FIELD(b, struct inode, i_ino);
	READ_UP_TO(b, BPF_CORE_READ(file, private_data), struct socket, sk);
	if (FIELD(b, struct socket, type) != SOCK_STREAM)
		return false;
	sk = FIELD(b, struct socket, sk);
	ret->full = FIELD(b, struct socket, flags) >> SOCK_NOSPACE & 1;
	READ_UP_TO(b, sk, struct sock_common, skc_v6_daddr);
	ret->file = file;
	ret->sk = sk;
	ret->family = FIELD(b, struct sock_common, skc_family);
	ret->state = FIELD(b, struct sock_common, skc_state);
	ret->local_port = ret->peer_port = 0;
	__builtin_memset(ret->peer_addr, 0, sizeof(ret->peer_addr));
	switch (ret->family) {
	case AF_UNIX:
		return true;
	case AF_INET:
		*(__u32 *)ret->peer_addr = FIELD(b, struct sock_common, skc_daddr);
		break;
	case AF_INET6:
		*(struct in6_addr *)ret->peer_addr = FIELD(b, struct sock_common, skc_v6_daddr);
		break;
	default:
		return false;
	}
	ret->local_port = FIELD(b, struct sock_common, skc_num);
	ret->peer_port = __builtin_bswap16(FIELD(b, struct sock_common, skc_dport));
	return true;
}

/* struct file's reference count was f_count up to 6.12, then f_ref, which counts from 0. */
struct file___old {
	struct {
		__s64 counter;
	} f_count;
} __attribute__((preserve_access_index));
struct file___new {
	struct {
		struct {
			__s64 counter;
		} refcnt;
	} f_ref;
} __attribute__((preserve_access_index));

static __always_inline bool file_is_shared(struct file *file)
{
	struct file___old *old = (void *)file;
	struct file___new *new = (void *)file;

	if (bpf_core_field_exists(new->f_ref))
		return BPF_CORE_READ(new, f_ref.refcnt.counter) > 0;
	return BPF_CORE_READ(old, f_count.counter) > 1;
}

#endif
