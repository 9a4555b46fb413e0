/* SPDX-License-Identifier: Apache-2.0 */
/* What requests and answers of LLM wire formats mean. Pure; keeps no text. */
#ifndef TL_LLMAPI_H
#define TL_LLMAPI_H

#include "tl_event.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* JSON of which the middle may be missing: `head` bytes at data, then len - head bytes that are its
 * end. total == len when it is whole. */
struct cut_json {
	const char *data;
	size_t head, len;
	uint64_t total;
};

enum tl_api llmapi_of_path(const char *path);

struct llm_request {
	char model[64];
	int8_t stream;		/* 1, 0, -1: not said. Ollama, not said: 1, its default */
	int32_t max_tokens;	/* -1: not said, or no limit. max_tokens, n_predict ... */
	uint16_t n;		/* 0: not said */
	bool cut;		/* part of the body was missing, a fact may be too */
	enum tl_api api;	/* of the path, unless the body tells: /invocations takes any */
};
/* Reads the facts of a request body, also when its middle is missing. Garbage gives "not said". */
void llmapi_request(enum tl_api api, const struct cut_json *body, struct llm_request *ret);

/* Counts and times inside a chunk or a body; fields as in struct tl_usage. Some may be
 * known without TL_CHUNK_USAGE: llama.cpp's own format counts in every chunk, its prompt
 * progress tells the prompt. All count from the beginning of the answer; of the choice,
 * where llama.cpp says them. */
struct llm_usage {
	uint32_t known;		/* TL_USAGE_* */
	uint32_t prompt, cached, output, reasoning, draft, draft_accepted;
	int32_t slot;
	uint64_t prefill_ns, decode_ns;
};

struct llm_chunk {
	uint32_t flags;		/* TL_CHUNK_* */
	uint32_t n_tokens;	/* 0: the chunk does not say. From token_ids or logprobs */
	uint16_t choice;
	uint8_t finish;		/* enum tl_finish */
	char id[64];		/* response id, "" if none: to be shown, cut to fit */
	const char *id_text;	/* ... and all of it as it stands between its
				 * quotes, in the data: to be compared */
	uint32_t id_len;
	struct llm_usage usage;
};
/* One event of a stream (`event` is the SSE event field, "" if none) or one JSON line. */
void llmapi_chunk(enum tl_api api, const char *event, const struct cut_json *data,
		  struct llm_chunk *ret);
/* The body of an answer that was not streamed, or of an error. */
void llmapi_body(enum tl_api api, const struct cut_json *body, struct llm_chunk *ret);

/* Takes over every field that `from` knows. */
void llm_usage_merge(struct llm_usage *into, const struct llm_usage *from);
/* Which format a stream speaks whose request was not seen, told from one of its events;
 * TL_API_OTHER: none that we know. */
enum tl_api llmapi_guess(const char *event, const struct cut_json *data);

#endif
