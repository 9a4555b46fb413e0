/* SPDX-License-Identifier: Apache-2.0 */
/* Who else was in some steps. */
#include "sink/crowd.h"
#include "base/plural.h"
#include "sink/notes.h"

#include <inttypes.h>
#include <stdio.h>

enum { MAX_NAMES = 6, MAX_CULPRITS = 3 };

static bool is_own(const struct crowd *c, const struct model_view *v, uint32_t seq)
{
	return c->own && v->seqs[seq].req == c->own;
}

/* Answers to one request are one culprit. */
static bool is_same(const struct model_view *v, uint32_t a, uint32_t b)
{
	return a == b || (v->seqs[a].req && v->seqs[a].req == v->seqs[b].req);
}

/* A request with several answers is not named as somebody else in what is said of itself. */
const char *crowd__name(const struct crowd *c, const struct model_view *v, uint32_t seq,
			char buf[24])
{
	if (!is_own(c, v, seq))
		return sequence_name(v, seq, buf);
	snprintf(buf, 24, "its other answer%s", v->requests[c->own - 1].n_seqs > 2 ? "s" : "");
	return buf;
}

static void add(struct crowd *c, const struct model_view *v, uint32_t step, uint32_t except,
		bool prefill_only)
{
	const struct rec_step *st = &v->steps[step];

	if (except != UINT32_MAX)
		c->own = v->seqs[except].req;
	for (uint32_t i = 0; i < st->n_members; i++) {
		const struct rec_member *m = &v->members[st->first_member + i];
		size_t k = 0;

		if (m->seq == except || (prefill_only && m->phase != TL_PREFILL))
			continue;
		while (k < c->n && !is_same(v, c->who[k].seq, m->seq))
			k++;
		if (m->phase == TL_PREFILL)
			c->prefill += m->n_tokens;
		if (k == CROWD_MAX) {
			c->n_more++;
			continue;
		}
		if (k == c->n) {
			c->who[c->n++].seq = m->seq;
			c->who[k].prefill = c->who[k].decode = 0;
		}
		*(m->phase == TL_PREFILL ? &c->who[k].prefill : &c->who[k].decode) += m->n_tokens;
	}
}

void crowd__add(struct crowd *c, const struct model_view *v, uint32_t step, uint32_t except)
{
	add(c, v, step, except, false);
}

void crowd__add_prefill(struct crowd *c, const struct model_view *v, uint32_t step, uint32_t except)
{
	add(c, v, step, except, true);
}

bool crowd__equal(const struct crowd *a, const struct crowd *b, const struct model_view *v)
{
	if (a->n != b->n || a->n_more != b->n_more)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		size_t k = 0;

		while (k < b->n && !is_same(v, b->who[k].seq, a->who[i].seq))
			k++;
		if (k == b->n)
			return false;
	}
	return true;
}

enum what { PREFILL, DECODE, DECODE_ONLY };	/* ONLY: who prefills too is named there */

static uint64_t tokens_of(const struct crowd *c, size_t i, enum what what)
{
	if (what == PREFILL)
		return c->who[i].prefill;
	return what == DECODE_ONLY && c->who[i].prefill ? 0 : c->who[i].decode;
}

/* Largest share first, up to `max`; `sep` goes before each but the first. Returns the length. */
static int names(const struct crowd *c, const struct model_view *v, enum what what, size_t max,
		 const char *sep, char *buf, size_t size)
{
	uint64_t below = UINT64_MAX;
	size_t shown = 0, n = 0, at_seq = 0;
	int at = 0;

	for (size_t i = 0; i < c->n; i++)
		n += tokens_of(c, i, what) > 0;
	while (shown < n && shown < max && (size_t)at + 64 < size) {
		uint64_t best = 0;
		char name[24];

		/* the largest behind (below, at_seq) in the order of tokens, then place */
		for (size_t i = 0; i < c->n; i++) {
			uint64_t tokens = tokens_of(c, i, what);

			if (tokens > best && (tokens < below || (tokens == below && i > at_seq)))
				best = tokens;
		}
		for (size_t i = best == below ? at_seq + 1 : 0; i < c->n; i++)
			if (tokens_of(c, i, what) == best) {
				at_seq = i;
				break;
			}
		below = best;
		at += snprintf(buf + at, size - (size_t)at, "%s%s", shown ? sep : "",
			       crowd__name(c, v, c->who[at_seq].seq, name));
		if (what == PREFILL && best)
			at += snprintf(buf + at, size - (size_t)at, " (%" PRIu64 " tok)", best);
		shown++;
	}
	if (c->n_more && (shown < n || what != PREFILL))
		at += snprintf(buf + at, size - (size_t)at, " and more");
	else if (shown < n)
		at += snprintf(buf + at, size - (size_t)at, " and %zu other%s", n - shown,
			       plural_s(n - shown));
	return at;
}

const char *crowd__prefill_text(const struct crowd *c, const struct model_view *v, char *buf,
				size_t size)
{
	buf[0] = '\0';
	names(c, v, PREFILL, MAX_CULPRITS, ", ", buf, size);
	return buf;
}

const char *crowd__decode_text(const struct crowd *c, const struct model_view *v, char *buf,
			       size_t size)
{
	buf[0] = '\0';
	names(c, v, DECODE, MAX_CULPRITS, ", ", buf, size);
	return buf;
}

const char *crowd__text(const struct crowd *c, const struct model_view *v, char *buf, size_t size)
{
	char prefill[192] = "", decode[128] = "";
	int p = names(c, v, PREFILL, MAX_NAMES, " ", prefill, sizeof(prefill));
	int d = names(c, v, DECODE_ONLY, MAX_NAMES, " ", decode, sizeof(decode));

	snprintf(buf, size, "%s%s%s%s%s", p ? "prefill of " : "", prefill, p && d ? ", " : "",
		 d ? "decode of " : "", decode);
	return buf;
}
