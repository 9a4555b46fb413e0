/* SPDX-License-Identifier: Apache-2.0 */
/* Answers joined late: which format they speak, and sums of what chunks report. */
#include "parse/llmapi.h"

#include "base/util.h"
#include <string.h>

void llm_usage_merge(struct llm_usage *into, const struct llm_usage *from)
{
	uint32_t known = from->known;

	if (known & TL_USAGE_PROMPT)
		into->prompt = from->prompt;
	if (known & TL_USAGE_CACHED)
		into->cached = from->cached;
	if (known & TL_USAGE_OUTPUT)
		into->output = from->output;
	if (known & TL_USAGE_REASONING)
		into->reasoning = from->reasoning;
	if (known & TL_USAGE_PREFILL_TIME)
		into->prefill_ns = from->prefill_ns;
	if (known & TL_USAGE_DECODE_TIME)
		into->decode_ns = from->decode_ns;
	if (known & TL_USAGE_SLOT)
		into->slot = from->slot;
	if (known & TL_USAGE_DRAFT) {
		into->draft = from->draft;
		into->draft_accepted = from->draft_accepted;
	}
	into->known |= known;
}

static bool has(const struct cut_json *d, const char *what)
{
	/* These marks stand in the first bytes, before any text. */
	return memmem(d->data, d->head < 400 ? d->head : 400, what, strlen(what));
}

enum tl_api llmapi_guess(const char *event, const struct cut_json *data)
{
	static const struct { const char *mark; enum tl_api api; } marks[] = {
		{ "\"chat.completion.chunk\"", TL_API_CHAT },
		{ "\"text_completion\"", TL_API_COMPLETIONS },
		{ "\"type\":\"response.", TL_API_RESPONSES },
		{ "\"type\":\"content_block_", TL_API_MESSAGES },
		{ "\"type\":\"message_", TL_API_MESSAGES },
		{ "\"eval_count\"", TL_API_OLLAMA },
		{ "\"created_at\"", TL_API_OLLAMA },
		/* "choices" first, if the object's kind stands behind the text */
		{ "\"choices\":[{\"delta\"", TL_API_CHAT },
		{ "\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\"", TL_API_CHAT },
		{ "\"delta\":{", TL_API_CHAT },
		{ "\"choices\":[{\"text\"", TL_API_COMPLETIONS },
		{ "\"id_slot\"", TL_API_LLAMA },
		{ "\"tokens_predicted\"", TL_API_LLAMA },
	};

	if (!strncmp(event, "response.", 9))
		return TL_API_RESPONSES;
	if (!strncmp(event, "content_block_", 14) || !strncmp(event, "message_", 8))
		return TL_API_MESSAGES;
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (has(data, marks[i].mark))
			return marks[i].api;
	if (has(data, "\"choices\":[{"))	/* whole answers: the object's
						 * kind stands behind the text */
		return has(data, "\"message\":") ? TL_API_CHAT : TL_API_COMPLETIONS;
	if (has(data, "\"object\":\"response\""))
		return TL_API_RESPONSES;
	if (has(data, "\"type\":\"message\""))
		return TL_API_MESSAGES;
	if (memmem(data->data, data->len, "\"tokens_predicted\":", 19))
		return TL_API_LLAMA;
	return TL_API_OTHER;
}
