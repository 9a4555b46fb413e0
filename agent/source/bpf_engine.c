/* SPDX-License-Identifier: Apache-2.0 */
/* Attaches the user-space probes of an engine to one process. */
#include "llama.skel.h"
#include "net.skel.h"
#include "source/bpf_priv.h"
#include "source/probes.h"
#include "source/sites.h"
#include "tl_event.h"
#include "zmq.skel.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENGINES = 1024 };

/* The programs of engines write to the same ring and cells as those of the net family. */
static int share_maps(struct src_bpf *s, struct bpf_object *obj)
{
	struct bpf_map *events = bpf_object__find_map_by_name(obj, "events");
	struct bpf_map *cells = bpf_object__find_map_by_name(obj, "cells");
	int err = bpf_map__reuse_fd(events, bpf_map__fd(s->net->maps.events));

	return err ? err : bpf_map__reuse_fd(cells, bpf_map__fd(s->net->maps.cells));
}

static int prepare(struct src_bpf *s, struct bpf_object *obj)
{
	struct bpf_program *prog;

	s->multi = bpf_uprobe_has_multi();
	bpf_object__for_each_program(prog, obj) {
		bpf_program__set_autoload(prog, true);
		bpf_uprobe_prepare(prog, s->multi);
	}
	return share_maps(s, obj);
}

static int load_llama(struct src_bpf *s)
{
	struct llama_bpf *llama = llama_bpf__open();
	int err;

	if (!llama)
		return -errno;
	llama->rodata->wakeup_bytes = s->net->rodata->wakeup_bytes;
	err = prepare(s, llama->obj);
	err = err ? err : llama_bpf__load(llama);
	if (err)
		llama_bpf__destroy(llama);
	else
		s->llama = llama;
	return err;
}

static int load_zmq(struct src_bpf *s)
{
	struct zmq_bpf *zmq = zmq_bpf__open();
	int err;

	if (!zmq)
		return -errno;
	zmq->rodata->wakeup_bytes = s->net->rodata->wakeup_bytes;
	err = prepare(s, zmq->obj);
	err = err ? err : zmq_bpf__load(zmq);
	if (err)
		zmq_bpf__destroy(zmq);
	else
		s->zmq = zmq;
	return err;
}

int bpf_engine_load(struct src_bpf *s, uint16_t engine)
{
	int err = 0;

	if ((!engine || engine == TL_ENGINE_LLAMA) && !s->llama)
		err = load_llama(s);
	if (!err && (!engine || engine == TL_ENGINE_VLLM) && !s->zmq)
		err = load_zmq(s);
	return err;
}

static struct bpf_program *program_of(const struct src_bpf *s, const struct probe *p)
{
	return bpf_object__find_program_by_name(p->engine == TL_ENGINE_VLLM ? s->zmq->obj : s->llama->obj,
						p->prog);
}

void bpf_engines_add_cost(const struct src_bpf *s, struct src_bpf_cost *ret)
{
	if (s->llama)
		bpf_add_cost(s->llama->obj, ret);
	if (s->zmq)
		bpf_add_cost(s->zmq->obj, ret);
}

static int attach_site(struct src_bpf *s, const struct site *site, struct bpf_engine *e)
{
	const struct probe *p = &probes[site->row];
	struct bpf_uprobe *more;
	int err;

	more = realloc(e->probes, (e->n_probes + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	e->probes = more;
	err = bpf_uprobe_attach(program_of(s, p), s->multi, e->tgid, site->fd, site->offset,
				p->type == PROBE_URETPROBE, &more[e->n_probes]);
	if (err)
		return err;
	e->n_probes++;
	s->on |= 1ull << site->row;
	return 0;
}

static const char *why_not(int err, char *buf, size_t size)
{
	switch (err) {
	case -ESRCH:
		return "the process is gone";
	case -EPERM:
	case -EACCES:
		return "not allowed: run as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE";
	case -ENOENT:
	case -ENODEV:
		return "this kernel has no uprobes (CONFIG_UPROBE_EVENTS), or /sys is not mounted";
	default:
		snprintf(buf, size, "the kernel refused it: %s", strerror(-err));
		return buf;
	}
}

/* Attaches all sites of a row, or none, and says how that went. */
static int attach_row(struct src_bpf *s, const struct sites *sites, size_t row,
		      struct bpf_engine *e, probe_say say, void *ctx)
{
	char reason[256], buf[128];
	size_t before = e->n_probes;
	int err = 0;

	if (!sites__describe(sites, row, reason, sizeof(reason))) {
		say(ctx, probes[row].name, -ENOENT, reason);
		return 0;
	}
	if (s->opts.refuse >> row & 1)
		err = -EINVAL;
	for (size_t i = 0; i < sites->n && !err; i++) {
		if (sites->sites[i].row == row)
			err = attach_site(s, &sites->sites[i], e);
	}
	if (err) {
		bpf_uprobe_detach(e->probes + before, e->n_probes - before);
		e->n_probes = before;
		say(ctx, probes[row].name, err, why_not(err, buf, sizeof(buf)));
		return 0;
	}
	say(ctx, probes[row].name, 0, reason);
	return 1;
}

static void say_all(uint16_t engine, int err, const char *reason, probe_say say, void *ctx)
{
	for (size_t i = 0; i < n_probes; i++) {
		if (probes[i].engine && probes[i].engine == engine)
			say(ctx, probes[i].name, err, reason);
	}
}

static struct bpf_engine *new_engine(struct src_bpf *s, uint32_t tgid)
{
	struct bpf_engine *more;

	bpf_engines_detach(s, tgid);
	if (s->n_engines == MAX_ENGINES)
		return NULL;
	more = realloc(s->engines, (s->n_engines + 1) * sizeof(*more));
	if (!more)
		return NULL;
	s->engines = more;
	s->engines[s->n_engines] = (struct bpf_engine){ .tgid = tgid };
	return &s->engines[s->n_engines++];
}

int src_bpf__attach_engine(struct src_bpf *s, uint32_t tgid, uint16_t engine, probe_say say,
			   void *ctx)
{
	uint64_t start = monotonic_ns();
	struct bpf_engine *e;
	struct sites sites;
	char buf[128];
	int err, n = 0;

	if (engine != TL_ENGINE_LLAMA && engine != TL_ENGINE_VLLM)
		return 0;
	if (s->opts.tiers && !(s->opts.tiers & TL_T1)) {
		say_all(engine, -EPERM, "tier 1 is not among those allowed (--tier)", say, ctx);
		return 0;
	}
	err = sites__find(tgid, engine, &sites);
	if (!err) {
		err = bpf_engine_load(s, engine);
		if (err)
			sites__free(&sites);
	}
	if (err) {
		say_all(engine, err, why_not(err, buf, sizeof(buf)), say, ctx);
		return err;
	}
	e = new_engine(s, tgid);
	for (size_t i = 0; e && i < n_probes; i++) {
		if (probes[i].engine == engine)
			n += attach_row(s, &sites, i, e, say, ctx);
	}
	sites__free(&sites);
	s->attach_ns += monotonic_ns() - start;
	return e ? n : -ENOMEM;
}

static void detach(struct bpf_engine *e)
{
	bpf_uprobe_detach(e->probes, e->n_probes);
	free(e->probes);
}

void bpf_engines_detach(struct src_bpf *s, uint32_t tgid)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->n_engines; i++) {
		if (!tgid || s->engines[i].tgid == tgid)
			detach(&s->engines[i]);
		else
			s->engines[kept++] = s->engines[i];
	}
	s->n_engines = kept;
}

void src_bpf__detach_engine(struct src_bpf *s, uint32_t tgid)
{
	bpf_engines_detach(s, tgid);
}

void bpf_engines_close(struct src_bpf *s)
{
	bpf_engines_detach(s, 0);
	free(s->engines);
	zmq_bpf__destroy(s->zmq);
	llama_bpf__destroy(s->llama);
}
