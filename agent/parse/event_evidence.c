/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kinds, continued: those of tl_evidence.h and tl_gpu.h. */
#include "parse/event_rows.h"

NAMES(roles, { TL_ROLE_OTHER, "other" }, { TL_ROLE_ENGINE, "engine" }, { TL_ROLE_FRONT, "front" },
      { TL_ROLE_DETOKENIZER, "detokenizer" }, { TL_ROLE_ZMQ, "zmq" }, { TL_ROLE_LAUNCH, "launch" },
      { TL_ROLE_COMPUTE, "compute" }, { TL_ROLE_PROXY, "proxy" });
NAMES(states, { TL_SPAN_RUN, "run" }, { TL_SPAN_RUNNABLE, "runnable" }, { TL_SPAN_SLEEP, "sleep" });
NAMES(waits, { TL_WAIT_OTHER, "other" }, { TL_WAIT_FUTEX, "futex" }, { TL_WAIT_POLL, "poll" },
      { TL_WAIT_SOCKET, "socket" }, { TL_WAIT_GPU, "gpu" }, { TL_WAIT_DISK, "disk" },
      { TL_WAIT_PIPE, "pipe" }, { TL_WAIT_STOPPED, "stopped" });
NAMES(span_flags, { TL_SPAN_IDLE_CPU, "IDLE_CPU" }, { TL_SPAN_MIGRATED, "MIGRATED" });
NAMES(code_kinds, { TL_CODE_OTHER, "other" }, { TL_CODE_GC, "gc" }, { TL_CODE_TOKENIZER, "tokenizer" },
      { TL_CODE_DETOKENIZER, "detokenizer" }, { TL_CODE_GRAMMAR, "grammar" },
      { TL_CODE_REGEX, "regex" }, { TL_CODE_COMPILE, "compile" }, { TL_CODE_METRICS, "metrics" },
      { TL_CODE_LAUNCH, "launch" }, { TL_CODE_KERNEL, "kernel" }, { TL_CODE_JSON, "json" },
      { TL_CODE_TEMPLATE, "template" });
NAMES(held_whys, { TL_HELD_NAGLE, "nagle" }, { TL_HELD_CORK, "cork" }, { TL_HELD_WINDOW, "window" },
      { TL_HELD_CONGESTION, "congestion" }, { TL_HELD_RETRANSMIT, "retransmit" },
      { TL_HELD_OTHER, "other" });
NAMES(bys, { TL_BY_ACK, "ack" }, { TL_BY_PROXY, "proxy" }, { TL_BY_CLIENT, "client" });
NAMES(graphs, { TL_GRAPH_NONE, "none" }, { TL_GRAPH_HIT, "hit" }, { TL_GRAPH_MISS, "miss" },
      { TL_GRAPH_PADDED, "padded" });
NAMES(gpu_step_flags, { TL_GPU_OPEN, "OPEN" }, { TL_GPU_COLD, "COLD" });
NAMES(gpu_whys, { TL_GPU_POWER, "POWER" }, { TL_GPU_THERMAL, "THERMAL" },
      { TL_GPU_NEIGHBOUR, "NEIGHBOUR" });
NAMES(levels, { TL_GPU_OFF, "off" }, { TL_GPU_LAUNCHES, "launches" }, { TL_GPU_GRAPH, "graph" },
      { TL_GPU_KERNELS, "kernels" });
NAMES(troubles, { TL_GPU_FINE, "fine" }, { TL_GPU_BROKEN, "broken" },
      { TL_GPU_BAD_STAMPS, "bad_stamps" }, { TL_GPU_BUSY, "busy" }, { TL_GPU_BUDGET, "budget" },
      { TL_GPU_NO_PROBES, "no_probes" }, { TL_GPU_NO_STATE, "no_state" });
NAMES(health_flags, { TL_GPU_SIMULATED, "SIMULATED" });
NAMES(calls, { TL_CALL_KERNEL, "kernel" }, { TL_CALL_GRAPH, "graph" }, { TL_CALL_SYNC, "sync" },
      { TL_CALL_COPY, "copy" }, { TL_CALL_ALLOC, "alloc" }, { TL_CALL_LOAD, "load" });
NAMES(clock_flags, { TL_CLOCK_OPENS, "OPENS" }, { TL_CLOCK_CLOSES, "CLOSES" },
      { TL_CLOCK_GRAPHS, "GRAPHS" });
NAMES(launch_flags, { TL_LAUNCH_WAITS, "WAITS" }, { TL_LAUNCH_TO, "TO" },
      { TL_LAUNCH_FROM, "FROM" }, { TL_LAUNCH_FREE, "FREE" }, { TL_LAUNCH_MANY, "MANY" },
      { TL_LAUNCH_FAILED, "FAILED" }, { TL_LAUNCH_UNSEEN, "UNSEEN" });
NAMES(span_whats, { TL_SPAN_KERNEL, "kernel" }, { TL_SPAN_GRAPH, "graph" },
      { TL_SPAN_MEMCPY, "memcpy" }, { TL_SPAN_MEMSET, "memset" }, { TL_SPAN_OVERHEAD, "overhead" });
NAMES(metrics, { TL_CLAIM_TTFT, "ttft" }, { TL_CLAIM_TOTAL, "total" }, { TL_CLAIM_TPOT, "tpot" },
      { TL_CLAIM_HEADERS, "headers" }, { TL_CLAIM_ITL, "itl" }, { TL_CLAIM_QUEUE, "queue" });

static const struct event_field thread_fields[] = {
	F_NAMED(tl_thread, role, roles),
	F(tl_thread, rank),
	F(tl_thread, server),
	F(tl_thread, cgroup),
	F(tl_thread, name),
	F(tl_thread, cgroup_path),
};

static const struct event_field thread_span_fields[] = {
	F(tl_thread_span, since_ns),
	F_NAMED(tl_thread_span, state, states),
	F_NAMED(tl_thread_span, wait, waits),
	F(tl_thread_span, cpu),
	F(tl_thread_span, from_cpu),
	F(tl_thread_span, by_tgid),
	F(tl_thread_span, by_tid),
	F(tl_thread_span, by_ns),
	F(tl_thread_span, by_cgroup),
	F(tl_thread_span, by_name),
	F(tl_thread_span, major_faults),
	F_PAD(tl_thread_span, pad),
};

static const struct event_field throttle_fields[] = {
	F(tl_throttle, since_ns),
	F(tl_throttle, cgroup),
	F(tl_throttle, throttled_ns),
	F(tl_throttle, n_throttled),
	F(tl_throttle, n_periods),
	F(tl_throttle, quota_us),
	F(tl_throttle, period_us),
	F(tl_throttle, by_tgid),
	F(tl_throttle, by_threads),
	F(tl_throttle, by_ns),
	F(tl_throttle, by_name),
	F(tl_throttle, path),
};

static const struct event_field code_fields[] = {
	F(tl_code, since_ns),
	F_NAMED(tl_code, code, code_kinds),
	F(tl_code, n_samples),
	F(tl_code, of_samples),
	F_PAD(tl_code, pad),
	F(tl_code, req),
	F_PAD(tl_code, pad2),
	F(tl_code, frame),
};

static const struct event_field send_held_fields[] = {
	F(tl_send_held, since_ns),
	F(tl_send_held, ack_ns),
	F(tl_send_held, conn),
	F(tl_send_held, req),
	F(tl_send_held, bytes),
	F(tl_send_held, n_writes),
	F_NAMED(tl_send_held, why, held_whys),
	F(tl_send_held, fd),
	F(tl_send_held, local_port),
	F(tl_send_held, peer_port),
	F(tl_send_held, retransmits),
	F_PAD(tl_send_held, pad),
};

static const struct event_field send_blocked_fields[] = {
	F(tl_send_blocked, since_ns),
	F(tl_send_blocked, drained_ns),
	F(tl_send_blocked, conn),
	F(tl_send_blocked, req),
	F(tl_send_blocked, app_queue_bytes),
	F(tl_send_blocked, kernel_bytes),
};

static const struct event_field delivered_fields[] = {
	F(tl_delivered, req),
	F(tl_delivered, n_chunks),
	F(tl_delivered, n_bytes),
	F_NAMED(tl_delivered, by, bys),
	F_PAD(tl_delivered, pad),
	F(tl_delivered, name),
};

static const struct event_field gpu_step_fields[] = {
	F(tl_gpu_step, end_ns),
	F(tl_gpu_step, busy_ns),
	F(tl_gpu_step, collective_ns),
	F(tl_gpu_step, transfer_ns),
	F(tl_gpu_step, copy_ns),
	F(tl_gpu_step, late_ns),
	F(tl_gpu_step, launches),
	F(tl_gpu_step, graph_launches),
	F(tl_gpu_step, rank),
	F(tl_gpu_step, device),
	F_NAMED(tl_gpu_step, graph, graphs),
	F(tl_gpu_step, padded_to),
	F(tl_gpu_step, batch),
	F_PAD(tl_gpu_step, pad),
};

static const struct event_field gpu_state_fields[] = {
	F(tl_gpu_state, since_ns),
	F(tl_gpu_state, device),
	F(tl_gpu_state, clock_mhz),
	F(tl_gpu_state, max_mhz),
	F_BITS(tl_gpu_state, why, gpu_whys),
	F(tl_gpu_state, by_tgid),
	F(tl_gpu_state, by_pct),
	F(tl_gpu_state, by_name),
};

static const struct event_field gpu_health_fields[] = {
	F(tl_gpu_health, since_ns),
	F(tl_gpu_health, launches),
	F(tl_gpu_health, records),
	F(tl_gpu_health, bad_records),
	F(tl_gpu_health, dropped),
	F(tl_gpu_health, overhead_ppm),
	F_NAMED(tl_gpu_health, level, levels),
	F_NAMED(tl_gpu_health, to_level, levels),
	F_NAMED(tl_gpu_health, trouble, troubles),
	F_NAMED(tl_gpu_health, wanted, levels),
	F_PAD(tl_gpu_health, pad),
	F(tl_gpu_health, holder),
	F(tl_gpu_health, why),
};

static const struct event_field clock_fields[] = {
	F(tl_clock, realtime_ns),
	F(tl_clock, err_ns),
};

static const struct event_field claim_fields[] = {
	F(tl_claim, req),
	F_NAMED(tl_claim, metric, metrics),
	F_PAD(tl_claim, pad),
	F(tl_claim, value_ns),
	F(tl_claim, tool),
	F(tl_claim, field),
};

static const struct event_field gpu_launch_fields[] = {
	F(tl_gpu_launch, dur_ns),
	F(tl_gpu_launch, corr),
	F(tl_gpu_launch, stream),
	F(tl_gpu_launch, what),
	F(tl_gpu_launch, bytes),
	F(tl_gpu_launch, n),
	F_NAMED(tl_gpu_launch, call, calls),
	F_PAD(tl_gpu_launch, pad),
};

static const struct event_field gpu_span_fields[] = {
	F(tl_gpu_span, end_ns),
	F(tl_gpu_span, corr),
	F(tl_gpu_span, bytes),
	F(tl_gpu_span, device),
	F(tl_gpu_span, stream),
	F(tl_gpu_span, name),
	F(tl_gpu_span, graph),
	F_NAMED(tl_gpu_span, what, span_whats),
	F(tl_gpu_span, copy),
	F_PAD(tl_gpu_span, pad),
};

static const struct event_field gpu_name_fields[] = {
	F(tl_gpu_name, id),
	F_PAD(tl_gpu_name, pad),
	F(tl_gpu_name, name),
};

const struct event_kind event_evidence_kinds[] = {
	PLAIN(TL_THREAD, thread),
	KIND(TL_THREAD_SPAN, thread_span, span_flags, NULL, sizeof(struct tl_thread_span)),
	PLAIN(TL_THROTTLE, throttle),
	PLAIN(TL_CODE, code),
	PLAIN(TL_SEND_HELD, send_held),
	PLAIN(TL_SEND_BLOCKED, send_blocked),
	PLAIN(TL_DELIVERED, delivered),
	KIND(TL_GPU_STEP, gpu_step, gpu_step_flags, NULL, sizeof(struct tl_gpu_step)),
	KIND(TL_GPU_STATE, gpu_state, health_flags, NULL, sizeof(struct tl_gpu_state)),
	KIND(TL_GPU_HEALTH, gpu_health, health_flags, NULL, sizeof(struct tl_gpu_health)),
	KIND(TL_CLOCK, clock, clock_flags, NULL, sizeof(struct tl_clock)),
	PLAIN(TL_CLAIM, claim),
	KIND(TL_GPU_LAUNCH, gpu_launch, launch_flags, NULL, sizeof(struct tl_gpu_launch)),
	PLAIN(TL_GPU_SPAN, gpu_span),
	PLAIN(TL_GPU_NAME, gpu_name),
};
const size_t event_n_evidence_kinds = ARRAY_SIZE(event_evidence_kinds);
