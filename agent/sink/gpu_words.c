/* SPDX-License-Identifier: Apache-2.0 */
/* Words for what is known of GPUs, the same for text and JSON. */
#include "sink/gpu_words.h"
#include "base/util.h"
#include "model/evidence.h"
#include "model/gpu.h"

#include <stdio.h>

static const char *name_of(const char *const *names, size_t n, unsigned int i)
{
	return i < n ? names[i] : NULL;
}

const char *gpu_level_name(uint16_t level)
{
	static const char *const names[] = {
		[TL_GPU_OFF] = "off", [TL_GPU_LAUNCHES] = "launches", [TL_GPU_GRAPH] = "graph",
		[TL_GPU_KERNELS] = "kernels",
	};

	return name_of(names, ARRAY_SIZE(names), level);
}

const char *gpu_graph_name(uint16_t graph)
{
	static const char *const names[] = {
		[TL_GRAPH_NONE] = "none", [TL_GRAPH_HIT] = "hit", [TL_GRAPH_MISS] = "miss",
		[TL_GRAPH_PADDED] = "padded",
	};

	return name_of(names, ARRAY_SIZE(names), graph);
}

const char *gpu_phase_name(uint8_t phase)
{
	static const char *const names[] = {
		[GPU_PREFILL] = "prefill", [GPU_DECODE] = "decode", [GPU_SAMPLING] = "sampling",
		[GPU_COPY] = "copy", [GPU_COLLECTIVE] = "collective",
	};

	return name_of(names, ARRAY_SIZE(names), phase);
}

const char *gpu_why(const struct tl_gpu_health *h, char buf[80])
{
	switch (h->trouble) {
	case TL_GPU_BROKEN:
		snprintf(buf, 80, "%llu launches and no record", (unsigned long long)h->launches);
		return buf;
	case TL_GPU_BAD_STAMPS:
		snprintf(buf, 80, "%llu records with impossible times", (unsigned long long)h->bad_records);
		return buf;
	case TL_GPU_BUSY:
		snprintf(buf, 80, "held by %.31s", h->holder[0] ? h->holder : "another tool");
		return buf;
	case TL_GPU_BUDGET:
		snprintf(buf, 80, "cost %.2f %% of the target's speed", h->overhead_ppm / 1e4);
		return buf;
	default:
		return h->to_level > h->level ? "as asked for" : "ended";
	}
}

uint32_t gpu_server(const struct model_view *v, uint32_t tgid)
{
	uint32_t only = 0;

	for (size_t i = v->n_engines; i-- > 0;) {
		const struct tl_engine *e = &v->engines[i].e;

		if (e->hdr.tgid == tgid)
			return e->server ? e->server : tgid;
	}
	for (size_t i = 0; i < v->evidence->threads.n; i++)
		if (v->evidence->threads.v[i].hdr.tgid == tgid && v->evidence->threads.v[i].server)
			return v->evidence->threads.v[i].server;
	for (size_t i = 0; i < v->n_engines; i++) {
		const struct tl_engine *e = &v->engines[i].e;
		uint32_t server = e->server ? e->server : e->hdr.tgid;

		if (only && only != server)
			return tgid;
		only = server;
	}
	return only ? only : tgid;	/* a child of the only server that there is */
}

/* The engine that speaks of its server's devices: the process itself, or the first of those that have none. */
static bool stands_for(const struct model_view *v, uint32_t engine, uint32_t tgid)
{
	uint32_t server = gpu_server(v, tgid);

	for (size_t i = 0; i < v->n_engines; i++)
		if (v->engines[i].e.hdr.tgid == tgid)
			return i == engine;
	for (size_t i = 0; i < v->n_engines; i++)
		if (gpu_server(v, v->engines[i].e.hdr.tgid) == server)
			return i == engine;
	return false;
}

bool gpu_sum_health(const struct model_view *v, uint32_t engine, struct gpu_health_sum *ret)
{
	uint64_t asked = 0, got = 0;
	bool any = false;

	*ret = (struct gpu_health_sum){ .server = gpu_server(v, v->engines[engine].e.hdr.tgid) };
	for (size_t i = 0; v->evidence && i < v->evidence->gpu_healths.n; i++) {
		const struct tl_gpu_health *h = &v->evidence->gpu_healths.v[i];

		if (!stands_for(v, engine, h->hdr.tgid))
			continue;
		any = true;
		ret->simulated |= h->hdr.flags & TL_GPU_SIMULATED;
		ret->level = h->level > ret->level ? h->level : ret->level;
		ret->level = h->to_level > ret->level ? h->to_level : ret->level;
		ret->launches += h->launches;
		ret->records += h->records;
		ret->dropped += h->dropped;
		ret->n_broken += h->trouble == TL_GPU_BROKEN;
		asked += h->level >= TL_GPU_GRAPH ? h->launches : 0;
		got += h->records + h->bad_records;	/* they come later than launches do */
	}
	if (asked && !got && !ret->n_broken)
		ret->n_broken = 1;
	return any;
}
