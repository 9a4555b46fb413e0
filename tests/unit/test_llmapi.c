/* SPDX-License-Identifier: Apache-2.0 */
/* What paths and requests of every wire format say, also when the middle of a body is missing. */
#include "parse/llmapi.h"
#include "base/util.h"
#include "cut.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- paths ---- */

static void test_llmapi_of_path__cases(void **state)
{
	static const struct {
		const char *path;
		enum tl_api want;
	} rows[] = {
		{ "/v1/chat/completions", TL_API_CHAT },
		{ "/chat/completions", TL_API_CHAT },
		{ "/api/v1/chat/completions", TL_API_CHAT },
		{ "/openai/deployments/m/chat/completions", TL_API_CHAT },
		{ "/v1/chat/completions/", TL_API_CHAT },
		{ "/v1/completions", TL_API_COMPLETIONS },
		{ "/api/v1/completions", TL_API_COMPLETIONS },
		{ "/completion", TL_API_LLAMA },
		{ "/completions", TL_API_LLAMA },
		{ "/infill", TL_API_LLAMA },
		{ "/v1/responses", TL_API_RESPONSES },
		{ "/responses", TL_API_RESPONSES },
		{ "/v1/messages", TL_API_MESSAGES },
		{ "/v1/embeddings", TL_API_EMBEDDINGS },
		{ "/embeddings", TL_API_EMBEDDINGS },
		{ "/embedding", TL_API_EMBEDDINGS },
		{ "/rerank", TL_API_EMBEDDINGS },
		{ "/v1/rerank", TL_API_EMBEDDINGS },
		{ "/reranking", TL_API_EMBEDDINGS },
		{ "/api/embed", TL_API_EMBEDDINGS },
		{ "/api/embeddings", TL_API_EMBEDDINGS },
		{ "/api/generate", TL_API_OLLAMA },
		{ "/api/chat", TL_API_OLLAMA },
		{ "/v1/chat/completions/batch", TL_API_CHAT },
		{ "/cohere/v2/chat", TL_API_CHAT },
		{ "/v1/audio/transcriptions", TL_API_CHAT },
		{ "/v1/audio/translations", TL_API_CHAT },
		{ "/invocations", TL_API_CHAT },
		{ "/inference/v1/generate", TL_API_COMPLETIONS },
		{ "/v2/embed", TL_API_EMBEDDINGS },
		{ "/pooling", TL_API_EMBEDDINGS },
		{ "/classify", TL_API_EMBEDDINGS },
		{ "/score", TL_API_EMBEDDINGS },
		{ "/v1/score", TL_API_EMBEDDINGS },
		{ "/v2/rerank", TL_API_EMBEDDINGS },
		{ "/generative_scoring", TL_API_EMBEDDINGS },
		{ "/v1/systemone", TL_API_EMBEDDINGS },
		{ "/", TL_API_OTHER },
		{ "/v1/chat/completions/derender", TL_API_OTHER },
		{ "/v1/completions/render", TL_API_OTHER },
		{ "/v1/messages/render", TL_API_OTHER },
		{ "/v1/responses/resp_1/cancel", TL_API_OTHER },
		{ "/inference/v1/abort_requests", TL_API_OTHER },
		{ "/tokenize", TL_API_OTHER },
		{ "/pause", TL_API_OTHER },
		{ "", TL_API_OTHER },
		{ "/health", TL_API_OTHER },
		{ "/v1/models", TL_API_OTHER },
		{ "/v1/messages/count_tokens", TL_API_OTHER },
		{ "/v1/chat/completions/render", TL_API_OTHER },
		{ "/chat", TL_API_OTHER },
		{ "/xcompletion", TL_API_OTHER },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (llmapi_of_path(rows[i].path) != rows[i].want)
			fail_msg("%s should be %d", rows[i].path, rows[i].want);
}

/* ---- requests ---- */

static const struct request_row {
	const char *name;
	enum tl_api api;
	const char *in, *model;
	int stream, max_tokens, n;
} requests[] = {
	{ "chat", TL_API_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
	  "\"stream\":true,\"max_tokens\":5,\"n\":2}", "m", 1, 5, 2 },
	{ "white space", TL_API_CHAT, " {\n\t\"model\" : \"m\" ,\r\n \"stream\" : false , \"max_tokens\" : 5 } \n",
	  "m", 0, 5, 0 },
	{ "nothing said", TL_API_CHAT, "{}", "", -1, -1, 0 },
	{ "null is not said", TL_API_CHAT, "{\"model\":null,\"stream\":null,\"max_tokens\":null,\"n\":null}",
	  "", -1, -1, 0 },
	{ "wrong types", TL_API_CHAT, "{\"model\":7,\"stream\":\"true\",\"max_tokens\":\"9\",\"n\":[1]}",
	  "", -1, -1, 0 },
	{ "completion tokens count more", TL_API_CHAT, "{\"max_completion_tokens\":5,\"max_tokens\":9}",
	  "", -1, 5, 0 },
	{ "the other way round", TL_API_CHAT, "{\"max_tokens\":9,\"max_completion_tokens\":5}", "", -1, 5, 0 },
	{ "responses", TL_API_RESPONSES, "{\"model\":\"m\",\"input\":\"hi\",\"max_output_tokens\":7}",
	  "m", -1, 7, 0 },
	{ "native", TL_API_LLAMA, "{\"prompt\":\"hi\",\"n_predict\":128,\"stream\":true}", "", 1, 128, 0 },
	{ "no limit of llama.cpp", TL_API_LLAMA, "{\"n_predict\":-1}", "", -1, -1, 0 },
	{ "ollama streams unless told", TL_API_OLLAMA, "{\"model\":\"l\",\"options\":{\"num_predict\":9}}",
	  "l", 1, 9, 0 },
	{ "ollama told", TL_API_OLLAMA, "{\"stream\":false}", "", 0, -1, 0 },
	{ "options are Ollama's only", TL_API_CHAT, "{\"options\":{\"num_predict\":9}}", "", -1, -1, 0 },
	{ "in the prompt", TL_API_CHAT, "{\"prompt\":\"{\\\"max_tokens\\\": 5}\",\"model\":\"m\"}", "m", -1, -1, 0 },
	{ "in the prompt, at its end", TL_API_CHAT,
	  "{\"model\":\"m\",\"prompt\":\"a, \\\"max_tokens\\\": 5, \\\"stream\\\": true}\"}", "m", -1, -1, 0 },
	{ "nested", TL_API_CHAT, "{\"a\":{\"max_tokens\":5,\"model\":\"x\"},\"b\":[{\"stream\":true}],\"n\":3}",
	  "", -1, -1, 3 },
	{ "nested, last", TL_API_CHAT, "{\"n\":3,\"b\":[{\"stream\":true}],\"a\":{\"max_tokens\":5}}", "", -1, -1, 3 },
	{ "a key that ends like one", TL_API_CHAT, "{\"a\\\"n\":7,\"b\\\\\\\"stream\":true}", "", -1, -1, 0 },
	{ "escapes", TL_API_CHAT, "{\"model\":\"a\\/b\\\\c\\\"d\\u0041\\u00e9\\n\",\"n\":1}", "a/b\\c\"dA??", -1, -1, 1 },
	{ "backslashes before quotes", TL_API_CHAT, "{\"prompt\":\"\\\\\",\"model\":\"m\\\\\",\"x\":\"\\\\\\\"\",\"n\":4}",
	  "m\\", -1, -1, 4 },
	{ "other scripts", TL_API_CHAT, "{\"model\":\"m\xc3\xa9\"}", "m??", -1, -1, 0 },
	{ "fraction and exponent", TL_API_CHAT, "{\"max_tokens\":1.5e2,\"n\":2.0}", "", -1, 150, 2 },
	{ "large numbers saturate", TL_API_CHAT, "{\"max_tokens\":99999999999999999999999,\"n\":70000}",
	  "", -1, 2147483647, 65535 },
	{ "negative n", TL_API_CHAT, "{\"n\":-2,\"max_tokens\":-5}", "", -1, -1, 0 },
	{ "braces in strings", TL_API_CHAT, "{\"stop\":[\"}\",\"]\",\"{\"],\"x\":\"}]\",\"max_tokens\":5}", "", -1, 5, 0 },
	{ "tokens in, tokens out", TL_API_COMPLETIONS, "{\"token_ids\":[1,2],\"stream\":true,\"sampling_params\":"
	  "{\"max_tokens\":5,\"n\":2,\"model\":\"x\"}}", "", 1, 5, 2 },
	{ "empty containers", TL_API_CHAT, "{\"a\":{},\"b\":[],\"c\":\"\",\"max_tokens\":5}", "", -1, 5, 0 },
};

static void check_request(const struct request_row *r, const struct cut_json *in, bool all)
{
	struct llm_request got;
	bool ok;

	memset(&got, 0xa5, sizeof(got));
	llmapi_request(r->api, in, &got);
	ok = (!strcmp(got.model, r->model) || (!all && !got.model[0])) &&
	     (got.stream == r->stream || (!all && got.stream == -1)) &&
	     (got.max_tokens == r->max_tokens || (!all && got.max_tokens == -1)) &&
	     (got.n == r->n || (!all && !got.n)) && got.cut == (in->len != in->total);
	if (!ok)
		fail_msg("%s, head %zu tail %zu: model '%s' stream %d max_tokens %d n %d cut %d", r->name,
			 in->head, in->len - in->head, got.model, got.stream, got.max_tokens, got.n, got.cut);
}

static void test_llmapi_request__cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		struct cut_json in = whole(requests[i].in);

		check_request(&requests[i], &in, true);
	}
}

/* With any part of the middle missing, what is told is true. */
static void test_llmapi_request__any_hole_gives_no_wrong_fact(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		const struct request_row *r = &requests[i];
		size_t len = strlen(r->in);

		/* These change their meaning when a part is missing. */
		if (strstr(r->name, "count more") || strstr(r->name, "the other way"))
			continue;
		for (size_t head = 0; head <= len; head++) {
			for (size_t tail = 0; head + tail <= len; tail++) {
				struct cut_json in = cut(r->in, head, tail);

				check_request(r, &in, in.len == in.total);
				free((char *)in.data);
			}
		}
	}
}

static void test_llmapi_request__finds_facts_behind_a_long_prompt(void **state)
{
	enum { LEN = 200000, HEAD = 1000, TAIL = 200 };
	static char body[LEN + 1000];
	struct request_row want = { "long prompt", TL_API_CHAT, body, "m", 1, 64, 0 };
	struct cut_json in;

	(void)state;
	strcpy(body, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"");
	/* a prompt that is itself JSON, escaped */
	while (strlen(body) < LEN)
		strcat(body + strlen(body), "{\\\"max_tokens\\\": 5, \\\"n\\\": 7, \\\"stream\\\": false}, ");
	/* and behind it strings that look like the ends of others */
	strcat(body + LEN, "\"}],\"max_tokens\":64,\"stream\":true,\"user\":\"\\\"a\\\\\","
	       "\"stop\":[\"\\\"}\",\"],\\\"n\\\":3\"],\"temperature\":0.7}");
	in = cut(body, HEAD, TAIL);
	check_request(&want, &in, true);
	free((char *)in.data);
}

static void test_llmapi_request__garbage_says_nothing(void **state)
{
	static const char *const rows[] = {
		"", " ", "{", "}", "[", "]", "\"", "{]", "[}", "{\"", "{\"model", "{\"model\"", "{\"model\":",
		"{\"model\":\"m", "{\"n\":7", "{\"n\" 7}", "{n:7}", "{\"a\":1 \"n\":7}", "{,\"n\":7}", "{\"a\":,\"n\":7}",
		"[{\"n\":7}]", "null", "5", "\"n\":7}", "--boundary\r\nContent-Disposition: form-data\r\n",
		"\x1f\x8b\x08",
	};
	static const struct request_row nothing = { "garbage", TL_API_CHAT, "", "", -1, -1, 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct cut_json in = cut(rows[i], strlen(rows[i]), 0);

		check_request(&nothing, &in, true);
		free((char *)in.data);
		in = cut(rows[i], 0, strlen(rows[i]));	/* the same, all of it tail */
		in.total = in.len + 100;
		if (!strstr(rows[i], "\"n\":7}"))	/* these have a good tail */
			check_request(&nothing, &in, true);
		free((char *)in.data);
	}
}

/* SageMaker's one path takes requests of any kind. */
static void test_llmapi_request__of_any_kind(void **state)
{
	static const struct {
		const char *body;
		enum tl_api want;
	} rows[] = {
		{ "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":5}", TL_API_CHAT },
		{ "{\"prompt\":\"hi\",\"max_tokens\":5}", TL_API_COMPLETIONS },
		{ "{\"input\":\"hi\",\"model\":\"m\"}", TL_API_EMBEDDINGS },
		{ "{\"prompt\":1,\"messages\":[]}", TL_API_CHAT },
		{ "{}", TL_API_CHAT },
	};
	struct llm_request got;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t n = strlen(rows[i].body);
		struct cut_json body = { rows[i].body, n, n, n };

		llmapi_request(llmapi_of_path("/invocations"), &body, &got);
		if (got.api != rows[i].want)
			fail_msg("%s: %d", rows[i].body, got.api);
	}
	llmapi_request(TL_API_COMPLETIONS, &(struct cut_json){ rows[0].body, strlen(rows[0].body), strlen(rows[0].body),
								strlen(rows[0].body) }, &got);
	assert_int_equal(got.api, TL_API_COMPLETIONS);	/* that path says what it is */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_llmapi_of_path__cases),
		cmocka_unit_test(test_llmapi_request__of_any_kind),
		cmocka_unit_test(test_llmapi_request__cases),
		cmocka_unit_test(test_llmapi_request__any_hole_gives_no_wrong_fact),
		cmocka_unit_test(test_llmapi_request__finds_facts_behind_a_long_prompt),
		cmocka_unit_test(test_llmapi_request__garbage_says_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
