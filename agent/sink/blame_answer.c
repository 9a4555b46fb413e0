/* SPDX-License-Identifier: Apache-2.0 */
/* The answer for a person in trouble: what made tokens late, who did it, what would help. */
#include "base/plural.h"
#include "base/units.h"
#include "sink/blame_words.h"
#include "sink/sentence.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Less is not worth a sentence: of gaps, of TTFTs, in all; and of gaps to open a report with. */
enum { WORTH_GAPS_PCT = 2, WORTH_TTFT_PCT = 10, WORTH_NS = 5000000, OPENING_GAPS_PCT = 5,
       WORTH_OPEN_NS = 200000000 };	/* to be named in a sentence */
/* A second sentence: at least this part of the first one. Other mechanisms: if the first is not enough. */
enum { SECOND_PART = 10, ENOUGH_PCT = 60, MIN_NEXT_PCT = 10, MAX_NEXT = 3, MAX_RULED_OUT = 5 };
enum { MIN_CHUNK = 64 };
/* Of so many culprits one that has less of it does not stand out. */
enum { MANY_CULPRITS = 6, STANDS_OUT_PCT = 20 };

static unsigned int pct(uint64_t part, uint64_t all)
{
	return all ? (unsigned int)(100.0 * (double)part / (double)all + 0.5) : 0;
}

/* ---- the two sides: between tokens, and before the first ---- */

enum side { SIDE_GAPS, SIDE_TTFT };

static uint64_t row_ns(const struct blame_sum *s, int m, enum side side)
{
	return side == SIDE_GAPS ? s->by_mechanism[m].ns : s->by_mechanism[m].ttft_ns;
}

/* Lost events are nobody's fault, and not known to be above anything. */
static uint64_t above_ns(const struct blame_sum *s, enum side side)
{
	return (side == SIDE_GAPS ? s->excess_ns : s->ttft_excess_ns) - row_ns(s, MECH_LOST, side);
}

static uint64_t all_ns(const struct blame_sum *s, enum side side)
{
	return side == SIDE_GAPS ? s->gaps_ns : s->ttfts_ns;
}

static bool is_worth_it(const struct blame_sum *s, enum side side, uint64_t gaps_pct)
{
	uint64_t pct = side == SIDE_GAPS ? gaps_pct : WORTH_TTFT_PCT;

	return above_ns(s, side) >= WORTH_NS && 100 * above_ns(s, side) >= pct * all_ns(s, side);
}

static int largest_mechanism(const struct blame_sum *s, enum side side)
{
	int best = MECH_UNEXPLAINED;

	for (int m = 0; m < MECH_LOST; m++)
		if (!mechanism_is_own((enum mechanism)m) && row_ns(s, m, side) > row_ns(s, best, side))
			best = m;
	return best;
}

/* ---- stalls by prefill ---- */

/* Tokens that others prefill in a step; *ret_own: is this sequence in it? */
static uint32_t prefill_of_others(const struct model_view *v, uint32_t step, uint32_t seq, bool *ret_own)
{
	const struct rec_step *st = &v->steps[step];
	uint32_t n = 0;

	*ret_own = false;
	for (uint32_t i = 0; i < st->n_members; i++) {
		const struct rec_member *m = &v->members[st->first_member + i];

		if (m->seq == seq)
			*ret_own = true;
		else if (m->phase == TL_PREFILL)
			n += m->n_tokens;
	}
	return n;
}

/* Of prefill of others, in one of the steps that ended in this gap. */
static uint32_t largest_chunk(const struct model_view *v, const struct gap *g, uint64_t *ret_tokens)
{
	uint32_t largest = 0, seq = g->seq - 1;
	const struct rec_sequence *q = &v->seqs[seq];

	*ret_tokens = 0;
	for (size_t i = 0; i < q->n_visits; i++) {
		const struct rec_step *st = &v->steps[q->visits[i].step];
		uint32_t n;
		bool own;

		if (st->t1_ns <= g->t0_ns || st->t1_ns > g->t1_ns)
			continue;
		n = prefill_of_others(v, q->visits[i].step, seq, &own);
		*ret_tokens += own ? n : 0;
		largest = own && n > largest ? n : largest;
	}
	return largest;
}

/* Chunks of prefill: how long the longest stall was, without what else filled it, and would be with smaller ones. */
struct stall {
	uint32_t chunk, smaller;	/* tokens of others' prefill in its step; some of that */
	uint64_t ns, smaller_ns;
};

static bool longest_stall(const struct model_view *v, const struct blame_sum *s, struct stall *ret)
{
	const struct gap *g = NULL;
	uint64_t most = 0, own = 0, tokens;
	struct stall st;

	for (size_t i = 0; i < s->n_top; i++) {
		uint64_t ns = 0, own_ns = 0;

		for (size_t k = 0; k < s->top[i].n_parts; k++) {
			const struct blame_part *p = &s->top[i].parts[k];

			ns += p->mechanism == MECH_PREFILL ? p->ns : 0;
			own_ns += mechanism_is_own((enum mechanism)p->mechanism) ? p->ns : 0;
		}
		if (ns > most) {
			most = ns;
			own = own_ns;
			g = &s->top[i];
		}
	}
	if (!g || !g->seq || g->seq > v->n_seqs)
		return false;
	st.chunk = largest_chunk(v, g, &tokens);
	for (st.smaller = MIN_CHUNK; 2 * st.smaller <= st.chunk / 3;)
		st.smaller *= 2;
	if (st.chunk < 2 * MIN_CHUNK)
		return false;
	st.ns = own + most;	/* what else filled that gap is not for the chunk's sake */
	st.smaller_ns = own + (uint64_t)((double)most / (double)tokens * st.smaller);
	*ret = st;
	return true;
}

/* ---- sentences ---- */

static void append_request_facts(struct sentence *to, const struct model_view *v, uint32_t i)
{
	const struct rec_request *r;
	char bytes[UNITS_LEN];

	if (i >= v->n_requests)
		return;
	r = &v->requests[i];
	if (r->prompt.prov != PROV_NONE)
		append(to, " (%u token%s", r->prompt.n, plural_s(r->prompt.n));
	else if (r->body_bytes)
		append(to, " (%s of body", units_bytes(bytes, r->body_bytes));
	else
		return;
	append(to, r->status >= 400 ? ", HTTP %u)" : ")", r->status);
}

/* What is behind most of what a culprit did by a mechanism, if it is one and the same. NULL: nothing is, or several. */
static const struct culprit *main_root(const struct blame_sum *s, int mechanism, unsigned int where,
				       const struct culprit *who)
{
	const struct culprit *root = NULL;
	uint64_t all = 0, ns = 0;

	for (int pass = 0; pass < 2; pass++) {	/* the only one that can have half of it; then whether it has */
		uint64_t lead = 0;

		for (size_t i = 0; i < s->n_pairs; i++) {
			const struct blame_pair *p = &s->pairs[i];
			uint64_t n = (where & IN_GAPS ? p->ns : 0) + (where & IN_TTFTS ? p->ttft_ns : 0);

			if (p->mechanism != mechanism || !culprit_same(&p->culprit, who))
				continue;
			if (pass) {
				all += n;
				ns += root && culprit_same(&p->root, root) ? n : 0;
			} else if (root && culprit_same(&p->root, root)) {
				lead += n;
			} else if (n > lead) {
				root = &p->root;
				lead = n - lead;
			} else {
				lead -= n;
			}
		}
	}
	return root && 2 * ns > all ? root : NULL;
}

static uint64_t where_ns(const struct blame_sum *s, int m, unsigned int where)
{
	return (where & IN_GAPS ? s->by_mechanism[m].ns : 0) + (where & IN_TTFTS ? s->by_mechanism[m].ttft_ns : 0);
}

/* "; worst culprit r17 (8188 tokens): 640 ms on 2 requests" */
static int append_culprit(struct sentence *to, const struct model_view *v, const struct blame_sum *s,
			  int mechanism, unsigned int where)
{
	const struct culprit *root;
	struct blame_who all[MANY_CULPRITS], who;
	char name[CULPRIT_TEXT], ms[UNITS_LEN];
	long n = blame_sum__culprits(s, 1ull << mechanism, where, all, MANY_CULPRITS);

	if (n <= 0)
		return (int)n;
	who = all[0];
	if (n == MANY_CULPRITS && STANDS_OUT_PCT * where_ns(s, mechanism, where) > 100 * (who.ns + who.ttft_ns))
		append(to, "; spread over many, most by %s", who_text(v, &who, name, sizeof(name)));
	else
		append(to, "; worst culprit %s", who_text(v, &who, name, sizeof(name)));
	if (who.who.type == WHO_REQUEST)
		append_request_facts(to, v, who.who.id);
	root = who.who.type == WHO_THREAD ? main_root(s, mechanism, where, &who.who) : NULL;
	if (root && root->type == WHO_CLIENT && root->name[0])
		append(to, ", mostly for %.*s", (int)sizeof(root->name), root->name);
	append(to, ": %s %son %u request%s", units_ns(ms, who.ns + who.ttft_ns),
	       where == IN_GAPS ? "of gaps " : where == IN_TTFTS ? "of TTFTs " : "", who.n_victims,
	       plural_s(who.n_victims));
	return 0;
}

/* "; ruled out: garbage collection; CPU quota used up ... and 6 more": what lies outside the scheduler first. */
static void append_ruled_out(struct sentence *to, uint64_t bits)
{
	uint64_t named = 0;
	char text[400];
	int n = 0;

	for (int i = 0; i < N_MECHANISMS && n < MAX_RULED_OUT; i++) {
		int m = (i + MECH_HOST) % N_MECHANISMS;

		if (!(bits & 1ull << m))
			continue;
		named |= 1ull << m;
		n++;
	}
	append(to, "; ruled out, in what is unexplained: %s", mechanisms_text(named, text, sizeof(text)));
	if (bits & ~named)
		append(to, " and %d more", __builtin_popcountll(bits & ~named));
}

/* Were most of the steps that somebody waited for so long because of prompts? */
static bool waited_for_prompts(const struct blame_sum *s)
{
	uint64_t ns = 0, all = s->by_mechanism[MECH_STEP_WAIT].ns + s->by_mechanism[MECH_STEP_WAIT].ttft_ns;

	for (size_t i = 0; i < s->n_pairs; i++)
		if (s->pairs[i].mechanism == MECH_STEP_WAIT && s->pairs[i].culprit.type != WHO_NOBODY)
			ns += s->pairs[i].ns + s->pairs[i].ttft_ns;
	return 2 * ns >= all;
}

/* An option by its name, of those engines that are there: "llama.cpp --parallel, vLLM --max-num-seqs". */
static const char *option_text(const struct model_view *v, const char *llama, const char *vllm, char *buf, size_t size)
{
	bool any_llama = false, any_vllm = false;

	for (size_t i = 0; i < v->n_engines; i++) {
		any_llama |= v->engines[i].e.engine == TL_ENGINE_LLAMA;
		any_vllm |= v->engines[i].e.engine == TL_ENGINE_VLLM;
	}
	if (any_vllm && !any_llama)
		snprintf(buf, size, "vLLM %s", vllm);
	else if (any_llama && !any_vllm)
		snprintf(buf, size, "llama.cpp %s", llama);
	else
		snprintf(buf, size, "llama.cpp %s, vLLM %s", llama, vllm);
	return buf;
}

/* vLLM mixes prompts and decodes in its steps as it is: where it leaves somebody out, prompts took all their tokens. */
static void append_left_out_advice(struct sentence *to, const struct model_view *v)
{
	for (size_t i = 0; i < v->n_engines; i++)
		if (v->engines[i].e.engine == TL_ENGINE_VLLM) {
			append(to, "; more tokens in a step (vLLM --max-num-batched-tokens), or a limit on those of long prompts "
				   "(--long-prefill-token-threshold) leaves fewer out");
			return;
		}
	append(to, "; %s", mechanism_advice(MECH_LEFT_OUT));
}

/* What requests queued for, and how to have more of that. */
static void append_queue_advice(struct sentence *to, const struct model_view *v, const struct blame_sum *s)
{
	uint64_t all = 0, largest = 0;
	int limit = LIMIT_UNKNOWN;
	char option[120];

	for (int i = 0; i < N_QUEUE_LIMITS; i++) {
		all += s->queue_ns[i];
		if (s->queue_ns[i] > largest) {
			largest = s->queue_ns[i];
			limit = i;
		}
	}
	if (limit == LIMIT_KV)
		append(to, "; %u %% of it for want of room in the KV cache: a larger one (%s), shorter prompts or answers",
		       pct(largest, all), option_text(v, "--ctx-size", "--gpu-memory-utilization, --kv-cache-dtype",
						      option, sizeof(option)));
	else if (limit == LIMIT_TOKENS)
		append(to, "; %u %% of it while the prompts of others filled the steps: more tokens in a step (%s), which makes "
			   "it longer", pct(largest, all),
		       option_text(v, "--batch-size", "--max-num-batched-tokens", option, sizeof(option)));
	else if (limit == LIMIT_SLOTS)
		append(to, "; %u %% of it while all places were taken: more sequences at once (%s), if there is memory for them",
		       pct(largest, all), option_text(v, "--parallel", "--max-num-seqs", option, sizeof(option)));
	append(to, limit == LIMIT_UNKNOWN
			   ? "; for want of what is not known; another replica shortens it"
			   : ", or another replica shortens it");
}

static void append_advice(struct sentence *to, const struct model_view *v, const struct blame_sum *s,
			  int mechanism)
{
	char now[UNITS_LEN], then[UNITS_LEN], option[120];
	struct stall st;

	if (mechanism == MECH_PREFILL && longest_stall(v, s, &st))
		append(to,
		       "; with chunks of %u token%s instead of %u the longest stall by prefill would take about %s "
		       "instead of %s; there would be more of them (%s)",
		       st.smaller, plural_s(st.smaller), st.chunk, units_ns(then, st.smaller_ns), units_ns(now, st.ns),
		       option_text(v, "--batch-size", "--max-num-batched-tokens", option, sizeof(option)));
	else if (mechanism == MECH_UNEXPLAINED && s->ruled_out)
		append_ruled_out(to, s->ruled_out);
	else if (mechanism == MECH_STEP_WAIT && !waited_for_prompts(s))
		append(to, "; most of these steps were not longer for prompts: smaller chunks of prefill would not change it");
	else if (mechanism == MECH_QUEUE)
		append_queue_advice(to, v, s);
	else if (mechanism == MECH_LEFT_OUT)
		append_left_out_advice(to, v);
	else if (*mechanism_advice((enum mechanism)mechanism))
		append(to, "; %s", mechanism_advice((enum mechanism)mechanism));
}

/* "62 % of the time is ..." */
static const char *const phrases[N_MECHANISMS] = {
	[MECH_PREFILL] = "prefill of other requests in the same step",
	[MECH_RECOMPUTE] = "computing again what a preemption threw away",
	[MECH_PREEMPTED] = "being parked after a preemption",
	[MECH_QUEUE] = "waiting in the queue behind others",
	[MECH_STEP_WAIT] = "waiting for a step's end",
	[MECH_PAUSED] = "a pause that somebody asked the server for",
	[MECH_LEFT_OUT] = "being left out of steps",
	[MECH_HOST] = "the engine's thread, busy on its CPU",
	[MECH_GIL] = "waiting for the GIL or a lock",
	[MECH_COMPILE] = "first use: compiling, loading",
	[MECH_GRAMMAR] = "grammars of structured output",
	[MECH_THROTTLED] = "a CPU quota that was used up",
	[MECH_RUN_QUEUE] = "waiting for a CPU",
	[MECH_FEW_CPUS] = "waiting for a CPU that the server's own threads had",
	[MECH_PAGE_FAULT] = "waiting for the disk",
	[MECH_STOPPED] = "the server being stopped or frozen",
	[MECH_GRAPH_MISS] = "CUDA graph misses",
	[MECH_PADDING] = "batches padded to a captured graph",
	[MECH_COLLECTIVE] = "waiting for a late rank",
	[MECH_NEIGHBOUR] = "a neighbour on the GPU",
	[MECH_CLOCK] = "a lowered GPU clock",
	[MECH_EVENT_LOOP] = "the front end's event loop, blocked",
	[MECH_TOKENIZER] = "waiting for a tokenizer that was busy with another's text",
	[MECH_METRICS] = "metrics scrapes on the event loop",
	[MECH_DETOKENIZER] = "a saturated detokenizer",
	[MECH_APP_BUFFER] = "chunks held inside the server process",
	[MECH_NAGLE] = "small writes held by the kernel (Nagle, cork)",
	[MECH_SLOW_CLIENT] = "clients that read slowly",
	[MECH_PROXY_BUFFER] = "chunks held by a proxy",
	[MECH_NETWORK] = "the network: lost segments, congestion",
	[MECH_BEFORE_HOST] = "what passed before the first byte came to this host",
};

static const char *phrase(int mechanism)
{
	return phrases[mechanism] ? phrases[mechanism] : mechanism_labels[mechanism];
}

/* Whose quota it was: "cgroup llm.slice". NULL: nobody knows, or of no cgroup that has a name. */
static const struct culprit *quota_of(const struct blame_sum *s)
{
	for (size_t i = 0; i < s->n_pairs; i++) {
		const struct blame_pair *p = &s->pairs[i];
		const struct culprit *c = p->culprit.type == WHO_CGROUP ? &p->culprit : &p->root;

		if (p->mechanism == MECH_THROTTLED && c->type == WHO_CGROUP && c->name[0])
			return c;
	}
	return NULL;
}

static void append_phrase(struct sentence *to, const struct model_view *v, const struct blame_sum *s, int mechanism)
{
	const struct culprit *quota = mechanism == MECH_THROTTLED ? quota_of(s) : NULL;
	char name[CULPRIT_TEXT];

	append(to, "%s", phrase(mechanism));
	if (quota)
		append(to, " (of %s)", culprit_text(v, quota, name, sizeof(name)));
}

/* ". Then waiting for a CPU (25 %), a CPU quota that was used up (20 %)": if the first is not all. */
static void append_next(struct sentence *to, const struct blame_sum *s, enum side side, int first)
{
	uint8_t order[N_MECHANISMS];
	size_t n = blame_sum__order(s, order), named = 0;
	uint64_t above = above_ns(s, side);

	if (pct(row_ns(s, first, side), above) >= ENOUGH_PCT)
		return;
	for (size_t i = 0; i < n && named < MAX_NEXT; i++) {
		unsigned int p = pct(row_ns(s, order[i], side), above);

		if (order[i] == first || order[i] == MECH_LOST || p < MIN_NEXT_PCT)
			continue;
		append(to, "%s%s (%u %%)", named ? ", " : ". Then ", phrase(order[i]), p);
		named++;
	}
}

/* `said`: the sentence before was on this mechanism, with the same advice; N_MECHANISMS: on none. */
static int append_side(struct sentence *to, const struct model_view *v, const struct blame_sum *s,
		       enum side side, int said)
{
	int m = largest_mechanism(s, side), err;
	uint64_t ns = row_ns(s, m, side), above = above_ns(s, side);
	char total[UNITS_LEN], all[UNITS_LEN], open[OPEN_TEXT] = "";

	if (side == SIDE_TTFT && s->n_ttfts)
		open_ttfts_text(s, ", of which ", open);
	append(to, "%s%u %% of the time above baseline %s (%s, that is %u %% of %s%s) is ",
	       to->at ? " " : "", pct(ns, above),
	       side == SIDE_GAPS ? "between tokens" : "before first tokens", units_ns(total, above),
	       pct(above, all_ns(s, side)), units_ns(all, all_ns(s, side)), open);
	append_phrase(to, v, s, m);
	if (said == m) {
		append(to, ", too.");
		return 0;
	}
	err = append_culprit(to, v, s, m, side == SIDE_GAPS ? IN_GAPS : IN_TTFTS);
	append_advice(to, v, s, m);
	append_next(to, s, side, m);
	append(to, ".");
	return err;
}

/* The other side, in an opening: who and what to do is said by blame. */
static void append_brief(struct sentence *to, const struct blame_sum *s, enum side side)
{
	int m = largest_mechanism(s, side);

	append(to, " %s, %u %% of it is %s.", side == SIDE_GAPS ? "Between tokens" : "Before first tokens",
	       pct(row_ns(s, m, side), above_ns(s, side)), phrase(m));
}

static int append_mechanism(struct sentence *to, const struct model_view *v, const struct blame_sum *s,
			    int m)
{
	const struct blame_row *r = &s->by_mechanism[m];
	char ms[UNITS_LEN], wait[UNITS_LEN];
	int err;

	if (!r->ns && !r->ttft_ns) {
		append(to, "No time went to %s.", phrase(m));
		return 0;
	}
	append_phrase(to, v, s, m);
	append(to, ":");
	if (r->ns)
		append(to, " %s in %u gap%s", units_ns(ms, r->ns), r->n_gaps,
		       plural_s(r->n_gaps));
	if (r->ttft_ns)
		append(to, "%s %s before first tokens", r->ns ? "," : "", units_ns(wait, r->ttft_ns));
	append(to, " of %u request%s", r->n_victims, plural_s(r->n_victims));
	err = append_culprit(to, v, s, m, IN_GAPS | IN_TTFTS);
	append_advice(to, v, s, m);
	append(to, ".");
	return err;
}

static void append_nothing(struct sentence *to, const struct blame_sum *s)
{
	uint64_t own = s->gaps_ns - s->excess_ns, above;
	int m = largest_mechanism(s, SIDE_GAPS);
	char ms[UNITS_LEN];

	if (!s->n_gaps && !s->n_ttfts) {
		append(to, "No gap between tokens and no wait for a first token was seen: there is nothing "
			   "to explain.");
		return;
	}
	append(to, "Nobody slowed anybody worth naming");
	above = above_ns(s, SIDE_GAPS);
	if (s->gaps_ns)	/* tokens that left in one write have gaps of no time */
		append(to, ": %.1f %% of the time between tokens is what they take undisturbed",
		       (double)(int64_t)(1000.0 * (double)own / (double)s->gaps_ns) / 10);
	if (above && row_ns(s, m, SIDE_GAPS))
		append(to, "; most of the rest is %s (%s)", phrase(m),
		       units_ns(ms, row_ns(s, m, SIDE_GAPS)));
	append(to, ".");
}

/* The sides that are worth it, the worse one first. Returns how many. */
static int worth_it(const struct blame_sum *s, uint64_t gaps_pct, enum side ret[2])
{
	enum side first = above_ns(s, SIDE_TTFT) > above_ns(s, SIDE_GAPS) ? SIDE_TTFT : SIDE_GAPS;
	enum side second = first == SIDE_GAPS ? SIDE_TTFT : SIDE_GAPS;
	int n = 0;

	if (is_worth_it(s, first, gaps_pct))
		ret[n++] = first;
	if (is_worth_it(s, second, gaps_pct) && SECOND_PART * above_ns(s, second) >= above_ns(s, first))
		ret[n++] = second;
	return n;
}

/* Those that hang are why people look, and no gap of theirs has ended. */
static void append_open(struct sentence *to, const struct model_view *v, const struct blame_sum *s)
{
	const struct gap *worst = NULL;
	char ms[UNITS_LEN], id[24];

	for (size_t i = 0; i < s->n_top; i++)
		if (s->top[i].open && (!worst || s->top[i].t1_ns - s->top[i].t0_ns > worst->t1_ns - worst->t0_ns))
			worst = &s->top[i];
	if (!s->n_open || s->longest_open_ns < WORTH_OPEN_NS)
		return;
	append(to, "%s%u request%s still waited for %s token when the recording ended, for up to %s", to->at ? " " : "", s->n_open,
	       plural_s(s->n_open), plural(s->n_open, "its next", "their next"), units_ns(ms, s->longest_open_ns));
	if (worst)
		append(to, " (%s: %s)",
		       culprit_brief(v, &(struct culprit){ .type = WHO_REQUEST, .id = worst->request }, id, sizeof(id)),
		       phrase(worst->n_parts ? worst->parts[0].mechanism : MECH_UNEXPLAINED));
	append(to, ".");
}

int blame_opening(const struct model_view *v, const struct blame_sum *s, char *buf, size_t size)
{
	struct sentence to = { buf, 0, size };
	enum side sides[2];
	int n = worth_it(s, OPENING_GAPS_PCT, sides), err = 0;

	buf[0] = '\0';
	if (!n) {
		append_open(&to, v, s);
		return 0;
	}
	/* no steps, no baseline: nothing is known of what fills it */
	if (s->n_learnt || largest_mechanism(s, sides[0]) != MECH_UNEXPLAINED)
		err = append_side(&to, v, s, sides[0], N_MECHANISMS);
	if (*buf && n == 2 && largest_mechanism(s, sides[1]) != largest_mechanism(s, sides[0]))
		append_brief(&to, s, sides[1]);
	append_open(&to, v, s);
	return err;
}

int blame_answer(const struct model_view *v, const struct blame_sum *s, enum mechanism mechanism,
		 char *buf, size_t size)
{
	struct sentence to = { buf, 0, size };
	enum side sides[2];
	int n, err = 0;

	buf[0] = '\0';
	if (mechanism < N_MECHANISMS)
		return append_mechanism(&to, v, s, (int)mechanism);
	n = worth_it(s, WORTH_GAPS_PCT, sides);
	for (int i = 0; i < n && !err; i++)
		err = append_side(&to, v, s, sides[i],
				  i ? largest_mechanism(s, sides[0]) : N_MECHANISMS);
	append_open(&to, v, s);
	if (!n && !*buf)
		append_nothing(&to, s);
	if (s->n_gaps && !s->n_learnt)
		append(&to, " Too few undisturbed steps to learn what is usual: only what left evidence is "
			    "blamed.");
	return err;
}
