/* SPDX-License-Identifier: Apache-2.0 */
/* Models made by hand and what blame says of them: for tests of gaps and of TTFTs. */
#ifndef TL_BLAME_HELP_H
#define TL_BLAME_HELP_H

#include "unit.h"
#include "fake_view.h"
#include "model/blame.h"
#include "model/evidence.h"

#include <errno.h>

#define MS(x) ((uint64_t)((x) * 1e6 + 0.5))

enum { MAX_GAPS = 4000 };
struct told {
	struct fake *f;
	struct evidence evidence;
	struct blame *b;
	struct gap gaps[MAX_GAPS];
	size_t n;
};

static inline int setup(void **state)
{
	struct told *t = calloc(1, sizeof(*t));

	t->f = fake__new();
	t->f->v.evidence = &t->evidence;
	*state = t;
	return 0;
}

static inline int teardown(void **state)
{
	struct told *t = *state;

	blame__free(t->b);
	evidence_free(&t->evidence);
	fake__free(t->f);
	free(t);
	return 0;
}

static inline uint64_t sum_of(const struct gap *g)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < g->n_parts; i++) {
		assert_true(g->parts[i].ns > 0);
		assert_true(!i || g->parts[i].ns <= g->parts[i - 1].ns);
		ns += g->parts[i].ns;
	}
	return ns;
}

static inline int keep(void *ctx, const struct gap *g)
{
	struct told *t = ctx;

	assert_int_equal(sum_of(g), g->t1_ns - g->t0_ns);
	assert_true(t->n < MAX_GAPS);
	t->gaps[t->n++] = *g;
	return 0;
}

static inline void explain(struct told *t, uint32_t request)
{
	if (!t->b)
		assert_int_equal(blame__new(&t->f->v, &t->b), 0);
	t->n = 0;
	assert_int_equal(blame__gaps(t->b, request, keep, t), 0);
}

static inline const struct gap *ttft(struct told *t, uint32_t request)
{
	struct gap *g = &t->gaps[0];

	if (!t->b)
		assert_int_equal(blame__new(&t->f->v, &t->b), 0);
	assert_true(blame__ttft(t->b, request, g));
	assert_int_equal(sum_of(g), g->t1_ns - g->t0_ns);
	return g;
}

static inline uint64_t of(const struct gap *g, enum mechanism m)
{
	uint64_t ns = 0;

	for (size_t i = 0; i < g->n_parts; i++)
		ns += g->parts[i].mechanism == m ? g->parts[i].ns : 0;
	return ns;
}

/* Its only part of this mechanism. */
static inline const struct blame_part *part(const struct gap *g, enum mechanism m)
{
	const struct blame_part *ret = NULL;

	for (size_t i = 0; i < g->n_parts; i++)
		if (g->parts[i].mechanism == m) {
			assert_null(ret);
			ret = &g->parts[i];
		}
	assert_non_null(ret);
	return ret;
}

static inline const struct gap *odd(const struct told *t, size_t which)
{
	for (size_t i = 0; i < t->n; i++)
		if (gap_is_odd(&t->gaps[i]) && !which--)
			return &t->gaps[i];
	return NULL;
}

static inline void assert_who(const struct culprit *who, enum culprit_type type, uint32_t id)
{
	assert_int_equal(who->type, type);
	assert_int_equal(who->id, id);
}

/* ---- models: one request per sequence, number i has sequence i; a token is written as it is made ---- */

static inline uint32_t answer(struct fake *f, double begin_ms)
{
	struct rec_request *r = fake_request(f, begin_ms);

	fake_point(r, P_REQ_LAST_BYTE, begin_ms);
	return fake_seq(f, r, (uint32_t)f->v.n_seqs);
}

static inline void write_at(struct fake *f, uint32_t seq, double ms)
{
	fake_chunk(&f->reqs[seq], ms, TL_CHUNK_TEXT);
	fake_end(f, ms);
}

static inline void decode(struct fake *f, uint32_t seq, double end_ms)
{
	fake_member(f, seq, 'd', 1);
	write_at(f, seq, end_ms);
}

/* Steps one behind the other in which these decode. Returns the end of the last one. */
static inline double run(struct fake *f, double at_ms, size_t n, double ms, uint32_t n_seqs)
{
	for (size_t i = 0; i < n; i++, at_ms += ms) {
		fake_step(f, at_ms, at_ms + ms);
		for (uint32_t s = 0; s < n_seqs; s++)
			decode(f, s, at_ms + ms);
	}
	return at_ms;
}

static inline double begin(struct fake *f, uint32_t n_seqs)
{
	fake_step(f, 0, 20);
	for (uint32_t s = 0; s < n_seqs; s++) {
		answer(f, 0);
		fake_member(f, s, 'P', 64);
		write_at(f, s, 20);
	}
	return 20;
}

/* S1: a long prompt in two steps of two others; it is request 2. */
static inline double long_prompt(struct fake *f)
{
	double t = run(f, begin(f, 2), 49, 20, 2);	/* until 1000 */
	uint32_t c;

	t = run(f, t, 1, 20, 2);
	c = answer(f, 1005);
	for (char what = 'p'; what; what = what == 'p' ? 'P' : 0, t += 180) {
		fake_step(f, t, t + 180);
		decode(f, 0, t + 180);
		decode(f, 1, t + 180);
		fake_member(f, c, what, 4094);
	}
	write_at(f, c, t);
	return run(f, t, 48, 20, 3);
}

#endif
