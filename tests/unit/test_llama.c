/* SPDX-License-Identifier: Apache-2.0 */
/* llama.cpp's adapter: call orders seen on real servers, as steps, sequences and links. */
#include "unit.h"

#include "engine/llama.h"
#include "wire_feed.h"
#include <errno.h>

enum { TGID = 100, LOOP = 200 };	/* process, engine thread */

struct fixture {
	struct wire *w;
	struct llama *l;
	struct wire_log log;
	uint64_t now;
};

static int note(void *ctx, const struct tl_hdr *ev)
{
	struct wire_log *log = ctx;
	const struct tl_step *st = (const void *)ev;
	const struct tl_seq_begin *begin = (const void *)ev;
	const struct tl_seq_end *end = (const void *)ev;
	const struct tl_seq_link *link = (const void *)ev;

	switch (ev->kind) {
	case TL_STEP:
		wire_log_add(log, "step");
		for (int i = 0; i < st->n_members; i++)
			wire_log_add(log, " %u:%c%u@%d/%u", st->members[i].slot,
				     st->members[i].phase == TL_PREFILL ? 'p' : 'd', st->members[i].n_tokens,
				     st->members[i].pos, st->members[i].n_out);
		wire_log_add(log, st->result ? " failed\n" : "\n");
		break;
	case TL_SEQ_BEGIN:
		wire_log_add(log, "begin %u kept %d\n", begin->slot, begin->kept);
		break;
	case TL_SEQ_END:
		wire_log_add(log, "end %u\n", end->slot);
		break;
	case TL_SEQ_LINK:
		wire_log_add(log, "link r%u slot %d task %d\n", link->req, link->slot, link->task);
		break;
	}
	return 0;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->w = wire__new(NULL, &(struct emit){ note, &f->log });
	f->l = llama__new(f->w, &(struct emit){ note, &f->log });
	*state = f;
	return f->w && f->l ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	llama__free(f->l);
	wire__free(f->w);
	free(f);
	return 0;
}

static void task(struct fixture *f, uint32_t tid, uint32_t what, int task_id, int slot, int parent)
{
	struct tl_raw_llama_task e = {
		.hdr = { sizeof(e), TL_RAW_LLAMA_TASK, 0, TGID, tid, f->now += 10 },
		.what = what, .task = task_id, .slot = slot, .parent = parent,
	};

	assert_int_equal(llama__feed(f->l, &e.hdr), 0);
}

static void seq_rm(struct fixture *f, int seq, int p0)
{
	struct tl_raw_llama_seq_rm e = { .hdr = { sizeof(e), TL_RAW_LLAMA_SEQ_RM, 0, TGID, LOOP, f->now += 10 },
					 .seq = seq, .p0 = p0, .p1 = -1 };

	assert_int_equal(llama__feed(f->l, &e.hdr), 0);
}

/* runs: "slot n out" triples. */
static void step_of(struct fixture *f, uint64_t ctx, int result, const char *runs)
{
	struct tl_raw_llama_step e = {
		.hdr = { 0, TL_RAW_LLAMA_STEP, 0, TGID, LOOP, f->now += 10 },
		.end_ns = f->now + 5, .ctx = ctx, .result = result, .api = 1,
	};
	int used;

	for (int seq, n, out; sscanf(runs, "%d %d %d%n", &seq, &n, &out, &used) == 3; runs += used) {
		e.runs[e.n_runs++] = (struct tl_llama_run){ seq, n, -1, out };
		e.n_tokens += n;
	}
	e.hdr.size = sizeof(e) - sizeof(e.runs) + e.n_runs * sizeof(e.runs[0]);
	assert_int_equal(llama__feed(f->l, &e.hdr), 0);
}

static void step(struct fixture *f, const char *runs)
{
	step_of(f, 0x1000, 0, runs);
}

/* A request of which this thread read the whole. */
static void request(struct fixture *f, uint32_t tid, uint64_t sock)
{
	static const char text[] = "POST /completion HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
	struct { struct tl_raw_net e; char data[sizeof(text) + 8]; } ev = { 0 };

	ev.e.hdr = (struct tl_hdr){ (sizeof(ev.e) + sizeof(text) + 7) & ~7u, TL_RAW_NET, 0, TGID, tid, f->now += 10 };
	ev.e.sock = sock;
	ev.e.total = ev.e.head = sizeof(text) - 1;
	ev.e.dir = TL_IN;
	memcpy(ev.e.data, text, sizeof(text) - 1);
	assert_int_equal(wire__feed(f->w, &ev.e.hdr), 0);
}

static void test_llama__one_request(void **state)
{
	struct fixture *f = *state;

	request(f, 301, 5);
	task(f, 301, TL_TASK_NEW_ID, 7, -1, -1);
	task(f, 301, TL_TASK_POST, 7, -1, -1);
	task(f, LOOP, TL_TASK_LAUNCH, 7, 2, -1);
	seq_rm(f, 2, 0);
	step(f, "2 512 0");
	seq_rm(f, 2, 512);
	step(f, "2 90 1");
	step(f, "2 1 1");
	step(f, "2 1 1");
	task(f, LOOP, TL_TASK_RELEASE, -1, 2, -1);
	assert_string_equal(f->log.text,
		"link r1 slot -1 task 7\n"
		"link r1 slot 2 task 7\n"
		"begin 2 kept 0\n"
		"step 2:p512@0/0\n"
		"step 2:p90@512/1\n"
		"step 2:d1@602/1\n"
		"step 2:d1@603/1\n"
		"end 2\n");
}

static void test_llama__cached_prompt_of_one_token(void **state)
{
	struct fixture *f = *state;

	task(f, LOOP, TL_TASK_LAUNCH, 1, 0, -1);
	seq_rm(f, 0, 601);
	step(f, "0 1 1");	/* all of it was cached but the last token: still prefill */
	step(f, "0 1 1");
	assert_string_equal(f->log.text, "link r0 slot 0 task 1\nbegin 0 kept 601\n"
			    "step 0:p1@601/1\nstep 0:d1@602/1\n");
}

static void test_llama__prompt_into_running_decode(void **state)
{
	struct fixture *f = *state;

	task(f, LOOP, TL_TASK_LAUNCH, 1, 0, -1);
	seq_rm(f, 0, 0);
	step(f, "0 5 1");
	task(f, LOOP, TL_TASK_LAUNCH, 2, 1, -1);
	seq_rm(f, 1, 0);
	step(f, "0 1 1 1 511 0");
	seq_rm(f, 1, 511);
	step(f, "0 1 1 1 9 1");
	step(f, "0 1 1 1 1 1");
	assert_non_null(strstr(f->log.text, "step 0:d1@5/1 1:p511@0/0\nstep 0:d1@6/1 1:p9@511/1\n"
			       "step 0:d1@7/1 1:d1@520/1\n"));
}

static void test_llama__slot_used_again(void **state)
{
	struct fixture *f = *state;

	/* no launch probe: a seq_rm after output is a new prompt */
	seq_rm(f, 0, 0);
	step(f, "0 5 1");
	step(f, "0 1 1");
	seq_rm(f, 0, 4);
	step(f, "0 3 1");
	assert_string_equal(f->log.text, "begin 0 kept 0\nstep 0:p5@0/1\nstep 0:d1@5/1\n"
			    "begin 0 kept 4\nstep 0:p3@4/1\n");
}

static void test_llama__rejected_drafts(void **state)
{
	struct fixture *f = *state;

	seq_rm(f, 0, 0);
	step(f, "0 5 1");
	step(f, "0 4 4");	/* one token and three drafts */
	seq_rm(f, 0, 7);	/* two of them rejected */
	step(f, "0 4 4");
	assert_string_equal(f->log.text, "begin 0 kept 0\nstep 0:p5@0/1\nstep 0:d4@5/4\nstep 0:d4@7/4\n");
}

static void test_llama__parallel_answers(void **state)
{
	struct fixture *f = *state;

	request(f, 301, 5);
	task(f, 301, TL_TASK_POST, 10, -1, -1);
	task(f, LOOP, TL_TASK_LAUNCH, 11, 1, 10);	/* the child first */
	task(f, LOOP, TL_TASK_LAUNCH, 10, 0, -1);
	seq_rm(f, 0, 0);
	step(f, "0 8 1");
	seq_rm(f, 1, -1);
	step(f, "0 1 1 1 1 1");
	assert_string_equal(f->log.text, "link r1 slot -1 task 10\nlink r1 slot 1 task 11\nlink r1 slot 0 task 10\n"
			    "begin 0 kept 0\nstep 0:p8@0/1\nstep 0:d1@8/1 1:d1@-1/1\n");
}

static void test_llama__joined_late(void **state)
{
	struct fixture *f = *state;

	step(f, "0 1 1");	/* decoding already */
	seq_rm(f, 1, 512);	/* the second chunk of a prompt, or a cached one: nobody can tell */
	step(f, "0 1 1 1 512 0");
	seq_rm(f, 1, 1024);
	step(f, "0 1 1 1 10 1");
	step(f, "0 1 1 1 1 1");
	assert_string_equal(f->log.text, "step 0:d1@-1/1\nstep 0:d1@-1/1 1:p512@512/0\n"
			    "step 0:d1@-1/1 1:p10@1024/1\nstep 0:d1@-1/1 1:d1@1034/1\n");
}

static void test_llama__failed_step_and_draft_model(void **state)
{
	struct fixture *f = *state;

	step_of(f, 0x1000, 1, "0 5 1");
	step_of(f, 0x1000, 0, "0 5 1");
	step_of(f, 0x2000, 0, "0 5 1");	/* another context: slots of its own */
	assert_string_equal(f->log.text, "step failed\nstep 0:p5@-1/1\nstep 65536:p5@-1/1\n");
}

static void test_llama__task_of_nobody(void **state)
{
	struct fixture *f = *state;

	task(f, 999, TL_TASK_POST, 5, -1, -1);	/* a thread that read no request */
	task(f, LOOP, TL_TASK_LAUNCH, 5, 0, -1);
	task(f, LOOP, TL_TASK_LAUNCH, 6, -1, -1);
	assert_string_equal(f->log.text, "link r0 slot 0 task 5\n");
}

static void test_llama__damaged_event(void **state)
{
	struct fixture *f = *state;
	struct tl_raw_llama_step e = { .hdr = { 56, TL_RAW_LLAMA_STEP, 0, TGID, LOOP, 1 }, .n_runs = 1000000 };

	assert_int_equal(llama__feed(f->l, &e.hdr), -EBADMSG);
}

static void test_llama__survives_oom(void **state)
{
	struct fixture *f = *state;

	OOM_LOOP(llama__free(llama__new(f->w, &(struct emit){ note, &f->log })));
}

#define T(name) cmocka_unit_test_setup_teardown(test_llama__##name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(one_request), T(cached_prompt_of_one_token), T(prompt_into_running_decode),
		T(slot_used_again), T(rejected_drafts), T(parallel_answers), T(joined_late),
		T(failed_step_and_draft_model), T(task_of_nobody), T(damaged_event), T(survives_oom),
	};

	return cmocka_run_group_tests_name("llama", tests, NULL, NULL);
}
