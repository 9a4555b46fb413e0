/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that launch what devices do: steps wait for them, whatever role they are known by. */
#include "base/map.h"
#include "model/state.h"

#include <errno.h>

enum { MAX_TIDS = 4096, PART = 8 /* of a process's launches, and less is no part of its steps */ };

static uint64_t weight(const struct gpu_launch *l)
{
	return l->call == TL_CALL_GRAPH ? 64 : l->call == TL_CALL_KERNEL ? 1 : 0;
}

static int add(struct gpu_facts *f, uint32_t tgid, uint32_t tid)
{
	struct gpu_launcher *v = realloc(f->launchers, (f->n_launchers + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	f->launchers = v;
	v[f->n_launchers++] = (struct gpu_launcher){ tgid, tid };
	return 0;
}

static int add_up(const struct gpu_process *p, struct map *by_tid, uint64_t *ret_all)
{
	*ret_all = 0;
	for (size_t i = 0; i < p->launches.n; i++) {
		uint64_t w = weight(&p->launches.v[i]), *sum;

		if (!w || !p->launches.v[i].tid)
			continue;
		sum = map__put(by_tid, p->launches.v[i].tid, NULL);
		if (!sum && !map__is_full(by_tid))
			return -ENOMEM;
		if (sum)
			*sum += w;
		*ret_all += w;
	}
	return 0;
}

static int of_process(struct gpu_facts *f, const struct gpu_process *p)
{
	struct map *by_tid = map__new(sizeof(uint64_t), MAX_TIDS);
	uint64_t all, tid;
	int err = by_tid ? add_up(p, by_tid, &all) : -ENOMEM;

	for (const uint64_t *sum = err ? NULL : map__oldest(by_tid, &tid); sum && !err;
	     sum = map__newer(by_tid, sum, &tid))
		if (*sum >= all / PART)
			err = add(f, p->tgid, tid);
	map__free(by_tid);
	return err;
}

static int by_thread(const void *pa, const void *pb)
{
	const struct gpu_launcher *a = pa, *b = pb;

	if (a->tgid != b->tgid)
		return a->tgid < b->tgid ? -1 : 1;
	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

int gpu_find_launchers(struct model *m)
{
	struct gpu_facts *f = &m->gpu;
	int err = 0;

	for (size_t i = 0; i < m->gpu_log.processes.n && !err; i++)
		err = of_process(f, &m->gpu_log.processes.v[i]);
	if (f->n_launchers)
		qsort(f->launchers, f->n_launchers, sizeof(*f->launchers), by_thread);
	return err;
}
