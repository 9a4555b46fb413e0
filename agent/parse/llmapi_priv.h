/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of llmapi share. */
#ifndef TL_LLMAPI_PRIV_H
#define TL_LLMAPI_PRIV_H

#include "parse/json_cut.h"
#include "parse/llmapi.h"

/* Counts as the wire gives them, before they are made one. -1: not given. */
struct llm_counts {
	int64_t prompt, output, cached, reasoning;	/* usage */
	int64_t cache_read, cache_creation;		/* usage of Anthropic: not in its prompt */
	int64_t cache_n, prompt_n, predicted_n;		/* timings of llama.cpp */
	int64_t prompt_ns, predicted_ns, draft_n, draft_accepted;
	int64_t evaluated, predicted;			/* llama.cpp native, beside timings */
	int64_t slot;
};
void llm_counts_init(struct llm_counts *c);
void llm_counts_usage(struct llm_counts *c, struct json *j);
void llm_counts_timings(struct llm_counts *c, struct json *j);
void llm_counts_progress(struct llm_counts *c, struct json *j);
void llm_counts_merge(const struct llm_counts *c, struct llm_usage *ret);

/* What engines and vendors call the end. */
uint8_t llm_finish(const char *word);

/* The parts of a body: all of it in `head` and nothing in `tail`, or what is around the hole. */
struct llm_parts {
	const char *head, *head_end, *tail, *tail_end;
};
static inline struct llm_parts llm_parts(const struct cut_json *c)
{
	const char *end = c->data + c->len;

	if (c->total == c->len || c->head >= c->len)
		return (struct llm_parts){ c->data, end, end, end };
	return (struct llm_parts){ c->data, c->data + c->head, c->data + c->head, end };
}

#endif
