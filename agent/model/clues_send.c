/* SPDX-License-Identifier: Apache-2.0 */
/* Behind the write: what was held, what a peer did not read, and when chunks arrived. */
#include "model/clues_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
	MIN_TOGETHER = 8,	/* chunks of one write, to call it a block */
	MAX_QUERY = 256,	/* pieces of one span of time */
	BEHIND_WRITE_NS = 100000,	/* so long after a write it may still begin to be held */
};

/* ---- whose bytes ---- */

static int by_request(const void *pa, const void *pb)
{
	const struct by_number *a = pa, *b = pb;

	if (a->req != b->req)
		return a->req < b->req ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

struct on_conn {
	uint32_t conn, request;
	uint64_t begin_ns;
};

static int by_conn(const void *pa, const void *pb)
{
	const struct on_conn *a = pa, *b = pb;

	if (a->conn != b->conn)
		return a->conn < b->conn ? -1 : 1;
	return a->begin_ns < b->begin_ns ? -1 : a->begin_ns > b->begin_ns;
}

static struct on_conn *conns_make(const struct clues *c)
{
	struct on_conn *k = calloc(c->v->n_requests + 1, sizeof(*k));

	for (uint32_t i = 0; k && i < c->v->n_requests; i++)
		k[i] = (struct on_conn){ c->v->requests[i].conn, i,
					 c->v->requests[i].at_ns[P_REQ_FIRST_BYTE] };
	if (k)
		qsort(k, c->v->n_requests, sizeof(*k), by_conn);
	return k;
}

/* Records that name no request are those of the one that was under way on their connection. */
static uint32_t request_on_conn(const struct clues *c, const struct on_conn *k, uint32_t conn, uint64_t t_ns)
{
	size_t lo = 0, hi = c->v->n_requests;

	while (lo < hi) {	/* the first that begins behind t */
		size_t mid = lo + (hi - lo) / 2;

		if (k[mid].conn < conn || (k[mid].conn == conn && k[mid].begin_ns <= t_ns))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo && k[lo - 1].conn == conn ? k[lo - 1].request : UINT32_MAX;
}

/* On the loopback device nothing is lost: what a timer sent again there had arrived, and its receiver had no CPU. */
static void drop_not_lost(struct clues *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n_held_of; i++) {
		const struct rec_request *r = &c->v->requests[c->held_of[i].req];
		const struct tl_send_held *s = &c->ev->held.v[c->held_of[i].index];

		if (s->why != TL_HELD_RETRANSMIT || !r->peer_is_local || s->conn != r->conn)
			c->held_of[n++] = c->held_of[i];
	}
	c->n_held_of = n;
}

#define INDEX_BY_REQUEST(c, conns, table, ret, ret_n) ({				\
	size_t n_ = (c)->ev->table.n;							\
	(ret) = calloc(n_ + 1, sizeof(*(ret)));						\
	for (uint32_t i_ = 0; (ret) && i_ < n_; i_++) {					\
		const __typeof__(*(c)->ev->table.v) *e_ = &(c)->ev->table.v[i_];	\
		uint32_t r_ = e_->req ? clues_request((c), e_->req) :			\
					request_on_conn((c), (conns), e_->conn, e_->since_ns); \
		if (r_ != UINT32_MAX)							\
			(ret)[(ret_n)++] = (struct by_number){ r_, i_ };		\
	}										\
	if (ret)									\
		qsort((ret), (ret_n), sizeof(*(ret)), by_request);			\
	(ret) ? 0 : -ENOMEM;								\
})

static size_t first_of(const struct by_number *b, size_t n, uint32_t request)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (b[mid].req < request)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* ---- arrivals ---- */

/* From which row on a request's rows say so: the client before a proxy. What an acknowledgement says is
 * that its kernel has the bytes, not that it got them late. */
static const struct tl_delivered *best_teller(const struct tl_delivered *d, size_t n, size_t *ret_n)
{
	const struct tl_delivered *best = NULL;

	for (size_t i = 0; i < n; i++) {
		if (d[i].by != TL_BY_CLIENT && d[i].by != TL_BY_PROXY)
			continue;
		if (!best || best->by != d[i].by) {
			best = &d[i];
			*ret_n = 0;
		}
		++*ret_n;
	}
	return best;	/* by TL_BY_*: the client's are the last */
}

/* Ordinals of tellers count all chunks; ours those that may be tokens. */
static void arrivals_told(const struct rec_request *r, const struct tl_delivered *d, size_t n,
			  struct held_back *h)
{
	uint64_t ordinal = 0;
	size_t k = 0;

	for (size_t i = 0; i < r->n_chunks; i++) {
		ordinal += r->chunks[i].n_before + 1;
		while (k < n && d[k].n_chunks < ordinal)
			k++;
		if (k == n)
			return;
		/* Nothing arrives before it is written: its clock is another one. */
		h->chunk_ns[i] = d[k].hdr.ts_ns > chunk_ns(r, i) ? d[k].hdr.ts_ns :
								       chunk_ns(r, i);
	}
}

/* Who only wrote knows when what was held has left: the rest left at once. A hold begins inside of the
 * write that it holds, not before it. */
static void arrivals_held(const struct clues *c, const struct rec_request *r, const struct by_number *b,
			  size_t n, struct held_back *h)
{
	uint64_t left_ns = 0;	/* the latest end of all holds that began before */
	size_t k = 0;

	for (size_t i = 0; i < r->n_chunks; i++) {
		uint64_t begun_ns = chunk_ns(r, i);
		uint64_t written = begun_ns + 1000ull * r->chunks[i].write_us + BEHIND_WRITE_NS;

		for (; k < n && c->ev->held.v[b[k].index].since_ns <= written; k++)
			if (c->ev->held.v[b[k].index].hdr.ts_ns > left_ns)
				left_ns = c->ev->held.v[b[k].index].hdr.ts_ns;
		h->chunk_ns[i] = left_ns > begun_ns ? left_ns : begun_ns;
	}
}

static int arrivals_of(struct clues *c, uint32_t request, const struct tl_delivered *d, size_t n_d,
		       const struct by_number *held, size_t n_held)
{
	const struct rec_request *r = &c->v->requests[request];
	const struct tl_delivered *told;
	struct held_back *h;
	size_t n_told = 0;

	told = best_teller(d, n_d, &n_told);
	if (!r->n_chunks || (!told && !n_held))
		return 0;
	h = vec_push(&c->arrivals, SIZE_MAX);
	if (!h)
		return -ENOMEM;
	h->request = request;
	h->chunk_ns = calloc(r->n_chunks, sizeof(*h->chunk_ns));
	if (!h->chunk_ns)
		return -ENOMEM;
	if (!told) {
		h->by = (struct culprit){ .type = WHO_CLIENT, .id = r->peer_port };
		arrivals_held(c, r, held, n_held, h);
		return 0;
	}
	h->by = told->by == TL_BY_PROXY ?
			who_named(WHO_PROCESS, told->hdr.tgid, told->name, sizeof(told->name)) :
			who_named(WHO_CLIENT, r->peer_port, told->name, sizeof(told->name));
	arrivals_told(r, told, n_told, h);
	return 0;
}

static int arrivals_make(struct clues *c)
{
	const struct tl_delivered *d = c->ev->delivered.v;
	size_t n = c->ev->delivered.n;
	struct by_number *first = calloc(c->v->n_requests + 1, sizeof(*first));
	int err = first ? 0 : -ENOMEM;

	/* Per request its first row + 1 and how many. */
	for (size_t i = 0, k; i < n && !err; i = k) {
		uint32_t request = clues_request(c, d[i].req);

		for (k = i + 1; k < n && d[k].req == d[i].req;)
			k++;
		if (request != UINT32_MAX)
			first[request] = (struct by_number){ i + 1, k - i };
	}
	for (uint32_t r = 0; r < c->v->n_requests && !err; r++) {
		size_t h0 = first_of(c->held_of, c->n_held_of, r);
		size_t h1 = first_of(c->held_of, c->n_held_of, r + 1);

		if (first[r].req || h1 > h0)
			err = arrivals_of(c, r, first[r].req ? d + first[r].req - 1 : NULL, first[r].index,
					  c->held_of + h0, h1 - h0);
	}
	free(first);
	return err;
}

static const struct held_back *arrivals_find(const struct clues *c, uint32_t request)
{
	size_t lo = 0, hi = c->arrivals.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (c->arrivals.v[mid].request < request)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < c->arrivals.n && c->arrivals.v[lo].request == request ? &c->arrivals.v[lo] : NULL;
}

uint64_t clues__delivered_ns(const struct clues *c, uint32_t request, size_t chunk, struct culprit *ret_by)
{
	const struct held_back *h = arrivals_find(c, request);

	if (!h || chunk >= c->v->requests[request].n_chunks || !h->chunk_ns[chunk])
		return 0;
	if (ret_by)
		*ret_by = h->by;
	return h->chunk_ns[chunk];
}

/* ---- pieces ---- */

/* `by`: who hands the answer on, NULL: nobody known. */
static void held_piece(const struct tl_send_held *s, const struct culprit *by, struct clue *k)
{
	char port[32];

	switch (s->why) {
	case TL_HELD_NAGLE:
	case TL_HELD_CORK:
		k->mechanism = MECH_NAGLE;
		if (by && by->type == WHO_PROCESS && by->id == s->hdr.tgid) {
			k->who = *by;	/* the socket of a proxy */
			break;
		}
		if (s->fd >= 0)
			snprintf(port, sizeof(port), "fd %d, port %u", s->fd, s->local_port);
		else
			snprintf(port, sizeof(port), "port %u", s->local_port);
		k->who = who_named(WHO_CLIENT, s->peer_port, port, sizeof(port));
		break;
	case TL_HELD_WINDOW:
		k->mechanism = MECH_SLOW_CLIENT;
		k->who = (struct culprit){ .type = WHO_CLIENT, .id = s->peer_port };
		break;
	default:
		k->mechanism = MECH_NETWORK;
		k->prov = s->why == TL_HELD_OTHER ? PROV_INFERRED : PROV_OBSERVED;
		k->who = (struct culprit){ .type = WHO_NETWORK };
	}
}

static void clip(struct clue *k, uint64_t since_ns, uint64_t until_ns, uint64_t t0_ns, uint64_t t1_ns)
{
	k->t0_ns = since_ns > t0_ns ? since_ns : t0_ns;
	k->t1_ns = until_ns < t1_ns ? until_ns : t1_ns;
}

static int by_begin(const void *pa, const void *pb)
{
	const struct clue *a = pa, *b = pb;

	return a->t0_ns < b->t0_ns ? -1 : a->t0_ns > b->t0_ns;
}

void clues__send(const struct clues *c, uint32_t request, uint64_t t0_ns, uint64_t t1_ns,
		 struct clue_list *ret)
{
	const struct held_back *h = arrivals_find(c, request);
	const struct culprit *by = h ? &h->by : NULL;
	struct clue all[MAX_QUERY];
	size_t n = 0;
	uint64_t cur = t0_ns;

	ret->n = 0;
	/* A peer that does not read is the reason behind whatever is held meanwhile: it comes first. */
	for (size_t i = first_of(c->blocked_of, c->n_blocked_of, request);
	     i < c->n_blocked_of && c->blocked_of[i].req == request && n < MAX_QUERY; i++) {
		const struct tl_send_blocked *s = &c->ev->blocked.v[c->blocked_of[i].index];
		struct clue k = { .mechanism = MECH_SLOW_CLIENT, .prov = PROV_OBSERVED };

		clip(&k, s->since_ns, s->drained_ns > s->hdr.ts_ns ? s->drained_ns : s->hdr.ts_ns, t0_ns,
		     t1_ns);
		k.who = (struct culprit){ .type = WHO_CLIENT, .id = c->v->requests[request].peer_port };
		if (k.t1_ns > k.t0_ns)
			all[n++] = k;
	}
	for (size_t i = first_of(c->held_of, c->n_held_of, request);
	     i < c->n_held_of && c->held_of[i].req == request && n < MAX_QUERY; i++) {
		const struct tl_send_held *s = &c->ev->held.v[c->held_of[i].index];
		struct clue k = { .prov = PROV_OBSERVED };

		if (s->since_ns >= t1_ns)
			break;
		clip(&k, s->since_ns, s->hdr.ts_ns, t0_ns, t1_ns);
		held_piece(s, by, &k);
		if (k.t1_ns > k.t0_ns)
			all[n++] = k;
	}
	if (n)
		qsort(all, n, sizeof(*all), by_begin);
	for (size_t i = 0; i < n; i++) {
		if (all[i].t0_ns < cur)
			all[i].t0_ns = cur;
		if (all[i].t1_ns <= all[i].t0_ns)
			continue;
		all[i].ns = all[i].t1_ns - all[i].t0_ns;
		cur = all[i].t1_ns;
		list_add(ret, &all[i]);
	}
	list_sort(ret);
}

/* ---- blocks inside the process ---- */

/*
 * The application hands on each token, and the socket gets many of them in one write, again and again: what
 * lies between (compression, a middleware) fills a block first. One burst alone may be a loop that was blocked.
 */
static bool writes_blocks(const struct rec_request *r)
{
	size_t n_writes = 0, in_blocks = 0;

	if (r->n_chunks < 2 * MIN_TOGETHER)
		return false;
	for (size_t i = 0, k; i < r->n_chunks; i = k, n_writes++) {
		for (k = i + 1; k < r->n_chunks && chunk_ns(r, k) == chunk_ns(r, i);)
			k++;
		if (k - i >= MIN_TOGETHER)
			in_blocks += k - i;
	}
	return n_writes > 1 && in_blocks >= r->n_chunks - r->n_chunks / 5;
}

bool held_inside(const struct clues *c, uint32_t request, uint64_t t_ns, struct piece *ret)
{
	const struct rec_request *r = &c->v->requests[request];
	size_t lo = 0, hi = r->n_chunks;

	if (!c->in_blocks[request])
		return false;
	while (lo < hi) {	/* the first chunk written at t or later */
		size_t mid = lo + (hi - lo) / 2;

		if (chunk_ns(r, mid) < t_ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == r->n_chunks)
		return false;
	*ret = (struct piece){
		.t0_ns = lo ? chunk_ns(r, lo - 1) : r->at_ns[P_REQ_FIRST_BYTE],
		.t1_ns = chunk_ns(r, lo), .at = clues_tgid(c, r->engine),
		.src = SRC_HELD, .rank = RANK_HELD, .mechanism = MECH_APP_BUFFER, .prov = PROV_INFERRED,
	};
	return ret->t1_ns > ret->t0_ns;
}

int send_make(struct clues *c)
{
	struct on_conn *conns = conns_make(c);
	int err = conns ? INDEX_BY_REQUEST(c, conns, held, c->held_of, c->n_held_of) : -ENOMEM;

	if (!err)
		err = INDEX_BY_REQUEST(c, conns, blocked, c->blocked_of, c->n_blocked_of);
	free(conns);
	if (!err) {
		drop_not_lost(c);
		err = arrivals_make(c);
	}
	if (err)
		return err;
	c->in_blocks = calloc(c->v->n_requests + 1, sizeof(*c->in_blocks));
	if (!c->in_blocks)
		return -ENOMEM;
	for (size_t i = 0; i < c->v->n_requests; i++)
		c->in_blocks[i] = writes_blocks(&c->v->requests[i]);
	return 0;
}

void send_free(struct clues *c)
{
	for (size_t i = 0; i < c->arrivals.n; i++)
		free(c->arrivals.v[i].chunk_ns);
	vec_free(&c->arrivals);
	free(c->held_of);
	free(c->blocked_of);
	free(c->in_blocks);
}
