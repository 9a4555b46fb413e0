/* SPDX-License-Identifier: Apache-2.0 */
/* The waterfall of a request as JSON: the numbers and words of its text, sums that are exact, and no memory. */
#include "fake_server.h"
#include "model/evidence.h"
#include "sink/why.h"
#include "unit.h"

#include <cjson/cJSON.h>
#include <errno.h>

static int setup(void **state)
{
	struct fake_job jobs[] = {
		{ .at_ms = 10, .prompt = 30, .output = 60, .stream = true },
		{ .at_ms = 20, .prompt = 64, .cached = 10, .output = 30, .stream = true },
		{ .at_ms = 30, .prompt = 900, .output = 5, .stream = true },
	};

	*state = fake__new();
	fake_serve(*state, jobs, ARRAY_SIZE(jobs));
	return 0;
}

static int teardown(void **state)
{
	fake__free(*state);
	return 0;
}

static cJSON *json_of(struct fake *f, size_t request)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	cJSON *doc;

	assert_non_null(out);
	assert_int_equal(why_request_json(&f->v, request, NULL, out), 0);
	fclose(out);
	assert_int_equal(text[len - 1], '\n');
	assert_ptr_equal(strchr(text, '\n'), text + len - 1);
	doc = cJSON_Parse(text);
	assert_non_null(doc);
	free(text);
	return doc;
}

static char *text_of(struct fake *f, size_t request)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(why_request(&f->v, request, &(struct text_opts){ .width = 4000 }, out), 0);
	fclose(out);
	return text;
}

static const cJSON *get(const cJSON *o, const char *key)
{
	const cJSON *at = cJSON_GetObjectItemCaseSensitive(o, key);

	if (!at)
		print_error("no key \"%s\"\n", key);
	assert_non_null(at);
	return at;
}

/* Of ms with six decimals, not below 0. */
static int64_t to_ns(double ms)
{
	return (int64_t)(ms * 1e6 + 0.5);
}

static int64_t ns_of(const cJSON *o, const char *key)
{
	assert_true(cJSON_IsNumber(get(o, key)));
	return to_ns(get(o, key)->valuedouble);
}

static void assert_in(const char *text, const cJSON *part)
{
	assert_true(cJSON_IsString(part));
	if (!strstr(text, part->valuestring))
		print_error("not there: \"%s\" in:\n%s\n", part->valuestring, text);
	assert_non_null(strstr(text, part->valuestring));
}

static void test_json_why__says_what_the_text_says(void **state)
{
	for (size_t r = 0; r < 3; r++) {
		char *text = text_of(*state, r), row[64];
		cJSON *doc = json_of(*state, r);
		const cJSON *at;

		assert_int_equal(strncmp(text, get(doc, "answer")->valuestring, strlen(get(doc, "answer")->valuestring)), 0);
		cJSON_ArrayForEach(at, get(doc, "rows")) {
			assert_in(text, get(at, "text"));
			snprintf(row, sizeof(row), "\n%10.3f", get(at, "at_ms")->valuedouble);
			assert_non_null(strstr(text, row));
		}
		cJSON_ArrayForEach(at, get(doc, "parts")) {
			snprintf(row, sizeof(row), "%8.1f %%  %s\n", get(at, "pct")->valuedouble, get(at, "text")->valuestring);
			assert_non_null(strstr(text, row));
		}
		cJSON_ArrayForEach(at, get(get(doc, "gaps"), "worst"))
			assert_in(text, get(at, "text"));
		assert_true(cJSON_GetArraySize(get(doc, "notes")) >= 3);
		cJSON_ArrayForEach(at, get(doc, "notes"))
			assert_in(text, at);
		cJSON_Delete(doc);
		free(text);
	}
}

static void test_json_why__adds_up_to_the_ns(void **state)
{
	for (size_t r = 0; r < 3; r++) {
		cJSON *doc = json_of(*state, r);
		int64_t rows = 0, parts = 0, unexplained = 0, gap;
		const cJSON *at, *p;

		cJSON_ArrayForEach(at, get(doc, "rows")) {
			assert_int_equal(ns_of(at, "at_ms"), rows);	/* no hole, no overlap */
			rows += ns_of(at, "ms");
		}
		assert_int_equal(rows, ns_of(doc, "total_ms"));
		cJSON_ArrayForEach(at, get(doc, "parts")) {
			parts += ns_of(at, "ms");
			unexplained += cJSON_IsTrue(get(at, "unexplained")) ? ns_of(at, "ms") : 0;
		}
		assert_int_equal(parts, ns_of(doc, "total_ms"));
		assert_int_equal(unexplained, ns_of(doc, "unexplained_ms"));
		cJSON_ArrayForEach(at, get(get(doc, "gaps"), "worst")) {
			gap = 0;
			cJSON_ArrayForEach(p, get(at, "parts"))
				gap += to_ns(cJSON_GetArrayItem(p, 2)->valuedouble);
			assert_int_equal(gap, ns_of(at, "ms"));
		}
		cJSON_Delete(doc);
	}
}

static void test_json_why__names_parts(void **state)
{
	cJSON *doc = json_of(*state, 2);
	const cJSON *rows = get(doc, "rows");

	assert_string_equal(get(doc, "id")->valuestring, "r3");
	assert_int_equal(get(doc, "schema")->valueint, 1);
	assert_true(cJSON_IsTrue(get(doc, "whole")));
	assert_true(cJSON_IsNull(get(doc, "at_client")));
	assert_true(cJSON_IsNull(get(doc, "open_gap")));
	assert_string_equal(get(cJSON_GetArrayItem(rows, 0), "part")->valuestring, "read");
	assert_string_equal(get(cJSON_GetArrayItem(rows, 1), "part")->valuestring, "frontend");
	assert_string_equal(get(cJSON_GetArrayItem(rows, 2), "part")->valuestring, "wait_slot");
	assert_string_equal(get(cJSON_GetArrayItem(rows, cJSON_GetArraySize(rows) - 1), "part")->valuestring, "end");
	assert_int_equal(get(get(doc, "delivery"), "outputs")->valueint, 5);
	cJSON_Delete(doc);
}

static void test_json_why__what_was_held(void **state)
{
	struct fake *f = *state;
	struct tl_send_held held[6] = { 0 };
	struct tl_send_blocked blocked = { .req = 1, .since_ns = fake_ns(60), .app_queue_bytes = 4096, .kernel_bytes = 77 };
	struct evidence e = { .held.v = held, .held.n = 6, .blocked.v = &blocked, .blocked.n = 1 };
	const cJSON *h, *first;
	cJSON *doc;

	for (size_t i = 0; i < 6; i++)
		held[i] = (struct tl_send_held){ .hdr.ts_ns = fake_ns(50 + i), .since_ns = fake_ns(15), .req = 1, .n_writes = 1,
						 .bytes = 2000, .fd = i ? -1 : 31, .local_port = 8000, .peer_port = 40001,
						 .why = i == 1 ? TL_HELD_OTHER : TL_HELD_NAGLE };
	f->v.evidence = &e;
	doc = json_of(f, 0);
	h = get(doc, "held");
	assert_int_equal(get(h, "n")->valueint, 6);
	assert_int_equal(ns_of(h, "ms"), 40000000);	/* once, not six times */
	assert_int_equal(cJSON_GetArraySize(get(h, "first")), 4);
	first = cJSON_GetArrayItem(get(h, "first"), 0);
	assert_string_equal(get(first, "why")->valuestring, "nagle");
	assert_int_equal(get(first, "fd")->valueint, 31);
	assert_int_equal(ns_of(first, "ms"), 35000000);
	first = cJSON_GetArrayItem(get(h, "first"), 1);
	assert_true(cJSON_IsNull(get(first, "why")));
	assert_true(cJSON_IsNull(get(first, "fd")));
	first = cJSON_GetArrayItem(get(doc, "slow_reader"), 0);
	assert_int_equal(get(first, "server_bytes")->valueint, 4096);
	assert_int_equal(get(first, "kernel_bytes")->valueint, 77);
	assert_true(cJSON_IsNull(get(first, "after_engine_ms")));
	cJSON_Delete(doc);
	f->v.evidence = NULL;
}

static void test_json_why__survives_no_memory(void **state)
{
	struct fake *f = *state;
	FILE *out = fopen("/dev/null", "w");
	int err = 0;

	assert_non_null(out);
	fputc('\n', out); /* stdio takes its buffer here */
	OOM_LOOP(err = why_request_json(&f->v, 0, "cut", out);
		 if (err) assert_int_equal(err, -ENOMEM))
		assert_int_equal(err, 0);
	fclose(out);
}

static void test_json_why__says_that_it_cannot_write(void **state)
{
	struct fake *f = *state;
	FILE *out = fopen("/dev/full", "w");

	if (!out)
		skip();
	assert_int_equal(why_request_json(&f->v, 0, NULL, out), -ENOSPC);
	fclose(out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_json_why__says_what_the_text_says), TEST(test_json_why__adds_up_to_the_ns),
		TEST(test_json_why__names_parts), TEST(test_json_why__what_was_held),
		TEST(test_json_why__survives_no_memory), TEST(test_json_why__says_that_it_cannot_write),
	};

	return cmocka_run_group_tests_name("json_why", tests, NULL, NULL);
}
