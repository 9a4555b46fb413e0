/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: what they did for one step, against what they do for others like it. */
#include "model/clues_gpu.h"
#include "base/num.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OF_RANK = 256 };	/* threads that are looked at */

/* ---- what is known of one step ---- */

struct gpu_view gpu_of_step(const struct clues *c, uint32_t step)
{
	size_t lo = 0, hi = c->gpu_of.n;
	struct gpu_view g = { .at = NULL };

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->gpu_of.v[mid].step < step)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < c->gpu_of.n)
		g.at = &c->gpu_of.v[lo];
	while (lo + g.n < c->gpu_of.n && g.at[g.n].step == step)
		g.n++;
	return g;
}

const struct tl_gpu_step *gpu_rank(const struct clues *c, const struct gpu_view *g, size_t i)
{
	return &c->ev->gpu_steps.v[g->at[i].gpu];
}

bool step_only_decodes(const struct model_view *v, uint32_t step)
{
	const struct rec_step *st = &v->steps[step];

	for (uint32_t i = 0; i < st->n_members; i++)
		if (v->members[st->first_member + i].phase != TL_DECODE)
			return false;
	return st->n_members > 0;
}

/* Its share of its engine's time, as what is usual is learnt: a step that runs ahead begins
 * before the last one ends. */
uint64_t step_ns(const struct clues *c, uint32_t step)
{
	struct step_span at = step_index__span(&c->ix, step);

	return at.t1_ns - at.t0_ns;
}

struct collective collective_of(const struct clues *c, const struct gpu_view *g)
{
	struct collective k = { .least_ns = UINT64_MAX };

	for (size_t i = 0; i < g->n; i++) {
		const struct tl_gpu_step *s = gpu_rank(c, g, i);

		if (s->collective_ns < k.least_ns) {
			k.least_ns = s->collective_ns;
			k.late_rank = s->rank;
		}
		if (s->collective_ns > k.most_ns)
			k.most_ns = s->collective_ns;
		if (s->late_ns > k.late_ns) {
			k.late_ns = s->late_ns;
			k.said_rank = s->rank;
		}
		k.n_ranks++;
	}
	if (!k.n_ranks)
		k.least_ns = 0;
	return k;
}

/* All ranks within a twentieth of each other: nobody waited for anybody. */
static bool somebody_is_late(const struct collective *k)
{
	return k->n_ranks > 1 && k->most_ns - k->least_ns >= k->most_ns / 20 &&
	       k->most_ns > k->least_ns;
}

/* ---- pieces of a step ---- */

void add_amount(struct clue_list *l, enum mechanism m, enum provenance prov, uint64_t ns,
		struct culprit who)
{
	struct clue k = { .ns = ns, .mechanism = m, .prov = prov, .who = who };

	list_add(l, &k);
}

struct culprit who_device(uint32_t device, const char *fmt, unsigned int a, unsigned int b)
{
	char name[64];

	snprintf(name, sizeof(name), fmt, a, b);	/* fmt takes two, one or none of them */
	return who_named(WHO_DEVICE, device, name, sizeof(name));
}

/* A rank that took part before and has nothing in a step that does not end; -1: none. */
static int missing_rank(const struct clues *c, uint32_t step, const struct gpu_view *g)
{
	uint64_t mask = c->gpu_usual[c->v->steps[step].engine].rank_mask;
	bool open = false;

	for (size_t i = 0; i < g->n; i++) {
		const struct tl_gpu_step *s = gpu_rank(c, g, i);

		open |= s->hdr.flags & TL_GPU_OPEN;
		if (s->rank < 64 && s->collective_ns)
			mask &= ~(1ull << s->rank);
	}
	return open && mask ? __builtin_ctzll(mask) : -1;
}

/* The first span of a thread that ends behind t: spans of a thread do not overlap. */
static size_t span_after(const struct clues *c, const struct watched *w, uint64_t t_ns)
{
	size_t lo = w->span0, hi = w->span1;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->ev->spans.v[mid].hdr.ts_ns <= t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The thread of a late rank, and what it did: moved to another CPU, above all. */
static struct culprit who_was_late(const struct clues *c, uint32_t engine, uint16_t rank,
				   uint64_t t0_ns, uint64_t t1_ns)
{
	uint32_t server = c->engine_servers[engine];
	struct culprit who = { .type = WHO_NOBODY };
	size_t first = clues_threads_from(c, server, rank);
	char name[64];

	for (size_t i = first; i < c->n_threads && i - first < MAX_OF_RANK; i++) {
		const struct watched *w = &c->threads[c->server_threads[i]];

		if (w->t->rank != rank || w->server != server)
			break;
		if (!who.type)
			who = who_named(WHO_THREAD, w->t->hdr.tid, w->t->name, sizeof(w->t->name));
		for (size_t k = span_after(c, w, t0_ns); k < w->span1; k++) {
			const struct tl_thread_span *s = &c->ev->spans.v[k];

			if (s->since_ns >= t1_ns)
				break;
			if (!(s->hdr.flags & TL_SPAN_MIGRATED))
				continue;
			snprintf(name, sizeof(name), "%.15s CPU %u to %u", w->t->name, s->from_cpu,
				 s->cpu);
			return who_named(WHO_THREAD, w->t->hdr.tid, name, sizeof(name));
		}
	}
	return who;
}

static void add_ranks(const struct clues *c, uint32_t step, const struct gpu_view *g,
		      struct clue_list *ret)
{
	const struct rec_step *st = &c->v->steps[step];
	const struct gpu_usual *u = &c->gpu_usual[st->engine];
	struct collective k = collective_of(c, g);
	struct clue q = { .mechanism = MECH_COLLECTIVE, .prov = PROV_OBSERVED };
	int missing = missing_rank(c, step, g);
	uint16_t rank = k.late_ns ? k.said_rank : k.late_rank;

	if (missing >= 0) {
		q.ns = k.most_ns;
		q.who = who_named(WHO_RANK, missing, "never entered", 32);
		list_add(ret, &q);
		return;
	}
	if (somebody_is_late(&k) || (k.late_ns && k.n_ranks == 1)) {
		q.ns = k.n_ranks > 1 ? k.most_ns - k.least_ns : k.late_ns;
		q.who = (struct culprit){ .type = WHO_RANK, .id = rank };
		q.root = who_was_late(c, st->engine, rank, st->t0_ns, st->t0_ns + q.ns);
		list_add(ret, &q);
	}
	if (k.n_ranks > 1)
		add_amount(ret, MECH_COMMUNICATION, PROV_OBSERVED,
			   less(k.least_ns, u->collective_ns),
			   (struct culprit){ .type = WHO_NOBODY });
}

/* The device was idle beyond usual while a thread of the engine was on a CPU, in no code
 * that says more: the host was not ready. A thread that spins until the device is done
 * does so while that is busy. */
static void add_host(const struct clues *c, uint32_t step, uint64_t usual_ns,
		     const struct tl_gpu_step *s, struct clue_list *ret)
{
	uint32_t engine = c->v->steps[step].engine;
	struct step_span at = step_index__span(&c->ix, step);
	const struct line *l = &c->run_lines[engine];
	uint64_t idle_ns = less(less(step_ns(c, step), s->busy_ns), c->gpu_usual[engine].idle_ns);
	uint64_t run_ns = 0, longest_ns = 0;
	struct clue_list longest = { .n = 0 };

	if (!s->busy_ns || !usual_ns)
		return;
	for (size_t i = pieces_after(l->p, l->n, at.t0_ns); i < l->n && l->p[i].t0_ns < at.t1_ns;
	     i++) {
		uint64_t from = l->p[i].t0_ns > at.t0_ns ? l->p[i].t0_ns : at.t0_ns;
		uint64_t ns = least(l->p[i].t1_ns, at.t1_ns) - from;

		run_ns += ns;
		if (ns <= longest_ns)
			continue;
		longest_ns = ns;
		longest.n = 0;
		list_add_piece(c, &longest, &l->p[i], at.t0_ns, at.t1_ns);
	}
	if (longest.n)
		add_amount(ret, MECH_HOST, PROV_INFERRED,
			   least(run_ns, least(idle_ns, less(step_ns(c, step), usual_ns))),
			   longest.v[0].who);
}

/*
 * A slower clock stretches what the device is busy with, by its ratio: no more of the excess
 * is the clock's. What is left while a neighbour is there is the neighbour's, as far as the
 * device was busy. How long a prompt usually takes may not have been learnt: then the ratio is
 * applied to what it took.
 */
static void add_device(const struct clues *c, uint32_t step, uint64_t usual_ns,
		       const struct gpu_view *g, struct clue_list *ret)
{
	const struct tl_gpu_step *s = g->n ? gpu_rank(c, g, 0) : NULL;
	const struct gpu_usual *u = &c->gpu_usual[c->v->steps[step].engine];
	uint64_t ns = step_ns(c, step), stretched = ns;
	struct device_state d = worst_device(c, step, g);

	if (s && s->busy_ns)	/* time in which it was idle beyond
				 * usual is nobody's on the device */
		stretched = less(ns, less(less(ns, s->busy_ns), u->idle_ns));
	if (is_slow_clock(&d)) {
		bool whole = !usual_ns || (!d.neighbour && !step_only_decodes(c->v, step));
		double slower = (double)d.usual_mhz / d.mhz;
		double share = whole ? stretched * (1 - 1 / slower) : usual_ns * (slower - 1);

		add_amount(ret, MECH_CLOCK, PROV_INFERRED, share < stretched ? (uint64_t)share : stretched,
		    who_device(d.device, d.why & TL_GPU_THERMAL ? "heat: %u of %u MHz" :
				       d.why & TL_GPU_POWER   ? "power: %u of %u MHz" :
								"%u of %u MHz", d.mhz, d.usual_mhz));
	}
	if (d.neighbour) {
		uint64_t padded_ns = s ? padding_ns(c, step, s, usual_ns) : 0;
		uint64_t share = usual_ns ? less(stretched, usual_ns + padded_ns) :
					    stretched / 100 * least(d.neighbour->by_pct, 100);

		add_amount(ret, MECH_NEIGHBOUR, PROV_INFERRED, share,
			   who_named(d.neighbour->by_tgid ? WHO_PROCESS : WHO_DEVICE,
				     d.neighbour->by_tgid ? d.neighbour->by_tgid : d.device,
				     d.neighbour->by_name, sizeof(d.neighbour->by_name)));
	}
}

void clues__step(const struct clues *c, uint32_t step, uint64_t usual_ns, struct clue_list *ret)
{
	struct gpu_view g = gpu_of_step(c, step);
	const struct gpu_usual *u = &c->gpu_usual[c->v->steps[step].engine];

	ret->n = 0;
	if (g.n) {
		add_graph(c, step, usual_ns, gpu_rank(c, &g, 0), ret);
		add_ranks(c, step, &g, ret);
		add_amount(ret, MECH_COPY, PROV_OBSERVED,
			   less(gpu_rank(c, &g, 0)->copy_ns, u->copy_ns),
			   who_device(gpu_rank(c, &g, 0)->device, "", 0, 0));
		add_host(c, step, usual_ns, gpu_rank(c, &g, 0), ret);
	}
	if (c->ev->gpu_states.n)
		add_device(c, step, usual_ns, &g, ret);
	if (g.n)
		add_padding(c, step, usual_ns, gpu_rank(c, &g, 0), ret);
}

bool clues__step_is_odd(const struct clues *c, uint32_t step)
{
	struct gpu_view g = gpu_of_step(c, step);
	struct collective k = collective_of(c, &g);
	struct device_state d;

	if (g.n) {
		const struct tl_gpu_step *s = gpu_rank(c, &g, 0);

		if (s->hdr.flags & (TL_GPU_COLD | TL_GPU_OPEN) || graph_is_odd(c, step, s))
			return true;
	}
	if (somebody_is_late(&k) && k.most_ns - k.least_ns > step_ns(c, step) / 20)
		return true;
	if (!c->ev->gpu_states.n)
		return false;
	d = worst_device(c, step, &g);
	return is_slow_clock(&d) || d.neighbour;
}
