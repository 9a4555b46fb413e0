/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are no LLM's: a scrape or a health check keeps others waiting, too. */
#include "model/state.h"

#include <errno.h>
#include <string.h>

enum {
	MAX_OTHERS = 1000000,	/* what comes after is counted only */
	MAX_OPEN_OTHERS = 256,	/* how far back an event looks for its request */
};

static struct rec_other *find(struct model *m, uint32_t req)
{
	size_t n = m->v.n_others;

	for (size_t i = 0; i < n && i < MAX_OPEN_OTHERS; i++)
		if (m->others[n - 1 - i].req == req)
			return &m->others[n - 1 - i];
	return NULL;
}

int other_on_begin(struct model *m, const struct rec_request *r)
{
	if (m->v.n_others >= MAX_OTHERS)
		return 0;
	if (GROW(m->others, m->cap_others, m->v.n_others))
		return -ENOMEM;
	m->others[m->v.n_others++] = (struct rec_other){
		.req = r->req, .conn = r->conn, .engine = r->engine, .tid = r->tid,
		.peer_port = r->peer_port, .begin_ns = r->at_ns[P_REQ_FIRST_BYTE],
	};
	return 0;
}

void other_on_facts(struct model *m, const struct tl_req_facts *e)
{
	struct rec_other *o = find(m, e->req);

	if (!o)
		return;
	o->read_ns = e->hdr.ts_ns;
	o->body_bytes = e->body_bytes;
	if (e->hdr.tid)
		o->tid = e->hdr.tid;
	memcpy(o->path, e->path, sizeof(o->path) - 1);
}

void other_on_end(struct model *m, const struct tl_req_end *e)
{
	struct rec_other *o = find(m, e->req);

	if (!o)
		return;
	o->end_ns = e->hdr.ts_ns;
	o->status = e->status;
}
