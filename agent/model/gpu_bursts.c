/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts what a process launched into bursts: what it launched for one step. */
#include "base/pct.h"
#include "model/gpu_priv.h"

#include <errno.h>

enum {
	MIN_KERNELS = 8,	/* of a step that is launched one by one */
	CORE_PART = 8,		/* ... and this part of the most that any has */
	SLACK_NS = 20000,
	MIN_PAUSE_NS = 100000, PAUSE_TIMES = 20,	/* between steps, where no wait is seen */
};

/* ---- where one step ends ---- */

struct cutter {
	uint32_t tid;		/* the thread that launches most */
	bool syncs, copies;	/* of this thread, waits and copies of results are seen */
	uint64_t pause_ns;	/* else so long a pause is an end */
	uint32_t min_kernels;	/* less is no step by itself */
};

static uint32_t weight(const struct gpu_launch *l)
{
	return l->call == TL_CALL_GRAPH ? 64 : l->call == TL_CALL_KERNEL ? 1 : 0;
}

/* The thread with the most launches: of those that compete, whoever is left when pairs of two cancel out has
 * the majority if anybody has; with many threads each may launch for itself, and then all count (tid 0). */
static uint32_t main_thread(const struct gpu_process *p)
{
	uint64_t lead = 0, all = 0, own = 0;
	uint32_t tid = 0;

	for (size_t i = 0; i < p->launches.n; i++) {
		const struct gpu_launch *l = &p->launches.v[i];
		uint32_t w = weight(l);

		all += w;
		if (l->tid == tid) {
			lead += w;
		} else if (w > lead) {
			tid = l->tid;
			lead = w - lead;
		} else {
			lead -= w;
		}
	}
	for (size_t i = 0; i < p->launches.n; i++)
		own += p->launches.v[i].tid == tid ? weight(&p->launches.v[i]) : 0;
	return own > all / 2 ? tid : 0;
}

static uint64_t launch_end(const struct gpu_launch *l)
{
	return l->ts_ns + l->dur_ns;
}

static int find_pause(const struct gpu_process *p, struct cutter *k)
{
	uint64_t *gaps = malloc((p->launches.n + 1) * sizeof(*gaps));
	size_t n = 0;

	if (!gaps)
		return -ENOMEM;
	for (size_t i = 1; i < p->launches.n; i++) {
		uint64_t end = launch_end(&p->launches.v[i - 1]), ts = p->launches.v[i].ts_ns;

		gaps[n++] = ts > end ? ts - end : 0;
	}
	k->pause_ns = n ? PAUSE_TIMES * pct_u64(gaps, n, 500) : 0;
	if (k->pause_ns < MIN_PAUSE_NS)
		k->pause_ns = MIN_PAUSE_NS;
	free(gaps);
	return 0;
}

static bool is_of(const struct cutter *k, const struct gpu_launch *l)
{
	return !k->tid || l->tid == k->tid;
}

/* A copy that waits brings results, or it sends what has to be there: only the first ends a step. */
static bool waits(const struct gpu_launch *l)
{
	return l->call == TL_CALL_SYNC || (l->call == TL_CALL_COPY && l->flags & GPU_L_WAITS && l->flags & GPU_L_DTOH);
}

static int cutter_init(struct cutter *k, const struct gpu_process *p)
{
	size_t n_syncs = 0, n_copies = 0;

	*k = (struct cutter){ .tid = main_thread(p) };
	for (size_t i = 0; i < p->launches.n; i++) {
		const struct gpu_launch *l = &p->launches.v[i];

		n_syncs += is_of(k, l) && waits(l);
		n_copies += is_of(k, l) && l->flags & GPU_L_DTOH;
	}
	k->syncs = n_syncs > 1;
	k->copies = n_copies > 1;
	return k->syncs || k->copies ? 0 : find_pause(p, k);
}

static bool ends_step(const struct cutter *k, const struct gpu_launch *l)
{
	return is_of(k, l) && ((k->syncs && waits(l)) || (k->copies && l->flags & GPU_L_DTOH));
}

/* ---- bursts ---- */

static void add_sync(struct gpu_burst *b, uint64_t ns)
{
	b->sync0_ns = b->sync0_ns && b->sync0_ns < ns ? b->sync0_ns : ns;
	b->sync1_ns = ns > b->sync1_ns ? ns : b->sync1_ns;
}

static void add_launch(struct gpu_burst *b, const struct gpu_launch *l)
{
	b->begin_ns = b->begin_ns ? b->begin_ns : l->ts_ns;
	b->told = l->call == TL_CALL_SYNC ? b->told : l->corr != 0;
	if (!b->launch0_ns && l->call != TL_CALL_SYNC)
		b->launch0_ns = l->ts_ns;
	if (l->call != TL_CALL_SYNC && launch_end(l) > b->launch1_ns)
		b->launch1_ns = launch_end(l);
	if (l->call == TL_CALL_KERNEL || l->call == TL_CALL_GRAPH) {
		b->n_kernels += l->call == TL_CALL_KERNEL ? l->n : 0;
		b->n_graphs += l->call == TL_CALL_GRAPH;
		b->no_kernels += l->call == TL_CALL_KERNEL && !(l->flags & GPU_L_JOINED);
		b->no_graphs += l->call == TL_CALL_GRAPH && !(l->flags & GPU_L_JOINED);
		b->exec = l->call == TL_CALL_GRAPH ? l->what : b->exec;
	} else if (l->call != TL_CALL_SYNC) {
		b->n_other++;
		b->no_kernels += l->call == TL_CALL_COPY && l->corr && !(l->flags & GPU_L_JOINED);
		b->cold |= l->call == TL_CALL_LOAD;
		if (waits(l))
			add_sync(b, launch_end(l));
	} else if (l->dur_ns) {
		add_sync(b, launch_end(l));
	}
}

/* Cuts at each end, at pauses where no end is seen, and where a window ends. */
static int cut(struct gpu_process *p, const struct cutter *k)
{
	struct gpu_burst *b = NULL;
	uint64_t end_ns = 0;
	bool ended = false, waited = false;
	size_t at = 0;

	for (uint32_t i = 0; i < p->launches.n; i++) {
		const struct gpu_launch *l = &p->launches.v[i];
		uint32_t window = gpu_window_of(p, l->ts_ns, &at);
		bool other = b && window != b->window && !p->outside;
		bool pause = b && !k->syncs && !k->copies && l->ts_ns > end_ns + k->pause_ns;
		/* copies and the wait behind them end the same step, a copy behind a wait another one */
		bool again = b && ended && !other && (l->call == TL_CALL_SYNC || (ends_step(k, l) && !waited));

		if (!b || other || pause || (ended && !again)) {
			bool whole = b && !other && (ended || pause);

			if (b && !whole)
				b->whole = false;
			b = vec_push(&p->bursts, SIZE_MAX);
			if (!b)
				return -ENOMEM;
			*b = (struct gpu_burst){ .first = i, .window = window, .whole = whole };
		}
		add_launch(b, l);
		b->end = i + 1;
		b->window = b->window ? b->window : window;
		ended = again || ends_step(k, l);
		waited = ended && waits(l);
		end_ns = launch_end(l) > end_ns ? launch_end(l) : end_ns;
	}
	if (b && !ended)
		b->whole = false;
	return 0;
}

static uint64_t burst_seen_end(const struct gpu_burst *b)
{
	return b->launch1_ns > b->sync1_ns ? b->launch1_ns : b->sync1_ns;
}

/* The burst that was launched at t, or the first one behind it. */
static size_t first_at(const struct gpu_process *p, uint64_t t_ns)
{
	size_t lo = 0, hi = p->bursts.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (burst_seen_end(&p->bursts.v[mid]) < t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The first burst from `lo` on that begins at t or behind it. */
static size_t first_from(const struct gpu_process *p, size_t lo, uint64_t t_ns)
{
	size_t hi = p->bursts.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->bursts.v[mid].begin_ns < t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* How many more spans of a kind a burst is in than the one before it: spans may overlap, as many as there are. */
struct edges {
	int32_t unseen, lost;
};

/* What nobody looked for, and what was lost on the way. */
static int note_unseen(struct gpu_process *p, const struct model_view *v)
{
	struct edges *edges = calloc(p->bursts.n + 1, sizeof(*edges));
	int32_t unseen = 0, lost = 0;

	if (!edges)
		return -ENOMEM;
	for (size_t k = 0; k < p->unseen.n; k++) {
		size_t from = first_at(p, p->unseen.v[k].t0_ns);

		edges[from].unseen++;
		edges[first_from(p, from, p->unseen.v[k].t1_ns)].unseen--;
	}
	for (size_t k = 0; k < v->n_lost; k++) {
		const struct rec_lost *l = &v->lost[k];
		size_t from = first_at(p, l->since_ns);

		if (l->what && l->what != TL_GPU_LAUNCH)
			continue;
		edges[from].lost++;
		edges[first_from(p, from, l->until_ns + (l->until_ns < UINT64_MAX))].lost--;
	}
	for (size_t i = 0; i < p->bursts.n; i++) {
		unseen += edges[i].unseen;
		lost += edges[i].lost;
		p->bursts.v[i].unseen = unseen > 0;
		p->bursts.v[i].whole &= !lost;
	}
	free(edges);
	return 0;
}

static bool is_core(const struct gpu_process *p, const struct cutter *k, const struct gpu_burst *b)
{
	bool kernels = (p->outside_kernels && !b->unseen) ||	/* a window may close in the middle of it */
		       (b->window && p->windows.v[b->window - 1].last_kernel_ns > burst_seen_end(b));

	/* where launches of kernels are not told, a copy of results must do, or a wait */
	if (b->n_graphs || b->n_kernels >= k->min_kernels)
		return true;
	return !kernels && (k->copies ? b->n_other > 0 : b->sync0_ns > 0);
}

static void absorb(struct gpu_burst *into, const struct gpu_burst *b)
{
	into->first = b->first < into->first ? b->first : into->first;
	into->end = b->end > into->end ? b->end : into->end;
	into->n_kernels += b->n_kernels;
	into->n_graphs += b->n_graphs;
	into->n_other += b->n_other;
	into->no_kernels += b->no_kernels;
	into->no_graphs += b->no_graphs;
	into->cold |= b->cold;
	into->told = b->launch1_ns >= into->launch1_ns ? b->told : into->told;
	into->unseen |= b->unseen;
	into->exec = into->exec ? into->exec : b->exec;
	into->whole &= b->whole;
	if (!into->launch0_ns || (b->launch0_ns && b->launch0_ns < into->launch0_ns))
		into->launch0_ns = b->launch0_ns;
	if (b->launch1_ns > into->launch1_ns)
		into->launch1_ns = b->launch1_ns;
	if (b->sync0_ns) {
		add_sync(into, b->sync0_ns);
		add_sync(into, b->sync1_ns);
	}
}

/* What is too little for a step is part of the one before or of the next, whichever is nearer. */
static void merge_small(struct gpu_process *p, struct cutter *k)
{
	uint32_t most = 0;
	size_t out = 0, n = p->bursts.n;
	struct gpu_burst *v = p->bursts.v;

	for (size_t i = 0; i < n; i++)
		most = !v[i].n_graphs && v[i].n_kernels > most ? v[i].n_kernels : most;
	k->min_kernels = most / CORE_PART > MIN_KERNELS ? most / CORE_PART : MIN_KERNELS;
	for (size_t i = 0; i < n; i++) {
		struct gpu_burst *before = out ? &v[out - 1] : NULL, *next = i + 1 < n ? &v[i + 1] : NULL;
		bool joins_before, joins_next;

		if (is_core(p, k, &v[i])) {
			v[out++] = v[i];
			continue;
		}
		joins_before = before && before->window == v[i].window;
		joins_next = next && next->window == v[i].window;
		if (joins_before && !v[i].launch0_ns)
			joins_next = false;	/* a wait, and nothing for it to wait for: it is for what came before */
		else if (joins_before && joins_next)
			joins_next = next->launch0_ns - v[i].launch1_ns < v[i].launch0_ns - before->launch1_ns;
		if (joins_next)
			absorb(next, &v[i]);
		else if (joins_before)
			absorb(before, &v[i]);
	}
	p->bursts.n = out;
}

/* Its first launch came before callbacks told of any, or nobody would have told of it. */
static bool begins_untold(const struct gpu_process *p, const struct gpu_burst *b)
{
	for (uint32_t i = b->first; i < b->end; i++) {
		const struct gpu_launch *l = &p->launches.v[i];

		if (l->call == TL_CALL_KERNEL || l->call == TL_CALL_GRAPH || l->call == TL_CALL_COPY)
			return !l->corr || !p->outside_copies;
	}
	return false;
}

/* Where probes tell of launches, a burst goes on when a window opens: what ran before has no record. */
static void note_entered(struct gpu_process *p)
{
	for (size_t i = 0; i < p->bursts.n && p->outside; i++) {
		struct gpu_burst *b = &p->bursts.v[i];

		if (b->window && (!i || b->window != b[-1].window))
			b->entered = begins_untold(p, b);
	}
}

/* ---- what ran for them ---- */

static void add_span(struct gpu_burst *b, const struct gpu_span *s)
{
	if (!b->gpu0_ns || s->t0_ns < b->gpu0_ns)
		b->gpu0_ns = s->t0_ns;
	if (s->t1_ns > b->gpu1_ns)
		b->gpu1_ns = s->t1_ns;
}

static void hand_out(struct gpu_process *p)
{
	for (uint32_t i = 0; i < p->bursts.n; i++)
		for (uint32_t k = p->bursts.v[i].first; k < p->bursts.v[i].end; k++)
			p->launches.v[k].burst = i + 1;
	for (size_t i = 0; i < p->spans.n; i++) {
		struct gpu_span *s = &p->spans.v[i];

		s->at = s->at ? p->launches.v[s->at - 1].burst : 0;
		if (s->at)
			add_span(&p->bursts.v[s->at - 1], s);
	}
	/* what was under way when a window closed has no record: what is launched behind it may be cut, too */
	for (size_t i = 1; i < p->bursts.n; i++) {
		const struct gpu_burst *b = &p->bursts.v[i - 1];

		if (!p->outside && b->window && (b->no_kernels || b->no_graphs))
			p->bursts.v[i].whole = false;
	}
}

int gpu_cut(struct gpu_process *p, const struct model_view *v, const struct gpu_clocks *clocks)
{
	struct cutter k;
	int err = gpu_find_windows(p, v->evidence, clocks);

	if (err || !p->launches.n)
		return err;
	err = cutter_init(&k, p);
	if (!err)
		err = cut(p, &k);
	if (err)
		return err;
	err = note_unseen(p, v);
	if (err)
		return err;
	merge_small(p, &k);
	note_entered(p);
	hand_out(p);
	return 0;
}

/* ---- waits ---- */

bool gpu_runs_ahead(const struct gpu_process *p)
{
	size_t n = 0, ahead = 0;

	for (size_t i = 1; i < p->bursts.n; i++) {
		const struct gpu_burst *a = &p->bursts.v[i - 1], *b = &p->bursts.v[i];

		if (!a->gpu1_ns || !b->gpu1_ns || a->window != b->window)
			continue;
		n++;
		ahead += b->launch0_ns + SLACK_NS < a->gpu1_ns;
	}
	return n && ahead > n / 2;
}

/* Of an engine that runs ahead, a wait behind launches is for what was launched before them; but the last launches
 * before a pause get a wait of their own. */
uint64_t gpu_wait_for(const struct gpu_burst *b, const struct gpu_burst *next, bool ahead)
{
	bool pause = !next || !next->sync0_ns;

	if (!ahead)
		return b->sync0_ns;
	if (!pause)
		return next->sync0_ns;
	return b->sync1_ns;
}
