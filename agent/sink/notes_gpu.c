/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences on what was seen of devices: collection that failed, a rank that never came, links at their limit. */
#include "model/evidence.h"
#include "sink/notes_priv.h"

#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {
	[TL_GPU_OFF] = "nothing", [TL_GPU_LAUNCHES] = "launches only",
	[TL_GPU_GRAPH] = "records of graphs", [TL_GPU_KERNELS] = "records of kernels",
};

static const char *level_name(uint16_t level)
{
	return level < ARRAY_SIZE(level_names) ? level_names[level] : "another level";
}

/* No record is no idleness. */
static void note_health(const struct model_view *v, const struct tl_gpu_health *h, const struct say *to)
{
	double from = ms_since(v, h->since_ns), until = ms_since(v, h->hdr.ts_ns);

	switch ((enum tl_gpu_trouble)h->trouble) {
	case TL_GPU_BROKEN:
		say(to,
		    "collection broken: pid %u made %llu GPU launches between %.1f and %.1f ms, and "
		    "%llu records came; what the GPU did then is not known",
		    h->hdr.tgid, h->launches, from, until, h->records);
		return;
	case TL_GPU_BAD_STAMPS:
		say(to,
		    "%llu GPU records of pid %u had impossible time stamps and were dropped, from %.1f ms "
		    "on; those before are kept, since %.1f ms: %s",
		    h->bad_records, h->hdr.tgid, from, until, level_name(h->to_level));
		return;
	case TL_GPU_BUSY:
		say(to,
		    "%.32s has the GPU records of pid %u: since %.1f ms %s; sockets, CPU and steps are "
		    "complete",
		    h->holder[0] ? h->holder : "another tool", h->hdr.tgid, from, level_name(h->to_level));
		return;
	case TL_GPU_BUDGET:
		say(to,
		    "TAINTED: observing the GPU cost pid %u %.0f %% of its speed between %.1f and %.1f ms; "
		    "since then %s",
		    h->hdr.tgid, h->overhead_ppm / 1e4, from, until, level_name(h->to_level));
		return;
	case TL_GPU_FINE:
		break;
	}
	if (h->dropped)
		say(to, "%llu GPU records of pid %u were lost between %.1f and %.1f ms", h->dropped,
		    h->hdr.tgid, from, until);
}

/* ---- ranks ---- */

enum { MAX_RANKS = 64, MIN_STEPS = 8 };
static const uint64_t hang_ns = 1000000000;

struct ranks {
	uint64_t collective_ns[MAX_RANKS], step_ns[MAX_RANKS];
	uint32_t n_steps[MAX_RANKS];
	uint64_t seen, waiting;		/* bit i: rank i; waiting: in a collective that has not ended */
	uint64_t since_ns, until_ns;	/* of the longest such wait */
};

static void count_ranks(const struct evidence *e, struct ranks *ret)
{
	for (size_t i = 0; i < e->gpu_steps.n; i++) {
		const struct tl_gpu_step *s = &e->gpu_steps.v[i];
		uint64_t ns = s->end_ns > s->hdr.ts_ns ? s->end_ns - s->hdr.ts_ns : 0;

		if (s->rank >= MAX_RANKS)
			continue;
		ret->seen |= 1ull << s->rank;
		if (!(s->hdr.flags & TL_GPU_OPEN)) {
			ret->collective_ns[s->rank] += s->collective_ns;
			ret->step_ns[s->rank] += ns;
			ret->n_steps[s->rank]++;
		} else if (ns >= hang_ns && s->collective_ns > ns / 10 * 9) {
			ret->waiting |= 1ull << s->rank;
			if (ns > ret->until_ns - ret->since_ns) {
				ret->since_ns = s->hdr.ts_ns;
				ret->until_ns = s->end_ns;
			}
		}
	}
}

static const char *list_of(uint64_t ranks, char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = '\0';
	for (int i = 0; i < MAX_RANKS && n + 8 < size; i++)
		if (ranks >> i & 1)
			n += (size_t)snprintf(buf + n, size - n, "%s%d", n ? ", " : "", i);
	return buf;
}

static void note_hang(const struct model_view *v, const struct ranks *r, const struct say *to)
{
	uint64_t missing = r->seen & ~r->waiting;
	char away[80], here[80];

	if (!r->waiting || !missing)
		return;
	say(to,
	    "HANG: rank %s never entered the collective in which rank %s %s been for %.1f s, since %.1f ms",
	    list_of(missing, away, sizeof(away)), list_of(r->waiting, here, sizeof(here)),
	    __builtin_popcountll(r->waiting) == 1 ? "has" : "have", (r->until_ns - r->since_ns) / 1e9,
	    ms_since(v, r->since_ns));
}

/* Most of all steps in collectives, on all ranks alike: nobody is late, the links are the limit. */
static void note_bound(const struct ranks *r, const struct say *to)
{
	double least = 1, most = 0, ms = 0, of_ms = 0;
	int n = 0;

	for (int i = 0; i < MAX_RANKS; i++) {
		double share;

		if (!r->n_steps[i])
			continue;
		if (r->n_steps[i] < MIN_STEPS || !r->step_ns[i])
			return;
		share = (double)r->collective_ns[i] / (double)r->step_ns[i];
		least = share < least ? share : least;
		most = share > most ? share : most;
		ms += r->collective_ns[i] / 1e6 / r->n_steps[i];
		of_ms += r->step_ns[i] / 1e6 / r->n_steps[i];
		n++;
	}
	if (n < 2 || least < 0.5 || most - least >= 0.05 * most)
		return;
	say(to,
	    "bound by communication: collectives take %.0f of %.0f ms of a step on all %d ranks alike, no rank "
	    "is late",
	    ms / n, of_ms / n, n);
}

void note_gpus(const struct model_view *v, const struct say *to)
{
	const struct evidence *e = v->evidence;
	struct ranks r = { .seen = 0 };

	if (!e)
		return;
	for (size_t i = 0; i < e->gpu_healths.n; i++)
		note_health(v, &e->gpu_healths.v[i], to);
	count_ranks(e, &r);
	note_hang(v, &r, to);
	note_bound(&r, to);
}
