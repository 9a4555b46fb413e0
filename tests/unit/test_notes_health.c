/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of devices: never idle when nothing was seen, a rank that hangs, links at their limit. */
#include "unit.h"

#include "fake_view.h"
#include "model/evidence.h"
#include "sink/notes.h"

struct world {
	struct fake *f;
	struct evidence e;
	char notes[4000];
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		return -1;
	w->f = fake__new();
	w->f->v.evidence = &w->e;
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	evidence_free(&w->e);
	fake__free(w->f);
	free(w);
	return 0;
}

static void join(void *ctx, const char *sentence)
{
	char *notes = ctx;

	snprintf(notes + strlen(notes), 4000 - strlen(notes), "%s\n", sentence);
}

static const char *notes(struct world *w)
{
	struct summary s;

	w->notes[0] = '\0';
	assert_int_equal(summarise(&w->f->v, &s), 0);
	assert_int_equal(notes_each(&w->f->v, &s, join, w->notes), 0);
	return w->notes;
}

static void test_exit__says_who_and_how(void **state)
{
	struct world *w = *state;
	struct rec_engine *e = w->f->engines;

	assert_null(strstr(notes(w), "exited"));
	e->exit_ns = fake_ns(3000);
	assert_non_null(strstr(notes(w), "pid 4242 (llama.cpp server) exited at 3000.0 ms\n"));
	e->exit_code = 9;
	assert_non_null(strstr(notes(w), " exited at 3000.0 ms, killed by SIGKILL\n"));
	e->exit_code = 0x80 | 11;	/* with a core file */
	assert_non_null(strstr(notes(w), " exited at 3000.0 ms, killed by SIGSEGV\n"));
	e->exit_code = 100;
	assert_non_null(strstr(notes(w), ", killed by signal 100\n"));
	e->exit_code = 3 << 8;
	e->e.role[0] = '\0';
	assert_non_null(strstr(notes(w), "pid 4242 exited at 3000.0 ms with status 3\n"));
}

static void health(struct world *w, uint16_t trouble, uint64_t records)
{
	struct tl_gpu_health h = {
		.hdr = { sizeof(h), TL_GPU_HEALTH, 0, 4242, 0, fake_ns(3000) }, .since_ns = fake_ns(500),
		.launches = 340, .records = records, .bad_records = trouble == TL_GPU_BAD_STAMPS ? 17 : 0, .overhead_ppm = 640000,
		.to_level = TL_GPU_LAUNCHES, .trouble = trouble, .holder = "nsys[991]",
	};

	assert_int_equal(evidence_on(&w->e, &h.hdr), 0);
}

static void test_notes__trouble_with_records(void **state)
{
	static const struct { uint16_t trouble; const char *says; } cases[] = {
		{ TL_GPU_BROKEN, "collection broken: CUPTI or probes told of 340 GPU launches and "
				 "copies by pid 4242 between "
				 "500.0 and 3000.0 ms, maybe not of all, and no record came" },
		{ TL_GPU_BAD_STAMPS, "17 of 17 GPU records of pid 4242 had impossible time stamps and were dropped" },
		{ TL_GPU_BUSY, "nsys[991] has the GPU records of pid 4242: since 500.0 ms launches only" },
		{ TL_GPU_NO_PROBES, "GPU launches of pid 4242 were not seen: no probe could be set on its libcuda" },
		{ TL_GPU_BUDGET, "TAINTED: observing the GPU cost pid 4242 64 % of its speed" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct world *w = *state;

		w->e.gpu_healths.n = 0;
		health(w, cases[i].trouble, 0);
		assert_non_null(strstr(notes(w), cases[i].says));
		assert_null(strstr(w->notes, "idle"));
	}
}

static void health_of(struct world *w, struct tl_gpu_health h, double t0, double t1, const char *why)
{
	h.hdr = (struct tl_hdr){ sizeof(h), TL_GPU_HEALTH, 0, 4242, 0, fake_ns(t1) };
	h.since_ns = fake_ns(t0);
	snprintf(h.why, sizeof(h.why), "%s", why);
	assert_int_equal(evidence_on(&w->e, &h.hdr), 0);
}

/* The reason that was said when it happened, and nothing that is not so. */
static void test_notes__reasons(void **state)
{
	static const struct { uint16_t trouble, level, to_level; const char *why, *says, *not; } cases[] = {
		{ TL_GPU_FINE, TL_GPU_KERNELS, TL_GPU_LAUNCHES, "process 7 is traced by process 8; do this",
		  "GPU of pid 4242: since 3000.0 ms launches only: process 7 is traced by process 8; do this", "another tool" },
		{ TL_GPU_FINE, TL_GPU_LAUNCHES, TL_GPU_LAUNCHES, "waiting for cuptiSubscribe",
		  "no GPU records of pid 4242 between 500.0 and 3000.0 ms: waiting for cuptiSubscribe", "TAINTED" },
		{ TL_GPU_NO_STATE, TL_GPU_OFF, TL_GPU_OFF, "NVML does not answer",
		  "memory of the GPUs of pid 4242 were not seen: NVML does not answer", "no GPU records" },
		{ TL_GPU_NO_PROBES, TL_GPU_OFF, TL_GPU_OFF, "Permission denied", "not seen: Permission denied", "record said why" },
		{ TL_GPU_BROKEN, TL_GPU_KERNELS, TL_GPU_LAUNCHES, "restart it", "is not known: restart it", "TAINTED" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct world *w = *state;

		w->e.gpu_healths.n = 0;
		health_of(w, (struct tl_gpu_health){ .trouble = cases[i].trouble, .level = cases[i].level, .to_level = cases[i].to_level,
						     .launches = 10 }, 500, 3000, cases[i].why);
		assert_non_null(strstr(notes(w), cases[i].says));
		assert_null(strstr(w->notes, cases[i].not));
	}
}

/* To wait for CUPTI is no news if it is short, and records come. */
static void test_notes__short_wait(void **state)
{
	struct world *w = *state;

	health_of(w, (struct tl_gpu_health){ .level = TL_GPU_LAUNCHES, .to_level = TL_GPU_LAUNCHES }, 500, 600, "waiting");
	assert_non_null(strstr(notes(w), "waiting"));
	health_of(w, (struct tl_gpu_health){ .level = TL_GPU_KERNELS, .to_level = TL_GPU_KERNELS, .records = 9 }, 600, 1600, "");
	assert_null(strstr(notes(w), "waiting"));
}

static void test_notes__taints(void **state)
{
	struct world *w = *state;
	struct tl_gpu_health h = { .trouble = TL_GPU_BUDGET, .level = TL_GPU_KERNELS, .to_level = TL_GPU_KERNELS, .overhead_ppm = 470000 };

	health_of(w, h, 500, 2500, "");
	h.overhead_ppm = 570000;
	health_of(w, h, 3000, 5000, "");
	h.overhead_ppm = 550000;
	health_of(w, h, 5500, 7500, "");
	assert_non_null(strstr(notes(w), "TAINTED: observing the GPU cost pid 4242 up to 57 % of its speed between 500.0 and "
				       "7500.0 ms, in 3 windows or stretches: it is slower"));
}

/* Launches are counted since the last record, in all that was told of them. */
static void test_notes__launches_of_a_broken_one(void **state)
{
	struct world *w = *state;
	struct tl_gpu_health h = { .level = TL_GPU_KERNELS, .to_level = TL_GPU_KERNELS, .launches = 100, .records = 100 };

	health_of(w, h, 0, 1000, "");
	h.records = 0;
	h.launches = 300;
	health_of(w, h, 1000, 2000, "");
	h.launches = 20;
	h.to_level = TL_GPU_LAUNCHES;
	h.trouble = TL_GPU_BROKEN;
	health_of(w, h, 2000, 2100, "");
	assert_non_null(strstr(notes(w), "told of 320 GPU launches and copies by pid 4242 between "
					 "1000.0 and 2100.0 ms"));
}

static void test_notes__no_trouble_is_no_note(void **state)
{
	health(*state, TL_GPU_FINE, 340);
	assert_null(strstr(notes(*state), "GPU"));
}

static void gpu_step(struct world *w, uint16_t rank, double t0, double ms, double collective, uint32_t flags)
{
	struct tl_gpu_step s = {
		.hdr = { sizeof(s), TL_GPU_STEP, flags, 4242, 0, fake_ns(t0) }, .end_ns = fake_ns(t0 + ms),
		.collective_ns = (uint64_t)(collective * 1e6), .rank = rank,
	};

	assert_int_equal(evidence_on(&w->e, &s.hdr), 0);
}

/* Ten steps of two ranks, of 100 each; so much of it in collectives. */
static void two_ranks(struct world *w, double first, double second)
{
	for (int i = 0; i < 10; i++) {
		gpu_step(w, 0, 100.0 * i, 100, first, 0);
		gpu_step(w, 1, 100.0 * i, 100, second, 0);
	}
}

static void test_notes__bound_by_communication(void **state)
{
	two_ranks(*state, 91, 92);
	assert_non_null(strstr(notes(*state), "collectives take 92 of 100 ms of a step on all 2 ranks alike"));
}

static void test_notes__a_late_rank_is_no_bound(void **state)
{
	two_ranks(*state, 91, 55);
	assert_null(strstr(notes(*state), "communication"));
}

static void test_notes__little_communication_is_no_bound(void **state)
{
	two_ranks(*state, 20, 20);
	assert_null(strstr(notes(*state), "communication"));
}

static void test_notes__a_rank_that_never_comes(void **state)
{
	two_ranks(*state, 20, 20);
	gpu_step(*state, 0, 1000, 60000, 59990, TL_GPU_OPEN);
	assert_non_null(strstr(notes(*state), "HANG: rank 1 never entered the collective in which rank 0 has "
					      "been for 60.0 s, since 1000.0 ms"));
}

static void test_notes__the_last_step_of_a_capture_is_no_hang(void **state)
{
	two_ranks(*state, 20, 20);
	gpu_step(*state, 0, 1000, 90, 89, TL_GPU_OPEN);
	assert_null(strstr(notes(*state), "HANG"));
}

static void stop(struct world *w, double t0, double t1, uint32_t flags)
{
	struct tl_thread_span *s = vec_push(&w->e.spans, 10);

	assert_non_null(s);
	*s = (struct tl_thread_span){
		.hdr = { sizeof(*s), TL_THREAD_SPAN, flags, 4242, 4242, fake_ns(t1) },
		.since_ns = fake_ns(t0), .state = TL_SPAN_SLEEP, .wait = TL_WAIT_STOPPED,
	};
}

static void first_of(void *ctx, const char *sentence)
{
	if (!*(char *)ctx)
		join(ctx, sentence);
}

/* A worker of the server alone, then another one, then the process that reads requests, too. */
static void test_notes__stopped_worker(void **state)
{
	struct world *w = *state;
	struct tl_engine *e = &w->f->engines[0].e;

	e->server = 4200;
	e->hdr.tgid = 4242;
	stop(w, 100, 4100, 0);
	assert_non_null(strstr(notes(w), "pid 4242 of the server (pid 4200) was stopped or frozen for 4.00 s: steps that it has a part in waited"));
	assert_null(strstr(notes(w), "read no requests"));
	stop(w, 100, 4100, 0);
	assert_null(strstr(notes(w), "and others"));	/* another thread of it */
	w->f->engines[1] = w->f->engines[0];
	w->f->engines[1].e.hdr.tgid = 4243;
	w->f->v.n_engines = 2;
	stop(w, 100, 4100, 0);
	w->e.spans.v[w->e.spans.n - 1].hdr.tgid = 4243;
	assert_non_null(strstr(notes(w), "pid 4242 and others of the server (pid 4200) were stopped or frozen for 4.00 s"));
	stop(w, 100, 4100, 0);
	w->e.spans.v[w->e.spans.n - 1].hdr.tgid = 4200;
	assert_non_null(strstr(notes(w), "the server (pid 4200) was stopped or frozen for 4.00 s: it read no requests"));
}

/* Before all answers where nothing else tells of it: no request was read, or it hangs still. */
static void test_notes__stopped(void **state)
{
	struct world *w = *state;
	char urgent[4000] = "";

	stop(w, 100, 4100, 0);
	assert_non_null(strstr(notes(w), "the server (pid 4242) was stopped or frozen for 4.00 s: it read no requests"));
	notes_urgent(&w->f->v, first_of, urgent);
	assert_non_null(strstr(urgent, "SIGSTOP"));
	fake_request(w->f, 10);
	urgent[0] = '\0';
	notes_urgent(&w->f->v, first_of, urgent);
	assert_string_equal(urgent, "");	/* its own gaps tell */
	stop(w, 6000, 9000, TL_F_TRUNC);
	notes_urgent(&w->f->v, first_of, urgent);
	assert_non_null(strstr(urgent, "for 3.00 s, and still was when the recording ended"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_exit__says_who_and_how),
		TEST(test_notes__trouble_with_records),
		TEST(test_notes__reasons),
		TEST(test_notes__short_wait),
		TEST(test_notes__taints),
		TEST(test_notes__launches_of_a_broken_one),
		TEST(test_notes__no_trouble_is_no_note),
		TEST(test_notes__bound_by_communication),
		TEST(test_notes__a_late_rank_is_no_bound),
		TEST(test_notes__little_communication_is_no_bound),
		TEST(test_notes__a_rank_that_never_comes),
		TEST(test_notes__the_last_step_of_a_capture_is_no_hang),
		TEST(test_notes__stopped), TEST(test_notes__stopped_worker),
	};

	return cmocka_run_group_tests_name("notes_health", tests, NULL, NULL);
}
