/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over a recording: devices, and each request's share of their time. */
#include "model/state.h"

#include <errno.h>

enum { MAX_DEVICES = 16 };	/* of one process */

void gpu_facts_free(struct gpu_facts *f)
{
	free(f->steps);
	free(f->shares);
	free(f->kernels);
	free(f->kernels_on);
	free(f->devices);
	free(f->launchers);
	free(f->windows);
	*f = (struct gpu_facts){ .steps = NULL };
}

/* ---- collectives ---- */

struct wait {			/* of one collective of one rank */
	uint32_t step;
	uint64_t ns;
};
struct waits {
	VEC(struct wait) l;
};

static int list_waits(const struct gpu_process *p, struct waits *ret)
{
	for (size_t i = 0; i < p->spans.n; i++) {
		const struct gpu_span *s = &p->spans.v[i];
		uint32_t step = s->at ? p->bursts.v[s->at - 1].step : 0;
		struct wait *w;

		if (!step || s->what != TL_SPAN_KERNEL || !s->name || !p->names.v[s->name - 1].collective)
			continue;
		w = vec_push(&ret->l, SIZE_MAX);
		if (!w)
			return -ENOMEM;
		*w = (struct wait){ step - 1, s->t1_ns - s->t0_ns };
	}
	return 0;
}

/* The k-th collectives of a step are one, if all ranks that are seen have as many: takes the least of them from each. */
static void compare_step(struct waits *ws, const size_t *at, const size_t *n, size_t n_ranks, uint64_t *sums)
{
	size_t most = 0, n_here = 0;

	for (size_t r = 0; r < n_ranks; r++) {
		most = n[r] > most ? n[r] : most;
		n_here += n[r] > 0;
	}
	for (size_t r = 0; r < n_ranks; r++)
		if (n[r] && n[r] != most)
			return;
	for (size_t k = 0; k < most && n_here > 1; k++) {
		uint64_t least = UINT64_MAX;

		for (size_t r = 0; r < n_ranks; r++)
			if (n[r] && ws[r].l.v[at[r] + k].ns < least)
				least = ws[r].l.v[at[r] + k].ns;
		for (size_t r = 0; r < n_ranks; r++)
			if (n[r])
				sums[r] = (sums[r] == GPU_UNKNOWN ? 0 : sums[r]) + ws[r].l.v[at[r] + k].ns - least;
	}
}

enum { MAX_RANKS = 64 };

static void compare_ranks(struct waits *ws, size_t n_ranks, uint64_t *sums)
{
	size_t at[MAX_RANKS] = { 0 }, n[MAX_RANKS];

	for (;;) {
		uint32_t step = UINT32_MAX;

		for (size_t r = 0; r < n_ranks; r++)
			if (at[r] < ws[r].l.n && ws[r].l.v[at[r]].step < step)
				step = ws[r].l.v[at[r]].step;
		if (step == UINT32_MAX)
			return;
		for (size_t r = 0; r < n_ranks; r++)
			for (n[r] = 0; at[r] + n[r] < ws[r].l.n && ws[r].l.v[at[r] + n[r]].step == step;)
				n[r]++;
		compare_step(ws, at, n, n_ranks, sums);
		for (size_t r = 0; r < n_ranks; r++)
			at[r] += n[r];
	}
}

/* How long each of n ranks of a server waited for others. sums: GPU_UNKNOWN, where there is nothing to compare. */
static int sum_waits(const struct gpu_process *p, size_t n, uint64_t *sums)
{
	struct waits *ws = calloc(n, sizeof(*ws));
	int err = ws ? 0 : -ENOMEM;
	bool any = false;

	for (size_t i = 0; i < n; i++)
		sums[i] = GPU_UNKNOWN;
	for (size_t i = 0; i < n && !err; i++) {
		err = list_waits(&p[i], &ws[i]);
		any |= ws[i].l.n > 0;
	}
	if (!err && any && n > 1 && n <= MAX_RANKS)
		compare_ranks(ws, n, sums);
	for (size_t i = 0; ws && i < n; i++)
		vec_free(&ws[i].l);
	free(ws);
	return err;
}

/* ---- devices ---- */

struct device_sum {
	uint64_t end_ns, all_ns, kernels_end_ns, kernels_ns;
};

static void cover(uint64_t *end_ns, uint64_t *sum_ns, uint64_t t0_ns, uint64_t t1_ns)
{
	uint64_t from = t0_ns > *end_ns ? t0_ns : *end_ns;

	if (t1_ns <= from)
		return;
	*sum_ns += t1_ns - from;
	*end_ns = t1_ns;
}

/* As far as it ran while its device was watched. *at: the first stretch that may reach it, or one behind it. */
static void cover_watched(struct device_sum *d, const struct gpu_process *p, const struct gpu_span *s, size_t *at)
{
	while (*at < p->watched.n && p->watched.v[*at].t1_ns <= s->t0_ns)
		++*at;
	for (size_t i = *at; i < p->watched.n && p->watched.v[i].t0_ns < s->t1_ns; i++) {
		uint64_t t0_ns = s->t0_ns > p->watched.v[i].t0_ns ? s->t0_ns : p->watched.v[i].t0_ns;
		uint64_t t1_ns = s->t1_ns < p->watched.v[i].t1_ns ? s->t1_ns : p->watched.v[i].t1_ns;

		cover(&d->end_ns, &d->all_ns, t0_ns, t1_ns);
		if (s->what == TL_SPAN_KERNEL || s->what == TL_SPAN_GRAPH)
			cover(&d->kernels_end_ns, &d->kernels_ns, t0_ns, t1_ns);
	}
}

static int list_devices(struct gpu_facts *f, const struct gpu_process *p, uint64_t wait_ns)
{
	struct device_sum sums[MAX_DEVICES] = { 0 };
	uint16_t ids[MAX_DEVICES];
	size_t n = 0, k = 0, at = 0;
	uint64_t seen = 0, windows = 0;

	for (size_t i = 0; i < p->watched.n; i++)
		seen += p->watched.v[i].t1_ns - p->watched.v[i].t0_ns;
	for (size_t i = 0; i < p->windows.n; i++)
		if (p->windows.v[i].partial == p->partial)
			windows += p->windows.v[i].seen1_ns - p->windows.v[i].seen0_ns;
	for (size_t i = 0; i < p->spans.n; i++) {
		const struct gpu_span *s = &p->spans.v[i];

		for (k = 0; k < n && ids[k] != s->device;)
			k++;
		if (k == MAX_DEVICES)
			continue;
		if (k == n)
			ids[n++] = s->device;
		cover_watched(&sums[k], p, s, &at);
	}
	for (k = 0; k < n && windows; k++) {
		struct gpu_device *d = realloc(f->devices, (f->n_devices + 1) * sizeof(*d));

		if (!d)
			return -ENOMEM;
		f->devices = d;
		d[f->n_devices++] = (struct gpu_device){
			.tgid = p->tgid, .device = ids[k], .rank = p->rank, .seen_ns = seen,
			.missed_ns = windows - seen, .at_least = p->partial,
			.busy_ns = sums[k].all_ns, .copy_ns = sums[k].all_ns - sums[k].kernels_ns,
			.wait_ns = k ? GPU_UNKNOWN : wait_ns,
		};
	}
	return 0;
}

static int list_windows(struct gpu_facts *f, const struct gpu_process *p)
{
	struct gpu_time *v = p->windows.n ? realloc(f->windows, (f->n_windows + p->windows.n) * sizeof(*v)) : f->windows;

	if (p->windows.n && !v)
		return -ENOMEM;
	f->windows = v;
	for (size_t i = 0; i < p->windows.n; i++)
		v[f->n_windows++] = (struct gpu_time){ p->tgid, p->windows.v[i].seen0_ns, p->windows.v[i].seen1_ns };
	return 0;
}

static int sum_devices(struct model *m)
{
	struct gpu_log *g = &m->gpu_log;
	uint64_t *waits = malloc((g->processes.n + 1) * sizeof(*waits));
	int err = waits ? 0 : -ENOMEM;

	for (size_t i = 0, n; i < g->processes.n && !err; i += n) {
		for (n = 1; i + n < g->processes.n && g->processes.v[i + n].server == g->processes.v[i].server;)
			n++;
		err = sum_waits(&g->processes.v[i], n, waits);
		for (size_t k = 0; k < n && !err; k++)
			err = list_devices(&m->gpu, &g->processes.v[i + k], waits[k]);
		for (size_t k = 0; k < n && !err; k++)
			err = list_windows(&m->gpu, &g->processes.v[i + k]);
	}
	free(waits);
	return err;
}

/* ---- requests ---- */

static void add_share(uint64_t *sum_ns, uint64_t ns)
{
	if (ns == GPU_UNKNOWN)
		*sum_ns = GPU_UNKNOWN - 1;	/* part of it is not known, so all of it is not */
	else if (*sum_ns == GPU_UNKNOWN)
		*sum_ns = ns;
	else if (*sum_ns != GPU_UNKNOWN - 1)
		*sum_ns += ns;
}

/* Of all members of a step; 0: of one it is not known, so nobody's share is. */
static uint64_t tokens_of_step(const struct model *m, const struct rec_step *st)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < st->n_members; i++) {
		if (!m->members[st->first_member + i].n_tokens)
			return 0;
		all += m->members[st->first_member + i].n_tokens;
	}
	return all;
}

static void share_step(struct model *m, uint32_t step)
{
	const struct rec_step *st = &m->steps[step];
	uint64_t busy = m->gpu.steps[step].busy_ns, all = tokens_of_step(m, st);

	for (uint32_t i = 0; i < st->n_members; i++) {
		const struct rec_member *k = &m->members[st->first_member + i];
		uint32_t req = m->seqs[k->seq].req;
		struct gpu_share *s = req ? &m->gpu.shares[req - 1] : NULL;
		uint64_t ns = busy;

		if (!s)
			continue;
		if (busy != GPU_UNKNOWN && st->n_members > 1)
			ns = all ? (uint64_t)((double)busy * k->n_tokens / (double)all) : GPU_UNKNOWN;
		if (k->phase == TL_DECODE) {
			add_share(&s->decode_ns, ns);
			s->decode_shared |= st->n_members > 1 || k->guess;
		} else {
			add_share(&s->prefill_ns, ns);
			s->prefill_shared |= st->n_members > 1 || k->guess;
		}
	}
}

static int share_all(struct model *m)
{
	struct gpu_facts *f = &m->gpu;

	f->shares = calloc(m->v.n_requests + 1, sizeof(*f->shares));
	if (!f->shares)
		return -ENOMEM;
	f->n_shares = m->v.n_requests;
	for (size_t i = 0; i < f->n_shares; i++)
		f->shares[i].prefill_ns = f->shares[i].decode_ns = GPU_UNKNOWN;
	for (size_t i = 0; i < f->n_steps; i++)
		share_step(m, i);
	for (size_t i = 0; i < f->n_shares; i++) {
		struct gpu_share *s = &f->shares[i];

		s->prefill_ns = s->prefill_ns == GPU_UNKNOWN - 1 ? GPU_UNKNOWN : s->prefill_ns;
		s->decode_ns = s->decode_ns == GPU_UNKNOWN - 1 ? GPU_UNKNOWN : s->decode_ns;
	}
	return 0;
}

int gpu_sum_rest(struct model *m, const struct step_index *ix)
{
	int err = gpu_sum_kernels(m, ix);

	if (!err)
		err = sum_devices(m);
	return err ? err : share_all(m);
}
