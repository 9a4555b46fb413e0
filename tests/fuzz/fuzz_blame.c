/* SPDX-License-Identifier: Apache-2.0 */
/* Events with any values in any order: the model takes them, the parts of each gap add up, located clues lie
 * in the span that was asked about and do not overlap. */
#include "model/blame_how.h"
#include "model/claims.h"
#include "model/clues.h"
#include "model/health.h"
#include "parse/event.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = 6 };

struct source {
	const uint8_t *data;
	size_t len, at;
	uint64_t now_ns;
};

static uint8_t next(struct source *s)
{
	return s->at < s->len ? s->data[s->at++] : 0;
}

/* Mostly now; a time that lies elsewhere, or none, now and then. */
static uint64_t next_time(struct source *s)
{
	uint8_t b = next(s);

	if (b >= 250)
		return b & 1 ? 0 : (uint64_t)b << 40;
	return s->now_ns + b * 100000ull - 2000000;
}

static void fill(struct source *s, uint8_t *rec, const struct event_field *fields, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct event_field *f = &fields[i];
		size_t len = strlen(f->name);
		bool is_time = f->bytes == 8 && len > 3 && !strcmp(f->name + len - 3, "_ns");
		uint64_t value = is_time ? next_time(s) : next(s);

		if (!is_time && value < 200)
			value &= 7;	/* numbers that meet each other */
		if (f->bytes <= sizeof(value) && f->role != EVENT_PAD && f->role != EVENT_IMPLIED)
			memcpy(rec + f->offset, &value, f->bytes);
	}
}

static void feed_one(struct source *s, struct model *m)
{
	static _Alignas(8) uint8_t rec[4096];
	static const uint16_t often[] = { TL_STEP, TL_STEP, TL_STEP, TL_CHUNK, TL_CHUNK };
	uint8_t pick = next(s);
	const struct event_kind *k = event_kind(pick < 128 ? often[pick % 5] : pick % 36);
	struct tl_hdr *h = (struct tl_hdr *)rec;
	struct tl_step *step = (struct tl_step *)rec;

	if (!k)
		return;
	memset(rec, 0, sizeof(rec));
	fill(s, rec, k->fields, k->n_fields);
	s->now_ns += next(s) * 50000ull;
	*h = (struct tl_hdr){ k->size, k->kind, next(s), 1 + (next(s) & 1), next(s) & 3, s->now_ns };
	if (k->kind == TL_STEP) {
		step->n_members %= MAX_MEMBERS + 1;
		step->result = step->result > 100;
		for (unsigned i = 0; i < step->n_members; i++)
			fill(s, rec + k->size + i * k->array->elem_size, k->array->fields,
			     k->array->n_fields);
		h->size = (uint16_t)event_size(k, step->n_members);
	}
	if (model__feed(m, h))
		abort();
}

static int check(void *ctx, const struct gap *g)
{
	uint64_t ns = 0;

	(void)ctx;
	for (size_t i = 0; i < g->n_parts; i++)
		ns += g->parts[i].ns;
	if (ns != g->t1_ns - g->t0_ns || g->n_parts > MAX_PARTS)
		abort();
	return 0;
}

static void check_located(const struct clue_list *l, uint64_t t0_ns, uint64_t t1_ns)
{
	uint64_t end_ns = t0_ns;

	if (l->n > MAX_CLUES)
		abort();
	for (size_t i = 0; i < l->n; i++) {
		const struct clue *k = &l->v[i];

		if (!k->ns || k->mechanism >= N_MECHANISMS || k->who.type >= N_CULPRIT_TYPES ||
		    strnlen(k->who.name, sizeof(k->who.name)) == sizeof(k->who.name))
			abort();
		if (!k->t1_ns)	/* the list was full: what has no place any more comes first */
			continue;
		if (k->t0_ns < end_ns || k->t1_ns > t1_ns || k->t1_ns - k->t0_ns != k->ns)
			abort();
		end_ns = k->t1_ns;
	}
}

static void check_clues(const struct model_view *v)
{
	static const uint64_t ms = 1000000;
	struct clue_list l;
	struct clues *c;

	if (clues__new(v, &c))
		abort();
	for (uint64_t t = 990 * ms; t < 2000 * ms; t += 37 * ms)
		for (uint32_t e = 0; e < v->n_engines; e++) {
			clues__engine(c, e, t, t + 50 * ms, &l);
			check_located(&l, t, t + 50 * ms);
			clues__front(c, e, t, t + 50 * ms,
				     v->n_requests ? t % v->n_requests : UINT32_MAX, &l);
			check_located(&l, t, t + 50 * ms);
		}
	for (uint32_t r = 0; r < v->n_requests; r++) {
		struct culprit by;

		clues__send(c, r, 0, UINT64_MAX, &l);
		check_located(&l, 0, UINT64_MAX);
		for (size_t i = 0; i < v->requests[r].n_chunks; i++) {
			uint64_t at = clues__delivered_ns(c, r, i, &by);

			if (at && at < chunk_ns(&v->requests[r], i))
				abort();
		}
	}
	for (uint32_t s = 0; s < v->n_steps; s++)
		clues__step(c, s, s % 3 * ms, &l);
	clues__free(c);
}

static void check_hows(struct blame *b, const struct model_view *v)
{
	static struct hows h;
	struct blame_sum *s;

	if (blame_sum__new(b, v, &s) || blame__how(b, s, &h))
		abort();
	for (size_t i = 0; i < h.n; i++) {
		const struct how *k = &h.v[i];

		if (k->mechanism >= N_MECHANISMS || k->engine >= v->n_engines || k->lost_ns > k->steps_ns ||
		    k->busy_pct > 100 || k->all_busy_pct > 100 || k->late.waiting_busy_pct > 100)
			abort();
		if (k->mechanism == MECH_DETOKENIZER ? k->backlog.written_ns < k->backlog.made_ns : !k->n_steps)
			abort();
	}
	blame_sum__free(s);
}

static void check_claims(const struct model_view *v)
{
	struct claim_judged *j;
	struct health h;
	size_t n;

	if (claims_judge(v, &j, &n) || health_notes(v, &h))
		abort();
	for (size_t i = 0; i < n; i++)
		if (j[i].request >= v->n_requests || j[i].stamp > N_POINTS)
			abort();
	free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct source s = { data, len, 0, 1000000000 };
	struct model *m = model__new(NULL);
	static struct gap g;
	struct model_view v;
	struct blame *b;

	if (!m)
		return 0;
	while (s.at < s.len)
		feed_one(&s, m);
	if (model__finish(m))
		abort();
	model__view(m, &v);
	if (blame__new(&v, &b))
		abort();
	for (uint32_t i = 0; i < v.n_requests; i++) {
		if (blame__gaps(b, i, check, NULL))
			abort();
		if (blame__ttft(b, i, &g))
			check(NULL, &g);
	}
	check_hows(b, &v);
	blame__free(b);
	check_clues(&v);
	check_claims(&v);
	model__free(m);
	return 0;
}
