/* SPDX-License-Identifier: Apache-2.0 */
/* Blame in the report's JSON: parts of gaps and TTFTs, sums, pairs, what if. */
#include "sink/blame_words.h"
#include "sink/how_words.h"
#include "sink/json_priv.h"
#include "sink/notes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- culprits ---- */

static void write_culprit_id(struct jsonw *w, const struct model_view *v, const struct culprit *c)
{
	char id[48];

	jsonw__key(w, "id");
	switch (c->type) {
	case WHO_REQUEST:
	case WHO_SEQUENCE:
		jsonw__str(w, culprit_brief(v, c, id, sizeof(id)));
		return;
	case WHO_CGROUP:
	case WHO_NETWORK:
		jsonw__str(w, c->name[0] ? c->name : NULL);
		return;
	default:
		snprintf(id, sizeof(id), "%u", c->id);
		jsonw__str(w, id);
	}
}

/* `root`: what is behind it, NULL or nobody: nothing is. */
static void write_culprit(struct jsonw *w, const struct model_view *v, const struct culprit *c,
			  const struct culprit *root)
{
	bool rooted = root && root->type != WHO_NOBODY;

	if ((c->type == WHO_NOBODY && !rooted) || c->type >= N_CULPRIT_TYPES) {
		jsonw__null(w);
		return;
	}
	if (c->type == WHO_NOBODY) { /* only what is behind it is known */
		write_culprit(w, v, root, NULL);
		return;
	}
	jsonw__object(w);
	json_str(w, "type", culprit_type_names[c->type]);
	write_culprit_id(w, v, c);
	json_str(w, "name", c->name);
	jsonw__key(w, "root");
	if (rooted)
		write_culprit(w, v, root, NULL);
	else
		jsonw__null(w);
	jsonw__end_object(w);
}

/* ---- gaps ---- */

static const char *mechanism_name(uint8_t m)
{
	return m < N_MECHANISMS ? mechanism_names[m] : NULL;
}

void json_gap_parts(struct jsonw *w, const struct model_view *v, const struct gap *g)
{
	jsonw__array(w);
	for (size_t i = 0; i < g->n_parts; i++) {
		const struct blame_part *p = &g->parts[i];

		jsonw__array(w);
		jsonw__str(w, mechanism_name(p->mechanism));
		write_culprit(w, v, &p->who, &p->root);
		jsonw__fixed(w, (int64_t)p->ns, 6);
		jsonw__str(w, p->prov && p->prov <= PROV_INFERRED ? provenance_names[p->prov] : NULL);
		jsonw__end_array(w);
	}
	jsonw__end_array(w);
}

struct gap_writer {
	struct jsonw *w;
	const struct model_view *v;
	int side;	/* enum gap_side, the same for all of a request; -1: there are no gaps */
};

static int write_gap(void *ctx, const struct gap *g)
{
	struct gap_writer *gw = ctx;

	gw->side = g->side;
	jsonw__array(gw->w);
	jsonw__u64(gw->w, g->token);
	jsonw__fixed(gw->w, (int64_t)(g->t1_ns - g->t0_ns), 6);
	json_gap_parts(gw->w, gw->v, g);
	jsonw__end_array(gw->w);
	return 0;
}

int json_gaps(struct jsonw *w, const struct model_view *v, struct blame *b, uint32_t request,
	      bool all)
{
	static const char *const sides[] = {
		[GAP_WIRE] = "wire", [GAP_ENGINE] = "engine", [GAP_CLIENT] = "client"
	};
	struct gap_writer gw = { w, v, -1 };
	struct gap ttft;
	int err;

	jsonw__key(w, "gaps");
	jsonw__array(w);
	err = all ? blame__gaps(b, request, write_gap, &gw) :
		    blame__odd_gaps(b, request, write_gap, &gw, &gw.side);
	jsonw__end_array(w);
	json_str(w, "gaps_side", gw.side >= 0 ? sides[gw.side] : NULL);
	jsonw__key(w, "ttft_parts");
	if (blame__ttft(b, request, &ttft))
		json_gap_parts(w, v, &ttft);
	else
		jsonw__null(w);
	jsonw__key(w, "open_gap");
	if (blame__open(b, request, &ttft))
		write_gap(&gw, &ttft);
	else
		jsonw__null(w);
	return err;
}

/* ---- sums ---- */

static uint64_t both(const struct blame_row *r)
{
	return r->ns + r->ttft_ns;
}

static void write_share(struct jsonw *w, const char *key, uint64_t part, uint64_t all, bool known)
{
	json_double(w, key, all ? 100.0 * (double)part / (double)all : 0, known && all);
}

static void write_mechanism(struct jsonw *w, const struct blame_sum *s, uint8_t m)
{
	const struct blame_row *r = &s->by_mechanism[m];

	jsonw__object(w);
	json_str(w, "mechanism", mechanism_names[m]);
	json_ms(w, "ms", (int64_t)both(r));
	json_ms(w, "gaps_ms", (int64_t)r->ns);
	json_ms(w, "ttft_ms", (int64_t)r->ttft_ns);
	json_known_count(w, "gaps", r->n_gaps);
	json_known_count(w, "victims", r->n_victims);
	write_share(w, "share_pct", both(r), s->gaps_ns + s->ttfts_ns, true);
	write_share(w, "above_pct", both(r),
		    s->excess_ns + s->ttft_excess_ns - both(&s->by_mechanism[MECH_LOST]),
		    !mechanism_is_own((enum mechanism)m) && m != MECH_LOST);
	jsonw__end_object(w);
}

/* Those of others first, the longest first; then what is a token's own. */
static void write_mechanisms(struct jsonw *w, const struct blame_sum *s)
{
	uint8_t order[N_MECHANISMS];
	size_t n = blame_sum__order(s, order);

	jsonw__key(w, "by_mechanism");
	jsonw__array(w);
	for (size_t i = 0; i < n; i++)
		write_mechanism(w, s, order[i]);
	for (uint8_t m = 0; m < N_MECHANISMS; m++)
		if (mechanism_is_own((enum mechanism)m) && both(&s->by_mechanism[m]))
			write_mechanism(w, s, m);
	jsonw__end_array(w);
}

static void write_pair(struct jsonw *w, const struct model_view *v, const struct blame_pair *p)
{
	const struct culprit victim = { .type = WHO_REQUEST, .id = p->victim };
	char id[24];

	jsonw__object(w);
	json_str(w, "victim", culprit_brief(v, &victim, id, sizeof(id)));
	jsonw__key(w, "culprit");
	write_culprit(w, v, &p->culprit, &p->root);
	json_str(w, "mechanism", mechanism_name(p->mechanism));
	json_ms(w, "ms", (int64_t)(p->ns + p->ttft_ns));
	json_ms(w, "gaps_ms", (int64_t)p->ns);
	json_ms(w, "ttft_ms", (int64_t)p->ttft_ns);
	json_known_count(w, "gaps", p->n_gaps);
	json_ms(w, "longest_ms", (int64_t)p->max_ns);
	json_since(w, "longest_at_ms", p->max_at_ns, v->t0_ns);
	json_str(w, "provenance", p->prov ? provenance_names[p->prov] : NULL);
	jsonw__end_object(w);
}

static void write_names(struct jsonw *w, const char *key, uint64_t bits)
{
	jsonw__key(w, key);
	jsonw__array(w);
	for (int m = 0; m < N_MECHANISMS; m++)
		if (bits & 1ull << m)
			jsonw__str(w, mechanism_names[m]);
	jsonw__end_array(w);
}

static void write_provenance(struct jsonw *w, const struct blame_sum *s)
{
	jsonw__key(w, "provenance");
	jsonw__object(w);
	json_ms(w, "observed_ms", (int64_t)s->prov_ns[PROV_OBSERVED]);
	json_ms(w, "reported_ms", (int64_t)s->prov_ns[PROV_REPORTED]);
	json_ms(w, "inferred_ms", (int64_t)s->prov_ns[PROV_INFERRED]);
	jsonw__end_object(w);
}

/* Where its percentiles are taken: as far as somebody says when the client had its tokens, there. */
static const char *end_of(const struct blame_sum *s)
{
	if (!s->n_at_client)
		return "wire";
	return s->n_at_client < s->n_ttfts ? "mixed" : "client";
}

static void write_what_ifs(struct jsonw *w, const struct blame_sum *s)
{
	jsonw__key(w, "what_if");
	jsonw__array(w);
	for (size_t i = 0; i < s->n_what_if; i++) {
		const struct blame_what_if *x = &s->what_if[i];

		jsonw__object(w);
		json_str(w, "without", mechanism_name(x->without));
		json_str(w, "end", end_of(s));
		json_ms(w, "tpot_p50_ms", x->tpot.n ? (int64_t)x->tpot.p50 : -1);
		json_ms(w, "tpot_p99_ms", x->tpot.n ? (int64_t)x->tpot.p99 : -1);
		json_ms(w, "ttft_p99_ms", x->ttft.n ? (int64_t)x->ttft.p99 : -1);
		jsonw__end_object(w);
	}
	jsonw__end_array(w);
}

int json_blame(struct jsonw *w, const struct model_view *v, struct blame *b, const struct blame_sum *s)
{
	char answer[1600];
	struct hows hows;
	int err = blame_answer(v, s, N_MECHANISMS, answer, sizeof(answer));

	if (!err)
		err = blame__how(b, s, &hows);
	if (err)
		return err;
	jsonw__key(w, "blame");
	jsonw__object(w);
	json_str(w, "answer", answer);
	write_mechanisms(w, s);
	jsonw__key(w, "how");
	jsonw__array(w);
	for (size_t i = 0; i < hows.n; i++)
		json_how(w, v, &hows.v[i]);
	jsonw__end_array(w);
	jsonw__key(w, "pairs");
	jsonw__array(w);
	for (size_t i = 0; i < s->n_pairs; i++)
		write_pair(w, v, &s->pairs[i]);
	jsonw__end_array(w);
	json_known_count(w, "pairs_not_kept", s->n_pairs_not_kept);
	json_ms(w, "unexplained_ms", (int64_t)both(&s->by_mechanism[MECH_UNEXPLAINED]));
	write_names(w, "ruled_out", s->ruled_out);
	json_ms(w, "above_baseline_ms", (int64_t)(s->excess_ns + s->ttft_excess_ns));
	json_ms(w, "gaps_ms", (int64_t)s->gaps_ns);
	json_ms(w, "ttfts_ms", (int64_t)s->ttfts_ns);
	json_known_count(w, "gaps", s->n_gaps);
	json_known_count(w, "gaps_above_baseline", s->n_odd_gaps);
	json_known_count(w, "gaps_without_baseline", s->n_no_baseline);
	json_known_count(w, "ttfts", s->n_ttfts);
	json_ms(w, "open_ttfts_ms", (int64_t)s->open_ttfts_ns);
	json_known_count(w, "open_ttfts", s->n_open_ttfts);
	json_known_count(w, "baseline_steps", s->n_learnt);
	write_provenance(w, s);
	jsonw__end_object(w);
	write_what_ifs(w, s);
	return 0;
}
