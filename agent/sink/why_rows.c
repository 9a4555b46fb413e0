/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a waterfall: segments of a trace, like ones folded, odd ones on their own. */
#include "base/plural.h"
#include "base/units.h"
#include "model/leads.h"
#include "model/pauses.h"
#include "sink/blame_words.h"
#include "sink/crowd.h"
#include "sink/notes.h"
#include "sink/why_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A screen holds so many rows; odd steps beyond MAX_ODD are folded, the shortest first, and so are holes
 * without a step beyond MAX_HOLES. */
enum { MAX_ROWS = 40, MAX_ODD = 14, MAX_HOLES = 8, MAX_PREFILL_ROWS = 8, MAX_ALL_ROWS = 100000 };

/* How much is folded: more with each level, until the rows fit. */
enum fold { FOLD_SAME_CROWD, FOLD_ANY_CROWD, FOLD_SHORT, N_FOLDS };

/* Consecutive steps of the request that become one row. */
struct group {
	uint64_t t0_ns, t1_ns;
	enum part part;
	size_t n, n_shared;
	uint64_t steps_ns, min_ns, max_ns;
	uint64_t unexplained_ns;	/* of the time between them */
	uint64_t tokens;
	uint32_t seq, step;	/* of the first */
	bool odd;
	struct crowd crowd;
};

struct build {
	const struct trace *t;
	struct why_rows *w;
	const struct why_causes *causes;
	enum fold fold;
	uint64_t odd_upto_ns, hole_upto_ns; /* FOLD_SHORT: what is no longer is folded */
	uint64_t hole_ns; /* of folded holes before the next step */
	struct group g; /* n == 0: none is open */
	enum part part;	/* of the row that is made */
	int err;
};

void why_rows__free(struct why_rows *w)
{
	vec_free(&w->rows);
}

static void __attribute__((format(printf, 5, 6)))
row(struct build *b, uint64_t t0_ns, uint64_t t1_ns, enum page_style style, const char *fmt, ...)
{
	struct why_row *r = vec_push(&b->w->rows, MAX_ALL_ROWS);
	va_list ap;

	if (!r) {
		b->err = -ENOMEM;
		return;
	}
	r->t0_ns = t0_ns;
	r->t1_ns = t1_ns;
	r->style = style;
	r->part = (uint8_t)b->part;
	va_start(ap, fmt);
	vsnprintf(r->text, sizeof(r->text), fmt, ap);
	va_end(ap);
}

/* ---- own steps ---- */

/* "x 4.40 ms", "of 4.10-9.80 ms", and the time without a step if it is 5 % of the row: "x 7.97 ms +
 * 10.2 ms between" */
static const char *durations(const struct group *g, char *buf, size_t size)
{
	uint64_t row_ns = g->t1_ns - g->t0_ns;
	uint64_t between = row_ns > g->steps_ns ? row_ns - g->steps_ns : 0;
	char a[CELL_LEN], b[CELL_LEN];
	int n;

	if (g->n == 1)
		n = snprintf(buf, size, "%s ms", cell_ms(a, (int64_t)g->steps_ns));
	else if (4 * g->max_ns <= 5 * g->min_ns)
		n = snprintf(buf, size, "x %s ms", cell_ms(a, (int64_t)(g->steps_ns / g->n)));
	else
		n = snprintf(buf, size, "of %s-%s ms", cell_ms(a, (int64_t)g->min_ns),
			     cell_ms(b, (int64_t)g->max_ns));
	if (20 * between >= row_ns || g->unexplained_ns)
		n += snprintf(buf + n, size - (size_t)n, " + %s ms %s", cell_ms(a, (int64_t)between),
			      plural(g->n, "before it", "between"));
	if (g->unexplained_ns)
		snprintf(buf + n, size - (size_t)n, " (%s ms unexplained)", cell_ms(a, (int64_t)g->unexplained_ns));
	return buf;
}

/* ": 14.6 ms wait for a CPU (python)", or that at least prefill is not the reason. Returns buf. */
static const char *cause_text(const struct build *b, const struct group *g, char *buf, size_t size)
{
	const struct why_cause *c = why_causes__of(b->causes, g->seq, g->step);
	char ms[UNITS_LEN], who[64] = "";

	if (!c) {
		snprintf(buf, size, ", no prefill in it");
		return buf;
	}
	if (c->who.type != WHO_NOBODY)
		culprit_brief(b->t->v, &c->who, who, sizeof(who));
	snprintf(buf, size, ": %s %s%s%s%s%s", units_ns(ms, c->ns), mechanism_labels[c->mechanism],
		 *who ? " (" : "", who, *who && c->more ? " and others" : "", *who ? ")" : "");
	return buf;
}

static void decode_row(struct build *b, const struct group *g, const char *ms, const char *who)
{
	const char *with = *who ? ", with " : ", alone";
	char usual[CELL_LEN], cause[160];

	if (g->n == 1 && g->odd && !g->crowd.prefill)
		row(b, g->t0_ns, g->t1_ns, STYLE_DECODE,
		    "decode %s (its median is %s)%s%s%s", ms,
		    cell_ms(usual, (int64_t)b->t->median_decode_ns),
		    cause_text(b, g, cause, sizeof(cause)), with, who);
	else if (g->n == 1)
		row(b, g->t0_ns, g->t1_ns, g->odd ? STYLE_OTHER : STYLE_DECODE, "decode %s%s%s", ms,
		    with, who);
	else if (g->n_shared)
		row(b, g->t0_ns, g->t1_ns, STYLE_OTHER, "%zu decode steps %s, %zu with %s", g->n,
		    ms, g->n_shared, who);
	else
		row(b, g->t0_ns, g->t1_ns, STYLE_DECODE, "%zu decode steps %s%s%s", g->n, ms, with,
		    who);
}

static void close_group(struct build *b)
{
	struct group *g = &b->g;
	const char *again = g->part == PART_RECOMPUTE ? " again" : g->part == PART_LATE_PREFILL ? " of its last answer" : "";
	enum page_style style = g->crowd.prefill > g->tokens ? STYLE_OTHER : STYLE_PREFILL;
	char ms[96], who[300], tokens[32] = "";	/* none: they are not known */

	if (!g->n)
		return;
	b->part = g->part;
	if (g->tokens)
		snprintf(tokens, sizeof(tokens), " %" PRIu64 " tok", g->tokens);
	durations(g, ms, sizeof(ms));
	crowd__text(&g->crowd, b->t->v, who, sizeof(who));
	if (g->part == PART_DECODE)
		decode_row(b, g, ms, who);
	else if (g->part == PART_OTHER_STEPS)
		row(b, g->t0_ns, g->t1_ns, STYLE_BAD, "%zu step%s of others, %s: %s", g->n,
		    plural_s(g->n), ms, who);
	else if (g->n == 1)
		row(b, g->t0_ns, g->t1_ns, style, "prefill%s%s, %s%s%s", tokens, again, ms, *who ? ", with " : ", alone", who);
	else
		row(b, g->t0_ns, g->t1_ns, style,
		    "%zu prefill steps %s%s%s%s%s%s", g->n, ms, *tokens ? "," : "", tokens, again,
		    *who ? ", with " : ", alone", who);
	memset(g, 0, sizeof(*g));
}

/* Own tokens of this step. */
static uint64_t own_tokens(const struct trace *t, const struct segment *s)
{
	const struct rec_step *st = &t->v->steps[s->step];

	for (uint32_t i = 0; i < st->n_members; i++)
		if (t->v->members[st->first_member + i].seq == s->seq)
			return t->v->members[st->first_member + i].n_tokens;
	return 0;
}

/* Not like the others: prefill of others in it, or far longer than usual. */
static bool is_odd(const struct trace *t, const struct segment *s)
{
	uint64_t ns = s->t1_ns - s->t0_ns, usual = t->median_decode_ns;
	uint32_t seq;

	if (s->part != PART_DECODE)
		return false;
	return trace__prefill_of_others(t, s, s->step, &seq) ||
	       (usual && ns > 2 * usual && ns > usual + 2000000);
}

static bool fits_group(const struct build *b, const struct segment *s, const struct crowd *crowd,
		       bool odd)
{
	const struct group *g = &b->g;

	if (!g->n || g->part != s->part || odd || g->odd)
		return false;
	if (s->part == PART_PREFILL && b->t->n_prefill_steps <= MAX_PREFILL_ROWS)
		return false;
	if (s->part == PART_LATE_PREFILL && b->t->n_late_prefill_steps <= MAX_PREFILL_ROWS)
		return false;
	if (s->part == PART_RECOMPUTE && b->t->n_recompute_steps <= MAX_PREFILL_ROWS)
		return false;
	return b->fold > FOLD_SAME_CROWD || crowd__equal(&g->crowd, crowd, b->t->v);
}

/* `from_ns`: where the hole before the step began, which belongs to its row. */
static void add_step(struct build *b, const struct segment *s, uint64_t from_ns)
{
	struct group *g = &b->g;
	uint64_t ns = s->t1_ns - s->t0_ns;
	bool odd = is_odd(b->t, s);
	struct crowd crowd = { .n = 0 };
	uint32_t seq;

	if (b->fold == FOLD_SHORT && ns <= b->odd_upto_ns)
		odd = false;
	crowd__add(&crowd, b->t->v, s->step, s->seq);
	if (!fits_group(b, s, &crowd, odd)) {
		close_group(b);
		g->t0_ns = from_ns;
		g->part = s->part;
		g->seq = s->seq;
		g->step = s->step;
		g->odd = odd;
		g->min_ns = UINT64_MAX;
	}
	g->t1_ns = s->t1_ns;
	g->n++;
	g->n_shared += trace__prefill_of_others(b->t, s, s->step, &seq) > 0;
	g->steps_ns += ns;
	g->unexplained_ns += b->hole_ns;
	b->hole_ns = 0;
	g->min_ns = ns < g->min_ns ? ns : g->min_ns;
	g->max_ns = ns > g->max_ns ? ns : g->max_ns;
	if (s->part != PART_RECOMPUTE || sequence_knows_lost(&b->t->v->seqs[s->seq]))
		g->tokens += own_tokens(b->t, s);
	crowd__add(&g->crowd, b->t->v, s->step, s->seq);
}

/* ---- waits ---- */

/* The sequences that had its slot during the wait, oldest first. */
static const char *holders(const struct trace *t, const struct segment *s, char *buf, size_t size)
{
	uint32_t found[8];
	size_t n = trace__slot_holders(t, s, found, 8);
	int at = 0;

	buf[0] = '\0';
	while (n--) {
		char name[24];

		at += snprintf(buf + at, size - (size_t)at, " %s",
			       sequence_name(t->v, found[n], name));
	}
	return buf;
}

/* How full the scheduler was meanwhile, as far as it says. */
struct fullness {
	bool queues_known, kv_known;
	uint32_t running, kv_ppm;	/* most */
};

static void add_fullness(struct fullness *f, const struct rec_step_stats *s)
{
	f->queues_known |= (s->known & TL_STATS_QUEUES) != 0;
	f->kv_known |= (s->known & TL_STATS_KV) != 0;
	if (s->known & TL_STATS_QUEUES && s->running > f->running)
		f->running = s->running;
	if (s->known & TL_STATS_KV && s->kv_ppm > f->kv_ppm)
		f->kv_ppm = s->kv_ppm;
}

/* "; up to 7 running, KV cache up to 97 % full", or what is known of that. Returns buf. */
static const char *fullness_text(const struct fullness *f, char *buf, size_t size)
{
	int at = 0;

	buf[0] = '\0';
	if (f->queues_known)
		at = snprintf(buf, size, "; up to %u running", f->running);
	if (f->kv_known)
		snprintf(buf + at, size - (size_t)at, "%s KV cache up to %.0f %% full", at ? "," : ";",
			 f->kv_ppm / 1e4);
	return buf;
}

/* That it had lost its place then, did nobody say? */
static bool is_inferred(const struct trace *t, const struct segment *s)
{
	const struct rec_preemption *last = NULL;

	for (size_t i = 0; i < t->q->n_preemptions; i++)
		if (t->q->preemptions[i].at_ns < s->t1_ns)
			last = &t->q->preemptions[i];
	return last && last->prov == PROV_INFERRED && !t->q->n_again;
}

static void wait_row(struct build *b, const struct segment *s)
{
	const struct trace *t = b->t;
	char who[300], had[128], full[80], which[40] = "";
	struct crowd crowd = { .n = 0 };
	struct fullness fullness = { 0 };
	uint32_t left = s->n_steps;
	struct pause pause;

	for (uint32_t i = s->step; left && i < t->v->n_steps; i++)
		if (t->v->steps[i].engine == t->v->seqs[s->seq].engine) {
			crowd__add(&crowd, t->v, i, s->seq);
			add_fullness(&fullness, step_stats(t->v, &t->v->steps[i]));
			left--;
		}
	crowd__text(&crowd, t->v, who, sizeof(who));
	fullness_text(&fullness, full, sizeof(full));
	if (s->part == PART_PARKED &&
	    pause_during(t->v, t->v->seqs[s->seq].engine, s->t0_ns, s->t1_ns, &pause)) {
		row(b, s->t0_ns, s->t1_ns, STYLE_WAIT,
		    "%s: the server was paused, %s by port %u; %u step%s ran", part_names[s->part],
		    t->v->others[pause.other].path, t->v->others[pause.other].peer_port, s->n_steps,
		    s->n_steps == 1 ? "" : "s");
		return;
	}
	if (s->part == PART_LATE_WAIT && !s->n_steps) {
		row(b, s->t0_ns, s->t1_ns, STYLE_WAIT, "%s (answer %u of %zu); none ran", part_names[s->part],
		    answer_number(t->r, s->seq), t->r->n_seqs);
		return;
	}
	if (s->part == PART_PARKED || s->part == PART_WAIT_QUEUE || s->part == PART_LATE_WAIT) {
		if (s->part != PART_WAIT_QUEUE && t->r->n_seqs > 1)
			snprintf(which, sizeof(which), " (answer %u of %zu)", answer_number(t->r, s->seq), t->r->n_seqs);
		row(b, s->t0_ns, s->t1_ns, STYLE_WAIT, "%s%s%s%s; %u step%s ran: %s", part_names[s->part], which,
		    s->part == PART_PARKED && is_inferred(t, s) ? " (inferred: it was in none of the steps)" : "", full, s->n_steps, plural_s(s->n_steps), *who ? who : "members not seen");
		return;
	}
	if (s->part == PART_WAIT_SLOT)
		row(b, s->t0_ns, s->t1_ns, STYLE_WAIT,
		    "waiting for a slot; slot %u had%s; %u step%s ran: %s", t->q->slot,
		    holders(t, s, had, sizeof(had)), s->n_steps, plural_s(s->n_steps), who);
	else if (s->n_steps)
		row(b, s->t0_ns, s->t1_ns, STYLE_WAIT,
		    "until a step could take it in; %u step%s ran: %s", s->n_steps,
		    plural_s(s->n_steps), who);
	else if (pause_during(t->v, t->v->seqs[s->seq].engine, s->t0_ns, s->t1_ns, &pause))
		row(b, s->t0_ns, s->t1_ns, STYLE_WAIT,
		    "until a step could take it in; none ran: the server was paused, %s by port %u",
		    t->v->others[pause.other].path, t->v->others[pause.other].peer_port);
	else
		row(b, s->t0_ns, s->t1_ns, STYLE_WAIT, "until a step could take it in; none ran");
}

/* ---- the rest ---- */

/* Wire only: chunks with like gaps folded, long gaps on their own. */
static void stream_rows(struct build *b, const struct segment *s)
{
	const struct rec_request *r = b->t->r;
	uint64_t from = s->t0_ns, last = 0, longest = 0;
	size_t n = 0, at_longest = 0;

	for (size_t i = 0; i < r->n_chunks; i++) {
		uint64_t ts = chunk_ns(r, i);

		n += chunk_is_token(&r->chunks[i]);
		/* in a damaged recording they need not be in order */
		if (last >= s->t0_ns && ts <= s->t1_ns && ts > last && ts - last > longest) {
			longest = ts - last;
			at_longest = i;
		}
		last = ts;
	}
	if (n > 2 && longest * n > 3 * (s->t1_ns - s->t0_ns)) {
		uint64_t t1 = chunk_ns(r, at_longest), t0 = t1 - longest;

		if (t0 > from)
			row(b, from, t0, STYLE_DECODE, "streaming %zu chunk%s", at_longest, plural_s(at_longest));
		row(b, t0, t1, STYLE_BAD, "longest gap between chunks; cause not seen");
		if (s->t1_ns > t1)
			row(b, t1, s->t1_ns, STYLE_DECODE, "streaming %zu chunk%s", n - at_longest,
			    plural_s(n - at_longest));
		return;
	}
	row(b, from, s->t1_ns, STYLE_DECODE, "streaming %zu chunk%s with tokens", n, plural_s(n));
}

static void unexplained_row(struct build *b, const struct segment *s)
{
	if (b->t->q->joined_late && s->t1_ns <= b->t->v->steps[b->t->q->visits[0].step].t0_ns)
		row(b, s->t0_ns, s->t1_ns, STYLE_BAD, "before its first step that was seen");
	else if (s->blind)
		row(b, s->t0_ns, s->t1_ns, STYLE_BAD, "unexplained: launches were not looked for yet, so steps were not seen");
	else if (s->in_lost)
		row(b, s->t0_ns, s->t1_ns, STYLE_BAD, "unexplained: events were lost here");
	else if (s->n_steps)
		row(b, s->t0_ns, s->t1_ns, STYLE_BAD, "unexplained: %u step%s ran, and whether with it is not known", s->n_steps,
		    plural_s(s->n_steps));
	else
		row(b, s->t0_ns, s->t1_ns, STYLE_BAD, "unexplained: the engine ran no step");
}

static void plain_row(struct build *b, const struct segment *s)
{
	const struct rec_request *r = b->t->r;

	b->part = (enum part)s->part;
	switch (s->part) {
	case PART_READ:
		if (r->body_bytes)
			row(b, s->t0_ns, s->t1_ns, STYLE_OTHER,
			    "arrival to read by the server, %" PRIu64 " byte%s of body", r->body_bytes,
			    plural_s(r->body_bytes));
		else
			row(b, s->t0_ns, s->t1_ns, STYLE_OTHER, "%s", part_names[PART_READ]);
		return;
	case PART_WAIT_SLOT:
	case PART_WAIT_STEP:
	case PART_WAIT_QUEUE:
	case PART_LATE_WAIT:
	case PART_PARKED:
		wait_row(b, s);
		return;
	case PART_STREAM:
		stream_rows(b, s);
		return;
	case PART_UNEXPLAINED:
		unexplained_row(b, s);
		return;
	case PART_END:
		row(b, s->t0_ns, s->t1_ns, STYLE_OTHER, "%s",
		    r->at_ns[P_DONE] ? "end of the response" : "until the last thing seen");
		return;
	default:
		row(b, s->t0_ns, s->t1_ns, STYLE_OTHER, "%s", part_names[s->part]);
	}
}

/* A hole that no step followed: the request ended in it. */
static void hole_row(struct build *b, uint64_t from_ns, uint64_t until_ns)
{
	b->part = PART_BETWEEN;
	if (from_ns)
		row(b, from_ns, until_ns, STYLE_OTHER, "%s", part_names[PART_BETWEEN]);
}

/* Between steps of its own the engine ran none, and nothing tells why. */
static bool is_hole(const struct trace *t, const struct segment *s)
{
	const struct segment *next = s + 1;

	return s->part == PART_UNEXPLAINED && s > t->segs && next < t->segs + t->n && !s->blind && !s->in_lost &&
	       !s->n_steps && s[-1].part == PART_DECODE && next->part == PART_DECODE;
}

static int build(struct why_rows *w, const struct trace *t, const struct why_causes *causes,
		 enum fold fold, uint64_t odd_upto_ns, uint64_t hole_upto_ns)
{
	struct build b = { .t = t, .w = w, .causes = causes, .fold = fold,
			   .odd_upto_ns = odd_upto_ns, .hole_upto_ns = hole_upto_ns };
	uint64_t hole_from = 0;

	w->rows.n = 0;
	for (size_t i = 0; i < t->n && !b.err; i++) {
		const struct segment *s = &t->segs[i];

		if (fold == FOLD_SHORT && is_hole(t, s) && s->t1_ns - s->t0_ns <= b.hole_upto_ns) {
			hole_from = hole_from ? hole_from : s->t0_ns;
			b.hole_ns += s->t1_ns - s->t0_ns;
			continue;
		}
		switch (s->part) {
		case PART_BETWEEN:
			hole_from = hole_from ? hole_from : s->t0_ns;
			continue;
		case PART_PREFILL:
		case PART_LATE_PREFILL:
		case PART_RECOMPUTE:
		case PART_DECODE:
		case PART_OTHER_STEPS:
			add_step(&b, s, hole_from ? hole_from : s->t0_ns);
			break;
		default:
			close_group(&b);
			hole_row(&b, hole_from, s->t0_ns);
			plain_row(&b, s);
		}
		hole_from = 0;
	}
	close_group(&b);
	hole_row(&b, hole_from, t->t1_ns);
	return b.err;
}

static int longer_first(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x < y) - (x > y);
}

/* The longest of these segments stay on their own: how long is the next one? */
static int limit_of(const struct trace *t, bool (*is)(const struct trace *t, const struct segment *s), size_t max,
		    uint64_t *ret_ns)
{
	uint64_t *ns = malloc((t->n + 1) * sizeof(*ns));
	size_t n = 0;

	if (!ns)
		return -ENOMEM;
	for (size_t i = 0; i < t->n; i++)
		if (is(t, &t->segs[i]))
			ns[n++] = t->segs[i].t1_ns - t->segs[i].t0_ns;
	qsort(ns, n, sizeof(*ns), longer_first);
	*ret_ns = n > max ? ns[max] : 0;
	free(ns);
	return 0;
}

int why_rows__build(struct why_rows *w, const struct trace *t, const struct why_causes *causes)
{
	uint64_t odd_upto_ns = 0, hole_upto_ns = 0;
	int err = 0;

	memset(w, 0, sizeof(*w));
	for (int fold = FOLD_SAME_CROWD; fold < N_FOLDS && !err; fold++) {
		if (fold == FOLD_SHORT)
			err = limit_of(t, is_odd, MAX_ODD, &odd_upto_ns);
		if (fold == FOLD_SHORT && !err)
			err = limit_of(t, is_hole, MAX_HOLES, &hole_upto_ns);
		if (!err)
			err = build(w, t, causes, (enum fold)fold, odd_upto_ns, hole_upto_ns);
		if (w->rows.n <= MAX_ROWS)
			break;
	}
	if (err)
		why_rows__free(w);
	return err;
}
