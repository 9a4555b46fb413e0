/* SPDX-License-Identifier: Apache-2.0 */
/* Live events from the kernel: loads the BPF programs, attaches them, yields raw events. */
#ifndef TL_SOURCE_BPF_H
#define TL_SOURCE_BPF_H

#include "base/emit.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct src_bpf_opts {
	uint32_t head_bytes;	/* kept from the start of each read and write; 0: default 4096 */
	uint32_t tail_bytes;	/* kept from its end when it is longer than that; 0: default 1024 */
	uint32_t ring_bytes;	/* of the ring buffer, a power of two; 0: default 8 MiB. Twice
				 * that counts as our memory, because it is mapped twice */
	uint32_t tiers;		/* enum tl_tier bits allowed; 0: all */
	bool kernel_stats;	/* let the kernel time every run of every
				 * program (bpf_stats): exact, but all processes
				 * of the host pay for it. For benchmarks */
	bool blind;		/* do without system calls, if they cannot be probed:
				 * only probes in processes show something then */
	uint64_t refuse;	/* bit i: leave row i of the probe table out, as
				 * a kernel that refuses it would. For tests */
};

struct src_bpf;

/* Loads the programs and attaches the system-wide ones (tracepoints); nothing is captured until a
 * target is added. Needs no tracefs, but sysfs (/sys) and BTF. Returns
 * -errno; *why then points to a sentence for the user (static or owned by *ret, never NULL). */
int src_bpf__open(const struct src_bpf_opts *opts, struct src_bpf **ret, const char **why);
void src_bpf__close(struct src_bpf *s);	/* detaches everything; NULL is fine */

/* Capture this process from now on. Children that it forks are followed by themselves. */
int src_bpf__add_target(struct src_bpf *s, uint32_t tgid);
/* The same with an enum tl_target_mode: which of its sockets are of interest. */
int src_bpf__add_target_mode(struct src_bpf *s, uint32_t tgid, uint32_t mode);
bool src_bpf__is_target(struct src_bpf *s, uint32_t tgid);	/* also as the child of one */
void src_bpf__del_target(struct src_bpf *s, uint32_t tgid);
/* This TCP socket, by inode, carries an engine's own wire: kept whole of a
 * TL_TARGET_WIRE, left alone of a TL_TARGET_HTTP. Those on which a target greets as ZMTP
 * does are found without being told. */
int src_bpf__add_tcp_wire(struct src_bpf *s, uint64_t inode);
/* Report TCP state changes of this local port (conn_open of connections not yet accepted). */
int src_bpf__watch_port(struct src_bpf *s, uint16_t port);

/* Attach the user-space probes of an engine (engine: enum tl_engine_kind) to a process. Rows that
 * cannot be attached are skipped; `say` is called once per row of source/probes.c that applies,
 * with err 0 or -errno and a reason. Returns the number attached, or -errno. */
typedef void (*probe_say)(void *ctx, const char *probe, int err, const char *reason);
int src_bpf__attach_engine(struct src_bpf *s, uint32_t tgid, uint16_t engine, probe_say say,
			   void *ctx);
void src_bpf__detach_engine(struct src_bpf *s, uint32_t tgid);

/* Hands every waiting event to `out`, waits up to timeout_ms for one. Lost events since the last
 * call come as TL_LOST. Returns the number of events, or -errno. */
int src_bpf__poll(struct src_bpf *s, const struct emit *out, int timeout_ms);
/* Readable when much waits. The kernel wakes nobody for a few events, because the target would pay
 * for that: call poll every 100 ms at least. */
int src_bpf__poll_fd(const struct src_bpf *s);

struct src_bpf_cost {
	uint64_t run_ns, runs;	/* of our programs, in targets; with kernel_stats: anywhere */
	uint64_t threads_ns;	/* of run_ns: of those that watch threads (host.h) */
	uint64_t hits;		/* of user-space probes: a trap each, about 0.5 us beside run_ns */
	uint64_t attach_ns;	/* system-wide part and engines so far */
	uint64_t lost;
};
void src_bpf__cost(const struct src_bpf *s, struct src_bpf_cost *ret);
bool src_bpf__is_blind(const struct src_bpf *s);	/* system calls are not seen (opts.blind) */
uint64_t src_bpf__probes(const struct src_bpf *s);	/* bit i: row i of the probe table is on */

#endif
