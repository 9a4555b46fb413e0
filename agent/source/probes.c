/* SPDX-License-Identifier: Apache-2.0 */
/* The table of probes: what is attached where, and what is lost without it. */
#include "source/probes.h"
#include "tl_event.h"

/* clang-format off */
const struct probe probes[] = {
	/* Append only: bit i of tl_host.probes means row i. */
	{ "syscall entry", "sys_enter", PROBE_BTF_TRACEPOINT, TL_T0, 0, "sys_enter", NULL, true,
	  "when writes begin, and when connections are closed" },
	{ "syscall exit", "sys_exit", PROBE_BTF_TRACEPOINT, TL_T0, 0, "sys_exit", NULL, true,
	  "all requests and answers" },
	{ "tcp state", "tcp_state", PROBE_BTF_TRACEPOINT, TL_T0, 0, "inet_sock_set_state", NULL, false,
	  "how long a connection waits before the server accepts it" },
	{ "process fork", "proc_fork", PROBE_BTF_TRACEPOINT, TL_T0, 0, "sched_process_fork", NULL, false,
	  "traffic of workers that the server starts later" },
	{ "process exec", "proc_exec", PROBE_BTF_TRACEPOINT, TL_T0, 0, "sched_process_exec", NULL, false,
	  "engines that a server starts later" },
	{ "process exit", "proc_exit", PROBE_BTF_TRACEPOINT, TL_T0, 0, "sched_process_exit", NULL, false,
	  "when and how a server ended" },
};
/* clang-format on */
const size_t n_probes = sizeof(probes) / sizeof(probes[0]);
