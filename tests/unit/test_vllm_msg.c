/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to vLLM's engine in the shapes of its releases, in none of them, and cut at every byte. */
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
	if (a->lora)
		say(t, " lora %d", a->lora);
	if (a->priority)
		say(t, " priority %d", a->priority);
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
	  "chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2 priority -5" },
	{ "0.10.2 with an adapter",
	  "[\"chatcmpl-1\",#17,nil," PARAMS ",nil,2,1700000000.25,[\"lora\",1,\"/path\"],nil,nil,nil,3,0,0,"
	  "{traceparent:\"00-1-2-00\"}]",
	  "chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2 lora 1" },
	{ "0.32 with an adapter",
	  "[\"chatcmpl-1-0a1b2c3d\",#17,nil,{max_tokens:5},nil,1700000000.25,[\"ada\",2,\"/path\",nil,nil,F,F],nil,nil,nil,nil,"
	  "0,0,0,nil,F,\"chatcmpl-1\",nil,nil,F,nil,nil]",
	  "chatcmpl-1-0a1b2c3d of chatcmpl-1 prompt 17 at 1700000000250000000 client 0 max 5 lora 2" },
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
	{ "0.32 with a priority",
	  "[\"chatcmpl-1-0a1b2c3d\",#17,nil," PARAMS ",nil,1700000000.25,nil,nil,nil,nil,nil,3,0,4,nil,F,"
	  "\"chatcmpl-1\",nil,{a:1},F,\"session\",nil]",
	  "chatcmpl-1-0a1b2c3d of chatcmpl-1 prompt 17 at 1700000000250000000 client 3 max 300 n 2 priority 4" },
	{ "a priority that is larger than any",
	  "[\"a\",#17,nil,{max_tokens:5},nil,1700000000.25,nil,nil,nil,nil,nil,3,0,99999999999,nil,F,\"a\",nil,nil,F,nil,nil]",
	  "a of a prompt 17 at 1700000000250000000 client 3 max 5 priority 2147483647" },
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
	{ "an empty prompt",
	  "[\"a\",[],nil,{},nil,1700000000.25]", "a prompt 0 at 1700000000250000000" },
	{ "no prompt, an empty list of images", "[\"a\",nil,[],{},nil,1700000000.25]",
	  "a at 1700000000250000000 shape" },
	{ "a prompt that is no list of numbers",
	  "[\"a\",[\"b\"],nil,{max_tokens:5},nil,1700000000.25,nil]",
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
		{ "resp_01ab_0-0a1b2c3d", NULL, "resp_01ab_0", "resp_01ab", -1, 0 },
		{ "chatcmpl-order-17-0123456789abcdef-beam-3-0a1b2c3d", NULL, "chatcmpl-order-17-0123456789abcdef-beam-3",
		  "chatcmpl-order-17", -1, -1 },
		{ "cmpl-x-2-0123456789abcdef0123456789abcdef-beam-11", NULL,
		  "cmpl-x-2-0123456789abcdef0123456789abcdef-beam-11", "cmpl-x", -1, 2 },
		{ "cmpl-x-0123456789abcdeX-beam-1", NULL, "cmpl-x-0123456789abcdeX-beam-1", "cmpl-x-0123456789abcdeX-beam", -1, 1 },
		{ "cmpl-x-beam-1", NULL, "cmpl-x-beam-1", "cmpl-x-beam", -1, 1 },
		{ "0123456789abcdef-beam-1", NULL, "0123456789abcdef-beam-1", "0123456789abcdef-beam", -1, 1 },
		{ "-0123456789abcdef-beam-1", NULL, "-0123456789abcdef-beam-1", "-0123456789abcdef-beam", -1, 1 },
		{ "-beam-1", NULL, "-beam-1", "-beam", -1, 1 },
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

/* Headers that lie about how much follows, and values nested without end. */
static void test_vllm_msg__hostile(void **state)
{
	static const struct {
		const char *head;
		size_t n_head;
		uint8_t fill;
	} lies[] = {
		{ "\x98\xa1" "a\xdd\xff\xff\xff\xff", 8, 0x91 }, { "\xdd\xff\xff\xff\xff\xa1" "a", 7, 0x91 },
		{ "\x98\xa1" "a\x90\xdf\xff\xff\xff\xff", 9, 0xa0 }, { "\xdd\xff\xff\xff\xff\xa1" "a", 7, 0xa0 },
	};
	enum { LEN = 100000 };
	uint8_t *in = malloc(LEN);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct vllm_add add;
		struct vllm_ids ids;
		struct vllm_id id;
		size_t n = 0;

		memset(in, lies[i].fill, LEN);
		memcpy(in, lies[i].head, lies[i].n_head);
		assert_int_equal(vllm_msg_add(in, LEN, &add), 0);
		assert_true(add.flags & VLLM_CUT);
		assert_int_equal(vllm_msg_abort(in, LEN, &ids), 0);
		while (vllm_msg_next_id(&ids, &id))
			n++;
		assert_true(n <= LEN);
	}
	free(in);
}

static void test_vllm_msg__allocates_nothing(void **state)
{
	struct vllm_add add;
	struct mp o = { 0 };

	(void)state;
	mp_text(&o, adds[0].in);
	oom_after(0);
	assert_int_equal(vllm_msg_add(o.p, o.len, &add), 0);
	assert_false(oom_hit());
	mp_free(&o);
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
		cmocka_unit_test(test_vllm_msg__hostile),
		cmocka_unit_test(test_vllm_msg__allocates_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
