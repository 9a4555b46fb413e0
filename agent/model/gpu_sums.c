/* SPDX-License-Identifier: Apache-2.0 */
/* What devices did for each step: busy and idle, graphs, collectives; and the evidence of it. */
#include "base/map.h"
#include "model/state.h"

#include <errno.h>

enum { MAX_EXECS = 65536, MAX_LADDER = 512, FITS_PCT = 97, MAX_ROWS = 4000000 };

struct union_of {		/* of spans that come by their begin */
	uint64_t end_ns, sum_ns;
};

static void add_to(struct union_of *u, const struct gpu_span *s)
{
	uint64_t from = s->t0_ns > u->end_ns ? s->t0_ns : u->end_ns;

	if (s->t1_ns <= from)
		return;
	u->sum_ns += s->t1_ns - from;
	u->end_ns = s->t1_ns;
}

struct burst_sum {
	struct union_of all, kernels, collective;
};

/* Batches that engines capture: below each of them the next one is padded to. */
enum ladder { BY_EIGHT /* 1, 2, 4, 8, 16, 24 ... */, DOUBLING, BY_FOUR /* ... 8, 12, 16, 24 ... */, N_LADDERS };

struct exec {			/* a graph, and the batches that it ran */
	uint32_t least, most, size;
	uint32_t rung[N_LADDERS], n[N_LADDERS];
	bool sized;		/* that size is told by what others ran; else it may be a larger one */
};

struct summer {
	struct model *m;
	const struct step_index *ix;
	struct burst_sum *sums;		/* by burst of the process that is looked at */
	struct map *execs;		/* its graphs: handle -> struct exec */
	uint32_t *last_of;		/* by sequence: the step that it was in last, + 1 */
	bool has_graphs;
	bool tells;			/* it is the rank whose times are those of steps */
};

static bool tells_kernels(const struct gpu_process *p, const struct gpu_burst *b)
{
	const struct gpu_window *w = b->window ? &p->windows.v[b->window - 1] : NULL;

	/* a window may close in the middle of it */
	return w && w->kernels && (b->told || w->last_kernel_ns > b->launch1_ns);
}

bool gpu_is_known(const struct gpu_process *p, const struct gpu_burst *b)
{
	if (!b->whole || b->entered || !b->window || !b->gpu1_ns || b->no_graphs)
		return false;
	return tells_kernels(p, b) ? !b->no_kernels : b->n_graphs > 0;
}

static uint32_t batch_of(const struct model *m, uint32_t step)
{
	return m->steps[step].n_tokens ? m->steps[step].n_tokens : m->steps[step].n_members;
}

static int sum_spans(struct summer *s, const struct gpu_process *p)
{
	s->sums = calloc(p->bursts.n + 1, sizeof(*s->sums));
	if (!s->sums)
		return -ENOMEM;
	for (size_t i = 0; i < p->spans.n; i++) {
		const struct gpu_span *k = &p->spans.v[i];
		struct burst_sum *b = k->at ? &s->sums[k->at - 1] : NULL;

		if (!b)
			continue;
		add_to(&b->all, k);
		if (k->what == TL_SPAN_KERNEL || k->what == TL_SPAN_GRAPH)
			add_to(&b->kernels, k);
		if (k->what == TL_SPAN_KERNEL && k->name && p->names.v[k->name - 1].collective)
			add_to(&b->collective, k);
		s->m->gpu.counts.spans_in_steps += p->bursts.v[k->at - 1].step != 0;
	}
	return 0;
}

static uint32_t rung(enum ladder l, uint32_t n)
{
	uint32_t two = 1;

	while (two < n && two < 1u << 30)
		two *= 2;
	if (l == DOUBLING || n <= 8)
		return two;
	return l == BY_FOUR && n <= 12 ? 12 : (n + 7) / 8 * 8;
}

/* Most of a graph's batches have one rung: whoever is left when others cancel it out. */
static void vote(struct exec *e, uint32_t batch)
{
	for (int l = 0; l < N_LADDERS; l++) {
		uint32_t r = rung(l, batch);

		if (!e->n[l])
			e->rung[l] = r;
		e->n[l] += e->rung[l] == r ? 1 : -1;
	}
	e->most = batch > e->most ? batch : e->most;
	e->least = !e->least || batch < e->least ? batch : e->least;
}

static int by_size(const void *pa, const void *pb)
{
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	return a < b ? -1 : a > b;
}

/* Is each rung one graph's? There are at most MAX_LADDER of these. */
static bool is_ladder(const struct map *execs, enum ladder l)
{
	uint32_t rungs[MAX_LADDER];
	size_t n = 0;

	for (const struct exec *e = map__oldest(execs, NULL); e; e = map__newer(execs, e, NULL))
		if (e->n[l])
			rungs[n++] = e->rung[l];
	qsort(rungs, n, sizeof(*rungs), by_size);
	for (size_t i = 1; i < n; i++)
		if (rungs[i] == rungs[i - 1])
			return false;
	return true;
}

static bool fits_ladder(const struct summer *s, const struct gpu_process *p, enum ladder l)
{
	size_t n = 0, good = 0;

	for (size_t i = 0; i < p->bursts.n; i++) {
		const struct gpu_burst *b = &p->bursts.v[i];
		const struct exec *e = b->n_graphs && b->step ? map__get(s->execs, b->exec) : NULL;
		uint32_t batch = e ? batch_of(s->m, b->step - 1) : 0;

		n += batch > 0;
		good += batch && rung(l, batch) == e->rung[l];
	}
	return good * 100 >= n * FITS_PCT && is_ladder(s->execs, l);
}

static bool begins_with(const struct map *execs, uint32_t batch)
{
	for (const struct exec *e = map__oldest(execs, NULL); e; e = map__newer(execs, e, NULL))
		if (e->least == batch)
			return true;
	return false;
}

/* The size of a graph is not told. It is at least the largest batch that it ran; if graphs run several sizes, and
 * all of them are such as engines capture, it is the next one of these. If another graph ran the
 * batch behind that, it is no larger. */
static void find_sizes(const struct summer *s, const struct gpu_process *p)
{
	int l = N_LADDERS;
	bool padded = false;

	for (struct exec *e = map__oldest(s->execs, NULL); e; e = map__newer(s->execs, e, NULL)) {
		padded |= e->least < e->most;
		e->size = e->most;
	}
	if (padded && map__len(s->execs) <= MAX_LADDER)
		for (l = 0; l < N_LADDERS && !fits_ladder(s, p, l);)
			l++;
	for (struct exec *e = map__oldest(s->execs, NULL); e && l < N_LADDERS; e = map__newer(s->execs, e, NULL))
		e->size = e->rung[l];
	if (map__len(s->execs) <= MAX_LADDER)
		for (struct exec *e = map__oldest(s->execs, NULL); e; e = map__newer(s->execs, e, NULL))
			e->sized = l < N_LADDERS || begins_with(s->execs, e->most + 1);
}

static int learn_graphs(struct summer *s, const struct gpu_process *p)
{
	s->has_graphs = false;
	s->execs = map__new(sizeof(struct exec), MAX_EXECS);
	if (!s->execs)
		return -ENOMEM;
	for (size_t i = 0; i < p->bursts.n; i++) {
		const struct gpu_burst *b = &p->bursts.v[i];
		struct exec *e;

		s->has_graphs |= b->n_graphs > 0;
		if (!b->n_graphs || !b->step || !batch_of(s->m, b->step - 1))
			continue;
		e = map__put(s->execs, b->exec, NULL);
		if (!e && !map__is_full(s->execs))
			return -ENOMEM;
		if (e)
			vote(e, batch_of(s->m, b->step - 1));
	}
	find_sizes(s, p);
	return 0;
}

static uint16_t graph_of(const struct summer *s, const struct gpu_burst *b, uint32_t *ret_size, bool *ret_sized)
{
	const struct exec *e = b->n_graphs ? map__get(s->execs, b->exec) : NULL;

	*ret_size = e && e->size <= UINT16_MAX ? e->size : 0;
	*ret_sized = *ret_size && e->sized;
	if (!b->n_graphs)
		return s->has_graphs ? TL_GRAPH_MISS : TL_GRAPH_NONE;
	return *ret_size > batch_of(s->m, b->step - 1) ? TL_GRAPH_PADDED : TL_GRAPH_HIT;
}

/* Is a sequence in this step and in the one before? Then the device had something to do between them. */
static bool follows(struct summer *s, uint32_t before, uint32_t step)
{
	const struct rec_step *st = &s->m->steps[step];
	bool ret = false;

	for (uint32_t i = 0; i < st->n_members; i++) {
		uint32_t *last = &s->last_of[s->m->members[st->first_member + i].seq];

		ret |= *last == before + 1;
		*last = step + 1;
	}
	return ret;
}

static uint64_t idle_of(const struct gpu_process *p, size_t burst, uint64_t busy_ns, bool follows)
{
	const struct gpu_burst *b = &p->bursts.v[burst], *before = burst ? b - 1 : NULL;
	uint64_t from = b->launch0_ns < b->gpu0_ns ? b->launch0_ns : b->gpu0_ns, ns;

	if (follows && before->gpu1_ns && before->window == b->window)
		from = before->gpu1_ns;
	ns = b->gpu1_ns > from ? b->gpu1_ns - from : 0;
	return ns > busy_ns ? ns - busy_ns : 0;
}

/* How long the host was at launching kernels and graphs. */
static uint64_t launching_of(const struct gpu_process *p, const struct gpu_burst *b)
{
	uint64_t from = 0, until = 0;

	for (uint32_t i = b->first; i < b->end; i++) {
		const struct gpu_launch *l = &p->launches.v[i];

		if (l->call != TL_CALL_KERNEL && l->call != TL_CALL_GRAPH)
			continue;
		from = from ? from : l->ts_ns;
		until = l->ts_ns + l->dur_ns > until ? l->ts_ns + l->dur_ns : until;
	}
	return until - from;
}

/* Where only graphs have records: are there kernels outside of them, or may there be? */
static bool has_untold(const struct gpu_process *p, const struct gpu_burst *b)
{
	return p->windows.v[b->window - 1].partial && !tells_kernels(p, b) &&
	       (!p->outside_kernels || b->unseen || b->n_kernels);
}

static void fill_step(struct summer *s, const struct gpu_process *p, size_t burst)
{
	const struct gpu_burst *b = &p->bursts.v[burst];
	struct gpu_step *st = &s->m->gpu.steps[b->step - 1];
	bool after = follows(s, burst && b[-1].step ? b[-1].step - 1 : UINT32_MAX - 1, b->step - 1);
	uint32_t size;

	if (!st->launch_ns && b->launch0_ns)
		st->launch_ns = b->launch0_ns;
	if (b->whole && !st->seen) {
		st->seen = true;
		st->counted = (p->outside_kernels && !b->unseen) || tells_kernels(p, b);
		st->launches = b->n_kernels + b->n_graphs;
		st->launching_ns = st->counted ? launching_of(p, b) : 0;
		st->graph = graph_of(s, b, &size, &st->sized);
	}
	if (!s->tells || !gpu_is_known(p, b))
		return;
	st->gpu0_ns = b->gpu0_ns;
	st->gpu1_ns = b->gpu1_ns;
	st->busy_ns = s->sums[burst].all.sum_ns;
	st->idle_ns = idle_of(p, burst, st->busy_ns, after);
	st->at_least = has_untold(p, b);
}

/* ---- evidence: what blame looks at ---- */

static bool has_prefill(const struct step_index *ix, uint32_t step)
{
	return ix->facts[step].prefill > 0;
}

/* Steps may overlap: the span is that in which no other of its engine ends, which tells whose it is. */
static int add_evidence(struct summer *s, const struct gpu_process *p, size_t burst)
{
	const struct gpu_burst *b = &p->bursts.v[burst];
	const struct burst_sum *sum = &s->sums[burst];
	struct step_span span = step_index__span(s->ix, b->step - 1);
	struct tl_gpu_step *e = vec_push(&s->m->evidence.gpu_steps, MAX_ROWS);
	bool known = gpu_is_known(p, b), sized;
	uint32_t size;

	if (!e) {
		s->m->evidence.n_not_kept += s->m->evidence.gpu_steps.n >= MAX_ROWS;
		return s->m->evidence.gpu_steps.n < MAX_ROWS ? -ENOMEM : 0;
	}
	*e = (struct tl_gpu_step){
		.hdr = { sizeof(*e), TL_GPU_STEP, b->cold ? TL_GPU_COLD : 0, p->tgid, 0, span.t0_ns },
		.end_ns = span.t1_ns, .busy_ns = known ? sum->all.sum_ns : 0,
		.collective_ns = known ? sum->collective.sum_ns : 0,
		.copy_ns = known ? sum->all.sum_ns - sum->kernels.sum_ns : 0,
		.launches = b->n_kernels + b->n_graphs, .graph_launches = b->n_graphs,
		.rank = p->rank, .device = p->device, .graph = graph_of(s, b, &size, &sized),
	};
	if (b->n_graphs && batch_of(s->m, b->step - 1) <= UINT16_MAX) {
		e->batch = batch_of(s->m, b->step - 1);
		e->padded_to = e->graph == TL_GRAPH_PADDED ? size : sized ? e->batch : 0;
	}
	if (e->graph == TL_GRAPH_MISS && has_prefill(s->ix, b->step - 1))
		e->graph = TL_GRAPH_NONE;	/* prompts are launched one by one as a rule */
	return 0;
}

static int sum_process(struct summer *s, const struct gpu_process *p, bool evidence)
{
	int err = sum_spans(s, p);

	if (!err)
		err = learn_graphs(s, p);
	for (size_t i = 0; i < p->bursts.n && !err; i++) {
		if (!p->bursts.v[i].step)
			continue;
		fill_step(s, p, i);
		if (evidence && p->bursts.v[i].whole)
			err = add_evidence(s, p, i);
	}
	free(s->sums);
	s->sums = NULL;
	map__free(s->execs);
	s->execs = NULL;
	return err;
}

/* ---- over the ranks of a step ---- */

static int by_begin(const void *pa, const void *pb)
{
	const struct tl_gpu_step *a = pa, *b = pb;

	if (a->hdr.ts_ns != b->hdr.ts_ns)
		return a->hdr.ts_ns < b->hdr.ts_ns ? -1 : 1;
	if (a->end_ns != b->end_ns)
		return a->end_ns < b->end_ns ? -1 : 1;
	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Of a collective, moving data is what the rank that waits least takes. */
static void compare_ranks(struct tl_gpu_step *v, size_t n)
{
	for (size_t i = 0, k; i < n; i = k) {
		uint64_t least = v[i].collective_ns;

		for (k = i + 1; k < n && v[k].hdr.ts_ns == v[i].hdr.ts_ns && v[k].end_ns == v[i].end_ns; k++)
			least = v[k].collective_ns < least ? v[k].collective_ns : least;
		for (size_t r = i; r < k && k - i > 1; r++)
			v[r].transfer_ns = least;
	}
}

static bool knows_any(const struct gpu_process *p)
{
	for (size_t i = 0; i < p->bursts.n; i++)
		if (p->bursts.v[i].step && gpu_is_known(p, &p->bursts.v[i]))
			return true;
	return false;
}

int gpu_sum_steps(struct model *m, const struct step_index *ix)
{
	struct summer s = { .m = m, .ix = ix };
	struct gpu_facts *f = &m->gpu;
	size_t n_before = m->evidence.gpu_steps.n;
	bool told = false;	/* one of the ranks of the server at hand tells */
	int err = 0;

	f->steps = calloc(m->v.n_steps + 1, sizeof(*f->steps));
	s.last_of = malloc((m->v.n_seqs + 1) * sizeof(*s.last_of));
	if (!f->steps || !s.last_of)
		err = -ENOMEM;
	f->n_steps = err ? 0 : m->v.n_steps;
	for (size_t i = 0; i < f->n_steps; i++)
		f->steps[i].busy_ns = f->steps[i].idle_ns = GPU_UNKNOWN;
	/* a recording that tells of steps of devices by itself is believed */
	for (size_t i = 0; i < m->gpu_log.processes.n && !err; i++) {
		const struct gpu_process *p = &m->gpu_log.processes.v[i];

		told = i && p[-1].server == p->server ? told || s.tells : false;
		s.tells = !told && knows_any(p);
		memset(s.last_of, 0, m->v.n_seqs * sizeof(*s.last_of));
		err = sum_process(&s, p, !n_before);
	}
	free(s.last_of);
	if (!err && !n_before && m->evidence.gpu_steps.n) {
		qsort(m->evidence.gpu_steps.v, m->evidence.gpu_steps.n, sizeof(*m->evidence.gpu_steps.v),
		      by_begin);
		compare_ranks(m->evidence.gpu_steps.v, m->evidence.gpu_steps.n);
	}
	return err;
}
