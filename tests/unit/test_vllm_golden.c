/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of real vLLM releases must say what vLLM's own decoder says: see tests/golden/vllm/README.md. */
#include "parse/vllm_msg.h"
#include "unit.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <math.h>
#include <string.h>

#define GOLDEN "tests/golden/vllm"

/* What is compared now: shown when it differs. */
struct where {
	const char *folder, *file;
	int message;
};

static void need(const struct where *w, bool ok, const char *what)
{
	if (!ok)
		fail_msg("%s/%s, message %d: %s differs", w->folder, w->file, w->message, what);
}

static const cJSON *get(const cJSON *o, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(o, key);
}

/* A number that is null, or not there, where the release does not say it: then `none`. */
static double number_or(const cJSON *o, const char *key, double none)
{
	const cJSON *v = get(o, key);

	return cJSON_IsNumber(v) ? v->valuedouble : none;
}

static bool same_time(const cJSON *seconds, uint64_t ns)
{
	return cJSON_IsNumber(seconds) && fabs(seconds->valuedouble - ns / 1e9) < 1e-6;
}

static bool same_id(struct vllm_id id, const cJSON *text)
{
	if (!cJSON_IsString(text))
		return !id.len;
	return id.len == strlen(text->valuestring) && !memcmp(id.p, text->valuestring, id.len);
}

static void check_add(const struct where *w, const uint8_t *p, size_t len, const cJSON *want)
{
	double max_tokens = number_or(want, "max_tokens", -1);
	struct vllm_names names;
	struct vllm_add a;

	need(w, !vllm_msg_add(p, len, &a) && !a.flags, "shape");
	need(w, same_id(a.id, get(want, "request_id")), "id");
	need(w, same_id(a.external, get(want, "external_id")), "external id");
	need(w, a.n_prompt == number_or(want, "prompt_tokens", -1), "prompt");
	need(w, same_time(get(want, "arrival_time"), a.arrival_ns), "arrival");
	need(w, a.client_index == number_or(want, "client_index", -1), "client");
	need(w, a.priority == number_or(want, "priority", 0), "priority");
	need(w, a.max_tokens == (max_tokens == 16 ? -1 : max_tokens), "max_tokens");
	vllm_msg_names(a.id, &names);
	need(w, !a.external.len || same_id(names.external, get(want, "external_id")), "name");
}

static void check_ids(const struct where *w, struct vllm_ids *ids, const cJSON *want)
{
	int n = 0;
	struct vllm_id id;

	for (; vllm_msg_next_id(ids, &id); n++) {
		const cJSON *text;
		bool found = false;

		cJSON_ArrayForEach(text, want)
			found |= same_id(id, text);
		need(w, found, "ids");
	}
	need(w, n == cJSON_GetArraySize(want), "number of ids");
}

static void check_row(const struct where *w, struct vllm_row *r, const cJSON *want)
{
	const cJSON *stop = get(want, "stop_reason"), *event;
	struct vllm_event ev;

	need(w, !r->flags, "row's shape");
	need(w, same_id(r->id, get(want, "request_id")), "row's id");
	need(w, r->n_tokens == number_or(want, "tokens", -1), "tokens");
	need(w, r->finish == number_or(want, "finish_reason", VLLM_NOT_FINISHED), "finish");
	need(w, r->stop == (cJSON_IsString(stop) ? VLLM_STOP_TEXT : cJSON_IsNumber(stop) ? VLLM_STOP_TOKEN :
			    VLLM_STOP_NOT_SAID), "stop");
	need(w, r->n_cached == number_or(want, "cached_tokens", -1), "cached tokens");
	need(w, (r->has_prefill ? r->prefill.prompt : -1) == number_or(want, "prompt_tokens", -1), "prefill");
	cJSON_ArrayForEach(event, get(want, "events")) {
		need(w, vllm_msg_next_event(&r->events, &ev), "number of events");
		need(w, ev.type == cJSON_GetArrayItem(event, 0)->valuedouble, "event");
		need(w, same_time(cJSON_GetArrayItem(event, 1), ev.ts_ns), "event's time");
	}
	need(w, !vllm_msg_next_event(&r->events, &ev), "number of events");
}

static void check_stats(const struct where *w, const struct vllm_stats *s, const cJSON *want)
{
	const cJSON *prefix = get(want, "prefix"), *spec = get(want, "spec");

	need(w, s->known & VLLM_STAT_RUNNING && s->running == number_or(want, "running", -1), "running");
	need(w, s->known & VLLM_STAT_WAITING && s->waiting == number_or(want, "waiting", -1), "waiting");
	need(w, s->known & VLLM_STAT_KV && s->kv_usage == number_or(want, "kv_usage", -1), "kv usage");
	if (cJSON_IsObject(prefix)) {
		need(w, s->known & VLLM_STAT_PREFIX && s->prefix.requests == number_or(prefix, "requests", 0) &&
		     s->prefix.queries == number_or(prefix, "queries", 0) &&
		     s->prefix.hits == number_or(prefix, "hits", 0), "prefix");
		need(w, s->prefix.preempted_requests == number_or(prefix, "preempted_requests", 0) &&
		     s->prefix.preempted_queries == number_or(prefix, "preempted_queries", 0) &&
		     s->prefix.preempted_hits == number_or(prefix, "preempted_hits", 0), "preempted");
	}
	need(w, cJSON_IsObject(spec) == !!(s->known & VLLM_STAT_SPEC), "speculation");
	if (cJSON_IsObject(spec))
		need(w, s->spec.draft_tokens == number_or(spec, "drafted", -1) &&
		     s->spec.accepted_tokens == number_or(spec, "accepted", -1), "speculation");
	need(w, cJSON_IsTrue(get(want, "iteration_details")) == !!(s->known & VLLM_STAT_ITERATION), "details");
}

static void check_outputs(const struct where *w, const uint8_t *p, size_t len, const cJSON *want)
{
	const cJSON *row, *stats = get(want, "stats");
	struct vllm_outputs o;
	struct vllm_row r;

	need(w, !vllm_msg_outputs(p, len, &o) && !o.flags, "shape");
	need(w, o.engine == number_or(want, "engine_index", -1), "engine");
	need(w, same_time(get(want, "timestamp"), o.timestamp_ns), "timestamp");
	need(w, o.n_rows == (uint32_t)cJSON_GetArraySize(get(want, "rows")), "number of rows");
	cJSON_ArrayForEach(row, get(want, "rows")) {
		need(w, vllm_msg_next_row(&o, &r), "number of rows");
		check_row(w, &r, row);
	}
	need(w, !vllm_msg_next_row(&o, &r), "number of rows");
	check_ids(w, &o.finished, get(want, "finished"));
	need(w, (o.utility && !o.wave) == cJSON_IsTrue(get(want, "utility")), "utility");
	need(w, o.has_stats == cJSON_IsObject(stats), "stats");
	if (o.has_stats)
		check_stats(w, &o.stats, stats);
}

static void check_payload(const struct where *w, const uint8_t *p, size_t len, const cJSON *want)
{
	const cJSON *kind = get(want, "kind");
	uint8_t *exact = malloc(len ? len : 1);
	struct vllm_ids ids;

	memcpy(exact, p, len);
	need(w, cJSON_IsString(kind), "kind");
	if (!strcmp(kind->valuestring, "add")) {
		check_add(w, exact, len, want);
	} else if (!strcmp(kind->valuestring, "abort")) {
		need(w, !vllm_msg_abort(exact, len, &ids), "shape");
		check_ids(w, &ids, get(want, "request_ids"));
	} else {
		check_outputs(w, exact, len, want);
	}
	free(exact);
}

/* NULL: there is no such file. */
static char *read_file(const char *folder, const char *name, size_t *ret_len)
{
	char path[600], *text;
	FILE *f;
	long len;

	snprintf(path, sizeof(path), GOLDEN "/%s/%s", folder, name);
	f = fopen(path, "rb");
	if (!f)
		return NULL;
	fseek(f, 0, SEEK_END);
	len = ftell(f);
	rewind(f);
	assert_true(len >= 0);
	text = malloc(len + 1);
	assert_int_equal(fread(text, 1, len, f), len);
	text[len] = '\0';
	fclose(f);
	*ret_len = len;
	return text;
}

/* ---- facts.json: one file per message ---- */

static int check_folder(const char *folder)
{
	size_t len;
	char *facts = read_file(folder, "facts.json", &len), *payload;
	struct where w = { folder, "facts.json", 0 };
	const cJSON *want;
	cJSON *doc;

	if (!facts)
		return 0;
	doc = cJSON_Parse(facts);
	assert_non_null(doc);
	cJSON_ArrayForEach(want, get(doc, "messages")) {
		w.file = get(want, "file")->valuestring;
		payload = read_file(folder, w.file, &len);
		need(&w, payload, "the file, which is not there,");
		check_payload(&w, (uint8_t *)payload, len, want);
		free(payload);
		w.message++;
	}
	cJSON_Delete(doc);
	free(facts);
	return w.message;
}

/* ---- exchange.txt: every system call on both wires, with exchange.json ---- */

struct wire {
	struct where where;
	const char *name;	/* "requests", "outputs" */
	const cJSON *messages;	/* of all wires */
	int skip;		/* messages of this wire that were sent before we joined */
	int n;			/* seen */
	bool count;		/* only count them */
};

static const cJSON *nth_message(const struct wire *w, int n)
{
	const cJSON *m;

	cJSON_ArrayForEach(m, w->messages)
		if (!strcmp(get(m, "wire")->valuestring, w->name) && n-- == 0)
			return m;
	return NULL;
}

static int n_messages(const struct wire *w)
{
	int n = 0;

	while (nth_message(w, n))
		n++;
	return n;
}

static void on_message(void *ctx, const struct zmtp_message *msg)
{
	const struct zmtp_frame *body;
	struct wire *w = ctx;
	enum vllm_kind kind = vllm_msg_kind(msg->frames, msg->n, &body);
	const cJSON *want;

	if (kind != VLLM_ADD && kind != VLLM_ABORT && kind != VLLM_OUTPUTS)
		return;
	w->where.message = w->skip + w->n++;
	if (w->count)
		return;
	want = nth_message(w, w->where.message);
	need(&w->where, want, "number of messages");
	check_payload(&w->where, body->data, body->len, want);
}

/* Feeds the calls on the wire from the first-th on; piece 0: each whole. Returns how many there were. */
static int play(struct wire *w, const char *text, int first, size_t piece)
{
	static const struct zmtp_fns fns = { on_message, NULL };
	struct zmtp *z = zmtp__new(1 << 18, &fns, w);
	int n = 0;

	w->n = 0;
	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		uint8_t bytes[65536];
		char name[32];
		size_t len = 0, at;
		int begin;

		assert_int_equal(sscanf(line, "%*u %31s %n", name, &begin), 1);
		if (strcmp(name, w->name) || n++ < first)
			continue;
		for (const char *p = line + begin; *p != '\n'; p += 2) {
			assert_true(len < sizeof(bytes));
			assert_int_equal(sscanf(p, "%2hhx", &bytes[len++]), 1);
		}
		for (at = 0; at < len; at += piece && len - at > piece ? piece : len - at)
			zmtp__feed(z, bytes + at, piece && len - at > piece ? piece : len - at, !at);
	}
	if (!first)
		need(&w->where, !zmtp__stats(z)->n_bad && !zmtp__stats(z)->skipped_bytes, "sync");
	zmtp__free(z);
	return n;
}

static int check_wire(const char *folder, const char *name, const char *text, const cJSON *doc)
{
	struct wire w = { .where = { folder, "exchange.txt", 0 }, .name = name, .messages = get(doc, "messages") };
	int n_calls = play(&w, text, 0, 0);

	need(&w.where, w.n > 0 && w.n == n_messages(&w), "number of messages");
	play(&w, text, 0, 1);
	need(&w.where, w.n == n_messages(&w), "number of messages, byte by byte");
	/* Joined later, the last messages are seen, and they are right. */
	for (int first = 1; first < n_calls; first++) {
		w.count = true;
		w.skip = 0;
		play(&w, text, first, 0);
		w.count = false;
		w.skip = n_messages(&w) - w.n;
		need(&w.where, w.skip >= 0 && w.n >= n_messages(&w) - first, "number of messages, joined later");
		play(&w, text, first, 0);
	}
	return n_messages(&w);
}

static int check_exchange(const char *folder)
{
	size_t len;
	char *text = read_file(folder, "exchange.txt", &len), *facts;
	cJSON *doc;
	int n = 0;

	if (!text)
		return 0;
	facts = read_file(folder, "exchange.json", &len);
	assert_non_null(facts);
	doc = cJSON_Parse(facts);
	assert_non_null(doc);
	n += check_wire(folder, "requests", text, doc);
	n += check_wire(folder, "outputs", text, doc);
	cJSON_Delete(doc);
	free(facts);
	free(text);
	return n;
}

/* ---- all folders ---- */

static int each_folder(int (*check)(const char *folder))
{
	DIR *dir = opendir(GOLDEN);
	struct dirent *e;
	int n = 0;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			n += check(e->d_name);
	if (dir)
		closedir(dir);
	return n;
}

static void skip_if_none(int n, const char *what)
{
	if (n)
		return;
	print_message("# skip: no %s in " GOLDEN "\n", what);
	skip();
}

static void test_vllm_golden__messages(void **state)
{
	(void)state;
	skip_if_none(each_folder(check_folder), "messages of real releases");
}

static void test_vllm_golden__exchanges(void **state)
{
	(void)state;
	skip_if_none(each_folder(check_exchange), "system calls of a real server");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vllm_golden__messages),
		cmocka_unit_test(test_vllm_golden__exchanges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
