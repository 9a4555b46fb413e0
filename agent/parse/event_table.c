/* SPDX-License-Identifier: Apache-2.0 */
/* The table: every kind of tl_event.h with its fields. A new kind or field is one row here. */
#include "parse/event_rows.h"

#include <string.h>
#include <strings.h>

/* ---- names of values ---- */

const struct event_name event_common_flags[] = {
	{ TL_F_TRUNC, "TRUNC" }, { TL_F_GUESS, "GUESS" }, { TL_F_JOINED, "JOINED" }, { 0, NULL },
};

NAMES(engine_flags, { TL_ENGINE_PRIORITY, "PRIORITY" });
NAMES(chunk_flags, { TL_CHUNK_ROLE, "ROLE" }, { TL_CHUNK_TEXT, "TEXT" },
      { TL_CHUNK_EMPTY, "EMPTY" }, { TL_CHUNK_REASONING, "REASONING" }, { TL_CHUNK_TOOL, "TOOL" },
      { TL_CHUNK_PROGRESS, "PROGRESS" }, { TL_CHUNK_USAGE, "USAGE" }, { TL_CHUNK_FINISH, "FINISH" },
      { TL_CHUNK_DONE, "DONE" }, { TL_CHUNK_ERROR, "ERROR" }, { TL_CHUNK_OTHER, "OTHER" });
NAMES(usage_flags, { TL_USAGE_PROMPT, "PROMPT" }, { TL_USAGE_CACHED, "CACHED" },
      { TL_USAGE_OUTPUT, "OUTPUT" }, { TL_USAGE_REASONING, "REASONING" },
      { TL_USAGE_PREFILL_TIME, "PREFILL_TIME" }, { TL_USAGE_DECODE_TIME, "DECODE_TIME" },
      { TL_USAGE_SLOT, "SLOT" }, { TL_USAGE_DRAFT, "DRAFT" });
NAMES(facts_flags, { TL_FACTS_UNREAD, "UNREAD" });
NAMES(resp_flags, { TL_RESP_ENCODED, "ENCODED" });
NAMES(member_flags, { TL_MEMBER_GUESS, "GUESS" }, { TL_MEMBER_AGAIN, "AGAIN" });
NAMES(net_flags, { TL_NET_POS, "POS" });
NAMES(file_flags, { TL_FILE_INCOMPLETE, "INCOMPLETE" }, { TL_FILE_RAW, "RAW" });
NAMES(tiers, { TL_T0, "T0" }, { TL_T1, "T1" }, { TL_T2, "T2" }, { TL_T3, "T3" });

NAMES(lost_wheres, { TL_LOST_RING, "ring" }, { TL_LOST_SCRATCH, "scratch" },
      { TL_LOST_PARSER, "parser" }, { TL_LOST_LIMIT, "limit" });
NAMES(engines, { TL_ENGINE_UNKNOWN, "unknown" }, { TL_ENGINE_LLAMA, "llama.cpp" },
      { TL_ENGINE_OLLAMA, "ollama" }, { TL_ENGINE_VLLM, "vllm" }, { TL_ENGINE_SGLANG, "sglang" },
      { TL_ENGINE_TGI, "tgi" }, { TL_ENGINE_TRTLLM, "trtllm" });
NAMES(proc_whats, { TL_PROC_FORK, "fork" }, { TL_PROC_EXEC, "exec" }, { TL_PROC_EXIT, "exit" },
      { TL_PROC_IO_URING, "io_uring" });
NAMES(conn_whats, { TL_CONN_OPEN, "open" }, { TL_CONN_CLOSE, "close" },
      { TL_CONN_PEER_CLOSE, "peer_close" }, { TL_CONN_TLS, "tls" });
NAMES(families, { 1, "unix" }, { 2, "inet" }, { 10, "inet6" });	/* AF_* of Linux */
NAMES(apis, { TL_API_OTHER, "other" }, { TL_API_CHAT, "chat" },
      { TL_API_COMPLETIONS, "completions" }, { TL_API_RESPONSES, "responses" },
      { TL_API_MESSAGES, "messages" }, { TL_API_LLAMA, "llama" },
      { TL_API_EMBEDDINGS, "embeddings" }, { TL_API_OLLAMA, "ollama" });
NAMES(methods, { TL_METHOD_OTHER, "other" }, { TL_GET, "GET" }, { TL_POST, "POST" },
      { TL_HEAD, "HEAD" }, { TL_PUT, "PUT" }, { TL_DELETE, "DELETE" }, { TL_OPTIONS, "OPTIONS" });
NAMES(bodies, { TL_BODY_OTHER, "other" }, { TL_BODY_SSE, "sse" }, { TL_BODY_JSON, "json" },
      { TL_BODY_JSONL, "jsonl" }, { TL_BODY_NONE, "none" });
NAMES(finishes, { TL_FINISH_UNKNOWN, "unknown" }, { TL_FINISH_STOP, "stop" },
      { TL_FINISH_LENGTH, "length" }, { TL_FINISH_TOOL, "tool" }, { TL_FINISH_ABORT, "abort" },
      { TL_FINISH_ERROR, "error" }, { TL_FINISH_FILTER, "filter" });
NAMES(ends, { TL_END_COMPLETE, "complete" }, { TL_END_CLIENT, "client" },
      { TL_END_SERVER, "server" }, { TL_END_LOST_SYNC, "lost_sync" },
      { TL_END_CAPTURE, "capture" }, { TL_END_LIMIT, "limit" });
NAMES(phases, { TL_PREFILL, "prefill" }, { TL_DECODE, "decode" });
NAMES(link_methods, { TL_LINK_TASK, "task" }, { TL_LINK_SLOT, "slot" },
      { TL_LINK_COUNTS, "counts" }, { TL_LINK_ORDER, "order" }, { TL_LINK_ID, "id" });
NAMES(seq_points, { TL_POINT_QUEUED, "queued" }, { TL_POINT_SCHEDULED, "scheduled" });
NAMES(stats_flags, { TL_STATS_QUEUES, "QUEUES" }, { TL_STATS_KV, "KV" },
      { TL_STATS_PREFIX, "PREFIX" }, { TL_STATS_SPEC, "SPEC" });
NAMES(stops, { TL_STOP_DONE, "done" }, { TL_STOP_SIGNAL, "signal" },
      { TL_STOP_TARGET_EXIT, "target_exit" }, { TL_STOP_ERROR, "error" },
      { TL_STOP_LIMIT, "limit" });
NAMES(dirs, { TL_IN, "in" }, { TL_OUT, "out" });
NAMES(sock_whats, { TL_SOCK_ACCEPT, "accept" }, { TL_SOCK_CONNECT, "connect" },
      { TL_SOCK_CLOSE, "close" }, { TL_SOCK_SHUTDOWN, "shutdown" }, { TL_SOCK_EOF, "eof" },
      { TL_SOCK_RESET, "reset" });
NAMES(task_whats, { TL_TASK_POST, "post" }, { TL_TASK_LAUNCH, "launch" },
      { TL_TASK_NEW_ID, "new_id" }, { TL_TASK_RELEASE, "release" },
      { TL_TASK_CANCEL, "cancel" });

/* ---- fields ---- */

static const struct event_field lost_fields[] = {
	F(tl_lost, n),
	F(tl_lost, since_ns),
	F(tl_lost, cpu),
	F_NAMED(tl_lost, where, lost_wheres),
	F(tl_lost, what),
};

static const struct event_field host_fields[] = {
	F(tl_host, realtime_ns),
	F(tl_host, clock_err_ns),
	F(tl_host, n_cpus),
	F_BITS(tl_host, tiers, tiers),
	F(tl_host, probes),
	F(tl_host, kernel),
	F(tl_host, hostname),
	F(tl_host, tool),
};

static const struct event_field engine_fields[] = {
	F(tl_engine, start_ns),
	F_NAMED(tl_engine, engine, engines),
	F_BITS(tl_engine, tiers, tiers),
	F(tl_engine, n_ports),
	F_PAD(tl_engine, pad),
	F(tl_engine, ports),
	F(tl_engine, version),
	F(tl_engine, role),
	F(tl_engine, step_source),
	F(tl_engine, server),
	F(tl_engine, max_step_tokens),
	F(tl_engine, max_seqs),
	F_PAD(tl_engine, pad2),
};

static const struct event_field proc_fields[] = {
	F_NAMED(tl_proc, what, proc_whats),
	F(tl_proc, parent),
	F(tl_proc, exit_code),
	F_PAD(tl_proc, pad),
};

static const struct event_field conn_fields[] = {
	F(tl_conn, conn),
	F_NAMED(tl_conn, what, conn_whats),
	F_NAMED(tl_conn, family, families),
	F(tl_conn, local_port),
	F(tl_conn, peer_port),
	F_PAD(tl_conn, pad),
	F(tl_conn, peer_addr),
};

static const struct event_field req_begin_fields[] = {
	F(tl_req_begin, req),
	F(tl_req_begin, conn),
	F(tl_req_begin, conn_open_ns),
};

static const struct event_field req_facts_fields[] = {
	F(tl_req_facts, req),
	F(tl_req_facts, max_tokens),
	F(tl_req_facts, body_bytes),
	F(tl_req_facts, n),
	F_NAMED(tl_req_facts, api, apis),
	F(tl_req_facts, stream),
	F_NAMED(tl_req_facts, method, methods),
	F_PAD(tl_req_facts, pad),
	F(tl_req_facts, path),
	F(tl_req_facts, model),
	F(tl_req_facts, x_request_id),
	F(tl_req_facts, traceparent),
};

static const struct event_field resp_begin_fields[] = {
	F(tl_resp_begin, req),
	F(tl_resp_begin, status),
	F_NAMED(tl_resp_begin, body, bodies),
	F_PAD(tl_resp_begin, pad),
};

static const struct event_field chunk_fields[] = {
	F(tl_chunk, req),
	F(tl_chunk, bytes),
	F(tl_chunk, n_tokens),
	F(tl_chunk, choice),
	F(tl_chunk, write_us),
};

static const struct event_field usage_fields[] = {
	F(tl_usage, req),
	F(tl_usage, prompt),
	F(tl_usage, cached),
	F(tl_usage, output),
	F(tl_usage, reasoning),
	F(tl_usage, draft),
	F(tl_usage, draft_accepted),
	F(tl_usage, slot),
	F(tl_usage, prefill_ns),
	F(tl_usage, decode_ns),
	F(tl_usage, choice),
	F_NAMED(tl_usage, finish, finishes),
	F_PAD(tl_usage, pad),
	F(tl_usage, id),
};

static const struct event_field req_end_fields[] = {
	F(tl_req_end, req),
	F_NAMED(tl_req_end, how, ends),
	F(tl_req_end, status),
	F(tl_req_end, bytes_in),
	F(tl_req_end, bytes_out),
};

static const struct event_field member_fields[] = {
	F(tl_member, slot),
	F(tl_member, n_tokens),
	F(tl_member, pos),
	F_NAMED(tl_member, phase, phases),
	F(tl_member, n_out),
	F_BITS(tl_member, flags, member_flags),
};
static const struct event_array members = {
	"members", sizeof(struct tl_member), TL_MAX_MEMBERS,
	member_fields, ARRAY_SIZE(member_fields),
};
static const struct event_field step_fields[] = {
	F(tl_step, end_ns),
	F(tl_step, n_tokens),
	F_COUNT(tl_step, n_members),
	F(tl_step, result),
};

static const struct event_field seq_begin_fields[] = {
	F(tl_seq_begin, slot),
	F(tl_seq_begin, kept),
};

static const struct event_field step_stats_fields[] = {
	F(tl_step_stats, running),
	F(tl_step_stats, waiting),
	F(tl_step_stats, kv_ppm),
	F(tl_step_stats, preempted),
	F(tl_step_stats, prefix_queries),
	F(tl_step_stats, prefix_hits),
	F(tl_step_stats, drafted),
	F(tl_step_stats, accepted),
};

static const struct event_field seq_point_fields[] = {
	F(tl_seq_point, slot),
	F_NAMED(tl_seq_point, point, seq_points),
};

static const struct event_field seq_preempt_fields[] = {
	F(tl_seq_preempt, slot),
	F(tl_seq_preempt, lost_tokens),
	F(tl_seq_preempt, resumed_ns),
	F(tl_seq_preempt, for_slot),
	F_PAD(tl_seq_preempt, pad),
};

static const struct event_field seq_end_fields[] = {
	F(tl_seq_end, slot),
	F_PAD(tl_seq_end, pad),
};

static const struct event_field seq_link_fields[] = {
	F(tl_seq_link, req),
	F(tl_seq_link, slot),
	F(tl_seq_link, task),
	F_NAMED(tl_seq_link, method, link_methods),
};

static const struct event_field self_fields[] = {
	F(tl_self, agent_cpu_ns),
	F(tl_self, bpf_ns),
	F(tl_self, bpf_runs),
	F(tl_self, events),
	F(tl_self, attach_ns),
	F(tl_self, detach_ns),
	F(tl_self, rss_bytes),
	F(tl_self, bpf_threads_ns),
};

static const struct event_field capture_end_fields[] = {
	F_NAMED(tl_capture_end, why, stops),
	F_PAD(tl_capture_end, pad),
};

static const struct event_array data = {
	"data", 1, TL_EVENT_MAX - sizeof(struct tl_raw_net), NULL, 0,
};
static const struct event_field raw_net_fields[] = {
	F(tl_raw_net, sock),
	F(tl_raw_net, dur_ns),
	F(tl_raw_net, fd),
	F(tl_raw_net, total),
	F_COUNT(tl_raw_net, head),
	F_COUNT(tl_raw_net, tail),
	F_NAMED(tl_raw_net, dir, dirs),
	F_NAMED(tl_raw_net, family, families),
	F(tl_raw_net, local_port),
	F(tl_raw_net, peer_port),
	F_PAD(tl_raw_net, pad),
	F(tl_raw_net, stream_pos),
};

static const struct event_array frame_data = {
	"data", 1, TL_EVENT_MAX - sizeof(struct tl_raw_zmq), NULL, 0,
};
static const struct event_field raw_zmq_fields[] = {
	F(tl_raw_zmq, sock),
	F(tl_raw_zmq, total),
	F_COUNT(tl_raw_zmq, head),
	F_NAMED(tl_raw_zmq, dir, dirs),
	F(tl_raw_zmq, has_more),
	F(tl_raw_zmq, unknown),
	F_PAD(tl_raw_zmq, pad),
};

static const struct event_field raw_sock_fields[] = {
	F(tl_raw_sock, sock),
	F(tl_raw_sock, fd),
	F_NAMED(tl_raw_sock, what, sock_whats),
	F_NAMED(tl_raw_sock, family, families),
	F(tl_raw_sock, how),
	F(tl_raw_sock, listening),
	F(tl_raw_sock, local_port),
	F(tl_raw_sock, peer_port),
	F_PAD(tl_raw_sock, pad),
	F(tl_raw_sock, peer_addr),
};

static const struct event_field raw_tcp_state_fields[] = {
	F(tl_raw_tcp_state, old_state),
	F(tl_raw_tcp_state, new_state),
	F(tl_raw_tcp_state, local_port),
	F(tl_raw_tcp_state, peer_port),
	F_NAMED(tl_raw_tcp_state, family, families),
	F_PAD(tl_raw_tcp_state, pad),
	F(tl_raw_tcp_state, peer_addr),
};

static const struct event_field raw_proc_fields[] = {
	F_NAMED(tl_raw_proc, what, proc_whats),
	F(tl_raw_proc, parent),
	F(tl_raw_proc, exit_code),
	F_PAD(tl_raw_proc, pad),
};

static const struct event_field raw_child_fields[] = {
	F_NAMED(tl_raw_child, what, proc_whats),
	F(tl_raw_child, owner),
	F(tl_raw_child, name),
};

static const struct event_field run_fields[] = {
	F(tl_llama_run, seq),
	F(tl_llama_run, n_tokens),
	F(tl_llama_run, pos),
	F(tl_llama_run, n_out),
};
static const struct event_array runs = {
	"runs", sizeof(struct tl_llama_run), TL_LLAMA_MAX_RUNS, run_fields, ARRAY_SIZE(run_fields),
};
static const struct event_field raw_llama_step_fields[] = {
	F(tl_raw_llama_step, end_ns),
	F(tl_raw_llama_step, ctx),
	F(tl_raw_llama_step, result),
	F(tl_raw_llama_step, n_tokens),
	F_COUNT(tl_raw_llama_step, n_runs),
	F(tl_raw_llama_step, api),
};

static const struct event_field raw_llama_seq_rm_fields[] = {
	F(tl_raw_llama_seq_rm, seq),
	F(tl_raw_llama_seq_rm, p0),
	F(tl_raw_llama_seq_rm, p1),
	F_PAD(tl_raw_llama_seq_rm, pad),
};

static const struct event_field raw_llama_task_fields[] = {
	F_NAMED(tl_raw_llama_task, what, task_whats),
	F(tl_raw_llama_task, task),
	F(tl_raw_llama_task, slot),
	F(tl_raw_llama_task, parent),
};

static const struct event_field word_fields[] = {
	{ "word", 0, 8, EVENT_U64, EVENT_VALUE, NULL },
};
static const struct event_array words = {
	"words", sizeof(__u64), TL_RAW_STACK_WORDS, word_fields, ARRAY_SIZE(word_fields),
};
static const struct event_field raw_stack_fields[] = {
	F(tl_raw_stack, busy_since_ns),
	F(tl_raw_stack, ip),
	F(tl_raw_stack, sp),
	F_COUNT(tl_raw_stack, n_words),
	F_PAD(tl_raw_stack, pad),
};

static const struct event_field raw_tcp_fields[] = {
	F(tl_raw_tcp, sock),
	F(tl_raw_tcp, since_ns),
	F(tl_raw_tcp, ack_ns),
	F(tl_raw_tcp, seq),
	F(tl_raw_tcp, bytes),
	F(tl_raw_tcp, fd),
	F(tl_raw_tcp, what),
	F(tl_raw_tcp, why),
	F(tl_raw_tcp, local_port),
	F(tl_raw_tcp, peer_port),
	F_PAD(tl_raw_tcp, pad),
};

static const struct event_field stint_fields[] = {
	F(tl_stint, start_ns),
	F(tl_stint, end_ns),
	F(tl_stint, cgroup),
	F(tl_stint, tgid),
	F(tl_stint, tid),
	F(tl_stint, name),
};
static const struct event_array stints = {
	"stints", sizeof(struct tl_stint), TL_RAW_MAX_STINTS, stint_fields, ARRAY_SIZE(stint_fields),
};
static const struct event_field raw_wait_fields[] = {
	F(tl_raw_wait, since_ns),
	F(tl_raw_wait, cpu),
	F(tl_raw_wait, from_cpu),
	F(tl_raw_wait, major_faults),
	F_COUNT(tl_raw_wait, n_stints),
	F_PAD(tl_raw_wait, pad),
};

static const struct event_field file_header_fields[] = {
	F_IMPLIED(tl_file_hdr, magic),
	F_IMPLIED(tl_file_hdr, hdr_size),
	F(tl_file_hdr, major),
	F(tl_file_hdr, minor),
	F_PAD(tl_file_hdr, pad),
	F_BITS(tl_file_hdr, flags, file_flags),
	F_BITS(tl_file_hdr, tiers, tiers),
	F(tl_file_hdr, probes),
	F(tl_file_hdr, mono_ns),
	F(tl_file_hdr, realtime_ns),
	F(tl_file_hdr, clock_err_ns),
	F(tl_file_hdr, hostname),
	F(tl_file_hdr, kernel),
	F(tl_file_hdr, tool),
};
const struct event_kind event_file_header = {
	TL_NONE, sizeof(struct tl_file_hdr), "recording",
	file_header_fields, ARRAY_SIZE(file_header_fields), NULL, NULL,
};

/* ---- kinds ---- */

static const struct event_kind kinds[] = {
	PLAIN(TL_LOST, lost),
	PLAIN(TL_HOST, host),
	KIND(TL_ENGINE, engine, engine_flags, NULL, sizeof(struct tl_engine)),
	PLAIN(TL_PROC, proc),
	PLAIN(TL_CONN, conn),
	PLAIN(TL_REQ_BEGIN, req_begin),
	KIND(TL_REQ_FACTS, req_facts, facts_flags, NULL, sizeof(struct tl_req_facts)),
	KIND(TL_RESP_BEGIN, resp_begin, resp_flags, NULL, sizeof(struct tl_resp_begin)),
	KIND(TL_CHUNK, chunk, chunk_flags, NULL, sizeof(struct tl_chunk)),
	KIND(TL_USAGE, usage, usage_flags, NULL, sizeof(struct tl_usage)),
	PLAIN(TL_REQ_END, req_end),
	KIND(TL_STEP, step, NULL, &members, offsetof(struct tl_step, members)),
	PLAIN(TL_SEQ_BEGIN, seq_begin),
	PLAIN(TL_SEQ_LINK, seq_link),
	PLAIN(TL_SELF, self),
	PLAIN(TL_CAPTURE_END, capture_end),
	PLAIN(TL_SEQ_END, seq_end),
	KIND(TL_STEP_STATS, step_stats, stats_flags, NULL, sizeof(struct tl_step_stats)),
	PLAIN(TL_SEQ_PREEMPT, seq_preempt),
	PLAIN(TL_SEQ_POINT, seq_point),
	/* TL_THREAD ... TL_CLAIM: event_evidence.c */
	KIND(TL_RAW_NET, raw_net, net_flags, &data, offsetof(struct tl_raw_net, data)),
	PLAIN(TL_RAW_SOCK, raw_sock),
	PLAIN(TL_RAW_TCP_STATE, raw_tcp_state),
	PLAIN(TL_RAW_PROC, raw_proc),
	{ TL_RAW_IO_URING, sizeof(struct tl_hdr), "raw_io_uring", NULL, 0, NULL, NULL },
	KIND(TL_RAW_ZMQ, raw_zmq, NULL, &frame_data, offsetof(struct tl_raw_zmq, data)),
	KIND(TL_RAW_LLAMA_STEP, raw_llama_step, NULL, &runs,
	     offsetof(struct tl_raw_llama_step, runs)),
	PLAIN(TL_RAW_LLAMA_SEQ_RM, raw_llama_seq_rm),
	PLAIN(TL_RAW_LLAMA_TASK, raw_llama_task),
	KIND(TL_RAW_STACK, raw_stack, NULL, &words, sizeof(struct tl_raw_stack)),
	PLAIN(TL_RAW_TCP, raw_tcp),
	KIND(TL_RAW_WAIT, raw_wait, NULL, &stints, sizeof(struct tl_raw_wait)),
	PLAIN(TL_RAW_CHILD, raw_child),
};

const struct event_kind *event_kind(uint16_t kind)
{
	/* semantic kinds have no holes, and replay asks for each event */
	if (kind - 1u < TL_THREAD - 1u)
		return &kinds[kind - 1u];
	if (kind - TL_THREAD + 0u < event_n_evidence_kinds)
		return &event_evidence_kinds[kind - TL_THREAD];
	for (size_t i = TL_THREAD - 1u; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].kind == kind)
			return &kinds[i];
	return NULL;
}

const struct event_kind *event_kind_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (strcasecmp(kinds[i].name, name) == 0)
			return &kinds[i];
	for (size_t i = 0; i < event_n_evidence_kinds; i++)
		if (strcasecmp(event_evidence_kinds[i].name, name) == 0)
			return &event_evidence_kinds[i];
	return NULL;
}
