/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences that several outputs share. Each one is printed only when its case is there. */
#include "sink/notes_priv.h"

#include "base/plural.h"
#include "base/units.h"
#include "engine/recognise.h"
#include "model/at_work.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct definition definitions[] = {
	{ "ttft",
	  "first_token_wire - req_first_byte; streamed requests that were seen from their beginning" },
	{ "tpot",
	  "(last_token_wire - first_token_wire) / (output_tokens - 1); streamed, one answer, "
	  "at least 2 tokens, not all in one write; of an answer that was cut short, the tokens "
	  "that left" },
	{ "itl_token",
	  "end of a step that gave a sequence output - end of the step before that did; "
	  "one gap per step, whatever the number of tokens in it" },
	{ "itl_chunk",
	  "start of the write of a chunk with a token - start of the write of the chunk "
	  "with a token before it; a chunk may hold several tokens" },
	{ "e2e", "done - req_first_byte; streamed or not" },
	{ "queue",
	  "prefill_start - submit; where submit was not seen: prefill_start - req_last_byte" },
	{ "prefill", "first_token_engine - prefill_start" },
	{ "frontend", "submit - req_last_byte; parsing, templating, tokenizing" },
	{ "delivery",
	  "start of the write of a chunk - end of the step that gave what it holds; matched by "
	  "ordinal; where chunks hold several, by the earliest matching that leaves none empty" },
	{ "decode", "last_token_engine - first_token_engine" },
	{ "output_tokens_per_s.wall",
	  "output tokens in the capture / (end of the last request - start "
	  "of the first)" },
	{ "output_tokens_per_s.busy",
	  "output tokens in the capture / union of the engine's steps (of "
	  "its requests where no step was seen), summed over engines" },
	{ "by_prefix.warm", "at least half of the prompt's tokens came from the prefix cache: "
			    "2 * cached_tokens >= prompt_tokens" },
	{ NULL, NULL },
};

static const char *const finish_names[] = {
	NULL, "stop", "length", "tool_calls", "abort", "error", "content_filter",
};
static const char *const api_names[] = {
	"other", "chat", "completions", "responses", "messages", "llama", "embeddings", "ollama",
};
static const char *const method_names[] = {
	NULL, "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"
};
static const char *const where_names[] = { "unknown", "ring", "scratch", "parser", "limit" };

const char *finish_name(uint8_t finish)
{
	return finish < ARRAY_SIZE(finish_names) ? finish_names[finish] : NULL;
}

const char *api_name(uint8_t api)
{
	return api < ARRAY_SIZE(api_names) ? api_names[api] : "other";
}

const char *method_name(uint8_t method)
{
	return method < ARRAY_SIZE(method_names) ? method_names[method] : NULL;
}

const char *lost_where_name(uint16_t where)
{
	return where < ARRAY_SIZE(where_names) ? where_names[where] : where_names[0];
}

const struct rec_sequence *request_join(const struct model_view *v, const struct rec_request *r)
{
	const struct rec_sequence *weakest = NULL;

	for (size_t i = 0; i < r->n_seqs; i++) {
		const struct rec_sequence *q = &v->seqs[r->seqs[i]];

		if (!weakest || q->confidence_pct < weakest->confidence_pct)
			weakest = q;
	}
	return weakest;
}

const char *sequence_name(const struct model_view *v, uint32_t seq, char buf[24])
{
	const struct rec_sequence *q = &v->seqs[seq];

	if (q->req)
		snprintf(buf, 24, "r%u", v->requests[q->req - 1].req);
	else
		snprintf(buf, 24, "slot %u", q->slot);
	return buf;
}

static const char *end_reason(const struct rec_request *r, char *buf, size_t size)
{
	switch (r->how_ended) {
	case TL_END_SERVER:
		return "the server closed before the response was whole";
	case TL_END_LOST_SYNC:
		return "its connection could not be followed to the end";
	case TL_END_CAPTURE:
		return "its end was not seen";
	case TL_END_LIMIT:
		return "given up: too many requests at once for our tables";
	case TL_END_CLIENT:
		if (!r->n_chunks)
			return "the client went away before the first token";
		snprintf(buf, size, "the client went away after %zu chunk%s with tokens",
			 r->n_chunks, plural_s(r->n_chunks));
		return buf;
	default:
		return "";
	}
}

const char *request_reason(const struct rec_request *r, char *buf, size_t size)
{
	const char *why = "";
	char tmp[80];

	if (r->state == REQ_ERROR && r->status >= 400) {
		snprintf(tmp, sizeof(tmp), "HTTP %u", r->status);
		why = tmp;
	} else if (r->state == REQ_ERROR && r->how_ended == TL_END_COMPLETE) {
		why = "the response carries an error";
	} else if (r->state != REQ_COMPLETE && r->state != REQ_OPEN) {
		why = end_reason(r, tmp, sizeof(tmp));
	}
	if (r->joined_late)
		snprintf(buf, size, "its beginning was not seen%s%s", *why ? "; " : "", why);
	else
		snprintf(buf, size, "%s", why);
	return buf;
}

/* ---- notes ---- */

void say(const struct say *to, const char *fmt, ...)
{
	char sentence[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, ap);
	va_end(ap);
	to->fn(to->ctx, sentence);
}

/* "1 request was", "3 requests were" */
struct counted {
	char text[48];
};

static struct counted n_requests(size_t n, const char *one, const char *many)
{
	struct counted c;

	snprintf(c.text, sizeof(c.text), "%zu request%s %s", n, plural_s(n),
		 n == 1 ? one : many);
	return c;
}

static void note_losses(const struct model_view *v, const struct summary *s, const struct say *to)
{
	static const char *const why[] = {
		[0] = "for an unknown reason",
		[TL_LOST_RING] = "the kernel's ring buffer was full",
		[TL_LOST_SCRATCH] = "a table of the kernel side was full",
		[TL_LOST_PARSER] = "bytes that fit no protocol we know",
		[TL_LOST_LIMIT] = "a bounded table of the agent was full",
	};
	char back[UNITS_LEN];

	for (uint16_t w = 0; w < ARRAY_SIZE(why); w++) {
		uint64_t n = 0, since = UINT64_MAX, until = 0;
		size_t spans = 0;

		for (size_t i = 0; i < v->n_lost; i++) {
			const struct rec_lost *l = &v->lost[i];

			if ((l->where < ARRAY_SIZE(why) ? l->where : 0) != w)
				continue;
			n += l->n;
			spans++;
			since = l->since_ns < since ? l->since_ns : since;
			until = l->until_ns > until ? l->until_ns : until;
		}
		if (spans)
			say(to, "%" PRIu64 " event%s lost between %.1f and %.1f ms (%zu span%s): %s",
			    n, plural_s(n), ms_since(v, since), ms_since(v, until), spans,
			    plural_s(spans), why[w]);
	}
	if (s->n_gaps_lost)
		say(to,
		    "%zu gap%s between tokens %s left out, because events were lost inside",
		    s->n_gaps_lost, plural_s(s->n_gaps_lost), plural(s->n_gaps_lost, "is", "are"));
	if (v->n_unknown)
		say(to,
		    "%" PRIu64
		    " event%s of unknown kinds skipped: the recording is from a newer "
		    "version",
		    v->n_unknown, plural_s(v->n_unknown));
	if (v->n_numbers_twice)
		say(to, "%" PRIu64 " request%s the number of an earlier one, so what is said of either may be the other's: the "
		    "recording was put together or is damaged", v->n_numbers_twice, plural(v->n_numbers_twice, " has", "s have"));
	if (v->n_times_back)
		say(to, "%" PRIu64 " time%s the clock of the recording goes back, by up to %s: it was put together or is damaged, and "
		    "times across are wrong", v->n_times_back, plural_s(v->n_times_back), units_ns(back, v->most_back_ns));
	if (v->n_requests_not_kept)
		say(to, "%" PRIu64 " request%s beyond the limit of %zu: counted only",
		    v->n_requests_not_kept, plural_s(v->n_requests_not_kept), v->n_requests);
	if (v->n_joins_not_tried)
		say(to,
		    "%" PRIu64
		    " time%s a request and a sequence of the engine were not compared, as there are too "
		    "many of both: some may not have found each other",
		    v->n_joins_not_tried, plural_s(v->n_joins_not_tried));
	if (v->n_steps_not_kept)
		say(to, "%" PRIu64 " step%s beyond the limit of %zu: counted only",
		    v->n_steps_not_kept, plural_s(v->n_steps_not_kept), v->n_steps);
}

/* Which of a server's processes, and whether it chose to. */
static void note_exit(const struct model_view *v, const struct rec_engine *e, const struct say *to)
{
	int signal = e->exit_code & 0x7f, status = e->exit_code >> 8 & 0xff;
	const char *name = signal ? sigabbrev_np(signal) : NULL;
	char who[64] = "", how[48] = "";

	if (e->e.role[0])
		snprintf(who, sizeof(who), " (%s %s)", engine_kind_name(e->e.engine), e->e.role);
	if (name)
		snprintf(how, sizeof(how), ", killed by SIG%s", name);
	else if (signal)
		snprintf(how, sizeof(how), ", killed by signal %d", signal);
	else if (status)
		snprintf(how, sizeof(how), " with status %d", status);
	say(to, "pid %u%s exited at %.1f ms%s", e->e.hdr.tgid, who, ms_since(v, e->exit_ns), how);
}

static void note_capture(const struct model_view *v, const struct at_work *w, const struct say *to)
{
	if (!v->stop)
		say(to, "the capture has no end mark: it was cut off, or is still being written");
	else if (v->stop == TL_STOP_TARGET_EXIT)
		say(to, "the capture ended because the server exited");
	else if (v->stop == TL_STOP_ERROR)
		say(to, "the capture ended early, on an error");
	for (size_t i = 0; i < v->n_engines; i++) {
		const struct rec_engine *e = &v->engines[i];

		if (e->exit_ns)
			note_exit(v, e, to);
		/* libuv sets one up for files: then its requests are seen */
		if (e->io_uring && !w[i].requests)
			say(to, "pid %u uses io_uring: traffic on its sockets may be unseen",
			    e->e.hdr.tgid);
	}
}

struct request_counts {
	size_t late, capture_end, lost_sync, aborted_early, parallel, inferred_queue;
	size_t compressed, no_type, at_once;
	size_t streamed_unjoined, by_counts, by_order, uneven_chunks;
	uint64_t tokens, chunks;
};

/* Do as many chunks leave as there are tokens? Only then is a chunk a token. */
static void count_chunks(const struct rec_request *r, struct request_counts *c)
{
	size_t n = 0;

	if (r->state != REQ_COMPLETE || r->output.prov == PROV_NONE || !request_is_streamed(r))
		return;
	for (size_t i = 0; i < r->n_chunks; i++)
		n += chunk_is_token(&r->chunks[i]);
	c->tokens += r->output.n;
	c->chunks += n;
	/* the token that ends an answer is counted by engines and has no chunk of its own */
	c->uneven_chunks += r->output.n > n + 1 || n > r->output.n;
}

static void count_request(const struct model_view *v, const struct rec_request *r,
			  struct request_counts *c)
{
	const struct rec_sequence *join = request_join(v, r);
	bool has_tokens = r->api != TL_API_OTHER && r->api != TL_API_EMBEDDINGS;
	struct req_metrics m;

	request_metrics(v, r, &m);
	c->late += r->joined_late;
	c->capture_end += r->how_ended == TL_END_CAPTURE && !r->joined_late;
	c->lost_sync += r->how_ended == TL_END_LOST_SYNC || r->how_ended == TL_END_LIMIT;
	c->aborted_early += r->state == REQ_ABORTED && !r->joined_late && !r->n_chunks &&
			    request_is_streamed(r);
	c->parallel += r->n > 1 && r->state != REQ_ERROR;
	c->at_once += r->state == REQ_COMPLETE && !r->joined_late && r->n <= 1 && r->output.n > 1 &&
		      r->n_chunks && r->at_ns[P_FIRST_TOKEN_WIRE] == r->at_ns[P_LAST_TOKEN_WIRE];
	c->compressed += r->encoded && has_tokens && r->status < 400;
	c->no_type += !r->encoded && r->body == TL_BODY_OTHER && r->stream > 0 && has_tokens &&
		      !r->n_chunks && r->state == REQ_COMPLETE;
	c->inferred_queue += m.queue_ns >= 0 && !r->at_ns[P_SUBMIT];
	c->streamed_unjoined += !join && r->state != REQ_ERROR && has_tokens && r->n_chunks;
	c->by_counts += join && join->join == JOIN_COUNTS;
	c->by_order += join && join->join == JOIN_ORDER;
	count_chunks(r, c);
}

static void note_requests(const struct model_view *v, const struct summary *s,
			  const struct request_counts *c, const struct say *to)
{
	const char *or_lost = v->n_lost ? ", or the events that tell were lost" : "";

	if (v->n_conns_tls)
		say(to, "%" PRIu64 " connection%s encrypted (TLS): what %s carried was not read", v->n_conns_tls,
		    plural(v->n_conns_tls, " is", "s are"), plural(v->n_conns_tls, "it", "they"));
	if (c->late)
		say(to, "%s under way when the capture began%s: gaps only, no TTFT, TPOT or e2e",
		    n_requests(c->late, "was", "were").text, or_lost);
	if (c->capture_end)
		say(to, "%s still under way when the capture stopped%s",
		    n_requests(c->capture_end, "was", "were").text, or_lost);
	if (c->lost_sync)
		say(to, "%s not followed to the end", n_requests(c->lost_sync, "was", "were").text);
	if (s->n_non_streaming)
		say(to,
		    "%s not streamed: no TTFT, TPOT or gaps on the wire, engine-side points only",
		    n_requests(s->n_non_streaming, "was", "were").text);
	if (c->aborted_early)
		say(to, "%s aborted before the first token: that wait is in no percentile of TTFT",
		    n_requests(c->aborted_early, "was", "were").text);
	if (s->n_state[REQ_ERROR] > s->n_cut)
		say(to, "%s in an error: not in any percentile",
		    n_requests(s->n_state[REQ_ERROR] - s->n_cut, "ended", "ended").text);
	if (s->n_cut)
		say(to, "%s cut short by the server: what is known of %s is in the percentiles",
		    n_requests(s->n_cut, "was", "were").text, plural(s->n_cut, "it", "them"));
	if (c->parallel)
		say(to,
		    "%s for several answers at once (n > 1): no TPOT and no gaps between chunks, "
		    "these would mix the answers",
		    n_requests(c->parallel, "asked", "asked").text);
	if (c->at_once)
		say(to, "%s all tokens in one write: no TPOT",
		    n_requests(c->at_once, "got", "got").text);
	if (c->compressed)
		say(to,
		    "%s compressed answers (Content-Encoding): no token of these is seen on the wire, "
		    "so no TTFT, TPOT or gaps there",
		    n_requests(c->compressed, "got", "got").text);
	if (c->no_type)
		say(to,
		    "%s for a stream and got an answer that is none by its Content-Type: no token of "
		    "these is seen on the wire",
		    n_requests(c->no_type, "asked", "asked").text);
	if (c->uneven_chunks)
		say(to,
		    "%" PRIu64 " token%s left in %" PRIu64
		    " chunk%s: gaps between chunks are not gaps "
		    "between tokens",
		    c->tokens, plural_s(c->tokens), c->chunks, plural_s(c->chunks));
	if (s->n_multi_token_steps)
		say(to,
		    "%zu time%s a step gave a sequence several tokens at once: ITL counts one gap "
		    "per step, TPOT is per token",
		    s->n_multi_token_steps, plural_s(s->n_multi_token_steps));
	if (c->inferred_queue)
		say(to,
		    "queue of %s counted from req_last_byte, as submit was not seen: it includes "
		    "parsing and tokenizing",
		    n_requests(c->inferred_queue, "is", "is").text);
}

/* What the answers about schedulers rest on. */
static void note_schedulers(const struct model_view *v, const struct summary *s, const struct at_work *w, const struct say *to)
{
	size_t guesses = 0, inferred = 0, n_unseen = 0;
	char unseen[160] = "";

	for (uint32_t i = 0; i < v->n_engines; i++)
		if (v->engines[i].e.engine == TL_ENGINE_VLLM && w[i].steps && !w[i].stats)
			say(to,
			    "pid %u says nothing of its scheduler (--disable-log-stats?): how many wait, how full the KV cache "
			    "is, its own queued time and its count of preemptions are unknown; what is said of these is "
			    "inferred from its steps",
			    v->engines[i].e.hdr.tgid);
	for (size_t i = 0; i < v->n_members; i++)
		guesses += v->members[i].guess;
	for (size_t i = 0; i < v->n_seqs; i++)
		for (size_t k = 0; k < v->seqs[i].n_preemptions; k++)
			inferred += v->seqs[i].preemptions[k].prov == PROV_INFERRED;
	for (size_t i = 0; i < v->n_requests; i++)
		n_unseen += request_prompt_unseen(v, &v->requests[i]) > 0;
	if (n_unseen)
		snprintf(unseen, sizeof(unseen), "; %" PRIu64 " token%s of %zu prompt%s %s in none: cached, or counted to another step "
			 "or member", s->prompt_unseen, plural_s(s->prompt_unseen), n_unseen, plural_s(n_unseen),
			 plural(s->prompt_unseen, "is", "are"));
	if (guesses)
		say(to, "%zu of %zu member%s of steps %s inferred and not certain: \"p?\" in --json%s",
		    guesses, v->n_members, plural_s(v->n_members), plural(guesses, "is", "are"), unseen);
	if (inferred)
		say(to, "%zu preemption%s inferred from steps: who computes again, or is in none of them",
		    inferred, plural(inferred, " is", "s are"));
}

static void note_steps(const struct model_view *v, const struct summary *s,
		       const struct request_counts *c, const struct say *to)
{
	if (!s->steps_seen && v->n_requests) {
		say(to, "no engine step was seen: queue, prefill and gaps per token are unknown");
		for (size_t i = 0; i < v->n_engines; i++)
			if (v->engines[i].e.step_source[0])
				say(to, "steps of pid %u: %.48s", v->engines[i].e.hdr.tgid,
				    v->engines[i].e.step_source);
		return;
	}
	if (s->steps_seen > s->steps_with_members)
		say(to, "%" PRIu64 " of %" PRIu64 " step%s %s members",
		    s->steps_seen - s->steps_with_members, s->steps_seen, plural_s(s->steps_seen),
		    plural(s->steps_seen - s->steps_with_members, "was seen without its", "were seen without their"));
	if (c->streamed_unjoined)
		say(to, "%s joined to no sequence of the engine: wire points only",
		    n_requests(c->streamed_unjoined, "is", "are").text);
	if (c->by_counts)
		say(to, "%s joined to a sequence by token counts: no other pairing fits",
		    n_requests(c->by_counts, "is", "are").text);
	if (c->by_order)
		say(to,
		    "%s joined to a sequence by order of arrival: other pairings fit too, see join",
		    n_requests(c->by_order, "is", "are").text);
	if (s->steps_seen && s->matched_tokens_pct >= 0 && s->matched_tokens_pct < 99.95)
		say(to, "%.1f %% of the tokens in steps belong to no request that was seen",
		    100 - s->matched_tokens_pct);
}

int notes_each(const struct model_view *v, const struct summary *s, note_fn fn, void *ctx)
{
	struct say to = { fn, ctx };
	struct request_counts c = { 0 };
	struct at_work *w;
	int err = at_work(v, &w);

	if (err)
		return err;
	for (size_t i = 0; i < v->n_requests; i++)
		count_request(v, &v->requests[i], &c);
	note_losses(v, s, &to);
	note_capture(v, w, &to);
	note_requests(v, s, &c, &to);
	note_steps(v, s, &c, &to);
	note_schedulers(v, s, w, &to);
	note_health(v, &to);
	free(w);
	return 0;
}
