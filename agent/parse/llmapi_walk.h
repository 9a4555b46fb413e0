/* SPDX-License-Identifier: Apache-2.0 */
/* The walk over the JSON of a chunk or body: its state, and the parts that formats share. */
#ifndef TL_LLMAPI_WALK_H
#define TL_LLMAPI_WALK_H

#include "parse/llmapi_priv.h"

/* What is being found out about a chunk. */
struct walk {
	struct llm_chunk *c;
	struct llm_counts counts;
	enum tl_api api;
	int delta;		/* a string named delta: -1 none, 0 empty, 1 text */
	bool empty;		/* "" where text would be */
	bool counted;		/* usage or timings were there */
	bool choice;		/* an index was taken */
	bool detail;		/* FastAPI's way to say error */
	char type[64];		/* of the event, as Anthropic and OpenAI responses have it */
};

/* Each takes one value. */
void walk_text(struct walk *w, struct json *j, uint32_t flag);	/* a string that the model said */
void walk_parts(struct walk *w, struct json *j);	/* [{"type":"text","text":"..."}, ...] */
void walk_content(struct walk *w, struct json *j);	/* either */
void walk_delta(struct walk *w, struct json *j);	/* a delta or message of any format */
void walk_choices(struct walk *w, struct json *j);	/* OpenAI's */
void walk_index(struct walk *w, struct json *j);
void walk_finish(struct walk *w, struct json *j);	/* a reason to finish, or null */
void walk_error(struct walk *w, struct json *j);	/* an object or a text; null is none */

void walk_failed(struct walk *w);

/* The value behind key, if that is known here; false: it is still to be taken. */
bool walk_delta_member(struct walk *w, struct json *j, struct json_key k);
/* Members up to the closing brace. */
void walk_choice_members(struct walk *w, struct json *j);

#endif
