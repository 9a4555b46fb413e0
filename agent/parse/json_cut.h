/* SPDX-License-Identifier: Apache-2.0 */
/* A cursor over JSON text that may be cut: walks objects and arrays, allocates nothing.
 *
 * Not jsmn: that wants a token for every value of a request (a long chat has thousands) and cannot
 * read an end whose beginning is missing. For a chunk, this one finds all facts in about the time
 * (0.3 us) that jsmn takes to make its tokens. */
#ifndef TL_JSON_CUT_H
#define TL_JSON_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Each function below takes exactly one value, or moves between values. Once the text ends early
 * or makes no sense, `bad` is set and every call says "no": loops end by themselves. */
struct json {
	const char *p, *end;
	bool bad;
	bool first;		/* behind '{' or '[': no comma is due */
};

struct json_key {
	const char *p;
	size_t len;
};
#define KEY_IS(key, word) \
	((key).len == sizeof(word) - 1 && !memcmp((key).p, word, sizeof(word) - 1))

void json_init(struct json *j, const char *p, const char *end);

/* while (json_key(j, &key)) { take the value } after json_object(); same for arrays. A value of
 * another type is taken, and json_object() or json_array() return false. */
bool json_object(struct json *j);
bool json_key(struct json *j, struct json_key *ret);
bool json_array(struct json *j);
bool json_element(struct json *j);

void json_skip(struct json *j);			/* any value */
char json_peek(struct json *j);			/* first character of the value to come, 0: none */
bool json_bool(struct json *j, bool *ret);
/* A number times 10^scale, rounded towards zero, saturating. */
bool json_number(struct json *j, int scale, int64_t *ret);
/* A string, unescaped, cut to fit size > 0; what is not printable ASCII becomes '?'. */
bool json_string(struct json *j, char *ret, size_t size);
/* What stands between a string's quotes, as UTF-8 and without escapes, with a NUL. false: it is no
 * JSON, holds a NUL, or does not fit. */
bool json_unescape(const char *p, size_t len, char *ret, size_t size);
/* -1: no string; 0: ""; 1: more than that, also if its end is missing (then `bad` is set). */
int json_has_text(struct json *j);
/* Elements of an array; -1: no array, or its end is missing. */
int json_count(struct json *j);

/* For text of which only the end is there. Returns where the first whole member of its outermost
 * object begins (then read on with json_key), or `end`. With inner != NULL also the first whole
 * member of each object that is open at p: inner[0] of the one directly inside, and so on; NULL
 * where there is none. */
const char *json_tail(const char *p, const char *end, const char **inner, size_t n_inner);

#endif
