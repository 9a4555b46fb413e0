/* SPDX-License-Identifier: Apache-2.0 */
/* Which request of HTTP's a sequence of vLLM's is of: by the id that both show,
 * where no other goes by it. */
#include "engine/vllm_priv.h"
#include "engine/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* An X-Request-Id becomes the base of the id, behind the prefix of the API (doc/engines/vllm.md). */
static const char *const prefixes[] = { "",
					"chatcmpl-",
					"cmpl-",
					"resp_",
					"msg_",
					"generate-tokens-",
					"embd-",
					"pooling-",
					"classify-",
					"score-",
					"generative-scoring-",
					"decision-" };

/* Its answer shows this id late or not at all: the sequence may be over by then. */
static bool comes_first(const char *prefix)
{
	return *prefix && strcmp(prefix, "resp_") && strcmp(prefix, "msg_");
}

/* What goes by this id of HTTP. If there are too many, the oldest is forgotten: most are of
 * requests that never reached an engine. NULL: out of memory. */
static struct vhttp *http_of(struct vllm *v, uint64_t http_hash)
{
	struct vhttp *h = map__put(v->by_http, http_hash, NULL);
	uint64_t oldest;

	if (h || !map__is_full(v->by_http) || !map__oldest(v->by_http, &oldest))
		return h;
	map__del(v->by_http, oldest);
	return map__put(v->by_http, http_hash, NULL);
}

/* ---- names that several requests have at once ---- */

/* A client that sends the same X-Request-Id with each of its requests, or again while the first
 * still runs: which of them the engine means by it, no message says. */
static bool is_shared(const struct vllm *v, uint32_t scope, struct vllm_id id)
{
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		size_t len = strlen(prefixes[i]);
		const struct vname *n;

		if (id.len < len || memcmp(id.p, prefixes[i], len))
			continue;
		n = map__get(v->names, vllm_hash(scope, id.p + len, id.len - len));
		if (n && n->shared)
			return true;
	}
	return false;
}

/* True if another request under way goes by it, too. Of one too many it is not known. */
static bool take_name(struct vllm *v, uint32_t req, uint64_t name)
{
	struct vname *n;
	uint64_t *of;

	if (map__get(v->named, req))
		return false;
	of = map__put(v->named, req, NULL);
	if (!of)
		return false;
	n = map__put(v->names, name, NULL);
	if (!n) {
		map__del(v->named, req);
		return false;
	}
	*of = name;
	n->shared |= ++n->n_open > 1;
	return n->shared;
}

void vllm__on_end(struct vllm *v, uint32_t req)
{
	const uint64_t *name = map__get(v->named, req);
	struct vname *n = name ? map__get(v->names, *name) : NULL;

	if (n && !--n->n_open)
		map__del(v->names, *name);
	map__del(v->named, req);
}

/* ---- links ---- */

static void link_to(struct vllm *v, struct vseq *q, uint32_t req)
{
	struct tl_seq_link ev = {
		.hdr = { sizeof(ev), TL_SEQ_LINK, 0, v->engines[q->engine].tgid, 0, v->now_ns },
		.req = req, .slot = q->slot, .task = -1, .method = TL_LINK_ID,
	};

	if (q->linked)
		return;
	q->linked = true;
	vllm_emit(v, &ev.hdr);
}

static bool is_asked_for(const struct vllm *v, uint32_t scope, struct vllm_id id)
{
	const struct vhttp *h = map__get(v->by_http, vllm_hash(scope, id.p, id.len));

	return h && h->req;
}

/* What HTTP shows of an id whose end may number a prompt, or may be the client's own,
 * as in the Rust front end. Of a chat it is the client's, unless it asked by the rest of it: then
 * it is a conversation of a batch. */
static struct vllm_id shown(const struct vllm *v, uint32_t scope, const struct vllm_names *names)
{
	struct vllm_id batch = vllm_msg_without_conversation(names->external);

	if (batch.len < names->external.len && !is_asked_for(v, scope, names->external) &&
	    is_asked_for(v, scope, batch))
		return batch;
	if (!is_asked_for(v, scope, names->http) && is_asked_for(v, scope, names->external))
		return names->external;
	return names->http;
}

int vllm_ids_enter(struct vllm *v, struct vseq *q, struct vllm_id id)
{
	uint32_t scope = v->engines[q->engine].scope;
	struct vllm_names names;
	struct vllm_id http;
	struct vhttp *h;

	vllm_msg_names(id, &names);
	http = shown(v, scope, &names);
	q->external_hash = vllm_hash(scope, names.external.p, names.external.len);
	q->http_hash = vllm_hash(scope, http.p, http.len);
	q->linked = is_shared(v, scope, http);
	h = http_of(v, q->http_hash);
	if (!h)
		return -ENOMEM;
	q->next_same_http = h->first;
	h->first = q->slot + 1;
	return 0;
}

void vllm_ids_leave(struct vllm *v, const struct vseq *q)
{
	struct vhttp *h = map__get(v->by_http, q->http_hash);
	uint32_t *at = h ? &h->first : NULL;

	while (at && *at && *at != q->slot + 1)
		at = &v->seqs[*at - 1].next_same_http;
	if (at && *at)
		*at = q->next_same_http;
	if (h && !h->first)
		map__del(v->by_http, q->http_hash);
}

uint32_t vllm_ids_request(const struct vllm *v, const struct vseq *q)
{
	const struct vhttp *h = map__get(v->by_http, q->http_hash);

	return h ? h->req : 0;
}

void vllm_ids_link(struct vllm *v, struct vseq *q, uint32_t req)
{
	struct vhttp *h = map__get(v->by_http, q->http_hash);

	if (h && req)
		h->req = req;
	if (h && h->req)
		link_to(v, q, h->req);
}

/* The request goes by this id of the engine's. `shared`: not it alone, so none is linked.
 * `external`: only those of that name; 0: all. */
static void goes_by(struct vllm *v, const struct vhttp *h, uint32_t req, bool shared,
		    uint64_t external)
{
	for (uint32_t s = h->first; s; s = v->seqs[s - 1].next_same_http) {
		if (external && v->seqs[s - 1].external_hash != external)
			continue;
		if (shared)
			v->seqs[s - 1].linked = true;
		else
			link_to(v, &v->seqs[s - 1], req);
	}
}

/* An answer shows this id, and no sequence goes by it: one may whose end was taken
 * for the number of a prompt. */
static bool goes_by_all_of_it(struct vllm *v, uint32_t scope, uint32_t req, struct vllm_id id,
			      bool shared)
{
	struct vllm_id base = vllm_msg_without_prompt(id);
	const struct vhttp *h = map__get(v->by_http, vllm_hash(scope, base.p, base.len));

	if (base.len == id.len || !h || h->req)
		return false;
	goes_by(v, h, req, shared, vllm_hash(scope, id.p, id.len));
	return true;
}

int vllm__on_id(struct vllm *v, uint64_t now_ns, uint32_t tgid, uint32_t req, const char *id,
		bool answered)
{
	const struct vprocess *p = map__get(v->processes, tgid);
	uint32_t scope = p ? p->scope : 0;
	bool shared;
	char name[WIRE_ID + 16];
	struct vhttp *h;

	v->err = 0;
	v->now_ns = now_ns;
	if (answered)
		shared = is_shared(v, scope, (struct vllm_id){ id, strlen(id) });
	else
		shared = take_name(v, req, vllm_hash(scope, id, strlen(id)));
	for (size_t i = 0; i < (answered ? 1 : ARRAY_SIZE(prefixes)); i++) {
		int n = snprintf(name, sizeof(name), "%s%s", prefixes[i], id);

		h = map__get(v->by_http, vllm_hash(scope, name, n));
		if (!h && answered &&
		    goes_by_all_of_it(v, scope, req, (struct vllm_id){ name, n }, shared))
			return v->err;
		if (!h) {
			/* The request is on its way to the engine. */
			if (!answered && !comes_first(prefixes[i]))
				continue;
			h = http_of(v, vllm_hash(scope, name, n));
			if (!h)
				return -ENOMEM;
		}
		h->req = req;
		goes_by(v, h, req, shared, 0);
	}
	return v->err;
}
