/* SPDX-License-Identifier: Apache-2.0 */
/* Servers that were told to compute nothing, and until when. */
#include "model/pauses.h"
#include "model/servers.h"

#include <string.h>

static bool is_one_of(const struct rec_other *o, const char *a, const char *b)
{
	return (!strcmp(o->path, a) || !strcmp(o->path, b)) && o->status < 300;
}

static uint32_t server_of(const struct model_view *v, const struct rec_other *o)
{
	return o->engine < v->n_engines ? server_of_engine(&v->engines[o->engine].e) : 0;
}

/* Until the server is asked to go on, or once more to pause. */
static bool pause_of(const struct model_view *v, size_t i, struct pause *ret)
{
	const struct rec_other *o = &v->others[i];
	struct pause p = { .t0_ns = o->begin_ns,
			   .t1_ns = v->t1_ns,
			   .server = server_of(v, o),
			   .other = (uint32_t)i };

	if (!is_one_of(o, "/pause", "/sleep"))
		return false;
	for (size_t k = i + 1; k < v->n_others; k++) {
		const struct rec_other *next = &v->others[k];
		bool ends = is_one_of(next, "/resume", "/wake_up");

		if (server_of(v, next) != p.server ||
		    (!ends && !is_one_of(next, "/pause", "/sleep")))
			continue;
		p.t1_ns = next->begin_ns;
		p.ended = ends;
		break;
	}
	*ret = p;
	return p.t1_ns > p.t0_ns;
}

size_t pauses_find(const struct model_view *v, struct pause ret[MAX_PAUSES])
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_others && n < MAX_PAUSES; i++)
		n += pause_of(v, i, &ret[n]);
	return n;
}

bool pause_during(const struct model_view *v, uint32_t engine, uint64_t t0_ns, uint64_t t1_ns,
		  struct pause *ret)
{
	uint32_t server = engine < v->n_engines ? server_of_engine(&v->engines[engine].e) : 0;
	struct pause all[MAX_PAUSES];
	size_t n = pauses_find(v, all);

	for (size_t i = 0; i < n; i++) {
		uint64_t from = all[i].t0_ns > t0_ns ? all[i].t0_ns : t0_ns;
		uint64_t to = all[i].t1_ns < t1_ns ? all[i].t1_ns : t1_ns;

		if (all[i].server != server || to <= from || to - from <= (t1_ns - t0_ns) / 2)
			continue;
		*ret = all[i];
		return true;
	}
	return false;
}
