/* SPDX-License-Identifier: Apache-2.0 */
/* Launches, spans and tokens with any values in any order: the model takes them, and what it says of devices adds up. */
#include "model/gpu.h"
#include "model/gpu_bubbles.h"
#include "model/model.h"
#include "tl_event.h"

#include <stdlib.h>
#include <string.h>

struct source {
	const uint8_t *data;
	size_t len, at;
	uint64_t now_ns;
};

static uint8_t next(struct source *s)
{
	return s->at < s->len ? s->data[s->at++] : 0;
}

/* Mostly near now; now and then a time that lies elsewhere. */
static uint64_t next_time(struct source *s)
{
	uint8_t b = next(s);

	if (b >= 250)
		return b & 1 ? (uint64_t)b << 56 : (uint64_t)b << 36;
	return s->now_ns + b * 10000ull - 500000;
}

static void launch(struct source *s, struct model *m)
{
	uint8_t call = next(s), corr = next(s), how = next(s);
	struct tl_gpu_launch e = {
		.hdr = { sizeof(e), TL_GPU_LAUNCH, how >> 4, 1 + (how & 1), 1 + (how >> 1 & 1), next_time(s) },
		.dur_ns = next(s) * 3000ull, .corr = corr & 1 ? corr >> 1 : 0, .stream = call >> 6,
		.what = call >> 4 & 3, .n = how == 77 ? 0 : 1 + (how == 78) * 20, .call = 1 + call % 6,
	};

	if (model__feed(m, &e.hdr))
		abort();
}

static void span(struct source *s, struct model *m)
{
	uint8_t what = next(s), corr = next(s), name = next(s);
	struct tl_gpu_span e = {
		.hdr = { sizeof(e), TL_GPU_SPAN, what & 32 ? TL_F_GUESS : 0, 1 + (name & 1), 0, next_time(s) },
		.corr = corr >> 1, .device = name >> 1 & 1, .stream = what >> 6, .name = name >> 5,
		.graph = corr & 1 ? what & 7 : 0, .what = 1 + what % 5, .copy = name & 15,
	};

	e.end_ns = name == 255 ? next_time(s) : e.hdr.ts_ns + next(s) * 5000ull;
	if (model__feed(m, &e.hdr))
		abort();
}

static void name(struct source *s, struct model *m)
{
	static const char *const names[] = { "_ZN3foo3barIL", "ncclAllReduce", "argmax", "void a::b<c>(d)" };
	uint8_t b = next(s);
	struct tl_gpu_name e = { .hdr = { sizeof(e), TL_GPU_NAME, 0, 1 + (b & 1), 0, s->now_ns }, .id = b >> 5 };

	strcpy(e.name, names[b >> 1 & 3]);
	if (model__feed(m, &e.hdr))
		abort();
}

static void clock_or_lost(struct source *s, struct model *m)
{
	uint8_t how = next(s);
	struct tl_clock c = { .hdr = { sizeof(c), TL_CLOCK, how >> 1 & 3, 1 + (how & 1), 0, next_time(s) } };
	struct tl_lost l = { .hdr = { sizeof(l), TL_LOST, 0, 0, 0, next_time(s) }, .n = 1, .where = TL_LOST_RING,
			     .what = TL_GPU_LAUNCH };

	c.realtime_ns = c.hdr.ts_ns - (how >> 3) * 100000ull;
	l.since_ns = next_time(s);
	if (model__feed(m, next(s) & 1 ? &l.hdr : &c.hdr))
		abort();
}

static void request(struct source *s, struct model *m)
{
	uint8_t b = next(s);
	uint32_t req = 1 + (b & 3);
	struct tl_req_begin begin = { .hdr = { sizeof(begin), TL_REQ_BEGIN, TL_API_CHAT, 1, 0, next_time(s) }, .req = req,
				      .conn = req };
	struct tl_usage u = { .hdr = { sizeof(u), TL_USAGE, TL_USAGE_PROMPT | TL_USAGE_OUTPUT, 1, 0, s->now_ns },
			      .req = req, .prompt = b, .output = b >> 3, .slot = -1 };
	struct tl_req_end end = { .hdr = { sizeof(end), TL_REQ_END, 0, 1, 0, s->now_ns }, .req = req,
				  .how = TL_END_COMPLETE, .status = 200 };

	if (model__feed(m, b & 4 ? &begin.hdr : b & 8 ? &u.hdr : &end.hdr))
		abort();
}

static void token(struct source *s, struct model *m)
{
	struct tl_chunk c = { .hdr = { sizeof(c), TL_CHUNK, TL_CHUNK_TEXT, 1, 0, next_time(s) }, .req = 1 + (next(s) & 3) };

	if (model__feed(m, &c.hdr))
		abort();
}

static void step(struct source *s, struct model *m)
{
	union { struct tl_step s; char room[sizeof(struct tl_step) + 2 * sizeof(struct tl_member)]; } u;
	uint8_t b = next(s);

	memset(&u, 0, sizeof(u));
	u.s.hdr = (struct tl_hdr){ sizeof(u), TL_STEP, 0, 1, 1, next_time(s) };
	u.s.end_ns = next_time(s);
	u.s.n_members = 2;
	u.s.members[0] = (struct tl_member){ b & 3, 1 + (b >> 4), -1, 1 + (b >> 2 & 1), 1, 0 };
	u.s.members[1] = (struct tl_member){ 4 + (b & 1), 1, -1, TL_DECODE, 1, 0 };
	if (model__feed(m, &u.s.hdr))
		abort();
}

static void look_at_bubbles(void *ctx, uint32_t engine, const struct gpu_bubbles *b)
{
	(void)ctx;
	(void)engine;
	if (b->between_ns > b->idle_ns)
		abort();
}

static void check(const struct model_view *v)
{
	const struct gpu_facts *g = v->gpu;

	if (g->n_steps && g->n_steps != v->n_steps)
		abort();
	for (size_t i = 0; i < g->n_steps; i++) {
		const struct gpu_step *s = &g->steps[i];

		if ((s->busy_ns == GPU_UNKNOWN) != (s->gpu1_ns == 0))
			abort();
		if (s->busy_ns != GPU_UNKNOWN && (s->gpu1_ns < s->gpu0_ns || s->busy_ns > s->gpu1_ns - s->gpu0_ns))
			abort();
	}
	for (size_t i = 0; i < g->n_kernels; i++) {
		const struct gpu_kernel *k = &g->kernels[i];
		uint64_t n = 0;

		if (!k->n || k->phase >= N_GPU_PHASES || strnlen(k->name, sizeof(k->name)) == sizeof(k->name))
			abort();
		if (!k->n_on || k->first_on + k->n_on > g->n_kernels_on)
			abort();
		for (size_t j = 0; j < k->n_on; j++)
			n += g->kernels_on[k->first_on + j].n;
		if (n != k->n)
			abort();
	}
	for (size_t i = 0; i < g->n_devices; i++)
		if (g->devices[i].copy_ns > g->devices[i].busy_ns)
			abort();
	if (g->counts.spans_joined > g->counts.spans || g->counts.spans_in_steps > g->counts.spans)
		abort();
	if (gpu_bubbles_each(v, look_at_bubbles, NULL))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const feed[])(struct source *s, struct model *m) = {
		launch, launch, launch, span, span, span, name, clock_or_lost, request, token, token, step,
	};
	struct source s = { data, len, 0, 1000000000 };
	struct model *m = model__new(NULL);
	uint8_t kinds = next(&s) & 1 ? 12 : 11;	/* a wire that tells of steps, or none */
	struct model_view v;

	if (!m)
		return 0;
	while (s.at < s.len) {
		uint8_t b = next(&s);

		s.now_ns += (b >> 4) * 20000ull;
		feed[b % kinds](&s, m);
	}
	if (model__finish(m))
		abort();
	model__view(m, &v);
	check(&v);
	model__free(m);
	return 0;
}
