/* SPDX-License-Identifier: Apache-2.0 */
/* The first sentences of a report: how it went, and what the waiting for first tokens was made of. */
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "model/gpu.h"
#include "sink/blame_words.h"
#include "sink/notes.h"
#include "sink/text_priv.h"
#include "sink/who.h"

#include <errno.h>
#include <string.h>

/* Cutting requests into parts takes a while: of more than MAX_TRACED, every n-th is. */
enum { MAX_TRACED = 10000, MAX_NAMED_PARTS = 3, MIN_SHARE_PCT = 5, FULL_SHARE_PCT = 20 };

static const char *states_text(const struct summary *s, char *buf, size_t size)
{
	const struct {
		size_t n;
		const char *what;
	} others[] = {
		{ s->n_state[REQ_ABORTED], "aborted by the client" },
		{ s->n_state[REQ_ERROR], plural(s->n_state[REQ_ERROR], "error", "errors") },
		{ s->n_state[REQ_TRUNCATED], "truncated" },
		{ s->n_state[REQ_OPEN], "under way" },
	};
	int at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (others[i].n)
			at += snprintf(buf + at, size - (size_t)at, "%s%zu %s", at ? ", " : " (",
				       others[i].n, others[i].what);
	if (at)
		snprintf(buf + at, size - (size_t)at, ")");
	return buf;
}

/* "; TTFT p50 41.0 ms, p99 380 ms"; a p99 of few values is their maximum, and is called so. */
static const char *dist_text(const char *name, const struct dist *d, char *buf, size_t size)
{
	char p50[UNITS_LEN], most[UNITS_LEN];

	buf[0] = '\0';
	if (d->n >= MIN_FOR_P99)
		snprintf(buf, size, "; %s p50 %s, p99 %s", name, units_ns(p50, d->p50),
			 units_ns(most, d->p99));
	else if (d->n)
		snprintf(buf, size, "; %s p50 %s, max %s", name, units_ns(p50, d->p50),
			 units_ns(most, d->max));
	return buf;
}

/* ---- the first tokens ---- */

struct waits {
	uint64_t part_ns[N_PARTS], total_ns;
	size_t n;	/* requests in it: all, or a sample if there are very many */
	char worst[600];
};

/* "; most of the worst TTFT (r17, 380 ms): 291 ms waiting for a slot ..." */
static void worst_text(const struct trace *t, struct blame *b, int64_t ttft, char *buf, size_t size)
{
	char total[UNITS_LEN], share[UNITS_LEN], what[500];
	int part = largest_part(t->ttft_ns, 0);
	bool held_up;

	units_ns(total, (uint64_t)ttft);
	units_ns(share, t->ttft_ns[part]);
	if (!t->q) {
		snprintf(buf, size, "; the worst TTFT (r%u, %s) is not joined to engine steps",
			 t->r->req, total);
		return;
	}
	held_up = text_held_up(t, b, (enum part)part, what, sizeof(what));
	if (held_up)
		*share = '\0';
	else if (part == PART_DELIVERY)
		snprintf(what, sizeof(what), "delivery of the first token");
	else if (part == PART_PREFILL && !t->beside.n)
		snprintf(what, sizeof(what), "its own prefill");
	else
		who__text(t, (enum part)part, what, sizeof(what));
	snprintf(buf, size, "; %s of the worst TTFT (r%u, %s): %s%s%s",
		 !held_up && 2 * t->ttft_ns[part] > (uint64_t)ttft ? "most" : "the largest part", t->r->req,
		 total, share, held_up ? "" : " ", what);
}

static int64_t ttft_of(const struct model_view *v, size_t i)
{
	struct req_metrics m;

	request_metrics(v, &v->requests[i], &m);
	return request_counts(&v->requests[i]) ? m.ttft_ns : -1;
}

/* What TTFTs are made of, and the worst of them. */
static int add_up_waits(const struct model_view *v, struct blame *b, struct waits *w)
{
	size_t every = v->n_requests / MAX_TRACED + 1, worst = 0;
	int64_t most = -1;

	memset(w, 0, sizeof(*w));
	for (size_t i = 0; i < v->n_requests; i++)
		if (ttft_of(v, i) > most) {
			most = ttft_of(v, i);
			worst = i;
		}
	for (size_t i = 0; i < v->n_requests; i++) {
		struct trace t;
		int err;

		if (ttft_of(v, i) < 0 || (i % every && i != worst))
			continue;
		err = trace__init(&t, v, i);
		if (err)
			return err;
		if (i == worst)
			worst_text(&t, b, most, w->worst, sizeof(w->worst));
		for (int part = 0; t.q && part < N_PARTS; part++) {
			w->part_ns[part] += t.ttft_ns[part];
			w->total_ns += t.ttft_ns[part];
		}
		w->n += t.q != NULL;
		trace__free(&t);
	}
	return 0;
}

static unsigned int share_pct(const struct waits *w, uint64_t ns)
{
	return (unsigned int)(100.0 * (double)ns / (double)w->total_ns + 0.5);
}

static const char *part_text(int part)
{
	return part == PART_DELIVERY  ? "delivery of the first token"
	       : part == PART_PREFILL ? "prefill"
				      : part_names[part];
}

/* Was the largest batch all that there is room for? Where it is inferred who was in a step, or the engine has room for
 * more, it is only the most that was asked for. */
static bool is_full(const struct model_view *v, const struct summary *s)
{
	if (v->gpu && v->gpu->n_inferred_steps)
		return false;
	for (size_t i = 0; i < v->n_engines; i++)
		if (v->engines[i].e.max_seqs > s->batch.max)
			return false;
	return s->busy_from_steps && s->batch.max > 1 && s->batch.mean >= 0.9 * s->batch.max;
}

/* "Of all waiting for first tokens (12.3 s of 40 requests): 71 % waiting for a slot, 20 % ..." */
static void write_shares(struct page *p, const struct model_view *v, const struct summary *s,
			 const struct waits *w, const struct blame_sum *sum)
{
	uint64_t full_ns = w->part_ns[PART_WAIT_SLOT] + w->part_ns[PART_WAIT_QUEUE];
	char text[400], total[UNITS_LEN], full[80] = "", open[OPEN_TEXT];
	uint32_t named = 0;
	int at = 0;

	if (w->n < 2 || !w->total_ns)
		return;
	for (int i = 0; i < MAX_NAMED_PARTS; i++) {
		int part = largest_part(w->part_ns, named);

		if (share_pct(w, w->part_ns[part]) < MIN_SHARE_PCT)
			break;
		named |= 1u << part;
		at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%u %% %s", i ? ", " : "",
			       share_pct(w, w->part_ns[part]), part_text(part));
	}
	if (is_full(v, s) && share_pct(w, full_ns) >= FULL_SHARE_PCT)
		snprintf(full, sizeof(full), "; the batch is nearly always full at %u", s->batch.max);
	page__para(p, "", 0, "Of all waiting for first tokens (%s, %zu request%s%s): %s%s.",
		   units_ns(total, w->total_ns), w->n, plural_s(w->n),
		   open_ttfts_text(sum, "; not in it ", open), text, full);
}

static void write_urgent(void *ctx, const char *sentence)
{
	page__style(ctx, STYLE_BAD);
	page__para(ctx, "", 0, "%s.", sentence);
	page__style(ctx, STYLE_PLAIN);
}

void text_urgent(struct page *p, const struct model_view *v)
{
	notes_urgent(v, write_urgent, p);
}

enum { WORSE_NS = 5000000 };	/* and half as much again: then the client's numbers are worth a sentence */

static bool is_worse(const struct dist *client, const struct dist *wire)
{
	return (client->p50 > wire->p50 + WORSE_NS && 2 * client->p50 > 3 * wire->p50) ||
	       (client->max > wire->max + WORSE_NS && 2 * client->max > 3 * wire->max);
}

/* "TTFT p50 60.1 ms, p99 491 ms" */
static void append_dist(char *buf, size_t size, const char *name, const struct dist *d)
{
	char text[80];
	size_t at = strlen(buf);

	dist_text(name, d, text, sizeof(text));
	snprintf(buf + at, size - at, "%s", at ? text : text + 2);
}

/* The mechanism behind the server's socket that took most. */
static int longest_way(const struct blame_sum *s)
{
	int best = MECH_NAGLE;

	for (int m = MECH_NAGLE; m <= MECH_NETWORK; m++)
		if (s->by_mechanism[m].ns + s->by_mechanism[m].ttft_ns >
		    s->by_mechanism[best].ns + s->by_mechanism[best].ttft_ns)
			best = m;
	return best;
}

/* Clients may wait far longer than the server's socket shows: behind a proxy that buffers, or if they read slowly. */
static int write_at_client(struct page *p, const struct model_view *v, const struct summary *sum,
			   const struct blame_sum *s)
{
	bool ttft = is_worse(&s->what_if[0].ttft, &sum->all.ttft);
	bool tpot = sum->all.tpot.n && s->what_if[0].tpot.p50 * 2 > sum->all.tpot.p50 * 3;
	char text[200] = "", name[CULPRIT_TEXT];
	struct blame_who who = { .who.type = WHO_NOBODY };
	int m = longest_way(s);

	if (!s->n_at_client || !sum->all.ttft.n || (!ttft && !tpot))
		return 0;
	if (blame_sum__culprits(s, 1ull << m, IN_GAPS | IN_TTFTS, &who, 1) < 0)
		return -ENOMEM;
	append_dist(text, sizeof(text), "TTFT", &s->what_if[0].ttft);
	if (sum->all.tpot.n)
		append_dist(text, sizeof(text), "TPOT", &s->what_if[0].tpot);
	who_text(v, &who, name, sizeof(name));
	page__style(p, STYLE_BAD);
	page__para(p, "", 0, "That is at the server's socket. Clients had more to wait: %s, as far as is known of %u "
		   "request%s; %s%s%s%s.", text, s->n_at_client, plural_s(s->n_at_client), mechanism_labels[m],
		   *name ? " (" : "", name, *name ? ")" : "");
	page__style(p, STYLE_PLAIN);
	return 0;
}

/* Who slowed whom, if it is worth opening with. */
static int write_blame(struct page *p, const struct model_view *v, struct blame *b, struct blame_sum **ret)
{
	struct blame_sum *s = NULL;
	char text[1600];
	int err = blame_sum__new(b, v, &s);

	if (!err)
		err = blame_opening(v, s, text, sizeof(text));
	if (!err && *text) {
		page__style(p, STYLE_BOLD);
		page__para(p, "", 0, "%s", text);
		page__style(p, STYLE_PLAIN);
	}
	*ret = s;
	return err;
}

int text_answer(struct page *p, const struct model_view *v, const struct summary *s, struct blame *b)
{
	char states[120], ttft[80], e2e[80] = "", tpot[80] = "", ms[UNITS_LEN];
	struct blame_sum *sum = NULL;
	struct waits w;
	int err = add_up_waits(v, b, &w);

	text_urgent(p, v);
	if (!err)
		err = write_blame(p, v, b, &sum);
	if (err || !v->n_requests)
		blame_sum__free(sum);
	if (err)
		return err;
	page__style(p, STYLE_BOLD);
	if (!v->n_requests) {
		units_ns(ms, v->t1_ns - v->t0_ns);
		if (v->n_conns_tls)
			page__para(p, "", 0, "No request to an LLM API was read in %s: clients speak TLS, which is not.", ms);
		else if (v->n_steps)
			page__para(p, "", 0, "No request to an LLM API was seen in %s, though engine steps were: who asks does "
					     "so another way than by HTTP/1 that is not encrypted.", ms);
		else
			page__para(p, "", 0, "No request to an LLM API was seen in %s; is there traffic, and does "
					     "it go to the ports below?", ms);
		page__style(p, STYLE_PLAIN);
		return 0;
	}
	if (s->all.tpot.n)
		snprintf(tpot, sizeof(tpot), "; TPOT p50 %s", units_ns(ms, s->all.tpot.p50));
	if (s->n_non_streaming)
		dist_text("e2e", &s->all.e2e, e2e, sizeof(e2e));
	page__para(p, "", 0, "%zu of %zu request%s complete%s%s%s%s%s.", s->n_state[REQ_COMPLETE],
		   v->n_requests, plural_s(v->n_requests), states_text(s, states, sizeof(states)),
		   dist_text("TTFT", &s->all.ttft, ttft, sizeof(ttft)), tpot, e2e, w.worst);
	page__style(p, STYLE_PLAIN);
	err = write_at_client(p, v, s, sum);
	write_shares(p, v, s, &w, sum);
	blame_sum__free(sum);
	return err;
}
