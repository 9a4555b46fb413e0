/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and speed with many streams at once: raw events of N concurrent answers through the pipeline, as
 * the kernel would send them (simulated: no kernel, no server), and raw SSE bytes through the parsers. */
#include "engine/pipeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS = 10000, TOKENS = 50 };

static const char request[] =
	"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:8080\r\nContent-Type: application/json\r\n"
	"Content-Length: 108\r\n\r\n"
	"{\"model\":\"tiny\",\"stream\":true,\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":\"one two three f\"}]}   ";
static const char head[] =
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
static const char token[] =
	"data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"content\":\" word\"}}],\"created\":1780000000,"
	"\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"model\":\"tiny\",\"system_fingerprint\":\"b11549\","
	"\"object\":\"chat.completion.chunk\"}\n\n";

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static double rss_mb(void)
{
	long size, rss = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f || fscanf(f, "%ld %ld", &size, &rss) != 2)
		rss = 0;
	if (f)
		fclose(f);
	return rss * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

static int drop(void *ctx, const struct tl_hdr *ev)
{
	uint64_t *kinds = ctx;

	kinds[ev->kind % 64]++;
	return 0;
}

static struct { struct tl_raw_net e; char room[1024]; } ev;
static uint64_t clock_ns = 1000;

static void feed(struct pipeline *p, uint64_t sock, uint8_t dir, const char *data, size_t len)
{
	ev.e = (struct tl_raw_net){
		.hdr = { (sizeof(ev.e) + len + 7) & ~7u, TL_RAW_NET, 0, 1, 1, clock_ns += 100 },
		.sock = sock, .total = len, .head = len, .dir = dir, .family = 2, .local_port = 8080,
	};
	memcpy(ev.e.data, data, len);
	if (pipeline__feed(p, &ev.e.hdr)) {
		fprintf(stderr, "streams: the pipeline refused an event\n");
		exit(1);
	}
}

static size_t chunked(char *out, const char *data, size_t len)
{
	size_t n = sprintf(out, "%zx\r\n", len);

	memcpy(out + n, data, len);
	memcpy(out + n + len, "\r\n", 2);
	return n + len + 2;
}

int main(void)
{
	uint64_t kinds[64] = { 0 }, t0, t;
	struct pipeline *p = pipeline__new(&(struct wire_opts){ .max_conns = 2 * STREAMS },
					   &(struct emit){ drop, kinds });
	char chunk[1024];
	size_t n = chunked(chunk, token, sizeof(token) - 1);
	double before = rss_mb(), open_mb, streaming_mb;

	if (!p)
		return 1;
	t0 = now_ns();
	for (uint64_t s = 1; s <= STREAMS; s++)
		feed(p, s, TL_IN, request, sizeof(request) - 1);
	for (uint64_t s = 1; s <= STREAMS; s++)
		feed(p, s, TL_OUT, head, sizeof(head) - 1);
	t = now_ns();
	open_mb = rss_mb() - before;
	printf("%-44s %10.2f us\n", "request and response head, per request", (t - t0) / 1e3 / STREAMS);
	t0 = now_ns();
	for (int i = 0; i < TOKENS; i++)
		for (uint64_t s = 1; s <= STREAMS; s++)
			feed(p, s, TL_OUT, chunk, n);
	t = now_ns();
	streaming_mb = rss_mb() - before;
	printf("%-44s %10.2f us   target <= 10 (all of the agent)\n", "raw event to semantic event, per token",
	       (t - t0) / 1e3 / STREAMS / TOKENS);
	printf("%-44s %10.0f MB/s target >= 300\n", "raw SSE bytes through HTTP, SSE and JSON",
	       (double)n * STREAMS * TOKENS / ((t - t0) / 1e3));
	printf("%-44s %10.1f MB   target <= 64 (with 16 MB of ring)\n", "memory for 10,000 streams under way",
	       open_mb > streaming_mb ? open_mb : streaming_mb);
	if (kinds[TL_CHUNK] != (uint64_t)STREAMS * TOKENS) {
		fprintf(stderr, "streams: %" PRIu64 " chunks came out of %d\n", kinds[TL_CHUNK], STREAMS * TOKENS);
		return 1;
	}
	pipeline__free(p);
	return 0;
}
