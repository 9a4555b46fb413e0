/* SPDX-License-Identifier: Apache-2.0 */
/* Size and speed of recordings: writes a synthetic one, reads it back, prints what that took. */
#include "base/units.h"
#include "model/summary.h"
#include "parse/recording.h"
#include "sink/recording.h"
#include "source/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 4, DEFAULT_EVENTS = 2000000 };

/* A llama-server with all slots busy: one step, then one chunk per slot, with the jitter of a real
 * machine in every time stamp. */
struct sim {
	struct rec_writer *w;
	uint64_t seed, now_ns;
	uint64_t n_events, n_tokens, n_steps;
	uint32_t next_req;
	struct slot {
		uint32_t req;
		uint32_t left;		/* tokens */
		uint32_t prompt;	/* tokens still to be computed */
		int32_t pos;
	} slots[SLOTS];
};

static uint64_t random_next(struct sim *s)
{
	s->seed ^= s->seed << 13;
	s->seed ^= s->seed >> 7;
	s->seed ^= s->seed << 17;
	return s->seed;
}

/* About normal around mean, with a long tail to the right now and then. */
static uint64_t jitter(struct sim *s, uint64_t mean, uint64_t spread)
{
	uint64_t sum = 0;

	for (int i = 0; i < 4; i++)
		sum += random_next(s) % (spread + 1);
	if (random_next(s) % 64 == 0)
		sum += random_next(s) % (spread * 20 + 1);
	return mean - mean / 2 + sum / 2;
}

static void put(struct sim *s, void *rec, uint16_t kind, size_t size, uint32_t flags,
		uint64_t ts_ns)
{
	struct tl_hdr *h = rec;

	*h = (struct tl_hdr){ (uint16_t)size, kind, flags, 4711, 4711 + (kind == TL_STEP), ts_ns };
	if (rec_writer__write(s->w, h)) {
		fprintf(stderr, "replay: cannot write\n");
		exit(1);
	}
	s->n_events++;
}

static void begin_request(struct sim *s, uint32_t slot)
{
	struct tl_req_facts facts = { .max_tokens = 256,
				      .api = TL_API_CHAT,
				      .stream = 1,
				      .method = TL_POST,
				      .path = "/v1/chat/completions",
				      .model = "tiny" };
	struct tl_req_begin begin = { 0 };
	struct tl_resp_begin resp = { .status = 200, .body = TL_BODY_SSE };
	struct tl_seq_begin seq = { .slot = slot };
	struct slot *sl = &s->slots[slot];
	uint64_t at = s->now_ns + jitter(s, 300000, 100000);

	*sl = (struct slot){ ++s->next_req, 100 + (uint32_t)(random_next(s) % 200),
			     64 + (uint32_t)(random_next(s) % 512), 0 };
	begin.req = begin.conn = facts.req = resp.req = sl->req;
	begin.conn_open_ns = at - jitter(s, 60000, 20000);
	facts.body_bytes = 4ull * sl->prompt + 180;
	snprintf(facts.x_request_id, sizeof(facts.x_request_id), "%016llx",
		 (unsigned long long)random_next(s));
	put(s, &begin, TL_REQ_BEGIN, sizeof(begin), 0, at);
	put(s, &facts, TL_REQ_FACTS, sizeof(facts), 0, at + jitter(s, 20000, 8000));
	put(s, &seq, TL_SEQ_BEGIN, sizeof(seq), 0, at + jitter(s, 90000, 8000));
	put(s, &resp, TL_RESP_BEGIN, sizeof(resp), 0, at + jitter(s, 600000, 80000));
}

static void end_request(struct sim *s, uint32_t slot)
{
	struct slot *sl = &s->slots[slot];
	struct tl_usage usage = { .req = sl->req, .prompt = (uint32_t)sl->pos, .output = 200,
				  .slot = (int32_t)slot, .finish = TL_FINISH_LENGTH };
	struct tl_req_end end = { .req = sl->req, .how = TL_END_COMPLETE, .status = 200,
				  .bytes_in = 900, .bytes_out = 40000 + random_next(s) % 20000 };

	usage.prefill_ns = jitter(s, 40000000, 1000000);
	usage.decode_ns = jitter(s, 2000000000, 50000000);
	snprintf(usage.id, sizeof(usage.id), "chatcmpl-%016llx",
		 (unsigned long long)random_next(s));
	put(s, &usage, TL_USAGE, sizeof(usage), 0x7f, s->now_ns);
	put(s, &end, TL_REQ_END, sizeof(end), 0, s->now_ns + jitter(s, 30000, 9000));
}

static void step(struct sim *s)
{
	struct {
		struct tl_step head;
		struct tl_member members[SLOTS];
	} rec = { 0 };
	uint64_t begin = s->now_ns + jitter(s, 150000, 60000);

	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *sl = &s->slots[i];
		struct tl_member *m = &rec.members[i];

		if (sl->left == 0)
			begin_request(s, i);
		m->slot = i;
		m->pos = sl->pos;
		m->n_tokens = sl->prompt ? (sl->prompt < 256 ? sl->prompt : 256) : 1;
		m->phase = sl->prompt ? TL_PREFILL : TL_DECODE;
		m->n_out = sl->prompt <= 256;
		rec.head.n_tokens += m->n_tokens;
	}
	rec.head.n_members = SLOTS;
	rec.head.end_ns = begin + jitter(s, 7000000 + 60000 * rec.head.n_tokens, 800000);
	put(s, &rec, TL_STEP, sizeof(rec), 0, begin);
	s->n_steps++;
	s->now_ns = rec.head.end_ns + jitter(s, 80000, 30000);
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *sl = &s->slots[i];
		struct tl_chunk chunk = { .req = sl->req };

		sl->pos += (int32_t)rec.members[i].n_tokens;
		if (sl->prompt) {
			sl->prompt -= rec.members[i].n_tokens;
			if (sl->prompt)
				continue;
		}
		chunk.bytes = 225 + (uint32_t)(random_next(s) % 9);
		chunk.write_us = (uint16_t)(jitter(s, 14000, 5000) / 1000);
		s->now_ns += jitter(s, 45000, 15000);
		put(s, &chunk, TL_CHUNK, sizeof(chunk), TL_CHUNK_TEXT, s->now_ns);
		s->n_tokens++;
		if (--sl->left == 0)
			end_request(s, i);
	}
}

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int write_recording(const char *path, uint64_t n_events, uint64_t flush_ns, struct sim *s)
{
	const struct tl_file_hdr hdr = { .tool = TL_VERSION };
	const struct rec_writer_opts opts = { .force = true };
	uint64_t flushed_ns;
	int err;

	*s = (struct sim){ .seed = 88172645463325252u, .now_ns = 3600000000000 };
	flushed_ns = s->now_ns;
	err = rec_writer__open(path, &hdr, &opts, &s->w);
	if (err)
		return err;
	while (s->n_events < n_events) {
		step(s);
		if (flush_ns && s->now_ns - flushed_ns >= flush_ns) {
			flushed_ns = s->now_ns;
			err = rec_writer__flush(s->w);
			if (err)
				break;
		}
	}
	return rec_writer__close(s->w, true) ?: err;
}

/* m: feed the events to a model, too; NULL: read only. */
static int read_recording(const char *path, struct model *m, uint64_t *ret_n, uint64_t *ret_bytes)
{
	const struct tl_hdr *ev;
	struct src_file *f;
	uint64_t n = 0, bytes = 0;
	int err = src_file__open(path, &f);

	if (err)
		return err;
	while ((err = rec_reader__next(src_file__reader(f), &ev)) > 0) {
		n++;
		bytes += ev->size;
		if (m && (err = model__feed(m, ev)))
			break;
	}
	src_file__close(f);
	*ret_n = n;
	*ret_bytes = bytes;
	return err;
}

/* What `report` does before it prints: events to requests, joins, percentiles. */
static int replay(const char *path, uint64_t n, double *ret_s)
{
	struct model *m = model__new(NULL);
	double t = cpu_s();
	struct model_view v;
	struct summary s;
	uint64_t bytes;
	int err = m ? read_recording(path, m, &n, &bytes) : -ENOMEM;

	err = err ? err : model__finish(m);
	if (!err) {
		model__view(m, &v);
		err = summarise(&v, &s);
	}
	*ret_s = cpu_s() - t;
	model__free(m);
	return err;
}

static int run(const char *path, uint64_t n_events)
{
	double replay_s;
	uint64_t n = 0, raw_bytes = 0, best_n_per_s = 0;
	char size[UNITS_LEN];
	double t0 = cpu_s(), write_s;
	struct sim s;
	FILE *f;
	long file_bytes;
	int err = write_recording(path, n_events, 1000000000, &s);

	write_s = cpu_s() - t0;
	if (err)
		return err;
	for (int i = 0; i < 5; i++) {
		double t = cpu_s();

		err = read_recording(path, NULL, &n, &raw_bytes);
		if (err)
			return err;
		t = cpu_s() - t;
		if (t > 0 && (double)n / t > (double)best_n_per_s)
			best_n_per_s = (uint64_t)((double)n / t);
	}
	f = fopen(path, "r");
	if (!f || fseek(f, 0, SEEK_END) || (file_bytes = ftell(f)) < 0)
		return -1;
	fclose(f);
	printf("recording: %llu events, %llu tokens in %llu steps, %s of events\n",
	       (unsigned long long)n, (unsigned long long)s.n_tokens, (unsigned long long)s.n_steps,
	       units_bytes(size, raw_bytes));
	printf("  file size              %s\n", units_bytes(size, (uint64_t)file_bytes));
	printf("  per streamed token     %.2f bytes   (target <= 16)\n",
	       (double)file_bytes / (double)s.n_tokens);
	printf("  making and writing it  %.0f ns of CPU per event, flushed once a second\n",
	       write_s * 1e9 / (double)n);
	printf("  reading it             %s events/s on one core (best of 5)\n",
	       units_count(size, best_n_per_s));
	err = replay(path, n, &replay_s);
	if (err)
		return err;
	printf("  reading, model, joins and percentiles: %s events/s on one core   (target >= 5 million)\n",
	       units_count(size, (uint64_t)((double)n / replay_s)));
	return n == s.n_events ? 0 : -1;
}

int main(int argc, char **argv)
{
	uint64_t n_events = argc > 1 ? strtoull(argv[1], NULL, 0) : DEFAULT_EVENTS;
	char path[] = "/tmp/tokenlag-bench-XXXXXX";
	int fd = mkstemp(path), err;

	if (fd < 0) {
		perror("replay: mkstemp");
		return 1;
	}
	close(fd);
	err = run(path, n_events);
	if (err)
		fprintf(stderr, "replay: failed: %s\n", err < 0 ? strerror(-err) : "");
	unlink(path);
	return err ? 1 : 0;
}
