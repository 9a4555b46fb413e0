/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies what is to be kept of a call's bytes to the scratch area of its CPU. */
#ifndef TL_NET_COPY_H
#define TL_NET_COPY_H

#include "cut.h"
#include "maps.h"
#include "syscalls_x86_64.h"

/* Set before load. The scratch area holds a record of up to head + tail bytes, and room for
 * one more copy of that length: the verifier bounds offset and length apart, not their sum. */
const volatile __u32 head_bytes = 4096;
const volatile __u32 tail_bytes = 1024;
/* Kept of a call on an engine's own wire: at least head_bytes + tail_bytes. */
const volatile __u32 whole_bytes = 5120;
/* Read anew at each use: verifiers before 5.16 forget the bounds of 32-bit
 * values that were on the stack. */
#define KEEP whole_bytes

enum { MAX_IOV = 1024, IOV_PART = 32 };	/* IOV_MAX of the kernel */
/* Bytes of a large write in which signs of a stream are looked for, and
 * how many of them at a time. */
enum { STREAM_LOOK = 2048, LOOK_PART = 64 };
enum { SENDS_MORE = 0x8000 };	/* MSG_MORE, a name that libzmq uses as well */

struct scratch {
	__u32 head, tail;	/* bytes copied so far */
	__u32 max_head, pad;	/* of this call */
	struct tl_raw_net ev;	/* its data[] runs to the end of the map's value */
};

/* One per CPU (max_entries and value_size are set before load). Only sys_exit uses it, and the
 * kernel does not run that program again on a CPU where it runs. Not a per-CPU map: their values
 * are limited to 32 KiB. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct scratch) + 2 * 5120 + 8);
} scratches SEC(".maps");

/* Global functions: the verifier looks at them once, for any arguments, and not again for every
 * pass of the loop that calls them. They return 0, or -1: user memory could not be read, stop. */

__noinline int copy_user(__u64 src, __u32 dst, __u32 len)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = bpf_map_lookup_elem(&scratches, &cpu);

	if (!s || dst > KEEP || len > KEEP)
		return -1;
	return bpf_probe_read_user(s->ev.data + dst, len, (void *)src) ? -1 : 0;
}

/* Copies what is to be kept of the piece [pos, pos + len) of a call's `total` bytes. */
__noinline int copy_piece(__u64 base, __u32 pos, __u32 len, __u32 total)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = bpf_map_lookup_elem(&scratches, &cpu);
	struct cut_range head, tail;
	struct cut c;

	if (!s)
		return -1;
	c = cut_of(total, s->max_head, tail_bytes);
	head = cut_head(c, pos, len);
	tail = cut_tail(c, pos, len);
	if (head.len) {
		if (copy_user(base, head.dst, head.len))
			return -1;
		s->head += head.len;
	}
	if (tail.len) {
		if (copy_user(base + tail.src, tail.dst, tail.len))
			return -1;
		s->tail += tail.len;
	}
	return 0;
}

/* From `pos` of the total on. Returns how far it came; total also where nothing more can be had. */
__noinline int copy_iov_part(__u64 iov, __u64 n_iov, __u32 pos, __u32 total)
{
	struct user_iovec v;
	__u32 len;

	for (int i = 0; i < IOV_PART; i++) {
		if (i >= n_iov || pos >= total)
			return total;
		if (bpf_probe_read_user(&v, sizeof(v), (void *)(iov + i * sizeof(v))))
			return total;
		len = v.len < total - pos ? v.len : total - pos;
		if (copy_piece(v.base, pos, len, total))
			return total;
		pos += len;
	}
	return pos;
}

/* Loops in loops of global functions: the verifier walks each once, not the product, which is most
 * of the time that an attach takes. */
__noinline int copy_iov(__u64 iov, __u64 n_iov, __u32 total)
{
	__u32 pos = 0;

	for (int i = 0; i < MAX_IOV; i += IOV_PART) {
		if (i >= n_iov || pos >= total)
			return 0;
		pos = copy_iov_part(iov + i * sizeof(struct user_iovec), n_iov - i, pos, total);
	}
	return 0;
}

/* Where a call's bytes are: one buffer, or n_iov of them; `flags` of recvfrom and recvmsg. */
struct io {
	__u64 base, iov, n_iov;
	__u32 flags;
	bool empty;		/* asked for nothing */
	bool more;		/* a send that says MSG_MORE */
};

static __always_inline void io_of_msghdr(struct io *io, __u64 msg)
{
	struct user_msghdr m = {};

	bpf_probe_read_user(&m, sizeof(m), (void *)msg);
	io->iov = m.iov;
	io->n_iov = m.iov_len;
}

static __always_inline struct io io_of_call(struct pt_regs *regs, __u32 nr)
{
	struct io io = {};

	switch (nr) {
	case NR_RECVFROM:
		io.flags = SYS_ARG4(regs);
		/* fallthrough */
	case NR_READ:
	case NR_WRITE:
	case NR_SENDTO:
		io.base = SYS_ARG2(regs);
		io.empty = !SYS_ARG3(regs);
		break;
	case NR_READV:
	case NR_WRITEV:
		io.iov = SYS_ARG2(regs);
		io.n_iov = SYS_ARG3(regs);
		io.empty = !io.n_iov;
		break;
	case NR_RECVMSG:
		io.flags = SYS_ARG3(regs);
		/* fallthrough */
	case NR_SENDMSG:
		io_of_msghdr(&io, SYS_ARG2(regs));
		io.empty = !io.n_iov;
		break;
	}
	if (nr == NR_SENDTO || nr == NR_SENDMSG)
		io.more = (nr == NR_SENDTO ? SYS_ARG4(regs) : SYS_ARG3(regs)) & SENDS_MORE;
	return io;
}

/* Do any of the LOOK_PART bytes from `from` on, of `len` that were kept, begin such a sign? */
__noinline int is_stream_part(__u32 from, __u32 len)
{
	const __u64 data = 0x203a617461640a;	/* "\ndata: ", */
	const __u64 data_mask = 0xffffffffffffff;	/* which is seven bytes */
	const __u64 type = 0x657274732d746e65;	/* "ent-stre", of text/event-stream */
	__u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = bpf_map_lookup_elem(&scratches, &cpu);
	__u64 at;

	if (!s || from > STREAM_LOOK)
		return 0;
	for (int i = 0; i < LOOK_PART; i++) {
		if (from + i + 8 > len)
			break;
		at = *(__u64 *)(s->ev.data + from + i);
		if ((at & data_mask) == data || at == type)
			return 1;
	}
	return 0;
}

/* Is what was kept so far of an event stream? Then all of the write is wanted: each
 * event of it counts, and one that comes in large writes (a proxy, a compressor, a slow
 * reader) has many in one. */
__noinline int is_stream(__u32 len)
{
	for (__u32 i = 0; i < STREAM_LOOK && i < len; i += LOOK_PART)
		if (is_stream_part(i, len))
			return 1;
	return 0;
}

static __always_inline void copy_call(struct scratch *s, const struct io *io, __u32 total)
{
	if (!io->base)
		copy_iov(io->iov, io->n_iov, total);
	else if (total > s->max_head + tail_bytes)
		copy_piece(io->base, 0, total, total);
	else if (!copy_user(io->base, 0, total))
		s->head = total;
}

#endif
