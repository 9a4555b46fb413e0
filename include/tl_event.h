/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* The event ABI: what BPF programs, adapters, recordings and models say to each other. */
#ifndef TL_EVENT_H
#define TL_EVENT_H

#ifdef __bpf__
/* BPF programs get the __uN types from bpf/ktypes.h, which must come first. */
#else
#include <linux/types.h>
#endif

/*
 * Two families share one header.
 *
 * Semantic events (kinds below TL_RAW_FIRST) are all that a recording holds and all that the
 * model sees: ids, lengths, times and counts, never text of a prompt or an answer.
 *
 * Raw events (from TL_RAW_FIRST) go from BPF to the parsers and hold bytes of the wire. They
 * are parsed and dropped; only `record --raw` keeps them, and says so.
 *
 * Rules: numbers are explicit and only appended; a struct grows only at its end, and readers
 * take what `size` says, with zeros for what an older writer did not know; a reader skips
 * kinds it does not know and counts them. Everything is little endian and 8-byte aligned,
 * padding is a named field and zero.
 */
enum tl_kind {
	TL_NONE = 0,
	TL_LOST = 1,		/* events that we know we did not see */
	TL_HOST = 2,		/* the machine and the tool; first event of a capture */
	TL_ENGINE = 3,		/* an engine process that is observed */
	TL_PROC = 4,		/* a target process forked, executed, exited */
	TL_CONN = 5,		/* a connection opened or closed */
	TL_REQ_BEGIN = 6,	/* first byte of a request arrived: req_first_byte */
	TL_REQ_FACTS = 7,	/* the whole request was read:
				 * req_last_byte, and what it asks for */
	TL_RESP_BEGIN = 8,	/* response head was written: headers */
	TL_CHUNK = 9,		/* one event of a streamed answer was written */
	TL_USAGE = 10,		/* counts and times that the engine itself reports */
	TL_REQ_END = 11,	/* the exchange ended, well or not */
	TL_STEP = 12,		/* one engine step with its members */
	TL_SEQ_BEGIN = 13,	/* a slot starts a new prompt */
	TL_SEQ_LINK = 14,	/* evidence that ties a request, an engine task and a slot */
	TL_SELF = 15,		/* what the observer itself costs */
	TL_CAPTURE_END = 16,	/* capture stopped, and why; last event of a complete recording */
	TL_SEQ_END = 17,	/* a slot was freed */
	TL_STEP_STATS = 18,	/* what the engine says of its scheduler at the end of a step */
	TL_SEQ_PREEMPT = 19,	/* a sequence lost its place and what it had computed */
	TL_SEQ_POINT = 20,	/* the engine says when a sequence reached a point */

	/* Evidence for who slowed whom: tl_evidence.h. */
	TL_THREAD = 21,		/* a thread whose doings are recorded */
	TL_THREAD_SPAN = 22,	/* it waited for a CPU, slept, or ran for long */
	TL_THROTTLE = 23,	/* a cgroup used up its quota of CPU time */
	TL_CODE = 24,		/* in which code a thread spent a span on a CPU */
	TL_SEND_HELD = 25,	/* bytes were written and did not leave at once */
	TL_SEND_BLOCKED = 26,	/* a peer does not read */
	TL_DELIVERED = 27,	/* an answer reached a place behind the engine's socket */
	TL_GPU_STEP = 28,	/* what a device did for one step */
	TL_GPU_STATE = 29,	/* its clock and its neighbours */
	TL_GPU_HEALTH = 30,	/* how the collection of GPU records did */
	TL_CLOCK = 31,		/* a pair of clocks */
	TL_CLAIM = 32,		/* what another tool says of a request */

	/* GPUs, launch by launch: tl_gpu.h. */
	TL_GPU_LAUNCH = 33,	/* the host asked a device for something */
	TL_GPU_SPAN = 34,	/* a device did something */
	TL_GPU_NAME = 35,	/* the name of a kernel */

	TL_RAW_FIRST = 0x100,
	TL_RAW_NET = 0x100,	/* bytes read or written on a socket by a target */
	TL_RAW_SOCK = 0x101,	/* accept, connect, close, shutdown by a target */
	TL_RAW_TCP_STATE = 0x102, /* inet_sock_set_state of a watched port */
	TL_RAW_PROC = 0x103,	/* fork, exec, exit of a target */
	TL_RAW_IO_URING = 0x104, /* target created an io_uring: its socket traffic may be unseen */
	TL_RAW_TCP = 0x105,	/* what TCP did with bytes that a target wrote */
	TL_RAW_LLAMA_STEP = 0x110, /* one llama_process or llama_decode call */
	TL_RAW_LLAMA_SEQ_RM = 0x111, /* llama_memory_seq_rm */
	TL_RAW_LLAMA_TASK = 0x112, /* a task was posted, or launched on a slot */
	TL_RAW_ZMQ = 0x120,	/* a frame that a target handed to libzmq, or took from it */
	TL_RAW_STACK = 0x130,	/* a sample of a thread's stack */
	TL_RAW_WAIT = 0x131,	/* a thread wanted a CPU and had none:
				 * a tl_thread_span in the making */
	TL_RAW_CHILD = 0x132,	/* a program that a server's process has started */
};

struct tl_hdr {
	__u16 size;		/* whole record, bytes, multiple of 8 */
	__u16 kind;		/* enum tl_kind */
	__u32 flags;		/* per kind; TL_F_* are common to all */
	__u32 tgid, tid;	/* as the initial pid namespace numbers them; 0: not of a process */
	__u64 ts_ns;		/* CLOCK_MONOTONIC */
};

/* Common flags: the top byte of tl_hdr.flags. The rest belongs to each kind. */
enum tl_flag {
	TL_F_TRUNC = 1u << 31,	/* something was cut to fit the record */
	TL_F_GUESS = 1u << 30,	/* inferred, not observed; the kind says by which rule */
	TL_F_JOINED = 1u << 29,	/* was under way when the capture began */
};

/* ---- semantic events ---- */

enum tl_lost_where {
	TL_LOST_RING = 1,	/* the kernel ring buffer was full */
	TL_LOST_SCRATCH = 2,	/* a BPF map was full */
	TL_LOST_PARSER = 3,	/* bytes that fit no protocol we know,
				 * or a stream we lost sync of */
	TL_LOST_LIMIT = 4,	/* a bounded table of the agent was full */
};
struct tl_lost {
	struct tl_hdr hdr;	/* ts_ns: end of the span */
	__u64 n;		/* events */
	__u64 since_ns;		/* start of the span in which they were lost */
	__u32 cpu;		/* where == TL_LOST_RING: the processor */
	__u16 where;		/* enum tl_lost_where */
	__u16 what;		/* enum tl_kind that was lost, 0: unknown or mixed */
};

struct tl_host {
	struct tl_hdr hdr;
	__u64 realtime_ns;	/* CLOCK_REALTIME at ts_ns, to show wall time */
	__u64 clock_err_ns;	/* half the width of the bracket in which the pair was read */
	__u32 n_cpus;
	__u32 tiers;		/* enum tl_tier bits that the capture was allowed */
	__u64 probes;		/* bit i: probe i of the table in source/probes.c was on */
	char kernel[64];	/* uname -r */
	char hostname[64];
	char tool[32];		/* version of tokenlag */
};

enum tl_tier { TL_T0 = 1, TL_T1 = 2, TL_T2 = 4, TL_T3 = 8 };

enum tl_engine_kind {		/* append only */
	TL_ENGINE_UNKNOWN = 0,	/* speaks HTTP, but is no engine we know: wire only */
	TL_ENGINE_LLAMA = 1,	/* llama.cpp: llama-server and programs that embed it */
	TL_ENGINE_OLLAMA = 2,	/* Ollama's Go front; its runner is a TL_ENGINE_LLAMA */
	TL_ENGINE_VLLM = 3,
	TL_ENGINE_SGLANG = 4,
	TL_ENGINE_TGI = 5,
	TL_ENGINE_TRTLLM = 6,
};
enum tl_engine_flag { TL_ENGINE_PRIORITY = 1 };	/* in tl_hdr.flags: it serves by
						 * priority, not in order of arrival */
struct tl_engine {
	struct tl_hdr hdr;	/* tgid: the process */
	__u64 start_ns;		/* when the process started */
	__u16 engine;		/* enum tl_engine_kind */
	__u16 tiers;		/* enum tl_tier bits attached to this process */
	__u16 n_ports;
	__u16 pad;
	__u16 ports[8];		/* listening TCP ports, as the process sees them */
	char version[48];	/* as found, "" if unknown */
	char role[32];		/* "server", "api", "engine-core", "worker", "front" ... */
	char step_source[48];	/* how steps are seen: "uprobe llama_process",
				 * "none: stripped" ... */
	__u32 server;		/* tgid of the first process of its server: its own for most */
	__u32 max_step_tokens;	/* most tokens in one step (vLLM:
				 * --max-num-batched-tokens), 0: unknown */
	__u32 max_seqs;		/* most sequences in one step, 0: unknown */
	__u32 pad2;
};

enum tl_proc_what {
	TL_PROC_FORK = 1, TL_PROC_EXEC = 2, TL_PROC_EXIT = 3,
	TL_PROC_IO_URING = 4,	/* set up an io_uring: socket traffic through it is not seen */
};
struct tl_proc {
	struct tl_hdr hdr;	/* tgid: the process that is concerned (the child of a fork) */
	__u32 what;		/* enum tl_proc_what */
	__u32 parent;		/* tgid */
	__u32 exit_code;	/* as wait(2) reports it */
	__u32 pad;
};

enum tl_conn_what {
	TL_CONN_OPEN = 1,	/* TCP handshake done, or accept() for the rest */
	TL_CONN_CLOSE = 2,	/* the target closed it */
	TL_CONN_PEER_CLOSE = 3,	/* the peer closed or reset it */
	TL_CONN_TLS = 4,	/* what it carries is encrypted: not read */
};
struct tl_conn {
	struct tl_hdr hdr;
	__u32 conn;		/* number of the connection in this capture, from 1 */
	__u8 what;		/* enum tl_conn_what */
	__u8 family;		/* AF_INET, AF_INET6, AF_UNIX */
	__u16 local_port, peer_port;	/* host order; 0 for unix */
	__u16 pad[3];
	__u8 peer_addr[16];	/* v4 in the first 4 bytes */
};

struct tl_req_begin {
	struct tl_hdr hdr;	/* TL_F_JOINED: its head was not seen,
				 * times before this are unknown */
	__u32 req;		/* number of the request in this capture, from 1 */
	__u32 conn;
	__u64 conn_open_ns;	/* TCP handshake done, 0 if not seen;
				 * same for each request of a conn */
};

enum tl_api {			/* which wire format the request speaks; append only */
	TL_API_OTHER = 0,	/* /health, /metrics, static pages ... */
	TL_API_CHAT = 1,	/* OpenAI /v1/chat/completions */
	TL_API_COMPLETIONS = 2,	/* OpenAI /v1/completions */
	TL_API_RESPONSES = 3,	/* OpenAI /v1/responses */
	TL_API_MESSAGES = 4,	/* Anthropic /v1/messages */
	TL_API_LLAMA = 5,	/* llama.cpp /completion, /completions, /infill */
	TL_API_EMBEDDINGS = 6,	/* embeddings and rerank: a prompt, no output tokens */
	TL_API_OLLAMA = 7,	/* Ollama /api/generate, /api/chat: JSON lines */
};
enum tl_facts_flag {		/* low bits of tl_hdr.flags */
	TL_FACTS_UNREAD = 1 << 0, /* the request ended before all of it was read: ts_ns is
				   * no req_last_byte, and some facts may be missing */
};
struct tl_req_facts {
	struct tl_hdr hdr;	/* TL_F_TRUNC: body was cut, some facts may be missing */
	__u32 req;
	__s32 max_tokens;	/* -1: not said */
	__u64 body_bytes;
	__u16 n;		/* parallel answers asked for; 0: not said (means 1) */
	__u8 api;		/* enum tl_api */
	__s8 stream;		/* 1, 0, -1: not said (means 0) */
	__u8 method;		/* enum tl_method */
	__u8 pad[3];
	char path[64];		/* without query */
	char model[64];
	char x_request_id[64];
	char traceparent[56];	/* W3C, "" if none */
};
enum tl_method {
	TL_METHOD_OTHER = 0, TL_GET = 1, TL_POST = 2, TL_HEAD = 3, TL_PUT = 4, TL_DELETE = 5,
	TL_OPTIONS = 6,
};

enum tl_resp_flag {		/* low bits of tl_hdr.flags */
	TL_RESP_ENCODED = 1 << 0, /* compressed: what is in its body was not seen */
};
struct tl_resp_begin {
	struct tl_hdr hdr;	/* ts_ns: the write that held the end of the response head */
	__u32 req;
	__u16 status;		/* HTTP status */
	__u8 body;		/* enum tl_body */
	__u8 pad;
};
enum tl_body {
	TL_BODY_OTHER = 0, TL_BODY_SSE = 1, TL_BODY_JSON = 2, TL_BODY_JSONL = 3, TL_BODY_NONE = 4,
};

/* What a streamed event carries: the low bits of tl_hdr.flags. Several may be set. */
enum tl_chunk_flag {
	TL_CHUNK_ROLE = 1 << 0,	/* announces the speaker; no token */
	TL_CHUNK_TEXT = 1 << 1,	/* text of the answer */
	TL_CHUNK_EMPTY = 1 << 2, /* "" where text would be: a token without text, or none at all */
	TL_CHUNK_REASONING = 1 << 3,
	TL_CHUNK_TOOL = 1 << 4,	/* a piece of a tool call */
	TL_CHUNK_PROGRESS = 1 << 5, /* prompt progress; no token */
	TL_CHUNK_USAGE = 1 << 6, /* carries counts; a TL_USAGE follows */
	TL_CHUNK_FINISH = 1 << 7, /* carries the finish reason */
	TL_CHUNK_DONE = 1 << 8,	/* [DONE] or its like */
	TL_CHUNK_ERROR = 1 << 9,
	TL_CHUNK_OTHER = 1 << 10, /* pings, stream bookkeeping */
	/* any of these is a token for the wire; EMPTY alone only if the engine says so */
	TL_CHUNK_TOKEN = TL_CHUNK_TEXT | TL_CHUNK_REASONING | TL_CHUNK_TOOL,
};
struct tl_chunk {
	struct tl_hdr hdr;	/* ts_ns: the write that held its last byte was begun */
	__u32 req;
	__u32 bytes;		/* of the event's data */
	__u32 n_tokens;		/* if the chunk itself says, else 0: unknown */
	__u16 choice;		/* index among n */
	__u16 write_us;		/* how long that write took; saturates */
};

/* Which fields of tl_usage are known: the low bits of tl_hdr.flags. */
enum tl_usage_flag {
	TL_USAGE_PROMPT = 1 << 0,
	TL_USAGE_CACHED = 1 << 1,
	TL_USAGE_OUTPUT = 1 << 2,
	TL_USAGE_REASONING = 1 << 3,
	TL_USAGE_PREFILL_TIME = 1 << 4,
	TL_USAGE_DECODE_TIME = 1 << 5,
	TL_USAGE_SLOT = 1 << 6,
	TL_USAGE_DRAFT = 1 << 7,
};
enum tl_finish {		/* append only */
	TL_FINISH_UNKNOWN = 0, TL_FINISH_STOP = 1, TL_FINISH_LENGTH = 2, TL_FINISH_TOOL = 3,
	TL_FINISH_ABORT = 4, TL_FINISH_ERROR = 5, TL_FINISH_FILTER = 6,
};
struct tl_usage {
	struct tl_hdr hdr;
	__u32 req;
	__u32 prompt;		/* tokens of the prompt, cached ones included */
	__u32 cached;		/* of these, not computed again */
	__u32 output;
	__u32 reasoning;	/* part of output */
	__u32 draft, draft_accepted;
	__s32 slot;
	__u64 prefill_ns, decode_ns;	/* as the engine measured them */
	__u16 choice;
	__u8 finish;		/* enum tl_finish */
	__u8 pad[5];
	char id[64];		/* id that the engine gave the answer, "" if none */
};

enum tl_end {
	TL_END_COMPLETE = 1,	/* the response ended as HTTP says it should */
	TL_END_CLIENT = 2,	/* the client went away first */
	TL_END_SERVER = 3,	/* the server closed before the response was whole */
	TL_END_LOST_SYNC = 4,	/* we can no longer follow the connection */
	TL_END_CAPTURE = 5,	/* the capture stopped first */
	TL_END_LIMIT = 6,	/* evicted from a bounded table */
};
struct tl_req_end {
	struct tl_hdr hdr;
	__u32 req;
	__u16 how;		/* enum tl_end */
	__u16 status;		/* HTTP status, 0: none was sent */
	__u64 bytes_in, bytes_out;
};

enum tl_phase { TL_PREFILL = 1, TL_DECODE = 2 };
struct tl_member {
	__u32 slot;		/* what the engine schedules: a slot,
				 * or a number of the adapter's */
	__u32 n_tokens;		/* computed in this step */
	__s32 pos;		/* position of the first of them, -1: unknown */
	__u8 phase;		/* enum tl_phase */
	__u8 n_out;		/* of these, how many yield logits (0
				 * on all but the last prefill step) */
	__u16 flags;		/* TL_MEMBER_* */
};
enum tl_member_flag {
	TL_MEMBER_GUESS = 1,	/* phase or tokens are inferred */
	TL_MEMBER_AGAIN = 2,	/* prefill of what was computed before and lost to a preemption */
};
enum { TL_MAX_MEMBERS = 2048 };
struct tl_step {
	struct tl_hdr hdr;	/* ts_ns: begin; tid: the thread that runs the engine loop */
	__u64 end_ns;
	__u32 n_tokens;		/* of all members */
	__u16 n_members;
	__s16 result;		/* 0: done; else the engine's own code, nothing was computed */
	struct tl_member members[];
};

struct tl_seq_begin {
	struct tl_hdr hdr;	/* TL_F_JOINED: it was there before, this is its first sign */
	__u32 slot;
	__s32 kept;		/* tokens of the prompt taken from the cache, -1: unknown */
};

struct tl_seq_end {
	struct tl_hdr hdr;
	__u32 slot;
	__u32 pad;
};

enum tl_link_method {		/* append only; by falling trust */
	TL_LINK_TASK = 1,	/* the engine's own task number, seen on both sides */
	TL_LINK_SLOT = 2,	/* the response named its slot */
	TL_LINK_COUNTS = 3,	/* token counts and order fit one pairing only */
	TL_LINK_ORDER = 4,	/* order of arrival; other pairings fit too */
	TL_LINK_ID = 5,		/* the response's id is the engine's: joins what is on the slot */
};
struct tl_seq_link {
	struct tl_hdr hdr;	/* with req: the request was handed to the engine (submit) */
	__u32 req;		/* 0: this event does not say */
	__s32 slot;		/* -1: this event does not say */
	__s32 task;		/* number in the engine, -1: none */
	__u32 method;		/* enum tl_link_method */
};

/* Which fields of tl_step_stats are known: the low bits of tl_hdr.flags. */
enum tl_stats_flag {
	TL_STATS_QUEUES = 1 << 0,	/* running, waiting */
	TL_STATS_KV = 1 << 1,
	TL_STATS_PREFIX = 1 << 2,
	TL_STATS_SPEC = 1 << 3,
};
struct tl_step_stats {
	struct tl_hdr hdr;	/* ts_ns: end of the step; tgid: the engine process */
	__u32 running, waiting;	/* sequences */
	__u32 kv_ppm;		/* of the KV cache in use, parts per million */
	__u32 preempted;	/* sequences that lost their place and begin anew in this step */
	__u64 prefix_queries;	/* prompt tokens of sequences first scheduled in this step ... */
	__u64 prefix_hits;	/* ... and how many of them came from the prefix cache */
	__u32 drafted, accepted;	/* speculative tokens */
};

struct tl_seq_preempt {
	struct tl_hdr hdr;	/* ts_ns: when it lost its place */
	__u32 slot;
	__u32 lost_tokens;	/* computed, and to be computed again */
	__u64 resumed_ns;	/* scheduled again; 0: not yet */
	__u32 for_slot;		/* whose growth took its place, plus
				 * 1; 0: the engine does not say */
	__u32 pad;
};

enum tl_seq_point_what { TL_POINT_QUEUED = 1, TL_POINT_SCHEDULED = 2 };
struct tl_seq_point {
	struct tl_hdr hdr;	/* ts_ns: that time, by the engine's own clock */
	__u32 slot;
	__u32 point;		/* enum tl_seq_point_what */
};

struct tl_self {
	struct tl_hdr hdr;
	__u64 agent_cpu_ns;	/* user + system, since the start */
	__u64 bpf_ns;		/* run time of all our programs, 0 if bpf_stats is off */
	__u64 bpf_runs;
	__u64 events;		/* raw events taken from the kernel */
	__u64 attach_ns, detach_ns;	/* 0: not yet */
	__u64 rss_bytes;
	__u64 bpf_threads_ns;	/* of bpf_ns: of programs that watch threads;
				 * goes by context switches, not by tokens */
};

enum tl_stop {
	TL_STOP_DONE = 1, TL_STOP_SIGNAL = 2, TL_STOP_TARGET_EXIT = 3, TL_STOP_ERROR = 4,
	TL_STOP_LIMIT = 5,
};
struct tl_capture_end {
	struct tl_hdr hdr;
	__u32 why;		/* enum tl_stop */
	__u32 pad;
};

/* ---- raw events: BPF to parsers ---- */

enum tl_target_mode {		/* which sockets of a process are of interest */
	TL_TARGET_ALL = 0,
	TL_TARGET_HTTP = 1,	/* no engine's wire: it is seen at its other end */
	TL_TARGET_WIRE = 2,	/* an engine's own wire is kept whole: unix
				 * sockets, and TCP ones on which ZMTP is spoken */
	TL_TARGET_QUIET = 3,	/* no sockets: probes in the process show its wire */
};

enum tl_net_flag { TL_NET_POS = 1 };	/* in tl_hdr.flags: stream_pos is known */
enum tl_dir { TL_IN = 1, TL_OUT = 2 };	/* as the target sees it: IN = it read */
struct tl_raw_net {
	struct tl_hdr hdr;	/* IN: the call returned; OUT: the call was entered */
	__u64 sock;		/* inode number of the socket: unique in a host while it is open */
	__u64 dur_ns;		/* OUT: from entry to return; IN: since the kernel had the last of
				 * these bytes, 0: unknown */
	__s32 fd;
	__u32 total;		/* bytes moved: the call's result */
	__u16 head;		/* the first bytes, copied to data[] */
	__u16 tail;		/* the last bytes, copied behind them;
				 * total - head - tail are missing */
	__u8 dir;		/* enum tl_dir */
	__u8 family;		/* AF_* */
	__u16 local_port, peer_port;	/* host order; 0 for unix */
	__u16 pad;
	__u32 stream_pos;	/* TL_NET_POS: TCP's own count of the stream behind
				 * these bytes, modulo 2^32 (write_seq, copied_seq):
				 * a jump shows bytes that nobody saw */
	__u8 data[];		/* head + tail bytes, then zeros up to size */
};

enum tl_sock_what {
	TL_SOCK_ACCEPT = 1, TL_SOCK_CONNECT = 2, TL_SOCK_CLOSE = 3, TL_SOCK_SHUTDOWN = 4,
	TL_SOCK_EOF = 5, TL_SOCK_RESET = 6,
};
struct tl_raw_sock {
	struct tl_hdr hdr;
	__u64 sock;
	__s32 fd;
	__u8 what;		/* enum tl_sock_what; EOF: a read returned 0;
				 * RESET: a call failed with ECONNRESET or EPIPE */
	__u8 family;
	__u8 how;		/* SHUTDOWN: SHUT_RD, SHUT_WR, SHUT_RDWR;
				 * CLOSE: 1: others hold it open */
	__u8 listening;		/* 1: a listening socket */
	__u16 local_port, peer_port;
	__u32 pad;
	__u8 peer_addr[16];
};

struct tl_raw_tcp_state {
	struct tl_hdr hdr;	/* in softirq: tgid and tid are 0 */
	__u16 old_state, new_state;	/* TCP_* of the kernel */
	__u16 local_port, peer_port;
	__u16 family;
	__u16 pad[3];
	__u8 peer_addr[16];
};

struct tl_raw_proc {		/* same shape as tl_proc */
	struct tl_hdr hdr;
	__u32 what;
	__u32 parent;
	__u32 exit_code;
	__u32 pad;
};

/* A run of consecutive tokens of one sequence in a batch. */
struct tl_llama_run {
	__s32 seq;
	__u32 n_tokens;
	__s32 pos;		/* of the first token, -1: unknown */
	__u32 n_out;		/* tokens with logits asked for */
};
enum { TL_LLAMA_MAX_RUNS = 64 };
struct tl_raw_llama_step {
	struct tl_hdr hdr;	/* ts_ns: entry of llama_process or llama_decode */
	__u64 end_ns;		/* its return */
	__u64 ctx;		/* llama_context pointer: tells target from draft model */
	__s32 result;
	__u32 n_tokens;		/* all of the batch, also what did not fit into runs */
	__u32 n_runs;
	__u32 api;		/* 1: llama_process, 2: llama_decode */
	struct tl_llama_run runs[TL_LLAMA_MAX_RUNS];	/* n_runs of them are sent */
};

struct tl_raw_llama_seq_rm {
	struct tl_hdr hdr;
	__s32 seq, p0, p1;
	__u32 pad;
};

enum tl_llama_task_what {
	TL_TASK_POST = 1,	/* request thread hands tasks to the
				 * engine; task: the first one's id */
	TL_TASK_LAUNCH = 2,	/* engine thread starts a task on a slot */
	TL_TASK_NEW_ID = 3,	/* request thread took a task id */
	TL_TASK_RELEASE = 4,	/* engine thread frees a slot; task: -1 */
	TL_TASK_CANCEL = 5,	/* request thread cancels a task */
};
struct tl_raw_llama_task {
	struct tl_hdr hdr;	/* POST, NEW_ID, CANCEL: tid is the thread that read the request */
	__u32 what;		/* enum tl_llama_task_what */
	__s32 task;
	__s32 slot;		/* LAUNCH, RELEASE; else -1 */
	__s32 parent;		/* LAUNCH: task whose prompt it shares (n > 1), else -1 */
};

struct tl_raw_zmq {		/* one frame of a ZeroMQ message */
	struct tl_hdr hdr;	/* IN: the call returned; OUT: it was
				 * entered. tid: the thread that called */
	__u64 sock;		/* address of libzmq's socket: unique
				 * in the process while it is open */
	__u64 total;		/* bytes of the frame */
	__u32 head;		/* the first of them, in data[] */
	__u8 dir;		/* enum tl_dir */
	__u8 has_more;		/* 1: another frame of the same message follows */
	__u8 unknown;		/* 1: a layout of zmq_msg_t that we do
				 * not know: nothing else is true */
	__u8 pad;
	__u8 data[];		/* head bytes, then zeros up to size */
};

#include "tl_evidence.h"
#include "tl_gpu.h"

#define TL_EVENT_MAX (64 * 1024 - 8)	/* bytes; tl_hdr.size is 16 bits */

_Static_assert(sizeof(struct tl_hdr) == 24, "ABI");
_Static_assert(sizeof(struct tl_lost) == 48, "ABI");
_Static_assert(sizeof(struct tl_conn) == 56, "ABI");
_Static_assert(sizeof(struct tl_req_begin) == 40, "ABI");
_Static_assert(sizeof(struct tl_req_facts) == 24 + 24 + 248, "ABI");
_Static_assert(sizeof(struct tl_resp_begin) == 32, "ABI");
_Static_assert(sizeof(struct tl_chunk) == 40, "ABI");
_Static_assert(sizeof(struct tl_usage) == 24 + 32 + 16 + 8 + 64, "ABI");
_Static_assert(sizeof(struct tl_req_end) == 48, "ABI");
_Static_assert(sizeof(struct tl_member) == 16, "ABI");
_Static_assert(sizeof(struct tl_step) == 40, "ABI");
_Static_assert(sizeof(struct tl_step_stats) == 24 + 40, "ABI");
_Static_assert(sizeof(struct tl_seq_preempt) == 48, "ABI");
_Static_assert(sizeof(struct tl_raw_net) == 24 + 40, "ABI");
_Static_assert(sizeof(struct tl_raw_sock) == 64, "ABI");
_Static_assert(sizeof(struct tl_raw_zmq) == 48, "ABI");
_Static_assert(sizeof(struct tl_raw_llama_step) == 56 + 16 * TL_LLAMA_MAX_RUNS, "ABI");

#endif
