/* SPDX-License-Identifier: Apache-2.0 */
/* Messages made by hand for the follower of vLLM's scheduler, and what it makes of them, as text. */
#ifndef TL_VLLM_SCHED_MSG_H
#define TL_VLLM_SCHED_MSG_H

#include "unit.h"

#include "engine/vllm_sched.h"
#include <string.h>

enum { N_SEQS = 40, MAX_MEMBERS = 64, STEP_NS = 10000000, LONG_NS = 2000000000 };

struct fixture {
	struct vsched s;
	struct vseq seqs[N_SEQS];
	uint64_t now_ns, last_ns;	/* last_ns: of the message before */
	bool woke;
	char text[1024];
};

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->s.budget = 100;
	f->s.async_votes = -1;
	f->now_ns = 1000ull * STEP_NS;
	for (uint32_t i = 0; i < N_SEQS; i++)
		f->seqs[i] = (struct vseq){ .slot = i, .used = true, .prompt = -1, .cached = -1, .max_out = -1 };
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	vsched__free(&f->s);
	free(f);
	return 0;
}

/* What the counters of a message say. */
struct says {
	int run, wait;		/* run < 0: there are none */
	int fresh, hits;	/* taken on, and their cached tokens */
	int prompts;		/* and the sum of their prompts */
	int again, again_hits;
	int drafted;
	bool cut;
	int scheduled;		/* ns behind the message before; 0: not said */
};

static inline bool is_idle(const struct fixture *f)
{
	return !f->s.running.n && !f->s.waiting.n && !f->s.plan.n;
}

static inline void arrive(struct fixture *f, uint32_t slot, int64_t prompt)
{
	if (is_idle(f)) {
		f->woke = true;
		f->last_ns = f->now_ns;
	}
	f->seqs[slot].prompt = prompt;
	f->seqs[slot].arrived_ns = f->now_ns++;
	assert_int_equal(vsched__arrive(&f->s, slot), 0);
}

static inline void stop(struct fixture *f, uint32_t slot, uint64_t ns_behind)
{
	f->seqs[slot].abort_ns = f->last_ns + ns_behind;
}

/* "3 4*2 5c64 6. 7! 8x": outputs of these slots; *n tokens, c cached ones; it stopped (.), reached its
 * length (!), failed without a token (x), was taken on in a step before (<). */
static inline size_t parse_rows(const char *s, struct vsched_row *rows)
{
	size_t n = 0;

	while (*s) {
		struct vsched_row *r = &rows[n++];
		char *end;

		*r = (struct vsched_row){ .slot = strtoul(s, &end, 10), .n_tokens = 1, .cached = -1 };
		for (s = end; *s && *s != ' ';) {
			switch (*s++) {
			case '*':
				r->n_tokens = strtol(s, &end, 10);
				s = end;
				break;
			case 'c':
				r->cached = strtol(s, &end, 10);
				s = end;
				break;
			case '<':
				r->scheduled_ns = 1;
				break;
			case '!':
				r->by_length = r->finished = true;
				break;
			case '.':
				r->finished = true;
				break;
			case 'x':
				r->n_tokens = 0;
				r->failed = r->finished = true;
				break;
			default:
				fail();
			}
		}
		s += *s == ' ';
	}
	return n;
}

static inline void put(struct fixture *f, const char *fmt, ...)
{
	size_t len = strlen(f->text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->text + len, sizeof(f->text) - len, fmt, ap);
	va_end(ap);
}

/* The members: p or d, slot and tokens; ? inferred, ~ computed again, 0 without output where a decode has
 * none. Then who lost its place and who is over. "-": no step. */
static inline void render(struct fixture *f, const struct vsched_out *out)
{
	*f->text = 0;
	for (size_t i = 0; i < out->n && out->is_step; i++) {
		const struct tl_member *m = &out->members[i];

		put(f, "%s%c%u:%u%s%s%s", i ? " " : "", m->phase == TL_PREFILL ? 'p' : 'd', m->slot, m->n_tokens,
		    m->flags & TL_MEMBER_GUESS ? "?" : "", m->flags & TL_MEMBER_AGAIN ? "~" : "",
		    m->phase == TL_DECODE && !m->n_out ? "/0" : "");
	}
	if (!out->is_step)
		put(f, "-");
	put(f, out->is_step && out->open ? " open" : "");
	for (size_t i = 0; i < out->n_preempted; i++)
		put(f, " lost%u", out->preempted[i]);
	for (size_t i = 0; i < out->n_over; i++) {
		put(f, " over%u", out->over[i]);
		f->seqs[out->over[i]].state = VSEQ_DONE;
	}
}

static inline int message(struct fixture *f, uint64_t ns, const char *text, struct says c)
{
	struct vsched_row rows[N_SEQS];
	struct tl_member members[MAX_MEMBERS];
	struct vsched_out out = { .members = members, .max = MAX_MEMBERS };
	struct vsched_in in = {
		.rows = rows, .n_rows = parse_rows(text, rows), .cut = c.cut,
		.has_prefix = c.run >= 0, .new_requests = c.fresh, .new_hits = c.hits, .new_prompts = c.prompts,
		.again_requests = c.again, .again_hits = c.again_hits,
		.draft_tokens = c.drafted,
		.has_queues = c.run >= 0, .running = c.run, .waiting = c.wait,
		.begin_ns = f->last_ns, .end_ns = f->now_ns += ns, .woke = f->woke,
		.scheduled_ns = c.scheduled ? f->last_ns + c.scheduled : 0,
	};
	int err = vsched__step(&f->s, f->seqs, &in, &out);

	if (!err)
		render(f, &out);
	f->last_ns = f->now_ns++;
	f->woke &= !out.is_step;
	return err;
}

#define EXPECT(f, rows, want, ...) do {									\
	assert_int_equal(message(f, STEP_NS, rows, (struct says){ __VA_ARGS__ }), 0);			\
	assert_string_equal((f)->text, want);								\
} while (0)

static inline void two_run(struct fixture *f)
{
	arrive(f, 0, 40);
	arrive(f, 1, 30);
	EXPECT(f, "0c0 1c0", "p0:40 p1:30", .run = 2, .fresh = 2);
	EXPECT(f, "0 1", "d0:1 d1:1", .run = 2);
}

#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

#endif
