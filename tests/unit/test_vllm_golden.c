/* SPDX-License-Identifier: Apache-2.0 */
/* Messages encoded by releases of vLLM themselves must say what the program that made them wrote down.
 *
 * tests/golden/vllm/RELEASE-KIND-ANYTHING.msgpack is one payload, KIND one of add, abort, outputs; the
 * file of the same name that ends in .facts holds the text that say_add(), say_abort() or say_outputs()
 * below gives for it. Nanoseconds of a time t: int(t) * 10**9 + int((t - int(t)) * 1e9 + 0.5). */
#include "parse/vllm_msg.h"
#include "unit.h"

#include <dirent.h>
#include <string.h>

#define GOLDEN "tests/golden/vllm"

struct text {
	char s[65536];
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

static void say_id(struct text *t, const char *name, struct vllm_id id, const char *end)
{
	say(t, "%s%.*s%s", name, id.len ? (int)id.len : 1, id.len ? id.p : "-", end);
}

static const char *flags_text(uint8_t flags)
{
	static const char *const texts[] = { "-", "cut", "shape", "cut,shape" };

	return texts[flags & (VLLM_CUT | VLLM_SHAPE)];
}

static void say_add(struct text *t, const uint8_t *p, size_t len)
{
	struct vllm_add a;

	assert_int_equal(vllm_msg_add(p, len, &a), 0);
	say(t, "add\n");
	say_id(t, "id ", a.id, "\n");
	say_id(t, "external ", a.external, "\n");
	say(t, "prompt %lld\narrival_ns %llu\nclient %d\nmax_tokens %d\nn %d\nflags %s\n",
	    (long long)a.n_prompt, (unsigned long long)a.arrival_ns, a.client_index, a.max_tokens, a.n,
	    flags_text(a.flags));
}

static void say_abort(struct text *t, const uint8_t *p, size_t len)
{
	struct vllm_ids ids;
	struct vllm_id id;

	assert_int_equal(vllm_msg_abort(p, len, &ids), 0);
	say(t, "abort\n");
	while (vllm_msg_next_id(&ids, &id))
		say_id(t, "id ", id, "\n");
}

static void say_row(struct text *t, struct vllm_row *r)
{
	static const char *const stops[] = { "-", "token", "text" };
	struct vllm_event ev;
	const char *sep = " events=";

	say_id(t, "row ", r->id, "");
	say(t, " tokens=%d finish=%d stop=%s cached=%lld", r->n_tokens, r->finish, stops[r->stop],
	    (long long)r->n_cached);
	if (r->has_prefill)
		say(t, " prefill=%lld,%lld,%lld,%lld,%lld", (long long)r->prefill.prompt,
		    (long long)r->prefill.computed, (long long)r->prefill.cached,
		    (long long)r->prefill.cached_local, (long long)r->prefill.cached_external);
	for (; vllm_msg_next_event(&r->events, &ev); sep = ",")
		say(t, "%s%u@%llu", sep, ev.type, (unsigned long long)ev.ts_ns);
	say(t, " flags=%s\n", flags_text(r->flags));
}

static void say_stats(struct text *t, const struct vllm_stats *s)
{
	say(t, "stats");
	if (s->known & VLLM_STAT_RUNNING)
		say(t, " running=%llu", (unsigned long long)s->running);
	if (s->known & VLLM_STAT_WAITING)
		say(t, " waiting=%llu", (unsigned long long)s->waiting);
	if (s->known & VLLM_STAT_SKIPPED)
		say(t, " skipped=%llu", (unsigned long long)s->skipped);
	if (s->known & VLLM_STAT_KV)
		say(t, " kv=%.6f", s->kv_usage);
	if (s->known & VLLM_STAT_PREFIX)
		say(t, " prefix=%llu,%llu,%llu,%llu,%llu,%llu", (unsigned long long)s->prefix.requests,
		    (unsigned long long)s->prefix.queries, (unsigned long long)s->prefix.hits,
		    (unsigned long long)s->prefix.preempted_requests,
		    (unsigned long long)s->prefix.preempted_queries,
		    (unsigned long long)s->prefix.preempted_hits);
	if (s->known & VLLM_STAT_SPEC)
		say(t, " spec=%llu,%llu,%llu", (unsigned long long)s->spec.drafts,
		    (unsigned long long)s->spec.draft_tokens, (unsigned long long)s->spec.accepted_tokens);
	if (s->known & VLLM_STAT_ITERATION)
		say(t, " iteration=%llu,%llu,%llu,%llu,%llu", (unsigned long long)s->iteration.index,
		    (unsigned long long)s->iteration.prefill_requests,
		    (unsigned long long)s->iteration.prefill_tokens,
		    (unsigned long long)s->iteration.decode_requests,
		    (unsigned long long)s->iteration.decode_tokens);
	if (s->known & VLLM_STAT_GRAPH)
		say(t, " graph=%llu,%llu", (unsigned long long)s->graph.tokens,
		    (unsigned long long)s->graph.padded_tokens);
	say(t, "\n");
}

static void say_outputs(struct text *t, const uint8_t *p, size_t len)
{
	struct vllm_outputs o;
	struct vllm_row row;
	struct vllm_id id;

	assert_int_equal(vllm_msg_outputs(p, len, &o), 0);
	say(t, "outputs\nengine %d\ntimestamp_ns %llu\nutility %d\n", o.engine,
	    (unsigned long long)o.timestamp_ns, o.utility);
	while (vllm_msg_next_row(&o, &row))
		say_row(t, &row);
	while (vllm_msg_next_id(&o.finished, &id))
		say_id(t, "finished ", id, "\n");
	if (o.has_stats)
		say_stats(t, &o.stats);
	say(t, "flags %s\n", flags_text(o.flags));
}

static size_t read_file(const char *name, const char *end, uint8_t **ret)
{
	char path[512];
	FILE *f;
	long len;

	snprintf(path, sizeof(path), GOLDEN "/%s%s", name, end);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("%s is not there", path);
	fseek(f, 0, SEEK_END);
	len = ftell(f);
	rewind(f);
	assert_true(len > 0);
	*ret = malloc(len + 1);
	assert_int_equal(fread(*ret, 1, len, f), len);
	(*ret)[len] = '\0';
	fclose(f);
	return len;
}

static void check(const char *name)
{
	static struct text t;
	uint8_t *payload, *facts, *exact;
	size_t len = read_file(name, ".msgpack", &payload);

	read_file(name, ".facts", &facts);
	exact = malloc(len);
	memcpy(exact, payload, len);
	t.len = 0;
	if (strstr(name, "-add"))
		say_add(&t, exact, len);
	else if (strstr(name, "-abort"))
		say_abort(&t, exact, len);
	else if (strstr(name, "-outputs"))
		say_outputs(&t, exact, len);
	else
		fail_msg("%s: is it add, abort or outputs?", name);
	if (strcmp(t.s, (const char *)facts))
		fail_msg("%s:\n--- got\n%s--- want\n%s", name, t.s, facts);
	free(payload);
	free(facts);
	free(exact);
}

static void test_vllm_golden__all(void **state)
{
	DIR *dir = opendir(GOLDEN);
	struct dirent *e;
	int n = 0;

	(void)state;
	while (dir && (e = readdir(dir))) {
		size_t len = strlen(e->d_name);
		char name[256];

		if (len <= 8 || strcmp(e->d_name + len - 8, ".msgpack"))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)len - 8, e->d_name);
		check(name);
		n++;
	}
	if (dir)
		closedir(dir);
	if (!n) {
		print_message("# skip: no messages of real releases in " GOLDEN "\n");
		skip();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_vllm_golden__all) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
