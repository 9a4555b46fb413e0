/* SPDX-License-Identifier: Apache-2.0 */
/* How fast devices were and who else used them, as somebody looked at them: over any
 * span of time, for any step. */
#include "base/num.h"
#include "base/pct.h"
#include "model/clues_gpu.h"

#include <errno.h>
#include <string.h>

enum { MAX_DEVICES = 1024, SLOW = 33 /* by one in so many: 3 % */ };

/* One that is there and does nothing keeps nobody waiting. */
static bool has_neighbour(const struct tl_gpu_state *s)
{
	return s->by_pct || s->why & TL_GPU_NEIGHBOUR;
}

static bool is_slow(uint32_t mhz, uint32_t usual_mhz)
{
	return mhz && usual_mhz && mhz < usual_mhz - usual_mhz / SLOW;
}

bool is_slow_clock(const struct device_state *d)
{
	return is_slow(d->mhz, d->usual_mhz);
}

/* ---- looks: states of a device, one behind the other ---- */

static const struct tl_gpu_state *state_of(const struct clues *c, const struct look *l)
{
	return &c->ev->gpu_states.v[l->state];
}

static uint64_t look_ns(const struct clues *c, const struct look *l)
{
	return state_of(c, l)->hdr.ts_ns - l->t0_ns;
}

/* Of two looks (index + 1 among those of the device, 0: none) the one with a neighbour
 * for longer; else the first. */
static uint32_t longer(const struct clues *c, const struct look *l, uint32_t a, uint32_t b)
{
	uint64_t a_ns = a ? look_ns(c, &l[a - 1]) : 0, b_ns = b ? look_ns(c, &l[b - 1]) : 0;

	if (!a || !b)
		return a + b;
	return a_ns != b_ns ? (a_ns > b_ns ? a : b) : a < b ? a : b;
}

/* A device has one state at a time: of several that say so at once the first one is
 * believed. Sums up to each look, and a tree of who has a neighbour for how long. s: the
 * states of one device, n of them. */
static int add_looks(struct clues *c, struct clock_ref *ref, const struct tl_gpu_state *s, size_t n)
{
	struct look sums = { .t0_ns = 0 };
	uint64_t end_ns = 0;
	struct look *l;

	ref->first = c->looks.n;
	for (size_t i = 0; i <= n; i++) {	/* one more, for the sums of all */
		uint64_t t0_ns;

		if (i < n && s[i].hdr.ts_ns <= (s[i].since_ns > end_ns ? s[i].since_ns : end_ns))
			continue;
		l = vec_push(&c->looks, SIZE_MAX);
		if (!l)
			return -ENOMEM;
		*l = sums;
		if (i == n)
			break;
		t0_ns = s[i].since_ns > end_ns ? s[i].since_ns : end_ns;
		end_ns = s[i].hdr.ts_ns;
		l->t0_ns = t0_ns;
		l->state = &s[i] - c->ev->gpu_states.v;
		sums.clock_ns += s[i].clock_mhz ? end_ns - t0_ns : 0;
		sums.mhz_ns += s[i].clock_mhz * (end_ns - t0_ns);
		sums.n_power += (s[i].why & TL_GPU_POWER) != 0;
		sums.n_thermal += (s[i].why & TL_GPU_THERMAL) != 0;
		ref->n++;
	}
	l = c->looks.v + ref->first;
	for (size_t i = 0; i < ref->n; i++)
		l[i].longest = has_neighbour(state_of(c, &l[i])) ? i + 1 : 0;
	for (size_t i = ref->n; i-- > 1;)	/* node i is over nodes 2 i and 2 i
						 * + 1; from n on they are leaves */
		l[i].above = longer(c, l, 2 * i < ref->n ? l[2 * i].above : l[2 * i - ref->n].longest,
				    2 * i + 1 < ref->n ? l[2 * i + 1].above : l[2 * i + 1 - ref->n].longest);
	return 0;
}

/* The look from lo to hi - 1 with a neighbour for longest; index + 1, 0: none. */
static uint32_t longest_in(const struct clues *c, const struct clock_ref *ref, size_t lo, size_t hi)
{
	const struct look *l = c->looks.v + ref->first;
	uint32_t best = 0;

	for (lo += ref->n, hi += ref->n; lo < hi; lo /= 2, hi /= 2) {
		if (lo % 2) {
			best = longer(c, l, best,
				      lo < ref->n ? l[lo].above : l[lo - ref->n].longest);
			lo++;
		}
		if (hi % 2) {
			hi--;
			best = longer(c, l, best,
				      hi < ref->n ? l[hi].above : l[hi - ref->n].longest);
		}
	}
	return best;
}

/* The first look that ends behind t (begins: that begins at t or behind it). */
static size_t look_behind(const struct clues *c, const struct clock_ref *ref, uint64_t t_ns,
			  bool begins)
{
	const struct look *l = c->looks.v + ref->first;
	size_t lo = 0, hi = ref->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (begins ? l[mid].t0_ns < t_ns : state_of(c, &l[mid])->hdr.ts_ns <= t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct device_sums {
	uint64_t mhz_ns, clock_ns, by_ns;
	uint32_t n_power, n_thermal;
	uint32_t by;		/* index + 1 of a look */
};

/* A look of which only a part counts. */
static void add_part(const struct clues *c, const struct clock_ref *ref, size_t at, uint64_t t0_ns,
		     uint64_t t1_ns, struct device_sums *d)
{
	const struct look *l = &c->looks.v[ref->first + at];
	const struct tl_gpu_state *s = state_of(c, l);
	uint64_t ns = less(least(s->hdr.ts_ns, t1_ns), l->t0_ns > t0_ns ? l->t0_ns : t0_ns);

	if (!ns)
		return;
	d->clock_ns += s->clock_mhz ? ns : 0;
	d->mhz_ns += s->clock_mhz * ns;
	d->n_power += (s->why & TL_GPU_POWER) != 0;
	d->n_thermal += (s->why & TL_GPU_THERMAL) != 0;
	if (has_neighbour(s) && (ns > d->by_ns || (ns == d->by_ns && at < d->by))) {
		d->by_ns = ns;
		d->by = at + 1;
	}
}

static struct device_state device_at(const struct clues *c, const struct clock_ref *ref,
				     uint64_t t0_ns, uint64_t t1_ns)
{
	struct device_state d = { .device = ref->device, .usual_mhz = ref->mhz };
	const struct look *l = c->looks.v + ref->first;
	size_t lo = look_behind(c, ref, t0_ns, false), hi = look_behind(c, ref, t1_ns, true);
	struct device_sums sums = { 0 };

	if (lo + 2 < hi) {	/* all of those between the first and the last */
		uint32_t by = longest_in(c, ref, lo + 1, hi - 1);

		sums = (struct device_sums){
			l[hi - 1].mhz_ns - l[lo + 1].mhz_ns, l[hi - 1].clock_ns - l[lo + 1].clock_ns,
			by ? look_ns(c, &l[by - 1]) : 0, l[hi - 1].n_power - l[lo + 1].n_power,
			l[hi - 1].n_thermal - l[lo + 1].n_thermal, by,
		};
	}
	if (lo < hi)
		add_part(c, ref, lo, t0_ns, t1_ns, &sums);
	if (lo + 1 < hi)
		add_part(c, ref, hi - 1, t0_ns, t1_ns, &sums);
	if (sums.clock_ns)
		d.mhz = (sums.mhz_ns + sums.clock_ns / 2) / sums.clock_ns;
	d.why = (sums.n_power ? TL_GPU_POWER : 0) | (sums.n_thermal ? TL_GPU_THERMAL : 0);
	/* A neighbour for less than half of the step is no reason for its length. */
	if (sums.by && sums.by_ns >= less(t1_ns, t0_ns) / 2)
		d.neighbour = state_of(c, &l[sums.by - 1]);
	return d;
}

/* ---- which device ---- */

/* The first one of this process and number, or behind them. */
static size_t ref_from(const struct clues *c, uint32_t tgid, uint32_t device)
{
	size_t lo = 0, hi = c->clock_refs.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct clock_ref *r = &c->clock_refs.v[mid];

		if (r->tgid < tgid || (r->tgid == tgid && r->device < device))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static const struct clock_ref *exact_ref(const struct clues *c, uint32_t tgid, uint32_t device)
{
	size_t at = ref_from(c, tgid, device);
	const struct clock_ref *r = &c->clock_refs.v[at];

	return at < c->clock_refs.n && r->tgid == tgid && r->device == device ? r : NULL;
}

/* The looks at a device that a process (0: not known) calls so; of a process with one device, those
 * at that. NULL: none. */
static const struct clock_ref *clock_of(const struct clues *c, uint32_t tgid, uint32_t device)
{
	const struct clock_ref *r = exact_ref(c, tgid, device);
	size_t at = ref_from(c, tgid, 0), n = c->clock_refs.n;

	if (r)
		return r;
	if (tgid && at < n && c->clock_refs.v[at].tgid == tgid &&
	    (at + 1 == n || c->clock_refs.v[at + 1].tgid != tgid))
		return &c->clock_refs.v[at];
	return exact_ref(c, 0, device);
}

static bool is_own_process(const struct clues *c, uint32_t engine, uint32_t tgid)
{
	uint32_t server = known_server(c, tgid);

	return server && server == c->engine_servers[engine];
}

/* Does its server use a device that all number so, as far as that is known? */
static bool may_use(const struct clues *c, uint32_t engine, const struct clock_ref *ref)
{
	uint64_t mask = c->gpu_usual[engine].device_mask;

	return !mask || (ref->device < 64 && mask >> ref->device & 1);
}

/* Of devices in the order of servers: those of this one; *ret_n: how many. 0:
 * those that all number so. */
static const struct server_ref *refs_of(const struct clues *c, uint32_t server, size_t *ret_n)
{
	size_t lo = 0, hi = c->clock_refs.n, n = 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->server_refs[mid].server < server)
			lo = mid + 1;
		else
			hi = mid;
	}
	while (lo + n < c->clock_refs.n && c->server_refs[lo + n].server == server)
		n++;
	*ret_n = n;
	return c->server_refs + lo;
}

/* Whoever is neither slow nor has a neighbour is no reason. Of those that are slow the slowest. */
static void take_worse(const struct clues *c, uint32_t step, const struct clock_ref *ref,
		       struct device_state *worst)
{
	struct step_span at = step_index__span(&c->ix, step);
	struct device_state d = device_at(c, ref, at.t0_ns, at.t1_ns);

	if (d.neighbour && is_own_process(c, c->v->steps[step].engine, d.neighbour->by_tgid))
		d.neighbour = NULL;
	if ((is_slow_clock(&d) && (!is_slow_clock(worst) || d.mhz < worst->mhz)) ||
	    (d.neighbour && !worst->neighbour && !is_slow_clock(worst)))
		*worst = d;
}

struct device_state worst_device(const struct clues *c, uint32_t step, const struct gpu_view *g)
{
	uint32_t engine = c->v->steps[step].engine;
	uint32_t servers[] = { 0, c->engine_servers[engine] };
	struct device_state worst = { 0 };

	for (size_t i = 0; i < g->n; i++) {
		const struct tl_gpu_step *s = gpu_rank(c, g, i);
		const struct clock_ref *ref = clock_of(c, s->hdr.tgid, s->device);

		if (ref)
			take_worse(c, step, ref, &worst);
	}
	for (size_t k = 0; k < (g->n ? 0 : servers[1] ? 2 : 1); k++) {
		size_t n;
		const struct server_ref *r = refs_of(c, servers[k], &n);

		for (size_t i = 0; i < n && r[i].is_odd; i++)	/* those that never were come last */
			if (servers[k] || may_use(c, engine, &c->clock_refs.v[r[i].ref]))
				take_worse(c, step, &c->clock_refs.v[r[i].ref], &worst);
	}
	return worst;
}

struct device_state device_as(const struct clues *c, uint32_t step, uint32_t device)
{
	struct step_span at = step_index__span(&c->ix, step);
	struct gpu_view g = gpu_of_step(c, step);
	uint32_t engine = c->v->steps[step].engine, server = c->engine_servers[engine];
	const struct clock_ref *ref = NULL;
	const struct server_ref *r;
	size_t n = 0;

	for (size_t i = 0; i < g.n && !ref; i++) {
		const struct tl_gpu_step *s = gpu_rank(c, &g, i);

		ref = clock_of(c, s->hdr.tgid, s->device);
		if (ref && ref->device != device && s->device != device)
			ref = NULL;
	}
	if (!g.n)
		ref = exact_ref(c, 0, device);
	if (!g.n && ref && !may_use(c, engine, ref))
		ref = NULL;
	r = !g.n && !ref && server ? refs_of(c, server, &n) : NULL;
	for (size_t i = 0; i < n && !ref; i++)
		if (c->clock_refs.v[r[i].ref].device == device)
			ref = &c->clock_refs.v[r[i].ref];
	return ref ? device_at(c, ref, at.t0_ns, at.t1_ns) : (struct device_state){ 0 };
}

/* ---- what is usual ---- */

/* What a device's clock usually is when nothing holds it down: the median of those looks; where all
 * of them were held down, the fastest. Never more than it can. */
static int learn_clock(struct clues *c, const struct tl_gpu_state *s, size_t n, uint32_t *room)
{
	struct clock_ref *ref = vec_push(&c->clock_refs, MAX_DEVICES);
	uint32_t fastest = 0;
	size_t k = 0;

	if (!ref)
		return c->clock_refs.n < MAX_DEVICES ? -ENOMEM : 0;
	for (size_t i = 0; i < n; i++) {
		if (s[i].clock_mhz > fastest)
			fastest = s[i].clock_mhz;
		if (s[i].clock_mhz && !(s[i].why & (TL_GPU_POWER | TL_GPU_THERMAL)))
			room[k++] = s[i].clock_mhz;
	}
	ref->tgid = s->hdr.tgid;
	ref->device = s->device;
	ref->mhz = k ? pct_u32(room, k, 500) : fastest;
	for (size_t i = 0; i < n && !ref->is_odd; i++)
		ref->is_odd = has_neighbour(&s[i]) || is_slow(s[i].clock_mhz, ref->mhz);
	return add_looks(c, ref, s, n);
}

static int by_server(const void *pa, const void *pb)
{
	const struct server_ref *a = pa, *b = pb;

	if (a->server != b->server)
		return a->server < b->server ? -1 : 1;
	if (a->is_odd != b->is_odd)
		return a->is_odd ? -1 : 1;
	return a->ref < b->ref ? -1 : a->ref > b->ref;
}

/* Devices of processes that are of no server that is known are nobody's. */
static int sort_refs(struct clues *c)
{
	c->server_refs = calloc(c->clock_refs.n + 1, sizeof(*c->server_refs));
	if (!c->server_refs)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->clock_refs.n; i++) {
		const struct clock_ref *r = &c->clock_refs.v[i];
		uint32_t server = known_server(c, r->tgid);

		c->server_refs[i] = (struct server_ref){ .ref = i, .is_odd = r->is_odd,
							 .server = r->tgid && !server ? UINT32_MAX : server };
	}
	qsort(c->server_refs, c->clock_refs.n, sizeof(*c->server_refs), by_server);
	return 0;
}

int devices_make(struct clues *c)
{
	const struct tl_gpu_state *s = c->ev->gpu_states.v;
	size_t n = c->ev->gpu_states.n;
	uint32_t *room = malloc((n + 1) * sizeof(*room));
	int err = room ? 0 : -ENOMEM;

	for (size_t i = 0, k; i < n && !err; i = k) {
		for (k = i + 1;
		     k < n && s[k].hdr.tgid == s[i].hdr.tgid && s[k].device == s[i].device;)
			k++;
		err = learn_clock(c, s + i, k - i, room);
	}
	free(room);
	return err ? err : sort_refs(c);
}

void devices_free(struct clues *c)
{
	vec_free(&c->clock_refs);
	vec_free(&c->looks);
	free(c->server_refs);
}
