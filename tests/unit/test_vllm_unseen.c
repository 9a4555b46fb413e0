/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of vLLM's that came before the capture: by hand, and on a scheduler that is played, joined anywhere. */
#include "oom.h"
#include "vllm_sched_msg.h"
#include <errno.h>

/* ---- by hand ---- */

/* A sequence for one that runs unseen, as the adapter has one at hand. */
static void spare(struct fixture *f, uint32_t slot)
{
	f->seqs[slot].unseen = false;
	f->s.unseen.spare = slot + 1;
}

/* Of one that was not known, the first output is seen, and how long its prompt is; it ran unseen if `slot` does. */
static void shows(struct fixture *f, uint32_t slot, int64_t prompt)
{
	f->seqs[slot].prompt = prompt;
	f->seqs[slot].guess = true;
	if (f->s.unseen.runs == slot + 1) {
		f->s.unseen.runs = 0;
		f->seqs[slot].unseen = false;
	} else {
		assert_int_equal(vsched__arrive(&f->s, slot), 0);
	}
}

static void decodes(struct fixture *f, uint32_t slot)
{
	f->seqs[slot].state = VSEQ_DECODE;
	assert_int_equal(vsched__run(&f->s, slot), 0);
}

static int join(void **state)
{
	struct fixture *f;
	int err = setup(state);

	f = *state;
	f->s.unseen.since_ns = f->last_ns = f->now_ns;
	f->now_ns++;
	decodes(f, 30);
	return err;
}

static void test_unseen__runs_in_the_middle_of_its_prompt(void **state)
{
	struct fixture *f = *state;

	spare(f, 10);
	EXPECT(f, "30", "d30:1 p10:99?", .run = 2, .wait = 2);
	EXPECT(f, "30", "d30:1 p10:99?", .run = 2, .wait = 2);
	shows(f, 10, 230);
	spare(f, 11);
	/* the next one has what it left of the step */
	EXPECT(f, "30 10c0", "d30:1 p10:32? p11:67?", .run = 3, .wait = 1, .fresh = 1);
	EXPECT(f, "30 10", "d30:1 d10:1 p11:98?", .run = 3, .wait = 1);
}

/* One whose arrival was seen gives output: nobody is left that came before it. */
static void test_unseen__none_is_left_behind_a_known_one(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 20);
	spare(f, 10);
	EXPECT(f, "30", "d30:1 p10:99?", .run = 2, .wait = 1);
	shows(f, 10, 120);
	assert_false(f->s.unseen.none);
	EXPECT(f, "30 10c0 0c0", "d30:1 p10:21? p0:20", .run = 3, .fresh = 1);
	assert_true(f->s.unseen.none);
	arrive(f, 1, 250);
	EXPECT(f, "30 10 0", "d30:1 d10:1 d0:1 p1:97", .run = 4, .fresh = 1);
}

/* As many wait there as here: it may be the known one that was taken on, or the known one is on its way. */
static void test_unseen__in_doubt(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 250);
	EXPECT(f, "30", "d30:1 p0:99? open", .run = 2, .wait = 0, .fresh = 1);
	EXPECT(f, "30", "d30:1 p0:99? open", .run = 2, .wait = 0);
	EXPECT(f, "30 0c0", "d30:1 p0:52?", .run = 2);
	EXPECT(f, "30 0", "d30:1 d0:1", .run = 2);
	assert_true(f->s.unseen.none);
}

/* It was another one: what was thought of the known one goes to it. */
static void test_unseen__was_not_the_known_one(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 250);
	EXPECT(f, "30", "d30:1 p0:99? open", .run = 2, .wait = 0, .fresh = 1);
	shows(f, 10, 150);
	EXPECT(f, "30 10c0", "d30:1 p10:99?", .run = 2, .wait = 1);
	assert_int_equal(f->seqs[0].state, VSEQ_WAITING);
	EXPECT(f, "30 10", "d30:1 d10:1 p0:98? open", .run = 3, .fresh = 1);
}

/* Nor may it be the known one if that had shown, had it been taken on. */
static void test_unseen__a_known_one_would_have_shown(void **state)
{
	struct fixture *f = *state;

	arrive(f, 0, 20);
	spare(f, 10);
	EXPECT(f, "30", "d30:1 p10:99?", .run = 2, .wait = 0, .fresh = 1);
}

/* The one that ran unseen was a known one: that shows, and nobody else does. */
static void test_unseen__was_the_known_one(void **state)
{
	struct fixture *f = *state;

	EXPECT(f, "30", "d30:1", .run = 1, .wait = 2);
	arrive(f, 0, 250);
	spare(f, 10);
	EXPECT(f, "30", "d30:1 p10:99?", .run = 2, .wait = 2, .fresh = 1);
	EXPECT(f, "30", "d30:1 p10:99?", .run = 2, .wait = 0);
	EXPECT(f, "30 0c0", "d30:1 p0:52? over10", .run = 2);
	EXPECT(f, "30 0", "d30:1 d0:1", .run = 2);
}

/* All that were there when the capture began have had the time to reach the scheduler, and none of them waits. */
static void test_unseen__none_after_a_while(void **state)
{
	struct fixture *f = *state;

	EXPECT(f, "30", "d30:1", .run = 1, .wait = 0);
	assert_false(f->s.unseen.none);
	f->now_ns += LONG_NS;
	EXPECT(f, "30", "d30:1", .run = 1, .wait = 0);
	assert_true(f->s.unseen.none);
	arrive(f, 0, 250);
	EXPECT(f, "30", "d30:1 p0:99", .run = 2, .fresh = 1);
}

/* It loses its place, or its client leaves: nothing more is known of it. */
static void test_unseen__leaves(void **state)
{
	struct fixture *f = *state;

	spare(f, 10);
	EXPECT(f, "30", "d30:1 p10:99?", .run = 2);
	EXPECT(f, "30", "d30:1 over10", .run = 1, .wait = 1);
	f->s.unseen.abort_ns = f->last_ns;
	EXPECT(f, "30", "d30:1 open", .run = 1);	/* one that was told to stop may be in it */
	f->now_ns += LONG_NS;
	EXPECT(f, "30", "d30:1", .run = 1);
}

/* Without counters nothing tells of them, until a known one shows. */
static void test_unseen__no_counters(void **state)
{
	struct fixture *f = *state;

	EXPECT(f, "30", "d30:1 open", .run = -1);
	arrive(f, 0, 20);
	EXPECT(f, "30", "d30:1 open", .run = -1);
	EXPECT(f, "30 0c0", "d30:1 p0:20?", .run = -1);	/* whole, or a part: it came before the message before */
	EXPECT(f, "30 0", "d30:1 d0:1", .run = -1);
	arrive(f, 1, 40);
	EXPECT(f, "30 0 1c0", "d30:1 d0:1 p1:40", .run = -1);
}

/* Of two sockets, one says nothing of those that came on the other. */
static void test_unseen__several_sockets(void **state)
{
	struct fixture *f = *state;

	f->s.unseen.n_clients = 2;
	arrive(f, 0, 20);
	arrive(f, 1, 20);
	f->seqs[0].client = 1;
	f->seqs[1].client = 2;
	EXPECT(f, "30 0c0", "d30:1 p0:20 open", .run = -1);
	EXPECT(f, "30 0", "d30:1 d0:1 open", .run = -1);
	EXPECT(f, "30 0 1c0", "d30:1 d0:1 p1:20?", .run = -1);
	assert_true(f->s.unseen.none);
}

/* Two that came at once on two sockets: which of them was taken on shows later. */
static void test_sockets__read_in_turn(void **state)
{
	struct fixture *f = *state;

	f->s.unseen.none = true;
	f->s.unseen.n_clients = 2;
	f->s.complete = true;
	arrive(f, 0, 250);
	arrive(f, 1, 150);
	f->seqs[0].client = 1;
	f->seqs[1].client = 2;
	EXPECT(f, "30", "d30:1 p0:99?", .run = 2, .wait = 1, .fresh = 1);
	EXPECT(f, "30 1c0<", "d30:1 p1:51? p0:48?", .run = 3, .fresh = 1);
}

/* ---- a scheduler that is played ---- */

enum { N_REQUESTS = 90, N_STEPS = 160, BUDGET = 100, MAX_RUNNING = 6, MAX_SLOTS = 256, TICK_NS = 100000000 };

struct request {
	int prompt, cached, max_out;
	int sent, queued;	/* ticks: seen on the wire, known to the scheduler */
	int computed, n_planned, n_out;
	bool ran, over;
	int64_t taken_on_ns;
	int slot;		/* -1: not known to us */
};

struct part {
	int request, n;
	bool shows, fresh;
};

struct played {
	uint32_t random;
	bool async, counters;
	int joined, tick;
	struct request r[N_REQUESTS];
	int running[N_REQUESTS], n_running, next;	/* next: the first that waits */
	struct part plan[2][MAX_RUNNING];	/* this step's, the next one's */
	int n_plan[2];
	uint64_t n_new, hits;
	struct vsched s;
	struct vseq seqs[MAX_SLOTS];
	uint32_t n_slots;
	int of_slot[MAX_SLOTS];
	uint64_t last_ns;
	int n_exact, n_inferred, n_open;
};

static int draw(struct played *p, int from, int to)
{
	p->random = p->random * 1664525 + 1013904223;
	return from + (int)((p->random >> 8) % (uint32_t)(to - from + 1));
}

static uint64_t tick_ns(int tick)
{
	return 100000000000ull + (uint64_t)tick * TICK_NS;
}

static void send_requests(struct played *p)
{
	int late = 0;

	for (int i = 0; i < N_REQUESTS; i++) {
		struct request *r = &p->r[i];
		bool is_long = draw(p, 0, 2) > 0;

		/* A crowd, then one now and then; the first runs all the time. */
		r->sent = i < N_REQUESTS / 2 ? i / 8 : 40 + i;
		r->queued = r->sent + (i ? draw(p, 0, 3) : 0);
		late = r->queued > late ? r->queued : late;
		r->queued = late;	/* in the order in which they came */
		r->prompt = !i ? 5 : is_long ? draw(p, 80, 320) : draw(p, 1, 60);
		r->cached = draw(p, 0, 3) ? 0 : draw(p, 0, r->prompt - 1);
		r->max_out = !i ? 10 * N_STEPS : draw(p, 1, 9);
		r->slot = -1;
	}
}

static int take(struct played *p, int which, int i, int left, bool fresh)
{
	struct request *r = &p->r[i];
	int rest = r->prompt - r->cached - r->computed, n = rest > 0 ? rest : 1;
	struct part *part = &p->plan[which][p->n_plan[which]];

	if (r->n_planned >= r->max_out || !left)
		return 0;
	n = n < left ? n : left;
	if (rest > 0)
		r->computed += n;
	*part = (struct part){ i, n, n >= rest, fresh };
	r->n_planned += part->shows;
	p->n_plan[which]++;
	return n;
}

static void schedule(struct played *p, int which)
{
	int left = BUDGET;

	p->n_plan[which] = 0;
	for (int k = 0; k < p->n_running; k++)
		left -= take(p, which, p->running[k], left, false);
	while (left && p->n_running < MAX_RUNNING && p->next < N_REQUESTS && p->r[p->next].queued <= p->tick) {
		struct request *r = &p->r[p->next];

		p->running[p->n_running++] = p->next;
		r->taken_on_ns = tick_ns(p->tick) - TICK_NS / 4;
		p->n_new++;
		p->hits += r->cached;
		left -= take(p, which, p->next++, left, true);
	}
}

static int n_waiting(const struct played *p)
{
	int n = 0;

	for (int i = p->next; i < N_REQUESTS; i++)
		n += p->r[i].queued <= p->tick;
	return n;
}

/* Its first output is of one that we did not know. */
static void meet(struct played *p, struct request *r)
{
	struct vseq *q;

	r->slot = p->s.unseen.runs ? p->s.unseen.runs - 1 : p->n_slots++;
	q = &p->seqs[r->slot];
	p->of_slot[r->slot] = r - p->r;
	if (p->s.unseen.runs) {
		p->s.unseen.runs = 0;
		q->unseen = false;
		q->prompt = r->prompt;
		return;
	}
	*q = (struct vseq){ .slot = r->slot, .used = true, .cached = -1, .max_out = -1, .prompt = -1, .guess = true };
	if (r->n_out == 1) {
		q->prompt = r->prompt;
		q->cached = r->cached;
		assert_int_equal(vsched__arrive(&p->s, r->slot), 0);
	} else {
		q->state = VSEQ_DECODE;
		assert_int_equal(vsched__run(&p->s, r->slot), 0);
	}
}

static size_t give_output(struct played *p, struct vsched_row *rows)
{
	size_t n = 0;

	for (int k = 0; k < p->n_plan[0]; k++) {
		struct request *r = &p->r[p->plan[0][k].request];
		bool first = !r->n_out;

		if (!p->plan[0][k].shows)
			continue;
		r->n_out++;
		r->over = r->n_out == r->max_out;
		if (p->tick < p->joined)
			continue;
		if (r->slot < 0)
			meet(p, r);
		rows[n++] = (struct vsched_row){
			.slot = r->slot, .n_tokens = 1, .cached = first ? r->cached : -1, .finished = r->over,
			.by_length = r->over, .scheduled_ns = first && p->counters ? r->taken_on_ns : 0,
		};
	}
	for (int k = 0; k < p->n_running;)
		if (p->r[p->running[k]].over) {
			p->n_running--;
			memmove(p->running + k, p->running + k + 1, (p->n_running - k) * sizeof(int));
		} else {
			k++;
		}
	return n;
}

/* The members that we say, and those that there were. */
static void compare(struct played *p, const struct vsched_out *out)
{
	int sure = 0, inferred = 0, all = 0;

	for (int k = 0; k < p->n_plan[0]; k++)
		all += p->plan[0][k].n;
	for (size_t i = 0; i < out->n; i++) {
		const struct tl_member *m = &out->members[i];
		int n = -1;

		if (m->flags & TL_MEMBER_GUESS) {
			inferred++;
			continue;
		}
		sure += m->n_tokens;
		for (int k = 0; k < p->n_plan[0]; k++)
			if (p->plan[0][k].request == p->of_slot[m->slot])
				n = p->plan[0][k].n;
		assert_int_equal(m->n_tokens, n);
	}
	assert_true(sure + (out->open ? 0 : inferred) <= all);
	if (out->open) {
		p->n_open++;
		return;
	}
	assert_int_equal(out->n, p->n_plan[0]);
	p->n_inferred += inferred > 0;
	p->n_exact += !inferred;
	if (!inferred)
		assert_int_equal(sure, all);
}

static void observe(struct played *p, const struct vsched_row *rows, size_t n_rows)
{
	struct tl_member members[2 * MAX_RUNNING];
	struct vsched_out out = { .members = members, .max = ARRAY_SIZE(members) };
	struct vsched_in in = {
		.rows = rows, .n_rows = n_rows, .begin_ns = p->last_ns ? p->last_ns : tick_ns(p->tick), .end_ns = tick_ns(p->tick),
	};

	if (p->counters) {
		in.has_prefix = in.has_queues = true;
		in.new_requests = p->n_new;
		in.new_hits = p->hits;
		in.running = p->n_running;
		in.waiting = n_waiting(p);
	}
	if (!p->counters && !n_rows)
		return;
	p->s.unseen.spare = 0;
	if (vsched__wants_spare(&p->s, p->seqs, &in)) {
		p->seqs[p->n_slots] = (struct vseq){ .slot = p->n_slots, .used = true, .prompt = -1, .cached = -1, .max_out = -1 };
		p->of_slot[p->n_slots] = -1;
		p->s.unseen.spare = p->n_slots + 1;
	}
	assert_int_equal(vsched__step(&p->s, p->seqs, &in, &out), 0);
	p->n_slots += out.began;
	assert_true(out.is_step);
	compare(p, &out);
	for (size_t i = 0; i < out.n_over; i++)
		p->seqs[out.over[i]].state = VSEQ_DONE;
	p->last_ns = in.end_ns;
}

static void arrivals(struct played *p)
{
	for (int i = 0; i < N_REQUESTS; i++) {
		struct request *r = &p->r[i];

		if (r->sent != p->tick || p->tick < p->joined)
			continue;
		r->slot = p->n_slots++;
		p->of_slot[r->slot] = i;
		p->seqs[r->slot] = (struct vseq){
			.slot = r->slot, .used = true, .prompt = r->prompt, .cached = -1, .max_out = r->max_out,
			.arrived_ns = tick_ns(p->tick) - TICK_NS / 2 + i,
		};
		assert_int_equal(vsched__arrive(&p->s, r->slot), 0);
	}
}

/* Plays it to its end, joined at a tick. */
static void play(struct played *p, uint32_t seed, int joined, bool async, bool counters)
{
	struct vsched_row rows[MAX_RUNNING];

	*p = (struct played){ .random = seed, .async = async, .counters = counters, .joined = joined };
	p->s.budget = BUDGET;
	p->s.unseen.since_ns = tick_ns(joined) - TICK_NS * 3 / 4;
	send_requests(p);
	for (p->tick = 0; p->tick < N_STEPS; p->tick++) {
		size_t n;

		arrivals(p);
		p->n_new = p->hits = 0;
		if (async && p->tick) {
			memcpy(p->plan[0], p->plan[1], sizeof(p->plan[0]));
			p->n_plan[0] = p->n_plan[1];
			schedule(p, 1);
		} else {
			schedule(p, 0);
			if (async)
				schedule(p, 1);
		}
		n = give_output(p, rows);
		if (p->tick >= joined)
			observe(p, rows, n);
	}
	vsched__free(&p->s);
}

/* Joined at many points of many plays. Each step is compared while it is played; here it counts how much was certain. */
static void play_all(bool async, bool counters, int *ret_exact, int *ret_steps, int *ret_open)
{
	struct played *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	*ret_exact = *ret_steps = *ret_open = 0;
	for (int seed = 0; seed < 20; seed++)
		for (int joined = 1; joined < 60; joined += 3) {
			play(p, seed, joined, async, counters);
			*ret_exact += p->n_exact;
			*ret_steps += p->n_exact + p->n_inferred + p->n_open;
			*ret_open += p->n_open;
		}
	free(p);
}

static void test_played__joined_anywhere(void **state)
{
	int exact, steps, open;

	(void)state;
	play_all(false, true, &exact, &steps, &open);
	assert_int_equal(steps, 20 * (20 * N_STEPS - 20 * (1 + 58) / 2));
	assert_in_range(exact, steps * 7 / 10, steps);
	assert_in_range(open, 1, steps / 25);
}

static void test_played__planning_ahead(void **state)
{
	int exact, steps, open;

	(void)state;
	play_all(true, true, &exact, &steps, &open);
	assert_in_range(exact, steps * 6 / 10, steps);
	assert_in_range(open, 1, steps / 5);
}

static void test_played__without_counters(void **state)
{
	int exact, steps, open;

	(void)state;
	play_all(false, false, &exact, &steps, &open);
	assert_in_range(exact, 1000, steps);
	assert_in_range(open, steps / 2, steps);
}

/* Nothing is lost of it but what cannot be had. */
static void test_unseen__survives_oom(void **state)
{
	(void)state;
	OOM_LOOP({
		struct fixture *f;
		void *made;
		int err;

		oom_after(-1);
		join(&made);
		f = made;
		arrive(f, 0, 250);
		oom_after(oom_i);
		err = message(f, STEP_NS, "30", (struct says){ .run = 2, .fresh = 1 });
		spare(f, 11);
		if (!err)
			err = message(f, STEP_NS, "30", (struct says){ .run = 3, .wait = 4, .fresh = 1 });
		if (!err)
			err = message(f, STEP_NS, "30 0c0", (struct says){ .run = 2 });
		assert_true(!err || err == -ENOMEM);
		teardown(&made);
	});
}

#define J(name) cmocka_unit_test_setup_teardown(test_##name, join, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		J(unseen__runs_in_the_middle_of_its_prompt), J(unseen__none_is_left_behind_a_known_one),
		J(unseen__in_doubt), J(unseen__was_not_the_known_one), J(unseen__a_known_one_would_have_shown),
		J(unseen__was_the_known_one), J(unseen__none_after_a_while), J(unseen__leaves), J(unseen__no_counters),
		J(unseen__several_sockets), J(sockets__read_in_turn), cmocka_unit_test(test_unseen__survives_oom),
		cmocka_unit_test(test_played__joined_anywhere), cmocka_unit_test(test_played__planning_ahead),
		cmocka_unit_test(test_played__without_counters),
	};

	return cmocka_run_group_tests_name("vllm_unseen", tests, NULL, NULL);
}
