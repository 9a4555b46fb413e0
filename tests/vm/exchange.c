/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A streaming HTTP exchange on 127.0.0.1 with a known truth: this process is the server of one
 * OpenAI style chat request, its child the client. Both note every read and write they make,
 * with its bytes and its times, and the whole is printed as JSON at the end.
 *
 * The server can be held at a chosen point until SIGUSR1 comes or a file appears, so that a
 * capture can be attached there.
 */
#include <argp.h>
#include <arpa/inet.h>
#include <errno.h>
#include <error.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_IOS 100000
#define MAX_DATA_BYTES (64u << 20)
#define MAX_WRITE_BYTES (64u << 10)
#define READ_BYTES 4096

enum hold { HOLD_NONE, HOLD_CONNECT, HOLD_REQUEST, HOLD_READ, HOLD_CHUNK };

/* Index 0..3: the plain call, the socket call, the message call, the vector call. */
static const char *const read_calls[] = { "read", "recvfrom", "recvmsg", "readv" };
static const char *const write_calls[] = { "write", "sendto", "sendmsg", "writev" };

struct opts {
	int port, chunks, requests, per_write, piece, hold_chunk;
	int first_us, interval_us, wait_s;
	int server_read, server_write, client_read, client_write;
	enum hold hold;
	bool no_data;
	const char *start, *ready, *out;
};

struct io {
	const char *call, *what;	/* constants, so valid on both sides of the fork */
	int request, token;		/* token: number of the first token in it, or -1 */
	int fd;
	uint64_t start_ns, end_ns;	/* around the system call */
	size_t data, size;		/* in the side's arena */
};

/* What one side did. Only that side writes to it; the server prints both after the client's end. */
struct side {
	struct io ios[MAX_IOS];
	size_t n_ios, n_data;
	char data[MAX_DATA_BYTES];
};

/* Shared between the two processes; untouched pages cost nothing. */
struct shared {
	atomic_int go;
	struct side server, client;
};

static struct opts o;
static struct shared *shared;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

static void pause_us(int us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000L };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static void wait_start(void)
{
	const struct timespec tick = { 0, 2000000 };
	uint64_t limit_ns = now_ns() + (uint64_t)o.wait_s * 1000000000u;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	while (now_ns() < limit_ns) {
		if (sigtimedwait(&set, NULL, &tick) == SIGUSR1)
			return;
		if (o.start && access(o.start, F_OK) == 0)
			return;
	}
	error(1, 0, "no start signal came within %d s", o.wait_s);
}

/* Two pieces, so that whoever reads only the first vector is found out. */
static void split(struct iovec iov[2], char *buf, size_t size)
{
	size_t first = size / 2;

	iov[0] = (struct iovec){ buf, first };
	iov[1] = (struct iovec){ buf + first, size - first };
}

static ssize_t call_read(int call, int fd, char *buf, size_t size)
{
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	split(iov, buf, size);
	switch (call) {
	case 0: return read(fd, buf, size);
	case 1: return recv(fd, buf, size, 0);
	case 2: return recvmsg(fd, &msg, 0);
	default: return readv(fd, iov, 2);
	}
}

static ssize_t call_write(int call, int fd, char *buf, size_t size)
{
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	split(iov, buf, size);
	switch (call) {
	case 0: return write(fd, buf, size);
	case 1: return send(fd, buf, size, 0);
	case 2: return sendmsg(fd, &msg, 0);
	default: return writev(fd, iov, 2);
	}
}

static void note(struct side *s, struct io io, const char *buf, size_t size)
{
	if (s->n_ios == MAX_IOS || size > MAX_DATA_BYTES - s->n_data)
		error(1, 0, "too many or too large reads and writes to note");
	io.data = s->n_data;
	io.size = size;
	memcpy(s->data + s->n_data, buf, size);
	s->n_data += size;
	s->ios[s->n_ios++] = io;
}

/* Reads once, appending to the string in buf. Returns what came; 0 at the end. */
static size_t do_read(struct side *s, int call, int fd, int request, char *buf, size_t *len,
		      size_t max)
{
	struct io io = { read_calls[call], "read", request, -1, fd, 0, 0, 0, 0 };
	size_t room = max - *len - 1;
	ssize_t n;

	if (!room)
		error(1, 0, "a message is larger than %zu bytes", max);
	io.start_ns = now_ns();
	n = call_read(call, fd, buf + *len, room < READ_BYTES ? room : READ_BYTES);
	io.end_ns = now_ns();
	if (n < 0)
		error(1, errno, "%s", read_calls[call]);
	note(s, io, buf + *len, n);
	*len += n;
	buf[*len] = 0;
	return n;
}

static void do_write(struct side *s, int call, int fd, int request, const char *what, int token,
		     char *buf, size_t size)
{
	while (size) {
		struct io io = { write_calls[call], what, request, token, fd, 0, 0, 0, 0 };
		ssize_t n;

		io.start_ns = now_ns();
		n = call_write(call, fd, buf, size);
		io.end_ns = now_ns();
		if (n < 0)
			error(1, errno, "%s", write_calls[call]);
		note(s, io, buf, n);
		buf += n;
		size -= n;
	}
}

static void set_up_socket(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void give_up(int sig)
{
	static const char msg[] = "exchange: hung, gave up\n";

	(void)sig;
	_exit(write(STDERR_FILENO, msg, sizeof(msg) - 1) < 0 ? 2 : 1);
}

/*
 * Neither side may wait for ever for the other one. Not by SO_RCVTIMEO: a read with a timeout
 * fails with EINTR when a debugger stops and continues the process, one without is restarted.
 */
static void limit_time(void)
{
	int64_t plan_us = (int64_t)o.requests * (o.first_us + (int64_t)o.chunks * o.interval_us);

	signal(SIGALRM, give_up);
	alarm(o.wait_s + 30 + plan_us / 1000000 * 4);
}

/* ---- the server ---- */

struct pending {		/* events that go out in one write */
	char buf[MAX_WRITE_BYTES];
	size_t len;
	const char *what;	/* of the first event in it */
	int n, token;
};

static void flush_events(struct pending *p, int fd, int request)
{
	do_write(&shared->server, o.server_write, fd, request, p->what, p->token, p->buf, p->len);
	*p = (struct pending){ .token = -1 };
}

/* One event as one HTTP chunk, as uvicorn sends it. */
static void add_event(struct pending *p, int fd, int request, const char *what, int token,
		      const char *json)
{
	size_t size = strlen(json) + strlen("data: \n\n");

	if (p->len + size + 32 > sizeof(p->buf))
		error(1, 0, "too many events for one write");
	if (!p->n++)
		p->what = what;
	if (p->token < 0)
		p->token = token;
	p->len += sprintf(p->buf + p->len, "%zx\r\ndata: %s\n\n\r\n", size, json);
	if (p->n == o.per_write)
		flush_events(p, fd, request);
}

static const char *chunk_json(char *buf, size_t size, int request, const char *rest)
{
	snprintf(buf, size,
		 "{\"id\":\"chatcmpl-exchange-%d\",\"object\":\"chat.completion.chunk\","
		 "\"created\":1700000000,\"model\":\"tiny\",%s}", request, rest);
	return buf;
}

static void serve_response(int fd, int request)
{
	static char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
			     "transfer-encoding: chunked\r\n\r\n";
	static char end[] = "0\r\n\r\n";
	static struct pending p;
	char json[512], rest[256];

	p = (struct pending){ .token = -1 };
	do_write(&shared->server, o.server_write, fd, request, "head", -1, head, strlen(head));
	add_event(&p, fd, request, "role", -1, chunk_json(json, sizeof(json), request,
		"\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
		"\"finish_reason\":null}]"));
	pause_us(o.first_us);
	for (int i = 0; i < o.chunks; i++) {
		if (o.hold == HOLD_CHUNK && request == 0 && i == o.hold_chunk)
			wait_start();
		if (i)
			pause_us(o.interval_us);
		snprintf(rest, sizeof(rest), "\"choices\":[{\"index\":0,"
			 "\"delta\":{\"content\":\" t%d\"},\"finish_reason\":null}]", i);
		add_event(&p, fd, request, "token", i,
			  chunk_json(json, sizeof(json), request, rest));
	}
	add_event(&p, fd, request, "finish", -1, chunk_json(json, sizeof(json), request,
		"\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]"));
	snprintf(rest, sizeof(rest), "\"choices\":[],\"usage\":{\"prompt_tokens\":7,"
		 "\"completion_tokens\":%d,\"total_tokens\":%d}", o.chunks, o.chunks + 7);
	add_event(&p, fd, request, "usage", -1, chunk_json(json, sizeof(json), request, rest));
	add_event(&p, fd, request, "done", -1, "[DONE]");
	if (p.n)
		flush_events(&p, fd, request);
	do_write(&shared->server, o.server_write, fd, request, "end", -1, end, strlen(end));
}

/* Returns whether a whole request came; false is the end of the connection. */
static bool serve_request(int fd, int request)
{
	static const char name[] = "Content-Length: ";
	static char buf[MAX_WRITE_BYTES];
	size_t len = 0, need = 0;

	do {
		char *body, *size;

		if (!do_read(&shared->server, o.server_read, fd, request, buf, &len, sizeof(buf))) {
			if (len)
				error(1, 0, "the client closed in the middle of a request");
			return false;
		}
		body = strstr(buf, "\r\n\r\n");
		size = body ? strstr(buf, name) : NULL;
		if (size)
			need = body + 4 - buf + strtoul(size + strlen(name), NULL, 10);
	} while (!need || len < need);
	return true;
}

static void serve(int listener)
{
	int fd;

	if (o.hold == HOLD_CONNECT) {
		wait_start();
		shared->go = 1;
	}
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		error(1, errno, "accept");
	set_up_socket(fd);
	if (o.hold == HOLD_REQUEST) {
		wait_start();
		shared->go = 1;
	}
	for (int i = 0; serve_request(fd, i); i++)
		serve_response(fd, i);
	close(fd);
}

/* ---- the client ---- */

static void send_request(int fd, int request)
{
	char body[512], buf[1024];
	size_t len, piece;

	snprintf(body, sizeof(body), "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\","
		 "\"content\":\"Say %d words.\"}],\"stream\":true,"
		 "\"stream_options\":{\"include_usage\":true},\"max_tokens\":%d}",
		 o.chunks, o.chunks);
	len = snprintf(buf, sizeof(buf), "POST /v1/chat/completions HTTP/1.1\r\n"
		       "Host: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", o.port,
		       strlen(body), body);
	piece = o.piece ? (size_t)o.piece : len;
	for (size_t at = 0; at < len; at += piece) {
		if (at)
			pause_us(1000);
		do_write(&shared->client, o.client_write, fd, request, "request", -1, buf + at,
			 len - at < piece ? len - at : piece);
	}
}

/* To the last chunk of the body; no event of ours contains what that looks like. */
static void read_response(int fd, int request)
{
	static const char end[] = "\r\n0\r\n\r\n";
	static char buf[MAX_DATA_BYTES / 4];
	size_t len = 0;

	do {
		if (!do_read(&shared->client, o.client_read, fd, request, buf, &len, sizeof(buf)))
			error(1, 0, "the server closed in the middle of a response");
	} while (len < strlen(end) || strcmp(buf + len - strlen(end), end) != 0);
}

static void run_client(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(o.port),
		.sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	prctl(PR_SET_NAME, "exchange-client");
	if (fd < 0)
		error(1, errno, "socket");
	while (o.hold == HOLD_CONNECT && !shared->go)
		pause_us(200);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
		error(1, errno, "connect to port %d", o.port);
	set_up_socket(fd);
	while (o.hold == HOLD_REQUEST && !shared->go)
		pause_us(200);
	if (o.hold == HOLD_READ)
		wait_start();
	for (int i = 0; i < o.requests; i++) {
		send_request(fd, i);
		read_response(fd, i);
	}
	close(fd);
}

/* ---- the truth ---- */

static void print_string(FILE *f, const char *s, size_t size)
{
	fputc('"', f);
	for (size_t i = 0; i < size; i++) {
		unsigned char c = s[i];

		if (c == '"' || c == '\\')
			fprintf(f, "\\%c", c);
		else if (c < 0x20 || c > 0x7e)
			fprintf(f, "\\u%04x", c);
		else
			fputc(c, f);
	}
	fputc('"', f);
}

static void print_side(FILE *f, const char *name, pid_t pid, const struct side *s)
{
	fprintf(f, "\"%s\":{\"pid\":%d,\"io\":[", name, pid);
	for (size_t i = 0; i < s->n_ios; i++) {
		const struct io *io = &s->ios[i];

		fprintf(f, "%s\n{\"call\":\"%s\",\"what\":\"%s\",\"request\":%d,", i ? "," : "",
			io->call, io->what, io->request);
		if (io->token >= 0)
			fprintf(f, "\"token\":%d,", io->token);
		fprintf(f, "\"fd\":%d,\"start_ns\":%llu,\"end_ns\":%llu,\"bytes\":%zu", io->fd,
			(unsigned long long)io->start_ns, (unsigned long long)io->end_ns, io->size);
		if (!o.no_data) {
			fputs(",\"data\":", f);
			print_string(f, s->data + io->data, io->size);
		}
		fputc('}', f);
	}
	fputs("]}", f);
}

static void print_truth(pid_t client)
{
	FILE *f = o.out ? fopen(o.out, "w") : stdout;

	if (!f)
		error(1, errno, "cannot write to '%s'", o.out);
	fprintf(f, "{\"port\":%d,\"requests\":%d,\"tokens\":%d,\n", o.port, o.requests, o.chunks);
	print_side(f, "server", getpid(), &shared->server);
	fputs(",\n", f);
	print_side(f, "client", client, &shared->client);
	fputs("}\n", f);
	if (ferror(f) || fclose(f))
		error(1, errno, "cannot write the truth");
}

/* By rename, so that whoever waits for the file finds it whole. */
static void print_ready(pid_t client)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s.tmp", o.ready);
	f = fopen(path, "w");
	if (!f)
		error(1, errno, "cannot write to '%s'", path);
	fprintf(f, "{\"pid\":%d,\"client_pid\":%d,\"port\":%d}\n", getpid(), client, o.port);
	if (fclose(f) || rename(path, o.ready))
		error(1, errno, "cannot write to '%s'", o.ready);
}

/* ---- options ---- */

enum { OPT_CLIENT_READ = 256, OPT_CLIENT_WRITE, OPT_FIRST, OPT_INTERVAL, OPT_PER_WRITE, OPT_PIECE,
       OPT_HOLD, OPT_START, OPT_READY, OPT_WAIT, OPT_NO_DATA };

static const struct argp_option options[] = {
	{ "port", 'p', "N", 0, "Listen there (default: a free one)", 0 },
	{ "chunks", 'n', "N", 0, "Tokens to stream per request, one event each (8)", 0 },
	{ "requests", 'q', "N", 0, "Requests, one after the other on one connection (1)", 0 },
	{ "read", 'r', "CALL", 0, "Server's call: read, recvfrom, recvmsg, readv (recvfrom)", 0 },
	{ "write", 'w', "CALL", 0, "Server's call: write, sendto, sendmsg, writev (sendto)", 0 },
	{ "client-read", OPT_CLIENT_READ, "CALL", 0, "The same for the client (recvfrom)", 0 },
	{ "client-write", OPT_CLIENT_WRITE, "CALL", 0, "The same for the client (sendto)", 0 },
	{ "first-us", OPT_FIRST, "US", 0, "Pause before the first token (5000)", 0 },
	{ "interval-us", OPT_INTERVAL, "US", 0, "Pause between tokens (2000)", 0 },
	{ "per-write", OPT_PER_WRITE, "N", 0, "Events per write of the server (1)", 0 },
	{ "piece", OPT_PIECE, "BYTES", 0, "Send the request in such pieces (0: whole)", 0 },
	{ "hold", OPT_HOLD, "WHERE", 0, "Wait for the start signal before: connect (default), "
	  "request (connected), read (the server sleeps in its read; here SIGUSR1 is for the "
	  "client), chunk:N (N tokens out); or none", 0 },
	{ "start", OPT_START, "FILE", 0, "A start signal, as SIGUSR1 is: this file appears", 0 },
	{ "ready", OPT_READY, "FILE", 0, "Write pid, client_pid and port there, as JSON, once they "
	  "are known", 0 },
	{ "wait", OPT_WAIT, "SECS", 0, "Give up when no start signal came in that time (60)", 0 },
	{ "out", 'o', "FILE", 0, "Print the truth there (default: stdout)", 0 },
	{ "no-data", OPT_NO_DATA, NULL, 0, "Print sizes and times, but no bytes", 0 },
	{ 0 },
};

static int parse_number(struct argp_state *state, const char *arg, long min, long max)
{
	char *end;
	long n = strtol(arg, &end, 10);

	if (end == arg || *end || n < min || n > max)
		argp_error(state, "'%s' is not a number from %ld to %ld", arg, min, max);
	return n;
}

static int parse_call(struct argp_state *state, const char *arg, const char *const calls[4])
{
	for (int i = 0; i < 4; i++)
		if (!strcmp(arg, calls[i]))
			return i;
	argp_error(state, "'%s' is none of %s, %s, %s, %s", arg, calls[0], calls[1], calls[2],
		   calls[3]);
	return 0;
}

static void parse_hold(struct argp_state *state, const char *arg)
{
	static const char *const names[] = {
		[HOLD_NONE] = "none", [HOLD_CONNECT] = "connect",
		[HOLD_REQUEST] = "request", [HOLD_READ] = "read",
	};

	for (int i = 0; i < 4; i++) {
		if (!strcmp(arg, names[i])) {
			o.hold = i;
			return;
		}
	}
	if (strncmp(arg, "chunk:", 6))
		argp_error(state, "--hold is none of none, connect, request, read, chunk:N");
	o.hold = HOLD_CHUNK;
	o.hold_chunk = parse_number(state, arg + 6, 0, 1000000);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'p': o.port = parse_number(state, arg, 0, 65535); break;
	case 'n': o.chunks = parse_number(state, arg, 1, 1000000); break;
	case 'q': o.requests = parse_number(state, arg, 1, 1000000); break;
	case 'r': o.server_read = parse_call(state, arg, read_calls); break;
	case 'w': o.server_write = parse_call(state, arg, write_calls); break;
	case 'o': o.out = arg; break;
	case OPT_CLIENT_READ: o.client_read = parse_call(state, arg, read_calls); break;
	case OPT_CLIENT_WRITE: o.client_write = parse_call(state, arg, write_calls); break;
	case OPT_FIRST: o.first_us = parse_number(state, arg, 0, 100000000); break;
	case OPT_INTERVAL: o.interval_us = parse_number(state, arg, 0, 100000000); break;
	case OPT_PER_WRITE: o.per_write = parse_number(state, arg, 1, 128); break;
	case OPT_PIECE: o.piece = parse_number(state, arg, 0, 1000000); break;
	case OPT_HOLD: parse_hold(state, arg); break;
	case OPT_START: o.start = arg; break;
	case OPT_READY: o.ready = arg; break;
	case OPT_WAIT: o.wait_s = parse_number(state, arg, 1, 100000); break;
	case OPT_NO_DATA: o.no_data = true; break;
	case ARGP_KEY_ARG: argp_error(state, "takes no argument such as '%s'", arg); break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static int listen_on_loopback(void)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(o.port),
		.sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	socklen_t size = sizeof(addr);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		error(1, errno, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(fd, 8) ||
	    getsockname(fd, (struct sockaddr *)&addr, &size))
		error(1, errno, "listen on 127.0.0.1 port %d", o.port);
	o.port = ntohs(addr.sin_port);
	return fd;
}

int main(int argc, char **argv)
{
	static const struct argp argp = { options, parse, NULL,
		"Stream a chat completion over 127.0.0.1 and print what every read and write did.",
		NULL, NULL, NULL };
	int listener, status;
	sigset_t set;
	pid_t client;

	o = (struct opts){ .chunks = 8, .requests = 1, .per_write = 1, .first_us = 5000,
		.interval_us = 2000, .wait_s = 60, .server_read = 1, .server_write = 1,
		.client_read = 1, .client_write = 1, .hold = HOLD_CONNECT };
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	/* Before the fork, and before anybody can know our pid and send it. */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED)
		error(1, errno, "mmap");
	listener = listen_on_loopback();
	limit_time();

	client = fork();
	if (client < 0)
		error(1, errno, "fork");
	if (!client) {
		close(listener);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_client();
		_exit(0);
	}
	if (o.ready)
		print_ready(client);
	serve(listener);
	if (waitpid(client, &status, 0) != client || status)
		error(1, 0, "the client failed");
	print_truth(client);
	return 0;
}
