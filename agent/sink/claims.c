/* SPDX-License-Identifier: Apache-2.0 */
/* What other tools say of requests, and what is true. */
#include "sink/claims.h"
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "model/evidence.h"
#include "sink/json_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLAIM_TEXT = 400 };	/* bytes of one sentence */

static const char *metric_name(uint16_t metric)
{
	static const char *const names[] = { NULL,	"ttft", "total", "tpot",
					     "headers", "itl",	"queue" };

	return metric < ARRAY_SIZE(names) && names[metric] ? names[metric] : "other";
}

static const char *metric_label(uint16_t metric)
{
	static const char *const labels[] = { NULL,	 "TTFT", "total", "TPOT",
					      "headers", "ITL",	 "queue" };

	return metric < ARRAY_SIZE(labels) && labels[metric] ? labels[metric] : "time";
}

/* ---- sentences ---- */

/* Times are there to be compared: of long ones, minutes would hide what differs. */
static const char *time_text(char buf[UNITS_LEN], uint64_t ns)
{
	if (ns < 10000000000)
		return units_ns(buf, ns);
	snprintf(buf, UNITS_LEN, "%.1f s", ns / 1e9);
	return buf;
}

static void why_text(const struct model_view *v, const struct claim_judged *j, char *buf,
		     size_t size)
{
	char held[UNITS_LEN];
	const struct rec_request *r = &v->requests[j->request];

	time_text(held, j->held_ns);
	buf[0] = '\0';
	switch ((enum claim_verdict)j->verdict) {
	case CLAIM_V1:
		snprintf(buf, size, "stamped on the last chunk, not the first");
		break;
	case CLAIM_V2:
		snprintf(buf, size,
			 "%.0f tokens/s behind that stamp, %.1f were seen: it skips %u chunk%s of tokens "
			 "(reasoning, hidden output)",
			 j->implied_per_s, j->seen_per_s, j->n_skipped, plural_s(j->n_skipped));
		break;
	case CLAIM_V3:
		snprintf(buf, size, "true where it was taken; held for %s behind that", held);
		break;
	case CLAIM_V4:
		snprintf(buf, size, "%s, not a token",
			 j->stamp == P_FIRST_CHUNK ? "the first chunk" : "the headers");
		break;
	case CLAIM_V5:
		snprintf(buf, size, "the whole time over %u token%s: the TTFT is in it",
			 r->output.prov ? r->output.n : r->n_tokens_wire,
			 plural_s(r->output.prov ? r->output.n : r->n_tokens_wire));
		break;
	case CLAIM_V6:
		snprintf(buf, size, "the time to the first token, no total");
		break;
	case CLAIM_V7:
		snprintf(buf, size,
			 "per chunk, and a chunk holds %.2f tokens: %.1f tokens/s in %.1f chunks/s",
			 j->tokens_per_chunk, j->seen_per_s, j->seen_per_s / j->tokens_per_chunk);
		break;
	case CLAIM_V8:
		snprintf(buf, size, "impossible: the prompt alone took longer");
		break;
	case CLAIM_V11:
		snprintf(buf, size, "its host had acknowledged the first token by then: %s of it are in the client",
			 held);
		break;
	default:
		if (j->stamp < N_POINTS)
			snprintf(buf, size, "fits %s", point_names[j->stamp]);
		else
			snprintf(buf, size, "fits no point of the request");
	}
}

/* One sentence on a claim, without its full stop. Returns buf. */
static const char *claim_text(const struct model_view *v, const struct claim_judged *j,
			      char buf[CLAIM_TEXT])
{
	const struct tl_claim *k = &v->evidence->claims.v[j->claim];
	char said[UNITS_LEN], truth[UNITS_LEN], before[UNITS_LEN], why[160], off[32] = "", host[64] = "";

	time_text(said, k->value_ns);
	time_text(truth, j->truth_ns);
	if (j->before_host_ns > j->truth_ns / 100)
		snprintf(host, sizeof(host), ", %s of it before the first byte came here",
			 time_text(before, j->before_host_ns));
	if (j->verdict == CLAIM_NO_TRUTH) {
		snprintf(buf, CLAIM_TEXT, "r%u: %s of %.32s (%.32s) is %s: what it could be held against was "
			 "not seen", k->req, metric_label(k->metric), k->tool, k->field, said);
		return buf;
	}
	if (j->verdict == CLAIM_RIGHT) {
		snprintf(buf, CLAIM_TEXT, "r%u: %s of %.32s (%.32s) is %s: right%s", k->req,
			 metric_label(k->metric), k->tool, k->field, said, host);
		return buf;
	}
	why_text(v, j, why, sizeof(why));
	if (j->factor >= 1.095)
		snprintf(off, sizeof(off), " (%.3gx)", j->factor);
	else if (j->factor > 0 && j->factor <= 0.913)
		snprintf(off, sizeof(off), " (1/%.3g)", 1 / j->factor);
	snprintf(buf, CLAIM_TEXT, "r%u: %s of %.32s (%.32s) is %s, it was %s%s%s: %s [%s]", k->req,
		 metric_label(k->metric), k->tool, k->field, said, truth, off, host, why,
		 claim_verdict_name(j->verdict));
	return buf;
}

int claims_each(const struct model_view *v, size_t max, claim_fn fn, void *ctx)
{
	struct claim_judged *j;
	size_t n, shown = 0, wrong = 0, unknown = 0;
	char buf[CLAIM_TEXT];
	int err = claims_judge(v, &j, &n);

	if (err || !n)
		return err;
	for (size_t i = 0; i < n; i++) {
		unknown += j[i].verdict == CLAIM_NO_TRUTH;
		if (j[i].verdict == CLAIM_RIGHT || j[i].verdict == CLAIM_NO_TRUTH)
			continue;
		wrong++;
		if (shown < max) {
			fn(ctx, claim_text(v, &j[i], buf));
			shown++;
		}
	}
	snprintf(buf, sizeof(buf), "%zu of %zu claim%s of other tools %s, %zu %s not%s",
		 n - wrong - unknown, n, plural_s(n), plural(n - wrong - unknown, "holds", "hold"),
		 wrong, plural(wrong, "does", "do"), shown < wrong ? " (more are in --json)" : "");
	if (unknown)
		snprintf(buf + strlen(buf), sizeof(buf) - strlen(buf), ", %zu could not be checked",
			 unknown);
	fn(ctx, buf);
	free(j);
	return 0;
}

/* ---- JSON ---- */

static void write_claim(struct jsonw *w, const struct model_view *v, const struct claim_judged *j)
{
	const struct tl_claim *k = &v->evidence->claims.v[j->claim];
	bool known = j->verdict != CLAIM_NO_TRUTH;
	char buf[CLAIM_TEXT];

	snprintf(buf, sizeof(buf), "r%u", k->req);
	jsonw__object(w);
	json_str(w, "request", buf);
	jsonw__key(w, "tool");
	jsonw__strn(w, k->tool, strnlen(k->tool, sizeof(k->tool)));
	jsonw__key(w, "field");
	jsonw__strn(w, k->field, strnlen(k->field, sizeof(k->field)));
	json_str(w, "metric", metric_name(k->metric));
	json_ms(w, "claim_ms", (int64_t)k->value_ns);
	json_ms(w, "truth_ms", known ? (int64_t)j->truth_ns : -1);
	json_str(w, "verdict", claim_verdict_name(j->verdict));
	json_double(w, "factor", j->factor, known && j->truth_ns);
	json_str(w, "stamp", j->stamp < N_POINTS ? point_names[j->stamp] : NULL);
	json_ms(w, "before_host_ms", known ? (int64_t)j->before_host_ns : -1);
	json_ms(w, "held_ms",
		j->verdict == CLAIM_V3 || j->verdict == CLAIM_V11 ? (int64_t)j->held_ns : -1);
	json_str(w, "text", claim_text(v, j, buf));
	jsonw__end_object(w);
}

int json_claims(struct jsonw *w, const struct model_view *v)
{
	struct claim_judged *j;
	size_t n;
	int err = claims_judge(v, &j, &n);

	if (err)
		return err;
	jsonw__key(w, "claims");
	jsonw__array(w);
	for (size_t i = 0; i < n; i++)
		write_claim(w, v, &j[i]);
	jsonw__end_array(w);
	free(j);
	return 0;
}
