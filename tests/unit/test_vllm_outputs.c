/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of vLLM's engine in the shapes of its releases, in none of them, and cut at every byte. */
#include "parse/vllm_msg.h"
#include "msgpack_out.h"
#include "unit.h"

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

static const struct row {
	const char *name, *in, *want;
} outputs[] = {
	{ "0.7.0",
	  "[[[\"a\",[5],nil,nil,nil,nil],[\"b\",#2,nil,nil,1,nil]],{num_running_reqs:2,num_waiting_reqs:3}]",
	  "-1 @0 2: a; b +2 end 1/0; stats run 2 wait 3" },
	{ "0.7.3",
	  "[[[\"a\",[5],nil,nil,nil,nil," TIMES "]],{num_running_reqs:2,gpu_cache_usage:0.5},77.5,nil]",
	  "-1 @77500000000 1: a Q@1250000000 S@1500000000; stats run 2 kv 0.5" },
	{ "0.7.3, reply to a utility", "[[],nil,77.5,[5,nil,nil]]", "-1 @77500000000 0: utility" },
	{ "0.8",
	  OUT("[\"a\",[5],nil,nil,nil,nil," TIMES "]"), GOT(" a Q@1250000000 S@1500000000;") },
	{ "0.8, end by a token", OUT("[\"a\",[5],nil,nil,0,5,nil]"), GOT(" a end 0/1;") },
	{ "8 fields, seen nowhere",
	  OUT("[\"a\",[5],nil,nil,1,nil," TIMES ",{kv:1}]"),
	  GOT(" a end 1/0 Q@1250000000 S@1500000000;") },
	{ "0.9.0", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,32]"), GOT(" a cached 32;") },
	{ "0.9.0, end",
	  OUT("[\"a\",[5],nil,nil,0,\"text\",nil,nil,32]"), GOT(" a end 0/2 cached 32;") },
	{ "9 fields, found by type", OUT("[\"a\",[5],nil,nil,nil,1,nil," TIMES ",nil]"),
	  GOT(" a end 1/0 Q@1250000000 S@1500000000;") },
	{ "0.9.2",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,32]"),
	  GOT(" a cached 32 Q@1250000000 S@1500000000;") },
	{ "0.9.2, end", OUT("[\"a\",[5],nil,nil,nil,0,5,nil,nil,0]"), GOT(" a end 0/1 cached 0;") },
	{ "0.9.2, abort",
	  OUT("[\"a\",[],nil,nil,nil,2,nil,nil,nil,0]"), GOT(" a +0 end 2/0 cached 0;") },
	{ "0.9.2, pooling",
	  OUT("[\"a\",[],nil,nil,[\"float32\",[4],!16],0,nil,nil,nil,0]"),
	  GOT(" a +0 end 0/0 cached 0;") },
	{ "0.9.2, logprobs",
	  OUT("[\"a\",[5]," LOGPROBS ",[[\"int32\",[1],!4],1,2],nil,nil,nil,nil,nil,32]"),
	  GOT(" a cached 32;") },
	{ "10 fields, found by type", OUT("[\"a\",[5],nil,nil,1,nil," TIMES ",nil,7,nil]"),
	  GOT(" a end 1/0 cached 7 Q@1250000000 S@1500000000;") },
	{ "0.10.2",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil,32]"),
	  GOT(" a cached 32 Q@1250000000 S@1500000000;") },
	{ "0.13", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,32,9]"), GOT(" a cached 32;") },
	{ "0.14",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,32,nil,9]"), GOT(" a cached 32;") },
	{ "0.17",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,{traceparent:\"x\"},32,8,nil,0]"),
	  GOT(" a cached 32;") },
	{ "not yet known how many are cached",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,-1,0,nil,0]"), GOT(" a;") },
	{ "0.22, prefill",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil," PREFILL ",nil,0]"),
	  GOT(" a cached 32 prefill 40=8+32(32,0) Q@1250000000 S@1500000000;") },
	{ "0.22, decode",
	  OUT("[\"a\",#3,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,0]"), GOT(" a +3;") },
	{ "0.22, NaNs are not cached tokens",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,9]"), GOT(" a;") },
	{ "0.26, prefill", OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,nil," PREFILL ",nil,0]"),
	  GOT(" a cached 32 prefill 40=8+32(32,0);") },
	{ "0.26, transfers",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,{num_blocks:1},{x:1},{traceparent:\"x\"}," PREFILL
	  ",[\"uint8\",[1],!1],0]"), GOT(" a cached 32 prefill 40=8+32(32,0);") },
	{ "0.32, prefill",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil,nil," PREFILL ",nil,0,nil,nil,0,nil]"),
	  GOT(" a cached 32 prefill 40=8+32(32,0) Q@1250000000 S@1500000000;") },
	{ "0.32, decode",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,0,nil,nil,0,nil]"),
	  GOT(" a;") },
	{ "0.32, end",
	  OUT("[\"a\",[5],nil,nil,nil,1,nil,nil,nil,nil,nil,nil,nil,0,nil,nil,0,nil]"),
	  GOT(" a end 1/0;") },
	{ "0.32, preempted",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,[{type:3,timestamp:1.25},{type:2,timestamp:1.5}],nil,nil,"
	  "nil,nil,nil,0,nil,nil,0,nil]"), GOT(" a P@1250000000 S@1500000000;") },
	{ "ends that are new",
	  OUT("[\"a\",[5],nil,nil,nil,3,nil,nil,nil,0],[\"b\",[5],nil,nil,nil,4,nil,nil,nil,0],"
	  "[\"c\",[5],nil,nil,nil,99,nil,nil,nil,0],[\"d\",[5],nil,nil,nil,999,nil,nil,nil,0]"),
	  "2 @77500000000 4: a end 3/0 cached 0; b end 4/0 cached 0; c end 99/0 cached 0; d end 127/0 cached 0;" },
	{ "longer than any we know",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil,nil," PREFILL
	  ",nil,0,nil,nil,0,nil,1,\"x\",[1],{num_prompt_tokens:1},1.5,T]"),
	  GOT(" a cached 32 prefill 40=8+32(32,0) Q@1250000000 S@1500000000;") },
	{ "events that are odd",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,[{type:7,timestamp:1.25},{timestamp:1.0},5,{type:1},"
	  "{x:[1],type:2,timestamp:2}],nil,0]"), GOT(" a cached 0 ?@1250000000 Q@0 S@2000000000;") },
	{ "times are rounded",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,[{type:1,timestamp:4.35}],nil,0]"),
	  GOT(" a cached 0 Q@4350000000;") },
	{ "prefill of newer kind",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil,nil,nil,{num_cached_tokens:9,num_cache_creation_tokens:"
	  "3,other:[1],num_computed_tokens:\"x\"},nil,0]"), GOT(" a cached 9 prefill -1=-1+9(-1,-1);") },
	{ "a transfer's parameters are no statistics",
	  OUT("[\"a\",[5],nil,nil,nil,nil,nil,nil," PREFILL ",nil,nil,nil,0]"), GOT(" a;") },
	{ "tokens that are no list",
	  OUT("[\"a\",!4,nil,nil,nil,1,nil,nil,nil,0]"), GOT(" a +-1 end 1/0 cached 0 shape;") },
	{ "neither layout fits",
	  OUT("[\"a\",[5],nil,nil,\"x\",\"y\",nil,nil,nil,0]"), GOT(" a shape;") },
	{ "no layout at all", OUT("[\"a\",[5],nil]"), GOT(" a shape;") },
	{ "5 fields of 0.6", OUT("[\"a\",[5],T,\"stop\",nil]"), GOT(" a shape;") },
	{ "rows without an id, or no rows",
	  OUT("[7,[5],nil,nil,nil,nil,nil],8,[\"a\"],[\"b\",[5],nil,nil,nil,nil,nil],[]"),
	  "2 @77500000000 5:  +-1 shape;  +-1 shape; a +-1 shape; b;  +-1 shape;" },
	{ "stats",
	  "[0,[],{num_running_reqs:5,num_waiting_reqs:6,num_skipped_waiting_reqs:7,step_counter:9,current_wave:0,"
	  "kv_cache_usage:0.25,iteration_details:nil,prefix_cache_stats:{reset:F,requests:1,queries:100,hits:32,"
	  "preempted_requests:2,preempted_queries:200,preempted_hits:64},connector_prefix_cache_stats:{requests:9},"
	  "kv_cache_eviction_events:[],spec_decoding_stats:{num_spec_tokens:3,num_drafts:4,num_draft_tokens:12,"
	  "num_accepted_tokens:7,num_accepted_tokens_per_pos:[4,2,1]},kv_connector_stats:nil,waiting_lora_adapters:{},"
	  "running_lora_adapters:{},cudagraph_stats:{num_unpadded_tokens:11,num_padded_tokens:16,num_paddings:5,"
	  "runtime_mode:\"FULL\"},perf_stats:nil},77.5,nil,nil,nil,nil,nil]",
	  "0 @77500000000 0: stats run 5 wait 6 skip 7 kv 0.25 prefix 1/100/32/2/200/64 spec 4/12/7 graph 11/16" },
	{ "stats of old",
	  "[0,[],{num_running_reqs:5,num_waiting_reqs:6,gpu_cache_usage:0.25,prefix_cache_stats:{reset:F,"
	  "requests:1,queries:100,hits:32},spec_decoding_stats:nil},77.5,nil,nil,nil,nil]",
	  "0 @77500000000 0: stats run 5 wait 6 kv 0.25 prefix 1/100/32/0/0/0" },
	{ "details of an iteration",
	  "[0,[],{iteration_details:{iteration_index:41,num_ctx_requests:1,num_ctx_tokens:112,"
	  "num_generation_requests:3,num_generation_tokens:4,elapsed_ms:2.5,num_encoder_inputs:0,is_dummy:T}},77.5,nil]",
	  "0 @77500000000 0: stats it 41:1/112/3/4/2.5/dummy" },
	{ "stats of wrong types",
	  "[0,[],{num_running_reqs:\"x\",num_waiting_reqs:-1,kv_cache_usage:nil,prefix_cache_stats:5,"
	  "iteration_details:[1],spec_decoding_stats:\"x\",cudagraph_stats:{num_unpadded_tokens:nil}},77.5,nil]",
	  "0 @77500000000 0: stats" },
	{ "a reply to a utility",
	  "[0,[],nil,77.5,[5,nil,[\"x\",5]],nil,nil,nil]", "0 @77500000000 0: utility" },
	{ "end of a wave", "[0,[],nil,77.5,nil,nil,3,nil]", "0 @77500000000 0: utility wave" },
	{ "start of a wave", "[0,[],nil,77.5,nil,nil,nil,4]", "0 @77500000000 0: utility wave" },
	{ "notices", "[0,[],nil,77.5,nil,nil,nil,nil,[1]]", "0 @77500000000 0:" },
	{ "requests that ended",
	  "[1,[],nil,77.5,nil,[\"a\",\"b\"],nil,nil,nil]", "1 @77500000000 0: done a done b" },
	{ "log stats are off", "[0,[],nil,77.5,nil,nil,nil,nil]", "0 @77500000000 0:" },
	{ "shorter", "[0,[],nil,77.5]", "0 @77500000000 0:" },
	{ "no time", "[0,[],nil]", "0 @0 0: shape" },
	{ "fields in between", "[0,[],7,{num_running_reqs:1},\"x\",77.5,nil,[\"a\"]]",
	  "0 @77500000000 0: stats run 1 done a shape" },
	{ "an engine without a number", "[-1,[],nil,77.5]", "-1 @77500000000 0:" },
};

static void test_vllm_outputs__shapes(void **state)
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

static void test_vllm_outputs__cut(void **state)
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

static void test_vllm_outputs__none(void **state)
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
static void test_vllm_outputs__hostile(void **state)
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
	};
	enum { LEN = 100000 };
	uint8_t *in = malloc(LEN);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct vllm_outputs o;
		struct vllm_row row;
		size_t n = 0;

		memset(in, lies[i].fill, LEN);
		memcpy(in, lies[i].head, lies[i].n_head);
		assert_int_equal(vllm_msg_outputs(in, LEN, &o), 0);
		assert_true(o.flags & VLLM_CUT);
		while (vllm_msg_next_row(&o, &row))
			n++;
		assert_true(n <= LEN);
	}
	free(in);
}

static void test_vllm_outputs__allocates_nothing(void **state)
{
	struct vllm_outputs out;
	struct mp o = { 0 };
	struct vllm_row row;
	int n = 0;

	(void)state;
	mp_text(&o, OUT("[\"a\",[5],nil,nil,nil,nil,nil," TIMES ",nil,nil,nil," PREFILL ",nil,0,nil,nil,0,nil]"));
	oom_after(0);
	assert_int_equal(vllm_msg_outputs(o.p, o.len, &out), 0);
	while (vllm_msg_next_row(&out, &row))
		n++;
	assert_false(oom_hit());
	assert_int_equal(n, 1);
	mp_free(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vllm_outputs__shapes),
		cmocka_unit_test(test_vllm_outputs__cut),
		cmocka_unit_test(test_vllm_outputs__none),
		cmocka_unit_test(test_vllm_outputs__hostile),
		cmocka_unit_test(test_vllm_outputs__allocates_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
