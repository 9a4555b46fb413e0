/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's messages in the shapes of its releases, in none of them, and cut at every byte. */
#include "parse/vllm_msg.h"
#include "msgpack_out.h"
#include "unit.h"

#include <errno.h>

struct text {
	char s[4096];
	size_t len;
};

__attribute__((format(printf, 2, 3)))
static void say(struct text *t, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	t->len += vsnprintf(t->s + t->len, sizeof(t->s) - t->len, format, ap);
	va_end(ap);
	assert_true(t->len < sizeof(t->s));
}

static void say_id(struct text *t, const char *name, struct vllm_id id)
{
	say(t, "%s%.*s", name, (int)id.len, id.p);
}

static void say_flags(struct text *t, uint8_t flags)
{
	say(t, "%s%s", flags & VLLM_CUT ? " cut" : "", flags & VLLM_SHAPE ? " shape" : "");
}

/* A copy of exactly len bytes, so that reading past it is seen. */
static uint8_t *exact(const void *p, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	memcpy(copy, p, len);
	return copy;
}

/* ---- ADD ---- */

static void say_add(struct text *t, const struct vllm_add *a)
{
	say_id(t, "", a->id);
	if (a->external.len)
		say_id(t, " of ", a->external);
	if (a->n_prompt >= 0)
		say(t, " prompt %lld", (long long)a->n_prompt);
	if (a->arrival_ns)
		say(t, " at %llu", (unsigned long long)a->arrival_ns);
	if (a->client_index >= 0)
		say(t, " client %d", a->client_index);
	if (a->max_tokens >= 0)
		say(t, " max %d", a->max_tokens);
	if (a->n)
		say(t, " n %d", a->n);
	say_flags(t, a->flags);
}

#define PARAMS "{temperature:0.7,n:2,stop:[\"x\"],max_tokens:300,_all_stop_token_ids:#2}"

static const struct row {
	const char *name, *in, *want;
} adds[] = {
	{ "0.7.3",
	  "[\"cmpl-1-0\",nil,#17,nil,nil,nil," PARAMS ",2,1700000000.25,nil]",
	  "cmpl-1-0 prompt 17 at 1700000000250000000 max 300 n 2" },
	{ "0.7.3, prompt given as text too",
	  "[\"cmpl-1-0\",\"text\",#17,nil,nil,nil," PARAMS ",2,1700000000.25,nil]",
	  "cmpl-1-0 prompt 17 at 1700000000250000000 max 300 n 2" },
	{ "0.8",
	  "[\"chatcmpl-1\",#17,nil,nil,nil," PARAMS ",2,1700000000.25,nil,0]",
	  "chatcmpl-1 prompt 17 at 1700000000250000000 max 300 n 2" },
	{ "0.8 with images",
	  "[\"chatcmpl-1\",#300,[nil,{pixels:[\"float32\",[3,5],1]}],[\"ab\",\"cd\"],[{offset:3,length:9}],"
	  PARAMS ",2,1700000000.25,nil,nil,0]",
	  "chatcmpl-1 prompt 300 at 1700000000250000000 max 300 n 2" },
	{ "0.9.0 with a salt",
	  "[\"chatcmpl-1\",#17,nil,nil,nil," PARAMS ",2,1700000000.25,nil,\"salt\",0]",
	  "chatcmpl-1 prompt 17 at 1700000000250000000 max 300 n 2" },
	{ "0.9.1: client_index before current_wave",
	  "[\"chatcmpl-1\",#17,nil,nil,nil," PARAMS ",2,1700000000.25,nil,nil,3,0]",
	  "chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "0.9.2",
	  "[\"chatcmpl-1\",#17,nil,nil,nil," PARAMS ",nil,2,1700000000.25,nil,nil,nil,3,0,0]",
	  "chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "0.10 with a rank and a salt",
	  "[\"chatcmpl-1\",#17,nil,nil,nil," PARAMS ",nil,2,1700000000.25,nil,\"chatcmp\",7,3,0,-5]",
	  "chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "0.10.2 with an adapter",
	  "[\"chatcmpl-1\",#17,nil," PARAMS ",nil,2,1700000000.25,[\"lora\",1,\"/path\"],nil,nil,nil,3,0,0,"
	  "{traceparent:\"00-1-2-00\"}]",
	  "chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "0.13",
	  "[\"chatcmpl-1\",#17,nil," PARAMS ",nil,2,1700000000.25,nil,nil,nil,nil,3,0,0,nil]",
	  "chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "0.14",
	  "[\"chatcmpl-1-0a1b2c3d\",#17,nil," PARAMS ",nil,2,1700000000.25,nil,nil,nil,nil,3,0,0,nil,\"chatcmpl-1\"]",
	  "chatcmpl-1-0a1b2c3d of chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "0.17, 17 fields",
	  "[\"chatcmpl-1-0a1b2c3d\",#17,nil," PARAMS ",nil,1700000000.25,nil,nil,nil,nil,3,0,0,nil,F,"
	  "\"chatcmpl-1\",nil]",
	  "chatcmpl-1-0a1b2c3d of chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "0.22, 20 fields",
	  "[\"chatcmpl-1-0a1b2c3d\",#17,nil," PARAMS ",nil,1700000000.25,nil,nil,nil,nil,nil,3,0,0,nil,F,"
	  "\"chatcmpl-1\",nil,nil,F]",
	  "chatcmpl-1-0a1b2c3d of chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "0.32, 22 fields",
	  "[\"chatcmpl-1-0a1b2c3d\",#17,nil," PARAMS ",nil,1700000000.25,nil,nil,nil,nil,nil,3,0,0,nil,F,"
	  "\"chatcmpl-1\",nil,{a:1},F,\"session\",nil]",
	  "chatcmpl-1-0a1b2c3d of chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "longer than any we know",
	  "[\"chatcmpl-1-0a1b2c3d\",#17,nil," PARAMS ",nil,1700000000.25,nil,nil,nil,nil,nil,3,0,0,nil,F,"
	  "\"chatcmpl-1\",nil,{a:1},F,\"session\",nil,1,2,3,[1],1.5,{max_tokens:7}]",
	  "chatcmpl-1-0a1b2c3d of chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2" },
	{ "a child",
	  "[\"1_chatcmpl-1-0a1b2c3d\",#17,nil,{max_tokens:5},nil,1700000000.25,nil,nil,nil,nil,nil,0,0,0,nil,F,"
	  "\"chatcmpl-1\",nil,nil,F,nil,nil]",
	  "1_chatcmpl-1-0a1b2c3d of chatcmpl-1 prompt 17 at 1700000000250000000 client 0 max 5" },
	{ "ids that are not made at random",
	  "[\"my id\",#17,nil,{max_tokens:5},nil,1700000000.25,nil,\"salt\",nil,nil,nil,0,0,0,nil,F,"
	  "\"my id\",nil,nil,F,\"session\",nil]",
	  "my id of my id prompt 17 at 1700000000250000000 client 0 max 5" },
	{ "an external id that does not resemble the engine's",
	  "[\"my id\",#17,nil,{max_tokens:5},nil,1700000000.25,nil,\"salt\",nil,nil,nil,0,0,0,nil,F,"
	  "\"yours\",nil,nil,F,\"session\",nil]",
	  "my id of yours prompt 17 at 1700000000250000000 client 0 max 5" },
	{ "parameters with their defaults left out",
	  "[\"chatcmpl-1\",#1,nil,{},nil,1700000000.25,nil]",
	  "chatcmpl-1 prompt 1 at 1700000000250000000" },
	{ "parameters of a wrong type",
	  "[\"chatcmpl-1\",#1,nil,{max_tokens:nil,n:\"x\"},nil,1700000000.25,nil]",
	  "chatcmpl-1 prompt 1 at 1700000000250000000" },
	{ "an embedding request",
	  "[\"embd-1-0\",#17,nil,nil,[\"embed\",nil],1700000000.25,nil,nil,nil,nil,nil,3,0,0,{max_tokens:7},F,"
	  "nil,nil,nil,F,nil]",
	  "embd-1-0 prompt 17 at 1700000000250000000 client 3" },
	{ "embeddings in the place of tokens",
	  "[\"cmpl-1-0\",nil,nil,{max_tokens:5},nil,1700000000.25,nil,nil,nil,[\"torch.float32\",[23,64],1],nil,"
	  "3,0,0,nil,F,nil,nil,nil,F,nil]",
	  "cmpl-1-0 prompt 23 at 1700000000250000000 client 3 max 5" },
	{ "embeddings and tokens mixed",
	  "[\"cmpl-1-0\",#30,nil,{max_tokens:5},nil,1700000000.25,nil,nil,nil,[\"torch.float32\",[23,64],1],[T,F],"
	  "3,0,0,nil,F,nil,nil,nil,F,nil]",
	  "cmpl-1-0 prompt 30 at 1700000000250000000 client 3 max 5" },
	{ "images, and a tensor inline",
	  "[\"chatcmpl-1\",#300,[{data:[\"float32\",[3,5],!60],modality:\"image\"}],{max_tokens:5},nil,1700000000.25,"
	  "nil,nil,nil,nil,nil,3,0,0,nil,F,nil,nil,nil,F,nil]",
	  "chatcmpl-1 prompt 300 at 1700000000250000000 client 3 max 5" },
	{ "an empty prompt", "[\"a\",[],nil,{},nil,1700000000.25]", "a prompt 0 at 1700000000250000000" },
	{ "no prompt, an empty list of images", "[\"a\",nil,[],{},nil,1700000000.25]",
	  "a at 1700000000250000000 shape" },
	{ "a prompt that is no list of numbers", "[\"a\",[\"b\"],nil,{max_tokens:5},nil,1700000000.25,nil]",
	  "a at 1700000000250000000 max 5 shape" },
	{ "no times", "[\"a\",#5,nil,{max_tokens:5},7,7,7,\"a\"]", "a prompt 5 max 5 shape" },
	{ "times that are none", "[\"a\",#5,nil,{max_tokens:5},nil,-1.5,nil]", "a prompt 5 max 5" },
	{ "an id alone", "[\"a\"]", "a shape" },
};

static void read_add(struct text *t, const void *p, size_t len)
{
	uint8_t *copy = exact(p, len);
	struct vllm_add a;

	if (vllm_msg_add(copy, len, &a))
		say(t, "none");
	else
		say_add(t, &a);
	free(copy);
}

static void test_vllm_msg__adds(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(adds); i++) {
		struct text t = { .len = 0 };
		struct mp o = { 0 };

		mp_text(&o, adds[i].in);
		read_add(&t, o.p, o.len);
		if (strcmp(t.s, adds[i].want))
			fail_msg("%s:\n  got  '%s'\n  want '%s'", adds[i].name, t.s, adds[i].want);
		mp_free(&o);
	}
}

/* What a cut message says is what the whole one says, or nothing. */
static void test_vllm_msg__adds_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(adds); i++) {
		struct vllm_add whole, a;
		struct mp o = { 0 };
		int64_t n_prompt = -1;

		mp_text(&o, adds[i].in);
		assert_int_equal(vllm_msg_add(o.p, o.len, &whole), 0);
		for (size_t len = 0; len < o.len; len++) {
			uint8_t *copy = exact(o.p, len);

			if (vllm_msg_add(copy, len, &a) == 0) {
				assert_true(a.flags & VLLM_CUT);
				assert_int_equal(a.id.len, whole.id.len);
				assert_true(!a.external.len || a.external.len == whole.external.len);
				assert_true(a.n_prompt == -1 || a.n_prompt == whole.n_prompt ||
					    strstr(adds[i].want, "shape"));
				assert_true(!a.arrival_ns || a.arrival_ns == whole.arrival_ns);
				assert_true(a.client_index == -1 || a.client_index == whole.client_index);
				assert_true(a.max_tokens == -1 || a.max_tokens == whole.max_tokens);
				assert_true(!a.n || a.n == whole.n);
				assert_true(a.n_prompt >= n_prompt || strstr(adds[i].want, "shape"));
				n_prompt = a.n_prompt;
			}
			free(copy);
		}
		mp_free(&o);
	}
}

static void test_vllm_msg__prompt_length_needs_no_tokens(void **state)
{
	struct vllm_add a;
	struct mp o = { 0 };

	(void)state;
	mp_text(&o, "[\"chatcmpl-0123456789abcdef-0a1b2c3d\",#131072,nil]");
	assert_int_equal(vllm_msg_add(o.p, 48, &a), 0);
	assert_int_equal(a.n_prompt, 131072);
	assert_int_equal(a.flags, VLLM_CUT);
	mp_free(&o);
}

static void test_vllm_msg__no_adds(void **state)
{
	static const char *const no[] = {
		"[]", "{a:1}", "5", "nil", "[5,#3]", "[nil,#3]", "[[\"a\"],#3]", "[\"\",#3]", "\"a\"",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(no); i++) {
		struct text t = { .len = 0 };
		struct mp o = { 0 };

		mp_text(&o, no[i]);
		read_add(&t, o.p, o.len);
		assert_string_equal(t.s, "none");
		mp_free(&o);
	}
}

/* ---- ABORT ---- */

static void test_vllm_msg__aborts(void **state)
{
	struct vllm_ids ids = { .left = 77 };
	struct text t = { .len = 0 };
	struct mp o = { 0 };
	struct vllm_id id;

	(void)state;
	mp_text(&o, "[\"a\",5,nil,[\"x\"],\"\",\"0_b-0a1b2c3d\"]");
	for (size_t len = 0; len <= o.len; len++) {
		uint8_t *copy = exact(o.p, len);

		t.len = 0;
		t.s[0] = '\0';
		if (!vllm_msg_abort(copy, len, &ids))
			while (vllm_msg_next_id(&ids, &id))
				say_id(&t, " ", id);
		assert_string_equal(t.s, len < 3 ? "" : len < o.len ? " a" : " a 0_b-0a1b2c3d");
		free(copy);
	}
	mp_free(&o);
	mp_text(&o, "{a:1}");
	ids.left = 77;
	assert_int_equal(vllm_msg_abort(o.p, o.len, &ids), -EPROTO);
	assert_int_equal(ids.left, 77);
	mp_free(&o);
}

/* ---- ids ---- */

static void test_vllm_msg__names(void **state)
{
	static const struct {
		const char *id, *sequence, *external, *http;
		int child, prompt;
	} names[] = {
		{ "chatcmpl-0123456789abcdef-0a1b2c3d", NULL, "chatcmpl-0123456789abcdef",
		  "chatcmpl-0123456789abcdef", -1, -1 },
		{ "1_chatcmpl-0123456789abcdef-0a1b2c3d", "chatcmpl-0123456789abcdef-0a1b2c3d",
		  "chatcmpl-0123456789abcdef", "chatcmpl-0123456789abcdef", 1, -1 },
		{ "chatcmpl-0123456789abcdef0123456789abcdef", NULL, "chatcmpl-0123456789abcdef0123456789abcdef",
		  "chatcmpl-0123456789abcdef0123456789abcdef", -1, -1 },
		{ "cmpl-0123456789abcdef-12-0a1b2c3d", NULL, "cmpl-0123456789abcdef-12",
		  "cmpl-0123456789abcdef", -1, 12 },
		{ "17_cmpl-0123456789abcdef-0-0a1b2c3d", "cmpl-0123456789abcdef-0-0a1b2c3d",
		  "cmpl-0123456789abcdef-0", "cmpl-0123456789abcdef", 17, 0 },
		{ "cmpl-550e8400-e29b-41d4-a716-446655440000-0", NULL,
		  "cmpl-550e8400-e29b-41d4-a716-446655440000-0", "cmpl-550e8400-e29b-41d4-a716-446655440000", -1, 0 },
		{ "chatcmpl-550e8400-e29b-41d4-a716-446655440000", NULL,
		  "chatcmpl-550e8400-e29b-41d4-a716-446655440000",
		  "chatcmpl-550e8400-e29b-41d4-a716-446655440000", -1, -1 },
		{ "chatcmpl-order-17", NULL, "chatcmpl-order-17", "chatcmpl-order-17", -1, -1 },
		{ "resp_0123-0a1b2c3d", NULL, "resp_0123", "resp_0123", -1, -1 },
		{ "a-0A1B2C3D", NULL, "a-0A1B2C3D", "a-0A1B2C3D", -1, -1 },
		{ "a-0a1b2c3", NULL, "a-0a1b2c3", "a-0a1b2c3", -1, -1 },
		{ "a-0a1b2c3d4", NULL, "a-0a1b2c3d4", "a-0a1b2c3d4", -1, -1 },
		{ "-0a1b2c3d", NULL, "-0a1b2c3d", "-0a1b2c3d", -1, -1 },
		{ "1_", NULL, "1_", "1_", -1, -1 },
		{ "_a", NULL, "_a", "_a", -1, -1 },
		{ "a_1", NULL, "a_1", "a_1", -1, -1 },
		{ "1234567_a", NULL, "1234567_a", "1234567_a", -1, -1 },
		{ "cmpl-1-1234567", NULL, "cmpl-1-1234567", "cmpl-1-1234567", -1, -1 },
		{ "-5", NULL, "-5", "-5", -1, -1 },
		{ "5", NULL, "5", "5", -1, -1 },
		{ "", NULL, "", "", -1, -1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t len = strlen(names[i].id);
		char *copy = (char *)exact(names[i].id, len);
		struct text t = { .len = 0 }, want = { .len = 0 };
		struct vllm_names n;

		vllm_msg_names((struct vllm_id){ copy, len }, &n);
		say_id(&t, "", n.sequence);
		say_id(&t, " ", n.external);
		say_id(&t, " ", n.http);
		say(&t, " %d %d", n.child, n.prompt);
		say(&want, "%s %s %s %d %d", names[i].sequence ? names[i].sequence : names[i].id,
		    names[i].external, names[i].http, names[i].child, names[i].prompt);
		assert_string_equal(t.s, want.s);
		free(copy);
	}
}

static void test_vllm_msg__id_is_of(void **state)
{
	static const struct {
		const char *id, *external;
		bool want;
	} pairs[] = {
		{ "a", "a", true }, { "a-0a1b2c3d", "a", true }, { "0_a-0a1b2c3d", "a", true }, { "3_a", "a", true },
		{ "1_a", "1_a", true }, { "1_a-0a1b2c3d", "1_a", true }, { "2_1_a-0a1b2c3d", "1_a", true },
		/* the end of an id of one's own looks like the engine's suffix */
		{ "x-deadbeef", "x-deadbeef", true }, { "x-deadbeef-0a1b2c3d", "x-deadbeef", true },
		{ "a", "b", false }, { "ab", "a", false }, { "a-0a1b2c3d", "b", false }, { "a", "", false },
		{ "", "", false }, { "a-0a1b2c3d", "a-", false }, { "a-0a1b2c3x", "a", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		struct vllm_id id = { pairs[i].id, strlen(pairs[i].id) };
		struct vllm_id external = { pairs[i].external, strlen(pairs[i].external) };

		if (vllm_msg_id_is_of(id, external) != pairs[i].want)
			fail_msg("%s of %s: not %d", pairs[i].id, pairs[i].external, pairs[i].want);
	}
}

/* ---- kinds ---- */

static void test_vllm_msg__kinds(void **state)
{
	static const struct {
		const char *frames[5];	/* text of MessagePack; "'x": the bytes themselves; NULL ends */
		int kind, body;
	} kinds[] = {
		{ { "0", "[\"a\",#3]" }, VLLM_ADD, 1 },
		{ { "0", "[\"a\",#3]", "'tensor", "'tensor" }, VLLM_ADD, 1 },
		{ { "1", "[\"a\"]" }, VLLM_ABORT, 1 },
		{ { "1", "[]", "'x" }, VLLM_ABORT, 1 },	/* no identity, though the body is a byte too */
		{ { "2", "[0,1]" }, VLLM_WAVE, 1 },
		{ { "3", "[0,1,\"sleep\",[]]" }, VLLM_UTILITY, 1 },
		{ { "4", "[0]" }, VLLM_NONE, 1 },
		{ { "0", "{a:1}" }, VLLM_NONE, 1 },	/* 0.7: pickled, begins like a map */
		{ { "0" }, VLLM_NONE, 0 },		/* a wake-up of workers */
		{ { "'\1\2", "0", "[\"a\",#3]" }, VLLM_ADD, 2 },	/* a ROUTER's identity first */
		{ { "'\1\2", "1", "[\"a\"]" }, VLLM_ABORT, 2 },
		{ { "'" }, VLLM_HELLO, 0 },
		{ { "{status:\"READY\"}" }, VLLM_HELLO, 0 },
		{ { "'ENGINE_CORE_DEAD" }, VLLM_DEAD, 0 },
		{ { "'ENGINE_CORE_DEAF" }, VLLM_NONE, 0 },
		{ { "[0,[],nil,1.5,nil,nil,nil,nil]" }, VLLM_OUTPUTS, 0 },
		{ { "[0,[[\"a\",[5]]],nil]" }, VLLM_OUTPUTS, 0 },
		{ { "[0,[[\"a\",[5]]],nil]", "'tensor" }, VLLM_OUTPUTS, 0 },
		{ { "[[[\"a\",[5],nil,nil,nil,nil]],{}]" }, VLLM_OUTPUTS, 0 },
		{ { "[[],{}]" }, VLLM_OUTPUTS, 0 },
		{ { "[\"a\",#3,nil]" }, VLLM_NONE, 0 },
		{ { "[0,#3,nil]" }, VLLM_NONE, 0 },
		{ { "[0,[[5,[5]]],nil]" }, VLLM_NONE, 0 },
		{ { "[0,1,\"sleep\",[]]" }, VLLM_NONE, 0 },
		{ { "[0]" }, VLLM_NONE, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct zmtp_frame frames[5] = { 0 };
		const struct zmtp_frame *body = NULL;
		struct mp o[5] = { 0 };
		size_t n = 0;

		for (; n < 5 && kinds[i].frames[n]; n++) {
			const char *s = kinds[i].frames[n];

			if (*s == '\'')
				mp_raw(&o[n], s + 1, strlen(s + 1));
			else
				mp_text(&o[n], s);
			frames[n] = (struct zmtp_frame){ o[n].p, o[n].len, o[n].len, true };
		}
		if ((int)vllm_msg_kind(frames, n, &body) != kinds[i].kind)
			fail_msg("%s ...: not %d", kinds[i].frames[0], kinds[i].kind);
		assert_ptr_equal(body, &frames[kinds[i].body]);
		for (size_t k = 0; k < n; k++)
			mp_free(&o[k]);
	}
	assert_int_equal(vllm_msg_kind(NULL, 0, &(const struct zmtp_frame *){ NULL }), VLLM_NONE);
}

/* ---- outputs ---- */

static void say_row(struct text *t, struct vllm_row *r)
{
	struct vllm_event ev;

	say_id(t, " ", r->id);
	if (r->n_tokens != 1)
		say(t, " +%d", r->n_tokens);
	if (r->finish >= 0)
		say(t, " end %d/%d", r->finish, r->stop);
	if (r->n_cached >= 0)
		say(t, " cached %lld", (long long)r->n_cached);
	if (r->has_prefill)
		say(t, " prefill %lld=%lld+%lld(%lld,%lld)", (long long)r->prefill.prompt,
		    (long long)r->prefill.computed, (long long)r->prefill.cached,
		    (long long)r->prefill.cached_local, (long long)r->prefill.cached_external);
	while (vllm_msg_next_event(&r->events, &ev))
		say(t, " %c@%llu", ev.type < 4 ? "?QSP"[ev.type] : '?', (unsigned long long)ev.ts_ns);
	say_flags(t, r->flags);
	say(t, ";");
}

static void say_stats(struct text *t, const struct vllm_stats *s)
{
	if (s->known & VLLM_STAT_RUNNING)
		say(t, " run %llu", (unsigned long long)s->running);
	if (s->known & VLLM_STAT_WAITING)
		say(t, " wait %llu", (unsigned long long)s->waiting);
	if (s->known & VLLM_STAT_SKIPPED)
		say(t, " skip %llu", (unsigned long long)s->skipped);
	if (s->known & VLLM_STAT_KV)
		say(t, " kv %g", s->kv_usage);
	if (s->known & VLLM_STAT_PREFIX)
		say(t, " prefix %llu/%llu/%llu/%llu/%llu/%llu", (unsigned long long)s->prefix.requests,
		    (unsigned long long)s->prefix.queries, (unsigned long long)s->prefix.hits,
		    (unsigned long long)s->prefix.preempted_requests,
		    (unsigned long long)s->prefix.preempted_queries,
		    (unsigned long long)s->prefix.preempted_hits);
	if (s->known & VLLM_STAT_SPEC)
		say(t, " spec %llu/%llu/%llu", (unsigned long long)s->spec.drafts,
		    (unsigned long long)s->spec.draft_tokens, (unsigned long long)s->spec.accepted_tokens);
	if (s->known & VLLM_STAT_ITERATION)
		say(t, " it %llu:%llu/%llu/%llu/%llu/%g%s", (unsigned long long)s->iteration.index,
		    (unsigned long long)s->iteration.prefill_requests,
		    (unsigned long long)s->iteration.prefill_tokens,
		    (unsigned long long)s->iteration.decode_requests,
		    (unsigned long long)s->iteration.decode_tokens, s->iteration.elapsed_ms,
		    s->iteration.dummy ? "/dummy" : "");
	if (s->known & VLLM_STAT_GRAPH)
		say(t, " graph %llu/%llu", (unsigned long long)s->graph.tokens,
		    (unsigned long long)s->graph.padded_tokens);
}

/* [engine] @timestamp, rows; stats; what else */
static void read_outputs(struct text *t, const void *p, size_t len)
{
	uint8_t *copy = exact(p, len);
	struct vllm_outputs o;
	struct vllm_row row;
	struct vllm_id id;

	if (vllm_msg_outputs(copy, len, &o)) {
		say(t, "none");
	} else {
		say(t, "%d @%llu %u:", o.engine, (unsigned long long)o.timestamp_ns, o.n_rows);
		while (vllm_msg_next_row(&o, &row))
			say_row(t, &row);
		if (o.has_stats) {
			say(t, " stats");
			say_stats(t, &o.stats);
		}
		if (o.utility)
			say(t, " utility");
		if (o.wave)
			say(t, " wave");
		while (vllm_msg_next_id(&o.finished, &id))
			say_id(t, " done ", id);
		say_flags(t, o.flags);
	}
	free(copy);
}

#define TIMES "[{type:1,timestamp:1.25},{type:2,timestamp:1.5}]"
#define LOGPROBS "[[[5,7]],[[-0.5,-2.0]],[1]]"
#define PREFILL "{num_prompt_tokens:40,num_computed_tokens:8,num_cached_tokens:32,num_local_cached_tokens:32," \
		"num_external_cached_tokens:0}"
#define OUT(row) "[2,[" row "],nil,77.5,nil,nil,nil,nil]"
#define GOT(row) "2 @77500000000 1:" row

static const struct row outputs[] = {
	{ "0.7.0", "[[[\"a\",[5],nil,nil,nil,nil],[\"b\",#2,nil,nil,1,nil]],{num_running_reqs:2,num_waiting_reqs:3}]",
	  "-1 @0 2: a; b +2 end 1/0; stats run 2 wait 3" },
	{ "0.7.3", "[[[\"a\",[5],nil,nil,nil,nil," TIMES "]],{num_running_reqs:2,gpu_cache_usage:0.5},77.5,nil]",
	  "-1 @77500000000 1: a Q@1250000000 S@1500000000; stats run 2 kv 0.5" },
	{ "0.7.3, reply to a utility", "[[],nil,77.5,[5,nil,nil]]", "-1 @77500000000 0: utility" },
	{ "0.8", OUT("[\"a\",[5],nil,nil,nil,nil," TIMES "]"), GOT(" a Q@1250000000 S@1500000000;") },
	{ "0.8, end by a token", OUT("[\"a\",[5],nil,nil,0,5,nil]"), GOT(" a end 0/1;") },
	{ "8 fields, seen nowhere", OUT("[\"a\",[5],nil,nil,1,nil," TIMES ",{kv:1}]"), GOT(" a end 1/0 Q@1250000000 S@1500000000;") },
	{ "0.9.0", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,32]"), GOT(" a cached 32;") },
	{ "0.9.0, end", OUT("[\"a\",[5],nil,nil,0,\"text\",nil,nil,32]"), GOT(" a end 0/2 cached 32;") },
	{ "9 fields, found by type", OUT("[\"a\",[5],nil,nil,nil,1,nil," TIMES ",nil]"),
	  GOT(" a end 1/0 Q@1250000000 S@1500000000;") },
	{ "0.9.2", OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,32]"), GOT(" a cached 32 Q@1250000000 S@1500000000;") },
	{ "0.9.2, end", OUT("[\"a\",[5],nil,nil,nil,0,5,nil,nil,0]"), GOT(" a end 0/1 cached 0;") },
	{ "0.9.2, abort", OUT("[\"a\",[],nil,nil,nil,2,nil,nil,nil,0]"), GOT(" a +0 end 2/0 cached 0;") },
	{ "0.9.2, pooling", OUT("[\"a\",[],nil,nil,[\"float32\",[4],!16],0,nil,nil,nil,0]"), GOT(" a +0 end 0/0 cached 0;") },
	{ "0.9.2, logprobs", OUT("[\"a\",[5]," LOGPROBS ",[[\"int32\",[1],!4],1,2],nil,nil,nil,nil,nil,32]"), GOT(" a cached 32;") },
	{ "10 fields, found by type", OUT("[\"a\",[5],nil,nil,1,nil," TIMES ",nil,7,nil]"),
	  GOT(" a end 1/0 cached 7 Q@1250000000 S@1500000000;") },
	{ "0.10.2", OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil,32]"), GOT(" a cached 32 Q@1250000000 S@1500000000;") },
	{ "0.13", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,32,9]"), GOT(" a cached 32;") },
	{ "0.14", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,32,nil,9]"), GOT(" a cached 32;") },
	{ "0.17", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,{traceparent:\"x\"},32,8,nil,0]"), GOT(" a cached 32;") },
	{ "not yet known how many are cached", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,-1,0,nil,0]"), GOT(" a;") },
	{ "0.22, prefill", OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil," PREFILL ",nil,0]"),
	  GOT(" a cached 32 prefill 40=8+32(32,0) Q@1250000000 S@1500000000;") },
	{ "0.22, decode", OUT("[\"a\",#3,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,0]"), GOT(" a +3;") },
	{ "0.22, NaNs are not cached tokens", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,9]"), GOT(" a;") },
	{ "0.26, prefill", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,nil," PREFILL ",nil,0]"),
	  GOT(" a cached 32 prefill 40=8+32(32,0);") },
	{ "0.26, transfers", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,{num_blocks:1},{x:1},{traceparent:\"x\"}," PREFILL
	  ",[\"uint8\",[1],!1],0]"), GOT(" a cached 32 prefill 40=8+32(32,0);") },
	{ "0.32, prefill", OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil,nil," PREFILL ",nil,0,nil,nil,0,nil]"),
	  GOT(" a cached 32 prefill 40=8+32(32,0) Q@1250000000 S@1500000000;") },
	{ "0.32, decode", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,0,nil,nil,0,nil]"), GOT(" a;") },
	{ "0.32, end", OUT("[\"a\",[5],nil,nil,nil,1,nil,nil,nil,nil,nil,nil,nil,0,nil,nil,0,nil]"), GOT(" a end 1/0;") },
	{ "0.32, preempted", OUT("[\"a\",[5],nil,nil,nil,nil,nil,[{type:3,timestamp:1.25},{type:2,timestamp:1.5}],nil,nil,"
	  "nil,nil,nil,0,nil,nil,0,nil]"), GOT(" a P@1250000000 S@1500000000;") },
	{ "ends that are new", OUT("[\"a\",[5],nil,nil,nil,3,nil,nil,nil,0],[\"b\",[5],nil,nil,nil,4,nil,nil,nil,0],"
	  "[\"c\",[5],nil,nil,nil,99,nil,nil,nil,0],[\"d\",[5],nil,nil,nil,999,nil,nil,nil,0]"),
	  "2 @77500000000 4: a end 3/0 cached 0; b end 4/0 cached 0; c end 99/0 cached 0; d end 127/0 cached 0;" },
	{ "longer than any we know", OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil,nil," PREFILL
	  ",nil,0,nil,nil,0,nil,1,\"x\",[1],{num_prompt_tokens:1},1.5,T]"),
	  GOT(" a cached 32 prefill 40=8+32(32,0) Q@1250000000 S@1500000000;") },
	{ "events that are odd", OUT("[\"a\",[5],nil,nil,nil,nil,nil,[{type:7,timestamp:1.25},{timestamp:1.0},5,{type:1},"
	  "{x:[1],type:2,timestamp:2}],nil,0]"), GOT(" a cached 0 ?@1250000000 Q@0 S@2000000000;") },
	{ "times are rounded", OUT("[\"a\",[5],nil,nil,nil,nil,nil,[{type:1,timestamp:4.35}],nil,0]"),
	  GOT(" a cached 0 Q@4350000000;") },
	{ "prefill of newer kind", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,{num_cached_tokens:9,num_cache_creation_tokens:"
	  "3,other:[1],num_computed_tokens:\"x\"},nil,0]"), GOT(" a cached 9 prefill -1=-1+9(-1,-1);") },
	{ "a transfer's parameters are no statistics", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil," PREFILL ",nil,nil,nil,0]"), GOT(" a;") },
	{ "tokens that are no list", OUT("[\"a\",!4,nil,nil,nil,1,nil,nil,nil,0]"), GOT(" a +-1 end 1/0 cached 0 shape;") },
	{ "neither layout fits", OUT("[\"a\",[5],nil,nil,\"x\",\"y\",nil,nil,nil,0]"), GOT(" a shape;") },
	{ "no layout at all", OUT("[\"a\",[5],nil]"), GOT(" a shape;") },
	{ "5 fields of 0.6", OUT("[\"a\",[5],T,\"stop\",nil]"), GOT(" a shape;") },
	{ "rows without an id, or no rows", OUT("[7,[5],nil,nil,nil,nil,nil],8,[\"a\"],[\"b\",[5],nil,nil,nil,nil,nil],[]"),
	  "2 @77500000000 5:  +-1 shape;  +-1 shape; a +-1 shape; b;  +-1 shape;" },
	{ "stats", "[0,[],{num_running_reqs:5,num_waiting_reqs:6,num_skipped_waiting_reqs:7,step_counter:9,current_wave:0,"
	  "kv_cache_usage:0.25,iteration_details:nil,prefix_cache_stats:{reset:F,requests:1,queries:100,hits:32,"
	  "preempted_requests:2,preempted_queries:200,preempted_hits:64},connector_prefix_cache_stats:{requests:9},"
	  "kv_cache_eviction_events:[],spec_decoding_stats:{num_spec_tokens:3,num_drafts:4,num_draft_tokens:12,"
	  "num_accepted_tokens:7,num_accepted_tokens_per_pos:[4,2,1]},kv_connector_stats:nil,waiting_lora_adapters:{},"
	  "running_lora_adapters:{},cudagraph_stats:{num_unpadded_tokens:11,num_padded_tokens:16,num_paddings:5,"
	  "runtime_mode:\"FULL\"},perf_stats:nil},77.5,nil,nil,nil,nil,nil]",
	  "0 @77500000000 0: stats run 5 wait 6 skip 7 kv 0.25 prefix 1/100/32/2/200/64 spec 4/12/7 graph 11/16" },
	{ "stats of old", "[0,[],{num_running_reqs:5,num_waiting_reqs:6,gpu_cache_usage:0.25,prefix_cache_stats:{reset:F,"
	  "requests:1,queries:100,hits:32},spec_decoding_stats:nil},77.5,nil,nil,nil,nil]",
	  "0 @77500000000 0: stats run 5 wait 6 kv 0.25 prefix 1/100/32/0/0/0" },
	{ "details of an iteration", "[0,[],{iteration_details:{iteration_index:41,num_ctx_requests:1,num_ctx_tokens:112,"
	  "num_generation_requests:3,num_generation_tokens:4,elapsed_ms:2.5,num_encoder_inputs:0,is_dummy:T}},77.5,nil]",
	  "0 @77500000000 0: stats it 41:1/112/3/4/2.5/dummy" },
	{ "stats of wrong types", "[0,[],{num_running_reqs:\"x\",num_waiting_reqs:-1,kv_cache_usage:nil,prefix_cache_stats:5,"
	  "iteration_details:[1],spec_decoding_stats:\"x\",cudagraph_stats:{num_unpadded_tokens:nil}},77.5,nil]",
	  "0 @77500000000 0: stats" },
	{ "a reply to a utility", "[0,[],nil,77.5,[5,nil,[\"x\",5]],nil,nil,nil]", "0 @77500000000 0: utility" },
	{ "end of a wave", "[0,[],nil,77.5,nil,nil,3,nil]", "0 @77500000000 0: wave" },
	{ "start of a wave", "[0,[],nil,77.5,nil,nil,nil,4]", "0 @77500000000 0: wave" },
	{ "notices", "[0,[],nil,77.5,nil,nil,nil,nil,[1]]", "0 @77500000000 0:" },
	{ "requests that ended", "[1,[],nil,77.5,nil,[\"a\",\"b\"],nil,nil,nil]", "1 @77500000000 0: done a done b" },
	{ "log stats are off", "[0,[],nil,77.5,nil,nil,nil,nil]", "0 @77500000000 0:" },
	{ "shorter", "[0,[],nil,77.5]", "0 @77500000000 0:" },
	{ "no time", "[0,[],nil]", "0 @0 0: shape" },
	{ "fields in between", "[0,[],7,{num_running_reqs:1},\"x\",77.5,nil,[\"a\"]]",
	  "0 @77500000000 0: stats run 1 done a shape" },
	{ "an engine without a number", "[-1,[],nil,77.5]", "-1 @77500000000 0:" },
};

static void test_vllm_msg__outputs(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(outputs); i++) {
		struct text t = { .len = 0 };
		struct mp o = { 0 };

		mp_text(&o, outputs[i].in);
		read_outputs(&t, o.p, o.len);
		if (strcmp(t.s, outputs[i].want))
			fail_msg("%s:\n  got  '%s'\n  want '%s'", outputs[i].name, t.s, outputs[i].want);
		mp_free(&o);
	}
}

/* A row of a cut message is the whole one's, or is marked, and then says less and nothing else. */
static void check_cut_row(const struct vllm_row *cut, const struct vllm_row *whole)
{
	assert_int_equal(cut->id.len, whole->id.len);
	if (!(cut->flags & VLLM_CUT)) {
		assert_int_equal(cut->n_tokens, whole->n_tokens);
		assert_int_equal(cut->finish, whole->finish);
		assert_int_equal(cut->n_cached, whole->n_cached);
		assert_int_equal(cut->flags, whole->flags);
		return;
	}
	assert_true(cut->n_tokens == -1 || cut->n_tokens == whole->n_tokens);
	assert_true(cut->finish == VLLM_NOT_FINISHED || cut->finish == whole->finish);
	assert_true(cut->stop == VLLM_STOP_NOT_SAID || cut->stop == whole->stop);
	assert_true(cut->n_cached == -1 || cut->n_cached == whole->n_cached);
}

static void test_vllm_msg__outputs_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(outputs); i++) {
		struct mp o = { 0 };

		mp_text(&o, outputs[i].in);
		for (size_t len = 0; len < o.len; len++) {
			uint8_t *copy = exact(o.p, len);
			struct vllm_outputs whole, cut;
			struct vllm_row w, c;
			struct text t = { .len = 0 };

			assert_int_equal(vllm_msg_outputs(o.p, o.len, &whole), 0);
			read_outputs(&t, copy, len);
			if (!vllm_msg_outputs(copy, len, &cut)) {
				assert_true(cut.flags & VLLM_CUT);
				assert_int_equal(cut.n_rows, whole.n_rows);
				assert_true(!cut.timestamp_ns || cut.timestamp_ns == whole.timestamp_ns);
				while (vllm_msg_next_row(&cut, &c)) {
					assert_true(vllm_msg_next_row(&whole, &w));
					check_cut_row(&c, &w);
				}
			}
			free(copy);
		}
		mp_free(&o);
	}
}

static void test_vllm_msg__no_outputs(void **state)
{
	static const char *const no[] = { "[]", "[5]", "[5,6]", "{a:1}", "nil", "[\"a\",[]]", "[nil,[]]" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(no); i++) {
		struct text t = { .len = 0 };
		struct mp o = { 0 };

		mp_text(&o, no[i]);
		read_outputs(&t, o.p, o.len);
		assert_string_equal(t.s, "none");
		mp_free(&o);
	}
}

/* Headers that lie about how much follows, and values nested without end. */
static void test_vllm_msg__hostile(void **state)
{
	static const struct {
		const char *head;
		size_t n_head;
		uint8_t fill;
	} lies[] = {
		{ "\x98\x00\xdd\xff\xff\xff\xff", 7, 0x92 }, { "\x98\x00\xdd\xff\xff\xff\xff", 7, 0x91 },
		{ "\x98\x00\x91\xdd\xff\xff\xff\xff\xa1" "a", 10, 0x90 },
		{ "\x98\x00\x91\x98\xa1" "a\xdd\xff\xff\xff\xff", 11, 0x91 },
		{ "\x98\x00\x91\x98\xa1" "a\x91\x05", 8, 0x91 },
		{ "\x98\x00\x90\xdf\xff\xff\xff\xff", 8, 0xa0 }, { "\x98\x00\x90\xdf\xff\xff\xff\xff", 8, 0x81 },
		{ "\x98\xa1" "a\xdd\xff\xff\xff\xff", 8, 0x91 }, { "\xdd\xff\xff\xff\xff\xa1" "a", 7, 0x91 },
		{ "\x98\xa1" "a\x90\xdf\xff\xff\xff\xff", 9, 0xa0 }, { "\xdd\xff\xff\xff\xff", 5, 0xa0 },
	};
	enum { LEN = 100000 };
	uint8_t *in = malloc(LEN);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct vllm_outputs o;
		struct vllm_add add;
		struct vllm_ids ids;
		struct vllm_row row;
		struct vllm_id id;
		size_t n = 0;

		memset(in, lies[i].fill, LEN);
		memcpy(in, lies[i].head, lies[i].n_head);
		if (!vllm_msg_outputs(in, LEN, &o)) {
			assert_true(o.flags & VLLM_CUT);
			while (vllm_msg_next_row(&o, &row))
				n++;
			assert_true(n <= LEN);
		}
		if (!vllm_msg_add(in, LEN, &add))
			assert_true(add.flags & VLLM_CUT);
		if (!vllm_msg_abort(in, LEN, &ids))
			while (vllm_msg_next_id(&ids, &id))
				n++;
		assert_true(n <= 2 * LEN);
	}
	free(in);
}

/* Needs no memory. */
static void test_vllm_msg__allocates_nothing(void **state)
{
	struct mp o = { 0 }, a = { 0 };
	struct vllm_outputs out;
	struct vllm_add add;
	struct vllm_row row;
	int n = 0;

	(void)state;
	mp_text(&o, OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil,nil," PREFILL ",nil,0,nil,nil,0,nil]"));
	mp_text(&a, adds[10].in);
	oom_after(0);
	assert_int_equal(vllm_msg_add(a.p, a.len, &add), 0);
	assert_int_equal(vllm_msg_outputs(o.p, o.len, &out), 0);
	while (vllm_msg_next_row(&out, &row))
		n++;
	assert_false(oom_hit());
	assert_int_equal(n, 1);
	mp_free(&o);
	mp_free(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vllm_msg__adds),
		cmocka_unit_test(test_vllm_msg__adds_cut),
		cmocka_unit_test(test_vllm_msg__prompt_length_needs_no_tokens),
		cmocka_unit_test(test_vllm_msg__no_adds),
		cmocka_unit_test(test_vllm_msg__aborts),
		cmocka_unit_test(test_vllm_msg__names),
		cmocka_unit_test(test_vllm_msg__id_is_of),
		cmocka_unit_test(test_vllm_msg__kinds),
		cmocka_unit_test(test_vllm_msg__outputs),
		cmocka_unit_test(test_vllm_msg__outputs_cut),
		cmocka_unit_test(test_vllm_msg__no_outputs),
		cmocka_unit_test(test_vllm_msg__hostile),
		cmocka_unit_test(test_vllm_msg__allocates_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
