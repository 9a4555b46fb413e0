/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of recordings: events to record, files in memory, and what a reader makes of them. */
#ifndef TL_REC_HELP_H
#define TL_REC_HELP_H

#include "unit.h"

#include "buf.h"
#include "parse/recording.h"
#include "sink/recording.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static inline uint64_t rec_random(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

/* The i-th event of a made-up capture: chunks, steps of 0 to 7 members, usages. */
static inline const struct tl_hdr *rec_event(uint64_t i)
{
	static union {
		struct tl_hdr hdr;
		struct tl_chunk chunk;
		struct tl_usage usage;
		struct tl_step step;
		uint8_t bytes[1024];
	} ev;
	uint64_t seed = (i + 1) * 0x9e3779b97f4a7c15u;

	memset(&ev, 0, sizeof(ev));
	ev.hdr = (struct tl_hdr){ sizeof(ev.chunk), TL_CHUNK, TL_CHUNK_TEXT, 7, 8,
				  1000000000 + i * 5000000 + rec_random(&seed) % 9000000 };
	if (i % 5 == 0) {
		ev.hdr.kind = TL_STEP;
		ev.step.n_members = i % 8;
		ev.hdr.size = (uint16_t)(sizeof(ev.step) +
					 ev.step.n_members * sizeof(struct tl_member));
		ev.step.end_ns = ev.hdr.ts_ns + rec_random(&seed) % 10000000;
		for (uint16_t m = 0; m < ev.step.n_members; m++)
			ev.step.members[m] =
				(struct tl_member){ m, 1, (int32_t)i, TL_DECODE, 1, 0 };
	} else if (i % 17 == 3) {
		ev.hdr.kind = TL_USAGE;
		ev.hdr.size = sizeof(ev.usage);
		ev.usage.output = (uint32_t)rec_random(&seed);
		snprintf(ev.usage.id, sizeof(ev.usage.id), "id-%llx",
			 (unsigned long long)rec_random(&seed));
	} else {
		ev.chunk.req = (uint32_t)(i % 3);
		ev.chunk.bytes = (uint32_t)(rec_random(&seed) % 300);
	}
	return &ev.hdr;
}

static const struct tl_file_hdr rec_header = {
	.tiers = TL_T0 | TL_T1,
	.probes = 0x3f,
	.mono_ns = 1000000000,
	.realtime_ns = 1790000000000000000,
	.clock_err_ns = 50,
	.hostname = "box",
	.kernel = "6.1.0",
	.tool = "test",
};

struct rec_path {
	char dir[64], file[96];
};

static inline void rec_path__make(struct rec_path *p)
{
	strcpy(p->dir, "/tmp/tokenlag-unit-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	snprintf(p->file, sizeof(p->file), "%s/x.tlag", p->dir);
}

static inline void rec_path__remove(struct rec_path *p)
{
	unlink(p->file);
	assert_int_equal(rmdir(p->dir), 0);
}

static inline struct buf rec_slurp(const char *path)
{
	struct buf b;
	int fd = open(path, O_RDONLY);
	struct stat st;

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	buf__init(&b, 64 << 20);
	assert_int_equal(buf__reserve(&b, (size_t)st.st_size + 1), 0);
	b.len = (size_t)read(fd, b.data, (size_t)st.st_size + 1);
	assert_int_equal(b.len, st.st_size);
	close(fd);
	return b;
}

/* A closed recording of n events in memory. */
static inline struct buf rec_make(uint64_t n)
{
	struct rec_writer *w;
	struct rec_path p;
	struct buf b;

	rec_path__make(&p);
	assert_int_equal(rec_writer__open(p.file, &rec_header, NULL, &w), 0);
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(rec_writer__write(w, rec_event(i)), 0);
	assert_int_equal(rec_writer__close(w, true), 0);
	b = rec_slurp(p.file);
	rec_path__remove(&p);
	return b;
}

static inline int64_t rec_read_at(void *ctx, uint64_t offset, void *buf, size_t len)
{
	const struct buf *b = ctx;

	if (offset >= b->len)
		return 0;
	if (len > b->len - offset)
		len = b->len - offset;
	memcpy(buf, b->data + offset, len);
	return (int64_t)len;
}

/* Reads all of b. Every event must be one of rec_event(0..max), in order, none twice; *ret_n
 * receives how many there were. Returns what opening returned. */
static inline int rec_check(struct buf *b, uint64_t max, uint64_t *ret_n, struct rec_stats *ret)
{
	const struct rec_input in = { rec_read_at, b };
	struct rec_reader *r;
	const struct tl_hdr *ev;
	uint64_t i = 0, n = 0;
	char text[512];
	bool trouble;
	int err = rec_reader__new(&in, &r);

	if (err)
		return err;
	while ((err = rec_reader__next(r, &ev)) > 0) {
		const struct tl_hdr *want = NULL;

		for (; i < max && !want; i++) {
			want = rec_event(i);
			if (want->size != ev->size || memcmp(want, ev, ev->size) != 0)
				want = NULL;
		}
		assert_non_null(want);
		n++;
	}
	assert_int_equal(err, 0);
	assert_int_equal(rec_reader__stats(r)->n_events, n);
	*ret = *rec_reader__stats(r);
	*ret_n = n;
	trouble = rec_reader__trouble(r, text, sizeof(text));
	assert_int_equal(trouble, text[0] != 0);
	if (n < max)
		assert_true(trouble);	/* what is missing is never passed over in silence */
	rec_reader__free(r);
	return 0;
}

#endif
