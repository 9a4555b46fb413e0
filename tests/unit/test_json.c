/* SPDX-License-Identifier: Apache-2.0 */
/* The report's JSON: every key is there, unknown is null, numbers are exact, bytes are the same. */
#include "unit.h"
#include "fake_view.h"
#include "sink/json.h"

#include <cjson/cJSON.h>
#include <errno.h>

static char *report_text(struct fake *f, const struct json_opts *o)
{
	struct summary s;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(json_report(&f->v, &s, o, out), 0);
	fclose(out);
	assert_int_equal(strlen(text), len);
	assert_int_equal(text[len - 1], '\n');
	return text;
}

static cJSON *report(struct fake *f)
{
	char *text = report_text(f, &(struct json_opts){ 0 });
	cJSON *doc = cJSON_Parse(text);

	assert_non_null(doc);
	free(text);
	return doc;
}

/* "summary.ttft_ms.p50", "requests.0.points.done" */
static cJSON *at(cJSON *doc, const char *path)
{
	char key[64];

	while (doc && *path) {
		size_t n = strcspn(path, ".");

		snprintf(key, sizeof(key), "%.*s", (int)n, path);
		doc = cJSON_IsArray(doc) ? cJSON_GetArrayItem(doc, atoi(key)) :
					   cJSON_GetObjectItemCaseSensitive(doc, key);
		path += n + (path[n] == '.');
	}
	return doc;
}

static double number(cJSON *doc, const char *path)
{
	cJSON *item = at(doc, path);

	if (!cJSON_IsNumber(item))
		print_error("not a number: %s\n", path);
	assert_true(cJSON_IsNumber(item));
	return item->valuedouble;
}

#define assert_number(doc, path, want) assert_float_equal(number(doc, path), want, 1e-9)
#define assert_null_at(doc, path) assert_true(cJSON_IsNull(at(doc, path)))
#define assert_text(doc, path, want) assert_string_equal(cJSON_GetStringValue(at(doc, path)), want)

static int setup(void **state)
{
	*state = fake__new();
	return 0;
}

static int teardown(void **state)
{
	fake__free(*state);
	return 0;
}

static struct rec_request *streamed(struct fake *f, double t)
{
	struct rec_request *r = fake_request(f, t);
	uint32_t q = fake_seq(f, r, 2);

	fake_point(r, P_CONN_OPEN, t - 0.5);
	fake_point(r, P_REQ_LAST_BYTE, t + 0.25);
	fake_point(r, P_SUBMIT, t + 1);
	fake_step(f, t + 3, t + 13);
	fake_member(f, q, 'P', 40);
	fake_step(f, t + 14, t + 20.000001);
	fake_member(f, q, 'd', 1);
	fake_chunk(r, t + 13.5, TL_CHUNK_TEXT);
	fake_chunk(r, t + 21, TL_CHUNK_TEXT);
	fake_done(f, r, t + 22);
	r->prompt = fake_count(50);
	r->cached = fake_count(30);
	r->output = fake_count(2);
	r->finish = TL_FINISH_LENGTH;
	return r;
}

/* The keys that others rely on: renaming or dropping one breaks them. */
static const char *const schema[] = {
	"schema", "t0_ns", "tool.version", "host.kernel", "coverage.events", "coverage.lost",
	"coverage.requests.complete", "coverage.requests.truncated", "coverage.requests.aborted",
	"coverage.requests.error", "coverage.steps.seen", "coverage.steps.with_members",
	"coverage.steps.matched_tokens_pct", "coverage.lost_spans", "coverage.other_requests",
	"coverage.joins.task", "self.agent_cpu_ms", "self.bpf_threads_ms", "self.bpf_ns_per_token", "self.attach_ms",
	"self.detach_ms", "engines.0.pid", "engines.0.kind", "engines.0.version", "engines.0.roles",
	"engines.0.tiers", "engines.0.step_source", "engines.0.ports", "summary.ttft_ms.p50",
	"summary.ttft_ms.p90", "summary.ttft_ms.p99", "summary.ttft_ms.max", "summary.ttft_ms.n",
	"summary.tpot_ms.n", "summary.itl_token_ms.n", "summary.itl_chunk_ms.n", "summary.e2e_ms.n",
	"summary.queue_ms.n", "summary.prefill_ms.n", "summary.output_tokens_per_s.wall",
	"summary.output_tokens_per_s.busy", "summary.wall_ms", "summary.busy_ms",
	"summary.batch.p50", "summary.batch.mean", "summary.batch.max",
	"summary.batch.over_time", "summary.by_input_len",
	"summary.by_output_len", "summary.definitions.ttft", "summary.notes", "requests.0.id",
	"requests.0.t0_ms", "requests.0.engine_pid", "requests.0.conn", "requests.0.path",
	"requests.0.status", "requests.0.stream", "requests.0.model", "requests.0.state",
	"requests.0.prompt_tokens", "requests.0.cached_tokens", "requests.0.output_tokens",
	"requests.0.max_tokens", "requests.0.finish", "requests.0.points.conn_open",
	"requests.0.points.req_first_byte", "requests.0.points.req_last_byte",
	"requests.0.points.submit", "requests.0.points.queued", "requests.0.points.scheduled",
	"requests.0.points.prefill_start", "requests.0.points.first_token_engine",
	"requests.0.points.headers", "requests.0.points.first_chunk",
	"requests.0.points.first_token_wire", "requests.0.points.last_token_engine",
	"requests.0.points.last_token_wire", "requests.0.points.done", "requests.0.points.close",
	"requests.0.ttft_ms", "requests.0.tpot_ms", "requests.0.e2e_ms", "requests.0.queue_ms",
	"requests.0.prefill_ms", "requests.0.decode_ms", "requests.0.provenance.ttft_ms",
	"requests.0.http_status", "requests.0.x_request_id", "requests.0.traceparent",
	"requests.0.response_id", "requests.0.join.method", "requests.0.join.confidence_pct",
	"requests.0.join.rivals", "requests.0.seqs.0.id", "requests.0.seqs.0.slot",
	"requests.0.seqs.0.steps", "requests.0.seqs.0.kept", "requests.0.seqs.0.n_prefill",
	"requests.0.seqs.0.n_decode", "steps.0.i", "steps.0.engine_pid", "steps.0.t0_ms",
	"steps.0.t1_ms", "steps.0.members", "steps.0.kv_pct", "steps.0.running", "steps.0.waiting",
	"engines.0.kv_usage_pct.p50", "engines.0.kv_usage_pct.max", "engines.0.running.p50",
	"engines.0.running.max", "engines.0.waiting.p50", "engines.0.waiting.max",
	"engines.0.prefix_hit_pct", "engines.0.preemptions", "engines.0.spec.drafted",
	"engines.0.spec.accepted", "engines.0.server_pid", "engines.0.max_step_tokens",
	"engines.0.max_seqs", "requests.0.frontend_ms", "requests.0.before_submit_ms",
	"requests.0.first_delivery_ms", "requests.0.delivery_ms", "requests.0.delivery_outputs",
	"requests.0.preempted", "requests.0.seqs.0.n_recomputed", "summary.frontend_ms.p50",
	"summary.delivery_ms.n", "summary.by_prefix.warm.ttft_ms.p50",
	"summary.by_prefix.cold.prefill_ms.p50", "summary.by_prefix.unknown.n_requests",
	"summary.batch.over_time.0.mean_kv_pct", "summary.batch.over_time.0.mean_running",
	"summary.batch.over_time.0.mean_waiting", "summary.definitions.frontend",
	"summary.definitions.delivery", "health", "blame.answer", "blame.by_mechanism.0.mechanism",
	"blame.by_mechanism.0.ms", "blame.by_mechanism.0.gaps_ms", "blame.by_mechanism.0.ttft_ms",
	"blame.by_mechanism.0.gaps", "blame.by_mechanism.0.victims",
	"blame.by_mechanism.0.share_pct", "blame.by_mechanism.0.above_pct", "blame.pairs",
	"blame.pairs_not_kept", "blame.unexplained_ms", "blame.ruled_out", "blame.above_baseline_ms",
	"blame.gaps_ms", "blame.ttfts_ms", "blame.gaps", "blame.gaps_above_baseline",
	"blame.gaps_without_baseline", "blame.ttfts", "blame.baseline_steps",
	"blame.provenance.observed_ms", "blame.provenance.reported_ms",
	"blame.provenance.inferred_ms", "what_if.0.without", "what_if.0.tpot_p50_ms",
	"what_if.0.tpot_p99_ms", "what_if.0.ttft_p99_ms", "requests.0.gaps",
	"requests.0.gaps_side", "requests.0.ttft_parts",
};

static void test_json__has_every_key(void **state)
{
	cJSON *doc;

	streamed(*state, 100);
	doc = report(*state);
	for (size_t i = 0; i < ARRAY_SIZE(schema); i++) {
		if (!at(doc, schema[i]))
			print_error("missing: %s\n", schema[i]);
		assert_non_null(at(doc, schema[i]));
	}
	cJSON_Delete(doc);
}

static void test_json__request(void **state)
{
	cJSON *doc;

	streamed(*state, 100);
	doc = report(*state);
	assert_text(doc, "requests.0.id", "r1");
	assert_number(doc, "requests.0.t0_ms", 100);
	assert_number(doc, "requests.0.engine_pid", 4242);
	assert_number(doc, "requests.0.status", 200);
	assert_text(doc, "requests.0.state", "complete");
	assert_text(doc, "requests.0.finish", "length");
	assert_number(doc, "requests.0.points.conn_open", -0.5);
	assert_number(doc, "requests.0.points.req_first_byte", 0);
	assert_number(doc, "requests.0.points.first_token_wire", 13.5);
	assert_number(doc, "requests.0.points.last_token_engine", 20.000001);
	assert_null_at(doc, "requests.0.points.close");
	assert_number(doc, "requests.0.ttft_ms", 13.5);
	assert_number(doc, "requests.0.tpot_ms", 7.5);
	assert_number(doc, "requests.0.e2e_ms", 22);
	assert_number(doc, "requests.0.queue_ms", 2);
	assert_number(doc, "requests.0.prefill_ms", 10);
	assert_text(doc, "requests.0.provenance.ttft_ms", "observed");
	assert_text(doc, "requests.0.provenance.tpot_ms", "reported");
	assert_text(doc, "requests.0.provenance.prompt_tokens", "reported");
	assert_null_at(doc, "requests.0.provenance.close");
	assert_text(doc, "requests.0.join.method", "task");
	assert_number(doc, "requests.0.join.confidence_pct", 100);
	assert_null_at(doc, "requests.0.max_tokens");
	assert_null_at(doc, "requests.0.x_request_id");
	assert_number(doc, "requests.0.seqs.0.slot", 2);
	assert_number(doc, "requests.0.seqs.0.steps.1.0", 1);
	assert_text(doc, "requests.0.seqs.0.steps.0.1", "p");
	assert_text(doc, "requests.0.seqs.0.steps.1.1", "d");
	assert_number(doc, "requests.0.seqs.0.steps.0.2", 40);
	assert_number(doc, "steps.1.t0_ms", 114);
	assert_number(doc, "steps.1.t1_ms", 120.000001);
	assert_number(doc, "steps.0.members.0.0", 1);
	assert_text(doc, "steps.0.members.0.1", "p");
	assert_number(doc, "steps.0.members.0.2", 40);
	assert_number(doc, "requests.0.frontend_ms", 0.75);
	assert_text(doc, "requests.0.provenance.frontend_ms", "observed");
	assert_number(doc, "requests.0.first_delivery_ms", 0.5);
	assert_number(doc, "requests.0.delivery_ms", 0.5);	/* of 0.5 and 0.999999 */
	assert_number(doc, "requests.0.delivery_outputs", 2);
	assert_text(doc, "requests.0.provenance.delivery_ms", "observed");
	assert_number(doc, "summary.by_prefix.warm.n_requests", 1);
	assert_number(doc, "summary.by_prefix.warm.ttft_ms.p50", 13.5);
	assert_null_at(doc, "summary.by_prefix.cold.ttft_ms.p50");
	cJSON_Delete(doc);
}

static void test_json__scheduler(void **state)
{
	struct fake *f = *state;
	cJSON *doc;

	streamed(f, 100);
	f->engines[0].e.server = 4200;
	f->engines[0].e.max_step_tokens = 512;
	fake_stats(f, 97.1429, 7, 3);
	fake_stats_of(f, 1)->known |= TL_STATS_PREFIX | TL_STATS_SPEC;
	fake_stats_of(f, 1)->prefix_queries = 300;
	fake_stats_of(f, 1)->prefix_hits = 100;
	fake_stats_of(f, 1)->drafted = 9;
	fake_stats_of(f, 1)->accepted = 6;
	fake_preempt(f, 0, 115, 400.25, 57);
	fake_preempt(f, 0, 500, 0, 58);
	f->seqs[0].preemptions[1].prov = PROV_INFERRED;
	f->members[0].guess = f->seqs[0].visits[0].guess = 1;
	doc = report(f);
	assert_number(doc, "engines.0.kv_usage_pct.p50", 97.1429);
	assert_number(doc, "engines.0.kv_usage_pct.max", 97.1429);
	assert_number(doc, "engines.0.running.p50", 7);
	assert_number(doc, "engines.0.waiting.max", 3);
	assert_number(doc, "engines.0.prefix_hit_pct", 33.333);
	assert_number(doc, "engines.0.preemptions", 2);
	assert_number(doc, "engines.0.spec.drafted", 9);
	assert_number(doc, "engines.0.spec.accepted", 6);
	assert_number(doc, "engines.0.server_pid", 4200);
	assert_number(doc, "engines.0.max_step_tokens", 512);
	assert_number(doc, "requests.0.preempted.0.at_ms", 15);
	assert_number(doc, "requests.0.preempted.0.lost_tokens", 57);
	assert_number(doc, "requests.0.preempted.0.parked_ms", 285.25);
	assert_text(doc, "requests.0.preempted.0.provenance", "reported");
	assert_null_at(doc, "requests.0.preempted.1.parked_ms");
	assert_text(doc, "requests.0.preempted.1.provenance", "inferred");
	assert_null_at(doc, "steps.0.kv_pct");
	assert_null_at(doc, "steps.0.running");
	assert_number(doc, "steps.1.kv_pct", 97.1429);
	assert_number(doc, "steps.1.running", 7);
	assert_number(doc, "steps.1.waiting", 3);
	assert_text(doc, "steps.0.members.0.1", "p?");
	assert_text(doc, "requests.0.seqs.0.steps.0.1", "p?");
	assert_text(doc, "steps.1.members.0.1", "d");
	cJSON_Delete(doc);
}

static void test_json__not_preempted_is_said_only_by_an_engine_that_tells(void **state)
{
	struct fake *f = *state;
	cJSON *doc;

	streamed(f, 100);
	doc = report(f);
	assert_null_at(doc, "requests.0.preempted");
	assert_null_at(doc, "engines.0.kv_usage_pct.p50");
	assert_null_at(doc, "engines.0.waiting.max");
	assert_null_at(doc, "engines.0.prefix_hit_pct");
	assert_null_at(doc, "engines.0.preemptions");
	assert_null_at(doc, "engines.0.spec.accepted");
	assert_null_at(doc, "summary.batch.over_time.0.mean_kv_pct");
	cJSON_Delete(doc);
	fake_stats(f, 10, 1, 0);
	doc = report(f);
	assert_int_equal(cJSON_GetArraySize(at(doc, "requests.0.preempted")), 0);
	assert_true(cJSON_IsArray(at(doc, "requests.0.preempted")));
	assert_number(doc, "engines.0.preemptions", 0);
	cJSON_Delete(doc);
}

static void test_json__survives_no_memory(void **state)
{
	struct fake *f = *state;
	FILE *out = fopen("/dev/null", "w");
	struct summary s;
	int err = 0;

	assert_non_null(out);
	streamed(f, 0);
	fake_stats(f, 10, 1, 0);
	assert_int_equal(summarise(&f->v, &s), 0);
	fputc('\n', out);	/* stdio takes its buffer here */
	OOM_LOOP(err = json_report(&f->v, &s, &(struct json_opts){ 0 }, out);
		 if (err) assert_int_equal(err, -ENOMEM))
	assert_int_equal(err, 0);
	fclose(out);
}

static void test_json__unknown_is_null_never_zero(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 5);
	cJSON *doc;

	r->joined_late = true;
	r->state = REQ_TRUNCATED;
	r->at_ns[P_REQ_FIRST_BYTE] = 0;
	r->prov[P_REQ_FIRST_BYTE] = PROV_NONE;
	r->status = 0;
	r->stream = -1;
	r->engine = 1; /* of which nothing is known, not even its pid */
	f->v.n_engines = 2;
	r->path[0] = r->model[0] = r->id[0] = '\0';
	fake_chunk(r, 10, TL_CHUNK_TEXT);
	r->at_ns[P_FIRST_CHUNK] = 0;
	fake_chunk(r, 30, TL_CHUNK_TEXT);
	r->at_ns[P_FIRST_CHUNK] = 0;
	doc = report(f);
	assert_number(doc, "requests.0.t0_ms", 10);
	assert_null_at(doc, "requests.0.points.req_first_byte");
	assert_number(doc, "requests.0.points.last_token_wire", 20);
	assert_null_at(doc, "requests.0.ttft_ms");
	assert_null_at(doc, "requests.0.e2e_ms");
	assert_null_at(doc, "requests.0.prompt_tokens");
	assert_null_at(doc, "requests.0.stream");
	assert_null_at(doc, "requests.0.status");
	assert_null_at(doc, "requests.0.engine_pid");
	assert_null_at(doc, "requests.0.model");
	assert_null_at(doc, "requests.0.join.confidence_pct");
	assert_text(doc, "requests.0.join.method", "none");
	assert_null_at(doc, "summary.ttft_ms.p50");
	assert_number(doc, "summary.ttft_ms.n", 0);
	assert_number(doc, "summary.itl_chunk_ms.max", 20);
	assert_null_at(doc, "summary.batch.p50");
	assert_null_at(doc, "coverage.steps.matched_tokens_pct");
	assert_null_at(doc, "self.agent_cpu_ms");
	assert_null_at(doc, "self.bpf_ns_per_token");
	cJSON_Delete(doc);
}

static void test_json__empty_recording(void **state)
{
	struct fake *f = *state;
	cJSON *doc;

	f->v.host = NULL;
	f->v.n_engines = 0;
	f->v.t0_ns = f->v.t1_ns = 0;
	f->v.stop = 0;
	doc = report(f);
	assert_null_at(doc, "tool.version");
	assert_null_at(doc, "host.kernel");
	assert_null_at(doc, "host.t0_utc");
	assert_null_at(doc, "summary.output_tokens_per_s.wall");
	assert_int_equal(cJSON_GetArraySize(at(doc, "requests")), 0);
	assert_int_equal(cJSON_GetArraySize(at(doc, "engines")), 0);
	cJSON_Delete(doc);
}

static void test_json__numbers_keep_every_ns(void **state)
{
	struct fake *f = *state;
	struct rec_request *r = fake_request(f, 0);
	char *text;

	r->at_ns[P_DONE] = r->at_ns[P_REQ_FIRST_BYTE] + 123456789012345;
	r->prov[P_DONE] = PROV_OBSERVED;
	f->v.t1_ns = r->at_ns[P_DONE];
	text = report_text(f, &(struct json_opts){ 0 });
	assert_non_null(strstr(text, "\"e2e_ms\":123456789.012345,"));
	free(text);
}

static void test_json__wall_time_of_start(void **state)
{
	struct fake *f = *state;
	cJSON *doc;

	f->host.hdr.ts_ns = fake_ns(1);	/* the clock pair was read 1 ms behind the first event */
	fake_end(f, 100);
	doc = report(f);
	assert_text(doc, "host.t0_utc", "2023-11-14T22:13:19.999000Z");
	cJSON_Delete(doc);
}

static void test_json__self_is_the_only_part_that_may_differ(void **state)
{
	struct fake *f = *state;
	const struct json_opts no_self = { .no_self = true };
	char *a, *b;

	streamed(f, 100);
	f->v.self = &f->self;
	f->self.agent_cpu_ns = 5000000;
	f->self.bpf_ns = 3000;
	a = report_text(f, &no_self);
	f->self.agent_cpu_ns = 6000000;
	b = report_text(f, &no_self);
	assert_string_equal(a, b);
	assert_null(strstr(a, "\"self\""));
	free(a);
	free(b);
	a = report_text(f, &(struct json_opts){ 0 });
	assert_non_null(strstr(a, "\"agent_cpu_ms\":6.000000"));
	assert_non_null(strstr(a, "\"bpf_ns_per_token\":1500.000"));
	free(a);
}

static void test_json__without_steps(void **state)
{
	char *text;

	streamed(*state, 0);
	text = report_text(*state, &(struct json_opts){ .no_steps = true });
	assert_null(strstr(text, "\"members\""));
	assert_non_null(strstr(text, "\"n_decode\":1"));
	free(text);
}

static bool has_note(cJSON *doc, const char *part)
{
	cJSON *note;

	cJSON_ArrayForEach(note, at(doc, "summary.notes"))
		if (strstr(cJSON_GetStringValue(note), part))
			return true;
	return false;
}

static void test_json__notes_say_what_was_not_seen(void **state)
{
	struct fake *f = *state;
	struct rec_request *r;
	cJSON *doc;

	streamed(f, 0);
	doc = report(f);
	assert_int_equal(cJSON_GetArraySize(at(doc, "summary.notes")), 0);
	cJSON_Delete(doc);

	r = fake_request(f, 50);
	r->joined_late = true;
	r->state = REQ_TRUNCATED;
	r = fake_request(f, 50);
	r->stream = 0;
	r->body = TL_BODY_JSON;
	r = fake_request(f, 60);
	r->state = REQ_ABORTED;
	r->how_ended = TL_END_CLIENT;
	r = fake_request(f, 70);
	r->stream = 1;
	r->body = TL_BODY_SSE;
	r->encoded = true;
	r = fake_request(f, 80);
	r->stream = 1;
	r->body = TL_BODY_OTHER;
	r = fake_request(f, 90);
	fake_chunk(r, 95, TL_CHUNK_TOOL);
	r->output = fake_count(30);
	f->lost[0] = (struct rec_lost){ fake_ns(2000), fake_ns(2400), 1204, TL_LOST_RING, 0 };
	f->v.n_lost = 1;
	f->v.n_lost_events = 1204;
	f->v.stop = 0;
	doc = report(f);
	assert_true(has_note(doc, "1204 events lost between 2000.0 and 2400.0 ms"));
	assert_true(has_note(doc, "1 request was under way when the capture began"));
	assert_true(has_note(doc, "1 request was not streamed"));
	assert_true(has_note(doc, "1 request was aborted before the first token"));
	assert_true(has_note(doc, "1 request got compressed answers (Content-Encoding)"));
	assert_true(has_note(doc, "1 request asked for a stream and got an answer that is none by its Content-Type"));
	assert_true(has_note(doc, "1 request got all tokens in one write: no TPOT"));
	assert_true(has_note(doc, "no end mark"));
	assert_number(doc, "coverage.lost_spans.0.n", 1204);
	assert_text(doc, "coverage.lost_spans.0.where", "ring");
	assert_text(doc, "requests.3.reason", "the client went away before the first token");
	cJSON_Delete(doc);
}

static void test_json__full_disk_is_an_error(void **state)
{
	struct fake *f = *state;
	struct summary s;
	FILE *full = fopen("/dev/full", "w");

	assert_non_null(full);
	streamed(f, 0);
	assert_int_equal(summarise(&f->v, &s), 0);
	assert_int_equal(json_report(&f->v, &s, &(struct json_opts){ 0 }, full), -ENOSPC);
	fclose(full);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_json__has_every_key),
		TEST(test_json__request),
		TEST(test_json__scheduler),
		TEST(test_json__not_preempted_is_said_only_by_an_engine_that_tells),
		TEST(test_json__survives_no_memory),
		TEST(test_json__unknown_is_null_never_zero),
		TEST(test_json__empty_recording),
		TEST(test_json__numbers_keep_every_ns),
		TEST(test_json__wall_time_of_start),
		TEST(test_json__self_is_the_only_part_that_may_differ),
		TEST(test_json__without_steps),
		TEST(test_json__notes_say_what_was_not_seen),
		TEST(test_json__full_disk_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
