/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes that read requests: what each had of them; and failures by name. */
#include "unit.h"

#include "fake_view.h"
#include "model/summary.h"
#include "oom.h"
#include "sink/json.h"
#include "sink/text.h"

#include <errno.h>

#define MS(x) ((uint64_t)((x)*1000000))

static int setup(void **state)
{
	struct fake *f = fake__new();

	f->engines[1].e = f->engines[0].e;
	f->engines[1].e.hdr.tgid = 4343;
	f->v.n_engines = 2;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	fake__free(*state);
	return 0;
}

/* In the front end for so long, first token 10 ms behind it. */
static struct rec_request *request(struct fake *f, uint32_t engine, double at_ms, double front_ms)
{
	struct rec_request *r = fake_request(f, at_ms);

	r->engine = engine;
	fake_point(r, P_REQ_LAST_BYTE, at_ms);
	fake_point(r, P_SUBMIT, at_ms + front_ms);
	fake_chunk(r, at_ms + front_ms + 10, TL_CHUNK_TEXT);
	fake_done(f, r, at_ms + front_ms + 20);
	return r;
}

/* In no order; of the second server one is an error, which has no times. */
static void two_servers(struct fake *f)
{
	struct rec_request *r;

	request(f, 1, 0, 40);
	request(f, 0, 5, 2);
	request(f, 1, 10, 80);
	r = request(f, 1, 20, 500);
	r->state = REQ_ERROR;
	r->status = 400;
	strcpy(r->x_request_id, "mine-7");
	request(f, 0, 30, 4);
}

static char *text_of(struct fake *f)
{
	struct summary s;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(text_report(&f->v, &s, &(struct text_opts){ .width = 200 }, out), 0);
	fclose(out);
	return text;
}

static void test_fronts__each_for_itself(void **state)
{
	struct fake *f = *state;
	struct front_summary *s;

	two_servers(f);
	assert_int_equal(summarise_fronts(&f->v, &s), 0);
	assert_int_equal(s[0].n_requests, 2);
	assert_int_equal(s[0].n_errors, 0);
	assert_int_equal(s[0].frontend.max, MS(4));
	assert_int_equal(s[0].ttft.p50, MS(12));
	assert_int_equal(s[1].n_requests, 3);
	assert_int_equal(s[1].n_errors, 1);
	assert_int_equal(s[1].frontend.n, 2);
	assert_int_equal(s[1].frontend.p50, MS(40));
	assert_int_equal(s[1].frontend.max, MS(80));
	assert_int_equal(s[1].delivery.n, 0);
	free(s);
}

static void test_fronts__of_several_each_has_a_line(void **state)
{
	struct fake *f = *state;
	char *text;

	two_servers(f);
	text = text_of(f);
	assert_non_null(strstr(
		text,
		"\nfront end pid 4242: 2 of 5 requests; front end p50 2.00 ms, max 4.00 ms; TTFT p50 12.0 ms, "
		"max 14.0 ms\n"));
	assert_non_null(strstr(
		text,
		"\nfront end pid 4343: 3 of 5 requests; 1 error; front end p50 40.0 ms, max 80.0 ms; "));
	free(text);
}

static void test_fronts__one_is_all(void **state)
{
	struct fake *f = *state;
	char *text;

	request(f, 1, 0, 40);
	text = text_of(f);
	assert_null(strstr(text, "front end pid "));
	free(text);
}

static void test_fronts__in_json(void **state)
{
	struct fake *f = *state;
	struct summary s;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	request(f, 1, 0, 40);
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(json_report(&f->v, &s, &(struct json_opts){ 0 }, out), 0);
	fclose(out);
	assert_non_null(strstr(text, "\"front\":null"));
	assert_non_null(strstr(
		text,
		"\"front\":{\"requests\":1,\"errors\":0,\"aborted\":0,\"frontend_ms\":{\"p50\":40"));
	free(text);
}

static void test_failures__by_the_name_that_their_client_gave(void **state)
{
	struct fake *f = *state;
	char *text;

	two_servers(f);
	text = text_of(f);
	assert_non_null(strstr(text, "\nerror     r4 (mine-7): HTTP 400"));
	free(text);
}

static void test_fronts__survives_no_memory(void **state)
{
	struct fake *f = *state;
	struct front_summary *s;
	int err = 0;

	two_servers(f);
	OOM_LOOP({
		err = summarise_fronts(&f->v, &s);
		if (err)
			assert_int_equal(err, -ENOMEM);
		else
			free(s);
	})
		assert_int_equal(err, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_fronts__each_for_itself),
		TEST(test_fronts__of_several_each_has_a_line),
		TEST(test_fronts__one_is_all),
		TEST(test_fronts__in_json),
		TEST(test_failures__by_the_name_that_their_client_gave),
		TEST(test_fronts__survives_no_memory),
	};

	return cmocka_run_group_tests_name("fronts", tests, NULL, NULL);
}
