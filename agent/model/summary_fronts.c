/* SPDX-License-Identifier: Apache-2.0 */
/* What each process that reads requests had of them: of several one may be the slow one. */
#include "base/pct.h"
#include "model/summary_priv.h"

#include <errno.h>
#include <stdlib.h>

enum what { FRONT, TTFT, DELIVERY };

struct work {
	const struct model_view *v;
	uint32_t *order; /* requests by their process */
	uint64_t *values;
};

static int by_engine(const void *pa, const void *pb, void *ctx)
{
	const struct model_view *v = ctx;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	if (v->requests[a].engine != v->requests[b].engine)
		return v->requests[a].engine < v->requests[b].engine ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* Room for what one process has most of. */
static int make_room(struct work *w)
{
	size_t n = 0, most = 0;

	for (size_t i = 0; i < w->v->n_requests; i++) {
		const struct rec_request *r = &w->v->requests[w->order[i]];

		if (i && r->engine != w->v->requests[w->order[i - 1]].engine)
			n = 0;
		n += request_delivery_max(w->v, r) + 1;
		most = n > most ? n : most;
	}
	w->values = malloc((most + 1) * sizeof(*w->values));
	return w->values ? 0 : -ENOMEM;
}

static void dist_of_requests(struct work *w, size_t from, size_t to, enum what what,
			     struct dist *ret)
{
	size_t n = 0;
	bool exact;

	for (size_t i = from; i < to; i++) {
		const struct rec_request *r = &w->v->requests[w->order[i]];
		struct req_metrics m;
		int64_t ns;

		if (!request_counts(r))
			continue;
		if (what == DELIVERY) {
			n += request_delivery(w->v, r, w->values + n, &exact);
			continue;
		}
		request_metrics(w->v, r, &m);
		ns = what == FRONT ? m.before_submit_ns : m.ttft_ns;
		if (ns >= 0)
			w->values[n++] = (uint64_t)ns;
	}
	summary_dist(w->values, n, ret);
}

static void front_of(struct work *w, size_t from, size_t to, struct front_summary *ret)
{
	ret->n_requests = to - from;
	for (size_t i = from; i < to; i++) {
		uint8_t state = w->v->requests[w->order[i]].state;

		ret->n_errors += state == REQ_ERROR;
		ret->n_aborted += state == REQ_ABORTED;
	}
	dist_of_requests(w, from, to, FRONT, &ret->frontend);
	dist_of_requests(w, from, to, TTFT, &ret->ttft);
	dist_of_requests(w, from, to, DELIVERY, &ret->delivery);
}

int summarise_fronts(const struct model_view *v, struct front_summary **ret)
{
	struct front_summary *s = calloc(v->n_engines + 1, sizeof(*s));
	struct work w = { .v = v, .order = malloc((v->n_requests + 1) * sizeof(*w.order)) };
	int err = s && w.order ? 0 : -ENOMEM;

	for (uint32_t i = 0; !err && i < v->n_requests; i++)
		w.order[i] = i;
	if (!err) {
		qsort_r(w.order, v->n_requests, sizeof(*w.order), by_engine, (void *)v);
		err = make_room(&w);
	}
	for (size_t i = 0, k; !err && i < v->n_requests; i = k) {
		uint32_t engine = v->requests[w.order[i]].engine;

		for (k = i; k < v->n_requests && v->requests[w.order[k]].engine == engine;)
			k++;
		if (engine < v->n_engines)
			front_of(&w, i, k, &s[engine]);
	}
	free(w.order);
	free(w.values);
	if (err)
		free(s);
	else
		*ret = s;
	return err;
}
