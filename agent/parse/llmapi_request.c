/* SPDX-License-Identifier: Apache-2.0 */
/* What a request asks for, from the top level of its body. */
#include "parse/llmapi_priv.h"

/* A limit that was said. Of several, the more telling name counts. */
struct limit {
	int64_t n;
	int rank;
};

static void take_limit(struct json *j, int rank, struct limit *l)
{
	int64_t n;

	if (!json_number(j, 0, &n) || rank < l->rank)
		return;
	l->n = n < 0 ? -1 : n > INT32_MAX ? INT32_MAX : n;	/* llama.cpp: -1 is no limit */
	l->rank = rank;
}

static void ollama_options(struct json *j, struct limit *l)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "num_predict"))
			take_limit(j, 1, l);
		else
			json_skip(j);
	}
}

/* What a body has that tells its format. */
enum { HAS_MESSAGES = 1, HAS_PROMPT = 2, HAS_INPUT = 4 };

static enum tl_api told_api(enum tl_api api, uint32_t has)
{
	if (api != TL_API_CHAT || has & HAS_MESSAGES || !has)
		return api;
	return has & HAS_PROMPT ? TL_API_COMPLETIONS : TL_API_EMBEDDINGS;
}

static uint32_t has_of(struct json_key k)
{
	return KEY_IS(k, "messages") ? HAS_MESSAGES
	       : KEY_IS(k, "prompt") ? HAS_PROMPT
	       : KEY_IS(k, "input")  ? HAS_INPUT
				     : 0;
}

static void take_n(struct json *j, struct llm_request *r)
{
	int64_t n;

	if (json_number(j, 0, &n) && n > 0)
		r->n = n < UINT16_MAX ? n : UINT16_MAX;
}

/* vLLM's tokens in, tokens out. */
static void sampling_params(struct json *j, struct llm_request *r, struct limit *l)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "max_tokens"))
			take_limit(j, 2, l);
		else if (KEY_IS(k, "n"))
			take_n(j, r);
		else
			json_skip(j);
	}
}

static void members(enum tl_api api, struct json *j, struct llm_request *r, struct limit *l,
		    uint32_t *has)
{
	struct json_key k;
	bool yes;

	while (json_key(j, &k)) {
		*has |= has_of(k);
		if (KEY_IS(k, "model")) {
			json_string(j, r->model, sizeof(r->model));
		} else if (KEY_IS(k, "stream")) {
			if (json_bool(j, &yes))
				r->stream = yes;
		} else if (KEY_IS(k, "n")) {
			take_n(j, r);
		} else if (KEY_IS(k, "n_predict")) {
			take_limit(j, 1, l);
		} else if (KEY_IS(k, "max_tokens")) {
			take_limit(j, 2, l);
		} else if (KEY_IS(k, "max_completion_tokens") || KEY_IS(k, "max_output_tokens")) {
			take_limit(j, 3, l);
		} else if (KEY_IS(k, "options") && api == TL_API_OLLAMA) {
			ollama_options(j, l);
		} else if (KEY_IS(k, "sampling_params") && json_peek(j) == '{') {
			sampling_params(j, r, l);
		} else {
			json_skip(j);
		}
	}
}

void llmapi_request(enum tl_api api, const struct cut_json *body, struct llm_request *ret)
{
	struct llm_parts parts = llm_parts(body);
	struct limit limit = { .n = -1 };
	uint32_t has = 0;
	struct json j;

	*ret = (struct llm_request){ .stream = -1, .cut = body->total != body->len };
	json_init(&j, parts.head, parts.head_end);
	if (json_peek(&j) == '{' && json_object(&j))
		members(api, &j, ret, &limit, &has);
	if (parts.tail != parts.tail_end) {
		json_init(&j, json_tail(parts.tail, parts.tail_end, NULL, 0), parts.tail_end);
		members(api, &j, ret, &limit, &has);
	}
	ret->max_tokens = limit.n;
	ret->api = ret->cut ? api : told_api(api, has);
	/* Ollama streams unless told not to. */
	if (api == TL_API_OLLAMA && ret->stream < 0 && !ret->cut)
		ret->stream = 1;
}
