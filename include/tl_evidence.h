/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only OR BSD-2-Clause */
/* Evidence for who slowed whom: part of the event ABI, included by tl_event.h only. */
#ifndef TL_EVIDENCE_H
#define TL_EVIDENCE_H

/*
 * Semantic events, kinds 21 and up. They say what was seen of threads, sockets and devices; which
 * token waited for it is the model's to find out (agent/model/blame.h). Names are those of threads,
 * cgroups and functions of code, never text of a prompt or an answer.
 */

enum tl_thread_role {		/* append only */
	TL_ROLE_OTHER = 0,
	TL_ROLE_ENGINE = 1,	/* runs the engine loop: schedules, prepares input, samples */
	TL_ROLE_FRONT = 2,	/* reads requests and writes answers: HTTP server, event loop */
	TL_ROLE_DETOKENIZER = 3,
	TL_ROLE_ZMQ = 4,	/* carries messages between front end and engine */
	TL_ROLE_LAUNCH = 5,	/* launches GPU work */
	TL_ROLE_COMPUTE = 6,	/* computes steps together with others of its kind, on a CPU */
	TL_ROLE_PROXY = 7,	/* of a proxy on this host that stands before the engine */
};
struct tl_thread {		/* a thread whose doings are recorded */
	struct tl_hdr hdr;	/* tgid, tid */
	__u16 role;		/* enum tl_thread_role */
	__s16 rank;		/* of tensor parallelism, -1: none or not known */
	__u32 server;		/* tgid of the first process of its server */
	__u64 cgroup;		/* id of its cgroup (inode number), 0: not known */
	char name[16];		/* comm */
	char cgroup_path[96];	/* "" if not known; its end if it is longer */
};

enum tl_span_state {		/* append only */
	TL_SPAN_RUN = 1,	/* on a CPU all the time; only spans
				 * without a break that are long */
	TL_SPAN_RUNNABLE = 2,	/* wanted a CPU and had none */
	TL_SPAN_SLEEP = 3,
};
enum tl_wait {			/* what a sleep was for; append only */
	TL_WAIT_OTHER = 0, TL_WAIT_FUTEX = 1, TL_WAIT_POLL = 2, TL_WAIT_SOCKET = 3, TL_WAIT_GPU = 4,
	TL_WAIT_DISK = 5,	/* page in, file */
	TL_WAIT_PIPE = 6,
	TL_WAIT_STOPPED = 7,	/* by a signal, a debugger or a cgroup's freezer */
};
enum tl_span_flag { TL_SPAN_IDLE_CPU = 1, TL_SPAN_MIGRATED = 2 };	/* in tl_hdr.flags */
/* RUNNABLE: TL_SPAN_IDLE_CPU: the CPU was idle meanwhile, so it was not
 * allowed to run (throttled). */
struct tl_thread_span {
	struct tl_hdr hdr;	/* tgid, tid: the thread; ts_ns: the span's end */
	__u64 since_ns;
	__u16 state;		/* enum tl_span_state */
	__u16 wait;		/* SLEEP: enum tl_wait */
	__u16 cpu, from_cpu;	/* where it runs behind the span, and ran before */
	/* RUNNABLE: who had its CPU for most of the span. SLEEP: the thread that ended it. */
	__u32 by_tgid, by_tid;	/* 0: not known */
	__u64 by_ns;		/* RUNNABLE: of the span, for how long; SLEEP: for how long that
				 * thread had then run without a sleep, up to the span's length */
	__u64 by_cgroup;	/* id; 0: not known */
	char by_name[16];	/* comm */
	__u32 major_faults;	/* of the thread in the span */
	__u32 pad;
};

struct tl_throttle {		/* a cgroup's processes were kept from
				 * running: cpu.stat, CFS bandwidth */
	struct tl_hdr hdr;	/* ts_ns: end of the interval between two looks at it */
	__u64 since_ns;
	__u64 cgroup;		/* id */
	__u64 throttled_ns;	/* in the interval, as the kernel counts it */
	__u32 n_throttled;	/* periods in it that were throttled */
	__u32 n_periods;
	__u64 quota_us, period_us;	/* cpu.max; quota 0: none */
	/* who used most of the quota meanwhile: threads of one process with one name */
	__u32 by_tgid, by_threads;	/* 0: not known */
	__u64 by_ns;		/* CPU time of these threads in the interval */
	char by_name[16];
	char path[96];
};

enum tl_code_kind {		/* append only */
	TL_CODE_OTHER = 0,	/* known by its name only */
	TL_CODE_GC = 1,		/* garbage collector */
	TL_CODE_TOKENIZER = 2, TL_CODE_DETOKENIZER = 3,
	TL_CODE_GRAMMAR = 4,	/* structured output: compiles or walks a grammar */
	TL_CODE_REGEX = 5,
	TL_CODE_COMPILE = 6,	/* JIT, module load, first use of a shape */
	TL_CODE_METRICS = 7,	/* answers a scrape */
	TL_CODE_LAUNCH = 8,	/* launches GPU work */
	TL_CODE_KERNEL = 9,	/* in the operating system's kernel */
	TL_CODE_JSON = 10,	/* parses or writes JSON */
	TL_CODE_TEMPLATE = 11,	/* renders a chat template */
};
struct tl_code {		/* where a thread was while on a CPU, from
				 * samples of its stack; it did not sleep */
	struct tl_hdr hdr;	/* tgid, tid; ts_ns: end of the span */
	__u64 since_ns;
	__u16 code;		/* enum tl_code_kind */
	__u16 n_samples;	/* in the span, of this kind ... */
	__u16 of_samples;	/* ... out of so many */
	__u16 pad;
	__u32 req;		/* the request that it worked on, 0: not known */
	__u32 pad2;
	char frame[64];		/* the frame that tells: function, "file.py:function", or library */
};

enum tl_held_why {		/* append only */
	TL_HELD_NAGLE = 1,	/* small, TCP_NODELAY off, bytes before it not acknowledged */
	TL_HELD_CORK = 2,	/* TCP_CORK or MSG_MORE */
	TL_HELD_WINDOW = 3,	/* the peer has no room: it does not read */
	TL_HELD_CONGESTION = 4,
	TL_HELD_RETRANSMIT = 5,	/* lost and sent again: an event per time,
				 * since it was last sent (or written) */
	TL_HELD_OTHER = 6,
};
/*
 * One event for writes that left together: spans of one socket overlap where a queue drains bit by
 * bit, and the reason is that of the first of these writes. A span below 0.1 ms is not told.
 * TL_F_TRUNC: they had not left when the capture ended; TL_F_GUESS: they left before ts_ns. A
 * proxy's own socket (tgid is the proxy's, conn 0) is told with the engine's request.
 */
struct tl_send_held {		/* bytes that were written to a socket and did not leave at once */
	struct tl_hdr hdr;	/* tgid; ts_ns: when the last of them left */
	__u64 since_ns;		/* when the write of the first of them began */
	__u64 ack_ns;		/* when the peer's acknowledgement came
				 * that let them go; 0: none did */
	__u32 conn;
	__u32 req;		/* 0: not known */
	__u32 bytes;
	__u16 n_writes;
	__u16 why;		/* enum tl_held_why */
	__s32 fd;		/* -1: not known */
	__u16 local_port, peer_port;
	__u32 retransmits;
	__u32 pad;
};

/* From the first write that found no room to the last, as long as the peer had not acknowledged all
 * between. TL_F_TRUNC: there was no room yet when the capture ended. */
struct tl_send_blocked {	/* the peer took less than was written: a slow reader */
	struct tl_hdr hdr;	/* tgid; ts_ns: room again, or the end of a long wait */
	__u64 since_ns;		/* the first write that found no room (or was cut short) */
	__u64 drained_ns;	/* when the peer had acknowledged all, 0: not seen */
	__u32 conn, req;
	__u64 app_queue_bytes;	/* most that waited inside the process, 0: not known */
	__u64 kernel_bytes;	/* most that this host's kernel had and
				 * the peer's had not acknowledged */
};

enum tl_delivered_by { TL_BY_ACK = 1, TL_BY_PROXY = 2, TL_BY_CLIENT = 3 };	/* who says so */
/* PROXY: one event for each write to its client that ends a chunk, when it left. Where it compresses
 * with anything but gzip, one event only: it handed on everything. TL_F_GUESS: the request is told
 * by connection, length and order, not by the answer's id. */
struct tl_delivered {		/* an answer reached a place behind the engine's socket */
	struct tl_hdr hdr;	/* ts_ns: when. PROXY: tgid */
	__u32 req;
	__u32 n_chunks;		/* of its chunks so far (all kinds, in order) */
	__u64 n_bytes;		/* of its response so far, 0: not known */
	__u16 by;		/* enum tl_delivered_by */
	__u16 pad[3];
	char name[16];		/* of the proxy or the client, "" if not known */
};

enum tl_graph { TL_GRAPH_NONE = 0, TL_GRAPH_HIT = 1, TL_GRAPH_MISS = 2, TL_GRAPH_PADDED = 3 };
enum tl_gpu_step_flag { TL_GPU_OPEN = 1, TL_GPU_COLD = 2 };	/* in tl_hdr.flags */
struct tl_gpu_step {		/* what a device did for one engine step; TL_GPU_OPEN: it had
				 * not ended; TL_GPU_COLD: code was compiled or loaded for it */
	struct tl_hdr hdr;	/* tgid: the process of the rank; ts_ns: begin of the step */
	__u64 end_ns;
	__u64 busy_ns;		/* union of what ran on the device, collectives included */
	__u64 collective_ns;	/* of that in collectives ... */
	__u64 transfer_ns;	/* ... and of that moving data, as far
				 * as known: the least of all ranks */
	__u64 copy_ns;		/* host to device and back, outside of busy kernels */
	__u64 late_ns;		/* how much later than the other ranks
				 * its host had the work ready */
	__u32 launches, graph_launches;
	__u16 rank, device;
	__u16 graph;		/* enum tl_graph */
	__u16 padded_to;	/* captured batch size that was replayed, 0: not known */
	__u16 batch;		/* sequences in it, 0: not known */
	__u16 pad[3];
};

enum tl_gpu_why { TL_GPU_POWER = 1, TL_GPU_THERMAL = 2, TL_GPU_NEIGHBOUR = 4 };	/* bits */
/* TL_GPU_SIMULATED as in tl_gpu_health. TL_F_GUESS: which device that is follows from the environment
 * that the process was started with. */
struct tl_gpu_state {		/* how fast a device could be, and who else used it */
	struct tl_hdr hdr;	/* tgid: a process that is on it, 0: all
				 * number it so; ts_ns: end of the span */
	__u64 since_ns;
	__u32 device;		/* as that process numbers it */
	__u32 clock_mhz, max_mhz;	/* of its processors; 0: not known;
					 * clock: or it had nothing to do */
	__u32 why;		/* enum tl_gpu_why */
	__u32 by_tgid;		/* a neighbour, 0: none seen */
	__u32 by_pct;		/* its share of the device */
	char by_name[16];
};

enum tl_gpu_level { TL_GPU_OFF = 0, TL_GPU_LAUNCHES = 1, TL_GPU_GRAPH = 2, TL_GPU_KERNELS = 3 };
enum tl_gpu_trouble {		/* append only */
	TL_GPU_FINE = 0, TL_GPU_BROKEN = 1 /* launches, no records */, TL_GPU_BAD_STAMPS = 2,
	TL_GPU_BUSY = 3 /* another subscriber */, TL_GPU_BUDGET = 4 /* costs too much */,
	TL_GPU_NO_PROBES = 5 /* on launches: none could be set */,
	TL_GPU_NO_STATE = 6 /* of devices: no clocks, neighbours and memory */,
};
enum tl_gpu_health_flag { TL_GPU_SIMULATED = 1 };	/* in tl_hdr.flags: no real
							 * device, tests/sim */
struct tl_gpu_health {		/* how the collection of GPU records did in a span */
	struct tl_hdr hdr;	/* tgid; ts_ns: its end */
	__u64 since_ns;
	__u64 launches;		/* graph launches included */
	__u64 records, bad_records, dropped;
	__u32 overhead_ppm;	/* of the target's speed, as the governor measured */
	__u16 level, to_level;	/* enum tl_gpu_level: during the span, and from then on */
	__u16 trouble;		/* enum tl_gpu_trouble */
	__u16 wanted;		/* enum tl_gpu_level: what was asked for; OFF: not known */
	__u16 pad[2];
	char holder[32];	/* TL_GPU_BUSY: who has it */
	char why[192];		/* in words: of a change of level, or what
				 * stands against records; "": nothing does */
};

enum tl_clock_flag {		/* in tl_hdr.flags: of a target with GPU records */
	TL_CLOCK_OPENS = 1 << 0, /* a window opened */
	TL_CLOCK_CLOSES = 1 << 1, /* ... closed */
	TL_CLOCK_GRAPHS = 1 << 2, /* OPENS: of graphs, not of single kernels */
};
struct tl_clock {		/* a pair of clocks read together */
	struct tl_hdr hdr;	/* ts_ns: CLOCK_MONOTONIC */
	__u64 realtime_ns;
	__u64 err_ns;		/* half the width of the bracket */
};

enum tl_claim_metric {		/* append only */
	TL_CLAIM_TTFT = 1, TL_CLAIM_TOTAL = 2, TL_CLAIM_TPOT = 3, TL_CLAIM_HEADERS = 4,
	TL_CLAIM_ITL = 5, TL_CLAIM_QUEUE = 6,
};
struct tl_claim {		/* what another tool says of a request */
	struct tl_hdr hdr;	/* ts_ns: when its own clock began to
				 * count, as far as known, else 0 */
	__u32 req;
	__u16 metric;		/* enum tl_claim_metric */
	__u16 pad;
	__u64 value_ns;
	char tool[32];		/* "litellm", "aibrix", "nginx" ... */
	char field[32];		/* as the tool calls it */
};

/* ---- raw: BPF to agent/source ---- */

enum { TL_RAW_STACK_WORDS = 256 };
enum tl_stack_flag {		/* in tl_hdr.flags */
	TL_STACK_KERNEL = 1,	/* it is in a system call or a fault */
	TL_STACK_END = 2,	/* no sample: the samples since
				 * busy_since_ns are all of that time */
};
struct tl_raw_stack {		/* one sample of a thread that has not slept for long */
	struct tl_hdr hdr;
	__u64 busy_since_ns;
	__u64 ip, sp;		/* of user space */
	__u32 n_words;
	__u32 pad;
	__u64 words[];		/* what lies on its stack, from sp on: return addresses
				 * and all else, for few programs keep frame pointers */
};

enum tl_tcp_what {		/* append only */
	TL_TCP_HELD = 1,	/* a write returned, and not all of its bytes had left */
	TL_TCP_LEFT = 2,	/* held bytes left */
	TL_TCP_NO_ROOM = 3,	/* a write found the socket's buffer full */
	TL_TCP_DRAINED = 4,	/* after NO_ROOM: the peer acknowledged
				 * all that was written until then */
	TL_TCP_AGAIN = 5,	/* a segment was lost and sent again */
	TL_TCP_CONNECT = 6,	/* tgid: a process connects to a watched port */
};
/* It took less or nothing; it slept until there was room. */
enum tl_tcp_room { TL_ROOM_SHORT = 1, TL_ROOM_WAITED = 2 };
struct tl_raw_tcp {		/* tgid: the target that wrote; tid: 0 where it is not known */
	struct tl_hdr hdr;	/* HELD: as of the write's tl_raw_net;
				 * NO_ROOM: the write returned */
	__u64 sock;		/* inode number */
	__u64 since_ns;		/* NO_ROOM: the write began */
	__u64 ack_ns;		/* LEFT: the peer's last acknowledgement since HELD, 0: none */
	__u32 seq;		/* of the stream, as tl_raw_net.stream_pos. HELD,
				 * NO_ROOM: behind the write; LEFT: up to where
				 * all has left; AGAIN: behind the segment */
	__u32 bytes;		/* HELD: held of all writes so far;
				 * NO_ROOM: written and not acknowledged */
	__s32 fd;
	__u16 what;		/* enum tl_tcp_what */
	__u16 why;		/* HELD: enum tl_held_why; NO_ROOM: enum tl_tcp_room */
	__u16 local_port, peer_port;
	__u32 pad;
};

_Static_assert(sizeof(struct tl_raw_tcp) == 24 + 24 + 12 + 12, "ABI");

struct tl_stint {		/* somebody's time on a CPU without a break */
	__u64 start_ns, end_ns;	/* of the one under way when the wait
				 * began, the start may be too early */
	__u64 cgroup;		/* id; 0: not known */
	__u32 tgid, tid;	/* tid 0: the CPU was idle */
	char name[16];
};
enum { TL_RAW_MAX_STINTS = 64 };
struct tl_raw_wait {
	struct tl_hdr hdr;	/* as of a tl_thread_span that is RUNNABLE */
	__u64 since_ns;
	__u16 cpu, from_cpu;
	__u32 major_faults;
	__u32 n_stints;		/* on `cpu`, the last one first: those
				 * of the span, if it is not too long */
	__u32 pad;
	struct tl_stint stints[];
};

struct tl_raw_child {
	struct tl_hdr hdr;	/* tgid: of the program, or of one that it has started */
	__u32 what;		/* TL_PROC_EXEC or TL_PROC_EXIT */
	__u32 owner;		/* tgid of the server's process */
	char name[16];		/* comm */
};

_Static_assert(sizeof(struct tl_raw_child) == 24 + 8 + 16, "ABI");
_Static_assert(sizeof(struct tl_thread) == 24 + 16 + 16 + 96, "ABI");
_Static_assert(sizeof(struct tl_thread_span) == 24 + 8 + 8 + 8 + 16 + 16 + 8, "ABI");
_Static_assert(sizeof(struct tl_raw_stack) == 24 + 32, "ABI");
_Static_assert(sizeof(struct tl_stint) == 48 && sizeof(struct tl_raw_wait) == 24 + 24, "ABI");
_Static_assert(sizeof(struct tl_throttle) == 24 + 24 + 8 + 16 + 16 + 16 + 96, "ABI");
_Static_assert(sizeof(struct tl_code) == 24 + 8 + 8 + 8 + 64, "ABI");
_Static_assert(sizeof(struct tl_send_held) == 24 + 16 + 16 + 16, "ABI");
_Static_assert(sizeof(struct tl_send_blocked) == 24 + 40, "ABI");
_Static_assert(sizeof(struct tl_delivered) == 24 + 24 + 16, "ABI");
_Static_assert(sizeof(struct tl_gpu_step) == 24 + 48 + 24, "ABI");
_Static_assert(sizeof(struct tl_gpu_state) == 24 + 32 + 16, "ABI");
_Static_assert(sizeof(struct tl_gpu_health) == 24 + 40 + 12 + 4 + 32 + 192, "ABI");
_Static_assert(sizeof(struct tl_clock) == 40, "ABI");
_Static_assert(sizeof(struct tl_claim) == 24 + 16 + 64, "ABI");

#endif
