/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a server whose wire tells of none, and who was in them. */
#include "model/gpu_infer.h"
#include "base/pct.h"

#include <errno.h>

/*
 * A burst of launches is a step; each token on the wire is from one. A sequence that decodes is in each step
 * until it ends, so its tokens are of successive steps: the i-th of them is of the last step that ended before it
 * was written, unless later tokens show that it was written late (rule: by ordinal).
 */
enum {
	MIN_SHIFT = 8,		/* so many tokens must agree that a step was left out */
	CONFIDENCE_PCT = 90,
	MAX_LATE = 32,		/* steps; what is later is no lateness */
	FEW = 8,		/* one in so many */
	HOLE_STEPS = 16,	/* without a step, while tokens come */
	SLACK_NS = 20000,
};

/* ---- steps ---- */

/* When the host has a step's outputs: its wait returned; else the device was done, and the host, if it runs ahead,
 * had launched the next one. */
static uint64_t host_end(const struct gpu_process *p, size_t i, bool ahead, uint64_t usual_ns)
{
	const struct gpu_burst *b = &p->bursts.v[i], *next = i + 1 < p->bursts.n ? b + 1 : NULL;
	uint64_t end = b->gpu1_ns && !b->no_kernels && !b->no_graphs ? b->gpu1_ns : 0, wait;

	if (next && next->window != b->window && !p->outside)
		next = NULL;
	wait = gpu_wait_for(b, next, ahead);
	if (!end)
		return wait ? wait : b->launch1_ns;
	if (wait + SLACK_NS >= end)
		return wait;
	if (b->sync1_ns + SLACK_NS >= end)
		return b->sync1_ns;
	if (ahead && next && next->launch0_ns < end + usual_ns && next->launch1_ns > end)
		return next->launch1_ns;
	return end;
}

static int usual_interval(const struct gpu_process *p, uint64_t *ret)
{
	uint64_t *gaps = malloc((p->bursts.n + 1) * sizeof(*gaps));
	size_t n = 0;

	if (!gaps)
		return -ENOMEM;
	for (size_t i = 1; i < p->bursts.n; i++)
		if (p->bursts.v[i].launch0_ns > p->bursts.v[i - 1].launch0_ns)
			gaps[n++] = p->bursts.v[i].launch0_ns - p->bursts.v[i - 1].launch0_ns;
	*ret = n ? pct_u64(gaps, n, 500) : 0;
	free(gaps);
	return 0;
}

static uint64_t busy_of(const struct gpu_process *p, uint32_t burst, size_t *at)
{
	uint64_t sum = 0, end = 0;

	/* spans come by their begin, those of a burst near each other */
	while (*at < p->spans.n && (!p->spans.v[*at].at || p->spans.v[*at].at <= burst))
		++*at;
	for (size_t i = *at; i < p->spans.n && (!p->spans.v[i].at || p->spans.v[i].at == burst + 1); i++) {
		const struct gpu_span *s = &p->spans.v[i];
		uint64_t from = s->t0_ns > end ? s->t0_ns : end;

		/* how long a collective takes says more of other ranks than of the step */
		if (!s->at || s->t1_ns <= from || (s->name && p->names.v[s->name - 1].collective))
			continue;
		sum += s->t1_ns - from;
		end = s->t1_ns;
	}
	return sum;
}

static int make_steps(struct inferred *f)
{
	struct gpu_process *p = f->p;
	bool ahead = gpu_runs_ahead(p);
	uint64_t last = 0;
	uint32_t segment = 0;
	size_t at = 0;
	int err = usual_interval(p, &f->usual_ns);

	for (size_t i = 0; i < p->bursts.n && !err; i++) {
		const struct gpu_burst *b = &p->bursts.v[i];
		bool cut = b->window && (b->no_kernels || b->no_graphs) && !b->sync0_ns;
		struct istep *s = vec_push(&f->steps, SIZE_MAX);

		if (!s)
			return -ENOMEM;
		if (i && !p->outside && b->window != b[-1].window)
			segment++;
		*s = (struct istep){
			.end_ns = cut ? last + f->usual_ns / 2 : host_end(p, i, ahead, f->usual_ns),
			.launch0_ns = b->launch0_ns ? b->launch0_ns : b->begin_ns, .busy_ns = GPU_UNKNOWN, .waited_ns = GPU_UNKNOWN, .burst = i,
			.segment = segment, .no_step = cut, .replayed = b->n_graphs > 0,
		};
		if (cut)
			segment++;
		s->end_ns = s->end_ns > last ? s->end_ns : last;
		if (b->sync0_ns && !cut)
			s->waited_ns = s->end_ns - (last > b->launch0_ns ? last : b->launch0_ns);
		last = s->end_ns;
		if (gpu_is_known(p, b))
			s->busy_ns = busy_of(p, i, &at);
		f->has_graphs |= s->replayed;
	}
	return err;
}

/* Index + 1 of the last step that ended at t or before; 0: none. */
static size_t last_end(const struct inferred *f, uint64_t t_ns)
{
	size_t lo = 0, hi = f->steps.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (f->steps.v[mid].end_ns <= t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Tokens that come long behind a step, without another one ending meanwhile, are of steps that nobody saw; but the first
 * of an answer may be of that step: then the server stood still before it was written. */
static bool is_far_behind(const struct inferred *f, size_t last, uint64_t t_ns)
{
	return last && t_ns - f->steps.v[last - 1].end_ns > HOLE_STEPS * f->usual_ns;
}

static void find_holes(struct inferred *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n_requests; i++)
		for (size_t k = 0; k < irequest(f, i)->n_chunks; k++) {
			uint64_t t = chunk_ns(irequest(f, i), k);
			size_t last = last_end(f, t);

			if (is_far_behind(f, last, t) &&
			    (irequest(f, i)->n != 1 || (k && last_end(f, chunk_ns(irequest(f, i), k - 1)) == last)))
				f->steps.v[last - 1].hole = true;
		}
	for (size_t i = 0; i < f->steps.n; i++) {
		struct istep *s = &f->steps.v[i];
		bool ends = i + 1 < f->steps.n && s[1].segment != s->segment;

		s->segment += n;
		n += s->hole && !ends && i + 1 < f->steps.n;
	}
}

/* The last step that ended at t or before; UINT32_MAX: none, or it is not known which. */
static uint32_t step_before(const struct inferred *f, uint64_t t_ns)
{
	size_t lo = last_end(f, t_ns);

	if (!lo || f->steps.v[lo - 1].no_step || (f->steps.v[lo - 1].hole && is_far_behind(f, lo, t_ns)))
		return UINT32_MAX;
	/* behind the last step of a window nobody knows what ran */
	if (lo < f->steps.n && f->steps.v[lo].segment == f->steps.v[lo - 1].segment)
		return lo - 1;
	return lo > 1 && t_ns - f->steps.v[lo - 1].end_ns <=
			 (f->steps.v[lo - 1].end_ns - f->steps.v[lo - 2].end_ns) / 2 ? lo - 1 : UINT32_MAX;
}

/* Are first tokens of steps that are no replays? Few come so late that it does not seem so. */
static bool are_firsts_plain(const struct inferred *f)
{
	size_t n = 0, replayed = 0;

	for (uint32_t i = 0; i < f->n_requests && f->has_graphs; i++) {
		const struct rec_request *r = irequest(f, i);
		uint32_t at = r->n_chunks && !r->joined_late ? step_before(f, chunk_ns(r, 0)) : UINT32_MAX;

		if (at == UINT32_MAX)
			continue;
		n++;
		replayed += f->steps.v[at].replayed;
	}
	return n && replayed <= n / FEW;
}

/* ---- decodes ---- */

int imember_add(struct inferred *f, const struct imember *k)
{
	struct imember *at = vec_push(&f->members, SIZE_MAX);

	if (!at)
		return -ENOMEM;
	*at = *k;
	return 0;
}

/* Did token i of a request (`first` is the first of `at`) come as long behind the one before as its step took? Those
 * that were held up come all at once. */
static bool came_in_time(const struct inferred *f, const struct rec_request *r, size_t i, uint32_t at)
{
	uint64_t took = at && at < f->steps.n ? f->steps.v[at].end_ns - f->steps.v[at - 1].end_ns : 0;

	return took && chunk_ns(r, i) - chunk_ns(r, i - 1) >= took / 2;
}

/*
 * Tokens first ... first + n - 1 of a request, all written behind steps of one segment. at[i]: the last step before
 * token first + i. The shift between tokens and steps only grows, and no token comes before its step: it is at most that
 * of each later token. A shift that only few tokens show that came in time is lateness of theirs.
 */
static void settle(const struct inferred *f, const struct rec_request *r, size_t first, uint32_t *at, size_t n)
{
	int64_t shift = INT64_MAX;
	size_t in_time = 0, flat_from = n;

	for (size_t i = n; i-- > 0;) {
		int64_t s = (int64_t)at[i] - (int64_t)i;

		shift = s < shift ? s : shift;
		at[i] = shift + (int64_t)i < 0 ? UINT32_MAX : (uint32_t)(shift + (int64_t)i);
	}
	for (size_t i = n; i-- > 1 && in_time < MIN_SHIFT && at[i - 1] != UINT32_MAX;) {
		in_time += came_in_time(f, r, first + i, at[i]);
		if (at[i] - at[i - 1] != 1 && in_time < MIN_SHIFT)
			flat_from = i;
	}
	for (size_t i = flat_from; i < n; i++)
		at[i] = at[i - 1] + 1;
}

/*
 * Where decodes are replayed, steps with prompts are not: a first token that came behind a replay is of the last step
 * before it that was none, and late, and so are all that follow it at once.
 */
static void unreplay(const struct inferred *f, const struct rec_request *r, uint32_t *at, size_t n)
{
	uint32_t from = at[0], i = from;

	while (i > 0 && from - i < MAX_LATE && f->steps.v[i].replayed &&
	       f->steps.v[i - 1].segment == f->steps.v[from].segment &&
	       f->steps.v[i - 1].launch0_ns > r->at_ns[P_REQ_FIRST_BYTE])
		i--;
	if (f->steps.v[i].replayed || f->steps.v[i].no_step)
		return;
	for (size_t k = 0; k < n && at[k] == from + k; k++)
		at[k] = i + k;
}

static int add_tokens(struct inferred *f, uint32_t request, const uint32_t *at, size_t n, bool has_first)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		bool first = has_first && !i;

		if (at[i] >= f->steps.n || f->steps.v[at[i]].no_step)
			continue;
		if (first)
			f->first_of[request] = at[i] + 1;
		else
			err = imember_add(f, &(struct imember){ at[i], request, 1, TL_DECODE, 1 });
		f->steps.v[at[i]].n_decode += !first;
	}
	return err;
}

static uint32_t segment_of(const struct inferred *f, uint32_t at)
{
	return at == UINT32_MAX ? UINT32_MAX : f->steps.v[at].segment;
}

/* A streamed answer: by its chunks. Several answers at once: each chunk for itself. */
static int decode_stream(struct inferred *f, uint32_t request)
{
	const struct rec_request *r = irequest(f, request);
	uint32_t *at = malloc((r->n_chunks + 1) * sizeof(*at));
	int err = 0;

	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_chunks; i++)
		at[i] = step_before(f, chunk_ns(r, i));
	for (size_t i = 0, n; i < r->n_chunks && !err; i += n) {
		for (n = 1; i + n < r->n_chunks && segment_of(f, at[i + n]) == segment_of(f, at[i]);)
			n++;
		if (at[i] == UINT32_MAX)
			continue;
		if (r->n == 1)
			settle(f, r, i, at + i, n);
		if (r->n == 1 && !i && !r->joined_late && f->plain_firsts && at[0] != UINT32_MAX)
			unreplay(f, r, at, n);
		err = add_tokens(f, request, at + i, n, !i && !r->joined_late);
	}
	free(at);
	return err;
}

/* An answer in one piece: its tokens are of the last steps before it. */
static int decode_whole(struct inferred *f, uint32_t request)
{
	const struct rec_request *r = irequest(f, request);
	uint32_t last = r->output.prov && r->n == 1 && r->at_ns[P_DONE] && r->state == REQ_COMPLETE ?
				step_before(f, r->at_ns[P_DONE]) : UINT32_MAX;
	int err = 0;

	if (last == UINT32_MAX || last + 1 < r->output.n)
		return 0;
	for (uint32_t i = 0; i < r->output.n && !err; i++) {
		uint32_t at = last - i;

		if (f->steps.v[at].segment != f->steps.v[last].segment)
			break;
		err = add_tokens(f, request, &at, 1, i + 1 == r->output.n);
	}
	return err;
}

/* ---- into the model ---- */

struct part {			/* of a request: its sequence in a segment */
	uint32_t seq, segment;	/* UINT32_MAX: none yet */
	uint32_t first;		/* the first of its sequences */
};

static int by_step(const void *pa, const void *pb)
{
	const struct imember *a = pa, *b = pb;

	if (a->at != b->at)
		return a->at < b->at ? -1 : 1;
	if (a->request != b->request)
		return a->request < b->request ? -1 : 1;
	return (int)a->phase - (int)b->phase;
}

/* A sequence of the request from this step on. What is before it, in another segment, goes on where nobody saw it. */
static int put_sequence(struct inferred *f, const struct imember *k, uint64_t begin_ns, struct part *part)
{
	struct model *m = f->m;
	bool first = part->seq == UINT32_MAX;
	struct rec_sequence *q;

	if (GROW(m->seqs, m->cap_seqs, m->v.n_seqs))
		return -ENOMEM;
	if (!first)
		m->seqs[part->seq].cut_by_loss = true;
	q = &m->seqs[m->v.n_seqs++];
	*q = (struct rec_sequence){ .id = m->v.n_seqs, .engine = f->engine, .slot = f->requests[k->request],
				    .begin_ns = begin_ns, .kept = -1, .task = -1, .ended = true,
				    .joined_late = !first || !f->first_of[k->request],
				    .open_ns = first ? f->open_ns[k->request] : 0 };
	part->seq = m->v.n_seqs - 1;
	part->segment = f->steps.v[k->at].segment;
	if (first)
		part->first = part->seq;
	return join_request(m, f->requests[k->request], part->seq, JOIN_ORDER, CONFIDENCE_PCT, 0);
}

static int put_member(struct inferred *f, const struct imember *k, uint32_t step, struct part *part)
{
	struct model *m = f->m;
	struct rec_step *st = &m->steps[step];
	struct rec_visit v = { .step = step, .n_tokens = k->n_tokens < MAX_STEP_TOKENS ? k->n_tokens : MAX_STEP_TOKENS,
			       .n_out = k->n_out, .phase = k->phase, .guess = 1 };
	struct rec_sequence *q;
	int err;

	if (part->seq == UINT32_MAX || part->segment != f->steps.v[k->at].segment) {
		err = put_sequence(f, k, st->t0_ns, part);
		if (err)
			return err;
	}
	q = &m->seqs[part->seq];
	if (GROW(q->visits, q->cap_visits, q->n_visits) || GROW(m->members, m->cap_members, m->v.n_members))
		return -ENOMEM;
	q->visits[q->n_visits++] = v;
	visit_counts(q, &v);
	m->members[m->v.n_members++] = (struct rec_member){
		.seq = part->seq, .n_tokens = v.n_tokens, .n_out = v.n_out, .phase = v.phase, .guess = 1,
	};
	st->n_members++;
	st->n_tokens += v.n_tokens;
	return 0;
}

static int put_steps(struct inferred *f, struct part *parts)
{
	struct model *m = f->m;
	size_t k = 0;
	int err = 0;

	for (uint32_t i = 0; i < f->steps.n && !err; i++) {
		const struct istep *s = &f->steps.v[i];
		struct gpu_burst *b = &f->p->bursts.v[s->burst];

		if (s->no_step)
			continue;
		if (m->v.n_steps >= m->opts.max_steps) {
			m->v.n_steps_not_kept++;
			continue;
		}
		if (GROW(m->steps, m->cap_steps, m->v.n_steps))
			return -ENOMEM;
		m->steps[m->v.n_steps++] = (struct rec_step){
			.t0_ns = s->launch0_ns, .t1_ns = s->end_ns, .engine = f->engine,
			.first_member = m->v.n_members, .inferred = true,
		};
		b->step = m->v.n_steps;
		m->gpu.n_inferred_steps++;
		while (k < f->members.n && f->members.v[k].at < i)
			k++;
		for (; k < f->members.n && f->members.v[k].at == i && !err; k++)
			err = put_member(f, &f->members.v[k], b->step - 1, &parts[f->members.v[k].request]);
	}
	return err;
}

/* Points that the engine would have told. */
static void put_points(struct inferred *f, const struct part *parts)
{
	struct model *m = f->m;

	for (uint32_t i = 0; i < f->n_requests; i++) {
		const struct rec_sequence *q = parts[i].seq == UINT32_MAX ? NULL : &m->seqs[parts[i].first];
		struct rec_request *r = irequest(f, i);
		uint64_t at[N_POINTS] = { 0 };

		if (!q || !q->n_visits || !f->first_of[i])
			continue;
		at[P_PREFILL_START] = q->open_ns ? 0 : m->steps[q->visits[0].step].t0_ns;
		at[P_FIRST_TOKEN_ENGINE] = f->steps.v[f->first_of[i] - 1].end_ns;
		if (r->n_seqs == 1 && q->n_out == r->n_chunks)	/* all of its tokens have a step */
			at[P_LAST_TOKEN_ENGINE] = m->steps[q->visits[q->n_visits - 1].step].t1_ns;
		for (int p = 0; p < N_POINTS; p++)
			if (at[p] && !r->at_ns[p]) {
				r->at_ns[p] = at[p];
				r->prov[p] = PROV_INFERRED;
			}
	}
}

static int infer(struct inferred *f)
{
	struct model *m = f->m;
	struct part *parts = malloc((f->n_requests + 1) * sizeof(*parts));
	int err = make_steps(f);

	f->first_of = calloc(f->n_requests + 1, sizeof(*f->first_of));
	f->open_ns = calloc(f->n_requests + 1, sizeof(*f->open_ns));
	if (!parts || !f->first_of || !f->open_ns)
		err = -ENOMEM;
	if (!err)
		find_holes(f);
	f->plain_firsts = !err && are_firsts_plain(f);
	for (size_t i = 0; i < f->n_requests && !err; i++)
		parts[i].seq = UINT32_MAX;
	for (uint32_t i = 0; i < f->n_requests && !err; i++)
		if (!irequest(f, i)->n_seqs)
			err = irequest(f, i)->n_chunks ? decode_stream(f, i) : decode_whole(f, i);
	if (!err)
		err = gpu_infer_prompts(f);
	if (!err) {
		if (f->members.n)
			qsort(f->members.v, f->members.n, sizeof(*f->members.v), by_step);
		err = put_steps(f, parts);
	}
	if (!err) {
		put_points(f, parts);
		m->gpu.n_stretches += f->steps.n ? f->steps.v[f->steps.n - 1].segment + 1 : 0;
	}
	free(parts);
	return err;
}

int gpu_infer(struct model *m, struct gpu_process *p, uint32_t engine, const uint32_t *requests, size_t n)
{
	struct inferred f = { .m = m, .p = p, .engine = engine, .requests = requests, .n_requests = n };
	int err = infer(&f);

	vec_free(&f.steps);
	vec_free(&f.members);
	free(f.first_of);
	free(f.open_ns);
	return err;
}
