/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps launches and spans of GPUs by process, as small as they can be. */
#include "model/gpu_priv.h"

#include <errno.h>

static struct gpu_process *process_of(struct gpu_log *g, uint32_t tgid, int *ret_err)
{
	struct gpu_process *p;
	uint32_t *at;

	*ret_err = 0;
	if (g->last < g->processes.n && g->processes.v[g->last].tgid == tgid)
		return &g->processes.v[g->last];
	if (!g->by_tgid)
		g->by_tgid = map__new(sizeof(uint32_t), GPU_MAX_PROCESSES);
	at = g->by_tgid ? map__get(g->by_tgid, tgid) : NULL;
	if (at) {
		g->last = *at;
		return &g->processes.v[*at];
	}
	if (g->processes.n == GPU_MAX_PROCESSES) {
		g->not_kept++;
		return NULL;
	}
	at = g->by_tgid ? map__put(g->by_tgid, tgid, NULL) : NULL;
	if (at)
		*at = g->processes.n;
	p = at ? vec_push(&g->processes, GPU_MAX_PROCESSES) : NULL;
	if (!p) {
		if (at)
			map__del(g->by_tgid, tgid);
		*ret_err = -ENOMEM;
		return NULL;
	}
	p->tgid = tgid;
	g->last = g->processes.n - 1;
	return p;
}

static int no_room(struct gpu_log *g, bool full)
{
	g->not_kept += full;
	return full ? 0 : -ENOMEM;
}

static int on_unseen(struct gpu_process *p, const struct tl_gpu_launch *e)
{
	struct gpu_unseen *u = p->unseen.n ? &p->unseen.v[p->unseen.n - 1] : NULL;

	/* Said when it began, and again when it is over. */
	if (!u || u->t0_ns != e->hdr.ts_ns || u->t1_ns != UINT64_MAX)
		u = vec_push(&p->unseen, GPU_MAX_UNSEEN);
	if (u)
		*u = (struct gpu_unseen){ e->hdr.ts_ns, e->dur_ns ? e->hdr.ts_ns + e->dur_ns : UINT64_MAX };
	return u || p->unseen.n >= GPU_MAX_UNSEEN ? 0 : -ENOMEM;
}

/* Memory that comes and goes is no part of a step, nor is a call that was refused. */
static int on_launch(struct gpu_log *g, struct gpu_process *p, const struct tl_gpu_launch *e)
{
	struct gpu_launch *l;

	if (e->call == TL_CALL_KERNEL && e->hdr.flags & TL_LAUNCH_UNSEEN)
		return on_unseen(p, e);
	if (e->call == TL_CALL_ALLOC || e->hdr.flags & TL_LAUNCH_FAILED)
		return 0;
	l = vec_push(&p->launches, GPU_MAX_LAUNCHES);
	if (!l)
		return no_room(g, p->launches.n >= GPU_MAX_LAUNCHES);
	*l = (struct gpu_launch){
		.ts_ns = e->hdr.ts_ns, .stream = e->stream, .what = e->what,
		.dur_ns = e->dur_ns < UINT32_MAX ? e->dur_ns : UINT32_MAX,
		.corr = e->corr, .tid = e->hdr.tid, .n = e->n ? e->n : 1, .call = e->call,
		.many = e->n > 1,
		.flags = (e->hdr.flags & TL_LAUNCH_FROM ? GPU_L_DTOH : 0) |
			 (e->hdr.flags & TL_LAUNCH_WAITS ? GPU_L_WAITS : 0),
	};
	return 0;
}

static int on_span(struct gpu_log *g, struct gpu_process *p, const struct tl_gpu_span *e)
{
	struct gpu_span *s;

	if (e->what == TL_SPAN_OVERHEAD || e->end_ns < e->hdr.ts_ns)
		return 0;
	s = vec_push(&p->spans, GPU_MAX_SPANS);
	if (!s)
		return no_room(g, p->spans.n >= GPU_MAX_SPANS);
	*s = (struct gpu_span){
		.t0_ns = e->hdr.ts_ns, .t1_ns = e->end_ns, .corr = e->corr,
		.name = e->name < p->name_of.n ? p->name_of.v[e->name] : 0,
		.graph = e->graph, .stream = e->stream, .device = e->device, .what = e->what,
		.copy = e->copy < 128 ? e->copy : 0, .guess = !!(e->hdr.flags & TL_F_GUESS),
	};
	return 0;
}

/* Ids begin anew when a process is entered again: spans keep the name that the id had when they came. */
static int on_name(struct gpu_log *g, struct gpu_process *p, const struct tl_gpu_name *e)
{
	struct gpu_name *n;
	char name[128];

	if (e->id >= GPU_MAX_NAMES)
		return no_room(g, true);
	while (p->name_of.n <= e->id)
		if (!vec_push(&p->name_of, GPU_MAX_NAMES))
			return -ENOMEM;
	n = p->name_of.v[e->id] ? &p->names.v[p->name_of.v[e->id] - 1] : NULL;
	if (n && !strncmp(n->name, e->name, sizeof(n->name) - 1))
		return 0;
	n = vec_push(&p->names, GPU_MAX_NAMES);
	if (!n)
		return no_room(g, p->names.n >= GPU_MAX_NAMES);
	memcpy(n->name, e->name, sizeof(n->name) - 1);
	gpu_short_name(n->name, name, sizeof(name));
	n->collective = gpu_is_collective(name);
	p->name_of.v[e->id] = p->names.n;
	return 0;
}

int gpu_log_fork(struct gpu_log *g, uint32_t tgid, uint32_t parent)
{
	struct gpu_parent *p = vec_push(&g->parents, GPU_MAX_PARENTS);

	if (p)
		*p = (struct gpu_parent){ tgid, parent };
	return p || g->parents.n >= GPU_MAX_PARENTS ? 0 : -ENOMEM;
}

int gpu_log_on(struct gpu_log *g, const struct tl_hdr *ev)
{
	struct gpu_process *p;
	int err;

	if (ev->kind != TL_GPU_LAUNCH && ev->kind != TL_GPU_SPAN && ev->kind != TL_GPU_NAME)
		return -ENOENT;
	p = process_of(g, ev->tgid, &err);
	if (!p)
		return err;
	if (ev->kind == TL_GPU_LAUNCH)
		return on_launch(g, p, (const void *)ev);
	return ev->kind == TL_GPU_SPAN ? on_span(g, p, (const void *)ev) : on_name(g, p, (const void *)ev);
}

void gpu_log_free(struct gpu_log *g)
{
	for (size_t i = 0; i < g->processes.n; i++) {
		vec_free(&g->processes.v[i].launches);
		vec_free(&g->processes.v[i].spans);
		vec_free(&g->processes.v[i].unseen);
		vec_free(&g->processes.v[i].names);
		vec_free(&g->processes.v[i].name_of);
		vec_free(&g->processes.v[i].windows);
		vec_free(&g->processes.v[i].bursts);
		vec_free(&g->processes.v[i].holes);
		vec_free(&g->processes.v[i].watched);
	}
	vec_free(&g->processes);
	vec_free(&g->parents);
	map__free(g->by_tgid);
	g->by_tgid = NULL;
}
