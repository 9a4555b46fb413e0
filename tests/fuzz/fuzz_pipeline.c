/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the kernel side sends: raw events made from the input go through the HTTP tracker, the
 * engine adapters and the model; nothing may crash, and what comes out must be sound. */
#include "engine/pipeline.h"
#include "model/summary.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *p, *end;
};

static uint32_t take(struct input *in, unsigned n)
{
	uint32_t v = 0;

	while (n-- && in->p < in->end)
		v = v << 8 | *in->p++;
	return v;
}

static void check(bool ok)
{
	if (!ok)
		abort();
}

static int on_event(void *ctx, const struct tl_hdr *ev)
{
	check(ev->kind < TL_RAW_FIRST && ev->size >= sizeof(*ev) && ev->size % 8 == 0);
	check(!model__feed(ctx, ev));
	return 0;
}

static union { struct tl_hdr hdr; uint8_t bytes[TL_EVENT_MAX]; } ev;

static void begin(struct input *in, uint16_t kind, size_t size, uint64_t now)
{
	memset(&ev, 0, size + 8);
	ev.hdr = (struct tl_hdr){ (size + 7) & ~7u, kind, take(in, 1) & 1, take(in, 1) % 3 + 1,
				  take(in, 1) % 4 + 10, now };
}

/* A read or write of bytes of the input, perhaps with its middle missing. */
static void make_net(struct input *in, uint64_t now)
{
	struct tl_raw_net *e = (void *)&ev;
	size_t len = take(in, 2) % 2000, cut = take(in, 1) & 1 ? take(in, 2) : 0;
	uint32_t sock = take(in, 1) % 4, pos = take(in, 4);
	bool out = take(in, 1) & 1;

	if (len > (size_t)(in->end - in->p))
		len = in->end - in->p;
	begin(in, TL_RAW_NET, sizeof(*e) + len, now);
	if (len > (size_t)(in->end - in->p))
		len = in->end - in->p;
	e->sock = sock;
	e->stream_pos = pos;
	e->dir = out ? TL_OUT : TL_IN;
	e->head = len - (cut ? len / 3 : 0);
	e->tail = len - e->head;
	e->total = len + cut;
	memcpy(e->data, in->p, len);
	in->p += len;
}

static void make_step(struct input *in, uint64_t now)
{
	struct tl_raw_llama_step *e = (void *)&ev;
	unsigned n = take(in, 1) % 5;

	begin(in, TL_RAW_LLAMA_STEP, sizeof(*e) - sizeof(e->runs) + n * sizeof(e->runs[0]), now);
	e->end_ns = now + take(in, 1);
	e->ctx = take(in, 1) % 3;
	e->result = take(in, 1) == 7;
	e->n_runs = take(in, 1) == 9 ? 1000000 : n;
	for (unsigned i = 0; i < n; i++)
		e->runs[i] = (struct tl_llama_run){ (int8_t)take(in, 1), take(in, 1), (int8_t)take(in, 1),
						    take(in, 1) % 3 };
}

static void make_tcp(struct input *in, uint64_t now)
{
	struct tl_raw_tcp *e = (void *)&ev;

	begin(in, TL_RAW_TCP, sizeof(*e), now);
	e->sock = take(in, 1) % 4;
	e->what = take(in, 1) % 8;
	e->why = take(in, 1) % 8;
	e->seq = take(in, 4);
	e->bytes = take(in, 2);
	e->ack_ns = now - take(in, 3);
	e->since_ns = now - take(in, 3);
}

enum { TCP_EVENT = 0xfe };	/* beside the 8 that there were first: the corpus keeps its meaning */

static void make_event(struct input *in, uint64_t now)
{
	uint8_t which = take(in, 1);

	if (which == TCP_EVENT) {
		make_tcp(in, now);
		return;
	}
	switch (which % 8) {
	case 0: case 1: case 2:
		make_net(in, now);
		return;
	case 3:
		make_step(in, now);
		return;
	case 4:
		begin(in, TL_RAW_SOCK, sizeof(struct tl_raw_sock), now);
		((struct tl_raw_sock *)&ev)->sock = take(in, 1) % 4;
		((struct tl_raw_sock *)&ev)->what = take(in, 1) % 8;
		return;
	case 5:
		begin(in, TL_RAW_LLAMA_SEQ_RM, sizeof(struct tl_raw_llama_seq_rm), now);
		((struct tl_raw_llama_seq_rm *)&ev)->seq = (int8_t)take(in, 1);
		((struct tl_raw_llama_seq_rm *)&ev)->p0 = (int8_t)take(in, 1);
		return;
	case 6:
		begin(in, TL_RAW_LLAMA_TASK, sizeof(struct tl_raw_llama_task), now);
		((struct tl_raw_llama_task *)&ev)->what = take(in, 1) % 7;
		((struct tl_raw_llama_task *)&ev)->task = (int8_t)take(in, 1);
		((struct tl_raw_llama_task *)&ev)->slot = (int8_t)take(in, 1);
		((struct tl_raw_llama_task *)&ev)->parent = (int8_t)take(in, 1);
		return;
	case 7:
		begin(in, TL_RAW_PROC, sizeof(struct tl_raw_proc), now);
		((struct tl_raw_proc *)&ev)->what = take(in, 1) % 4;
		return;
	}
}

/* Every token of every step is in exactly one sequence; joins point both ways. */
static void check_view(const struct model_view *v)
{
	uint64_t visited = 0;

	for (size_t i = 0; i < v->n_seqs; i++) {
		const struct rec_sequence *q = &v->seqs[i];

		check(q->req <= v->n_requests);
		for (size_t k = 0; k < q->n_visits; k++)
			check(q->visits[k].step < v->n_steps);
		visited += q->n_visits;
	}
	check(visited == v->n_members);
	for (size_t i = 0; i < v->n_requests; i++) {
		const struct rec_request *r = &v->requests[i];

		check(r->state != REQ_OPEN);
		check(!(r->joined_late && r->at_ns[P_FIRST_TOKEN_WIRE]));
		for (size_t k = 0; k < r->n_seqs; k++)
			check(v->seqs[r->seqs[k]].req == i + 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, data + size };
	struct model *m = model__new(&(struct model_opts){ .max_requests = 1000, .max_steps = 1000 });
	struct pipeline *p = pipeline__new(&(struct wire_opts){ .max_conns = 3 },
					   &(struct emit){ on_event, m });
	struct model_view v;
	struct summary s;
	uint64_t now = 1000;

	check(m && p);
	if (size % 2)		/* one of the three processes stands before the others */
		check(!pipeline__add_proxy(p, 3, "proxy"));
	while (in.p < in.end) {
		now += take(&in, 1) * 100000;
		make_event(&in, now);
		check(!pipeline__feed(p, &ev.hdr));
	}
	check(!pipeline__end(p, now));
	check(!model__finish(m));
	model__view(m, &v);
	check_view(&v);
	check(!summarise(&v, &s));
	pipeline__free(p);
	model__free(m);
	return 0;
}
