/* SPDX-License-Identifier: Apache-2.0 */
/* The wires of vLLM's engines: bytes of sockets, or frames as libzmq is
 * given them, into messages. */
#include "engine/vllm_priv.h"

#include <errno.h>

enum {
	MAX_MESSAGE_BYTES = 256 << 10,	/* that are read: outputs of a batch of 2,000 requests */
	AF_UNIX_ = 1,
};

static void on_message(void *ctx, const struct zmtp_message *msg)
{
	struct vllm *v = ctx;
	struct vsocket *s = v->sock;
	const struct zmtp_frame *body;
	enum vllm_kind kind;

	if (s->tcp && !s->told && v->n_found < VLLM_MAX_FOUND) {
		kind = vllm_msg_kind(msg->frames, msg->n, &body);
		if (kind == VLLM_ADD || kind == VLLM_OUTPUTS) {
			s->told = true;
			v->found[v->n_found++] = v->sock_key;
		}
	}
	vllm_message(v, msg);
}

bool vllm__next_wire(struct vllm *v, uint64_t *ret_sock)
{
	if (!v->n_found)
		return false;
	*ret_sock = v->found[--v->n_found];
	return true;
}

/* ---- sockets ---- */

static void close_both(const struct vsocket *s)
{
	zmtp__free(s->in);
	zmtp__free(s->out);
}

/* NULL: no memory, or too many. */
static struct vsocket *socket_of(struct vllm *v, uint64_t key, uint32_t tgid)
{
	static const struct zmtp_fns fns = { on_message, NULL };
	bool fresh;
	struct vsocket *s = map__put(v->sockets, key, &fresh);

	if (!s || !fresh)
		return s;
	s->tgid = tgid;
	s->in = zmtp__new(MAX_MESSAGE_BYTES, &fns, v);
	s->out = zmtp__new(MAX_MESSAGE_BYTES, &fns, v);
	if (s->in && s->out)
		return s;
	close_both(s);
	map__del(v->sockets, key);
	return NULL;
}

void vllm_socket_close(struct vllm *v, uint64_t sock)
{
	struct vsocket *s = map__get(v->sockets, sock);

	if (!s)
		return;
	close_both(s);
	map__del(v->sockets, sock);
}

void vllm_sockets_of_process(struct vllm *v, uint32_t tgid)
{
	struct vsocket *s;
	uint64_t key;

	do {	/* each deletion changes the map: look again */
		for (s = map__oldest(v->sockets, &key); s; s = map__newer(v->sockets, s, &key))
			if (s->tgid == tgid)
				break;
		if (s)
			vllm_socket_close(v, key);
	} while (s);
}

void vllm_sockets_resync(struct vllm *v)
{
	for (struct vsocket *s = map__oldest(v->sockets, NULL); s;
	     s = map__newer(v->sockets, s, NULL)) {
		zmtp__resync(s->in);
		zmtp__resync(s->out);
	}
}

void vllm_sockets_free(struct vllm *v)
{
	if (v->sockets)
		for (struct vsocket *s = map__oldest(v->sockets, NULL); s;
		     s = map__newer(v->sockets, s, NULL))
			close_both(s);
	map__free(v->sockets);
}

/* ---- bytes ---- */

/* Whose socket it is, and where the parsers' messages belong. NULL: no memory. */
static struct zmtp *begin(struct vllm *v, uint64_t key, uint32_t tgid, bool out)
{
	const struct vprocess *p = map__get(v->processes, tgid);
	struct vsocket *s = socket_of(v, key, tgid);

	if (!s) {
		v->err = -ENOMEM;
		return NULL;
	}
	v->engine = p->engine;
	v->sock = s;
	v->sock_key = key;
	v->out_dir = out;
	return out ? s->out : s->in;
}

static int feed_bytes(struct zmtp *z, const struct tl_raw_net *e)
{
	uint64_t gap = e->total - e->head - e->tail;
	int err = zmtp__feed(z, e->data, e->head, true);

	if (!err && gap)
		err = zmtp__gap(z, gap);
	if (!err && e->tail)
		err = zmtp__feed(z, e->data + e->head, e->tail, false);
	return err;
}

/* Something of the socket at hand was not seen since its last event. */
static void say_lost(struct vllm *v, const struct tl_hdr *e)
{
	struct tl_lost ev = {
		.hdr = { sizeof(ev), TL_LOST, 0, e->tgid, e->tid, v->now_ns },
		.n = 1, .since_ns = v->sock->last_ns, .where = TL_LOST_PARSER, .what = e->kind,
	};

	vllm_emit(v, &ev.hdr);
}

void vllm_net(struct vllm *v, const struct tl_raw_net *e)
{
	struct zmtp *z = begin(v, e->sock, e->hdr.tgid, e->dir == TL_OUT);
	uint32_t missing;
	int err = 0;

	if (!z)
		return;
	v->sock->tcp = e->family != AF_UNIX_;
	missing = stream_pos_unseen(&v->sock->pos[v->out_dir], e);
	if (missing) {
		say_lost(v, &e->hdr);
		err = zmtp__gap(z, missing);
	}
	v->sock->last_ns = v->now_ns;
	/* Of requests that were not seen, what the engine says is all that is known. */
	if (feed_bytes(z, e) == -EPROTO || err == -EPROTO || (missing && !v->out_dir))
		vsched__lost(&v->engines[v->engine].sched, v->now_ns);
}

/* ---- frames ---- */

/* Addresses mean something within their process only. Inodes have no highest bit. */
static uint64_t key_of(const struct tl_raw_zmq *e)
{
	return 1ull << 63 | vllm_hash(e->hdr.tgid, &e->sock, sizeof(e->sock));
}

void vllm_zmq(struct vllm *v, const struct tl_raw_zmq *e)
{
	struct zmtp *z = begin(v, key_of(e), e->hdr.tgid, e->dir == TL_OUT);

	if (!z)
		return;
	if (e->unknown) {
		v->counts.bad_messages++;
		say_lost(v, &e->hdr);
		zmtp__resync(z);
		vsched__lost(&v->engines[v->engine].sched, v->now_ns);
		return;
	}
	v->sock->last_ns = v->now_ns;
	if (zmtp__frame(z, e->has_more, e->total, e->data, e->head) == -ENOMEM)
		v->err = -ENOMEM;
}
