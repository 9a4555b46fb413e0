/* SPDX-License-Identifier: Apache-2.0 */
/* What reports say of GPUs, as text and JSON. */
#include "gpu_written.h"

#include "sink/why.h"

#include <cjson/cJSON.h>

static void feed_health(struct gpu_feed *f, double t0, double t1, uint16_t from, uint16_t to, uint64_t launches,
			uint64_t records, uint16_t trouble)
{
	struct tl_gpu_health h = { .hdr = HDR(h, TL_GPU_HEALTH, TL_GPU_SIMULATED, f->tgid, 0, at(t1)), .since_ns = at(t0),
				   .launches = launches, .records = records, .level = from, .to_level = to,
				   .trouble = trouble, .overhead_ppm = 21000 };

	FEED(f, h);
}

/* One prompt alone, then two tokens; a rank that is none of the engines. */
static struct gpu_feed server(bool records)
{
	struct gpu_feed f = gpu_feed_new();
	struct tl_seq_link link = { .hdr = HDR(link, TL_SEQ_LINK, 0, PID, 0, at(9)), .req = 1, .slot = 0, .task = 1,
				    .method = TL_LINK_TASK };

	assert_non_null(f.m);
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	feed_health(&f, -20, -10, TL_GPU_OFF, TL_GPU_KERNELS, 0, 0, TL_GPU_FINE);
	feed_begin(&f, 1, 8);
	FEED(&f, link);
	if (records) {
		feed_clock(&f, -1);
		feed_eager(&f, -0.9, 10);
	}
	for (int k = 0; k < 3; k++) {
		if (records)
			feed_eager(&f, 10 + 10 * k, 10);
		feed_step(&f, 9.9 + 10 * k, 12 + 10 * k, k > 0, k ? 0 : 64);
		feed_chunk(&f, 1, 12.5 + 10 * k);
	}
	feed_end(&f, 1, 33, 64, 3);
	feed_health(&f, -10, 50, TL_GPU_KERNELS, TL_GPU_LAUNCHES, 40, records ? 44 : 0,
		    records ? TL_GPU_BUDGET : TL_GPU_FINE);
	gpu_feed_done(&f);
	return f;
}

static const cJSON *at_path(const cJSON *doc, const char *path)
{
	char buf[200], *save = NULL;

	snprintf(buf, sizeof(buf), "%s", path);
	for (char *part = strtok_r(buf, ".", &save); part; part = strtok_r(NULL, ".", &save)) {
		doc = cJSON_IsArray(doc) ? cJSON_GetArrayItem(doc, atoi(part)) : cJSON_GetObjectItem(doc, part);
		if (!doc)
			fail_msg("no %s in %s", part, path);
	}
	return doc;
}

#define assert_number(path, want) assert_float_equal(num(doc, path), want, 1e-6)
#define assert_text(path, want) assert_string_equal(cJSON_GetStringValue(at_path(doc, path)), want)
#define assert_null_at(path) assert_true(cJSON_IsNull(at_path(doc, path)))

static double num(const cJSON *doc, const char *path)
{
	return cJSON_GetNumberValue(at_path(doc, path));
}

static void test_sink_gpu__json(void **state)
{
	struct gpu_feed f = server(true);
	char *text = gpu_written(&f, true, 100);
	cJSON *doc = cJSON_Parse(text);

	(void)state;
	assert_non_null(doc);
	assert_text("engines.0.gpu.level", "kernels");
	assert_true(cJSON_IsTrue(at_path(doc, "engines.0.gpu.simulated")));
	assert_number("engines.0.gpu.records", 44);
	assert_number("engines.0.gpu.dropped", 0);
	assert_number("engines.0.gpu.broken_windows", 0);
	assert_text("engines.0.gpu.governor.0.from", "off");
	assert_text("engines.0.gpu.governor.0.to", "kernels");
	assert_text("engines.0.gpu.governor.1.why", "cost 2.10 % of the target's speed");
	assert_number("steps.0.gpu_busy_ms", 1.01);
	assert_number("steps.0.gpu_idle_ms", 0.1);	/* its launch to its first kernel */
	assert_number("steps.1.gpu_idle_ms", 10 - 1.01);	/* it decodes on */
	assert_number("steps.0.launches", 10);
	assert_text("steps.0.graph", "none");
	assert_float_equal((num(doc, "steps.0.t_gpu0_ms") - num(doc, "steps.0.t_launch_ms")), 0.1, 1e-6);
	assert_float_equal((num(doc, "steps.0.t_gpu1_ms") - num(doc, "steps.0.t_gpu0_ms")), 1.01, 1e-6);
	assert_number("requests.0.gpu_prefill_ms", 1.01);
	assert_number("requests.0.gpu_decode_ms", 2.02);
	assert_text("requests.0.provenance.gpu_prefill_ms", "observed");
	assert_text("kernels.0.name", "kernel");
	assert_text("kernels.0.phase", "prefill");
	assert_number("kernels.0.n", 10);
	assert_number("kernels.0.total_ms", 1);
	assert_float_equal(num(doc, "kernels.0.p50_us"), 100, 0.5);
	assert_number("devices.0.id", 0);
	assert_number("devices.0.pid", PID);
	assert_float_equal((num(doc, "devices.0.busy_pct") + num(doc, "devices.0.idle_pct")), 100, 0.002);
	assert_null_at("devices.0.collective_wait_pct");
	cJSON_Delete(doc);
	free(text);
	gpu_feed_free(&f);
}

/* Launches and no record: all is null, and nothing is idle. */
static void test_sink_gpu__broken(void **state)
{
	struct gpu_feed f = server(false);
	char *text = gpu_written(&f, true, 100);
	cJSON *doc = cJSON_Parse(text);

	(void)state;
	assert_number("engines.0.gpu.broken_windows", 1);
	assert_null_at("steps.0.gpu_busy_ms");
	assert_null_at("steps.0.gpu_idle_ms");
	assert_null_at("steps.0.graph");
	assert_null_at("requests.0.gpu_decode_ms");
	assert_null_at("requests.0.provenance.gpu_decode_ms");
	assert_int_equal(cJSON_GetArraySize(at_path(doc, "devices")), 0);
	cJSON_Delete(doc);
	free(text);
	text = gpu_written(&f, false, 100);
	assert_non_null(strstr(text, "40 launches and no record: what the GPU did is NOT"));
	assert_null(strstr(text, "idle 100"));
	free(text);
	gpu_feed_free(&f);
}

static void test_sink_gpu__text(void **state)
{
	struct gpu_feed f = server(true);
	struct text_opts to = { .width = 100 };
	char *text = gpu_written(&f, false, 100);
	size_t n;
	FILE *out;

	(void)state;
	assert_non_null(strstr(text, "SIMULATED, no real device"));
	assert_non_null(strstr(text, "device 0 of pid 500 (rank 0): busy"));
	assert_non_null(strstr(text, "while pid 500 had work, its device was idle for"));
	assert_non_null(strstr(text, "prefill    kernel"));
	free(text);
	out = open_memstream(&text, &n);
	assert_int_equal(why_request(&f.v, 0, &to, out), 0);
	fclose(out);
	assert_non_null(strstr(text, "SIMULATED GPU time: prefill 1.01 ms (alone in its steps), decode 2.02 ms"));
	free(text);
	gpu_feed_free(&f);
}

/* A recording without GPUs: keys are there, and no word of them. */
/* Records of graphs, and kernels beside them that have none: what is not known is not idle. */
static struct gpu_feed graph_server(void)
{
	struct gpu_feed f = gpu_feed_new();

	assert_non_null(f.m);
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	feed_health(&f, -20, -10, TL_GPU_OFF, TL_GPU_GRAPH, 0, 0, TL_GPU_FINE);
	for (int mark = 0; mark < 3; mark++) {
		double t = mark == 2 ? 110 : 9 + 0.5 * mark;
		struct tl_clock c = { .hdr = HDR(c, TL_CLOCK, mark == 2 ? TL_CLOCK_CLOSES : mark ? 0 :
						 TL_CLOCK_OPENS | TL_CLOCK_GRAPHS, PID, 0, at(t)), .realtime_ns = at(t) };

		FEED(&f, c);
	}
	for (int k = 0; k < 10; k++) {
		double t = 10 + 10 * k;
		struct tl_gpu_launch l = launch_of(&f, t, TL_CALL_GRAPH, ++f.corr);
		struct tl_gpu_span s = span_of(&f, t + 0.1, t + 5.1, TL_SPAN_GRAPH, f.corr);
		struct tl_gpu_launch outside = launch_of(&f, t + 0.05, TL_CALL_KERNEL, 0);

		FEED(&f, l);
		FEED(&f, s);
		FEED(&f, outside);
		feed_sync(&f, t + 0.2, t + 6);
		feed_step(&f, t - 0.1, t + 6.1, 2, 0);
	}
	feed_health(&f, -10, 150, TL_GPU_GRAPH, TL_GPU_GRAPH, 20, 20, TL_GPU_FINE);
	gpu_feed_done(&f);
	return f;
}

static void test_sink_gpu__at_least(void **state)
{
	struct gpu_feed f = graph_server();
	char *text = gpu_written(&f, false, 100), *json = gpu_written(&f, true, 100);
	cJSON *doc = cJSON_Parse(json);

	(void)state;
	assert_non_null(doc);
	assert_null_at("devices.0.busy_pct");
	assert_null_at("devices.0.idle_pct");
	assert_null_at("devices.0.copy_pct");
	assert_float_equal(num(doc, "devices.0.busy_min_pct"), 100 * 50 / 100.5, 0.01);
	assert_float_equal(num(doc, "devices.0.seen_ms"), 100.5, 1e-6);
	assert_float_equal(num(doc, "devices.0.windows.0.1") - num(doc, "devices.0.windows.0.0"), 100.5, 1e-6);
	assert_number("steps.5.gpu_busy_ms", 5);
	assert_null_at("steps.5.gpu_idle_ms");
	assert_non_null(strstr(text, "busy at least 49.8 %, idle NOT KNOWN"));
	assert_non_null(strstr(text, "idle for at most"));
	assert_non_null(strstr(text, "kernels outside of graphs"));
	cJSON_Delete(doc);
	free(json);
	free(text);
	gpu_feed_free(&f);
}

static void test_sink_gpu__none(void **state)
{
	struct gpu_feed f = gpu_feed_new();
	char *text;
	cJSON *doc;

	(void)state;
	feed_engine(&f, PID, PID);
	feed_begin(&f, 1, 8);
	feed_step(&f, 9.9, 12, 1, 0);
	gpu_feed_done(&f);
	text = gpu_written(&f, true, 100);
	doc = cJSON_Parse(text);
	assert_null_at("engines.0.gpu");
	assert_null_at("steps.0.launches");
	assert_null_at("requests.0.gpu_prefill_ms");
	assert_int_equal(cJSON_GetArraySize(at_path(doc, "kernels")), 0);
	cJSON_Delete(doc);
	free(text);
	text = gpu_written(&f, false, 100);
	assert_null(strstr(text, "GPU"));
	free(text);
	gpu_feed_free(&f);
}

/* A graph of which it is not told how many it is for: it ran three and two. Another ran one. */
static void test_sink_gpu__padded(void **state)
{
	struct gpu_feed f = gpu_feed_new();
	char *text;
	cJSON *doc;

	(void)state;
	feed_engine(&f, PID, PID);
	feed_process(&f, PID, 0);
	feed_health(&f, -20, -10, TL_GPU_OFF, TL_GPU_KERNELS, 0, 0, TL_GPU_FINE);
	feed_clock(&f, -1);
	for (int k = 0; k < 5; k++) {
		feed_replay(&f, 10 + 5 * k, 10.2 + 5 * k, k != 3);
		feed_step(&f, 9.9 + 5 * k, 13 + 5 * k, k % 4 == 0 ? 3 : k == 3 ? 1 : 2, 0);
	}
	feed_clock(&f, 40);
	gpu_feed_done(&f);
	text = gpu_written(&f, false, 100);
	assert_non_null(strstr(text, "steps replayed, at least 2 of them padded to a larger batch"));
	free(text);
	text = gpu_written(&f, true, 100);
	doc = cJSON_Parse(text);
	assert_text("steps.4.graph", "hit");
	assert_text("steps.1.graph", "padded");
	assert_text("steps.3.graph", "hit");
	/* whether it is for three or more nobody knows */
	assert_true(cJSON_IsTrue(at_path(doc, "steps.4.graph_maybe_padded")));
	assert_true(cJSON_IsFalse(at_path(doc, "steps.1.graph_maybe_padded")));
	assert_true(cJSON_IsFalse(at_path(doc, "steps.3.graph_maybe_padded")));
	cJSON_Delete(doc);
	free(text);
	gpu_feed_free(&f);
}

/* A request came before launches were looked for: that no step ran until then is not known. */
static void test_sink_gpu__before_launches_were_seen(void **state)
{
	for (int early = 0; early < 2; early++) {
		struct gpu_feed f = gpu_feed_new();
		struct text_opts to = { .width = 100 };
		char *text = NULL;
		size_t n;
		FILE *out;

		(void)state;
		feed_engine(&f, PID, PID);
		feed_process(&f, PID, 0);
		feed_begin(&f, 1, 5);
		feed_health(&f, 4, early ? 60 : 4, TL_GPU_OFF, TL_GPU_LAUNCHES, 0, 0, TL_GPU_FINE);
		feed_clock(&f, 70);
		for (int k = 0; k < 6; k++) {
			feed_eager(&f, 100 + 10 * k, 10);
			feed_chunk(&f, 1, 100 + 10 * k + 1.5);
		}
		feed_end(&f, 1, 155, 0, 0);
		gpu_feed_done(&f);
		assert_int_equal(f.v.n_steps, 6);
		out = open_memstream(&text, &n);
		assert_int_equal(why_request(&f.v, 0, &to, out), 0);
		fclose(out);
		assert_int_equal(!!strstr(text, "launches were not looked"), early);
		free(text);
		gpu_feed_free(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sink_gpu__json), cmocka_unit_test(test_sink_gpu__broken),
		cmocka_unit_test(test_sink_gpu__text), cmocka_unit_test(test_sink_gpu__padded),
		cmocka_unit_test(test_sink_gpu__before_launches_were_seen),
		cmocka_unit_test(test_sink_gpu__at_least), cmocka_unit_test(test_sink_gpu__none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
