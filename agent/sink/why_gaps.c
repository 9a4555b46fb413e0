/* SPDX-License-Identifier: Apache-2.0 */
/* Beside the waterfall: gaps that were longer than usual, what the TTFT was made of, what was held. */
#include "base/plural.h"
#include "base/units.h"
#include "model/evidence.h"
#include "model/leads.h"
#include "sink/blame_words.h"
#include "sink/how_words.h"
#include "sink/why_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BEHIND = 3, WORTH_NS = 5000000 };

static uint32_t request_index(const struct trace *t)
{
	return (uint32_t)(t->r - t->v->requests);
}

static uint64_t excess_of(const struct gap *g)
{
	uint64_t ns = g->t1_ns - g->t0_ns;

	return ns > g->usual_ns ? ns - g->usual_ns : 0;
}

/* One that is shown already, of another answer: both had a token before and behind the same steps. */
static bool is_shown(struct odd_gaps *o, const struct gap *g)
{
	for (size_t i = 0; i < o->n; i++)
		if (o->v[i].g.t0_ns == g->t0_ns && o->v[i].g.t1_ns == g->t1_ns && o->v[i].g.seq != g->seq) {
			o->v[i].n_alike++;
			return true;
		}
	return false;
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
	if (is_shown(o, g))
		return 0;
	if (o->n < MAX_ODD_GAPS) {
		o->v[o->n++] = (struct odd_gap){ .g = *g };
		return 0;
	}
	for (size_t i = 1; i < o->n; i++)
		if (excess_of(&o->v[i].g) < excess_of(&o->v[least].g))
			least = i;
	if (excess_of(g) <= excess_of(&o->v[least].g))
		return 0;
	memmove(&o->v[least], &o->v[least + 1], (o->n - 1 - least) * sizeof(*o->v));
	o->v[o->n - 1] = (struct odd_gap){ .g = *g };
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct gap *x = &((const struct odd_gap *)a)->g, *y = &((const struct odd_gap *)b)->g;

	if (x->t0_ns != y->t0_ns)
		return x->t0_ns < y->t0_ns ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

int why_find_gaps(struct why *w)
{
	int err = blame__gaps(w->b, request_index(&w->t), keep_if_odd, &w->gaps);

	if (!err && w->t.r->n_seqs > 1 && w->gaps.n)	/* they came answer after answer */
		qsort(w->gaps.v, w->gaps.n, sizeof(*w->gaps.v), by_time);
	return err;
}

size_t why_whose_gap(const struct trace *t, const struct odd_gap *odd, char *buf, size_t size)
{
	uint32_t n = odd->n_alike + 1;

	buf[0] = '\0';
	if (!odd->g.seq || t->r->n_seqs < 2)
		return 0;
	if (n == t->r->n_seqs && n == 2)
		return (size_t)snprintf(buf, size, "both answers: ");
	if (n == t->r->n_seqs)
		return (size_t)snprintf(buf, size, "all %u answers: ", n);
	if (n > 1)
		return (size_t)snprintf(buf, size, "answer %u and %u more: ", answer_number(t->r, odd->g.seq - 1), n - 1);
	return (size_t)snprintf(buf, size, "answer %u: ", answer_number(t->r, odd->g.seq - 1));
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
				.style = by == MECH_UNEXPLAINED ? STYLE_BAD : STYLE_OTHER,
				.part = (uint8_t)by, .token = g->token };
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

void why_find_late(struct why *w)
{
	struct gap g;
	uint64_t ns;
	int by;

	if (!blame__ttft(w->b, request_index(&w->t), &g) || !g.seq)
		return;
	ns = held_up(&g, &by);
	if (ns >= WORTH_NS && 10 * ns >= g.t1_ns - g.t0_ns)
		w->late = (struct why_late){ ns, (uint8_t)by };
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

int why_find_client(struct why *w)
{
	const struct trace *t = &w->t;
	const struct blame_selection sel = { .request = request_index(t) + 1 };
	struct blame_who who = { .who.type = WHO_NOBODY };
	uint64_t last_ns = 0, ns;
	struct blame_sum *s;
	int m, err = blame__gaps(w->b, request_index(t), keep_last, &last_ns);

	if (!err)
		err = blame_sum__select(w->b, t->v, &sel, &s);
	if (err)
		return err;
	m = longest_way(s);
	ns = s->by_mechanism[m].ns + s->by_mechanism[m].ttft_ns;
	if (last_ns > t->t0_ns && ns >= WORTH_NS) {
		err = blame_sum__culprits(s, 1ull << m, IN_GAPS | IN_TTFTS, &who, 1) < 0 ? -ENOMEM : 0;
		w->client = (struct why_client){ .total_ns = last_ns - t->t0_ns, .ns = ns, .mechanism = (uint8_t)m };
		who_text(t->v, &who, w->client.who, sizeof(w->client.who));
	}
	blame_sum__free(s);
	return err;
}

/* ---- its first token, and the one that did not come ---- */

int why_find_ttft(struct why *w)
{
	const struct model_view *v = w->t.v;
	char text[1200], ms[UNITS_LEN];
	int err = 0;

	w->has_ttft = blame__ttft(w->b, request_index(&w->t), &w->ttft);
	w->has_open = blame__open(w->b, request_index(&w->t), &w->open);
	if (w->has_ttft)
		err = why_note(w, "to its first token, %s: %s", units_ns(ms, w->ttft.t1_ns - w->ttft.t0_ns),
			       gap_text(v, &w->ttft, text, sizeof(text)));
	if (!err && w->has_open)
		err = why_note(w, "it had waited %s for its %s token when the recording ended: %s",
			       units_ns(ms, w->open.t1_ns - w->open.t0_ns), w->open.token ? "next" : "first",
			       gap_text(v, &w->open, text, sizeof(text)));
	return err;
}

/* How mechanisms took their time that are in its gaps: of all steps, not only its own. */
int why_find_how(struct why *w)
{
	const struct trace *t = &w->t;
	const struct blame_selection sel = { .request = request_index(t) + 1 };
	struct hows *h = &w->hows;
	struct blame_sum *s;
	char text[HOW_TEXT];
	size_t n = 0;
	int err = blame_sum__select(w->b, t->v, &sel, &s);

	if (err)
		return err;
	err = blame__how(w->b, s, h);
	for (size_t i = 0; !err && i < h->n; i++)
		if (t->q && h->v[i].engine == t->q->engine) {
			h->v[n++] = h->v[i];
			err = why_note(w, "in all of the recording, %s", how_text(t->v, &h->v[n - 1], text, sizeof(text)));
		}
	h->n = n;
	blame_sum__free(s);
	return err;
}

/* ---- what the engine itself would say ---- */

/* Its clock begins when it has read the request and builds it: a wait before that is in none of its metrics. */
static int find_own_ttft(struct why *w)
{
	const struct trace *t = &w->t;
	const uint64_t *at = t->r->at_ns;
	uint64_t first = at[P_FIRST_TOKEN_ENGINE], read = at[P_REQ_LAST_BYTE];
	char own[UNITS_LEN], wait[UNITS_LEN];

	if (t->r->joined_late || !at[P_REQ_FIRST_BYTE] || read < at[P_REQ_FIRST_BYTE] + WORTH_NS || first < read ||
	    10 * (read - at[P_REQ_FIRST_BYTE]) < first - read)
		return 0;
	w->engine.ttft_ns = first - read;
	w->engine.wait_ns = read - at[P_REQ_FIRST_BYTE];
	return why_note(w, "the engine's own TTFT would read %s: it begins when the request is tokenized, %s after its "
			"first byte had come", units_ns(own, w->engine.ttft_ns), units_ns(wait, w->engine.wait_ns));
}

int why_find_engine(struct why *w)
{
	const struct trace *t = &w->t;
	uint64_t parked = t->sum_ns[PART_PARKED], again = t->sum_ns[PART_RECOMPUTE];
	char a[UNITS_LEN], b[UNITS_LEN], c[UNITS_LEN];
	int err;

	if (t->r->engine >= t->v->n_engines || t->v->engines[t->r->engine].e.engine != TL_ENGINE_VLLM)
		return 0;
	err = find_own_ttft(w);
	if (err || !parked)
		return err;
	w->engine.parked_ns = parked;
	w->engine.again_ns = again;
	if (!again)
		return why_note(w, "the engine's own metrics book the %s parked as decode: its queue time has 0 of it",
				units_ns(a, parked));
	return why_note(w, "the engine's own metrics book the %s parked and the %s of computing again as decode: its "
			"queue time has 0 of the %s", units_ns(a, parked), units_ns(b, again), units_ns(c, parked));
}

/* ---- the send side ---- */

static int note_held(struct why *w, const struct tl_send_held *h)
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
	return why_note(w, "%s held by the kernel: %u write%s, %u byte%s (%sport %u to %u): %s",
			units_ns(ms, h->hdr.ts_ns - h->since_ns), h->n_writes, plural_s(h->n_writes),
			h->bytes, plural_s(h->bytes), fd, h->local_port, h->peer_port,
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

static int find_held(struct why *w, const struct evidence *e)
{
	struct span *all = malloc((e->held.n + 1) * sizeof(*all));
	struct why_send *s = &w->send;
	char ms[UNITS_LEN];
	int err = all ? 0 : -ENOMEM;

	for (size_t i = 0; i < e->held.n && !err; i++) {
		const struct tl_send_held *h = &e->held.v[i];

		if (h->req != w->t.r->req || h->hdr.ts_ns < h->since_ns)
			continue;
		if (s->n_held < MAX_HELD) {
			s->held[s->n_held] = h;
			err = note_held(w, h);
		}
		all[s->n_held++] = (struct span){ h->since_ns, h->hdr.ts_ns };
	}
	if (!err)
		s->held_ns = covered_ns(all, s->n_held);
	if (!err && s->n_held > MAX_HELD)
		err = why_note(w, "%zu more such hold%s; in %s at least one of the %zu lasted", s->n_held - MAX_HELD,
			       plural_s(s->n_held - MAX_HELD), units_ns(ms, s->held_ns), s->n_held);
	free(all);
	return err;
}

static int note_blocked(struct why *w, const struct tl_send_blocked *x)
{
	uint64_t engine_done = w->t.r->at_ns[P_LAST_TOKEN_ENGINE];
	char ms[UNITS_LEN], app[UNITS_LEN], kernel[UNITS_LEN], late[80] = "";

	if (x->drained_ns && engine_done && x->drained_ns > engine_done)
		snprintf(late, sizeof(late), "; it had all %s after the engine's last token",
			 units_ns(ms, x->drained_ns - engine_done));
	return why_note(w, "the client reads slower than the engine writes, from %.0f ms on: up to %s waited "
			"in the server and %s in the kernel%s", (double)(int64_t)(x->since_ns - w->t.t0_ns) / 1e6,
			units_bytes(app, x->app_queue_bytes), units_bytes(kernel, x->kernel_bytes), late);
}

static int find_blocked(struct why *w, const struct evidence *e)
{
	int err = 0;

	for (size_t i = 0; i < e->blocked.n && !err; i++) {
		const struct tl_send_blocked **at;

		if (e->blocked.v[i].req != w->t.r->req)
			continue;
		at = vec_push(&w->send.blocked, SIZE_MAX);
		if (!at)
			return -ENOMEM;
		*at = &e->blocked.v[i];
		err = note_blocked(w, *at);
	}
	return err;
}

int why_find_send(struct why *w)
{
	const struct evidence *e = w->t.v->evidence;
	int err = e ? find_held(w, e) : 0;

	return e && !err ? find_blocked(w, e) : err;
}
