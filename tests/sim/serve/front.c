/* SPDX-License-Identifier: Apache-2.0 */
/* simserve: HTTP/1.1 on one thread; answers as server-sent events, chunk by chunk. */
#include <errno.h>
#include <llhttp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../fault.h"
#include "serve.h"

enum { MAX_CONNS = 1024, MAX_BODY = 4 << 20, MAX_PENDING = 1 << 20, LISTEN_KEY = MAX_CONNS,
       WAKE_KEY = MAX_CONNS + 1 };

struct conn {
	int fd;			/* -1: free */
	llhttp_t http;
	struct front *front;
	char path[64], *body, *pending;
	size_t n_path, n_body, n_pending;
	uint64_t read_ns;	/* when the last bytes were read */
	bool busy, whole;	/* a request is being answered; one was read */
	struct answer answer;
};
struct front {
	struct engine *engine;
	llhttp_settings_t settings;
	struct conn conns[MAX_CONNS];
	int epoll;
	uint32_t n_requests;
};

static int on_url(llhttp_t *h, const char *at, size_t n)
{
	struct conn *c = h->data;

	for (size_t i = 0; i < n && c->n_path + 1 < sizeof(c->path); i++)
		c->path[c->n_path++] = at[i];
	c->path[c->n_path] = 0;
	return 0;
}

static int on_body(llhttp_t *h, const char *at, size_t n)
{
	struct conn *c = h->data;
	char *b = c->n_body + n > MAX_BODY ? NULL : realloc(c->body, c->n_body + n);

	if (!b)
		return -1;
	c->body = b;
	memcpy(b + c->n_body, at, n);
	c->n_body += n;
	return 0;
}

static int on_whole(llhttp_t *h)
{
	struct conn *c = h->data;

	c->whole = true;
	return HPE_PAUSED;	/* one request of a connection at a time */
}

static void conn__drop(struct conn *c)
{
	if (c->busy)
		engine__abort(c->front->engine, c->answer.job.req);
	close(c->fd);
	free(c->body);
	free(c->pending);
	*c = (struct conn){ .fd = -1, .front = c->front };
}

static void conn__watch(struct conn *c)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | (c->n_pending ? EPOLLOUT : 0),
				  .data.u32 = c - c->front->conns };

	epoll_ctl(c->front->epoll, EPOLL_CTL_MOD, c->fd, &ev);
}

static int conn__flush(struct conn *c)
{
	ssize_t n = c->n_pending ? send(c->fd, c->pending, c->n_pending, MSG_NOSIGNAL) : 0;

	if (n < 0 && errno != EAGAIN)
		return -errno;
	if (n > 0) {
		memmove(c->pending, c->pending + n, c->n_pending - n);
		c->n_pending -= n;
	}
	conn__watch(c);
	return 0;
}

static int conn__send(struct conn *c, const char *data, size_t n)
{
	bool had = c->n_pending;
	char *p = c->n_pending + n > MAX_PENDING ? NULL : realloc(c->pending, c->n_pending + n + 1);

	if (!p)
		return -ENOBUFS;
	c->pending = p;
	memcpy(p + c->n_pending, data, n);
	c->n_pending += n;
	return had ? 0 : conn__flush(c);
}

/* One event, as one chunk of the body. */
static size_t add_event(char *buf, size_t max, const char *data, size_t n)
{
	return snprintf(buf, max, "%zx\r\ndata: %.*s\n\n\r\n", n + 8, (int)n, data);
}

static int send_simple(struct conn *c, int status, const char *json, size_t n)
{
	char *buf = malloc(n + 256);
	int len, err;

	if (!buf)
		return -ENOMEM;
	len = snprintf(buf, n + 256, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
		       "Content-Length: %zu\r\n\r\n%.*s", status, status == 200 ? "OK" : "Error", n, (int)n, json);
	err = conn__send(c, buf, len);
	free(buf);
	return err;
}

static int conn__answer_token(struct conn *c, const struct output *o)
{
	static char json[1024], buf[4096], whole[1 << 20];
	struct answer *a = &c->answer;
	size_t n = 0;

	a->n_out++;
	if (!a->stream) {
		if (!o->finish)
			return 0;
		c->busy = false;
		return send_simple(c, 200, whole, answer_whole(a, o->finish, whole, sizeof(whole)));
	}
	if (!o->index) {
		n += snprintf(buf, sizeof(buf), "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
			      "Transfer-Encoding: chunked\r\n\r\n");
		if (a->chat)
			n += add_event(buf + n, sizeof(buf) - n, json, answer_role(a, json, sizeof(json)));
	}
	n += add_event(buf + n, sizeof(buf) - n, json, answer_token(a, o, json, sizeof(json)));
	if (o->finish) {
		if (a->usage)
			n += add_event(buf + n, sizeof(buf) - n, json, answer_usage(a, json, sizeof(json)));
		n += add_event(buf + n, sizeof(buf) - n, "[DONE]", 6);
		n += snprintf(buf + n, sizeof(buf) - n, "0\r\n\r\n");
		c->busy = false;
	}
	return conn__send(c, buf, n);
}

/* A whole request was read. */
static int conn__begin(struct conn *c)
{
	static const char models[] = "{\"object\":\"list\",\"data\":[{\"id\":\"sim\",\"object\":\"model\"}]}";
	static const char bad[] = "{\"error\":{\"message\":\"bad request\",\"type\":\"invalid_request_error\"}}";
	struct front *f = c->front;
	struct answer a;
	int status, err = 0;

	if (!strcmp(c->path, "/health") || !strcmp(c->path, "/v1/models")) {
		err = send_simple(c, 200, models, sizeof(models) - 1);
	} else if ((status = answer_parse(c->path, c->body ? c->body : "", c->n_body, &a)) != 200) {
		err = send_simple(c, status, bad, sizeof(bad) - 1);
	} else {
		a.job.req = ++f->n_requests;
		a.job.conn = c - f->conns;
		a.job.recv_ns = c->read_ns;
		snprintf(a.job.id, sizeof(a.job.id), "%s-%u", a.chat ? "chatcmpl" : "cmpl", a.job.req);
		c->answer = a;
		c->busy = true;
		if (engine__submit(f->engine, &a.job)) {
			c->busy = false;
			err = send_simple(c, 503, bad, sizeof(bad) - 1);
		}
	}
	c->n_path = c->n_body = 0;
	c->whole = false;
	llhttp_resume(&c->http);
	return err;
}

static int conn__read(struct conn *c)
{
	static char buf[1 << 16];
	ssize_t n = recv(c->fd, buf, sizeof(buf), 0);

	if (n <= 0)
		return n < 0 && errno == EAGAIN ? 0 : -EPIPE;
	c->read_ns = sim_now();
	if (c->busy)
		return -EPROTO;		/* pipelining is not served */
	llhttp_execute(&c->http, buf, n);
	if (c->whole)
		return conn__begin(c);
	return llhttp_get_errno(&c->http) == HPE_OK ? 0 : -EPROTO;
}

static void accept_all(struct front *f, int listen_fd)
{
	int fd, i = 0;

	while ((fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };

		while (i < MAX_CONNS && f->conns[i].fd >= 0)
			i++;
		if (i == MAX_CONNS) {
			close(fd);
			continue;
		}
		f->conns[i] = (struct conn){ .fd = fd, .front = f };
		llhttp_init(&f->conns[i].http, HTTP_REQUEST, &f->settings);
		f->conns[i].http.data = &f->conns[i];
		ev.data.u32 = i;
		epoll_ctl(f->epoll, EPOLL_CTL_ADD, fd, &ev);
	}
}

static void take_outputs(struct front *f, int wake_fd)
{
	static struct output out[256];
	uint64_t count;
	uint32_t n;

	if (read(wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return;
	while ((n = engine__take(f->engine, out, 256)))
		for (uint32_t i = 0; i < n; i++) {
			struct conn *c = &f->conns[out[i].conn];

			/* The client may be gone, and another one in its place. */
			if (c->fd < 0 || !c->busy || c->answer.job.req != out[i].req)
				continue;
			if (conn__answer_token(c, &out[i]))
				conn__drop(c);
		}
}

int front_run(struct engine *e, int listen_fd, int wake_fd)
{
	struct epoll_event evs[64], ev = { .events = EPOLLIN, .data.u32 = LISTEN_KEY };
	struct front *f = calloc(1, sizeof(*f));
	int n;

	if (!f)
		return -ENOMEM;
	f->engine = e;
	llhttp_settings_init(&f->settings);
	f->settings.on_url = on_url;
	f->settings.on_body = on_body;
	f->settings.on_message_complete = on_whole;
	for (int i = 0; i < MAX_CONNS; i++)
		f->conns[i].fd = -1;
	f->epoll = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(f->epoll, EPOLL_CTL_ADD, listen_fd, &ev);
	ev.data.u32 = WAKE_KEY;
	epoll_ctl(f->epoll, EPOLL_CTL_ADD, wake_fd, &ev);
	while ((n = epoll_wait(f->epoll, evs, 64, -1)) >= 0 || errno == EINTR)
		for (int i = 0; i < n; i++) {
			struct conn *c = &f->conns[evs[i].data.u32 % MAX_CONNS];
			int err = 0;

			if (evs[i].data.u32 == LISTEN_KEY) {
				accept_all(f, listen_fd);
				continue;
			}
			if (evs[i].data.u32 == WAKE_KEY) {
				take_outputs(f, wake_fd);
				continue;
			}
			if (c->fd >= 0 && evs[i].events & EPOLLOUT)
				err = conn__flush(c);
			if (c->fd >= 0 && !err && evs[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
				err = conn__read(c);
			if (c->fd >= 0 && err)
				conn__drop(c);
		}
	return -errno;
}
