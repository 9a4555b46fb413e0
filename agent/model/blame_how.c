/* SPDX-License-Identifier: Apache-2.0 */
/* How it came to the sum of a mechanism: the steps that lost time to it, looked at once more. */
#include "model/blame_how.h"
#include "model/blame_priv.h"
#include "model/clues_gpu.h"
#include "model/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 64, MIN_PENDING = 4, TINY_NS = 20000 };
/* Less is not worth a line: of what is above baseline, and at all. */
enum { WORTH_PCT = 1, WORTH_NS = 5000000 };

struct busy {			/* of a device, in steps of which that is known */
	uint64_t ns, of_ns;
	bool at_least;		/* kernels had no record in some of them */
};
struct rank_sum {
	uint64_t n, wait_ns, transfer_ns, waiting;
	struct busy busy;
};
struct mean {
	uint64_t sum, n;
};
struct mech_sum {		/* of one mechanism, steps of one engine */
	uint64_t n, ns, lost_ns, n_both;
	struct busy busy;
	struct mean mhz;
	uint32_t usual_mhz, least_batch, most_batch;
	uint64_t lost_by[2], rest_by[2];	/* steps that only decode, others */
	struct mean launches, launch_ns, step_launch_ns;
};
struct looker {
	struct blame *b;
	uint64_t wanted;	/* mechanisms, bits */
	uint32_t engine;
	struct busy all;
	struct mean compute, compute_late;	/* of steps that only decode */
	struct mech_sum by[N_MECHANISMS];
	struct rank_sum rank[MAX_RANKS];
};

static uint64_t mean_of(const struct mean *m)
{
	return m->n ? m->sum / m->n : 0;
}

static void add_mean(struct mean *m, uint64_t x)
{
	m->sum += x;
	m->n++;
}

static double busy_pct(const struct busy *x)
{
	return x->of_ns ? 100.0 * (double)x->ns / (double)x->of_ns : -1;
}

static void add_busy(struct busy *to, const struct busy *x)
{
	to->ns += x->ns;
	to->of_ns += x->of_ns;
	to->at_least |= x->at_least;
}

/* A device in a step of so many ns: no longer than that. */
static struct busy busy_of(const struct blame *b, uint32_t step, const struct tl_gpu_step *s, uint64_t ns)
{
	const struct gpu_facts *f = b->v.gpu;

	if (!s || !s->busy_ns)
		return (struct busy){ .at_least = false };
	return (struct busy){ least(s->busy_ns, ns), ns, f && step < f->n_steps && f->steps[step].at_least };
}

/* ---- what a step lost ---- */

struct lost {
	uint64_t ns[N_MECHANISMS];
	struct culprit who[N_MECHANISMS];	/* of most of it */
	uint64_t who_ns[N_MECHANISMS];
};

static void take(struct lost *l, const struct clue_list *clues, uint64_t *left)
{
	for (size_t i = 0; i < clues->n && *left; i++) {
		const struct clue *k = &clues->v[i];
		uint64_t ns = least(k->ns, *left);

		l->ns[k->mechanism] += ns;
		*left -= ns;
		if (ns > l->who_ns[k->mechanism]) {
			l->who_ns[k->mechanism] = ns;
			l->who[k->mechanism] = k->who;
		}
	}
}

/* As blame takes it: what threads did first, then what devices did, no more than it took beyond usual. */
static void lost_of(const struct blame *b, uint32_t step, struct lost *ret)
{
	const struct rec_step *st = &b->v.steps[step];
	struct step_span at = step_index__span(&b->ix, step);
	struct clue_list l;
	struct expected e;
	bool unknown_prompt;
	uint64_t left;

	memset(ret, 0, sizeof(*ret));
	baseline__step(b->base, step, &e);
	unknown_prompt = b->ix.facts[step].prefill && !e.n_prefill;
	left = less(less(at.t1_ns, at.t0_ns), unknown_prompt ? e.decode_ns : e.step_ns);
	if (!e.n_learnt || left <= TINY_NS || lost_in(b, st->t0_ns, st->t1_ns))
		return;
	clues__engine(b->clues, st->engine, at.t0_ns, at.t1_ns, &l);
	take(ret, &l, &left);
	clues__step(b->clues, step, unknown_prompt ? 0 : e.step_ns, &l);
	take(ret, &l, &left);
}

/* ---- looked at ---- */

static void look_at_graph(struct looker *k, uint32_t step, const struct tl_gpu_step *s, uint64_t ns)
{
	const struct gpu_facts *facts = k->b->v.gpu;
	const struct gpu_step *g = facts && step < facts->n_steps ? &facts->steps[step] : NULL;
	struct mech_sum *m = &k->by[MECH_GRAPH_MISS];
	uint32_t batch = s->batch ? s->batch : k->b->v.steps[step].n_members;

	m->least_batch = m->least_batch && m->least_batch < batch ? m->least_batch : batch;
	m->most_batch = batch > m->most_batch ? batch : m->most_batch;
	if (!s->launches)
		return;
	add_mean(&m->launches, s->launches);
	add_mean(&m->step_launch_ns, ns / s->launches);
	if (g && g->launching_ns)
		add_mean(&m->launch_ns, g->launching_ns / s->launches);
}

static void look_at_ranks(struct looker *k, uint32_t step, const struct gpu_view *g, const struct culprit *late, uint64_t ns)
{
	struct collective c = collective_of(k->b->clues, g);
	struct rank_sum *r;

	if (late->type != WHO_RANK || late->id >= MAX_RANKS || c.n_ranks < 2)
		return;
	r = &k->rank[late->id];
	r->n++;
	r->wait_ns += c.most_ns - c.least_ns;
	r->transfer_ns += c.least_ns;
	for (size_t i = 0; i < g->n; i++) {
		const struct tl_gpu_step *s = gpu_rank(k->b->clues, g, i);
		struct busy busy = busy_of(k->b, step, s, ns);

		if (s->rank >= MAX_RANKS || 2 * less(s->collective_ns, c.least_ns) < c.most_ns - c.least_ns)
			continue;
		r->waiting |= 1ull << s->rank;
		add_busy(&r->busy, &busy);
	}
}

/* The most that a rank's device was busy outside of collectives; 0: not known of all. */
static uint64_t compute_of(const struct blame *b, const struct gpu_view *g)
{
	uint64_t most_ns = 0;

	for (size_t i = 0; i < g->n; i++) {
		const struct tl_gpu_step *s = gpu_rank(b->clues, g, i);

		if (!s->busy_ns)
			return 0;
		most_ns = most(most_ns, less(s->busy_ns, s->collective_ns));
	}
	return most_ns;
}

static void look_at_clock(struct looker *k, enum mechanism mech, uint32_t device, uint32_t step)
{
	struct device_state d = device_as(k->b->clues, step, device);

	if (!d.mhz)
		return;
	add_mean(&k->by[mech].mhz, d.mhz);
	k->by[mech].usual_mhz = d.usual_mhz;
}

static void look_at(struct looker *k, uint32_t step)
{
	struct gpu_view g = gpu_of_step(k->b->clues, step);
	const struct tl_gpu_step *s = g.n ? gpu_rank(k->b->clues, &g, 0) : NULL;
	bool decodes = step_only_decodes(&k->b->v, step);
	uint64_t ns = step_ns(k->b->clues, step), compute = decodes ? compute_of(k->b, &g) : 0;
	struct busy busy = busy_of(k->b, step, s, ns);
	struct lost l;

	lost_of(k->b, step, &l);
	add_busy(&k->all, &busy);
	if (compute)
		add_mean(l.ns[MECH_COLLECTIVE] ? &k->compute_late : &k->compute, compute);
	for (int m = 0; m < N_MECHANISMS; m++) {
		struct mech_sum *sum = &k->by[m];

		if (!l.ns[m] || !(k->wanted & 1ull << m))
			continue;
		sum->n++;
		sum->ns += ns;
		sum->lost_ns += l.ns[m];
		sum->lost_by[!decodes] += l.ns[m];
		sum->rest_by[!decodes] += less(ns, l.ns[m]);
		sum->n_both += l.ns[MECH_CLOCK] && l.ns[MECH_NEIGHBOUR];
		add_busy(&sum->busy, &busy);
		if (m == MECH_GRAPH_MISS && s)
			look_at_graph(k, step, s, ns);
		else if (m == MECH_COLLECTIVE)
			look_at_ranks(k, step, &g, &l.who[m], ns);
		else if (m == MECH_CLOCK || (m == MECH_NEIGHBOUR && s))
			look_at_clock(k, (enum mechanism)m, m == MECH_CLOCK ? l.who[m].id : s->device, step);
	}
}

/* ---- summed up ---- */

static struct how_rank rank_of(const struct looker *k)
{
	uint32_t worst = 0;
	const struct rank_sum *r;

	for (uint32_t i = 1; i < MAX_RANKS; i++)
		if (k->rank[i].wait_ns > k->rank[worst].wait_ns)
			worst = i;
	r = &k->rank[worst];
	if (!r->n)
		return (struct how_rank){ .waiting_busy_pct = -1 };
	return (struct how_rank){
		.rank = worst, .n_steps = r->n, .waiting = r->waiting, .wait_ns = r->wait_ns / r->n,
		.transfer_ns = r->transfer_ns / r->n, .compute_ns = mean_of(&k->compute_late),
		.compute_usual_ns = mean_of(&k->compute), .waiting_busy_pct = busy_pct(&r->busy),
		.waiting_at_least = r->busy.at_least,
	};
}

static double more_pct(const struct mech_sum *m, int kind)
{
	return m->lost_by[kind] && m->rest_by[kind] ?
		       100.0 * (double)m->lost_by[kind] / (double)m->rest_by[kind] : -1;
}

static void sum_up(const struct looker *k, enum mechanism mech, struct how *ret)
{
	const struct mech_sum *m = &k->by[mech];
	uint64_t launch_ns = mean_of(&m->launch_ns);

	*ret = (struct how){
		.mechanism = (uint8_t)mech, .engine = k->engine, .n_steps = m->n, .steps_ns = m->ns,
		.lost_ns = m->lost_ns, .busy_pct = busy_pct(&m->busy), .all_busy_pct = busy_pct(&k->all),
		.busy_at_least = m->busy.at_least, .all_at_least = k->all.at_least,
		.late = { .waiting_busy_pct = -1 },
		.clock = { (uint32_t)mean_of(&m->mhz), m->usual_mhz, more_pct(m, 0), more_pct(m, 1), m->n_both },
	};
	if (mech == MECH_GRAPH_MISS)
		ret->graph = (struct how_graph){
			m->least_batch, m->most_batch, k->b->clues->gpu_usual[k->engine].max_captured,
			mean_of(&m->launches), launch_ns ? launch_ns : mean_of(&m->step_launch_ns), !launch_ns,
		};
	if (mech == MECH_COLLECTIVE)
		ret->late = rank_of(k);
}

static void keep(struct hows *to, const struct blame_sum *s, const struct how *h)
{
	size_t at = to->n;
	uint64_t ns = s->by_mechanism[h->mechanism].ns + s->by_mechanism[h->mechanism].ttft_ns;

	while (at && ns > s->by_mechanism[to->v[at - 1].mechanism].ns +
				  s->by_mechanism[to->v[at - 1].mechanism].ttft_ns)
		at--;
	if (at == MAX_HOWS)
		return;
	if (to->n == MAX_HOWS)
		to->n--;
	memmove(&to->v[at + 1], &to->v[at], (to->n - at) * sizeof(*to->v));
	to->v[at] = *h;
	to->n++;
}

/* ---- writes that lag behind steps ---- */

static bool waited_for(const struct blame *b, const struct blame_sum *s, uint32_t engine)
{
	for (size_t i = 0; i < s->n_pairs; i++) {
		const struct rec_request *r = &b->v.requests[s->pairs[i].victim];

		if (s->pairs[i].mechanism == MECH_DETOKENIZER && r->n_seqs &&
		    b->v.seqs[r->seqs[0]].engine == engine)
			return true;
	}
	return false;
}

static uint64_t last_write(const struct blame *b, size_t place)
{
	uint32_t step = b->ix.order[place];
	const struct step_writes *w = &b->writes[step];

	return w->last_us ? b->v.steps[step].t1_ns + 1000ull * w->last_us : 0;
}

/* Where what a step gave left last, behind its end; SIZE_MAX: nowhere. */
static size_t worst_place(const struct blame *b, uint32_t engine)
{
	size_t worst = SIZE_MAX;

	for (size_t i = b->ix.first[engine]; i < b->ix.first[engine + 1]; i++)
		if (b->writes[b->ix.order[i]].last_us &&
		    (worst == SIZE_MAX ||
		     b->writes[b->ix.order[i]].last_us > b->writes[b->ix.order[worst]].last_us))
			worst = i;
	return worst;
}

static bool find_backlog(const struct blame *b, uint32_t engine, struct how_backlog *ret)
{
	size_t worst = worst_place(b, engine), first = worst;

	if (worst == SIZE_MAX)
		return false;
	*ret = (struct how_backlog){ .made_ns = b->v.steps[b->ix.order[worst]].t1_ns,
				     .written_ns = last_write(b, worst) };
	for (size_t i = b->ix.first[engine]; i <= worst; i++)
		if (last_write(b, i) > ret->made_ns) {
			first = i < first ? i : first;
			ret->n_pending++;
		}
	if (ret->n_pending < MIN_PENDING || worst == first)
		return false;
	ret->step_ns = less(ret->made_ns, b->v.steps[b->ix.order[first]].t1_ns) / (worst - first);
	ret->out_ns = less(ret->written_ns, last_write(b, first)) / (worst - first);
	return true;
}

/* ---- all of it ---- */

static uint64_t worth_it(const struct blame_sum *s)
{
	uint64_t all = s->excess_ns + s->ttft_excess_ns, bits = 0;

	for (int m = MECH_LEFT_OUT + 1; m < MECH_LOST; m++) {
		uint64_t ns = s->by_mechanism[m].ns + s->by_mechanism[m].ttft_ns;

		if (ns >= WORTH_NS && 100 * ns >= WORTH_PCT * all)
			bits |= 1ull << m;
	}
	return bits;
}

static void look_at_engine(struct looker *k, const struct blame_sum *s, struct hows *ret)
{
	const struct step_index *ix = &k->b->ix;
	struct how h = { .mechanism = MECH_DETOKENIZER, .engine = k->engine, .busy_pct = -1, .all_busy_pct = -1 };

	for (size_t i = ix->first[k->engine]; i < ix->first[k->engine + 1]; i++)
		look_at(k, ix->order[i]);
	for (int m = 0; m < N_MECHANISMS; m++)
		if (k->by[m].n) {
			struct how of;

			sum_up(k, (enum mechanism)m, &of);
			keep(ret, s, &of);
		}
	if (k->wanted & 1ull << MECH_DETOKENIZER && waited_for(k->b, s, k->engine) &&
	    find_backlog(k->b, k->engine, &h.backlog)) {
		h.all_busy_pct = busy_pct(&k->all);
		h.all_at_least = k->all.at_least;
		keep(ret, s, &h);
	}
}

int blame__how(struct blame *b, const struct blame_sum *s, struct hows *ret)
{
	uint64_t wanted = worth_it(s);
	struct looker *k = wanted ? malloc(sizeof(*k)) : NULL;

	ret->n = 0;
	if (!wanted)
		return 0;
	if (!k)
		return -ENOMEM;
	for (uint32_t e = 0; e < b->v.n_engines; e++) {
		*k = (struct looker){ .b = b, .wanted = wanted, .engine = e };
		look_at_engine(k, s, ret);
	}
	free(k);
	return 0;
}
