/* SPDX-License-Identifier: Apache-2.0 */
/* Looks into the processes of a server that use CUDA. */
#include "cmd/session_gpu.h"

#include "base/map.h"
#include "cmd/log.h"
#include "source/gpu.h"
#include "source/gpu_find.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000ull

enum {
	MAX_PROCESSES = 1024,	/* of all servers */
	MAX_LOOK_S = 8,		/* how seldom a process is asked whether it uses CUDA by now */
	WINDOW_MS = 2000,
};

struct gpu_process {
	uint32_t server;
	struct gpu *gpu;	/* NULL: not entered */
	uint64_t look_ns, pause_ns;	/* when to look at it again; 0: never */
	uint64_t order_ns;	/* when a window is to be opened */
};

struct session_gpu {
	struct session_gpu_opts opts;
	struct map *processes;	/* tgid -> struct gpu_process */
	int err;		/* of opts.out */
};

struct session_gpu *session_gpu__new(const struct session_gpu_opts *opts)
{
	struct session_gpu *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->opts = *opts;
	s->processes = map__new(sizeof(struct gpu_process), MAX_PROCESSES);
	if (!s->processes) {
		free(s);
		return NULL;
	}
	return s;
}

static void ignore(void *ctx, const struct tl_hdr *ev)
{
	(void)ctx, (void)ev;
}

void session_gpu__free(struct session_gpu *s)
{
	if (!s)
		return;
	for (struct gpu_process *p = map__oldest(s->processes, NULL); p; p = map__newer(s->processes, p, NULL))
		gpu__leave(p->gpu, ignore, NULL);
	map__free(s->processes);
	free(s);
}

static void pass_on(void *ctx, const struct tl_hdr *ev)
{
	struct session_gpu *s = ctx;

	if (!s->err)
		s->err = emit(&s->opts.out, ev);
}

/* ---- who ---- */

static int add(struct session_gpu *s, uint32_t tgid, uint32_t server)
{
	struct gpu_process *p;
	bool fresh;

	p = map__put(s->processes, tgid, &fresh);
	if (!p)
		return map__is_full(s->processes) ? 0 : -ENOMEM;
	if (fresh)
		*p = (struct gpu_process){ .server = server, .look_ns = 1, .pause_ns = SECOND_NS };
	return 0;
}

int session_gpu__add(struct session_gpu *s, uint32_t tgid, uint32_t server)
{
	uint32_t *pids = NULL;
	int n, err = add(s, tgid, server);

	n = err ? err : gpu_descendants(tgid, &pids);
	for (int i = 0; i < n && !err; i++)
		err = add(s, pids[i], server);
	free(pids);
	return err ? err : n < 0 ? n : 0;
}

int session_gpu__note(struct session_gpu *s, const struct tl_raw_proc *e)
{
	struct gpu_process *p = map__get(s->processes, e->what == TL_PROC_FORK ? e->parent : e->hdr.tgid);
	int err = 0;

	if (!p)
		return 0;
	if (e->what == TL_PROC_FORK)
		err = add(s, e->hdr.tgid, p->server);
	return err;
}

/* ---- in ---- */

static void enter(struct session_gpu *s, uint32_t tgid, struct gpu_process *p)
{
	struct gpu_entry entry;
	int err = gpu__attach(tgid, NULL, &p->gpu, &entry);

	(void)s;
	p->look_ns = 0;
	if (err) {
		p->gpu = NULL;
		log_warn("pid %u: no GPU records: %s", tgid, entry.why);
		return;
	}
	log_info("pid %u: entered for GPU records, stopped for %.1f ms", tgid, entry.stopped_ns / 1e6);
	p->order_ns = 1;
}

static void look(struct session_gpu *s, uint32_t tgid, struct gpu_process *p, uint64_t now)
{
	int uses = gpu_maps_cuda(tgid);

	if (uses > 0 && s->opts.level > TL_GPU_LAUNCHES) {
		enter(s, tgid, p);
		return;
	}
	p->look_ns = uses == -ESRCH ? 0 : now + p->pause_ns;
	if (p->pause_ns < MAX_LOOK_S * SECOND_NS)
		p->pause_ns *= 2;
}

int session_gpu__poll(struct session_gpu *s, uint64_t now)
{
	struct gpu_process *p;
	uint64_t tgid;

	for (p = map__oldest(s->processes, &tgid); p; p = map__newer(s->processes, p, &tgid)) {
		int n;

		if (!p->gpu && p->look_ns && now >= p->look_ns)
			look(s, tgid, p, now);
		if (!p->gpu)
			continue;
		if (p->order_ns && now >= p->order_ns) {
			gpu__order(p->gpu, s->opts.level, WINDOW_MS);
			p->order_ns = now + 2 * WINDOW_MS * (SECOND_NS / 1000);
		}
		n = gpu__poll(p->gpu, now, pass_on, s);
		if (n == -ESRCH || n == -EPROTO) {
			gpu__leave(p->gpu, pass_on, s);
			p->gpu = NULL;
		}
	}
	return s->err;
}

int session_gpu__end(struct session_gpu *s)
{
	struct gpu_process *p;

	for (p = map__oldest(s->processes, NULL); p; p = map__newer(s->processes, p, NULL)) {
		gpu__leave(p->gpu, pass_on, s);
		p->gpu = NULL;
	}
	return s->err;
}
