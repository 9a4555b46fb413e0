/* SPDX-License-Identifier: Apache-2.0 */
/* Governs servers: what their processes cost goes in, windows and levels come out. */
#include "cmd/session_gpu_priv.h"

#include "cmd/log.h"
#include <stdio.h>
#include <string.h>

enum {
	LAUNCHED_NS = 300000000, CHUNK_NS = 1000000000, /* so long after such a sign of work */
	MIN_REST_MS = 300, /* of a window: for less of it none is
			    * opened in a process that comes late */
};

/* Counters of a ring that the target can write are not to be trusted to grow. */
static uint64_t since(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

struct crowd {			/* processes of a server */
	uint32_t n_live;	/* that can be recorded, or may be later */
	uint32_t n_entered;
};

static void look_at_process(const struct session_gpu *s, struct gpu_process *p,
			    struct governor_look *l, struct crowd *crowd)
{
	uint64_t own_ns, free_bytes = session_gpu_free_bytes(s, p);
	struct gpu_counts c, *b = &p->before;

	if (free_bytes && (!l->free_bytes || free_bytes < l->free_bytes))
		l->free_bytes = free_bytes;
	if (p->refused)
		l->trouble = p->trouble;
	if (p->look_ns && p->uses_cuda)
		crowd->n_live++; /* will be */
	if (!p->gpu || p->leaving)
		return;
	crowd->n_live++;
	crowd->n_entered++;
	c = gpu__counts(p->gpu);
	own_ns = since(c.own_ns, b->own_ns);
	l->own_ns = own_ns > l->own_ns ? own_ns : l->own_ns;
	l->records += since(c.records, b->records);
	l->dropped += since(c.dropped, b->dropped);
	l->open |= gpu__state(p->gpu) == TL_RING_ACTIVE;
	*b = c;
}

/* What was measured meanwhile is not the server's speed alone, whether the level stays or not. */
static void say_tainted(struct session_gpu *s, uint32_t tgid, const struct gpu_process *p, const struct governor_order *o)
{
	const struct gpu_reason r = { .trouble = TL_GPU_BUDGET, .ppm = o->cost_ppm, .since_ns = o->since_ns, .until_ns = o->until_ns };

	session_gpu_say_level(s, tgid, p, o->from, o->from, &r);
}

static void lower(struct gpu_process *p, const struct governor_order *o)
{
	gpu__lower(p->gpu, o->level, o->why + o->reason_at);
	if (o->level >= TL_GPU_GRAPH)
		return;
	gpu__let_go(p->gpu, 0); /* a subscription costs something even if nothing is asked for */
	p->leaving = true;
}

static int open_window(struct session_gpu *s, uint32_t tgid, struct gpu_process *p,
		       enum tl_gpu_level level, uint32_t window_ms)
{
	p->ordered = true;
	gpu__order(p->gpu, level, window_ms);
	return s->opts.tell_tiers(s->opts.ctx, tgid, level == TL_GPU_GRAPH ? TL_T2 : TL_T3);
}

static int order_process(struct session_gpu *s, uint32_t tgid, struct gpu_process *p,
			 const struct governor_order *o, uint32_t rest_ms, uint64_t now)
{
	struct gpu_reason r = { .trouble = o->trouble == TL_GPU_BUDGET ? TL_GPU_FINE : o->trouble };
	bool was_probed = p->probed;
	int err = 0;

	snprintf(r.why, sizeof(r.why), "%s", o->why + o->reason_at);
	if (o->tainted && p->uses_cuda)
		say_tainted(s, tgid, p, o);
	if (o->changed && o->level == TL_GPU_OFF)
		session_gpu_unprobe(s, tgid, p);
	else if (o->changed && p->uses_cuda && !p->probed)
		err = session_gpu_probe(s, tgid, p);
	if (p->probed != was_probed)
		session_gpu_say_level(s, tgid, p, was_probed ? TL_GPU_LAUNCHES : TL_GPU_OFF,
				      was_probed ? TL_GPU_OFF : TL_GPU_LAUNCHES, &r);
	if (o->changed && o->level >= TL_GPU_GRAPH && p->uses_cuda && !p->gpu) {
		if (p->trouble == TL_GPU_BUSY)
			p->refused = false;
		if (!p->refused)
			p->look_ns = now;
	}
	if (!p->gpu || p->leaving)
		return err;
	if (o->changed)
		lower(p, o);
	else if (o->what == GOVERNOR_OPEN)
		err = open_window(s, tgid, p, o->level, o->window_ms);
	else if (o->what == GOVERNOR_CLOSE)
		gpu__pause(p->gpu);
	else if (!p->ordered && rest_ms >= MIN_REST_MS)
		err = open_window(s, tgid, p, o->level, rest_ms);
	return err;
}

/* A window without records is no good: work has to be under way. */
static bool is_busy(const struct gpu_server *sv, bool probed, uint64_t now)
{
	if (!probed && !sv->chunk_ns)
		return true; /* nothing tells */
	return probed ? now < sv->launch_ns + LAUNCHED_NS : now < sv->chunk_ns + CHUNK_NS;
}

static int govern(struct session_gpu *s, uint32_t server, struct gpu_server *sv, uint64_t now,
		  uint64_t probes_ns)
{
	struct governor_look l = { .now_ns = now, .probes_ns = probes_ns };
	uint64_t n_windows = sv->gov.n_windows, inside_ns = sv->gov.inside_ns;
	struct governor_order o;
	struct gpu_process *p;
	struct crowd crowd = { 0 };
	bool uses = false, probed = false;
	uint64_t tgid;
	int err = 0;

	for (p = map__oldest(s->processes, NULL); p; p = map__newer(s->processes, p, NULL)) {
		if (p->server != server)
			continue;
		uses |= p->uses_cuda;
		probed |= p->probed;
		look_at_process(s, p, &l, &crowd);
	}
	if (!uses)
		return 0;
	l.refused = !crowd.n_live;
	/* Nor is one opened in nobody. */
	l.busy = is_busy(sv, probed, now) && (crowd.n_entered || sv->gov.level < TL_GPU_GRAPH);
	governor__look(&sv->gov, &l, &o);
	if (o.changed && o.level < s->opts.level && !l.refused)
		log_warn("pid %u: GPU: %s", server, o.why);
	else if (o.changed)
		log_info("pid %u: GPU: %s", server, o.why);
	if (o.tainted && !o.changed)
		log_warn("pid %u: GPU: observing it cost %.1f %% of the server's speed for %.1f s: what was measured then is tainted",
			 server, o.cost_ppm / 1e4, (o.until_ns - o.since_ns) / 1e9);
	if (o.trial)
		log_info("pid %u: GPU: tokens come slower than before graphs were recorded: without that for a while, to see whether it is why",
			 server);
	if (sv->gov.n_windows != n_windows)
		log_info("pid %u: GPU: window %llu opens", server,
			 (unsigned long long)sv->gov.n_windows);
	if (sv->gov.inside_ns != inside_ns)
		log_info(
			"pid %u: GPU: window closed after %.1f s, cost %.2f %% while it lasted, the next one in %.1f s%s",
			server, (sv->gov.inside_ns - inside_ns) / 1e9, sv->gov.cost_ppm / 1e4,
			sv->gov.pause_ns / 1e9, governor__drift_ppm(&sv->gov, now) >= 0 || !sv->gov.pause_ns ? "" :
			": it is not known yet whether clients see it, which takes a few windows or a long pause");
	for (p = map__oldest(s->processes, &tgid); p && !err;
	     p = map__newer(s->processes, p, &tgid)) {
		if (p->server == server)
			err = order_process(s, tgid, p, &o, governor__window_ms(&sv->gov, now), now);
	}
	return err;
}

int session_gpu_govern(struct session_gpu *s, uint64_t now)
{
	struct gpu_server *sv;
	uint64_t server, probes_ns = session_gpu_probes_ns(s);
	int err = 0;

	for (sv = map__oldest(s->servers, &server); sv && !err;
	     sv = map__newer(s->servers, sv, &server))
		err = govern(s, server, sv, now, probes_ns);
	return err;
}

void session_gpu_end_govern(struct session_gpu *s, uint64_t now)
{
	struct gpu_server *sv;
	struct gpu_process *p;
	uint64_t server, tgid;

	for (sv = map__oldest(s->servers, &server); sv; sv = map__newer(s->servers, sv, &server)) {
		struct governor_order o;

		governor__end(&sv->gov, now, &o);
		for (p = map__oldest(s->processes, &tgid); p && o.tainted; p = map__newer(s->processes, p, &tgid))
			if (p->server == server && p->uses_cuda)
				say_tainted(s, tgid, p, &o);
	}
}
