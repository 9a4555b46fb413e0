/* SPDX-License-Identifier: Apache-2.0 */
/* Routes raw events to the HTTP tracker and to the adapter of the process that they came from. */
#include "engine/pipeline.h"

#include "base/map.h"
#include "engine/hops.h"
#include "engine/llama.h"
#include "engine/vllm.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ADAPTERS = 1024 };

struct pipeline {
	struct emit out;
	struct emit counted;	/* counts, then `out` */
	struct wire *wire;
	struct map *llamas;	/* tgid -> struct llama * */
	struct vllm *vllm;
	struct hops *hops;	/* proxies */
	uint64_t now_ns;	/* of the event at hand */
	uint64_t n_steps, n_bad;
	int hops_err;		/* of the event at hand */
};

static int count(void *ctx, const struct tl_hdr *ev)
{
	struct pipeline *p = ctx;

	int err;

	if (ev->kind == TL_STEP)
		p->n_steps++;
	if (ev->kind == TL_REQ_END)
		vllm__on_end(p->vllm, ((const struct tl_req_end *)ev)->req);
	err = emit(&p->out, ev);
	return err ? err : hops__on_engine(p->hops, ev);
}

static void on_id(void *ctx, uint32_t tgid, uint32_t req, const char *id, bool answered)
{
	struct pipeline *p = ctx;

	vllm__on_id(p->vllm, p->now_ns, tgid, req, id, answered);
	if (answered && !p->hops_err)
		p->hops_err = hops__on_id(p->hops, req, id);
}

struct pipeline *pipeline__new(const struct wire_opts *opts, const struct emit *out)
{
	struct pipeline *p = calloc(1, sizeof(*p));
	struct wire_opts wo = { 0 };

	if (!p)
		return NULL;
	if (opts)
		wo = *opts;
	wo.on_id = on_id;
	wo.ctx = p;
	p->out = *out;
	p->counted = (struct emit){ count, p };
	p->wire = wire__new(&wo, &p->counted);
	p->llamas = map__new(sizeof(struct llama *), MAX_ADAPTERS);
	p->vllm = vllm__new(&p->counted);
	p->hops = hops__new(&p->out);
	if (!p->wire || !p->llamas || !p->vllm || !p->hops) {
		pipeline__free(p);
		return NULL;
	}
	return p;
}

void pipeline__free(struct pipeline *p)
{
	if (!p)
		return;
	if (p->llamas)
		for (struct llama **l = map__oldest(p->llamas, NULL); l;
		     l = map__newer(p->llamas, l, NULL))
			llama__free(*l);
	map__free(p->llamas);
	vllm__free(p->vllm);
	hops__free(p->hops);
	wire__free(p->wire);
	free(p);
}

/* Adapters come to be with the first event of their engine's probes. */
static struct llama *llama_of(struct pipeline *p, uint32_t tgid)
{
	struct llama **l = map__get(p->llamas, tgid);
	struct llama *fresh;

	if (l)
		return *l;
	fresh = llama__new(p->wire, &p->counted);
	if (!fresh)
		return NULL;
	l = map__put(p->llamas, tgid, NULL);
	if (!l) {
		llama__free(fresh);
		return NULL;
	}
	return *l = fresh;
}

static void forget(struct pipeline *p, uint32_t tgid)
{
	struct llama **l = map__get(p->llamas, tgid);

	if (!l)
		return;
	llama__free(*l);
	map__del(p->llamas, tgid);
}

static int on_io_uring(struct pipeline *p, const struct tl_hdr *e)
{
	struct tl_proc ev = { .hdr = *e, .what = TL_PROC_IO_URING };

	ev.hdr.kind = TL_PROC;
	ev.hdr.size = sizeof(ev);
	return emit(&p->out, &ev.hdr);
}

static int on_proc(struct pipeline *p, const struct tl_raw_proc *e)
{
	struct tl_proc ev = { .hdr = e->hdr, .what = e->what, .parent = e->parent,
			      .exit_code = e->exit_code };
	int err = wire__feed(p->wire, &e->hdr);

	if (!err)
		err = vllm__feed(p->vllm, &e->hdr);
	if (e->what != TL_PROC_FORK)
		forget(p, e->hdr.tgid);
	ev.hdr.kind = TL_PROC;
	ev.hdr.size = sizeof(ev);
	return err ? err : emit(&p->out, &ev.hdr);
}

/* An engine process of vLLM speaks ZMQ; of its API servers only HTTP is wanted, the engine's end of
 * their ZMQ sockets tells all. */
static int on_net(struct pipeline *p, const struct tl_raw_net *e)
{
	return vllm__wants(p->vllm, e->hdr.tgid) ? vllm__feed(p->vllm, &e->hdr)
						 : wire__feed(p->wire, &e->hdr);
}

static int on_engine(struct pipeline *p, const struct tl_engine *e)
{
	struct tl_engine ev = { 0 };
	int err = 0;

	memcpy(&ev, e, e->hdr.size < sizeof(ev) ? e->hdr.size : sizeof(ev));
	ev.hdr.size = sizeof(ev);
	if (ev.engine == TL_ENGINE_VLLM)
		err = vllm__add_process(p->vllm, &ev);
	return err ? err : emit(&p->out, &ev.hdr);
}

static bool is_of_proxy(const struct pipeline *p, const struct tl_hdr *ev)
{
	const struct tl_raw_proc *proc = (const void *)ev;

	switch (ev->kind) {
	case TL_RAW_NET:
	case TL_RAW_SOCK:
	case TL_RAW_TCP:
		return hops__has(p->hops, ev->tgid);
	case TL_RAW_PROC:
		return hops__has(p->hops, ev->tgid) ||
		       (proc->what == TL_PROC_FORK && hops__has(p->hops, proc->parent));
	}
	return false;
}

int pipeline__add_proxy(struct pipeline *p, uint32_t tgid, const char *name)
{
	return hops__add(p->hops, tgid, name);
}

int pipeline__feed(struct pipeline *p, const struct tl_hdr *ev)
{
	struct llama *l;
	int err;

	p->now_ns = ev->ts_ns;
	p->hops_err = 0;
	if (is_of_proxy(p, ev)) {
		err = hops__feed(p->hops, ev);
		p->n_bad += err == -EBADMSG;
		return err == -EBADMSG ? 0 : err;
	}
	switch (ev->kind) {
	case TL_ENGINE:
		err = on_engine(p, (const void *)ev);
		break;
	case TL_RAW_NET:
		err = on_net(p, (const void *)ev);
		break;
	case TL_RAW_SOCK:
	case TL_RAW_TCP_STATE:
	case TL_RAW_TCP:
		err = wire__feed(p->wire, ev);
		if (!err)
			err = vllm__feed(p->vllm, ev);
		break;
	case TL_RAW_PROC:
		err = on_proc(p, (const void *)ev);
		break;
	case TL_LOST:
		err = ((const struct tl_lost *)ev)->where == TL_LOST_RING ? vllm__lost(p->vllm) : 0;
		err = err ? err : emit(&p->out, ev);
		break;
	case TL_RAW_ZMQ:
		err = vllm__feed(p->vllm, ev);
		break;
	case TL_RAW_IO_URING:
		err = on_io_uring(p, ev);
		break;
	case TL_RAW_LLAMA_STEP:
	case TL_RAW_LLAMA_SEQ_RM:
	case TL_RAW_LLAMA_TASK:
		l = llama_of(p, ev->tgid);
		err = l ? llama__feed(l, ev) : -ENOMEM;
		break;
	default:
		return ev->kind < TL_RAW_FIRST ? emit(&p->out, ev) : 0;
	}
	if (err == -EBADMSG) {
		p->n_bad++;
		return 0;
	}
	return err ? err : p->hops_err;
}

int pipeline__end(struct pipeline *p, uint64_t now_ns)
{
	int err = vllm__end(p->vllm);

	p->now_ns = now_ns;
	p->hops_err = 0;
	err = err ? err : wire__end(p->wire, now_ns);
	err = err ? err : p->hops_err;
	return err ? err : hops__end(p->hops, now_ns);
}

bool pipeline__next_wire(struct pipeline *p, uint64_t *ret_sock)
{
	return vllm__next_wire(p->vllm, ret_sock);
}

const struct wire *pipeline__wire(const struct pipeline *p)
{
	return p->wire;
}

uint64_t pipeline__n_steps(const struct pipeline *p)
{
	return p->n_steps;
}

uint64_t pipeline__n_bad(const struct pipeline *p)
{
	return p->n_bad;
}
