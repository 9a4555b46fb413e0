/* SPDX-License-Identifier: Apache-2.0 */
/* The waterfall of one request as JSON (doc/report-json.md): the facts and sentences of its text. */
#include "base/util.h"
#include "sink/blame_words.h"
#include "sink/how_words.h"
#include "sink/json_priv.h"
#include "sink/why.h"
#include "sink/why_priv.h"

#include <errno.h>

static const char *const part_ids[N_PARTS] = {
	[PART_READ] = "read",		[PART_BEFORE_SUBMIT] = "frontend",	[PART_WAIT_SLOT] = "wait_slot",
	[PART_WAIT_STEP] = "wait_step", [PART_WAIT_QUEUE] = "wait_queue",	[PART_PREFILL] = "prefill",
	[PART_PARKED] = "parked",	[PART_RECOMPUTE] = "recompute",		[PART_DECODE] = "decode",
	[PART_BETWEEN] = "between",	[PART_OTHER_STEPS] = "other_steps",	[PART_SERVER] = "server",
	[PART_STREAM] = "stream",	[PART_DELIVERY] = "delivery",		[PART_END] = "end",
	[PART_LATE_WAIT] = "late_wait",	[PART_LATE_PREFILL] = "late_prefill",
	[PART_OPEN] = "open",		[PART_UNEXPLAINED] = "unexplained",
};

/* Since it began, below 0 never. */
static void write_at(struct jsonw *w, const char *key, const struct trace *t, uint64_t ns)
{
	json_ms(w, key, ns > t->t0_ns ? (int64_t)(ns - t->t0_ns) : 0);
}

/* ---- the answer ---- */

static void write_answer(struct jsonw *w, const struct why *y)
{
	const struct why_client *c = &y->client;

	json_str(w, "answer", y->answer);
	jsonw__key(w, "whole");
	jsonw__bool(w, y->whole);
	json_ms(w, "total_ms", (int64_t)(y->t.t1_ns - y->t.t0_ns));
	json_ms(w, "unexplained_ms", (int64_t)y->unexplained_ns);
	jsonw__key(w, "at_client");
	if (c->total_ns) {
		jsonw__object(w);
		json_ms(w, "total_ms", (int64_t)c->total_ns);
		json_ms(w, "ms", (int64_t)c->ns);
		json_str(w, "mechanism", mechanism_names[c->mechanism]);
		json_str(w, "culprit", c->who);
		jsonw__end_object(w);
	} else {
		jsonw__null(w);
	}
	jsonw__key(w, "first_token_late");
	if (y->late.ns) {
		jsonw__object(w);
		json_ms(w, "ms", (int64_t)y->late.ns);
		json_str(w, "mechanism", mechanism_names[y->late.mechanism]);
		jsonw__end_object(w);
	} else {
		jsonw__null(w);
	}
}

/* ---- rows and parts ---- */

static void write_rows(struct jsonw *w, const struct why *y)
{
	jsonw__key(w, "rows");
	jsonw__array(w);
	for (size_t i = 0; i < y->rows.rows.n; i++) {
		const struct why_row *r = &y->rows.rows.v[i];

		jsonw__object(w);
		write_at(w, "at_ms", &y->t, r->t0_ns);
		json_ms(w, "ms", (int64_t)(r->t1_ns - r->t0_ns));
		json_str(w, "part", part_ids[r->part]);
		json_str(w, "text", r->text);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

static void write_behind(struct jsonw *w, const struct why *y)
{
	jsonw__key(w, "behind");
	jsonw__array(w);
	for (size_t i = 0; i < y->behind.rows.n; i++) {
		const struct why_row *r = &y->behind.rows.v[i];

		jsonw__object(w);
		write_at(w, "at_ms", &y->t, r->t0_ns);
		json_ms(w, "ms", (int64_t)(r->t1_ns - r->t0_ns));
		json_known_count(w, "token", r->token);
		json_str(w, "mechanism", mechanism_names[r->part]);
		json_str(w, "text", r->text);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

static void write_parts(struct jsonw *w, const struct trace *t)
{
	double total = (double)(t->t1_ns - t->t0_ns);

	jsonw__key(w, "parts");
	jsonw__array(w);
	for (int part = 0; part < N_PARTS; part++) {
		if (!t->sum_ns[part])
			continue;
		jsonw__object(w);
		json_str(w, "part", part_ids[part]);
		json_ms(w, "ms", (int64_t)t->sum_ns[part]);
		json_double(w, "pct", total > 0 ? 100.0 * (double)t->sum_ns[part] / total : 0, total > 0);
		jsonw__key(w, "unexplained");
		jsonw__bool(w, why_part_is_unknown((enum part)part));
		json_str(w, "text", part_names[part]);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

/* ---- gaps ---- */

/* odd: NULL if it is none of several */
static void write_gap(struct jsonw *w, const struct trace *t, const struct gap *g, const struct odd_gap *odd)
{
	char text[1200];
	size_t n = odd ? why_whose_gap(t, odd, text, sizeof(text)) : 0;

	jsonw__object(w);
	write_at(w, "at_ms", t, g->t0_ns);
	json_ms(w, "ms", (int64_t)(g->t1_ns - g->t0_ns));
	json_ms(w, "usual_ms", g->usual_ns ? (int64_t)g->usual_ns : -1);
	json_known_count(w, "token", g->token);
	jsonw__key(w, "parts");
	json_gap_parts(w, t->v, g);
	gap_text(t->v, g, text + n, sizeof(text) - n);
	json_str(w, "text", text);
	jsonw__end_object(w);
}

static void write_maybe_gap(struct jsonw *w, const char *key, const struct trace *t, const struct gap *g, bool known)
{
	jsonw__key(w, key);
	if (known)
		write_gap(w, t, g, NULL);
	else
		jsonw__null(w);
}

static void write_gaps(struct jsonw *w, const struct why *y)
{
	const struct odd_gaps *o = &y->gaps;

	jsonw__key(w, "gaps");
	jsonw__object(w);
	json_known_count(w, "n", o->n_gaps);
	json_known_count(w, "above_usual", o->n_odd);
	json_ms(w, "excess_ms", (int64_t)o->excess_ns);
	jsonw__key(w, "worst");
	jsonw__array(w);
	for (size_t i = 0; i < o->n; i++)
		write_gap(w, &y->t, &o->v[i].g, &o->v[i]);
	jsonw__end_array(w);
	jsonw__end_object(w);
}

/* ---- the rest ---- */

static void write_delivery(struct jsonw *w, const struct why_delivery *d)
{
	jsonw__key(w, "delivery");
	if (!d->n) {
		jsonw__null(w);
		return;
	}
	jsonw__object(w);
	json_ms(w, "p50_ms", (int64_t)d->p50_ns);
	json_ms(w, "max_ms", (int64_t)d->max_ns);
	json_known_count(w, "outputs", d->n);
	jsonw__key(w, "at_least");
	jsonw__bool(w, !d->exact);
	jsonw__end_object(w);
}

static void write_engine(struct jsonw *w, const struct why_engine *e)
{
	jsonw__key(w, "engine_would_say");
	jsonw__object(w);
	json_ms(w, "ttft_ms", e->ttft_ns ? (int64_t)e->ttft_ns : -1);
	json_ms(w, "wait_not_in_it_ms", e->wait_ns ? (int64_t)e->wait_ns : -1);
	json_ms(w, "parked_as_decode_ms", e->parked_ns ? (int64_t)e->parked_ns : -1);
	json_ms(w, "recompute_as_decode_ms", e->again_ns ? (int64_t)e->again_ns : -1);
	jsonw__end_object(w);
}

static const char *held_name(uint16_t why)
{
	static const char *const names[] = {
		[TL_HELD_NAGLE] = "nagle", [TL_HELD_CORK] = "cork", [TL_HELD_WINDOW] = "window",
		[TL_HELD_CONGESTION] = "congestion", [TL_HELD_RETRANSMIT] = "retransmit",
	};

	return why < ARRAY_SIZE(names) ? names[why] : NULL;
}

static void write_held(struct jsonw *w, const struct trace *t, const struct why_send *s)
{
	jsonw__key(w, "held");
	jsonw__object(w);
	json_known_count(w, "n", s->n_held);
	json_ms(w, "ms", (int64_t)s->held_ns);
	jsonw__key(w, "first");
	jsonw__array(w);
	for (size_t i = 0; i < s->n_held && i < MAX_HELD; i++) {
		const struct tl_send_held *h = s->held[i];

		jsonw__object(w);
		write_at(w, "at_ms", t, h->since_ns);
		json_ms(w, "ms", (int64_t)(h->hdr.ts_ns - h->since_ns));
		json_str(w, "why", held_name(h->why));
		json_known_count(w, "writes", h->n_writes);
		json_known_count(w, "bytes", h->bytes);
		json_maybe_count(w, "fd", (uint64_t)h->fd, h->fd >= 0);
		json_known_count(w, "local_port", h->local_port);
		json_known_count(w, "peer_port", h->peer_port);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
	jsonw__end_object(w);
}

static void write_blocked(struct jsonw *w, const struct trace *t, const struct why_send *s)
{
	uint64_t done = t->r->at_ns[P_LAST_TOKEN_ENGINE];

	jsonw__key(w, "slow_reader");
	jsonw__array(w);
	for (size_t i = 0; i < s->blocked.n; i++) {
		const struct tl_send_blocked *x = s->blocked.v[i];

		jsonw__object(w);
		write_at(w, "at_ms", t, x->since_ns);
		json_known_count(w, "server_bytes", x->app_queue_bytes);
		json_known_count(w, "kernel_bytes", x->kernel_bytes);
		json_ms(w, "after_engine_ms", x->drained_ns && done && x->drained_ns > done ? (int64_t)(x->drained_ns - done) : -1);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

static void write_join(struct jsonw *w, const struct trace *t)
{
	json_join(w, t->q);
	json_maybe_count(w, "seq", t->q ? t->q->id : 0, t->q);
	json_maybe_count(w, "slot", t->q ? t->q->slot : 0, t->q);
	json_known_count(w, "n_seqs", t->r->n_seqs);
}

static void write_rest(struct jsonw *w, const struct why *y)
{
	const struct model_view *v = y->t.v;

	json_ms(w, "ttft_ms", y->metrics.ttft_ns);
	json_ms(w, "first_delivery_ms", y->metrics.delivery_ns);
	write_maybe_gap(w, "ttft", &y->t, &y->ttft, y->has_ttft);
	write_maybe_gap(w, "open_gap", &y->t, &y->open, y->has_open);
	write_engine(w, &y->engine);
	jsonw__key(w, "how");
	jsonw__array(w);
	for (size_t i = 0; i < y->hows.n; i++)
		json_how(w, v, &y->hows.v[i]);
	jsonw__end_array(w);
	write_delivery(w, &y->delivery);
	write_held(w, &y->t, &y->send);
	write_blocked(w, &y->t, &y->send);
	json_gpu_request(w, v, (uint32_t)(y->t.r - v->requests));
	write_join(w, &y->t);
	json_known_count(w, "lost_events", y->n_lost);
	jsonw__key(w, "notes");
	jsonw__array(w);
	for (size_t i = 0; i < y->notes.n; i++)
		jsonw__str(w, y->notes.v[i]);
	jsonw__end_array(w);
}

int why_request_json(const struct model_view *v, size_t request, const char *trouble, FILE *out)
{
	struct jsonw w;
	struct why *y;
	int err = why__new(v, request, &y);

	if (err)
		return err;
	json_begin(&w, v, trouble, out);
	json_id(&w, y->t.r);
	json_began(&w, v, y->t.t0_ns);
	json_identity(&w, v, y->t.r);
	json_state(&w, y->t.r);
	write_answer(&w, y);
	write_rows(&w, y);
	write_behind(&w, y);
	write_parts(&w, &y->t);
	write_gaps(&w, y);
	write_rest(&w, y);
	why__free(y);
	return json_end(&w, out);
}
