/* SPDX-License-Identifier: Apache-2.0 */
/* What one event of a stream, or a whole answer, carries. One walk over the JSON knows the fields
 * of every format: they do not collide, and a path that was guessed wrong does no harm. */
#include "parse/llmapi_walk.h"

static void usage(struct walk *w, struct json *j)
{
	w->counted |= json_peek(j) == '{';
	llm_counts_usage(&w->counts, j);
}

/* {"reason":"max_output_tokens"} */
static void incomplete(struct walk *w, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "reason"))
			walk_finish(w, j);
		else
			json_skip(j);
	}
}

/* The id of the answer. */
static void id(struct walk *w, struct json *j)
{
	const char *at = json_peek(j) == '"' ? j->p + 1 : NULL;

	if (!json_string(j, w->c->id, sizeof(w->c->id)))
		return;
	w->c->id_text = at;
	w->c->id_len = j->p - 1 - at;
}

/* A member of the response object of OpenAI responses: inside events, or the whole body. */
static bool response_member(struct walk *w, struct json *j, struct json_key k)
{
	char word[16];

	if (KEY_IS(k, "id")) {
		id(w, j);
	} else if (KEY_IS(k, "usage")) {
		usage(w, j);
	} else if (KEY_IS(k, "error")) {
		walk_error(w, j);
	} else if (KEY_IS(k, "incomplete_details")) {
		incomplete(w, j);
	} else if (KEY_IS(k, "status")) {
		/* incomplete gets its finish from the details */
		if (json_string(j, word, sizeof(word)) && strcmp(word, "in_progress") &&
		    strcmp(word, "queued")) {
			w->c->flags |= TL_CHUNK_FINISH;
			if (strcmp(word, "incomplete"))
				w->c->finish = llm_finish(word);
		}
	} else {
		return false;
	}
	return true;
}

static void response_members(struct walk *w, struct json *j)
{
	struct json_key k;

	while (json_key(j, &k))
		if (!response_member(w, j, k))
			json_skip(j);
}

/* The message object: of Anthropic's message_start, with id and usage, or of Ollama. */
static void message(struct walk *w, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "id"))
			id(w, j);
		else if (KEY_IS(k, "usage"))
			usage(w, j);
		else if (!walk_delta_member(w, j, k))
			json_skip(j);
	}
}

/* Items of a whole OpenAI response: messages, reasoning, calls. */
static void output(struct walk *w, struct json *j)
{
	struct json_key k;
	char type[32];

	if (!json_array(j))
		return;
	while (json_element(j)) {
		if (!json_object(j))
			continue;
		while (json_key(j, &k)) {
			if (KEY_IS(k, "content"))
				walk_parts(w, j);
			else if (!KEY_IS(k, "type"))
				json_skip(j);
			else if (!json_string(j, type, sizeof(type)))
				continue;
			else if (strstr(type, "_call"))
				w->c->flags |= TL_CHUNK_TOOL;
			else if (!strcmp(type, "reasoning"))
				w->c->flags |= TL_CHUNK_REASONING;
		}
	}
}

static void count(struct json *j, int64_t *ret)
{
	int64_t n;

	if (json_number(j, 0, &n) && n >= 0)
		*ret = n;
}

static void flag(struct walk *w, struct json *j, uint32_t flags, uint8_t how)
{
	bool yes = false;

	if (!json_bool(j, &yes) || !yes)
		return;
	w->c->flags |= flags;
	if (how && !w->c->finish)
		w->c->finish = how;
}

/* Fields of llama.cpp's own format. */
static bool llama_member(struct walk *w, struct json *j, struct json_key k)
{
	if (KEY_IS(k, "stop"))	/* of this choice: the stream itself just ends */
		flag(w, j, TL_CHUNK_FINISH, 0);
	else if (KEY_IS(k, "id_slot") || KEY_IS(k, "slot_id"))
		count(j, &w->counts.slot);
	else if (KEY_IS(k, "tokens_predicted"))
		count(j, &w->counts.predicted);
	else if (KEY_IS(k, "tokens_evaluated"))
		count(j, &w->counts.evaluated);
	else if (KEY_IS(k, "stop_type"))
		walk_finish(w, j);
	else if (KEY_IS(k, "stopped_eos") || KEY_IS(k, "stopped_word"))
		flag(w, j, TL_CHUNK_FINISH, TL_FINISH_STOP);
	else if (KEY_IS(k, "stopped_limit"))
		flag(w, j, TL_CHUNK_FINISH, TL_FINISH_LENGTH);
	else
		return false;
	return true;
}

/* Fields of Ollama's own format; its durations are in ns. */
static bool ollama_member(struct walk *w, struct json *j, struct json_key k)
{
	if (KEY_IS(k, "done"))
		flag(w, j, TL_CHUNK_FINISH | TL_CHUNK_DONE, 0);
	else if (KEY_IS(k, "done_reason"))
		walk_finish(w, j);
	else if (KEY_IS(k, "prompt_eval_count"))
		count(j, &w->counts.prompt);
	else if (KEY_IS(k, "eval_count"))
		count(j, &w->counts.output);
	else if (KEY_IS(k, "prompt_eval_duration"))
		count(j, &w->counts.prompt_ns);
	else if (KEY_IS(k, "eval_duration"))
		count(j, &w->counts.predicted_ns);
	else
		return false;
	return true;
}

static void top_member(struct walk *w, struct json *j, struct json_key k)
{
	struct llm_chunk *c = w->c;

	if (KEY_IS(k, "choices")) {
		walk_choices(w, j);
	} else if (KEY_IS(k, "id") ||
		   (KEY_IS(k, "request_id") && w->api == TL_API_COMPLETIONS && !c->id[0])) {
		id(w, j);
	} else if (KEY_IS(k, "created") || KEY_IS(k, "model")) {
		json_skip(j);
	} else if (KEY_IS(k, "object")) {
		/* what vLLM called its errors */
		if (json_peek(j) == '"' && j->end - j->p > 7 && !memcmp(j->p, "\"error\"", 7))
			walk_failed(w);
		json_skip(j);
	} else if (KEY_IS(k, "usage")) {
		usage(w, j);
	} else if (KEY_IS(k, "timings")) {
		w->counted |= json_peek(j) == '{';
		llm_counts_timings(&w->counts, j);
	} else if (KEY_IS(k, "content")) {
		walk_content(w, j);
	} else if (KEY_IS(k, "error")) {
		walk_error(w, j);
	} else if (KEY_IS(k, "type")) {
		json_string(j, w->type, sizeof(w->type));
	} else if (KEY_IS(k, "delta")) {
		if (json_peek(j) == '{')
			walk_delta(w, j);
		else
			w->delta = json_has_text(j);
	} else if (KEY_IS(k, "message")) {
		if (json_peek(j) == '{')
			message(w, j);
		else
			json_skip(j);
	} else if (KEY_IS(k, "content_block")) {
		walk_delta(w, j);
		w->empty = false;	/* a block opens with "", its text comes in deltas */
	} else if (KEY_IS(k, "response")) {
		if (json_peek(j) != '{')
			walk_text(w, j, TL_CHUNK_TEXT);
		else if (json_object(j))
			response_members(w, j);
	} else if (KEY_IS(k, "prompt_progress")) {
		c->flags |= json_peek(j) == '{' ? TL_CHUNK_PROGRESS : 0;
		llm_counts_progress(&w->counts, j);
	} else if (KEY_IS(k, "index") && w->api == TL_API_LLAMA) {
		walk_index(w, j);
	} else if (KEY_IS(k, "thinking")) {
		walk_text(w, j, TL_CHUNK_REASONING);
	} else if (KEY_IS(k, "stop_reason")) {
		walk_finish(w, j);
	} else if (KEY_IS(k, "output")) {
		output(w, j);
	} else if (KEY_IS(k, "detail")) {
		w->detail = true;
		json_skip(j);
	} else if (w->api == TL_API_RESPONSES && response_member(w, j, k)) {
		return;
	} else if (w->api == TL_API_OLLAMA && ollama_member(w, j, k)) {
		return;
	} else if (!llama_member(w, j, k)) {
		json_skip(j);
	}
}

static void top(struct walk *w, struct json *j)
{
	struct json_key k;

	while (json_key(j, &k))
		top_member(w, j, k);
}

/* What comes behind a hole: members of the outermost object, and of what was cut inside it. */
static void tail(struct walk *w, const char *p, const char *end)
{
	const char *inner[4];
	struct json j;

	json_init(&j, json_tail(p, end, inner, 4), end);
	top(w, &j);
	for (size_t i = 0; i < 4 && inner[i]; i++) {
		json_init(&j, inner[i], end);
		if (w->api == TL_API_RESPONSES)
			response_members(w, &j);
		else
			walk_choice_members(w, &j);
	}
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !memcmp(s + n - m, end, m);
}

/* Formats whose events have a type: it says what the string named delta is, and where it ends. */
static void typed(struct walk *w, const char *type)
{
	struct llm_chunk *c = w->c;
	uint32_t kind = TL_CHUNK_TEXT;

	if (!strcmp(type, "error")) {
		walk_failed(w);
	} else if (!strcmp(type, "message_start")) {
		w->counts.output = -1;	/* a placeholder */
	} else if (!strcmp(type, "message_stop") || !strcmp(type, "message-end")) {
		c->flags |= TL_CHUNK_DONE;
	} else if (!strcmp(type, "response.completed") || !strcmp(type, "response.incomplete") ||
		   !strcmp(type, "response.failed") || !strcmp(type, "response.cancelled")) {
		c->flags |= TL_CHUNK_FINISH | TL_CHUNK_DONE;
		if (!c->finish)
			c->finish = llm_finish(type + 9);
		if (c->finish == TL_FINISH_ERROR)
			c->flags |= TL_CHUNK_ERROR;
	} else if (ends_with(type, ".delta") && w->delta >= 0) {
		if (strstr(type, "reasoning"))
			kind = TL_CHUNK_REASONING;
		else if (strstr(type, "_call"))
			kind = TL_CHUNK_TOOL;
		if (w->delta)
			c->flags |= kind;
		else
			w->empty = true;
	}
}

static void conclude(struct walk *w)
{
	struct llm_chunk *c = w->c;

	if (c->flags & TL_CHUNK_PROGRESS) {
		/* llama.cpp dresses these up as a first token, with timings of a prompt half
		 * done. */
		c->flags &= ~(TL_CHUNK_ROLE | TL_CHUNK_TOKEN);
		c->n_tokens = 0;
		w->counted = w->empty = false;
		w->counts.cache_n = w->counts.prompt_n = w->counts.predicted_n = -1;
		w->counts.prompt_ns = w->counts.predicted_ns = w->counts.predicted = -1;
	}
	if (!c->usage.known)
		llm_counts_merge(&w->counts, &c->usage);
	if (w->counted || (c->usage.known && c->flags & TL_CHUNK_FINISH))
		c->flags |= TL_CHUNK_USAGE;
	if ((w->empty || c->n_tokens) && !(c->flags & TL_CHUNK_TOKEN))
		c->flags |= TL_CHUNK_EMPTY;
	if (w->detail && !c->flags)
		walk_failed(w);
	if (!c->flags)
		c->flags = TL_CHUNK_OTHER;
}

/* llama.cpp answers several prompts with an array of answers: their counts add up. */
static void answers(struct walk *w, struct json *j)
{
	struct llm_usage *sum = &w->c->usage;

	if (!json_array(j))
		return;
	while (json_element(j)) {
		struct llm_usage one = { 0 };

		if (!json_object(j))
			continue;
		llm_counts_init(&w->counts);
		top(w, j);
		llm_counts_merge(&w->counts, &one);
		sum->known |= one.known & ~TL_USAGE_SLOT;	/* there are several */
		sum->prompt += one.prompt;
		sum->cached += one.cached;
		sum->output += one.output;
		sum->draft += one.draft;
		sum->draft_accepted += one.draft_accepted;
		sum->prefill_ns += one.prefill_ns;
		sum->decode_ns += one.decode_ns;
	}
}

static void read_json(enum tl_api api, const char *event, const struct cut_json *data,
		 struct llm_chunk *ret)
{
	struct llm_parts p = llm_parts(data);
	struct walk w = { .c = ret, .api = api, .delta = -1 };
	struct json j;

	llm_counts_init(&w.counts);
	json_init(&j, p.head, p.head_end);
	if (json_peek(&j) == '[')
		answers(&w, &j);
	else if (json_object(&j))
		top(&w, &j);
	if (p.tail != p.tail_end)
		tail(&w, p.tail, p.tail_end);
	typed(&w, *event ? event : w.type);
	conclude(&w);
}

void llmapi_chunk(enum tl_api api, const char *event, const struct cut_json *data,
		  struct llm_chunk *ret)
{
	*ret = (struct llm_chunk){ 0 };
	if (data->len >= 6 && !memcmp(data->data, "[DONE]", 6)) {
		ret->flags = TL_CHUNK_DONE;
		return;
	}
	read_json(api, event, data, ret);
}

void llmapi_body(enum tl_api api, const struct cut_json *body, struct llm_chunk *ret)
{
	*ret = (struct llm_chunk){ 0 };
	read_json(api, "", body, ret);
}
