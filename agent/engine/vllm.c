/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's adapter: the ZMQ streams of its engine processes, message by message. */
#include "engine/vllm_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROCESSES = 1024 };
static const uint64_t keep_ended_ns = 60000000000;	/* how long an ended one waits for it */

void vllm_emit(struct vllm *v, const struct tl_hdr *ev)
{
	int err = emit(&v->out, ev);

	if (err && !v->err)
		v->err = err;
}

/* FNV-1a, 64 bits. */
uint64_t vllm_hash(uint32_t whose, const void *p, size_t len)
{
	const uint64_t prime = 0x100000001b3;
	uint64_t h = 0xcbf29ce484222325;

	for (int i = 0; i < 32; i += 8)
		h = (h ^ (whose >> i & 0xff)) * prime;
	for (size_t i = 0; i < len; i++)
		h = (h ^ ((const uint8_t *)p)[i]) * prime;
	return h ? h : 1;
}

struct vllm *vllm__new(const struct emit *out)
{
	struct vllm *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->out = *out;
	v->processes = map__new(sizeof(struct vprocess), MAX_PROCESSES);
	v->sockets = map__new(sizeof(struct vsocket), VLLM_MAX_SOCKETS);
	v->by_id = map__new(sizeof(uint32_t), VLLM_MAX_SEQS);
	v->by_http = map__new(sizeof(struct vhttp), VLLM_MAX_SEQS);
	v->names = map__new(sizeof(struct vname), VLLM_MAX_SEQS);
	v->named = map__new(sizeof(uint64_t), VLLM_MAX_SEQS);
	if (!v->processes || !v->sockets || !v->by_id || !v->by_http || !v->names || !v->named) {
		vllm__free(v);
		return NULL;
	}
	return v;
}

void vllm__free(struct vllm *v)
{
	if (!v)
		return;
	vllm_sockets_free(v);
	for (size_t i = 0; i < v->n_engines; i++)
		vengine_free(&v->engines[i]);
	free(v->engines);
	map__free(v->processes);
	map__free(v->by_id);
	map__free(v->by_http);
	map__free(v->names);
	map__free(v->named);
	free(v->seqs);
	free(v->free_slots);
	free(v);
}

/* An engine with several API servers sends each its share of a step. The command line with its
 * limits is that of the server's first process. */
static void learn_of_server(struct vllm *v)
{
	for (size_t i = 0; i < v->n_engines; i++) {
		struct vengine *g = &v->engines[i];
		unsigned n = 0;

		g->coordinated = false;
		g->scope = 0;
		for (struct vprocess *p = map__oldest(v->processes, NULL); p;
		     p = map__newer(v->processes, p, NULL)) {
			if (p->server != g->server)
				continue;
			p->scope = p->server;
			if (p->is_front)
				g->scope = p->server;
			n += p->is_api;
			g->coordinated |= p->is_coordinator;
			if (p->max_step_tokens)
				g->sched.budget = p->max_step_tokens;
			g->sched.by_priority |= p->by_priority;
		}
		g->several = n > 1 || g->n_clients > 1;
		g->sched.unseen.n_clients = n > g->n_clients ? n : g->n_clients;
	}
}

/* Of an engine that is told again: its limits are not on its command line,
 * so whoever tells has none. */
static void tell_again(struct vengine *g, struct tl_engine *e)
{
	if (!e->max_step_tokens)
		e->max_step_tokens = g->said.max_step_tokens;
	if (!e->max_seqs)
		e->max_seqs = g->said.max_seqs;
	g->server = e->server;
	g->said = *e;
}

int vllm__add_process(struct vllm *v, struct tl_engine *e)
{
	bool fresh;
	struct vprocess *p = map__put(v->processes, e->hdr.tgid, &fresh);
	struct vengine *g;
	size_t cap = v->cap_engines;
	int32_t engine = -1;

	if (!p)
		return -ENOMEM;
	if (!fresh && p->start_ns == e->start_ns)	/* told again: more is known of it */
		engine = p->engine;
	if (engine >= 0)
		tell_again(&v->engines[engine], e);
	*p = (struct vprocess){ .start_ns = e->start_ns, .engine = engine, .server = e->server,
				 .is_api = !strncmp(e->role, "api", 3),
				 .is_front = !strncmp(e->role, "api", 3) || !strcmp(e->role, "front"),
				 .is_coordinator = !strcmp(e->role, "coordinator"),
				 .max_step_tokens = e->max_step_tokens,
				 .by_priority = e->hdr.flags & TL_ENGINE_PRIORITY };
	if (engine >= 0 || strncmp(e->role, "engine-core", 11)) {
		learn_of_server(v);
		return 0;
	}
	if (v->n_engines == cap) {
		g = vec_grow_(v->engines, &cap, v->n_engines + 1, sizeof(*g), MAX_PROCESSES);
		if (!g)
			return -ENOMEM;
		v->engines = g;
		v->cap_engines = cap;
	}
	g = &v->engines[v->n_engines];
	*g = (struct vengine){ .tgid = e->hdr.tgid, .server = e->server, .said = *e,
			       .sched.unseen.since_ns = e->hdr.ts_ns };
	p->engine = v->n_engines++;
	learn_of_server(v);
	return 0;
}

bool vllm__wants(const struct vllm *v, uint32_t tgid)
{
	const struct vprocess *p = map__get(v->processes, tgid);

	return p && p->engine >= 0;
}

/* ---- sequences ---- */

/* Ended sequences give their numbers back, those whose HTTP request never showed after a while. */
static void reclaim(struct vllm *v)
{
	for (uint32_t i = 0; i < v->n_seqs; i++) {
		struct vseq *q = &v->seqs[i];

		if (q->used && q->state == VSEQ_DONE &&
		    (q->linked || v->now_ns - q->ended_ns > keep_ended_ns))
			vllm_seq_forget(v, q);
	}
}

void vllm_seq_forget(struct vllm *v, struct vseq *q)
{
	vllm_ids_leave(v, q);
	map__del(v->by_id, q->id_hash);
	q->used = false;
	if (v->n_free == v->cap_free) {
		uint32_t *p = vec_grow_(v->free_slots, &v->cap_free, v->n_free + 1, sizeof(*p),
					VLLM_MAX_SEQS);

		if (!p)
			return;		/* the number is not used again: no harm */
		v->free_slots = p;
	}
	v->free_slots[v->n_free++] = q->slot;
}

/* A number for a sequence: one that was given back, or a new one. -1: none. */
static int64_t new_slot(struct vllm *v)
{
	struct vseq *p;

	if (!v->n_free && v->n_seqs && (v->n_seqs % 1024 == 0 || v->n_seqs == VLLM_MAX_SEQS))
		reclaim(v);
	if (v->n_free)
		return v->free_slots[--v->n_free];
	if (v->n_seqs == VLLM_MAX_SEQS) {
		v->counts.refused++;
		return -1;
	}
	if (v->n_seqs == v->cap_seqs) {
		p = vec_grow_(v->seqs, &v->cap_seqs, v->n_seqs + 1, sizeof(*p), VLLM_MAX_SEQS);
		if (!p) {
			v->err = -ENOMEM;
			return -1;
		}
		v->seqs = p;
	}
	return v->n_seqs++;
}

struct vseq *vllm_seq_new(struct vllm *v, struct vllm_id id, uint32_t engine)
{
	int64_t slot = new_slot(v);
	struct vseq *q;
	uint32_t *at;

	if (slot < 0)
		return NULL;
	q = &v->seqs[slot];
	*q = (struct vseq){
		.id_hash = vllm_hash(engine, id.p, id.len), .slot = slot, .used = true,
		.prompt = -1, .cached = -1, .max_out = -1, .engine = engine,
	};
	at = map__put(v->by_id, q->id_hash, NULL);
	if (!at || vllm_ids_enter(v, q, id)) {
		map__del(v->by_id, q->id_hash);
		q->used = false;
		v->err = -ENOMEM;
		return NULL;
	}
	*at = slot;
	return q;
}

struct vseq *vllm_seq_unseen(struct vllm *v, uint32_t engine)
{
	char id[32];
	int n = snprintf(id, sizeof(id), "\1%llu", (unsigned long long)++v->n_unseen);

	return vllm_seq_new(v, (struct vllm_id){ id, n }, engine);
}

void vllm_seq_name(struct vllm *v, struct vseq *q, struct vllm_id id)
{
	uint32_t *at = map__put(v->by_id, vllm_hash(q->engine, id.p, id.len), NULL);

	if (!at) {
		v->err = -ENOMEM;
		return;
	}
	*at = q->slot;
	vllm_ids_leave(v, q);
	map__del(v->by_id, q->id_hash);
	q->id_hash = vllm_hash(q->engine, id.p, id.len);
	v->err = vllm_ids_enter(v, q, id);
}

struct vseq *vllm_seq_find(struct vllm *v, struct vllm_id id, uint32_t engine)
{
	const uint32_t *at = map__get(v->by_id, vllm_hash(engine, id.p, id.len));

	return at && v->seqs[*at].used ? &v->seqs[*at] : NULL;
}

/* ---- messages ---- */

/* The number of the socket that the message at hand came on, among those on which
 * the engine's requests come. */
static uint8_t client_of(struct vllm *v, struct vengine *g)
{
	if (!v->sock->client && g->n_asking < UINT8_MAX)
		v->sock->client = ++g->n_asking;
	return v->sock->client;
}

static void on_add(struct vllm *v, struct vengine *g, const struct vllm_add *a)
{
	struct tl_seq_begin ev = {
		.hdr = { sizeof(ev), TL_SEQ_BEGIN, 0, g->tgid, 0, v->now_ns }, .kept = -1,
	};
	struct vseq *q = vllm_seq_find(v, a->id, g - v->engines);
	uint32_t req = 0;

	if (q && q->state != VSEQ_DONE)
		return;		/* sent again */
	if (q) {	/* up to 0.14 a client that names its requests alike does so here, too */
		req = vllm_ids_request(v, q);
		vllm_seq_forget(v, q);
	}
	q = vllm_seq_new(v, a->id, g - v->engines);
	if (!q)
		return;
	if (vsched__arrive(&g->sched, q->slot)) {
		v->err = -ENOMEM;
		return;
	}
	q->prompt = a->n_prompt;
	q->max_out = a->max_tokens >= 0 || a->flags ? a->max_tokens : VLLM_DEFAULT_MAX_TOKENS;
	q->arrived_ns = v->now_ns;
	q->asked_ns = a->arrival_ns;
	q->priority = a->priority;
	q->lora = a->lora;
	q->client = client_of(v, g);
	ev.slot = q->slot;
	vllm_emit(v, &ev.hdr);
	vllm_ids_link(v, q, req);
}

static void on_abort(struct vllm *v, struct vengine *g, const struct zmtp_frame *body)
{
	struct vllm_ids ids;
	struct vllm_id id;

	if (vllm_msg_abort(body->data, body->len, &ids)) {
		v->counts.bad_messages++;
		return;
	}
	while (vllm_msg_next_id(&ids, &id)) {
		struct vseq *q = vllm_seq_find(v, id, v->engine);

		if (q && q->state != VSEQ_DONE && !q->abort_ns)
			q->abort_ns = v->now_ns;	/* the scheduler decides
							 * which step is its last */
		else if (!q)
			g->sched.unseen.abort_ns = v->now_ns;
	}
}

void vllm_seq_end(struct vllm *v, struct vengine *g, struct vseq *q, uint64_t ns)
{
	struct tl_seq_end ev = { .hdr = { sizeof(ev), TL_SEQ_END, 0, g->tgid, 0, ns },
				 .slot = q->slot };

	q->state = VSEQ_DONE;
	q->ended_ns = v->now_ns;
	vllm_emit(v, &ev.hdr);
}

/* An engine tells its front end what it can do, before it takes the first request. */
static void on_ready(struct vllm *v, struct vengine *g, const struct zmtp_frame *body)
{
	struct vprocess *p = map__get(v->processes, g->tgid);
	struct tl_engine *ev = &g->said;
	struct vllm_ready ready;

	g->sched.unseen.none = true;
	if (!p || vllm_msg_ready(body->data, body->len, &ready) ||
	    (ev->max_step_tokens == ready.max_step_tokens && ev->max_seqs == ready.max_seqs))
		return;
	ev->max_step_tokens = p->max_step_tokens = ready.max_step_tokens;
	ev->max_seqs = ready.max_seqs;
	learn_of_server(v);
	ev->hdr.ts_ns = v->now_ns;
	vllm_emit(v, &ev->hdr);
}

void vllm_message(void *ctx, const struct zmtp_message *msg)
{
	struct vllm *v = ctx;
	struct vengine *g = &v->engines[v->engine];
	const struct zmtp_frame *body;
	struct vllm_add add;

	v->counts.messages++;
	switch (vllm_msg_kind(msg->frames, msg->n, &body)) {
	case VLLM_ADD:
		if (!v->out_dir && !vllm_msg_add(body->data, body->len, &add))
			on_add(v, g, &add);
		return;
	case VLLM_ABORT:
		if (!v->out_dir)
			on_abort(v, g, body);
		return;
	case VLLM_OUTPUTS:
		if (v->out_dir)
			vllm_outputs(v, g, body);
		return;
	case VLLM_HELLO:
		if (v->out_dir)
			on_ready(v, g, body);
		return;
	default:
		return;
	}
}

/* ---- events ---- */

static void on_process_exit(struct vllm *v, uint32_t tgid)
{
	struct vprocess *p = map__get(v->processes, tgid);

	if (!p)
		return;
	vllm_sockets_of_process(v, tgid);
	if (p->engine >= 0) {
		vengine_flush(v, &v->engines[p->engine]);
		for (size_t i = 0; i < v->n_seqs; i++) {
			struct vseq *q = &v->seqs[i];

			if (q->used && q->state != VSEQ_DONE && q->engine == (uint32_t)p->engine)
				vllm_seq_end(v, &v->engines[p->engine], q, v->now_ns);
		}
		vsched__free(&v->engines[p->engine].sched);
	}
	map__del(v->processes, tgid);
}

int vllm__lost(struct vllm *v)
{
	v->err = 0;
	vllm_sockets_resync(v);
	for (size_t i = 0; i < v->n_engines; i++) {
		vengine_flush(v, &v->engines[i]);
		vsched__lost(&v->engines[i].sched, v->now_ns);
	}
	return v->err;
}

int vllm__feed(struct vllm *v, const struct tl_hdr *ev)
{
	const struct tl_raw_net *net = (const void *)ev;
	const struct tl_raw_zmq *zmq = (const void *)ev;

	v->err = 0;
	v->now_ns = ev->ts_ns;
	for (size_t i = 0; i < v->n_engines; i++)
		vengine_release(v, &v->engines[i]);
	switch (ev->kind) {
	case TL_RAW_NET:
		if (ev->size < sizeof(*net) + net->head + net->tail ||
		    net->total < (uint32_t)net->head + net->tail)
			return -EBADMSG;
		if (vllm__wants(v, ev->tgid))
			vllm_net(v, net);
		break;
	case TL_RAW_ZMQ:
		if (ev->size < sizeof(*zmq) + zmq->head || zmq->total < zmq->head)
			return -EBADMSG;
		if (vllm__wants(v, ev->tgid))
			vllm_zmq(v, zmq);
		break;
	case TL_RAW_SOCK:
		if (((const struct tl_raw_sock *)ev)->what == TL_SOCK_CLOSE &&
		    !((const struct tl_raw_sock *)ev)->how)
			vllm_socket_close(v, ((const struct tl_raw_sock *)ev)->sock);
		break;
	case TL_RAW_PROC:
		if (((const struct tl_raw_proc *)ev)->what == TL_PROC_EXIT)
			on_process_exit(v, ev->tgid);
		break;
	}
	return v->err;
}

int vllm__end(struct vllm *v)
{
	v->err = 0;
	for (size_t i = 0; i < v->n_engines; i++)
		vengine_flush(v, &v->engines[i]);
	return v->err;
}

void vllm__counts(const struct vllm *v, struct vllm_counts *ret)
{
	*ret = v->counts;
}
