/* SPDX-License-Identifier: Apache-2.0 */
/* Words for what is known of GPUs, the same for text and JSON. */
#include "sink/gpu_words.h"
#include "base/map.h"
#include "base/plural.h"
#include "base/units.h"
#include "base/util.h"
#include "model/evidence.h"
#include "model/gpu.h"
#include "model/servers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

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
		snprintf(buf, 80, "%llu launch%s and no record", (unsigned long long)h->launches, plural(h->launches, "", "es"));
		return buf;
	case TL_GPU_BAD_STAMPS:
		snprintf(buf, 80, "%llu record%s with impossible times", (unsigned long long)h->bad_records,
			 plural_s(h->bad_records));
		return buf;
	case TL_GPU_BUSY:
		snprintf(buf, 80, "held by %.31s", h->holder[0] ? h->holder : "another tool");
		return buf;
	case TL_GPU_BUDGET:
		snprintf(buf, 80, "cost %.2f %% of the target's speed", h->overhead_ppm / 1e4);
		return buf;
	default:
		if (*h->why && h->to_level < h->level)
			return h->why;
		return h->to_level > h->level ? "as asked for" : "ended";
	}
}

/* ---- what engines speak of ---- */

struct gpu_healths {
	struct gpu_health_sum *sums;	/* per engine */
	struct change {
		uint32_t server, at;	/* index in the evidence */
	} *changes;			/* of levels, by server */
	uint32_t *at;			/* the same, without their servers */
	size_t n_engines, n_changes;
};

/* Its first process, as far as is known; of a process that nobody knows, the
 * only server that there is. */
static uint32_t server_of(const struct servers *s, uint32_t tgid)
{
	uint32_t server = servers__of(s, tgid);

	if (!server)
		server = servers__only(s);
	return server ? server : tgid;
}

struct speakers {		/* index of an engine */
	struct servers *servers;
	struct map *of_process, *of_server;	/* the process itself, or the
						 * first one of the server */
};

static int speakers_init(struct speakers *s, const struct model_view *v)
{
	int err = servers__new(v, &s->servers);

	s->of_process = map__new(sizeof(uint32_t), SIZE_MAX);
	s->of_server = map__new(sizeof(uint32_t), SIZE_MAX);
	if (!err && (!s->of_process || !s->of_server))
		err = -ENOMEM;
	for (uint32_t i = 0; i < v->n_engines && !err; i++) {
		uint32_t tgid = v->engines[i].e.hdr.tgid;
		bool new_process, new_server;
		uint32_t *p = map__put(s->of_process, tgid, &new_process);
		uint32_t *q = map__put(s->of_server, server_of(s->servers, tgid), &new_server);

		if (!p || !q)
			return -ENOMEM;
		*p = new_process ? i : *p;
		*q = new_server ? i : *q;
	}
	return err;
}

static void speakers_free(struct speakers *s)
{
	servers__free(s->servers);
	map__free(s->of_process);
	map__free(s->of_server);
}

struct asked {			/* of an engine: launches of which records
				 * were asked for, and what came */
	uint64_t launches, records;
};

static void add_health(struct gpu_health_sum *s, const struct tl_gpu_health *h, struct asked *asked)
{
	s->any = true;
	s->simulated |= h->hdr.flags & TL_GPU_SIMULATED;
	s->level = h->level > s->level ? h->level : s->level;
	s->level = h->to_level > s->level ? h->to_level : s->level;
	s->wanted = h->wanted > s->wanted ? h->wanted : s->wanted;
	s->no_probes |= h->trouble == TL_GPU_NO_PROBES;
	s->launches += h->launches;
	s->records += h->records;
	s->dropped += h->dropped + h->bad_records;
	s->n_broken += h->trouble == TL_GPU_BROKEN;
	asked->launches += h->level >= TL_GPU_GRAPH ? h->launches : 0;
	asked->records += h->records + h->bad_records;	/* they come later than launches do */
}

static int by_server(const void *pa, const void *pb)
{
	const struct change *a = pa, *b = pb;

	if (a->server != b->server)
		return a->server < b->server ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

static void add_all(struct gpu_healths *h, const struct model_view *v, const struct speakers *who,
		    struct asked *asked)
{
	for (uint32_t i = 0; i < v->n_engines; i++)
		h->sums[i].server = server_of(who->servers, v->engines[i].e.hdr.tgid);
	for (uint32_t i = 0; v->evidence && i < v->evidence->gpu_healths.n; i++) {
		const struct tl_gpu_health *e = &v->evidence->gpu_healths.v[i];
		uint32_t server = server_of(who->servers, e->hdr.tgid);
		const uint32_t *at = map__get(who->of_process, e->hdr.tgid);

		if (!at)
			at = map__get(who->of_server, server);
		if (at)
			add_health(&h->sums[*at], e, &asked[*at]);
		if (e->level != e->to_level)
			h->changes[h->n_changes++] = (struct change){ server, i };
	}
	for (size_t i = 0; i < v->n_engines; i++)
		if (asked[i].launches && !asked[i].records && !h->sums[i].n_broken)
			h->sums[i].n_broken = 1;
	qsort(h->changes, h->n_changes, sizeof(*h->changes), by_server);
	for (size_t i = 0; i < h->n_changes; i++)
		h->at[i] = h->changes[i].at;
}

int gpu_healths__new(const struct model_view *v, struct gpu_healths **ret)
{
	size_t n = v->evidence ? v->evidence->gpu_healths.n : 0;
	struct gpu_healths *h = calloc(1, sizeof(*h));
	struct asked *asked = calloc(v->n_engines + 1, sizeof(*asked));
	struct speakers who = { 0 };
	int err = -ENOMEM;

	if (h) {
		h->n_engines = v->n_engines;
		h->sums = calloc(v->n_engines + 1, sizeof(*h->sums));
		h->changes = malloc((n + 1) * sizeof(*h->changes));
		h->at = malloc((n + 1) * sizeof(*h->at));
	}
	if (asked && h && h->sums && h->changes && h->at)
		err = speakers_init(&who, v);
	if (!err)
		add_all(h, v, &who, asked);
	speakers_free(&who);
	free(asked);
	if (err) {
		gpu_healths__free(h);
		return err;
	}
	*ret = h;
	return 0;
}

void gpu_healths__free(struct gpu_healths *h)
{
	if (!h)
		return;
	free(h->sums);
	free(h->changes);
	free(h->at);
	free(h);
}

const struct gpu_health_sum *gpu_healths__of(const struct gpu_healths *h, uint32_t engine)
{
	return engine < h->n_engines && h->sums[engine].any ? &h->sums[engine] : NULL;
}

const uint32_t *gpu_healths__changes(const struct gpu_healths *h, uint32_t server, size_t *ret_n)
{
	size_t lo = 0, hi = h->n_changes, n = 0;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (h->changes[mid].server < server)
			lo = mid + 1;
		else
			hi = mid;
	}
	while (lo + n < h->n_changes && h->changes[lo + n].server == server)
		n++;
	*ret_n = n;
	return h->at + lo;
}

int gpu_blind_until(const struct model_view *v, uint32_t engine, uint64_t *ret_ns)
{
	struct servers *s = NULL;
	int err = servers__new(v, &s);

	*ret_ns = 0;
	for (size_t i = 0; !err && v->evidence && i < v->evidence->gpu_healths.n && !*ret_ns; i++) {
		const struct tl_gpu_health *h = &v->evidence->gpu_healths.v[i];

		if (h->level == TL_GPU_OFF && h->to_level != TL_GPU_OFF &&
		    server_of(s, h->hdr.tgid) == server_of(s, v->engines[engine].e.hdr.tgid))
			*ret_ns = h->hdr.ts_ns;
	}
	servers__free(s);
	return err;
}

/* ---- of a request ---- */

static const char *share_text(uint64_t ns, bool shared, char *buf, size_t size)
{
	char ms[UNITS_LEN];

	if (ns == GPU_UNKNOWN)
		snprintf(buf, size, "not known");
	else
		snprintf(buf, size, "%s (%s)", units_ns(ms, ns),
			 shared ? "its share, by tokens" : "alone in its steps");
	return buf;
}

bool gpu_request_text(const struct model_view *v, size_t request, char *buf, size_t size)
{
	const struct gpu_share *s = v->gpu && request < v->gpu->n_shares ? &v->gpu->shares[request] : NULL;
	char prefill[80], decode[80];
	bool simulated = false;

	if (!s || (s->prefill_ns == GPU_UNKNOWN && s->decode_ns == GPU_UNKNOWN))
		return false;
	for (size_t i = 0; i < v->evidence->gpu_healths.n; i++)
		simulated |= v->evidence->gpu_healths.v[i].hdr.flags & TL_GPU_SIMULATED;
	snprintf(buf, size, "%sGPU time: prefill %s, decode %s", simulated ? "SIMULATED " : "",
		 share_text(s->prefill_ns, s->prefill_shared, prefill, sizeof(prefill)),
		 share_text(s->decode_ns, s->decode_shared, decode, sizeof(decode)));
	return true;
}
