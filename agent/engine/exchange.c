/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP exchange with an LLM: what its bytes mean, as semantic events. */
#include "base/str.h"
#include "base/util.h"
#include "engine/wire_priv.h"
#include "parse/json_cut.h"
#include "parse/token_flags.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HDR(type, kind_, flags_, c, tid_, ns) \
	{ .size = sizeof(struct type), .kind = (kind_), .flags = (flags_), .tgid = (c)->tgid, \
	  .tid = (tid_), .ts_ns = (ns) }

/* When the bytes of the event that is being fed arrived: not before their
 * connection, nor before us. */
static uint64_t arrival_ns(const struct wire *w, const struct conn *c)
{
	uint64_t earliest = c->open_ns > w->begin_ns ? c->open_ns : w->begin_ns;

	if (earliest < w->now_ns && w->waited_ns < w->now_ns - earliest)
		return w->now_ns - w->waited_ns;
	return earliest;
}

struct exchange *exchange_new(struct wire *w, struct conn *c)
{
	struct exchange *x;

	if (c->n_under_way >= MAX_PIPELINE) {
		w->stats.refused++;
		return NULL;
	}
	x = calloc(1, sizeof(*x));
	if (!x) {
		w->err = -ENOMEM;
		return NULL;
	}
	x->tid = w->tid;
	x->first_byte_ns = w->waited_ns ? arrival_ns(w, c) : w->now_ns;
	cutbuf__init(&x->text, BODY_HEAD, BODY_TAIL);
	if (c->last)
		c->last->next = x;
	else
		c->first = x;
	c->last = x;
	c->n_under_way++;
	w->stats.requests_now++;
	return x;
}

/* The thread that read the request works on it. */
static void remember_thread(struct wire *w, const struct exchange *x)
{
	uint32_t *of_thread = map__put(w->threads, x->tid, NULL);

	if (!of_thread) {	/* full of threads long gone: begin anew */
		uint64_t oldest;

		if (map__oldest(w->threads, &oldest))
			map__del(w->threads, oldest);
		of_thread = map__put(w->threads, x->tid, NULL);
	}
	if (of_thread)
		*of_thread = x->req;
}

void exchange_announce(struct wire *w, struct conn *c, struct exchange *x, bool joined)
{
	x->req = ++w->n_reqs;
	x->announced = true;
	x->joined = joined;
	w->stats.requests++;
	struct tl_req_begin ev = {
		.hdr = HDR(tl_req_begin, TL_REQ_BEGIN, x->api | (joined ? TL_F_JOINED : 0), c, x->tid,
			   x->first_byte_ns),
		.req = x->req, .conn = c->conn, .conn_open_ns = c->open_ns,
	};
	wire_emit(w, &ev.hdr);
	if (!joined && x == c->first)	/* pipelined ones wait for those before them */
		remember_thread(w, x);
}

static void read_body(struct exchange *x, struct cut_json *ret)
{
	ret->data = cutbuf__join(&x->text, &ret->head, &ret->len);
	ret->total = cutbuf__total(&x->text);
	if (!ret->data)
		ret->data = "";
}

/* Requests that are no LLM's can keep one waiting, or stop the whole server. Their paths may name
 * anything: these name nobody. */
static bool is_plain_path(const char *path)
{
	static const char *const plain[] = {
		"/metrics", "/health", "/tokenize", "/detokenize", "/v1/models", "/slots", "/props",
		"/v1/messages/count_tokens", "/v1/chat/completions/render", "/v1/completions/render",
		"/pause", "/resume", "/sleep", "/wake_up", "/abort_requests", "/update_weights",
		"/collective_rpc", "/reset_prefix_cache", "/start_profile", "/stop_profile",
	};

	for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
		if (!strcmp(path, plain[i]))
			return true;
	return false;
}

static void say_names(const struct exchange *x, struct tl_req_facts *ev)
{
	const char *id = x->head->x_request_id;

	str_copy_clean(ev->x_request_id, sizeof(ev->x_request_id), id, strlen(id));
	memcpy(ev->traceparent, x->head->traceparent, sizeof(ev->traceparent));
}

/* An engine goes by all of it, so one that did not fit names nobody: others may begin alike.
 * Servers of the ASGI kind read its bytes as Latin-1. */
static void say_x_request_id(struct wire *w, struct conn *c, const struct exchange *x)
{
	const char *s = x->head->x_request_id;
	char id[2 * sizeof(x->head->x_request_id)];
	size_t n = 0;

	if (!*s || strlen(s) == sizeof(x->head->x_request_id) - 1 || !w->opts.on_id)
		return;
	for (; *s; s++)
		n += utf8_put(id + n, (unsigned char)*s);
	id[n] = '\0';
	w->opts.on_id(w->opts.ctx, c->tgid, x->req, id, false);
}

/* What is known of a request whose head was read. */
static void say_facts(struct wire *w, struct conn *c, struct exchange *x, uint32_t flags,
		      uint64_t ns)
{
	struct tl_req_facts ev = {
		.hdr = HDR(tl_req_facts, TL_REQ_FACTS, flags, c, w->tid, ns),
		.req = x->req, .max_tokens = -1, .api = x->api, .stream = -1, .method = x->method,
		.body_bytes = cutbuf__total(&x->text),
	};
	struct llm_request facts;
	struct cut_json body;

	if (x->api != TL_API_OTHER) {
		read_body(x, &body);
		llmapi_request(x->api, &body, &facts);
		ev.api = x->api = facts.api;
		ev.max_tokens = facts.max_tokens;
		ev.n = facts.n;
		ev.stream = facts.stream;
		ev.hdr.flags |= facts.cut || flags ? TL_F_TRUNC : 0;
		memcpy(ev.model, facts.model, sizeof(ev.model));
		memcpy(ev.path, x->head->path, sizeof(ev.path));
		say_names(x, &ev);
		wire_emit(w, &ev.hdr);
		say_x_request_id(w, c, x);
	} else if (is_plain_path(x->head->path)) {
		memcpy(ev.path, x->head->path, sizeof(ev.path));
		say_names(x, &ev);
		wire_emit(w, &ev.hdr);
	}
	cutbuf__free(&x->text);	/* the text of a prompt is not kept a moment longer */
	free(x->head);
	x->head = NULL;
}

void exchange_request_done(struct wire *w, struct conn *c, struct exchange *x)
{
	say_facts(w, c, x, 0, w->now_ns);
}

/* Compressed, as a middleware or a proxy does it: a chunk is there once the
 * client can tell what it is. */
static bool can_gunzip(struct wire *w, struct exchange *x, const struct http1_head *head)
{
	if (!head->gzip || head->body == TL_BODY_OTHER || (x->api == TL_API_OTHER && !x->joined) ||
	    w->n_gunzips == MAX_GUNZIPS)
		return false;
	x->gunzip = gunzip__new();
	if (!x->gunzip)
		w->err = -ENOMEM;
	w->n_gunzips += x->gunzip != NULL;
	return x->gunzip;
}

void exchange_response_head(struct wire *w, struct conn *c, struct exchange *x,
			    const struct http1_head *head)
{
	bool encoded = head->encoded && head->body != TL_BODY_NONE && !can_gunzip(w, x, head);
	uint32_t flags = encoded ? TL_RESP_ENCODED : 0;
	struct tl_resp_begin ev = {
		.hdr = HDR(tl_resp_begin, TL_RESP_BEGIN, flags, c, w->tid, w->now_ns),
		.req = x->req, .status = head->status, .body = head->body,
	};

	/* Before the request's end: a refusal. A stream may begin so early, and
	 * the rest be read meanwhile. */
	if (x->head && (head->status >= 400 || head->body != TL_BODY_SSE))
		say_facts(w, c, x, TL_FACTS_UNREAD, w->now_ns);
	x->status = head->status;
	x->body = encoded ? TL_BODY_OTHER : head->body;
	wire_emit(w, &ev.hdr);
}

/* Servers that count each of several answers by itself say so as it ends: these add up. A chunk of
 * counts without an end is of the whole. */
static void merge_counts(struct exchange *x, const struct llm_chunk *ch)
{
	struct llm_usage before = x->last->usage, *sum = &x->last->usage;
	bool of_one = ch->flags & TL_CHUNK_FINISH && ch->usage.known & TL_USAGE_OUTPUT;

	llm_usage_merge(sum, &ch->usage);
	if (!of_one)
		return;
	if (x->n_ended++ == 0)
		return;
	sum->output = before.output + ch->usage.output;
	if (before.prompt > sum->prompt)
		sum->prompt = before.prompt;	/* the others may have shared it */
}

/* Gathers what a chunk reports for the TL_USAGE at the end. */
static void gather(struct wire *w, struct exchange *x, const struct llm_chunk *ch)
{
	char id[WIRE_ID];

	if (!ch->usage.known && !ch->finish && !(ch->id[0] && (!x->last || !x->last->id[0])))
		return;
	if (!x->last) {
		x->last = calloc(1, sizeof(*x->last));
		if (!x->last) {
			w->err = -ENOMEM;
			return;
		}
	}
	merge_counts(x, ch);
	if (ch->finish)
		x->last->finish = ch->finish;
	if (!ch->id[0])
		return;
	if (!x->last->id[0] && w->opts.on_id &&
	    json_unescape(ch->id_text, ch->id_len, id, sizeof(id)))
		w->opts.on_id(w->opts.ctx, w->c->tgid, x->req, id, true);
	memcpy(x->last->id, ch->id, sizeof(ch->id));
}

static void on_chunk(struct wire *w, struct conn *c, struct exchange *x, const char *event,
		     const struct cut_json *data)
{
	struct llm_chunk ch;

	if (x->api == TL_API_OTHER && x->joined)
		x->api = llmapi_guess(event, data);
	if (x->api == TL_API_OTHER)
		return;
	llmapi_chunk(x->api, event, data, &ch);
	if (ch.flags & TL_CHUNK_ERROR)
		x->failed = true;
	if (ch.flags & (TL_CHUNK_FINISH | TL_CHUNK_DONE))
		x->finished = true;
	struct tl_chunk ev = {
		.hdr = HDR(tl_chunk, TL_CHUNK, ch.flags, c, w->tid, w->now_ns),
		.req = x->req, .bytes = data->total < UINT32_MAX ? data->total : UINT32_MAX,
		.n_tokens = ch.n_tokens, .choice = ch.choice,
		.write_us = w->write_us < UINT16_MAX ? w->write_us : UINT16_MAX,
	};
	w->stats.chunks++;
	w->stats.tokens += flags_may_be_token(ch.flags);
	wire_emit(w, &ev.hdr);
	gather(w, x, &ch);
}

static void on_sse(void *ctx, const struct sse_event *e)
{
	struct wire *w = ctx;
	struct cut_json data = { e->data, e->head, e->len, e->total };

	if (data.total)
		on_chunk(w, w->c, w->c->first, e->event, &data);
}

/* Of the answer at hand, as the client reads it. */
static void read_body_bytes(void *ctx, const char *data, size_t len)
{
	struct wire *w = ctx;
	struct exchange *x = w->c->first;

	switch (x->body) {
	case TL_BODY_SSE:
	case TL_BODY_JSONL:
		if (!x->sse && x->body == TL_BODY_SSE)
			x->sse = sse__new(SSE_HEAD, SSE_TAIL);
		else if (!x->sse)
			x->sse = sse__new_lines(SSE_HEAD, SSE_TAIL);
		if (!x->sse || sse__feed(x->sse, data, len, on_sse, w) < 0)
			w->err = -ENOMEM;
		return;
	case TL_BODY_JSON:
		if ((x->api != TL_API_OTHER || x->joined) && cutbuf__add(&x->text, data, len))
			w->err = -ENOMEM;
		return;
	}
}

/* It is no such thing, or bytes of it were not seen: what the rest says cannot be told any more. */
static void stop_gunzip(struct wire *w, struct exchange *x)
{
	struct tl_lost ev = {
		.hdr = HDR(tl_lost, TL_LOST, 0, w->c, w->tid, w->now_ns),
		.n = 1, .since_ns = w->now_ns, .where = TL_LOST_PARSER, .what = TL_RAW_NET,
	};

	x->body = TL_BODY_OTHER;
	wire_emit(w, &ev.hdr);
}

void exchange_response_body(struct wire *w, struct conn *c, struct exchange *x, const char *data,
			    size_t len)
{
	if (c->peer_eof_ns && w->now_ns != x->behind_eof_ns && x->n_behind_eof < UINT8_MAX) {
		x->behind_eof_ns = w->now_ns;
		x->n_behind_eof++;
	}
	if (x->gunzip && x->body != TL_BODY_OTHER) {
		if (gunzip__feed(x->gunzip, data, len, read_body_bytes, w))
			stop_gunzip(w, x);
	} else {
		read_body_bytes(w, data, len);
	}
}

void exchange_response_gap(struct wire *w, struct conn *c, struct exchange *x, uint64_t len)
{
	(void)c;
	if (x->gunzip && x->body != TL_BODY_OTHER)
		stop_gunzip(w, x);
	else if (x->sse)
		sse__gap(x->sse, len);
	else
		cutbuf__gap(&x->text, len);
}

static void report_usage(struct wire *w, struct conn *c, struct exchange *x, uint64_t ns)
{
	struct llm_usage *u;

	if (!x->last)
		return;
	u = &x->last->usage;
	struct tl_usage ev = {
		.hdr = HDR(tl_usage, TL_USAGE, u->known, c, w->tid, ns),
		.req = x->req, .prompt = u->prompt, .cached = u->cached, .output = u->output,
		.reasoning = u->reasoning, .draft = u->draft, .draft_accepted = u->draft_accepted,
		.slot = u->known & TL_USAGE_SLOT ? u->slot : -1,
		.prefill_ns = u->prefill_ns, .decode_ns = u->decode_ns, .finish = x->last->finish,
	};
	memcpy(ev.id, x->last->id, sizeof(ev.id));
	wire_emit(w, &ev.hdr);
}

/* An answer that was not streamed: its counts stand in the body. */
static void read_answer(struct wire *w, struct exchange *x)
{
	struct llm_chunk ch;
	struct cut_json body;

	if (x->body != TL_BODY_JSON || !cutbuf__total(&x->text))
		return;
	read_body(x, &body);
	if (x->api == TL_API_OTHER)
		x->api = llmapi_guess("", &body);
	if (x->api == TL_API_OTHER)
		return;
	llmapi_body(x->api, &body, &ch);
	if (ch.flags & TL_CHUNK_ERROR)
		x->failed = true;
	if (ch.usage.known || ch.finish)
		x->finished = true;
	gather(w, x, &ch);
}

/* A server that notices that its client left may still end the response as HTTP wants it: an empty
 * last chunk, or a body of no bytes (both seen on llama.cpp). The answer is not whole for that. A
 * client that only closed its sending side gets the whole of it. */
static bool was_abandoned(const struct conn *c, const struct exchange *x)
{
	enum { HALF_CLOSED = 2 };	/* writes that a peer took which
					 * had closed: it still listens */

	return c->peer_eof_ns && x->api != TL_API_OTHER && !x->finished && x->status < 400 &&
	       (c->peer_reset || x->n_behind_eof < HALF_CLOSED);
}

void exchange_free(struct wire *w, struct exchange *x)
{
	w->n_gunzips -= x->gunzip != NULL;
	gunzip__free(x->gunzip);
	cutbuf__free(&x->text);
	sse__free(x->sse);
	free(x->last);
	free(x->head);
	free(x);
}

void exchange_drop_unread(struct wire *w, struct conn *c)
{
	struct exchange *x = c->last, **at = &c->first;

	if (!x || x->announced)
		return;
	c->last = NULL;
	for (; *at != x; at = &(*at)->next)
		c->last = *at;
	*at = NULL;
	c->n_under_way--;
	w->stats.requests_now--;
	exchange_free(w, x);
}

void exchange_end(struct wire *w, struct conn *c, uint16_t how, uint64_t ns)
{
	struct exchange *x = c->first;

	if (x->announced) {
		if (x->head)
			say_facts(w, c, x, TL_FACTS_UNREAD, ns);
		if (how == TL_END_COMPLETE) {
			read_answer(w, x);
			if (was_abandoned(c, x)) {
				how = TL_END_CLIENT;
				ns = c->peer_eof_ns;
			}
		}
		if (x->failed) {
			if (!x->last)
				x->last = calloc(1, sizeof(*x->last));
			if (x->last)
				x->last->finish = TL_FINISH_ERROR;
		}
		report_usage(w, c, x, ns);
		struct tl_req_end ev = {
			.hdr = HDR(tl_req_end, TL_REQ_END, 0, c, w->tid, ns),
			.req = x->req, .how = how, .status = x->status,
			.bytes_in = x->bytes_in, .bytes_out = x->bytes_out,
		};
		wire_emit(w, &ev.hdr);
	}
	c->first = x->next;
	if (!c->first)
		c->last = NULL;
	else if (c->first->announced && !c->first->joined)
		remember_thread(w, c->first);
	c->n_under_way--;
	w->stats.requests_now--;
	exchange_free(w, x);
}
