/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of clues: what its files share and nobody else sees. */
#ifndef TL_CLUES_PRIV_H
#define TL_CLUES_PRIV_H

#include "base/map.h"
#include "base/vec.h"
#include "model/clues.h"
#include "model/evidence.h"
#include "model/pauses.h"

/* ---- pieces: spans of threads with a reason ---- */

/* Of two reasons at once the smaller one stands: it is nearer to the hardware. */
enum piece_rank {
	RANK_STOPPED,		/* by the system, or on request */
	RANK_THROTTLED, RANK_RUN_QUEUE, RANK_PAGE_FAULT, RANK_LOCK,
	RANK_CODE,		/* says by its nature what was wrong: garbage collection ... */
	RANK_BUSY,		/* on a CPU in code that is no part of what was waited for */
	RANK_RUN,		/* on a CPU, nobody knows in which code */
	RANK_HELD,		/* inside the process, no thread was busy with it */
	RANK_CROWD,		/* behind another thread that computes the
				 * same steps: as a rule what these take */
	N_PIECE_RANKS
};
enum piece_src {
	SRC_SPAN = 1, SRC_CODE = 2, SRC_HELD = 3,
	SRC_ASKED = 4,		/* `at` is the index of an other request */
};
struct piece {
	uint64_t t0_ns, t1_ns;
	uint32_t at;		/* index into the evidence of its src */
	uint32_t more;		/* index + 1 of a throttle (RANK_THROTTLED), of a code (RANK_LOCK);
				 * RANK_RUN_QUEUE: 1: not behind the one that its span names */
	uint32_t work;		/* index + 1 of what the thread worked on */
	uint8_t src, rank, mechanism, prov;
};
struct piece_list {
	VEC(struct piece) l;
};

struct line {			/* disjoint pieces of one thread or of several together */
	struct piece *p;
	size_t n;
};

/* 0 or -ENOMEM; empty ones are not kept. */
int piece_add(struct piece_list *pl, const struct piece *p);
/* Disjoint pieces of n that may overlap, by time. Returns how many: fewer than 2 * n, as each
 * begins where one of n begins or where one of a better rank ends; `ret` and `room` hold that
 * many. `in` is sorted anew. */
size_t pieces_lay_out(struct piece *in, size_t n, struct piece *ret, struct piece *room);
int line_make(struct piece_list *raw, struct line *ret);	/* 0 or -ENOMEM */
/* The first piece of disjoint ones that ends behind t; n: none. */
size_t pieces_after(const struct piece *p, size_t n, uint64_t t_ns);

/* ---- what threads worked on ---- */

struct work {			/* a front end's thread is busy with a
				 * request until it is handed over */
	uint32_t tgid, tid;	/* tid 0: not known */
	uint64_t t0_ns, t1_ns;	/* read whole; submitted or answered */
	uint32_t what;		/* index of a request, or, from OTHER_BASE on, of another one */
};
enum { OTHER_BASE = 1u << 31 };

/* ---- threads ---- */

struct watched {		/* a thread that is recorded */
	const struct tl_thread *t;
	size_t span0, span1;	/* its spans ... */
	size_t code0, code1;	/* ... and codes, in the evidence */
	uint32_t server;	/* tgid of the first process of its server, 0: not known */
	bool launches;		/* what a device does: steps wait for it, whatever its role is */
	bool tokenizes;		/* for an event loop: see clues_front.c */
};

struct process {		/* one that is among the engines */
	uint32_t server;	/* the first process of its server */
	bool has_steps;
	bool is_pool;		/* in Rust or Go: any of its threads may serve any request */
};

struct by_number {
	uint32_t req, index;
};

/* What a device did for steps, learnt from them (clues_gpu.c). */
struct gpu_usual {
	uint64_t idle_ns, collective_ns, copy_ns;	/* of a step, median */
	uint64_t rank_mask;		/* ranks that take part, those below 64 */
	uint64_t device_mask;		/* devices that its server is known to
					 * use, those below 64; 0: none is */
	bool has_graphs;		/* steps that only decode are replayed */
	uint32_t max_captured;		/* largest batch that was seen to be replayed */
	uint32_t first_hit, n_hits;	/* in clues.hits: of graphs that fitted their batch ... */
	uint32_t first_size, n_sizes;	/* ... and in clues.sizes: of all, by their size */
	uint64_t missed_ns;		/* a step that only decodes, without its graph: median */
	uint32_t n_missed;
};
struct graph_hit {			/* what replays take: median */
	uint32_t batch, n;
	uint64_t ns;
};
struct hit_list {
	VEC(struct graph_hit);
};
struct gpu_at {
	uint32_t step, gpu;		/* indices of a step and of a tl_gpu_step */
};
struct held_back {			/* when chunks of an answer left or arrived */
	uint32_t request;
	uint64_t *chunk_ns;		/* per token chunk, 0: nobody says */
	struct culprit by;
};
struct cgroup_name {
	uint64_t id;
	const char *path;		/* of CGROUP_NAME_SIZE bytes */
};
enum { CGROUP_NAME_SIZE = 96 };
struct clock_ref {		/* of a device as this process numbers
				 * it; tgid 0: as all of them do */
	uint32_t tgid, device, mhz;
	bool is_odd;		/* it was slow once, or had a neighbour */
	size_t first, n;	/* its looks, one behind the other */
};
struct look {			/* at a device, until its state ends; one
				 * more of each device has the sums of all */
	uint64_t t0_ns;
	uint64_t mhz_ns, clock_ns;	/* of those before it: clock by time, and the time */
	uint32_t n_power, n_thermal;	/* of those before it: held down by these */
	uint32_t state;		/* index of it */
	uint32_t longest, above;	/* index + 1 of the look with a neighbour for
					 * longest: of this look, of a tree's node */
};
struct quota_range {		/* looks at the quota of one cgroup, in the evidence */
	size_t first, end;
};
struct front_group {		/* threads of front ends: of a process, or of a server */
	uint64_t key;
	uint32_t n_fronts, n_tokenizers;	/* that read requests; that tokenize for these */
	size_t first, n;	/* their pieces, a tree by time; none where all threads are few */
};
struct front_piece {
	uint64_t last_ns;	/* the end of what ends last, of all of a tree's node */
	uint32_t thread, piece;	/* indices, piece: in the thread's line */
};
struct server_ref {
	uint32_t server;	/* of the process that numbers it so;
				 * 0: all do; UINT32_MAX: not known */
	uint32_t ref;
	bool is_odd;
};

struct clues {
	const struct model_view *v;
	const struct evidence *ev;
	struct step_index ix;
	struct map *processes;		/* by tgid: struct process */
	uint32_t *engine_servers;	/* per engine: the first process of its server */
	struct by_number *numbers;	/* of requests, by number */
	struct watched *threads;	/* by tgid, tid */
	size_t n_threads;
	uint32_t *server_threads;	/* indices of them by server, rank; -1: none */
	struct pause pauses[MAX_PAUSES];
	size_t n_pauses;
	struct line *engine_lines;	/* per engine */
	struct line *run_lines;		/* per engine with records of
					 * devices: its threads on a CPU */
	struct line *crowd_lines;	/* per engine: what its own threads
					 * waited behind each other */
	struct line *kept_lines;	/* per vLLM engine: when its own
					 * thread could not run */
	struct line *front_lines;	/* per thread; empty for those
					 * that are not of a front end */
	uint32_t *fronts;		/* threads that are, by index */
	size_t n_fronts;
	VEC(struct front_group) front_groups;	/* by key */
	VEC(struct front_piece) front_pieces;	/* group by group */
	struct work *works;		/* by tgid, t0 */
	size_t n_works;
	struct by_number *held_of, *blocked_of;	/* req is an index here: order
						 * by request, then time */
	size_t n_held_of, n_blocked_of;
	VEC(struct held_back) arrivals;	/* by request */
	bool *in_blocks;		/* per request: many of its chunks in each write */
	VEC(struct gpu_at) gpu_of;	/* by step */
	struct gpu_usual *gpu_usual;	/* per engine */
	struct hit_list hits, sizes;
	VEC(struct clock_ref) clock_refs;	/* by tgid, device */
	VEC(struct look) looks;		/* by tgid, device, time */
	struct server_ref *server_refs;	/* as many as clock_refs; by server, the odd ones first */
	VEC(struct cgroup_name) cgroups;	/* by id */
	VEC(struct quota_range) quotas;		/* by id of their cgroups */
	uint32_t *quotas_by_path;		/* indices of them */
	uint64_t *watched;		/* per engine: what clues__watched says */
};

/* clues.c */
uint32_t clues_request(const struct clues *c, uint32_t req);	/* index; UINT32_MAX: none */
uint32_t clues_tgid(const struct clues *c, uint32_t engine);	/* 0: of none that is known */
/* Its first process; tgid itself if not known. */
uint32_t clues_server(const struct clues *c, uint32_t tgid);
/* NULL: none. */
const struct watched *clues_thread(const struct clues *c, uint32_t tgid, uint32_t tid);
/* The first thread of a process or of one behind it, up to threads + n_threads. */
const struct watched *clues_process_threads(const struct clues *c, uint32_t tgid);
/* The first place in server_threads that is of this rank (or more) of a server, or behind it. */
size_t clues_threads_from(const struct clues *c, uint32_t server, int rank);
void list_add(struct clue_list *l, const struct clue *k);
/* In no place where its cause is there already. */
void list_add_up(struct clue_list *l, const struct clue *k);
void list_sort(struct clue_list *l);

/* clues_who.c */
int cgroups_make(struct clues *c);		/* 0 or -ENOMEM */
/* The piece's share of [t0, t1], with its culprit. */
void list_add_piece(const struct clues *c, struct clue_list *l, const struct piece *p,
		    uint64_t t0_ns, uint64_t t1_ns);
/* The request that is behind a piece: index; UINT32_MAX: none or not known. */
uint32_t piece_request(const struct clues *c, const struct piece *p);
struct culprit who_named(enum culprit_type type, uint32_t id, const char *name, size_t size);

/* clues_quota.c */
enum {
	MAX_CGROUPS = 8,	/* that a thread is in, one inside the other */
	MAX_LOOKS = 16,		/* at quotas, of which is remembered what was charged */
};
struct allowance {		/* of a look at a quota: what is not charged to a thread yet */
	uint32_t at;		/* index + 1 */
	uint32_t left;		/* times that it was throttled ... */
	uint64_t left_ns;	/* ... and for how long */
};
struct thread_quotas {		/* that hold for a thread */
	struct quota_range v[MAX_CGROUPS];
	size_t n;
	struct allowance seen[MAX_LOOKS];	/* the latest ones */
	size_t n_seen;
};
int quotas_make(struct clues *c);	/* 0 or -ENOMEM */
void quotas_free(struct clues *c);
/* The looks at quotas that hold for a thread: of its cgroup and of those around it. */
void quotas_of(const struct clues *c, const struct tl_thread *t, struct thread_quotas *ret);
/* A wait for a CPU: was it not allowed to run? Charges it; index + 1 of a look at
 * its quota, 0: not known. */
bool was_throttled(const struct clues *c, const struct watched *w, const struct tl_thread_span *s,
		   struct thread_quotas *q, uint32_t *ret_at);

/* clues_workers.c */
bool thread_computes(const struct watched *w);
struct workers {
	VEC(uint32_t) l;	/* indices of threads */
};
/* 0 or < 0: no more of it. */
typedef int (*workers_fn)(void *ctx, uint32_t engine, const struct workers *w);
/* Each engine; what fn said, or -ENOMEM. */
int workers_each(const struct clues *c, workers_fn fn, void *ctx);

/* clues_engine.c */
/* All pieces of a thread, as they are. front: of a front end, else of an engine. 0 or -ENOMEM */
int thread_pieces(const struct clues *c, const struct watched *w, bool front,
		  struct piece_list *ret);
int engine_lines_make(struct clues *c);		/* 0 or -ENOMEM, as those below */

/* clues_front.c */
int works_make(struct clues *c);
uint32_t work_of(const struct clues *c, uint32_t tgid, uint32_t tid, uint64_t t0_ns,
		 uint64_t t1_ns);
int front_lines_make(struct clues *c);

/* clues_fronts.c */
enum front_kind { OF_PROCESS = 0, OF_SERVER = 1 };
static inline uint64_t front_key(enum front_kind kind, uint32_t tgid)
{
	return (uint64_t)kind << 32 | tgid;
}
enum { MAX_FRONT_HITS = 1024 };
struct front_hits {
	uint64_t v[MAX_FRONT_HITS];	/* indices: thread << 32 | piece of its line */
	size_t n;
};
int front_groups_make(struct clues *c);		/* 0 or -ENOMEM */
void front_groups_free(struct clues *c);
/* An empty one if there is none. */
const struct front_group *front_group_of(const struct clues *c, uint64_t key);
/* Adds the pieces of a group that lie in [t0, t1]. false: they are too many, or threads are so few
 * that each may be looked at. */
bool front_hits_find(const struct clues *c, const struct front_group *g, uint64_t t0_ns,
		     uint64_t t1_ns, struct front_hits *ret);

/* clues_gpu.c */
int gpu_make(struct clues *c);
void gpu_free(struct clues *c);

/* clues_device.c */
int devices_make(struct clues *c);
void devices_free(struct clues *c);

/* clues_send.c */
int send_make(struct clues *c);
void send_free(struct clues *c);
/* The hold of an answer inside the server's process that covers t; false: none. */
bool held_inside(const struct clues *c, uint32_t request, uint64_t t_ns, struct piece *ret);

#endif
