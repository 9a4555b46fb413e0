/* SPDX-License-Identifier: Apache-2.0 */
/* The table of probes: what is attached where, and what is lost without it. */
#include "source/probes.h"
#include "tl_event.h"

#define TP PROBE_BTF_TRACEPOINT
#define UP PROBE_UPROBE
#define UR PROBE_URETPROBE
#define LLAMA TL_ENGINE_LLAMA
#define VLLM TL_ENGINE_VLLM
#define SECOND_WAY "the second way to an engine's steps, for when system calls do not show its wire"

/* clang-format off */
const struct probe probes[] = {
	/* Append only: bit i of tl_host.probes means row i. */
	{ "syscall entry", "sys_enter", TP, TL_T0, 0, "sys_enter", NULL, true,
	  "when writes begin, and when connections are closed", 0, PROBE_NET },
	{ "syscall exit", "sys_exit", TP, TL_T0, 0, "sys_exit", NULL, true,
	  "all requests and answers", 0, PROBE_NET },
	{ "tcp state", "tcp_state", TP, TL_T0, 0, "inet_sock_set_state", NULL, false,
	  "how long a connection waits before the server accepts it", 0, PROBE_NET },
	{ "process fork", "proc_fork", TP, TL_T0, 0, "sched_process_fork", NULL, false,
	  "traffic of workers that the server starts later", 0, PROBE_NET },
	{ "process exec", "proc_exec", TP, TL_T0, 0, "sched_process_exec", NULL, false,
	  "engines that a server starts later", 0, PROBE_NET },
	{ "process exit", "proc_exit", TP, TL_T0, 0, "sched_process_exit", NULL, false,
	  "when and how a server ended", 0, PROBE_NET },

	/* A build has one of the two generations of steps, or both and uses one. */
	{ "step begin", "step_process", UP, TL_T1, LLAMA, "llama_process", "process", false,
	  "engine steps", 3, PROBE_NET },
	{ "step end", "step_return", UR, TL_T1, LLAMA, "llama_process", "process", false,
	  "engine steps", 0, PROBE_NET },
	{ "batch begin", "batch_clear", UP, TL_T1, LLAMA, "llama_batch_ext_clear", "process", false,
	  "which sequences a step computes", 1, PROBE_NET },
	{ "batch token", "batch_add", UP, TL_T1, LLAMA, "llama_batch_ext_add_token", "process", false,
	  "which sequences a step computes", 2, PROBE_NET },
	{ "batch embedding", "batch_add", UP, TL_T1, LLAMA, "llama_batch_ext_add_embd", "process", false,
	  "image and audio tokens in steps", 2, PROBE_NET },
	{ "batch output", "batch_output", UP, TL_T1, LLAMA, "llama_batch_ext_set_output_logits", "process",
	  false, "which step ends a prompt", 3, PROBE_NET },
	{ "step begin, older", "step_decode", UP, TL_T1, LLAMA, "llama_decode", "decode", false,
	  "engine steps of older builds and which sequences they compute", 1, PROBE_NET },
	{ "step end, older", "step_return", UR, TL_T1, LLAMA, "llama_decode", "decode", false,
	  "engine steps of older builds", 0, PROBE_NET },
	{ "prompt begin", "seq_rm", UP, TL_T1, LLAMA,
	  "llama_memory_seq_rm llama_kv_self_seq_rm llama_kv_cache_seq_rm", "server", false,
	  "cached tokens of a prompt, and prefill told from decode", 4, PROBE_NET },
	{ "task post", "task_post", UP, TL_T1, LLAMA,
	  "_ZN12server_queue4postEOSt6vectorI11server_taskSaIS1_EEb", "server", false,
	  "which request became which task: then joined by counts and order", 2, PROBE_NET },
	{ "task launch", "task_launch", UP, TL_T1, LLAMA,
	  "_ZN19server_context_impl21launch_slot_with_taskER11server_slotO11server_task "
	  "_ZN14server_context21launch_slot_with_taskER11server_slotO11server_task", "server", false,
	  "which task runs on which slot: then joined by counts and order", 3, PROBE_NET },
	{ "slot release", "slot_release", UP, TL_T1, LLAMA, "_ZN11server_slot7releaseEv", "server", false,
	  "when a slot is free again", 1, PROBE_NET },

	{ "tcp read", "tcp_read", TP, TL_T0, 0, "tcp_rcv_space_adjust", NULL, false,
	  "how long a request waits in the kernel before the server reads it", 0, PROBE_NET },

	{ "cpu switch", "sched_switch", TP, TL_T0, 0, "sched_switch", NULL, false,
	  "who had the CPU while a server wanted it, and what its threads slept for", 0, PROBE_SCHED },
	{ "cpu wakeup", "sched_waking", TP, TL_T0, 0, "sched_waking", NULL, false,
	  "how long threads wait for a CPU once they are woken, and by whom", 0, PROBE_SCHED },
	{ "cpu migration", "sched_migrate", TP, TL_T0, 0, "sched_migrate_task", NULL, false,
	  "who had the CPU that a thread was moved to while it waited", 0, PROBE_SCHED },
	{ "program begin", "child_exec", TP, TL_T0, 0, "sched_process_exec", NULL, false,
	  "compilers that an engine waits for", 0, PROBE_SCHED },
	{ "program end", "child_exit", TP, TL_T0, 0, "sched_process_exit", NULL, false,
	  "until when an engine waits for compilers", 0, PROBE_SCHED },
	{ "cpu sampling", "stack_sample", PROBE_TIMER, TL_T0, 0, "cpu-clock", NULL, false,
	  "in which code a thread was while it kept others waiting", 0, PROBE_SCHED },

	{ "zmq send", "zmq_send", UP, TL_T1, VLLM, "zmq_msg_send", "zmq", false, SECOND_WAY, 3,
	  PROBE_NET },
	{ "zmq receive", "zmq_recv", UP, TL_T1, VLLM, "zmq_msg_recv", "zmq", false, SECOND_WAY, 2,
	  PROBE_NET },
	{ "zmq received", "zmq_recv_done", UR, TL_T1, VLLM, "zmq_msg_recv", "zmq", false, SECOND_WAY, 0,
	  PROBE_NET },

	{ "tcp transmit", "tcp_xmit", TP, TL_T0, 0, "net_dev_start_xmit", NULL, false,
	  "when bytes leave that the kernel held back (Nagle, a full window)", 0, PROBE_TCP },
	{ "tcp acknowledge", "tcp_ack", TP, TL_T0, 0, "tcp_probe", NULL, false,
	  "which acknowledgement let bytes go, and when a slow reader had all", 0, PROBE_TCP },
	{ "tcp retransmit", "tcp_again", TP, TL_T0, 0, "tcp_retransmit_skb", NULL, false,
	  "what the network lost on the way to a client", 0, PROBE_TCP },
	{ "tcp connect", "tcp_life", TP, TL_T0, 0, "inet_sock_set_state", NULL, false,
	  "proxies on this host that begin to use an engine during a recording", 0, PROBE_TCP },
};
/* clang-format on */
const size_t n_probes = sizeof(probes) / sizeof(probes[0]);
