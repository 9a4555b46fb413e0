/* SPDX-License-Identifier: Apache-2.0 */
/* Events with any values in any order: the model takes them, and the parts of each gap add up. */
#include "model/blame.h"
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
	const struct event_kind *k = event_kind(pick < 128 ? often[pick % 5] : pick % 33);
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
	blame__free(b);
	model__free(m);
	return 0;
}
