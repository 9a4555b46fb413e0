/* SPDX-License-Identifier: Apache-2.0 */
/* How a mechanism took its time, in a sentence with the numbers that show it. */
#include "sink/how_words.h"
#include "base/plural.h"
#include "base/units.h"
#include "sink/sentence.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SPINS_PCT = 90 };	/* so busy are devices that do nothing but wait in a collective */

/* "99 steps of 34.0 ms" */
static void append_steps(struct sentence *to, const struct how *h)
{
	char ms[UNITS_LEN];

	append(to, "%" PRIu64 " step%s of %s", h->n_steps, plural_s(h->n_steps),
	       units_ns(ms, h->steps_ns / h->n_steps));
}

static void append_busy(struct sentence *to, const struct how *h)
{
	if (h->busy_pct >= 0)
		append(to, "; GPU busy %s%.1f %% of %s, %s%.1f %% of all steps",
		       h->busy_at_least ? "at least " : "", h->busy_pct, plural(h->n_steps, "it", "them"),
		       h->all_at_least ? "at least " : "", h->all_busy_pct);
}

static void append_graph(struct sentence *to, const struct how *h)
{
	const struct how_graph *g = &h->graph;

	if (g->least_batch == g->most_batch)
		append(to, "batch %u has no graph", g->least_batch);
	else
		append(to, "batches of %u to %u have no graph", g->least_batch, g->most_batch);
	if (g->largest && g->largest < g->least_batch)
		append(to, ", the largest is of %u", g->largest);
	append(to, ": ");
	append_steps(to, h);
	append(to, " ran kernel by kernel");
	if (g->launches)
		append(to, ", %" PRIu64 " launch%s of %s %.1f us each", g->launches,
		       plural(g->launches, "", "es"), g->at_most ? "at most" : "about",
		       (double)g->launch_ns / 1e3);
	append_busy(to, h);
}

/* "ranks 0, 1, 3" */
static void append_ranks(struct sentence *to, uint64_t ranks)
{
	int n = 0;

	append(to, "rank%s", plural_s((uint64_t)__builtin_popcountll(ranks)));
	for (int i = 0; i < 64; i++)
		if (ranks >> i & 1)
			append(to, "%s %d", n++ ? "," : "", i);
}

static void append_late(struct sentence *to, const struct how *h)
{
	const struct how_rank *r = &h->late;
	char wait[UNITS_LEN], move[UNITS_LEN], compute[UNITS_LEN], usual[UNITS_LEN];
	uint64_t most = r->compute_usual_ns + r->compute_usual_ns / 20;

	append(to, "rank %u came late to collectives in %" PRIu64 " step%s: ", r->rank, r->n_steps,
	       plural_s(r->n_steps));
	append_ranks(to, r->waiting);
	append(to, " waited %s for it, moving data took %s", units_ns(wait, r->wait_ns),
	       units_ns(move, r->transfer_ns));
	if (r->compute_ns && r->compute_usual_ns)
		append(to, "; computing took %s%s (%s in other steps)",
		       units_ns(compute, r->compute_ns), r->compute_ns <= most ? ", unchanged" : "",
		       units_ns(usual, r->compute_usual_ns));
	if (r->waiting_busy_pct >= SPINS_PCT)
		append(to, "; that GPUs show utilization %s%.0f %% meanwhile is the wait: kernels of collectives spin",
		       r->waiting_at_least ? "at least " : "", r->waiting_busy_pct);
}

static void append_clock(struct sentence *to, const struct how *h)
{
	const struct how_clock *c = &h->clock;
	const char *and = ":";

	append_steps(to, h);
	if (c->mhz && c->usual_mhz)
		append(to, " ran at %u instead of %u MHz (%+.1f %%)", c->mhz, c->usual_mhz,
		       100.0 * ((double)c->mhz / c->usual_mhz - 1));
	if (c->decode_pct >= 0) {
		append(to, "%s decode took %.1f %% more", and, c->decode_pct);
		and = ",";
	}
	if (c->prefill_pct >= 0)
		append(to, "%s steps with prefill %.1f %% more", and, c->prefill_pct);
}

static void append_neighbour(struct sentence *to, const struct how *h)
{
	const struct how_clock *c = &h->clock;

	if (c->mhz && c->mhz >= c->usual_mhz - c->usual_mhz / 33)
		append(to, ", at its usual clock (%u MHz)", c->mhz);
}

static void append_lost(struct sentence *to, const struct how *h)
{
	char ms[UNITS_LEN];

	append_steps(to, h);
	append(to, " lost %s%s to it", units_ns(ms, h->lost_ns / h->n_steps),
	       plural(h->n_steps, "", " each"));
}

static void append_both(struct sentence *to, const struct how *h)
{
	if (h->clock.n_both)
		append(to, "; in %" PRIu64 " of them there were both a lower clock and a neighbour: the clock's share is "
			   "by its ratio, the rest is the neighbour's", h->clock.n_both);
}

static void append_backlog(struct sentence *to, const struct model_view *v, const struct how *h)
{
	const struct how_backlog *k = &h->backlog;
	char step[UNITS_LEN], out[UNITS_LEN], late[UNITS_LEN];

	append(to, "the engine gave outputs every %s, they were written every %s; at worst, at %.0f ms, those of %" PRIu64
		   " steps were pending, and the last one was written %s later%s",
	       units_ns(step, k->step_ns), units_ns(out, k->out_ns), (double)(int64_t)(k->made_ns - v->t0_ns) / 1e6,
	       k->n_pending, units_ns(late, k->written_ns - k->made_ns),
	       k->out_ns > k->step_ns ? ": neither the GPU nor the scheduler is late" : "");
}

const char *how_text(const struct model_view *v, const struct how *h, char *buf, size_t size)
{
	struct sentence to = { buf, 0, size };

	append(&to, "%s: ", mechanism_labels[h->mechanism]);
	switch ((enum mechanism)h->mechanism) {
	case MECH_GRAPH_MISS:
		append_graph(&to, h);
		break;
	case MECH_COLLECTIVE:
		if (h->late.n_steps)
			append_late(&to, h);
		else
			append_lost(&to, h);
		break;
	case MECH_CLOCK:
		append_clock(&to, h);
		append_both(&to, h);
		break;
	case MECH_NEIGHBOUR:
		append_lost(&to, h);
		append_neighbour(&to, h);
		append_both(&to, h);
		break;
	case MECH_DETOKENIZER:
		append_backlog(&to, v, h);
		break;
	default:
		append_lost(&to, h);
		append_busy(&to, h);
	}
	return buf;
}
