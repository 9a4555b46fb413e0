/* SPDX-License-Identifier: Apache-2.0 */
/* Who else filled a part of a request's time. Names come from the members of the steps in it. */
#include "sink/who.h"
#include "base/plural.h"
#include "base/units.h"
#include "sink/notes.h"

#include <stdio.h>

enum { MAX_HOLDERS = 8, NAMES_LEN = 200 };

static const char *const brief_names[N_PARTS] = {
	[PART_READ] = "until it was read",
	[PART_BEFORE_SUBMIT] = "front end",
	[PART_WAIT_SLOT] = "waiting for a slot",
	[PART_WAIT_STEP] = "until a step took it",
	[PART_WAIT_QUEUE] = "in the queue",
	[PART_LATE_WAIT] = "its last answer waits",
	[PART_LATE_PREFILL] = "last answer's prefill",
	[PART_OTHER_STEPS] = "steps of others",
	[PART_DELIVERY] = "delivery",
	[PART_END] = "end of response",
	[PART_OPEN] = "under way at the end",
	[PART_UNEXPLAINED] = "unexplained",
};

/* Was most of its own prefill time in steps that computed more of others'
 * prompts than of its own? */
static bool is_crowded(const struct trace *t)
{
	return 2 * t->crowded_ns > t->sum_ns[PART_PREFILL];
}

/* The one that prefills most; UINT32_MAX: nobody does. */
static uint32_t chief(const struct crowd *c)
{
	uint64_t most = 0;
	uint32_t seq = UINT32_MAX;

	for (size_t i = 0; i < c->n; i++)
		if (c->who[i].prefill > most) {
			most = c->who[i].prefill;
			seq = c->who[i].seq;
		}
	return seq;
}

/* ---- in a sentence ---- */

/* Who had its slot while it waited for one, the last one first. */
static size_t find_holders(const struct trace *t, uint32_t found[MAX_HOLDERS])
{
	for (size_t i = 0; i < t->n; i++)
		if (t->segs[i].part == PART_WAIT_SLOT)
			return trace__slot_holders(t, &t->segs[i], found, MAX_HOLDERS);
	return 0;
}

/* The same in words, oldest first: "r1, r2". */
static const char *holders(const struct trace *t, char *buf, size_t size)
{
	uint32_t found[MAX_HOLDERS];
	size_t n = find_holders(t, found);
	int at = 0;

	buf[0] = '\0';
	while (n--) {
		char name[24];

		at += snprintf(buf + at, size - (size_t)at, "%s%s", at ? ", " : "",
			       sequence_name(t->v, found[n], name));
	}
	return buf;
}

/* "behind ", with how much of the wait it was before that if it was not nearly all. */
static const char *share(uint64_t ns, uint64_t wait_ns, char buf[UNITS_LEN + 16])
{
	char ms[UNITS_LEN];

	if (20 * ns >= 19 * wait_ns)
		return "behind";
	snprintf(buf, UNITS_LEN + 16, "%s behind", units_ns(ms, ns));
	return buf;
}

/* " (2.20 s behind prefill of r1 (462 tok), 330 ms behind decode of r1, r3)", "" if no step ran. */
static const char *behind(const struct trace *t, enum part part, char *buf, size_t size)
{
	char names[NAMES_LEN], some[UNITS_LEN + 16], ms[UNITS_LEN];
	struct wait w;
	int n = 0;

	trace__wait(t, part, &w);
	buf[0] = '\0';
	if (w.prefill_ns)
		n = snprintf(buf, size, " (%s prefill of %s",
			     share(w.prefill_ns, t->sum_ns[part], some),
			     crowd__prefill_text(&w.prefill, t->v, names, sizeof(names)));
	else if (w.ns && (w.all.n || w.all.n_more))
		n = snprintf(buf, size, " (%s %s", share(w.ns, t->sum_ns[part], some),
			     crowd__text(&w.all, t->v, names, sizeof(names)));
	if (w.prefill_ns && 10 * (w.ns - w.prefill_ns) > w.ns)
		n += snprintf(buf + n, size - (size_t)n, ", %s behind decode of %s",
			      units_ns(ms, w.ns - w.prefill_ns),
			      crowd__decode_text(&w.all, t->v, names, sizeof(names)));
	if (n)
		snprintf(buf + n, size - (size_t)n, ")");
	return buf;
}

/* " of 12 tokens"; nothing where they are not known (of members inferred from launches). */
static const char *of_tokens(const struct trace *t, const char *unit, char buf[32])
{
	uint32_t n = trace__prompt_seq(t)->n_prefill;

	snprintf(buf, 32, n ? " of %u %s" : "", n, unit);
	return buf;
}

static void prefill_text(const struct trace *t, char *buf, size_t size)
{
	char names[NAMES_LEN], tokens[32];
	size_t n = t->n_prefill_steps;

	crowd__prefill_text(&t->beside, t->v, names, sizeof(names));
	snprintf(buf, size, "prefill%s in %zu step%s%s%s", of_tokens(t, plural(t->q->n_prefill, "token", "tokens"), tokens), n,
		 plural_s(n),
		 !*names		? ""
		 : !is_crowded(t) ? ", with prefill of "
		 : n == 1		? " that was mostly prefill of "
					: " that were mostly prefill of ",
		 names);
}

const char *who__text(const struct trace *t, enum part part, char *buf, size_t size)
{
	char who[NAMES_LEN + 120], had[NAMES_LEN];

	switch (part) {
	case PART_WAIT_SLOT:
		holders(t, had, sizeof(had));
		snprintf(buf, size, "waiting for a slot%s%s%s", *had ? " held by " : "", had,
			 behind(t, part, who, sizeof(who)));
		break;
	case PART_WAIT_STEP:
	case PART_WAIT_QUEUE:
	case PART_LATE_WAIT:
	case PART_PARKED:
		if (part == PART_PARKED && t->n_parked > 1)
			snprintf(buf, size, "parked after %zu preemptions%s", t->n_parked,
				 behind(t, part, who, sizeof(who)));
		else
			snprintf(buf, size, "%s%s%s", part_names[part],
				 part == PART_PARKED && t->r->n_seqs > 1 ? ", one of its answers" : "", behind(t, part, who, sizeof(who)));
		break;
	case PART_PREFILL:
		prefill_text(t, buf, size);
		break;
	default:
		snprintf(buf, size, "%s", part_names[part]);
	}
	return buf;
}

/* ---- in a table ---- */

/* "r4's prefill"; of its own other answers the shortest that can be said. Returns buf. */
static const char *prefill_of(const struct crowd *c, const struct model_view *v, uint32_t seq,
			      char buf[40])
{
	char name[24];

	if (c->own && v->seqs[seq].req == c->own)
		snprintf(buf, 40, "own prefills");
	else
		snprintf(buf, 40, "%s's prefill", crowd__name(c, v, seq, name));
	return buf;
}

const char *who__brief(const struct trace *t, enum part part, char *buf, size_t size)
{
	uint32_t who = UINT32_MAX, found[MAX_HOLDERS];
	struct wait w;
	const struct crowd *crowd = &t->beside;
	size_t n = part == PART_WAIT_SLOT ? find_holders(t, found) : 0;
	char ms[UNITS_LEN], name[40], more[24] = "", tokens[32];

	units_ns(ms, t->sum_ns[part]);
	if (n > 1)
		snprintf(more, sizeof(more), " +%zu", n - 1);
	if (n) {
		snprintf(buf, size, "slot held by %s%s: %s",
			 sequence_name(t->v, found[n - 1], name), more, ms);
		return buf;
	}
	if (part == PART_PREFILL && is_crowded(t))
		who = chief(&t->beside);
	if (part == PART_WAIT_STEP || part == PART_WAIT_QUEUE) {
		trace__wait(t, part, &w);
		crowd = &w.prefill;
		if (2 * w.prefill_ns > t->sum_ns[part])
			who = chief(&w.prefill);
	}
	if (who != UINT32_MAX && crowd->n + crowd->n_more > 1 &&
	    !(crowd->own && t->v->seqs[who].req == crowd->own))
		snprintf(buf, size, "%s %s, %zu more: %s", part == PART_PREFILL ? "with" : "behind",
			 crowd__name(crowd, t->v, who, name), crowd->n - 1 + crowd->n_more, ms);
	else if (who != UINT32_MAX)
		snprintf(buf, size, "%s %s: %s", part == PART_PREFILL ? "with" : "behind",
			 prefill_of(crowd, t->v, who, name), ms);
	else if (part == PART_PREFILL)
		snprintf(buf, size, "prefill%s: %s", of_tokens(t, "tok", tokens), ms);
	else
		snprintf(buf, size, "%s: %s",
			 brief_names[part] ? brief_names[part] : part_names[part], ms);
	return buf;
}

const char *who__stretched(const struct trace *t, uint64_t excess_ns, char *buf, size_t size)
{
	char ms[UNITS_LEN], names[NAMES_LEN], name[40];

	units_ns(ms, excess_ns);
	if (size >= 60)
		snprintf(buf, size, "+%s: prefill of %s", ms,
			 crowd__prefill_text(&t->shared, t->v, names, sizeof(names)));
	else if (t->shared.n <= 1)
		snprintf(buf, size, "+%s: %s", ms,
			 prefill_of(&t->shared, t->v, chief(&t->shared), name));
	else
		snprintf(buf, size, "+%s: %s prefill, %zu more", ms,
			 crowd__name(&t->shared, t->v, chief(&t->shared), name),
			 t->shared.n - 1 + t->shared.n_more);
	return buf;
}
