/* SPDX-License-Identifier: Apache-2.0 */
/* What the wire formats have in common: paths, finish reasons, and counts made one. */
#include "parse/llmapi.h"
#include "base/util.h"
#include "parse/llmapi_priv.h"

enum tl_api llmapi_of_path(const char *path)
{
	/* Servers stand behind prefixes (/api, /openai, a model's name): the end decides, and
	 * the first row that fits. Not in here, as no sequence runs for them: paths of vLLM that
	 * count, render or derender (/v1/messages/count_tokens, /tokenize ...), that end others
	 * (/abort_requests, /v1/responses/ID/cancel) or steer the server (/pause, /sleep ...); nor
	 * its /v1/realtime, which is no HTTP behind its upgrade. */
	static const struct {
		const char *end;
		enum tl_api api;
	} rows[] = {
		{ "/chat/completions", TL_API_CHAT },
		/* vLLM: an answer per conversation, not streamed */
		{ "/chat/completions/batch", TL_API_CHAT },
		{ "/cohere/v2/chat", TL_API_CHAT },
		/* multipart; these stream in chunks of a chat */
		{ "/audio/transcriptions", TL_API_CHAT },
		{ "/audio/translations", TL_API_CHAT },
		/* SageMaker: any of them, the body decides */
		{ "/invocations", TL_API_CHAT },
		/* vLLM: tokens in, tokens out */
		{ "/inference/v1/generate", TL_API_COMPLETIONS },
		{ "/v1/completions", TL_API_COMPLETIONS },
		{ "/v1/responses", TL_API_RESPONSES },
		{ "/responses", TL_API_RESPONSES },
		{ "/v1/messages", TL_API_MESSAGES },
		{ "/completion", TL_API_LLAMA },
		{ "/completions", TL_API_LLAMA },	/* without v1: native, not OpenAI */
		{ "/infill", TL_API_LLAMA },
		{ "/embeddings", TL_API_EMBEDDINGS },
		{ "/embedding", TL_API_EMBEDDINGS },
		{ "/api/embed", TL_API_EMBEDDINGS },
		{ "/v2/embed", TL_API_EMBEDDINGS },
		{ "/rerank", TL_API_EMBEDDINGS },
		{ "/reranking", TL_API_EMBEDDINGS },
		{ "/pooling", TL_API_EMBEDDINGS },
		{ "/classify", TL_API_EMBEDDINGS },
		{ "/score", TL_API_EMBEDDINGS },
		/* a token per item, of which only odds are told */
		{ "/generative_scoring", TL_API_EMBEDDINGS },
		{ "/systemone", TL_API_EMBEDDINGS },
		{ "/api/generate", TL_API_OLLAMA },
		{ "/api/chat", TL_API_OLLAMA },
	};
	size_t len = strlen(path);

	if (len > 1 && path[len - 1] == '/')
		len--;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t n = strlen(rows[i].end);

		if (len >= n && !memcmp(path + len - n, rows[i].end, n))
			return rows[i].api;
	}
	return TL_API_OTHER;
}

uint8_t llm_finish(const char *word)
{
	static const struct {
		const char *word;
		uint8_t finish;
	} words[] = {
		{ "stop", TL_FINISH_STOP }, { "length", TL_FINISH_LENGTH },
		{ "tool_calls", TL_FINISH_TOOL },
		/* llama.cpp native */
		{ "eos", TL_FINISH_STOP }, { "word", TL_FINISH_STOP },
		{ "limit", TL_FINISH_LENGTH },
		/* Anthropic */
		{ "end_turn", TL_FINISH_STOP }, { "stop_sequence", TL_FINISH_STOP },
		{ "pause_turn", TL_FINISH_STOP }, { "max_tokens", TL_FINISH_LENGTH },
		{ "model_context_window_exceeded", TL_FINISH_LENGTH },
		{ "tool_use", TL_FINISH_TOOL }, { "refusal", TL_FINISH_FILTER },
		/* OpenAI, older and responses */
		{ "function_call", TL_FINISH_TOOL }, { "content_filter", TL_FINISH_FILTER },
		{ "completed", TL_FINISH_STOP }, { "max_output_tokens", TL_FINISH_LENGTH },
		{ "failed", TL_FINISH_ERROR }, { "cancelled", TL_FINISH_ABORT },
		/* vLLM, SGLang, TGI */
		{ "abort", TL_FINISH_ABORT }, { "error", TL_FINISH_ERROR },
		{ "eos_token", TL_FINISH_STOP },
		/* Cohere */
		{ "COMPLETE", TL_FINISH_STOP }, { "STOP_SEQUENCE", TL_FINISH_STOP },
		{ "MAX_TOKENS", TL_FINISH_LENGTH }, { "TOOL_CALL", TL_FINISH_TOOL },
		{ "ERROR", TL_FINISH_ERROR },
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(word, words[i].word))
			return words[i].finish;
	return TL_FINISH_UNKNOWN;
}

void llm_counts_init(struct llm_counts *c)
{
	memset(c, 0xff, sizeof(*c));
}

/* A count. Null, nonsense and a number that no prompt or answer can have are "not given": sums of
 * counts then fit 64 bits. */
static void count(struct json *j, int64_t *ret)
{
	int64_t n;

	if (json_number(j, 0, &n) && n >= 0 && n <= INT32_MAX)
		*ret = n;
}

static void milliseconds(struct json *j, int64_t *ret_ns)
{
	int64_t n;

	if (json_number(j, 6, &n) && n >= 0)
		*ret_ns = n;
}

/* Cohere's: beside what is billed. */
static void tokens(struct llm_counts *c, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "input_tokens"))
			count(j, &c->prompt);
		else if (KEY_IS(k, "output_tokens"))
			count(j, &c->output);
		else
			json_skip(j);
	}
}

/* prompt_tokens_details and its kin. */
static void details(struct llm_counts *c, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "cached_tokens"))
			count(j, &c->cached);
		else if (KEY_IS(k, "reasoning_tokens"))
			count(j, &c->reasoning);
		else
			json_skip(j);
	}
}

void llm_counts_usage(struct llm_counts *c, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "prompt_tokens") || KEY_IS(k, "input_tokens"))
			count(j, &c->prompt);
		else if (KEY_IS(k, "completion_tokens") || KEY_IS(k, "output_tokens"))
			count(j, &c->output);
		else if (KEY_IS(k, "prompt_tokens_details") || KEY_IS(k, "input_tokens_details") ||
			 KEY_IS(k, "completion_tokens_details") ||
			 KEY_IS(k, "output_tokens_details"))
			details(c, j);
		else if (KEY_IS(k, "tokens"))
			tokens(c, j);
		else if (KEY_IS(k, "cache_read_input_tokens"))
			count(j, &c->cache_read);
		else if (KEY_IS(k, "cache_creation_input_tokens"))
			count(j, &c->cache_creation);
		else if (KEY_IS(k, "reasoning_tokens"))
			count(j, &c->reasoning);
		else if (KEY_IS(k, "prompt_cache_hit_tokens"))
			count(j, &c->cached);
		else
			json_skip(j);
	}
}

void llm_counts_timings(struct llm_counts *c, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "cache_n"))
			count(j, &c->cache_n);
		else if (KEY_IS(k, "prompt_n"))
			count(j, &c->prompt_n);
		else if (KEY_IS(k, "prompt_ms"))
			milliseconds(j, &c->prompt_ns);
		else if (KEY_IS(k, "predicted_n"))
			count(j, &c->predicted_n);
		else if (KEY_IS(k, "predicted_ms"))
			milliseconds(j, &c->predicted_ns);
		else if (KEY_IS(k, "draft_n"))
			count(j, &c->draft_n);
		else if (KEY_IS(k, "draft_n_accepted"))
			count(j, &c->draft_accepted);
		else
			json_skip(j);
	}
}

void llm_counts_progress(struct llm_counts *c, struct json *j)
{
	struct json_key k;

	if (!json_object(j))
		return;
	while (json_key(j, &k)) {
		if (KEY_IS(k, "total"))
			count(j, &c->prompt);
		else if (KEY_IS(k, "cache"))
			count(j, &c->cached);
		else
			json_skip(j);
	}
}

static uint32_t set(struct llm_usage *u, uint32_t flag, int64_t n)
{
	if (n > INT32_MAX)	/* a sum of such */
		return 0;
	u->known |= flag;
	return n;
}

void llm_counts_merge(const struct llm_counts *c, struct llm_usage *ret)
{
	int64_t prompt = c->prompt, cached = c->cached, output = c->output;

	if (c->cache_read >= 0 || c->cache_creation >= 0) {
		cached = c->cache_read >= 0 ? c->cache_read : 0;
		if (prompt >= 0)
			prompt += cached + (c->cache_creation > 0 ? c->cache_creation : 0);
	}
	if (prompt < 0)
		prompt = c->evaluated;
	if (output < 0)
		output = c->predicted;
	/* The engine's own clockwork knows best. Before cache_n existed, prompt_n was what was
	 * computed of the prompt. */
	if (c->prompt_n >= 0 && c->cache_n >= 0) {
		prompt = c->cache_n + c->prompt_n;
		cached = c->cache_n;
	} else if (c->prompt_n >= 0 && prompt >= c->prompt_n) {
		cached = prompt - c->prompt_n;
	}
	if (c->predicted_n >= 0)
		output = c->predicted_n;

	if (prompt >= 0)
		ret->prompt = set(ret, TL_USAGE_PROMPT, prompt);
	if (cached >= 0)
		ret->cached = set(ret, TL_USAGE_CACHED, cached);
	if (output >= 0)
		ret->output = set(ret, TL_USAGE_OUTPUT, output);
	if (c->reasoning >= 0)
		ret->reasoning = set(ret, TL_USAGE_REASONING, c->reasoning);
	if (c->draft_n >= 0) {
		ret->draft = set(ret, TL_USAGE_DRAFT, c->draft_n);
		if (c->draft_accepted >= 0)
			ret->draft_accepted = set(ret, TL_USAGE_DRAFT, c->draft_accepted);
	}
	if (c->prompt_ns >= 0) {
		ret->known |= TL_USAGE_PREFILL_TIME;
		ret->prefill_ns = c->prompt_ns;
	}
	if (c->predicted_ns >= 0) {
		ret->known |= TL_USAGE_DECODE_TIME;
		ret->decode_ns = c->predicted_ns;
	}
	if (c->slot >= 0 && c->slot <= INT32_MAX) {
		ret->known |= TL_USAGE_SLOT;
		ret->slot = c->slot;
	}
}
