/* SPDX-License-Identifier: Apache-2.0 */
/* event: the table against the structs, and events as text, out and back. */
#include "unit.h"

#include "base/jsonw.h"
#include "buf.h"
#include "parse/event.h"
#include "parse/event_json.h"

#include <errno.h>
#include <string.h>

/* Every kind with the size of its struct. A kind that is new in tl_event.h does not compile here
 * until it has a case, and fails below until it has a row in the table. */
static size_t size_of(enum tl_kind kind)
{
	switch (kind) {
	case TL_NONE: return 0;
	case TL_LOST: return sizeof(struct tl_lost);
	case TL_HOST: return sizeof(struct tl_host);
	case TL_ENGINE: return sizeof(struct tl_engine);
	case TL_PROC: return sizeof(struct tl_proc);
	case TL_CONN: return sizeof(struct tl_conn);
	case TL_REQ_BEGIN: return sizeof(struct tl_req_begin);
	case TL_REQ_FACTS: return sizeof(struct tl_req_facts);
	case TL_RESP_BEGIN: return sizeof(struct tl_resp_begin);
	case TL_CHUNK: return sizeof(struct tl_chunk);
	case TL_USAGE: return sizeof(struct tl_usage);
	case TL_REQ_END: return sizeof(struct tl_req_end);
	case TL_STEP: return sizeof(struct tl_step);
	case TL_SEQ_BEGIN: return sizeof(struct tl_seq_begin);
	case TL_SEQ_LINK: return sizeof(struct tl_seq_link);
	case TL_SELF: return sizeof(struct tl_self);
	case TL_CAPTURE_END: return sizeof(struct tl_capture_end);
	case TL_SEQ_END: return sizeof(struct tl_seq_end);
	case TL_STEP_STATS: return sizeof(struct tl_step_stats);
	case TL_SEQ_POINT: return sizeof(struct tl_seq_point);
	case TL_SEQ_PREEMPT: return sizeof(struct tl_seq_preempt);
	case TL_THREAD: return sizeof(struct tl_thread);
	case TL_THREAD_SPAN: return sizeof(struct tl_thread_span);
	case TL_THROTTLE: return sizeof(struct tl_throttle);
	case TL_CODE: return sizeof(struct tl_code);
	case TL_SEND_HELD: return sizeof(struct tl_send_held);
	case TL_SEND_BLOCKED: return sizeof(struct tl_send_blocked);
	case TL_DELIVERED: return sizeof(struct tl_delivered);
	case TL_GPU_STEP: return sizeof(struct tl_gpu_step);
	case TL_GPU_STATE: return sizeof(struct tl_gpu_state);
	case TL_GPU_HEALTH: return sizeof(struct tl_gpu_health);
	case TL_CLOCK: return sizeof(struct tl_clock);
	case TL_CLAIM: return sizeof(struct tl_claim);
	case TL_GPU_LAUNCH: return sizeof(struct tl_gpu_launch);
	case TL_GPU_SPAN: return sizeof(struct tl_gpu_span);
	case TL_GPU_NAME: return sizeof(struct tl_gpu_name);
	case TL_RAW_NET: return sizeof(struct tl_raw_net);
	case TL_RAW_SOCK: return sizeof(struct tl_raw_sock);
	case TL_RAW_TCP_STATE: return sizeof(struct tl_raw_tcp_state);
	case TL_RAW_PROC: return sizeof(struct tl_raw_proc);
	case TL_RAW_IO_URING: return sizeof(struct tl_hdr);
	case TL_RAW_TCP: return sizeof(struct tl_raw_tcp);
	case TL_RAW_ZMQ: return sizeof(struct tl_raw_zmq);
	case TL_RAW_LLAMA_STEP: return offsetof(struct tl_raw_llama_step, runs);
	case TL_RAW_LLAMA_SEQ_RM: return sizeof(struct tl_raw_llama_seq_rm);
	case TL_RAW_LLAMA_TASK: return sizeof(struct tl_raw_llama_task);
	case TL_RAW_STACK: return sizeof(struct tl_raw_stack);
	case TL_RAW_WAIT: return sizeof(struct tl_raw_wait);
	case TL_RAW_CHILD: return sizeof(struct tl_raw_child);
	}
	return 0;
}

static void check_fields(const struct event_field *fields, size_t n, size_t from, size_t size)
{
	for (size_t i = 0; i < n; i++) {
		if (fields[i].offset != from)
			fail_msg("'%s' is at %u, but the one before ends at %zu", fields[i].name,
				 fields[i].offset, from);
		assert_int_equal(fields[i].bytes % event_type_bytes(fields[i].type), 0);
		from += fields[i].bytes;
	}
	assert_int_equal(from, size);
}

static void test_event__table_covers_the_structs(void **state)
{

	(void)state;
	for (unsigned int kind = 0; kind <= UINT16_MAX; kind++) {
		const struct event_kind *k = event_kind((uint16_t)kind);
		size_t size = size_of((enum tl_kind)kind);

		assert_int_equal(k != NULL, size != 0);
		if (!k)
			continue;
		assert_int_equal(k->kind, kind);
		assert_int_equal(k->size, size);
		assert_true(k->array || k->size <= EVENT_ROOM);
		assert_ptr_equal(event_kind_by_name(k->name), k);
		check_fields(k->fields, k->n_fields, sizeof(struct tl_hdr), size);
		if (k->array && k->array->fields)
			check_fields(k->array->fields, k->array->n_fields, 0, k->array->elem_size);
	}
	check_fields(event_file_header.fields, event_file_header.n_fields, 0,
		     sizeof(struct tl_file_hdr));
	assert_null(event_kind_by_name("nonsense"));
}

static union {
	struct tl_hdr hdr;
	uint8_t bytes[1 << 16];
} rec;

static char line[1 << 18];

static size_t print(const struct tl_hdr *ev, const struct tl_file_hdr *hdr)
{
	struct jsonw w;
	struct buf b;
	size_t len;

	buf__init(&b, sizeof(line) - 1);
	jsonw__init(&w, jsonw_to_buf, &b);
	if (ev)
		event_json(&w, ev);
	else
		event_json_header(&w, hdr);
	assert_int_equal(jsonw__finish(&w), 0);
	memcpy(line, b.data, b.len);
	line[b.len] = 0;
	len = b.len;
	buf__free(&b);
	return len;
}

static void check_round_trip(struct event_parser *p)
{
	size_t len = print(&rec.hdr, NULL);
	struct event_line got;

	if (event_parser__line(p, line, len, &got))
		fail_msg("%s: %s", event_parser__why(p), line);
	assert_non_null(got.ev);
	if (got.ev->size != rec.hdr.size || memcmp(got.ev, &rec, rec.hdr.size) != 0)
		fail_msg("not the same again: %s", line);
}

static uint64_t random_next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* Fills a record with noise of one sort: 0 zeros, 1 small numbers, 2 anything. */
static void noise(uint64_t *seed, int sort, size_t size)
{
	memset(&rec, 0, sizeof(rec));
	for (size_t i = sizeof(struct tl_hdr); i < size; i++)
		if (sort == 2 || (sort == 1 && i % 4 == 0))
			rec.bytes[i] = (uint8_t)(random_next(seed) % (sort == 1 ? 9 : 256));
}

static void set_counts(const struct event_kind *k, size_t n)
{
	for (size_t i = 0; i < k->n_fields; i++) {
		if (k->fields[i].role != EVENT_COUNT)
			continue;
		memset(rec.bytes + k->fields[i].offset, 0, k->fields[i].bytes);
		memcpy(rec.bytes + k->fields[i].offset, &n, 2);
		n = 0;	/* the first of several has all */
	}
}

static void test_event_json__round_trip_of_each_kind(void **state)
{
	struct event_parser *p = event_parser__new();
	uint64_t seed = 7;

	(void)state;
	for (unsigned int kind = 1; kind < 0x200; kind++) {
		const struct event_kind *k = event_kind((uint16_t)kind);

		if (!k)
			continue;
		for (int round = 0; round < 300; round++) {
			size_t n = k->array ? random_next(&seed) % 40 : 0;
			size_t size = event_size(k, n),
			       end = k->size + (k->array ? n * k->array->elem_size : 0);

			noise(&seed, round % 3, size);
			if (round % 6 < 3)	/* the zeros that fill it up */
				memset(rec.bytes + end, 0, size - end);
			if (round % 7 == 0)	/* a newer writer */
				size += 8 * (random_next(&seed) % 4);
			else if (round % 7 == 1 && size > 40)	/* an older one, or damage */
				size -= 8 * (random_next(&seed) % 3);
			if (round % 11)
				set_counts(k, n);
			rec.hdr = (struct tl_hdr){ (uint16_t)size, (uint16_t)kind,
						   round % 2 ? (uint32_t)random_next(&seed) : 0,
						   (uint32_t)random_next(&seed), (uint32_t)round,
						   random_next(&seed) };
			check_round_trip(p);
		}
	}
	event_parser__free(p);
	event_parser__free(NULL);
}

static void test_event_json__round_trip_of_large_and_unknown(void **state)
{
	struct event_parser *p = event_parser__new();
	uint64_t seed = 8;

	(void)state;
	noise(&seed, 2, TL_EVENT_MAX);
	set_counts(event_kind(TL_STEP), TL_MAX_MEMBERS);
	rec.hdr = (struct tl_hdr){
		sizeof(struct tl_step) + 16 * TL_MAX_MEMBERS, TL_STEP, 0, 1, 2, 3
	};
	check_round_trip(p);
	rec.hdr = (struct tl_hdr){ TL_EVENT_MAX, TL_RAW_NET, 1, 1, 2, 3 };
	set_counts(event_kind(TL_RAW_NET), TL_EVENT_MAX - sizeof(struct tl_raw_net));
	check_round_trip(p);
	rec.hdr = (struct tl_hdr){ TL_EVENT_MAX, 999, 5, 1, 2, UINT64_MAX };
	check_round_trip(p);
	rec.hdr = (struct tl_hdr){ sizeof(rec.hdr), 0, 5, 1, 2, 3 };
	check_round_trip(p);
	event_parser__free(p);
}

static void test_event_json__as_it_looks(void **state)
{
	struct tl_chunk chunk = { .hdr = { sizeof(chunk), TL_CHUNK, TL_CHUNK_TEXT | TL_F_JOINED,
					   4711, 0, 9007199254740993 },
				  .req = 3,
				  .bytes = 12,
				  .write_us = 40 };
	struct {
		struct tl_step step;
		struct tl_member m[2];
	} step = { .step.hdr = { sizeof(step), TL_STEP, 0, 1, 2, 3 }, .step.end_ns = 4,
		   .step.n_tokens = 65, .step.n_members = 2, .step.result = -1,
		   .m = { { 0, 64, 0, TL_PREFILL, 0, 0 }, { 1, 1, -1, 7, 1, TL_MEMBER_GUESS } } };
	struct tl_req_facts facts = { .hdr = { sizeof(facts), TL_REQ_FACTS, 0, 0, 0, 1 },
				      .req = 1,
				      .max_tokens = -1,
				      .stream = -1,
				      .path = "/a\"b",
				      .model = "\xff" };
	struct tl_file_hdr hdr = {
		.major = 1, .flags = TL_FILE_INCOMPLETE, .tiers = 3, .kernel = "6.1"
	};

	(void)state;
	print(&chunk.hdr, NULL);
	assert_string_equal(line, "{\"kind\":\"chunk\",\"ts_ns\":9007199254740993,\"tgid\":4711,"
				  "\"flags\":[\"TEXT\",\"JOINED\"],\"req\":3,\"bytes\":12,"
				  "\"n_tokens\":0,\"choice\":0,\"write_us\":40}");
	print(&step.step.hdr, NULL);
	assert_string_equal(
		line, "{\"kind\":\"step\",\"ts_ns\":3,\"tgid\":1,\"tid\":2,\"end_ns\":4,"
		      "\"n_tokens\":65,\"result\":-1,\"members\":["
		      "{\"slot\":0,\"n_tokens\":64,\"pos\":0,\"phase\":\"prefill\",\"n_out\":0},"
		      "{\"slot\":1,\"n_tokens\":1,\"pos\":-1,\"phase\":7,\"n_out\":1,"
		      "\"flags\":[\"GUESS\"]}]}");
	print(&facts.hdr, NULL);
	assert_non_null(strstr(line, "\"max_tokens\":-1,"));
	assert_non_null(strstr(line, "\"api\":\"other\",\"stream\":-1,\"method\":\"other\","));
	assert_non_null(strstr(line, "\"path\":\"/a\\\"b\",\"model\":{\"hex\":\"ff00"));
	print(NULL, &hdr);
	assert_string_equal(line,
			    "{\"kind\":\"recording\",\"major\":1,\"minor\":0,"
			    "\"flags\":[\"INCOMPLETE\"],\"tiers\":[\"T0\",\"T1\"],\"probes\":0,"
			    "\"mono_ns\":0,\"realtime_ns\":0,\"clock_err_ns\":0,\"hostname\":\"\","
			    "\"kernel\":\"6.1\",\"tool\":\"\"}");
	step.step.n_members = 3;	/* more than there are: shown as it is */
	print(&step.step.hdr, NULL);
	assert_non_null(
		strstr(line, "{\"kind\":12,\"ts_ns\":3,\"tgid\":1,\"tid\":2,\"payload\":\"0400"));
}

static void test_event_parser__header(void **state)
{
	struct event_parser *p = event_parser__new();
	struct tl_file_hdr want = { .hdr_size = sizeof(want), .major = 1, .minor = 0, .pad = 9,
				    .flags = TL_FILE_RAW | 0x100, .tiers = 5, .probes = UINT64_MAX,
				    .mono_ns = 1, .realtime_ns = 2, .clock_err_ns = 3,
				    .hostname = "h", .kernel = "k", .tool = "t" };
	struct event_line got;

	(void)state;
	memcpy(want.magic, TL_FILE_MAGIC, sizeof(want.magic));
	assert_int_equal(event_parser__line(p, line, print(NULL, &want), &got), 0);
	assert_null(got.ev);
	assert_memory_equal(got.header, &want, sizeof(want));
	strcpy(line, "{\"kind\":\"recording\",\"major\":2}");
	assert_int_equal(event_parser__line(p, line, strlen(line), &got), -EINVAL);
	assert_string_equal(event_parser__why(p), "format 2 is not known");
	event_parser__free(p);
}

/* ---- what people write ---- */

static void test_event_parser__comfortable_input(void **state)
{
	static const char *const same[] = {
		"{\"kind\":\"chunk\",\"ts_ns\":1500000,\"flags\":[\"TEXT\",\"GUESS\"],\"req\":2}",
		"{\"kind\":\"CHUNK\",\"ts_ms\":1.5,\"flags\":[\"text\",\"guess\"],\"req\":2}\n",
		" { \"req\" : 2 , \"flags\": 1073741826, \"ts_ms\":1.500000, \"kind\":\"chunk\" } ",
		"{\"kind\":9,\"ts_ns\":1500000,\"req\":2,\"flags\":[\"GUESS\",\"TEXT\",\"TEXT\"]}",
	};
	struct tl_chunk want = { .hdr = { sizeof(want), TL_CHUNK, TL_CHUNK_TEXT | TL_F_GUESS, 0, 0,
					  1500000 },
				 .req = 2 };
	struct event_parser *p = event_parser__new();
	const struct tl_step *step;
	struct event_line got;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		if (event_parser__line(p, same[i], strlen(same[i]), &got))
			fail_msg("%s: %s", same[i], event_parser__why(p));
		assert_memory_equal(got.ev, &want, sizeof(want));
	}
	strcpy(line,
	       "{\"kind\":\"step\",\"members\":[{\"phase\":\"decode\",\"pos\":-1},{\"slot\":3}]}");
	assert_int_equal(event_parser__line(p, line, strlen(line), &got), 0);
	step = (const void *)got.ev;
	assert_int_equal(step->hdr.size, sizeof(*step) + 2 * sizeof(step->members[0]));
	assert_int_equal(step->n_members, 2);
	assert_int_equal(step->members[0].phase, TL_DECODE);
	assert_int_equal(step->members[0].pos, -1);
	assert_int_equal(step->members[1].slot, 3);
	/* nothing of it is left in the next one */
	strcpy(line, "{\"kind\":\"host\"}");
	assert_int_equal(event_parser__line(p, line, strlen(line), &got), 0);
	for (size_t i = sizeof(struct tl_hdr); i < sizeof(struct tl_host); i++)
		assert_int_equal(((const uint8_t *)got.ev)[i], 0);
	event_parser__free(p);
}

static const struct {
	const char *in, *why;
} refused[] = {
	{ "", "it is not valid JSON" },
	{ "{", "it ends too early" },
	{ "nonsense", "it is not valid JSON" },
	{ "{\"kind\":\"chunk\"", "it ends too early" },
	{ "{\"kind\":\"chunk\"} {}", "something follows the object" },
	{ "{\"kind\":\"chunk\"}]", "it is not valid JSON" },
	{ "[1]", "an object {...} is wanted" },
	{ "12", "it is not valid JSON" },
	{ "{\"kind\"}", "it is not valid JSON" },
	{ "{\"kind\":\"chunk\",\"req\"}", "it is not valid JSON" },
	{ "{}", "it has no 'kind'" },
	{ "{\"kind\":\"chunks\"}", "unknown kind 'chunks'" },
	{ "{\"kind\":777}", "a kind that is not known needs a 'payload'" },
	{ "{\"kind\":70000}", "'70000' is out of range" },
	{ "{\"kind\":\"chunk\",\"foo\":1}", "unknown key 'foo'" },
	{ "{\"kind\":\"chunk\",\"req\":1,\"bytes\":2,\"req\":1}", "the key 'req' comes twice" },
	{ "{\"kind\":\"chunk\",\"kind\":\"step\"}", "the key 'kind' comes twice" },
	{ "{\"kind\":\"chunk\",\"ts_ns\":1,\"ts_ms\":2}", "it has both ts_ns and ts_ms" },
	{ "{\"kind\":\"step\",\"members\":[{\"slot\":1,\"slot\":2}]}", "the key 'slot' comes twice" },
	{ "{\"kind\":\"chunk\",\"members\":[]}", "unknown key 'members'" },
	{ "{\"kind\":777,\"req\":1}", "unknown key 'req'" },
	{ "{\"kind\":\"recording\",\"magic\":\"00\"}", "unknown key 'magic'" },
	{ "{\"kind\":\"chunk\",\"req\":-1}", "the value of 'req' is out of range" },
	{ "{\"kind\":\"chunk\",\"req\":4294967296}", "the value of 'req' is out of range" },
	{ "{\"kind\":\"chunk\",\"req\":1.5}", "'1.5' is no number that fits" },
	{ "{\"kind\":\"chunk\",\"req\":1e3}", "'1e3' is no number that fits" },
	{ "{\"kind\":\"chunk\",\"req\":null}", "'null' is no number that fits" },
	{ "{\"kind\":\"chunk\",\"req\":[1]}", "'[1]' is no number that fits" },
	{ "{\"kind\":\"chunk\",\"req\":\"x\"}", "'x' is no name of a value here" },
	{ "{\"kind\":\"chunk\",\"ts_ns\":18446744073709551616}",
	  "'18446744073709551616' is no number that fits" },
	{ "{\"kind\":\"chunk\",\"ts_ms\":1.1234567}", "'1.1234567' is no number that fits" },
	{ "{\"kind\":\"chunk\",\"ts_ms\":1.}", "'1.' is no number that fits" },
	{ "{\"kind\":\"chunk\",\"flags\":[\"LOUD\"]}", "'LOUD' is no name of a value here" },
	{ "{\"kind\":\"chunk\",\"flags\":-1}", "bits cannot be negative" },
	{ "{\"kind\":\"req_facts\",\"stream\":-129}", "the value of 'stream' is out of range" },
	{ "{\"kind\":\"req_facts\",\"path\":1}", "a string is wanted, not '1'" },
	{ "{\"kind\":\"req_facts\",\"path\":\"\\u0041\"}",
	  "a string has an escape other than \\\" and \\\\" },
	{ "{\"kind\":\"req_facts\",\"path\":\"\xc3\xa9\"}",
	  "a string has a character that is not printable ASCII" },
	{ "{\"kind\":\"host\",\"tool\":\"12345678901234567890123456789012\"}",
	  "a string is longer than 31 bytes" },
	{ "{\"kind\":\"conn\",\"peer_addr\":\"7f0\"}",
	  "a string with an even number of hex digits is wanted" },
	{ "{\"kind\":\"conn\",\"peer_addr\":\"7g\"}",
	  "a string with an even number of hex digits is wanted" },
	{ "{\"kind\":\"conn\",\"peer_addr\":\"0000000000000000000000000000000000\"}",
	  "17 bytes of hex do not fit into 16" },
	{ "{\"kind\":\"engine\",\"ports\":[1,2,3,4,5,6,7,8,9]}",
	  "'ports' wants an array of at most 8 numbers" },
	{ "{\"kind\":\"step\",\"members\":{}}",
	  "'members' wants an array of at most 2048 objects" },
	{ "{\"kind\":\"step\",\"members\":[1]}", "an object {...} is wanted" },
	{ "{\"kind\":\"step\",\"members\":[{\"kind\":1}]}", "unknown key 'kind'" },
	{ "{\"kind\":\"step\",\"n_members\":2,\"members\":[{}]}",
	  "'members' has 1 elements, but 2 are announced" },
	{ "{\"kind\":\"raw_net\",\"head\":1,\"data\":\"0011\"}",
	  "'data' has 2 elements, but 1 are announced" },
	{ "{\"kind\":\"chunk\",\"size\":40}", "'size' is not between 32 and 40" },
	{ "{\"kind\":\"chunk\",\"size\":33}",
	  "the record would have 33 bytes: no multiple of 8, or too many" },
	{ "{\"kind\":\"chunk\",\"more\":\"00\"}",
	  "the record would have 41 bytes: no multiple of 8, or too many" },
	{ "{\"kind\":\"chunk\",\"a\tb\":1}",
	  "a string has a character that is not printable ASCII" },
};

static void test_event_parser__refuses(void **state)
{
	struct event_parser *p = event_parser__new();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		struct event_line got;
		int err = event_parser__line(p, refused[i].in, strlen(refused[i].in), &got);

		if (err != -EINVAL)
			fail_msg("taken: %s", refused[i].in);
		assert_string_equal(event_parser__why(p), refused[i].why);
	}
	event_parser__free(p);
}

static void test_event_parser__survives_any_cut(void **state)
{
	struct event_parser *p = event_parser__new();
	struct event_line got;
	size_t len;

	(void)state;
	memset(&rec, 0, sizeof(rec));
	rec.hdr = (struct tl_hdr){ sizeof(struct tl_step) + 32, TL_STEP, 1, 2, 3, 4 };
	set_counts(event_kind(TL_STEP), 2);
	len = print(&rec.hdr, NULL);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(event_parser__line(p, line, i, &got), -EINVAL);
	assert_int_equal(event_parser__line(p, line, len, &got), 0);
	line[3] = 0;
	assert_int_equal(event_parser__line(p, line, len, &got), -EINVAL);
	event_parser__free(p);
}

static void test_event_parser__oom(void **state)
{
	int n_failed = 0;

	(void)state;
	memset(&rec, 0, sizeof(rec));
	rec.hdr = (struct tl_hdr){ sizeof(struct tl_step) + 16 * 100, TL_STEP, 0, 1, 2, 3 };
	set_counts(event_kind(TL_STEP), 100);
	print(&rec.hdr, NULL);
	OOM_LOOP({
		struct event_parser *p = event_parser__new();
		struct event_line got;
		int err = p ? event_parser__line(p, line, strlen(line), &got) : -ENOMEM;

		assert_true(err == 0 || err == -ENOMEM);
		n_failed += err != 0;
		event_parser__free(p);
	});
	assert_true(n_failed >= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_event__table_covers_the_structs),
		cmocka_unit_test(test_event_json__round_trip_of_each_kind),
		cmocka_unit_test(test_event_json__round_trip_of_large_and_unknown),
		cmocka_unit_test(test_event_json__as_it_looks),
		cmocka_unit_test(test_event_parser__header),
		cmocka_unit_test(test_event_parser__comfortable_input),
		cmocka_unit_test(test_event_parser__refuses),
		cmocka_unit_test(test_event_parser__survives_any_cut),
		cmocka_unit_test(test_event_parser__oom),
	};

	return cmocka_run_group_tests_name("event", tests, NULL, NULL);
}
