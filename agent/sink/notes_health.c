/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences on the evidence: collection that failed, a rank that never
 * came, links at their limit. */
#include "base/plural.h"
#include "base/units.h"
#include "model/health.h"
#include "sink/notes_priv.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const level_names[] = {
	[TL_GPU_OFF] = "nothing", [TL_GPU_LAUNCHES] = "launches only",
	[TL_GPU_GRAPH] = "records of graphs", [TL_GPU_KERNELS] = "records of kernels",
};

static const char *level_name(uint16_t level)
{
	return level < ARRAY_SIZE(level_names) ? level_names[level] : "another level";
}

/* The worst of the spans that were told, and all of them from the first to the last. */
static void note_taint(const struct model_view *v, const struct health_note *n,
		       const struct say *to)
{
	char spans[60] = "", left[48] = "";

	if (n->n > 1)
		snprintf(spans, sizeof(spans), ", in %" PRIu64 " windows or stretches", n->n);
	if (n->to_level < n->level)
		snprintf(left, sizeof(left), "; since then %s", level_name(n->to_level));
	say(to, "TAINTED: observing the GPU cost pid %u %s%.0f %% of its speed between %.1f and %.1f ms%s%s: it is slower there than "
	    "by itself, and so is all that was measured then", n->tgid, n->n > 1 ? "up to " : "", n->ppm / 1e4, ms_since(v, n->t0_ns),
	    ms_since(v, n->t1_ns), spans, left);
}

/* ": because of this", if a reason is known */
static const char *reason(const struct health_note *n, char *buf, size_t size)
{
	snprintf(buf, size, "%s%s", *n->why ? ": " : "", n->why);
	return buf;
}

/* No record is no idleness. */
static void note_records(const struct model_view *v, const struct health_note *n,
			 const struct say *to)
{
	double from = ms_since(v, n->t0_ns), until = ms_since(v, n->t1_ns);
	const char *left = level_name(n->to_level);
	char why[sizeof(n->why) + 2];

	reason(n, why, sizeof(why));

	switch ((enum health_kind)n->kind) {
	case HEALTH_GPU_BROKEN:
		say(to,
		    "collection broken: CUPTI or probes told of %" PRIu64
		    " GPU launches and copies by pid %u between %.1f and %.1f ms, maybe not of "
		    "all, and no record came; what the GPU did then is not known%s",
		    n->n, n->tgid, from, until, why);
		return;
	case HEALTH_GPU_BAD_STAMPS:
		say(to,
		    "%" PRIu64 " of %" PRIu64
		    " GPU record%s of pid %u had impossible time stamps and %s "
		    "dropped, from %.1f ms on; those before are kept, since %.1f ms: %s%s",
		    n->n, n->of, plural_s(n->of), n->tgid, plural(n->n, "was", "were"), from, until, left, why);
		return;
	case HEALTH_GPU_BUSY:
		say(to,
		    "%.32s has the GPU records of pid %u: since %.1f ms %s; sockets, CPU and steps are "
		    "complete%s",
		    n->holder[0] ? n->holder : "another tool", n->tgid, from, left, why);
		return;
	case HEALTH_GPU_BUDGET:
		note_taint(v, n, to);
		return;
	case HEALTH_GPU_NO_PROBES:
		say(to, "GPU launches of pid %u were not seen%s%s; steps are those of the wire",
		    n->tgid,
		    *why ? "" : ": no probe could be set on its libcuda, and record said why", why);
		return;
	case HEALTH_GPU_WAITS:
		say(to, "no GPU records of pid %u between %.1f and %.1f ms%s", n->tgid, from, until,
		    why);
		return;
	case HEALTH_GPU_NO_STATE:
		say(to, "clocks, neighbours and memory of the GPUs of pid %u were not seen%s",
		    n->tgid, why);
		return;
	case HEALTH_GPU_DROPPED:
		say(to, "%" PRIu64 " of %" PRIu64 " GPU record%s of pid %u %s lost between %.1f and %.1f ms",
		    n->n, n->of, plural_s(n->of), n->tgid, plural(n->n, "was", "were"), from, until);
		return;
	default:
		say(to, "GPU of pid %u: since %.1f ms %s%s", n->tgid, until, left, why);
	}
}

static const char *list_of(uint64_t ranks, char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = '\0';
	for (int i = 0; i < 64 && n + 8 < size; i++)
		if (ranks >> i & 1)
			n += (size_t)snprintf(buf + n, size - n, "%s%d", n ? ", " : "", i);
	return buf;
}

static void note_hang(const struct model_view *v, const struct health_note *n, const struct say *to)
{
	char away[80], here[80];

	say(to,
	    "HANG: rank %s never entered the collective in which rank %s %s been for %.1f s, since %.1f ms",
	    list_of(n->missing, away, sizeof(away)), list_of(n->waiting, here, sizeof(here)),
	    plural(__builtin_popcountll(n->waiting), "has", "have"), (n->t1_ns - n->t0_ns) / 1e9,
	    ms_since(v, n->t0_ns));
}

/* A worker that stands still keeps steps waiting, but not the process that reads requests. */
static void note_stop(const struct health_note *n, const struct say *to)
{
	bool all = n->stopped == n->tgid;
	char who[96], by[UNITS_LEN];

	if (all)
		snprintf(who, sizeof(who), "the server (pid %u) was", n->tgid);
	else
		snprintf(who, sizeof(who), "pid %u%s of the server (pid %u) %s", n->stopped,
			 n->several ? " and others" : "", n->tgid, n->several ? "were" : "was");
	say(to, "%s stopped or frozen for %s%s: %s; see who stops it: SIGSTOP, a debugger, a frozen cgroup (docker pause)", who,
	    units_ns(by, n->t1_ns - n->t0_ns), n->n ? ", and still was when the recording ended" : "",
	    all ? "it read no requests and answered none meanwhile" : "steps that it has a part in waited meanwhile");
}

static void note_one(const struct model_view *v, const struct health_note *n, const struct say *to)
{
	char by[UNITS_LEN];

	switch ((enum health_kind)n->kind) {
	case HEALTH_HANG:
		note_hang(v, n, to);
		return;
	case HEALTH_COMMUNICATION:
		say(to,
		    "bound by communication: collectives take %.0f of %.0f ms of a step on all %u ranks alike, "
		    "no rank is late",
		    n->collective_ns / 1e6, n->step_ns / 1e6, n->n_ranks);
		return;
	case HEALTH_CLOCK_STEP:
		say(to,
		    "the realtime clock was set %s by %s between %.1f and %.1f ms: no interval is concerned, "
		    "times of day are",
		    n->jump_ns < 0 ? "back" : "forward",
		    units_ns(by, n->jump_ns < 0 ? -(uint64_t)n->jump_ns : (uint64_t)n->jump_ns),
		    ms_since(v, n->t0_ns), ms_since(v, n->t1_ns));
		return;
	case HEALTH_STOPPED:
		note_stop(n, to);
		return;
	case HEALTH_NOT_KEPT:
		say(to, "%" PRIu64 " piece%s of evidence %s not kept: a table was full", n->n, plural_s(n->n), plural(n->n, "was", "were"));
		return;
	default:
		note_records(v, n, to);
	}
}

void note_health(const struct model_view *v, const struct say *to)
{
	struct health h;

	if (health_notes(v, &h))
		return;
	for (size_t i = 0; i < h.n; i++)
		note_one(v, &h.v[i], to);
	if (h.n_not_kept)
		say(to, "%" PRIu64 " more note%s on the evidence %s left out", h.n_not_kept, plural_s(h.n_not_kept),
		    plural(h.n_not_kept, "is", "are"));
}

void note_of_health(const struct model_view *v, const struct health_note *n, note_fn fn, void *ctx)
{
	note_one(v, n, &(struct say){ fn, ctx });
}

void notes_urgent(const struct model_view *v, note_fn fn, void *ctx)
{
	struct health h;

	if (health_notes(v, &h))
		return;
	for (size_t i = 0; i < h.n; i++)
		if (h.v[i].kind == HEALTH_HANG || h.v[i].kind == HEALTH_GPU_BUDGET ||
		    (h.v[i].kind == HEALTH_STOPPED && (h.v[i].n || !v->n_requests)))
			note_of_health(v, &h.v[i], fn, ctx);
}
