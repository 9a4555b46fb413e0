/* SPDX-License-Identifier: Apache-2.0 */
/* What deltas, messages and choices hold: text, reasoning, tool calls, reasons to finish. */
#include "parse/llmapi_walk.h"

/* A string that holds what the model said. */
void walk_text(struct walk *w, struct json *j, uint32_t flag)
{
	switch (json_has_text(j)) {
	case 1:
		w->c->flags |= flag;
		break;
	case 0:
		w->empty = true;
		break;
	}
}

void walk_finish(struct walk *w, struct json *j)
{
	char word[32];

	if (!json_string(j, word, sizeof(word)) || !strcmp(word, "none"))
		return;
	w->c->flags |= TL_CHUNK_FINISH;
	if (!w->c->finish)
		w->c->finish = llm_finish(word);
}

void walk_failed(struct walk *w)
{
	w->c->flags |= TL_CHUNK_ERROR;
	w->c->finish = TL_FINISH_ERROR;
}

/* An object or a text; null is none. */
void walk_error(struct walk *w, struct json *j)
{
	if (json_peek(j) == '{') {
		walk_failed(w);
		json_skip(j);
	} else if (json_has_text(j) == 1) {
		walk_failed(w);
	}
}

static void tokens(struct walk *w, struct json *j)
{
	int n = json_count(j);

	if (n > 0)
		w->c->n_tokens = n;
}

static void tool_calls(struct walk *w, struct json *j)
{
	struct json inside = *j;

	/* the older form is an object; an array may be empty */
	if (json_peek(j) == '{' ||
	    (json_peek(j) == '[' && json_array(&inside) && json_element(&inside)))
		w->c->flags |= TL_CHUNK_TOOL;
	json_skip(j);
}

/* Content in parts: [{"type":"text","text":"..."}, {"type":"tool_use",...}]. */
void walk_parts(struct walk *w, struct json *j)
{
	struct json_key k;
	char type[24];

	if (!json_array(j))
		return;
	while (json_element(j)) {
		if (!json_object(j))
			continue;
		while (json_key(j, &k)) {
			if (KEY_IS(k, "text") || KEY_IS(k, "refusal"))
				walk_text(w, j, TL_CHUNK_TEXT);
			else if (KEY_IS(k, "thinking"))
				walk_text(w, j, TL_CHUNK_REASONING);
			else if (!KEY_IS(k, "type"))
				json_skip(j);
			else if (json_string(j, type, sizeof(type)) && !strcmp(type, "tool_use"))
				w->c->flags |= TL_CHUNK_TOOL;
		}
	}
}

void walk_content(struct walk *w, struct json *j)
{
	if (json_peek(j) == '[')
		walk_parts(w, j);
	else
		walk_text(w, j, TL_CHUNK_TEXT);
}

/* A member of a delta or message, of any format. False: not one that we know. */
bool walk_delta_member(struct walk *w, struct json *j, struct json_key k)
{
	char word[24];

	if (KEY_IS(k, "content")) {
		walk_content(w, j);
	} else if (KEY_IS(k, "role")) {
		if (json_has_text(j) == 1)
			w->c->flags |= TL_CHUNK_ROLE;
	} else if (KEY_IS(k, "reasoning_content") || KEY_IS(k, "reasoning") ||
		   KEY_IS(k, "thinking")) {
		walk_text(w, j, TL_CHUNK_REASONING);
	} else if (KEY_IS(k, "text") || KEY_IS(k, "refusal")) {
		walk_text(w, j, TL_CHUNK_TEXT);
	} else if (KEY_IS(k, "tool_calls") || KEY_IS(k, "function_call")) {
		tool_calls(w, j);
	} else if (KEY_IS(k, "partial_json")) {
		walk_text(w, j, TL_CHUNK_TOOL);
	} else if (KEY_IS(k, "stop_reason")) {
		walk_finish(w, j);
	} else if (KEY_IS(k, "type")) {
		if (json_string(j, word, sizeof(word)) && !strcmp(word, "tool_use"))
			w->c->flags |= TL_CHUNK_TOOL;
	} else {
		return false;
	}
	return true;
}

static void members(struct walk *w, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k))
		if (!walk_delta_member(w, j, k))
			json_skip(j);
}

/* Cohere's deltas are messages whose content is an object. */
static void cohere_message(struct walk *w, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "content") && json_peek(j) == '{')
			members(w, j);
		else if (KEY_IS(k, "tool_plan"))
			walk_text(w, j, TL_CHUNK_REASONING);
		else if (!walk_delta_member(w, j, k))
			json_skip(j);
	}
}

void walk_delta(struct walk *w, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "message") && json_peek(j) == '{') {
			cohere_message(w, j);
		} else if (KEY_IS(k, "finish_reason")) {
			walk_finish(w, j);
		} else if (KEY_IS(k, "usage") && json_peek(j) == '{') {
			w->counted = true;
			llm_counts_usage(&w->counts, j);
		} else if (!walk_delta_member(w, j, k)) {
			json_skip(j);
		}
	}
}

/* One entry per token, but for llama.cpp (whose entries begin with an id): there, tokens whose text
 * was held back have none. */
static void logprobs(struct walk *w, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		struct json first = *j;

		if (!KEY_IS(k, "content") && !KEY_IS(k, "tokens"))
			json_skip(j);
		else if (json_peek(j) == '[' && json_array(&first) && json_element(&first) &&
			 json_peek(&first) == '{' && json_object(&first) &&
			 json_key(&first, &k) && KEY_IS(k, "id"))
			json_skip(j);
		else
			tokens(w, j);
	}
}

void walk_index(struct walk *w, struct json *j)
{
	int64_t n;

	if (!json_number(j, 0, &n) || w->choice)
		return;
	w->choice = true;
	w->c->choice = n < 0 ? 0 : n > UINT16_MAX ? UINT16_MAX : n;
}

void walk_choice_members(struct walk *w, struct json *j)
{
	struct json_key k;

	while (json_key(j, &k)) {
		if (KEY_IS(k, "delta") || KEY_IS(k, "message"))
			walk_delta(w, j);
		else if (KEY_IS(k, "text"))
			walk_text(w, j, TL_CHUNK_TEXT);
		else if (KEY_IS(k, "index"))
			walk_index(w, j);
		else if (KEY_IS(k, "finish_reason"))
			walk_finish(w, j);
		else if (KEY_IS(k, "logprobs"))
			logprobs(w, j);
		else if (KEY_IS(k, "token_ids"))
			tokens(w, j);
		else
			json_skip(j);
	}
}

void walk_choices(struct walk *w, struct json *j)
{
	if (!json_array(j))
		return;
	while (json_element(j))
		if (json_object(j))
			walk_choice_members(w, j);
}
