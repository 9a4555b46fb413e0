/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: what the wire says about each exchange, from its first byte to its end. */
#include "model/state.h"

#include <errno.h>
#include <string.h>

static void set_point(struct rec_request *r, enum point p, uint64_t ns, enum provenance prov)
{
	if (r->at_ns[p])
		return;		/* points are firsts; the lasts are written directly */
	r->at_ns[p] = ns;
	r->prov[p] = prov;
}

static void set_last(struct rec_request *r, enum point p, uint64_t ns)
{
	r->at_ns[p] = ns;
	r->prov[p] = PROV_OBSERVED;
}

struct rec_request *request_find(struct model *m, uint32_t req)
{
	uint32_t at;

	if (req >= m->n_by_number)
		return NULL;
	at = m->by_number[req];
	return at == REQ_NOWHERE || at >= REQ_EMBRYO ? NULL : &m->requests[at - 1];
}

static struct rec_request *embryo_find(struct model *m, uint32_t req)
{
	size_t i;

	if (req >= m->n_by_number || m->by_number[req] < REQ_EMBRYO)
		return NULL;
	i = m->by_number[req] - REQ_EMBRYO;
	return i < m->n_embryos && m->embryos[i].req == req ? &m->embryos[i] : NULL;
}

/* Numbers run from 1, and each takes an event: one far above their number is damaged. Without this a few
 * such events would cost any amount of memory. */
static bool is_wild(const struct model *m, uint32_t number)
{
	return number > m->v.n_events + (1u << 20);
}

static int set_number(struct model *m, uint32_t req, uint32_t at)
{
	if (is_wild(m, req))
		return 0;
	while (m->n_by_number <= req) {
		if (GROW(m->by_number, m->cap_by_number, m->n_by_number))
			return -ENOMEM;
		m->by_number[m->n_by_number++] = REQ_NOWHERE;
	}
	m->by_number[req] = at;
	return 0;
}

static int set_last_of_conn(struct model *m, uint32_t conn, uint32_t at)
{
	if (is_wild(m, conn))
		return 0;
	while (m->n_last_of_conn <= conn) {
		if (GROW(m->last_of_conn, m->cap_last_of_conn, m->n_last_of_conn))
			return -ENOMEM;
		m->last_of_conn[m->n_last_of_conn++] = 0;
	}
	m->last_of_conn[conn] = at;
	return 0;
}

/* Is it this host's loopback device that leads to the peer? */
static bool is_loopback(const struct tl_conn *e)
{
	enum { INET = 2, INET6 = 10 };	/* AF_* of Linux */
	static const uint8_t v6[16] = { [15] = 1 }, v4_in_v6[13] = { [10] = 0xff, [11] = 0xff, [12] = 127 };

	if (e->family == INET)
		return e->peer_addr[0] == 127;
	return e->family == INET6 && (!memcmp(e->peer_addr, v6, sizeof(v6)) ||
					 !memcmp(e->peer_addr, v4_in_v6, sizeof(v4_in_v6)));
}

static int set_peer(struct model *m, const struct tl_conn *e)
{
	if (is_wild(m, e->conn))
		return 0;
	while (m->n_peers <= e->conn) {
		if (GROW(m->peers, m->cap_peers, m->n_peers))
			return -ENOMEM;
		m->peers[m->n_peers++] = (struct peer){ 0, false };
	}
	m->peers[e->conn] = (struct peer){ e->peer_port, is_loopback(e) };
	return 0;
}

/* Puts a request among those that are kept. */
static int keep(struct model *m, const struct rec_request *r)
{
	int err;

	if (m->v.n_requests >= m->opts.max_requests) {
		m->v.n_requests_not_kept++;
		return set_number(m, r->req, REQ_NOT_KEPT);
	}
	if (GROW(m->requests, m->cap_requests, m->v.n_requests))
		return -ENOMEM;
	err = set_number(m, r->req, m->v.n_requests + 1);
	if (err)
		return err;
	err = set_last_of_conn(m, r->conn, m->v.n_requests + 1);
	if (err) {
		set_number(m, r->req, REQ_NOWHERE);	/* no growth: cannot fail */
		return err;
	}
	m->requests[m->v.n_requests++] = *r;
	return 0;
}

static void drop_embryo(struct model *m, struct rec_request *r)
{
	const struct rec_request *last = &m->embryos[--m->n_embryos];

	if (last->req < m->n_by_number && m->by_number[last->req] == REQ_EMBRYO + m->n_embryos)
		m->by_number[last->req] = REQ_EMBRYO + (r - m->embryos);
	*r = *last;
}

/* The request of an event that only exchanges with an LLM have: an embryo grows up. */
static struct rec_request *find_or_raise(struct model *m, uint32_t req, int *ret_err)
{
	struct rec_request *r = request_find(m, req);
	struct rec_request *young;

	*ret_err = 0;
	if (r)
		return r;
	young = embryo_find(m, req);
	if (!young)
		return NULL;
	*ret_err = keep(m, young);
	if (*ret_err)
		return NULL;
	drop_embryo(m, young);
	return request_find(m, req);
}

int request_on_begin(struct model *m, const struct tl_req_begin *e)
{
	struct rec_request r = {
		.req = e->req, .conn = e->conn, .tid = e->hdr.tid, .api = e->hdr.flags & 0xff, .stream = -1, .n = 1,
		.max_tokens = -1, .reported_slot = -1, .task = -1,
		.joined_late = e->hdr.flags & TL_F_JOINED,
	};

	if (!model_engine(m, e->hdr.tgid, &r.engine))
		return -ENOMEM;
	m->v.n_numbers_twice += e->req < m->n_by_number && m->by_number[e->req] != REQ_NOWHERE;
	if (e->conn < m->n_peers) {
		r.peer_port = m->peers[e->conn].port;
		r.peer_is_local = m->peers[e->conn].is_local;
	}
	if (e->conn_open_ns)
		set_point(&r, P_CONN_OPEN, e->conn_open_ns, PROV_OBSERVED);
	if (!r.joined_late) {
		set_point(&r, P_REQ_FIRST_BYTE, e->hdr.ts_ns, PROV_OBSERVED);
		if (r.api == TL_API_OTHER) {
			m->v.n_other_requests++;
			if (set_number(m, r.req, REQ_IS_OTHER))
				return -ENOMEM;
			return other_on_begin(m, &r);
		}
		return keep(m, &r);
	}
	if (GROW(m->embryos, m->cap_embryos, m->n_embryos))
		return -ENOMEM;
	m->embryos[m->n_embryos++] = r;
	return set_number(m, r.req, REQ_EMBRYO + m->n_embryos - 1);
}

int request_on_facts(struct model *m, const struct tl_req_facts *e)
{
	struct rec_request *r = request_find(m, e->req);

	if (!r) {
		other_on_facts(m, e);
		return 0;
	}
	if (e->hdr.tid)
		r->tid = e->hdr.tid;
	r->api = e->api;
	/* not said means no, unless it may have been said in bytes that were not captured */
	if (e->stream >= 0 || !(e->hdr.flags & TL_F_TRUNC))
		r->stream = e->stream > 0;
	r->max_tokens = e->max_tokens;
	if (e->n > r->n)
		r->n = e->n;
	if (e->n || !(e->hdr.flags & TL_F_TRUNC))
		r->n_asked = e->n ? e->n : 1;
	r->method = e->method;
	r->body_bytes = e->body_bytes;
	memcpy(r->path, e->path, sizeof(r->path));
	memcpy(r->model, e->model, sizeof(r->model));
	memcpy(r->x_request_id, e->x_request_id, sizeof(r->x_request_id));
	memcpy(r->traceparent, e->traceparent, sizeof(r->traceparent));
	if (!(e->hdr.flags & TL_FACTS_UNREAD))
		set_point(r, P_REQ_LAST_BYTE, e->hdr.ts_ns, PROV_OBSERVED);
	return 0;
}

int request_on_resp(struct model *m, const struct tl_resp_begin *e)
{
	struct rec_request *r = request_find(m, e->req);

	if (!r)
		r = embryo_find(m, e->req);
	if (!r)
		return 0;
	r->status = e->status;
	r->body = e->body;
	r->encoded = e->hdr.flags & TL_RESP_ENCODED;
	if (r->stream < 0 && e->body == TL_BODY_SSE)
		r->stream = 1;
	if (r->stream < 0 && e->body == TL_BODY_JSON && e->status < 400)
		r->stream = 0;
	set_point(r, P_HEADERS, e->hdr.ts_ns, PROV_OBSERVED);
	return 0;
}

/* What is days away from the first chunk is so in damaged recordings only. */
static int64_t chunk_since(const struct rec_request *r, uint64_t ns)
{
	const int64_t max = (1ll << 47) - 1;
	int64_t since = (int64_t)(ns - r->chunks_ns);

	return since > max ? max : since < -max ? -max : since;
}

int request_on_chunk(struct model *m, const struct tl_chunk *e)
{
	int err;
	struct rec_request *r = find_or_raise(m, e->req, &err);

	if (!r)
		return err;
	r->stream = 1;
	if (e->choice >= r->n)	/* several prompts, or asked for by a name that we do not know */
		r->n = e->choice < UINT16_MAX ? e->choice + 1 : UINT16_MAX;
	if (!r->joined_late)
		set_point(r, P_FIRST_CHUNK, e->hdr.ts_ns, PROV_OBSERVED);
	if (e->hdr.flags & TL_CHUNK_PROGRESS)
		r->n_progress++;
	if (e->hdr.flags & TL_CHUNK_ERROR)
		r->finish = TL_FINISH_ERROR;
	if (e->hdr.flags & TL_CHUNK_DONE)
		set_last(r, P_DONE, e->hdr.ts_ns);
	if (!flags_may_be_token(e->hdr.flags)) {
		r->n_between += r->n_between < UINT16_MAX;
		return 0;
	}
	if (GROW(r->chunks, r->cap_chunks, r->n_chunks))
		return -ENOMEM;
	if (!r->n_chunks)
		r->chunks_ns = e->hdr.ts_ns;
	r->chunks[r->n_chunks++] = (struct rec_chunk){
		chunk_since(r, e->hdr.ts_ns), e->hdr.flags & 0xffff, e->write_us, r->n_between,
	};
	r->n_between = 0;
	r->n_tokens_wire += e->n_tokens ? e->n_tokens : 1;
	if (!r->joined_late)
		set_point(r, P_FIRST_TOKEN_WIRE, e->hdr.ts_ns, PROV_OBSERVED);
	set_last(r, P_LAST_TOKEN_WIRE, e->hdr.ts_ns);
	return 0;
}

static void set_count(struct rec_count *c, uint32_t known, uint32_t flag, uint32_t n)
{
	if (known & flag)
		*c = (struct rec_count){ n, PROV_REPORTED };
}

int request_on_usage(struct model *m, const struct tl_usage *e)
{
	int err;
	struct rec_request *r = find_or_raise(m, e->req, &err);
	uint32_t known = e->hdr.flags;

	if (!r)
		return err;
	set_count(&r->prompt, known, TL_USAGE_PROMPT, e->prompt);
	set_count(&r->cached, known, TL_USAGE_CACHED, e->cached);
	set_count(&r->output, known, TL_USAGE_OUTPUT, e->output);
	set_count(&r->reasoning, known, TL_USAGE_REASONING, e->reasoning);
	if (known & TL_USAGE_PREFILL_TIME)
		r->reported_prefill_ns = e->prefill_ns;
	if (known & TL_USAGE_DECODE_TIME)
		r->reported_decode_ns = e->decode_ns;
	if (known & TL_USAGE_SLOT)
		r->reported_slot = e->slot;
	if (e->finish)
		r->finish = e->finish;
	if (e->id[0])
		memcpy(r->id, e->id, sizeof(r->id));
	return 0;
}

static enum req_state state_at_end(const struct rec_request *r, uint16_t how)
{
	switch (how) {
	case TL_END_COMPLETE:
		if (r->status >= 400 || r->finish == TL_FINISH_ERROR)
			return REQ_ERROR;
		return r->joined_late ? REQ_TRUNCATED : REQ_COMPLETE;
	case TL_END_CLIENT:
		return REQ_ABORTED;
	case TL_END_SERVER:
		return REQ_ERROR;
	default:
		return REQ_TRUNCATED;
	}
}

int request_on_end(struct model *m, const struct tl_req_end *e)
{
	struct rec_request *r = request_find(m, e->req);

	if (!r) {
		r = embryo_find(m, e->req);
		if (!r) {
			other_on_end(m, e);
			return 0;
		}
		/* Joined late and no sign of an LLM until its end: some other exchange. */
		m->v.n_other_requests++;
		drop_embryo(m, r);
		return set_number(m, e->req, REQ_IS_OTHER);
	}
	if (e->status)
		r->status = e->status;
	r->how_ended = e->how;
	r->state = state_at_end(r, e->how);
	r->bytes_in = e->bytes_in;
	r->bytes_out = e->bytes_out;
	TRIM(r->chunks, r->cap_chunks, r->n_chunks);
	if (e->how == TL_END_COMPLETE)
		set_point(r, P_DONE, e->hdr.ts_ns, PROV_OBSERVED);
	else if (e->how == TL_END_CLIENT || e->how == TL_END_SERVER)
		set_point(r, P_CLOSE, e->hdr.ts_ns, PROV_OBSERVED);
	return 0;
}

int request_on_conn(struct model *m, const struct tl_conn *e)
{
	uint32_t at;

	if (e->what == TL_CONN_OPEN) {
		m->v.n_conns++;
		m->v.n_conns_open++;
		return set_peer(m, e);
	}
	if (e->what == TL_CONN_TLS) {
		m->v.n_conns_tls++;
		return 0;
	}
	if (m->v.n_conns_open)
		m->v.n_conns_open--;
	if (e->conn >= m->n_last_of_conn)
		return 0;
	at = m->last_of_conn[e->conn];
	if (at)
		set_point(&m->requests[at - 1], P_CLOSE, e->hdr.ts_ns, PROV_OBSERVED);
	return 0;
}

void request_on_submit(struct model *m, const struct tl_seq_link *e)
{
	struct rec_request *r = request_find(m, e->req);

	if (!r)
		return;
	if (r->task < 0)
		r->task = e->task;
	set_point(r, P_SUBMIT, e->hdr.ts_ns, PROV_OBSERVED);
	set_point(r, P_QUEUED, e->hdr.ts_ns, PROV_OBSERVED);
}

void request_finish_all(struct model *m)
{
	for (size_t i = 0; i < m->v.n_requests; i++)
		if (m->requests[i].state == REQ_OPEN) {
			m->requests[i].state = REQ_TRUNCATED;
			m->requests[i].how_ended = TL_END_CAPTURE;
		}
	m->v.n_other_requests += m->n_embryos;
	m->n_embryos = 0;
}
