/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of vLLM's adapter: its processes, sockets, sequences and engines. */
#ifndef TL_VLLM_ADAPTER_PRIV_H
#define TL_VLLM_ADAPTER_PRIV_H

#include "base/map.h"
#include "base/util.h"
#include "base/vec.h"
#include "engine/stream_pos.h"
#include "engine/vllm.h"
#include "engine/vllm_sched.h"
#include "parse/vllm_msg.h"
#include <stdio.h>

enum {
	VLLM_MAX_SEQS = 1 << 18, /* requests remembered: running, waiting,
				  * and ended without their HTTP side */
	MAX_ROWS = 4096,	/* of one step */
	MAX_HELD = 2048,	/* messages that wait for others of their step */
	VLLM_DEFAULT_MAX_TOKENS = 16,	/* what is not on the wire: defaults are left out */
};

struct vprocess {
	uint64_t start_ns;
	int32_t engine;		/* index of its engine, -1: an API server, a worker */
	uint32_t server;	/* first process of its server */
	uint32_t scope;		/* of the ids of its requests, see below */
	bool is_api, is_front, is_coordinator;
	uint32_t max_step_tokens;	/* as its command line says, 0: it does not */
	bool by_priority;	/* as it says, too */
};

enum { VLLM_MAX_SOCKETS = 4096, VLLM_MAX_FOUND = 16 };

struct vsocket {
	struct zmtp *in, *out;
	uint32_t tgid;
	bool tcp, told;		/* told: its messages were found, and
				 * vllm__next_wire says so or has */
	struct stream_pos pos[2];	/* by direction: in, out */
	uint64_t last_ns;
	bool has_client;	/* an API server is at its other end: it had outputs */
	uint8_t client;		/* which of its engine's, if it has requests; 0: it had none */
};

struct vhttp {
	uint32_t req;		/* request that goes by this id, 0: not yet seen */
	uint32_t first;		/* slot + 1 of a sequence of it, 0: none yet */
};

/* What a client calls its requests. */
struct vname {
	uint32_t n_open;	/* requests of that name that are under way */
	bool shared;		/* by several at once: which is meant by
				 * it is not known until all have ended */
};

/* The engine's own account of a preemption, which comes with the next output. */
struct vpreemption {
	uint32_t slot;
	uint64_t at_ns, resumed_ns;
};

/* A message of outputs, and what of the same step comes in others. */
struct vheld {
	uint64_t ts_ns;
	uint64_t scheduled_ns;	/* the last that the engine says it
				 * scheduled, of those that show in it; 0 */
	struct vllm_stats stats;
	bool has_stats;
	bool cut;		/* some of it is missing */
	VEC(struct vsched_row) rows;
	VEC(struct vpreemption) preemptions;
};

/*
 * One EngineCore process. Ids are not unique in a host: a proxy sends the same X-Request-Id to the
 * server that computes the prompt and to the one that goes on. So an engine's ids are its own, and
 * HTTP's ids those of a server; or of all whose front end and engine were started apart, scope 0.
 */
struct vengine {
	uint32_t tgid, server;
	struct tl_engine said;	/* what is known of it, as it was told last */
	uint32_t scope;		/* its server, or 0 */
	uint64_t last_ns;	/* end of the last step */
	bool woke;		/* no step since it was idle */
	uint64_t carried_queries, carried_hits;	/* told by messages of no step:
						 * those of the next one */
	struct vsched sched;
	bool coordinated;	/* it tells a coordinator how many it
				 * runs, in messages of no step */
	uint32_t n_clients;	/* sockets on which outputs went: API
				 * servers, which may be on other hosts */
	uint8_t n_asking;	/* sockets on which requests came */
	bool several;		/* there are several API servers: */
	struct vheld *held[MAX_HELD];	/* messages that wait for others, by
					 * time; behind them spare ones */
	size_t n_held, n_made;
	struct tl_step *step;	/* scratch, TL_MAX_MEMBERS members */
};

struct vllm {
	struct emit out;
	struct map *processes;	/* tgid -> struct vprocess */
	struct map *sockets;	/* inode, or libzmq's address with the
				 * process in it -> struct vsocket */
	uint64_t found[VLLM_MAX_FOUND];	/* TCP sockets on which vLLM's messages
					 * were found, not yet told */
	size_t n_found;
	struct map *by_id;	/* hash of the engine's id -> slot */
	struct map *by_http;	/* hash of the id that HTTP shows -> struct vhttp */
	struct map *names;	/* hash of an X-Request-Id -> struct vname */
	struct map *named;	/* request -> that hash */
	struct vengine *engines;
	size_t n_engines, cap_engines;
	struct vseq *seqs;	/* by slot */
	size_t n_seqs, cap_seqs;
	uint32_t *free_slots;
	size_t n_free, cap_free;
	struct vllm_counts counts;
	uint64_t n_unseen;	/* that ran without an id: for one that nobody else has */

	/* The event at hand. */
	uint64_t now_ns;
	int32_t engine;
	struct vsocket *sock;
	uint64_t sock_key;
	bool out_dir;
	int err;
};

void vllm_emit(struct vllm *v, const struct tl_hdr *ev);
/* whose: an engine, a server, a process */
uint64_t vllm_hash(uint32_t whose, const void *p, size_t len);
struct vseq *vllm_seq_new(struct vllm *v, struct vllm_id id, uint32_t engine);
struct vseq *vllm_seq_find(struct vllm *v, struct vllm_id id, uint32_t engine);
/* One whose id is not known yet ... */
struct vseq *vllm_seq_unseen(struct vllm *v, uint32_t engine);
void vllm_seq_name(struct vllm *v, struct vseq *q, struct vllm_id id);	/* ... and now is */
void vllm_seq_end(struct vllm *v, struct vengine *g, struct vseq *q, uint64_t ns);
void vllm_seq_forget(struct vllm *v, struct vseq *q);

/* vllm_ids.c: which request of HTTP's a sequence is of. A new one is entered by
 * its id (0 or -ENOMEM), linked if its request is known (`req`: it is this one, 0:
 * see by its id), and leaves. */
int vllm_ids_enter(struct vllm *v, struct vseq *q, struct vllm_id id);
void vllm_ids_link(struct vllm *v, struct vseq *q, uint32_t req);
uint32_t vllm_ids_request(const struct vllm *v, const struct vseq *q);	/* 0: not known */
void vllm_ids_leave(struct vllm *v, const struct vseq *q);

/* vllm_wire.c: bytes and frames of a wire; each message goes to vllm_message(). */
void vllm_net(struct vllm *v, const struct tl_raw_net *e);
void vllm_zmq(struct vllm *v, const struct tl_raw_zmq *e);
void vllm_socket_close(struct vllm *v, uint64_t sock);
void vllm_sockets_of_process(struct vllm *v, uint32_t tgid);	/* it is gone: they are, too */
void vllm_sockets_resync(struct vllm *v);
void vllm_sockets_free(struct vllm *v);
void vllm_message(void *ctx, const struct zmtp_message *msg);	/* vllm.c */

/* vllm_hold.c: a message of outputs comes; those that waited long enough become steps; all do. */
void vllm_outputs(struct vllm *v, struct vengine *g, const struct zmtp_frame *body);
void vengine_release(struct vllm *v, struct vengine *g);
void vengine_flush(struct vllm *v, struct vengine *g);

/* vllm_steps.c: a row of it is read; the step that it tells of is said. */
void vengine_row(struct vllm *v, struct vengine *g, struct vheld *h, struct vllm_row *r);
void vengine_step(struct vllm *v, struct vengine *g, struct vheld *h);
void vengine_free(struct vengine *g);

#endif
