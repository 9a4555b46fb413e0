/* SPDX-License-Identifier: Apache-2.0 */
/* What made one request slow, in a few words: as blame cuts its gaps, else as its steps show it. */
#include "base/plural.h"
#include "base/units.h"
#include "model/blame.h"
#include "model/leads.h"
#include "sink/blame_words.h"
#include "sink/sentence.h"
#include "sink/text_priv.h"
#include "sink/who.h"

#include <string.h>

static uint64_t shared_excess(const struct trace *t)
{
	uint64_t own = t->n_shared * t->median_decode_ns;

	return t->median_decode_ns && t->shared_ns > own ? t->shared_ns - own : 0;
}

/* As the engine says it, where it does: what is around it in time belongs to steps. */
static uint64_t parked_for(const struct trace *t)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < t->q->n_preemptions; i++) {
		const struct rec_preemption *e = &t->q->preemptions[i];

		if (!e->resumed_ns)
			return t->sum_ns[PART_PARKED];
		ns += e->resumed_ns > e->at_ns ? e->resumed_ns - e->at_ns : 0;
	}
	return ns ? ns : t->sum_ns[PART_PARKED];
}

static void hint_preempted(const struct trace *t, char *buf, size_t size)
{
	const struct rec_sequence *q = t->q;
	bool several = t->r->n_seqs > 1, known = sequence_knows_lost(q);
	char parked[UNITS_LEN], again[UNITS_LEN], which[48] = "", n_again[48] = "computing again what it had";

	if (known)
		snprintf(n_again, sizeof(n_again), "%u token%s computed again", q->n_again, plural_s(q->n_again));

	if (several && size > 2 * HINT_LEN)
		snprintf(which, sizeof(which), "answer %u of %zu ", answer_number(t->r, (uint32_t)(q - t->v->seqs)), t->r->n_seqs);
	units_ns(parked, parked_for(t));
	if (!q->n_again && q->n_preemptions)
		snprintf(buf, size, "%spreempted %s%s", which, parked,
			 q->preemptions[q->n_preemptions - 1].resumed_ns ? "" : ", not back");
	else if (size > 2 * HINT_LEN)
		snprintf(buf, size, "%spreempted: parked for %s, then %s for %s", which, parked,
			 units_ns(again, t->sum_ns[PART_RECOMPUTE]), n_again);
	else if (several)
		snprintf(buf, size, "one answer parked %s", parked);
	else
		snprintf(buf, size, known ? "parked %s, +%u tok" : "parked %s", parked, q->n_again);
}

/* Parts that are no reason for anything as long as more time went by in decode steps. */
static uint32_t parts_of_no_interest(const struct trace *t)
{
	uint32_t skip = 1u << PART_DECODE | 1u << PART_BETWEEN | 1u << PART_PARKED | 1u << PART_RECOMPUTE;

	if (t->sum_ns[PART_LATE_PREFILL] + t->sum_ns[PART_LATE_WAIT] < t->sum_ns[PART_DECODE])
		skip |= 1u << PART_LATE_PREFILL | 1u << PART_LATE_WAIT;
	return skip;
}

/* ---- by mechanism ---- */

struct slowed {			/* what was not its own; of preemptions the steps tell */
	uint64_t ns[N_MECHANISMS], all_ns;
	struct culprit who[N_MECHANISMS];	/* of the longest part */
	uint64_t longest_ns[N_MECHANISMS];
};

static int add_gap(void *ctx, const struct gap *g)
{
	struct slowed *s = ctx;

	for (size_t i = 0; i < g->n_parts; i++) {
		const struct blame_part *p = &g->parts[i];

		if (mechanism_is_own((enum mechanism)p->mechanism) || p->mechanism == MECH_PREEMPTED ||
		    p->mechanism == MECH_RECOMPUTE)
			continue;
		s->ns[p->mechanism] += p->ns;
		s->all_ns += p->ns;
		if (p->ns <= s->longest_ns[p->mechanism])
			continue;
		s->longest_ns[p->mechanism] = p->ns;
		s->who[p->mechanism] = p->who;
	}
	return 0;
}

static enum mechanism chief_of(const struct slowed *s, uint64_t but)
{
	enum mechanism best = N_MECHANISMS;

	for (int m = 0; m < N_MECHANISMS; m++)
		if (s->ns[m] && !(but >> m & 1) && (best == N_MECHANISMS || s->ns[m] > s->ns[best]))
			best = (enum mechanism)m;
	return best;
}

/* "wait for a CPU 1.92 s (cc1)" */
static void append_mechanism(struct sentence *to, const struct trace *t, const struct slowed *s, enum mechanism m)
{
	char ms[UNITS_LEN], name[CULPRIT_TEXT];

	append(to, "%s %s", mechanism_labels[m], units_ns(ms, s->ns[m]));
	if (s->who[m].type != WHO_NOBODY)
		append(to, " (%s)", culprit_brief(t->v, &s->who[m], name, sizeof(name)));
}

/* Between its tokens. false: others' prefill was most of it, which who__stretched says better. */
static bool between_tokens(const struct trace *t, const struct slowed *s, char *buf, size_t size)
{
	struct sentence to = { buf, 0, size };
	enum mechanism m = chief_of(s, 0), next = chief_of(s, 1ull << m);
	char ms[UNITS_LEN];

	if (m == MECH_PREFILL)
		return false;
	if (size <= HINT_LEN) {
		append(&to, "+%s: %s", units_ns(ms, s->ns[m]), mechanism_labels[m]);
		return true;
	}
	append(&to, "+%s between tokens: ", units_ns(ms, s->all_ns));
	append_mechanism(&to, t, s, m);
	if (next != N_MECHANISMS && 10 * s->ns[next] > s->all_ns) {
		append(&to, ", ");
		append_mechanism(&to, t, s, next);
	}
	return true;
}

bool text_held_up(const struct trace *t, struct blame *b, enum part part, char *buf, size_t size)
{
	const uint64_t told_by_part = 1ull << MECH_PREFILL | 1ull << MECH_QUEUE | 1ull << MECH_STEP_WAIT |
				      1ull << MECH_UNEXPLAINED | 1ull << MECH_LOST;
	struct sentence to = { buf, 0, size };
	struct slowed s = { .all_ns = 0 };
	enum mechanism m;
	struct gap first;
	char ms[UNITS_LEN];

	if ((part != PART_PREFILL && part != PART_WAIT_STEP) ||
	    !blame__ttft(b, (uint32_t)(t->r - t->v->requests), &first))
		return false;
	add_gap(&s, &first);
	m = chief_of(&s, told_by_part);
	if (m == N_MECHANISMS || 2 * s.ns[m] < t->sum_ns[part])
		return false;
	if (size <= HINT_LEN)
		append(&to, "%s: %s", mechanism_labels[m], units_ns(ms, s.ns[m]));
	else
		append_mechanism(&to, t, &s, m);
	return true;
}

const char *text_hint(const struct trace *t, struct blame *b, char *buf, size_t size)
{
	uint64_t excess = shared_excess(t), total = t->t1_ns - t->t0_ns;
	uint64_t preempted = t->sum_ns[PART_PARKED] + t->sum_ns[PART_RECOMPUTE];
	int part = largest_part(t->sum_ns, parts_of_no_interest(t));
	struct slowed s = { .all_ns = 0 };
	char ms[UNITS_LEN];

	if (t->q && blame__n_learnt(b) && !blame__gaps(b, (uint32_t)(t->r - t->v->requests), add_gap, &s))
		excess = s.all_ns;
	if (!t->q)
		snprintf(buf, size, t->r->n_seqs ? "no step took it" : "not joined to engine steps");
	else if (preempted > t->sum_ns[part] && preempted > excess && 10 * preempted > total)
		hint_preempted(t, buf, size);
	else if (excess > t->sum_ns[part] && 10 * excess > total) {
		if (!s.all_ns || !between_tokens(t, &s, buf, size))
			who__stretched(t, s.all_ns ? s.ns[MECH_PREFILL] : excess, buf, size);
	} else if (10 * t->sum_ns[part] < total)
		snprintf(buf, size, "%zu decode step%s of %s", t->n_decode_steps, plural_s(t->n_decode_steps),
			 units_ns(ms, t->sum_ns[PART_DECODE] /
					      (t->n_decode_steps ? t->n_decode_steps : 1)));
	else if (!text_held_up(t, b, (enum part)part, buf, size))
		who__brief(t, (enum part)part, buf, size);
	return buf;
}
