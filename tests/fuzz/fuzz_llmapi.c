/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as requests, chunks and bodies, whole and with a hole. What whole requests say is
 * compared with what cJSON reads; a hole may hide facts, never change them. */
#include "parse/llmapi.h"

#include "trace.h"

#include <cjson/cJSON.h>

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s\n", what);
	abort();
}

/* ---- requests, against cJSON ---- */

/* cJSON is more lenient than JSON and than us where these occur. */
static bool is_plain(const char *s)
{
	for (; *s; s++)
		if ((*s > 0 && *s < ' ' && !strchr("\t\n\r", *s)) || (*s == '\\' && s[1] == 'u') ||
		    (*s == '-' && s[1] == '.'))
			return false;
	return true;
}

static int32_t limit_of(const cJSON *v)
{
	double n = v->valuedouble;

	return n < 0 && n > -1 ? 0 : n < 0 ? -1 : n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

static void model_of(const cJSON *v, char *ret)
{
	size_t n = 0;

	for (const char *s = v->valuestring; *s && n < 63; s++)
		ret[n++] = *s >= ' ' && *s < 127 ? *s : '?';
	ret[n] = '\0';
}

/* The last of equal names counts, as it does for us. */
static void read_all(enum tl_api api, const cJSON *doc, struct llm_request *r, int *n_limits,
		     int *n_all)
{
	int rank = 0;

	*r = (struct llm_request){ .stream = -1, .max_tokens = -1 };
	for (const cJSON *v = doc->child; v; v = v->next) {
		const char *k = v->string;
		int this_rank = !strcmp(k, "n_predict") ? 1 : !strcmp(k, "max_tokens") ? 2 :
				!strcmp(k, "max_completion_tokens") ||
				!strcmp(k, "max_output_tokens") ? 3 : 0;

		if (!strcmp(k, "options") && api == TL_API_OLLAMA && cJSON_IsObject(v)) {
			for (const cJSON *o = v->child; o; o = o->next) {
				if (strcmp(o->string, "num_predict") || !cJSON_IsNumber(o))
					continue;
				++*n_limits;
				if (rank <= 1) {
					rank = 1;
					r->max_tokens = limit_of(o);
				}
			}
		}
		if (!strcmp(k, "model") && cJSON_IsString(v)) {
			model_of(v, r->model);
			++*n_all;
		} else if (!strcmp(k, "stream") && cJSON_IsBool(v)) {
			r->stream = cJSON_IsTrue(v);
			++*n_all;
		} else if (!strcmp(k, "n") && cJSON_IsNumber(v) && v->valuedouble >= 1) {
			r->n = v->valuedouble < UINT16_MAX ? v->valuedouble : UINT16_MAX;
			++*n_all;
		} else if (this_rank && cJSON_IsNumber(v)) {
			++*n_limits;
			if (this_rank >= rank) {
				rank = this_rank;
				r->max_tokens = limit_of(v);
			}
		}
	}
	if (api == TL_API_OLLAMA && r->stream < 0)
		r->stream = 1;
}

static void request(enum tl_api api, const char *s, size_t len, const struct cut_json *hole)
{
	struct cut_json whole = { s, len, len, len };
	struct llm_request got, want, part;
	int n_limits = 0, n_all = 0;
	cJSON *doc;

	llmapi_request(api, &whole, &got);
	llmapi_request(api, hole, &part);
	need(!got.cut && part.cut == (hole->total != hole->len), "request: cut");
	need(strnlen(part.model, sizeof(part.model)) < sizeof(part.model), "request: model");
	need(got.max_tokens >= -1 && part.max_tokens >= -1, "request: max_tokens");
	need(got.stream >= -1 && got.stream <= 1, "request: stream");
	if (strlen(s) != len || !is_plain(s) || (unsigned char)*s == 0xEF)
		return;
	doc = cJSON_ParseWithOpts(s, NULL, true);
	if (!doc)
		return;
	if (cJSON_IsObject(doc)) {
		read_all(api, doc, &want, &n_limits, &n_all);
		need(!strcmp(got.model, want.model), "request: not cJSON's model");
		need(got.stream == want.stream, "request: not cJSON's stream");
		need(got.n == want.n || want.n > 60000, "request: not cJSON's n");
		need(labs((long)got.max_tokens - want.max_tokens) <= 1,
		     "request: not cJSON's max_tokens");
		/* With each fact said once, a hole only hides. */
		if (n_limits <= 1 && n_all <= 1) {
			need(!part.model[0] || !strcmp(part.model, got.model), "hole: model");
			need(part.stream < 0 || part.stream == got.stream, "hole: stream");
			need(!part.n || part.n == got.n, "hole: n");
			need(part.max_tokens < 0 || part.max_tokens == got.max_tokens,
			     "hole: max_tokens");
		}
	}
	cJSON_Delete(doc);
}

/* ---- chunks and bodies ---- */

static void sane(const struct llm_chunk *c)
{
	need(c->flags && !(c->flags & ~(TL_CHUNK_OTHER * 2 - 1)), "chunk: flags");
	need(!(c->flags & TL_CHUNK_EMPTY) || !(c->flags & TL_CHUNK_TOKEN), "chunk: empty, text");
	need(!(c->flags & TL_CHUNK_OTHER) || c->flags == TL_CHUNK_OTHER, "chunk: other and more");
	need(c->finish <= TL_FINISH_FILTER, "chunk: finish");
	need(strnlen(c->id, sizeof(c->id)) < sizeof(c->id), "chunk: id");
	need(!(c->usage.known & ~(TL_USAGE_DRAFT * 2 - 1)), "chunk: known");
}

static void chunk(enum tl_api api, const char *event, const char *s, size_t len,
		  const struct cut_json *hole)
{
	struct cut_json whole = { s, len, len, len }, seam = { s, len / 2, len, len };
	struct llm_chunk a, b;

	memset(&a, 0xa5, sizeof(a));
	memset(&b, 0x5a, sizeof(b));
	llmapi_chunk(api, event, &whole, &a);
	llmapi_chunk(api, event, &seam, &b);	/* a hole of no bytes is none */
	sane(&a);
	need(a.flags == b.flags && a.n_tokens == b.n_tokens && a.choice == b.choice &&
	     a.finish == b.finish && !strcmp(a.id, b.id) && !memcmp(&a.usage, &b.usage, sizeof(a.usage)), "chunk: differs");
	llmapi_chunk(api, event, hole, &a);
	sane(&a);
	llmapi_body(api, &whole, &a);
	sane(&a);
	llmapi_body(api, hole, &a);
	sane(&a);
	llmapi_guess(event, &whole);
	llmapi_guess(event, hole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const events[] = { "", "error", "message_start", "response.completed",
					      "response.reasoning.delta", "content_block_delta" };
	size_t len, head, tail;
	struct cut_json hole;
	char *s, *part;
	enum tl_api api;

	if (size < 3)
		return 0;
	api = data[0] % (TL_API_OLLAMA + 1);
	len = size - 3;
	head = len * data[1] / 255;
	tail = (len - head) * data[2] / 255;
	s = malloc(len + 1);
	memcpy(s, data + 3, len);
	s[len] = '\0';
	part = exact_copy(s, head + tail);
	memcpy(part + head, s + len - tail, tail);
	hole = (struct cut_json){ part, head, head + tail, len };
	request(api, s, len, &hole);
	chunk(api, events[data[0] / 16 % 6], s, len, &hole);
	llmapi_of_path(s);
	free(part);
	free(s);
	return 0;
}
