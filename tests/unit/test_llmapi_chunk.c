/* SPDX-License-Identifier: Apache-2.0 */
/* What chunks and bodies of every wire format carry, also when their middle is missing; and the
 * bytes of a real server. */
#include "parse/llmapi.h"
#include "base/util.h"
#include "cut.h"
#include "parse/http1.h"
#include "parse/sse.h"
#include "split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* A chunk as text: what it carries, then facts; if not exact, without what differs from run to run. */
static void print_chunk(char *s, const struct llm_chunk *c, bool exact)
{
	static const char *const flags[] = { "role", "text", "empty", "reasoning", "tool", "progress",
					     "usage", "finish", "done", "error", "other" };
	static const char *const finishes[] = { "?", "stop", "length", "tool", "abort", "error", "filter" };
	const struct llm_usage *u = &c->usage;

	*s = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (c->flags & 1u << i)
			s += sprintf(s, "%s ", flags[i]);
	if (c->flags & TL_CHUNK_FINISH || c->finish)
		s += sprintf(s, "(%s) ", finishes[c->finish]);
	if (c->n_tokens)
		s += sprintf(s, "tokens=%u ", c->n_tokens);
	if (c->choice)
		s += sprintf(s, "choice=%u ", c->choice);
	if (c->id[0])
		s += sprintf(s, "id%s%s ", exact ? "=" : "", exact ? c->id : "");
	if (!exact && !(c->flags & (TL_CHUNK_USAGE | TL_CHUNK_PROGRESS))) {
		s[-1] = '\0';
		return;
	}
	if (u->known & TL_USAGE_PROMPT)
		s += sprintf(s, "p=%u ", u->prompt);
	if (u->known & TL_USAGE_CACHED)
		s += sprintf(s, "c=%u ", u->cached);
	if (u->known & TL_USAGE_OUTPUT)
		s += sprintf(s, "o=%u ", u->output);
	if (u->known & TL_USAGE_REASONING)
		s += sprintf(s, "r=%u ", u->reasoning);
	if (u->known & TL_USAGE_DRAFT)
		s += sprintf(s, "d=%u/%u ", u->draft_accepted, u->draft);
	if (u->known & TL_USAGE_SLOT)
		s += sprintf(s, "slot%s%.0d ", exact ? "=" : "", exact ? u->slot : 0);
	if (u->known & TL_USAGE_PREFILL_TIME)
		s += exact ? sprintf(s, "pf=%llu ", (unsigned long long)u->prefill_ns) : sprintf(s, "pf ");
	if (u->known & TL_USAGE_DECODE_TIME)
		s += exact ? sprintf(s, "dc=%llu ", (unsigned long long)u->decode_ns) : sprintf(s, "dc ");
	s[-1] = '\0';
}

#define OAI(choice) "{\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\"," \
		    "\"choices\":[" choice "]}"
#define DELTA(delta) OAI("{\"index\":0,\"delta\":{" delta "},\"logprobs\":null,\"finish_reason\":null}")
#define TIMINGS "\"timings\":{\"cache_n\":17,\"prompt_n\":1,\"prompt_ms\":2.749,\"prompt_per_token_ms\":2.749," \
		"\"prompt_per_second\":363.76,\"predicted_n\":3,\"predicted_ms\":3.9471234567," \
		"\"predicted_per_token_ms\":1.97,\"predicted_per_second\":506.7}"

struct chunk_row {
	const char *name;
	enum tl_api api;
	const char *event, *in, *want;
};

static const struct chunk_row chunks[] = {
	/* OpenAI chat, as OpenAI, vLLM, SGLang and llama.cpp write it */
	{ "role only", TL_API_CHAT, "", DELTA("\"role\":\"assistant\""), "role id=c-1" },
	{ "role, empty content", TL_API_CHAT, "", DELTA("\"role\":\"assistant\",\"content\":\"\""),
	  "role empty id=c-1" },
	{ "role, content null", TL_API_CHAT, "", DELTA("\"role\":\"assistant\",\"content\":null"), "role id=c-1" },
	{ "text", TL_API_CHAT, "", DELTA("\"content\":\" hi\""), "text id=c-1" },
	{ "role and text", TL_API_CHAT, "", DELTA("\"role\":\"assistant\",\"content\":\"hi\""), "role text id=c-1" },
	{ "text is an escape", TL_API_CHAT, "", DELTA("\"content\":\"\\\"\""), "text id=c-1" },
	{ "empty text", TL_API_CHAT, "", DELTA("\"content\":\"\""), "empty id=c-1" },
	{ "nothing", TL_API_CHAT, "", DELTA(""), "other id=c-1" },
	{ "reasoning_content", TL_API_CHAT, "", DELTA("\"reasoning_content\":\"hm\",\"content\":null"),
	  "reasoning id=c-1" },
	{ "reasoning", TL_API_CHAT, "", DELTA("\"content\":\"\",\"reasoning\":\"hm\""), "reasoning id=c-1" },
	{ "reasoning null", TL_API_CHAT, "", DELTA("\"content\":\"a\",\"reasoning_content\":null"), "text id=c-1" },
	{ "tool call", TL_API_CHAT, "", DELTA("\"tool_calls\":[{\"index\":0,\"id\":\"x\",\"function\":{\"name\":\"f\","
	  "\"arguments\":\"\"}}]"), "tool id=c-1" },
	{ "no tool call", TL_API_CHAT, "", DELTA("\"content\":\"a\",\"tool_calls\":[]"), "text id=c-1" },
	{ "tool calls null", TL_API_CHAT, "", DELTA("\"content\":\"a\",\"tool_calls\":null"), "text id=c-1" },
	{ "function call", TL_API_CHAT, "", DELTA("\"function_call\":{\"arguments\":\"{\"}"), "tool id=c-1" },
	{ "refusal", TL_API_CHAT, "", DELTA("\"content\":null,\"refusal\":\"no\""), "text id=c-1" },
	{ "content in parts", TL_API_CHAT, "", DELTA("\"content\":[{\"type\":\"text\",\"text\":\"a\"}]"), "text id=c-1" },
	{ "finish", TL_API_CHAT, "", OAI("{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}"),
	  "finish (stop) id=c-1" },
	{ "finish with empty text", TL_API_CHAT, "",
	  OAI("{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"length\",\"stop_reason\":null}"),
	  "empty finish (length) id=c-1" },
	{ "finish by stop string", TL_API_CHAT, "",
	  OAI("{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\",\"stop_reason\":\"###\"}"),
	  "text finish (stop) id=c-1" },
	{ "finish: tools", TL_API_CHAT, "", OAI("{\"delta\":{},\"finish_reason\":\"tool_calls\"}"),
	  "finish (tool) id=c-1" },
	{ "finish: filter", TL_API_CHAT, "", OAI("{\"delta\":{},\"finish_reason\":\"content_filter\"}"),
	  "finish (filter) id=c-1" },
	{ "finish: abort", TL_API_CHAT, "", OAI("{\"delta\":{},\"finish_reason\":\"abort\"}"),
	  "finish (abort) id=c-1" },
	{ "finish: news", TL_API_CHAT, "", OAI("{\"delta\":{},\"finish_reason\":\"moon\"}"), "finish (?) id=c-1" },
	{ "second choice", TL_API_CHAT, "", OAI("{\"index\":1,\"delta\":{\"content\":\"a\"}}"), "text choice=1 id=c-1" },
	{ "two choices in one", TL_API_CHAT, "", OAI("{\"index\":1,\"delta\":{\"content\":\"a\"}},"
	  "{\"index\":2,\"delta\":{},\"finish_reason\":\"stop\"}"), "text finish (stop) choice=1 id=c-1" },
	{ "usage only", TL_API_CHAT, "", "{\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"total_tokens\":18,"
	  "\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":4,\"audio_tokens\":0},"
	  "\"completion_tokens_details\":{\"reasoning_tokens\":3}}}", "usage p=11 c=4 o=7 r=3" },
	{ "usage null", TL_API_CHAT, "", "{\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}", "text" },
	{ "continuous usage", TL_API_CHAT, "", "{\"choices\":[{\"delta\":{\"content\":\"a\"}}],"
	  "\"usage\":{\"prompt_tokens\":11,\"total_tokens\":13,\"completion_tokens\":2}}", "text usage p=11 o=2" },
	{ "details null", TL_API_CHAT, "", "{\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"prompt_tokens_details\":null}}",
	  "usage p=11" },
	{ "deepseek, sglang", TL_API_CHAT, "", "{\"choices\":[],\"usage\":{\"prompt_tokens\":11,"
	  "\"prompt_cache_hit_tokens\":5,\"reasoning_tokens\":2}}", "usage p=11 c=5 r=2" },
	{ "logprobs count tokens", TL_API_CHAT, "", OAI("{\"delta\":{\"content\":\"ab\"},\"logprobs\":{\"content\":["
	  "{\"token\":\"a\",\"top_logprobs\":[]},{\"token\":\"b\",\"top_logprobs\":[]}]}}"), "text tokens=2 id=c-1" },
	{ "but not those of llama.cpp", TL_API_CHAT, "", OAI("{\"delta\":{\"content\":\"ab\"},\"logprobs\":{\"content\":["
	  "{\"id\":4,\"token\":\"a\",\"top_logprobs\":[]}]}}"), "text id=c-1" },
	{ "token ids", TL_API_CHAT, "", OAI("{\"delta\":{\"content\":\"\"},\"token_ids\":[5,6,7]}"),
	  "empty tokens=3 id=c-1" },
	{ "a token, but no text", TL_API_CHAT, "", OAI("{\"delta\":{},\"logprobs\":{\"content\":["
	  "{\"token\":\"\",\"bytes\":[]}]},\"token_ids\":null}"), "empty tokens=1 id=c-1" },
	{ "vLLM, tokens in, tokens out", TL_API_COMPLETIONS, "", "{\"request_id\":\"generate-tokens-7\",\"choices\":[{\"index\":0,"
	  "\"finish_reason\":\"length\",\"token_ids\":[5,6]}]}", "empty finish (length) tokens=2 id=generate-tokens-7" },
	{ "a request_id elsewhere", TL_API_MESSAGES, "", "{\"request_id\":\"r\",\"type\":\"ping\"}", "other" },
	/* Cohere, as vLLM writes it */
	{ "its begin", TL_API_CHAT, "message-start", "{\"type\":\"message-start\",\"id\":\"c-1\",\"delta\":{\"message\":"
	  "{\"role\":\"assistant\"}}}", "role id=c-1" },
	{ "its text", TL_API_CHAT, "content-delta", "{\"type\":\"content-delta\",\"index\":0,\"delta\":{\"message\":{\"content\":"
	  "{\"text\":\"a\"}}}}", "text" },
	{ "its reasoning", TL_API_CHAT, "content-delta", "{\"type\":\"content-delta\",\"index\":0,\"delta\":{\"message\":{\"content\":"
	  "{\"thinking\":\"a\"}}}}", "reasoning" },
	{ "its end", TL_API_CHAT, "message-end", "{\"type\":\"message-end\",\"id\":\"c-1\",\"delta\":{\"finish_reason\":"
	  "\"MAX_TOKENS\",\"usage\":{\"billed_units\":{\"input_tokens\":3},\"tokens\":{\"input_tokens\":11,\"output_tokens\":7}}}}",
	  "usage finish done (length) id=c-1 p=11 o=7" },
	{ "error", TL_API_CHAT, "", "{\"error\":{\"code\":500,\"message\":\"x\",\"type\":\"server_error\"}}",
	  "error (error)" },
	{ "error is text", TL_API_CHAT, "", "{\"error\":\"x\"}", "error (error)" },
	{ "no error", TL_API_CHAT, "", "{\"error\":null,\"choices\":[{\"delta\":{\"content\":\"a\"}}]}", "text" },
	{ "error event", TL_API_CHAT, "error", "{\"code\":500}", "error (error)" },
	{ "done", TL_API_CHAT, "", "[DONE]", "done" },
	{ "garbage", TL_API_CHAT, "", "hello", "other" },
	{ "empty", TL_API_CHAT, "", "", "other" },
	{ "llama.cpp: timings", TL_API_CHAT, "", "{\"choices\":[{\"finish_reason\":\"length\",\"index\":0,\"delta\":{}}],"
	  TIMINGS "}", "usage finish (length) p=18 c=17 o=3 pf=2749000 dc=3947123" },
	{ "llama.cpp: timings beat usage", TL_API_CHAT, "", "{\"choices\":[],\"usage\":{\"completion_tokens\":4,"
	  "\"prompt_tokens\":20,\"prompt_tokens_details\":{\"cached_tokens\":2}}," TIMINGS "}",
	  "usage p=18 c=17 o=3 pf=2749000 dc=3947123" },
	{ "llama.cpp before cache_n", TL_API_CHAT, "", "{\"choices\":[],\"usage\":{\"completion_tokens\":4,"
	  "\"prompt_tokens\":20},\"timings\":{\"prompt_n\":5,\"predicted_n\":4}}", "usage p=20 c=15 o=4" },
	{ "llama.cpp: draft", TL_API_CHAT, "", "{\"timings\":{\"draft_n\":9,\"draft_n_accepted\":6}}", "usage d=6/9" },
	{ "llama.cpp: progress", TL_API_CHAT, "", "{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
	  "\"content\":null}}]," TIMINGS ",\"prompt_progress\":{\"total\":18,\"cache\":17,\"processed\":17,"
	  "\"time_ms\":0}}", "progress p=18 c=17" },
	{ "timings are no object", TL_API_CHAT, "", "{\"timings\":3,\"usage\":[1]}", "other" },
	{ "a number is too large", TL_API_CHAT, "", "{\"usage\":{\"prompt_tokens\":1e30,\"completion_tokens\":-4}}",
	  "usage" },
	/* OpenAI completions */
	{ "completion text", TL_API_COMPLETIONS, "", OAI("{\"text\":\"a\",\"index\":0,\"finish_reason\":null}"),
	  "text id=c-1" },
	{ "completion empty", TL_API_COMPLETIONS, "", OAI("{\"text\":\"\",\"index\":0,\"finish_reason\":\"stop\"}"),
	  "empty finish (stop) id=c-1" },
	{ "completion logprobs", TL_API_COMPLETIONS, "", OAI("{\"text\":\"ab\",\"logprobs\":{\"tokens\":[\"a\",\"b\"],"
	  "\"text_offset\":[0,1]}}"), "text tokens=2 id=c-1" },
	/* OpenAI responses */
	{ "created", TL_API_RESPONSES, "response.created", "{\"type\":\"response.created\",\"response\":{\"id\":\"r\","
	  "\"status\":\"in_progress\",\"error\":null,\"usage\":null}}", "other id=r" },
	{ "queued", TL_API_RESPONSES, "", "{\"type\":\"response.queued\",\"response\":{\"id\":\"r\","
	  "\"status\":\"queued\"}}", "other id=r" },
	{ "item added", TL_API_RESPONSES, "", "{\"type\":\"response.output_item.added\",\"item\":{\"id\":\"m\","
	  "\"role\":\"assistant\",\"status\":\"in_progress\"}}", "other" },
	{ "text delta", TL_API_RESPONSES, "response.output_text.delta",
	  "{\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"delta\":\"a\"}", "text" },
	{ "text delta without event", TL_API_RESPONSES, "",
	  "{\"delta\":\"a\",\"type\":\"response.output_text.delta\"}", "text" },
	{ "empty delta", TL_API_RESPONSES, "", "{\"type\":\"response.output_text.delta\",\"delta\":\"\"}", "empty" },
	{ "refusal delta", TL_API_RESPONSES, "", "{\"type\":\"response.refusal.delta\",\"delta\":\"no\"}", "text" },
	{ "reasoning delta", TL_API_RESPONSES, "", "{\"type\":\"response.reasoning_text.delta\",\"delta\":\"a\"}",
	  "reasoning" },
	{ "reasoning summary", TL_API_RESPONSES, "",
	  "{\"type\":\"response.reasoning_summary_text.delta\",\"delta\":\"a\"}", "reasoning" },
	{ "arguments", TL_API_RESPONSES, "", "{\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\"}",
	  "tool" },
	{ "text done repeats it", TL_API_RESPONSES, "", "{\"type\":\"response.output_text.done\",\"text\":\"abc\"}",
	  "other" },
	{ "part done repeats it", TL_API_RESPONSES, "", "{\"type\":\"response.content_part.done\","
	  "\"part\":{\"text\":\"abc\"}}", "other" },
	{ "completed", TL_API_RESPONSES, "response.completed", "{\"type\":\"response.completed\",\"response\":{\"id\":\"r\","
	  "\"status\":\"completed\",\"output\":[{\"content\":[{\"text\":\"abc\"}]}],\"usage\":{\"input_tokens\":18,"
	  "\"input_tokens_details\":{\"cached_tokens\":5},\"output_tokens\":3,"
	  "\"output_tokens_details\":{\"reasoning_tokens\":1}}}}", "usage finish done (stop) id=r p=18 c=5 o=3 r=1" },
	{ "incomplete", TL_API_RESPONSES, "", "{\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\","
	  "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}}}", "finish done (length)" },
	{ "failed", TL_API_RESPONSES, "", "{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\","
	  "\"error\":{\"code\":\"server_error\"}}}", "finish done error (error)" },
	{ "responses error", TL_API_RESPONSES, "", "{\"type\":\"error\",\"code\":\"x\",\"message\":\"y\"}",
	  "error (error)" },
	/* Anthropic messages */
	{ "message_start", TL_API_MESSAGES, "message_start", "{\"type\":\"message_start\",\"message\":{\"id\":\"m\","
	  "\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"stop_reason\":null,\"usage\":"
	  "{\"input_tokens\":5,\"cache_read_input_tokens\":10,\"cache_creation_input_tokens\":3,"
	  "\"output_tokens\":1}}}", "role usage id=m p=18 c=10" },
	{ "block start", TL_API_MESSAGES, "", "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":"
	  "{\"type\":\"text\",\"text\":\"\"}}", "other" },
	{ "tool block start", TL_API_MESSAGES, "", "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":"
	  "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}", "tool" },
	{ "text_delta", TL_API_MESSAGES, "content_block_delta", "{\"type\":\"content_block_delta\",\"index\":3,"
	  "\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}", "text" },
	{ "thinking_delta", TL_API_MESSAGES, "", "{\"type\":\"content_block_delta\",\"delta\":"
	  "{\"type\":\"thinking_delta\",\"thinking\":\"a\"}}", "reasoning" },
	{ "signature_delta", TL_API_MESSAGES, "", "{\"type\":\"content_block_delta\",\"delta\":"
	  "{\"type\":\"signature_delta\",\"signature\":\"a\"}}", "other" },
	{ "input_json_delta", TL_API_MESSAGES, "", "{\"type\":\"content_block_delta\",\"delta\":"
	  "{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}", "tool" },
	{ "block stop", TL_API_MESSAGES, "", "{\"type\":\"content_block_stop\",\"index\":0}", "other" },
	{ "message_delta", TL_API_MESSAGES, "message_delta", "{\"type\":\"message_delta\",\"delta\":"
	  "{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":9}}",
	  "usage finish (stop) o=9" },
	{ "ping", TL_API_MESSAGES, "ping", "{\"type\":\"ping\"}", "other" },
	{ "message_stop", TL_API_MESSAGES, "message_stop", "{\"type\":\"message_stop\"}", "done" },
	{ "messages error", TL_API_MESSAGES, "error", "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}",
	  "error (error)" },
	/* llama.cpp's own */
	{ "native", TL_API_LLAMA, "", "{\"index\":0,\"content\":\" a\",\"tokens\":[7],\"stop\":false,\"id_slot\":-1,"
	  "\"tokens_predicted\":4,\"tokens_evaluated\":9}", "text p=9 o=4" },
	{ "native choice", TL_API_LLAMA, "", "{\"index\":1,\"content\":\"\",\"stop\":false}", "empty choice=1" },
	{ "native progress", TL_API_LLAMA, "", "{\"index\":0,\"content\":\"\",\"tokens\":[0],\"stop\":false,"
	  "\"tokens_predicted\":0,\"tokens_evaluated\":4,\"prompt_progress\":{\"total\":4,\"cache\":3,"
	  "\"processed\":3,\"time_ms\":0}}", "progress p=4 c=3" },
	{ "native end", TL_API_LLAMA, "", "{\"index\":0,\"content\":\"\",\"tokens\":[],\"id_slot\":3,\"stop\":true,"
	  "\"model\":\"m\",\"tokens_predicted\":3,\"tokens_evaluated\":18,\"generation_settings\":{\"stop\":[\"x\"],"
	  "\"max_tokens\":3,\"stream\":true},\"prompt\":\"<s> ba\",\"truncated\":false,\"stop_type\":\"limit\","
	  "\"stopping_word\":\"\",\"tokens_cached\":6," TIMINGS "}",
	  "empty usage finish (length) p=18 c=17 o=3 slot=3 pf=2749000 dc=3947123" },
	{ "native end, older", TL_API_LLAMA, "", "{\"content\":\"\",\"slot_id\":2,\"stop\":true,\"tokens_evaluated\":8,"
	  "\"tokens_predicted\":5,\"stopped_eos\":false,\"stopped_word\":true,\"stopped_limit\":false,"
	  "\"timings\":{\"prompt_n\":6,\"predicted_n\":5}}", "empty usage finish (stop) p=8 c=2 o=5 slot=2" },
	{ "native stop by eos", TL_API_LLAMA, "", "{\"content\":\"\",\"stop\":true,\"stop_type\":\"eos\"}",
	  "empty finish (stop)" },
	{ "native goes on", TL_API_LLAMA, "", "{\"content\":\"a\",\"stop\":false,\"stop_type\":\"none\"}", "text" },
	/* Ollama */
	{ "generate", TL_API_OLLAMA, "", "{\"model\":\"l\",\"created_at\":\"t\",\"response\":\"a\",\"done\":false}", "text" },
	{ "ollama chat", TL_API_OLLAMA, "", "{\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"done\":false}",
	  "role text" },
	{ "ollama thinking", TL_API_OLLAMA, "", "{\"message\":{\"role\":\"assistant\",\"content\":\"\","
	  "\"thinking\":\"a\"},\"done\":false}", "role reasoning" },
	{ "ollama tool", TL_API_OLLAMA, "", "{\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":"
	  "[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]},\"done\":false}", "role tool" },
	{ "ollama end", TL_API_OLLAMA, "", "{\"response\":\"\",\"done\":true,\"done_reason\":\"length\","
	  "\"context\":[1,2],\"total_duration\":9,\"load_duration\":1,\"prompt_eval_count\":26,"
	  "\"prompt_eval_duration\":130079000,\"eval_count\":259,\"eval_duration\":4232710000}",
	  "empty usage finish done (length) p=26 o=259 pf=130079000 dc=4232710000" },
};

static void check_chunk(const struct chunk_row *r, const struct llm_chunk *c)
{
	char got[400];

	print_chunk(got, c, true);
	if (strcmp(got, r->want))
		fail_msg("%s:\n  got  '%s'\n  want '%s'", r->name, got, r->want);
}

static void test_llmapi_chunk__cases(void **state)
{
	struct llm_chunk c;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(chunks); i++) {
		struct cut_json in = cut(chunks[i].in, strlen(chunks[i].in), 0);

		memset(&c, 0xa5, sizeof(c));
		llmapi_chunk(chunks[i].api, chunks[i].event, &in, &c);
		check_chunk(&chunks[i], &c);
		free((char *)in.data);
	}
}

/* With any part of the middle missing, no flag comes up that the whole does not have. */
static void test_llmapi_chunk__any_hole_gives_no_wrong_flag(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(chunks); i++) {
		const struct chunk_row *r = &chunks[i];
		struct cut_json in = whole(r->in);
		struct llm_chunk all, part;
		size_t len = in.len;

		llmapi_chunk(r->api, r->event, &in, &all);
		/* the mark that it is progress only may be what is missing; then it is not told apart */
		if (all.flags & TL_CHUNK_PROGRESS)
			continue;
		for (size_t head = 0; head < len; head += 1 + len / 100) {
			for (size_t tail = 0; head + tail < len; tail += 1 + len / 100) {
				uint32_t news;

				in = cut(r->in, head, tail);
				llmapi_chunk(r->api, r->event, &in, &part);
				news = part.flags & ~(all.flags | TL_CHUNK_OTHER | TL_CHUNK_EMPTY);
				if (news || (part.finish && part.finish != all.finish) ||
				    (part.usage.known & ~all.usage.known))
					fail_msg("%s, head %zu tail %zu: news %x", r->name, head, tail, news);
				free((char *)in.data);
			}
		}
	}
}

struct cut_row {
	const char *name;
	enum tl_api api;
	const char *head, *tail, *want;
};

/* The two ends of something long. */
static const struct cut_row cuts[] = {
	{ "300 kB of arguments", TL_API_CHAT,
	  "{\"id\":\"c-1\",\"choices\":[{\"index\":2,\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"a\\\": ",
	  "b\\\": \\\"c\\\"}\"}}]},\"logprobs\":null,\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":5}}",
	  "tool usage choice=2 id=c-1 p=5" },
	{ "long text, finish behind it", TL_API_CHAT,
	  "{\"id\":\"c-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"aaa",
	  "aaa\"},\"finish_reason\":\"length\"}],\"usage\":null}", "text finish (length) id=c-1" },
	{ "long text, index behind it", TL_API_CHAT, "{\"choices\":[{\"delta\":{\"content\":\"aaa",
	  "aaa\"},\"index\":3,\"finish_reason\":null}],\"id\":\"c-1\"}", "text choice=3 id=c-1" },
	{ "native end with its prompt", TL_API_LLAMA, "{\"index\":0,\"content\":\"\",\"id_slot\":3,\"stop\":true,"
	  "\"tokens_predicted\":3,\"tokens_evaluated\":18,\"generation_settings\":{\"seed\":1},\"prompt\":\"<s> {\\\"timings",
	  "\\\": {\\\"cache_n\\\": 99}}\",\"stop_type\":\"limit\"," TIMINGS "}",
	  "empty usage finish (length) p=18 c=17 o=3 slot=3 pf=2749000 dc=3947123" },
	{ "native end, cut in its settings", TL_API_LLAMA, "{\"content\":\"\",\"stop\":true,\"generation_settings\":{\"seed\":",
	  "5,\"stop\":[\"}\"],\"grammar\":\"\"},\"prompt\":\"x\",\"stop_type\":\"eos\"," TIMINGS "}",
	  "empty usage finish (stop) p=18 c=17 o=3 pf=2749000 dc=3947123" },
	{ "response.completed", TL_API_RESPONSES, "{\"type\":\"response.completed\",\"response\":{\"id\":\"r\","
	  "\"status\":\"completed\",\"output\":[{\"content\":[{\"text\":\"aaa",
	  "aaa\"}],\"role\":\"assistant\"}],\"usage\":{\"input_tokens\":18,\"output_tokens\":3}}," TIMINGS "}",
	  "usage finish done (stop) id=r p=18 c=17 o=3 pf=2749000 dc=3947123" },
	{ "body", TL_API_CHAT, "{\"choices\":[{\"finish_reason\":\"length\",\"index\":0,\"message\":{\"role\":\"assistant\","
	  "\"content\":\" tege", "pozo\"}}],\"created\":1,\"usage\":{\"completion_tokens\":3,\"prompt_tokens\":18},"
	  "\"id\":\"c-1\"," TIMINGS "}", "role text usage finish (length) id=c-1 p=18 c=17 o=3 pf=2749000 dc=3947123" },
	{ "embeddings", TL_API_EMBEDDINGS, "{\"object\":\"list\",\"data\":[{\"embedding\":[0.1,",
	  "0.2],\"index\":0}],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":5}}", "usage p=5" },
	{ "no tail", TL_API_CHAT, "{\"id\":\"c-1\",\"choices\":[{\"delta\":{\"content\":\"aaa", "", "text id=c-1" },
	{ "no head", TL_API_CHAT, "", "aaa\"}}],\"usage\":{\"prompt_tokens\":5}}", "usage p=5" },
	{ "tail is no object's end", TL_API_CHAT, "{\"id\":\"c-1\",\"a\":\"", "\"usage\":{\"prompt_tokens\":5}",
	  "other id=c-1" },
};

static void test_llmapi_chunk__reads_both_ends(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
		const struct cut_row *r = &cuts[i];
		char all[2000];
		struct cut_json in;
		struct llm_chunk c;

		snprintf(all, sizeof(all), "%s%s", r->head, r->tail);
		in = cut(all, strlen(r->head), strlen(r->tail));
		in.total += 300000;
		llmapi_chunk(r->api, "", &in, &c);
		check_chunk(&(struct chunk_row){ r->name, r->api, "", all, r->want }, &c);
		llmapi_body(r->api, &in, &c);
		check_chunk(&(struct chunk_row){ r->name, r->api, "", all, r->want }, &c);
		free((char *)in.data);
	}
}

static const struct chunk_row bodies[] = {
	{ "chat", TL_API_CHAT, "", "{\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"message\":{\"role\":"
	  "\"assistant\",\"content\":\"a\",\"reasoning_content\":\"b\",\"tool_calls\":[{}]}}],\"usage\":"
	  "{\"completion_tokens\":3,\"prompt_tokens\":18,\"prompt_tokens_details\":{\"cached_tokens\":17}},\"id\":\"c\"}",
	  "role text reasoning tool usage finish (stop) id=c p=18 c=17 o=3" },
	{ "messages", TL_API_MESSAGES, "", "{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"content\":"
	  "[{\"type\":\"thinking\",\"thinking\":\"t\"},{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"tool_use\"}],"
	  "\"stop_reason\":\"tool_use\",\"usage\":{\"cache_read_input_tokens\":17,\"input_tokens\":1,"
	  "\"output_tokens\":3}}", "text reasoning tool usage finish (tool) id=m p=18 c=17 o=3" },
	{ "responses", TL_API_RESPONSES, "", "{\"id\":\"r\",\"object\":\"response\",\"error\":null,\"output\":["
	  "{\"type\":\"reasoning\",\"summary\":[]},{\"type\":\"message\",\"content\":[{\"text\":\"a\"}]},"
	  "{\"type\":\"function_call\",\"arguments\":\"{}\"}],\"status\":\"completed\",\"usage\":{\"input_tokens\":18,"
	  "\"output_tokens\":3}}", "text reasoning tool usage finish (stop) id=r p=18 o=3" },
	{ "two prompts", TL_API_LLAMA, "", "[{\"index\":0,\"content\":\"a\",\"stop\":true,\"tokens_predicted\":2},"
	  "{\"index\":1,\"content\":\"b\",\"stop\":true,\"tokens_predicted\":3}]", "text usage finish (?) o=5" },
	{ "vllm error", TL_API_CHAT, "", "{\"object\":\"error\",\"message\":\"x\",\"type\":\"BadRequestError\","
	  "\"code\":400}", "error (error)" },
	{ "fastapi error", TL_API_CHAT, "", "{\"detail\":\"Not Found\"}", "error (error)" },
	{ "embeddings", TL_API_EMBEDDINGS, "", "{\"object\":\"list\",\"data\":[{\"embedding\":[0.1,-2e-3],\"index\":0}],"
	  "\"usage\":{\"prompt_tokens\":5,\"total_tokens\":5}}", "usage p=5" },
	{ "not JSON", TL_API_CHAT, "", "Internal Server Error", "other" },
};

static void test_llmapi_body__cases(void **state)
{
	struct llm_chunk c;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		struct cut_json in = cut(bodies[i].in, strlen(bodies[i].in), 0);

		memset(&c, 0xa5, sizeof(c));
		llmapi_body(bodies[i].api, &in, &c);
		check_chunk(&bodies[i], &c);
		free((char *)in.data);
	}
}

static void test_llmapi_chunk__deep_nesting_is_no_problem(void **state)
{
	enum { DEPTH = 200000 };
	char *in = malloc(2 * DEPTH + 100);
	struct llm_chunk c;
	struct cut_json j;

	(void)state;
	strcpy(in, "{\"x\":");
	memset(in + 5, '[', DEPTH);
	memset(in + 5 + DEPTH, ']', DEPTH);
	strcpy(in + 5 + 2 * DEPTH, ",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}");
	j = whole(in);
	llmapi_chunk(TL_API_CHAT, "", &j, &c);
	assert_int_equal(c.flags, TL_CHUNK_TEXT);
	j = cut(in, 100, DEPTH);
	llmapi_chunk(TL_API_CHAT, "", &j, &c);
	free((char *)j.data);
	free(in);
}

/* ---- the real server's bytes ---- */

struct capture {
	struct sse *sse;
	enum tl_api api;
	char body[8192];
	size_t body_len;
	bool stream;
	char lines[64][120];	/* what each event was, runs of equal ones as one */
	int counts[64], n;
};

static void add_line(struct capture *c, const struct llm_chunk *chunk)
{
	char line[400];

	print_chunk(line, chunk, false);
	assert_true(strlen(line) < sizeof(c->lines[0]) && c->n < 64);
	if (!c->n || strcmp(c->lines[c->n - 1], line))
		strcpy(c->lines[c->n++], line);
	c->counts[c->n - 1]++;
}

static void capture_event(void *ctx, const struct sse_event *ev)
{
	struct cut_json data = { ev->data, ev->head, ev->len, ev->total };
	struct capture *c = ctx;
	struct llm_chunk chunk;

	llmapi_chunk(c->api, ev->event, &data, &chunk);
	add_line(c, &chunk);
}

static void capture_head(void *ctx, const struct http1_head *head)
{
	((struct capture *)ctx)->stream = head->body == TL_BODY_SSE;
}

static void capture_body(void *ctx, const char *data, size_t len)
{
	struct capture *c = ctx;

	if (c->stream) {
		sse__feed(c->sse, data, len, capture_event, c);
		return;
	}
	assert_true(c->body_len + len <= sizeof(c->body));
	memcpy(c->body + c->body_len, data, len);
	c->body_len += len;
}

static void capture_end(void *ctx)
{
	struct capture *c = ctx;
	struct cut_json body = { c->body, c->body_len, c->body_len, c->body_len };
	struct llm_chunk chunk;

	if (c->stream)
		return;
	llmapi_body(c->api, &body, &chunk);
	add_line(c, &chunk);
}

static void check_capture(const char *name, enum tl_api api, const char *want)
{
	static const struct http1_fns fns = { .head = capture_head, .body = capture_body, .end = capture_end };
	char path[100], bytes[16384], got[4096];
	size_t len;
	FILE *f;

	snprintf(path, sizeof(path), "tests/golden/wire/%s.http", name);
	f = fopen(path, "r");
	if (!f)
		fail_msg("no %s: run from the top of the tree", path);
	len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	for (int mode = 0; mode < N_SPLITS; mode++) {
		struct capture c = { .sse = sse__new(4096, 1024), .api = api };
		struct http1 *h = http1__new(HTTP1_RESPONSES, &fns, &c);
		struct split split = split_new(mode);
		char *s = got;

		for (size_t i = 0, n; i < len; i += n) {
			n = split_next(&split, len - i);
			assert_int_equal(http1__feed(h, bytes + i, n), 0);
		}
		for (int i = 0; i < c.n; i++)
			s += sprintf(s, "%d %s\n", c.counts[i], c.lines[i]);
		if (strcmp(got, want))
			fail_msg("%s, split %d:\n%swanted\n%s", name, mode, got, want);
		http1__free(h);
		sse__free(c.sse);
	}
}

static void test_llmapi__real_streams(void **state)
{
	(void)state;
	/* 8 tokens, the text of some held back until it was whole UTF-8 */
	check_capture("llama-chat", TL_API_CHAT,
		      "1 role id\n5 text id\n1 usage finish (length) id p=18 c=0 o=8 pf dc\n1 done\n");
	check_capture("llama-error-stream", TL_API_CHAT, "1 role id\n1 text id\n1 error (error)\n");
	check_capture("llama-chat-progress", TL_API_CHAT,
		      "2 progress id p=18 c=17\n1 role id\n"
		      "1 text usage id p=18 c=17 o=1 pf dc\n1 text usage id p=18 c=17 o=2 pf dc\n"
		      "1 text usage id p=18 c=17 o=3 pf dc\n1 finish (length) id\n"
		      "1 usage id p=18 c=17 o=3 pf dc\n1 done\n");
	check_capture("llama-chat-n2", TL_API_CHAT,
		      "1 role choice=1 id\n1 text choice=1 id\n1 role id\n1 text id\n1 text choice=1 id\n"
		      "1 usage finish (length) choice=1 id p=18 c=17 o=2 pf dc\n1 text id\n"
		      "1 usage finish (length) id p=18 c=17 o=2 pf dc\n1 done\n");
	check_capture("llama-chat-logprobs", TL_API_CHAT,
		      "1 role id\n2 text id\n1 usage finish (length) id p=18 c=17 o=2 pf dc\n1 done\n");
	check_capture("llama-completions", TL_API_COMPLETIONS,
		      "3 text id\n1 empty usage finish (length) id p=4 c=1 o=3 pf dc\n1 done\n");
	check_capture("llama-native", TL_API_LLAMA,
		      "2 progress p=4 c=3\n27 text\n1 empty usage finish (length) p=4 c=3 o=30 slot pf dc\n");
	check_capture("llama-native-n2", TL_API_LLAMA,
		      "1 text choice=1\n1 text\n1 text choice=1\n"
		      "1 empty usage finish (length) choice=1 p=4 c=3 o=2 slot pf dc\n1 text\n"
		      "1 empty usage finish (length) p=4 c=3 o=2 slot pf dc\n");
	check_capture("llama-responses", TL_API_RESPONSES,
		      "2 other id\n2 other\n1 text\n2 other id\n1 text\n3 other\n"
		      "1 usage finish done (stop) id p=18 c=0 o=3 pf dc\n");
	check_capture("llama-messages", TL_API_MESSAGES,
		      "1 role usage id p=18 c=17\n1 other\n3 text\n1 other\n1 usage finish (length) o=3\n1 done\n");
}

static void test_llmapi__real_bodies(void **state)
{
	(void)state;
	check_capture("llama-chat-body", TL_API_CHAT,
		      "1 role text usage finish (length) id p=18 c=17 o=3 pf dc\n");
	/* two prompts: their counts add up */
	check_capture("llama-native-list", TL_API_LLAMA, "1 text usage finish (length) p=6 c=3 o=4 pf dc\n");
	check_capture("llama-error", TL_API_CHAT, "1 error (error)\n");
}

static void test_llmapi__real_vllm(void **state)
{
	(void)state;
	/* the second token's text comes with the third's */
	check_capture("vllm-chat-usage", TL_API_CHAT,
		      "1 role empty usage id p=6 o=0\n1 text usage tokens=1 id p=6 o=1\n"
		      "1 empty usage tokens=1 id p=6 o=2\n1 text usage tokens=1 id p=6 o=3\n"
		      "1 text usage finish (length) tokens=1 id p=6 o=4\n1 usage id p=6 o=4\n1 done\n");
	check_capture("vllm-chat-ids", TL_API_CHAT,
		      "1 role empty id\n3 text tokens=1 id\n1 text finish (length) tokens=1 id\n1 done\n");
	check_capture("vllm-chat-n2", TL_API_CHAT,
		      "1 role empty id\n1 role empty choice=1 id\n1 text id\n1 text finish (length) id\n"
		      "1 text choice=1 id\n1 text finish (length) choice=1 id\n1 done\n");
	check_capture("vllm-completions", TL_API_COMPLETIONS,
		      "2 text tokens=1 id\n1 text finish (length) tokens=1 id\n1 done\n");
	check_capture("vllm-responses", TL_API_RESPONSES,
		      "2 other id\n2 other\n2 text\n3 other\n1 usage finish done (length) id p=7 c=0 o=3 r=0\n");
	check_capture("vllm-messages", TL_API_MESSAGES,
		      "1 role usage id p=6\n1 other\n3 text\n1 other\n1 usage finish (length) p=6 o=3\n1 done\n");
	check_capture("vllm-error", TL_API_CHAT, "1 error (error)\n");
	check_capture("vllm-error-404", TL_API_CHAT, "1 error (error)\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_llmapi_chunk__cases),
		cmocka_unit_test(test_llmapi_chunk__any_hole_gives_no_wrong_flag),
		cmocka_unit_test(test_llmapi_chunk__reads_both_ends),
		cmocka_unit_test(test_llmapi_body__cases),
		cmocka_unit_test(test_llmapi_chunk__deep_nesting_is_no_problem),
		cmocka_unit_test(test_llmapi__real_streams),
		cmocka_unit_test(test_llmapi__real_bodies),
		cmocka_unit_test(test_llmapi__real_vllm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
