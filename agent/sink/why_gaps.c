/* SPDX-License-Identifier: Apache-2.0 */
/* Below the waterfall: gaps that were longer than usual, what the TTFT was made of, what was held. */
#include "base/units.h"
#include "model/evidence.h"
#include "sink/blame_words.h"
#include "sink/how_words.h"
#include "sink/why_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ODD_GAPS = 12, MAX_HELD = 4, MAX_BEHIND = 3, WORTH_NS = 5000000 };

static uint32_t request_index(const struct trace *t)
{
	return (uint32_t)(t->r - t->v->requests);
}

struct odd_gaps {
	struct gap *v;		/* the MAX_ODD_GAPS with most excess, in order of time */
	size_t n, n_odd, n_gaps;
	uint64_t excess_ns;	/* of all */
};

static uint64_t excess_of(const struct gap *g)
{
	uint64_t ns = g->t1_ns - g->t0_ns;

	return ns > g->usual_ns ? ns - g->usual_ns : 0;
}

static int keep_if_odd(void *ctx, const struct gap *g)
{
	struct odd_gaps *o = ctx;
	size_t least = 0;

	o->n_gaps++;
	if (!gap_is_odd(g))
		return 0;
	o->n_odd++;
	o->excess_ns += excess_of(g);
	if (o->n < MAX_ODD_GAPS) {
		o->v[o->n++] = *g;
		return 0;
	}
	for (size_t i = 1; i < o->n; i++)
		if (excess_of(&o->v[i]) < excess_of(&o->v[least]))
			least = i;
	if (excess_of(g) <= excess_of(&o->v[least]))
		return 0;
	memmove(&o->v[least], &o->v[least + 1], (o->n - 1 - least) * sizeof(*o->v));
	o->v[o->n - 1] = *g;
	return 0;
}

static void write_gap(struct page *p, const struct trace *t, const struct gap *g)
{
	char text[1200], row[64], at[CELL_LEN], ms[CELL_LEN], usual[CELL_LEN];

	snprintf(row, sizeof(row), "%10s%10s%9s%7u  ",
		 cell_ms(at, (int64_t)(g->t0_ns > t->t0_ns ? g->t0_ns - t->t0_ns : 0)),
		 cell_ms(ms, (int64_t)(g->t1_ns - g->t0_ns)),
		 g->usual_ns ? cell_ms(usual, (int64_t)g->usual_ns) : "-", g->token);
	gap_text(t->v, g, text, sizeof(text));
	page__text(p, row, 38, text);
}

int why_gaps(struct page *p, const struct trace *t, struct blame *b)
{
	struct odd_gaps o = { .v = malloc(MAX_ODD_GAPS * sizeof(*o.v)) };
	char ms[UNITS_LEN];
	int err = o.v ? blame__gaps(b, request_index(t), keep_if_odd, &o) : -ENOMEM;

	if (!err && o.n) {
		page__heading(p, "%10s%10s%9s%7s  %s", "at ms", "ms", "usual", "token",
			      "gaps between tokens above usual");
		for (size_t i = 0; i < o.n; i++)
			write_gap(p, t, &o.v[i]);
		page__para(p, "", 0, "%s%zu of %zu gaps %s longer than usual, by %s in all.",
			   o.n_odd > o.n ? "These are the worst. " : "", o.n_odd, o.n_gaps,
			   o.n_odd == 1 ? "is" : "are", units_ns(ms, o.excess_ns));
	}
	free(o.v);
	return err;
}

/* ---- behind the steps ---- */

struct behind {
	struct why_rows *w;
	const struct trace *t;
};

/* How long its token was held up on its way out, and most of it by what. */
static uint64_t held_up(const struct gap *g, int *ret_by)
{
	uint64_t ns = 0;

	*ret_by = MECH_UNEXPLAINED;
	for (int m = 0; m < N_MECHANISMS; m++) {
		if (mechanism_is_own((enum mechanism)m))
			continue;
		ns += g->behind_ns[m];
		if (g->behind_ns[m] > g->behind_ns[*ret_by])
			*ret_by = m;
	}
	return ns;
}

static int keep_held_up(void *ctx, const struct gap *g)
{
	const struct behind *k = ctx;
	struct why_row *rows = k->w->rows.v, *at;
	char ms[UNITS_LEN], token[24] = "its first token";
	int by;
	uint64_t ns = held_up(g, &by), until = g->t1_ns < k->t->t1_ns ? g->t1_ns : k->t->t1_ns;
	size_t least = 0;

	if (!g->seq || ns < WORTH_NS || until < g->t0_ns + ns || until - ns < k->t->t0_ns)
		return 0;
	if (k->w->rows.n == MAX_BEHIND) {
		for (size_t i = 1; i < k->w->rows.n; i++)
			if (rows[i].t1_ns - rows[i].t0_ns < rows[least].t1_ns - rows[least].t0_ns)
				least = i;
		if (rows[least].t1_ns - rows[least].t0_ns >= ns)
			return 0;
		memmove(&rows[least], &rows[least + 1], (--k->w->rows.n - least) * sizeof(*rows));
	}
	at = vec_push(&k->w->rows, MAX_BEHIND);
	if (!at)
		return -ENOMEM;
	*at = (struct why_row){ .t0_ns = until - ns, .t1_ns = until,
				.style = by == MECH_UNEXPLAINED ? STYLE_BAD : STYLE_OTHER };
	if (g->token)
		snprintf(token, sizeof(token), "token %u", g->token);
	snprintf(at->text, sizeof(at->text), "%s, %s late between its step and the %s: %s", token,
		 units_ns(ms, ns), g->side == GAP_CLIENT ? "client" : "write", mechanism_labels[by]);
	return 0;
}

int why_rows__behind(struct why_rows *w, const struct trace *t, struct blame *b)
{
	struct behind k = { w, t };

	struct gap first;
	int err = 0;

	memset(w, 0, sizeof(*w));
	if (blame__ttft(b, request_index(t), &first))
		err = keep_held_up(&k, &first);
	return err ? err : blame__gaps(b, request_index(t), keep_held_up, &k);
}

void why_first_token(const struct trace *t, struct blame *b, char *buf, size_t size)
{
	struct gap g;
	char ms[UNITS_LEN];
	uint64_t ns;
	int by;

	buf[0] = '\0';
	if (!blame__ttft(b, request_index(t), &g) || !g.seq)
		return;
	ns = held_up(&g, &by);
	if (ns >= WORTH_NS && 10 * ns >= g.t1_ns - g.t0_ns)
		snprintf(buf, size, "; its first token left %s late behind its step: %s", units_ns(ms, ns),
			 mechanism_labels[by]);
}

/* ---- at the client ---- */

static int keep_last(void *ctx, const struct gap *g)
{
	if (g->side == GAP_CLIENT)
		*(uint64_t *)ctx = g->t1_ns;
	return 0;
}

/* What kept its chunks between the server's socket and its client longest. */
static int longest_way(const struct blame_sum *s)
{
	int best = MECH_NAGLE;

	for (int m = MECH_NAGLE; m <= MECH_NETWORK; m++)
		if (s->by_mechanism[m].ns + s->by_mechanism[m].ttft_ns >
		    s->by_mechanism[best].ns + s->by_mechanism[best].ttft_ns)
			best = m;
	return best;
}

int why_client(const struct trace *t, struct blame *b, char *buf, size_t size)
{
	const struct blame_selection sel = { .request = request_index(t) + 1 };
	char total[UNITS_LEN], ms[UNITS_LEN], name[CULPRIT_TEXT];
	struct blame_who who = { .who.type = WHO_NOBODY };
	uint64_t last_ns = 0, ns;
	struct blame_sum *s;
	int m, err = blame__gaps(b, request_index(t), keep_last, &last_ns);

	buf[0] = '\0';
	if (!err)
		err = blame_sum__select(b, t->v, &sel, &s);
	if (err)
		return err;
	m = longest_way(s);
	ns = s->by_mechanism[m].ns + s->by_mechanism[m].ttft_ns;
	if (last_ns > t->t0_ns && ns >= WORTH_NS) {
		err = blame_sum__culprits(s, 1ull << m, IN_GAPS | IN_TTFTS, &who, 1) < 0 ? -ENOMEM : 0;
		who_text(t->v, &who, name, sizeof(name));
		snprintf(buf, size, "; at its client it took %s, %s of it %s%s%s%s",
			 units_ns(total, last_ns - t->t0_ns), units_ns(ms, ns), mechanism_labels[m],
			 *name ? " (" : "", name, *name ? ")" : "");
	}
	blame_sum__free(s);
	return err;
}

void why_ttft(struct page *p, const struct trace *t, struct blame *b)
{
	char text[1200], ms[UNITS_LEN];
	struct gap g;

	if (!blame__ttft(b, request_index(t), &g))
		return;
	gap_text(t->v, &g, text, sizeof(text));
	page__para(p, "  -", 4, "to its first token, %s: %s", units_ns(ms, g.t1_ns - g.t0_ns), text);
}

void why_open(struct page *p, const struct trace *t, struct blame *b)
{
	char text[1200], ms[UNITS_LEN];
	struct gap g;

	if (!blame__open(b, request_index(t), &g))
		return;
	gap_text(t->v, &g, text, sizeof(text));
	page__para(p, "  -", 4, "it had waited %s for its %s token when the recording ended: %s", units_ns(ms, g.t1_ns - g.t0_ns),
		   g.token ? "next" : "first", text);
}

/* How mechanisms took their time that are in its gaps: of all steps, not only its own. 0 or -ENOMEM */
int why_how(struct page *p, const struct trace *t, struct blame *b)
{
	const struct blame_selection sel = { .request = request_index(t) + 1 };
	struct blame_sum *s;
	char text[HOW_TEXT];
	struct hows h;
	int err = blame_sum__select(b, t->v, &sel, &s);

	if (err)
		return err;
	err = blame__how(b, s, &h);
	for (size_t i = 0; !err && i < h.n; i++)
		if (t->q && h.v[i].engine == t->q->engine)
			page__para(p, "  -", 4, "in all of the recording, %s", how_text(t->v, &h.v[i], text, sizeof(text)));
	blame_sum__free(s);
	return err;
}

/* ---- what the engine itself would say ---- */

/* Its clock begins when it has read the request and builds it: a wait before that is in none of its metrics. */
static void write_own_ttft(struct page *p, const struct trace *t)
{
	const uint64_t *at = t->r->at_ns;
	uint64_t first = at[P_FIRST_TOKEN_ENGINE], read = at[P_REQ_LAST_BYTE];
	char own[UNITS_LEN], wait[UNITS_LEN];

	if (t->r->joined_late || !at[P_REQ_FIRST_BYTE] || read < at[P_REQ_FIRST_BYTE] + WORTH_NS || first < read ||
	    10 * (read - at[P_REQ_FIRST_BYTE]) < first - read)
		return;
	page__para(p, "  -", 4, "the engine's own TTFT would read %s: it begins when the request is tokenized, %s after its "
		   "first byte had come", units_ns(own, first - read), units_ns(wait, read - at[P_REQ_FIRST_BYTE]));
}

void why_engine_says(struct page *p, const struct trace *t)
{
	uint64_t parked = t->sum_ns[PART_PARKED], again = t->sum_ns[PART_RECOMPUTE];
	char a[UNITS_LEN], b[UNITS_LEN], c[UNITS_LEN];

	if (t->r->engine >= t->v->n_engines || t->v->engines[t->r->engine].e.engine != TL_ENGINE_VLLM)
		return;
	write_own_ttft(p, t);
	if (parked && !again)
		page__para(p, "  -", 4, "the engine's own metrics book the %s parked as decode: its queue time has 0 of it",
			   units_ns(a, parked));
	else if (parked)
		page__para(p, "  -", 4, "the engine's own metrics book the %s parked and the %s of computing again as decode: its "
			   "queue time has 0 of the %s", units_ns(a, parked), units_ns(b, again), units_ns(c, parked));
}

/* ---- the send side ---- */

static void write_one_held(struct page *p, const struct tl_send_held *h)
{
	static const char *const why[] = {
		[TL_HELD_NAGLE] = "Nagle: they are small, TCP_NODELAY is off, and the peer had not "
				  "acknowledged what was sent before",
		[TL_HELD_CORK] = "TCP_CORK or MSG_MORE",
		[TL_HELD_WINDOW] = "the peer has no room, it does not read",
		[TL_HELD_CONGESTION] = "congestion",
		[TL_HELD_RETRANSMIT] = "lost on the way, and sent again",
	};
	char ms[UNITS_LEN], fd[32] = "";

	if (h->fd >= 0)
		snprintf(fd, sizeof(fd), "fd %d, ", h->fd);
	page__para(p, "  -", 4, "%s held by the kernel: %u write%s, %u bytes (%sport %u to %u): %s",
		   units_ns(ms, h->hdr.ts_ns - h->since_ns), h->n_writes, h->n_writes == 1 ? "" : "s",
		   h->bytes, fd, h->local_port, h->peer_port,
		   h->why < TL_HELD_OTHER && why[h->why] ? why[h->why] : "the reason was not seen");
}

struct span {
	uint64_t t0_ns, t1_ns;
};

static int by_begin(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return x->t0_ns < y->t0_ns ? -1 : x->t0_ns > y->t0_ns;
}

/* Time that is in any of these, once. */
static uint64_t covered_ns(struct span *v, size_t n)
{
	uint64_t ns = 0, until = 0;

	qsort(v, n, sizeof(*v), by_begin);
	for (size_t i = 0; i < n; i++) {
		uint64_t from = v[i].t0_ns > until ? v[i].t0_ns : until;

		if (v[i].t1_ns <= from)
			continue;
		ns += v[i].t1_ns - from;
		until = v[i].t1_ns;
	}
	return ns;
}

static int write_held(struct page *p, const struct trace *t, const struct evidence *e)
{
	struct span *all = malloc((e->held.n + 1) * sizeof(*all));
	char ms[UNITS_LEN];
	size_t n = 0;

	if (!all)
		return -ENOMEM;

	for (size_t i = 0; i < e->held.n; i++) {
		const struct tl_send_held *h = &e->held.v[i];

		if (h->req != t->r->req || h->hdr.ts_ns < h->since_ns)
			continue;
		if (n < MAX_HELD)
			write_one_held(p, h);
		all[n++] = (struct span){ h->since_ns, h->hdr.ts_ns };
	}
	if (n > MAX_HELD)
		page__para(p, "  -", 4, "%zu more such holds; in %s at least one of the %zu lasted", n - MAX_HELD,
			   units_ns(ms, covered_ns(all, n)), n);
	free(all);
	return 0;
}

static void write_blocked(struct page *p, const struct trace *t, const struct evidence *e)
{
	uint64_t engine_done = t->r->at_ns[P_LAST_TOKEN_ENGINE];

	for (size_t i = 0; i < e->blocked.n; i++) {
		const struct tl_send_blocked *x = &e->blocked.v[i];
		char ms[UNITS_LEN], app[UNITS_LEN], kernel[UNITS_LEN], late[80] = "";

		if (x->req != t->r->req)
			continue;
		if (x->drained_ns && engine_done && x->drained_ns > engine_done)
			snprintf(late, sizeof(late), "; it had all %s after the engine's last token",
				 units_ns(ms, x->drained_ns - engine_done));
		page__para(p, "  -", 4,
			   "the client reads slower than the engine writes, from %.0f ms on: up to %s waited "
			   "in the server and %s in the kernel%s",
			   (double)(int64_t)(x->since_ns - t->t0_ns) / 1e6,
			   units_bytes(app, x->app_queue_bytes), units_bytes(kernel, x->kernel_bytes), late);
	}
}

int why_send(struct page *p, const struct trace *t)
{
	int err;

	if (!t->v->evidence)
		return 0;
	err = write_held(p, t, t->v->evidence);
	if (!err)
		write_blocked(p, t, t->v->evidence);
	return err;
}
