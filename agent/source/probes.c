/* SPDX-License-Identifier: Apache-2.0 */
/* The table of probes: what is attached where, and what is lost without it. */
#include "source/probes.h"
#include "tl_event.h"

#define TP PROBE_BTF_TRACEPOINT
#define UP PROBE_UPROBE
#define UR PROBE_URETPROBE
#define LLAMA TL_ENGINE_LLAMA

/* clang-format off */
const struct probe probes[] = {
	/* Append only: bit i of tl_host.probes means row i. */
	{ "syscall entry", "sys_enter", TP, TL_T0, 0, "sys_enter", NULL, true,
	  "when writes begin, and when connections are closed", 0 },
	{ "syscall exit", "sys_exit", TP, TL_T0, 0, "sys_exit", NULL, true,
	  "all requests and answers", 0 },
	{ "tcp state", "tcp_state", TP, TL_T0, 0, "inet_sock_set_state", NULL, false,
	  "how long a connection waits before the server accepts it", 0 },
	{ "process fork", "proc_fork", TP, TL_T0, 0, "sched_process_fork", NULL, false,
	  "traffic of workers that the server starts later", 0 },
	{ "process exec", "proc_exec", TP, TL_T0, 0, "sched_process_exec", NULL, false,
	  "engines that a server starts later", 0 },
	{ "process exit", "proc_exit", TP, TL_T0, 0, "sched_process_exit", NULL, false,
	  "when and how a server ended", 0 },

	/* A build has one of the two generations of steps, or both and uses one. */
	{ "step begin", "step_process", UP, TL_T1, LLAMA, "llama_process", "process", false,
	  "engine steps", 3 },
	{ "step end", "step_return", UR, TL_T1, LLAMA, "llama_process", "process", false,
	  "engine steps", 0 },
	{ "batch begin", "batch_clear", UP, TL_T1, LLAMA, "llama_batch_ext_clear", "process", false,
	  "which sequences a step computes", 1 },
	{ "batch token", "batch_add", UP, TL_T1, LLAMA, "llama_batch_ext_add_token", "process", false,
	  "which sequences a step computes", 2 },
	{ "batch embedding", "batch_add", UP, TL_T1, LLAMA, "llama_batch_ext_add_embd", "process", false,
	  "image and audio tokens in steps", 2 },
	{ "batch output", "batch_output", UP, TL_T1, LLAMA, "llama_batch_ext_set_output_logits", "process",
	  false, "which step ends a prompt", 3 },
	{ "step begin, older", "step_decode", UP, TL_T1, LLAMA, "llama_decode", "decode", false,
	  "engine steps of older builds and which sequences they compute", 1 },
	{ "step end, older", "step_return", UR, TL_T1, LLAMA, "llama_decode", "decode", false,
	  "engine steps of older builds", 0 },
	{ "prompt begin", "seq_rm", UP, TL_T1, LLAMA,
	  "llama_memory_seq_rm llama_kv_self_seq_rm llama_kv_cache_seq_rm", "server", false,
	  "cached tokens of a prompt, and prefill told from decode", 4 },
	{ "task post", "task_post", UP, TL_T1, LLAMA,
	  "_ZN12server_queue4postEOSt6vectorI11server_taskSaIS1_EEb", "server", false,
	  "which request became which task: then joined by counts and order", 2 },
	{ "task launch", "task_launch", UP, TL_T1, LLAMA,
	  "_ZN19server_context_impl21launch_slot_with_taskER11server_slotO11server_task "
	  "_ZN14server_context21launch_slot_with_taskER11server_slotO11server_task", "server", false,
	  "which task runs on which slot: then joined by counts and order", 3 },
	{ "slot release", "slot_release", UP, TL_T1, LLAMA, "_ZN11server_slot7releaseEv", "server", false,
	  "when a slot is free again", 1 },

	{ "tcp read", "tcp_read", TP, TL_T0, 0, "tcp_rcv_space_adjust", NULL, false,
	  "how long a request waits in the kernel before the server reads it", 0 },
};
/* clang-format on */
const size_t n_probes = sizeof(probes) / sizeof(probes[0]);
