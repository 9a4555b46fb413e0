/* SPDX-License-Identifier: Apache-2.0 */
/* Blame in JSON: exact parts, every kind of culprit, sums that others rely on; and health. */
#include "unit.h"
#include "fake_blame.h"
#include "model/evidence.h"
#include "sink/json.h"

#include <cjson/cJSON.h>
#include <errno.h>

static char *blame_json(struct fake *f, const struct blame_selection *sel, bool all)
{
	struct json_opts o = { .all_gaps = all };
	struct summary summary;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(summarise(&f->v, &summary), 0);
	assert_int_equal(json_blame_only(&f->v, &summary, &fake_blame, sel, &o, out), 0);
	fclose(out);
	return text;
}

static char *key_of(struct fake *f, const char *key, bool all)
{
	char *text = blame_json(f, &(struct blame_selection){ 0 }, all), *value;
	cJSON *doc = cJSON_Parse(text), *at = cJSON_GetObjectItemCaseSensitive(doc, key);

	assert_non_null(at);
	value = cJSON_PrintUnformatted(at);
	cJSON_Delete(doc);
	free(text);
	return value;
}

/* "blame.pairs.0" */
static char *print_at(struct fake *f, const char *path)
{
	char *text = blame_json(f, &(struct blame_selection){ 0 }, true), *value, key[64];
	cJSON *doc = cJSON_Parse(text), *at = doc;

	while (at && *path) {
		size_t n = strcspn(path, ".");

		snprintf(key, sizeof(key), "%.*s", (int)n, path);
		at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(key))
				       : cJSON_GetObjectItemCaseSensitive(at, key);
		path += n + (path[n] == '.');
	}
	assert_non_null(at);
	value = cJSON_PrintUnformatted(at);
	cJSON_Delete(doc);
	free(text);
	return value;
}

static void assert_at(struct fake *f, const char *path, const char *want)
{
	char *got = print_at(f, path);

	assert_string_equal(got, want);
	free(got);
}

/* Two requests; the second gap of r1 was stretched by r2. */
static void one_victim(struct fake *f)
{
	struct rec_request *r = fake_request(f, 10);
	struct gap *g;

	r->output = fake_count(3);
	fake_chunk(r, 20, TL_CHUNK_TEXT);
	fake_chunk(r, 220.000001, TL_CHUNK_TEXT);
	fake_done(f, r, 221);
	fake_request(f, 30);
	fake_part(fake_gap(0, 1, 20, 20), MECH_OWN_DECODE, 20);
	g = fake_gap(0, 2, 40, 20);
	fake_part_by(g, MECH_PREFILL, 160.000001, WHO_REQUEST, 1, "");
	fake_part(g, MECH_OWN_DECODE, 20);
	fake_part(fake_gap(0, 0, 10, 10), MECH_OWN_PREFILL, 10);
}

static void test_json__gaps_and_their_parts(void **state)
{
	struct fake *f = *state;
	struct gap *open;
	char *text;

	one_victim(f);
	open = fake_gap(1, 4, 300, 20);
	open->open = true;
	fake_part(open, MECH_UNEXPLAINED, 480)->prov = PROV_NONE;
	fake_part(open, MECH_OWN_DECODE, 20);
	text = key_of(f, "requests", false);
	assert_string_equal(text,
		"[{\"id\":\"r1\",\"gaps\":[[2,180.000001,[[\"prefill\",{\"type\":\"request\",\"id\":\"r2\","
		"\"name\":null,\"root\":null},160.000001,\"observed\"],[\"own_decode\",null,20,\"observed\"]]]],"
		"\"gaps_side\":\"wire\",\"ttft_parts\":[[\"own_prefill\",null,10,\"observed\"]],\"open_gap\":null},"
		"{\"id\":\"r2\",\"gaps\":[],\"gaps_side\":null,\"ttft_parts\":null,"
		"\"open_gap\":[4,500,[[\"unexplained\",null,480,null],[\"own_decode\",null,20,\"observed\"]]]}]");
	free(text);
	text = key_of(f, "requests", true);
	assert_non_null(strstr(text, "\"gaps\":[[1,20,[[\"own_decode\",null,20,\"observed\"]]],[2,"));
	free(text);
}

static void test_json__says_what_gaps_lie_between(void **state)
{
	struct fake *f = *state;

	one_victim(f);
	fake_gap(0, 3, 220, 20)->side = GAP_CLIENT;
	assert_at(f, "requests.0.gaps_side", "\"client\"");
	fake_gap(1, 1, 220, 20)->side = GAP_ENGINE;
	assert_at(f, "requests.1.gaps_side", "\"engine\"");
	/* Percentiles, too, are taken where TTFTs end. */
	for (size_t i = 0; i < fake_blame.n; i++)
		if (!fake_blame.gaps[i].token)
			fake_blame.gaps[i].side = GAP_CLIENT;
	assert_at(f, "what_if.0.end", "\"client\"");
	fake_part(fake_gap(1, 0, 300, 20), MECH_OWN_PREFILL, 20);
	assert_at(f, "what_if.0.end", "\"mixed\"");
}

static void test_json__how(void **state)
{
	struct fake *f = *state;

	one_victim(f);
	assert_at(f, "blame.how", "[]");
	fake_blame.hows.n = 1;
	fake_blame.hows.v[0] = (struct how){
		.mechanism = MECH_GRAPH_MISS, .n_steps = 99, .steps_ns = 99 * 34000000ull, .lost_ns = 99 * 24000000ull,
		.busy_pct = 29.4, .all_busy_pct = -1, .graph = { 49, 49, 48, 1185, 27000, false },
	};
	assert_at(f, "blame.how.0.graph", "{\"least_batch\":49,\"most_batch\":49,\"largest_graph\":48,"
		  "\"launches_per_step\":1185,\"launch_us\":27,\"launch_us_is_bound\":false}");
	assert_at(f, "blame.how.0.gpu_busy_pct", "29.4");
	assert_at(f, "blame.how.0.gpu_busy_all_pct", "null");
	assert_at(f, "blame.how.0.engine_pid", "4242");
	fake_blame.hows.v[0] = (struct how){
		.mechanism = MECH_COLLECTIVE, .n_steps = 1, .steps_ns = 58000000,
		.late = { 2, 1, 1 << 0 | 1 << 3, 44000000, 2000000, 12000000, 0, 100 },
	};
	assert_at(f, "blame.how.0.late_rank", "{\"rank\":2,\"steps\":1,\"waiting_ranks\":[0,3],\"wait_ms\":44,"
		  "\"transfer_ms\":2,\"compute_ms\":12,\"compute_usual_ms\":null,\"waiting_busy_pct\":100}");
	fake_blame.hows.v[0] = (struct how){
		.mechanism = MECH_DETOKENIZER, .busy_pct = -1, .all_busy_pct = -1,
		.backlog = { fake_ns(780), fake_ns(3639), 16, 39000000, 180000000 },
	};
	assert_at(f, "blame.how.0.backlog", "{\"made_at_ms\":780,\"written_at_ms\":3639,\"late_ms\":2859,"
		  "\"pending_steps\":16,\"step_ms\":39,\"written_every_ms\":180}");
	assert_at(f, "blame.how.0.steps", "null");
	fake_blame.hows.v[0] = (struct how){ .mechanism = MECH_CLOCK, .n_steps = 1, .steps_ns = 1,
					     .clock = { 1580, 1965, 5, -1, 0 } };
	assert_at(f, "blame.how.0.clock", "{\"mhz\":1580,\"usual_mhz\":1965,\"decode_pct\":5,\"prefill_pct\":null,"
		  "\"steps_with_both\":0}");
}

static void test_json__sums(void **state)
{
	struct fake *f = *state;

	one_victim(f);
	assert_at(f, "blame.by_mechanism",
		"[{\"mechanism\":\"prefill\",\"ms\":160.000001,\"gaps_ms\":160.000001,\"ttft_ms\":0,\"gaps\":1,"
		"\"victims\":1,\"share_pct\":76.19,\"above_pct\":100},"
		"{\"mechanism\":\"own_decode\",\"ms\":40,\"gaps_ms\":40,\"ttft_ms\":0,\"gaps\":2,\"victims\":1,"
		"\"share_pct\":19.048,\"above_pct\":null},"
		"{\"mechanism\":\"own_prefill\",\"ms\":10,\"gaps_ms\":0,\"ttft_ms\":10,\"gaps\":0,\"victims\":1,"
		"\"share_pct\":4.762,\"above_pct\":null}]");
	assert_at(f, "blame.pairs",
		"[{\"victim\":\"r1\",\"culprit\":{\"type\":\"request\",\"id\":\"r2\",\"name\":null,\"root\":null},"
		"\"mechanism\":\"prefill\",\"ms\":160.000001,\"gaps_ms\":160.000001,\"ttft_ms\":0,\"gaps\":1,"
		"\"longest_ms\":160.000001,\"longest_at_ms\":40,\"provenance\":\"observed\"}]");
	assert_at(f, "what_if",
		"[{\"without\":null,\"end\":\"wire\",\"tpot_p50_ms\":100,\"tpot_p99_ms\":100,\"ttft_p99_ms\":10},"
		"{\"without\":\"prefill\",\"end\":\"wire\",\"tpot_p50_ms\":20,\"tpot_p99_ms\":20,\"ttft_p99_ms\":10}]");
	assert_at(f, "blame.unexplained_ms", "0");
	assert_at(f, "blame.gaps_above_baseline", "1");
}

static void test_json__culprits_of_every_kind(void **state)
{
	static const struct {
		enum culprit_type type;
		uint32_t id;
		const char *name, *want;
	} cases[] = {
		{ WHO_NOBODY, 0, "", "null" },
		{ WHO_REQUEST, 0, "", "{\"type\":\"request\",\"id\":\"r1\",\"name\":null,\"root\":null}" },
		{ WHO_SEQUENCE, 0, "", "{\"type\":\"request\",\"id\":\"slot 3\",\"name\":null,\"root\":null}" },
		{ WHO_THREAD, 31, "gc", "{\"type\":\"thread\",\"id\":\"31\",\"name\":\"gc\",\"root\":null}" },
		{ WHO_PROCESS, 42, "ffmpeg",
		  "{\"type\":\"process\",\"id\":\"42\",\"name\":\"ffmpeg\",\"root\":null}" },
		{ WHO_CGROUP, 0, "llm", "{\"type\":\"cgroup\",\"id\":\"llm\",\"name\":\"llm\",\"root\":null}" },
		{ WHO_DEVICE, 1, "", "{\"type\":\"device\",\"id\":\"1\",\"name\":null,\"root\":null}" },
		{ WHO_RANK, 2, "", "{\"type\":\"rank\",\"id\":\"2\",\"name\":null,\"root\":null}" },
		{ WHO_CLIENT, 5000, "", "{\"type\":\"client\",\"id\":\"5000\",\"name\":null,\"root\":null}" },
		{ WHO_NETWORK, 0, "", "{\"type\":\"network\",\"id\":null,\"name\":null,\"root\":null}" },
	};
	struct fake *f = *state;

	fake_request(f, 10);
	fake_seq(f, NULL, 3);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fake_blame_clear();
		fake_part_by(fake_gap(0, 1, 20, 5), MECH_HOST, 20, cases[i].type, cases[i].id,
			     cases[i].name);
		assert_at(f, "blame.pairs.0.culprit", cases[i].want);
		assert_at(f, "requests.0.gaps.0.2.0.1", cases[i].want);
	}
}

static void test_json__roots(void **state)
{
	struct fake *f = *state;
	struct blame_part *p;

	fake_request(f, 10);
	p = fake_part_by(fake_gap(0, 1, 20, 5), MECH_RECOMPUTE, 20, WHO_RANK, 1, "");
	p->root = (struct culprit){ .type = WHO_RANK, .id = 2 };
	assert_at(f, "blame.pairs.0.culprit", "{\"type\":\"rank\",\"id\":\"1\",\"name\":null,\"root\":"
					     "{\"type\":\"rank\",\"id\":\"2\",\"name\":null,\"root\":null}}");
	p->who.type = WHO_NOBODY; /* only what is behind it is known */
	assert_at(f, "blame.pairs.0.culprit",
		  "{\"type\":\"rank\",\"id\":\"2\",\"name\":null,\"root\":null}");
}

static void test_json__a_selection(void **state)
{
	struct fake *f = *state;
	char *text;

	one_victim(f);
	text = blame_json(f, &(struct blame_selection){ .request = 2 }, true);
	assert_null(strstr(text, "\"r1\""));
	assert_non_null(strstr(text, "\"pairs\":[]"));
	assert_non_null(strstr(text, "\"requests\":[{\"id\":\"r2\""));
	free(text);
}

static void test_json__health(void **state)
{
	struct fake *f = *state;
	struct tl_gpu_health h = {
		.hdr = { .tgid = 7, .ts_ns = fake_ns(3000) }, .since_ns = fake_ns(500), .launches = 340,
		.level = TL_GPU_GRAPH, .to_level = TL_GPU_LAUNCHES, .trouble = TL_GPU_BROKEN,
	};
	struct evidence e = { .gpu_healths.v = &h, .gpu_healths.n = 1 };

	assert_at(f, "health", "[]");
	f->v.evidence = &e;
	assert_at(f, "health.0.kind", "\"gpu_broken\"");
	assert_at(f, "health.0.n", "340");
	assert_at(f, "health.0.of", "null");
	assert_at(f, "health.0.pid", "7");
	assert_at(f, "health.0.level", "\"graph\"");
	assert_at(f, "health.0.to_level", "\"launches\"");
	assert_at(f, "health.0.jump_ms", "null");
	assert_at(f, "health.0.missing_ranks", "[]");
	f->v.evidence = NULL;
}

static int try_report(struct fake *f)
{
	struct summary s;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	int err = out ? summarise(&f->v, &s) : -ENOMEM;

	if (!err)
		err = json_report(&f->v, &s, &(struct json_opts){ 0 }, out);
	if (out)
		fclose(out);
	free(text);
	return err;
}

static void test_json__out_of_memory(void **state)
{
	int err;

	one_victim(*state);
	OOM_LOOP(err = try_report(*state));
	assert_int_equal(err, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fake_blame_setup, fake_blame_teardown)
		T(test_json__gaps_and_their_parts), T(test_json__says_what_gaps_lie_between),
		T(test_json__sums),
		T(test_json__how),
		T(test_json__culprits_of_every_kind),
		T(test_json__roots),
		T(test_json__a_selection),
		T(test_json__health),
		T(test_json__out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
