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

static void members(enum tl_api api, struct json *j, struct llm_request *r, struct limit *l)
{
	struct json_key k;
	int64_t n;
	bool yes;

	while (json_key(j, &k)) {
		if (KEY_IS(k, "model")) {
			json_string(j, r->model, sizeof(r->model));
		} else if (KEY_IS(k, "stream")) {
			if (json_bool(j, &yes))
				r->stream = yes;
		} else if (KEY_IS(k, "n")) {
			if (json_number(j, 0, &n) && n > 0)
				r->n = n < UINT16_MAX ? n : UINT16_MAX;
		} else if (KEY_IS(k, "n_predict")) {
			take_limit(j, 1, l);
		} else if (KEY_IS(k, "max_tokens")) {
			take_limit(j, 2, l);
		} else if (KEY_IS(k, "max_completion_tokens") || KEY_IS(k, "max_output_tokens")) {
			take_limit(j, 3, l);
		} else if (KEY_IS(k, "options") && api == TL_API_OLLAMA) {
			ollama_options(j, l);
		} else {
			json_skip(j);
		}
	}
}

void llmapi_request(enum tl_api api, const struct cut_json *body, struct llm_request *ret)
{
	struct llm_parts parts = llm_parts(body);
	struct limit limit = { .n = -1 };
	struct json j;

	*ret = (struct llm_request){ .stream = -1, .cut = body->total != body->len };
	json_init(&j, parts.head, parts.head_end);
	if (json_peek(&j) == '{' && json_object(&j))
		members(api, &j, ret, &limit);
	if (parts.tail != parts.tail_end) {
		json_init(&j, json_tail(parts.tail, parts.tail_end, NULL, 0), parts.tail_end);
		members(api, &j, ret, &limit);
	}
	ret->max_tokens = limit.n;
	/* Ollama streams unless told not to. */
	if (api == TL_API_OLLAMA && ret->stream < 0 && !ret->cut)
		ret->stream = 1;
}
