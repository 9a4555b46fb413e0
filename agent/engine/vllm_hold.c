/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's messages of outputs, put in order: one per step and API server,
 * each on a socket of its own. */
#include "engine/vllm_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	HOLD_NS = 500000000,	/* so much later one socket may show what another has shown (seen:
				 * 40 ms; 150 were not enough with ten programs for each core) */
	MERGE_NS = 200000,	/* between the messages of one step, which
				 * are made one after the other ... */
	MERGE_WITH_STATS_NS = 20000000,	/* ... and with counters, those
					 * without belong to those with */
};

static void held_free(struct vheld *h)
{
	vec_free(&h->rows);
	vec_free(&h->preemptions);
	free(h);
}

void vengine_free(struct vengine *g)
{
	vsched__free(&g->sched);
	for (size_t i = 0; i < g->n_made; i++)
		held_free(g->held[i]);
	free(g->step);
}

/* A spare one, emptied. NULL: out of memory. */
static struct vheld *held_new(struct vengine *g)
{
	struct vheld *h;

	if (g->n_made == g->n_held) {
		h = calloc(1, sizeof(*h));
		if (!h)
			return NULL;
		g->held[g->n_made++] = h;
	}
	h = g->held[g->n_held];
	h->scheduled_ns = 0;
	h->has_stats = h->cut = false;
	h->rows.n = h->preemptions.n = 0;
	return h;
}

/* Takes the i-th out, and keeps it behind the others. */
static struct vheld *take(struct vengine *g, size_t i)
{
	struct vheld *h = g->held[i];

	memmove(&g->held[i], &g->held[i + 1], (--g->n_held - i) * sizeof(h));
	g->held[g->n_held] = h;
	return h;
}

/* The spare one that was filled goes to its place in time. */
static void hold(struct vengine *g)
{
	struct vheld *h = g->held[g->n_held];
	size_t i = g->n_held++;

	for (; i && g->held[i - 1]->ts_ns > h->ts_ns; i--)
		g->held[i] = g->held[i - 1];
	g->held[i] = h;
}

/* The first of a step has the counters, if there are any. One that only ends requests
 * comes behind a step, soon. */
static bool is_same_step(const struct vheld *first, const struct vheld *h)
{
	return !h->has_stats && !vsched_only_ends(h->rows.v, h->rows.n) &&
	       h->ts_ns - first->ts_ns < (first->has_stats ? MERGE_WITH_STATS_NS : MERGE_NS);
}

static void merge(struct vllm *v, struct vheld *to, const struct vheld *from)
{
	to->cut |= from->cut;
	if (from->scheduled_ns > to->scheduled_ns)
		to->scheduled_ns = from->scheduled_ns;
	for (size_t i = 0; i < from->rows.n; i++) {
		struct vsched_row *r = vec_push(&to->rows, MAX_ROWS);

		if (!r) {
			v->err = -ENOMEM;
			return;
		}
		*r = from->rows.v[i];
	}
	for (size_t i = 0; i < from->preemptions.n; i++) {
		struct vpreemption *p = vec_push(&to->preemptions, MAX_ROWS);

		if (!p) {
			v->err = -ENOMEM;
			return;
		}
		*p = from->preemptions.v[i];
	}
}

static void say_first(struct vllm *v, struct vengine *g)
{
	struct vheld *h = g->held[0];

	while (g->n_held > 1 && is_same_step(h, g->held[1]))
		merge(v, h, take(g, 1));
	vengine_step(v, g, take(g, 0));
}

void vengine_flush(struct vllm *v, struct vengine *g)
{
	while (g->n_held)
		say_first(v, g);
}

void vengine_release(struct vllm *v, struct vengine *g)
{
	while (g->n_held &&
	       (!g->several || g->n_held == MAX_HELD || v->now_ns > g->held[0]->ts_ns + HOLD_NS))
		say_first(v, g);
}

void vllm_outputs(struct vllm *v, struct vengine *g, const struct zmtp_frame *body)
{
	struct vllm_outputs o;
	struct vllm_row row;
	struct vheld *h;

	if (vllm_msg_outputs(body->data, body->len, &o)) {
		v->counts.bad_messages++;
		return;
	}
	if (!v->sock->has_client && (o.n_rows || o.utility)) {
		v->sock->has_client = true;
		g->several |= ++g->n_clients > 1;
		if (g->sched.unseen.n_clients < g->n_clients)
			g->sched.unseen.n_clients = g->n_clients;
	}
	if (o.utility || o.wave || (g->coordinated && !v->sock->has_client))
		return;
	h = held_new(g);
	if (!h) {
		v->err = -ENOMEM;
		return;
	}
	h->ts_ns = o.timestamp_ns ? o.timestamp_ns : v->now_ns;
	h->cut = o.flags & VLLM_CUT;
	h->has_stats = o.has_stats;
	if (o.has_stats)
		h->stats = o.stats;
	while (vllm_msg_next_row(&o, &row))
		vengine_row(v, g, h, &row);
	hold(g);
	vengine_release(v, g);
}
