/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types for BPF programs: fixed-width integers, and the kernel's structs cut to what we read. */
#ifndef TL_KTYPES_H
#define TL_KTYPES_H

#include <stdbool.h>

/* Tells libbpf's headers that struct pt_regs has the kernel's names of registers (di, not rdi). */
#define __VMLINUX_H__

#define NULL ((void *)0)

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* Of the kernel's user API; <linux/bpf.h> would bring types that clash with these. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1u << 0, BPF_F_MMAPABLE = 1u << 10 };
enum { BPF_RB_NO_WAKEUP = 1u << 0, BPF_RB_FORCE_WAKEUP = 1u << 1 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1u << 0 };

enum { AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10 };
enum { SOCK_STREAM = 1 };
enum { MSG_OOB = 1, MSG_PEEK = 2, MSG_TRUNC = 0x20, MSG_ERRQUEUE = 0x2000 };
enum { S_IFMT = 0170000, S_IFSOCK = 0140000 };
enum { EAGAIN = 11, EPIPE = 32, ECONNRESET = 104, EINPROGRESS = 115 };
enum { TCP_SYN_SENT = 2, TCP_CLOSE = 7, TCP_LISTEN = 10, IPPROTO_TCP = 6 };
enum { SOCK_NOSPACE = 2 };	/* bit of socket.flags */
enum { TCP_NAGLE_OFF = 1, TCP_NAGLE_CORK = 2, TCP_NAGLE_PUSH = 4 };

/* Offsets are relocated at load, so these need to name fields, not to lay them out. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};
typedef struct {
	int counter;
} atomic_t;
struct signal_struct {
	atomic_t live;
	unsigned int flags;
	int group_exit_code;
};
struct kernfs_node {
	__u64 id;
};
struct cgroup {
	struct kernfs_node *kn;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
enum cgroup_subsys_id { cpu_cgrp_id = 1 };	/* relocated, too */
struct css_set {
	struct cgroup_subsys_state *subsys[12];
	struct cgroup *dfl_cgrp;
};
struct task_struct {
	int pid, tgid;
	int exit_code;
	unsigned int __state;
	char comm[16];
	unsigned int in_iowait : 1;
	unsigned int frozen : 1;	/* stopped, or by a freezer of cgroup v2 (since 5.2) */
	unsigned int flags;
	unsigned long maj_flt;
	struct css_set *cgroups;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct files_struct *files;
	struct signal_struct *signal;
	unsigned long nvcsw;	/* how often it slept */
};
struct linux_binprm;
struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
};
struct file {
	struct inode *f_inode;
	void *private_data;
};
struct socket {
	short type;
	unsigned long flags;
	struct file *file;
	struct sock *sk;
};
struct in6_addr {
	__u8 in6_u[16];
};
struct sock_common {
	__be32 skc_daddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
};
struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	struct socket *sk_socket;
};
struct tcp_sock {
	__u64 tcp_clock_cache;
	__u32 copied_seq;	/* the stream up to which the process has read ... */
	__u32 write_seq;	/* ... and written */
	__u32 snd_nxt;		/* ... up to which it was sent ... */
	__u32 snd_una;		/* ... and acknowledged */
	__u32 snd_wnd;		/* bytes behind snd_una that the peer has room for */
	__u32 mss_cache;
	__u32 snd_cwnd;		/* segments that may be under way ... */
	__u32 packets_out, sacked_out, lost_out, retrans_out;	/* ... and what is */
	__u8 nonagle : 4;	/* TCP_NAGLE_* */
};
struct inet_connection_sock {
	struct {
		__u32 lrcvtime;		/* jiffies of the last data that came */
	} icsk_ack;
};
struct sk_buff {
	struct sock *sk;
	char cb[48];
	unsigned int len;
	__u16 transport_header;
	unsigned char *head, *data;
};
struct net_device;
struct pt_regs {
	unsigned long r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
};

#pragma clang attribute pop

/* Memory of user space, of the 64-bit ABI. */
struct user_iovec {
	__u64 base;
	__u64 len;
};
struct user_msghdr {
	__u64 name;
	__u64 name_len;
	__u64 iov;
	__u64 iov_len;
};

#endif
