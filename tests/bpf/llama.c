/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of llama.cpp on functions of that name in this program, called in ways that are known. */
#include "capture.h"

#include "source/probe_check.h"
#include "source/probes.h"

/* ---- the engine ---- */

struct llama_batch {
	int32_t n_tokens;
	int32_t *token;
	float *embd;
	int32_t *pos, *n_seq_id;
	int32_t **seq_id;
	int8_t *logits;
};
struct task {
	int32_t id;
	uint64_t index;
	int32_t id_target, id_slot, id_parent;
	char rest[4000 - 40];
};
struct vector {
	struct task *begin, *end, *capacity;
};
struct slot {
	int32_t id;
	char rest[100];
};

#define PROBED __attribute__((noipa))

int llama_process(void *ctx, int type, void *batch);
int llama_decode(void *ctx, struct llama_batch batch);
void llama_batch_ext_clear(void *batch);
int llama_batch_ext_add_token(void *batch, int seq, int token);
int llama_batch_ext_add_embd(void *batch, int seq, const float *embd);
void llama_batch_ext_set_output_logits(void *batch, int idx, bool wanted);
bool llama_memory_seq_rm(void *mem, int seq, int p0, int p1);
void post(void *queue, struct vector *tasks, bool front)
	__asm__("_ZN12server_queue4postEOSt6vectorI11server_taskSaIS1_EEb");
void launch(void *server, struct slot *slot, struct task *task)
	__asm__("_ZN19server_context_impl21launch_slot_with_taskER11server_slotO11server_task");
void release(struct slot *slot) __asm__("_ZN11server_slot7releaseEv");

static void (*volatile in_step)(void);	/* what a step does inside */
static volatile int step_result, calls;

PROBED int llama_process(void *ctx, int type, void *batch)
{
	(void)ctx, (void)type, (void)batch;
	if (in_step)
		in_step();
	return step_result;
}

PROBED int llama_decode(void *ctx, struct llama_batch batch)
{
	(void)ctx;
	if (in_step)
		in_step();
	return step_result + (batch.n_tokens < 0);
}

PROBED void llama_batch_ext_clear(void *batch) { (void)batch; calls++; }
PROBED int llama_batch_ext_add_token(void *batch, int seq, int token) { (void)batch, (void)seq; return token; }
PROBED int llama_batch_ext_add_embd(void *batch, int seq, const float *e) { (void)batch, (void)e; return seq; }
PROBED void llama_batch_ext_set_output_logits(void *batch, int idx, bool wanted)
{
	(void)batch, (void)idx, (void)wanted;
	calls++;
}
PROBED bool llama_memory_seq_rm(void *mem, int seq, int p0, int p1) { (void)mem, (void)seq; return p0 != p1; }
PROBED void post(void *queue, struct vector *tasks, bool front) { (void)queue, (void)tasks, (void)front; calls++; }
PROBED void launch(void *server, struct slot *slot, struct task *task) { (void)server, (void)slot, (void)task; calls++; }
PROBED void release(struct slot *slot) { (void)slot; calls++; }

static char batch_a[8], batch_b[8], batch_c[8];
static char context[8], draft[8];

static void add(void *batch, int seq, int n, int *idx)
{
	for (int i = 0; i < n; i++)
		llama_batch_ext_add_token(batch, seq, 5);
	*idx += n;
}

/* ---- capture ---- */

static void say_nothing(void *ctx, const char *probe, int err, const char *reason)
{
	(void)ctx, (void)probe, (void)err, (void)reason;
}

static struct capture *engine_capture(scenario fn, void *arg)
{
	struct capture *c = capture_open(NULL);
	struct child child = child_start(fn, arg);
	int n = src_bpf__attach_engine(c->bpf, child.pid, TL_ENGINE_LLAMA, say_nothing, NULL);
	int status;

	assert_int_equal(n, 12);
	child_go(&child);
	status = child_end(&child);
	if (status)
		fail_msg("the child ended with %d (%d)", status, status >> 8);
	capture_drain(c);
	assert_int_equal(c->n_lost, 0);
	src_bpf__del_target(c->bpf, child.pid);
	return c;
}

static const struct tl_raw_llama_step *expect_step(const struct capture *c, size_t *at, uint32_t n_tokens,
						   uint32_t n_runs)
{
	const struct tl_raw_llama_step *s = capture_next(c, TL_RAW_LLAMA_STEP, at);

	assert_non_null(s);
	assert_int_equal(s->n_tokens, n_tokens);
	assert_int_equal(s->n_runs, n_runs);
	assert_int_equal(s->hdr.size, offsetof(struct tl_raw_llama_step, runs) + n_runs * sizeof(s->runs[0]));
	assert_true(s->end_ns > s->hdr.ts_ns);
	assert_int_equal(s->hdr.tid, s->hdr.tgid);
	return s;
}

static void assert_run(const struct tl_llama_run *r, int seq, uint32_t n_tokens, int pos, uint32_t n_out)
{
	assert_int_equal(r->seq, seq);
	assert_int_equal(r->n_tokens, n_tokens);
	assert_int_equal(r->pos, pos);
	assert_int_equal(r->n_out, n_out);
}

/* ---- the current generation ---- */

static int do_batches(void *arg)
{
	int idx = 0;

	(void)arg;
	/* two decode, one finishes its prompt, one is in the middle of its own */
	llama_batch_ext_clear(batch_a);
	add(batch_a, 0, 1, &idx);
	llama_batch_ext_set_output_logits(batch_a, idx - 1, true);
	add(batch_a, 2, 1, &idx);
	llama_batch_ext_set_output_logits(batch_a, idx - 1, true);
	add(batch_a, 1, 93, &idx);
	llama_batch_ext_set_output_logits(batch_a, idx - 1, true);
	llama_batch_ext_set_output_logits(batch_a, 2, false);
	add(batch_a, 3, 500, &idx);
	llama_process(context, 1, batch_a);

	/* outputs asked for late, also of the first run; and a failure */
	llama_batch_ext_clear(batch_a);
	idx = 0;
	add(batch_a, 7, 4, &idx);
	add(batch_a, 8, 2, &idx);
	llama_batch_ext_set_output_logits(batch_a, 0, true);
	llama_batch_ext_set_output_logits(batch_a, 3, true);
	llama_batch_ext_set_output_logits(batch_a, 5, true);
	step_result = 1;
	llama_process(context, 1, batch_a);

	/* the same batch again: a retry */
	step_result = 0;
	llama_process(context, 1, batch_a);
	return 0;
}

static void test_batch__gives_membership(void **state)
{
	struct capture *c = engine_capture(do_batches, NULL);
	const struct tl_raw_llama_step *s;
	size_t at = 0;

	(void)state;
	s = expect_step(c, &at, 595, 4);
	assert_run(&s->runs[0], 0, 1, -1, 1);
	assert_run(&s->runs[1], 2, 1, -1, 1);
	assert_run(&s->runs[2], 1, 93, -1, 1);
	assert_run(&s->runs[3], 3, 500, -1, 0);
	assert_int_equal(s->api, 1);
	assert_int_equal(s->result, 0);
	assert_int_equal(s->hdr.flags, 0);
	assert_int_equal(s->ctx, (uintptr_t)context);
	s = expect_step(c, &at, 6, 2);
	assert_run(&s->runs[0], 7, 4, -1, 2);
	assert_run(&s->runs[1], 8, 2, -1, 1);
	assert_int_equal(s->result, 1);
	s = expect_step(c, &at, 6, 2);
	assert_int_equal(s->result, 0);
	assert_null(capture_next(c, TL_RAW_LLAMA_STEP, &at));
	capture_close(c);
}

static int do_two_batches(void *arg)
{
	int a = 0, b = 0, other = 0;

	(void)arg;
	llama_batch_ext_clear(batch_a);
	llama_batch_ext_clear(batch_b);
	for (int i = 0; i < 3; i++) {
		add(batch_a, i, 2, &a);
		add(batch_b, 10 + i, 1, &b);
		llama_batch_ext_set_output_logits(batch_b, b - 1, true);
	}
	llama_process(draft, 1, batch_b);
	llama_process(context, 1, batch_a);
	/* a third one pushes the older out, and what that held is then not known */
	llama_batch_ext_clear(batch_c);
	add(batch_c, 5, 1, &other);
	llama_process(context, 1, batch_c);
	llama_process(context, 1, batch_b);
	return 0;
}

static void test_batches__are_told_apart(void **state)
{
	struct capture *c = engine_capture(do_two_batches, NULL);
	const struct tl_raw_llama_step *s;
	size_t at = 0;

	(void)state;
	s = expect_step(c, &at, 3, 3);
	assert_run(&s->runs[2], 12, 1, -1, 1);
	assert_int_equal(s->ctx, (uintptr_t)draft);
	s = expect_step(c, &at, 6, 3);
	assert_run(&s->runs[0], 0, 2, -1, 0);
	assert_int_equal(s->hdr.flags, 0);
	s = expect_step(c, &at, 1, 1);
	assert_int_equal(s->hdr.flags, 0);
	s = expect_step(c, &at, 0, 0);
	assert_int_equal(s->hdr.flags, TL_F_JOINED);
	capture_close(c);
}

static int do_join_late(void *arg)
{
	int idx = 0;

	(void)arg;
	add(batch_a, 4, 3, &idx);	/* its clear was before the capture */
	llama_process(context, 1, batch_a);
	llama_batch_ext_clear(batch_a);
	add(batch_a, 4, 3, &idx);
	llama_process(context, 1, batch_a);
	return 0;
}

static void test_batch__joined_late_says_so(void **state)
{
	struct capture *c = engine_capture(do_join_late, NULL);
	size_t at = 0;

	(void)state;
	assert_int_equal(expect_step(c, &at, 3, 1)->hdr.flags, TL_F_JOINED);
	assert_int_equal(expect_step(c, &at, 3, 1)->hdr.flags, 0);
	capture_close(c);
}

static int do_many_runs(void *arg)
{
	int idx = 0;

	(void)arg;
	llama_batch_ext_clear(batch_a);
	for (int seq = 0; seq < 100; seq++)
		add(batch_a, seq, 2, &idx);
	llama_process(context, 1, batch_a);
	llama_batch_ext_clear(batch_a);
	for (int seq = 0; seq < TL_LLAMA_MAX_RUNS; seq++)
		llama_batch_ext_add_embd(batch_a, seq, NULL);
	llama_process(context, 1, batch_a);
	return 0;
}

static void test_batch__of_many_runs_is_cut(void **state)
{
	struct capture *c = engine_capture(do_many_runs, NULL);
	const struct tl_raw_llama_step *s;
	size_t at = 0;

	(void)state;
	s = expect_step(c, &at, 200, TL_LLAMA_MAX_RUNS);
	assert_int_equal(s->hdr.flags, TL_F_TRUNC);
	assert_run(&s->runs[63], 63, 2, -1, 0);
	s = expect_step(c, &at, 64, TL_LLAMA_MAX_RUNS);
	assert_int_equal(s->hdr.flags, 0);
	capture_close(c);
}

/* ---- calls inside calls, and ways out of them ---- */

static jmp_buf way_out;

static void decode_inside(void)
{
	struct llama_batch b = { .n_tokens = 3 };

	in_step = NULL;
	llama_decode(context, b);
}

static void jump_out(void)
{
	in_step = NULL;
	longjmp(way_out, 1);
}

static int do_nested(void *arg)
{
	int idx = 0;

	(void)arg;
	llama_batch_ext_clear(batch_a);
	add(batch_a, 1, 2, &idx);
	in_step = decode_inside;
	llama_process(context, 1, batch_a);

	in_step = jump_out;
	if (!setjmp(way_out))
		llama_process(context, 1, batch_a);
	llama_batch_ext_clear(batch_a);
	add(batch_a, 6, 1, &idx);
	llama_process(context, 1, batch_a);
	return 0;
}

static void test_step__inside_a_step_is_part_of_it(void **state)
{
	struct capture *c = engine_capture(do_nested, NULL);
	size_t at = 0;

	(void)state;
	assert_run(expect_step(c, &at, 2, 1)->runs, 1, 2, -1, 0);
	assert_run(expect_step(c, &at, 1, 1)->runs, 6, 1, -1, 0);
	assert_null(capture_next(c, TL_RAW_LLAMA_STEP, &at));
	capture_close(c);
}

/* ---- the older generation ---- */

enum { LONG = 5000 };

static int do_decode(void *arg)
{
	static int32_t pos[LONG], seqs[LONG], *seq_id[LONG];
	static int8_t logits[LONG];
	struct llama_batch b = { .n_tokens = LONG, .pos = pos, .seq_id = seq_id, .logits = logits };

	(void)arg;
	for (int i = 0; i < LONG; i++) {
		seq_id[i] = &seqs[i];
		seqs[i] = i < 3 ? i : 3;
		pos[i] = i < 3 ? 100 * i : i - 3;
		logits[i] = i < 3 || i == LONG - 1;
	}
	llama_decode(context, b);

	/* positions with a hole are two runs */
	b.n_tokens = 4;
	b.seq_id = seq_id + 3;
	pos[2] = 50;
	pos[3] = 51;
	llama_decode(context, b);

	/* llama_batch_get_one: no arrays at all */
	b = (struct llama_batch){ .n_tokens = 70 };
	step_result = -3;
	llama_decode(context, b);
	b.n_tokens = 0;
	llama_decode(context, b);
	return 0;
}

static void test_decode__reads_the_batch(void **state)
{
	struct capture *c = engine_capture(do_decode, NULL);
	const struct tl_raw_llama_step *s;
	size_t at = 0;

	(void)state;
	s = expect_step(c, &at, LONG, 4);
	assert_int_equal(s->api, 2);
	assert_int_equal(s->hdr.flags, 0);
	assert_run(&s->runs[0], 0, 1, 0, 1);
	assert_run(&s->runs[1], 1, 1, 100, 1);
	assert_run(&s->runs[2], 2, 1, 200, 1);
	assert_run(&s->runs[3], 3, LONG - 3, 0, 1);
	s = expect_step(c, &at, 4, 3);
	assert_run(&s->runs[0], 3, 1, 0, 1);
	assert_run(&s->runs[1], 3, 1, 100, 1);
	assert_run(&s->runs[2], 3, 2, 50, 1);
	s = expect_step(c, &at, 70, 1);
	assert_run(&s->runs[0], 0, 70, -1, 1);
	assert_int_equal(s->result, -3);
	expect_step(c, &at, 0, 0);
	capture_close(c);
}

/* ---- tasks ---- */

static struct vector tasks_of(struct task *tasks, int n)
{
	return (struct vector){ tasks, tasks + n, tasks + n };
}

static int do_tasks(void *arg)
{
	static struct task tasks[3];
	struct slot slot = { .id = 6 };
	struct vector v = tasks_of(tasks, 1);

	(void)arg;
	for (int i = 0; i < 3; i++)
		tasks[i] = (struct task){ .id = 40 + i, .id_target = -1, .id_slot = -1, .id_parent = -1 };
	post(NULL, &v, false);
	v = tasks_of(tasks, 3);
	post(NULL, &v, false);
	v = tasks_of(tasks, 0);
	post(NULL, &v, false);
	launch(NULL, &slot, &tasks[0]);
	tasks[1].id_parent = 40;
	slot.id = 0;
	launch(NULL, &slot, &tasks[1]);
	llama_memory_seq_rm(NULL, 6, 512, -1);
	release(&slot);
	tasks[2] = (struct task){ .id = -1, .id_target = 41, .id_slot = -1, .id_parent = -1 };
	v = tasks_of(tasks + 2, 1);
	post(NULL, &v, true);
	return 0;
}

static void expect_task(const struct capture *c, size_t *at, uint32_t what, int task, int slot, int parent)
{
	const struct tl_raw_llama_task *t = capture_next(c, TL_RAW_LLAMA_TASK, at);

	assert_non_null(t);
	assert_int_equal(t->what, what);
	assert_int_equal(t->task, task);
	assert_int_equal(t->slot, slot);
	assert_int_equal(t->parent, parent);
}

static void test_tasks__from_post_to_release(void **state)
{
	struct capture *c = engine_capture(do_tasks, NULL);
	const struct tl_raw_llama_seq_rm *rm;
	size_t at = 0, rm_at = 0;

	(void)state;
	expect_task(c, &at, TL_TASK_POST, 40, -1, -1);
	expect_task(c, &at, TL_TASK_POST, 40, -1, -1);
	expect_task(c, &at, TL_TASK_POST, 41, -1, -1);
	expect_task(c, &at, TL_TASK_POST, 42, -1, -1);
	expect_task(c, &at, TL_TASK_LAUNCH, 40, 6, -1);
	expect_task(c, &at, TL_TASK_LAUNCH, 41, 0, 40);
	expect_task(c, &at, TL_TASK_RELEASE, -1, 0, -1);
	expect_task(c, &at, TL_TASK_CANCEL, 41, -1, -1);
	assert_null(capture_next(c, TL_RAW_LLAMA_TASK, &at));
	rm = capture_next(c, TL_RAW_LLAMA_SEQ_RM, &rm_at);
	assert_non_null(rm);
	assert_int_equal(rm->seq, 6);
	assert_int_equal(rm->p0, 512);
	assert_int_equal(rm->p1, -1);
	capture_close(c);
}

/* ---- who is probed ---- */

static void test_strangers__are_not_probed(void **state)
{
	struct capture *c = capture_open(NULL);
	struct child target = child_start(do_batches, NULL), stranger = child_start(do_batches, NULL);

	(void)state;
	assert_int_equal(src_bpf__attach_engine(c->bpf, target.pid, TL_ENGINE_LLAMA, say_nothing, NULL), 12);
	child_go(&stranger);
	assert_int_equal(child_end(&stranger), 0);
	do_batches(NULL);		/* this process maps the file too */
	capture_drain(c);
	assert_int_equal(c->n, 0);
	child_go(&target);
	assert_int_equal(child_end(&target), 0);
	capture_drain(c);
	assert_int_equal(capture_count(c, TL_RAW_LLAMA_STEP), 3);
	src_bpf__del_target(c->bpf, target.pid);
	capture_close(c);
}

static void test_del_target__takes_the_probes_off(void **state)
{
	struct capture *c = capture_open(NULL);
	struct child first = child_start(do_batches, NULL), second = child_start(do_batches, NULL);

	(void)state;
	src_bpf__attach_engine(c->bpf, first.pid, TL_ENGINE_LLAMA, say_nothing, NULL);
	src_bpf__attach_engine(c->bpf, second.pid, TL_ENGINE_LLAMA, say_nothing, NULL);
	src_bpf__attach_engine(c->bpf, second.pid, TL_ENGINE_LLAMA, say_nothing, NULL); /* once is enough */
	src_bpf__del_target(c->bpf, first.pid);
	child_go(&first);
	child_go(&second);
	assert_int_equal(child_end(&first), 0);
	assert_int_equal(child_end(&second), 0);
	capture_drain(c);
	assert_int_equal(capture_count(c, TL_RAW_LLAMA_STEP), 3);
	src_bpf__del_target(c->bpf, second.pid);
	capture_close(c);
}

/* ---- what is said ---- */

struct said {
	size_t n, n_ok;
	int err;
	char reason[256];
};

static void remember(void *ctx, const char *probe, int err, const char *reason)
{
	struct said *s = ctx;

	assert_non_null(probe);
	assert_true(reason && *reason);
	s->n++;
	s->n_ok += !err;
	if (err) {
		s->err = err;
		snprintf(s->reason, sizeof(s->reason), "%s", reason);
	}
}

static void test_attach__says_why_not(void **state)
{
	const struct src_bpf_opts t0_only = { .ring_bytes = RING, .tiers = TL_T0 }, all = { .ring_bytes = RING };
	struct capture *c = capture_open(&t0_only);
	struct said said = { 0 };

	(void)state;
	assert_int_equal(src_bpf__attach_engine(c->bpf, getpid(), TL_ENGINE_LLAMA, remember, &said), 0);
	assert_int_equal(said.n, 12);
	assert_int_equal(said.n_ok, 0);
	assert_non_null(strstr(said.reason, "--tier"));
	capture_close(c);

	c = capture_open(&all);
	said = (struct said){ 0 };
	assert_int_equal(src_bpf__attach_engine(c->bpf, 0x3ffffff, TL_ENGINE_LLAMA, remember, &said), -ESRCH);
	assert_int_equal(said.n, 12);
	assert_string_equal(said.reason, "the process is gone");
	said = (struct said){ 0 };
	assert_int_equal(src_bpf__attach_engine(c->bpf, getppid(), TL_ENGINE_LLAMA, remember, &said), 0);
	assert_int_equal(said.err, -ENOENT);
	for (size_t i = 0; i < n_probes; i++)
		assert_true(!probes[i].engine || !(src_bpf__probes(c->bpf) >> i & 1));
	capture_close(c);
}

static void test_probe_check__goes_through_the_table(void **state)
{
	struct said said = { 0 };
	int n_system = 0, n_llama = 0;

	(void)state;
	for (size_t i = 0; i < n_probes; i++) {
		n_system += !probes[i].engine;
		n_llama += probes[i].engine == TL_ENGINE_LLAMA;
	}
	assert_int_equal(probe_check(0, 0, remember, &said), n_system);
	assert_int_equal(said.n, n_system);
	said = (struct said){ 0 };
	assert_int_equal(probe_check(getpid(), TL_ENGINE_LLAMA, remember, &said), n_system + n_llama);
	assert_int_equal(said.n_ok, n_system + n_llama);
	said = (struct said){ 0 };
	assert_int_equal(probe_check(0x3ffffff, 0, remember, &said), n_system);
	assert_int_equal(said.n, n_probes);
	assert_string_equal(said.reason, "no such process");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_batch__gives_membership),
		cmocka_unit_test(test_batches__are_told_apart),
		cmocka_unit_test(test_batch__joined_late_says_so),
		cmocka_unit_test(test_batch__of_many_runs_is_cut),
		cmocka_unit_test(test_step__inside_a_step_is_part_of_it),
		cmocka_unit_test(test_decode__reads_the_batch),
		cmocka_unit_test(test_tasks__from_post_to_release),
		cmocka_unit_test(test_strangers__are_not_probed),
		cmocka_unit_test(test_del_target__takes_the_probes_off),
		cmocka_unit_test(test_attach__says_why_not),
		cmocka_unit_test(test_probe_check__goes_through_the_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
