/* SPDX-License-Identifier: Apache-2.0 */
/* simserve: reads what a request asks for, and writes the JSON of its answer. */
#include <cjson/cJSON.h>
#include <ctype.h>
#include <string.h>

#include "serve.h"

enum { DEFAULT_OUT = 16, MAX_OUT = 100000, MAX_PROMPT = 1 << 20 };

/* A word is a token; the same prompt gives the same answer. */
static void count_words(const char *text, struct job *j)
{
	bool in_word = false;

	for (; *text; text++) {
		j->hash = mix(j->hash ^ (uint8_t)*text);
		j->prompt += !isspace((uint8_t)*text) && !in_word;
		in_word = !isspace((uint8_t)*text);
	}
}

static void count_content(const cJSON *content, struct job *j)
{
	const cJSON *part;

	if (cJSON_IsString(content))
		count_words(content->valuestring, j);
	cJSON_ArrayForEach(part, content)
		count_content(cJSON_IsObject(part) ? cJSON_GetObjectItem(part, "text") : part, j);
}

static uint32_t number(const cJSON *o, const char *name, uint32_t otherwise)
{
	const cJSON *v = cJSON_GetObjectItem(o, name);

	return cJSON_IsNumber(v) && v->valuedouble >= 1 && v->valuedouble <= MAX_OUT ? v->valuedouble :
		otherwise;
}

int answer_parse(const char *path, const char *body, size_t n, struct answer *ret)
{
	struct answer a = { .chat = !strcmp(path, "/v1/chat/completions") };
	const cJSON *message;
	cJSON *o;

	if (!a.chat && strcmp(path, "/v1/completions"))
		return 404;
	o = cJSON_ParseWithLength(body, n);
	if (!cJSON_IsObject(o)) {
		cJSON_Delete(o);
		return 400;
	}
	if (a.chat)
		cJSON_ArrayForEach(message, cJSON_GetObjectItem(o, "messages"))
			count_content(cJSON_GetObjectItem(message, "content"), &a.job);
	else
		count_content(cJSON_GetObjectItem(o, "prompt"), &a.job);
	a.job.max_out = number(o, "max_tokens", number(o, "max_completion_tokens", DEFAULT_OUT));
	a.job.ignore_eos = cJSON_IsTrue(cJSON_GetObjectItem(o, "ignore_eos"));
	a.stream = cJSON_IsTrue(cJSON_GetObjectItem(o, "stream"));
	a.usage = cJSON_IsTrue(cJSON_GetObjectItem(cJSON_GetObjectItem(o, "stream_options"),
						   "include_usage"));
	cJSON_Delete(o);
	if (!a.job.prompt || a.job.prompt > MAX_PROMPT)
		return 400;
	*ret = a;
	return 200;
}

static const char *word(uint64_t hash, uint32_t index, char buf[8])
{
	static const char consonants[] = "bcdfghjklmnpqrst", vowels[] = "aeio";
	uint64_t x = mix(hash + index);

	buf[0] = ' ';
	for (int i = 0; i < 2; i++, x >>= 6) {
		buf[1 + 2 * i] = consonants[x % 16];
		buf[2 + 2 * i] = vowels[x / 16 % 4];
	}
	buf[5] = 0;
	return buf;
}

static const char *reason(enum finish f)
{
	return f == FINISH_LENGTH ? "\"length\"" : f == FINISH_STOP ? "\"stop\"" : "null";
}

#define CHUNK "{\"id\":\"%s\",\"object\":\"%s\",\"created\":0,\"model\":\"sim\","

size_t answer_token(const struct answer *a, const struct output *o, char *buf, size_t max)
{
	char text[8];

	if (a->chat)
		return snprintf(buf, max, CHUNK "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},"
				"\"finish_reason\":%s}]}", a->job.id, "chat.completion.chunk",
				word(o->hash, o->index, text), reason(o->finish));
	return snprintf(buf, max, CHUNK "\"choices\":[{\"index\":0,\"text\":\"%s\",\"finish_reason\":%s}]}",
			a->job.id, "text_completion", word(o->hash, o->index, text), reason(o->finish));
}

size_t answer_role(const struct answer *a, char *buf, size_t max)
{
	return snprintf(buf, max, CHUNK "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
			"\"content\":\"\"},\"finish_reason\":null}]}", a->job.id, "chat.completion.chunk");
}

#define USAGE "\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u}}"

size_t answer_usage(const struct answer *a, char *buf, size_t max)
{
	return snprintf(buf, max, CHUNK "\"choices\":[]," USAGE, a->job.id,
			a->chat ? "chat.completion.chunk" : "text_completion", a->job.prompt, a->n_out,
			a->job.prompt + a->n_out);
}

size_t answer_whole(const struct answer *a, enum finish finish, char *buf, size_t max)
{
	size_t n;
	char text[8];

	n = snprintf(buf, max, CHUNK "\"choices\":[{\"index\":0,%s\"", a->job.id,
		     a->chat ? "chat.completion" : "text_completion",
		     a->chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
	for (uint32_t i = 0; i < a->n_out && n + 256 < max; i++)
		n += snprintf(buf + n, max - n, "%s", word(a->job.hash, i, text));
	n += snprintf(buf + n, max - n, "\"%s,\"finish_reason\":%s}]," USAGE, a->chat ? "}" : "",
		      reason(finish), a->job.prompt, a->n_out, a->job.prompt + a->n_out);
	return n;
}
