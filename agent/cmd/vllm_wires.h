/* SPDX-License-Identifier: Apache-2.0 */
/* The wires between a vLLM's front end and its engines: which sockets they are, and by which way
 * of two they are captured. */
#ifndef TL_CMD_VLLM_WIRES_H
#define TL_CMD_VLLM_WIRES_H

#include "source/bpf.h"
#include "source/discover.h"

/*
 * src_bpf__open(); but where system calls cannot be probed and an engine of vLLM runs, without
 * them: of the engines that vllm_wires_probe() takes steps are seen, of servers nothing. Says so.
 */
int vllm_wires_open(const struct src_bpf_opts *opts, struct src_bpf **ret, const char **ret_why);

/* Nodes that have engines and no front end, but whose engines are connected to one of this host,
 * become part of its server. Returns 0 or -ENOMEM. */
int vllm_wires_join(struct discovery *d);

/* Marks the TCP connections that exist between front ends and engines of this host.
 * Unix sockets need no mark, and connections made later show themselves. Returns how
 * many there are, or -ENOMEM. */
int vllm_wires_mark(struct src_bpf *bpf, const struct discovery *d);

/*
 * Captures the wire of this engine by probes on libzmq's functions in it, if its system calls do
 * not show it (or TL_WIRE=zmq in our environment asks for that; TL_WIRE=syscalls asks for the
 * opposite). All of them or none. Returns whether it does; *ret_why then says why, else why not if
 * it was tried, NULL if not.
 */
bool vllm_wires_probe(struct src_bpf *bpf, const struct found *f, const char **ret_why);

#endif
