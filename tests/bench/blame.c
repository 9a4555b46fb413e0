/* SPDX-License-Identifier: Apache-2.0 */
/* Explaining an hour: writes a synthetic recording of a busy server, with evidence of its host, and
 * prints what it takes to replay it and to say who slowed whom, and what commands take that do. */
#include "model/blame_sum.h"
#include "sink/recording.h"
#include "source/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS_PER_S = 2000, MAX_STREAMS = 256, BUDGET = 2048, PID = 4711, SPANS_PER_S = 200 };

struct sim {
	struct rec_writer *w;
	uint64_t seed, now_ns, next_span_ns;
	uint32_t next_req, n_streams;
	struct stream {
		uint32_t req, left, prompt;
		int32_t pos;
	} streams[MAX_STREAMS];
};

static uint64_t random_next(struct sim *s)
{
	s->seed ^= s->seed << 13;
	s->seed ^= s->seed >> 7;
	s->seed ^= s->seed << 17;
	return s->seed;
}

static uint64_t about(struct sim *s, uint64_t mean)
{
	return mean - mean / 20 + random_next(s) % (mean / 10 + 1);
}

static void put(struct sim *s, void *rec, uint16_t kind, size_t size, uint32_t flags, uint32_t tid,
		uint64_t ts_ns)
{
	struct tl_hdr *h = rec;

	*h = (struct tl_hdr){ (uint16_t)size, kind, flags, PID, tid, ts_ns };
	if (rec_writer__write(s->w, h)) {
		fprintf(stderr, "blame: cannot write\n");
		exit(1);
	}
}

static void put_threads(struct sim *s)
{
	struct tl_engine e = {
		.start_ns = 1, .engine = TL_ENGINE_LLAMA, .server = PID, .role = "server"
	};

	put(s, &e, TL_ENGINE, sizeof(e), 0, 0, s->now_ns);
	for (uint16_t role = TL_ROLE_ENGINE; role <= TL_ROLE_ZMQ; role++) {
		struct tl_thread t = { .role = role, .rank = -1, .server = PID, .cgroup = 1,
				       .name = "thread" };

		put(s, &t, TL_THREAD, sizeof(t), 0, PID + role, s->now_ns);
	}
}

/* What the scheduler would have said since the last time: waits for a CPU, short and long ones. */
static void put_spans(struct sim *s, uint64_t until_ns)
{
	for (; s->next_span_ns < until_ns; s->next_span_ns += about(s, 1000000000 / SPANS_PER_S)) {
		struct tl_thread_span span = {
			.state = TL_SPAN_RUNNABLE, .by_tgid = 99, .by_tid = 99, .by_name = "ffmpeg"
		};
		uint64_t len = random_next(s) % 64 ? about(s, 100000) : about(s, 8000000);

		span.since_ns = s->next_span_ns;
		span.by_ns = len;
		put(s, &span, TL_THREAD_SPAN, sizeof(span), 0,
		    PID + TL_ROLE_ENGINE + random_next(s) % TL_ROLE_ZMQ, s->next_span_ns + len);
	}
}

static void begin_request(struct sim *s, uint32_t slot)
{
	struct stream *st = &s->streams[slot];
	struct tl_req_facts facts = { .max_tokens = 256, .api = TL_API_CHAT, .stream = 1,
				      .method = TL_POST, .path = "/v1/chat/completions" };
	struct tl_req_begin begin = { 0 };
	struct tl_resp_begin resp = { .status = 200, .body = TL_BODY_SSE };
	struct tl_seq_link link = { .slot = (int32_t)slot, .method = TL_LINK_TASK };
	struct tl_seq_begin seq = { .slot = slot };

	*st = (struct stream){ ++s->next_req, 64 + (uint32_t)(random_next(s) % 512),
			       64 + (uint32_t)(random_next(s) % 2048), 0 };
	begin.req = begin.conn = facts.req = resp.req = link.req = st->req;
	link.task = (int32_t)st->req;
	put(s, &begin, TL_REQ_BEGIN, sizeof(begin), TL_API_CHAT, PID, s->now_ns);
	put(s, &facts, TL_REQ_FACTS, sizeof(facts), 0, PID, s->now_ns + 20000);
	put(s, &link, TL_SEQ_LINK, sizeof(link), 0, PID, s->now_ns + 50000);
	put(s, &seq, TL_SEQ_BEGIN, sizeof(seq), 0, PID, s->now_ns + 60000);
	put(s, &resp, TL_RESP_BEGIN, sizeof(resp), 0, PID, s->now_ns + 70000);
}

static uint64_t fill_step(struct sim *s, struct tl_step *head, struct tl_member *members)
{
	uint32_t room = BUDGET;

	for (uint32_t i = 0; i < s->n_streams; i++) {
		struct stream *st = &s->streams[i];
		struct tl_member *m = &members[head->n_members];

		if (!st->left)
			begin_request(s, i);
		if (!room)
			continue;
		*m = (struct tl_member){
			.slot = i, .pos = st->pos, .n_tokens = 1, .phase = TL_DECODE, .n_out = 1
		};
		if (st->prompt) {
			m->n_tokens = st->prompt < room ? st->prompt : room;
			m->phase = TL_PREFILL;
			m->n_out = m->n_tokens == st->prompt;
			room -= m->n_tokens;
		}
		head->n_tokens += m->n_tokens;
		head->n_members++;
	}
	return head->n_tokens - head->n_members;
}

static void step(struct sim *s)
{
	struct { struct tl_step head; struct tl_member members[MAX_STREAMS]; } rec = { 0 };
	uint64_t usual = 1000000000ull * s->n_streams / TOKENS_PER_S, prefill;
	uint64_t begin;

	prefill = fill_step(s, &rec.head, rec.members);
	begin = s->now_ns + about(s, usual / 50);
	rec.head.end_ns = begin + about(s, usual * 9 / 10) + prefill * 8000;
	put_spans(s, rec.head.end_ns);
	put(s, &rec, TL_STEP, sizeof(rec.head) + rec.head.n_members * sizeof(rec.members[0]), 0,
	    PID + TL_ROLE_ENGINE, begin);
	s->now_ns = rec.head.end_ns;
	for (uint32_t i = 0; i < rec.head.n_members; i++) {
		struct stream *st = &s->streams[rec.members[i].slot];
		struct tl_chunk chunk = { .req = st->req, .bytes = 230 };
		struct tl_req_end end = { .req = st->req, .how = TL_END_COMPLETE, .status = 200 };

		st->pos += (int32_t)rec.members[i].n_tokens;
		if (rec.members[i].phase == TL_PREFILL)
			st->prompt -= rec.members[i].n_tokens;
		if (!rec.members[i].n_out)
			continue;
		s->now_ns += about(s, usual / 50 / s->n_streams);
		put(s, &chunk, TL_CHUNK, sizeof(chunk), TL_CHUNK_TEXT, PID, s->now_ns);
		if (!--st->left)
			put(s, &end, TL_REQ_END, sizeof(end), 0, PID, s->now_ns);
	}
}

static int write_recording(const char *path, uint32_t n_streams, uint64_t seconds)
{
	const struct tl_file_hdr hdr = { .tool = TL_VERSION };
	const struct rec_writer_opts opts = { .force = true };
	struct sim s = { .seed = 88172645463325252u,
			 .now_ns = 3600000000000,
			 .n_streams = n_streams };
	uint64_t end_ns = s.now_ns + seconds * 1000000000;
	int err = rec_writer__open(path, &hdr, &opts, &s.w);

	if (err)
		return err;
	s.next_span_ns = s.now_ns;
	put_threads(&s);
	while (s.now_ns < end_ns)
		step(&s);
	return rec_writer__close(s.w, true);
}

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double rss_mb(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_maxrss * 1024 / 1e6;
}

static int explain(const char *path)
{
	struct model *m = model__new(NULL);
	struct src_file *f = NULL;
	const struct tl_hdr *ev;
	struct blame_sum *sum;
	struct model_view v;
	struct blame *b;
	double t0 = cpu_s(), t1, t2, model_mb;
	int err = m ? src_file__open(path, &f) : -ENOMEM;

	while (!err && (err = rec_reader__next(src_file__reader(f), &ev)) > 0)
		err = model__feed(m, ev);
	if (err || (err = model__finish(m)))
		return err;
	src_file__close(f);
	model__view(m, &v);
	t1 = cpu_s();
	model_mb = rss_mb();
	if ((err = blame__new(&v, &b)))
		return err;
	t2 = cpu_s();
	if ((err = blame_sum__new(b, &v, &sum)))
		return err;
	printf("  %" PRIu64
	       " gaps of %zu requests in %zu steps, %zu spans of threads: replay %.1f s, "
	       "learning %.1f s, gaps %.1f s\n",
	       sum->n_gaps, v.n_requests, v.n_steps,
	       (size_t)SPANS_PER_S * (v.t1_ns - v.t0_ns) / 1000000000, t1 - t0, t2 - t1,
	       cpu_s() - t2);
	printf("  all of it              %.1f s of CPU   (target < 20)\n", cpu_s() - t0);
	printf("  memory                 %.0f MB, of that the model %.0f MB   (target < 500)\n",
	       rss_mb(), model_mb);
	blame_sum__free(sum);
	blame__free(b);
	model__free(m);
	return 0;
}

/* In a process of its own, so that its peak of memory is its own. */
static int explain_apart(const char *path)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		int err = explain(path);

		if (err)
			fprintf(stderr, "blame: %s\n", strerror(-err));
		fflush(stdout);
		_exit(err ? 1 : 0);
	}
	return waitpid(pid, &status, 0) == pid && !status ? 0 : -ECHILD;
}

/* What a command of the agent takes, at most so much memory at a time. */
static int command(const char *path, const char *name, const char *option)
{
	const char *tokenlag = getenv("TOKENLAG");
	struct rusage u;
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		if (dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO) >= 0)
			execl(tokenlag ? tokenlag : "build/tokenlag", "tokenlag", "-q", name, path, option, NULL);
		_exit(127);
	}
	if (wait4(pid, &status, 0, &u) != pid || status)
		return -ECHILD;
	printf("  tokenlag %-6s %-6s %4.1f s of CPU, %.0f MB\n", name, option ? option : "",
	       (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
		       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6,
	       (double)u.ru_maxrss * 1024 / 1e6);
	return 0;
}

static int commands(const char *path)
{
	static const char *const names[] = { "blame", "report", "why" };
	int err = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !err; i++) {
		err = command(path, names[i], NULL);
		if (!err && strcmp(names[i], "why") != 0)
			err = command(path, names[i], "--json");
	}
	return err;
}

int main(int argc, char **argv)
{
	static const uint32_t streams[] = { 64, 4 };
	uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 0) : 3600;
	char path[] = "/tmp/tokenlag-bench-XXXXXX";
	int fd = mkstemp(path), err = 0;

	if (fd < 0) {
		perror("blame: mkstemp");
		return 1;
	}
	close(fd);
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]) && !err; i++) {
		printf("%" PRIu64 " s of %u tokens/s in %u streams\n", seconds, TOKENS_PER_S,
		       streams[i]);
		err = write_recording(path, streams[i], seconds);
		if (!err)
			err = explain_apart(path);
		if (!err)
			err = commands(path);
	}
	unlink(path);
	if (err)
		fprintf(stderr, "blame: failed: %s\n", strerror(-err));
	return err ? 1 : 0;
}
